/* counters.c - properties specific to latches, semaphores, permits, readers and writers, and
 * fencing tokens. */
#include "../support/support.h"

#include <limits.h>
#include <string.h>

enum { PROMPT_MS = 10000, RECHECK_MS = 60000, LEASE_MS = 3000 };

struct world {
    struct server server;
    snib_client *ours, *theirs;
    snib_queue *queue, *their_queue;
};

static int world_new(void **state)
{
    struct world *world = *state;
    server_do(&world->server, "FLUSHALL");
    world->ours = must_open_recheck(world->server.url, LEASE_MS, RECHECK_MS);
    world->theirs = must_open_recheck(world->server.url, LEASE_MS, RECHECK_MS);
    world->queue = must_queue(world->ours);
    world->their_queue = must_queue(world->theirs);
    return 0;
}

static int world_free(void **state)
{
    struct world *world = *state;
    EXPECT(snib_client_close(world->ours, -1, err), SNIB_OK);
    EXPECT(snib_client_close(world->theirs, -1, err), SNIB_OK);
    snib_client_free(world->ours);
    snib_client_free(world->theirs);
    AWAIT(server_channels(&world->server) == 0, 1000);
    return 0;
}

static snib_event must_come(snib_queue *queue)
{
    int64_t start = now_ms();
    snib_event event = must_event(queue, 5000);
    if (event.code != SNIB_OK || now_ms() - start > PROMPT_MS)
        fail_msg("%s after %d ms", snib_code_name(event.code), (int)(now_ms() - start));
    return event;
}

static void expect_silence(snib_queue *queue, int64_t ms)
{
    snib_event event = {.size = sizeof event};
    nap_us(ms * 1000);
    assert_int_equal(snib_queue_drain(queue, &event, 1, NULL), 0);
}

/* ---- Latches --------------------------------------------------------------------------------- */

static void latch_opens_for_all(void **state)
{
    enum { WAITERS = 20, COUNT = 3 };
    struct world *world = *state;
    snib_lock *ours = must_lock_kind(world->ours, SNIB_LATCH, "latch");
    snib_lock *theirs = must_lock_kind(world->theirs, SNIB_LATCH, "latch");
    snib_event event = {.size = sizeof event};
    snib_op *op = NULL;
    EXPECT(snib_latch_wait(ours, 0, err), SNIB_OK); /* never set: open */
    assert_int_equal(must_count(SNIB_LATCH, ours, SNIB_COUNT_INIT, COUNT), 1);
    assert_int_equal(must_count(SNIB_LATCH, theirs, SNIB_COUNT_INIT, COUNT + 1), 0);
    assert_int_equal(must_count(SNIB_LATCH, theirs, SNIB_COUNT_GET, 0), COUNT);
    EXPECT(snib_latch_wait(ours, 0, err), SNIB_BUSY);
    EXPECT(snib_latch_wait(theirs, 30, err), SNIB_TIMEDOUT);
    EXPECT(snib_latch_wait_begin(ours, -1, 20, NULL, 0, &op, err), SNIB_AGAIN);
    for (int i = 0; i < WAITERS / 2; i++) {
        EXPECT(snib_latch_wait_submit(ours, -1, world->queue, 0, NULL, err), SNIB_OK);
        EXPECT(snib_latch_wait_submit(theirs, -1, world->their_queue, 0, NULL, err), SNIB_OK);
    }
    for (int left = COUNT - 1; left >= 0; left--) {
        expect_silence(world->queue, 5);
        assert_int_equal(must_count(SNIB_LATCH, theirs, SNIB_COUNT_DOWN, 0), left);
    }
    for (int i = 0; i < WAITERS / 2; i++) {
        assert_null(must_come(world->queue).hold);
        assert_null(must_come(world->their_queue).hold);
    }
    EXPECT(snib_op_wait(op, PROMPT_MS, &event, err), SNIB_OK);
    assert_int_equal(event.code, SNIB_OK);
    assert_int_equal(must_count(SNIB_LATCH, ours, SNIB_COUNT_DOWN, 0), 0); /* and it stays open */
    assert_true(server_is_empty(&world->server));
    assert_int_equal(must_stats(world->ours).held, 0);
}

static void latch_is_forced_or_left(void **state)
{
    struct world *world = *state;
    snib_lock *ours = must_lock_kind(world->ours, SNIB_LATCH, "latch");
    snib_lock *theirs = must_lock_kind(world->theirs, SNIB_LATCH, "latch");
    snib_op *op = NULL;
    must_count(SNIB_LATCH, theirs, SNIB_COUNT_INIT, 1);
    EXPECT(snib_latch_wait_submit(ours, -1, world->queue, 0, &op, err), SNIB_OK);
    AWAIT(server_channels(&world->server) == 1, 1000);
    EXPECT(snib_op_cancel(op), SNIB_OK);
    assert_int_equal(must_event(world->queue, 1000).code, SNIB_CANCELLED);
    EXPECT(snib_latch_wait_submit(ours, -1, world->queue, 0, &op, err), SNIB_OK);
    expect_silence(world->queue, 20);
    EXPECT(snib_lock_force_release(theirs, err), SNIB_OK);
    must_come(world->queue);
    EXPECT(snib_lock_force_release(theirs, err), SNIB_NOT_HELD);
    /* a message from Redisson, whose latches are counted down in the same way */
    must_count(SNIB_LATCH, theirs, SNIB_COUNT_INIT, 1);
    EXPECT(snib_latch_wait_submit(ours, -1, world->queue, 0, &op, err), SNIB_OK);
    AWAIT(server_channels(&world->server) == 1, 1000);
    nap_us(20000);
    server_do(&world->server, "DEL latch");
    server_do(&world->server, "PUBLISH redisson_countdownlatch__channel__{latch} 0");
    must_come(world->queue);
}

/* ---- Semaphores and permits ------------------------------------------------------------------ */

static snib_hold *must_take(int32_t kind, snib_lock *lock, uint32_t n, int64_t wait_ms)
{
    snib_hold *hold = NULL;
    EXPECT(kind == SNIB_PERMITS ? snib_permits_acquire(lock, n, wait_ms, &hold, err)
                                : snib_semaphore_acquire(lock, n, wait_ms, &hold, err),
           SNIB_OK);
    return hold;
}

static void must_wait_for(int32_t kind, snib_lock *lock, uint32_t n, snib_queue *queue)
{
    EXPECT(kind == SNIB_PERMITS ? snib_permits_acquire_submit(lock, n, -1, queue, n, NULL, err)
                                : snib_semaphore_acquire_submit(lock, n, -1, queue, n, NULL, err),
           SNIB_OK);
}

/* Several permits at once, all or none; a release or an addition wakes waiters. */
static void several_at_once(void **state)
{
    static const int32_t kinds[] = {SNIB_SEMAPHORE, SNIB_PERMITS};
    struct world *world = *state;
    for (int k = 0; k < 2; k++) {
        int32_t kind = kinds[k];
        snib_lock *ours = must_lock_kind(world->ours, kind, "several");
        snib_lock *theirs = must_lock_kind(world->theirs, kind, "several");
        assert_int_equal(must_count(kind, ours, SNIB_COUNT_INIT, 5), 1);
        assert_int_equal(must_count(kind, theirs, SNIB_COUNT_INIT, 9), 0);
        snib_hold *three = must_take(kind, ours, 3, 0);
        assert_int_equal(must_count(kind, theirs, SNIB_COUNT_GET, 0), 2);
        must_wait_for(kind, theirs, 4, world->their_queue);
        expect_silence(world->their_queue, 30);
        must_release(must_take(kind, ours, 2, 0)); /* the waiter has taken none of them */
        expect_silence(world->their_queue, 30);
        must_release(three);
        snib_event four = must_come(world->their_queue);
        assert_int_equal(must_count(kind, ours, SNIB_COUNT_GET, 0), 1);
        must_wait_for(kind, ours, 3, world->queue);
        expect_silence(world->queue, 30);
        assert_int_equal(must_count(kind, theirs, SNIB_COUNT_ADD, 2), 3);
        must_release(must_come(world->queue).hold);
        must_release(four.hold);
        assert_int_equal(must_count(kind, ours, SNIB_COUNT_GET, 0), 7);
        assert_int_equal(must_count(kind, ours, SNIB_COUNT_ADD, -7), 0);
        EXPECT(snib_lock_force_release(ours, err), SNIB_OK);
        assert_true(server_is_empty(&world->server));
    }
}

/* A waiter for many permits does not keep out later waiters for few. */
static void small_ones_pass(void **state)
{
    static const int32_t kinds[] = {SNIB_SEMAPHORE, SNIB_PERMITS};
    struct world *world = *state;
    for (int k = 0; k < 2; k++) {
        snib_lock *ours = must_lock_kind(world->ours, kinds[k], "small");
        snib_lock *theirs = must_lock_kind(world->theirs, kinds[k], "small");
        must_count(kinds[k], theirs, SNIB_COUNT_INIT, 4);
        snib_hold *all = must_take(kinds[k], theirs, 3, 0);
        must_wait_for(kinds[k], ours, 4, world->queue);
        AWAIT(must_stats(world->ours).waiting == 1, 1000);
        snib_hold *last = must_take(kinds[k], ours, 1, 0); /* a single try asks on its own */
        must_release(last);
        must_release(all);
        must_release(must_come(world->queue).hold);
        EXPECT(snib_lock_force_release(ours, err), SNIB_OK);
    }
}

static void semaphore_has_no_owner(void **state)
{
    struct world *world = *state;
    snib_lock *ours = must_lock_kind(world->ours, SNIB_SEMAPHORE, "semaphore");
    must_count(SNIB_SEMAPHORE, ours, SNIB_COUNT_INIT, 2);
    snib_hold *hold = must_take(SNIB_SEMAPHORE, ours, 1, 0);
    assert_true(snib_hold_remaining_ms(hold) == INT64_MAX);
    assert_int_equal(snib_hold_token(hold), 0);
    EXPECT(snib_hold_wait(hold, 3 * LEASE_MS / 2, NULL, err), SNIB_TIMEDOUT); /* never lost */
    assert_int_equal(must_count(SNIB_SEMAPHORE, ours, SNIB_COUNT_RELEASE, 3), 4);
    assert_int_equal(must_count(SNIB_SEMAPHORE, ours, SNIB_COUNT_DRAIN, 0), 4);
    assert_int_equal(must_count(SNIB_SEMAPHORE, ours, SNIB_COUNT_DRAIN, 0), 0);
    must_release(hold);
    assert_int_equal(must_count(SNIB_SEMAPHORE, ours, SNIB_COUNT_GET, 0), 1);
    assert_int_equal(must_stats(world->ours).renewals, 0);
    EXPECT(snib_lock_force_release(ours, err), SNIB_OK);
}

/* A dead process' permits come back when their leases end, and a waiter gets them. */
static void dead_holders_permits(void **state)
{
    struct world *world = *state;
    snib_lock_options options;
    snib_lock_options_init(&options, sizeof options);
    options.lease_ms = 400;
    snib_lock *ours = must_lock_kind(world->ours, SNIB_PERMITS, "dead");
    snib_lock *fixed = must_lock_with(world->theirs, SNIB_PERMITS, "dead", &options);
    must_count(SNIB_PERMITS, ours, SNIB_COUNT_INIT, 3);
    snib_hold *kept = must_take(SNIB_PERMITS, ours, 1, 0);
    snib_hold *dead = must_take(SNIB_PERMITS, fixed, 2, 0);
    must_wait_for(SNIB_PERMITS, ours, 2, world->queue);
    EXPECT(snib_hold_wait(dead, PROMPT_MS, NULL, err), SNIB_LOST);
    snib_event event = must_come(world->queue);
    EXPECT(snib_hold_check(kept, err), SNIB_OK);
    assert_int_equal(must_count(SNIB_PERMITS, ours, SNIB_COUNT_GET, 0), 0);
    assert_int_equal(must_count(SNIB_PERMITS, ours, SNIB_COUNT_TOTAL, 0), 3);
    EXPECT(snib_hold_release(dead, err), SNIB_LOST); /* and gives nothing back */
    assert_int_equal(must_count(SNIB_PERMITS, ours, SNIB_COUNT_GET, 0), 0);
    must_release(event.hold);
    must_release(kept);
    snib_hold_free(dead);
    assert_int_equal(must_count(SNIB_PERMITS, ours, SNIB_COUNT_GET, 0), 3);
}

static void number_of_permits_is_set(void **state)
{
    struct world *world = *state;
    snib_lock *ours = must_lock_kind(world->ours, SNIB_PERMITS, "set");
    snib_hold *held = NULL;
    assert_int_equal(must_count(SNIB_PERMITS, ours, SNIB_COUNT_SET, 3), 3);
    held = must_take(SNIB_PERMITS, ours, 2, 0);
    assert_int_equal(must_count(SNIB_PERMITS, ours, SNIB_COUNT_SET, 5), 3);
    assert_int_equal(must_count(SNIB_PERMITS, ours, SNIB_COUNT_SET, 1), -1);
    assert_int_equal(must_count(SNIB_PERMITS, ours, SNIB_COUNT_TOTAL, 0), 1);
    must_release(held);
    assert_int_equal(must_count(SNIB_PERMITS, ours, SNIB_COUNT_GET, 0), 1);
    must_release(must_take(SNIB_PERMITS, ours, 1, 0));
    /* one permit of a hold is removed: the hold is lost, and the rest of it is put back */
    must_count(SNIB_PERMITS, ours, SNIB_COUNT_SET, 3);
    held = must_take(SNIB_PERMITS, ours, 3, 0);
    server_do(&world->server, "ZPOPMIN {set}:timeout 1");
    EXPECT(snib_hold_wait(held, PROMPT_MS, NULL, err), SNIB_LOST);
    EXPECT(snib_hold_release(held, err), SNIB_LOST);
    snib_hold_free(held);
    AWAIT(must_count(SNIB_PERMITS, ours, SNIB_COUNT_GET, 0) == 2, LEASE_MS + PROMPT_MS);
}

/* ---- Readers and writers --------------------------------------------------------------------- */

static void readers_join(void **state)
{
    struct world *world = *state;
    snib_lock *ours = must_lock_kind(world->ours, SNIB_READ, "rw");
    snib_lock *theirs = must_lock_kind(world->theirs, SNIB_READ, "rw");
    snib_lock *writer = must_lock_kind(world->theirs, SNIB_WRITE, "rw");
    snib_hold *holds[12], *hold = NULL;
    for (int i = 0; i < 12; i++)
        holds[i] = must_acquire(i % 2 ? ours : theirs, 0);
    snib_lock_info_data info = {.size = sizeof info};
    EXPECT(snib_lock_info(ours, &info, err), SNIB_OK);
    assert_int_equal(info.count, 12);
    EXPECT(snib_lock_acquire_submit(writer, 0, -1, world->their_queue, 0, NULL, err), SNIB_OK);
    AWAIT(must_stats(world->theirs).waiting == 1, 1000);
    for (int i = 0; i < 12; i++) {
        must_release(must_acquire(ours, 0)); /* readers come and go while a writer waits */
        must_release(holds[i]);
    }
    hold = must_come(world->their_queue).hold;
    EXPECT(snib_lock_acquire(ours, 0, 0, &holds[0], err), SNIB_BUSY);
    must_release(hold);
    assert_true(server_is_empty(&world->server));
}

/* An owner may go from writing to reading, never the other way. */
static void one_owner_of_both(void **state)
{
    enum { OWNER = 11 };
    struct world *world = *state;
    snib_lock *read = must_lock_kind(world->ours, SNIB_READ, "rw");
    snib_lock *write = must_lock_kind(world->ours, SNIB_WRITE, "rw");
    snib_lock *reader = must_lock_kind(world->theirs, SNIB_READ, "rw");
    snib_lock *writer = must_lock_kind(world->theirs, SNIB_WRITE, "rw");
    snib_hold *reading = must_acquire_as(read, OWNER, 0), *hold = NULL;
    EXPECT(snib_lock_acquire(write, OWNER, 0, &hold, err), SNIB_EUPGRADE);
    EXPECT(snib_lock_acquire(write, OWNER, -1, &hold, err), SNIB_EUPGRADE);
    EXPECT(snib_lock_acquire(write, OWNER + 1, 0, &hold, err), SNIB_BUSY);
    must_release(reading);
    snib_hold *writing = must_acquire_as(write, OWNER, 0);
    EXPECT(snib_lock_acquire(read, OWNER + 1, 0, &hold, err), SNIB_BUSY);
    reading = must_acquire_as(read, OWNER, 0);
    EXPECT(snib_lock_acquire_submit(reader, 0, -1, world->their_queue, 0, NULL, err), SNIB_OK);
    AWAIT(must_stats(world->theirs).waiting == 1, 1000);
    must_release(writing); /* it continues as a reader, and the others get in */
    hold = must_come(world->their_queue).hold;
    EXPECT(snib_hold_wait(reading, 2 * LEASE_MS, NULL, err), SNIB_TIMEDOUT); /* renewed */
    EXPECT(snib_hold_check(hold, err), SNIB_OK);
    must_release(hold);
    EXPECT(snib_lock_acquire(writer, 0, 0, &hold, err), SNIB_BUSY);
    must_release(reading);
    must_release(must_acquire(writer, 0));
    /* or the read hold is released first */
    writing = must_acquire_as(write, OWNER, 0);
    must_release(must_acquire_as(read, OWNER, 0));
    EXPECT(snib_lock_acquire(reader, 0, 0, &hold, err), SNIB_BUSY);
    must_release(writing);
    assert_true(server_is_empty(&world->server));
}

static void writer_is_preferred(void **state)
{
    struct world *world = *state;
    snib_lock_options options;
    snib_lock_options_init(&options, sizeof options);
    options.flags = SNIB_LOCK_PREFER_WRITER;
    snib_lock *read = must_lock_kind(world->ours, SNIB_READ, "rw");
    snib_lock *write = must_lock_with(world->theirs, SNIB_WRITE, "rw", &options);
    snib_hold *first = must_acquire_as(read, 1, 0), *hold = NULL;
    EXPECT(snib_lock_acquire_submit(write, 0, -1, world->their_queue, 0, NULL, err), SNIB_OK);
    AWAIT(server_integer(&world->server, "EXISTS snib_writer_waits:{rw}") == 1, 1000);
    EXPECT(snib_lock_acquire(read, 2, 0, &hold, err), SNIB_BUSY);
    must_release(must_acquire_as(read, 1, 0)); /* an owner that already reads is not kept out */
    EXPECT(snib_lock_acquire_submit(read, 0, -1, world->queue, 0, NULL, err), SNIB_OK);
    expect_silence(world->queue, 30);
    must_release(first); /* whichever asks first gets a free lock: both are served in turn */
    snib_event event = {.size = sizeof event};
    for (int served = 0; served < 2; nap_us(100))
        if (snib_queue_drain(world->queue, &event, 1, NULL) == 1 ||
            snib_queue_drain(world->their_queue, &event, 1, NULL) == 1) {
            assert_int_equal(event.code, SNIB_OK);
            must_release(event.hold);
            served++;
        }
    AWAIT(server_is_empty(&world->server), PROMPT_MS);
}

/* A dead reader's lease ends on its own, while others go on reading. */
static void dead_reader(void **state)
{
    struct world *world = *state;
    snib_lock_options options;
    snib_lock_options_init(&options, sizeof options);
    options.lease_ms = 60000;
    snib_lock *ours = must_lock_kind(world->ours, SNIB_READ, "rw");
    snib_lock *dead = must_lock_with(world->theirs, SNIB_READ, "rw", &options);
    snib_lock *write = must_lock_kind(world->ours, SNIB_WRITE, "rw");
    snib_hold *reading = must_acquire(ours, 0), *long_one = must_acquire(dead, 0), *hold = NULL;
    char owner[128];
    EXPECT(snib_hold_owner(long_one, owner, err), SNIB_OK);
    EXPECT(snib_lock_acquire(write, 0, 0, &hold, err), SNIB_BUSY);
    server_do(&world->server, "DEL {rw}:%s:rwlock_timeout:1",
              owner); /* as if its lease had ended */
    EXPECT(snib_lock_acquire(write, 0, 2 * LEASE_MS, &hold, err), SNIB_TIMEDOUT); /* one remains */
    must_release(reading);
    hold = must_acquire(write, PROMPT_MS); /* the key has a longer lease, but no reader */
    EXPECT(snib_hold_release(long_one, err), SNIB_LOST);
    EXPECT(snib_hold_check(hold, err), SNIB_OK);
    must_release(hold);
    snib_hold_free(long_one);
    /* and the same if no other client has noticed it */
    long_one = must_acquire(dead, 0);
    EXPECT(snib_hold_owner(long_one, owner, err), SNIB_OK);
    EXPECT(snib_lock_acquire(write, 0, 0, &hold, err), SNIB_BUSY);
    server_do(&world->server, "DEL {rw}:%s:rwlock_timeout:1", owner);
    must_release(must_acquire(write, 0));
    EXPECT(snib_hold_release(long_one, err), SNIB_LOST);
    snib_hold_free(long_one);
    assert_true(server_is_empty(&world->server));
}

/* ---- Tokens ---------------------------------------------------------------------------------- */

/* One counter per name, for every kind, every holder, and every way of granting. */
static void tokens_rise(void **state)
{
    static const struct {
        int32_t kind;
        uint32_t flags;
    } kinds[] = {{SNIB_FENCED, 0},
                 {SNIB_FAIR, SNIB_LOCK_FENCED},
                 {SNIB_WRITE, SNIB_LOCK_FENCED | SNIB_LOCK_PREFER_WRITER}};
    struct world *world = *state;
    int64_t last = 0;
    for (size_t k = 0; k < 3; k++) {
        snib_lock_options options;
        snib_lock_options_init(&options, sizeof options);
        options.flags = kinds[k].flags;
        snib_lock *ours = must_lock_with(world->ours, kinds[k].kind, "token", &options);
        snib_lock *theirs = must_lock_with(world->theirs, kinds[k].kind, "token", &options);
        snib_hold *hold = must_acquire(ours, 0);
        for (int i = 0; i < 40; i++) { /* released to none, to the same process, to the other */
            bool same = i % 4 == 1, other = i % 4 == 2;
            snib_queue *queue = same ? world->queue : world->their_queue;
            if (same || other)
                EXPECT(snib_lock_acquire_submit(same ? ours : theirs, 0, -1, queue, 0, NULL, err),
                       SNIB_OK);
            assert_true(snib_hold_token(hold) > last);
            last = snib_hold_token(hold);
            must_release(hold);
            hold = same || other ? must_event(queue, 2000).hold : must_acquire(ours, 1000);
        }
        snib_lock_info_data info = {.size = sizeof info};
        EXPECT(snib_lock_info(theirs, &info, err), SNIB_OK);
        assert_int_equal(info.token, snib_hold_token(hold));
        must_release(hold);
    }
    assert_int_equal(server_integer(&world->server, "INCRBY redisson_lock_token:{token} 0"),
                     last + 1);
    assert_int_equal(server_integer(&world->server, "PTTL redisson_lock_token:{token}"), -1);
}

/* A counter that cannot be incremented: nothing is held. */
static void token_is_refused(void **state)
{
    static const char *const counters[] = {"9223372036854775807", "text"};
    static const int32_t kinds[] = {SNIB_FENCED, SNIB_FAIR, SNIB_WRITE};
    struct world *world = *state;
    for (size_t c = 0; c < 2; c++)
        for (size_t k = 0; k < 3; k++) {
            snib_lock_options options;
            snib_lock_options_init(&options, sizeof options);
            options.flags = kinds[k] == SNIB_FENCED ? 0 : SNIB_LOCK_FENCED;
            snib_lock *lock = must_lock_with(world->ours, kinds[k], "token", &options);
            snib_hold *hold = NULL;
            snib_error error;
            server_do(&world->server, "SET redisson_lock_token:{token} %s", counters[c]);
            assert_true(snib_lock_acquire(lock, 0, 0, &hold, &error) < 0);
            assert_null(hold);
            assert_int_equal(server_integer(&world->server, "DBSIZE"), 1);
            snib_lock_free(lock);
        }
}

static int start(void **state)
{
    static struct world world;
    server_start(&world.server, NULL);
    *state = &world;
    return 0;
}

static int stop(void **state)
{
    struct world *world = *state;
    server_stop(&world->server);
    return 0;
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, world_new, world_free)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(latch_opens_for_all),
        TEST(latch_is_forced_or_left),
        TEST(several_at_once),
        TEST(small_ones_pass),
        TEST(semaphore_has_no_owner),
        TEST(dead_holders_permits),
        TEST(number_of_permits_is_set),
        TEST(readers_join),
        TEST(one_owner_of_both),
        TEST(writer_is_preferred),
        TEST(dead_reader),
        TEST(tokens_rise),
        TEST(token_is_refused),
    };
    return cmocka_run_group_tests(tests, start, stop);
}
