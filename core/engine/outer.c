/* outer.c - holds and operations carried outside the engine: locks made of several clients' locks.
 *
 * To the API they are like all others: cancelled, timed out, waited for, lost and released in the
 * same way.  The engine reports what happens to them to the carrier (core/api/group.c), which
 * answers through the functions here.
 */
#include "engine/ask.h"
#include "engine/internal.h"

#include <stdlib.h>
#include <string.h>

bool snib__outer_is(const struct snib__gate *gate)
{
    return gate && gate->kind->kind == SNIB__OUTER;
}

/* The oldest extension that waits for the carrier; NULL: none. */
static struct snib__op *outer_extending(const struct snib__engine *e, const struct snib__hold *hold)
{
    struct snib__op *oldest = NULL;
    for (struct snib__op *op = e->extending > 0 ? e->live : NULL; op; op = op->live_next)
        if (op->kind == SNIB__OP_EXTEND && op->asked && op->asked->hold == hold &&
            op->asked->number == hold->number && (!oldest || op->serial < oldest->serial))
            oldest = op;
    return oldest;
}

static void outer_end_extensions(struct snib__engine *e, const struct snib__hold *hold,
                                 int32_t code)
{
    struct snib__op *op;
    while ((op = outer_extending(e, hold)))
        snib__op_done(e, op, code);
}

/* Something has happened to the hold: its carrier must look. */
void snib__outer_tell(struct snib__engine *e, struct snib__hold *hold)
{
    struct snib__outer *outer = hold->outer;
    if (!outer)
        return;
    /* the carrier has no part in it any more */
    if (hold->phase == SNIB__LOST || hold->phase == SNIB__GONE) {
        outer->ended = true;
        outer->abandoned = hold->phase == SNIB__GONE;
        hold->outer = NULL;
        if (outer->abandoned)
            outer_end_extensions(e, hold, SNIB_NOT_HELD);
    }
    if (outer->listed)
        return;
    outer->listed = true;
    outer->next = e->outers;
    e->outers = outer;
}

struct snib__outer *snib__engine_take_outer(struct snib__engine *e)
{
    struct snib__outer *outer = e->outers;
    if (outer) {
        e->outers = outer->next;
        outer->listed = false;
    }
    return outer;
}

void snib__outer_acquire(struct snib__engine *e, struct snib__op *op, struct snib__outer *outer)
{
    struct snib__hold *hold = op->hold;
    snib__gate_join(hold);
    hold->outer = outer;
    outer->hold = hold;
    hold->phase = SNIB__TRYING;
    op->stage = SNIB__STAGE_OUTER;
    op->waited = true;
    snib__outer_tell(e, hold);
    snib__op_arm(e, op);
}

bool snib__outer_wanted(const struct snib__outer *outer)
{
    return !outer->ended && outer->hold->op && outer->hold->phase == SNIB__TRYING;
}

bool snib__outer_releasing(const struct snib__outer *outer)
{
    return !outer->ended && outer->hold->phase == SNIB__RELEASING;
}

bool snib__outer_granted(struct snib__engine *e, struct snib__outer *outer, snib__time deadline,
                         snib__time now)
{
    struct snib__hold *hold = outer->hold;
    if (!snib__outer_wanted(outer) || deadline <= now)
        return false;
    struct snib__op *op = hold->op;
    hold->phase = SNIB__HELD;
    hold->deadline = deadline;
    outer->span = deadline - now;
    hold->acquired_at = now;
    hold->count = 1;
    hold->op = NULL;
    hold->flags |= SNIB__HANDED;
    hold->users = 1;
    e->stats.acquisitions++;
    e->stats.held++;
    snib__histogram_add(e->stats.wait_time, now - op->started);
    snib__hold_arm(e, hold, now);
    snib__op_done(e, op, SNIB_OK);
    for (struct snib__hold *peer = hold->gate->peers, *next; peer; peer = next) {
        next = peer->peer_next;
        if (peer->op && peer->op->kind == SNIB__OP_ACQUIRE && peer->op->owner == hold->owner)
            snib__gate_joins(e, peer->op, now); /* its carrier lets go of what it has */
    }
    return true;
}

void snib__outer_timed(struct snib__engine *e, struct snib__outer *outer, snib__time deadline,
                       snib__time now)
{
    struct snib__hold *hold = outer->hold;
    if (outer->ended || hold->phase != SNIB__HELD || hold->deadline == deadline ||
        snib__hold_over(e, hold, now))
        return;
    hold->deadline = deadline;
    if (deadline > now + outer->span)
        outer->span = deadline - now;
    snib__hold_arm(e, hold, now);
}

void snib__outer_lost(struct snib__engine *e, struct snib__outer *outer, int32_t reason,
                      snib__time now)
{
    if (!outer->ended && outer->hold->phase == SNIB__HELD && !snib__hold_over(e, outer->hold, now))
        snib__hold_lose(e, outer->hold, reason, now);
}

static void outer_explain(const struct snib__outer *outer, struct snib__op *op)
{
    char *words = op && outer->why ? strdup(outer->why) : NULL;
    if (!words)
        return;
    free(op->words);
    op->words = words;
    op->server = outer->server;
    op->os_error = outer->os_error;
    op->explained = true;
}

void snib__outer_ended(struct snib__engine *e, struct snib__outer *outer, int32_t code,
                       snib__time now)
{
    struct snib__hold *hold = outer->hold;
    if (outer->ended)
        return;
    outer_explain(outer, hold->op);
    outer->ended = true;
    hold->outer = NULL;
    outer_end_extensions(e, hold, SNIB_NOT_HELD);
    if (hold->phase == SNIB__RELEASING) {
        hold->reason = code == SNIB_LOST ? (unsigned)outer->reason & 7u : 0;
        if (code == SNIB_LOST)
            snib__hold_found_lost(e, hold, now);
        snib__gate_released(e, hold, code, now);
    } else {
        if (hold->op)
            snib__gate_end_op(e, hold->op, code);
        snib__gate_forget_hold(e, hold);
    }
}

void snib__outer_extend(struct snib__engine *e, struct snib__op *op)
{
    op->stage = SNIB__STAGE_OUTER;
    snib__outer_tell(e, op->asked->hold);
    snib__op_arm(e, op);
}

uint64_t snib__outer_extension(const struct snib__engine *e, const struct snib__outer *outer,
                               snib__time *out_lease)
{
    bool held = !outer->ended && outer->hold->phase == SNIB__HELD;
    const struct snib__op *op = held ? outer_extending(e, outer->hold) : NULL;
    *out_lease = op ? (snib__time)op->asked->n * SNIB__MS : 0;
    return op ? op->serial : 0;
}

void snib__outer_extended(struct snib__engine *e, struct snib__outer *outer, int32_t code,
                          snib__time lease, snib__time deadline, snib__time now)
{
    struct snib__hold *hold = outer->hold;
    struct snib__op *op = outer_extending(e, hold);
    if (snib__hold_over(e, hold, now)) /* which has ended the operation */
        return;
    if (code == SNIB_OK) {
        hold->lease_ms = (uint32_t)(lease / SNIB__MS) & SNIB__SPAN_MAX;
        hold->deadline = deadline;
        outer->span = deadline - now;
        snib__hold_arm(e, hold, now);
    }
    outer_explain(outer, op);
    snib__op_done(e, op, code);
}

/* The members' clients go on with the releases, but nobody waits for them here. */
void snib__outer_fail_ops(struct snib__engine *e, snib__time now)
{
    for (struct snib__op *op = e->live, *next; op; op = next) {
        next = op->live_next;
        if (!snib__outer_is(op->gate))
            continue;
        snib__gate_leave(e, op, now);
        snib__op_done(e, op, SNIB_EUNREACHABLE);
    }
}

void snib__outer_wake(struct snib__engine *e, struct snib__outer *outer, snib__time when)
{
    if (outer->ended || outer->hold->phase != SNIB__TRYING)
        return;
    if (when == SNIB__NEVER)
        snib__timer_cancel(e, &outer->hold->timer_at);
    else
        snib__timer_set(e, SNIB__TIMER_HOLD, &outer->hold->timer_at, when);
}
