/* route.h - which node serves a name, and what happens when that changes.
 *
 * single.c    one server, for good
 * sentinel.c  one server at a time, as the sentinels report; with sentinels.c and ears.c
 * cluster.c   one server per slot, as the servers report; with map.c
 *
 * The engine tells a route what happened; a route creates nodes, gives them addresses and moves
 * gates between them.  It sends its own queries (SNIB__REQ_ROUTE) over the nodes' links, and
 * nothing else.
 */
#ifndef SNIB__ROUTE_H
#define SNIB__ROUTE_H

#include "engine/internal.h"

struct snib__route {
    /* Create the first nodes and set e->home: 0, or -1 when out of memory. */
    int (*begin)(struct snib__engine *e);
    void (*end)(struct snib__engine *e); /* free what begin() made besides nodes; NULL: nothing */
    /* The node of a name.  Never NULL: a name that no server serves yet belongs to a node
     * that waits for an address. */
    struct snib__node *(*serves)(struct snib__engine *e, const char *name, size_t n);
    /* The node for a query without a gate, with or without a name; NULL: always e->home. */
    struct snib__node *(*asks)(struct snib__engine *e, const struct snib__op *op);
    /* A node without an address is wanted. */
    void (*wanted)(struct snib__engine *e, struct snib__node *node, snib__time now);
    /* A link of a node is ready, or down (code: why; the link is already reset). */
    void (*ready)(struct snib__engine *e, struct snib__link *link, snib__time now);
    void (*down)(struct snib__engine *e, struct snib__link *link, int32_t code, snib__time now);
    /* The route's own query `what` to a node: write it; take the reply. */
    int (*encode)(struct snib__engine *e, struct snib__buf *out, struct snib__node *node,
                  uint64_t what);
    void (*answer)(struct snib__engine *e, struct snib__node *node, uint64_t what,
                   const struct snib__value *reply, uint32_t n, int32_t error, snib__time now);
    /* A message on the pub/sub link of a node that is not a server. */
    void (*heard)(struct snib__engine *e, struct snib__link *link, const struct snib__value *reply,
                  uint32_t n, snib__time now);
    /* An error reply of a server: true: it says where or when to continue, and
     * the request is on its way. */
    bool (*redirected)(struct snib__engine *e, struct snib__link *link,
                       struct snib__request *request, const char *text, uint32_t n, snib__time now);
    /* The script variant for a link: enum snib__publish; NULL: classic. */
    int (*publish)(struct snib__engine *e, const struct snib__link *link);
    /* Add lines about this type of deployment: returns their length; NULL: there are none. */
    int (*tell)(const struct snib__engine *e, char *out, size_t cap);
    void (*tick)(struct snib__engine *e, snib__time now);
    snib__time (*deadline)(const struct snib__engine *e);
};

extern const struct snib__route snib__single, snib__sentinel, snib__cluster;

/* for routes, in node.c */

/* A node with an address, or NULL for one that waits for it.  Returns NULL when out of
 * memory.  A node is freed only with the engine: one that serves nothing any more is idle,
 * and may be given another address. */
struct snib__node *snib__node_new(struct snib__engine *e, int kind,
                                  const struct snib__address *address);
/* Give an idle node, whose links are down, another address. */
void snib__node_rename(struct snib__engine *e, struct snib__node *node,
                       const struct snib__address *address);
/* The server at another address takes over the node (failover): reconnect at once. */
void snib__node_readdress(struct snib__engine *e, struct snib__node *node,
                          const struct snib__address *address, snib__time now);
/* Send the route's query; 0, or -1: the link is not ready, or out of memory. */
int snib__node_ask(struct snib__engine *e, struct snib__node *node, uint64_t what, snib__time now);
/* In a cluster, the same for all names of a slot.
 * slot_move     for any number of slots: collect the renewed holds
 * slot_moved    then sort them into their lists
 * slot_confirm  then ask the new servers that are connected; anew: also about holds already asked
 *               about, perhaps at another server */
void snib__slot_move(struct snib__engine *e, uint16_t slot, struct snib__node *node,
                     struct snib__hold **moved, snib__time now);
void snib__slot_moved(struct snib__engine *e, int32_t slot, struct snib__hold *moved,
                      snib__time now);
void snib__slot_confirm(struct snib__engine *e, uint16_t slot, bool anew, snib__time now);
/* Resend requests that wait for a node whose gates have moved. */
void snib__node_reroute(struct snib__engine *e, struct snib__node *node, snib__time now);

#endif
