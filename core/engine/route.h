/* route.h - which node serves a name, and what happens when that changes.
 *
 * single.c    one server, for ever
 * sentinel.c  one server at a time, as the sentinels tell
 * cluster.c   a server for each slot, as the servers tell
 *
 * The engine calls a route with what happened; a route makes nodes, gives them addresses and moves gates between
 * them.  It asks its own questions (SNIB__REQ_ROUTE) over the nodes' links, and sends and waits for nothing else.
 */
#ifndef SNIB__ROUTE_H
#define SNIB__ROUTE_H

#include "engine/internal.h"

struct snib__route {
    /* Make the first nodes, and say which is e->home: 0, or -1 when out of memory. */
    int (*begin)(struct snib__engine *e);
    void (*end)(struct snib__engine *e); /* free what begin() made beside nodes; NULL: nothing */
    /* The node of a name.  Never NULL: what nobody serves yet belongs to a node that waits for an address. */
    struct snib__node *(*serves)(struct snib__engine *e, const char *name, size_t n);
    /* The node of a question without a name, or with one and without a gate; NULL: e->home, always. */
    struct snib__node *(*asks)(struct snib__engine *e, const struct snib__op *op);
    /* A node is wanted that has no address (yet). */
    void (*wanted)(struct snib__engine *e, struct snib__node *node, snib__time now);
    /* A link of a node is ready, or down (code: why; it is set back already). */
    void (*ready)(struct snib__engine *e, struct snib__link *link, snib__time now);
    void (*down)(struct snib__engine *e, struct snib__link *link, int32_t code, snib__time now);
    /* The route's own question `what` to a node: write it; take the answer, or that there is none. */
    int (*encode)(struct snib__engine *e, struct snib__buf *out, struct snib__node *node,
                  uint64_t what);
    void (*answer)(struct snib__engine *e, struct snib__node *node, uint64_t what,
                   const struct snib__value *reply, uint32_t n, int32_t error, snib__time now);
    /* A message on the pub/sub link of a node that is no server. */
    void (*heard)(struct snib__engine *e, struct snib__link *link, const struct snib__value *reply,
                  uint32_t n, snib__time now);
    /* An error reply of a server: true: it says where or when to go on, and the request is on its way there. */
    bool (*redirected)(struct snib__engine *e, struct snib__link *link,
                       struct snib__request *request, const char *text, uint32_t n, snib__time now);
    /* By which scripts a node's link is asked: enum snib__publish; NULL: the classic ones. */
    int (*publish)(struct snib__engine *e, const struct snib__link *link);
    void (*tick)(struct snib__engine *e, snib__time now);
    snib__time (*deadline)(const struct snib__engine *e);
};

extern const struct snib__route snib__single, snib__sentinel, snib__cluster;

/* for the routes, in node.c */

/* A node with an address, or NULL: one that waits for it.  NULL when out of memory.  It is never freed before
 * the engine: what serves nothing any more is idle, and may be given another address. */
struct snib__node *snib__node_new(struct snib__engine *e, int kind,
                                  const struct snib__address *address);
/* An idle node, whose links are down, is that of another address from now on. */
void snib__node_rename(struct snib__engine *e, struct snib__node *node,
                       const struct snib__address *address);
/* The node's part is played by the server at another address (failover): its links are made anew, at once. */
void snib__node_readdress(struct snib__engine *e, struct snib__node *node,
                          const struct snib__address *address, snib__time now);
/* Ask the route's question; 0, or -1: the link is not ready, or no memory. */
int snib__node_ask(struct snib__engine *e, struct snib__node *node, uint64_t what, snib__time now);
/* In a cluster the same with all names of a slot: collect those that the watchdog keeps, for any number of slots; then
 * put them in order; then ask the new servers that are connected; anew: also for what is asked for already, of
 * another server, perhaps. */
void snib__slot_move(struct snib__engine *e, uint16_t slot, struct snib__node *node,
                     struct snib__hold **moved, snib__time now);
void snib__slot_moved(struct snib__engine *e, struct snib__hold *moved, snib__time now);
void snib__slot_confirm(struct snib__engine *e, uint16_t slot, bool anew, snib__time now);
/* Requests that wait for a node whose gates were moved go to where they are now. */
void snib__node_reroute(struct snib__engine *e, struct snib__node *node, snib__time now);

#endif
