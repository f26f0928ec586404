/* lock.c - what a lock takes from its client, and what its own options say instead. */
#include "unit.h"

#include "api/objects.h"

enum { LIMIT_MS = 5000, OWN_MS = 700 };

static void limit_of_the_client(void **state)
{
    (void)state;
    static const struct {
        int64_t client_ms, lock_ms;
        uint32_t want_ms;
    } cases[] = {
        {0, 0, 0},
        {0, OWN_MS, OWN_MS},
        {0, -1, 0},
        {LIMIT_MS, 0, LIMIT_MS},
        {LIMIT_MS, OWN_MS, OWN_MS},
        {LIMIT_MS, -1, 0},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        snib_client_options client_options;
        snib_lock_options options;
        snib_client *client = NULL;
        snib_lock *handle = NULL;
        snib_error error;
        int32_t code;
        snib_client_options_init(&client_options, sizeof client_options);
        snib_lock_options_init(&options, sizeof options);
        client_options.max_hold_ms = cases[i].client_ms;
        options.max_hold_ms = cases[i].lock_ms;
        assert_int_equal(snib_client_open("unix:///nowhere", &client_options, &client, &error),
                         SNIB_OK);
        assert_int_equal(snib_lock_new(client, SNIB_MUTEX, "m", 1, &options, &handle, &error),
                         SNIB_OK);
        struct snib__lock *lock = snib__lock_enter(handle, &error, &code);
        assert_non_null(lock);
        assert_int_equal(lock->max_hold_ms, cases[i].want_ms);
        snib__handle_put(handle);
        snib_lock_free(handle);
        snib_client_free(client);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(limit_of_the_client)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
