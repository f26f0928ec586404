/* topo_cluster.h - what the files of the simulated cluster share.
 *
 * topo_cluster.c  what each node believes, and how that spreads; failover
 * topo_slot.c     slots: which node serves a name, what it answers, moves
 */
#ifndef SNIB_TESTS_TOPO_CLUSTER_H
#define SNIB_TESTS_TOPO_CLUSTER_H

#include "topo.h"

#define CLUSTER_SLOTS 16384
#define CLUSTER_EVENTS (TOPO_ROUTE_OWN + 10) /* of slot moves */

struct view_slot {
    int shard;
    uint64_t epoch;
    int migrating, importing; /* on the node itself: to or from which node; -1: no */
};

struct view_shard {
    int master;
    uint64_t epoch;
    snib__time lost_since; /* 0: reachable */
    bool fails;
};

struct view { /* of a node */
    struct view_slot slots[TOPO_NAMES];
    struct view_shard shards[TOPO_SHARDS];
    uint64_t epoch;
    snib__time alone_since, down_since, writable_at, up_at;
    bool failed; /* it considers the cluster down */
    bool down;   /* ... or did until recently: it refuses requests */
};

struct slot { /* in truth */
    int number, shard;
    int to;        /* the shard to which it is being moved; -1: none */
    uint64_t turn; /* of the move */
};

struct cluster {
    int base; /* shards that have slots from the beginning */
    struct slot slots[TOPO_NAMES];
    int slot_count;
    struct view views[TOPO_SERVERS];
    snib__time node_timeout, next_vote;
    bool full_coverage;
    uint64_t last_epoch, turns;
};

extern struct cluster cluster;

/* topo_cluster.c */
void cluster_spread(int from);
uint64_t truth_epoch(int shard);

/* topo_slot.c */
void slot_begin(void);
int slot_of(model_text name);
void slot_left(int self, int slot); /* a node has heard that another serves it */
void shard_left(int self);          /* a node no longer serves any of its slots */
void move_aborted(int shard);
void move_event(const struct topo_event *event);

#endif
