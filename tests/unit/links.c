/* links.c - what the client may conclude from an error, or a late or missing reply; and when a link
 * is closed. */
#include "fed.h"
#include "listening.h"

#include <errno.h>

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

/* ---- Requests without an owner are sent once --------------------------------------------------- */

static void semaphore_release_is_sent_once(void **state)
{
    (void)state;
    static const struct {
        const char *error;
        bool again; /* it was certainly not executed, but could be */
        int32_t code;
    } answers[] = {
        {"-ERR upstream failure\r\n", false, SNIB_ESERVER},
        {"-BACKEND timed out\r\n", false, SNIB_ESERVER},
        {"-ERR the number of permits would leave the range of 32 bits\r\n", false, SNIB_EPERMITS},
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

/* The reply to an acquisition is lost, and the next try is refused: the first may have worked, so
 * it is undone. */
static void refused_after_a_lost_answer(void **state)
{
    (void)state;
    for (int lost = 0; lost < 2; lost++) {
        struct snib__engine *engine = begin();
        struct snib__op *op = acquire(engine, gate(engine, SNIB_MUTEX, "m"), 0);
        connect_link(engine);
        assert_int_equal(oldest_script(engine), SNIB__SCRIPT_MUTEX_ACQUIRE);
        if (lost) {
            cut_link(engine);
            await_connect(engine);
            connect_link(engine);
            assert_int_equal(oldest_script(engine), SNIB__SCRIPT_MUTEX_ACQUIRE);
        }
        answer(engine, "-OOM command not allowed when used memory > 'maxmemory'.\r\n");
        ended(engine, op, SNIB_EOOM);
        pass(engine, now + SECOND);
        if (lost)
            assert_int_equal(oldest_script(engine), SNIB__SCRIPT_MUTEX_RELEASE);
        else
            assert_int_equal(on_the_way(engine), 0);
        snib__engine_free(engine);
    }
}

/* ---- A node that is no master, is busy, or has forgotten the login ------------------------------- */

/* Whatever the request: the link is closed, the request is sent on the next one, and the caller
 * sees nothing. */
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
        assert_true(snib__engine_deadline(engine) <= now); /* it is closed at once */
        assert_int_equal(snib__engine_take_wish(engine, snib__engine_link(engine, SNIB__COMMAND)),
                         SNIB__WISH_CLOSE);
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
        assert_int_equal(snib__engine_take_wish(engine, snib__engine_link(engine, SNIB__COMMAND)),
                         SNIB__WISH_CLOSE);
        await_connect(engine);
        connect_link(engine);
        answer_own(engine);
        answer(engine, ":0\r\n"); /* not found, and only the refused try was sent: lost */
        ended(engine, op, SNIB_LOST);
        snib__engine_free(engine);
    }
}

/* The reply to the command after a script's loading shows the outcome of both: nothing is in
 * doubt. */
static void refused_load_leaves_no_doubt(void **state)
{
    (void)state;
    for (size_t i = 2; i < sizeof disowned / sizeof *disowned; i++) {
        struct snib__engine *engine = begin();
        held(engine, SNIB_MUTEX, "m", "$-1\r\n");
        struct snib__op *op = acquire(engine, gate(engine, SNIB_SEMAPHORE, "s"), 0);
        const struct snib__conn *conn = conn_of(engine);
        assert_int_equal(conn->ring[conn->ring_head].kind, CONN_LOAD);
        for (int j = 0; j < 2; j++)
            snib__engine_input(engine, snib__engine_link(engine, SNIB__COMMAND), disowned[i],
                               strlen(disowned[i]), now);
        assert_false(op->done);
        assert_int_equal(snib__engine_take_wish(engine, snib__engine_link(engine, SNIB__COMMAND)),
                         SNIB__WISH_CLOSE);
        await_connect(engine);
        connect_link(engine);
        answer_own(engine);
        assert_int_equal(on_the_way(engine), 1);
        snib__engine_free(engine);
    }
}

/* A login that the server has forgotten is retried once; one that it refuses fails the waiting
 * operations. */
static void refused_login_ends_what_waits(void **state)
{
    (void)state;
    struct snib__engine *engine = begin();
    engine->config.login.password = "old";
    struct snib__op *op = acquire(engine, gate(engine, SNIB_MUTEX, "m"), 0);
    connect_link(engine);
    answer(engine, disowned[4]);
    assert_false(op->done);
    assert_int_equal(snib__engine_take_wish(engine, snib__engine_link(engine, SNIB__COMMAND)),
                     SNIB__WISH_CLOSE);
    await_connect(engine);
    assert_int_equal(snib__engine_take_wish(engine, snib__engine_link(engine, SNIB__COMMAND)),
                     SNIB__WISH_CONNECT);
    snib__engine_link_up(engine, snib__engine_link(engine, SNIB__COMMAND), now);
    const char *refusal = "-WRONGPASS invalid username-password pair\r\n";
    snib__engine_input(engine, snib__engine_link(engine, SNIB__COMMAND), refusal, strlen(refusal),
                       now);
    ended(engine, op, SNIB_EAUTH);
    snib__engine_free(engine);
}

/* How many log records report a missing connection, while each attempt fails in the same way until
 * then. */
static int told_until(struct snib__engine *engine, snib__time until, int os_error)
{
    struct snib__link *link = snib__engine_link(engine, SNIB__COMMAND);
    int told = 0;
    int32_t level;
    for (const char *text; now < until;) {
        pass(engine, now + 10 * SNIB__MS);
        snib__link_want(engine, link, now);
        if (snib__engine_take_wish(engine, link) == SNIB__WISH_CONNECT)
            snib__engine_link_down(engine, link, SNIB_EUNREACHABLE, os_error, now);
        while ((text = snib__engine_take_log(engine, &level)))
            told += strncmp(text, "no connection to ", 17) == 0;
    }
    return told;
}

/* A server that is down for long does not fill the log; a new reason is logged, and so is a new
 * outage. */
static void failure_is_told_once_a_minute(void **state)
{
    (void)state;
    struct snib__engine *engine = begin();
    snib__engine_log_level(engine, SNIB_LOG_WARNING);
    assert_int_equal(told_until(engine, now + 30 * SECOND, ECONNREFUSED), 1);
    assert_int_equal(told_until(engine, now + 10 * SECOND, EHOSTUNREACH), 1);
    assert_int_equal(told_until(engine, now + 90 * SECOND, EHOSTUNREACH), 1);
    await_connect(engine);
    connect_link(engine);
    assert_int_equal(told_until(engine, now + SECOND, 0), 0);
    snib__link_close(engine, snib__engine_link(engine, SNIB__COMMAND), SNIB_EUNREACHABLE, now);
    assert_int_equal(told_until(engine, now + 5 * SECOND, EHOSTUNREACH), 2);
    snib__engine_free(engine);
}

/* A hold is at risk and then lost by its deadline, never because of a replica's reply. */
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
    assert_int_equal(engine->stats.renewal_failures, 1);
    assert_int_equal(snib__hold_state(engine, hold, now), SNIB_HOLD_AT_RISK);
    for (int attempts = 0; now < deadline - SECOND; attempts++) {
        assert_true(attempts < 100);
        assert_int_equal(snib__engine_take_wish(engine, snib__engine_link(engine, SNIB__COMMAND)),
                         SNIB__WISH_CLOSE);
        await_connect(engine);
        assert_int_equal(snib__engine_take_wish(engine, snib__engine_link(engine, SNIB__COMMAND)),
                         SNIB__WISH_CONNECT);
        snib__engine_link_up(engine, snib__engine_link(engine, SNIB__COMMAND), now);
        const char *replica =
            "+OK\r\n+PONG\r\n:18\r\n$0\r\n\r\n$0\r\n\r\n$12\r\nrole:slave\r\n\r\n";
        snib__engine_input(engine, snib__engine_link(engine, SNIB__COMMAND), replica,
                           strlen(replica), now);
        assert_false(ready(engine));
        if (now < deadline)
            assert_int_equal(snib__hold_state(engine, hold, now), SNIB_HOLD_AT_RISK);
    }
    snib__engine_take_wish(engine, snib__engine_link(engine, SNIB__COMMAND));
    snib__engine_tick(engine, deadline);
    assert_int_equal(hold->reason, SNIB_REASON_UNREACHABLE);
    snib__engine_free(engine);
}

/* Each connection attempt fails for a reason of its own: an earlier refusal is not reported for a
 * silent server. */
static void failures_are_of_their_attempts(void **state)
{
    (void)state;
    struct snib__engine *engine = begin();
    struct snib__op *op = acquire(engine, gate(engine, SNIB_MUTEX, "m"), 0);
    for (int attempt = 0; !op->done; attempt++) {
        assert_true(attempt < 100);
        await_connect(engine);
        assert_int_equal(snib__engine_take_wish(engine, snib__engine_link(engine, SNIB__COMMAND)),
                         SNIB__WISH_CONNECT);
        if (attempt > 0) {
            cut_link(engine);
            assert_int_equal(engine->home->failure, SNIB_EUNREACHABLE);
            continue;
        }
        snib__engine_link_up(engine, snib__engine_link(engine, SNIB__COMMAND), now);
        const char *loading = "+OK\r\n-LOADING Redis is loading the dataset in memory\r\n";
        snib__engine_input(engine, snib__engine_link(engine, SNIB__COMMAND), loading,
                           strlen(loading), now);
        assert_int_equal(engine->home->failure, SNIB_ELOADING);
        assert_int_equal(snib__engine_take_wish(engine, snib__engine_link(engine, SNIB__COMMAND)),
                         SNIB__WISH_CLOSE);
    }
    ended(engine, op, SNIB_ECONNECT);
    snib__engine_free(engine);
}

/* Roles may be hidden (INFO is forbidden): then the refusals themselves must not become a busy
 * loop. */
static void refusals_are_no_signs_of_life(void **state)
{
    (void)state;
    struct snib__engine *engine = begin();
    struct snib__op *op = acquire(engine, gate(engine, SNIB_MUTEX, "m"), 0);
    int connections = 0;
    while (!op->done) {
        assert_true(connections++ < 50);
        if (snib__engine_take_wish(engine, snib__engine_link(engine, SNIB__COMMAND)) ==
            SNIB__WISH_CLOSE)
            await_connect(engine);
        else
            engine->home->links[SNIB__COMMAND].connect = true;
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

/* ---- Unknown scripts and commands --------------------------------------------------------------- */

/* A server that has forgotten its scripts has not denied a right: the renewals are resent at once,
 * in one batch.  One that forgets them all the time is asked again later. */
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
    for (int forgotten = 0; forgotten < 2; forgotten++) {
        answer(engine, "-NOSCRIPT No matching script. Please use EVAL.\r\n");
        assert_false(engine->home->renewals[SNIB_MUTEX].alone);
        answer_own(engine); /* it is loaded again */
        assert_int_equal(on_the_way(engine), forgotten == 0);
    }
    pass(engine, now + 3 * SECOND);
    answer_own(engine);
    assert_int_equal(on_the_way(engine), 1);
    answer(engine, "-NOSCRIPT No matching script. Please use EVAL.\r\n");
    answer_own(engine);
    assert_int_equal(on_the_way(engine), 1);
    answer(engine, "*0\r\n");
    for (int i = 0; i < 3; i++)
        assert_int_equal(snib__hold_state(engine, holds[i], now), SNIB_HOLD_VALID);
    assert_int_equal(engine->stats.renewals, 3);
    snib__engine_free(engine);
}

/* A server whose version promises DELEX but that refuses it is asked by script, then and from then
 * on. */
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

/* Another program has written other data under the name: nothing of the hold is left, and nothing is sent again. */
static void pair_finds_other_data(void **state)
{
    (void)state;
    static const char *const replies[] = {
        "-WRONGTYPE Operation against a key holding the wrong kind of value\r\n",
        "-ERR Key should be of string type if conditions are specified\r\n"};
    for (size_t i = 0; i < sizeof replies / sizeof *replies; i++) {
        struct snib__engine *engine = begin();
        struct snib__hold *hold = held(engine, SNIB_PLAIN, "p", "$-1\r\n");
        conn_of(engine)->delifeq = i == 0;
        conn_of(engine)->delex = i == 1;
        struct snib__op *op = release(engine, hold);
        assert_int_equal(oldest_script(engine), SNIB__TWO_COMMANDS);
        answer(engine, replies[i]);
        answer(engine, ":0\r\n");
        ended(engine, op, SNIB_EWRONGTYPE);
        pass(engine, now + 5000 * SNIB__MS); /* longer than a refused release waits */
        assert_int_equal(on_the_way(engine), 0);
        snib__engine_free(engine);
    }
}

/* The message that follows the release in a command of its own may be refused, which is told once. */
static void refused_message_is_told(void **state)
{
    (void)state;
    int32_t level;
    int told = 0;
    struct snib__engine *engine = begin();
    snib__engine_log_level(engine, SNIB_LOG_WARNING);
    for (int round = 0; round < 2; round++) {
        struct snib__hold *hold = held(engine, SNIB_PLAIN, "p", "$-1\r\n");
        conn_of(engine)->delifeq = true;
        struct snib__op *op = release(engine, hold);
        assert_int_equal(oldest_script(engine), SNIB__TWO_COMMANDS);
        answer(engine, ":1\r\n");
        answer(engine, "-NOPERM this user has no permissions to run the 'publish' command\r\n");
        ended(engine, op, SNIB_OK);
        assert_true(conn_of(engine)->delifeq);
    }
    for (const char *text; (text = snib__engine_take_log(engine, &level));)
        told += strstr(text, "allow this user +publish") != NULL;
    assert_int_equal(told, 1);
    snib__engine_free(engine);
}

/* Of two commands' replies the second says how many other clients listen: the next of this client's waiters gives way to
 * them, as after the script.  An error in its place changes neither the result nor what is said of the first. */
static void pair_says_who_listens(void **state)
{
    (void)state;
    static const struct {
        const char *second;
        bool theirs;
    } replies[] = {{":1\r\n", true}, /* beside this client's own subscription */
                   {":0\r\n", false},
                   {"-MOVED 1 127.0.0.1:1\r\n", false},
                   {"-READONLY You can't write against a read only replica.\r\n", false}};
    for (size_t i = 0; i < sizeof replies / sizeof *replies; i++) {
        struct snib__engine *engine = begin();
        struct snib__hold *hold = held(engine, SNIB_PLAIN, "p", "$-1\r\n");
        conn_of(engine)->delifeq = true;
        struct snib__op *op = release(engine, hold);
        assert_int_equal(oldest_script(engine), SNIB__TWO_COMMANDS);
        answer(engine, ":1\r\n");
        assert_false(op->done);
        snib__gate_ref(hold->gate);
        struct snib__gate *plain = hold->gate;
        answer(engine, replies[i].second);
        ended(engine, op, SNIB_OK);
        assert_int_equal(on_the_way(engine), 0);
        assert_int_equal(plain->waitq && plain->waitq->owed > 0, replies[i].theirs);
        snib__gate_put(engine, plain);
        snib__engine_free(engine);
    }
}

/* ---- Connecting again ------------------------------------------------------------------------------ */

/* The engine gives up a connection that is just being made.  That it is made all the same, or fails, is no news: the next
 * one is asked for as soon as after any other, and nobody is told of a failure. */
static void given_up_while_it_was_made(void **state)
{
    (void)state;
    for (int made = 0; made < 2; made++) {
        struct snib__engine *engine = with_waiter();
        struct snib__link *ear = &engine->home->links[SNIB__PUBSUB];
        snib__engine_link_down(engine, ear, SNIB_EUNREACHABLE, 0, now);
        cut_link(engine);
        server_id = "xyz";
        while (!ear->connect)
            pass_waiting(engine, now + SNIB__MS);
        assert_int_equal(snib__engine_take_wish(engine, ear), SNIB__WISH_CONNECT);
        await_connect(engine);
        connect_link(engine); /* another server */
        server_id = "abc";
        const snib__time pause = ear->backoff, since = now;
        snib__link_explain(ear, "it failed");
        if (made)
            snib__engine_link_up(engine, ear, now);
        else
            snib__engine_link_down(engine, ear, SNIB_EUNREACHABLE, 111, now);
        assert_int_equal(ear->conn.state, SNIB__CONN_DOWN);
        assert_int_equal(ear->backoff, pause);
        assert_string_equal(ear->conn.words, "");
        assert_int_equal(snib__engine_take_wish(engine, ear), SNIB__WISH_CLOSE);
        while (snib__engine_take_wish(engine, ear) != SNIB__WISH_CONNECT)
            pass_waiting(engine, now + SNIB__MS);
        assert_true(now <= since + 50 * SNIB__MS);
        snib__engine_free(engine);
    }
}

/* However long the server was down, a new operation has it tried at once. */
static void new_operation_shortens_the_pause(void **state)
{
    (void)state;
    struct snib__engine *engine = begin();
    struct snib__op *op = acquire(engine, gate(engine, SNIB_MUTEX, "m"), 0);
    for (int attempt = 0; !op->done; attempt++) {
        assert_true(attempt < 100);
        await_connect(engine);
        snib__engine_take_wish(engine, snib__engine_link(engine, SNIB__COMMAND));
        cut_link(engine);
    }
    ended(engine, op, SNIB_ECONNECT);
    const snib__time since = now;
    acquire(engine, gate(engine, SNIB_MUTEX, "m"), 0);
    await_connect(engine);
    assert_true(now <= since + 50 * SNIB__MS);
    snib__engine_free(engine);
}

/* Connect whenever the client wants; the connection answers one request, and ends after a while.  How often in a time. */
static int connects(struct snib__engine *engine, snib__time time, snib__time lasts)
{
    int32_t code, times = 0;
    for (const snib__time until = now + time; now < until; times++) {
        await_connect(engine);
        connect_link(engine);
        struct snib__op *op = snib__engine_ping(engine, 0, now, &code);
        answer_own(engine);
        answer(engine, "+PONG\r\n");
        ended(engine, op, SNIB_OK);
        now += lasts;
        snib__engine_tick(engine, now);
        cut_link(engine);
    }
    return times;
}

/* A server that goes drops all its clients at once: already the first attempts to come back are apart. */
static void first_attempts_are_apart(void **state)
{
    (void)state;
    snib__time earliest = INT64_MAX, latest = 0;
    for (uint64_t seed = 1; seed <= 20; seed++) {
        struct snib__engine *engine = begin();
        held(engine, SNIB_MUTEX, "m", "$-1\r\n");
        engine->random = seed;
        const snib__time cut = now;
        cut_link(engine);
        assert_false(engine->home->links[SNIB__COMMAND].connect);
        await_connect(engine);
        assert_in_range(now - cut, 0, 20 * SNIB__MS);
        earliest = now - cut < earliest ? now - cut : earliest;
        latest = now - cut > latest ? now - cut : latest;
        snib__engine_free(engine);
    }
    assert_true(latest > earliest + 5 * SNIB__MS);
}

/* A server that ends each connection as soon as it has answered is not connected to without a pause; nor is the pause as
 * long as for a server that is down, or reached at once by those that had no trouble before. */
static void connections_that_do_not_last(void **state)
{
    (void)state;
    struct snib__engine *engine = begin();
    held(engine, SNIB_MUTEX, "m", "$-1\r\n");
    cut_link(engine);
    assert_in_range(connects(engine, 10 * SECOND, 0), 40, 90);
    snib__engine_free(engine);
}

/* A connection for messages that was ready for long, and finds at its first request that its login is none any more, has
 * worked until then: whoever waits is not kept from the next by the pauses of an earlier outage. */
static void idle_connection_that_was_logged_out(void **state)
{
    (void)state;
    struct snib__engine *engine = with_waiter();
    struct snib__link *ear = &engine->home->links[SNIB__PUBSUB];
    assert_int_equal(ear->conn.state, SNIB__CONN_READY);
    ear->proven = false;
    ear->backoff = 2 * SECOND;
    now = ear->ready_at + 2 * SECOND;
    snib__engine_link_down(engine, ear, SNIB_EAUTH, 0, now);
    assert_in_range(ear->next_try, now, now + 10 * SNIB__MS);
    snib__engine_free(engine);
}

/* Nor do those shorten the pause that wait for such a connection, and are sent again on each: only a new operation does. */
static void waiters_do_not_shorten_the_pause(void **state)
{
    (void)state;
    struct snib__engine *engine = with_waiter();
    struct snib__link *ear = &engine->home->links[SNIB__PUBSUB];
    int times = 0;
    for (const snib__time until = now + 10 * SECOND; now < until; times++) {
        snib__engine_link_down(engine, ear, SNIB_EUNREACHABLE, 0, now);
        while (!ear->connect)
            pass_waiting(engine, now + 10 * SNIB__MS);
        snib__engine_take_wish(engine, ear);
        snib__engine_link_up(engine, ear, now);
    }
    assert_in_range(times, 8, 20);
    snib__engine_free(engine);
    engine = begin();
    release(engine, held(engine, SNIB_MUTEX, "m", "$-1\r\n"));
    times = 0;
    for (const snib__time until = now + 10 * SECOND; now < until; times++) {
        assert_int_equal(on_the_way(engine), 1);
        cut_link(engine);
        await_connect(engine);
        connect_link(engine);
    }
    assert_in_range(times, 8, 20);
    snib__engine_free(engine);
}

/* Nor does one that asks often, as for a lock whose holder sends no message, where the connection for messages cannot be
 * made. */
static void asking_often_does_not_shorten_the_pause(void **state)
{
    (void)state;
    struct snib__engine *engine = begin();
    struct snib__link *ear = &engine->home->links[SNIB__PUBSUB];
    int times = 0, asked = 0;
    acquire(engine, gate(engine, SNIB_PLAIN, "p"), 0);
    connect_link(engine);
    answer_own(engine);
    answer(engine, "*2\r\n:86400000\r\n:1\r\n"); /* another library's client has it */
    for (const snib__time until = now + 20 * SECOND; now < until;) {
        pass(engine, now + 10 * SNIB__MS);
        answer_own(engine);
        for (; on_the_way(engine); asked++)
            answer(engine, "*2\r\n:86400000\r\n:1\r\n");
        if (snib__engine_take_wish(engine, ear) == SNIB__WISH_CONNECT) {
            snib__engine_link_down(engine, ear, SNIB_EUNREACHABLE, 111, now);
            times++;
        }
    }
    assert_in_range(asked, 150, 300);
    assert_in_range(times, 10, 30);
    snib__engine_free(engine);
}

/* The peer of a link for messages turns out to be a sentinel, and has sent more than the handshake asks for: with the link its
 * replies are gone. */
static void replies_go_with_the_link(void **state)
{
    (void)state;
    struct snib__engine *engine = with_waiter();
    struct snib__link *ear = &engine->home->links[SNIB__PUBSUB];
    snib__engine_link_down(engine, ear, SNIB_EUNREACHABLE, 0, now);
    while (!ear->connect)
        pass_waiting(engine, now + 10 * SNIB__MS);
    snib__engine_take_wish(engine, ear);
    snib__engine_link_up(engine, ear, now);
    say_on_pubsub(engine, "+OK\r\n+redis_mode:sentinel\r\n*2\r\n$4\r\npong\r\n$0\r\n\r\n");
    assert_int_equal(ear->conn.state, SNIB__CONN_DOWN);
    assert_false(ear->proven);
    assert_int_equal(snib__engine_take_wish(engine, ear), SNIB__WISH_CLOSE);
    snib__engine_free(engine);
}

/* After a long outage the next short breaks cost little: the first connection need not have lasted, and one that has makes
 * all as it was. */
static void outage_is_forgotten(void **state)
{
    (void)state;
    for (int lasts = 0; lasts < 2; lasts++) {
        struct snib__engine *engine = begin();
        held(engine, SNIB_MUTEX, "m", "$-1\r\n");
        cut_link(engine);
        for (int attempt = 0; attempt < 12; attempt++) {
            await_connect(engine);
            snib__engine_take_wish(engine, snib__engine_link(engine, SNIB__COMMAND));
            cut_link(engine);
        }
        connects(engine, 1, lasts ? SECOND : 10 * SNIB__MS);
        const snib__time since = now;
        await_connect(engine);
        assert_true(now <= since + (lasts ? 10 : 250) * SNIB__MS);
        snib__engine_free(engine);
    }
}

/* ---- What is left on a connection that cannot be killed ----------------------------------------- */

/* Connect to a server that answers one of the connection's own requests with an error: CLIENT ID,
 * INFO, or CLIENT KILL. */
static void connect_without(struct snib__engine *engine, int16_t refused)
{
    struct snib__conn *conn = conn_of(engine);
    static const char no[] = "-NOPERM this user has no permissions to run the command\r\n";
    assert_int_equal(snib__engine_take_wish(engine, snib__engine_link(engine, SNIB__COMMAND)),
                     SNIB__WISH_CONNECT);
    snib__engine_link_up(engine, snib__engine_link(engine, SNIB__COMMAND), now);
    while (conn->ring_count > 0 && conn->ring[conn->ring_head].kind < 0) {
        if (conn->ring[conn->ring_head].kind == refused)
            snib__engine_input(engine, snib__engine_link(engine, SNIB__COMMAND), no, sizeof no - 1,
                               now);
        else
            answer(engine, "");
    }
    assert_true(ready(engine));
    engine->home->clock.refused = true;
}

static int records(struct snib__engine *engine, const char *words, int32_t want)
{
    int32_t level;
    int n = 0;
    for (const char *text; (text = snib__engine_take_log(engine, &level));) {
        if (!strstr(text, words))
            continue;
        assert_int_equal(level, want);
        assert_non_null(strstr(text, "allow this user"));
        n++;
    }
    return n;
}

/* Where the user may not ask for the number, or not kill: the log says once that this may be
 * needed, if that is known, and once that it was. */
static void connection_that_cannot_be_ended(void **state)
{
    (void)state;
    enum { CONN_KILL = -8 };
    static const char ahead[] = "cannot be killed", was[] = "could not be killed";
    static const int16_t refused[] = {CONN_ID, CONN_INFO, CONN_KILL, 0};
    for (size_t i = 0; i < COUNT(refused); i++) {
        struct snib__engine *engine = begin();
        snib__engine_log_level(engine, SNIB_LOG_INFO);
        acquire(engine, gate(engine, SNIB_MUTEX, "m"), 0);
        connect_without(engine, refused[i]);
        assert_int_equal(records(engine, ahead, SNIB_LOG_INFO), i < 2);
        answer_own(engine);
        answer(engine, "$-1\r\n");
        cut_link(engine); /* with nothing left on it */
        await_connect(engine);
        connect_without(engine, refused[i]);
        assert_int_equal(records(engine, "be killed", SNIB_LOG_INFO), 0);
        for (int cuts = 0; cuts < 2; cuts++) {
            acquire(engine, gate(engine, SNIB_MUTEX, cuts ? "n" : "o"), 0);
            cut_link(engine);
            await_connect(engine);
            connect_without(engine, refused[i]);
            assert_int_equal(records(engine, was, SNIB_LOG_WARNING), cuts == 0 && i < 3);
        }
        snib__engine_free(engine);
    }
}

/* It could have been killed, but the user may no longer ask whether it is the same process. */
static void right_goes_with_the_connection(void **state)
{
    (void)state;
    struct snib__engine *engine = begin();
    acquire(engine, gate(engine, SNIB_MUTEX, "m"), 0);
    connect_without(engine, 0);
    snib__engine_log_level(engine, SNIB_LOG_WARNING);
    cut_link(engine);
    await_connect(engine);
    connect_without(engine, CONN_INFO);
    assert_int_equal(records(engine, "could not be killed", SNIB_LOG_WARNING), 1);
    snib__engine_free(engine);
}

/* A server that takes long for much that was asked at once is not silent: as long as it answers, it is waited for. */
static void slow_is_not_silent(void **state)
{
    (void)state;
    enum { MANY = 10 };
    struct snib__engine *engine = begin();
    granted(engine, gate(engine, SNIB_MUTEX, "first"),
            &(struct snib__acquire){.wait = SNIB__NEVER});
    const snib__time timeout = snib__node_reply_timeout(engine, engine->home);
    for (int i = 0; i < MANY; i++)
        acquire(engine, gate(engine, SNIB_MUTEX, (char[]){(char)('a' + i), 0}), 0);
    for (int i = 1; i < MANY; i++) {
        now += timeout * 2 / 3;
        snib__engine_tick(engine, now);
        assert_true(ready(engine));
        oldest_script(engine);
        answer(engine, ":86400000\r\n");
    }
    now += timeout;
    snib__engine_tick(engine, now);
    assert_false(ready(engine));
    snib__engine_free(engine);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(slow_is_not_silent),
        cmocka_unit_test(right_goes_with_the_connection),
        cmocka_unit_test(connections_that_do_not_last),
        cmocka_unit_test(first_attempts_are_apart),
        cmocka_unit_test(waiters_do_not_shorten_the_pause),
        cmocka_unit_test(idle_connection_that_was_logged_out),
        cmocka_unit_test(asking_often_does_not_shorten_the_pause),
        cmocka_unit_test(replies_go_with_the_link),
        cmocka_unit_test(outage_is_forgotten),
        cmocka_unit_test(connection_that_cannot_be_ended),
        cmocka_unit_test(semaphore_release_is_sent_once),
        cmocka_unit_test(refused_after_a_lost_answer),
        cmocka_unit_test(node_that_is_no_master_is_left),
        cmocka_unit_test(refused_load_leaves_no_doubt),
        cmocka_unit_test(refused_login_ends_what_waits),
        cmocka_unit_test(failure_is_told_once_a_minute),
        cmocka_unit_test(replica_does_not_take_holds),
        cmocka_unit_test(failures_are_of_their_attempts),
        cmocka_unit_test(refusals_are_no_signs_of_life),
        cmocka_unit_test(forgotten_script_is_no_refusal),
        cmocka_unit_test(refused_command_is_not_asked_again),
        cmocka_unit_test(pair_finds_other_data),
        cmocka_unit_test(refused_message_is_told),
        cmocka_unit_test(pair_says_who_listens),
        cmocka_unit_test(given_up_while_it_was_made),
        cmocka_unit_test(new_operation_shortens_the_pause),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
