/* turn.c - when the client gives way to strangers, and for how long. */
#include "fed.h"

#define LONGEST                                                                                    \
    (22 * SNIB__MS) /* a chance: 20 ms, and a little for each stranger whose turn comes before */

static struct snib__engine *engine;
static struct snib__gate *mutex;
static struct snib__waitq *waitq;

static int start(void **state)
{
    (void)state;
    engine = begin();
    mutex = gate(engine, SNIB_MUTEX, "m");
    waitq = snib__waitq_get(engine, mutex);
    return waitq ? 0 : -1;
}

static int stop(void **state)
{
    (void)state;
    snib__waitq_free(engine, waitq);
    snib__engine_free(engine);
    return 0;
}

/* A release whose message so many strangers received. */
static void released(int strangers)
{
    snib__turn_released(engine, mutex, strangers, now);
}

/* The offered chance passes unused: this client's own attempt works. */
static void nobody_comes(void)
{
    snib__turn_give_way(engine, waitq, now);
    now = waitq->offered_until;
    snib__turn_granted(waitq, now);
    snib__timer_cancel(engine, &waitq->timer_at);
}

/* A waiter gives way for as long as the chance lasts; not if its own time would be over before, nor
 * if it has only one try. */
static void who_gives_way(void **state)
{
    (void)state;
    struct snib__op op = {.deadline = SNIB__NEVER};
    released(1);
    const snib__time until = waitq->offered_until;
    assert_true(until > now && until < now + LONGEST);
    assert_true(snib__turn_is_theirs(waitq, &op, now));
    assert_true(snib__turn_is_theirs(waitq, &op, until - 1));
    assert_false(snib__turn_is_theirs(waitq, &op, until));
    op.deadline = until + 1;
    assert_true(snib__turn_is_theirs(waitq, &op, now));
    op.deadline = until;
    assert_false(snib__turn_is_theirs(waitq, &op, now));
    op = (struct snib__op){.deadline = SNIB__NEVER, .once = true};
    assert_false(snib__turn_is_theirs(waitq, &op, now));
    op.once = false;
    snib__turn_heard(waitq, now); /* it had its turn */
    assert_false(snib__turn_is_theirs(waitq, &op, now));
    released(0);
    now += SNIB__MS;
    snib__turn_granted(waitq, now);
    released(0);
    assert_false(snib__turn_is_theirs(waitq, &op, now));
}

/* Strangers that miss a chance are not waited for; after a while they get another one. */
static void absent_for_a_while(void **state)
{
    (void)state;
    released(2);
    assert_int_equal(waitq->owed, 2);
    const snib__time chance = waitq->offered_until - now;
    nobody_comes();
    released(2);
    assert_int_equal(waitq->owed, 0);
    assert_false(snib__turn_contested(waitq));
    now += 3 * chance;
    released(2);
    assert_int_equal(waitq->owed, 0);
    now += chance;
    released(2);
    assert_int_equal(waitq->owed, 2);
    assert_true(snib__turn_contested(waitq));
}

/* A stranger that listens and never comes costs little: a chance is bounded, and offered seldom. */
static void patience_ends(void **state)
{
    (void)state;
    snib__time given = 0;
    const snib__time begun = now;
    for (int i = 0; i < 1000; i++) {
        released(3);
        assert_true(waitq->offered_until - now <= LONGEST);
        if (waitq->owed > 0) {
            given += waitq->offered_until - now;
            nobody_comes();
        }
        now += SNIB__MS;
    }
    assert_true(given > 0 && given < (now - begun) / 8);
}

/* Strangers that come at once are given no more time than they need. */
static void patience_learns(void **state)
{
    (void)state;
    for (int i = 0; i < 100; i++) {
        released(1);
        now += SNIB__MS / 5;
        snib__turn_heard(waitq, now);
    }
    released(1);
    assert_true(waitq->offered_until - now < SNIB__MS);
    for (int i = 0; i < 100; i++) { /* even a hundred that need no time leave some */
        snib__turn_heard(waitq, now);
        released(1);
    }
    assert_true(waitq->offered_until - now >= 3 * SNIB__MS / 10);
}

/* Those that need longer are given longer: three times what they have needed. */
static void patience_suffices(void **state)
{
    (void)state;
    for (int i = 0; i < 100; i++) {
        released(1);
        now += SNIB__MS / 4;
        snib__turn_heard(waitq, now);
    }
    released(1);
    const snib__time first_of_one = 3 * SNIB__MS / 10;
    assert_in_range(waitq->offered_until - now - first_of_one, 3 * SNIB__MS / 4, 4 * SNIB__MS / 5);
}

/* Strangers that were heard before the release's own reply have had their turns already. */
static void heard_before_the_reply(void **state)
{
    (void)state;
    struct snib__hold hold = {.gate = mutex, .phase = SNIB__RELEASING};
    snib__turn_releasing(waitq);
    mutex->active = &hold;
    snib__turn_heard(waitq, now);
    mutex->active = NULL;
    released(3);
    assert_int_equal(waitq->owed, 2);
    snib__turn_releasing(waitq);
    released(3);
    assert_int_equal(waitq->owed, 3);
}

/* A client that listens only while it waits, like Redisson's, has just had a turn: it may be about
 * to ask again, once. */
static void who_has_just_come(void **state)
{
    (void)state;
    released(0);
    assert_false(snib__turn_contested(waitq));
    snib__turn_heard(waitq, now);
    released(0);
    assert_int_equal(waitq->owed, 1);
    assert_true(snib__turn_contested(waitq));
    released(0);
    assert_int_equal(waitq->owed, 0);
    assert_false(snib__turn_contested(waitq));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(who_gives_way, start, stop),
        cmocka_unit_test_setup_teardown(absent_for_a_while, start, stop),
        cmocka_unit_test_setup_teardown(patience_ends, start, stop),
        cmocka_unit_test_setup_teardown(patience_learns, start, stop),
        cmocka_unit_test_setup_teardown(patience_suffices, start, stop),
        cmocka_unit_test_setup_teardown(heard_before_the_reply, start, stop),
        cmocka_unit_test_setup_teardown(who_has_just_come, start, stop),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
