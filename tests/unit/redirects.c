/* redirects.c - where requests go in a cluster whose slots move, and how a refusal affects them. */
#include "nodes.h"

static void ask_is_for_one_request(void **state)
{
    (void)state;
    char text[64];
    struct snib__engine *engine = begin_cluster("a:0-16383");
    sprintf(text, "ASK %d b:6379", snib__slot("m", 1));
    peers[0].says = text;
    peers[0].times = 2; /* the first time it is connected to */
    held(engine, "m");
    assert_int_equal(peers[1].scripts, 1);
    assert_int_equal(peers[1].asking, 1);
    assert_int_equal(served_by(engine, "m"), 'a');
    held(engine, "{m}2");
    assert_int_equal(peers[1].scripts, 1);
    snib__engine_free(engine);
}

/* The missing script has used up ASKING. */
static void forgotten_script_is_asked_for_again(void **state)
{
    (void)state;
    char text[64];
    struct snib__engine *engine = begin_cluster("a:0-16383");
    sprintf(text, "ASK %d b:6379", snib__slot("m", 1));
    peers[0].says = text;
    peers[0].times = 2;
    peers[1].says = "NOSCRIPT No matching script.";
    peers[1].times = 1;
    held(engine, "m");
    assert_int_equal(peers[1].scripts, 2);
    assert_int_equal(peers[1].asking, 2);
    snib__engine_free(engine);
}

/* That one server has forgotten the script says nothing of the next one: neither of one that is connected, nor of one that
 * the request waits for. */
static void script_that_two_have_forgotten(void **state)
{
    (void)state;
    char text[64];
    for (int connected = 0; connected < 2; connected++) {
        struct snib__engine *engine = begin_cluster("a:0-16383");
        sprintf(text, "ASK %d b:6379", snib__slot("m", 1));
        if (connected) {
            peers[0].says = text;
            peers[0].times = 2;
            held(engine, "{m}2");
        }
        peers[0].says = peers[1].says = "NOSCRIPT No matching script.";
        peers[0].times = peers[1].times = 1;
        peers[0].then = text;
        struct snib__op *op = acquire(engine, gate(engine, SNIB_MUTEX, "m"), 0);
        pass(engine, now + SECOND);
        assert_true(op->done);
        assert_int_equal(op->code, SNIB_OK);
        assert_int_equal(peers[1].times, 0);
        snib__engine_free(engine);
    }
}

/* A server forgets the script, does not serve the request that is sent again, and has forgotten the script once more when
 * its pause is over. */
static void script_that_is_forgotten_during_a_pause(void **state)
{
    (void)state;
    struct snib__engine *engine = begin_cluster("a:0-16383");
    held(engine, "n");
    peers[0].says = "NOSCRIPT No matching script.";
    peers[0].times = 1;
    peers[0].then = "TRYAGAIN Multiple keys request during rehashing of slot";
    struct snib__op *op = acquire(engine, gate(engine, SNIB_MUTEX, "m"), 0);
    serve(engine);
    assert_int_equal(engine->paused_n, 1);
    peers[0].times = 1;
    peers[0].then = NULL;
    pass(engine, now + SECOND);
    assert_true(op->done);
    assert_int_equal(op->code, SNIB_OK);
    assert_int_equal(peers[0].times, 0);
    snib__engine_free(engine);
}

/* No node serves it: it is retried with pauses, and ends as unreachable, certainly not applied. */
static void refusals_are_endured(void **state)
{
    (void)state;
    static const char *const refusals[] = {
        "TRYAGAIN Multiple keys request during rehashing of slot",
        "CLUSTERDOWN The cluster is down", "CLUSTERDOWN Hash slot not served",
        "MIGRATING", /* Garnet's */
    };
    for (size_t i = 0; i < COUNT(refusals); i++)
        for (int heals = 0; heals < 2; heals++) {
            struct snib__engine *engine = begin_cluster("a:0-16383");
            peers[0].says = refusals[i];
            peers[0].times = heals ? 10 : -1;
            struct snib__op *op = acquire(engine, gate(engine, SNIB_MUTEX, "m"), 0);
            pass(engine, now + 4 * SECOND);
            assert_int_equal(op->done, heals);
            pass(engine, now + 2 * SECOND);
            assert_true(op->done && peers[0].scripts < 100);
            assert_int_equal(op->code, heals ? SNIB_OK : SNIB_ECONNECT);
            assert_true(heals || strstr(op->words, refusals[i]) != NULL);
            assert_true(heals || snib__engine_quiet(engine));
            snib__engine_free(engine);
        }
}

/* The source has a command that releases a plain lock, and sends it on to a target that refuses it: the script is sent. */
static void release_that_is_refused_where_it_is_sent_on(void **state)
{
    (void)state;
    static const char *const refusals[] = {
        "NOPERM this user has no permissions to run the 'delifeq' command",
        "ERR unknown command 'DELIFEQ'"};
    for (size_t i = 0; i < COUNT(refusals); i++) {
        char text[64];
        int32_t code;
        struct snib__engine *engine = begin_cluster("a:0-16383");
        sprintf(text, "ASK %d b:6379", snib__slot("m", 1));
        peers[0].says = text;
        peers[0].times = 2;
        held(engine, "m"); /* b is connected */
        struct snib__op *op = acquire(engine, gate(engine, SNIB_PLAIN, "{m}p"), 0);
        serve(engine);
        struct snib__hold *hold = acquired(engine, op);
        hold->gate->node->links[SNIB__COMMAND].conn.delifeq = true;
        peers[0].own = peers[1].own = "DELIFEQ";
        peers[0].own_says = text;
        peers[1].own_says = refusals[i];
        peers[1].asked = 0;
        peers[0].times = 1;
        op = snib__engine_release(engine, hold, now, &code);
        serve(engine);
        assert_int_equal(peers[1].asked, 1);
        assert_true(op->done && op->code == SNIB_OK);
        snib__engine_free(engine);
    }
}

/* However many wait for a cluster that is down, it is asked some thousand times in a second, and serves all soon after it
 * is up. */
static void many_that_wait_are_no_storm(void **state)
{
    (void)state;
    char name[16];
    static struct snib__op *ops[2000];
    struct snib__engine *engine = begin_cluster("a:0-16383");
    peers[0].says = "CLUSTERDOWN The cluster is down";
    peers[0].times = -1;
    for (int i = 0; i < (int)COUNT(ops); i++) {
        sprintf(name, "m%d", i);
        ops[i] = acquire(engine, gate(engine, SNIB_MUTEX, name), 0);
    }
    pass(engine, now + SECOND);
    peers[0].scripts = 0;
    pass(engine, now + 400 * SNIB__MS);
    assert_in_range(peers[0].scripts, COUNT(ops) / 2, 2 * COUNT(ops));
    peers[0].says = NULL;
    pass(engine, now + SECOND);
    for (size_t i = 0; i < COUNT(ops); i++)
        assert_true(ops[i]->done && ops[i]->code == SNIB_OK);
    snib__engine_free(engine);
}

/* Those that many others hold are renewed before their leases end if the cluster is up again by then: however many are paused, the
 * pause of a renewal leaves time for the next.  Half of the slack between a renewal and the deadline is left. */
static void renewals_are_not_paused_for_too_long(void **state)
{
    (void)state;
    enum { HOLDS = 600 };
    char name[16];
    struct snib__engine *engine = begin_cluster("a:0-16383");
    const snib__time lease = engine->config.lease = 180 * SNIB__MS;
    for (int i = 0; i < HOLDS; i++) {
        sprintf(name, "m%d", i);
        acquire(engine, gate(engine, SNIB_MUTEX, name), 0);
        if (i % (HOLDS / 50) == 0)
            pass(engine, now + lease / 150);
    }
    pass(engine, now + lease);
    assert_int_equal(engine->stats.held, HOLDS);
    peers[0].says = "CLUSTERDOWN The cluster is down";
    peers[0].times = -1;
    pass(engine, now + lease / 3);
    assert_true(engine->paused_n > HOLDS / 2);
    peers[0].says = NULL;
    pass(engine, now + lease);
    assert_int_equal(engine->stats.held, HOLDS);
    assert_int_equal(engine->paused_n, 0);
    snib__engine_free(engine);
}

/* Requests that wait for one shard do not make the pauses of another one's longer. */
static void pauses_are_as_long_as_their_node_is_busy(void **state)
{
    (void)state;
    char name[16];
    struct snib__engine *engine = begin_cluster("a:0-8191 b:8192-16383");
    held(engine, "bar");
    held(engine, "foo");
    peers[0].says = peers[1].says = "CLUSTERDOWN The cluster is down";
    peers[0].times = -1;
    peers[1].times = 1;
    for (int i = 0; i < 4000; i++) {
        sprintf(name, "{bar}%d", i);
        acquire(engine, gate(engine, SNIB_MUTEX, name), 0);
    }
    serve(engine);
    assert_int_equal(engine->paused_n, 4000);
    struct snib__op *op = acquire(engine, gate(engine, SNIB_MUTEX, "{foo}2"), 0);
    pass(engine, now + 10 * SNIB__MS);
    assert_true(op->done && op->code == SNIB_OK);
    snib__engine_free(engine);
}

/* A node that was said to serve a slot, and says that the cluster is down, is left for the one that a map names. */
static void node_that_is_down_does_not_keep_its_slots(void **state)
{
    (void)state;
    char text[64];
    struct snib__engine *engine = begin_cluster("a:0-8191 b:8192-16383");
    held(engine, "foo");
    held(engine, "bar");
    moved(text, "foo", 'd');
    peers[1].says = text;
    peers[1].times = 1;
    peers[3].says = "CLUSTERDOWN The cluster is down";
    peers[3].times = -1;
    map_of(common, "a:0-8191 c:8192-16383");
    struct snib__op *op = acquire(engine, gate(engine, SNIB_MUTEX, "{foo}2"), 0);
    pass(engine, now + SECOND);
    assert_true(peers[3].scripts > 0);
    assert_true(op->done && op->code == SNIB_OK);
    assert_int_equal(served_by(engine, "foo"), 'c');
    snib__engine_free(engine);
}

/* Once a node has served it, the patience with refusals is over: it waits for the lock for as long
 * as it may. */
static void served_after_refusals(void **state)
{
    (void)state;
    int32_t code;
    const struct snib__acquire how = {.wait = 20 * SECOND};
    struct snib__engine *engine = begin_cluster("a:0-16383");
    peers[0].says = "CLUSTERDOWN The cluster is down";
    peers[0].times = 3;
    peers[0].then = ":86400000"; /* held by another client, for a day */
    struct snib__op *op =
        snib__engine_acquire(engine, gate(engine, SNIB_MUTEX, "m"), &how, now, &code);
    pass(engine, now + 19 * SECOND);
    assert_false(op->done);
    pass(engine, now + 2 * SECOND);
    assert_true(op->done);
    assert_int_equal(op->code, SNIB_TIMEDOUT);
    assert_null(op->words); /* what was said before says nothing about the wait */
    snib__engine_free(engine);
}

/* Those that wait behind another one's request are no more patient with a cluster that is down: each gives up by itself,
 * and nothing was sent for it.  So do those whose releases share a question, of which nobody knows the answer. */
static void all_are_equally_patient(void **state)
{
    (void)state;
    static const int32_t kinds[] = {SNIB_MUTEX, SNIB_READ, SNIB_FAIR};
    for (size_t i = 0; i < COUNT(kinds); i++) {
        struct snib__op *ops[4];
        struct snib__engine *engine = begin_cluster("a:0-16383");
        held(engine, "n");
        peers[0].says = "CLUSTERDOWN The cluster is down";
        peers[0].times = -1;
        for (size_t k = 0; k < COUNT(ops); k++)
            ops[k] = acquire(engine, gate(engine, kinds[i], "m"), 0);
        pass(engine, now + 4900 * SNIB__MS);
        for (size_t k = 0; k < COUNT(ops); k++)
            assert_false(ops[k]->done);
        pass(engine, now + 600 * SNIB__MS);
        for (size_t k = 0; k < COUNT(ops); k++) {
            assert_true(ops[k]->done && ops[k]->unserved);
            assert_int_equal(ops[k]->code, SNIB_ECONNECT);
            assert_string_equal(ops[k]->words, peers[0].says);
        }
        snib__engine_free(engine);
    }
}

/* A try ends without an answer, and the release of what it may have got is refused again and again.  Those that wait behind
 * that release are told what the server said, also while another one is still told it. */
static void those_behind_a_refused_release_are_told_why(void **state)
{
    (void)state;
    static const char refusal[] = "TRYAGAIN Multiple keys request during rehashing of slot";
    int32_t code;
    const struct snib__acquire once = {.wait = 0};
    struct snib__op *ops[2];
    struct snib__engine *engine = begin_cluster("a:0-16383");
    held(engine, "n");
    struct snib__gate *m = gate(engine, SNIB_MUTEX, "m");
    peers[0].silent = true;
    struct snib__op *given_up = snib__engine_acquire(engine, m, &once, now, &code);
    pass(engine, now + 2 * SECOND);
    assert_true(given_up->done);
    assert_int_equal(given_up->code, SNIB_EUNREACHABLE);
    peers[0].says = refusal;
    peers[0].times = -1;
    peers[0].silent = false;
    for (size_t k = 0; k < COUNT(ops); k++) {
        pass(engine, now + SECOND);
        ops[k] = acquire(engine, m, 0);
    }
    pass(engine, now + 6 * SECOND);
    assert_true(peers[0].scripts > 10);
    for (size_t k = 0; k < COUNT(ops); k++) {
        assert_true(ops[k]->done && ops[k]->unserved);
        assert_int_equal(ops[k]->code, SNIB_ECONNECT);
        assert_string_equal(ops[k]->words, refusal);
    }
    snib__engine_free(engine);
}

/* What a node refused is not why it cannot be reached later. */
static void refusal_is_not_why_there_is_no_connection(void **state)
{
    (void)state;
    struct snib__engine *engine = begin_cluster("a:0-16383");
    held(engine, "n");
    peers[0].says = "CLUSTERDOWN The cluster is down";
    peers[0].times = -1;
    struct snib__op *op = acquire(engine, gate(engine, SNIB_MUTEX, "m"), 0);
    pass(engine, now + SECOND);
    assert_non_null(op->words);
    crash(engine, 'a');
    pass(engine, now + 5 * SECOND);
    assert_true(op->done && !op->unserved);
    assert_int_equal(op->code, SNIB_ECONNECT);
    assert_int_equal(op->os_error, 111);
    assert_null(op->words);
    snib__engine_free(engine);
}

static void those_that_share_a_question_are_patient_once(void **state)
{
    (void)state;
    int32_t code;
    struct snib__op *ops[4], *releases[3];
    struct snib__engine *engine = begin_cluster("a:0-16383");
    engine->config.tenure = true;
    held(engine, "n");
    struct snib__op *op = acquire(engine, gate(engine, SNIB_MUTEX, "m"), 0);
    for (size_t k = 0; k < COUNT(ops); k++)
        ops[k] = acquire(engine, gate(engine, SNIB_MUTEX, "m"), 0);
    pass(engine, now + SNIB__MS);
    struct snib__hold *hold = acquired(engine, op);
    peers[0].says = "CLUSTERDOWN The cluster is down";
    peers[0].times = -1;
    for (size_t k = 0; k < COUNT(releases); k++) {
        releases[k] = snib__engine_release(engine, hold, now, &code);
        assert_true(ops[k]->done && ops[k]->code == SNIB_OK); /* the number went on */
        hold = ops[k]->hold;
        pass(engine, now + SNIB__MS);
    }
    pass(engine, now + 4900 * SNIB__MS);
    for (size_t k = 0; k < COUNT(releases); k++)
        assert_false(releases[k]->done);
    pass(engine, now + 600 * SNIB__MS);
    for (size_t k = 0; k < COUNT(releases); k++) {
        assert_true(releases[k]->done);
        assert_int_equal(releases[k]->code, SNIB_EUNREACHABLE);
    }
    snib__engine_free(engine);
}

/* A hand-over that the cluster does not serve, and nobody waits for it any more: it ends with the leases. */
static void hand_over_that_nobody_waits_for(void **state)
{
    (void)state;
    int32_t code;
    struct snib__engine *engine = begin_cluster("a:0-16383");
    struct snib__hold *hold = held(engine, "m");
    struct snib__op *next = acquire(engine, gate(engine, SNIB_MUTEX, "m"), 0);
    pass(engine, now + SNIB__MS);
    peers[0].says = "CLUSTERDOWN The cluster is down";
    peers[0].times = -1;
    hold->acquired_at = now; /* so lately that the hand-over is no longer than others may wait */
    struct snib__op *op = snib__engine_release(engine, hold, now, &code);
    pass(engine, now + SNIB__MS);
    assert_int_equal(engine->paused_n, 1);
    assert_int_equal(engine->paused[0].request.kind, SNIB__REQ_TRANSFER);
    snib__engine_cancel(engine, next, now);
    snib__engine_cancel(engine, op, now);
    pass(engine, now + 100 * SECOND);
    pass(engine, now + 100 * SECOND);
    assert_int_equal(engine->paused_n, 0);
    assert_int_equal(engine->releasing, 0);
    snib__engine_free(engine);
}

/* The patience ends with the first request that is served: a waiter behind it waits for the lock for as long as it may. */
static void those_behind_are_served_too(void **state)
{
    (void)state;
    struct snib__engine *engine = begin_cluster("a:0-16383");
    held(engine, "n");
    peers[0].says = "CLUSTERDOWN The cluster is down";
    peers[0].times = 10;
    peers[0].then = ":86400000"; /* held by another client, for a day */
    struct snib__op *first = acquire(engine, gate(engine, SNIB_MUTEX, "m"), 0);
    struct snib__op *next = acquire(engine, gate(engine, SNIB_MUTEX, "m"), 0);
    pass(engine, now + SECOND / 2);
    assert_true(next->refused_since > 0);
    pass(engine, now + 20 * SECOND);
    assert_false(first->done || next->done);
    snib__engine_free(engine);
}

/* Two nodes redirect requests to each other, including the hold's check: five times, then a pause,
 * and so on, whichever of them is asked for the map first. */
static void circle_is_no_storm(void **state)
{
    (void)state;
    char there[64], back[64];
    for (int variant = 0; variant < 8; variant++) {
        const int holds = variant % 2;
        struct snib__engine *engine = begin_cluster("a:0-8191 b:8192-16383");
        struct snib__hold *hold = held(engine, holds ? "{bar}1" : "x"); /* x: 16287 */
        held(engine, "{bar}0");
        snib__hold_drop(engine, held(engine, "foo"), now);
        if (!holds)
            snib__hold_drop(engine, hold, now);
        pass(engine, now + SECOND);
        ((struct snib__cluster *)engine->map)->turn += (uint32_t)(variant / 2);
        peers[0].scripts = peers[1].scripts = 0;
        moved(there, "bar", 'b');
        moved(back, "bar", 'a');
        peers[0].says = there;
        peers[1].says = back;
        peers[0].times = peers[1].times = -1;
        struct snib__op *op = acquire(engine, gate(engine, SNIB_MUTEX, "{bar}2"), 0);
        serve(engine);
        const int times = 5 * (1 + 1 + holds);
        assert_int_equal(peers[0].scripts + peers[1].scripts, times);
        pass(engine, now + 20 * SNIB__MS); /* and so on after each pause */
        assert_int_equal((peers[0].scripts + peers[1].scripts) % 5, 0);
        assert_true(peers[0].scripts + peers[1].scripts > times);
        pass(engine, now + 6 * SECOND);
        assert_true(op->done && op->code == SNIB_ECONNECT);
        assert_true(peers[0].scripts + peers[1].scripts < 500 * (2 + holds));
        peers[0].says = peers[1].says = NULL;
        pass(engine, now + SECOND);
        if (holds)
            assert_int_equal(snib__hold_state(engine, hold, now), SNIB_HOLD_VALID);
        snib__engine_free(engine);
    }
}

/* A script is aborted in the middle: a request with an owner is repeated, one without is not. */
static void broken_off_script_is_repeated_by_its_owner(void **state)
{
    (void)state;
    static const char text[] =
        "ERR Script attempted to access a non local key in a cluster node script: x";
    for (int owned = 0; owned < 2; owned++) {
        struct snib__engine *engine = begin_cluster("a:0-16383");
        peers[0].says = text;
        peers[0].times = 1;
        struct snib__op *op =
            acquire(engine, gate(engine, owned ? SNIB_MUTEX : SNIB_SEMAPHORE, "m"), 0);
        pass(engine, now + SECOND);
        assert_true(op->done);
        assert_int_equal(op->code, owned ? SNIB_OK : SNIB_ESERVER);
        assert_int_equal(peers[0].scripts, owned + 1);
        snib__engine_free(engine);
    }
}

/* A script that extends a lease is aborted whenever it comes: when the call's patience ends, nobody knows what it did.  One
 * that a node refused to run did nothing. */
static void broken_off_extension_is_unknown(void **state)
{
    (void)state;
    static const char *const says[] = {
        "ERR Script attempted to access a non local key in a cluster node script: x",
        "CLUSTERDOWN The cluster is down"};
    for (size_t i = 0; i < COUNT(says); i++) {
        int32_t code;
        struct snib__engine *engine = begin_cluster("a:0-16383");
        struct snib__op *op = acquire(engine, gate(engine, SNIB_MUTEX, "m"), 0);
        pass(engine, now + SECOND);
        struct snib__hold *hold = acquired(engine, op);
        peers[0].says = says[i];
        peers[0].times = 1000;
        op = snib__engine_extend(engine, hold, 300 * SECOND, now, &code);
        pass(engine, now + 6 * SECOND);
        assert_true(op->done);
        assert_int_equal(op->code, i == 0 ? SNIB_EUNREACHABLE : SNIB_ECONNECT);
        snib__engine_free(engine);
    }
}

/* The node that it is moved to is not connected yet: its caller no longer waits for the one that
 * answered. */
static void moved_request_waits_for_its_node(void **state)
{
    (void)state;
    char text[64];
    struct snib__engine *engine = begin_cluster("a:0-16383");
    moved(text, "m", 'b');
    peers[0].says = text;
    peers[0].times = 1;
    peers[1].hangs = true;
    struct snib__op *op = acquire(engine, gate(engine, SNIB_MUTEX, "m"), 0);
    pass(engine, now + 10 * SNIB__MS);
    assert_int_equal(peers[0].scripts, 1);
    assert_int_equal(op->gate->node->todo_n, 1);
    assert_ptr_equal(peer_of(snib__op_link(op)), &peers[1]);
    snib__engine_free(engine);
}

/* A batch of renewals has the keys of one slot; one that is refused is split. */
static void renewals_go_by_slot(void **state)
{
    (void)state;
    static const char *const names[] = {"{x}1", "{x}2", "{x}3", "{y}1", "{y}2", "z"};
    struct snib__engine *engine = begin_cluster("a:0-16383");
    struct snib__hold *holds[COUNT(names)];
    for (size_t i = 0; i < COUNT(names); i++)
        holds[i] = held(engine, names[i]);
    peers[0].renewals = peers[0].renewed_keys = 0;
    now += 11 * SECOND;
    snib__engine_tick(engine, now);
    serve(engine);
    assert_int_equal(peers[0].renewals, 3);
    assert_int_equal(peers[0].renewed_keys, 6);
    peers[0].renewals = 0;
    peers[0].says = "TRYAGAIN Multiple keys request during rehashing of slot";
    peers[0].times = 3;
    now += 11 * SECOND;
    snib__engine_tick(engine, now);
    pass(engine, now + SECOND);
    assert_int_equal(peers[0].renewals, 3 + 6); /* then one by one */
    for (size_t i = 0; i < COUNT(names); i++)
        assert_true(holds[i]->deadline > now + 27 * SECOND);
    snib__engine_free(engine);
}

/* A node has left, and MOVED brings it back, while all maps that come are old ones: its connection stays. */
static void node_that_comes_back_by_moved(void **state)
{
    (void)state;
    char text[64];
    struct snib__engine *engine = begin_cluster("a:0-8191 b:8192-16383");
    snib__hold_drop(engine, held(engine, "foo"), now);
    held(engine, "bar");
    common_epoch++;
    map_of(common, "a:0-16383");
    for (int steps = 0; served_by(engine, "foo") != 'a'; steps++) {
        assert_true(steps < 200);
        pass(engine, now + 100 * SNIB__MS);
    }
    pass(engine, now + 10 * SNIB__MS);
    peers[0].epoch = peers[1].epoch = 1;
    moved(text, "foo", 'b');
    peers[0].says = text;
    peers[0].times = 1;
    struct snib__op *op = acquire(engine, gate(engine, SNIB_MUTEX, "foo"), 0);
    serve(engine);
    struct snib__hold *hold = acquired(engine, op);
    assert_int_equal(served_by(engine, "foo"), 'b');
    const int connects = peers[1].connects;
    for (int i = 0; i < 10; i++) {
        pass(engine, now + 100 * SNIB__MS);
        assert_true(snib__node_ready(hold->gate->node));
        assert_int_equal(snib__hold_state(engine, hold, now), SNIB_HOLD_VALID);
    }
    assert_int_equal(served_by(engine, "foo"), 'b');
    assert_int_equal(peers[1].connects, connects);
    snib__engine_free(engine);
}

/* A renewal is paused, its hold is released, and another hold reuses the memory: that one is not
 * renewed. */
static void paused_renewal_of_what_has_gone(void **state)
{
    (void)state;
    struct snib__engine *engine = begin_cluster("a:0-8191 b:8192-16383");
    struct snib__hold *hold = held(engine, "bar");
    held(engine, "foo");
    now += 11 * SECOND;
    peers[0].says = "CLUSTERDOWN Hash slot not served";
    peers[0].times = 1;
    snib__engine_tick(engine, now);
    serve(engine);
    assert_int_equal(peers[0].renewals, 1);
    int others = peers[1].renewals;
    snib__hold_drop(engine, hold, now);
    serve(engine);
    struct snib__op *op = acquire(engine, gate(engine, SNIB_MUTEX, "{foo}2"), 0);
    serve(engine);
    assert_ptr_equal(acquired(engine, op), hold);
    pass(engine, now + SECOND / 2);
    assert_int_equal(peers[0].renewals, 1);
    assert_int_equal(peers[1].renewals, others);
    snib__engine_free(engine);
}

/* A renewal is pending while its hold moves to another node and is released there; the memory is
 * reused or not.  The reply redirects the renewal to a third node, but there is nothing to send. */
static void redirected_renewal_of_what_has_gone(void **state)
{
    (void)state;
    char text[64];
    for (int again = 0; again < 2; again++) {
        struct snib__engine *engine = begin_cluster("a:0-8191 b:8192-15999 c:16000-16383");
        struct snib__hold *hold = held(engine, "bar"); /* 5061 */
        held(engine, "foo");                           /* 12182 */
        held(engine, "x");                             /* 16287 */
        now += 11 * SECOND;
        peers[0].silent = true;
        snib__engine_tick(engine, now);
        common_epoch++;
        map_of(common, "a:0-4999 b:5000-15999 c:16000-16383");
        pass(engine, now + SECOND);
        assert_int_equal(served_by(engine, "bar"), 'b');
        snib__hold_drop(engine, hold, now);
        serve(engine);
        if (again)
            assert_ptr_equal(held(engine, "{foo}2"), hold);
        sprintf(text, "ASK %d c:6379", snib__slot("bar", 3));
        peers[0].says = text;
        peers[0].times = 1;
        peers[0].silent = false;
        const int scripts = peers[2].scripts;
        pass(engine, now + SECOND / 2);
        assert_int_equal(peers[0].times, 0);
        assert_int_equal(peers[2].scripts, scripts);
        snib__engine_free(engine);
    }
}

/* ---- Channels -------------------------------------------------------------------------------------------- */

static int chan_state(const struct snib__gate *gate)
{
    assert_true(gate->waitq && gate->waitq->chan);
    return gate->waitq->chan->state;
}

/* A channel that belongs to another node is subscribed to there; subscriptions requested with it
 * are not disturbed. */
static void misplaced_channel_goes_alone(void **state)
{
    (void)state;
    char text[64], channel[SNIB__CHANNEL_MAX];
    for (int first = 0; first < 2; first++) { /* each comes first once */
        struct snib__engine *engine = begin_cluster("a:0-16383");
        const char *name = first ? "bar" : "foo";
        engine->config.publish = SNIB_PUBLISH_SHARDED;
        held(engine, "m");
        peers[0].says = peers[1].says = ":86400000";
        peers[0].times = peers[1].times = -1;
        struct snib__gate *moves = gate(engine, SNIB_MUTEX, name),
                          *stays = gate(engine, SNIB_MUTEX, first ? "foo" : "bar");
        size_t n = moves->kind->channel(channel, engine, moves, 0);
        channel[n] = 0;
        moved(text, name, 'b');
        peers[0].channel = channel;
        peers[0].refusal = text;
        acquire(engine, moves, 0);
        acquire(engine, stays, 0);
        serve(engine);
        assert_int_equal(chan_state(stays), SNIB__CHAN_ON);
        assert_int_equal(peers[0].listened, 2);
        pass(engine, now + 100 * SNIB__MS);
        assert_int_equal(served_by(engine, name), 'b');
        assert_int_equal(chan_state(moves), SNIB__CHAN_ON);
        assert_int_equal(peers[1].listened, 1);
        assert_int_equal(engine->stats.polling, 0);
        snib__engine_free(engine);
    }
}

/* Two nodes that each name the other for a channel are asked a few times, and again when a waiter goes to sleep.  When one
 * of them serves it, it is subscribed to, and so is the channel of a fair lock's waiter itself. */
static void channel_that_goes_in_a_circle(void **state)
{
    (void)state;
    char there[64], back[64];
    for (int fair = 0; fair < 2; fair++) {
        struct snib__engine *engine = begin_cluster("a:0-8191 b:8192-16383");
        engine->config.publish = SNIB_PUBLISH_SHARDED;
        held(engine, "bar");
        held(engine, "foo");
        /* another client has it, for a day, and one of Redisson's is in front of the fair lock */
        peers[0].then = peers[1].then = fair ? "*3\r\n:86400000\r\n:1\r\n:3000" : ":86400000";
        moved(there, "bar", 'b');
        moved(back, "bar", 'a');
        peers[0].channel = peers[1].channel = "";
        peers[0].refusal = there;
        peers[1].refusal = back;
        struct snib__gate *bar = gate(engine, fair ? SNIB_FAIR : SNIB_MUTEX, "{bar}2");
        struct snib__op *op = acquire(engine, bar, 0);
        serve(engine);
        assert_in_range(peers[0].listened + peers[1].listened, 4, 16);
        pass(engine, now + 30 * SECOND);
        assert_in_range(peers[0].listened + peers[1].listened, 10, fair ? 100 : 30);
        assert_false(op->done);
        peers[0].channel = peers[1].channel = NULL;
        peers[0].listened = peers[1].listened = 0;
        pass(engine, now + 4 * SECOND);
        assert_int_equal(chan_state(bar), SNIB__CHAN_ON);
        /* at b, which a has named last, and then at a, because the map is right again */
        assert_in_range(peers[0].listened + peers[1].listened, 1 + fair, 3 * (1 + fair));
        assert_int_equal(served_by(engine, "bar"), 'a');
        peers[0].listened = peers[1].listened = 0;
        pass(engine, now + 15 * SECOND);
        assert_int_equal(chan_state(bar), SNIB__CHAN_ON);
        assert_int_equal(peers[0].listened + peers[1].listened, 0);
        snib__engine_free(engine);
    }
}

/* A slot moves after the last waiter for a name has gone, and before its old node has confirmed that nobody listens
 * there: the next waiter listens at the new node. */
static void channel_that_is_left_follows_its_name(void **state)
{
    (void)state;
    char text[64];
    struct snib__engine *engine = begin_cluster("a:0-8191 b:8192-16383");
    engine->config.publish = SNIB_PUBLISH_SHARDED;
    held(engine, "bar");
    peers[0].says = peers[1].says = ":86400000"; /* another client has it, for a day */
    peers[0].times = peers[1].times = -1;
    struct snib__gate *first = gate(engine, SNIB_MUTEX, "foo");
    struct snib__op *op = acquire(engine, first, 0);
    serve(engine);
    assert_int_equal(chan_state(first), SNIB__CHAN_ON);
    peers[1].mute = true;
    assert_true(snib__engine_cancel(engine, op, now));
    for (int i = 0; i < 100 && snib__gate_find(engine, SNIB_MUTEX, "foo", 3); i++)
        pass(engine, now + 20 * SNIB__MS);
    moved(text, "foo", 'a');
    peers[1].says = text;
    acquire(engine, gate(engine, SNIB_MUTEX, "{foo}1"), 0);
    serve(engine);
    assert_int_equal(served_by(engine, "foo"), 'a');
    struct snib__gate *second = gate(engine, SNIB_MUTEX, "foo");
    const int listened = peers[0].listened;
    acquire(engine, second, 0);
    serve(engine);
    assert_int_equal(peers[0].listened, listened + 1);
    assert_int_equal(chan_state(second), SNIB__CHAN_ON);
    peers[1].mute = false; /* what the old node still says changes nothing */
    serve(engine);
    assert_int_equal(chan_state(second), SNIB__CHAN_ON);
    assert_ptr_equal(second->waitq->chan->node, second->node);
    snib__engine_free(engine);
}

/* A renewal that shortens a lease, as for a member of a multi lock, was refused for a while.  When it is served at last,
 * the lease has been extended: it is not shortened any more, and the reply says nothing about a longer one. */
static void late_correction_shortens_no_extension(void **state)
{
    (void)state;
    int32_t code;
    for (snib__time lease = 0; lease <= 90 * SECOND; lease += 90 * SECOND) {
        struct snib__engine *engine = begin_cluster("a:0-16383");
        struct snib__hold *hold = held(engine, "m");
        snib__hold_fix(engine, hold, 20 * SECOND, now);
        peers[0].says = "CLUSTERDOWN The cluster is down";
        peers[0].times = -1;
        pass(engine, now + SECOND);
        assert_int_equal(engine->paused_n, 1);
        peers[0].says = NULL;
        struct snib__op *op = snib__engine_extend(engine, hold, lease, now, &code);
        serve(engine);
        assert_true(op && op->done && op->code == SNIB_OK);
        const snib__time deadline = hold->deadline;
        peers[0].renewals = 0;
        pass(engine, now + SECOND);
        assert_int_equal(peers[0].renewals,
                         lease == 0); /* a fixed lease has a request of its own */
        assert_true(peers[0].lease_ms > 0);
        assert_int_equal(hold->deadline, deadline);
        snib__engine_free(engine);
    }
}

/* A renewal was refused for a while, and a member of a multi lock has got another lease meanwhile.  The renewal is not repeated
 * for it: if the client dies, the lease that was promised is the one that ends, and where the server's clock was set back the
 * repetition would shorten it. */
static void late_renewal_gives_no_former_lease(void **state)
{
    (void)state;
    for (int longer = 0; longer < 2; longer++) {
        const snib__time lease = (longer ? 60 : 5) * SECOND;
        const int lease_ms = longer ? 60000 : 5000;
        struct snib__engine *engine = begin_cluster("a:0-16383");
        struct snib__hold *hold = held(engine, "m");
        hold->gate->node->moved_back = longer;
        peers[0].says = "CLUSTERDOWN The cluster is down";
        peers[0].times = -1;
        pass(engine, now + 11 * SECOND);
        assert_int_equal(engine->paused_n, 1);
        peers[0].says = NULL;
        snib__hold_fix(engine, hold, lease, now);
        serve(engine);
        assert_int_equal(peers[0].lease_ms, -lease_ms);
        pass(engine, now + SECOND);
        assert_int_equal(engine->paused_n, 0);
        assert_int_equal(peers[0].lease_ms, -lease_ms);
        assert_int_equal(snib__hold_state(engine, hold, now), SNIB_HOLD_VALID);
        snib__engine_free(engine);
    }
}

/* The same of a renewal of several that is refused then, and repeated one by one. */
static void divided_renewal_gives_no_former_lease(void **state)
{
    (void)state;
    struct snib__engine *engine = begin_cluster("a:0-16383");
    struct snib__hold *hold = held(engine, "{x}1");
    held(engine, "{x}2");
    peers[0].says = "TRYAGAIN Multiple keys request during rehashing of slot";
    peers[0].times = 1;
    peers[0].silent = true;
    now += 11 * SECOND;
    snib__engine_tick(engine, now);
    serve(engine);
    snib__hold_fix(engine, hold, 60 * SECOND, now);
    peers[0].renewals = 0;
    peers[0].silent = false;
    serve(engine);
    pass(engine, now + SECOND);
    assert_int_equal(peers[0].renewals, 3); /* of both, that of the first, and of the second */
    assert_int_equal(peers[0].lease_ms, 30000);
    assert_true(hold->deadline > now + 57 * SECOND);
    snib__engine_free(engine);
}

/* After a server's clock was set back, renewals shorten what it has kept for too long, but not a member of a lock of several
 * clients: its longer, fixed lease may begin while such a renewal is astray. */
static void members_are_not_corrected(void **state)
{
    (void)state;
    for (int member = 0; member < 2; member++) {
        struct snib__engine *engine = begin_cluster("a:0-16383");
        struct snib__hold *hold = held(engine, "m");
        hold->member = member != 0;
        hold->gate->node->moved_back = true;
        peers[0].lease_ms = 0;
        pass(engine, now + 11 * SECOND);
        assert_true(member ? peers[0].lease_ms > 0 : peers[0].lease_ms < 0);
        snib__engine_free(engine);
    }
}

/* What is renewed in one command with members is corrected all the same. */
static void others_are_corrected_beside_members(void **state)
{
    (void)state;
    for (int first = 0; first < 2; first++) {
        struct snib__engine *engine = begin_cluster("a:0-16383");
        struct snib__op *begun[] = {acquire(engine, gate(engine, SNIB_MUTEX, "{m}1"), 0),
                                    acquire(engine, gate(engine, SNIB_MUTEX, "{m}2"), 0)};
        pass(engine, now + SECOND);
        struct snib__hold *one = acquired(engine, begun[0]), *other = acquired(engine, begun[1]);
        (first ? one : other)->member = true;
        one->gate->node->moved_back = true;
        peers[0].lease_ms = peers[0].renewals = 0;
        pass(engine, now + 11 * SECOND);
        assert_int_equal(peers[0].renewals, 2);
        assert_true(first ? peers[0].lease_ms < 0 : peers[0].lease_ms > 0);
        snib__engine_free(engine);
    }
}

/* What was refused for a moment and is served since waits for the lock for as long as it may. */
static void refused_once_waits_on(void **state)
{
    (void)state;
    struct snib__engine *engine = begin_cluster("a:0-16383");
    peers[0].says = "CLUSTERDOWN Hash slot not served";
    peers[0].times = 1;
    peers[0].then = ":86400000"; /* held by another client */
    const struct snib__op *op = acquire(engine, gate(engine, SNIB_MUTEX, "m"), 0);
    pass(engine, now + SECOND);
    assert_int_equal(peers[0].times, 0);
    pass(engine, now + 20 * SECOND);
    assert_false(op->done);
    snib__engine_free(engine);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(refused_once_waits_on),
        cmocka_unit_test(members_are_not_corrected),
        cmocka_unit_test(others_are_corrected_beside_members),
        cmocka_unit_test(ask_is_for_one_request),
        cmocka_unit_test(forgotten_script_is_asked_for_again),
        cmocka_unit_test(script_that_two_have_forgotten),
        cmocka_unit_test(script_that_is_forgotten_during_a_pause),
        cmocka_unit_test(refusals_are_endured),
        cmocka_unit_test(many_that_wait_are_no_storm),
        cmocka_unit_test(renewals_are_not_paused_for_too_long),
        cmocka_unit_test(pauses_are_as_long_as_their_node_is_busy),
        cmocka_unit_test(release_that_is_refused_where_it_is_sent_on),
        cmocka_unit_test(node_that_is_down_does_not_keep_its_slots),
        cmocka_unit_test(served_after_refusals),
        cmocka_unit_test(all_are_equally_patient),
        cmocka_unit_test(those_behind_a_refused_release_are_told_why),
        cmocka_unit_test(refusal_is_not_why_there_is_no_connection),
        cmocka_unit_test(those_that_share_a_question_are_patient_once),
        cmocka_unit_test(those_behind_are_served_too),
        cmocka_unit_test(circle_is_no_storm),
        cmocka_unit_test(broken_off_script_is_repeated_by_its_owner),
        cmocka_unit_test(broken_off_extension_is_unknown),
        cmocka_unit_test(moved_request_waits_for_its_node),
        cmocka_unit_test(renewals_go_by_slot),
        cmocka_unit_test(node_that_comes_back_by_moved),
        cmocka_unit_test(paused_renewal_of_what_has_gone),
        cmocka_unit_test(late_correction_shortens_no_extension),
        cmocka_unit_test(hand_over_that_nobody_waits_for),
        cmocka_unit_test(late_renewal_gives_no_former_lease),
        cmocka_unit_test(divided_renewal_gives_no_former_lease),
        cmocka_unit_test(redirected_renewal_of_what_has_gone),
        cmocka_unit_test(misplaced_channel_goes_alone),
        cmocka_unit_test(channel_that_goes_in_a_circle),
        cmocka_unit_test(channel_that_is_left_follows_its_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
