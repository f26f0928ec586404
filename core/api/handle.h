/* handle.h - the table of handles, which are tickets, not addresses.
 *
 * A handle looks like a pointer to the caller and carries
 *
 *     63..60 kind | 59..32 slot | 31..0 generation (never 0)
 *
 * A slot is 16 bytes in a table that only grows, so any bit pattern can be looked up without
 * touching freed memory.  When a handle ends, its slot's generation advances, and remaining copies
 * of the old handle find nothing.
 *
 * References: snib__handle_new() and snib__handle_get() give one, snib__handle_put() gives one
 * back.  The first belongs to the handle itself; snib__handle_take() ends the handle and passes
 * that reference to its caller.  The last put after a take calls the kind's destructor.
 *
 *     object = snib__handle_get(SNIB__HOLD, hold);     use:   get ... put
 *     ...
 *     snib__handle_put(hold);
 *
 *     object = snib__handle_take(SNIB__HOLD, hold);    free:  take ... put
 *     ... leave tables and lists ...
 *     snib__handle_put(hold);
 *
 * Threads: every function from any thread.  get and put take no mutex.
 */
#ifndef SNIB__HANDLE_H
#define SNIB__HANDLE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum snib__kind { SNIB__CLIENT = 1, SNIB__LOCK = 2, SNIB__HOLD = 3, SNIB__OP = 4, SNIB__QUEUE = 5 };

/* snib__handle_new - a handle for object, with the handle's own reference; NULL when out of
 * memory. */
void *snib__handle_new(int kind, void *object);

/* snib__handle_bind - another object for a new handle, which no other caller knows yet. */
void snib__handle_bind(const void *handle, void *object);

/* snib__handle_get - the object with a reference, or NULL: the handle is NULL, of another kind, or
 * it has ended. */
void *snib__handle_get(int kind, const void *handle);

/* snib__handle_put - give back a reference from get or take. */
void snib__handle_put(const void *handle);

/* snib__handle_take - end the handle: of all callers exactly one gets the object and owes a put. */
void *snib__handle_take(int kind, const void *handle);

/* snib__handle_free_fn - the destructor of a kind; set before the kind's first handle.  It runs in
 * the thread of the last put, under no mutex of this table. */
void snib__handle_free_fn(int kind, void (*destroy)(void *object));

/* Counts the forks between the first process and this one.  An object that belongs to one process
 * records the value when it is made, and was inherited if the value differs. */
extern _Atomic uint32_t snib__fork_generation;

/* snib__fork_init - count forks from now on, and keep the table usable in the child.  Returns 0 or
 * errno, the same at every call; snib__handle_new() calls it too. */
int snib__fork_init(void);

/* snib__fork_within - whether the calling thread is in a handler of fork() that the program registered before Snib's.
 * There is no object behind any handle then, and none can be made. */
bool snib__fork_within(void);

#endif
