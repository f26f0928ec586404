/* durable.c - grants that count only once replicas have them.
 *
 * WAIT reports how many replicas have received what its own connection has written, and blocks that
 * connection.  So acquisitions have a link of their own and go in batches: those that arrive while
 * a WAIT is in flight are collected, and leave together with the next one.
 *
 *     collected --WAIT answered--> sent, with a WAIT behind
 *               --granted--> waiting --WAIT answered--> decided
 *
 * A grant of the server is decided when the WAIT behind it is answered.  Either enough replicas
 * have it; or the hold reports how many; or it is returned and the operation fails, even if the
 * release is never answered, because such a hold is never renewed.  If the link ends before, the
 * grant is in doubt like any unanswered request, and the request is repeated.  What keeps a place in
 * a fair lock's queue goes past all this, see snib__place_keeps().
 */
#include "engine/internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define REPLICAS_MOST 127u /* what a hold can tell; no client asks for more than 100 */
#define DURABLE_RECOUNT (1000 * SNIB__MS) /* between counts of the replicas, while acquiring */

struct snib__durable {
    struct snib__request *collected;
    uint32_t collected_n, collected_cap;
    struct durable_grant {
        struct snib__request request;
        struct snib__verdict verdict;
    } * granted; /* the grants that the current or next WAIT is for */
    uint32_t granted_n, granted_cap;
    bool waiting;           /* a WAIT is in flight, or the count before it */
    uint32_t need;          /* ... for this many replicas */
    int32_t replicas;       /* in step according to the master's last report; -1: it does not say */
    bool any;               /* there has been at least one, here or where it took over */
    bool supposed;          /* it may have taken over from where there has been one */
    snib__time counted_at;  /* when it was asked */
    bool refused;           /* the server has no WAIT, or the user may not use it */
    bool told;              /* ... or has no replicas, and that is logged */
    snib__time stuck_since; /* since when requests are collected without a link; SNIB__NEVER */
};

static struct snib__link *durable_link(struct snib__node *node)
{
    return &node->lanes[SNIB__LANES_MAX - 1];
}

bool snib__durable_is(const struct snib__link *link)
{
    return link == &link->node->lanes[SNIB__LANES_MAX - 1];
}

bool snib__durable_takes(const struct snib__engine *e, const struct snib__request *request)
{
    const struct snib__hold *hold = request->subject;
    return e->config.durability && request->kind == SNIB__REQ_ACQUIRE &&
           !(hold->gate->kind->traits & SNIB__NO_HOLD) && !snib__place_keeps(hold);
}

const struct snib__request *snib__durable_collected(const struct snib__node *node, uint32_t *out_n)
{
    *out_n = node->durable ? node->durable->collected_n : 0;
    return node->durable ? node->durable->collected : NULL;
}

bool snib__durable_pending(const struct snib__node *node)
{
    uint32_t n;
    snib__durable_collected(node, &n);
    return n > 0;
}

bool snib__durable_withholds(const struct snib__node *node, const struct snib__hold *hold)
{
    for (uint32_t i = 0; node->durable && i < node->durable->granted_n; i++)
        if (node->durable->granted[i].request.subject == hold)
            return true;
    return false;
}

/* Since when requests wait for its link, or for an answer there; a WAIT takes its time. */
snib__time snib__durable_since(struct snib__node *node)
{
    const struct snib__conn *conn = &durable_link(node)->conn;
    if (conn->state != SNIB__CONN_READY && snib__durable_pending(node))
        return node->durable->stuck_since;
    return snib__conn_oldest(conn);
}

void snib__durable_free(struct snib__node *node)
{
    if (!node->durable)
        return;
    free(node->durable->collected);
    free(node->durable->granted);
    free(node->durable);
    node->durable = NULL;
}

/* NULL: out of memory. */
static struct snib__durable *durable_of(struct snib__node *node)
{
    if (!node->durable && (node->durable = calloc(1, sizeof *node->durable))) {
        node->durable->replicas = -1;
        node->durable->stuck_since = SNIB__NEVER;
    }
    return node->durable;
}

/* Make room for one more; 0 or -1. */
static int durable_room(void **list, uint32_t n, uint32_t *cap, size_t size)
{
    if (n < *cap)
        return 0;
    uint32_t more = *cap ? *cap * 2 : SNIB__ROOM(16);
    void *larger = realloc(*list, more * size);
    if (!larger)
        return -1;
    *list = larger;
    *cap = more;
    return 0;
}

/* ---- how many replicas ---- */

static void durable_tell(struct snib__engine *e, struct snib__node *node, const char *why)
{
    if (!node->durable->told)
        snib__engine_log(e, SNIB_LOG_WARNING, "durability: %s %s: grants exist on the master only",
                         snib__node_where(e, node), why);
    node->durable->told = true;
}

/* How many replicas are required; 0: there is nothing to wait for. */
static uint32_t durable_need(struct snib__engine *e, struct snib__node *node)
{
    const struct snib__durable *d = node->durable;
    int32_t asked = e->config.durability;
    bool any = d->any || d->supposed;
    if (d->refused)
        return 0;
    if (d->replicas < 0 && asked < 0)
        durable_tell(e, node, "does not say how many replicas it has (INFO)");
    else if (!any && d->replicas == 0)
        durable_tell(e, node, "has no replicas");
    if (d->replicas < 0 || (any && asked > 0))
        return asked > 0 ? (uint32_t)asked : 0;
    if (!any)
        return 0;
    uint32_t in_step = (uint32_t)d->replicas;
    return asked == SNIB_DURABILITY_ALL ? in_step : (in_step + 1) / 2;
}

static void durable_count(struct snib__durable *d, int32_t replicas, snib__time now)
{
    d->replicas = replicas;
    d->any = d->any || replicas > 0;
    d->counted_at = now;
}

/* The node is another server, of which nothing is known. */
void snib__durable_renamed(struct snib__node *node)
{
    if (node->durable) {
        node->durable->any = node->durable->supposed = node->durable->told = false;
        node->durable->replicas = -1;
    }
}

static bool durable_had(const struct snib__node *node)
{
    return node->durable && (node->durable->any || node->durable->supposed);
}

/* A node has all that another has served, whose replica it was. */
void snib__durable_succeed(struct snib__node *node, const struct snib__node *former)
{
    if (durable_had(former) && durable_of(node))
        node->durable->any = true;
}

/* A node has something that another has served, whose replica it may have been. */
void snib__durable_suppose(struct snib__node *node, const struct snib__node *former)
{
    if (durable_had(former) && durable_of(node))
        node->durable->supposed = true;
}

/* It is known whether it was. */
void snib__durable_known(struct snib__node *node)
{
    if (node->durable)
        node->durable->supposed = false;
}

/* ---- batches ---- */

int snib__durable_encode(const struct snib__engine *e, struct snib__buf *out,
                         const struct snib__request *request)
{
    if (request->kind == SNIB__REQ_COUNT)
        return snib__resp_begin(out, 2) < 0 || snib__resp_arg(out, "INFO", 4) < 0 ||
                       snib__resp_arg(out, "replication", 11) < 0
                   ? -1
                   : SNIB__NO_SCRIPT;
    return snib__resp_begin(out, 3) < 0 || snib__resp_arg(out, "WAIT", 4) < 0 ||
                   snib__resp_arg_int(out, (int64_t)request->number) < 0 ||
                   snib__resp_arg_int(out, (int64_t)(e->config.durability_timeout / SNIB__MS)) < 0
               ? -1
               : SNIB__NO_SCRIPT;
}

/* Ask how many replicas have what was sent, and first how many there are, if that is outdated.  If
 * out of memory, drop the link at the next tick, when nobody is in the middle of a reply or of other requests: what it sent is
 * then in doubt. */
static void durable_wait(struct snib__engine *e, struct snib__node *node, snib__time now)
{
    struct snib__durable *d = node->durable;
    struct snib__link *link = durable_link(node);
    bool count = !d->refused && now >= d->counted_at + DURABLE_RECOUNT;
    struct snib__request request = {.kind = count ? SNIB__REQ_COUNT : SNIB__REQ_WAIT,
                                    .script = -1,
                                    .subject = link,
                                    .number = count ? 0 : durable_need(e, node)};
    if (!count && request.number == 0)
        return;
    if (snib__link_write(e, link, &request, now) < 0)
        link->soiled = true;
    d->waiting = true;
    d->need = (uint32_t)request.number;
}

static void durable_send_one(struct snib__engine *e, struct snib__node *node,
                             struct snib__request *request, snib__time now)
{
    struct snib__hold *hold = request->subject;
    if (!hold->op) /* it may have worked, but its operation has gone */
        snib__gate_unanswered(e, request, now);
    else if (snib__link_write(e, durable_link(node), request, now) < 0)
        snib__gate_unsent(e, hold, request->kind, request->sent_at, now);
}

static void durable_send_batch(struct snib__engine *e, struct snib__node *node, snib__time now)
{
    struct snib__durable *d = node->durable;
    struct snib__request *batch = d->collected;
    uint32_t n = d->collected_n;
    d->collected = NULL;
    d->collected_n = d->collected_cap = 0;
    d->stuck_since = SNIB__NEVER;
    d->waiting = true; /* requests that result from this are collected, too */
    for (uint32_t i = 0; i < n; i++)
        durable_send_one(e, node, &batch[i], now);
    free(batch);
    d->waiting = false;
    if (n > 0 || d->granted_n > 0)
        durable_wait(e, node, now);
}

/* Send the collected requests, with a WAIT behind them.  Where no memory is left for one of them, the next waiter's is
 * collected: without a WAIT no answer would send it. */
static void durable_go_on(struct snib__engine *e, struct snib__node *node, snib__time now)
{
    struct snib__durable *d = node->durable;
    if (d->waiting || durable_link(node)->conn.state != SNIB__CONN_READY)
        return;
    do
        durable_send_batch(e, node, now);
    while (d->collected_n > 0 && !d->waiting && durable_link(node)->conn.state == SNIB__CONN_READY);
}

/* Patience begins when there is both an outage and something collected. */
static void durable_note_stuck(struct snib__node *node, snib__time now)
{
    struct snib__durable *d = node->durable;
    if (d->collected_n > 0 && durable_link(node)->conn.state != SNIB__CONN_READY &&
        d->stuck_since == SNIB__NEVER)
        d->stuck_since = now;
}

/* Collect an operation's request; its thread waits for the reply on this link. */
static int durable_collect(struct snib__node *node, const struct snib__request *request,
                           snib__time now)
{
    struct snib__durable *d = node->durable;
    if (durable_room((void **)&d->collected, d->collected_n, &d->collected_cap,
                     sizeof *d->collected) < 0)
        return -1;
    if (d->collected_n == 0)
        d->stuck_since = SNIB__NEVER; /* what was collected before is done, or was cancelled */
    d->collected[d->collected_n++] = *request;
    snib__request_note_link(request, durable_link(node));
    durable_note_stuck(node, now);
    return 0;
}

/* Open the link, if possible now. */
static int durable_want(struct snib__engine *e, struct snib__node *node, snib__time now)
{
    struct snib__link *link = durable_link(node);
    if (!link->node && snib__link_init(e, link, node, SNIB__COMMAND) < 0)
        return -1;
    if (snib__node_ready(node))
        snib__link_want(e, link, now);
    return 0;
}

/* -1: out of memory, or ASK has brought it here and the link is not ready yet. */
int snib__durable_send(struct snib__engine *e, struct snib__node *node,
                       struct snib__request *request, snib__time now)
{
    struct snib__durable *d = durable_of(node);
    struct snib__link *link = durable_link(node);
    if (!d || durable_want(e, node, now) < 0 ||
        (request->asking && link->conn.state != SNIB__CONN_READY))
        return -1;
    if (d->waiting || link->conn.state != SNIB__CONN_READY)
        return durable_collect(node, request, now);
    if (snib__link_write(e, link, request, now) < 0)
        return -1;
    durable_wait(e, node, now);
    return 0;
}

static void durable_take_back(struct snib__durable *d, uint32_t i)
{
    d->collected_n--;
    memmove(d->collected + i, d->collected + i + 1, (d->collected_n - i) * sizeof *d->collected);
}

bool snib__durable_unsend(struct snib__node *node, const void *subject)
{
    struct snib__durable *d = node->durable;
    for (uint32_t i = 0; d && i < d->collected_n; i++)
        if (d->collected[i].subject == subject) {
            durable_take_back(d, i);
            return true;
        }
    return false;
}

/* The node's names are served elsewhere: send the collected requests there. */
void snib__durable_reroute(struct snib__engine *e, struct snib__node *node, snib__time now)
{
    struct snib__durable *d = node->durable;
    struct snib__request *batch = d ? d->collected : NULL;
    uint32_t n = d ? d->collected_n : 0;
    if (n == 0)
        return;
    d->collected = NULL;
    d->collected_n = d->collected_cap = 0;
    d->stuck_since = SNIB__NEVER;
    for (uint32_t i = 0; i < n; i++)
        snib__node_again(e, &batch[i], now);
    free(batch);
}

/* What only ASK has brought here does not wait for a new link: that may never come, and its operation's patience is with the
 * node of its name. */
static void durable_send_back(struct snib__engine *e, struct snib__durable *d, snib__time now)
{
    for (uint32_t i = 0; i < d->collected_n;) {
        const struct snib__request request = d->collected[i];
        if (!request.asking) {
            i++;
            continue;
        }
        durable_take_back(d, i);
        snib__node_again(e, &request, now);
        i = 0; /* that may have ended other operations */
    }
}

/* ---- decisions ---- */

static unsigned long long durable_ms(snib__time time)
{
    return (unsigned long long)(time / SNIB__MS);
}

/* few: the number of replicas is the reason, and not a lease that has ended meanwhile. */
static void durable_refuse(struct snib__engine *e, struct snib__hold *hold, uint32_t reached,
                           uint32_t need, bool few)
{
    struct snib__op *op = hold->op;
    if (op->stage == SNIB__STAGE_QUEUED)
        snib__waitq_remove(hold->gate->waitq, op);
    op->hold = NULL;
    hold->op = NULL;
    free(op->words);
    op->words = malloc(SNIB__WORDS_MAX);
    if (op->words && few)
        snprintf(op->words, SNIB__WORDS_MAX,
                 "only %u of the %u required replicas had the grant within %llu ms: it was undone",
                 reached, need, durable_ms(e->config.durability_timeout));
    else if (op->words)
        snprintf(op->words, SNIB__WORDS_MAX,
                 "the replicas took longer than its lease of %llu ms, so the grant was undone",
                 durable_ms(snib__hold_lease(e, hold)));
    snib__op_done(e, op, SNIB_EREPLICAS);
}

/* A lock's own lease may be shorter than the time that replicas have. */
static bool durable_is_late(const struct snib__engine *e, const struct durable_grant *grant,
                            snib__time now)
{
    const struct snib__hold *hold = grant->request.subject;
    return !(hold->gate->kind->traits & SNIB__UNOWNED) &&
           now >= snib__lease_end(grant->request.sent_at, snib__hold_lease(e, hold));
}

/* Finish a grant, now that the number of replicas is known. */
static void durable_decide(struct snib__engine *e, const struct durable_grant *grant,
                           uint32_t reached, uint32_t need, snib__time now)
{
    struct snib__hold *hold = grant->request.subject;
    hold->replicas = (uint8_t)(reached < REPLICAS_MOST ? reached : REPLICAS_MOST) & REPLICAS_MOST;
    bool few = reached < need && e->config.durability_policy != SNIB_DURABILITY_REPORT;
    bool late = need > 0 && durable_is_late(e, grant, now);
    if (hold->op && (few || late))
        durable_refuse(e, hold, reached, need, few); /* without its operation it goes back */
    snib__gate_acquired(e, hold, grant->request.sent_at, &grant->verdict, now);
}

/* Its operation has gone: what waits for replicas need not.  False: nothing does. */
bool snib__durable_leave(struct snib__engine *e, struct snib__hold *hold, snib__time now)
{
    struct snib__durable *d = NULL;
    uint32_t at = 0;
    for (struct snib__node *node = e->nodes; node; node = node->next)
        for (uint32_t i = 0; node->durable && i < node->durable->granted_n; i++)
            if (node->durable->granted[i].request.subject == hold) {
                d = node->durable;
                at = i;
            }
    if (!d)
        return false;
    struct durable_grant grant = d->granted[at];
    d->granted_n--;
    memmove(d->granted + at, d->granted + at + 1, (d->granted_n - at) * sizeof *d->granted);
    durable_decide(e, &grant, 0, 0, now);
    return true;
}

/* Decide all grants so far.  If another server serves the name since, its replicas are others. */
static void durable_decide_all(struct snib__engine *e, struct snib__node *node, uint32_t reached,
                               uint32_t need, snib__time now)
{
    struct snib__durable *d = node->durable;
    struct durable_grant *granted = d->granted;
    uint32_t n = d->granted_n;
    d->granted = NULL;
    d->granted_n = d->granted_cap = 0;
    for (uint32_t i = 0; i < n; i++)
        if (snib__node_is_former(e, durable_link(node), &granted[i].request))
            snib__node_orphan(e, &granted[i].request, SNIB_EUNREACHABLE, 0, now);
        else
            durable_decide(e, &granted[i], reached, need, now);
    free(granted);
}

bool snib__durable_granted(struct snib__engine *e, struct snib__link *link,
                           const struct snib__request *request, const struct snib__verdict *verdict,
                           snib__time now)
{
    struct snib__node *node = link->node;
    if (!snib__durable_is(link) || !verdict->yes)
        return false;
    struct snib__durable *d = node->durable;
    if (!d->waiting && durable_need(e, node) == 0)
        return false;
    struct durable_grant grant = {*request, *verdict};
    if (durable_room((void **)&d->granted, d->granted_n, &d->granted_cap, sizeof *d->granted) < 0) {
        durable_decide(e, &grant, 0, 1, now); /* the number of replicas would stay unknown */
        return true;
    }
    d->granted[d->granted_n++] = grant;
    if (!d->waiting) /* the request was resent behind its WAIT */
        durable_wait(e, node, now);
    return true;
}

static void durable_counted(struct snib__engine *e, struct snib__link *link,
                            const struct snib__value *reply, snib__time now)
{
    struct snib__node *node = link->node;
    bool told = reply->type == SNIB__RESP_STRING;
    node->durable->waiting = false;
    durable_count(node->durable,
                  told ? snib__conn_replicas(snib__resp_text(link->conn.resp, reply)) : -1, now);
    durable_wait(e, node, now);
    if (node->durable->waiting)
        return;
    durable_decide_all(e, node, 0, 0, now); /* there is nothing to wait for */
    durable_go_on(e, node, now);
}

/* WAIT got an error.  UNBLOCKED: the server is no master any more.  Other errors may come
 * again, so the pauses grow; and requests that are resent are not new operations, so they
 * do not shorten the pauses. */
static void durable_reopen(struct snib__engine *e, struct snib__link *link, snib__time now)
{
    link->proven = false;
    snib__link_close(e, link, SNIB_EUNREACHABLE, now);
}

static void durable_waited(struct snib__engine *e, struct snib__link *link,
                           const struct snib__value *reply, int32_t error, snib__time now)
{
    struct snib__node *node = link->node;
    struct snib__durable *d = node->durable;
    bool refused = error == SNIB_EPERM || error == SNIB_ENOTSUP;
    if (!refused && reply->type != SNIB__RESP_INTEGER) {
        durable_reopen(e, link, now);
        return;
    }
    link->backoff = 0;
    d->refused = d->refused || refused;
    if (refused)
        durable_tell(e, node, "has no WAIT, or this user may not use it");
    uint32_t reached = refused || reply->integer < 0 ? 0 : (uint32_t)reply->integer;
    d->any = d->any || reached > 0; /* whatever was counted before */
    durable_decide_all(e, node, reached, refused ? 0 : d->need, now);
    d->waiting = false;
    durable_go_on(e, node, now);
}

void snib__durable_answer(struct snib__engine *e, struct snib__link *link,
                          const struct snib__request *request, const struct snib__value *reply,
                          int32_t error, snib__time now)
{
    if (request->kind == SNIB__REQ_COUNT)
        durable_counted(e, link, reply, now);
    else
        durable_waited(e, link, reply, error, now);
}

/* ---- opening and closing ---- */

void snib__durable_ready(struct snib__engine *e, struct snib__link *link, snib__time now)
{
    struct snib__durable *d = link->node->durable;
    d->refused = false;
    d->waiting = false;
    durable_count(d, link->conn.replicas, now);
    durable_go_on(e, link->node, now);
}

/* The node is ready, and requests may be collected for its link. */
void snib__durable_node_ready(struct snib__engine *e, struct snib__node *node, snib__time now)
{
    if (snib__durable_pending(node) && durable_link(node)->conn.state != SNIB__CONN_READY)
        snib__link_want(e, durable_link(node), now);
}

/* The link could not be opened for too long: the operations that have waited as long as they may
 * end.  Each has its own patience, as with a server. */
static void durable_give_up(struct snib__engine *e, struct snib__node *node, int32_t code,
                            int os_error, snib__time now)
{
    const struct snib__durable *d = node->durable;
    for (uint32_t i = 0; i < d->collected_n;) {
        struct snib__hold *hold = d->collected[i].subject;
        struct snib__op *op = hold->op;
        snib__time from = op && op->started > d->stuck_since ? op->started : d->stuck_since;
        if (!op || now < from + e->config.patience) {
            i++;
            continue;
        }
        bool unsure = op->astray || (hold->flags & (SNIB__RESENT | SNIB__FIRST));
        op->cause = code;
        op->os_error = os_error;
        snib__gate_leave(e, op, now);
        snib__op_done(e, op, unsure ? SNIB_EUNREACHABLE : SNIB_ECONNECT);
        i += i < d->collected_n && d->collected[i].subject == hold;
    }
}

void snib__durable_down(struct snib__engine *e, struct snib__link *link, int32_t code, int os_error,
                        snib__time now)
{
    struct snib__node *node = link->node;
    struct snib__durable *d = node->durable;
    struct durable_grant *granted = d->granted;
    uint32_t n = d->granted_n;
    d->granted = NULL;
    d->granted_n = d->granted_cap = 0;
    d->waiting = false;
    for (uint32_t i = 0; i < n; i++) {
        const struct snib__hold *hold = granted[i].request.subject;
        if (hold->gate->kind->traits & SNIB__UNOWNED) /* that is not repeated: the grant is kept */
            durable_decide(e, &granted[i], 0, d->need ? d->need : 1, now);
        else
            snib__node_orphan(e, &granted[i].request, code, os_error, now);
    }
    free(granted);
    durable_send_back(e, d, now);
    durable_note_stuck(node, now); /* also for what was collected while the link was up */
    if (d->collected_n > 0)
        durable_give_up(e, node, code, os_error, now);
    if (d->collected_n > 0 && snib__node_ready(node))
        link->wanted = true; /* after its pause */
}
