/* order.h - in which order locks are taken: finds orders that can deadlock before anyone does.
 *
 *     "a" --taken while held--> "b"      an edge for each pair, with the places of both in the program
 *
 * If the edges form a circle, as many callers as it has edges can wait for each other for ever.  Reading
 * waits only for writing: a lock that a circle enters by reading and leaves by reading does not close it.
 *
 * One graph for all clients of the process, for they may hold each other's locks up.  Its own edges stay.
 * Edges that other processes tell of come and go with what peers.c reads; a circle is this process's affair
 * if at least one of its edges is.  Both are bounded.  The caller serialises all calls. */
#ifndef SNIB__ORDER_H
#define SNIB__ORDER_H

#include "engine/engine.h"

#include <stdbool.h>
#include <stdint.h>

#define SNIB__ORDER_MAX 4096    /* edges of this process, and as many of others */
#define SNIB__ORDER_STEPS 8     /* of a circle, that are told */
#define SNIB__SITE_CAP 72       /* of a place in the program, with its NUL */
#define SNIB__ORDER_NAME_CAP 48 /* of a name as it is shown */
#define SNIB__PROCESS_CAP 96    /* of what a process says about itself */

/* A lock's name at its server: hashes of both, the same from whatever client of this process.  Other
 * processes may reach the server by another address. */
struct snib__order_name {
    uint64_t server, name;
    bool reads;                       /* taken, or to be taken, together with other readers */
    char shown[SNIB__ORDER_NAME_CAP]; /* quoted */
};

/* A caller that holds one lock waits for another. */
struct snib__order_pair {
    const struct snib__order_name *held, *taken;
    const char *held_place, *taken_place;
    const char *process; /* whose caller; NULL: this one's */
};

/* An edge, for the text; valid until the next call. */
struct snib__order_step {
    const char *held, *held_place;
    const char *taken, *taken_place;
    const char *process; /* NULL: this one */
};

struct snib__order_circle {
    struct snib__order_step steps[SNIB__ORDER_STEPS]; /* the first is the new edge */
    uint32_t n;   /* how long it is, which may be more than there are steps */
    bool foreign; /* it has edges of other processes */
    uint64_t id;  /* the same for the same edges */
};

enum snib__order {
    SNIB__ORDER_FINE,   /* it closes no circle, or was known */
    SNIB__ORDER_NEW,    /* the same, and it is an edge that this process has not had */
    SNIB__ORDER_CIRCLE, /* it is such an edge, and closes this circle */
    SNIB__ORDER_FULL    /* there is no room for it: told once */
};

/* snib__order_note - a caller of this process that holds one lock is about to wait for another. */
enum snib__order snib__order_note(const struct snib__order_pair *pair,
                                  struct snib__order_circle *out);

/* snib__order_lose - nothing is known any more, and nothing is freed: a change may have been cut in two by a fork. */
void snib__order_lose(void);

/* ---- What processes know of each other's, for the locks of one server ----
 *
 * snib__order_listen  what is known is about to be told anew
 * snib__order_hear    it contains this edge, until then, of whatever process; whether it closes a circle that
 *                     this process is part of
 * snib__order_heard   that was all: what it did not contain is forgotten, unless it is this process's own */
void snib__order_listen(uint64_t server);
bool snib__order_hear(const struct snib__order_pair *pair, snib__time until,
                      struct snib__order_circle *out);
void snib__order_heard(uint64_t server);

/* snib__order_tell - the edges of this process that others do not know, or not until then.  tell: false ends it. */
void snib__order_tell(uint64_t server, snib__time until,
                      bool (*tell)(void *context, const struct snib__order_pair *pair),
                      void *context);

#endif
