import java.util.List;
import java.util.Properties;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.common.KafkaFuture;

/** What Java programs do with a cluster, told fact by fact: Scenario NAME BOOTSTRAP PREFIX. The tests know the facts. */
final class Scenario {
    final String bootstrap;
    final String prefix;

    Scenario(String bootstrap, String prefix) {
        this.bootstrap = bootstrap;
        this.prefix = prefix;
    }

    public static void main(String[] arguments) throws Exception {
        Scenario scenario = new Scenario(arguments[1], arguments[2]);
        switch (arguments[0]) {
            case "topics":
                new Topics(scenario).run();
                break;
            case "offsets":
                new Offsets(scenario).run();
                break;
            case "produce":
                new Produce(scenario).run();
                break;
            case "transactions":
                new Transactions(scenario).run();
                break;
            default:
                throw new IllegalArgumentException("no such scenario: " + arguments[0]);
        }
    }

    void fact(String name, Object value) {
        Lines.emit("fact", "name", name, "value", value);
    }

    /** The fact is what is told in the end: brokers hear of what the controller has done a little later. */
    void becomes(String name, Object wanted, Callable<Object> asked) throws Exception {
        long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(30);
        Object told = outcome(asked);
        while (!wanted.equals(told) && System.nanoTime() < deadline) {
            Thread.sleep(50);
            told = outcome(asked);
        }
        fact(name, told);
    }

    /** What is told, or the name of the exception. */
    private static Object outcome(Callable<Object> asked) throws Exception {
        try {
            return asked.call();
        } catch (ExecutionException error) {
            return error.getCause().getClass().getSimpleName();
        }
    }

    /** The fact is how it fails: the name of the exception. */
    void failure(String name, KafkaFuture<?> future) throws InterruptedException {
        try {
            future.get();
            fact(name, "no failure");
        } catch (ExecutionException error) {
            fact(name, error.getCause().getClass().getSimpleName());
        }
    }

    /** Settings of any client, and more in turn. */
    Properties settings(Object... more) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", bootstrap);
        for (int place = 0; place < more.length; place += 2) {
            settings.put(more[place], more[place + 1]);
        }
        return settings;
    }

    KafkaProducer<String, String> producer(Object... more) {
        Properties settings = settings(more);
        settings.put("key.serializer", "org.apache.kafka.common.serialization.StringSerializer");
        settings.put("value.serializer", "org.apache.kafka.common.serialization.StringSerializer");
        return new KafkaProducer<>(settings);
    }

    KafkaConsumer<String, String> consumer(Object... more) {
        Properties settings = settings("auto.offset.reset", "earliest", "enable.auto.commit", "false");
        settings.putAll(settings(more));
        settings.put("key.deserializer", "org.apache.kafka.common.serialization.StringDeserializer");
        settings.put("value.deserializer", "org.apache.kafka.common.serialization.StringDeserializer");
        return new KafkaConsumer<>(settings);
    }

    String name(String of) {
        return prefix + "-" + of;
    }

    static final List<String> CODECS = List.of("none", "gzip", "snappy", "lz4", "zstd");
}
