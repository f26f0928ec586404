/* tls_path.c - TLS over a faulty network path: a peer that is silent, ancient, plain or endless; files that take too long to
 * read; connections that are cut, damaged or stalled anywhere are retried. */
#include "tls.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

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

/* A disk that hangs: a file of CAs is a pipe.  One thread reads it, however many connections are tried meanwhile, the reason is
 * told, and no call waits for the disk.  What has been read at last serves the attempt that waits then. */
static void hangs(const char *url, const char *pipe)
{
    enum { ATTEMPTS = 6 };
    snib_error error = {0};
    snib_hold *hold = NULL;
    char ca[128];
    snprintf(ca, sizeof ca, "%s/ca.crt", server_certs());
    assert_int_equal(mkfifo(pipe, 0600), 0);
    const int before = threads_now();
    snib_client *client = open_hasty(url, LONG_MS, (struct haste){.connect_ms = 250});
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
    unlink(pipe);
}

static void files_that_hang(void **state)
{
    (void)state;
    char pipe[128];
    snprintf(pipe, sizeof pipe, "%s/hangs-%d", server_certs(), (int)getpid());
    setenv("SSL_CERT_FILE", pipe, 1);
    setenv("SSL_CERT_DIR", "/none",
           1); /* a slow machine reads the system's longer than an attempt lasts */
    hangs(url_at(way.port, ""), pipe);
    unsetenv("SSL_CERT_FILE");
    unsetenv("SSL_CERT_DIR");
}

/* The file has the name by which OpenSSL would look for the server's CA in the folder. */
static void folder_that_hangs(void **state)
{
    (void)state;
    char folder[128], pipe[256], options[160];
    snprintf(folder, sizeof folder, "%s/cas", server_certs());
    DIR *cas = opendir(folder);
    const struct dirent *entry;
    while ((entry = readdir(cas)) && entry->d_name[0] == '.')
        ;
    assert_non_null(entry);
    snprintf(folder, sizeof folder, "%s/hangs-%d", server_certs(), (int)getpid());
    snprintf(pipe, sizeof pipe, "%s/%s", folder, entry->d_name);
    snprintf(options, sizeof options, "tls_ca=%%s/hangs-%d", (int)getpid());
    assert_int_equal(mkdir(folder, 0700), 0);
    hangs(url_at(way.port, options), pipe);
    rmdir(folder);
    closedir(cas);
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

#define WAY_TEST(name) cmocka_unit_test_setup_teardown(name, way_new, way_free)

int main(void)
{
    const struct CMUnitTest tests[] = {
        WAY_TEST(peers),           WAY_TEST(mute_peer),
        WAY_TEST(files_that_hang), WAY_TEST(folder_that_hangs),
        WAY_TEST(flooding_peer),   WAY_TEST(cut_anywhere),
        WAY_TEST(stalled),
    };
    setenv("SNIB_TEST_TLS", "1", 1);
    return cmocka_run_group_tests(tests, world_new, world_free);
}
