/* sim_task.c - processes and their tasks: programs that use locks in every way the engine offers.
 *
 * A process is an engine with a driver: the pump carries its wishes, bytes and results.  A task acquires
 * a lock (one try, for some time, without limit; fresh or explicit owner; renewed or fixed lease), may
 * cancel at any moment, holds, releases or just drops what it got, and now and then asks a question.
 */
#include "sim.h"

#include "snib.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LIST_BYTES 4096

/* ---- Processes ---------------------------------------------------------------------------------- */

struct sim_process *process_new(int slot)
{
    struct sim_process *process = calloc(1, sizeof *process);
    if (process == NULL) {
        abort();
    }
    process->id = sim.process_count;
    sim.processes[sim.process_count++] = process;
    sim.slots[slot] = process;
    snprintf(process->uuid, sizeof process->uuid, "%08x-0000-8000-8000-%012llx", process->id,
             (unsigned long long)(sim.seed & 0xffffffffffff));
    struct snib__config config = {.login = {.password = sim.password, .database = sim.database},
                                  .seed = sim_draw(UINT64_MAX),
                                  .first_number = SIM_FIRST_NUMBER,
                                  .lease = sim.lease,
                                  .reply_timeout = sim.reply_timeout,
                                  .patience = sim.patience,
                                  .recheck = sim.recheck,
                                  .handover_max = sim.handover_max,
                                  .ops_max = 1000};
    memcpy(config.uuid, process->uuid, sizeof config.uuid);
    process->engine = snib__engine_new(&config);
    process->gone_at = SNIB__NEVER;
    for (int i = 0; i < sim.name_count; i++) {
        process->gates[i] =
            snib__gate_get(process->engine, SNIB_MUTEX, sim.names[i].text, sim.names[i].n);
    }
    for (int i = 0; i < SIM_TASKS; i++) {
        process->tasks[i].wake = i < sim.task_count ? sim.now + sim_draw(sim.think) : SNIB__NEVER;
    }
    sim_trace("%u begins", process->id);
    return process;
}

void process_end(struct sim_process *process)
{
    if (process->engine == NULL) {
        return;
    }
    sim_trace("%u ends", process->id);
    net_close(process, SNIB__COMMAND);
    net_close(process, SNIB__PUBSUB);
    snib__engine_free(process->engine);
    process->engine = NULL;
    for (int i = 0; i < SIM_TASKS; i++) {
        free(process->tasks[i].names);
        process->tasks[i] = (struct sim_task){0};
    }
    memset(process->holds, 0, sizeof process->holds);
}

void process_free(struct sim_process *process)
{
    process_end(process);
    free(process->owners);
    free(process);
}

bool process_is_idle(const struct sim_process *process)
{
    for (int i = 0; i < SIM_TASKS; i++) {
        if (process->tasks[i].doing != DOING_NOTHING) {
            return false;
        }
    }
    return process->gone_at == SNIB__NEVER || process->engine == NULL;
}

/* ---- Holds -------------------------------------------------------------------------------------- */

static struct sim_hold *find_hold(struct sim_process *process, const struct snib__hold *hold)
{
    for (int i = 0; i < SIM_HOLDS; i++) {
        if (process->holds[i].hold == hold) {
            return &process->holds[i];
        }
    }
    return NULL;
}

/* One task has done with the hold; the last one gives it back to the engine. */
static void leave_hold(struct sim_process *process, struct sim_hold *hold)
{
    if (--hold->users > 0) {
        return;
    }
    struct sim_owner *owner = check_owner(process, hold->number);
    bool is_lost = snib__hold_state(process->engine, hold->hold, sim.now) == SNIB_HOLD_LOST;
    if (is_lost && !hold->told) {
        sim_fail("%u:%llu is lost and nobody was told", process->id,
                 (unsigned long long)hold->number);
    }
    owner->abandoned |= !is_lost;
    owner->abandoned_at = sim.now;
    process->free_at[hold->name] = sim.now;
    struct snib__hold *engine_hold = hold->hold;
    *hold = (struct sim_hold){0};
    snib__hold_drop(process->engine, engine_hold, sim.now);
}

static snib__time hold_for(void)
{
    uint64_t kind = sim_draw(sim.calm ? 16 : 8);
    if (kind == 0) {
        return sim_draw(5 * sim.lease / 2);
    }
    return kind < 4 ? sim_draw(100 * SNIB__MS) : sim_draw(5 * SNIB__MS);
}

static void take_hold(struct sim_process *process, struct sim_task *task)
{
    struct sim_hold *hold = find_hold(process, task->op->hold);
    bool is_new = hold == NULL;
    if (is_new) {
        hold = find_hold(process, NULL);
        *hold = (struct sim_hold){
            .hold = task->op->hold, .number = task->op->hold->number, .name = task->name};
        hold->hold->tell = 1;
        totals.granted++;
    } else {
        totals.reentered++;
    }
    hold->users++;
    task->hold = hold;
    task->doing = DOING_HOLD;
    task->wake = sim.now + hold_for();
    sim_trace("%u task %d has %llu%s", process->id, (int)(task - process->tasks),
              (unsigned long long)hold->number, is_new ? "" : " again");
    check_granted(process, task, hold);
}

/* ---- Completions -------------------------------------------------------------------------------- */

static void rest(struct sim_task *task)
{
    free(task->names);
    *task = (struct sim_task){
        .wake = sim.now + (sim_chance(2) ? sim_draw(5 * SNIB__MS) : sim_draw(sim.think))};
}

static void count_failure(int32_t code)
{
    totals.refused += code == SNIB_BUSY;
    totals.timed_out += code == SNIB_TIMEDOUT;
    totals.cancelled += code == SNIB_CANCELLED;
    totals.failed += code < 0;
}

static void complete(struct sim_process *process, struct snib__op *op)
{
    struct sim_task *task = process->tasks;
    while (task < process->tasks + SIM_TASKS && task->op != op) {
        task++;
    }
    if (task == process->tasks + SIM_TASKS) {
        sim_fail("%u: an operation ended that nobody runs", process->id);
    }
    sim_mix((uint64_t)(uint32_t)op->code);
    sim_trace("%u task %d: %s", process->id, (int)(task - process->tasks),
              snib_code_name(op->code));
    if (task->doing == DOING_WAIT && op->code == SNIB_OK) {
        take_hold(process, task);
    } else if (task->doing == DOING_WAIT) {
        count_failure(op->code);
        check_not_granted(process, task, op->code);
        rest(task);
    } else if (task->doing == DOING_RELEASE) {
        totals.released += op->code == SNIB_OK;
        check_released(process, task->hold, op->code);
        leave_hold(process, task->hold);
        rest(task);
    } else {
        if (op->code < 0 && sim.enabled == 0) {
            sim_fail("%u: a question ended with %s", process->id, snib_code_name(op->code));
        }
        rest(task);
    }
    task->op = NULL;
    snib__op_free(process->engine, op);
}

static void take_lost(struct sim_process *process, struct snib__hold *lost)
{
    struct sim_hold *hold = find_hold(process, lost);
    if (hold == NULL) {
        sim_fail("%u: a hold was lost that nobody has", process->id);
    }
    sim_mix(lost->reason);
    sim_trace("%u:%llu is lost: %s", process->id, (unsigned long long)hold->number,
              snib_reason_text(lost->reason));
    totals.lost++;
    check_lost(process, hold);
    hold->told = true;
    process->free_at[hold->name] = sim.now;
}

void process_pump(struct sim_process *process)
{
    bool more = true;
    while (more) {
        more = false;
        for (int link = 0; link < 2; link++) {
            int wish = snib__engine_take_wish(process->engine, link);
            if (wish == SNIB__WISH_CLOSE) {
                net_close(process, link);
            } else if (wish == SNIB__WISH_CONNECT) {
                net_connect(process, link);
            }
            struct snib__buf *out = snib__engine_output(process->engine, link);
            size_t n = snib__buf_size(out);
            if (n > 0) {
                if (link == SNIB__COMMAND) {
                    check_sent(process, out->data + out->head, n);
                }
                net_send(process, link, out->data + out->head, n);
                snib__buf_consume(out, n);
            }
            more |= n > 0 || wish != SNIB__WISH_NOTHING;
        }
        struct snib__op *op = snib__engine_take_done(process->engine);
        struct snib__hold *lost = snib__engine_take_lost(process->engine);
        if (op != NULL) {
            complete(process, op);
        }
        if (lost != NULL) {
            take_lost(process, lost);
        }
        more |= op != NULL || lost != NULL;
    }
}

/* ---- What a task does next ---------------------------------------------------------------------- */

static snib__time fixed_lease(void)
{
    return sim_chance(3) ? sim_between(100 * SNIB__MS, sim.lease) / SNIB__MS * SNIB__MS : 0;
}

static void begin_acquire(struct sim_process *process, struct sim_task *task)
{
    static const snib__time unlimited = SNIB__NEVER;
    uint64_t mode = sim_draw(4);
    struct snib__acquire how = {
        .owner = sim_chance(4) ? 1 + sim_draw(2) : 0,
        .wait = mode == 0   ? 0
                : mode == 1 ? sim_between(SNIB__MS, 2 * sim.lease)
                            : unlimited,
        .lease = fixed_lease(),
        .max_hold = sim_chance(8) ? sim_between(SNIB__MS, 2 * sim.lease) / SNIB__MS * SNIB__MS : 0};
    int32_t code;
    task->name = (int)sim_draw((uint64_t)sim.name_count);
    task->op =
        snib__engine_acquire(process->engine, process->gates[task->name], &how, sim.now, &code);
    if (task->op == NULL) {
        sim_fail("%u: acquire was not started: %s", process->id, snib_code_name(code));
    }
    task->doing = DOING_WAIT;
    task->owner = how.owner;
    task->once = how.wait == 0;
    task->order = ++sim.order;
    task->submitted = sim.now;
    task->wait_ends = mode == 1 ? sim.now + how.wait : SNIB__NEVER;
    task->number = task->op->hold != NULL ? task->op->hold->number : 0;
    task->wake = sim_chance(4) ? sim.now + sim_draw(sim.lease) : SNIB__NEVER; /* then it cancels */
    sim_trace("%u task %d acquires %s as %llu%s", process->id, (int)(task - process->tasks),
              sim.names[task->name].text, (unsigned long long)task->number,
              task->once ? ", once" : "");
}

static void begin_question(struct sim_process *process, struct sim_task *task)
{
    int32_t code = SNIB_OK;
    struct snib__gate *gate = process->gates[sim_draw((uint64_t)sim.name_count)];
    uint64_t kind = sim_draw(4);
    task->doing = DOING_ASK;
    task->wake = sim_chance(8) ? sim.now + sim_draw(5 * SNIB__MS) : SNIB__NEVER;
    if (kind == 0 && sim_has(FAULT_FORCE)) {
        totals.faults[FAULT_FORCE]++;
        task->op = snib__engine_force(process->engine, gate, sim.now, &code);
    } else if (kind == 1) {
        task->names = malloc(LIST_BYTES);
        task->op =
            snib__engine_list(process->engine, 0, "*", 1, task->names, LIST_BYTES, sim.now, &code);
    } else if (kind == 2) {
        task->op = snib__engine_ping(process->engine, sim.patience, sim.now, &code);
    } else {
        task->op = snib__engine_info(process->engine, gate, sim.now, &code);
    }
    if (task->op == NULL) {
        sim_fail("%u: a question was not started: %s", process->id, snib_code_name(code));
    }
}

static void release(struct sim_process *process, struct sim_task *task)
{
    int32_t code;
    struct sim_hold *hold = task->hold;
    if (sim_chance(12)) { /* the program just drops it */
        leave_hold(process, hold);
        rest(task);
        return;
    }
    struct snib__op *op = snib__engine_release(process->engine, hold->hold, sim.now, &code);
    if (op != NULL) {
        hold->released = true;
        task->op = op;
        task->doing = DOING_RELEASE;
        task->wake = SNIB__NEVER;
        return;
    }
    sim_trace("%u task %d leaves %llu: %s", process->id, (int)(task - process->tasks),
              (unsigned long long)hold->number, snib_code_name(code));
    /* The engine tells a loss that the release itself has found in the same breath. */
    process_pump(process);
    if (code == SNIB_LOST ? !hold->told : code != SNIB_OK) {
        sim_fail("%u:%llu: release without an operation gave %s", process->id,
                 (unsigned long long)hold->number, snib_code_name(code));
    }
    leave_hold(process, hold);
    rest(task);
}

static void cancel(struct sim_process *process, struct sim_task *task)
{
    task->wake = SNIB__NEVER;
    task->cancelled = true;
    if (!snib__engine_cancel(process->engine, task->op, sim.now)) {
        sim_fail("%u: a running operation could not be cancelled", process->id);
    }
}

static void move(struct sim_process *process, struct sim_task *task)
{
    switch (task->doing) {
    case DOING_NOTHING:
        if (sim.winding_down || process->gone_at != SNIB__NEVER) {
            task->wake = SNIB__NEVER;
        } else if (sim_chance(12)) {
            begin_question(process, task);
        } else {
            begin_acquire(process, task);
        }
        break;
    case DOING_HOLD:
        release(process, task);
        break;
    default:
        cancel(process, task);
    }
    process_pump(process);
}

/* Everything that the program has ends here, except what is being released. */
void process_close(struct sim_process *process)
{
    sim_trace("%u closes", process->id);
    process->gone_at = sim.now + sim_draw(2 * sim.lease);
    for (int i = 0; i < SIM_HOLDS; i++) {
        const struct sim_hold *hold = &process->holds[i];
        int state = hold->users > 0 ? snib__hold_state(process->engine, hold->hold, sim.now)
                                    : SNIB_HOLD_LOST;
        if (state == SNIB_HOLD_VALID || state == SNIB_HOLD_AT_RISK) {
            check_owner(process, hold->number)->closed = true;
        }
    }
    snib__engine_close(process->engine, sim.now);
    process_pump(process);
    for (int i = 0; i < SIM_TASKS; i++) {
        struct sim_task *task = &process->tasks[i];
        if (task->doing == DOING_HOLD) {
            leave_hold(process, task->hold);
            rest(task);
        } else if (task->doing != DOING_NOTHING && task->doing != DOING_RELEASE) {
            sim_fail("%u: an operation outlives the client", process->id);
        }
    }
    process_pump(process);
}

/* ---- Time --------------------------------------------------------------------------------------- */

static bool can_end(const struct sim_process *process)
{
    if (process->gone_at == SNIB__NEVER) {
        return false;
    }
    for (int i = 0; i < SIM_TASKS; i++) {
        if (process->tasks[i].doing != DOING_NOTHING) {
            return sim.now >= process->gone_at;
        }
    }
    return sim.now >= process->gone_at || snib__engine_quiet(process->engine);
}

snib__time process_next(const struct sim_process *process)
{
    if (process->engine == NULL) {
        return SNIB__NEVER;
    }
    snib__time next = snib__engine_deadline(process->engine);
    for (int i = 0; i < SIM_TASKS; i++) {
        next = process->tasks[i].wake < next ? process->tasks[i].wake : next;
    }
    next = process->gone_at < next ? process->gone_at : next;
    return next > process->frozen_until ? next : process->frozen_until;
}

static void tick(struct sim_process *process)
{
    process->ticks = process->last_tick == sim.now ? process->ticks + 1 : 1;
    process->last_tick = sim.now;
    if (process->ticks > 1000) {
        sim_fail("%u: the engine's deadline does not move", process->id);
    }
    snib__engine_tick(process->engine, sim.now);
    process_pump(process);
}

void process_run(struct sim_process *process)
{
    if (can_end(process)) {
        int slot = 0;
        while (sim.slots[slot] != process) {
            slot++;
        }
        check_closed(process);
        process_end(process);
        if (!sim.winding_down && sim.process_count < SIM_PROCESSES) {
            process_new(slot);
        }
        return;
    }
    if (snib__engine_deadline(process->engine) <= sim.now) {
        tick(process);
        return;
    }
    for (int i = 0; i < SIM_TASKS; i++) {
        if (process->tasks[i].wake <= sim.now) {
            move(process, &process->tasks[i]);
            return;
        }
    }
}
