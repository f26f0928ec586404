/* release.c - releases, their replies, and requests that were never answered.
 *
 * A request without a reply is repeated with the same owner number on the next connection, which
 * the scripts make harmless.  If its operation has gone, a release is sent instead.  A release that
 * the server refuses is repeated until the lease has certainly ended.
 */
#include "engine/internal.h"
#include "net/script.h"

#define RELEASE_RETRY (500 * SNIB__MS) /* between releases while the server refuses them */
#define RELEASE_PLACE                                                                              \
    (6000 * SNIB__MS) /* by then a place in a fair queue and its first lease have ended */

static void release_ended(struct snib__engine *e, struct snib__hold *hold, int32_t code,
                          snib__time now)
{
    struct snib__op *op = hold->op;
    snib__timer_cancel(e, &hold->timer_at);
    e->releasing--;
    hold->phase = SNIB__GONE;
    e->moves++;
    snib__place_left(e, hold);
    snib__gate_part(hold);
    if (code == SNIB_OK && hold->acquired_at) {
        e->stats.releases++;
        snib__histogram_add(e->stats.hold_time, now - hold->acquired_at);
    }
    if (code == SNIB_OK || code == SNIB_LOST)
        snib__given_note(e, hold, now);
    if (op && code == SNIB_LOST)
        op->reason = hold->reason ? hold->reason : SNIB_REASON_DELETED;
    if (op)
        snib__gate_end_op(e, op, code);
    snib__hold_settle(e, hold);
}

void snib__gate_released(struct snib__engine *e, struct snib__hold *hold, int32_t code,
                         snib__time now)
{
    if (!hold->passed) {
        bool repeated = hold->repeated;
        release_ended(e, hold, code, now);
        if (repeated)
            snib__given_told(e, now);
        return;
    }
    struct snib__gate *gate = hold->gate;
    snib__gate_ref(gate);
    snib__tenure_unlink(hold);
    for (struct snib__hold *next; hold; hold = next) { /* all that shared the question */
        next = hold->next;
        release_ended(e, hold, code, now);
    }
    snib__tenure_ended(e, gate, now);
    snib__gate_put(e, gate);
}

/* How many messages of its own release a gate receives. */
static uint32_t release_messages(const struct snib__engine *e, const struct snib__gate *gate)
{
    uint8_t traits = gate->kind->traits;
    uint32_t n = traits & SNIB__MANY_MESSAGES ? 0 : traits & SNIB__TWO_MESSAGES ? 2 : 1;
    return e->publish == SNIB__BOTH ? 2 * n : n; /* published in both ways */
}

/* The operation ends, and so do all that share the question of tenure.c; the release itself will be repeated. */
static void release_fail(struct snib__engine *e, struct snib__hold *hold, int32_t code,
                         const char *text, uint32_t n)
{
    for (struct snib__hold *each = hold; each; each = hold->passed ? each->next : NULL) {
        struct snib__op *op = each->op;
        if (!op)
            continue;
        op->hold = NULL;
        each->op = NULL;
        snib__op_fail(e, op, code, text, n);
    }
}

/* Out of memory: fail the waiting operation and retry the release later. */
static void release_no_memory(struct snib__engine *e, struct snib__hold *hold, snib__time now)
{
    release_fail(e, hold, SNIB_ENOMEM, NULL, 0);
    snib__timer_set(e, SNIB__TIMER_HOLD, &hold->timer_at, now + RELEASE_RETRY);
}

void snib__gate_send_release(struct snib__engine *e, struct snib__hold *hold, snib__time now)
{
    struct snib__waitq *waitq = hold->passed ? NULL : hold->gate->waitq;
    hold->flags &= (uint16_t) ~(SNIB__AWAKE | SNIB__COUNTED);
    if (waitq) {
        snib__tenure_ask(e, hold->gate, now);
        waitq->chain = 0;
        snib__turn_releasing(waitq);
    }
    if (snib__chan_on(waitq) && hold->gate->kind->discipline != SNIB__QUEUED) {
        hold->flags |= SNIB__AWAKE;
        if (release_messages(e, hold->gate) > 0) {
            hold->flags |= SNIB__COUNTED;
            waitq->own_messages += release_messages(e, hold->gate);
        }
    }
    if (snib__node_send(e, SNIB__REQ_RELEASE, hold, hold->number, now) < 0)
        release_no_memory(e, hold, now);
}

/* there: the server certainly had the hold. */
static void release_begin(struct snib__engine *e, struct snib__hold *hold, bool there,
                          snib__time now)
{
    struct snib__gate *gate = hold->gate;
    if (there)
        snib__sole_settles(gate, now);
    snib__tenure_ends(hold);
    e->releasing++;
    e->moves++;
    hold->phase = SNIB__RELEASING;
    hold->flags &= (uint16_t) ~(SNIB__RESENT | SNIB__FIRST);
    if (snib__outer_is(gate)) {
        snib__outer_tell(e, hold);
        return;
    }
    if (hold->gate->kind->traits & SNIB__UNOWNED)
        hold->deadline = snib__lease_end(now, snib__hold_lease(e, hold)); /* when to stop trying */
    if (there && snib__gate_active(gate) == hold && snib__sole_hand_over(e, hold, now))
        return;
    snib__gate_send_release(e, hold, now);
}

/* Begin a release, whoever asks for it.  Renewal ends here, before anything is sent. */
void snib__gate_release(struct snib__engine *e, struct snib__hold *hold, snib__time now)
{
    bool held = hold->phase == SNIB__HELD;
    if (held && snib__tenure_pass(e, hold, now))
        return;
    snib__hold_stop(e, hold);
    if (held)
        e->stats.held--;
    release_begin(e, hold, held, now);
}

/* Return a grant, or hand it to the next waiter of this process, without it having had a user: it
 * is not counted as an acquisition, and if it is gone when its release arrives, that is no loss.  How late it was
 * granted is unknown. */
void snib__gate_spurn(struct snib__engine *e, struct snib__hold *hold, snib__time now)
{
    snib__hold_stop(e, hold);
    hold->deadline = snib__lease_end(now, snib__hold_lease(e, hold)); /* when to stop trying */
    hold->count = 1;
    release_begin(e, hold, true, now);
}

/* Until when a server may have a hold, after its deadline: its clock may be slow, within the bounds, a request whose
 * answer is missing may have begun another lease, and a replica may know only a longer lease from before.  A request on a
 * lost connection may have been carried out until the next one was made, which ends that first. */
snib__time snib__release_end(const struct snib__engine *e, const struct snib__hold *hold)
{
    if (hold->deadline == SNIB__NEVER) /* it has no lease, and would be held for ever */
        return SNIB__NEVER;
    bool begun = hold->lease_ms == 0 || hold->exact; /* by a renewal, or as its fixed lease */
    snib__time lease = snib__hold_lease(e, hold), slack = lease / 40 + 4 * SNIB__MARGIN;
    snib__time from = hold->deadline;
    if (begun)
        slack += lease > e->config.lease ? lease : e->config.lease;
    if (hold->gate->kind->discipline == SNIB__QUEUED)
        slack += RELEASE_PLACE; /* it may be a place that is granted once more */
    if (hold->flags & SNIB__RESENT) {
        snib__time late = snib__lease_end(hold->gate->node->ready_since, lease);
        from = late > from ? late : from;
    }
    return from + slack + e->extended;
}

/* The lease has certainly ended at the server. */
bool snib__release_lapsed(const struct snib__engine *e, const struct snib__hold *hold,
                          snib__time now)
{
    return now > snib__release_end(e, hold);
}

/* The hold was lost and the program is done with it, but the server may still keep the lock for it
 * while other clients wait.  Release it, unless it is known to be gone.  If the server does not
 * answer until the lease has ended, no release is needed. */
void snib__gate_release_lost(struct snib__engine *e, struct snib__hold *hold, snib__time now)
{
    bool known = snib__hold_gone(hold);
    bool none = hold->count == 0 || snib__outer_is(hold->gate);
    bool gone = none || known ||
                (!snib__node_ready(hold->gate->node) && snib__release_lapsed(e, hold, now));
    struct snib__hold *rest = gone ? NULL : snib__hold_again(e, hold);
    if (known && !none)
        snib__given_done(e, hold, now);
    if (gone || rest)
        hold->count = 0; /* otherwise, without memory, this is done when the hold is freed */
    if (!rest)
        return;
    rest->acquired_at = 0;
    snib__gate_release(e, rest, now);
}

struct snib__op *snib__engine_release(struct snib__engine *e, struct snib__hold *hold,
                                      snib__time now, int32_t *out_code)
{
    *out_code = SNIB_NOT_HELD;
    snib__hold_over(e, hold, now);
    if (hold->phase == SNIB__LOST) {
        *out_code = SNIB_LOST;
        if (!(hold->flags & SNIB__ABANDONED)) /* another user's code may go on: the lease ends it */
            snib__gate_release_lost(e, hold, now);
        return NULL;
    }
    if (hold->phase != SNIB__HELD)
        return NULL;
    if (hold->count > 1) {
        hold->count--;
        *out_code = SNIB_OK;
        return NULL;
    }
    struct snib__op *op = snib__op_new(e, SNIB__OP_RELEASE, hold->gate, now, out_code);
    if (!op)
        return NULL;
    op->hold = hold;
    op->stage = snib__outer_is(hold->gate) ? SNIB__STAGE_OUTER : SNIB__STAGE_TRYING;
    if (!snib__node_ready(hold->gate->node))
        snib__op_arm(e, op);
    hold->op = op;
    snib__gate_release(e, hold, now);
    return op;
}

void snib__gate_retry_release(struct snib__engine *e, struct snib__hold *hold, snib__time now)
{
    struct snib__gate *gate = hold->gate;
    snib__tenure_again(hold);
    if (!snib__release_lapsed(e, hold, now)) {
        snib__gate_send_release(e, hold, now);
        return;
    }
    snib__gate_ref(gate);
    snib__gate_released(e, hold, SNIB_LOST, now);
    snib__gate_advance(e, gate, now);
    snib__gate_put(e, gate);
}

/* A release that was refused, or that reached no subscriber, brings no message.  If a foreign message
 * was mistaken for it, no wake-up is lost: the next waiter tries as soon as this release has ended, and an attempt that is
 * on its way, as beside the release of a lost hold, is made again.  See turn.c for the turns. */
static void release_is_silent(const struct snib__engine *e, struct snib__waitq *waitq)
{
    uint32_t counted = release_messages(e, waitq->gate);
    if (waitq->own_messages < counted) {
        waitq->hint = true;
        counted = waitq->own_messages;
    }
    waitq->own_messages -= counted;
}

void snib__release_unheard(struct snib__engine *e)
{
    if (!e->told_unheard)
        snib__engine_log(
            e, SNIB_LOG_WARNING,
            "the server refused to publish that a lock was released: waiters of other clients "
            "learn of it only when they ask again; allow this user +publish and the locks' "
            "channels");
    e->told_unheard = true;
}

void snib__gate_answer_release(struct snib__engine *e, struct snib__hold *hold, snib__time sent_at,
                               bool former, const struct snib__value *reply, uint32_t n,
                               int32_t error, const char *text, snib__time now)
{
    struct snib__gate *gate = hold->gate;
    struct snib__waitq *waitq = gate->waitq;
    struct snib__verdict verdict = {0};
    if (!error && hold->passed) {
        snib__tenure_answer(e, hold, reply, n, now);
        return;
    }
    if (!error)
        gate->kind->released(e, hold, reply, n, &verdict);
    if (verdict.unheard)
        snib__release_unheard(e);
    if (verdict.receivers == 0 && (hold->flags & SNIB__COUNTED) && waitq)
        release_is_silent(e, waitq);
    if (error) {
        /* the key now has another type, so nothing of this hold is left */
        bool taken = error == SNIB_EWRONGTYPE;
        /* What the user may not undo, the lease ends: it has been nobody's, and others here need not wait for that. */
        bool hopeless = error == SNIB_EPERM && (hold->flags & SNIB__REFUSED) &&
                        gate->kind->discipline != SNIB__QUEUED;
        release_fail(e, hold, error, text, reply->count);
        if (taken || hopeless) {
            snib__gate_ref(gate);
            if (taken) {
                hold->reason = SNIB_REASON_TAKEN;
                snib__hold_found_lost(e, hold, now);
            }
            snib__gate_released(e, hold, SNIB_LOST, now);
            snib__gate_advance(e, gate, now);
            snib__gate_put(e, gate);
            return;
        }
        if ((gate->kind->traits & SNIB__UNOWNED) &&
            (error == SNIB_ESERVER || error == SNIB_EPERMITS)) {
            /* it may have been carried out, and must not be carried out twice, or the number has no room for it */
            snib__gate_ref(gate);
            snib__gate_released(e, hold, error, now);
            snib__gate_advance(e, gate, now);
            snib__gate_put(e, gate);
            return;
        }
        /* It may have been carried out, of several locks in part: that a repetition finds less is no loss. */
        if (!hold->passed && (snib__doubtful(error, text) || gate->kind->kind == SNIB__MULTI))
            hold->acquired_at = 0;
        snib__timer_set(e, SNIB__TIMER_HOLD, &hold->timer_at, now + RELEASE_RETRY);
        return;
    }
    /* The hold is gone, but an earlier request has no reply and the lease cannot have
     * ended: that request did it, unless it would have left less. */
    bool ours =
        verdict.yes || ((hold->flags & SNIB__RESENT) && now < hold->deadline && !verdict.partly);
    int64_t others = verdict.receivers - ((hold->flags & SNIB__AWAKE) ? 1 : 0);
    snib__gate_ref(gate);
    if (!ours)
        snib__hold_found_lost(e, hold, now);
    snib__gate_released(e, hold, ours ? SNIB_OK : SNIB_LOST, now);
    if (gate->kind->discipline == SNIB__QUEUED && !former)
        snib__place_released(e, gate, &verdict, sent_at, now);
    else if (snib__gate_sole(gate))
        snib__turn_released(e, gate, others, now);
    snib__gate_advance(e, gate, now);
    snib__gate_put(e, gate);
}

/* ---- requests without a reply ---- */

/* Forget an attempt of which nothing remains.  Its gate's waiters are woken when the link is back, or by their timer if
 * it was not the first one's. */
static void release_untry(struct snib__engine *e, struct snib__hold *hold, snib__time now)
{
    struct snib__gate *gate = hold->gate;
    snib__gate_ref(gate);
    snib__gate_tried(hold);
    snib__gate_forget_hold(e, hold);
    snib__waitq_rest(e, gate, now);
    snib__gate_put(e, gate);
}

/* A request that must not be repeated ends here, with an unknown outcome. */
static void release_unknown(struct snib__engine *e, const struct snib__request *request,
                            snib__time now)
{
    struct snib__hold *hold = request->subject;
    if (request->kind == SNIB__REQ_RELEASE) {
        snib__gate_released(e, hold, SNIB_EUNREACHABLE, now);
        return;
    }
    if (hold->op)
        snib__gate_end_op(e, hold->op, SNIB_EUNREACHABLE);
    release_untry(e, hold, now);
}

/* Out of memory to send a request.  The waiting operation fails; what an earlier try may have left
 * at the server is released once there is memory. */
void snib__gate_unsent(struct snib__engine *e, struct snib__hold *hold, int kind,
                       snib__time sent_at, snib__time now)
{
    struct snib__gate *gate = hold->gate;
    if (kind == SNIB__REQ_ACQUIRE) {
        snib__gate_tried(hold);
        if (hold->op && hold->op->stage == SNIB__STAGE_QUEUED) {
            snib__waitq_remove(gate->waitq, hold->op);
            snib__waitq_rest(e, gate, now);
        }
        if (hold->op)
            snib__gate_end_op(e, hold->op, SNIB_ENOMEM);
        bool tried = hold->flags & (SNIB__RESENT | SNIB__SEATED);
        if (!tried || (gate->kind->traits & (SNIB__UNOWNED | SNIB__NO_HOLD))) {
            snib__gate_ref(gate);
            snib__gate_forget_hold(e, hold);
            snib__gate_advance(e, gate, now);
            snib__gate_put(e, gate);
            return;
        }
    }
    if (kind == SNIB__REQ_TRANSFER) {
        struct snib__hold *next = gate->waitq->incoming;
        gate->waitq->incoming = NULL;
        if (next->op)
            snib__gate_end_op(e, next->op, SNIB_ENOMEM);
        snib__gate_undo(e, next, sent_at, now);
    }
    if (hold->phase != SNIB__RELEASING) {
        hold->phase = SNIB__RELEASING;
        hold->deadline = snib__lease_end(sent_at, snib__hold_lease(e, hold));
        e->releasing++;
    }
    if (kind == SNIB__REQ_ACQUIRE && !snib__gate_sole(gate))
        snib__waitq_rest(e, gate, now); /* those that wait depended on its reply */
    release_no_memory(e, hold, now);
}

/* The connection ended before the reply: repeat the request, or undo it
 * if its operation has gone. */
void snib__gate_unanswered(struct snib__engine *e, const struct snib__request *request,
                           snib__time now)
{
    struct snib__hold *hold = request->subject;
    struct snib__gate *gate = hold->gate;
    if (gate->waitq)
        gate->waitq->own_messages = 0;
    if (snib__sent_once(request)) {
        release_unknown(e, request, now);
        return;
    }
    /* and so it is for all that share the question of tenure.c */
    for (struct snib__hold *each = hold; each; each = hold->passed ? each->next : NULL)
        each->flags |= SNIB__RESENT;
    int kind = request->kind;
    if (!hold->op && (gate->kind->traits & SNIB__NO_HOLD)) {
        release_untry(e, hold, now);
        return;
    }
    if (kind == SNIB__REQ_ACQUIRE && !hold->op) {
        hold->deadline = snib__lease_end(request->sent_at, snib__hold_lease(e, hold));
        hold->phase = SNIB__RELEASING;
        e->releasing++;
        kind = SNIB__REQ_RELEASE;
        snib__gate_tried(hold);
        if (!snib__gate_sole(gate))
            snib__waitq_rest(e, gate, now);
    }
    if (snib__node_send(e, kind, hold, hold->number, now) < 0)
        snib__gate_unsent(e, hold, kind, request->sent_at, now);
}
