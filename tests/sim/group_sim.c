/* group_sim.c - runs locks of several servers in simulated worlds: one seed, one world, one
 * verdict.
 *
 *     sim_group [--focused] [--seen] [--seeds A-B] [--trace SEED]
 *
 * Without a range: a tenth of SNIB_SIM_SEEDS seeds, because these worlds are larger, or 800.
 * --focused, --seen: see sim.c.
 *
 * A world is first disturbed, then calm, when every waiter must be served, and then winds down
 * until nothing may be left.  Nodes that died stay dead.  Every 64th seed runs twice and must leave
 * the same trace.
 */
#include "group_sim.h"
#include "seed.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define EPOCH_NS 1700000000000000000ULL
#define EVENTS_MAX 2000000
#define RECOVERY (5000 * SNIB__MS) /* reconnect, with back-off, and ask again */

struct world world;
struct world_totals world_totals;
static jmp_buf failed;
static bool focused, seen;

/* ---- Chance ------------------------------------------------------------------------------------- */

uint64_t world_draw(uint64_t below)
{
    uint64_t next = seed_next(&world.random);
    return below == 0 ? 0 : next % below;
}

bool world_chance(unsigned one_in)
{
    return world_draw(one_in) == 0;
}

snib__time world_between(snib__time least, snib__time most)
{
    return least + world_draw(most - least + 1);
}

bool world_has(int fault)
{
    return !world.calm && (world.enabled >> fault & 1) != 0;
}

uint64_t world_server_ns(int node, snib__time at)
{
    int64_t drift = (int64_t)((at - WORLD_START) / 1000000) * world.nodes[node].clock_ppm;
    return EPOCH_NS + at + (uint64_t)drift;
}

/* ---- Words -------------------------------------------------------------------------------------- */

static void say(const char *format, va_list arguments)
{
    fprintf(stderr, "sim_group: %.3f ms: ", (double)(world.now - WORLD_START) / 1e6);
    vfprintf(stderr, format, arguments);
    fprintf(stderr, "\n");
}

void world_trace(const char *format, ...)
{
    va_list arguments;
    if (world.trace) {
        va_start(arguments, format);
        say(format, arguments);
        va_end(arguments);
    }
}

void world_fail(const char *format, ...)
{
    va_list arguments;
    fprintf(stderr, "sim_group: seed %llu, at %.3f ms: ", (unsigned long long)world.seed,
            (double)(world.now - WORLD_START) / 1e6);
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fprintf(stderr, "; replay with: sim_group %s--trace %llu\n", focused ? "--focused " : "",
            (unsigned long long)world.seed);
    longjmp(failed, 1);
}

/* ---- One world ---------------------------------------------------------------------------------- */

/* A quorum is one name on all nodes; all have the same lease, because nodes without memory wait for
 * it. */
static void plan_quorum(struct world_lock *lock, int index)
{
    lock->n = (uint32_t)world.node_count;
    for (int i = 0; i < world.node_count; i++) {
        lock->part[i].node = i;
        lock->part[i].names = 1U << index;
        lock->members |= 1U << (i * WORLD_NAMES + index);
    }
}

/* Any names of at least two nodes, in the order of the nodes. */
static void plan_multi(struct world_lock *lock)
{
    while (lock->n < 2) {
        lock->n = 0;
        lock->members = 0;
        for (int i = 0; i < world.node_count; i++) {
            unsigned names = (unsigned)world_draw(4);
            if (names == 3 && world.second_kind == SNIB_FAIR) {
                names = 2; /* no command takes both */
            }
            if (names != 0) {
                lock->part[lock->n].node = i;
                lock->part[lock->n++].names = names;
                lock->members |= names << (i * WORLD_NAMES);
            }
        }
    }
}

static void plan_locks(void)
{
    world.majority = world_chance(2) || fault_is_focus(WORLD_DEAD);
    static const int kinds[] = {SNIB_SPIN,  SNIB_MUTEX, SNIB_FENCED,
                                SNIB_WRITE, SNIB_FAIR,  SNIB_READ};
    world.second_kind = world.majority ? SNIB_MUTEX : kinds[world_draw(6)];
    world.quarantine = world.majority && (!world_chance(4) || fault_is_focus(WORLD_RESTART));
    world.need = (uint32_t)world.node_count / 2 + 1;
    world.lock_count = (int)world_between(1, world.majority ? WORLD_NAMES : WORLD_LOCKS);
    for (int i = 0; i < world.lock_count; i++) {
        struct world_lock *lock = &world.locks[i];
        if (world.majority) {
            plan_quorum(lock, i);
        } else {
            plan_multi(lock);
        }
        if (world_chance(3)) {
            snib__time longest = world.majority ? world.lease : 2 * world.lease;
            lock->lease = world_between(100 * SNIB__MS, longest) / SNIB__MS * SNIB__MS;
        }
    }
}

static void begin(uint64_t seed, bool trace)
{
    memset(&world, 0, sizeof world);
    world.seed = seed;
    world.random = seed_state(seed);
    world.trace = trace;
    world.focused = focused;
    pairs_choose(seed, WORLD_FAULTS, &world.focus[0], &world.focus[1]);
    world.now = WORLD_START;
    world.pipes_end = world.pipes;
    world.lease = world_between(200 * SNIB__MS, 3000 * SNIB__MS) / SNIB__MS * SNIB__MS;
    world.recheck = world_between(100 * SNIB__MS, 2000 * SNIB__MS);
    world.patience = world_between(200 * SNIB__MS, 4000 * SNIB__MS);
    world.reply_timeout = world_between(100 * SNIB__MS, 2000 * SNIB__MS);
    world.delay = world_between(SNIB__MS / 10, world_chance(3) ? 10 * SNIB__MS : 2 * SNIB__MS);
    world.node_count = world_chance(2) ? 3 : (int)world_between(3, WORLD_NODES);
    world.slot_count = (int)world_between(1, WORLD_SLOTS);
    world.task_count = (int)world_between(1, WORLD_TASKS);
    world.think = 10 * SNIB__MS << world_draw(8);
    world.password = world_chance(2) ? "secret" : NULL;
    plan_locks();
    pairs_begin(world.lease);
    fault_plan();
    for (int i = 0; i < world.node_count; i++) {
        world.nodes[i].model = model_new();
        model_require_password(world.nodes[i].model, world.password);
        model_time(world.nodes[i].model, world_server_ns(i, world.now));
    }
    for (int i = 0; i < world.slot_count; i++) {
        process_new(i);
    }
    world.calm_at = world.now + world_between(1000 * SNIB__MS, 5000 * SNIB__MS);
    world.stable_at = world.enabled == 0 ? world.now : SNIB__NEVER / 2; /* leaves room to add */
}

static void end(void)
{
    for (uint32_t i = 0; i < world.process_count; i++) {
        process_free(world.processes[i]);
    }
    net_free();
    for (int i = 0; i < world.node_count; i++) {
        model_free(world.nodes[i].model);
    }
}

static void let_time_pass(snib__time now)
{
    world.now = now;
    for (int i = 0; i < world.node_count; i++) {
        model_time(world.nodes[i].model, world_server_ns(i, now));
    }
    world.hash = (world.hash ^ now) * 0x100000001b3ULL;
    if (++world.events > EVENTS_MAX) {
        world_fail("the events do not end");
    }
}

/* Advance to the next moment at which something happens, at most to `until`, and let one thing
 * happen. */
static void step(snib__time until)
{
    snib__time next = net_next(), fault = world.nested ? SNIB__NEVER : fault_next();
    snib__time runs_at = SNIB__NEVER;
    struct world_process *runs = NULL;
    next = fault < next ? fault : next;
    for (uint32_t i = 0; i < world.process_count; i++) {
        snib__time at = process_next(world.processes[i]);
        if (at <= world.now || at < next) {
            runs = world.processes[i];
            runs_at = at;
            next = at < next ? at : next;
        }
    }
    let_time_pass(next > until ? until : next > world.now ? next : world.now);
    if (next <= until) {
        if (runs_at <= world.now) {
            process_run(runs);
        } else if (!net_run()) {
            fault_run();
        }
    }
    fault_answered();
    check_step();
}

void world_run_until(snib__time until)
{
    while (world.now < until) {
        step(until);
    }
}

static bool all_idle(void)
{
    for (int i = 0; i < world.slot_count; i++) {
        if (!process_is_idle(world.slots[i])) {
            return false;
        }
    }
    return true;
}

static void live(void)
{
    world_run_until(world.calm_at);
    world_trace("calm");
    world.calm = true;
    world.calm_at = world.now; /* later than planned, if a thread was interrupted */
    fault_end_all();
    if (world.enabled != 0) {
        world.stable_at = world.now + RECOVERY + 2 * world.lease;
    }
    world_run_until((world.enabled == 0 ? world.now : world.stable_at) + 2000 * SNIB__MS);
    world_trace("winding down");
    world.winding_down = true;
    snib__time at_last = world.now + 30 * world.lease + 4 * RECOVERY;
    while (!all_idle()) {
        step(at_last);
        if (world.now >= at_last) {
            world_fail("not all tasks have ended");
        }
    }
    world_run_until(world.now + 3 * world.lease + RECOVERY);
    check_end();
}

/* Returns whether the world passed all checks. */
static bool run(uint64_t seed, bool trace, uint64_t *out_hash)
{
    volatile bool good = false;
    begin(seed, trace);
    if (setjmp(failed) == 0) {
        live();
        *out_hash = world.hash;
        world_totals.events += world.events;
        for (int i = 0; i < world.node_count; i++) {
            *out_hash ^= model_digest(world.nodes[i].model);
            world_totals.requests += model_requests(world.nodes[i].model);
        }
        end();
        good = true;
    }
    return good;
}

/* ---- All worlds --------------------------------------------------------------------------------- */

static const char *const fault_names[WORLD_FAULTS] = {
    [WORLD_DELAY] = "delay",
    [WORLD_CUT] = "cut",
    [WORLD_LATE] = "late",
    [WORLD_STALL] = "stall",
    [WORLD_REFUSE] = "refuse",
    [WORLD_NODE_PAUSE] = "node-pause",
    [WORLD_RESTART] = "restart",
    [WORLD_ERRORS] = "errors",
    [WORLD_CLOCK] = "clock",
    [WORLD_PAUSE] = "pause",
    [WORLD_PREEMPT] = "preempt",
    [WORLD_KILL] = "kill",
    [WORLD_CLOSE] = "close",
    [WORLD_CLOSE_ONE] = "close-one",
    [WORLD_DEAD] = "dead",
    [WORLD_ERROR_AFTER] = "error-after",
    [WORLD_BUSY] = "busy",
    [WORLD_NOREPLICAS] = "no-replicas",
    [WORLD_MASTERDOWN] = "master-down",
    [WORLD_NO_COMMAND] = "no-command",
    [WORLD_PASSWORD] = "password",
    [WORLD_RESTART_AOF] = "restart-aof",
};

static void print_totals(uint64_t seeds, double seconds)
{
    const struct world_totals *t = &world_totals;
    printf("sim_group: %llu seeds good, %llu events, %llu requests, %.1f s; granted %llu, members "
           "alone "
           "%llu, extended %llu, released %llu, busy %llu, timed out %llu, cancelled %llu, lost "
           "%llu, failed %llu; "
           "faults:",
           (unsigned long long)seeds, (unsigned long long)t->events,
           (unsigned long long)t->requests, seconds, (unsigned long long)t->granted,
           (unsigned long long)t->singles, (unsigned long long)t->extended,
           (unsigned long long)t->released, (unsigned long long)t->busy,
           (unsigned long long)t->timed_out, (unsigned long long)t->cancelled,
           (unsigned long long)t->lost, (unsigned long long)t->failed);
    for (int i = 0; i < WORLD_FAULTS; i++) {
        printf(" %s %llu", fault_names[i], (unsigned long long)t->faults[i]);
    }
    printf("\n");
}

static int usage(void)
{
    fprintf(stderr, "usage: sim_group [--focused] [--seen] [--seeds A-B] [--trace SEED]\n");
    return 2;
}

static int run_all(uint64_t first, uint64_t last)
{
    struct timespec from, to;
    uint64_t hash, again, trace = 0;
    clock_gettime(CLOCK_MONOTONIC, &from);
    for (uint64_t seed = first; seed <= last; seed++) {
        if (!run(seed, false, &hash)) {
            return 1;
        }
        pairs_end();
        trace = trace * 31 + hash;
        if (seed % 61 == 0 && /* of all residues by which worlds are chosen */
            (!run(seed, false, &again) || again != hash)) {
            fprintf(stderr, "sim_group: seed %llu does not leave the same trace twice\n",
                    (unsigned long long)seed);
            return 1;
        }
    }
    clock_gettime(CLOCK_MONOTONIC, &to);
    print_totals(last - first + 1,
                 (double)(to.tv_sec - from.tv_sec) + (double)(to.tv_nsec - from.tv_nsec) / 1e9);
    printf("trace of seeds %llu to %llu: %016llx\n", (unsigned long long)first,
           (unsigned long long)last, (unsigned long long)trace);
    if (seen) {
        pairs_print(fault_names, WORLD_FAULTS);
        lives_print();
    }
    return 0;
}

int main(int argc, char **argv)
{
    const char *count = getenv("SNIB_SIM_SEEDS");
    uint64_t first = 1, last = count == NULL ? 800 : 1 + strtoull(count, NULL, 10) / 10, hash;
    for (int at = 1; at < argc; at++) {
        const char *value = at + 1 < argc ? argv[at + 1] : "";
        if (strcmp(argv[at], "--focused") == 0) {
            focused = true;
        } else if (strcmp(argv[at], "--seen") == 0) {
            seen = true;
            pairs_watch();
            lives_watch();
        } else if (strcmp(argv[at], "--seeds") == 0 && *value != '\0') {
            char *rest;
            first = strtoull(value, &rest, 10);
            last = *rest == '-' ? strtoull(rest + 1, NULL, 10) : first;
            at++;
        } else if (strcmp(argv[at], "--trace") == 0 && *value != '\0') {
            return run(strtoull(value, NULL, 10), true, &hash) ? 0 : 1;
        } else {
            return usage();
        }
    }
    return run_all(first, last);
}
