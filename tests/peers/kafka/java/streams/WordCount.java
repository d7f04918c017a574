import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsMetadata;
import org.apache.kafka.streams.TaskMetadata;
import org.apache.kafka.streams.ThreadMetadata;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.Repartitioned;

/**
 * Counts words: from `input` through a repartition topic into a store with a changelog, and each count to `output`.
 *
 * Options and commands beside those of any {@link Instance}: input, output, repartitions; tasks, endpoints.
 */
public final class WordCount {
    private WordCount() {
    }

    public static void main(String[] words) throws Exception {
        new Instance(words, Set.of("input", "output", "repartitions")).run(
            WordCount::topology, Map.of("tasks", WordCount::tasks, "endpoints", WordCount::endpoints));
    }

    private static Topology topology(Map<String, String> options) {
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
