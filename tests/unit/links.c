/* links.c - what an error, a late or a missing answer lets the client conclude; and when a link is left. */
#include "fed.h"

static struct snib__hold *held(struct snib__engine *engine, int32_t kind, const char *name,
                               const char *grant)
{
    struct snib__op *op = acquire(engine, gate(engine, kind, name), 0);
    if (!ready(engine))
        connect_link(engine);
    answer_own(engine);
    answer(engine, grant);
    return acquired(engine, op);
}

static struct snib__op *release(struct snib__engine *engine, struct snib__hold *hold)
{
    int32_t code;
    struct snib__op *op = snib__engine_release(engine, hold, now, &code);
    assert_non_null(op);
    return op;
}

static void ended(struct snib__engine *engine, struct snib__op *op, int32_t code)
{
    assert_true(op->done);
    if (op->code != code)
        fail_msg("%s instead of %s", snib_code_name(op->code), snib_code_name(code));
    while (snib__engine_take_done(engine))
        ;
    snib__op_free(engine, op);
}

/* Let the virtual time pass in the engine's own steps. */
static void pass(struct snib__engine *engine, snib__time until)
{
    while (now < until) {
        snib__time next = snib__engine_deadline(engine);
        now = next <= now ? now + SNIB__MS : next < until ? next : until;
        snib__engine_tick(engine, now);
    }
}

/* ---- What has no owner is sent once ------------------------------------------------------------ */

static void semaphore_release_is_sent_once(void **state)
{
    (void)state;
    static const struct {
        const char *error;
        bool again; /* it is sure that nothing was done */
        int32_t code;
    } answers[] = {
        {"-ERR upstream failure\r\n", false, SNIB_ESERVER},
        {"-BACKEND timed out\r\n", false, SNIB_ESERVER},
        {"-OOM command not allowed when used memory > 'maxmemory'.\r\n", true, SNIB_EOOM},
        {"-MISCONF Redis is configured to save RDB snapshots\r\n", true, SNIB_EMISCONF},
    };
    for (size_t i = 0; i < sizeof answers / sizeof *answers; i++) {
        struct snib__engine *engine = begin();
        struct snib__hold *hold = held(engine, SNIB_SEMAPHORE, "s", "$-1\r\n");
        struct snib__op *op = release(engine, hold);
        answer_own(engine);
        answer(engine, answers[i].error);
        ended(engine, op, answers[i].code);
        pass(engine, now + 2 * SECOND);
        answer_own(engine);
        assert_int_equal(on_the_way(engine), answers[i].again);
        assert_int_equal(snib__engine_quiet(engine), !answers[i].again);
        snib__engine_free(engine);
    }
}

/* ---- A node that is no master ------------------------------------------------------------------ */

static const char *const disowned[] = {
    "-READONLY You can't write against a read only replica.\r\n",
    "-MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.\r\n",
    "-LOADING Redis is loading the dataset in memory\r\n",
};

/* Whatever was asked: the link ends, the request is sent on the next one, and nobody is told a thing. */
static void node_that_is_no_master_is_left(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof disowned / sizeof *disowned; i++) {
        struct snib__engine *engine = begin();
        struct snib__op *op = acquire(engine, gate(engine, SNIB_MUTEX, "m"), 0);
        connect_link(engine);
        answer_own(engine);
        answer(engine, disowned[i]);
        assert_false(op->done);
        assert_int_equal(conn_of(engine)->state, SNIB__CONN_DOWN);
        assert_int_equal(snib__engine_take_wish(engine, SNIB__COMMAND), SNIB__WISH_CLOSE);
        await_connect(engine);
        connect_link(engine);
        answer_own(engine);
        assert_int_equal(on_the_way(engine), 1);
        answer(engine, "$-1\r\n");
        struct snib__hold *hold = acquired(engine, op);
        op = release(engine, hold);
        answer_own(engine);
        answer(engine, disowned[i]);
        assert_false(op->done);
        assert_int_equal(snib__engine_take_wish(engine, SNIB__COMMAND), SNIB__WISH_CLOSE);
        await_connect(engine);
        connect_link(engine);
        answer_own(engine);
        answer(engine,
               ":0\r\n"); /* it was not there, and nothing but the refused try was sent: lost */
        ended(engine, op, SNIB_LOST);
        snib__engine_free(engine);
    }
}

/* A hold is at risk and then lost by its deadline, never by the word of a replica. */
static void replica_does_not_take_holds(void **state)
{
    (void)state;
    struct snib__engine *engine = begin();
    struct snib__hold *hold = held(engine, SNIB_MUTEX, "m", "$-1\r\n");
    snib__time deadline = hold->deadline;
    pass(engine, now + 10 * SECOND);
    answer_own(engine);
    assert_int_equal(on_the_way(engine), 1); /* the renewal */
    answer(engine, disowned[0]);
    assert_int_equal(snib__hold_state(engine, hold, now), SNIB_HOLD_AT_RISK);
    for (int attempts = 0; now < deadline - SECOND; attempts++) {
        assert_true(attempts < 100);
        assert_int_equal(snib__engine_take_wish(engine, SNIB__COMMAND), SNIB__WISH_CLOSE);
        await_connect(engine);
        assert_int_equal(snib__engine_take_wish(engine, SNIB__COMMAND), SNIB__WISH_CONNECT);
        snib__engine_link_up(engine, SNIB__COMMAND, now);
        const char *replica =
            "+OK\r\n+PONG\r\n:18\r\n$0\r\n\r\n$0\r\n\r\n$12\r\nrole:slave\r\n\r\n";
        snib__engine_input(engine, SNIB__COMMAND, replica, strlen(replica), now);
        assert_false(ready(engine));
        if (now < deadline)
            assert_int_equal(snib__hold_state(engine, hold, now), SNIB_HOLD_AT_RISK);
    }
    snib__engine_take_wish(engine, SNIB__COMMAND);
    snib__engine_tick(engine, deadline);
    assert_int_equal(hold->reason, SNIB_REASON_UNREACHABLE);
    snib__engine_free(engine);
}

/* Roles may be hidden (INFO is forbidden): then the refusals themselves must not become a busy loop. */
static void refusals_are_no_signs_of_life(void **state)
{
    (void)state;
    struct snib__engine *engine = begin();
    struct snib__op *op = acquire(engine, gate(engine, SNIB_MUTEX, "m"), 0);
    int connections = 0;
    while (!op->done) {
        assert_true(connections++ < 50);
        if (snib__engine_take_wish(engine, SNIB__COMMAND) == SNIB__WISH_CLOSE)
            await_connect(engine);
        else
            engine->node.links[SNIB__COMMAND].connect = true;
        if (op->done)
            break;
        connect_link(engine);
        answer_own(engine);
        answer(engine, disowned[0]);
    }
    assert_true(now >= START + 5 * SECOND && now < START + 8 * SECOND);
    ended(engine, op, SNIB_EREADONLY);
    snib__engine_free(engine);
}

/* ---- Scripts and commands that are not known ---------------------------------------------------- */

/* A server that has forgotten its scripts has refused no right: the next renewals go in one batch. */
static void forgotten_script_is_no_refusal(void **state)
{
    (void)state;
    struct snib__engine *engine = begin();
    struct snib__hold *holds[3];
    for (int i = 0; i < 3; i++)
        holds[i] = held(engine, SNIB_MUTEX, (const char *[]){"a", "b", "c"}[i], "$-1\r\n");
    pass(engine, now + 10 * SECOND);
    answer_own(engine);
    assert_int_equal(on_the_way(engine), 1);
    answer(engine, "-NOSCRIPT No matching script. Please use EVAL.\r\n");
    assert_false(engine->node.renewals[SNIB_MUTEX].alone);
    answer_own(engine); /* it is loaded again */
    pass(engine, now + 3 * SECOND);
    answer_own(engine);
    assert_int_equal(on_the_way(engine), 1);
    answer(engine, "*0\r\n");
    for (int i = 0; i < 3; i++)
        assert_int_equal(snib__hold_state(engine, holds[i], now), SNIB_HOLD_VALID);
    assert_int_equal(engine->stats.renewals, 3);
    snib__engine_free(engine);
}

/* A server whose version promises DELEX and that refuses it is asked by script, then and from then on. */
static void refused_command_is_not_asked_again(void **state)
{
    (void)state;
    struct snib__engine *engine = begin();
    struct snib__hold *hold = held(engine, SNIB_PLAIN, "p", "$-1\r\n");
    for (int round = 0; round < 2; round++) {
        conn_of(engine)->delex = conn_of(engine)->delex || round == 0;
        struct snib__op *op = release(engine, hold);
        if (round == 0) {
            assert_int_equal(oldest_script(engine), SNIB__TWO_COMMANDS);
            answer(engine, "-ERR unknown command 'DELEX'\r\n");
            answer(engine, ":0\r\n"); /* of the second command */
        }
        assert_int_equal(oldest_script(engine), SNIB__SCRIPT_PLAIN_RELEASE);
        assert_false(conn_of(engine)->delex);
        answer(engine, ":1\r\n");
        ended(engine, op, SNIB_OK);
        hold = held(engine, SNIB_PLAIN, "p", "$-1\r\n");
    }
    snib__engine_free(engine);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(semaphore_release_is_sent_once),
        cmocka_unit_test(node_that_is_no_master_is_left),
        cmocka_unit_test(replica_does_not_take_holds),
        cmocka_unit_test(refusals_are_no_signs_of_life),
        cmocka_unit_test(forgotten_script_is_no_refusal),
        cmocka_unit_test(refused_command_is_not_asked_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
