/* op.c - operations: start, completion, patience; and the memory of operations, holds and batches.
 *
 * Completion allocates nothing and cannot fail: an operation is its own entry in the list of
 * finished ones.  Operations, holds and batches live in slabs that are kept until the engine ends,
 * so that a number or a generation can show that a pointer has been reused.
 */
#include "engine/ask.h"
#include "engine/internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct snib__slab {
    struct snib__slab *next;
    max_align_t objects[];
};

/* A new run of n objects of a size, with timers reserved, linked into the
 * engine; NULL when out of memory. */
static void *op_slab(struct snib__engine *e, size_t size, uint32_t n, uint32_t timers)
{
    if (timers > 0 && snib__timer_reserve(e, timers) < 0)
        return NULL;
    struct snib__slab *slab = calloc(1, sizeof *slab + size * n);
    if (!slab) {
        e->heap_owed -= timers;
        return NULL;
    }
    slab->next = e->slabs;
    e->slabs = slab;
    e->memory += sizeof *slab + size * n;
    return slab->objects;
}

void snib__slabs_free(struct snib__engine *e)
{
    while (e->slabs) {
        struct snib__slab *slab = e->slabs;
        e->slabs = slab->next;
        free(slab);
    }
}

/* Most holds are of gates with one hold at a time, which do not need the last fields. */
static size_t op_hold_size(const struct snib__gate *gate)
{
    return snib__gate_sole(gate) ? offsetof(struct snib__hold, peer_prev)
                                 : sizeof(struct snib__hold);
}

struct snib__hold *snib__hold_new(struct snib__engine *e, struct snib__gate *gate)
{
    struct snib__hold **free_list = &e->free_holds[!snib__gate_sole(gate)];
    size_t size = op_hold_size(gate);
    if (!*free_list) {
        char *holds = op_slab(e, size, SNIB__ROOM(64), SNIB__ROOM(64));
        if (!holds)
            return NULL;
        for (size_t i = 0; i < SNIB__ROOM(64); i++) {
            struct snib__hold *hold = (struct snib__hold *)(holds + i * size);
            hold->next = *free_list;
            *free_list = hold;
        }
    }
    struct snib__hold *hold = *free_list;
    *free_list = hold->next;
    memset(hold, 0, size);
    hold->gate = gate;
    hold->number = e->next_number++;
    snib__gate_ref(gate);
    return hold;
}

/* A second hold for what the server has of this one, so that it can be released while
 * the caller keeps the first. */
struct snib__hold *snib__hold_again(struct snib__engine *e, const struct snib__hold *hold)
{
    struct snib__hold *again = snib__hold_new(e, hold->gate);
    if (again) {
        again->number = hold->number;
        again->flags = hold->flags & SNIB__INHERITED;
        again->lease_ms = hold->lease_ms;
        again->exact = hold->exact;
        again->member = hold->member;
        again->fencing = hold->fencing; /* or its permits */
        again->options = hold->options;
        again->deadline = hold->deadline;
        again->acquired_at = hold->acquired_at;
        if (!snib__gate_sole(hold->gate))
            snib__gate_join(again);
    }
    return again;
}

void snib__hold_recycle(struct snib__engine *e, struct snib__hold *hold)
{
    struct snib__gate *gate = hold->gate;
    hold->number = 0; /* a stale pointer no longer matches */
    hold->gate = NULL;
    struct snib__hold **free_list = &e->free_holds[!snib__gate_sole(gate)];
    hold->next = *free_list;
    *free_list = hold;
    snib__gate_put(e, gate);
}

struct snib__batch *snib__batch_new(struct snib__engine *e, uint32_t n)
{
    bool large = n > SNIB__BATCH_FEW;
    uint32_t room = large ? SNIB__BATCH_MAX : SNIB__BATCH_FEW;
    struct snib__batch *batch = e->free_batches[large];
    size_t size = sizeof *batch + room * sizeof batch->of[0];
    if (batch)
        e->free_batches[large] = batch->next;
    else
        batch = op_slab(e, size, 1, 0);
    if (batch)
        *batch = (struct snib__batch){.large = large};
    return batch;
}

void snib__batch_recycle(struct snib__engine *e, struct snib__batch *batch)
{
    for (uint32_t i = 0; i < batch->n; i++)
        if (batch->of[i].hold->number == batch->of[i].number)
            batch->of[i].hold->flags &= (uint16_t)~SNIB__ASKED;
    batch->next = e->free_batches[batch->large];
    e->free_batches[batch->large] = batch;
}

struct snib__op *snib__op_new(struct snib__engine *e, int kind, struct snib__gate *gate,
                              snib__time now, int32_t *out_code)
{
    bool held = kind == SNIB__OP_RELEASE || kind == SNIB__OP_EXTEND; /* others may wait for it */
    *out_code = e->closed && kind != SNIB__OP_RELEASE               ? SNIB_ECLOSED
                : e->live_n >= (uint32_t)e->config.ops_max && !held ? SNIB_ELIMIT
                                                                    : SNIB_ENOMEM;
    if (*out_code != SNIB_ENOMEM)
        return NULL;
    if (!e->free_ops) {
        struct snib__op *ops = op_slab(e, sizeof *ops, SNIB__ROOM(32), SNIB__ROOM(32));
        if (!ops)
            return NULL;
        for (int i = 0; i < SNIB__ROOM(32); i++) {
            ops[i].home = e->config.home;
            ops[i].next = e->free_ops;
            e->free_ops = &ops[i];
        }
    }
    struct snib__op *op = e->free_ops;
    e->free_ops = op->next;
    memset((char *)op + sizeof op->home, 0, sizeof *op - sizeof op->home);
    op->kind = (uint8_t)kind;
    op->gate = gate;
    op->started = now;
    op->serial = ++e->next_serial;
    op->deadline = SNIB__NEVER;
    if (gate)
        snib__gate_ref(gate);
    op->live_next = e->live;
    if (e->live)
        e->live->live_prev = op;
    e->live = op;
    e->live_n++;
    op->node = e->home;
    if (!snib__node_ready(snib__op_node(op))) /* before it is armed: patience counts from here */
        snib__node_want(e, snib__op_node(op), now);
    *out_code = SNIB_OK;
    return op;
}

struct snib__op *snib__engine_nothing(struct snib__engine *e, snib__time now, int32_t *out_code)
{
    struct snib__op *op = snib__op_new(e, SNIB__OP_RELEASE, NULL, now, out_code);
    if (op)
        snib__op_done(e, op, SNIB_OK);
    return op;
}

void snib__op_empty(struct snib__op *op)
{
    free(op->answer);
    snib__asked_free(op->asked);
    free(op->words);
    free(op->where);
    op->words = op->where = NULL;
    op->answer = NULL;
    op->asked = NULL;
}

void snib__op_free(struct snib__engine *e, struct snib__op *op)
{
    if (op->gate)
        snib__gate_put(e, op->gate);
    snib__op_empty(op);
    op->gate = NULL;
    op->next = e->free_ops;
    e->free_ops = op;
}

/* Record which node failed, if there are several, and how many others were of no more use; config.where is used if there is
 * no memory. */
static void op_note_where(struct snib__engine *e, struct snib__op *op)
{
    const struct snib__node *node = snib__op_node(op);
    if (e->config.topology == SNIB__SINGLE || snib__outer_is(op->gate) || op->where)
        return;
    bool silent = op->code == SNIB_ECONNECT || op->code == SNIB_EUNREACHABLE;
    uint32_t others = silent ? node->others : 0;
    size_t cap = SNIB__WORDS_MAX;
    node = node->blamed ? node->blamed : node;
    if ((!node->where[0] && !others) || !(op->where = malloc(cap)))
        return;
    const char *where = snib__node_where(e, node);
    if (others)
        snprintf(op->where, cap, "%s or %u other%s", where, others, others == 1 ? "" : "s");
    else
        snprintf(op->where, cap, "%s", where);
}

/* A listing that a node of a cluster has failed can go on with the next one. */
static void op_note_next(const struct snib__engine *e, struct snib__op *op)
{
    if (op->kind == SNIB__OP_LIST && op->asked)
        op->asked->cursor = e->slots ? snib__cluster_cursor_out(e, op->node, 0) : 0;
}

void snib__op_done(struct snib__engine *e, struct snib__op *op, int32_t code)
{
    op->done = true;
    op->code = code;
    op->stage = SNIB__STAGE_NONE;
    if (code < 0) {
        op_note_where(e, op);
        op_note_next(e, op);
    }
    snib__timer_cancel(e, &op->timer_at);
    if (op->live_prev)
        op->live_prev->live_next = op->live_next;
    else
        e->live = op->live_next;
    if (op->live_next)
        op->live_next->live_prev = op->live_prev;
    e->live_n--;
    e->extending -= op->kind == SNIB__OP_EXTEND && op->asked && op->asked->hold;
    if (code == SNIB_TIMEDOUT && !op->within)
        e->stats.timeouts++;
    op->next = NULL;
    if (e->done_tail)
        e->done_tail->next = op;
    else
        e->done_head = op;
    e->done_tail = op;
}

/* Keep a server's words instead of earlier ones; n = 0: none. */
void snib__op_quote(const struct snib__engine *e, struct snib__op *op, const char *text, uint32_t n)
{
    free(op->words);
    op->words = n > 0 ? malloc(SNIB__WORDS_MAX) : NULL;
    if (op->words)
        snib__words(op->words, SNIB__WORDS_MAX, text, n, e->config.login.password);
}

/* Finish with an error reply: keep the server's own words. */
void snib__op_fail(struct snib__engine *e, struct snib__op *op, int32_t code,
                   const char *server_text, uint32_t n)
{
    if (code != SNIB_ENOMEM)
        snib__op_quote(e, op, server_text, n);
    snib__op_done(e, op, code);
}

struct snib__op *snib__engine_take_done(struct snib__engine *e)
{
    struct snib__op *op = e->done_head;
    if (op) {
        e->done_head = op->next;
        if (!e->done_head)
            e->done_tail = NULL;
        op->next = NULL;
    }
    return op;
}

/* The server that must answer it. */
struct snib__node *snib__op_node(const struct snib__op *op)
{
    return op->gate ? op->gate->node : op->node;
}

/* When the operation gives up on a server that cannot be reached.  That may have been so for long before its name moved
 * there. */
static snib__time op_patience(const struct snib__engine *e, const struct snib__op *op)
{
    snib__time from = snib__op_node(op)->down_since;
    if (from == SNIB__NEVER || snib__outer_is(op->gate))
        return SNIB__NEVER;
    snib__time moved_at = e->slots && op->gate ? snib__gate_neighbours(op->gate)->moved_at : 0;
    from = op->started > from ? op->started : from;
    from = moved_at > from ? moved_at : from;
    return from + e->config.patience;
}

/* The same, or when it gives up on servers that refuse to serve the name. */
static snib__time op_endurance(const struct snib__engine *e, const struct snib__op *op)
{
    snib__time patience = op_patience(e, op);
    snib__time refused = op->refused_since ? op->refused_since + e->config.patience : SNIB__NEVER;
    return refused < patience ? refused : patience;
}

/* Whether a server may carry out, or has carried out, what one of a node's further lanes has sent for the operation: the
 * node is down with its first, and they may outlast that.  A query changes nothing. */
static bool op_under_way(const struct snib__op *op)
{
    bool changes = op->stage != SNIB__STAGE_ASKING || snib__ask_once(op);
    const void *subject = op->stage == SNIB__STAGE_ASKING ? (const void *)op : op->hold;
    const struct snib__conn *conn = op->link && changes && subject ? &op->link->conn : NULL;
    for (uint32_t i = 0; conn && i < conn->ring_count; i++)
        if (conn->ring[(conn->ring_head + i) & (conn->ring_cap - 1)].subject == subject)
            return true;
    return conn && op->hold && snib__durable_withholds(op->link->node, op->hold);
}

/* Whether the server may have done something for the operation without a reply, now that the link
 * is down; or may still do it, as a fair lock is granted to whoever has the first place.  A query changes nothing, or
 * ends with its link, or is an extension. */
static bool op_unsure(const struct snib__op *op)
{
    const struct snib__hold *hold = op->hold;
    if (op->kind == SNIB__OP_EXTEND)
        return op->asked->unsure;
    uint16_t doubts = op->kind == SNIB__OP_ACQUIRE ? SNIB__RESENT | SNIB__SEATED : SNIB__RESENT;
    return op->astray || op_under_way(op) ||
           (hold &&
            ((hold->flags & doubts) || (hold->gate->waitq && hold->gate->waitq->incoming == hold)));
}

/* Nothing of the operation is on its way: its request is paused, or it waits behind another one's. */
static bool op_paused(const struct snib__engine *e, const struct snib__op *op)
{
    if (op->stage == SNIB__STAGE_QUEUED && op->hold->phase == SNIB__NEW)
        return true;
    const void *subject = op->stage == SNIB__STAGE_ASKING ? (const void *)op : op->hold;
    return subject && snib__pause_has(e, subject);
}

/* The code for an operation that ends because the server cannot be reached, or does not serve it; and why.  Call it before
 * the operation is detached from its hold. */
int32_t snib__op_unreached(const struct snib__engine *e, struct snib__op *op)
{
    const struct snib__node *node = snib__op_node(op);
    bool ready = snib__node_ready(node);
    /* a refused request that is not in flight was not carried out */
    op->unserved = ready && op->refused_since && !op_unsure(op) && op_paused(e, op);
    if (ready)
        return op->unserved ? SNIB_ECONNECT : SNIB_EUNREACHABLE;
    op->os_error = node->os_error;
    op->cause = node->failure;
    free(op->words); /* a refusal from before is not why */
    op->words = node->words[0] ? strdup(node->words) : NULL;
    if (op_unsure(op))
        return SNIB_EUNREACHABLE;
    bool passing = node->failure == SNIB_EUNREACHABLE || node->failure == SNIB_ESERVER ||
                   (node->failure == SNIB_ETLS && node->os_error);
    return passing ? SNIB_ECONNECT : node->failure;
}

/* Put the operation's next deadline into the heap: the end of its wait, or of its patience. */
void snib__op_arm(struct snib__engine *e, struct snib__op *op)
{
    snib__time patience = op_endurance(e, op);
    op->timer = op->deadline < patience ? op->deadline : patience;
    if (op->timer == SNIB__NEVER)
        snib__timer_cancel(e, &op->timer_at);
    else
        snib__timer_set(e, SNIB__TIMER_OP, &op->timer_at, op->timer);
}

bool snib__op_told(const struct snib__op *op)
{
    return op->told || (op->gate->waitq && op->gate->waitq->known_at >= op->started);
}

/* Whether nothing is known of the lock, or no longer: the attempt that the operation depends on is the
 * first and has no reply yet, or it lost its connection and has had no reply since.  With one holder
 * at a time that is the gate's only request: an attempt, of this operation or of the waiter ahead, or
 * a transfer.  The connection may be too young, or the wait too short, to call the server silent. */
static bool op_unheard(const struct snib__op *op)
{
    const struct snib__hold *active = op->hold ? snib__gate_active(op->gate) : NULL;
    const struct snib__hold *attempt = active ? active : op->hold;
    if (!attempt)
        return false;
    bool trying = attempt->phase == SNIB__TRYING;
    if (attempt->flags & SNIB__RESENT)
        return trying || (active && op->gate->waitq && op->gate->waitq->incoming);
    return trying && !snib__op_told(op) && !(attempt->op && snib__op_told(attempt->op));
}

/* Its wait is over.  Only while the server answers may the result say that the lock is held. */
static int32_t op_overdue(struct snib__engine *e, struct snib__op *op, snib__time now)
{
    if (op->kind == SNIB__OP_EXTEND)
        return snib__extend_overdue(e, op, now);
    if (snib__node_silent(e, snib__op_node(op), now) || op->kind == SNIB__OP_PING ||
        op->refused_since || op_unheard(op))
        return snib__op_unreached(e, op);
    if (snib__sole_unconfirmed(e, op, now)) {
        op->unconfirmed = snib__node_ready(snib__op_node(op));
        return snib__op_unreached(e, op);
    }
    if (op->once)
        return snib__op_in_flight(op) ? SNIB_EUNREACHABLE : SNIB_BUSY;
    return SNIB_TIMEDOUT;
}

/* However short a wait, the first attempt has the patience of a single try, unless there is no
 * connection to hope for: before its reply nothing is known. */
static bool op_lingers(const struct snib__op *op, snib__time now)
{
    const struct snib__node *node = snib__op_node(op);
    return now >= op->deadline && now < op->latest && op->kind == SNIB__OP_ACQUIRE &&
           !snib__op_told(op) && op_unheard(op) && (snib__node_ready(node) || !node->failed);
}

void snib__op_expired(struct snib__engine *e, struct snib__op *op, snib__time now)
{
    if (op_lingers(op, now)) {
        op->timer = op->latest;
        snib__timer_set(e, SNIB__TIMER_OP, &op->timer_at, op->timer);
        if (op->gate->waitq)
            op->gate->waitq->overdue = true;
        return;
    }
    int32_t code = now >= op->deadline          ? op_overdue(e, op, now)
                   : now >= op_endurance(e, op) ? snib__op_unreached(e, op)
                                                : 0;
    if (code == 0) {
        if (!op->done)
            snib__op_arm(e, op);
        return;
    }
    snib__gate_leave(e, op, now);
    snib__op_done(e, op, code);
}

bool snib__engine_cancel(struct snib__engine *e, struct snib__op *op, snib__time now)
{
    if (op->done)
        return false;
    if (!op->member) /* that its carrier ends it is nobody's wish */
        e->stats.cancels++;
    snib__gate_leave(e, op, now);
    snib__op_done(e, op, SNIB_CANCELLED);
    return true;
}

bool snib__op_in_flight(const struct snib__op *op)
{
    return !op->done && op->stage != SNIB__STAGE_QUEUED && op->stage != SNIB__STAGE_OUTER;
}

struct snib__link *snib__op_link(const struct snib__op *op)
{
    return op->link ? op->link : &snib__op_node(op)->links[SNIB__COMMAND];
}

void snib__op_event(const struct snib__op *op, snib_event *out)
{
    if (op->answer && op->code == SNIB_OK)
        *out = *op->answer;
    else
        memset(out, 0, offsetof(snib_event, text) + 1);
    out->size = sizeof *out;
    out->kind = SNIB_EVENT_DONE;
    out->code = op->code;
    out->os_error = op->os_error;
    out->reason = op->reason;
}
