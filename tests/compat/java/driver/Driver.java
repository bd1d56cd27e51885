import java.io.PrintWriter;
import java.io.StringWriter;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;

/**
 * Runs every scenario against a broker, several at once since most of their time is waiting.
 *
 * Arguments: broker URL, HTTP URL, then names of scenarios to run, all when there is none. Prints a line for
 * each: "ok NAME", or "failed NAME: REASON" with line breaks written as \n.
 */
final class Driver {
    private static final int AT_ONCE = 8;
    private static final int DEADLINE_S = 300;

    interface Scenario {
        void run(World world) throws Exception;
    }

    public static void main(String[] arguments) throws Exception {
        Map<String, Scenario> scenarios = new LinkedHashMap<>();
        Redeliveries.add(scenarios);
        Subscriptions.add(scenarios);
        Messages.add(scenarios);
        Positions.add(scenarios);
        Producers.add(scenarios);
        Schemas.add(scenarios);
        Encryption.add(scenarios);
        Compaction.add(scenarios);
        Transactions.add(scenarios);
        runAll(scenarios, new World(arguments[0], arguments[1]), List.of(arguments).subList(2, arguments.length));
    }

    /** Runs those that are named, all when none is, and ends the process. */
    static void runAll(Map<String, Scenario> scenarios, World world, List<String> names) throws Exception {
        ExecutorService executor = Executors.newFixedThreadPool(AT_ONCE);
        for (Map.Entry<String, Scenario> each : scenarios.entrySet()) {
            if (names.isEmpty() || names.contains(each.getKey())) {
                executor.submit(() -> run(each.getKey(), each.getValue(), world));
            }
        }
        executor.shutdown();
        executor.awaitTermination(DEADLINE_S, TimeUnit.SECONDS);
        // The client keeps threads; what has not ended by now has failed.
        System.exit(0);
    }

    private static void run(String name, Scenario scenario, World world) {
        String line;
        try {
            scenario.run(world);
            line = "ok " + name;
        } catch (Throwable error) {
            StringWriter trace = new StringWriter();
            error.printStackTrace(new PrintWriter(trace));
            line = "failed " + name + ": " + trace.toString().replace("\n", "\\n");
        }
        synchronized (System.out) {
            System.out.println(line);
        }
    }
}
