/* memory.c - the n-th allocation fails, for every n of a program that acquires, waits and releases,
 * for every kind of lock; and the table of handles cannot grow.
 *
 * The program gets an error from some call, or none if the failure could be tolerated; it never
 * crashes or hangs, and afterwards the same process can lock again.  Each n runs in a separate
 * process.
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
static atomic_bool memory_fail_on; /* and all later ones */
static atomic_size_t memory_most;  /* larger ones fail; 0: no limit */

static bool memory_fails(size_t n)
{
    if (memory_most > 0 && n > memory_most)
        return true;
    long fail_at = memory_fail_at;
    if (fail_at == 0)
        return false;
    long seen = ++memory_seen;
    return memory_fail_on ? seen >= fail_at : seen == fail_at;
}

void *malloc(size_t n)
{
    return memory_fails(n) ? NULL : __libc_malloc(n);
}

void *calloc(size_t count, size_t n)
{
    return memory_fails(count * n) ? NULL : __libc_calloc(count, n);
}

void *realloc(void *old, size_t n)
{
    return memory_fails(n) ? NULL : __libc_realloc(old, n);
}

/* ---- The program ----------------------------------------------------------------------------- */

enum { CHILD_S = 120, WAIT_MS = 10000, SHORT_MS = 300, LONG_MS = 60000 };
enum { ENDED_WELL = 0, ENDED_WITH_ERROR = 1, AFTERWARDS_BROKEN = 2, LIED = 3, DONE_ALL = 4 };

/* A kind of lock, and how to make its lock "taken" temporarily unavailable. */
struct program {
    const char *name;
    int32_t kind; /* 0: a multi lock, -1: one of kinds that are taken one after another */
    const char *take;
};

#define TAKE_HASH(fields)                                                                          \
    "redis.call('hset',KEYS[1]," fields ",1) return redis.call('pexpire',KEYS[1],20)"

static const struct program programs[] = {
    {"mutex", SNIB_MUTEX, TAKE_HASH("'0-0-0-0-0:1'")},
    {"read", SNIB_READ, TAKE_HASH("'mode','write','0-0-0-0-0:1:write'")},
    {"write", SNIB_WRITE, TAKE_HASH("'mode','write','0-0-0-0-0:1:write'")},
    {"fenced", SNIB_FENCED, TAKE_HASH("'0-0-0-0-0:1'")},
    {"fair", SNIB_FAIR, TAKE_HASH("'0aa00000-0000-8000-8000-000000000000:1'")},
    {"spin", SNIB_SPIN, TAKE_HASH("'0-0-0-0-0:1'")},
    {"plain", SNIB_PLAIN, "return redis.call('set',KEYS[1],'x','px',20)"},
    {"semaphore", SNIB_SEMAPHORE, "return redis.call('set',KEYS[1],1)"},
    {"permits", SNIB_PERMITS, "return redis.call('set',KEYS[1],1)"},
    {"latch", SNIB_LATCH, "return redis.call('set',KEYS[1],1,'px',20)"},
    {"multi", 0, TAKE_HASH("'0-0-0-0-0:1'")},
    {"multi of others", -1, TAKE_HASH("'0-0-0-0-0:1'")},
};

/* The program's lock of this name; NULL if out of memory. */
static snib_lock *program_lock(const struct program *program, snib_client *client, const char *name)
{
    snib_lock *lock = NULL, *members[2] = {NULL, NULL};
    if (program->kind > 0) {
        (void)snib_lock_new(client, program->kind, name, strlen(name), NULL, &lock, NULL);
        return lock;
    }
    char second[32];
    snprintf(second, sizeof second, "%s2", name);
    int32_t other = program->kind == 0 ? SNIB_FENCED : SNIB_FAIR;
    (void)snib_lock_new(client, SNIB_MUTEX, name, strlen(name), NULL, &members[0], NULL);
    (void)snib_lock_new(client, other, second, strlen(second), NULL, &members[1], NULL);
    if (members[0] && members[1])
        (void)snib_multi_new(members, 2, NULL, &lock, NULL);
    snib_lock_free(members[0]);
    snib_lock_free(members[1]);
    return lock;
}

/* One holds, one waits behind it; failing steps are skipped. */
static bool hold_and_wait(snib_lock *lock, snib_queue *queue)
{
    snib_hold *hold = NULL;
    snib_event event = {.size = sizeof event};
    bool good = snib_lock_acquire(lock, 0, WAIT_MS, &hold, NULL) == SNIB_OK;
    good = good && snib_lock_acquire_submit(lock, 0, WAIT_MS, queue, 1, NULL, NULL) == SNIB_OK;
    good = good && snib_hold_release(hold, NULL) == SNIB_OK;
    good = good && snib_queue_wait(queue, &event, 1, 2 * WAIT_MS, NULL) == 1;
    good = good && event.code == SNIB_OK;
    good = good && snib_hold_release(event.hold, NULL) == SNIB_OK;
    snib_hold_free(event.hold);
    snib_hold_free(hold);
    return good;
}

/* Acquire, wait, hand over, release, beside another hold; returns whether all succeeded.  Short:
 * lease and patience end soon after a failure; long: only the failure can cause an error. */
static bool scenario(const struct program *program, const char *url, int64_t lease_ms)
{
    snib_client_options options;
    snib_client_options_init(&options, sizeof options);
    options.lease_ms = lease_ms;
    options.patience_ms = lease_ms;
    options.recheck_ms = 100;
    snib_client *client = NULL;
    snib_lock *lock = NULL, *free_lock = NULL;
    snib_queue *queue = NULL;
    snib_hold *hold = NULL;
    bool good = snib_client_open(url, &options, &client, NULL) == SNIB_OK;
    good = good && snib_queue_new(client, &queue, NULL) == SNIB_OK;
    good = good && (lock = program_lock(program, client, "taken")) != NULL;
    good = good && snib_lock_new(client, SNIB_MUTEX, "free", 4, NULL, &free_lock, NULL) == SNIB_OK;
    good = good && snib_lock_acquire(free_lock, 0, WAIT_MS, &hold, NULL) == SNIB_OK;
    if (program->kind == SNIB_LATCH)
        good = good && snib_latch_wait(lock, WAIT_MS, NULL) == SNIB_OK;
    else
        good = good && hold_and_wait(lock, queue);
    good = good && snib_hold_release(hold, NULL) == SNIB_OK;
    snib_hold_free(hold);
    snib_queue_free(queue);
    snib_lock_free(lock);
    snib_lock_free(free_lock);
    if (client && snib_client_close(client, -1, NULL) != SNIB_OK)
        good = false;
    snib_client_free(client);
    return good;
}

static int child(const struct program *program, struct server *server, long n, bool on)
{
    alarm(CHILD_S);
    memory_seen = 0;
    memory_fail_on = on;
    memory_fail_at = n;
    bool good = scenario(program, server->url, SHORT_MS);
    memory_fail_at = 0;
    if (memory_seen < n) /* nothing failed, so all must succeed, unless time ran out */
        return good || scenario(program, server->url, LONG_MS) ? DONE_ALL : LIED;
    if (program->kind == SNIB_SEMAPHORE) { /* its permits may be gone: put them back */
        redisContext *redis = redisConnectUnix(server->socket);
        freeReplyObject(redisCommand(redis, "SET taken 1"));
        redisFree(redis);
    }
    return scenario(program, server->url, LONG_MS) ? (good ? ENDED_WELL : ENDED_WITH_ERROR)
                                                   : AFTERWARDS_BROKEN;
}

/* Only what the program must not delete is left: numbers and token counters, and what a client says about
 * itself, for which there may have been no memory at its close. */
static bool all_given_back(struct server *server)
{
    return server_integer(server, "EVAL %s 0",
                          "local n = 0 for _, key in ipairs(redis.call('keys', '*')) do "
                          "local left = redis.call('type', key).ok ~= 'string' or "
                          "redis.call('pttl', key) ~= -1 "
                          "if left and not key:find('^snib_client:') then n = n + 1 end "
                          "end return n") == 0;
}

/* What there was no time to give back ends by itself, except a place in a fair lock's queue: that goes when its
 * client has been silent for some seconds and another one asks, here a process whose memory does not end. */
static bool ended(const struct program *program, struct server *server)
{
    if (all_given_back(server) && server_channels(server) == 0)
        return true;
    if (program->kind == SNIB_FAIR || program->kind == -1) {
        pid_t pid = fork();
        if (pid == 0)
            _exit(scenario(program, server->url, LONG_MS) ? ENDED_WELL : AFTERWARDS_BROKEN);
        int status;
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_int_equal(status, ENDED_WELL);
    }
    return false;
}

static void fail_each(const struct program *program, struct server *server, bool on)
{
    int errors = 0, endured = 0;
    for (long n = 1;; n++) {
        server_do(server, "FLUSHALL");
        server_do(server, "EVAL %s 1 taken", program->take);
        pid_t pid = fork();
        if (pid == 0)
            _exit(child(program, server, n, on));
        int status;
        assert_int_equal(waitpid(pid, &status, 0), pid);
        if (!WIFEXITED(status))
            fail_msg("%s, allocation %ld: ended by signal %d", program->name, n, WTERMSIG(status));
        if (WEXITSTATUS(status) == DONE_ALL)
            break;
        if (WEXITSTATUS(status) > ENDED_WITH_ERROR)
            fail_msg("%s, allocation %ld: outcome %d", program->name, n, WEXITSTATUS(status));
        WEXITSTATUS(status) == ENDED_WITH_ERROR ? errors++ : endured++;
        AWAIT(ended(program, server), WAIT_MS);
        if (program->kind == SNIB_PERMITS)
            assert_int_equal(server_integer(server, "INCRBY taken 0"), 1); /* none is lost */
    }
    print_message("          %s: %d errors, %d endured\n", program->name, errors, endured);
    assert_true(errors > 0);
}

static void one_fails(void **state)
{
    for (size_t i = 0; i < sizeof programs / sizeof programs[0]; i++)
        fail_each(&programs[i], *state, false);
}

static void one_and_all_after_fail(void **state)
{
    size_t step = (size_t)count_of(1, 4);
    for (size_t i = 0; i < sizeof programs / sizeof programs[0]; i += step)
        fail_each(&programs[i], *state, true);
}

/* ---- The table of handles -------------------------------------------------------------------- */

enum { OWNER = 7, LOCKS = 2000, CHUNK = 4096 /* bytes; the table grows by 8 KiB and more */ };

/* Make locks until the table has no room for another handle; how many. */
static int fill_table(snib_client *client, snib_lock *others[LOCKS])
{
    int n = 0;
    snib_error err = {0};
    memory_most = CHUNK;
    while (n < LOCKS &&
           snib_lock_new(client, SNIB_MUTEX, "other", 5, NULL, &others[n], &err) == SNIB_OK)
        n++;
    assert_in_range(n, 1, LOCKS - 1);
    assert_int_equal(err.code, SNIB_ENOMEM);
    return n;
}

/* An operation that gets its lock at once, by re-entry, and cannot get a handle: the caller is told
 * of the failure, so the lock that it does not know of must not stay held. */
static void no_handle_for_a_granted_operation(void **state)
{
    struct server *server = *state;
    snib_client *client;
    snib_lock *lock, *others[LOCKS];
    snib_queue *queue;
    snib_hold *hold;
    snib_op *op = NULL;
    snib_error err;
    server_do(server, "FLUSHALL");
    assert_int_equal(snib_client_open(server->url, NULL, &client, &err), SNIB_OK);
    assert_int_equal(snib_queue_new(client, &queue, &err), SNIB_OK);
    assert_int_equal(snib_lock_new(client, SNIB_MUTEX, "again", 5, NULL, &lock, &err), SNIB_OK);
    assert_int_equal(snib_lock_acquire(lock, OWNER, WAIT_MS, &hold, &err), SNIB_OK);
    int n = fill_table(client, others);
    assert_int_equal(snib_lock_acquire_submit(lock, OWNER, 0, queue, 1, &op, &err), SNIB_ENOMEM);
    assert_null(op);
    memory_most = 0;
    assert_int_equal(snib_hold_release(hold, &err), SNIB_OK);
    assert_int_equal(server_integer(server, "EXISTS again"), 0);
    snib_hold_free(hold);
    while (n > 0)
        snib_lock_free(others[--n]);
    snib_lock_free(lock);
    snib_queue_free(queue);
    assert_int_equal(snib_client_close(client, -1, &err), SNIB_OK);
    snib_client_free(client);
}

/* What cannot be reported has not begun: a caller that tries the release of a re-entry again does not lose the lock
 * that it still holds, and no lock is deleted. */
static void no_room_for_the_release_of_a_reentry(void **state)
{
    struct server *server = *state;
    snib_client *client;
    snib_lock *lock, *others[LOCKS];
    snib_hold *hold;
    snib_op *op = NULL;
    snib_error err;
    server_do(server, "FLUSHALL");
    assert_int_equal(snib_client_open(server->url, NULL, &client, &err), SNIB_OK);
    assert_int_equal(snib_lock_new(client, SNIB_MUTEX, "again", 5, NULL, &lock, &err), SNIB_OK);
    for (int i = 0; i < 2; i++)
        assert_int_equal(snib_lock_acquire(lock, OWNER, WAIT_MS, &hold, &err), SNIB_OK);
    int n = fill_table(client, others);
    assert_int_equal(snib_hold_release_submit(hold, NULL, 1, &op, &err), SNIB_ENOMEM);
    assert_int_equal(snib_lock_force_release_submit(lock, NULL, 1, &op, &err), SNIB_ENOMEM);
    assert_null(op);
    memory_most = 0;
    assert_int_equal(snib_hold_release(hold, &err), SNIB_OK);
    assert_int_equal(server_integer(server, "EXISTS again"), 1);
    assert_int_equal(snib_hold_release(hold, &err), SNIB_OK);
    assert_int_equal(server_integer(server, "EXISTS again"), 0);
    for (int i = 0; i < 2; i++)
        snib_hold_free(hold);
    while (n > 0)
        snib_lock_free(others[--n]);
    snib_lock_free(lock);
    assert_int_equal(snib_client_close(client, -1, &err), SNIB_OK);
    snib_client_free(client);
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
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_fails),
        cmocka_unit_test(one_and_all_after_fail),
        cmocka_unit_test(no_handle_for_a_granted_operation),
        cmocka_unit_test(no_room_for_the_release_of_a_reentry),
    };
    return cmocka_run_group_tests(tests, start, stop);
}
