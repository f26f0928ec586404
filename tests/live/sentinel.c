/* sentinel.c - a master, its replicas and three sentinels: who is found, and what a failover does to locks. */
#include "../support/deployment.h"

#include <string.h>

static struct deployment world;

static int world_start(void **state)
{
    (void)state;
    sentinels_start(&world, NULL);
    return 0;
}

static int world_end(void **state)
{
    (void)state;
    deployment_end(&world);
    return 0;
}

static void the_master_is_found_and_followed(void **state)
{
    (void)state;
    snib_client *client = must_open(world.url);
    EXPECT(snib_client_ping(client, -1, err), SNIB_OK);
    snib_lock *lock = must_lock(client, "m");
    snib_hold *hold = must_acquire(lock, -1);
    struct node *old = sentinels_master(&world);
    nap_us(300000); /* for the replicas */
    node_kill(old);
    AWAIT(snib_hold_state(hold, NULL) == SNIB_HOLD_AT_RISK, 1000);
    sentinels_await_failover(&world, old);
    AWAIT(snib_hold_state(hold, NULL) == SNIB_HOLD_VALID, 2000);
    must_release(hold);
    must_release(must_acquire(lock, -1));
    snib_lock_free(lock);
    snib_client_free(client);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(the_master_is_found_and_followed)};
    return cmocka_run_group_tests(tests, world_start, world_end);
}
