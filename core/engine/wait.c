/* wait.c - sleeping until the lock may be free.
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

#define WAIT_LINGER (400 * SNIB__MS)
#define WAIT_BRIEF (50 * SNIB__MS)    /* the least spacing of timed attempts in a row */
#define WAIT_FOREIGN (100 * SNIB__MS) /* between looks at a holder that sends no release message */
#define WAIT_BEAT (1000 * SNIB__MS)   /* keeps a place in a fair queue alive */
#define WAIT_POLL_MAX 7               /* a spinning waiter's pause doubles from 1 to 128 ms */

static void wait_unidle(struct snib__engine *e, struct snib__wait *wait)
{
    if (wait->idle_since == SNIB__NEVER)
        return;
    wait->idle_since = SNIB__NEVER;
    if (wait->idle_prev)
        wait->idle_prev->idle_next = wait->idle_next;
    else
        e->idle_head = wait->idle_next;
    if (wait->idle_next)
        wait->idle_next->idle_prev = wait->idle_prev;
    else
        e->idle_tail = wait->idle_prev;
}

struct snib__wait *snib__wait_get(struct snib__engine *e, struct snib__gate *gate)
{
    if (gate->wait) {
        wait_unidle(e, gate->wait); /* otherwise the tick would free it while it has waiters */
        return gate->wait;
    }
    struct snib__wait *wait = calloc(1, sizeof *wait);
    if (!wait || snib__timer_reserve(e, 1) < 0) {
        free(wait);
        return NULL;
    }
    wait->gate = gate;
    wait->idle_since = SNIB__NEVER;
    wait->burst = 1;
    if (snib__chan_attach(e, wait) < 0) {
        e->heap_owed--;
        free(wait);
        return NULL;
    }
    e->memory += sizeof *wait;
    gate->wait = wait;
    snib__gate_ref(gate);
    return wait;
}

void snib__wait_free(struct snib__engine *e, struct snib__wait *wait)
{
    wait_unidle(e, wait);
    snib__chan_detach(e, wait);
    e->memory -= sizeof *wait;
    snib__timer_cancel(e, &wait->timer_at);
    e->heap_owed--;
    wait->gate->wait = NULL;
    snib__gate_put(e, wait->gate);
    free(wait);
}

/* A multi lock now waits for another of its members. */
void snib__wait_rebind(struct snib__engine *e, struct snib__wait *wait, uint32_t blocker)
{
    if (wait->blocker == blocker)
        return;
    snib__chan_detach(e, wait);
    wait->blocker = blocker;
    snib__chan_attach(e, wait); /* without memory it polls */
}

/* ---- the queue ---- */

void snib__wait_push(struct snib__wait *wait, struct snib__op *op, bool front)
{
    op->place = SNIB__PLACE_QUEUE;
    wait->queued++;
    op->prev = front ? NULL : wait->tail;
    op->next = front ? wait->head : NULL;
    if (op->prev)
        op->prev->next = op;
    else
        wait->head = op;
    if (op->next)
        op->next->prev = op;
    else
        wait->tail = op;
}

/* Insert by start time, so that a waiter keeps its turn. */
void snib__wait_insert(struct snib__wait *wait, struct snib__op *op)
{
    struct snib__op *before = wait->head;
    if (wait->tail && wait->tail->serial < op->serial)
        before = NULL; /* a new one */
    while (before && before->serial < op->serial)
        before = before->next; /* past the few that were refused with it */
    if (!before || before == wait->head) {
        snib__wait_push(wait, op, before != NULL);
        return;
    }
    op->place = SNIB__PLACE_QUEUE;
    wait->queued++;
    op->next = before;
    op->prev = before->prev;
    op->prev->next = op;
    before->prev = op;
}

void snib__wait_remove(struct snib__wait *wait, struct snib__op *op)
{
    if (op->prev)
        op->prev->next = op->next;
    else
        wait->head = op->next;
    if (op->next)
        op->next->prev = op->prev;
    else
        wait->tail = op->prev;
    op->next = op->prev = NULL;
    op->place = SNIB__PLACE_NONE;
    wait->queued--;
}

/* No operation waits at the gate: let the subscription linger, or free the wait if it has none. */
void snib__wait_rest(struct snib__engine *e, struct snib__gate *gate, snib__time now)
{
    struct snib__wait *wait = gate->wait;
    if (!wait || wait->head || wait->incoming)
        return;
    wait->brief = 0;
    wait->burst = 1;
    snib__timer_cancel(e, &wait->timer_at);
    if (!snib__gate_active(gate))
        wait->chain = 0;
    if (!wait->chan || wait->chan->state == SNIB__CHAN_OFF ||
        wait->chan->state == SNIB__CHAN_REFUSED) {
        /* Keep the chain of hand-overs and the turns owed. */
        if (snib__gate_active(gate))
            return;
        if (wait->owed == 0) {
            snib__wait_free(e, wait);
            return;
        }
    }
    wait_unidle(e, wait);
    wait->idle_since = now;
    wait->idle_prev = e->idle_tail;
    wait->idle_next = NULL;
    if (e->idle_tail)
        e->idle_tail->idle_next = wait;
    else
        e->idle_head = wait;
    e->idle_tail = wait;
}

/* ---- waking ---- */

/* If operations sleep at the gate, let the first of them try. */
void snib__wait_try(struct snib__engine *e, struct snib__wait *wait, snib__time now)
{
    if (!snib__gate_active(wait->gate) && !wait->gate->trying && !wait->incoming && wait->head &&
        snib__node_ready(wait->gate->node))
        snib__gate_advance(e, wait->gate, now);
}

/* The command link is back: releases in the meantime may have gone unheard. */
void snib__wait_recheck_all(struct snib__engine *e, const struct snib__node *node, snib__time now)
{
    for (uint32_t i = 0; i < e->gates_cap; i++)
        for (struct snib__gate *gate = e->gates[i], *next; gate; gate = next) {
            next = gate->next;
            if (gate->node != node)
                continue;
            if (gate->wait && gate->kind->discipline == SNIB__QUEUED)
                snib__place_ask_all(e, gate, now);
            else if (gate->wait)
                snib__wait_try(e, gate->wait, now);
        }
}

/* again: the same news as in the message before it. */
void snib__wait_message(struct snib__engine *e, struct snib__wait *wait, const char *text,
                        bool again, snib__time now)
{
    e->stats.messages++;
    if (wait->gate->kind->discipline == SNIB__QUEUED) {
        snib__place_message(e, wait->gate, text, now);
        return;
    }
    if (wait->own_messages > 0) { /* the release's own reply has already said so */
        wait->own_messages--;
        return;
    }
    if (again)
        return;
    snib__turn_heard(wait, now);
    wait->brief = 0;
    if (snib__gate_active(wait->gate))
        wait->hint = snib__gate_active(wait->gate)->phase == SNIB__TRYING;
    else if (wait->gate->trying)
        wait->hint = true;
    else
        snib__wait_try(e, wait, now);
}

/* ---- sleeping ---- */

/* How long to sleep; left_ms: the holder's remaining lease, or -1 if unknown. */
static snib__time wait_duration(struct snib__engine *e, struct snib__wait *wait, int64_t left_ms,
                                bool foreign)
{
    const struct snib__lock_kind *kind = wait->gate->kind;
    snib__time cap = kind->discipline == SNIB__QUEUED ? WAIT_BEAT
                     : foreign                        ? WAIT_FOREIGN
                                                      : e->config.recheck;
    snib__time sleep = cap - snib__engine_random(e, cap / 4);
    if (kind->traits & SNIB__POLLS) {
        snib__time pause = (snib__time)SNIB__MS << wait->brief;
        if (wait->brief < WAIT_POLL_MAX)
            wait->brief++;
        sleep = pause / 2 + snib__engine_random(e, pause);
    }
    if (left_ms >= 0 && (snib__time)left_ms + 2 < sleep / SNIB__MS) /* it may be near 2^63 */
        sleep = (snib__time)left_ms * SNIB__MS + 2 * SNIB__MS;
    if (kind->traits & SNIB__POLLS)
        return sleep;
    if (sleep < WAIT_BRIEF && wait->brief++ > 0)
        sleep = WAIT_BRIEF + snib__engine_random(e, WAIT_BRIEF);
    else if (sleep >= WAIT_BRIEF)
        wait->brief = 0;
    if ((!wait->chan || wait->chan->state == SNIB__CHAN_REFUSED) && sleep > 2 * WAIT_BRIEF)
        sleep = 2 * WAIT_BRIEF + snib__engine_random(e, 2 * WAIT_BRIEF);
    return sleep;
}

/* The first waiter was refused: sleep.  foreign: the holder's release sends no message. */
void snib__wait_sleep(struct snib__engine *e, struct snib__gate *gate, int64_t left_ms,
                      bool foreign, snib__time now)
{
    struct snib__wait *wait = gate->wait;
    if (wait->hint && gate->kind->discipline != SNIB__QUEUED && snib__node_ready(gate->node)) {
        snib__gate_advance(e, gate, now);
        return;
    }
    if (wait->chan)
        snib__chan_subscribe(e, wait->chan, now);
    snib__time sleep = wait_duration(e, wait, left_ms, foreign);
    snib__timer_set(e, SNIB__TIMER_WAIT, &wait->timer_at, now + sleep);
}

void snib__wait_expired(struct snib__engine *e, struct snib__wait *wait, snib__time now)
{
    if (!wait->head || snib__gate_active(wait->gate) || wait->gate->trying || wait->incoming)
        return;
    if (!snib__node_ready(wait->gate->node)) {
        snib__timer_set(e, SNIB__TIMER_WAIT, &wait->timer_at, now + e->config.recheck);
        return;
    }
    if (!wait->waited_out) {
        e->stats.rechecks++;
        wait->own_messages = 0; /* what has not come by now was lost */
    }
    if (wait->gate->kind->discipline == SNIB__QUEUED)
        snib__place_beat(e, wait->gate, now);
    else
        snib__wait_try(e, wait, now);
}

/* Leave channels that have been unused for a while. */
void snib__wait_tick(struct snib__engine *e, snib__time now)
{
    while (e->idle_head && e->idle_head->idle_since + WAIT_LINGER <= now)
        snib__wait_free(e, e->idle_head);
}

snib__time snib__wait_deadline(const struct snib__engine *e)
{
    return e->idle_head ? e->idle_head->idle_since + WAIT_LINGER : SNIB__NEVER;
}
