/* sentinel.h - shared by sentinel.c, which asks the sentinels in turn, sentinels.c, which knows them all, and ears.c, which
 * listens to them. */
#ifndef SNIB__SENTINEL_H
#define SNIB__SENTINEL_H

#include "engine/route.h"

#define SNIB__SENTINELS_MAX 32 /* the URL names no more; a bit each in a set of them */
#define SNIB__SENTINEL_POLL (1000 * SNIB__MS) /* between queries while the master replies */
#define SNIB__SENTINEL_PAUSE (100 * SNIB__MS) /* after a failure: doubled each time, */
#define SNIB__SENTINEL_REST (2000 * SNIB__MS) /* ... up to this */
#define SNIB__SENTINEL_SHUN                                                                        \
    (30000 * SNIB__MS) /* polls ask a failed sentinel again after a pause of at most this */

/* The result of the last query. */
enum snib__outcome {
    SNIB__OUTCOME_NONE,  /* never asked, or no answer */
    SNIB__OUTCOME_GOOD,  /* believed */
    SNIB__OUTCOME_STALE, /* not believed */
    SNIB__OUTCOME_UNKNOWN,
    SNIB__OUTCOME_REFUSED /* refused in a way that a retry would meet again */
};

struct snib__sentinel {
    struct snib__node *node;
    bool named;        /* in the URL */
    bool stranger;     /* it may belong to another deployment: nothing that it says is believed */
    bool outvoted;     /* ... as most of the others say: it vouches for nobody */
    uint32_t identity; /* of its node: another one is another process */
    bool asked;        /* and it has not answered yet */
    bool others;       /* asked for the other sentinels on this connection */
    snib__time others_at; /* ... or on an earlier one: when it was last */
    bool switched;        /* it has announced a switch: its next answer is about that */
    bool deaf;            /* it refuses the subscription */
    uint8_t outcome;
    bool has_epoch;
    uint32_t voters; /* the sentinels that it knows, itself included; 0: it does not say */
    uint64_t epoch;  /* of its answer */
    struct snib__address address;
    snib__time shun, shun_until; /* skipped by polls until then, after a failure */
    bool heard;                  /* subscribed to, or about to be */
    bool confirmed;              /* a subscription is confirmed on this connection, ... */
    snib__time confirmed_at;     /* ... since then */
    snib__time listen, listen_pause;
    int32_t code;       /* REFUSED */
    uint32_t questions; /* under way; only the answer to the last counts */
};

struct snib__sentinels {
    struct snib__sentinel all[SNIB__SENTINELS_MAX];
    uint32_t n;
    uint32_t turn;       /* the last one asked */
    uint32_t left;       /* how many the round has still to ask */
    bool round;          /* a round is running */
    bool failed;         /* home is down, and was tried at this address */
    bool told;           /* that sentinels were set up anew, which name another master, */
    bool told_unaware;   /* ... or that none knows the service any more */
    uint64_t epoch;      /* the highest that was believed */
    snib__time late;     /* when the next one is asked in parallel */
    snib__time next;     /* when the next round begins */
    snib__time moved_at; /* when another address was believed than before, ... */
    snib__time swing; /* ... and how long that is tried: longer each time, until one is reached */
    snib__time pause; /* after the last useless round */
};

static inline struct snib__sentinels *snib__sentinels_of(const struct snib__engine *e)
{
    return e->map;
}

/* A pause after one more failure. */
static inline snib__time snib__sentinel_longer(snib__time pause, snib__time first, snib__time most)
{
    return pause == 0 ? first : pause * 2 > most ? most : pause * 2;
}

/* The one with this node; NULL: it is the master's. */
struct snib__sentinel *snib__sentinel_of(const struct snib__engine *e,
                                         const struct snib__node *node);
/* Add one, unless it is there already or there is no room.  False: out of memory. */
bool snib__sentinel_add(struct snib__engine *e, const struct snib__address *address, bool named);
/* Another sentinel has named this one. */
void snib__sentinel_learn(struct snib__engine *e, const struct snib__address *address);
/* Whether a stranger that names this address as that of another sentinel belongs to the same deployment. */
bool snib__sentinel_vouches(const struct snib__engine *e, const struct snib__sentinel *stranger,
                            const struct snib__address *address);
/* One of more than half of them that agree and are not believed: strangers, or on an epoch lower than one already seen, because
 * they were set up from scratch and count from 0 again.  NULL: there is none. */
const struct snib__sentinel *snib__sentinels_of_most(const struct snib__engine *e);

/* Subscribe to as many as it takes. */
void snib__ears_tick(struct snib__engine *e, snib__time now);
/* When that is to be called again. */
snib__time snib__ears_deadline(const struct snib__engine *e);
/* The connection for its news is there, or has ended. */
void snib__ear_ready(struct snib__sentinel *one);
void snib__ear_down(struct snib__sentinel *one, snib__time now);
/* A message or a reply on it.  True: a switch is announced. */
bool snib__ear_heard(struct snib__engine *e, struct snib__sentinel *one,
                     const struct snib__value *reply, uint32_t n, snib__time now);

#endif
