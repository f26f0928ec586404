/* kinds.c - holders exclude others, waiters are woken, leavers leave nothing behind: the same for
 * all kinds.
 *
 * Waiters re-check only once a minute here, so they are woken by a message, or a hand-over.
 */
#include "../support/kinds.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum { PROMPT_MS = 10000, RECHECK_MS = 60000 };

static int world_new(void **state)
{
    kinds_open(*state, (struct kinds_options){.recheck_ms = RECHECK_MS});
    return 0;
}

static int world_free(void **state)
{
    kinds_close(*state);
    return 0;
}

/* ---- Exclusion ------------------------------------------------------------------------------- */

static void expect_kept_out(snib_lock *rival)
{
    enum { WAIT_MS = 30 };
    snib_hold *hold = NULL;
    EXPECT(snib_lock_acquire(rival, 0, 0, &hold, err), SNIB_BUSY);
    int64_t start_ns = now_ns();
    EXPECT(snib_lock_acquire(rival, 0, WAIT_MS, &hold, err), SNIB_TIMEDOUT);
    int64_t took_ns = now_ns() - start_ns;
    assert_true(took_ns >= WAIT_MS * 1000000 && took_ns < (WAIT_MS + PROMPT_MS) * 1000000ll);
    assert_null(hold);
}

static void exclusion(void **state)
{
    struct kinds_world *world = *state;
    for (EACH_KIND(world, pair)) {
        snib_hold *hold = must_acquire(pair->ours, 0);
        AWAIT(snib_hold_state(hold, NULL) == SNIB_HOLD_VALID, PROMPT_MS);
        expect_kept_out(pair->rival);
        expect_kept_out(pair->own_rival);
        EXPECT(snib_hold_check(hold, err), SNIB_OK);
        must_release(hold);
        must_release(must_acquire(pair->rival, PROMPT_MS));
        must_release(must_acquire(pair->own_rival, PROMPT_MS));
    }
}

/* The holder is the same for every client that asks. */
static void info(void **state)
{
    struct kinds_world *world = *state;
    for (EACH_KIND(world, pair)) {
        snib_lock_info_data data = {.size = sizeof data};
        snib_hold *hold = must_acquire(pair->ours, 0);
        char owner[128];
        EXPECT(snib_hold_owner(hold, owner, err), SNIB_OK);
        EXPECT(snib_lock_info(pair->ours, &data, err), SNIB_OK);
        assert_true(data.held && data.mine);
        EXPECT(snib_lock_info(pair->same, &data, err), SNIB_OK);
        assert_true(data.held && !data.mine);
        if (pair->kind->traits & LEASED) {
            assert_true(data.held);
            assert_true(data.remaining_ms > 20000 && data.remaining_ms <= 30000);
        }
        if (pair->kind->traits & OWNED)
            assert_string_equal(data.owner, owner);
        assert_int_equal(data.count, pair->kind->traits & COUNTED ? 0 : 1);
        if (data.token != 0) /* the counter belongs to the name, for every kind */
            assert_int_equal(data.token, snib_hold_token(hold));
        must_release(hold);
        EXPECT(snib_lock_info(pair->same, &data, err), SNIB_OK);
        assert_true((pair->kind->traits & COUNTED) || !data.held);
        assert_string_equal(data.owner, "");
    }
}

static void closed_client_gives_back(void **state)
{
    struct kinds_world *world = *state;
    for (EACH_KIND(world, pair))
        pair->hold = must_acquire(pair->ours, 0);
    EXPECT(snib_client_close(world->ours, -1, err), SNIB_OK);
    kinds_expect_base(world, 0); /* confirmed: nothing is left on return */
    for (EACH_KIND(world, pair)) {
        expect_hold_lost(pair->hold, SNIB_REASON_CLOSED, 0);
        EXPECT(snib_hold_release(pair->hold, err), SNIB_LOST);
        must_release(must_acquire(pair->rival, 0));
    }
}

/* ---- Waiting --------------------------------------------------------------------------------- */

static bool is_listened_to(struct kinds_world *world, const struct pair *pair)
{
    return !(pair->kind->traits & TELLS) || server_channels(&world->server) > 0;
}

/* The waiter gets the lock soon after the release. */
static void expect_woken(struct pair *pair, snib_queue *queue)
{
    int64_t start = now_ms();
    must_release(pair->hold);
    pair->hold = NULL;
    snib_event event = must_event(queue, 10000);
    if (event.code != SNIB_OK || now_ms() - start > PROMPT_MS)
        fail_msg("%s: %s after %d ms", pair->kind->name, snib_code_name(event.code),
                 (int)(now_ms() - start));
    assert_int_equal(event.fencing, snib_hold_token(event.hold));
    must_release(event.hold);
}

/* For a waiter that is not woken: what was under way. */
static struct {
    struct kinds_world *world;
    struct pair *pair;
    int round;
} waking;

static void show_waking(void)
{
    for (int i = 0; i < 2; i++) {
        snib_client_stats_data s = must_stats(i ? waking.world->theirs : waking.world->ours);
        print_message("%s, round %d, %s: %d held, %d waiting, %d messages, %d rechecks, %d "
                      "hand-overs, %d connects, %d reconnects, %d commands\n",
                      waking.pair->kind->name, waking.round, i ? "their client" : "our client",
                      (int)s.held, (int)s.waiting, (int)s.messages, (int)s.rechecks,
                      (int)s.handovers, (int)s.connects, (int)s.reconnects, (int)s.commands);
    }
}

static void release_wakes(void **state)
{
    struct kinds_world *world = waking.world = *state;
    before_silence = show_waking;
    for (EACH_KIND(world, pair))
        for (int round = 0; round < 10; round++) {
            waking.pair = pair;
            waking.round = round;
            pair->hold = must_acquire(pair->ours, 1000);
            must_submit(pair->rival, -1, world->their_queue, 1);
            AWAIT(must_stats(world->theirs).waiting == 1, 1000);
            if (round % 2) /* else the release may come before the subscription */
                AWAIT(is_listened_to(world, pair), 1000);
            expect_woken(pair, world->their_queue);
            pair->hold = must_acquire(pair->ours, 1000); /* and now a waiter of the same process */
            must_submit(pair->own_rival, -1, world->queue, 2);
            expect_woken(pair, world->queue);
        }
    before_silence = NULL;
    assert_true(must_stats(world->theirs).messages > 0);
}

/* Waiters of two clients for the same lock. */
struct crowd {
    snib_queue *queue;
    int n;
    bool exclusive;
    struct turns *turns;
};

struct turns {
    pthread_mutex_t mutex;
    uint64_t order[64];
    int n;
    atomic_int inside;
};

static void *crowd_run(void *argument)
{
    struct crowd *crowd = argument;
    for (int i = 0; i < crowd->n; i++) {
        snib_event event = must_event(crowd->queue, 10000);
        assert_int_equal(event.code, SNIB_OK);
        int beside = crowd->turns->inside++;
        assert_true(beside == 0 || !crowd->exclusive);
        pthread_mutex_lock(&crowd->turns->mutex);
        crowd->turns->order[crowd->turns->n++] = event.token;
        pthread_mutex_unlock(&crowd->turns->mutex);
        nap_us(500);
        crowd->turns->inside--;
        must_release(event.hold);
    }
    return NULL;
}

static void everybody_is_served(void **state)
{
    enum { WAITERS = 16 };
    struct kinds_world *world = *state;
    for (EACH_KIND(world, pair)) {
        bool fair = pair->kind->kind == SNIB_FAIR;
        bool exclusive = pair->kind->kind != SNIB_READ;
        struct turns turns = {.mutex = PTHREAD_MUTEX_INITIALIZER};
        pthread_t threads[2];
        snib_hold *hold = must_acquire(pair->rival, 1000);
        for (uint64_t i = 0; i < WAITERS; i++) {
            must_submit(i % 2 ? pair->same : pair->ours, -1,
                        i % 2 ? world->their_queue : world->queue, i);
            if (fair) /* the order is that of arrival at the server */
                AWAIT(server_integer(&world->server, "LLEN redisson_lock_queue:{%s}", pair->name) ==
                          (long long)i + 1,
                      1000);
        }
        struct crowd crowds[2] = {{world->queue, WAITERS / 2, exclusive, &turns},
                                  {world->their_queue, WAITERS / 2, exclusive, &turns}};
        for (int i = 0; i < 2; i++)
            assert_int_equal(pthread_create(&threads[i], NULL, crowd_run, &crowds[i]), 0);
        must_release(hold);
        for (int i = 0; i < 2; i++)
            pthread_join(threads[i], NULL);
        assert_int_equal(turns.n, WAITERS);
        for (uint64_t i = 0; fair && i < WAITERS; i++)
            if (turns.order[i] != i)
                fail_msg("%s: turn %d was that of waiter %d", pair->kind->name, (int)i,
                         (int)turns.order[i]);
    }
}

/* ---- Leaving --------------------------------------------------------------------------------- */

enum way { BY_CANCEL, BY_TIMEOUT, BY_QUEUE_FREE, WAYS };

/* A waiter leaves while the lock is held, and nothing of it stays. */
static void leave(struct kinds_world *world, struct pair *pair, snib_client *client,
                  snib_lock *lock, enum way way)
{
    snib_queue *queue = must_queue(client);
    uint64_t timeouts = must_stats(client).timeouts;
    snib_op *op = must_submit(lock, way == BY_TIMEOUT ? 40 : -1, queue, 9);
    AWAIT(must_stats(client).waiting == 1 || must_stats(client).timeouts > timeouts, 1000);
    if (client == world->theirs)
        AWAIT(is_listened_to(world, pair) || way == BY_TIMEOUT, 1000);
    if (way == BY_CANCEL)
        EXPECT(snib_op_cancel(op), SNIB_OK);
    if (way != BY_QUEUE_FREE) {
        snib_event event = must_event(queue, 1000);
        assert_int_equal(event.code, way == BY_CANCEL ? SNIB_CANCELLED : SNIB_TIMEDOUT);
        assert_null(event.hold);
    }
    snib_queue_free(queue);
    AWAIT(must_stats(client).waiting == 0, 1000);
    AWAIT(server_integer(&world->server,
                         "EXISTS redisson_lock_queue:{%s} "
                         "redisson_lock_timeout:{%s}",
                         pair->name, pair->name) == 0,
          1000);
}

static void leaving(void **state)
{
    struct kinds_world *world = *state;
    for (EACH_KIND(world, pair))
        for (enum way way = BY_CANCEL; way < WAYS; way++) {
            snib_hold *hold = must_acquire(pair->ours, 1000);
            leave(world, pair, world->theirs, pair->rival, way);
            leave(world, pair, world->ours, pair->own_rival, way);
            EXPECT(snib_hold_check(hold, err), SNIB_OK);
            must_release(hold);
            /* The mark of a waiting writer expires by itself. */
            kinds_expect_base(world, pair->kind->rival_flags ? 5500 : 500);
            must_release(must_acquire(pair->ours, 0));
        }
    AWAIT(server_channels(&world->server) == 0, 1000);
}

/* The lock becomes free just as its only waiter is cancelled, many times: it is free in the end.
 * Until when the waiter may be cancelled follows the outcomes, so that on a machine of any speed
 * both occur. */
static void cancel_meets_release(void **state)
{
    struct kinds_world *world = *state;
    int won[2] = {0, 0};
    int64_t span_us = 300;
    for (EACH_KIND(world, pair))
        for (int run = 0; run < count_of(400, 60); run++) {
            snib_client *client = run % 2 ? world->theirs : world->ours;
            snib_lock *lock = run % 2 ? pair->rival : pair->own_rival;
            snib_queue *queue = run % 2 ? world->their_queue : world->queue;
            pair->hold = must_acquire(pair->ours, 2000);
            snib_op *op = must_submit(lock, -1, queue, 3);
            AWAIT(must_stats(client).waiting == 1, 1000);
            EXPECT(snib_hold_release_submit(pair->hold, NULL, 0, NULL, err), SNIB_OK);
            for (int64_t end_ns = now_ns() + random() % span_us * 1000; now_ns() < end_ns;)
                ;
            int code = snib_op_cancel(op);
            assert_true(code == SNIB_OK || code == SNIB_EHANDLE);
            snib_event event = must_event(queue, 3000);
            assert_int_equal(event.code, code == SNIB_OK ? SNIB_CANCELLED : SNIB_OK);
            won[code == SNIB_OK]++;
            span_us = code == SNIB_OK ? span_us * 5 / 4 + 1 : span_us * 4 / 5 + 1;
            if (event.hold)
                must_release(event.hold);
            snib_hold_free(pair->hold);
            pair->hold = NULL;
        }
    print_message("          %d granted, %d cancelled\n", won[0], won[1]);
    assert_true(won[0] > 0 && won[1] > 0);
    kinds_expect_base(world, 5500);
}

/* ---- Owners and force ------------------------------------------------------------------------ */

static void reentry(void **state)
{
    enum { OWNER = 42, DEPTH = 5 };
    struct kinds_world *world = *state;
    for (EACH_KIND_THAT(world, pair, OWNED)) {
        snib_hold *first = must_acquire_as(pair->ours, OWNER, 0);
        int64_t token = snib_hold_token(first);
        snib_client_stats_data before = must_stats(world->ours);
        for (int i = 1; i < DEPTH; i++)
            assert_ptr_equal(must_acquire_as(pair->ours, OWNER, i % 2 ? 0 : -1), first);
        for (int i = 1; i < DEPTH; i++)
            must_release(first);
        snib_client_stats_data after = must_stats(world->ours);
        assert_int_equal(after.commands, before.commands);
        assert_int_equal(after.reentries, before.reentries + DEPTH - 1);
        assert_int_equal(snib_hold_token(first), token);
        expect_kept_out(pair->rival);
        if (pair->kind->rival == pair->kind->kind)
            expect_kept_out(pair->own_rival); /* a fresh owner is a different one */
        must_release(first);
        must_release(must_acquire(pair->rival, PROMPT_MS));
    }
}

/* Only kinds with owners accept an owner number. */
static void counters_know_no_owners(void **state)
{
    struct kinds_world *world = *state;
    for (EACH_KIND_THAT(world, pair, COUNTED)) {
        snib_hold *hold = must_acquire(pair->ours, 0), *other = NULL;
        EXPECT(snib_lock_acquire(pair->ours, 0, 0, &other, err), SNIB_BUSY);
        must_release(hold);
    }
}

static void forced(void **state)
{
    struct kinds_world *world = *state;
    for (EACH_KIND(world, pair)) {
        bool counted = pair->kind->traits & COUNTED, sides = pair->kind->kind != pair->kind->rival;
        snib_hold *hold = must_acquire(pair->ours, PROMPT_MS);
        if (sides) /* the other side of a read/write lock is not affected */
            EXPECT(snib_lock_force_release(pair->rival, err), SNIB_NOT_HELD);
        must_submit(pair->rival, -1, world->their_queue, 4);
        AWAIT(must_stats(world->theirs).waiting == 1 && is_listened_to(world, pair), 1000);
        int64_t start = now_ms();
        EXPECT(snib_lock_force_release(pair->same, err), SNIB_OK);
        if (counted) /* deleted with its number */
            assert_int_equal(must_count(pair->kind->kind, pair->same, SNIB_COUNT_INIT, 1), 1);
        snib_event event = must_event(world->their_queue, 5000);
        if (event.code != SNIB_OK || now_ms() - start > PROMPT_MS)
            fail_msg("%s: %s after %d ms", pair->kind->name, snib_code_name(event.code),
                     (int)(now_ms() - start));
        if (pair->kind->kind != SNIB_SEMAPHORE) /* the permits' owner is unknown */
            EXPECT(snib_hold_release(hold, err), SNIB_LOST);
        EXPECT(snib_hold_check(event.hold, err), SNIB_OK);
        must_release(event.hold);
        if (!counted)
            EXPECT(snib_lock_force_release(pair->same, err), SNIB_NOT_HELD);
        snib_hold_free(hold);
        if (pair->kind->kind == SNIB_SEMAPHORE) { /* they are put back once too often */
            EXPECT(snib_lock_force_release(pair->same, err), SNIB_OK);
            must_count(SNIB_SEMAPHORE, pair->same, SNIB_COUNT_INIT, 1);
        }
    }
}

/* ---- Abandoned ------------------------------------------------------------------------------- */

static int abandoned_new(void **state)
{
    kinds_open(*state, (struct kinds_options){.lease_ms = 1500, .recheck_ms = RECHECK_MS});
    return 0;
}

/* An abandoned hold is not released by or for any caller: it is no longer renewed, and its lease
 * runs out. */
static void abandoned(void **state)
{
    struct kinds_world *world = *state;
    snib_client_stats_data before = must_stats(world->ours);
    for (EACH_KIND(world, pair)) {
        must_submit(pair->ours, 0, world->queue, 1);
        snib_hold *hold = must_event(world->queue, PROMPT_MS).hold;
        int64_t start = now_ms();
        snib_hold_abandon(hold);
        snib_hold_abandon(hold); /* the handle is no longer valid */
        assert_int_equal(snib_hold_state(hold, NULL), SNIB_EHANDLE);
        if (!(pair->kind->traits & LEASED)) { /* its permits stay taken */
            expect_kept_out(pair->own_rival);
            must_count(pair->kind->kind, pair->same, SNIB_COUNT_RELEASE, 1);
        }
        must_release(must_acquire(pair->own_rival, PROMPT_MS)); /* waits for another's hold */
        if ((pair->kind->traits & LEASED) && now_ms() - start < 900)
            fail_msg("%s: free after %d ms", pair->kind->name, (int)(now_ms() - start));
    }
    snib_event event;
    assert_int_equal(snib_queue_drain(world->queue, &event, 1, NULL), 0); /* no loss reported */
    snib_client_stats_data after = must_stats(world->ours);
    assert_int_equal(after.abandoned, before.abandoned + KINDS);
    assert_int_equal(after.held, 0);
}

/* An owner that has re-entered keeps the hold until it releases it; an abandoned hold is then left
 * to its lease. */
static void abandoned_by_one_of_two(void **state)
{
    enum { OWNER = 42 };
    struct kinds_world *world = *state;
    snib_lock *lock = must_lock_lease(world->ours, "two", 400, -1);
    for (int first = 0; first < 2; first++) {
        snib_hold *hold = must_acquire_as(lock, OWNER, PROMPT_MS);
        int64_t start = now_ms();
        assert_ptr_equal(must_acquire_as(lock, OWNER, 0), hold);
        if (first) {
            snib_hold_abandon(hold);
            EXPECT(snib_hold_release(hold, err), SNIB_OK);
            snib_hold_free(hold);
        } else {
            EXPECT(snib_hold_release(hold, err), SNIB_OK);
            snib_hold_free(hold);
            snib_hold_abandon(hold);
        }
        assert_int_equal(snib_hold_state(hold, NULL), SNIB_EHANDLE);
        must_release(must_acquire_as(lock, OWNER, PROMPT_MS)); /* the same owner gets a new hold */
        assert_true(now_ms() - start >= 380);
    }
    snib_lock_free(lock);
}

static void abandoned_is_logged(void **state)
{
    struct kinds_world *world = *state;
    EXPECT(snib_client_log(world->ours, world->queue, SNIB_LOG_WARNING, err), SNIB_OK);
    snib_hold_abandon(must_acquire(world->pairs[0].ours, 0));
    snib_event event = must_event(world->queue, PROMPT_MS);
    assert_int_equal(event.kind, SNIB_EVENT_LOG);
    assert_int_equal(event.reason, SNIB_LOG_WARNING);
    assert_string_equal(event.text,
                        "lock \"kind:mutex\" was dropped without a release: it is free when "
                        "its lease ends");
    EXPECT(snib_client_log(world->ours, NULL, SNIB_LOG_NONE, err), SNIB_OK);
    kinds_expect_base(world, PROMPT_MS);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, world_new, world_free)
#define ABANDON(name) cmocka_unit_test_setup_teardown(name, abandoned_new, world_free)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(exclusion),
        TEST(info),
        TEST(release_wakes),
        TEST(everybody_is_served),
        TEST(leaving),
        TEST(cancel_meets_release),
        TEST(reentry),
        TEST(counters_know_no_owners),
        TEST(forced),
        TEST(closed_client_gives_back),
        ABANDON(abandoned),
        ABANDON(abandoned_by_one_of_two),
        ABANDON(abandoned_is_logged),
    };
    return cmocka_run_group_tests(tests, kinds_server_start, kinds_server_stop);
}
