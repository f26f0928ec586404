/* secure.c - TLS-only deployments: a failover behind sentinels, a slot migration and a dead master
 * in a cluster, and messages that wake. */
#include "../support/deployment.h"
#include "../support/kinds.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LEASE_MS = 60000, LONG_MS = 30000 }; /* no failover takes a lease */

static struct authority authority;
static char folder[] = "/tmp/snib-secure-XXXXXX";

static int start(void **state)
{
    (void)state;
    if (!mkdtemp(folder))
        return -1;
    authority_make(&authority, folder, "authority");
    return 0;
}

static int stop(void **state)
{
    (void)state;
    char command[64];
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    return system(command); /* NOLINT: no foreign input */
}

static void secured(char out[640], const struct deployment *deployment)
{
    assert_memory_equal(deployment->url, "rediss", 6);
    /* as patient as a failover may be slow */
    snprintf(out, 640, "%s?tls_ca=%s&patience=60s", deployment->url, authority.ca);
}

/* A hold that the replica has survives at the next master; its waiter gets the message there. */
static void held_and_waited_for(snib_client *ours, snib_client *theirs, const char *name,
                                void (*change)(struct deployment *, const char *name),
                                struct deployment *deployment)
{
    snib_lock *lock = must_lock(ours, name), *rival = must_lock(theirs, name);
    snib_hold *hold = must_acquire(lock, 0), *none;
    snib_op *op = must_submit(rival, -1, NULL, 0);
    nap_us(300000);
    change(deployment, name);
    AWAIT(snib_hold_state(hold, NULL) == SNIB_HOLD_VALID, LONG_MS);
    EXPECT(snib_lock_acquire(must_lock(theirs, name), 0, 0, &none, err), SNIB_BUSY);
    nap_us(300000);
    int64_t began = now_ms();
    must_release(hold);
    snib_event event = must_end(op, LONG_MS);
    assert_int_equal(event.code, SNIB_OK);
    assert_true(now_ms() - began < patient_ms(5000)); /* on its own it asks after half a minute */
    must_release(event.hold);
}

static void kill_master(struct deployment *world, const char *name)
{
    (void)name;
    struct node *master = sentinels_master(world);
    node_do(master, "SET mark 1"); /* WAIT covers the writes of its own connection */
    AWAIT(node_integer(master, "WAIT 2 100") == 2, DEPLOYED_MS);
    node_kill(master);
    sentinels_await_failover(world, master);
}

static void sentinels_over_tls(void **state)
{
    (void)state;
    static struct deployment world;
    struct deployment_options options = {
        .tls = &authority, .password = "one", .sentinel_password = "two"};
    char url[640], secret[700];
    if (!server_has_tls())
        skip_because("this server was built without TLS");
    sentinels_start(&world, &options);
    secured(url, &world);
    snprintf(secret, sizeof secret, "%s&sentinel_password=two", url);
    snib_client *ours = must_open_recheck(secret, LEASE_MS, 30000);
    snib_client *theirs = must_open_recheck(secret, LEASE_MS, 30000);
    held_and_waited_for(ours, theirs, "killed", kill_master, &world);
    snib_client_free(ours);
    snib_client_free(theirs);
    /* without the authority no sentinel or server is trusted */
    snib_client *stranger;
    snib_error error = {0};
    snprintf(secret, sizeof secret, "%s?sentinel_password=two", world.url);
    EXPECT(snib_client_open(secret, NULL, &stranger, err), SNIB_OK);
    AWAIT(snib_client_ping(stranger, LONG_MS, &error) == SNIB_ETLS, LONG_MS);
    if (!strstr(error.text, "certificate"))
        fail_msg("%s", error.text);
    snib_client_free(stranger);
    deployment_end(&world);
}

static void move_slot(struct deployment *cluster, const char *name)
{
    struct node *from = cluster_owner_of(cluster, name);
    cluster_move(cluster, slot_of(name), &cluster->nodes[from == &cluster->nodes[0] ? 1 : 0]);
}

static void kill_owner(struct deployment *cluster, const char *name)
{
    struct node *master = cluster_owner_of(cluster, name);
    node_do(master, "SET {%s}mark 1", name);
    AWAIT(node_integer(master, "WAIT 1 100") == 1, DEPLOYED_MS);
    node_kill(master);
    cluster_await_failover(cluster, slot_of(name), master);
}

static void cluster_over_tls(void **state)
{
    (void)state;
    static struct deployment cluster;
    struct deployment_options options = {.tls = &authority, .password = "secret"};
    char url[640];
    if (!server_has_tls())
        skip_because("this server was built without TLS");
    cluster_start(&cluster, &options);
    cluster_await_settled(&cluster);
    secured(url, &cluster);
    snib_client *ours = must_open_recheck(url, LEASE_MS, 30000);
    snib_client *theirs = must_open_recheck(url, LEASE_MS, 30000);
    held_and_waited_for(ours, theirs, "moved", move_slot, &cluster);
    held_and_waited_for(ours, theirs, "killed", kill_owner, &cluster);
    snib_client_free(ours);
    snib_client_free(theirs);
    deployment_end(&cluster);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sentinels_over_tls),
        cmocka_unit_test(cluster_over_tls),
    };
    return cmocka_run_group_tests(tests, start, stop);
}
