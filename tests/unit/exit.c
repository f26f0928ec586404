/* exit.c - the list of the clients that give everything back at process exit. */
#include "unit.h"

#include "api/objects.h"

#include <openssl/crypto.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

void __real_snib__exit_remove(struct snib__client *client);
void __wrap_snib__exit_remove(struct snib__client *client);

static _Atomic bool stops;
static _Atomic uint32_t leaving;

/* Clients whose last reference is gone come here: one waits, and is still on the list when the process exits. */
void __wrap_snib__exit_remove(struct snib__client *client)
{
    uint32_t before = atomic_fetch_add(&leaving, 1);
    if (stops && before > 0)
        _exit(1); /* somebody else had one again, and lost it */
    while (stops)
        snib__park(&leaving, 1, SNIB__NEVER);
    __real_snib__exit_remove(client);
}

void __real_snib__driver_stop(struct snib__driver *driver);
void __wrap_snib__driver_stop(struct snib__driver *driver);

static _Atomic bool holds_up;
static _Atomic uint32_t stopping;

/* One that closes a client is still ending its threads when the process exits. */
void __wrap_snib__driver_stop(struct snib__driver *driver)
{
    if (!holds_up) {
        __real_snib__driver_stop(driver);
        return;
    }
    if (atomic_fetch_add(&stopping, 1) > 0)
        _exit(1); /* the same thread would be joined twice */
    snib__unpark_all(&stopping);
    for (;;)
        snib__park(&stopping, 1, SNIB__NEVER);
}

bool __real_snib__client_close_end(struct snib__client *client, snib__time until);
bool __wrap_snib__client_close_end(struct snib__client *client, snib__time until);

void __real_snib__client_close_begin(struct snib__client *client);
void __wrap_snib__client_close_begin(struct snib__client *client);

static bool times_close;
static snib__time begun_at;

void __wrap_snib__client_close_begin(struct snib__client *client)
{
    begun_at = snib__now();
    __real_snib__client_close_begin(client);
}

/* The process ends at once: with 0 if there was time for answers when its releases were sent. */
bool __wrap_snib__client_close_end(struct snib__client *client, snib__time until)
{
    if (times_close)
        _exit(begun_at && begun_at < until ? 0 : 1);
    return __real_snib__client_close_end(client, until);
}

int __real_sched_yield(void);
int __wrap_sched_yield(void);

static bool crowded;

/* On a busy machine others get the processor for long. */
int __wrap_sched_yield(void)
{
    static int yields;
    _Atomic uint32_t never = 0;
    if (!crowded)
        return __real_sched_yield();
    if (++yields > 100)
        _exit(1);
    snib__park(&never, 0, snib__now() + 5 * SNIB__MS);
    return 0;
}

void __real_snib__driver_rouse(struct snib__driver *driver);
void __wrap_snib__driver_rouse(struct snib__driver *driver);

static _Atomic(struct snib__driver *) rouses_late; /* and then stays there for a while */
static _Atomic uint32_t roused, may_go_on;

void __wrap_snib__driver_rouse(struct snib__driver *driver)
{
    atomic_fetch_add(&roused, 1);
    __real_snib__driver_rouse(driver);
    while (driver == rouses_late && !may_go_on)
        snib__park(&may_go_on, 0, snib__now() + SNIB__MS);
}

static enum { WORKS, MMAP_FAILS, MADVISE_FAILS } pages;

void *__real_mmap(void *at, size_t n, int protection, int flags, int fd, off_t offset);
void *__wrap_mmap(void *at, size_t n, int protection, int flags, int fd, off_t offset);
int __real_madvise(void *at, size_t n, int advice);
int __wrap_madvise(void *at, size_t n, int advice);

void *__wrap_mmap(void *at, size_t n, int protection, int flags, int fd, off_t offset)
{
    return pages == MMAP_FAILS ? MAP_FAILED : __real_mmap(at, n, protection, flags, fd, offset);
}

int __wrap_madvise(void *at, size_t n, int advice)
{
    return pages == MADVISE_FAILS ? -1 : __real_madvise(at, n, advice);
}

enum { CLIENTS = 3 };

static const int orders[][CLIENTS] = {{0, 1, 2}, {0, 2, 1}, {1, 0, 2},
                                      {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};

/* Listed clients are linked in both directions, in the order in which they were opened. */
static void expect_listed(struct snib__client *const *clients)
{
    const struct snib__client *newer = NULL;
    for (int i = CLIENTS; i-- > 0;) {
        if (!clients[i])
            continue;
        assert_ptr_equal(clients[i]->exit_prev, newer);
        if (newer)
            assert_ptr_equal(newer->exit_next, clients[i]);
        newer = clients[i];
    }
    assert_true(!newer || !newer->exit_next);
}

/* When this process asks for the first time which one it is, there is no memory for what tells it from its parent.  When it
 * exits there would be, and it still takes itself for the same; and a child made without the handlers of fork() for another
 * one.  The first test: the page must not be there yet. */
static void when_the_first_page_fails(void **state)
{
    (void)state;
    for (int how = MMAP_FAILS; how <= MADVISE_FAILS; how++) {
        int status;
        pid_t pid = fork(), child;
        assert_true(pid >= 0);
        if (pid == 0) {
            snib_client *handle;
            alarm(120); /* a hang ends as SIGALRM */
            pages = how;
            if (snib_set_exit_timeout(60000, NULL) != SNIB_OK ||
                snib_client_open("unix:///nowhere", NULL, &handle, NULL) != SNIB_OK)
                _exit(2);
            pages = WORKS;
            times_close = true;
            if ((child = _Fork()) == 0)
                exit(3);
            if (waitpid(child, &status, 0) != child || !WIFEXITED(status) ||
                WEXITSTATUS(status) != 3)
                _exit(4);
            exit(5);
        }
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_true(WIFEXITED(status));
        assert_int_equal(WEXITSTATUS(status), 0);
    }
}

static void leaving_in_any_order(void **state)
{
    (void)state;
    for (size_t order = 0; order < COUNT(orders); order++) {
        snib_client *handles[CLIENTS];
        struct snib__client *clients[CLIENTS];
        int32_t code;
        for (int i = 0; i < CLIENTS; i++) {
            assert_int_equal(snib_client_open("unix:///nowhere", NULL, &handles[i], NULL), SNIB_OK);
            clients[i] = snib__client_enter(handles[i], NULL, &code);
            assert_non_null(clients[i]);
            snib__handle_put(handles[i]);
        }
        expect_listed(clients);
        for (int i = 0; i < CLIENTS; i++) {
            snib_client_free(handles[orders[order][i]]);
            clients[orders[order][i]] = NULL;
            expect_listed(clients);
        }
    }
}

static void *free_client(void *handle)
{
    snib_client_free(handle);
    return NULL;
}

static void *close_client(void *handle)
{
    snib_client_close(handle, 0, NULL);
    return NULL;
}

/* In a child that exits while a thread ends a client, and has come as far as to count in *there: the exit must leave the
 * client to that thread. */
static void exits_beside(void *(*end)(void *), const char *url, _Atomic uint32_t *there)
{
    snib_client *handle;
    pthread_t thread;
    int status;
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        if (snib_client_open(url, NULL, &handle, NULL) != SNIB_OK ||
            pthread_create(&thread, NULL, end, handle) != 0)
            _exit(2);
        while (*there == 0)
            snib__park(there, 0, SNIB__NEVER);
        exit(0);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

/* A thread frees a client while the process exits. */
static void leaving_at_the_exit(void **state)
{
    (void)state;
    leaving = 0;
    stops = true;
    exits_beside(free_client, "unix:///nowhere", &leaving);
    stops = false;
}

/* A thread closes a client with TLS while the process exits, and nothing is to be given back: only OpenSSL's end is
 * prepared, because other code has an exit handler that tears it down. */
static void closing_at_the_exit(void **state)
{
    (void)state;
    assert_int_equal(OPENSSL_init_crypto(OPENSSL_INIT_LOAD_CRYPTO_STRINGS, NULL), 1);
    assert_int_equal(snib_set_exit_timeout(0, NULL), SNIB_OK);
    holds_up = true;
    exits_beside(close_client, "rediss://127.0.0.1:1", &stopping);
    holds_up = false;
}

/* A signal handler calls exit() while its thread has the client's mutex: the locks are left to their leases, but the
 * process ends. */
static void exits_inside(void **state)
{
    (void)state;
    int status;
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        snib_client *handle, *other;
        int32_t code;
        alarm(120); /* a hang ends as SIGALRM */
        if (snib_set_exit_timeout(100, NULL) != SNIB_OK ||
            snib_client_open("unix:///nowhere", NULL, &other, NULL) != SNIB_OK ||
            snib_client_open("unix:///nowhere", NULL, &handle, NULL) != SNIB_OK)
            _exit(2);
        snib__driver_enter(&snib__client_enter(handle, NULL, &code)->driver);
        exit(0);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

/* However long each wait takes: an exit does not wait for many. */
static void exits_inside_on_a_busy_machine(void **state)
{
    crowded = true;
    exits_inside(state);
    crowded = false;
}

/* The same with clients that have a lock in common, whose close would enter the one that cannot be closed: the last. */
static void expect_exit_inside_a_group(const char *const urls[CLIENTS])
{
    int status;
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        snib_client *clients[CLIENTS];
        snib_lock *locks[CLIENTS], *quorum;
        snib_op *op;
        int32_t code;
        alarm(120); /* a hang ends as SIGALRM */
        for (int i = 0; i < CLIENTS; i++) {
            if (snib_client_open(urls[i], NULL, &clients[i], NULL) != SNIB_OK ||
                snib_lock_new(clients[i], SNIB_MUTEX, "a", 1, NULL, &locks[i], NULL) != SNIB_OK)
                _exit(2);
        }
        if (snib_set_exit_timeout(100, NULL) != SNIB_OK ||
            snib_quorum_new(locks, CLIENTS, NULL, &quorum, NULL) != SNIB_OK ||
            snib_lock_acquire_submit(quorum, 0, -1, NULL, 0, &op, NULL) != SNIB_OK)
            _exit(2);
        snib__driver_enter(&snib__client_enter(clients[CLIENTS - 1], NULL, &code)->driver);
        exit(0);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

static void exits_inside_a_group(void **state)
{
    (void)state;
    const char *urls[CLIENTS] = {"unix:///nowhere", "unix:///no/where", "unix:///now/here"};
    expect_exit_inside_a_group(urls);
}

/* Those with TLS are closed first, because other code has an exit handler that tears OpenSSL down.  Sanitizers do not see
 * the locks inside OpenSSL, and take its end for a race with what was allocated before, or for a leak. */
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
static void exits_inside_a_group_with_tls(void **state)
{
    (void)state;
    const char *urls[CLIENTS] = {"rediss://127.0.0.1:1", "rediss://127.0.0.1:2", "unix:///nowhere"};
    assert_int_equal(OPENSSL_init_crypto(OPENSSL_INIT_LOAD_CRYPTO_STRINGS, NULL), 1);
    expect_exit_inside_a_group(urls);
}
#endif

/* A client that cannot be closed leaves time to the others, whose releases are to be confirmed. */
static void exits_inside_with_time_left(void **state)
{
    (void)state;
    int status;
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        snib_client *handle, *other;
        int32_t code;
        alarm(120); /* a hang ends as SIGALRM */
        if (snib_set_exit_timeout(2000, NULL) != SNIB_OK ||
            snib_client_open("unix:///nowhere", NULL, &other, NULL) != SNIB_OK ||
            snib_client_open("unix:///nowhere", NULL, &handle, NULL) != SNIB_OK)
            _exit(2);
        snib__driver_enter(&snib__client_enter(handle, NULL, &code)->driver);
        times_close = true;
        exit(2);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

static void *wake(void *unused)
{
    snib__exit_wake();
    return unused;
}

/* All are woken, also if the thread that has one's mutex opens a client meanwhile, and if it is the last who has it. */
static void woken_beside_others(void **state)
{
    (void)state;
    int status;
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        snib_client *handles[CLIENTS], *other;
        pthread_t thread;
        int32_t code;
        alarm(30); /* a hang ends as SIGALRM */
        for (int i = 0; i < CLIENTS; i++)
            if (snib_client_open("unix:///nowhere", NULL, &handles[i], NULL) != SNIB_OK)
                _exit(2);
        struct snib__client *client = snib__client_enter(handles[1], NULL, &code);
        leaving = roused = 0;
        snib__driver_enter(&client->driver);
        rouses_late = &client->driver;
        if (pthread_create(&thread, NULL, wake, NULL) != 0)
            _exit(3);
        while (roused < 2) /* the newest first */
            snib__park(&roused, 1, snib__now() + SNIB__MS);
        if (snib_client_open("unix:///nowhere", NULL, &other, NULL) != SNIB_OK)
            _exit(4);
        snib__driver_leave(&client->driver);
        snib_client_free(handles[1]);
        snib__handle_put(handles[1]);
        if (leaving != 0)
            _exit(5);
        may_go_on = 1;
        pthread_join(thread, NULL);
        _exit(leaving == 1 && roused == CLIENTS ? 0 : 6);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(when_the_first_page_fails),
        cmocka_unit_test(leaving_in_any_order),
        cmocka_unit_test(leaving_at_the_exit),
        cmocka_unit_test(woken_beside_others),
        cmocka_unit_test(closing_at_the_exit),
        cmocka_unit_test(exits_inside),
        cmocka_unit_test(exits_inside_on_a_busy_machine),
        cmocka_unit_test(exits_inside_a_group),
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
        cmocka_unit_test(exits_inside_a_group_with_tls),
#endif
        cmocka_unit_test(exits_inside_with_time_left),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
