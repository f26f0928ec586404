/* uses.c - the tables of what is held and awaited: whom they list. */
#include "unit.h"

#include "api/uses.h"

#include <stdlib.h>

enum { ACTOR = 7, N = 1000 };

static void add(const void *thing, enum snib__use_what what)
{
    struct snib__use *use = calloc(1, sizeof *use);
    assert_non_null(use);
    use->thing = thing;
    use->actor = ACTOR;
    use->what = what;
    snib__use_add(use);
}

static uint32_t listed(void)
{
    uint32_t n = 0;
    for (const struct snib__use *use = snib__uses_by_actor(ACTOR); use; use = use->by_actor)
        n++;
    return n;
}

/* What an actor waits for is never looked for by actor, and there may be much of it: looks would pass it again and again. */
static void by_actor_only_what_is_held(void **state)
{
    static char things[N];
    (void)state;
    assert_true(snib__uses_lock());
    for (int i = 0; i < N; i++)
        add(&things[i], i == 0 ? SNIB__USE_MADE : SNIB__USE_AWAITED);
    assert_null(snib__uses_by_actor(ACTOR));
    for (int i = 1; i < N; i++) {
        struct snib__use *use = snib__use_take(&things[i]);
        assert_non_null(use);
        use->what = SNIB__USE_HELD;
        snib__use_add(use);
        assert_ptr_equal(snib__uses_by_actor(ACTOR), use);
        assert_int_equal(listed(), i);
    }
    for (int i = 0; i < N; i++) {
        free(snib__use_take(&things[i]));
        assert_null(snib__use_find(&things[i]));
        assert_int_equal(listed(), N - 1 - (i > 0 ? i : 0));
    }
    assert_null(snib__uses_by_actor(ACTOR));
    snib__uses_unlock();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(by_actor_only_what_is_held),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
