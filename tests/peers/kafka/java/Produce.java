import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.Future;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.PartitionInfo;
import org.apache.kafka.common.TopicPartition;

/** Records with keys, headers and times, in every codec, from producers of every kind, come back as they were sent. */
final class Produce {
    private static final int COUNT = 200;

    private final Scenario scenario;
    private final String topic;
    private final Map<String, String> placed = new HashMap<>();

    Produce(Scenario scenario) {
        this.scenario = scenario;
        this.topic = scenario.name("topic");
    }

    void run() throws Exception {
        try (Admin admin = Admin.create(scenario.settings())) {
            // The records are older than any server keeps them by default.
            NewTopic wanted = new NewTopic(topic, 3, (short) 1).configs(Map.of("retention.ms", "-1"));
            admin.createTopics(List.of(wanted)).all().get();
        }
        for (String codec : Scenario.CODECS) {
            send(codec, "compression.type", codec, "linger.ms", "20");
        }
        send("acks=1", "acks", "1", "enable.idempotence", "false");
        send("acks=0", "acks", "0", "enable.idempotence", "false");
        read();
        tooLarge();
        autoCreate();
    }

    private void send(String tag, Object... settings) throws Exception {
        List<Future<RecordMetadata>> results = new ArrayList<>();
        try (KafkaProducer<String, String> producer = scenario.producer(settings)) {
            for (int number = 0; number < COUNT; number++) {
                ProducerRecord<String, String> record =
                    new ProducerRecord<>(topic, null, 1_700_000_000_000L + number, "key " + number, value(tag, number));
                record.headers().add("codec", tag.getBytes(StandardCharsets.UTF_8));
                results.add(producer.send(record));
            }
        }
        for (int number = 0; number < COUNT; number++) {
            RecordMetadata result = results.get(number).get();
            if (result.hasOffset()) { // none with acks=0
                placed.put(value(tag, number), result.partition() + "/" + result.offset());
            }
        }
    }

    /** Every tenth is large. */
    private static String value(String tag, int number) {
        return tag + " " + number + (number % 10 == 0 ? " x".repeat(10_000) : "");
    }

    private void read() {
        Map<String, Integer> good = new HashMap<>();
        Set<String> places = new HashSet<>();
        int count = 0;
        try (KafkaConsumer<String, String> consumer = scenario.consumer()) {
            List<TopicPartition> all = new ArrayList<>();
            for (PartitionInfo partition : consumer.partitionsFor(topic)) {
                all.add(new TopicPartition(topic, partition.partition()));
            }
            consumer.assign(all);
            while (count < COUNT * (Scenario.CODECS.size() + 2)) {
                for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(500))) {
                    String tag = new String(record.headers().lastHeader("codec").value(), StandardCharsets.UTF_8);
                    int number = Integer.parseInt(record.key().substring(4));
                    String place = record.partition() + "/" + record.offset();
                    boolean right = record.value().equals(value(tag, number))
                        && record.timestamp() == 1_700_000_000_000L + number
                        && placed.getOrDefault(record.value(), place).equals(place) && places.add(place);
                    good.merge(tag, right ? 1 : 0, Integer::sum);
                    count++;
                }
            }
        }
        scenario.fact("good", good);
    }

    /** More than the broker's message.max.bytes, less than the producer's max.request.size. */
    private void tooLarge() throws Exception {
        try (KafkaProducer<String, String> producer = scenario.producer("max.request.size", "4000000")) {
            producer.send(new ProducerRecord<>(topic, "x".repeat(2_000_000))).get();
            scenario.fact("too large", "no failure");
        } catch (java.util.concurrent.ExecutionException error) {
            scenario.fact("too large", error.getCause().getClass().getSimpleName());
        }
    }

    private void autoCreate() throws Exception {
        try (KafkaProducer<String, String> producer = scenario.producer()) {
            RecordMetadata result = producer.send(new ProducerRecord<>(scenario.name("new"), "first")).get();
            scenario.fact("first of a new topic", result.offset());
        }
    }
}
