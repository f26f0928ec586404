/* order.c - the graph of lock orders: which circles are seen, whose they are, and what is forgotten. */
#include "unit.h"

#include "api/order.h"

#include <stdio.h>
#include <string.h>

enum { SERVER = 7 };

static uint64_t first_name; /* each test has names of its own: the graph is the process's */
static struct snib__order_circle circle;

static int start(void **state)
{
    (void)state;
    first_name += 1000000;
    return 0;
}

static struct snib__order_name named(int name, bool reads)
{
    struct snib__order_name out = {SERVER, first_name + (uint64_t)name, reads, ""};
    snprintf(out.shown, sizeof out.shown, "\"%d\"", name);
    return out;
}

/* This process takes `to` while it has `from`. */
static enum snib__order own(int from, int to)
{
    struct snib__order_name held = named(from, false), taken = named(to, false);
    struct snib__order_pair pair = {&held, &taken, "a:1", "a:2", NULL};
    return snib__order_note(&pair, &circle);
}

/* Another one does, as the next answer says. */
static bool hear_as(int from, bool from_reads, int to, bool to_reads, const char *process)
{
    struct snib__order_name held = named(from, from_reads), taken = named(to, to_reads);
    struct snib__order_pair pair = {&held, &taken, "b:1", "b:2", process};
    return snib__order_hear(&pair, 100, &circle);
}

static bool hear(int from, int to)
{
    return hear_as(from, false, to, false, "b");
}

static bool count_pair(void *context, const struct snib__order_pair *pair)
{
    assert_null(pair->process);
    ++*(int *)context;
    return true;
}

/* How many edges would be told to others. */
static int to_tell(snib__time until)
{
    int n = 0;
    snib__order_tell(SERVER, until, count_pair, &n);
    return n;
}

/* ---- Circles --------------------------------------------------------------------------------------- */

/* Whichever comes last; the first step is the one that closes it. */
static void of_two_processes(void **state)
{
    (void)state;
    assert_int_equal(own(1, 2), SNIB__ORDER_NEW);
    assert_int_equal(own(1, 2), SNIB__ORDER_FINE);
    assert_true(hear(2, 1));
    assert_int_equal(circle.n, 2);
    assert_true(circle.foreign);
    assert_string_equal(circle.steps[0].held, "\"2\"");
    assert_string_equal(circle.steps[0].process, "b");
    assert_string_equal(circle.steps[0].held_place, "b:1");
    assert_string_equal(circle.steps[0].taken_place, "b:2");
    assert_null(circle.steps[1].process);
    assert_string_equal(circle.steps[1].taken, "\"2\"");
    assert_string_equal(circle.steps[1].taken_place, "a:2");
    uint64_t id = circle.id;
    assert_false(hear(2, 1)); /* again */
    assert_false(hear(3, 4));
    assert_int_equal(own(4, 3), SNIB__ORDER_CIRCLE);
    assert_null(circle.steps[0].process);
    assert_string_equal(circle.steps[1].process, "b");
    assert_true(circle.id != id);
}

/* What others do among themselves is not told here, until this process is part of it. */
static void of_others(void **state)
{
    (void)state;
    assert_false(hear(1, 2));
    assert_false(hear(2, 3));
    assert_false(hear(3, 1));
    assert_int_equal(own(3, 1), SNIB__ORDER_CIRCLE); /* it was another's, and is this one's too */
    assert_int_equal(circle.n, 3);
    assert_null(circle.steps[0].process);
    assert_int_equal(own(2, 3), SNIB__ORDER_NEW); /* the same circle: it has been told */
}

/* The shortest way back is others' alone, a longer one is not. */
static void beside_others(void **state)
{
    (void)state;
    assert_int_equal(own(2, 3), SNIB__ORDER_NEW);
    assert_false(hear(1, 4));
    assert_false(hear(4, 1)); /* theirs */
    assert_false(hear(1, 2));
    assert_true(hear(3, 1));
    assert_int_equal(circle.n, 3);
}

/* A circle that enters and leaves a lock by reading is none. */
static void of_readers(void **state)
{
    (void)state;
    struct snib__order_name held = named(1, true), taken = named(2, false);
    struct snib__order_pair pair = {&held, &taken, "a:1", "a:2", NULL};
    assert_int_equal(snib__order_note(&pair, &circle), SNIB__ORDER_NEW);
    assert_false(hear_as(2, false, 1, true, "b"));
    assert_true(hear_as(2, false, 1, false, "b"));
}

/* Two orders in which it comes about have one number; other circles have others. */
static void one_number(void **state)
{
    (void)state;
    assert_int_equal(own(1, 2), SNIB__ORDER_NEW);
    assert_true(hear(2, 1));
    uint64_t id = circle.id;
    snib__order_listen(SERVER);
    snib__order_heard(SERVER); /* forgotten */
    assert_true(hear(2, 1));
    assert_true(circle.id == id);
    assert_true(hear_as(2, true, 1, false, "b"));
    assert_true(circle.id != id);
}

/* ---- What is told, and forgotten ------------------------------------------------------------------- */

static void told(void **state)
{
    (void)state;
    int before = to_tell(50);
    assert_int_equal(own(1, 2), SNIB__ORDER_NEW);
    assert_int_equal(to_tell(50), before + 1);
    snib__order_listen(SERVER);
    assert_false(hear(1, 2)); /* it is there now, until 100 */
    assert_false(hear(2, 9));
    snib__order_heard(SERVER);
    assert_int_equal(to_tell(50), before);
    assert_int_equal(to_tell(100), before);
    assert_int_equal(to_tell(101), before + 1);
    assert_int_equal(own(9, 2), SNIB__ORDER_CIRCLE);
    snib__order_listen(SERVER);
    snib__order_heard(
        SERVER); /* the key was deleted: their edges go, this process's are told again */
    assert_int_equal(to_tell(50), before + 2);
    assert_false(hear(8, 1));
    assert_true(hear(2, 8)); /* 1 to 2 has stayed */
}

static void other_servers(void **state)
{
    (void)state;
    int before = to_tell(50);
    struct snib__order_name held = named(1, false), taken = named(2, false);
    struct snib__order_pair pair = {&held, &taken, "a:1", "a:2", NULL};
    held.server = SERVER + 1;
    assert_int_equal(snib__order_note(&pair, &circle), SNIB__ORDER_NEW); /* between two */
    assert_int_equal(to_tell(50), before);
    pair.process = "b";
    taken.server = SERVER + 1;
    assert_false(snib__order_hear(&pair, 100, &circle));
    assert_false(hear(2, 1)); /* the same names */
    snib__order_listen(SERVER);
    snib__order_heard(SERVER);
    pair.process = NULL;
    struct snib__order_pair back = {&taken, &held, "a:1", "a:2", NULL};
    assert_int_equal(snib__order_note(&back, &circle), SNIB__ORDER_CIRCLE); /* still known */
}

/* Others can make this process remember only so much, and it is all given back. */
static void much(void **state)
{
    (void)state;
    for (int round = 0; round < 3; round++) {
        snib__order_listen(SERVER);
        for (int i = 0; i < 2 * SNIB__ORDER_MAX; i++)
            assert_false(hear(i + round * 100000, i + 1 + round * 100000));
        snib__order_heard(SERVER);
    }
    assert_int_equal(own(200001, 200000), SNIB__ORDER_CIRCLE);
    assert_int_equal(own(200000 + SNIB__ORDER_MAX + 1, 200000 + SNIB__ORDER_MAX), SNIB__ORDER_NEW);
    snib__order_listen(SERVER);
    snib__order_heard(SERVER);
    assert_int_equal(own(200003, 200002), SNIB__ORDER_NEW);
    assert_true(hear(200000, 200001));
}

/* A long circle has more steps than are told. */
static void long_circle(void **state)
{
    (void)state;
    for (int i = 0; i < 20; i++)
        assert_false(hear(i, i + 1));
    assert_int_equal(own(20, 0), SNIB__ORDER_CIRCLE);
    assert_int_equal(circle.n, 21);
    assert_null(circle.steps[0].process);
    for (int i = 1; i < SNIB__ORDER_STEPS; i++)
        assert_string_equal(circle.steps[i].process, "b");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(of_two_processes, start), cmocka_unit_test_setup(of_others, start),
        cmocka_unit_test_setup(beside_others, start),    cmocka_unit_test_setup(of_readers, start),
        cmocka_unit_test_setup(one_number, start),       cmocka_unit_test_setup(told, start),
        cmocka_unit_test_setup(other_servers, start),    cmocka_unit_test_setup(much, start),
        cmocka_unit_test_setup(long_circle, start),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
