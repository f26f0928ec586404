/* engine_check.c - lists that are lists, counts that count, references for all that refers. */
#include "engine_check.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char flaw[160];

#define WRONG(...) (snprintf(flaw, sizeof flaw, __VA_ARGS__), flaw)
#define MUST(condition)                                                                            \
    do {                                                                                           \
        if (!(condition))                                                                          \
            return WRONG("%s (%s:%d)", #condition, __func__, __LINE__);                            \
    } while (0)
#define PASS_ON(call)                                                                              \
    do {                                                                                           \
        const char *found_ = (call);                                                               \
        if (found_)                                                                                \
            return found_;                                                                         \
    } while (0)

/* What is counted on the way. */
struct census {
    uint64_t held, releasing;
    uint32_t gates, idle;
};

/* How often each of many objects occurs, in a table: hundreds of requests may be on their way, and as many holds. */
#define TALLY_BITS 14

struct tally {
    const void *of[1 << TALLY_BITS];
    uint32_t times[1 << TALLY_BITS];
    uint32_t places[1 << (TALLY_BITS - 1)]; /* that are taken */
    uint32_t n;
};

static void tally_clear(struct tally *tally)
{
    while (tally->n > 0)
        tally->of[tally->places[--tally->n]] = NULL;
}

static uint32_t tally_place(const struct tally *tally, const void *object)
{
    uint32_t place =
        (uint32_t)((uint64_t)(uintptr_t)object * 0x9e3779b97f4a7c15u >> (64 - TALLY_BITS));
    while (tally->of[place] && tally->of[place] != object)
        place = (place + 1) % (1 << TALLY_BITS);
    return place;
}

/* Returns how often it has occurred now. */
static uint32_t tally_add(struct tally *tally, const void *object)
{
    uint32_t place = tally_place(tally, object);
    if (!tally->of[place]) {
        if (tally->n == sizeof tally->places / sizeof tally->places[0])
            abort();
        tally->places[tally->n++] = place;
        tally->of[place] = object;
        tally->times[place] = 0;
    }
    return ++tally->times[place];
}

static uint32_t tally_of(const struct tally *tally, const void *object)
{
    uint32_t place = tally_place(tally, object);
    return tally->of[place] ? tally->times[place] : 0;
}

/* What a timer is set for is in use: its subject may be a hold that is in no gate's list, but never one that has ended. */
static const char *check_timer(struct snib__timer timer)
{
    const void *subject = snib__timer_subject(timer);
    const struct snib__op *op = subject;
    const struct snib__hold *hold = subject;
    const struct snib__waitq *waitq = subject;
    switch (snib__timer_what(timer)) {
    case SNIB__TIMER_OP:
        MUST(!op->done && op->timer == timer.when);
        break;
    case SNIB__TIMER_HOLD:
        MUST(hold->gate && hold->number != 0);
        MUST(hold->phase == SNIB__HELD || hold->phase == SNIB__RELEASING ||
             (hold->phase == SNIB__TRYING && snib__outer_is(hold->gate)));
        break;
    default:
        MUST(waitq->gate->waitq == waitq);
    }
    return NULL;
}

static const char *check_heap(const struct snib__engine *e)
{
    MUST(e->heap_n <= e->heap_owed);
    MUST(e->heap_cap == 0 || e->heap_owed < e->heap_cap);
    for (uint32_t i = 1; i <= e->heap_n; i++) {
        MUST(*snib__timer_at(e->heap[i]) == i);
        MUST(i == 1 || e->heap[i / 2].when <= e->heap[i].when);
        PASS_ON(check_timer(e->heap[i]));
    }
    return NULL;
}

/* How many requests have a subject, wherever they are: on their way, or kept until they can be sent. */
static struct tally subjects;

static void note_subject(const struct snib__request *request)
{
    if (request->subject)
        tally_add(&subjects, request->subject);
}

static void note_subjects(const struct snib__engine *e)
{
    uint32_t kept;
    tally_clear(&subjects);
    for (uint32_t i = 0; i < e->paused_n; i++)
        note_subject(&e->paused[i].request);
    for (const struct snib__link *link = e->links; link; link = link->next)
        for (uint32_t i = 0; i < link->conn.ring_count; i++)
            note_subject(&link->conn.ring[(link->conn.ring_head + i) & (link->conn.ring_cap - 1)]);
    for (const struct snib__node *node = e->nodes; node; node = node->next) {
        const struct snib__request *collected = snib__durable_collected(node, &kept);
        for (uint32_t i = 0; i < node->todo_n; i++)
            note_subject(&node->todo[i]);
        for (uint32_t i = 0; i < kept; i++)
            note_subject(&collected[i]);
    }
}

static bool is_withheld(const struct snib__engine *e, const struct snib__hold *hold)
{
    bool withheld = false;
    for (const struct snib__node *node = e->nodes; node; node = node->next)
        withheld = withheld || snib__durable_withholds(node, hold);
    return withheld;
}

/* A grant that waits for replicas has a question about them on its way. */
static const char *check_withheld(const struct snib__engine *e, const struct snib__hold *hold)
{
    for (const struct snib__node *node = e->nodes; node; node = node->next) {
        const struct snib__conn *conn = &node->lanes[SNIB__LANES_MAX - 1].conn;
        uint32_t asks = 0;
        for (uint32_t i = 0; i < conn->ring_count; i++) {
            int kind = conn->ring[(conn->ring_head + i) & (conn->ring_cap - 1)].kind;
            asks += kind == SNIB__REQ_WAIT || kind == SNIB__REQ_COUNT;
        }
        MUST(!snib__durable_withholds(node, hold) || asks == 1 ||
             node->lanes[SNIB__LANES_MAX - 1].soiled);
    }
    return NULL;
}

/* What waits for a reply has exactly one request from which it may come, or nothing would end its wait but its own time. */
static const char *check_asking(const struct snib__op *op)
{
    if (op->stage == SNIB__STAGE_ASKING)
        MUST(tally_of(&subjects, op) == 1);
    return NULL;
}

/* Whoever waits for a limited time, or for a server that is away or refuses, has a timer for the end of that. */
static const char *check_patience(const struct snib__op *op)
{
    bool away = !snib__outer_is(op->gate) && snib__op_node(op)->down_since != SNIB__NEVER;
    MUST(op->timer_at || op->deadline == SNIB__NEVER);
    MUST(op->timer_at || !away);
    MUST(op->timer_at || op->refused_since == 0);
    MUST(!op->timer_at || op->deadline == SNIB__NEVER || op->timer <= op->deadline ||
         op->timer <= op->latest);
    return NULL;
}

static const char *check_live(const struct snib__engine *e)
{
    uint32_t n = 0, extending = 0;
    const struct snib__op *before = NULL;
    for (const struct snib__op *op = e->live; op; before = op, op = op->live_next, n++) {
        MUST(op->live_prev == before);
        MUST(!op->done);
        MUST(op->stage != SNIB__STAGE_NONE);
        MUST(!op->hold || op->hold->op == op || op->stage == SNIB__STAGE_OUTER);
        bool carried = op->kind == SNIB__OP_EXTEND && op->stage == SNIB__STAGE_OUTER;
        MUST((op->stage == SNIB__STAGE_ASKING || carried) == (op->kind > SNIB__OP_RELEASE));
        PASS_ON(check_asking(op));
        PASS_ON(check_patience(op));
        extending += op->kind == SNIB__OP_EXTEND;
    }
    MUST(n == e->live_n);
    MUST(extending == e->extending);
    return NULL;
}

/* Whoever waits will try again, and a queue that nobody needs is on its way out, with its subscription. */
static const char *check_rest(const struct snib__gate *gate, const struct snib__waitq *waitq)
{
    const struct snib__hold *active = snib__gate_active(gate);
    const struct snib__chan *chan = waitq->chan;
    bool moves =
        gate->trying > 0 || waitq->incoming; /* something ends, and goes on with the queue */
    for (const struct snib__hold *hold = snib__gate_first(gate); hold;
         hold = snib__gate_next(gate, hold))
        moves = moves || (hold->phase != SNIB__NEW && hold->phase != SNIB__HELD &&
                          hold->phase != SNIB__PLACED);
    MUST(!waitq->head || moves || active || waitq->timer_at || !snib__node_ready(gate->node));
    if (gate->kind->discipline == SNIB__SHARED) /* a single try does not go on with it */
        MUST(!waitq->head || snib__gate_asks(gate) || waitq->timer_at ||
             !snib__node_ready(gate->node));
    bool subscribed = chan && chan->state == SNIB__CHAN_ON;
    MUST(moves || !subscribed || snib__waitq_used(waitq) || waitq->idle_since != SNIB__NEVER);
    return NULL;
}

/* The owner's hold of a gate, or NULL. */
static const struct snib__hold *held_by(const struct snib__gate *gate, uint64_t owner)
{
    const struct snib__hold *hold = gate ? snib__gate_first(gate) : NULL;
    while (hold && (hold->phase != SNIB__HELD || hold->owner != owner))
        hold = snib__gate_next(gate, hold);
    return hold;
}

/* No owner waits for itself, unless its attempt is on its way, after which it does not. */
static const char *check_owner(const struct snib__engine *e, const struct snib__op *op)
{
    const struct snib__gate *gate = op->gate;
    const int32_t kind = gate->kind->kind;
    if (op->owner == 0 || op->hold->phase == SNIB__TRYING)
        return NULL;
    const struct snib__hold *held = held_by(gate, op->owner);
    MUST(!held || held->count == UINT32_MAX);
    if (kind == SNIB_READ)
        held = held_by(snib__gate_find(e, SNIB_WRITE, gate->name, gate->name_len), op->owner);
    else if (kind == SNIB_WRITE)
        held = held_by(snib__gate_find(e, SNIB_READ, gate->name, gate->name_len), op->owner);
    MUST(!held || (kind == SNIB_READ && held->number == op->hold->writer));
    return NULL;
}

/* A waiter's hold is where the waiter is.  A single try waits only for an attempt that it ends with. */
static const char *check_waiter(const struct snib__waitq *waitq, const struct snib__op *op)
{
    const struct snib__gate *gate = op->gate;
    const struct snib__hold *hold = op->hold;
    MUST(hold && hold->op == op && hold->gate == gate);
    if (gate->kind->discipline == SNIB__QUEUED)
        MUST(hold->phase == SNIB__PLACED || hold->phase == SNIB__TRYING);
    else
        MUST(hold->phase == SNIB__NEW);
    MUST(!op->once || !snib__gate_sole(gate) || waitq->overdue);
    return NULL;
}

/* tenure.c: what was passed on and is asked for, or will be. */
static const char *check_passed(const struct snib__waitq *waitq)
{
    uint32_t asked = 0;
    for (const struct snib__hold *first = waitq->asked; first; first = first->prev, asked++)
        for (const struct snib__hold *hold = first; hold; hold = hold->next)
            MUST(hold->passed && hold->phase == SNIB__RELEASING && hold->gate == waitq->gate);
    MUST(asked == waitq->asking);
    for (const struct snib__hold *hold = waitq->behind; hold; hold = hold->next)
        MUST(hold->passed && hold->phase == SNIB__RELEASING && hold->gate == waitq->gate);
    return NULL;
}

static const char *check_queue(const struct snib__engine *e, const struct snib__gate *gate,
                               struct census *census)
{
    const struct snib__waitq *waitq = gate->waitq;
    const struct snib__op *before = NULL;
    uint32_t n = 0;
    MUST(waitq->gate == gate);
    for (const struct snib__op *op = waitq->head; op; before = op, op = op->next, n++) {
        MUST(op->prev == before);
        MUST(op->stage == SNIB__STAGE_QUEUED);
        MUST(op->gate == gate);
        PASS_ON(check_owner(e, op));
        PASS_ON(check_waiter(waitq, op));
    }
    MUST(waitq->tail == before);
    MUST(waitq->queued == n);
    MUST(!waitq->incoming || waitq->incoming->gate == gate);
    bool idle = waitq->idle_since != SNIB__NEVER;
    MUST(!idle || !snib__waitq_used(waitq));
    MUST(waitq->asking > 0 || !waitq->behind);
    PASS_ON(check_passed(waitq));
    MUST(!waitq->incoming || (waitq->incoming->phase == SNIB__TRYING && gate->active &&
                              gate->active->phase == SNIB__RELEASING));
    PASS_ON(check_rest(gate, waitq));
    census->idle += idle;
    if (!waitq->chan)
        return NULL;
    MUST(waitq->chan_prev ? waitq->chan_prev->chan_next == waitq : waitq->chan->waitqs == waitq);
    MUST(!waitq->chan_next || waitq->chan_next->chan_prev == waitq);
    MUST(waitq->chan->node == gate->node);
    return NULL;
}

static const char *check_trying(const struct snib__engine *e, const struct snib__hold *hold)
{
    const struct snib__gate *gate = hold->gate;
    uint32_t n = tally_of(&subjects, hold);
    if (snib__outer_is(gate))
        return NULL;
    if (hold->phase == SNIB__TRYING && !(gate->waitq && gate->waitq->incoming == hold))
        MUST(n + is_withheld(e, hold) == 1);
    else if (hold->phase == SNIB__RELEASING)
        MUST(n == 1 || (n == 0 && hold->timer_at));
    else
        MUST(n == 0);
    return NULL;
}

/* What a hold's end depends on: the watchdog, or a timer. */
static const char *check_kept(const struct snib__hold *hold)
{
    const struct snib__gate *gate = hold->gate;
    bool listed = hold->flags & SNIB__LISTED;
    if (hold->phase != SNIB__HELD)
        return NULL;
    MUST(listed || hold->timer_at || hold->deadline == SNIB__NEVER);
    MUST(!hold->max_hold_ms || hold->timer_at);
    MUST(!hold->lease_ms || hold->deadline == SNIB__NEVER || hold->timer_at);
    MUST(!(hold->flags & SNIB__FIRST) || hold->timer_at);
    if (!hold->lease_ms && hold->deadline != SNIB__NEVER && !(hold->flags & SNIB__FIRST) &&
        !snib__outer_is(gate))
        MUST(listed);
    return NULL;
}

static bool is_asked_about(const struct snib__request *request, const struct snib__hold *hold)
{
    const struct snib__batch *batch = request->kind == SNIB__REQ_RENEW ? request->subject : NULL;
    for (uint32_t i = 0; batch && i < batch->n; i++)
        if (batch->of[i].hold == hold && batch->of[i].number == hold->number)
            return true;
    return false;
}

/* Whether a request on its way asks for the hold. */
static bool is_asked_for(const struct snib__engine *e, const struct snib__hold *hold)
{
    for (uint32_t i = 0; i < e->paused_n; i++)
        if (is_asked_about(&e->paused[i].request, hold))
            return true;
    for (const struct snib__link *link = e->links; link; link = link->next)
        for (uint32_t i = 0; i < link->conn.ring_count; i++) {
            uint32_t at = (link->conn.ring_head + i) & (link->conn.ring_cap - 1);
            if (is_asked_about(&link->conn.ring[at], hold))
                return true;
        }
    return false;
}

/* A hold that nothing renews is asked for where another server may not have it. */
static const char *check_doubt(const struct snib__engine *e, const struct snib__hold *hold)
{
    const struct snib__gate *gate = hold->gate;
    bool unsure = hold->unsure || (hold->flags & SNIB__INHERITED);
    if (hold->phase != SNIB__HELD)
        return NULL;
    if (hold->flags & SNIB__ASKED)
        MUST(is_asked_for(e, hold));
    if (unsure && gate->kind->renew && hold->lease_ms && hold->deadline != SNIB__NEVER)
        MUST(gate->node->inherited || gate->node->ask_at != SNIB__NEVER || is_asked_for(e, hold));
    return NULL;
}

static const char *check_hold(const struct snib__gate *gate, const struct snib__hold *hold,
                              struct census *census)
{
    MUST(hold->gate == gate);
    MUST(hold->number != 0);
    MUST(hold->phase != SNIB__GONE && hold->phase != SNIB__LOST);
    MUST(!hold->op || hold->op->hold == hold);
    MUST(!(hold->flags & SNIB__LISTED) || (hold->phase == SNIB__HELD && hold->lease_ms == 0));
    MUST(!(hold->flags & SNIB__UNTOLD));
    MUST(hold->phase != SNIB__HELD || (!hold->op && hold->count > 0 && hold->deadline > 0));
    MUST(hold->phase != SNIB__HELD || (hold->flags & SNIB__HANDED));
    MUST(!(hold->flags & SNIB__RESENT) || hold->phase != SNIB__HELD);
    MUST(hold->phase != SNIB__PLACED || (hold->op && hold->op->stage == SNIB__STAGE_QUEUED));
    MUST(!snib__gate_sole(gate) || (hold->phase != SNIB__NEW && hold->phase != SNIB__PLACED));
    census->held += hold->phase == SNIB__HELD;
    census->releasing += hold->phase == SNIB__RELEASING;
    return NULL;
}

static uint32_t unanswered(const struct snib__engine *e, const struct snib__gate *gate)
{
    uint32_t n = 0;
    for (const struct snib__link *link = e->links; link; link = link->next)
        for (uint32_t i = 0; i < link->conn.ring_count; i++)
            n += link->conn.ring[(link->conn.ring_head + i) & (link->conn.ring_cap - 1)].gate ==
                 gate;
    return n;
}

static const char *check_gate(const struct snib__engine *e, const struct snib__gate *gate,
                              struct census *census)
{
    uint32_t refs = gate->unanswered + (gate->waitq != NULL), trying = 0;
    const struct snib__hold *before = NULL;
    MUST(snib__gate_find(e, gate->kind->kind, gate->name, gate->name_len) == gate);
    if (e->slots && gate->kind->kind != SNIB__OUTER)
        MUST(*snib__gate_neighbours(gate)->at == gate);
    for (const struct snib__hold *hold = snib__gate_first(gate); hold;
         before = hold, hold = snib__gate_next(gate, hold), refs++) {
        PASS_ON(check_hold(gate, hold, census));
        PASS_ON(check_doubt(e, hold));
        PASS_ON(check_trying(e, hold));
        PASS_ON(check_withheld(e, hold));
        PASS_ON(check_kept(hold));
        if (!snib__gate_sole(gate))
            MUST(hold->peer_prev == before && (hold->flags & SNIB__PEER));
        trying += hold->phase == SNIB__TRYING;
        if (hold->phase == SNIB__TRYING && (hold->flags & SNIB__AWAKE)) /* it has heard all since */
            MUST(snib__chan_on(gate->waitq));
        bool waits = snib__outer_is(gate) && hold->op && hold->phase == SNIB__TRYING;
        MUST(!waits || hold->owner == 0 || !held_by(gate, hold->owner));
    }
    for (const struct snib__op *op = e->live; op; op = op->live_next)
        refs += op->gate == gate;
    MUST(gate->refs >= refs);
    MUST(gate->trying == (snib__gate_sole(gate) || snib__outer_is(gate) ? 0 : trying));
    if (gate->waitq)
        MUST(gate->waitq->singles == snib__share_singles(gate));
    MUST(gate->unanswered == 0 || gate->lane);
    MUST(gate->unanswered == unanswered(e, gate));
    return gate->waitq ? check_queue(e, gate, census) : NULL;
}

static const char *check_lists(const struct snib__engine *e, const struct census *census)
{
    uint32_t n = 0;
    const struct snib__waitq *wait_before = NULL;
    for (const struct snib__waitq *waitq = e->idle_head; waitq;
         wait_before = waitq, waitq = waitq->idle_next, n++) {
        MUST(waitq->idle_prev == wait_before);
        MUST(waitq->idle_since != SNIB__NEVER);
        MUST(!wait_before || wait_before->idle_since <= waitq->idle_since);
    }
    MUST(e->idle_tail == wait_before);
    MUST(n == census->idle);
    const struct snib__hold *before = NULL;
    for (const struct snib__hold *hold = e->lost_head; hold; before = hold, hold = hold->next) {
        MUST(hold->prev == before);
        MUST(hold->phase == SNIB__LOST && (hold->flags & SNIB__UNTOLD));
    }
    MUST(e->lost_tail == before);
    return NULL;
}

/* Whoever sleeps listens, or will as soon as the server can be reached.  If nodes have redirected the subscription, or while
 * the first fair waiter or one before this asks, or has the lock, or no node serves it, it is asked for at the next sleep. */
static const char *check_listener(const struct snib__chan *chan, const struct snib__waitq *waitq)
{
    MUST(waitq->chan == chan);
    const struct snib__gate *gate = waitq->gate;
    bool behind = gate->trying > 0 || snib__gate_active(gate) || waitq->refused;
    bool sleeps = waitq->head && waitq->timer_at && waitq->head->hold->phase != SNIB__TRYING;
    if (sleeps && !behind && chan->state == SNIB__CHAN_OFF && chan->redirects == 0)
        MUST(chan->node->links[SNIB__PUBSUB].wanted);
    return NULL;
}

static const char *check_chans(const struct snib__engine *e)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < e->chans_cap; i++)
        for (const struct snib__chan *chan = e->chans[i]; chan; chan = chan->next, n++) {
            MUST((chan->hash & (e->chans_cap - 1)) == i);
            MUST(chan->waitqs || chan->state == SNIB__CHAN_LEAVING);
            for (const struct snib__waitq *waitq = chan->waitqs; waitq; waitq = waitq->chan_next)
                PASS_ON(check_listener(chan, waitq));
            if (chan->state == SNIB__CHAN_ON || chan->state == SNIB__CHAN_ASKED)
                MUST(snib__node_listens(chan->node));
        }
    MUST(n == e->chans_n);
    return NULL;
}

static const char *check_renewals(const struct snib__node *node, const struct snib__renewals *list)
{
    uint64_t n = 0;
    bool cursor = list->cursor == NULL;
    const struct snib__hold *before = NULL;
    for (const struct snib__hold *hold = list->head; hold; before = hold, hold = hold->next, n++) {
        MUST(hold->prev == before);
        MUST(!before || before->deadline <= hold->deadline);
        MUST(hold->flags & SNIB__LISTED);
        MUST(hold->gate->node == node);
        cursor = cursor || list->cursor == hold;
    }
    MUST(list->tail == before);
    MUST(cursor);
    MUST(n == list->n);
    return NULL;
}

/* What waits for a link that is not there waits for that of its own node, as above. */
static const char *check_collected(const struct snib__node *node)
{
    uint32_t n;
    const struct snib__request *collected = snib__durable_collected(node, &n);
    bool ready = node->lanes[SNIB__LANES_MAX - 1].conn.state == SNIB__CONN_READY;
    for (uint32_t i = 0; i < n; i++)
        MUST(ready || snib__request_node(&collected[i]) == node);
    MUST(n == 0 || ready || node->lanes[SNIB__LANES_MAX - 1].wanted || !snib__node_ready(node));
    return NULL;
}

static const char *check_node(const struct snib__node *node)
{
    uint32_t gaps = 0;
    for (uint32_t i = 0; i < node->todo_n; i++) {
        gaps += node->todo[i].subject == NULL;
        MUST(i >= node->todo_first || !node->todo[i].subject);
        /* Otherwise nobody need be waiting for this node, and nothing would end the wait. */
        MUST(!node->todo[i].subject || snib__request_node(&node->todo[i]) == node);
    }
    MUST(gaps == node->todo_gaps);
    MUST(node->todo_n == gaps || !snib__node_ready(node));
    MUST(node->todo_n == gaps || node->links[SNIB__COMMAND].wanted);
    MUST(node->todo_n <= node->todo_cap);
    PASS_ON(check_collected(node));
    for (int kind = 0; kind < SNIB__KINDS; kind++) {
        PASS_ON(check_renewals(node, &node->renewals[kind]));
        MUST((node->renewed >> kind & 1) == (node->renewals[kind].head != NULL));
    }
    return NULL;
}

/* Requests on their way, by gate and by the threads that wait for them. */
static const char *check_links(const struct snib__engine *e)
{
    for (const struct snib__link *link = e->links; link; link = link->next) {
        uint32_t called = 0;
        MUST(link->kind != SNIB__COMMAND || link->conn.state != SNIB__CONN_DOWN ||
             link->conn.ring_count == 0);
        for (uint32_t i = 0; i < link->conn.ring_count; i++) {
            const struct snib__request *request =
                &link->conn.ring[(link->conn.ring_head + i) & (link->conn.ring_cap - 1)];
            const struct snib__gate *gate = request->gate;
            bool own = request->kind < 0 || snib__request_own(request);
            called += gate && request->called;
            MUST(own || snib__durable_takes(e, request) == snib__durable_is(link));
            MUST(!gate || gate->unanswered > 0);
        }
        MUST(called == link->called);
    }
    return NULL;
}

/* Everything that is being released, once each: on its way, waiting for its next try, or carried. */
struct releases {
    struct tally of;
    uint32_t repeated;
    uint64_t used; /* of holds that a program has had */
};

static void note_release(struct releases *all, const struct snib__hold *hold)
{
    if (hold->phase != SNIB__RELEASING || tally_add(&all->of, hold) > 1)
        return;
    all->repeated += hold->repeated;
    all->used += hold->acquired_at != 0;
}

static void note_releases(struct releases *all, const struct snib__request *request)
{
    const struct snib__hold *hold = request->subject;
    bool held = request->kind == SNIB__REQ_ACQUIRE || request->kind == SNIB__REQ_RELEASE ||
                request->kind == SNIB__REQ_TRANSFER;
    for (; held && hold; hold = hold->passed ? hold->next : NULL)
        note_release(all, hold);
}

/* Each hold that a program has had ends once: it is released, lost or dropped, or a release of it has failed. */
static const char *check_counts(const snib_client_stats_data *stats, uint64_t releasing,
                                bool closed)
{
    uint64_t lost = stats->lost_expired + stats->lost_taken + stats->lost_deleted +
                    stats->lost_unreachable + stats->lost_max_hold + stats->lost_failover +
                    stats->lost_closed;
    uint64_t ended = stats->releases + lost + stats->abandoned;
    MUST(closed || stats->acquisitions >= ended + stats->held + releasing);
    return NULL;
}

static const char *check_releases(const struct snib__engine *e)
{
    static struct releases all;
    tally_clear(&all.of);
    all.repeated = 0;
    all.used = 0;
    for (uint32_t i = 0; i < e->paused_n; i++)
        note_releases(&all, &e->paused[i].request);
    for (const struct snib__link *link = e->links; link; link = link->next)
        for (uint32_t i = 0; i < link->conn.ring_count; i++)
            note_releases(&all,
                          &link->conn.ring[(link->conn.ring_head + i) & (link->conn.ring_cap - 1)]);
    for (const struct snib__node *node = e->nodes; node; node = node->next)
        for (uint32_t i = 0; i < node->todo_n; i++)
            note_releases(&all, &node->todo[i]);
    for (uint32_t i = 1; i <= e->heap_n; i++)
        if (snib__timer_what(e->heap[i]) == SNIB__TIMER_HOLD)
            for (const struct snib__hold *hold = snib__timer_subject(e->heap[i]); hold;
                 hold = hold->passed ? hold->next : NULL)
                note_release(&all, hold);
    for (uint32_t i = 0; i < e->gates_cap; i++)
        for (const struct snib__gate *gate = e->gates[i]; gate; gate = gate->next) {
            for (const struct snib__hold *hold = snib__gate_first(gate); hold;
                 hold = snib__gate_next(gate, hold))
                note_release(&all, hold);
            for (const struct snib__hold *hold = gate->waitq ? gate->waitq->behind : NULL; hold;
                 hold = hold->next)
                note_release(&all, hold);
        }
    MUST(all.of.n == e->releasing);
    MUST(all.repeated == e->given_flight);
    return check_counts(&e->stats, all.used, e->closed);
}

const char *engine_flaw(const struct snib__engine *e)
{
    struct census census = {0};
    note_subjects(e);
    PASS_ON(check_heap(e));
    PASS_ON(check_live(e));
    PASS_ON(check_chans(e));
    for (uint32_t i = 0; i < e->gates_cap; i++)
        for (const struct snib__gate *gate = e->gates[i]; gate; gate = gate->next) {
            PASS_ON(check_gate(e, gate, &census));
            census.gates++;
        }
    MUST(census.gates == e->gates_n);
    MUST(census.held == e->stats.held);
    PASS_ON(check_releases(e));
    PASS_ON(check_lists(e, &census));
    for (const struct snib__node *node = e->nodes; node; node = node->next)
        PASS_ON(check_node(node));
    return check_links(e);
}

/* Everything that may want a timer is an operation, a hold or a wait, and all of them are free. */
static const char *check_free(const struct snib__engine *e)
{
    uint32_t n = 0;
    for (const struct snib__op *op = e->free_ops; op; op = op->next)
        n++;
    for (int i = 0; i < 2; i++)
        for (const struct snib__hold *hold = e->free_holds[i]; hold; hold = hold->next)
            n++;
    MUST(n == e->heap_owed);
    return NULL;
}

const char *engine_remains(struct snib__engine *e)
{
    snib__given_end(e);
    PASS_ON(engine_flaw(e));
    PASS_ON(check_free(e));
    MUST(e->live_n == 0);
    MUST(e->gates_n == 0);
    MUST(e->chans_n == 0);
    MUST(e->heap_n == 0);
    MUST(e->paused_n == 0);
    MUST(e->stats.held == 0 && e->releasing == 0);
    MUST(!e->lost_head && !e->done_head && !e->outers && !e->idle_head);
    for (const struct snib__node *node = e->nodes; node; node = node->next)
        MUST(node->todo_n == 0);
    return NULL;
}

bool engine_says(const snib_texts *texts, const char *host)
{
    const char *at = texts->text;
    unsigned long long number, since, last = 1;
    uint32_t i = 1;
    if (strncmp(at, "host ", 5) != 0 || strcmp(at + 5, host) != 0) {
        return false;
    }
    at += strlen(at) + 1;
    if (i < texts->count && sscanf(at, "losses %llu", &number) == 1) {
        if (number == 0) {
            return false;
        }
        i++;
        at += strlen(at) + 1;
    }
    if (texts->count > i + 16) {
        return false;
    }
    for (; i < texts->count; i++, last = since, at += strlen(at) + 1) {
        if (sscanf(at, "held %llu %llu", &number, &since) != 2 || number == 0 || since < last) {
            return false;
        }
    }
    return true;
}
