/* node.c - one server: its links, its replies, and what is known about it.
 *
 * The command link carries scripts, the pub/sub link subscriptions.  send.c sends the requests,
 * lane.c has the further command links.
 */
#include "engine/ask.h"
#include "engine/internal.h"
#include "engine/route.h"
#include "net/script.h"

#include <stdlib.h>
#include <string.h>

#define NODE_TELL_AGAIN (60000 * SNIB__MS) /* between log records of the same failure to connect */
#define NODE_MISFITS 3 /* an operation ends with so many replies to it that do not fit */

static void node_set_address(struct snib__node *node, const struct snib__address *address)
{
    node->address = *address;
    node->addressed = true;
    node->told_failure = 0;
    node->refused_at = 0;
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
    node->down_since = node->dull_since = node->ask_at = SNIB__NEVER;
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
    for (int kind = 0; kind < 2; kind++)
        snib__link_free(e, &node->links[kind]);
    for (int i = 0; i < SNIB__LANES_MAX; i++)
        snib__link_free(e, &node->lanes[i]);
    snib__durable_free(node);
    free(node->todo);
    free(node);
}

bool snib__node_ready(const struct snib__node *node)
{
    return node->links[SNIB__COMMAND].conn.state == SNIB__CONN_READY;
}

bool snib__node_listens(const struct snib__node *node)
{
    return node->links[SNIB__PUBSUB].conn.state == SNIB__CONN_READY;
}

/* Its address for messages. */
const char *snib__node_where(const struct snib__engine *e, const struct snib__node *node)
{
    return node->where[0] ? node->where : snib__engine_where(e);
}

/* Whether the server has been silent for as long as a round trip may take, so that nothing is
 * known now about what it holds. */
bool snib__node_silent(const struct snib__engine *e, const struct snib__node *node, snib__time now)
{
    snib__time since = snib__node_ready(node) ? snib__node_oldest(node) : node->down_since;
    if (!snib__node_ready(node) && node->failed)
        return true;
    return since != SNIB__NEVER && since + e->config.try_timeout <= now;
}

/* ---- nodes that appear, move and disappear ---- */

int snib__node_ask(struct snib__engine *e, struct snib__node *node, uint64_t what, snib__time now)
{
    return snib__node_send(e, SNIB__REQ_ROUTE, node, what, now);
}

void snib__node_rename(struct snib__engine *e, struct snib__node *node,
                       const struct snib__address *address)
{
    (void)e;
    node_set_address(node, address);
    node->idle = node->ever_ready = node->failed = node->inherited = false;
    node->down_since = node->dull_since = node->ask_at = SNIB__NEVER;
    node->failure = SNIB_EUNREACHABLE;
    node->words[0] = 0;
    node->moved_at = node->failed_over_at = node->astray_at = node->shortens_at = 0;
    node->moved_back = false;
    snib__durable_renamed(node);
    for (int kind = 0; kind < 2; kind++) {
        node->links[kind].backoff = 0;
        node->links[kind].next_try = 0;
        node->links[kind].wanted = false;
    }
}

/* Another server has taken over from the one that granted the node's holds: each must be confirmed there, but those
 * of locks of several clients, which their members' clients confirm. */
static void node_failed_over(struct snib__engine *e, struct snib__node *node, snib__time now)
{
    node->failed_over_at = now;
    node->inherited = true;
    for (uint32_t i = 0; i < e->gates_cap; i++)
        for (struct snib__gate *gate = e->gates[i]; gate; gate = gate->next)
            for (struct snib__hold *hold = gate->node == node ? snib__gate_first(gate) : NULL; hold;
                 hold = snib__gate_next(gate, hold))
                if ((hold->phase == SNIB__HELD || hold->phase == SNIB__RELEASING) &&
                    hold->deadline != SNIB__NEVER && !snib__outer_is(gate))
                    hold->flags |= SNIB__INHERITED;
}

void snib__node_readdress(struct snib__engine *e, struct snib__node *node,
                          const struct snib__address *address, snib__time now)
{
    if (node->addressed)
        node_failed_over(e, node, now);
    node->identity++;
    node->leaving = true;
    node_set_address(node, address);
    snib__lane_close_all(e, node, SNIB_EUNREACHABLE, now);
    for (int kind = 0; kind < 2; kind++) {
        struct snib__link *link = &node->links[kind];
        if (link->conn.state != SNIB__CONN_DOWN || link->connecting)
            snib__link_close(e, link, SNIB_EUNREACHABLE, now);
        link->backoff = 0;
        link->next_try = now;
        link->connect = link->wanted;
    }
    node->leaving = false;
}

/* The patience of its operations begins, or counts from another time. */
static void node_arm_ops(struct snib__engine *e, const struct snib__node *node)
{
    for (struct snib__op *op = e->live; op; op = op->live_next)
        if (snib__op_node(op) == node)
            snib__op_arm(e, op);
}

void snib__node_want(struct snib__engine *e, struct snib__node *node, snib__time now)
{
    struct snib__link *link = &node->links[SNIB__COMMAND];
    bool idle = link->conn.state == SNIB__CONN_DOWN && !link->connecting && !link->connect;
    snib__link_want(e, link, now);
    if (idle && node->down_since == SNIB__NEVER) {
        node->down_since = now;
        node_arm_ops(e, node);
    }
    if (!node->addressed)
        snib__route_wanted(e, node, now);
}

/* Whether anything is held or in flight at one of many nodes. */
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

bool snib__node_needed(const struct snib__engine *e, const struct snib__node *node, snib__time now)
{
    if (node->todo_n > 0 || snib__durable_pending(node) || snib__given_waits(e, node, now))
        return true;
    return e->slots ? node_serves(e, node) : snib__engine_busy(e);
}

/* End the operations that cannot finish without the server. */
void snib__node_fail_ops(struct snib__engine *e, const struct snib__node *node, snib__time now)
{
    for (struct snib__op *op = e->live, *next; op; op = next) {
        next = op->live_next;
        if (snib__outer_is(op->gate) || snib__op_node(op) != node)
            continue;
        int32_t code = snib__op_unreached(e, op);
        snib__gate_leave(e, op, now);
        next = op->live_next; /* leaving lets other operations try, and that may end them */
        snib__op_done(e, op, code);
    }
}

/* Codes that come with a sentence from the driver; with an os_error they may be temporary. */
bool snib__node_explained(int32_t code)
{
    return code == SNIB_ETLS || code == SNIB_ECREDENTIALS;
}

/* Refusals that the next attempt will meet again.  A refusal on a link that was ready is not one of
 * these, because the next connection logs in again and rereads the certificates; nor are replies out of step. */
bool snib__node_hopeless(int32_t code, int os_error, bool was_ready)
{
    if (was_ready && (code == SNIB_EAUTH || code == SNIB_EPROTOCOL || snib__node_explained(code)))
        return false;
    return code == SNIB_EAUTH || code == SNIB_EPERM || code == SNIB_EDATABASE ||
           code == SNIB_EPROTOCOL || (snib__node_explained(code) && !os_error) ||
           code == SNIB_ENOTSUP || code == SNIB_ETOPOLOGY;
}

/* An attempt that fails like the last one is logged once a minute. */
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
                     snib__node_explained(code) && conn->words[0]
                         ? conn->words
                         : snib__engine_why(code, os_error));
}

/* ---- what a former server says ---- */

/* In a cluster.  ASK brings a request to a node that serves the name only later, or never; if it serves the name meanwhile,
 * another server may have done so between.  What is sent once stays as it was answered. */
bool snib__node_is_former(const struct snib__engine *e, const struct snib__link *link,
                          const struct snib__request *request)
{
    const struct snib__op *op = request->subject;
    const struct snib__hold *hold = request->subject;
    const struct snib__gate *gate = request->kind == SNIB__REQ_ASK ? op->gate : hold->gate;
    if (!e->slots || !gate || snib__sent_once(request))
        return false;
    bool moved = snib__gate_moved(e, gate, request->sent_at), elsewhere = gate->node != link->node;
    return moved || (elsewhere && !request->asking);
}

/* What a former server has released, the next one may still have.  link NULL: it has ended since. */
static void node_answer_release(struct snib__engine *e, const struct snib__link *link,
                                const struct snib__request *request,
                                const struct snib__value *reply, uint32_t n, int32_t error,
                                const char *text, snib__time now)
{
    struct snib__hold *hold = request->subject;
    bool moved = link ? snib__node_is_former(e, link, request)
                      : snib__gate_moved(e, hold->gate, request->sent_at);
    bool former = moved && !error && !hold->passed;
    struct snib__hold *rest = former ? snib__hold_again(e, hold) : NULL;
    snib__gate_answer_release(e, hold, request->sent_at, former, reply, n, error, text, now);
    if (!rest)
        return;
    rest->acquired_at = 0;
    snib__gate_release(e, rest, now);
}

/* ---- two commands for a release ---- */

/* The first reply says whether the hold was there, the second how many hear of it.  Turns depend on that number, so the
 * release ends with the second: the request takes its place among those that are awaited. */
static bool node_halved(struct snib__conn *conn, const struct snib__request *request,
                        const struct snib__value *reply)
{
    if (request->script != SNIB__TWO_COMMANDS || !request->subject ||
        reply->type != SNIB__RESP_INTEGER || conn->ring_count == 0)
        return false;
    struct snib__request *second = &conn->ring[conn->ring_head];
    *second = *request;
    second->half = reply->integer > 0 ? SNIB__HALF_FOUND : SNIB__HALF_MISSED;
    return true;
}

/* Both replies together are what the script would say: `heard` is -1 if the message was refused. */
static void node_whole(struct snib__engine *e, const struct snib__link *link,
                       const struct snib__request *request, int64_t heard, snib__time now)
{
    bool found = request->half == SNIB__HALF_FOUND;
    struct snib__value whole = {.type = SNIB__RESP_INTEGER,
                                .integer = !found      ? 0
                                           : heard < 0 ? -1
                                                       : 1 + heard};
    node_answer_release(e, link, request, &whole, 1, 0, "", now);
}

/* ---- */

void snib__node_orphan(struct snib__engine *e, const struct snib__request *request, int32_t code,
                       int os_error, snib__time now)
{
    if (!request->subject || snib__request_own(request))
        return;
    snib__request_note_link(request, NULL);
    if (request->half) {
        node_whole(e, NULL, request, 0, now);
    } else if (request->kind == SNIB__REQ_RENEW) {
        snib__watchdog_unanswered(e, request->subject, now);
    } else if (request->kind != SNIB__REQ_ASK) {
        snib__gate_unanswered(e, request, now);
    } else {
        struct snib__op *op = request->subject;
        op->os_error = os_error;
        op->cause = code;
        snib__extend_unsure(op);
        if (snib__sent_once(request) || snib__node_send(e, SNIB__REQ_ASK, op, 0, now) < 0)
            snib__op_done(e, op, SNIB_EUNREACHABLE);
    }
}

/* Resend or end the unanswered requests; the operations' patience begins. */
void snib__node_link_down(struct snib__engine *e, struct snib__link *link, snib__time since,
                          bool was_ready, int32_t code, int os_error, snib__time now)
{
    struct snib__node *node = link->node;
    struct snib__conn *conn = &link->conn;
    struct snib__request request;
    bool leaves = node->leaving || (node->idle && link->close && code == SNIB_EUNREACHABLE);
    if (!leaves) /* otherwise the client has closed it, because the server is another, or the cluster's map does not name it */
        node_tell_failure(e, node, conn, code, os_error, now);
    if (since > node->dull_since)
        since = node->dull_since; /* it was ready meanwhile, but useless */
    if (node->down_since == SNIB__NEVER || node->down_since > since)
        node->down_since = since < now ? since : now;
    node->failed = true;
    node->failure = code;
    node->os_error = os_error;
    memcpy(node->words, conn->words, sizeof node->words);
    if (code == SNIB_ETOPOLOGY)
        snib__route_misfit_words(e, link, node->words);
    while (snib__conn_orphan(conn, &request)) {
        snib__lane_answered(e, link, &request);
        snib__node_orphan(e, &request, code, os_error, now);
    }
    /* Credentials requested at each connect may be right the next time,
     * if they have worked before. */
    bool renewed = e->config.asks && node->kind == SNIB__SERVER && node->ever_ready &&
                   (code == SNIB_EAUTH || code == SNIB_ECREDENTIALS);
    if (!renewed && snib__node_hopeless(code, os_error, was_ready))
        snib__node_fail_ops(e, node, now);
    node_arm_ops(e, node);
}

void snib__node_unended(struct snib__engine *e, struct snib__node *node, bool left)
{
    uint8_t told = left ? 2 : 1;
    if (node->kind != SNIB__SERVER || e->told_unended >= told)
        return;
    e->told_unended = told;
    if (left)
        snib__engine_log(
            e, SNIB_LOG_WARNING,
            "a broken connection to %s could not be killed: requests left on it may take "
            "a lock for one lease; allow this user +info +client|id +client|kill",
            snib__node_where(e, node));
    else
        snib__engine_log(e, SNIB_LOG_INFO,
                         "broken connections to %s cannot be killed: requests left on one may take "
                         "a lock for one lease; allow this user +info +client|id +client|kill",
                         snib__node_where(e, node));
}

/* Warn if broken connections cannot be ended at the server, or one was not: what was left on that may still arrive. */
static void node_check_ends(struct snib__engine *e, struct snib__node *node,
                            struct snib__conn *conn)
{
    if (conn->left && node->astray_at)
        node->shortens_at = node->astray_at;
    node->astray_at = 0;
    if (conn->left || conn->server_id == 0 || conn->run_id[0] == 0)
        snib__node_unended(e, node, conn->left);
    conn->left = false;
}

void snib__node_link_ready(struct snib__engine *e, struct snib__link *link, snib__time now)
{
    struct snib__node *node = link->node;
    struct snib__conn *conn = &link->conn;
    conn->publish = e->route->publish ? (uint8_t)e->route->publish(e, link) : SNIB__CLASSIC;
    bool other = node->ever_ready && strcmp(node->run_id, conn->run_id) != 0;
    bool same = node->ever_ready && !other && conn->run_id[0];
    /* Demoted and promoted again, the same process has the data of the master between. */
    bool replaced = node->ever_ready && !other && node->history && conn->history &&
                    node->history != conn->history;
    memcpy(node->run_id, conn->run_id, sizeof node->run_id);
    node->history = conn->history;
    node->identity += other || replaced;
    if (replaced)
        node_failed_over(e, node, now);
    struct snib__link *ear = &node->links[SNIB__PUBSUB];
    /* it may still be connected to the old server */
    if ((other || replaced) && (ear->conn.state != SNIB__CONN_DOWN || ear->connecting))
        snib__link_close(e, ear, SNIB_EUNREACHABLE, now);
    /* However long it has had to pause: the server answers, and its waiters hear nothing before. */
    ear->next_try = ear->next_try < now ? ear->next_try : now;
    if (node->ever_ready)
        e->stats.reconnects += node->kind == SNIB__SERVER;
    else if (conn->evicts)
        snib__engine_log(e, SNIB_LOG_WARNING,
                         "%s may evict locks when memory is short: set maxmemory-policy noeviction",
                         snib__node_where(e, node));
    if (e->config.insecure && !e->told_insecure)
        snib__engine_log(
            e, SNIB_LOG_WARNING,
            "tls_insecure: certificates are not verified, so anyone between the client "
            "and the server can read and change all traffic");
    e->told_insecure = true;
    snib__engine_log(e, SNIB_LOG_INFO, "connected to %s", snib__node_where(e, node));
    node_check_ends(e, node, conn);
    if (other)
        snib__engine_log(e, SNIB_LOG_WARNING, "%s was restarted or replaced",
                         snib__node_where(e, node));
    if (replaced)
        snib__engine_log(e, SNIB_LOG_INFO, "%s has replicated from another server meanwhile",
                         snib__node_where(e, node));
    node->ever_ready = true;
    node->failed = false;
    node->told_failure = 0;
    node->dull_since = node->down_since;
    node->down_since = SNIB__NEVER;
    node->ready_since = now;
    snib__clock_begin(e, node, same, now);
    snib__lane_first_ready(e, node, now);
    if (snib__lane_kill(e, node, now) < 0) { /* nothing may be sent before it */
        snib__link_close(e, link, SNIB_ENOMEM, now);
        return;
    }
    snib__node_flush(e, node, now);
    snib__durable_node_ready(e, node, now);
    snib__watchdog_reconnected(e, node, other || node->inherited, now);
    node->inherited = false;
    snib__given_redo(e, now);
    snib__wait_recheck_all(e, node, now);
}

/* ---- replies ---- */

/* A lane whose login the server has forgotten.  The others may still be logged in, and what is on the way there must
 * not fall into doubt: only this one is closed. */
static void node_lane_logged_out(struct snib__engine *e, struct snib__link *link,
                                 const struct snib__request *request, snib__time now)
{
    snib__link_close(e, link, SNIB_EAUTH, now);
    if (!request->subject || snib__request_own(request))
        return;
    if (request->kind == SNIB__REQ_RENEW)
        snib__watchdog_unanswered(e, request->subject, now);
    else
        snib__node_again(e, request, now);
}

/* Keep the request for the node found next, like one that was never sent.  One that only ASK has brought here, or whose
 * name has moved meanwhile, goes to the node of its name. */
static void node_disowned(struct snib__engine *e, struct snib__link *link,
                          const struct snib__request *request, int32_t error, const char *text,
                          uint32_t n, snib__time now)
{
    struct snib__conn *conn = &link->conn;
    struct snib__node *node = link->node;
    struct snib__link *first = &node->links[SNIB__COMMAND];
    bool again =
        request->subject && request->kind != SNIB__REQ_RENEW && !snib__request_own(request);
    bool here = again && snib__request_node(request) == node;
    snib__request_note_link(request, NULL);
    if (error == SNIB_EAUTH && link != first && !snib__durable_is(link) && snib__node_ready(node)) {
        node_lane_logged_out(e, link, request, now);
        return;
    }
    snib__words(conn->words, sizeof conn->words, text, n, conn->password);
    if (request->subject && request->kind == SNIB__REQ_RENEW)
        snib__watchdog_unanswered(e, request->subject, now);
    else if (here && snib__node_later(node, request) < 0)
        snib__conn_expect(conn, request); /* handle it with the unanswered requests */
    if (link != first)
        memcpy(first->conn.words, conn->words, sizeof conn->words);
    if (link != first && first->conn.state != SNIB__CONN_DOWN)
        snib__link_close(e, first, error, now); /* the whole node is affected */
    snib__link_close(e, link, error, now);
    if (again && !here)
        snib__node_again(e, request, now);
    else if (here && !first->wanted) /* it was down already, with nothing to do */
        snib__node_want(e, node, now);
}

/* The server did not know the script: load it and resend the requests that need it.  Returns SNIB_OK, or why the request
 * is not sent again: SNIB_EPERM, the script was loaded and is not there; SNIB_ENOMEM. */
static int32_t node_send_again(struct snib__engine *e, struct snib__link *link,
                               struct snib__request *request, snib__time now)
{
    if (request->script < 0 || request->tries++ > 0)
        return SNIB_EPERM;
    if (snib__conn_unknown(&link->conn, request->script, now) < 0)
        return SNIB_ENOMEM;
    if (!request->subject)
        return SNIB_OK; /* nobody waits for it any more */
    if (request->kind != SNIB__REQ_RENEW)
        return snib__link_write(e, link, request, now) < 0 ? SNIB_ENOMEM : SNIB_OK;
    const struct snib__batch *batch = request->subject;
    snib__watchdog_again(e, request, batch->narrow, now); /* some may have been released */
    return SNIB_OK;
}

/* What a former server says of a grant, or of another lease, is as good as no reply. */
static bool node_grants_no_more(const struct snib__engine *e, const struct snib__link *link,
                                const struct snib__request *request)
{
    bool grants = request->kind == SNIB__REQ_ACQUIRE || request->kind == SNIB__REQ_TRANSFER ||
                  (request->kind == SNIB__REQ_ASK &&
                   ((struct snib__op *)request->subject)->kind == SNIB__OP_EXTEND);
    return grants && snib__node_is_former(e, link, request);
}

/* A reply of a form that the script of the request never returns: it answers another request, and so may all others on this
 * link.  The requests are without a reply then. */
static bool node_misfits(const struct snib__request *request, const struct snib__value *reply,
                         uint32_t n)
{
    const struct snib__hold *hold = request->subject;
    const struct snib__batch *batch = request->subject;
    const struct snib__op *op = request->subject;
    switch (request->kind) {
    case SNIB__REQ_ACQUIRE:
        return !snib__reply_fits(hold->gate->kind->acquires, reply, n);
    case SNIB__REQ_RELEASE:
        return hold->passed /* tenure.c asks */
                   ? !snib__reply_fits_renewal(1, reply, n)
                   : !snib__reply_fits(hold->gate->kind->releases, reply, n);
    case SNIB__REQ_TRANSFER:
        return !snib__reply_fits(hold->gate->kind->transfers, reply, n);
    case SNIB__REQ_RENEW:
        return !snib__reply_fits_renewal(batch->n, reply, n);
    case SNIB__REQ_ASK:
        return op->kind == SNIB__OP_EXTEND && !snib__reply_fits_renewal(1, reply, n);
    default:
        return false;
    }
}

/* An operation that meets this again and again ends: a peer that always answers it like this does so on each connection. */
static void node_count_misfit(struct snib__engine *e, struct snib__op *op, snib__time now)
{
    if (!op || ++op->misfits < NODE_MISFITS)
        return;
    snib__gate_leave(e, op, now);
    snib__op_done(e, op, SNIB_EPROTOCOL);
}

/* Whether an operation waits for the release; for the question of tenure.c there may be several. */
static bool node_waited(const struct snib__hold *hold)
{
    const bool passed = hold->passed;
    while (hold && !hold->op)
        hold = passed ? hold->next : NULL;
    return hold != NULL;
}

/* The lease will end what such a peer may have; another server that takes over is told again. */
static void node_gives_up(struct snib__engine *e, struct snib__hold *hold, snib__time now)
{
    struct snib__gate *gate = hold->gate;
    snib__gate_ref(gate);
    snib__gate_released(e, hold, SNIB_LOST, now);
    snib__gate_advance(e, gate, now);
    snib__gate_put(e, gate);
}

/* Replies are out of step: the link ends, and with it what is on the way there.  The request is among that again, because it
 * may be carried out later.  A hand-over becomes a release, and releases that nobody waits for end like operations. */
static void node_misfit(struct snib__engine *e, struct snib__link *link,
                        const struct snib__request *request, snib__time now)
{
    struct snib__node *node = link->node;
    struct snib__request left = *request;
    struct snib__hold *hold = request->subject;
    bool releases = request->kind == SNIB__REQ_RELEASE, hands = request->kind == SNIB__REQ_TRANSFER;
    bool alone = releases && !node_waited(hold);
    if (alone && node->misfits < NODE_MISFITS)
        node->misfits++;
    bool over = alone && node->misfits == NODE_MISFITS;
    if (over || hands)
        left.subject = NULL;
    snib__conn_expect(&link->conn, &left); /* in the place that it has just left */
    for (struct snib__hold *each = releases ? hold : NULL; each;
         each = hold->passed ? each->next : NULL)
        node_count_misfit(e, each->op, now);
    if (!releases && !hands)
        node_count_misfit(e, snib__request_op(request), now);
    snib__link_close(e, link, SNIB_EPROTOCOL, now);
    if (over)
        node_gives_up(e, hold, now);
    if (!hands)
        return;
    hold->flags |= SNIB__RESENT;
    snib__sole_answer_transfer(e, hold, request->sent_at, NULL, 0, SNIB_EPROTOCOL, "", now);
}

void snib__node_answer(struct snib__engine *e, struct snib__link *link,
                       struct snib__request *request, const struct snib__value *reply, uint32_t n,
                       snib__time now)
{
    struct snib__node *node = link->node;
    struct snib__conn *conn = &link->conn;
    if (!request->half && node_halved(conn, request, reply))
        return;
    snib__lane_answered(e, link, request);
    int32_t error = snib__link_error(link, reply);
    const char *text = error ? snib__resp_text(conn->resp, reply) : "";
    if (request->subject && !error && node_misfits(request, reply, n)) {
        node_misfit(e, link, request, now);
        return;
    }
    if (request->half && request->subject) {
        snib__pause_served(e, request);
        node_whole(e, link, request, error ? -1 : reply->integer, now);
        request->subject = NULL;
    }
    if (error && snib__route_redirected(e, link, request, text, reply->count, now))
        return;
    snib__pause_served(e, request);
    if (snib__link_disowns(link, reply)) {
        node_disowned(e, link, request, error, text, reply->count, now);
        return;
    }
    if (request->script == SNIB__TWO_COMMANDS && (error == SNIB_ENOTSUP || error == SNIB_EPERM) &&
        request->subject) {
        /* new connections copy its abilities */
        struct snib__conn *first = &node->links[SNIB__COMMAND].conn;
        /* a proxy supports less, or the user may not: use the script */
        first->delifeq = first->delex = conn->delifeq = conn->delex = false;
        if (request->kind ==
            SNIB__REQ_RELEASE) { /* its gate's node decides, which sends here what has gone ahead */
            const struct snib__hold *hold = request->subject;
            first = &hold->gate->node->links[SNIB__COMMAND].conn;
            first->delifeq = first->delex = false;
        }
        if (snib__link_write(e, link, request, now) == 0)
            return;
    }
    if (error == SNIB_AGAIN) { /* NOSCRIPT: nothing was carried out */
        int32_t code = node_send_again(e, link, request, now);
        if (code == SNIB_OK)
            return;
        if (request->kind != SNIB__REQ_RENEW) /* the watchdog retries it in any case */
            error = code;
    }
    if (!request->subject)
        return;
    if (!error && node_grants_no_more(e, link, request)) {
        snib__node_orphan(e, request, SNIB_EUNREACHABLE, 0, now);
        return;
    }
    switch (request->kind) {
    case SNIB__REQ_ACQUIRE:
        snib__gate_answer_acquire(e, link, request, reply, n, error, text, now);
        break;
    case SNIB__REQ_RELEASE:
        node->misfits = 0;
        node_answer_release(e, link, request, reply, n, error, text, now);
        break;
    case SNIB__REQ_TRANSFER:
        snib__sole_answer_transfer(e, request->subject, request->sent_at, reply, n, error, text,
                                   now);
        break;
    case SNIB__REQ_RENEW:
        snib__watchdog_answer(e, node, request->subject, request->sent_at, reply, n, error, text,
                              now);
        break;
    case SNIB__REQ_KILL: /* or there was nothing to end; the link may owe the end of a later connection by now */
        if (((struct snib__link *)request->subject)->conn.kill_id == (int64_t)request->number)
            ((struct snib__link *)request->subject)->conn.kill_id = 0;
        if (error)
            snib__node_unended(e, node, true);
        break;
    case SNIB__REQ_WAIT:
    case SNIB__REQ_COUNT:
        snib__durable_answer(e, link, request, reply, error, now);
        break;
    case SNIB__REQ_ROUTE:
        e->route->answer(e, node, request->number, reply, n, error, now);
        break;
    case SNIB__REQ_IDENTITY:
        snib__identity_answer(e, node, request->number, error, text, now);
        break;
    case SNIB__REQ_BOARD:
        snib__board_answer(e, node, reply, error, text, now);
        break;
    case SNIB__REQ_TIME:
        snib__clock_answer(e, node, request->sent_at, reply, n, now);
        break;
    default:
        if (error)
            snib__op_fail(e, request->subject, error, text, reply->count);
        else if (((struct snib__op *)request->subject)->kind == SNIB__OP_EXTEND)
            snib__extend_answer(e, request->subject, request->sent_at, reply, n, now);
        else
            snib__ask_answer(e, request->subject, reply, n, conn->resp);
    }
}

/* ---- time ---- */

snib__time snib__node_reply_timeout(const struct snib__engine *e, const struct snib__node *node)
{
    if (!node->ever_ready) /* nothing is held yet that patience could lose */
        return e->config.reply_timeout;
    /* Three renewals must fit into the last two thirds of a lease. */
    snib__time share = e->config.lease / 5 > 50 * SNIB__MS ? e->config.lease / 5 : 50 * SNIB__MS;
    return share < e->config.reply_timeout ? share : e->config.reply_timeout;
}
