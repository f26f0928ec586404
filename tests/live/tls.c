/* tls.c - locks over TLS: refusals have their own errors and come in time; cut, stalled or damaged
 * connections are retried; certificates and authorities that are replaced on disk are used from the
 * next connection on. */
#include "../support/support.h"

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { LONG_MS = 20000 };

static struct server server;

static int world_new(void **state)
{
    (void)state;
    server_start(&server, NULL);
    return 0;
}

static int world_free(void **state)
{
    (void)state;
    server_stop(&server);
    return 0;
}

/* The server presents another certificate from the next connection on. */
static void present(const char *name)
{
    server_do(&server, "CONFIG SET tls-cert-file %s/%s.crt tls-key-file %s/%s.key", server_certs(),
              name, server_certs(), name);
}

static int fresh(void **state)
{
    (void)state;
    server_do(&server, "CONFIG SET tls-auth-clients no"); /* whatever an earlier test left */
    present("server");
    server_do(&server, "FLUSHALL");
    return 0;
}

/* "rediss://localhost:PORT" and options, where %s is the folder of the certificates. */
static const char *url_at(int port, const char *options)
{
    static char url[512];
    const char *c = server_certs();
    int n = snprintf(url, sizeof url, "rediss://localhost:%d%s", port, options[0] ? "?" : "");
    snprintf(url + n, sizeof url - (size_t)n, options, c, c, c);
    return url;
}

static const char *url_with(const char *options)
{
    return url_at(server.tls_port, options);
}

/* Where a silent peer is to cost little time; 0: the defaults. */
struct haste {
    int64_t lease_ms, connect_ms;
};

static snib_client *open_hasty(const char *url, int64_t patience_ms, struct haste haste)
{
    snib_client_options options;
    snib_client *client = NULL;
    snib_client_options_init(&options, sizeof options);
    options.lease_ms = haste.lease_ms;
    options.patience_ms = patience_ms;
    options.try_timeout_ms = patient_ms(1000); /* a wait of 0 fails only if it is busy */
    options.connect_timeout_ms = haste.connect_ms;
    EXPECT(snib_client_open(url, &options, &client, err), SNIB_OK);
    return client;
}

static snib_client *open_with(const char *url, int64_t patience_ms)
{
    return open_hasty(url, patience_ms, (struct haste){0});
}

/* Refused at once, however patient the client is, for each waiter. */
static void refused(const char *url, int32_t code, const char *says)
{
    snib_error error = {0};
    snib_hold *hold = NULL;
    snib_client *client = open_with(url, 600000);
    snib_lock *lock = must_lock(client, "x");
    snib_queue *queue = must_queue(client);
    int64_t start = now_ms();
    EXPECT(snib_lock_acquire_submit(lock, 0, -1, queue, 1, NULL, err), SNIB_OK);
    assert_int_equal(snib_lock_acquire(lock, 0, -1, &hold, &error), code);
    print_message("          %s\n", error.text);
    assert_non_null(strstr(error.text, says));
    assert_non_null(strstr(error.text, "mutex \"x\": "));
    assert_int_equal(must_event(queue, LONG_MS).code, code);
    assert_true(now_ms() - start < 60000);
    assert_false(snib_code_is(code, SNIB_IS_RETRYABLE));
    snib_queue_free(queue);
    snib_lock_free(lock);
    snib_client_free(client);
    assert_true(server_is_empty(&server)); /* it never got that far */
}

static void certificates(void **state)
{
    (void)state;
    static const struct {
        const char *presents, *options, *says;
    } tries[] = {
        {"expired", "tls_ca=%s/ca.crt", "has expired"},
        {"self", "tls_ca=%s/ca.crt", "is self-signed"},
        {"stranger", "tls_ca=%s/ca.crt", "not signed by the given CA"},
        {"other", "tls_ca=%s/ca.crt", "not for localhost"},
        {"server", "tls_ca=%s/strange.crt", "not signed by the given CA"},
        {"server", "", "not signed by the system's CAs"},
        {"server", "tls_ca=%s/ca.crt&tls_server_name=b.test", "not for b.test"},
        {"server", "tls_ca=%s/none", "none\" cannot be read: No such file"},
        {"server", "tls_ca=%s/ca.key", "contains no certificate"},
        {"server", "tls_ca=%s/ca.crt&tls_cert=%s/client.crt&tls_key=%s/server.key",
         "does not match"},
    };
    for (size_t i = 0; i < sizeof tries / sizeof tries[0]; i++) {
        present(tries[i].presents);
        refused(url_with(tries[i].options), SNIB_ETLS, tries[i].says);
    }
    present("server");
}

static void client_certificates(void **state)
{
    (void)state;
    server_do(&server, "CONFIG SET tls-auth-clients yes");
    refused(url_with("tls_ca=%s/ca.crt"), SNIB_ETLS, "requires a client certificate");
    refused(url_with("tls_ca=%s/ca.crt&tls_cert=%s/stranger.crt&tls_key=%s/stranger.key"),
            SNIB_ETLS, "refuses the client certificate");
    refused(url_with("tls_ca=%s/ca.crt&tls_cert=%s/client.crt&tls_key=%s/client.enc&"
                     "tls_key_password=tweety"),
            SNIB_ETLS, "does not open");
    static const char *const good[] = {
        "tls_ca=%s/ca.crt&tls_cert=%s/client.crt&tls_key=%s/client.key",
        "tls_ca=%s/ca.crt&tls_cert=%s/client.crt&tls_key=%s/client.enc&tls_key_password=canary"};
    for (int i = 0; i < 2; i++) {
        snib_client *client = open_with(url_with(good[i]), LONG_MS);
        must_release(must_acquire(must_lock(client, "x"), 0));
        snib_client_free(client);
    }
    server_do(&server, "CONFIG SET tls-auth-clients no");
}

static void accepted(void **state)
{
    (void)state;
    static const struct {
        const char *presents, *options;
    } tries[] = {{"server", "tls_ca=%s/cas"},
                 {"other", "tls_ca=%s/ca.crt&tls_server_name=elsewhere.test"},
                 {"self", "tls_ca=%s/self.crt"},
                 {"expired", "tls_insecure=yes"}};
    for (size_t i = 0; i < sizeof tries / sizeof tries[0]; i++) {
        present(tries[i].presents);
        snib_client *client = open_with(url_with(tries[i].options), LONG_MS);
        must_release(must_acquire(must_lock(client, "x"), 0));
        snib_client_free(client);
    }
    present("server");
}

/* Insecure connections are logged once, however many there are. */
static void insecure_is_told(void **state)
{
    (void)state;
    snib_client *client = open_with(url_with("tls_insecure=yes"), LONG_MS);
    snib_queue *queue = must_queue(client);
    EXPECT(snib_client_log(client, queue, SNIB_LOG_WARNING, err), SNIB_OK);
    for (int i = 0; i < 3; i++) {
        must_release(must_acquire(must_lock(client, "x"), LONG_MS));
        server_do(&server, "CLIENT KILL TYPE normal SKIPME yes");
    }
    int told = 0;
    snib_event event = {.size = sizeof event};
    while (snib_queue_drain(queue, &event, 1, NULL) == 1)
        told += event.kind == SNIB_EVENT_LOG && strstr(event.text, "tls_insecure") != NULL;
    assert_int_equal(told, 1);
    snib_queue_free(queue);
    snib_client_free(client);
}

/* The authority's file is replaced while a lock is held: the next connection uses the new one, and
 * while that does not match, the hold lives on with its connection. */
static void renewed_on_disk(void **state)
{
    (void)state;
    char command[512];
    const char *c = server_certs();
    snprintf(command, sizeof command, "cp %s/strange.crt %s/trusted.crt", c, c);
    assert_int_equal(system(command), 0);
    refused(url_with("tls_ca=%s/trusted.crt"), SNIB_ETLS, "not signed by");
    snib_client *client = open_with(url_with("tls_ca=%s/trusted.crt"), LONG_MS);
    snib_lock *lock = must_lock(client, "x");
    snib_hold *hold = NULL;
    EXPECT(snib_lock_acquire(lock, 0, 0, &hold, err), SNIB_ETLS);
    snprintf(command, sizeof command, "cp %s/ca.crt %s/trusted.crt", c, c);
    assert_int_equal(system(command), 0);
    hold = must_acquire(lock, LONG_MS);
    present("again"); /* another key of the same name and CA: trusted */
    server_do(&server, "CLIENT KILL TYPE normal SKIPME yes");
    must_release(must_acquire(must_lock(client, "y"), LONG_MS));
    EXPECT(snib_hold_check(hold, err), SNIB_OK);
    must_release(hold);
    present("server");
    snib_client_free(client);
}

/* A file takes the place of another in one step, as whoever renews certificates has to. */
static void replace(const char *from, const char *to)
{
    char command[512];
    const char *c = server_certs();
    snprintf(command, sizeof command, "cp %s/%s %s/%s.new && mv %s/%s.new %s/%s", c, from, c, to, c,
             to, c, to);
    assert_int_equal(system(command), 0);
}

/* The client's own certificate and key are read at each connect, too. */
static void own_renewed_on_disk(void **state)
{
    (void)state;
    server_do(&server, "CONFIG SET tls-auth-clients yes");
    replace("client.crt", "mine.crt");
    replace("client.key", "mine.key");
    struct haste patient = {.lease_ms = 60000};
    const char *url = url_with("tls_ca=%s/ca.crt&tls_cert=%s/mine.crt&tls_key=%s/mine.key");
    snib_client *client = open_hasty(url, LONG_MS, patient);
    snib_hold *hold = must_acquire(must_lock(client, "x"), LONG_MS), *none;
    replace("stranger.crt", "mine.crt");
    replace("stranger.key", "mine.key");
    server_do(&server, "CLIENT KILL TYPE normal SKIPME yes");
    AWAIT(snib_hold_state(hold, NULL) != SNIB_HOLD_VALID, LONG_MS);
    EXPECT(snib_lock_acquire(must_lock(client, "y"), 0, -1, &none, err), SNIB_ETLS);
    replace("again.crt", "mine.crt"); /* another key, of the CA that the server trusts */
    replace("again.key", "mine.key");
    AWAIT(snib_client_ping(client, -1, NULL) == SNIB_OK, LONG_MS);
    must_release(must_acquire(must_lock(client, "y"), LONG_MS));
    must_be_valid(hold, LONG_MS);
    must_release(hold);
    snib_client_free(client);
    server_do(&server, "CONFIG SET tls-auth-clients no");
}

/* Another server is in the place of the one that was trusted: nothing is sent to it, what needs a server is told why, and the
 * hold lives on until its deadline, and beyond if the right one is back by then. */
static void certificate_that_turns_bad(void **state)
{
    (void)state;
    struct haste patient = {.lease_ms = 60000};
    snib_client *client = open_hasty(url_with("tls_ca=%s/ca.crt"), LONG_MS, patient);
    snib_hold *hold = must_acquire(must_lock(client, "x"), 0), *none;
    snib_error error = {0};
    present("stranger");
    server_do(&server, "CLIENT KILL TYPE normal SKIPME yes");
    AWAIT(snib_hold_state(hold, NULL) == SNIB_HOLD_AT_RISK, LONG_MS);
    assert_int_equal(snib_lock_acquire(must_lock(client, "y"), 0, -1, &none, &error), SNIB_ETLS);
    assert_non_null(strstr(error.text, "not signed by the given CA"));
    assert_int_equal(server_integer(&server, "EXISTS y"), 0);
    EXPECT(snib_hold_check(hold, err), SNIB_OK);
    present("server");
    AWAIT(snib_hold_state(hold, NULL) == SNIB_HOLD_VALID, LONG_MS);
    must_release(must_acquire(must_lock(client, "y"), LONG_MS));
    must_release(hold);
    snib_client_free(client);
}

/* ---- A faulty network path ------------------------------------------------------------------- */

enum fault { NONE, MUTE, ANCIENT, PLAIN, CUT, DAMAGE, STALL, FLOOD };

/* TCP in front of the server's TLS port; one thread, any number of links. */
static struct {
    _Atomic int fault;
    _Atomic int64_t after; /* after this many bytes towards the client */
    _Atomic int accepted, happened;
    _Atomic int flooded; /* links whose client took a whole flood */
    _Atomic bool stop;
    int fd, port;
    pthread_t thread;
} way;

enum { LINKS = 16 };

static bool say(int fd, const char *bytes, size_t n)
{
    for (size_t done = 0; done < n;) {
        ssize_t now = send(fd, bytes + done, n - done, MSG_NOSIGNAL);
        if (now <= 0)
            return false;
        done += (size_t)now;
    }
    return true;
}

/* Records that need no key, until the client has had enough; not for ever, because a client that never has would hang. */
static void flood(int fd)
{
    enum { RECORDS = 4096, TIMES = 2000 };
    static char records[RECORDS][9];
    for (int i = 0; i < RECORDS; i++)
        memcpy(records[i], "\x16\x03\x03\0\4\0\0\0\0", 9); /* HelloRequest, which has no content */
    for (int i = 0; i < TIMES; i++)
        if (!say(fd, records[0], sizeof records))
            return;
    way.flooded++;
}

/* From the server to the client, with the fault.  False: the link has ended. */
static bool way_pass(int from, int to, bool to_client)
{
    char bytes[8192];
    ssize_t n = recv(from, bytes, sizeof bytes, 0);
    int fault = way.fault;
    if (n <= 0 || to < 0) /* the other end is gone */
        return n > 0;
    if (to_client && (fault == CUT || fault == DAMAGE)) {
        int64_t left = atomic_fetch_sub(&way.after, n);
        if (left < n) {
            way.fault = NONE;
            way.happened++;
            if (fault == CUT) {
                say(to, bytes, (size_t)left);
                return false;
            }
            bytes[left] ^= 0x20;
        }
    }
    say(to, bytes, (size_t)n);
    return true;
}

static int way_connect(void)
{
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_port = htons((uint16_t)server.tls_port),
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&address, sizeof address), 0);
    return fd;
}

static void way_accept(int pair[2])
{
    char bytes[512];
    pair[0] = accept(way.fd, NULL, NULL);
    pair[1] = -1;
    way.accepted++;
    switch (way.fault) {
    case MUTE:
        return;
    case ANCIENT: /* a TLS 1.1 server's reply to a TLS 1.2 client: the alert protocol_version */
        (void)!recv(pair[0], bytes, sizeof bytes, 0);
        say(pair[0], "\x15\x03\x01\0\x02\x02\x46", 7);
        return;
    case PLAIN:
        (void)!recv(pair[0], bytes, sizeof bytes, 0);
        say(pair[0], "-ERR unknown command\r\n", 22);
        return;
    case FLOOD:
        (void)!recv(pair[0], bytes, sizeof bytes, 0);
        flood(pair[0]);
        return;
    default:
        pair[1] = way_connect();
    }
}

static void *way_main(void *argument)
{
    int pairs[LINKS][2], n = 0;
    (void)argument;
    while (!way.stop) {
        struct pollfd polls[2 * LINKS + 1] = {{.fd = way.fd, .events = POLLIN}};
        for (int i = 0; i < n; i++)
            for (int side = 0; side < 2; side++)
                polls[1 + 2 * i + side] = (struct pollfd){
                    .fd = way.fault == STALL ? -1 : pairs[i][side], .events = POLLIN};
        poll(polls, (nfds_t)(2 * n + 1), 20);
        for (int i = n - 1; i >= 0; i--)
            for (int side = 0; side < 2; side++) {
                if (!polls[1 + 2 * i + side].revents)
                    continue;
                if (way_pass(pairs[i][side], pairs[i][!side], side == 1))
                    continue;
                close(pairs[i][0]);
                close(pairs[i][1]);
                memmove(pairs[i], pairs[i + 1], (size_t)(--n - i) * sizeof pairs[0]);
                break;
            }
        if (polls[0].revents && n < LINKS)
            way_accept(pairs[n++]);
    }
    for (int i = 0; i < n; i++) {
        close(pairs[i][0]);
        close(pairs[i][1]);
    }
    return NULL;
}

static int way_new(void **state)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof address;
    fresh(state);
    way.fault = NONE;
    way.accepted = way.happened = way.flooded = 0;
    way.stop = false;
    way.fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(way.fd, (struct sockaddr *)&address, n), 0);
    assert_int_equal(listen(way.fd, 32), 0);
    assert_int_equal(getsockname(way.fd, (struct sockaddr *)&address, &n), 0);
    way.port = ntohs(address.sin_port);
    return pthread_create(&way.thread, NULL, way_main, NULL);
}

static int way_free(void **state)
{
    (void)state;
    way.stop = true;
    pthread_join(way.thread, NULL);
    close(way.fd);
    return 0;
}

static void peers(void **state)
{
    (void)state;
    const char *url = url_at(way.port, "tls_ca=%s/ca.crt");
    way.fault = ANCIENT;
    refused(url, SNIB_ETLS, "does not offer TLS 1.2");
    way.fault = PLAIN;
    refused(url, SNIB_ETLS, "does not speak TLS");
}

/* A silent peer costs its timeout, no more, and is retried. */
static void mute_peer(void **state)
{
    (void)state;
    snib_error error = {0};
    snib_hold *hold = NULL;
    snib_client *client =
        open_hasty(url_at(way.port, "tls_ca=%s/ca.crt"), 1500, (struct haste){.connect_ms = 600});
    way.fault = MUTE;
    /* On a slow machine the timeout may pass before the connection is made: then retry. */
    for (int i = 0; i < 20 && !strstr(error.text, "does not answer in TLS"); i++) {
        int64_t start = now_ms();
        assert_int_equal(snib_lock_acquire(must_lock(client, "x"), 0, -1, &hold, &error),
                         SNIB_ECONNECT);
        assert_true(now_ms() - start < patient_ms(1500 + 1000));
    }
    print_message("          %s\n", error.text);
    assert_non_null(strstr(error.text, "does not answer in TLS"));
    assert_true(snib_code_is(error.code, SNIB_IS_RETRYABLE));
    way.fault = NONE;
    AWAIT(snib_lock_acquire(must_lock(client, "x"), 0, LONG_MS, &hold, &error) == SNIB_OK, LONG_MS);
    must_release(hold);
    snib_client_free(client);
}

static int threads_now(void)
{
    int n = 0;
    DIR *folder = opendir("/proc/self/task");
    assert_non_null(folder);
    for (const struct dirent *entry; (entry = readdir(folder));)
        n += entry->d_name[0] != '.';
    closedir(folder);
    return n;
}

/* Copy a file into a pipe, whose reader awaits it; false: nobody reads it.  A pipe that is full has enough for its reader. */
static bool feed_pipe(const char *pipe, const char *file)
{
    char bytes[8192];
    int to = open(pipe, O_WRONLY | O_NONBLOCK | O_CLOEXEC);
    if (to < 0)
        return false;
    int from = open(file, O_RDONLY | O_CLOEXEC);
    ssize_t n = read(from, bytes, sizeof bytes);
    assert_in_range(n, 1, PIPE_BUF); /* so that a write is whole, or EAGAIN */
    ssize_t written = write(to, bytes, (size_t)n);
    assert_true(written == n || (written < 0 && errno == EAGAIN));
    close(from);
    close(to);
    return true;
}

/* A disk that hangs: the system's CAs are a pipe.  One thread reads it, however many connections are tried meanwhile, and
 * the reason is told.  What it has read at last serves the attempt that waits then. */
static void files_that_hang(void **state)
{
    (void)state;
    enum { ATTEMPTS = 6 };
    snib_error error = {0};
    snib_hold *hold = NULL;
    char pipe[128], ca[128];
    snprintf(pipe, sizeof pipe, "%s/hangs-%d", server_certs(), (int)getpid());
    snprintf(ca, sizeof ca, "%s/ca.crt", server_certs());
    assert_int_equal(mkfifo(pipe, 0600), 0);
    setenv("SSL_CERT_FILE", pipe, 1);
    const int before = threads_now();
    snib_client *client =
        open_hasty(url_at(way.port, ""), LONG_MS, (struct haste){.connect_ms = 250});
    snib_queue *queue = must_queue(client);
    snib_lock *lock = must_lock(client, "x");
    EXPECT(snib_lock_acquire_submit(lock, 0, -1, queue, 0, NULL, err), SNIB_OK);
    AWAIT(way.accepted >= ATTEMPTS, LONG_MS);
    /* The client's own, the one that reads, and perhaps one that looks the host up. */
    assert_true(threads_now() <= before + 3);
    assert_int_equal(snib_lock_acquire(lock, 0, 0, &hold, &error), SNIB_ECONNECT);
    print_message("          %s\n", error.text);
    assert_non_null(strstr(error.text, "took too long to read"));
    for (int seen = way.accepted; must_stats(client).connects == 0; seen = way.accepted) {
        AWAIT(way.accepted > seen || must_stats(client).connects > 0, LONG_MS);
        feed_pipe(pipe, ca);
    }
    assert_int_equal(must_event(queue, LONG_MS).code, SNIB_OK);
    snib_queue_free(queue);
    snib_client_free(client);
    AWAIT(!feed_pipe(pipe, ca), LONG_MS); /* what still reads has ended */
    unsetenv("SSL_CERT_FILE");
    unlink(pipe);
}

/* A peer between client and server, without any key, that never ends the handshake: it is given up, callers and the loss
 * of a hold are on time, and a client ends in the middle of it. */
static void flooding_peer(void **state)
{
    (void)state;
    snib_error error = {0};
    snib_hold *other = NULL;
    int32_t why = 0;
    snib_client *client = open_hasty(url_at(way.port, "tls_ca=%s/ca.crt"), 1500,
                                     (struct haste){.lease_ms = 1500, .connect_ms = LONG_MS});
    snib_hold *hold = must_acquire(must_lock(client, "x"), 0);
    snib_lock *lock = must_lock(client, "y");
    way.fault = FLOOD;
    server_do(&server, "CLIENT KILL TYPE normal SKIPME yes");
    int64_t start = now_ms();
    EXPECT(snib_hold_wait(hold, LONG_MS, &why, err), SNIB_LOST);
    assert_int_equal(snib_lock_acquire(lock, 0, -1, &other, &error), SNIB_ECONNECT);
    assert_true(now_ms() - start < patient_ms(1500 + 1500));
    /* on a slow machine the peer may not have sent enough by then */
    for (int i = 0; i < 10 && !strstr(error.text, "has sent more than 256 KB"); i++)
        assert_int_equal(snib_lock_acquire(lock, 0, -1, &other, &error), SNIB_ECONNECT);
    print_message("          %s\n", error.text);
    assert_non_null(strstr(error.text, "has sent more than 256 KB"));
    assert_int_equal(error.os_error, EPROTO);
    snib_hold_free(hold);
    snib_client_free(client);
    assert_int_equal(way.flooded, 0);
}

/* Cut or damaged at every place of the handshake, and of records after it: never a wrong reply,
 * always a new connection. */
static void cut_anywhere(void **state)
{
    (void)state;
    static const int faults[] = {CUT, DAMAGE};
    for (int f = 0; f < 2; f++)
        for (int64_t at = 0; at < 3000; at += count_of(17, 211)) {
            snib_client *client = open_hasty(url_at(way.port, "tls_ca=%s/ca.crt"), LONG_MS,
                                             (struct haste){.connect_ms = 1500});
            snib_lock *lock = must_lock(client, "x");
            int before = way.happened;
            way.after = at;
            way.fault = faults[f];
            for (int i = 0; i < 100 && way.happened == before; i++) {
                snib_hold *hold = NULL;
                snib_error error = {0};
                int code = snib_lock_acquire(lock, 0, LONG_MS, &hold, &error);
                if (code != SNIB_OK && code != SNIB_ETLS) /* a damaged handshake may look final */
                    fail_msg("%s: %s", snib_code_name(code), error.text);
                if (code == SNIB_OK)
                    must_release(hold);
            }
            assert_int_equal(way.happened, before + 1);
            must_release(must_acquire(lock, LONG_MS));
            snib_lock_free(lock);
            snib_client_free(client);
        }
    assert_true(server_is_empty(&server));
}

/* Nothing arrives for a while: the link is given up, and its holds survive. */
static bool survives_a_stall(void)
{
    snib_client *client =
        open_hasty(url_at(way.port, "tls_ca=%s/ca.crt"), LONG_MS, (struct haste){.lease_ms = 2000});
    snib_hold *hold = must_acquire(must_lock(client, "x"), LONG_MS);
    uint64_t before = must_stats(client).connects;
    for (int i = 0; i < 20 && must_stats(client).connects == before; i++) {
        way.fault = STALL;
        nap_us(1500000); /* a renewal, and its reply timeout; on a slow machine again */
        way.fault = NONE;
        must_release(must_acquire(must_lock(client, "y"), LONG_MS));
    }
    assert_true(must_stats(client).connects > before);
    bool survives = snib_hold_check(hold, NULL) == SNIB_OK;
    if (survives)
        must_release(hold);
    else
        snib_hold_free(hold);
    snib_client_free(client);
    return survives;
}

static void stalled(void **state)
{
    (void)state;
    for (int tries = 0; !survives_a_stall(); tries++) /* the machine may stall for a lease, too */
        assert_true(tries < 5);
}

/* ---- Load ------------------------------------------------------------------------------------ */

static struct {
    snib_client *client;
    _Atomic int errors, done;
} crowd;

static void *crowd_main(void *argument)
{
    char name[32];
    int number = *(int *)argument;
    for (int i = 0; i < count_of(2000, 200); i++) {
        snib_hold *hold = NULL;
        snprintf(name, sizeof name, "%d", i % 4 ? number : 1000);
        snib_lock *lock = must_lock(crowd.client, name);
        if (snib_lock_acquire(lock, (uint64_t)number + 1, LONG_MS, &hold, NULL) != SNIB_OK ||
            snib_hold_release(hold, NULL) != SNIB_OK)
            crowd.errors++;
        snib_hold_free(hold);
        snib_lock_free(lock);
        crowd.done++;
    }
    return NULL;
}

/* Many threads on one connection, which is closed under them now and then. */
static void many_threads(void **state)
{
    enum { THREADS = 16 };
    (void)state;
    pthread_t threads[THREADS];
    int numbers[THREADS];
    crowd.client = open_with(server.url, LONG_MS);
    for (int i = 0; i < THREADS; i++) {
        numbers[i] = i;
        assert_int_equal(pthread_create(&threads[i], NULL, crowd_main, &numbers[i]), 0);
    }
    for (int i = 1; i <= 3; i++) {
        AWAIT(crowd.done >= i * THREADS * count_of(2000, 200) / 4, 60000);
        server_do(&server, "CLIENT KILL TYPE normal SKIPME yes");
    }
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    assert_true(crowd.errors <= 3 * THREADS); /* releases whose replies were cut off */
    AWAIT(server_is_empty(&server), LONG_MS);
    snib_client_free(crowd.client);
}

/* Replies of many records, and thousands of requests in one send. */
static void long_answers(void **state)
{
    (void)state;
    enum { LOCKS = 3000 };
    static char names[1 << 20];
    char name[256];
    snib_client *client = must_open(server.url);
    snib_queue *queue = must_queue(client);
    snib_hold **holds = calloc(LOCKS, sizeof(snib_hold *));
    for (int i = 0; i < LOCKS; i++) {
        snprintf(name, sizeof name, "%0200d", i);
        snib_lock *lock = must_lock(client, name);
        EXPECT(snib_lock_acquire_submit(lock, 0, 0, queue, (uint64_t)i, NULL, err), SNIB_OK);
        snib_lock_free(lock);
    }
    for (int i = 0; i < LOCKS; i++) {
        snib_event event = must_event(queue, LONG_MS);
        assert_int_equal(event.code, SNIB_OK);
        holds[event.token] = event.hold;
    }
    uint64_t cursor = 0;
    uint32_t count, all = 0;
    do {
        size_t used;
        EXPECT(snib_client_list(client, "*", 1, &cursor, names, sizeof names, &used, &count, err),
               SNIB_OK);
        all += count;
    } while (cursor != 0);
    assert_true(all >= LOCKS);
    for (int i = 0; i < LOCKS; i++)
        EXPECT(snib_hold_release_submit(holds[i], queue, 0, NULL, err), SNIB_OK);
    for (int i = 0; i < LOCKS; i++)
        assert_int_equal(must_event(queue, LONG_MS).code, SNIB_OK);
    for (int i = 0; i < LOCKS; i++)
        snib_hold_free(holds[i]);
    free(holds);
    assert_true(server_is_empty(&server));
    snib_queue_free(queue);
    snib_client_free(client);
}

/* One round trip is one system call to send and one to receive, as without TLS. */
static void few_calls(void **state)
{
    (void)state;
    enum { TIMES = 200 };
    snib_client *client = must_open(server.url);
    snib_lock *lock = must_lock(client, "x");
    must_release(must_acquire(lock, 0));
    snib_client_stats_data before = must_stats(client);
    for (int i = 0; i < TIMES; i++)
        must_release(must_acquire(lock, 0));
    snib_client_stats_data after = must_stats(client);
    assert_in_range(after.writes - before.writes, 2 * TIMES, 2 * TIMES + 20);
    assert_in_range(after.reads - before.reads, 2 * TIMES, 2 * TIMES + 20);
    snib_lock_free(lock);
    snib_client_free(client);
}

/* ---- The end --------------------------------------------------------------------------------- */

int OPENSSL_init_ssl(uint64_t options, const void *settings);
int OPENSSL_atexit(void (*handler)(void));

/* A process that exits while it holds a lock, in which OpenSSL is shut down by its own exit
 * handler. */
static int child_main(const char *url)
{
    OPENSSL_init_ssl(0, NULL);
    must_acquire(must_lock(must_open(url), "x"), LONG_MS);
    puts("held");
    exit(0);
}

/* One whose client still reads the system's CAs, from a pipe that ends only once the exit has begun. */
static struct {
    pthread_t writer;
    sem_t torn_down;
    int pipe;
    _Atomic bool ended;
} late;

static void *late_writer(void *unused)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += 1; /* nothing else shows that the exit waits */
    sem_timedwait(&late.torn_down, &until);
    late.ended = true;
    close(late.pipe);
    return unused;
}

/* Snib was told before this handler. */
static void late_teardown(void)
{
    puts(late.ended ? "waited" : "a thread still uses OpenSSL");
    sem_post(&late.torn_down);
    pthread_join(late.writer, NULL);
}

static void late_exit(void)
{
    pthread_create(&late.writer, NULL, late_writer, NULL);
}

static int late_child_main(const char *url, const char *pipe)
{
    setenv("SSL_CERT_FILE", pipe, 1);
    sem_init(&late.torn_down, 0, 0);
    OPENSSL_init_ssl(0, NULL);
    OPENSSL_atexit(late_teardown);
    EXPECT(snib_set_exit_timeout(LONG_MS, err), SNIB_OK);
    snib_client *client = must_open(url);
    EXPECT(
        snib_lock_acquire_submit(must_lock(client, "x"), 0, -1, must_queue(client), 0, NULL, err),
        SNIB_OK);
    AWAIT((late.pipe = open(pipe, O_WRONLY | O_NONBLOCK | O_CLOEXEC)) >= 0, LONG_MS);
    atexit(late_exit);
    exit(0);
}

/* One of which a thread reads with OpenSSL while the process exits. */
static struct {
    pthread_t thread;
    _Atomic bool exits, inside;
} reader;

/* Between the core and OpenSSL, which it is to find intact. */
int SSL_read(void *ssl, void *bytes, int cap);
int SSL_read(void *ssl, void *bytes, int cap)
{
    static int (*own)(void *, void *, int);
    bool stays = reader.exits && pthread_equal(pthread_self(), reader.thread);
    if (!own)
        *(void **)&own = dlsym(RTLD_NEXT, "SSL_read");
    reader.inside = stays;
    if (stays)
        usleep(300000); /* nothing else shows that the exit waits */
    int n = own(ssl, bytes, cap);
    if (stays)
        reader.inside = false;
    return n;
}

static void *reader_main(void *client)
{
    while (snib_client_ping(client, -1, NULL) == SNIB_OK)
        ;
    for (;;) /* the thread is not to end beside the process: OpenSSL cleans up after threads */
        pause();
    return NULL;
}

static void reader_teardown(void)
{
    puts(reader.inside ? "a thread still uses OpenSSL" : "waited");
}

static void reader_exit(void)
{
    reader.exits = true;
    AWAIT(reader.inside, LONG_MS);
}

static int reader_child_main(const char *url, int64_t timeout_ms)
{
    OPENSSL_init_ssl(0, NULL);
    OPENSSL_atexit(reader_teardown);
    EXPECT(snib_set_exit_timeout(timeout_ms, err), SNIB_OK);
    snib_client *client = must_open(url);
    EXPECT(snib_client_ping(client, -1, err), SNIB_OK);
    assert_int_equal(pthread_create(&reader.thread, NULL, reader_main, client), 0);
    pthread_detach(reader.thread);
    atexit(reader_exit);
    exit(0);
}

/* Start this program as a child; its one line must be this one. */
static void child_says(const char *url, const char *says)
{
    char self[128], line[64] = "";
    snprintf(self, sizeof self, "exec /proc/%d/exe", (int)getpid());
    setenv("SNIB_TEST_CHILD", url, 1);
    FILE *child = popen(self, "r");
    assert_non_null(child);
    assert_non_null(fgets(line, sizeof line, child));
    assert_string_equal(line, says);
    assert_int_equal(pclose(child), 0);
    unsetenv("SNIB_TEST_CHILD");
}

static void end_of_a_process(void **state)
{
    (void)state;
    for (int i = 0; i < 5; i++) {
        child_says(server.url, "held\n");
        assert_true(server_is_empty(&server));
    }
}

static void end_while_files_are_read(void **state)
{
    (void)state;
    char pipe[128];
    snprintf(pipe, sizeof pipe, "%s/late-%d", server_certs(), (int)getpid());
    assert_int_equal(mkfifo(pipe, 0600), 0);
    setenv("SNIB_TEST_PIPE", pipe, 1);
    child_says(url_with(""), "waited\n");
    unsetenv("SNIB_TEST_PIPE");
    unlink(pipe);
}

static void end_while_a_thread_reads(void **state)
{
    (void)state;
    static const char *const timeouts[] = {"0", "20000"};
    for (size_t i = 0; i < sizeof timeouts / sizeof *timeouts; i++) {
        setenv("SNIB_TEST_READER", timeouts[i], 1);
        child_says(server.url, "waited\n");
    }
    unsetenv("SNIB_TEST_READER");
}

#define TEST(name) cmocka_unit_test_setup(name, fresh)
#define WAY_TEST(name) cmocka_unit_test_setup_teardown(name, way_new, way_free)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(certificates),
        TEST(client_certificates),
        TEST(accepted),
        TEST(insecure_is_told),
        TEST(renewed_on_disk),
        TEST(own_renewed_on_disk),
        TEST(certificate_that_turns_bad),
        WAY_TEST(peers),
        WAY_TEST(mute_peer),
        WAY_TEST(files_that_hang),
        WAY_TEST(flooding_peer),
        WAY_TEST(cut_anywhere),
        WAY_TEST(stalled),
        TEST(many_threads),
        TEST(long_answers),
        TEST(few_calls),
        TEST(end_of_a_process),
        TEST(end_while_files_are_read),
        TEST(end_while_a_thread_reads),
    };
    if (getenv("SNIB_TEST_CHILD") && getenv("SNIB_TEST_PIPE"))
        return late_child_main(getenv("SNIB_TEST_CHILD"), getenv("SNIB_TEST_PIPE"));
    if (getenv("SNIB_TEST_CHILD") && getenv("SNIB_TEST_READER"))
        return reader_child_main(getenv("SNIB_TEST_CHILD"), atoi(getenv("SNIB_TEST_READER")));
    if (getenv("SNIB_TEST_CHILD"))
        return child_main(getenv("SNIB_TEST_CHILD"));
    setenv("SNIB_TEST_TLS", "1", 1);
    return cmocka_run_group_tests(tests, world_new, world_free);
}
