import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;

/** Consume, transform, produce, exactly once, although every third transaction is aborted. */
final class Transactions {
    private static final int COUNT = 60;

    private final Scenario scenario;
    private final String source;
    private final String target;

    Transactions(Scenario scenario) {
        this.scenario = scenario;
        this.source = scenario.name("source");
        this.target = scenario.name("target");
    }

    void run() throws Exception {
        try (Admin admin = Admin.create(scenario.settings())) {
            admin.createTopics(List.of(new NewTopic(source, 2, (short) 1), new NewTopic(target, 2, (short) 1))).all().get();
            try (KafkaProducer<String, String> producer = scenario.producer()) {
                for (int number = 0; number < COUNT; number++) {
                    producer.send(new ProducerRecord<>(source, number % 2, null, String.valueOf(number)));
                }
            }
            transform();
            scenario.fact("committed", read("read_committed", COUNT));
            scenario.fact("more with those aborted", read("read_uncommitted", COUNT + 1) > COUNT);
            long offsets = 0;
            while (offsets < COUNT) { // the marker is written after the answer
                offsets = 0;
                for (OffsetAndMetadata offset : admin.listConsumerGroupOffsets(scenario.name("group"))
                    .partitionsToOffsetAndMetadata().get().values()) {
                    offsets += offset.offset();
                }
            }
            scenario.fact("offsets", offsets);
            hidden();
            fenced();
        }
    }

    private void transform() {
        try (KafkaConsumer<String, String> consumer = scenario.consumer(
                "group.id", scenario.name("group"), "isolation.level", "read_committed", "max.poll.records", "7");
            KafkaProducer<String, String> producer = scenario.producer("transactional.id", scenario.name("transform"))) {
            producer.initTransactions();
            consumer.subscribe(List.of(source));
            int done = 0;
            for (int transaction = 1; done < COUNT;) {
                ConsumerRecords<String, String> records = consumer.poll(Duration.ofMillis(200));
                if (records.isEmpty()) {
                    continue;
                }
                producer.beginTransaction();
                Map<TopicPartition, OffsetAndMetadata> next = new HashMap<>();
                Map<TopicPartition, Long> first = new HashMap<>();
                for (ConsumerRecord<String, String> record : records) {
                    TopicPartition partition = new TopicPartition(record.topic(), record.partition());
                    first.putIfAbsent(partition, record.offset());
                    next.put(partition, new OffsetAndMetadata(record.offset() + 1));
                    producer.send(new ProducerRecord<>(target, record.partition(), null, record.value()));
                }
                producer.sendOffsetsToTransaction(next, consumer.groupMetadata());
                if (transaction++ % 3 == 0) {
                    producer.flush(); // else the producer drops what it has not sent
                    producer.abortTransaction();
                    first.forEach(consumer::seek);
                } else {
                    producer.commitTransaction();
                    done += records.count();
                }
            }
        }
    }

    /** How many records the target has, each number once with read_committed; at least so many. */
    private int read(String isolation, int least) {
        List<String> values = new ArrayList<>();
        try (KafkaConsumer<String, String> consumer = scenario.consumer("isolation.level", isolation)) {
            List<TopicPartition> partitions = List.of(new TopicPartition(target, 0), new TopicPartition(target, 1));
            consumer.assign(partitions);
            Map<TopicPartition, Long> ends = consumer.endOffsets(partitions);
            while (values.size() < least || !ends.entrySet().stream()
                .allMatch(end -> consumer.position(end.getKey()) >= end.getValue())) {
                for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(200))) {
                    values.add(record.value());
                }
            }
        }
        if (isolation.equals("read_committed")) {
            scenario.fact("different", values.stream().distinct().count());
        }
        return values.size();
    }

    /** What an open transaction has written is behind the last stable offset. */
    private void hidden() throws Exception {
        TopicPartition partition = new TopicPartition(target, 0);
        try (KafkaProducer<String, String> open = scenario.producer("transactional.id", scenario.name("open"));
            KafkaProducer<String, String> plain = scenario.producer();
            KafkaConsumer<String, String> committed = scenario.consumer("isolation.level", "read_committed");
            KafkaConsumer<String, String> uncommitted = scenario.consumer()) {
            open.initTransactions();
            open.beginTransaction();
            long held = open.send(new ProducerRecord<>(target, 0, null, "open")).get().offset();
            plain.send(new ProducerRecord<>(target, 0, null, "plain")).get();
            scenario.fact("stable end", committed.endOffsets(List.of(partition)).get(partition) - held);
            scenario.fact("end", uncommitted.endOffsets(List.of(partition)).get(partition) - held);
            open.commitTransaction();
            long end = held;
            while (end == held) { // the marker is written after the answer
                end = committed.endOffsets(List.of(partition)).get(partition);
            }
            scenario.fact("stable end afterwards", end - held);
        }
    }

    private void fenced() throws Exception {
        try (KafkaProducer<String, String> older = scenario.producer("transactional.id", scenario.name("one"));
            KafkaProducer<String, String> later = scenario.producer("transactional.id", scenario.name("one"))) {
            older.initTransactions();
            older.beginTransaction();
            older.send(new ProducerRecord<>(target, 0, null, "older")).get();
            later.initTransactions();
            try {
                older.commitTransaction();
                scenario.fact("fenced", "no failure");
            } catch (KafkaException error) {
                scenario.fact("fenced", error.getClass().getSimpleName());
            }
            later.beginTransaction();
            later.send(new ProducerRecord<>(target, 0, null, "later"));
            later.commitTransaction();
            scenario.fact("later", "committed");
        }
    }
}
