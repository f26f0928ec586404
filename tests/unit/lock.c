/* lock.c - what a lock inherits from its client, and what its own options override. */
#include "unit.h"

#include "api/objects.h"
#include "engine/internal.h"

#include <sys/wait.h>
#include <unistd.h>

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

/* Permits without a lease are never taken back: the client's limit does not apply to them. */
static void no_limit_without_a_lease(void **state)
{
    (void)state;
    snib_client_options options;
    snib_client *client = NULL;
    snib_lock *handle = NULL;
    int32_t code;
    snib_client_options_init(&options, sizeof options);
    options.max_hold_ms = LIMIT_MS;
    assert_int_equal(snib_client_open("unix:///nowhere", &options, &client, NULL), SNIB_OK);
    assert_int_equal(snib_lock_new(client, SNIB_SEMAPHORE, "s", 1, NULL, &handle, NULL), SNIB_OK);
    const struct snib__lock *lock = snib__lock_enter(handle, NULL, &code);
    assert_non_null(lock);
    assert_int_equal(lock->max_hold_ms, 0);
    snib__handle_put(handle);
    snib_lock_free(handle);
    snib_client_free(client);
}

/* The lease runs while replicas are awaited: most of it must be left. */
static void replicas_and_the_lease(void **state)
{
    (void)state;
    static const struct {
        int64_t lease_ms, asked_ms, want_ms;
    } cases[] = {{3000, 5000, 1000}, {3000, 1000, 1000}, {3000, 200, 200}, {60000, 5000, 5000}};
    for (size_t i = 0; i < COUNT(cases); i++) {
        snib_client_options options;
        snib_client *handle = NULL;
        int32_t code;
        snib_client_options_init(&options, sizeof options);
        options.durability = 1;
        options.lease_ms = cases[i].lease_ms;
        options.durability_timeout_ms = cases[i].asked_ms;
        assert_int_equal(snib_client_open("unix:///nowhere", &options, &handle, NULL), SNIB_OK);
        const struct snib__client *client = snib__client_enter(handle, NULL, &code);
        assert_non_null(client);
        assert_true(client->driver.engine->config.durability_timeout ==
                    (snib__time)cases[i].want_ms * SNIB__MS);
        snib__handle_put(handle);
        snib_client_free(handle);
    }
}

/* After a fork the child's locks have the options that they were made with. */
static void limits_in_a_child(void **state)
{
    (void)state;
    snib_lock_options options;
    snib_client *client = NULL;
    snib_lock *handle = NULL;
    snib_lock_options_init(&options, sizeof options);
    options.flags = SNIB_LOCK_FENCED;
    options.lease_ms = 2 * OWN_MS;
    options.max_hold_ms = OWN_MS;
    assert_int_equal(snib_client_open("unix:///nowhere", NULL, &client, NULL), SNIB_OK);
    assert_int_equal(snib_lock_new(client, SNIB_FAIR, "f", 1, &options, &handle, NULL), SNIB_OK);
    pid_t child = fork();
    if (child == 0) {
        int32_t code;
        const struct snib__lock *heir = snib__lock_enter(handle, NULL, &code);
        _exit(heir && heir->kind == SNIB_FAIR && heir->flags == SNIB_LOCK_FENCED &&
                      heir->lease_ms == 2 * OWN_MS && heir->max_hold_ms == OWN_MS
                  ? 0
                  : 1);
    }
    int status;
    assert_true(child > 0 && waitpid(child, &status, 0) == child);
    assert_int_equal(status, 0);
    snib_lock_free(handle);
    snib_client_free(client);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(limit_of_the_client),
        cmocka_unit_test(no_limit_without_a_lease),
        cmocka_unit_test(limits_in_a_child),
        cmocka_unit_test(replicas_and_the_lease),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
