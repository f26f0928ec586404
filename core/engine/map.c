/* map.c - a cluster's slot map: which node serves which slot.
 *
 * There are two sources: MOVED says of one slot that another node serves it, CLUSTER SLOTS says it
 * of all.  Neither has a number that tells which is newer, so the client believes:
 *
 *   MOVED      at once, if its sender was thought to serve the slot
 *   a map      if the epoch of the node that sends it (CLUSTER INFO, asked just before) is not
 *              older than that of the newest map, or if no such map has come for 15 s, because a
 *              cluster may be created anew; and slot by slot, except slots for which a MOVED has
 *              said otherwise within the last 3 s, unless that node says now that the cluster is down
 *
 * A map does not take slots from another node that answers and that it leaves out: after a failover or a resharding a living
 * master is named, unless it has none left, and then its own map says so, or it is cut off, and then it says that the cluster is
 * down.  If a map names none of the known nodes, its sender has joined another cluster, and nothing in it is believed while a
 * master answers that it leaves out.
 *
 * So a node that lags behind cannot undo what is known; if a map was wrong all the same, the next
 * MOVED corrects it.  Slots that no map names belong to member 0, a node without an address.
 */
#include "engine/cluster.h"

#include <string.h>

#define MAP_RECENT (3000 * SNIB__MS)
#define MAP_EPOCH (15000 * SNIB__MS)

static void map_give(struct snib__cluster *c, uint16_t slot, uint16_t member)
{
    c->member[c->owner[slot]].slots--;
    c->member[member].slots++;
    c->owner[slot] = member;
}

/* ---- MOVED ---- */

static bool map_is_recent(const struct snib__cluster *c, uint16_t slot, snib__time now)
{
    for (uint32_t i = 0; i < SNIB__RECENT_MAX; i++)
        if (c->recent[i].until > now && c->recent[i].slot == slot)
            return true;
    return false;
}

void snib__map_doubt(struct snib__cluster *c, const struct snib__node *node)
{
    for (uint32_t i = 0; i < SNIB__RECENT_MAX; i++)
        if (c->member[c->owner[c->recent[i].slot]].node == node)
            c->recent[i].until = 0;
}

/* It has got a slot. */
static void map_serves(struct snib__member *member)
{
    member->node->idle = false;
    member->deposed = false;
    member->named_at = 0;
}

/* A member has lost its last slot to an heir, which has been its replica, as far as anyone can tell. */
static void map_bereave(struct snib__cluster *c, uint16_t i, uint16_t heir)
{
    snib__durable_succeed(c->member[heir].node, c->member[i].node);
    if (i == 0) /* it stands for no server: what others had is known of the heirs now */
        snib__durable_renamed(c->member[i].node);
    else
        c->member[i].deposed = true;
}

/* A member says that it has given a slot away: because it is a replica of the other now, or only that one slot?  The next
 * map that has heard of it tells; until then the former is supposed, so that no grant is thought durable that is not. */
static void map_suppose(struct snib__cluster *c, uint16_t slot, uint16_t from, uint16_t to)
{
    snib__durable_suppose(c->member[to].node, c->member[from].node);
    c->member[to].given = slot + 1u;
}

void snib__map_told(struct snib__engine *e, uint16_t slot, uint16_t member, snib__time now)
{
    struct snib__cluster *c = e->map;
    uint16_t before = c->owner[slot];
    struct snib__hold *moved = NULL;
    c->recent[c->recent_at++ % SNIB__RECENT_MAX] = (struct snib__recent){slot, now + MAP_RECENT};
    if (before == member)
        return;
    map_give(c, slot, member);
    struct snib__node *node = c->member[member].node;
    map_serves(&c->member[member]);
    if (c->member[before].slots == 0)
        map_bereave(c, before, member);
    else
        map_suppose(c, slot, before, member);
    snib__slot_move(e, slot, node, &moved, now);
    snib__slot_moved(e, slot, moved, now);
    /* A query in flight is redirected like this one: between nodes that redirect everything to each
     * other, each reply would otherwise add one more. */
    snib__slot_confirm(e, slot, false, now);
    snib__node_reroute(e, c->member[before].node, now);
}

/* ---- CLUSTER SLOTS ---- */

/* The index after a value with all its elements. */
static uint32_t map_skip(const struct snib__value *reply, uint32_t n, uint32_t at)
{
    uint32_t left = 1;
    while (left > 0 && at < n) {
        left--;
        if (reply[at].type == SNIB__RESP_ARRAY)
            left += reply[at].count;
        at++;
    }
    return at;
}

/* The string at an index; NULL: there is none. */
static const char *map_text(const struct snib__engine *e, const struct snib__value *reply,
                            uint32_t n, uint32_t at, size_t *out_len)
{
    if (at >= n || reply[at].type != SNIB__RESP_STRING)
        return NULL;
    *out_len = reply[at].count;
    return snib__resp_text(e->resp, &reply[at]);
}

/* The value for "ip" in a node's metadata. */
static const char *map_ip(const struct snib__engine *e, const struct snib__value *reply, uint32_t n,
                          uint32_t at, size_t *out_len)
{
    uint32_t pairs = at < n && reply[at].type == SNIB__RESP_ARRAY ? reply[at].count / 2 : 0;
    for (uint32_t i = 0; i < pairs; i++) {
        size_t len;
        const char *name = map_text(e, reply, n, at + 1 + 2 * i, &len);
        if (name && len == 2 && memcmp(name, "ip", 2) == 0)
            return map_text(e, reply, n, at + 2 + 2 * i, out_len);
    }
    return NULL;
}

/* [endpoint, port, id, metadata]: a nil or empty endpoint means the host that was asked, "?" one
 * that was never set.  False: there is no usable address. */
static bool map_address(const struct snib__engine *e, const struct snib__node *from,
                        const struct snib__value *reply, uint32_t n, uint32_t at,
                        struct snib__address *out)
{
    size_t len = 0;
    if (at + 2 >= n || reply[at].type != SNIB__RESP_ARRAY || reply[at].count < 2 ||
        reply[at + 2].type != SNIB__RESP_INTEGER)
        return false;
    const char *host = map_text(e, reply, n, at + 1, &len);
    if (host && len == 1 && *host == '?')
        host = reply[at].count > 3 ? map_ip(e, reply, n, at + 4, &len) : NULL;
    else if (!host || len == 0)
        host = from->address.host, len = strlen(host);
    return host &&
           snib__address_host(out, host, len, (long)reply[at + 2].integer, e->config.seeds[0].tls);
}

static void map_note_spare(struct snib__cluster *c, const struct snib__address *address)
{
    if (!snib__cluster_is_spare(c, address) && c->spares_n < SNIB__SPARES_MAX)
        c->spare[c->spares_n++] = *address;
}

static void map_note_named(struct snib__cluster *c, const struct snib__address *address)
{
    for (uint32_t i = 1; i < c->n; i++)
        c->member[i].named |= snib__address_equal(&c->member[i].node->address, address);
}

/* Read [from, to, master, replica...] into the draft, without the replicas.  False: it has another form, more slots than are
 * left, or one master too many. */
static bool map_range(struct snib__engine *e, const struct snib__node *from,
                      const struct snib__value *reply, uint32_t n, uint32_t at, int64_t *left)
{
    struct snib__cluster *c = e->map;
    struct snib__address address;
    if (at + 3 >= n || reply[at].type != SNIB__RESP_ARRAY || reply[at].count < 3 ||
        reply[at + 1].type != SNIB__RESP_INTEGER || reply[at + 2].type != SNIB__RESP_INTEGER)
        return false;
    int64_t first = reply[at + 1].integer, last = reply[at + 2].integer;
    if (first < 0 || last < first || last >= SNIB__SLOTS || last - first >= *left)
        return false;
    *left -= last - first + 1;
    uint16_t member = 0;
    if (map_address(e, from, reply, n, at + 3, &address) &&
        (member = snib__cluster_member(e, &address)) == 0)
        return false;
    c->member[member].told = true;
    for (int64_t slot = first; slot <= last; slot++)
        c->draft[slot] = member;
    return true;
}

/* Each replica of a map that has been read. */
static void map_replicas(struct snib__engine *e, const struct snib__node *from,
                         const struct snib__value *reply, uint32_t n,
                         void (*note)(struct snib__cluster *, const struct snib__address *))
{
    struct snib__cluster *c = e->map;
    struct snib__address address;
    for (uint32_t i = 0, at = 1; i < reply->count; i++) {
        uint32_t nodes = reply[at].count - 2, node = at + 3;
        for (uint32_t k = 1; k < nodes; k++) {
            node = map_skip(reply, n, node);
            if (map_address(e, from, reply, n, node, &address))
                note(c, &address);
        }
        at = map_skip(reply, n, node);
    }
}

/* Nodes that only a refused map has named make room for others. */
static bool map_refused(struct snib__cluster *c)
{
    for (uint32_t i = 1; i < c->n; i++) {
        c->member[i].told = false;
        c->member[i].node->idle |= c->member[i].slots == 0;
    }
    return false;
}

static bool map_read(struct snib__engine *e, const struct snib__node *from,
                     const struct snib__value *reply, uint32_t n)
{
    struct snib__cluster *c = e->map;
    int64_t left = SNIB__SLOTS; /* each is named once: a map of 80,000 ranges is not read */
    if (reply->type != SNIB__RESP_ARRAY)
        return false;
    memset(c->draft, 0, sizeof c->draft);
    for (uint32_t i = 0; i < c->n; i++)
        c->member[i].told = false;
    for (uint32_t i = 0, at = 1; i < reply->count; i++, at = map_skip(reply, n, at))
        if (!map_range(e, from, reply, n, at, &left))
            return map_refused(c);
    return true;
}

/* Which masters answer and are left out of a map that has been read, other than its sender. */
static void map_omits(struct snib__engine *e, const struct snib__node *from,
                      const struct snib__value *reply, uint32_t n, snib__time now)
{
    struct snib__cluster *c = e->map;
    bool any = false;
    for (uint32_t i = 1; i < c->n; i++) {
        struct snib__member *one = &c->member[i];
        one->named = one->told;
        one->omitted = !one->told && one->node != from && snib__cluster_lives(one, now);
        any |= one->omitted;
    }
    if (!any) /* as a rule */
        return;
    map_replicas(e, from, reply, n, map_note_named);
    for (uint32_t i = 1; i < c->n; i++) {
        c->member[i].omitted = c->member[i].omitted && !c->member[i].named;
        if (c->member[i].omitted)
            snib__cluster_ask_it(e, &c->member[i], now);
    }
}

/* It names no node that is known from maps that were believed, and leaves out one that answers; and its sender has sent no
 * such map, or is another process since.  Masters that are other processes since do not count: their addresses may belong to
 * another cluster's nodes by now. */
static bool map_is_strange(const struct snib__cluster *c, const struct snib__node *from)
{
    bool omits = false;
    for (uint32_t i = 1; i < c->n; i++) {
        const struct snib__member *one = &c->member[i];
        bool proven = one->kin == one->node->identity + 1;
        if (proven && (one->node == from || (one->named && one->slots > 0)))
            return false;
        if (one->named && snib__cluster_is_spare(c, &one->node->address))
            return false;
        omits |= one->omitted;
    }
    return omits;
}

/* A master that is cut off says that the cluster is down, and another one may have its slots. */
static void map_let_go(struct snib__cluster *c, snib__time now)
{
    for (uint32_t i = 1; i < c->n; i++)
        if (snib__cluster_says_down(&c->member[i], now))
            c->member[i].omitted = false;
}

static void map_estrange(struct snib__engine *e, const struct snib__node *from)
{
    struct snib__cluster *c = e->map;
    c->wanted = true;
    map_refused(c);
    if (!c->told_strange)
        snib__engine_log(e, SNIB_LOG_WARNING,
                         "%s belongs to another cluster: its map is not believed",
                         snib__node_where(e, from));
    c->told_strange = true;
}

/* A map has been believed. */
static void map_note_kin(struct snib__cluster *c, const struct snib__node *from)
{
    for (uint32_t i = 1; i < c->n; i++) {
        struct snib__member *one = &c->member[i];
        if (one->told && one->slots > 0 && !one->mapped) {
            one->mapped = true;
            one->kin = one->node->identity + 1;
        }
        if (one->node == from) {
            one->kin = one->told ? from->identity + 1 : one->kin;
            one->away = !one->told;
        }
    }
}

/* It was reset, or has never been part of a cluster. */
static void map_note_none(struct snib__cluster *c, const struct snib__node *from)
{
    for (uint32_t i = 1; i < c->n; i++)
        if (c->member[i].node == from) {
            c->member[i].away = true;
            c->member[i].kin = 0;
        }
}

/* A map older than one already known. */
static bool map_is_old(const struct snib__cluster *c, uint64_t epoch, snib__time now)
{
    return epoch != 0 && epoch < c->epoch && now < c->epoch_at + MAP_EPOCH;
}

/* Update a member after a map that may leave it without slots; heir: who has them. */
static void map_depose(struct snib__cluster *c, uint32_t i, uint16_t heir, snib__time now)
{
    struct snib__member *member = &c->member[i];
    member->node->idle = !member->told && member->slots == 0 && i != 0;
    if (member->had > 0 && member->slots == 0)
        map_bereave(c, (uint16_t)i, heir);
    else if (member->slots > 0)
        map_serves(member);
    uint16_t given = (uint16_t)(member->given - 1);
    if (member->given && (c->draft[given] == i || !map_is_recent(c, given, now))) {
        member->given = 0;
        snib__durable_known(member->node);
    }
}

/* Whether a slot stays with its owner although the map does not say so. */
static bool map_stays(const struct snib__cluster *c, uint32_t slot, snib__time now)
{
    return c->member[c->owner[slot]].omitted || map_is_recent(c, (uint16_t)slot, now);
}

/* How many slots each member keeps: those for which the map says so, or is not believed. */
static void map_keep(const struct snib__cluster *c, uint16_t *keeps, snib__time now)
{
    for (uint32_t slot = 0; slot < SNIB__SLOTS; slot++)
        if (c->draft[slot] == c->owner[slot] || map_stays(c, slot, now))
            keeps[c->owner[slot]]++;
}

/* Which of several heirs has been the replica?  One that has served nothing before, or of which that is supposed. */
static bool map_may_have_replicated(const struct snib__member *heir)
{
    return heir->had == 0 || heir->given;
}

static void map_apply(struct snib__engine *e, snib__time now)
{
    struct snib__cluster *c = e->map;
    struct snib__hold *moved = NULL;
    uint16_t keeps[SNIB__MEMBERS_MAX] = {0};
    uint8_t touched[SNIB__SLOTS / 8] = {0};
    uint16_t heirs[SNIB__MEMBERS_MAX] = {0}; /* who has got the last of a member's slots */
    /* how many a member keeps against this map, and the last one of them */
    uint16_t kept[SNIB__MEMBERS_MAX] = {0}, last[SNIB__MEMBERS_MAX] = {0};
    bool changed = false;
    for (uint32_t i = 0; i < c->n; i++)
        c->member[i].had = c->member[i].slots;
    map_keep(c, keeps, now);
    for (uint32_t slot = 0; slot < SNIB__SLOTS; slot++) {
        uint16_t to = c->draft[slot];
        if (to == c->owner[slot])
            continue;
        if (map_stays(c, slot, now)) {
            c->wanted =
                true; /* that node has not heard of it, nor of what else has happened then */
            if (c->member[c->owner[slot]].omitted)
                continue;
            kept[c->owner[slot]]++;
            last[c->owner[slot]] = (uint16_t)slot;
            continue;
        }
        changed = true;
        touched[slot / 8] |= (uint8_t)(1u << slot % 8);
        heirs[c->owner[slot]] = to;
        if (c->owner[slot] == 0 ||
            (keeps[c->owner[slot]] == 0 && map_may_have_replicated(&c->member[to])))
            snib__durable_succeed(c->member[to].node, c->member[c->owner[slot]].node);
        map_give(c, (uint16_t)slot, to);
        snib__slot_move(e, (uint16_t)slot, c->member[to].node, &moved, now);
    }
    for (uint32_t i = 0; i < c->n; i++)
        map_depose(c, i, heirs[i], now);
    for (uint32_t i = 0; i < c->n; i++)
        if (kept[i] > 0 && kept[i] == c->member[i].slots)
            map_suppose(c, last[i], (uint16_t)i, c->draft[last[i]]);
    if (!changed)
        return;
    snib__slot_moved(e, -1, moved, now);
    for (uint32_t slot = 0; slot < SNIB__SLOTS; slot++)
        if (touched[slot / 8] & 1u << slot % 8)
            snib__slot_confirm(e, (uint16_t)slot, true, now);
    for (uint32_t i = 0; i < c->n; i++)
        snib__node_reroute(e, c->member[i].node, now);
}

void snib__map_answer(struct snib__engine *e, struct snib__node *from, uint64_t epoch,
                      const struct snib__value *reply, uint32_t n, snib__time now)
{
    struct snib__cluster *c = e->map;
    if (reply->type == SNIB__RESP_ARRAY && reply->count == 0)
        map_note_none(c, from);
    if (map_is_old(c, epoch, now) || !map_read(e, from, reply, n))
        return;
    const bool nothing = reply->count == 0 && c->known;
    if (!nothing)
        map_omits(e, from, reply, n, now);
    if (!nothing && map_is_strange(c, from)) {
        map_estrange(e, from);
        return;
    }
    map_let_go(c, now);
    c->trouble = c->wanted = false;
    if (nothing)
        return; /* a node that does not know the cluster yet, or no longer */
    c->known = c->known || reply->count > 0;
    if (epoch > c->epoch) /* a server took over from another: the queries have helped */
        c->urgent_n = 0;
    if (epoch != 0) {
        c->epoch = epoch;
        c->epoch_at = now;
    }
    c->spares_n = 0;
    map_replicas(e, from, reply, n, map_note_spare);
    map_apply(e, now);
    map_note_kin(c, from);
}
