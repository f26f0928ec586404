/* holds.c - many renewed holds at once: their cost in memory, commands and threads, and how close
 * to its end a lease ever comes.  The last is read from the servers (PTTL of every key), not from
 * the client.  In a cluster the keys are on all slots. */
#include "bench.h"

#include "net/slot.h"

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
#define SWEEP_S 0.5 /* between two sweeps of all keys */
#define PIPELINE 500
#define NODES_MAX 16

struct holds {
    snib_client *client;
    snib_queue *queue;
    snib_hold **all;
    int count;
    int64_t lease_ms;
    redisContext *nodes[NODES_MAX]; /* the servers themselves, whatever is in between */
    int nodes_n;
    int *tags; /* in a cluster: for each slot a number that hashes to it as a name */
};

/* ---- Names ----------------------------------------------------------------------------------- */

static int *holds_tags(void)
{
    int *tags = bench_alloc(SNIB__SLOTS, sizeof *tags);
    char text[16];
    for (int number = 1, found = 0; found < SNIB__SLOTS; number++) {
        int length = snprintf(text, sizeof text, "%d", number);
        int *tag = &tags[snib__slot(text, (size_t)length)];
        found += *tag == 0;
        *tag = number;
    }
    return tags;
}

struct holds_name {
    char text[48];
};

static struct holds_name holds_name(const struct holds *h, int i)
{
    struct holds_name name;
    if (h->nodes_n == 1)
        snprintf(name.text, sizeof name.text, "hold:%d", i);
    else
        snprintf(name.text, sizeof name.text, "hold:%d:{%d}", i, h->tags[i % SNIB__SLOTS]);
    return name;
}

/* The server of the i-th name, as the slots are divided. */
static redisContext *holds_node(const struct holds *h, int i)
{
    int node = 0, slot = i % SNIB__SLOTS;
    while (slot >= SNIB__SLOTS * (node + 1) / h->nodes_n)
        node++;
    return h->nodes[h->nodes_n == 1 ? 0 : node];
}

/* ---- The process's resources ----------------------------------------------------------------- */

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

/* ---- Acquire and release --------------------------------------------------------------------- */

static void holds_acquire_one(struct holds *h, int i)
{
    struct holds_name name = holds_name(h, i);
    snib_lock *lock;
    snib_error err;
    if (snib_lock_new(h->client, SNIB_MUTEX, name.text, strlen(name.text), NULL, &lock, &err) !=
        SNIB_OK)
        bench_die("lock: %s", err.text);
    if (snib_lock_acquire_submit(lock, 0, 0, h->queue, (uint64_t)i, NULL, &err) != SNIB_OK)
        bench_die("submit: %s", err.text);
    snib_lock_free(lock);
}

static void holds_acquire(struct holds *h)
{
    snib_event events[EVENTS];
    snib_error err;
    for (int started = 0, ended = 0; ended < h->count;) {
        while (started < h->count && started - ended < IN_FLIGHT)
            holds_acquire_one(h, started++);
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

/* ---- The leases, at the servers -------------------------------------------------------------- */

static int64_t holds_left(redisContext *node)
{
    redisReply *reply;
    if (redisGetReply(node, (void **)&reply) != REDIS_OK)
        bench_die("sweep: %s", node->errstr);
    if (reply->type != REDIS_REPLY_INTEGER)
        bench_die("sweep: %s", reply->str ? reply->str : "no number");
    int64_t left = reply->integer < 0 ? 0 : reply->integer;
    freeReplyObject(reply);
    return left;
}

/* The smallest TTL of all keys; 0 if one is gone. */
static int64_t holds_sweep(const struct holds *h, int count, int64_t smallest)
{
    for (int base = 0; base < count; base += PIPELINE) {
        int end = count - base < PIPELINE ? count : base + PIPELINE;
        for (int i = base; i < end; i++)
            redisAppendCommand(holds_node(h, i), "PTTL %s", holds_name(h, i).text);
        for (int i = base; i < end; i++) {
            int64_t left = holds_left(holds_node(h, i));
            if (left < smallest)
                smallest = left;
        }
    }
    return smallest;
}

static int64_t holds_watch(const struct holds *h, double seconds)
{
    int64_t smallest = h->lease_ms;
    double began = bench_now();
    for (double next = began; next < began + seconds; next += SWEEP_S) {
        double rest = next - bench_now();
        struct timespec pause = {0, (long)(rest * 1e9)};
        if (rest > 0)
            nanosleep(&pause, NULL);
        smallest = holds_sweep(h, h->count, smallest);
    }
    return smallest;
}

/* ---- A round --------------------------------------------------------------------------------- */

static void holds_round(struct holds *h, double seconds)
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
    int64_t smallest = holds_watch(h, seconds);
    double took = bench_now() - began;
    snib_client_stats_data after = bench_stats(h->client);
    /* Between two sweeps a lease may have come closer to its end by up to the time between them. */
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

static void holds_connect(struct holds *h, char *ports)
{
    char *rest = NULL;
    for (char *port = strtok_r(ports, ",", &rest); port != NULL && h->nodes_n < NODES_MAX;
         port = strtok_r(NULL, ",", &rest)) {
        redisContext *node = redisConnect("127.0.0.1", bench_number(port, 1));
        if (node == NULL || node->err != 0)
            bench_die("cannot connect to port %s", port);
        h->nodes[h->nodes_n++] = node;
    }
    if (h->nodes_n > 1)
        h->tags = holds_tags();
}

static void holds_open(struct holds *h, const char *url)
{
    snib_client_options options;
    snib_error err;
    snib_client_options_init(&options, sizeof options);
    options.lease_ms = h->lease_ms;
    if (snib_client_open(url, &options, &h->client, &err) != SNIB_OK)
        bench_die("open: %s", err.text);
    if (snib_client_ping(h->client, -1, &err) != SNIB_OK)
        bench_die("ping: %s", err.text);
    if (snib_queue_new(h->client, &h->queue, &err) != SNIB_OK)
        bench_die("queue: %s", err.text);
}

void bench_holds(const struct bench *bench, int argc, char **argv)
{
    (void)argc;
    struct holds h = {.count = bench_number(argv[0], 1), .lease_ms = bench_number(argv[1], 1)};
    holds_open(&h, bench->url);
    holds_connect(&h, argv[2]);
    /* Touched before the measurement begins: its pages are not the holds', nor are the sweep's. */
    size_t size = (size_t)h.count * sizeof(snib_hold *);
    h.all = memset(bench_alloc(1, size), 1, size);
    holds_sweep(&h, PIPELINE, 0);
    double seconds;
    while (bench_next(&seconds))
        holds_round(&h, seconds);
    for (int i = 0; i < h.nodes_n; i++)
        redisFree(h.nodes[i]);
    snib_queue_free(h.queue);
    snib_client_free(h.client);
    free(h.tags);
    free(h.all);
}
