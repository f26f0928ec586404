/* topo_task.c - tasks use locks as programs do: they acquire (one try, for some time, without
 * limit; renewed or fixed lease; one lock or two), may cancel at any moment, hold, release or
 * simply drop the hold. */
#include "topo.h"

#include "engine/internal.h"
#include "locks/kind.h"
#include "snib.h"

void task_rest(struct topo_task *task)
{
    snib__time most = topo_chance(2) ? 5 * SNIB__MS : topo.think;
    if (topo.focus == TOPO_FORMER && topo.calm) { /* its disturbances are what matters */
        most = 500 * SNIB__MS;
    }
    *task = (struct topo_task){.wake = topo.now + topo_draw(most)};
}

snib__time task_hold_for(void)
{
    uint64_t kind = topo_draw(topo.calm || topo.again ? 24 : 8);
    if (topo.focus == TOPO_FIXED && !topo.calm) {
        return topo_draw(5 * topo.lease);
    }
    if (topo.focus == TOPO_LEFT && !topo.calm) {
        return topo_draw(topo_chance(4) ? 5 * topo.lease : 100 * SNIB__MS);
    }
    if (topo.focus == TOPO_FORMER && kind < 2) {
        return topo_draw(topo_chance(2) ? 2 * topo.lease : topo.lease / 4);
    }
    if (kind < 2) {
        return topo_draw(5 * topo.lease / 2);
    }
    return kind < 5 ? topo_draw(100 * SNIB__MS) : topo_draw(5 * SNIB__MS);
}

static void choose(struct topo_process *process, struct topo_use *use)
{
    int name = (int)topo_draw((uint64_t)topo.name_count);
    bool prefers = topo.again && topo_chance(2); /* what this world is about */
    for (int i = 0; prefers && i < topo.name_count; i++) {
        name = topo.names[i].family >= TOPO_DRAWN ? i : name;
    }
    int family = topo.names[name].family;
    *use = (struct topo_use){.kind = topo_kinds[family], .name = name, .names = 1U << name};
    if (topo.multi && topo_chance(3)) {
        use->kind = SNIB__MULTI;
        use->names = topo.multi_names;
        use->name = 1;
        use->gate = process->multi;
        return;
    }
    if (family == TOPO_RW && topo_chance(2)) {
        use->kind = SNIB_WRITE;
        use->side = 1;
    }
    use->gate = process->gates[name][use->side];
}

static snib__time fixed_lease(void)
{
    if (topo.longest > 0) {
        return topo.longest;
    }
    snib__time most = topo_chance(3) || topo.focus == TOPO_FIXED ? 6 * topo.lease : topo.lease;
    return topo_between(100 * SNIB__MS, most) / SNIB__MS * SNIB__MS;
}

/* Whether another task of the process holds or wants one of the names, or its client has still to do with one. */
bool task_is_rivalled(const struct topo_process *process, const struct topo_task *task)
{
    const struct snib__hold *own = task->op != NULL ? task->op->hold : NULL;
    for (int i = 0; i < TOPO_TASKS; i++) {
        const struct topo_task *other = &process->tasks[i];
        if (other != task && other->doing != TOPO_RESTS &&
            (other->use.names & task->use.names) != 0) {
            return true;
        }
    }
    for (int i = 0; i <= topo.name_count * TOPO_SIDES; i++) {
        bool is_multi = i == topo.name_count * TOPO_SIDES;
        const struct snib__gate *gate =
            is_multi ? process->multi : process->gates[i / TOPO_SIDES][i % TOPO_SIDES];
        unsigned names = is_multi ? topo.multi_names : 1U << (i / TOPO_SIDES);
        const struct snib__hold *first =
            gate != NULL && (names & task->use.names) != 0 ? snib__gate_first(gate) : NULL;
        if (first != NULL && first != own) {
            return true;
        }
    }
    return false;
}

static void begin(struct topo_process *process, struct topo_task *task)
{
    static const snib__time unlimited = SNIB__NEVER;
    uint64_t mode = topo_draw(4);
    int32_t code;
    choose(process, &task->use);
    struct snib__acquire how = {
        .wait = mode == 0   ? 0
                : mode == 1 ? topo_between(SNIB__MS, 2 * topo.lease)
                            : unlimited,
        .lease = topo_chance(topo.focus == TOPO_FIXED || topo.focus == TOPO_LEFT ? 1
                             : topo.longest > 0                                  ? 2
                                                                                 : 4)
                     ? fixed_lease()
                     : 0,
        .max_hold = topo_chance(8) ? topo_between(1, 3000) * SNIB__MS : 0,
        .permits = 1};
    if (topo.owned && topo.names[task->use.name].family == TOPO_RW &&
        task->use.kind != SNIB__MULTI) {
        how.owner = 1 + topo_draw(1 + topo_draw(2));
    }
    task->rivalled = task_is_rivalled(process, task);
    snib__engine_call(process->engine, !topo_chance(4));
    task->op = snib__engine_acquire(process->engine, task->use.gate, &how, topo.now, &code);
    snib__engine_call(process->engine, false);
    if (task->op == NULL) {
        topo_fail("%u: acquire was not started: %s", process->id, snib_code_name(code));
    }
    task->number = task->op->hold != NULL ? task->op->hold->number : 0;
    task->doing = TOPO_WAITS;
    task->once = how.wait == 0;
    task->submitted = topo.now;
    task->lease = how.lease != 0 ? how.lease : topo.lease;
    task->wait_ends = mode == 1 ? topo.now + how.wait : SNIB__NEVER;
    task->wake = topo_chance(4) ? topo.now + topo_draw(topo.lease) : SNIB__NEVER; /* it cancels */
    topo_trace("%u task %d acquires %s%s%s%s", process->id, (int)(task - process->tasks),
               topo.names[task->use.name].text, task->use.kind == SNIB__MULTI ? " and more" : "",
               task->use.side ? " to write" : "", task->once ? ", once" : "");
    check_progress(process);
}

static void ask(struct topo_process *process, struct topo_task *task)
{
    int32_t code;
    choose(process, &task->use);
    const struct topo_process *other =
        topo.known && topo_chance(2) ? topo.slots[topo_draw((uint64_t)topo.slot_count)] : NULL;
    task->op = other != NULL    ? snib__engine_identity(process->engine, other->uuid,
                                                        sizeof other->uuid - 1, 65536, topo.now, &code)
               : topo_chance(3) ? snib__engine_list(process->engine, process->cursor, "*", 1, 65536,
                                                    topo.now, &code)
               : topo_chance(6)
                   ? snib__engine_describe(process->engine, topo.names[task->use.name].text,
                                           topo.names[task->use.name].n, 65536, topo.now, &code)
               : topo_chance(2) || task->use.kind == SNIB__MULTI
                   ? snib__engine_ping(process->engine, 1000 * SNIB__MS, topo.now, &code)
                   : snib__engine_info(process->engine, task->use.gate, topo.now, &code);
    if (task->op == NULL) {
        topo_fail("%u: a question was not started: %s", process->id, snib_code_name(code));
    }
    task->doing = TOPO_ASKS;
    task->submitted = topo.now;
    task->wait_ends = SNIB__NEVER;
    task->wake = SNIB__NEVER;
    check_progress(process);
}

static void release(struct topo_process *process, struct topo_task *task)
{
    int32_t code;
    struct topo_hold *hold = task->hold;
    if (topo_chance(topo.owned ? 2 : 12)) { /* the program simply drops it */
        process_leave_hold(process, hold);
        task_rest(task);
        return;
    }
    check_progress(process);
    hold->safe_until = snib__hold_end(hold->hold);
    snib__engine_call(process->engine, !topo_chance(4));
    struct snib__op *op = snib__engine_release(process->engine, hold->hold, topo.now, &code);
    snib__engine_call(process->engine, false);
    if (op != NULL) {
        hold->released = true;
        task->op = op;
        task->doing = TOPO_RELEASES;
        task->submitted = topo.now;
        task->wake = SNIB__NEVER;
        return;
    }
    topo_trace("%u task %d leaves %llu: %s", process->id, (int)(task - process->tasks),
               (unsigned long long)hold->number, snib_code_name(code));
    process_pump(process); /* reports a loss that the release itself has found */
    if (code == SNIB_LOST ? !hold->told : code != SNIB_OK) {
        topo_fail("%u:%llu: release without an operation gave %s", process->id,
                  (unsigned long long)hold->number, snib_code_name(code));
    }
    process_leave_hold(process, hold);
    task_rest(task);
}

/* Another lease for the hold.  False: it cannot be asked for. */
static bool extend(struct topo_process *process, struct topo_task *task)
{
    int32_t code;
    struct topo_hold *hold = task->hold;
    snib__time lease = topo_chance(2) ? fixed_lease() : 0;
    if (hold->released || hold->told ||
        hold->hold->owner) { /* which of its users' deadlines would it be? */
        return false;
    }
    check_progress(process);
    snib__engine_call(process->engine, !topo_chance(4));
    task->op = snib__engine_extend(process->engine, hold->hold, lease, topo.now, &code);
    snib__engine_call(process->engine, false);
    topo_trace("%u task %d extends %llu by %.1f ms", process->id, (int)(task - process->tasks),
               (unsigned long long)hold->number, (double)lease / 1e6);
    if (task->op != NULL) {
        task->doing = TOPO_EXTENDS;
        task->submitted = topo.now;
        task->wake = topo_chance(8) ? topo.now + topo_draw(topo.lease / 8) : SNIB__NEVER;
        return true;
    }
    process_pump(process); /* reports a loss that this has found */
    if (code != SNIB_LOST || !hold->told) {
        topo_fail("%u:%llu: an extension without an operation gave %s", process->id,
                  (unsigned long long)hold->number, snib_code_name(code));
    }
    task->wake = topo.now + task_hold_for();
    return true;
}

static void cancel(struct topo_process *process, struct topo_task *task)
{
    task->wake = SNIB__NEVER;
    task->cancelled = true;
    if (!snib__engine_cancel(process->engine, task->op, topo.now)) {
        topo_fail("%u: a running operation could not be cancelled", process->id);
    }
}

void task_move(struct topo_process *process, struct topo_task *task)
{
    if (task->doing == TOPO_RESTS && (topo.winding_down || process->closed_at != 0)) {
        task->wake = SNIB__NEVER;
    } else if (task->doing == TOPO_RESTS) {
        if (topo_chance(12)) {
            ask(process, task);
        } else {
            begin(process, task);
        }
    } else if (task->doing == TOPO_HOLDS_IT) {
        if (!topo.extends || !topo_chance(3) || !extend(process, task)) {
            release(process, task);
        }
    } else {
        cancel(process, task);
    }
    process_pump(process);
}
