import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.RequestCallback;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.client.producer.TransactionSendResult;
import org.apache.rocketmq.client.producer.selector.SelectMessageQueueByHash;
import org.apache.rocketmq.client.utils.MessageUtil;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/** The producers of a peer, by name. */
final class Senders {
    private final Peer peer;
    private final Map<String, DefaultMQProducer> producers = new LinkedHashMap<>();

    Senders(Peer peer) {
        this.peer = peer;
    }

    void start(Command command) throws Exception {
        String name = command.word(1);
        DefaultMQProducer producer;
        if (command.has("transactions")) {
            TransactionMQProducer transactional = new TransactionMQProducer(command.word(3), command.credentials());
            transactional.setTransactionListener(new Verdicts(name));
            producer = transactional;
        } else {
            producer = new DefaultMQProducer(command.word(3), command.credentials());
        }
        producer.setNamesrvAddr(command.word(2));
        producer.setInstanceName(name);
        producer.setSendMsgTimeout(10_000);
        producer.setMqClientApiTimeout(20_000);
        producer.setHeartbeatBrokerInterval(2_000); // it is unknown to a broker until the next one after its first send
        producer.setUseTLS(command.has("tls"));
        producer.start();
        producers.put(name, producer);
    }

    void stop(String name) {
        producers.remove(name).shutdown();
    }

    void stopAll() {
        producers.values().forEach(DefaultMQProducer::shutdown);
    }

    /** Message number `index` of a series; the Python side makes the same one. */
    private static Message message(String topic, String prefix, int index, int size) {
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

    private static List<Message> messages(Command command) {
        int first = command.number(4);
        List<Message> messages = new ArrayList<>();
        for (int index = first; index < first + command.number(5); index++) {
            Message message = message(command.word(2), command.word(3), index, command.number(6));
            if (command.has("level")) {
                message.setDelayTimeLevel(command.numberOf("level", 0));
            }
            if (command.has("delayMs")) {
                setTime(message, "setDelayTimeMs", command.numberOf("delayMs", 0));
            }
            if (command.has("deliverInMs")) {
                setTime(message, "setDeliverTimeMs", System.currentTimeMillis() + command.numberOf("deliverInMs", 0));
            }
            messages.add(message);
        }
        return messages;
    }

    /** Clients of 4.x do not have these methods. */
    private static void setTime(Message message, String method, long time) {
        try {
            Message.class.getMethod(method, long.class).invoke(message, time);
        } catch (ReflectiveOperationException error) {
            throw new IllegalStateException(error);
        }
    }

    /** Takes a delayed message back; returns its id. Clients before 5.3.1 cannot. */
    Object recall(Command command) throws Exception {
        DefaultMQProducer producer = producers.get(command.word(1));
        return DefaultMQProducer.class.getMethod("recallMessage", String.class, String.class)
            .invoke(producer, command.word(2), command.word(3));
    }

    List<Object> send(Command command) throws Exception {
        DefaultMQProducer producer = producers.get(command.word(1));
        List<Message> messages = messages(command);
        List<Object> results = new ArrayList<>();
        if (command.word(0).equals("batch")) {
            results.add(result(producer.send(messages)));
            return results;
        }
        int keys = command.numberOf("keys", 0);
        for (Message message : messages) {
            if (command.word(0).equals("oneway")) {
                producer.sendOneway(message);
            } else if (command.word(0).equals("async")) {
                results.add(result(sendAsync(producer, message)));
            } else if (keys > 0) {
                String key = "order-" + Integer.parseInt(message.getUserProperty("number")) % keys;
                results.add(result(producer.send(message, new SelectMessageQueueByHash(), key)));
            } else {
                results.add(result(producer.send(message)));
            }
        }
        return results;
    }

    private static SendResult sendAsync(DefaultMQProducer producer, Message message) throws Exception {
        CompletableFuture<SendResult> sent = new CompletableFuture<>();
        producer.send(message, new SendCallback() {
            @Override
            public void onSuccess(SendResult result) {
                sent.complete(result);
            }

            @Override
            public void onException(Throwable error) {
                sent.completeExceptionally(error);
            }
        });
        return sent.get(30, TimeUnit.SECONDS);
    }

    private static Map<String, Object> result(SendResult sent) {
        Map<String, Object> fields = Peer.queue(sent.getMessageQueue());
        fields.put("status", sent.getSendStatus().name());
        fields.put("offset", sent.getQueueOffset());
        fields.put("id", sent.getMsgId());
        fields.put("offset_id", sent.getOffsetMsgId());
        try {
            fields.put("recall", SendResult.class.getMethod("getRecallHandle").invoke(sent));
        } catch (ReflectiveOperationException error) {
            // A client without recalls.
        }
        return fields;
    }

    // -- transactions -------------------------------------------------------------------------------

    /** Sends in transactions whose verdicts are the command's options; the later one travels in the message. */
    List<Object> transact(Command command) throws Exception {
        DefaultMQProducer producer = producers.get(command.word(1));
        List<Object> results = new ArrayList<>();
        for (Message message : messages(command)) {
            message.putUserProperty("checked", command.option("checked", "UNKNOW"));
            TransactionSendResult sent =
                producer.sendMessageInTransaction(message, command.option("executed", "COMMIT_MESSAGE"));
            Map<String, Object> fields = result(sent);
            fields.put("state", sent.getLocalTransactionState().name());
            results.add(fields);
        }
        return results;
    }

    private final class Verdicts implements TransactionListener {
        private final String producer;

        private Verdicts(String producer) {
            this.producer = producer;
        }

        @Override
        public LocalTransactionState executeLocalTransaction(Message message, Object argument) {
            return LocalTransactionState.valueOf((String) argument);
        }

        @Override
        public LocalTransactionState checkLocalTransaction(MessageExt message) {
            Map<String, Object> fields = Peer.received(producer, message);
            fields.put("transaction", message.getTransactionId());
            peer.emit("check", fields);
            return LocalTransactionState.valueOf(message.getUserProperty("checked"));
        }
    }

    // -- request and reply --------------------------------------------------------------------------

    /** By the callback: client 5.3.3 calls it, and ends the blocking request, without a reply once the request is sent. */
    Map<String, Object> request(Command command) throws Exception {
        byte[] body = command.word(3).getBytes(StandardCharsets.UTF_8);
        CompletableFuture<Message> replied = new CompletableFuture<>();
        producers.get(command.word(1)).request(new Message(command.word(2), body), new RequestCallback() {
            @Override
            public void onSuccess(Message reply) {
                if (reply != null) {
                    replied.complete(reply);
                }
            }

            @Override
            public void onException(Throwable error) {
                replied.completeExceptionally(error);
            }
        }, command.number(4));
        Message reply = replied.get(command.number(4), TimeUnit.MILLISECONDS);
        Map<String, Object> fields = new LinkedHashMap<>();
        fields.put("body", new String(reply.getBody(), StandardCharsets.UTF_8));
        fields.put("properties", reply.getProperties());
        return fields;
    }

    /** Answers a request with its own body after "reply to "; leaves alone what is no request. */
    void reply(String producer, MessageExt request) {
        if (MessageUtil.getReplyToClient(request) == null) {
            return;
        }
        try {
            String body = "reply to " + new String(request.getBody(), StandardCharsets.UTF_8);
            producers.get(producer)
                .send(MessageUtil.createReplyMessage(request, body.getBytes(StandardCharsets.UTF_8)));
        } catch (Exception error) {
            throw new IllegalStateException(error);
        }
    }
}
