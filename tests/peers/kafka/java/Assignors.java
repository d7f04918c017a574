import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeMap;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.Assignment;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.Subscription;
import org.apache.kafka.clients.consumer.CooperativeStickyAssignor;
import org.apache.kafka.clients.consumer.RangeAssignor;
import org.apache.kafka.clients.consumer.RoundRobinAssignor;
import org.apache.kafka.clients.consumer.StickyAssignor;
import org.apache.kafka.clients.consumer.internals.AbstractPartitionAssignor;
import org.apache.kafka.common.TopicPartition;

/**
 * Apache's assignors by their names. Each line of the input is a group, each line of the output its plan in JSON.
 *
 * <p>Input: {@code ASSIGNOR <tab> TOPIC:COUNT,... <tab> MEMBER|INSTANCE|TOPIC,...|GENERATION|TOPIC:PARTITION,...
 * <tab> (the next member) ...}; any part but the first two may be empty. Names need no quoting.
 *
 * <p>Output: {@code nanos} that the assignor took, {@code plan} by member, and {@code user_data} in hexadecimal
 * digits that each member sent.
 */
public final class Assignors {
    private Assignors() {
    }

    public static void main(String[] arguments) throws Exception {
        BufferedReader lines =
            new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8), 1 << 20);
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            System.out.println(answer(line.split("\t", -1)));
            System.out.flush();
        }
    }

    private static AbstractPartitionAssignor named(String name) {
        switch (name) {
            case "range":
                return new RangeAssignor();
            case "roundrobin":
                return new RoundRobinAssignor();
            case "sticky":
                return new StickyAssignor();
            case "cooperative-sticky":
                return new CooperativeStickyAssignor();
            default:
                throw new IllegalArgumentException("no such assignor: " + name);
        }
    }

    private static String answer(String[] words) {
        Map<String, Integer> partitions = new HashMap<>();
        for (TopicPartition count : places(words[1])) {
            partitions.put(count.topic(), count.partition());
        }
        Map<String, Subscription> subscriptions = new HashMap<>();
        Map<String, String> userData = new TreeMap<>();
        for (int place = 2; place < words.length; place++) {
            String[] parts = words[place].split("\\|", -1);
            List<TopicPartition> owned = places(parts[4]);
            int generation = Integer.parseInt(parts[3]);
            ByteBuffer bytes = userData(named(words[0]), parts[0], owned, generation);
            Subscription subscription =
                new Subscription(names(parts[2]), bytes, owned, generation, Optional.empty());
            if (!parts[1].isEmpty()) {
                subscription.setGroupInstanceId(Optional.of(parts[1]));
            }
            subscriptions.put(parts[0], subscription);
            userData.put(parts[0], '"' + hexadecimal(bytes) + '"');
        }
        // As AbstractPartitionAssignor does: assignors take it for granted that somebody reads each topic.
        Set<String> subscribed = new HashSet<>();
        subscriptions.values().forEach(subscription -> subscribed.addAll(subscription.topics()));
        partitions.keySet().retainAll(subscribed);
        AbstractPartitionAssignor assignor = named(words[0]);
        long begin = System.nanoTime();
        Map<String, List<TopicPartition>> plan = assignor.assign(partitions, subscriptions);
        long nanos = System.nanoTime() - begin;
        Map<String, String> shares = new TreeMap<>();
        plan.forEach((member, share) -> {
            List<String> texts = new ArrayList<>();
            share.forEach(one -> texts.add('"' + one.topic() + ':' + one.partition() + '"'));
            shares.put(member, texts.toString());
        });
        return "{\"nanos\": " + nanos + ", \"plan\": " + object(shares)
            + ", \"user_data\": " + object(userData) + '}';
    }

    /** What the member sends after an assignment in that generation; null if it had none. */
    private static ByteBuffer userData(
            ConsumerPartitionAssignor assignor, String member, List<TopicPartition> owned, int generation) {
        if (generation >= 0) {
            assignor.onAssignment(
                new Assignment(owned), new ConsumerGroupMetadata("group", generation, member, Optional.empty()));
        }
        return assignor.subscriptionUserData(Set.of());
    }

    private static List<TopicPartition> places(String text) {
        List<TopicPartition> places = new ArrayList<>();
        for (String place : names(text)) {
            int colon = place.lastIndexOf(':');
            places.add(new TopicPartition(
                place.substring(0, colon), Integer.parseInt(place.substring(colon + 1))));
        }
        return places;
    }

    private static List<String> names(String text) {
        return text.isEmpty() ? List.of() : List.of(text.split(","));
    }

    private static String hexadecimal(ByteBuffer bytes) {
        StringBuilder text = new StringBuilder();
        for (int place = 0; bytes != null && place < bytes.limit(); place++) {
            text.append(String.format("%02x", bytes.get(place)));
        }
        return text.toString();
    }

    private static String object(Map<String, String> members) {
        List<String> pairs = new ArrayList<>();
        members.forEach((name, text) -> pairs.add('"' + name + "\": " + text));
        return '{' + String.join(", ", pairs) + '}';
    }
}
