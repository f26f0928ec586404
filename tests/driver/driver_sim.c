/* driver_sim.c - the real driver in worlds of threads, sockets and clocks drawn from a seed.
 *
 *     sim_driver                 every story with SNIB_SIM_SEEDS seeds, or 1000
 *     sim_driver STORY SEED      one world
 *     sim_driver --seen          the same as without arguments, and which faults have met
 *
 * In a random world threads acquire, begin, submit, wait, watch and release while calls are
 * interrupted or handle only a part, sockets fill up, connections are lost, and threads of the
 * program stop outside the client's mutex.  In every world: each operation ends, nothing sleeps for
 * ever, no two threads hold one lock, no hold is lost (no fault lasts as long as a lease), and
 * nothing is left at the server.
 */
#include "driver_sim.h"

#include "../sim/pairs.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WORKERS = 8, SHARED = 2, CLIENTS = 2 };

static int inside[SHARED];

/* ---- What a worker does --------------------------------------------------------------------------- */

static snib_lock *lock_shared(int shared, int i)
{
    return lock_of(i, "shared", shared, 0);
}

static void come_in(int shared)
{
    if (shared >= 0 && inside[shared]++)
        world_fail("two threads have one lock");
}

static void go_out(int shared)
{
    if (shared >= 0)
        inside[shared]--;
}

static void work(snib_hold *hold, int shared)
{
    come_in(shared);
    world_sleep(world_draw(3 * SNIB__MS));
    if (world_chance(20))
        world_sleep(2 * LEASE_MS * SNIB__MS);
    MUST(snib_hold_check(hold, err), SNIB_OK);
    go_out(shared);
}

/* A thread that was stopped for longer than a lease may be too late for its grant; and if no thread
 * connected meanwhile, or read the reply, nothing is known of the lock. */
static bool too_late(int code, int64_t wait)
{
    return (code == SNIB_EUNREACHABLE || (code == SNIB_ECONNECT && wait >= 0)) &&
           (world.faults & WORLD_FREEZE);
}

static void call(int i)
{
    int shared = world_chance(2) ? (int)world_draw(SHARED) : -1;
    snib_lock *lock = shared >= 0 ? lock_shared(shared, i) : lock_named("own", i, 0);
    static const int64_t all_waits[] = {-1, -1, 0, 100};
    int64_t wait = all_waits[world_draw(4)];
    snib_hold *hold;
    snib_error why;
    snib__time since = world.now;
    int code = snib_lock_acquire(lock, 0, wait, &hold, &why);
    if (code == SNIB_OK) {
        if (shared < 0)
            prompt(since, "an acquire");
        work(hold, shared);
        since = world.now;
        MUST(snib_hold_release(hold, err), SNIB_OK);
        prompt(since, "a release");
        snib_hold_free(hold);
    } else if (!(wait == 0 && code == SNIB_BUSY) && !(wait == 100 && code == SNIB_TIMEDOUT)) {
        if (!too_late(code, wait) && !(wait >= 0 && cut_off(code)))
            world_fail("acquire gave %s: %s", snib_code_name(code), why.text);
    }
    snib_lock_free(lock);
}

/* As the bindings do: wait for a time slice, return to the caller, wait on. */
static void begin(int i)
{
    snib_lock *lock = lock_named("own", i, 0);
    snib_hold *hold = NULL;
    snib_op *op;
    snib_event event = {.size = sizeof event};
    int code =
        snib_lock_acquire_begin(lock, 0, -1, (int64_t)world_draw(3), NULL, 7, &hold, &op, NULL);
    if (code == SNIB_AGAIN) {
        while ((code = snib_op_wait(op, 5, &event, NULL)) == SNIB_AGAIN) {
        }
        hold = event.hold;
        code = code == SNIB_OK ? event.code : code;
    }
    if (code != SNIB_OK && !too_late(code, -1))
        world_fail("begin gave %s", snib_code_name(code));
    if (code == SNIB_OK) {
        work(hold, -1);
        MUST(snib_hold_release(hold, err), SNIB_OK);
        snib_hold_free(hold);
    }
    snib_lock_free(lock);
}

static void submit(int i)
{
    snib_lock *lock = lock_named("own", i, 0);
    snib_queue *queue;
    snib_event event;
    MUST(snib_queue_new(clients[i % clients_n], &queue, err), SNIB_OK);
    MUST(snib_lock_acquire_submit(lock, 0, -1, queue, 1, NULL, err), SNIB_OK);
    next_event(queue, &event);
    if (event.code != SNIB_OK && !too_late(event.code, -1))
        world_fail("submit gave %s: %s", snib_code_name(event.code), event.text);
    if (event.code == SNIB_OK) {
        snib_hold *hold = event.hold;
        work(hold, -1);
        MUST(snib_hold_release_submit(hold, queue, 2, NULL, err), SNIB_OK);
        next_event(queue, &event);
        if (event.code != SNIB_OK)
            world_fail("release gave %s", snib_code_name(event.code));
        snib_hold_free(hold);
    }
    /* A thread about to ring the descriptor must not ring a new one with its number. */
    snib_queue_free(queue);
    int mine = snib__sys_bell();
    if (world_readable(mine, world_draw(SNIB__MS)))
        world_fail("a descriptor that belongs to no queue is signalled");
    snib__sys_close(mine);
    snib_lock_free(lock);
}

static void watch(int i)
{
    snib_lock *lock = lock_named("watched", i, 0);
    snib_hold *hold;
    int code = snib_lock_acquire(lock, 0, -1, &hold, NULL);
    if (code != SNIB_OK && !too_late(code, -1))
        world_fail("acquire gave %s", snib_code_name(code));
    for (int turn = 0; code == SNIB_OK && turn < 3; turn++) {
        code = snib_hold_wait(hold, LEASE_MS, NULL, NULL);
        if (code != SNIB_TIMEDOUT && code != SNIB_AGAIN)
            world_fail("a hold was lost, although server and thread are well");
        code = SNIB_OK;
    }
    if (code == SNIB_OK) {
        MUST(snib_hold_release(hold, err), SNIB_OK);
        snib_hold_free(hold);
    }
    snib_lock_free(lock);
}

/* ---- Random worlds -------------------------------------------------------------------------------- */

static void worker(void *argument)
{
    int i = (int)(intptr_t)argument;
    static void (*const parts[])(int) = {call, call, submit, begin, submit, watch};
    for (int turns = 1 + (int)world_draw(6); turns > 0; turns--)
        parts[world_draw(6)](i);
    running--;
}

static void random_world(bool cluster)
{
    const int opened = 1 + (int)world_draw(CLIENTS);
    const bool lanes = world_draw(2) > 0;
    while (clients_n < opened) {
        if (cluster)
            open_cluster(LEASE_MS);
        else
            open_client(LEASE_MS, 0);
        drivers[clients_n - 1]->engine->config.scatter = lanes;
        connect_client();
    }
    memset(inside, 0, sizeof inside);
    running = 1 + (int)world_draw(WORKERS);
    for (int i = running - 1; i >= 0; i--)
        world_thread("worker", worker, (void *)(intptr_t)i);
    world_stay(nobody_runs, NULL);
    while (clients_n > 0)
        close_client();
    /* A lane that has been idle for half a minute is closed, and opened again later. */
    const int ages = 1 + (int)(world.now / (30000 * SNIB__MS));
    if (!cluster && world.connects > (lanes ? 1 + SNIB__LANES_MAX * ages : 2) * opened &&
        !(world.faults & (WORLD_CUT | WORLD_FREEZE)))
        world_fail("%d connections of %d clients, and nothing was wrong with the first",
                   world.connects, opened);
    expect_nothing_left();
}

static void random_main(void *argument)
{
    (void)argument;
    random_world(false);
}

static void random_cluster(void *argument)
{
    (void)argument;
    random_world(true);
}

static unsigned random_faults(uint64_t seed)
{
    return seed % 4 == 0 ? 0 : (unsigned)(seed * 0x9e3779b97f4a7c15u >> 40) & 63;
}

/* In the order of enum world_fault. */
static const char *const fault_names[] = {"split", "signals", "full", "cut", "freeze", "slow"};

/* ---- Main ----------------------------------------------------------------------------------------- */

static const struct story {
    const char *name;
    void (*run)(void *);
    uint64_t part; /* it gets one seed in so many */
} stories[] = {
    {"random", random_main, 1},
    {"cluster", random_cluster, 4},
    {"two_addresses", two_addresses, 20},
    {"mute_addresses", mute_addresses, 20},
    {"two_families", two_families, 50},
    {"no_address", no_address, 50},
    {"hanging_lookup", hanging_lookup, 50},
    {"slow_lookup", slow_lookup, 50},
    {"no_name", no_name, 50},
    {"other_way", other_way, 50},
    {"later_lookup", later_lookup, 50},
    {"suspend", suspend, 20},
    {"lost_rings", lost_rings, 20},
    {"silent_close", silent_close, 20},
    {"kept_from_waking", kept_from_waking, 20},
    {"kept_from_ringing", kept_from_ringing, 20},
    {"kept_from_leading", kept_from_leading, 5},
    {"all_kept_from_leading", all_kept_from_leading, 20},
    {"stopped_in_turn", stopped_in_turn, 10},
    {"silence_of_the_server", silence_of_the_server, 20},
    {"nominee_leaves", nominee_leaves, 5},
    {"collected", collected, 100},
    {"collected_by_all", collected_by_all, 50},
    {"collected_alone", collected_alone, 50},
    {"corked_while_awake", corked_while_awake, 20},
    {"owners", owners, 5},
    {"lost_votes", lost_votes, 50},
    {"late_votes", late_votes, 20},
    {"shared_try", shared_try, 50},
    {"silent_nodes", silent_nodes, 50},
    {"returning_node", returning_node, 50},
    {"closed_members", closed_members, 20},
    {"abandoned_group", abandoned_group, 50},
    {"short_rounds", short_rounds, 100},
    {"groups", random_groups, 4},
    {"queues", random_queues, 2},
    {"queue_rules", queue_rules, 50},
    {"consumer_reads", consumer_reads, 20},
    {"only_the_thread", only_the_thread, 20},
    {"consumer_leaves_some", consumer_leaves_some, 20},
    {"consumer_stalls", consumer_stalls, 20},
    {"caller_leaves_it_behind", caller_leaves_it_behind, 10},
    {"consumer_never_comes", consumer_never_comes, 20},
    {"caller_goes_before", caller_goes_before, 20},
    {"caller_waits_behind", caller_waits_behind, 20},
    {"leader_is_freed", leader_is_freed, 20},
    {"login_renewals", login_renewals, 50},
    {"login_renewed_at_a_cut", login_renewed_at_a_cut, 20},
    {"login_answers", login_answers, 100},
    {"login_late", login_late, 20},
    {"login_freed", login_freed, 2},
    {"many_wakes", many_wakes, 200},
    {"freed_while_held", freed_while_held, 20},
    {"end_while_idle", end_while_idle, 50},
    {"seen_before_the_thread", seen_before_the_thread, 200},
    {"answers_together", answers_together, 50},
};

static uint64_t live(const struct story *story, uint64_t number)
{
    clients_n = 0;
    world_begin(story->name, number,
                story->run == random_main || story->run == random_cluster ||
                        story->run == random_groups || story->run == random_queues
                    ? random_faults(number)
                    : 0);
    world_thread("main", story->run, NULL);
    world_run();
    uint64_t digest = world.digest;
    world_end();
    return digest;
}

int main(int argc, char **argv)
{
    const char *asked = getenv("SNIB_SIM_SEEDS");
    uint64_t seeds = asked ? strtoull(asked, NULL, 10) : 1000;
    const bool seen = argc == 2 && strcmp(argv[1], "--seen") == 0;
    if (seen)
        pairs_watch();
    for (size_t s = 0; s < sizeof stories / sizeof stories[0]; s++) {
        const struct story *story = &stories[s];
        if (argc == 3) {
            if (strcmp(argv[1], story->name) == 0)
                live(story, strtoull(argv[2], NULL, 10));
            continue;
        }
        uint64_t n = seeds / story->part + 1;
        for (uint64_t number = 1; number <= n; number++) {
            uint64_t digest = live(story, number);
            pairs_end();
            if (number % 100 == 1 && digest != live(story, number))
                world_fail("the same seed gave another world");
        }
        printf("driver: %s, %llu worlds\n", story->name, (unsigned long long)n);
    }
    if (seen)
        pairs_print(fault_names, sizeof fault_names / sizeof fault_names[0]);
    return 0;
}
