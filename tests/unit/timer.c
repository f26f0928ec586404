/* timer.c - the heap of deadlines against a plain list of them. */
#include "fed.h"

enum { TIMERS = 200, STEPS = 200000 };

struct subject {
    uint32_t at;
    snib__time when; /* SNIB__NEVER: not set */
};

static struct subject subjects[TIMERS];

/* Every timer is where its owner has recorded it, and none is before its parent. */
static void check(const struct snib__engine *engine)
{
    snib__time first = SNIB__NEVER;
    uint32_t set = 0;
    for (int i = 0; i < TIMERS; i++) {
        const struct subject *subject = &subjects[i];
        set += subject->when != SNIB__NEVER;
        first = subject->when < first ? subject->when : first;
        assert_int_equal(subject->at != 0, subject->when != SNIB__NEVER);
        if (subject->at != 0) {
            assert_ptr_equal(snib__timer_at(engine->heap[subject->at]), &subject->at);
            assert_true(engine->heap[subject->at].when == subject->when);
        }
    }
    assert_int_equal(engine->heap_n, set);
    for (uint32_t i = 2; i <= engine->heap_n; i++)
        assert_true(engine->heap[i / 2].when <= engine->heap[i].when);
    if (set > 0)
        assert_true(engine->heap[1].when == first);
}

static void set_moved_cancelled(void **state)
{
    (void)state;
    struct snib__engine *engine = begin();
    assert_int_equal(snib__timer_reserve(engine, TIMERS), 0);
    for (int i = 0; i < TIMERS; i++)
        subjects[i] = (struct subject){.when = SNIB__NEVER};
    for (int step = 0; step < STEPS; step++) {
        struct subject *subject = &subjects[snib__engine_random(engine, TIMERS)];
        if (snib__engine_random(engine, 3) > 0) {
            subject->when = 1 + snib__engine_random(engine, 1000);
            snib__timer_set(engine, SNIB__TIMER_OP, &subject->at, subject->when);
        } else {
            subject->when = SNIB__NEVER;
            snib__timer_cancel(engine, &subject->at);
        }
        if (step % 16 == 0)
            check(engine);
    }
    for (int i = 0; i < TIMERS; i++)
        snib__timer_cancel(engine, &subjects[i].at);
    assert_int_equal(engine->heap_n, 0);
    snib__engine_free(engine);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(set_moved_cancelled)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
