/* astray.c - redirections that are of no use, or that come late: of what is not about a name, of what is collected. */
#include "nodes.h"

static struct snib__engine *begin_durable(const char *map)
{
    struct snib__engine *engine = begin_cluster(map);
    engine->config.durability = 1;
    engine->config.durability_timeout = SECOND;
    return engine;
}

/* Nobody else could answer what is asked of a server itself, and it goes nowhere, whatever that one says. */
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
            assert_in_range(peers[0].asked, 1, 60); /* nor is it asked again and again */
            snib__engine_free(engine);
        }
}

/* It is collected at the node that it was asked to go to, while that one is busy with others: and goes there. */
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

/* Leases of readers are no keys of a script's: where they have not arrived all readers would seem dead.  So whoever
 * looks for them waits until the slot has moved. */
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
