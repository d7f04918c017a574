import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.util.HexFormat;
import java.util.LinkedHashMap;
import java.util.Map;
import org.apache.kafka.coordinator.common.runtime.CoordinatorRecord;
import org.apache.kafka.coordinator.group.GroupCoordinatorRecordSerde;

/**
 * Reads records of __consumer_offsets as Kafka's coordinator does: a line is the key and the value (- for none) in
 * hex, the answer is the record in the words of Kafka's classes.
 */
public final class Records {
    private Records() {
    }

    public static void main(String[] words) throws Exception {
        GroupCoordinatorRecordSerde serde = new GroupCoordinatorRecordSerde();
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] parts = line.split(" ");
            CoordinatorRecord record = serde.deserialize(buffer(parts[0]), parts[1].equals("-") ? null : buffer(parts[1]));
            Map<String, Object> told = new LinkedHashMap<>();
            told.put("type", record.key().getClass().getSimpleName());
            told.put("key", record.key().toString());
            told.put("value", record.value() == null ? "" : record.value().message().toString());
            System.out.println(Json.of(told));
        }
    }

    private static ByteBuffer buffer(String hex) {
        return ByteBuffer.wrap(HexFormat.of().parseHex(hex));
    }
}
