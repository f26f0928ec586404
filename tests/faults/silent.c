/* silent.c - silent networks: losses are reported in time, and the client neither spins nor grows.
 *
 * CPU time is measured for the whole process and compared with the time that has passed, so a slow
 * machine does no harm.  The program resolves names itself; tests that take a network down run in a
 * network namespace, where that is permitted.
 *
 * How soon the client finds out is only bounded here.  It is judged closely in virtual time: a silent reply in
 * tests/unit/doubt.c (reply_timeout_knows_the_lease), silent messages in tests/unit/listening.c (idle_subscription_is_pinged),
 * dead addresses and resolvers in tests/driver (two_addresses, hanging_lookup), and the end of holds by the simulator.
 */
#define _GNU_SOURCE
#include "../support/support.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { LEASE_MS = 3000, CONNECT_MS = 1000, PATIENCE_MS = 3000, GROWTH = 1024 };
enum { VANISHED_MS = 16000, UNCONFIRMED_MS = 15000 }; /* docs/operations.md promises these */

static struct server server;
static int server_port;
static bool own_network;

/* ---- Names ------------------------------------------------------------------------------------- */

static const char *_Atomic names_addresses = ""; /* of every name, separated by blanks; "": none */
static _Atomic bool names_hang;
static _Atomic int names_result = EAI_NONAME; /* where there is no address */
static _Atomic int names_asked, names_asking;

struct answer {
    struct addrinfo info[4];
    struct sockaddr_in address[4];
};

int getaddrinfo(const char *host, const char *port, const struct addrinfo *hints,
                struct addrinfo **out)
{
    bool numeric = hints && (hints->ai_flags & AI_NUMERICHOST);
    struct answer *answer = calloc(1, sizeof *answer);
    char addresses[100];
    int n = 0;
    if (!numeric) {
        names_asked++;
        names_asking++;
        while (names_hang)
            nap_us(50000);
        names_asking--;
    }
    snprintf(addresses, sizeof addresses, "%s", numeric ? host : names_addresses);
    for (char *rest, *one = strtok_r(addresses, " ", &rest); one && n < 4;
         one = strtok_r(NULL, " ", &rest)) {
        answer->address[n].sin_family = AF_INET;
        answer->address[n].sin_port = htons((uint16_t)atoi(port));
        if (inet_pton(AF_INET, one, &answer->address[n].sin_addr) != 1)
            break;
        answer->info[n] = (struct addrinfo){.ai_family = AF_INET,
                                            .ai_socktype = SOCK_STREAM,
                                            .ai_addr = (struct sockaddr *)&answer->address[n],
                                            .ai_addrlen = sizeof answer->address[n]};
        if (n > 0)
            answer->info[n - 1].ai_next = &answer->info[n];
        n++;
    }
    if (n == 0) {
        free(answer);
        return names_result;
    }
    *out = answer->info;
    return 0;
}

void freeaddrinfo(struct addrinfo *addresses)
{
    free(addresses);
}

/* ---- Cost ---------------------------------------------------------------------------------------- */

struct cost {
    snib_client *client;
    int64_t wall_ns, processor_ns;
    uint64_t memory;
};

static int64_t processor_ns(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &ts);
    return (int64_t)ts.tv_sec * 1000000000 + ts.tv_nsec;
}

static struct cost cost_begin(snib_client *client)
{
    return (struct cost){client, now_ns(), processor_ns(), must_stats(client).memory};
}

static void cost_end(const struct cost *since)
{
    double share =
        (double)(processor_ns() - since->processor_ns) / (double)(now_ns() - since->wall_ns);
    uint64_t memory = must_stats(since->client).memory;
    print_message("          %.1f s, %.2f %% of a processor, %lld bytes more\n",
                  (double)(now_ns() - since->wall_ns) / 1e9, 100 * share,
                  (long long)(memory - since->memory));
    assert_true(share < 0.05);
    assert_true(memory <= since->memory + GROWTH);
}

/* ---- Addresses that swallow packets --------------------------------------------------------------- */

/* A listener with a full queue: connection attempts get no reply. */
struct swallower {
    int listener, fillers[8];
};

static void swallow(struct swallower *swallower, const char *address, int port)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    inet_pton(AF_INET, address, &at.sin_addr);
    swallower->listener = socket(AF_INET, SOCK_STREAM, 0);
    int one = 1;
    setsockopt(swallower->listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    assert_int_equal(bind(swallower->listener, (struct sockaddr *)&at, sizeof at), 0);
    assert_int_equal(listen(swallower->listener, 0), 0);
    for (int i = 0; i < 8; i++) {
        swallower->fillers[i] = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
        connect(swallower->fillers[i], (struct sockaddr *)&at, sizeof at);
    }
    nap_us(50000);
}

static void swallow_end(struct swallower *swallower)
{
    for (int i = 0; i < 8; i++)
        close(swallower->fillers[i]);
    close(swallower->listener);
}

static snib_client *open_name(const char *name)
{
    char url[64];
    snib_client_options options;
    snib_client *client = NULL;
    snib_client_options_init(&options, sizeof options);
    options.lease_ms = LEASE_MS;
    options.connect_timeout_ms = CONNECT_MS;
    options.patience_ms = PATIENCE_MS;
    snprintf(url, sizeof url, "redis://%s:%d", name, server_port);
    EXPECT(snib_client_open(url, &options, &client, err), SNIB_OK);
    return client;
}

/* A ping without a server fails when the client's patience ends. */
static void expect_nobody(snib_client *client, int want)
{
    snib_error err = {0};
    int64_t since = now_ms();
    int code = snib_client_ping(client, -1, &err);
    if (code != want)
        fail_msg("%s, expected %s: \"%s\"", snib_code_name(code), snib_code_name(want), err.text);
    assert_true(now_ms() - since <= patient_ms(PATIENCE_MS + CONNECT_MS));
}

static void swallowed(void **state)
{
    struct swallower swallower;
    (void)state;
    swallow(&swallower, "127.0.0.3", server_port);
    names_addresses = "127.0.0.3";
    snib_client *client = open_name("swallows.test");
    expect_nobody(client, SNIB_ECONNECT); /* it has its buffers */
    struct cost cost = cost_begin(client);
    for (int i = 0; i < 2; i++)
        expect_nobody(client, SNIB_ECONNECT);
    cost_end(&cost);
    snib_client_free(client);
    swallow_end(&swallower);
}

/* The first address swallows packets: the second one is soon tried, and first from then on. */
static void one_of_two(void **state)
{
    struct swallower swallower;
    (void)state;
    swallow(&swallower, "127.0.0.3", server_port);
    names_addresses = "127.0.0.3 127.0.0.1";
    snib_client *client = open_name("two.test");
    EXPECT(snib_client_ping(client, -1, err), SNIB_OK);
    snib_hold *hold = must_acquire(must_lock(client, "two"), -1);
    struct cost cost = cost_begin(client);
    for (int i = 0; i < 5; i++) {
        uint64_t connects = must_stats(client).connects;
        server_do(&server, "CLIENT KILL TYPE normal SKIPME yes");
        AWAIT(must_stats(client).connects > connects, 5000);
    }
    nap_us(3000000);
    cost_end(&cost);
    EXPECT(snib_hold_check(hold, err), SNIB_OK);
    must_release(hold);
    snib_client_free(client);
    swallow_end(&swallower);
}

/* ---- Names that do not resolve -------------------------------------------------------------------- */

static void name_that_is_gone(void **state)
{
    (void)state;
    names_addresses = "127.0.0.1";
    snib_client *client = open_name("gone.test");
    snib_hold *hold = must_acquire(must_lock(client, "gone"), -1);
    names_addresses = "";
    struct cost cost = cost_begin(client);
    server_do(&server, "CLIENT KILL TYPE normal SKIPME yes");
    int32_t reason = 0;
    EXPECT(snib_hold_wait(hold, patient_ms(2 * LEASE_MS), &reason, err), SNIB_LOST);
    assert_int_equal(reason, SNIB_REASON_UNREACHABLE);
    expect_nobody(client, SNIB_ERESOLVE);
    cost_end(&cost);
    names_addresses = "127.0.0.1";
    AWAIT(snib_client_ping(client, -1, NULL) == SNIB_OK, 10000);
    snib_hold_free(hold);
    snib_client_free(client);
}

/* The name service fails: another sentence than for a name that it does not know. */
static void resolver_that_fails(void **state)
{
    (void)state;
    snib_error error = {0};
    names_addresses = "";
    snib_client *client = open_name("fails.test");
    EXPECT(snib_client_ping(client, -1, &error), SNIB_ERESOLVE);
    assert_non_null(strstr(error.text, "the host name has no address; check the URL"));
    names_result = EAI_AGAIN;
    AWAIT(snib_client_ping(client, -1, &error) == SNIB_ERESOLVE &&
              strstr(error.text, "the lookup of the host name failed; check the name service"),
          10000);
    assert_int_equal(error.os_error, EAGAIN);
    names_addresses = "127.0.0.1";
    AWAIT(snib_client_ping(client, -1, NULL) == SNIB_OK, 10000);
    names_result = EAI_NONAME;
    snib_client_free(client);
}

static void resolver_that_hangs(void **state)
{
    (void)state;
    names_addresses = "127.0.0.1";
    names_hang = true;
    names_asked = 0;
    snib_client *client = open_name("hangs.test");
    expect_nobody(client, SNIB_ERESOLVE); /* it has its buffers */
    struct cost cost = cost_begin(client);
    for (int i = 0; i < 2; i++)
        expect_nobody(client, SNIB_ERESOLVE);
    cost_end(&cost);
    snib_error error = {0};
    EXPECT(snib_client_ping(client, -1, &error), SNIB_ERESOLVE);
    assert_non_null(strstr(error.text, "the lookup of the host name had no answer in time"));
    assert_int_equal(names_asked, 1); /* one thread, however often it is tried */
    names_hang = false;
    AWAIT(snib_client_ping(client, -1, NULL) == SNIB_OK, 10000);
    snib_client_free(client);
    AWAIT(names_asking == 0, 5000);
}

/* Another server takes over the name, at another address: the next connection is to that one. */
static void server_that_moves(void **state)
{
    struct server successor;
    char port[8];
    (void)state;
    names_addresses = "127.0.0.1";
    snib_client *client = open_name("moves.test");
    snib_lock *lock = must_lock(client, "moved");
    snib_hold *hold = must_acquire(lock, -1);
    snprintf(port, sizeof port, "%d", server_port);
    server_start(&successor, "--port", port, "--bind", "127.0.0.2", NULL);
    names_addresses = "127.0.0.2";
    struct cost cost = cost_begin(client);
    server_down(&server);
    int32_t reason = 0;
    EXPECT(snib_hold_wait(hold, patient_ms(2 * LEASE_MS), &reason, err), SNIB_LOST);
    AWAIT(snib_client_ping(client, -1, NULL) == SNIB_OK, 10000);
    nap_us(3000000);
    cost_end(&cost);
    snib_hold_free(hold);
    hold = must_acquire(lock, -1);
    assert_int_equal(server_integer(&successor, "EXISTS moved"), 1);
    must_release(hold);
    snib_lock_free(lock);
    snib_client_free(client);
    server_stop(&successor);
    server_restart(&server);
}

/* ---- What the kernel is told ----------------------------------------------------------------------- */

static int option(int fd, int level, int name)
{
    int value = -1;
    socklen_t n = sizeof value;
    assert_int_equal(getsockopt(fd, level, name, &value, &n), 0);
    return value;
}

/* When the kernel ends a connection whose idle peer is silent, in ms: with the first probe that is due when its data would
 * no longer be waited for, or after the last one. */
static int vanished_ms(int fd)
{
    int at = option(fd, IPPROTO_TCP, TCP_KEEPIDLE) * 1000;
    int limit = option(fd, IPPROTO_TCP, TCP_USER_TIMEOUT);
    int probes = option(fd, IPPROTO_TCP, TCP_KEEPCNT);
    for (int sent = 1; sent <= probes; sent++) {
        at += option(fd, IPPROTO_TCP, TCP_KEEPINTVL) * 1000;
        if (limit > 0 && at >= limit)
            break;
    }
    return at;
}

/* Sockets of this process that are connected to the server's port. */
static int connected(int fds[8])
{
    int n = 0;
    for (int fd = 3; fd < 256 && n < 8; fd++) {
        struct sockaddr_in peer = {0};
        socklen_t length = sizeof peer;
        if (getpeername(fd, (struct sockaddr *)&peer, &length) == 0 && peer.sin_family == AF_INET &&
            ntohs(peer.sin_port) == server_port)
            fds[n++] = fd;
    }
    return n;
}

/* The times that docs/operations.md promises for a half-open connection on which the client sends nothing.  Where it does,
 * it finds out sooner, see the head of this file. */
static void half_open_limits(void **state)
{
    (void)state;
    int fds[8];
    names_addresses = "127.0.0.1";
    snib_client *client = open_name("limits.test");
    snib_client *rival = must_open(server.url); /* on the unix socket */
    snib_hold *theirs = must_acquire(must_lock(rival, "limits"), -1);
    snib_queue *queue = must_queue(client);
    EXPECT(snib_lock_acquire_submit(must_lock(client, "limits"), 0, -1, queue, 1, NULL, err),
           SNIB_OK);
    AWAIT(connected(fds) == 2, 5000); /* for commands, and for messages */
    for (int i = 0; i < 2; i++) {
        assert_int_equal(option(fds[i], SOL_SOCKET, SO_KEEPALIVE), 1);
        assert_int_equal(option(fds[i], IPPROTO_TCP, TCP_USER_TIMEOUT), UNCONFIRMED_MS);
        assert_int_equal(vanished_ms(fds[i]), VANISHED_MS);
    }
    must_release(theirs);
    must_release(must_event(queue, 10000).hold);
    snib_queue_free(queue);
    snib_client_free(client);
    snib_client_free(rival);
}

/* ---- Peers that fall silent ------------------------------------------------------------------------ */

/* Its connections are accepted, by the kernel, and nothing on them is answered. */
static void server_that_stands_still(void **state)
{
    (void)state;
    names_addresses = "127.0.0.1";
    snib_client *client = open_name("still.test");
    snib_hold *hold = must_acquire(must_lock(client, "held"), -1), *got;
    struct cost cost = cost_begin(client);
    server_pause(&server);
    int32_t reason = 0;
    EXPECT(snib_hold_wait(hold, patient_ms(2 * LEASE_MS), &reason, err), SNIB_LOST);
    assert_int_equal(reason, SNIB_REASON_UNREACHABLE);
    int code = snib_lock_acquire(must_lock(client, "held"), 0, -1, &got, NULL);
    assert_true(code == SNIB_ECONNECT || code == SNIB_EUNREACHABLE);
    nap_us(3000000);
    cost_end(&cost);
    server_continue(&server);
    AWAIT(snib_client_ping(client, -1, NULL) == SNIB_OK, 10000);
    snib_hold_free(hold);
    snib_client_free(client);
}

/* Only the connection for messages is silent, and so is each that replaces it. */
static void messages_that_stop(void **state)
{
    (void)state;
    struct proxy *proxy = proxy_start(server.socket);
    snib_client *client = must_open_lease(proxy_url(proxy), LEASE_MS);
    snib_client *rival = must_open(server.url);
    snib_hold *theirs = must_acquire(must_lock(rival, "waited for"), -1);
    snib_op *waiting;
    EXPECT(snib_lock_acquire_submit(must_lock(client, "waited for"), 0, -1, NULL, 1, &waiting, err),
           SNIB_OK);
    AWAIT(must_stats(client).waiting == 1 && server_channels(&server) == 1, 5000);
    struct cost cost = cost_begin(client);
    uint64_t connects = must_stats(client).connects;
    proxy_stall_messages(proxy, true);
    for (int64_t end = now_ms() + 60000; must_stats(client).connects < connects + 3;
         nap_us(100000)) /* looking more often would cost more than the client */
        assert_true(now_ms() < end);
    cost_end(&cost);
    proxy_stall_messages(proxy, false);
    must_release(theirs);
    must_release(must_end(waiting, 10000).hold);
    snib_client_free(client);
    snib_client_free(rival);
    proxy_stop(proxy);
}

/* ---- A network that goes down --------------------------------------------------------------------- */

static void loopback(bool up)
{
    struct ifreq request = {.ifr_name = "lo"};
    int fd = socket(AF_INET, SOCK_DGRAM, 0);
    assert_int_equal(ioctl(fd, SIOCGIFFLAGS, &request), 0);
    request.ifr_flags = (short)(up ? request.ifr_flags | IFF_UP : request.ifr_flags & ~IFF_UP);
    assert_int_equal(ioctl(fd, SIOCSIFFLAGS, &request), 0);
    close(fd);
}

/* Established links whose packets vanish: no FIN, no RST. */
static void black_hole(void **state)
{
    (void)state;
    if (!own_network)
        skip_because("a network of its own is not permitted here");
    names_addresses = "127.0.0.1";
    snib_client *client = open_name("server.test");
    snib_client *rival = must_open(server.url); /* on the unix socket */
    snib_hold *theirs = must_acquire(must_lock(rival, "waited for"), -1);
    snib_hold *hold = must_acquire(must_lock(client, "held"), -1), *got;
    snib_op *waiting;
    snib_event event;
    EXPECT(snib_lock_acquire_submit(must_lock(client, "waited for"), 0, -1, NULL, 1, &waiting, err),
           SNIB_OK);
    /* It has all of its links, whose buffers count as memory. */
    AWAIT(must_stats(client).waiting == 1 && server_channels(&server) == 1, 5000);
    loopback(false);
    struct cost cost = cost_begin(client);
    int32_t reason = 0;
    EXPECT(snib_hold_wait(hold, patient_ms(2 * LEASE_MS), &reason, err), SNIB_LOST);
    assert_int_equal(reason, SNIB_REASON_UNREACHABLE);
    int code = snib_lock_acquire(must_lock(client, "held"), 0, -1, &got, NULL);
    assert_true(code == SNIB_ECONNECT || code == SNIB_EUNREACHABLE);
    nap_us(3000000);
    cost_end(&cost);
    loopback(true);
    AWAIT(snib_client_ping(client, -1, NULL) == SNIB_OK, 10000);
    must_release(theirs);
    event = must_end(waiting, 10000); /* or its patience has ended, which is just as good */
    assert_true(event.code == SNIB_OK || event.code == SNIB_EUNREACHABLE ||
                event.code == SNIB_ECONNECT);
    if (event.hold)
        must_release(event.hold);
    snib_hold_free(hold);
    snib_client_free(client);
    snib_client_free(rival);
}

/* ---- Main ------------------------------------------------------------------------------------------ */

static int start(void **state)
{
    (void)state;
    own_network = unshare(CLONE_NEWNET) == 0 || unshare(CLONE_NEWUSER | CLONE_NEWNET) == 0;
    if (own_network)
        loopback(true);
    static char port[8]; /* the server keeps its arguments */
    server_port = free_port();
    snprintf(port, sizeof port, "%d", server_port);
    server_start(&server, "--port", port, "--bind", "127.0.0.1", NULL);
    return 0;
}

static int stop(void **state)
{
    (void)state;
    server_stop(&server);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(swallowed),
        cmocka_unit_test(one_of_two),
        cmocka_unit_test(name_that_is_gone),
        cmocka_unit_test(resolver_that_fails),
        cmocka_unit_test(resolver_that_hangs),
        cmocka_unit_test(server_that_moves),
        cmocka_unit_test(black_hole),
        cmocka_unit_test(half_open_limits),
        cmocka_unit_test(server_that_stands_still),
        cmocka_unit_test(messages_that_stop),
    };
    return cmocka_run_group_tests(tests, start, stop);
}
