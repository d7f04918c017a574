import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StoreQueryParameters;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.errors.InvalidStateStoreException;
import org.apache.kafka.streams.kstream.KGroupedStream;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.state.KeyValueBytesStoreSupplier;
import org.apache.kafka.streams.state.KeyValueIterator;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.QueryableStoreTypes;
import org.apache.kafka.streams.state.ReadOnlyKeyValueStore;
import org.apache.kafka.streams.state.Stores;

/**
 * Per key of `input` the sum of its numbers, in RocksDB, and how many there were, in memory; the value `remove` removes
 * a key. Each update is a record of the stores' changelogs.
 *
 * Options and commands beside those of any {@link Instance}: input; stores (tells what is in both; nothing while they
 * are restored).
 */
public final class Totals {
    private Totals() {
    }

    public static void main(String[] words) throws Exception {
        new Instance(words, Set.of("input")).run(Totals::topology, Map.of("stores", Totals::stores));
    }

    private static Topology topology(Map<String, String> options) {
        StreamsBuilder builder = new StreamsBuilder();
        KGroupedStream<String, String> updates = builder.<String, String>stream(options.get("input")).groupByKey();
        updates.aggregate(
            () -> 0L,
            (key, value, sum) -> value.equals("remove") ? null : Long.valueOf(sum + Long.parseLong(value)),
            uncached(Stores.persistentKeyValueStore("sums")));
        updates.aggregate(
            () -> 0L,
            (key, value, count) -> value.equals("remove") ? null : Long.valueOf(count + 1),
            uncached(Stores.inMemoryKeyValueStore("counts")));
        return builder.build();
    }

    private static Materialized<String, Long, KeyValueStore<Bytes, byte[]>> uncached(KeyValueBytesStoreSupplier store) {
        Serde<Long> numbers = Serdes.Long();
        return Materialized.<String, Long>as(store).withValueSerde(numbers).withCachingDisabled();
    }

    private static void stores(KafkaStreams streams) {
        try {
            Lines.emit("stores", "sums", entries(streams, "sums"), "counts", entries(streams, "counts"));
        } catch (InvalidStateStoreException notYet) {
            Lines.emit("stores");
        }
    }

    private static Map<String, Long> entries(KafkaStreams streams, String name) {
        ReadOnlyKeyValueStore<String, Long> store =
            streams.store(StoreQueryParameters.fromNameAndType(name, QueryableStoreTypes.keyValueStore()));
        Map<String, Long> found = new TreeMap<>();
        try (KeyValueIterator<String, Long> all = store.all()) {
            while (all.hasNext()) {
                KeyValue<String, Long> entry = all.next();
                found.put(entry.key, entry.value);
            }
        }
        return found;
    }
}
