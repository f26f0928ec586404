/* shortage.c - no memory at the moment when a request is to be sent, or sent again: who is told, and what is undone. */
#include "fed.h"

#include "engine/ask.h"
#include "ledger/ledger.h"

/* The next request needs memory for its bytes. */
static void fill(struct snib__engine *engine)
{
    snib__buf_free(&conn_of(engine)->out);
}

static void give_back(struct snib__engine *engine, struct snib__hold *hold)
{
    int32_t code;
    assert_non_null(snib__engine_release(engine, hold, now, &code));
}

/* A mutex that is held, and wanted by another operation of this client. */
static struct snib__op *contended(struct snib__engine *engine, struct snib__hold **out_hold)
{
    const struct snib__acquire how = {.wait = SNIB__NEVER};
    struct snib__gate *one = gate(engine, SNIB_MUTEX, "m");
    *out_hold = granted(engine, one, &how);
    return acquire(engine, one, 0);
}

/* A hand-over that cannot be sent: the lock is released instead, and the waiter goes on waiting. */
static void hand_over_becomes_release(void **state)
{
    (void)state;
    struct snib__engine *engine = begin();
    struct snib__hold *hold;
    struct snib__op *op = contended(engine, &hold);
    answer_own(engine);
    fill(engine);
    ledger_refuse(1);
    give_back(engine, hold);
    assert_int_equal(oldest_script(engine), SNIB__SCRIPT_MUTEX_RELEASE);
    assert_int_equal(on_the_way(engine), 1);
    assert_int_equal(op->stage, SNIB__STAGE_QUEUED);
    assert_int_equal(op->hold->phase, SNIB__NEW);
    assert_null(op->gate->waitq->incoming);
    answer(engine, ":1\r\n");
    assert_int_equal(oldest_script(engine), SNIB__SCRIPT_MUTEX_ACQUIRE);
    answer(engine, "$-1\r\n");
    assert_true(op->done && op->code == SNIB_OK);
    snib__engine_free(engine);
}

/* The server has forgotten a script, and there is no memory to send it again: that is no want of a right. */
static void forgotten_script(void **state)
{
    (void)state;
    struct snib__engine *engine = begin();
    struct snib__op *op = acquire(engine, gate(engine, SNIB_MUTEX, "m"), 0);
    connect_link(engine);
    fill(engine);
    ledger_refuse(1);
    answer(engine, "-NOSCRIPT No matching script.\r\n");
    ledger_refuse(0);
    assert_true(op->done);
    assert_int_equal(op->code, SNIB_ENOMEM);
    assert_null(op->words);
    assert_int_equal(on_the_way(engine), 0);
    snib__engine_free(engine);
}

/* A lost hold that the server may still have, and no memory to release it: that is done when the program frees it. */
static void lost_hold_is_released_later(void **state)
{
    (void)state;
    const struct snib__acquire limited = {.wait = SNIB__NEVER, .max_hold = 5 * SECOND};
    struct snib__engine *engine = begin();
    struct snib__hold *hold = granted(engine, gate(engine, SNIB_MUTEX, "m"), &limited);
    int32_t code;
    now += 5 * SECOND;
    snib__engine_tick(engine, now);
    struct snib__hold *unused = engine->free_holds[0];
    engine->free_holds[0] = NULL;
    ledger_refuse(1);
    assert_null(snib__engine_release(engine, hold, now, &code));
    ledger_refuse(0);
    assert_int_equal(code, SNIB_LOST);
    assert_int_equal(on_the_way(engine), 0);
    engine->free_holds[0] = unused;
    snib__hold_drop(engine, hold, now);
    answer_own(engine);
    assert_int_equal(oldest_script(engine), SNIB__SCRIPT_MUTEX_RELEASE);
    answer(engine, ":1\r\n");
    assert_int_equal(on_the_way(engine), 0);
    assert_true(snib__engine_quiet(engine));
    snib__engine_free(engine);
}

/* A hold that a restarted server has not confirmed gets a lease of its own, and there is no memory to send it: the server is
 * asked later whether it has the hold, for no renewal will find that out any more. */
static void lease_of_its_own_is_asked_for_later(void **state)
{
    (void)state;
    const struct snib__acquire how = {.wait = SNIB__NEVER};
    struct snib__engine *engine = begin();
    struct snib__hold *hold = granted(engine, gate(engine, SNIB_MUTEX, "m"), &how);
    now += SECOND;
    cut_link(engine);
    server_id = "xyz";
    await_connect(engine);
    connect_link(engine);
    struct snib__batch *unused = engine->free_batches[0];
    engine->free_batches[0] = NULL;
    ledger_refuse(1);
    snib__hold_fix(engine, hold, 20 * SECOND, now);
    ledger_refuse(0);
    engine->free_batches[0] = unused;
    assert_int_equal(on_the_way(engine), 0);
    assert_int_equal(snib__hold_state(engine, hold, now), SNIB_HOLD_AT_RISK);
    snib__engine_tick(engine, now);
    answer_own(engine);
    assert_int_equal(oldest_script(engine), SNIB__SCRIPT_MUTEX_RENEW);
    answer(engine, "*2\r\n:1\r\n:0\r\n");
    assert_int_equal(snib__hold_state(engine, hold, now), SNIB_HOLD_LOST);
    server_id = "abc";
    snib__engine_free(engine);
}

/* What the server does with the requests that it gets. */
static void serve_all(struct snib__engine *engine, uint32_t *releases)
{
    for (int i = 0; i < 20; i++) {
        if (engine->home->links[SNIB__COMMAND].connect)
            connect_link(engine);
        answer_own(engine);
        while (ready(engine) && on_the_way(engine) > 0) {
            int script = oldest_script(engine);
            *releases += script == SNIB__SCRIPT_MUTEX_RELEASE;
            answer(engine, script == SNIB__SCRIPT_MUTEX_ACQUIRE ? "$-1\r\n" : ":1\r\n");
            answer_own(engine);
        }
        now += 500 * SNIB__MS;
        snib__engine_tick(engine, now);
    }
}

/* The connection ends under a hand-over, and the n-th allocation after that is refused.  The waiter is told, or has the
 * lock; what may be at the server is released; nothing is left. */
static bool lost_hand_over(uint32_t n, bool cancelled)
{
    uint32_t releases = 0;
    struct snib__engine *engine = begin();
    struct snib__hold *hold;
    struct snib__op *op = contended(engine, &hold);
    give_back(engine, hold);
    assert_int_equal(oldest_script(engine), SNIB__SCRIPT_MUTEX_TRANSFER);
    if (cancelled)
        assert_true(snib__engine_cancel(engine, op, now));
    ledger_refuse(n);
    cut_link(engine);
    ledger_refuse(0);
    bool told = op->done && op->code == SNIB_ENOMEM;
    serve_all(engine, &releases);
    assert_true(op->done);
    assert_int_equal(op->code, told ? SNIB_ENOMEM : cancelled ? SNIB_CANCELLED : SNIB_OK);
    if (told)
        assert_int_equal(releases, 2); /* of the giver's number and of the waiter's */
    assert_int_equal(engine->releasing, 0);
    if (op->code == SNIB_OK)
        assert_int_equal(op->hold->phase, SNIB__HELD);
    else
        assert_true(snib__engine_quiet(engine));
    snib__engine_free(engine);
    return told;
}

static void hand_over_cannot_be_repeated(void **state)
{
    (void)state;
    int told = 0;
    for (uint32_t n = 1; n <= 6; n++)
        told += lost_hand_over(n, false);
    assert_int_equal(told, 1);
    for (uint32_t n = 1; n <= 6; n++)
        assert_false(lost_hand_over(n, true)); /* nobody is left to be told */
}

/* A question that waited for the connection. */
static void question_ends(void **state)
{
    (void)state;
    int32_t code;
    struct snib__engine *engine = begin();
    struct snib__gate *one = gate(engine, SNIB_MUTEX, "m");
    struct snib__op *op = snib__engine_info(engine, one, now, &code);
    assert_int_equal(snib__engine_take_wish(engine, snib__engine_link(engine, SNIB__COMMAND)),
                     SNIB__WISH_CONNECT);
    snib__engine_link_up(engine, snib__engine_link(engine, SNIB__COMMAND), now);
    while (conn_of(engine)->ring_count > 1)
        answer(engine, "");
    fill(engine);
    ledger_refuse(1);
    answer(engine, "");
    ledger_refuse(0);
    assert_true(ready(engine));
    assert_true(op->done && op->code == SNIB_ENOMEM);
    op = snib__engine_info(engine, one, now, &code);
    answer_own(engine);
    answer(engine, "*5\r\n:-2\r\n$0\r\n\r\n:0\r\n:0\r\n$0\r\n\r\n");
    assert_true(op->done && op->code == SNIB_OK);
    snib__engine_free(engine);
}

/* There is no memory for a reply: the connection is made anew, and the question asked again.  The server is not said to
 * have sent nonsense. */
static void reply_has_no_room(void **state)
{
    (void)state;
    enum { LONG = 3000 };
    int32_t code;
    char reply[LONG + 100], text[LONG + 1];
    struct snib__engine *engine = begin();
    struct snib__gate *one = gate(engine, SNIB_MUTEX, "m");
    struct snib__op *op = snib__engine_info(engine, one, now, &code);
    connect_link(engine);
    answer_own(engine);
    memset(text, 'x', LONG);
    text[LONG] = 0;
    snprintf(reply, sizeof reply, "*5\r\n:1000\r\n$%d\r\n%s\r\n:0\r\n:0\r\n$0\r\n\r\n", LONG, text);
    ledger_refuse(1);
    answer(engine, reply);
    ledger_refuse(0);
    assert_false(ready(engine));
    assert_int_equal(engine->home->told_failure, SNIB_ENOMEM);
    assert_false(op->done);
    await_connect(engine);
    assert_int_equal(snib__engine_take_wish(engine, snib__engine_link(engine, SNIB__COMMAND)),
                     SNIB__WISH_CLOSE);
    connect_link(engine);
    answer_own(engine);
    answer(engine, "*5\r\n:-2\r\n$0\r\n\r\n:0\r\n:0\r\n$0\r\n\r\n");
    assert_true(op->done && op->code == SNIB_OK);
    snib__engine_free(engine);
}

/* The connection ends in the middle of a reply, and there is no memory for another reader: what is left of that reply
 * is not taken for the beginning of the next connection's first one. */
static void old_reply_is_forgotten(void **state)
{
    (void)state;
    int32_t code;
    for (uint32_t n = 0; n <= 2; n++) {
        struct snib__engine *engine = begin();
        struct snib__op *op = snib__engine_info(engine, gate(engine, SNIB_MUTEX, "m"), now, &code);
        connect_link(engine);
        answer_own(engine);
        answer(engine, "*5\r\n:1000\r\n$3\r\n");
        ledger_refuse(n > 0);
        cut_link(engine);
        await_connect(engine);
        ledger_refuse(n > 1);
        assert_int_equal(snib__engine_take_wish(engine, snib__engine_link(engine, SNIB__COMMAND)),
                         SNIB__WISH_CONNECT);
        snib__engine_link_up(engine, snib__engine_link(engine, SNIB__COMMAND), now);
        ledger_refuse(0);
        if (n > 1) { /* none now, either */
            assert_int_equal(engine->home->told_failure, SNIB_ENOMEM);
            await_connect(engine);
            assert_int_equal(
                snib__engine_take_wish(engine, snib__engine_link(engine, SNIB__COMMAND)),
                SNIB__WISH_CLOSE);
            connect_link(engine);
        }
        answer_own(engine);
        assert_true(ready(engine));
        answer(engine, "*5\r\n:-2\r\n$0\r\n\r\n:0\r\n:0\r\n$0\r\n\r\n");
        assert_true(op->done && op->code == SNIB_OK);
        snib__engine_free(engine);
    }
}

/* No memory for an operation: nothing has begun, and a hold stays what it is. */
static void nothing_begins(void **state)
{
    (void)state;
    int32_t code;
    const struct snib__acquire how = {.wait = SNIB__NEVER};
    struct snib__engine *engine = begin();
    struct snib__gate *one = gate(engine, SNIB_MUTEX, "m");
    struct snib__hold *hold = granted(engine, one, &how);
    struct snib__op *op;
    do { /* those that are kept for reuse go first */
        ledger_refuse(1);
        op = snib__engine_ping(engine, SNIB__NEVER, now, &code);
    } while (op);
    assert_int_equal(code, SNIB_ENOMEM);
    ledger_refuse(1);
    assert_null(snib__engine_acquire(engine, one, &how, now, &code));
    assert_int_equal(code, SNIB_ENOMEM);
    ledger_refuse(1);
    assert_null(snib__engine_nothing(engine, now, &code));
    assert_int_equal(code, SNIB_ENOMEM);
    ledger_refuse(1);
    assert_null(snib__engine_release(engine, hold, now, &code));
    assert_int_equal(code, SNIB_ENOMEM);
    ledger_refuse(0);
    assert_int_equal(hold->phase, SNIB__HELD);
    assert_int_equal(snib__hold_state(engine, hold, now), SNIB_HOLD_VALID);
    op = snib__engine_release(engine, hold, now, &code);
    assert_non_null(op);
    while (on_the_way(engine) > 0)
        answer(engine,
               oldest_script(engine) == SNIB__SCRIPT_MUTEX_RELEASE ? ":1\r\n" : "+PONG\r\n");
    assert_true(op->done && op->code == SNIB_OK);
    snib__engine_free(engine);
}

/* Clients that stand in a fair queue; the first asks again, which is on its way or not. */
static struct snib__op *in_line(struct snib__engine *engine, struct snib__gate *fair, int n)
{
    struct snib__op *first = NULL;
    for (int i = 0; i < n; i++) {
        struct snib__op *op = acquire(engine, fair, 0);
        if (!ready(engine))
            connect_link(engine);
        answer_own(engine);
        if (on_the_way(engine) > 0) /* the others ask after the first */
            answer(engine, "*3\r\n:20000\r\n:0\r\n:1000\r\n");
        assert_int_equal(op->hold->phase, SNIB__PLACED);
        first = first ? first : op;
    }
    return first;
}

/* The gate that nobody waits at is left, or those that still wait have a timer. */
static void gate_goes_on(const struct snib__gate *gate, int left)
{
    const struct snib__waitq *waitq = gate->waitq;
    if (left > 0)
        assert_true(waitq && waitq->head && (waitq->timer_at || gate->trying));
    else
        assert_true(!waitq || waitq->idle_since != SNIB__NEVER);
}

/* Time passes until the waiter asks, for which there is no memory. */
static void ask_in_vain(struct snib__engine *engine, const struct snib__op *waiter)
{
    for (int ticks = 0; !waiter->done; ticks++) {
        assert_true(ticks < 10000);
        now += SNIB__MS;
        fill(engine);
        ledger_refuse(1);
        snib__engine_tick(engine, now);
        ledger_refuse(0);
    }
    assert_int_equal(waiter->code, SNIB_ENOMEM);
}

/* A waiter's next question cannot be sent: it leaves the queue, and no others sleep without a timer. */
static void waiter_cannot_ask(void **state)
{
    (void)state;
    for (int n = 1; n <= 3; n++) {
        struct snib__engine *engine = begin();
        struct snib__gate *fair = gate(engine, SNIB_FAIR, "f");
        ask_in_vain(engine, in_line(engine, fair, n));
        gate_goes_on(fair, n - 1);
        snib__engine_free(engine);
    }
}

/* The same of a lock of many, for which only the first asks. */
static void waiter_for_a_share_cannot_ask(void **state)
{
    (void)state;
    struct snib__engine *engine = begin();
    struct snib__gate *permits = gate(engine, SNIB_SEMAPHORE, "s");
    struct snib__op *first = acquire(engine, permits, 0), *second;
    connect_link(engine);
    answer_own(engine);
    answer(engine, ":-1\r\n");
    second = acquire(engine, permits, 0);
    ask_in_vain(engine, first);
    gate_goes_on(permits, 1);
    assert_int_equal(second->done, 0);
    snib__engine_free(engine);
}

/* It was sent, and cannot be sent again on the next connection. */
static void waiter_cannot_ask_again(void **state)
{
    (void)state;
    int told = 0;
    for (uint32_t n = 1; n <= 6; n++) {
        struct snib__engine *engine = begin();
        struct snib__gate *fair = gate(engine, SNIB_FAIR, "f");
        struct snib__op *only = in_line(engine, fair, 1);
        for (int ticks = 0; on_the_way(engine) == 0; ticks++) {
            assert_true(ticks < 10000);
            now += SNIB__MS;
            snib__engine_tick(engine, now);
        }
        ledger_refuse(n);
        cut_link(engine);
        ledger_refuse(0);
        if (only->done) {
            assert_int_equal(only->code, SNIB_ENOMEM);
            gate_goes_on(fair, 0);
            told++;
        }
        snib__engine_free(engine);
    }
    assert_true(told > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hand_over_becomes_release),
        cmocka_unit_test(forgotten_script),
        cmocka_unit_test(lost_hold_is_released_later),
        cmocka_unit_test(lease_of_its_own_is_asked_for_later),
        cmocka_unit_test(hand_over_cannot_be_repeated),
        cmocka_unit_test(question_ends),
        cmocka_unit_test(reply_has_no_room),
        cmocka_unit_test(old_reply_is_forgotten),
        cmocka_unit_test(nothing_begins),
        cmocka_unit_test(waiter_cannot_ask),
        cmocka_unit_test(waiter_cannot_ask_again),
        cmocka_unit_test(waiter_for_a_share_cannot_ask),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
