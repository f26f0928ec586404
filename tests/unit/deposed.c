/* deposed.c - nodes of a cluster that no longer serve anything, or that are connected and do not
 * reply. */
#include "nodes.h"

static struct snib__link *lane(struct snib__node *node, uint32_t i)
{
    return snib__node_lane(node, i);
}

static struct snib__op *call(struct snib__engine *engine, const char *name)
{
    snib__engine_call(engine, true);
    struct snib__op *op = acquire(engine, gate(engine, SNIB_MUTEX, name), 0);
    snib__engine_call(engine, false);
    return op;
}

/* A cluster of two, and a request for {bar}2 that its node, a, does not answer on lane 1, while
 * nothing is in flight on the first lane. */
static struct snib__engine *begin_stalled(struct snib__node **out_node, struct snib__op **out_op)
{
    struct snib__engine *engine = begin_cluster("a:0-8191 b:8192-16383");
    held(engine, "{bar}1");
    held(engine, "{foo}1");
    struct snib__node *a = engine->route->serves(engine, "bar", 3);
    engine->config.lanes = 2;
    engine->config.scatter = true; /* each request opens one */
    struct snib__op *op = call(engine, "{bar}0");
    pass(engine, now + 100 * SNIB__MS);
    assert_true(op->done);
    assert_int_equal(lane(a, 1)->conn.state, SNIB__CONN_READY);
    engine->config.scatter = false;
    op = call(engine, "{bar}on the first");
    assert_ptr_equal(snib__op_link(op), lane(a, 0));
    *out_op = call(engine, "{bar}2");
    assert_ptr_equal(snib__op_link(*out_op), lane(a, 1));
    while (serve_link(engine, lane(a, 0)))
        ;
    assert_true(op->done);
    peers[0].silent = true;
    *out_node = a;
    return engine;
}

/* All slots move to b, and the map is requested at once. */
static void depose(struct snib__engine *engine)
{
    common_epoch++;
    map_of(common, "b:0-16383");
    said_down(engine, 'a');
    peers[1].says = "CLUSTERDOWN The cluster is down";
    peers[1].times = 1;
    acquire(engine, gate(engine, SNIB_MUTEX, "{foo}2"), 0);
    pass(engine, now + 100 * SNIB__MS);
    assert_int_equal(served_by(engine, "bar"), 'b');
}

/* A request pending on a lane is repeated at the next node soon after its node has lost its slots,
 * long before the reply is overdue. */
static void lane_of_a_deposed_node_is_left(void **state)
{
    (void)state;
    struct snib__node *a;
    struct snib__op *op;
    struct snib__engine *engine = begin_stalled(&a, &op);
    depose(engine);
    assert_false(op->done);
    assert_int_equal(lane(a, 1)->conn.state, SNIB__CONN_READY); /* it may still reply */
    pass(engine, now + 300 * SNIB__MS);
    assert_true(op->done && op->code == SNIB_OK);
    for (uint32_t i = 0; i < 2; i++)
        assert_int_equal(lane(a, i)->conn.state, SNIB__CONN_DOWN);
    snib__engine_free(engine);
}

/* The node's first connection has ended and cannot be made again: the lane no longer waits for
 * that. */
static void lane_outlives_the_first_of_a_deposed_node(void **state)
{
    (void)state;
    struct snib__node *a;
    struct snib__op *op;
    struct snib__engine *engine = begin_stalled(&a, &op);
    peers[0].down = true;
    snib__engine_link_down(engine, lane(a, 0), SNIB_EUNREACHABLE, 104, now);
    depose(engine);
    pass(engine, now + 300 * SNIB__MS);
    assert_true(op->done && op->code == SNIB_OK);
    assert_int_equal(lane(a, 1)->conn.state, SNIB__CONN_DOWN);
    snib__engine_free(engine);
}

/* A lane gets a MOVED while the node's first connection is down: requests that wait for that
 * connection follow the slot, too. */
static void what_waits_follows_its_slot(void **state)
{
    (void)state;
    char text[64];
    struct snib__node *a;
    struct snib__op *op;
    struct snib__engine *engine = begin_stalled(&a, &op);
    peers[0].hangs = true;
    snib__engine_link_down(engine, lane(a, 0), SNIB_EUNREACHABLE, 104, now);
    struct snib__op *waits = acquire(engine, gate(engine, SNIB_MUTEX, "{bar}3"), 0);
    serve(engine);
    assert_int_equal(a->todo_n, 1);
    moved(text, "bar", 'b');
    peers[0].says = text;
    peers[0].times = 1;
    peers[0].silent = false;
    serve(engine);
    assert_int_equal(served_by(engine, "bar"), 'b');
    assert_true(op->done && op->code == SNIB_OK);
    assert_true(waits->done && waits->code == SNIB_OK);
    snib__engine_free(engine);
}

/* A slot comes back to a node that had lost all, by MOVED: it serves again, and its replies may take their time.  With the
 * slot goes the last one of the other, which does not. */
static void node_with_a_slot_again_has_its_time(void **state)
{
    (void)state;
    char text[64];
    struct snib__engine *engine = begin_cluster("a:0-8191 b:8192-16383");
    held(engine, "bar");
    snib__hold_drop(engine, held(engine, "{foo}1"), now);
    serve(engine);
    common_epoch++;
    map_of(common, "a:0-16383");
    pass(engine, now + 15 * SECOND);
    assert_int_equal(served_by(engine, "foo"), 'a');
    moved(text, "foo", 'b');
    peers[0].says = text;
    peers[0].times = 1;
    struct snib__op *op = acquire(engine, gate(engine, SNIB_MUTEX, "foo"), 0);
    pass(engine, now + 50 * SNIB__MS);
    assert_true(op->done && op->code == SNIB_OK);
    assert_int_equal(served_by(engine, "foo"), 'b');
    const int connects = peers[1].connects;
    peers[1].silent = true;
    op = acquire(engine, gate(engine, SNIB_MUTEX, "{foo}2"), 0);
    pass(engine, now + 400 * SNIB__MS);
    assert_false(op->done);
    peers[1].silent = false;
    serve(engine);
    assert_true(op->done && op->code == SNIB_OK);
    assert_int_equal(peers[1].connects, connects);
    snib__engine_free(engine);
}

/* A node accepts the connection and does not reply: after a moment the other nodes are asked for
 * the map, and this one is not. */
static void silent_node_is_not_asked(void **state)
{
    (void)state;
    struct snib__engine *engine = begin_cluster("a:0-8191 b:8192-16383");
    held(engine, "bar");
    held(engine, "foo");
    struct snib__node *a = engine->route->serves(engine, "bar", 3);
    peers[0].silent = true;
    acquire(engine, gate(engine, SNIB_MUTEX, "{bar}2"), 0);
    pass(engine, now + 300 * SNIB__MS);
    const uint32_t owed = snib__link_in_flight(lane(a, 0));
    const int asked = peers[1].asked;
    pass(engine, now + SECOND);
    assert_true(snib__node_ready(a));
    assert_true(peers[1].asked >= asked + 8);
    assert_int_equal(snib__link_in_flight(lane(a, 0)), owed);
    snib__engine_free(engine);
}

/* A seed that leads to a cluster, and is no address of one of its nodes, such as a name for all of them: the client
 * closes that connection itself, so nothing has failed. */
static void seed_is_left_without_a_warning(void **state)
{
    (void)state;
    int32_t level;
    struct snib__engine *engine = begin_cluster("c:0-16383");
    snib__engine_log_level(engine, SNIB_LOG_WARNING);
    held(engine, "bar");
    pass(engine, now + 20 * SECOND);
    assert_true(peers[0].connects + peers[1].connects > 0);
    for (struct snib__link *link = snib__engine_links(engine); link; link = snib__link_next(link))
        if (link->node->addressed && link->node->address.host[0] != 'c')
            assert_int_equal(link->conn.state, SNIB__CONN_DOWN);
    assert_null(snib__engine_take_log(engine, &level));
    peers[2].silent = true;
    pass(engine, now + 20 * SECOND);
    assert_non_null(snib__engine_take_log(engine, &level));
    snib__engine_free(engine);
}

/* The slot of a sharded channel leaves its node, which says so: that is not the reply to a ping, which is still to come,
 * and is of the simple form once nothing is subscribed. */
static void unasked_end_of_a_subscription_answers_nothing(void **state)
{
    (void)state;
    static const char ended[] =
        "*3\r\n$12\r\nsunsubscribe\r\n$28\r\nredisson_lock__channel:{bar}\r\n:0\r\n";
    struct snib__engine *engine = begin_cluster("a:0-16383");
    engine->config.publish = SNIB_PUBLISH_SHARDED;
    peers[0].says = ":86400000";
    peers[0].times = -1;
    acquire(engine, gate(engine, SNIB_MUTEX, "bar"), 0);
    pass(engine, now + 100 * SNIB__MS);
    struct snib__node *a = engine->route->serves(engine, "bar", 3);
    struct snib__link *ear = &a->links[SNIB__PUBSUB];
    assert_int_equal(peers[0].listened, 1);
    assert_int_equal(ear->owed, 0);
    peers[0].mute = true;
    assert_int_equal(snib__chan_say(a, "PING", NULL, 0), 0);
    ear->ping_in = ear->owed;
    snib__engine_input(engine, ear, ended, strlen(ended), now);
    assert_int_equal(ear->owed, 2); /* it is subscribed to again */
    snib__engine_input(engine, ear, "+PONG\r\n", 7, now);
    assert_int_equal(ear->owed, 1);
    assert_false(ear->soiled);
    snib__engine_free(engine);
}

/* The same of a fair waiter's own channel, to which it listens behind a client of Redisson. */
static void unasked_end_of_a_waiters_own_channel(void **state)
{
    (void)state;
    char own[SNIB__CHANNEL_MAX], ended[SNIB__CHANNEL_MAX + 64];
    struct snib__engine *engine = begin_cluster("a:0-16383");
    engine->config.publish = SNIB_PUBLISH_SHARDED;
    peers[0].says = "*3\r\n:5000\r\n:1\r\n:1000";
    peers[0].times = -1;
    struct snib__gate *fair = gate(engine, SNIB_FAIR, "bar");
    const struct snib__op *op = acquire(engine, fair, 0);
    pass(engine, now + 100 * SNIB__MS);
    assert_true(op->hold->flags & SNIB__LISTENS);
    struct snib__link *ear = &fair->node->links[SNIB__PUBSUB];
    assert_int_equal(ear->owed, 0);
    size_t n = fair->kind->channel(own, engine, fair, 0);
    n += (size_t)sprintf(own + n, ":%d", (int)op->hold->number);
    sprintf(ended, "*3\r\n$12\r\nsunsubscribe\r\n$%zu\r\n%.*s\r\n:0\r\n", n, (int)n, own);
    peers[0].mute = true;
    assert_int_equal(snib__chan_say(fair->node, "PING", NULL, 0), 0);
    ear->ping_in = ear->owed;
    snib__engine_input(engine, ear, ended, strlen(ended), now);
    assert_int_equal(ear->owed, 1);
    snib__engine_input(engine, ear, "+PONG\r\n", 7, now);
    assert_int_equal(ear->owed, 0);
    assert_false(ear->soiled);
    snib__engine_free(engine);
}

/* The same for what replicas must have: that link is the only one on which anything is under way. */
static void durable_link_of_a_deposed_node_is_left(void **state)
{
    (void)state;
    struct snib__engine *engine = begin_cluster("a:0-8191 b:8192-16383");
    engine->config.durability = 1;
    engine->config.durability_timeout = SECOND;
    held(engine, "bar");
    held(engine, "{foo}1");
    peers[1].silent = true;
    struct snib__op *op = acquire(engine, gate(engine, SNIB_MUTEX, "foo"), 0);
    serve(engine);
    common_epoch++;
    map_of(common, "a:0-8191 c:8192-16383");
    said_down(engine, 'b');
    snib__node_ask(engine, engine->route->serves(engine, "bar", 3), 2, now);
    serve(engine);
    assert_int_equal(served_by(engine, "foo"), 'c');
    assert_false(op->done);
    pass(engine, now + 400 * SNIB__MS);
    assert_true(op->done && op->code == SNIB_OK);
    snib__engine_free(engine);
}

/* Its slots come back to it, key by key: what ASK brings there has the time that replicas may take. */
static void deposed_node_that_is_asked_may_replicate(void **state)
{
    (void)state;
    char text[64], words[WORDS][96];
    struct snib__engine *engine = begin_cluster("a:0-8191 b:8192-16383");
    engine->config.durability = 1;
    engine->config.durability_timeout = 3 * SECOND;
    held(engine, "bar");
    held(engine, "{foo}1");
    struct snib__link *line = &engine->route->serves(engine, "foo", 3)->lanes[SNIB__LANES_MAX - 1];
    common_epoch++;
    map_of(common, "a:0-16383");
    pass(engine, now + 12 * SECOND);
    sprintf(text, "ASK %d b:6379", snib__slot("foo", 3));
    peers[0].says = text;
    peers[0].times = -1;
    struct snib__op *op = acquire(engine, gate(engine, SNIB_MUTEX, "foo"), 0);
    for (int step = 0; step < 25;
         step++) { /* the acquisition is answered, but not the WAIT behind it */
        for (struct snib__link *link = snib__engine_links(engine); link;
             link = snib__link_next(link))
            while ((link != line || peers[1].asking < 1) && serve_link(engine, link))
                continue;
        now += 100 * SNIB__MS;
        snib__engine_tick(engine, now);
    }
    assert_int_equal(peers[1].asking, 1);
    assert_true(next_command(snib__link_output(line), words));
    assert_string_equal(words[0], "WAIT");
    snib__engine_input(engine, line, ":1\r\n", 4, now);
    assert_true(op->done && op->code == SNIB_OK);
    snib__engine_free(engine);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lane_of_a_deposed_node_is_left),
        cmocka_unit_test(durable_link_of_a_deposed_node_is_left),
        cmocka_unit_test(deposed_node_that_is_asked_may_replicate),
        cmocka_unit_test(lane_outlives_the_first_of_a_deposed_node),
        cmocka_unit_test(what_waits_follows_its_slot),
        cmocka_unit_test(node_with_a_slot_again_has_its_time),
        cmocka_unit_test(silent_node_is_not_asked),
        cmocka_unit_test(seed_is_left_without_a_warning),
        cmocka_unit_test(unasked_end_of_a_subscription_answers_nothing),
        cmocka_unit_test(unasked_end_of_a_waiters_own_channel),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
