import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.ConsumerGroupDescription;
import org.apache.kafka.clients.admin.ListOffsetsResult;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;

/** Offsets of partitions, and of groups, through the Admin. */
final class Offsets {
    private static final long FIRST_MS = 1_700_000_000_000L;

    private final Scenario scenario;
    private final String topic;
    private final TopicPartition partition;
    private final String group;
    private Admin admin;

    Offsets(Scenario scenario) {
        this.scenario = scenario;
        this.topic = scenario.name("topic");
        this.partition = new TopicPartition(topic, 0);
        this.group = scenario.name("group");
    }

    void run() throws Exception {
        try (Admin made = Admin.create(scenario.settings())) {
            admin = made;
            // The records are older than any server keeps them by default.
            NewTopic wanted = new NewTopic(topic, 1, (short) 1).configs(Map.of("retention.ms", "-1"));
            admin.createTopics(List.of(wanted)).all().get();
            byTime();
            deleteRecords();
            commitAlone();
            commitInGroup();
            deleteGroup();
        }
    }

    /** Ten records a second apart, the seventh of which is the youngest. */
    private void byTime() throws Exception {
        scenario.fact("latest of nothing", offset(OffsetSpec.latest()));
        scenario.fact("youngest of nothing", offset(OffsetSpec.maxTimestamp()));
        try (KafkaProducer<String, String> producer = scenario.producer("linger.ms", "50")) {
            for (int number = 0; number < 10; number++) {
                long time = FIRST_MS + 1000 * (number == 6 ? 60 : number);
                producer.send(new ProducerRecord<>(topic, 0, time, "key", "value " + number));
            }
        }
        scenario.fact("earliest", offset(OffsetSpec.earliest()));
        scenario.fact("latest", offset(OffsetSpec.latest()));
        scenario.fact("at 3.5 s", offset(OffsetSpec.forTimestamp(FIRST_MS + 3500)));
        scenario.fact("at 9.5 s", offset(OffsetSpec.forTimestamp(FIRST_MS + 9500)));
        scenario.fact("after all", offset(OffsetSpec.forTimestamp(FIRST_MS + 61_000)));
        scenario.fact("youngest", offset(OffsetSpec.maxTimestamp()));
    }

    private long offset(OffsetSpec wanted) throws Exception {
        ListOffsetsResult told = admin.listOffsets(Map.of(partition, wanted));
        return told.partitionResult(partition).get().offset();
    }

    private void deleteRecords() throws Exception {
        Map<TopicPartition, RecordsToDelete> four = Map.of(partition, RecordsToDelete.beforeOffset(4));
        scenario.fact("low watermark", admin.deleteRecords(four).lowWatermarks().get(partition).get().lowWatermark());
        scenario.fact("earliest afterwards", offset(OffsetSpec.earliest()));
        scenario.failure("delete too many", admin.deleteRecords(Map.of(partition, RecordsToDelete.beforeOffset(11))).all());
        try (KafkaConsumer<String, String> consumer = scenario.consumer()) {
            consumer.assign(List.of(partition));
            consumer.seek(partition, 1); // is gone: auto.offset.reset=earliest
            int count = 0;
            while (count < 6) {
                count += consumer.poll(Duration.ofMillis(200)).count();
            }
            scenario.fact("read of the rest", count);
            scenario.fact("position at the end", consumer.position(partition));
        }
    }

    private void commitAlone() throws Exception {
        scenario.fact("committed by nobody", admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata().get().size());
        admin.alterConsumerGroupOffsets(group, Map.of(partition, new OffsetAndMetadata(7, "note"))).all().get();
        scenario.fact("committed", committed());
        scenario.fact("note", admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata().get().get(partition).metadata());
        scenario.fact("state alone", description().state().name());
        scenario.fact("is listed", admin.listConsumerGroups().all().get().stream().anyMatch(listed -> listed.groupId().equals(group)));
    }

    private long committed() throws Exception {
        return admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata().get().get(partition).offset();
    }

    private ConsumerGroupDescription description() throws Exception {
        return admin.describeConsumerGroups(List.of(group)).all().get().get(group);
    }

    private void commitInGroup() throws Exception {
        try (KafkaConsumer<String, String> consumer = scenario.consumer("group.id", group, "client.id", "reader")) {
            consumer.subscribe(List.of(topic));
            int count = 0;
            while (count < 3) {
                count += consumer.poll(Duration.ofMillis(200)).count();
            }
            consumer.commitSync();
            scenario.fact("read from the commit on", count);
            scenario.fact("committed in the group", committed());
            ConsumerGroupDescription told = description();
            scenario.fact("state", told.state().name());
            scenario.fact("assignor", told.partitionAssignor());
            scenario.fact("members", told.members().size());
            scenario.fact("member", told.members().iterator().next().clientId());
            scenario.fact("host", told.members().iterator().next().host());
            scenario.fact("assigned", told.members().iterator().next().assignment().topicPartitions().size());
            scenario.failure("delete with members", admin.deleteConsumerGroups(List.of(group)).all());
            scenario.failure("delete a read offset", admin.deleteConsumerGroupOffsets(group, Set.of(partition)).all());
            scenario.failure("alter with members",
                admin.alterConsumerGroupOffsets(group, Map.of(partition, new OffsetAndMetadata(5))).all());
        }
    }

    private void deleteGroup() throws Exception {
        scenario.fact("state afterwards", description().state().name());
        admin.deleteConsumerGroupOffsets(group, Set.of(partition)).all().get();
        scenario.fact("offsets left", admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata().get().size());
        admin.deleteConsumerGroups(List.of(group)).all().get();
        scenario.failure("delete twice", admin.deleteConsumerGroups(List.of(group)).all());
        scenario.fact("is listed afterwards",
            admin.listConsumerGroups().all().get().stream().anyMatch(listed -> listed.groupId().equals(group)));
    }
}
