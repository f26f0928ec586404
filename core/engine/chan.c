/* chan.c - subscriptions: one per channel, however many gates it wakes.
 *
 *     OFF --wanted--> ASKED --confirmed--> ON --its last gate has left--> LEAVING --> OFF, gone
 *                        '--refused--> REFUSED: its gates poll
 *
 * Readers and writers of one name share a channel, and so do the mutex, the fenced lock and a multi
 * lock that waits for one of them.
 *
 * Every request on the pub/sub link is owed a reply.  While operations wait, a link that has been
 * silent for a while is pinged, and one that stays silent beyond the reply timeout is closed and
 * reopened.
 */
#include "engine/internal.h"
#include "engine/route.h"
#include "net/script.h"
#include "net/slot.h"

#include <stdlib.h>
#include <string.h>

#define CHAN_OWED_MAX 16384 /* replies due; beyond this waiters sleep without a subscription */
#define CHAN_CIRCLE 4       /* redirects in a row that are followed at once */

static struct snib__link *chan_link(struct snib__node *node)
{
    return &node->links[SNIB__PUBSUB];
}

bool snib__chan_on(const struct snib__waitq *waitq)
{
    return waitq && waitq->chan && waitq->chan->state == SNIB__CHAN_ON;
}

/* ---- the table ---- */

static struct snib__chan *chan_find(struct snib__engine *e, const char *text, size_t n)
{
    uint32_t hash = snib__hash(text, n);
    for (struct snib__chan *chan = e->chans_cap ? e->chans[hash & (e->chans_cap - 1)] : NULL; chan;
         chan = chan->next)
        if (chan->hash == hash && chan->len == n && memcmp(chan->text, text, n) == 0)
            return chan;
    return NULL;
}

static int chan_grow(struct snib__engine *e)
{
    uint32_t cap = e->chans_cap ? e->chans_cap * 2 : 16;
    struct snib__chan **chans = calloc(cap, sizeof(struct snib__chan *));
    if (!chans)
        return -1;
    for (uint32_t i = 0; i < e->chans_cap; i++)
        for (struct snib__chan *chan = e->chans[i], *next; chan; chan = next) {
            next = chan->next;
            chan->next = chans[chan->hash & (cap - 1)];
            chans[chan->hash & (cap - 1)] = chan;
        }
    e->memory += (cap - e->chans_cap) * sizeof *chans;
    free(e->chans);
    e->chans = chans;
    e->chans_cap = cap;
    return 0;
}

static struct snib__chan *chan_new(struct snib__engine *e, struct snib__node *node,
                                   const char *text, size_t n)
{
    if (e->chans_n == e->chans_cap && chan_grow(e) < 0)
        return NULL;
    struct snib__chan *chan = malloc(sizeof *chan + n);
    if (!chan)
        return NULL;
    *chan = (struct snib__chan){.hash = snib__hash(text, n), .len = (uint16_t)n, .node = node};
    memcpy(chan->text, text, n);
    chan->next = e->chans[chan->hash & (e->chans_cap - 1)];
    e->chans[chan->hash & (e->chans_cap - 1)] = chan;
    e->chans_n++;
    e->memory += sizeof *chan + n;
    return chan;
}

static void chan_free(struct snib__engine *e, struct snib__chan *chan)
{
    struct snib__chan **at = &e->chans[chan->hash & (e->chans_cap - 1)];
    while (*at != chan)
        at = &(*at)->next;
    *at = chan->next;
    e->chans_n--;
    e->memory -= sizeof *chan + chan->len;
    free(chan);
}

/* The queue no longer hears its channel: a release may go unheard before it does so again, so requests on their way no
 * longer count as sent while subscribed. */
static void chan_deafen(struct snib__waitq *waitq)
{
    for (struct snib__hold *hold = snib__gate_first(waitq->gate); hold;
         hold = snib__gate_next(waitq->gate, hold))
        if (hold->phase == SNIB__TRYING)
            hold->flags &= (uint16_t)~SNIB__AWAKE;
}

/* The subscription has ended. */
static void chan_unheard(struct snib__chan *chan)
{
    chan->state = SNIB__CHAN_OFF;
    for (struct snib__waitq *waitq = chan->waitqs; waitq; waitq = waitq->chan_next)
        chan_deafen(waitq);
}

/* From now on another node carries the channel. */
static void chan_go(struct snib__engine *e, struct snib__chan *chan, struct snib__node *node)
{
    if (chan_link(chan->node)->conn.state == SNIB__CONN_READY &&
        (chan->state == SNIB__CHAN_ON || chan->state == SNIB__CHAN_ASKED))
        snib__chan_leave(e, chan->node, chan->text, chan->len);
    chan_unheard(chan);
    chan->node = node;
}

int snib__chan_attach(struct snib__engine *e, struct snib__waitq *waitq)
{
    char text[SNIB__CHANNEL_MAX];
    const struct snib__gate *gate = waitq->gate;
    if (gate->kind->traits & SNIB__POLLS)
        return 0;
    size_t n = gate->kind->channel(text, e, gate, waitq->blocker);
    struct snib__chan *chan = chan_find(e, text, n);
    if (!chan && !(chan = chan_new(e, gate->node, text, n)))
        return -1;
    if (chan->node != gate->node) /* nobody waited when the name moved: it was being left */
        chan_go(e, chan, gate->node);
    waitq->chan = chan;
    waitq->chan_prev = NULL;
    waitq->chan_next = chan->waitqs;
    if (chan->waitqs)
        chan->waitqs->chan_prev = waitq;
    chan->waitqs = waitq;
    return 0;
}

/* channel NULL: the verb has no argument. */
int snib__chan_say(struct snib__node *node, const char *verb, const char *channel, size_t n)
{
    struct snib__link *ep = chan_link(node);
    struct snib__buf *out = &ep->conn.out;
    size_t size = snib__buf_size(out);
    if (snib__resp_begin(out, channel ? 2 : 1) < 0 || snib__resp_arg(out, verb, strlen(verb)) < 0 ||
        (channel && snib__resp_arg(out, channel, n) < 0)) {
        out->len = out->head + size;
        return -1;
    }
    if (ep->owed++ == 0)
        ep->heard_at = SNIB__NEVER; /* the next tick sets the time */
    return 0;
}

int snib__chan_join(struct snib__engine *e, struct snib__node *node, const char *channel, size_t n)
{
    if (e->publish != SNIB__CLASSIC && snib__chan_say(node, "SSUBSCRIBE", channel, n) < 0)
        return -1;
    return e->publish != SNIB__SHARDED ? snib__chan_say(node, "SUBSCRIBE", channel, n) : 0;
}

static int chan_unsay(struct snib__engine *e, struct snib__node *node, const char *channel,
                      size_t n)
{
    if (e->publish != SNIB__CLASSIC && snib__chan_say(node, "SUNSUBSCRIBE", channel, n) < 0)
        return -1;
    return e->publish != SNIB__SHARDED ? snib__chan_say(node, "UNSUBSCRIBE", channel, n) : 0;
}

/* If there is no memory to send it, the subscription ends with the link, at the next tick. */
int snib__chan_leave(struct snib__engine *e, struct snib__node *node, const char *channel, size_t n)
{
    int error = chan_unsay(e, node, channel, n);
    if (error)
        chan_link(node)->soiled = true;
    return error;
}

/* ---- silence ---- */

/* Data has arrived.  answers: it answers the oldest request.  True: that request was the ping. */
static bool chan_heard(struct snib__link *ep, bool answers, snib__time now)
{
    ep->heard_at = now;
    if (!answers || ep->owed == 0)
        return false;
    ep->owed--;
    return ep->ping_in > 0 && --ep->ping_in == 0;
}

snib__time snib__chan_deadline(const struct snib__engine *e, const struct snib__link *ep)
{
    if (ep->conn.state != SNIB__CONN_READY || (ep->owed == 0 && !ep->wanted))
        return SNIB__NEVER;
    return ep->heard_at == SNIB__NEVER ? 0 : ep->heard_at + snib__node_reply_timeout(e, ep->node);
}

/* The link should have said something by now.  True: it owes a reply. */
bool snib__chan_silent(struct snib__engine *e, struct snib__link *ep, snib__time now)
{
    if (snib__chan_deadline(e, ep) > now)
        return false;
    if (ep->heard_at == SNIB__NEVER) {
        ep->heard_at = now;
        return false;
    }
    if (ep->owed > 0)
        return true;
    ep->wanted = snib__chan_needed(e, ep->node); /* otherwise it may stay silent */
    if (ep->wanted && snib__chan_say(ep->node, "PING", NULL, 0) == 0)
        ep->ping_in = ep->owed;
    ep->heard_at = now;
    return false;
}

void snib__chan_detach(struct snib__engine *e, struct snib__waitq *waitq)
{
    struct snib__chan *chan = waitq->chan;
    if (!chan)
        return;
    chan_deafen(waitq);
    waitq->chan = NULL;
    if (waitq->chan_prev)
        waitq->chan_prev->chan_next = waitq->chan_next;
    else
        chan->waitqs = waitq->chan_next;
    if (waitq->chan_next)
        waitq->chan_next->chan_prev = waitq->chan_prev;
    waitq->chan_prev = waitq->chan_next = NULL;
    if (chan->waitqs || chan->state == SNIB__CHAN_LEAVING)
        return;
    if ((chan->state == SNIB__CHAN_ON || chan->state == SNIB__CHAN_ASKED) &&
        snib__chan_leave(e, chan->node, chan->text, chan->len) == 0)
        chan->state = SNIB__CHAN_LEAVING; /* until it is confirmed */
    else
        chan_free(e, chan);
}

/* ---- subscribing ---- */

/* A waiter's name has moved to another node. */
void snib__chan_move(struct snib__engine *e, struct snib__waitq *waitq, struct snib__node *node,
                     snib__time now)
{
    struct snib__chan *chan = waitq->chan;
    if (!chan || chan->node == node)
        return;
    chan_go(e, chan, node);
    for (struct snib__waitq *other = chan->waitqs; other; other = other->chan_next)
        other->own_messages = 0;
    if (chan->redirects > CHAN_CIRCLE)
        return;
    if (snib__chan_wanted(chan))
        snib__chan_subscribe(e, chan, now);
    if (waitq->gate->kind->discipline == SNIB__QUEUED && snib__node_listens(node))
        snib__place_relisten(e, waitq->gate);
}

void snib__chan_subscribe(struct snib__engine *e, struct snib__chan *chan, snib__time now)
{
    struct snib__link *ep = chan_link(chan->node);
    bool awaited = ep->wanted; /* after its pause, which a waiter's next sleep does not shorten */
    ep->wanted = true;
    if (chan->state != SNIB__CHAN_OFF)
        return; /* subscribed again when leaving is confirmed */
    if (ep->conn.state != SNIB__CONN_READY && !awaited)
        snib__link_want(e, ep, now);
    else if (ep->conn.state == SNIB__CONN_READY && ep->owed < CHAN_OWED_MAX &&
             snib__chan_join(e, chan->node, chan->text, chan->len) == 0) {
        chan->state = SNIB__CHAN_ASKED;
        ep->asks = true;
    }
}

bool snib__chan_wanted(const struct snib__chan *chan)
{
    for (const struct snib__waitq *waitq = chan->waitqs; waitq; waitq = waitq->chan_next)
        if (waitq->head || waitq->incoming)
            return true;
    return false;
}

bool snib__chan_needed(const struct snib__engine *e, const struct snib__node *node)
{
    if (node->kind != SNIB__SERVER)
        return snib__engine_busy(e);
    for (uint32_t i = 0; i < e->chans_cap; i++)
        for (const struct snib__chan *chan = e->chans[i]; chan; chan = chan->next)
            if (chan->node == node && snib__chan_wanted(chan))
                return true;
    return false;
}

void snib__chan_pubsub_ready(struct snib__engine *e, struct snib__node *node, snib__time now)
{
    chan_link(node)->heard_at = now;
    chan_link(node)->owed = chan_link(node)->ping_in = 0;
    for (uint32_t i = 0; i < e->chans_cap; i++)
        for (struct snib__chan *chan = e->chans[i]; chan; chan = chan->next) {
            if (chan->node != node)
                continue;
            if (snib__chan_wanted(chan))
                snib__chan_subscribe(e, chan, now);
            for (struct snib__waitq *waitq = chan->waitqs; waitq; waitq = waitq->chan_next)
                if (waitq->gate->kind->discipline == SNIB__QUEUED)
                    snib__place_relisten(e, waitq->gate);
        }
}

/* All subscriptions are gone.  Waiters sleep on, with their timers, until
 * they are subscribed again. */
void snib__chan_pubsub_down(struct snib__engine *e, struct snib__node *node, snib__time now)
{
    for (uint32_t i = 0; i < e->chans_cap; i++)
        for (struct snib__chan *chan = e->chans[i], *next; chan; chan = next) {
            next = chan->next;
            if (chan->node != node)
                continue;
            chan_unheard(chan);
            if (!chan->waitqs) {
                chan_free(e, chan);
                continue;
            }
            for (struct snib__waitq *waitq = chan->waitqs, *other; waitq; waitq = other) {
                bool last = !waitq->chan_next; /* freeing the last one frees the channel */
                other = waitq->chan_next;
                waitq->own_messages = 0;
                if (!snib__waitq_used(waitq))
                    snib__waitq_free(e, waitq);
                else
                    snib__link_want(e, chan_link(node), now);
                if (last)
                    break;
            }
        }
}

/* ---- messages and confirmations ---- */

/* On the pub/sub link of a sentinel. */
void snib__chan_heard_else(struct snib__engine *e, struct snib__link *link,
                           const struct snib__value *reply, uint32_t n, snib__time now)
{
    bool message = n > 1 && reply[1].type == SNIB__RESP_STRING &&
                   strcmp(snib__resp_text(link->conn.resp, &reply[1]), "message") == 0;
    if (!chan_heard(link, !message, now)) /* otherwise it is the ping's reply */
        snib__route_heard(e, link, reply, n, now);
}

static void chan_confirmed(struct snib__engine *e, struct snib__chan *chan, snib__time now)
{
    bool behind = chan->redirects > CHAN_CIRCLE; /* and so are the waiters' own channels */
    chan->state = SNIB__CHAN_ON;
    chan->redirects = 0;
    for (struct snib__waitq *waitq = chan->waitqs, *next; waitq; waitq = next) {
        next = waitq->chan_next;
        if (waitq->gate->kind->discipline == SNIB__QUEUED && behind)
            snib__place_relisten(e, waitq->gate);
        if (waitq->gate->kind->discipline == SNIB__QUEUED)
            snib__place_ask_all(e, waitq->gate, now);
        else if (waitq->head)
            snib__waitq_try(e, waitq, now);
        else
            snib__waitq_rest(e, waitq->gate, now); /* another gate's waiter subscribed */
    }
}

static void chan_left(struct snib__engine *e, struct snib__chan *chan, snib__time now)
{
    chan_unheard(chan);
    if (!chan->waitqs)
        chan_free(e, chan);
    else if (snib__chan_wanted(chan))
        snib__chan_subscribe(e, chan, now);
}

/* An error does not name its channel: every channel asked for goes without.  A user who may use no channel gets as many
 * errors, and those after the first find nothing that is asked for: then the channels are not looked through again. */
static void chan_refused(struct snib__engine *e, struct snib__node *node, snib__time now)
{
    if (!chan_link(node)->asks)
        return;
    chan_link(node)->asks = false;
    for (uint32_t i = 0; i < e->chans_cap; i++)
        for (struct snib__chan *chan = e->chans[i], *other; chan; chan = other) {
            other = chan->next;
            if (chan->node != node || chan->state != SNIB__CHAN_ASKED)
                continue;
            chan->state = SNIB__CHAN_REFUSED;
            e->stats.polling++;
            snib__engine_log(e, SNIB_LOG_WARNING, "%s refused a subscription: waiters poll instead",
                             snib__node_where(e, node));
            for (struct snib__waitq *waitq = chan->waitqs, *next; waitq; waitq = next) {
                next = waitq->chan_next; /* a waiter may end here if out of memory */
                if (waitq->head && !snib__gate_active(waitq->gate) && !snib__gate_asks(waitq->gate))
                    snib__waitq_sleep(e, waitq->gate, -1, false, now);
            }
        }
}

/* Whether its messages grant a fair lock, to the waiters of one gate. */
static bool chan_grants(const struct snib__chan *chan)
{
    return chan->waitqs && chan->waitqs->gate->kind->discipline == SNIB__QUEUED;
}

/* A fair waiter's own channel is the process's channel, a colon and the waiter's number.  NULL: it is none. */
static struct snib__gate *chan_owner(struct snib__engine *e, const char *channel, uint32_t n,
                                     uint64_t *out_number)
{
    uint32_t at = n;
    while (at > 0 && channel[at - 1] >= '0' && channel[at - 1] <= '9')
        at--;
    if (at == n || at == 0 || channel[at - 1] != ':')
        return NULL;
    const struct snib__chan *chan = chan_find(e, channel, at - 1);
    if (!chan || !chan_grants(chan))
        return NULL;
    *out_number = strtoull(channel + at, NULL, 10);
    return chan->waitqs->gate;
}

static bool chan_own(struct snib__engine *e, const char *what, const char *channel, uint32_t n,
                     snib__time now)
{
    uint64_t number;
    struct snib__gate *gate = chan_owner(e, channel, n, &number);
    if (gate)
        snib__place_own_channel(e, gate, number, what, now);
    return gate != NULL;
}

/* The node does not carry the channel. */
static void chan_misplace(struct snib__chan *chan, const struct snib__node *node)
{
    if (!chan || chan->node != node || chan->state != SNIB__CHAN_ASKED || !chan->waitqs)
        return;
    chan->state = SNIB__CHAN_OFF;
    if (chan->redirects <= CHAN_CIRCLE)
        chan->redirects++;
}

/* A sharded channel belongs to another node, or to none at present: subscribe
 * there, or before the next sleep.  Nodes that go on redirecting it to each other are asked at each sleep only.  A node
 * that is down gives one error for each channel, and the first is for all that it was asked for. */
static bool chan_misplaced(struct snib__engine *e, struct snib__link *link, const char *text,
                           snib__time now)
{
    bool moved = strncmp(text, "MOVED ", 6) == 0, down = strncmp(text, "CLUSTERDOWN", 11) == 0;
    if (!e->slots || (!moved && !down))
        return false;
    long slot = moved ? strtol(text + 6, NULL, 10) : -1;
    if (slot >= 0 && slot < SNIB__SLOTS)
        for (const struct snib__gate *gate = e->slots[slot]; gate;
             gate = snib__gate_neighbours(gate)->next)
            chan_misplace(gate->waitq ? gate->waitq->chan : NULL, link->node);
    for (uint32_t i = 0; i < e->chans_cap && down && link->asks; i++)
        for (struct snib__chan *chan = e->chans[i]; chan; chan = chan->next)
            chan_misplace(chan, link->node);
    link->asks = link->asks && !down;
    struct snib__request none = {.kind = SNIB__REQ_ASK, .script = -1};
    return snib__route_redirected(e, link, &none, text, (uint32_t)strlen(text), now);
}

/* Whether the server ends a subscription by itself, because the slot of its sharded channel has moved: that answers
 * nothing. */
static bool chan_unasked(struct snib__engine *e, const struct snib__link *link, const char *word,
                         const struct snib__value *reply, uint32_t n)
{
    if (strcmp(word, "sunsubscribe") != 0 || n < 3 || reply[2].type != SNIB__RESP_STRING)
        return false;
    const char *channel = snib__resp_text(link->conn.resp, &reply[2]);
    const struct snib__chan *chan = chan_find(e, channel, reply[2].count);
    if (chan)
        return chan->node == link->node && chan->state == SNIB__CHAN_ON;
    uint64_t number;
    const struct snib__gate *gate = chan_owner(e, channel, reply[2].count, &number);
    return gate && snib__place_listens(gate, number);
}

void snib__chan_pubsub(struct snib__engine *e, struct snib__link *link,
                       const struct snib__value *reply, uint32_t n, snib__time now)
{
    const struct snib__resp *resp = link->conn.resp;
    const char *word =
        n > 1 && reply[1].type == SNIB__RESP_STRING ? snib__resp_text(resp, &reply[1]) : "";
    bool message = strcmp(word, "message") == 0 || strcmp(word, "smessage") == 0;
    bool unasked = chan_unasked(e, link, word, reply, n);
    bool pong = chan_heard(link, !message && !unasked, now);
    /* It answers nothing that was asked, so it is not known what is subscribed: a new link will tell. */
    if (reply[0].type != SNIB__RESP_ARRAY && reply[0].type != SNIB__RESP_ERROR && !pong)
        link->soiled = true;
    if (reply[0].type == SNIB__RESP_ERROR && !pong &&
        !chan_misplaced(e, link, snib__resp_text(resp, reply), now))
        chan_refused(e, link->node, now);
    if (n < 4 || reply[0].type != SNIB__RESP_ARRAY || reply[0].count != 3 ||
        reply[1].type != SNIB__RESP_STRING || reply[2].type != SNIB__RESP_STRING)
        return;
    /* Of two ways the sharded one counts; its words are those of the other with an s in front. */
    bool sharded = word[0] == 's' && (word[1] == 's' || word[1] == 'u') && word[2] != 'b';
    if (!message && sharded != (e->publish != SNIB__CLASSIC))
        return;
    const char *what = word + (sharded || word[1] == 'm');
    const char *text = snib__resp_text(resp, &reply[2]);
    struct snib__chan *chan = chan_find(e, text, reply[2].count);
    if (chan && chan->node != link->node && (!message || chan_grants(chan)))
        return; /* left over there from before its names moved */
    if (!chan) {
        if (!chan_own(e, what, text, reply[2].count, now) && strcmp(what, "subscribe") == 0)
            snib__chan_leave(e, link->node, text, reply[2].count); /* not wanted any more */
        return;
    }
    if (message) {
        const char *said =
            reply[3].type == SNIB__RESP_STRING ? snib__resp_text(resp, &reply[3]) : "";
        for (struct snib__waitq *waitq = chan->waitqs, *next; waitq; waitq = next) {
            next = waitq->chan_next;
            snib__waitq_message(e, waitq, said, now);
        }
    } else if (strcmp(what, "subscribe") == 0 &&
               (chan->state == SNIB__CHAN_ASKED || chan->state == SNIB__CHAN_REFUSED)) {
        chan_confirmed(e, chan, now);
    } else if (strcmp(what, "unsubscribe") == 0 &&
               (chan->state == SNIB__CHAN_LEAVING || (chan->state == SNIB__CHAN_ON && sharded))) {
        /* by request, or because the slot has moved: then subscribe again */
        chan_left(e, chan, now);
    }
}
