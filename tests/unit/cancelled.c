/* cancelled.c - a thread is cancelled before it opens a client: the call ends before the thread does. */
#include "unit.h"

#include "api/objects.h"

#include <pthread.h>

static snib_client *client;
static struct snib__client *heir;

static void *open_and_end(void *unused)
{
    pthread_cancel(pthread_self());
    if (snib_client_open("redis://nowhere.test", NULL, &client, NULL) != SNIB_OK)
        return NULL;
    pthread_testcancel();
    return unused;
}

static void *inherit_and_end(void *from)
{
    int32_t code;
    pthread_cancel(pthread_self());
    heir = snib__client_again(from, NULL, &code);
    pthread_testcancel();
    return NULL;
}

static void run(void *(*main)(void *), void *argument)
{
    pthread_t thread;
    void *result;
    assert_int_equal(pthread_create(&thread, NULL, main, argument), 0);
    assert_int_equal(pthread_join(thread, &result), 0);
    assert_ptr_equal(result, PTHREAD_CANCELED);
}

static void while_it_opens(void **state)
{
    (void)state;
    int32_t code;
    run(open_and_end, NULL);
    assert_non_null(client);
    run(inherit_and_end, snib__client_enter(client, NULL, &code));
    assert_non_null(heir);
    snib__client_unref(heir);
    snib__handle_put(client);
    snib_client_free(client);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(while_it_opens)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
