/* node.c - one server: what is sent to it, what it answers, and what is known of it.
 *
 * The command link carries scripts, the pub/sub link subscriptions.  Commands that come while the
 * command link is not ready wait in `todo` and are encoded when they leave, so that the time before
 * the send is the true one.
 */
#include "engine/ask.h"
#include "engine/internal.h"
#include "engine/route.h"
#include "net/script.h"

#include <stdlib.h>
#include <string.h>

#define NODE_TELL_AGAIN (60000 * SNIB__MS) /* that there is still no connection */

static void node_set_address(struct snib__node *node, const struct snib__address *address)
{
    node->address = *address;
    node->addressed = true;
    node->told_failure = 0;
    static const char what[] = "sentinel ";
    size_t n = node->kind == SNIB__A_SENTINEL ? sizeof what - 1 : 0;
    memcpy(node->where, what, n);
    snib__address_text(address, node->where + n);
}

struct snib__node *snib__node_new(struct snib__engine *e, int kind,
                                  const struct snib__address *address)
{
    struct snib__node *node = calloc(1, sizeof *node);
    if (!node)
        return NULL;
    node->kind = (uint8_t)kind;
    if (address)
        node_set_address(node, address);
    node->down_since = node->dull_since = SNIB__NEVER;
    node->failure = SNIB_EUNREACHABLE;
    for (int link = 0; link < 2; link++)
        if (snib__link_init(e, &node->links[link], node, link) < 0) {
            snib__node_free(e, node);
            return NULL;
        }
    node->next = e->nodes;
    e->nodes = node;
    e->memory += sizeof *node;
    return node;
}

void snib__node_free(struct snib__engine *e, struct snib__node *node)
{
    struct snib__node **at = &e->nodes;
    while (*at && *at != node)
        at = &(*at)->next;
    if (*at) {
        *at = node->next;
        e->memory -= sizeof *node;
    }
    for (int kind = 0; kind < 2; kind++) {
        struct snib__link **link = &e->links;
        while (*link && *link != &node->links[kind])
            link = &(*link)->next;
        if (*link)
            *link = (*link)->next;
        snib__conn_free(&node->links[kind].conn);
    }
    free(node->todo);
    free(node);
}

static struct snib__conn *node_conn(struct snib__node *node)
{
    return &node->links[SNIB__COMMAND].conn;
}

bool snib__node_ready(const struct snib__node *node)
{
    return node->links[SNIB__COMMAND].conn.state == SNIB__CONN_READY;
}

bool snib__node_listens(const struct snib__node *node)
{
    return node->links[SNIB__PUBSUB].conn.state == SNIB__CONN_READY;
}

/* Its address, for people. */
const char *snib__node_where(const struct snib__engine *e, const struct snib__node *node)
{
    return node->where[0] ? node->where : snib__engine_where(e);
}

/* Whether the server has not been heard for as long as a round trip may take: of what it holds nothing is
 * known now. */
bool snib__node_silent(const struct snib__engine *e, const struct snib__node *node, snib__time now)
{
    snib__time since = snib__node_ready(node) ? snib__conn_oldest(&node->links[SNIB__COMMAND].conn)
                                              : node->down_since;
    if (!snib__node_ready(node) && node->failed)
        return true;
    return since != SNIB__NEVER && since + e->config.try_timeout <= now;
}

/* ---- sending ---- */

static int node_encode(struct snib__engine *e, const struct snib__request *request,
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
        return hold->gate->kind->release(out, e, hold);
    case SNIB__REQ_TRANSFER:
        return hold->gate->kind->transfer(out, e, hold, hold->gate->wait->incoming);
    case SNIB__REQ_RENEW:
        for (uint32_t i = 0; i < batch->n; i++)
            holds[i] = batch->of[i].hold;
        kind = batch->narrow ? &snib__mutex : snib__kind_of(batch->kind);
        return kind->renew(out, e, holds, batch->n, batch->lease_ms);
    case SNIB__REQ_ROUTE:
        return e->route->encode(e, out, subject, request->number);
    case SNIB__REQ_TIME:
        return snib__resp_begin(out, 1) < 0 || snib__resp_arg(out, "TIME", 4) < 0 ? -1
                                                                                  : SNIB__NO_SCRIPT;
    default:
        return snib__ask_encode(e, out, subject);
    }
}

static void node_unwrite(struct snib__conn *conn, size_t size)
{
    conn->out.len = conn->out.head + size;
}

/* Append the request's command, and before it its script if the connection has not loaded it, and ASKING.
 * Returns the script, or -1: nothing half-written leaves. */
static int node_append(struct snib__engine *e, struct snib__conn *conn,
                       const struct snib__request *request, snib__time now)
{
    size_t size = snib__buf_size(&conn->out);
    int script = node_encode(e, request, &conn->out);
    bool load = script >= 0 && !snib__conn_loaded(conn, script);
    if (script != -1 && (load || request->asking)) {
        node_unwrite(conn, size);
        if ((load && snib__conn_load(conn, script, now) < 0) ||
            (request->asking && snib__conn_asking(conn, now) < 0))
            return -1;
        size = snib__buf_size(&conn->out);
        script = node_encode(e, request, &conn->out);
    }
    bool spells = script >= 0 && snib__conn_spells(conn, script);
    if (spells && snib__script_spell(&conn->out, size, script, conn->publish) < 0)
        script = -1;
    else if (script >= 0 && !spells && conn->publish != SNIB__CLASSIC)
        snib__script_vary(&conn->out, size, script, conn->publish);
    if (script == -1)
        node_unwrite(conn, size);
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

/* Who waits for it reads on this link. */
static void node_note_link(const struct snib__request *request, struct snib__link *link)
{
    struct snib__op *op = snib__request_op(request);
    if (op)
        op->link = link;
    if (request->kind != SNIB__REQ_TRANSFER || !request->subject)
        return;
    const struct snib__wait *wait = ((struct snib__hold *)request->subject)->gate->wait;
    if (wait && wait->incoming && wait->incoming->op)
        wait->incoming->op->link = link;
}

static int node_write(struct snib__engine *e, struct snib__node *node,
                      struct snib__request *request, snib__time now)
{
    struct snib__conn *conn = node_conn(node);
    size_t size = snib__buf_size(&conn->out);
    uint32_t before = conn->ring_count;
    int script = node_append(e, conn, request, now);
    if (script == -1)
        return -1;
    request->sent_at = now;
    request->script = (int16_t)script;
    struct snib__request second = {.kind = SNIB__REQ_ASK, .script = -1, .sent_at = now};
    if (snib__conn_expect(conn, request) < 0 ||
        (script == SNIB__TWO_COMMANDS && snib__conn_expect(conn, &second) < 0)) {
        node_unwrite(conn, size); /* with a script load, if there was one: its entry goes too */
        conn->appended -= conn->ring_count - before;
        conn->ring_count = before;
        return -1;
    }
    node_note_link(request, &node->links[SNIB__COMMAND]);
    e->stats.commands += script == SNIB__TWO_COMMANDS ? 2 : 1;
    return 0;
}

/* Close the gaps among the requests that wait, if they are worth it. */
static void node_pack(struct snib__node *node)
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

static int node_later(struct snib__node *node, const struct snib__request *request)
{
    if (node->todo_n == node->todo_cap)
        node_pack(node);
    if (node->todo_n == node->todo_cap) {
        uint32_t cap = node->todo_cap ? node->todo_cap * 2 : SNIB__ROOM(16);
        struct snib__request *todo = realloc(node->todo, cap * sizeof *todo);
        if (!todo)
            return -1;
        node->todo = todo;
        node->todo_cap = cap;
    }
    node->todo[node->todo_n++] = *request;
    return 0;
}

/* Which node a request is for. */
static struct snib__node *node_of(int kind, void *subject)
{
    if (kind == SNIB__REQ_ASK)
        return snib__op_node(subject);
    if (kind == SNIB__REQ_RENEW)
        return ((struct snib__batch *)subject)->node;
    if (kind == SNIB__REQ_TIME || kind == SNIB__REQ_ROUTE)
        return subject;
    return ((struct snib__hold *)subject)->gate->node;
}

int snib__node_send(struct snib__engine *e, int kind, void *subject, uint64_t number,
                    snib__time now)
{
    struct snib__request request = {
        .kind = (int16_t)kind, .script = -1, .subject = subject, .number = number, .sent_at = now};
    return snib__node_send_to(e, node_of(kind, subject), &request, now);
}

int snib__node_send_to(struct snib__engine *e, struct snib__node *node,
                       const struct snib__request *request, snib__time now)
{
    struct snib__request sent = *request;
    if (snib__node_ready(node))
        return node_write(e, node, &sent, now);
    if (sent.kind == SNIB__REQ_RENEW || sent.kind == SNIB__REQ_TIME || sent.kind == SNIB__REQ_ROUTE)
        return -1; /* it is asked again when the link is ready */
    if (node_later(node, &sent) < 0)
        return -1;
    node_note_link(&sent, NULL);
    snib__node_want(e, node, now);
    return 0;
}

void snib__node_again(struct snib__engine *e, const struct snib__request *request, snib__time now)
{
    struct snib__request again = *request;
    again.asking = false;
    if (snib__node_send_to(e, node_of(again.kind, again.subject), &again, now) == 0)
        return;
    if (again.kind == SNIB__REQ_ASK)
        snib__op_done(e, again.subject, SNIB_ENOMEM);
    else
        snib__gate_unsent(e, again.subject, again.kind, again.sent_at, now);
}

/* A subject's request that waits is not to be sent.  It leaves a gap.  When many leave at once they are the
 * oldest or the newest in turn, so the search comes from both ends, and skips the gaps it has found there. */
static bool node_unwait(struct snib__node *node, const void *subject)
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
        if (node_unwait(node, subject))
            return true;
    return snib__pause_drop(e, subject);
}

static void node_disregard(struct snib__node *node, const void *subject)
{
    struct snib__conn *conn = node_conn(node);
    for (uint32_t i = 0; i < conn->ring_count; i++) {
        struct snib__request *request = &conn->ring[(conn->ring_head + i) & (conn->ring_cap - 1)];
        if (request->subject == subject)
            request->subject = NULL;
    }
}

/* Drop what is not sent, mark what is: by a node that has served the name before, perhaps. */
void snib__node_forget(struct snib__engine *e, void *subject)
{
    snib__node_unsend(e, subject);
    for (struct snib__node *node = e->nodes; node; node = node->next)
        node_disregard(node, subject);
}

static void node_flush(struct snib__engine *e, struct snib__node *node, snib__time now)
{
    struct snib__request *todo = node->todo;
    uint32_t n = node->todo_n;
    node->todo = NULL;
    node->todo_n = node->todo_cap = node->todo_first = node->todo_gaps = 0;
    for (uint32_t i = 0; i < n; i++) {
        struct snib__hold *hold = todo[i].subject;
        if (!hold)
            continue;
        /* An acquire that may have worked and that nobody waits for any more becomes a release. */
        if (todo[i].kind == SNIB__REQ_ACQUIRE && !hold->op)
            snib__gate_unanswered(e, &todo[i], now);
        else if (node_write(e, node, &todo[i], now) == 0)
            continue;
        else if (todo[i].kind == SNIB__REQ_ASK)
            snib__op_done(e, todo[i].subject, SNIB_ENOMEM);
        else
            snib__gate_unsent(e, hold, todo[i].kind, todo[i].sent_at, now);
    }
    free(todo);
}

/* ---- coming and going ---- */

int snib__node_ask(struct snib__engine *e, struct snib__node *node, uint64_t what, snib__time now)
{
    return snib__node_send(e, SNIB__REQ_ROUTE, node, what, now);
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
}

void snib__node_rename(struct snib__engine *e, struct snib__node *node,
                       const struct snib__address *address)
{
    (void)e;
    node_set_address(node, address);
    node->idle = node->ever_ready = node->failed = node->inherited = false;
    node->down_since = node->dull_since = SNIB__NEVER;
    node->failure = SNIB_EUNREACHABLE;
    node->words[0] = 0;
    node->moved_at = node->failed_over_at = 0;
    for (int kind = 0; kind < 2; kind++) {
        node->links[kind].backoff = 0;
        node->links[kind].next_try = 0;
        node->links[kind].wanted = false;
    }
}

/* Its holds were granted by a server whose part another plays now: each is to be confirmed there. */
static void node_failed_over(struct snib__engine *e, struct snib__node *node, snib__time now)
{
    node->failed_over_at = now;
    node->inherited = true;
    for (uint32_t i = 0; i < e->gates_cap; i++)
        for (struct snib__gate *gate = e->gates[i]; gate; gate = gate->next)
            for (struct snib__hold *hold = gate->node == node ? snib__gate_first(gate) : NULL; hold;
                 hold = snib__gate_next(gate, hold))
                if ((hold->phase == SNIB__HELD || hold->phase == SNIB__RELEASING) &&
                    hold->deadline != SNIB__NEVER)
                    hold->flags |= SNIB__INHERITED;
}

void snib__node_readdress(struct snib__engine *e, struct snib__node *node,
                          const struct snib__address *address, snib__time now)
{
    if (node->addressed)
        node_failed_over(e, node, now);
    node_set_address(node, address);
    for (int kind = 0; kind < 2; kind++) {
        struct snib__link *link = &node->links[kind];
        if (link->conn.state != SNIB__CONN_DOWN || link->connecting)
            snib__link_close(e, link, SNIB_EUNREACHABLE, now);
        link->backoff = 0;
        link->next_try = now;
        link->connect = link->wanted;
    }
}

void snib__node_want(struct snib__engine *e, struct snib__node *node, snib__time now)
{
    struct snib__link *link = &node->links[SNIB__COMMAND];
    bool idle = link->conn.state == SNIB__CONN_DOWN && !link->connecting && !link->connect;
    snib__link_want(e, link, now);
    if (idle && node->down_since == SNIB__NEVER)
        node->down_since = now;
    if (!node->addressed)
        snib__route_wanted(e, node, now);
}

/* Whether anything is held or under way at one of many nodes. */
static bool node_serves(const struct snib__engine *e, const struct snib__node *node)
{
    for (const struct snib__op *op = e->live; op; op = op->live_next)
        if (!snib__outer_is(op->gate) && snib__op_node(op) == node)
            return true;
    for (uint32_t i = 0; i < e->gates_cap; i++)
        for (const struct snib__gate *gate = e->gates[i]; gate; gate = gate->next)
            if (gate->node == node && gate->active && !snib__outer_is(gate))
                return true;
    return false;
}

bool snib__node_needed(const struct snib__engine *e, const struct snib__node *node)
{
    if (node->todo_n > 0)
        return true;
    return e->slots ? node_serves(e, node) : snib__engine_busy(e);
}

/* Operations that cannot come to an end without the server end now. */
void snib__node_fail_ops(struct snib__engine *e, const struct snib__node *node, snib__time now)
{
    for (struct snib__op *op = e->live, *next; op; op = next) {
        next = op->live_next;
        if (snib__outer_is(op->gate) || snib__op_node(op) != node)
            continue;
        int32_t code = snib__op_unreached(e, op);
        snib__gate_leave(e, op, now);
        next = op->live_next; /* leaving lets others try, and their end may come of that */
        snib__op_done(e, op, code);
    }
}

/* Refusals that another attempt will meet, too.  One that came when the link had been ready is not: it is
 * logged in on anew, or made anew with the certificates of then. */
bool snib__node_hopeless(int32_t code, int os_error, bool was_ready)
{
    if (was_ready && (code == SNIB_EAUTH || code == SNIB_ETLS))
        return false;
    return code == SNIB_EAUTH || code == SNIB_EPERM || code == SNIB_EDATABASE ||
           code == SNIB_EPROTOCOL || (code == SNIB_ETLS && !os_error) || code == SNIB_ENOTSUP ||
           code == SNIB_ETOPOLOGY;
}

/* An attempt that fails as the last one did is logged once a minute. */
static void node_tell_failure(struct snib__engine *e, struct snib__node *node,
                              const struct snib__conn *conn, int32_t code, int os_error,
                              snib__time now)
{
    if (code == node->told_failure && os_error == node->told_os_error &&
        now < node->told_at + NODE_TELL_AGAIN)
        return;
    node->told_failure = code;
    node->told_os_error = os_error;
    node->told_at = now;
    snib__engine_log(e, SNIB_LOG_WARNING, "no connection to %s: %s", snib__node_where(e, node),
                     code == SNIB_ETLS && conn->words[0] ? conn->words
                     : os_error                          ? strerror(os_error)
                                                         : snib_code_text(code));
}

/* What had no answer is sent again, or ends; the operations' patience begins. */
void snib__node_link_down(struct snib__engine *e, struct snib__link *link, snib__time since,
                          bool was_ready, int32_t code, int os_error, snib__time now)
{
    struct snib__node *node = link->node;
    struct snib__conn *conn = &link->conn;
    struct snib__request request;
    node_tell_failure(e, node, conn, code, os_error, now);
    if (since > node->dull_since)
        since = node->dull_since; /* it was ready meanwhile, but of no use */
    if (node->down_since == SNIB__NEVER || node->down_since > since)
        node->down_since = since < now ? since : now;
    node->failed = true;
    node->failure = code;
    node->os_error = os_error;
    memcpy(node->words, conn->words, sizeof node->words);
    if (code == SNIB_ETOPOLOGY)
        snib__route_misfit_words(e, link, node->words);
    while (snib__conn_orphan(conn, &request)) {
        if (!request.subject)
            continue;
        node_note_link(&request, NULL);
        if (request.kind == SNIB__REQ_TIME || request.kind == SNIB__REQ_ROUTE) {
            continue;
        } else if (request.kind == SNIB__REQ_RENEW) {
            snib__watchdog_unanswered(e, request.subject, now);
        } else if (request.kind != SNIB__REQ_ASK) {
            snib__gate_unanswered(e, &request, now);
        } else {
            struct snib__op *op = request.subject;
            op->os_error = os_error;
            op->cause = code;
            if (snib__sent_once(&request) || snib__node_send(e, SNIB__REQ_ASK, op, 0, now) < 0)
                snib__op_done(e, op, SNIB_EUNREACHABLE);
        }
    }
    if (snib__node_hopeless(code, os_error, was_ready))
        snib__node_fail_ops(e, node, now);
    for (struct snib__op *op = e->live; op; op = op->live_next)
        if (snib__op_node(op) == node)
            snib__op_arm(e, op);
}

void snib__node_link_ready(struct snib__engine *e, struct snib__link *link, snib__time now)
{
    struct snib__node *node = link->node;
    struct snib__conn *conn = &link->conn;
    conn->publish = e->route->publish ? (uint8_t)e->route->publish(e, link) : SNIB__CLASSIC;
    bool other = node->ever_ready && strcmp(node->run_id, conn->run_id) != 0;
    memcpy(node->run_id, conn->run_id, sizeof node->run_id);
    if (node->ever_ready)
        e->stats.reconnects += node->kind == SNIB__SERVER;
    else if (conn->evicts)
        snib__engine_log(
            e, SNIB_LOG_WARNING,
            "the server may evict locks when memory is short: set maxmemory-policy noeviction");
    if (e->config.insecure && !e->told_insecure)
        snib__engine_log(
            e, SNIB_LOG_WARNING,
            "tls_insecure: certificates are not verified, so anybody on the way to the "
            "server can read and change everything");
    e->told_insecure = true;
    snib__engine_log(e, SNIB_LOG_INFO, "connected to %s", snib__node_where(e, node));
    if (other)
        snib__engine_log(e, SNIB_LOG_WARNING, "the server was restarted or is another one");
    node->ever_ready = true;
    node->failed = false;
    node->told_failure = 0;
    node->dull_since = node->down_since;
    node->down_since = SNIB__NEVER;
    node->ready_since = now;
    snib__clock_begin(e, node, now);
    node_flush(e, node, now);
    snib__watchdog_reconnected(e, node, other || node->inherited, now);
    node->inherited = false;
    snib__wait_recheck_all(e, node, now);
}

/* ---- replies ---- */

/* The request goes to whoever is found next, like one that was never sent. */
static void node_disowned(struct snib__engine *e, struct snib__link *link,
                          const struct snib__request *request, int32_t error, const char *text,
                          uint32_t n, snib__time now)
{
    struct snib__conn *conn = &link->conn;
    node_note_link(request, NULL);
    snib__words(conn->words, sizeof conn->words, text, n, conn->password);
    if (request->subject && request->kind == SNIB__REQ_RENEW)
        snib__watchdog_unanswered(e, request->subject, now);
    else if (request->subject && request->kind != SNIB__REQ_TIME &&
             request->kind != SNIB__REQ_ROUTE && node_later(link->node, request) < 0)
        snib__conn_expect(conn, request); /* it is with those that have no answer */
    snib__link_close(e, link, error, now);
}

/* Its operation's patience with those who could not serve it is at an end. */
static void node_served(struct snib__engine *e, const struct snib__request *request)
{
    struct snib__op *op = request->subject ? snib__request_op(request) : NULL;
    if (!op || !op->refused_since)
        return;
    op->refused_since = 0;
    free(op->words);
    op->words = NULL;
    snib__op_arm(e, op);
}

void snib__node_answer(struct snib__engine *e, struct snib__link *link,
                       struct snib__request *request, const struct snib__value *reply, uint32_t n,
                       snib__time now)
{
    struct snib__node *node = link->node;
    struct snib__conn *conn = &link->conn;
    int32_t error = snib__link_error(link, reply);
    const char *text = error ? snib__resp_text(conn->resp, reply) : "";
    if (error && snib__route_redirected(e, link, request, text, reply->count, now))
        return;
    node_served(e, request);
    if (snib__link_disowns(link, reply)) {
        node_disowned(e, link, request, error, text, reply->count, now);
        return;
    }
    if (request->script == SNIB__TWO_COMMANDS && (error == SNIB_ENOTSUP || error == SNIB_EPERM) &&
        request->subject) {
        conn->delifeq = conn->delex =
            false; /* a proxy knows less, or the user may not: by script */
        if (node_write(e, node, request, now) == 0)
            return;
    }
    if (error == SNIB_AGAIN) {                /* NOSCRIPT: nothing was done */
        if (request->kind != SNIB__REQ_RENEW) /* that is tried again in any case */
            error = SNIB_EPERM;
        if (request->script >= 0 && request->tries++ == 0 &&
            snib__conn_unknown(conn, request->script, now) == 0 && request->subject &&
            request->kind != SNIB__REQ_RENEW && node_write(e, node, request, now) == 0)
            return;
    }
    if (!request->subject)
        return;
    switch (request->kind) {
    case SNIB__REQ_ACQUIRE:
        snib__gate_answer_acquire(e, request->subject, request->sent_at, reply, n, error, text,
                                  now);
        break;
    case SNIB__REQ_RELEASE:
        snib__gate_answer_release(e, request->subject, request->sent_at, reply, n, error, text,
                                  now);
        break;
    case SNIB__REQ_TRANSFER:
        snib__sole_answer_transfer(e, request->subject, request->sent_at, reply, n, error, now);
        break;
    case SNIB__REQ_RENEW:
        snib__watchdog_answer(e, request->subject, request->sent_at, reply, n, error, now);
        break;
    case SNIB__REQ_ROUTE:
        e->route->answer(e, node, request->number, reply, n, error, now);
        break;
    case SNIB__REQ_TIME:
        snib__clock_answer(e, node, request->sent_at, reply, n, now);
        break;
    default:
        if (error)
            snib__op_fail(e, request->subject, error, text, reply->count);
        else
            snib__ask_answer(e, request->subject, reply, n, conn->resp);
    }
}

/* ---- time ---- */

snib__time snib__node_reply_timeout(const struct snib__engine *e, const struct snib__node *node)
{
    if (!node->ever_ready) /* nothing is held yet that could be lost by patience */
        return e->config.reply_timeout;
    /* Three renewals must fit into the last two thirds of a lease. */
    snib__time share = e->config.lease / 5 > 50 * SNIB__MS ? e->config.lease / 5 : 50 * SNIB__MS;
    return share < e->config.reply_timeout ? share : e->config.reply_timeout;
}
