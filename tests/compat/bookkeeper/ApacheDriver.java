import java.io.BufferedReader;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.File;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.net.InetSocketAddress;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.Base64;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.bookkeeper.bookie.BookieShell;
import org.apache.bookkeeper.common.component.LifecycleComponent;
import org.apache.bookkeeper.conf.ServerConfiguration;
import org.apache.bookkeeper.replication.AutoRecoveryMain;
import org.apache.bookkeeper.server.Main;
import org.apache.bookkeeper.server.conf.BookieConfiguration;
import org.apache.bookkeeper.util.EntryFormatter;
import org.apache.bookkeeper.util.LedgerIdFormatter;
import org.apache.bookkeeper.util.LocalBookKeeper;
import org.apache.commons.configuration2.CompositeConfiguration;
import org.apache.zookeeper.server.ServerCnxnFactory;
import org.apache.zookeeper.server.ZooKeeperServer;

/**
 * ZooKeeper, bookies and the shell of Apache BookKeeper in one Java process, whose start would cost more than what
 * is done with them. A line of the input is one command, its words separated by tabs:
 *
 * <pre>
 * zookeeper FOLDER            starts a server; prints its port
 * bookie NAME CONFIGURATION   starts a bookie
 * stop NAME                   stops it
 * recovery NAME CONFIGURATION starts a node of auto-recovery
 * stop-recovery NAME          stops it
 * local COUNT ZOOKEEPER FOLDER CONFIGURATION  starts what `localbookie COUNT` does, over a ZooKeeper (HOST:PORT)
 * local-add                   one bookie more there
 * local-remove                the last one goes
 * local-stop                  all of them go
 * shell CONFIGURATION WORDS   runs a command of the shell
 * </pre>
 *
 * A line of the output is the exit code, and what was printed, in base64.
 */
public final class ApacheDriver {
    private static final long COMMAND_MS_MAX = 120_000;
    private final Map<String, LifecycleComponent> bookies = new HashMap<>();
    private final Map<String, AutoRecoveryMain> recoveries = new HashMap<>();
    private LocalBookKeeper local;

    public static void main(String[] arguments) throws Exception {
        PrintStream answers = System.out;
        ApacheDriver driver = new ApacheDriver();
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        System.setIn(new ByteArrayInputStream(new byte[0])); // Nobody answers questions.
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            ByteArrayOutputStream out = new ByteArrayOutputStream();
            PrintStream printed = new PrintStream(out, true, StandardCharsets.UTF_8);
            System.setOut(printed);
            String[] words = line.split("\t", -1);
            AtomicInteger code = new AtomicInteger(-1);
            Thread thread = new Thread(() -> {
                try {
                    code.set(driver.run(words, printed));
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

    private int run(String[] words, PrintStream printed) throws Exception {
        switch (words[0]) {
            case "zookeeper":
                ServerCnxnFactory connections =
                        ServerCnxnFactory.createFactory(new InetSocketAddress("127.0.0.1", 0), 1000);
                connections.startup(new ZooKeeperServer(new File(words[1]), new File(words[1]), 500));
                printed.println(connections.getLocalPort());
                return 0;
            case "bookie":
                BookieConfiguration configuration = new BookieConfiguration(configuration(words[2]));
                LifecycleComponent bookie = Main.buildBookieServer(configuration);
                bookie.start();
                bookies.put(words[1], bookie);
                return 0;
            case "stop":
                bookies.remove(words[1]).close();
                return 0;
            case "recovery":
                AutoRecoveryMain recovery = new AutoRecoveryMain(configuration(words[2]));
                recovery.start();
                recoveries.put(words[1], recovery);
                return 0;
            case "stop-recovery":
                recoveries.remove(words[1]).shutdown();
                return 0;
            case "local":
                String[] zooKeeper = words[2].split(":");
                local = new LocalBookKeeper(
                        Integer.parseInt(words[1]),
                        configuration(words[4]),
                        words[3],
                        true,
                        "local",
                        zooKeeper[0],
                        Integer.parseInt(zooKeeper[1]));
                local.start();
                return 0;
            case "local-add":
                local.addBookie();
                return 0;
            case "local-remove":
                local.removeBookie();
                return 0;
            case "local-stop":
                local.shutdownBookies();
                return 0;
            case "shell":
                BookieShell shell = new BookieShell(
                        LedgerIdFormatter.LONG_LEDGERID_FORMATTER, EntryFormatter.STRING_FORMATTER);
                CompositeConfiguration composite = new CompositeConfiguration();
                composite.addConfiguration(configuration(words[1]));
                shell.setConf(composite);
                return shell.run(Arrays.copyOfRange(words, 2, words.length));
            default:
                throw new IllegalArgumentException(words[0]);
        }
    }

    private static ServerConfiguration configuration(String file) throws Exception {
        ServerConfiguration configuration = new ServerConfiguration();
        configuration.loadConf(new File(file).toURI().toURL());
        return configuration;
    }
}
