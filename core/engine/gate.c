/* gate.c - one lock name in this process: which hold tries, is held or is released, and what waits.
 *
 * This file has what all disciplines share: the table of gates, acquiring, granting, leaving.
 * sole.c has locks with one holder, share.c locks with many, place.c the fair lock; release.c has
 * the way back.
 *
 * Cancel and timeout detach the operation and let the hold finish alone: if it is granted without
 * an operation, it is released at once (or handed to the next in the queue).
 */
#include "engine/internal.h"
#include "engine/route.h"
#include "net/slot.h"

#include <stdlib.h>
#include <string.h>

/* ---- the table of gates ---- */

/* Recomputed rather than stored: there are many gates, and few per bucket. */
static uint32_t gate_hash(int32_t kind, const char *name, size_t n)
{
    return snib__hash(name, n) ^ (uint32_t)kind;
}

static int gate_grow(struct snib__engine *e)
{
    uint32_t cap = e->gates_cap ? e->gates_cap * 2 : 64;
    struct snib__gate **gates = calloc(cap, sizeof(struct snib__gate *));
    if (!gates)
        return -1;
    for (uint32_t i = 0; i < e->gates_cap; i++)
        for (struct snib__gate *gate = e->gates[i], *next; gate; gate = next) {
            next = gate->next;
            uint32_t at = gate_hash(gate->kind->kind, gate->name, gate->name_len) & (cap - 1);
            gate->next = gates[at];
            gates[at] = gate;
        }
    e->memory += (cap - e->gates_cap) * sizeof *gates;
    free(e->gates);
    e->gates = gates;
    e->gates_cap = cap;
    return 0;
}

struct snib__gate *snib__gate_find(const struct snib__engine *e, int32_t kind, const char *name,
                                   size_t n)
{
    uint32_t hash = gate_hash(kind, name, n);
    for (struct snib__gate *gate = e->gates_cap ? e->gates[hash & (e->gates_cap - 1)] : NULL; gate;
         gate = gate->next)
        if (gate->name_len == n && gate->kind->kind == kind && memcmp(gate->name, name, n) == 0)
            return gate;
    return NULL;
}

static size_t gate_prefix(const struct snib__engine *e)
{
    return e->config.topology == SNIB__CLUSTER ? sizeof(struct snib__neighbours) : 0;
}

static struct snib__gate *gate_new(struct snib__engine *e, size_t name_len)
{
    size_t prefix = gate_prefix(e), size = prefix + snib__gate_size(name_len);
    char *memory = malloc(size);
    if (!memory)
        return NULL;
    struct snib__gate *gate = (void *)(memory + prefix);
    if (prefix)
        *snib__gate_neighbours(gate) = (struct snib__neighbours){0};
    e->memory += size;
    return gate;
}

void snib__gate_free(struct snib__engine *e, struct snib__gate *gate)
{
    size_t prefix = gate_prefix(e);
    e->memory -= prefix + snib__gate_size(gate->name_len);
    free((char *)gate - prefix);
}

static void gate_join_slot(struct snib__engine *e, struct snib__gate *gate, uint16_t slot)
{
    struct snib__neighbours *beside = snib__gate_neighbours(gate);
    gate->slot = slot;
    *beside = (struct snib__neighbours){.next = e->slots[slot], .at = &e->slots[slot]};
    if (beside->next)
        snib__gate_neighbours(beside->next)->at = &beside->next;
    e->slots[slot] = gate;
}

static void gate_leave_slot(struct snib__gate *gate)
{
    const struct snib__neighbours *beside = snib__gate_neighbours(gate);
    if (!beside->at)
        return;
    *beside->at = beside->next;
    if (beside->next)
        snib__gate_neighbours(beside->next)->at = beside->at;
}

struct snib__gate *snib__gate_get(struct snib__engine *e, int32_t kind, const char *name, size_t n)
{
    uint32_t hash = gate_hash(kind, name, n);
    struct snib__gate *known = snib__gate_find(e, kind, name, n);
    if (known) {
        known->refs++;
        return known;
    }
    if (e->gates_n == e->gates_cap && gate_grow(e) < 0)
        return NULL;
    struct snib__gate *gate = gate_new(e, n);
    if (!gate)
        return NULL;
    /* A multi lock that is one gate is served by one node, that of its first member. */
    const char *key = kind == SNIB__MULTI ? name + 1 : name;
    size_t key_n = kind == SNIB__MULTI ? strnlen(key, n - 1) : n;
    *gate =
        (struct snib__gate){.kind = snib__kind_of(kind),
                            .node = kind == SNIB__OUTER ? e->home : e->route->serves(e, key, key_n),
                            .home = e->config.home,
                            .refs = 1,
                            .name_len = (uint16_t)n};
    memcpy(gate->name, name, n);
    gate->next = e->gates[hash & (e->gates_cap - 1)];
    e->gates[hash & (e->gates_cap - 1)] = gate;
    if (e->slots && kind != SNIB__OUTER)
        gate_join_slot(e, gate, snib__slot(key, key_n));
    e->gates_n++;
    return gate;
}

void *snib__gate_home(const struct snib__gate *gate)
{
    return gate->home;
}

int32_t snib__gate_kind(const struct snib__gate *gate)
{
    return gate->kind->kind;
}

const char *snib__gate_name(const struct snib__gate *gate, size_t *out_len)
{
    *out_len = gate->name_len;
    return gate->name;
}

void snib__gate_ref(struct snib__gate *gate)
{
    gate->refs++;
}

void snib__gate_put(struct snib__engine *e, struct snib__gate *gate)
{
    if (--gate->refs > 0)
        return;
    uint32_t hash = gate_hash(gate->kind->kind, gate->name, gate->name_len);
    struct snib__gate **at = &e->gates[hash & (e->gates_cap - 1)];
    while (*at != gate)
        at = &(*at)->next;
    *at = gate->next;
    if (gate_prefix(e))
        gate_leave_slot(gate);
    e->gates_n--;
    snib__gate_free(e, gate);
}

/* ---- holds and their gate ---- */

void snib__gate_join(struct snib__hold *hold)
{
    struct snib__gate *gate = hold->gate;
    hold->flags |= SNIB__PEER;
    hold->peer_prev = NULL;
    hold->peer_next = gate->peers;
    if (gate->peers)
        gate->peers->peer_prev = hold;
    gate->peers = hold;
}

/* The gate no longer has the hold: it was released, refused or lost. */
void snib__gate_part(struct snib__hold *hold)
{
    struct snib__gate *gate = hold->gate;
    if (snib__gate_active(gate) == hold)
        gate->active = NULL;
    if (!(hold->flags & SNIB__PEER))
        return;
    hold->flags &= (uint16_t)~SNIB__PEER;
    if (hold->peer_prev)
        hold->peer_prev->peer_next = hold->peer_next;
    else
        gate->peers = hold->peer_next;
    if (hold->peer_next)
        hold->peer_next->peer_prev = hold->peer_prev;
    hold->peer_prev = hold->peer_next = NULL;
}

/* ---- ends of holds and operations ---- */

/* Discard a hold of which the server has no trace, and untie its operation. */
void snib__gate_forget_hold(struct snib__engine *e, struct snib__hold *hold)
{
    snib__place_left(e, hold);
    snib__gate_part(hold);
    hold->phase = SNIB__GONE;
    e->moves++;
    hold->op = NULL;
    snib__hold_settle(e, hold);
}

void snib__gate_end_op(struct snib__engine *e, struct snib__op *op, int32_t code)
{
    op->hold->op = NULL;
    op->hold = NULL;
    snib__op_done(e, op, code);
}

/* ---- acquiring ---- */

/* Only the head of the gate's queue may try. */
void snib__gate_advance(struct snib__engine *e, struct snib__gate *gate, snib__time now)
{
    if (snib__gate_sole(gate))
        snib__sole_advance(e, gate, now);
    else if (gate->kind->discipline == SNIB__SHARED)
        snib__share_advance(e, gate, now);
    else
        snib__waitq_rest(e, gate, now); /* fair waiters ask for themselves */
}

/* The owner's hold of the gate, or NULL. */
static struct snib__hold *gate_held_by(struct snib__engine *e, const struct snib__gate *gate,
                                       uint64_t owner, snib__time now)
{
    struct snib__hold *hold = owner ? snib__gate_first(gate) : NULL;
    while (hold) {
        bool owned = hold->phase == SNIB__HELD && hold->owner == owner;
        if (owned && !snib__hold_over(e, hold, now))
            return hold;
        hold = owned ? snib__gate_first(gate) : snib__gate_next(gate, hold); /* it has left */
    }
    return NULL;
}

/* An owner that holds the lock gets it again, until the count is full; `op` is not queued. */
static bool gate_reenter(struct snib__engine *e, struct snib__op *op, snib__time now)
{
    struct snib__hold *held = gate_held_by(e, op->gate, op->owner, now);
    if (!held)
        return false;
    bool full = held->count == UINT32_MAX;
    held->count += !full;
    held->users += !full;
    e->stats.reentries += !full;
    if (op->hold) {
        struct snib__hold *own = op->hold;
        own->op = NULL;
        own->phase = SNIB__GONE;
        snib__gate_part(own);
        snib__hold_settle(e, own);
    }
    op->hold = full ? NULL : held;
    snib__op_done(e, op, full ? SNIB_ELIMIT : SNIB_OK);
    return true;
}

/* The owner has had the lock since the operation began, so it has it again.  Its own place, or an attempt that may have
 * worked, is given back. */
bool snib__gate_joins(struct snib__engine *e, struct snib__op *op, snib__time now)
{
    struct snib__hold *own = op->hold;
    if (!gate_held_by(e, op->gate, op->owner, now))
        return false;
    bool carried = snib__outer_is(op->gate);
    bool there =
        carried || own->phase == SNIB__PLACED || (own->flags & (SNIB__RESENT | SNIB__SEATED));
    if (op->stage == SNIB__STAGE_QUEUED)
        snib__waitq_remove(op->gate->waitq, op);
    if (!there) {
        gate_reenter(e, op, now);
        return true;
    }
    snib__place_left(e, own);
    own->op = NULL;
    op->hold = NULL;
    gate_reenter(e, op, now);
    if (carried)
        snib__outer_tell(e, own);
    else
        snib__gate_undo(e, own, now, now);
    return true;
}

/* A lock that this process holds is busy, and one that it waits for since the server said that it is
 * held: no need to ask the server.  Before its first reply to the others nothing is known. */
static bool gate_is_busy(const struct snib__gate *gate)
{
    const struct snib__hold *active = snib__gate_active(gate);
    if (!snib__gate_sole(gate))
        return false;
    return (gate->waitq && gate->waitq->head && snib__op_told(gate->waitq->head)) ||
           (active && active->phase != SNIB__RELEASING && active->op &&
            snib__op_told(active->op)) ||
           (active && active->phase == SNIB__HELD);
}

/* The gate of the other side of a read/write lock; NULL: there is none. */
static struct snib__gate *gate_opposite(const struct snib__engine *e, const struct snib__gate *gate)
{
    int32_t kind = gate->kind->kind;
    return kind == SNIB_READ || kind == SNIB_WRITE
               ? snib__gate_find(e, kind == SNIB_READ ? SNIB_WRITE : SNIB_READ, gate->name,
                                 gate->name_len)
               : NULL;
}

/* Whether this is a write hold within which its owner reads: both sides are one key with one lease at the server, so what
 * keeps the read keeps the write side, too. */
bool snib__gate_reads_on(const struct snib__engine *e, const struct snib__hold *hold)
{
    bool writes = hold->gate->kind->kind == SNIB_WRITE;
    const struct snib__gate *reads = writes ? gate_opposite(e, hold->gate) : NULL;
    const struct snib__hold *peer = reads ? reads->peers : NULL;
    while (peer && !((peer->flags & SNIB__JOINS) && peer->writer == hold->number))
        peer = peer->peer_next;
    return peer != NULL;
}

/* The number of the owner's write hold, which lets its read in; 0: there is none.  A reader that asks for the write lock
 * would wait for itself: *out_code. */
static uint64_t gate_other_side(struct snib__engine *e, const struct snib__gate *gate,
                                uint64_t owner, snib__time now, int32_t *out_code)
{
    int32_t kind = gate->kind->kind;
    const struct snib__gate *other = owner ? gate_opposite(e, gate) : NULL;
    const struct snib__hold *held = other ? gate_held_by(e, other, owner, now) : NULL;
    if (held && kind == SNIB_WRITE)
        *out_code = SNIB_EUPGRADE;
    return held && kind == SNIB_READ ? held->number : 0;
}

/* The owner may have got the other side of the lock since the operation began, and would wait for itself.  SNIB_AGAIN: a read
 * is within the write hold now; an error: a write ends with it. */
int32_t snib__gate_meets(struct snib__engine *e, struct snib__op *op, snib__time now)
{
    int32_t code = SNIB_OK;
    uint64_t number = gate_other_side(e, op->gate, op->owner, now, &code);
    if (number == 0 || ((op->hold->flags & SNIB__JOINS) && number == op->hold->writer))
        return code;
    op->hold->writer = number;
    op->hold->flags |= SNIB__JOINS;
    op->joined = ++e->next_serial;
    return SNIB_AGAIN;
}

/* The same for what the owner of a granted hold waits for in the queue of the other side.  An attempt in flight follows
 * when it has been refused. */
static void gate_meet(struct snib__engine *e, const struct snib__hold *granted, snib__time now)
{
    struct snib__gate *gate = granted->owner ? gate_opposite(e, granted->gate) : NULL;
    bool again = false;
    if (!gate || !gate->waitq)
        return;
    snib__gate_ref(gate);
    for (struct snib__op *op = gate->waitq->head, *next; op; op = next) {
        next = op->next;
        int32_t code = op->owner == granted->owner ? snib__gate_meets(e, op, now) : SNIB_OK;
        if (code == SNIB_AGAIN) { /* it goes ahead of the others */
            again = true;
            snib__waitq_remove(gate->waitq, op);
            snib__waitq_insert(gate->waitq, op);
        } else if (code != SNIB_OK) {
            snib__gate_leave(e, op, now);
            snib__op_done(e, op, code);
        }
    }
    if (again)
        snib__share_advance(e, gate, now);
    snib__gate_put(e, gate);
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
    op->latest = now + e->config.try_timeout;
    if (how->latest && op->latest > how->latest)
        op->latest = how->latest;
    if (how->wait != SNIB__NEVER && !(op->once && how->patient))
        op->deadline = op->once ? op->latest + e->config.durability_timeout : now + how->wait;
    if (snib__gate_active(gate)) /* it may be over without anything having noticed */
        snib__hold_over(e, snib__gate_active(gate), now);
    if (gate_reenter(e, op, now))
        return op;
    int32_t refused = SNIB_OK;
    uint64_t number = gate_other_side(e, gate, how->owner, now, &refused);
    if (refused != SNIB_OK || (op->once && gate_is_busy(gate))) {
        snib__op_done(e, op, refused != SNIB_OK ? refused : SNIB_BUSY);
        return op;
    }
    struct snib__hold *hold = snib__hold_new(e, gate);
    if (!hold) {
        snib__op_done(e, op, SNIB_ENOMEM);
        return op;
    }
    if (number) {
        hold->writer = number;
        hold->flags |= SNIB__JOINS;
        op->joined = op->serial;
    }
    hold->owner = how->owner;
    hold->lease_ms = (uint32_t)(how->lease / SNIB__MS) & SNIB__SPAN_MAX;
    hold->max_hold_ms = (uint32_t)(how->max_hold / SNIB__MS) & SNIB__SPAN_MAX;
    if (gate->kind->kind == SNIB_PERMITS || gate->kind->kind == SNIB_SEMAPHORE) {
        hold->permits = how->permits ? how->permits : 1;
        e->next_number += hold->permits - 1; /* one number per permit */
    } else if (gate->kind->kind == SNIB_MUTEX) {
        hold->vote_ms = how->vote_ms;
    }
    hold->options = how->options & 15u;
    hold->op = op;
    op->hold = hold;
    if (snib__gate_sole(gate))
        snib__sole_acquire(e, op, now);
    else if (snib__outer_is(gate))
        snib__outer_acquire(e, op, how->outer);
    else if (gate->kind->discipline == SNIB__SHARED)
        snib__share_acquire(e, op, now);
    else
        snib__place_acquire(e, op, now);
    return op;
}

/* ---- replies ---- */

/* An attempt is no longer in flight.  True: it was a single try beside a queue, which it says nothing to. */
bool snib__gate_tried(struct snib__hold *hold)
{
    struct snib__gate *gate = hold->gate;
    if (snib__gate_sole(gate))
        return false;
    gate->trying--;
    bool single = gate->kind->discipline == SNIB__SHARED && (hold->flags & SNIB__BESIDE);
    if (single) {
        hold->flags &= (uint16_t)~SNIB__BESIDE;
        if (gate->waitq)
            gate->waitq->singles--;
    }
    return single;
}

/* A granted hold goes to its operation.  It goes back if no operation wants it any more, or if it
 * came too late.  True: it was taken. */
bool snib__gate_grant(struct snib__engine *e, struct snib__hold *hold, int64_t token,
                      snib__time sent_at, snib__time now)
{
    struct snib__op *op = hold->op;
    struct snib__gate *gate = hold->gate;
    bool late = now >= snib__lease_end(sent_at, snib__hold_lease(e, hold)) &&
                !(gate->kind->traits & SNIB__UNOWNED);
    if (gate->kind->traits & SNIB__TOKENS)
        hold->fencing = token;
    if (!op || late) {
        if (op)
            snib__gate_end_op(e, op, SNIB_EUNREACHABLE);
        snib__gate_spurn(e, hold, now);
        return false;
    }
    snib__hold_granted(e, hold, sent_at, now);
    if (op->waited)
        e->stats.waits++;
    snib__histogram_add(e->stats.wait_time, now - op->started);
    hold->op = NULL;
    hold->flags |= SNIB__HANDED;
    hold->users = 1;
    if (op->member) /* its carrier asks, and then its own grant is known, too */
        op->told = snib__op_told(op);
    snib__op_done(e, op, SNIB_OK);
    struct snib__waitq *waitq = gate->waitq;
    for (struct snib__op *other = waitq && hold->owner ? waitq->head : NULL, *next; other;
         other = next) {
        next = other->next;
        if (other->owner == hold->owner && other->hold && other->hold->phase != SNIB__TRYING)
            snib__gate_joins(e, other, now); /* else when its attempt has been refused */
    }
    gate_meet(e, hold, now);
    if (waitq && !waitq->head)
        snib__waitq_rest(e, gate, now);
    return true;
}

/* No operation waits for the hold any more, but the server may have a trace of it: take it back. */
void snib__gate_undo(struct snib__engine *e, struct snib__hold *hold, snib__time sent_at,
                     snib__time now)
{
    /* It has no owner on the wire, or there is nothing to release. */
    if (hold->gate->kind->traits & (SNIB__UNOWNED | SNIB__NO_HOLD)) {
        struct snib__gate *gate = hold->gate;
        snib__gate_ref(gate);
        snib__gate_forget_hold(e, hold);
        snib__gate_advance(e, gate, now);
        snib__gate_put(e, gate);
        return;
    }
    hold->deadline = snib__lease_end(sent_at, snib__hold_lease(e, hold));
    snib__gate_release(e, hold, now);
}

static void gate_failed(struct snib__engine *e, struct snib__hold *hold, snib__time sent_at,
                        const struct snib__value *reply, int32_t error, const char *text,
                        snib__time now)
{
    struct snib__gate *gate = hold->gate;
    struct snib__op *op = hold->op;
    bool unsure = snib__doubtful(error, text) || (hold->flags & SNIB__RESENT);
    if (error == SNIB_EPERM && !(hold->flags & SNIB__RESENT) &&
        gate->kind->discipline != SNIB__QUEUED)
        hold->flags |= SNIB__REFUSED;
    hold->flags &= (uint16_t)~SNIB__RESENT;
    if (op) {
        if (op->stage == SNIB__STAGE_QUEUED)
            snib__waitq_remove(gate->waitq, op);
        op->hold = NULL;
        hold->op = NULL;
        snib__op_fail(e, op, error, text, reply->count);
        snib__sole_settles(gate, now);
    }
    if (unsure || (hold->flags & SNIB__SEATED)) {
        /* an earlier try may have worked or taken a place */
        snib__gate_undo(e, hold, sent_at, now);
        return;
    }
    snib__gate_forget_hold(e, hold);
    snib__gate_advance(e, gate, now);
}

static void gate_settle(struct snib__engine *e, struct snib__gate *gate, snib__time now)
{
    if (!snib__gate_sole(gate))
        snib__waitq_rest(e, gate, now);
    snib__gate_put(e, gate);
}

/* An earlier request for it has no reply.  This server has not carried that out, but one before it may have, and may be
 * back with its data: the number is released wherever it turns up, so the next try needs another one. */
void snib__gate_renumber(struct snib__engine *e, struct snib__hold *hold, snib__time now)
{
    const struct snib__lock_kind *kind = hold->gate->kind;
    if (kind->discipline == SNIB__QUEUED || kind->traits & (SNIB__UNOWNED | SNIB__NO_HOLD))
        return;
    /* by field: a hold of a gate with one at a time is shorter in memory than its struct */
    struct snib__hold astray = {.gate = hold->gate,
                                .number = hold->number,
                                .lease_ms = hold->lease_ms,
                                .exact = hold->exact,
                                .fencing = hold->fencing, /* or its permits */
                                .options = hold->options,
                                .deadline = snib__lease_end(now, snib__hold_lease(e, hold))};
    snib__given_note(e, &astray, now);
    if (hold->op)
        hold->op->astray = true;
    hold->number = e->next_number;
    e->next_number += kind->kind == SNIB_PERMITS ? hold->permits : 1;
}

void snib__gate_acquired(struct snib__engine *e, struct snib__hold *hold, snib__time sent_at,
                         const struct snib__verdict *verdict, snib__time now)
{
    struct snib__gate *gate = hold->gate;
    snib__gate_ref(gate);
    bool single = snib__gate_tried(hold);
    if ((hold->flags & SNIB__RESENT) && !verdict->yes)
        snib__gate_renumber(e, hold, now);
    hold->flags &= (uint16_t)~SNIB__RESENT;
    if (gate->kind->discipline == SNIB__SHARED) {
        snib__share_answer(e, hold, single, sent_at, verdict, now);
    } else if (gate->kind->discipline == SNIB__QUEUED) {
        snib__place_answer(e, hold, sent_at, verdict, now);
    } else if (verdict->yes) {
        if (gate->waitq)
            snib__turn_granted(gate->waitq, now);
        /* One that nobody wants is passed on or given back: those behind it may have the lock. */
        if (snib__gate_grant(e, hold, verdict->token, sent_at, now))
            snib__sole_known(e, gate->waitq, now, now);
    } else {
        snib__sole_refused(e, hold, sent_at, verdict, now);
    }
    gate_settle(e, gate, now);
}

void snib__gate_answer_acquire(struct snib__engine *e, struct snib__link *link,
                               const struct snib__request *request, const struct snib__value *reply,
                               uint32_t n, int32_t error, const char *text, snib__time now)
{
    struct snib__hold *hold = request->subject;
    struct snib__gate *gate = hold->gate;
    struct snib__verdict verdict = {0};
    if (!error)
        gate->kind->acquired(e, hold, reply, n, &verdict);
    if (verdict.code)
        error = verdict.code;
    if (!error) {
        if (!snib__durable_granted(e, link, request, &verdict, now))
            snib__gate_acquired(e, hold, request->sent_at, &verdict, now);
        return;
    }
    snib__gate_ref(gate);
    snib__gate_tried(hold);
    gate_failed(e, hold, request->sent_at, reply, error, text, now);
    gate_settle(e, gate, now);
}

/* ---- leaving ---- */

/* Detach an unfinished operation from wherever it is.  Its hold finishes alone
 * if the server may have it. */
bool snib__gate_leave(struct snib__engine *e, struct snib__op *op, snib__time now)
{
    struct snib__hold *hold = op->hold;
    if (op->stage == SNIB__STAGE_ASKING) {
        snib__node_forget(e, op);
        return true;
    }
    if (!hold)
        return true;
    op->hold = NULL;
    hold->op = NULL;
    if (op->kind == SNIB__OP_RELEASE)
        return true; /* the release continues without a waiting operation */
    struct snib__gate *gate = hold->gate;
    if (snib__outer_is(gate)) {
        snib__outer_tell(e, hold);
        return true;
    }
    snib__gate_ref(gate);
    if (gate->kind->discipline == SNIB__QUEUED && op->stage == SNIB__STAGE_QUEUED) {
        hold->op = op;
        op->hold = hold;
        snib__place_leave(e, op, now);
    } else if (op->stage == SNIB__STAGE_QUEUED) {
        bool first = gate->waitq->head == op;
        snib__waitq_remove(gate->waitq, op);
        if (hold->flags & SNIB__RESENT) /* a hand-over to it may have worked */
            snib__gate_undo(e, hold, now, now);
        else
            snib__gate_forget_hold(e, hold);
        if (!gate->waitq->head)
            snib__waitq_rest(e, gate, now);
        else if (first && snib__gate_asks(gate)) /* the next may want less than those in flight */
            gate->waitq->hint = true;
        else if (first && !snib__gate_sole(gate))
            snib__waitq_try(e, gate->waitq, now);
    } else if (hold->phase == SNIB__TRYING && !(gate->waitq && gate->waitq->incoming == hold) &&
               snib__node_unsend(e, hold)) {
        snib__gate_tried(hold);
        if (hold->flags & SNIB__RESENT) { /* an earlier try may have worked */
            snib__sole_settles(gate, now);
            snib__gate_undo(e, hold, now, now);
            snib__waitq_rest(e, gate, now);
        } else { /* it was never sent, or surely not done */
            snib__gate_forget_hold(e, hold);
            snib__gate_advance(e, gate, now);
        }
    } else if (!snib__durable_leave(e, hold, now)) {
        snib__sole_settles(gate, now); /* in flight, without an operation */
    }
    snib__gate_put(e, gate);
    return true;
}
