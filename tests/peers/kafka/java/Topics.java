import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.DescribeClusterResult;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.common.TopicPartitionInfo;
import org.apache.kafka.common.config.ConfigResource;

/** Topics, their partitions and settings, and the cluster, through the Admin. */
final class Topics {
    private final Scenario scenario;
    private final String topic;
    private Admin admin;

    Topics(Scenario scenario) {
        this.scenario = scenario;
        this.topic = scenario.name("topic");
    }

    void run() throws Exception {
        try (Admin made = Admin.create(scenario.settings())) {
            admin = made;
            cluster();
            create();
            grow();
            configure();
            delete();
        }
    }

    private void cluster() throws Exception {
        DescribeClusterResult cluster = admin.describeCluster();
        scenario.fact("nodes", cluster.nodes().get().size());
        scenario.fact("has a controller", cluster.controller().get() != null);
        scenario.fact("has an id", !cluster.clusterId().get().isEmpty());
    }

    private void create() throws Exception {
        NewTopic wanted = new NewTopic(topic, 3, (short) 1).configs(Map.of("retention.ms", "3600000"));
        admin.createTopics(List.of(wanted)).all().get();
        scenario.becomes("is listed", true, () -> admin.listTopics().names().get().contains(topic));
        scenario.becomes("partitions", 3, this::partitions);
        scenario.failure("created twice", admin.createTopics(List.of(wanted)).all());
        scenario.failure("bad name", create("not a name", 1, 1));
        scenario.failure("no partitions", create(scenario.name("none"), 0, 1));
        scenario.failure("too many replicas", create(scenario.name("none"), 1, 9));
        admin.createTopics(List.of(new NewTopic(scenario.name("default"), Optional.empty(), Optional.empty()))).all().get();
        scenario.becomes("default partitions", 1, () -> admin.describeTopics(List.of(scenario.name("default")))
            .allTopicNames().get().get(scenario.name("default")).partitions().size());
    }

    private org.apache.kafka.common.KafkaFuture<Void> create(String name, int partitions, int replicas) {
        return admin.createTopics(List.of(new NewTopic(name, partitions, (short) replicas))).all();
    }

    private void grow() throws Exception {
        admin.createPartitions(Map.of(topic, NewPartitions.increaseTo(5))).all().get();
        scenario.becomes("more partitions", 5, this::partitions);
        scenario.failure("fewer partitions", admin.createPartitions(Map.of(topic, NewPartitions.increaseTo(4))).all());
        scenario.failure("as many partitions", admin.createPartitions(Map.of(topic, NewPartitions.increaseTo(5))).all());
        scenario.failure("partitions of no topic",
            admin.createPartitions(Map.of(scenario.name("none"), NewPartitions.increaseTo(5))).all());
    }

    /** How many partitions have a leader which is their one replica, in sync. */
    private int partitions() throws Exception {
        TopicDescription told = admin.describeTopics(List.of(topic)).allTopicNames().get().get(topic);
        int good = 0;
        for (TopicPartitionInfo partition : told.partitions()) {
            boolean alone = partition.replicas().equals(List.of(partition.leader())) && partition.isr().equals(partition.replicas());
            good += partition.partition() == good && alone ? 1 : 0;
        }
        return good;
    }

    private void configure() throws Exception {
        scenario.fact("retention", setting("retention.ms").value());
        scenario.fact("retention is default", setting("retention.ms").isDefault());
        alter("retention.ms", "7200000", AlterConfigOp.OpType.SET);
        scenario.becomes("retention, set", "7200000", () -> setting("retention.ms").value());
        alter("retention.ms", "", AlterConfigOp.OpType.DELETE);
        scenario.becomes("retention, unset", true, () -> setting("retention.ms").isDefault());
        ConfigResource resource = new ConfigResource(ConfigResource.Type.TOPIC, topic);
        AlterConfigOp bad = new AlterConfigOp(new ConfigEntry("no.such.setting", "1"), AlterConfigOp.OpType.SET);
        scenario.failure("bad setting", admin.incrementalAlterConfigs(Map.of(resource, List.of(bad))).all());
    }

    private ConfigEntry setting(String name) throws Exception {
        ConfigResource resource = new ConfigResource(ConfigResource.Type.TOPIC, topic);
        return admin.describeConfigs(List.of(resource)).all().get().get(resource).get(name);
    }

    private void alter(String name, String value, AlterConfigOp.OpType how) throws Exception {
        ConfigResource resource = new ConfigResource(ConfigResource.Type.TOPIC, topic);
        Collection<AlterConfigOp> operations = List.of(new AlterConfigOp(new ConfigEntry(name, value), how));
        admin.incrementalAlterConfigs(Map.of(resource, operations)).all().get();
    }

    private void delete() throws Exception {
        admin.deleteTopics(List.of(topic)).all().get();
        scenario.becomes("is listed afterwards", false, () -> admin.listTopics().names().get().contains(topic));
        scenario.becomes("described afterwards", "UnknownTopicOrPartitionException",
            () -> admin.describeTopics(List.of(topic)).allTopicNames().get().containsKey(topic));
        scenario.failure("deleted twice", admin.deleteTopics(List.of(topic)).all());
    }
}
