/* debugger.c - a thread that a debugger stops while the option debug notes a lock of another client: leases are renewed
 * all the same, and the other callers go on.  A fork that waits for other threads is no such thread. */
#include "../support/support.h"

#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { LEASE_MS = 6000, PROMPT_MS = 20000, BEGIN_US = 200000 };

void snib__forks_enter(void);
void snib__forks_leave(void);

static struct server server;
static sem_t stopped, go_on;
static bool armed;

int __real_snib__order_note(const void *pair, void *out_circle);
int __wrap_snib__order_note(const void *pair, void *out_circle);

/* Called while all that debug knows is locked. */
int __wrap_snib__order_note(const void *pair, void *out_circle)
{
    if (armed) {
        armed = false;
        sem_post(&stopped);
        while (sem_wait(&go_on) != 0)
            ;
    }
    return __real_snib__order_note(pair, out_circle);
}

static int start(void **state)
{
    (void)state;
    server_start(&server, NULL);
    sem_init(&stopped, 0, 0);
    sem_init(&go_on, 0, 0);
    return 0;
}

static int stop(void **state)
{
    (void)state;
    sem_post(&go_on); /* also if the test has failed: the thread would keep this process for ever */
    server_stop(&server);
    return 0;
}

static snib_client *debugged(void)
{
    snib_client *client;
    snib_client_options options;
    snib_client_options_init(&options, sizeof options);
    options.debug = 1;
    options.lease_ms = LEASE_MS;
    EXPECT(snib_client_open(server.url, &options, &client, err), SNIB_OK);
    return client;
}

static void *forks(void *unused)
{
    int status = -1;
    pid_t pid = fork();
    if (pid == 0)
        _exit(0);
    waitpid(pid, &status, 0);
    return status == 0 ? &server : unused;
}

static void in_order(snib_lock *first, snib_lock *then)
{
    snib_hold *held = must_acquire(first, PROMPT_MS);
    must_release(must_acquire(then, PROMPT_MS));
    must_release(held);
}

static void a_fork_that_waits(void **state)
{
    (void)state;
    snib_client *client = debugged();
    snib_lock *one = must_lock(client, "first"), *two = must_lock(client, "second");
    snib_queue *log = must_queue(client);
    EXPECT(snib_client_log(client, log, SNIB_LOG_WARNING, err), SNIB_OK);
    in_order(one, two);
    pthread_t thread;
    void *forked;
    snib__forks_enter(); /* a call that must not be cut in two */
    assert_int_equal(pthread_create(&thread, NULL, forks, NULL), 0);
    usleep(BEGIN_US);
    in_order(two, one);
    snib__forks_leave();
    assert_int_equal(pthread_join(thread, &forked), 0);
    assert_ptr_equal(forked, &server);
    assert_non_null(strstr(must_event(log, PROMPT_MS).text, "debug: lock order"));
    snib_queue_free(log);
    snib_client_free(client);
}

static void *take_two(void *context)
{
    snib_client *client = context;
    snib_lock *one = must_lock(client, "one"), *two = must_lock(client, "two");
    snib_hold *first = must_acquire(one, PROMPT_MS);
    snib_hold *second;
    armed = true;
    /* It is stopped here, with its client: that says afterwards what it can. */
    if (snib_lock_acquire(two, 0, PROMPT_MS, &second, NULL) == SNIB_OK)
        snib_hold_free(second);
    snib_hold_free(first);
    return NULL;
}

static void others_do_not_wait_for_it(void **state)
{
    (void)state;
    snib_client *client = debugged(), *theirs = debugged();
    snib_queue *log = must_queue(client);
    EXPECT(snib_client_log(client, log, SNIB_LOG_WARNING, err), SNIB_OK);
    snib_hold *kept = must_acquire(must_lock(client, "kept"), PROMPT_MS);
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, take_two, theirs), 0);
    while (sem_wait(&stopped) != 0)
        ;
    snib_event event = must_event(log, PROMPT_MS);
    assert_non_null(strstr(event.text, "debug: a thread has stopped while it records a lock"));
    snib_lock *other = must_lock(client, "other");
    uint64_t before = must_stats(client).renewals;
    while (must_stats(client).renewals < before + 4) { /* for more than a lease */
        must_release(must_acquire(other, PROMPT_MS));
        assert_int_not_equal(snib_hold_state(kept, NULL), SNIB_HOLD_LOST);
    }
    must_release(kept);
    sem_post(&go_on);
    assert_int_equal(pthread_join(thread, NULL), 0);
    snib_queue_free(log);
    snib_client_free(client);
    snib_client_free(theirs);
}

int main(void)
{
    alarm(300); /* a client that waits for the stopped thread waits for ever */
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_fork_that_waits),
        cmocka_unit_test(others_do_not_wait_for_it) /* the last: nothing more is looked for */
    };
    return cmocka_run_group_tests(tests, start, stop);
}
