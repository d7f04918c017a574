import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.stream.Collectors;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.InvalidTxnStateException;
import org.apache.kafka.common.errors.ProducerFencedException;

/**
 * Consumes, transforms and produces in so many transactions, of which every third is aborted, and tells the end of each:
 * Transformer BOOTSTRAP PREFIX COUNT, with the topics PREFIX-source and PREFIX-target. A failed transaction is done again.
 * It ends when it is fenced.
 */
final class Transformer {
    private static final int RECORDS = 5;

    private final Scenario scenario;
    private final String source;
    private final String target;

    private Transformer(Scenario scenario) {
        this.scenario = scenario;
        this.source = scenario.name("source");
        this.target = scenario.name("target");
    }

    public static void main(String[] arguments) {
        new Transformer(new Scenario(arguments[0], arguments[1])).run(Integer.parseInt(arguments[2]));
    }

    private void run(int count) {
        try (KafkaConsumer<String, String> consumer = scenario.consumer("group.id", scenario.name("group"),
                "isolation.level", "read_committed", "max.poll.records", String.valueOf(RECORDS));
            KafkaProducer<String, String> producer = scenario.producer("transactional.id", scenario.name("id"))) {
            producer.initTransactions();
            Lines.emit("ready");
            List<TopicPartition> partitions = consumer.partitionsFor(source).stream()
                .map(each -> new TopicPartition(source, each.partition())).collect(Collectors.toList());
            consumer.assign(partitions);
            for (int number = 1; number <= count;) {
                ConsumerRecords<String, String> records = consumer.poll(Duration.ofMillis(200));
                if (records.isEmpty()) {
                    continue;
                }
                try {
                    boolean commits = number % 3 != 0;
                    transaction(producer, consumer, records, commits);
                    Lines.emit("ended", "number", number, "committed", commits);
                    number++;
                } catch (ProducerFencedException | InvalidTxnStateException error) {
                    // The latter if it commits just after the coordinator has aborted its transaction, and before the
                    // other producer has its epoch (TransactionCoordinator.endTxnEpochBumped).
                    Lines.emit("fenced");
                    return;
                } catch (KafkaException error) {
                    Lines.emit("failed", "error", error.toString());
                    producer.abortTransaction();
                }
                again(consumer);
            }
            Lines.emit("done");
        } catch (ProducerFencedException error) {
            Lines.emit("fenced");
        }
    }

    private void transaction(KafkaProducer<String, String> producer, KafkaConsumer<String, String> consumer,
            ConsumerRecords<String, String> records, boolean commits) {
        producer.beginTransaction();
        Map<TopicPartition, OffsetAndMetadata> next = new HashMap<>();
        for (ConsumerRecord<String, String> record : records) {
            TopicPartition partition = new TopicPartition(record.topic(), record.partition());
            next.put(partition, new OffsetAndMetadata(record.offset() + 1));
            producer.send(new ProducerRecord<>(target, record.partition(), null, record.value()));
        }
        producer.sendOffsetsToTransaction(next, consumer.groupMetadata());
        if (commits) {
            producer.commitTransaction();
        } else {
            producer.flush();
            producer.abortTransaction();
        }
    }

    /** Goes on from what is committed. */
    private static void again(KafkaConsumer<String, String> consumer) {
        Map<TopicPartition, OffsetAndMetadata> committed = consumer.committed(consumer.assignment());
        for (TopicPartition partition : consumer.assignment()) {
            OffsetAndMetadata offset = committed.get(partition);
            consumer.seek(partition, offset == null ? 0 : offset.offset());
        }
    }
}
