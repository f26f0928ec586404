/* limits.c - a process that may open no more descriptors or start no more threads: each call that needs one says so,
 * changes nothing, and works when there is room again.  And one that has closed its standard descriptors.
 */
#include "unit.h"

#include "driver/sys.h"
#include "snib.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

static struct rlimit usual;
static bool no_threads;

/* The linker gives the library these instead of pthread_create(). */
int __real_pthread_create(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*run)(void *),
                          void *argument);

int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*run)(void *),
                          void *argument)
{
    return no_threads ? EAGAIN : __real_pthread_create(thread, attr, run, argument);
}

/* So many descriptors are left, above the lowest free number. */
static void allow(rlim_t n)
{
    int lowest = fcntl(0, F_DUPFD, 0);
    assert_true(lowest > 0);
    close(lowest);
    struct rlimit few = {(rlim_t)lowest + n, usual.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
}

static void allow_none(void)
{
    allow(0);
}

static void allow_again(void)
{
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &usual), 0);
}

static void expect_refused(int code, int os_error, const snib_error *error, const char *what)
{
    assert_int_equal(code, SNIB_ESYSTEM);
    assert_int_equal(error->code, SNIB_ESYSTEM);
    assert_int_equal(error->os_error, os_error);
    assert_non_null(strstr(error->text, what));
    assert_non_null(strstr(error->text, strerror(os_error)));
}

static snib_client *new_client(void)
{
    snib_client *client = NULL;
    assert_int_equal(snib_client_open("unix:///nowhere", NULL, &client, NULL), SNIB_OK);
    return client;
}

static void client_is_refused(void **state)
{
    (void)state;
    snib_client *client = NULL;
    snib_error error = {0};
    allow_none();
    int code = snib_client_open("unix:///nowhere", NULL, &client, &error);
    allow_again();
    expect_refused(code, EMFILE, &error, "cannot create the client");
    assert_null(client);
    snib_client_free(new_client());
}

static void queue_is_refused(void **state)
{
    (void)state;
    snib_client *client = new_client();
    snib_queue *queue = NULL;
    snib_error error = {0};
    allow_none();
    int code = snib_queue_new(client, &queue, &error);
    allow_again();
    expect_refused(code, EMFILE, &error, "cannot create the queue");
    assert_null(queue);
    assert_int_equal(snib_queue_new(client, &queue, &error), SNIB_OK);
    snib_queue_free(queue);
    snib_client_free(client);
}

static int ping(snib_client *client, snib_lock *lock, snib_error *error)
{
    (void)lock;
    return snib_client_ping(client, 0, error);
}

static int acquire(snib_client *client, snib_lock *lock, snib_error *error)
{
    (void)client;
    snib_hold *hold = NULL;
    int code = snib_lock_acquire(lock, 0, 0, &hold, error);
    assert_null(hold);
    return code;
}

static int info(snib_client *client, snib_lock *lock, snib_error *error)
{
    (void)client;
    snib_lock_info_data data = {.size = sizeof data};
    return snib_lock_info(lock, &data, error);
}

/* The thread is started by the first request, whatever that is. */
static void thread_is_refused(void **state)
{
    (void)state;
    static int (*const requests[])(snib_client *, snib_lock *, snib_error *) = {ping, acquire,
                                                                                info};
    for (size_t i = 0; i < COUNT(requests); i++) {
        snib_client *client = new_client();
        snib_lock *lock = NULL;
        snib_error error = {0};
        assert_int_equal(snib_lock_new(client, SNIB_MUTEX, "m", 1, NULL, &lock, NULL), SNIB_OK);
        no_threads = true;
        int code = requests[i](client, lock, &error);
        no_threads = false;
        expect_refused(code, EAGAIN, &error, "cannot start the client's thread");
        assert_int_equal(requests[i](client, lock, &error), SNIB_ECONNECT);
        snib_lock_free(lock);
        snib_client_free(client);
    }
}

/* With so few descriptors a ping names the reason.  On a busy machine its patience may be over before the first attempt:
 * then it is asked again, and there are no more meanwhile. */
static void expect_no_connection(const char *url, rlim_t descriptors, int64_t wait_ms)
{
    snib_client *client = NULL;
    snib_error error = {0};
    const char *reason = NULL;
    assert_int_equal(snib_client_open(url, NULL, &client, NULL), SNIB_OK);
    int code = SNIB_ECONNECT;
    allow(descriptors);
    for (int i = 0; i < 20 && !reason && code == SNIB_ECONNECT; i++) {
        code = snib_client_ping(client, wait_ms, &error);
        reason = strstr(error.text, strerror(EMFILE));
    }
    allow_again();
    assert_int_equal(code, SNIB_ECONNECT);
    if (!reason)
        fail_msg("%s", error.text);
    snib_client_free(client);
}

/* There is a thread, but no descriptor for its connection. */
static void connection_is_refused(void **state)
{
    (void)state;
    expect_no_connection("unix:///nowhere", 0, 0);
}

/* There is one for the wait for a lookup, but none for the lookup: that says nothing about the host name. */
static void lookup_is_refused(void **state)
{
    (void)state;
    expect_no_connection("redis://nowhere.test?patience=300ms", 1, -1);
}

#define STANDARD 3

/* Without the standard descriptors; `kept` gets copies of them. */
static void close_standard(int kept[STANDARD])
{
    for (int i = 0; i < STANDARD; i++)
        kept[i] = fcntl(i, F_DUPFD, 100);
    for (int i = 0; i < STANDARD; i++)
        close(i);
}

static void open_standard(const int kept[STANDARD])
{
    for (int i = 0; i < STANDARD; i++) {
        dup2(kept[i], i);
        close(kept[i]);
    }
}

/* A server that nothing is read from: connections wait in its backlog.  Returns the listening socket. */
static int silent_server(char *url, size_t cap)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof address;
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(listener >= 0);
    assert_int_equal(bind(listener, (struct sockaddr *)&address, n), 0);
    assert_int_equal(listen(listener, 8), 0);
    assert_int_equal(getsockname(listener, (struct sockaddr *)&address, &n), 0);
    snprintf(url, cap, "redis://127.0.0.1:%d", ntohs(address.sin_port));
    return listener;
}

/* What a daemon prints as its errors, although it has closed that descriptor, must not be commands to the server: their
 * replies would be taken for those of others. */
static void standard_descriptors_are_not_taken(void **state)
{
    (void)state;
    int kept[STANDARD], taken = 0;
    char url[64];
    snib_client *client = NULL;
    snib_queue *queue = NULL;
    struct pollfd connection = {.fd = silent_server(url, sizeof url), .events = POLLIN};
    close_standard(kept);
    int opened = snib_client_open(url, NULL, &client, NULL);
    int queued = snib_queue_new(client, &queue, NULL);
    int asked = snib_client_ping_submit(client, -1, queue, 1, NULL, NULL);
    int connected = poll(&connection, 1, 60000);
    for (int i = 0; i < STANDARD; i++)
        taken += fcntl(i, F_GETFD) >= 0;
    snib_queue_free(queue);
    snib_client_free(
        client); /* its thread has ended: to a sanitizer, using one number twice is a race */
    open_standard(kept);
    assert_int_equal(opened, SNIB_OK);
    assert_int_equal(queued, SNIB_OK);
    assert_int_equal(asked, SNIB_OK);
    assert_int_equal(connected, 1);
    assert_int_equal(taken, 0);
    close(connection.fd);
}

/* A connection in progress is none yet, also where nothing can be polled. */
static void attempt_is_no_connection(void **state)
{
    (void)state;
    enum { ATTEMPTS = 4 };
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof at;
    int fds[ATTEMPTS], connected = 0, in_progress = 0, listener = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(bind(listener, (struct sockaddr *)&at, n), 0);
    assert_int_equal(listen(listener, 0),
                     0); /* it takes one or two, and leaves the others waiting */
    assert_int_equal(getsockname(listener, (struct sockaddr *)&at, &n), 0);
    for (int i = 0; i < ATTEMPTS; i++)
        assert_int_equal(snib__sys_connect((struct sockaddr *)&at, n, &fds[i]), EINPROGRESS);
    struct pollfd first = {.fd = fds[0], .events = POLLOUT};
    assert_int_equal(poll(&first, 1, 10000), 1);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &(struct rlimit){0, usual.rlim_max}), 0);
    assert_int_equal(poll(&first, 1, 0), -1);
    for (int i = 0; i < ATTEMPTS; i++) {
        int error = snib__sys_connected(fds[i]);
        connected += error == 0;
        in_progress += error == EINPROGRESS;
    }
    allow_again();
    for (int i = 0; i < ATTEMPTS; i++)
        snib__sys_close(fds[i]);
    close(listener);
    assert_true(connected > 0 && in_progress > 0);
    assert_int_equal(connected + in_progress, ATTEMPTS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(attempt_is_no_connection),
        cmocka_unit_test(client_is_refused),
        cmocka_unit_test(queue_is_refused),
        cmocka_unit_test(thread_is_refused),
        cmocka_unit_test(connection_is_refused),
        cmocka_unit_test(standard_descriptors_are_not_taken),
        cmocka_unit_test(lookup_is_refused), /* the last: a lookup may go on, and opens files */
    };
    getrlimit(RLIMIT_NOFILE, &usual);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
