/* cluster.c - which maps and MOVED replies a cluster's route believes; nodes that come and go. */
#include "nodes.h"

/* ---- What it believes --------------------------------------------------------------------------------- */

static void endpoints_have_many_forms(void **state)
{
    (void)state;
    static const struct {
        const char *endpoint, *facts;
        char host;
    } forms[] = {
        {"$1\r\nb\r\n", "*0\r\n", 'b'},
        {"$-1\r\n", "*0\r\n", 'a'}, /* the host that was asked */
        {"$0\r\n\r\n", "*0\r\n", 'a'},
        {"$1\r\n?\r\n", "*2\r\n$2\r\nip\r\n$1\r\nc\r\n", 'c'},
        {"$1\r\n?\r\n", "*4\r\n$1\r\nx\r\n$1\r\ny\r\n$2\r\nip\r\n$1\r\nc\r\n", 'c'},
        {"$1\r\n?\r\n", "*0\r\n", '-'},
        {"$1\r\nb\r\n", "*2\r\n$2\r\nip\r\n$1\r\nc\r\n", 'b'},
    };
    for (size_t i = 0; i < COUNT(forms); i++) {
        struct snib__engine *engine = begin_cluster("a:0-1");
        peers[1].down = true;
        sprintf(common,
                "*1\r\n*4\r\n:0\r\n:16383\r\n*4\r\n%s:6379\r\n$2\r\nid\r\n%s"
                "*4\r\n$1\r\nd\r\n:6379\r\n$2\r\nid\r\n*0\r\n",
                forms[i].endpoint, forms[i].facts);
        acquire(engine, gate(engine, SNIB_MUTEX, "m"), 0);
        pass(engine, now + 300 * SNIB__MS);
        assert_int_equal(served_by(engine, "m"), forms[i].host);
        snib__engine_free(engine);
    }
}

/* A node's MOVED takes precedence over maps for a while, and then no longer. */
static void moved_goes_before_maps(void **state)
{
    (void)state;
    char text[64];
    struct snib__engine *engine = begin_cluster("a:0-16383");
    struct snib__hold *hold = held(engine, "m");
    moved(text, "m", 'b');
    peers[0].says = text;
    peers[0].times = 1;
    struct snib__hold *other = held(engine, "{m}2");
    assert_int_equal(served_by(engine, "m"), 'b');
    assert_ptr_equal(hold->gate->node, other->gate->node);
    assert_int_equal(snib__hold_state(engine, hold, now),
                     SNIB_HOLD_VALID); /* it was checked at once */
    assert_int_equal(peers[1].renewals, 1);
    assert_true(peers[0].asked + peers[1].asked >= 2); /* the map is requested, too, and lags */
    assert_int_equal(served_by(engine, "m"), 'b');
    pass(engine, now + 15 * SECOND);
    assert_int_equal(served_by(engine, "m"), 'a');
    snib__engine_free(engine);
}

/* After a failover one slot's MOVED is known, and the node that is asked for the map has not heard of it: the next one is asked
 * a second later, for other slots have moved as well. */
static void map_that_lags_is_no_answer(void **state)
{
    (void)state;
    char text[64];
    struct snib__engine *engine = begin_cluster("a:0-8191 b:8192-16383");
    struct snib__hold *hold = held(engine, "foo");
    held(engine, "x");
    held(engine, "bar");
    moved(text, "x", 'c');
    peers[1].says = text;
    peers[1].times = 1;
    acquire(engine, gate(engine, SNIB_MUTEX, "{x}2"), 0);
    serve(engine);
    const int asked = peers[0].asked + peers[1].asked;
    pass(engine, now + 1100 * SNIB__MS);
    assert_true(peers[0].asked + peers[1].asked > asked);
    assert_int_equal(served_by(engine, "x"), 'c');
    assert_int_equal(served_by(engine, "foo"), 'b');
    map_of(common, "a:0-8191 c:8192-16383");
    pass(engine, now + 1200 * SNIB__MS);
    assert_int_equal(served_by(engine, "foo"), 'c');
    assert_int_equal(peers[2].renewals, 2); /* it is asked for both */
    assert_int_equal(snib__hold_state(engine, hold, now), SNIB_HOLD_VALID);
    snib__engine_free(engine);
}

/* The name has left the node before that replied: what it says about the slot is older than what is
 * known. */
static void old_node_is_not_believed(void **state)
{
    (void)state;
    char text[64], older[64];
    struct snib__engine *engine = begin_cluster("a:0-16383");
    held(engine, "{m}1");
    moved(text, "m", 'b');
    moved(older, "m", 'c');
    peers[0].says = text;
    peers[0].times = 1;
    peers[0].then = older;
    struct snib__op *one = acquire(engine, gate(engine, SNIB_MUTEX, "{m}2"), 0),
                    *two = acquire(engine, gate(engine, SNIB_MUTEX, "{m}3"), 0);
    serve(engine);
    assert_int_equal(served_by(engine, "m"), 'b');
    pass(engine, now + SECOND / 2);
    assert_true(one->done && two->done);
    assert_int_equal(peers[2].scripts, 0);
    snib__engine_free(engine);
}

/* Moved holds are sorted by deadline among those of their new node. */
static void moved_holds_are_in_order(void **state)
{
    (void)state;
    enum { HOLDS = 9 };
    char text[64], name[16];
    struct snib__engine *engine = begin_cluster("a:0-8191 b:8192-16383");
    for (int i = 0; i < HOLDS; i++) { /* bar: 5061, foo: 12182 */
        snprintf(name, sizeof name, i % 3 == 2 ? "{foo}%d" : "{bar}%d", i * 5 % HOLDS);
        held(engine, name);
    }
    crash(engine, 'b');
    moved(text, "bar", 'b');
    peers[0].says = text;
    peers[0].times = 1;
    acquire(engine, gate(engine, SNIB_MUTEX, "{bar}x"), 0);
    serve(engine);
    assert_int_equal(served_by(engine, "bar"), 'b');
    const struct snib__node *node = engine->route->serves(engine, "bar", 3);
    const struct snib__renewals *list = &node->renewals[SNIB_MUTEX];
    assert_int_equal(list->n, HOLDS);
    assert_ptr_equal(list->cursor, list->head);
    for (const struct snib__hold *hold = list->head; hold; hold = hold->next)
        assert_true(!hold->next || hold->deadline <= hold->next->deadline);
    snib__engine_free(engine);
}

/* A fixed lease is checked at the name's new node as soon as there is a connection, and gets what is
 * left of it, so that it ends no earlier than its hold's deadline. */
static void fixed_lease_is_asked_for(void **state)
{
    (void)state;
    char text[64];
    int32_t code;
    const struct snib__acquire fixed = {.wait = SNIB__NEVER, .lease = 60 * SECOND};
    for (int there = 0; there < 2; there++) { /* whether a connection exists already */
        struct snib__engine *engine = begin_cluster("a:0-8191 b:8192-16383");
        struct snib__op *op =
            snib__engine_acquire(engine, gate(engine, SNIB_MUTEX, "{bar}1"), &fixed, now, &code);
        pass(engine, now + SECOND);
        struct snib__hold *hold = acquired(engine, op);
        const snib__time deadline = hold->deadline;
        if (there)
            held(engine, "foo"); /* at b */
        const struct peer *to = &peers[there ? 1 : 2];
        const snib__time asked = now;
        moved(text, "bar", there ? 'b' : 'c');
        peers[0].says = text;
        peers[0].times = 1;
        held(engine, "{bar}2");
        assert_int_equal(served_by(engine, "bar"), there ? 'b' : 'c');
        assert_int_equal(to->renewals, 1);
        const int left_ms = (int)((deadline - now) / SNIB__MS);
        assert_in_range(to->lease_ms, left_ms + 1, (deadline - asked) / SNIB__MS * 102 / 100 + 10);
        assert_int_equal(snib__hold_state(engine, hold, now), SNIB_HOLD_VALID);
        assert_true(hold->deadline == deadline);
        snib__engine_free(engine);
    }
}

/* A node that has lost its slots must answer soon; once it has some again, it may be as slow as
 * any. */
static void slots_that_come_back(void **state)
{
    (void)state;
    struct snib__engine *engine = begin_cluster("a:0-16383");
    held(engine, "m");
    const struct snib__cluster *map = engine->map;
    uint16_t a = map->owner[0];
    common_epoch++;
    map_of(common, "b:0-16383");
    pass(engine, now + 11 * SECOND);
    assert_true(map->owner[0] != a && map->member[a].deposed);
    common_epoch++;
    map_of(common, "a:0-100 b:101-16383");
    pass(engine, now + 11 * SECOND);
    assert_int_equal(map->owner[0], a);
    assert_false(map->member[a].deposed);
    snib__engine_free(engine);
}

/* A waiter's name moves: messages of the client's own releases that are still expected from the old
 * node are not expected from the new one. */
static void expected_messages_do_not_move(void **state)
{
    (void)state;
    char text[64];
    struct snib__engine *engine = begin_cluster("a:0-16383");
    held(engine, "{m}1");
    struct snib__gate *mutex = gate(engine, SNIB_MUTEX, "{m}2");
    peers[0].says = ":86400000";
    peers[0].times = 1;
    acquire(engine, mutex, 0);
    serve(engine);
    mutex->waitq->own_messages = 1;
    moved(text, "m", 'b');
    peers[0].says = text;
    peers[0].times = 1;
    peers[1].then = ":86400000";
    acquire(engine, gate(engine, SNIB_MUTEX, "{m}3"), 0);
    serve(engine);
    assert_int_equal(served_by(engine, "m"), 'b');
    assert_int_equal(mutex->waitq->own_messages, 0);
    snib__engine_free(engine);
}

/* Replicas are those of the latest map. */
static void replicas_are_of_the_last_map(void **state)
{
    (void)state;
    struct snib__engine *engine = begin_cluster("a:0-16383");
    sprintf(common, "*1\r\n*4\r\n:0\r\n:16383\r\n"
                    "*4\r\n$1\r\na\r\n:6379\r\n$2\r\nid\r\n*0\r\n"
                    "*4\r\n$1\r\nd\r\n:6379\r\n$2\r\nid\r\n*0\r\n");
    held(engine, "m");
    const struct snib__cluster *map = engine->map;
    assert_int_equal(map->spares_n, 1);
    assert_string_equal(map->spare[0].host, "d");
    common[strlen("*1\r\n*4\r\n:0\r\n:16383\r\n*4\r\n$1\r\na\r\n:6379\r\n$2\r\nid\r\n*0\r\n"
                  "*4\r\n$1\r\n")] = 'e';
    common_epoch++;
    pass(engine, now + 15 * SECOND);
    assert_int_equal(map->spares_n, 1);
    assert_string_equal(map->spare[0].host, "e");
    snib__engine_free(engine);
}

/* A replica is named with each range of its master, and is one. */
static void replica_of_two_ranges(void **state)
{
    (void)state;
#define RANGE(from, to)                                                                            \
    "*4\r\n:" from "\r\n:" to "\r\n*4\r\n$1\r\na\r\n:6379\r\n$2\r\nid\r\n*0\r\n"                   \
    "*4\r\n$1\r\nd\r\n:6379\r\n$2\r\nid\r\n*0\r\n"
    struct snib__engine *engine = begin_cluster("a:0-16383");
    strcpy(common, "*2\r\n" RANGE("0", "100") RANGE("101", "16383"));
    held(engine, "m");
    const struct snib__cluster *map = engine->map;
    assert_int_equal(map->spares_n, 1);
    assert_string_equal(map->spare[0].host, "d");
    snib__engine_free(engine);
}

/* A stale map takes no slots back, unless no newer one is seen for long. */
static void old_maps_are_not_believed(void **state)
{
    (void)state;
    struct snib__engine *engine = begin_cluster("a:0-16383");
    held(engine, "m");
    map_of(common, "b:0-16383");
    common_epoch = 4;
    pass(engine, now + 10 * SECOND);
    assert_int_equal(served_by(engine, "m"), 'a');
    pass(engine, now + 20 * SECOND);
    assert_int_equal(served_by(engine, "m"), 'b');
    common_epoch = 6;
    map_of(common, "c:0-16383");
    pass(engine, now + 11 * SECOND);
    assert_int_equal(served_by(engine, "m"), 'c');
    snib__engine_free(engine);
}

static void idle_client_is_silent(void **state)
{
    (void)state;
    struct snib__engine *engine = begin_cluster("a:0-16383");
    pass(engine, now + 60 * SECOND);
    assert_int_equal(peers[0].connects + peers[1].connects, 0);
    struct snib__hold *hold = held(engine, "m");
    int asked = peers[0].asked + peers[1].asked;
    pass(engine, now + 60 * SECOND);
    int more = peers[0].asked + peers[1].asked - asked;
    assert_true(more >= 5 && more <= 7);
    snib__hold_drop(engine, hold, now);
    pass(engine, now + SECOND);
    asked = peers[0].asked + peers[1].asked;
    pass(engine, now + 60 * SECOND);
    assert_int_equal(peers[0].asked + peers[1].asked, asked);
    snib__engine_free(engine);
}

static void node_that_has_gone_is_left(void **state)
{
    (void)state;
    struct snib__engine *engine = begin_cluster("a:0-16383");
    held(engine, "m");
    struct snib__node *node = engine->route->serves(engine, "m", 1);
    common_epoch++;
    map_of(common, "b:0-16383");
    pass(engine, now + 11 * SECOND);
    assert_int_equal(served_by(engine, "m"), 'b');
    assert_int_equal(node->links[SNIB__COMMAND].conn.state, SNIB__CONN_DOWN);
    strcpy(node->words, "what it said");
    int connects = peers[0].connects;
    peers[0].down = true;
    common_epoch++;
    map_of(common, "b:0-8000 c:8001-16383");
    const uint64_t reconnects = engine->stats.reconnects;
    pass(engine, now + 30 * SECOND);
    assert_int_equal(peers[0].connects, connects);
    assert_int_equal(node->address.host[0], 'c'); /* reused, */
    assert_string_equal(node->words, "");         /* ... for another node, */
    held(engine, "foo");
    assert_int_equal(engine->stats.reconnects, reconnects); /* ... which is no reconnect */
    snib__engine_free(engine);
}

/* A node is gone with a request that it has not answered, which may be on its way for long: once it is back, the connection
 * of that is ended first, whatever nodes have come meanwhile. */
static void node_is_owed_an_end(void **state)
{
    (void)state;
    struct snib__engine *engine = begin_cluster("a:0-16383");
    held(engine, "m");
    struct snib__node *node = engine->route->serves(engine, "m", 1);
    peers[0].silent = true;
    struct snib__op *op = acquire(engine, gate(engine, SNIB_MUTEX, "x"), 0);
    crash(engine, 'a');
    common_epoch++;
    map_of(common, "b:0-16383");
    pass(engine, now + 11 * SECOND);
    assert_true(op->done && op->code == SNIB_OK);
    common_epoch++;
    map_of(common, "b:0-8000 c:8001-16383");
    pass(engine, now + 30 * SECOND);
    assert_int_equal(node->address.host[0], 'a');
    peers[0].down = peers[0].silent = false;
    common_epoch++;
    map_of(common, "a:0-16383");
    pass(engine, now + 11 * SECOND);
    assert_int_equal(served_by(engine, "x"), 'a');
    assert_int_equal(peers[0].kills, 1);
    snib__engine_free(engine);
}

/* ---- Nodes that go and come ---------------------------------------------------------------------------- */

/* A node without slots is left, but not before it has replied: its pending requests are not
 * repeated elsewhere. */
static void answers_are_awaited_before_a_node_is_left(void **state)
{
    (void)state;
    struct snib__engine *engine = begin_cluster("a:0-8191 b:8192-16383");
    held(engine, "{bar}1");
    held(engine, "{foo}1");
    struct snib__node *old = engine->route->serves(engine, "bar", 3);
    peers[0].says =
        "CLUSTERDOWN The cluster is down"; /* otherwise no other node's map takes its slots from it */
    peers[0].times = 1;
    acquire(engine, gate(engine, SNIB_MUTEX, "{bar}3"), 0);
    serve(engine);
    peers[0].silent = true;
    struct snib__op *op = acquire(engine, gate(engine, SNIB_MUTEX, "{bar}2"), 0);
    common_epoch++;
    map_of(common, "b:0-16383");
    peers[1].says = "CLUSTERDOWN The cluster is down"; /* to have the map requested */
    peers[1].times = 1;
    acquire(engine, gate(engine, SNIB_MUTEX, "{foo}2"), 0);
    pass(engine, now + 200 * SNIB__MS);
    assert_int_equal(served_by(engine, "bar"), 'b');
    assert_true(snib__node_ready(old));
    assert_false(op->done);
    peers[0].silent = false;
    pass(engine, now + 20 * SNIB__MS);
    assert_true(op->done && op->code == SNIB_OK);
    assert_int_equal(old->links[SNIB__COMMAND].conn.state, SNIB__CONN_DOWN);
    snib__engine_free(engine);
}

/* Where each start gives a node another address, those that never come back are forgotten, also if requests were left on their
 * connections: only the last of them are kept for that. */
static void addresses_that_never_come_back(void **state)
{
    (void)state;
    char host[24];
    struct snib__address address;
    struct snib__engine *engine = begin_cluster("a:0-8191 b:8192-16383");
    held(engine, "m");
    struct snib__cluster *c = engine->map;
    for (int i = 0; i < 500; i++) {
        int n = sprintf(host, "10.0.%d.%d", i / 250, i % 250);
        assert_true(snib__address_host(&address, host, (size_t)n, 6379, false));
        struct snib__member *member = &c->member[snib__cluster_member(engine, &address)];
        assert_string_equal(member->node->address.host, host);
        member->node->idle = true;
        member->node->links[SNIB__COMMAND].conn.left = true;
        member->node->down_since = START + (unsigned)i;
    }
    assert_in_range(c->n, 64, 80);
    for (uint32_t i = 3; i < c->n; i++) /* the oldest have made room */
        assert_true(c->member[i].node->down_since > START + 400);
    snib__engine_free(engine);
}

/* A map brings back a node that had lost all slots, beside a new one: each keeps its own
 * address. */
static void members_are_told_apart(void **state)
{
    (void)state;
    struct snib__engine *engine = begin_cluster("a:0-16383");
    held(engine, "m");
    common_epoch++;
    map_of(common, "b:0-16383");
    pass(engine, now + 11 * SECOND);
    common_epoch++;
    map_of(common, "a:0-8191 c:8192-16383");
    const snib__time limit = now + 12 * SECOND;
    while (served_by(engine, "foo") == 'b' && now < limit)
        pass(engine, now + 10 * SNIB__MS);
    assert_int_equal(served_by(engine, "bar"), 'a');
    assert_int_equal(served_by(engine, "foo"), 'c');
    snib__engine_free(engine);
}

/* A node that served nothing, and is named by MOVED alone, stays connected. */
static void moved_brings_a_node_back(void **state)
{
    (void)state;
    char text[64];
    struct snib__engine *engine = begin_cluster("a:0-8191 b:8192-16383");
    held(engine, "{bar}1");
    held(engine, "{foo}1");
    common_epoch++;
    map_of(common, "b:0-16383");
    pass(engine, now + 11 * SECOND);
    assert_int_equal(served_by(engine, "bar"), 'b');
    moved(text, "bar", 'a');
    peers[1].says = text;
    peers[1].times = 1;
    const int connects = peers[0].connects;
    struct snib__op *op = acquire(engine, gate(engine, SNIB_MUTEX, "{bar}2"), 0);
    pass(engine, now + SECOND / 2);
    assert_true(op->done && op->code == SNIB_OK);
    assert_int_equal(served_by(engine, "bar"), 'a');
    assert_true(snib__node_ready(engine->route->serves(engine, "bar", 3)));
    assert_int_equal(peers[0].connects, connects + 1);
    snib__engine_free(engine);
}

/* The map of a node that knows no others, or no longer does, takes nothing away. */
static void empty_map_takes_nothing(void **state)
{
    (void)state;
    struct snib__engine *engine = begin_cluster("a:0-16383");
    held(engine, "m");
    common_epoch++;
    map_of(common, "");
    pass(engine, now + 11 * SECOND);
    assert_int_equal(served_by(engine, "m"), 'a');
    snib__engine_free(engine);
}

/* The map names no node for a slot, or for none: there is a connection, and what is missing is a node that serves the
 * slot.  Without a connection that is what is missing. */
static void slot_that_no_node_serves(void **state)
{
    (void)state;
    static const char *const maps[] = {"", "a:0-1", NULL};
    for (size_t i = 0; i < COUNT(maps); i++) {
        struct snib__engine *engine = begin_cluster(maps[i] ? maps[i] : "a:0-16383");
        peers[0].down = !maps[i];
        struct snib__op *op = acquire(engine, gate(engine, SNIB_MUTEX, "m"), 0);
        pass(engine, now + 10 * SECOND);
        assert_true(op->done && op->code == SNIB_ECONNECT);
        if (maps[i])
            assert_int_equal(strncmp(op->words, "CLUSTERDOWN", 11), 0);
        else
            assert_true(!op->words || !op->words[0]);
        snib__engine_free(engine);
    }
}

/* None of the URL's addresses answers: the error names one, and says how many more there are. */
static void seeds_that_are_all_down(void **state)
{
    (void)state;
    struct snib__engine *engine = begin_cluster("a:0-16383");
    peers[0].down = peers[1].down = true;
    struct snib__op *op = acquire(engine, gate(engine, SNIB_MUTEX, "m"), 0);
    pass(engine, now + 10 * SECOND);
    assert_true(op->done && op->code == SNIB_ECONNECT);
    assert_string_equal(op->where, "the server or 1 other");
    snib__engine_free(engine);
}

/* Two nodes are asked at once: each map has the epoch of the node that sent it. */
static void maps_have_their_own_epochs(void **state)
{
    (void)state;
    static const int order[2][4] = {{0, 1, 0, 1}, {0, 1, 1, 0}}; /* the order of their replies */
    for (int i = 0; i < 4; i++) {
        struct snib__engine *engine = begin_cluster("a:0-8191 b:8192-16383");
        held(engine, "bar");
        held(engine, "foo");
        struct snib__link *links[] = {
            &engine->route->serves(engine, "bar", 3)->links[SNIB__COMMAND],
            &engine->route->serves(engine, "foo", 3)->links[SNIB__COMMAND]};
        peers[0].epoch = i < 2 ? 4 : -1; /* it lags, or was reset and has slots of its own */
        map_of(peers[0].map, "a:0-16383");
        for (int node = 0; node < 2; node++) {
            snib__node_ask(engine, links[node]->node, 1, now);
            snib__node_ask(engine, links[node]->node, 2, now);
        }
        for (int n = 0; n < 4; n++)
            assert_true(serve_link(engine, links[order[i % 2][n]]));
        assert_int_equal(served_by(engine, "foo"), 'b');
        snib__engine_free(engine);
    }
}

/* A listing, and loading, begin again, if the node that its cursor names has no slots now: its names may be anywhere, and the
 * rest of the cursor is for no other server. */
static void list_goes_on_elsewhere(void **state)
{
    (void)state;
    struct snib__engine *engine = begin_cluster("a:0-8191 b:8192-16383");
    held(engine, "foo");
    const struct snib__cluster *map = engine->map;
    const uint16_t a = map->owner[0], b = map->owner[16383];
    struct snib__asked asked = {.cursor = (uint64_t)(a < b ? a : b) << 52 | 7};
    const struct snib__op op = {.kind = SNIB__OP_LIST, .asked = &asked};
    const struct snib__op load = {.kind = SNIB__OP_LOAD, .asked = &asked};
    way_is(engine, "deployment:cluster tls:no verified:no ");
    assert_ptr_equal(engine->route->asks(engine, &op), map->member[a < b ? a : b].node);
    assert_ptr_equal(engine->route->asks(engine, &load), map->member[a < b ? a : b].node);
    common_epoch++;
    map_of(common, a < b ? "b:0-16383" : "a:0-16383");
    pass(engine, now + 11 * SECOND);
    assert_ptr_equal(engine->route->asks(engine, &op), map->member[a < b ? b : a].node);
    assert_int_equal(asked.cursor, 0);
    assert_ptr_equal(engine->route->asks(engine, &load), map->member[a < b ? b : a].node);
    snib__engine_free(engine);
}

/* The same when that node is the last. */
static void list_begins_again(void **state)
{
    (void)state;
    int32_t code;
    struct snib__engine *engine = begin_cluster("a:0-8191 b:8192-16383");
    held(engine, "foo");
    const struct snib__cluster *map = engine->map;
    const uint16_t a = map->owner[0], b = map->owner[16383];
    common_epoch++;
    map_of(common, a < b ? "a:0-16383" : "b:0-16383");
    pass(engine, now + 11 * SECOND);
    const uint64_t cursor = (uint64_t)(a < b ? b : a) << 52 | 7;
    struct snib__op *op = snib__engine_list(engine, cursor, "", 0, 65536, now, &code);
    assert_ptr_equal(op->node, map->member[a < b ? a : b].node);
    assert_int_equal(op->asked->cursor, 0);
    serve(engine);
    assert_true(op->done);
    snib__engine_free(engine);
}

/* A listing that a node fails says where to go on without it: with the next one, or not at all. */
static void list_goes_on_behind_a_failure(void **state)
{
    (void)state;
    int32_t code;
    struct snib__engine *engine = begin_cluster("a:0-8191 b:8192-16383");
    held(engine, "bar");
    const struct snib__cluster *map = engine->map;
    const uint16_t a = map->owner[0], b = map->owner[16383];
    const uint64_t next = (uint64_t)(a < b ? b : a) << 52;
    for (int i = 0; i < 2; i++) {
        peers[i].says = "NOPERM no";
        peers[i].times = -1;
    }
    struct snib__op *op = snib__engine_list(engine, 0, "", 0, 65536, now, &code);
    serve(engine);
    assert_true(op->done && op->code == SNIB_EPERM);
    assert_int_equal(op->asked->cursor, next);
    op = snib__engine_list(engine, next | 7, "", 0, 65536, now, &code);
    serve(engine);
    assert_true(op->done && op->code == SNIB_EPERM);
    assert_int_equal(op->asked->cursor, 0);
    snib__engine_free(engine);
}

/* A question about a name that has no gate follows it, too, and at once. */
static void question_about_a_name_is_redirected(void **state)
{
    (void)state;
    int32_t code;
    char text[64];
    struct snib__engine *engine = begin_cluster("a:0-8191 b:8192-16383");
    held(engine, "bar");
    held(engine, "foo");
    const int sent = peers[0].scripts;
    moved(text, "bar", 'b');
    peers[0].says = text;
    peers[0].times = -1;
    struct snib__op *op = snib__engine_describe(engine, "bar", 3, 65536, now, &code);
    serve(engine);
    assert_true(op->done);
    assert_int_equal(peers[0].scripts, sent + 1);
    snib__engine_free(engine);
}

/* A question about a name is as patient with a node that was never needed before, and cannot be reached, as an acquisition. */
static void question_has_patience(void **state)
{
    (void)state;
    int32_t code;
    struct snib__engine *engine = begin_cluster("a:0-8191 b:8192-16383");
    held(engine, "bar");
    peers[1].hangs = true; /* connecting to it takes longer than the patience */
    struct snib__op *op = snib__engine_describe(engine, "foo", 3, 65536, now, &code);
    pass(engine, now + 4 * SECOND);
    assert_false(op->done);
    pass(engine, now + 2 * SECOND);
    assert_true(op->done);
    assert_int_equal(op->code, SNIB_ECONNECT);
    snib__engine_free(engine);
}

/* The URL names servers that are no cluster nodes: if only one of two is none, the client uses the
 * other; if both are, that is reported at once. */
static void servers_that_are_no_cluster(void **state)
{
    (void)state;
    static const char *const maps[] = {"b:0-16383", "a:0-16383", "a:0-16383"};
    for (size_t i = 0; i < COUNT(maps); i++) {
        struct snib__engine *engine = begin_cluster(maps[i]);
        peers[0].single = i != 1;
        peers[1].single = i != 0;
        struct snib__op *op = acquire(engine, gate(engine, SNIB_MUTEX, "m"), 0);
        pass(engine, now + 500 * SNIB__MS);
        assert_true(op->done);
        assert_int_equal(op->code, i == 2 ? SNIB_ETOPOLOGY : SNIB_OK);
        assert_true(i < 2 || strstr(op->words, "is not a cluster node: use redis://"));
        snib__engine_free(engine);
    }
}

/* While a slot moves, its server may have the lock's key and not those of its queue: a fair hold is renewed as a mutex
 * then, at once, and with its queue the next time. */
static void fair_hold_of_a_moving_slot(void **state)
{
    (void)state;
    struct snib__engine *engine = begin_cluster("a:0-16383");
    peers[0].says = "$1\r\n0";
    peers[0].times = 1;
    peers[0].then = "*0"; /* to all renewals */
    struct snib__op *op = acquire(engine, gate(engine, SNIB_FAIR, "f"), 0);
    pass(engine, now + SECOND);
    struct snib__hold *hold = acquired(engine, op);
    peers[0].says = "TRYAGAIN Multiple keys request during rehashing of slot";
    peers[0].times = 1;
    peers[0].renewals = peers[0].renewed_keys = 0;
    snib__time before = hold->deadline;
    now += 11 * SECOND;
    snib__engine_tick(engine, now);
    serve(engine);
    assert_int_equal(peers[0].renewals, 1); /* by mutex_renew */
    assert_int_equal(peers[0].renewed_keys, 1);
    assert_true(hold->deadline > before);
    now += 11 * SECOND;
    snib__engine_tick(engine, now);
    serve(engine);
    assert_int_equal(peers[0].renewals, 1);
    assert_non_null(strstr(peers[0].last, snib__script_texts[SNIB__SCRIPT_FAIR_RENEW].sha1));
    snib__engine_free(engine);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fair_hold_of_a_moving_slot),
        cmocka_unit_test(endpoints_have_many_forms),
        cmocka_unit_test(moved_goes_before_maps),
        cmocka_unit_test(map_that_lags_is_no_answer),
        cmocka_unit_test(old_node_is_not_believed),
        cmocka_unit_test(moved_holds_are_in_order),
        cmocka_unit_test(fixed_lease_is_asked_for),
        cmocka_unit_test(slots_that_come_back),
        cmocka_unit_test(expected_messages_do_not_move),
        cmocka_unit_test(replicas_are_of_the_last_map),
        cmocka_unit_test(replica_of_two_ranges),
        cmocka_unit_test(old_maps_are_not_believed),
        cmocka_unit_test(idle_client_is_silent),
        cmocka_unit_test(node_that_has_gone_is_left),
        cmocka_unit_test(node_is_owed_an_end),
        cmocka_unit_test(answers_are_awaited_before_a_node_is_left),
        cmocka_unit_test(addresses_that_never_come_back),
        cmocka_unit_test(members_are_told_apart),
        cmocka_unit_test(moved_brings_a_node_back),
        cmocka_unit_test(empty_map_takes_nothing),
        cmocka_unit_test(slot_that_no_node_serves),
        cmocka_unit_test(seeds_that_are_all_down),
        cmocka_unit_test(maps_have_their_own_epochs),
        cmocka_unit_test(servers_that_are_no_cluster),
        cmocka_unit_test(list_goes_on_elsewhere),
        cmocka_unit_test(list_begins_again),
        cmocka_unit_test(list_goes_on_behind_a_failure),
        cmocka_unit_test(question_about_a_name_is_redirected),
        cmocka_unit_test(question_has_patience),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
