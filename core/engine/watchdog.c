/* watchdog.c - renewal: holds without a lease of their own are kept alive while the client lives.
 *
 *     head                    cursor                          tail
 *      |--- being renewed ------|--- not yet due, by deadline ---|
 *
 * All renewed holds of a client have the same lease, so a list in order of the last renewal is in order
 * of due time and of deadline at once: no heap, no timer per lock.  A batch takes up to 100 holds from
 * the cursor into one script.  An answer moves its holds to the tail; without an answer the cursor goes
 * back to the head and they are tried again, until the deadline of the head passes: then it is lost.
 *
 * Due is after a third of the lease.  When many holds are due at once, batches begin a little early
 * and spaced, so that a burst of acquisitions spreads over the period within a few rounds.
 */
#include "engine/internal.h"

static snib__time watchdog_sent(const struct snib__engine *e, const struct snib__hold *hold)
{
    return hold->deadline - snib__lease_end(0, e->config.lease);
}

void snib__watchdog_add(struct snib__engine *e, struct snib__hold *hold)
{
    struct snib__node *node = &e->node;
    /* Grants come in the order of their sending, so this loop hardly ever turns. */
    struct snib__hold *after = node->renew_tail;
    while (after && after != node->renew_cursor && after->deadline > hold->deadline)
        after = after->prev;
    hold->prev = after;
    hold->next = after ? after->next : node->renew_head;
    if (hold->prev)
        hold->prev->next = hold;
    else
        node->renew_head = hold;
    if (hold->next)
        hold->next->prev = hold;
    else
        node->renew_tail = hold;
    if (!node->renew_cursor || node->renew_cursor == hold->next)
        node->renew_cursor = hold;
    hold->flags |= SNIB__LISTED;
    node->renew_n++;
}

void snib__watchdog_remove(struct snib__engine *e, struct snib__hold *hold)
{
    struct snib__node *node = &e->node;
    if (node->renew_cursor == hold)
        node->renew_cursor = hold->next;
    if (hold->prev)
        hold->prev->next = hold->next;
    else
        node->renew_head = hold->next;
    if (hold->next)
        hold->next->prev = hold->prev;
    else
        node->renew_tail = hold->prev;
    hold->flags &= (uint8_t)~SNIB__LISTED;
    node->renew_n--;
}

static snib__time watchdog_period(const struct snib__engine *e)
{
    return e->config.lease / 3;
}

/* When the hold at the cursor is to be renewed: on time, or a little before if the holds are many. */
static snib__time watchdog_due(const struct snib__engine *e)
{
    const struct snib__node *node = &e->node;
    snib__time period = watchdog_period(e), sent = watchdog_sent(e, node->renew_cursor);
    snib__time due = sent < node->ready_since ? node->ready_since : sent + period;
    if (node->renew_n >= 2 * SNIB__BATCH_MAX && due > node->ready_since) {
        snib__time early = sent + period - period / 12;
        snib__time spaced = node->renew_last + period * SNIB__BATCH_MAX / node->renew_n;
        snib__time soon = early > spaced ? early : spaced;
        due = soon < due ? soon : due;
    }
    return due > node->renew_retry ? due : node->renew_retry;
}

snib__time snib__watchdog_deadline(const struct snib__engine *e)
{
    const struct snib__node *node = &e->node;
    if (!node->renew_head)
        return SNIB__NEVER;
    snib__time next = node->renew_head->deadline;
    if (node->renew_cursor && snib__node_ready(e)) {
        snib__time due = watchdog_due(e);
        next = due < next ? due : next;
    }
    return next;
}

/* Send one batch from the cursor: what is due, and what will be within a twelfth of the period. */
static bool watchdog_send(struct snib__engine *e, snib__time now)
{
    struct snib__node *node = &e->node;
    struct snib__batch *batch = snib__batch_new(e);
    if (!batch)
        return false;
    snib__time period = watchdog_period(e);
    snib__time due = watchdog_sent(e, node->renew_cursor) + period;
    if (node->ready_since < watchdog_sent(e, node->renew_cursor) && now > due &&
        (now - due) / 1000 > e->stats.watchdog_late_us)
        e->stats.watchdog_late_us = (now - due) / 1000;
    if (node->ready_since < watchdog_sent(e, node->renew_cursor) && now > due + e->config.lease / 6)
        snib__engine_log(e, SNIB_LOG_WARNING,
                         "a renewal was sent %d ms late: this process gets too little time",
                         (int)((now - due) / SNIB__MS));
    struct snib__hold *hold = node->renew_cursor;
    while (hold && batch->n < SNIB__BATCH_MAX) {
        snib__time sent = watchdog_sent(e, hold);
        if (sent >= node->ready_since && sent + period - period / 12 > now)
            break;
        batch->holds[batch->n] = hold;
        batch->numbers[batch->n++] = hold->number;
        hold = hold->next;
    }
    if (batch->n == 0 || snib__node_send(e, SNIB__REQ_RENEW, batch, 0, now) < 0) {
        snib__batch_recycle(e, batch);
        return false;
    }
    node->renew_cursor = hold;
    node->renew_last = now;
    e->stats.renewal_commands++;
    return true;
}

void snib__watchdog_tick(struct snib__engine *e, snib__time now)
{
    struct snib__node *node = &e->node;
    while (node->renew_head && node->renew_head->deadline <= now)
        snib__hold_lose(e, node->renew_head, SNIB_REASON_UNREACHABLE, now);
    while (node->renew_cursor && snib__node_ready(e) && watchdog_due(e) <= now)
        if (!watchdog_send(e, now)) {
            node->renew_retry = now + 10 * SNIB__MS;
            break;
        }
}

static void watchdog_rewind(struct snib__engine *e, struct snib__batch *batch)
{
    e->stats.renewal_failures += batch->n;
    e->node.renew_cursor = e->node.renew_head;
    snib__batch_recycle(e, batch);
}

void snib__watchdog_unanswered(struct snib__engine *e, struct snib__batch *batch, snib__time now)
{
    (void)now;
    watchdog_rewind(e, batch);
}

/* The holds of the batch that are still the same and still held are given a new deadline, or are lost. */
void snib__watchdog_answer(struct snib__engine *e, struct snib__batch *batch, snib__time sent_at,
                           const struct snib__value *reply, uint32_t n, int32_t error,
                           snib__time now)
{
    if (error || reply->type != SNIB__RESP_ARRAY) {
        e->node.renew_retry = now + e->config.lease / 20;
        watchdog_rewind(e, batch);
        return;
    }
    uint32_t at = 1; /* the reply's pairs (index from 1, still exists) are in order */
    for (uint32_t i = 0; i < batch->n; i++) {
        struct snib__hold *hold = batch->holds[i];
        bool lost = at + 1 < n && reply[at].integer == (int64_t)i + 1;
        int reason = lost && reply[at + 1].integer ? SNIB_REASON_TAKEN : SNIB_REASON_DELETED;
        if (lost)
            at += 2;
        if (hold->number != batch->numbers[i] || hold->phase != SNIB__HELD)
            continue;
        if (lost) {
            snib__hold_lose(e, hold, reason, now);
        } else if (hold->flags & SNIB__LISTED) {
            snib__time deadline = snib__lease_end(sent_at, e->config.lease);
            snib__watchdog_remove(e, hold);
            if (deadline > hold->deadline)
                hold->deadline = deadline;
            snib__watchdog_add(e, hold);
            e->stats.renewals++;
        }
    }
    snib__batch_recycle(e, batch);
}

/* After a reconnect every hold is renewed at once (watchdog_due looks at ready_since).  On another server, or
 * one that was restarted, holds with a fixed lease are only asked for. */
void snib__watchdog_reconnected(struct snib__engine *e, bool other_server, snib__time now)
{
    e->node.renew_cursor = e->node.renew_head;
    e->node.renew_retry = 0;
    for (uint32_t i = 0; other_server && i < e->gates_cap; i++)
        for (struct snib__gate *gate = e->gates[i]; gate; gate = gate->next) {
            struct snib__hold *hold = gate->active;
            if (!hold || hold->phase != SNIB__HELD || hold->lease_ms == 0)
                continue;
            struct snib__batch *batch = snib__batch_new(e);
            if (!batch)
                return;
            batch->holds[0] = hold;
            batch->numbers[0] = hold->number;
            batch->n = 1;
            if (snib__node_send(e, SNIB__REQ_RENEW, batch, 0, now) < 0)
                snib__batch_recycle(e, batch);
        }
}
