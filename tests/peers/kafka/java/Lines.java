import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Collection;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.common.TopicPartition;

/** What the programs tell: one JSON object a line, whose "event" says what it is. */
final class Lines {
    private static final PrintStream OUT = new PrintStream(System.out, true, StandardCharsets.UTF_8);

    private Lines() {
    }

    /** Keys and values in turn. */
    static void emit(String event, Object... fields) {
        Map<String, Object> line = new LinkedHashMap<>();
        line.put("event", event);
        line.put("at", System.currentTimeMillis() / 1000.0);
        for (int place = 0; place < fields.length; place += 2) {
            line.put((String) fields[place], fields[place + 1]);
        }
        OUT.println(Json.of(line));
    }

    static void partitions(String event, Collection<TopicPartition> partitions) {
        List<Object> names = new ArrayList<>();
        for (TopicPartition partition : partitions) {
            names.add(partition.toString());
        }
        emit(event, "partitions", names);
    }

    static void record(ConsumerRecord<String, String> record) {
        String partition = record.topic() + "-" + record.partition();
        emit("record", "partition", partition, "offset", record.offset(), "value", record.value());
    }
}
