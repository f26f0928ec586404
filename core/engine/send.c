/* send.c - requests on their way to a node: encoded, sent, kept until they can be, taken back.
 *
 * Requests that come while the node is not ready wait in its `todo`.  They are encoded when they
 * leave, so that the recorded time of sending is the true one.
 */
#include "engine/ask.h"
#include "engine/internal.h"
#include "engine/route.h"
#include "net/script.h"

#include <stdlib.h>
#include <string.h>

static int send_kill(struct snib__buf *out, uint64_t id)
{
    char number[24];
    size_t n = snib__decimal(number, (int64_t)id);
    return snib__resp_begin(out, 4) < 0 || snib__resp_arg(out, "CLIENT", 6) < 0 ||
                   snib__resp_arg(out, "KILL", 4) < 0 || snib__resp_arg(out, "ID", 2) < 0 ||
                   snib__resp_arg(out, number, n) < 0
               ? -1
               : SNIB__NO_SCRIPT;
}

static int send_encode(struct snib__engine *e, const struct snib__request *request,
                       struct snib__buf *out)
{
    void *subject = request->subject;
    struct snib__hold *hold = subject;
    struct snib__batch *batch = subject;
    const struct snib__lock_kind *kind;
    struct snib__hold *holds[SNIB__BATCH_MAX];
    switch (request->kind) {
    case SNIB__REQ_ACQUIRE:
        return hold->gate->kind->acquire(out, e, hold);
    case SNIB__REQ_RELEASE:
        return hold->passed ? snib__tenure_encode(out, e, hold)
                            : hold->gate->kind->release(out, e, hold);
    case SNIB__REQ_TRANSFER:
        return hold->gate->kind->transfer(out, e, hold, hold->gate->waitq->incoming);
    case SNIB__REQ_RENEW:
        for (uint32_t i = 0; i < batch->n; i++)
            holds[i] = batch->of[i].hold;
        kind = batch->narrow ? &snib__mutex : snib__kind_of(batch->kind);
        return kind->renew(out, e, holds, batch->n,
                           batch->exact ? -batch->lease_ms : batch->lease_ms);
    case SNIB__REQ_ROUTE:
        return e->route->encode(e, out, subject, request->number);
    case SNIB__REQ_WAIT:
    case SNIB__REQ_COUNT:
        return snib__durable_encode(e, out, request);
    case SNIB__REQ_IDENTITY:
        return snib__identity_encode(e, out, request->number);
    case SNIB__REQ_BOARD:
        return snib__board_encode(e, out);
    case SNIB__REQ_KILL:
        return send_kill(out, request->number);
    case SNIB__REQ_TIME:
        return snib__resp_begin(out, 1) < 0 || snib__resp_arg(out, "TIME", 4) < 0 ? -1
                                                                                  : SNIB__NO_SCRIPT;
    default:
        return snib__ask_encode(e, out, subject);
    }
}

/* Take back what was appended since there were so many bytes to send and so many replies to come. */
static void send_unwrite(struct snib__conn *conn, size_t size, uint32_t replies)
{
    conn->out.len = conn->out.head + size;
    conn->appended -= conn->ring_count - replies;
    conn->ring_count = replies;
}

/* Append the request's command, preceded by its script if the connection has not loaded it, and by
 * ASKING.  Returns the script, or -1 without the command: its script may have been appended, but not ASKING, which
 * would apply to the next command. */
static int send_append(struct snib__engine *e, struct snib__conn *conn,
                       const struct snib__request *request, snib__time now)
{
    size_t size = snib__buf_size(&conn->out), at = size;
    uint32_t replies = conn->ring_count;
    int script = send_encode(e, request, &conn->out);
    bool load = script >= 0 && !snib__conn_loaded(conn, script);
    if (script != -1 && (load || request->asking)) {
        send_unwrite(conn, size, replies);
        if (load && snib__conn_load(conn, script, now) < 0)
            return -1;
        size = snib__buf_size(&conn->out);
        replies = conn->ring_count;
        if (request->asking && snib__conn_asking(conn, now) < 0)
            return -1;
        at = snib__buf_size(&conn->out);
        script = send_encode(e, request, &conn->out);
    }
    bool spells = script >= 0 && snib__conn_spells(conn, script);
    if (spells && snib__script_spell(&conn->out, at, script, conn->publish) < 0)
        script = -1;
    else if (script >= 0 && !spells && conn->publish != SNIB__CLASSIC)
        snib__script_vary(&conn->out, at, script, conn->publish);
    if (script == -1)
        send_unwrite(conn, size, replies);
    return script;
}

/* The operation that a request serves, or NULL. */
struct snib__op *snib__request_op(const struct snib__request *request)
{
    const struct snib__hold *hold = request->subject;
    if (request->kind == SNIB__REQ_ASK)
        return request->subject;
    bool held = request->kind == SNIB__REQ_ACQUIRE || request->kind == SNIB__REQ_RELEASE ||
                request->kind == SNIB__REQ_TRANSFER;
    return held && hold ? hold->op : NULL;
}

/* A caller waiting for the request reads on this link. */
void snib__request_note_link(const struct snib__request *request, struct snib__link *link)
{
    struct snib__op *op = snib__request_op(request);
    if (op)
        op->link = link;
    if (request->kind != SNIB__REQ_TRANSFER || !request->subject)
        return;
    const struct snib__waitq *waitq = ((struct snib__hold *)request->subject)->gate->waitq;
    if (waitq && waitq->incoming && waitq->incoming->op)
        waitq->incoming->op->link = link;
}

/* The gate whose requests must stay in order; NULL: the request has no lock name.  An extension keeps the order of
 * renewals instead, on the first lane: one that corrects a lease, as after a step of the server's clock, must not
 * overtake it and shorten what it has given. */
static struct snib__gate *send_gate(const struct snib__request *request)
{
    const struct snib__op *op = request->subject;
    if (request->kind == SNIB__REQ_ASK)
        return op->kind == SNIB__OP_EXTEND ? NULL : op->gate;
    bool held = request->kind == SNIB__REQ_ACQUIRE || request->kind == SNIB__REQ_RELEASE ||
                request->kind == SNIB__REQ_TRANSFER;
    return held ? ((struct snib__hold *)request->subject)->gate : NULL;
}

int snib__link_write(struct snib__engine *e, struct snib__link *link, struct snib__request *request,
                     snib__time now)
{
    struct snib__conn *conn = &link->conn;
    struct snib__hold *released = request->kind == SNIB__REQ_RELEASE ? request->subject : NULL;
    if (released && request->script != -1) /* an earlier try had one */
        snib__tenure_again(released);
    if (request->kind == SNIB__REQ_ACQUIRE && snib__request_op(request)) {
        snib__waitq_mark(snib__request_op(request), now);
        /* A grant heard of by now is older than the answer, whatever the server's clock does. */
        ((struct snib__hold *)request->subject)->flags &= (uint16_t)~SNIB__PROMISED;
    }
    size_t size = snib__buf_size(&conn->out);
    uint32_t replies = conn->ring_count;
    int script = send_append(e, conn, request, now);
    if (script == -1)
        return -1;
    request->sent_at = now;
    request->script = (int16_t)script;
    request->gate = send_gate(request);
    request->called = e->calling && request->gate;
    if (snib__conn_expect(conn, request) < 0 ||
        (script == SNIB__TWO_COMMANDS &&
         snib__conn_expect(conn, &(struct snib__request){
                                     .kind = SNIB__REQ_ASK, .script = -1, .sent_at = now}) < 0)) {
        send_unwrite(conn, size, replies); /* a script load, too: NOSCRIPT brings it back */
        request->gate = NULL;
        return -1;
    }
    snib__lane_sent(link, request, now);
    snib__request_note_link(request, link);
    e->stats.commands += script == SNIB__TWO_COMMANDS ? 2 : 1;
    return 0;
}

/* Write it on the right lane. */
static int send_write(struct snib__engine *e, struct snib__node *node,
                      struct snib__request *request, snib__time now)
{
    if (snib__durable_takes(e, request))
        return snib__durable_send(e, node, request, now);
    return snib__link_write(e, snib__lane_for(e, node, send_gate(request), now), request, now);
}

/* Close the gaps among the waiting requests, if there are enough. */
static void send_pack(struct snib__node *node)
{
    uint32_t kept = 0;
    if (node->todo_gaps < node->todo_n / 2 || node->todo_gaps == 0)
        return;
    for (uint32_t i = 0; i < node->todo_n; i++)
        if (node->todo[i].subject)
            node->todo[kept++] = node->todo[i];
    node->todo_n = kept;
    node->todo_first = node->todo_gaps = 0;
}

int snib__node_later(struct snib__node *node, const struct snib__request *request)
{
    if (node->todo_n == node->todo_cap)
        send_pack(node);
    if (node->todo_n == node->todo_cap) {
        uint32_t cap = node->todo_cap ? node->todo_cap * 2 : SNIB__ROOM(16);
        struct snib__request *todo = realloc(node->todo, cap * sizeof *todo);
        if (!todo)
            return -1;
        node->todo = todo;
        node->todo_cap = cap;
    }
    node->todo[node->todo_n] = *request;
    node->todo[node->todo_n++].tries = 0; /* by then the script may be forgotten once more */
    return 0;
}

static struct snib__node *send_node_of(int kind, void *subject)
{
    if (kind == SNIB__REQ_ASK)
        return snib__op_node(subject);
    if (kind == SNIB__REQ_RENEW)
        return ((struct snib__batch *)subject)->node;
    if (kind == SNIB__REQ_TIME || kind == SNIB__REQ_ROUTE || kind >= SNIB__REQ_IDENTITY)
        return subject;
    return ((struct snib__hold *)subject)->gate->node;
}

struct snib__node *snib__request_node(const struct snib__request *request)
{
    return send_node_of(request->kind, request->subject);
}

int snib__node_send(struct snib__engine *e, int kind, void *subject, uint64_t number,
                    snib__time now)
{
    struct snib__request request = {
        .kind = (int16_t)kind, .script = -1, .subject = subject, .number = number, .sent_at = now};
    return snib__node_send_to(e, send_node_of(kind, subject), &request, now);
}

int snib__node_send_to(struct snib__engine *e, struct snib__node *node,
                       const struct snib__request *request, snib__time now)
{
    struct snib__request sent = *request;
    if (snib__node_ready(node))
        return send_write(e, node, &sent, now);
    if (sent.kind == SNIB__REQ_RENEW || snib__request_own(&sent))
        return -1; /* asked again when the link is ready */
    if (snib__node_later(node, &sent) < 0)
        return -1;
    snib__request_note_link(&sent, NULL);
    snib__node_want(e, node, now);
    return 0;
}

void snib__node_again(struct snib__engine *e, const struct snib__request *request, snib__time now)
{
    struct snib__request again = *request;
    again.asking = false;
    again.tries = 0; /* as in snib__node_later() */
    if (snib__node_send_to(e, send_node_of(again.kind, again.subject), &again, now) == 0)
        return;
    if (again.kind == SNIB__REQ_ASK)
        snib__op_done(e, again.subject, SNIB_ENOMEM);
    else
        snib__gate_unsent(e, again.subject, again.kind, again.sent_at, now);
}

/* Take back a subject's waiting request, leaving a gap.  When many leave at once they
 * are the oldest or the newest in turn, so the search starts from both ends and skips
 * the gaps it has found there. */
static bool send_unwait(struct snib__node *node, const void *subject)
{
    struct snib__request *todo = node->todo;
    bool found = false;
    for (uint32_t i = node->todo_first, j = node->todo_n; i < j; i++) {
        j--;
        uint32_t at = todo[i].subject == subject ? i : j;
        if (todo[at].subject != subject)
            continue;
        todo[at].subject = NULL;
        node->todo_gaps++;
        found = true;
        break;
    }
    while (node->todo_n > 0 && !todo[node->todo_n - 1].subject) {
        node->todo_n--;
        node->todo_gaps--;
    }
    while (node->todo_first < node->todo_n && !todo[node->todo_first].subject)
        node->todo_first++;
    if (node->todo_n == 0)
        node->todo_first = 0;
    return found;
}

bool snib__node_unsend(struct snib__engine *e, void *subject)
{
    for (struct snib__node *node = e->nodes; node; node = node->next)
        if (send_unwait(node, subject) || snib__durable_unsend(node, subject))
            return true;
    return snib__pause_drop(e, subject);
}

static void send_disregard(struct snib__conn *conn, const void *subject)
{
    for (uint32_t i = 0; i < conn->ring_count; i++) {
        struct snib__request *request = &conn->ring[(conn->ring_head + i) & (conn->ring_cap - 1)];
        if (request->subject == subject)
            request->subject = NULL;
    }
}

/* Drop requests not yet sent and discard the replies to those in flight, on every node: another may
 * have served the name before. */
void snib__node_forget(struct snib__engine *e, void *subject)
{
    snib__node_unsend(e, subject);
    for (struct snib__node *node = e->nodes; node; node = node->next)
        for (uint32_t i = 0; i < SNIB__LANES_MAX; i++)
            send_disregard(&snib__node_lane(node, i)->conn, subject);
}

void snib__node_flush(struct snib__engine *e, struct snib__node *node, snib__time now)
{
    struct snib__request *todo = node->todo;
    uint32_t n = node->todo_n;
    node->todo = NULL;
    node->todo_n = node->todo_cap = node->todo_first = node->todo_gaps = 0;
    for (uint32_t i = 0; i < n; i++) {
        struct snib__hold *hold = todo[i].subject;
        if (!hold)
            continue;
        /* An acquire that may have worked, but whose operation has gone, becomes a release. */
        if (todo[i].kind == SNIB__REQ_ACQUIRE && !hold->op)
            snib__gate_unanswered(e, &todo[i], now);
        else if (send_write(e, node, &todo[i], now) == 0)
            continue;
        else if (todo[i].kind == SNIB__REQ_ASK)
            snib__op_done(e, todo[i].subject, SNIB_ENOMEM);
        else
            snib__gate_unsent(e, hold, todo[i].kind, todo[i].sent_at, now);
    }
    free(todo);
}

void snib__node_reroute(struct snib__engine *e, struct snib__node *node, snib__time now)
{
    struct snib__request *todo = node->todo;
    uint32_t n = node->todo_n;
    node->todo = NULL;
    node->todo_n = node->todo_cap = node->todo_first = node->todo_gaps = 0;
    for (uint32_t i = 0; i < n; i++) {
        if (todo[i].subject)
            snib__node_again(e, &todo[i], now);
    }
    free(todo);
    snib__durable_reroute(e, node, now);
}
