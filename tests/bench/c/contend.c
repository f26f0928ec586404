/* contend.c - one lock for all threads of all processes, with a safety oracle; and re-entry.
 *
 * The oracle is in a file that every contender maps: each holder counts itself in and out.  A count
 * above one is a violation, whatever the figures say. */
#include "bench.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* The file's first 12 bytes; contenders in other languages use the same. */
struct oracle {
    _Atomic int32_t inside;     /* holders at this moment */
    _Atomic int32_t violations; /* how often a holder was not alone */
    int32_t last;               /* process of the last holder; guarded by the lock itself */
};

struct contend {
    snib_lock *lock;
    int hold_us;
    struct oracle *oracle;
    _Atomic uint64_t changes; /* acquisitions that followed another process' */
};

static struct oracle *contend_oracle(const char *path)
{
    int fd = open(path, O_RDWR);
    if (fd < 0)
        bench_die("cannot open %s", path);
    void *memory = mmap(NULL, sizeof(struct oracle), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (memory == MAP_FAILED)
        bench_die("cannot map %s", path);
    return memory;
}

static void contend_body(void *context, int index, const atomic_bool *stop, uint64_t *count)
{
    struct contend *c = context;
    struct oracle *oracle = c->oracle;
    int32_t me = (int32_t)getpid();
    snib_error err;
    (void)index;
    while (!atomic_load_explicit(stop, memory_order_relaxed)) {
        snib_hold *hold;
        if (snib_lock_acquire(c->lock, 0, -1, &hold, &err) != SNIB_OK)
            bench_die("acquire: %s", err.text);
        if (atomic_fetch_add(&oracle->inside, 1) != 0)
            atomic_fetch_add(&oracle->violations, 1);
        if (oracle->last != me)
            atomic_fetch_add(&c->changes, 1);
        oracle->last = me;
        if (c->hold_us > 0)
            usleep((useconds_t)c->hold_us);
        atomic_fetch_sub(&oracle->inside, 1);
        if (snib_hold_release(hold, &err) != SNIB_OK)
            bench_die("release: %s", err.text);
        snib_hold_free(hold);
        ++*count;
    }
}

static void contend_print(const struct contend *c, const uint64_t *counts, int threads, double took)
{
    printf("{\"done\": %" PRIu64 ", \"seconds\": %.6f, \"violations\": %d, \"changes\": %" PRIu64
           ", \"each\": [",
           bench_sum(counts, threads), took, atomic_load(&c->oracle->violations),
           atomic_load(&c->changes));
    for (int i = 0; i < threads; i++)
        printf("%s%" PRIu64, i ? ", " : "", counts[i]);
    puts("]}");
}

void bench_contend(const struct bench *bench, int argc, char **argv)
{
    (void)argc;
    int kind = strcmp(argv[0], "fair") == 0 ? SNIB_FAIR : SNIB_MUTEX;
    int threads = bench_number(argv[1], 1);
    snib_client *client = bench_client(bench->url);
    struct contend c = {.lock = bench_lock(client, kind, NULL, "contended", 0),
                        .hold_us = bench_number(argv[2], 0),
                        .oracle = contend_oracle(argv[3])};
    uint64_t *counts = bench_alloc((size_t)threads, sizeof *counts);
    double seconds;
    while (bench_next(&seconds)) {
        atomic_store(&c.changes, 0);
        double took = bench_crew(contend_body, &c, threads, seconds, counts);
        contend_print(&c, counts, threads, took);
    }
    snib_lock_free(c.lock);
    snib_client_free(client);
    free(counts);
}

/* ---- re-entry -------------------------------------------------------------------------------- */

#define OWNER 7

static void reentry_nest(snib_lock *lock, int depth)
{
    snib_hold *hold;
    snib_error err;
    if (depth == 0)
        return;
    if (snib_lock_acquire(lock, OWNER, 0, &hold, &err) != SNIB_OK)
        bench_die("acquire: %s", err.text);
    reentry_nest(lock, depth - 1);
    if (snib_hold_release(hold, &err) != SNIB_OK)
        bench_die("release: %s", err.text);
    snib_hold_free(hold);
}

/* The outermost hold lasts for all rounds, with a lease that needs no renewal: any command that the
 * server sees meanwhile would be a re-entry's. */
void bench_reentry(const struct bench *bench, int argc, char **argv)
{
    (void)argc;
    int depth = bench_number(argv[0], 1);
    snib_client *client = bench_client(bench->url);
    snib_lock_options options;
    snib_lock_options_init(&options, sizeof options);
    options.lease_ms = 3600 * 1000;
    snib_lock *lock = bench_lock(client, SNIB_MUTEX, &options, "reentry", 0);
    snib_hold *outer;
    snib_error err;
    if (snib_lock_acquire(lock, OWNER, 0, &outer, &err) != SNIB_OK)
        bench_die("acquire: %s", err.text);
    double seconds;
    while (bench_next(&seconds)) {
        uint64_t done = 0;
        double began = bench_now();
        for (; bench_now() - began < seconds; done += (uint64_t)depth)
            reentry_nest(lock, depth);
        printf("{\"done\": %" PRIu64 ", \"seconds\": %.6f}\n", done, bench_now() - began);
    }
    snib_hold_release(outer, NULL);
    snib_hold_free(outer);
    snib_lock_free(lock);
    snib_client_free(client);
}
