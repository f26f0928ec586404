/* node.c - the two links of a node: when to connect, what to send, whom a reply belongs to.
 *
 * The command link carries scripts, the pub/sub link subscriptions.  Commands that come while the
 * command link is not ready wait in `todo` and are encoded when they leave, so that the time before
 * the send is the true one.
 *
 * A link that owes a reply for too long is closed: the only answer to doubt about a connection.
 */
#include "engine/ask.h"
#include "engine/internal.h"

#include <stdlib.h>
#include <string.h>

#define NODE_BACKOFF_MIN (10 * SNIB__MS)
#define NODE_BACKOFF_MAX (2000 * SNIB__MS)
#define NODE_EAGER (50 * SNIB__MS) /* a new operation shortens the back-off to this */

bool snib__node_ready(const struct snib__engine *e)
{
    return e->node.links[SNIB__COMMAND].conn.state == SNIB__CONN_READY;
}

/* Whether the server has not been heard for as long as a round trip may take: of what it holds nothing is
 * known now. */
bool snib__node_silent(const struct snib__engine *e, snib__time now)
{
    const struct snib__node *node = &e->node;
    snib__time since = snib__node_ready(e) ? snib__conn_oldest(&node->links[SNIB__COMMAND].conn)
                                           : node->down_since;
    if (!snib__node_ready(e) && node->failed)
        return true;
    return since != SNIB__NEVER && since + e->config.try_timeout <= now;
}

/* ---- sending ---- */

static int node_encode(struct snib__engine *e, int kind, void *subject, struct snib__buf *out)
{
    struct snib__hold *hold = subject;
    struct snib__batch *batch = subject;
    switch (kind) {
    case SNIB__REQ_ACQUIRE:
        return hold->gate->kind->acquire(out, e, hold);
    case SNIB__REQ_RELEASE:
        return hold->gate->kind->release(out, e, hold);
    case SNIB__REQ_TRANSFER:
        return hold->gate->kind->transfer(out, e, hold, hold->gate->wait->incoming);
    case SNIB__REQ_RENEW:
        return snib__kind_of(batch->kind)->renew(out, e, batch->holds, batch->n, batch->lease_ms);
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

/* Append the request's command, and before it its script if the connection has not loaded it.
 * Returns the script, or -1: nothing half-written leaves. */
static int node_append(struct snib__engine *e, const struct snib__request *request, snib__time now)
{
    struct snib__conn *conn = &e->node.links[SNIB__COMMAND].conn;
    size_t size = snib__buf_size(&conn->out);
    int script = node_encode(e, request->kind, request->subject, &conn->out);
    if (script >= 0 && !snib__conn_loaded(conn, script)) {
        node_unwrite(conn, size);
        if (snib__conn_load(conn, script, now) < 0)
            return -1;
        size = snib__buf_size(&conn->out);
        script = node_encode(e, request->kind, request->subject, &conn->out);
    }
    if (script == -1)
        node_unwrite(conn, size);
    return script;
}

static int node_write(struct snib__engine *e, struct snib__request *request, snib__time now)
{
    struct snib__conn *conn = &e->node.links[SNIB__COMMAND].conn;
    size_t size = snib__buf_size(&conn->out);
    uint32_t before = conn->ring_count;
    int script = node_append(e, request, now);
    if (script == -1)
        return -1;
    request->sent_at = now;
    request->script = (int16_t)script;
    struct snib__request second = {.kind = SNIB__REQ_ASK, .script = -1, .sent_at = now};
    if (snib__conn_expect(conn, request) < 0 ||
        (script == SNIB__TWO_COMMANDS && snib__conn_expect(conn, &second) < 0)) {
        node_unwrite(conn, size); /* with a script load, if there was one: its entry goes too */
        conn->ring_count = before;
        return -1;
    }
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

static int node_later(struct snib__engine *e, const struct snib__request *request)
{
    struct snib__node *node = &e->node;
    if (node->todo_n == node->todo_cap)
        node_pack(node);
    if (node->todo_n == node->todo_cap) {
        uint32_t cap = node->todo_cap ? node->todo_cap * 2 : 16;
        struct snib__request *todo = realloc(node->todo, cap * sizeof *todo);
        if (!todo)
            return -1;
        node->todo = todo;
        node->todo_cap = cap;
    }
    node->todo[node->todo_n++] = *request;
    return 0;
}

int snib__node_send(struct snib__engine *e, int kind, void *subject, uint64_t number,
                    snib__time now)
{
    struct snib__request request = {
        .kind = kind, .script = -1, .subject = subject, .number = number, .sent_at = now};
    if (snib__node_ready(e))
        return node_write(e, &request, now);
    if (kind == SNIB__REQ_RENEW || kind == SNIB__REQ_TIME)
        return -1; /* it is asked again when the link is ready */
    if (node_later(e, &request) < 0)
        return -1;
    snib__node_want(e, SNIB__COMMAND, now);
    return 0;
}

/* A subject's request that waits is not to be sent.  It leaves a gap.  When many leave at once they are the
 * oldest or the newest in turn, so the search comes from both ends, and skips the gaps it has found there. */
static void node_unwait(struct snib__node *node, const void *subject)
{
    struct snib__request *todo = node->todo;
    for (uint32_t i = node->todo_first, j = node->todo_n; i < j; i++) {
        j--;
        uint32_t at = todo[i].subject == subject ? i : j;
        if (todo[at].subject != subject)
            continue;
        todo[at].subject = NULL;
        node->todo_gaps++;
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
}

/* Nobody will take the answer for this subject: drop what is not sent, mark what is. */
void snib__node_forget(struct snib__engine *e, void *subject)
{
    struct snib__conn *conn = &e->node.links[SNIB__COMMAND].conn;
    node_unwait(&e->node, subject);
    for (uint32_t i = 0; i < conn->ring_count; i++) {
        struct snib__request *request = &conn->ring[(conn->ring_head + i) & (conn->ring_cap - 1)];
        if (request->subject == subject)
            request->subject = NULL;
    }
}

static void node_flush(struct snib__engine *e, snib__time now)
{
    struct snib__node *node = &e->node;
    struct snib__request *todo = node->todo;
    uint32_t n = node->todo_n;
    node->todo = NULL;
    node->todo_n = node->todo_cap = node->todo_first = node->todo_gaps = 0;
    for (uint32_t i = 0; i < n; i++) {
        struct snib__hold *hold = todo[i].subject;
        if (!hold)
            continue;
        /* An acquire that may have worked and that nobody waits for any more becomes a release. */
        bool undo = todo[i].kind == SNIB__REQ_ACQUIRE && !hold->op;
        if (undo || node_write(e, &todo[i], now) < 0) {
            if (todo[i].kind == SNIB__REQ_ASK)
                snib__op_done(e, todo[i].subject, SNIB_ENOMEM);
            else
                snib__gate_unanswered(e, &todo[i], now);
        }
    }
    free(todo);
}

/* ---- the life of a link ---- */

void snib__node_want(struct snib__engine *e, int link, snib__time now)
{
    struct snib__endpoint *ep = &e->node.links[link];
    ep->wanted = true;
    if (ep->conn.state != SNIB__CONN_DOWN || ep->connecting || ep->connect)
        return;
    if (ep->next_try > now + NODE_EAGER)
        ep->next_try = now + NODE_EAGER;
    ep->connect = ep->next_try <= now;
    if (link == SNIB__COMMAND && e->node.down_since == SNIB__NEVER)
        e->node.down_since = now;
}

int snib__engine_take_wish(struct snib__engine *e, int link)
{
    struct snib__endpoint *ep = &e->node.links[link];
    if (ep->close) {
        ep->close = false;
        return SNIB__WISH_CLOSE;
    }
    if (ep->connect) {
        ep->connect = false;
        ep->connecting = true;
        return SNIB__WISH_CONNECT;
    }
    return SNIB__WISH_NOTHING;
}

static bool node_needed(const struct snib__engine *e, int link)
{
    if (link == SNIB__COMMAND)
        return e->node.todo_n > 0 || e->live || e->releasing || e->stats.held;
    return snib__chan_needed(e);
}

/* Operations that cannot come to an end without the server end now. */
void snib__node_fail_ops(struct snib__engine *e, snib__time now)
{
    for (struct snib__op *op = e->live, *next; op; op = next) {
        next = op->live_next;
        if (snib__outer_is(op->gate))
            continue;
        int32_t code = snib__op_unreached(e, op);
        snib__gate_leave(e, op, now);
        next = op->live_next; /* leaving lets others try, and their end may come of that */
        snib__op_done(e, op, code);
    }
}

/* Refusals that another attempt will meet, too.  One that came when the link had been ready is not: it is
 * logged in on anew. */
static bool node_hopeless(int32_t code, bool was_ready)
{
    if (was_ready && code == SNIB_EAUTH)
        return false;
    return code == SNIB_EAUTH || code == SNIB_EPERM || code == SNIB_EDATABASE ||
           code == SNIB_EPROTOCOL;
}

static void node_command_down(struct snib__engine *e, snib__time since, bool was_ready,
                              int32_t code, int os_error, snib__time now)
{
    struct snib__node *node = &e->node;
    struct snib__conn *conn = &node->links[SNIB__COMMAND].conn;
    struct snib__request request;
    if (since > node->dull_since)
        since = node->dull_since; /* it was ready meanwhile, but of no use */
    if (node->down_since == SNIB__NEVER || node->down_since > since)
        node->down_since = since < now ? since : now;
    node->failed = true;
    node->failure = code;
    node->os_error = os_error;
    memcpy(node->words, conn->words, sizeof node->words);
    while (snib__conn_orphan(conn, &request)) {
        if (!request.subject)
            continue;
        if (request.kind == SNIB__REQ_TIME) {
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
    if (node_hopeless(code, was_ready))
        snib__node_fail_ops(e, now);
    for (struct snib__op *op = e->live; op; op = op->live_next)
        snib__op_arm(e, op);
}

void snib__engine_link_down(struct snib__engine *e, int link, int32_t code, int os_error,
                            snib__time now)
{
    struct snib__endpoint *ep = &e->node.links[link];
    if (ep->conn.failure) {
        code = ep->conn.failure;
        os_error = 0;
    }
    snib__time oldest = snib__conn_oldest(&ep->conn);
    bool was_ready = ep->conn.state == SNIB__CONN_READY;
    ep->connecting = false;
    snib__conn_reset(&ep->conn);
    ep->conn.failure = 0;
    /* The first attempt has jitter too: a server that goes, or a Sentinel, ends all its clients at once. */
    ep->next_try = now + ep->backoff / 2 +
                   snib__engine_random(e, ep->backoff ? ep->backoff / 2 : NODE_BACKOFF_MIN);
    ep->backoff = ep->backoff == 0                     ? NODE_BACKOFF_MIN
                  : ep->backoff * 2 > NODE_BACKOFF_MAX ? NODE_BACKOFF_MAX
                                                       : ep->backoff * 2;
    if (link == SNIB__PUBSUB) {
        snib__chan_pubsub_down(e, now);
    } else {
        snib__engine_log(e, SNIB_LOG_WARNING, "no connection to %s: %s", snib__engine_where(e),
                         os_error ? strerror(os_error) : snib_code_text(code));
        node_command_down(e, oldest, was_ready, code, os_error, now);
    }
    ep->wanted = node_needed(e, link);
    if (link == SNIB__COMMAND && !ep->wanted)
        e->node.down_since = e->node.dull_since = SNIB__NEVER;
}

/* Close a link that cannot be trusted any more. */
static void node_close(struct snib__engine *e, int link, int32_t code, snib__time now)
{
    e->node.links[link].close = true;
    snib__engine_link_down(e, link, code, 0, now);
}

void snib__engine_link_up(struct snib__engine *e, int link, snib__time now)
{
    struct snib__endpoint *ep = &e->node.links[link];
    ep->connecting = false;
    if (snib__conn_begin(&ep->conn, &e->config.login, now) < 0)
        node_close(e, link, SNIB_ENOMEM, now);
}

static void node_command_ready(struct snib__engine *e, snib__time now)
{
    struct snib__node *node = &e->node;
    struct snib__conn *conn = &node->links[SNIB__COMMAND].conn;
    bool other = node->ever_ready && strcmp(node->run_id, conn->run_id) != 0;
    memcpy(node->run_id, conn->run_id, sizeof node->run_id);
    if (node->ever_ready)
        e->stats.reconnects++;
    else if (conn->evicts)
        snib__engine_log(
            e, SNIB_LOG_WARNING,
            "the server may evict locks when memory is short: set maxmemory-policy noeviction");
    snib__engine_log(e, SNIB_LOG_INFO, "connected to %s", snib__engine_where(e));
    if (other)
        snib__engine_log(e, SNIB_LOG_WARNING, "the server was restarted or is another one");
    node->ever_ready = true;
    node->failed = false;
    node->dull_since = node->down_since;
    node->down_since = SNIB__NEVER;
    node->ready_since = now;
    snib__clock_begin(e, now);
    node_flush(e, now);
    snib__watchdog_reconnected(e, other, now);
    snib__wait_recheck_all(e, now);
}

/* ---- replies ---- */

static int32_t node_error(const struct snib__conn *conn, const struct snib__value *reply)
{
    return reply->type == SNIB__RESP_ERROR
               ? snib__conn_classify(snib__resp_text(conn->resp, reply), reply->count)
               : 0;
}

/* An error by which a node says that it is no master, that it can do nothing yet, or that it does not know
 * this connection (any more): it has done nothing, and the connection is of no use. */
static bool node_disowns(const struct snib__conn *conn, const struct snib__value *reply)
{
    int32_t error = node_error(conn, reply);
    return error == SNIB_EREADONLY || error == SNIB_ELOADING ||
           (error == SNIB_EAUTH && snib__conn_is_stranger(snib__resp_text(conn->resp, reply)));
}

/* The request goes to whoever is found next, like one that was never sent. */
static void node_disowned(struct snib__engine *e, const struct snib__request *request,
                          int32_t error, const char *text, uint32_t n, snib__time now)
{
    struct snib__conn *conn = &e->node.links[SNIB__COMMAND].conn;
    snib__words(conn->words, sizeof conn->words, text, n, e->config.login.password);
    if (request->subject && request->kind == SNIB__REQ_RENEW)
        snib__watchdog_unanswered(e, request->subject, now);
    else if (request->subject && request->kind != SNIB__REQ_TIME && node_later(e, request) < 0)
        snib__conn_expect(conn, request); /* it is with those that have no answer */
    node_close(e, SNIB__COMMAND, error, now);
}

static void node_answer(struct snib__engine *e, struct snib__request *request,
                        const struct snib__value *reply, uint32_t n, snib__time now)
{
    struct snib__conn *conn = &e->node.links[SNIB__COMMAND].conn;
    int32_t error = node_error(conn, reply);
    const char *text = error ? snib__resp_text(conn->resp, reply) : "";
    if (node_disowns(conn, reply)) {
        node_disowned(e, request, error, text, reply->count, now);
        return;
    }
    if (request->script == SNIB__TWO_COMMANDS && (error == SNIB_ENOTSUP || error == SNIB_EPERM) &&
        request->subject) {
        conn->delifeq = conn->delex =
            false; /* a proxy knows less, or the user may not: by script */
        if (node_write(e, request, now) == 0)
            return;
    }
    if (error == SNIB_AGAIN) {                /* NOSCRIPT: nothing was done */
        if (request->kind != SNIB__REQ_RENEW) /* that is tried again in any case */
            error = SNIB_EPERM;
        if (request->script >= 0 && request->tries++ == 0 &&
            snib__conn_load(conn, request->script, now) == 0 && request->subject &&
            request->kind != SNIB__REQ_RENEW && node_write(e, request, now) == 0)
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
    case SNIB__REQ_TIME:
        snib__clock_answer(e, request->sent_at, reply, n, conn->resp, now);
        break;
    default:
        if (error)
            snib__op_fail(e, request->subject, error, text, reply->count);
        else
            snib__ask_answer(e, request->subject, reply, n, conn->resp);
    }
}

/* The first answer on a connection.  One that only lets us in, and ends at the first request, is as good as
 * none: the pauses between attempts grow, and patience ends. */
static void node_proven(struct snib__engine *e, int link)
{
    struct snib__endpoint *ep = &e->node.links[link];
    ep->proven = true;
    ep->backoff = 0;
    if (link == SNIB__COMMAND)
        e->node.dull_since = SNIB__NEVER;
}

void snib__engine_input(struct snib__engine *e, int link, const char *bytes, size_t n,
                        snib__time now)
{
    struct snib__endpoint *ep = &e->node.links[link];
    struct snib__request request;
    const struct snib__value *reply;
    uint32_t reply_n;
    int more;
    if (ep->conn.state == SNIB__CONN_DOWN)
        return;
    if (snib__resp_feed(ep->conn.resp, bytes, n) < 0) {
        node_close(e, link, SNIB_EPROTOCOL, now);
        return;
    }
    do {
        bool was_ready = ep->conn.state == SNIB__CONN_READY;
        more = snib__conn_next(&ep->conn, &request, &reply, &reply_n);
        if (more < 0) {
            node_close(e, link, SNIB_EPROTOCOL, now);
            return;
        }
        if (!was_ready && ep->conn.state == SNIB__CONN_READY) {
            ep->proven = false;
            e->stats.connects++;
            if (link == SNIB__COMMAND)
                node_command_ready(e, now);
            else
                snib__chan_pubsub_ready(e, now);
        }
        if (more && !ep->proven && !node_disowns(&ep->conn, reply))
            node_proven(e, link);
        if (more && link == SNIB__COMMAND)
            node_answer(e, &request, reply, reply_n, now);
        else if (more && node_disowns(&ep->conn, reply))
            node_close(e, link, node_error(&ep->conn, reply), now);
        else if (more)
            snib__chan_pubsub(e, reply, reply_n, now);
    } while (more && ep->conn.state != SNIB__CONN_DOWN);
}

/* ---- time ---- */

snib__time snib__node_reply_timeout(const struct snib__engine *e)
{
    if (!e->node.ever_ready) /* nothing is held yet that could be lost by patience */
        return e->config.reply_timeout;
    /* Three renewals must fit into the last two thirds of a lease. */
    snib__time share = e->config.lease / 5 > 50 * SNIB__MS ? e->config.lease / 5 : 50 * SNIB__MS;
    return share < e->config.reply_timeout ? share : e->config.reply_timeout;
}

void snib__node_tick(struct snib__engine *e, snib__time now)
{
    for (int link = 0; link < 2; link++) {
        struct snib__endpoint *ep = &e->node.links[link];
        snib__time oldest = snib__conn_oldest(&ep->conn);
        if (ep->conn.state != SNIB__CONN_DOWN && oldest != SNIB__NEVER &&
            oldest + snib__node_reply_timeout(e) <= now)
            node_close(e, link, SNIB_EUNREACHABLE, now);
        if (link == SNIB__PUBSUB && snib__chan_silent(e, now))
            node_close(e, link, SNIB_EUNREACHABLE, now);
        if (ep->conn.state == SNIB__CONN_DOWN && ep->wanted && !ep->connecting &&
            ep->next_try <= now)
            ep->connect = true;
    }
}

snib__time snib__node_deadline(const struct snib__engine *e)
{
    snib__time next = snib__chan_deadline(e);
    for (int link = 0; link < 2; link++) {
        const struct snib__endpoint *ep = &e->node.links[link];
        snib__time at = SNIB__NEVER;
        if (ep->connect || ep->close)
            return 0; /* a wish is there to be taken */
        if (ep->conn.state != SNIB__CONN_DOWN) {
            at = snib__conn_oldest(&ep->conn);
            if (at != SNIB__NEVER)
                at += snib__node_reply_timeout(e);
        } else if (ep->wanted && !ep->connecting) {
            at = ep->next_try;
        }
        next = at < next ? at : next;
    }
    return next;
}
