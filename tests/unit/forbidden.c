/* forbidden.c - what the server refuses this user and locks can do without is told, once. */
#include "fed.h"

static const char unheard[] = "the server refused to publish that a lock was released: ";
static const char members[] = "mone\0wtwo"; /* a mutex and a write lock */
static const char whole[] = "the server refused SCRIPT LOAD: ";

/* How many records begin so, and that all of them have this level. */
static int records(struct snib__engine *engine, const char *begin, int32_t expected)
{
    int32_t level;
    int n = 0;
    for (const char *text; (text = snib__engine_take_log(engine, &level));)
        if (strncmp(text, begin, strlen(begin)) == 0) {
            assert_int_equal(level, expected);
            n++;
        }
    return n;
}

/* A lock is granted, and released with this reply, which ends the release with this code. */
static void pair(struct snib__engine *engine, struct snib__gate *gate, const char *grant,
                 const char *reply, int32_t code)
{
    int32_t error;
    struct snib__op *op = acquire(engine, gate, 0);
    if (!ready(engine))
        connect_link(engine);
    answer_own(engine);
    answer(engine, grant);
    op = snib__engine_release(engine, acquired(engine, op), now, &error);
    assert_non_null(op);
    answer_own(engine);
    answer(engine, reply);
    assert_true(op->done);
    assert_int_equal(op->code, code);
    assert_ptr_equal(snib__engine_take_done(engine), op);
    snib__op_free(engine, op);
}

/* The release of a lock of this kind ends with the code, and with so many records. */
static void released(int32_t kind, const char *granted, const char *reply, int32_t code, int told)
{
    struct snib__engine *engine = begin();
    snib__engine_log_level(engine, SNIB_LOG_WARNING);
    for (int i = 0; i < 2; i++)
        pair(engine, gate(engine, kind, i ? "n" : "m"), granted, reply, code);
    assert_int_equal(records(engine, unheard, SNIB_LOG_WARNING), told);
    snib__engine_free(engine);
}

/* A lock is released whether its message is published or not. */
static void unpublished_releases(void **state)
{
    (void)state;
    static const int32_t counting[] = {SNIB_MUTEX, SNIB_PLAIN, SNIB_READ, SNIB_WRITE};
    for (size_t i = 0; i < sizeof counting / sizeof *counting; i++) {
        const char *granted = "$-1\r\n";
        released(counting[i], granted, ":-1\r\n", SNIB_OK, 1);
        released(counting[i], granted, ":1\r\n", SNIB_OK, 0);
        released(counting[i], granted, ":0\r\n", SNIB_LOST, 0);
        released(counting[i], granted, ":-2\r\n", SNIB_LOST, 0);
    }
    released(SNIB_FAIR, "$1\r\n0\r\n", "*5\r\n:-1\r\n:0\r\n:0\r\n$1\r\n0\r\n:1\r\n", SNIB_OK, 1);
    released(SNIB_FAIR, "$1\r\n0\r\n", "*5\r\n:1\r\n:0\r\n:0\r\n$1\r\n0\r\n:1\r\n", SNIB_OK, 0);
    released(SNIB_FAIR, "$1\r\n0\r\n", "*5\r\n:-2\r\n:0\r\n:0\r\n$1\r\n0\r\n:1\r\n", SNIB_LOST, 1);
    released(SNIB_FAIR, "$1\r\n0\r\n", "*5\r\n:-3\r\n:0\r\n:0\r\n$1\r\n0\r\n:1\r\n", SNIB_LOST, 0);
}

/* A multi lock says by the sign of its reply that a message was refused, beside whether all members were held. */
static void unpublished_members(void **state)
{
    (void)state;
    static const struct {
        const char *reply;
        int32_t code;
        int told;
    } rows[] = {{":1\r\n", SNIB_OK, 0},    {":-1\r\n", SNIB_OK, 1},   {":2\r\n", SNIB_LOST, 0},
                {":-2\r\n", SNIB_LOST, 1}, {":-3\r\n", SNIB_LOST, 0}, {":0\r\n", SNIB_LOST, 0}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct snib__engine *engine = begin();
        snib__engine_log_level(engine, SNIB_LOG_WARNING);
        pair(engine, snib__gate_get(engine, SNIB__MULTI, members, sizeof members), "$-1\r\n",
             rows[i].reply, rows[i].code);
        assert_int_equal(records(engine, unheard, SNIB_LOG_WARNING), rows[i].told);
        snib__engine_free(engine);
    }
}

/* A script is sent whole then; that this is so is told once, and not again on the next connection. */
static void scripts_that_are_not_loaded(void **state)
{
    (void)state;
    static const char noperm[] =
        "-NOPERM this user has no permissions to run the 'script|load' command\r\n";
    struct snib__engine *engine = begin();
    snib__engine_log_level(engine, SNIB_LOG_INFO);
    for (int i = 0; i < 2; i++) {
        pair(engine, gate(engine, SNIB_MUTEX, "m"), "$-1\r\n", ":1\r\n", SNIB_OK);
        struct snib__op *op = acquire(engine, gate(engine, SNIB_SEMAPHORE, "s"), 0);
        const struct snib__conn *conn = conn_of(engine);
        assert_int_equal(conn->ring[conn->ring_head].kind, CONN_LOAD);
        snib__engine_input(engine, snib__engine_link(engine, SNIB__COMMAND), noperm, strlen(noperm),
                           now);
        answer(engine, "-NOSCRIPT No matching script.\r\n");
        answer(engine, "$-1\r\n"); /* to EVAL */
        acquired(engine, op);
        assert_int_equal(records(engine, whole, SNIB_LOG_INFO), i == 0);
        cut_link(engine);
        await_connect(engine);
    }
    snib__engine_free(engine);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(unpublished_releases),
        cmocka_unit_test(unpublished_members),
        cmocka_unit_test(scripts_that_are_not_loaded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
