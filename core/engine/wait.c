/* wait.c - sleeping until the lock may be free, and the subscriptions that wake.
 *
 *     OFF --wanted--> ASKED --confirmed--> ON --nobody waits for a while--> LEAVING --> OFF
 *                        '--refused--> REFUSED: poll
 *
 * A message is a hint to try, never a grant.  Expiry of a lease sends no message, messages can be lost,
 * so every sleep also ends by the holder's remaining lease or by the re-check cap, with jitter.  An
 * attempt that was sent before the subscription was confirmed may have missed a release and is made
 * again on the confirmation.
 *
 * A subscription stays for a moment after the last waiter, because a hot lock wants it again at once.
 */
#include "engine/internal.h"

#include <stdlib.h>
#include <string.h>

#define WAIT_LINGER (400 * SNIB__MS)
#define WAIT_BRIEF (50 * SNIB__MS) /* timed attempts in a row come no faster */

/* ---- the table of channels ---- */

static size_t wait_channel(const struct snib__wait *wait, char *out)
{
    return wait->gate->kind->channel(out, wait->gate->name, wait->gate->name_len);
}

static struct snib__wait *wait_find(struct snib__engine *e, const char *channel, size_t n)
{
    char own[SNIB__CHANNEL_MAX];
    uint32_t hash = snib__hash(channel, n);
    for (struct snib__wait *wait = e->chans_cap ? e->chans[hash & (e->chans_cap - 1)] : NULL; wait;
         wait = wait->chan_next)
        if (wait->hash == hash && wait_channel(wait, own) == n && memcmp(own, channel, n) == 0)
            return wait;
    return NULL;
}

static int wait_grow(struct snib__engine *e)
{
    uint32_t cap = e->chans_cap ? e->chans_cap * 2 : 16;
    struct snib__wait **chans = calloc(cap, sizeof(struct snib__wait *));
    if (!chans)
        return -1;
    for (uint32_t i = 0; i < e->chans_cap; i++)
        for (struct snib__wait *wait = e->chans[i], *next; wait; wait = next) {
            next = wait->chan_next;
            wait->chan_next = chans[wait->hash & (cap - 1)];
            chans[wait->hash & (cap - 1)] = wait;
        }
    e->memory += (cap - e->chans_cap) * sizeof *chans;
    free(e->chans);
    e->chans = chans;
    e->chans_cap = cap;
    return 0;
}

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
        wait_unidle(e, gate->wait); /* or the tick would free it under its waiters */
        return gate->wait;
    }
    if (e->chans_n == e->chans_cap && wait_grow(e) < 0)
        return NULL;
    struct snib__wait *wait = calloc(1, sizeof *wait);
    if (!wait)
        return NULL;
    char channel[SNIB__CHANNEL_MAX];
    wait->gate = gate;
    wait->idle_since = SNIB__NEVER;
    wait->hash = snib__hash(channel, wait_channel(wait, channel));
    wait->chan_next = e->chans[wait->hash & (e->chans_cap - 1)];
    e->chans[wait->hash & (e->chans_cap - 1)] = wait;
    e->chans_n++;
    e->memory += sizeof *wait;
    gate->wait = wait;
    snib__gate_ref(gate);
    return wait;
}

static void wait_free(struct snib__engine *e, struct snib__wait *wait)
{
    struct snib__wait **at = &e->chans[wait->hash & (e->chans_cap - 1)];
    wait_unidle(e, wait);
    while (*at != wait)
        at = &(*at)->chan_next;
    *at = wait->chan_next;
    e->chans_n--;
    e->memory -= sizeof *wait;
    snib__timer_cancel(e, &wait->timer_at);
    wait->gate->wait = NULL;
    snib__gate_put(e, wait->gate);
    free(wait);
}

/* ---- the queue ---- */

void snib__wait_push(struct snib__wait *wait, struct snib__op *op, bool front)
{
    op->place = SNIB__PLACE_QUEUE;
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
}

/* Nobody waits at the gate: let the subscription linger, or end at once what has none. */
void snib__wait_rest(struct snib__engine *e, struct snib__gate *gate, snib__time now)
{
    struct snib__wait *wait = gate->wait;
    if (!wait || wait->head || wait->incoming)
        return;
    wait->brief = 0;
    wait->yielding = false;
    snib__timer_cancel(e, &wait->timer_at);
    if (!gate->active)
        wait->chain = 0;
    if (wait->channel == SNIB__CHAN_OFF || wait->channel == SNIB__CHAN_REFUSED) {
        if (!gate->active) /* else the chain of hand-overs must not be forgotten */
            wait_free(e, wait);
        return;
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

/* ---- subscriptions ---- */

static int wait_say(struct snib__engine *e, const char *verb, const char *channel, size_t n)
{
    struct snib__buf *out = &e->node.links[SNIB__PUBSUB].conn.out;
    size_t size = snib__buf_size(out);
    if (snib__resp_begin(out, 2) == 0 && snib__resp_arg(out, verb, strlen(verb)) == 0 &&
        snib__resp_arg(out, channel, n) == 0)
        return 0;
    out->len = out->head + size;
    return -1;
}

static int wait_command(struct snib__engine *e, struct snib__wait *wait, const char *verb)
{
    char channel[SNIB__CHANNEL_MAX];
    return wait_say(e, verb, channel, wait_channel(wait, channel));
}

static void wait_subscribe(struct snib__engine *e, struct snib__wait *wait, snib__time now)
{
    wait_unidle(e, wait);
    if (wait->channel == SNIB__CHAN_LEAVING) { /* the confirmation of leaving will turn it round */
        return;
    }
    if (wait->channel != SNIB__CHAN_OFF)
        return;
    if (e->node.links[SNIB__PUBSUB].conn.state != SNIB__CONN_READY) {
        snib__node_want(e, SNIB__PUBSUB, now);
        return;
    }
    if (wait_command(e, wait, "SUBSCRIBE") == 0)
        wait->channel = SNIB__CHAN_ASKED;
}

void snib__wait_pubsub_ready(struct snib__engine *e, snib__time now)
{
    for (uint32_t i = 0; i < e->chans_cap; i++)
        for (struct snib__wait *wait = e->chans[i]; wait; wait = wait->chan_next)
            if (wait->head)
                wait_subscribe(e, wait, now);
}

/* All subscriptions are gone; waiters sleep on, by their timers, until they are renewed. */
void snib__wait_pubsub_down(struct snib__engine *e, snib__time now)
{
    for (uint32_t i = 0; i < e->chans_cap; i++)
        for (struct snib__wait *wait = e->chans[i], *next; wait; wait = next) {
            next = wait->chan_next;
            wait->channel = SNIB__CHAN_OFF;
            wait->own_messages = 0;
            if (!wait->head && !wait->incoming)
                wait_free(e, wait);
            else
                snib__node_want(e, SNIB__PUBSUB, now);
        }
}

/* Somebody waits asleep: let the first of them try. */
static void wait_try(struct snib__engine *e, struct snib__wait *wait, snib__time now)
{
    if (!wait->gate->active && !wait->incoming && wait->head && snib__node_ready(e))
        snib__gate_advance(e, wait->gate, now);
}

void snib__wait_recheck_all(struct snib__engine *e, snib__time now)
{
    for (uint32_t i = 0; i < e->chans_cap; i++)
        for (struct snib__wait *wait = e->chans[i], *next; wait; wait = next) {
            next = wait->chan_next;
            wait_try(e, wait, now);
        }
}

static void wait_message(struct snib__engine *e, struct snib__wait *wait, snib__time now)
{
    e->stats.messages++;
    if (wait->own_messages > 0) { /* told us what the release's reply has told us already */
        wait->own_messages--;
        return;
    }
    wait->brief = 0;
    if (wait->gate->active)
        wait->hint = wait->gate->active->phase == SNIB__TRYING;
    else
        wait_try(e, wait, now);
}

void snib__wait_pubsub(struct snib__engine *e, const struct snib__value *reply, uint32_t n,
                       snib__time now)
{
    const struct snib__resp *resp = e->node.links[SNIB__PUBSUB].conn.resp;
    if (reply[0].type == SNIB__RESP_ERROR) {
        /* Errors do not name their channel: whoever asked goes without. */
        for (uint32_t i = 0; i < e->chans_cap; i++)
            for (struct snib__wait *wait = e->chans[i], *next; wait; wait = next) {
                next = wait->chan_next;
                if (wait->channel == SNIB__CHAN_ASKED) {
                    wait->channel = SNIB__CHAN_REFUSED;
                    e->stats.polling++;
                    snib__engine_log(e, SNIB_LOG_WARNING,
                                     "the server refused a subscription: waiters poll instead");
                    if (wait->head && !wait->gate->active)
                        snib__wait_sleep(e, wait->gate, -1, now);
                }
            }
        return;
    }
    if (n < 4 || reply[0].type != SNIB__RESP_ARRAY || reply[0].count != 3 ||
        reply[1].type != SNIB__RESP_STRING || reply[2].type != SNIB__RESP_STRING)
        return;
    const char *what = snib__resp_text(resp, &reply[1]);
    const char *channel = snib__resp_text(resp, &reply[2]);
    struct snib__wait *wait = wait_find(e, channel, reply[2].count);
    if (!wait) {
        if (strcmp(what, "subscribe") == 0) /* another one's refusal was taken for this one's */
            wait_say(e, "UNSUBSCRIBE", channel, reply[2].count);
        return;
    }
    if (strcmp(what, "message") == 0) {
        wait_message(e, wait, now);
    } else if (strcmp(what, "subscribe") == 0 &&
               (wait->channel == SNIB__CHAN_ASKED || wait->channel == SNIB__CHAN_REFUSED)) {
        wait->channel = SNIB__CHAN_ON;
        wait->own_messages = 0;
        wait_try(e, wait, now);
    } else if (strcmp(what, "unsubscribe") == 0 && wait->channel == SNIB__CHAN_LEAVING) {
        wait->channel = SNIB__CHAN_OFF;
        if (wait->head || wait->incoming)
            wait_subscribe(e, wait, now);
        else
            wait_free(e, wait);
    }
}

/* ---- sleeping ---- */

/* The first waiter was refused and told the holder's remaining lease (-1 unknown): sleep. */
void snib__wait_sleep(struct snib__engine *e, struct snib__gate *gate, int64_t left_ms,
                      snib__time now)
{
    struct snib__wait *wait = gate->wait;
    if (wait->hint && snib__node_ready(e)) {
        snib__gate_advance(e, gate, now);
        return;
    }
    wait_subscribe(e, wait, now);
    snib__time cap = e->config.recheck - snib__engine_random(e, e->config.recheck / 4);
    snib__time sleep = cap;
    if (left_ms >= 0 && (snib__time)left_ms * SNIB__MS + 2 * SNIB__MS < sleep)
        sleep = (snib__time)left_ms * SNIB__MS + 2 * SNIB__MS;
    if (wait->yielding)
        sleep = 5 * SNIB__MS + snib__engine_random(e, 5 * SNIB__MS);
    else if (sleep < WAIT_BRIEF && wait->brief++ > 0)
        sleep = WAIT_BRIEF + snib__engine_random(e, WAIT_BRIEF);
    else if (sleep >= WAIT_BRIEF)
        wait->brief = 0;
    if (wait->channel == SNIB__CHAN_REFUSED && sleep > 2 * WAIT_BRIEF)
        sleep = 2 * WAIT_BRIEF + snib__engine_random(e, 2 * WAIT_BRIEF);
    if (snib__timer_set(e, SNIB__TIMER_WAIT, wait, &wait->timer_at, now + sleep) < 0)
        snib__gate_advance(e, gate, now);
}

void snib__wait_expired(struct snib__engine *e, struct snib__wait *wait, snib__time now)
{
    if (!wait->head || wait->gate->active || wait->incoming)
        return;
    if (!snib__node_ready(e)) {
        snib__timer_set(e, SNIB__TIMER_WAIT, wait, &wait->timer_at, now + e->config.recheck);
        return;
    }
    e->stats.rechecks++;
    wait->own_messages = 0; /* what has not come by now was lost */
    wait_try(e, wait, now);
}

/* Leave the channels that nobody has needed for a while. */
void snib__wait_tick(struct snib__engine *e, snib__time now)
{
    while (e->idle_head && e->idle_head->idle_since + WAIT_LINGER <= now) {
        struct snib__wait *wait = e->idle_head;
        wait_unidle(e, wait);
        if (wait->channel == SNIB__CHAN_ON || wait->channel == SNIB__CHAN_ASKED) {
            if (wait_command(e, wait, "UNSUBSCRIBE") == 0)
                wait->channel = SNIB__CHAN_LEAVING;
            else
                wait->idle_since = SNIB__NEVER;
        } else if (wait->channel != SNIB__CHAN_LEAVING) {
            wait_free(e, wait);
        }
    }
}

snib__time snib__wait_deadline(const struct snib__engine *e)
{
    return e->idle_head ? e->idle_head->idle_since + WAIT_LINGER : SNIB__NEVER;
}
