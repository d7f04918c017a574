import java.io.BufferedReader;
import java.io.FileOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.List;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.CooperativeStickyAssignor;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.RangeAssignor;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * A member of a consumer group for the bench; its commands are told in bench/commands.py.
 *
 * <p>The argument is its assignor, or `consumer` for KIP-848. All else is as by default, but where it begins: at the first offset.
 */
public final class BenchMember {
    private static final PrintStream OUT = new PrintStream(System.out, true, StandardCharsets.UTF_8);

    private BenchMember() {
    }

    public static void main(String[] arguments) throws Exception {
        System.setOut(System.err); // what the library prints must not mix with our lines
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        Reading reading = null;
        String line;
        while ((line = in.readLine()) != null) {
            String[] words = line.split(" ");
            switch (words[0]) {
                case "clock":
                    OUT.println(System.nanoTime());
                    break;
                case "start":
                    reading = new Reading(arguments[0], words);
                    reading.start();
                    OUT.println("started");
                    break;
                case "stop":
                    reading.leave();
                    OUT.println("stopped");
                    break;
                default:
                    throw new IllegalArgumentException("no such command: " + line);
            }
        }
        System.exit(0);
    }

    /** One run of the member. Its thread polls, and works on what it has got before it polls again. */
    private static final class Reading extends Thread {
        private final KafkaConsumer<byte[], byte[]> consumer;
        private final String topic;
        private final FileOutputStream records;
        private final long workMillis;
        private volatile boolean leaving;

        Reading(String assignment, String[] words) throws Exception {
            consumer = new KafkaConsumer<>(
                properties(assignment, words), new ByteArrayDeserializer(), new ByteArrayDeserializer());
            topic = words[3];
            records = new FileOutputStream(words[5], true);
            workMillis = Long.parseLong(words[6]);
        }

        private static Properties properties(String assignment, String[] words) {
            Properties properties = new Properties();
            properties.put("bootstrap.servers", words[1]);
            properties.put("group.id", words[2]);
            properties.put("client.id", words[4]);
            properties.put("auto.offset.reset", "earliest");
            if (assignment.equals("consumer")) {
                properties.put("group.protocol", "consumer");
            } else {
                properties.put("partition.assignment.strategy", List.of(
                    assignment.equals("range") ? RangeAssignor.class : CooperativeStickyAssignor.class));
            }
            return properties;
        }

        @Override
        public void run() {
            try (consumer; records) {
                consumer.subscribe(List.of(topic));
                while (!leaving) {
                    for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(100))) {
                        listen(record);
                    }
                }
            } catch (Exception error) {
                error.printStackTrace();
                Runtime.getRuntime().halt(1); // the bench sees that the process has ended
            }
        }

        private void listen(ConsumerRecord<byte[], byte[]> message) throws Exception {
            ByteBuffer record = ByteBuffer.allocate(20);
            record.putLong(System.nanoTime()).putInt(message.partition()).putLong(message.offset());
            records.write(record.array());
            if (workMillis > 0) {
                Thread.sleep(workMillis);
            }
        }

        void leave() throws InterruptedException {
            leaving = true;
            join();
        }
    }
}
