/* order.h - in which order locks are taken: finds orders that can deadlock before anyone does.
 *
 *     "a" --taken while held--> "b"      an edge for each pair, with the places of both in the program
 *
 * If the edges form a circle, as many callers as it has edges can wait for each other for ever.  Reading
 * waits only for writing: a lock that a circle enters by reading and leaves by reading does not close it.
 *
 * One graph for all clients of the process, for they may hold each other's locks up.  It is bounded, and
 * only grows.  The caller serialises all calls. */
#ifndef SNIB__ORDER_H
#define SNIB__ORDER_H

#include <stdbool.h>
#include <stdint.h>

#define SNIB__ORDER_MAX 4096    /* edges */
#define SNIB__ORDER_STEPS 8     /* of a circle, that are told */
#define SNIB__SITE_CAP 72       /* of a place in the program, with its NUL */
#define SNIB__ORDER_NAME_CAP 48 /* of a name as it is shown */

/* A lock's name at its server. */
struct snib__order_name {
    uint64_t id;                      /* a hash of both: the same lock from whatever client */
    bool reads;                       /* taken, or to be taken, together with other readers */
    char shown[SNIB__ORDER_NAME_CAP]; /* quoted */
};

/* An edge, for the text; valid for ever. */
struct snib__order_step {
    const char *held, *held_place;
    const char *taken, *taken_place;
};

enum snib__order {
    SNIB__ORDER_FINE,   /* it closes no circle, or was known */
    SNIB__ORDER_CIRCLE, /* it closes this circle */
    SNIB__ORDER_FULL    /* there is no room for it: told once */
};

/* snib__order_note - a caller that holds one lock is about to wait for another.  The first step is the new
 * edge; *out_n: how long the circle is, which may be more than there are steps. */
enum snib__order snib__order_note(const struct snib__order_name *held, const char *held_place,
                                  const struct snib__order_name *taken, const char *taken_place,
                                  struct snib__order_step steps[SNIB__ORDER_STEPS],
                                  uint32_t *out_n);

#endif
