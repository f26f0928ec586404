/* hold.c - holds: the deadline, the three states, loss.
 *
 *     NEW --send--> TRYING --granted--> HELD --release--> RELEASING --> GONE
 *      ^--refused-----'                   '--loss--> LOST
 *
 * The deadline V counts from before the request was sent, so it cannot be later than the end of the
 * lease at the server as long as the two clocks run at rates within 1 %.  A loss is reported by V
 * at the latest, whatever the network does, because the timers of V depend on no reply.  From V on
 * it is fixed: a reply found later, by a process that was stopped meanwhile, is too late.
 */
#include "engine/internal.h"

#include <string.h>

snib__time snib__hold_lease(const struct snib__engine *e, const struct snib__hold *hold)
{
    return hold->lease_ms ? hold->lease_ms * SNIB__MS : e->config.lease;
}

snib__time snib__lease_end(snib__time sent_at, snib__time lease)
{
    return sent_at + lease - lease / 100 - SNIB__MARGIN;
}

snib__time snib__lease_until(snib__time sent_at, snib__time deadline)
{
    return (deadline - sent_at + SNIB__MARGIN) * 100 / 99 + 1;
}

size_t snib__hold_owner(const struct snib__engine *e, const struct snib__hold *hold, char *out)
{
    memcpy(out, e->config.uuid, 36);
    out[36] = ':';
    return 37 + snib__decimal(out + 37, (int64_t)hold->number);
}

void snib__hold_stop(struct snib__engine *e, struct snib__hold *hold)
{
    if (hold->flags & SNIB__LISTED)
        snib__watchdog_remove(e, hold);
    snib__timer_cancel(e, &hold->timer_at);
}

/* Free a hold that is no longer used and has nothing in flight. */
void snib__hold_settle(struct snib__engine *e, struct snib__hold *hold)
{
    if (!(hold->flags & (SNIB__HANDED | SNIB__UNTOLD)) && hold->phase != SNIB__TRYING &&
        hold->phase != SNIB__RELEASING && hold->phase != SNIB__HELD && !hold->op) {
        snib__hold_stop(e, hold);
        snib__hold_recycle(e, hold);
    }
}

void snib__hold_granted(struct snib__engine *e, struct snib__hold *hold, snib__time sent_at,
                        snib__time now)
{
    bool leased = !(hold->gate->kind->traits & SNIB__UNOWNED);
    hold->phase = SNIB__HELD;
    hold->flags &= (uint16_t)~SNIB__RESENT;
    if (!leased)
        hold->deadline = SNIB__NEVER;
    else if (!(hold->flags & SNIB__FIRST)) /* otherwise it is set */
        hold->deadline = snib__lease_end(sent_at, snib__hold_lease(e, hold));
    hold->acquired_at = now;
    hold->count = 1;
    e->stats.acquisitions++;
    e->stats.held++;
    if (leased && hold->lease_ms == 0 && !(hold->flags & SNIB__FIRST))
        snib__watchdog_add(e, hold);
    if (!(hold->flags & SNIB__FIRST))
        snib__watchdog_fixed(hold, sent_at, now);
    snib__hold_arm(e, hold, now);
}

/* Set the timer for what ends the hold, unless the watchdog does: its lease, max_hold, or, for a
 * first lease, the moment to confirm it. */
void snib__hold_arm(struct snib__engine *e, struct snib__hold *hold, snib__time now)
{
    snib__time ends = SNIB__NEVER;
    if (hold->flags & SNIB__FIRST)
        ends = hold->deadline > now + 10 * SNIB__MS ? now + (hold->deadline - now) / 3
                                                    : hold->deadline;
    else if (snib__outer_is(hold->gate)) /* often enough to notice an extension */
        ends = hold->deadline > now + 10 * SNIB__MS ? now + (hold->deadline - now) / 4
                                                    : hold->deadline;
    else if (hold->lease_ms && hold->deadline != SNIB__NEVER)
        ends = hold->deadline;
    if (hold->max_hold_ms && hold->acquired_at + hold->max_hold_ms * SNIB__MS < ends)
        ends = hold->acquired_at + hold->max_hold_ms * SNIB__MS;
    if (ends == SNIB__NEVER)
        snib__timer_cancel(e, &hold->timer_at);
    else
        snib__timer_set(e, SNIB__TIMER_HOLD, &hold->timer_at, ends);
}

/* Give a hold under the watchdog a fixed lease from now on, which may be shorter.  A copy of this request
 * could shorten a later extension, so from that on it is not sent again. */
void snib__hold_fix(struct snib__engine *e, struct snib__hold *hold, snib__time lease,
                    snib__time now)
{
    if (hold->phase != SNIB__HELD || snib__hold_over(e, hold, now))
        return;
    snib__hold_stop(e, hold);
    hold->lease_ms = (uint32_t)(lease / SNIB__MS) & SNIB__SPAN_MAX;
    hold->flags |= SNIB__FIRST; /* until it is confirmed */
    hold->exact = true;
    if (snib__lease_end(now, lease) < hold->deadline)
        hold->deadline = snib__lease_end(now, lease);
    if (snib__watchdog_single(e, hold, (int64_t)hold->lease_ms, now) < 0)
        snib__watchdog_ask_later(hold, now); /* no renewal will find out any more */
    snib__hold_arm(e, hold, now);
}

static void hold_count_loss(struct snib__engine *e, int reason, snib__time now)
{
    snib__identity_lost(e, now);
    switch (reason) {
    case SNIB_REASON_EXPIRED:
        e->stats.lost_expired++;
        break;
    case SNIB_REASON_TAKEN:
        e->stats.lost_taken++;
        break;
    case SNIB_REASON_DELETED:
        e->stats.lost_deleted++;
        break;
    case SNIB_REASON_UNREACHABLE:
        e->stats.lost_unreachable++;
        break;
    case SNIB_REASON_MAX_HOLD:
        e->stats.lost_max_hold++;
        break;
    case SNIB_REASON_FAILOVER:
        e->stats.lost_failover++;
        break;
    default:
        e->stats.lost_closed++;
        break;
    }
}

/* lock "name" was ...  The members of a quorum have one name; of others the first one's is shown. */
static void hold_log(struct snib__engine *e, int32_t level, const struct snib__gate *gate,
                     const char *what, const char *why)
{
    bool several = gate->kind->kind == SNIB__MULTI || snib__outer_is(gate);
    bool quorum = snib__outer_is(gate) && gate->name[0] == SNIB__QUORUM_LETTER;
    const char *name = several ? gate->name + 1 : gate->name;
    int length = several ? (int)strnlen(name, gate->name_len - 1u) : gate->name_len;
    int shown = length < 100 ? length : 100;
    while (shown < length && (name[shown] & 0xc0) == 0x80)
        shown--; /* whole characters only */
    snib__engine_log(e, level, "%slock \"%.*s%s\" %s %s: %s", quorum ? "quorum " : "", shown, name,
                     shown < length ? "..." : "",
                     several && !quorum ? "and the other members were" : "was", what, why);
}

/* Why the server does not know a hold being released: its time is over, or the key is missing. */
static int hold_missing(const struct snib__hold *hold, snib__time now)
{
    if (now >= hold->deadline)
        return hold->lease_ms ? SNIB_REASON_EXPIRED : SNIB_REASON_UNREACHABLE;
    return hold->flags & SNIB__INHERITED ? SNIB_REASON_FAILOVER : SNIB_REASON_DELETED;
}

/* Why a hold is lost that the server was asked about and does not have.  taken: the name is another
 * owner's there.  If the server took over from the one that granted the hold, that is the reason,
 * whoever has the lock since. */
int snib__hold_denied(const struct snib__hold *hold, bool taken)
{
    return hold->flags & SNIB__INHERITED ? SNIB_REASON_FAILOVER
           : taken                       ? SNIB_REASON_TAKEN
                                         : SNIB_REASON_DELETED;
}

/* A lock of several clients tells of its own loss, and a quorum is not lost with one member.  A close is the
 * program's own doing, and releases the lock. */
static void hold_log_loss(struct snib__engine *e, const struct snib__hold *hold, int reason)
{
    bool quiet = hold->member || reason == SNIB_REASON_CLOSED;
    hold_log(e, quiet ? SNIB_LOG_INFO : SNIB_LOG_WARNING, hold->gate,
             hold->member ? "lost as a member" : "lost", snib_reason_text(reason));
}

/* Its release came too late.  The release's code tells the caller; the log and the statistics
 * count it as any other loss. */
void snib__hold_found_lost(struct snib__engine *e, struct snib__hold *hold, snib__time now)
{
    int reason = hold->reason ? (int)hold->reason : hold_missing(hold, now);
    hold->reason = (unsigned)reason & 7u;
    /* an attempt being taken back, or the rest of a loss already reported */
    if (hold->acquired_at == 0)
        return;
    hold_count_loss(e, reason, now);
    hold_log_loss(e, hold, reason);
}

/* Nothing was left of a lost hold at the server that told of the loss.  Of a lost multi lock only one member is
 * known to be gone, and of several permits only one. */
bool snib__hold_gone(const struct snib__hold *hold)
{
    int32_t kind = hold->gate->kind->kind;
    bool several = kind == SNIB__MULTI || (kind == SNIB_PERMITS && hold->permits > 1);
    return (hold->reason == SNIB_REASON_TAKEN || hold->reason == SNIB_REASON_DELETED ||
            hold->reason == SNIB_REASON_FAILOVER) &&
           !several;
}

void snib__hold_lose(struct snib__engine *e, struct snib__hold *hold, int reason, snib__time now)
{
    struct snib__gate *gate = hold->gate;
    snib__hold_stop(e, hold);
    hold->phase = SNIB__LOST;
    e->moves++;
    hold->reason = (unsigned)reason & 7u;
    if (snib__outer_is(gate))
        snib__outer_tell(e, hold);
    if (snib__hold_gone(hold))
        snib__given_lost(e, hold, now);
    else if (snib__gate_reads_on(e, hold)) /* otherwise its end would end it at the server, too */
        snib__gate_release_lost(e, hold, now);
    if (e->extending > 0 && hold->extended) /* all operations are looked through */
        snib__extend_lost(e, hold, now);
    e->stats.held--;
    hold_count_loss(e, reason, now);
    snib__histogram_add(e->stats.hold_time, now - hold->acquired_at);
    hold_log_loss(e, hold, reason);
    if (hold->tell && (hold->flags & SNIB__HANDED)) {
        hold->flags |= SNIB__UNTOLD;
        hold->next = NULL;
        hold->prev = e->lost_tail;
        if (e->lost_tail)
            e->lost_tail->next = hold;
        else
            e->lost_head = hold;
        e->lost_tail = hold;
    }
    snib__gate_ref(gate);
    snib__gate_part(hold);
    snib__hold_settle(e, hold);
    snib__gate_advance(e, gate, now);
    snib__gate_put(e, gate);
}

/* Lost is final: a hold whose end has come is lost now, whoever notices it first, and for
 * the reason that the clock gives.  All code that would extend a hold calls this first,
 * so no reply can revive one. */
bool snib__hold_over(struct snib__engine *e, struct snib__hold *hold, snib__time now)
{
    if (hold->phase != SNIB__HELD || now < snib__hold_end(hold))
        return false;
    snib__hold_lose(e, hold, snib__hold_reason(hold, now), now);
    return true;
}

static void hold_told(struct snib__engine *e, struct snib__hold *hold)
{
    if (hold->prev)
        hold->prev->next = hold->next;
    else
        e->lost_head = hold->next;
    if (hold->next)
        hold->next->prev = hold->prev;
    else
        e->lost_tail = hold->prev;
    hold->flags &= (uint16_t)~SNIB__UNTOLD;
}

struct snib__hold *snib__engine_take_lost(struct snib__engine *e)
{
    struct snib__hold *hold = e->lost_head;
    if (hold)
        hold_told(e, hold);
    return hold;
}

/* The hold's timer fired: a fixed lease or max_hold is over, or a release must be retried. */
void snib__hold_expired(struct snib__engine *e, struct snib__hold *hold, snib__time now)
{
    if (hold->phase == SNIB__RELEASING) {
        snib__gate_retry_release(e, hold, now);
        return;
    }
    if (snib__outer_is(hold->gate))
        snib__outer_tell(e, hold);
    if (hold->phase != SNIB__HELD || snib__hold_over(e, hold, now))
        return;
    if (hold->flags & SNIB__FIRST) {
        snib__watchdog_single(e, hold, (int64_t)(snib__hold_lease(e, hold) / SNIB__MS), now);
        snib__hold_arm(e, hold, now); /* to retry, or to lose it */
    } else if (snib__outer_is(hold->gate)) {
        snib__hold_arm(e, hold, now);
    }
}

int64_t snib__hold_fencing(const struct snib__hold *hold)
{
    return hold->gate->kind->traits & SNIB__TOKENS ? hold->fencing : 0;
}

snib__time snib__hold_end(const struct snib__hold *hold)
{
    snib__time limit = hold->acquired_at + hold->max_hold_ms * SNIB__MS;
    return hold->max_hold_ms && limit <= hold->deadline ? limit : hold->deadline;
}

snib__time snib__hold_left(const struct snib__hold *hold, snib__time now)
{
    snib__time end = snib__hold_end(hold);
    if (hold->phase != SNIB__HELD || now >= end)
        return 0;
    return end == SNIB__NEVER ? SNIB__NEVER : end - now;
}

int snib__hold_reason(const struct snib__hold *hold, snib__time now)
{
    if (hold->phase != SNIB__HELD || now < snib__hold_end(hold))
        return hold->reason;
    if (snib__hold_end(hold) != hold->deadline)
        return SNIB_REASON_MAX_HOLD;
    return hold->lease_ms ? SNIB_REASON_EXPIRED : SNIB_REASON_UNREACHABLE;
}

int snib__hold_state(const struct snib__engine *e, const struct snib__hold *hold, snib__time now)
{
    if (hold->phase == SNIB__LOST)
        return SNIB_HOLD_LOST;
    if (hold->phase != SNIB__HELD)
        return SNIB_HOLD_RELEASED;
    if (now >= snib__hold_end(hold))
        return SNIB_HOLD_LOST;
    /* Renewal begins with two thirds of the lease left; with half of it left it is overdue. */
    if (snib__outer_is(hold->gate)) /* checked at every quarter of what is left */
        return hold->lease_ms == 0 && hold->outer &&
                       hold->deadline - now < hold->outer->span * 2 / 5
                   ? SNIB_HOLD_AT_RISK
                   : SNIB_HOLD_VALID;
    bool overdue = hold->lease_ms == 0 && !(hold->flags & SNIB__FIRST) &&
                   hold->deadline - now < e->config.lease / 2;
    bool doubted = overdue || !snib__node_ready(hold->gate->node) ||
                   (hold->flags & SNIB__INHERITED) || hold->unsure || snib__clock_doubts(e, hold);
    return doubted ? SNIB_HOLD_AT_RISK : SNIB_HOLD_VALID;
}

/* When others can have what is left to its lease. */
static const char *hold_freed(const struct snib__engine *e, const struct snib__hold *hold)
{
    if (hold->gate->kind->traits & SNIB__UNOWNED)
        return "its permits stay taken";
    return snib__gate_reads_on(e, hold)
               ? "it is free when its lease and its owner's read have ended"
               : "it is free when its lease ends";
}

/* The hold has no user any more, and the server keeps the lock until the lease ends. */
static void hold_leave(struct snib__engine *e, struct snib__hold *hold, snib__time now)
{
    struct snib__gate *gate = hold->gate;
    snib__hold_stop(e, hold);
    hold->phase = SNIB__GONE;
    e->moves++;
    if (snib__outer_is(gate))
        snib__outer_tell(e, hold);
    e->stats.held--;
    e->stats.abandoned++;
    hold_log(e, hold->member ? SNIB_LOG_INFO : SNIB_LOG_WARNING, gate,
             hold->member ? "dropped as a member without a release" : "dropped without a release",
             hold_freed(e, hold));
    snib__gate_ref(gate);
    snib__gate_part(hold);
    snib__hold_settle(e, hold);
    snib__gate_advance(e, gate, now);
    snib__gate_put(e, gate);
}

void snib__hold_abandon(struct snib__engine *e, struct snib__hold *hold, snib__time now)
{
    snib__hold_over(e, hold, now);
    if (hold->phase == SNIB__HELD || hold->phase == SNIB__LOST)
        hold->flags |= SNIB__ABANDONED;
    if (hold->phase == SNIB__HELD && hold->users == 0)
        hold_leave(e, hold, now);
}

void snib__hold_drop(struct snib__engine *e, struct snib__hold *hold, snib__time now)
{
    hold->flags &= (uint16_t)~SNIB__HANDED;
    hold->tell = 0;
    if (hold->flags & SNIB__UNTOLD)
        hold_told(e, hold);
    if (hold->phase == SNIB__HELD && (hold->flags & SNIB__ABANDONED))
        hold_leave(e, hold, now);
    else if (hold->phase == SNIB__HELD)
        snib__gate_release(e, hold, now);
    else {
        if (hold->phase == SNIB__LOST && !(hold->flags & SNIB__ABANDONED))
            snib__gate_release_lost(e, hold, now);
        snib__hold_settle(e, hold);
    }
}
