/* extend.c - a live hold gets another lease.
 *
 * A query of the hold's gate that changes the lease on the way.  Copies of it, of renewals, of the acquisition
 * and of a transfer may reach the server in any order, also long after their connection was given up; so no
 * script shortens the lease of its own owner, and a fixed lease keeps the later of two deadlines.  Until the
 * answer comes, the hold is what it was: its watchdog renews it, or its old lease ends it.  The server is asked
 * for at least what is left until the present deadline, which may be less there since a failover or a step of
 * its clock.
 *
 * A hold of locks on several servers is extended by its carrier, member by member, each with an operation of its
 * own.
 */
#include "engine/ask.h"
#include "engine/internal.h"

#include <stdlib.h>
#include <string.h>

/* Whether it is the operation's hold, and not a later one in its memory. */
static bool extend_is_of(const struct snib__op *op, const struct snib__hold *hold)
{
    return op->asked->hold == hold && op->asked->number == hold->number &&
           op->asked->acquired_at == hold->acquired_at;
}

/* Whether the operation's hold is still held.  If its time is over it is lost now, which ends the operation. */
static bool extend_held(struct snib__engine *e, const struct snib__op *op, snib__time now)
{
    struct snib__hold *hold = op->asked->hold;
    return extend_is_of(op, hold) && hold->phase == SNIB__HELD && !snib__hold_over(e, hold, now);
}

/* What the server must give for the deadline to hold that the hold has, or may get from a renewal meanwhile. */
static int64_t extend_least_ms(const struct snib__engine *e, const struct snib__hold *hold,
                               snib__time now)
{
    snib__time least =
        hold->lease_ms ? snib__lease_until(now, hold->deadline) + SNIB__MS - 1 : e->config.lease;
    return (int64_t)(least / SNIB__MS);
}

/* The lease that the server is asked for. */
static int64_t extend_ms(const struct snib__engine *e, const struct snib__op *op)
{
    int64_t wanted = op->asked->n ? op->asked->n : (int64_t)(e->config.lease / SNIB__MS);
    return wanted > op->asked->least_ms ? wanted : op->asked->least_ms;
}

struct snib__op *snib__engine_extend(struct snib__engine *e, struct snib__hold *hold,
                                     snib__time lease, snib__time now, int32_t *out_code)
{
    bool outer = snib__outer_is(hold->gate);
    *out_code = SNIB_ENOTSUP;
    if (!hold->gate->kind->renew && !outer)
        return NULL;
    snib__hold_over(e, hold, now);
    *out_code = hold->phase == SNIB__LOST ? SNIB_LOST : SNIB_NOT_HELD;
    if (hold->phase != SNIB__HELD)
        return NULL;
    struct snib__op *op = snib__ask_carry(e, SNIB__OP_EXTEND, hold->gate, NULL, 0, now, out_code);
    if (!op || op->done)
        return op;
    op->asked->hold = hold;
    op->asked->number = hold->number;
    op->asked->acquired_at = hold->acquired_at;
    op->asked->permits = hold->permits;
    op->asked->n = (int64_t)(lease / SNIB__MS);
    op->asked->least_ms = extend_least_ms(e, hold, now);
    op->deadline = snib__hold_end(hold);
    hold->extended = 1;
    e->extending++;
    if (outer) {
        snib__outer_extend(e, op);
        return op;
    }
    snib__time asked = (snib__time)extend_ms(e, op) * SNIB__MS;
    if (hold->exact && asked < e->config.lease)
        asked = e->config.lease; /* which the server may still have */
    hold->exact = false; /* what shortens it may be ahead on the lane, but is not sent again */
    e->extended = asked > e->extended ? asked : e->extended;
    return snib__ask_start(e, op, now);
}

void snib__extend_lost(struct snib__engine *e, const struct snib__hold *hold, snib__time now)
{
    for (struct snib__op *op = e->live, *next; op; op = next) {
        next = op->live_next;
        if (op->kind != SNIB__OP_EXTEND || !extend_is_of(op, hold))
            continue;
        op->reason = hold->reason;
        snib__gate_leave(e, op, now);
        snib__op_done(e, op, SNIB_LOST);
    }
}

/* The hold may be gone by now, and its memory in use again: the request names the owner that it had. */
int snib__extend_encode(const struct snib__engine *e, struct snib__buf *out,
                        const struct snib__op *op)
{
    struct snib__hold then = {
        .gate = op->gate, .number = op->asked->number, .permits = op->asked->permits};
    struct snib__hold *one = &then;
    return op->gate->kind->renew(out, e, &one, 1, extend_ms(e, op));
}

/* A renewed hold's deadline tells when it was last renewed, even if its lease is longer.  The former deadline still
 * counts: nothing shortens a lease at the server. */
snib__time snib__lease_extended(snib__time before, snib__time lease, snib__time clients,
                                snib__time sent_at, snib__time now)
{
    snib__time deadline = snib__lease_end(sent_at, lease ? lease : clients);
    if (lease == 0 && before > snib__lease_end(now, clients))
        before = snib__lease_end(now, clients);
    return deadline > before ? deadline : before;
}

static void extend_apply(struct snib__engine *e, struct snib__hold *hold, snib__time lease,
                         snib__time sent_at, int64_t assured_ms, snib__time now)
{
    if (hold->phase != SNIB__HELD || snib__hold_over(e, hold, now))
        return;
    snib__hold_stop(e, hold);
    hold->lease_ms = (uint32_t)(lease / SNIB__MS) & SNIB__SPAN_MAX;
    hold->flags &= (uint16_t)~SNIB__FIRST;
    hold->deadline = snib__lease_extended(hold->deadline, lease, e->config.lease, sent_at, now);
    if (assured_ms)
        snib__watchdog_assured(e, hold, assured_ms, sent_at, now);
    if (lease == 0)
        snib__watchdog_add(e, hold);
    else
        snib__watchdog_fixed(hold, sent_at, now);
    snib__hold_arm(e, hold, now);
}

/* The carrier will apply it, perhaps only when the former lease is over. */
static void extend_granted(struct snib__engine *e, struct snib__hold *hold, snib__time sent_at,
                           int64_t granted_ms, snib__time now)
{
    snib__time deadline = snib__lease_end(sent_at, (snib__time)granted_ms * SNIB__MS);
    if (hold->lease_ms && deadline > hold->deadline)
        hold->deadline = deadline;
    snib__watchdog_assured(e, hold, granted_ms, sent_at, now);
    snib__hold_arm(e, hold, now);
}

void snib__hold_extended(struct snib__engine *e, struct snib__hold *hold, snib__time lease,
                         snib__time sent_at, snib__time now)
{
    extend_apply(e, hold, lease, sent_at, 0, now);
}

/* A request of the operation has no reply, or one that does not tell whether it was carried out; it is repeated. */
void snib__extend_unsure(struct snib__op *op)
{
    if (op->kind == SNIB__OP_EXTEND)
        op->asked->unsure = true;
}

void snib__extend_only_asks(struct snib__op *op)
{
    if (op->asked) /* otherwise there was no memory for it, and the operation is done */
        op->asked->only = true;
}

snib__time snib__extend_sent_at(const struct snib__op *op)
{
    return op->asked->sent_at;
}

/* A request that shortens the lease, to that of a lock of several clients or to what a clock kept too long, may arrive at any
 * time, because the connection that it was left on could not be ended. */
bool snib__extend_is_undone(const struct snib__engine *e, const struct snib__hold *hold)
{
    bool undone = hold->acquired_at <= hold->gate->node->shortens_at;
    /* In a cluster ASK brings requests to a node that does not serve the name, or not yet. */
    for (const struct snib__node *node = e->slots ? e->nodes : NULL; node && !undone;
         node = node->next)
        undone = hold->acquired_at <= node->shortens_at;
    return undone;
}

static void extend_refuse(struct snib__engine *e, struct snib__op *op)
{
    free(op->words);
    op->words = strdup("it cannot be extended: a request that may shorten its lease was left on a "
                       "broken connection, "
                       "which could not be ended; allow this user +info +client|id +client|kill");
    snib__op_done(e, op, SNIB_ENOTSUP);
}

/* The reply is that of a renewal: empty, or the index 1 of a hold that is gone and whether its key exists. */
void snib__extend_answer(struct snib__engine *e, struct snib__op *op, snib__time sent_at,
                         const struct snib__value *reply, uint32_t n, snib__time now)
{
    struct snib__hold *hold = op->asked->hold;
    bool held = extend_held(e, op, now), array = reply->type == SNIB__RESP_ARRAY;
    if (op->done)
        return;
    if (held && array && n == 1 && snib__extend_is_undone(e, hold)) {
        extend_refuse(e, op);
    } else if (held && array && n == 1) {
        op->asked->sent_at = sent_at;
        if (op->asked->only)
            extend_granted(e, hold, sent_at, extend_ms(e, op), now);
        else
            extend_apply(e, hold, (snib__time)op->asked->n * SNIB__MS, sent_at, extend_ms(e, op),
                         now);
        e->stats.renewals++;
        snib__op_done(e, op, SNIB_OK);
    } else if (held && array && n == 3 && reply[1].integer == 1) {
        int reason = snib__hold_denied(hold, reply[2].integer != 0);
        snib__hold_lose(e, hold, reason, now); /* with the operation */
    } else {
        snib__op_done(e, op, held ? SNIB_EPROTOCOL : SNIB_NOT_HELD);
    }
}

/* The end of the hold, as the operation knew it, has come.  0: it has moved, or the operation is done. */
int32_t snib__extend_overdue(struct snib__engine *e, struct snib__op *op, snib__time now)
{
    bool held = extend_held(e, op, now);
    if (held)
        op->deadline = snib__hold_end(op->asked->hold);
    return held || op->done ? 0 : SNIB_NOT_HELD;
}
