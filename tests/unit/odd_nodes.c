/* odd_nodes.c - maps and redirections in forms that no node of a cluster uses: what was known stays. */
#include "nodes.h"

#define NODE "*3\r\n$1\r\nb\r\n:6379\r\n$2\r\nid\r\n"

/* Of another form as a whole: the map that was known stays. */
static void maps_of_another_form(void **state)
{
    (void)state;
    static const char *const maps[] = {
        ":1\r\n",
        "+OK\r\n",
        "$-1\r\n",
        "*1\r\n:5\r\n",
        "*1\r\n*0\r\n",
        "*1\r\n*2\r\n:0\r\n:16383\r\n",
        "*1\r\n*3\r\n$1\r\n0\r\n:16383\r\n" NODE,
        "*1\r\n*3\r\n:0\r\n$5\r\n16383\r\n" NODE,
        "*1\r\n*3\r\n:-1\r\n:16383\r\n" NODE,
        "*1\r\n*3\r\n:16383\r\n:0\r\n" NODE,
        "*1\r\n*3\r\n:0\r\n:16384\r\n" NODE,
        "*1\r\n$5\r\nabcde\r\n",
        "*2\r\n*3\r\n:0\r\n:16383\r\n" NODE ":1\r\n",
        "*1\r\n*2\r\n:0\r\n" NODE,
        "*2\r\n*3\r\n:0\r\n:16383\r\n" NODE "*3\r\n:866\r\n:866\r\n" NODE,
        "*2\r\n*3\r\n:0\r\n:8192\r\n" NODE "*3\r\n:8192\r\n:16383\r\n" NODE,
    };
    for (size_t i = 0; i < COUNT(maps); i++) {
        struct snib__engine *engine = begin_cluster("a:0-16383");
        held(engine, "m");
        int asked = peers[0].asked;
        strcpy(common, maps[i]);
        common_epoch++;
        pass(engine, now + 60 * SECOND);
        assert_true(peers[0].asked > asked);
        assert_int_equal(served_by(engine, "m"), 'a');
        assert_int_equal(peers[1].scripts, 0);
        snib__engine_free(engine);
    }
}

/* It says nothing of replicas and of epochs, either: one that goes wrong after its first range is as good as none. */
static void map_that_breaks_off(void **state)
{
    (void)state;
#define OF_TWO                                                                                     \
    "*4\r\n:0\r\n:8191\r\n*3\r\n$1\r\na\r\n:6379\r\n$2\r\nid\r\n*3\r\n$1\r\n%c\r\n:6379\r\n$"      \
    "2\r\nid\r\n"
    struct snib__engine *engine = begin_cluster("a:0-16383");
    const struct snib__cluster *map = engine->map;
    sprintf(common, "*1\r\n" OF_TWO, 'd');
    held(engine, "bar"); /* of slot 5061 */
    assert_int_equal(map->spares_n, 1);
    static const char *const ends[] = {":1\r\n", "*0\r\n", "*3\r\n:0\r\n:16384\r\n" NODE, NULL};
    for (int i = 0; i < 4; i++) {
        const uint64_t epoch = map->epoch;
        const int asked = peers[0].asked;
        if (ends[i])
            sprintf(common, "*2\r\n" OF_TWO "%s", 'e', ends[i]);
        else
            strcpy(common, "*0\r\n");
        common_epoch += 10;
        pass(engine, now + 11 * SECOND);
        assert_true(peers[0].asked > asked);
        assert_int_equal(map->epoch, epoch);
        assert_int_equal(map->spares_n, 1);
        assert_string_equal(map->spare[0].host, "d");
    }
    common_epoch -= 30;
    sprintf(common, "*1\r\n" OF_TWO, 'f');
    pass(engine, now + 11 * SECOND);
    assert_int_equal(map->spares_n, 1);
    assert_string_equal(map->spare[0].host, "f");
    snib__engine_free(engine);
}

/* A map names more masters than a cluster can have: it is not believed, and the next one is. */
static void map_of_too_many_masters(void **state)
{
    (void)state;
    static char map[200000];
    struct snib__engine *engine = begin_cluster("a:0-16383");
    held(engine, "m");
    peers[0].silent = true;
    ((struct snib__cluster *)engine->map)->wanted = true;
    struct snib__link *link = &snib__gate_find(engine, SNIB_MUTEX, "m", 1)->node->links[0];
    struct snib__conn *conn = &link->conn;
    for (int steps = 0; conn->ring_count < 2; steps++) { /* its epoch, and its map */
        assert_true(steps < 1000);
        pass(engine, now + 20 * SNIB__MS);
    }
    char *at = map + sprintf(map, "$25\r\ncluster_current_epoch:6\r\n\r\n*2000\r\n");
    for (int i = 0; i < 2000; i++)
        at += sprintf(at, "*3\r\n:%d\r\n:%d\r\n*2\r\n$5\r\nh%04d\r\n:6379\r\n", i, i, i);
    assert_int_equal(conn->ring[conn->ring_head].kind, SNIB__REQ_ROUTE);
    snib__buf_consume(&conn->out, snib__buf_size(&conn->out));
    snib__engine_input(engine, link, map, strlen(map), now);
    assert_int_equal(conn->ring_count, 0);
    assert_int_equal(((struct snib__cluster *)engine->map)->n, SNIB__MEMBERS_MAX);
    assert_int_equal(served_by(engine, "m"), 'a');
    peers[0].silent = false;
    common_epoch = 7;
    map_of(common, "c:0-16383");
    for (int steps = 0; served_by(engine, "m") != 'c'; steps++) {
        assert_true(steps < 200);
        pass(engine, now + 100 * SNIB__MS);
    }
    snib__engine_free(engine);
}

/* A range whose master has no usable address: nobody serves it for the present. */
static void masters_of_another_form(void **state)
{
    (void)state;
    static const char *const masters[] = {
        ":5\r\n",
        "*0\r\n",
        "*1\r\n$1\r\nc\r\n",
        "*2\r\n$1\r\nc\r\n$4\r\n6379\r\n",
        "*2\r\n$1\r\nc\r\n:0\r\n",
        "*2\r\n$1\r\nc\r\n:65536\r\n",
        "*2\r\n$3\r\nc/c\r\n:6379\r\n",
        "*2\r\n$1\r\n?\r\n:6379\r\n",
        "*3\r\n$1\r\n?\r\n:6379\r\n$2\r\nid\r\n",
        "*4\r\n$1\r\n?\r\n:6379\r\n$2\r\nid\r\n:1\r\n",
        "*4\r\n$1\r\n?\r\n:6379\r\n$2\r\nid\r\n*1\r\n$2\r\nip\r\n",
        "*4\r\n$1\r\n?\r\n:6379\r\n$2\r\nid\r\n*2\r\n:1\r\n$1\r\nc\r\n",
        "*4\r\n$1\r\n?\r\n:6379\r\n$2\r\nid\r\n*2\r\n$2\r\nip\r\n:1\r\n",
        "*4\r\n$1\r\n?\r\n:6379\r\n$2\r\nid\r\n*2\r\n$2\r\nid\r\n$1\r\nc\r\n",
        "*4\r\n$1\r\n?\r\n:6379\r\n$2\r\nid\r\n*2\r\n$8\r\nhostname\r\n$1\r\nc\r\n",
    };
    for (size_t i = 0; i < COUNT(masters); i++) {
        struct snib__engine *engine = begin_cluster("a:0-16383");
        sprintf(common, "*1\r\n*3\r\n:0\r\n:16383\r\n%s", masters[i]);
        struct snib__op *op = acquire(engine, gate(engine, SNIB_MUTEX, "m"), 0);
        pass(engine, now + SECOND);
        assert_int_equal(served_by(engine, "m"), '-');
        assert_int_equal(peers[2].connects, 0);
        assert_false(op->done);
        map_of(common, "c:0-16383"); /* a node names one */
        common_epoch++;
        pass(engine, now + 5 * SECOND);
        assert_int_equal(served_by(engine, "m"), 'c');
        assert_int_equal(op->code, SNIB_OK);
        assert_true(op->done);
        snib__engine_free(engine);
    }
}

/* The caller gets the server's words, and the slot stays where it was. */
static void redirections_of_another_form(void **state)
{
    (void)state;
    static const char *const redirections[] = {
        "MOVED ",    "MOVED x b:6379",   "MOVED -1 b:6379", "MOVED 16384 b:6379",
        "MOVED 866", "MOVED 866b:6379",  "MOVED 866 b",     "ASK ",
        "ASK 866 b", "ASK 99999 b:6379",
    };
    for (size_t i = 0; i < COUNT(redirections); i++) {
        struct snib__engine *engine = begin_cluster("a:0-16383");
        held(engine, "{m}other");
        peers[0].says = redirections[i];
        peers[0].times = 1;
        struct snib__op *op = acquire(engine, gate(engine, SNIB_MUTEX, "m"), 0);
        pass(engine, now + SECOND);
        assert_true(op->done);
        assert_int_equal(op->code, SNIB_ESERVER);
        assert_non_null(op->words);
        assert_memory_equal(op->words, redirections[i], strlen(redirections[i]) - 1);
        assert_int_equal(served_by(engine, "m"), 'a');
        assert_int_equal(peers[1].connects, 0);
        snib__engine_free(engine);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(maps_of_another_form),         cmocka_unit_test(map_that_breaks_off),
        cmocka_unit_test(map_of_too_many_masters),      cmocka_unit_test(masters_of_another_form),
        cmocka_unit_test(redirections_of_another_form),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
