/* gate.c - one lock name in this process: who of us tries, holds or releases, and who waits behind.
 *
 * A gate has at most one active hold.  Everybody else of this process queues in the gate, first come
 * first served, so a process sends one attempt per release however many of its callers wait.
 *
 *     acquire -> active is free: TRYING ----granted----> HELD -> release, nobody waits:  RELEASING -> free
 *                    ^            '-refused-> queue, sleep         somebody waits: one TRANSFER to the
 *                    '------ message, re-check, free -'            head of the queue, which becomes active
 *
 * Cancel and timeout take the operation away and leave the hold to finish alone: granted without an
 * operation, it is released at once (or handed to the next in the queue).
 *
 * A request without an answer is repeated with the same owner number on the next connection; that is
 * harmless by the scripts' construction.  If the operation has gone, a release is sent instead.
 */
#include "engine/internal.h"

#include <stdlib.h>
#include <string.h>

#define GATE_CHAIN_MAX                                                                             \
    (10 * SNIB__MS)                 /* hand-overs in a row may keep other processes out this long */
#define GATE_RETRY (500 * SNIB__MS) /* between releases that the server refuses */

/* ---- the table of gates ---- */

static int gate_grow(struct snib__engine *e)
{
    uint32_t cap = e->gates_cap ? e->gates_cap * 2 : 64;
    struct snib__gate **gates = calloc(cap, sizeof(struct snib__gate *));
    if (!gates)
        return -1;
    for (uint32_t i = 0; i < e->gates_cap; i++)
        for (struct snib__gate *gate = e->gates[i], *next; gate; gate = next) {
            next = gate->next;
            gate->next = gates[gate->hash & (cap - 1)];
            gates[gate->hash & (cap - 1)] = gate;
        }
    e->memory += (cap - e->gates_cap) * sizeof *gates;
    free(e->gates);
    e->gates = gates;
    e->gates_cap = cap;
    return 0;
}

struct snib__gate *snib__gate_get(struct snib__engine *e, int32_t kind, const char *name, size_t n)
{
    uint32_t hash = snib__hash(name, n) ^ (uint32_t)kind;
    for (struct snib__gate *gate = e->gates_cap ? e->gates[hash & (e->gates_cap - 1)] : NULL; gate;
         gate = gate->next)
        if (gate->hash == hash && gate->name_len == n && gate->kind->kind == kind &&
            memcmp(gate->name, name, n) == 0) {
            gate->refs++;
            return gate;
        }
    if (e->gates_n == e->gates_cap && gate_grow(e) < 0)
        return NULL;
    struct snib__gate *gate = malloc(sizeof *gate + n);
    if (!gate)
        return NULL;
    *gate = (struct snib__gate){.kind = snib__kind_of(kind),
                                .home = e->config.home,
                                .hash = hash,
                                .refs = 1,
                                .name_len = (uint16_t)n};
    memcpy(gate->name, name, n);
    gate->next = e->gates[hash & (e->gates_cap - 1)];
    e->gates[hash & (e->gates_cap - 1)] = gate;
    e->gates_n++;
    e->memory += sizeof *gate + n;
    return gate;
}

void *snib__gate_home(const struct snib__gate *gate)
{
    return gate->home;
}

void snib__gate_ref(struct snib__gate *gate)
{
    gate->refs++;
}

void snib__gate_put(struct snib__engine *e, struct snib__gate *gate)
{
    if (--gate->refs > 0)
        return;
    struct snib__gate **at = &e->gates[gate->hash & (e->gates_cap - 1)];
    while (*at != gate)
        at = &(*at)->next;
    *at = gate->next;
    e->gates_n--;
    e->memory -= sizeof *gate + gate->name_len;
    free(gate);
}

/* ---- trying ---- */

/* Give up a hold of which the server has nothing, and its operation's tie to it. */
static void gate_forget_hold(struct snib__engine *e, struct snib__hold *hold)
{
    if (hold->gate->active == hold)
        hold->gate->active = NULL;
    hold->phase = SNIB__GONE;
    e->moves++;
    hold->op = NULL;
    snib__hold_settle(e, hold);
}

static void gate_end_op(struct snib__engine *e, struct snib__op *op, int32_t code)
{
    op->hold->op = NULL;
    op->hold = NULL;
    snib__op_done(e, op, code);
}

/* Send an attempt for a hold whose operation is not queued. */
static void gate_try(struct snib__engine *e, struct snib__hold *hold, snib__time now)
{
    struct snib__gate *gate = hold->gate;
    gate->active = hold;
    hold->phase = SNIB__TRYING;
    hold->op->place = SNIB__PLACE_TRY;
    hold->flags &= (uint8_t)~SNIB__AWAKE;
    if (gate->wait) {
        gate->wait->hint = false;
        gate->wait->yielding = false;
        if (gate->wait->channel == SNIB__CHAN_ON)
            hold->flags |= SNIB__AWAKE;
    }
    if (snib__node_send(e, SNIB__REQ_ACQUIRE, hold, hold->number, now) < 0) {
        struct snib__op *op = hold->op;
        gate_end_op(e, op, SNIB_ENOMEM);
        gate_forget_hold(e, hold);
    }
}

void snib__gate_advance(struct snib__engine *e, struct snib__gate *gate, snib__time now)
{
    struct snib__wait *wait = gate->wait;
    while (wait && !gate->active && !wait->incoming && wait->head) {
        struct snib__op *op = wait->head;
        snib__timer_cancel(e, &wait->timer_at);
        snib__wait_remove(wait, op);
        gate_try(e, op->hold, now);
    }
    if (wait && !wait->head)
        snib__wait_rest(e, gate, now);
}

/* Put an operation at the front of its gate's queue, to sleep there. */
static void gate_queue(struct snib__engine *e, struct snib__op *op, bool front)
{
    struct snib__wait *wait = snib__wait_get(e, op->gate);
    if (!wait || snib__op_arm(e, op) < 0) {
        struct snib__hold *hold = op->hold;
        gate_end_op(e, op, SNIB_ENOMEM);
        gate_forget_hold(e, hold);
        return;
    }
    op->hold->phase = SNIB__NEW;
    op->waited = true;
    snib__wait_push(wait, op, front);
}

/* An owner that holds the lock gets it again; `op` is not queued. */
static bool gate_reenter(struct snib__engine *e, struct snib__op *op, snib__time now)
{
    struct snib__hold *held = op->gate->active;
    if (op->owner == 0 || !held || held->phase != SNIB__HELD || held->owner != op->owner ||
        now >= held->deadline)
        return false;
    held->count++;
    held->flags |= SNIB__HANDED;
    e->stats.reentries++;
    if (op->hold) {
        struct snib__hold *own = op->hold;
        own->op = NULL;
        own->phase = SNIB__GONE;
        snib__hold_settle(e, own);
    }
    op->hold = held;
    snib__op_done(e, op, SNIB_OK);
    return true;
}

struct snib__op *snib__engine_acquire(struct snib__engine *e, struct snib__gate *gate,
                                      const struct snib__acquire *how, snib__time now,
                                      int32_t *out_code)
{
    struct snib__op *op = snib__op_new(e, SNIB__OP_ACQUIRE, gate, now, out_code);
    if (!op)
        return NULL;
    op->owner = how->owner;
    op->once = how->wait == 0;
    op->deadline = how->wait == 0 || how->wait == SNIB__NEVER ? SNIB__NEVER : now + how->wait;
    if (gate_reenter(e, op, now))
        return op;
    struct snib__hold *active = gate->active;
    bool others = gate->wait && gate->wait->head;
    /* What we hold ourselves, or wait for ourselves, needs no question to the server. */
    if (op->once && (others || (active && active->phase != SNIB__RELEASING && active->op))) {
        snib__op_done(e, op, SNIB_BUSY);
        return op;
    }
    if (op->once && active && active->phase == SNIB__HELD) {
        snib__op_done(e, op, SNIB_BUSY);
        return op;
    }
    struct snib__hold *hold = snib__hold_new(e, gate);
    if (!hold) {
        snib__op_done(e, op, SNIB_ENOMEM);
        return op;
    }
    hold->owner = how->owner;
    hold->lease_ms = (uint32_t)(how->lease / SNIB__MS);
    hold->max_hold_ms = (uint32_t)(how->max_hold / SNIB__MS);
    hold->op = op;
    op->hold = hold;
    if (!active && !others) {
        if ((!snib__node_ready(e) || op->deadline != SNIB__NEVER) && snib__op_arm(e, op) < 0) {
            gate_end_op(e, op, SNIB_ENOMEM);
            gate_forget_hold(e, hold);
            return op;
        }
        gate_try(e, hold, now);
    } else {
        gate_queue(e, op, false);
        if (!op->done)
            op->waited = !op->once;
    }
    return op;
}

static void gate_granted(struct snib__engine *e, struct snib__hold *hold, snib__time sent_at,
                         snib__time now)
{
    struct snib__op *op = hold->op;
    bool late = now >= snib__lease_end(sent_at, snib__hold_lease(e, hold));
    snib__hold_granted(e, hold, sent_at, now);
    if (!op || late) { /* nobody wants it any more, or nobody may have it any more: give it back */
        if (op)
            gate_end_op(e, op, SNIB_EUNREACHABLE);
        snib__gate_release(e, hold, now);
        return;
    }
    if (op->waited)
        e->stats.waits++;
    snib__histogram_add(e->stats.wait_time, now - op->started);
    hold->op = NULL;
    hold->flags |= SNIB__HANDED;
    snib__op_done(e, op, SNIB_OK);
    struct snib__wait *wait = hold->gate->wait;
    for (struct snib__op *other = wait && hold->owner ? wait->head : NULL, *next; other;
         other = next) {
        next = other->next;
        if (other->owner != hold->owner)
            continue;
        snib__wait_remove(wait, other);
        gate_reenter(e, other, now);
    }
    if (wait && !wait->head)
        snib__wait_rest(e, hold->gate, now);
}

void snib__gate_answer_acquire(struct snib__engine *e, struct snib__hold *hold, snib__time sent_at,
                               const struct snib__value *reply, int32_t error, const char *text,
                               snib__time now)
{
    struct snib__gate *gate = hold->gate;
    struct snib__op *op = hold->op;
    struct snib__verdict verdict = error ? (struct snib__verdict){0} : gate->kind->acquired(reply);
    if (verdict.yes) {
        gate_granted(e, hold, sent_at, now);
        return;
    }
    snib__gate_ref(gate);
    bool unsure = error == SNIB_ESERVER || (error && (hold->flags & SNIB__RESENT));
    hold->flags &= (uint8_t)~SNIB__RESENT;
    if (error && op) {
        op->hold = NULL;
        hold->op = NULL;
        snib__op_fail(e, op, error, text, reply->count);
    }
    if (unsure) { /* unknown words, or an earlier try has no answer: it may have worked */
        hold->deadline = snib__lease_end(sent_at, snib__hold_lease(e, hold));
        snib__gate_release(e, hold, now);
    } else if (error || !op || op->once) {
        if (!error && op)
            gate_end_op(e, op, SNIB_BUSY);
        gate_forget_hold(e, hold);
        snib__gate_advance(e, gate, now);
    } else {
        gate->active = NULL;
        gate_queue(e, op, true);
        if (op->done)
            snib__gate_advance(e, gate, now);
        else if (!(hold->flags & SNIB__AWAKE) && gate->wait->channel == SNIB__CHAN_ON)
            snib__gate_advance(
                e, gate, now); /* subscribed since: what was released meanwhile was not heard */
        else
            snib__wait_sleep(e, gate, verdict.left_ms, now);
    }
    snib__gate_put(e, gate);
}

/* ---- leaving ---- */

/* Take an unfinished operation out of wherever it is.  Its hold, if the server may have it, finishes alone. */
bool snib__gate_leave(struct snib__engine *e, struct snib__op *op, snib__time now)
{
    struct snib__hold *hold = op->hold;
    if (op->place == SNIB__PLACE_ASK) {
        snib__node_forget(e, op);
        return true;
    }
    if (!hold)
        return true;
    op->hold = NULL;
    hold->op = NULL;
    if (op->kind == SNIB__OP_RELEASE)
        return true; /* the release goes on, only nobody waits for it */
    struct snib__gate *gate = hold->gate;
    snib__gate_ref(gate);
    if (op->place == SNIB__PLACE_QUEUE) {
        snib__wait_remove(gate->wait, op);
        gate_forget_hold(e, hold);
        if (!gate->wait->head)
            snib__wait_rest(e, gate, now);
    } else if (!snib__node_ready(e) && !(hold->flags & SNIB__RESENT) && gate->active == hold) {
        snib__node_forget(e, hold); /* it was never sent */
        gate_forget_hold(e, hold);
        snib__gate_advance(e, gate, now);
    }
    snib__gate_put(e, gate);
    return true;
}

/* ---- releasing ---- */

static void gate_released(struct snib__engine *e, struct snib__hold *hold, int32_t code,
                          snib__time now)
{
    struct snib__gate *gate = hold->gate;
    struct snib__op *op = hold->op;
    snib__timer_cancel(e, &hold->timer_at);
    e->releasing--;
    hold->phase = SNIB__GONE;
    e->moves++;
    if (gate->active == hold)
        gate->active = NULL;
    if (code == SNIB_OK) {
        e->stats.releases++;
        if (hold->acquired_at)
            snib__histogram_add(e->stats.hold_time, now - hold->acquired_at);
    }
    if (op)
        gate_end_op(e, op, code);
    snib__hold_settle(e, hold);
}

/* May the hold go to the head of the local queue, or is it other processes' turn? */
static bool gate_may_hand_over(struct snib__engine *e, struct snib__gate *gate,
                               struct snib__hold *hold, snib__time now)
{
    struct snib__wait *wait = gate->wait;
    if (!wait || !wait->head || wait->incoming || e->config.handover_max == 0 ||
        now >= hold->deadline)
        return false;
    if (wait->chain == 0)
        wait->chain_since = hold->acquired_at;
    if (wait->chain >= (uint32_t)e->config.handover_max ||
        now - wait->chain_since > GATE_CHAIN_MAX) {
        wait->chain = 0;
        hold->flags |= SNIB__YIELD;
        return false;
    }
    wait->chain++;
    return true;
}

static void gate_send_release(struct snib__engine *e, struct snib__hold *hold, snib__time now)
{
    struct snib__wait *wait = hold->gate->wait;
    hold->flags &= (uint8_t) ~(SNIB__AWAKE | SNIB__COUNTED);
    if (wait)
        wait->chain = 0;
    if (wait && wait->channel == SNIB__CHAN_ON) {
        hold->flags |= SNIB__AWAKE;
        if (!(hold->flags & SNIB__YIELD)) {
            hold->flags |= SNIB__COUNTED;
            wait->own_messages++;
        }
    }
    if (snib__node_send(e, SNIB__REQ_RELEASE, hold, hold->number, now) < 0)
        snib__timer_set(e, SNIB__TIMER_HOLD, hold, &hold->timer_at, now + GATE_RETRY);
}

/* Begin to give back a hold, whoever asks for it.  Renewal ends here, before anything is sent. */
void snib__gate_release(struct snib__engine *e, struct snib__hold *hold, snib__time now)
{
    struct snib__gate *gate = hold->gate;
    bool held = hold->phase == SNIB__HELD;
    snib__hold_stop(e, hold);
    if (held)
        e->stats.held--;
    e->releasing++;
    e->moves++;
    hold->phase = SNIB__RELEASING;
    hold->flags &= (uint8_t)~SNIB__RESENT;
    if (held && gate->active == hold && gate_may_hand_over(e, gate, hold, now)) {
        struct snib__op *next = gate->wait->head;
        snib__wait_remove(gate->wait, next);
        gate->wait->incoming = next->hold;
        next->hold->phase = SNIB__TRYING;
        next->place = SNIB__PLACE_TRY;
        snib__timer_cancel(e, &gate->wait->timer_at);
        if (snib__node_send(e, SNIB__REQ_TRANSFER, hold, hold->number, now) == 0)
            return;
        gate->wait->incoming = NULL;
        next->hold->phase = SNIB__NEW;
        snib__wait_push(gate->wait, next, true);
    }
    gate_send_release(e, hold, now);
}

struct snib__op *snib__engine_release(struct snib__engine *e, struct snib__hold *hold,
                                      snib__time now, int32_t *out_code)
{
    *out_code = SNIB_NOT_HELD;
    if (hold->phase == SNIB__HELD && now >= hold->deadline)
        snib__hold_lose(e, hold, hold->lease_ms ? SNIB_REASON_EXPIRED : SNIB_REASON_UNREACHABLE,
                        now);
    if (hold->phase == SNIB__LOST) {
        *out_code = SNIB_LOST;
        /* Told lost, but the server may still keep it for us, and others wait for that: take it back. */
        struct snib__hold *rest = hold->reason == SNIB_REASON_TAKEN ||
                                          hold->reason == SNIB_REASON_DELETED || hold->count == 0
                                      ? NULL
                                      : snib__hold_new(e, hold->gate);
        hold->count = 0;
        if (rest) {
            rest->number = hold->number;
            rest->lease_ms = hold->lease_ms;
            rest->deadline = hold->deadline;
            snib__gate_release(e, rest, now);
        }
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
    op->place = SNIB__PLACE_TRY;
    if (!snib__node_ready(e) && snib__op_arm(e, op) < 0) {
        op->hold = NULL;
        snib__op_done(e, op, SNIB_ENOMEM);
        return op;
    }
    hold->op = op;
    snib__gate_release(e, hold, now);
    return op;
}

/* The lease has certainly ended at the server, however slow its clock is within the bounds. */
static bool gate_lapsed(const struct snib__engine *e, const struct snib__hold *hold, snib__time now)
{
    return now > hold->deadline + snib__hold_lease(e, hold) / 40 + 4 * SNIB__MARGIN;
}

void snib__gate_retry_release(struct snib__engine *e, struct snib__hold *hold, snib__time now)
{
    struct snib__gate *gate = hold->gate;
    if (!gate_lapsed(e, hold, now)) {
        gate_send_release(e, hold, now);
        return;
    }
    snib__gate_ref(gate);
    gate_released(e, hold, SNIB_LOST, now);
    snib__gate_advance(e, gate, now);
    snib__gate_put(e, gate);
}

void snib__gate_answer_release(struct snib__engine *e, struct snib__hold *hold,
                               const struct snib__value *reply, int32_t error, const char *text,
                               snib__time now)
{
    struct snib__gate *gate = hold->gate;
    struct snib__wait *wait = gate->wait;
    struct snib__verdict verdict = error ? (struct snib__verdict){0} : gate->kind->released(reply);
    /* No message comes of a release that was refused or that told nobody; if one was taken for it,
     * it was somebody else's, and news. */
    if (verdict.receivers == 0 && (hold->flags & SNIB__COUNTED) && wait) {
        if (wait->own_messages > 0)
            wait->own_messages--;
        else
            wait->hint = true;
    }
    if (error) {
        struct snib__op *op = hold->op;
        if (op) {
            op->hold = NULL;
            hold->op = NULL;
            snib__op_fail(e, op, error, text, reply->count);
        }
        snib__timer_set(e, SNIB__TIMER_HOLD, hold, &hold->timer_at, now + GATE_RETRY);
        return;
    }
    /* Gone, but an earlier request has no answer and the lease cannot have ended: that request did it. */
    bool ours = verdict.yes || ((hold->flags & SNIB__RESENT) && now < hold->deadline);
    int64_t others = verdict.receivers - ((hold->flags & SNIB__AWAKE) ? 1 : 0);
    bool yield = (hold->flags & SNIB__YIELD) && others > 0;
    snib__gate_ref(gate);
    gate_released(e, hold, ours ? SNIB_OK : SNIB_LOST, now);
    if (yield && wait && wait->head && !gate->active) {
        wait->yielding = true;
        snib__wait_sleep(e, gate, -1, now);
    } else {
        snib__gate_advance(e, gate, now);
    }
    snib__gate_put(e, gate);
}

void snib__gate_answer_transfer(struct snib__engine *e, struct snib__hold *hold, snib__time sent_at,
                                const struct snib__value *reply, int32_t error, const char *text,
                                snib__time now)
{
    struct snib__gate *gate = hold->gate;
    struct snib__hold *next = gate->wait->incoming;
    (void)text;
    gate->wait->incoming = NULL;
    snib__gate_ref(gate);
    if (!error && reply->type == SNIB__RESP_INTEGER && reply->integer == 1) {
        e->stats.handovers++;
        gate_released(e, hold, SNIB_OK, now);
        gate->active = next;
        gate_granted(e, next, sent_at, now);
    } else {
        if (next->op) {
            gate_queue(e, next->op, true);
        } else {
            gate_forget_hold(e, next);
        }
        if (error) { /* nothing was changed: the plain release is harder to refuse */
            gate_send_release(e, hold, now);
        } else {
            gate_released(e, hold, SNIB_LOST, now);
            snib__gate_advance(e, gate, now);
        }
    }
    snib__gate_put(e, gate);
}

/* The connection ended before the answer: repeat the request, or undo it if nobody waits for it. */
void snib__gate_unanswered(struct snib__engine *e, const struct snib__request *request,
                           snib__time now)
{
    struct snib__hold *hold = request->subject;
    struct snib__gate *gate = hold->gate;
    hold->flags |= SNIB__RESENT;
    if (gate->wait)
        gate->wait->own_messages = 0;
    int kind = request->kind;
    if (kind == SNIB__REQ_ACQUIRE && !hold->op) {
        hold->deadline = snib__lease_end(request->sent_at, snib__hold_lease(e, hold));
        hold->phase = SNIB__RELEASING;
        e->releasing++;
        kind = SNIB__REQ_RELEASE;
    }
    if (snib__node_send(e, kind, hold, hold->number, now) == 0)
        return;
    if (kind == SNIB__REQ_ACQUIRE)
        gate_end_op(e, hold->op, SNIB_ENOMEM);
    if (kind == SNIB__REQ_TRANSFER) {
        struct snib__hold *next = gate->wait->incoming;
        gate->wait->incoming = NULL;
        if (next->op)
            gate_end_op(e, next->op, SNIB_ENOMEM);
        gate_forget_hold(e, next);
    }
    if (hold->phase != SNIB__RELEASING) {
        hold->phase = SNIB__RELEASING;
        hold->deadline = snib__lease_end(request->sent_at, snib__hold_lease(e, hold));
        e->releasing++;
    }
    snib__timer_set(e, SNIB__TIMER_HOLD, hold, &hold->timer_at, now + GATE_RETRY);
}
