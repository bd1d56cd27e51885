import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import org.apache.pulsar.client.api.Consumer;
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.api.ProducerAccessMode;
import org.apache.pulsar.client.api.ProducerBuilder;
import org.apache.pulsar.client.api.PulsarClientException;
import org.apache.pulsar.client.api.Schema;
import org.apache.pulsar.client.api.SubscriptionType;

/** Who may publish, and what counts once. */
final class Producers {
    private Producers() {}

    static void add(Map<String, Driver.Scenario> scenarios) {
        scenarios.put("access modes of producers", Producers::accessModes);
        scenarios.put("a producer that fences takes the topic over", Producers::fencing);
        scenarios.put("two producers of one name", Producers::names);
        scenarios.put("what is sent twice counts once", Producers::deduplication);
        scenarios.put("too large a message is refused", Producers::tooLarge);
    }

    private static ProducerBuilder<String> builder(World world, String topic, ProducerAccessMode mode) {
        return world.client.newProducer(Schema.STRING).topic(topic).accessMode(mode);
    }

    private static void accessModes(World world) throws Exception {
        String topic = world.topic();
        Producer<String> holder = builder(world, topic, ProducerAccessMode.Exclusive).create();
        World.refused(PulsarClientException.ProducerFencedException.class,
                () -> builder(world, topic, ProducerAccessMode.Exclusive).create());
        World.refused(PulsarClientException.ProducerBusyException.class,
                () -> builder(world, topic, ProducerAccessMode.Shared).create());
        CompletableFuture<Producer<String>> waiting =
                builder(world, topic, ProducerAccessMode.WaitForExclusive).createAsync();
        holder.send("m0");
        World.check(!waiting.isDone(), "the second one to wait");
        holder.close();
        Producer<String> next = waiting.get(World.DEADLINE_S, TimeUnit.SECONDS);
        next.send("m1");
        next.close();
        try (Consumer<String> consumer = world.consumer(topic, SubscriptionType.Exclusive).subscribe()) {
            World.same(World.numbered(0, 2), World.take(consumer, 2));
        }
    }

    private static void fencing(World world) throws Exception {
        String topic = world.topic();
        Producer<String> old = builder(world, topic, ProducerAccessMode.Exclusive).create();
        old.send("m0");
        try (Producer<String> taker = builder(world, topic, ProducerAccessMode.ExclusiveWithFencing).create()) {
            taker.send("m1");
            World.refused(PulsarClientException.class, () -> old.send("m2"));
        }
    }

    private static void names(World world) throws Exception {
        String topic = world.topic();
        try (Producer<String> first = world.client.newProducer(Schema.STRING).topic(topic).producerName("p").create()) {
            first.send("m0");
            World.refused(PulsarClientException.ProducerBusyException.class,
                    () -> world.client.newProducer(Schema.STRING).topic(topic).producerName("p").create());
        }
    }

    private static void deduplication(World world) throws Exception {
        String namespace = "public/" + world.name();
        world.admin("PUT", "namespaces/" + namespace, "");
        world.admin("POST", "namespaces/" + namespace + "/deduplication", "true");
        String topic = "persistent://" + namespace + "/t";
        ProducerBuilder<String> builder = world.client.newProducer(Schema.STRING).topic(topic).producerName("p")
                .sendTimeout(0, TimeUnit.SECONDS);
        try (Consumer<String> consumer = world.consumer(topic, SubscriptionType.Exclusive).subscribe()) {
            try (Producer<String> producer = builder.create()) {
                World.same(-1L, producer.getLastSequenceId());
                producer.newMessage().sequenceId(10).value("m0").send();
                producer.newMessage().sequenceId(10).value("again").send();
                producer.newMessage().sequenceId(9).value("earlier").send();
                producer.newMessage().sequenceId(11).value("m1").send();
            }
            try (Producer<String> producer = builder.create()) {
                World.same(11L, producer.getLastSequenceId());
                producer.newMessage().sequenceId(11).value("again").send();
                producer.newMessage().sequenceId(12).value("m2").send();
            }
            World.same(World.numbered(0, 3), World.take(consumer, 3));
            World.nothingMore(consumer);
        }
    }

    private static void tooLarge(World world) throws Exception {
        try (Producer<byte[]> producer =
                world.client.newProducer().topic(world.topic()).enableBatching(false).create()) {
            World.refused(PulsarClientException.InvalidMessageException.class, () -> producer.send(new byte[6 << 20]));
            producer.send(new byte[4 << 20]);
        }
    }
}
