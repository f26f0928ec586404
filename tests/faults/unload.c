/* unload.c - programs that load the library with dlopen() and unload it while it is in use: it stays.
 *
 * The library is linked with `-z nodelete`.  So after dlclose() its thread still runs, holds are renewed, calls that are
 * under way end as usual, and the end of the process gives back what is held.
 */
#define _GNU_SOURCE
#include "../support/support.h"

#include <dirent.h>
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    LEASE_MS = 6000,
    LONG_MS = 60000,
    CHILD_S = 120,
    HANG_S = 30,
    QUICK_MS = 15000,
    THREADS = 4,
    ROUNDS = 25
};

#define CHILD(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            dprintf(2, "child, line %d: %s\n", __LINE__, #condition);                              \
            _exit(99);                                                                             \
        }                                                                                          \
    } while (0)

#define CHILD_AWAIT(condition) /* or its alarm ends it */                                          \
    while (!(condition))                                                                           \
    nap_us(500)

/* A hang ends as SIGALRM, and a crash is not the parent's test runner's. */
static void child_begin(void)
{
    static const int crashes[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE};
    for (size_t i = 0; i < sizeof crashes / sizeof *crashes; i++)
        signal(crashes[i], SIG_DFL);
    alarm(CHILD_S);
}

/* ---- The library, loaded ----------------------------------------------------------------------- */

/* This program itself contains the core too, for the functions of support.h. */
#define FUNCTIONS(X)                                                                               \
    X(client_options_init)                                                                         \
    X(client_open)                                                                                 \
    X(client_stats)                                                                                \
    X(client_close)                                                                                \
    X(client_free)                                                                                 \
    X(lock_new)                                                                                    \
    X(lock_acquire)                                                                                \
    X(lock_free)                                                                                   \
    X(hold_check)                                                                                  \
    X(hold_release)                                                                                \
    X(hold_free)                                                                                   \
    X(set_exit_timeout)

struct library {
    void *handle;
#define X(name) __typeof__(snib_##name) *name;
    FUNCTIONS(X)
#undef X
};

static struct library load(void)
{
    struct library lib = {.handle = dlopen(SNIB_TEST_LIBRARY, RTLD_NOW | RTLD_LOCAL)};
    CHILD(lib.handle);
#define X(name) CHILD(*(void **)&lib.name = dlsym(lib.handle, "snib_" #name));
    FUNCTIONS(X)
#undef X
    return lib;
}

static snib_client *open_client(const struct library *lib, const struct server *server,
                                int64_t lease_ms)
{
    snib_client_options options;
    snib_client *client = NULL;
    lib->client_options_init(&options, sizeof options);
    options.lease_ms = lease_ms;
    CHILD(lib->client_open(server->url, &options, &client, NULL) == SNIB_OK);
    return client;
}

static snib_lock *new_lock(const struct library *lib, snib_client *client, int32_t kind,
                           const char *name)
{
    snib_lock *lock = NULL;
    CHILD(lib->lock_new(client, kind, name, strlen(name), NULL, &lock, NULL) == SNIB_OK);
    return lock;
}

static snib_hold *take(const struct library *lib, snib_lock *lock)
{
    snib_hold *hold = NULL;
    CHILD(lib->lock_acquire(lock, 0, -1, &hold, NULL) == SNIB_OK);
    return hold;
}

static void give(const struct library *lib, snib_hold *hold)
{
    CHILD(lib->hold_release(hold, NULL) == SNIB_OK);
    lib->hold_free(hold);
}

static snib_client_stats_data stats_of(const struct library *lib, snib_client *client)
{
    snib_client_stats_data stats = {.size = sizeof stats};
    CHILD(lib->client_stats(client, &stats, NULL) == SNIB_OK);
    return stats;
}

/* A new round of renewals: one may have been under way. */
static void await_renewals(const struct library *lib, snib_client *client, uint64_t held)
{
    uint64_t before = stats_of(lib, client).renewals;
    CHILD_AWAIT(stats_of(lib, client).renewals > before + held);
}

/* ---- A process that uses it ---------------------------------------------------------------------- */

static const int32_t kinds[] = {SNIB_MUTEX, SNIB_FAIR, SNIB_READ, SNIB_PLAIN};
enum { KINDS = sizeof kinds / sizeof *kinds };

/* Each state contains those before it. */
enum state { LOADED, OPENED, HOLDING, WAITING, WORKING, STATES };
enum ending { GO_ON, EXIT, DIE, ENDINGS };

struct process {
    struct library lib;
    snib_client *client, *rival;
    snib_hold *holds[KINDS], *rivals;
    pthread_t waiter, worker;
    _Atomic bool stop;
    _Atomic int worked;
};

static void *waiter_run(void *argument)
{
    struct process *it = argument;
    snib_hold *hold = NULL;
    int code = it->lib.lock_acquire(new_lock(&it->lib, it->client, SNIB_MUTEX, "rivals"), 0, -1,
                                    &hold, NULL);
    if (code == SNIB_ECLOSED) /* the process exits */
        return NULL;
    CHILD(code == SNIB_OK);
    return hold;
}

static void *worker_run(void *argument)
{
    struct process *it = argument;
    snib_lock *lock = new_lock(&it->lib, it->client, SNIB_MUTEX, "work");
    for (snib_hold *hold; !it->stop; it->worked++) {
        int code = it->lib.lock_acquire(lock, 0, -1, &hold, NULL);
        if (code == SNIB_ECLOSED)
            return NULL;
        CHILD(code == SNIB_OK);
        (void)it->lib.hold_release(hold, NULL); /* SNIB_LOST if the process exits */
        it->lib.hold_free(hold);
    }
    return NULL;
}

static void process_begin(struct process *it, const struct server *server, enum state state,
                          int64_t lease_ms)
{
    child_begin();
    it->lib = load();
    CHILD(it->lib.set_exit_timeout(QUICK_MS, NULL) == SNIB_OK);
    if (state >= OPENED) {
        it->client = open_client(&it->lib, server, lease_ms);
        it->rival = open_client(&it->lib, server, lease_ms);
    }
    char name[] = "kind:0";
    for (int i = 0; state >= HOLDING && i < KINDS; i++, name[5]++)
        it->holds[i] = take(&it->lib, new_lock(&it->lib, it->client, kinds[i], name));
    if (state >= WAITING) {
        it->rivals = take(&it->lib, new_lock(&it->lib, it->rival, SNIB_MUTEX, "rivals"));
        CHILD(pthread_create(&it->waiter, NULL, waiter_run, it) == 0);
        CHILD_AWAIT(stats_of(&it->lib, it->client).waiting == 1);
    }
    if (state >= WORKING) {
        CHILD(pthread_create(&it->worker, NULL, worker_run, it) == 0);
        CHILD_AWAIT(it->worked > 0);
    }
}

/* What was under way goes on, and a program that loads the library again can use it, old handles included. */
static void process_go_on(struct process *it, const struct server *server, enum state state)
{
    void *hold;
    if (state >= HOLDING)
        await_renewals(&it->lib, it->client, KINDS);
    struct library again = load();
    CHILD(again.client_open == it->lib.client_open); /* it is the same one */
    if (state >= WAITING) {
        give(&again, it->rivals);
        CHILD(pthread_join(it->waiter, &hold) == 0 && hold);
        give(&again, hold);
    }
    if (state >= WORKING) {
        int before = it->worked;
        CHILD_AWAIT(it->worked > before);
        it->stop = true;
        pthread_join(it->worker, NULL);
    }
    for (int i = 0; state >= HOLDING && i < KINDS; i++)
        give(&again, it->holds[i]);
    snib_client *client = open_client(&again, server, LEASE_MS);
    give(&again, take(&again, new_lock(&again, client, SNIB_MUTEX, "again")));
    CHILD(again.client_close(client, QUICK_MS, NULL) == SNIB_OK);
    again.client_free(client);
    again.client_free(it->client);
    again.client_free(it->rival);
    CHILD(dlclose(again.handle) == 0);
}

static void process_unload(struct process *it, enum state state)
{
    CHILD(dlclose(it->lib.handle) == 0);
    for (int i = 0; state >= HOLDING && i < KINDS;
         i++) /* it took nothing back, and can be called */
        CHILD(it->lib.hold_check(it->holds[i], NULL) == SNIB_OK);
}

static void process_run(const struct server *server, enum state state, enum ending ending)
{
    static struct process it;
    process_begin(&it, server, state, ending == GO_ON ? LEASE_MS : LONG_MS);
    process_unload(&it, state);
    if (ending == DIE)
        _exit(0);
    if (ending == GO_ON)
        process_go_on(&it, server, state);
    exit(0);
}

/* ---- Tests ----------------------------------------------------------------------------------------- */

static void expect_good_end(pid_t pid, const char *what, int number)
{
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    if (status != 0)
        fail_msg("%s %d: the child ended with status 0x%x", what, number, (unsigned)status);
}

/* All that others sent has been read: their connections have ended. */
static bool is_alone(struct server *server)
{
    redisReply *reply = server_command(server, "INFO clients");
    bool alone = strstr(reply->str, "connected_clients:1\r");
    freeReplyObject(reply);
    return alone;
}

static void expect_given_back(struct server *server)
{
    AWAIT(is_alone(server), QUICK_MS);
    assert_true(server_is_empty(server));
}

/* Whatever a dead process leaves behind has a time to live. */
static void expect_leases(struct server *server, size_t at_least)
{
    AWAIT(is_alone(server), QUICK_MS);
    redisReply *keys = server_command(server, "KEYS *");
    assert_true(keys->elements >= at_least);
    for (size_t i = 0; i < keys->elements; i++)
        assert_in_range(server_integer(server, "PTTL %s", keys->element[i]->str), 1, LONG_MS);
    freeReplyObject(keys);
    server_do(server, "FLUSHALL");
}

static void unloaded_as(struct server *server, enum ending ending)
{
    for (int state = LOADED; state < STATES; state++) {
        pid_t pid = fork();
        if (pid == 0)
            process_run(server, (enum state)state, ending);
        expect_good_end(pid, "state", state);
        if (ending == DIE)
            expect_leases(server, state >= HOLDING ? KINDS : 0);
        else
            expect_given_back(server);
    }
}

static void goes_on(void **state)
{
    unloaded_as(*state, GO_ON);
}

static void exit_gives_back(void **state)
{
    unloaded_as(*state, EXIT);
}

static void crash_leaves_leases(void **state)
{
    unloaded_as(*state, DIE);
}

static void *load_use_unload(void *server)
{
    for (int i = 0; i < ROUNDS; i++) {
        struct library lib = load();
        snib_client *client = open_client(&lib, server, LEASE_MS);
        snib_lock *lock = new_lock(&lib, client, SNIB_MUTEX, "shared");
        give(&lib, take(&lib, lock));
        lib.lock_free(lock);
        lib.client_free(client);
        CHILD(dlclose(lib.handle) == 0);
    }
    return NULL;
}

static size_t entries(const char *path)
{
    size_t count = 0;
    DIR *dir = opendir(path);
    CHILD(dir);
    while (readdir(dir))
        count++;
    closedir(dir);
    return count;
}

/* Threads that load, use and unload it for themselves: nothing grows. */
static void again_and_again(void **state)
{
    struct server *server = *state;
    pid_t pid = fork();
    if (pid == 0) {
        pthread_t threads[THREADS];
        child_begin();
        struct library lib = load();
        size_t files = entries("/proc/self/fd");
        for (int i = 0; i < THREADS; i++)
            CHILD(pthread_create(&threads[i], NULL, load_use_unload, server) == 0);
        for (int i = 0; i < THREADS; i++)
            pthread_join(threads[i], NULL);
        CHILD_AWAIT(entries("/proc/self/task") == 3); /* with . and .. */
        CHILD(entries("/proc/self/fd") == files && dlclose(lib.handle) == 0);
        exit(0);
    }
    expect_good_end(pid, "threads", THREADS);
    expect_given_back(server);
}

/* The program unloads it in the child of a fork: its own holds there end, the parent's do not. */
static void in_a_forked_child(void **state)
{
    struct server *server = *state;
    pid_t pid = fork();
    if (pid == 0) {
        static struct process it;
        process_begin(&it, server, HOLDING, LEASE_MS);
        pid_t inner = fork();
        if (inner == 0) {
            child_begin();
            it.holds[0] = take(&it.lib, new_lock(&it.lib, it.client, SNIB_MUTEX, "inner"));
            CHILD(dlclose(it.lib.handle) == 0);
            CHILD(it.lib.hold_check(it.holds[0], NULL) == SNIB_OK);
            CHILD(it.lib.hold_check(it.holds[1], NULL) == SNIB_EFORKED);
            exit(0);
        }
        int status;
        CHILD(waitpid(inner, &status, 0) == inner && status == 0);
        CHILD(server_integer(server, "EXISTS inner") == 0);
        await_renewals(&it.lib, it.client, KINDS);
        for (int i = 0; i < KINDS; i++)
            give(&it.lib, it.holds[i]);
        exit(0);
    }
    expect_good_end(pid, "parent", 0);
    expect_given_back(server);
}

static struct process at_exit;

static void unload_late(void)
{
    process_unload(&at_exit, HOLDING);
}

/* An exit handler unloads it, before the library's own end. */
static void in_an_exit_handler(void **state)
{
    struct server *server = *state;
    for (int then = HOLDING; then < STATES; then++) {
        pid_t pid = fork();
        if (pid == 0) {
            process_begin(&at_exit, server, (enum state)then, LONG_MS);
            CHILD(atexit(unload_late) == 0);
            exit(0);
        }
        expect_good_end(pid, "state", then);
        expect_given_back(server);
    }
}

/* A module that was linked with the library is unloaded while it holds a lock: the module is gone, the library is not. */
static void with_a_module(void **state)
{
    struct server *server = *state;
    pid_t pid = fork();
    if (pid == 0) {
        child_begin();
        for (int i = 0; i < 2; i++) {
            snib_client *(*hold)(const char *, const snib_client_options *, const char *);
            void *module = dlopen(SNIB_TEST_PLUGIN, RTLD_NOW | RTLD_LOCAL);
            CHILD(module && (*(void **)&hold = dlsym(module, "plugin_hold")));
            snib_client_options options;
            snib_client_options_init(&options, sizeof options);
            options.lease_ms = LEASE_MS;
            snib_client *client = hold(server->url, &options, i ? "second" : "first");
            CHILD(client && dlclose(module) == 0);
            CHILD(!dlopen(SNIB_TEST_PLUGIN, RTLD_NOW | RTLD_NOLOAD));
            struct library lib = load();
            CHILD(lib.set_exit_timeout(QUICK_MS, NULL) == SNIB_OK);
            await_renewals(&lib, client, 1);
            CHILD(dlclose(lib.handle) == 0);
        }
        exit(0);
    }
    expect_good_end(pid, "module", 0);
    expect_given_back(server);
}

/* The module that contains the library: the environment's has a planted bug, see ../sim/mutants.py. */
static const char *whole_plugin(void)
{
    const char *given = getenv("SNIB_TEST_WHOLE_PLUGIN");
    return given ? given : SNIB_TEST_WHOLE_PLUGIN;
}

/* A module that contains the library is unloaded while a name is looked up for a client that it has freed: it stays, too,
 * because a thread is to return to it. */
static void with_a_whole_module(void **state)
{
    (void)state;
    pid_t pid = fork();
    if (pid == 0) {
        int begins[2], ends[2];
        char byte = 0;
        int (*look_up)(const char *, int, int);
        child_begin();
        CHILD(pipe(begins) == 0 && pipe(ends) == 0);
        void *module = dlopen(whole_plugin(), RTLD_NOW | RTLD_LOCAL);
        CHILD(module && (*(void **)&look_up = dlsym(module, "plugin_look_up")));
        CHILD(look_up("redis://name.invalid", begins[1], ends[0]) == 0);
        CHILD(read(begins[0], &byte, 1) == 1 && dlclose(module) == 0);
        CHILD(close(ends[1]) == 0);
        CHILD_AWAIT(entries("/proc/self/task") == 3); /* with . and .. */
        exit(0);
    }
    expect_good_end(pid, "module", 1);
}

static void *open_run(void *open)
{
    CHILD((*(int (**)(const char *))open)("redis://127.0.0.1:1") == 0);
    return NULL;
}

/* A thread opens the first client and asks the loader to keep the module, while a constructor of another module, for which
 * the loader waits, and a child of a further thread open one, too.  None waits for another. */
static void beside_a_constructor(void **state)
{
    (void)state;
    pid_t pid = fork();
    if (pid == 0) {
        int (*open)(const char *);
        pthread_t thread;
        child_begin();
        alarm(HANG_S);
        void *module = dlopen(whole_plugin(), RTLD_NOW | RTLD_GLOBAL);
        CHILD(module && (*(void **)&open = dlsym(module, "plugin_open")));
        CHILD(pthread_create(&thread, NULL, open_run, &open) == 0);
        void *other = dlopen(SNIB_TEST_CONSTRUCTOR, RTLD_NOW | RTLD_LOCAL);
        CHILD(other && pthread_join(thread, NULL) == 0);
        CHILD(dlclose(other) == 0 && dlclose(module) == 0);
        CHILD(dlopen(whole_plugin(), RTLD_NOW | RTLD_NOLOAD)); /* it stays all the same */
        exit(0);
    }
    expect_good_end(pid, "module", 2);
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
    setvbuf(stdout, NULL, _IONBF, 0); /* or a child's exit() would print the parent's lines again */
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(goes_on),
        cmocka_unit_test(exit_gives_back),
        cmocka_unit_test(crash_leaves_leases),
        cmocka_unit_test(again_and_again),
        cmocka_unit_test(in_a_forked_child),
        cmocka_unit_test(in_an_exit_handler),
        cmocka_unit_test(with_a_module),
        cmocka_unit_test(with_a_whole_module),
        cmocka_unit_test(beside_a_constructor),
    };
    return cmocka_run_group_tests(tests, start, stop);
}
