/* loss.c - what takes a lock away from its holder, and how the holder learns of it.
 *
 * Each loss is reported once, with its reason, at the next renewal at the latest; another owner's
 * hold is left alone by then.
 */
#include "../support/support.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { LEASE_MS = 5000, NEXT_RENEWAL_MS = LEASE_MS / 2 };
static const char *const stranger = "0aa00000-0000-4000-8000-000000000000:1";

struct world {
    struct server server;
    snib_client *client;
    snib_queue *queue;
    snib_hold *hold;
};

/* A renewed hold of the lock "loss", with a queue that reports its loss. */
static int world_new(void **state)
{
    static struct world world;
    server_start(&world.server, NULL);
    world.client = must_open_lease(world.server.url, LEASE_MS);
    world.queue = must_queue(world.client);
    snib_lock *lock = must_lock(world.client, "loss");
    EXPECT(snib_lock_acquire_submit(lock, 0, 10000, world.queue, 77, NULL, err), SNIB_OK);
    snib_event event = must_event(world.queue, 10000);
    assert_int_equal(event.code, SNIB_OK);
    assert_true(event.remaining_ms > 0 && event.remaining_ms <= LEASE_MS);
    world.hold = event.hold;
    snib_lock_free(lock);
    *state = &world;
    return 0;
}

static int world_free(void **state)
{
    struct world *world = *state;
    snib_hold_free(world->hold);
    snib_client_free(world->client);
    server_stop(&world->server);
    return 0;
}

/* The loss is reported within limit_ms, once in every way, and by the release, too. */
static void expect_lost(struct world *world, int32_t reason, int64_t limit_ms)
{
    int32_t told = SNIB_REASON_NONE;
    EXPECT(snib_hold_wait(world->hold, patient_ms(limit_ms), &told, err), SNIB_LOST);
    assert_int_equal(told, reason);
    assert_int_equal(snib_hold_state(world->hold, &told), SNIB_HOLD_LOST);
    assert_int_equal(told, reason);
    assert_int_equal(snib_hold_remaining_ms(world->hold), 0);
    snib_event event = must_event(world->queue, 1000);
    assert_int_equal(event.kind, SNIB_EVENT_LOST);
    assert_int_equal(event.reason, reason);
    assert_int_equal(event.token, 77);
    assert_ptr_equal(event.hold, world->hold);
    snib_error error;
    assert_int_equal(snib_hold_check(world->hold, &error), SNIB_LOST);
    assert_non_null(strstr(error.text, snib_reason_text(reason)));
    assert_int_equal(snib_hold_release(world->hold, &error), SNIB_LOST);
    assert_int_equal(snib_queue_drain(world->queue, &event, 1, NULL), 0); /* once */
}

/* An owner that re-enters through another queue hears of the loss there, too, once, for each way of
 * entering. */
static void told_in_each_queue(void **state)
{
    struct world *world = *state;
    enum { QUEUES = 4, OWNER = 7 };
    snib_lock *lock = must_lock(world->client, "again");
    snib_queue *queues[QUEUES];
    snib_hold *hold = NULL;
    snib_op *op = NULL;
    for (int i = 0; i < QUEUES; i++)
        queues[i] = must_queue(world->client);
    EXPECT(snib_lock_acquire(lock, OWNER, 1000, &hold, err), SNIB_OK); /* and without a queue */
    for (int i = 0; i < 2 * QUEUES; i++) {
        snib_hold *again = NULL;
        if (i % 2) {
            EXPECT(snib_lock_acquire_begin(lock, OWNER, 0, 1000, queues[i % QUEUES],
                                           (uint64_t)i % QUEUES, &again, &op, err),
                   SNIB_OK);
        } else {
            EXPECT(snib_lock_acquire_submit(lock, OWNER, 0, queues[i % QUEUES],
                                            (uint64_t)i % QUEUES, NULL, err),
                   SNIB_OK);
            again = must_event(queues[i % QUEUES], 1000).hold;
        }
        assert_ptr_equal(again, hold);
    }
    snib_queue_free(queues[0]); /* which would be told first */
    server_do(&world->server, "DEL again");
    for (int i = 1; i < QUEUES; i++) {
        snib_event event = must_event(queues[i], NEXT_RENEWAL_MS);
        assert_int_equal(event.kind, SNIB_EVENT_LOST);
        assert_int_equal(event.reason, SNIB_REASON_DELETED);
        assert_int_equal(event.token, i);
        assert_ptr_equal(event.hold, hold);
        assert_int_equal(snib_queue_drain(queues[i], &event, 1, NULL), 0); /* once */
    }
    /* An owner that entered and leaves without fetching its events leaves nothing behind. */
    for (int i = 0; i < 2 * QUEUES + 1; i++)
        snib_hold_free(hold);
    for (int i = 1; i < QUEUES; i++)
        snib_queue_free(queues[i]);
    snib_lock_free(lock);
}

static void deleted(void **state)
{
    struct world *world = *state;
    server_do(&world->server, "DEL loss");
    expect_lost(world, SNIB_REASON_DELETED, NEXT_RENEWAL_MS);
    expect_free(&world->server, "loss"); /* and not recreated */
    assert_int_equal(must_stats(world->client).lost_deleted, 1);
}

static void flushed(void **state)
{
    struct world *world = *state;
    server_do(&world->server, "FLUSHALL");
    expect_lost(world, SNIB_REASON_DELETED, NEXT_RENEWAL_MS);
    assert_true(server_is_empty(&world->server));
}

static void taken(void **state)
{
    struct world *world = *state;
    server_do(&world->server, "EVAL %s 1 loss %s",
              "redis.call('del', KEYS[1]) redis.call('hset', KEYS[1], ARGV[1], 1) "
              "return redis.call('pexpire', KEYS[1], 30000)",
              stranger);
    expect_lost(world, SNIB_REASON_TAKEN, NEXT_RENEWAL_MS);
    expect_held_by(&world->server, "loss", stranger);
    assert_true(server_integer(&world->server, "PTTL loss") > 25000); /* must not be shortened */
    assert_int_equal(must_stats(world->client).lost_taken, 1);
}

static void overwritten_by_other_data(void **state)
{
    struct world *world = *state;
    server_do(&world->server, "SET loss precious");
    expect_lost(world, SNIB_REASON_TAKEN, NEXT_RENEWAL_MS);
    redisReply *reply = server_command(&world->server, "GET loss");
    assert_string_equal(reply->str, "precious");
    freeReplyObject(reply);
    assert_int_equal(server_integer(&world->server, "PTTL loss"), -1);
}

static void forced(void **state)
{
    struct world *world = *state;
    snib_client *other = must_open(world->server.url);
    EXPECT(snib_lock_force_release(must_lock(other, "loss"), err), SNIB_OK);
    expect_lost(world, SNIB_REASON_DELETED, NEXT_RENEWAL_MS);
    snib_client_free(other);
}

/* The restarted server is empty; the first renewal after the reconnect detects that. */
static void server_restarted(void **state)
{
    struct world *world = *state;
    server_restart(&world->server);
    expect_lost(world, SNIB_REASON_DELETED, LEASE_MS);
}

static void client_closed(void **state)
{
    struct world *world = *state;
    EXPECT(snib_client_close(world->client, -1, err), SNIB_OK);
    int32_t reason;
    assert_int_equal(snib_hold_state(world->hold, &reason), SNIB_HOLD_LOST);
    assert_int_equal(reason, SNIB_REASON_CLOSED);
    EXPECT(snib_hold_wait(world->hold, 0, &reason, err), SNIB_LOST);
    expect_free(&world->server, "loss");
    assert_int_equal(must_stats(world->client).lost_closed, 1);
}

/* Renewal continues for as long as it is allowed, far beyond one lease, and no longer. */
static void max_hold(void **state)
{
    struct world *world = *state;
    enum { MAX_HOLD_MS = 3 * LEASE_MS / 2 };
    int64_t start = now_ms();
    snib_hold *hold = must_acquire(must_lock_lease(world->client, "max", 0, MAX_HOLD_MS), 0);
    int32_t reason = 0;
    EXPECT(snib_hold_wait(hold, patient_ms(MAX_HOLD_MS), &reason, err), SNIB_LOST);
    assert_int_equal(reason, SNIB_REASON_MAX_HOLD);
    assert_true(now_ms() - start >= MAX_HOLD_MS);
    EXPECT(snib_hold_release(hold, err), SNIB_LOST);
    snib_hold_free(hold);
    AWAIT(server_integer(&world->server, "EXISTS max") == 0, LEASE_MS + 200);
}

static void fixed_lease_expires(void **state)
{
    struct world *world = *state;
    snib_hold *hold = must_acquire(must_lock_lease(world->client, "fixed", 300, 0), 0);
    int32_t reason = 0;
    AWAIT(server_integer(&world->server, "EXISTS fixed") == 0, 400);
    EXPECT(snib_hold_wait(hold, 0, &reason, err), SNIB_LOST); /* the hold ended before the key */
    assert_int_equal(reason, SNIB_REASON_EXPIRED);
    EXPECT(snib_hold_release(hold, err), SNIB_LOST);
    snib_hold_free(hold);
    assert_int_equal(must_stats(world->client).lost_expired, 1);
}

/* If a release, or the end of the last handle, finds nothing at the server, that is a loss like any
 * other. */
static void found_lost(void **state)
{
    struct world *world = *state;
    snib_client *client = must_open_lease(world->server.url, 30000);
    snib_hold *hold = must_acquire(must_lock(client, "found"), 0);
    server_do(&world->server, "DEL found");
    EXPECT(snib_hold_release(hold, err), SNIB_LOST);
    assert_int_equal(must_stats(client).lost_deleted, 1);
    snib_hold_free(hold);
    hold = must_acquire(must_lock(client, "found"), 0);
    server_do(&world->server, "DEL found");
    snib_hold_free(hold);
    AWAIT(must_stats(client).lost_deleted == 2, 10000);
    must_release(must_acquire(must_lock(client, "found"), 0));
    assert_int_equal(must_stats(client).lost_deleted, 2);
    snib_client_free(client);
}

/* Once a caller has seen that a hold is over, it is counted. */
static void counted_when_seen(void **state)
{
    struct world *world = *state;
    snib_client *client = must_open_lease(world->server.url, 30000);
    snib_lock *lock = must_lock_lease(client, "seen", 100, 0);
    for (int i = 0; i < 20; i++) {
        snib_hold *hold = NULL;
        while (!hold) /* on a slow machine it may be over before it is granted */
            (void)snib_lock_acquire(lock, 0, 10000, &hold, NULL);
        uint64_t before = must_stats(client).lost_expired;
        if (snib_hold_state(hold, NULL) == SNIB_HOLD_VALID) {
            while (snib_hold_state(hold, NULL) != SNIB_HOLD_LOST)
                ;
            assert_true(must_stats(client).lost_expired > before);
        }
        snib_hold_free(hold);
    }
    snib_client_free(client);
}

/* Without a fault the watchdog keeps the lease for as long as the hold lives. */
static void renewed_for_many_leases(void **state)
{
    struct world *world = *state;
    snib_client *client = must_open_lease(world->server.url, 4500);
    snib_hold *hold = must_acquire(must_lock(client, "long"), 0);
    for (; must_stats(client).renewals < 7; nap_us(5000)) {
        assert_int_not_equal(snib_hold_state(hold, NULL), SNIB_HOLD_LOST);
        assert_true(server_integer(&world->server, "PTTL long") > 0);
    }
    must_release(hold);
    snib_client_free(client);
}

/* A client that has nothing to send notices the server's end: with a lease of 30 s the next renewal
 * is far away. */
static void end_of_an_idle_connection(void **state)
{
    (void)state;
    struct server server;
    server_start(&server, NULL);
    snib_client *client = must_open(server.url);
    snib_lock *lock = must_lock(client, "idle");
    for (int fixed = 0; fixed < 2; fixed++) {
        snib_lock *one = fixed ? must_lock_lease(client, "idle", 60000, 0) : lock;
        snib_hold *hold = must_acquire(one, 2000);
        nap_us(300000);
        AWAIT(snib_hold_state(hold, NULL) == SNIB_HOLD_VALID, 2000);
        server_down(&server);
        AWAIT(snib_hold_state(hold, NULL) == SNIB_HOLD_AT_RISK, 500);
        server_restart(&server); /* empty */
        AWAIT(snib_hold_state(hold, NULL) == SNIB_HOLD_LOST, 500);
        snib_hold_free(hold);
        if (fixed)
            snib_lock_free(one);
    }
    snib_lock_free(lock);
    snib_client_free(client);
    server_stop(&server);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, world_new, world_free)

struct watcher {
    snib_hold *hold;
    _Atomic int code; /* 1000: it waits */
    _Atomic int thread;
};

static void *watch(void *argument)
{
    struct watcher *watcher = argument;
    watcher->thread = (int)syscall(SYS_gettid);
    watcher->code = snib_hold_wait(watcher->hold, -1, NULL, NULL);
    return NULL;
}

static bool sleeps(int thread)
{
    char path[64], text[256] = "";
    snprintf(path, sizeof path, "/proc/self/task/%d/stat", thread);
    FILE *file = fopen(path, "r");
    size_t n = file ? fread(text, 1, sizeof text - 1, file) : 0;
    if (file)
        fclose(file);
    const char *state = n ? strrchr(text, ')') : NULL;
    return state && state[2] == 'S';
}

/* Whoever waits for its end does not keep it from being released. */
static void freed_while_watched(void **state)
{
    struct world *world = *state;
    struct watcher watcher = {.hold = world->hold, .code = 1000};
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, watch, &watcher), 0);
    AWAIT(watcher.thread && sleeps(watcher.thread), 10000);
    snib_hold_free(world->hold);
    world->hold = NULL;
    AWAIT(watcher.code != 1000, 10000);
    assert_int_equal(watcher.code, SNIB_EHANDLE);
    pthread_join(thread, NULL);
    snib_lock *lock = must_lock(world->client, "loss");
    must_release(must_acquire(lock, 10000));
    snib_lock_free(lock);
}

/* Whoever waits for the end of one of an owner's acquisitions may have a look when another is released. */
static void left_once_while_watched(void **state)
{
    struct world *world = *state;
    snib_lock *lock = must_lock(world->client, "again");
    snib_hold *hold = must_acquire_as(lock, 7, -1);
    assert_ptr_equal(must_acquire_as(lock, 7, -1), hold);
    struct watcher watcher = {.hold = hold, .code = 1000};
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, watch, &watcher), 0);
    AWAIT(watcher.thread && sleeps(watcher.thread), 10000);
    must_release(hold);
    AWAIT(watcher.code != 1000, 10000);
    assert_int_equal(watcher.code, SNIB_AGAIN);
    pthread_join(thread, NULL);
    EXPECT(snib_hold_wait(hold, 20, NULL, err), SNIB_TIMEDOUT);
    must_release(hold);
    snib_lock_free(lock);
}

/* So they may if its owner re-enters before they have run.  Those who wait for another hold go on waiting. */
static void left_for_a_moment(void **state)
{
    struct world *world = *state;
    snib_lock *lock = must_lock(world->client, "again");
    snib_hold *hold = must_acquire_as(lock, 7, -1);
    struct watcher other = {.hold = world->hold, .code = 1000};
    pthread_t others, thread;
    assert_int_equal(pthread_create(&others, NULL, watch, &other), 0);
    for (int i = 0; i < 10; i++) {
        struct watcher watcher = {.hold = hold, .code = 1000};
        assert_ptr_equal(must_acquire_as(lock, 7, -1), hold);
        assert_int_equal(pthread_create(&thread, NULL, watch, &watcher), 0);
        AWAIT(watcher.thread && sleeps(watcher.thread), 10000);
        AWAIT(other.thread && sleeps(other.thread), 10000);
        must_release(hold);
        assert_ptr_equal(must_acquire_as(lock, 7, -1), hold);
        AWAIT(watcher.code != 1000, 10000);
        assert_int_equal(watcher.code, SNIB_AGAIN);
        pthread_join(thread, NULL);
        must_release(hold);
    }
    assert_int_equal(other.code, 1000);
    must_release(world->hold);
    world->hold = NULL;
    pthread_join(others, NULL);
    assert_true(other.code == SNIB_NOT_HELD || other.code == SNIB_EHANDLE);
    must_release(hold);
    snib_lock_free(lock);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(deleted),
        TEST(flushed),
        TEST(taken),
        TEST(overwritten_by_other_data),
        TEST(forced),
        TEST(client_closed),
        TEST(max_hold),
        TEST(told_in_each_queue),
        TEST(freed_while_watched),
        TEST(left_once_while_watched),
        TEST(left_for_a_moment),
        TEST(fixed_lease_expires),
        TEST(found_lost),
        TEST(counted_when_seen),
        TEST(server_restarted),
        cmocka_unit_test(end_of_an_idle_connection),
        TEST(renewed_for_many_leases),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
