/* group.h - multi and quorum locks over several clients, as the rest of the API sees them.
 *
 *     a lock has parts          each a client and a gate: of one member, or of several that one script takes
 *     an acquisition, a carrier for each part its operation and its hold, see carrier.h
 *     which has an outer        that is the carrier in the home client's engine, as a hold like all others: engine/outer.c
 *     and a group               which decides what to do next: locks/group.h.  To it, parts are members.
 */
#ifndef SNIB__API_GROUP_H
#define SNIB__API_GROUP_H

#include "api/objects.h"

struct snib__part {
    struct snib__client *client; /* a reference */
    struct snib__gate *gate;     /* a reference */
};

/* What a group lock and its acquisitions share. */
struct snib__parts {
    _Atomic uint32_t refs;
    bool majority;
    uint32_t vote_ms;    /* for how long a server without memory does not vote; 0: it may at once */
    uint32_t renewed_ms; /* the longest lease that members have while they are renewed */
    uint32_t n;
    struct snib__part part[];
};

/* Inside: an acquisition of a group lock, as snib__engine_acquire(). */
struct snib__op *snib__carrier_acquire(struct snib__lock *lock, const struct snib__acquire *how,
                                       snib__time now, int32_t *out_code);

/* Inside the home client: whether the lock may have this lease, 0: renewed.  It must not outlast the silence of
 * servers that have lost their memory: they could vote for another owner. */
bool snib__carrier_allows(const struct snib__hold *hold, int64_t lease_ms);

/* Inside the home client: the carrier of a hold, with a reference; NULL: it has none, or none any more. */
struct snib__carrier;
struct snib__carrier *snib__carrier_of(const struct snib__hold *hold);
/* Outside: whether, by their own clients, fewer members are safe beyond doubt than it needs; drops the reference. */
bool snib__carrier_doubts(struct snib__carrier *c);

/* The driver's callbacks.  Inside, of the member's client or the home client. */
void snib__carrier_done(struct snib__driver *driver, struct snib__op *op);
void snib__carrier_lost(struct snib__driver *driver, struct snib__hold *hold);
/* What a member's hold, which reports to this sink, is held for: the group's hold, to be compared only.  Inside the
 * member's client. */
const void *snib__carrier_outer(const void *sink);
void snib__carrier_news(struct snib__driver *driver, struct snib__outer *outer);
/* Outside: step the carriers that were listed inside. */
void snib__carrier_steps(void *list);

/* The gate's reference is taken over, the client gets one; there is room. */
void snib__parts_add(struct snib__parts *parts, struct snib__client *client,
                     struct snib__gate *gate);
void snib__parts_unref(struct snib__parts *parts);

#endif
