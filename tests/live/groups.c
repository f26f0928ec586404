/* groups.c - locks of locks: all or none, on one server, on several, and by majority. */
#include "../support/teams.h"

#include <pthread.h>
#include <stdlib.h>

/* ---- All or none ------------------------------------------------------------------------------ */

static void exclusion(void **state)
{
    struct teams_world *world = *state;
    for (EACH_TEAM(world, team)) {
        snib_hold *hold = must_acquire(team->group, 0), *other = NULL;
        int64_t remaining = snib_hold_remaining_ms(hold);
        assert_true(remaining > 20000 && remaining <= 30000);
        assert_int_equal(snib_hold_token(hold), 0);
        teams_await_all_votes(world, team);
        EXPECT(snib_lock_acquire(team->their_group, 0, 0, &other, err), SNIB_BUSY);
        EXPECT(snib_lock_acquire(team->their_group, 0, 60, &other, err), SNIB_TIMEDOUT);
        EXPECT(snib_lock_acquire(team->group, 0, 0, &other, err), SNIB_BUSY); /* a fresh owner */
        for (int i = 0; i < team->is->n; i++)
            EXPECT(snib_lock_acquire(team->rivals[i], 0, 0, &other, err), SNIB_BUSY);
        EXPECT(snib_hold_check(hold, err), SNIB_OK);
        EXPECT(snib_hold_release(hold, err), SNIB_OK);
        EXPECT(snib_hold_release(hold, err), SNIB_NOT_HELD);
        snib_hold_free(hold);
        /* Confirmed free; of a quorum's members a minority may follow, or be given back by a late attempt. */
        for (int i = 0; i < team->is->n; i++)
            must_release(must_acquire(team->rivals[i], team->is->quorum ? PROMPT_MS : 0));
        must_release(must_acquire(team->their_group, 0));
    }
}

/* One member is held by another: none is taken.  A quorum works without a minority. */
static void all_or_none(void **state)
{
    struct teams_world *world = *state;
    for (EACH_TEAM(world, team))
        for (int i = 0; i < team->is->n; i++) {
            snib_hold *theirs = must_acquire(team->rivals[i], PROMPT_MS), *hold = NULL;
            if (team->is->quorum) {
                must_release(must_acquire(team->group, PROMPT_MS));
                snib_hold *second = must_acquire(team->rivals[(i + 1) % 3], PROMPT_MS);
                EXPECT(snib_lock_acquire(team->group, 0, 0, &hold, err), SNIB_BUSY);
                EXPECT(snib_lock_acquire(team->group, 0, 40, &hold, err), SNIB_TIMEDOUT);
                must_release(must_acquire(team->rivals[(i + 2) % 3], PROMPT_MS));
                must_release(second);
            } else {
                EXPECT(snib_lock_acquire(team->group, 0, 0, &hold, err), SNIB_BUSY);
                EXPECT(snib_lock_acquire(team->group, 0, 40, &hold, err), SNIB_TIMEDOUT);
                for (int other = 0; other < team->is->n; other++)
                    if (other != i)
                        must_release(must_acquire(team->rivals[other], PROMPT_MS));
            }
            EXPECT(snib_hold_check(theirs, err), SNIB_OK);
            must_release(theirs);
        }
}

static void reentry(void **state)
{
    struct teams_world *world = *state;
    for (EACH_TEAM(world, team)) {
        snib_hold *hold = must_acquire_as(team->group, 5, 0), *other = NULL;
        uint64_t before = 0, after = 0;
        for (int i = 0; i < SERVERS; i++)
            before += must_stats(world->ours[i]).commands;
        for (int i = 0; i < 3; i++)
            assert_ptr_equal(must_acquire_as(team->group, 5, -1), hold);
        for (int i = 0; i < 3; i++)
            must_release(hold);
        for (int i = 0; i < SERVERS; i++)
            after += must_stats(world->ours[i]).commands;
        assert_int_equal(before, after);
        EXPECT(snib_lock_acquire(team->their_group, 0, 0, &other, err), SNIB_BUSY);
        must_release(hold);
        must_release(must_acquire(team->their_group, 0));
    }
}

/* ---- Waiting --------------------------------------------------------------------------------- */

static void release_wakes(void **state)
{
    struct teams_world *world = *state;
    for (EACH_TEAM(world, team))
        for (int i = 0; i < team->is->n; i++) {
            snib_queue *queue = must_queue(world->ours[team->is->of[0].server]);
            snib_hold *theirs = must_acquire(team->rivals[i], PROMPT_MS);
            snib_hold *second =
                team->is->quorum ? must_acquire(team->rivals[(i + 1) % 3], PROMPT_MS) : NULL;
            EXPECT(snib_lock_acquire_submit(team->group, 0, -1, queue, 3, NULL, err), SNIB_OK);
            nap_us(i % 2 ? 60000 : 1000);
            snib_event event = {.size = sizeof event};
            assert_int_equal(snib_queue_drain(queue, &event, 1, NULL), 0);
            int64_t start = now_ms();
            must_release(theirs);
            event = must_event(queue, PROMPT_MS);
            if (event.code != SNIB_OK || now_ms() - start > PROMPT_MS)
                fail_msg("%s, member %d: %s after %d ms", team->is->name, i,
                         snib_code_name(event.code), (int)(now_ms() - start));
            must_release(event.hold);
            if (second)
                must_release(second);
            snib_queue_free(queue);
        }
}

enum way { BY_CANCEL, BY_TIMEOUT, BY_QUEUE_FREE, BY_OP_FREE, WAYS };

/* An acquisition ends at any moment, while a member is not free, or with all free; nothing of it
 * stays. */
static void leaving(void **state)
{
    struct teams_world *world = *state;
    for (EACH_TEAM(world, team))
        for (int run = 0; run < count_of(400, 40); run++) {
            enum way way = (enum way)(run % WAYS);
            bool contended = run / WAYS % 2;
            snib_client *home = world->ours[team->is->of[0].server];
            snib_queue *queue = way == BY_OP_FREE ? NULL : must_queue(home);
            snib_hold *theirs = contended ? must_acquire(team->their_group, PROMPT_MS) : NULL;
            snib_op *op = NULL;
            EXPECT(snib_lock_acquire_submit(team->group, 0, way == BY_TIMEOUT ? 1 + run % 5 : -1,
                                            queue, 3, &op, err),
                   SNIB_OK);
            nap_us(random() % 1500);
            int cancelled = way == BY_CANCEL ? snib_op_cancel(op) : SNIB_EHANDLE;
            if (way == BY_OP_FREE)
                snib_op_free(op);
            if (way == BY_CANCEL || way == BY_TIMEOUT) {
                snib_event event = must_event(queue, PROMPT_MS);
                int want = way == BY_CANCEL ? SNIB_CANCELLED : SNIB_TIMEDOUT;
                assert_true(event.code == want || (event.code == SNIB_OK && !contended));
                assert_true((event.code == SNIB_CANCELLED) == (cancelled == SNIB_OK));
                snib_hold_free(event.hold);
            }
            snib_queue_free(queue);
            if (theirs)
                must_release(theirs);
            must_release(must_acquire(team->their_group, PROMPT_MS));
        }
    teams_expect_base(world);
}

struct worker {
    snib_lock *group;
    int *inside, *doubled, rounds;
};

static void *work(void *argument)
{
    struct worker *worker = argument;
    for (int i = 0; i < worker->rounds; i++) {
        snib_hold *hold = must_acquire(worker->group, 20000);
        if (__atomic_add_fetch(worker->inside, 1, __ATOMIC_SEQ_CST) != 1)
            __atomic_add_fetch(worker->doubled, 1, __ATOMIC_SEQ_CST);
        nap_us(300); /* another one would be seen */
        __atomic_sub_fetch(worker->inside, 1, __ATOMIC_SEQ_CST);
        must_release(hold);
    }
    return NULL;
}

/* Two processes name the members in opposite order, and never deadlock. */
static void opposite_orders(void **state)
{
    struct teams_world *world = *state;
    for (EACH_TEAM(world, team)) {
        int inside = 0, doubled = 0, rounds = count_of(300, 40);
        pthread_t threads[4];
        struct worker workers[] = {{team->group, &inside, &doubled, rounds},
                                   {team->their_group, &inside, &doubled, rounds}};
        int64_t start = now_ms();
        for (int i = 0; i < 4; i++)
            assert_int_equal(pthread_create(&threads[i], NULL, work, &workers[i % 2]), 0);
        for (int i = 0; i < 4; i++)
            pthread_join(threads[i], NULL);
        assert_int_equal(doubled, 0);
        print_message("          %s: %d ms\n", team->is->name, (int)(now_ms() - start));
    }
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, teams_new, teams_free)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(exclusion),     TEST(all_or_none), TEST(reentry),
        TEST(release_wakes), TEST(leaving),     TEST(opposite_orders),
    };
    return cmocka_run_group_tests(tests, teams_start, teams_stop);
}
