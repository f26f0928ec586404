/* route.c - the engine's side of route.h: a route's NULL functions do nothing. */
#include "engine/route.h"

#include <stdio.h>
#include <string.h>

int snib__route_begin(struct snib__engine *e)
{
    static const struct snib__route *const routes[] = {
        [SNIB__SINGLE] = &snib__single,
        [SNIB__CLUSTER] = &snib__cluster,
        [SNIB__SENTINEL] = &snib__sentinel,
    };
    e->route = routes[e->config.topology];
    return e->route->begin(e);
}

void snib__route_end(struct snib__engine *e)
{
    if (e->route && e->route->end)
        e->route->end(e);
}

struct snib__node *snib__route_asks(struct snib__engine *e, const struct snib__op *op)
{
    return e->route->asks ? e->route->asks(e, op) : e->home;
}

void snib__route_wanted(struct snib__engine *e, struct snib__node *node, snib__time now)
{
    if (e->route->wanted)
        e->route->wanted(e, node, now);
}

void snib__route_ready(struct snib__engine *e, struct snib__link *link, snib__time now)
{
    if (e->route->ready)
        e->route->ready(e, link, now);
}

void snib__route_down(struct snib__engine *e, struct snib__link *link, int32_t code, snib__time now)
{
    if (e->route->down)
        e->route->down(e, link, code, now);
}

void snib__route_heard(struct snib__engine *e, struct snib__link *link,
                       const struct snib__value *reply, uint32_t n, snib__time now)
{
    if (e->route->heard)
        e->route->heard(e, link, reply, n, now);
}

void snib__route_tick(struct snib__engine *e, snib__time now)
{
    if (e->route->tick)
        e->route->tick(e, now);
}

snib__time snib__route_deadline(const struct snib__engine *e)
{
    return e->route->deadline ? e->route->deadline(e) : SNIB__NEVER;
}

bool snib__route_redirected(struct snib__engine *e, struct snib__link *link,
                            struct snib__request *request, const char *text, uint32_t n,
                            snib__time now)
{
    return e->route->redirected && e->route->redirected(e, link, request, text, n, now);
}

size_t snib__route_tell(const struct snib__engine *e, char *out, size_t cap)
{
    static const char *const types[] = {
        [SNIB__SINGLE] = "single",
        [SNIB__CLUSTER] = "cluster",
        [SNIB__SENTINEL] = "sentinel",
    };
    bool tls = e->config.seeds_n > 0 && e->config.seeds[0].tls;
    int n = snprintf(out, cap, "deployment:%s\ntls:%s\nverified:%s\n", types[e->config.topology],
                     tls ? "yes" : "no", tls && !e->config.insecure ? "yes" : "no");
    if (e->config.topology != SNIB__CLUSTER)
        n += snprintf(out + n, cap - (size_t)n, "server:%s\n", snib__node_where(e, e->home));
    if (e->route->tell)
        n += e->route->tell(e, out + n, cap - (size_t)n);
    return (size_t)n;
}

bool snib__route_moved(const char *text)
{
    return strncmp(text, "MOVED ", 6) == 0 || strncmp(text, "ASK ", 4) == 0 ||
           strncmp(text, "CLUSTERDOWN", 11) == 0;
}

/* ---- servers of another type than the URL says ---- */

/* Whether the node is of another type than it is used as. */
bool snib__route_misfits(const struct snib__engine *e, const struct snib__link *link)
{
    int mode = link->conn.mode;
    if (mode == SNIB__MODE_UNKNOWN)
        return false;
    if (link->node->kind == SNIB__A_SENTINEL)
        return mode != SNIB__MODE_SENTINEL;
    return mode == SNIB__MODE_SENTINEL ||
           (e->config.topology == SNIB__CLUSTER) != (mode == SNIB__MODE_CLUSTER);
}

/* What the server is, and what to do. */
void snib__route_misfit_words(const struct snib__engine *e, const struct snib__link *link,
                              char out[SNIB__WORDS_MAX])
{
    char where[SNIB__ADDRESS_TEXT] = "";
    if (link->node->addressed)
        snib__address_text(&link->node->address, where);
    const char *at = where[0] ? where : snib__engine_where(e);
    bool tls = e->config.seeds_n > 0 && e->config.seeds[0].tls;
    const char *s = tls ? "s" : ""; /* or a password would go in the clear */
    if (link->node->kind == SNIB__A_SENTINEL)
        snprintf(out, SNIB__WORDS_MAX,
                 "%s is not a sentinel for \"%.40s\": name sentinels in the URL, or use redis%s://",
                 at, e->config.service, s);
    else if (link->conn.mode == SNIB__MODE_SENTINEL)
        snprintf(out, SNIB__WORDS_MAX, "%s is a sentinel: use redis%s+sentinel://%s/service", at, s,
                 at);
    else if (e->config.topology == SNIB__CLUSTER)
        snprintf(out, SNIB__WORDS_MAX, "%s is not a cluster node: use redis%s://%s", at, s, at);
    else
        snprintf(out, SNIB__WORDS_MAX, "%s is a cluster node: use redis%s+cluster://%s", at, s,
                 at[0] == '/' ? "host:port" : at);
}
