/* outages.c - nodes of a cluster that are gone, silent or replaced: what is asked for, who waits how long, and what ends. */
#include "nodes.h"

/* A failover: the other nodes are asked for the map, and a hold that the new master does not have
 * is lost because of it. */
static void failover_is_asked_for(void **state)
{
    (void)state;
    struct snib__engine *engine = begin_cluster("a:0-8191 b:8192-16383");
    struct snib__hold *hold = held(engine, "foo"); /* 12182 */
    assert_int_equal(served_by(engine, "foo"), 'b');
    held(engine, "bar"); /* 5061 */
    crash(engine, 'b');
    pass(engine, now + 2 * SECOND);
    assert_int_equal(snib__hold_state(engine, hold, now), SNIB_HOLD_AT_RISK);
    common_epoch++;
    map_of(common, "a:0-8191 c:8192-16383");
    pass(engine, now + 200 * SNIB__MS); /* while it is not served the others keep being asked */
    assert_int_equal(served_by(engine, "foo"), 'c');
    assert_int_equal(snib__hold_state(engine, hold, now), SNIB_HOLD_VALID);
    assert_int_equal(peers[2].renewals, 1);
    snib__engine_free(engine);
}

/* A hold that its release does not find at the new master is lost for the same reason, also if the release is that of the
 * client's end. */
static void failover_is_why_a_release_is_late(void **state)
{
    (void)state;
    int32_t code;
    for (int closes = 0; closes < 2; closes++) {
        struct snib__op *op = NULL;
        struct snib__engine *engine = begin_cluster("a:0-8191 b:8192-16383");
        held(engine, "bar");
        struct snib__hold *hold = held(engine, "foo");
        crash(engine, 'b');
        if (!closes)
            op = snib__engine_release(engine, hold, now, &code);
        pass(engine, now + SECOND);
        assert_false(!closes && op->done);
        common_epoch++;
        map_of(common, "a:0-8191 c:8192-16383");
        peers[2].hangs = true;
        peers[2].says = ":0";
        peers[2].times = -1;
        pass(engine, now + SECOND);
        if (closes)
            snib__engine_close(engine, now);
        for (struct snib__link *link = snib__engine_links(engine); link;
             link = snib__link_next(link))
            if (link->connecting)
                snib__engine_link_up(engine, link, now);
        pass(engine, now + SECOND);
        assert_int_equal(engine->releasing, 0);
        assert_true(closes || (op->code == SNIB_LOST && op->reason == SNIB_REASON_FAILOVER));
        assert_int_equal(engine->stats.lost_failover, 1);
        snib__engine_free(engine);
    }
}

/* One failover after the other, or one outage of the same node after the other: with each the map is queried as often as
 * with the first, however many queries there were before. */
static void each_outage_is_asked_about_as_often(void **state)
{
    (void)state;
    for (int replaced = 0; replaced < 2; replaced++) {
        struct snib__engine *engine = begin_cluster("a:0-8191 b:8192-16383");
        held(engine, "foo"); /* 12182 */
        held(engine, "bar"); /* 5061 */
        for (int round = 0; round < 4; round++) {
            const char dead = replaced && round % 2 ? 'c' : 'b';
            const char next = replaced && round % 2 == 0 ? 'c' : 'b';
            char map[64];
            crash(engine, dead);
            pass(engine, now + 1500 * SNIB__MS);
            const int asked = peers[0].asked;
            pass(engine, now + SECOND);
            assert_true(peers[0].asked - asked >= 8);
            sprintf(map, "a:0-8191 %c:8192-16383", next);
            common_epoch += replaced;
            map_of(common, map);
            peers[next - 'a'].down = false;
            pass(engine, now + (replaced ? 200 : 2500) * SNIB__MS); /* it connects again */
            assert_int_equal(served_by(engine, "foo"), next);
            pass(engine, now + 100 * SNIB__MS);
        }
        snib__engine_free(engine);
    }
}

/* A slot is not served now: the other nodes are asked for the map at once, repeatedly, and for as
 * long as that lasts. */
static void refusal_has_the_map_asked_for(void **state)
{
    (void)state;
    struct snib__engine *engine = begin_cluster("a:0-8191 b:8192-16383");
    held(engine, "foo");
    held(engine, "bar");
    pass(engine, now + SECOND);
    peers[0].says = "CLUSTERDOWN Hash slot not served";
    peers[0].times = -1;
    struct snib__op *op = acquire(engine, gate(engine, SNIB_MUTEX, "{bar}2"), 0);
    int asked = peers[0].asked + peers[1].asked;
    pass(engine, now + SECOND);
    asked = peers[0].asked + peers[1].asked - asked;
    assert_true(asked >= 4 && asked <= 20);
    common_epoch++;
    map_of(common, "a:0-100 b:101-16383");
    pass(engine, now + SECOND);
    assert_true(op->done && op->code == SNIB_OK);
    assert_int_equal(served_by(engine, "bar"), 'b');
    asked = peers[0].asked + peers[1].asked;
    pass(engine, now + 9 * SECOND);
    assert_true(peers[0].asked + peers[1].asked - asked <= 1);
    snib__engine_free(engine);
}

/* ---- A failover ---------------------------------------------------------------------------------------- */

/* The node is down, and the others already know its successor: requests that wait for it wait no
 * longer. */
static void failed_node_is_not_waited_for(void **state)
{
    (void)state;
    struct snib__engine *engine = begin_cluster("a:0-8191 b:8192-16383");
    held(engine, "{foo}1");
    held(engine, "bar");
    ((struct snib__cluster *)engine->map)->asked_at = now; /* slightly too early */
    common_epoch++;
    map_of(common, "a:0-8191 c:8192-16383");
    crash(engine, 'b');
    struct snib__op *op = acquire(engine, gate(engine, SNIB_MUTEX, "{foo}2"), 0);
    pass(engine, now + 100 * SNIB__MS);
    assert_int_equal(served_by(engine, "foo"), 'c');
    assert_true(op->done && op->code == SNIB_OK);
    snib__engine_free(engine);
}

/* A client that only waits has nothing under way on the silent node but a ping; it looks for the failover all the same,
 * before its next attempt. */
static void silence_is_noticed_while_waiting(void **state)
{
    (void)state;
    struct snib__engine *engine = begin_cluster("a:0-8191 b:8192-16383");
    engine->config.lease = 3 * SECOND;
    held(engine, "bar");
    peers[1].says = peers[2].says = ":86400000"; /* another client has it, for a day */
    peers[1].times = peers[2].times = -1;
    struct snib__op *op = acquire(engine, gate(engine, SNIB_MUTEX, "foo"), 0);
    pass(engine, now + SECOND);
    const int scripts = peers[1].scripts;
    peers[1].silent = true;
    pass(engine, now + 1500 * SNIB__MS);
    common_epoch++;
    map_of(common, "a:0-8191 c:8192-16383");
    pass(engine, now + 200 * SNIB__MS);
    assert_int_equal(served_by(engine, "foo"), 'c');
    assert_int_equal(peers[1].scripts, scripts);
    assert_false(op->done);
    snib__engine_free(engine);
}

/* A client that takes locks which replicas must have, and has nothing else under way there: with its connection for that not
 * yet open, and with it.  The node is cut off without a word, and replaced. */
static void silence_of_durable_link_is_noticed(void **state)
{
    (void)state;
    int32_t code;
    for (int open = 0; open < 2; open++) {
        struct snib__engine *engine = begin_cluster("a:0-8191 b:8192-16383");
        engine->config.durability = 1;
        engine->config.durability_timeout = SECOND;
        held(engine, "bar");
        if (open)
            snib__hold_drop(engine, held(engine, "{foo}1"), now);
        else
            snib__engine_describe(engine, "foo", 3, 100, now, &code);
        pass(engine, now + 12 * SECOND); /* it is not due to ask for the map soon */
        const int asked = peers[0].asked;
        peers[1].silent = peers[1].hangs = true;
        struct snib__op *op = acquire(engine, gate(engine, SNIB_MUTEX, "foo"), 0);
        pass(engine, now + 1500 * SNIB__MS);
        assert_true(peers[0].asked - asked >= 8);
        common_epoch++;
        map_of(common, "a:0-8191 c:8192-16383");
        pass(engine, now + 500 * SNIB__MS);
        assert_int_equal(served_by(engine, "foo"), 'c');
        assert_true(op->done && op->code == SNIB_OK);
        snib__engine_free(engine);
    }
}

/* The only replica takes over, and has none itself.  A number of replicas that was asked for counts there, too, as it does
 * behind sentinels; where there has never been a replica it does not. */
static void replica_that_takes_over_has_none(void **state)
{
    (void)state;
    for (int variant = 0; variant < 4; variant++) {
        bool never = variant & 1, known = variant & 2;
        struct snib__engine *engine = begin_cluster("a:0-8191 b:8192-16383");
        engine->config.durability = 1;
        engine->config.durability_policy = SNIB_DURABILITY_REFUSE;
        engine->config.durability_timeout = SECOND;
        peers[1].alone = never;
        peers[2].alone = true;
        held(engine, "bar");
        held(engine, "{foo}1");
        crash(engine, 'b');
        common_epoch++;
        map_of(common, "a:0-8191 c:8192-16383");
        if (known) /* it is met before it is needed */
            pass(engine, now + 2 * SECOND);
        struct snib__op *op = acquire(engine, gate(engine, SNIB_MUTEX, "foo"), 0);
        pass(engine, now + 2 * SECOND);
        assert_true(op->done);
        assert_int_equal(op->code, never ? SNIB_OK : SNIB_EREPLICAS);
        snib__engine_free(engine);
    }
}

/* The same, learnt from the former master, which redirects a request: with the first slot that is moved, not the last one,
 * the map not being asked yet, or not having heard of it.  If only that slot was moved, the new server is as it was. */
static void replica_that_takes_over_by_hand(void **state)
{
    (void)state;
    enum { TAKES_OVER, ONE_SLOT, UNHEARD, CASES };
    for (int which = 0; which < CASES; which++) {
        char text[64];
        struct snib__engine *engine = begin_cluster("a:0-8191 b:8192-16383");
        engine->config.durability = 1;
        engine->config.durability_policy = SNIB_DURABILITY_REFUSE;
        engine->config.durability_timeout = SECOND;
        peers[2].alone = true;
        held(engine, "bar");
        snib__hold_drop(engine, held(engine, "{foo}1"), now);
        serve(engine);
        moved(text, "foo", 'c');
        peers[1].says = text;
        peers[1].times = 1;
        struct snib__op *op = acquire(engine, gate(engine, SNIB_MUTEX, "foo"), 0);
        serve(engine);
        pass(engine, now + 100 * SNIB__MS);
        assert_int_equal(served_by(engine, "foo"), 'c');
        pass(engine, now + 2 * SECOND);
        assert_true(op->done);
        assert_int_equal(op->code, SNIB_EREPLICAS);
        if (which != UNHEARD) {
            common_epoch++;
            map_of(common, which == ONE_SLOT ? "a:0-8191 b:8192-12181 c:12182-12182 b:12183-16383"
                                             : "a:0-8191 c:8192-16383");
        }
        pass(engine, now + 20 * SECOND);
        op = acquire(engine, gate(engine, SNIB_MUTEX, which == UNHEARD ? "{foo}3" : "{foo}2"), 0);
        pass(engine, now + 2 * SECOND);
        assert_true(op->done);
        if (which != UNHEARD) { /* then the maps say that the former master has it */
            assert_int_equal(served_by(engine, "foo"), 'c');
            assert_int_equal(op->code, which == ONE_SLOT ? SNIB_OK : SNIB_EREPLICAS);
        }
        snib__engine_free(engine);
    }
}

/* A replica that has come since replicas were counted, and that only a WAIT has met: it is missed when it has gone. */
static void replica_that_a_wait_has_met(void **state)
{
    (void)state;
    char text[64];
    struct snib__engine *engine = begin_cluster("a:0-4999 b:8192-16383 c:5000-8191");
    engine->config.durability = 1;
    engine->config.durability_policy = SNIB_DURABILITY_REFUSE;
    engine->config.durability_timeout = SECOND;
    peers[2].alone = true;
    snib__hold_drop(engine, held(engine, "{foo}1"), now);
    struct snib__op *op = acquire(engine, gate(engine, SNIB_MUTEX, "bar"), 0);
    serve(engine);
    pass(engine, now + 100 * SNIB__MS); /* they have just been counted */
    snib__hold_drop(engine, acquired(engine, op), now);
    serve(engine);
    peers[2].alone = false;
    moved(text, "foo", 'c'); /* it may have been a replica of b, so it is asked */
    peers[1].says = text;
    peers[1].times = 1;
    op = acquire(engine, gate(engine, SNIB_MUTEX, "foo"), 0);
    serve(engine);
    snib__hold_drop(engine, acquired(engine, op), now);
    peers[2].alone = true;
    snib__durable_known(
        gate(engine, SNIB_MUTEX, "{foo}2")->node); /* a map has heard of that slot alone */
    pass(engine, now + 2 * SECOND);
    op = acquire(engine, gate(engine, SNIB_MUTEX, "{foo}2"), 0);
    pass(engine, now + 2 * SECOND);
    assert_int_equal(served_by(engine, "foo"), 'c');
    assert_true(op->done);
    assert_int_equal(op->code, SNIB_EREPLICAS);
    snib__engine_free(engine);
}

/* The same, learnt from a map that is not believed about one slot, of which a MOVED has said lately that the former master has
 * it: so that one seems to serve still. */
static void replica_that_takes_over_all_but_a_slot(void **state)
{
    (void)state;
    char text[64];
    struct snib__engine *engine = begin_cluster("a:0-8191 b:8192-16383");
    engine->config.durability = 1;
    engine->config.durability_policy = SNIB_DURABILITY_REFUSE;
    engine->config.durability_timeout = SECOND;
    peers[2].alone = true;
    snib__hold_drop(engine, held(engine, "{foo}1"), now);
    snib__hold_drop(engine, held(engine, "{bar}1"), now);
    serve(engine);
    moved(text, "bar", 'b');
    peers[0].says = text;
    peers[0].times = 1;
    snib__hold_drop(engine, held(engine, "{bar}2"), now);
    serve(engine);
    assert_int_equal(served_by(engine, "bar"), 'b');
    crash(engine, 'b');
    common_epoch++;
    map_of(common, "a:0-5060 c:5061-5061 a:5062-8191 c:8192-16383");
    struct snib__op *op = acquire(engine, gate(engine, SNIB_MUTEX, "foo"), 0);
    pass(engine, now + 2 * SECOND);
    assert_int_equal(served_by(engine, "foo"), 'c');
    assert_int_equal(served_by(engine, "bar"), 'b');
    assert_true(op->done);
    assert_int_equal(op->code, SNIB_EREPLICAS);
    snib__engine_free(engine);
}

/* A slot leaves a master, then its replica takes over, and one map tells both: the replica may be any of the heirs, but one
 * that had slots before is none. */
static void replica_that_takes_over_what_is_left(void **state)
{
    (void)state;
    const char *maps[] = {"a:0-8191 c:8192-16382 a:16383-16383", "a:0-8192 c:8193-16383"};
    for (int which = 0; which < 2; which++) {
        struct snib__engine *engine = begin_cluster("a:0-8191 b:8192-16383");
        engine->config.durability = 1;
        engine->config.durability_policy = SNIB_DURABILITY_REFUSE;
        engine->config.durability_timeout = SECOND;
        peers[0].alone = peers[2].alone = true;
        snib__hold_drop(engine, held(engine, "{bar}1"), now);
        snib__hold_drop(engine, held(engine, "{foo}1"), now);
        serve(engine);
        crash(engine, 'b');
        common_epoch++;
        map_of(common, maps[which]);
        struct snib__op *op = acquire(engine, gate(engine, SNIB_MUTEX, "foo"), 0);
        pass(engine, now + 2 * SECOND);
        assert_int_equal(served_by(engine, "foo"), 'c');
        assert_true(op->done);
        assert_int_equal(op->code, SNIB_EREPLICAS);
        op = acquire(engine, gate(engine, SNIB_MUTEX, "bar"), 0);
        pass(engine, now + 2 * SECOND);
        assert_true(op->done);
        if (which == 1) /* the last heir counts in any case */
            assert_int_equal(op->code, SNIB_OK);
        snib__engine_free(engine);
    }
}

/* What is known of a node's replicas is of the server at its address: the place of one that has left the cluster, taken by
 * another, says nothing. */
static void new_node_never_had_a_replica(void **state)
{
    (void)state;
    struct snib__engine *engine = begin_cluster("a:0-8191 b:8192-16383");
    engine->config.durability = 1;
    engine->config.durability_policy = SNIB_DURABILITY_REFUSE;
    engine->config.durability_timeout = SECOND;
    peers[3].alone = true;
    held(engine, "bar");
    snib__hold_drop(engine, held(engine, "{foo}1"), now);
    serve(engine);
    const struct snib__node *node = engine->route->serves(engine, "foo", 3);
    common_epoch++;
    map_of(common, "a:0-16383");
    pass(engine, now + 15 * SECOND);
    common_epoch++;
    map_of(common, "a:0-8191 d:8192-16383");
    pass(engine, now + 15 * SECOND);
    assert_ptr_equal(engine->route->serves(engine, "foo", 3), node);
    assert_int_equal(served_by(engine, "foo"), 'd');
    struct snib__op *op = acquire(engine, gate(engine, SNIB_MUTEX, "foo"), 0);
    pass(engine, now + 2 * SECOND);
    assert_true(op->done && op->code == SNIB_OK);
    snib__engine_free(engine);
}

/* Only the pub/sub link is silent: the node answers on the other, and is asked a few times a second. */
static void silence_of_messages_is_no_storm(void **state)
{
    (void)state;
    struct snib__engine *engine = begin_cluster("a:0-8191 b:8192-16383");
    engine->config.lease = 3 * SECOND;
    held(engine, "bar");
    peers[1].says = ":86400000"; /* another client has it, for a day */
    peers[1].times = -1;
    acquire(engine, gate(engine, SNIB_MUTEX, "foo"), 0);
    pass(engine, now + SECOND);
    peers[1].mute = true;
    const int probed = peers[1].probed;
    pass(engine, now + 2 * SECOND);
    assert_in_range(peers[1].probed - probed, 1, 8);
    snib__engine_free(engine);
}

/* A sleeping waiter's patience is with its present server's outage, not with the previous one's. */
static void patience_is_with_the_present_server(void **state)
{
    (void)state;
    struct snib__engine *engine = begin_cluster("a:0-8191 b:8192-16383");
    held(engine, "bar");
    peers[1].says = peers[2].says = ":86400000";
    peers[1].times = peers[2].times = -1;
    struct snib__op *op = acquire(engine, gate(engine, SNIB_MUTEX, "foo"), 0);
    pass(engine, now + SECOND);
    crash(engine, 'b');
    pass(engine, now + 4 * SECOND);
    assert_false(op->done);
    common_epoch++;
    map_of(common, "a:0-8191 c:8192-16383");
    pass(engine, now + 10 * SECOND);
    assert_int_equal(served_by(engine, "foo"), 'c');
    assert_false(op->done);
    snib__engine_free(engine);
}

/* A sleeping waiter's name moves to a node to which the connection neither succeeds nor fails. */
static void patience_begins_with_the_move(void **state)
{
    (void)state;
    struct snib__engine *engine = begin_cluster("a:0-8191 b:8192-16383");
    held(engine, "bar");
    peers[1].says = ":86400000";
    peers[1].times = -1;
    peers[2].hangs = true;
    struct snib__op *op = acquire(engine, gate(engine, SNIB_MUTEX, "foo"), 0);
    pass(engine, now + SECOND);
    common_epoch++;
    map_of(common, "a:0-8191 c:8192-16383");
    for (int steps = 0; served_by(engine, "foo") != 'c';
         steps++) { /* the map is requested now and then */
        assert_true(steps < 200);
        pass(engine, now + 100 * SNIB__MS);
    }
    pass(engine, now + 4 * SECOND);
    assert_false(op->done);
    pass(engine, now + 2 * SECOND);
    assert_true(op->done && op->code == SNIB_ECONNECT);
    snib__engine_free(engine);
}

/* Nor is it over at once if that node has been out of reach for long, or no node serves the name any more. */
static void patience_does_not_end_with_the_move(void **state)
{
    (void)state;
    for (int variant = 0; variant < 2; variant++) {
        struct snib__engine *engine = begin_cluster("a:0-8191 b:8192-15999 c:16000-16383");
        held(engine, "bar");
        held(engine, "x"); /* 16287 */
        peers[1].says = ":86400000";
        peers[1].times = -1;
        struct snib__op *op = acquire(engine, gate(engine, SNIB_MUTEX, "foo"), 0);
        crash(engine, 'c');
        pass(engine, now + 30 * SECOND);
        common_epoch++;
        map_of(common, variant ? "a:0-8191" : "a:0-8191 c:8192-16383");
        while (served_by(engine, "foo") == 'b')
            pass(engine, now + 10 * SNIB__MS);
        pass(engine, now + 4500 * SNIB__MS);
        assert_false(op->done);
        pass(engine, now + SECOND);
        assert_true(op->done && op->code == SNIB_ECONNECT);
        snib__engine_free(engine);
    }
}

/* ---- Another cluster ------------------------------------------------------------------------------------- */

static int strangers_told(struct snib__engine *engine)
{
    int told = 0;
    int32_t level;
    for (const char *text; (text = snib__engine_take_log(engine, &level));)
        told += level == SNIB_LOG_WARNING && strstr(text, ":6379 belongs to another cluster");
    return told;
}

/* A seed of the URL has left the cluster, and the one that it is in now has a higher epoch.  It is asked for its map while a
 * master is away; the others keep their slots, and that one, too. */
static void seed_that_is_in_another_cluster(void **state)
{
    (void)state;
    for (int all = 0; all < 2; all++) { /* say that the cluster is down meanwhile */
        struct snib__engine *engine = begin_cluster("c:0-8191 d:8192-16383");
        snib__engine_log_level(engine, SNIB_LOG_WARNING);
        struct snib__hold *bar = held(engine, "bar"), *foo = held(engine, "foo");
        pass(engine, now + 20 * SECOND);
        peers[1].run = 7;
        map_of(peers[1].map, "e:0-16383");
        peers[1].epoch = peers[4].epoch = 50;
        map_of(peers[4].map, "e:0-16383");
        peers[4].says = "*2\r\n:1\r\n:0";
        peers[4].times = -1;
        pass(engine, now + 60 * SECOND);
        const int asked = peers[1].asked;
        crash(engine, 'c');
        peers[3].cut = all;
        pass(engine, now + 4 * SECOND);
        assert_true(peers[1].asked > asked);
        peers[2].down = peers[3].cut = false;
        pass(engine, now + 60 * SECOND);
        assert_int_equal(served_by(engine, "bar"), 'c');
        assert_int_equal(served_by(engine, "foo"), 'd');
        assert_int_equal(snib__hold_state(engine, bar, now), SNIB_HOLD_VALID);
        assert_int_equal(snib__hold_state(engine, foo, now), SNIB_HOLD_VALID);
        assert_int_equal(peers[4].scripts, 0);
        assert_int_equal(strangers_told(engine), 1);
        /* the cluster's own maps count */
        common_epoch++;
        map_of(common, "c:0-8191 f:8192-16383");
        pass(engine, now + 11 * SECOND);
        assert_int_equal(served_by(engine, "foo"), 'f');
        snib__engine_free(engine);
    }
}

/* The address of a master belongs to another cluster's, which redirects to its own nodes, or serves slots itself: what other
 * masters serve stays there. */
static void address_that_is_in_another_cluster(void **state)
{
    (void)state;
    static const char *const maps[] = {"e:0-16383", "b:0-8191 e:8192-16383", "b:0-16383"};
    for (size_t i = 0; i < COUNT(maps); i++)
        for (int redirects = 0; redirects < 2; redirects++) {
            char text[64];
            struct snib__engine *engine = begin_cluster("a:0-8191 b:8192-16383");
            snib__engine_log_level(engine, SNIB_LOG_WARNING);
            struct snib__hold *bar = held(engine, "bar");
            held(engine, "foo");
            crash(engine, 'b');
            pass(engine, now + SECOND);
            moved(text, "foo", 'e');
            peers[1].down = false;
            peers[1].run = 7;
            peers[1].epoch = peers[4].epoch = 50;
            map_of(peers[1].map, maps[i]);
            map_of(peers[4].map, maps[i]);
            peers[1].says = redirects ? text : NULL;
            peers[1].times = -1;
            pass(engine, now + 15 * SECOND);
            assert_int_equal(served_by(engine, "bar"), 'a');
            assert_int_equal(strangers_told(engine), 1);
            const int asked = peers[0].asked;
            pass(engine, now + 300 * SECOND);
            assert_in_range(peers[0].asked - asked, 10, 1000);
            assert_int_equal(served_by(engine, "bar"), 'a');
            assert_int_equal(snib__hold_state(engine, bar, now), SNIB_HOLD_VALID);
            assert_int_equal(strangers_told(engine), 0);
            snib__engine_free(engine);
        }
}

/* A known node has joined another cluster without being restarted, and its map gives all slots away. */
static void what_answers_keeps_its_slots(void **state)
{
    (void)state;
    struct snib__engine *engine = begin_cluster("a:0-8191 b:8192-16383");
    struct snib__hold *bar = held(engine, "bar");
    held(engine, "foo");
    map_of(peers[1].map, "b:0-16383");
    peers[1].epoch = 50;
    pass(engine, now + 60 * SECOND);
    assert_int_equal(served_by(engine, "bar"), 'a');
    assert_int_equal(snib__hold_state(engine, bar, now), SNIB_HOLD_VALID);
    snib__engine_free(engine);
}

/* The cluster was set up anew with other nodes, of which a seed is told; its former ones were reset, or are gone. */
static void cluster_that_was_made_anew(void **state)
{
    (void)state;
    for (int gone = 0; gone < 2; gone++) {
        struct snib__engine *engine = begin_cluster("c:0-8191 d:8192-16383");
        snib__engine_log_level(engine, SNIB_LOG_WARNING);
        held(engine, "bar");
        held(engine, "foo");
        pass(engine, now + 20 * SECOND);
        for (int i = 2; i < 4; i++) {
            map_of(peers[i].map, "");
            peers[i].epoch = -1;
            peers[i].says = "CLUSTERDOWN Hash slot not served";
            peers[i].times = -1;
        }
        if (gone) {
            crash(engine, 'c');
            crash(engine, 'd');
        }
        common_epoch = 1;
        map_of(common, "e:0-16383");
        pass(engine, now + 30 * SECOND);
        assert_int_equal(served_by(engine, "bar"), 'e');
        assert_int_equal(served_by(engine, "foo"), 'e');
        struct snib__op *op = acquire(engine, gate(engine, SNIB_MUTEX, "{bar}2"), 0);
        pass(engine, now + SECOND);
        assert_true(op->done && op->code == SNIB_OK);
        snib__engine_free(engine);
    }
}

/* A master that answers this client and no other node: another one has its slots, and it says that the cluster is down.  Nothing
 * is asked of it meanwhile. */
static void master_that_is_cut_off_is_left(void **state)
{
    (void)state;
    struct snib__engine *engine = begin_cluster("a:0-8191 b:8192-16383");
    engine->config.lease = 120 * SECOND;
    held(engine, "bar");
    held(engine, "foo");
    map_of(peers[1].map, "a:0-8191 b:8192-16383");
    peers[1].epoch = 5;
    peers[1].cut = true;
    common_epoch = 6;
    map_of(common, "a:0-8191 c:8192-16383");
    const snib__time limit = now + 25 * SECOND;
    const int scripts = peers[1].scripts;
    while (served_by(engine, "foo") == 'b' && now < limit)
        pass(engine, now + 10 * SNIB__MS);
    assert_int_equal(peers[1].scripts, scripts);
    assert_int_equal(served_by(engine, "foo"), 'c');
    snib__engine_free(engine);
}

/* Idle for long, while all nodes were replaced by resharding: the first that is asked leads to the others. */
static void all_masters_were_replaced_meanwhile(void **state)
{
    (void)state;
    char text[64];
    struct snib__engine *engine = begin_cluster("a:0-8191 b:8192-16383");
    int32_t code;
    struct snib__hold *bar = held(engine, "bar"), *foo = held(engine, "foo");
    snib__engine_release(engine, bar, now, &code);
    snib__engine_release(engine, foo, now, &code);
    pass(engine, now + 3600 * SECOND);
    while (snib__engine_take_done(engine))
        continue;
    moved(text, "bar", 'c');
    peers[0].says = text;
    peers[0].times = -1;
    common_epoch = 9;
    map_of(common, "c:0-8191 d:8192-16383");
    held(engine, "bar");
    const snib__time limit = now + 12 * SECOND;
    while (served_by(engine, "foo") != 'd' && now < limit)
        pass(engine, now + 10 * SNIB__MS);
    assert_int_equal(served_by(engine, "bar"), 'c');
    assert_int_equal(served_by(engine, "foo"), 'd');
    snib__engine_free(engine);
}

/* ---- Requests that are paused ---------------------------------------------------------------------------- */

/* A try that may have worked, and whose caller leaves before or after the error, is undone and not repeated. */
static void paused_try_that_is_cancelled(void **state)
{
    (void)state;
    for (int in_flight = 0; in_flight < 2; in_flight++) {
        struct snib__engine *engine = begin_cluster("a:0-16383");
        held(engine, "{m}1");
        peers[0].says =
            "ERR Script attempted to access a non local key in a cluster node script: x";
        peers[0].times = 1;
        peers[0].silent = in_flight;
        const int scripts = peers[0].scripts;
        struct snib__op *op = acquire(engine, gate(engine, SNIB_MUTEX, "m"), 0);
        serve(engine);
        snib__engine_cancel(engine, op, now);
        peers[0].silent = false;
        pass(engine, now + SECOND);
        assert_int_equal(peers[0].scripts, scripts + 2); /* the try and its release */
        assert_int_equal(peers[0].releases, 1);
        snib__engine_free(engine);
    }
}

/* No node executes it, and no caller waits for it: a release is given up when its lease has
 * ended, and one that a renewal without an answer may have begun. */
static void refused_release_ends_with_its_lease(void **state)
{
    (void)state;
    struct snib__engine *engine = begin_cluster("a:0-16383");
    struct snib__hold *hold = held(engine, "m");
    const snib__time end = hold->deadline + 30 * SECOND;
    peers[0].says = "CLUSTERDOWN Hash slot not served";
    peers[0].times = -1;
    snib__hold_drop(engine, hold, now);
    pass(engine, end);
    assert_false(snib__engine_quiet(engine));
    pass(engine, end + 2 * SECOND);
    assert_true(snib__engine_quiet(engine));
    const int releases = peers[0].releases;
    pass(engine, now + 5 * SECOND);
    assert_int_equal(peers[0].releases, releases);
    snib__engine_free(engine);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(failover_is_asked_for),
        cmocka_unit_test(failover_is_why_a_release_is_late),
        cmocka_unit_test(each_outage_is_asked_about_as_often),
        cmocka_unit_test(refusal_has_the_map_asked_for),
        cmocka_unit_test(failed_node_is_not_waited_for),
        cmocka_unit_test(silence_is_noticed_while_waiting),
        cmocka_unit_test(silence_of_durable_link_is_noticed),
        cmocka_unit_test(replica_that_takes_over_has_none),
        cmocka_unit_test(replica_that_takes_over_by_hand),
        cmocka_unit_test(replica_that_a_wait_has_met),
        cmocka_unit_test(replica_that_takes_over_all_but_a_slot),
        cmocka_unit_test(replica_that_takes_over_what_is_left),
        cmocka_unit_test(new_node_never_had_a_replica),
        cmocka_unit_test(silence_of_messages_is_no_storm),
        cmocka_unit_test(patience_is_with_the_present_server),
        cmocka_unit_test(patience_begins_with_the_move),
        cmocka_unit_test(patience_does_not_end_with_the_move),
        cmocka_unit_test(seed_that_is_in_another_cluster),
        cmocka_unit_test(address_that_is_in_another_cluster),
        cmocka_unit_test(what_answers_keeps_its_slots),
        cmocka_unit_test(cluster_that_was_made_anew),
        cmocka_unit_test(master_that_is_cut_off_is_left),
        cmocka_unit_test(all_masters_were_replaced_meanwhile),
        cmocka_unit_test(paused_try_that_is_cancelled),
        cmocka_unit_test(refused_release_ends_with_its_lease),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
