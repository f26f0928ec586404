/* redirects.c - where requests go in a cluster whose slots move, and what a refusal does to them. */
#include "nodes.h"

static void ask_is_for_one_request(void **state)
{
    (void)state;
    char text[64];
    struct snib__engine *engine = begin_cluster("a:0-16383");
    sprintf(text, "ASK %d b:6379", snib__slot("m", 1));
    peers[0].says = text;
    peers[0].times = 1;
    held(engine, "m");
    assert_int_equal(peers[1].scripts, 1);
    assert_int_equal(peers[1].asking, 1);
    assert_int_equal(served_by(engine, "m"), 'a');
    held(engine, "{m}2");
    assert_int_equal(peers[1].scripts, 1);
    snib__engine_free(engine);
}

/* ASKING has been used up by the script that was not there. */
static void forgotten_script_is_asked_for_again(void **state)
{
    (void)state;
    char text[64];
    struct snib__engine *engine = begin_cluster("a:0-16383");
    sprintf(text, "ASK %d b:6379", snib__slot("m", 1));
    peers[0].says = text;
    peers[0].times = 1;
    peers[1].says = "NOSCRIPT No matching script.";
    peers[1].times = 1;
    held(engine, "m");
    assert_int_equal(peers[1].scripts, 2);
    assert_int_equal(peers[1].asking, 2);
    snib__engine_free(engine);
}

/* Nobody would serve it: it is asked again with pauses, and ends like what cannot be reached, surely undone. */
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

/* When a node has served it, patience with those who did not is at an end: it waits for the lock as long as it may. */
static void served_after_refusals(void **state)
{
    (void)state;
    int32_t code;
    const struct snib__acquire how = {.wait = 20 * SECOND};
    struct snib__engine *engine = begin_cluster("a:0-16383");
    peers[0].says = "CLUSTERDOWN The cluster is down";
    peers[0].times = 3;
    peers[0].then = ":86400000"; /* held by somebody else, for a day */
    struct snib__op *op =
        snib__engine_acquire(engine, gate(engine, SNIB_MUTEX, "m"), &how, now, &code);
    pass(engine, now + 19 * SECOND);
    assert_false(op->done);
    pass(engine, now + 2 * SECOND);
    assert_true(op->done);
    assert_int_equal(op->code, SNIB_TIMEDOUT);
    snib__engine_free(engine);
}

/* Two nodes that send it to each other. */
static void circle_is_no_storm(void **state)
{
    (void)state;
    char there[64], back[64];
    struct snib__engine *engine = begin_cluster("a:0-16383");
    moved(there, "m", 'b');
    moved(back, "m", 'a');
    peers[0].says = there;
    peers[1].says = back;
    peers[0].times = peers[1].times = -1;
    struct snib__op *op = acquire(engine, gate(engine, SNIB_MUTEX, "m"), 0);
    pass(engine, now + 6 * SECOND);
    assert_true(op->done && op->code == SNIB_ECONNECT);
    assert_true(peers[0].scripts + peers[1].scripts < 500);
    snib__engine_free(engine);
}

/* In the middle of a script: what has an owner is repeated, what has none is not. */
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

/* A batch of renewals has the keys of one slot; one that cannot go as it is goes in pieces. */
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

/* A renewal is paused, its hold is given back, and another has the place in memory: that one is not renewed. */
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

/* A failover: others are asked, and what the new master does not have is lost by it. */
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
    pass(engine, now + 200 * SNIB__MS); /* while it is not served others are asked all the time */
    assert_int_equal(served_by(engine, "foo"), 'c');
    assert_int_equal(snib__hold_state(engine, hold, now), SNIB_HOLD_VALID);
    assert_int_equal(peers[2].renewals, 1);
    snib__engine_free(engine);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ask_is_for_one_request),
        cmocka_unit_test(forgotten_script_is_asked_for_again),
        cmocka_unit_test(refusals_are_endured),
        cmocka_unit_test(served_after_refusals),
        cmocka_unit_test(circle_is_no_storm),
        cmocka_unit_test(broken_off_script_is_repeated_by_its_owner),
        cmocka_unit_test(renewals_go_by_slot),
        cmocka_unit_test(paused_renewal_of_what_has_gone),
        cmocka_unit_test(failover_is_asked_for),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
