/* extend.c - a live hold gets another lease: what its answer proves, and what is left without one. */
#include "fed.h"

static const struct snib__acquire fixed = {.wait = SNIB__NEVER, .lease = 20 * SECOND};
static struct snib__engine *engine;
static struct snib__hold *hold;

static int start(void **state)
{
    (void)state;
    engine = begin();
    hold = granted(engine, gate(engine, SNIB_MUTEX, "m"), &fixed);
    return 0;
}

static int stop(void **state)
{
    (void)state;
    snib__engine_free(engine);
    return 0;
}

static struct snib__op *extend(snib__time lease)
{
    int32_t code;
    struct snib__op *op = snib__engine_extend(engine, hold, lease, now, &code);
    assert_non_null(op);
    answer_own(engine);
    return op;
}

static void extended(struct snib__op *op)
{
    answer(engine, "*0\r\n");
    assert_ptr_equal(snib__engine_take_done(engine), op);
    assert_int_equal(op->code, SNIB_OK);
    snib__op_free(engine, op);
}

/* The server's clock was set, as another lane has told.  Fixed leases are asked for again at once. */
static void clock_set(void)
{
    now += SNIB__MS;
    engine->home->moved_at = now;
    snib__watchdog_reconnected(engine, engine->home, true, now);
    now += SNIB__MS;
}

static void expect_state(int state)
{
    assert_int_equal(snib__hold_state(engine, hold, now), state);
}

/* The oldest request gives the hold again all that is left of its lease; it is answered. */
static void all_is_given_again(void)
{
    const struct snib__request *request = &conn_of(engine)->ring[conn_of(engine)->ring_head];
    assert_int_equal(request->kind, SNIB__REQ_RENEW);
    const struct snib__batch *batch = request->subject;
    assert_true(batch->asks);
    assert_true(snib__lease_end(now, (snib__time)batch->lease_ms * SNIB__MS) >= hold->deadline);
    expect_state(SNIB_HOLD_AT_RISK);
    answer(engine, "*0\r\n");
    expect_state(SNIB_HOLD_VALID);
    snib__engine_tick(engine, now);
    assert_int_equal(on_the_way(engine), 0);
}

/* One that was asked for after the news proves that the server keeps the hold until its deadline, be it longer than
 * what was left or shorter. */
static void it_ends_a_doubt(void **state)
{
    (void)state;
    for (int longer = 0; longer < 2; longer++) {
        clock_set();
        expect_state(SNIB_HOLD_AT_RISK);
        struct snib__op *op = extend(longer ? 60 * SECOND : SECOND);
        answer(engine, "-MISCONF disk is full\r\n"); /* what was asked at once */
        expect_state(SNIB_HOLD_AT_RISK);
        extended(op);
        expect_state(SNIB_HOLD_VALID);
        now = snib__engine_deadline(engine);
        snib__engine_tick(engine, now);
        assert_int_equal(on_the_way(engine), 0);
    }
}

/* One that was asked for before may have been given before the clock was set. */
static void it_ends_no_later_doubt(void **state)
{
    (void)state;
    for (int longer = 0; longer < 2; longer++) {
        struct snib__op *op = extend(longer ? 60 * SECOND : SECOND);
        now += SNIB__MS;
        engine->home->moved_at = now;
        extended(op);
        expect_state(SNIB_HOLD_AT_RISK);
        snib__engine_tick(engine, now);
        all_is_given_again();
    }
}

/* What was asked for at the news is answered after an extension that had been given before it: that covers what was left
 * then, and not what the extension has added. */
static void it_moves_what_is_in_doubt(void **state)
{
    (void)state;
    struct snib__op *op = extend(60 * SECOND);
    clock_set();
    extended(op);
    expect_state(SNIB_HOLD_AT_RISK);
    answer(engine, "*0\r\n");
    expect_state(SNIB_HOLD_AT_RISK);
    snib__engine_tick(engine, now);
    all_is_given_again();
}

/* The same of a shorter extension that was asked for after the news. */
static void a_shorter_one_leaves_the_doubt(void **state)
{
    (void)state;
    struct snib__op *op = extend(60 * SECOND);
    clock_set();
    struct snib__op *shorter = extend(30 * SECOND);
    extended(op);
    answer(engine, "-MISCONF disk is full\r\n");
    extended(shorter);
    expect_state(SNIB_HOLD_AT_RISK);
    now = snib__engine_deadline(engine);
    snib__engine_tick(engine, now);
    all_is_given_again();
}

/* The connection is cut while an extension is on its way, and does not come back before the hold is over: the server may
 * have given the longer lease, so the lock is released when it can be. */
static void it_may_have_been_given(void **state)
{
    (void)state;
    int32_t code;
    extend(300 * SECOND);
    cut_link(engine);
    now = hold->deadline + 60 * SECOND;
    snib__engine_tick(engine, now);
    assert_null(snib__engine_release(engine, hold, now, &code));
    assert_int_equal(code, SNIB_LOST);
    await_connect(engine);
    connect_link(engine);
    assert_int_equal(oldest_script(engine), SNIB__SCRIPT_MUTEX_RELEASE);
}

/* The connection is cut while an extension is on its way, and is not back when the call's patience ends: the result must not
 * say that nothing was done.  One that was never sent did nothing. */
static void it_may_have_been_given_although_no_answer_came(void **state)
{
    (void)state;
    for (int sent = 0; sent < 2; sent++) {
        if (!sent)
            cut_link(engine);
        struct snib__op *op = extend(300 * SECOND);
        if (sent)
            cut_link(engine);
        for (int step = 0; !op->done; step++) {
            assert_true(step < 100);
            now += 100 * SNIB__MS;
            snib__engine_tick(engine, now);
        }
        assert_int_equal(op->code, sent ? SNIB_EUNREACHABLE : SNIB_ECONNECT);
        assert_int_equal(hold->phase, SNIB__HELD);
        await_connect(engine);
        connect_link(engine);
    }
}

/* After its lease nothing of it can be left. */
static void its_lease_is_over(void **state)
{
    (void)state;
    int32_t code;
    extend(300 * SECOND);
    cut_link(engine);
    now = hold->deadline + 320 * SECOND;
    snib__engine_tick(engine, now);
    assert_null(snib__engine_release(engine, hold, now, &code));
    assert_int_equal(code, SNIB_LOST);
    assert_true(snib__engine_quiet(engine));
}

/* Only asked for: a carrier applies it, when enough other members have been granted theirs.  Until then the hold keeps its
 * lease, but a fixed one does not end before what was granted. */
static void a_member_waits_for_the_others(void **state)
{
    (void)state;
    snib__time sent_at = now;
    struct snib__op *op = extend(60 * SECOND);
    snib__extend_only_asks(op);
    now += SNIB__MS;
    answer(engine, "*0\r\n");
    assert_ptr_equal(snib__engine_take_done(engine), op);
    assert_int_equal(op->code, SNIB_OK);
    assert_int_equal(snib__extend_sent_at(op), sent_at);
    assert_int_equal(hold->lease_ms, 20000);
    assert_int_equal(hold->deadline, snib__lease_end(sent_at, 60 * SECOND));
    snib__hold_extended(engine, hold, 60 * SECOND, sent_at, now);
    assert_int_equal(hold->lease_ms, 60000);
    assert_int_equal(hold->deadline, snib__lease_end(sent_at, 60 * SECOND));
    snib__op_free(engine, op);
}

/* What gives a member its shorter fixed lease is not sent again: it could come after the extension. */
static void a_member_is_not_shortened_any_more(void **state)
{
    (void)state;
    static const struct snib__acquire renewed = {.wait = SNIB__NEVER};
    hold = granted(engine, gate(engine, SNIB_MUTEX, "n"), &renewed);
    snib__hold_fix(engine, hold, SECOND, now);
    assert_true(hold->exact);
    struct snib__op *op = extend(60 * SECOND);
    assert_false(hold->exact);
    assert_true(engine->extended >= 60 * SECOND);
    (void)op;
}

/* What shortens a member's lease is left on a broken connection.  Where that could not be ended it may still arrive, so an
 * extension is not believed, though the server grants it. */
static void it_may_still_be_shortened(void **state)
{
    (void)state;
    static const struct snib__acquire renewed = {.wait = SNIB__NEVER};
    for (int ended = 0; ended < 2; ended++) {
        hold = granted(engine, gate(engine, SNIB_MUTEX, ended ? "n" : "o"), &renewed);
        snib__hold_fix(engine, hold, 5 * SECOND, now);
        answer_own(engine);
        if (!ended)
            conn_of(engine)->run_id[0] = 0; /* its server did not identify itself */
        cut_link(engine);
        await_connect(engine);
        connect_link(engine);
        while (on_the_way(engine) > 0) { /* the same again, and questions */
            answer_own(engine);
            answer(engine, "*0\r\n");
        }
        snib__time deadline = hold->deadline;
        struct snib__op *op = extend(60 * SECOND);
        now += SNIB__MS;
        answer(engine, "*0\r\n");
        assert_ptr_equal(snib__engine_take_done(engine), op);
        assert_int_equal(op->code, ended ? SNIB_OK : SNIB_ENOTSUP);
        assert_true(ended ? hold->deadline > deadline : hold->deadline == deadline);
        snib__op_free(engine, op);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(it_ends_a_doubt, start, stop),
        cmocka_unit_test_setup_teardown(it_ends_no_later_doubt, start, stop),
        cmocka_unit_test_setup_teardown(it_moves_what_is_in_doubt, start, stop),
        cmocka_unit_test_setup_teardown(a_shorter_one_leaves_the_doubt, start, stop),
        cmocka_unit_test_setup_teardown(it_may_have_been_given, start, stop),
        cmocka_unit_test_setup_teardown(it_may_have_been_given_although_no_answer_came, start,
                                        stop),
        cmocka_unit_test_setup_teardown(its_lease_is_over, start, stop),
        cmocka_unit_test_setup_teardown(a_member_waits_for_the_others, start, stop),
        cmocka_unit_test_setup_teardown(a_member_is_not_shortened_any_more, start, stop),
        cmocka_unit_test_setup_teardown(it_may_still_be_shortened, start, stop),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
