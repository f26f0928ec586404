/* failover.c - locks while servers come and go: how long nothing was granted.
 *
 * Times are from the same clock as the benchmark driver's actions on the servers. */
#include "bench.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define WAIT_MS 10000 /* longer than any failover: an attempt that fails then has really failed */
#define THINK_US 1000

/* The longest time between two grants. */
struct gap {
    int64_t last, from, to; /* ns; to: 0 if no further grant came */
};

struct failover {
    snib_lock **locks;
    struct gap *each; /* of each thread */
    pthread_mutex_t mutex;
    struct gap all; /* of all threads together; mutex */
    atomic_int errors;
};

static int64_t failover_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_BOOTTIME, &t);
    return t.tv_sec * INT64_C(1000000000) + t.tv_nsec;
}

static void gap_grant(struct gap *gap, int64_t now)
{
    if (now - gap->last > gap->to - gap->from) {
        gap->from = gap->last;
        gap->to = now;
    }
    gap->last = now;
}

/* The time since the last grant may be the longest gap, and has no end then. */
static void gap_end(struct gap *gap, int64_t now)
{
    if (now - gap->last > gap->to - gap->from) {
        gap->from = gap->last;
        gap->to = 0;
    }
}

static void failover_body(void *context, int index, const atomic_bool *stop, uint64_t *count)
{
    struct failover *f = context;
    snib_error err;
    while (!atomic_load_explicit(stop, memory_order_relaxed)) {
        snib_hold *hold;
        if (snib_lock_acquire(f->locks[index], 0, WAIT_MS, &hold, &err) == SNIB_OK) {
            int64_t now = failover_now();
            pthread_mutex_lock(&f->mutex);
            gap_grant(&f->all, now);
            pthread_mutex_unlock(&f->mutex);
            gap_grant(&f->each[index], now);
            snib_hold_release(hold, NULL); /* it may have been lost with its server */
            snib_hold_free(hold);
            ++*count;
        } else {
            atomic_fetch_add(&f->errors, 1);
        }
        usleep(THINK_US);
    }
}

static void failover_round(struct failover *f, int threads, double seconds, uint64_t *counts)
{
    int64_t now = failover_now(), back = 0;
    atomic_store(&f->errors, 0);
    f->all = (struct gap){now, now, now};
    for (int i = 0; i < threads; i++)
        f->each[i] = f->all;
    double took = bench_crew(failover_body, f, threads, seconds, counts);
    now = failover_now();
    gap_end(&f->all, now);
    for (int i = 0; i < threads; i++) {
        gap_end(&f->each[i], now);
        int64_t to = f->each[i].to == 0 ? now : f->each[i].to;
        back = to > back ? to : back;
    }
    printf("{\"done\": %" PRIu64 ", \"seconds\": %.6f, \"gap_from\": %" PRId64
           ", \"gap_to\": %" PRId64 ", \"back\": %" PRId64 ", \"errors\": %d}\n",
           bench_sum(counts, threads), took, f->all.from, f->all.to, back, atomic_load(&f->errors));
}

void bench_failover(const struct bench *bench, int argc, char **argv)
{
    (void)argc;
    int threads = bench_number(argv[1], 1);
    snib_client *client = bench_client(bench->url);
    struct failover f = {.locks = bench_alloc((size_t)threads, sizeof *f.locks),
                         .each = bench_alloc((size_t)threads, sizeof *f.each),
                         .mutex = PTHREAD_MUTEX_INITIALIZER};
    uint64_t *counts = bench_alloc((size_t)threads, sizeof *counts);
    for (int i = 0; i < threads; i++)
        f.locks[i] = bench_lock(client, SNIB_MUTEX, NULL, argv[0], i);
    double seconds;
    while (bench_next(&seconds))
        failover_round(&f, threads, seconds, counts);
    for (int i = 0; i < threads; i++)
        snib_lock_free(f.locks[i]);
    snib_client_free(client);
    free(f.locks);
    free(f.each);
    free(counts);
}
