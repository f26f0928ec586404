/* walk_reply.c - the servers: connections come and go, and requests on their way get replies that fit their form.
 *
 * A reply need not fit the others: each is one that some server gives in some state.  Once it is calm, all locks are free
 * but for those that the client itself has, and until walk.until those that somebody else has. */
#include "engine/ask.h"
#include "net/script.h"
#include "walk.h"

#include <stdio.h>
#include <string.h>

enum { CONN_ID = -4, CONN_INFO = -5, CONN_LOAD = -6, CONN_KILL = -8 }; /* as in conn.c */

static const struct snib__request *oldest(const struct snib__link *link)
{
    return &link->conn.ring[link->conn.ring_head];
}

uint64_t reply_ms(void)
{
    return (WALK_EPOCH + (uint64_t)walk.clock) * 1000 + walk.now / SNIB__MS;
}

/* ---- Replies to the engine's requests ------------------------------------------------------------ */

static bool fenced(const struct snib__hold *hold)
{
    return hold->gate->kind->kind == SNIB_FENCED || (hold->options & SNIB_LOCK_FENCED);
}

static bool held(const struct snib__gate *gate)
{
    const struct snib__hold *hold = snib__gate_first(gate);
    while (hold && hold->phase != SNIB__HELD) {
        hold = snib__gate_next(gate, hold);
    }
    return hold != NULL;
}

/* Whether the client has the other side of a read/write lock, and not for the owner who reads within it. */
static bool opposed(const struct snib__hold *hold)
{
    int kind = hold->gate->kind->kind;
    const struct snib__gate *gate =
        kind == SNIB_READ || kind == SNIB_WRITE
            ? snib__gate_find(walk.engine, kind == SNIB_READ ? SNIB_WRITE : SNIB_READ,
                              hold->gate->name, hold->gate->name_len)
            : NULL;
    const struct snib__hold *other = gate ? snib__gate_first(gate) : NULL;
    uint64_t own = hold->flags & SNIB__JOINS ? hold->writer : 0;
    while (other && (other->phase != SNIB__HELD || other->number == own)) {
        other = snib__gate_next(gate, other);
    }
    return other != NULL;
}

static bool is_free(const struct snib__hold *hold)
{
    if (!walk.calm) {
        return walk_chance(walk.yields);
    }
    return walk.now >= walk.until && !opposed(hold) &&
           (hold->gate->kind->discipline == SNIB__SHARED || !held(hold->gate));
}

static int64_t left_ms(void)
{
    if (walk.calm) {
        return walk.now < walk.until ? (int64_t)((walk.until - walk.now) / SNIB__MS) : 1000;
    }
    return walk_chance(4) ? -1 : (int64_t)walk_draw(4000);
}

static void to_acquire(const struct snib__hold *hold, snib__time sent_at, char *out)
{
    int kind = hold->gate->kind->kind;
    unsigned foreign = !walk.calm && walk_chance(4);
    if (truth_is_told(hold->gate->kind->kind) ? truth_acquire(hold, sent_at) : is_free(hold)) {
        snprintf(out, WALK_TEXT, "%s",
                 kind == SNIB_FAIR ? (fenced(hold) ? "$1\r\n7" : "$1\r\n0")
                 : fenced(hold)    ? "*1\r\n$1\r\n5"
                                   : "$-1");
    } else if (kind == SNIB_FAIR) {
        snprintf(out, WALK_TEXT, "*3\r\n:%lld\r\n:%u\r\n:%llu", (long long)left_ms(), foreign,
                 (unsigned long long)reply_ms());
    } else if (kind == SNIB_PLAIN) {
        snprintf(out, WALK_TEXT, "*2\r\n:%lld\r\n:%u", (long long)left_ms(), foreign);
    } else if (kind == SNIB__MULTI) {
        snprintf(out, WALK_TEXT, "*2\r\n:%u\r\n:%lld", (unsigned)walk_draw(2),
                 (long long)left_ms());
    } else {
        bool too_few = kind == SNIB_PERMITS && !walk.calm && walk_chance(12);
        snprintf(out, WALK_TEXT, ":%lld", too_few ? -3LL : (long long)left_ms());
    }
}

/* The client's waiter that a release of the fair lock grants it to: the first, once it is calm. */
static uint64_t next_waiter(const struct snib__gate *gate)
{
    uint64_t number = 0, n = 0;
    for (const struct snib__hold *hold = gate->peers; hold; hold = hold->peer_next) {
        bool first = number == 0 || hold->number < number;
        if (hold->phase == SNIB__PLACED && (walk.calm ? first : walk_draw(++n) == 0)) {
            number = hold->number;
        }
    }
    return !walk.calm || walk.now >= walk.until ? number : 0;
}

static void to_fair_release(const struct snib__gate *gate, bool gone, char *out)
{
    uint64_t next = next_waiter(gate), first_ms = walk.calm ? 3000 : walk_draw(3000);
    int found = gone ? (int)walk_draw(3) - 1 : walk.calm ? 1 : 1 + (int)walk_draw(2);
    snprintf(out, WALK_TEXT, "*5\r\n:%d\r\n:%llu\r\n:%llu\r\n$1\r\n0\r\n:%llu", found,
             (unsigned long long)next, (unsigned long long)first_ms,
             (unsigned long long)reply_ms());
}

static void to_release(const struct snib__request *request, char *out)
{
    const struct snib__hold *hold = request->subject;
    bool gone = !walk.calm && walk_chance(6),
         told = truth_is_told(hold->gate->kind->kind) && !request->half;
    if (told && hold->passed) {
        gone = !truth_renew(hold->gate->kind->kind, hold->number, 0, false, request->sent_at);
    } else if (told) {
        gone = !truth_release(hold, request->sent_at);
    }
    if (request->script == SNIB__TWO_COMMANDS) {
        unsigned found = told ? 1 : (unsigned)walk_draw(3);
        snprintf(out, WALK_TEXT, ":%u", gone ? 0 : found);
    } else if (hold->passed) { /* it only asks, see tenure.c */
        snprintf(out, WALK_TEXT, "%s", gone ? walk_one("*2\r\n:1\r\n:0", "*2\r\n:1\r\n:1") : "*0");
    } else if (hold->gate->kind->kind == SNIB_FAIR) {
        to_fair_release(hold->gate, gone, out);
    } else if (hold->gate->kind->kind == SNIB__MULTI) {
        snprintf(out, WALK_TEXT, "%s", gone ? walk_one(":0", ":2", ":-2") : walk_one(":1", ":-1"));
    } else {
        snprintf(out, WALK_TEXT, ":%d",
                 gone        ? (int)walk_draw(3) - 2
                 : walk.calm ? 1
                             : 1 + (int)walk_draw(3));
    }
}

/* A transfer, or a renewal, or a question about one hold. */
static void to_transfer(const struct snib__hold *hold, snib__time sent_at, char *out)
{
    const struct snib__hold *next = hold->gate->waitq->incoming;
    bool told = truth_is_told(hold->gate->kind->kind);
    bool fails = told ? !truth_transfer(hold, next, sent_at) : !walk.calm && walk_chance(4);
    snprintf(out, WALK_TEXT, "%s",
             fails && told  ? ":0"
             : fails        ? walk_one(":0", ":2")
             : fenced(hold) ? "*1\r\n$1\r\n7"
                            : ":1");
}

/* A renewal by servers that are honest about exclusive locks, if it is about these. */
static bool to_honest(const struct snib__batch *batch, snib__time sent_at, char *out)
{
    unsigned missing[SNIB__BATCH_MAX], n = 0;
    if (!truth_is_told(batch->kind)) {
        return false;
    }
    for (uint32_t i = 0; i < batch->n; i++) {
        snib__time lease = (snib__time)batch->lease_ms * SNIB__MS;
        if (!truth_renew(batch->kind, batch->of[i].number, lease, batch->exact, sent_at)) {
            missing[n++] = i + 1;
        }
    }
    int at = snprintf(out, WALK_TEXT, "*%u", 2 * n);
    for (uint32_t i = 0; i < n; i++) {
        at += snprintf(out + at, WALK_TEXT - (size_t)at, "\r\n:%u\r\n:%u", missing[i],
                       (unsigned)walk_draw(2));
    }
    return true;
}

static void to_extension(const struct snib__op *op, snib__time sent_at, char *out)
{
    snib__time lease =
        op->asked->n ? (snib__time)op->asked->n * SNIB__MS : walk.engine->config.lease;
    bool found = truth_renew(op->gate->kind->kind, op->asked->number, lease, false, sent_at);
    snprintf(out, WALK_TEXT, "%s", found ? "*0" : walk_one("*2\r\n:1\r\n:0", "*2\r\n:1\r\n:1"));
}

static void to_renewal(uint32_t n, char *out)
{
    if (!walk.calm && walk_chance(10)) { /* one of them is not held */
        unsigned taken = walk_chance(2);
        snprintf(out, WALK_TEXT, "*2\r\n:%u\r\n:%u", 1 + (unsigned)walk_draw(n), taken);
    } else {
        snprintf(out, WALK_TEXT, "*0");
    }
}

static void to_question(const struct snib__op *op, snib__time sent_at, char *out)
{
    if (op->kind == SNIB__OP_FORCE && truth_is_told(op->gate->kind->kind)) {
        truth_forget(op->gate);
    }
    switch (op->kind) {
    case SNIB__OP_INFO:
        snprintf(out, WALK_TEXT, "*5\r\n:%d\r\n$3\r\nabc\r\n:1\r\n:2\r\n$1\r\n0",
                 (int)walk_draw(1000) - 2);
        break;
    case SNIB__OP_EXTEND:
        if (truth_is_told(op->gate->kind->kind)) {
            to_extension(op, sent_at, out);
        } else {
            to_renewal(1, out);
        }
        break;
    case SNIB__OP_PING:
        snprintf(out, WALK_TEXT, "+PONG");
        break;
    case SNIB__OP_LIST: /* the list of a server ends with 0 */
        snprintf(out, WALK_TEXT, "*2\r\n$1\r\n%u\r\n$1\r\na",
                 walk.calm ? 0 : (unsigned)walk_draw(3));
        break;
    case SNIB__OP_DESCRIBE:
    case SNIB__OP_SERVER:
    case SNIB__OP_IDENTITY:
        snprintf(out, WALK_TEXT, "%s", walk_one("*1\r\n$1\r\na", "$3\r\na\nb", ":7"));
        break;
    default:
        snprintf(out, WALK_TEXT, ":%u", (unsigned)walk_draw(2));
    }
}

static void info_text(const struct snib__node *node, char *out)
{
    char info[400];
    int n = snprintf(
        info, sizeof info,
        "redis_version:%s\r\nredis_mode:%s\r\nrun_id:r%u%s\r\nrole:master\r\nmaster_replid:%"
        "040x\r\nconnected_slaves:%u\r\n",
        walk.commands ? "8.4.0" : "7.2.0", walk.cluster ? "cluster" : "standalone", walk.server,
        node->address.host, 1 + walk.server / 2, walk.replicas ? 1 + (unsigned)walk_draw(2) : 0);
    snprintf(out, WALK_TEXT, "$%d\r\n%s", n, info);
}

static void to_request(const struct snib__node *node, const struct snib__request *request,
                       char *out)
{
    const struct snib__batch *batch = request->subject;
    switch (batch ? request->kind : 0) { /* nobody wants it any more */
    case SNIB__REQ_ACQUIRE:
        to_acquire(request->subject, request->sent_at, out);
        break;
    case SNIB__REQ_RELEASE:
        to_release(request, out);
        break;
    case SNIB__REQ_TRANSFER:
        to_transfer(request->subject, request->sent_at, out);
        break;
    case SNIB__REQ_RENEW:
        if (!to_honest(batch, request->sent_at, out)) {
            to_renewal(batch->n, out);
        }
        break;
    case SNIB__REQ_ASK:
        to_question(request->subject, request->sent_at, out);
        break;
    case SNIB__REQ_TIME:
        snprintf(out, WALK_TEXT, "*2\r\n$10\r\n%010llu\r\n$6\r\n%06llu",
                 (unsigned long long)(reply_ms() / 1000),
                 (unsigned long long)(walk.now / 1000 % 1000000));
        break;
    case SNIB__REQ_WAIT:
        snprintf(out, WALK_TEXT, ":%u", walk.calm ? 100 : (unsigned)walk_draw(3));
        break;
    case SNIB__REQ_COUNT:
        info_text(node, out);
        break;
    case SNIB__REQ_BOARD:
        snprintf(out, WALK_TEXT, "$4\r\n1\n2\n");
        break;
    case SNIB__REQ_ROUTE:
        cluster_answer(request->number, out);
        break;
    default:
        snprintf(out, WALK_TEXT, "%s", request->kind == SNIB__REQ_KILL ? ":1" : "+OK");
    }
}

/* ---- Replies -------------------------------------------------------------------------------------- */

static void to_greeting(const struct snib__link *link, const struct snib__request *request,
                        char *out)
{
    switch (request->kind) {
    case CONN_LOAD:
        snprintf(out, WALK_TEXT, "$40\r\n%s",
                 snib__script_of(request->script, link->conn.publish)->sha1);
        break;
    case CONN_INFO:
        info_text(link->node, out);
        break;
    case CONN_ID:
    case CONN_KILL:
        snprintf(out, WALK_TEXT, ":%u", 1 + (unsigned)walk_draw(1000));
        break;
    default:
        snprintf(out, WALK_TEXT, "+OK");
    }
}

static const char *refusal(void)
{
    walk_happens(WALK_REFUSAL);
    if (walk_chance(3)) {
        walk_happens(WALK_DOUBT);
        return "-ERR something odd";
    }
    if (walk_chance(4)) { /* the connection is of no use then */
        return walk_one("-LOADING the server is loading its data", "-READONLY it is a replica",
                        "-BUSY the server is busy running a script");
    }
    return walk_one("-OOM command not allowed when used memory > 'maxmemory'",
                    "-NOPERM this user has no permissions to run the command",
                    "-MISCONF it cannot write", "-NOREPLICAS not enough replicas",
                    "-NOSCRIPT no matching script",
                    "-WRONGTYPE the key holds the wrong kind of value");
}

static void answer(struct snib__link *link)
{
    const struct snib__request *request = oldest(link);
    char text[WALK_TEXT];
    unsigned odds = request->kind < 0 ? 50 * walk.refuses : walk.refuses;
    const char *elsewhere = cluster_refusal(request);
    if (elsewhere) {
        snprintf(text, sizeof text, "%s", elsewhere);
    } else if (!walk.calm && walk_chance(odds)) {
        const char *why = refusal();
        if (strncmp(why, "-ERR", 4) == 0 && request->kind > 0 && walk_chance(2)) {
            to_request(link->node, request, text); /* it was carried out all the same */
        }
        snprintf(text, sizeof text, "%s", why);
    } else if (request->kind < 0) {
        to_greeting(link, request, text);
    } else {
        to_request(link->node, request, text);
    }
    walk_trace("link %d%s: %d %s: %.*s", link->kind, snib__lane_is(link) ? " (a lane)" : "",
               request->kind, request->script >= 0 ? snib__script_texts[request->script].name : "",
               (int)strcspn(text, "\n"), text);
    size_t n = strlen(text);
    memcpy(text + n, "\r\n", 3);
    snib__engine_input(walk.engine, link, text, n + 2, walk.now);
}

static bool answers(const struct snib__link *link)
{
    return link->conn.state != SNIB__CONN_DOWN && link->conn.ring_count > 0;
}

void reply_some(void)
{
    for (struct snib__link *link = snib__engine_links(walk.engine); link;
         link = snib__link_next(link)) {
        bool greets = link->conn.state == SNIB__CONN_HANDSHAKE;
        for (uint64_t n = walk_draw(greets ? 20 : 6); n > 0 && link->conn.state != SNIB__CONN_DOWN;
             n--) {
            if (link->kind == SNIB__PUBSUB) {
                message_answer(link);
            } else if (answers(link)) {
                answer(link);
            }
        }
    }
}

void reply_all(void)
{
    for (struct snib__link *link = snib__engine_links(walk.engine); link;
         link = snib__link_next(link)) {
        while (link->kind == SNIB__COMMAND && answers(link)) {
            answer(link);
        }
        while (link->kind == SNIB__PUBSUB && link->conn.state != SNIB__CONN_DOWN &&
               snib__buf_size(snib__link_output(link)) > 0) {
            message_answer(link);
        }
    }
}

/* ---- Connections ---------------------------------------------------------------------------------- */

static void connect(struct snib__link *link)
{
    if (!walk.calm && walk_chance(12)) {
        snib__engine_link_down(walk.engine, link, SNIB_EUNREACHABLE, 0, walk.now);
        return;
    }
    if (!walk.calm && link->kind == SNIB__COMMAND && !snib__lane_is(link) && walk_chance(10)) {
        walk_happens(WALK_SERVER);
        walk_trace("another server");
        walk.server++;
        truth_forget(NULL);
    }
    if (snib__link_asks(walk.engine, link)) {
        snib__engine_link_up_as(walk.engine, link, walk_one("u", NULL), "secret", walk.now);
    } else {
        snib__engine_link_up(walk.engine, link, walk.now);
    }
}

void reply_links(void)
{
    for (struct snib__link *link = snib__engine_links(walk.engine); link;
         link = snib__link_next(link)) {
        bool was_up = link->conn.state != SNIB__CONN_DOWN;
        int wish = snib__engine_take_wish(walk.engine, link);
        if (wish == SNIB__WISH_CONNECT) {
            connect(link);
        } else if (wish == SNIB__WISH_CLOSE) {
            walk_trace("link %d%s is given up", link->kind, snib__lane_is(link) ? " (a lane)" : "");
            walk_happens(WALK_GIVEN_UP);
        }
        if (link->kind == SNIB__COMMAND && was_up) { /* what was sent is in the ring */
            struct snib__buf *out = snib__link_output(link);
            snib__buf_consume(out, snib__buf_size(out));
        }
    }
}

/* What is lost with a lane while the first link goes on. */
static void note_lane(const struct snib__link *link)
{
    const struct snib__conn *conn = &link->conn;
    walk_happens(WALK_CUT_LANE);
    for (uint32_t i = 0; i < conn->ring_count; i++) {
        const struct snib__request *request =
            &conn->ring[(conn->ring_head + i) & (conn->ring_cap - 1)];
        const struct snib__hold *hold = request->subject;
        if (request->kind != SNIB__REQ_ACQUIRE || !hold) {
            continue;
        }
        const struct snib__gate *gate = hold->gate;
        bool waited = gate->waitq && gate->waitq->head;
        if (gate->kind->discipline == SNIB__QUEUED && waited) {
            walk_happens(WALK_CUT_FAIR);
        } else if (gate->kind->discipline == SNIB__SHARED && waited) {
            walk_happens(WALK_CUT_WAITED);
        }
    }
}

static void note_cut(const struct snib__link *link)
{
    if (link->kind == SNIB__PUBSUB) {
        walk_happens(WALK_CUT_PUBSUB);
    } else if (!snib__lane_is(link)) {
        walk_happens(WALK_CUT);
    } else if (snib__durable_is(link)) {
        walk_totals[WALK_CUT_DURABLE] += link->conn.ring_count > 0;
    } else if (snib__node_ready(link->node)) {
        note_lane(link);
    }
}

/* The first of the requests on a connection that ends are carried out. */
static void go_unseen(const struct snib__link *link)
{
    const struct snib__conn *conn = &link->conn;
    char text[WALK_TEXT];
    uint32_t n = link->kind == SNIB__COMMAND ? (uint32_t)walk_draw(conn->ring_count + 1) : 0;
    for (uint32_t i = 0; i < n && walk.honest; i++) {
        const struct snib__request *request =
            &conn->ring[(conn->ring_head + i) & (conn->ring_cap - 1)];
        bool known = request->kind > 0 && request->subject && !cluster_refusal(request);
        if (known) {
            to_request(link->node, request, text);
            walk_happens(WALK_UNSEEN);
        }
    }
}

/* Lanes with something on them most of all. */
static uint64_t cut_weight(const struct snib__link *link)
{
    return snib__lane_is(link) && link->conn.ring_count > 0 ? 16 : 1;
}

/* One of the connections ends. */
void reply_cut(void)
{
    struct snib__link *some = NULL;
    uint64_t all = 0;
    for (struct snib__link *link = snib__engine_links(walk.engine); link;
         link = snib__link_next(link)) {
        uint64_t weight = link->conn.state == SNIB__CONN_DOWN ? 0 : cut_weight(link);
        all += weight;
        some = walk_draw(all) < weight ? link : some;
    }
    if (some) {
        walk_trace("link %d%s is cut", some->kind, snib__lane_is(some) ? " (a lane)" : "");
        note_cut(some);
        go_unseen(some);
        snib__engine_link_down(walk.engine, some, SNIB_EUNREACHABLE, 0, walk.now);
    }
}
