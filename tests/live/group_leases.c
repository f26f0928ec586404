/* group_leases.c - locks of locks: renewed, with a fixed lease, extended. */
#include "../support/teams.h"

#include <string.h>

/* A lease that is to end, and one that must survive a busy machine. */
enum { LEASE_MS = 800, KEPT_LEASE_MS = 4000 };

static void renewed(void **state)
{
    struct teams_world *world = *state;
    snib_hold *holds[COMPOSITIONS], *other = NULL;
    teams_open(world, KEPT_LEASE_MS, NULL);
    for (EACH_TEAM(world, team))
        holds[team - world->teams] = must_acquire(team->group, 0);
    for (int64_t end = now_ms() + 2 * KEPT_LEASE_MS; now_ms() < end; nap_us(5000))
        for (EACH_TEAM(world, team))
            if (snib_hold_state(holds[team - world->teams], NULL) == SNIB_HOLD_LOST)
                fail_msg("%s was lost", team->is->name);
    for (EACH_TEAM(world, team)) {
        EXPECT(snib_lock_acquire(team->their_group, 0, 0, &other, err), SNIB_BUSY);
        must_release(holds[team - world->teams]);
    }
    teams_close(world);
}

static void ends_by(struct teams_world *world, int32_t reason, int64_t after_ms)
{
    snib_hold *holds[COMPOSITIONS];
    int64_t start = now_ms();
    for (EACH_TEAM(world, team))
        holds[team - world->teams] = must_acquire(team->group, 0);
    for (EACH_TEAM(world, team)) {
        int32_t told = 0;
        EXPECT(snib_hold_wait(holds[team - world->teams], PROMPT_MS, &told, err), SNIB_LOST);
        if (told != reason)
            fail_msg("%s: %s", team->is->name, snib_reason_text(told));
        assert_true(now_ms() - start < after_ms + PROMPT_MS);
        EXPECT(snib_hold_release(holds[team - world->teams], err), SNIB_LOST);
        snib_hold_free(holds[team - world->teams]);
        must_release(must_acquire(team->their_group, LEASE_MS + PROMPT_MS));
    }
    teams_close(world);
}

static void fixed_lease_ends(void **state)
{
    snib_lock_options options;
    snib_lock_options_init(&options, sizeof options);
    options.lease_ms = 2 * LEASE_MS;
    teams_open(*state, 0, &options);
    ends_by(*state, SNIB_REASON_EXPIRED, 2 * LEASE_MS);
}

/* Longer than the lease that the members' clients renew by: it is safe for all of it, as soon as the servers have said so. */
static void fixed_lease_lasts(void **state)
{
    struct teams_world *world = *state;
    snib_lock_options options;
    snib_lock_options_init(&options, sizeof options);
    options.lease_ms = 3600000;
    teams_open(world, KEPT_LEASE_MS, &options);
    for (EACH_TEAM(world, team)) {
        snib_hold *hold = must_acquire(team->group, PROMPT_MS);
        AWAIT(snib_hold_remaining_ms(hold) > 3500000, PROMPT_MS);
        must_release(hold);
        must_release(must_acquire(team->their_group, PROMPT_MS));
    }
    teams_close(world);
}

static void max_hold_ends(void **state)
{
    snib_lock_options options;
    snib_lock_options_init(&options, sizeof options);
    options.max_hold_ms = 2 * LEASE_MS;
    teams_open(*state, KEPT_LEASE_MS, &options);
    ends_by(*state, SNIB_REASON_MAX_HOLD, 2 * LEASE_MS);
}

/* Every member of an extended group gets the lease: it outlives the first one, and ends with the second. */
static void extended(void **state)
{
    struct teams_world *world = *state;
    snib_hold *holds[COMPOSITIONS], *other = NULL;
    int64_t start = now_ms();
    teams_open(world, 0, NULL);
    for (EACH_TEAM(world, team))
        holds[team - world->teams] = must_acquire(team->group, 0);
    for (EACH_TEAM(world, team))
        EXPECT(snib_hold_extend(holds[team - world->teams], 3600000, err), SNIB_OK);
    for (EACH_TEAM(world, team))
        assert_in_range(snib_hold_remaining_ms(holds[team - world->teams]),
                        3500000 - (now_ms() - start), 3600000);
    for (EACH_TEAM(world, team)) { /* a shorter one ends the renewal only: no lease is taken back */
        EXPECT(snib_hold_extend(holds[team - world->teams], LEASE_MS, err), SNIB_OK);
        assert_true(snib_hold_remaining_ms(holds[team - world->teams]) >
                    3500000 - (now_ms() - start));
    }
    for (EACH_TEAM(world, team)) { /* renewed again */
        EXPECT(snib_hold_extend(holds[team - world->teams], 0, err), SNIB_OK);
        assert_true(snib_hold_remaining_ms(holds[team - world->teams]) <= 30000);
        EXPECT(snib_lock_acquire(team->their_group, 0, 0, &other, err), SNIB_BUSY);
        must_release(holds[team - world->teams]);
        must_release(must_acquire(team->their_group, PROMPT_MS));
    }
    teams_close(world);
}

/* A fixed lease that ends is lost, whatever the one before was; and what was not extended, too. */
static void extended_ends(void **state)
{
    struct teams_world *world = *state;
    snib_hold *holds[COMPOSITIONS];
    teams_open(world, LEASE_MS, NULL);
    for (EACH_TEAM(world, team)) {
        snib_hold **hold = &holds[team - world->teams];
        int32_t reason = 0;
        *hold = must_acquire(team->group, PROMPT_MS);
        int code = snib_hold_extend(*hold, 2 * LEASE_MS, NULL);
        assert_true(code == SNIB_OK || code == SNIB_LOST); /* the machine has stalled */
        EXPECT(snib_hold_wait(*hold, PROMPT_MS, &reason, err), SNIB_LOST);
        if (code == SNIB_OK)
            assert_int_equal(reason, SNIB_REASON_EXPIRED);
        EXPECT(snib_hold_extend(*hold, 0, err), SNIB_LOST);
        EXPECT(snib_hold_release(*hold, err), SNIB_LOST);
        snib_hold_free(*hold);
    }
    teams_close(world);
}

/* A release ends an extension that has no answer. */
static void extended_and_released(void **state)
{
    struct teams_world *world = *state;
    teams_open(world, 0, NULL);
    for (EACH_TEAM(world, team)) {
        int home = team->is->of[0].server;
        snib_hold *hold = must_acquire(team->group, PROMPT_MS);
        snib_queue *queue = must_queue(world->ours[home]);
        EXPECT(snib_hold_extend(hold, 3600000, err), SNIB_OK); /* whose end is not to be awaited */
        for (int i = 0; i < SERVERS; i++)
            server_pause(&world->servers[i]);
        EXPECT(snib_hold_extend_submit(hold, 3600000, queue, 1, NULL, err), SNIB_OK);
        EXPECT(snib_hold_release_submit(hold, queue, 2, NULL, err), SNIB_OK);
        for (int i = 0; i < SERVERS; i++)
            server_continue(&world->servers[i]);
        for (int i = 0; i < 2; i++) {
            snib_event event = must_event(queue, 2 * PROMPT_MS);
            assert_true(event.code == (event.token == 2 ? SNIB_OK : SNIB_NOT_HELD) ||
                        (event.token == 1 && event.code == SNIB_OK));
        }
        snib_hold_free(hold);
        snib_queue_free(queue);
        must_release(must_acquire(team->their_group, PROMPT_MS));
    }
    teams_close(world);
}

/* The second of two extensions begins when the first has its answer, not with the next renewal, a quarter of an hour later. */
static void extended_twice_at_once(void **state)
{
    struct teams_world *world = *state;
    teams_open(world, 0, NULL);
    for (EACH_TEAM(world, team)) {
        snib_hold *hold = must_acquire(team->group, PROMPT_MS);
        snib_queue *queue = must_queue(world->ours[team->is->of[0].server]);
        EXPECT(snib_hold_extend(hold, 3600000, err), SNIB_OK);
        for (int i = 0; i < SERVERS; i++)
            server_pause(&world->servers[i]);
        for (uint64_t i = 1; i <= 2; i++)
            EXPECT(snib_hold_extend_submit(hold, 3600000 * (int64_t)i, queue, i, NULL, err),
                   SNIB_OK);
        for (int i = 0; i < SERVERS; i++)
            server_continue(&world->servers[i]);
        for (int i = 0; i < 2; i++)
            assert_int_equal(must_event(queue, 2 * PROMPT_MS).code, SNIB_OK);
        assert_true(snib_hold_remaining_ms(hold) > 7000000);
        must_release(hold);
        snib_queue_free(queue);
    }
    teams_close(world);
}

/* A majority is enough. */
static void extended_by_most(void **state)
{
    struct teams_world *world = *state;
    teams_open(world, 0, NULL);
    struct team *team = &world->teams[COMPOSITIONS - 1];
    snib_hold *hold = must_acquire(team->group, PROMPT_MS);
    for (int i = 0; i < SERVERS; i++)
        AWAIT(server_integer(&world->servers[i], "EXISTS quorum:0") == 1, PROMPT_MS);
    server_pause(&world->servers[1]);
    EXPECT(snib_hold_extend(hold, 60000, err), SNIB_OK);
    EXPECT(snib_hold_extend(hold, 120000, err), SNIB_OK); /* not held up by the silent server */
    assert_true(snib_hold_remaining_ms(hold) > 60000);
    server_continue(&world->servers[1]);
    must_release(hold);
    teams_close(world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(renewed),
        cmocka_unit_test(fixed_lease_ends),
        cmocka_unit_test(extended),
        cmocka_unit_test(extended_ends),
        cmocka_unit_test(extended_by_most),
        cmocka_unit_test(extended_and_released),
        cmocka_unit_test(max_hold_ends),
        cmocka_unit_test(fixed_lease_lasts),
        cmocka_unit_test(extended_twice_at_once),
    };
    return cmocka_run_group_tests(tests, teams_start, teams_stop);
}
