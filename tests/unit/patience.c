/* patience.c - how long an operation waits, and which result it may report then. */
#include "fed.h"

/* A single try, sent when half of its time was over, because there was no connection: BUSY is
 * reported only if the server has said so. */
static void one_try_without_an_answer(void **state)
{
    (void)state;
    for (int answered = 0; answered < 2; answered++) {
        const struct snib__acquire once = {.wait = 0};
        struct snib__engine *engine = begin();
        int32_t code;
        struct snib__op *op =
            snib__engine_acquire(engine, gate(engine, SNIB_MUTEX, "m"), &once, now, &code);
        assert_non_null(op);
        now += SECOND / 2;
        connect_link(engine);
        answer_own(engine);
        assert_int_equal(on_the_way(engine), 1);
        now = START + SECOND - 1;
        snib__engine_tick(engine, now);
        assert_false(op->done);
        if (answered)
            answer(engine, ":30000\r\n");
        now++;
        snib__engine_tick(engine, now);
        assert_true(op->done);
        assert_int_equal(op->code, answered ? SNIB_BUSY : SNIB_EUNREACHABLE);
        snib__engine_free(engine);
    }
}

/* Another waiter was refused before a single try began; the try itself, which had to wait for a
 * release by its own owner, has no answer: that waiter's refusal says nothing about it. */
static void one_try_behind_one_that_was_refused(void **state)
{
    (void)state;
    const struct snib__acquire own = {.owner = 7, .wait = SNIB__NEVER};
    const struct snib__acquire once = {.owner = 7, .wait = 0};
    struct snib__engine *engine = begin();
    struct snib__gate *reads = gate(engine, SNIB_READ, "rw");
    int32_t code;
    granted(engine, gate(engine, SNIB_WRITE, "rw"), &own);
    struct snib__op *refused = acquire(engine, reads, 0);
    answer_own(engine);
    answer(engine, ":30000\r\n");
    struct snib__hold *read = granted(engine, reads, &once);
    snib__engine_release(engine, read, now, &code);
    struct snib__op *op = snib__engine_acquire(engine, reads, &once, now, &code);
    assert_int_equal(oldest_script(engine), SNIB__SCRIPT_READ_RELEASE);
    assert_true(snib__engine_cancel(engine, refused, now));
    now += SECOND - 10 * SNIB__MS;
    answer(engine, ":1\r\n");
    assert_int_equal(oldest_script(engine), SNIB__SCRIPT_READ_ACQUIRE);
    now += 10 * SNIB__MS;
    snib__engine_tick(engine, now);
    assert_true(op->done);
    assert_int_equal(op->code, SNIB_EUNREACHABLE);
    snib__engine_free(engine);
}

/* Another call of the client has asked and has no answer: nobody has said that the lock is held, so
 * a single try behind it does not say so before the reply. */
static void one_try_behind_one_without_an_answer(void **state)
{
    (void)state;
    static const char *const replies[] = {"$-1\r\n", ":30000\r\n", NULL};
    const struct snib__acquire once = {.wait = 0};
    for (int first_once = 0; first_once < 2; first_once++)
        for (int i = 0; i < 3; i++) {
            struct snib__engine *engine = begin();
            struct snib__gate *lock = gate(engine, SNIB_MUTEX, "m");
            int32_t code;
            struct snib__op *first = first_once
                                         ? snib__engine_acquire(engine, lock, &once, now, &code)
                                         : acquire(engine, lock, 0);
            connect_link(engine);
            answer_own(engine);
            assert_int_equal(on_the_way(engine), 1);
            struct snib__op *op = snib__engine_acquire(engine, lock, &once, now, &code);
            assert_false(op->done);
            assert_int_equal(on_the_way(engine), 1);
            if (replies[i]) { /* it is granted, or held by another: so it is held */
                answer(engine, replies[i]);
                assert_true(op->done);
                assert_int_equal(op->code, SNIB_BUSY);
                assert_int_equal(first->done, i == 0 || first_once);
            } else { /* also if the caller ahead has gone meanwhile */
                assert_true(snib__engine_cancel(engine, first, now));
                answer(engine, ":30000\r\n");
                assert_int_equal(op->code, SNIB_BUSY);
            }
            snib__engine_free(engine);
        }
}

/* The attempt ahead is granted when nobody waits for it any more: then the lock is not held, and a
 * try behind it gets it, passed on or by an attempt of its own. */
static void one_try_behind_a_grant_that_nobody_wants(void **state)
{
    (void)state;
    const struct snib__acquire once = {.wait = 0};
    for (int passed_on = 0; passed_on < 2; passed_on++) {
        struct snib__engine *engine = begin();
        engine->config.handover_max = (uint64_t)passed_on;
        struct snib__gate *lock = gate(engine, SNIB_MUTEX, "m");
        int32_t code;
        struct snib__op *first = snib__engine_acquire(engine, lock, &once, now, &code);
        connect_link(engine);
        answer_own(engine);
        now += SECOND;
        snib__engine_tick(engine, now);
        assert_int_equal(first->code, SNIB_EUNREACHABLE);
        struct snib__op *op = snib__engine_acquire(engine, lock, &once, now, &code);
        struct snib__op *behind = snib__engine_acquire(engine, lock, &once, now, &code);
        answer(engine, "$-1\r\n");
        assert_false(op->done || behind->done);
        assert_int_equal(oldest_script(engine),
                         passed_on ? SNIB__SCRIPT_MUTEX_TRANSFER : SNIB__SCRIPT_MUTEX_RELEASE);
        answer(engine, ":1\r\n");
        if (!passed_on)
            answer(engine, "$-1\r\n");
        assert_true(op->done);
        assert_int_equal(op->code, SNIB_OK);
        assert_true(behind->done); /* now it is held */
        assert_int_equal(behind->code, SNIB_BUSY);
        snib__engine_free(engine);
    }
}

/* The request ahead was sent before the try began, and was given up or was a single try itself: the server may have
 * refused it before the try began, too, and the lock may have been free ever since.  So the try asks itself.  Behind a
 * call that waits, it need not. */
static void one_try_behind_an_older_request(void **state)
{
    (void)state;
    enum { GIVEN_UP, SINGLE, WAITS, AHEADS };
    const struct snib__acquire once = {.wait = 0}, waits = {.wait = SNIB__NEVER};
    for (int is = 0; is < AHEADS; is++) {
        struct snib__engine *engine = begin();
        struct snib__gate *lock = gate(engine, SNIB_MUTEX, "m");
        int32_t code;
        struct snib__op *ahead =
            snib__engine_acquire(engine, lock, is == SINGLE ? &once : &waits, now, &code);
        connect_link(engine);
        answer_own(engine);
        struct snib__op *same_time = snib__engine_acquire(engine, lock, &once, now, &code);
        now += SNIB__MS;
        struct snib__op *later = snib__engine_acquire(engine, lock, &once, now, &code);
        assert_true(is != GIVEN_UP || snib__engine_cancel(engine, ahead, now));
        answer(engine, ":30000\r\n");
        assert_true(same_time->done);
        assert_int_equal(same_time->code, SNIB_BUSY);
        assert_int_equal(later->done, is == WAITS);
        if (is != WAITS) {
            assert_int_equal(oldest_script(engine), SNIB__SCRIPT_MUTEX_ACQUIRE);
            answer(engine, "$-1\r\n");
        }
        assert_true(later->done);
        assert_int_equal(later->code, is == WAITS ? SNIB_BUSY : SNIB_OK);
        snib__engine_free(engine);
    }
}

/* It is given back, and nothing is heard of that until the try's own time is over: nobody has said
 * that the lock is held, however late the giving back began. */
static void one_try_behind_what_is_given_back(void **state)
{
    (void)state;
    const struct snib__acquire once = {.wait = 0};
    struct snib__engine *engine = begin();
    engine->config.handover_max = 0;
    struct snib__gate *lock = gate(engine, SNIB_MUTEX, "m");
    int32_t code;
    struct snib__op *first = acquire(engine, lock, 0);
    connect_link(engine);
    answer_own(engine);
    struct snib__op *op = snib__engine_acquire(engine, lock, &once, now, &code);
    now += SECOND / 2;
    assert_true(snib__engine_cancel(engine, first, now));
    answer(engine, "$-1\r\n");
    assert_int_equal(oldest_script(engine), SNIB__SCRIPT_MUTEX_RELEASE);
    now += SECOND / 2;
    snib__engine_tick(engine, now);
    assert_true(op->done);
    assert_int_equal(op->code, SNIB_EUNREACHABLE);
    snib__engine_free(engine);
}

static struct snib__op *start(struct snib__engine *engine, struct snib__gate *of)
{
    static const struct snib__acquire brief = {.wait = 10 * SNIB__MS};
    int32_t code;
    struct snib__op *op = snib__engine_acquire(engine, of, &brief, now, &code);
    assert_non_null(op);
    return op;
}

/* The lock is known to be held since a wait was refused that has been cancelled, and so has been the one behind it: the
 * next one, which began later and has asked nothing, tells a single try what they knew. */
static void one_try_behind_those_behind_a_refusal(void **state)
{
    (void)state;
    const struct snib__acquire once = {.wait = 0};
    struct snib__engine *engine = begin();
    struct snib__gate *lock = gate(engine, SNIB_MUTEX, "m");
    int32_t code;
    struct snib__op *refused = acquire(engine, lock, 0);
    connect_link(engine);
    answer_own(engine);
    struct snib__op *behind = acquire(engine, lock, 0);
    now += SNIB__MS;
    answer(engine, ":30000\r\n");
    now += SNIB__MS;
    snib__engine_cancel(engine, refused, now);
    acquire(engine, lock, 0);
    snib__engine_cancel(engine, behind, now);
    struct snib__op *op = snib__engine_acquire(engine, lock, &once, now, &code);
    assert_true(op->done);
    assert_int_equal(op->code, SNIB_BUSY);
    snib__engine_free(engine);
}

/* However short a wait, its first attempt has the patience of a single try, and then the result is
 * what the server says. */
static void brief_wait(void **state)
{
    (void)state;
    static const struct {
        const char *says;
        int code;
    } tries[] = {{":30000\r\n", SNIB_TIMEDOUT}, {"$-1\r\n", SNIB_OK}, {NULL, SNIB_EUNREACHABLE}};
    static const int kinds[] = {SNIB_MUTEX, SNIB_READ, SNIB_SPIN};
    for (size_t i = 0; i < sizeof tries / sizeof tries[0] * 3; i++) {
        struct snib__engine *engine = begin();
        struct snib__op *op = start(engine, gate(engine, kinds[i % 3], "m"));
        connect_link(engine);
        answer_own(engine);
        now += 10 * SNIB__MS;
        snib__engine_tick(engine, now);
        assert_false(op->done);
        if (tries[i / 3].says) {
            now += 100 * SNIB__MS;
            answer(engine, tries[i / 3].says);
            snib__engine_tick(engine, now);
        } else {
            now = START + SECOND - 1;
            snib__engine_tick(engine, now);
            assert_false(op->done);
            snib__engine_tick(engine, ++now);
        }
        assert_true(op->done);
        assert_int_equal(op->code, tries[i / 3].code);
        snib__engine_free(engine);
    }
}

/* The same before there is a connection, and behind another's first attempt. */
static void brief_waits_of_two(void **state)
{
    (void)state;
    for (int answered = 0; answered < 2; answered++) {
        struct snib__engine *engine = begin();
        struct snib__gate *of = gate(engine, SNIB_MUTEX, "m");
        struct snib__op *op = start(engine, of), *behind = start(engine, of);
        now += 10 * SNIB__MS;
        snib__engine_tick(engine, now);
        assert_false(op->done || behind->done);
        now = START + SECOND / 2;
        if (answered) {
            connect_link(engine);
            answer_own(engine);
            answer(engine, ":30000\r\n");
            snib__engine_tick(engine, now);
        } else {
            snib__engine_tick(engine, now);
            assert_false(op->done || behind->done);
            now = START + SECOND;
            snib__engine_tick(engine, now);
        }
        assert_true(op->done && behind->done);
        assert_int_equal(op->code, answered ? SNIB_TIMEDOUT : SNIB_ECONNECT);
        assert_int_equal(behind->code, answered ? SNIB_TIMEDOUT : SNIB_ECONNECT);
        snib__engine_free(engine);
    }
}

/* Once the server has said that the lock is held, a wait ends when it should, whatever is under
 * way then. */
static void wait_after_a_refusal(void **state)
{
    (void)state;
    struct snib__engine *engine = begin();
    struct snib__op *op = start(engine, gate(engine, SNIB_SPIN, "m"));
    connect_link(engine);
    answer_own(engine);
    answer(engine, ":30000\r\n");
    while (!op->done && now < START + SECOND) {
        now = snib__engine_deadline(engine);
        snib__engine_tick(engine, now);
    }
    assert_int_equal(op->code, SNIB_TIMEDOUT);
    assert_int_equal(now - START, 10 * SNIB__MS);
    snib__engine_free(engine);
}

/* A wait that was over while a transfer had no answer does not last for the attempt that follows: the waiter ahead, which
 * makes it, has heard of the lock. */
static void wait_behind_a_transfer_that_failed(void **state)
{
    (void)state;
    struct snib__engine *engine = begin();
    struct snib__gate *of = gate(engine, SNIB_FENCED, "m");
    const struct snib__acquire how = {.wait = SNIB__NEVER};
    int32_t code;
    struct snib__op *op = acquire(engine, of, 0);
    connect_link(engine);
    answer_own(engine);
    answer(engine, "*1\r\n:7\r\n");
    struct snib__hold *hold = acquired(engine, op);
    struct snib__op *ahead = snib__engine_acquire(engine, of, &how, now, &code);
    op = snib__engine_release(engine, hold, now, &code);
    answer_own(engine);
    assert_int_equal(oldest_script(engine), SNIB__SCRIPT_FENCED_TRANSFER);
    struct snib__op *behind = start(engine, of);
    cut_link(engine);
    await_connect(engine);
    connect_link(engine);
    answer_own(engine);
    now += 10 * SNIB__MS;
    snib__engine_tick(engine, now);
    assert_false(behind->done);
    answer(engine, ":0\r\n");
    assert_int_equal(op->code, SNIB_OK); /* the first one may have been carried out */
    assert_false(ahead->done);
    snib__engine_tick(engine, now);
    assert_true(behind->done);
    assert_int_equal(behind->code, SNIB_TIMEDOUT);
    snib__engine_free(engine);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(one_try_without_an_answer),
                                       cmocka_unit_test(one_try_behind_one_that_was_refused),
                                       cmocka_unit_test(one_try_behind_one_without_an_answer),
                                       cmocka_unit_test(one_try_behind_a_grant_that_nobody_wants),
                                       cmocka_unit_test(one_try_behind_an_older_request),
                                       cmocka_unit_test(one_try_behind_what_is_given_back),
                                       cmocka_unit_test(one_try_behind_those_behind_a_refusal),
                                       cmocka_unit_test(brief_wait),
                                       cmocka_unit_test(brief_waits_of_two),
                                       cmocka_unit_test(wait_after_a_refusal),
                                       cmocka_unit_test(wait_behind_a_transfer_that_failed)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
