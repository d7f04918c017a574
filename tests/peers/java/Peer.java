import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.util.ArrayList;
import java.util.Collection;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.TreeSet;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;
import org.apache.rocketmq.tools.command.MQAdminStartup;

/**
 * Apache RocketMQ's own client and mqadmin, driven over stdin and stdout.
 *
 * <p>Each line in is a command: words parted by tabs, then options like --name=value. Each gets exactly
 * one JSON line back, with "event" done or failed. What happens meanwhile comes in between as lines
 * with another "event": message (a listener is done with it), check (the broker asks after a
 * transaction), queues (a MessageQueueListener was told). The commands:
 *
 * <pre>
 * producer NAME NAMESERVER GROUP                             --access --secret --tls --transactions
 * send|async|batch|oneway PRODUCER TOPIC PREFIX FIRST COUNT SIZE
 *                                                            messages FIRST..FIRST+COUNT-1 of Senders.message();
 *                                                            --level (delay)  --keys=N (N ordering keys in turn)
 * transact PRODUCER TOPIC PREFIX FIRST COUNT SIZE            --executed --checked (a LocalTransactionState each)
 * request PRODUCER TOPIC BODY TIMEOUT_MS                     gives the reply
 * consumer NAME NAMESERVER GROUP TOPIC EXPRESSION            a push consumer; gives client_id; options: see Consumers
 * counter NAME NAMESERVER GROUP TOPIC EXPRESSION             the same, but counts and prints nothing
 * count NAME                                                 messages that a counter has seen
 * pause|resume NAME                                          of a push consumer
 * renew NAME TOPIC                                           gives its subscription a newer version, without a heartbeat
 * lite NAME NAMESERVER GROUP TOPIC EXPRESSION                a lite pull consumer; options: see Pullers
 * assign|poll|seek|commit|committed|fetch NAME ...           of a lite pull consumer: see Pullers
 * held NAME                                                  the queues that a consumer of either kind holds
 * allocate STRATEGY CLIENTS QUEUES                           each client's queues; words joined by commas, BROKER:ID
 * stop NAME
 * mqadmin WORD...                                            what mqadmin printed: text and errors; --access --secret
 * quit
 * </pre>
 *
 * The sources compile against client 4.9.x and 5.x.
 */
public final class Peer {
    private final PrintStream out;
    private final Senders senders = new Senders(this);
    private final Consumers consumers = new Consumers(this, senders);
    private final Pullers pullers = new Pullers(this);

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
                peer.obey(new Command(line), fields);
                peer.emit("done", fields);
            } catch (Exception error) {
                Throwable cause = error.getCause();
                fields.put("error", cause == null ? error.toString() : error + "; caused by " + cause);
                peer.emit("failed", fields);
            }
        }
        peer.consumers.stopAll();
        peer.pullers.stopAll();
        peer.senders.stopAll();
        System.exit(0);
    }

    private void obey(Command command, Map<String, Object> fields) throws Exception {
        String name = command.word(1);
        switch (command.word(0)) {
            case "producer":
                senders.start(command);
                break;
            case "send":
            case "async":
            case "batch":
            case "oneway":
                fields.put("results", senders.send(command));
                break;
            case "recall":
                fields.put("id", senders.recall(command));
                break;
            case "transact":
                fields.put("results", senders.transact(command));
                break;
            case "request":
                fields.put("reply", senders.request(command));
                break;
            case "consumer":
            case "counter":
                fields.put("client_id", consumers.start(command));
                break;
            case "count":
                fields.put("count", consumers.count(name));
                break;
            case "pause":
                consumers.pause(name);
                break;
            case "resume":
                consumers.resume(name);
                break;
            case "renew":
                consumers.renew(name, command.word(2));
                break;
            case "subscribe":
                if (consumers.has(name)) {
                    consumers.subscribe(command);
                } else {
                    pullers.subscribe(command);
                }
                break;
            case "lite":
                fields.put("client_id", pullers.start(command));
                break;
            case "assign":
            case "poll":
            case "seek":
            case "commit":
            case "committed":
            case "fetch":
                pullers.obey(command, fields);
                break;
            case "held":
                fields.put("queues", queues(consumers.has(name) ? consumers.held(name) : pullers.held(name)));
                break;
            case "allocate":
                fields.put("plan", Strategies.plan(command));
                break;
            case "stop":
                if (!consumers.stop(name) && !pullers.stop(name)) {
                    senders.stop(name);
                }
                break;
            case "mqadmin":
                mqadmin(command, fields);
                break;
            case "clone":
                clone(command);
                break;
            default:
                throw new IllegalArgumentException("no such command: " + command.word(0));
        }
    }

    private static void mqadmin(Command command, Map<String, Object> fields) throws Exception {
        ByteArrayOutputStream printed = new ByteArrayOutputStream();
        ByteArrayOutputStream errors = new ByteArrayOutputStream();
        PrintStream out = System.out;
        PrintStream err = System.err;
        System.setOut(new PrintStream(printed, true, "UTF-8"));
        System.setErr(new PrintStream(errors, true, "UTF-8"));
        try {
            MQAdminStartup.main0(command.wordsFrom(1).toArray(new String[0]), command.credentials());
        } finally {
            System.setOut(out);
            System.setErr(err);
        }
        fields.put("text", printed.toString("UTF-8"));
        fields.put("errors", errors.toString("UTF-8")); // a command that fails prints its stack here
    }

    /** Give a group the offsets of another one: nameserver, topic, group, other group. mqadmin has no command that asks for it. */
    private static void clone(Command command) throws Exception {
        DefaultMQAdminExt admin = new DefaultMQAdminExt(command.credentials());
        admin.setNamesrvAddr(command.word(1));
        admin.setInstanceName("clone-" + System.nanoTime());
        admin.start();
        try {
            admin.cloneGroupOffset(command.word(3), command.word(4), command.word(2), true);
        } finally {
            admin.shutdown();
        }
    }

    // -- what is told -------------------------------------------------------------------------------

    void emit(String event, Map<String, Object> fields) {
        Map<String, Object> line = new LinkedHashMap<>();
        line.put("event", event);
        line.putAll(fields);
        String text = Json.of(line);
        synchronized (out) {
            out.println(text);
        }
    }

    static Map<String, Object> queue(MessageQueue queue) {
        Map<String, Object> fields = new LinkedHashMap<>();
        fields.put("topic", queue.getTopic());
        fields.put("broker", queue.getBrokerName());
        fields.put("queue", queue.getQueueId());
        return fields;
    }

    static List<Object> queues(Collection<MessageQueue> queues) {
        List<Object> items = new ArrayList<>();
        for (MessageQueue queue : new TreeSet<>(queues)) {
            items.add(queue(queue));
        }
        return items;
    }

    static Map<String, Object> received(String consumer, MessageExt message) {
        Map<String, Object> fields = new LinkedHashMap<>();
        fields.put("consumer", consumer);
        fields.put("topic", message.getTopic());
        fields.put("broker", message.getBrokerName());
        fields.put("queue", message.getQueueId());
        fields.put("offset", message.getQueueOffset());
        fields.put("id", message.getMsgId());
        fields.put("keys", message.getKeys());
        fields.put("tags", message.getTags());
        fields.put("flag", message.getFlag());
        fields.put("times", message.getReconsumeTimes());
        fields.put("born_host", message.getBornHostString());
        fields.put("born", message.getBornTimestamp());
        fields.put("stored", message.getStoreTimestamp());
        fields.put("properties", new TreeMap<>(message.getProperties()));
        fields.put("size", message.getBody().length);
        fields.put("md5", md5(message.getBody()));
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
}
