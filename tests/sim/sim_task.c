/* sim_task.c - tasks use locks as programs do: they acquire (one try, for some time, without limit;
 * fresh or explicit owner; renewed or fixed lease; one lock or several), may cancel at any moment,
 * hold, change the lease, release or simply drop the hold, change numbers, and now and then send a query. */
#include "sim.h"

#include "engine/internal.h"
#include "locks/kind.h"
#include "snib.h"

#include <stdlib.h>

#define LIST_BYTES 65536

#define PESTERED (300 * SNIB__MS) /* at most so long between two single tries of a task */

/* Half of the tasks do, beside those that wait. */
static bool pesters(const struct sim_process *process, const struct sim_task *task)
{
    return sim.pestered && (task - process->tasks) % 2 != 0;
}

void task_rest(struct sim_task *task)
{
    if (sim.pestered && task->once) {
        *task = (struct sim_task){.wake = sim.now + sim_draw(PESTERED)};
        return;
    }
    *task =
        (struct sim_task){.wake = sim.now + (!sim.crowded && sim_chance(2) ? sim_draw(5 * SNIB__MS)
                                                                           : sim_draw(sim.think))};
}

snib__time task_hold_for(void)
{
    if (sim.crowded) {
        return sim_draw(sim.crowd_hold);
    }
    uint64_t kind = sim_draw(sim.calm ? 16 : 8);
    if (kind == 0) {
        return sim_draw(5 * sim.lease / 2);
    }
    return kind < 4 ? sim_draw(100 * SNIB__MS) : sim_draw(5 * SNIB__MS);
}

static snib__time fixed_lease(void)
{
    return sim_chance(3) ? sim_between(100 * SNIB__MS, sim_longest()) / SNIB__MS * SNIB__MS : 0;
}

/* ---- Acquiring ---------------------------------------------------------------------------------- */

static void choose(struct sim_process *process, struct sim_use *use)
{
    static const int kinds[FAMILY_COUNT] = {SNIB_MUTEX,     SNIB_FENCED,  SNIB_SPIN,
                                            SNIB_PLAIN,     SNIB_FAIR,    SNIB_READ,
                                            SNIB_SEMAPHORE, SNIB_PERMITS, SNIB_LATCH};
    int name = (int)sim_draw((uint64_t)sim.name_count);
    int family = sim.names[name].family;
    *use = (struct sim_use){.kind = kinds[family], .name = name, .names = 1U << name, .permits = 1};
    if (sim.multi && sim_chance(3)) {
        int order = (int)sim_draw(SIM_MULTIS);
        use->kind = SNIB__MULTI;
        use->name = 0;
        use->names = (1U << sim.name_count) - 1;
        use->gate = process->multis[order];
        return;
    }
    if (family == FAMILY_RW && sim_chance(3)) {
        use->kind = SNIB_WRITE;
        use->side = 1;
    } else if (family == FAMILY_SEMAPHORE || family == FAMILY_PERMITS) {
        use->permits = sim_chance(3) ? (uint32_t)sim_between(1, SIM_PERMITS) : 1;
    }
    use->gate = process->gates[name][use->side];
}

static uint8_t options_of(const struct sim_use *use)
{
    uint8_t options = 0;
    if (sim.names[use->name].tokens && (use->kind == SNIB_FAIR || use->kind == SNIB_WRITE)) {
        options |= SNIB_LOCK_FENCED;
    }
    if (use->kind == SNIB_WRITE && sim_chance(3)) {
        options |= SNIB_LOCK_PREFER_WRITER;
    }
    return options;
}

/* Record what the engine's new hold will be at the server. */
static void know(struct sim_process *process, struct sim_task *task,
                 const struct snib__acquire *how)
{
    task->attempt = task->op->hold;
    task->number = task->attempt != NULL ? task->attempt->number : 0;
    if (task->number == 0 || task->op->done || task->use.kind == SNIB_LATCH) {
        return;
    }
    struct sim_owner *owner = check_owner(process, task->number, task->use.side);
    snib__time lease = how->lease != 0 ? how->lease : process->lease;
    owner->abandoned = owner->denied = false;
    owner->use = task->use;
    owner->lease = lease;
}

/* Whether the process knows nothing of the lock: it neither holds it nor waits for it. */
static bool is_first(const struct sim_process *process, const struct sim_use *use)
{
    for (int i = 0; i < SIM_TASKS; i++) {
        if (process->tasks[i].doing == DOING_WAIT && process->tasks[i].use.gate == use->gate) {
            return false;
        }
    }
    for (int i = 0; i < SIM_HOLDS; i++) {
        if (process->holds[i].users > 0 && (process->holds[i].use.names & use->names) != 0) {
            return false;
        }
    }
    return true;
}

static void begin_acquire(struct sim_process *process, struct sim_task *task)
{
    static const snib__time unlimited = SNIB__NEVER;
    bool beside = pesters(process, task);
    uint64_t mode = beside ? 0 : sim.crowded ? 2 + sim_draw(2) : sim_draw(4);
    choose(process, &task->use);
    if (beside && task->use.kind == SNIB_PERMITS) {
        task->use.permits = SIM_PERMITS;
    }
    bool unowned = task->use.kind == SNIB_SEMAPHORE || task->use.kind == SNIB_LATCH;
    struct snib__acquire how = {.owner = sim_chance(4) ? 1 + sim_draw(2) : 0,
                                .wait = mode == 0   ? 0
                                        : mode == 1 ? sim_between(SNIB__MS, 2 * sim.lease)
                                                    : unlimited,
                                .lease = unowned ? 0 : fixed_lease(),
                                .max_hold =
                                    !unowned && sim_chance(8)
                                        ? sim_between(SNIB__MS, 2 * sim.lease) / SNIB__MS * SNIB__MS
                                        : 0,
                                .permits = task->use.permits,
                                .options = options_of(&task->use)};
    int32_t code;
    if (unowned || task->use.kind == SNIB_PERMITS) {
        how.owner = 0;
    }
    if (sim.crowded) {
        how.max_hold = 0; /* a lost hold is given back without taking turns */
    }
    snib__engine_call(process->engine, !sim_chance(4));
    task->op =
        snib__engine_acquire(process->engine, task->use.gate, &how, sim_clock(process), &code);
    snib__engine_call(process->engine, false);
    if (task->op == NULL && code == SNIB_ENOMEM && memory_is_short()) {
        task_rest(task);
        return;
    }
    if (task->op == NULL) {
        sim_fail("%u: acquire was not started: %s", process->id, snib_code_name(code));
    }
    process->takes[task->use.name] += task->use.kind == SNIB_SEMAPHORE;
    task->first = is_first(process, &task->use);
    task->doing = DOING_WAIT;
    task->owner = how.owner;
    task->once = how.wait == 0;
    task->order = ++sim.order;
    task->submitted = sim.now;
    task->max_hold = how.max_hold;
    task->told_at = 0;
    task->tries_until = sim_true(process, sim_clock(process) + process->try_timeout);
    task->wait_ends = mode == 1 ? sim_true(process, sim_clock(process) + how.wait) : SNIB__NEVER;
    task->wake = sim_chance(sim.crowded ? 64 : 4) ? sim.now + sim_draw(sim.lease)
                                                  : SNIB__NEVER; /* then it cancels */
    know(process, task, &how);
    sim_trace("%u task %d acquires %s%s as %llu, %u%s", process->id, (int)(task - process->tasks),
              sim.names[task->use.name].text, task->use.side ? " to write" : "",
              (unsigned long long)task->number, task->use.permits, task->once ? ", once" : "");
}

/* ---- Questions and numbers ---------------------------------------------------------------------- */

static struct snib__op *begin_count(struct sim_process *process, int name, int32_t *out_code)
{
    struct snib__gate *gate = process->gates[name][0];
    int32_t what = SNIB_COUNT_GET;
    int64_t n = 0;
    switch (sim.names[name].family) {
    case FAMILY_LATCH:
        what = sim_chance(4) ? SNIB_COUNT_INIT : SNIB_COUNT_DOWN;
        n = what == SNIB_COUNT_INIT ? (int64_t)sim_between(1, 3) : 0;
        break;
    case FAMILY_PERMITS:
        what = sim_chance(3) ? SNIB_COUNT_TOTAL : sim_chance(2) ? SNIB_COUNT_INIT : SNIB_COUNT_SET;
        n = what == SNIB_COUNT_TOTAL ? 0 : SIM_PERMITS;
        break;
    default:
        what = sim_chance(8) ? SNIB_COUNT_ADD : SNIB_COUNT_INIT;
        n = what == SNIB_COUNT_INIT ? SIM_PERMITS : 1;
    }
    if (sim_chance(4)) {
        what = SNIB_COUNT_GET;
        n = 0;
    }
    process->counts[name] += what != SNIB_COUNT_GET && what != SNIB_COUNT_TOTAL;
    return snib__engine_count(process->engine, gate, what, n, sim_clock(process), out_code);
}

static void begin_question(struct sim_process *process, struct sim_task *task)
{
    int32_t code = SNIB_OK;
    int name = (int)sim_draw((uint64_t)sim.name_count);
    const struct sim_name *known = &sim.names[name];
    int side = known->family == FAMILY_RW ? (int)sim_draw(2) : 0;
    struct snib__gate *gate = process->gates[name][side];
    uint64_t kind = sim_draw(6);
    task->doing = DOING_ASK;
    task->wake = sim_chance(8) ? sim.now + sim_draw(5 * SNIB__MS) : SNIB__NEVER;
    if (known->family >= FAMILY_SEMAPHORE && kind > 1) {
        task->op = begin_count(process, name, &code);
    } else if (kind == 0 && sim_has(FAULT_FORCE)) {
        fault_happens(FAULT_FORCE);
        task->op = snib__engine_force(process->engine, gate, sim_clock(process), &code);
    } else if (kind == 2 && sim.known) { /* any client, one that has ended too */
        const struct sim_process *other = sim.processes[sim_draw(sim.process_count)];
        task->op = snib__engine_identity(process->engine, other->uuid, sizeof other->uuid - 1,
                                         LIST_BYTES, sim_clock(process), &code);
    } else if (kind == 1 || kind == 2) {
        task->op = kind == 1 ? snib__engine_list(process->engine, 0, "*", 1, LIST_BYTES,
                                                 sim_clock(process), &code)
                             : snib__engine_describe(process->engine, known->text, known->n,
                                                     LIST_BYTES, sim_clock(process), &code);
    } else if (kind == 3) {
        task->op = snib__engine_ping(process->engine, 1000 * SNIB__MS, sim_clock(process), &code);
    } else {
        task->op = snib__engine_info(process->engine, gate, sim_clock(process), &code);
    }
    if (task->op == NULL && code == SNIB_ENOMEM && memory_is_short()) {
        task_rest(task);
        return;
    }
    if (task->op == NULL) {
        sim_fail("%u: a question was not started: %s", process->id, snib_code_name(code));
    }
}

/* ---- Another lease ------------------------------------------------------------------------------ */

/* False: it cannot be asked for. */
static bool extend(struct sim_process *process, struct sim_task *task)
{
    struct sim_hold *hold = task->hold;
    if (hold->use.kind == SNIB_SEMAPHORE || hold->released || hold->told) {
        return false;
    }
    int32_t code;
    snib__time lease = fixed_lease(), now = sim_clock(process);
    struct sim_owner *owner = check_owner(process, hold->number, hold->use.side);
    snib__time longest = lease ? lease : process->lease, before = owner->lease;
    owner->lease = longest > before ? longest : before; /* it may arrive although it fails here */
    snib__engine_call(process->engine, !sim_chance(4));
    task->op = snib__engine_extend(process->engine, hold->hold, lease, now, &code);
    snib__engine_call(process->engine, false);
    sim_trace("%u task %d extends %llu by %.1f ms", process->id, (int)(task - process->tasks),
              (unsigned long long)hold->number, (double)lease / 1e6);
    if (task->op == NULL) {
        process_pump(process); /* the loss that this has found is reported at the same moment */
        bool no_memory = code == SNIB_ENOMEM && memory_is_short();
        if (code == SNIB_LOST ? !hold->told : !no_memory) {
            sim_fail("%u:%llu: an extension without an operation gave %s", process->id,
                     (unsigned long long)hold->number, snib_code_name(code));
        }
        task->wake = sim.now + task_hold_for();
        return true;
    }
    task->doing = DOING_EXTEND;
    task->extends_to = snib__lease_end(now, longest);
    task->wake = sim_chance(8) ? sim.now + sim_draw(4 * sim.delay) : SNIB__NEVER;
    return true;
}

/* ---- Releasing ---------------------------------------------------------------------------------- */

/* The program forgets it without a release: only its lease ends it. */
static void abandon(struct sim_process *process, struct sim_task *task)
{
    struct sim_hold *hold = task->hold;
    sim_trace("%u task %d abandons %llu", process->id, (int)(task - process->tasks),
              (unsigned long long)hold->number);
    check_owner(process, hold->number, hold->use.side)->stray = true;
    hold->hold->users = (uint32_t)hold->users - 1;
    snib__hold_abandon(process->engine, hold->hold, sim_clock(process));
    process_pump(process); /* it may have been lost */
    process_leave_hold(process, hold);
    task_rest(task);
}

static void release(struct sim_process *process, struct sim_task *task)
{
    int32_t code;
    struct sim_hold *hold = task->hold;
    /* Not at the end: each costs those behind it in a queue a lease. */
    bool drops = sim.focused && hold->use.kind != SNIB_SEMAPHORE && sim_chance(30);
    if (drops && !sim.winding_down) {
        abandon(process, task);
        return;
    }
    if (sim_chance(12)) { /* the program simply drops it */
        process_leave_hold(process, hold);
        task_rest(task);
        return;
    }
    snib__engine_call(process->engine, !sim_chance(4));
    struct snib__op *op =
        snib__engine_release(process->engine, hold->hold, sim_clock(process), &code);
    snib__engine_call(process->engine, false);
    if (op != NULL) {
        hold->released = true;
        hold->released_at = sim.now;
        task->op = op;
        task->doing = DOING_RELEASE;
        task->wake = sim.focused && sim_chance(16) ? sim.now + sim_draw(4 * sim.delay)
                                                   : SNIB__NEVER; /* then it waits no longer */
        return;
    }
    sim_trace("%u task %d leaves %llu: %s", process->id, (int)(task - process->tasks),
              (unsigned long long)hold->number, snib_code_name(code));
    /* The engine reports a loss that the release itself has found at the same moment. */
    process_pump(process);
    bool no_memory = code == SNIB_ENOMEM && memory_is_short();
    if (code == SNIB_LOST ? !hold->told : code != SNIB_OK && !no_memory) {
        sim_fail("%u:%llu: release without an operation gave %s", process->id,
                 (unsigned long long)hold->number, snib_code_name(code));
    }
    process_leave_hold(process, hold);
    task_rest(task);
}

static void cancel(struct sim_process *process, struct sim_task *task)
{
    task->wake = SNIB__NEVER;
    task->cancelled = true;
    if (!snib__engine_cancel(process->engine, task->op, sim_clock(process))) {
        sim_fail("%u: a running operation could not be cancelled", process->id);
    }
}

void task_move(struct sim_process *process, struct sim_task *task)
{
    switch (task->doing) {
    case DOING_NOTHING:
        if (sim.winding_down || process->gone_at != SNIB__NEVER) {
            task->wake = SNIB__NEVER;
        } else if (sim_chance(sim.numbers ? 3 : 12)) {
            begin_question(process, task);
        } else {
            begin_acquire(process, task);
        }
        break;
    case DOING_HOLD:
        if (!sim.extends || !sim_chance(3) || !extend(process, task)) {
            release(process, task);
        }
        break;
    default:
        cancel(process, task);
    }
    process_go_on(process);
}
