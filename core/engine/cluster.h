/* cluster.h - shared by cluster.c, which talks to the nodes, and map.c, which has the slot map. */
#ifndef SNIB__CLUSTER_H
#define SNIB__CLUSTER_H

#include "engine/route.h"
#include "net/slot.h"

#define SNIB__MEMBERS_MAX 1024 /* known addresses; a cluster has a thousand nodes at most */
#define SNIB__RECENT_MAX 64
#define SNIB__SPARES_MAX 32

struct snib__member { /* an address that is or was part of the cluster */
    struct snib__node *node;
    uint32_t slots; /* slots it serves */
    uint32_t had;   /* ... before the map being read */
    bool told;      /* named in the map being read, as a master ... */
    bool named;     /* ... or as a replica */
    bool omitted;   /* it lives, and another node's map leaves it out */
    bool away;      /* its own map leaves it out: it has no slots, or was reset */
    bool mapped;    /* a map that was believed has named it as a master */
    uint32_t
        kin; /* its node's identity when such a map first named it, or it last sent one, and 1; or 0 */
    uint32_t given; /* a slot that a MOVED has given it, and 1, until a map has heard of it; or 0 */
    uint64_t epoch; /* of the map it sends next, and 1; 0: unknown */
    /* lost all its slots: requests it does not answer soon go to other nodes */
    bool deposed;
    snib__time probed_at; /* when it was last asked because its pub/sub link owes a reply */
    snib__time named_at;  /* when an ASK last named it, since it had slots; 0: never */
    snib__time downs_at;  /* when it last said that the cluster is down; 0: never */
};

/* A server's own MOVED for a slot: for a while, maps that say otherwise are not believed. */
struct snib__recent {
    uint16_t slot;
    snib__time until;
};

struct snib__cluster {
    uint32_t n;                                    /* members; the first stands for no server */
    struct snib__member member[SNIB__MEMBERS_MAX]; /* by number */
    uint16_t owner[SNIB__SLOTS];                   /* member number; 0: none */
    uint16_t draft[SNIB__SLOTS];                   /* from the map being read */
    struct snib__gate *gates[SNIB__SLOTS];         /* e->slots */
    struct snib__recent recent[SNIB__RECENT_MAX];  /* a ring buffer */
    uint32_t recent_at;
    /* replicas, which may have a map when no master answers */
    struct snib__address spare[SNIB__SPARES_MAX];
    uint32_t spares_n;
    bool known;        /* a map has been received */
    bool wanted;       /* a map is wanted: something changed or is missing */
    bool trouble;      /* some request is not served */
    bool told_strange; /* that a map was not believed */
    uint64_t epoch;    /* the highest epoch that came with a map */
    snib__time epoch_at;
    uint32_t urgent_n;     /* queries in a row that did not help */
    snib__time calm_since; /* since when all requests are served; NEVER: they are not */
    snib__time asked_at;   /* the time of the last query */
    snib__time next;       /* no query before this */
    uint32_t turn;         /* the next connected node to query */
    uint32_t connect_turn; /* the next address to connect to */
};

/* The member for an address, created if needed; 0: too many, or out of memory. */
uint16_t snib__cluster_member(struct snib__engine *e, const struct snib__address *address);

/* Whether it serves slots, as far as known: it answers, and its own map names it. */
bool snib__cluster_lives(const struct snib__member *member, snib__time now);
/* Whether it has said lately that the cluster is down. */
bool snib__cluster_says_down(const struct snib__member *member, snib__time now);
/* Another node's map leaves it out: ask for its own. */
void snib__cluster_ask_it(struct snib__engine *e, struct snib__member *member, snib__time now);
bool snib__cluster_is_spare(const struct snib__cluster *c, const struct snib__address *address);

/* The node says that the cluster is down: a map counts again for slots that were said to be its. */
void snib__map_doubt(struct snib__cluster *c, const struct snib__node *node);
/* The server that was asked for the slot says that another serves it. */
void snib__map_told(struct snib__engine *e, uint16_t slot, uint16_t member, snib__time now);
/* A node's reply to CLUSTER SLOTS, and its epoch just before, and 1; 0: unknown. */
void snib__map_answer(struct snib__engine *e, struct snib__node *from, uint64_t epoch,
                      const struct snib__value *reply, uint32_t n, snib__time now);

#endif
