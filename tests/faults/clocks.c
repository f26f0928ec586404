/* clocks.c - clocks that are set while locks are held and waited for: the server's, its successor's, the client's; and
 * the client's boot clock jumps, as in a suspend.
 *
 * The servers' wall clocks are shifted by a library that is loaded into them (shift.c), the client's clocks by the
 * functions of this program that replace the C library's.
 */
#define _GNU_SOURCE
#include "../support/support.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

enum { LEASE_MS = 4500, LONG_MS = 30000, HOUR_MS = 3600000, SOON_MS = 10000 };

/* ---- The client's clocks --------------------------------------------------------------------------- */

static _Atomic int64_t wall_shift_ns, boot_shift_ns;

int clock_gettime(clockid_t clock, struct timespec *out)
{
    long result = syscall(SYS_clock_gettime, clock, out);
    int64_t shift = clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE ? wall_shift_ns
                    : clock == CLOCK_BOOTTIME                                 ? boot_shift_ns
                                                                              : 0;
    int64_t ns = (int64_t)out->tv_sec * 1000000000 + out->tv_nsec + shift;
    *out = (struct timespec){ns / 1000000000, ns % 1000000000};
    return (int)result;
}

int gettimeofday(struct timeval *restrict out, void *restrict zone)
{
    struct timespec now;
    (void)zone;
    clock_gettime(CLOCK_REALTIME, &now);
    *out = (struct timeval){now.tv_sec, now.tv_nsec / 1000};
    return 0;
}

time_t time(time_t *out)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (out)
        *out = now.tv_sec;
    return now.tv_sec;
}

/* ---- The servers' clocks --------------------------------------------------------------------------- */

struct world {
    struct server server;
    char shift[64]; /* the file by which the server's clock is set */
    snib_client *client, *rival;
};

static void set_clock(const char *shift, int64_t ahead_ms)
{
    int fd = open(shift, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    assert_int_equal(pwrite(fd, &ahead_ms, sizeof ahead_ms, 0), sizeof ahead_ms);
    close(fd);
}

/* A server whose clock can be set; skips the test if the program cannot be made to use the library. */
static void start_settable(struct server *server, char shift[64], int64_t ahead_ms,
                           const char *port)
{
    static int number;
    snprintf(shift, 64, "/tmp/snib-test-shift-%d-%d", (int)getpid(), number++);
    set_clock(shift, ahead_ms);
    setenv("LD_PRELOAD", SNIB_TEST_SHIFT, 1);
    setenv("SNIB_TEST_SHIFT", shift, 1);
    server_start(server, "--port", port, NULL);
    unsetenv("LD_PRELOAD");
    unsetenv("SNIB_TEST_SHIFT");
}

/* How far the server's clock is ahead. */
static int64_t ahead_ms(struct server *server)
{
    redisReply *reply = server_command(server, "TIME");
    int64_t there_s = strtoll(reply->element[0]->str, NULL, 10);
    freeReplyObject(reply);
    return (there_s - (int64_t)time(NULL)) * 1000;
}

static bool is_ahead(struct server *server, int64_t want_ms)
{
    int64_t error_ms = ahead_ms(server) - want_ms;
    return error_ms > -HOUR_MS / 60 && error_ms < HOUR_MS / 60;
}

static int world_free(void **state)
{
    struct world *world = *state;
    if (!world)
        return 0;
    snib_client_free(world->client);
    snib_client_free(world->rival);
    server_stop(&world->server);
    unlink(world->shift);
    return 0;
}

static int world_new(void **state)
{
    static struct world world;
    start_settable(&world.server, world.shift, HOUR_MS, "0");
    bool settable = is_ahead(&world.server, HOUR_MS);
    set_clock(world.shift, 0);
    world.client = must_open_recheck(world.server.url, LEASE_MS, 500);
    world.rival = must_open_recheck(world.server.url, LEASE_MS, 500);
    *state = &world;
    if (!settable) {
        world_free(state);
        *state = NULL;
    }
    return 0;
}

static void await_renewals(snib_client *client, uint64_t more)
{
    uint64_t before = must_stats(client).renewals;
    AWAIT(must_stats(client).renewals >= before + more, SOON_MS);
}

static snib_op *wait_for(snib_client *client, const char *name)
{
    snib_op *op = NULL;
    snib_lock *lock = must_lock(client, name);
    EXPECT(snib_lock_acquire_submit(lock, 0, -1, NULL, 0, &op, err), SNIB_OK);
    snib_lock_free(lock);
    AWAIT(must_stats(client).waiting == 1, SOON_MS);
    return op;
}

/* All leases end at the server: the holder is told at its next renewal, the waiter gets the lock, and the step has been
 * noticed. */
static void server_set_forward(void **state)
{
    struct world *world = *state;
    if (!world)
        skip_because("no library can be loaded into this server");
    snib_hold *hold = must_acquire(must_lock(world->client, "set"), 0);
    snib_op *op = wait_for(world->rival, "set");
    await_renewals(world->client, 2); /* it knows the clock */
    set_clock(world->shift, HOUR_MS);
    int32_t reason;
    EXPECT(snib_hold_wait(hold, patient_ms(LEASE_MS), &reason, err), SNIB_LOST);
    assert_true(reason == SNIB_REASON_DELETED || reason == SNIB_REASON_TAKEN);
    snib_event event = must_end(op, SOON_MS);
    assert_int_equal(event.code, SNIB_OK);
    char owner[128];
    EXPECT(snib_hold_owner(event.hold, owner, err), SNIB_OK);
    expect_held_by(&world->server, "set", owner);
    snib_hold *next = must_acquire(must_lock(world->client, "next"), 0);
    await_renewals(world->client, 2);
    assert_true(must_stats(world->client).clock_moves >= 1);
    must_be_valid(next, SOON_MS);
    must_release(next);
    must_release(event.hold);
    snib_hold_free(hold);
}

/* Leases last longer at the server: holders keep their locks, and waiters do not sleep for as long as the server says. */
static void server_set_back(void **state)
{
    struct world *world = *state;
    if (!world)
        skip_because("no library can be loaded into this server");
    snib_hold *hold = must_acquire(must_lock(world->client, "kept"), 0);
    server_do(&world->server, "EVAL %s 1 dead",
              "redis.call('hset', KEYS[1], 'somebody:1', 1) "
              "return redis.call('pexpire', KEYS[1], 60000)");
    snib_op *op = wait_for(world->rival, "dead");
    await_renewals(world->client, 2); /* it knows the clock */
    set_clock(world->shift, -HOUR_MS);
    await_renewals(world->client, 3);
    must_be_valid(hold, SOON_MS);
    assert_true(must_stats(world->client).clock_moves >= 1);
    assert_true(server_integer(&world->server, "PTTL kept") <= LEASE_MS); /* renewed since */
    assert_true(server_integer(&world->server, "PTTL dead") > HOUR_MS);   /* its owner is dead */
    server_do(&world->server, "DEL dead");                                /* without a message */
    snib_event event = must_end(op, SOON_MS);
    assert_int_equal(event.code, SNIB_OK);
    must_release(event.hold);
    must_release(hold);
}

static void point_to(const char *address, const struct server *server)
{
    unlink(address);
    assert_int_equal(symlink(server->socket, address), 0);
}

static bool ends_before(snib_hold *hold, struct server *server, const char *name)
{
    long long rest_ms = server_integer(server, "PTTL %s", name);
    return snib_hold_remaining_ms(hold) <= rest_ms;
}

/* A server and its replica, whose clock is ahead and which takes over the first one's address. */
struct succession {
    struct server first, second;
    char shift[64], address[80], url[96];
};

static void succession_begin(struct succession *it, int64_t ahead_ms)
{
    char port[8];
    snprintf(port, sizeof port, "%d", free_port());
    server_start(&it->first, "--port", port, NULL);
    start_settable(&it->second, it->shift, ahead_ms, "0");
    snprintf(it->address, sizeof it->address, "%s.address", it->shift);
    snprintf(it->url, sizeof it->url, "unix://%s", it->address);
    point_to(it->address, &it->first);
    server_do(&it->second, "REPLICAOF 127.0.0.1 %s", port);
}

/* The replica has everything, and is a master itself. */
static void succession_promote(struct succession *it)
{
    server_do(&it->first, "SET last write");
    AWAIT(server_integer(&it->second, "EXISTS last") == 1, SOON_MS);
    server_do(&it->second, "REPLICAOF NO ONE");
}

static void succession_take_over(struct succession *it)
{
    point_to(it->address, &it->second);
    server_down(&it->first);
}

static void succession_end(struct succession *it)
{
    server_stop(&it->first);
    server_stop(&it->second);
    unlink(it->address);
    unlink(it->shift);
}

/* A replica whose clock is ahead takes over the address.  A lease that has ended there is lost; a renewed one is renewed
 * at once, long before the next renewal is due, and a fixed one gets again what is left of it: neither ends there while
 * its holder believes in it. */
static void successor_is_ahead(void **state)
{
    enum { KEPT_MS = 120000, AHEAD_MS = KEPT_MS / 2 };
    if (!*state)
        skip_because("no library can be loaded into this server");
    struct succession it;
    succession_begin(&it, AHEAD_MS);
    snib_client *client = must_open_lease(it.url, KEPT_MS);
    snib_hold *renewed = must_acquire(must_lock(client, "renewed"), 0);
    snib_hold *fixed = must_acquire(must_lock_lease(client, "fixed", LONG_MS, -1), 0);
    snib_hold *longer = must_acquire(must_lock_lease(client, "longer", KEPT_MS, -1), 0);
    succession_promote(&it);
    assert_false(ends_before(longer, &it.second, "longer"));
    assert_false(
        ends_before(renewed, &it.second, "renewed")); /* for as long as it is not renewed */
    succession_take_over(&it);
    EXPECT(snib_hold_wait(fixed, patient_ms(SOON_MS), NULL, err), SNIB_LOST);
    AWAIT(ends_before(renewed, &it.second, "renewed"), SOON_MS);
    AWAIT(ends_before(longer, &it.second, "longer"), SOON_MS);
    must_be_valid(renewed, SOON_MS);
    must_be_valid(longer, SOON_MS);
    assert_true(server_integer(&it.second, "PTTL longer") <=
                KEPT_MS + SOON_MS / 10); /* and no more than that */
    must_release(longer);
    must_release(renewed);
    must_release(must_acquire(must_lock(client, "fixed"), SOON_MS));
    snib_hold_free(fixed);
    snib_client_free(client);
    succession_end(&it);
}

/* By the time that a fixed lease has ended at such a successor, its holder knows. */
static void fixed_lease_ends_earlier_there(void **state)
{
    enum { AHEAD_MS = LONG_MS / 2 };
    if (!*state)
        skip_because("no library can be loaded into this server");
    struct succession it;
    succession_begin(&it, AHEAD_MS);
    snib_client *client = must_open_lease(it.url, LEASE_MS);
    snib_hold *fixed = must_acquire(must_lock_lease(client, "fixed", LONG_MS, -1), 0);
    succession_promote(&it);
    succession_take_over(&it);
    AWAIT(server_integer(&it.second, "EXISTS fixed") == 0, 2 * LONG_MS);
    EXPECT(snib_hold_check(fixed, err), SNIB_LOST);
    snib_hold_free(fixed);
    snib_client_free(client);
    succession_end(&it);
}

/* ---- Clients --------------------------------------------------------------------------------------- */

/* Set by hours while it renews, waits, and lets limits end: nothing changes. */
static void clients_wall_clock(void **state)
{
    (void)state;
    static const int64_t shifts_h[] = {1, -1, 24, 0};
    struct server server;
    server_start(&server, NULL);
    snib_client *client = must_open_recheck(server.url, LEASE_MS, SOON_MS),
                *rival = must_open_recheck(server.url, LEASE_MS, LONG_MS);
    snib_hold *hold = must_acquire(must_lock(client, "kept"), 0);
    snib_op *op = wait_for(rival, "kept");
    for (size_t i = 0; i < sizeof shifts_h / sizeof *shifts_h; i++) {
        time_t before = time(NULL);
        wall_shift_ns = shifts_h[i] * HOUR_MS * 1000000;
        assert_int_not_equal(time(NULL) / 600, before / 600);
        int64_t start = now_ms();
        snib_hold *none = NULL;
        EXPECT(snib_lock_acquire(must_lock(rival, "kept"), 0, 300, &none, err), SNIB_TIMEDOUT);
        assert_true(now_ms() - start >= 300 && now_ms() - start < patient_ms(SOON_MS));
        await_renewals(client, 2);
        must_be_valid(hold, SOON_MS);
        assert_true(snib_hold_remaining_ms(hold) <= LEASE_MS);
        assert_int_equal(server_integer(&server, "HLEN kept"), 1);
    }
    assert_int_equal(must_stats(client).clock_moves, 0); /* the server's clock was left alone */
    must_release(hold);
    snib_event event = must_end(op, SOON_MS);
    assert_int_equal(event.code, SNIB_OK);
    must_release(event.hold);
    wall_shift_ns = 0;
    snib_client_free(client);
    snib_client_free(rival);
    server_stop(&server);
}

/* The boot clock goes on in a suspend, the monotonic clock does not.  The server says nothing any more. */
static void suspended(void **state)
{
    (void)state;
    struct server server;
    server_start(&server, NULL);
    snib_client *client = must_open_lease(server.url, LONG_MS);
    snib_queue *queue = must_queue(client);
    snib_hold *holds[2];
    for (int fixed = 0; fixed < 2; fixed++) {
        snib_lock *lock =
            must_lock_lease(client, fixed ? "fixed" : "renewed", fixed ? LONG_MS : 0, -1);
        EXPECT(snib_lock_acquire_submit(lock, 0, SOON_MS, queue, 1, NULL, err), SNIB_OK);
        holds[fixed] = must_event(queue, SOON_MS).hold;
        EXPECT(snib_hold_check(holds[fixed], err), SNIB_OK);
        snib_lock_free(lock);
    }
    server_pause(&server);
    boot_shift_ns = 2 * LONG_MS * INT64_C(1000000);
    for (int i = 0; i < 2; i++) {
        EXPECT(snib_hold_check(holds[i], err), SNIB_LOST);
        assert_int_equal(snib_hold_remaining_ms(holds[i]), 0);
        EXPECT(snib_hold_wait(holds[i], 0, NULL, err), SNIB_LOST);
    }
    for (int i = 0; i < 2; i++)
        assert_int_equal(must_event(queue, SOON_MS).kind, SNIB_EVENT_LOST);
    server_continue(&server);
    for (int i = 0; i < 2; i++) {
        EXPECT(snib_hold_check(holds[i], err), SNIB_LOST); /* whatever comes now */
        snib_hold_free(holds[i]);
    }
    snib_queue_free(queue);
    snib_client_free(client);
    server_stop(&server);
}

#define SET(name) cmocka_unit_test_setup_teardown(name, world_new, world_free)

int main(void)
{
    const struct CMUnitTest tests[] = {
        SET(server_set_forward),
        SET(server_set_back),
        SET(successor_is_ahead),
        SET(fixed_lease_ends_earlier_there),
        cmocka_unit_test(clients_wall_clock),
        cmocka_unit_test(suspended),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
