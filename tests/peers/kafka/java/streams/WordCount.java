import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.TreeSet;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.StreamsMetadata;
import org.apache.kafka.streams.TaskMetadata;
import org.apache.kafka.streams.ThreadMetadata;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.Repartitioned;

/**
 * Counts words: from `input` through a repartition topic into a store with a changelog, and each count to `output`.
 *
 * Options KEY=VALUE: bootstrap, group, input, output, state (a folder); settings of Kafka Streams with their own
 * names go as they are. Lines of standard input: tasks | endpoints | shutdown | leave.
 */
public final class WordCount {
    private static final Set<String> OWN = Set.of("bootstrap", "group", "input", "output", "state", "repartitions");

    private WordCount() {
    }

    public static void main(String[] words) throws Exception {
        Map<String, String> options = new HashMap<>();
        Properties settings = new Properties();
        for (String word : words) {
            int end = word.indexOf('=');
            options.put(word.substring(0, end), word.substring(end + 1));
            if (!OWN.contains(word.substring(0, end))) {
                settings.put(word.substring(0, end), word.substring(end + 1));
            }
        }
        settings.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, options.get("bootstrap"));
        settings.put(StreamsConfig.APPLICATION_ID_CONFIG, options.get("group"));
        settings.put(StreamsConfig.STATE_DIR_CONFIG, options.get("state"));
        settings.put(StreamsConfig.GROUP_PROTOCOL_CONFIG, "streams");
        settings.put(StreamsConfig.DEFAULT_KEY_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
        settings.put(StreamsConfig.DEFAULT_VALUE_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
        settings.putIfAbsent(StreamsConfig.COMMIT_INTERVAL_MS_CONFIG, "200");
        settings.put("consumer.auto.offset.reset", "earliest");

        KafkaStreams streams = new KafkaStreams(topology(options), settings);
        streams.setStateListener((now, before) -> {
            if (now != KafkaStreams.State.NOT_RUNNING) { // "left" says so, and comes last
                Lines.emit("state", "state", now.toString());
            }
        });
        streams.setUncaughtExceptionHandler(error -> {
            Lines.emit("error", "error", String.valueOf(error));
            return StreamThreadExceptionResponse.SHUTDOWN_CLIENT;
        });
        streams.start();
        obey(streams);
        streams.close(Duration.ofSeconds(30));
        Lines.emit("left");
        System.exit(0);
    }

    private static org.apache.kafka.streams.Topology topology(Map<String, String> options) {
        StreamsBuilder builder = new StreamsBuilder();
        KStream<String, String> byWord = builder.<String, String>stream(options.get("input"))
            .flatMapValues(text -> Arrays.asList(text.split(" ")))
            .selectKey((key, word) -> word);
        if (options.containsKey("repartitions")) {
            int count = Integer.parseInt(options.get("repartitions"));
            byWord = byWord.repartition(Repartitioned.<String, String>as("words").withNumberOfPartitions(count));
        }
        byWord.groupByKey()
            .count(Materialized.as("counts"))
            .toStream()
            .mapValues(String::valueOf)
            .to(options.get("output"), Produced.with(Serdes.String(), Serdes.String()));
        return builder.build();
    }

    private static void obey(KafkaStreams streams) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        String line = lines.readLine();
        while (line != null && !line.equals("leave")) {
            switch (line) {
                case "tasks":
                    tasks(streams);
                    break;
                case "endpoints":
                    endpoints(streams);
                    break;
                default:
                    throw new IllegalArgumentException(line);
            }
            line = lines.readLine();
        }
    }

    private static void tasks(KafkaStreams streams) {
        Set<String> active = new TreeSet<>();
        Set<String> standby = new TreeSet<>();
        for (ThreadMetadata thread : streams.metadataForLocalThreads()) {
            for (TaskMetadata task : thread.activeTasks()) {
                active.add(task.taskId().toString());
            }
            for (TaskMetadata task : thread.standbyTasks()) {
                standby.add(task.taskId().toString());
            }
        }
        Lines.emit("tasks", "active", active, "standby", standby);
    }

    private static void endpoints(KafkaStreams streams) {
        Map<String, Object> found = new HashMap<>();
        for (StreamsMetadata one : streams.metadataForAllStreamsClients()) {
            List<String> partitions = new ArrayList<>();
            for (TopicPartition partition : one.topicPartitions()) {
                partitions.add(partition.toString());
            }
            found.put(one.host() + ":" + one.port(), partitions);
        }
        Lines.emit("endpoints", "endpoints", found);
    }
}
