/* astray.c - redirections that are useless or late: for requests that concern no name, for
 * collected requests. */
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
    assert_int_equal(peers[0].scripts, sent + 1);
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(own_questions_are_not_redirected),
        cmocka_unit_test(asked_acquisition_is_collected),
        cmocka_unit_test(readers_are_not_looked_for_too_early),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
