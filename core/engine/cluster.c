/* cluster.c - the route of a cluster: a server for each slot.
 *
 * An error reply may say that the request was not carried out, and which node would do it:
 *
 *     MOVED        another node serves the slot: its names move there, with the request
 *     ASK          the keys have moved ahead: ASKING and this request go there, nothing else moves
 *     TRYAGAIN, CLUSTERDOWN, a key that is not local, ASK for a node that is not connected
 *                  no node would: it is resent after a pause (pause.c)
 *
 * The map (map.c) is requested from one node at a time: when there is none yet, after a MOVED until one
 * agrees with it, while a node with gates of this client is down, silent or in doubt, and about every ten seconds
 * while the client is in use.  Each query goes to another node.  When none is connected, the known
 * nodes, their replicas and the seeds are connected in turn, another one each time.  An idle client
 * asks nothing.
 */
#include "engine/cluster.h"
#include "engine/ask.h"
#include "net/script.h"

#include <stdlib.h>
#include <string.h>

#define CLUSTER_PACE (60 * SNIB__MS)  /* between queries while some request is not served */
#define CLUSTER_SLOW (400 * SNIB__MS) /* ... when that lasts */
#define CLUSTER_REST (300 * SNIB__MS) /* without trouble, and the pace is that of the start again */
#define CLUSTER_CALM (1000 * SNIB__MS) /* ... when all are served, but something has changed */
#define CLUSTER_PERIOD (10000 * SNIB__MS)
/* After a node is silent this long others are asked about its role, and take over its
 * requests if it was replaced. */
#define CLUSTER_SILENCE (250 * SNIB__MS)
/* What a node says of a slot that no map gives to any node, in the form of its error. */
#define CLUSTER_DOWN "CLUSTERDOWN, by its CLUSTER SLOTS"
#define CLUSTER_CURSOR_BITS 52 /* of a list's cursor: the server's; above: the member */
#define CLUSTER_CIRCLE 4       /* redirects of a request before each pause */
#define CLUSTER_OWED 64 /* nodes that are away and are kept for what is left on their connections */
#define CLUSTER_DOWNS                                                                              \
    (3000 * SNIB__MS) /* what a node says of a cluster that is down counts for so long */

enum { CLUSTER_INFO = 1, CLUSTER_MAP = 2 }; /* queries */

/* ---- members ---- */

bool snib__cluster_is_spare(const struct snib__cluster *c, const struct snib__address *address)
{
    for (uint32_t i = 0; i < c->spares_n; i++)
        if (snib__address_equal(&c->spare[i], address))
            return true;
    return false;
}

static bool cluster_is_free(const struct snib__node *node)
{
    for (int kind = 0; kind < 2; kind++)
        if (!snib__link_rests(&node->links[kind]))
            return false;
    return snib__lane_rest(node) && node->todo_n == 0;
}

/* Whether requests that it has not answered may still arrive there: once it is back, their connection has to be ended. */
static bool cluster_is_owed(const struct snib__node *node)
{
    bool owed = node->links[SNIB__COMMAND].conn.kill_id || node->links[SNIB__COMMAND].conn.left;
    for (uint32_t i = 0; i < SNIB__LANES_MAX && !owed; i++)
        owed = node->lanes[i].conn.kill_id || node->lanes[i].conn.left;
    return owed;
}

static bool cluster_is_unused(const struct snib__cluster *c, const struct snib__member *member)
{
    return member->node->idle && member->slots == 0 && !member->told &&
           !snib__cluster_is_spare(c, &member->node->address) && cluster_is_free(member->node);
}

/* An idle node, for reuse with another address; of many that are owed the one that has been away for the longest: addresses that
 * never come back, as where each start gives a node another one, would be looked at for ever. */
static uint16_t cluster_reuse(struct snib__cluster *c)
{
    bool full = c->n == SNIB__MEMBERS_MAX;
    uint32_t owed = 0;
    uint16_t oldest = 0;
    for (uint32_t i = 1; i < c->n; i++) {
        if (!cluster_is_unused(c, &c->member[i]))
            continue;
        if (!cluster_is_owed(c->member[i].node))
            return (uint16_t)i;
        owed++;
        if (!oldest || c->member[i].node->down_since < c->member[oldest].node->down_since)
            oldest = (uint16_t)i;
    }
    return full || owed > CLUSTER_OWED ? oldest : 0;
}

uint16_t snib__cluster_member(struct snib__engine *e, const struct snib__address *address)
{
    struct snib__cluster *c = e->map;
    for (uint32_t i = 1; i < c->n; i++)
        if (snib__address_equal(&c->member[i].node->address, address))
            return (uint16_t)i;
    uint16_t old = cluster_reuse(c);
    if (old) {
        snib__node_rename(e, c->member[old].node, address);
        c->member[old] = (struct snib__member){.node = c->member[old].node};
        return old;
    }
    struct snib__node *node =
        c->n < SNIB__MEMBERS_MAX ? snib__node_new(e, SNIB__SERVER, address) : NULL;
    if (!node)
        return 0;
    c->member[c->n] = (struct snib__member){.node = node};
    return (uint16_t)c->n++;
}

static uint16_t cluster_number(const struct snib__cluster *c, const struct snib__node *node)
{
    for (uint32_t i = 1; i < c->n; i++)
        if (c->member[i].node == node)
            return (uint16_t)i;
    return 0;
}

static int cluster_begin(struct snib__engine *e)
{
    struct snib__cluster *c = calloc(1, sizeof *c);
    if (!c)
        return -1;
    e->map = c;
    e->memory += sizeof *c;
    e->config.login.any_role = true;
    e->home = c->member[0].node = snib__node_new(e, SNIB__SERVER, NULL);
    if (!e->home)
        return -1;
    e->home->others = (uint8_t)(e->config.seeds_n - 1);
    c->n = 1;
    c->member[0].slots = SNIB__SLOTS;
    e->slots = c->gates;
    return 0;
}

static void cluster_end(struct snib__engine *e)
{
    free(e->map);
    e->map = NULL;
    e->slots = NULL;
}

static struct snib__node *cluster_serves(struct snib__engine *e, const char *name, size_t n)
{
    const struct snib__cluster *c = e->map;
    return c->member[c->owner[snib__slot(name, n)]].node;
}

/* ---- queries of the API ---- */

/* The next member that serves any slot; 0: none. */
static uint16_t cluster_after(const struct snib__cluster *c, uint32_t i)
{
    while (++i < c->n)
        if (c->member[i].slots > 0)
            return (uint16_t)i;
    return 0;
}

/* A query that has no gate, but a key. */
static bool cluster_is_named(const struct snib__op *op)
{
    return !op->gate && (op->kind == SNIB__OP_DESCRIBE || op->kind == SNIB__OP_IDENTITY);
}

/* The member at which a listing, or loading, goes on.  If that has no slots any more, its names may be where the listing has
 * been, and its cursor means nothing elsewhere: it begins again. */
static uint16_t cluster_resumes(const struct snib__cluster *c, struct snib__asked *asked)
{
    uint32_t i = (uint32_t)(asked->cursor >> CLUSTER_CURSOR_BITS);
    if (i > 0 && i < c->n && c->member[i].slots > 0)
        return (uint16_t)i;
    asked->cursor = 0;
    return cluster_after(c, 0);
}

static struct snib__node *cluster_asks(struct snib__engine *e, const struct snib__op *op)
{
    const struct snib__cluster *c = e->map;
    if (cluster_is_named(op))
        return cluster_serves(e, op->asked->text, op->asked->text_len);
    if (op->kind == SNIB__OP_LIST || op->kind == SNIB__OP_LOAD)
        return c->member[cluster_resumes(c, op->asked)].node;
    for (uint32_t i = 1; i < c->n; i++)
        if (c->member[i].slots > 0 && snib__node_ready(c->member[i].node))
            return c->member[i].node;
    return c->member[cluster_after(c, 0)].node;
}

uint64_t snib__cluster_cursor_in(uint64_t cursor)
{
    return cursor & ((1ull << CLUSTER_CURSOR_BITS) - 1);
}

uint64_t snib__cluster_cursor_out(const struct snib__engine *e, const struct snib__node *node,
                                  uint64_t cursor)
{
    const struct snib__cluster *c = e->map;
    uint64_t i = cluster_number(c, node);
    if (cursor == 0)
        i = cluster_after(c, (uint32_t)i);
    return i << CLUSTER_CURSOR_BITS | cursor;
}

/* Redirect waiting queries without a gate to the node they would choose now. */
static void cluster_reask(struct snib__engine *e, snib__time now)
{
    struct snib__cluster *c = e->map;
    uint32_t n = 1;
    for (struct snib__op *op = e->live; op; op = op->live_next)
        if (op->stage == SNIB__STAGE_ASKING && !op->gate && !op->link) {
            const struct snib__node *before = op->node;
            op->node = cluster_asks(e, op);
            n = op->node == before ? n : c->n;
            snib__op_arm(e, op); /* its patience is with that node */
        }
    for (uint32_t i = 0; i < n; i++)
        snib__node_reroute(e, c->member[i].node, now);
}

/* ---- requesting the map ---- */

static bool cluster_in_use(const struct snib__engine *e)
{
    return e->live || e->releasing || e->stats.held > 0;
}

/* Since when, or from when on, it is uncertain whether the member still has its role. */
static snib__time cluster_doubted(const struct snib__member *member)
{
    const struct snib__node *node = member->node;
    const struct snib__link *link = &node->links[SNIB__COMMAND];
    if (snib__node_ready(node)) {
        snib__time oldest = snib__node_oldest(node);
        return oldest == SNIB__NEVER ? SNIB__NEVER : oldest + CLUSTER_SILENCE;
    }
    if (!link->wanted)
        return SNIB__NEVER;
    return node->failed                      ? 0
           : node->down_since == SNIB__NEVER ? SNIB__NEVER
                                             : node->down_since + CLUSTER_SILENCE;
}

bool snib__cluster_lives(const struct snib__member *member, snib__time now)
{
    return member->slots > 0 && !member->away && snib__node_ready(member->node) &&
           cluster_doubted(member) > now;
}

bool snib__cluster_says_down(const struct snib__member *member, snib__time now)
{
    return member->downs_at && now < member->downs_at + CLUSTER_DOWNS;
}

static snib__time cluster_urgent(const struct snib__engine *e)
{
    const struct snib__cluster *c = e->map;
    snib__time from = SNIB__NEVER;
    if (c->trouble || !c->known || c->member[0].node->todo_n > 0)
        return 0;
    for (uint32_t i = 1; i < c->n; i++)
        if (c->member[i].slots > 0) {
            snib__time doubted = cluster_doubted(&c->member[i]);
            from = doubted < from ? doubted : from;
        }
    return from;
}

/* When to request the map next. */
static snib__time cluster_due(const struct snib__engine *e)
{
    const struct snib__cluster *c = e->map;
    if (!cluster_in_use(e))
        return SNIB__NEVER;
    snib__time due = c->asked_at + (c->wanted ? CLUSTER_CALM : CLUSTER_PERIOD);
    snib__time urgent = cluster_urgent(e);
    due = urgent < due ? urgent : due;
    return due > c->next ? due : c->next;
}

static void cluster_question(struct snib__engine *e, struct snib__node *node, snib__time now)
{
    struct snib__cluster *c = e->map;
    c->asked_at = now;
    snib__node_ask(e, node, CLUSTER_INFO, now);
    snib__node_ask(e, node, CLUSTER_MAP, now);
}

void snib__cluster_ask_it(struct snib__engine *e, struct snib__member *member, snib__time now)
{
    if (member->probed_at && now < member->probed_at + CLUSTER_CALM)
        return;
    member->probed_at = now;
    cluster_question(e, member->node, now);
}

/* The next connected node that replies. */
static struct snib__node *cluster_connected(struct snib__cluster *c, snib__time now)
{
    for (uint32_t i = 0; i < c->n; i++) {
        const struct snib__member *member = &c->member[++c->turn % c->n];
        if (snib__node_ready(member->node) && cluster_doubted(member) > now)
            return member->node;
    }
    return NULL;
}

/* The nth of all addresses that may have a map. */
static const struct snib__address *cluster_candidate(const struct snib__engine *e, uint32_t nth)
{
    const struct snib__cluster *c = e->map;
    uint32_t masters = 0;
    for (uint32_t i = 1; i < c->n; i++)
        if (c->member[i].slots > 0 && masters++ == nth)
            return &c->member[i].node->address;
    nth -= masters;
    return nth < c->spares_n ? &c->spare[nth] : &e->config.seeds[nth - c->spares_n];
}

static void cluster_connect(struct snib__engine *e, snib__time now)
{
    struct snib__cluster *c = e->map;
    uint32_t all = c->spares_n + e->config.seeds_n;
    for (uint32_t i = 1; i < c->n; i++)
        all += c->member[i].slots > 0;
    for (uint32_t tries = 0; tries < all; tries++) {
        struct snib__address address = *cluster_candidate(e, c->connect_turn++ % all);
        uint16_t member = snib__cluster_member(e, &address);
        struct snib__node *node = c->member[member].node;
        const struct snib__link *link = &node->links[SNIB__COMMAND];
        if (member == 0 || link->conn.state != SNIB__CONN_DOWN || link->connecting || link->connect)
            continue;
        snib__link_want(e, &node->links[SNIB__COMMAND], now);
        return;
    }
}

/* After a time in which nothing was missing the queries are counted anew. It is longer than the pause of a request that
 * no node serves, which is the same trouble when it comes back. */
static void cluster_note_calm(struct snib__engine *e, snib__time now)
{
    struct snib__cluster *c = e->map;
    if (cluster_urgent(e) > now) {
        c->calm_since = c->calm_since == SNIB__NEVER ? now : c->calm_since;
        return;
    }
    if (c->calm_since != SNIB__NEVER && now - c->calm_since > CLUSTER_REST)
        c->urgent_n = 0;
    c->calm_since = SNIB__NEVER;
}

static void cluster_ask(struct snib__engine *e, snib__time now)
{
    struct snib__cluster *c = e->map;
    bool urgent = cluster_urgent(e) <= now;
    struct snib__node *node = cluster_connected(c, now);
    c->urgent_n = urgent ? c->urgent_n + 1 : 0;
    snib__time pace = c->urgent_n < 50 ? CLUSTER_PACE : CLUSTER_SLOW;
    c->next = now + pace + snib__engine_random(e, pace / 2);
    if (node)
        cluster_question(e, node, now);
    if (!node || (urgent && c->urgent_n % 4 == 2))
        cluster_connect(e, now);
}

static int cluster_encode(struct snib__engine *e, struct snib__buf *out, struct snib__node *node,
                          uint64_t what)
{
    (void)e, (void)node;
    const char *word = what == CLUSTER_INFO ? "INFO" : "SLOTS";
    return snib__resp_begin(out, 2) < 0 || snib__resp_arg(out, "CLUSTER", 7) < 0 ||
                   snib__resp_arg(out, word, strlen(word)) < 0
               ? -1
               : SNIB__NO_SCRIPT;
}

/* Nothing in the URL is a cluster node. */
static bool cluster_is_none(const struct snib__engine *e)
{
    const struct snib__cluster *c = e->map;
    uint32_t others = 0;
    for (uint32_t seed = 0; seed < e->config.seeds_n; seed++)
        for (uint32_t i = 1; i < c->n; i++)
            others += snib__address_equal(&c->member[i].node->address, &e->config.seeds[seed]) &&
                      c->member[i].node->failure == SNIB_ETOPOLOGY;
    return others == e->config.seeds_n;
}

/* Record why names have no node: one could not provide a map, or it leaves them out.  Fail what waits for one if no
 * retry would help. */
static void cluster_hopeless(struct snib__engine *e, const struct snib__node *node, int32_t code,
                             const char *text, uint32_t n, snib__time now)
{
    struct snib__cluster *c = e->map;
    struct snib__node *nobody = c->member[0].node;
    nobody->failure = code;
    nobody->os_error = node->os_error;
    memcpy(nobody->words, node->words, sizeof nobody->words);
    if (text)
        snib__words(nobody->words, sizeof nobody->words, text, n, e->config.login.password);
    if (!c->known && (code == SNIB_EAUTH || code == SNIB_EPERM || code == SNIB_ENOTSUP ||
                      code == SNIB_EPROTOCOL || (code == SNIB_ETOPOLOGY && cluster_is_none(e))))
        snib__node_fail_ops(e, nobody, now);
}

static void cluster_answer(struct snib__engine *e, struct snib__node *node, uint64_t what,
                           const struct snib__value *reply, uint32_t n, int32_t error,
                           snib__time now)
{
    struct snib__cluster *c = e->map;
    bool told = reply->type == SNIB__RESP_STRING;
    e->home->others = 0; /* one of them has answered */
    const char *text = error || told ? snib__resp_text(e->resp, reply) : "";
    if (what == CLUSTER_INFO) {
        const char *epoch = told ? strstr(text, "cluster_current_epoch:") : NULL;
        struct snib__member *member = &c->member[cluster_number(c, node)];
        /* a node that was reset says 0, and may have got slots of its own */
        member->epoch =
            epoch ? strtoull(epoch + strlen("cluster_current_epoch:"), NULL, 10) + 1 : 0;
        if (told && strstr(text, "cluster_state:fail"))
            member->downs_at = now;
        return;
    }
    if (error) {
        if (error == SNIB_ESERVER && strstr(text, "cluster support disabled"))
            error = SNIB_ENOTSUP;
        cluster_hopeless(e, node, error, text, reply->count, now);
        return;
    }
    snib__map_answer(e, node, c->member[cluster_number(c, node)].epoch, reply, n, now);
    cluster_hopeless(e, node, SNIB_EUNREACHABLE, CLUSTER_DOWN, strlen(CLUSTER_DOWN), now);
    cluster_reask(e, now);
}

/* ---- events ---- */

static void cluster_wanted(struct snib__engine *e, struct snib__node *node, snib__time now)
{
    struct snib__cluster *c = e->map;
    (void)node, (void)now;
    c->wanted = true;
}

static void cluster_ready(struct snib__engine *e, struct snib__link *link, snib__time now)
{
    if (link->kind == SNIB__COMMAND && cluster_urgent(e) <= now)
        cluster_question(e, link->node, now);
}

/* As in Redisson: sharded channels if the servers support them; the first server met decides. */
static int cluster_publish(struct snib__engine *e, const struct snib__link *link)
{
    if (!e->publishes) {
        int32_t wish = e->config.publish;
        bool shards =
            wish == SNIB_PUBLISH_SHARDED || (wish != SNIB_PUBLISH_CLASSIC && link->conn.shards);
        e->publish = wish == SNIB_PUBLISH_BOTH ? SNIB__BOTH
                     : shards                  ? SNIB__SHARDED
                                               : SNIB__CLASSIC;
        e->publishes = true;
    }
    return e->publish;
}

static void cluster_down(struct snib__engine *e, struct snib__link *link, int32_t code,
                         snib__time now)
{
    struct snib__cluster *c = e->map;
    if (link->kind != SNIB__COMMAND)
        return;
    c->wanted = true;
    if (!c->known)
        cluster_hopeless(e, link->node, code, NULL, 0, now);
}

/* Parse "MOVED 866 127.0.0.1:7001": slot and address.  An empty host means the sender's; an unset
 * one leaves *out_known false.  False: it has another form. */
static bool cluster_parse(const struct snib__engine *e, const struct snib__node *from,
                          const char *text, uint16_t *out_slot, struct snib__address *out,
                          bool *out_known)
{
    char *end;
    const char *at = strchr(text, ' ');
    long slot = at ? strtol(at + 1, &end, 10) : -1;
    if (slot < 0 || slot >= SNIB__SLOTS || *end != ' ')
        return false;
    const char *host = end + 1, *colon = strrchr(host, ':');
    if (!colon)
        return false;
    long port = strtol(colon + 1, NULL, 10);
    size_t n = (size_t)(colon - host);
    if (n == 0)
        host = from->address.host, n = strlen(host);
    *out_slot = (uint16_t)slot;
    *out_known = snib__address_host(out, host, n, port, e->config.seeds[0].tls);
    return true;
}

/* Resend after a pause, because no node can take it now. */
static bool cluster_pause(struct snib__engine *e, struct snib__request *request, const char *text,
                          uint32_t n, snib__time now)
{
    struct snib__cluster *c = e->map;
    c->trouble = true;
    return snib__pause(e, request, text, n, now) == 0;
}

/* The error came from within a script that may have written before.  Repeating it is harmless where
 * repetition is allowed at all. */
static bool cluster_broken_off(struct snib__engine *e, struct snib__request *request,
                               const char *text, uint32_t n, snib__time now)
{
    if (snib__sent_once(request))
        return false;
    if (request->kind == SNIB__REQ_ACQUIRE || request->kind == SNIB__REQ_RELEASE ||
        request->kind == SNIB__REQ_TRANSFER)
        ((struct snib__hold *)request->subject)->flags |= SNIB__RESENT;
    else if (request->kind == SNIB__REQ_ASK)
        snib__extend_unsure(request->subject);
    return cluster_pause(e, request, text, n, now);
}

static bool cluster_go_on(struct snib__engine *e, struct snib__node *to,
                          struct snib__request *request, const char *text, uint32_t n,
                          snib__time now)
{
    if (request->redirects < UINT8_MAX)
        request->redirects++;
    request->tries = 0; /* the next server may have forgotten the script, too */
    if (request->redirects > CLUSTER_CIRCLE)
        return cluster_pause(e, request, text, n, now);
    if (!request->asking && request->kind == SNIB__REQ_RENEW)
        snib__watchdog_again(e, request, false, now);
    else if (!request->asking)
        snib__node_again(e, request, now);
    else if (request->kind == SNIB__REQ_RENEW && !snib__watchdog_prune(e, request->subject, now))
        return true;
    /* It does not wait for that node: the keys may go there never, and nobody else's name is there. */
    else if (!snib__node_ready(to) || snib__node_send_to(e, to, request, now) < 0) {
        snib__link_want(e, &to->links[SNIB__COMMAND], now);
        return cluster_pause(e, request, text, n, now);
    } else if (request->kind == SNIB__REQ_RENEW) {
        ((struct snib__batch *)request->subject)->via = to;
    }
    return true;
}

/* Whether its script checks leases of other readers, which it cannot declare as keys.  On the
 * node that a slot is moving to, leases that have not arrived yet would be missing, and live
 * readers would be taken for dead. */
static bool cluster_looks_around(const struct snib__request *request)
{
    const struct snib__hold *hold = request->subject;
    if (request->kind != SNIB__REQ_ACQUIRE && request->kind != SNIB__REQ_RELEASE &&
        request->kind != SNIB__REQ_TRANSFER)
        return false;
    int32_t kind = hold->gate->kind->kind;
    return kind == SNIB_READ || kind == SNIB_WRITE || kind == SNIB__MULTI;
}

/* Whether the node is not that of the slot, or was not all the time since, as far as known. */
static bool cluster_is_former(const struct snib__engine *e, const struct snib__node *node,
                              uint16_t slot, snib__time since)
{
    const struct snib__cluster *c = e->map;
    bool moved = false;
    for (const struct snib__gate *gate = e->slots[slot]; gate && !moved;
         gate = snib__gate_neighbours(gate)->next)
        moved = snib__gate_moved(e, gate, since);
    return c->owner[slot] && (moved || c->member[c->owner[slot]].node != node);
}

static bool cluster_moved(struct snib__engine *e, struct snib__link *link,
                          struct snib__request *request, const char *text, uint32_t n,
                          snib__time now)
{
    struct snib__cluster *c = e->map;
    struct snib__address address;
    uint16_t slot;
    bool known, asks = strncmp(text, "ASK ", 4) == 0;
    if (!cluster_parse(e, link->node, text, &slot, &address, &known))
        return false;
    uint16_t member = known ? snib__cluster_member(e, &address) : 0;
    c->wanted = true;
    /* The request went to a node that no longer serves the slot, or not yet:
     * current knowledge is newer. */
    bool late = c->owner[slot] && c->member[c->owner[slot]].node != link->node;
    /* And where the keys have gone from there, they may be on their way back. */
    bool asking = asks && !cluster_is_former(e, link->node, slot, request->sent_at);
    if (member && !asks && !late && c->member[member].node != link->node)
        snib__map_told(e, slot, member, now);
    if (!request->subject)
        return true;
    if (!member || (asking && cluster_looks_around(request)))
        return cluster_pause(e, request, text, n, now);
    if (asking)
        c->member[member].named_at = now;
    request->asking = asking;
    struct snib__op *op = snib__request_op(request);
    if (op && cluster_is_named(op)) {
        op->node = c->member[c->owner[slot]].node;
        snib__op_arm(e, op);
    }
    return cluster_go_on(e, c->member[member].node, request, text, n, now);
}

static void cluster_said_down(struct snib__engine *e, const struct snib__node *node, snib__time now)
{
    struct snib__cluster *c = e->map;
    snib__map_doubt(c, node);
    c->member[cluster_number(c, node)].downs_at = now;
}

static bool cluster_redirected(struct snib__engine *e, struct snib__link *link,
                               struct snib__request *request, const char *text, uint32_t n,
                               snib__time now)
{
    bool moved = strncmp(text, "MOVED ", 6) == 0 || strncmp(text, "ASK ", 4) == 0;
    /* Garnet refuses writes to migrating slots: the command was not started. */
    bool moving = n == 9 && memcmp(text, "MIGRATING", 9) == 0;
    bool again = strncmp(text, "TRYAGAIN", 8) == 0, down = strncmp(text, "CLUSTERDOWN", 11) == 0;
    bool broken = memmem(text, n, "non local key", 13) != NULL;
    if (snib__request_own(request)) /* of this server, not of a name */
        return false;
    if (down)
        cluster_said_down(e, link->node, now);
    if (moved)
        return cluster_moved(e, link, request, text, n, now);
    if (!again && !down && !moving && !broken)
        return false;
    if (!request->subject)
        return true;
    request->asking = false;
    if (broken)
        return cluster_broken_off(e, request, text, n, now);
    const struct snib__batch *batch = request->kind == SNIB__REQ_RENEW ? request->subject : NULL;
    if (again && batch && (batch->n > 1 || (batch->kind == SNIB_FAIR && !batch->narrow))) {
        snib__watchdog_again(e, request, true, now);
        return true;
    }
    return cluster_pause(e, request, text, n, now);
}

/* ---- time ---- */

/* Its other lanes may be up without the first, which may be reconnecting to what is now a replica.  Nor has a WAIT its time
 * there, unless ASK has brought here what it is for: another server decides that. */
static snib__time cluster_overdue(const struct snib__member *member)
{
    struct snib__node *node = member->node;
    if (!member->deposed)
        return SNIB__NEVER;
    snib__time oldest = snib__node_ready(node) ? snib__node_oldest(node) : snib__lane_oldest(node);
    if (member->slots == 0 && member->named_at == 0 && snib__durable_since(node) < oldest)
        oldest = snib__durable_since(node);
    return oldest == SNIB__NEVER ? SNIB__NEVER : oldest + CLUSTER_SILENCE;
}

/* Since when its pub/sub link owes a reply, such as the one to a ping; SNIB__NEVER: it does not. */
static snib__time cluster_deaf_since(const struct snib__member *member)
{
    const struct snib__link *ear = &member->node->links[SNIB__PUBSUB];
    return ear->owed > 0 && ear->conn.state == SNIB__CONN_READY ? ear->heard_at : SNIB__NEVER;
}

/* When a node is to be probed because its pub/sub link owes a reply, or requests wait on durable.c's link or for it.  A client
 * whose waiters all sleep has nothing under way on a command link, nor has one that only asks for what replicas must have, and
 * would notice a silent server only at its next attempt.  One that answers is probed again no sooner: only that link may be
 * silent. */
static snib__time cluster_probe_at(const struct snib__member *member)
{
    snib__time deaf = cluster_deaf_since(member), stuck = snib__durable_since(member->node);
    snib__time since = deaf < stuck ? deaf : stuck;
    if (member->slots == 0 || !snib__node_ready(member->node) || since == SNIB__NEVER ||
        snib__node_oldest(member->node) != SNIB__NEVER)
        return SNIB__NEVER;
    since = since > member->probed_at ? since : member->probed_at;
    return since + CLUSTER_SILENCE;
}

/* Disconnect a node that has left the cluster. */
static void cluster_leave(struct snib__engine *e, const struct snib__member *member, snib__time now)
{
    const struct snib__cluster *c = e->map;
    struct snib__node *node = member->node;
    if (!node->idle || now < member->named_at + CLUSTER_CALM ||
        snib__cluster_is_spare(c, &node->address) || snib__node_oldest(node) != SNIB__NEVER ||
        snib__durable_since(node) != SNIB__NEVER || node->links[SNIB__PUBSUB].owed > 0)
        return;
    snib__lane_close_all(e, node, SNIB_OK, now);
    for (int kind = 0; kind < 2; kind++)
        if (node->links[kind].conn.state == SNIB__CONN_READY)
            snib__link_close(e, &node->links[kind], SNIB_EUNREACHABLE, now);
}

static void cluster_tick(struct snib__engine *e, snib__time now)
{
    struct snib__cluster *c = e->map;
    for (uint32_t i = 1; i < c->n; i++) {
        struct snib__node *node = c->member[i].node;
        if (cluster_overdue(&c->member[i]) <= now) {
            if (snib__node_ready(node))
                snib__link_close(e, &node->links[SNIB__COMMAND], SNIB_EUNREACHABLE, now);
            snib__lane_close_all(e, node, SNIB_EUNREACHABLE, now);
        }
        if (cluster_probe_at(&c->member[i]) <= now) {
            c->member[i].probed_at = now;
            snib__node_ask(e, node, CLUSTER_INFO, now);
        }
        if (c->known)
            cluster_leave(e, &c->member[i], now);
    }
    cluster_note_calm(e, now);
    if (cluster_due(e) <= now)
        cluster_ask(e, now);
}

static snib__time cluster_deadline(const struct snib__engine *e)
{
    const struct snib__cluster *c = e->map;
    snib__time next = cluster_due(e);
    for (uint32_t i = 1; i < c->n; i++) {
        snib__time overdue = cluster_overdue(&c->member[i]);
        snib__time probe = cluster_probe_at(&c->member[i]);
        next = overdue < next ? overdue : next;
        next = probe < next ? probe : next;
    }
    return next;
}

const struct snib__route snib__cluster = {
    .begin = cluster_begin,
    .end = cluster_end,
    .serves = cluster_serves,
    .asks = cluster_asks,
    .wanted = cluster_wanted,
    .ready = cluster_ready,
    .down = cluster_down,
    .encode = cluster_encode,
    .answer = cluster_answer,
    .redirected = cluster_redirected,
    .publish = cluster_publish,
    .tick = cluster_tick,
    .deadline = cluster_deadline,
};
