/* topo_single.c - a deployment behind one address: when the master is gone, an external monitor
 * promotes a replica in its place and moves the address.  Clients are told nothing.
 *
 * The old master may still be a master that no client reaches; once found again it has to follow.
 */
#include "topo.h"

#define NOTICED (1500 * SNIB__MS) /* until a lost master is noticed, at most */

void single_plan(void)
{
    int replicas = (int)topo_between(1, 2);
    topo.shard_count = 1;
    snib__address_host(&topo.address, "10.0.9.1", 8, 6379, false);
    topo.seeds[0] = topo.address;
    topo.seed_count = 1;
    server_new(false, 0);
    for (int i = 0; i < replicas; i++) {
        server_follow(server_new(false, 0), 0, false);
    }
}

void single_lost(int shard)
{
    if (topo.topology != SNIB__SINGLE) {
        return; /* the servers detect it themselves */
    }
    const struct topo_shard *is = &topo.shards[shard];
    topo_later(topo.now + topo_between(20 * SNIB__MS, NOTICED), TOPO_PROMOTE, is->authority, shard,
               is->terms);
}

/* All other running servers have to follow, sooner or later. */
static void align(int shard, int master)
{
    for (int i = 0; i < topo.data_count; i++) {
        if (i != master && topo.servers[i].shard == shard && topo.servers[i].master != master) {
            topo_later(topo.now + topo_between(SNIB__MS, 500 * SNIB__MS), TOPO_FOLLOW, i, master,
                       topo.shards[shard].terms);
        }
    }
}

/* Whether the master looks healthy to the monitor. */
static bool is_well(int master)
{
    return server_runs(master) && topo.servers[master].master < 0 &&
           topo.apart[master][(master + 1) % topo.data_count] <= topo.now;
}

static void promote(const struct topo_event *event)
{
    const struct topo_shard *shard = &topo.shards[event->b];
    if (shard->terms != event->c) {
        return;
    }
    bool manual = event->a < 0;
    int next = server_best_replica(event->b, shard->authority);
    if (!manual && is_well(shard->authority)) {
        return; /* it was back in time */
    }
    if (next < 0) {
        if (!manual) {
            topo_later(topo.now + 100 * SNIB__MS, TOPO_PROMOTE, event->a, event->b, event->c);
        }
        return;
    }
    int old = shard->authority;
    server_promote(next);
    topo_later(topo.now + topo_draw(topo_chance(2) ? 2 * SNIB__MS : 300 * SNIB__MS), TOPO_ADDRESS,
               next, 0, shard->terms);
    if (server_runs(old) && topo_chance(2)) {
        server_follow(old, next, topo_chance(2)); /* immediately: it was told first */
    }
    align(event->b, next);
}

void single_event(const struct topo_event *event)
{
    if (event->kind == TOPO_PROMOTE) {
        promote(event);
    } else if (event->kind == TOPO_ADDRESS && topo.shards[0].terms == event->c) {
        topo_trace("the address is server %d's", event->a);
        topo.at_address = event->a;
        for (int i = 0; i < topo.data_count; i++) {
            if (i != event->a && topo_chance(2)) {
                net_leave(i);
            }
        }
    }
}

/* The faults are over: complete what is unfinished. */
void single_settle(void)
{
    if (topo.topology != SNIB__SINGLE) {
        return;
    }
    const struct topo_shard *shard = &topo.shards[0];
    if (!is_well(shard->authority)) {
        single_lost(0);
    }
    align(0, shard->authority);
    topo_later(topo.now, TOPO_ADDRESS, shard->authority, 0, shard->terms);
}
