/* uses.c - the tables of what is held and awaited: whom they list, and what the child of a fork has of them. */
#include "unit.h"

#include "api/uses.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

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

/* ---- forks ---- */

static struct snib__order_name one = {.name = 1}, two = {.name = 2};

static enum snib__order note(void)
{
    struct snib__order_circle circle;
    struct snib__order_pair pair = {&one, &two, "here", "there", NULL};
    return snib__order_note(&pair, &circle);
}

/* In the child: it can go on with empty tables, and knows an order, or can learn it. */
static bool begins(enum snib__order known)
{
    static char thing;
    if (!snib__uses_lock())
        return false;
    for (uint32_t i = 0; i < SNIB__USES_BUCKETS; i++)
        if (snib__uses_in(i))
            return false;
    bool good = !snib__uses_by_actor(ACTOR) && note() == known;
    add(&thing, SNIB__USE_HELD);
    good = good && listed() == 1;
    free(snib__use_take(&thing));
    snib__uses_unlock();
    return good && note() == SNIB__ORDER_FINE;
}

static void fork_begins(enum snib__order known)
{
    int status;
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        alarm(60);
        _exit(begins(known) ? 0 : 1);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
}

static _Atomic int step; /* 1: the thread is inside; 2: it may go on */

static void *stay_inside(void *unused)
{
    if (!snib__uses_lock())
        return unused;
    step = 1;
    while (step != 2)
        usleep(1000);
    snib__uses_unlock();
    return &step;
}

/* The child has none of its parent's holds.  It keeps the order of locks, unless a thread was changing it. */
static void child_of_a_fork(void **state)
{
    static char thing;
    pthread_t thread;
    void *was_inside;
    (void)state;
    assert_int_equal(snib__uses_init(), 0);
    assert_true(snib__uses_lock());
    add(&thing, SNIB__USE_HELD);
    assert_int_equal(note(), SNIB__ORDER_NEW);
    snib__uses_unlock();
    fork_begins(SNIB__ORDER_FINE);
    assert_int_equal(pthread_create(&thread, NULL, stay_inside, NULL), 0);
    while (step != 1)
        usleep(1000);
    fork_begins(SNIB__ORDER_NEW);
    step = 2;
    pthread_join(thread, &was_inside);
    assert_ptr_equal(was_inside, &step);
    assert_true(snib__uses_lock()); /* the parent has all as it was */
    assert_int_equal(listed(), 1);
    assert_int_equal(note(), SNIB__ORDER_FINE);
    free(snib__use_take(&thing));
    snib__uses_unlock();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(by_actor_only_what_is_held),
        cmocka_unit_test(child_of_a_fork),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
