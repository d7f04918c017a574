import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.consumer.AcknowledgeType;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicIdPartition;
import org.apache.kafka.common.config.ConfigResource;

/** One member of a share group; the arguments, commands and events are told in share_members.py. */
public final class ShareMember {
    private final Map<String, String> options = new HashMap<>();
    private final BlockingQueue<String> commands = new LinkedBlockingQueue<>();
    private String verdict;

    public static void main(String[] arguments) throws Exception {
        ShareMember member = new ShareMember();
        for (String argument : arguments) {
            int end = argument.indexOf('=');
            member.options.put(argument.substring(0, end), argument.substring(end + 1));
        }
        Thread reader = new Thread(member::readCommands);
        reader.setDaemon(true);
        reader.start();
        try {
            member.configure();
            member.run();
        } catch (KafkaException error) {
            Lines.emit("error", "error", error.toString(), "fatal", true);
        }
        Lines.emit("left");
        System.exit(0);
    }

    private void readCommands() {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        in.lines().forEach(commands::add);
        commands.add("leave");
    }

    /** Sets what the group is told, before it is joined: NAME:VALUE, joined by semicolons. */
    private void configure() throws Exception {
        if (!options.containsKey("settings")) {
            return;
        }
        List<AlterConfigOp> changes = new ArrayList<>();
        for (String setting : options.get("settings").split(";")) {
            int end = setting.indexOf(':');
            changes.add(new AlterConfigOp(
                new ConfigEntry(setting.substring(0, end), setting.substring(end + 1)), AlterConfigOp.OpType.SET));
        }
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", options.get("bootstrap")))) {
            ConfigResource group = new ConfigResource(ConfigResource.Type.GROUP, options.get("group"));
            admin.incrementalAlterConfigs(Map.of(group, changes)).all().get();
        }
        Lines.emit("configured");
    }

    private void run() throws InterruptedException {
        verdict = options.getOrDefault("verdict", "accept");
        boolean isExplicit = options.getOrDefault("mode", "implicit").equals("explicit");
        try (KafkaShareConsumer<String, String> consumer = new KafkaShareConsumer<>(properties())) {
            consumer.setAcknowledgementCommitCallback((offsets, error) -> {
                if (error != null) {
                    Lines.emit("error", "error", error.toString());
                }
            });
            consumer.subscribe(List.of(options.get("topics").split(",")));
            boolean leaves = false;
            while (!leaves) {
                ConsumerRecords<String, String> records = poll(consumer);
                for (ConsumerRecord<String, String> record : records) {
                    String partition = record.topic() + "-" + record.partition();
                    Lines.emit("record", "partition", partition, "offset", record.offset(),
                        "value", record.value(), "delivery", (int) record.deliveryCount().orElse((short) 0));
                }
                if (options.containsKey("holds") && !records.isEmpty()) { // until it is killed
                    Lines.emit("stalled");
                    commands.take();
                }
                leaves = obey();
                if (isExplicit) {
                    acknowledge(consumer, records);
                }
                if (!records.isEmpty() && !leaves) {
                    commit(consumer);
                }
            }
        }
    }

    private static ConsumerRecords<String, String> poll(KafkaShareConsumer<String, String> consumer) {
        try {
            return consumer.poll(Duration.ofMillis(200));
        } catch (KafkaException error) {
            Lines.emit("error", "error", error.toString());
            return ConsumerRecords.empty();
        }
    }

    /** Takes the commands that have come; returns whether to leave. */
    private boolean obey() throws InterruptedException {
        while (!commands.isEmpty()) {
            String command = commands.take();
            if (command.equals("leave")) {
                return true;
            }
            verdict = command;
            Lines.emit("obeyed", "verdict", verdict);
        }
        return false;
    }

    private void acknowledge(KafkaShareConsumer<String, String> consumer, ConsumerRecords<String, String> records) {
        for (ConsumerRecord<String, String> record : records) {
            String wanted = verdict;
            if (wanted.equals("odd")) { // of each two neighbours, one is accepted and one released
                wanted = record.offset() % 2 == 1 ? "accept" : "release";
            }
            consumer.acknowledge(record, AcknowledgeType.valueOf(wanted.toUpperCase()));
        }
    }

    private static void commit(KafkaShareConsumer<String, String> consumer) {
        try {
            Map<TopicIdPartition, Optional<KafkaException>> results = consumer.commitSync();
            List<Object> accepted = new ArrayList<>();
            results.forEach((place, error) -> {
                if (error.isPresent()) {
                    Lines.emit("error", "error", error.get().toString());
                } else {
                    accepted.add(place.topicPartition().toString());
                }
            });
            Lines.emit("committed", "partitions", accepted);
        } catch (KafkaException error) {
            Lines.emit("error", "error", error.toString());
        }
    }

    private Properties properties() {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", options.get("bootstrap"));
        properties.put("group.id", options.get("group"));
        properties.put("client.id", options.getOrDefault("client", "member"));
        properties.put("key.deserializer", "org.apache.kafka.common.serialization.StringDeserializer");
        properties.put("value.deserializer", "org.apache.kafka.common.serialization.StringDeserializer");
        properties.put("share.acknowledgement.mode", options.getOrDefault("mode", "implicit"));
        properties.put("max.poll.records", options.getOrDefault("max_records", "500"));
        properties.put("fetch.min.bytes", options.getOrDefault("min_bytes", "1"));
        properties.put("metadata.max.age.ms", "1000");
        if (options.containsKey("acquire_mode")) {
            properties.put("share.acquire.mode", options.get("acquire_mode"));
        }
        return properties;
    }
}
