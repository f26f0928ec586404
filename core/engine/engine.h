/* engine.h - what a driver and the API see of the engine: the whole lock logic as one state machine.
 *
 * Sans-I/O: no thread, socket, clock, sleep or random call in here.  Time comes in as `now`
 * (nanoseconds of a clock that counts suspended time), bytes come in and go out, wishes go out.  The
 * caller serialises all calls; the thread driver does so with the client's mutex, the simulator by
 * having one thread.
 *
 *     driver:  take_wish -> connect or close;  link_up, link_down;  input;  output;  tick, deadline
 *     api:     gate_get, acquire, release, ask, cancel, hold_*;  then take_done and take_lost
 *
 * Links: a client has nodes, which are servers, and a node has links, which are connections.  The driver goes
 * through them with engine_links() and link_next(); none comes or goes but inside engine_tick(), engine_input(),
 * engine_link_up() and engine_link_down(), and none goes before its wish to be closed was taken.
 */
#ifndef SNIB__ENGINE_H
#define SNIB__ENGINE_H

#include "net/address.h"
#include "net/conn.h"
#include "snib.h"

#include <stdbool.h>
#include <stdint.h>

struct snib__engine;
struct snib__gate; /* what this client knows of one lock name */
struct snib__hold;
struct snib__op;

struct snib__node; /* one server */
struct snib__link; /* one connection to it */

enum snib__link_kind { SNIB__COMMAND = 0, SNIB__PUBSUB = 1 };
#define SNIB__LANES_MAX 4 /* connections for commands to a node */
enum snib__wish { SNIB__WISH_NOTHING = 0, SNIB__WISH_CONNECT = 1, SNIB__WISH_CLOSE = 2 };

struct snib__config {
    int topology;             /* enum snib__topology */
    struct snib__login login; /* the strings stay the caller's and must outlive the engine */
    struct snib__login sentinel_login; /* SENTINEL: the same, to the sentinels */
    bool
        asks; /* the driver brings the login of each connection to a server, see snib__engine_link_up_as() */
    /* The server, the sentinels, or nodes of the cluster: the caller's, too.  0: the driver knows the one there is. */
    const struct snib__address *seeds;
    uint32_t seeds_n;
    const char *service;   /* SENTINEL: the name that the sentinels know */
    const char *where;     /* the server's address, for people; the same; NULL: not said */
    char uuid[37];         /* the client id */
    uint64_t seed;         /* for jitter */
    uint64_t first_number; /* of the first owner */
    snib__time lease, reply_timeout, patience, try_timeout, recheck;
    int32_t publish;      /* SNIB_PUBLISH_*: in a cluster */
    int32_t handover_max; /* 0: none */
    int32_t ops_max;
    int32_t lanes;             /* connections for commands to each node; 0: one */
    int32_t durability;        /* replicas that must have a grant, or SNIB_DURABILITY_*; 0: none */
    int32_t durability_policy; /* SNIB_DURABILITY_* */
    snib__time durability_timeout; /* less than a lease */
    bool scatter;                  /* all are opened and taken in no order: for tests */
    bool insecure;                 /* certificates are not verified: to be said once */
    void *home;                    /* the caller's, see snib__gate_home() */
};

struct snib__engine *snib__engine_new(const struct snib__config *config);
const char *snib__engine_where(const struct snib__engine *engine); /* constant */
void snib__engine_free(struct snib__engine *engine);

/* ---- driver ---- */

struct snib__link *snib__engine_links(const struct snib__engine *engine);
struct snib__link *snib__link_next(const struct snib__link *link);
int snib__link_kind(const struct snib__link *link); /* enum snib__link_kind */
/* A command link, and not the first of its node. */
bool snib__lane_is(const struct snib__link *link);
/* Where it goes, until its next wish to connect; NULL: the engine was not told. */
const struct snib__address *snib__link_address(const struct snib__link *link);
/* A pointer that the driver keeps with the link's node: the way to it; kept until the engine is freed. */
void **snib__link_way(struct snib__link *link);
/* A pointer that the driver keeps with the link: its socket. */
void *snib__link_carrier(const struct snib__link *link);
void snib__link_set_carrier(struct snib__link *link, void *carrier);
/* The first link of that kind to the only server there is. */
struct snib__link *snib__engine_link(const struct snib__engine *engine, int kind);
/* What should be done with a link; a wish is taken once and stands until link_up or link_down answers it. */
int snib__engine_take_wish(struct snib__engine *engine, struct snib__link *link);
void snib__engine_link_up(struct snib__engine *engine, struct snib__link *link, snib__time now);
/* The same, where the config asks: by these texts, which are the caller's.  NULL: none. */
void snib__engine_link_up_as(struct snib__engine *engine, struct snib__link *link,
                             const char *username, const char *password, snib__time now);
/* Whether it goes to a server that is to be logged in to as the driver says; sentinels have a login of their own. */
bool snib__link_asks(const struct snib__engine *engine, const struct snib__link *link);
/* What the links have logged in with is about to end: log in anew on all that are ready.  A connection with
 * subscriptions takes no login, so it is made anew.  Returns how many links there were. */
uint32_t snib__engine_relogin(struct snib__engine *engine, const char *username,
                              const char *password, snib__time now);
/* Whether a server has refused that since the last call. */
bool snib__engine_take_refusal(struct snib__engine *engine);
/* There is nothing to do that with, now. */
void snib__engine_no_relogin(struct snib__engine *engine, const char *why);
/* What came on a link, before snib__engine_input(): a password that a server repeats is overwritten. */
void snib__link_mask(struct snib__link *link, char *bytes, size_t n);
/* Before link_down: a sentence that says why.  SNIB_ETLS with an os_error may be over at the next attempt,
 * without one it is final. */
void snib__link_explain(struct snib__link *link, const char *sentence);
/* The transport is gone or could not be made.  code and os_error say why, as in snib_error. */
void snib__engine_link_down(struct snib__engine *engine, struct snib__link *link, int32_t code,
                            int os_error, snib__time now);
void snib__engine_input(struct snib__engine *engine, struct snib__link *link, const char *bytes,
                        size_t n, snib__time now);
/* Bytes to be sent: take from the front with snib__buf_consume() what was handed to the transport. */
struct snib__buf *snib__link_output(struct snib__link *link);
uint32_t snib__link_in_flight(const struct snib__link *link); /* commands without a reply */
uint64_t snib__link_appended(const struct snib__link *link);  /* commands so far */
void snib__engine_tick(struct snib__engine *engine, snib__time now);
snib__time snib__engine_deadline(const struct snib__engine *engine);

/* Whether what is started from now on has a thread that will read its answer itself. */
void snib__engine_call(struct snib__engine *engine, bool calling);

/* ---- operations ---- */

/* hold->phase: its way */
enum snib__phase {
    SNIB__NEW,    /* nothing sent, or refused: the server has nothing of it */
    SNIB__TRYING, /* an acquire or transfer to it is on its way, or its reply is missing */
    SNIB__PLACED, /* fair: the server has a place of it */
    SNIB__HELD,
    SNIB__RELEASING, /* a release is on its way, or has to be repeated */
    SNIB__LOST,      /* the holder was or will be told; the key may still be there */
    SNIB__GONE       /* released */
};

enum snib__op_kind {
    SNIB__OP_ACQUIRE = 1,
    SNIB__OP_RELEASE,
    SNIB__OP_INFO,
    SNIB__OP_FORCE,
    SNIB__OP_PING,
    SNIB__OP_LIST,
    SNIB__OP_DESCRIBE,
    SNIB__OP_SERVER,
    SNIB__OP_COUNT
};

/* An operation belongs to the engine while it runs and to the caller from take_done() to op_free().
 * The engine never looks at the caller's fields. */
struct snib__op {
    void *
        home; /* config.home; never changes, so it may be read without serialisation, even afterwards */
    struct snib__op *next, *prev;           /* engine: the gate's queue; then the caller's */
    struct snib__op *live_next, *live_prev; /* engine: all running operations */
    struct snib__gate *gate;                /* a reference, or NULL */
    struct snib__node *node;                /* engine: of a question without a gate */
    snib__time refused_since;               /* engine: nobody could serve it; 0: not */
    struct snib__link *link;                /* engine: on which its request is; NULL: on none yet */
    struct snib__hold *hold;
    snib__time started;
    uint64_t serial;     /* in order of start */
    snib__time deadline; /* of the wait; SNIB__NEVER */
    snib__time timer;    /* when in the heap */
    uint32_t timer_at;   /* place in the heap, 0 = not in it */
    int32_t code;
    int32_t os_error;
    int32_t cause; /* why there is no connection; 0 unknown */
    uint8_t kind;  /* enum snib__op_kind */
    uint8_t place; /* engine: where it is, see gate.c */
    bool once;     /* one try */
    bool waited;
    bool done;
    bool within;      /* set by the caller: it is part of another one here, which counts for both */
    bool unconfirmed; /* it ended behind a release of ours of which nobody knows what became */
    uint8_t reason;   /* of SNIB_LOST: enum snib_reason */
    uint64_t owner;
    struct {                         /* fair: what is known of its place */
        int64_t queued_ms;           /* when it was last seen waiting, by the server's clock */
        int64_t token, first_ms, ms; /* a grant that came while a request was on its way */
    } fair;
    snib_event *answer; /* INFO, COUNT; NULL else */
    char *words;        /* the server's, of an error; NULL: it has not spoken, or no memory */
    char *where;        /* of an error: the node's address, for people; NULL: that of the engine */
    struct snib__asked *asked;
    /* the caller's */
    void *handle;
    void *sink;
    void *tells; /* acquire: who is to hear of a loss */
    uint64_t token;
    uint32_t member; /* from 1: of a group, which is the sink; 0: none */
    _Atomic uint32_t word;
    bool awaited; /* a thread waits, or will, for it */
    bool busy;    /* a thread is waiting for it now */
};

struct snib__acquire {
    uint64_t owner;            /* 0 fresh */
    snib__time wait;           /* SNIB__NEVER no limit, 0 one try */
    snib__time lease;          /* 0: renewed */
    snib__time max_hold;       /* 0: none */
    struct snib__outer *outer; /* of a gate of kind SNIB__OUTER: who carries it */
    uint32_t permits;          /* PERMITS, SEMAPHORE: how many */
    uint32_t
        vote_ms;     /* member of a quorum: how long a node without memory must not vote; 0: none */
    uint8_t options; /* SNIB_LOCK_* */
    bool patient;    /* one try that endures an unreachable server like a longer wait */
};

/* The gate of a lock name, with a reference; NULL when out of memory. */
struct snib__gate *snib__gate_get(struct snib__engine *engine, int32_t kind, const char *name,
                                  size_t n);
void *snib__gate_home(const struct snib__gate *gate); /* config.home; needs no serialisation */
/* Its name, not ended by a NUL; constant. */
const char *snib__gate_name(const struct snib__gate *gate, size_t *out_len);
int32_t snib__gate_kind(const struct snib__gate *gate); /* constant */
void snib__gate_ref(struct snib__gate *gate);
void snib__gate_put(struct snib__engine *engine, struct snib__gate *gate);

/* Start an operation.  NULL: *out_code says why (SNIB_ENOMEM, SNIB_ELIMIT, SNIB_ECLOSED, ...) and nothing was
 * started.  It may be done at once: see op->done. */
struct snib__op *snib__engine_acquire(struct snib__engine *engine, struct snib__gate *gate,
                                      const struct snib__acquire *how, snib__time now,
                                      int32_t *out_code);
/* release: *out_code is SNIB_OK without an operation when only a re-entry was undone. */
struct snib__op *snib__engine_release(struct snib__engine *engine, struct snib__hold *hold,
                                      snib__time now, int32_t *out_code);
/* An operation that is done with SNIB_OK: for who was promised an event of what needed no command. */
struct snib__op *snib__engine_nothing(struct snib__engine *engine, snib__time now,
                                      int32_t *out_code);
struct snib__op *snib__engine_info(struct snib__engine *engine, struct snib__gate *gate,
                                   snib__time now, int32_t *out_code);
struct snib__op *snib__engine_force(struct snib__engine *engine, struct snib__gate *gate,
                                    snib__time now, int32_t *out_code);
struct snib__op *snib__engine_ping(struct snib__engine *engine, snib__time wait, snib__time now,
                                   int32_t *out_code);
/* count: op->answer->count has the answer. */
struct snib__op *snib__engine_count(struct snib__engine *engine, struct snib__gate *gate,
                                    int32_t what, int64_t n, snib__time now, int32_t *out_code);
/* describe, server, list: op->asked->texts has the answer, of at most cap bytes; the operation frees it. */
struct snib__op *snib__engine_describe(struct snib__engine *engine, const char *name, size_t n,
                                       size_t cap, snib__time now, int32_t *out_code);
struct snib__op *snib__engine_server(struct snib__engine *engine, int32_t what, size_t cap,
                                     snib__time now, int32_t *out_code);
struct snib__op *snib__engine_list(struct snib__engine *engine, uint64_t cursor,
                                   const char *pattern, size_t n, size_t cap, snib__time now,
                                   int32_t *out_code);
/* cancel: true: it is done now with SNIB_CANCELLED; false: it was done before. */
bool snib__engine_cancel(struct snib__engine *engine, struct snib__op *op, snib__time now);

/* The next operation that has ended, in order of completion. */
struct snib__op *snib__engine_take_done(struct snib__engine *engine);
/* The operation's result as an event without hold, token and the sentence of an error. */
void snib__op_event(const struct snib__op *op, snib_event *out);
/* The running operations, linked by live_next. */
struct snib__op *snib__engine_live(const struct snib__engine *engine);
/* Nobody will look at the operation again.  A granted hold in it must have been taken or dropped. */
void snib__op_free(struct snib__engine *engine, struct snib__op *op);
/* Whether a sync caller may read for it: one of its own commands is on its way, or to be sent. */
bool snib__op_in_flight(const struct snib__op *op);
/* The link on which it is, or will be. */
struct snib__link *snib__op_link(const struct snib__op *op);
struct snib__resp;
/* For texts of the reply that is being handled. */
const struct snib__resp *snib__engine_resp(const struct snib__engine *engine);

/* ---- holds ---- */

#define SNIB__SPAN_MAX 0xfffffffu /* ms */

/* A granted hold belongs to the caller from the operation's completion to hold_drop(). */
struct snib__hold {
    struct snib__gate *gate;
    struct snib__hold *prev,
        *next;           /* the watchdog's list, the list of the lost, or the free list */
    struct snib__op *op; /* acquiring or releasing it; NULL */
    uint64_t number;     /* the owner's number on the wire, unique */
    uint64_t owner;      /* explicit owner or 0 */
    snib__time deadline; /* V: no longer safe from here on; 0 before the grant */
    snib__time acquired_at;
    union {
        int64_t fencing; /* kinds with tokens: 0 none; see snib__hold_fencing() */
        struct {
            uint32_t
                permits; /* PERMITS, SEMAPHORE: ids are made of `number` and those that follow it */
            uint32_t vote_ms; /* MUTEX: as in snib__acquire */
        };
        struct snib__outer *outer; /* SNIB__OUTER */
    };
    /* Spans are 24 hours at most. */
    uint32_t lease_ms : 28;    /* 0: renewed with the client's lease */
    uint32_t options : 4;      /* SNIB_LOCK_* */
    uint32_t max_hold_ms : 28; /* 0: none */
    uint32_t tell : 4;         /* caller's: wants the lost event */
    uint32_t timer_at;         /* place in the heap, 0 = not in it */
    uint32_t count;            /* re-entries: releases to come */
    uint32_t users;     /* operations that got it; the caller takes away who has done with it */
    uint16_t flags;     /* engine */
    uint8_t phase : 4;  /* enum snib__phase */
    uint8_t reason : 4; /* enum snib_reason */
    uint8_t replicas;   /* durability: so many had the grant when it was made */
    /* the caller's */
    void *handle;
    void *sink;
    uint64_t token;
    /* Last, for holds of gates with one at a time are allocated without them (op.c). */
    struct snib__hold *peer_prev, *peer_next; /* other holds of the gate */
};

/* Drop the caller's interest; a hold that is still held, or lost and may be at the server, is released in the
 * background, or, if it was abandoned, left to its lease. */
void snib__hold_drop(struct snib__engine *engine, struct snib__hold *hold, snib__time now);
/* One of its users has forgotten it without giving it back, and it must not be free before its lease has ended.
 * Without further users (hold->users) it ends here: no renewal, no loss, and for those who want the lock it is a
 * stranger's. */
void snib__hold_abandon(struct snib__engine *engine, struct snib__hold *hold, snib__time now);
int64_t snib__hold_fencing(const struct snib__hold *hold); /* 0 none */
int snib__hold_state(const struct snib__engine *engine, const struct snib__hold *hold,
                     snib__time now);
/* How long it is safe as things stand; SNIB__NEVER: without end (semaphore). */
snib__time snib__hold_left(const struct snib__hold *hold, snib__time now);
/* When it stops being safe by the clock: its deadline, or max_hold. */
snib__time snib__hold_end(const struct snib__hold *hold);
/* Why it is lost, whether that has been noticed or only the clock says so. */
int snib__hold_reason(const struct snib__hold *hold, snib__time now);
/* A hold that was renewed has a fixed lease from now on. */
void snib__hold_fix(struct snib__engine *engine, struct snib__hold *hold, snib__time lease,
                    snib__time now);
/* "<uuid>:<number>" and its length; out has room for 64. */
size_t snib__hold_owner(const struct snib__engine *engine, const struct snib__hold *hold,
                        char *out);
/* The holds that were to tell this sink of their loss tell nobody. */
void snib__engine_forget_sink(struct snib__engine *engine, const void *sink);
/* The next hold that became lost and wants it told (hold->tell), once each. */
struct snib__hold *snib__engine_take_lost(struct snib__engine *engine);

/* ---- locks of locks of several clients: outer.c ---- */

/* Part of whoever carries such a hold. */
struct snib__outer {
    struct snib__outer *next;
    struct snib__hold *hold; /* while not ended */
    snib__time span;         /* the longest it was safe for, ahead */
    int32_t reason;          /* of its loss */
    bool listed;
    bool ended;     /* the hold is not his any more: lost, abandoned, or ended by himself */
    bool abandoned; /* and its members go the same way */
};

/* The next carrier to whose hold something has happened: acquired for, left, timed, released, lost. */
struct snib__outer *snib__engine_take_outer(struct snib__engine *engine);
bool snib__outer_wanted(const struct snib__outer *outer);    /* somebody waits for it */
bool snib__outer_releasing(const struct snib__outer *outer); /* he is to release it */
/* granted: false: nobody wants it any more, or it is too late. */
bool snib__outer_granted(struct snib__engine *engine, struct snib__outer *outer,
                         snib__time deadline, snib__time now);
/* It is safe until another time than was said before. */
void snib__outer_timed(struct snib__engine *engine, struct snib__outer *outer, snib__time deadline,
                       snib__time now);
void snib__outer_lost(struct snib__engine *engine, struct snib__outer *outer, int32_t reason,
                      snib__time now);
/* refused, or released: with that result */
void snib__outer_ended(struct snib__engine *engine, struct snib__outer *outer, int32_t code,
                       snib__time now);
/* To be told again at a time, while acquiring. */
void snib__outer_wake(struct snib__engine *engine, struct snib__outer *outer, snib__time when);

/* ---- the whole ---- */

/* Refuse new operations, end the running ones, release every hold; lost events are with reason CLOSED. */
void snib__engine_close(struct snib__engine *engine, snib__time now);
bool snib__engine_quiet(const struct snib__engine *engine); /* no release is outstanding */
/* After close(): the driver stops, so the releases that still run end without their answers. */
void snib__engine_stop(struct snib__engine *engine, snib__time now);
/* Moves whenever a hold was lost, given back, or given up: whoever watches holds looks again. */
uint64_t snib__engine_moves(const struct snib__engine *engine);
uint64_t snib__engine_random(struct snib__engine *engine, uint64_t below);
void snib__engine_stats(const struct snib__engine *engine, snib_client_stats_data *out);
/* Records for the log: the next one with its level, or NULL. */
const char *snib__engine_take_log(struct snib__engine *engine, int32_t *out_level);
void snib__engine_log_level(struct snib__engine *engine, int32_t level);

#endif
