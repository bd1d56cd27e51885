import java.util.Arrays;
import java.util.HashMap;
import java.util.Map;
import java.util.Random;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.locks.LockSupport;
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.api.PulsarClient;

/**
 * A load of the official Java client, for bench/clients; what it prints and counts is what go/main.go does.
 *
 * <p>Arguments: --url --topic --mode paced|flood --rate --payload-bytes --batching --pending --warm-up --seconds.
 */
public final class Load {
    private static long beginNs;
    private static long endNs;
    private static final AtomicLong acknowledged = new AtomicLong();
    private static final AtomicLong failed = new AtomicLong();
    private static final AtomicLong unanswered = new AtomicLong();

    /** Times in nanoseconds, kept one by one: at most some millions. */
    private static final class Times {
        private long[] values = new long[1 << 16];
        private int count;

        synchronized void add(long ns) {
            if (count == values.length) {
                values = Arrays.copyOf(values, 2 * count);
            }
            values[count++] = ns;
        }

        synchronized void print(String prefix, StringBuilder out) {
            if (count == 0) {
                return;
            }
            long[] sorted = Arrays.copyOf(values, count);
            Arrays.sort(sorted);
            double[] percents = {50, 99, 99.9, 99.99, 100};
            String[] names = {"p50", "p99", "p99.9", "p99.99", "max"};
            for (int i = 0; i < names.length; i++) {
                int at = Math.max(0, (int) Math.ceil(percents[i] / 100 * count) - 1);
                out.append(String.format(", \"%s%s_ms\": %f", prefix, names[i], sorted[at] / 1e6));
            }
        }
    }

    private static final Times sent = new Times();
    private static final Times late = new Times();

    private static boolean measured(long ns) {
        return ns >= beginNs && ns < endNs;
    }

    private static void send(Producer<byte[]> producer, byte[] content, long due, Semaphore window)
            throws InterruptedException {
        window.acquire();
        unanswered.incrementAndGet();
        producer.sendAsync(content).whenComplete((id, error) -> {
            long at = System.nanoTime();
            window.release();
            unanswered.decrementAndGet();
            if (error != null) {
                failed.incrementAndGet();
                return;
            }
            if (measured(due)) {
                sent.add(at - due);
            }
            if (measured(at)) {
                acknowledged.incrementAndGet();
            }
        });
    }

    private static void run(Producer<byte[]> producer, String mode, long rate, byte[] content, long start, int pending)
            throws InterruptedException {
        Semaphore window = new Semaphore(pending);
        if (mode.equals("flood")) {
            for (long at = System.nanoTime(); at < endNs; at = System.nanoTime()) {
                send(producer, content, at, window);
            }
            return;
        }
        for (long i = 0; ; i++) {
            long due = start + i * 1_000_000_000L / rate;
            if (due >= endNs) {
                return;
            }
            for (long at = System.nanoTime(); at < due; at = System.nanoTime()) {
                LockSupport.parkNanos(due - at);
            }
            if (measured(due)) {
                late.add(System.nanoTime() - due);
            }
            send(producer, content, due, window);
        }
    }

    public static void main(String[] arguments) throws Exception {
        Map<String, String> given = new HashMap<>();
        for (int i = 0; i < arguments.length; i++) {
            boolean alone = i + 1 == arguments.length || arguments[i + 1].startsWith("--");
            given.put(arguments[i].substring(2), alone ? "true" : arguments[++i]);
        }
        byte[] content = new byte[Integer.parseInt(given.getOrDefault("payload-bytes", "1024"))];
        new Random(1).nextBytes(content);
        int pending = Integer.parseInt(given.getOrDefault("pending", "1000"));
        try (PulsarClient client = PulsarClient.builder().serviceUrl(given.get("url")).build();
                Producer<byte[]> producer = client.newProducer()
                        .topic(given.get("topic") + "-0")
                        .enableBatching(given.containsKey("batching"))
                        .batchingMaxPublishDelay(1, TimeUnit.MILLISECONDS)
                        .batchingMaxMessages(1000)
                        .maxPendingMessages(pending)
                        .sendTimeout(0, TimeUnit.SECONDS)
                        .create()) {
            long start = System.nanoTime() + 50_000_000L;
            beginNs = start + (long) (Double.parseDouble(given.getOrDefault("warm-up", "3")) * 1e9);
            endNs = beginNs + (long) (Double.parseDouble(given.getOrDefault("seconds", "10")) * 1e9);
            long rate = Long.parseLong(given.getOrDefault("rate", "1000"));
            String mode = given.getOrDefault("mode", "paced");
            Thread sender = new Thread(() -> {
                try {
                    run(producer, mode, rate, content, start, pending);
                } catch (InterruptedException error) {
                    Thread.currentThread().interrupt();
                }
            });
            sender.start();
            TimeUnit.NANOSECONDS.sleep(beginNs - System.nanoTime());
            System.out.println("begin");
            TimeUnit.NANOSECONDS.sleep(endNs - System.nanoTime());
            System.out.println("end");
            long messages = acknowledged.get();
            sender.join();
            producer.flush();
            StringBuilder out = new StringBuilder(String.format(
                    "{\"messages\": %d, \"failed\": %d, \"unanswered\": %d", messages, failed.get(), unanswered.get()));
            sent.print("", out);
            late.print("late_", out);
            System.out.println(out.append('}'));
        }
    }
}
