/* durable.c - grants that wait for replicas, in virtual time: what shares a batch, and what is
 * decided when. */
#include "fed.h"

#include "ledger/ledger.h"

#define REPLICAS(n) "role:master\r\nconnected_slaves:" #n "\r\n"
#define TWO REPLICAS(2)

static struct snib__engine *engine;
static struct snib__link *line;     /* the link reserved for acquisitions */
static const char *line_id = "abc"; /* of the server that it reaches: three letters */

static uint32_t under_way(int kind)
{
    const struct snib__conn *conn = &line->conn;
    uint32_t n = 0;
    for (uint32_t i = 0; i < conn->ring_count; i++)
        n += conn->ring[(conn->ring_head + i) & (conn->ring_cap - 1)].kind == kind;
    return n;
}

/* Answer the oldest request on that link; info: what the server reports of itself. */
static void answer_line(const char *info, const char *reply)
{
    const struct snib__conn *conn = &line->conn;
    char text[200];
    assert_true(conn->ring_count > 0);
    const struct snib__request *request = &conn->ring[conn->ring_head];
    if (request->kind == CONN_LOAD)
        snprintf(text, sizeof text, "$40\r\n%s\r\n", snib__script_texts[request->script].sha1);
    else if (request->kind == CONN_INFO)
        snprintf(text, sizeof text, "$%zu\r\nrun_id:%s\r\n%s\r\n", 12 + strlen(info), line_id,
                 info);
    else
        snprintf(text, sizeof text, "%s",
                 request->kind == CONN_ID ? ":18\r\n"
                 : request->kind < 0      ? "+OK\r\n"
                                          : reply);
    snib__engine_input(engine, line, text, strlen(text), now);
}

static void answer_line_own(const char *info)
{
    const struct snib__conn *conn = &line->conn;
    while (conn->ring_count > 0 && conn->ring[conn->ring_head].kind < 0)
        answer_line(info, "");
}

static void grant_line(void)
{
    answer_line_own("");
    assert_int_equal(line->conn.ring[line->conn.ring_head].kind, SNIB__REQ_ACQUIRE);
    answer_line("", "$-1\r\n");
}

static void wait_line(const char *reply)
{
    answer_line_own("");
    assert_int_equal(line->conn.ring[line->conn.ring_head].kind, SNIB__REQ_WAIT);
    answer_line("", reply);
}

/* Meanwhile answer renewals, until the line is to be connected again. */
static void await_line(void)
{
    for (int step = 0; !line->connect; step++) {
        assert_true(step < 1000);
        while (on_the_way(engine) > 0) {
            answer_own(engine);
            answer(engine, "*0\r\n");
        }
        snib__time next = snib__engine_deadline(engine);
        now = next > now ? next : now + SNIB__MS;
        snib__engine_tick(engine, now);
    }
    assert_int_equal(snib__engine_take_wish(engine, line), SNIB__WISH_CONNECT);
}

/* An engine that wants `durability` replicas, at a server with this INFO; the first acquisition is
 * sent. */
static struct snib__op *begin_durable(int32_t durability, int32_t policy, const char *info)
{
    engine = begin();
    engine->config.durability = durability;
    engine->config.durability_policy = policy;
    engine->config.durability_timeout = SECOND;
    engine->config.handover_max = 0;
    struct snib__op *op = acquire(engine, gate(engine, SNIB_MUTEX, "first"), 0);
    connect_link(engine);
    line = &engine->home->lanes[SNIB__LANES_MAX - 1];
    assert_int_equal(snib__engine_take_wish(engine, line), SNIB__WISH_CONNECT);
    snib__engine_link_up(engine, line, now);
    answer_line_own(info);
    assert_int_equal(line->conn.state, SNIB__CONN_READY);
    assert_int_equal(under_way(SNIB__REQ_ACQUIRE), 1);
    return op;
}

static void grant_waits_for_replicas(void **state)
{
    (void)state;
    struct snib__op *op = begin_durable(2, SNIB_DURABILITY_REFUSE, TWO);
    grant_line();
    assert_false(op->done);
    wait_line(":2\r\n");
    assert_int_equal(acquired(engine, op)->replicas, 2);
    snib__engine_free(engine);
}

static void too_few_is_refused_and_given_back(void **state)
{
    (void)state;
    struct snib__op *op = begin_durable(2, SNIB_DURABILITY_REFUSE, TWO);
    grant_line();
    const uint32_t before = on_the_way(engine);
    wait_line(":1\r\n");
    assert_true(op->done);
    assert_int_equal(op->code, SNIB_EREPLICAS);
    assert_null(op->hold);
    assert_int_equal(on_the_way(engine), before + 1); /* the release, not behind a WAIT */
    assert_int_equal(oldest_script(engine), SNIB__SCRIPT_MUTEX_RELEASE);
    assert_ptr_equal(snib__engine_take_done(engine), op);
    snib__op_free(engine, op);
    snib__engine_free(engine);
}

static void too_few_is_reported(void **state)
{
    (void)state;
    struct snib__op *op = begin_durable(2, SNIB_DURABILITY_REPORT, TWO);
    grant_line();
    wait_line(":1\r\n");
    assert_int_equal(acquired(engine, op)->replicas, 1);
    snib__engine_free(engine);
}

static void majority_is_of_all_servers(void **state)
{
    (void)state;
    struct snib__op *op = begin_durable(SNIB_DURABILITY_MAJORITY, SNIB_DURABILITY_REFUSE, TWO);
    grant_line();
    wait_line(":1\r\n"); /* two of three, with the master */
    assert_int_equal(acquired(engine, op)->replicas, 1);
    snib__engine_free(engine);
}

static void no_replicas_no_waiting(void **state)
{
    (void)state;
    struct snib__op *op = begin_durable(SNIB_DURABILITY_ALL, SNIB_DURABILITY_REFUSE, REPLICAS(0));
    assert_int_equal(under_way(SNIB__REQ_WAIT), 0);
    grant_line();
    assert_int_equal(acquired(engine, op)->replicas, 0);
    snib__engine_free(engine);
}

/* Two wait for a lock while the replicas are counted.  There are none, and no memory for the first one's request: the other
 * one's, which follows, waits for no answer. */
static void no_memory_for_what_was_collected(void **state)
{
    (void)state;
    static const char none[] = REPLICAS(0);
    char reply[80];
    snprintf(reply, sizeof reply, "$%zu\r\n%s\r\n", strlen(none), none);
    uint32_t refused = 0;
    for (uint32_t n = 1; n <= 4; n++) {
        struct snib__op *op =
            begin_durable(SNIB_DURABILITY_ALL, SNIB_DURABILITY_REFUSE, REPLICAS(0));
        grant_line();
        acquired(engine, op);
        now += 2 * SECOND;
        acquire(engine, gate(engine, SNIB_MUTEX, "next"), 0);
        struct snib__gate *wanted = gate(engine, SNIB_MUTEX, "wanted");
        struct snib__op *first = acquire(engine, wanted, 0), *second = acquire(engine, wanted, 0);
        assert_true(snib__durable_pending(engine->home));
        grant_line();
        assert_int_equal(line->conn.ring[line->conn.ring_head].kind, SNIB__REQ_COUNT);
        snib__buf_free(&line->conn.out);
        ledger_refuse(n);
        answer_line("", reply);
        ledger_refuse(0);
        assert_false(snib__durable_pending(engine->home));
        if (first->done) {
            assert_int_equal(first->code, SNIB_ENOMEM);
            assert_int_equal(under_way(SNIB__REQ_ACQUIRE), 1);
            grant_line();
            assert_true(second->done && second->code == SNIB_OK);
            refused++;
        }
        snib__engine_free(engine);
    }
    assert_true(refused > 0);
}

static void forbidden_wait_is_no_error(void **state)
{
    (void)state;
    struct snib__op *op = begin_durable(1, SNIB_DURABILITY_REFUSE, TWO);
    grant_line();
    wait_line("-NOPERM this user has no permissions to run the 'wait' command\r\n");
    assert_int_equal(acquired(engine, op)->replicas, 0);
    snib__engine_free(engine);
}

/* An error that says nothing about replicas decides nothing: the connection is made anew, and the
 * grant is asked for again. */
static void other_errors_decide_nothing(void **state)
{
    (void)state;
    static const char *const replies[] = {"-MISCONF disk is full\r\n", "+OK\r\n", "*0\r\n"};
    for (size_t i = 0; i < COUNT(replies); i++) {
        struct snib__op *op = begin_durable(2, SNIB_DURABILITY_REPORT, TWO);
        grant_line();
        wait_line(replies[i]);
        assert_false(op->done);
        assert_int_equal(snib__engine_take_wish(engine, line), SNIB__WISH_CLOSE);
        snib__engine_link_down(engine, line, SNIB_OK, 0, now);
        assert_false(op->done);
        snib__engine_free(engine);
    }
}

/* Its pauses grow while each WAIT fails, and begin anew once one has counted. */
static void pauses_grow_until_replicas_are_counted(void **state)
{
    (void)state;
    struct snib__op *op = begin_durable(2, SNIB_DURABILITY_REPORT, TWO);
    for (int round = 0; round < 10; round++) {
        grant_line();
        wait_line(round == 8 ? ":2\r\n" : "-MISCONF disk is full\r\n");
        if (round == 8) {
            acquired(engine, op);
            op = acquire(engine, gate(engine, SNIB_MUTEX, "second"), 0);
            continue;
        }
        const snib__time since = now;
        assert_int_equal(snib__engine_take_wish(engine, line), SNIB__WISH_CLOSE);
        snib__engine_link_down(engine, line, SNIB_OK, 0, now);
        await_line();
        assert_true(round == 7 ? now - since > SECOND / 2
                               : round < 9 || now - since < 50 * SNIB__MS);
        snib__engine_link_up(engine, line, now);
        answer_line_own(TWO);
    }
    snib__engine_free(engine);
}

/* Acquisitions that come while a WAIT is in flight share the next one. */
static void batch_shares_a_wait(void **state)
{
    (void)state;
    struct snib__op *op = begin_durable(1, SNIB_DURABILITY_REFUSE, TWO), *more[3];
    for (int i = 0; i < 3; i++) {
        char name[8];
        snprintf(name, sizeof name, "n%d", i);
        more[i] = acquire(engine, gate(engine, SNIB_MUTEX, name), 0);
    }
    assert_int_equal(under_way(SNIB__REQ_ACQUIRE), 1);
    grant_line();
    wait_line(":2\r\n");
    acquired(engine, op);
    assert_int_equal(under_way(SNIB__REQ_ACQUIRE), 3);
    assert_int_equal(under_way(SNIB__REQ_WAIT), 1);
    for (int i = 0; i < 3; i++)
        grant_line();
    assert_null(snib__engine_take_done(engine));
    wait_line(":1\r\n");
    for (int i = 0; i < 3; i++)
        assert_int_equal(acquired(engine, more[i])->replicas, 1);
    snib__engine_free(engine);
}

/* A hold's lease begins with its request, not when the replicas have it. */
static void lease_includes_the_wait(void **state)
{
    (void)state;
    struct snib__op *op = begin_durable(1, SNIB_DURABILITY_REFUSE, TWO);
    const snib__time asked = now;
    now += SECOND / 4;
    grant_line();
    now += SECOND / 2;
    wait_line(":1\r\n");
    assert_true(acquired(engine, op)->deadline <= asked + engine->config.lease);
    snib__engine_free(engine);
}

/* A lock's own lease may be over before the replicas have answered: then that is the reason, whatever the policy. */
static void lease_ends_before_replicas_have_answered(void **state)
{
    (void)state;
    for (int late = 0; late < 2; late++)
        for (int reached = 0; reached < 2; reached++) {
            struct snib__acquire how = {.wait = SNIB__NEVER, .lease = 2 * SECOND};
            int32_t code;
            struct snib__op *op = begin_durable(1, SNIB_DURABILITY_REPORT, TWO);
            grant_line();
            wait_line(":1\r\n");
            acquired(engine, op);
            op = snib__engine_acquire(engine, gate(engine, SNIB_MUTEX, "m"), &how, now, &code);
            grant_line();
            now += late ? 2 * SECOND : SECOND;
            wait_line(reached ? ":1\r\n" : ":0\r\n");
            assert_true(op->done);
            if (late) {
                assert_int_equal(op->code, SNIB_EREPLICAS);
                assert_string_equal(op->words,
                                    "the replicas took longer than its lease of 2000 ms, so "
                                    "the grant was undone");
                assert_int_equal(oldest_script(engine), SNIB__SCRIPT_MUTEX_RELEASE);
                assert_ptr_equal(snib__engine_take_done(engine), op);
                snib__op_free(engine, op);
            } else {
                assert_int_equal(acquired(engine, op)->replicas, reached);
            }
            snib__engine_free(engine);
        }
}

/* A grant whose WAIT got no reply is in doubt: it is requested again, and counts only behind
 * another WAIT. */
static void lost_link_leaves_doubt(void **state)
{
    (void)state;
    struct snib__op *op = begin_durable(1, SNIB_DURABILITY_REFUSE, TWO);
    grant_line();
    const uint32_t before = on_the_way(engine);
    snib__engine_link_down(engine, line, SNIB_EUNREACHABLE, 0, now);
    assert_false(op->done);
    assert_int_equal(on_the_way(engine),
                     before + 1); /* what the server had not read must not run later */
    answer_own(engine);
    assert_int_equal(conn_of(engine)->ring[conn_of(engine)->ring_head].kind, SNIB__REQ_KILL);
    answer(engine, ":1\r\n");
    for (int step = 0; !line->connect; step++) {
        assert_true(step < 1000);
        snib__time next = snib__engine_deadline(engine);
        now = next > now ? next : now + SNIB__MS;
        snib__engine_tick(engine, now);
    }
    assert_int_equal(snib__engine_take_wish(engine, line), SNIB__WISH_CONNECT);
    snib__engine_link_up(engine, line, now);
    answer_line_own(TWO);
    grant_line();
    assert_false(op->done);
    wait_line(":1\r\n");
    assert_int_equal(acquired(engine, op)->replicas, 1);
    snib__engine_free(engine);
}

/* ---- The link itself ---------------------------------------------------------------------------- */

/* It blocks for as long as the server waits, and is not considered dead before that is over. */
static void wait_may_take_its_time(void **state)
{
    (void)state;
    begin_durable(1, SNIB_DURABILITY_REFUSE, TWO);
    grant_line();
    now += 3900 * SNIB__MS; /* 3 s for a reply, 1 s for the replicas */
    snib__engine_tick(engine, now);
    assert_int_equal(line->conn.state, SNIB__CONN_READY);
    now += 200 * SNIB__MS;
    snib__engine_tick(engine, now);
    assert_int_equal(line->conn.state, SNIB__CONN_DOWN);
    snib__engine_free(engine);
}

/* The first connection is up, and this one cannot be made: patience is the usual one, however many
 * requests come later, and so is theirs. */
static void line_that_cannot_be_made(void **state)
{
    (void)state;
    struct snib__op *op = begin_durable(1, SNIB_DURABILITY_REFUSE, TWO);
    grant_line();
    wait_line(":1\r\n");
    acquired(engine, op);
    snib__engine_link_down(engine, line, SNIB_EUNREACHABLE, 104, now);
    op = acquire(engine, gate(engine, SNIB_MUTEX, "next"), 0);
    const snib__time since = now;
    for (int attempts = 0; !op->done; attempts++) {
        assert_true(attempts < 20); /* with growing pauses */
        await_line();
        acquire(engine, gate(engine, SNIB_MUTEX, attempts % 2 ? "odd" : "even"), 0);
        snib__engine_link_down(engine, line, SNIB_EUNREACHABLE, 111, now);
    }
    assert_int_equal(op->code, SNIB_ECONNECT);
    assert_int_equal(op->os_error, 111);
    assert_in_range(now - since, 5 * SECOND, 8 * SECOND);
    op = acquire(engine, gate(engine, SNIB_MUTEX, "last"), 0);
    await_line();
    snib__engine_link_down(engine, line, SNIB_EUNREACHABLE, 111, now);
    assert_false(op->done);
    snib__engine_free(engine);
}

/* The same for a request that was collected while the line was up: patience begins with its loss,
 * although nothing else was sent or granted that is in doubt. */
static void line_that_is_lost_under_what_is_collected(void **state)
{
    (void)state;
    static const struct snib__acquire one_try = {.wait = 0};
    int32_t code;
    struct snib__op *op = begin_durable(1, SNIB_DURABILITY_REFUSE, TWO);
    grant_line();
    wait_line(":1\r\n");
    acquired(engine, op);
    op = snib__engine_acquire(engine, gate(engine, SNIB_MUTEX, "busy"), &one_try, now, &code);
    answer_line("", ":86400000\r\n"); /* another client holds it */
    assert_int_equal(op->code, SNIB_BUSY);
    assert_int_equal(under_way(SNIB__REQ_WAIT), 1);
    op = acquire(engine, gate(engine, SNIB_MUTEX, "next"), 0);
    assert_ptr_equal(snib__op_link(op), line);
    now += SECOND / 2;
    snib__engine_link_down(engine, line, SNIB_EUNREACHABLE, 104, now);
    const snib__time since = now;
    for (int attempts = 0; !op->done; attempts++) {
        assert_true(attempts < 20);
        await_line();
        snib__engine_link_down(engine, line, SNIB_EUNREACHABLE, 111, now);
    }
    assert_int_equal(op->code, SNIB_ECONNECT);
    assert_in_range(now - since, 5 * SECOND, 8 * SECOND);
    snib__engine_free(engine);
}

/* WAIT was forbidden; on the next connection it may be allowed. */
static void rights_may_come(void **state)
{
    (void)state;
    struct snib__op *op = begin_durable(1, SNIB_DURABILITY_REFUSE, TWO);
    grant_line();
    wait_line("-NOPERM this user has no permissions to run the 'wait' command\r\n");
    acquired(engine, op);
    snib__engine_link_down(engine, line, SNIB_EUNREACHABLE, 104, now);
    op = acquire(engine, gate(engine, SNIB_MUTEX, "next"), 0);
    await_line();
    snib__engine_link_up(engine, line, now);
    answer_line_own(TWO);
    grant_line();
    assert_false(op->done);
    wait_line(":2\r\n");
    assert_int_equal(acquired(engine, op)->replicas, 2);
    snib__engine_free(engine);
}

/* It reaches another server than the first link: the address leads there now, so the first follows,
 * unless it has just been connected itself. */
static void line_leads_elsewhere(void **state)
{
    (void)state;
    for (int later = 0; later < 2; later++) {
        struct snib__op *op = begin_durable(1, SNIB_DURABILITY_REFUSE, TWO);
        grant_line();
        wait_line(":2\r\n");
        acquired(engine, op);
        snib__engine_link_down(engine, line, SNIB_EUNREACHABLE, 104, now);
        acquire(engine, gate(engine, SNIB_MUTEX, "next"), 0);
        await_line();
        engine->home->ready_since = now - (later ? 2 * SECOND : 0);
        line_id = "xyz";
        snib__engine_link_up(engine, line, now);
        answer_line_own(TWO);
        line_id = "abc";
        assert_int_equal(line->conn.state, SNIB__CONN_DOWN);
        assert_int_equal(ready(engine), !later);
        snib__engine_free(engine);
    }
}

/* A request without an owner must not be repeated when the reply to WAIT is lost: it is granted,
 * and the number of replicas is unknown. */
static void lost_count_of_what_has_no_owner(void **state)
{
    (void)state;
    for (int policy = 0; policy < 2; policy++) {
        struct snib__op *op =
            begin_durable(1, policy ? SNIB_DURABILITY_REFUSE : SNIB_DURABILITY_REPORT, TWO);
        grant_line();
        wait_line(":2\r\n");
        acquired(engine, op);
        op = acquire(engine, gate(engine, SNIB_SEMAPHORE, "s"), 0);
        grant_line();
        assert_false(op->done);
        const uint32_t before = on_the_way(engine);
        snib__engine_link_down(engine, line, SNIB_EUNREACHABLE, 104, now);
        assert_true(op->done);
        assert_int_equal(on_the_way(engine),
                         before + 1 + (uint32_t)policy); /* KILL, and the release */
        if (policy) {
            assert_int_equal(op->code, SNIB_EREPLICAS);
            answer_own(engine);
            answer(engine, ":1\r\n");
            assert_int_equal(oldest_script(engine), SNIB__SCRIPT_SEMAPHORE_RELEASE);
        } else {
            assert_int_equal(acquired(engine, op)->replicas, 0);
        }
        snib__engine_free(engine);
    }
}

/* There were replicas, and now there are none: too few have the grant. */
static void replicas_that_have_gone(void **state)
{
    (void)state;
    static const char none[] = REPLICAS(0);
    char reply[80];
    snprintf(reply, sizeof reply, "$%zu\r\n%s\r\n", strlen(none), none);
    struct snib__op *op = begin_durable(1, SNIB_DURABILITY_REFUSE, TWO);
    grant_line();
    wait_line(":2\r\n");
    acquired(engine, op);
    now += 2 * SECOND;
    op = acquire(engine, gate(engine, SNIB_MUTEX, "next"), 0);
    grant_line();
    assert_int_equal(line->conn.ring[line->conn.ring_head].kind, SNIB__REQ_COUNT);
    answer_line("", reply);
    assert_false(op->done);
    wait_line(":0\r\n");
    assert_true(op->done);
    assert_int_equal(op->code, SNIB_EREPLICAS);
    snib__engine_free(engine);
}

/* What was collected in an outage is cancelled: a waiter that asks again in a later one has all its patience. */
static void patience_is_not_of_what_was_cancelled(void **state)
{
    (void)state;
    struct snib__op *op = begin_durable(1, SNIB_DURABILITY_REFUSE, TWO);
    answer_line("", ":8000\r\n"); /* another client holds it */
    connect_pubsub(engine);
    say_on_channel(engine, gate(engine, SNIB_MUTEX, "first"), NULL);
    while (line->conn.ring_count > 0)
        answer_line("", under_way(SNIB__REQ_ACQUIRE) ? ":8000\r\n" : ":2\r\n");
    snib__engine_link_down(engine, line, SNIB_EUNREACHABLE, 104, now);
    struct snib__op *other = acquire(engine, gate(engine, SNIB_MUTEX, "other"), 0);
    assert_true(snib__engine_cancel(engine, other, now));
    const snib__time cancelled = now;
    await_line();
    if (now < cancelled + 2 * SECOND) { /* still for the other one */
        snib__engine_link_down(engine, line, SNIB_EUNREACHABLE, 111, now);
        await_line();
    }
    const snib__time asked = now;
    assert_true(asked >= cancelled + 2 * SECOND);
    for (snib__engine_link_down(engine, line, SNIB_EUNREACHABLE, 111, now); !op->done;) {
        await_line();
        snib__engine_link_down(engine, line, SNIB_EUNREACHABLE, 111, now);
    }
    assert_in_range(now - asked, 5 * SECOND, 8 * SECOND);
    snib__engine_free(engine);
}

/* A waiter whose first try had no answer, and may have been carried out by a server from before, is not told that nothing was
 * applied, although its later ones were refused or not sent. */
static void earlier_try_stays_in_doubt(void **state)
{
    (void)state;
    for (int lost = 0; lost < 2; lost++) {
        struct snib__op *op = begin_durable(1, SNIB_DURABILITY_REFUSE, TWO);
        if (lost) {
            snib__engine_link_down(engine, line, SNIB_EUNREACHABLE, 104, now);
            await_line();
            snib__engine_link_up(engine, line, now);
            answer_line_own(TWO);
        }
        answer_line("", ":8000\r\n"); /* another client holds it */
        connect_pubsub(engine);
        say_on_channel(engine, op->gate, NULL);
        while (line->conn.ring_count > 0)
            answer_line("", under_way(SNIB__REQ_ACQUIRE) ? ":8000\r\n" : ":2\r\n");
        for (snib__engine_link_down(engine, line, SNIB_EUNREACHABLE, 111, now); !op->done;) {
            await_line();
            snib__engine_link_down(engine, line, SNIB_EUNREACHABLE, 111, now);
        }
        assert_int_equal(op->code, lost ? SNIB_EUNREACHABLE : SNIB_ECONNECT);
        snib__engine_free(engine);
    }
}

/* Once the line is up again, patience with the next outage starts over, also that of an operation
 * which has been there since the first. */
static void patience_with_the_line_begins_anew(void **state)
{
    (void)state;
    struct snib__op *op = begin_durable(1, SNIB_DURABILITY_REFUSE, TWO);
    for (int outage = 0; outage < 3; outage++) {
        snib__engine_link_down(engine, line, SNIB_EUNREACHABLE, 104, now);
        await_line();
        snib__engine_link_down(engine, line, SNIB_EUNREACHABLE, 111, now);
        assert_false(op->done);
        await_line();
        snib__engine_link_up(engine, line, now);
        answer_line_own(TWO);
        grant_line();
        for (snib__time until = now + 3 * SECOND; now < until;) {
            while (on_the_way(engine) > 0) {
                answer_own(engine);
                answer(engine, "*0\r\n");
            }
            now += SECOND;
            snib__engine_tick(engine, now);
        }
        assert_int_equal(line->conn.state, SNIB__CONN_READY);
    }
    wait_line(":1\r\n");
    acquired(engine, op);
    snib__engine_free(engine);
}

/* A server that does not say how many replicas it has: none is waited for, and that is logged once
 * (the ledger has the record). */
static void uncounted_replicas(void **state)
{
    (void)state;
    struct snib__op *op = begin_durable(SNIB_DURABILITY_ALL, SNIB_DURABILITY_REFUSE, "");
    grant_line();
    acquired(engine, op);
    acquire(engine, gate(engine, SNIB_MUTEX, "second"), 0);
    grant_line();
    snib__engine_free(engine);
}

/* A waiter for a fair lock has a place, and a release has granted it the lock, while a WAIT has no reply. */
static struct snib__op *granted_past_a_wait(void)
{
    static const char queued[] = "*3\r\n:20000\r\n:0\r\n:1000\r\n";
    char text[64];
    struct snib__op *first = begin_durable(1, SNIB_DURABILITY_REFUSE, TWO);
    struct snib__gate *fair = gate(engine, SNIB_FAIR, "f");
    engine->config.durability_timeout = 10 * SECOND;
    grant_line();
    wait_line(":2\r\n");
    acquired(engine, first);
    struct snib__op *op = acquire(engine, fair, 0);
    answer_line_own("");
    answer_line("", queued);
    connect_pubsub(engine);
    say_on_channel(engine, fair, NULL);
    for (int beat = 0; beat < 5; beat++) {
        assert_int_equal(oldest_script(engine), SNIB__SCRIPT_FAIR_ACQUIRE);
        answer(engine, queued);
        now += SECOND;
        snib__engine_tick(engine, now);
    }
    answer(engine, queued);
    snprintf(text, sizeof text, "%llu:0:3000:1000", (unsigned long long)op->hold->number);
    say_on_channel(engine, fair, text);
    assert_int_equal(oldest_script(engine), SNIB__SCRIPT_FAIR_ACQUIRE);
    answer(engine, "$1\r\n0\r\n");
    assert_false(op->done);
    return op;
}

/* A WAIT may last for longer than a place without a beat: beats go past it, and so does the request for the whole lease of
 * what a release has granted.  What they are granted is asked for once more where replicas count. */
static void place_outlives_a_wait(void **state)
{
    (void)state;
    struct snib__op *op = granted_past_a_wait();
    wait_line(":2\r\n");
    answer_line_own("");
    answer_line("", "$1\r\n0\r\n");
    assert_int_equal(under_way(SNIB__REQ_COUNT), 1); /* it is some time since that was asked */
    answer_line("", "$20\r\nconnected_slaves:2\r\n\r\n");
    assert_false(op->done);
    wait_line(":2\r\n");
    assert_int_equal(acquired(engine, op)->replicas, 2);
    snib__engine_free(engine);
}

/* If that connection cannot be made again, it is not said that nothing was done. */
static void granted_but_not_to_replicas(void **state)
{
    (void)state;
    struct snib__op *op = granted_past_a_wait();
    engine->config.patience = SECOND; /* the link for messages is not answered */
    snib__engine_link_down(engine, line, SNIB_EUNREACHABLE, 104, now);
    for (int attempts = 0; !op->done; attempts++) {
        assert_true(attempts < 20);
        await_line();
        snib__engine_link_down(engine, line, SNIB_EUNREACHABLE, 111, now);
    }
    assert_int_equal(op->code, SNIB_EUNREACHABLE);
    assert_int_equal(oldest_script(engine), SNIB__SCRIPT_FAIR_RELEASE);
    snib__engine_free(engine);
}

/* What the server has granted already goes back at once when its caller leaves, whatever the WAIT is doing. */
static void left_behind_a_wait(void **state)
{
    (void)state;
    for (int asked = 0; asked < 2; asked++) {
        struct snib__op *op = granted_past_a_wait();
        const struct snib__gate *fair = op->gate;
        if (asked) { /* once more, and it waits for replicas itself */
            wait_line(":2\r\n");
            answer_line_own("");
            answer_line("", "$1\r\n0\r\n");
            answer_line("", "$20\r\nconnected_slaves:2\r\n\r\n");
        }
        assert_true(snib__engine_cancel(engine, op, now));
        assert_int_equal(oldest_script(engine), SNIB__SCRIPT_FAIR_RELEASE);
        answer(engine, "*5\r\n:1\r\n:0\r\n:3000\r\n$1\r\n0\r\n:1000\r\n");
        wait_line(":2\r\n");
        assert_int_equal(on_the_way(engine), 0);
        assert_null(fair->peers);
        assert_int_equal(fair->trying, 0);
        snib__engine_free(engine);
    }
}

/* So does one that waits for replicas only, also when the client is closed, which may not last as long. */
static void left_before_replicas_have_it(void **state)
{
    (void)state;
    for (int way = 0; way < 3; way++) {
        struct snib__op *op = begin_durable(2, SNIB_DURABILITY_REFUSE, TWO);
        if (way == 2)
            op->deadline = now + SECOND / 2;
        snib__op_arm(engine, op);
        grant_line();
        const uint32_t before = on_the_way(engine);
        if (way == 0)
            assert_true(snib__engine_cancel(engine, op, now));
        else if (way == 1)
            snib__engine_close(engine, now);
        for (int i = 0; way == 2 && !op->done && i < 100; i++)
            snib__engine_tick(engine, now += 20 * SNIB__MS);
        assert_true(op->done);
        assert_int_equal(on_the_way(engine), before + 1);
        assert_int_equal(oldest_script(engine), SNIB__SCRIPT_MUTEX_RELEASE);
        answer(engine, ":1\r\n");
        assert_true(snib__engine_quiet(engine));
        wait_line(":2\r\n");
        assert_int_equal(on_the_way(engine), 0);
        snib__engine_free(engine);
    }
}

/* And so does one that may have been granted, and waits for that connection to be asked for again. */
static void left_without_the_line(void **state)
{
    (void)state;
    for (int closed = 0; closed < 2; closed++) {
        struct snib__op *op = begin_durable(2, SNIB_DURABILITY_REFUSE, TWO);
        grant_line();
        snib__engine_link_down(engine, line, SNIB_EUNREACHABLE, 111, now);
        const uint32_t before = on_the_way(engine);
        if (closed)
            snib__engine_close(engine, now);
        else
            assert_true(snib__engine_cancel(engine, op, now));
        assert_true(op->done);
        assert_int_equal(on_the_way(engine), before + 1);
        while (oldest_script(engine) != SNIB__SCRIPT_MUTEX_RELEASE)
            answer(engine, "+OK\r\n");
        answer(engine, ":1\r\n");
        assert_true(snib__engine_quiet(engine));
        snib__engine_free(engine);
    }
}

/* When the first connection was lost, nothing was held or asked for any more.  What the line's answer sends back to wait for a
 * master, an acquisition that its caller has left, must not wait for the client's next operation. */
static void refused_after_the_first_was_lost(void **state)
{
    (void)state;
    struct snib__op *op = begin_durable(2, SNIB_DURABILITY_REFUSE, TWO);
    assert_true(snib__engine_cancel(engine, op, now));
    snib__engine_take_done(engine);
    snib__op_free(engine, op);
    answer_own(engine);
    cut_link(engine);
    assert_false(engine->home->links[SNIB__COMMAND].wanted);
    answer_line_own("");
    answer_line("", "-READONLY You can't write against a read only replica.\r\n");
    await_connect(engine);
    connect_link(engine);
    answer_own(engine);
    answer(engine, ":1\r\n"); /* the former line is ended */
    answer_own(engine);
    assert_int_equal(on_the_way(engine), 1);
    assert_int_equal(conn_of(engine)->ring[conn_of(engine)->ring_head].kind, SNIB__REQ_RELEASE);
    snib__engine_free(engine);
}

/* There is room for an acquisition, and no memory for the WAIT behind it.  The line ends for that, but not before the next
 * tick: what has led to the acquisition may be in the middle of a reply, or of further requests. */
static void no_memory_for_the_wait(void **state)
{
    (void)state;
    static const char wait[] = "*3\r\n$4\r\nWAIT\r\n$1\r\n2\r\n$4\r\n1000\r\n";
    struct snib__op *op = begin_durable(2, SNIB_DURABILITY_REFUSE, TWO);
    struct snib__gate *second = gate(engine, SNIB_MUTEX, "third");
    struct snib__buf *out = &line->conn.out;
    grant_line();
    wait_line(":2\r\n");
    assert_int_equal(acquired(engine, op)->replicas, 2);
    const size_t before = out->len;
    op = acquire(engine, gate(engine, SNIB_MUTEX, "other"), 0);
    const size_t both = out->len - before;
    grant_line();
    wait_line(":2\r\n");
    assert_int_equal(acquired(engine, op)->replicas, 2);
    assert_non_null(snib__buf_reserve(out, both));
    out->cap = out->len + both - strlen(wait) + 22; /* see snib__resp_arg() and _begin() */
    ledger_refuse(1);
    op = acquire(engine, second, 0);
    ledger_refuse(0);
    assert_int_equal(line->conn.state, SNIB__CONN_READY);
    assert_int_equal(under_way(SNIB__REQ_ACQUIRE), 1);
    assert_int_equal(under_way(SNIB__REQ_WAIT), 0);
    grant_line();
    assert_false(op->done);
    snib__engine_tick(engine, now);
    assert_int_equal(line->conn.state, SNIB__CONN_DOWN);
    assert_int_equal(snib__engine_take_wish(engine, line), SNIB__WISH_CLOSE);
    await_line();
    snib__engine_link_up(engine, line, now);
    answer_line_own(TWO);
    grant_line();
    wait_line(":2\r\n");
    assert_int_equal(acquired(engine, op)->replicas, 2);
    snib__engine_free(engine);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_memory_for_the_wait),
        cmocka_unit_test(grant_waits_for_replicas),
        cmocka_unit_test(too_few_is_refused_and_given_back),
        cmocka_unit_test(too_few_is_reported),
        cmocka_unit_test(majority_is_of_all_servers),
        cmocka_unit_test(no_replicas_no_waiting),
        cmocka_unit_test(no_memory_for_what_was_collected),
        cmocka_unit_test(forbidden_wait_is_no_error),
        cmocka_unit_test(other_errors_decide_nothing),
        cmocka_unit_test(pauses_grow_until_replicas_are_counted),
        cmocka_unit_test(batch_shares_a_wait),
        cmocka_unit_test(lease_includes_the_wait),
        cmocka_unit_test(lease_ends_before_replicas_have_answered),
        cmocka_unit_test(lost_link_leaves_doubt),
        cmocka_unit_test(wait_may_take_its_time),
        cmocka_unit_test(line_that_cannot_be_made),
        cmocka_unit_test(line_that_is_lost_under_what_is_collected),
        cmocka_unit_test(patience_is_not_of_what_was_cancelled),
        cmocka_unit_test(rights_may_come),
        cmocka_unit_test(line_leads_elsewhere),
        cmocka_unit_test(lost_count_of_what_has_no_owner),
        cmocka_unit_test(replicas_that_have_gone),
        cmocka_unit_test(patience_with_the_line_begins_anew),
        cmocka_unit_test(earlier_try_stays_in_doubt),
        cmocka_unit_test(uncounted_replicas),
        cmocka_unit_test(place_outlives_a_wait),
        cmocka_unit_test(granted_but_not_to_replicas),
        cmocka_unit_test(left_behind_a_wait),
        cmocka_unit_test(left_before_replicas_have_it),
        cmocka_unit_test(left_without_the_line),
        cmocka_unit_test(refused_after_the_first_was_lost),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
