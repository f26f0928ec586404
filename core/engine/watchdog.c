/* watchdog.c - renewal: holds without a lease of their own are kept alive while the client lives.
 *
 *     head                    cursor                          tail
 *      |--- being renewed ------|--- not yet due, by deadline ---|
 *
 * There is such a list for each kind.  All renewed holds of a client have the same lease, so a list
 * in order of the last renewal is also in order of due time and of deadline: no heap, no timer per
 * lock.  A batch takes up to 100 holds, or 400 permit ids, from the cursor into one script, which
 * keeps the server's pauses short.  A reply moves its holds to the tail.  Without a reply the
 * cursor goes back to the head and they are retried until the deadline of the head passes: then it
 * is lost.
 *
 * In a cluster the keys of one command must be in one slot, and a slot has few locks.  There a
 * window of up to 1,000 holds is sorted by slot, and each run of one slot is a batch.  All of them
 * leave at once.
 *
 * Holds are due after a third of the lease.  When many are due at once, batches start a little
 * early and spaced, so that a burst of acquisitions spreads over the period within a few rounds.
 */
#include "engine/internal.h"

#include <stdlib.h>
#include <string.h>

#define WATCHDOG_IDS_MAX 400                   /* a hold with more has a batch of its own */
#define WATCHDOG_WINDOW 1000                   /* in a cluster */
#define WATCHDOG_TELL_AGAIN (60000 * SNIB__MS) /* between log records of refusals */
#define WATCHDOG_PAUSE (10 * SNIB__MS) /* after a request that could not be sent, or was lost */

static snib__time watchdog_sent(const struct snib__engine *e, const struct snib__hold *hold)
{
    return hold->deadline - snib__lease_end(0, e->config.lease);
}

static struct snib__renewals *watchdog_list(struct snib__engine *e, const struct snib__hold *hold)
{
    (void)e;
    return &hold->gate->node->renewals[hold->gate->kind->kind];
}

/* Insert before the list's element `next`; NULL: at the end. */
static void watchdog_insert(struct snib__renewals *list, struct snib__hold *hold,
                            struct snib__hold *next)
{
    hold->next = next;
    hold->prev = next ? next->prev : list->tail;
    if (hold->prev)
        hold->prev->next = hold;
    else
        list->head = hold;
    if (next)
        next->prev = hold;
    else
        list->tail = hold;
    hold->flags |= SNIB__LISTED;
    hold->gate->node->renewed |= 1U << hold->gate->kind->kind;
    list->n++;
}

void snib__watchdog_add(struct snib__engine *e, struct snib__hold *hold)
{
    struct snib__renewals *list = watchdog_list(e, hold);
    /* Grants come in the order of sending, unless on several lanes, so this loop rarely iterates. */
    struct snib__hold *after = list->tail;
    while (after && after->deadline > hold->deadline)
        after = after->prev;
    watchdog_insert(list, hold, after ? after->next : list->head);
    if (!list->cursor || list->cursor->deadline > hold->deadline)
        list->cursor = hold; /* those up to the former cursor are renewed once more */
}

void snib__watchdog_merge(struct snib__engine *e, struct snib__hold *chain)
{
    struct snib__renewals *list = watchdog_list(e, chain);
    struct snib__hold *at = list->head;
    bool earlier = false; /* something was inserted before the cursor */
    while (chain) {
        struct snib__hold *hold = chain;
        chain = chain->next;
        while (at && at->deadline <= hold->deadline)
            at = at->next;
        watchdog_insert(list, hold, at);
        if (!earlier)
            list->cursor =
                list->cursor && list->cursor->deadline <= hold->deadline ? list->cursor : hold;
        earlier = true;
    }
}

void snib__watchdog_remove(struct snib__engine *e, struct snib__hold *hold)
{
    struct snib__renewals *list = watchdog_list(e, hold);
    if (list->cursor == hold)
        list->cursor = hold->next;
    if (hold->prev)
        hold->prev->next = hold->next;
    else
        list->head = hold->next;
    if (hold->next)
        hold->next->prev = hold->prev;
    else
        list->tail = hold->prev;
    hold->flags &= (uint16_t)~SNIB__LISTED;
    if (--list->n == 0)
        hold->gate->node->renewed &= ~(1U << hold->gate->kind->kind);
}

static snib__time watchdog_period(const struct snib__engine *e)
{
    return e->config.lease / 3;
}

/* Whether its node has become ready since it was last renewed. If a query about it is pending, that will do: nodes that
 * redirect to each other move it back and forth, and each move would add a renewal that is redirected as well. */
static bool watchdog_at_once(const struct snib__hold *hold, snib__time sent)
{
    return sent < hold->gate->node->ready_since && !(hold->flags & SNIB__ASKED);
}

/* When to renew the hold at the cursor: on time, or a little early if there are many holds. */
static snib__time watchdog_due(const struct snib__engine *e, const struct snib__renewals *list)
{
    const struct snib__node *node = list->cursor->gate->node;
    snib__time period = watchdog_period(e), sent = watchdog_sent(e, list->cursor);
    snib__time due = watchdog_at_once(list->cursor, sent) ? node->ready_since : sent + period;
    snib__time at_once = e->slots ? WATCHDOG_WINDOW : SNIB__BATCH_MAX;
    if (list->n >= 2 * SNIB__BATCH_MAX && due > node->ready_since) {
        snib__time early = sent + period - period / 12;
        snib__time spaced = list->last + period * at_once / list->n;
        snib__time soon = early > spaced ? early : spaced;
        due = soon < due ? soon : due;
    }
    return due > list->retry ? due : list->retry;
}

snib__time snib__watchdog_deadline(const struct snib__engine *e)
{
    snib__time next = SNIB__NEVER;
    for (const struct snib__node *node = e->nodes; node; node = node->next) {
        bool ready = snib__node_ready(node);
        for (uint32_t kinds = node->renewed; kinds; kinds &= kinds - 1) {
            const struct snib__renewals *list = &node->renewals[__builtin_ctz(kinds)];
            if (list->head->deadline < next)
                next = list->head->deadline;
            if (list->cursor && ready) {
                snib__time due = watchdog_due(e, list);
                next = due < next ? due : next;
            }
        }
        if (ready && node->ask_at < next)
            next = node->ask_at;
    }
    return next;
}

/* A renewal that the server has refused was not late: it is repeated after a pause. */
static void watchdog_note_lateness(struct snib__engine *e, const struct snib__renewals *list,
                                   snib__time now)
{
    snib__time sent = watchdog_sent(e, list->cursor), due = sent + watchdog_period(e);
    if (list->retry > due)
        due = list->retry;
    if (list->cursor->gate->node->ready_since >= sent || now <= due)
        return;
    if ((now - due) / 1000 > e->stats.watchdog_late_us)
        e->stats.watchdog_late_us = (now - due) / 1000;
    if (now - due > e->late)
        e->late = now - due;
}

/* Once for all that were due: each might push a loss out of the log. */
static void watchdog_tell_lateness(struct snib__engine *e)
{
    if (e->late > e->config.lease / 6)
        snib__engine_log(e, SNIB_LOG_WARNING,
                         "a renewal is %lld ms late: this process gets too little CPU time, or the "
                         "machine was suspended",
                         (long long)(e->late / SNIB__MS));
    e->late = 0;
}

/* How many ids the server must check for a hold. */
static uint32_t watchdog_ids(const struct snib__hold *hold)
{
    int32_t kind = hold->gate->kind->kind;
    return kind == SNIB_PERMITS ? hold->permits : kind == SNIB__MULTI ? 100 : 1; /* at most */
}

/* A server's clock that was set back keeps leases for longer, also after their holder has died.  Where no lease is ever
 * extended, no copy of a request can do harm by setting them right. */
static bool watchdog_corrects(const struct snib__engine *e, const struct snib__node *node)
{
    return node->moved_back && e->extended == 0;
}

/* A member of a lock of several clients may get a longer, fixed lease as soon as the others are there: a request that is
 * astray must not shorten that. */
static bool watchdog_may_shorten(const struct snib__hold *hold)
{
    return !hold->member;
}

static void watchdog_put(struct snib__batch *batch, struct snib__hold *hold)
{
    batch->of[batch->n].hold = hold;
    batch->of[batch->n++].number = hold->number;
}

/* Send a batch of the first of n holds of one node and kind; in a cluster, as far as they share a
 * slot; and where leases are corrected, as far as theirs may be, or may not.  Returns how many are in it, or 0. */
static uint32_t watchdog_send_batch(struct snib__engine *e, struct snib__hold *const *holds,
                                    uint32_t n, snib__time now)
{
    uint32_t ids = watchdog_ids(holds[0]), most = 1;
    bool corrects = watchdog_corrects(e, holds[0]->gate->node);
    bool may_shorten = watchdog_may_shorten(holds[0]);
    while (most < n && most < SNIB__BATCH_MAX && holds[most]->gate->slot == holds[0]->gate->slot &&
           (!corrects || watchdog_may_shorten(holds[most]) == may_shorten) &&
           (ids += watchdog_ids(holds[most])) <= WATCHDOG_IDS_MAX)
        most++;
    struct snib__batch *batch = snib__batch_new(e, most);
    if (!batch)
        return 0;
    batch->lease_ms = (int64_t)(e->config.lease / SNIB__MS);
    batch->node = holds[0]->gate->node;
    batch->kind = holds[0]->gate->kind->kind;
    batch->exact = corrects && may_shorten;
    for (uint32_t i = 0; i < most; i++)
        watchdog_put(batch, holds[i]);
    if (snib__node_send(e, SNIB__REQ_RENEW, batch, 0, now) < 0) {
        snib__batch_recycle(e, batch);
        return 0;
    }
    e->stats.renewal_commands++;
    return most;
}

static int watchdog_by_slot(const void *a, const void *b)
{
    struct snib__hold *const *one = a, *const *other = b;
    return (*one)->gate->slot - (*other)->gate->slot;
}

/* From the cursor on, send what is due, or will be within a twelfth of the period: one batch, or in
 * a cluster a window of them. */
static bool watchdog_send(struct snib__engine *e, struct snib__renewals *list, snib__time now)
{
    struct snib__hold *holds[WATCHDOG_WINDOW];
    snib__time period = watchdog_period(e);
    uint32_t n = 0, most = e->slots ? WATCHDOG_WINDOW : SNIB__BATCH_MAX, ids = 0;
    watchdog_note_lateness(e, list, now);
    if (list->alone)
        most = 1;
    struct snib__hold *hold = list->cursor;
    for (; hold && n < most; hold = hold->next) {
        snib__time sent = watchdog_sent(e, hold);
        ids += watchdog_ids(hold);
        if ((!watchdog_at_once(hold, sent) && sent + period - period / 12 > now) ||
            (n > 0 && !e->slots && ids > WATCHDOG_IDS_MAX))
            break;
        holds[n++] = hold;
    }
    if (e->slots)
        qsort(holds, n, sizeof holds[0], watchdog_by_slot);
    for (uint32_t i = 0, sent; i < n; i += sent)
        if ((sent = watchdog_send_batch(e, holds + i, n - i, now)) == 0) {
            list->cursor = list->head;
            return false;
        }
    if (n == 0)
        return false;
    e->identity.due = true; /* something has been held for a while */
    list->cursor = hold;
    list->last = now;
    return true;
}

/* The lease that confirms a first one; a reply with another lease predates
 * a change to a fixed lease. */
static int64_t watchdog_lease_ms(const struct snib__engine *e, const struct snib__hold *hold)
{
    return (int64_t)(snib__hold_lease(e, hold) / SNIB__MS);
}

/* A fixed lease may end earlier at the server than here: a promoted server's clock is ahead, or the clock was set.  So the
 * query gives it again what is left of it.  One that arrives late, on a connection that was given up, can only end it
 * later, because its deadline stays.  0: it has no end. */
static int64_t watchdog_left_ms(const struct snib__hold *hold, snib__time now)
{
    if (hold->deadline <= now || hold->deadline == SNIB__NEVER)
        return 0;
    return (int64_t)((snib__lease_until(now, hold->deadline) + SNIB__MS - 1) / SNIB__MS);
}

/* Renew one hold only, or (lease_ms 0) query whether it is still held.  A first lease is confirmed instead: that says
 * so, too. */
int snib__watchdog_single(struct snib__engine *e, struct snib__hold *hold, int64_t lease_ms,
                          snib__time now)
{
    struct snib__batch *batch = snib__batch_new(e, 1);
    if (!batch)
        return -1;
    if (lease_ms == 0 && (hold->flags & SNIB__FIRST))
        lease_ms = watchdog_lease_ms(e, hold);
    batch->asks = lease_ms == 0;
    batch->lease_ms = batch->asks ? watchdog_left_ms(hold, now) : lease_ms;
    batch->node = hold->gate->node;
    batch->exact = hold->exact || (watchdog_may_shorten(hold) && watchdog_corrects(e, batch->node));
    batch->kind = hold->gate->kind->kind;
    watchdog_put(batch, hold);
    if (snib__node_send(e, SNIB__REQ_RENEW, batch, 0, now) == 0)
        return 0;
    snib__batch_recycle(e, batch);
    return -1;
}

static void watchdog_tick(struct snib__engine *e, const struct snib__node *node,
                          struct snib__renewals *list, snib__time now)
{
    /* The first to end was due and not renewed, although its server is there: this process stood still. */
    if (list->head && list->head == list->cursor && list->head->deadline <= now &&
        snib__node_ready(node))
        watchdog_note_lateness(e, list, now);
    while (list->head && list->head->deadline <= now)
        snib__hold_over(e, list->head, now);
    while (list->cursor && snib__node_ready(node) && watchdog_due(e, list) <= now)
        if (!watchdog_send(e, list, now)) {
            list->retry = now + WATCHDOG_PAUSE;
            break;
        }
    if (now >= list->retry)
        list->alone = false;
}

static bool watchdog_has_fixed(const struct snib__hold *hold)
{
    return hold->phase == SNIB__HELD && hold->gate->kind->renew && hold->lease_ms &&
           hold->deadline != SNIB__NEVER;
}

void snib__watchdog_ask_later(struct snib__hold *hold, snib__time at)
{
    struct snib__node *node = hold->gate->node;
    if (at < node->ask_at)
        node->ask_at = at;
}

/* A fixed lease has begun with a request of sent_at, which another lane's news that the server's clock was set may have
 * overtaken.  What is in doubt is asked for: no renewal will find out any more. */
void snib__watchdog_fixed(struct snib__hold *hold, snib__time sent_at, snib__time now)
{
    if (!watchdog_has_fixed(hold))
        return;
    hold->unsure |= sent_at < hold->gate->node->moved_at;
    if (hold->unsure || (hold->flags & SNIB__INHERITED))
        snib__watchdog_ask_later(hold, now);
}

/* The server has the hold, and was asked at sent_at to keep it for so long; 0: for as long as before.  That ends a doubt
 * about a lease unless the deadline is later, which an extension may have moved since, or a first lease is still to be
 * confirmed by another one: the server's clock may be ahead. */
void snib__watchdog_assured(const struct snib__engine *e, struct snib__hold *hold, int64_t lease_ms,
                            snib__time sent_at, snib__time now)
{
    bool first = hold->flags & SNIB__FIRST, fixed = watchdog_has_fixed(hold);
    snib__time lease = (snib__time)lease_ms * SNIB__MS;
    bool less = fixed && lease > 0 && snib__lease_end(sent_at, lease) < hold->deadline;
    if (first ? lease_ms != watchdog_lease_ms(e, hold) : less) {
        if (fixed)
            snib__watchdog_ask_later(hold, now);
        return;
    }
    hold->flags &= (uint16_t)~SNIB__INHERITED;
    hold->unsure = false;
}

/* Query the holds with a fixed lease that the node's present server has not confirmed.  Nothing
 * else would ever find out, so a query without an answer is repeated. */
static void watchdog_ask(struct snib__engine *e, struct snib__node *node, snib__time now)
{
    node->ask_at = SNIB__NEVER;
    for (uint32_t i = 0; i < e->gates_cap; i++)
        for (struct snib__gate *gate = e->gates[i]; gate; gate = gate->next)
            for (struct snib__hold *hold = gate->node == node ? snib__gate_first(gate) : NULL; hold;
                 hold = snib__gate_next(gate, hold)) {
                bool unsure = hold->unsure || (hold->flags & SNIB__INHERITED);
                if (!unsure || !watchdog_has_fixed(hold) || (hold->flags & SNIB__ASKED))
                    continue;
                if (snib__watchdog_single(e, hold, 0, now) == 0)
                    hold->flags |= SNIB__ASKED;
                else
                    snib__watchdog_ask_later(hold, now + WATCHDOG_PAUSE);
            }
}

void snib__watchdog_tick(struct snib__engine *e, snib__time now)
{
    for (struct snib__node *node = e->nodes; node; node = node->next) {
        for (int kind = 0; kind < SNIB__KINDS; kind++)
            watchdog_tick(e, node, &node->renewals[kind], now);
        if (node->ask_at <= now && snib__node_ready(node))
            watchdog_ask(e, node, now);
    }
    watchdog_tell_lateness(e);
}

/* The batch has told nothing of the i-th hold, and will not.  Of one with a fixed lease, which it may have got since, nothing
 * else would. */
static void watchdog_untold(struct snib__batch *batch, uint32_t i, snib__time again)
{
    struct snib__hold *hold = batch->of[i].hold;
    if (hold->number != batch->of[i].number)
        return;
    hold->flags &= (uint16_t)~SNIB__ASKED;
    if (watchdog_has_fixed(hold))
        snib__watchdog_ask_later(hold, again);
}

/* The batch has told nothing.  again: when to repeat its questions. */
static void watchdog_rewind(struct snib__engine *e, struct snib__batch *batch, snib__time again)
{
    struct snib__renewals *list = &batch->node->renewals[batch->kind];
    e->stats.renewal_failures += batch->n;
    list->cursor = list->head;
    for (uint32_t i = 0; i < batch->n; i++)
        watchdog_untold(batch, i, again);
    snib__batch_recycle(e, batch);
}

/* Whether a repeated batch concerns the i-th hold still, and gives it the lease that it has: one that has got another lease
 * since has a request of its own. */
static bool watchdog_still(const struct snib__batch *batch, uint32_t i)
{
    const struct snib__hold *hold = batch->of[i].hold;
    return hold->number == batch->of[i].number && hold->phase == SNIB__HELD &&
           (batch->asks || hold->lease_ms == 0 || batch->lease_ms == hold->lease_ms);
}

bool snib__watchdog_prune(struct snib__engine *e, struct snib__batch *batch, snib__time now)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < batch->n; i++)
        if (watchdog_still(batch, i))
            batch->of[kept++] = batch->of[i];
        else
            watchdog_untold(batch, i, now);
    batch->n = kept;
    if (kept == 0) {
        snib__batch_recycle(e, batch);
        return false;
    }
    /* It may have been delayed for long: what has been extended since is not shortened. */
    const struct snib__hold *first = batch->of[0].hold;
    batch->exact = batch->exact && (first->exact || watchdog_corrects(e, first->gate->node));
    return true;
}

static void watchdog_split(struct snib__engine *e, struct snib__batch *batch, snib__time now)
{
    for (uint32_t i = 0; i < batch->n; i++)
        if (snib__watchdog_single(e, batch->of[i].hold, batch->lease_ms, now) < 0) {
            watchdog_rewind(e, batch, now + WATCHDOG_PAUSE);
            return;
        }
    snib__batch_recycle(e, batch);
}

void snib__watchdog_again(struct snib__engine *e, struct snib__request *request, bool split,
                          snib__time now)
{
    struct snib__batch *batch = request->subject;
    if (!snib__watchdog_prune(e, batch, now))
        return;
    batch->node = batch->of[0].hold->gate->node;
    batch->via = NULL;
    if (split && batch->n > 1) {
        watchdog_split(e, batch, now);
        return;
    }
    /* To be kept alive, a fair lock is just a mutex; its queue catches up when that is possible. */
    batch->narrow = split && batch->kind == SNIB_FAIR;
    request->asking = false;
    if (snib__node_send_to(e, batch->node, request, now) < 0)
        watchdog_rewind(e, batch, now + WATCHDOG_PAUSE);
}

void snib__watchdog_unanswered(struct snib__engine *e, struct snib__batch *batch, snib__time now)
{
    if (batch->exact)
        (batch->via ? batch->via : batch->node)->astray_at = now;
    watchdog_rewind(e, batch, now + WATCHDOG_PAUSE);
}

/* The short first lease of a fair hold has been replaced by its own lease. */
static void watchdog_confirmed(struct snib__engine *e, struct snib__hold *hold, snib__time sent_at,
                               snib__time now)
{
    hold->flags &= (uint16_t)~SNIB__FIRST;
    hold->exact = false;
    hold->deadline = snib__lease_end(sent_at, snib__hold_lease(e, hold));
    if (hold->lease_ms == 0)
        snib__watchdog_add(e, hold);
    snib__watchdog_fixed(hold, sent_at, now);
    snib__hold_arm(e, hold, now);
    e->stats.renewals++;
}

/* Another node serves the name since, and has still to tell. */
static bool watchdog_moved(const struct snib__engine *e, const struct snib__batch *batch,
                           struct snib__hold *hold, snib__time sent_at, snib__time now)
{
    if (batch->node == hold->gate->node && !snib__gate_moved(e, hold->gate, sent_at))
        return false;
    if (watchdog_has_fixed(hold))
        snib__watchdog_ask_later(hold, now);
    return true;
}

/* Until the holds are lost, nothing else says so.  Each reason, which is the first
 * word, is told once in a while. */
static void watchdog_tell_refusal(struct snib__engine *e, struct snib__node *node, const char *text,
                                  size_t n, snib__time now)
{
    char words[SNIB__WORDS_MAX];
    const uint64_t reason = 1ULL << (snib__hash(text, strcspn(text, " ")) & 63);
    if (node->refused_at == 0 || now >= node->refused_at + WATCHDOG_TELL_AGAIN) {
        node->refused_at = now;
        node->refused = 0;
    }
    if (node->refused & reason)
        return;
    node->refused |= reason;
    snib__words(words, sizeof words, text, n, e->config.login.password);
    snib__engine_log(e, SNIB_LOG_WARNING, "%s refuses to renew locks: %s",
                     snib__node_where(e, node), words);
}

/* Holds of the batch that are unchanged and still held get a new deadline, or are lost. */
void snib__watchdog_answer(struct snib__engine *e, struct snib__node *node,
                           struct snib__batch *batch, snib__time sent_at,
                           const struct snib__value *reply, uint32_t n, int32_t error,
                           const char *text, snib__time now)
{
    if (error || reply->type != SNIB__RESP_ARRAY) {
        struct snib__renewals *list = &batch->node->renewals[batch->kind];
        if (error)
            watchdog_tell_refusal(e, node, text, (size_t)reply->count, now);
        list->retry = now + e->config.lease / 20;
        /* One lock's missing permission fails the whole command: the others must not suffer. */
        list->alone = list->alone || (error == SNIB_EPERM && batch->n > 1);
        watchdog_rewind(e, batch, list->retry);
        return;
    }
    uint32_t at = 1; /* the reply's pairs (index from 1, still exists) are in order */
    for (uint32_t i = 0; i < batch->n; i++) {
        struct snib__hold *hold = batch->of[i].hold;
        bool lost = at + 1 < n && reply[at].integer == (int64_t)i + 1;
        bool taken = lost && reply[at + 1].integer != 0;
        if (lost)
            at += 2;
        if (hold->number != batch->of[i].number || hold->phase != SNIB__HELD ||
            snib__hold_over(e, hold, now))
            continue;
        if (watchdog_moved(e, batch, hold, sent_at, now))
            continue;
        int reason = snib__hold_denied(hold, taken);
        if (lost) {
            snib__hold_lose(e, hold, reason, now);
            continue;
        }
        snib__watchdog_assured(e, hold, batch->lease_ms, sent_at, now);
        if (batch->asks)
            continue;
        bool whole = batch->lease_ms >= (int64_t)(e->config.lease / SNIB__MS);
        if ((hold->flags & SNIB__LISTED) && whole) {
            snib__time deadline = snib__lease_end(sent_at, e->config.lease);
            snib__watchdog_remove(e, hold);
            if (deadline > hold->deadline)
                hold->deadline = deadline;
            snib__watchdog_add(e, hold);
            e->stats.renewals++;
        } else if ((hold->flags & SNIB__FIRST) && batch->lease_ms == watchdog_lease_ms(e, hold)) {
            watchdog_confirmed(e, hold, sent_at, now);
        }
    }
    snib__batch_recycle(e, batch);
}

/* Its server may have forgotten the holds.  What was asked before does not count. */
static void watchdog_doubt(struct snib__engine *e, const struct snib__node *node)
{
    for (uint32_t i = 0; i < e->gates_cap; i++)
        for (struct snib__gate *gate = e->gates[i]; gate; gate = gate->next)
            for (struct snib__hold *hold = gate->node == node ? snib__gate_first(gate) : NULL; hold;
                 hold = snib__gate_next(gate, hold))
                if (hold->phase == SNIB__HELD && gate->kind->renew &&
                    hold->deadline != SNIB__NEVER) {
                    hold->unsure = true;
                    hold->flags &= (uint16_t)~SNIB__ASKED;
                }
}

/* After a reconnect every hold is renewed at once (watchdog_due looks at ready_since).  On another
 * server, or after a restart, all are at risk until it has confirmed them, and those with a fixed
 * lease are asked for. */
void snib__watchdog_reconnected(struct snib__engine *e, struct snib__node *node, bool other_server,
                                snib__time now)
{
    for (int kind = 0; kind < SNIB__KINDS; kind++) {
        struct snib__renewals *list = &node->renewals[kind];
        list->cursor = list->head;
        list->retry = 0;
        for (struct snib__hold *hold = list->head; hold; hold = hold->next)
            hold->flags &= (uint16_t)~SNIB__ASKED; /* that may have gone to a server that is dead */
    }
    if (other_server)
        watchdog_doubt(e, node);
    if (other_server || node->ask_at != SNIB__NEVER)
        watchdog_ask(e, node, now);
}
