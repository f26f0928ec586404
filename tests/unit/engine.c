/* engine.c - the engine fed by hand: what the simulated worlds reach seldom or never. */
#include "unit.h"

#include "engine/ask.h"
#include "engine/internal.h"
#include "net/script.h"

#include <stdio.h>
#include <string.h>

#define SECOND (1000 * SNIB__MS)
#define START (100 * SECOND)
#define CONN_ID (-4) /* conn.c's kinds of requests of its own */
#define CONN_INFO (-5)
#define CONN_LOAD (-6)

static snib__time now;

static struct snib__engine *begin(void)
{
    struct snib__config config = {.uuid = "00000000-0000-8000-8000-000000000001",
                                  .seed = 1,
                                  .first_number = 1,
                                  .lease = 30 * SECOND,
                                  .reply_timeout = 3 * SECOND,
                                  .patience = 5 * SECOND,
                                  .recheck = 3 * SECOND,
                                  .handover_max = 16,
                                  .ops_max = 10000};
    struct snib__engine *engine = snib__engine_new(&config);
    assert_non_null(engine);
    now = START;
    return engine;
}

static struct snib__conn *conn_of(struct snib__engine *engine)
{
    return &engine->node.links[SNIB__COMMAND].conn;
}

/* ---- The other side of the command link ---------------------------------------------------------- */

/* Answer the oldest request; those of the connection itself as a server does. */
static void answer(struct snib__engine *engine, const char *reply)
{
    struct snib__conn *conn = conn_of(engine);
    assert_true(conn->ring_count > 0);
    const struct snib__request *request = &conn->ring[conn->ring_head];
    char sha1[64];
    snprintf(sha1, sizeof sha1, "$40\r\n%s\r\n",
             request->kind == CONN_LOAD ? snib__script_texts[request->script].sha1 : "");
    const char *text = request->kind == CONN_LOAD   ? sha1
                       : request->kind == CONN_ID   ? ":17\r\n"
                       : request->kind == CONN_INFO ? "$12\r\nrun_id:abc\r\n\r\n"
                       : request->kind < 0          ? "+OK\r\n"
                                                    : reply;
    snib__engine_input(engine, SNIB__COMMAND, text, strlen(text), now);
}

static uint32_t ready(struct snib__engine *engine)
{
    return conn_of(engine)->state == SNIB__CONN_READY;
}

/* Answer what the connection itself has asked, up to the first request of the engine. */
static void answer_own(struct snib__engine *engine)
{
    struct snib__conn *conn = conn_of(engine);
    while (conn->ring_count > 0 && conn->ring[conn->ring_head].kind < 0)
        answer(engine, "");
}

static void connect_link(struct snib__engine *engine)
{
    assert_int_equal(snib__engine_take_wish(engine, SNIB__COMMAND), SNIB__WISH_CONNECT);
    snib__engine_link_up(engine, SNIB__COMMAND, now);
    answer_own(engine);
    assert_true(ready(engine));
}

/* Go on until the command link is to be connected. */
static void await_connect(struct snib__engine *engine)
{
    for (int step = 0; !engine->node.links[SNIB__COMMAND].connect; step++) {
        assert_true(step < 1000);
        snib__time next = snib__engine_deadline(engine);
        now = next > now ? next : now;
        snib__engine_tick(engine, now);
    }
}

static void cut_link(struct snib__engine *engine)
{
    snib__engine_link_down(engine, SNIB__COMMAND, SNIB_EUNREACHABLE, 0, now);
}

/* The number of requests of the engine that are on their way. */
static uint32_t on_the_way(struct snib__engine *engine)
{
    const struct snib__conn *conn = conn_of(engine);
    uint32_t n = 0;
    for (uint32_t i = 0; i < conn->ring_count; i++)
        n += conn->ring[(conn->ring_head + i) & (conn->ring_cap - 1)].kind > 0;
    return n;
}

/* The script of the oldest request of the engine. */
static int oldest_script(struct snib__engine *engine)
{
    answer_own(engine);
    assert_true(on_the_way(engine) > 0);
    return conn_of(engine)->ring[conn_of(engine)->ring_head].script;
}

/* ---- This side ------------------------------------------------------------------------------------ */

static struct snib__gate *gate(struct snib__engine *engine, int32_t kind, const char *name)
{
    struct snib__gate *gate = snib__gate_get(engine, kind, name, strlen(name));
    assert_non_null(gate);
    return gate;
}

static struct snib__op *acquire(struct snib__engine *engine, struct snib__gate *gate,
                                uint64_t owner)
{
    int32_t code;
    struct snib__acquire how = {.owner = owner, .wait = SNIB__NEVER};
    struct snib__op *op = snib__engine_acquire(engine, gate, &how, now, &code);
    assert_non_null(op);
    return op;
}

static struct snib__hold *acquired(struct snib__engine *engine, struct snib__op *op)
{
    assert_ptr_equal(snib__engine_take_done(engine), op);
    assert_int_equal(op->code, SNIB_OK);
    struct snib__hold *hold = op->hold;
    snib__op_free(engine, op);
    return hold;
}

/* ---- Tests ----------------------------------------------------------------------------------------- */

/* A server that lets clients in and ends every connection at its first request: patience ends, and the
 * attempts until then are few. */
static void useless_connections(void **state)
{
    (void)state;
    struct snib__engine *engine = begin();
    struct snib__op *op = acquire(engine, gate(engine, SNIB_MUTEX, "m"), 0);
    int connections = 0;
    while (!op->done) {
        assert_true(connections++ < 200);
        connect_link(engine);
        assert_int_equal(on_the_way(engine), 1);
        now += SNIB__MS;
        cut_link(engine);
        if (!op->done)
            await_connect(engine);
    }
    assert_int_equal(op->code, SNIB_EUNREACHABLE);
    assert_true(now >= START + 5 * SECOND && now < START + 6 * SECOND);
    snib__engine_free(engine);
}

/* An answer begins a new account: the next fault has the whole patience again. */
static void useful_connections(void **state)
{
    (void)state;
    struct snib__engine *engine = begin();
    struct snib__op *op = acquire(engine, gate(engine, SNIB_MUTEX, "m"), 0);
    for (int fault = 0; fault < 20; fault++) {
        connect_link(engine);
        answer(engine, ":30000\r\n");
        now += SECOND;
        cut_link(engine);
        await_connect(engine);
    }
    assert_false(op->done);
    snib__engine_free(engine);
}

/* Of a thousand that wait for a connection any may leave; the others are sent, in order. */
static void leaving_before_the_connection(void **state)
{
    (void)state;
    enum { N = 1000 };
    static struct snib__op *ops[N];
    static bool left[N];
    struct snib__engine *engine = begin();
    char name[16];
    uint32_t n = 0, stay = 0;
    for (int i = 0; i < N; i++) {
        snprintf(name, sizeof name, "m%d", i);
        ops[i] = acquire(engine, gate(engine, SNIB_MUTEX, name), 0);
    }
    for (int i = 0; i < N; i++) { /* from the front, from the back, from anywhere */
        int who = i < 200 ? i : i < 400 ? N - 1 - (i - 200) : (int)snib__engine_random(engine, N);
        left[who] = true;
        snib__engine_cancel(engine, ops[who], now);
        for (int more = 0; i == 600 && more < 2000; more++) { /* so many that the gaps are closed */
            int32_t code;
            struct snib__op *one = snib__engine_ping(engine, SNIB__NEVER, now, &code);
            struct snib__op *two = snib__engine_ping(engine, SNIB__NEVER, now, &code);
            snib__engine_ping(engine, SNIB__NEVER, now, &code);
            snib__engine_cancel(engine, one, now);
            snib__engine_cancel(engine, two, now);
        }
    }
    connect_link(engine);
    const struct snib__conn *conn = conn_of(engine);
    for (uint32_t i = 0; i < conn->ring_count; i++) {
        const struct snib__request *sent =
            &conn->ring[(conn->ring_head + i) & (conn->ring_cap - 1)];
        if (sent->kind != SNIB__REQ_ACQUIRE)
            continue;
        while (left[n])
            n++;
        assert_ptr_equal(((struct snib__hold *)sent->subject)->op, ops[n++]);
        stay++;
    }
    while (n < N && left[n])
        n++;
    assert_int_equal(n, N);
    assert_true(stay > 100);
    assert_int_equal(on_the_way(engine), stay + 2000);
    snib__engine_free(engine);
}

/* A hand-over whose answer was lost, and whose repetition is refused, may have worked: when the next owner
 * leaves, its number is taken away from the server. */
static void doubtful_hand_over(void **state)
{
    (void)state;
    struct snib__engine *engine = begin();
    struct snib__gate *mutex = gate(engine, SNIB_MUTEX, "m");
    struct snib__op *first = acquire(engine, mutex, 0);
    connect_link(engine);
    answer_own(engine);
    answer(engine, "$-1\r\n");
    struct snib__hold *hold = acquired(engine, first);
    struct snib__op *next = acquire(engine, mutex, 0);
    uint64_t number = next->hold->number;
    int32_t code;
    struct snib__op *release = snib__engine_release(engine, hold, now, &code);
    assert_int_equal(oldest_script(engine), SNIB__SCRIPT_MUTEX_TRANSFER);
    cut_link(engine); /* after the server has done it */
    await_connect(engine);
    connect_link(engine);
    assert_int_equal(oldest_script(engine), SNIB__SCRIPT_MUTEX_TRANSFER);
    answer(engine, "-MISCONF disk is full\r\n");
    assert_int_equal(oldest_script(engine), SNIB__SCRIPT_MUTEX_RELEASE);
    assert_true(snib__engine_cancel(engine, next, now));
    answer(engine, ":0\r\n");
    assert_true(release->done);
    assert_int_equal(oldest_script(engine), SNIB__SCRIPT_MUTEX_RELEASE);
    const struct snib__conn *conn = conn_of(engine);
    assert_int_equal(conn->ring[conn->ring_head].number, number);
    answer(engine, ":1\r\n");
    assert_true(snib__engine_quiet(engine));
    snib__engine_free(engine);
}

/* The read holds that a writer takes one after another have one number: what is left of a lost one must not
 * take the next one away, neither at once nor when it is repeated later. */
static void reads_of_a_writer(void **state)
{
    (void)state;
    struct snib__engine *engine = begin();
    struct snib__gate *reads = gate(engine, SNIB_READ, "rw");
    struct snib__acquire brief = {.owner = 7, .wait = SNIB__NEVER, .max_hold = SECOND};
    struct snib__hold *read[2];
    int32_t code;
    struct snib__op *op = acquire(engine, gate(engine, SNIB_WRITE, "rw"), 7);
    connect_link(engine);
    answer(engine, "$-1\r\n");
    acquired(engine, op);
    for (int i = 0; i < 2; i++) { /* the second comes before the first, lost, is released */
        op = snib__engine_acquire(engine, reads, &brief, now, &code);
        assert_int_equal(oldest_script(engine), SNIB__SCRIPT_READ_ACQUIRE);
        answer(engine, "$-1\r\n");
        read[i] = acquired(engine, op);
        now += i == 0 ? SECOND : 0;
        snib__engine_tick(engine, now);
    }
    assert_int_equal(read[0]->phase, SNIB__LOST);
    assert_int_equal(read[0]->number, read[1]->number);
    assert_null(snib__engine_release(engine, read[0], now, &code));
    assert_int_equal(code, SNIB_LOST);
    assert_int_equal(on_the_way(engine), 0);
    now += SECOND;
    snib__engine_tick(engine, now);
    assert_null(snib__engine_release(engine, read[1], now, &code)); /* lost, and nobody after it */
    assert_int_equal(oldest_script(engine), SNIB__SCRIPT_READ_RELEASE);
    op = snib__engine_acquire(engine, reads, &brief, now, &code); /* comes after the release */
    assert_int_equal(on_the_way(engine), 1);
    answer(engine, ":1\r\n");
    assert_int_equal(oldest_script(engine), SNIB__SCRIPT_READ_ACQUIRE);
    snib__engine_free(engine);
}

/* A hold gets a longer, fixed lease while a renewal is on its way: only the server's word for that lease counts. */
static void fixed_during_a_renewal(void **state)
{
    (void)state;
    struct snib__engine *engine = begin();
    struct snib__op *op = acquire(engine, gate(engine, SNIB_MUTEX, "m"), 0);
    connect_link(engine);
    answer_own(engine);
    answer(engine, "$-1\r\n");
    struct snib__hold *hold = acquired(engine, op);
    now += 10 * SECOND;
    snib__engine_tick(engine, now);
    assert_int_equal(oldest_script(engine), SNIB__SCRIPT_MUTEX_RENEW);
    snib__hold_fix(engine, hold, 60 * SECOND, now);
    assert_int_equal(on_the_way(engine), 2);
    answer(engine, "*0\r\n");
    assert_true(hold->deadline < now + 30 * SECOND);
    answer(engine, "*0\r\n");
    assert_true(hold->deadline > now + 50 * SECOND);
    snib__engine_free(engine);
}

/* An owner cannot have a lock more often than can be counted. */
static void too_many_times(void **state)
{
    (void)state;
    struct snib__engine *engine = begin();
    struct snib__gate *mutex = gate(engine, SNIB_MUTEX, "m");
    struct snib__op *op = acquire(engine, mutex, 7);
    connect_link(engine);
    answer(engine, "$-1\r\n");
    struct snib__hold *hold = acquired(engine, op);
    hold->count = UINT32_MAX - 1;
    acquired(engine, acquire(engine, mutex, 7));
    assert_int_equal(hold->count, UINT32_MAX);
    op = acquire(engine, mutex, 7);
    assert_true(op->done);
    assert_int_equal(op->code, SNIB_ELIMIT);
    assert_int_equal(hold->count, UINT32_MAX);
    assert_int_equal(hold->phase, SNIB__HELD);
    snib__engine_free(engine);
}

/* A holder whose lease lasts longer than any clock is asked about at the usual times. */
static void endless_lease(void **state)
{
    (void)state;
    struct snib__engine *engine = begin();
    struct snib__gate *mutex = gate(engine, SNIB_MUTEX, "m");
    acquire(engine, mutex, 0);
    connect_link(engine);
    answer_own(engine);
    answer(engine, ":18446744073710\r\n"); /* in nanoseconds a little more than 2^64 */
    assert_int_not_equal(mutex->wait->timer_at, 0);
    assert_true(engine->heap[mutex->wait->timer_at].when > now + SECOND);
    snib__engine_free(engine);
}

/* ---- Lost is final --------------------------------------------------------------------------------- */

/* A renewed mutex, granted now; the renewal of it is on its way, and no tick comes before its deadline has passed. */
static struct snib__hold *renewing(struct snib__engine *engine, const struct snib__acquire *how)
{
    int32_t code;
    struct snib__gate *mutex = gate(engine, SNIB_MUTEX, "m");
    struct snib__op *op = snib__engine_acquire(engine, mutex, how, now, &code);
    connect_link(engine);
    answer_own(engine);
    answer(engine, "$-1\r\n");
    struct snib__hold *hold = acquired(engine, op);
    hold->tell = 1;
    now += 10 * SECOND;
    snib__engine_tick(engine, now);
    assert_int_equal(oldest_script(engine), SNIB__SCRIPT_MUTEX_RENEW);
    return hold;
}

static void expect_lost(struct snib__engine *engine, struct snib__hold *hold, int reason)
{
    assert_int_equal(snib__hold_state(engine, hold, now), SNIB_HOLD_LOST);
    assert_int_equal(snib__hold_reason(hold, now), reason);
    assert_int_equal(snib__hold_left(hold, now), 0);
}

/* It is lost by the clock; then the answer comes before any tick. */
static void answered_too_late(const struct snib__acquire *how, const char *reply, int reason,
                              snib__time over)
{
    struct snib__engine *engine = begin();
    struct snib__hold *hold = renewing(engine, how);
    int32_t code;
    now = over - 1;
    assert_int_not_equal(snib__hold_state(engine, hold, now), SNIB_HOLD_LOST);
    now = over;
    expect_lost(engine, hold, reason);
    answer(engine, reply);
    expect_lost(engine, hold, reason);
    snib__engine_tick(engine, now);
    expect_lost(engine, hold, reason);
    assert_ptr_equal(snib__engine_take_lost(engine), hold);
    assert_null(snib__engine_take_lost(engine)); /* told once */
    assert_null(snib__engine_release(engine, hold, now, &code));
    assert_int_equal(code, SNIB_LOST);
    snib__engine_free(engine);
}

static void late_renewals(void **state)
{
    (void)state;
    const struct snib__acquire renewed = {.wait = SNIB__NEVER};
    const struct snib__acquire limited = {.wait = SNIB__NEVER, .max_hold = 20 * SECOND};
    const snib__time over = START + 30 * SECOND - 300 * SNIB__MS - SNIB__MARGIN;
    answered_too_late(&renewed, "*0\r\n", SNIB_REASON_UNREACHABLE, over);
    answered_too_late(&renewed, "*2\r\n:1\r\n:1\r\n", SNIB_REASON_UNREACHABLE, over);
    answered_too_late(&renewed, "-ERR no\r\n", SNIB_REASON_UNREACHABLE, over);
    answered_too_late(&limited, "*0\r\n", SNIB_REASON_MAX_HOLD, START + 20 * SECOND);
    answered_too_late(&limited, "*2\r\n:1\r\n:0\r\n", SNIB_REASON_MAX_HOLD, START + 20 * SECOND);
}

/* The lease that was to become a fixed one, and that of a first lease, are confirmed too late. */
static void late_confirmation(void **state)
{
    (void)state;
    const struct snib__acquire renewed = {.wait = SNIB__NEVER};
    struct snib__engine *engine = begin();
    struct snib__hold *hold = renewing(engine, &renewed);
    snib__hold_fix(engine, hold, 60 * SECOND, now);
    now = hold->deadline;
    answer(engine, "*0\r\n");
    answer(engine, "*0\r\n");
    expect_lost(engine, hold, SNIB_REASON_EXPIRED);
    snib__engine_free(engine);

    engine = begin();
    hold = renewing(engine, &renewed);
    now = hold->deadline;
    snib__hold_fix(engine, hold, 60 * SECOND, now);
    expect_lost(engine, hold, SNIB_REASON_UNREACHABLE);
    answer(engine, "*0\r\n");
    assert_int_equal(on_the_way(engine), 0);
    expect_lost(engine, hold, SNIB_REASON_UNREACHABLE);
    snib__engine_free(engine);
}

/* Its owner comes again when nobody has noticed yet that it is over: it waits for a new hold. */
static void late_reentry(void **state)
{
    (void)state;
    const struct snib__acquire owned = {.owner = 7, .wait = SNIB__NEVER};
    struct snib__engine *engine = begin();
    struct snib__hold *hold = renewing(engine, &owned);
    now = hold->deadline;
    struct snib__op *again = acquire(engine, hold->gate, 7);
    assert_false(again->done);
    assert_ptr_not_equal(again->hold, hold);
    expect_lost(engine, hold, SNIB_REASON_UNREACHABLE);
    assert_ptr_equal(snib__engine_take_lost(engine), hold);
    answer(engine, "*0\r\n");
    expect_lost(engine, hold, SNIB_REASON_UNREACHABLE);
    assert_int_equal(oldest_script(engine), SNIB__SCRIPT_MUTEX_ACQUIRE);
    snib__engine_free(engine);
}

/* A hold that is carried outside: who carries it comes too late. */
static void late_carrier(void **state)
{
    (void)state;
    struct snib__engine *engine = begin();
    struct snib__outer outer = {0};
    struct snib__acquire how = {.wait = SNIB__NEVER, .outer = &outer};
    int32_t code;
    struct snib__op *op =
        snib__engine_acquire(engine, gate(engine, SNIB__OUTER, "?m"), &how, now, &code);
    assert_true(snib__outer_granted(engine, &outer, now + SECOND, now));
    struct snib__hold *hold = acquired(engine, op);
    snib__outer_timed(engine, &outer, now + 2 * SECOND, now + SECOND - 1);
    now += 2 * SECOND;
    snib__outer_timed(engine, &outer, now + SECOND, now);
    expect_lost(engine, hold, SNIB_REASON_UNREACHABLE);
    snib__outer_lost(engine, &outer, SNIB_REASON_TAKEN, now);
    expect_lost(engine, hold, SNIB_REASON_UNREACHABLE);
    snib__engine_tick(engine, now);
    expect_lost(engine, hold, SNIB_REASON_UNREACHABLE);
    snib__engine_free(engine);
}

/* Whoever closes after the end says what ended it. */
static void closed_after_the_end(void **state)
{
    (void)state;
    const struct snib__acquire renewed = {.wait = SNIB__NEVER};
    struct snib__engine *engine = begin();
    struct snib__hold *hold = renewing(engine, &renewed);
    now = hold->deadline;
    snib__engine_close(engine, now);
    expect_lost(engine, hold, SNIB_REASON_UNREACHABLE);
    snib__engine_free(engine);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(useless_connections),
        cmocka_unit_test(useful_connections),
        cmocka_unit_test(leaving_before_the_connection),
        cmocka_unit_test(doubtful_hand_over),
        cmocka_unit_test(reads_of_a_writer),
        cmocka_unit_test(fixed_during_a_renewal),
        cmocka_unit_test(too_many_times),
        cmocka_unit_test(endless_lease),
        cmocka_unit_test(late_renewals),
        cmocka_unit_test(late_confirmation),
        cmocka_unit_test(late_reentry),
        cmocka_unit_test(late_carrier),
        cmocka_unit_test(closed_after_the_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
