/* family.c - one thread that takes a lock of the family and releases it: a read lock among many
 * readers, several locks as one, a quorum. */
#include "bench.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NODES_MAX 15
#define LOCKS_MAX 100

static snib_hold *family_acquire(snib_lock *lock)
{
    snib_hold *hold;
    snib_error err;
    if (snib_lock_acquire(lock, 0, -1, &hold, &err) != SNIB_OK)
        bench_die("acquire: %s", err.text);
    return hold;
}

static void family_release(snib_hold *hold)
{
    snib_error err;
    if (snib_hold_release(hold, &err) != SNIB_OK)
        bench_die("release: %s", err.text);
    snib_hold_free(hold);
}

/* One turn takes all of the locks, one after another, and releases all. */
static void family_turns(snib_lock *const *locks, int n)
{
    snib_hold *holds[LOCKS_MAX];
    double seconds;
    while (bench_next(&seconds)) {
        uint64_t done = 0;
        double began = bench_now(), took;
        do {
            for (int i = 0; i < n; i++)
                holds[i] = family_acquire(locks[i]);
            for (int i = n; i-- > 0;)
                family_release(holds[i]);
            done++;
        } while ((took = bench_now() - began) < seconds);
        printf("{\"done\": %" PRIu64 ", \"seconds\": %.6f}\n", done, took);
    }
}

/* The readers that stay belong to another client, as if of another process; its watchdog renews
 * them. */
void bench_readers(const struct bench *bench, int argc, char **argv)
{
    (void)argc;
    int count = bench_number(argv[0], 1);
    snib_client *others = bench_client(bench->url), *client = bench_client(bench->url);
    snib_lock *theirs = bench_lock(others, SNIB_READ, NULL, "readers:snib", 0);
    snib_lock *mine = bench_lock(client, SNIB_READ, NULL, "readers:snib", 0);
    snib_hold **standing = bench_alloc((size_t)count, sizeof(snib_hold *));
    for (int i = 0; i < count; i++)
        standing[i] = family_acquire(theirs);
    family_turns(&mine, 1);
    for (int i = 0; i < count; i++)
        family_release(standing[i]);
    free(standing);
    snib_lock_free(mine);
    snib_lock_free(theirs);
    snib_client_free(client);
    snib_client_free(others);
}

void bench_group(const struct bench *bench, int argc, char **argv)
{
    (void)argc;
    bool multi = strcmp(argv[0], "multi") == 0;
    int count = bench_number(argv[1], 1);
    snib_client *client = bench_client(bench->url);
    snib_lock *members[LOCKS_MAX], *group;
    snib_error err;
    if (count > LOCKS_MAX)
        bench_die("at most %d locks", LOCKS_MAX);
    for (int i = 0; i < count; i++)
        members[i] = bench_lock(client, SNIB_MUTEX, NULL, "member", i);
    if (!multi) {
        family_turns(members, count);
    } else {
        if (snib_multi_new(members, (uint32_t)count, NULL, &group, &err) != SNIB_OK)
            bench_die("multi: %s", err.text);
        family_turns(&group, 1);
        snib_lock_free(group);
    }
    for (int i = 0; i < count; i++)
        snib_lock_free(members[i]);
    snib_client_free(client);
}

/* The nodes are new to the client, and are known not to have lost data. */
void bench_quorum(const struct bench *bench, int argc, char **argv)
{
    (void)argc, (void)argv;
    snib_client *clients[NODES_MAX];
    snib_lock *locks[NODES_MAX], *quorum;
    snib_lock_options options;
    snib_error err;
    int n = 0;
    char *urls = strdup(bench->url), *rest = NULL;
    for (char *url = strtok_r(urls, " ", &rest); url != NULL && n < NODES_MAX;
         url = strtok_r(NULL, " ", &rest), n++) {
        clients[n] = bench_client(url);
        locks[n] = bench_lock(clients[n], SNIB_MUTEX, NULL, "quorum", 0);
    }
    free(urls);
    snib_lock_options_init(&options, sizeof options);
    options.flags = SNIB_LOCK_NO_QUARANTINE;
    if (snib_quorum_new(locks, (uint32_t)n, &options, &quorum, &err) != SNIB_OK)
        bench_die("quorum: %s", err.text);
    family_turns(&quorum, 1);
    snib_lock_free(quorum);
    for (int i = 0; i < n; i++) {
        snib_lock_free(locks[i]);
        snib_client_free(clients[i]);
    }
}
