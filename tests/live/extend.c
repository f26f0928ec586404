/* extend.c - a live hold gets another lease: of all kinds, by the server's word, told in every way.
 *
 * The new leases are an hour, so that no stall of the machine decides a test.  What late copies of requests do
 * is tested with the scripts (traces/test_leases.py) and by the simulator.
 */
#include "../support/kinds.h"

#include <string.h>

enum {
    LEASE_MS = 20000,
    HOUR_MS = 3600000,
    ALMOST_MS = 3000000,
    PROMPT_MS = 10000,
    SHORT_MS = 5000
};

static int world_new(void **state)
{
    kinds_open(*state, (struct kinds_options){.lease_ms = LEASE_MS});
    return 0;
}

static int fixed_new(void **state)
{
    kinds_open(*state,
               (struct kinds_options){.lease_ms = LEASE_MS, .fixed_lease_ms = LEASE_MS / 2});
    return 0;
}

static int world_free(void **state)
{
    kinds_close(*state);
    return 0;
}

/* ---- All kinds ------------------------------------------------------------------------------- */

/* The ms that the server keeps the lock; a count of permits has no such information. */
static int64_t kept_ms(const struct pair *pair)
{
    snib_lock_info_data info = {.size = sizeof info};
    EXPECT(snib_lock_info(pair->same, &info, err), SNIB_OK);
    return pair->kind->kind == SNIB_PERMITS ? INT64_MAX : info.remaining_ms;
}

/* A fixed lease becomes another, the client's, and again a fixed one: never a shorter one. */
static void leases_of_all_kinds(void **state)
{
    struct kinds_world *world = *state;
    for (EACH_KIND_THAT(world, pair, LEASED)) {
        snib_hold *hold = must_acquire(pair->ours, 0);
        assert_true(snib_hold_remaining_ms(hold) <= LEASE_MS);
        EXPECT(snib_hold_extend(hold, HOUR_MS, err), SNIB_OK);
        assert_true(snib_hold_remaining_ms(hold) > ALMOST_MS && kept_ms(pair) > ALMOST_MS);
        EXPECT(snib_hold_extend(hold, 100, err), SNIB_OK);
        assert_true(snib_hold_remaining_ms(hold) > ALMOST_MS);
        EXPECT(snib_hold_extend(hold, 0, err),
               SNIB_OK); /* what the client vouches for is its own lease */
        assert_true(snib_hold_remaining_ms(hold) <= LEASE_MS && kept_ms(pair) > ALMOST_MS);
        EXPECT(snib_hold_check(hold, err), SNIB_OK);
        must_release(hold);
        must_release(must_acquire(pair->rival, PROMPT_MS));
    }
}

/* Renewed holds become fixed ones, whose lease ends, and fixed ones are renewed. */
static void renewal_ends_and_begins(void **state)
{
    struct kinds_world *world = *state;
    snib_client *client = must_open_lease(world->server.url, SHORT_MS);
    snib_lock *lock = must_lock(client, "short"),
              *fixed = must_lock_lease(client, "fixed", 2 * SHORT_MS, 0);
    snib_hold *hold = must_acquire(lock, 0);
    EXPECT(snib_hold_extend(hold, 100, err), SNIB_OK);
    expect_hold_lost(hold, SNIB_REASON_EXPIRED, 2 * SHORT_MS);
    EXPECT(snib_hold_extend(hold, HOUR_MS, err), SNIB_LOST);
    snib_hold_free(hold);
    hold = must_acquire(fixed, PROMPT_MS);
    EXPECT(snib_hold_extend(hold, 0, err), SNIB_OK);
    uint64_t before = must_stats(client).renewals;
    AWAIT(must_stats(client).renewals > before + 2, PROMPT_MS);
    must_release(hold);
    snib_client_free(client);
}

/* ---- What is told ---------------------------------------------------------------------------- */

static void told_by_event(void **state)
{
    struct kinds_world *world = *state;
    struct pair *pair = kinds_next(world, NULL, LEASED);
    snib_hold *hold = must_acquire(pair->ours, 0);
    snib_op *op = NULL;
    EXPECT(snib_hold_extend_submit(hold, HOUR_MS, world->queue, 5, NULL, err), SNIB_OK);
    snib_event event = must_event(world->queue, PROMPT_MS);
    assert_int_equal(event.kind, SNIB_EVENT_DONE);
    assert_int_equal(event.code, SNIB_OK);
    assert_int_equal(event.token, 5);
    assert_null(event.hold);
    assert_true(snib_hold_remaining_ms(hold) > ALMOST_MS);
    EXPECT(snib_hold_extend_begin(hold, 0, -1, NULL, 0, &op, err), SNIB_OK);
    assert_null(op);
    EXPECT(snib_hold_extend_submit(hold, HOUR_MS, NULL, 0, &op, err), SNIB_OK);
    assert_int_equal(must_end(op, PROMPT_MS).code, SNIB_OK);
    assert_true(snib_hold_remaining_ms(hold) > ALMOST_MS);
    EXPECT(snib_hold_extend_submit(hold, HOUR_MS, NULL, 0, &op, err), SNIB_OK);
    snib_op_free(op); /* nobody wants to know */
    must_release(hold);
}

/* The server no longer has it: the hold is lost, for all who ask. */
static void found_lost(void **state)
{
    struct kinds_world *world = *state;
    snib_lock *lock = must_lock(world->ours, "gone");
    for (int taken = 0; taken < 2; taken++) {
        int32_t reason = taken ? SNIB_REASON_TAKEN : SNIB_REASON_DELETED;
        EXPECT(snib_lock_acquire_submit(lock, 0, PROMPT_MS, world->queue, 9, NULL, err), SNIB_OK);
        snib_hold *hold = must_event(world->queue, PROMPT_MS).hold;
        server_do(&world->server, "DEL gone");
        if (taken)
            server_do(&world->server, "HSET gone 0aa00000-0000-4000-8000-000000000000:1 1");
        snib_error error;
        assert_int_equal(snib_hold_extend(hold, HOUR_MS, &error), SNIB_LOST);
        assert_int_equal(error.reason, reason);
        assert_non_null(strstr(error.text, "\"gone\" was lost"));
        snib_event event = must_event(world->queue, PROMPT_MS);
        assert_int_equal(event.kind, SNIB_EVENT_LOST);
        assert_int_equal(event.reason, reason);
        assert_int_equal(snib_hold_state(hold, NULL), SNIB_HOLD_LOST);
        snib_hold_free(hold);
        server_do(&world->server, "DEL gone");
    }
    snib_lock_free(lock);
}

/* A server that does not answer keeps nobody waiting beyond the end of the hold. */
static void ends_with_its_hold(void **state)
{
    struct kinds_world *world = *state;
    snib_lock *lock = must_lock_lease(world->ours, "mute", 1500, 0);
    snib_hold *hold = must_acquire(lock, 0);
    server_pause(&world->server);
    snib_error error;
    assert_int_equal(snib_hold_extend(hold, HOUR_MS, &error), SNIB_LOST);
    assert_int_equal(error.reason, SNIB_REASON_EXPIRED);
    server_continue(&world->server);
    snib_hold_free(hold);
    snib_lock_free(lock);
}

/* ---- What is refused ------------------------------------------------------------------------- */

static void expect_refused(int got, int want, const snib_error *error, const char *word)
{
    assert_int_equal(got, want);
    if (!strstr(error->text, word))
        fail_msg("\"%s\" does not say \"%s\"", error->text, word);
}

static void refusals(void **state)
{
    struct kinds_world *world = *state;
    static const int64_t bad[] = {-1, 1, 99, 86400001, INT64_MAX, INT64_MIN};
    snib_lock *lock = must_lock(world->ours, "some");
    snib_hold *hold = must_acquire(lock, 0);
    snib_error error;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        expect_refused(snib_hold_extend(hold, bad[i], &error), SNIB_ELEASE, &error, "100 ms");
    EXPECT(snib_hold_extend(NULL, 1000, err), SNIB_EHANDLE);
    EXPECT(snib_hold_extend_begin(hold, 1000, 0, NULL, 0, NULL, err), SNIB_EINVAL);
    EXPECT(snib_hold_extend_submit(hold, 1000, world->their_queue, 0, NULL, err), SNIB_EINVAL);
    EXPECT(snib_hold_check(hold, err), SNIB_OK);
    EXPECT(snib_hold_release(hold, err), SNIB_OK);
    EXPECT(snib_hold_extend(hold, 1000, err), SNIB_NOT_HELD);
    snib_hold_free(hold);

    snib_lock *semaphore = must_lock_kind(world->ours, SNIB_SEMAPHORE, "kind:semaphore");
    hold = must_acquire(semaphore, 0);
    expect_refused(snib_hold_extend(hold, 1000, &error), SNIB_ENOTSUP, &error,
                   "\"kind:semaphore\": the permits of a semaphore have no lease");
    must_release(hold);

    snib_lock_free(semaphore);
    snib_lock_free(lock);
}

/* One script takes all the members, and one extends them. */
static void several_names(void **state)
{
    struct kinds_world *world = *state;
    snib_lock *two[] = {must_lock(world->ours, "a"), must_lock_kind(world->ours, SNIB_READ, "b")};
    snib_lock *multi = NULL;
    EXPECT(snib_multi_new(two, 2, NULL, &multi, err), SNIB_OK);
    snib_hold *hold = must_acquire(multi, PROMPT_MS);
    EXPECT(snib_hold_extend(hold, HOUR_MS, err), SNIB_OK);
    assert_true(snib_hold_remaining_ms(hold) > ALMOST_MS);
    assert_true(server_integer(&world->server, "PTTL a") > ALMOST_MS);
    assert_true(server_integer(&world->server, "PTTL b") > ALMOST_MS);
    must_release(hold);
    snib_lock_free(multi);
    snib_lock_free(two[0]);
    snib_lock_free(two[1]);
}

/* Members at several clients are renewed while the others are collected, and then get the lock's fixed lease, which
 * is shorter. */
static void members_get_a_shorter_lease(void **state)
{
    struct kinds_world *world = *state;
    static const char longest[] = "local most = 0 for _, key in ipairs(redis.call('keys', '*')) do "
                                  "most = math.max(most, redis.call('pttl', key)) end return most";
    snib_lock *all[] = {must_lock(world->ours, "a"), must_lock_kind(world->ours, SNIB_WRITE, "w"),
                        must_lock_kind(world->theirs, SNIB_READ, "r"),
                        must_lock_kind(world->theirs, SNIB_PLAIN, "p")};
    snib_lock *multi = NULL;
    snib_lock_options options;
    snib_lock_options_init(&options, sizeof options);
    options.lease_ms = LEASE_MS / 2;
    EXPECT(snib_multi_new(all, sizeof all / sizeof all[0], &options, &multi, err), SNIB_OK);
    snib_hold *hold = must_acquire(multi, PROMPT_MS);
    AWAIT(server_integer(&world->server, "EVAL %s 0", longest) <= LEASE_MS / 2, 3000);
    EXPECT(snib_hold_check(hold, err), SNIB_OK);
    must_release(hold);
    snib_lock_free(multi);
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        snib_lock_free(all[i]);
}

#define TEST(name, new) cmocka_unit_test_setup_teardown(name, new, world_free)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(leases_of_all_kinds, world_new),
        {"leases_of_all_kinds, fixed", leases_of_all_kinds, fixed_new, world_free, NULL},
        TEST(renewal_ends_and_begins, world_new),
        TEST(told_by_event, world_new),
        TEST(found_lost, world_new),
        TEST(ends_with_its_hold, world_new),
        TEST(refusals, world_new),
        TEST(several_names, world_new),
        TEST(members_get_a_shorter_lease, world_new),
    };
    return cmocka_run_group_tests(tests, kinds_server_start, kinds_server_stop);
}
