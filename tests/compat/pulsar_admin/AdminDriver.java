import java.io.BufferedReader;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.io.PrintWriter;
import java.nio.charset.StandardCharsets;
import java.util.Base64;
import java.util.Map;
import java.util.Properties;
import java.util.TreeMap;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.pulsar.admin.cli.PulsarAdminTool;
import org.apache.pulsar.client.admin.PulsarAdminException;
import picocli.CommandLine;

/**
 * Runs commands of pulsar-admin in one Java process, whose start
 * would cost more than all of them. A line of the input is one command, its arguments separated by tabs. A line of
 * the output is its exit code and what it printed and complained of, in base64. The command "names" prints the names
 * of all commands there are.
 */
public final class AdminDriver extends PulsarAdminTool {
    private static final long COMMAND_MS_MAX = 30_000;

    private AdminDriver(Properties properties) throws Exception {
        super(properties);
    }

    public static void main(String[] arguments) throws Exception {
        PrintStream answers = System.out;
        Properties properties = new Properties();
        properties.setProperty("webServiceUrl", arguments[0]);
        AdminDriver admin = new AdminDriver(properties);
        CommandLine.IExecutionExceptionHandler handler = admin.commander.getExecutionExceptionHandler();
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        System.setIn(new ByteArrayInputStream(new byte[0])); // Nobody answers questions.
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            ByteArrayOutputStream out = new ByteArrayOutputStream();
            ByteArrayOutputStream err = new ByteArrayOutputStream();
            PrintStream printed = new PrintStream(out, true, StandardCharsets.UTF_8);
            PrintStream complained = new PrintStream(err, true, StandardCharsets.UTF_8);
            System.setOut(printed);
            System.setErr(complained);
            String[] words = line.split("\t", -1);
            int code;
            if (words[0].equals("names")) {
                admin.names(printed, admin.commander, "");
                code = 0;
            } else {
                admin.showStatus(complained, handler);
                admin.commander.setOut(new PrintWriter(printed, true));
                admin.commander.setErr(new PrintWriter(complained, true));
                code = admin.inTime(words);
            }
            Base64.Encoder base64 = Base64.getEncoder();
            answers.println(
                    code + " " + base64.encodeToString(out.toByteArray()) + " "
                            + base64.encodeToString(err.toByteArray()));
            answers.flush();
        }
        // Threads of the clients may still run.
        System.exit(0);
    }

    /** The exit code; -1 of a command that does not end: some wait for ever for an answer that they do not expect. */
    private int inTime(String[] words) throws InterruptedException {
        AtomicInteger code = new AtomicInteger(-1);
        Thread thread = new Thread(() -> code.set(commander.execute(words)));
        thread.setDaemon(true);
        thread.start();
        thread.join(COMMAND_MS_MAX);
        return code.get();
    }

    /** The tool prints the reason of a refusal; the status stands in front of it here. */
    private void showStatus(PrintStream complained, CommandLine.IExecutionExceptionHandler tool) {
        commander.setExecutionExceptionHandler((exception, command, parsed) -> {
            if (exception instanceof PulsarAdminException) {
                complained.println("HTTP " + ((PulsarAdminException) exception).getStatusCode());
            }
            return tool.handleExecutionException(exception, command, parsed);
        });
    }

    private void names(PrintStream printed, CommandLine group, String before) {
        Map<String, CommandLine> sorted = new TreeMap<>(group.getSubcommands());
        for (Map.Entry<String, CommandLine> each : sorted.entrySet()) {
            CommandLine command = each.getValue();
            if (!each.getKey().equals(command.getCommandName())) {
                continue; // An alias.
            }
            if (command.getSubcommands().isEmpty()) {
                printed.println(before + each.getKey());
            } else {
                names(printed, command, before + each.getKey() + " ");
            }
        }
    }
}
