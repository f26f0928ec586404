import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.RandomAccessFile;
import java.lang.invoke.MethodHandles;
import java.lang.invoke.VarHandle;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.channels.FileChannel;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.locks.LockSupport;
import org.redisson.Redisson;
import org.redisson.api.RLock;
import org.redisson.api.RedissonClient;
import org.redisson.config.Config;

/**
 * Redisson with its default settings, in turns with the other subjects.
 *
 * <pre>
 *   RedissonBench PORT distinct THREADS
 *   RedissonBench PORT contended THREADS HOLD_US SHARED     SHARED: the file of the safety oracle
 *   RedissonBench PORT fair THREADS HOLD_US SHARED          the same with a fair lock
 *   RedissonBench PORT readers COUNT                one reader among so many who stay
 *   RedissonBench PORT multi COUNT                  so many locks as one
 *   RedissonBench PORT holds COUNT
 * </pre>
 */
public final class RedissonBench {
    /** The oracle's layout: current holders, violations. */
    private static final VarHandle INTS =
            MethodHandles.byteBufferViewVarHandle(int[].class, ByteOrder.nativeOrder());
    private static final int INSIDE = 0;
    private static final int VIOLATIONS = 4;

    private interface Body {
        void run(int index);
    }

    private static volatile boolean stop;

    /** Runs the body in threads for a time; returns the fields that all answers share. */
    private static String crew(int threads, double seconds, Body body) throws Exception {
        long[] counts = new long[threads];
        Thread[] crew = new Thread[threads];
        stop = false;
        long began = System.nanoTime();
        for (int i = 0; i < threads; i++) {
            int index = i;
            crew[i] = new Thread(() -> {
                long count = 0;
                for (; !stop; count++) {
                    body.run(index);
                }
                counts[index] = count;
            });
            crew[i].start();
        }
        Thread.sleep((long) (seconds * 1000));
        stop = true;
        for (Thread thread : crew) {
            thread.join();
        }
        double took = (System.nanoTime() - began) / 1e9;
        return "\"done\": " + Arrays.stream(counts).sum() + ", \"seconds\": " + took
                + ", \"each\": " + Arrays.toString(counts);
    }

    private static String distinct(RLock[] locks, double seconds) throws Exception {
        return crew(locks.length, seconds, i -> {
            locks[i].lock();
            locks[i].unlock();
        });
    }

    private static String contended(
            RLock lock, ByteBuffer oracle, int threads, long holdNanos, double seconds) throws Exception {
        String fields = crew(threads, seconds, i -> {
            lock.lock();
            if ((int) INTS.getAndAdd(oracle, INSIDE, 1) != 0) {
                INTS.getAndAdd(oracle, VIOLATIONS, 1);
            }
            if (holdNanos > 0) {
                LockSupport.parkNanos(holdNanos);
            }
            INTS.getAndAdd(oracle, INSIDE, -1);
            lock.unlock();
        });
        return fields + ", \"violations\": " + (int) INTS.getVolatile(oracle, VIOLATIONS);
    }

    private static long heap() throws InterruptedException {
        Runtime runtime = Runtime.getRuntime();
        for (int i = 0; i < 3; i++) {
            System.gc();
            Thread.sleep(200); // lets the references cleared by the collection be processed
        }
        return runtime.totalMemory() - runtime.freeMemory();
    }

    /** Holds are taken in waves, so that only they are left on the heap. */
    private static String holds(RedissonClient redisson, int count) throws Exception {
        long before = heap();
        long began = System.nanoTime();
        for (int base = 0; base < count; base += 1000) {
            List<CompletableFuture<?>> wave = new ArrayList<>();
            for (int i = base; i < Math.min(count, base + 1000); i++) {
                wave.add(redisson.getLock("hold:" + i).lockAsync(1).toCompletableFuture());
            }
            CompletableFuture.allOf(wave.toArray(new CompletableFuture<?>[0])).join();
        }
        double took = (System.nanoTime() - began) / 1e9;
        double memory = (heap() - before) / (double) count;
        redisson.getKeys().flushall();
        return "\"done\": " + count + ", \"seconds\": " + took + ", \"memory\": " + memory;
    }

    /** The readers who stay have thread ids that no thread has; the watchdog renews them. */
    private static RLock[] readers(RedissonClient redisson, int count) {
        RLock lock = redisson.getReadWriteLock("readers:redisson").readLock();
        List<CompletableFuture<?>> standing = new ArrayList<>();
        for (int i = 0; i < count; i++) {
            standing.add(lock.lockAsync(1_000_000 + i).toCompletableFuture());
        }
        CompletableFuture.allOf(standing.toArray(new CompletableFuture<?>[0])).join();
        return new RLock[] {lock};
    }

    private static RLock[] multi(RedissonClient redisson, int count) {
        RLock[] members = new RLock[count];
        Arrays.setAll(members, i -> redisson.getLock("member:" + i));
        return new RLock[] {redisson.getMultiLock(members)};
    }

    private static RLock[] locks(RedissonClient redisson, String mode, int n) {
        return switch (mode) {
            case "contended" -> new RLock[] {redisson.getLock("contended:0")};
            case "fair" -> new RLock[] {redisson.getFairLock("contended:0")};
            case "readers" -> readers(redisson, n);
            case "multi" -> multi(redisson, n);
            default -> {
                RLock[] locks = new RLock[n];
                Arrays.setAll(locks, i -> redisson.getLock("pair:" + i));
                yield locks;
            }
        };
    }

    public static void main(String[] args) throws Exception {
        Config config = new Config();
        config.useSingleServer().setAddress("redis://127.0.0.1:" + args[0]);
        RedissonClient redisson = Redisson.create(config);
        int n = Integer.parseInt(args[2]);
        RLock[] locks = locks(redisson, args[1], n);
        ByteBuffer oracle = null;
        long holdNanos = 0;
        if (args.length > 3) {
            holdNanos = Long.parseLong(args[3]) * 1000;
            try (RandomAccessFile file = new RandomAccessFile(args[4], "rw")) {
                oracle = file.getChannel().map(FileChannel.MapMode.READ_WRITE, 0, 12);
            }
        }
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        System.out.println("ready");
        for (String line; (line = in.readLine()) != null;) {
            double seconds = Double.parseDouble(line.split(" ")[1]);
            String fields = switch (args[1]) {
                case "contended", "fair" -> contended(locks[0], oracle, n, holdNanos, seconds);
                case "holds" -> holds(redisson, n);
                default -> distinct(locks, seconds);
            };
            System.out.println("{" + fields + "}");
        }
        redisson.shutdown();
    }
}
