/* topo_cluster.c - a cluster: what each node believes of slots and masters, and how that spreads.
 *
 * A view says which shard has a slot, and which node is a shard's master; both have epochs, and the
 * higher one wins wherever two nodes meet.  The truth is the newest of all.  Only the slots of
 * names in use are tracked one by one: the others stay where they were.
 */
#include "topo_cluster.h"

#include "snib.h"

#include <string.h>

#define TICK (50 * SNIB__MS)

struct cluster cluster;

enum { TOPO_TICK = TOPO_ROUTE_OWN, TOPO_GOSSIP };

/* ---- Views -------------------------------------------------------------------------------------- */

/* A node believes another that has a slot by a higher epoch.  Which slots it is moving it knows only
 * from commands to itself: it keeps the mark of one that it imports, whose owner it does not change
 * meanwhile, and drops that of a slot which has left it. */
static void learn_slot(int self, int slot, const struct view_slot *its)
{
    struct view_slot *mine = &cluster.views[self].slots[slot];
    bool gone = mine->shard == topo.servers[self].shard && mine->shard != its->shard;
    if (its->epoch <= mine->epoch || mine->importing >= 0)
        return;
    mine->shard = its->shard;
    mine->epoch = its->epoch;
    if (gone) {
        mine->migrating = -1;
        slot_left(self, slot);
    }
}

/* A node takes over what another knows better. */
static void learn(int self, int other)
{
    struct view *mine = &cluster.views[self];
    const struct view *its = &cluster.views[other];
    for (int i = 0; i < cluster.slot_count; i++) {
        learn_slot(self, i, &its->slots[i]);
    }
    for (int i = 0; i < topo.shard_count; i++) {
        if (its->shards[i].epoch > mine->shards[i].epoch) {
            mine->shards[i] = its->shards[i];
        }
    }
    mine->epoch = its->epoch > mine->epoch ? its->epoch : mine->epoch;
}

/* A master that has been replaced learns of it and follows; so does a replica of a former
 * master. */
static void obey(int self)
{
    struct topo_server *server = &topo.servers[self];
    int master = cluster.views[self].shards[server->shard].master;
    if (master != self && server->master != master) {
        shard_left(self);
        server_follow(self, master, false);
        net_collect(self);
    }
}

static void meet(int self, int other)
{
    if (server_reaches(self, other)) {
        learn(self, other);
        learn(other, self);
        obey(self);
        obey(other);
    }
}

/* Reachable nodes hear of it soon, the others later by gossip. */
void cluster_spread(int from)
{
    for (int i = 0; i < topo.data_count; i++) {
        if (i != from) {
            topo_later(topo.now + topo_between(SNIB__MS, 30 * SNIB__MS), TOPO_GOSSIP, from, i, 0);
        }
    }
}

/* ---- Reachability ------------------------------------------------------------------------------- */

static int count_masters(const struct view *view, int self, int *out_reached)
{
    int all = 0;
    *out_reached = 0;
    for (int i = 0; i < topo.shard_count; i++) {
        int master = view->shards[i].master;
        bool votes = false;
        for (int j = 0; j < cluster.slot_count; j++) {
            votes |= view->slots[j].shard == i;
        }
        if (votes || i < cluster.base) {
            all++;
            *out_reached += master == self || server_reaches(self, master);
        }
    }
    return all;
}

/* A node that does not see most masters for a while, or sees slots without one, refuses
 * requests. */
static void look(int self)
{
    struct view *view = &cluster.views[self];
    int reached, all = count_masters(view, self, &reached);
    bool alone = 2 * reached <= all;
    view->alone_since = !alone ? 0 : view->alone_since != 0 ? view->alone_since : topo.now;
    bool uncovered = false;
    for (int i = 0; i < topo.shard_count; i++) {
        int master = view->shards[i].master;
        bool lost = master != self && !server_reaches(self, master);
        view->shards[i].lost_since = !lost                             ? 0
                                     : view->shards[i].lost_since != 0 ? view->shards[i].lost_since
                                                                       : topo.now;
        bool fails = view->shards[i].lost_since != 0 &&
                     topo.now >= view->shards[i].lost_since + cluster.node_timeout;
        view->shards[i].fails = fails && !alone;
        uncovered |= fails && i < cluster.base && cluster.full_coverage;
    }
    bool down = uncovered ||
                (view->alone_since != 0 && topo.now >= view->alone_since + cluster.node_timeout);
    if (view->failed && !down && topo.servers[self].master < 0 &&
        topo.now >= view->down_since + cluster.node_timeout) {
        view->writable_at = topo.now + topo_between(500 * SNIB__MS, 1000 * SNIB__MS); /* rejoin */
    }
    if (down && !view->failed) {
        view->down_since = topo.now;
    }
    view->failed = down;
    bool refused = view->down;
    view->down = down || topo.now < view->writable_at;
    view->up_at = refused && !view->down ? topo.now : view->up_at;
}

/* Its view is a file (nodes.conf) that a restart leaves alone, the slots on their way to or from it
 * included: a source that forgot them would serve anew what it has handed over. */
void cluster_returned(int at)
{
    struct view *view = &cluster.views[at];
    view->writable_at = topo.now + topo_between(500 * SNIB__MS, 2000 * SNIB__MS);
    view->alone_since = 0;
    view->down = true;
    view->failed = false;
}

/* ---- Failover ----------------------------------------------------------------------------------- */

static void promote(int replica, int shard)
{
    struct view *view = &cluster.views[replica];
    server_promote(replica);
    view->shards[shard].master = replica;
    view->shards[shard].epoch = view->epoch = ++cluster.last_epoch;
    for (int i = 0; i < cluster.slot_count; i++) {
        view->slots[i].migrating = view->slots[i].importing = -1;
    }
    move_aborted(shard);
    if (topo_chance(2)) {
        shard_left(replica); /* subscribers of the replica have to subscribe again */
        net_collect(replica);
    }
    cluster_spread(replica);
}

/* A replica asks the other masters for their votes. */
static void consider(int replica)
{
    struct view *view = &cluster.views[replica];
    int shard = topo.servers[replica].shard, reached;
    int all = count_masters(view, replica, &reached);
    bool lost = view->shards[shard].lost_since != 0 &&
                topo.now >= view->shards[shard].lost_since + cluster.node_timeout;
    if (!lost || 2 * reached <= all || topo.servers[replica].loading_until > topo.now ||
        topo.now < cluster.next_vote || view->shards[shard].epoch < truth_epoch(shard) ||
        !topo_chance(6)) {
        return;
    }
    cluster.next_vote = topo.now + 200 * SNIB__MS;
    promote(replica, shard);
}

/* CLUSTER FAILOVER: the replica catches up first, unless it is forced. */
static void manual(int shard)
{
    int master = topo.shards[shard].authority;
    int replica = server_best_replica(shard, master);
    if (replica < 0 || !topo.servers[replica].synced || !server_reaches(replica, master)) {
        return;
    }
    if (topo.focus != TOPO_FORMER && !topo_chance(3)) {
        model_data *data = model_save(topo.servers[master].model);
        model_load(topo.servers[replica].model, data);
        model_data_free(data);
    }
    promote(replica, shard);
    meet(replica, master);
}

/* ---- Interface to the world --------------------------------------------------------------------- */

static void tick(void)
{
    for (int i = 0; i < topo.data_count; i++) {
        if (!server_runs(i)) {
            continue;
        }
        look(i);
        if (topo.servers[i].master >= 0) {
            consider(i);
        }
        meet(i, (int)topo_draw((uint64_t)topo.data_count));
    }
    topo_later(topo.now + TICK, TOPO_TICK, 0, 0, 0);
}

snib__time cluster_up_since(int at)
{
    return cluster.views[at].down ? SNIB__NEVER / 2 : cluster.views[at].up_at;
}

uint64_t truth_epoch(int shard)
{
    return cluster.views[topo.shards[shard].authority].shards[shard].epoch;
}

static void plan_slots(void)
{
    for (int i = 0; i < topo.name_count; i++) {
        struct topo_name *name = &topo.names[i];
        int number = slot_of((model_text){name->text, name->n}), at = 0;
        while (at < cluster.slot_count && cluster.slots[at].number != number) {
            at++;
        }
        if (at == cluster.slot_count) {
            cluster.slots[cluster.slot_count++] = (struct slot){
                .number = number, .shard = number * cluster.base / CLUSTER_SLOTS, .to = -1};
        }
        name->slot = at;
        name->shard = cluster.slots[at].shard;
    }
}

static void plan_views(void)
{
    for (int i = 0; i < topo.data_count; i++) {
        struct view *view = &cluster.views[i];
        view->epoch = cluster.last_epoch = (uint64_t)topo.shard_count;
        for (int j = 0; j < cluster.slot_count; j++) {
            view->slots[j] = (struct view_slot){
                .shard = cluster.slots[j].shard, .epoch = 1, .migrating = -1, .importing = -1};
        }
        for (int j = 0; j < topo.shard_count; j++) {
            view->shards[j] =
                (struct view_shard){.master = topo.shards[j].authority, .epoch = (uint64_t)j + 1};
        }
    }
}

/* Two or three shards with a replica each, and a master without slots. */
void cluster_plan(void)
{
    memset(&cluster, 0, sizeof cluster);
    slot_begin();
    cluster.base = (int)topo_between(2, 3);
    cluster.node_timeout = topo_between(200 * SNIB__MS, 1500 * SNIB__MS);
    cluster.full_coverage = !topo_chance(3);
    topo.shard_count = cluster.base + 1;
    for (int i = 0; i < topo.shard_count; i++) {
        topo.shards[i].authority = server_new(false, i);
    }
    for (int i = 0; i < cluster.base; i++) {
        for (int j = topo_chance(4) ? 2 : 1; j > 0; j--) {
            server_follow(server_new(false, i), topo.shards[i].authority, false);
        }
    }
    plan_slots();
    plan_views();
    for (int i = 0; i < topo.data_count; i++) {
        if (i == 0 || topo_chance(2)) {
            topo.seeds[topo.seed_count++] = topo.servers[i].address;
        }
    }
    topo_later(topo.now + TICK, TOPO_TICK, 0, 0, 0);
}

void cluster_event(const struct topo_event *event)
{
    switch (event->kind) {
    case TOPO_TICK:
        tick();
        break;
    case TOPO_GOSSIP:
        meet(event->a, event->b);
        break;
    case TOPO_PROMOTE:
        manual(event->b);
        break;
    default:
        move_event(event);
    }
}
