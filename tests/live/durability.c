/* durability.c - grants that count only once replicas have them: on one master with two replicas,
 * and without any. */
#include "../support/deployment.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LEASE_MS = 60000, LONG_MS = 20000, THREADS = 32, PAIRS = 20 };

static struct deployment deployment;
static struct node *master, *one, *two; /* the replicas */

static int world_new(void **state)
{
    (void)state;
    /* On a busy machine a server may be silent for a second; no failover is wanted. */
    sentinels_start(&deployment, &(struct deployment_options){.down_ms = 30000});
    master = one = two = NULL;
    for (int i = 0; i < deployment.count; i++) {
        struct node *node = &deployment.nodes[i];
        if (node->sentinel)
            continue;
        if (node_is_master(node))
            master = node;
        else if (!one)
            one = node;
        else
            two = node;
    }
    return 0;
}

static int world_free(void **state)
{
    (void)state;
    deployment_end(&deployment);
    return 0;
}

struct wish {
    int32_t durability, policy;
    int64_t timeout_ms;
    const char *user;
};

static snib_client *open_to(const struct node *node, struct wish wish)
{
    char url[120];
    snib_client_options options;
    snib_client *client = NULL;
    snib_client_options_init(&options, sizeof options);
    options.lease_ms = LEASE_MS;
    options.durability = wish.durability;
    options.durability_policy = wish.policy;
    options.durability_timeout_ms = wish.durability && !wish.timeout_ms ? LONG_MS : wish.timeout_ms;
    snprintf(url, sizeof url, "redis://%s127.0.0.1:%d", wish.user ? wish.user : "", node->port);
    EXPECT(snib_client_open(url, &options, &client, err), SNIB_OK);
    return client;
}

static long long calls(struct node *node, const char *command)
{
    char line[64];
    redisReply *reply = node_command(node, "INFO commandstats");
    snprintf(line, sizeof line, "cmdstat_%s:calls=", command);
    const char *at = strstr(reply->str, line);
    long long n = at ? atoll(at + strlen(line)) : 0;
    freeReplyObject(reply);
    return n;
}

static bool in_step(void)
{
    redisReply *reply = node_command(master, "INFO replication");
    int n = 0;
    for (const char *at = reply->str; (at = strstr(at, "state=online")); at++)
        n++;
    freeReplyObject(reply);
    return n == 2;
}

/* Every kind with holds is granted, and the hold says how many replicas have it. */
static void hold_says_how_many(void **state)
{
    (void)state;
    static const struct {
        int32_t durability;
        int64_t least, most;
    } wishes[] = {
        {1, 1, 2}, {2, 2, 2}, {SNIB_DURABILITY_MAJORITY, 1, 2}, {SNIB_DURABILITY_ALL, 2, 2}};
    static const int32_t kinds[] = {SNIB_MUTEX,  SNIB_FAIR, SNIB_READ, SNIB_WRITE,
                                    SNIB_FENCED, SNIB_SPIN, SNIB_PLAIN};
    AWAIT(in_step(), DEPLOYED_MS);
    for (size_t i = 0; i < sizeof wishes / sizeof *wishes; i++) {
        snib_client *client = open_to(master, (struct wish){.durability = wishes[i].durability});
        for (size_t j = 0; j < sizeof kinds / sizeof *kinds; j++) {
            char name[32];
            snib_lock *lock = NULL;
            snprintf(name, sizeof name, "kind:%zu", j);
            EXPECT(snib_lock_new(client, kinds[j], name, strlen(name), NULL, &lock, err), SNIB_OK);
            snib_hold *hold = must_acquire(lock, -1);
            assert_true(snib_hold_replicas(hold) >= wishes[i].least);
            assert_true(snib_hold_replicas(hold) <= wishes[i].most);
            must_release(hold);
        }
        snib_client_free(client);
    }
}

/* A lock of several clients: as many as have each member's grant. */
static void members_say_how_many(void **state)
{
    (void)state;
    AWAIT(in_step(), DEPLOYED_MS);
    snib_client *sure = open_to(master, (struct wish){.durability = SNIB_DURABILITY_ALL}),
                *also = open_to(master, (struct wish){.durability = 2}),
                *free = open_to(master, (struct wish){0});
    snib_lock *locks[] = {must_lock(sure, "x"), must_lock(also, "y"), must_lock(free, "a")};
    for (uint32_t n = 2; n <= 3; n++) {
        snib_lock *multi = NULL;
        EXPECT(snib_multi_new(locks, n, NULL, &multi, err), SNIB_OK);
        snib_hold *hold = must_acquire(multi, -1);
        assert_int_equal(snib_hold_replicas(hold), n == 2 ? 2 : 0);
        must_release(hold);
        snib_lock_free(multi);
    }
    snib_client_free(sure);
    snib_client_free(also);
    snib_client_free(free);
}

/* Without the option no WAIT is sent. */
static void none_costs_nothing(void **state)
{
    (void)state;
    long long before = calls(master, "wait");
    snib_client *client = open_to(master, (struct wish){0});
    snib_hold *hold = must_acquire(must_lock(client, "x"), 0);
    assert_int_equal(snib_hold_replicas(hold), 0);
    must_release(hold);
    assert_int_equal(calls(master, "wait"), before);
    snib_client_free(client);
}

static void too_few_are_refused_and_undone(void **state)
{
    (void)state;
    AWAIT(in_step(), DEPLOYED_MS);
    snib_client *client = open_to(master, (struct wish){.durability = 2, .timeout_ms = 4000});
    snib_lock *lock = must_lock(client, "x");
    must_release(must_acquire(lock, -1));
    node_stop(one);
    snib_hold *hold = NULL;
    snib_error error;
    assert_int_equal(snib_lock_acquire(lock, 0, -1, &hold, &error), SNIB_EREPLICAS);
    assert_non_null(strstr(error.text, "only 1 of the 2 required replicas"));
    AWAIT(node_integer(master, "EXISTS x") == 0, 5000);
    node_continue(one);
    AWAIT(snib_lock_acquire(lock, 0, 0, &hold, NULL) == SNIB_OK, DEPLOYED_MS);
    assert_int_equal(snib_hold_replicas(hold), 2);
    must_release(hold);
    snib_client_free(client);
}

static void too_few_are_reported(void **state)
{
    (void)state;
    AWAIT(in_step(), DEPLOYED_MS);
    snib_client *client = open_to(master, (struct wish){.durability = SNIB_DURABILITY_ALL,
                                                        .policy = SNIB_DURABILITY_REPORT,
                                                        .timeout_ms = 4000});
    snib_lock *lock = must_lock(client, "x");
    int64_t had = 0, end = now_ms() + patient_ms(DEPLOYED_MS);
    node_stop(two);
    while (had == 0 && now_ms() < end) { /* on a slow machine the other one lags, too */
        snib_hold *hold = must_acquire(lock, -1);
        had = snib_hold_replicas(hold);
        must_release(hold);
    }
    assert_int_equal(had, 1);
    node_continue(two);
    snib_client_free(client);
}

/* With three servers, two are enough. */
static void majority_does_without_one(void **state)
{
    (void)state;
    AWAIT(in_step(), DEPLOYED_MS);
    snib_client *client = open_to(master, (struct wish){.durability = SNIB_DURABILITY_MAJORITY});
    node_stop(one);
    for (int i = 0; i < 20; i++) {
        snib_hold *hold = must_acquire(must_lock(client, "x"), -1);
        assert_int_equal(snib_hold_replicas(hold), 1);
        must_release(hold);
    }
    node_continue(one);
    snib_client_free(client);
}

/* A WAIT in flight delays no other renewal, grant or release. */
static void others_are_not_kept_waiting(void **state)
{
    (void)state;
    AWAIT(in_step(), DEPLOYED_MS);
    snib_client *client = open_to(master, (struct wish){.durability = 2});
    snib_hold *held = must_acquire(must_lock(client, "held"), -1);
    node_stop(one);
    snib_op *op = NULL;
    snib_event event;
    EXPECT(snib_lock_acquire_submit(must_lock(client, "x"), 0, -1, NULL, 0, &op, err), SNIB_OK);
    AWAIT(node_integer(master, "EXISTS x") == 1, 3000);
    int64_t began = now_ms();
    must_release(held);
    EXPECT(snib_client_ping(client, -1, err), SNIB_OK);
    assert_true(now_ms() - began < LONG_MS / 2);
    node_continue(one);
    EXPECT(snib_op_wait(op, patient_ms(10000), &event, err), SNIB_OK);
    assert_int_equal(event.code, SNIB_OK);
    must_release(event.hold);
    snib_client_free(client);
}

static void *crew_main(void *argument)
{
    snib_lock *lock = argument;
    for (int i = 0; i < PAIRS; i++)
        must_release(must_acquire(lock, -1));
    return NULL;
}

/* Acquisitions that come while a WAIT is in flight share the next one. */
static void many_share_a_wait(void **state)
{
    (void)state;
    AWAIT(in_step(), DEPLOYED_MS);
    snib_client *client = open_to(master, (struct wish){.durability = SNIB_DURABILITY_MAJORITY});
    pthread_t threads[THREADS];
    bool shared = false;
    for (int tries = 0; !shared && tries < 10; tries++) {
        long long before = calls(master, "wait");
        for (int i = 0; i < THREADS; i++) {
            char name[32];
            snprintf(name, sizeof name, "many:%d", i);
            assert_int_equal(pthread_create(&threads[i], NULL, crew_main, must_lock(client, name)),
                             0);
        }
        for (int i = 0; i < THREADS; i++)
            pthread_join(threads[i], NULL);
        shared = calls(master, "wait") - before <= THREADS * PAIRS / 4;
    }
    assert_true(shared);
    snib_client_free(client);
}

/* A grant that all replicas had exists on whichever of them replaces the master. */
static void grant_outlives_its_master(void **state)
{
    (void)state;
    AWAIT(in_step(), DEPLOYED_MS);
    snib_client *client = open_to(master, (struct wish){.durability = SNIB_DURABILITY_ALL});
    snib_hold *holds[50];
    for (int i = 0; i < 50; i++) {
        char name[32];
        snprintf(name, sizeof name, "kept:%d", i);
        holds[i] = must_acquire(must_lock(client, name), -1);
    }
    node_kill(master);
    for (int i = 0; i < 50; i++)
        assert_int_equal(node_integer(one, "EXISTS kept:%d", i), 1);
    for (int i = 0; i < 50; i++)
        snib_hold_free(holds[i]);
    snib_client_free(client);
}

static int single_new(void **state)
{
    (void)state;
    struct deployment_options options = {.replicas = -1};
    single_start(&deployment, &options);
    master = &deployment.nodes[0];
    return 0;
}

/* A server that never had a replica causes no error. */
static void no_replicas_is_no_error(void **state)
{
    (void)state;
    static const int32_t wishes[] = {1, SNIB_DURABILITY_MAJORITY, SNIB_DURABILITY_ALL};
    for (int i = 0; i < 3; i++) {
        snib_client *client = open_to(master, (struct wish){.durability = wishes[i]});
        snib_hold *hold = must_acquire(must_lock(client, "x"), 0);
        assert_int_equal(snib_hold_replicas(hold), 0);
        must_release(hold);
        snib_client_free(client);
    }
    assert_int_equal(calls(master, "wait"), 0);
}

/* Nor does one that forbids WAIT. */
static void forbidden_wait_is_no_error(void **state)
{
    (void)state;
    AWAIT(in_step(), DEPLOYED_MS);
    node_do(master, "ACL SETUSER plain on >word ~* &* +@all -wait");
    snib_client *client = open_to(master, (struct wish){.durability = 2, .user = "plain:word@"});
    for (int i = 0; i < 3; i++) {
        snib_hold *hold = must_acquire(must_lock(client, "x"), -1);
        assert_int_equal(snib_hold_replicas(hold), 0);
        must_release(hold);
    }
    snib_client_free(client);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, world_new, world_free)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(hold_says_how_many),
        TEST(members_say_how_many),
        TEST(none_costs_nothing),
        TEST(too_few_are_refused_and_undone),
        TEST(too_few_are_reported),
        TEST(majority_does_without_one),
        TEST(others_are_not_kept_waiting),
        TEST(many_share_a_wait),
        TEST(forbidden_wait_is_no_error),
        TEST(grant_outlives_its_master),
        cmocka_unit_test_setup_teardown(no_replicas_is_no_error, single_new, world_free),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
