import java.io.BufferedReader;
import java.io.FileOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.List;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * A member of a consumer group for the bench, the same as `bench/member.py`; its commands are told in bench/commands.py.
 *
 * <p>With the argument `orderly` its listener is an orderly one.
 */
public final class Member {
    private Member() {
    }

    public static void main(String[] args) throws Exception {
        PrintStream out = new PrintStream(System.out, true, "UTF-8");
        System.setOut(System.err); // what the library prints must not mix with our lines
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        // What fails ends the process, whose other threads would keep it alive: the bench sees that.
        Thread.setDefaultUncaughtExceptionHandler((thread, error) -> {
            error.printStackTrace();
            if (thread.getName().equals("main")) {
                Runtime.getRuntime().halt(1);
            }
        });
        DefaultMQPushConsumer consumer = null;
        String line;
        while ((line = in.readLine()) != null) {
            String[] words = line.split(" ");
            switch (words[0]) {
                case "clock":
                    out.println(System.nanoTime());
                    break;
                case "start":
                    consumer = start(args.length > 0, words[1], words[2], words[3], words[4], words[5], Long.parseLong(words[6]));
                    out.println("started");
                    break;
                case "stop":
                    consumer.shutdown();
                    consumer = null;
                    out.println("stopped");
                    break;
                default:
                    throw new IllegalArgumentException("no such command: " + line);
            }
        }
        System.exit(0);
    }

    private static DefaultMQPushConsumer start(
        boolean orderly, String nameserver, String group, String topic, String name, String file, long workMillis) throws Exception {
        FileOutputStream records = new FileOutputStream(file, true);
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(group);
        consumer.setNamesrvAddr(nameserver);
        consumer.setClientIP("bench");
        consumer.setInstanceName(name);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(topic, "*");
        if (orderly) {
            consumer.registerMessageListener((MessageListenerOrderly) (messages, context) -> {
                listen(records, messages, workMillis);
                return ConsumeOrderlyStatus.SUCCESS;
            });
        } else {
            consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
                listen(records, messages, workMillis);
                return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
            });
        }
        consumer.start();
        return consumer;
    }

    private static void listen(FileOutputStream records, List<MessageExt> messages, long workMillis) {
        try {
            for (MessageExt message : messages) {
                record(records, message);
                Thread.sleep(workMillis);
            }
        } catch (Exception error) {
            throw new IllegalStateException(error);
        }
    }

    private static void record(FileOutputStream records, MessageExt message) throws Exception {
        ByteBuffer record = ByteBuffer.allocate(20);
        String broker = message.getBrokerName();
        record.putLong(System.nanoTime());
        record.putInt((broker.charAt(broker.length() - 1) - 'a') * 1000 + message.getQueueId());
        record.putLong(message.getQueueOffset());
        synchronized (records) {
            records.write(record.array());
        }
    }
}
