/* sim_check.c - what must be true of results and at every step, judged with full knowledge of the
 * server and of time.
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

/* In a stable world nothing takes longer than a few round trips, or the short sleeps of a waiter
 * whose subscription was refused. */
#define PROMPT SIM_PROMPT

static struct sim_owner *owner_of(struct sim_process *process, const struct sim_hold *hold)
{
    return check_owner(process, hold->number, hold->use.side);
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

/* ---- Results ------------------------------------------------------------------------------------ */

static snib__time latest(snib__time a, snib__time b)
{
    return a > b ? a : b;
}

static bool was_struck(const struct sim_owner *owner)
{
    return owner->ended == CAUSE_FORCED || owner->ended == CAUSE_MEMORY ||
           owner->ended == CAUSE_STEP;
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

void check_granted(struct sim_process *process, struct sim_task *task, const struct sim_hold *hold)
{
    if (task->cancelled) {
        sim_fail("%u: a cancelled operation has got the lock", process->id);
    }
    if (is_unowned(&hold->use)) {
        return;
    }
    const struct sim_owner *owner = owner_of(process, hold);
    check_attempts(process, hold->number, hold->use.side);
    if (snib__hold_fencing(hold->hold) != owner->token &&
        sim.names[hold->use.name].tokens_lost_at < owner->since) {
        sim_fail("%u:%llu got the token %lld, not %lld", process->id,
                 (unsigned long long)hold->number, (long long)snib__hold_fencing(hold->hold),
                 (long long)owner->token);
    }
    /* A fair lock's order is the server's: see sim_queue.c. */
    bool ordered = hold->use.kind != SNIB_READ && hold->use.kind != SNIB_PERMITS &&
                   hold->use.kind != SNIB_FAIR;
    for (int i = 0; i < SIM_TASKS; i++) {
        const struct sim_task *other = &process->tasks[i];
        if (ordered && hold->users == 1 && other->doing == DOING_WAIT &&
            other->use.gate == task->use.gate && other->order < task->order && !other->op->done) {
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

/* Since when the lock that the task waits for is available; SNIB__NEVER: it is not. */
static snib__time open_since(const struct sim_task *task, bool *out_told)
{
    snib__time since = 0;
    int level = truth_level(&task->use);
    *out_told = true;
    for (int i = 0; i < sim.name_count; i++) {
        const struct sim_name *name = &sim.names[i];
        if ((task->use.names >> i & 1) != 0) {
            int at = task->use.kind == SNIB__MULTI ? name->family == FAMILY_RW : level;
            since = latest(since, name->open_since[at]);
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
    snib__time open = alone ? open_since(task, &is_told) : SNIB__NEVER;
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

static bool may_happen(int fault)
{
    return (sim.enabled >> fault & 1) != 0;
}

/* What an operation may end with because of what goes wrong in this world, before it is stable. */
static bool is_explained(int32_t code)
{
    bool explained =
        code == SNIB_ECONNECT       ? true
        : code == SNIB_EUNREACHABLE ? true
        : code == SNIB_EREADONLY    ? may_happen(FAULT_READONLY) || may_happen(FAULT_MASTERDOWN)
        : code == SNIB_ELOADING
            ? may_happen(FAULT_LOADING) || may_happen(FAULT_BUSY) || may_happen(FAULT_MASTERDOWN)
        : code == SNIB_EOOM     ? may_happen(FAULT_OOM)
        : code == SNIB_EMISCONF ? may_happen(FAULT_MISCONF) || may_happen(FAULT_NOREPLICAS)
        : code == SNIB_EPERM
            ? may_happen(FAULT_NO_COMMAND) || may_happen(FAULT_SCRIPT_FLUSH) /* it went twice */
        : code == SNIB_EAUTH ? may_happen(FAULT_PASSWORD)
        : code == SNIB_ESERVER
            ? may_happen(FAULT_ERROR_AFTER) || may_happen(FAULT_OVERWRITE) /* no number */
        : code == SNIB_EWRONGTYPE ? may_happen(FAULT_OVERWRITE)
        : code == SNIB_ENOMEM     ? may_happen(FAULT_MEMORY)
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
                    !snib_code_is(code, SNIB_IS_MAYBE_APPLIED) && !owner->again &&
                    owner->attempts <= 1;
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
    const struct sim_owner *owner = owner_of(process, hold);
    bool is_asked = owner->asked_at >= hold->released_at;
    bool lasts = lasted(process, hold);
    bool given_back = owner->ended == CAUSE_RELEASED || owner->ended == CAUSE_TRANSFERRED;
    bool honest = code == SNIB_OK     ? (is_asked && owner->there) || (owner->releases > 0 && lasts)
                  : code == SNIB_LOST ? is_asked && !owner->there && !(given_back && lasts)
                                      : code < 0 && sim.now < sim.stable_at;
    totals.passed_on += code == SNIB_OK;
    if (!honest) {
        sim_fail("%u:%llu, which went on: release ended with %s", process->id,
                 (unsigned long long)hold->number, snib_code_name(code));
    }
}

void check_released(struct sim_process *process, const struct sim_hold *hold, int32_t code)
{
    struct sim_owner *owner = owner_of(process, hold);
    if (hold->hold->passed) {
        check_passed_on(process, hold, code);
        return;
    }
    /* A writer's next read may have been requested at the very moment of this answer. */
    int ended = owner->ended == CAUSE_NONE ? owner->ended_before : owner->ended;
    bool given_back = ended == CAUSE_RELEASED || ended == CAUSE_TRANSFERRED;
    bool gone = owner->present == 0;
    /* A reader with an expired lease may still have been found: no writer has come since. */
    given_back |= hold->use.kind == SNIB_READ && (ended == CAUSE_EXPIRED || ended == CAUSE_STEP);
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
                 (unsigned long long)hold->number, snib_code_name(code), ended);
    }
}

/* Since when the path between a process and the server is clear; SNIB__NEVER / 2: it is not. */
snib__time check_clear_since(const struct sim_process *process, int link)
{
    const struct sim_endpoint *end = &process->links[link];
    if (process->engine == NULL || end->pipe == NULL) {
        return SNIB__NEVER / 2;
    }
    return latest(latest(sim.disturbed_until, end->connected_at),
                  latest(process->frozen_until, process->late_until));
}

void check_lost(struct sim_process *process, const struct sim_hold *hold)
{
    const struct snib__hold *lost = hold->hold;
    const struct sim_owner *owner = owner_of(process, hold);
    bool honest = false;
    switch (lost->reason) {
    case SNIB_REASON_EXPIRED:
        honest = lost->lease_ms != 0 && sim_clock(process) >= lost->deadline;
        break;
    case SNIB_REASON_UNREACHABLE:
        honest = sim_clock(process) >= lost->deadline &&
                 sim.now < check_clear_since(process, SNIB__COMMAND) + PROMPT;
        break;
    case SNIB_REASON_TAKEN:
    case SNIB_REASON_DELETED:
        /* A permit whose lease was over comes back when the clock is set back; of several perhaps not all. */
        honest = owner->missed_at != 0 || owner->partly ||
                 (!at_server(owner) && (was_struck(owner) || owner->ended == CAUSE_EXPIRED));
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

/* ---- Every step --------------------------------------------------------------------------------- */

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
    const struct sim_owner *owner = owner_of(process, hold);
    bool is_kept;
    int64_t beyond = trusted_beyond(process, hold, false, &is_kept);
    if (hold->use.kind == SNIB_SEMAPHORE) {
        return; /* it has no lease */
    }
    if (owner->missed_at != 0 && !owner->unheard && sim.now > owner->missed_at + PROMPT &&
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
    if (!was_struck(owner) && !owner->aged) {
        sim_fail("%u:%llu is valid and not at the server, cause %d", process->id,
                 (unsigned long long)hold->number, owner->ended);
    }
    if (sim_true(process, hold->hold->deadline) > owner->since + owner->lease) {
        sim_fail("%u:%llu was taken away and its deadline still moves", process->id,
                 (unsigned long long)hold->number);
    }
    if (hold->hold->lease_ms == 0 &&
        sim.now > latest(latest(owner->since, sim.stable_at), process->frozen_until) +
                      sim.lease / 2 + PROMPT) {
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
    } else if (process->steps == sim.steps && !owner_of(process, hold)->aged &&
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
                   sim.now > latest(latest(sim_true(process, snib__hold_end(hold->hold)),
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
    snib__time clear =
        latest(check_clear_since(process, SNIB__COMMAND), check_clear_since(process, SNIB__PUBSUB));
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
    snib__time untold = PROMPT + process->recheck;
    if (sim.now <= task->submitted + (sim.prompt < untold ? sim.prompt : untold)) {
        return; /* before every limit below, and that is how most waits end */
    }
    snib__time since = open_since(task, &is_told);
    if (since == SNIB__NEVER || sim.now < since + sim.prompt || !is_first(process, task) ||
        has_itself(process, &task->use)) {
        return;
    }
    snib__time hears = hears_since(process);
    snib__time waits = task->submitted;
    for (int i = 0; i < sim.name_count; i++) {
        waits = (task->use.names >> i & 1) != 0 ? latest(waits, process->free_at[i]) : waits;
    }
    /* Messages of its own releases that were lost are still expected: as many of others are taken for them, at most until
     * the next re-check. */
    is_told &= since > hears && !may_happen(FAULT_MUTE);
    snib__time limit = is_told ? sim.prompt : untold;
    if (sim.now > latest(latest(waits, since), hears) + limit + fair_slack(process, task)) {
        sim_fail("%s is free and %u waits for it", sim.names[task->use.name].text, process->id);
    }
}

/* A hold that no operation wants is soon given back, even if only the server knew that it was
 * granted. */
static void check_unwanted(const struct sim_name *name)
{
    for (int i = 0; i < name->claim_count; i++) {
        const struct sim_claim *claim = &name->claims[i];
        const struct sim_owner *owner = truth_owner_of(claim);
        if (!owner->abandoned || owner->stray || claim->process->foreign || clock_keeps(claim)) {
            continue;
        }
        snib__time since = latest(latest(owner->abandoned_at, owner->since),
                                  check_clear_since(claim->process, SNIB__COMMAND));
        if (sim.now > since + PROMPT) {
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
    return sim.now > latest(latest(task->wait_ends, until),
                            latest(process->frozen_until, process->late_until));
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
    snib__time since = latest(latest(process->heard_at, task->submitted),
                              latest(process->frozen_until, process->late_until));
    snib__time asks = latest(config->recheck, config->lease / 2); /* something is sent by then */
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
        bool dead = name->queue_torn || may_happen(FAULT_CRASH) || may_happen(FAULT_CLOSE);
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

/* The state after everything is released and every lease is over. */
void check_end(void)
{
    model_key key;
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
