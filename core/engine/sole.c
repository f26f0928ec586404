/* sole.c - locks with one holder: a gate has at most one active hold.
 *
 * All other operations of this process queue in the gate, first come first served, so a process
 * sends one attempt per release however many callers wait.
 *
 *     acquire -> active is free: TRYING --granted---> HELD -> release, no waiter: RELEASING -> free
 *                    ^            '-refused-> queue, sleep    with a waiter: one TRANSFER to the
 *                    '----- message, re-check, free -'        queue's head, which becomes active
 */
#include "engine/internal.h"

#define SOLE_CHAIN_MAX                                                                             \
    (10 * SNIB__MS) /* hand-overs in a row may keep other processes out this long */
/* A mark that ends so much before a wait will do: of many writers that wait briefly, not each one asks. */
#define SOLE_MARK_SLACK (100 * SNIB__MS)

/* Send an attempt for a hold whose operation is not queued. */
static void sole_try(struct snib__engine *e, struct snib__hold *hold, snib__time now)
{
    struct snib__gate *gate = hold->gate;
    gate->active = hold;
    hold->phase = SNIB__TRYING;
    hold->op->stage = SNIB__STAGE_TRYING;
    hold->flags &= (uint16_t)~SNIB__AWAKE;
    if (gate->waitq) {
        gate->waitq->hint = false;
        if (snib__chan_on(gate->waitq))
            hold->flags |= SNIB__AWAKE;
    }
    if (snib__node_send(e, SNIB__REQ_ACQUIRE, hold, hold->number, now) < 0) {
        snib__gate_end_op(e, hold->op, SNIB_ENOMEM);
        if (hold->flags & SNIB__RESENT) /* a hand-over to it may have worked */
            snib__gate_undo(e, hold, now, now);
        else
            snib__gate_forget_hold(e, hold);
    }
}

void snib__sole_advance(struct snib__engine *e, struct snib__gate *gate, snib__time now)
{
    struct snib__waitq *waitq = gate->waitq;
    while (waitq && !gate->active && !waitq->incoming && waitq->head) {
        struct snib__op *op = waitq->head;
        if (snib__turn_is_theirs(waitq, op, now)) {
            snib__turn_give_way(e, waitq, now);
            return;
        }
        snib__timer_cancel(e, &waitq->timer_at);
        snib__waitq_remove(waitq, op);
        sole_try(e, op->hold, now);
    }
    snib__waitq_rest(e, gate, now);
}

/* Put an operation into its gate's queue, to sleep there. */
void snib__sole_queue(struct snib__engine *e, struct snib__op *op, bool front, snib__time now)
{
    struct snib__waitq *waitq = snib__waitq_get(e, op->gate);
    if (!waitq) {
        struct snib__hold *hold = op->hold;
        snib__gate_end_op(e, op, SNIB_ENOMEM);
        snib__gate_forget_hold(e, hold);
        return;
    }
    if (waitq->settling_since == 0)
        waitq->settling_since = now;
    snib__op_arm(e, op);
    op->hold->phase = SNIB__NEW;
    op->waited = true;
    snib__waitq_push(waitq, op, front);
}

/* The gate's hold or attempt has lost its user, and the server has not yet confirmed its end. */
void snib__sole_settles(struct snib__gate *gate, snib__time now)
{
    if (gate->waitq)
        gate->waitq->settling_since = now;
}

bool snib__sole_unconfirmed(const struct snib__engine *e, const struct snib__op *op, snib__time now)
{
    const struct snib__gate *gate = op->gate;
    if (op->stage != SNIB__STAGE_QUEUED || !snib__gate_sole(gate))
        return false;
    const struct snib__hold *hold = gate->active;
    bool settling =
        hold && (hold->phase == SNIB__RELEASING || (hold->phase == SNIB__TRYING && !hold->op));
    /* A single try that has lasted as long has heard of no holder, or it would have ended. */
    return settling && (op->once || now - gate->waitq->settling_since >= e->config.try_timeout);
}

/* Whether the server keeps new readers out for as long as a writer will wait that comes now, or need not. */
static bool sole_is_marked(const struct snib__gate *gate, const struct snib__op *op)
{
    bool prefers = gate->kind->kind == SNIB_WRITE && (op->hold->options & SNIB_LOCK_PREFER_WRITER);
    if (!prefers || op->once || (gate->active && gate->active->phase == SNIB__HELD))
        return true;
    const struct snib__op *last = gate->waitq ? gate->waitq->head : NULL;
    if (gate->active)
        last = gate->active->op;
    if (!last || last->mark.until == SNIB__NEVER)
        return last != NULL;
    return op->deadline <= last->mark.until + SOLE_MARK_SLACK;
}

/* One of those that wait has asked for preference, which the next attempt tells the server: that is due. */
static void sole_mark(struct snib__engine *e, struct snib__gate *gate, snib__time now)
{
    if (gate->active)
        gate->waitq->hint |= gate->active->phase == SNIB__TRYING;
    else
        snib__waitq_try(e, gate->waitq, now);
}

void snib__sole_acquire(struct snib__engine *e, struct snib__op *op, snib__time now)
{
    struct snib__gate *gate = op->gate;
    struct snib__hold *hold = op->hold;
    bool gives_way = gate->waitq && snib__turn_is_theirs(gate->waitq, op, now);
    if (!gate->active && !(gate->waitq && gate->waitq->head) && !gives_way) {
        if (!snib__node_ready(gate->node) || op->deadline != SNIB__NEVER)
            snib__op_arm(e, op);
        sole_try(e, hold, now);
        return;
    }
    op->told = (gate->active && gate->active->phase == SNIB__HELD) ||
               (gate->waitq && gate->waitq->head && snib__op_told(gate->waitq->head));
    bool marked = sole_is_marked(gate, op);
    snib__sole_queue(e, op, false, now);
    if (!op->done)
        op->waited = !op->once;
    if (!op->done && op->once)
        gate->waitq->overdue = true;
    if (!op->done && !marked)
        sole_mark(e, gate, now);
    if (gives_way)
        snib__sole_advance(e, gate, now);
}

/* Waits that are over do not last for an attempt after one that had a reply: what they depend on has changed. */
static void sole_arm(struct snib__engine *e, struct snib__waitq *waitq)
{
    for (struct snib__op *op = waitq && waitq->overdue ? waitq->head : NULL; op; op = op->next)
        if (!op->once)
            snib__op_arm(e, op);
}

/* An attempt has its reply: the lock was held at some time since as_of.  Single tries behind it that
 * had begun by then end, and waits that lasted only for it.  For a later one this may be old news. */
void snib__sole_known(struct snib__engine *e, struct snib__waitq *waitq, snib__time as_of,
                      snib__time now)
{
    if (!waitq)
        return;
    waitq->known_at = as_of > waitq->known_at ? as_of : waitq->known_at;
    if (!waitq->overdue)
        return;
    waitq->overdue = false;
    for (struct snib__op *op = waitq->head, *next; op; op = next) {
        struct snib__hold *hold = op->hold;
        next = op->next;
        if (!op->once) {
            snib__op_arm(e, op);
            continue;
        }
        if (op->started > as_of) {
            waitq->overdue = true;
            continue;
        }
        snib__waitq_remove(waitq, op);
        snib__gate_end_op(e, op, SNIB_BUSY);
        snib__gate_forget_hold(e, hold);
    }
    snib__waitq_rest(e, waitq->gate, now);
}

void snib__sole_refused(struct snib__engine *e, struct snib__hold *hold, snib__time sent_at,
                        const struct snib__verdict *verdict, snib__time now)
{
    struct snib__gate *gate = hold->gate;
    struct snib__op *op = hold->op;
    int32_t ends = op ? snib__gate_meets(e, op, now) : SNIB_OK;
    if (!op || op->once || ends != SNIB_OK) {
        snib__sole_known(e, gate->waitq, sent_at, now);
        if (op)
            snib__gate_end_op(e, op, ends != SNIB_OK ? ends : SNIB_BUSY);
        snib__gate_forget_hold(e, hold);
        snib__sole_advance(e, gate, now);
        return;
    }
    gate->active = NULL;
    op->told = true;
    if (gate->waitq)
        snib__turn_refused(gate->waitq);
    snib__sole_queue(e, op, true, now);
    if (op->done) {
        snib__sole_advance(e, gate, now);
        return;
    }
    snib__sole_known(e, gate->waitq, now, now); /* this waiter is ahead of them */
    bool awake = (hold->flags & SNIB__AWAKE) && gate->waitq->blocker == verdict->blocker;
    snib__waitq_rebind(e, gate->waitq, verdict->blocker);
    if (!awake && snib__chan_on(gate->waitq))
        snib__sole_advance(e, gate, now); /* subscribed since: a release may have gone unheard */
    else
        snib__waitq_sleep(e, gate, verdict->left_ms, verdict->foreign, now);
}

/* Only the server knows whether it may vote in a quorum: what it granted tells that if it was a vote after as long a
 * silence. */
static bool sole_votes_alike(const struct snib__hold *hold, const struct snib__hold *next)
{
    return hold->gate->kind->kind != SNIB_MUTEX || next->vote_ms <= hold->vote_ms;
}

/* Whether the hold may go to the head of the local queue, or it is other processes' turn. */
bool snib__sole_may_hand_over(struct snib__engine *e, const struct snib__hold *hold, snib__time now)
{
    const struct snib__gate *gate = hold->gate;
    struct snib__waitq *waitq = gate->waitq;
    if (!waitq || !waitq->head || waitq->incoming || e->config.handover_max == 0 ||
        (gate->kind->traits & SNIB__NO_HANDOVER) || now >= hold->deadline ||
        !sole_votes_alike(hold, waitq->head->hold))
        return false;
    if (waitq->chain == 0) {
        /* no user ever had it */
        waitq->chain_since = hold->acquired_at ? hold->acquired_at : now;
        waitq->chain_most = (uint32_t)e->config.handover_max;
        /* Each current waiter has a turn, then other clients have theirs. */
        if (snib__turn_contested(waitq) && waitq->queued < waitq->chain_most)
            waitq->chain_most = waitq->queued;
    }
    if (waitq->chain >= waitq->chain_most || now - waitq->chain_since > SOLE_CHAIN_MAX)
        return false;
    waitq->chain++;
    return true;
}

/* Pass the hold on to the head of the local queue with one command; false: release it instead. */
bool snib__sole_hand_over(struct snib__engine *e, struct snib__hold *hold, snib__time now)
{
    struct snib__gate *gate = hold->gate;
    if (!snib__sole_may_hand_over(e, hold, now))
        return false;
    struct snib__op *next = gate->waitq->head;
    snib__tenure_ask(e, gate, now);
    snib__waitq_remove(gate->waitq, next);
    gate->waitq->incoming = next->hold;
    next->hold->phase = SNIB__TRYING;
    next->stage = SNIB__STAGE_TRYING;
    snib__timer_cancel(e, &gate->waitq->timer_at);
    if (snib__node_send(e, SNIB__REQ_TRANSFER, hold, hold->number, now) == 0)
        return true;
    gate->waitq->incoming = NULL;
    next->hold->phase = SNIB__NEW;
    snib__waitq_push(gate->waitq, next, true);
    return false;
}

void snib__sole_answer_transfer(struct snib__engine *e, struct snib__hold *hold, snib__time sent_at,
                                const struct snib__value *reply, uint32_t n, int32_t error,
                                const char *text, snib__time now)
{
    struct snib__gate *gate = hold->gate;
    struct snib__hold *next = gate->waitq->incoming;
    struct snib__verdict verdict = {0};
    if (!error)
        gate->kind->transferred(e, reply, n, &verdict);
    gate->waitq->incoming = NULL;
    snib__gate_ref(gate);
    if (verdict.yes && verdict.handed) {
        e->stats.handovers++;
        snib__gate_released(e, hold, SNIB_OK, now);
        gate->active = next;
        if (snib__gate_grant(e, next, verdict.token, sent_at, now))
            snib__sole_known(e, gate->waitq, now, now);
    } else {
        if (!error && (hold->flags & SNIB__RESENT))
            snib__gate_renumber(e, next, now);
        if (snib__doubtful(error, text))
            hold->flags |= SNIB__RESENT; /* this try may have worked */
        if (error && (hold->flags & SNIB__RESENT))
            next->flags |= SNIB__RESENT; /* this try may have worked, or an earlier one */
        int32_t ends = next->op ? snib__gate_meets(e, next->op, now) : SNIB_OK;
        if (ends != SNIB_OK)
            snib__gate_end_op(e, next->op, ends);
        if (next->op)
            snib__sole_queue(e, next->op, true, now);
        else if (next->flags & SNIB__RESENT)
            snib__gate_undo(e, next, sent_at, now);
        else
            snib__gate_forget_hold(e, next);
        /* a plain release is refused less often, and finds nothing if the try has worked */
        if (error) {
            snib__gate_send_release(e, hold, now);
        } else {
            /* or an earlier try has done it, and the next one's lease was short */
            bool ours = verdict.yes || ((hold->flags & SNIB__RESENT) && now < hold->deadline);
            if (!ours)
                snib__hold_found_lost(e, hold, now);
            snib__gate_released(e, hold, ours ? SNIB_OK : SNIB_LOST, now);
            snib__sole_advance(e, gate, now);
        }
        sole_arm(e, gate->waitq);
    }
    snib__gate_put(e, gate);
}
