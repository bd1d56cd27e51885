import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.util.ArrayList;
import java.util.List;
import java.util.Objects;
import java.util.UUID;
import java.util.concurrent.TimeUnit;
import java.util.function.BooleanSupplier;
import org.apache.pulsar.client.api.Consumer;
import org.apache.pulsar.client.api.ConsumerBuilder;
import org.apache.pulsar.client.api.Message;
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.api.PulsarClient;
import org.apache.pulsar.client.api.Schema;
import org.apache.pulsar.client.api.SubscriptionInitialPosition;
import org.apache.pulsar.client.api.SubscriptionType;

/** What every scenario needs: a client, topics of its own, the admin API, and words for expectations. */
final class World {
    /** Long: what is slow on a busy machine is no failure; what never comes is one. */
    static final int DEADLINE_S = 60;
    private static final int SILENCE_MS = 300;

    final PulsarClient client;
    final String brokerUrl;
    final String httpUrl;
    private final HttpClient http = HttpClient.newBuilder().followRedirects(HttpClient.Redirect.ALWAYS).build();

    World(String brokerUrl, String httpUrl) throws Exception {
        this.brokerUrl = brokerUrl;
        this.httpUrl = httpUrl;
        client = PulsarClient.builder().serviceUrl(brokerUrl).operationTimeout(DEADLINE_S, TimeUnit.SECONDS).build();
    }

    /** A topic that nobody else uses. */
    String topic() {
        return "persistent://public/default/" + name();
    }

    String name() {
        return "java-" + UUID.randomUUID();
    }

    Producer<String> producer(String topic) throws Exception {
        return client.newProducer(Schema.STRING).topic(topic).create();
    }

    /** Without batches, so that each message is an entry of its own. */
    Producer<String> plainProducer(String topic) throws Exception {
        return client.newProducer(Schema.STRING).topic(topic).enableBatching(false).create();
    }

    ConsumerBuilder<String> consumer(String topic, SubscriptionType type) {
        return client.newConsumer(Schema.STRING).topic(topic).subscriptionName("s").subscriptionType(type)
                .subscriptionInitialPosition(SubscriptionInitialPosition.Earliest);
    }

    /** Sends values named by their numbers, one entry each, in order. */
    void send(String topic, int first, int end) throws Exception {
        try (Producer<String> producer = plainProducer(topic)) {
            for (int i = first; i < end; i++) {
                producer.send("m" + i);
            }
        }
    }

    static List<String> numbered(int first, int end) {
        List<String> made = new ArrayList<>();
        for (int i = first; i < end; i++) {
            made.add("m" + i);
        }
        return made;
    }

    static <T> Message<T> next(Consumer<T> consumer) throws Exception {
        Message<T> message = consumer.receive(DEADLINE_S, TimeUnit.SECONDS);
        check(message != null, "a message within " + DEADLINE_S + " s");
        return message;
    }

    /** The values of the next messages, acknowledged. */
    static <T> List<T> take(Consumer<T> consumer, int count) throws Exception {
        List<T> values = new ArrayList<>();
        for (int i = 0; i < count; i++) {
            Message<T> message = next(consumer);
            values.add(message.getValue());
            consumer.acknowledge(message);
        }
        return values;
    }

    static void nothingMore(Consumer<?> consumer) throws Exception {
        Message<?> message = consumer.receive(SILENCE_MS, TimeUnit.MILLISECONDS);
        check(message == null, "no message, but there was " + (message == null ? "" : message.getMessageId()));
    }

    static void check(boolean holds, String what) {
        if (!holds) {
            throw new AssertionError("expected: " + what);
        }
    }

    static void same(Object expected, Object found) {
        check(Objects.equals(expected, found), expected + ", found: " + found);
    }

    static void until(BooleanSupplier condition, String what) throws Exception {
        long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(DEADLINE_S);
        while (!condition.getAsBoolean()) {
            check(System.nanoTime() < end, what);
            Thread.sleep(10);
        }
    }

    interface Action {
        void run() throws Exception;
    }

    /** The action fails with an error of this class. */
    static void refused(Class<? extends Exception> kind, Action action) throws Exception {
        try {
            action.run();
        } catch (Exception error) {
            check(kind.isInstance(error), kind.getSimpleName() + ", found: " + error);
            return;
        }
        check(false, kind.getSimpleName());
    }

    /** One call of the admin API; the body of its answer. */
    String admin(String method, String path, String body) throws Exception {
        HttpRequest request = HttpRequest.newBuilder(URI.create(httpUrl + "/admin/v2/" + path))
                .header("Content-Type", "application/json")
                .method(method, HttpRequest.BodyPublishers.ofString(body))
                .build();
        HttpResponse<String> answer = http.send(request, HttpResponse.BodyHandlers.ofString());
        check(answer.statusCode() / 100 == 2, method + " " + path + " succeeds: " + answer.statusCode() + answer.body());
        return answer.body();
    }

    /** A topic's path in the admin API. */
    static String path(String topic) {
        return topic.replace("://", "/");
    }

    String partitionedTopic(int partitions) throws Exception {
        String topic = topic();
        admin("PUT", path(topic) + "/partitions", String.valueOf(partitions));
        return topic;
    }
}
