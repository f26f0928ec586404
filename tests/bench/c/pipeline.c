/* pipeline.c - one thread that keeps many pairs in flight.
 *
 * snib     Snib's queue of events
 * step     hiredis: all acquires in one write, all their replies, all releases, all their replies
 * rolling  hiredis: each reply is followed by its slot's next command, written once nothing is left
 * to read
 */
#include "bench.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EVENTS 64

static void pipeline_print(uint64_t done, double took)
{
    printf("{\"done\": %" PRIu64 ", \"seconds\": %.6f}\n", done, took);
}

/* ---- Snib ------------------------------------------------------------------------------------ */

struct pipeline {
    snib_client *client;
    snib_queue *queue;
    snib_lock **locks;
    int depth;
    int busy; /* slots with an operation in flight */
    uint64_t done;
};

static void pipeline_acquire(struct pipeline *p, uint64_t slot)
{
    snib_error err;
    if (snib_lock_acquire_submit(p->locks[slot], 0, -1, p->queue, slot, NULL, &err) != SNIB_OK)
        bench_die("submit: %s", err.text);
}

/* The event's hold shows which half of the pair has ended: only an acquire has one. */
static void pipeline_step(struct pipeline *p, const snib_event *event, bool more)
{
    snib_error err;
    if (event->kind != SNIB_EVENT_DONE)
        return;
    if (event->code != SNIB_OK)
        bench_die("operation: %s", event->text);
    if (event->hold != NULL) {
        if (snib_hold_release_submit(event->hold, p->queue, event->token, NULL, &err) != SNIB_OK)
            bench_die("submit: %s", err.text);
        snib_hold_free(event->hold);
        return;
    }
    p->done++;
    if (more)
        pipeline_acquire(p, event->token);
    else
        p->busy--;
}

static void pipeline_ours(const struct bench *bench, int depth)
{
    struct pipeline p = {.client = bench_client(bench->url), .depth = depth};
    snib_event events[EVENTS];
    snib_error err;
    double seconds;
    if (snib_queue_new(p.client, &p.queue, &err) != SNIB_OK)
        bench_die("queue: %s", err.text);
    p.locks = bench_alloc((size_t)depth, sizeof *p.locks);
    for (int i = 0; i < depth; i++)
        p.locks[i] = bench_lock(p.client, SNIB_MUTEX, NULL, "pipeline", i);
    while (bench_next(&seconds)) {
        double began = bench_now();
        p.done = 0;
        for (p.busy = 0; p.busy < depth; p.busy++)
            pipeline_acquire(&p, (uint64_t)p.busy);
        while (p.busy > 0) {
            int n = snib_queue_wait(p.queue, events, EVENTS, -1, &err);
            if (n < 0)
                bench_die("wait: %s", err.text);
            bool more = bench_now() - began < seconds;
            snib_queue_cork(p.queue); /* one turn's submissions leave together, as in asyncio */
            for (int i = 0; i < n; i++)
                pipeline_step(&p, &events[i], more);
            snib_queue_uncork(p.queue);
        }
        pipeline_print(p.done, bench_now() - began);
    }
    for (int i = 0; i < depth; i++)
        snib_lock_free(p.locks[i]);
    snib_queue_free(p.queue);
    snib_client_free(p.client);
    free(p.locks);
}

/* ---- hiredis --------------------------------------------------------------------------------- */

static uint64_t pipeline_in_steps(const struct bench_raw *raw, struct bench_raw_lock *locks,
                                  int depth, double until)
{
    uint64_t done = 0;
    while (bench_now() < until) {
        for (int i = 0; i < depth; i++)
            bench_raw_append_acquire(raw, &locks[i]);
        for (int i = 0; i < depth; i++)
            bench_raw_expect_acquired(raw);
        for (int i = 0; i < depth; i++)
            bench_raw_append_release(raw, &locks[i]);
        for (int i = 0; i < depth; i++)
            bench_raw_expect_released(raw);
        done += (uint64_t)depth;
    }
    return done;
}

/* redisGetReply() writes only when it has no reply left in its buffer: that is the batching. */
static uint64_t pipeline_rolling(const struct bench_raw *raw, struct bench_raw_lock *locks,
                                 int depth, double until)
{
    uint64_t done = 0;
    for (int i = 0; i < depth; i++)
        bench_raw_append_acquire(raw, &locks[i]);
    for (bool more = true; more;) {
        for (int i = 0; i < depth; i++) {
            bench_raw_expect_acquired(raw);
            bench_raw_append_release(raw, &locks[i]);
        }
        more = bench_now() < until;
        for (int i = 0; i < depth; i++) {
            bench_raw_expect_released(raw);
            if (more)
                bench_raw_append_acquire(raw, &locks[i]);
        }
        done += (uint64_t)depth;
    }
    return done;
}

static void pipeline_hiredis(const struct bench *bench, int depth, bool rolling)
{
    struct bench_raw raw = bench_raw_open(bench);
    struct bench_raw_lock *locks = bench_alloc((size_t)depth, sizeof *locks);
    for (int i = 0; i < depth; i++)
        locks[i] = bench_raw_name("pipeline", i);
    double seconds;
    while (bench_next(&seconds)) {
        double began = bench_now();
        uint64_t done = rolling ? pipeline_rolling(&raw, locks, depth, began + seconds)
                                : pipeline_in_steps(&raw, locks, depth, began + seconds);
        pipeline_print(done, bench_now() - began);
    }
    bench_raw_close(&raw);
    free(locks);
}

void bench_pipeline(const struct bench *bench, int argc, char **argv)
{
    (void)argc;
    int depth = bench_number(argv[1], 1);
    if (strcmp(argv[0], "snib") == 0)
        pipeline_ours(bench, depth);
    else
        pipeline_hiredis(bench, depth, strcmp(argv[0], "rolling") == 0);
}
