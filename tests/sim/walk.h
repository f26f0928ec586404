/* walk.h - one engine, told anything that a server may say, in any order: what a walk knows.
 *
 * The other simulators' servers tell the truth, so lanes, durability, cancels and refusals meet only as an honest server
 * lets them.  Here every reply is one that some server could give, but no server stands behind all of them.
 *
 * walk.c          the loop over seeds, the life of one walk
 * walk_call.c     what callers do, and what becomes of their operations
 * walk_reply.c    connections, and replies to what is on its way
 * walk_message.c  subscriptions, and messages
 * walk_cluster.c  maps, redirects, and what no node serves
 * walk_outer.c    locks on several servers
 * walk_truth.c    who has an exclusive lock in truth, in walks whose servers are honest about that
 * walk_end.c      the end: all that waits is served, and nothing is left
 */
#ifndef SNIB_TESTS_WALK_H
#define SNIB_TESTS_WALK_H

#include "engine_check.h"

#define WALK_SECOND (1000 * SNIB__MS)
#define WALK_START (3600 * WALK_SECOND)
#define WALK_EPOCH 1700000000ULL /* the server's time at the engine's time 0, in seconds */
#define WALK_GATES 6
#define WALK_OPS 32
#define WALK_HOLDS 32
#define WALK_OUTERS 64
#define WALK_FORGOTTEN 8
#define WALK_TEXT 1024 /* bytes of a reply */

/* What happens in walks, all of it in every thousand. */
enum walk_event {
    WALK_GRANT,
    WALK_REENTRY,
    WALK_BUSY,
    WALK_TIMEOUT,
    WALK_FAILURE,
    WALK_CANCEL,
    WALK_RELEASE,
    WALK_ABANDON,
    WALK_EXTENSION,
    WALK_LOSS,
    WALK_HANDOVER,
    WALK_RECHECK,
    WALK_UNDO,     /* too few replicas had a grant */
    WALK_TOLD,     /* none had it, which the hold says */
    WALK_LIMIT,    /* too many operations */
    WALK_REFUSAL,  /* a reply is an error */
    WALK_DOUBT,    /* ... after which the request may have been carried out */
    WALK_GIVEN_UP, /* a connection without replies, or after a bad one */
    WALK_MESSAGE,
    WALK_DEAF,        /* a subscription was refused */
    WALK_CUT,         /* of the first link */
    WALK_CUT_LANE,    /* of a lane alone */
    WALK_CUT_FAIR,    /* ... which carried an attempt at a fair lock that others wait for */
    WALK_CUT_WAITED,  /* ... or at a lock of many */
    WALK_CUT_DURABLE, /* of the link for durability, with requests on it */
    WALK_CUT_PUBSUB,
    WALK_SERVER,   /* another one answers */
    WALK_CLOCK,    /* the server's was set */
    WALK_SHORT,    /* there was no memory */
    WALK_HASTY,    /* the engine was closed in the middle of everything */
    WALK_CARRIED,  /* a lock on several servers was granted */
    WALK_REDIRECT, /* to any node of a cluster */
    WALK_NOWHERE,  /* no node of it serves the request */
    WALK_KNOWN,    /* a valid hold is one in truth, at a step */
    WALK_FORGOT,   /* ... and no more */
    WALK_UNSEEN,   /* a request was carried out whose reply was lost with the connection */
    WALK_LEFT,     /* at the end somebody else still had the locks */
    WALK_SERVED,   /* what still waited then has got its lock */
    WALK_RELOGIN,  /* the login was renewed on all connections */
    WALK_EVENTS
};

struct walk_truth {
    uint64_t number;
    snib__time until;   /* its lease ends; it is free since */
    snib__time changed; /* the last request was carried out */
    struct {
        uint64_t number;
        snib__time until; /* its lease would have ended */
    } forgotten[WALK_FORGOTTEN];
    unsigned forgotten_n;
};

struct walk_gate {
    int kind;
    const char *name;
    size_t length;
    struct walk_truth truth;
};

struct walk_outer {
    struct snib__outer outer; /* first */
    bool used;
};

struct walk_hold {
    struct snib__hold *hold; /* NULL: unused */
    uint32_t users, leaving; /* of them: with a release on its way */
};

struct walk {
    uint64_t seed, random, hash;
    bool trace;
    snib__time now;
    struct snib__engine *engine;
    struct walk_gate gates[WALK_GATES];
    uint32_t gate_count;
    struct snib__op *ops[WALK_OPS];
    uint32_t op_count;
    struct walk_hold holds[WALK_HOLDS];
    struct walk_outer outers[WALK_OUTERS];
    uint64_t cursor;  /* of the last list */
    uint32_t server;  /* which one answers */
    int64_t clock;    /* by how much its clock was set, in seconds */
    bool honest;      /* about exclusive locks */
    bool replicas;    /* it has some */
    bool commands;    /* it has DELEX */
    bool cluster;     /* the servers are its nodes */
    unsigned strays;  /* ... and send one request in so many elsewhere */
    unsigned refuses; /* one reply in so many is an error */
    unsigned yields;  /* one attempt in so many is granted */
    unsigned cuts;    /* one step in so many ends a connection */
    unsigned leaps;   /* one passage of time in so many leads to the next deadline */
    unsigned sets;    /* one passage of time in so many sets the server's clock; 0: none */
    unsigned shorts;  /* one step in so many lacks memory; 0: none */
    unsigned lacks;   /* now: one request for memory in so many is refused; 0: none */
    int64_t objects;  /* the engine's, in memory */
    /* The end. */
    bool calm;        /* the servers are honest, and all connections work */
    bool mute;        /* ... except that no message comes */
    snib__time until; /* somebody else has all locks */
};

extern struct walk walk;
extern uint64_t walk_totals[WALK_EVENTS];

/* walk.c */
uint64_t walk_draw(uint64_t below);
bool walk_chance(unsigned one_in);
snib__time walk_between(snib__time least, snib__time most);
void walk_trace(const char *format, ...) __attribute__((format(printf, 1, 2)));
_Noreturn void walk_fail(const char *format, ...) __attribute__((format(printf, 1, 2)));
void walk_happens(int event);
/* One of a list of texts. */
#define walk_one(...)                                                                              \
    ((const char *const[]){                                                                        \
        __VA_ARGS__})[walk_draw(sizeof(const char *const[]){__VA_ARGS__} / sizeof(const char *))]

/* walk_call.c */
void call_something(void);
void call_results(void);
void call_give_back(void); /* everything that is held, unless its owner waits for more of it */

/* walk_reply.c */
void reply_links(void); /* what the engine wishes of them */
void reply_some(void);
void reply_all(void);
void reply_cut(void);
uint64_t reply_ms(void); /* the server's time */

/* walk_message.c */
void message_answer(struct snib__link *link);
void message_say(void);

/* walk_cluster.c */
void cluster_plan(struct snib__config *config);
void cluster_answer(uint64_t what, char *out);
const char *cluster_refusal(const struct snib__request *request);
const char *cluster_misplaced(const char *channel);

/* walk_outer.c */
struct snib__outer *outer_new(void); /* NULL: there are too many */
void outer_unused(struct snib__outer *outer);
void outer_go_on(void);

/* walk_truth.c */
bool truth_is_told(int kind);
bool truth_acquire(const struct snib__hold *hold, snib__time sent_at);
bool truth_release(const struct snib__hold *hold, snib__time sent_at);
bool truth_transfer(const struct snib__hold *from, const struct snib__hold *to, snib__time sent_at);
bool truth_renew(int kind, uint64_t number, snib__time lease, bool exact, snib__time sent_at);
void truth_forget(const struct snib__gate *one); /* NULL: all */
void truth_check(void);

/* walk_end.c */
void end_check(void);
void end_walk(void);

#endif
