/* ahead.c - behind sentinels and in a cluster, a replica whose clock is ahead is promoted.
 *
 * Leases end that much earlier there.  A hold whose lease has ended there is lost when its client has asked; any other
 * ends there no earlier than its holder believes, as soon as its client has asked: long before it would renew anything.
 * clocks.c has the same for one address.
 */
#define _GNU_SOURCE
#include "../support/deployment.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* No lease ends, and none is due to be renewed, while a test lasts. */
enum { ENDED_MS = 400000, AHEAD_MS = 800000, KEPT_MS = 1600000, SOON_MS = 10000 };

static const int32_t kinds[] = {SNIB_MUTEX, SNIB_FAIR,   SNIB_READ,
                                SNIB_WRITE, SNIB_FENCED, SNIB_PLAIN};
enum { KINDS = sizeof kinds / sizeof *kinds };

/* Nobody takes the master for dead before it is. */
static const struct deployment_options settings = {
    .replicas = 1, .down_ms = 4000, .node_timeout_ms = 4000};

static int64_t ahead_ms(struct node *node)
{
    redisReply *reply = node_command(node, "TIME");
    int64_t there_s = strtoll(reply->element[0]->str, NULL, 10);
    freeReplyObject(reply);
    return (there_s - (int64_t)time(NULL)) * 1000;
}

/* The node's clock is ahead from its start on.  Skips the test if the program cannot be made to use the library. */
static void restart_ahead(struct deployment *set, struct node *node)
{
    char path[128];
    int64_t shift_ms = AHEAD_MS;
    snprintf(path, sizeof path, "%s/shift", node->dir);
    int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    assert_int_equal(write(fd, &shift_ms, sizeof shift_ms), sizeof shift_ms);
    close(fd);
    setenv("LD_PRELOAD", SNIB_TEST_SHIFT, 1);
    setenv("SNIB_TEST_SHIFT", path, 1);
    node_restart(set, node);
    unsetenv("LD_PRELOAD");
    unsetenv("SNIB_TEST_SHIFT");
    if (ahead_ms(node) < AHEAD_MS / 2) {
        deployment_end(set);
        skip_because("no library can be loaded into this server");
    }
}

/* ---- Holds ----------------------------------------------------------------------------------------- */

enum {
    RENEWED,
    LONGER,
    ENDED,
    SORTS
}; /* renewed; fixed leases that end later and earlier than the clock is ahead */
static const char *const sorts[] = {"renewed", "longer", "ended"};

struct world {
    snib_client *client, *rival;
    snib_hold *holds[SORTS][KINDS];
    snib_op *waiters[KINDS]; /* for ENDED */
    char tag[64];
};

static void name_of(const struct world *world, int sort, int kind, char out[128])
{
    snprintf(out, 128, "{%s}%s:%d", world->tag, sorts[sort], kind);
}

static snib_lock *lock_of(const struct world *world, snib_client *client, int sort, int kind,
                          int64_t lease_ms)
{
    char name[128];
    snib_lock_options options;
    bool reads = kinds[kind] == SNIB_READ && client == world->client;
    snib_lock_options_init(&options, sizeof options);
    options.lease_ms = lease_ms;
    name_of(world, sort, kind, name);
    return must_lock_with(client, kinds[kind] == SNIB_READ && !reads ? SNIB_WRITE : kinds[kind],
                          name, &options);
}

static snib_client *must_follow(const char *url)
{
    snib_client_options options;
    snib_client *client = NULL;
    snib_client_options_init(&options, sizeof options);
    options.lease_ms = KEPT_MS;
    options.patience_ms = ENDED_MS; /* for as long as a failover takes */
    options.try_timeout_ms = patient_ms(1000);
    EXPECT(snib_client_open(url, &options, &client, err), SNIB_OK);
    return client;
}

static void world_open(struct world *world, const char *url, const char *tag)
{
    static const int64_t leases_ms[] = {0, KEPT_MS, ENDED_MS};
    memset(world, 0, sizeof *world);
    snprintf(world->tag, sizeof world->tag, "%s", tag);
    world->client = must_follow(url);
    world->rival = must_follow(url);
    for (int sort = 0; sort < SORTS; sort++)
        for (int kind = 0; kind < KINDS; kind++) {
            snib_lock *lock = lock_of(world, world->client, sort, kind, leases_ms[sort]);
            world->holds[sort][kind] = must_acquire(lock, SOON_MS);
            snib_lock_free(lock);
        }
    for (int kind = 0; kind < KINDS; kind++) {
        snib_lock *lock = lock_of(world, world->rival, ENDED, kind, 0);
        EXPECT(snib_lock_acquire_submit(lock, 0, -1, NULL, 0, &world->waiters[kind], err), SNIB_OK);
        snib_lock_free(lock);
    }
    AWAIT(must_stats(world->rival).waiting == KINDS, SOON_MS);
}

static void world_close(struct world *world)
{
    snib_client_free(world->client);
    snib_client_free(world->rival);
}

/* ---- The promotion --------------------------------------------------------------------------------- */

static bool ends_before(const struct world *world, int sort, int kind, struct node *node)
{
    char name[128];
    name_of(world, sort, kind, name);
    long long rest_ms = node_integer(node, "PTTL %s", name);
    return snib_hold_remaining_ms(world->holds[sort][kind]) <= rest_ms;
}

/* The replica has everything, and its leases end earlier than the holders believe. */
static void await_copy(const struct world *world, struct node *master, struct node *replica)
{
    node_do(master, "SET {%s}last write", world->tag);
    AWAIT(node_integer(master, "WAIT 1 100") == 1, DEPLOYED_MS);
    redisReply *reply = node_try(replica, "READONLY"); /* in a cluster it would redirect */
    freeReplyObject(reply);
    for (int kind = 0; kind < KINDS; kind++) {
        assert_false(ends_before(world, RENEWED, kind, replica));
        assert_false(ends_before(world, LONGER, kind, replica));
    }
}

static void expect_followed(struct world *world, struct node *master)
{
    for (int kind = 0; kind < KINDS; kind++) {
        snib_hold *ended = world->holds[ENDED][kind];
        int32_t reason;
        EXPECT(snib_hold_wait(ended, patient_ms(SOON_MS), &reason, err), SNIB_LOST);
        assert_int_equal(reason, SNIB_REASON_FAILOVER);
        must_release(must_end(world->waiters[kind], SOON_MS).hold);
        EXPECT(snib_hold_check(ended, err), SNIB_LOST);
        snib_hold_free(ended);
        for (int sort = RENEWED; sort <= LONGER; sort++) {
            snib_hold *hold = world->holds[sort][kind];
            AWAIT(ends_before(world, sort, kind, master), SOON_MS);
            must_be_valid(hold, SOON_MS);
            assert_true(snib_hold_remaining_ms(hold) > AHEAD_MS);
            must_release(hold);
        }
    }
}

static void behind_sentinels(void **state)
{
    static struct deployment set;
    struct world world;
    (void)state;
    sentinels_start(&set, &settings);
    struct node *master = sentinels_master(&set), *replica = sentinels_replica(&set, 0);
    restart_ahead(&set, replica);
    sentinels_await_settled(&set);
    world_open(&world, set.url, "all");
    await_copy(&world, master, replica);
    node_kill(master);
    assert_ptr_equal(sentinels_await_failover(&set, master), replica);
    expect_followed(&world, replica);
    world_close(&world);
    deployment_end(&set);
}

static void in_a_cluster(void **state)
{
    static struct deployment set;
    struct world world;
    char tag[64];
    (void)state;
    cluster_start(&set, &settings);
    struct node *master = cluster_owner(&set, 0), *replica = cluster_replica_of(&set, master);
    restart_ahead(&set, replica);
    cluster_await_settled(&set);
    cluster_key_at(&set, master, "tag", 0, tag);
    world_open(&world, set.url, tag);
    await_copy(&world, master, replica);
    node_kill(master);
    assert_ptr_equal(cluster_await_failover(&set, 0, master), replica);
    expect_followed(&world, replica);
    world_close(&world);
    deployment_end(&set);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(behind_sentinels),
        cmocka_unit_test(in_a_cluster),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
