/* environment.c - the environment of a program that has more rights than its user: it does not choose the server, nor what
 * is sent there. */
#include "unit.h"

#include "snib.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* The linker gives the library this instead of secure_getenv(), which finds nothing in such a program. */
char *__wrap_secure_getenv(const char *name);

static bool trusted;

char *__wrap_secure_getenv(const char *name)
{
    return trusted ? getenv(name) : NULL;
}

static int opened(const char *url, snib_error *error)
{
    snib_client *client = NULL;
    int code = snib_client_open(url, NULL, &client, error);
    snib_client_free(client);
    return code;
}

static void more_rights_than_the_user(void **state)
{
    (void)state;
    static const char *const variables[][2] = {{"SNIB_URL", "redis://elsewhere"},
                                               {"SNIB_USERNAME", "mallory"},
                                               {"SNIB_PASSWORD", "secret"},
                                               {"SNIB_PASSWORD_FILE", "/etc/shadow"}};
    for (size_t i = 0; i < COUNT(variables); i++) {
        snib_error error = {0};
        setenv(variables[i][0], variables[i][1], 1);
        trusted = false;
        assert_int_equal(opened(NULL, &error), SNIB_EURL);
        assert_non_null(strstr(error.text, variables[i][0]));
        assert_null(strstr(error.text, variables[i][1]));
        assert_int_equal(opened("redis://here", &error), SNIB_OK); /* which uses none of them */
        trusted = true;
        assert_int_equal(opened(NULL, &error), SNIB_OK);
        setenv(variables[i][0], "", 1); /* as if it were unset */
        trusted = false;
        assert_int_equal(opened(NULL, &error), SNIB_OK);
        unsetenv(variables[i][0]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(more_rights_than_the_user)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
