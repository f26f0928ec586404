/* bench.h - what the modes of the benchmark program share.
 *
 * A mode prepares its work, says "ready" and then answers each line "go SECONDS" on its standard
 * input by working for that long and printing one line of JSON.  The driver of the benchmarks can
 * therefore let prepared rivals take turns.
 */
#ifndef BENCH_H
#define BENCH_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include <hiredis/hiredis.h>

#include "snib.h"

struct bench {
    const char *url;     /* of the server, in Snib's form; several separated by spaces */
    const char *scripts; /* folder with the scripts as they are sent */
};

/* ---- bench.c --------------------------------------------------------------------------------- */

_Noreturn void bench_die(const char *format, ...) __attribute__((format(printf, 1, 2)));
int bench_number(const char *text, int least);
double bench_now(void);
void *bench_alloc(size_t count, size_t size);

/* Waits for the next "go SECONDS"; false at the end of the input. */
bool bench_next(double *seconds);

/* One thread's share: count completed work in *count until *stop. */
typedef void bench_body(void *context, int index, const atomic_bool *stop, uint64_t *count);

/* Runs `threads` threads for that many seconds; counts[i] is what thread i has done.  Returns the
 * seconds from the common start to the last thread's end. */
double bench_crew(bench_body *body, void *context, int threads, double seconds, uint64_t *counts);
uint64_t bench_sum(const uint64_t *counts, int n);

/* ---- Snib ------------------------------------------------------------------------------------ */

snib_client *bench_client(const char *url);
snib_lock *bench_lock(snib_client *client, int kind, const snib_lock_options *options,
                      const char *prefix, int index);
snib_client_stats_data bench_stats(snib_client *client);

/* ---- raw.c: the same two scripts by hiredis, and nothing else -------------------------------- */

struct bench_raw {
    redisContext *redis;
    struct ssl_st *tls; /* NULL: none */
    char acquire[41];   /* SHA-1 of the loaded scripts */
    char release[41];
};

/* One lock name of a raw baseline, with its arguments prepared once. */
struct bench_raw_lock {
    char key[64];
    char channel[128];
    uint64_t number; /* a fresh owner for each acquisition, as in Snib */
    char owner[64];
};

struct bench_raw bench_raw_open(const struct bench *bench);
void bench_raw_close(struct bench_raw *raw);
struct bench_raw_lock bench_raw_name(const char *prefix, int index);
void bench_raw_acquire(const struct bench_raw *raw, struct bench_raw_lock *lock);
void bench_raw_release(const struct bench_raw *raw, const struct bench_raw_lock *lock);
void bench_raw_append_acquire(const struct bench_raw *raw, struct bench_raw_lock *lock);
void bench_raw_append_release(const struct bench_raw *raw, const struct bench_raw_lock *lock);
void bench_raw_expect_acquired(const struct bench_raw *raw);
void bench_raw_expect_released(const struct bench_raw *raw);

/* ---- modes ----------------------------------------------------------------------------------- */

void bench_pairs(const struct bench *bench, int argc, char **argv);
void bench_pipeline(const struct bench *bench, int argc, char **argv);
void bench_contend(const struct bench *bench, int argc, char **argv);
void bench_reentry(const struct bench *bench, int argc, char **argv);
void bench_holds(const struct bench *bench, int argc, char **argv);
void bench_readers(const struct bench *bench, int argc, char **argv);
void bench_group(const struct bench *bench, int argc, char **argv);
void bench_quorum(const struct bench *bench, int argc, char **argv);
void bench_failover(const struct bench *bench, int argc, char **argv);
void bench_wakes(const struct bench *bench, int argc, char **argv);

#endif
