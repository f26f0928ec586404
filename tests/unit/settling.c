/* settling.c - what became of an earlier use of the lock by the same client: what is counted of a grant that was
 * nobody's.
 */
#include "fed.h"

static const struct snib__acquire renewed = {.wait = SNIB__NEVER};

static struct snib__op *start(struct snib__engine *engine, struct snib__gate *of,
                              const struct snib__acquire *how)
{
    int32_t code;
    struct snib__op *op = snib__engine_acquire(engine, of, how, now, &code);
    assert_non_null(op);
    return op;
}

/* ---- Grants that are nobody's -------------------------------------------------------------------- */

static void expect_nothing_counted(struct snib__engine *engine, uint64_t acquisitions)
{
    int32_t level;
    const snib_client_stats_data *stats = &engine->stats;
    assert_int_equal(stats->acquisitions, acquisitions);
    assert_int_equal(stats->held, acquisitions);
    assert_int_equal(stats->releases, 0);
    assert_int_equal(
        stats->lost_expired + stats->lost_unreachable + stats->lost_deleted + stats->lost_taken, 0);
    for (const char *text; (text = snib__engine_take_log(engine, &level));)
        assert_null(strstr(text, "lost"));
}

/* Its lease may have ended when it is read, or who asked has left: it is given back, is no acquisition, and that
 * the server knows nothing of it any more is no loss. */
static void grant_is_nobodys(void **state)
{
    (void)state;
    const struct snib__acquire fixed = {.wait = SNIB__NEVER, .lease = SECOND};
    for (int i = 0; i < 4; i++) {
        bool late = i & 1, there = i & 2;
        struct snib__engine *engine = begin();
        snib__engine_log_level(engine, SNIB_LOG_INFO);
        struct snib__gate *of = gate(engine, SNIB_MUTEX, "m");
        granted(engine, gate(engine, SNIB_MUTEX, "other"), &renewed);
        struct snib__op *op = start(engine, of, &fixed);
        if (late)
            now += SECOND;
        else
            snib__engine_cancel(engine, op, now);
        answer_own(engine);
        answer(engine, "$-1\r\n");
        assert_int_equal(op->code, late ? SNIB_EUNREACHABLE : SNIB_CANCELLED);
        expect_nothing_counted(engine, 1);
        assert_int_equal(oldest_script(engine), SNIB__SCRIPT_MUTEX_RELEASE);
        now += SECOND;
        answer(engine, there ? ":1\r\n" : ":0\r\n");
        expect_nothing_counted(engine, 1);
        assert_null(of->active);
        assert_int_equal(engine->releasing, 0);
        snib__engine_free(engine);
    }
}

/* The next of this process has it without a release. */
static void grant_is_the_next_ones(void **state)
{
    (void)state;
    struct snib__engine *engine = begin();
    struct snib__gate *of = gate(engine, SNIB_MUTEX, "m");
    struct snib__op *first = acquire(engine, of, 0), *second = acquire(engine, of, 0);
    connect_link(engine);
    answer_own(engine);
    snib__engine_cancel(engine, first, now);
    answer(engine, "$-1\r\n");
    assert_int_equal(oldest_script(engine), SNIB__SCRIPT_MUTEX_TRANSFER);
    answer(engine, ":1\r\n");
    assert_true(second->done && second->code == SNIB_OK);
    expect_nothing_counted(engine, 1);
    snib__engine_free(engine);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(grant_is_nobodys),
        cmocka_unit_test(grant_is_the_next_ones),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
