import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.api.PulsarClient;
import org.apache.pulsar.client.api.transaction.Transaction;
import org.apache.pulsar.client.api.transaction.TxnID;

/**
 * Transactions of the official Java client, one kind of load each:
 *
 *   latency URL WARM_UP_S SECONDS             one after the other, one message each
 *   rate URL WARM_UP_S SECONDS LANES BATCHED  LANES at once, ten messages each
 *   turns URL LANES BATCHED                   the same for as many seconds as each line of the input says
 *   open URL COUNT TOPICS                     sends a message to each topic, begins COUNT transactions with a
 *                                             message each, and leaves them open
 *
 * What it says: BEGIN and END around what is measured, so that the caller reads its meters, then NAME VALUE.
 * In turns: BEGIN when it waits for a line, and END behind what it says of a turn.
 */
final class TransactionLoad {
    private static final int MESSAGES = 10;
    private static final int TOPICS = 8;
    private static final byte[] PAYLOAD = new byte[100];

    private TransactionLoad() {}

    public static void main(String[] words) throws Exception {
        // The time of opening all coordinators is not measured.
        try (PulsarClient client = PulsarClient.builder().serviceUrl(words[1]).enableTransaction(true).build()) {
            switch (words[0]) {
                case "latency" -> latency(client, seconds(words[2]), seconds(words[3]));
                case "rate" -> new Rate(client, Integer.parseInt(words[4]), Boolean.parseBoolean(words[5]))
                        .run(seconds(words[2]), seconds(words[3]));
                case "turns" -> new Rate(client, Integer.parseInt(words[2]), Boolean.parseBoolean(words[3])).turns();
                case "open" -> open(client, Integer.parseInt(words[2]), Integer.parseInt(words[3]));
                default -> throw new IllegalArgumentException(words[0]);
            }
        }
    }

    private static long seconds(String text) {
        return (long) (Double.parseDouble(text) * 1e9);
    }

    private static void say(String line) {
        System.out.println(line);
        System.out.flush();
    }

    private static Producer<byte[]> producer(PulsarClient client, String topic, boolean batched) throws Exception {
        return client.newProducer().topic(topic).sendTimeout(0, TimeUnit.SECONDS).enableBatching(batched).create();
    }

    private static CompletableFuture<Transaction> begin(PulsarClient client, int minutes) {
        return client.newTransaction().withTransactionTimeout(minutes, TimeUnit.MINUTES).build();
    }

    private static void percentiles(String name, List<Long> taken) {
        long[] sorted = taken.stream().mapToLong(Long::longValue).sorted().toArray();
        for (double share : new double[] {0.5, 0.99, 0.999}) {
            long found = sorted[(int) Math.min(sorted.length - 1, Math.floor(share * sorted.length))];
            say(name + "_p" + (share * 100 + "").replaceAll("\\.0$", "") + "_ms " + found / 1e6);
        }
    }

    private static void latency(PulsarClient client, long warmUp, long measured) throws Exception {
        try (Producer<byte[]> producer = producer(client, "bench-latency", false)) {
            List<Long> commits = new ArrayList<>();
            List<Long> wholes = new ArrayList<>();
            long start = System.nanoTime();
            boolean counts = false;
            while (true) {
                long began = System.nanoTime();
                if (!counts && began - start >= warmUp) {
                    counts = true;
                    say("BEGIN");
                    began = System.nanoTime();
                }
                if (began - start >= warmUp + measured) {
                    break;
                }
                Transaction txn = begin(client, 1).get();
                producer.newMessage(txn).value(PAYLOAD).send();
                long sent = System.nanoTime();
                txn.commit().get();
                long ended = System.nanoTime();
                if (counts) {
                    commits.add(ended - sent);
                    wholes.add(ended - began);
                }
            }
            say("END");
            say("transactions " + commits.size());
            percentiles("commit", commits);
            percentiles("transaction", wholes);
        }
    }

    /** Lanes that each begin a transaction when their last one is committed. */
    private static final class Rate {
        private final PulsarClient client;
        private final List<Producer<byte[]>> lanes = new ArrayList<>();
        private final ConcurrentLinkedQueue<Long> taken = new ConcurrentLinkedQueue<>();
        private final AtomicReference<Throwable> failure = new AtomicReference<>();
        private CountDownLatch running;
        private volatile boolean counts;
        private volatile boolean over;

        Rate(PulsarClient client, int lanes, boolean batched) throws Exception {
            this.client = client;
            for (int i = 0; i < lanes; i++) {
                this.lanes.add(producer(client, "bench-rate-" + i % TOPICS, batched));
            }
        }

        void run(long warmUp, long measured) throws Exception {
            start();
            TimeUnit.NANOSECONDS.sleep(warmUp);
            say("BEGIN");
            counts = true;
            TimeUnit.NANOSECONDS.sleep(measured);
            counts = false;
            say("END");
            finish();
        }

        void turns() throws Exception {
            BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
            say("BEGIN");
            for (String line = lines.readLine(); line != null; line = lines.readLine()) {
                taken.clear();
                // All that are begun count, up to the last one's end.
                counts = true;
                start();
                TimeUnit.NANOSECONDS.sleep(seconds(line));
                finish();
                say("END");
            }
        }

        private void start() {
            over = false;
            running = new CountDownLatch(lanes.size());
            lanes.forEach(this::next);
        }

        private void finish() throws Exception {
            over = true;
            running.await();
            if (failure.get() != null) {
                throw new IllegalStateException("a transaction failed", failure.get());
            }
            List<Long> all = new ArrayList<>(taken);
            say("transactions " + all.size());
            percentiles("transaction", all);
        }

        private void next(Producer<byte[]> producer) {
            if (over || failure.get() != null) {
                running.countDown();
                return;
            }
            long began = System.nanoTime();
            begin(client, 1).thenCompose(txn -> {
                List<CompletableFuture<?>> sent = new ArrayList<>();
                for (int i = 0; i < MESSAGES; i++) {
                    sent.add(producer.newMessage(txn).value(PAYLOAD).sendAsync());
                }
                producer.flushAsync();
                return CompletableFuture.allOf(sent.toArray(CompletableFuture[]::new)).thenCompose(all -> txn.commit());
            }).whenComplete((done, error) -> {
                if (error != null) {
                    failure.compareAndSet(null, error);
                } else if (counts) {
                    taken.add(System.nanoTime() - began);
                }
                next(producer);
            });
        }
    }

    private static void open(PulsarClient client, int count, int topics) throws Exception {
        List<Producer<byte[]>> producers = new ArrayList<>();
        for (int i = 0; i < topics; i++) {
            producers.add(producer(client, "bench-open-" + i, false));
            producers.get(i).send(PAYLOAD);
        }
        TxnID[] ids = new TxnID[count];
        for (int first = 0; first < count; first += 500) {
            List<CompletableFuture<?>> done = new ArrayList<>();
            for (int i = first; i < Math.min(count, first + 500); i++) {
                int number = i;
                Producer<byte[]> producer = producers.get(i % topics);
                done.add(begin(client, 60).thenCompose(txn -> {
                    ids[number] = txn.getTxnID();
                    return producer.newMessage(txn).value(PAYLOAD).sendAsync();
                }));
            }
            CompletableFuture.allOf(done.toArray(CompletableFuture[]::new)).get();
        }
        Arrays.stream(ids).forEach(id -> say("open " + id.getMostSigBits() + " " + id.getLeastSigBits()));
        say("DONE");
        // Closing would abort nothing, but takes its time; the broker is killed while it is here.
        System.in.read();
        Runtime.getRuntime().halt(0);
    }
}
