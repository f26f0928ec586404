/* family.c - connections that end at every byte, for all kinds of locks: nothing is lost, nothing
 * doubled.
 *
 * A semaphore has no owners, so the outcome of an unanswered request cannot be determined: it is
 * sent once and reported as unknown.  All other kinds report the true outcome.
 */
#include "../support/kinds.h"

#include <string.h>

enum { PROMPT_MS = 10000, RECHECK_MS = 60000 }; /* prompt: far below a lease, and a re-check */

static struct proxy *proxy;

static int world_new(void **state)
{
    struct kinds_world *world = *state;
    proxy = proxy_start(world->server.socket);
    kinds_open(world,
               (struct kinds_options){.recheck_ms = RECHECK_MS, .our_url = proxy_url(proxy)});
    return 0;
}

static int world_free(void **state)
{
    kinds_close(*state);
    proxy_stop(proxy);
    return 0;
}

static bool repeats(const struct pair *pair)
{
    return pair->kind->kind != SNIB_SEMAPHORE;
}

/* ---- Acquire and release --------------------------------------------------------------------- */

static void pair_through(struct pair *pair)
{
    int64_t start = now_ms();
    snib_hold *hold = must_acquire(pair->ours, PROMPT_MS), *other = NULL;
    EXPECT(snib_hold_check(hold, err), SNIB_OK);
    EXPECT(snib_lock_acquire(pair->rival, 0, 0, &other, err), SNIB_BUSY);
    must_release(hold);
    must_release(must_acquire(pair->rival, PROMPT_MS));
    if (now_ms() - start > PROMPT_MS)
        fail_msg("%s: %d ms", pair->kind->name, (int)(now_ms() - start));
}

/* Cut after 0, 1, 2 ... bytes until the pair no longer reaches the cut. */
static void cut_pairs(struct kinds_world *world, enum direction direction, int step, int least)
{
    int all = 0;
    for (EACH_KIND(world, pair)) {
        int cut = 0;
        for (bool reached = repeats(pair); reached; cut += step) {
            int before = proxy_cuts(proxy);
            proxy_cut(proxy, direction, cut, cut % 2 ? CUT_FIN : CUT_RST);
            pair_through(pair);
            reached = proxy_cuts(proxy) > before;
            all += reached;
        }
        if (repeats(pair) && cut < least)
            fail_msg("%s: no more than %d bytes", pair->kind->name, cut);
        proxy_cut(proxy, direction, INT64_MAX, CUT_FIN);
    }
    print_message("          %d cuts\n", all);
    kinds_expect_base(world, 5500);
}

static void reply_cut(void **state)
{
    cut_pairs(*state, TO_CLIENT, 1, 8);
}

static void request_cut(void **state)
{
    cut_pairs(*state, TO_SERVER, count_of(1, 23), 200);
}

/* ---- Waiters --------------------------------------------------------------------------------- */

static void expect_places(struct kinds_world *world, const struct pair *pair, int n)
{
    if (pair->kind->kind == SNIB_FAIR) {
        AWAIT(server_integer(&world->server, "LLEN redisson_lock_queue:{%s}", pair->name) == n &&
                  server_integer(&world->server, "ZCARD redisson_lock_timeout:{%s}", pair->name) ==
                      n,
              1000);
    }
}

/* The waiter's connection ends while it asks, is told to wait, takes a place; it still gets the
 * lock. */
static void waiter_cut_once(struct kinds_world *world, struct pair *pair, enum direction direction,
                            int after)
{
    int before = proxy_cuts(proxy);
    snib_hold *hold = must_acquire(pair->rival, PROMPT_MS);
    proxy_cut(proxy, direction, after, after % 2 ? CUT_FIN : CUT_RST);
    must_submit(pair->ours, -1, world->queue, 1);
    for (int64_t end = now_ms() + 20; proxy_cuts(proxy) == before && now_ms() < end;)
        nap_us(200);
    AWAIT(must_stats(world->ours).waiting == 1, 1000);
    expect_places(world, pair, 1);
    int64_t start = now_ms();
    must_release(hold);
    snib_event event = must_event(world->queue, 2 * PROMPT_MS);
    if (event.code != SNIB_OK || now_ms() - start > PROMPT_MS)
        fail_msg("%s, cut at %d: %s after %d ms", pair->kind->name, after,
                 snib_code_name(event.code), (int)(now_ms() - start));
    EXPECT(snib_lock_acquire(pair->rival, 0, 0, &hold, err), SNIB_BUSY);
    proxy_cut(proxy, direction, INT64_MAX, CUT_FIN);
    must_release(event.hold);
}

static void waiter_cut(void **state)
{
    struct kinds_world *world = *state;
    for (EACH_KIND(world, pair)) {
        int before = proxy_cuts(proxy);
        for (int after = 0; repeats(pair) && after < 60; after += count_of(1, 3))
            waiter_cut_once(world, pair, TO_CLIENT, after);
        assert_true(proxy_cuts(proxy) > before || !repeats(pair));
    }
    kinds_expect_base(world, 5500);
}

static void waiter_request_cut(void **state)
{
    struct kinds_world *world = *state;
    for (EACH_KIND(world, pair)) {
        int before = proxy_cuts(proxy);
        for (int after = 0; repeats(pair) && after < 900; after += count_of(1, 90))
            waiter_cut_once(world, pair, TO_SERVER, after);
        assert_true(proxy_cuts(proxy) > before || !repeats(pair));
    }
    kinds_expect_base(world, 5500);
}

/* The reply is in flight when the caller gives up, and then the connection ends: the grant, or the
 * place in the queue, is given back. */
static void given_up_and_cut(void **state)
{
    struct kinds_world *world = *state;
    for (EACH_KIND(world, pair))
        for (int run = 0; repeats(pair) && run < 6; run++) {
            snib_hold *hold = run % 2 ? must_acquire(pair->rival, PROMPT_MS) : NULL;
            proxy_stall(proxy, TO_CLIENT, true);
            snib_op *op = must_submit(pair->ours, run % 3 ? -1 : 30, world->queue, 1);
            if (run % 3) {
                nap_us(2000);
                EXPECT(snib_op_cancel(op), SNIB_OK);
            }
            snib_event event = must_event(world->queue, PROMPT_MS);
            if (run %
                3) /* else the link may be down, still or found silent, and nothing is known */
                assert_int_equal(event.code, SNIB_CANCELLED);
            else
                assert_true(event.code == SNIB_TIMEDOUT || event.code == SNIB_EUNREACHABLE ||
                            event.code == SNIB_ECONNECT);
            proxy_refuse(proxy, true);
            proxy_stall(proxy, TO_CLIENT, false);
            proxy_refuse(proxy, false);
            if (hold)
                must_release(hold);
            must_release(must_acquire(pair->rival, PROMPT_MS));
            expect_places(world, pair, 0);
        }
    kinds_expect_base(world, 5500);
}

/* ---- Semaphores: unknown ---------------------------------------------------------------------- */

static int times_sent(const char *sha1)
{
    int n = 0;
    for (size_t i = 0; i < proxy_record_count(proxy); i++)
        n += record_is(proxy_record(proxy, i), sha1);
    return n;
}

static struct pair *semaphore_of(struct kinds_world *world)
{
    for (EACH_KIND(world, pair))
        if (pair->kind->kind == SNIB_SEMAPHORE)
            return pair;
    fail();
    return NULL;
}

/* The reply or the request is lost: the outcome is reported as unknown, and the request is sent
 * only once. */
static void semaphore_is_unknown(void **state)
{
    enum { NUMBER = 1000 };
    struct kinds_world *world = *state;
    struct pair *pair = semaphore_of(world);
    char acquire[41], release[41], count[41];
    server_script(&world->server, "semaphore_acquire", acquire);
    server_script(&world->server, "semaphore_release", release);
    server_script(&world->server, "semaphore_count", count);
    assert_true(snib_code_is(SNIB_EUNREACHABLE, SNIB_IS_MAYBE_APPLIED));
    for (int run = 0; run < count_of(60, 24); run++) {
        enum direction direction = run % 2 ? TO_SERVER : TO_CLIENT;
        enum cut_mode mode = run / 2 % 2 ? CUT_FIN : CUT_RST;
        bool done = direction == TO_CLIENT; /* the request was read, the reply is lost */
        int lost = direction == TO_CLIENT ? run / 4 % 4 : run * 3 % 99;
        int64_t value;
        snib_hold *hold = NULL;
        must_count(SNIB_SEMAPHORE, pair->same, SNIB_COUNT_ADD,
                   NUMBER - must_count(SNIB_SEMAPHORE, pair->same, SNIB_COUNT_GET, 0));
        must_count(SNIB_SEMAPHORE, pair->ours, SNIB_COUNT_GET, 0); /* connected, scripts loaded */
        EXPECT(snib_semaphore_acquire(pair->ours, 2, PROMPT_MS, &hold, err), SNIB_OK);

        proxy_forget(proxy);
        proxy_cut(proxy, direction, lost, mode);
        snib_hold *unknown = NULL;
        EXPECT(snib_semaphore_acquire(pair->ours, 3, PROMPT_MS, &unknown, err), SNIB_EUNREACHABLE);
        assert_null(unknown);
        assert_int_equal(times_sent(acquire), done);
        value = must_count(SNIB_SEMAPHORE, pair->same, SNIB_COUNT_GET, 0);
        assert_int_equal(value, NUMBER - 2 - (done ? 3 : 0));

        proxy_cut(proxy, direction, INT64_MAX, mode);
        must_count(SNIB_SEMAPHORE, pair->ours, SNIB_COUNT_GET, 0);
        proxy_forget(proxy);
        proxy_cut(proxy, direction, lost, mode);
        EXPECT(snib_hold_release(hold, err), SNIB_EUNREACHABLE);
        EXPECT(snib_hold_release(hold, err), SNIB_NOT_HELD); /* or there might be two too many */
        assert_int_equal(times_sent(release), done);
        assert_int_equal(must_count(SNIB_SEMAPHORE, pair->same, SNIB_COUNT_GET, 0),
                         value + (done ? 2 : 0));
        snib_hold_free(hold);

        proxy_cut(proxy, direction, INT64_MAX, mode);
        must_count(SNIB_SEMAPHORE, pair->ours, SNIB_COUNT_GET, 0);
        proxy_forget(proxy);
        value = must_count(SNIB_SEMAPHORE, pair->same, SNIB_COUNT_GET, 0);
        proxy_cut(proxy, direction, lost, mode);
        EXPECT(snib_semaphore_count(pair->ours, SNIB_COUNT_ADD, 5, NULL, err), SNIB_EUNREACHABLE);
        assert_int_equal(times_sent(count), done);
        assert_int_equal(must_count(SNIB_SEMAPHORE, pair->same, SNIB_COUNT_GET, 0),
                         value + (done ? 5 : 0));
        proxy_cut(proxy, direction, INT64_MAX, mode);
    }
}

/* Queries are repeated. */
static void questions_are_repeated(void **state)
{
    struct kinds_world *world = *state;
    for (EACH_KIND(world, pair)) {
        snib_lock_info_data info = {.size = sizeof info};
        EXPECT(snib_lock_info(pair->ours, &info, err), SNIB_OK);
        proxy_cut(proxy, TO_CLIENT, 0, CUT_RST);
        EXPECT(snib_lock_info(pair->ours, &info, err), SNIB_OK);
        if (pair->kind->traits & COUNTED) {
            proxy_cut(proxy, TO_CLIENT, 1, CUT_FIN);
            assert_int_equal(must_count(pair->kind->kind, pair->ours, SNIB_COUNT_GET, 0), 1);
        }
    }
}

/* ---- Latches --------------------------------------------------------------------------------- */

static void latch_cut(void **state)
{
    struct kinds_world *world = *state;
    snib_lock *latch = must_lock_kind(world->ours, SNIB_LATCH, "latch");
    snib_lock *same = must_lock_kind(world->theirs, SNIB_LATCH, "latch");
    snib_event event = {.size = sizeof event};
    for (int after = 0; after < 8; after++) { /* open, or shut until after the cut */
        snib_op *op = NULL;
        proxy_cut(proxy, TO_CLIENT, after, after % 2 ? CUT_FIN : CUT_RST);
        EXPECT(snib_latch_wait(latch, PROMPT_MS, err), SNIB_OK);
        must_count(SNIB_LATCH, same, SNIB_COUNT_INIT, 1);
        proxy_cut(proxy, TO_CLIENT, after, after % 2 ? CUT_FIN : CUT_RST);
        EXPECT(snib_latch_wait_submit(latch, -1, NULL, 0, &op, err), SNIB_OK);
        EXPECT(snib_op_wait(op, 30, &event, err), SNIB_AGAIN);
        must_count(SNIB_LATCH, same, SNIB_COUNT_DOWN, 0);
        EXPECT(snib_op_wait(op, PROMPT_MS, &event, err), SNIB_OK);
        assert_int_equal(event.code, SNIB_OK);
        assert_null(event.hold);
    }
    proxy_cut(proxy, TO_CLIENT, INT64_MAX, CUT_FIN);
}

/* The caller gives up while the reply is in flight, then the connection ends: there is nothing to
 * undo. */
static void latch_given_up_and_cut(void **state)
{
    struct kinds_world *world = *state;
    snib_lock *latch = must_lock_kind(world->ours, SNIB_LATCH, "latch");
    for (int run = 0; run < 4; run++) {
        snib_op *op = NULL;
        proxy_stall(proxy, TO_CLIENT, true);
        EXPECT(snib_latch_wait_submit(latch, -1, world->queue, 0, &op, err), SNIB_OK);
        nap_us(2000);
        EXPECT(snib_op_cancel(op), SNIB_OK);
        assert_int_equal(must_event(world->queue, 1000).code, SNIB_CANCELLED);
        proxy_refuse(proxy, true);
        proxy_stall(proxy, TO_CLIENT, false);
        proxy_refuse(proxy, false);
        EXPECT(snib_latch_wait(latch, PROMPT_MS, err), SNIB_OK);
    }
}

/* The repeated query finds data that is no longer a latch. */
static void latch_overwritten_and_cut(void **state)
{
    struct kinds_world *world = *state;
    snib_lock *latch = must_lock_kind(world->ours, SNIB_LATCH, "latch");
    EXPECT(snib_latch_wait(latch, 0, err), SNIB_OK);
    server_do(&world->server, "SET latch text");
    for (int run = 0; run < 4; run++) {
        proxy_cut(proxy, TO_CLIENT, run, CUT_RST);
        EXPECT(snib_latch_wait(latch, PROMPT_MS, err), SNIB_EWRONGTYPE);
    }
    proxy_cut(proxy, TO_CLIENT, INT64_MAX, CUT_FIN);
    server_do(&world->server, "DEL latch");
    EXPECT(snib_latch_wait(latch, 0, err), SNIB_OK);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, world_new, world_free)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(reply_cut),
        TEST(request_cut),
        TEST(waiter_cut),
        TEST(waiter_request_cut),
        TEST(given_up_and_cut),
        TEST(semaphore_is_unknown),
        TEST(questions_are_repeated),
        TEST(latch_cut),
        TEST(latch_given_up_and_cut),
        TEST(latch_overwritten_and_cut),
    };
    return cmocka_run_group_tests(tests, kinds_server_start, kinds_server_stop);
}
