/* uses.h - what the option debug looks after.
 *
 * A use is one acquisition that waits or holds, or one object that must be freed.  The uses of all clients with
 * the option are in two tables, by thing and by actor, for an actor that holds a lock of one client may wait
 * for one of another.  By actor are only those that hold: that is what is looked for, and one actor may wait
 * for thousands.
 *
 * All but snib__use_of_lock(), snib__use_begin() and the hashes are called between snib__uses_lock() and
 * snib__uses_unlock(). */
#ifndef SNIB__USES_H
#define SNIB__USES_H

#include "api/objects.h"
#include "api/order.h"
#include "api/say.h"
#include "locks/group.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SNIB__USES_BUCKETS 512
#define SNIB__USE_WHO_CAP 48 /* of a thread or task, with its NUL */
#define SNIB__USE_NOWHERE "an unknown place"
#define SNIB__USE_HASH 0xcbf29ce484222325U /* what a hash begins with */

enum snib__use_what { SNIB__USE_AWAITED, SNIB__USE_HELD, SNIB__USE_MADE };

struct snib__use {
    struct snib__use *by_thing,
        *by_actor;     /* the next in its buckets; by actor only if it is held */
    const void *thing; /* the operation, then its hold; or an object */
    struct snib__client *client;
    uint64_t actor;
    snib__time since;
    enum snib__use_what what; /* constant between snib__use_add() and snib__use_take() */
    bool told;
    bool ordered; /* it has a place in the order of locks */
    bool alone;   /* its holder cannot get it once more without a release */
    char place[SNIB__SITE_CAP];
    char who[SNIB__USE_WHO_CAP];    /* "task Task-3"; empty: it has no name */
    char label[SNIB__SAY_LOCK];     /* mutex "name" */
    uint8_t parts[SNIB__GROUP_MAX]; /* of each name: those of one part are taken together */
    uint32_t n;
    struct snib__order_name names[]; /* of all members */
};

/* snib__uses_lock - guards the uses, and what else debug.c keeps for the process.  It is taken inside clients, and
 * nothing is taken under it.  false: a thread was stopped while it had it, by a debugger for example; the caller
 * has waited for half a second, once in the process, and goes on without all this. */
bool snib__uses_lock(void);
void snib__uses_unlock(void);

/* snib__use_of_lock - a use of the lock by nobody yet, to be freed with free(); NULL: out of memory. */
struct snib__use *snib__use_of_lock(const struct snib__lock *lock);
/* snib__use_begin - it is the calling thread's, or that of the task and place which snib_debug_here() has named for this
 * call. */
void snib__use_begin(struct snib__use *use);
/* What snib_debug_here() named is not for the next call. */
void snib__use_forget_here(void);
/* Whether it named a place, and no actor. */
bool snib__use_is_here_alone(void);

void snib__use_add(struct snib__use *use);
/* Out of the tables, the last that was added of the thing's; it is not freed.  NULL: none. */
struct snib__use *snib__use_take(const void *thing);
struct snib__use *snib__use_find(const void *thing); /* likewise, and it stays */
uint32_t snib__use_count(const void *thing);

/* All of one bucket: those that an actor holds, or those of a thing, and others; see by_actor and by_thing. */
struct snib__use *snib__uses_by_actor(uint64_t actor);
struct snib__use *snib__uses_by_thing(const void *thing);
struct snib__use *snib__uses_in(uint32_t bucket); /* by_thing */

/* ---- Hashes that are the same in every process ---- */

uint64_t snib__use_hash(uint64_t hash, const char *bytes, size_t n);
uint64_t snib__use_hash_text(uint64_t hash, const char *text);
uint64_t snib__use_server(const struct snib__client *client);

int snib__uses_init(void); /* 0 or errno */

#endif
