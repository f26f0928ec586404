/* lead.h - the consumer of a queue reads the replies itself.
 *
 * A loop that sleeps on its queue's descriptor would be woken by way of the background thread, which
 * reads the replies and rings the queue's bell: two threads wake for each batch of replies.  So the
 * descriptor is a set, of the bell and of the command sockets whose reader role belongs to the
 * consumer, which reads them when it drains the queue.  One queue of a client leads.
 *
 * The role never depends on the consumer: a caller that waits for a reply of its own takes it at
 * once, one that waits for another's ends the lead, because it may be that consumer itself, and the
 * thread takes the role from a consumer that leaves replies unread for LEAD_STALL.  Only while the
 * consumer is inside recv() the role is its own, as any other reader's.
 */
#ifndef SNIB__LEAD_H
#define SNIB__LEAD_H

#include "driver/driver.h"

/* The queue's part, guarded by the mutex. */
struct snib__leader {
    int set;    /* the bell, and the sockets that it reads */
    bool waits; /* its consumer sleeps on the set */
};

/* All of them inside. */

/* The queue has new operations: it leads if no other queue does. */
void snib__lead_offer(struct snib__driver *driver, struct snib__leader *leader);
/* It leads no more: all its roles are free. */
void snib__lead_leave(struct snib__driver *driver, const struct snib__leader *leader);
/* Give the consumer the free roles of links that have replies to come. */
void snib__lead_take(struct snib__driver *driver);
/* The same, for one link; false: there is no leader, or the system refuses. */
bool snib__lead_begin(struct snib__driver *driver, struct snib__sock *sock);
/* Whether the role is the consumer's and can be taken from it. */
bool snib__lead_yields(const struct snib__sock *sock);
/* Free the role if it is the consumer's.  Also for a socket that is about to be dropped. */
void snib__lead_end(struct snib__sock *sock);
/* The consumer has come: feed the engine with what has arrived.  Leaves and enters meanwhile. */
void snib__lead_read(struct snib__driver *driver, const struct snib__leader *leader);

/* For the thread: the role is to be taken from a consumer that does not come. */
bool snib__lead_stalls(const struct snib__sock *sock, snib__time now);
/* For the thread, which goes to sleep: when to look at this link again. */
snib__time snib__lead_look(struct snib__driver *driver, struct snib__link *link, snib__time now);

#endif
