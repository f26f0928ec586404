/* load.c - clients that do what they are told, so that a test can count what it costs their server.
 *
 *     cli_load LEASE_MS CLIENTS URL...     several URLs: quorum locks on these servers
 *
 * Each line of the input is answered by one of JSON when its work is done; the clients take turns lock by lock.
 *
 *     hold KIND PREFIX COUNT    take COUNT locks and keep them, renewed
 *     release                   release all that are held
 *     pairs KIND PREFIX COUNT   take and release COUNT locks, one after the other
 *     try KIND PREFIX COUNT     fail to take COUNT locks, which others hold
 *     wait KIND PREFIX COUNT    let every client begin to wait for each of COUNT locks
 *     permits PREFIX COUNT      give COUNT names one permit each
 *     stats                     sums of the clients' statistics
 *
 * Names have 24 bytes. */
#include "snib.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SERVERS_MAX 15
#define NAME 24

struct load {
    int64_t lease_ms;
    int clients_n, servers_n;
    snib_client **clients; /* servers_n for each */
    snib_queue **queues;   /* one for each */
    snib_hold **holds;
    size_t holds_n;
};

_Noreturn static void die(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vfprintf(stderr, format, args);
    va_end(args);
    fputc('\n', stderr);
    exit(1);
}

static void *take(void *memory)
{
    if (!memory)
        die("out of memory");
    return memory;
}

static int32_t kind_of(const char *word)
{
    static const struct {
        const char *word;
        int32_t kind;
    } kinds[] = {{"mutex", SNIB_MUTEX}, {"fenced", SNIB_FENCED}, {"fair", SNIB_FAIR},
                 {"read", SNIB_READ},   {"write", SNIB_WRITE},   {"permits", SNIB_PERMITS},
                 {"spin", SNIB_SPIN},   {"plain", SNIB_PLAIN}};
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
        if (strcmp(kinds[i].word, word) == 0)
            return kinds[i].kind;
    die("no such kind: %s", word);
}

static snib_lock *lock_at(snib_client *client, int32_t kind, const char *prefix, int i)
{
    char name[NAME + 16];
    snib_lock *lock;
    snib_error err;
    int n = snprintf(name, sizeof name, "%.8s:%0*d", prefix, NAME - 1 - (int)strlen(prefix), i);
    if (snib_lock_new(client, kind, name, (size_t)n, NULL, &lock, &err) != SNIB_OK)
        die("lock: %s", err.text);
    return lock;
}

/* The i-th lock, for one of the clients. */
static snib_lock *lock_of(const struct load *load, int client, int32_t kind, const char *prefix,
                          int i)
{
    snib_client *const *at = load->clients + client * load->servers_n;
    snib_lock *members[SERVERS_MAX], *lock;
    snib_error err;
    if (load->servers_n == 1)
        return lock_at(*at, kind, prefix, i);
    for (int n = 0; n < load->servers_n; n++)
        members[n] = lock_at(at[n], kind, prefix, i);
    if (snib_quorum_new(members, (uint32_t)load->servers_n, NULL, &lock, &err) != SNIB_OK)
        die("quorum: %s", err.text);
    for (int n = 0; n < load->servers_n; n++)
        snib_lock_free(members[n]);
    return lock;
}

static snib_hold *acquire(const struct load *load, int32_t kind, const char *prefix, int i)
{
    snib_lock *lock = lock_of(load, i % load->clients_n, kind, prefix, i);
    snib_hold *hold;
    snib_error err;
    if (snib_lock_acquire(lock, 0, 60000, &hold, &err) != SNIB_OK)
        die("acquire: %s", err.text);
    snib_lock_free(lock);
    return hold;
}

static void release(snib_hold *hold)
{
    snib_error err;
    if (snib_hold_release(hold, &err) != SNIB_OK)
        die("release: %s", err.text);
    snib_hold_free(hold);
}

/* ---- What it is told ------------------------------------------------------------------------- */

static void do_hold(struct load *load, int32_t kind, const char *prefix, int count)
{
    load->holds = take(realloc(load->holds, (load->holds_n + (size_t)count) * sizeof(snib_hold *)));
    for (int i = 0; i < count; i++)
        load->holds[load->holds_n++] = acquire(load, kind, prefix, i);
}

static void do_release(struct load *load)
{
    while (load->holds_n > 0)
        release(load->holds[--load->holds_n]);
}

static void do_pairs(const struct load *load, int32_t kind, const char *prefix, int count)
{
    for (int i = 0; i < count; i++)
        release(acquire(load, kind, prefix, i));
}

static void do_try(const struct load *load, int32_t kind, const char *prefix, int count)
{
    for (int i = 0; i < count; i++) {
        snib_lock *lock = lock_of(load, i % load->clients_n, kind, prefix, i);
        snib_hold *hold;
        snib_error err;
        int code = snib_lock_acquire(lock, 0, 0, &hold, &err);
        if (code != SNIB_BUSY)
            die("%d instead of busy", code);
        snib_lock_free(lock);
    }
}

static void do_wait(const struct load *load, int32_t kind, const char *prefix, int count)
{
    for (int i = 0; i < count; i++)
        for (int client = 0; client < load->clients_n; client++) {
            snib_lock *lock = lock_of(load, client, kind, prefix, i);
            snib_error err;
            if (snib_lock_acquire_submit(lock, 0, -1, load->queues[client], 0, NULL, &err) !=
                SNIB_OK)
                die("wait: %s", err.text);
            snib_lock_free(lock);
        }
}

static void do_permits(const struct load *load, const char *prefix, int count)
{
    for (int i = 0; i < count; i++) {
        snib_lock *lock = lock_of(load, 0, SNIB_PERMITS, prefix, i);
        int64_t value;
        snib_error err;
        if (snib_permits_count(lock, SNIB_COUNT_SET, 1, &value, &err) != SNIB_OK)
            die("permits: %s", err.text);
        snib_lock_free(lock);
    }
}

static void do_stats(const struct load *load)
{
    snib_client_stats_data sum = {.size = sizeof sum};
    for (int i = 0; i < load->clients_n * load->servers_n; i++) {
        snib_client_stats_data one = {.size = sizeof one};
        snib_error err;
        if (snib_client_stats(load->clients[i], &one, &err) != SNIB_OK)
            die("stats: %s", err.text);
        sum.memory += one.memory;
        sum.renewals += one.renewals;
        sum.renewal_commands += one.renewal_commands;
        sum.commands += one.commands;
        sum.rechecks += one.rechecks;
        sum.waiting += one.waiting;
        sum.held += one.held;
    }
    printf("{\"memory\": %" PRIu64 ", \"renewals\": %" PRIu64 ", \"renewal_commands\": %" PRIu64
           ", \"commands\": %" PRIu64 ", \"rechecks\": %" PRIu64 ", \"waiting\": %" PRIu64
           ", \"held\": %" PRIu64 "}\n",
           sum.memory, sum.renewals, sum.renewal_commands, sum.commands, sum.rechecks, sum.waiting,
           sum.held);
}

static void obey(struct load *load, const char *line)
{
    char verb[16] = "", kind[16] = "", prefix[16] = "";
    int count = 0, words = sscanf(line, "%15s %15s %15s %d", verb, kind, prefix, &count);
    if (strcmp(verb, "stats") == 0) {
        do_stats(load);
        return;
    }
    if (strcmp(verb, "release") == 0)
        do_release(load);
    else if (strcmp(verb, "permits") == 0)
        do_permits(load, kind, atoi(prefix));
    else if (words == 4 && strcmp(verb, "hold") == 0)
        do_hold(load, kind_of(kind), prefix, count);
    else if (words == 4 && strcmp(verb, "pairs") == 0)
        do_pairs(load, kind_of(kind), prefix, count);
    else if (words == 4 && strcmp(verb, "try") == 0)
        do_try(load, kind_of(kind), prefix, count);
    else if (words == 4 && strcmp(verb, "wait") == 0)
        do_wait(load, kind_of(kind), prefix, count);
    else
        die("not understood: %s", line);
    puts("{}");
}

/* ---- The clients ----------------------------------------------------------------------------- */

static void open_all(struct load *load, char **urls)
{
    size_t n = (size_t)load->clients_n;
    load->clients = take(calloc(n * (size_t)load->servers_n, sizeof(snib_client *)));
    load->queues = take(calloc(n, sizeof(snib_queue *)));
    for (int i = 0; i < load->clients_n * load->servers_n; i++) {
        snib_client_options options;
        snib_error err;
        snib_client_options_init(&options, sizeof options);
        options.lease_ms = load->lease_ms;
        if (snib_client_open(urls[i % load->servers_n], &options, &load->clients[i], &err) !=
                SNIB_OK ||
            snib_client_ping(load->clients[i], -1, &err) != SNIB_OK ||
            (i % load->servers_n == 0 &&
             snib_queue_new(load->clients[i], &load->queues[i / load->servers_n], &err) != SNIB_OK))
            die("open: %s", err.text);
    }
}

int main(int argc, char **argv)
{
    char line[128];
    struct load load = {0};
    if (argc < 4 || argc > 3 + SERVERS_MAX)
        die("usage: cli_load LEASE_MS CLIENTS URL...");
    load.lease_ms = atoi(argv[1]);
    load.clients_n = atoi(argv[2]);
    load.servers_n = argc - 3;
    open_all(&load, argv + 3);
    puts("{}");
    fflush(stdout);
    while (fgets(line, sizeof line, stdin)) {
        obey(&load, line);
        fflush(stdout);
    }
    for (int i = 0; i < load.clients_n; i++)
        snib_queue_free(load.queues[i]);
    for (int i = 0; i < load.clients_n * load.servers_n; i++)
        snib_client_free(load.clients[i]);
    free(load.clients);
    free(load.queues);
    free(load.holds);
    return 0;
}
