import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;
import java.util.regex.Pattern;
import org.apache.pulsar.client.api.Consumer;
import org.apache.pulsar.client.api.ConsumerEventListener;
import org.apache.pulsar.client.api.KeySharedPolicy;
import org.apache.pulsar.client.api.Message;
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.api.PulsarClientException;
import org.apache.pulsar.client.api.Range;
import org.apache.pulsar.client.api.Schema;
import org.apache.pulsar.client.api.SubscriptionInitialPosition;
import org.apache.pulsar.client.api.SubscriptionType;

/** Who gets which message. */
final class Subscriptions {
    private Subscriptions() {}

    static void add(Map<String, Driver.Scenario> scenarios) {
        scenarios.put("an exclusive subscription has one consumer", Subscriptions::exclusive);
        scenarios.put("failover changes the active consumer and tells both", Subscriptions::failover);
        scenarios.put("a shared subscription divides the messages", Subscriptions::shared);
        scenarios.put("Key_Shared keeps the order of each key", Subscriptions::keyShared);
        scenarios.put("Key_Shared with ranges of one's own", Subscriptions::sticky);
        scenarios.put("Key_Shared without order does not wait", Subscriptions::outOfOrder);
        scenarios.put("one consumer reads several topics", Subscriptions::several);
        scenarios.put("a pattern finds topics, also new ones", Subscriptions::pattern);
        scenarios.put("watchers of a pattern hear of new topics at once", Subscriptions::watched);
        scenarios.put("too many unacknowledged messages block a consumer", Subscriptions::blocked);
        scenarios.put("a non-persistent topic serves who is there", Subscriptions::nonPersistent);
        scenarios.put("a paused consumer gets nothing until it resumes", Subscriptions::paused);
        scenarios.put("without a receiver queue messages come one by one", Subscriptions::withoutQueue);
        scenarios.put("unsubscribing ends the subscription", Subscriptions::unsubscribe);
        scenarios.put("consumers and producers survive an unload", Subscriptions::unload);
        scenarios.put("the end of a topic is told", Subscriptions::end);
    }

    private static void exclusive(World world) throws Exception {
        String topic = world.topic();
        try (Consumer<String> consumer = world.consumer(topic, SubscriptionType.Exclusive).subscribe()) {
            World.refused(PulsarClientException.ConsumerBusyException.class,
                    () -> world.consumer(topic, SubscriptionType.Exclusive).subscribe());
            World.refused(PulsarClientException.ConsumerBusyException.class,
                    () -> world.consumer(topic, SubscriptionType.Shared).subscribe());
            world.send(topic, 0, 3);
            World.same(World.numbered(0, 3), World.take(consumer, 3));
        }
    }

    private static void failover(World world) throws Exception {
        String topic = world.topic();
        Map<String, Boolean> active = new ConcurrentHashMap<>();
        ConsumerEventListener listener = new ConsumerEventListener() {
            @Override
            public void becameActive(Consumer<?> consumer, int partition) {
                active.put(consumer.getConsumerName(), true);
            }

            @Override
            public void becameInactive(Consumer<?> consumer, int partition) {
                active.put(consumer.getConsumerName(), false);
            }
        };
        Consumer<String> first = world.consumer(topic, SubscriptionType.Failover).consumerName("a")
                .consumerEventListener(listener).subscribe();
        World.until(() -> active.equals(Map.of("a", true)), "a to be active");
        try (Consumer<String> second = world.consumer(topic, SubscriptionType.Failover).consumerName("b")
                .consumerEventListener(listener).subscribe()) {
            World.until(() -> active.equals(Map.of("a", true, "b", false)), "b to wait");
            world.send(topic, 0, 4);
            World.same(World.numbered(0, 2), World.take(first, 2));
            World.nothingMore(second);
            first.close();
            World.until(() -> active.get("b"), "b to take over");
            World.same(World.numbered(2, 4), World.take(second, 2));
        }
    }

    private static void shared(World world) throws Exception {
        String topic = world.topic();
        Consumer<String> one = world.consumer(topic, SubscriptionType.Shared).receiverQueueSize(5).subscribe();
        try (Consumer<String> other =
                world.consumer(topic, SubscriptionType.Shared).receiverQueueSize(5).subscribe()) {
            world.send(topic, 0, 10);
            List<String> all = new ArrayList<>(World.take(one, 3));
            World.same("m", World.next(one).getValue().substring(0, 1));
            one.close();
            all.addAll(World.take(other, 7));
            World.same(new TreeSet<>(World.numbered(0, 10)), new TreeSet<>(all));
            World.nothingMore(other);
        }
    }

    private static void keyShared(World world) throws Exception {
        String topic = world.topic();
        Map<String, List<String>> byKey = new ConcurrentHashMap<>();
        Map<String, Set<String>> owners = new ConcurrentHashMap<>();
        List<Consumer<String>> consumers = new ArrayList<>();
        for (int i = 0; i < 3; i++) {
            consumers.add(world.consumer(topic, SubscriptionType.Key_Shared).consumerName("c" + i)
                    .messageListener((consumer, message) -> {
                        byKey.computeIfAbsent(message.getKey(), key -> new ArrayList<>()).add(message.getValue());
                        owners.computeIfAbsent(message.getKey(), key -> new HashSet<>())
                                .add(consumer.getConsumerName());
                        consumer.acknowledgeAsync(message);
                    }).subscribe());
        }
        Map<String, List<String>> expected = new HashMap<>();
        try (Producer<String> producer = world.plainProducer(topic)) {
            for (int i = 0; i < 300; i++) {
                String key = "key" + i % 30;
                expected.computeIfAbsent(key, each -> new ArrayList<>()).add("m" + i);
                producer.newMessage().key(key).value("m" + i).sendAsync();
            }
            producer.flush();
        }
        World.until(() -> byKey.equals(expected), "every key in order");
        Set<String> busy = new HashSet<>();
        owners.values().forEach(names -> {
            World.same(1, names.size());
            busy.addAll(names);
        });
        World.check(busy.size() > 1, "keys for more than one consumer");
        for (Consumer<String> consumer : consumers) {
            consumer.close();
        }
    }

    private static void sticky(World world) throws Exception {
        String topic = world.topic();
        try (Consumer<String> low = world.consumer(topic, SubscriptionType.Key_Shared)
                        .keySharedPolicy(KeySharedPolicy.stickyHashRange().ranges(Range.of(0, 32767))).subscribe();
                Consumer<String> high = world.consumer(topic, SubscriptionType.Key_Shared)
                        .keySharedPolicy(KeySharedPolicy.stickyHashRange().ranges(Range.of(32768, 65535)))
                        .subscribe();
                Producer<String> producer = world.plainProducer(topic)) {
            World.refused(PulsarClientException.class, () -> world.consumer(topic, SubscriptionType.Key_Shared)
                    .keySharedPolicy(KeySharedPolicy.stickyHashRange().ranges(Range.of(32000, 33000))).subscribe());
            int forLow = 0;
            for (int i = 0; i < 40; i++) {
                byte[] key = ("key" + i).getBytes();
                int slot = org.apache.pulsar.common.util.Murmur3_32Hash.getInstance().makeHash(key) % 65536;
                forLow += slot < 32768 ? 1 : 0;
                producer.newMessage().key("key" + i).value("m" + i).send();
            }
            World.same(forLow, World.take(low, forLow).size());
            World.same(40 - forLow, World.take(high, 40 - forLow).size());
            World.nothingMore(low);
            World.nothingMore(high);
        }
    }

    private static void outOfOrder(World world) throws Exception {
        String topic = world.topic();
        KeySharedPolicy policy = KeySharedPolicy.autoSplitHashRange().setAllowOutOfOrderDelivery(true);
        try (Consumer<String> one =
                        world.consumer(topic, SubscriptionType.Key_Shared).keySharedPolicy(policy).subscribe();
                Producer<String> producer = world.plainProducer(topic)) {
            for (int i = 0; i < 20; i++) {
                producer.newMessage().key("key" + i).value("m" + i).send();
            }
            World.same("m0", World.next(one).getValue());
            // What the first one holds unacknowledged does not keep the second one waiting.
            try (Consumer<String> other =
                    world.consumer(topic, SubscriptionType.Key_Shared).keySharedPolicy(policy).subscribe()) {
                for (int i = 0; i < 20; i++) {
                    producer.newMessage().key("key" + i).value("n" + i).send();
                }
                World.check(World.next(other).getValue().startsWith("n"), "a new message of a held key");
            }
        }
    }

    private static void several(World world) throws Exception {
        List<String> topics = List.of(world.topic(), world.partitionedTopic(2), world.topic());
        try (Consumer<String> consumer = world.client.newConsumer(Schema.STRING).topics(topics)
                .subscriptionName("s").subscriptionType(SubscriptionType.Shared).subscribe()) {
            for (int i = 0; i < 3; i++) {
                world.send(topics.get(i), i * 5, i * 5 + 5);
            }
            World.same(new TreeSet<>(World.numbered(0, 15)), new TreeSet<>(World.take(consumer, 15)));
        }
    }

    private static void pattern(World world) throws Exception {
        String prefix = world.topic();
        world.send(prefix + "-a", 0, 1);
        try (Consumer<String> consumer = world.client.newConsumer(Schema.STRING)
                .topicsPattern(Pattern.compile(prefix + "-.*")).subscriptionName("s")
                .patternAutoDiscoveryPeriod(1, TimeUnit.SECONDS)
                .subscriptionInitialPosition(SubscriptionInitialPosition.Earliest).subscribe()) {
            World.same(World.numbered(0, 1), World.take(consumer, 1));
            world.send(prefix + "-b", 1, 2);
            world.send(prefix + "c", 2, 3);
            World.same(World.numbered(1, 2), World.take(consumer, 1));
            World.nothingMore(consumer);
        }
    }

    private static void watched(World world) throws Exception {
        // Brokers watch short patterns only; with longer ones clients ask from time to time.
        String prefix = world.topic().substring(0, "persistent://public/default/java-".length() + 8);
        try (Consumer<String> consumer = world.client.newConsumer(Schema.STRING)
                .topicsPattern(Pattern.compile(prefix + "-.*")).subscriptionName("s")
                .patternAutoDiscoveryPeriod(1, TimeUnit.HOURS)
                .subscriptionInitialPosition(SubscriptionInitialPosition.Earliest).subscribe()) {
            for (int i = 0; i < 3; i++) {
                world.send(prefix + "-" + i, i, i + 1);
                World.same(World.numbered(i, i + 1), World.take(consumer, 1));
            }
        }
    }

    private static void blocked(World world) throws Exception {
        String namespace = "public/" + world.name();
        world.admin("PUT", "namespaces/" + namespace, "");
        world.admin("POST", "namespaces/" + namespace + "/maxUnackedMessagesPerConsumer", "5");
        String topic = "persistent://" + namespace + "/t";
        try (Consumer<String> consumer = world.consumer(topic, SubscriptionType.Shared).subscribe()) {
            world.send(topic, 0, 20);
            List<Message<String>> held = new ArrayList<>();
            for (int i = 0; i < 5; i++) {
                held.add(World.next(consumer));
            }
            World.nothingMore(consumer);
            for (Message<String> message : held) {
                consumer.acknowledge(message);
            }
            World.same(World.numbered(5, 20), World.take(consumer, 15));
        }
    }

    private static void nonPersistent(World world) throws Exception {
        String topic = world.topic().replace("persistent://", "non-persistent://");
        try (Producer<String> producer = world.plainProducer(topic)) {
            producer.send("to nobody");
            try (Consumer<String> one = world.consumer(topic, SubscriptionType.Shared).subscribe();
                    Consumer<String> other = world.consumer(topic, SubscriptionType.Exclusive)
                            .subscriptionName("other").subscribe()) {
                for (String value : World.numbered(0, 5)) {
                    producer.send(value);
                }
                World.same(World.numbered(0, 5), World.take(one, 5));
                World.same(World.numbered(0, 5), World.take(other, 5));
            }
        }
    }

    private static void paused(World world) throws Exception {
        String topic = world.topic();
        try (Consumer<String> consumer =
                world.consumer(topic, SubscriptionType.Exclusive).receiverQueueSize(1).startPaused(true).subscribe()) {
            world.send(topic, 0, 5);
            World.nothingMore(consumer);
            consumer.resume();
            World.same(World.numbered(0, 5), World.take(consumer, 5));
        }
    }

    private static void withoutQueue(World world) throws Exception {
        String topic = world.topic();
        try (Consumer<String> consumer =
                world.consumer(topic, SubscriptionType.Shared).receiverQueueSize(0).subscribe()) {
            world.send(topic, 0, 5);
            for (int i = 0; i < 5; i++) {
                // Without a queue the client knows no time limit here.
                Message<String> message = consumer.receiveAsync().get(World.DEADLINE_S, TimeUnit.SECONDS);
                World.same("m" + i, message.getValue());
                consumer.acknowledge(message);
            }
        }
    }

    private static void unsubscribe(World world) throws Exception {
        String topic = world.topic();
        Consumer<String> consumer = world.consumer(topic, SubscriptionType.Shared).subscribe();
        try (Consumer<String> other = world.consumer(topic, SubscriptionType.Shared).subscribe()) {
            World.refused(PulsarClientException.class, consumer::unsubscribe);
        }
        consumer.unsubscribe();
        World.same("[]", world.admin("GET", World.path(topic) + "/subscriptions", "").strip());
    }

    private static void unload(World world) throws Exception {
        String topic = world.topic();
        try (Consumer<String> consumer = world.consumer(topic, SubscriptionType.Shared).subscribe();
                Producer<String> producer = world.plainProducer(topic)) {
            producer.send("m0");
            Message<String> message = World.next(consumer);
            world.admin("PUT", World.path(topic) + "/unload", "");
            for (int i = 1; i < 5; i++) {
                producer.send("m" + i);
            }
            consumer.acknowledge(message);
            Set<String> found = new HashSet<>();
            while (!found.containsAll(World.numbered(1, 5))) {
                found.addAll(World.take(consumer, 1));
            }
        }
    }

    private static void end(World world) throws Exception {
        String topic = world.topic();
        try (Consumer<String> consumer = world.consumer(topic, SubscriptionType.Exclusive).subscribe();
                Producer<String> producer = world.plainProducer(topic)) {
            producer.send("m0");
            world.admin("POST", World.path(topic) + "/terminate", "");
            World.refused(PulsarClientException.TopicTerminatedException.class, () -> producer.send("m1"));
            World.check(!consumer.hasReachedEndOfTopic(), "a message before the end");
            World.take(consumer, 1);
            World.until(consumer::hasReachedEndOfTopic, "the end of the topic");
        }
    }
}
