/* memory.c - the n-th allocation fails, for every n of a program that acquires, waits and releases.
 *
 * The program gets an error from some call, or none if the failure could be endured; it never
 * crashes or hangs, and afterwards the same process can lock again.  Each n runs in a process of
 * its own.
 */
#define _GNU_SOURCE
#include "../support/support.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- The allocator that fails ---------------------------------------------------------------- */

void *__libc_malloc(size_t n);
void *__libc_calloc(size_t count, size_t n);
void *__libc_realloc(void *old, size_t n);

static atomic_long memory_seen;
static atomic_long memory_fail_at; /* 0: never */
static atomic_bool memory_fail_on; /* and all after it */

static bool memory_fails(void)
{
    long fail_at = memory_fail_at;
    if (fail_at == 0)
        return false;
    long seen = ++memory_seen;
    return memory_fail_on ? seen >= fail_at : seen == fail_at;
}

void *malloc(size_t n)
{
    return memory_fails() ? NULL : __libc_malloc(n);
}

void *calloc(size_t count, size_t n)
{
    return memory_fails() ? NULL : __libc_calloc(count, n);
}

void *realloc(void *old, size_t n)
{
    return memory_fails() ? NULL : __libc_realloc(old, n);
}

/* ---- The program ----------------------------------------------------------------------------- */

enum { LEASE_MS = 1000, CHILD_S = 20 };
enum { ENDED_WELL = 0, ENDED_WITH_ERROR = 1, AFTERWARDS_BROKEN = 2, LIED = 3, DONE_ALL = 4 };

/* Acquire, wait, hand over, release; whatever fails is left out.  Returns whether all went well. */
static bool scenario(const char *url)
{
    snib_client_options options;
    snib_client_options_init(&options, sizeof options);
    options.lease_ms = LEASE_MS;
    options.patience_ms = 500;
    snib_client *client = NULL;
    snib_lock *lock = NULL, *free_lock = NULL;
    snib_queue *queue = NULL;
    snib_hold *hold = NULL, *waited = NULL;
    snib_op *op = NULL;
    snib_event event = {.size = sizeof event};
    bool good = snib_client_open(url, &options, &client, NULL) == SNIB_OK;
    good = good && snib_queue_new(client, &queue, NULL) == SNIB_OK;
    good = good && snib_lock_new(client, SNIB_MUTEX, "taken", 5, NULL, &lock, NULL) == SNIB_OK;
    good = good && snib_lock_new(client, SNIB_MUTEX, "free", 4, NULL, &free_lock, NULL) == SNIB_OK;
    good = good && snib_lock_acquire(free_lock, 0, 1000, &hold, NULL) == SNIB_OK;
    good = good && snib_lock_acquire(lock, 0, 1000, &waited, NULL) == SNIB_OK;
    good = good && snib_lock_acquire_submit(lock, 0, 1000, queue, 1, &op, NULL) == SNIB_OK;
    good = good && snib_hold_release(waited, NULL) == SNIB_OK;
    good = good && snib_queue_wait(queue, &event, 1, 2000, NULL) == 1;
    good = good && event.code == SNIB_OK;
    good = good && snib_hold_release(event.hold, NULL) == SNIB_OK;
    good = good && snib_hold_release(hold, NULL) == SNIB_OK;
    snib_hold_free(event.hold);
    snib_hold_free(waited);
    snib_hold_free(hold);
    snib_queue_free(queue);
    snib_lock_free(lock);
    snib_lock_free(free_lock);
    if (client && snib_client_close(client, -1, NULL) != SNIB_OK)
        good = false;
    snib_client_free(client);
    return good;
}

static int child(struct server *server, long n, bool on)
{
    alarm(CHILD_S);
    memory_seen = 0;
    memory_fail_on = on;
    memory_fail_at = n;
    bool good = scenario(server->url);
    memory_fail_at = 0;
    if (memory_seen < n)
        return good ? DONE_ALL : LIED; /* nothing failed, so all must go well */
    return scenario(server->url) ? (good ? ENDED_WELL : ENDED_WITH_ERROR) : AFTERWARDS_BROKEN;
}

static void fail_each(struct server *server, bool on)
{
    int errors = 0, endured = 0;
    for (long n = 1;; n++) {
        server_do(server, "EVAL %s 1 taken",
                  "redis.call('hset',KEYS[1],'0-0-0-0-0:1',1)"
                  "return redis.call('pexpire',KEYS[1],40)");
        pid_t pid = fork();
        if (pid == 0)
            _exit(child(server, n, on));
        int status;
        assert_int_equal(waitpid(pid, &status, 0), pid);
        if (!WIFEXITED(status))
            fail_msg("allocation %ld: ended by signal %d", n, WTERMSIG(status));
        if (WEXITSTATUS(status) == DONE_ALL)
            break;
        if (WEXITSTATUS(status) > ENDED_WITH_ERROR)
            fail_msg("allocation %ld: outcome %d", n, WEXITSTATUS(status));
        WEXITSTATUS(status) == ENDED_WITH_ERROR ? errors++ : endured++;
        AWAIT(server_is_empty(server) && server_channels(server) == 0, 2 * LEASE_MS);
    }
    print_message("          %d errors, %d endured\n", errors, endured);
    assert_true(errors > 0);
}

static void one_fails(void **state)
{
    fail_each(*state, false);
}

static void one_and_all_after_fail(void **state)
{
    fail_each(*state, true);
}

static int start(void **state)
{
    static struct server server;
    server_start(&server, NULL);
    *state = &server;
    return 0;
}

static int stop(void **state)
{
    server_stop(*state);
    return 0;
}

int main(void)
{
    before_everybody(); /* an error must come from the allocator, not from a lack of time */
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_fails),
        cmocka_unit_test(one_and_all_after_fail),
    };
    return cmocka_run_group_tests(tests, start, stop);
}
