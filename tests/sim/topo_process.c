/* topo_process.c - processes: an engine each, with a driver, the pump, that carries out the
 * requests of all its links and delivers bytes and results. */
#include "topo.h"

#include "locks/kind.h"
#include "snib.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Birth and end ------------------------------------------------------------------------------ */

static void get_gates(struct topo_process *process)
{
    char members[256];
    size_t n = 0;
    for (int i = 0; i < topo.name_count; i++) {
        const struct topo_name *name = &topo.names[i];
        process->gates[i][0] =
            snib__gate_get(process->engine, topo_kinds[name->family], name->text, name->n);
        if (name->family == TOPO_RW) {
            process->gates[i][1] = snib__gate_get(process->engine, SNIB_WRITE, name->text, name->n);
        }
        if ((topo.multi_names >> i & 1) != 0) {
            char letter = name->family == TOPO_MUTEX    ? 'm'
                          : name->family == TOPO_FENCED ? 'f'
                                                        : 'w';
            n += (size_t)snprintf(members + n, sizeof members - n, "%c%s", letter, name->text) + 1;
        }
    }
    if (topo.multi) {
        process->multi = snib__gate_get(process->engine, SNIB__MULTI, members, n);
    }
}

struct topo_process *process_new(int slot)
{
    struct topo_process *process = calloc(1, sizeof *process);
    if (process == NULL) {
        abort();
    }
    process->id = topo.process_count;
    topo.processes[topo.process_count++] = process;
    topo.slots[slot] = process;
    snprintf(process->uuid, sizeof process->uuid, "%08x-0000-8000-8000-%012llx", process->id,
             (unsigned long long)(topo.seed & 0xffffffffffff));
    snib__time patience = topo_between(1000 * SNIB__MS, 8000 * SNIB__MS);
    struct snib__config config = {.topology = topo.topology,
                                  .seeds = topo.seeds,
                                  .seeds_n = topo.seed_count,
                                  .service = "orders-db",
                                  .seed = topo_draw(UINT64_MAX),
                                  .first_number = 1,
                                  .lease = topo.lease,
                                  .reply_timeout = topo_between(200 * SNIB__MS, 3000 * SNIB__MS),
                                  .patience = patience,
                                  .try_timeout = patience / 3,
                                  .recheck = topo.recheck,
                                  .handover_max = topo_chance(3) && !topo.again ? 0 : 16,
                                  .durability = topo.durability,
                                  .durability_policy = topo.durability_policy,
                                  .durability_timeout = topo.lease / 6,
                                  .lanes = 1,
                                  .scatter = true,
                                  .ops_max = 1000};
    if (topo_chance(2) || topo.focus == TOPO_FORMER) {
        config.lanes = 1 + (int32_t)topo_draw(4);
    }
    if (topo.focus == TOPO_FORMER && config.lanes == 1) {
        config.lanes = 4;
    }
    config.tenure = process->id % 4 != 3 && !topo.again; /* else it hands over */
    memcpy(config.uuid, process->uuid, sizeof config.uuid);
    snprintf(process->identity, sizeof process->identity, "host %s\n", process->uuid);
    config.identity = topo.known ? process->identity : NULL;
    config.wall_offset = 1000 * SNIB__MS;
    process->engine = snib__engine_new(&config);
    snib__engine_log_level(process->engine, SNIB_LOG_INFO);
    get_gates(process);
    for (int i = 0; i < TOPO_TASKS; i++) {
        process->tasks[i].wake =
            i < topo.task_count ? topo.now + topo_draw(topo.think) : SNIB__NEVER;
    }
    process->counted_since = topo.now;
    topo_trace("%u begins", process->id);
    process_pump(process);
    return process;
}

/* Dies abruptly, as by kill -9. */
void process_crash(struct topo_process *process)
{
    topo_trace("%u is dead", process->id);
    process->dead = true;
    for (int i = 0; i < process->end_count; i++) {
        net_close(&process->ends[i]);
    }
    lives_free(&process->lives);
    snib__engine_free(process->engine);
    process->engine = NULL;
    memset(process->tasks, 0, sizeof process->tasks);
    memset(process->holds, 0, sizeof process->holds);
}

/* The program closes the client, and goes on until that has given back what it has. */
void process_close(struct topo_process *process)
{
    topo_trace("%u closes", process->id);
    process->closed_at = topo.now;
    topo.closing++;
    topo_totals.closed++;
    snib__engine_close(process->engine, topo.now);
    process_pump(process);
}

/* Nothing of a closed client's is under way any more. */
bool process_is_over(const struct topo_process *process)
{
    for (int i = 0; i < TOPO_TASKS; i++) {
        if (process->tasks[i].doing != TOPO_RESTS) {
            return false;
        }
    }
    return process->closed_at != 0 && snib__engine_quiet(process->engine);
}

void process_free(struct topo_process *process)
{
    lives_free(&process->lives);
    snib__engine_free(process->engine);
    free(process);
}

bool process_is_idle(const struct topo_process *process)
{
    for (int i = 0; i < TOPO_TASKS; i++) {
        if (process->tasks[i].doing != TOPO_RESTS) {
            return false;
        }
    }
    return process->closed_at == 0;
}

/* ---- Holds -------------------------------------------------------------------------------------- */

static struct topo_hold *find_hold(struct topo_process *process, const struct snib__hold *hold)
{
    for (int i = 0; i < TOPO_HOLDS; i++) {
        if (process->holds[i].hold == hold) {
            return &process->holds[i];
        }
    }
    topo_fail("%u has no such hold, or no room for one more", process->id);
}

/* One task has finished with the hold; the last one gives it back to the engine. */
void process_leave_hold(struct topo_process *process, struct topo_hold *hold)
{
    if (--hold->users > 0) {
        return;
    }
    if (hold->hold->phase == SNIB__LOST && !hold->told) {
        topo_fail("%u:%llu was lost without being reported", process->id,
                  (unsigned long long)hold->number);
    }
    struct snib__hold *engines = hold->hold;
    *hold = (struct topo_hold){0};
    snib__hold_drop(process->engine, engines, topo.now);
}

static void take_hold(struct topo_process *process, struct topo_task *task)
{
    struct snib__hold *granted = task->op->hold;
    struct topo_hold *hold = NULL;
    for (int i = 0; i < TOPO_HOLDS && hold == NULL; i++) {
        hold = process->holds[i].hold == granted ? &process->holds[i] : NULL;
    }
    bool is_new = hold == NULL;
    if (is_new) {
        hold = find_hold(process, NULL);
        snib__time submitted = task->submitted;
        for (int i = 0; i < TOPO_HOLDS; i++) { /* it may go on under the number of one before it */
            const struct topo_hold *other = &process->holds[i];
            if (other->users > 0 && other->number == granted->number &&
                other->submitted < submitted) {
                submitted = other->submitted;
            }
        }
        *hold = (struct topo_hold){
            .hold = granted, .use = task->use, .number = granted->number, .submitted = submitted};
        hold->owner_n = (size_t)snprintf(hold->owner, sizeof hold->owner, "%s:%llu", process->uuid,
                                         (unsigned long long)hold->number);
        granted->tell = 1;
        topo_totals.granted++;
        topo_totals.within += (task->op->hold->flags & SNIB__JOINS) != 0;
        topo_totals.by_family[topo.names[task->use.name].family] += task->use.kind != SNIB__MULTI;
        topo_totals.multis += task->use.kind == SNIB__MULTI;
    }
    hold->users++;
    task->hold = hold;
    task->doing = TOPO_HOLDS_IT;
    task->wake = topo.now + task_hold_for();
    process->granted_at = topo.now;
    topo_trace("%u task %d has %llu%s, for %.1f ms", process->id, (int)(task - process->tasks),
               (unsigned long long)hold->number, is_new ? "" : " again",
               (double)(granted->deadline - topo.now) / 1e6);
    if (is_new) {
        check_granted(process, task, hold);
    }
}

/* ---- Completions -------------------------------------------------------------------------------- */

static void complete(struct topo_process *process, struct snib__op *op)
{
    struct topo_task *task = process->tasks;
    while (task < process->tasks + TOPO_TASKS && task->op != op) {
        task++;
    }
    if (task == process->tasks + TOPO_TASKS) {
        topo_fail("%u: an unknown operation ended", process->id);
    }
    topo.hash = (topo.hash ^ (uint32_t)op->code) * 0x100000001b3ULL;
    topo_trace("%u task %d: %s%s%s", process->id, (int)(task - process->tasks),
               snib_code_name(op->code), op->words != NULL ? ": " : "",
               op->words != NULL ? op->words : "");
    check_reason(process, op);
    topo_totals.busy += op->code == SNIB_BUSY;
    topo_totals.timed_out += op->code == SNIB_TIMEDOUT;
    topo_totals.cancelled += op->code == SNIB_CANCELLED;
    topo_totals.failed += op->code < 0;
    if (task->doing == TOPO_WAITS && op->code == SNIB_OK) {
        take_hold(process, task);
    } else if (task->doing == TOPO_EXTENDS) {
        topo_totals.extended += op->code == SNIB_OK;
        check_extended(process, task);
        task->doing = TOPO_HOLDS_IT;
        task->cancelled = false;
        task->wake = topo.now + task_hold_for();
    } else if (task->doing == TOPO_RELEASES) {
        topo_totals.released += op->code == SNIB_OK;
        check_released(process, task->hold, op->code);
        if (op->code < 0 && topo.now > topo.stable_at) {
            topo_fail("%u: a release ended with %s", process->id, snib_code_name(op->code));
        }
        process_leave_hold(process, task->hold);
        task_rest(task);
    } else {
        if (op->kind == SNIB__OP_IDENTITY && op->code == SNIB_OK) {
            check_identity(process, op);
        }
        if (op->kind == SNIB__OP_LIST) {
            check_listing(process, op);
        }
        check_not_granted(process, task, op->code);
        task_rest(task);
    }
    check_progress(process);
    task->op = NULL;
    snib__op_free(process->engine, op);
}

static void take_lost(struct topo_process *process, struct snib__hold *lost)
{
    struct topo_hold *hold = find_hold(process, lost);
    topo_trace("%u:%llu is lost: %s", process->id, (unsigned long long)hold->number,
               snib_reason_text(lost->reason));
    topo.hash = (topo.hash ^ lost->reason) * 0x100000001b3ULL;
    topo_totals.lost++;
    check_lost(process, hold);
    check_progress(process);
    hold->told = true;
}

static struct topo_end *end_of(struct topo_process *process, struct snib__link *link)
{
    struct topo_end *end = snib__link_transport(link);
    if (end == NULL) {
        if (process->end_count == TOPO_ENDS) {
            topo_fail("%u has too many links", process->id);
        }
        end = &process->ends[process->end_count++];
        *end = (struct topo_end){.link = link, .process = process};
        snib__link_set_transport(link, end);
    }
    return end;
}

/* Trace what is sent, in words. */
static void trace_words(const struct topo_end *end, const char *bytes, size_t n)
{
    char text[300];
    size_t at = 0;
    for (size_t i = 0; topo.trace && i < n && at + 1 < sizeof text; i++) {
        bool control = bytes[i] < ' ' || bytes[i] == 127;
        text[at] = control ? ' ' : bytes[i];
        at += !control || (at > 0 && text[at - 1] != ' ');
    }
    text[at] = '\0';
    topo_trace("%u says to %d: %s", end->process->id, end->server, text);
}

static bool carry(struct topo_process *process)
{
    bool more = false;
    for (struct snib__link *link = snib__engine_links(process->engine); link != NULL;
         link = snib__link_next(link)) {
        struct topo_end *end = end_of(process, link);
        int wish = snib__engine_take_wish(process->engine, link);
        if (wish == SNIB__WISH_CLOSE) {
            net_close(end);
        } else if (wish == SNIB__WISH_CONNECT) {
            net_connect(end);
        }
        struct snib__buf *out = snib__link_output(link);
        size_t n = snib__buf_size(out);
        if (n > 0) {
            trace_words(end, out->data + out->head, n);
            net_send(end, out->data + out->head, n);
            snib__buf_consume(out, n);
            check_sent(process);
        }
        more |= n > 0 || wish != SNIB__WISH_NOTHING;
    }
    return more;
}

/* The engine was called. */
static void touched(struct topo_process *process)
{
    process->is_known = false;
    process->unchecked = true;
}

void process_pump(struct topo_process *process)
{
    bool more = true;
    touched(process);
    lives_look(&process->lives, process->engine);
    while (more) {
        more = carry(process);
        struct snib__op *op = snib__engine_take_done(process->engine);
        struct snib__hold *lost = snib__engine_take_lost(process->engine);
        int32_t level;
        const char *words = snib__engine_take_log(process->engine, &level);
        if (words != NULL) {
            topo_trace("%u logs: %s", process->id, words);
        }
        if (op != NULL) {
            lives_done(&process->lives, op);
            complete(process, op);
        }
        if (lost != NULL) {
            take_lost(process, lost);
        }
        more |= op != NULL || lost != NULL || words != NULL;
        lives_look(&process->lives, process->engine);
    }
}

/* ---- Time --------------------------------------------------------------------------------------- */

/* The engine's deadline, looked at once for as long as it is not called. */
static snib__time deadline_of(struct topo_process *process)
{
    if (!process->is_known) {
        process->deadline = snib__engine_deadline(process->engine);
        process->is_known = true;
    }
    assert(process->deadline == snib__engine_deadline(process->engine));
    return process->deadline;
}

snib__time process_next(struct topo_process *process)
{
    snib__time next = deadline_of(process);
    next = next > process->late_until ? next : process->late_until;
    for (int i = 0; i < TOPO_TASKS; i++) {
        next = process->tasks[i].wake < next ? process->tasks[i].wake : next;
    }
    return next > process->frozen_until ? next : process->frozen_until;
}

void process_run(struct topo_process *process)
{
    bool ticks = deadline_of(process) <= topo.now && process->late_until <= topo.now;
    touched(process);
    if (ticks) {
        process->ticks = process->last_tick == topo.now ? process->ticks + 1 : 1;
        process->last_tick = topo.now;
        if (process->ticks > 1000) {
            topo_fail("%u: the engine's deadline does not move", process->id);
        }
        snib__engine_tick(process->engine, topo.now);
        process_pump(process);
        return;
    }
    for (int i = 0; i < TOPO_TASKS; i++) {
        if (process->tasks[i].wake <= topo.now) {
            task_move(process, &process->tasks[i]);
            return;
        }
    }
}
