/* sim_check.c - what must be true at every step and at the end, judged with full knowledge of the server and of time.
 *
 * A hold whose share was taken away by force or by lost memory is excused from exclusion, which no
 * client can guarantee then, but its holder's deadline must not move any more.
 */
#include "sim.h"

#include "engine_check.h"

#include "engine/ask.h"
#include "engine/internal.h"
#include "locks/kind.h"
#include "snib.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* By how much the holder's deadline is later than the lease's end by the server's clock, read as it
 * is set, or else as if it had not been set since that lease began. */
static int64_t trusted_beyond(const struct sim_process *process, const struct sim_hold *hold,
                              bool as_is_set, bool *out_kept)
{
    snib__time deadline = sim_true(process, hold->hold->deadline);
    int64_t most = INT64_MIN;
    *out_kept = true;
    for (int i = 0; i < sim.name_count; i++) {
        if ((hold->use.names >> i & 1) == 0) {
            continue;
        }
        bool writes = hold->use.kind == SNIB__MULTI && sim.names[i].family == FAMILY_RW;
        const struct sim_claim *claim =
            truth_claim(&sim.names[i], process, hold->number, writes ? 1 : hold->use.side);
        if (claim == NULL) {
            *out_kept = false;
            return 0;
        }
        /* A clock that was set back does keep it for longer, and a repeated acquire finds nothing
         * to extend. */
        uint64_t unset = clock_unset(claim, deadline), as_set = sim_server_ns(deadline);
        int64_t beyond =
            (int64_t)((as_is_set || as_set < unset ? as_set : unset) - claim->expires_ns);
        most = beyond > most ? beyond : most;
    }
    return most;
}

/* Checks a hold that reports itself safe. */
static void check_valid(struct sim_process *process, const struct sim_hold *hold)
{
    const struct sim_owner *owner = check_owner_of(process, hold);
    bool is_kept;
    int64_t beyond = trusted_beyond(process, hold, false, &is_kept);
    if (hold->use.kind == SNIB_SEMAPHORE) {
        return; /* it has no lease */
    }
    if (owner->missed_at != 0 && !owner->unheard && sim.now > owner->missed_at + SIM_PROMPT &&
        check_clear_since(process, SNIB__COMMAND) <= owner->missed_at) {
        sim_fail("%u:%llu was not found by its renewal, which was not reported", process->id,
                 (unsigned long long)hold->number);
    }
    if (is_kept) {
        if (beyond > 0 && !owner->aged) {
            sim_fail("%u:%llu trusts its hold %lld us longer than the server keeps it", process->id,
                     (unsigned long long)hold->number, (long long)beyond / 1000);
        }
        return;
    }
    if (!check_struck(owner) && !owner->aged) {
        sim_fail("%u:%llu is valid and not at the server, cause %d", process->id,
                 (unsigned long long)hold->number, owner->ended);
    }
    if (sim_true(process, hold->hold->deadline) > owner->since + owner->lease) {
        sim_fail("%u:%llu was taken away and its deadline still moves", process->id,
                 (unsigned long long)hold->number);
    }
    if (hold->hold->lease_ms == 0 &&
        sim.now > sim_latest(sim_latest(owner->since, sim.stable_at), process->frozen_until) +
                      sim.lease / 2 + SIM_PROMPT) {
        sim_fail("%u:%llu was taken away unnoticed", process->id, (unsigned long long)hold->number);
    }
}

/* A hold that is free of doubt must have been granted or renewed since the last step of the clock
 * that was counted, or it has a fixed lease and was given what is left of that. */
static void check_alarm(struct sim_process *process, const struct sim_hold *hold)
{
    if (!clock_alarmed(process, hold->hold)) {
        return;
    }
    bool is_kept;
    if (hold->hold->lease_ms == 0 || (hold->hold->flags & SNIB__FIRST)) {
        sim_fail("%u:%llu is free of doubt, and the server's clock was set since its renewal",
                 process->id, (unsigned long long)hold->number);
    } else if (process->steps == sim.steps && !check_owner_of(process, hold)->aged &&
               trusted_beyond(process, hold, true, &is_kept) > 0 && is_kept) {
        sim_fail("%u:%llu is free of doubt, and ends earlier since the server's clock was set",
                 process->id, (unsigned long long)hold->number);
    }
}

/* A lost hold stays lost, for the same reason, with no time remaining; and no hold outlives its
 * limit. */
static void check_steady(const struct sim_process *process, struct sim_hold *hold, int state)
{
    snib__time now = sim_clock(process);
    bool is_safe = state == SNIB_HOLD_VALID || state == SNIB_HOLD_AT_RISK;
    int reason = state == SNIB_HOLD_LOST ? snib__hold_reason(hold->hold, now) : SNIB_REASON_NONE;
    if (hold->over && (state != SNIB_HOLD_LOST || reason != hold->reason)) {
        sim_fail("%u:%llu was lost (%s) and is %s", process->id, (unsigned long long)hold->number,
                 snib_reason_text(hold->reason),
                 state == SNIB_HOLD_LOST ? snib_reason_text(reason) : "held again");
    }
    if ((snib__hold_left(hold->hold, now) > 0) != is_safe) {
        sim_fail("%u:%llu: its state and the time that remains do not agree", process->id,
                 (unsigned long long)hold->number);
    }
    if (is_safe && now >= hold->limit) {
        sim_fail("%u:%llu is held for longer than it may be", process->id,
                 (unsigned long long)hold->number);
    }
    hold->over = state == SNIB_HOLD_LOST;
    hold->reason = reason;
}

static void check_holds(struct sim_process *process)
{
    snib__time now = sim_clock(process);
    for (int i = 0; i < SIM_HOLDS; i++) {
        struct sim_hold *hold = &process->holds[i];
        if (hold->users == 0) {
            continue;
        }
        int state = snib__hold_state(process->engine, hold->hold, now);
        check_steady(process, hold, state);
        if (state == SNIB_HOLD_VALID) {
            check_alarm(process, hold);
        }
        if (state == SNIB_HOLD_VALID || state == SNIB_HOLD_AT_RISK) {
            check_valid(process, hold);
        } else if (state == SNIB_HOLD_LOST && !hold->told &&
                   sim.now > sim_latest(sim_latest(sim_true(process, snib__hold_end(hold->hold)),
                                                   process->frozen_until),
                                        process->late_until)) {
            sim_fail("%u:%llu is over, which was not reported", process->id,
                     (unsigned long long)hold->number);
        }
    }
}

/* Whether the process holds the lock that its task waits for, so that its other tasks queue. */
static bool has_itself(const struct sim_process *process, const struct sim_use *use)
{
    for (int i = 0; i < SIM_HOLDS; i++) {
        const struct sim_hold *hold = &process->holds[i];
        if (hold->users > 0 && (hold->use.names & use->names) != 0 &&
            snib__hold_state(process->engine, hold->hold, sim_clock(process)) != SNIB_HOLD_LOST) {
            return true;
        }
    }
    return false;
}

/* Tasks of a process that wait for the same lock are served in turn. */
static bool is_first(const struct sim_process *process, const struct sim_task *task)
{
    for (int i = 0; i < SIM_TASKS; i++) {
        const struct sim_task *other = &process->tasks[i];
        if (other->doing == DOING_WAIT && other->order < task->order &&
            other->use.gate == task->use.gate) {
            return false;
        }
    }
    return true;
}

/* Since when a message about the lock reaches the process at once. */
static snib__time hears_since(const struct sim_process *process)
{
    snib__time clear = sim_latest(check_clear_since(process, SNIB__COMMAND),
                                  check_clear_since(process, SNIB__PUBSUB));
    return clear < sim.stable_at ? clear : sim.stable_at;
}

/* How long a fair lock may look free: the waiter at its head may be dead or slow, unless it is this
 * one. */
static snib__time fair_slack(const struct sim_process *process, const struct sim_task *task)
{
    const struct sim_name *name = &sim.names[task->use.name];
    bool is_next = name->queued_count > 0 && name->queued[0].process == process &&
                   name->queued[0].number == task->number;
    return task->use.kind == SNIB_FAIR && !is_next ? 3000 * SNIB__MS + (snib__time)clock_lag() : 0;
}

/* A waiter that hears of a free lock soon takes it.  An end without a message is found by a timer:
 * by the re-check if the waiter was told of a longer lease that has been handed over since. */
static void check_waiter(const struct sim_process *process, const struct sim_task *task)
{
    bool is_told;
    snib__time untold = SIM_PROMPT + process->recheck;
    if (sim.now <= task->submitted + (sim.prompt < untold ? sim.prompt : untold)) {
        return; /* before every limit below, and that is how most waits end */
    }
    snib__time since = check_open_since(task, &is_told);
    if (since == SNIB__NEVER || sim.now < since + sim.prompt || !is_first(process, task) ||
        has_itself(process, &task->use)) {
        return;
    }
    snib__time hears = hears_since(process);
    snib__time waits = task->submitted;
    for (int i = 0; i < sim.name_count; i++) {
        waits = (task->use.names >> i & 1) != 0 ? sim_latest(waits, process->next_at[i]) : waits;
    }
    /* Messages of its own releases that were lost are still expected: as many of others are taken for them, at most until
     * the next re-check. */
    is_told &= since > hears && !sim_may(FAULT_MUTE);
    snib__time limit = is_told ? sim.prompt : untold;
    if (sim.now > sim_latest(sim_latest(waits, since), hears) + limit + fair_slack(process, task)) {
        sim_fail("%s is free and %u waits for it", sim.names[task->use.name].text, process->id);
    }
}

/* A hold that no operation wants is soon given back, even if only the server knew that it was
 * granted; permits once their number, which another program has overwritten, is one again. */
static void check_unwanted(const struct sim_name *name)
{
    if (name->family == FAMILY_PERMITS && fault_is_overwritten(name)) {
        return;
    }
    for (int i = 0; i < name->claim_count; i++) {
        const struct sim_claim *claim = &name->claims[i];
        const struct sim_owner *owner = truth_owner_of(claim);
        if (!owner->abandoned || owner->stray || claim->process->foreign || clock_keeps(claim)) {
            continue;
        }
        snib__time since = sim_latest(sim_latest(owner->abandoned_at, owner->since),
                                      check_clear_since(claim->process, SNIB__COMMAND));
        if (sim.now > since + SIM_PROMPT) {
            sim_fail("%s is kept by %u:%llu, which no operation wants", name->text,
                     claim->process->id, (unsigned long long)claim->number);
        }
    }
}

/* Whether the lock is known to be held, so that a wait for it ends when it should. */
static bool is_known(const struct snib__op *op)
{
    const struct snib__hold *active = snib__gate_active(op->gate);
    bool told = active && active->phase == SNIB__TRYING && !(active->flags & SNIB__RESENT) &&
                active->op && active->op->told;
    return op->told || told || (active && active->phase == SNIB__HELD);
}

/* However short its wait, its first attempt may be answered within the patience of a single try. */
static bool waits_too_long(const struct sim_process *process, struct sim_task *task)
{
    bool known = is_known(task->op);
    if (!known || task->told_at == 0) {
        task->told_at = known ? sim.now : 0;
    }
    if (task->wait_ends == SNIB__NEVER) {
        return false;
    }
    snib__time until = known ? task->told_at : task->tries_until;
    return sim.now > sim_latest(sim_latest(task->wait_ends, until),
                                sim_latest(process->frozen_until, process->late_until));
}

/* Whenever nobody is inside an engine; not at each step, for that costs more than the step, and not
 * again before it is called. */
static void check_engine(struct sim_process *process)
{
    if (sim.events % 8 != 0 || !process->unchecked) {
        return;
    }
    const char *flaw = engine_flaw(process->engine);
    if (flaw != NULL) {
        sim_fail("%u: in the engine it is not true that %s", process->id, flaw);
    }
    process->unchecked = false;
}

/* While the server does not answer, patience ends: nothing waits for ever, whatever it waits for; unless the lock is this
 * process's own for a time of which the server need not be told.  Two clocks differ by 1 % at most. */
static bool is_out_of_patience(const struct sim_process *process, const struct sim_task *task)
{
    const struct snib__config *config = &process->engine->config;
    const struct snib__hold *active =
        task->use.gate != NULL ? snib__gate_active(task->use.gate) : NULL;
    bool fixed = active != NULL && active->phase == SNIB__HELD && active->lease_ms != 0;
    snib__time since = sim_latest(sim_latest(process->heard_at, task->submitted),
                                  sim_latest(process->frozen_until, process->late_until));
    snib__time asks =
        sim_latest(config->recheck, config->lease / 2); /* something is sent by then */
    snib__time most = asks + config->reply_timeout + config->patience;
    return task->doing == DOING_WAIT && task->op != NULL && !task->op->done && !fixed &&
           sim.now > since + most + most / 50;
}

void check_step(void)
{
    for (int i = 0; i < sim.slot_count; i++) {
        struct sim_process *process = sim.slots[i];
        if (process->engine == NULL) {
            continue;
        }
        check_engine(process);
        check_clock(process);
        check_holds(process);
        for (int j = 0; j < SIM_TASKS; j++) {
            struct sim_task *task = &process->tasks[j];
            if (is_out_of_patience(process, task)) {
                sim_fail("%u: task %d waits although the server has not answered for %llu ms",
                         process->id, j,
                         (unsigned long long)((sim.now - process->heard_at) / SNIB__MS));
            }
            if (task->doing != DOING_WAIT) {
                continue;
            }
            if (waits_too_long(process, task)) {
                sim_fail("%u: task %d waits longer than it wanted", process->id, j);
            }
            check_waiter(process, task);
        }
    }
    for (int i = 0; i < sim.name_count; i++) {
        check_unwanted(&sim.names[i]);
    }
}

/* A client that was closed in order has given back what it held; a stale data set may have it
 * again. */
void check_closed(struct sim_process *process)
{
    for (int i = 0; i < sim.name_count && snib__engine_quiet(process->engine); i++) {
        const struct sim_name *name = &sim.names[i];
        for (int j = 0; j < name->claim_count; j++) {
            const struct sim_claim *claim = &name->claims[j];
            const struct sim_owner *owner = truth_owner_of(claim);
            if (claim->process == process && owner->closed && !owner->stray &&
                !clock_keeps(claim)) {
                sim_fail("%u is closed and keeps %s", process->id, name->text);
            }
        }
    }
}

static bool is_named(const model_key *key, const char *text)
{
    return key->name.n == strlen(text) && memcmp(key->name.p, text, key->name.n) == 0;
}

/* Counters and tokens stay for ever, and expired permits are put back by the next client;
 * everything else goes with its last user. */
static bool may_stay(const model_key *key)
{
    for (int i = 0; i < sim.name_count; i++) {
        const struct sim_name *name = &sim.names[i];
        bool counts = name->family == FAMILY_SEMAPHORE || name->family == FAMILY_PERMITS;
        const char *text = counts ? name->text : name->token;
        /* Half a queue, or one whose waiters have crashed, or were closed while the server could not be reached, ends
         * minutes later; Redisson's never. */
        bool dead = name->queue_torn || sim_may(FAULT_CRASH) || sim_may(FAULT_CLOSE);
        bool half = dead && (name->alien || key->expires_ns != UINT64_MAX);
        if (half && (is_named(key, name->queue) || is_named(key, name->places))) {
            return true;
        }
        if (is_named(key, text) || (name->claim_count == 0 && is_named(key, name->taken))) {
            return true;
        }
    }
    return false;
}

/* A grant that reached no task is not an acquisition, and its end neither a release nor a loss; a
 * close may count as both. */
static void check_counts(const struct sim_process *process, const snib_client_stats_data *stats)
{
    uint64_t ended = stats->releases + stats->lost_expired + stats->lost_unreachable +
                     stats->lost_taken + stats->lost_deleted + stats->lost_max_hold;
    if (stats->acquisitions != process->granted || ended > stats->acquisitions) {
        sim_fail("%u counts %llu acquisitions and the end of %llu, not %llu", process->id,
                 (unsigned long long)stats->acquisitions, (unsigned long long)ended,
                 (unsigned long long)process->granted);
    }
}

/* Where nothing went wrong, no permit of a semaphore is gone, also none that the operator has put back meanwhile: those are
 * more than there were. */
static void check_permits(void)
{
    for (int i = 0; i < sim.name_count && sim.enabled == 0; i++) {
        const struct sim_name *name = &sim.names[i];
        int64_t free = truth_number_or_none(name);
        if (name->family == FAMILY_SEMAPHORE && free != name->total) {
            sim_fail("at the end %s has %lld permits of %lld", name->text, (long long)free,
                     (long long)name->total);
        }
    }
}

/* The state after everything is released and every lease is over. */
void check_end(void)
{
    model_key key;
    check_permits();
    for (size_t i = 0; model_key_at(sim.model, i, &key); i++) {
        if (!may_stay(&key)) {
            sim_fail("at the end there is %.*s", (int)key.name.n, key.name.p);
        }
    }
    if (model_channel_count(sim.model) != 0) {
        model_text channel = model_channel(sim.model);
        sim_fail("at the end %.*s still has a subscriber", (int)channel.n, channel.p);
    }
    for (int i = 0; i < sim.slot_count; i++) {
        snib_client_stats_data stats = {.size = sizeof stats};
        if (sim.slots[i]->engine == NULL) {
            continue;
        }
        snib__engine_stats(sim.slots[i]->engine, &stats);
        check_counts(sim.slots[i], &stats);
        if (stats.held != 0 || stats.waiting != 0 || !snib__engine_quiet(sim.slots[i]->engine)) {
            sim_fail("at the end %u holds %llu, waits for %llu", sim.slots[i]->id,
                     (unsigned long long)stats.held, (unsigned long long)stats.waiting);
        }
    }
}
