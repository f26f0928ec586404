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
import org.redisson.Redisson;
import org.redisson.api.RLock;
import org.redisson.api.RedissonClient;
import org.redisson.config.Config;

/**
 * Redisson with its default settings, in turns with the other subjects.
 *
 * <pre>
 *   RedissonBench PORT distinct THREADS
 *   RedissonBench PORT contended THREADS SHARED     SHARED: the file of the safety oracle
 *   RedissonBench PORT holds COUNT
 * </pre>
 */
public final class RedissonBench {
    /** The oracle's layout: holders at this moment, violations. */
    private static final VarHandle INTS =
            MethodHandles.byteBufferViewVarHandle(int[].class, ByteOrder.nativeOrder());
    private static final int INSIDE = 0;
    private static final int VIOLATIONS = 4;

    private interface Body {
        void run(int index);
    }

    private static volatile boolean stop;

    /** Runs the body in so many threads for so many seconds; gives the fields all answers share. */
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

    private static String contended(RLock lock, ByteBuffer oracle, int threads, double seconds)
            throws Exception {
        String fields = crew(threads, seconds, i -> {
            lock.lock();
            if ((int) INTS.getAndAdd(oracle, INSIDE, 1) != 0) {
                INTS.getAndAdd(oracle, VIOLATIONS, 1);
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
            Thread.sleep(200); // lets references that the collection has cleared be worked off
        }
        return runtime.totalMemory() - runtime.freeMemory();
    }

    /** Holds are taken in waves, so that what is left on the heap belongs to them alone. */
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

    public static void main(String[] args) throws Exception {
        Config config = new Config();
        config.useSingleServer().setAddress("redis://127.0.0.1:" + args[0]);
        RedissonClient redisson = Redisson.create(config);
        int n = Integer.parseInt(args[2]);
        RLock[] locks = new RLock[args[1].equals("distinct") ? n : 1];
        for (int i = 0; i < locks.length; i++) {
            locks[i] = redisson.getLock("pair:" + i);
        }
        ByteBuffer oracle = null;
        if (args.length > 3) {
            try (RandomAccessFile file = new RandomAccessFile(args[3], "rw")) {
                oracle = file.getChannel().map(FileChannel.MapMode.READ_WRITE, 0, 12);
            }
        }
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        System.out.println("ready");
        for (String line; (line = in.readLine()) != null;) {
            double seconds = Double.parseDouble(line.split(" ")[1]);
            String fields = switch (args[1]) {
                case "distinct" -> distinct(locks, seconds);
                case "contended" -> contended(locks[0], oracle, n, seconds);
                default -> holds(redisson, n);
            };
            System.out.println("{" + fields + "}");
        }
        redisson.shutdown();
    }
}
