/* topo_sim.c - runs engines whose servers change in simulated worlds: one seed, one world, one
 * verdict.
 *
 *     sim_topo [--topology NAME] [--focused] [--seen] [--seeds A-B] [--trace SEED]
 *
 * Without a range: a fifth of SNIB_SIM_SEEDS seeds, because these worlds are larger, or 400.
 * --focused, --seen: see sim.c.
 *
 * A world is first disturbed, then calm, when every waiter must be served, and then winds down
 * until nothing may be left.  Every 64th seed runs twice and must leave the same trace.
 */
#include "seed.h"
#include "topo.h"

#include "snib.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define EVENTS_MAX 2000000
#define ENOUGH 1000                /* worlds, for everything to happen */
#define SETTLED (9000 * SNIB__MS)  /* all servers know the master again */
#define RECOVERY (5000 * SNIB__MS) /* reconnect, with back-off, and ask again */

struct topo topo;
const int topo_kinds[TOPO_FAMILIES] = {SNIB_MUTEX, SNIB_FENCED, SNIB_FAIR,
                                       SNIB_READ,  SNIB_PLAIN,  SNIB_PERMITS};
struct topo_totals topo_totals;
static jmp_buf failed;
static bool focused, seen;
static int only = -1; /* enum snib__topology */
static const char *const topologies[] = {"single", "sentinel", "cluster"};

/* ---- Chance ------------------------------------------------------------------------------------- */

uint64_t topo_draw(uint64_t below)
{
    uint64_t next = seed_next(&topo.random);
    return below == 0 ? 0 : next % below;
}

bool topo_chance(unsigned one_in)
{
    return topo_draw(one_in) == 0;
}

snib__time topo_between(snib__time least, snib__time most)
{
    return least + topo_draw(most - least + 1);
}

bool topo_has(int fault)
{
    return !topo.calm && (topo.enabled >> fault & 1) != 0;
}

/* ---- Words -------------------------------------------------------------------------------------- */

void topo_trace(const char *format, ...)
{
    va_list arguments;
    if (!topo.trace) {
        return;
    }
    printf("%12.6f  ", (double)(topo.now - TOPO_START) / 1e9);
    va_start(arguments, format);
    vprintf(format, arguments);
    va_end(arguments);
    printf("\n");
}

void topo_fail(const char *format, ...)
{
    va_list arguments;
    fprintf(stderr, "sim_topo: %s, seed %llu at %.6f s: ", topologies[topo.topology],
            (unsigned long long)topo.seed, (double)(topo.now - TOPO_START) / 1e9);
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fprintf(stderr, "; replay: sim_topo %s%s%s --trace %llu\n", only < 0 ? "" : "--topology ",
            only < 0 ? "" : topologies[only], focused ? " --focused" : "",
            (unsigned long long)topo.seed);
    longjmp(failed, 1);
}

void topo_later(snib__time at, int kind, int a, int b, uint64_t c)
{
    if (topo.pending_count == TOPO_EVENTS) {
        topo_fail("too many pending actions");
    }
    topo.pending[topo.pending_count++] = (struct topo_event){at, kind, a, b, c};
}

/* ---- One world ---------------------------------------------------------------------------------- */

/* Of the seed, and no draw, so that worlds without it stay as they are; nor a residue, by which something else may be chosen,
 * too. */
static uint64_t topo_trait(uint64_t seed, uint64_t which)
{
    return seed_state(seed * 16 + which) >> 33;
}

enum { TRAIT_KNOWN = TOPO_NAMES, TRAIT_OWNED };

/* Two in three mutexes are plain locks or permits. */
static int family_of(uint64_t seed, int name)
{
    static const int families[] = {TOPO_MUTEX, TOPO_PLAIN, TOPO_PERMITS};
    return families[topo_trait(seed, (uint64_t)name) % 3];
}

static void plan_names(void)
{
    static const char *const names[TOPO_NAMES] = {"orders", "{tenant}a", "{tenant}b", "a lock"};
    static const int members[] = {TOPO_MUTEX, TOPO_MUTEX, TOPO_FENCED, TOPO_RW};
    bool fair = topo.focus == TOPO_FORMER && topo.seed % 8 == 2;
    topo.name_count = fair ? 3 : (int)topo_between(topo.focus == TOPO_FORMER ? 2 : 1, TOPO_NAMES);
    topo.multi = topo.focus == TOPO_ALL && topo.name_count > 2 && topo_chance(2);
    topo.multi_names = 2 | 4;
    for (int i = 0; i < topo.name_count; i++) {
        struct topo_name *name = &topo.names[i];
        name->text = names[i];
        name->n = strlen(names[i]);
        name->free_since = topo.now;
        bool member = topo.multi && (topo.multi_names >> i & 1) != 0;
        name->family = member ? members[topo_draw(4)] : (int)topo_draw(TOPO_DRAWN);
        if ((topo.focus == TOPO_QUEUES || topo.focus == TOPO_READERS) && !member) {
            name->family = topo.focus == TOPO_QUEUES ? TOPO_FAIR : TOPO_RW;
        } else if (fair) {
            name->family = TOPO_FAIR;
        }
        if (name->family == TOPO_MUTEX && !member) {
            name->family = family_of(topo.seed, i);
        }
        snprintf(name->tag, sizeof name->tag, strchr(names[i], '{') ? "%s" : "{%s}", names[i]);
        name->taken_n = (size_t)snprintf(name->taken, sizeof name->taken, "%s:timeout", name->tag);
    }
}

/* Some worlds with plain locks or permits are about hand-overs and repeated requests in a slot that begins to move: there
 * are waiters to hand over to, as long as there are few processes. */
static void plan_again(void)
{
    snib__time short_think = 40 * SNIB__MS;
    for (int i = 0; i < topo.name_count; i++) {
        topo.again |= topo.names[i].family >= TOPO_DRAWN;
    }
    topo.again = topo.again && topo.seed % 3 != 1 && topo.focus == TOPO_ALL &&
                 topo.topology == SNIB__CLUSTER;
    if (topo.again) {
        topo.slot_count = topo.slot_count < 2 ? topo.slot_count : 2;
        topo.task_count = TOPO_TASKS;
        topo.think = topo.think < short_think ? topo.think : short_think;
    }
}

/* One that has both faults of the world's pair, if there is one. */
static void plan_topology(void)
{
    bool moves = fault_is_focus(TOPO_SLOT) || fault_is_focus(TOPO_HALF_SLOT);
    if (only < 0 && (moves || fault_is_focus(TOPO_GROW))) {
        topo.topology = SNIB__CLUSTER;
    } else if (only < 0 && fault_is_focus(TOPO_WATCH)) {
        topo.topology = SNIB__SENTINEL;
    }
}

static void begin(uint64_t seed, bool trace)
{
    static const snib__time leases[] = {300 * SNIB__MS, 1000 * SNIB__MS, 3000 * SNIB__MS};
    memset(&topo, 0, sizeof topo);
    topo.seed = seed;
    topo.random = seed_state(seed);
    topo.trace = trace;
    topo.now = TOPO_START;
    topo.pipes_end = topo.pipes;
    topo.topology = only >= 0 ? only : (int)topo_draw(3);
    topo.focused = focused;
    pairs_choose(seed, TOPO_FAULTS, &topo.pair[0], &topo.pair[1]);
    if (focused) {
        plan_topology();
    } else if (seed % 8 == 3 && only != SNIB__CLUSTER) {
        topo.focus = TOPO_QUEUES;
        topo.topology = only >= 0 ? only : SNIB__SINGLE;
    } else if (seed % 8 == 7 && (only < 0 || only == SNIB__CLUSTER)) {
        topo.focus = TOPO_READERS;
        topo.topology = SNIB__CLUSTER;
    } else if (seed % 8 == 5) {
        topo.focus = TOPO_FIXED;
    } else if (seed % 16 == 9) {
        topo.focus = TOPO_LEFT;
    } else if (seed % 4 == 2 && (only < 0 || only == SNIB__CLUSTER)) {
        topo.focus = TOPO_FORMER;
        topo.topology = SNIB__CLUSTER;
    }
    topo.owned = topo.focus == TOPO_READERS && topo_trait(seed, TRAIT_OWNED) % 2 == 0;
    topo.extends = !topo.owned && (seed % 4 == 1 || seed % 16 == 7 || topo.focus == TOPO_FORMER);
    topo.known = topo_trait(seed, TRAIT_KNOWN) % 4 == 0;
    topo.lease = leases[topo.focus == TOPO_FORMER ? 2 : topo_draw(3)];
    topo.longest = topo.focus == TOPO_LEFT                      ? TOPO_LEFT_LEASE
                   : topo.focus == TOPO_FORMER && seed % 8 == 6 ? 10 * topo.lease
                                                                : 0;
    static const int32_t durabilities[] = {
        0, 0, 1, SNIB_DURABILITY_MAJORITY, SNIB_DURABILITY_ALL, SNIB_DURABILITY_ALL};
    topo.durability = durabilities[topo_draw(topo.focus == TOPO_FIXED    ? 2
                                             : topo.focus == TOPO_FORMER ? 3
                                                                         : 6)];
    topo.durability_policy = topo_chance(3) ? SNIB_DURABILITY_REPORT : SNIB_DURABILITY_REFUSE;
    topo.recheck = topo_between(500 * SNIB__MS, 3000 * SNIB__MS);
    topo.delay = topo_between(SNIB__MS / 10, topo_chance(3) ? 10 * SNIB__MS : 2 * SNIB__MS);
    topo.prompt = 12 * topo.delay + 150 * SNIB__MS;
    topo.slot_count = (int)topo_between(topo.focus == TOPO_FORMER ? 2 : 1, TOPO_SLOTS);
    topo.task_count = topo.focus == TOPO_FORMER ? TOPO_TASKS : (int)topo_between(1, TOPO_TASKS);
    topo.think = 10 * SNIB__MS << topo_draw(topo.focus == TOPO_FORMER ? 3 : 8);
    topo.stale_reads = !topo_chance(3);
    plan_names();
    plan_again();
    pairs_begin(topo.lease);
    fault_plan();
    if (topo.topology == SNIB__SENTINEL) {
        sentinel_plan();
    } else if (topo.topology == SNIB__CLUSTER) {
        cluster_plan();
    } else {
        single_plan();
    }
    permits_begin();
    for (int i = 0; i < topo.slot_count; i++) {
        process_new(i);
    }
    topo.calm_at = topo.now + topo_between(2000 * SNIB__MS, 8000 * SNIB__MS);
    topo.calm_at += topo.focus == TOPO_FORMER ? 10000 * SNIB__MS : 0;
    topo.stable_at = topo.enabled == 0 ? topo.now : SNIB__NEVER / 2; /* leaves room to add */
}

static void end(void)
{
    for (uint32_t i = 0; i < topo.process_count; i++) {
        process_free(topo.processes[i]);
    }
    net_free();
    server_free_all();
}

static int first_event(void)
{
    int first = -1;
    for (int i = 0; i < topo.pending_count; i++) {
        if (first < 0 || topo.pending[i].at < topo.pending[first].at) {
            first = i;
        }
    }
    return first;
}

static bool run_event(void)
{
    int first = first_event();
    if (first < 0 || topo.pending[first].at > topo.now) {
        return false;
    }
    struct topo_event event = topo.pending[first];
    topo.pending[first] = topo.pending[--topo.pending_count];
    server_event(&event);
    return true;
}

static snib__time next_of_all(struct topo_process **out_runs, snib__time *out_runs_at)
{
    int first = first_event();
    snib__time next = first >= 0 ? topo.pending[first].at : SNIB__NEVER;
    snib__time others[] = {net_next(), server_next(), topo.next_fault};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        next = others[i] < next ? others[i] : next;
    }
    for (int i = 0; i < topo.slot_count; i++) {
        snib__time at = process_next(topo.slots[i]);
        if (at <= topo.now || at < next) {
            *out_runs = topo.slots[i];
            *out_runs_at = at;
            next = at < next ? at : next;
        }
    }
    return next;
}

/* Where a client was closed, the next program begins. */
static void replace_closed(void)
{
    for (int i = 0; i < topo.slot_count; i++) {
        if (process_is_over(topo.slots[i])) {
            check_closed(topo.slots[i]);
            topo.closing--;
            process_crash(topo.slots[i]);
            process_new(i);
        }
    }
}

/* Advance to the next moment at which something happens, at most to `until`, and let one thing
 * happen. */
static void step(snib__time until)
{
    struct topo_process *runs = NULL;
    snib__time runs_at = SNIB__NEVER, next = next_of_all(&runs, &runs_at);
    topo.now = next > until ? until : next > topo.now ? next : topo.now;
    server_time();
    topo.hash = (topo.hash ^ topo.now) * 0x100000001b3ULL;
    if (++topo.events > EVENTS_MAX) {
        topo_fail("the events do not end");
    }
    if (next <= until) {
        /* Bytes that have arrived may be read before the time is checked, or after. */
        if (topo_chance(2) && net_run()) {
            ;
        } else if (runs_at <= topo.now) {
            process_run(runs);
        } else if (!run_event() && !server_run() && !net_run() && topo.next_fault <= topo.now) {
            fault_run();
        }
    }
    check_step();
    replace_closed();
}

static void run_until(snib__time until)
{
    while (topo.now < until) {
        step(until);
    }
}

static bool all_idle(void)
{
    for (int i = 0; i < topo.slot_count; i++) {
        if (!process_is_idle(topo.slots[i])) {
            return false;
        }
    }
    return true;
}

static void live(void)
{
    run_until(topo.calm_at);
    topo_trace("calm");
    topo.calm = true;
    fault_end_all();
    if (topo.enabled != 0) {
        topo.stable_at = topo.now + SETTLED + RECOVERY + 2 * topo.lease;
    }
    run_until((topo.enabled == 0 ? topo.now : topo.stable_at) + 2000 * SNIB__MS);
    topo_trace("winding down");
    topo.winding_down = true;
    snib__time at_last = topo.now + 20 * topo.lease + RECOVERY;
    while (!all_idle()) {
        step(at_last);
        if (topo.now >= at_last) {
            topo_fail("not all tasks have ended");
        }
    }
    snib__time longest = topo.longest > 0 ? topo.longest : 2 * topo.lease;
    run_until(topo.now + longest + 12000 * SNIB__MS);
    check_end();
}

/* Returns whether the world passed all checks. */
static bool run(uint64_t seed, bool trace, uint64_t *out_hash)
{
    volatile bool good = false;
    begin(seed, trace);
    if (setjmp(failed) == 0) {
        live();
        *out_hash = topo.hash;
        topo_totals.events += topo.events;
        for (int i = 0; i < topo.server_count; i++) {
            *out_hash ^= model_digest(topo.servers[i].model);
            topo_totals.requests += model_requests(topo.servers[i].model);
        }
        end();
        good = true;
    }
    return good;
}

/* ---- All worlds --------------------------------------------------------------------------------- */

static const char *const fault_names[TOPO_FAULTS] = {
    [TOPO_DELAY] = "delay",         [TOPO_CUT] = "cut",         [TOPO_HOLE] = "hole",
    [TOPO_ISOLATE] = "isolate",     [TOPO_PAUSE] = "pause",     [TOPO_LATE_TICK] = "late-tick",
    [TOPO_CRASH] = "crash",         [TOPO_STOP] = "stop",       [TOPO_KILL] = "kill",
    [TOPO_MANUAL] = "manual",       [TOPO_RESTART] = "restart", [TOPO_LAG] = "lag",
    [TOPO_SCRIPTS] = "scripts",     [TOPO_WATCH] = "watch",     [TOPO_SLOT] = "slot",
    [TOPO_HALF_SLOT] = "half-slot", [TOPO_GROW] = "grow",
};

static void print_totals(uint64_t seeds, double seconds)
{
    static const char *const families[TOPO_FAMILIES] = {"mutex",      "fenced", "fair",
                                                        "read-write", "plain",  "permits"};
    const struct topo_totals *t = &topo_totals;
    printf(
        "sim_topo: %llu seeds good, %llu events, %llu requests, %.1f s; granted %llu, extended "
        "%llu, identified %llu, released "
        "%llu, busy %llu, timed out %llu, cancelled %llu, lost %llu, failed %llu, closed %llu, "
        "unblocked %llu; waits %llu, "
        "answered by "
        "too few %llu, holds kept over failovers %llu; failovers "
        "%llu, holds that they lost %llu, overlaps %llu, the longest %.0f ms; reads within writes "
        "%llu; holds:",
        (unsigned long long)seeds, (unsigned long long)t->events, (unsigned long long)t->requests,
        seconds, (unsigned long long)t->granted, (unsigned long long)t->extended,
        (unsigned long long)t->identified, (unsigned long long)t->released,
        (unsigned long long)t->busy, (unsigned long long)t->timed_out,
        (unsigned long long)t->cancelled, (unsigned long long)t->lost,
        (unsigned long long)t->failed, (unsigned long long)t->closed,
        (unsigned long long)t->unblocked, (unsigned long long)t->waits,
        (unsigned long long)t->too_few, (unsigned long long)t->durable,
        (unsigned long long)t->promotions, (unsigned long long)t->excused,
        (unsigned long long)t->overlaps, (double)t->longest_overlap / 1e6,
        (unsigned long long)t->within);
    for (int i = 0; i < TOPO_FAMILIES; i++) {
        printf(" %s %llu", families[i], (unsigned long long)t->by_family[i]);
    }
    printf(" multi %llu; faults:", (unsigned long long)t->multis);
    for (int i = 0; i < TOPO_FAULTS; i++) {
        printf(" %s %llu", fault_names[i], (unsigned long long)t->faults[i]);
    }
    printf("\n");
}

static int usage(void)
{
    fprintf(stderr, "usage: sim_topo [--topology single|sentinel|cluster] [--focused] [--seen] "
                    "[--seeds A-B] [--trace SEED]\n");
    return 2;
}

static int topology_of(const char *name)
{
    int topology = 2;
    while (topology >= 0 && strcmp(topologies[topology], name) != 0) {
        topology--;
    }
    return topology;
}

/* What did not happen is not tested. */
static bool all_happened(void)
{
    const struct topo_totals *t = &topo_totals;
    const struct {
        const char *what;
        uint64_t times;
    } events[] = {{"extensions", t->extended},
                  {"identities", t->identified},
                  {"reads within writes", t->within},
                  {"WAITs with too few replicas", t->too_few},
                  {"holds that replicas had", t->durable},
                  {"promotions", t->promotions},
                  {"multi locks", t->multis},
                  {"losses", t->lost}};
    bool all = true;
    for (size_t i = 0; i < sizeof events / sizeof *events; i++) {
        if (events[i].times == 0) {
            fprintf(stderr, "sim_topo: in no world: %s\n", events[i].what);
            all = false;
        }
    }
    return all;
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
            fprintf(stderr, "sim_topo: seed %llu does not leave the same trace twice\n",
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
        pairs_print(fault_names, TOPO_FAULTS);
        lives_print();
    }
    return last - first + 1 < ENOUGH || focused || only >= 0 || all_happened() ? 0 : 1;
}

int main(int argc, char **argv)
{
    const char *count = getenv("SNIB_SIM_SEEDS");
    uint64_t first = 1, last = count == NULL ? 400 : 1 + strtoull(count, NULL, 10) / 5, hash;
    for (int at = 1; at < argc; at++) {
        const char *value = at + 1 < argc ? argv[at + 1] : "";
        if (strcmp(argv[at], "--topology") == 0) {
            if ((only = topology_of(value)) < 0) {
                return usage();
            }
            at++;
        } else if (strcmp(argv[at], "--focused") == 0) {
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
