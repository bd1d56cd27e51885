import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.TreeSet;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;
import org.apache.pulsar.client.api.Consumer;
import org.apache.pulsar.client.api.Message;
import org.apache.pulsar.client.api.MessageId;
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.api.Reader;
import org.apache.pulsar.client.api.Schema;
import org.apache.pulsar.client.api.SubscriptionType;
import org.apache.pulsar.client.api.TableView;

/** Where reading begins, and begins again. */
final class Positions {
    private Positions() {}

    static void add(Map<String, Driver.Scenario> scenarios) {
        scenarios.put("seek to the ends, to a message, to a time", Positions::seek);
        scenarios.put("seek into a batch", Positions::seekIntoBatch);
        scenarios.put("seek by a function of the topic", Positions::seekByFunction);
        scenarios.put("readers begin where they are told", Positions::readers);
        scenarios.put("readers know whether there is more", Positions::more);
        scenarios.put("a reader begins some time ago", Positions::rollback);
        scenarios.put("readers of partitions", Positions::readersOfPartitions);
        scenarios.put("the last message ids of all partitions", Positions::lastIds);
        scenarios.put("a table view follows its topic", Positions::tableView);
    }

    private static void seek(World world) throws Exception {
        String topic = world.topic();
        // Acknowledgements leave at once: none waits in the client while it seeks.
        try (Consumer<String> consumer = world.consumer(topic, SubscriptionType.Shared)
                .acknowledgmentGroupTime(0, TimeUnit.MILLISECONDS).subscribe()) {
            world.send(topic, 0, 5);
            // Times are in whole milliseconds: the second half is published in a later one.
            long before = System.currentTimeMillis();
            World.until(() -> System.currentTimeMillis() > before, "the next millisecond");
            long middle = System.currentTimeMillis();
            world.send(topic, 5, 10);
            List<Message<String>> messages = new ArrayList<>();
            for (int i = 0; i < 10; i++) {
                messages.add(World.next(consumer));
                consumer.acknowledge(messages.get(i));
            }
            consumer.seek(MessageId.earliest);
            World.same(World.numbered(0, 10), World.take(consumer, 10));
            consumer.seek(messages.get(3).getMessageId());
            World.same(World.numbered(4, 10), World.take(consumer, 6));
            consumer.seek(middle);
            World.same(World.numbered(5, 10), World.take(consumer, 5));
            consumer.seek(MessageId.latest);
            World.nothingMore(consumer);
            world.send(topic, 10, 11);
            World.same(World.numbered(10, 11), World.take(consumer, 1));
        }
    }

    private static void seekIntoBatch(World world) throws Exception {
        String topic = world.topic();
        List<MessageId> ids = Collections.synchronizedList(new ArrayList<>());
        try (Producer<String> producer = world.client.newProducer(Schema.STRING).topic(topic)
                        .batchingMaxPublishDelay(5, TimeUnit.SECONDS).create();
                Consumer<String> consumer = world.consumer(topic, SubscriptionType.Exclusive).subscribe();
                Consumer<String> inclusive = world.consumer(topic, SubscriptionType.Exclusive)
                        .subscriptionName("inclusive").startMessageIdInclusive().subscribe()) {
            for (int i = 0; i < 10; i++) {
                producer.sendAsync("m" + i).thenAccept(ids::add);
            }
            producer.flush();
            World.take(consumer, 10);
            consumer.seek(ids.get(4));
            World.same(World.numbered(5, 10), World.take(consumer, 5));
            World.take(inclusive, 10);
            inclusive.seek(ids.get(4));
            World.same(World.numbered(4, 10), World.take(inclusive, 6));
        }
    }

    private static void seekByFunction(World world) throws Exception {
        String topic = world.partitionedTopic(2);
        try (Consumer<String> consumer = world.consumer(topic, SubscriptionType.Shared).subscribe()) {
            world.send(topic, 0, 10);
            World.take(consumer, 10);
            consumer.seek(name -> name.endsWith("-0") ? MessageId.earliest : MessageId.latest);
            World.same(5, World.take(consumer, 5).size());
            World.nothingMore(consumer);
            consumer.seek(name -> name.endsWith("-1") ? (Object) 0L : MessageId.latest);
            World.same(5, World.take(consumer, 5).size());
            World.nothingMore(consumer);
        }
    }

    private static List<String> rest(Reader<String> reader) throws Exception {
        List<String> values = new ArrayList<>();
        while (reader.hasMessageAvailable()) {
            Message<String> message = reader.readNext(World.DEADLINE_S, TimeUnit.SECONDS);
            World.check(message != null, "the message that is available");
            values.add(message.getValue());
        }
        return values;
    }

    private static void readers(World world) throws Exception {
        for (boolean batched : new boolean[] {false, true}) {
            String topic = world.topic();
            List<MessageId> ids = new ArrayList<>();
            try (Producer<String> producer = world.client.newProducer(Schema.STRING).topic(topic)
                    .enableBatching(batched).batchingMaxPublishDelay(5, TimeUnit.SECONDS).create()) {
                for (int i = 0; i < 10; i++) {
                    producer.sendAsync("m" + i).thenAccept(ids::add);
                }
                producer.flush();
            }
            var builder = world.client.newReader(Schema.STRING).topic(topic);
            try (Reader<String> reader = builder.clone().startMessageId(MessageId.earliest).create()) {
                World.same(World.numbered(0, 10), rest(reader));
                reader.seek(ids.get(7));
                World.same(World.numbered(8, 10), rest(reader));
            }
            try (Reader<String> reader = builder.clone().startMessageId(ids.get(6)).create()) {
                World.same(World.numbered(7, 10), rest(reader));
            }
            try (Reader<String> reader =
                    builder.clone().startMessageId(ids.get(6)).startMessageIdInclusive().create()) {
                World.same(World.numbered(6, 10), rest(reader));
            }
            try (Reader<String> reader =
                    builder.clone().startMessageId(MessageId.latest).startMessageIdInclusive().create()) {
                World.same(World.numbered(9, 10), rest(reader));
            }
            try (Reader<String> reader = builder.clone().startMessageId(MessageId.latest).create()) {
                World.same(List.of(), rest(reader));
            }
        }
    }

    private static void more(World world) throws Exception {
        String topic = world.topic();
        try (Reader<String> reader =
                world.client.newReader(Schema.STRING).topic(topic).startMessageId(MessageId.earliest).create()) {
            World.check(!reader.hasMessageAvailable(), "nothing on an empty topic");
            world.send(topic, 0, 2);
            World.same(World.numbered(0, 2), rest(reader));
            world.send(topic, 2, 3);
            World.same(World.numbered(2, 3), rest(reader));
        }
    }

    private static void rollback(World world) throws Exception {
        String topic = world.topic();
        world.send(topic, 0, 3);
        try (Reader<String> reader = world.client.newReader(Schema.STRING).topic(topic)
                .startMessageFromRollbackDuration(1, TimeUnit.HOURS).create()) {
            World.same(World.numbered(0, 3), rest(reader));
        }
    }

    private static void readersOfPartitions(World world) throws Exception {
        String topic = world.partitionedTopic(3);
        world.send(topic, 0, 9);
        try (Reader<String> reader =
                world.client.newReader(Schema.STRING).topic(topic).startMessageId(MessageId.earliest).create()) {
            World.same(new TreeSet<>(World.numbered(0, 9)), new TreeSet<>(rest(reader)));
            reader.seek(0);
            World.same(9, rest(reader).size());
        }
    }

    private static void lastIds(World world) throws Exception {
        String topic = world.partitionedTopic(2);
        try (Consumer<String> consumer = world.consumer(topic, SubscriptionType.Shared).subscribe();
                Producer<String> producer = world.plainProducer(topic)) {
            MessageId last = producer.send("m0");
            MessageId other = producer.send("m1");
            var found = consumer.getLastMessageIds();
            World.same(2, found.size());
            World.check(found.stream().anyMatch(id -> id.compareTo(last) == 0)
                    && found.stream().anyMatch(id -> id.compareTo(other) == 0), last + " and " + other + " in " + found);
        }
    }

    private static void tableView(World world) throws Exception {
        String topic = world.topic();
        try (Producer<String> producer = world.producer(topic)) {
            for (int i = 0; i < 20; i++) {
                producer.newMessage().key("k" + i % 5).value("m" + i).send();
            }
            Map<String, String> heard = new ConcurrentHashMap<>();
            try (TableView<String> view = world.client.newTableView(Schema.STRING).topic(topic).create()) {
                World.same(5, view.size());
                World.same("m17", view.get("k2"));
                view.listen(heard::put);
                producer.newMessage().key("k2").value("new").send();
                view.refresh();
                World.same("new", view.get("k2"));
                producer.newMessage().key("k3").value(null).send();
                view.refresh();
                World.check(!view.containsKey("k3"), "a removed key");
                World.same("new", heard.get("k2"));
            }
        }
    }
}
