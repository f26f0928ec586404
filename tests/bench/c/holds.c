/* holds.c - many renewed holds at once: what they cost in memory, commands and threads, and how
 * close to its end a lease ever comes.  The last is read from the server (PTTL of every key), not
 * from ourselves. */
#include "bench.h"

#include <dirent.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define EVENTS 256
#define IN_FLIGHT                                                                                  \
    1024            /* small against the number of holds, so that what remains is the holds' own */
#define SWEEP_S 0.5 /* between two looks at all keys */
#define PIPELINE 500

struct holds {
    snib_client *client;
    snib_queue *queue;
    snib_hold **all;
    int count;
    int64_t lease_ms;
};

static int64_t holds_rss(void)
{
    FILE *file = fopen("/proc/self/statm", "r");
    long pages = 0;
    if (file == NULL || fscanf(file, "%*d %ld", &pages) != 1)
        bench_die("cannot read statm");
    fclose(file);
    return (int64_t)pages * sysconf(_SC_PAGESIZE);
}

static int holds_threads(void)
{
    DIR *folder = opendir("/proc/self/task");
    int n = 0;
    if (folder == NULL)
        bench_die("cannot read the tasks");
    for (struct dirent *entry; (entry = readdir(folder)) != NULL;)
        n += entry->d_name[0] != '.';
    closedir(folder);
    return n;
}

static void holds_acquire(struct holds *h)
{
    snib_event events[EVENTS];
    snib_error err;
    for (int started = 0, ended = 0; ended < h->count;) {
        while (started < h->count && started - ended < IN_FLIGHT) {
            snib_lock *lock = bench_lock(h->client, SNIB_MUTEX, NULL, "hold", started);
            uint64_t token = (uint64_t)started++;
            if (snib_lock_acquire_submit(lock, 0, 0, h->queue, token, NULL, &err) != SNIB_OK)
                bench_die("submit: %s", err.text);
            snib_lock_free(lock);
        }
        int n = snib_queue_wait(h->queue, events, EVENTS, -1, &err);
        if (n < 0)
            bench_die("wait: %s", err.text);
        for (int i = 0; i < n; i++) {
            if (events[i].code != SNIB_OK)
                bench_die("acquire: %s", events[i].text);
            h->all[events[i].token] = events[i].hold;
            ended++;
        }
    }
}

static void holds_release(struct holds *h)
{
    snib_event events[EVENTS];
    snib_error err;
    for (int started = 0, ended = 0; ended < h->count;) {
        for (; started < h->count && started - ended < IN_FLIGHT; started++) {
            if (snib_hold_release_submit(h->all[started], h->queue, 0, NULL, &err) != SNIB_OK)
                bench_die("release: %s", err.text);
            snib_hold_free(h->all[started]);
        }
        int n = snib_queue_wait(h->queue, events, EVENTS, -1, &err);
        if (n < 0)
            bench_die("wait: %s", err.text);
        ended += n;
    }
}

/* The smallest time to live of all keys; 0 if one is gone. */
static int64_t holds_sweep(redisContext *redis, int count, int64_t smallest)
{
    for (int base = 0; base < count; base += PIPELINE) {
        int n = count - base < PIPELINE ? count - base : PIPELINE;
        for (int i = 0; i < n; i++)
            redisAppendCommand(redis, "PTTL hold:%d", base + i);
        for (int i = 0; i < n; i++) {
            redisReply *reply;
            if (redisGetReply(redis, (void **)&reply) != REDIS_OK)
                bench_die("sweep: %s", redis->errstr);
            int64_t left = reply->integer < 0 ? 0 : reply->integer;
            if (left < smallest)
                smallest = left;
            freeReplyObject(reply);
        }
    }
    return smallest;
}

static int64_t holds_watch(const struct holds *h, redisContext *redis, double seconds)
{
    int64_t smallest = h->lease_ms;
    double began = bench_now();
    for (double next = began; next < began + seconds; next += SWEEP_S) {
        double rest = next - bench_now();
        struct timespec pause = {0, (long)(rest * 1e9)};
        if (rest > 0)
            nanosleep(&pause, NULL);
        smallest = holds_sweep(redis, h->count, smallest);
    }
    return smallest;
}

static void holds_round(struct holds *h, redisContext *redis, double seconds)
{
    snib_client_stats_data before = bench_stats(h->client);
    int64_t rss = holds_rss();
    double began = bench_now();
    holds_acquire(h);
    double filled = bench_now() - began;
    snib_client_stats_data full = bench_stats(h->client);
    int64_t rss_full = holds_rss();
    int threads = holds_threads();
    began = bench_now();
    int64_t smallest = holds_watch(h, redis, seconds);
    double took = bench_now() - began;
    snib_client_stats_data after = bench_stats(h->client);
    /* Between two looks a lease may have come closer to its end by as much as lies between them. */
    double gap = (double)(h->lease_ms - smallest) + SWEEP_S * 1e3;
    printf("{\"done\": %d, \"seconds\": %.6f, \"fill_seconds\": %.3f, \"memory\": %.1f, \"rss\": "
           "%.1f, "
           "\"threads\": %d, \"renewals\": %" PRIu64 ", \"scripts\": %" PRIu64 ", \"gap\": %.4f, "
           "\"late_us\": %" PRIu64 ", \"violations\": %d}\n",
           h->count, took, filled, (double)(full.memory - before.memory) / h->count,
           (double)(rss_full - rss) / h->count, threads - 1, after.renewals - full.renewals,
           after.renewal_commands - full.renewal_commands, gap / (double)h->lease_ms,
           after.watchdog_late_us, after.held != (uint64_t)h->count);
    holds_release(h);
}

void bench_holds(const struct bench *bench, int argc, char **argv)
{
    (void)argc;
    char url[64];
    snib_client_options options;
    snib_error err;
    struct holds h = {.count = bench_number(argv[0], 1), .lease_ms = bench_number(argv[1], 1)};
    snib_client_options_init(&options, sizeof options);
    options.lease_ms = h.lease_ms;
    snprintf(url, sizeof url, "redis://127.0.0.1:%d", bench->port);
    if (snib_client_open(url, &options, &h.client, &err) != SNIB_OK)
        bench_die("open: %s", err.text);
    if (snib_client_ping(h.client, -1, &err) != SNIB_OK)
        bench_die("ping: %s", err.text);
    if (snib_queue_new(h.client, &h.queue, &err) != SNIB_OK)
        bench_die("queue: %s", err.text);
    redisContext *redis = redisConnect("127.0.0.1", bench->port);
    if (redis == NULL || redis->err != 0)
        bench_die("cannot connect");
    h.all = bench_alloc((size_t)h.count, sizeof(snib_hold *));
    memset(h.all, 1,
           (size_t)h.count * sizeof(snib_hold *)); /* its pages are ours, not the holds' */
    holds_sweep(redis, PIPELINE, 0);               /* so are the sweep's buffers */
    double seconds;
    while (bench_next(&seconds))
        holds_round(&h, redis, seconds);
    redisFree(redis);
    snib_queue_free(h.queue);
    snib_client_free(h.client);
    free(h.all);
}
