import java.io.BufferedReader;
import java.io.IOException;
import java.io.PrintStream;
import java.io.UncheckedIOException;
import java.lang.reflect.InvocationTargetException;
import java.util.Arrays;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.LockSupport;
import org.redisson.RedissonRedLock;
import org.redisson.api.RCountDownLatch;
import org.redisson.api.RLock;
import org.redisson.api.RPermitExpirableSemaphore;
import org.redisson.api.RSemaphore;
import org.redisson.api.RedissonClient;

/**
 * One version of Redisson behind a connection: one command per line, one answer per line.
 *
 * <pre>
 *   TAG open CLIENT URL WATCHDOG_MS      a client, for the commands that name it
 *   TAG close CLIENT
 *   TAG interrupt THREAD
 *   TAG asleep THREAD                    whether it waits for a message, not for an answer
 *   TAG do THREAD CLIENT TYPE NAME VERB NUMBER...
 * </pre>
 *
 * A command of the last kind runs on the named thread, after the thread's earlier commands, so a test sees whether a call still waits. Times are milliseconds. The answers:
 *
 * <pre>
 *   TAG NANOS ok VALUE
 *   TAG NANOS error EXCEPTION MESSAGE
 * </pre>
 *
 * NANOS is the monotonic clock of the machine at the end of the call. Methods that some versions of Redisson lack are called by reflection. When the connection ends, its clients are closed.
 */
public final class Peer implements Runnable {
    private final BufferedReader in;
    private final PrintStream out;
    private final Map<String, RedissonClient> clients = new ConcurrentHashMap<>();
    private final Map<String, Worker> workers = new ConcurrentHashMap<>();

    /** Called by Host, which has loaded this class with the jars of one version. */
    public Peer(BufferedReader in, PrintStream out) {
        this.in = in;
        this.out = out;
    }

    private interface Call {
        Object run() throws Exception;
    }

    /** One thread that a test can name and interrupt. */
    private static final class Worker {
        private volatile Thread thread;
        private final ExecutorService executor = Executors.newSingleThreadExecutor(body -> {
            thread = new Thread(body);
            thread.setDaemon(true);
            return thread;
        });
    }

    private synchronized void say(String tag, long nanos, String text) {
        out.print(tag + " " + nanos + " " + text.replace('\n', ' ') + "\n");
        out.flush();
    }

    private void answer(String tag, Call call) {
        try {
            Object value = call.run();
            say(tag, System.nanoTime(), "ok " + (value == null ? "null" : value));
        } catch (Throwable error) {
            Throwable cause = error;
            while (cause.getCause() != null && (cause instanceof ExecutionException
                    || cause instanceof InvocationTargetException)) {
                cause = cause.getCause();
            }
            say(tag, System.nanoTime(),
                    "error " + cause.getClass().getSimpleName() + " " + cause.getMessage());
        }
    }

    /** Redisson parks its waiters in a semaphore, those of a latch in a separate gate. */
    private static boolean asleep(Thread thread) {
        Object blocker = LockSupport.getBlocker(thread);
        String name = blocker == null ? "" : blocker.getClass().getName();
        return name.startsWith("java.util.concurrent.Semaphore") || name.startsWith("org.redisson.misc.ReclosableLatch");
    }

    // ---- Objects ---------------------------------------------------------------------------------

    private static RLock[] members(RedissonClient client, String names) {
        return Arrays.stream(names.split(",")).map(client::getLock).toArray(RLock[]::new);
    }

    private static RLock lock(RedissonClient client, String type, String name) throws Exception {
        switch (type) {
            case "mutex": return client.getLock(name);
            case "fair": return client.getFairLock(name);
            case "read": return client.getReadWriteLock(name).readLock();
            case "write": return client.getReadWriteLock(name).writeLock();
            case "spin": return client.getSpinLock(name);
            case "fenced": return (RLock) invoke(client, "getFencedLock", name);
            case "multi": return client.getMultiLock(members(client, name));
            case "red": return new RedissonRedLock(members(client, name));
            default: throw new IllegalArgumentException("no type " + type);
        }
    }

    /** Calls the public method with this name and number of arguments. */
    private static Object invoke(Object target, String name, Object... arguments) throws Exception {
        for (Class<?> face : target.getClass().getInterfaces()) {
            for (java.lang.reflect.Method method : face.getMethods()) {
                if (method.getName().equals(name) && accepts(method, arguments)) {
                    return method.invoke(target, arguments);
                }
            }
        }
        throw new NoSuchMethodException(name);
    }

    private static boolean accepts(java.lang.reflect.Method method, Object[] arguments) {
        Class<?>[] types = method.getParameterTypes();
        if (types.length != arguments.length) {
            return false;
        }
        for (int i = 0; i < types.length; i++) {
            boolean number = types[i] == long.class && arguments[i] instanceof Long;
            if (!number && !types[i].isInstance(arguments[i])) {
                return false;
            }
        }
        return true;
    }

    // ---- Verbs -----------------------------------------------------------------------------------

    private static final TimeUnit MS = TimeUnit.MILLISECONDS;

    private static Object done() {
        return "done";
    }

    /** A lease of -1 is the watchdog's; the asynchronous verbs name the thread they act for. */
    private static Object ofLock(RLock lock, String verb, long[] n) throws Exception {
        switch (verb) {
            case "lock": lock.lock(n[0], MS); return done();
            case "try": return n[0] == 0 && n[1] == -1 ? lock.tryLock() : lock.tryLock(n[0], n[1], MS);
            case "unlock": lock.unlock(); return done();
            case "turns":
                for (long i = 0; i < n[0]; i++) {
                    lock.lock();
                    lock.unlock();
                }
                return done();
            case "lock_as": lock.lockAsync(n[1], MS, n[0]).get(); return done();
            case "try_as": return lock.tryLockAsync(n[1], n[2], MS, n[0]).get();
            case "unlock_as": lock.unlockAsync(n[0]).get(); return done();
            case "force": return lock.forceUnlock();
            case "locked": return lock.isLocked();
            case "mine": return lock.isHeldByCurrentThread();
            case "count": return lock.getHoldCount();
            case "ttl": return lock.remainTimeToLive();
            case "lock_token": return invoke(lock, "lockAndGetToken");
            case "try_token": return invoke(lock, "tryLockAndGetToken", n[0], n[1], MS);
            case "token": return invoke(lock, "getToken");
            default: throw new IllegalArgumentException("no verb " + verb);
        }
    }

    private static Object ofSemaphore(RSemaphore semaphore, String verb, long[] n) throws Exception {
        int count = n.length > 0 ? (int) n[0] : 1;
        switch (verb) {
            case "init": return semaphore.trySetPermits(count);
            case "acquire": semaphore.acquire(count); return done();
            case "acquire_as": semaphore.acquireAsync(count).get(); return done();
            case "try": return semaphore.tryAcquire(count, n[1], MS);
            case "release": semaphore.release(count); return done();
            case "add": semaphore.addPermits(count); return done();
            case "drain": return semaphore.drainPermits();
            case "available": return semaphore.availablePermits();
            default: throw new IllegalArgumentException("no verb " + verb);
        }
    }

    private static Object ofPermits(RPermitExpirableSemaphore permits, String id, String verb, long[] n)
            throws Exception {
        switch (verb) {
            case "init": return permits.trySetPermits((int) n[0]);
            case "acquire": return n[0] == -1 ? permits.acquire() : permits.acquire(n[0], MS);
            case "try": return permits.tryAcquire(n[0], n[1], MS);
            case "release": permits.release(id); return done();
            case "try_release": return permits.tryRelease(id);
            case "available": return permits.availablePermits();
            default: throw new IllegalArgumentException("no verb " + verb);
        }
    }

    private static Object ofLatch(RCountDownLatch latch, String verb, long[] n) throws Exception {
        switch (verb) {
            case "init": return latch.trySetCount(n[0]);
            case "down": latch.countDown(); return done();
            case "count": return latch.getCount();
            case "wait": return latch.await(n[0], MS);
            case "await": latch.await(); return done();
            case "delete": return latch.delete();
            default: throw new IllegalArgumentException("no verb " + verb);
        }
    }

    /** The words are CLIENT TYPE NAME VERB NUMBER...; a permit's id replaces a number. */
    private Object act(String[] word) throws Exception {
        RedissonClient client = clients.get(word[0]);
        String type = word[1], name = word[2], verb = word[3];
        String id = verb.endsWith("release") && type.equals("permits") ? word[4] : null;
        long[] numbers = id != null ? new long[0]
                : Arrays.stream(word).skip(4).mapToLong(Long::parseLong).toArray();
        switch (type) {
            case "semaphore": return ofSemaphore(client.getSemaphore(name), verb, numbers);
            case "permits":
                return ofPermits(client.getPermitExpirableSemaphore(name), id, verb, numbers);
            case "latch": return ofLatch(client.getCountDownLatch(name), verb, numbers);
            default: return ofLock(lock(client, type, name), verb, numbers);
        }
    }

    @Override
    public void run() {
        try {
            for (String line = in.readLine(); line != null; line = in.readLine()) {
                obey(line.split(" "));
            }
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        } finally {
            workers.values().forEach(worker -> worker.executor.shutdownNow());
            clients.values().forEach(client -> new Thread(client::shutdown).start());
        }
    }

    private void obey(String[] word) {
        String tag = word[0];
        String[] rest = Arrays.copyOfRange(word, Math.min(3, word.length), word.length);
        switch (word[1]) {
            case "open":
                answer(tag, () -> {
                    clients.put(word[2], Deployed.open(word[3], Long.parseLong(word[4])));
                    return clients.get(word[2]).getId();
                });
                break;
            case "close":
                new Thread(() -> answer(tag, () -> {
                    clients.remove(word[2]).shutdown();
                    return done();
                })).start();
                break;
            case "interrupt":
                workers.get(word[2]).thread.interrupt();
                answer(tag, Peer::done);
                break;
            case "asleep":
                answer(tag, () -> asleep(workers.get(word[2]).thread));
                break;
            case "do":
                workers.computeIfAbsent(word[2], key -> new Worker()).executor
                        .execute(() -> answer(tag, () -> act(rest)));
                break;
            default:
                say(tag, System.nanoTime(), "error IllegalArgumentException no command " + word[1]);
        }
    }
}
