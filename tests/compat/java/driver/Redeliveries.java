import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.TimeUnit;
import org.apache.pulsar.client.api.Consumer;
import org.apache.pulsar.client.api.DeadLetterPolicy;
import org.apache.pulsar.client.api.Message;
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.api.Schema;
import org.apache.pulsar.client.api.SubscriptionType;
import org.apache.pulsar.client.impl.MultiplierRedeliveryBackoff;

/** What comes again, when, and what does not. */
final class Redeliveries {
    private Redeliveries() {}

    static void add(Map<String, Driver.Scenario> scenarios) {
        scenarios.put("refused messages come again with their count", Redeliveries::refused);
        scenarios.put("messages that nobody acknowledges in time come again", Redeliveries::late);
        scenarios.put("what was refused too often goes to the dead letter topic", Redeliveries::deadLetters);
        scenarios.put("retries pass through the retry topic into the dead letter topic", Redeliveries::retries);
        scenarios.put("delayed messages come when they are due", Redeliveries::delayed);
        scenarios.put("a consumer asks for everything again", Redeliveries::everything);
        scenarios.put("cumulative acknowledgements cover what came before", Redeliveries::cumulative);
        scenarios.put("parts of a batch are acknowledged", Redeliveries::partsOfBatches);
        scenarios.put("acknowledgements are answered", Redeliveries::receipts);
    }

    private static void refused(World world) throws Exception {
        String topic = world.topic();
        try (Consumer<String> consumer = world.consumer(topic, SubscriptionType.Shared)
                .negativeAckRedeliveryBackoff(
                        MultiplierRedeliveryBackoff.builder().minDelayMs(100).maxDelayMs(400).multiplier(2).build())
                .subscribe()) {
            world.send(topic, 0, 2);
            for (int round = 0; round < 3; round++) {
                for (int i = 0; i < 2; i++) {
                    Message<String> message = World.next(consumer);
                    World.same(round, message.getRedeliveryCount());
                    consumer.negativeAcknowledge(message);
                }
            }
            World.same(new TreeSet<>(World.numbered(0, 2)), new TreeSet<>(World.take(consumer, 2)));
        }
    }

    private static void late(World world) throws Exception {
        String topic = world.topic();
        try (Consumer<String> consumer = world.consumer(topic, SubscriptionType.Shared)
                .ackTimeout(1, TimeUnit.SECONDS).ackTimeoutTickTime(100, TimeUnit.MILLISECONDS).subscribe()) {
            world.send(topic, 0, 3);
            for (int i = 0; i < 3; i++) {
                World.same(0, World.next(consumer).getRedeliveryCount());
            }
            World.same(new TreeSet<>(World.numbered(0, 3)), new TreeSet<>(World.take(consumer, 3)));
        }
    }

    private static void deadLetters(World world) throws Exception {
        String topic = world.topic();
        try (Consumer<String> consumer = world.consumer(topic, SubscriptionType.Shared)
                .negativeAckRedeliveryDelay(100, TimeUnit.MILLISECONDS)
                .deadLetterPolicy(DeadLetterPolicy.builder().maxRedeliverCount(2)
                        .initialSubscriptionName("audit").build())
                .subscribe()) {
            world.send(topic, 0, 3);
            for (int i = 0; i < 9; i++) {
                consumer.negativeAcknowledge(World.next(consumer));
            }
            // The dead letter topic and its subscription come with its first message; nothing may be lost.
            try (Consumer<String> dead = world.client.newConsumer(Schema.STRING).topic(topic + "-s-DLQ")
                    .subscriptionName("audit").subscribe()) {
                List<String> values = new ArrayList<>();
                for (int i = 0; i < 3; i++) {
                    Message<String> message = World.next(dead);
                    World.same(topic, message.getProperty("REAL_TOPIC"));
                    values.add(message.getValue());
                }
                World.same(new TreeSet<>(World.numbered(0, 3)), new TreeSet<>(values));
            }
            World.nothingMore(consumer);
        }
    }

    private static void retries(World world) throws Exception {
        String topic = world.topic();
        try (Consumer<String> consumer = world.consumer(topic, SubscriptionType.Shared).enableRetry(true)
                        .deadLetterPolicy(DeadLetterPolicy.builder().maxRedeliverCount(2).build()).subscribe();
                Consumer<String> dead = world.consumer(topic + "-s-DLQ", SubscriptionType.Shared).subscribe()) {
            world.send(topic, 0, 1);
            for (int round = 0; round < 3; round++) {
                Message<String> message = World.next(consumer);
                World.same(round == 0 ? null : "" + round, message.getProperty("RECONSUMETIMES"));
                World.same(round == 0 ? topic : topic + "-s-RETRY", message.getTopicName());
                consumer.reconsumeLater(message, 200, TimeUnit.MILLISECONDS);
            }
            World.same(World.numbered(0, 1), World.take(dead, 1));
        }
    }

    private static void delayed(World world) throws Exception {
        String topic = world.topic();
        try (Consumer<String> consumer = world.consumer(topic, SubscriptionType.Shared).subscribe();
                Producer<String> producer = world.plainProducer(topic)) {
            long start = System.currentTimeMillis();
            producer.newMessage().value("later").deliverAfter(1500, TimeUnit.MILLISECONDS).send();
            producer.newMessage().value("soon").deliverAt(start + 700).send();
            producer.send("now");
            // On a busy machine any of them may be due before the next one is sent: no order is sure.
            Map<String, Long> due = Map.of("now", 0L, "soon", 700L, "later", 1500L);
            Set<String> found = new TreeSet<>();
            for (int i = 0; i < 3; i++) {
                String value = World.take(consumer, 1).get(0);
                World.check(System.currentTimeMillis() - start >= due.get(value), value + " not before its time");
                found.add(value);
            }
            World.same(new TreeSet<>(due.keySet()), found);
        }
    }

    private static void everything(World world) throws Exception {
        for (SubscriptionType type : List.of(SubscriptionType.Exclusive, SubscriptionType.Shared)) {
            String topic = world.topic();
            try (Consumer<String> consumer = world.consumer(topic, type)
                    .acknowledgmentGroupTime(0, TimeUnit.MILLISECONDS).subscribe()) {
                world.send(topic, 0, 20);
                World.take(consumer, 5);
                for (int i = 5; i < 10; i++) {
                    World.same("m" + i, World.next(consumer).getValue());
                }
                // What is still queued in the client comes again, too.
                consumer.redeliverUnacknowledgedMessages();
                if (type == SubscriptionType.Exclusive) {
                    // Epochs tell old deliveries from new ones: nothing comes twice.
                    World.same(World.numbered(5, 20), World.take(consumer, 15));
                    World.nothingMore(consumer);
                } else {
                    // What was on its way while the request was may come twice.
                    Set<String> found = new TreeSet<>();
                    while (found.size() < 15) {
                        found.addAll(World.take(consumer, 1));
                    }
                    World.same(new TreeSet<>(World.numbered(5, 20)), found);
                }
            }
        }
    }

    private static void cumulative(World world) throws Exception {
        String topic = world.topic();
        try (Consumer<String> consumer = world.consumer(topic, SubscriptionType.Exclusive).subscribe()) {
            world.send(topic, 0, 10);
            Message<String> last = null;
            for (int i = 0; i < 6; i++) {
                last = World.next(consumer);
            }
            consumer.acknowledgeCumulative(last);
        }
        try (Consumer<String> consumer = world.consumer(topic, SubscriptionType.Failover).subscribe()) {
            World.same(World.numbered(6, 10), World.take(consumer, 4));
        }
    }

    private static void partsOfBatches(World world) throws Exception {
        for (SubscriptionType type : List.of(SubscriptionType.Shared, SubscriptionType.Exclusive)) {
            String topic = world.topic();
            try (Producer<String> producer = world.client.newProducer(Schema.STRING).topic(topic)
                    .batchingMaxPublishDelay(5, TimeUnit.SECONDS).batchingMaxMessages(10).create()) {
                for (int i = 0; i < 10; i++) {
                    producer.sendAsync("m" + i);
                }
                producer.flush();
            }
            try (Consumer<String> consumer = partial(world, topic, type)) {
                for (int i = 0; i < 10; i++) {
                    Message<String> message = World.next(consumer);
                    if (i % 2 == 0) {
                        consumer.acknowledge(message);
                    }
                }
            }
            try (Consumer<String> consumer = partial(world, topic, type)) {
                World.same(List.of("m1", "m3", "m5", "m7", "m9"), World.take(consumer, 5));
                World.nothingMore(consumer);
            }
        }
    }

    private static Consumer<String> partial(World world, String topic, SubscriptionType type) throws Exception {
        return world.consumer(topic, type).enableBatchIndexAcknowledgment(true).subscribe();
    }

    private static void receipts(World world) throws Exception {
        String topic = world.topic();
        try (Consumer<String> consumer = world.consumer(topic, SubscriptionType.Shared)
                .isAckReceiptEnabled(true).acknowledgmentGroupTime(0, TimeUnit.MILLISECONDS).subscribe()) {
            world.send(topic, 0, 20);
            for (int i = 0; i < 20; i++) {
                consumer.acknowledgeAsync(World.next(consumer)).get(World.DEADLINE_S, TimeUnit.SECONDS);
            }
            String stats = world.admin("GET", World.path(topic) + "/stats", "");
            World.check(stats.replace(" ", "").contains("\"msgBacklog\":0"), "no backlog: " + stats);
        }
    }
}
