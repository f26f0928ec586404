/* link.c - one connection to a node: when to connect, what ends it, what handles its replies.
 *
 *     down --wanted, back-off over--> wish to connect --link_up--> handshake --> ready
 *      ^------------ link_down, or closed by the engine: silence, nonsense, a refusal -'
 *
 * A link that owes a reply for too long is closed: that is the only answer to doubt about a
 * connection.
 */
#include "engine/internal.h"

#include <stdio.h>
#include <string.h>

#define LINK_BACKOFF_MIN (10 * SNIB__MS)
#define LINK_BACKOFF_MAX (2000 * SNIB__MS)
#define LINK_BACKOFF_BRIEF (250 * SNIB__MS) /* at most, after a connection that did not last */
#define LINK_LASTS (1000 * SNIB__MS)        /* after this a connection that answers is a good one */
#define LINK_EAGER (50 * SNIB__MS)          /* a new operation shortens the back-off to this */

int snib__link_init(struct snib__engine *e, struct snib__link *link, struct snib__node *node,
                    int kind)
{
    struct snib__link **at = &e->links;
    if (snib__conn_init(&link->conn, kind == SNIB__PUBSUB) < 0)
        return -1;
    link->node = node;
    link->kind = (uint8_t)kind;
    while (*at)
        at = &(*at)->next;
    *at = link;
    return 0;
}

/* Frees it with its node; a link that was never initialised is not in the engine's list. */
void snib__link_free(struct snib__engine *e, struct snib__link *link)
{
    struct snib__link **at = &e->links;
    while (*at && *at != link)
        at = &(*at)->next;
    if (*at)
        *at = link->next;
    snib__conn_free(&link->conn);
}

/* ---- for the driver ---- */

struct snib__link *snib__engine_links(const struct snib__engine *e)
{
    return e->links;
}

struct snib__link *snib__link_next(const struct snib__link *link)
{
    return link->next;
}

const struct snib__address *snib__link_address(const struct snib__link *link)
{
    return link->node->addressed ? &link->node->address : NULL;
}

void **snib__link_way(struct snib__link *link)
{
    return &link->node->way;
}

int snib__link_kind(const struct snib__link *link)
{
    return link->kind;
}

void *snib__link_transport(const struct snib__link *link)
{
    return link->transport;
}

void snib__link_set_transport(struct snib__link *link, void *transport)
{
    link->transport = transport;
}

struct snib__link *snib__engine_link(const struct snib__engine *e, int kind)
{
    return &e->home->links[kind];
}

struct snib__buf *snib__link_output(struct snib__link *link)
{
    return &link->conn.out;
}

uint32_t snib__link_in_flight(const struct snib__link *link)
{
    return link->conn.ring_count;
}

uint64_t snib__link_appended(const struct snib__link *link)
{
    return link->conn.appended;
}

int snib__engine_take_wish(struct snib__engine *e, struct snib__link *link)
{
    (void)e;
    if (link->close) {
        link->close = false;
        return SNIB__WISH_CLOSE;
    }
    if (link->connect) {
        link->connect = link->proven = false;
        link->connecting = true;
        return SNIB__WISH_CONNECT;
    }
    return SNIB__WISH_NOTHING;
}

/* ---- life of a link ---- */

bool snib__link_rests(const struct snib__link *link)
{
    return link->conn.state == SNIB__CONN_DOWN && !link->connecting && !link->connect &&
           !link->close;
}

/* Whether an address is known.  The driver knows that of a single server for which
 * the engine was given none. */
static bool link_has_way(const struct snib__engine *e, const struct snib__link *link)
{
    return link->node->addressed || e->config.seeds_n == 0;
}

static const struct snib__login *link_login(const struct snib__engine *e,
                                            const struct snib__link *link)
{
    return link->node->kind == SNIB__A_SENTINEL ? &e->config.sentinel_login : &e->config.login;
}

void snib__link_want(struct snib__engine *e, struct snib__link *link, snib__time now)
{
    link->wanted = true;
    if (link->conn.state != SNIB__CONN_DOWN || link->connecting || link->connect)
        return;
    if (link->next_try > now + LINK_EAGER)
        link->next_try = now + LINK_EAGER;
    link->connect = link->next_try <= now && link_has_way(e, link);
}

static void link_begin(struct snib__engine *e, struct snib__link *link,
                       const struct snib__login *login, snib__time now)
{
    if (link->close) /* it was given up while it was made */
        return;
    link->connecting = false;
    if (snib__conn_begin(&link->conn, login, now) < 0)
        snib__link_close(e, link, SNIB_ENOMEM, now);
}

void snib__engine_link_up(struct snib__engine *e, struct snib__link *link, snib__time now)
{
    link_begin(e, link, link_login(e, link), now);
}

static struct snib__login link_passing_login(const struct snib__engine *e, const char *username,
                                             const char *password)
{
    struct snib__login login = e->config.login;
    login.username = username;
    login.password = password;
    login.passing = true;
    return login;
}

void snib__engine_link_up_as(struct snib__engine *e, struct snib__link *link, const char *username,
                             const char *password, snib__time now)
{
    struct snib__login login = link_passing_login(e, username, password);
    link_begin(e, link, &login, now);
}

bool snib__link_asks(const struct snib__engine *e, const struct snib__link *link)
{
    return e->config.asks && link->node->kind == SNIB__SERVER;
}

uint32_t snib__engine_relogin(struct snib__engine *e, const char *username, const char *password,
                              snib__time now)
{
    struct snib__login login = link_passing_login(e, username, password);
    uint32_t n = 0;
    for (struct snib__link *link = e->links, *next; link; link = next) {
        next = link->next;
        if (!snib__link_asks(e, link))
            continue;
        /* One that is logging in needs nothing now, but its login must be renewed, too. */
        n += link->conn.state == SNIB__CONN_HANDSHAKE;
        if (link->conn.state != SNIB__CONN_READY)
            continue;
        n++;
        if (link->kind == SNIB__PUBSUB)
            snib__link_close(e, link, SNIB_EUNREACHABLE, now);
        else if (snib__conn_relogin(&link->conn, &login, now) < 0)
            e->refused = true;
    }
    return n;
}

void snib__engine_no_relogin(struct snib__engine *e, const char *why)
{
    snib__engine_log(e, SNIB_LOG_WARNING, "cannot renew the login: %s", why);
}

bool snib__engine_take_refusal(struct snib__engine *e)
{
    bool refused = e->refused;
    e->refused = false;
    return refused;
}

bool snib__link_proven(const struct snib__link *link)
{
    return link->proven;
}

void snib__link_mask(struct snib__link *link, char *bytes, size_t n)
{
    snib__conn_mask(&link->conn, bytes, n);
}

/* A renewed login has been answered. */
static void link_relogged(struct snib__engine *e, struct snib__link *link)
{
    if (link->conn.relogin == SNIB__RELOGIN_REFUSED) {
        e->refused = true;
        snib__engine_log(e, SNIB_LOG_WARNING,
                         "%s refused a renewed login; the connection keeps its previous login: %s",
                         snib__node_where(e, link->node), link->conn.words);
        link->conn.words[0] = 0;
    }
    link->conn.relogin = SNIB__RELOGIN_NONE;
}

static void link_ready(struct snib__engine *e, struct snib__link *link, snib__time now)
{
    link->ready_at = now;
    if (snib__route_misfits(e, link)) {
        snib__link_close(e, link, SNIB_ETOPOLOGY, now);
        return;
    }
    e->stats.connects += link->node->kind == SNIB__SERVER;
    if (snib__lane_is(link)) {
        snib__lane_ready(e, link, now);
        return;
    }
    if (link->kind == SNIB__COMMAND)
        snib__node_link_ready(e, link, now);
    else
        snib__chan_pubsub_ready(e, link->node, now);
    snib__route_ready(e, link, now);
}

void snib__link_explain(struct snib__link *link, const char *sentence)
{
    if (!link->close)
        snprintf(link->conn.words, sizeof link->conn.words, "%s", sentence);
}

/* When to try next, and how much later if that fails, too.  A server, or what is in front of it, may end each connection
 * soon, though it answers. */
static void link_back_off(struct snib__engine *e, struct snib__link *link, snib__time ready_at,
                          snib__time now)
{
    snib__time most = link->proven ? LINK_BACKOFF_BRIEF : LINK_BACKOFF_MAX;
    bool lasted = ready_at != SNIB__NEVER && now >= ready_at + LINK_LASTS;
    bool idle = link->kind == SNIB__PUBSUB; /* it may have had no request until now */
    if (lasted && (link->proven || idle))
        link->backoff = 0;
    link->backoff = link->backoff < most ? link->backoff : most;
    /* The first attempt has jitter too: a server or Sentinel that goes drops all its clients at
     * once. */
    link->next_try = now + link->backoff / 2 +
                     snib__engine_random(e, link->backoff ? link->backoff / 2 : LINK_BACKOFF_MIN);
    link->backoff = link->backoff == 0         ? LINK_BACKOFF_MIN
                    : link->backoff * 2 > most ? most
                                               : link->backoff * 2;
}

static void link_down(struct snib__engine *e, struct snib__link *link, int32_t code, int os_error,
                      snib__time now)
{
    if (link->conn.failure) {
        code = link->conn.failure;
        os_error = 0;
    }
    snib__time oldest = snib__conn_oldest(&link->conn);
    snib__time ready_at = link->conn.state == SNIB__CONN_READY ? link->ready_at : SNIB__NEVER;
    bool was_ready = ready_at != SNIB__NEVER && !snib__route_misfits(e, link);
    if (snib__route_misfits(e, link))
        code = SNIB_ETOPOLOGY;
    link->connecting = false;
    snib__conn_reset(&link->conn);
    link->conn.failure = 0;
    link->next_try = SNIB__NEVER; /* what is sent again meanwhile does not shorten the pause */
    /* the route reconnects sentinels itself */
    bool server = link->node->kind == SNIB__SERVER;
    if (snib__lane_is(link)) {
        snib__lane_down(e, link, code, os_error, now);
    } else if (link->kind == SNIB__PUBSUB) {
        snib__chan_pubsub_down(e, link->node, now);
        link->wanted = server && snib__chan_needed(e, link->node);
    } else {
        snib__node_link_down(e, link, oldest, was_ready, code, os_error, now);
        link->wanted = server && snib__node_needed(e, link->node, now);
        if (!link->wanted)
            link->node->down_since = link->node->dull_since = SNIB__NEVER;
    }
    link_back_off(e, link, ready_at, now);
    link->soiled = false;
    link->conn.words[0] = 0; /* about this failure, not the next */
    link->conn.mode = SNIB__MODE_UNKNOWN;
    if (!snib__lane_is(link))
        snib__route_down(e, link, code, now);
}

/* Of a connection that the engine has given up, nothing is news. */
void snib__engine_link_down(struct snib__engine *e, struct snib__link *link, int32_t code,
                            int os_error, snib__time now)
{
    if (!link->close)
        link_down(e, link, code, os_error, now);
}

/* Close a link that can no longer be trusted. */
void snib__link_close(struct snib__engine *e, struct snib__link *link, int32_t code, snib__time now)
{
    link->close = true;
    link_down(e, link, code, 0, now);
}

/* ---- replies ---- */

int32_t snib__link_error(const struct snib__link *link, const struct snib__value *reply)
{
    return reply->type == SNIB__RESP_ERROR
               ? snib__conn_classify(snib__resp_text(link->conn.resp, reply), reply->count)
               : 0;
}

/* An error that says that the node is no master, is not ready yet, or does not know this connection
 * (any more): nothing was carried out, and the connection is useless. */
bool snib__link_disowns(const struct snib__link *link, const struct snib__value *reply)
{
    int32_t error = snib__link_error(link, reply);
    return error == SNIB_EREADONLY || error == SNIB_ELOADING ||
           (error == SNIB_EAUTH && snib__conn_is_stranger(snib__resp_text(link->conn.resp, reply)));
}

/* The first reply on a connection.  A connection that accepts the handshake and ends at the first
 * request is as useless as none: back-off keeps growing to its end, and patience still ends. */
static void link_proven(struct snib__link *link)
{
    link->proven = true;
    if (link->kind == SNIB__COMMAND && !snib__lane_is(link))
        link->node->dull_since = SNIB__NEVER;
}

static void link_answer(struct snib__engine *e, struct snib__link *link,
                        struct snib__request *request, const struct snib__value *reply, uint32_t n,
                        snib__time now)
{
    bool disowns = snib__link_disowns(link, reply);
    if (!link->proven && !disowns)
        link_proven(link);
    e->resp = link->conn.resp;
    if (link->kind == SNIB__COMMAND) {
        link->heard_at = now;
        snib__node_answer(e, link, request, reply, n, now);
    } else if (disowns)
        snib__link_close(e, link, snib__link_error(link, reply), now);
    else if (link->node->kind == SNIB__SERVER)
        snib__chan_pubsub(e, link, reply, n, now);
    else
        snib__chan_heard_else(e, link, reply, n, now);
}

static void link_spells(struct snib__engine *e)
{
    e->told_whole = true;
    snib__engine_log(
        e, SNIB_LOG_INFO,
        "the server refused SCRIPT LOAD: a script that it does not know is sent whole, with EVAL; "
        "allow this user +script|load, or have another user run snib scripts");
}

void snib__engine_input(struct snib__engine *e, struct snib__link *link, const char *bytes,
                        size_t n, snib__time now)
{
    struct snib__request request;
    const struct snib__value *reply;
    uint32_t reply_n = 0;
    int more;
    if (link->conn.state == SNIB__CONN_DOWN)
        return;
    if (snib__resp_feed(link->conn.resp, bytes, n) < 0) {
        snib__link_close(e, link, snib__resp_failure(link->conn.resp), now);
        return;
    }
    do {
        bool was_ready = link->conn.state == SNIB__CONN_READY;
        more = snib__conn_next(&link->conn, &request, &reply, &reply_n);
        if (more < 0) {
            snib__link_close(e, link, SNIB_EPROTOCOL, now);
            return;
        }
        if (!was_ready && link->conn.state == SNIB__CONN_READY) {
            link_ready(e, link, now);
            if (link->conn.state == SNIB__CONN_DOWN)
                return; /* closed, and the reply with it */
        }
        if (link->conn.relogin > SNIB__RELOGIN_ASKED)
            link_relogged(e, link);
        if (link->conn.no_load && !e->told_whole)
            link_spells(e);
        if (more)
            link_answer(e, link, &request, reply, reply_n, now);
    } while (more && link->conn.state != SNIB__CONN_DOWN);
}

/* ---- time ---- */

/* When an owed reply is overdue.  Replies come in order, so one proves the link: a server that takes long for all that was
 * asked at once, as after a reconnect, would be asked all of it again, for ever. */
static snib__time link_overdue(const struct snib__engine *e, const struct snib__link *link)
{
    snib__time since = snib__conn_oldest(&link->conn);
    if (link->conn.state == SNIB__CONN_DOWN || since == SNIB__NEVER)
        return SNIB__NEVER;
    if (link->kind == SNIB__COMMAND && link->heard_at > since)
        since = link->heard_at;
    return since + snib__node_reply_timeout(e, link->node) +
           (snib__durable_is(link) ? e->config.durability_timeout : 0);
}

void snib__link_tick(struct snib__engine *e, snib__time now)
{
    for (struct snib__link *link = e->links; link; link = link->next) {
        if (link_overdue(e, link) <= now)
            snib__link_close(e, link, SNIB_EUNREACHABLE, now);
        if (link->kind == SNIB__PUBSUB && snib__chan_silent(e, link, now))
            snib__link_close(e, link, SNIB_EUNREACHABLE, now);
        if (link->soiled)
            snib__link_close(e, link, SNIB_ENOMEM, now);
        snib__lane_tick(e, link, now);
        if (link->conn.state == SNIB__CONN_DOWN && link->wanted && !link->connecting &&
            link->next_try <= now && link_has_way(e, link))
            link->connect = true;
    }
}

snib__time snib__link_deadline(const struct snib__engine *e)
{
    snib__time next = SNIB__NEVER;
    for (const struct snib__link *link = e->links; link; link = link->next) {
        if (link->connect || link->close || link->soiled)
            return 0; /* a wish is waiting or about to be made */
        snib__time at = link_overdue(e, link);
        if (link->conn.state == SNIB__CONN_DOWN && link->wanted && !link->connecting &&
            link_has_way(e, link))
            at = link->next_try;
        if (link->kind == SNIB__PUBSUB && snib__chan_deadline(e, link) < at)
            at = snib__chan_deadline(e, link);
        if (snib__lane_deadline(link) < at)
            at = snib__lane_deadline(link);
        next = at < next ? at : next;
    }
    return next;
}
