import java.io.BufferedReader;
import java.io.File;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.net.URL;
import java.net.URLClassLoader;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;

/**
 * One process with every version of Redisson, for all test processes: `Host FOLDER` prints its port, and ends with its
 * standard input.
 *
 * The first line of a connection is a version; the others are for Peer. FOLDER/VERSION has the classes and jars of a
 * version. Each version has its own class loader, which shares no class with the others except those of Java itself.
 */
public final class Host {
    private static final Map<String, ClassLoader> LOADERS = new ConcurrentHashMap<>();

    private Host() {}

    private static ClassLoader loader(File folder) {
        try {
            List<URL> places = new ArrayList<>();
            places.add(new File(folder, "classes").toURI().toURL());
            File[] jars = new File(folder, "dependency").listFiles();
            Arrays.sort(jars);
            for (File jar : jars) {
                places.add(jar.toURI().toURL());
            }
            return new URLClassLoader(places.toArray(new URL[0]), ClassLoader.getPlatformClassLoader());
        } catch (java.net.MalformedURLException error) {
            throw new IllegalArgumentException(error);
        }
    }

    private static void serve(File folder, Socket socket) {
        try (socket) {
            BufferedReader in = new BufferedReader(
                    new InputStreamReader(socket.getInputStream(), StandardCharsets.UTF_8));
            PrintStream out = new PrintStream(socket.getOutputStream(), false, StandardCharsets.UTF_8);
            String version = in.readLine();
            ClassLoader loader = LOADERS.computeIfAbsent(version, key -> loader(new File(folder, key)));
            // The threads that Redisson starts inherit it.
            Thread.currentThread().setContextClassLoader(loader);
            ((Runnable) loader.loadClass("Peer").getConstructor(BufferedReader.class, PrintStream.class)
                    .newInstance(in, out)).run();
        } catch (Exception error) {
            error.printStackTrace(); // a killed test process
        }
    }

    private static void accept(File folder, ServerSocket listener) {
        try {
            while (true) {
                Socket socket = listener.accept();
                socket.setTcpNoDelay(true);
                new Thread(() -> serve(folder, socket)).start();
            }
        } catch (java.io.IOException error) {
            error.printStackTrace();
            System.exit(1);
        }
    }

    public static void main(String[] arguments) throws Exception {
        ServerSocket listener = new ServerSocket(0, 50, InetAddress.getByName("127.0.0.1"));
        new Thread(() -> accept(new File(arguments[0]), listener)).start();
        System.out.println(listener.getLocalPort());
        while (System.in.read() >= 0) { }
        System.exit(0);
    }
}
