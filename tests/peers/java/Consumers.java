import java.lang.reflect.Method;
import java.util.Collection;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/**
 * The push consumers of a peer, by name. Options of a new one:
 *
 * <pre>
 * --from=FIRST_OFFSET|LAST_OFFSET|yyyyMMddHHmmss   where a new group begins; FIRST_OFFSET unless told
 * --orderly --broadcast --sql                      each with any value; --sql: EXPRESSION is a condition
 * --strategy=NAME                                  see Strategies
 * --answer=once|never|reply                        wants each message again once, or for ever; replies with --producer
 * --heartbeat=MS                                   between two heartbeats; 2 s unless told
 * --retries=N --work=MS --suspend=MS               at most; in the listener; before an orderly listener gets it again
 * --access --secret --tls
 * </pre>
 */
final class Consumers {
    private final Peer peer;
    private final Senders senders;
    private final Map<String, DefaultMQPushConsumer> consumers = new LinkedHashMap<>();
    private final Map<String, AtomicLong> counts = new LinkedHashMap<>();

    Consumers(Peer peer, Senders senders) {
        this.peer = peer;
        this.senders = senders;
    }

    String start(Command command) throws Exception {
        String name = command.word(1);
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(
            command.word(3), command.credentials(), Strategies.named(command.option("strategy", "AVG")));
        consumer.setNamesrvAddr(command.word(2));
        consumer.setMqClientApiTimeout(20_000); // a first connection with TLS takes more than 3 s on a busy machine
        consumer.setInstanceName(name);
        consumer.setPollNameServerInterval(2_000); // its retry topic is there only once it has joined
        // The one at its first rebalance gets lost beside the periodic one: pulls fail with 25 until the next.
        consumer.setHeartbeatBrokerInterval(command.numberOf("heartbeat", 2_000));
        consumer.setConsumeThreadMin(4);
        consumer.setConsumeThreadMax(4);
        consumer.setUseTLS(command.has("tls"));
        consumer.setMaxReconsumeTimes(command.numberOf("retries", -1));
        consumer.setSuspendCurrentQueueTimeMillis(command.numberOf("suspend", 1000));
        begin(consumer, command.option("from", "FIRST_OFFSET"));
        if (command.has("broadcast")) {
            broadcast(consumer);
        }
        if (command.has("sql")) {
            consumer.subscribe(command.word(4), MessageSelector.bySql(command.word(5)));
        } else {
            consumer.subscribe(command.word(4), command.word(5));
        }
        if (command.word(0).equals("counter")) {
            AtomicLong seen = new AtomicLong();
            counts.put(name, seen);
            consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
                seen.addAndGet(messages.size());
                return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
            });
        } else if (command.has("orderly")) {
            consumer.registerMessageListener((MessageListenerOrderly) (messages, context) ->
                consume(command, messages, context.getMessageQueue()) ? ConsumeOrderlyStatus.SUCCESS
                    : ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT);
        } else {
            consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) ->
                consume(command, messages, context.getMessageQueue()) ? ConsumeConcurrentlyStatus.CONSUME_SUCCESS
                    : ConsumeConcurrentlyStatus.RECONSUME_LATER);
        }
        consumer.start();
        consumers.put(name, consumer);
        return consumer.buildMQClientId();
    }

    private static void begin(DefaultMQPushConsumer consumer, String where) {
        if (Character.isDigit(where.charAt(0))) {
            consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_TIMESTAMP);
            consumer.setConsumeTimestamp(where);
        } else {
            consumer.setConsumeFromWhere(ConsumeFromWhere.valueOf("CONSUME_FROM_" + where));
        }
    }

    /** By reflection, because MessageModel moved to another package in 5.x. */
    private static void broadcast(DefaultMQPushConsumer consumer) throws Exception {
        for (Method method : DefaultMQPushConsumer.class.getMethods()) {
            if (method.getName().equals("setMessageModel")) {
                method.invoke(consumer, method.getParameterTypes()[0].getField("BROADCASTING").get(null));
            }
        }
    }

    /** What a listener does: work, tell, and perhaps reply; gives whether it is content. */
    private boolean consume(Command command, List<MessageExt> messages, MessageQueue queue) {
        String answer = command.option("answer", "yes");
        for (MessageExt message : messages) {
            long began = System.currentTimeMillis();
            sleep(command.numberOf("work", 0));
            if (answer.equals("reply")) {
                senders.reply(command.option("producer", ""), message);
            }
            Map<String, Object> fields = Peer.received(command.word(1), message);
            fields.putAll(Peer.queue(queue)); // a retry's own topic, not the one that it was sent to first
            fields.put("began", began);
            fields.put("ended", System.currentTimeMillis());
            peer.emit("message", fields);
        }
        return !answer.equals("never") && !(answer.equals("once") && messages.get(0).getReconsumeTimes() == 0);
    }

    private static void sleep(long duration) {
        try {
            Thread.sleep(duration);
        } catch (InterruptedException error) {
            Thread.currentThread().interrupt();
        }
    }

    long count(String name) {
        return counts.get(name).get();
    }

    void pause(String name) {
        consumers.get(name).suspend();
    }

    void resume(String name) {
        consumers.get(name).resume();
    }

    /** What a rebalance does whose heartbeat gets lost: brokers do not know the version of the subscription. */
    void renew(String name, String topic) {
        consumers.get(name).getDefaultMQPushConsumerImpl().getRebalanceImpl().getSubscriptionInner().get(topic)
            .setSubVersion(System.currentTimeMillis());
    }

    void subscribe(Command command) throws Exception {
        DefaultMQPushConsumer consumer = consumers.get(command.word(1));
        if (command.has("sql")) {
            consumer.subscribe(command.word(2), MessageSelector.bySql(command.word(3)));
        } else {
            consumer.subscribe(command.word(2), command.word(3));
        }
    }

    boolean has(String name) {
        return consumers.containsKey(name);
    }

    Collection<MessageQueue> held(String name) {
        return consumers.get(name).getDefaultMQPushConsumerImpl().getRebalanceImpl().getProcessQueueTable().keySet();
    }

    boolean stop(String name) {
        DefaultMQPushConsumer consumer = consumers.remove(name);
        if (consumer != null) {
            consumer.shutdown();
        }
        return consumer != null;
    }

    void stopAll() {
        consumers.values().forEach(DefaultMQPushConsumer::shutdown);
    }
}
