/* walk.c - walks of the engine alone, from one state to the next by calls, replies, cuts and time: one seed, one walk,
 * one verdict.
 *
 *     sim_walk [--seeds A-B] [--trace SEED]
 *
 * Without a range: SNIB_SIM_SEEDS seeds, or 1000.  After every step the engine's structures must be sound, and whatever
 * has happened, at the end what waits is served, the engine closes, and nothing is left in memory.  In a thousand walks
 * everything must have happened that is counted.  Every 64th seed runs twice and must leave the same trace.
 */
#include "walk.h"
#include "seed.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define STEPS 2000
#define ENOUGH 1000 /* walks, for everything to happen */

struct walk walk;
uint64_t walk_totals[WALK_EVENTS];
static uint64_t steps;
static jmp_buf failed;

static const char *const event_names[WALK_EVENTS] = {
    [WALK_GRANT] = "granted",
    [WALK_REENTRY] = "entered again",
    [WALK_BUSY] = "busy",
    [WALK_TIMEOUT] = "timed out",
    [WALK_FAILURE] = "failed",
    [WALK_CANCEL] = "cancelled",
    [WALK_RELEASE] = "released",
    [WALK_ABANDON] = "abandoned",
    [WALK_EXTENSION] = "extended",
    [WALK_LOSS] = "lost",
    [WALK_HANDOVER] = "handed over",
    [WALK_RECHECK] = "rechecks",
    [WALK_UNDO] = "durable undos",
    [WALK_TOLD] = "durable reports",
    [WALK_LIMIT] = "limits",
    [WALK_REFUSAL] = "refusals",
    [WALK_DOUBT] = "doubtful replies",
    [WALK_GIVEN_UP] = "links given up",
    [WALK_MESSAGE] = "messages",
    [WALK_DEAF] = "refused subscriptions",
    [WALK_CUT] = "cut links",
    [WALK_CUT_LANE] = "cut lanes",
    [WALK_CUT_FAIR] = "with fair waiters",
    [WALK_CUT_WAITED] = "with shared waiters",
    [WALK_CUT_DURABLE] = "cut durable links",
    [WALK_CUT_PUBSUB] = "cut subscriptions",
    [WALK_SERVER] = "other servers",
    [WALK_CLOCK] = "set clocks",
    [WALK_SHORT] = "without memory",
    [WALK_HASTY] = "hasty ends",
    [WALK_CARRIED] = "carried",
    [WALK_REDIRECT] = "redirects",
    [WALK_NOWHERE] = "served nowhere",
    [WALK_KNOWN] = "known at a step",
    [WALK_FORGOT] = "forgotten",
    [WALK_UNSEEN] = "carried out unseen",
    [WALK_LEFT] = "foreign ends",
    [WALK_SERVED] = "served at last",
    [WALK_RELOGIN] = "logins renewed",
};

/* ---- Chance ------------------------------------------------------------------------------------- */

uint64_t walk_draw(uint64_t below)
{
    uint64_t next = seed_next(&walk.random);
    return below == 0 ? 0 : next % below;
}

bool walk_chance(unsigned one_in)
{
    return walk_draw(one_in) == 0;
}

snib__time walk_between(snib__time least, snib__time most)
{
    return least + walk_draw(most - least + 1);
}

/* ---- Words -------------------------------------------------------------------------------------- */

void walk_trace(const char *format, ...)
{
    va_list arguments;
    if (!walk.trace) {
        return;
    }
    printf("%12.6f  ", (double)(walk.now - WALK_START) / 1e9);
    va_start(arguments, format);
    vprintf(format, arguments);
    va_end(arguments);
    printf("\n");
    fflush(stdout);
}

void walk_fail(const char *format, ...)
{
    va_list arguments;
    fprintf(stderr, "sim_walk: seed %llu at %.6f s: ", (unsigned long long)walk.seed,
            (double)(walk.now - WALK_START) / 1e9);
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fprintf(stderr, "; replay: sim_walk --trace %llu\n", (unsigned long long)walk.seed);
    longjmp(failed, 1);
}

void walk_happens(int event)
{
    walk_totals[event]++;
    walk.hash = (walk.hash ^ (unsigned)event) * 0x100000001b3ULL;
}

/* ---- Memory ------------------------------------------------------------------------------------- */

void *sim_malloc(size_t n);
void *sim_calloc(size_t count, size_t size);
void *sim_realloc(void *old, size_t n);
void sim_free(void *object);

static bool memory_lacks(void)
{
    if (walk.lacks == 0 || !walk_chance(walk.lacks)) {
        return false;
    }
    walk_happens(WALK_SHORT);
    walk_trace("no memory");
    return true;
}

void *sim_malloc(size_t n)
{
    void *object = memory_lacks() ? NULL : malloc(n);
    walk.objects += object != NULL;
    return object;
}

void *sim_calloc(size_t count, size_t size)
{
    void *object = memory_lacks() ? NULL : calloc(count, size);
    walk.objects += object != NULL;
    return object;
}

void *sim_realloc(void *old, size_t n)
{
    void *object = memory_lacks() ? NULL : realloc(old, n);
    walk.objects += old == NULL && object != NULL;
    return object;
}

void sim_free(void *object)
{
    walk.objects -= object != NULL;
    free(object);
}

/* ---- One walk ----------------------------------------------------------------------------------- */

static void plan_name(struct walk_gate *gate)
{
    static const char members[] = "m{a}\0w{a}b"; /* of one slot */
    bool many = gate->kind == SNIB__MULTI || gate->kind == SNIB__OUTER;
    gate->name = many ? members : walk_one("a", "a", "b");
    gate->length = many ? sizeof members : 1;
}

/* Few locks, so that operations meet; the first often of a kind with waiters of its own. */
static void plan_gates(void)
{
    static const int kinds[] = {SNIB_MUTEX,   SNIB_FAIR,  SNIB_READ,   SNIB_WRITE,
                                SNIB_FENCED,  SNIB_SPIN,  SNIB_PLAIN,  SNIB_SEMAPHORE,
                                SNIB_PERMITS, SNIB_LATCH, SNIB__MULTI, SNIB__OUTER};
    static const int waiting[] = {SNIB_MUTEX, SNIB_FAIR, SNIB_SEMAPHORE};
    walk.gate_count = 1 + (uint32_t)walk_draw(WALK_GATES);
    for (uint32_t i = 0; i < walk.gate_count; i++) {
        int any = kinds[walk_draw(sizeof kinds / sizeof *kinds)];
        walk.gates[i].kind = i == 0 && walk_chance(2) ? waiting[walk_draw(3)] : any;
        plan_name(&walk.gates[i]);
    }
}

static void plan_durability(struct snib__config *config)
{
    static const int32_t replicas[] = {1, 1, 2, SNIB_DURABILITY_MAJORITY, SNIB_DURABILITY_ALL};
    config->durability = replicas[walk_draw(5)];
    config->durability_policy = walk_chance(3) ? SNIB_DURABILITY_REPORT : SNIB_DURABILITY_REFUSE;
    config->durability_timeout = walk_between(100 * SNIB__MS, config->lease / 3);
}

static void plan_engine(void)
{
    struct snib__config config = {.uuid = "00000000-0000-8000-8000-000000000001",
                                  .seed = walk.seed,
                                  .first_number = 1,
                                  .wall_offset = (int64_t)WALK_EPOCH * 1000000000,
                                  .tenure = walk_chance(2)};
    config.lease = walk_chance(2) ? 30 * WALK_SECOND : walk_between(WALK_SECOND, 5 * WALK_SECOND);
    config.reply_timeout = walk_between(300 * SNIB__MS, 3 * WALK_SECOND);
    config.patience = walk_between(500 * SNIB__MS, 5 * WALK_SECOND);
    config.try_timeout = walk_between(100 * SNIB__MS, WALK_SECOND);
    config.recheck = walk_between(500 * SNIB__MS, 3 * WALK_SECOND);
    config.handover_max = (int32_t)walk_draw(3) * 8;
    config.ops_max = walk_chance(8) ? 4 : 10000;
    config.lanes = walk_chance(4) ? 0 : 2 + (int32_t)walk_draw(SNIB__LANES_MAX - 1);
    config.scatter = !walk_chance(4);
    config.identity = walk_chance(4) ? "host h\n" : NULL;
    config.asks = walk_chance(4);
    if (walk_chance(4)) {
        plan_durability(&config);
    }
    if (walk_chance(3)) {
        cluster_plan(&config);
    }
    walk.engine = snib__engine_new(&config);
    snib__engine_log_level(walk.engine, walk.trace ? SNIB_LOG_INFO : SNIB_LOG_WARNING);
}

static void begin(uint64_t seed, bool trace)
{
    memset(&walk, 0, sizeof walk);
    walk.seed = seed;
    walk.random = seed_state(seed);
    walk.trace = trace;
    walk.now = WALK_START;
    plan_gates();
    plan_engine();
    walk.honest = walk_chance(2);
    walk.replicas = !walk_chance(4);
    walk.commands = walk_chance(3);
    walk.refuses = 1U << (3 + walk_draw(6));
    walk.strays = 2U << walk_draw(6);
    walk.yields = 2 + (unsigned)walk_draw(3);
    walk.cuts = 16U << walk_draw(5);
    walk.leaps = 2U << walk_draw(4);
    walk.sets = walk_chance(8) ? 50 : 0;
    walk.shorts = walk_chance(4) ? 8U << walk_draw(4) : 0;
}

/* Waits that are over have ended, whatever the servers do.  A short one lasts as long as a try does. */
static void check_waits(void)
{
    for (uint32_t i = 0; i < walk.op_count; i++) {
        const struct snib__op *op = walk.ops[i];
        snib__time least = op->started + walk.engine->config.try_timeout;
        if (op->kind == SNIB__OP_ACQUIRE && !op->done && op->deadline <= walk.now &&
            least <= walk.now) {
            walk_fail("a wait has not ended in time");
        }
    }
}

static void pass_time(void)
{
    snib__time next = snib__engine_deadline(walk.engine), most = walk.now + 3 * WALK_SECOND;
    if (!walk_chance(4)) { /* a server is fast */
        reply_all();
        next = snib__engine_deadline(walk.engine);
    }
    if (walk_chance(walk.leaps)) {
        walk.now = next < most ? (next > walk.now ? next : walk.now) : most;
    } else {
        walk.now += walk_draw(walk_chance(4 * walk.leaps) ? 3 * WALK_SECOND : 20 * SNIB__MS);
    }
    if (walk.sets > 0 && walk_chance(walk.sets)) {
        walk_happens(WALK_CLOCK);
        walk.clock += (int64_t)walk_draw(20) - 10;
    }
    snib__engine_tick(walk.engine, walk.now);
    check_waits();
}

static void step(void)
{
    walk.lacks = walk.shorts > 0 && walk_chance(walk.shorts) ? 1U << walk_draw(5) : 0;
    reply_links();
    switch (walk_draw(8)) {
    case 0:
    case 1:
    case 2:
        call_something();
        break;
    case 3:
        message_say();
        break;
    case 4:
        pass_time();
        break;
    default:
        reply_some();
    }
    if (walk_chance(walk.cuts)) {
        reply_cut();
    }
    walk.lacks = 0;
    outer_go_on();
    call_results();
    end_check();
    truth_check();
    walk.hash = (walk.hash ^ walk.now ^ walk.op_count) * 0x100000001b3ULL;
}

static void take_totals(void)
{
    snib_client_stats_data stats = {.size = sizeof stats};
    snib__engine_stats(walk.engine, &stats);
    walk_totals[WALK_GRANT] += stats.acquisitions;
    walk_totals[WALK_REENTRY] += stats.reentries;
    walk_totals[WALK_HANDOVER] += stats.handovers;
    walk_totals[WALK_RECHECK] += stats.rechecks;
}

/* Returns whether the walk passed all checks. */
static bool run(uint64_t seed, bool trace, uint64_t *out_hash)
{
    volatile bool good = false;
    begin(seed, trace);
    if (setjmp(failed) == 0) {
        for (uint64_t i = 0, most = STEPS / 2 + walk_draw(STEPS); i < most; i++, steps++) {
            step();
        }
        end_walk();
        take_totals();
        snib__engine_free(walk.engine);
        if (walk.objects != 0) {
            walk_fail("%lld objects are left in memory", (long long)walk.objects);
        }
        *out_hash = walk.hash;
        good = true;
    }
    return good;
}

/* ---- All walks ---------------------------------------------------------------------------------- */

static void print_totals(uint64_t seeds, double seconds)
{
    printf("sim_walk: %llu walks good, %llu steps, %.1f s;", (unsigned long long)seeds,
           (unsigned long long)steps, seconds);
    for (int i = 0; i < WALK_EVENTS; i++) {
        printf(" %s %llu%s", event_names[i], (unsigned long long)walk_totals[i],
               i + 1 < WALK_EVENTS ? "," : "\n");
    }
}

/* What did not happen is not tested. */
static bool all_happened(void)
{
    bool all = true;
    for (int i = 0; i < WALK_EVENTS; i++) {
        if (walk_totals[i] == 0) {
            fprintf(stderr, "sim_walk: in no walk: %s\n", event_names[i]);
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
        trace = trace * 31 + hash;
        if (seed % 61 == 0 && /* of all residues by which worlds are chosen */
            (!run(seed, false, &again) || again != hash)) {
            fprintf(stderr, "sim_walk: seed %llu does not leave the same trace twice\n",
                    (unsigned long long)seed);
            return 1;
        }
    }
    clock_gettime(CLOCK_MONOTONIC, &to);
    print_totals(last - first + 1,
                 (double)(to.tv_sec - from.tv_sec) + (double)(to.tv_nsec - from.tv_nsec) / 1e9);
    printf("trace of seeds %llu to %llu: %016llx\n", (unsigned long long)first,
           (unsigned long long)last, (unsigned long long)trace);
    return last - first + 1 < ENOUGH || all_happened() ? 0 : 1;
}

int main(int argc, char **argv)
{
    const char *count = getenv("SNIB_SIM_SEEDS");
    uint64_t first = 1, last = count == NULL ? 1000 : strtoull(count, NULL, 10), hash;
    for (int at = 1; at < argc; at++) {
        const char *value = at + 1 < argc ? argv[at + 1] : "";
        if (strcmp(argv[at], "--seeds") == 0 && *value != '\0') {
            char *rest;
            first = strtoull(value, &rest, 10);
            last = *rest == '-' ? strtoull(rest + 1, NULL, 10) : first;
            at++;
        } else if (strcmp(argv[at], "--trace") == 0 && *value != '\0') {
            return run(strtoull(value, NULL, 10), true, &hash) ? 0 : 1;
        } else {
            fprintf(stderr, "usage: sim_walk [--seeds A-B] [--trace SEED]\n");
            return 2;
        }
    }
    return run_all(first, last);
}
