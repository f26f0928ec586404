/* share.c - locks that many may hold at once: readers, permits, semaphores; and latches.
 *
 * Holds of a gate are independent of each other.  A refused operation waits in the gate's queue.  A
 * wake-up sends the first waiter, and as long as attempts succeed, twice as many of those behind
 * it: a thousand readers are in after a score of round trips, while a thousand waiters for one
 * permit cost an attempt or two.
 */
#include "engine/internal.h"

#define SHARE_BURST_MAX 64

static void share_try(struct snib__engine *e, struct snib__op *op, snib__time now)
{
    struct snib__hold *hold = op->hold;
    struct snib__gate *gate = hold->gate;
    hold->phase = SNIB__TRYING;
    op->stage = SNIB__STAGE_TRYING;
    hold->flags &= (uint16_t)~SNIB__AWAKE;
    if (op->once) {
        hold->flags |= SNIB__BESIDE;
        if (gate->waitq)
            gate->waitq->singles++;
    } else if (gate->waitq && snib__gate_asks(gate) == 0) {
        gate->waitq->hint = false;
    }
    if (!op->once && snib__chan_on(gate->waitq))
        hold->flags |= SNIB__AWAKE;
    gate->trying++;
    if (snib__node_send(e, SNIB__REQ_ACQUIRE, hold, hold->number, now) < 0) {
        snib__gate_tried(hold);
        snib__gate_end_op(e, op, SNIB_ENOMEM);
        snib__gate_forget_hold(e, hold);
    }
}

/* How many of what may run out before all have some; 0: the kind is not like that. */
static uint16_t share_wants(const struct snib__op *op)
{
    int32_t kind = op->gate->kind->kind;
    return kind == SNIB_PERMITS || kind == SNIB_SEMAPHORE ? (uint16_t)op->hold->permits : 0;
}

/* Whether the first waiter may try now.  Beside an attempt for more than it wants it might be granted what the other, which
 * came before it, is refused. */
static bool share_next(const struct snib__gate *gate)
{
    const struct snib__waitq *waitq = gate->waitq;
    return waitq->head && (snib__gate_asks(gate) == 0 || share_wants(waitq->head) >= waitq->most);
}

/* Whether an operation that comes now waits behind others: also behind one that has waited and is being asked for.  Readers
 * need not, because they do not take anything from each other. */
static bool share_behind(const struct snib__op *op)
{
    struct snib__waitq *waitq = op->gate->waitq;
    if (!waitq)
        return false;
    waitq->turns = waitq->turns && snib__gate_asks(op->gate) > 0;
    return waitq->head || (waitq->turns && share_wants(op) > 0);
}

/* The single tries in flight, for a gate at which operations begin to wait. */
uint32_t snib__share_singles(const struct snib__gate *gate)
{
    uint32_t n = 0;
    if (gate->kind->discipline != SNIB__SHARED || gate->trying == 0)
        return 0;
    for (const struct snib__hold *hold = gate->peers; hold; hold = hold->peer_next)
        n += hold->phase == SNIB__TRYING && (hold->flags & SNIB__BESIDE);
    return n;
}

void snib__share_advance(struct snib__engine *e, struct snib__gate *gate, snib__time now)
{
    struct snib__waitq *waitq = gate->waitq;
    if (!waitq)
        return;
    uint32_t asks = snib__gate_asks(gate);
    if (asks >= waitq->burst) {
        waitq->hint = true; /* for when the attempts in flight have been refused */
        return;
    }
    snib__timer_cancel(e, &waitq->timer_at);
    for (uint32_t n = waitq->burst - asks; n > 0 && share_next(gate); n--) {
        struct snib__op *op = waitq->head;
        waitq->turns = true;
        waitq->most = share_wants(op);
        snib__waitq_remove(waitq, op);
        share_try(e, op, now);
    }
    if (snib__gate_asks(gate) == 0)
        snib__waitq_rest(e, gate, now);
}

static void share_queue(struct snib__engine *e, struct snib__op *op)
{
    struct snib__hold *hold = op->hold;
    struct snib__waitq *waitq = snib__waitq_get(e, op->gate);
    if (!waitq) {
        snib__gate_end_op(e, op, SNIB_ENOMEM);
        snib__gate_forget_hold(e, hold);
        return;
    }
    snib__op_arm(e, op);
    hold->phase = SNIB__NEW;
    op->waited = true;
    snib__waitq_insert(waitq, op);
}

void snib__share_acquire(struct snib__engine *e, struct snib__op *op, snib__time now)
{
    struct snib__gate *gate = op->gate;
    snib__gate_join(op->hold);
    bool joins = op->hold->flags & SNIB__JOINS; /* it is granted while others wait */
    if (!op->once && !joins && share_behind(op)) {
        op->told = !gate->waitq->head || gate->waitq->head->told;
        share_queue(e, op);
        return;
    }
    if (!snib__node_ready(gate->node) || op->deadline != SNIB__NEVER)
        snib__op_arm(e, op);
    share_try(e, op, now);
}

static void share_granted(struct snib__engine *e, struct snib__hold *hold, bool single,
                          int64_t token, snib__time sent_at, snib__time now)
{
    struct snib__gate *gate = hold->gate;
    if (gate->kind->traits & SNIB__NO_HOLD) {
        struct snib__op *op = hold->op;
        if (op)
            snib__gate_end_op(e, op, SNIB_OK);
        snib__gate_forget_hold(e, hold);
    } else {
        snib__gate_grant(e, hold, token, sent_at, now);
    }
    if (!gate->waitq || !gate->waitq->head || single)
        return;
    if (gate->waitq->burst < SHARE_BURST_MAX)
        gate->waitq->burst *= 2;
    snib__share_advance(e, gate, now);
}

/* single: it was a try that does not wait, and may have wanted more than any of those that do. */
void snib__share_answer(struct snib__engine *e, struct snib__hold *hold, bool single,
                        snib__time sent_at, const struct snib__verdict *verdict, snib__time now)
{
    struct snib__gate *gate = hold->gate;
    struct snib__op *op = hold->op;
    if (verdict->yes) {
        share_granted(e, hold, single, verdict->token, sent_at, now);
        return;
    }
    bool awake = hold->flags & SNIB__AWAKE, left = !op;
    if (op && op->owner && snib__gate_joins(e, op, now)) {
        left = true; /* a writer may have come between the two */
    } else if (!op || op->once) {
        if (op)
            snib__gate_end_op(e, op, SNIB_BUSY);
        snib__gate_forget_hold(e, hold);
    } else {
        op->told = true;
        left = snib__gate_meets(e, op, now) == SNIB_AGAIN;
        share_queue(e, op);
    }
    struct snib__waitq *waitq = gate->waitq;
    if (!waitq || !waitq->head || single)
        return;
    /* Subscribed since, so a release may have gone unheard; or a waiter left that
     * wanted more than the next. */
    bool again = (!awake && snib__chan_on(waitq)) || left;
    waitq->burst = 1;
    if (snib__gate_asks(gate) > 0) /* the last reply decides */
        waitq->hint |= again;
    else if (again)
        snib__share_advance(e, gate, now);
    else
        snib__waitq_sleep(e, gate, verdict->left_ms, verdict->foreign, now);
}
