/* given.c - a release that is repeated at a server that may not have heard of it: complete, as the
 * first time. */
#include "nodes.h"

static struct snib__op *acquire_some(struct snib__engine *engine, int32_t kind,
                                     const struct snib__acquire *how)
{
    int32_t code;
    struct snib__op *op = snib__engine_acquire(engine, gate(engine, kind, "foo"), how, now, &code);
    assert_non_null(op);
    return op;
}

/* The same number, as many permits, the same counter: byte for byte. */
static void release_is_repeated_as_it_was(void **state)
{
    (void)state;
    static const struct {
        int32_t kind;
        struct snib__acquire how;
        const char *grant, *given;
    } locks[] = {
        {SNIB_MUTEX, {.wait = SNIB__NEVER}, "$-1", ":1"},
        {SNIB_PERMITS, {.wait = SNIB__NEVER, .permits = 3}, "$-1", ":1"},
        {SNIB_PERMITS, {.wait = SNIB__NEVER, .permits = 3, .lease = 60 * SECOND}, "$-1", ":1"},
        {SNIB_WRITE, {.wait = SNIB__NEVER, .options = SNIB_LOCK_FENCED}, "*1\r\n$1\r\n7", ":1"},
        {SNIB_READ, {.wait = SNIB__NEVER}, "$-1", ":1"},
    };
    for (size_t i = 0; i < COUNT(locks); i++) {
        struct snib__engine *engine = begin_cluster("a:0-8191 b:8192-16383");
        held(engine, "bar");
        peers[1].says = locks[i].grant;
        peers[1].times = 1;
        peers[1].then = locks[i].given;
        struct snib__op *op = acquire_some(engine, locks[i].kind, &locks[i].how);
        pass(engine, now + 100 * SNIB__MS);
        struct snib__hold *hold = acquired(engine, op);
        char taken[sizeof peers[1].last];
        memcpy(taken, peers[1].last, sizeof taken);
        snib__hold_drop(engine, hold, now);
        serve(engine);
        assert_memory_not_equal(peers[1].last, taken, sizeof taken);
        common_epoch++;
        map_of(common, "a:0-8191 c:8192-16383");
        crash(engine, 'b');
        acquire(engine, gate(engine, SNIB_MUTEX, "{foo}2"), 0); /* for a connection to c */
        peers[0].says = "CLUSTERDOWN Hash slot not served";     /* to have the map requested */
        peers[0].times = 1;
        acquire(engine, gate(engine, SNIB_MUTEX, "{bar}2"), 0);
        pass(engine, now + SECOND);
        assert_int_equal(served_by(engine, "foo"), 'c');
        assert_memory_equal(peers[2].last, peers[1].last, sizeof peers[1].last);
        snib__engine_free(engine);
    }
}

static struct snib__hold *of_owner(struct snib__engine *engine, int32_t kind)
{
    const struct snib__acquire how = {.wait = SNIB__NEVER, .owner = 7};
    struct snib__op *op = acquire_some(engine, kind, &how);
    pass(engine, now + 10 * SNIB__MS);
    return acquired(engine, op);
}

static void given_back(struct snib__engine *engine, struct snib__hold *hold)
{
    peers[1].says = ":1";
    peers[1].times = 1;
    snib__hold_drop(engine, hold, now);
    serve(engine);
}

/* So is a read within its owner's write hold, whatever else that owner has by then. */
static void read_under_a_write_is_given_back_again(void **state)
{
    (void)state;
    for (int way = 0; way < 3;
         way++) { /* both are over; the write goes on; another read has begun */
        struct snib__engine *engine = begin_cluster("a:0-8191 b:8192-16383");
        held(engine, "bar");
        struct snib__hold *write = of_owner(engine, SNIB_WRITE),
                          *read = of_owner(engine, SNIB_READ);
        given_back(engine, read);
        if (way == 0)
            given_back(engine, write);
        if (way == 2)
            of_owner(engine, SNIB_READ);
        assert_int_equal(peers[1].read_releases, 1);
        common_epoch++;
        map_of(common, "a:0-8191 c:8192-16383");
        crash(engine, 'b');
        acquire(engine, gate(engine, SNIB_MUTEX, "{foo}2"), 0);
        peers[0].says = "CLUSTERDOWN Hash slot not served";
        peers[0].times = 1;
        acquire(engine, gate(engine, SNIB_MUTEX, "{bar}2"), 0);
        pass(engine, now + SECOND);
        assert_int_equal(served_by(engine, "foo"), 'c');
        assert_int_equal(peers[2].read_releases, 1);
        snib__engine_free(engine);
    }
}

/* However many there were in the last ten seconds, before an outage of a minute; else the newest. */
static void all_of_the_last_seconds(void **state)
{
    (void)state;
    static const struct {
        int n;
        snib__time pause; /* after each */
        int again;
    } rates[] = {{100, 0, 100},
                 {1000, 0, 1000},
                 {1000, SNIB__MS, 1000},
                 {3000, 10 * SNIB__MS, 1024}, /* ten seconds' 1,000 have made it that large */
                 {200, 100 * SNIB__MS, 128},
                 {9000, 0, 8192}};
    for (size_t i = 0; i < COUNT(rates); i++) {
        struct snib__engine *engine = begin_cluster("a:0-8191 b:8192-16383");
        held(engine, "bar");
        const struct snib__acquire how = {.wait = SNIB__NEVER, .lease = 120 * SECOND};
        for (int k = 0; k < rates[i].n; k++) {
            struct snib__op *op = acquire_some(engine, SNIB_MUTEX, &how);
            serve(engine);
            snib__hold_drop(engine, acquired(engine, op), now);
            serve(engine);
            pass(engine, now + rates[i].pause);
        }
        assert_int_equal(peers[1].releases, rates[i].n); /* each is confirmed */
        peers[1].down = true;
        pass(engine, now + 60 * SECOND);
        common_epoch++;
        map_of(common, "a:0-8191 c:8192-16383");
        crash(engine, 'b');
        acquire(engine, gate(engine, SNIB_MUTEX, "{foo}2"), 0);
        peers[0].says = "CLUSTERDOWN Hash slot not served";
        peers[0].times = 1;
        acquire(engine, gate(engine, SNIB_MUTEX, "{bar}2"), 0);
        pass(engine, now + 3 * SECOND);
        assert_int_equal(peers[2].releases, rates[i].again);
        snib__engine_free(engine);
    }
}

static void take_and_give(struct snib__engine *engine)
{
    const struct snib__acquire how = {.wait = SNIB__NEVER, .lease = 120 * SECOND};
    struct snib__op *op = acquire_some(engine, SNIB_MUTEX, &how);
    serve(engine);
    snib__hold_drop(engine, acquired(engine, op), now);
    serve(engine);
}

/* Leave n locks of server b, the first of which is released with *out, and let c take over. */
static void leave_to_another(struct snib__engine *engine, int n, char *out, size_t size)
{
    for (int i = 0; i < n; i++) {
        take_and_give(engine);
        if (i == 0)
            memcpy(out, peers[1].last, size);
    }
    common_epoch++;
    map_of(common, "a:0-8191 c:8192-16383");
    crash(engine, 'b');
    peers[0].says = "CLUSTERDOWN Hash slot not served";
    peers[0].times = 1;
    acquire(engine, gate(engine, SNIB_MUTEX, "{bar}2"), 0);
    acquire(engine, gate(engine, SNIB_MUTEX, "{foo}2"), 0);
}

/* What was released last is the likeliest to be missing.  Also if the ring had gone half round before it grew. */
static void newest_come_first(void **state)
{
    (void)state;
    char first[sizeof peers[1].last];
    for (int before = 0; before < 128; before += 64) {
        struct snib__engine *engine = begin_cluster("a:0-8191 b:8192-16383");
        held(engine, "bar");
        for (int i = 0; i < before; i++)
            take_and_give(engine);
        pass(engine, now + 150 * SECOND); /* their leases have ended */
        leave_to_another(engine, 1000, first, sizeof first);
        pass(engine, now + SECOND);
        assert_int_equal(peers[2].releases, 1000);
        assert_memory_equal(peers[2].last, first, sizeof first);
        snib__engine_free(engine);
    }
}

/* A server that is there and does not serve yet is not asked by thousands of them again and again, also if it comes
 * back several times; and none is forgotten. */
static void no_storm_at_a_server_that_is_not_ready(void **state)
{
    (void)state;
    char first[sizeof peers[1].last];
    struct snib__engine *engine = begin_cluster("a:0-8191 b:8192-16383");
    held(engine, "bar");
    peers[2].says = "CLUSTERDOWN The cluster is down";
    peers[2].times = -1;
    leave_to_another(engine, 5000, first, sizeof first);
    for (int i = 0; i < 3; i++) {
        pass(engine, now + SECOND);
        assert_in_range(peers[2].scripts, 64, 64 * 20);
        peers[2].scripts = 0;
        crash(engine, 'c');
        peers[2].run++;
        peers[2].down = false;
    }
    peers[2].says = NULL;
    peers[2].releases = 0;
    pass(engine, now + SECOND);
    assert_in_range(peers[2].releases, 5000, 5000 + 64);
    snib__engine_free(engine);
}

/* The ring may grow before all are repeated. */
static void none_is_forgotten_as_the_ring_grows(void **state)
{
    (void)state;
    char first[sizeof peers[1].last];
    struct snib__engine *engine = begin_cluster("a:0-8191 b:8192-16383");
    held(engine, "bar");
    peers[2].says = "CLUSTERDOWN The cluster is down";
    peers[2].times = -1;
    leave_to_another(engine, 1000, first, sizeof first);
    pass(engine, now + SECOND);
    for (int i = 0; i < 100; i++) {
        struct snib__op *op = acquire(engine, gate(engine, SNIB_MUTEX, "{bar}3"), 0);
        serve(engine);
        assert_true(op->done && op->hold);
        snib__hold_drop(engine, op->hold, now);
        serve(engine);
    }
    peers[2].says = NULL;
    peers[2].releases = 0;
    pass(engine, now + SECOND);
    assert_int_equal(peers[2].releases, 1000);
    snib__engine_free(engine);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(release_is_repeated_as_it_was),
        cmocka_unit_test(read_under_a_write_is_given_back_again),
        cmocka_unit_test(all_of_the_last_seconds),
        cmocka_unit_test(newest_come_first),
        cmocka_unit_test(no_storm_at_a_server_that_is_not_ready),
        cmocka_unit_test(none_is_forgotten_as_the_ring_grows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
