import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeSet;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import org.apache.pulsar.client.api.Consumer;
import org.apache.pulsar.client.api.CryptoKeyReader;
import org.apache.pulsar.client.api.Message;
import org.apache.pulsar.client.api.MessageId;
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.api.ProducerAccessMode;
import org.apache.pulsar.client.api.PulsarClient;
import org.apache.pulsar.client.api.PulsarClientException;
import org.apache.pulsar.client.api.Reader;
import org.apache.pulsar.client.api.Schema;
import org.apache.pulsar.client.api.SubscriptionInitialPosition;
import org.apache.pulsar.client.api.SubscriptionType;
import org.apache.pulsar.client.api.TableView;
import org.apache.pulsar.client.api.schema.SchemaDefinition;
import org.apache.pulsar.client.api.transaction.Transaction;

/** Messages and acknowledgements that count together, or not at all. */
final class Transactions {
    private Transactions() {}

    static void add(Map<String, Driver.Scenario> scenarios) {
        scenarios.put("a transaction commits messages to several topics", Transactions::commits);
        scenarios.put("a transaction that is aborted leaves nothing", Transactions::aborts);
        scenarios.put("consume, transform, produce in transactions", Transactions::transforms);
        scenarios.put("acknowledgements in transactions conflict", Transactions::conflicts);
        scenarios.put("messages of a batch are acknowledged in transactions", Transactions::parts);
        scenarios.put("cumulative acknowledgements in transactions", Transactions::cumulative);
        scenarios.put("a transaction ends when its time is over", Transactions::times);
        scenarios.put("a client that was away is fenced", Transactions::returns);
        scenarios.put("a transaction survives an unload", Transactions::unloads);
        scenarios.put("chunked messages in transactions", Transactions::chunks);
        scenarios.put("readers and table views see what is committed", Transactions::readers);
        scenarios.put("encrypted messages in transactions", Transactions::encrypted);
        scenarios.put("a schema that changes within a transaction", Transactions::evolves);
        scenarios.put("acknowledgements by key in transactions", Transactions::keys);
        scenarios.put("many transactions at once", Transactions::many);
    }

    private static PulsarClient client(World world) throws Exception {
        return PulsarClient.builder().serviceUrl(world.brokerUrl).enableTransaction(true)
                .operationTimeout(World.DEADLINE_S, TimeUnit.SECONDS).build();
    }

    private static Transaction begin(PulsarClient client, int seconds) throws Exception {
        return client.newTransaction().withTransactionTimeout(seconds, TimeUnit.SECONDS).build().get();
    }

    private static Producer<String> producer(PulsarClient client, String topic, boolean batches) throws Exception {
        // Only producers whose sends never time out take part in transactions.
        return client.newProducer(Schema.STRING).topic(topic).sendTimeout(0, TimeUnit.SECONDS)
                .enableBatching(batches).create();
    }

    private static Consumer<String> consumer(PulsarClient client, String topic, SubscriptionType type)
            throws Exception {
        return client.newConsumer(Schema.STRING).topic(topic).subscriptionName("s").subscriptionType(type)
                .enableBatchIndexAcknowledgment(true)
                .subscriptionInitialPosition(SubscriptionInitialPosition.Earliest).subscribe();
    }

    private static void send(Producer<String> producer, Transaction txn, int first, int end) throws Exception {
        List<java.util.concurrent.CompletableFuture<MessageId>> sent = new ArrayList<>();
        for (int i = first; i < end; i++) {
            sent.add((txn == null ? producer.newMessage() : producer.newMessage(txn)).value("m" + i).sendAsync());
        }
        for (java.util.concurrent.CompletableFuture<MessageId> each : sent) {
            each.get(World.DEADLINE_S, TimeUnit.SECONDS);
        }
    }

    private static void commits(World world) throws Exception {
        for (boolean batches : new boolean[] {true, false}) {
            String one = world.topic();
            String two = world.topic();
            try (PulsarClient client = client(world);
                    Producer<String> first = producer(client, one, batches);
                    Producer<String> second = producer(client, two, batches);
                    Consumer<String> left = consumer(client, one, SubscriptionType.Exclusive);
                    Consumer<String> right = consumer(client, two, SubscriptionType.Shared)) {
                Transaction txn = begin(client, 60);
                send(first, txn, 0, 10);
                send(second, txn, 10, 20);
                World.nothingMore(left);
                World.nothingMore(right);
                txn.commit().get(World.DEADLINE_S, TimeUnit.SECONDS);
                World.same(World.numbered(0, 10), World.take(left, 10));
                World.same(World.numbered(10, 20), World.take(right, 10));
            }
        }
    }

    private static void aborts(World world) throws Exception {
        String topic = world.topic();
        try (PulsarClient client = client(world);
                Producer<String> producer = producer(client, topic, false);
                Consumer<String> consumer = consumer(client, topic, SubscriptionType.Shared)) {
            Transaction txn = begin(client, 60);
            send(producer, txn, 0, 5);
            send(producer, null, 5, 6);
            World.nothingMore(consumer);
            txn.abort().get(World.DEADLINE_S, TimeUnit.SECONDS);
            World.same(World.numbered(5, 6), World.take(consumer, 1));
            World.nothingMore(consumer);
            Transaction other = begin(client, 60);
            send(producer, other, 6, 8);
            other.commit().get(World.DEADLINE_S, TimeUnit.SECONDS);
            World.same(World.numbered(6, 8), World.take(consumer, 2));
        }
    }

    private static void transforms(World world) throws Exception {
        String in = world.topic();
        String out = world.topic();
        world.send(in, 0, 20);
        try (PulsarClient client = client(world);
                Producer<String> producer = producer(client, out, true);
                Consumer<String> source = consumer(client, in, SubscriptionType.Shared);
                Consumer<String> sink = consumer(client, out, SubscriptionType.Exclusive)) {
            int done = 0;
            for (int round = 0; done < 20; round++) {
                Transaction txn = begin(client, 60);
                for (int i = 0; i < 5; i++) {
                    Message<String> message = World.next(source);
                    producer.newMessage(txn).value(message.getValue()).send();
                    source.acknowledgeAsync(message.getMessageId(), txn).get(World.DEADLINE_S, TimeUnit.SECONDS);
                }
                if (round % 2 == 0) {
                    txn.abort().get(World.DEADLINE_S, TimeUnit.SECONDS);
                } else {
                    txn.commit().get(World.DEADLINE_S, TimeUnit.SECONDS);
                    done += 5;
                }
            }
            World.nothingMore(source);
            World.same(new TreeSet<>(World.numbered(0, 20)), new TreeSet<>(World.take(sink, 20)));
            World.nothingMore(sink);
        }
    }

    private static void conflicts(World world) throws Exception {
        String topic = world.topic();
        world.send(topic, 0, 1);
        try (PulsarClient client = client(world);
                Consumer<String> consumer = consumer(client, topic, SubscriptionType.Shared)) {
            Message<String> message = World.next(consumer);
            Transaction one = begin(client, 60);
            Transaction two = begin(client, 60);
            consumer.acknowledgeAsync(message.getMessageId(), one).get(World.DEADLINE_S, TimeUnit.SECONDS);
            try {
                consumer.acknowledgeAsync(message.getMessageId(), two).get(World.DEADLINE_S, TimeUnit.SECONDS);
                World.check(false, "a conflict");
            } catch (ExecutionException error) {
                World.check(error.getCause() instanceof PulsarClientException.TransactionConflictException,
                        "a conflict, not " + error.getCause());
            }
            one.commit().get(World.DEADLINE_S, TimeUnit.SECONDS);
            two.abort().get(World.DEADLINE_S, TimeUnit.SECONDS);
            World.nothingMore(consumer);
        }
    }

    private static void parts(World world) throws Exception {
        String topic = world.topic();
        try (PulsarClient client = client(world);
                Producer<String> producer = client.newProducer(Schema.STRING).topic(topic).enableBatching(true)
                        .batchingMaxPublishDelay(10, TimeUnit.SECONDS).batchingMaxMessages(6).create();
                Consumer<String> consumer = consumer(client, topic, SubscriptionType.Shared)) {
            List<java.util.concurrent.CompletableFuture<MessageId>> sent = new ArrayList<>();
            for (int i = 0; i < 6; i++) {
                sent.add(producer.sendAsync("m" + i));
            }
            for (java.util.concurrent.CompletableFuture<MessageId> each : sent) {
                each.get(World.DEADLINE_S, TimeUnit.SECONDS);
            }
            List<MessageId> ids = new ArrayList<>();
            for (int i = 0; i < 6; i++) {
                ids.add(World.next(consumer).getMessageId());
            }
            Transaction one = begin(client, 60);
            Transaction two = begin(client, 60);
            for (int i = 0; i < 3; i++) {
                consumer.acknowledgeAsync(ids.get(i), one).get(World.DEADLINE_S, TimeUnit.SECONDS);
                consumer.acknowledgeAsync(ids.get(3 + i), two).get(World.DEADLINE_S, TimeUnit.SECONDS);
            }
            one.commit().get(World.DEADLINE_S, TimeUnit.SECONDS);
            two.abort().get(World.DEADLINE_S, TimeUnit.SECONDS);
            World.same(World.numbered(3, 6), World.take(consumer, 3));
            World.nothingMore(consumer);
        }
    }

    private static void cumulative(World world) throws Exception {
        String topic = world.topic();
        world.send(topic, 0, 10);
        try (PulsarClient client = client(world)) {
            try (Consumer<String> consumer = consumer(client, topic, SubscriptionType.Exclusive)) {
                Message<String> last = null;
                for (int i = 0; i < 5; i++) {
                    last = World.next(consumer);
                }
                Transaction txn = begin(client, 60);
                consumer.acknowledgeCumulativeAsync(last.getMessageId(), txn).get(World.DEADLINE_S, TimeUnit.SECONDS);
                txn.abort().get(World.DEADLINE_S, TimeUnit.SECONDS);
                Transaction other = begin(client, 60);
                consumer.acknowledgeCumulativeAsync(last.getMessageId(), other)
                        .get(World.DEADLINE_S, TimeUnit.SECONDS);
                other.commit().get(World.DEADLINE_S, TimeUnit.SECONDS);
            }
            try (Consumer<String> consumer = consumer(client, topic, SubscriptionType.Exclusive)) {
                World.same(World.numbered(5, 10), World.take(consumer, 5));
            }
        }
    }

    private static void times(World world) throws Exception {
        String topic = world.topic();
        try (PulsarClient client = client(world);
                Producer<String> producer = producer(client, topic, false);
                Consumer<String> consumer = consumer(client, topic, SubscriptionType.Exclusive)) {
            Transaction txn = begin(client, 1);
            send(producer, txn, 0, 1);
            send(producer, null, 1, 2);
            World.same(World.numbered(1, 2), World.take(consumer, 1));
            try {
                txn.commit().get(World.DEADLINE_S, TimeUnit.SECONDS);
                World.check(false, "an error");
            } catch (ExecutionException error) {
                World.nothingMore(consumer);
            }
        }
    }

    private static void returns(World world) throws Exception {
        String topic = world.topic();
        try (PulsarClient client = client(world);
                PulsarClient other = client(world);
                Consumer<String> consumer = consumer(client, topic, SubscriptionType.Exclusive)) {
            Producer<String> old = fencing(client, topic);
            Transaction stale = begin(client, 1);
            send(old, stale, 0, 2);
            try (Producer<String> fresh = fencing(other, topic)) {
                send(fresh, null, 2, 3);
                // It comes when the time of the other transaction is over.
                World.same(World.numbered(2, 3), World.take(consumer, 1));
                Transaction txn = begin(other, 60);
                send(fresh, txn, 3, 5);
                World.check(fails(() -> send(old, stale, 5, 6)), "a late message is refused");
                World.check(fails(() -> stale.commit().get(World.DEADLINE_S, TimeUnit.SECONDS)), "a late commit is");
                txn.commit().get(World.DEADLINE_S, TimeUnit.SECONDS);
                World.same(World.numbered(3, 5), World.take(consumer, 2));
                World.nothingMore(consumer);
            }
        }
    }

    private static Producer<String> fencing(PulsarClient client, String topic) throws Exception {
        return client.newProducer(Schema.STRING).topic(topic).sendTimeout(0, TimeUnit.SECONDS)
                .accessMode(ProducerAccessMode.ExclusiveWithFencing).create();
    }

    /** What may fail. */
    private interface Act {
        void run() throws Exception;
    }

    private static boolean fails(Act act) {
        try {
            act.run();
            return false;
        } catch (Exception error) {
            return true;
        }
    }

    private static void unloads(World world) throws Exception {
        String topic = world.topic();
        try (PulsarClient client = client(world);
                Producer<String> producer = producer(client, topic, false);
                Consumer<String> consumer = consumer(client, topic, SubscriptionType.Shared)) {
            send(producer, null, 0, 1);
            Message<String> message = World.next(consumer);
            Transaction txn = begin(client, 60);
            consumer.acknowledgeAsync(message.getMessageId(), txn).get(World.DEADLINE_S, TimeUnit.SECONDS);
            send(producer, txn, 1, 3);
            world.admin("PUT", World.path(topic) + "/unload", "");
            send(producer, txn, 3, 5);
            World.nothingMore(consumer);
            txn.commit().get(World.DEADLINE_S, TimeUnit.SECONDS);
            World.same(World.numbered(1, 5), World.take(consumer, 4));
            World.nothingMore(consumer);
        }
    }

    private static void chunks(World world) throws Exception {
        String topic = world.topic();
        StringBuilder large = new StringBuilder();
        for (int i = 0; i < 1_200_000; i++) {
            large.append("0123456789");
        }
        try (PulsarClient client = client(world);
                Producer<String> producer = client.newProducer(Schema.STRING).topic(topic)
                        .sendTimeout(0, TimeUnit.SECONDS).enableBatching(false).enableChunking(true).create();
                Consumer<String> consumer = consumer(client, topic, SubscriptionType.Exclusive)) {
            Transaction lost = begin(client, 60);
            producer.newMessage(lost).value("lost" + large).send();
            lost.abort().get(World.DEADLINE_S, TimeUnit.SECONDS);
            Transaction txn = begin(client, 60);
            producer.newMessage(txn).value(large.toString()).send();
            World.nothingMore(consumer);
            txn.commit().get(World.DEADLINE_S, TimeUnit.SECONDS);
            Message<String> message = World.next(consumer);
            World.same(large.length(), message.getValue().length());
            Transaction ack = begin(client, 60);
            consumer.acknowledgeAsync(message.getMessageId(), ack).get(World.DEADLINE_S, TimeUnit.SECONDS);
            ack.commit().get(World.DEADLINE_S, TimeUnit.SECONDS);
            World.nothingMore(consumer);
        }
    }

    private static void readers(World world) throws Exception {
        String topic = world.topic();
        try (PulsarClient client = client(world); Producer<String> producer = producer(client, topic, false)) {
            Transaction lost = begin(client, 60);
            producer.newMessage(lost).key("a").value("lost").send();
            Transaction txn = begin(client, 60);
            producer.newMessage(txn).key("a").value("kept").send();
            txn.commit().get(World.DEADLINE_S, TimeUnit.SECONDS);
            try (Reader<String> reader = client.newReader(Schema.STRING).topic(topic)
                    .startMessageId(MessageId.earliest).create()) {
                World.check(!reader.hasMessageAvailable(), "nothing before the oldest transaction has ended");
                lost.abort().get(World.DEADLINE_S, TimeUnit.SECONDS);
                World.check(reader.hasMessageAvailable(), "the committed message");
                World.same("kept", reader.readNext(World.DEADLINE_S, TimeUnit.SECONDS).getValue());
                World.check(!reader.hasMessageAvailable(), "nothing more");
                Transaction tail = begin(client, 60);
                producer.newMessage(tail).key("a").value("tail").send();
                tail.abort().get(World.DEADLINE_S, TimeUnit.SECONDS);
                World.check(!reader.hasMessageAvailable(), "nothing of an aborted tail");
            }
            try (TableView<String> view = client.newTableView(Schema.STRING).topic(topic).create()) {
                World.same("kept", view.get("a"));
            }
        }
    }

    private static void encrypted(World world) throws Exception {
        CryptoKeyReader keys = Encryption.keys();
        for (boolean batches : new boolean[] {true, false}) {
            String topic = world.topic();
            try (PulsarClient client = client(world);
                    Producer<String> producer = client.newProducer(Schema.STRING).topic(topic)
                            .sendTimeout(0, TimeUnit.SECONDS).enableBatching(batches).cryptoKeyReader(keys)
                            .addEncryptionKey("mine").create();
                    Consumer<String> consumer = client.newConsumer(Schema.STRING).topic(topic).subscriptionName("s")
                            .subscriptionInitialPosition(SubscriptionInitialPosition.Earliest).cryptoKeyReader(keys)
                            .subscribe()) {
                Transaction lost = begin(client, 60);
                send(producer, lost, 0, 3);
                lost.abort().get(World.DEADLINE_S, TimeUnit.SECONDS);
                Transaction txn = begin(client, 60);
                send(producer, txn, 3, 8);
                World.nothingMore(consumer);
                txn.commit().get(World.DEADLINE_S, TimeUnit.SECONDS);
                World.same(World.numbered(3, 8), World.take(consumer, 5));
                World.nothingMore(consumer);
            }
        }
    }

    /** Old and new records in one transaction; the schema stays where a transaction with it is aborted. */
    private static void evolves(World world) throws Exception {
        String topic = world.topic();
        Schema<Schemas.Flight> old = Schema.AVRO(Schemas.Flight.class);
        Schema<Schemas.Later> later = Schema.AVRO(SchemaDefinition.<Schemas.Later>builder()
                .withPojo(Schemas.Later.class).withAlwaysAllowNull(true).build());
        try (PulsarClient client = client(world);
                Producer<Schemas.Flight> first = client.newProducer(old).topic(topic)
                        .sendTimeout(0, TimeUnit.SECONDS).create();
                Consumer<Schemas.Flight> reader = client.newConsumer(old).topic(topic).subscriptionName("s")
                        .subscriptionInitialPosition(SubscriptionInitialPosition.Earliest).subscribe()) {
            for (boolean commit : new boolean[] {false, true}) {
                Transaction txn = begin(client, 60);
                first.newMessage(txn).value(Schemas.Flight.of("AA", 1)).send();
                try (Producer<Schemas.Later> second = client.newProducer(later).topic(topic)
                        .sendTimeout(0, TimeUnit.SECONDS).create()) {
                    Schemas.Later value = new Schemas.Later();
                    value.carrier = "BA";
                    value.number = 2;
                    value.gate = "G7";
                    second.newMessage(txn).value(value).send();
                }
                World.nothingMore(reader);
                (commit ? txn.commit() : txn.abort()).get(World.DEADLINE_S, TimeUnit.SECONDS);
            }
            World.same(List.of(Schemas.Flight.of("AA", 1), Schemas.Flight.of("BA", 2)), World.take(reader, 2));
            World.nothingMore(reader);
        }
    }

    /** Key_Shared: what an aborted transaction acknowledged comes again to the consumer of its key, in order. */
    private static void keys(World world) throws Exception {
        String topic = world.topic();
        try (PulsarClient client = client(world);
                Producer<String> producer = producer(client, topic, false);
                Consumer<String> left = consumer(client, topic, SubscriptionType.Key_Shared);
                Consumer<String> right = consumer(client, topic, SubscriptionType.Key_Shared)) {
            Transaction sent = begin(client, 60);
            for (int i = 0; i < 20; i++) {
                producer.newMessage(sent).key("k" + i % 10).value("m" + i).send();
            }
            sent.commit().get(World.DEADLINE_S, TimeUnit.SECONDS);
            List<List<String>> before = List.of();
            for (int round = 0; round < 2; round++) {
                Transaction txn = begin(client, 60);
                List<List<String>> found = List.of(new ArrayList<>(), new ArrayList<>());
                long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(World.DEADLINE_S);
                while (found.get(0).size() + found.get(1).size() < 20) {
                    World.check(System.nanoTime() < end, "20 messages, not " + found);
                    for (int i = 0; i < 2; i++) {
                        Consumer<String> each = i == 0 ? left : right;
                        Message<String> message = each.receive(100, TimeUnit.MILLISECONDS);
                        if (message != null) {
                            found.get(i).add(message.getKey() + message.getValue());
                            each.acknowledgeAsync(message.getMessageId(), txn)
                                    .get(World.DEADLINE_S, TimeUnit.SECONDS);
                        }
                    }
                }
                if (round == 0) {
                    before = found;
                    txn.abort().get(World.DEADLINE_S, TimeUnit.SECONDS);
                } else {
                    World.same(before, found);
                    txn.commit().get(World.DEADLINE_S, TimeUnit.SECONDS);
                }
            }
            World.nothingMore(left);
            World.nothingMore(right);
        }
    }

    private static void many(World world) throws Exception {
        String topic = world.topic();
        try (PulsarClient client = client(world);
                Producer<String> producer = producer(client, topic, true);
                Consumer<String> consumer = consumer(client, topic, SubscriptionType.Exclusive)) {
            List<Transaction> open = new ArrayList<>();
            for (int i = 0; i < 100; i++) {
                Transaction txn = begin(client, 60);
                send(producer, txn, i, i + 1);
                open.add(txn);
            }
            for (int i = 99; i >= 0; i--) {
                if (i % 2 == 0) {
                    open.get(i).commit().get(World.DEADLINE_S, TimeUnit.SECONDS);
                } else {
                    open.get(i).abort().get(World.DEADLINE_S, TimeUnit.SECONDS);
                }
            }
            for (int i = 0; i < 100; i += 2) {
                World.same(List.of("m" + i), World.take(consumer, 1));
            }
            World.nothingMore(consumer);
        }
    }
}
