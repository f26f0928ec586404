/* place.c - the fair lock: every waiter has a place of its own in a queue at the server.
 *
 *     NEW --asked--> TRYING --it was free--> HELD
 *                     |  ^
 *          a place    v  | one beat per second, a nudge, a new subscription
 *                    PLACED --the release before it, by message or reply--> HELD by the first lease
 *                     |
 *                     '--timeout, cancel, error--> RELEASING: the place is given back
 *
 * Releasing a hold grants the lock to the first waiter, if that is a Snib waiter, and notifies its
 * process on the channel of its client id.  There is no order between the two connections, so the
 * server's clock tells whether the grant came after the waiter was last seen waiting; otherwise it
 * is an old one.  If it did, the lease cannot have begun before that request was sent: the deadline
 * counts from there and no further command is needed.  The first lease is short, because the
 * granter cannot know whether the waiter is alive.  A hold that outlives a third of it is
 * confirmed; a grant that came so late that little is left is confirmed before it is given out.
 *
 * A place is requested only while the process is subscribed, or after a second without success: the
 * granter skips waiters that cannot receive its message, and no waiter should be overtaken for
 * that.
 *
 * One beat per second and process keeps the places alive and advances the clock of the queue: a
 * client that has not asked for 2.5 seconds loses its places (core/lua/_fair.lua).  Redisson's
 * releases notify a waiter on its own channel, which the client subscribes to only where a Redisson
 * client is ahead.
 */
#include "engine/internal.h"

#include <stdlib.h>
#include <string.h>

/* Longer than any granter gives; a message is not trusted for more. */
#define PLACE_FIRST_MAX (4000 * SNIB__MS)

/* ---- Redisson's messages ---- */

static void place_say(struct snib__engine *e, const struct snib__hold *hold, bool join)
{
    char channel[SNIB__CHANNEL_MAX];
    const struct snib__gate *gate = hold->gate;
    size_t n = gate->kind->channel(channel, e, gate, 0);
    channel[n++] = ':';
    n += snib__decimal(channel + n, (int64_t)hold->number);
    if (join)
        snib__chan_join(e, hold->gate->node, channel, n);
    else
        snib__chan_leave(e, hold->gate->node, channel, n);
}

static void place_listen(struct snib__engine *e, struct snib__hold *hold)
{
    if (hold->flags & SNIB__LISTENS)
        return;
    hold->flags |= SNIB__LISTENS;
    if (snib__node_listens(hold->gate->node))
        place_say(e, hold, true);
}

/* The pub/sub link is new: subscribe again. */
void snib__place_relisten(struct snib__engine *e, struct snib__gate *gate)
{
    for (struct snib__hold *hold = gate->peers; hold; hold = hold->peer_next)
        if ((hold->flags & SNIB__LISTENS) && hold->op)
            place_say(e, hold, true);
}

/* The hold is no longer in the queue. */
void snib__place_left(struct snib__engine *e, struct snib__hold *hold)
{
    if (!(hold->flags & SNIB__LISTENS))
        return;
    hold->flags &= (uint16_t)~SNIB__LISTENS;
    if (snib__node_listens(hold->gate->node))
        place_say(e, hold, false);
}

/* ---- asking ---- */

static void place_ask(struct snib__engine *e, struct snib__hold *hold, snib__time now)
{
    struct snib__op *op = hold->op;
    hold->phase = SNIB__TRYING;
    hold->flags &= (uint16_t)~SNIB__AWAKE;
    if (snib__chan_on(hold->gate->waitq))
        hold->flags |= op->once ? SNIB__AWAKE : SNIB__AWAKE | SNIB__QUEUES;
    hold->gate->trying++;
    if (snib__node_send(e, SNIB__REQ_ACQUIRE, hold, hold->number, now) == 0)
        return;
    hold->gate->trying--;
    if (op->stage == SNIB__STAGE_QUEUED) {
        snib__waitq_remove(hold->gate->waitq, op);
        snib__waitq_rest(e, hold->gate, now);
    }
    snib__gate_end_op(e, op, SNIB_ENOMEM);
    snib__gate_undo(e, hold, now, now);
}

/* A place cannot wait behind durable.c's WAIT, which may last for longer: what keeps it, and what takes a first lease, is
 * sent past that, and once it is granted, asked for again where replicas count. */
bool snib__place_keeps(const struct snib__hold *hold)
{
    return hold->gate->kind->discipline == SNIB__QUEUED && (hold->flags & SNIB__SEATED) &&
           !(hold->flags & SNIB__FIRST);
}

/* Every waiter asks: a grant may have been missed, or the server may have lost the queue. */
void snib__place_ask_all(struct snib__engine *e, struct snib__gate *gate, snib__time now)
{
    for (struct snib__op *op = gate->waitq->head, *next; op; op = next) {
        next = op->next;
        if (op->hold->phase == SNIB__PLACED && snib__node_ready(gate->node))
            place_ask(e, op->hold, now);
    }
}

/* The first waiter of this process asks for all that have places; the others ask for themselves. */
void snib__place_beat(struct snib__engine *e, struct snib__gate *gate, snib__time now)
{
    bool asked = false;
    for (struct snib__op *op = gate->waitq->head, *next; op; op = next) {
        next = op->next;
        if (op->hold->phase != SNIB__PLACED || (asked && (op->hold->flags & SNIB__SEATED)))
            continue;
        asked = true;
        place_ask(e, op->hold, now);
    }
}

/* ---- granted ---- */

static void place_take(struct snib__engine *e, struct snib__hold *hold, int64_t token,
                       snib__time sent_at, snib__time now)
{
    struct snib__op *op = hold->op;
    snib__place_left(e, hold);
    if (op && op->stage == SNIB__STAGE_QUEUED)
        snib__waitq_remove(hold->gate->waitq, op);
    snib__gate_grant(e, hold, token, sent_at, now);
}

/* A release has granted the hold with a first lease, later than `known`. */
static void place_promised(struct snib__engine *e, struct snib__hold *hold, int64_t token,
                           int64_t first_ms, snib__time known, snib__time now)
{
    snib__time lease = snib__hold_lease(e, hold);
    snib__time first = (snib__time)first_ms * SNIB__MS;
    if (first > PLACE_FIRST_MAX)
        first = PLACE_FIRST_MAX;
    if (lease < first)
        first = lease;
    snib__time safe = snib__lease_end(known, first);
    bool untold = (hold->options & SNIB_LOCK_FENCED) && token == 0; /* the counter was missing */
    /* Little is left, the lease differs from the granter's, or the grant is on the master only. */
    if (safe < now + first / 2 || hold->lease_ms || untold || e->config.durability) {
        place_ask(e, hold, now);
        return;
    }
    hold->flags |= SNIB__FIRST;
    hold->deadline = safe;
    place_take(e, hold, token, known, now);
}

static struct snib__hold *place_find(const struct snib__gate *gate, uint64_t number)
{
    struct snib__hold *hold = gate->peers;
    while (hold && hold->number != number)
        hold = hold->peer_next;
    return hold;
}

bool snib__place_listens(const struct snib__gate *gate, uint64_t number)
{
    const struct snib__hold *hold = place_find(gate, number);
    return hold && (hold->flags & SNIB__LISTENS);
}

/* A grant has been heard of.  Take it, ask if it is an old one, or keep it until the reply in
 * flight tells whether it was made before or after.  One that comes late is another server's word if the name has moved
 * since the waiter heard from its server, and back perhaps: then ask, too. */
static void place_heard(struct snib__engine *e, struct snib__hold *hold, snib__time known,
                        int64_t token, int64_t first_ms, int64_t server_ms, snib__time now)
{
    struct snib__op *op = hold->op;
    if (hold->phase == SNIB__TRYING && snib__chan_on(hold->gate->waitq)) {
        hold->flags |= SNIB__PROMISED;
        op->fair.token = token;
        op->fair.first_ms = first_ms;
        op->fair.ms = server_ms;
    } else if (hold->phase == SNIB__PLACED) {
        if (server_ms >= op->fair.queued_ms && !snib__gate_moved(e, hold->gate, known))
            place_promised(e, hold, token, first_ms, known, now);
        else
            place_ask(e, hold, now);
    }
}

/* A message on the process's channel. */
void snib__place_message(struct snib__engine *e, struct snib__gate *gate, const char *text,
                         snib__time now)
{
    char *end;
    int64_t part[3] = {0}; /* token, first lease, server's ms */
    struct snib__hold *hold = place_find(gate, strtoull(text, &end, 10));
    if (!hold || !hold->op)
        return; /* it has left; its release is in flight */
    for (int i = 0; i < 3 && *end == ':'; i++)
        part[i] = strtoll(end + 1, &end, 10);
    if (part[1] > 0)
        place_heard(e, hold, hold->op->fair.seen_at, part[0], part[1], part[2], now);
}

/* News on the waiter's own channel: a Redisson release, or the subscription is confirmed. */
void snib__place_own_channel(struct snib__engine *e, struct snib__gate *gate, uint64_t number,
                             const char *what, snib__time now)
{
    struct snib__hold *hold = place_find(gate, number);
    if (strcmp(what, "unsubscribe") == 0 || !hold || !hold->op)
        return;
    e->stats.messages += strcmp(what, "message") == 0;
    if (hold->phase == SNIB__PLACED)
        place_ask(e, hold, now);
    else if (hold->phase == SNIB__TRYING)
        gate->waitq->hint = true;
}

/* ---- replies ---- */

static bool place_queue(struct snib__engine *e, struct snib__hold *hold, snib__time sent_at,
                        snib__time now)
{
    struct snib__op *op = hold->op;
    struct snib__waitq *waitq = snib__waitq_get(e, hold->gate);
    if (!waitq) {
        snib__gate_end_op(e, op, SNIB_ENOMEM);
        snib__gate_undo(e, hold, now, now);
        return false;
    }
    op->waited = op->told = true;
    snib__op_arm(e, op);
    hold->phase = SNIB__PLACED;
    op->fair.seen_at = sent_at;
    hold->flags |= SNIB__QUEUES;
    if (op->stage != SNIB__STAGE_QUEUED)
        snib__waitq_insert(waitq, op);
    return true;
}

/* An operation that arrives while others of this process wait for the
 * subscription asks after them. */
static bool place_is_behind(const struct snib__gate *gate)
{
    return gate->waitq && gate->waitq->head && !snib__chan_on(gate->waitq);
}

void snib__place_acquire(struct snib__engine *e, struct snib__op *op, snib__time now)
{
    struct snib__hold *hold = op->hold;
    bool behind = place_is_behind(op->gate);
    snib__gate_join(hold);
    op->stage = SNIB__STAGE_TRYING;
    if (behind && op->once) {
        snib__gate_end_op(e, op, SNIB_BUSY);
        snib__gate_forget_hold(e, hold);
    } else if (behind) {
        place_queue(e, hold, now, now);
    } else {
        if (!snib__node_ready(op->gate->node) || op->deadline != SNIB__NEVER)
            snib__op_arm(e, op);
        place_ask(e, hold, now);
    }
}

void snib__place_answer(struct snib__engine *e, struct snib__hold *hold, snib__time sent_at,
                        const struct snib__verdict *verdict, snib__time now)
{
    struct snib__op *op = hold->op;
    struct snib__gate *gate = hold->gate;
    bool again = op && e->config.durability && snib__place_keeps(hold);
    hold->flags &= (uint16_t)~SNIB__FIRST;
    if (verdict->yes && again) {
        hold->flags |= SNIB__FIRST;
        place_ask(e, hold, now);
        return;
    }
    if (verdict->yes) {
        hold->flags &= (uint16_t)~SNIB__PROMISED;
        place_take(e, hold, verdict->token, sent_at, now);
        return;
    }
    if (!op) {
        snib__gate_undo(e, hold, now, now); /* leave the queue */
        return;
    }
    if (op->owner && !op->once) /* it has a place since this request, if not before */
        hold->flags |= SNIB__SEATED;
    if (snib__gate_joins(e, op, now))
        return;
    if (op->once) {
        snib__gate_end_op(e, op, SNIB_BUSY);
        snib__gate_forget_hold(e, hold);
        return;
    }
    bool awake = hold->flags & SNIB__AWAKE, promised = hold->flags & SNIB__PROMISED;
    hold->flags &= (uint16_t)~SNIB__PROMISED;
    op->fair.queued_ms = verdict->server_ms;
    if (!place_queue(e, hold, sent_at, now))
        return;
    hold->flags |= SNIB__SEATED;
    if (promised && op->fair.ms >= verdict->server_ms) {
        place_promised(e, hold, op->fair.token, op->fair.first_ms, sent_at, now);
        return;
    }
    if (verdict->foreign)
        place_listen(e, hold);
    if ((!awake && snib__chan_on(gate->waitq)) || gate->waitq->hint) {
        gate->waitq->hint = false;
        place_ask(e, hold, now); /* a grant may have gone unheard */
        return;
    }
    if (gate->waitq->timer_at == 0 || gate->waitq->head == op)
        snib__waitq_sleep(e, gate, verdict->left_ms, false, now);
}

/* ---- leaving ---- */

/* A waiter leaves the gate's queue; its place at the server is given back. */
void snib__place_leave(struct snib__engine *e, struct snib__op *op, snib__time now)
{
    struct snib__hold *hold = op->hold;
    struct snib__gate *gate = hold->gate;
    bool unsent = hold->phase == SNIB__TRYING && snib__node_unsend(e, hold);
    gate->trying -= unsent;
    snib__waitq_remove(gate->waitq, op);
    op->hold = NULL;
    hold->op = NULL;
    snib__place_left(e, hold);
    if (unsent || hold->phase == SNIB__PLACED)
        snib__gate_undo(e, hold, now, now);
    else
        snib__durable_leave(e, hold, now); /* or a late grant goes back */
    snib__waitq_rest(e, gate, now);
}

/* A release, or a place given back, has granted the lock to another waiter of this client. */
void snib__place_released(struct snib__engine *e, struct snib__gate *gate,
                          const struct snib__verdict *verdict, snib__time sent_at, snib__time now)
{
    struct snib__hold *next = verdict->next ? place_find(gate, verdict->next) : NULL;
    if (!next || !next->op)
        return;
    if (next->phase == SNIB__PLACED)
        e->stats.handovers++;
    snib__time seen_at = next->op->fair.seen_at;
    place_heard(e, next, seen_at > sent_at ? seen_at : sent_at, verdict->next_token,
                verdict->next_ms, verdict->server_ms, now);
}
