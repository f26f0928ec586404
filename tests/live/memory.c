/* memory.c - memory servers: their faults, their clock, and what a client makes of them. */
#define _GNU_SOURCE
#include "../support/support.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <snib_testing.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { SOON_MS = 20000, LEASE_MS = 30000 };

static int world_new(void **state)
{
    snib_memory *server;
    assert_int_equal(snib_memory_start(NULL, &server, NULL), SNIB_OK);
    *state = server;
    return 0;
}

static int world_free(void **state)
{
    snib_memory_stop(*state);
    return 0;
}

static snib_client *client_of(snib_memory *server)
{
    snib_client *client;
    snib_error err;
    if (snib_client_open(snib_memory_url(server), NULL, &client, &err) != SNIB_OK)
        fail_msg("%s", err.text);
    return client;
}

static void must_fault(snib_memory *server, const char *fault, const char *argument)
{
    snib_error err;
    if (snib_memory_fault(server, fault, argument, &err) != SNIB_OK)
        fail_msg("%s", err.text);
}

static void refused(int code, int want, const snib_error *err, const char *part)
{
    assert_int_equal(code, want);
    if (!strstr(err->text, part))
        fail_msg("\"%s\" does not contain \"%s\"", err->text, part);
}

/* ---- names ---- */

static void names(void **state)
{
    snib_memory *one, *other = NULL;
    snib_error err;
    snib_client *client;
    snib_hold *hold;
    (void)state;
    refused(snib_memory_start("", &one, &err), SNIB_EINVAL, &err, "1 to 64 letters");
    refused(snib_memory_start("a/b", &one, &err), SNIB_EINVAL, &err, "1 to 64 letters");
    refused(snib_memory_start("a", NULL, &err), SNIB_EINVAL, &err, "out_server is NULL");
    refused(snib_memory_fault(NULL, "stall", NULL, &err), SNIB_EINVAL, &err, "server is NULL");
    assert_null(snib_memory_url(NULL));
    assert_int_equal(snib_memory_has(NULL, "name"), SNIB_EINVAL);
    assert_int_equal(snib_memory_connections(NULL), SNIB_EINVAL);
    assert_int_equal(snib_memory_requests(NULL), SNIB_EINVAL);
    refused(snib_client_open("memory://", NULL, &client, &err), SNIB_EURL, &err, "memory://name");
    refused(snib_client_open("memory://a.b", NULL, &client, &err), SNIB_EURL, &err,
            "memory://name");
    assert_int_equal(snib_memory_start("twice", &one, &err), SNIB_OK);
    assert_string_equal(snib_memory_url(one), "memory://twice");
    assert_int_equal(snib_memory_has(one, NULL), SNIB_EINVAL);
    refused(snib_memory_start("twice", &other, &err), SNIB_EINVAL, &err, "\"twice\" already");
    client = client_of(one);
    must_release(must_acquire(must_lock(client, "name"), 0));
    snib_client_free(client);
    snib_memory_stop(one);
    assert_int_equal(snib_client_open("memory://twice", NULL, &client, &err), SNIB_OK);
    refused(snib_lock_acquire(must_lock(client, "name"), 0, 0, &hold, &err), SNIB_ECONNECT, &err,
            "memory://twice (no memory server of this name");
    snib_client_free(client);
    assert_int_equal(snib_memory_start("twice", &one, &err), SNIB_OK);
    snib_memory_stop(one);
    snib_memory_stop(NULL);
}

/* A server that is stopped and started again under its name is another one, which has neither the lock nor the connections
 * of the one before: the hold is lost as soon as the client has reached it, also one that is not renewed. */
static void started_again(void **state)
{
    snib_memory *server;
    snib_lock_options options;
    (void)state;
    assert_int_equal(snib_memory_start("again", &server, NULL), SNIB_OK);
    snib_client *client = client_of(server);
    snib_lock_options_init(&options, sizeof options);
    options.lease_ms = LEASE_MS * 10;
    snib_lock *lock = must_lock_with(client, SNIB_MUTEX, "name", &options);
    snib_hold *hold = must_acquire(lock, 0);
    snib_memory_stop(server);
    assert_int_equal(snib_memory_start("again", &server, NULL), SNIB_OK);
    AWAIT(snib_hold_check(hold, NULL) == SNIB_LOST, SOON_MS);
    snib_client *other = client_of(server);
    must_release(must_acquire(must_lock(other, "name"), SOON_MS));
    snib_hold_free(hold);
    snib_client_free(other);
    snib_client_free(client);
    snib_memory_stop(server);
}

/* Two programs with one name have two servers: a child does not see its parent's, and has its own. */
static void programs(void **state)
{
    snib_memory *server, *own;
    (void)state;
    assert_int_equal(snib_memory_start("shared", &server, NULL), SNIB_OK);
    snib_client *client = client_of(server);
    snib_hold *hold = must_acquire(must_lock(client, "name"), 0);
    pid_t child = fork();
    if (child == 0) {
        snib_client *other;
        snib_hold *second;
        snib_error err;
        int code = snib_memory_fault(server, "stall", NULL, &err);
        snib_memory_stop(server); /* the parent's goes on */
        _exit(code == SNIB_EFORKED && snib_memory_start("shared", &own, NULL) == SNIB_OK &&
                      snib_client_open("memory://shared", NULL, &other, NULL) == SNIB_OK &&
                      snib_lock_acquire(must_lock(other, "name"), 0, SOON_MS, &second, NULL) ==
                          SNIB_OK
                  ? 0
                  : 1);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_int_equal(snib_hold_check(hold, NULL), SNIB_OK);
    must_release(hold);
    snib_client_free(client);
    snib_memory_stop(server);
}

/* A client has the servers of its process, also of a child in which it lives on. */
static void inherited(void **state)
{
    snib_memory *server, *own;
    (void)state;
    assert_int_equal(snib_memory_start("inherited", &server, NULL), SNIB_OK);
    snib_client *client = client_of(server);
    snib_lock *lock = must_lock(client, "name");
    snib_hold *hold = must_acquire(lock, 0), *second;
    pid_t child = fork();
    if (child == 0) {
        snib_error err;
        int none = snib_lock_acquire(lock, 0, 0, &second, &err);
        _exit(none == SNIB_ECONNECT && strstr(err.text, "no memory server of this name") &&
                      snib_memory_start("inherited", &own, NULL) == SNIB_OK &&
                      snib_lock_acquire(lock, 0, SOON_MS, &second, NULL) == SNIB_OK &&
                      snib_memory_has(own, "name")
                  ? 0
                  : 1);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    must_release(hold);
    snib_client_free(client);
    snib_memory_stop(server);
}

enum { NO_SPACE = 77 };

/* Start a server, say so, and wait for the end of the pipe. */
static void first_process(int ready, int until)
{
    snib_memory *server;
    char byte = 0;
    bool is_good =
        snib_memory_start("first", &server, NULL) == SNIB_OK && write(ready, &byte, 1) == 1;
    close(ready);
    _exit(is_good && read(until, &byte, 1) == 0 ? 0 : 1);
}

/* A process whose child is the first of a namespace. */
static pid_t container(const int ready[2], const int until[2])
{
    pid_t outer = fork();
    if (outer != 0)
        return outer;
    close(until[1]);
    if (unshare(CLONE_NEWPID) != 0 && unshare(CLONE_NEWUSER | CLONE_NEWPID) != 0)
        _exit(NO_SPACE);
    pid_t inner = fork();
    if (inner == 0)
        first_process(ready[1], until[0]);
    close(ready[1]);
    int status;
    _exit(waitpid(inner, &status, 0) == inner && WIFEXITED(status) ? WEXITSTATUS(status) : 1);
}

/* Containers that share a network may have programs of one id. */
static void containers(void **state)
{
    int ready[2], until[2], status[2];
    pid_t programs[2];
    char byte;
    (void)state;
    assert_int_equal(pipe(ready), 0);
    assert_int_equal(pipe(until), 0);
    for (int i = 0; i < 2; i++)
        programs[i] = container(ready, until);
    close(ready[1]);
    while (read(ready[0], &byte, 1) == 1)
        ; /* until both have said so, or failed */
    close(until[1]);
    for (int i = 0; i < 2; i++)
        assert_int_equal(waitpid(programs[i], &status[i], 0), programs[i]);
    close(ready[0]);
    close(until[0]);
    if (WIFEXITED(status[0]) && WEXITSTATUS(status[0]) == NO_SPACE) {
        print_message("          skipped: no namespace for process ids\n");
        skip();
    }
    assert_int_equal(status[0], 0);
    assert_int_equal(status[1], 0);
}

/* The first process of a namespace gets no signal without a handler. */
static void ends(int signal)
{
    (void)signal;
    _exit(98);
}

/* The child has no thread for the server, which is its parent's. */
static int stop_as_first(void *server)
{
    signal(SIGALRM, ends);
    alarm(SOON_MS / 1000);
    int code = snib_memory_fault(server, "stall", NULL, NULL);
    snib_memory_stop(server);
    _exit(code == SNIB_EFORKED && getpid() == 1 ? 0 : 1);
}

static void sandbox(void)
{
    static char stack[256 * 1024] __attribute__((aligned(16)));
    snib_memory *server;
    if (snib_memory_start("sandbox", &server, NULL) != SNIB_OK)
        _exit(1);
    pid_t child = clone(stop_as_first, stack + sizeof stack, CLONE_NEWPID | SIGCHLD, server);
    int status;
    if (child < 0)
        _exit(NO_SPACE);
    bool is_good = waitpid(child, &status, 0) == child && status == 0;
    is_good = is_good && snib_memory_fault(server, "resume", NULL, NULL) == SNIB_OK;
    snib_memory_stop(server);
    _exit(is_good ? 0 : 1);
}

/* A process and its child may both have the number 1. */
static void with_the_same_number(void **state)
{
    int status;
    (void)state;
    pid_t outer = fork();
    if (outer == 0) {
        if (unshare(CLONE_NEWPID) != 0 && unshare(CLONE_NEWUSER | CLONE_NEWPID) != 0)
            _exit(NO_SPACE);
        pid_t first = fork();
        if (first == 0)
            sandbox();
        _exit(waitpid(first, &status, 0) == first && WIFEXITED(status) ? WEXITSTATUS(status) : 1);
    }
    assert_int_equal(waitpid(outer, &status, 0), outer);
    if (WIFEXITED(status) && WEXITSTATUS(status) == NO_SPACE)
        skip_because("no namespace for process ids");
    assert_int_equal(status, 0);
}

/* ---- threads that are cancelled ---- */

static _Atomic int calls_ended;

/* The thread is cancelled before its calls, and ends after them. */
static void *cancelled(void *argument)
{
    snib_memory *server = argument, *other;
    int old;
    pthread_cancel(pthread_self());
    int code = snib_memory_fault(server, calls_ended % 2 ? "accept" : "refuse", NULL, NULL);
    code = code ? code : snib_memory_advance(1, NULL);
    code = code ? code : snib_memory_start("other", &other, NULL);
    if (code == SNIB_OK)
        snib_memory_stop(other);
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &old);
    calls_ended += code == SNIB_OK && old == PTHREAD_CANCEL_ENABLE;
    pthread_setcancelstate(old, NULL);
    pthread_testcancel();
    return NULL;
}

static void no_cancellation_point(void **state)
{
    snib_memory *server = *state;
    for (int i = 0; i < 4; i++) {
        pthread_t thread;
        void *end;
        assert_int_equal(pthread_create(&thread, NULL, cancelled, server), 0);
        pthread_join(thread, &end);
        assert_ptr_equal(end, PTHREAD_CANCELED);
        assert_int_equal(calls_ended, i + 1);
    }
    snib_client *client = client_of(server);
    must_release(must_acquire(must_lock(client, "name"), SOON_MS));
    snib_client_free(client);
}

/* ---- the clock ---- */

static void advance_loses(void **state)
{
    snib_memory *server = *state;
    snib_error err;
    int32_t reason;
    snib_client *client = client_of(server), *other = client_of(server);
    snib_hold *hold = must_acquire(must_lock(client, "name"), 0);
    must_fault(server, "stall", NULL);
    assert_int_equal(snib_memory_advance(LEASE_MS, NULL), SNIB_OK);
    assert_int_equal(snib_hold_check(hold, &err), SNIB_LOST); /* at once, whatever the threads do */
    assert_int_equal(snib_hold_wait(hold, SOON_MS, &reason, NULL), SNIB_LOST);
    assert_int_equal(reason, SNIB_REASON_UNREACHABLE);
    must_fault(server, "resume", NULL);
    must_release(must_acquire(must_lock(other, "name"), SOON_MS));
    snib_hold_free(hold);
    refused(snib_memory_advance(-1, &err), SNIB_EINVAL, &err, "31536000000 ms");
    refused(snib_advance_clock(-1, &err), SNIB_EINVAL, &err, "31536000000 ms");
    snib_client_free(client);
    snib_client_free(other);
}

/* Steps of a third of a lease, in each of which the hold is renewed. */
static void advance_by_thirds(snib_hold *hold, int steps)
{
    for (int i = 0; i < steps; i++) {
        assert_int_equal(snib_memory_advance(LEASE_MS / 3 + 1, NULL), SNIB_OK);
        AWAIT(snib_hold_remaining_ms(hold) > LEASE_MS * 2 / 3, SOON_MS);
    }
}

/* The hold lives through more than a lease of such steps. */
static void advance_renews(void **state)
{
    snib_memory *server = *state;
    snib_client *client = client_of(server);
    snib_hold *hold = must_acquire(must_lock(client, "name"), 0);
    advance_by_thirds(hold, 6);
    assert_int_equal(snib_hold_check(hold, NULL), SNIB_OK);
    assert_true(snib_memory_has(server, "name"));
    must_release(hold);
    assert_false(snib_memory_has(server, "name"));
    snib_client_free(client);
}

/* No server's clock seems to have been set when all clocks are moved. */
static void advance_together(void **state)
{
    snib_memory *server = *state;
    snib_client *client = client_of(server);
    snib_hold *hold = must_acquire(must_lock(client, "name"), 0);
    advance_by_thirds(hold, 200);
    assert_int_equal(must_stats(client).clock_moves, 0);
    must_release(hold);
    snib_client_free(client);
}

static _Atomic int64_t set_back_s;

/* Instead of the library's, for the memory servers: a wall clock that can be set. */
__attribute__((visibility("default"))) int clock_gettime(clockid_t clock, struct timespec *out)
{
    int code = (int)syscall(SYS_clock_gettime, clock, out);
    if (clock == CLOCK_REALTIME)
        out->tv_sec -= set_back_s;
    return code;
}

/* The machine's clock is set while something is held: servers and clients go on by their own. */
static void clock_set_back(void **state)
{
    snib_memory *server = *state;
    snib_client *client = client_of(server);
    snib_hold *hold = must_acquire(must_lock(client, "name"), 0);
    for (int i = 0; i < 2; i++) { /* with each renewal the server is asked for its time */
        set_back_s = i * 3600;
        assert_int_equal(snib_memory_advance(LEASE_MS / 3 + 1, NULL), SNIB_OK);
        AWAIT(snib_hold_remaining_ms(hold) > LEASE_MS * 2 / 3, SOON_MS);
    }
    assert_int_equal(must_stats(client).clock_moves, 0);
    must_fault(server, "stall", NULL);
    assert_int_equal(snib_memory_advance(LEASE_MS + 1, NULL), SNIB_OK);
    assert_false(snib_memory_has(server, "name"));
    must_fault(server, "resume", NULL);
    set_back_s = 0;
    snib_hold_free(hold);
    snib_client_free(client);
}

/* ---- faults ---- */

static void reply_lost(void **state)
{
    snib_memory *server = *state;
    snib_client *client = client_of(server);
    snib_lock *lock = must_lock(client, "name");
    must_release(must_acquire(lock, 0)); /* the scripts are there */
    must_fault(server, "lose_reply", NULL);
    snib_hold *hold = must_acquire(lock, SOON_MS); /* asked again, with the same number */
    assert_true(must_stats(client).reconnects > 0);
    must_fault(server, "lose_reply", "1");
    must_release(hold);
    assert_false(snib_memory_has(server, "name"));
    snib_client_free(client);
}

static void connections_killed(void **state)
{
    snib_memory *server = *state;
    snib_error err;
    snib_client *client = client_of(server);
    snib_hold *hold = must_acquire(must_lock(client, "name"), 0);
    assert_true(snib_memory_connections(server) > 0);
    must_fault(server, "kill_connection", "1");
    AWAIT(must_stats(client).reconnects > 0, SOON_MS);
    must_fault(server, "kill_connection", NULL);
    must_release(hold);
    refused(snib_memory_fault(server, "kill_connection", "99", &err), SNIB_EINVAL, &err,
            "1 is the oldest");
    snib_client_free(client);
}

/* What a connection has said and the server has not read is gone with it. */
static void connections_cut(void **state)
{
    snib_memory *server = *state;
    snib_op *op;
    snib_client *client = client_of(server), *other = client_of(server);
    snib_lock *lock = must_lock(client, "name");
    must_release(must_acquire(lock, 0)); /* the scripts are there */
    uint64_t commands = must_stats(client).commands;
    must_fault(server, "stall", NULL);
    EXPECT(snib_lock_acquire_submit(lock, 0, -1, NULL, 0, &op, err), SNIB_OK);
    AWAIT(must_stats(client).commands > commands, SOON_MS);
    must_fault(server, "kill_connection", NULL);
    snib_client_close(client, 0, NULL);
    snib_op_free(op);
    snib_client_free(client);
    must_fault(server, "resume", NULL);
    must_release(
        must_acquire(must_lock(other, "other"), SOON_MS)); /* it has read all that there is */
    assert_false(snib_memory_has(server, "name"));
    snib_client_free(other);
}

/* One that is cut counts no more, also where the server's thread has not dropped it. */
static void connections_counted(void **state)
{
    snib_memory *server = *state;
    snib_error err;
    snib_client *client = client_of(server), *other = client_of(server);
    must_release(must_acquire(must_lock(client, "name"), 0));
    must_release(must_acquire(must_lock(other, "name"), 0));
    must_fault(server, "stall", NULL);
    int64_t n = snib_memory_connections(server);
    assert_true(n >= 2);
    must_fault(server, "kill_connection", "1");
    assert_int_equal(snib_memory_connections(server), n - 1);
    must_fault(server, "kill_connection", "1");
    assert_int_equal(snib_memory_connections(server), n - 2);
    must_fault(server, "refuse", NULL);
    assert_int_equal(snib_memory_connections(server), 0);
    refused(snib_memory_fault(server, "kill_connection", "1", &err), SNIB_EINVAL, &err,
            "there are 0");
    must_fault(server, "heal", NULL);
    snib_client_free(client);
    snib_client_free(other);
}

static _Atomic int accepts, accepts_none;

/* Instead of the library's accept4(), whose types are no ISO C: a process that has no descriptor left. */
__attribute__((visibility("default"))) int accept_some(int fd, void *address, void *n,
                                                       int flags) __asm__("accept4");

int accept_some(int fd, void *address, void *n, int flags)
{
    accepts++;
    errno = EMFILE;
    return accepts_none ? -1 : (int)syscall(SYS_accept4, fd, address, n, flags);
}

/* A connection for which the server has no descriptor waits until there is one, and the server does not try all the time. */
static void no_descriptor(void **state)
{
    snib_memory *server = *state;
    snib_client *client;
    EXPECT(snib_client_open(snib_memory_url(server), NULL, &client, err), SNIB_OK);
    accepts = 0;
    accepts_none = 1;
    snib_op *op;
    EXPECT(snib_lock_acquire_submit(must_lock(client, "name"), 0, -1, NULL, 0, &op, err), SNIB_OK);
    AWAIT(accepts > 1, SOON_MS);
    accepts = 0;
    int64_t began = now_ms();
    nap_us(100000);
    assert_true(accepts <= 2 + (now_ms() - began) / 5); /* or thousands */
    accepts_none = 0;
    must_release(must_end(op, SOON_MS).hold);
    snib_client_free(client);
}

static void key_expires(void **state)
{
    snib_memory *server = *state;
    snib_error err;
    snib_client *client = client_of(server);
    snib_hold *hold = must_acquire(must_lock(client, "name"), 0);
    refused(snib_memory_fault(server, "expire", "other", &err), SNIB_EINVAL, &err,
            "no key \"other\"");
    must_fault(server, "expire", "name");
    assert_int_equal(snib_memory_advance(LEASE_MS / 3 + 1, NULL), SNIB_OK); /* it asks */
    AWAIT(snib_hold_check(hold, NULL) == SNIB_LOST, SOON_MS);
    snib_hold_free(hold);
    snib_client_free(client);
}

/* A key ends with its lease, also while no request tells the server the time. */
static void key_ends(void **state)
{
    snib_memory *server = *state;
    snib_client *client = client_of(server);
    snib_hold *hold = must_acquire(must_lock(client, "name"), 0);
    must_fault(server, "stall", NULL);
    assert_true(snib_memory_has(server, "name"));
    assert_int_equal(snib_memory_advance(LEASE_MS - 50, NULL), SNIB_OK);
    AWAIT(!snib_memory_has(server, "name"), SOON_MS);
    must_fault(server, "resume", NULL);
    snib_hold_free(hold);
    snib_client_free(client);
}

static void server_fails_over(void **state)
{
    snib_memory *server = *state;
    snib_client *client = client_of(server);
    snib_hold *kept = must_acquire(must_lock(client, "kept"), 0);
    must_fault(server, "snapshot", NULL);
    snib_hold *gone = must_acquire(must_lock(client, "gone"), 0);
    must_fault(server, "failover", NULL);
    AWAIT(snib_hold_check(gone, NULL) == SNIB_LOST, SOON_MS);
    assert_int_equal(snib_hold_check(kept, NULL), SNIB_OK);
    must_release(kept);
    snib_hold_free(gone);
    snib_client_free(client);
}

static void server_refuses(void **state)
{
    snib_memory *server = *state;
    snib_error err;
    snib_hold *hold;
    snib_client *client = client_of(server);
    must_fault(server, "refuse", NULL);
    refused(snib_lock_acquire(must_lock(client, "name"), 0, 0, &hold, &err), SNIB_ECONNECT, &err,
            "no memory server of this name accepts");
    must_fault(server, "accept", NULL);
    must_release(must_acquire(must_lock(client, "name"), SOON_MS));
    must_fault(server, "oom", NULL);
    refused(snib_lock_acquire(must_lock(client, "name"), 0, 0, &hold, &err), SNIB_EOOM, &err,
            "OOM");
    must_fault(server, "oom", "off");
    must_release(must_acquire(must_lock(client, "name"), 0));
    must_fault(server, "readonly", "on");
    must_fault(server, "heal", NULL);
    must_release(must_acquire(must_lock(client, "name"), SOON_MS));
    snib_client_free(client);
}

static void *start_idle(void *out_server)
{
    assert_int_equal(sched_setscheduler(0, SCHED_IDLE, &(struct sched_param){0}), 0);
    assert_int_equal(snib_memory_start(NULL, out_server, NULL), SNIB_OK);
    return NULL;
}

/* The thread of the server has no time between two faults, because this one has it all. */
static void refused_briefly(void **state)
{
    snib_memory *server;
    cpu_set_t all, one;
    pthread_t starter;
    (void)state;
    CPU_ZERO(&one);
    CPU_SET((size_t)sched_getcpu(), &one);
    assert_int_equal(sched_getaffinity(0, sizeof all, &all), 0);
    assert_int_equal(sched_setaffinity(0, sizeof one, &one), 0);
    assert_int_equal(pthread_create(&starter, NULL, start_idle, &server), 0);
    assert_int_equal(pthread_join(starter, NULL), 0);
    for (int i = 0; i < 3; i++) {
        must_fault(server, "refuse", NULL);
        EXPECT(snib_memory_fault(server, "accept", NULL, err), SNIB_OK);
    }
    assert_int_equal(sched_setaffinity(0, sizeof all, &all), 0);
    snib_memory_stop(server);
}

/* Many permits are taken by one command, and many end together. */
static void many_permits(void **state)
{
    enum { ALL = 900, SOME = 300 };
    snib_memory *server = *state;
    snib_client *client = client_of(server);
    snib_lock *permits = must_lock_kind(client, SNIB_PERMITS, "permits");
    must_count(SNIB_PERMITS, permits, SNIB_COUNT_INIT, ALL);
    snib_hold *holds[ALL / SOME];
    for (int i = 0; i < ALL / SOME; i++)
        EXPECT(snib_permits_acquire(permits, SOME, SOON_MS, &holds[i], err), SNIB_OK);
    for (int i = 0; i < ALL / SOME; i++)
        snib_hold_abandon(holds[i]);
    assert_int_equal(snib_memory_advance(LEASE_MS + 1000, NULL), SNIB_OK);
    assert_int_equal(must_count(SNIB_PERMITS, permits, SNIB_COUNT_GET, 0), ALL);
    snib_lock_free(permits);
    snib_client_free(client);
}

/* The longest commands of all: the most permits that one hold may have, and as many members of multi locks as one renewal
 * has. */
static void longest_commands(void **state)
{
    enum { PERMITS = 1000, LOCKS = 4, MEMBERS = 100 };
    snib_memory *server = *state;
    snib_client *client = client_of(server);
    snib_lock *permits = must_lock_kind(client, SNIB_PERMITS, "permits");
    snib_hold *holds[LOCKS + 1];
    must_count(SNIB_PERMITS, permits, SNIB_COUNT_INIT, PERMITS);
    EXPECT(snib_permits_acquire(permits, PERMITS, SOON_MS, &holds[LOCKS], err), SNIB_OK);
    for (int i = 0; i < LOCKS; i++) {
        snib_lock *members[MEMBERS], *lock;
        for (int k = 0; k < MEMBERS; k++) {
            char name[32];
            snprintf(name, sizeof name, "%d of %d", k, i);
            members[k] = must_lock(client, name);
        }
        EXPECT(snib_multi_new(members, MEMBERS, NULL, &lock, err), SNIB_OK);
        holds[i] = must_acquire(lock, 0);
    }
    advance_by_thirds(holds[0], 1);
    for (int i = 0; i <= LOCKS; i++) {
        AWAIT(snib_hold_remaining_ms(holds[i]) > LEASE_MS * 2 / 3, SOON_MS);
        must_release(holds[i]);
    }
    assert_int_equal(must_stats(client).reconnects, 0);
    snib_client_free(client);
}

/* More names than fit into one reply, and in one step. */
static void many_names(void **state)
{
    enum { NAMES = 1000, LENGTH = 100 };
    snib_memory *server = *state;
    snib_client *client = client_of(server);
    static char text[65536];
    snib_lock *locks[NAMES];
    snib_hold *holds[NAMES];
    uint64_t cursor = 0;
    int found = 0, steps = 0;
    for (int i = 0; i < NAMES; i++) {
        char name[LENGTH + 1];
        snprintf(name, sizeof name, "%0*d", LENGTH, i);
        locks[i] = must_lock(client, name);
        holds[i] = must_acquire(locks[i], 0);
    }
    do {
        size_t used;
        uint32_t count;
        EXPECT(snib_client_list(client, "*", 1, &cursor, text, sizeof text, &used, &count, err),
               SNIB_OK);
        found += (int)count;
        steps++;
    } while (cursor != 0);
    assert_int_equal(found, NAMES);
    assert_true(steps > 1);
    for (int i = 0; i < NAMES; i++) {
        must_release(holds[i]);
        snib_lock_free(locks[i]);
    }
    snib_client_free(client);
}

enum { PASSED_ON = 300 }; /* more than one step of a list examines */

static void list_step(snib_client *client, uint64_t *cursor, bool listed[PASSED_ON])
{
    static char names[65536];
    size_t used;
    uint32_t count;
    EXPECT(snib_client_list(client, "*", 1, cursor, names, sizeof names, &used, &count, err),
           SNIB_OK);
    for (const char *name = names; name < names + used; name += strlen(name) + 1)
        listed[atoi(name)] = true;
}

/* The next hold has a lease of its own, so one command deletes the lock's string and sets another one. */
static snib_hold *pass_on(snib_hold *hold, snib_client *client, const char *name)
{
    snib_lock_options options;
    snib_op *op;
    snib_lock_options_init(&options, sizeof options);
    options.lease_ms = LEASE_MS;
    snib_lock *lock = must_lock_with(client, SNIB_PLAIN, name, &options);
    EXPECT(snib_lock_acquire_submit(lock, 0, -1, NULL, 0, &op, err), SNIB_OK);
    must_release(hold);
    snib_lock_free(lock);
    return must_end(op, SOON_MS).hold;
}

/* A list has every lock that is held all the time, as that of a real server. */
static void passed_on_while_listed(void **state)
{
    snib_client *client = client_of(*state);
    static snib_hold *holds[PASSED_ON];
    static bool listed[PASSED_ON];
    uint64_t cursor = 0;
    char name[8];
    for (int i = 0; i < PASSED_ON; i++) {
        snprintf(name, sizeof name, "%d", i);
        holds[i] = must_acquire(must_lock_kind(client, SNIB_PLAIN, name), 0);
    }
    list_step(client, &cursor, listed);
    assert_true(cursor != 0);
    for (int i = 0; i < PASSED_ON; i++) {
        snprintf(name, sizeof name, "%d", i);
        holds[i] = listed[i] ? holds[i] : pass_on(holds[i], client, name);
    }
    while (cursor != 0)
        list_step(client, &cursor, listed);
    for (int i = 0; i < PASSED_ON; i++) {
        if (!listed[i])
            fail_msg("%d is not listed", i);
        must_release(holds[i]);
    }
    snib_client_free(client);
}

/* What a client with durability says of a memory server is true. */
static void no_replicas(void **state)
{
    snib_client_options options;
    snib_client *client;
    snib_client_options_init(&options, sizeof options);
    options.durability = SNIB_DURABILITY_MAJORITY;
    EXPECT(snib_client_open(snib_memory_url(*state), &options, &client, err), SNIB_OK);
    snib_queue *log = must_queue(client);
    EXPECT(snib_client_log(client, log, SNIB_LOG_WARNING, err), SNIB_OK);
    must_release(must_acquire(must_lock(client, "name"), 0));
    while (!strstr(must_event(log, SOON_MS).text, "has no replicas"))
        ; /* a slow machine has more to say */
    snib_queue_free(log);
    snib_client_free(client);
}

static void bad_faults(void **state)
{
    snib_memory *server = *state;
    snib_error err;
    refused(snib_memory_fault(server, "explode", NULL, &err), SNIB_EINVAL, &err,
            "no fault \"explode\"; there are lose_reply, stall, ");
    refused(snib_memory_fault(server, NULL, NULL, &err), SNIB_EINVAL, &err, "masterdown, mute");
    refused(snib_memory_fault(server, "stall", "1", &err), SNIB_EINVAL, &err, "takes no argument");
    refused(snib_memory_fault(server, "lose_reply", "0", &err), SNIB_EINVAL, &err, "1 to 1000000");
    refused(snib_memory_fault(server, "lose_reply", "-", &err), SNIB_EINVAL, &err, "1 to 1000000");
    refused(snib_memory_fault(server, "expire", NULL, &err), SNIB_EINVAL, &err,
            "the name of a key");
    refused(snib_memory_fault(server, "oom", "maybe", &err), SNIB_EINVAL, &err,
            "\"on\" or \"off\"");
    assert_int_equal(snib_memory_fault(server, "explode", NULL, NULL), SNIB_EINVAL);
}

int main(void)
{
#define ON_SERVER(test) cmocka_unit_test_setup_teardown(test, world_new, world_free)
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names),
        cmocka_unit_test(started_again),
        cmocka_unit_test(programs),
        cmocka_unit_test(inherited),
        cmocka_unit_test(containers),
        cmocka_unit_test(with_the_same_number),
        ON_SERVER(no_cancellation_point),
        ON_SERVER(advance_loses),
        ON_SERVER(advance_renews),
        ON_SERVER(advance_together),
        ON_SERVER(clock_set_back),
        ON_SERVER(reply_lost),
        ON_SERVER(connections_killed),
        ON_SERVER(key_expires),
        ON_SERVER(server_fails_over),
        ON_SERVER(server_refuses),
        ON_SERVER(bad_faults),
        ON_SERVER(many_permits),
        ON_SERVER(longest_commands),
        ON_SERVER(many_names),
        ON_SERVER(key_ends),
        cmocka_unit_test(refused_briefly),
        ON_SERVER(connections_cut),
        ON_SERVER(connections_counted),
        ON_SERVER(no_descriptor),
        ON_SERVER(no_replicas),
        ON_SERVER(passed_on_while_listed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
