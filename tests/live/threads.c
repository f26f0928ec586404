/* threads.c - threads of the program that are interrupted, stopped, cancelled or hardly run inside a call.
 *
 * Any of them may be the one that reads for all.  The others' locks must not depend on it.
 */
#define _GNU_SOURCE
#include "../support/support.h"

#include <dirent.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { LEASE_MS = 3000 };

/* ---- A handler that does not return ------------------------------------------------------------ */

static sem_t entered, leave;

static void stay(int signal)
{
    (void)signal;
    sem_post(&entered);
    while (sem_wait(&leave) != 0) {
    }
}

static void pass(int signal)
{
    (void)signal;
    sem_post(&entered);
}

static void handle(int signal, void (*handler)(int))
{
    struct sigaction action = {.sa_handler = handler};
    sem_destroy(&entered);
    sem_destroy(&leave);
    sem_init(&entered, 0, 0);
    sem_init(&leave, 0, 0);
    assert_int_equal(sigaction(signal, &action, NULL), 0);
}

struct caller {
    pthread_t thread;
    snib_lock *lock;
    snib_hold *hold;
    int code;
};

static void *call(void *argument)
{
    struct caller *caller = argument;
    caller->code = snib_lock_acquire(caller->lock, 0, -1, &caller->hold, NULL);
    pthread_testcancel();
    return NULL;
}

/* Start a caller and wait until it waits for the stopped server's reply: it reads for all. */
static void start_reader(struct caller *caller, snib_client *client)
{
    uint64_t before = must_stats(client).commands;
    *caller = (struct caller){.lock = must_lock(client, "reader")};
    assert_int_equal(pthread_create(&caller->thread, NULL, call, caller), 0);
    AWAIT(must_stats(client).commands > before, 5000);
    nap_us(20000);
}

static void stuck_reader(void **state)
{
    struct server *server = *state;
    snib_client *client = must_open_lease(server->url, LEASE_MS);
    snib_hold *held = must_acquire(must_lock(client, "held"), -1), *other;
    struct caller reader;
    handle(SIGUSR1, stay);
    server_pause(server);
    start_reader(&reader, client);
    pthread_kill(reader.thread, SIGUSR1);
    while (sem_wait(&entered) != 0) {
    }
    server_continue(server);
    EXPECT(snib_hold_wait(held, 2 * LEASE_MS, NULL, err), SNIB_TIMEDOUT);
    EXPECT(snib_hold_check(held, err), SNIB_OK);
    EXPECT(snib_lock_acquire(must_lock(client, "other"), 0, 10000, &other, err), SNIB_OK);
    must_release(other);
    sem_post(&leave);
    pthread_join(reader.thread, NULL);
    assert_int_equal(reader.code, SNIB_OK);
    must_release(reader.hold);
    must_release(held);
    snib_client_free(client);
}

/* A call is not a cancellation point: the thread ends after its call. */
static void cancelled_reader(void **state)
{
    struct server *server = *state;
    snib_client *client = must_open_lease(server->url, LEASE_MS);
    snib_hold *held = must_acquire(must_lock(client, "held"), -1);
    struct caller reader;
    void *end;
    server_pause(server);
    start_reader(&reader, client);
    pthread_cancel(reader.thread);
    nap_us(20000);
    server_continue(server);
    pthread_join(reader.thread, &end);
    assert_ptr_equal(end, PTHREAD_CANCELED);
    assert_int_equal(reader.code, SNIB_OK);
    must_release(reader.hold);
    must_release(must_acquire(must_lock(client, "other"), 10000));
    must_release(held);
    snib_client_free(client);
}

/* ---- Threads that get next to no processor time -------------------------------------------------- */

static atomic_bool calm, over;
static _Atomic int64_t
    longest_ms; /* for so long a thread of the lowest priority had no processor */

static void *spin(void *unused)
{
    while (!calm)
        ;
    return unused;
}

static bool be_low(void)
{
    return sched_setscheduler(0, SCHED_IDLE, &(struct sched_param){0}) == 0;
}

static void *wait_for_processor(void *unused)
{
    be_low();
    for (int64_t since = now_ms(), now; !over; since = now) {
        now = now_ms();
        if (now - since > longest_ms)
            longest_ms = now - since;
    }
    return unused;
}

static void *call_again_and_again(void *argument)
{
    struct caller *caller = argument;
    if (!be_low())
        caller->code = SNIB_EINVAL;
    while (!over && caller->code == SNIB_OK) {
        caller->code = snib_lock_acquire(caller->lock, 0, -1, &caller->hold, NULL);
        if (caller->code == SNIB_OK)
            caller->code = snib_hold_release(caller->hold, NULL);
        snib_hold_free(caller->hold);
        caller->hold = NULL;
    }
    return NULL;
}

/* Whether a call may end so for want of processor time: the client's mutex, the caller's own hold or a reply waited for it. */
static bool is_for_want_of_time(int code)
{
    return code == SNIB_LOST || code == SNIB_EUNREACHABLE || code == SNIB_ECONNECT;
}

/* Callers of the lowest priority, each of which may be the one that reads for all, share a processor with a thread that
 * leaves them as little of it as it may. */
static void callers_of_the_lowest_priority(void **state)
{
    enum { CALLERS = 4, LONG_LEASE_MS = 3 * LEASE_MS };
    struct server *server = *state;
    snib_client *client = must_open_lease(server->url, LONG_LEASE_MS);
    snib_hold *held = must_acquire(must_lock(client, "held"), -1);
    const uint64_t before = must_stats(client).renewals;
    pthread_t busy, watch;
    bool lost = false;
    int code = SNIB_OK;
    struct caller callers[CALLERS];
    pthread_attr_t one_processor;
    cpu_set_t all, one;
    size_t processor = 0;
    assert_int_equal(sched_getaffinity(0, sizeof all, &all), 0);
    while (!CPU_ISSET(processor, &all))
        processor++;
    CPU_ZERO(&one);
    CPU_SET(processor, &one);
    pthread_attr_init(&one_processor);
    assert_int_equal(pthread_attr_setaffinity_np(&one_processor, sizeof one, &one), 0);
    assert_int_equal(pthread_create(&busy, &one_processor, spin, NULL), 0);
    for (int i = 0; i < CALLERS; i++) {
        struct caller *caller = &callers[i];
        char name[16];
        snprintf(name, sizeof name, "%d", i);
        *caller = (struct caller){.lock = must_lock(client, name)};
        assert_int_equal(
            pthread_create(&caller->thread, &one_processor, call_again_and_again, caller), 0);
    }
    assert_int_equal(pthread_create(&watch, &one_processor, wait_for_processor, NULL), 0);
    while (!lost && must_stats(client).renewals < before + 4) { /* for more than a lease */
        lost = snib_hold_state(held, NULL) == SNIB_HOLD_LOST;
        nap_us(10000);
    }
    over = calm = true;
    pthread_join(busy, NULL);
    pthread_join(watch, NULL);
    for (int i = 0; i < CALLERS; i++) {
        pthread_join(callers[i].thread, NULL);
        if (is_for_want_of_time(callers[i].code))
            code = callers[i].code;
        else
            assert_int_equal(callers[i].code, SNIB_OK);
        snib_lock_free(callers[i].lock);
    }
    pthread_attr_destroy(&one_processor);
    lost = lost || snib_hold_state(held, NULL) == SNIB_HOLD_LOST; /* meanwhile */
    EXPECT(snib_hold_release(held, err), lost ? SNIB_LOST : SNIB_OK);
    code = lost ? SNIB_LOST : code;
    snib_hold_free(held);
    snib_client_free(client);
    if (code != SNIB_OK && longest_ms > LEASE_MS)
        skip_because("the machine was too busy for threads of the lowest priority");
    if (code != SNIB_OK)
        fail_msg("%s, although no thread was without a processor for more than %d ms",
                 snib_code_name(code), (int)longest_ms);
}

/* ---- Handlers that return ---------------------------------------------------------------------- */

static void interrupted_reader(void **state)
{
    struct server *server = *state;
    snib_client_options options;
    snib_client *client = NULL;
    snib_client_options_init(&options, sizeof options);
    options.lease_ms = 3600000; /* and with it the reply timeout */
    options.reply_timeout_ms = 600000;
    EXPECT(snib_client_open(server->url, &options, &client, err), SNIB_OK);
    must_release(must_acquire(must_lock(client, "reader"), -1));
    uint64_t connects = must_stats(client).connects;
    struct caller reader;
    handle(SIGUSR1, pass);
    server_pause(server);
    start_reader(&reader, client);
    for (int i = 0; i < 20; i++) {
        pthread_kill(reader.thread, SIGUSR1);
        while (sem_wait(&entered) != 0) {
        }
        nap_us(2000);
    }
    server_continue(server);
    pthread_join(reader.thread, NULL);
    assert_int_equal(reader.code, SNIB_OK);
    assert_int_equal(must_stats(client).connects, connects);
    assert_int_equal(must_stats(client).reconnects, 0);
    must_release(reader.hold);
    snib_client_free(client);
}

static void *interrupt(void *argument)
{
    pthread_t *whom = argument;
    while (sem_trywait(&leave) != 0) {
        pthread_kill(*whom, SIGUSR1);
        nap_us(5000);
    }
    return NULL;
}

static void interrupted_watcher(void **state)
{
    struct server *server = *state;
    snib_client *client = must_open(server->url);
    snib_hold *held = must_acquire(must_lock(client, "held"), -1);
    pthread_t self = pthread_self(), other;
    handle(SIGUSR1, pass);
    assert_int_equal(pthread_create(&other, NULL, interrupt, &self), 0);
    EXPECT(snib_hold_wait(held, -1, NULL, err), SNIB_AGAIN);
    sem_post(&leave);
    pthread_join(other, NULL);
    EXPECT(snib_hold_wait(held, 20, NULL, err), SNIB_TIMEDOUT);
    must_release(held);
    snib_client_free(client);
}

/* ---- The background thread --------------------------------------------------------------------- */

/* The signals that a thread of this process blocks, by its name; 0: no such thread. */
static unsigned long long blocked_by(const char *name)
{
    unsigned long long blocked = 0;
    DIR *tasks = opendir("/proc/self/task");
    for (struct dirent *task; tasks && (task = readdir(tasks));) {
        char path[300], line[200], comm[32] = "";
        snprintf(path, sizeof path, "/proc/self/task/%s/status", task->d_name);
        FILE *status = fopen(path, "r");
        while (status && fgets(line, sizeof line, status)) {
            sscanf(line, "Name: %31s", comm);
            if (strcmp(comm, name) == 0)
                sscanf(line, "SigBlk: %llx", &blocked);
        }
        if (status)
            fclose(status);
    }
    if (tasks)
        closedir(tasks);
    return blocked;
}

static void signals_are_for_the_program(void **state)
{
    struct server *server = *state;
    snib_client *client = must_open(server->url);
    must_release(must_acquire(must_lock(client, "held"), -1));
    AWAIT(blocked_by("snib") != 0, 5000);
    const int signals[] = {SIGHUP,  SIGINT,  SIGQUIT, SIGUSR1, SIGUSR2, SIGPIPE,  SIGALRM,
                           SIGTERM, SIGCHLD, SIGTSTP, SIGPROF, SIGURG,  SIGRTMIN, SIGRTMAX};
    for (size_t i = 0; i < sizeof signals / sizeof signals[0]; i++)
        if (!(blocked_by("snib") >> (signals[i] - 1) & 1))
            fail_msg("the background thread takes signal %d", signals[i]);
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
        cmocka_unit_test(stuck_reader),
        cmocka_unit_test(cancelled_reader),
        cmocka_unit_test(callers_of_the_lowest_priority),
        cmocka_unit_test(interrupted_reader),
        cmocka_unit_test(interrupted_watcher),
        cmocka_unit_test(signals_are_for_the_program),
    };
    return cmocka_run_group_tests(tests, start, stop);
}
