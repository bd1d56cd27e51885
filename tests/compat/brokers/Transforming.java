import java.util.concurrent.TimeUnit;
import org.apache.pulsar.client.api.Consumer;
import org.apache.pulsar.client.api.Message;
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.api.PulsarClient;
import org.apache.pulsar.client.api.Schema;
import org.apache.pulsar.client.api.SubscriptionInitialPosition;
import org.apache.pulsar.client.api.SubscriptionType;
import org.apache.pulsar.client.api.transaction.Transaction;

/**
 * Takes each message of one topic and sends it to two others, in a transaction with its acknowledgement, until no
 * more comes. Every fifth transaction is aborted. What fails comes again when the transaction's time is over.
 *
 * Arguments: service URL, the topic that is read, two that are written. Writes "committed VALUE" for each commit that
 * was answered, and "idle" at the end.
 */
final class Transforming {
    private static final int TTL_S = 8;
    private static final int IDLE_S = 25;

    private Transforming() {}

    public static void main(String[] arguments) throws Exception {
        try (PulsarClient client = PulsarClient.builder().serviceUrl(arguments[0]).enableTransaction(true)
                        .operationTimeout(30, TimeUnit.SECONDS).build();
                Consumer<String> in = client.newConsumer(Schema.STRING).topic(arguments[1]).subscriptionName("work")
                        .subscriptionType(SubscriptionType.Shared).receiverQueueSize(20)
                        .subscriptionInitialPosition(SubscriptionInitialPosition.Earliest).subscribe();
                Producer<String> left = producer(client, arguments[2]);
                Producer<String> right = producer(client, arguments[3])) {
            int number = 0;
            Message<String> message;
            while ((message = in.receive(IDLE_S, TimeUnit.SECONDS)) != null) {
                number++;
                Transaction txn = null;
                try {
                    txn = client.newTransaction().withTransactionTimeout(TTL_S, TimeUnit.SECONDS).build()
                            .get(30, TimeUnit.SECONDS);
                    left.newMessage(txn).value(message.getValue()).sendAsync().get(30, TimeUnit.SECONDS);
                    right.newMessage(txn).value(message.getValue()).sendAsync().get(30, TimeUnit.SECONDS);
                    in.acknowledgeAsync(message.getMessageId(), txn).get(30, TimeUnit.SECONDS);
                    if (number % 5 == 0) {
                        txn.abort().get(30, TimeUnit.SECONDS);
                    } else {
                        txn.commit().get(30, TimeUnit.SECONDS);
                        System.out.println("committed " + message.getValue());
                    }
                } catch (Exception error) {
                    System.out.println("failed " + message.getValue() + " " + error);
                    if (txn == null) {
                        in.negativeAcknowledge(message);
                    } else {
                        // Whether it has ended is not known here; a message that it did not acknowledge comes again.
                        txn.abort().exceptionally(ignored -> null).get(30, TimeUnit.SECONDS);
                        in.negativeAcknowledge(message);
                    }
                }
            }
            System.out.println("idle");
        }
    }

    private static Producer<String> producer(PulsarClient client, String topic) throws Exception {
        // Only producers whose sends never time out take part in transactions.
        return client.newProducer(Schema.STRING).topic(topic).sendTimeout(0, TimeUnit.SECONDS).enableBatching(false)
                .create();
    }
}
