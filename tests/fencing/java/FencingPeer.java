import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.file.Files;
import java.nio.file.Path;
import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.sql.Statement;
import org.redisson.Redisson;
import org.redisson.api.RFencedLock;
import org.redisson.api.RedissonClient;
import org.redisson.config.Config;

/** A Java program that protects a row of PostgreSQL with Redisson's fenced lock: see ../peer.c. */
public final class FencingPeer {
    private static String accept; // bindings/fencing/accept.sql with ? for parameters
    private static Connection database;
    private static RFencedLock lock;
    private static String owner;

    private FencingPeer() {}

    private static boolean write(long token, String owner) throws SQLException {
        try (PreparedStatement statement = database.prepareStatement(accept)) {
            statement.setString(1, "stock");
            statement.setLong(2, token);
            statement.setString(3, owner);
            if (statement.executeUpdate() != 1) {
                database.rollback();
                return false;
            }
        }
        try (Statement statement = database.createStatement()) {
            ResultSet rows = statement.executeQuery("SELECT number FROM stock WHERE item = 'book'");
            rows.next();
            int number = rows.getInt(1);
            statement.executeUpdate("UPDATE stock SET number = " + (number + 1) + " WHERE item = 'book'");
        }
        database.commit();
        return true;
    }

    private static String unlock() {
        try {
            lock.unlock();
            return "ok";
        } catch (IllegalMonitorStateException lost) {
            return "lost";
        }
    }

    private static String answer(String[] words) throws SQLException {
        switch (words[0]) {
            case "lock":
                return lock.lockAndGetToken() + " " + owner;
            case "write":
                return write(Long.parseLong(words[1]), words[2]) ? "ok" : "stale";
            case "run":
                int refused = 0;
                for (int i = 0; i < Integer.parseInt(words[1]); i++) {
                    refused += write(lock.lockAndGetToken(), owner) ? 0 : 1;
                    unlock();
                }
                return "refused " + refused;
            default:
                return unlock();
        }
    }

    public static void main(String[] arguments) throws Exception {
        accept = Files.readString(Path.of(arguments[2])).replaceAll(":(name|token|owner)\\b", "?");
        Config config = new Config();
        config.useSingleServer().setAddress(arguments[0]).setConnectionMinimumIdleSize(1);
        RedissonClient client = Redisson.create(config);
        lock = client.getFencedLock("row");
        owner = client.getId() + ":" + Thread.currentThread().getId();
        database = DriverManager.getConnection(arguments[1]);
        database.setAutoCommit(false);
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            System.out.println(answer(line.split(" ")));
        }
        System.exit(0);
    }
}
