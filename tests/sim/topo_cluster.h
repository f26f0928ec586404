/* topo_cluster.h - what the files of the simulated cluster share.
 *
 * topo_cluster.c  what each node believes, and how that spreads; failover
 * topo_slot.c     slots: whose a name is, what a node answers, moves
 */
#ifndef SNIB_TESTS_TOPO_CLUSTER_H
#define SNIB_TESTS_TOPO_CLUSTER_H

#include "topo.h"

#define CLUSTER_SLOTS 16384
#define CLUSTER_EVENTS (TOPO_ROUTE_OWN + 10) /* those of moves */

struct view_slot {
    int shard;
    uint64_t epoch;
    int migrating, importing; /* on the node itself: to whom, from whom; -1: no */
};

struct view_shard {
    int master;
    uint64_t epoch;
    snib__time lost_since; /* 0: it is there */
    bool fails;
};

struct view { /* of a node */
    struct view_slot slots[TOPO_NAMES];
    struct view_shard shards[TOPO_SHARDS];
    uint64_t epoch;
    snib__time alone_since, down_since, writable_at, up_at;
    bool failed; /* it finds the cluster's state so */
    bool down;   /* ... or had until now: it refuses */
};

struct slot { /* in truth */
    int number, shard;
    int to;        /* a shard to which it is on its way; -1: none */
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
void slot_left(int self, int slot); /* a node has heard that it is another's */
void shard_left(int self);          /* a node serves none of its slots any more */
void move_aborted(int shard);
void move_event(const struct topo_event *event);

#endif
