/* waitq.c - sleeping until the lock may be free.
 *
 * A message is a hint to try, never a grant.  The expiry of a lease sends no message, and messages
 * can be lost, so every sleep also ends with the holder's remaining lease or at the re-check cap,
 * with jitter.  An attempt that was sent before the subscription was confirmed may have missed a
 * release, so it is repeated on the confirmation.
 *
 * A subscription outlives the last waiter for a moment, because a hot lock needs it again at once.
 */
#include "engine/internal.h"

#include <stdlib.h>
#include <string.h>

#define WAIT_LINGER (400 * SNIB__MS)
#define WAIT_BRIEF (50 * SNIB__MS)    /* the least spacing of timed attempts in a row */
#define WAIT_FOREIGN (100 * SNIB__MS) /* between looks at a holder that sends no release message */
#define WAIT_BEAT (1000 * SNIB__MS)   /* keeps a place in a fair queue alive */
#define WAIT_MARK (5000 * SNIB__MS) /* the longest life of a preferred writer's mark, see write.c */
#define WAIT_MARKED (4000 * SNIB__MS) /* keeps it alive */
#define WAIT_POLL_MAX 7               /* a spinning waiter's pause doubles from 1 to 128 ms */

static void wait_unidle(struct snib__engine *e, struct snib__waitq *waitq)
{
    if (waitq->idle_since == SNIB__NEVER)
        return;
    waitq->idle_since = SNIB__NEVER;
    if (waitq->idle_prev)
        waitq->idle_prev->idle_next = waitq->idle_next;
    else
        e->idle_head = waitq->idle_next;
    if (waitq->idle_next)
        waitq->idle_next->idle_prev = waitq->idle_prev;
    else
        e->idle_tail = waitq->idle_prev;
}

struct snib__waitq *snib__waitq_get(struct snib__engine *e, struct snib__gate *gate)
{
    if (gate->waitq) {
        wait_unidle(e, gate->waitq); /* otherwise the tick would free it while it has waiters */
        return gate->waitq;
    }
    struct snib__waitq *waitq = calloc(1, sizeof *waitq);
    if (!waitq || snib__timer_reserve(e, 1) < 0) {
        free(waitq);
        return NULL;
    }
    waitq->gate = gate;
    waitq->idle_since = SNIB__NEVER;
    waitq->burst = 1;
    waitq->singles = snib__share_singles(gate);
    if (snib__chan_attach(e, waitq) < 0) {
        e->heap_owed--;
        free(waitq);
        return NULL;
    }
    e->memory += sizeof *waitq;
    gate->waitq = waitq;
    snib__gate_ref(gate);
    return waitq;
}

void snib__waitq_free(struct snib__engine *e, struct snib__waitq *waitq)
{
    wait_unidle(e, waitq);
    snib__chan_detach(e, waitq);
    e->memory -= sizeof *waitq;
    snib__timer_cancel(e, &waitq->timer_at);
    e->heap_owed--;
    waitq->gate->waitq = NULL;
    snib__gate_put(e, waitq->gate);
    free(waitq);
}

/* A multi lock now waits for another of its members. */
void snib__waitq_rebind(struct snib__engine *e, struct snib__waitq *waitq, uint32_t blocker)
{
    if (waitq->blocker == blocker)
        return;
    snib__chan_detach(e, waitq);
    waitq->blocker = blocker;
    snib__chan_attach(e, waitq); /* without memory it polls */
}

/* ---- the queue ---- */

void snib__waitq_push(struct snib__waitq *waitq, struct snib__op *op, bool front)
{
    op->stage = SNIB__STAGE_QUEUED;
    waitq->queued++;
    op->prev = front ? NULL : waitq->tail;
    op->next = front ? waitq->head : NULL;
    if (op->prev)
        op->prev->next = op;
    else
        waitq->head = op;
    if (op->next)
        op->next->prev = op;
    else
        waitq->tail = op;
}

/* Whether one is ahead of another: by start time, but a read under its owner's write hold is ahead of those that wait for
 * the end of that.  Among them are reads whose own write hold has ended: they have joined that before. */
static bool wait_is_ahead(const struct snib__op *op, const struct snib__op *other)
{
    bool joins = op->hold->flags & SNIB__JOINS, other_joins = other->hold->flags & SNIB__JOINS;
    if (joins != other_joins)
        return joins;
    return joins && op->hold->writer != other->hold->writer ? op->joined > other->joined
                                                            : op->serial < other->serial;
}

/* Insert in order, so that a waiter keeps its turn. */
void snib__waitq_insert(struct snib__waitq *waitq, struct snib__op *op)
{
    struct snib__op *before = waitq->head;
    if (waitq->tail && wait_is_ahead(waitq->tail, op))
        before = NULL; /* a new one */
    while (before && wait_is_ahead(before, op))
        before = before->next; /* past the few that were refused with it */
    if (!before || before == waitq->head) {
        snib__waitq_push(waitq, op, before != NULL);
        return;
    }
    op->stage = SNIB__STAGE_QUEUED;
    waitq->queued++;
    op->next = before;
    op->prev = before->prev;
    op->prev->next = op;
    before->prev = op;
}

void snib__waitq_remove(struct snib__waitq *waitq, struct snib__op *op)
{
    if (op->prev)
        op->prev->next = op->next;
    else
        waitq->head = op->next;
    if (op->next)
        op->next->prev = op->prev;
    else
        waitq->tail = op->prev;
    op->next = op->prev = NULL;
    op->stage = SNIB__STAGE_NONE;
    waitq->queued--;
}

/* Something at the gate has ended, perhaps without a reply.  Whoever waits for a lock of many has at least a timer from now
 * on; for one holder, sole.c sees to that.  If no operation waits: let the subscription linger, or free the wait if it has
 * none.  An attempt or a release in flight does so when it ends. */
void snib__waitq_rest(struct snib__engine *e, struct snib__gate *gate, snib__time now)
{
    struct snib__waitq *waitq = gate->waitq;
    const struct snib__hold *active = snib__gate_active(gate);
    if (!waitq)
        return;
    bool ends = snib__gate_asks(gate) == 0 || gate->kind->discipline == SNIB__QUEUED;
    if (waitq->head && waitq->timer_at == 0 && ends && !snib__gate_sole(gate)) {
        snib__waitq_sleep(e, gate, -1, false, now);
        return;
    }
    if (snib__waitq_used(waitq) || gate->trying > 0 || (active && active->phase != SNIB__HELD))
        return;
    waitq->brief = 0;
    waitq->burst = 1;
    snib__timer_cancel(e, &waitq->timer_at);
    if (!active)
        waitq->chain = 0;
    if (!waitq->chan || waitq->chan->state == SNIB__CHAN_OFF ||
        waitq->chan->state == SNIB__CHAN_REFUSED) {
        /* Keep the chain of hand-overs and the turns owed. */
        if (active)
            return;
        if (waitq->owed == 0) {
            snib__waitq_free(e, waitq);
            return;
        }
    }
    wait_unidle(e, waitq);
    waitq->idle_since = now;
    waitq->idle_prev = e->idle_tail;
    waitq->idle_next = NULL;
    if (e->idle_tail)
        e->idle_tail->idle_next = waitq;
    else
        e->idle_head = waitq;
    e->idle_tail = waitq;
}

/* Until when new readers should wait behind an operation: while it waits, if it asked for preference over them.  A single
 * try does not wait. */
static snib__time wait_preferred(const struct snib__op *op)
{
    bool writes = op->gate->kind->kind == SNIB_WRITE;
    bool prefers = writes && (op->hold->options & SNIB_LOCK_PREFER_WRITER) && !op->once;
    return prefers ? op->deadline : 0;
}

/* A writer that waits here, perhaps behind others, asked for preference over readers. */
static bool wait_marks(const struct snib__waitq *waitq)
{
    bool writers = waitq->gate->kind->kind == SNIB_WRITE;
    const struct snib__op *op = writers ? waitq->head : NULL;
    while (op && wait_preferred(op) == 0)
        op = op->next;
    return op != NULL;
}

/* An operation's attempt is sent, perhaps long after it was made or once more: for how long it tells the server to keep new
 * readers out, for itself or for those that wait behind it. */
void snib__waitq_mark(struct snib__op *op, snib__time now)
{
    if (op->gate->kind->kind != SNIB_WRITE)
        return;
    const struct snib__op *next = op->gate->waitq ? op->gate->waitq->head : NULL;
    snib__time most = now + WAIT_MARK, until = wait_preferred(op);
    for (; next && until < most; next = next->next)
        until = wait_preferred(next) > until ? wait_preferred(next) : until;
    until = until <= now ? 0 : until;
    op->mark.until = until >= most ? SNIB__NEVER : until;
    until = until >= most ? most : until;
    op->mark.ms = until ? (uint32_t)((until - now + SNIB__MS - 1) / SNIB__MS) : 0;
}

/* ---- waking ---- */

/* If operations sleep at the gate, let the first of them try. */
void snib__waitq_try(struct snib__engine *e, struct snib__waitq *waitq, snib__time now)
{
    if (!snib__gate_active(waitq->gate) && !snib__gate_asks(waitq->gate) && !waitq->incoming &&
        waitq->head && snib__node_ready(waitq->gate->node))
        snib__gate_advance(e, waitq->gate, now);
}

/* The command link is back: releases in the meantime may have gone unheard. */
void snib__wait_recheck_all(struct snib__engine *e, const struct snib__node *node, snib__time now)
{
    for (uint32_t i = 0; i < e->gates_cap; i++)
        for (struct snib__gate *gate = e->gates[i], *next; gate; gate = next) {
            next = gate->next;
            if (gate->node != node)
                continue;
            if (gate->waitq && gate->kind->discipline == SNIB__QUEUED)
                snib__place_ask_all(e, gate, now);
            else if (gate->waitq)
                snib__waitq_try(e, gate->waitq, now);
        }
}

void snib__waitq_message(struct snib__engine *e, struct snib__waitq *waitq, const char *text,
                         snib__time now)
{
    e->stats.messages++;
    if (waitq->gate->kind->discipline == SNIB__QUEUED) {
        snib__place_message(e, waitq->gate, text, now);
        return;
    }
    if (waitq->own_messages > 0) { /* the release's own reply has already said so */
        waitq->own_messages--;
        return;
    }
    /* Some releases send "1" and "0": the second is no news after the first, unless the first was an own one. */
    if (waitq->one_at == now && strcmp(text, "0") == 0)
        return;
    if (strcmp(text, "1") == 0)
        waitq->one_at = now;
    snib__turn_heard(waitq, now);
    waitq->brief = 0;
    if (snib__gate_active(waitq->gate))
        waitq->hint = snib__gate_active(waitq->gate)->phase == SNIB__TRYING;
    else if (snib__gate_asks(waitq->gate))
        waitq->hint = true;
    else
        snib__waitq_try(e, waitq, now);
}

/* ---- sleeping ---- */

/* How long to sleep; left_ms: the holder's remaining lease, or -1 if unknown. */
static snib__time wait_duration(struct snib__engine *e, struct snib__waitq *waitq, int64_t left_ms,
                                bool foreign)
{
    const struct snib__lock_kind *kind = waitq->gate->kind;
    snib__time cap = kind->discipline == SNIB__QUEUED ? WAIT_BEAT
                     : foreign                        ? WAIT_FOREIGN
                                                      : e->config.recheck;
    cap = cap > WAIT_MARKED && wait_marks(waitq) ? WAIT_MARKED : cap;
    snib__time sleep = cap - snib__engine_random(e, cap / 4);
    if (kind->traits & SNIB__POLLS) {
        snib__time pause = (snib__time)SNIB__MS << waitq->brief;
        if (waitq->brief < WAIT_POLL_MAX)
            waitq->brief++;
        sleep = pause / 2 + snib__engine_random(e, pause);
    }
    if (left_ms >= 0 && (snib__time)left_ms + 2 < sleep / SNIB__MS) /* it may be near 2^63 */
        sleep = (snib__time)left_ms * SNIB__MS + 2 * SNIB__MS;
    if (kind->traits & SNIB__POLLS)
        return sleep;
    if (sleep < WAIT_BRIEF && waitq->brief++ > 0)
        sleep = WAIT_BRIEF + snib__engine_random(e, WAIT_BRIEF);
    else if (sleep >= WAIT_BRIEF)
        waitq->brief = 0;
    if ((!waitq->chan || waitq->chan->state == SNIB__CHAN_REFUSED) && sleep > 2 * WAIT_BRIEF)
        sleep = 2 * WAIT_BRIEF + snib__engine_random(e, 2 * WAIT_BRIEF);
    return sleep;
}

/* The first waiter was refused: sleep.  foreign: the holder's release sends no message. */
void snib__waitq_sleep(struct snib__engine *e, struct snib__gate *gate, int64_t left_ms,
                       bool foreign, snib__time now)
{
    struct snib__waitq *waitq = gate->waitq;
    if (waitq->hint && gate->kind->discipline != SNIB__QUEUED && snib__node_ready(gate->node)) {
        snib__gate_advance(e, gate, now);
        return;
    }
    if (waitq->chan)
        snib__chan_subscribe(e, waitq->chan, now);
    snib__time sleep = wait_duration(e, waitq, left_ms, foreign);
    snib__timer_set(e, SNIB__TIMER_WAITQ, &waitq->timer_at, now + sleep);
}

void snib__waitq_expired(struct snib__engine *e, struct snib__waitq *waitq, snib__time now)
{
    bool queued = waitq->gate->kind->discipline == SNIB__QUEUED;
    if (!waitq->head || snib__gate_active(waitq->gate) || waitq->incoming ||
        (snib__gate_asks(waitq->gate) && !queued)) /* the beat is due, whoever else asks */
        return;
    if (!snib__node_ready(waitq->gate->node)) {
        snib__timer_set(e, SNIB__TIMER_WAITQ, &waitq->timer_at, now + e->config.recheck);
        return;
    }
    if (!waitq->waited_out) {
        e->stats.rechecks++;
        waitq->own_messages = 0; /* what has not come by now was lost */
    }
    if (queued)
        snib__place_beat(e, waitq->gate, now);
    else
        snib__waitq_try(e, waitq, now);
}

/* Leave channels that have been unused for a while. */
void snib__waitq_tick(struct snib__engine *e, snib__time now)
{
    while (e->idle_head && e->idle_head->idle_since + WAIT_LINGER <= now)
        snib__waitq_free(e, e->idle_head);
}

snib__time snib__waitq_deadline(const struct snib__engine *e)
{
    return e->idle_head ? e->idle_head->idle_since + WAIT_LINGER : SNIB__NEVER;
}
