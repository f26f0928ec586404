/* cluster.c - locks on a cluster: who serves a name changes while it is held, waited for and given back. */
#include "../support/deployment.h"
#include "../support/kinds.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LEASE_MS = 6000, LONG_MS = 20000 };

static struct deployment cluster;

static int start(void **state)
{
    (void)state;
    cluster_start(&cluster, NULL);
    cluster_await_settled(&cluster);
    return 0;
}

static int stop(void **state)
{
    (void)state;
    deployment_end(&cluster);
    return 0;
}

/* A name that the nth master serves, that no test before has had. */
static void fresh_at(const struct node *node, char out[64])
{
    static int number;
    char prefix[32];
    snprintf(prefix, sizeof prefix, "n%d-", number++);
    cluster_key_at(&cluster, node, prefix, 0, out);
}

static struct node *other_master(const struct node *master)
{
    for (int slot = 0; slot < SLOTS; slot += 64) {
        struct node *owner = cluster_owner(&cluster, slot);
        if (owner && owner != master)
            return owner;
    }
    fail_msg("there is one master only");
    return NULL;
}

/* ---- All kinds --------------------------------------------------------------------------------- */

static void every_kind_works_at_every_node(void **state)
{
    (void)state;
    snib_client *ours = must_open(cluster.url), *theirs = must_open(cluster.url);
    for (int k = 0; k < KINDS; k++)
        for (int i = 0; i < 12; i++) {
            char name[64];
            snprintf(name, sizeof name, "%s-%d", kinds[k].name, i);
            snib_lock_options options;
            snib_lock_options_init(&options, sizeof options);
            options.flags = kinds[k].flags;
            snib_lock *lock = must_lock_with(ours, kinds[k].kind, name, &options);
            options.flags = kinds[k].rival_flags;
            snib_lock *rival = must_lock_with(theirs, kinds[k].rival, name, &options);
            if (kinds[k].traits & COUNTED)
                must_count(kinds[k].kind, lock, SNIB_COUNT_INIT, 1);
            snib_hold *hold = must_acquire(lock, 0), *none;
            EXPECT(snib_lock_acquire(rival, 0, 0, &none, err), SNIB_BUSY);
            EXPECT(snib_lock_acquire(rival, 0, 30, &none, err), SNIB_TIMEDOUT);
            must_release(hold);
            must_release(must_acquire(rival, LONG_MS));
            snib_lock_free(lock);
            snib_lock_free(rival);
        }
    snib_client_free(ours);
    snib_client_free(theirs);
}

/* ---- Slots that move --------------------------------------------------------------------------- */

static void move_follows(void **state)
{
    (void)state;
    char name[64];
    struct node *from = cluster_owner(&cluster, 0), *to = other_master(from);
    fresh_at(from, name);
    snib_client *ours = must_open_lease(cluster.url, LEASE_MS), *theirs = must_open(cluster.url);
    snib_lock *lock = must_lock(ours, name), *rival = must_lock(theirs, name);
    snib_hold *hold = must_acquire(lock, 0), *none;
    cluster_move(&cluster, slot_of(name), to);
    EXPECT(snib_lock_acquire(rival, 0, 0, &none, err), SNIB_BUSY);
    snib_op *op = must_submit(rival, LONG_MS, NULL, 0);
    nap_us(100000);
    must_release(hold);
    snib_event event = must_end(op, LONG_MS);
    assert_int_equal(event.code, SNIB_OK);
    must_release(event.hold);
    cluster_move(&cluster, slot_of(name), from);
    must_release(must_acquire(lock, 0));
    snib_client_free(ours);
    snib_client_free(theirs);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_kind_works_at_every_node),
        cmocka_unit_test(move_follows),
    };
    return cmocka_run_group_tests(tests, start, stop);
}
