import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import org.apache.pulsar.client.api.CompressionType;
import org.apache.pulsar.client.api.Consumer;
import org.apache.pulsar.client.api.ConsumerBuilder;
import org.apache.pulsar.client.api.Message;
import org.apache.pulsar.client.api.MessageId;
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.api.Reader;
import org.apache.pulsar.client.api.Schema;
import org.apache.pulsar.client.api.SubscriptionType;
import org.apache.pulsar.client.api.TableView;
import org.apache.pulsar.client.api.TopicMessageId;

/** Compacted topics, read with readCompacted. */
final class Compaction {
    private static final int KEYS = 4;

    private Compaction() {}

    static void add(Map<String, Driver.Scenario> scenarios) {
        scenarios.put("compacted: readers get the last message of each key", Compaction::readers);
        scenarios.put("compacted: readers get what is left of batches", Compaction::readersOfBatches);
        scenarios.put("compacted: acknowledged one by one, nothing is behind", Compaction::acknowledged);
        scenarios.put("compacted: acknowledged by the index in batches, nothing is behind", Compaction::acknowledgedBatches);
        scenarios.put("compacted: what the log has no more is delivered again", Compaction::bygone);
        scenarios.put("compacted: seek to ids and times", Compaction::seek);
        scenarios.put("compacted: readers begin at ids and times", Compaction::starts);
        scenarios.put("compacted: the last message id", Compaction::lastId);
        scenarios.put("compacted: a table view", Compaction::tableView);
    }

    /** Values m0 … of keys k0 … k3 in turn; keys of which the last is m0 … leave with null. */
    private static List<MessageId> publish(World world, String topic, int first, int end, CompressionType compression,
            boolean batches) throws Exception {
        List<MessageId> ids = new ArrayList<>();
        try (Producer<String> producer = world.client.newProducer(Schema.STRING).topic(topic)
                .enableBatching(batches).batchingMaxMessages(6).batchingMaxPublishDelay(1, TimeUnit.SECONDS)
                .compressionType(compression).create()) {
            List<java.util.concurrent.CompletableFuture<MessageId>> sent = new ArrayList<>();
            for (int i = first; i < end; i++) {
                sent.add(producer.newMessage().key("k" + i % KEYS).value("m" + i).sendAsync());
            }
            producer.flush();
            for (java.util.concurrent.CompletableFuture<MessageId> each : sent) {
                ids.add(each.get());
            }
        }
        return ids;
    }

    private static void compact(World world, String topic) throws Exception {
        String path = World.path(topic) + "/compaction";
        world.admin("PUT", path, "");
        World.until(() -> {
            try {
                return world.admin("GET", path, "").contains("SUCCESS");
            } catch (Exception error) {
                return false;
            }
        }, "the compaction succeeds");
    }

    private static List<String> read(Reader<String> reader) throws Exception {
        List<String> values = new ArrayList<>();
        while (reader.hasMessageAvailable()) {
            Message<String> message = reader.readNext(World.DEADLINE_S, TimeUnit.SECONDS);
            World.check(message != null, "a message that was said to be available, after " + values);
            values.add(message.getValue());
        }
        return values;
    }

    private static Reader<String> reader(World world, String topic, MessageId start) throws Exception {
        return world.client.newReader(Schema.STRING).topic(topic).readCompacted(true).startMessageId(start).create();
    }

    private static void readers(World world) throws Exception {
        String topic = world.topic();
        publish(world, topic, 0, 20, CompressionType.NONE, false);
        compact(world, topic);
        try (Reader<String> reader = reader(world, topic, MessageId.earliest)) {
            World.same(World.numbered(16, 20), read(reader));
            publish(world, topic, 20, 21, CompressionType.NONE, false);
            World.same(World.numbered(20, 21), read(reader));
        }
        compact(world, topic);
        world.admin("PUT", World.path(topic) + "/unload", "");
        try (Reader<String> reader = reader(world, topic, MessageId.earliest)) {
            World.same(World.numbered(17, 21), read(reader));
        }
    }

    private static void readersOfBatches(World world) throws Exception {
        for (CompressionType compression : CompressionType.values()) {
            String topic = world.topic();
            // Batches of six: the last message of two keys lies in the last batch, those of others before it.
            publish(world, topic, 0, 20, compression, true);
            compact(world, topic);
            try (Reader<String> reader = reader(world, topic, MessageId.earliest)) {
                World.same(World.numbered(16, 20), read(reader));
            }
            publish(world, topic, 20, 22, compression, true);
            compact(world, topic);
            try (Reader<String> reader = reader(world, topic, MessageId.earliest)) {
                World.same(World.numbered(18, 22), read(reader));
            }
        }
    }

    private static ConsumerBuilder<String> consumer(World world, String topic) {
        return world.consumer(topic, SubscriptionType.Exclusive).readCompacted(true)
                .acknowledgmentGroupTime(0, TimeUnit.MILLISECONDS);
    }

    private static void nothingIsBehind(World world, String topic) throws Exception {
        World.until(() -> {
            try {
                return world.admin("GET", World.path(topic) + "/stats", "").replace(" ", "")
                        .contains("\"msgBacklog\":0");
            } catch (Exception error) {
                return false;
            }
        }, "a backlog of 0");
    }

    private static void acknowledged(World world) throws Exception {
        String topic = world.topic();
        consumer(world, topic).subscribe().close();
        publish(world, topic, 0, 20, CompressionType.NONE, false);
        compact(world, topic);
        try (Consumer<String> consumer = consumer(world, topic).subscribe()) {
            World.same(World.numbered(16, 20), World.take(consumer, KEYS));
            nothingIsBehind(world, topic);
        }
        try (Consumer<String> consumer = consumer(world, topic).subscribe()) {
            World.nothingMore(consumer);
        }
    }

    private static void acknowledgedBatches(World world) throws Exception {
        String topic = world.topic();
        consumer(world, topic).subscribe().close();
        publish(world, topic, 0, 20, CompressionType.LZ4, true);
        compact(world, topic);
        try (Consumer<String> consumer = consumer(world, topic).enableBatchIndexAcknowledgment(true).subscribe()) {
            World.same(World.numbered(16, 20), World.take(consumer, KEYS));
            nothingIsBehind(world, topic);
        }
    }

    private static void bygone(World world) throws Exception {
        String topic = world.topic();
        publish(world, topic, 0, 20, CompressionType.NONE, false);
        compact(world, topic);
        // A new ledger, and the old one trimmed.
        world.admin("PUT", World.path(topic) + "/unload", "");
        publish(world, topic, 20, 21, CompressionType.NONE, false);
        world.admin("POST", World.path(topic) + "/trim", "");
        World.check(world.admin("GET", World.path(topic) + "/internalStats", "").replace(" ", "")
                .contains("\"numberOfEntries\":1,"), "a log of one entry");
        try (Consumer<String> consumer = consumer(world, topic).subscribe()) {
            List<Message<String>> messages = new ArrayList<>();
            for (int i = 16; i < 21; i++) {
                messages.add(World.next(consumer));
                World.same("m" + i, messages.get(i - 16).getValue());
            }
            consumer.acknowledge(messages.get(1));
            consumer.acknowledge(messages.get(4));
            consumer.redeliverUnacknowledgedMessages();
            World.same("m16", World.next(consumer).getValue());
            World.same("m18", World.next(consumer).getValue());
        }
        world.admin("PUT", World.path(topic) + "/unload", "");
        try (Consumer<String> consumer = consumer(world, topic).subscribe()) {
            World.same("m16", World.next(consumer).getValue());
        }
    }

    private static void seek(World world) throws Exception {
        String topic = world.topic();
        List<MessageId> ids = publish(world, topic, 0, 10, CompressionType.NONE, false);
        long before = System.currentTimeMillis();
        World.until(() -> System.currentTimeMillis() > before, "the next millisecond");
        long middle = System.currentTimeMillis();
        ids.addAll(publish(world, topic, 10, 12, CompressionType.NONE, false));
        compact(world, topic);
        try (Consumer<String> consumer = consumer(world, topic).subscribe()) {
            World.same(World.numbered(8, 12), World.take(consumer, KEYS));
            consumer.seek(ids.get(3));
            World.same(World.numbered(8, 12), World.take(consumer, KEYS));
            consumer.seek(ids.get(9));
            World.same(World.numbered(10, 12), World.take(consumer, 2));
            consumer.seek(middle);
            World.same(World.numbered(10, 12), World.take(consumer, 2));
            consumer.seek(MessageId.earliest);
            World.same(World.numbered(8, 12), World.take(consumer, KEYS));
            consumer.seek(MessageId.latest);
            World.nothingMore(consumer);
        }
    }

    private static void starts(World world) throws Exception {
        String topic = world.topic();
        List<MessageId> ids = publish(world, topic, 0, 12, CompressionType.NONE, false);
        compact(world, topic);
        for (int start : new int[] {2, 8, 9, 11}) {
            try (Reader<String> reader = reader(world, topic, ids.get(start))) {
                World.same(World.numbered(Math.max(8, start + 1), 12), read(reader));
            }
        }
        try (Reader<String> reader = world.client.newReader(Schema.STRING).topic(topic).readCompacted(true)
                .startMessageId(ids.get(9)).startMessageIdInclusive().create()) {
            World.same(World.numbered(9, 12), read(reader));
        }
        try (Reader<String> reader = world.client.newReader(Schema.STRING).topic(topic).readCompacted(true)
                .startMessageFromRollbackDuration(1, TimeUnit.HOURS).create()) {
            World.same(World.numbered(8, 12), read(reader));
        }
    }

    private static void lastId(World world) throws Exception {
        String topic = world.topic();
        List<MessageId> ids = publish(world, topic, 0, 6, CompressionType.NONE, false);
        try (Producer<String> producer = world.plainProducer(topic)) {
            producer.newMessage().key("k1").value(null).send();
        }
        compact(world, topic);
        try (Consumer<String> consumer = consumer(world, topic).subscribe()) {
            // What removed k1 is gone itself, and so are m0 to m2 and m5: k0 has m4.
            List<TopicMessageId> last = consumer.getLastMessageIds();
            World.same(1, last.size());
            World.same(0, ids.get(4).compareTo(last.get(0)));
        }
        try (Reader<String> reader = reader(world, topic, MessageId.earliest)) {
            World.same(List.of("m2", "m3", "m4"), read(reader));
        }
    }

    private static void tableView(World world) throws Exception {
        String topic = world.topic();
        publish(world, topic, 0, 20, CompressionType.ZSTD, true);
        compact(world, topic);
        publish(world, topic, 20, 21, CompressionType.NONE, false);
        try (TableView<String> view = world.client.newTableView(Schema.STRING).topic(topic).create()) {
            World.same(KEYS, view.size());
            World.same("m20", view.get("k0"));
            World.same("m17", view.get("k1"));
        }
    }
}
