/* sim_process.c - processes: an engine each, with a driver, the pump, that carries out its requests
 * and delivers bytes and results. */
#include "sim.h"

#include "lives.h"

#include "locks/kind.h"
#include "snib.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Processes ---------------------------------------------------------------------------------- */

struct sim_process *process_record(bool foreign)
{
    struct sim_process *process = calloc(1, sizeof *process);
    if (process == NULL) {
        abort();
    }
    process->id = sim.process_count;
    process->foreign = foreign;
    process_touched(process);
    process->gone_at = SNIB__NEVER;
    sim.processes[sim.process_count++] = process;
    snprintf(process->uuid, sizeof process->uuid, "%08x-0000-%c000-8000-%012llx", process->id,
             foreign ? '4' : '8', (unsigned long long)(sim.seed & 0xffffffffffff));
    return process;
}

static void get_gates(struct sim_process *process)
{
    static const int kinds[FAMILY_COUNT] = {SNIB_MUTEX,     SNIB_FENCED,  SNIB_SPIN,
                                            SNIB_PLAIN,     SNIB_FAIR,    SNIB_READ,
                                            SNIB_SEMAPHORE, SNIB_PERMITS, SNIB_LATCH};
    for (int i = 0; i < sim.name_count; i++) {
        const struct sim_name *name = &sim.names[i];
        process->gates[i][0] =
            snib__gate_get(process->engine, kinds[name->family], name->text, name->n);
        if (name->family == FAMILY_RW) {
            process->gates[i][1] = snib__gate_get(process->engine, SNIB_WRITE, name->text, name->n);
        }
    }
}

/* Two multi locks of all names, in opposite orders, with one side each of a read/write lock. */
static void get_multis(struct sim_process *process)
{
    for (int i = 0; i < SIM_MULTIS && sim.multi; i++) {
        char members[256];
        size_t n = 0;
        for (int j = 0; j < sim.name_count; j++) {
            const struct sim_name *name = &sim.names[i == 0 ? j : sim.name_count - 1 - j];
            char letter = name->family == FAMILY_MUTEX    ? 'm'
                          : name->family == FAMILY_FENCED ? 'f'
                          : name->family == FAMILY_SPIN   ? 's'
                                                          : 'w';
            n += (size_t)snprintf(members + n, sizeof members - n, "%c%s", letter, name->text) + 1;
        }
        process->multis[i] = snib__gate_get(process->engine, SNIB__MULTI, members, n);
    }
}

struct sim_process *process_new(int slot)
{
    struct sim_process *process = process_record(false);
    sim.slots[slot] = process;
    process->steps = sim.steps;
    process->lease = sim.unequal && sim_chance(2)
                         ? sim_between(sim.lease / SIM_UNEQUAL, sim.lease) / SNIB__MS * SNIB__MS
                         : sim.lease;
    process->recheck = sim_between(500 * SNIB__MS, 3000 * SNIB__MS);
    process->clock_ppm = sim.clock_spread > 0
                             ? (int)sim_draw(2 * (uint64_t)sim.clock_spread + 1) - sim.clock_spread
                             : 0;
    snib__time patience = sim_between(500 * SNIB__MS, 5000 * SNIB__MS);
    process->try_timeout = patience / 3;
    struct snib__config config = {.login = {.password = sim.password, .database = sim.database},
                                  .seed = sim_draw(UINT64_MAX),
                                  .first_number = SIM_FIRST_NUMBER,
                                  .lease = process->lease,
                                  .reply_timeout = sim_between(200 * SNIB__MS, 3000 * SNIB__MS),
                                  .patience = patience,
                                  .try_timeout = process->try_timeout,
                                  .recheck = process->recheck,
                                  .handover_max = sim.unequal && sim_chance(2)
                                                      ? (int32_t)sim_between(0, 16)
                                                      : sim.handover_max,
                                  .lanes = sim.lanes,
                                  .scatter = sim_chance(2),
                                  .ops_max = 1000};
    config.tenure = config.handover_max % 4 != 1;
    memcpy(config.uuid, process->uuid, sizeof config.uuid);
    snprintf(process->identity, sizeof process->identity, "host %s\n", process->uuid);
    config.identity = sim.known ? process->identity : NULL;
    config.wall_offset = 1000 * SNIB__MS;
    sim.memory_spared = true;
    process->engine = snib__engine_new(&config);
    get_gates(process);
    get_multis(process);
    sim.memory_spared = false;
    for (int i = 0; i < SIM_TASKS; i++) {
        process->tasks[i].wake = i < sim.task_count ? sim.now + sim_draw(sim.think) : SNIB__NEVER;
    }
    sim_trace("%u begins", process->id);
    return process;
}

void process_put_gates(struct sim_process *process)
{
    for (int i = 0; i < SIM_NAMES; i++) {
        for (int side = 0; side < SIM_SIDES; side++) {
            if (process->gates[i][side] != NULL) {
                snib__gate_put(process->engine, process->gates[i][side]);
            }
        }
    }
    for (int i = 0; i < SIM_MULTIS; i++) {
        if (process->multis[i] != NULL) {
            snib__gate_put(process->engine, process->multis[i]);
        }
    }
}

/* All of the process' links. */
static void find_links(const struct sim_process *process, struct snib__link *out[SIM_LINKS])
{
    out[SNIB__COMMAND] = snib__engine_link(process->engine, SNIB__COMMAND);
    out[SNIB__PUBSUB] = snib__engine_link(process->engine, SNIB__PUBSUB);
    int n = 2;
    for (struct snib__link *lane = snib__engine_links(process->engine);
         lane != NULL && n < SIM_LINKS; lane = snib__link_next(lane)) {
        if (snib__link_kind(lane) == SNIB__COMMAND && lane != out[SNIB__COMMAND]) {
            out[n++] = lane;
        }
    }
    while (n < SIM_LINKS) {
        out[n++] = NULL;
    }
}

struct snib__link *process_link(const struct sim_process *process, int link)
{
    struct snib__link *links[SIM_LINKS];
    find_links(process, links);
    return links[link];
}

void process_end(struct sim_process *process)
{
    if (process->engine == NULL) {
        return;
    }
    sim_trace("%u ends", process->id);
    for (int link = 0; link < SIM_LINKS; link++) {
        net_close(process, link);
    }
    lives_free(&process->lives);
    snib__engine_free(process->engine);
    process->engine = NULL;
    memset(process->tasks, 0, sizeof process->tasks);
    memset(process->holds, 0, sizeof process->holds);
}

void process_free(struct sim_process *process)
{
    process_end(process);
    for (int i = 0; i < SIM_SIDES; i++) {
        free(process->owners[i]);
    }
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

/* beside: a queue of the process, which goes on as before. */
static void set_free(struct sim_process *process, const struct sim_use *use, bool beside)
{
    for (int i = 0; i < sim.name_count; i++) {
        process->free_at[i] = (use->names >> i & 1) != 0 ? sim.now : process->free_at[i];
        process->next_at[i] = (use->names >> i & 1) != 0 && !beside ? sim.now : process->next_at[i];
    }
}

void process_knows(struct sim_process *process, const struct sim_use *use)
{
    for (int i = 0; i < sim.name_count; i++) {
        process->known_at[i] = (use->names >> i & 1) != 0 ? sim.now : process->known_at[i];
    }
}

/* Whether another hold has the number since the end of this one. */
static bool goes_on(const struct sim_hold *left)
{
    const struct snib__hold *active =
        left->use.gate == NULL ? NULL : snib__gate_active(left->use.gate);
    return active != NULL && active != left->hold && active->number == left->number &&
           active->phase == SNIB__HELD;
}

/* One task has finished with the hold; the last one gives it back to the engine. */
void process_leave_hold(struct sim_process *process, struct sim_hold *hold)
{
    if (--hold->users > 0) {
        return;
    }
    struct sim_owner *owner = check_owner(process, hold->number, hold->use.side);
    bool is_lost = hold->hold->phase == SNIB__LOST; /* not only by the clock */
    if (is_lost && !hold->told) {
        sim_fail("%u:%llu was lost without being reported", process->id,
                 (unsigned long long)hold->number);
    }
    owner->stray |= is_lost && memory_is_short(); /* what is left of it cannot be released then */
    set_free(process, &hold->use, false);
    process_knows(process, &hold->use);
    struct snib__hold *engine_hold = hold->hold;
    const struct sim_hold left = *hold;
    *hold = (struct sim_hold){0};
    bool went_on = engine_hold->passed;
    snib__hold_drop(process->engine, engine_hold, sim_clock(process));
    if (!went_on && !goes_on(&left)) {
        owner = check_owner(process, left.number, left.use.side);
        owner->abandoned = true;
        owner->abandoned_at = sim.now;
    }
}

static void take_hold(struct sim_process *process, struct sim_task *task)
{
    struct sim_hold *hold = find_hold(process, task->op->hold);
    bool is_new = hold == NULL;
    if (is_new) {
        hold = find_hold(process, NULL);
        *hold = (struct sim_hold){
            .hold = task->op->hold, .number = task->op->hold->number, .use = task->use};
        hold->hold->tell = 1;
        hold->limit = task->max_hold ? hold->hold->acquired_at + task->max_hold : SNIB__NEVER;
        totals.granted++;
        process->granted++;
        totals.by_family[sim.names[task->use.name].family]++;
        totals.by_multi += task->use.kind == SNIB__MULTI;
    } else {
        totals.reentered++;
    }
    hold->users++;
    task->hold = hold;
    task->doing = DOING_HOLD;
    task->wake = sim.now + task_hold_for();
    sim_trace("%u task %d has %llu%s", process->id, (int)(task - process->tasks),
              (unsigned long long)hold->number, is_new ? "" : " again");
    check_granted(process, task, hold);
}

/* ---- Completions -------------------------------------------------------------------------------- */

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
        sim_fail("%u: an unknown operation ended", process->id);
    }
    lives_done(&process->lives, op);
    sim_mix((uint64_t)(uint32_t)op->code);
    sim_trace("%u task %d: %s", process->id, (int)(task - process->tasks),
              snib_code_name(op->code));
    if (task->doing == DOING_WAIT && op->code == SNIB_OK && task->use.kind == SNIB_LATCH) {
        totals.by_family[FAMILY_LATCH]++;
        check_passed(process, task);
        task_rest(task);
    } else if (task->doing == DOING_WAIT && op->code == SNIB_OK) {
        take_hold(process, task);
    } else if (task->doing == DOING_WAIT) {
        count_failure(op->code);
        check_not_granted(process, task, op->code);
        bool beside = task->once && task->use.kind == SNIB_PERMITS;
        set_free(process, &task->use, beside); /* the task queued behind it is first now */
        task_rest(task);
    } else if (task->doing == DOING_EXTEND) {
        totals.extended += op->code == SNIB_OK;
        check_owner(process, task->hold->number, task->hold->use.side)->unheard |=
            op->code == SNIB_CANCELLED;
        check_extended(process, task);
        task->doing = DOING_HOLD;
        task->cancelled = false;
        task->wake = sim.now + task_hold_for();
    } else if (task->doing == DOING_RELEASE) {
        totals.released += op->code == SNIB_OK;
        if (op->code != SNIB_CANCELLED || !task->cancelled) {
            check_released(process, task->hold, op->code);
        }
        process_leave_hold(process, task->hold);
        task_rest(task);
    } else {
        if (op->code < 0 && sim.enabled == 0) {
            sim_fail("%u: a question ended with %s", process->id, snib_code_name(op->code));
        }
        if (op->kind == SNIB__OP_IDENTITY && op->code == SNIB_OK) {
            check_identity(process, op);
        }
        task_rest(task);
    }
    task->op = NULL;
    snib__op_free(process->engine, op);
}

static void take_lost(struct sim_process *process, struct snib__hold *lost)
{
    struct sim_hold *hold = find_hold(process, lost);
    if (hold == NULL) {
        sim_fail("%u: an unknown hold was lost", process->id);
    }
    sim_mix(lost->reason);
    sim_trace("%u:%llu is lost: %s", process->id, (unsigned long long)hold->number,
              snib_reason_text(lost->reason));
    totals.lost++;
    check_lost(process, hold);
    hold->told = true;
    set_free(process, &hold->use, false);
    process_knows(process, &hold->use);
}

/* Trace what goes out on the link for messages. */
static void trace_words(const struct sim_process *process, const char *bytes, size_t n)
{
    char text[400];
    size_t at = 0;
    for (size_t i = 0; sim.trace && i < n && at + 1 < sizeof text; i++) {
        text[at++] = bytes[i] < ' ' ? ' ' : bytes[i];
    }
    text[at] = '\0';
    sim_trace("%u says %s", process->id, text);
}

/* Whether the process is stopped here, before the engine's output is delivered; now and then around
 * the reply to a renewal, until the hold is over. */
static bool stops_here(struct sim_process *process)
{
    bool renews = process->renews > sim.now && sim_chance(10);
    process->unpumped = sim_has(FAULT_STOP) && (renews || sim_chance(400));
    if (process->unpumped) {
        fault_happens(FAULT_STOP);
        process->frozen_until =
            renews ? process->renews + sim_draw(process->lease / 3) : fault_for_a_while();
        fault_until(process->frozen_until);
        sim_trace("%u stops between two steps", process->id);
    }
    process->renews = 0;
    return process->unpumped;
}

static void pump(struct sim_process *process, bool may_stop)
{
    bool more = true;
    int first = sim.lanes > 1 ? (int)sim_draw(SIM_LINKS) : 0;
    process->decided_at = process->unpumped ? process->decided_at : sim.now;
    process->unpumped = false;
    process_touched(process);
    lives_look(&process->lives, process->engine);
    while (more && !(may_stop && stops_here(process))) {
        struct snib__link *links[SIM_LINKS];
        find_links(process, links);
        more = false;
        for (int i = 0; i < SIM_LINKS; i++) {
            int link = (first + i) % SIM_LINKS;
            struct snib__link *at = links[link];
            if (at == NULL) {
                continue;
            }
            int wish = snib__engine_take_wish(process->engine, at);
            if (wish == SNIB__WISH_CLOSE) {
                net_close(process, link);
            } else if (wish == SNIB__WISH_CONNECT) {
                net_connect(process, link);
            }
            struct snib__buf *out = snib__link_output(at);
            size_t n = snib__buf_size(out);
            if (n > 0) {
                if (link != SNIB__PUBSUB) {
                    check_sent(process, out->data + out->head, n);
                } else {
                    trace_words(process, out->data + out->head, n);
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
        lives_look(&process->lives, process->engine);
    }
}

void process_pump(struct sim_process *process)
{
    pump(process, false);
}

void process_go_on(struct sim_process *process)
{
    pump(process, true);
}

/* Everything that the program has ends here, except what is being released. */
void process_close(struct sim_process *process)
{
    process_pump(process); /* first what it was stopped in */
    sim_trace("%u closes", process->id);
    process->gone_at = sim.now + sim_draw(2 * sim.lease);
    for (int i = 0; i < SIM_HOLDS; i++) {
        const struct sim_hold *hold = &process->holds[i];
        int state = hold->users > 0
                        ? snib__hold_state(process->engine, hold->hold, sim_clock(process))
                        : SNIB_HOLD_LOST;
        if (state == SNIB_HOLD_VALID || state == SNIB_HOLD_AT_RISK) {
            check_owner(process, hold->number, hold->use.side)->closed = !memory_is_short();
        }
    }
    snib__engine_close(process->engine, sim_clock(process));
    process_pump(process);
    for (int i = 0; i < SIM_TASKS; i++) {
        struct sim_task *task = &process->tasks[i];
        if (task->doing == DOING_HOLD) {
            process_leave_hold(process, task->hold);
            task_rest(task);
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

void process_touched(struct sim_process *process)
{
    process->touched = process->unchecked = true;
}

/* Look once at the deadline that an engine has until it is called again. */
static void look_at_deadline(struct sim_process *process)
{
    if (process->touched) {
        process->deadline = snib__engine_deadline(process->engine);
        process->true_deadline = sim_true(process, process->deadline);
        process->touched = false;
    }
    assert(process->deadline == snib__engine_deadline(process->engine));
}

snib__time process_next(struct sim_process *process)
{
    if (process->engine == NULL) {
        return SNIB__NEVER;
    }
    if (process->unpumped) {
        return process->frozen_until;
    }
    look_at_deadline(process);
    snib__time next = process->true_deadline;
    next = next > process->late_until ? next : process->late_until;
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
    snib__engine_tick(process->engine, sim_clock(process));
    process_go_on(process);
}

void process_run(struct sim_process *process)
{
    if (process->unpumped) {
        process_go_on(process);
        return;
    }
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
    look_at_deadline(process);
    process_touched(process);
    if (process->deadline <= sim_clock(process) && process->late_until <= sim.now) {
        tick(process);
        return;
    }
    for (int i = 0; i < SIM_TASKS; i++) {
        if (process->tasks[i].wake <= sim.now) {
            task_move(process, &process->tasks[i]);
            return;
        }
    }
}
