import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.concurrent.TimeUnit;
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.api.PulsarClient;

/**
 * A producer of the official Java client for bench/failover.py: each line of standard input is a number, which is
 * published; the number comes back on standard output with its acknowledgement.
 *
 * <p>Arguments: the service URL, and the topic.
 */
public final class Sender {
    private Sender() {}

    public static void main(String[] arguments) throws Exception {
        try (PulsarClient client = PulsarClient.builder()
                        .serviceUrl(arguments[0])
                        .operationTimeout(60, TimeUnit.SECONDS)
                        .build();
                Producer<byte[]> producer = client.newProducer()
                        .topic(arguments[1])
                        .sendTimeout(0, TimeUnit.SECONDS)
                        .enableBatching(false)
                        .create();
                BufferedReader lines =
                        new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8))) {
            System.out.println("ready");
            for (String line = lines.readLine(); line != null; line = lines.readLine()) {
                producer.send(line.getBytes(StandardCharsets.UTF_8));
                System.out.println(line);
            }
        }
    }
}
