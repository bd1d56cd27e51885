import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import org.apache.pulsar.client.api.BatchReceivePolicy;
import org.apache.pulsar.client.api.BatcherBuilder;
import org.apache.pulsar.client.api.CompressionType;
import org.apache.pulsar.client.api.Consumer;
import org.apache.pulsar.client.api.Message;
import org.apache.pulsar.client.api.MessageId;
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.api.Schema;
import org.apache.pulsar.client.api.SubscriptionType;

/** What a message carries, and how it is packed. */
final class Messages {
    private Messages() {}

    static void add(Map<String, Driver.Scenario> scenarios) {
        scenarios.put("batched messages arrive whole, with every compression", world -> compressed(world, true));
        scenarios.put("single messages arrive whole, with every compression", world -> compressed(world, false));
        scenarios.put("chunked messages are put together", Messages::chunks);
        scenarios.put("keys decide who gets a message of a key-based batch", Messages::keyBatches);
        scenarios.put("empty values and tombstones stay what they are", Messages::empty);
        scenarios.put("messages are received in batches", Messages::batchReceive);
        scenarios.put("partitions share messages by key and in turn", Messages::partitions);
        scenarios.put("lookups over HTTP lead to the broker", Messages::httpLookup);
    }

    private static void compressed(World world, boolean batched) throws Exception {
        for (CompressionType compression : CompressionType.values()) {
            String topic = world.topic();
            try (Consumer<String> consumer = world.consumer(topic, SubscriptionType.Exclusive).subscribe();
                    Producer<String> producer = world.client.newProducer(Schema.STRING).topic(topic)
                            .enableBatching(batched).batchingMaxMessages(20)
                            .batchingMaxPublishDelay(50, TimeUnit.MILLISECONDS)
                            .compressionType(compression).create()) {
                List<CompletableFuture<MessageId>> sent = new ArrayList<>();
                for (int i = 0; i < 60; i++) {
                    sent.add(producer.newMessage().key("k" + i % 3).eventTime(1000 + i).property("n", "" + i)
                            .value("value ".repeat(i)).sendAsync());
                }
                for (int i = 0; i < 60; i++) {
                    Message<String> message = World.next(consumer);
                    World.same("value ".repeat(i), message.getValue());
                    World.same("k" + i % 3, message.getKey());
                    World.same(1000L + i, message.getEventTime());
                    World.same(Map.of("n", "" + i), message.getProperties());
                    World.same((long) i, message.getSequenceId());
                    World.same(producer.getProducerName(), message.getProducerName());
                    World.same(sent.get(i).get(), message.getMessageId());
                    World.check(message.getPublishTime() > 0, "a publish time");
                    consumer.acknowledge(message);
                }
                World.nothingMore(consumer);
            }
        }
    }

    private static void chunks(World world) throws Exception {
        String topic = world.topic();
        byte[] large = new byte[12 << 20];
        new Random(1).nextBytes(large);
        try (Consumer<byte[]> consumer = world.client.newConsumer().topic(topic).subscriptionName("s")
                        .acknowledgmentGroupTime(0, TimeUnit.MILLISECONDS).subscribe();
                Producer<byte[]> producer = world.client.newProducer().topic(topic).enableBatching(false)
                        .enableChunking(true).create()) {
            MessageId sent = producer.send(large);
            producer.send(new byte[] {7});
            Message<byte[]> message = World.next(consumer);
            World.check(Arrays.equals(large, message.getValue()), "the large message");
            World.same(sent, message.getMessageId());
            consumer.acknowledge(message);
            World.same(1, World.take(consumer, 1).get(0).length);
            consumer.seek(sent);
            World.check(Arrays.equals(new byte[] {7}, World.next(consumer).getValue()), "what follows the chunks");
            consumer.seek(MessageId.earliest);
            World.check(Arrays.equals(large, World.next(consumer).getValue()), "the large message again");
        }
    }

    private static void keyBatches(World world) throws Exception {
        String topic = world.topic();
        try (Consumer<String> one = world.consumer(topic, SubscriptionType.Key_Shared).subscribe();
                Consumer<String> other = world.consumer(topic, SubscriptionType.Key_Shared).subscribe();
                Producer<String> producer = world.client.newProducer(Schema.STRING).topic(topic)
                        .batcherBuilder(BatcherBuilder.KEY_BASED)
                        .batchingMaxPublishDelay(50, TimeUnit.MILLISECONDS).create()) {
            for (int i = 0; i < 200; i++) {
                producer.newMessage().key("key" + i % 50).value("m" + i).sendAsync();
            }
            producer.flush();
            List<String> values = new ArrayList<>();
            List<Set<String>> keys = List.of(new HashSet<>(), new HashSet<>());
            while (values.size() < 200) {
                int before = values.size();
                for (int which = 0; which < 2; which++) {
                    Consumer<String> consumer = which == 0 ? one : other;
                    Message<String> message = consumer.receive(100, TimeUnit.MILLISECONDS);
                    if (message != null) {
                        values.add(message.getValue());
                        keys.get(which).add(message.getKey());
                        consumer.acknowledge(message);
                    }
                }
                World.check(values.size() > before || values.size() == 200, "200 messages, found " + values.size());
            }
            World.same(new TreeSet<>(World.numbered(0, 200)), new TreeSet<>(values));
            World.check(!keys.get(0).isEmpty() && !keys.get(1).isEmpty(), "keys for both consumers");
            keys.get(0).retainAll(keys.get(1));
            World.same(Set.of(), keys.get(0));
        }
    }

    private static void empty(World world) throws Exception {
        for (boolean batched : new boolean[] {true, false}) {
            String topic = world.topic();
            try (Consumer<String> consumer = world.consumer(topic, SubscriptionType.Exclusive).subscribe();
                    Producer<String> producer = world.client.newProducer(Schema.STRING).topic(topic)
                            .enableBatching(batched).create()) {
                producer.newMessage().key("a").value("").send();
                producer.newMessage().key("a").value(null).send();
                World.same("", World.next(consumer).getValue());
                World.same(null, World.next(consumer).getValue());
            }
        }
    }

    private static void batchReceive(World world) throws Exception {
        String topic = world.topic();
        try (Consumer<String> consumer = world.consumer(topic, SubscriptionType.Shared)
                        .batchReceivePolicy(BatchReceivePolicy.builder().maxNumMessages(10)
                                .timeout(World.DEADLINE_S, TimeUnit.SECONDS).build())
                        .subscribe()) {
            world.send(topic, 0, 30);
            List<String> values = new ArrayList<>();
            while (values.size() < 30) {
                var messages = consumer.batchReceive();
                World.check(messages.size() > 0, "messages");
                messages.forEach(message -> values.add(message.getValue()));
                consumer.acknowledge(messages);
            }
            World.same(World.numbered(0, 30), values);
        }
    }

    private static void partitions(World world) throws Exception {
        String topic = world.partitionedTopic(3);
        World.same(3, world.client.getPartitionsForTopic(topic, false).get().size());
        try (Consumer<String> consumer = world.consumer(topic, SubscriptionType.Exclusive).subscribe();
                Producer<String> producer = world.plainProducer(topic)) {
            for (int i = 0; i < 60; i++) {
                producer.newMessage().key(i < 30 ? "one" : null).value("m" + i).send();
            }
            Set<String> keyed = new HashSet<>();
            Set<String> plain = new HashSet<>();
            for (int i = 0; i < 60; i++) {
                Message<String> message = World.next(consumer);
                (message.hasKey() ? keyed : plain).add(message.getTopicName());
                consumer.acknowledge(message);
            }
            World.same(1, keyed.size());
            World.same(3, plain.size());
        }
    }

    private static void httpLookup(World world) throws Exception {
        World other = new World(world.httpUrl, world.httpUrl);
        String topic = other.partitionedTopic(2);
        try (Consumer<String> consumer = other.consumer(topic, SubscriptionType.Exclusive).subscribe()) {
            other.send(topic, 0, 4);
            World.same(new TreeSet<>(World.numbered(0, 4)), new TreeSet<>(World.take(consumer, 4)));
        }
        other.client.close();
    }
}
