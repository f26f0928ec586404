/* bench.c - the benchmark program: selects a mode, and has what the modes share.
 *
 *     snib_bench URL SCRIPTS MODE ARGUMENT...
 *
 *     pairs snib|hiredis THREADS         distinct locks
 *     pipeline snib|step|rolling DEPTH   one thread, many operations in flight
 *     contend mutex|fair THREADS HOLD_US SHARED
 *                                        one lock; SHARED: the file of the safety oracle
 *     reentry DEPTH                      an owner that re-enters its lock
 *     holds COUNT LEASE_MS PORTS         many renewed holds; PORTS: the servers' own, separated by
 *                                        commas; several: a cluster's masters, in the order of
 *                                        their equal ranges of slots
 *     readers COUNT                      a reader that comes and goes among COUNT that stay
 *     group multi|singles COUNT          COUNT locks as one, or one after another
 *     quorum                             a lock on most of several servers
 *     failover PREFIX THREADS            distinct locks while servers come and go
 *     wakes                              the cost of waking a thread
 */
#include "bench.h"

#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

void bench_die(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vfprintf(stderr, format, args);
    va_end(args);
    fputc('\n', stderr);
    exit(1);
}

int bench_number(const char *text, int least)
{
    char *end;
    errno = 0;
    long n = strtol(text, &end, 10);
    if (errno != 0 || *end != '\0' || n < least || n > 10000000)
        bench_die("not a usable number: %s", text);
    return (int)n;
}

double bench_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

void *bench_alloc(size_t count, size_t size)
{
    void *memory = calloc(count, size);
    if (memory == NULL)
        bench_die("out of memory");
    return memory;
}

bool bench_next(double *seconds)
{
    static bool ready;
    char line[64];
    if (!ready)
        puts("ready");
    ready = true;
    fflush(stdout);
    return fgets(line, sizeof line, stdin) != NULL && sscanf(line, "go %lf", seconds) == 1;
}

struct crew_member {
    pthread_t thread;
    pthread_barrier_t *start;
    bench_body *body;
    void *context;
    int index;
    const atomic_bool *stop;
    uint64_t count; /* written once, at the end, so that threads share no cache line meanwhile */
};

static void *crew_main(void *argument)
{
    struct crew_member *me = argument;
    uint64_t count = 0;
    pthread_barrier_wait(me->start);
    me->body(me->context, me->index, me->stop, &count);
    me->count = count;
    return NULL;
}

double bench_crew(bench_body *body, void *context, int threads, double seconds, uint64_t *counts)
{
    struct crew_member *crew = bench_alloc((size_t)threads, sizeof *crew);
    atomic_bool stop = false;
    pthread_barrier_t start;
    pthread_barrier_init(&start, NULL, (unsigned)threads + 1);
    for (int i = 0; i < threads; i++) {
        crew[i] = (struct crew_member){
            .start = &start, .body = body, .context = context, .index = i, .stop = &stop};
        if (pthread_create(&crew[i].thread, NULL, crew_main, &crew[i]) != 0)
            bench_die("no thread");
    }
    pthread_barrier_wait(&start);
    double began = bench_now();
    struct timespec rest = {(time_t)seconds, (long)((seconds - (double)(time_t)seconds) * 1e9)};
    while (nanosleep(&rest, &rest) != 0 && errno == EINTR) {
    }
    atomic_store(&stop, true);
    for (int i = 0; i < threads; i++) {
        pthread_join(crew[i].thread, NULL);
        counts[i] = crew[i].count;
    }
    double took = bench_now() - began;
    pthread_barrier_destroy(&start);
    free(crew);
    return took;
}

uint64_t bench_sum(const uint64_t *counts, int n)
{
    uint64_t sum = 0;
    for (int i = 0; i < n; i++)
        sum += counts[i];
    return sum;
}

snib_client *bench_client(const char *url)
{
    snib_client *client;
    snib_error err;
    if (snib_client_open(url, NULL, &client, &err) != SNIB_OK)
        bench_die("open: %s", err.text);
    if (snib_client_ping(client, -1, &err) != SNIB_OK)
        bench_die("ping: %s", err.text);
    return client;
}

snib_lock *bench_lock(snib_client *client, int kind, const snib_lock_options *options,
                      const char *prefix, int index)
{
    char name[64];
    snib_lock *lock;
    snib_error err;
    int length = snprintf(name, sizeof name, "%s:%d", prefix, index);
    if (snib_lock_new(client, kind, name, (size_t)length, options, &lock, &err) != SNIB_OK)
        bench_die("lock: %s", err.text);
    return lock;
}

snib_client_stats_data bench_stats(snib_client *client)
{
    snib_client_stats_data stats = {.size = sizeof stats};
    snib_error err;
    if (snib_client_stats(client, &stats, &err) != SNIB_OK)
        bench_die("stats: %s", err.text);
    return stats;
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*run)(const struct bench *bench, int argc, char **argv);
        int arguments;
    } modes[] = {
        {"pairs", bench_pairs, 2},       {"pipeline", bench_pipeline, 2},
        {"contend", bench_contend, 4},   {"reentry", bench_reentry, 1},
        {"holds", bench_holds, 3},       {"readers", bench_readers, 1},
        {"group", bench_group, 2},       {"quorum", bench_quorum, 0},
        {"failover", bench_failover, 2}, {"wakes", bench_wakes, 0},
    };
    for (size_t i = 0; argc > 3 && i < sizeof modes / sizeof *modes; i++) {
        if (strcmp(argv[3], modes[i].name) != 0 || argc != 4 + modes[i].arguments)
            continue;
        struct bench bench = {.url = argv[1], .scripts = argv[2]};
        modes[i].run(&bench, argc - 4, argv + 4);
        return 0;
    }
    bench_die("usage: snib_bench URL SCRIPTS MODE ARGUMENT...; the source lists the modes");
}
