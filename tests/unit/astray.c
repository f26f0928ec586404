/* astray.c - redirections that are useless or late: for requests that concern no name, for
 * collected requests, to nodes that cannot be reached. */
#include "nodes.h"

static struct snib__engine *begin_durable(const char *map)
{
    struct snib__engine *engine = begin_cluster(map);
    engine->config.durability = 1;
    engine->config.durability_timeout = SECOND;
    return engine;
}

/* Requests to a server itself are never redirected, whatever it replies: no other could answer
 * them. */
static void own_questions_are_not_redirected(void **state)
{
    (void)state;
    static const char *const questions[] = {"WAIT", "TIME", "CLUSTER"};
    static const char *const errors[] = {"MOVED 866 b:6379", "ASK 866 b:6379",
                                         "TRYAGAIN Multiple keys request",
                                         "CLUSTERDOWN The cluster is down"};
    for (size_t i = 0; i < COUNT(questions); i++)
        for (size_t j = 0; j < COUNT(errors); j++) {
            struct snib__engine *engine = begin_durable("a:0-8191 b:8192-16383");
            held(engine, "{bar}1");
            held(engine, "foo");
            peers[0].own = questions[i];
            peers[0].own_says = errors[j];
            acquire(engine, gate(engine, SNIB_MUTEX, "{bar}2"), 0);
            for (int step = 0; step < 200; step++) {
                pass(engine, now + 100 * SNIB__MS);
                assert_int_equal(engine->paused_n, 0);
            }
            assert_in_range(peers[0].asked, 1, 60); /* nor is it asked in a tight loop */
            snib__engine_free(engine);
        }
}

/* An acquisition that was redirected by ASK is collected at the target, while that one is busy with
 * others, and is sent there. */
static void asked_acquisition_is_collected(void **state)
{
    (void)state;
    char text[64];
    struct snib__engine *engine = begin_durable("a:0-8191 b:8192-16383");
    held(engine, "{bar}1");
    sprintf(text, "ASK %d b:6379", snib__slot("bar", 3));
    peers[0].says = text;
    peers[0].times = -1;
    const int sent = peers[0].scripts;
    struct snib__op *op = acquire(engine, gate(engine, SNIB_MUTEX, "{bar}2"), 0);
    pass(engine, now + SECOND);
    assert_true(op->done && op->code == SNIB_OK);
    /* the first time nobody was connected to it, the second time not for what replicas must have */
    assert_int_equal(peers[0].scripts, sent + 3);
    assert_int_equal(peers[1].asking, 1);
    snib__engine_free(engine);
}

/* One that is collected there behind a WAIT is sent there when that is answered, and not first to its own node again. */
static void collected_acquisition_stays(void **state)
{
    (void)state;
    char text[64];
    struct snib__engine *engine = begin_durable("a:0-8191 b:8192-16383");
    held(engine, "{bar}1");
    held(engine, "{foo}1");
    struct snib__node *node = engine->route->serves(engine, "foo", 3);
    sprintf(text, "ASK %d b:6379", snib__slot("bar", 3));
    peers[0].says = text;
    peers[0].times = -1;
    peers[1].silent = true;
    acquire(engine, gate(engine, SNIB_MUTEX, "{foo}2"), 0);
    const struct snib__op *op = acquire(engine, gate(engine, SNIB_MUTEX, "{bar}2"), 0);
    pass(engine, now + 200 * SNIB__MS);
    assert_true(snib__durable_pending(node));
    const int sent = peers[0].scripts;
    peers[1].silent = false;
    pass(engine, now + 200 * SNIB__MS);
    assert_true(op->done && op->code == SNIB_OK);
    assert_int_equal(peers[0].scripts, sent);
    assert_int_equal(peers[1].asking, 1);
    snib__engine_free(engine);
}

/* Readers' lease keys are not declared by the script: where they have not arrived yet, all readers
 * would seem dead.  So requests that check readers wait until the slot has moved. */
static void readers_are_not_looked_for_too_early(void **state)
{
    (void)state;
    static const char members[] = "m{bar}1\0r{bar}2";
    static const struct {
        int32_t kind;
        const char *name;
        size_t n;
    } locks[] = {{SNIB_MUTEX, "{bar}2", 6},
                 {SNIB_READ, "{bar}2", 6},
                 {SNIB_WRITE, "{bar}2", 6},
                 {SNIB__MULTI, members, sizeof members}};
    for (size_t i = 0; i < COUNT(locks); i++) {
        char text[64];
        struct snib__engine *engine = begin_cluster("a:0-8191 b:8192-16383");
        held(engine, "{bar}0");
        sprintf(text, "ASK %d b:6379", snib__slot("bar", 3));
        peers[0].says = text;
        peers[0].times = -1;
        struct snib__gate *lock = snib__gate_get(engine, locks[i].kind, locks[i].name, locks[i].n);
        struct snib__op *op = acquire(engine, lock, 0);
        pass(engine, now + SECOND);
        assert_int_equal(op->done, locks[i].kind == SNIB_MUTEX);
        assert_int_equal(peers[1].asking, locks[i].kind == SNIB_MUTEX);
        moved(text, "bar", 'b');
        pass(engine, now + SECOND);
        assert_true(op->done && op->code == SNIB_OK);
        snib__engine_free(engine);
    }
}

/* It does not wait for a connection there: the target may be gone, the move given up, and its own node serves it.  Nor does
 * one that is collected behind a WAIT, if that connection ends. */
static void asked_acquisition_waits_for_no_link(void **state)
{
    (void)state;
    for (int variant = 0; variant < 4; variant++) {
        char text[64];
        int32_t code;
        bool busy = variant & 1, dead = variant & 2;
        struct snib__engine *engine = begin_durable("a:0-8191 b:8192-16383");
        held(engine, "{bar}1");
        if (busy)
            held(engine, "{foo}1");
        else
            snib__engine_describe(engine, "foo", 3, 100, now, &code);
        serve(engine);
        struct snib__node *node = engine->route->serves(engine, "foo", 3);
        struct snib__link *link = &node->lanes[SNIB__LANES_MAX - 1];
        assert_true(snib__node_ready(node));
        assert_int_equal(link->conn.state, busy ? SNIB__CONN_READY : SNIB__CONN_DOWN);
        sprintf(text, "ASK %d b:6379", snib__slot("bar", 3));
        peers[0].says = text;
        peers[0].times = -1;
        peers[1].hangs = true; /* from now on */
        peers[1].silent = busy;
        if (busy)
            acquire(engine, gate(engine, SNIB_MUTEX, "{foo}2"), 0);
        struct snib__op *op = acquire(engine, gate(engine, SNIB_MUTEX, "{bar}2"), 0);
        struct snib__op *next = acquire(engine, gate(engine, SNIB_MUTEX, "{bar}2"), 0);
        pass(engine, now + 200 * SNIB__MS);
        assert_false(op->done);
        assert_int_equal(snib__durable_pending(node), busy);
        peers[0].says = NULL;
        if (dead)
            crash(engine, 'b');
        else if (busy)
            snib__engine_link_down(engine, link, SNIB_EUNREACHABLE, 104, now);
        pass(engine, now + 200 * SNIB__MS);
        assert_true(op->done && op->code == SNIB_OK);
        snib__hold_drop(engine, op->hold, now);
        serve(engine);
        assert_true(next->done && next->code == SNIB_OK);
        snib__engine_free(engine);
    }
}

/* While a node that has no slots yet is asked for how many of its replicas have a grant, it is not left. */
static void node_without_slots_has_time_to_replicate(void **state)
{
    (void)state;
    char text[64], words[WORDS][96];
    struct snib__engine *engine = begin_durable("a:0-16383");
    engine->config.durability_timeout = 3 * SECOND;
    held(engine, "{bar}1");
    sprintf(text, "ASK %d c:6379", snib__slot("bar", 3));
    peers[0].says = text;
    peers[0].times = -1;
    struct snib__op *op = acquire(engine, gate(engine, SNIB_MUTEX, "{bar}2"), 0);
    pass(engine, now + 10 * SNIB__MS);
    for (int step = 0; step < 100 && peers[2].asking == 0; step++)
        pass(engine, now + SNIB__MS);
    snib__hold_drop(engine, acquired(engine, op), now);
    serve(engine);
    struct snib__link *line = &engine->nodes->lanes[SNIB__LANES_MAX - 1];
    assert_string_equal(line->node->where, "c:6379");
    op = acquire(engine, gate(engine, SNIB_MUTEX, "{bar}2"), 0);
    for (int step = 0; step < 29;
         step++) { /* the acquisition is answered, but not the WAIT behind it */
        for (struct snib__link *link = snib__engine_links(engine); link;
             link = snib__link_next(link))
            while ((link != line || peers[2].asking < 3) && serve_link(engine, link))
                continue;
        now += 100 * SNIB__MS;
        snib__engine_tick(engine, now);
    }
    assert_int_equal(peers[2].asking, 3);
    assert_int_equal(line->conn.state, SNIB__CONN_READY);
    assert_true(next_command(snib__link_output(line), words));
    assert_string_equal(words[0], "WAIT");
    snib__engine_input(engine, line, ":0\r\n", 4, now);
    assert_true(op->done && op->code == SNIB_EREPLICAS);
    snib__engine_free(engine);
}

/* ---- ASK for a node that cannot be reached ----------------------------------------------------- */

static char target[64];

/* From now on "a" has all requests for the slot of "bar" go to a node that is dead, or connects to nobody. */
static void ask_in_vain(char host, bool dead)
{
    sprintf(target, "ASK %d %c:6379", snib__slot("bar", 3), host);
    peers[0].says = target;
    peers[0].times = -1;
    peers[host - 'a'].down = dead;
    peers[host - 'a'].hangs = !dead;
}

static struct snib__op *let_go(struct snib__engine *engine, struct snib__hold *hold)
{
    int32_t code;
    struct snib__op *op = snib__engine_release(engine, hold, now, &code);
    assert_non_null(op);
    return op;
}

/* Nothing was carried out, and the caller learns it when its patience ends, whether the node has slots or not. */
static void node_that_cannot_be_asked(void **state)
{
    (void)state;
    for (int variant = 0; variant < 8; variant++) {
        const char host = variant & 1 ? 'b' : 'c';
        struct snib__engine *engine = begin_cluster("a:0-8191 b:8192-16383");
        struct snib__hold *hold = held(engine, "bar");
        ask_in_vain(host, variant & 2);
        struct snib__op *op = variant & 4 ? let_go(engine, hold)
                                          : acquire(engine, gate(engine, SNIB_MUTEX, "{bar}2"), 0);
        pass(engine, now + 4500 * SNIB__MS);
        assert_false(op->done);
        assert_in_range(peers[host - 'a'].connects, 1, 100);
        pass(engine, now + SECOND);
        assert_true(op->done && op->code == SNIB_ECONNECT);
        assert_string_equal(op->words, target);
        snib__engine_free(engine);
    }
}

/* The slot stays where it is after all: what waited goes on there, and so does what waited for that. */
static void move_that_is_given_up(void **state)
{
    (void)state;
    for (int variant = 0; variant < 4; variant++) {
        struct snib__engine *engine = begin_cluster("a:0-8191 b:8192-16383");
        struct snib__hold *hold = held(engine, "bar");
        ask_in_vain('b', variant & 1);
        struct snib__op *op = variant & 2 ? let_go(engine, hold)
                                          : acquire(engine, gate(engine, SNIB_MUTEX, "{bar}2"), 0);
        struct snib__op *next =
            acquire(engine, gate(engine, SNIB_MUTEX, variant & 2 ? "bar" : "{bar}2"), 0);
        pass(engine, now + 2 * SECOND);
        assert_false(op->done);
        peers[0].says = NULL;
        pass(engine, now + 200 * SNIB__MS);
        assert_true(op->done && op->code == SNIB_OK);
        if (!(variant & 2))
            let_go(engine, op->hold);
        serve(engine);
        assert_true(next->done && next->code == SNIB_OK);
        snib__engine_free(engine);
    }
}

/* The node is reached, but serves nothing yet, and is gone before it does. */
static void node_that_is_asked_while_it_loads(void **state)
{
    (void)state;
    struct snib__engine *engine = begin_cluster("a:0-8191 b:8192-16383");
    held(engine, "{bar}1");
    held(engine, "foo");
    ask_in_vain('b', false);
    peers[1].says = "LOADING Redis is loading the dataset in memory";
    peers[1].times = 1;
    struct snib__op *op = acquire(engine, gate(engine, SNIB_MUTEX, "{bar}2"), 0);
    serve(engine);
    assert_int_equal(peers[1].asking, 1);
    assert_false(op->done);
    peers[0].says = NULL;
    pass(engine, now + 200 * SNIB__MS);
    assert_true(op->done && op->code == SNIB_OK);
    snib__engine_free(engine);
}

/* Two requests are under way: the first is told that the name has moved, the second that the old master loads.  That one
 * is not connected again, but nothing waits for it. */
static void refusal_by_a_former_master(void **state)
{
    (void)state;
    char text[64];
    struct snib__engine *engine = begin_cluster("a:0-8191 b:8192-16383");
    held(engine, "bar");
    held(engine, "foo");
    moved(text, "bar", 'b');
    peers[0].says = text;
    peers[0].times = 1;
    peers[0].then = "LOADING Redis is loading the dataset in memory";
    peers[0].hangs = true; /* from now on */
    struct snib__op *first = acquire(engine, gate(engine, SNIB_MUTEX, "{bar}1"), 0);
    struct snib__op *second = acquire(engine, gate(engine, SNIB_MUTEX, "{bar}2"), 0);
    pass(engine, now + 200 * SNIB__MS);
    assert_true(first->done && first->code == SNIB_OK);
    assert_true(second->done && second->code == SNIB_OK);
    snib__engine_free(engine);
}

/* A question that has no gate waits for a dead node, too, and is asked of the next one. */
static void question_about_a_name_follows_it(void **state)
{
    (void)state;
    int32_t code;
    struct snib__engine *engine = begin_cluster("a:0-8191 b:8192-16383");
    held(engine, "bar");
    held(engine, "foo");
    crash(engine, 'b');
    struct snib__op *op = snib__engine_describe(engine, "foo", 3, 100, now, &code);
    pass(engine, now + 500 * SNIB__MS);
    assert_false(op->done);
    common_epoch++;
    map_of(common, "a:0-8191 c:8192-16383");
    pass(engine, now + 500 * SNIB__MS);
    assert_true(op->done);
    snib__engine_free(engine);
}

/* A node that has no slots yet is no node to leave while keys go there: it takes a while to connect, and the map, which
 * does not name it, is asked for meanwhile. */
static void node_without_slots_is_connected_for_long_enough(void **state)
{
    (void)state;
    struct snib__engine *engine = begin_cluster("a:0-16383");
    struct snib__hold *hold = held(engine, "bar");
    ask_in_vain('c', false);
    struct snib__op *op = acquire(engine, gate(engine, SNIB_MUTEX, "{bar}2"), 0);
    pass(engine, now + SECOND);
    assert_false(op->done);
    peers[2].hangs = false;
    for (struct snib__link *link = snib__engine_links(engine); link; link = snib__link_next(link))
        if (link->connecting)
            snib__engine_link_up(engine, link, now);
    pass(engine, now + SECOND);
    assert_true(op->done && op->code == SNIB_OK);
    pass(engine, now + 11 * SECOND);
    assert_int_equal(snib__hold_state(engine, hold, now), SNIB_HOLD_VALID);
    assert_in_range(peers[2].connects, 1, 4);
    snib__engine_free(engine);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(own_questions_are_not_redirected),
        cmocka_unit_test(asked_acquisition_is_collected),
        cmocka_unit_test(collected_acquisition_stays),
        cmocka_unit_test(asked_acquisition_waits_for_no_link),
        cmocka_unit_test(node_without_slots_has_time_to_replicate),
        cmocka_unit_test(readers_are_not_looked_for_too_early),
        cmocka_unit_test(node_that_cannot_be_asked),
        cmocka_unit_test(move_that_is_given_up),
        cmocka_unit_test(node_that_is_asked_while_it_loads),
        cmocka_unit_test(refusal_by_a_former_master),
        cmocka_unit_test(question_about_a_name_follows_it),
        cmocka_unit_test(node_without_slots_is_connected_for_long_enough),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
