/* patience.c - how long an operation waits, and which result it may report then. */
#include "fed.h"

/* A single try, sent when half of its time was over, because there was no connection: BUSY is
 * reported only if the server has said so. */
static void one_try_without_an_answer(void **state)
{
    (void)state;
    for (int answered = 0; answered < 2; answered++) {
        const struct snib__acquire once = {.wait = 0};
        struct snib__engine *engine = begin();
        int32_t code;
        struct snib__op *op =
            snib__engine_acquire(engine, gate(engine, SNIB_MUTEX, "m"), &once, now, &code);
        assert_non_null(op);
        now += SECOND / 2;
        connect_link(engine);
        answer_own(engine);
        assert_int_equal(on_the_way(engine), 1);
        now = START + SECOND - 1;
        snib__engine_tick(engine, now);
        assert_false(op->done);
        if (answered)
            answer(engine, ":30000\r\n");
        now++;
        snib__engine_tick(engine, now);
        assert_true(op->done);
        assert_int_equal(op->code, answered ? SNIB_BUSY : SNIB_EUNREACHABLE);
        snib__engine_free(engine);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(one_try_without_an_answer)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
