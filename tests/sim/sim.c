/* sim.c - runs the engine in simulated worlds: one seed, one world, one verdict.
 *
 *     sim [--mutexes | --focused] [--seen] [--seeds A-B] [--trace SEED]
 *
 * Without a range: SNIB_SIM_SEEDS seeds, or 1000.  --mutexes: all locks of all worlds are mutexes.
 * --focused: each world is about a pair of faults.  --seen: say which pairs have met, and which
 * transitions the engines have made; tests/sim/seen.py judges that.
 *
 * A world has three phases: disturbed, with the faults that its seed enables; calm, in which
 * everything must recover; winding down, after which no key or subscription of a client may remain.
 * A failure is one line that says how to replay it.  Some seeds run twice and must leave the same
 * trace.
 */
#include "sim.h"
#include "engine_check.h"
#include "lives.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define EPOCH_NS 1700000000000000000ULL
#define RECOVERY (6000 * SNIB__MS) /* the longest back-off, a reply that times out, a lease */
#define EVENTS_MAX 1000000

struct sim sim;
struct sim_totals totals;
static jmp_buf failed;
static bool only_mutexes, focused, seen;

uint64_t sim_server_ns(snib__time at)
{
    return EPOCH_NS + sim_clock_at(at, sim.clock_ppm) + (uint64_t)sim.step_ns;
}

snib__time sim_true(const struct sim_process *process, snib__time at)
{
    if (at <= SIM_START || at >= SNIB__NEVER / 2 || process->clock_ppm == 0) {
        return at;
    }
    snib__time passed = (snib__time)((double)(at - SIM_START) / (1 + process->clock_ppm * 1e-6));
    snib__time time = SIM_START + passed - (passed > 2 ? 2 : passed);
    while (sim_clock_at(time, process->clock_ppm) < at) {
        time++;
    }
    return time;
}

void sim_mix(uint64_t value)
{
    sim.hash = (sim.hash ^ value) * 0x100000001b3ULL;
    sim.hash ^= sim.hash >> 29;
}

void sim_trace(const char *format, ...)
{
    va_list arguments;
    if (!sim.trace) {
        return;
    }
    printf("%12.6f  ", (double)(sim.now - SIM_START) / 1e9);
    va_start(arguments, format);
    vprintf(format, arguments);
    va_end(arguments);
    printf("\n");
}

void sim_fail(const char *format, ...)
{
    va_list arguments;
    fprintf(stderr, "sim: seed %llu at %.6f s: ", (unsigned long long)sim.seed,
            (double)(sim.now - SIM_START) / 1e9);
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fprintf(stderr, "; replay: sim %s--trace %llu\n",
            only_mutexes ? "--mutexes "
            : focused    ? "--focused "
                         : "",
            (unsigned long long)sim.seed);
    longjmp(failed, 1);
}

/* ---- One world ---------------------------------------------------------------------------------- */

/* A third of the worlds have only mutexes, whose hand-over within a process has the rarest races;
 * in a sixth all names can be members of one lock. */
static void plan_families(void)
{
    static const int all[] = {FAMILY_MUTEX, FAMILY_FENCED,    FAMILY_SPIN,    FAMILY_PLAIN,
                              FAMILY_FAIR,  FAMILY_FAIR,      FAMILY_FAIR,    FAMILY_RW,
                              FAMILY_RW,    FAMILY_SEMAPHORE, FAMILY_PERMITS, FAMILY_PERMITS,
                              FAMILY_LATCH};
    static const int members[] = {FAMILY_MUTEX, FAMILY_MUTEX, FAMILY_FENCED, FAMILY_SPIN,
                                  FAMILY_RW};
    static const bool known_to_redisson[FAMILY_COUNT] = {
        [FAMILY_MUTEX] = true, [FAMILY_FAIR] = true, [FAMILY_RW] = true, [FAMILY_PERMITS] = true};
    bool mutexes = only_mutexes || sim_chance(3) || fault_is_focus(FAULT_STALE);
    bool peers = !mutexes && sim_chance(2);
    sim.multi = !mutexes && sim.name_count > 1 && sim_chance(4);
    peers |= sim.crowded && sim_chance(2);
    for (int i = 0; i < sim.name_count; i++) {
        struct sim_name *name = &sim.names[i];
        name->family = mutexes     ? FAMILY_MUTEX
                       : sim.multi ? members[sim_draw(sizeof members / sizeof *members)]
                                   : all[sim_draw(sizeof all / sizeof *all)];
        name->family = sim.crowded                ? crowd_family()
                       : sim.pestered && !mutexes ? FAMILY_PERMITS
                                                  : name->family;
        name->alien = peers && known_to_redisson[name->family];
        bool may_count = name->family == FAMILY_FAIR || name->family == FAMILY_RW;
        name->tokens =
            name->family == FAMILY_FENCED || (may_count && !name->alien && sim_chance(2));
        sim.numbers |= name->family >= FAMILY_SEMAPHORE;
        sim.peer_count = name->alien ? SIM_PEERS : sim.peer_count;
        keys_plan(name);
    }
    if (!mutexes || sim.crowded || (sim_has(FAULT_STEP) && !sim.focused)) {
        sim.enabled &= ~(1ULL << FAULT_STALE); /* topo_single.c covers it for the other kinds */
        sim.next_fault = sim.enabled == 0 ? SNIB__NEVER : sim.next_fault;
    }
}

static void begin(uint64_t seed, bool trace)
{
    static const snib__time leases[] = {300 * SNIB__MS, 1000 * SNIB__MS, 3000 * SNIB__MS};
    static const char *const names[SIM_NAMES] = {"orders", "{tenant}stock", "a lock"};
    memset(&sim, 0, sizeof sim);
    sim.seed = seed;
    sim.flushes_before = totals.faults[FAULT_SCRIPT_FLUSH];
    sim.trace = trace;
    sim.random = (seed + 1) * 0x9e3779b97f4a7c15ULL;
    sim.now = SIM_START;
    sim.focused = focused;
    sim.long_leases = seed % 8 == 3 && !focused;
    sim.extends = seed % 4 == 1 || seed % 16 == 3;
    sim.known = seed % 4 == 2;
    sim.lease = leases[sim_draw(3)];
    sim.lease = sim.long_leases ? leases[2] : sim.lease;
    sim.lanes = sim_chance(3) ? 1 : (int32_t)sim_between(2, SNIB__LANES_MAX);
    sim.handover_max = sim_chance(3) ? 0 : (int32_t)sim_between(1, 16);
    sim.unequal = sim.lease > leases[0] && sim_chance(2);
    sim.delay = sim_between(SNIB__MS / 10, sim_chance(3) ? 20 * SNIB__MS : 4 * SNIB__MS);
    sim.name_count = (int)sim_between(1, SIM_NAMES);
    sim.slot_count = (int)sim_between(2, SIM_SLOTS);
    sim.task_count = (int)sim_between(1, SIM_TASKS);
    sim.think = 10 * SNIB__MS << sim_draw(8);
    sim.database = sim_chance(2) ? 0 : 3;
    sim.password = sim_chance(2) ? NULL : "secret";
    sim.crowded = seed % 8 == 5 && !focused;
    sim.pestered = seed % 16 == 11 && !focused && !only_mutexes;
    if (sim.pestered) {
        sim.task_count = SIM_TASKS;
        sim.name_count = 1;
    }
    sim.pipes_end = sim.pipes;
    sim.model = model_new();
    model_set_version(sim.model, (enum model_version)(seed / 3 % 3));
    model_require_password(sim.model, sim.password);
    model_watch(sim.model, check_executed, NULL);
    pairs_begin(sim.lease);
    pairs_choose(seed, FAULT_COUNT, &sim.focus[0], &sim.focus[1]);
    fault_plan();
    if (fault_is_focus(FAULT_MUTE)) { /* it takes effect only if somebody waits for a message */
        sim.name_count = 1;
        sim.task_count = SIM_TASKS;
        sim.think = 20 * SNIB__MS;
    }
    sim.pubsub_delay = sim_chance(3) ? 6 * sim.delay : sim.delay;
    snib__time shortest = sim.unequal ? sim.lease / SIM_UNEQUAL : sim.lease;
    if (sim.pubsub_delay > shortest / 12) {
        sim.pubsub_delay = shortest / 12; /* or the engine takes the link for dead */
    }
    if (sim.crowded) {
        crowd_plan();
    }
    /* Some round trips and a sleep: a brief one, or that of a waiter without a subscription. */
    sim.prompt = 8 * sim.delay + 4 * sim.pubsub_delay +
                 (sim_has(FAULT_NO_CHANNELS) || sim_has(FAULT_NO_COMMAND) ? 220 : 120) * SNIB__MS;
    for (int i = 0; i < sim.name_count; i++) {
        sim.names[i].text = names[i];
        sim.names[i].n = strlen(names[i]);
    }
    plan_families();
    for (int i = 0; i < sim.slot_count; i++) {
        process_new(i);
    }
    for (int i = 0; i < sim.peer_count; i++) {
        peer_new(i);
    }
    operator_tends();
    sim.calm_at =
        sim.now + (sim.crowded ? 50 * SNIB__MS : sim_between(1000 * SNIB__MS, 6000 * SNIB__MS));
    sim.stable_at = sim.enabled == 0 ? sim.now : SNIB__NEVER / 2; /* leaves room to add */
}

static void end(void)
{
    for (uint32_t i = 0; i < sim.process_count; i++) {
        process_free(sim.processes[i]);
    }
    for (int i = 0; i < sim.peer_count; i++) {
        peer_free(sim.peers[i]);
    }
    net_free();
    if (sim.replica != NULL) {
        model_data_free(sim.replica);
    }
    model_free(sim.model);
}

/* All memory that the engines have allocated must be back. */
static void check_memory(void)
{
    for (uint32_t i = 0; i < sim.process_count; i++) {
        struct sim_process *process = sim.processes[i];
        if (process->engine != NULL) {
            process_put_gates(process);
            const char *remains = engine_remains(process->engine);
            if (remains != NULL) {
                sim_fail("%u: at the end it is not true that %s", process->id, remains);
            }
        }
        process_end(process);
    }
    if (sim.objects != 0) {
        sim_fail("at the end %lld objects are left in memory", (long long)sim.objects);
    }
}

/* Advance to the next moment at which something happens, at most to `until`, and let one thing
 * happen. */
static void step(snib__time until)
{
    snib__time arrives = net_next(), next = arrives;
    snib__time fault = fault_next(), runs_at = SNIB__NEVER;
    struct sim_process *runs = NULL;
    struct sim_peer *peer = NULL;
    next = fault < next ? fault : next;
    for (int i = 0; i < sim.slot_count; i++) {
        snib__time at = process_next(sim.slots[i]);
        if (at <= sim.now || at < next) {
            runs = sim.slots[i];
            runs_at = at;
            next = at < next ? at : next;
        }
    }
    for (int i = 0; i < sim.peer_count; i++) {
        snib__time at = peer_next(sim.peers[i]);
        if (at < next) {
            peer = sim.peers[i];
            next = at;
        }
    }
    sim.now = next > until ? until : next > sim.now ? next : sim.now;
    model_time(sim.model, sim_server_ns(sim.now));
    fault_answered();
    check_truth(CAUSE_EXPIRED);
    if (++sim.events > EVENTS_MAX) {
        sim_fail("the events do not end");
    }
    sim_mix(sim.now);
    if (next <= until) {
        /* Bytes that have arrived may be read before the time is checked, or after. */
        if (arrives <= sim.now && sim_chance(2)) {
            net_run();
        } else if (runs_at <= sim.now) {
            process_run(runs);
        } else if (peer != NULL && peer_next(peer) <= sim.now) {
            peer_run(peer);
            net_collect();
        } else if (!net_run()) {
            fault_run();
        }
    }
    for (int i = 0; i < sim.peer_count; i++) {
        peer_listen(sim.peers[i]);
        peer_check(sim.peers[i]);
    }
    if (sim.calm && sim.numbers && sim.now > sim.disturbed_until + RECOVERY) {
        operator_tends();
    }
    check_step();
}

static void run_until(snib__time until)
{
    while (sim.now < until) {
        step(until);
    }
}

static bool all_idle(void)
{
    for (int i = 0; i < sim.slot_count; i++) {
        if (!process_is_idle(sim.slots[i])) {
            return false;
        }
    }
    for (int i = 0; i < sim.peer_count; i++) {
        if (!peer_is_idle(sim.peers[i])) {
            return false;
        }
    }
    return true;
}

/* Half a queue lives as long as its last place and a private key; places behind a Redisson's form a
 * chain, 4 s each. */
static void outlive_queue(const struct sim_name *name)
{
    model_key key;
    for (int i = 0; i < (name->alien ? SIM_CHAIN : name->queue_torn); i++) {
        if (model_key_find(sim.model, sim.database, name->places, strlen(name->places), &key) ||
            name->queue_torn) {
            run_until(sim.now + SIM_PRIVATE);
        }
    }
}

static void live(void)
{
    run_until(sim.calm_at);
    sim_trace("calm");
    sim.calm = true;
    fault_end_all();
    check_truth(CAUSE_MEMORY);
    if (sim.enabled != 0) {
        sim.stable_at = sim.now + RECOVERY + sim.lease;
    }
    run_until(sim.crowded        ? crowd_end()
              : sim.enabled == 0 ? sim.now + 1000 * SNIB__MS
                                 : sim.stable_at + 2000 * SNIB__MS);
    if (sim.crowded) {
        crowd_check();
    }
    sim_trace("winding down");
    sim.winding_down = true;
    snib__time at_last = sim.now + 20 * sim.lease + RECOVERY;
    while (!all_idle()) {
        step(at_last);
        operator_opens_latches();
        if (sim.now >= at_last) {
            sim_fail("not all tasks have ended");
        }
    }
    operator_opens_latches();
    for (int i = 0; i < sim.peer_count; i++) {
        peer_leave(sim.peers[i]);
    }
    run_until(sim.now + sim.lease + 1000 * SNIB__MS + SIM_PRIVATE);
    for (int i = 0; i < sim.name_count; i++) {
        outlive_queue(&sim.names[i]);
    }
    check_end();
    check_memory();
}

/* Returns whether the world passed all checks. */
static bool run(uint64_t seed, bool trace, uint64_t *out_hash)
{
    volatile bool good = false;
    begin(seed, trace);
    if (setjmp(failed) == 0) {
        live();
        good = true;
        sim_mix(model_digest(sim.model));
        totals.events += sim.events;
        totals.requests += model_requests(sim.model);
        *out_hash = sim.hash;
    }
    if (good) {
        end();
    }
    return good;
}

/* ---- All worlds --------------------------------------------------------------------------------- */

static const char *const fault_names[FAULT_COUNT] = {
    [FAULT_DELAY] = "delay",
    [FAULT_SLICE] = "slice",
    [FAULT_CUT] = "cut",
    [FAULT_LATE] = "late",
    [FAULT_STALL] = "stall",
    [FAULT_REFUSE] = "refuse",
    [FAULT_SERVER_PAUSE] = "server-pause",
    [FAULT_CLIENT_PAUSE] = "client-pause",
    [FAULT_SCRIPT_FLUSH] = "script-flush",
    [FAULT_RESTART] = "restart",
    [FAULT_EVICT] = "evict",
    [FAULT_OVERWRITE] = "overwrite",
    [FAULT_MUTE] = "mute",
    [FAULT_NO_CHANNELS] = "no-channels",
    [FAULT_OOM] = "oom",
    [FAULT_READONLY] = "readonly",
    [FAULT_LOADING] = "loading",
    [FAULT_MISCONF] = "misconf",
    [FAULT_CLOCK] = "clock",
    [FAULT_FORCE] = "force",
    [FAULT_CLOSE] = "close",
    [FAULT_CRASH] = "crash",
    [FAULT_STOP] = "stop",
    [FAULT_LATE_TICK] = "late-tick",
    [FAULT_STEP] = "step",
    [FAULT_ERROR_AFTER] = "error-after",
    [FAULT_BUSY] = "busy",
    [FAULT_NOREPLICAS] = "no-replicas",
    [FAULT_MASTERDOWN] = "master-down",
    [FAULT_NO_COMMAND] = "no-command",
    [FAULT_PASSWORD] = "password",
    [FAULT_RESTART_AOF] = "restart-aof",
    [FAULT_STALE] = "stale",
    [FAULT_MEMORY] = "memory",
};

static void print_totals(uint64_t seeds, double seconds)
{
    static const char *const families[FAMILY_COUNT] = {
        "mutex", "fenced", "spin", "plain", "fair", "read-write", "semaphore", "permits", "latch"};
    printf("sim: %llu seeds good, %llu events, %llu requests, %.1f s; granted %llu, re-entered "
           "%llu, extended %llu, identified %llu, "
           "handed over %llu, passed on %llu, by lanes %llu (lost %llu), released %llu, busy %llu, "
           "timed out %llu, "
           "cancelled %llu, lost %llu, "
           "failed %llu; holds:",
           (unsigned long long)seeds, (unsigned long long)totals.events,
           (unsigned long long)totals.requests, seconds, (unsigned long long)totals.granted,
           (unsigned long long)totals.reentered, (unsigned long long)totals.extended,
           (unsigned long long)totals.identified, (unsigned long long)totals.handed_over,
           (unsigned long long)totals.passed_on, (unsigned long long)totals.lanes,
           (unsigned long long)totals.lanes_lost, (unsigned long long)totals.released,
           (unsigned long long)totals.refused, (unsigned long long)totals.timed_out,
           (unsigned long long)totals.cancelled, (unsigned long long)totals.lost,
           (unsigned long long)totals.failed);
    for (int i = 0; i < FAMILY_COUNT; i++) {
        printf(" %s %llu", families[i], (unsigned long long)totals.by_family[i]);
    }
    printf(" multi %llu; Redisson %llu; faults:", (unsigned long long)totals.by_multi,
           (unsigned long long)totals.by_redisson);
    for (int i = 0; i < FAULT_COUNT; i++) {
        printf(" %s %llu", fault_names[i], (unsigned long long)totals.faults[i]);
    }
    printf("\n");
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
            fprintf(stderr, "sim: seed %llu does not leave the same trace twice\n",
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
        pairs_print(fault_names, FAULT_COUNT);
        lives_print();
    }
    return 0;
}

int main(int argc, char **argv)
{
    const char *count = getenv("SNIB_SIM_SEEDS");
    uint64_t first = 1, last = count == NULL ? 1000 : strtoull(count, NULL, 10), hash;
    for (int at = 1; at < argc; at++) {
        const char *value = at + 1 < argc ? argv[at + 1] : "";
        if (strcmp(argv[at], "--mutexes") == 0) {
            only_mutexes = true;
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
            fprintf(stderr,
                    "usage: sim [--mutexes] [--focused] [--seen] [--seeds A-B] [--trace SEED]\n");
            return 2;
        }
    }
    return run_all(first, last);
}
