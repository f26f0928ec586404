/* pairs.c - lock + unlock on distinct locks: Snib, or as many private hiredis connections as
 * threads. */
#include "bench.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void pairs_snib(void *context, int index, const atomic_bool *stop, uint64_t *count)
{
    snib_lock *lock = ((snib_lock **)context)[index];
    snib_error err;
    while (!atomic_load_explicit(stop, memory_order_relaxed)) {
        snib_hold *hold;
        if (snib_lock_acquire(lock, 0, -1, &hold, &err) != SNIB_OK)
            bench_die("acquire: %s", err.text);
        if (snib_hold_release(hold, &err) != SNIB_OK)
            bench_die("release: %s", err.text);
        snib_hold_free(hold);
        ++*count;
    }
}

static void pairs_ours(const struct bench *bench, int threads)
{
    snib_client *client = bench_client(bench->url);
    snib_lock **locks = bench_alloc((size_t)threads, sizeof *locks);
    uint64_t *counts = bench_alloc((size_t)threads, sizeof *counts);
    for (int i = 0; i < threads; i++)
        locks[i] = bench_lock(client, SNIB_MUTEX, NULL, "pair", i);
    double seconds;
    while (bench_next(&seconds)) {
        snib_client_stats_data a = bench_stats(client);
        double took = bench_crew(pairs_snib, locks, threads, seconds, counts);
        snib_client_stats_data b = bench_stats(client);
        printf("{\"done\": %" PRIu64 ", \"seconds\": %.6f, \"commands\": %" PRIu64
               ", \"writes\": %" PRIu64 ", \"reads\": %" PRIu64 ", \"wakes\": %" PRIu64 "}\n",
               bench_sum(counts, threads), took, b.commands - a.commands, b.writes - a.writes,
               b.reads - a.reads, b.wakes - a.wakes);
    }
    for (int i = 0; i < threads; i++)
        snib_lock_free(locks[i]);
    snib_client_free(client);
    free(locks);
    free(counts);
}

struct pairs_socket {
    struct bench_raw raw;
    struct bench_raw_lock lock;
};

static void pairs_raw(void *context, int index, const atomic_bool *stop, uint64_t *count)
{
    struct pairs_socket *socket = (struct pairs_socket *)context + index;
    while (!atomic_load_explicit(stop, memory_order_relaxed)) {
        bench_raw_acquire(&socket->raw, &socket->lock);
        bench_raw_release(&socket->raw, &socket->lock);
        ++*count;
    }
}

static void pairs_hiredis(const struct bench *bench, int threads)
{
    struct pairs_socket *sockets = bench_alloc((size_t)threads, sizeof *sockets);
    uint64_t *counts = bench_alloc((size_t)threads, sizeof *counts);
    for (int i = 0; i < threads; i++) {
        sockets[i].raw = bench_raw_open(bench);
        sockets[i].lock = bench_raw_name("pair", i);
    }
    double seconds;
    while (bench_next(&seconds)) {
        double took = bench_crew(pairs_raw, sockets, threads, seconds, counts);
        printf("{\"done\": %" PRIu64 ", \"seconds\": %.6f}\n", bench_sum(counts, threads), took);
    }
    for (int i = 0; i < threads; i++)
        bench_raw_close(&sockets[i].raw);
    free(sockets);
    free(counts);
}

void bench_pairs(const struct bench *bench, int argc, char **argv)
{
    (void)argc;
    int threads = bench_number(argv[1], 1);
    if (strcmp(argv[0], "snib") == 0)
        pairs_ours(bench, threads);
    else
        pairs_hiredis(bench, threads);
}
