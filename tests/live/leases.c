/* leases.c - holds are renewed for as long as they are held, and every loss is reported in time:
 * the same for all kinds, and at the same time.
 */
#include "../support/kinds.h"

#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

enum { LEASE_MS = 2000, NEXT_RENEWAL_MS = LEASE_MS / 2, SLACK_MS = 10000 };
enum { KEPT_LEASE_MS = 6000, HELD_MS = KEPT_LEASE_MS * 3 / 2 }; /* must survive a busy machine */

static struct kinds_world *world_open(void **state, struct kinds_options options)
{
    struct kinds_world *world = *state;
    kinds_open(world, options);
    return world;
}

static void hold_each(struct kinds_world *world, int traits)
{
    for (EACH_KIND_THAT(world, pair, traits)) {
        EXPECT(snib_lock_acquire_submit(pair->ours, 0, 1000, world->queue,
                                        (uint64_t)(pair - world->pairs), NULL, err),
               SNIB_OK);
        snib_event event = must_event(world->queue, 1000);
        assert_int_equal(event.kind, SNIB_EVENT_DONE);
        assert_int_equal(event.code, SNIB_OK);
        pair->hold = event.hold;
    }
}

static void wait_for_each(struct kinds_world *world, int traits)
{
    for (EACH_KIND_THAT(world, pair, traits))
        must_submit(pair->rival, 20000, world->their_queue, (uint64_t)(pair - world->pairs));
}

static int count_of_kinds(struct kinds_world *world, int traits)
{
    int n = 0;
    for (EACH_KIND_THAT(world, pair, traits))
        n++;
    return n;
}

/* Each waiter gets its lock within the limit. */
static void expect_served(struct kinds_world *world, int traits, int64_t limit_ms)
{
    int64_t start = now_ms();
    for (int n = count_of_kinds(world, traits); n > 0; n--) {
        snib_event event = must_event(world->their_queue, 5000);
        const char *kind = world->pairs[event.token].kind->name;
        if (event.code != SNIB_OK || now_ms() - start > limit_ms)
            fail_msg("%s: %s after %d ms", kind, snib_code_name(event.code),
                     (int)(now_ms() - start));
        must_release(event.hold);
    }
}

/* Each loss has been reported, once and with its reason. */
static void expect_loss_events(struct kinds_world *world, int traits, int32_t reason)
{
    bool told[KINDS] = {false};
    for (int n = count_of_kinds(world, traits); n > 0; n--) {
        snib_event event = must_event(world->queue, 1000);
        assert_int_equal(event.kind, SNIB_EVENT_LOST);
        assert_int_equal(event.reason, reason);
        assert_ptr_equal(event.hold, world->pairs[event.token].hold);
        assert_false(told[event.token]);
        told[event.token] = true;
    }
    snib_event more;
    assert_int_equal(snib_queue_drain(world->queue, &more, 1, NULL), 0);
}

static void release_lost(struct kinds_world *world, int traits)
{
    for (EACH_KIND_THAT(world, pair, traits)) {
        EXPECT(snib_hold_release(pair->hold, err), SNIB_LOST);
        snib_hold_free(pair->hold);
        pair->hold = NULL;
    }
}

/* ---- Renewal --------------------------------------------------------------------------------- */

static void renewed_while_held(void **state)
{
    struct kinds_world *world =
        world_open(state, (struct kinds_options){.lease_ms = KEPT_LEASE_MS});
    hold_each(world, ~0);
    wait_for_each(world, ~0);
    snib_event event;
    for (int64_t end = now_ms() + HELD_MS; now_ms() < end; nap_us(2000)) {
        for (EACH_KIND(world, pair))
            if (snib_hold_state(pair->hold, NULL) == SNIB_HOLD_LOST)
                fail_msg("%s was lost", pair->kind->name);
        assert_int_equal(snib_queue_drain(world->their_queue, &event, 1, NULL), 0);
    }
    snib_client_stats_data stats = must_stats(world->ours);
    assert_true(stats.renewals >=
                (uint64_t)count_of_kinds(world, LEASED) * HELD_MS / KEPT_LEASE_MS);
    assert_true(stats.renewal_commands < stats.renewals); /* in batches, of one kind each */
    for (EACH_KIND(world, pair)) {
        must_release(pair->hold);
        pair->hold = NULL;
    }
    expect_served(world, ~0, SLACK_MS);
    kinds_close(world);
}

/* A slice is too short for a recv() that waits. */
static void release_by_slices(snib_hold *hold)
{
    snib_op *op;
    snib_event event = {0};
    int code = snib_hold_release_begin(hold, 20, NULL, 0, &op, NULL);
    while (code == SNIB_AGAIN) {
        code = snib_op_wait(op, 20, &event, NULL);
        code = code == SNIB_OK ? event.code : code;
    }
    assert_int_equal(code, SNIB_OK);
    snib_hold_free(hold);
}

static struct rlimit usual;

static int sandbox_end(void **state)
{
    (void)state;
    return setrlimit(RLIMIT_NOFILE, &usual);
}

/* A sandbox that allows no more descriptors: the kernel polls none of those that there are.  What is held is renewed and
 * given back all the same, and waits end. */
static void in_a_sandbox(void **state)
{
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &usual), 0);
    struct kinds_world *world =
        world_open(state, (struct kinds_options){.lease_ms = KEPT_LEASE_MS});
    snib_event event;
    hold_each(world, ~0);
    wait_for_each(world, ~0);
    struct rlimit none = {0, usual.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    int waited = snib_queue_wait(world->queue, &event, 1, HELD_MS, NULL);
    for (EACH_KIND(world, pair)) {
        release_by_slices(pair->hold);
        pair->hold = NULL;
    }
    expect_served(world, ~0, SLACK_MS);
    sandbox_end(NULL);
    assert_int_equal(waited, 0);
    kinds_close(world);
}

static void max_hold_ends_it(void **state)
{
    enum { MAX_HOLD_MS = 2 * LEASE_MS };
    struct kinds_world *world =
        world_open(state, (struct kinds_options){.lease_ms = LEASE_MS, .max_hold_ms = MAX_HOLD_MS});
    int64_t start = now_ms();
    hold_each(world, LEASED);
    wait_for_each(world, LEASED);
    for (EACH_KIND_THAT(world, pair, LEASED))
        expect_hold_lost(pair->hold, SNIB_REASON_MAX_HOLD, 2 * MAX_HOLD_MS);
    assert_true(now_ms() - start >= MAX_HOLD_MS);
    expect_served(world, LEASED, LEASE_MS + SLACK_MS);
    expect_loss_events(world, LEASED, SNIB_REASON_MAX_HOLD);
    release_lost(world, LEASED);
    kinds_close(world);
}

/* The holder is told before the lease ends, and then the waiter gets the lock. */
static void fixed_lease_ends(void **state)
{
    struct kinds_world *world =
        world_open(state, (struct kinds_options){.fixed_lease_ms = 2 * LEASE_MS});
    int64_t end_ns[KINDS];
    for (EACH_KIND_THAT(world, pair, LEASED)) {
        end_ns[pair - world->pairs] = now_ns() + INT64_C(2) * LEASE_MS * 1000000;
        pair->hold = must_acquire(pair->ours, 0);
    }
    wait_for_each(world, LEASED);
    for (EACH_KIND_THAT(world, pair, LEASED)) {
        int64_t left_ns = end_ns[pair - world->pairs] - now_ns();
        nap_us(left_ns > 0 ? left_ns / 1000 : 0);
        expect_hold_lost(pair->hold, SNIB_REASON_EXPIRED, 0);
    }
    expect_served(world, LEASED, SLACK_MS);
    assert_int_equal(must_stats(world->ours).renewals, 0);
    release_lost(world, LEASED);
    kinds_close(world);
}

/* ---- Losses ---------------------------------------------------------------------------------- */

/* The client's limit applies to locks that have none of their own, and that do not disable it. */
static void max_hold_of_the_client(void **state)
{
    enum { MAX_HOLD_MS = 300 };
    struct kinds_world *world = *state;
    snib_client_options options;
    snib_client *client = NULL;
    snib_client_options_init(&options, sizeof options);
    options.max_hold_ms = MAX_HOLD_MS;
    EXPECT(snib_client_open(world->server.url, &options, &client, err), SNIB_OK);
    snib_hold *limited = must_acquire(must_lock(client, "limited"), 0);
    snib_hold *longer = must_acquire(must_lock_lease(client, "longer", 0, 60000), 0);
    snib_hold *unlimited = must_acquire(must_lock_lease(client, "unlimited", 0, -1), 0);
    expect_hold_lost(limited, SNIB_REASON_MAX_HOLD, MAX_HOLD_MS);
    EXPECT(snib_hold_check(longer, err), SNIB_OK);
    must_release(longer);
    must_release(unlimited);
    snib_hold_free(limited);
    snib_client_free(client);
}

static void deleted(void **state)
{
    struct kinds_world *world = world_open(state, (struct kinds_options){.lease_ms = 2 * LEASE_MS});
    hold_each(world, LEASED);
    server_do(&world->server, "FLUSHALL");
    for (EACH_KIND_THAT(world, pair, LEASED))
        expect_hold_lost(pair->hold, SNIB_REASON_DELETED, 2 * NEXT_RENEWAL_MS);
    expect_loss_events(world, LEASED, SNIB_REASON_DELETED);
    release_lost(world, LEASED);
    nap_us(LEASE_MS * 1000);
    assert_true(server_is_empty(&world->server)); /* no renewal has recreated a key */
    world->base[0] = '\0';
    kinds_close(world);
}

/* Another owner has it by then; that hold is not touched. */
static void taken(void **state)
{
    struct kinds_world *world = world_open(state, (struct kinds_options){.lease_ms = 4 * LEASE_MS});
    snib_hold *theirs[KINDS];
    hold_each(world, LEASED);
    for (EACH_KIND_THAT(world, pair, LEASED)) {
        EXPECT(snib_lock_force_release(pair->same, err), SNIB_OK);
        if (pair->kind->traits & COUNTED)
            must_count(pair->kind->kind, pair->same, SNIB_COUNT_INIT, 1);
        theirs[pair - world->pairs] = must_acquire(pair->rival, 0);
    }
    for (EACH_KIND_THAT(world, pair, LEASED))
        expect_hold_lost(pair->hold, SNIB_REASON_TAKEN, 4 * NEXT_RENEWAL_MS);
    expect_loss_events(world, LEASED, SNIB_REASON_TAKEN);
    release_lost(world, LEASED);
    nap_us(LEASE_MS * 1000);
    for (EACH_KIND_THAT(world, pair, LEASED)) {
        EXPECT(snib_hold_check(theirs[pair - world->pairs], err), SNIB_OK);
        EXPECT(snib_hold_release(theirs[pair - world->pairs], err), SNIB_OK);
        snib_hold_free(theirs[pair - world->pairs]);
    }
    kinds_close(world);
}

/* The earliest end of each lease, read so that no renewal comes later. */
static void stop_server(struct kinds_world *world, int64_t end_ns[KINDS])
{
    for (;;) {
        uint64_t before = must_stats(world->ours).renewals;
        for (EACH_KIND_THAT(world, pair, LEASED)) {
            snib_lock_info_data info = {.size = sizeof info};
            int64_t asked_ns = now_ns();
            EXPECT(snib_lock_info(pair->same, &info, err), SNIB_OK);
            assert_true(info.remaining_ms > 0);
            end_ns[pair - world->pairs] = asked_ns + info.remaining_ms * 1000000;
        }
        server_pause(&world->server);
        nap_us(500000); /* replies in flight; the leases last longer */
        if (must_stats(world->ours).renewals == before)
            return;
        server_continue(&world->server);
    }
}

static void server_stops(void **state)
{
    struct kinds_world *world =
        world_open(state, (struct kinds_options){.lease_ms = KEPT_LEASE_MS});
    int64_t end_ns[KINDS];
    hold_each(world, LEASED);
    AWAIT(must_stats(world->ours).renewals > 0, KEPT_LEASE_MS);
    stop_server(world, end_ns);
    for (EACH_KIND_THAT(world, pair, LEASED)) {
        int64_t left_ns = end_ns[pair - world->pairs] - now_ns();
        nap_us(left_ns > 0 ? left_ns / 1000 : 0);
        expect_hold_lost(pair->hold, SNIB_REASON_UNREACHABLE, 0);
    }
    expect_loss_events(world, LEASED, SNIB_REASON_UNREACHABLE);
    server_continue(&world->server);
    release_lost(world, LEASED);
    for (EACH_KIND(world, pair))
        must_release(must_acquire(pair->rival, SLACK_MS));
    kinds_close(world);
}

/* The server restarts empty while each lock is held and waited for. */
static void server_restarts(void **state)
{
    struct kinds_world *world = world_open(state, (struct kinds_options){.lease_ms = 4 * LEASE_MS});
    hold_each(world, OWNED);
    wait_for_each(world, OWNED);
    server_restart(&world->server);
    for (EACH_KIND_THAT(world, pair, OWNED)) {
        int32_t reason; /* the waiter may have the lock before the next renewal */
        EXPECT(snib_hold_wait(pair->hold, SLACK_MS, &reason, err), SNIB_LOST);
        assert_true(reason == SNIB_REASON_DELETED || reason == SNIB_REASON_TAKEN);
    }
    expect_served(world, OWNED, SLACK_MS);
    release_lost(world, OWNED);
    kinds_set_numbers(world);
    for (EACH_KIND(world, pair)) /* token counters exist again */
        must_release(must_acquire(pair->ours, SLACK_MS));
    kinds_close(world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(renewed_while_held),
        cmocka_unit_test_teardown(in_a_sandbox, sandbox_end),
        cmocka_unit_test(max_hold_ends_it),
        cmocka_unit_test(max_hold_of_the_client),
        cmocka_unit_test(fixed_lease_ends),
        cmocka_unit_test(deleted),
        cmocka_unit_test(taken),
        cmocka_unit_test(server_stops),
        cmocka_unit_test(server_restarts),
    };
    return cmocka_run_group_tests(tests, kinds_server_start, kinds_server_stop);
}
