/* sim_result.c - what the results of operations may claim, judged with full knowledge of the server and of time. */
#include "sim.h"

#include "engine_check.h"

#include "engine/ask.h"
#include "engine/internal.h"
#include "locks/kind.h"
#include "snib.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define INSTANT 1000 /* between two times that are the same by another clock, at most */

struct sim_owner *check_owner_of(struct sim_process *process, const struct sim_hold *hold)
{
    return check_owner(process, hold->number, hold->use.side);
}

bool check_struck(const struct sim_owner *owner)
{
    return owner->ended == CAUSE_FORCED || owner->ended == CAUSE_MEMORY ||
           owner->ended == CAUSE_STEP;
}

static bool at_server(const struct sim_owner *owner)
{
    return owner->use.names != 0 && owner->present == owner->use.names;
}

/* Kinds whose holds have no owner at the server, or that have no holds. */
static bool is_unowned(const struct sim_use *use)
{
    return use->kind == SNIB_SEMAPHORE || use->kind == SNIB_LATCH;
}

/* Operations that failed while the server refused to take their holds back: as those leases end,
 * one by one, the first waiter asks again. */
static uint64_t given_up_since(const struct sim_process *process, snib__time at)
{
    uint64_t n = 0;
    for (int side = 0; side < SIM_SIDES; side++) {
        for (uint32_t i = 0; i < process->owner_cap[side]; i++) {
            const struct sim_owner *owner = &process->owners[side][i];
            n += owner->abandoned && owner->abandoned_at + 2 * sim.lease > at;
        }
    }
    return n;
}

/* A waiter asks a few times, 20 times a second, and at every message; again after a connection or
 * scripts were lost. */
static void check_attempts(struct sim_process *process, uint64_t number, int side)
{
    struct sim_owner *owner = check_owner(process, number, side);
    uint64_t messages = 0;
    for (int i = 0; i < sim.name_count; i++) {
        messages += sim.names[i].messages;
    }
    uint64_t most = 20 + 20 * ((sim.now - owner->first_sent) / (1000 * SNIB__MS)) + messages -
                    owner->messages_before + 2 * (process->connects - owner->connects_before) +
                    totals.faults[FAULT_SCRIPT_FLUSH] - sim.flushes_before;
    if (owner->attempts > most &&
        owner->attempts > most + given_up_since(process, owner->first_sent)) {
        sim_fail("%u:%llu has asked %u times in %llu ms", process->id, (unsigned long long)number,
                 owner->attempts, (unsigned long long)((sim.now - owner->first_sent) / SNIB__MS));
    }
}

/* Whether a waiter that came before the granted one has been passed over.  Attempts for permits go side by side, and some may
 * be put back between two of them; but none is sent while a waiter before it, which was refused or has not asked yet, sleeps. */
static bool is_overtaken(struct sim_process *process, const struct sim_task *other,
                         const struct sim_task *task)
{
    if (other->doing != DOING_WAIT || other->use.gate != task->use.gate ||
        other->order >= task->order || other->op->done) {
        return false;
    }
    if (task->use.kind != SNIB_PERMITS) {
        return true;
    }
    if (task->once || other->once || other->cancelled || other->attempt == NULL ||
        other->attempt->phase != SNIB__NEW) {
        return false;
    }
    snib__time tried_at = check_owner(process, task->number, task->use.side)->tried_at;
    return check_owner(process, other->number, other->use.side)->answered_at + INSTANT < tried_at;
}

void check_granted(struct sim_process *process, struct sim_task *task, const struct sim_hold *hold)
{
    if (task->cancelled) {
        sim_fail("%u: a cancelled operation has got the lock", process->id);
    }
    if (is_unowned(&hold->use)) {
        return;
    }
    const struct sim_owner *owner = check_owner_of(process, hold);
    check_attempts(process, hold->number, hold->use.side);
    if (snib__hold_fencing(hold->hold) != owner->token &&
        sim.names[hold->use.name].tokens_lost_at < owner->since) {
        sim_fail("%u:%llu got the token %lld, not %lld", process->id,
                 (unsigned long long)hold->number, (long long)snib__hold_fencing(hold->hold),
                 (long long)owner->token);
    }
    /* A fair lock's order is the server's: see sim_queue.c. */
    bool ordered = hold->use.kind != SNIB_READ && hold->use.kind != SNIB_FAIR;
    for (int i = 0; i < SIM_TASKS; i++) {
        if (ordered && hold->users == 1 && is_overtaken(process, &process->tasks[i], task)) {
            sim_fail("%u: task %d was overtaken by a later one", process->id, i);
        }
    }
}

/* A latch lets a waiter go only if it was open at some moment since the wait began. */
void check_passed(struct sim_process *process, const struct sim_task *task)
{
    const struct sim_name *name = &sim.names[task->use.name];
    if (task->cancelled ||
        (name->open_since[0] == SNIB__NEVER && name->shut_at < task->submitted)) {
        sim_fail("%u: %s let a waiter go and was never open", process->id, name->text);
    }
}

/* Whether the task's owner holds the read lock: it cannot write as well. */
static bool reads(const struct sim_process *process, const struct sim_task *task)
{
    for (int i = 0; i < SIM_HOLDS; i++) {
        const struct sim_hold *hold = &process->holds[i];
        if (hold->users > 0 && hold->use.kind == SNIB_READ && hold->use.name == task->use.name &&
            hold->hold->owner == task->owner) {
            return true;
        }
    }
    return false;
}

static bool waits_behind(const struct sim_process *process, const struct sim_task *task)
{
    for (int i = 0; i < SIM_TASKS; i++) {
        const struct sim_task *other = &process->tasks[i];
        if (other != task && other->doing == DOING_WAIT && other->use.gate == task->use.gate &&
            other->order < task->order) {
            return true;
        }
    }
    return false;
}

/* Whether the process can know of a holder without asking: it has or had the lock a moment ago, or
 * an earlier task of its own waits for it. */
static bool knows_itself(const struct sim_process *process, const struct sim_task *task)
{
    snib__time lately = process->decided_at - process->try_timeout - process->try_timeout / 50;
    for (int i = 0; i < SIM_HOLDS; i++) {
        const struct sim_hold *hold = &process->holds[i];
        if (hold->users > 0 && (hold->use.names & task->use.names) != 0 &&
            (!hold->released || hold->released_at > lately)) {
            return true;
        }
    }
    for (int i = 0; i < sim.name_count; i++) {
        if ((task->use.names >> i & 1) != 0 && process->free_at[i] > lately) {
            return true;
        }
    }
    return waits_behind(process, task);
}

/* Whether the process had the lock at some time since the task began. */
static bool had_it(const struct sim_process *process, const struct sim_task *task)
{
    for (int i = 0; i < SIM_HOLDS; i++) {
        const struct sim_hold *hold = &process->holds[i];
        if (hold->users > 0 && (hold->use.names & task->use.names) != 0 &&
            (!hold->released || hold->released_at >= task->submitted)) {
            return true;
        }
    }
    return false;
}

/* Whether the process knew of a holder at some time since the task began: it had the lock, an
 * earlier task of its own waits for it, or another attempt was refused.  That an attempt was granted
 * which nobody wants any more is no such knowledge. */
static bool knew_itself(const struct sim_process *process, const struct sim_task *task)
{
    if (had_it(process, task)) {
        return true;
    }
    for (int i = 0; i < sim.name_count; i++) {
        if ((task->use.names >> i & 1) != 0 && process->known_at[i] >= task->submitted) {
            return true;
        }
    }
    return waits_behind(process, task);
}

snib__time check_open_since(const struct sim_task *task, bool *out_told)
{
    snib__time since = 0;
    int level = truth_level(&task->use);
    *out_told = true;
    for (int i = 0; i < sim.name_count; i++) {
        const struct sim_name *name = &sim.names[i];
        if ((task->use.names >> i & 1) != 0) {
            int at = task->use.kind == SNIB__MULTI ? name->family == FAMILY_RW : level;
            since = sim_latest(since, name->open_since[at]);
            bool said = name->open_cause[at] == CAUSE_RELEASED ||
                        (name->open_cause[at] == CAUSE_COUNT && name->family >= FAMILY_SEMAPHORE);
            *out_told &= said && !name->alien && name->family != FAMILY_SPIN;
        }
    }
    return since;
}

/* BUSY must come from the server or from the process' own knowledge, not from waiting behind an
 * earlier use whose end the server has not confirmed; and it must have been true at some time of the
 * call: a reply to an earlier request may be as old as that.  Applies to kinds whose attempts wait
 * for each other. */
static void check_known(struct sim_process *process, const struct sim_task *task)
{
    int kind = task->use.kind;
    bool alone = kind != SNIB_FAIR && kind != SNIB_READ && kind != SNIB_PERMITS;
    bool asked = check_owner(process, task->number, task->use.side)->attempts > 0;
    if (alone && !asked && !knew_itself(process, task)) {
        sim_fail("%u:%llu got BUSY without a request to the server", process->id,
                 (unsigned long long)task->number);
    }
    bool is_told;
    /* A key may last a millisecond longer than what a lease had left. */
    snib__time open = alone ? check_open_since(task, &is_told) : SNIB__NEVER;
    if (open != SNIB__NEVER && open + 2 * SNIB__MS < task->submitted && !had_it(process, task) &&
        !waits_behind(process, task)) {
        sim_fail("%u:%llu got BUSY, and the lock was free all the time", process->id,
                 (unsigned long long)task->number);
    }
}

/* Whether the waiter's latest attempts were unanswered when the engine decided, and for how long: a process
 * that was stopped meanwhile reports that later.  One that is sent in the same step may come after it. */
static bool is_unanswered(struct sim_process *process, const struct sim_task *task,
                          struct sim_owner **owner, snib__time *out_for)
{
    if (task->number == 0 || is_unowned(&task->use)) {
        return false;
    }
    *owner = check_owner(process, task->number, task->use.side);
    snib__time since = (*owner)->unanswered_since;
    *out_for = process->decided_at > since ? process->decided_at - since : 0;
    return since != 0 && *out_for > 0;
}

/* Whether nothing is known of the lock's state: no attempt of the waiter has ever been answered, nor
 * one of an earlier waiter, or they have been unanswered for long. */
static bool is_unheard(struct sim_process *process, const struct sim_task *task)
{
    struct sim_owner *owner;
    snib__time since;
    return is_unanswered(process, task, &owner, &since) &&
           ((task->first && !owner->answered && !knows_itself(process, task)) ||
            since > process->try_timeout + process->try_timeout / 50);
}

/* Whether the other waits for the same lock, so that with one holder at a time the task depends on
 * its attempt; the task itself does. */
static bool is_ahead(const struct sim_task *other, const struct sim_task *task)
{
    return other->doing == DOING_WAIT && other->use.gate == task->use.gate &&
           (other == task || snib__gate_sole(task->use.gate));
}

/* TIMEDOUT claims that the lock was not free in time, so the attempt must have been answered; with
 * one holder at a time, also the attempt of the waiter ahead. */
static void check_timed_out(struct sim_process *process, const struct sim_task *task)
{
    bool unheard = is_unheard(process, task);
    for (int i = 0; i < SIM_TASKS; i++) {
        const struct sim_task *other = &process->tasks[i];
        unheard |= is_ahead(other, task) && is_unheard(process, other);
    }
    if (unheard) {
        sim_fail("%u:%llu got TIMEDOUT and no attempt has an answer", process->id,
                 (unsigned long long)task->number);
    }
}

/* What an operation may end with because of what goes wrong in this world, before it is stable. */
static bool is_explained(int32_t code)
{
    bool explained = code == SNIB_ECONNECT       ? true
                     : code == SNIB_EUNREACHABLE ? true
                     : code == SNIB_EREADONLY ? sim_may(FAULT_READONLY) || sim_may(FAULT_MASTERDOWN)
                     : code == SNIB_ELOADING  ? sim_may(FAULT_LOADING) || sim_may(FAULT_BUSY) ||
                                                   sim_may(FAULT_MASTERDOWN)
                     : code == SNIB_EOOM     ? sim_may(FAULT_OOM)
                     : code == SNIB_EMISCONF ? sim_may(FAULT_MISCONF) || sim_may(FAULT_NOREPLICAS)
                     : code == SNIB_EPERM    ? sim_may(FAULT_NO_COMMAND) ||
                                                sim_may(FAULT_SCRIPT_FLUSH) /* it went twice */
                     : code == SNIB_EAUTH ? sim_may(FAULT_PASSWORD)
                     : code == SNIB_ESERVER
                         ? sim_may(FAULT_ERROR_AFTER) || sim_may(FAULT_OVERWRITE) /* no number */
                     : code == SNIB_EWRONGTYPE ? sim_may(FAULT_OVERWRITE)
                     : code == SNIB_ENOMEM     ? sim_may(FAULT_MEMORY)
                                               : false;
    return explained && sim.now < sim.stable_at;
}

void check_not_granted(struct sim_process *process, const struct sim_task *task, int32_t code)
{
    bool honest = code == SNIB_BUSY        ? task->once
                  : code == SNIB_TIMEDOUT  ? sim.now >= task->wait_ends
                  : code == SNIB_CANCELLED ? task->cancelled
                  : code == SNIB_ECLOSED   ? process->gone_at != SNIB__NEVER
                  : code == SNIB_EUPGRADE  ? task->use.kind == SNIB_WRITE && reads(process, task)
                  : code == SNIB_EPERMITS  ? task->use.kind == SNIB_PERMITS && sim.enabled != 0
                  : code == SNIB_EPROTOCOL ? false /* no server here speaks nonsense */
                                           : is_explained(code);
    /* See check_released(). */
    honest |= code == SNIB_EUNREACHABLE && is_unowned(&task->use) && process->left_at == sim.now;
    if (!honest) {
        sim_fail("%u: an acquire ended with %s", process->id, snib_code_name(code));
    }
    process->takes[task->use.name] -= task->use.kind == SNIB_SEMAPHORE && code == SNIB_BUSY;
    if (task->number == 0 || is_unowned(&task->use)) {
        return;
    }
    struct sim_owner *owner = check_owner(process, task->number, task->use.side);
    if (code == SNIB_BUSY && at_server(owner) && !owner->stray) {
        sim_fail("%u:%llu got BUSY and has the lock", process->id,
                 (unsigned long long)task->number);
    }
    if (code == SNIB_BUSY) {
        check_known(process, task);
    } else if (code == SNIB_TIMEDOUT) {
        check_timed_out(process, task);
    }
    /* A refusal is of the last attempt: one before it whose reply was lost may have worked, and is undone.  So it is where
     * memory was missing to send another one. */
    owner->denied = code < 0 && code != SNIB_ECLOSED && code != SNIB_ENOMEM &&
                    !snib_code_is(code, SNIB_IS_MAYBE_APPLIED) && owner->attempts <= 1;
    if (owner->denied && owner->present != 0 && !owner->stray) {
        sim_fail("%u:%llu got %s, as if nothing had been applied, and has the lock", process->id,
                 (unsigned long long)task->number, snib_code_name(code));
    }
    owner->abandoned = true;
    owner->abandoned_at = sim.now;
    check_attempts(process, task->number, task->use.side);
}

/* Only what the client said about itself, or nothing. */
void check_identity(const struct sim_process *process, const struct snib__op *op)
{
    const snib_texts *texts = op->asked->texts;
    bool known = texts->count > 0;
    char uuid[37] = "";
    if (known) {
        snprintf(uuid, sizeof uuid, "%.36s", op->asked->text + strlen("snib_client:{"));
    }
    totals.identified += known;
    if (known && !engine_says(texts, uuid)) {
        sim_fail("%u: a client is told to be %s", process->id, texts->text);
    }
}

/* An extension promises at least the new lease, and only a hold that is lost refuses it. */
void check_extended(const struct sim_process *process, const struct sim_task *task)
{
    const struct snib__hold *hold = task->hold->hold;
    int32_t code = task->op->code;
    bool is_held = hold->phase == SNIB__HELD, alone = task->hold->users == 1;
    bool honest = code == SNIB_OK     ? !is_held || !alone || hold->deadline >= task->extends_to
                  : code == SNIB_LOST ? !is_held && task->op->reason == hold->reason
                  : code == SNIB_CANCELLED
                      ? task->cancelled
                      : code < 0 && (sim.now < sim.stable_at || process->gone_at != SNIB__NEVER);
    if (!honest) {
        sim_fail("%u:%llu: an extension ended with %s", process->id,
                 (unsigned long long)task->hold->number, snib_code_name(code));
    }
}

/* Whether the lease could not have ended when the engine came to the result: a process that was stopped since learns of it
 * later. */
static bool lasted(const struct sim_process *process, const struct sim_hold *hold)
{
    return sim_clock_at(process->decided_at, process->clock_ppm) < hold->hold->deadline;
}

/* The number of the hold went on to another.  Its release says what the server said of the number after the hold had
 * ended; if that was repeated, the other's release may have come before. */
static void check_passed_on(struct sim_process *process, const struct sim_hold *hold, int32_t code)
{
    const struct sim_owner *owner = check_owner_of(process, hold);
    bool is_asked = owner->asked_at >= hold->released_at;
    bool lasts = lasted(process, hold);
    bool given_back = owner->ended == CAUSE_RELEASED || owner->ended == CAUSE_TRANSFERRED;
    int reason = (int)hold->hold->reason;
    bool blames = reason == SNIB_REASON_DELETED ||
                  reason == SNIB_REASON_TAKEN; /* a lease may end by itself */
    bool is_over = sim_clock(process) >= hold->hold->deadline;
    bool honest = code == SNIB_OK ? (is_asked && owner->there) || (owner->releases > 0 && lasts)
                  : code == SNIB_LOST
                      ? is_asked && !owner->there && !(given_back && lasts) && !(blames && is_over)
                      : code < 0 && sim.now < sim.stable_at;
    totals.passed_on += code == SNIB_OK;
    if (!honest) {
        sim_fail("%u:%llu, which went on: release ended with %s", process->id,
                 (unsigned long long)hold->number, snib_code_name(code));
    }
}

void check_released(struct sim_process *process, const struct sim_hold *hold, int32_t code)
{
    struct sim_owner *owner = check_owner_of(process, hold);
    if (hold->hold->passed) {
        check_passed_on(process, hold, code);
        return;
    }
    bool given_back = owner->ended == CAUSE_RELEASED || owner->ended == CAUSE_TRANSFERRED;
    bool gone = owner->present == 0;
    /* A reader with an expired lease may still have been found: no writer has come since. */
    given_back |= hold->use.kind == SNIB_READ &&
                  (owner->ended == CAUSE_EXPIRED || owner->ended == CAUSE_STEP);
    /* After a lost reply the second try cannot know what the first one found; while the lease
     * cannot have ended, it was the first that released. */
    bool lasts = lasted(process, hold);
    /* What a release found or missed may be back when its reply arrives: an acquisition came later
     * over a connection that could not be killed, or a stale data set has it. */
    bool honest =
        code == SNIB_OK ? given_back || owner->found ||
                              ((gone || owner->missed) && owner->releases > 1 && lasts)
        : code == SNIB_LOST
            ? owner->missed ||
                  (gone && (!given_back || owner->releases > 1 || hold->use.kind == SNIB_READ))
            : is_explained(code);
    if (is_unowned(
            &hold->use)) { /* what was sent behind a refused login is in doubt, however late that shows */
        honest = code == SNIB_OK || (code < 0 && sim.now < sim.stable_at) ||
                 (code == SNIB_EUNREACHABLE && process->left_at == sim.now);
    }
    if (!honest) {
        sim_fail("%u:%llu: release ended with %s, cause %d", process->id,
                 (unsigned long long)hold->number, snib_code_name(code), owner->ended);
    }
}

snib__time check_clear_since(const struct sim_process *process, int link)
{
    const struct sim_endpoint *end = &process->links[link];
    if (process->engine == NULL || end->pipe == NULL) {
        return SNIB__NEVER / 2;
    }
    return sim_latest(sim_latest(sim.disturbed_until, end->connected_at),
                      sim_latest(process->frozen_until, process->late_until));
}

void check_lost(struct sim_process *process, const struct sim_hold *hold)
{
    const struct snib__hold *lost = hold->hold;
    const struct sim_owner *owner = check_owner_of(process, hold);
    bool honest = false;
    switch (lost->reason) {
    case SNIB_REASON_EXPIRED:
        honest = lost->lease_ms != 0 && sim_clock(process) >= lost->deadline;
        break;
    case SNIB_REASON_UNREACHABLE:
        honest = sim_clock(process) >= lost->deadline &&
                 sim.now < check_clear_since(process, SNIB__COMMAND) + SIM_PROMPT;
        break;
    case SNIB_REASON_TAKEN:
    case SNIB_REASON_DELETED:
        /* A permit whose lease was over comes back when the clock is set back; of several perhaps not all. */
        honest = owner->missed_at != 0 || owner->partly ||
                 (!at_server(owner) && (check_struck(owner) || owner->ended == CAUSE_EXPIRED));
        break;
    case SNIB_REASON_MAX_HOLD:
        honest = lost->max_hold_ms != 0 &&
                 sim_clock(process) >= lost->acquired_at + lost->max_hold_ms * SNIB__MS;
        break;
    case SNIB_REASON_CLOSED:
        honest = process->gone_at != SNIB__NEVER;
        break;
    default:
        break;
    }
    if (hold->told || hold->released || !honest ||
        snib__hold_state(process->engine, lost, sim_clock(process)) != SNIB_HOLD_LOST) {
        sim_fail("%u:%llu was reported lost (%s)%s%s", process->id,
                 (unsigned long long)hold->number, snib_reason_text(lost->reason),
                 hold->told ? " again" : "", hold->released ? " after its release" : "");
    }
}
