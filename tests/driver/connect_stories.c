/* connect_stories.c - addresses that swallow, refuse or change, lookups that hang, a machine that is suspended, and
 * connections that end unnoticed. */
#include "driver_sim.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Each connection is to the address where requests were answered. */
static void expect_to_begin_there(void)
{
    for (int i = 0; i < 30; i++) {
        world_sleep(1000 * SNIB__MS); /* one that lasts no longer is made again after a pause */
        world_cut();
        snib__time since = world.now;
        MUST(snib_client_ping(clients[0], -1, err), SNIB_OK);
        if (world.now - since > 200 * SNIB__MS)
            world_fail("the address that worked was not the first");
    }
}

/* The first address swallows packets; the second is tried in time, and remembered. */
void two_addresses(void *argument)
{
    (void)argument;
    world.addresses = 2;
    world.peers[1] = WORLD_SWALLOWS;
    open_client(LEASE_MS, 500);
    snib__time since = world.now;
    MUST(snib_client_ping(clients[0], -1, err), SNIB_OK);
    if (world.now - since > 400 * SNIB__MS)
        world_fail("the second address took %.3f s", (double)(world.now - since) / 1e9);
    expect_to_begin_there();
    MUST(snib_client_close(clients[0], -1, err), SNIB_OK);
    free_client();
}

/* Only one of the addresses answers, and later another: some connect, and no more.  It is found, however they are mixed
 * with addresses that refuse, and remembered. */
void mute_addresses(void *argument)
{
    (void)argument;
    world.addresses = 2 + (int)world_draw(4);
    open_client(LEASE_MS, 500);
    for (int round = 0; round < 3; round++) {
        for (int i = 1; i <= world.addresses; i++)
            world.peers[i] = world_chance(2) ? WORLD_MUTE : WORLD_REFUSES;
        world.peers[1 + world_draw((uint64_t)world.addresses)] = WORLD_ANSWERS;
        world_cut();
        snib__time since = world.now;
        while (snib_client_ping(clients[0], 1000, NULL) != SNIB_OK)
            if (world.now - since > 60000 * SNIB__MS)
                world_fail("the address that answers was not found");
        expect_to_begin_there();
    }
    MUST(snib_client_close(clients[0], -1, err), SNIB_OK);
    free_client();
}

/* A network without a route for one address family: the first address of the other family is tried
 * second. */
void two_families(void *argument)
{
    (void)argument;
    world.addresses = 5;
    world.sixes = 4;
    for (int i = 1; i <= world.sixes; i++)
        world.peers[i] = WORLD_SWALLOWS;
    open_client(LEASE_MS, 5000);
    snib__time since = world.now;
    MUST(snib_client_ping(clients[0], -1, err), SNIB_OK);
    if (world.now - since > 400 * SNIB__MS)
        world_fail("the other family took %.3f s", (double)(world.now - since) / 1e9);
    close_client();
}

void no_address(void *argument)
{
    (void)argument;
    world.addresses = 8;
    for (int i = 0; i < 8; i++)
        world.peers[i] = i % 2 ? WORLD_SWALLOWS : WORLD_REFUSES;
    open_client(LEASE_MS, 500);
    for (int i = 0; i < 5; i++) {
        snib__time since = world.now;
        int code = snib_client_ping(clients[0], 10000, NULL);
        if (code != SNIB_ECONNECT && code != SNIB_TIMEDOUT)
            world_fail("no address answers, and ping gave %s", snib_code_name(code));
        if (world.now - since > 10500 * SNIB__MS)
            world_fail("it took %.3f s to report it", (double)(world.now - since) / 1e9);
    }
    close_client();
}

/* A hanging lookup is reported in time, no second one is started meanwhile, and its result is used
 * when it comes. */
void hanging_lookup(void *argument)
{
    (void)argument;
    world.lookup_takes = SNIB__NEVER;
    open_client(LEASE_MS, 500);
    for (snib__time end = world.now + 30000 * SNIB__MS; world.now < end;) {
        snib__time since = world.now;
        int code = snib_client_ping(clients[0], 10000, NULL);
        if (code == SNIB_OK || world.now - since > 10500 * SNIB__MS)
            world_fail("%s after %.3f s", snib_code_name(code), (double)(world.now - since) / 1e9);
        if (world.lookups_running > 1)
            world_fail("%d lookups at once", world.lookups_running);
    }
    world.lookup_takes = 700 * SNIB__MS;
    snib__time since = world.now;
    connect_client();
    if (world.now - since > 6000 * SNIB__MS)
        world_fail("connected %.3f s after the lookup's end", (double)(world.now - since) / 1e9);
    close_client();
}

/* Connecting has its full time limit, however long the lookup took. */
void slow_lookup(void *argument)
{
    (void)argument;
    world.lookup_takes = 400 * SNIB__MS;
    world.addresses = 2;
    world.peers[1] = WORLD_SWALLOWS;
    open_client(LEASE_MS, 500);
    snib__time since = world.now;
    MUST(snib_client_ping(clients[0], 5000, err), SNIB_OK);
    if (world.now - since > 900 * SNIB__MS)
        world_fail("connected after %.3f s", (double)(world.now - since) / 1e9);
    close_client();
}

/* Another server has taken over: both links go to the new address, including one that was still
 * connecting to the old one. */
void other_way(void *argument)
{
    (void)argument;
    struct snib__address address;
    snib_hold *hold, *other;
    open_client(LEASE_MS, 60000);
    connect_client();
    snib_lock *lock = lock_of(0, "shared", 1, 0);
    MUST(snib_lock_acquire(lock, 0, -1, &hold, err), SNIB_OK);
    world.peers[1] = WORLD_SWALLOWS;
    struct snib__engine *engine = drivers[0]->engine;
    MUST(snib_lock_acquire(lock, 0, 100, &other, err), SNIB_TIMEDOUT);
    snib__driver_enter(drivers[0]);
    snib__link_want(engine, &engine->home->links[SNIB__PUBSUB], snib__now());
    snib__driver_leave(drivers[0]);
    world_sleep(100 * SNIB__MS);
    world.peers[1] = WORLD_ANSWERS;
    snib__address_host(&address, "next.test", strlen("next.test"), 6379, false);
    snib__driver_enter(drivers[0]);
    snib__node_readdress(engine, engine->home, &address, snib__now());
    snib__driver_leave(drivers[0]);
    const int lookups = world.lookups;
    MUST(snib_client_ping(clients[0], 5000, err), SNIB_OK);
    world_sleep(100 * SNIB__MS);
    if (world.lookups == lookups || strcmp(world.host, address.host) != 0)
        world_fail("%d lookups, the last of %s", world.lookups - lookups, world.host);
    MUST(snib_hold_release(hold, err), SNIB_OK);
    snib_hold_free(hold);
    snib_lock_free(lock);
    MUST(snib_client_close(clients[0], -1, err), SNIB_OK);
    free_client();
}

/* A lookup's result serves the connections that waited for it: the next one looks up again. */
void later_lookup(void *argument)
{
    (void)argument;
    open_client(LEASE_MS, 500);
    connect_client();
    world.faults |= WORLD_CUT;
    while (world.connects == 1) {
        snib_client_ping(clients[0], 1000, NULL);
        world_sleep(SNIB__MS);
    }
    world.faults &= (unsigned)~WORLD_CUT;
    connect_client();
    if (world.lookups < world.connects)
        world_fail("%d connections, %d lookups", world.connects, world.lookups);
    MUST(snib_client_close(clients[0], -1, err), SNIB_OK);
    free_client();
}

void no_name(void *argument)
{
    (void)argument;
    world.addresses = 0;
    open_client(LEASE_MS, 500);
    for (int i = 0; i < 3; i++) {
        int code = snib_client_ping(clients[0], 3000, NULL);
        if (code != SNIB_ERESOLVE && code != SNIB_TIMEDOUT)
            world_fail("the name has no address, and ping gave %s", snib_code_name(code));
    }
    world.addresses = 1;
    connect_client();
    close_client();
}

/* When a hold ends during a suspend, the loss is reported right after it, to every kind of
 * waiter. */
static snib_hold *suspended_hold;
static snib__time resumed;

static void suspended_watcher(void *argument)
{
    (void)argument;
    MUST(snib_hold_wait(suspended_hold, -1, NULL, err), SNIB_LOST);
    if (!resumed || world.now - resumed > 50 * SNIB__MS)
        world_fail("the watcher was notified %.3f s after the resume",
                   (double)(world.now - resumed) / 1e9);
    running--;
}

void suspend(void *argument)
{
    snib_queue *queue;
    snib_event event;
    (void)argument;
    open_client(30000, 0);
    drivers[0]->nap = 1000 * SNIB__MS;
    connect_client();
    MUST(snib_queue_new(clients[0], &queue, err), SNIB_OK);
    snib_lock *lock = lock_named("fixed", 0, 20000);
    MUST(snib_lock_acquire_submit(lock, 0, -1, queue, 1, NULL, err), SNIB_OK);
    next_event(queue, &event);
    suspended_hold = event.hold;
    running = 1;
    resumed = 0;
    world_thread("watcher", suspended_watcher, NULL);
    world_sleep(1000 * SNIB__MS + world_draw(3000 * SNIB__MS));
    world_suspend(60000 * SNIB__MS);
    resumed = world.now;
    next_event(queue, &event);
    if (event.kind != SNIB_EVENT_LOST || world.now - resumed > 50 * SNIB__MS)
        world_fail("event %d came %.3f s after the resume", event.kind,
                   (double)(world.now - resumed) / 1e9);
    world_stay(nobody_runs, NULL);
    snib_hold_free(suspended_hold);
    snib_queue_free(queue);
    snib_lock_free(lock);
    close_client();
}

/* The loss of a fixed lease is reported by the descriptor alone. */
void lost_rings(void *argument)
{
    snib_queue *queue;
    snib_event event;
    (void)argument;
    open_client(30000, 0);
    connect_client();
    MUST(snib_queue_new(clients[0], &queue, err), SNIB_OK);
    snib_lock *lock = lock_named("fixed", 0, 2000);
    snib__time since = world.now;
    MUST(snib_lock_acquire_submit(lock, 0, -1, queue, 1, NULL, err), SNIB_OK);
    next_event(queue, &event);
    snib_hold *hold = event.hold;
    if (!event_within(queue, &event, 2000 * SNIB__MS) || world.now - since > 2000 * SNIB__MS)
        world_fail("the descriptor does not signal the loss");
    if (event.kind != SNIB_EVENT_LOST)
        world_fail("the event that the descriptor signalled was not a loss");
    snib_hold_free(hold);
    snib_queue_free(queue);
    snib_lock_free(lock);
    close_client();
}

/* A silent server: a release, and the close that waits for it, end within their limits, without a
 * busy loop. */
void silent_close(void *argument)
{
    (void)argument;
    open_client(60000, 0);
    connect_client();
    snib_lock *lock = lock_named("kept", 0, 0);
    snib_hold *hold;
    MUST(snib_lock_acquire(lock, 0, -1, &hold, err), SNIB_OK);
    world.silent = true;
    snib__time since = world.now;
    uint64_t calls = world.calls;
    MUST(snib_client_close(clients[0], 4000, err), SNIB_TIMEDOUT);
    snib__time took = world.now - since;
    if (took < 4000 * SNIB__MS || took > 4200 * SNIB__MS)
        world_fail("close with a limit of 4 s took %.3f s", (double)took / 1e9);
    if (world.calls - calls > 3000)
        world_fail("%llu calls meanwhile", (unsigned long long)(world.calls - calls));
    world.silent = false;
    snib_hold_free(hold);
    snib_lock_free(lock);
    free_client();
}
