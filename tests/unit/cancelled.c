/* cancelled.c - a thread is cancelled before it opens a client: the call ends before the thread does. */
#include "unit.h"

#include "api/objects.h"

#include <errno.h>
#include <pthread.h>

static snib_client *client;
static struct snib__client *heir;

/* The thread ends in the call, or as if nothing had been: sanitizers do not bear an end in between. */
static void *open_cancelled(void *unused)
{
    int old;
    pthread_cancel(pthread_self());
    snib_client_open("redis://nowhere.test", NULL, &client, NULL);
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &old);
    return old == PTHREAD_CANCEL_ENABLE ? unused : &client;
}

static void *inherit_cancelled(void *from)
{
    int old;
    int32_t code;
    pthread_cancel(pthread_self());
    heir = snib__client_again(from, NULL, &code);
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &old);
    return old == PTHREAD_CANCEL_ENABLE ? NULL : from;
}

static void run(void *(*main)(void *), void *argument)
{
    pthread_t thread;
    void *result;
    assert_int_equal(pthread_create(&thread, NULL, main, argument), 0);
    assert_int_equal(pthread_join(thread, &result), 0);
    assert_null(result); /* not cancelled, and it still may be */
}

static void while_it_opens(void **state)
{
    (void)state;
    int32_t code;
    run(open_cancelled, NULL);
    assert_non_null(client);
    run(inherit_cancelled, snib__client_enter(client, NULL, &code));
    assert_non_null(heir);
    snib__client_unref(heir);
    snib__handle_put(client);
    snib_client_free(client);
}

int __real_pthread_mutex_trylock(pthread_mutex_t *mutex);
int __wrap_pthread_mutex_trylock(pthread_mutex_t *mutex);

static int taken; /* so often */

int __wrap_pthread_mutex_trylock(pthread_mutex_t *mutex)
{
    return taken > 0 && taken-- ? EBUSY : __real_pthread_mutex_trylock(mutex);
}

static void *acquire_cancelled(void *lock)
{
    int old;
    snib_hold *hold;
    pthread_cancel(pthread_self());
    snib_lock_acquire(lock, 1, 0, &hold, NULL);
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &old);
    return old == PTHREAD_CANCEL_ENABLE ? NULL : lock;
}

/* The option debug waits for another thread, inside the client. */
static void while_another_notes(void **state)
{
    snib_lock *lock;
    (void)state;
    assert_int_equal(snib_client_open("memory://nowhere?debug=yes", NULL, &client, NULL), SNIB_OK);
    assert_int_equal(snib_lock_new(client, SNIB_MUTEX, "name", 4, NULL, &lock, NULL), SNIB_OK);
    taken = 20; /* it sleeps after some */
    run(acquire_cancelled, lock);
    assert_int_equal(taken, 0);
    snib_lock_free(lock);
    snib_client_free(client);
}

/* It gives up after half a second.  By few steps: on a busy machine each of them takes long, and leases are not renewed
 * meanwhile. */
static void while_another_has_stopped(void **state)
{
    enum { MANY = 10000 };
    snib_lock *lock;
    snib_hold *hold;
    (void)state;
    assert_int_equal(snib_client_open("memory://nowhere?debug=yes", NULL, &client, NULL), SNIB_OK);
    assert_int_equal(snib_lock_new(client, SNIB_MUTEX, "name", 4, NULL, &lock, NULL), SNIB_OK);
    taken = MANY;
    assert_int_equal(snib_lock_acquire(lock, 1, 0, &hold, NULL), SNIB_ECONNECT);
    assert_in_range(MANY - taken, 2, 80); /* of this thread, and perhaps of the client's */
    taken = 0;
    snib_lock_free(lock);
    snib_client_free(client);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(while_it_opens),
                                       cmocka_unit_test(while_another_notes),
                                       cmocka_unit_test(while_another_has_stopped)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
