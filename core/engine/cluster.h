/* cluster.h - between cluster.c, which talks with the nodes, and map.c, which knows whose the slots are. */
#ifndef SNIB__CLUSTER_H
#define SNIB__CLUSTER_H

#include "engine/route.h"
#include "net/slot.h"

#define SNIB__MEMBERS_MAX 1024 /* addresses at once: a cluster has a thousand nodes at most */
#define SNIB__RECENT_MAX 64
#define SNIB__SPARES_MAX 32

struct snib__member { /* an address that belongs, or has belonged, to the cluster */
    struct snib__node *node;
    uint32_t slots; /* how many it serves */
    uint32_t had;   /* ... before the map that is being read */
    bool told;      /* the map that is being read has it */
    uint64_t epoch; /* of the map that it tells next; 0: not told */
    bool deposed; /* it has lost all its slots: what it has not answered soon is asked of others */
};

/* A server has said itself where a slot is: for a while no map that says otherwise is believed. */
struct snib__recent {
    uint16_t slot;
    snib__time until;
};

struct snib__cluster {
    uint32_t n;                                    /* members; the first is no server */
    struct snib__member member[SNIB__MEMBERS_MAX]; /* by number */
    uint16_t owner[SNIB__SLOTS];                   /* number of the member; 0: nobody */
    uint16_t draft[SNIB__SLOTS];                   /* of the map that is being read */
    struct snib__gate *gates[SNIB__SLOTS];         /* e->slots */
    struct snib__recent recent[SNIB__RECENT_MAX];  /* a ring */
    uint32_t recent_at;
    struct snib__address
        spare[SNIB__SPARES_MAX]; /* replicas: who may know when a master does not */
    uint32_t spares_n;
    bool known;     /* there has been a map */
    bool wanted;    /* something has changed, or is missing */
    bool trouble;   /* somebody is not served */
    uint64_t epoch; /* the newest that a map came with */
    snib__time epoch_at;
    uint32_t urgent_n;   /* questions in a row that did not help */
    snib__time asked_at; /* the last question */
    snib__time next;     /* not before */
    uint32_t turn;       /* whose turn it is to be asked, or connected to */
};

/* The member that an address belongs to, made if need be; 0: there are too many, or no memory. */
uint16_t snib__cluster_member(struct snib__engine *e, const struct snib__address *address);

/* A server that was asked for the slot says that it is another's. */
void snib__map_told(struct snib__engine *e, uint16_t slot, uint16_t member, snib__time now);
/* The answer of a node to CLUSTER SLOTS, and its epoch just before; 0: not known. */
void snib__map_answer(struct snib__engine *e, struct snib__node *from, uint64_t epoch,
                      const struct snib__value *reply, uint32_t n, snib__time now);

#endif
