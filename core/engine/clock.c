/* clock.c - the server's clock compared with the local one.
 *
 * A lease ends by the server's wall clock, a deadline by the local clock, and what a hold promises
 * depends on both running at the same rate within 1 %.  While anything is held, the server is asked
 * for its time as often as leases are renewed.  A reply was made between sending and receiving, so
 * it bounds the offset of the two clocks, and two replies bound from below how much that offset has
 * changed.  A change that drift does not explain means that the server's clock was set, or runs
 * wrong: leases may end early.  Holds are at risk until they have been renewed, which is done at
 * once; those with a fixed lease get again what is left of it.
 */
#include "engine/internal.h"

#include <stdlib.h>

#define CLOCK_PERIOD_MIN (1000 * SNIB__MS)
#define CLOCK_SECONDS_MAX 9000000000ull /* anything later is no time in this century */

static snib__time clock_period(const struct snib__engine *e)
{
    snib__time period = e->config.lease / 3;
    return period > CLOCK_PERIOD_MIN ? period : CLOCK_PERIOD_MIN;
}

/* How far a bound may have moved without the clock having been set. */
static int64_t clock_explained(snib__time since, snib__time received)
{
    return (int64_t)((received - since) / 100 + SNIB__MARGIN);
}

/* How much less a bound says by its age: a little more than the rates of the clocks explain, so that
 * none is kept for long. */
static int64_t clock_aged(snib__time since, snib__time received)
{
    return (int64_t)((received - since) / 80);
}

int64_t snib__clock_sample(struct snib__clock *clock, uint64_t server_ns, snib__time sent,
                           snib__time received)
{
    int64_t low = (int64_t)(server_ns - received), high = (int64_t)(server_ns - sent), moved = 0;
    int64_t least = low - clock->high, most = high - clock->low;
    if (clock->known && least > clock_explained(clock->high_sent, received))
        moved = least;
    else if (clock->known && most < -clock_explained(clock->low_sent, received))
        moved = most;
    /* A slow reply says little: the next one is compared with the earlier knowledge, until that says
     * less by its age. */
    bool anew = !clock->known || moved || high - low <= (int64_t)SNIB__MARGIN;
    if (anew || low >= clock->low - clock_aged(clock->low_sent, received)) {
        clock->low = low;
        clock->low_sent = sent;
    }
    if (anew || high <= clock->high + clock_aged(clock->high_sent, received)) {
        clock->high = high;
        clock->high_sent = sent;
    }
    clock->known = true;
    return moved;
}

/* A new connection.  What is known of the clock stays only if it leads to the same process again: a machine that
 * stood still loses its connections and has its clock set. */
void snib__clock_begin(struct snib__engine *e, struct snib__node *node, bool same, snib__time now)
{
    if (!same)
        node->clock = (struct snib__clock){0};
    node->clock.next = now + clock_period(e);
    node->clock.refused = false;
}

static snib__time clock_due(const struct snib__engine *e, const struct snib__node *node)
{
    return node->kind == SNIB__SERVER && snib__node_ready(node) && e->stats.held > 0 &&
                   !node->clock.refused
               ? node->clock.next
               : SNIB__NEVER;
}

snib__time snib__clock_deadline(const struct snib__engine *e)
{
    snib__time next = SNIB__NEVER;
    for (const struct snib__node *node = e->nodes; node; node = node->next)
        next = clock_due(e, node) < next ? clock_due(e, node) : next;
    return next;
}

void snib__clock_tick(struct snib__engine *e, snib__time now)
{
    for (struct snib__node *node = e->nodes; node; node = node->next) {
        if (now < clock_due(e, node))
            continue;
        /* not the first round after a pause, in which the client may have held nothing */
        e->identity.due |= now < node->clock.next + clock_period(e);
        node->clock.next = now + clock_period(e);
        snib__node_send(e, SNIB__REQ_TIME, node, 0, now);
    }
}

static void clock_moved(struct snib__engine *e, struct snib__node *node, int64_t moved,
                        snib__time now)
{
    e->stats.clock_moves++;
    snib__engine_log(
        e, SNIB_LOG_WARNING,
        "the clock of %s has moved by at least %+lld ms: it was set or runs at the wrong rate; "
        "leases may end early",
        snib__node_where(e, node), (long long)(moved / (int64_t)SNIB__MS));
    node->moved_at = node->ready_since = now;
    node->moved_back = node->moved_back || moved < 0;
    snib__watchdog_reconnected(e, node, true, now);
}

void snib__clock_answer(struct snib__engine *e, struct snib__node *node, snib__time sent_at,
                        const struct snib__value *reply, uint32_t n, snib__time now)
{
    const struct snib__resp *resp = e->resp;
    bool told = reply->type == SNIB__RESP_ARRAY && n == 3 && reply[1].type == SNIB__RESP_STRING &&
                reply[2].type == SNIB__RESP_STRING;
    uint64_t seconds = told ? strtoull(snib__resp_text(resp, &reply[1]), NULL, 10) : 0;
    uint64_t micros = told ? strtoull(snib__resp_text(resp, &reply[2]), NULL, 10) : 0;
    if (seconds == 0 || seconds > CLOCK_SECONDS_MAX || micros > 999999) {
        node->clock.refused = true; /* a proxy does not support TIME, or the user may not use it */
        snib__engine_log(e, SNIB_LOG_INFO,
                         "%s does not answer TIME: changes of its clock go unnoticed; "
                         "allow this user +time",
                         snib__node_where(e, node));
        return;
    }
    int64_t moved =
        snib__clock_sample(&node->clock, seconds * 1000 * SNIB__MS + micros * 1000, sent_at, now);
    if (moved)
        clock_moved(e, node, moved, now);
}

bool snib__clock_doubts(const struct snib__engine *e, const struct snib__hold *hold)
{
    if (hold->lease_ms && !(hold->flags & SNIB__FIRST) && hold->gate->kind->renew)
        return false; /* it is unsure until it has been given again what is left of it */
    snib__time sent = hold->deadline - snib__lease_end(0, snib__hold_lease(e, hold));
    snib__time moved_at = hold->gate->node->moved_at;
    return moved_at && hold->deadline != SNIB__NEVER && sent < moved_at;
}
