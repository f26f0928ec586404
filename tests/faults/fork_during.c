/* fork_during.c - a process forks while something is in progress that the child must not wait for: lookups, connections,
 * requests for credentials, TLS handshakes, the loader of shared libraries.
 *
 * Whoever has a lock in the parent does not exist in the child, where it would be locked for ever.
 */
#define _GNU_SOURCE
#include "forks.h"

#include <dlfcn.h>
#include <link.h>
#include <netdb.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

enum { HANDSHAKE_MS = 45000 }; /* less than CHILD_S */

/* A resolver with a lock, as the C library's; a lookup of "slow.test" has it for a while, and one of
 * "silent.test" waits for an answer without it. */
static pthread_mutex_t names = PTHREAD_MUTEX_INITIALIZER;
static atomic_bool names_locked, names_wait, silent_ends;
static _Atomic int64_t names_since; /* when the last lookup began */

int getaddrinfo(const char *host, const char *port, const struct addrinfo *hints,
                struct addrinfo **out)
{
    static int (*real)(const char *, const char *, const struct addrinfo *, struct addrinfo **);
    if (strstr(host, ".test") && !(hints->ai_flags & AI_NUMERICHOST)) {
        bool silent = strcmp(host, "silent.test") == 0;
        names_since = now_ms();
        pthread_mutex_lock(&names);
        names_locked = true;
        if (!silent)
            nap_us(20000);
        pthread_mutex_unlock(&names);
        names_wait = silent;
        while (silent && !silent_ends)
            nap_us(5000);
        return EAI_NONAME;
    }
    if (!real)
        *(void **)&real = dlsym(RTLD_NEXT, "getaddrinfo");
    return real(host, port, hints, out);
}

/* A client that finds no server, and says so after a second. */
static snib_client *unreachable(const char *url)
{
    snib_client *client;
    EXPECT(snib_client_open(url, NULL, &client, err), SNIB_OK);
    return client;
}

static atomic_bool login_ends;

static int login_wait(void *data, snib_credentials *out)
{
    (void)data;
    (void)out;
    while (!login_ends)
        nap_us(5000);
    return -1;
}

/* Connections there remain in progress: the listener's queue is full. */
static int deaf_port;

static int deaf(int fillers[8])
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof at;
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(listener, (struct sockaddr *)&at, n), 0);
    assert_int_equal(listen(listener, 0), 0);
    assert_int_equal(getsockname(listener, (struct sockaddr *)&at, &n), 0);
    for (int i = 0; i < 8; i++) {
        fillers[i] = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
        connect(fillers[i], (struct sockaddr *)&at, n);
    }
    nap_us(50000);
    deaf_port = ntohs(at.sin_port);
    return listener;
}

static void *ping_run(void *client)
{
    (void)snib_client_ping(client, -1, NULL);
    return NULL;
}

/* Sockets that connect, and the bells of lookups and of requests for credentials and certificates. */
static void in_progress(void **state)
{
    enum { CLIENTS = 2 };
    char url[64];
    int fillers[8], status;
    snib_client_options options;
    snib_client *clients[CLIENTS];
    pthread_t threads[CLIENTS];
    (void)state;
    int listener = deaf(fillers);
    int open = descriptors();
    int before = descriptors_inherited();
    snib_client_options_init(&options, sizeof options);
    options.credentials = login_wait;
    options.connect_timeout_ms = 60000;
    for (int i = 0; i < CLIENTS; i++) {
        snprintf(url, sizeof url, "rediss://%s:%d", i ? "silent.test" : "127.0.0.1", deaf_port);
        EXPECT(snib_client_open(url, &options, &clients[i], err), SNIB_OK);
        assert_int_equal(pthread_create(&threads[i], NULL, ping_run, clients[i]), 0);
    }
    /* Both have two of their own, and those of the files and of the credentials; one the socket, one the lookup's. */
    AWAIT(names_wait && descriptors() == open + CLIENTS * 5, 10000);
    pid_t pid = fork();
    if (pid == 0) {
        alarm(CHILD_S);
        CHILD(descriptors() == before);
        for (int i = 0; i < CLIENTS; i++)
            snib_client_free(clients[i]);
        CHILD(descriptors() == before);
        _exit(0);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    silent_ends = login_ends = true;
    for (int i = 0; i < CLIENTS; i++) {
        pthread_join(threads[i], NULL);
        snib_client_free(clients[i]);
    }
    for (int i = 0; i < 8; i++)
        close(fillers[i]);
    close(listener);
}

/* A fork waits for a lookup, which may have a lock that would be locked for ever in the child: up to 100 ms from its begin,
 * because it may hang.  So a lookup that takes longer, on a slow machine, shows nothing. */
static void looking_up(void **state)
{
    enum { WAITS_MS = 90, SHOWS_NOTHING = 77 };
    (void)state;
    int shown = 0;
    for (int run = 0; run < count_of(50, 10); run++) {
        pthread_t thread;
        int status;
        snib_client *client = unreachable("redis://slow.test");
        names_locked = false;
        assert_int_equal(pthread_create(&thread, NULL, ping_run, client), 0);
        AWAIT(names_locked, 10000);
        pid_t pid = fork();
        if (pid == 0) {
            alarm(CHILD_S);
            if (now_ms() - names_since > WAITS_MS)
                _exit(SHOWS_NOTHING);
            CHILD(pthread_mutex_trylock(&names) == 0 && pthread_mutex_unlock(&names) == 0);
            CHILD(snib_client_ping(client, 0, NULL) == SNIB_ERESOLVE);
            _exit(0);
        }
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_true(WIFEXITED(status) &&
                    (WEXITSTATUS(status) == 0 || WEXITSTATUS(status) == SHOWS_NOTHING));
        shown += WEXITSTATUS(status) == 0;
        EXPECT(snib_client_close(client, 0, err), SNIB_OK);
        pthread_join(thread, NULL);
        snib_client_free(client);
    }
    if (shown == 0)
        skip_because("the machine was too busy for a lookup of 20 ms");
}

static atomic_bool lists, listed;

static int list_slowly(struct dl_phdr_info *library, size_t n, void *unused)
{
    (void)library, (void)n, (void)unused;
    lists = true;
    while (!listed)
        usleep(1000);
    return 1;
}

static void *list_run(void *unused)
{
    dl_iterate_phdr(list_slowly, NULL);
    return unused;
}

/* A thread of the program has the loader's lock, which is locked for ever in the child: the client's first thread, which
 * begins there, needs nothing from the loader.  This is the first test: no thread of the library has begun before. */
static void beside_the_loader(void **state)
{
    (void)state;
    pthread_t thread;
    int status;
    snib_client *client = unreachable("unix:///nowhere");
    assert_int_equal(pthread_create(&thread, NULL, list_run, NULL), 0);
    AWAIT(lists, 10000);
    pid_t pid = fork();
    if (pid == 0) {
        alarm(CHILD_S);
        CHILD(snib_client_ping(client, 0, NULL) == SNIB_ECONNECT);
        _exit(0);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    listed = true;
    pthread_join(thread, NULL);
    snib_client_free(client);
}

/* A machine that is busy may take long for a handshake: only one that never ends is a fault. */
static snib_client *open_patient(const char *url)
{
    snib_client_options options;
    snib_client *client = NULL;
    snib_client_options_init(&options, sizeof options);
    options.patience_ms = options.try_timeout_ms = options.connect_timeout_ms = HANDSHAKE_MS;
    EXPECT(snib_client_open(url, &options, &client, err), SNIB_OK);
    return client;
}

struct visitors {
    const char *url;
    atomic_bool stop;
    atomic_int visits;
};

static void *visit_run(void *argument)
{
    struct visitors *all = argument;
    while (!all->stop) {
        snib_client *client = open_patient(all->url);
        EXPECT(snib_client_ping(client, HANDSHAKE_MS, err), SNIB_OK);
        snib_client_free(client);
        all->visits++;
    }
    return NULL;
}

/* A fork waits for OpenSSL, whose locks would be locked for ever in the child. */
static void shaking_hands(void **state)
{
    enum { THREADS = 4 };
    (void)state;
    struct server server;
    pthread_t threads[THREADS];
    setenv("SNIB_TEST_TLS", "1", 1);
    server_start(&server, NULL);
    unsetenv("SNIB_TEST_TLS");
    struct visitors all = {.url = server.url};
    snib_client *client = open_patient(server.url);
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, visit_run, &all), 0);
    for (int run = 0; run < count_of(300, 60); run++) {
        int before = all.visits, status;
        AWAIT(all.visits > before, 10000);
        pid_t pid = fork();
        if (pid == 0) {
            snib_error error = {0};
            alarm(CHILD_S);
            int code = snib_client_ping(client, HANDSHAKE_MS, &error);
            if (code != SNIB_OK)
                dprintf(2, "child: %d: %s\n", code, error.text);
            _exit(code != SNIB_OK);
        }
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_int_equal(status, 0);
    }
    all.stop = true;
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    snib_client_free(client);
    server_stop(&server);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(beside_the_loader),
        cmocka_unit_test(in_progress),
        cmocka_unit_test(looking_up),
        cmocka_unit_test(shaking_hands),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
