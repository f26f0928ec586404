import java.io.InputStream;
import java.io.OutputStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.KeyStore;
import java.security.cert.CertificateFactory;
import java.util.Arrays;
import java.util.HashMap;
import java.util.Map;
import org.redisson.Redisson;
import org.redisson.api.RedissonClient;
import org.redisson.client.codec.StringCodec;
import org.redisson.config.BaseConfig;
import org.redisson.config.BaseMasterSlaveServersConfig;
import org.redisson.config.ClusterServersConfig;
import org.redisson.config.Config;

/**
 * A client of one server, of sentinels or of a cluster, by a URL in Snib's form.
 *
 * <pre>
 *   redis://HOST              redis+sentinel://HOST,HOST/SERVICE      redis+cluster://USER:PASSWORD@HOST,HOST
 *   rediss://HOST?ca=FILE     and so on with TLS: FILE has the certificate of the only trusted authority
 *   redis+cluster://HOST?publish=classic     no sharded channels, if this Redisson has the setting
 * </pre>
 *
 * Other settings are Redisson's defaults, except the numbers of threads and connections, the interval of topology checks (a second), and time limits that a busy machine can keep: a TLS handshake is much work for a JVM that has just started, so few connections are opened at the beginning.
 */
final class Deployed {
    private static final char[] NO_SECRET = "no secret".toCharArray();

    private final boolean tls;
    private final String kind;
    private final String service;
    private final String[] login;
    private final String[] addresses;
    private final Map<String, String> options = new HashMap<>();

    private Deployed(String url) {
        String[] parts = url.split("://|\\?", 3); // scheme, place, options
        String place = parts[1];
        tls = parts[0].startsWith("rediss");
        kind = parts[0].contains("+") ? parts[0].substring(parts[0].indexOf('+') + 1) : "single";
        login = place.contains("@") ? place.substring(0, place.indexOf('@')).split(":") : new String[0];
        String[] hosts = place.substring(place.indexOf('@') + 1).split("/");
        service = hosts.length > 1 ? hosts[1] : "";
        addresses = Arrays.stream(hosts[0].split(","))
                .map(host -> (tls ? "rediss://" : "redis://") + host).toArray(String[]::new);
        for (String option : parts.length > 2 ? parts[2].split("&") : new String[0]) {
            options.put(option.substring(0, option.indexOf('=')), option.substring(option.indexOf('=') + 1));
        }
    }

    static RedissonClient open(String url, long watchdog) throws Exception {
        Config config = new Config();
        config.setCodec(StringCodec.INSTANCE).setLockWatchdogTimeout(watchdog);
        config.setThreads(4).setNettyThreads(4);
        new Deployed(url).fill(config);
        return Redisson.create(config);
    }

    private void fill(Config config) throws Exception {
        BaseConfig<?> base;
        switch (kind) {
            case "sentinel":
                base = few(config.useSentinelServers().setMasterName(service).addSentinelAddress(addresses));
                break;
            case "cluster":
                ClusterServersConfig cluster = config.useClusterServers().addNodeAddress(addresses);
                if ("classic".equals(options.get("publish"))) {
                    speakClassic(cluster);
                }
                base = few(cluster.setScanInterval(1000));
                break;
            default:
                base = config.useSingleServer().setAddress(addresses[0])
                        .setConnectionMinimumIdleSize(3).setConnectionPoolSize(3)
                        .setSubscriptionConnectionMinimumIdleSize(1);
        }
        base.setSubscriptionsPerConnection(50);
        base.setConnectTimeout(30_000).setTimeout(15_000);
        if (login.length > 0) {
            base.setUsername(login[0]).setPassword(login[1]);
        }
        if (options.containsKey("ca")) {
            base.setSslTruststore(trusting(Path.of(options.get("ca"))).toUri().toURL());
            base.setSslTruststorePassword(new String(NO_SECRET));
        }
    }

    private static <T extends BaseMasterSlaveServersConfig<T>> T few(T config) {
        return config.setMasterConnectionMinimumIdleSize(3).setMasterConnectionPoolSize(3)
                .setSlaveConnectionMinimumIdleSize(1).setSlaveConnectionPoolSize(2)
                .setSubscriptionConnectionMinimumIdleSize(1);
    }

    /** Since 3.29.0; before that Redisson only asks the server for its capabilities. */
    private static void speakClassic(ClusterServersConfig cluster) throws Exception {
        for (java.lang.reflect.Method method : ClusterServersConfig.class.getMethods()) {
            if (method.getName().equals("setShardedSubscriptionMode")) {
                method.invoke(cluster, method.getParameterTypes()[0].getMethod("valueOf", String.class)
                        .invoke(null, "OFF"));
            }
        }
    }

    /** Java requires its own kind of trust store. */
    private static Path trusting(Path certificate) throws Exception {
        KeyStore store = KeyStore.getInstance("PKCS12");
        store.load(null, null);
        try (InputStream in = Files.newInputStream(certificate)) {
            store.setCertificateEntry("ca", CertificateFactory.getInstance("X.509").generateCertificate(in));
        }
        Path path = Files.createTempFile(certificate.toAbsolutePath().getParent(), "trust", ".p12");
        try (OutputStream out = Files.newOutputStream(path)) {
            store.store(out, NO_SECRET);
        }
        return path;
    }
}
