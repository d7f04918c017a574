import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.regex.Pattern;
import org.apache.kafka.clients.consumer.CommitFailedException;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.CooperativeStickyAssignor;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.RangeAssignor;
import org.apache.kafka.clients.consumer.RoundRobinAssignor;
import org.apache.kafka.clients.consumer.StickyAssignor;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.RebalanceInProgressException;
import org.apache.kafka.common.errors.RetriableException;
import org.apache.kafka.common.errors.UnknownMemberIdException;

/** One member of a consumer group; the arguments, commands and events are told in members.py. */
public final class Member {
    private static final Map<String, Class<?>> ASSIGNORS = Map.of(
        "range", RangeAssignor.class,
        "roundrobin", RoundRobinAssignor.class,
        "sticky", StickyAssignor.class,
        "cooperative-sticky", CooperativeStickyAssignor.class);

    private final Map<String, String> options = new HashMap<>();
    private final BlockingQueue<String> commands = new LinkedBlockingQueue<>();

    public static void main(String[] arguments) throws Exception {
        Member member = new Member();
        for (String argument : arguments) {
            int end = argument.indexOf('=');
            member.options.put(argument.substring(0, end), argument.substring(end + 1));
        }
        Thread reader = new Thread(member::readCommands);
        reader.setDaemon(true);
        reader.start();
        try {
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

    private void run() throws InterruptedException {
        try (KafkaConsumer<String, String> consumer = new KafkaConsumer<>(properties())) {
            Told listener = new Told();
            if (options.containsKey("pattern")) {
                consumer.subscribe(Pattern.compile(options.get("pattern")), listener);
            } else {
                consumer.subscribe(List.of(options.get("topics").split(",")), listener);
            }
            String command = "";
            while (!command.equals("leave")) {
                if (command.equals("stall")) {
                    commands.take();
                }
                ConsumerRecords<String, String> records = consumer.poll(Duration.ofMillis(100));
                for (ConsumerRecord<String, String> record : records) {
                    Lines.record(record);
                }
                if (!records.isEmpty()) {
                    commit(consumer);
                }
                command = commands.isEmpty() ? "" : commands.take();
            }
        }
    }

    /**
     * A commit that a rebalance has overtaken is told and forgotten: the next owner reads the records again. The member of
     * group.protocol=consumer says UnknownMemberIdException where the classic one says CommitFailedException.
     */
    private static void commit(KafkaConsumer<String, String> consumer) {
        try {
            consumer.commitSync();
            Lines.emit("committed");
        } catch (CommitFailedException | UnknownMemberIdException | RebalanceInProgressException
            | RetriableException error) {
            Lines.emit("error", "error", error.toString());
        }
    }

    private Properties properties() {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", options.get("bootstrap"));
        properties.put("group.id", options.get("group"));
        properties.put("client.id", options.get("client"));
        properties.put("key.deserializer", "org.apache.kafka.common.serialization.StringDeserializer");
        properties.put("value.deserializer", "org.apache.kafka.common.serialization.StringDeserializer");
        properties.put("auto.offset.reset", "earliest");
        properties.put("enable.auto.commit", "false");
        properties.put("metadata.max.age.ms", options.get("refresh_ms"));
        properties.put("max.poll.interval.ms", options.get("poll_ms"));
        if (options.containsKey("instance")) {
            properties.put("group.instance.id", options.get("instance"));
        }
        if (options.get("assignor").equals("uniform")) { // the servers' own: group.protocol=consumer
            properties.put("group.protocol", "consumer");
            properties.put("group.remote.assignor", "uniform");
        } else {
            properties.put("partition.assignment.strategy", List.of(ASSIGNORS.get(options.get("assignor"))));
            properties.put("session.timeout.ms", options.get("session_ms"));
            properties.put("heartbeat.interval.ms", options.get("heartbeat_ms"));
        }
        return properties;
    }

    private static final class Told implements ConsumerRebalanceListener {
        @Override
        public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
            Lines.partitions("assigned", partitions);
        }

        @Override
        public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
            Lines.partitions("revoked", partitions);
        }

        @Override
        public void onPartitionsLost(Collection<TopicPartition> partitions) {
            Lines.partitions("lost", partitions);
        }
    }
}
