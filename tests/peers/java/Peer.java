import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.tools.command.MQAdminStartup;

/**
 * Apache RocketMQ's own client and mqadmin, driven over stdin and stdout.
 *
 * <p>Each line in is a command, words parted by spaces; each gets exactly one JSON line back, with
 * "event" done or failed. Messages that consumers receive come in between, as lines with "event"
 * message. The commands:
 *
 * <pre>
 * producer NAME NAMESERVER GROUP
 * send|batch|oneway PRODUCER TOPIC PREFIX FIRST COUNT SIZE   messages FIRST..FIRST+COUNT-1 of message()
 * consumer NAME NAMESERVER GROUP TOPIC EXPRESSION            from the first offset; gives client_id
 * flaky NAME NAMESERVER GROUP TOPIC EXPRESSION               the same, but wants each message again once
 * counter NAME NAMESERVER GROUP TOPIC EXPRESSION             the same as consumer, but counts and prints nothing
 * count NAME                                                 messages that a counter has seen
 * held NAME                                                  the queues that a consumer holds
 * stop NAME
 * mqadmin WORD...                                            what mqadmin printed: text and errors
 * quit
 * </pre>
 *
 * The source compiles against client 4.9.x and 5.x.
 */
public final class Peer {
    private final PrintStream out;
    private final Map<String, DefaultMQProducer> producers = new LinkedHashMap<>();
    private final Map<String, DefaultMQPushConsumer> consumers = new LinkedHashMap<>();
    private final Map<String, AtomicLong> counts = new LinkedHashMap<>();

    private Peer(PrintStream out) {
        this.out = out;
    }

    public static void main(String[] args) throws Exception {
        PrintStream out = new PrintStream(System.out, true, "UTF-8");
        System.setOut(System.err); // what the library prints must not mix with our lines
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        Peer peer = new Peer(out);
        peer.emit("done", new LinkedHashMap<>());
        String line;
        while ((line = in.readLine()) != null && !line.equals("quit")) {
            Map<String, Object> fields = new LinkedHashMap<>();
            try {
                peer.obey(Arrays.asList(line.split(" ")), fields);
                peer.emit("done", fields);
            } catch (Exception error) {
                fields.put("error", error.toString());
                peer.emit("failed", fields);
            }
        }
        peer.consumers.values().forEach(DefaultMQPushConsumer::shutdown);
        peer.producers.values().forEach(DefaultMQProducer::shutdown);
        System.exit(0);
    }

    private void obey(List<String> words, Map<String, Object> fields) throws Exception {
        String name = words.size() > 1 ? words.get(1) : "";
        switch (words.get(0)) {
            case "producer":
                startProducer(name, words.get(2), words.get(3));
                break;
            case "send":
            case "batch":
            case "oneway":
                fields.put("results", send(words));
                break;
            case "consumer":
            case "flaky":
            case "counter":
                fields.put("client_id", startConsumer(words));
                break;
            case "count":
                fields.put("count", counts.get(name).get());
                break;
            case "held":
                fields.put("queues", held(name));
                break;
            case "stop":
                stop(name);
                break;
            case "mqadmin":
                mqadmin(words.subList(1, words.size()), fields);
                break;
            default:
                throw new IllegalArgumentException("no such command: " + words.get(0));
        }
    }

    // -- producing ---------------------------------------------------------------------------------

    private void startProducer(String name, String nameserver, String group) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer(group);
        producer.setNamesrvAddr(nameserver);
        producer.setInstanceName(name);
        producer.setSendMsgTimeout(10_000);
        producer.start();
        producers.put(name, producer);
    }

    /** Message number `index` of a series; the Python side makes the same one. */
    private static Message message(String topic, String prefix, int index, int size) throws Exception {
        byte[] head = (prefix + "-" + index + "|").getBytes(StandardCharsets.UTF_8);
        byte[] body = Arrays.copyOf(head, Math.max(size, head.length));
        for (int position = head.length; position < body.length; position++) {
            body[position] = (byte) (index + 7 * position);
        }
        Message message = new Message(topic, "tag" + index % 3, prefix + "-key-" + index, body);
        message.putUserProperty("colour", "gr\u00fcn-\u4e2d-" + index);
        message.putUserProperty("number", Integer.toString(index));
        return message;
    }

    private List<Object> send(List<String> words) throws Exception {
        DefaultMQProducer producer = producers.get(words.get(1));
        int first = Integer.parseInt(words.get(4));
        int count = Integer.parseInt(words.get(5));
        int size = Integer.parseInt(words.get(6));
        List<Message> messages = new ArrayList<>();
        for (int index = first; index < first + count; index++) {
            messages.add(message(words.get(2), words.get(3), index, size));
        }
        List<Object> results = new ArrayList<>();
        if (words.get(0).equals("batch")) {
            results.add(result(producer.send(messages)));
            return results;
        }
        for (Message message : messages) {
            if (words.get(0).equals("oneway")) {
                producer.sendOneway(message);
            } else {
                results.add(result(producer.send(message)));
            }
        }
        return results;
    }

    private static Map<String, Object> result(SendResult sent) {
        Map<String, Object> fields = queue(sent.getMessageQueue());
        fields.put("status", sent.getSendStatus().name());
        fields.put("offset", sent.getQueueOffset());
        fields.put("id", sent.getMsgId());
        fields.put("offset_id", sent.getOffsetMsgId());
        return fields;
    }

    // -- consuming ---------------------------------------------------------------------------------

    private String startConsumer(List<String> words) throws Exception {
        String name = words.get(1);
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(words.get(3));
        consumer.setNamesrvAddr(words.get(2));
        consumer.setInstanceName(name);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setConsumeThreadMin(4);
        consumer.setConsumeThreadMax(4);
        consumer.subscribe(words.get(4), words.get(5));
        if (words.get(0).equals("counter")) {
            AtomicLong seen = new AtomicLong();
            counts.put(name, seen);
            consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
                seen.addAndGet(messages.size());
                return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
            });
        } else {
            boolean flaky = words.get(0).equals("flaky");
            consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
                for (MessageExt message : messages) {
                    emit("message", received(name, context.getMessageQueue(), message));
                }
                return flaky && messages.get(0).getReconsumeTimes() == 0
                    ? ConsumeConcurrentlyStatus.RECONSUME_LATER : ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
            });
        }
        consumer.start();
        consumers.put(name, consumer);
        return consumer.buildMQClientId();
    }

    private static Map<String, Object> received(String name, MessageQueue queue, MessageExt message) {
        Map<String, Object> fields = queue(queue);
        fields.put("consumer", name);
        fields.put("offset", message.getQueueOffset());
        fields.put("id", message.getMsgId());
        fields.put("keys", message.getKeys());
        fields.put("tags", message.getTags());
        fields.put("flag", message.getFlag());
        fields.put("times", message.getReconsumeTimes());
        fields.put("born_host", message.getBornHostString());
        fields.put("properties", new TreeMap<>(message.getProperties()));
        fields.put("size", message.getBody().length);
        fields.put("md5", md5(message.getBody()));
        return fields;
    }

    private List<Object> held(String name) {
        List<Object> queues = new ArrayList<>();
        for (MessageQueue queue : new TreeSet<>(consumers.get(name).getDefaultMQPushConsumerImpl()
            .getRebalanceImpl().getProcessQueueTable().keySet())) {
            queues.add(queue(queue));
        }
        return queues;
    }

    private void stop(String name) {
        DefaultMQPushConsumer consumer = consumers.remove(name);
        if (consumer != null) {
            consumer.shutdown();
        } else {
            producers.remove(name).shutdown();
        }
    }

    private static Map<String, Object> queue(MessageQueue queue) {
        Map<String, Object> fields = new LinkedHashMap<>();
        fields.put("topic", queue.getTopic());
        fields.put("broker", queue.getBrokerName());
        fields.put("queue", queue.getQueueId());
        return fields;
    }

    private static String md5(byte[] body) {
        try {
            StringBuilder text = new StringBuilder();
            for (byte value : MessageDigest.getInstance("MD5").digest(body)) {
                text.append(String.format("%02x", value));
            }
            return text.toString();
        } catch (java.security.NoSuchAlgorithmException error) {
            throw new IllegalStateException(error);
        }
    }

    // -- administration ----------------------------------------------------------------------------

    private static void mqadmin(List<String> words, Map<String, Object> fields) throws Exception {
        ByteArrayOutputStream printed = new ByteArrayOutputStream();
        ByteArrayOutputStream errors = new ByteArrayOutputStream();
        PrintStream out = System.out;
        PrintStream err = System.err;
        System.setOut(new PrintStream(printed, true, "UTF-8"));
        System.setErr(new PrintStream(errors, true, "UTF-8"));
        try {
            MQAdminStartup.main0(words.toArray(new String[0]), null);
        } finally {
            System.setOut(out);
            System.setErr(err);
        }
        fields.put("text", printed.toString("UTF-8"));
        fields.put("errors", errors.toString("UTF-8")); // a command that fails prints its stack here
    }

    // -- JSON --------------------------------------------------------------------------------------

    private void emit(String event, Map<String, Object> fields) {
        Map<String, Object> line = new LinkedHashMap<>();
        line.put("event", event);
        line.putAll(fields);
        StringBuilder text = new StringBuilder();
        write(text, line);
        synchronized (out) {
            out.println(text);
        }
    }

    private static void write(StringBuilder text, Object value) {
        if (value instanceof Map) {
            String comma = "";
            text.append('{');
            for (Map.Entry<?, ?> entry : ((Map<?, ?>) value).entrySet()) {
                text.append(comma);
                write(text, entry.getKey());
                text.append(':');
                write(text, entry.getValue());
                comma = ",";
            }
            text.append('}');
        } else if (value instanceof List) {
            String comma = "";
            text.append('[');
            for (Object item : (List<?>) value) {
                text.append(comma);
                write(text, item);
                comma = ",";
            }
            text.append(']');
        } else if (value instanceof String) {
            text.append('"');
            for (char letter : ((String) value).toCharArray()) {
                if (letter == '"' || letter == '\\' || letter < ' ') {
                    text.append(String.format("\\u%04x", (int) letter));
                } else {
                    text.append(letter);
                }
            }
            text.append('"');
        } else {
            text.append(value);
        }
    }
}
