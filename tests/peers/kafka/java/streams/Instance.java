import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.time.Duration;
import java.util.HashMap;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.function.Consumer;
import java.util.function.Function;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse;
import org.apache.kafka.streams.processor.StateRestoreListener;

/**
 * An instance of an application: runs a topology until it is told to leave, and tells its states and what it restores.
 *
 * Options KEY=VALUE: bootstrap, group, state (a folder), and those of the topology; settings of Kafka Streams with
 * their own names go as they are. Lines of standard input: leave, and the commands of the application.
 */
final class Instance {
    private final Map<String, String> options = new HashMap<>();
    private final Properties settings = new Properties();

    /** `own`: options of the topology, which are no settings. */
    Instance(String[] words, Set<String> own) {
        for (String word : words) {
            int end = word.indexOf('=');
            String key = word.substring(0, end);
            options.put(key, word.substring(end + 1));
            if (!own.contains(key) && !Set.of("bootstrap", "group", "state").contains(key)) {
                settings.put(key, word.substring(end + 1));
            }
        }
        settings.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, options.get("bootstrap"));
        settings.put(StreamsConfig.APPLICATION_ID_CONFIG, options.get("group"));
        settings.put(StreamsConfig.STATE_DIR_CONFIG, options.get("state"));
        settings.putIfAbsent(StreamsConfig.GROUP_PROTOCOL_CONFIG, "streams");
        settings.put(StreamsConfig.DEFAULT_KEY_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
        settings.put(StreamsConfig.DEFAULT_VALUE_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
        settings.putIfAbsent(StreamsConfig.COMMIT_INTERVAL_MS_CONFIG, "200");
        settings.put("consumer.auto.offset.reset", "earliest");
    }

    /** Until a line says `leave`, or there are no more. */
    void run(Function<Map<String, String>, Topology> topology, Map<String, Consumer<KafkaStreams>> commands)
        throws Exception {
        KafkaStreams streams = new KafkaStreams(topology.apply(options), settings);
        streams.setStateListener((now, before) -> {
            if (now != KafkaStreams.State.NOT_RUNNING) { // "left" says so, and comes last
                Lines.emit("state", "state", now.toString());
            }
        });
        streams.setGlobalStateRestoreListener(new Restored());
        streams.setUncaughtExceptionHandler(error -> {
            Lines.emit("error", "error", String.valueOf(error));
            return StreamThreadExceptionResponse.SHUTDOWN_CLIENT;
        });
        streams.start();
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        String line = lines.readLine();
        while (line != null && !line.equals("leave")) {
            commands.get(line).accept(streams);
            line = lines.readLine();
        }
        streams.close(Duration.ofSeconds(30));
        Lines.emit("left");
        System.exit(0);
    }

    /** Tells how many records of its changelog made each store. */
    private static final class Restored implements StateRestoreListener {
        @Override
        public void onRestoreStart(TopicPartition partition, String store, long first, long end) {
        }

        @Override
        public void onBatchRestored(TopicPartition partition, String store, long end, long count) {
        }

        @Override
        public void onRestoreEnd(TopicPartition partition, String store, long count) {
            Lines.emit("restored", "store", store, "partition", partition.partition(), "count", count);
        }
    }
}
