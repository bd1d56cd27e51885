import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.ResultSetMetaData;
import java.sql.SQLException;
import java.sql.Statement;
import java.util.ArrayList;
import java.util.List;

/** Does what tools do with JDBC, and prints each result as a line: a name, a tab, the values. */
public final class Tool {
    private static void show(String name, ResultSet rows, String... columns) throws SQLException {
        List<String> found = new ArrayList<>();
        while (rows.next()) {
            List<String> values = new ArrayList<>();
            for (String column : columns) {
                values.add(String.valueOf(rows.getObject(column)));
            }
            found.add(String.join("|", values));
        }
        System.out.println(name + "\t" + String.join(",", found));
    }

    private static void failing(String name, Connection connection, String statement) {
        try (Statement made = connection.createStatement(); ResultSet rows = made.executeQuery(statement)) {
            while (rows.next()) {
                rows.getObject(1);
            }
            System.out.println(name + "\tno error");
        } catch (SQLException error) {
            System.out.println(name + "\t" + String.valueOf(error.getMessage()).replaceAll("\\s+", " "));
        }
    }

    public static void main(String[] arguments) throws Exception {
        Connection connection = DriverManager.getConnection(arguments[0]);
        try {
            try (Statement statement = connection.createStatement();
                    ResultSet rows = statement.executeQuery("SELECT item, sum(amount) AS total FROM orders GROUP BY item ORDER BY item")) {
                show("sum", rows, "item", "total");
            }
            try (PreparedStatement statement = connection.prepareStatement("SELECT item, amount, publish_time, value FROM orders LIMIT 0")) {
                ResultSetMetaData columns = statement.getMetaData();
                List<String> found = new ArrayList<>();
                for (int number = 1; number <= columns.getColumnCount(); number++) {
                    found.add(columns.getColumnName(number) + "|" + columns.getColumnTypeName(number));
                }
                System.out.println("columns\t" + String.join(",", found));
            }
            try (Statement statement = connection.createStatement();
                    ResultSet rows = statement.executeQuery("SELECT count(*) AS n FROM \"public\".\"default\".\"orders\"")) {
                show("full name", rows, "n");
            }
            try (Statement statement = connection.createStatement();
                    ResultSet rows = statement.executeQuery("SELECT i FROM range(200000) AS t(i)")) {
                long count = 0;
                long sum = 0;
                while (rows.next()) {
                    count++;
                    sum += rows.getLong(1);
                }
                System.out.println("many\t" + count + "|" + sum);
            }
            var facts = connection.getMetaData();
            System.out.println("product\t" + facts.getDatabaseProductName() + "|" + facts.isReadOnly());
            show("catalogs", facts.getCatalogs(), "TABLE_CAT");
            show("schemas", facts.getSchemas("public", "def%"), "TABLE_SCHEM");
            show("tables", facts.getTables("public", "default", "ord%", new String[] {"TABLE"}), "TABLE_NAME", "TABLE_TYPE");
            show("no views", facts.getTables(null, null, "%", new String[] {"VIEW"}), "TABLE_NAME");
            show("fields", facts.getColumns("public", "default", "orders", "%"), "COLUMN_NAME");
            show("types", facts.getTableTypes(), "TABLE_TYPE");
            show("keys", facts.getPrimaryKeys("public", "default", "orders"), "COLUMN_NAME");
            failing("unknown", connection, "SELECT * FROM nothing_here");
            failing("wrong", connection, "SELECT nonsense(");
            failing("write", connection, "DELETE FROM orders");
            failing("file", connection, "SELECT * FROM read_text('/etc/passwd')");
        } finally {
            try {
                connection.close();
            } catch (SQLException error) {
                // Version 18.3 loses 18 bytes of its own for answers about names, and reports that here.
                if (!String.valueOf(error.getMessage()).contains("VectorSchemaRootTransformer")) {
                    throw error;
                }
            }
        }
    }
}
