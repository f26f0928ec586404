/* tls_exit.c - a process that exits while Snib uses OpenSSL, which its own exit handler shuts down: what is held is given back,
 * and no thread is inside OpenSSL by then. */
#include "tls.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

int OPENSSL_init_ssl(uint64_t options, const void *settings);
int OPENSSL_atexit(void (*handler)(void));

/* A process that exits while it holds a lock, in which OpenSSL is shut down by its own exit
 * handler. */
static int child_main(const char *url)
{
    OPENSSL_init_ssl(0, NULL);
    must_acquire(must_lock(must_open(url), "x"), LONG_MS);
    puts("held");
    exit(0);
}

/* One whose client still reads the system's CAs, from a pipe that ends only once the exit has begun. */
static struct {
    pthread_t writer;
    sem_t torn_down;
    int pipe;
    _Atomic bool ended;
} late;

static void *late_writer(void *unused)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += 1; /* nothing else shows that the exit waits */
    sem_timedwait(&late.torn_down, &until);
    late.ended = true;
    close(late.pipe);
    return unused;
}

/* Snib was told before this handler. */
static void late_teardown(void)
{
    puts(late.ended ? "waited" : "a thread still uses OpenSSL");
    sem_post(&late.torn_down);
    pthread_join(late.writer, NULL);
}

static void late_exit(void)
{
    pthread_create(&late.writer, NULL, late_writer, NULL);
}

static int late_child_main(const char *url, const char *pipe)
{
    setenv("SSL_CERT_FILE", pipe, 1);
    sem_init(&late.torn_down, 0, 0);
    OPENSSL_init_ssl(0, NULL);
    OPENSSL_atexit(late_teardown);
    EXPECT(snib_set_exit_timeout(LONG_MS, err), SNIB_OK);
    snib_client *client = must_open(url);
    EXPECT(
        snib_lock_acquire_submit(must_lock(client, "x"), 0, -1, must_queue(client), 0, NULL, err),
        SNIB_OK);
    AWAIT((late.pipe = open(pipe, O_WRONLY | O_NONBLOCK | O_CLOEXEC)) >= 0, LONG_MS);
    atexit(late_exit);
    exit(0);
}

/* One of which a thread reads with OpenSSL while the process exits. */
static struct {
    pthread_t thread;
    _Atomic bool exits, inside;
} reader;

/* Between the core and OpenSSL, which it is to find intact. */
int SSL_read(void *ssl, void *bytes, int cap);
int SSL_read(void *ssl, void *bytes, int cap)
{
    static int (*own)(void *, void *, int);
    bool stays = reader.exits && pthread_equal(pthread_self(), reader.thread);
    if (!own)
        *(void **)&own = dlsym(RTLD_NEXT, "SSL_read");
    reader.inside = stays;
    if (stays)
        usleep(300000); /* nothing else shows that the exit waits */
    int n = own(ssl, bytes, cap);
    if (stays)
        reader.inside = false;
    return n;
}

static void *reader_main(void *client)
{
    while (snib_client_ping(client, -1, NULL) == SNIB_OK)
        ;
    for (;;) /* the thread is not to end beside the process: OpenSSL cleans up after threads */
        pause();
    return NULL;
}

static void reader_teardown(void)
{
    puts(reader.inside ? "a thread still uses OpenSSL" : "waited");
}

static void reader_exit(void)
{
    reader.exits = true;
    AWAIT(reader.inside, LONG_MS);
}

static int reader_child_main(const char *url, int64_t timeout_ms)
{
    OPENSSL_init_ssl(0, NULL);
    OPENSSL_atexit(reader_teardown);
    EXPECT(snib_set_exit_timeout(timeout_ms, err), SNIB_OK);
    snib_client *client = must_open(url);
    EXPECT(snib_client_ping(client, -1, err), SNIB_OK);
    assert_int_equal(pthread_create(&reader.thread, NULL, reader_main, client), 0);
    pthread_detach(reader.thread);
    atexit(reader_exit);
    exit(0);
}

/* One that releases nothing at its exit, and still calls when OpenSSL has been torn down. */
static struct {
    snib_client *client;
    snib_lock *lock;
    pthread_t waiter;
} closed;

static void *closed_wait(void *unused)
{
    snib_hold *hold;
    return snib_lock_acquire(closed.lock, 0, -1, &hold, NULL) == SNIB_ECLOSED ? &closed : unused;
}

/* Registered before OpenSSL's handler, it runs after it. */
static void closed_exit(void)
{
    void *ended = NULL;
    int code = snib_client_ping(closed.client, LONG_MS, NULL);
    pthread_join(closed.waiter, &ended);
    puts(code == SNIB_ECLOSED && ended ? "closed" : "not closed");
}

static int closed_child_main(const char *url)
{
    alarm(60); /* a call that never returns */
    atexit(closed_exit);
    OPENSSL_init_ssl(0, NULL);
    EXPECT(snib_set_exit_timeout(0, err), SNIB_OK);
    closed.client = must_open(url);
    closed.lock = must_lock(closed.client, "x");
    must_acquire(closed.lock, LONG_MS);
    assert_int_equal(pthread_create(&closed.waiter, NULL, closed_wait, NULL), 0);
    AWAIT(must_stats(closed.client).waiting == 1, LONG_MS);
    exit(0);
}

/* Start this program as a child; its one line must be this one. */
static void child_says(const char *url, const char *says)
{
    char self[128], line[64] = "";
    snprintf(self, sizeof self, "exec /proc/%d/exe", (int)getpid());
    setenv("SNIB_TEST_CHILD", url, 1);
    FILE *child = popen(self, "r");
    assert_non_null(child);
    assert_non_null(fgets(line, sizeof line, child));
    assert_string_equal(line, says);
    assert_int_equal(pclose(child), 0);
    unsetenv("SNIB_TEST_CHILD");
}

static void end_of_a_process(void **state)
{
    (void)state;
    for (int i = 0; i < 5; i++) {
        child_says(server.url, "held\n");
        assert_true(server_is_empty(&server));
    }
}

/* Nor is what debug finds then lost with OpenSSL. */
static void end_of_a_process_with_debug(void **state)
{
    (void)state;
    static char text[65536];
    char self[128];
    snprintf(self, sizeof self, "exec /proc/%d/exe 2>&1", (int)getpid());
    setenv("SNIB_TEST_CHILD", url_with("tls_ca=%s/ca.crt&debug=yes"), 1);
    FILE *child = popen(self, "r");
    assert_non_null(child);
    size_t n = fread(text, 1, sizeof text - 1, child);
    text[n] = 0;
    assert_int_equal(pclose(child), 0);
    unsetenv("SNIB_TEST_CHILD");
    if (!strstr(text, "is still held when its client is closed"))
        fail_msg("%s", text);
    assert_true(server_is_empty(&server));
}

static void end_while_files_are_read(void **state)
{
    (void)state;
    char pipe[128];
    snprintf(pipe, sizeof pipe, "%s/late-%d", server_certs(), (int)getpid());
    assert_int_equal(mkfifo(pipe, 0600), 0);
    setenv("SNIB_TEST_PIPE", pipe, 1);
    child_says(url_with(""), "waited\n");
    unsetenv("SNIB_TEST_PIPE");
    unlink(pipe);
}

static void end_while_a_thread_reads(void **state)
{
    (void)state;
    static const char *const timeouts[] = {"0", "20000"};
    for (size_t i = 0; i < sizeof timeouts / sizeof *timeouts; i++) {
        setenv("SNIB_TEST_READER", timeouts[i], 1);
        child_says(server.url, "waited\n");
    }
    unsetenv("SNIB_TEST_READER");
}

static void end_without_a_release(void **state)
{
    (void)state;
    setenv("SNIB_TEST_CLOSED", "1", 1);
    child_says(server.url, "closed\n");
    unsetenv("SNIB_TEST_CLOSED");
    assert_false(server_is_empty(&server)); /* the timeout of 0 says so */
}

#define TEST(name) cmocka_unit_test_setup(name, fresh)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(end_of_a_process),         TEST(end_of_a_process_with_debug),
        TEST(end_while_files_are_read), TEST(end_while_a_thread_reads),
        TEST(end_without_a_release),
    };
    if (getenv("SNIB_TEST_CHILD") && getenv("SNIB_TEST_PIPE"))
        return late_child_main(getenv("SNIB_TEST_CHILD"), getenv("SNIB_TEST_PIPE"));
    if (getenv("SNIB_TEST_CHILD") && getenv("SNIB_TEST_READER"))
        return reader_child_main(getenv("SNIB_TEST_CHILD"), atoi(getenv("SNIB_TEST_READER")));
    if (getenv("SNIB_TEST_CHILD") && getenv("SNIB_TEST_CLOSED"))
        return closed_child_main(getenv("SNIB_TEST_CHILD"));
    if (getenv("SNIB_TEST_CHILD"))
        return child_main(getenv("SNIB_TEST_CHILD"));
    setenv("SNIB_TEST_TLS", "1", 1);
    return cmocka_run_group_tests(tests, world_new, world_free);
}
