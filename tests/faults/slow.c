/* slow.c - lines that pass on single bytes, a kilobyte a second, or everything late: by half a lease, or by more; and
 * lines that lose packets.
 *
 * No reply is taken for another's; the lease counts from before the request left; and a grant that comes too late is not
 * given out.
 */
#include "../support/support.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <linux/filter.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>

enum {
    PAIRS = 20,
    THREADS = 4,
    LEASE_MS = 8000,
    SHORT_MS = 1000,
    LONG_MS = 60000,
    SOON_MS = 10000
};

struct world {
    struct server server;
    struct proxy *proxy;
    snib_client *client;
};

static int world_new(void **state)
{
    static struct world world;
    snib_client_options options;
    server_start(&world.server, NULL);
    world.proxy = proxy_start(world.server.socket);
    snib_client_options_init(&options, sizeof options);
    options.reply_timeout_ms = options.patience_ms = LONG_MS;
    options.try_timeout_ms = LONG_MS;
    EXPECT(snib_client_open(proxy_url(world.proxy), &options, &world.client, err), SNIB_OK);
    *state = &world;
    return 0;
}

static int world_free(void **state)
{
    struct world *world = *state;
    snib_client_free(world->client);
    proxy_stop(world->proxy);
    server_stop(&world->server);
    return 0;
}

/* ---- In pieces ----------------------------------------------------------------------------------- */

/* Locks that are held and others that are not, asked about in one pipeline: each gets its own reply. */
static void ask_about_many(struct world *world)
{
    snib_hold *holds[PAIRS];
    snib_lock *locks[PAIRS], *others[PAIRS];
    snib_queue *queue = must_queue(world->client);
    char name[32];
    for (int i = 0; i < PAIRS; i++) {
        snprintf(name, sizeof name, "held:%d", i);
        locks[i] = must_lock(world->client, name);
        snprintf(name, sizeof name, "free:%d", i);
        others[i] = must_lock(world->client, name);
        EXPECT(snib_lock_acquire_submit(locks[i], 0, -1, queue, (uint64_t)i, NULL, err), SNIB_OK);
    }
    for (int i = 0; i < PAIRS; i++) {
        snib_event event = must_event(queue, LONG_MS);
        assert_int_equal(event.code, SNIB_OK);
        holds[event.token] = event.hold;
    }
    for (int i = 0; i < PAIRS; i++) {
        snib_lock_info_data held = {.size = sizeof held}, not_held = {.size = sizeof not_held};
        EXPECT(snib_lock_info(locks[i], &held, err), SNIB_OK);
        EXPECT(snib_lock_info(others[i], &not_held, err), SNIB_OK);
        assert_true(held.held && held.mine && !not_held.held);
    }
    for (int i = 0; i < PAIRS; i++)
        EXPECT(snib_hold_release_submit(holds[i], queue, (uint64_t)i, NULL, err), SNIB_OK);
    for (int i = 0; i < PAIRS; i++)
        assert_int_equal(must_event(queue, LONG_MS).code, SNIB_OK);
    for (int i = 0; i < PAIRS; i++) {
        snib_hold_free(holds[i]);
        snib_lock_free(locks[i]);
        snib_lock_free(others[i]);
    }
    snib_queue_free(queue);
    assert_true(server_is_empty(&world->server));
    assert_int_equal(must_stats(world->client).reconnects, 0);
}

static void one_byte_at_a_time(void **state)
{
    struct world *world = *state;
    proxy_slice(world->proxy, 1, 0);
    ask_about_many(world);
}

/* Scripts are longer than a second's worth. */
static void thin_line(void **state)
{
    struct world *world = *state;
    proxy_slice(world->proxy, 8, 8000);
    int64_t start = now_ms();
    snib_lock *lock = must_lock(world->client, "thin");
    must_release(must_acquire(lock, LONG_MS));
    assert_true(now_ms() - start > 1000);
    snib_lock *fixed = must_lock_lease(world->client, "thin", LEASE_MS, -1);
    snib_hold *hold = NULL;
    int64_t before = now_ms();
    while (!hold) /* it may be too late for its lease */
        before = now_ms(), (void)snib_lock_acquire(fixed, 0, LONG_MS, &hold, NULL);
    int64_t took_ms = now_ms() - before;
    assert_true(snib_hold_remaining_ms(hold) <= LEASE_MS - took_ms);
    (void)snib_hold_release(hold, NULL);
    snib_hold_free(hold);
    expect_free(&world->server, "thin");
    snib_lock_free(fixed);
    snib_lock_free(lock);
}

/* ---- Late ---------------------------------------------------------------------------------------- */

/* What a release answers: that the lock is free now, and not because its lease has ended; or that the hold was lost,
 * which it may be no sooner than almost a lease after it was asked for. */
static void expect_release(struct world *world, snib_hold *hold, const char *name, int64_t asked_ms)
{
    long long expired = server_expired(&world->server);
    snib_error error = {0};
    int code = snib_hold_release(hold, &error);
    if (code == SNIB_LOST && now_ms() - asked_ms >= LEASE_MS * 9 / 10)
        return;
    expect_code_at(code, SNIB_OK, &error, __FILE__, __LINE__);
    expect_free(&world->server, name);
    assert_int_equal(server_expired(&world->server), expired);
}

/* A lease whose grant was on its way for half of it has the other half left. */
static void half_a_lease_late(void **state)
{
    struct world *world = *state;
    snib_lock *lock = must_lock_lease(world->client, "late", LEASE_MS, -1);
    must_release(must_acquire(lock, SOON_MS)); /* the scripts are there */
    for (int to = TO_SERVER; to <= TO_CLIENT; to++) {
        proxy_delay(world->proxy, (enum direction)to, LEASE_MS / 2);
        snib_hold *hold = NULL;
        int64_t asked_ms = 0;
        while (!hold) /* if the machine adds too much, it is too late */
            asked_ms = now_ms(), (void)snib_lock_acquire(lock, 0, LONG_MS, &hold, NULL);
        assert_true(snib_hold_remaining_ms(hold) <= LEASE_MS / 2);
        proxy_delay(world->proxy, (enum direction)to, 0);
        expect_release(world, hold, "late", asked_ms);
        snib_hold_free(hold);
        AWAIT(server_integer(&world->server, "EXISTS late") == 0, LEASE_MS);
    }
    snib_lock_free(lock);
}

/* Grants come when their leases have ended: none is given out. */
static void later_than_the_lease(void **state)
{
    struct world *world = *state;
    snib_lock *lock = must_lock_lease(world->client, "late", SHORT_MS, -1);
    must_release(must_acquire(must_lock(world->client, "first"), SOON_MS));
    for (int to = TO_SERVER; to <= TO_CLIENT; to++) {
        proxy_delay(world->proxy, (enum direction)to, 2 * SHORT_MS);
        for (int wait_ms = 0; wait_ms <= 5 * SHORT_MS; wait_ms += 5 * SHORT_MS) {
            snib_hold *hold = NULL;
            int code = snib_lock_acquire(lock, 0, wait_ms, &hold, NULL);
            if (code == SNIB_OK)
                fail_msg("given out with %d ms left", (int)snib_hold_remaining_ms(hold));
            assert_null(hold);
        }
        proxy_delay(world->proxy, (enum direction)to, 0);
        AWAIT(server_integer(&world->server, "EXISTS late") == 0, SOON_MS);
        must_release(must_acquire(must_lock(world->client, "late"), SOON_MS));
    }
    snib_lock_free(lock);
}

/* ---- With losses --------------------------------------------------------------------------------- */

struct lossy {
    unsigned percent;
    unsigned repeated; /* packets that TCP has sent again so far */
    bool impossible;
};

/* Have one socket drop incoming packets at random. */
static void lose_at(struct lossy *lossy, int fd)
{
    unsigned limit = UINT32_MAX / 100 * lossy->percent;
    struct sock_filter code[] = {
        {BPF_LD | BPF_W | BPF_ABS, 0, 0, (unsigned)(SKF_AD_OFF + SKF_AD_RANDOM)},
        {BPF_JMP | BPF_JGE | BPF_K, 0, 1, limit},
        {BPF_RET | BPF_K, 0, 0, UINT32_MAX},
        {BPF_RET | BPF_K, 0, 0, 0}};
    struct sock_fprog program = {sizeof code / sizeof *code, code};
    lossy->impossible |=
        setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof program) != 0;
}

/* The same for all TCP sockets of this process: both ends of each connection to the proxy. */
static void lose(struct lossy *lossy)
{
    DIR *dir = opendir("/proc/self/fd");
    lossy->repeated = 0;
    for (struct dirent *entry; (entry = readdir(dir));) {
        struct sockaddr_storage at;
        struct tcp_info info = {0};
        socklen_t n = sizeof at, info_n = sizeof info;
        int fd = atoi(entry->d_name);
        if (getsockname(fd, (struct sockaddr *)&at, &n) != 0 || at.ss_family != AF_INET)
            continue;
        lose_at(lossy, fd);
        (void)getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &info_n);
        lossy->repeated += info.tcpi_total_retrans;
    }
    closedir(dir);
}

/* A renewed hold is kept, and two clients, one of them on the lossy line, exclude each other. */
static void packets_are_lost(void **state)
{
    static const struct {
        unsigned percent;
        int pairs;
    } steps[] = {{1, 50}, {10, 20}, {30, 5}};
    struct world *world = *state;
    snib_client *rival = must_open(world->server.url);
    snib_lock *ours = must_lock(world->client, "shared"), *theirs = must_lock(rival, "shared");
    snib_hold *kept = must_acquire(must_lock(world->client, "kept"), 0);
    struct lossy lossy = {0};
    unsigned repeated = 0;
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
        lossy.percent = steps[i].percent;
        for (int pair = 0; pair < steps[i].pairs; pair++) {
            lose(&lossy);
            repeated = lossy.repeated > repeated ? lossy.repeated : repeated;
            snib_hold *hold = must_acquire(ours, LONG_MS), *none = NULL;
            EXPECT(snib_lock_acquire(theirs, 0, 0, &none, err), SNIB_BUSY);
            snib_op *op = NULL;
            EXPECT(snib_lock_acquire_submit(theirs, 0, LONG_MS, NULL, 0, &op, err), SNIB_OK);
            must_release(hold);
            must_release(must_end(op, LONG_MS).hold);
        }
    }
    if (lossy.impossible)
        skip_because("no filter can be attached to a socket here");
    print_message("          %u packets were sent again\n", repeated);
    assert_true(repeated > 0);
    EXPECT(snib_hold_check(kept, err), SNIB_OK);
    must_release(kept);
    assert_true(server_is_empty(&world->server));
    snib_lock_free(ours);
    snib_lock_free(theirs);
    snib_client_free(rival);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, world_new, world_free)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(one_byte_at_a_time),   TEST(thin_line),        TEST(half_a_lease_late),
        TEST(later_than_the_lease), TEST(packets_are_lost),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
