/* kinds.h - all kinds of locks as rows of one table, and a world in which each has a rival. */
#ifndef SNIB_TESTS_KINDS_H
#define SNIB_TESTS_KINDS_H

#include "support.h"

enum kind_traits {
    OWNED = 1,   /* an owner may re-enter */
    LEASED = 2,  /* a hold can be lost */
    COUNTED = 4, /* has a number to set first; it is set to 1, so that the lock is exclusive */
    TELLS = 8    /* a release sends waiters a message */
};

struct kind {
    const char *name;
    int32_t kind;
    uint32_t flags;
    int32_t rival; /* the kind that it excludes */
    uint32_t rival_flags;
    int traits;
};

enum { KINDS = 13 };
extern const struct kind kinds[KINDS];

/* A lock of one kind, seen from two clients. */
struct pair {
    const struct kind *kind;
    char name[32];
    snib_lock *ours;      /* with the options' lease and limit */
    snib_lock *same;      /* of the other client */
    snib_lock *rival;     /* of the other client */
    snib_lock *own_rival; /* of the first client */
    snib_hold *hold;      /* for the test */
};

struct kinds_world {
    struct server server;
    snib_client *ours, *theirs;
    snib_queue *queue, *their_queue;
    struct pair pairs[KINDS];
    char *base; /* the keys that exist while nothing is held */
};

struct kinds_options {                   /* 0 and NULL: the defaults */
    int64_t lease_ms, recheck_ms;        /* of both clients */
    int64_t fixed_lease_ms, max_hold_ms; /* of `ours` */
    const char *our_url;                 /* what the first client connects to */
};

/* cmocka's fixtures: a server for the whole file, an empty database for each test. */
int kinds_server_start(void **state);
int kinds_server_stop(void **state);
void kinds_open(struct kinds_world *world, struct kinds_options options);
void kinds_close(struct kinds_world *world); /* and check that nothing is left behind */

void kinds_set_numbers(struct kinds_world *world); /* sets those of COUNTED kinds to 1 */
void kinds_expect_base(struct kinds_world *world, int64_t limit_ms);
snib_op *must_submit(snib_lock *lock, int64_t wait_ms, snib_queue *queue, uint64_t token);
void expect_hold_lost(snib_hold *hold, int32_t reason, int64_t limit_ms);

/* for (EACH_KIND(world, pair)) ...  and only pairs with one of the traits */
#define EACH_KIND(world, pair) EACH_KIND_THAT(world, pair, ~0)
#define EACH_KIND_THAT(world, pair, traits)                                                        \
    struct pair *pair = kinds_next(world, NULL, traits);                                           \
    pair;                                                                                          \
    pair = kinds_next(world, pair, traits)

struct pair *kinds_next(struct kinds_world *world, struct pair *pair, int traits);

#endif
