/* debug.h - the option debug: what the rest of the API tells about the use of locks.
 *
 * A client without the option has no struct snib__debug; the callers look at that pointer, and call nothing
 * of this.  All functions but those for the exit are called inside the client. */
#ifndef SNIB__DEBUG_H
#define SNIB__DEBUG_H

#include "api/objects.h"

/* Set up client->debug and the driver's looks; 0, or -1: out of memory.  Not inside: nobody has the client yet. */
int snib__debug_begin(struct snib__client *client);
void snib__debug_end(struct snib__client *client);
/* What it tells of where its oldest holds were taken, and by whom, while inside; NULL: without the option. */
const char *snib__debug_taken(const struct snib__client *client);
uint64_t snib__debug_warnings(const struct snib__client *client); /* so far */

/* An acquisition was started; `op` may be done already.  waits: it is more than one attempt. */
void snib__debug_acquire(const struct snib__lock *lock, const struct snib__op *op, bool waits);
/* It ended with that hold, for one more user; NULL: without. */
void snib__debug_acquired(struct snib__client *client, const struct snib__op *op,
                          const struct snib__hold *hold);
/* A user has released the hold, or dropped it. */
void snib__debug_released(const struct snib__hold *hold);
/* A user is about to abandon the hold. */
void snib__debug_abandon(struct snib__client *client, const struct snib__hold *hold);
/* The hold is about to be freed. */
void snib__debug_gone(const struct snib__hold *hold);
/* The client is about to be closed, and its holds with it. */
void snib__debug_close(struct snib__client *client);

/* There is a lock whose waiting writers keep new readers out.  Outside. */
void snib__debug_prefers(const struct snib__lock *lock);

/* A client or lock was made, for a program that has to free it; and it is freed. */
void snib__debug_made(struct snib__client *client, const void *object, const char *what);
void snib__debug_freed(const void *object);

/* The process exits: from now on, nobody reads the log.  Outside. */
void snib__debug_exit(void);
void snib__debug_exited(void);

#endif
