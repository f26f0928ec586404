/* stack.c - a program with large thread-local variables: the C library puts them onto each thread's stack, which the
 * background thread needs for itself. */
#include "unit.h"

#include "snib.h"

static _Thread_local volatile char large[300 * 1024];

static void large_variables(void **state)
{
    (void)state;
    snib_client *client;
    snib_error error = {0};
    large[sizeof large - 1] = 1;
    assert_int_equal(snib_client_open("unix:///nowhere", NULL, &client, &error), SNIB_OK);
    if (snib_client_ping(client, 0, &error) != SNIB_ECONNECT)
        fail_msg("%s", error.text);
    snib_client_free(client);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(large_variables)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
