import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.Base64;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.pulsar.PulsarClusterMetadataSetup;
import org.apache.pulsar.broker.PulsarService;
import org.apache.pulsar.broker.ServiceConfiguration;
import org.apache.pulsar.common.configuration.PulsarConfigurationLoader;

/**
 * A broker of Apache Pulsar in a Java process that stays when the broker stops, because its start costs more than what
 * is done with it. A line of the input is one command, its words separated by tabs:
 *
 * <pre>
 * setup ARGUMENTS      makes the metadata of a cluster, as `pulsar initialize-cluster-metadata` does
 * start CONFIGURATION  starts the broker; prints nothing
 * stop                 stops it, as SIGTERM does
 * </pre>
 *
 * A line of the output is the exit code, and what was printed, in base64.
 */
public final class PulsarDriver {
    private static final long COMMAND_MS_MAX = 120_000;
    private PulsarService broker;

    public static void main(String[] arguments) throws Exception {
        PrintStream answers = System.out;
        System.setOut(System.err);
        PulsarDriver driver = new PulsarDriver();
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            ByteArrayOutputStream out = new ByteArrayOutputStream();
            PrintStream printed = new PrintStream(out, true, StandardCharsets.UTF_8);
            String[] words = line.split("\t", -1);
            AtomicInteger code = new AtomicInteger(-1);
            Thread thread = new Thread(() -> {
                try {
                    driver.run(words);
                    code.set(0);
                } catch (Throwable failure) {
                    failure.printStackTrace(printed);
                    code.set(1);
                }
            });
            thread.setDaemon(true);
            thread.start();
            thread.join(COMMAND_MS_MAX);
            answers.println(code.get() + " " + Base64.getEncoder().encodeToString(out.toByteArray()));
            answers.flush();
        }
        Runtime.getRuntime().halt(0);
    }

    private void run(String[] words) throws Exception {
        switch (words[0]) {
            case "setup":
                PulsarClusterMetadataSetup.main(Arrays.copyOfRange(words, 1, words.length));
                break;
            case "start":
                ServiceConfiguration configuration =
                        PulsarConfigurationLoader.create(words[1], ServiceConfiguration.class);
                broker = new PulsarService(configuration);
                broker.start();
                break;
            case "stop":
                broker.close();
                broker = null;
                break;
            default:
                throw new IllegalArgumentException(words[0]);
        }
    }
}
