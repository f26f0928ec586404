import java.io.BufferedReader;
import java.io.FileOutputStream;
import java.io.InputStreamReader;
import java.io.IOException;
import java.io.OutputStream;
import java.net.Socket;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import org.redisson.Redisson;
import org.redisson.api.RFencedLock;
import org.redisson.api.RLock;
import org.redisson.api.RPermitExpirableSemaphore;
import org.redisson.api.RedissonClient;
import org.redisson.config.Config;

/**
 * The recorder in Java: threads that take the locks of a history; see recorders.py.
 *
 * Its client is Redisson, whose locks have no deadline and report no loss. So a check asks the server: a hold that the server knew existed when the question was sent. The
 * first other answer, or none, is recorded as a loss. A release has ended when the server says that nothing is held any more.
 */
public final class Recorder {
    private static final TimeUnit MS = TimeUnit.MILLISECONDS;
    private static final Map<String, String> plan = new HashMap<>();
    private static final AtomicLong holds = new AtomicLong();
    private static RedissonClient client;
    private static FileOutputStream log;

    /** One acquisition of a lock, as a Lock below knows how to check and to end it. */
    private interface Hold {
        long token();
        String owner();
        boolean exists();
        /** Ends it; false: it was no more. */
        boolean release();
    }

    private interface Lock {
        /** A hold, or null. */
        Hold acquire(long wait, long lease) throws InterruptedException;
        /** Undoes what a call without an answer may have left. */
        void undo();
    }

    // ---- Kinds of locks --------------------------------------------------------------------------

    private static final class Mutex implements Lock, Hold {
        private final RLock lock;
        private long token;

        Mutex(RLock lock) {
            this.lock = lock;
        }

        @Override
        public Hold acquire(long wait, long lease) throws InterruptedException {
            if (lock instanceof RFencedLock) {
                Long given = ((RFencedLock) lock).tryLockAndGetToken(wait, lease, MS);
                token = given == null ? 0 : given;
                return given == null ? null : this;
            }
            return lock.tryLock(wait, lease, MS) ? this : null;
        }

        @Override
        public void undo() {
            release();
        }

        @Override
        public long token() {
            return token;
        }

        @Override
        public String owner() {
            return client.getId() + ":" + Thread.currentThread().getId();
        }

        @Override
        public boolean exists() {
            return lock.isHeldByCurrentThread();
        }

        @Override
        public boolean release() {
            boolean found = exists(), ended = false;
            try {
                do { // what is gone, too: until then Redisson would renew the next hold of this thread, fixed or not
                    lock.unlock();
                    ended = true;
                } while (exists()); // a call that was sent twice has counted twice
            } catch (IllegalMonitorStateException gone) {
                // it is not held any more
            }
            return found && ended;
        }
    }

    private static final class Permits implements Lock {
        private final RPermitExpirableSemaphore permits;

        Permits(String name) {
            permits = client.getPermitExpirableSemaphore(name);
        }

        @Override
        public Hold acquire(long wait, long lease) throws InterruptedException {
            boolean renewed = lease == -1; // by the checks: Redisson's watchdog renews no permits
            long length = renewed ? number("lease_ms") : lease;
            String id = permits.tryAcquire(wait, length, MS);
            return id == null ? null : new Hold() {
                @Override
                public long token() {
                    return 0;
                }

                @Override
                public String owner() {
                    return id;
                }

                @Override
                public boolean exists() {
                    return renewed ? permits.updateLeaseTime(id, length, MS) : permits.getLeaseTime(id) > 0;
                }

                @Override
                public boolean release() {
                    return permits.tryRelease(id);
                }
            };
        }

        @Override
        public void undo() {} // its lease ends, and nobody knows its id
    }

    private static Lock lock(String name, boolean shared) {
        switch (plan.get("kind")) {
            case "fenced": return new Mutex(client.getFencedLock(name));
            case "fair": return new Mutex(client.getFairLock(name));
            case "permits": return new Permits(name);
            case "rw":
                return new Mutex(shared ? client.getReadWriteLock(name).readLock() : client.getReadWriteLock(name).writeLock());
            default: return new Mutex(client.getLock(name));
        }
    }

    // ---- A thread --------------------------------------------------------------------------------

    private static final class Worker extends Thread {
        private final String name, who;
        private final Lock exclusive, shared;
        private final Socket conductor;
        private final BufferedReader answers;
        private long checked;
        private String lost;

        Worker(String name, int number) throws IOException {
            this.name = name;
            who = plan.get("me") + "/" + number;
            exclusive = lock(name, false);
            shared = lock(name, true);
            conductor = new Socket("127.0.0.1", (int) number("conductor"));
            conductor.setTcpNoDelay(true);
            answers = new BufferedReader(new InputStreamReader(conductor.getInputStream(), StandardCharsets.UTF_8));
        }

        /** Says a line to the conductor; without an answer the run is over for everybody. */
        private String[] talk(Object... words) {
            try {
                OutputStream out = conductor.getOutputStream();
                out.write((spaced(words) + "\n").getBytes(StandardCharsets.UTF_8));
                return answers.readLine().split(" ");
            } catch (IOException | NullPointerException error) {
                Runtime.getRuntime().halt(1);
                throw new IllegalStateException(error);
            }
        }

        @Override
        public void run() {
            try {
                write("start", System.nanoTime(), who);
                String[] order;
                while ((order = talk("turn", name, who))[0].equals("go")) {
                    turn(Long.parseLong(order[1]), order[2], order[3].equals("1") ? number("fixed_ms") : -1);
                }
                write("end", System.nanoTime(), who);
            } catch (Throwable error) {
                error.printStackTrace();
                Runtime.getRuntime().halt(1);
            }
        }

        private void turn(long wait, String mode, long lease) throws Exception {
            Lock lock = mode.equals("r") ? shared : exclusive;
            long asked = System.nanoTime();
            write("ask", asked, who, name, wait);
            Hold hold = null;
            int code = wait == 0 ? 1 : 2;
            try {
                hold = lock.acquire(wait, lease);
            } catch (RuntimeException error) {
                code = -30;
            }
            if (hold == null) {
                long ended = System.nanoTime();
                if (code < 0) {
                    until(lock::undo);
                }
                write("fail", ended, who, name, asked, code);
            } else {
                holdIt(hold, mode);
            }
        }

        private void holdIt(Hold hold, String mode) throws IOException {
            String id = plan.get("me") + "-" + holds.incrementAndGet();
            long granted = checked = System.nanoTime();
            lost = null;
            write("grant", granted, who, name, id, hold.token(), mode, hold.owner());
            use(hold, id, mode);
            if (lost != null) {
                write("lost", System.nanoTime(), who, name, id, checked, lost);
            }
            long asked = System.nanoTime();
            boolean[] found = {false};
            until(() -> found[0] = hold.release());
            write("release", System.nanoTime(), who, name, id, checked, asked, found[0] && lost == null ? 0 : 4);
        }

        /** Reads the counter, and writes the next number or, as a reader, reads it again. */
        private void use(Hold hold, String id, String mode) throws IOException {
            long before = check(hold), result = -1, after = 0;
            String[] answer = talk("read", name, id, hold.token(), hold.owner());
            long value = Long.parseLong(answer[0]);
            boolean linger = answer[1].equals("1");
            while (linger && check(hold) > 0) {
                pause();
            }
            if (linger) {
                talk("lost", name, id);
            }
            // One that knows that it has lost a lock without tokens stops; with a token the resource knows better.
            if (value >= 0 && (check(hold) > 0 || hold.token() > 0)) {
                answer = mode.equals("r") ? talk("again", name, id, hold.token())
                        : talk("write", name, id, hold.token(), value + 1);
                result = Long.parseLong(answer[0]);
                after = check(hold);
            }
            write("use", System.nanoTime(), who, name, id, before, value, result, after);
        }

        /** When the check began if it found the hold valid, otherwise 0. */
        private long check(Hold hold) {
            long now = System.nanoTime();
            if (lost != null) {
                return 0;
            }
            try {
                if (hold.exists()) {
                    return checked = now;
                }
                lost = "gone";
            } catch (RuntimeException error) {
                lost = "unanswered";
            }
            return 0;
        }
    }

    // ---- What all share --------------------------------------------------------------------------

    /** Does something again and again until the server has answered; that the lock is not held is an answer. */
    private static void until(Runnable work) {
        for (;;) {
            try {
                work.run();
                return;
            } catch (IllegalMonitorStateException error) {
                return;
            } catch (RuntimeException error) {
                pause();
            }
        }
    }

    private static void pause() {
        try {
            Thread.sleep(1);
        } catch (InterruptedException error) {
            throw new IllegalStateException(error);
        }
    }

    private static long number(String word) {
        return Long.parseLong(plan.get(word));
    }

    private static String spaced(Object... words) {
        StringBuilder line = new StringBuilder();
        for (Object word : words) {
            line.append(line.length() > 0 ? " " : "").append(word);
        }
        return line.toString();
    }

    /** Writes a line in one system call: a process that is killed leaves what it wrote. */
    private static void write(String event, long at, Object... words) throws IOException {
        log.write((event + " " + at + " " + spaced(words) + "\n").getBytes(StandardCharsets.UTF_8));
    }

    public static void main(String[] arguments) throws Exception {
        for (int i = 2; i < arguments.length; i++) {
            String[] parts = arguments[i].split("=", 2);
            plan.put(parts[0], parts[1]);
        }
        log = new FileOutputStream(arguments[1]);
        Config config = new Config();
        config.setLockWatchdogTimeout(number("lease_ms"));
        config.setThreads(8).setNettyThreads(4);
        // What gets no answer is sent once more, and then given up.
        config.useSingleServer().setAddress(arguments[0]).setTimeout(1000).setRetryAttempts(1)
                .setConnectionMinimumIdleSize(4).setConnectionPoolSize(24).setSubscriptionConnectionMinimumIdleSize(1)
                .setSubscriptionConnectionPoolSize(8).setPingConnectionInterval(500);
        while (client == null) { // the server may be down just now
            try {
                client = Redisson.create(config);
            } catch (RuntimeException error) {
                pause();
            }
        }
        List<Worker> workers = new ArrayList<>();
        int each = (int) number("workers");
        for (String name : plan.get("names").split(",")) {
            for (int i = 0; i < each; i++) {
                workers.add(new Worker(name, workers.size()));
            }
        }
        for (Worker worker : workers) {
            worker.start();
        }
        for (Worker worker : workers) {
            worker.join();
        }
        client.shutdown();
    }
}
