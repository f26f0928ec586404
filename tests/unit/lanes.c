/* lanes.c - further command links: when they are opened, what they carry, and what their loss
 * does. */
#include "fed.h"

#include "engine/route.h"

enum { MEETINGS = 64 };

static struct snib__engine *begin_lanes(void)
{
    struct snib__engine *engine = begin();
    engine->config.lanes = 4;
    return engine;
}

static struct snib__link *lane(struct snib__engine *engine, uint32_t i)
{
    return snib__node_lane(engine->home, i);
}

/* Answer the oldest request of a link; run_id: of the present server. */
static void answer_on(struct snib__engine *engine, struct snib__link *link, const char *run_id,
                      const char *reply)
{
    const struct snib__conn *conn = &link->conn;
    char text[160];
    assert_true(conn->ring_count > 0);
    const struct snib__request *request = &conn->ring[conn->ring_head];
    if (request->kind == CONN_LOAD)
        snprintf(text, sizeof text, "$40\r\n%s\r\n", snib__script_texts[request->script].sha1);
    else if (request->kind == CONN_INFO)
        snprintf(text, sizeof text, "$%zu\r\nrun_id:%s\r\n%s\r\n", 12 + strlen(server_says), run_id,
                 server_says);
    else
        snprintf(text, sizeof text, "%s",
                 request->kind == CONN_ID ? ":18\r\n"
                 : request->kind < 0      ? "+OK\r\n"
                                          : reply);
    snib__engine_input(engine, link, text, strlen(text), now);
}

static void answer_own_on(struct snib__engine *engine, struct snib__link *link, const char *run_id)
{
    const struct snib__conn *conn = &link->conn;
    while (conn->state != SNIB__CONN_DOWN && conn->ring_count > 0 &&
           conn->ring[conn->ring_head].kind < 0)
        answer_on(engine, link, run_id, "");
}

static struct snib__op *call(struct snib__engine *engine, const char *name)
{
    snib__engine_call(engine, true);
    struct snib__op *op = acquire(engine, gate(engine, SNIB_MUTEX, name), 0);
    snib__engine_call(engine, false);
    return op;
}

static struct snib__op *call_back(struct snib__engine *engine, struct snib__hold *hold)
{
    int32_t code;
    snib__engine_call(engine, true);
    struct snib__op *op = snib__engine_release(engine, hold, now, &code);
    snib__engine_call(engine, false);
    assert_non_null(op);
    return op;
}

/* Expects that this operation, and no other, has ended. */
static void done(struct snib__engine *engine, struct snib__op *op, int32_t code)
{
    assert_ptr_equal(snib__engine_take_done(engine), op);
    assert_int_equal(op->code, code);
    snib__op_free(engine, op);
}

static void pair(struct snib__engine *engine, const char *name)
{
    struct snib__op *op = call(engine, name);
    struct snib__link *link = snib__op_link(op);
    answer_own_on(engine, link, "abc");
    answer_on(engine, link, "abc", "$-1\r\n");
    op = call_back(engine, acquired(engine, op));
    link = snib__op_link(op);
    answer_own_on(engine, link, "abc");
    answer_on(engine, link, "abc", ":1\r\n");
    done(engine, op, SNIB_OK);
}

static uint32_t links_of(const struct snib__engine *engine)
{
    uint32_t n = 0;
    for (struct snib__link *link = snib__engine_links(engine); link; link = snib__link_next(link))
        n++;
    return n;
}

static void connect_lane(struct snib__engine *engine, uint32_t i, const char *run_id)
{
    assert_int_equal(snib__engine_take_wish(engine, lane(engine, i)), SNIB__WISH_CONNECT);
    snib__engine_link_up(engine, lane(engine, i), now);
    answer_own_on(engine, lane(engine, i), run_id);
}

/* Threads call while another thread's request is in flight on the first link, until lane i is
 * wanted. */
static void meet(struct snib__engine *engine, uint32_t i)
{
    struct snib__op *under_way = call(engine, "m");
    for (int n = 0; !lane(engine, i)->connect; n++) {
        char name[16];
        assert_true(n < MEETINGS);
        snprintf(name, sizeof name, "m%d", n);
        struct snib__op *op = call(engine, name);
        assert_ptr_equal(snib__op_link(op), lane(engine, 0));
        answer_own(engine);
        answer(engine, "$-1\r\n");
        acquired(engine, under_way);
        under_way = op;
    }
    answer_own(engine);
    answer(engine, "$-1\r\n");
    acquired(engine, under_way);
}

/* An engine with a released lock, and lane 1. */
static struct snib__engine *begin_with_lane(void)
{
    struct snib__engine *engine = begin_lanes();
    struct snib__acquire how = {.wait = SNIB__NEVER};
    granted(engine, gate(engine, SNIB_MUTEX, "first"), &how);
    meet(engine, 1);
    connect_lane(engine, 1, "abc");
    assert_int_equal(lane(engine, 1)->conn.state, SNIB__CONN_READY);
    return engine;
}

/* Give back what meet() has left, so that nothing is held. */
static void give_all_back(struct snib__engine *engine)
{
    struct snib__renewals *list = &engine->home->renewals[SNIB_MUTEX];
    while (list->head)
        snib__hold_drop(engine, list->head, now);
    for (uint32_t i = 0; i < 2; i++)
        while (lane(engine, i)->conn.ring_count > 0)
            answer_on(engine, lane(engine, i), "abc", ":1\r\n");
    assert_int_equal(engine->stats.held, 0);
}

/* ---- When there is one -------------------------------------------------------------------------- */

static void one_thread_needs_none(void **state)
{
    (void)state;
    struct snib__engine *engine = begin_lanes();
    struct snib__acquire how = {.wait = SNIB__NEVER};
    granted(engine, gate(engine, SNIB_MUTEX, "first"), &how);
    for (int i = 0; i < 10 * MEETINGS; i++)
        pair(engine, "x");
    assert_int_equal(links_of(engine), 2);
    snib__engine_free(engine);
}

/* Operations that a loop submits, or that no thread waits for, open no lanes. */
static void loop_needs_none(void **state)
{
    (void)state;
    struct snib__engine *engine = begin_lanes();
    struct snib__acquire how = {.wait = SNIB__NEVER};
    granted(engine, gate(engine, SNIB_MUTEX, "first"), &how);
    for (int i = 0; i < 10 * MEETINGS; i++) {
        char name[16];
        snprintf(name, sizeof name, "a%d", i);
        acquire(engine, gate(engine, SNIB_MUTEX, name), 0);
    }
    assert_int_equal(links_of(engine), 2);
    assert_int_equal(on_the_way(engine), 10 * MEETINGS);
    snib__engine_free(engine);
}

static void seldom_is_not_enough(void **state)
{
    (void)state;
    struct snib__engine *engine = begin_lanes();
    struct snib__acquire how = {.wait = SNIB__NEVER};
    granted(engine, gate(engine, SNIB_MUTEX, "first"), &how);
    for (int i = 0; i < 4 * MEETINGS; i++) {
        struct snib__op *one = call(engine, "one"), *two = call(engine, "two");
        answer_own(engine);
        answer(engine, "$-1\r\n");
        struct snib__hold *first = acquired(engine, one);
        answer(engine, "$-1\r\n");
        struct snib__hold *second = acquired(engine, two);
        one = call_back(engine, first);
        answer_own(engine);
        answer(engine, ":1\r\n");
        done(engine, one, SNIB_OK);
        two = call_back(engine, second);
        answer_own(engine);
        answer(engine, ":1\r\n");
        done(engine, two, SNIB_OK);
        now += 10 * SNIB__MS;
    }
    assert_int_equal(links_of(engine), 2);
    snib__engine_free(engine);
}

static void lane_is_given_up_when_idle(void **state)
{
    (void)state;
    struct snib__engine *engine = begin_with_lane();
    snib__time until = now + 29 * SECOND;
    while (now < until) {
        now += SECOND;
        while (on_the_way(engine) > 0) { /* renewals */
            answer_own(engine);
            answer(engine, "*0\r\n");
        }
        snib__engine_tick(engine, now);
    }
    assert_int_equal(lane(engine, 1)->conn.state, SNIB__CONN_READY);
    now += 2 * SECOND;
    snib__engine_tick(engine, now);
    assert_int_equal(lane(engine, 1)->conn.state, SNIB__CONN_DOWN);
    assert_int_equal(snib__engine_take_wish(engine, lane(engine, 1)), SNIB__WISH_CLOSE);
    assert_int_equal(snib__engine_take_wish(engine, lane(engine, 1)), SNIB__WISH_NOTHING);
    snib__engine_free(engine);
}

/* Whether the engine has logged it. */
static bool was_logged(struct snib__engine *engine, int32_t at, const char *begin)
{
    int32_t level;
    for (const char *text; (text = snib__engine_take_log(engine, &level));)
        if (strncmp(text, begin, strlen(begin)) == 0)
            return level == at;
    return false;
}

/* The address leads to several servers: one does not know what another has granted. */
static void lane_to_another_server_is_refused(void **state)
{
    (void)state;
    struct snib__engine *engine = begin_lanes();
    struct snib__acquire how = {.wait = SNIB__NEVER};
    granted(engine, gate(engine, SNIB_MUTEX, "first"), &how);
    meet(engine, 1);
    snib__engine_log_level(engine, SNIB_LOG_INFO);
    connect_lane(engine, 1, "xyz");
    assert_true(was_logged(engine, SNIB_LOG_INFO, "a further connection to "));
    assert_int_equal(lane(engine, 1)->conn.state, SNIB__CONN_DOWN);
    assert_int_equal(snib__engine_take_wish(engine, lane(engine, 1)), SNIB__WISH_CLOSE);
    now += 60 * SECOND;
    for (int i = 0; i < 4 * MEETINGS; i++) {
        char name[16];
        snprintf(name, sizeof name, "n%d", i);
        call(engine, name);
        answer_own(engine);
        if (on_the_way(engine) > 2)
            answer(engine, "$-1\r\n");
    }
    assert_false(lane(engine, 1)->connect);
    snib__engine_free(engine);
}

/* ---- What goes by it ---------------------------------------------------------------------------- */

static void idle_lane_is_taken(void **state)
{
    (void)state;
    struct snib__engine *engine = begin_with_lane();
    struct snib__op *one = call(engine, "one"), *two = call(engine, "two");
    struct snib__op *three = acquire(engine, gate(engine, SNIB_MUTEX, "three"), 0);
    assert_ptr_equal(snib__op_link(one), lane(engine, 0));
    assert_ptr_equal(snib__op_link(two), lane(engine, 1));
    assert_ptr_equal(snib__op_link(three), lane(engine, 0));
    answer_own_on(engine, lane(engine, 1), "abc");
    answer_on(engine, lane(engine, 1), "abc", "$-1\r\n");
    struct snib__hold *hold = acquired(engine, two);
    two = call_back(engine, hold);
    assert_ptr_equal(snib__op_link(two), lane(engine, 1));
    snib__engine_free(engine);
}

static void order_of_a_name_is_kept(void **state)
{
    (void)state;
    struct snib__engine *engine = begin_with_lane();
    struct snib__gate *permits = gate(engine, SNIB_SEMAPHORE, "s");
    struct snib__op *one = call(engine, "one");
    snib__engine_call(engine, true);
    struct snib__op *first = acquire(engine, permits, 0);
    snib__engine_call(engine, false);
    assert_ptr_equal(snib__op_link(first), lane(engine, 1));
    struct snib__op *next = acquire(engine, permits, 0);
    assert_ptr_equal(snib__op_link(next), lane(engine, 1));
    snib__engine_call(engine, true);
    next = acquire(engine, permits, 0);
    snib__engine_call(engine, false);
    assert_ptr_equal(snib__op_link(next), lane(engine, 1));
    answer_own_on(engine, lane(engine, 1), "abc");
    answer_on(engine, lane(engine, 1), "abc", "$-1\r\n");
    answer_own_on(engine, lane(engine, 1), "abc");
    answer_on(engine, lane(engine, 1), "abc", "$-1\r\n");
    answer_on(engine, lane(engine, 1), "abc", "$-1\r\n");
    assert_int_equal(permits->unanswered, 0);
    next = acquire(engine, permits, 0);
    assert_ptr_equal(snib__op_link(next), lane(engine, 0));
    assert_ptr_equal(snib__op_link(one), lane(engine, 0));
    snib__engine_free(engine);
}

/* Renewals are on the first lane, and one that corrects a lease may shorten it. */
static void extension_follows_renewals(void **state)
{
    (void)state;
    int32_t code;
    struct snib__engine *engine = begin_with_lane();
    struct snib__acquire how = {.wait = SNIB__NEVER};
    struct snib__hold *hold = granted(engine, gate(engine, SNIB_MUTEX, "extended"), &how);
    struct snib__op *one = call(engine, "one");
    assert_ptr_equal(snib__op_link(one), lane(engine, 0));
    snib__engine_call(engine, true);
    struct snib__op *op = snib__engine_extend(engine, hold, 90 * SECOND, now, &code);
    snib__engine_call(engine, false);
    assert_non_null(op);
    assert_ptr_equal(snib__op_link(op), lane(engine, 0));
    struct snib__op *two = call_back(engine, hold); /* it need not wait for that */
    assert_ptr_equal(snib__op_link(two), lane(engine, 1));
    answer_own_on(engine, lane(engine, 1), "abc");
    answer_on(engine, lane(engine, 1), "abc", ":1\r\n");
    done(engine, two, SNIB_OK);
    answer_own_on(engine, lane(engine, 0), "abc");
    answer_on(engine, lane(engine, 0), "abc", "$-1\r\n");
    acquired(engine, one);
    answer_own_on(engine, lane(engine, 0), "abc");
    answer_on(engine, lane(engine, 0), "abc", "*2\r\n:1\r\n:0\r\n");
    done(engine, op, SNIB_NOT_HELD);
    snib__engine_free(engine);
}

/* ---- Its loss ----------------------------------------------------------------------------------- */

static void lost_lane_is_killed_before_anything_is_repeated(void **state)
{
    (void)state;
    struct snib__engine *engine = begin_with_lane();
    struct snib__op *one = call(engine, "one"), *two = call(engine, "two");
    assert_ptr_equal(snib__op_link(two), lane(engine, 1));
    answer_own_on(engine, lane(engine, 1), "abc");
    snib__buf_consume(&conn_of(engine)->out, snib__buf_size(&conn_of(engine)->out));
    snib__engine_log_level(engine, SNIB_LOG_INFO);
    snib__engine_link_down(engine, lane(engine, 1), SNIB_EUNREACHABLE, 0, now);
    assert_true(was_logged(engine, SNIB_LOG_INFO, "lost one of the connections to "));
    const struct snib__buf *out = &conn_of(engine)->out;
    static const char kill[] = "*4\r\n$6\r\nCLIENT\r\n$4\r\nKILL\r\n$2\r\nID\r\n$2\r\n18\r\n";
    assert_memory_equal(out->data + out->head, kill, sizeof kill - 1);
    assert_non_null(memmem(out->data + out->head, snib__buf_size(out), "EVALSHA", 7));
    assert_ptr_equal(snib__op_link(two), lane(engine, 0));
    assert_true(ready(engine)); /* the others are not affected */
    assert_false(one->done);
    answer_own(engine);
    answer(engine, "$-1\r\n");
    acquired(engine, one);
    answer(engine, ":1\r\n"); /* the kill */
    answer_own(engine);
    answer(engine, "$-1\r\n");
    acquired(engine, two);
    snib__engine_free(engine);
}

/* The first link is lost before it has answered the kill: the next connection sends it again. */
static void kill_is_repeated(void **state)
{
    (void)state;
    struct snib__engine *engine = begin_with_lane();
    call(engine, "one");
    struct snib__op *two = call(engine, "two");
    answer_own_on(engine, lane(engine, 1), "abc");
    snib__engine_link_down(engine, lane(engine, 1), SNIB_EUNREACHABLE, 0, now);
    assert_int_equal(lane(engine, 1)->conn.kill_id, 18);
    cut_link(engine);
    await_connect(engine);
    connect_link(engine);
    const struct snib__buf *out = &conn_of(engine)->out;
    const char *text = out->data + out->head;
    const char *kill = memmem(text, snib__buf_size(out), "$2\r\n18\r\n", 8);
    const char *script = memmem(text, snib__buf_size(out), "EVALSHA", 7);
    assert_non_null(kill);
    assert_non_null(script);
    assert_true(kill < script);
    answer(engine, ":0\r\n");
    assert_int_equal(lane(engine, 1)->conn.kill_id, 0);
    assert_false(two->done);
    snib__engine_free(engine);
}

/* The process was demoted and promoted again: what it still answers on a lane from before may be what it has forgotten. */
static void lane_from_before_a_promotion_is_left(void **state)
{
    (void)state;
    static const char *const says[] = {
        "", "master_replid:8371b4fb1155b71f4a04d3e1bc3e18c4a990aeeb\r\n",
        "master_replid:8371b4fb1155b71f4a04d3e1bc3e18c4a990aeec\r\n"};
    for (size_t before = 0; before < COUNT(says); before++)
        for (size_t after = 0; after < COUNT(says); after++) {
            const bool left = before && after && before != after;
            server_says = says[before];
            struct snib__engine *engine = begin_with_lane();
            call(engine, "one");
            const struct snib__op *two = call(engine, "two");
            assert_ptr_equal(snib__op_link(two), lane(engine, 1));
            answer_own_on(engine, lane(engine, 1), "abc");
            server_says = says[after];
            cut_link(engine);
            await_connect(engine);
            connect_link(engine);
            assert_int_equal(lane(engine, 1)->conn.state == SNIB__CONN_DOWN, left);
            assert_int_equal(lane(engine, 1)->conn.kill_id, left ? 18 : 0);
            assert_ptr_equal(snib__op_link(two), lane(engine, left ? 0 : 1));
            server_says = "";
            snib__engine_free(engine);
        }
}

/* The user may not kill it, or may not know its number: requests left on it may be executed late,
 * and the log says so. */
static void lost_lane_that_cannot_be_killed(void **state)
{
    (void)state;
    static const char was[] = "a broken connection to ";
    for (int numbered = 0; numbered < 2; numbered++) {
        struct snib__engine *engine = begin_with_lane();
        call(engine, "one");
        call(engine, "two");
        answer_own_on(engine, lane(engine, 1), "abc");
        snib__engine_log_level(engine, SNIB_LOG_WARNING);
        if (!numbered)
            lane(engine, 1)->conn.server_id = 0;
        snib__engine_link_down(engine, lane(engine, 1), SNIB_EUNREACHABLE, 0, now);
        assert_int_equal(was_logged(engine, SNIB_LOG_WARNING, was), !numbered);
        answer_own(engine);
        answer(engine, "$-1\r\n");
        answer(engine, numbered ? "-NOPERM this user has no permissions\r\n" : "$-1\r\n");
        assert_int_equal(was_logged(engine, SNIB_LOG_WARNING, was), numbered);
        snib__engine_free(engine);
    }
}

static void node_that_is_no_master_is_left_on_all(void **state)
{
    (void)state;
    struct snib__engine *engine = begin_with_lane();
    call(engine, "one");
    struct snib__op *two = call(engine, "two");
    answer_own_on(engine, lane(engine, 1), "abc");
    answer_on(engine, lane(engine, 1), "abc", "-READONLY You can't write against a replica.\r\n");
    assert_int_equal(lane(engine, 0)->conn.state, SNIB__CONN_DOWN);
    assert_int_equal(lane(engine, 1)->conn.state, SNIB__CONN_DOWN);
    assert_false(two->done);
    assert_int_equal(engine->home->todo_n, 2);
    snib__engine_free(engine);
}

/* A lane that was not used since the server, or a proxy, has logged all connections out.  That says nothing of the others:
 * a release of permits that is on the way there, which can be sent only once, keeps its answer. */
static void login_that_a_lane_has_lost_is_its_own(void **state)
{
    (void)state;
    struct snib__engine *engine = begin_with_lane();
    struct snib__op *one = call(engine, "one"), *two = call(engine, "two");
    assert_ptr_equal(snib__op_link(one), lane(engine, 0));
    assert_ptr_equal(snib__op_link(two), lane(engine, 1));
    answer_own_on(engine, lane(engine, 1), "abc");
    answer_on(engine, lane(engine, 1), "abc", "-NOAUTH Authentication required.\r\n");
    assert_int_equal(lane(engine, 1)->conn.state, SNIB__CONN_DOWN);
    assert_true(ready(engine));
    assert_false(one->done || two->done);
    assert_ptr_equal(snib__op_link(two), lane(engine, 0));
    assert_int_equal(engine->home->todo_n, 0);
    answer_own(engine);
    answer(engine, "$-1\r\n");
    acquired(engine, one);
    answer_own(engine); /* no kill: nothing is left on the lane */
    answer(engine, "$-1\r\n");
    acquired(engine, two);
    snib__engine_free(engine);
}

/* The same when nobody wants the answer any more: there is nothing to send again. */
static void login_lost_beside_what_was_given_up(void **state)
{
    (void)state;
    int32_t code;
    struct snib__engine *engine = begin_with_lane();
    struct snib__op *one = call(engine, "one");
    snib__engine_call(engine, true);
    struct snib__op *two = snib__engine_info(engine, gate(engine, SNIB_MUTEX, "two"), now, &code);
    snib__engine_call(engine, false);
    assert_int_equal(lane(engine, 1)->conn.ring_count, 2);
    assert_true(snib__engine_cancel(engine, two, now));
    done(engine, two, SNIB_CANCELLED);
    answer_own_on(engine, lane(engine, 1), "abc");
    answer_on(engine, lane(engine, 1), "abc", "-NOAUTH Authentication required.\r\n");
    assert_int_equal(lane(engine, 1)->conn.state, SNIB__CONN_DOWN);
    assert_int_equal(engine->home->todo_n, 0);
    answer_own(engine);
    answer(engine, "$-1\r\n");
    acquired(engine, one);
    snib__engine_free(engine);
}

/* Requests that came while the first link was down go by the lane with an earlier request for the
 * same name. */
static void order_is_kept_over_a_loss_of_the_first(void **state)
{
    (void)state;
    struct snib__engine *engine = begin_with_lane();
    struct snib__gate *permits = gate(engine, SNIB_SEMAPHORE, "s");
    call(engine, "one");
    snib__engine_call(engine, true);
    acquire(engine, permits, 0);
    snib__engine_call(engine, false);
    cut_link(engine);
    struct snib__op *next = acquire(engine, permits, 0);
    await_connect(engine);
    connect_link(engine);
    assert_ptr_equal(snib__op_link(next), lane(engine, 1));
    snib__engine_free(engine);
}

/* What is on its way on another lane may be carried out: that the first is down, and with it the node, does not say that
 * nothing was applied. */
static void under_way_beside_the_first(void **state)
{
    (void)state;
    for (int counts = 0; counts < 2; counts++) {
        struct snib__engine *engine = begin_with_lane();
        engine->config.patience = SECOND; /* shorter than a reply may take */
        call(engine, "one");
        struct snib__op *op;
        if (counts) {
            int32_t code;
            snib__engine_call(engine, true);
            op = snib__engine_count(engine, gate(engine, SNIB_LATCH, "l"), SNIB_COUNT_DOWN, 0, now,
                                    &code);
            snib__engine_call(engine, false);
        } else {
            op = call(engine, "two");
        }
        assert_ptr_equal(snib__op_link(op), lane(engine, 1));
        cut_link(engine);
        now += 2 * SECOND;
        snib__engine_tick(engine, now);
        assert_true(op->done);
        assert_int_equal(op->code, SNIB_EUNREACHABLE);
        snib__engine_free(engine);
    }
}

/* At another server process the number belongs to a different connection. */
static void stranger_is_not_killed(void **state)
{
    (void)state;
    struct snib__engine *engine = begin_with_lane();
    call(engine, "one");
    call(engine, "two");
    answer_own_on(engine, lane(engine, 1), "abc");
    snib__engine_link_down(engine, lane(engine, 1), SNIB_EUNREACHABLE, 0, now);
    cut_link(engine);
    server_id = "xyz";
    await_connect(engine);
    connect_link(engine);
    const struct snib__buf *out = &conn_of(engine)->out;
    assert_non_null(memmem(out->data + out->head, snib__buf_size(out), "EVALSHA", 7));
    assert_null(
        memmem(out->data + out->head, snib__buf_size(out), "$4\r\nKILL\r\n$2\r\nID\r\n", 16));
    assert_int_equal(lane(engine, 1)->conn.kill_id, 0);
    server_id = "abc";
    snib__engine_free(engine);
}

/* After an address that led to several servers there may be lanes again once the first link has
 * reconnected. */
static void lanes_come_back(void **state)
{
    (void)state;
    struct snib__engine *engine = begin_lanes();
    struct snib__acquire how = {.wait = SNIB__NEVER};
    granted(engine, gate(engine, SNIB_MUTEX, "first"), &how);
    meet(engine, 1);
    connect_lane(engine, 1, "xyz");
    assert_int_equal(snib__engine_take_wish(engine, lane(engine, 1)), SNIB__WISH_CLOSE);
    cut_link(engine);
    await_connect(engine);
    connect_link(engine);
    while (on_the_way(engine) > 0) {
        answer_own(engine);
        answer(engine, "*0\r\n");
    }
    now += SECOND;
    for (int i = 0; i < 2 * MEETINGS && !lane(engine, 1)->connect; i++) {
        struct snib__op *one = call(engine, i % 2 ? "a" : "b"), *two = call(engine, "c");
        answer_own(engine);
        answer(engine, "$-1\r\n");
        answer_own(engine);
        answer(engine, "$-1\r\n");
        struct snib__hold *holds[] = {acquired(engine, one), acquired(engine, two)};
        for (int j = 0; j < 2; j++) {
            one = call_back(engine, holds[j]);
            answer_own(engine);
            answer(engine, ":1\r\n");
            done(engine, one, SNIB_OK);
        }
    }
    assert_true(lane(engine, 1)->connect);
    snib__engine_free(engine);
}

/* A command that was refused on the first link is not tried by a lane, whatever its server's
 * version promises. */
static void lane_knows_what_was_refused(void **state)
{
    (void)state;
    for (int known = 0; known < 2; known++) {
        struct snib__engine *engine = begin_lanes();
        struct snib__acquire how = {.wait = SNIB__NEVER};
        granted(engine, gate(engine, SNIB_MUTEX, "first"), &how);
        meet(engine, 1);
        conn_of(engine)->delex = conn_of(engine)->delifeq = known;
        assert_int_equal(snib__engine_take_wish(engine, lane(engine, 1)), SNIB__WISH_CONNECT);
        snib__engine_link_up(engine, lane(engine, 1), now);
        lane(engine, 1)->conn.delex = lane(engine, 1)->conn.delifeq = true;
        answer_own_on(engine, lane(engine, 1), "abc");
        assert_int_equal(lane(engine, 1)->conn.state, SNIB__CONN_READY);
        assert_int_equal(lane(engine, 1)->conn.delex, known);
        assert_int_equal(lane(engine, 1)->conn.delifeq, known);
        snib__engine_free(engine);
    }
}

static int oldest_script_on(const struct snib__link *link)
{
    assert_true(link->conn.ring_count > 0);
    return link->conn.ring[link->conn.ring_head].script;
}

/* A command that a lane's server refuses is asked by script on that lane, and from then on also on
 * the first link, from whose abilities further lanes begin. */
static void refusal_on_a_lane_counts_for_all(void **state)
{
    (void)state;
    static const char *const refusals[] = {
        "-ERR unknown command 'DELEX'\r\n",
        "-NOPERM this user has no permissions to run the 'delex' command\r\n"};
    for (size_t i = 0; i < COUNT(refusals); i++) {
        struct snib__engine *engine = begin_with_lane();
        struct snib__acquire how = {.wait = SNIB__NEVER};
        struct snib__hold *first = granted(engine, gate(engine, SNIB_PLAIN, "p"), &how);
        struct snib__hold *second = granted(engine, gate(engine, SNIB_PLAIN, "q"), &how);
        conn_of(engine)->delex = lane(engine, 1)->conn.delex = true;
        struct snib__op *busy = call(engine, "busy"), *op = call_back(engine, first);
        assert_ptr_equal(snib__op_link(op), lane(engine, 1));
        assert_int_equal(oldest_script_on(lane(engine, 1)), SNIB__TWO_COMMANDS);
        answer_on(engine, lane(engine, 1), "abc", refusals[i]);
        assert_false(op->done);
        answer_on(engine, lane(engine, 1), "abc", ":0\r\n"); /* of the second command */
        answer_own_on(engine, lane(engine, 1), "abc");
        assert_ptr_equal(snib__op_link(op), lane(engine, 1));
        assert_int_equal(oldest_script_on(lane(engine, 1)), SNIB__SCRIPT_PLAIN_RELEASE);
        answer_on(engine, lane(engine, 1), "abc", ":1\r\n");
        done(engine, op, SNIB_OK);
        answer_own(engine);
        answer(engine, "$-1\r\n");
        acquired(engine, busy);

        op = call_back(engine, second);
        assert_ptr_equal(snib__op_link(op), lane(engine, 0));
        answer_own(engine);
        assert_int_equal(oldest_script(engine), SNIB__SCRIPT_PLAIN_RELEASE);
        answer(engine, ":1\r\n");
        done(engine, op, SNIB_OK);
        assert_false(conn_of(engine)->delex || lane(engine, 1)->conn.delex);
        snib__engine_free(engine);
    }
}

/* Many requests go together, by the first link, although a lane is idle. */
static void many_requests_share_the_first(void **state)
{
    (void)state;
    for (int many = 7; many <= 8; many++) {
        struct snib__engine *engine = begin_with_lane();
        for (int i = 0; i < many; i++) {
            char name[8];
            snprintf(name, sizeof name, "a%d", i);
            acquire(engine, gate(engine, SNIB_MUTEX, name), 0);
        }
        assert_ptr_equal(snib__op_link(call(engine, "x")), lane(engine, many < 8));
        snib__engine_free(engine);
    }
}

/* Another server takes the node's role: no lane stays with the old one. */
static void lanes_leave_with_the_first(void **state)
{
    (void)state;
    struct snib__address address;
    assert_true(snib__address_host(&address, "next", 4, 6379, false));
    struct snib__engine *engine = begin_with_lane();
    snib__node_readdress(engine, engine->home, &address, now);
    for (uint32_t i = 0; i < 2; i++) {
        assert_int_equal(lane(engine, i)->conn.state, SNIB__CONN_DOWN);
        assert_int_equal(snib__engine_take_wish(engine, lane(engine, i)), SNIB__WISH_CLOSE);
    }
    snib__engine_free(engine);
}

/* The same for a lane that is being connected. */
static void connecting_lane_leaves_with_the_first(void **state)
{
    (void)state;
    struct snib__address address;
    assert_true(snib__address_host(&address, "next", 4, 6379, false));
    struct snib__engine *engine = begin_lanes();
    struct snib__acquire how = {.wait = SNIB__NEVER};
    granted(engine, gate(engine, SNIB_MUTEX, "first"), &how);
    meet(engine, 1);
    assert_int_equal(snib__engine_take_wish(engine, lane(engine, 1)), SNIB__WISH_CONNECT);
    snib__node_readdress(engine, engine->home, &address, now);
    assert_int_equal(snib__engine_take_wish(engine, lane(engine, 1)), SNIB__WISH_CLOSE);
    snib__engine_free(engine);
}

/* Replies on two lanes come in another order than the requests have left: what was requested first is
 * renewed first, and its loss is noticed in time. */
static void first_sent_is_due_first(void **state)
{
    (void)state;
    struct snib__engine *engine = begin_with_lane();
    give_all_back(engine);
    snib__time sent = now;
    struct snib__op *one = call(engine, "one");
    now += 2 * SECOND;
    struct snib__op *two = call(engine, "two");
    struct snib__link *first = snib__op_link(one), *second = snib__op_link(two);
    assert_ptr_not_equal(first, second);
    answer_own_on(engine, second, "abc");
    answer_on(engine, second, "abc", "$-1\r\n");
    acquired(engine, two);
    answer_own_on(engine, first, "abc");
    answer_on(engine, first, "abc", "$-1\r\n");
    struct snib__hold *hold = acquired(engine, one);
    assert_int_equal(hold->deadline, snib__lease_end(sent, 30 * SECOND));
    assert_true(snib__watchdog_deadline(engine) <= sent + 10 * SECOND);
    snib__engine_link_down(engine, lane(engine, 0), SNIB_EUNREACHABLE, 0, now);
    assert_true(snib__watchdog_deadline(engine) <= hold->deadline);
    now = hold->deadline;
    snib__engine_tick(engine, now);
    assert_int_equal(hold->phase, SNIB__LOST);
    snib__engine_free(engine);
}

/* A read within a write hold has perhaps the memory of an earlier one.  An answer about that one, which another lane has
 * overtaken, is not about it. */
static void answers_are_about_one_hold(void **state)
{
    (void)state;
    int32_t code;
    for (int extends = 0; extends < 2; extends++) {
        struct snib__engine *engine = begin_with_lane();
        const struct snib__acquire writes = {.owner = 7, .wait = SNIB__NEVER};
        const struct snib__acquire reads = {.owner = 7, .wait = SNIB__NEVER, .lease = 2 * SECOND};
        granted(engine, gate(engine, SNIB_WRITE, "rw"), &writes);
        struct snib__gate *read = gate(engine, SNIB_READ, "rw");
        struct snib__hold *first = granted(engine, read, &reads);
        struct snib__op *op =
            extends ? snib__engine_extend(engine, first, 90 * SECOND, now, &code) : NULL;
        assert_true(extends || snib__watchdog_single(engine, first, 30000, now) == 0);
        struct snib__op *back = call_back(engine, first);
        assert_ptr_equal(snib__op_link(back), lane(engine, 1));
        answer_own_on(engine, lane(engine, 1), "abc");
        answer_on(engine, lane(engine, 1), "abc", ":1\r\n");
        done(engine, back, SNIB_OK);
        snib__hold_drop(engine, first, now);
        now += SNIB__MS;
        snib__engine_call(engine, true);
        struct snib__op *again = snib__engine_acquire(engine, read, &reads, now, &code);
        snib__engine_call(engine, false);
        assert_ptr_equal(snib__op_link(again), lane(engine, 1));
        answer_own_on(engine, lane(engine, 1), "abc");
        answer_on(engine, lane(engine, 1), "abc", "$-1\r\n");
        struct snib__hold *second = acquired(engine, again);
        assert_ptr_equal(second, first);
        const snib__time deadline = second->deadline;
        answer_own_on(engine, lane(engine, 0), "abc");
        answer_on(engine, lane(engine, 0), "abc", extends ? "*0\r\n" : "*2\r\n:1\r\n:1\r\n");
        assert_int_equal(second->phase, SNIB__HELD);
        assert_int_equal(second->deadline, deadline);
        if (extends)
            done(engine, op, SNIB_NOT_HELD);
        snib__engine_free(engine);
    }
}

/* A waiter asks on, by its timer, when the attempts of others die with a further lane: a single try, and that of a waiter
 * before it. */
static void waiter_outlives_a_lane(void **state)
{
    (void)state;
    static const struct {
        int32_t kind;
        const char *refused;
        int script;
        bool leaves; /* their attempts die without them */
    } kinds[] = {{SNIB_FAIR, "*3\r\n:20000\r\n:0\r\n:1000\r\n", SNIB__SCRIPT_FAIR_ACQUIRE, true},
                 {SNIB_SEMAPHORE, ":-1\r\n", SNIB__SCRIPT_SEMAPHORE_ACQUIRE, false},
                 {SNIB_LATCH, ":1\r\n", SNIB__SCRIPT_LATCH_ACQUIRE, true}};
    for (size_t i = 0; i < COUNT(kinds); i++) {
        struct snib__engine *engine = begin_with_lane();
        engine->config.recheck = SECOND;
        struct snib__gate *shared = gate(engine, kinds[i].kind, "g");
        struct snib__op *waiter = acquire(engine, shared, 0);
        answer_own(engine);
        answer(engine, kinds[i].refused);
        connect_pubsub(engine);
        say_on_channel(engine, shared, NULL);
        answer_own(engine);
        answer(engine, kinds[i].refused); /* asked again, because a release may have gone unheard */
        struct snib__op *first = kinds[i].kind == SNIB_FAIR ? NULL : waiter;
        waiter = first ? acquire(engine, shared, 0) : waiter;

        struct snib__op *busy = call(engine, "busy");
        const struct snib__acquire once = {.wait = 0};
        int32_t code;
        snib__engine_call(engine, true);
        struct snib__op *other = snib__engine_acquire(engine, shared, &once, now, &code);
        snib__engine_call(engine, false);
        assert_ptr_equal(snib__op_link(other), lane(engine, 1));
        answer_own(engine);
        answer(engine, "$-1\r\n");
        acquired(engine, busy);
        while (shared->waitq->timer_at && on_the_way(engine) == 0) { /* it may be in the way */
            now = snib__engine_deadline(engine);
            snib__engine_tick(engine, now);
        }
        if (kinds[i].kind == SNIB_FAIR) /* its beat is sent all the same */
            assert_int_equal(waiter->hold->phase, SNIB__TRYING);
        else
            assert_int_equal(first->hold->phase, SNIB__TRYING);
        if (kinds[i].leaves)
            snib__engine_cancel(engine, other, now);
        if (kinds[i].leaves && first)
            snib__engine_cancel(engine, first, now);
        snib__engine_link_down(engine, lane(engine, 1), SNIB_EUNREACHABLE, 0, now);
        bool asked = false;
        for (snib__time until = now + 5 * SECOND; !asked && now < until; now += SECOND / 10) {
            snib__engine_tick(engine, now);
            while (!asked && on_the_way(engine) > 0) {
                asked = oldest_script(engine) == kinds[i].script && !waiter->done &&
                        waiter->hold->phase == SNIB__TRYING;
                bool fair = oldest_script(engine) == SNIB__SCRIPT_FAIR_RELEASE;
                answer(engine, asked  ? kinds[i].refused
                               : fair ? "*5\r\n:1\r\n:0\r\n:3000\r\n$1\r\n0\r\n:1\r\n"
                                      : ":1\r\n");
            }
        }
        assert_true(asked);
        snib__engine_free(engine);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_thread_needs_none),
        cmocka_unit_test(loop_needs_none),
        cmocka_unit_test(seldom_is_not_enough),
        cmocka_unit_test(lane_is_given_up_when_idle),
        cmocka_unit_test(lane_to_another_server_is_refused),
        cmocka_unit_test(idle_lane_is_taken),
        cmocka_unit_test(order_of_a_name_is_kept),
        cmocka_unit_test(extension_follows_renewals),
        cmocka_unit_test(answers_are_about_one_hold),
        cmocka_unit_test(lost_lane_is_killed_before_anything_is_repeated),
        cmocka_unit_test(kill_is_repeated),
        cmocka_unit_test(lane_from_before_a_promotion_is_left),
        cmocka_unit_test(lost_lane_that_cannot_be_killed),
        cmocka_unit_test(node_that_is_no_master_is_left_on_all),
        cmocka_unit_test(login_that_a_lane_has_lost_is_its_own),
        cmocka_unit_test(login_lost_beside_what_was_given_up),
        cmocka_unit_test(order_is_kept_over_a_loss_of_the_first),
        cmocka_unit_test(under_way_beside_the_first),
        cmocka_unit_test(stranger_is_not_killed),
        cmocka_unit_test(lanes_come_back),
        cmocka_unit_test(first_sent_is_due_first),
        cmocka_unit_test(lane_knows_what_was_refused),
        cmocka_unit_test(refusal_on_a_lane_counts_for_all),
        cmocka_unit_test(many_requests_share_the_first),
        cmocka_unit_test(lanes_leave_with_the_first),
        cmocka_unit_test(connecting_lane_leaves_with_the_first),
        cmocka_unit_test(waiter_outlives_a_lane),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
