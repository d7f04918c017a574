import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.client.consumer.AllocateMessageQueueStrategy;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMachineRoomNearby;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragely;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragelyByCircle;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueByMachineRoom;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueConsistentHash;
import org.apache.rocketmq.common.message.MessageQueue;

/**
 * Apache's allocation strategies by the names that they give themselves. Where a room is
 * not given as ROOM@BROKER it is what stands before the first - of a name.
 */
final class Strategies {
    private Strategies() {
    }

    static AllocateMessageQueueStrategy named(String name) {
        switch (name) {
            case "AVG":
                return new AllocateMessageQueueAveragely();
            case "AVG_BY_CIRCLE":
                return new AllocateMessageQueueAveragelyByCircle();
            case "CONSISTENT_HASH":
                return new AllocateMessageQueueConsistentHash();
            case "MACHINE_ROOM":
                AllocateMessageQueueByMachineRoom rooms = new AllocateMessageQueueByMachineRoom();
                rooms.setConsumeridcs(new HashSet<>(Arrays.asList("room1", "room2")));
                return rooms;
            case "MACHINE_ROOM_NEARBY-AVG":
                return new AllocateMachineRoomNearby(named("AVG"), new AllocateMachineRoomNearby.MachineRoomResolver() {
                    @Override
                    public String brokerDeployIn(MessageQueue queue) {
                        return queue.getBrokerName().split("-")[0];
                    }

                    @Override
                    public String consumerDeployIn(String client) {
                        return client.split("-")[0];
                    }
                });
            default:
                throw new IllegalArgumentException("no such strategy: " + name);
        }
    }

    /** What each client gets of the queues of one topic, both sorted as a rebalance sorts them. */
    static Map<String, Object> plan(Command command) {
        AllocateMessageQueueStrategy strategy = named(command.word(1));
        List<String> clients = new ArrayList<>(Arrays.asList(command.word(2).split(",")));
        List<MessageQueue> queues = new ArrayList<>();
        for (String place : command.word(3).split(",")) {
            String[] parts = place.split(":");
            queues.add(new MessageQueue("Topic", parts[0], Integer.parseInt(parts[1])));
        }
        Collections.sort(clients);
        Collections.sort(queues);
        Map<String, Object> plan = new LinkedHashMap<>();
        for (String client : clients) {
            List<Object> places = new ArrayList<>();
            for (MessageQueue queue : strategy.allocate("Group", client, queues, clients)) {
                places.add(queue.getBrokerName() + ":" + queue.getQueueId());
            }
            plan.put(client, places);
        }
        return plan;
    }
}
