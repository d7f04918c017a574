import java.util.ArrayList;
import java.util.Collection;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/**
 * The lite pull consumers of a peer, by name. Options of a new one: --assigned (its queues come by the
 * command assign), --sql, --manual (no automatic commits), --strategy=NAME (see Strategies), --access,
 * --secret, --tls. Then:
 *
 * <pre>
 * assign NAME TOPIC BROKER:ID...
 * poll NAME TIMEOUT_MS                        gives messages
 * seek NAME TOPIC BROKER:ID OFFSET|begin|end
 * commit NAME                                 of all that poll gave
 * committed NAME TOPIC BROKER:ID              gives offset
 * fetch NAME TOPIC                            gives queues, all that there are
 * </pre>
 */
final class Pullers {
    private final Peer peer;
    private final Map<String, DefaultLitePullConsumer> pullers = new LinkedHashMap<>();

    Pullers(Peer peer) {
        this.peer = peer;
    }

    String start(Command command) throws Exception {
        String name = command.word(1);
        DefaultLitePullConsumer puller = new DefaultLitePullConsumer(command.word(3), command.credentials());
        puller.setNamesrvAddr(command.word(2));
        puller.setMqClientApiTimeout(20_000);
        puller.setInstanceName(name);
        puller.setHeartbeatBrokerInterval(2_000); // see Consumers
        puller.setUseTLS(command.has("tls"));
        puller.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        puller.setAllocateMessageQueueStrategy(Strategies.named(command.option("strategy", "AVG")));
        puller.setAutoCommit(!command.has("manual"));
        if (command.has("sql")) {
            puller.subscribe(command.word(4), MessageSelector.bySql(command.word(5)));
        } else if (command.has("assigned")) {
            puller.setSubExpressionForAssign(command.word(4), command.word(5));
        } else {
            puller.subscribe(command.word(4), command.word(5), (topic, all, mine) -> {
                Map<String, Object> fields = new LinkedHashMap<>();
                fields.put("consumer", name);
                fields.put("topic", topic);
                fields.put("all", Peer.queues(all));
                fields.put("mine", Peer.queues(mine));
                peer.emit("queues", fields);
            });
        }
        puller.start();
        pullers.put(name, puller);
        return puller.buildMQClientId();
    }

    void subscribe(Command command) throws Exception {
        pullers.get(command.word(1)).subscribe(command.word(2), command.word(3));
    }

    void obey(Command command, Map<String, Object> fields) throws Exception {
        DefaultLitePullConsumer puller = pullers.get(command.word(1));
        switch (command.word(0)) {
            case "assign":
                List<MessageQueue> queues = new ArrayList<>();
                for (String place : command.wordsFrom(3)) {
                    queues.add(queue(command.word(2), place));
                }
                puller.assign(queues);
                break;
            case "poll":
                List<Object> messages = new ArrayList<>();
                for (MessageExt message : puller.poll(command.number(2))) {
                    messages.add(Peer.received(command.word(1), message));
                }
                fields.put("messages", messages);
                break;
            case "seek":
                seek(puller, queue(command.word(2), command.word(3)), command.word(4));
                break;
            case "commit":
                puller.commitSync();
                break;
            case "committed":
                fields.put("offset", puller.committed(queue(command.word(2), command.word(3))));
                break;
            default:
                fields.put("queues", Peer.queues(puller.fetchMessageQueues(command.word(2))));
        }
    }

    private static void seek(DefaultLitePullConsumer puller, MessageQueue queue, String to) throws Exception {
        if (to.equals("begin")) {
            puller.seekToBegin(queue);
        } else if (to.equals("end")) {
            puller.seekToEnd(queue);
        } else {
            puller.seek(queue, Long.parseLong(to));
        }
    }

    private static MessageQueue queue(String topic, String place) {
        String[] parts = place.split(":");
        return new MessageQueue(topic, parts[0], Integer.parseInt(parts[1]));
    }

    Collection<MessageQueue> held(String name) throws Exception {
        return pullers.get(name).assignment();
    }

    boolean stop(String name) {
        DefaultLitePullConsumer puller = pullers.remove(name);
        if (puller != null) {
            puller.shutdown();
        }
        return puller != null;
    }

    void stopAll() {
        pullers.values().forEach(DefaultLitePullConsumer::shutdown);
    }
}
