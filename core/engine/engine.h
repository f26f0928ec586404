/* engine.h - what a driver and the API see of the engine: all lock logic as one state machine.
 *
 * Sans-I/O: no thread, socket, clock, sleep or random call in here.  Time comes in as `now`
 * (nanoseconds of a clock that counts suspended time), bytes come in and go out, wishes go out.
 * The caller serialises all calls: the thread driver with the client's mutex, the simulator by
 * having only one thread.
 *
 *     driver:  take_wish -> connect or close;  link_up, link_down;  input;  output;  tick, deadline
 *     api:     gate_get, acquire, release, ask, cancel, hold_*;  then take_done and take_lost
 *
 * Links: a client has nodes, which are servers, and a node has links, which are connections.  The
 * driver walks them with engine_links() and link_next().  Links appear and disappear only inside
 * engine_tick(), engine_input(), engine_link_up() and engine_link_down(), and a link never
 * disappears before its wish to be closed has been taken.
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

#define SNIB__IDENTITY_MAX 511
#define SNIB__OLDEST_MAX 16 /* of so many holds, the oldest, a client tells since when */

enum snib__link_kind { SNIB__COMMAND = 0, SNIB__PUBSUB = 1 };
#define SNIB__LANES_MAX 4 /* connections for commands to a node */
enum snib__wish { SNIB__WISH_NOTHING = 0, SNIB__WISH_CONNECT = 1, SNIB__WISH_CLOSE = 2 };

struct snib__config {
    int topology;             /* enum snib__topology */
    struct snib__login login; /* the strings belong to the caller and must outlive the engine */
    struct snib__login sentinel_login; /* SENTINEL: the same, for the sentinels */
    /* the driver supplies each connection's login, see snib__engine_link_up_as() */
    bool asks;
    /* The server, the sentinels, or nodes of the cluster; owned by the caller like the strings.
     * None: the driver knows the only server. */
    const struct snib__address *seeds;
    uint32_t seeds_n;
    const char *service; /* SENTINEL: the service name known to the sentinels */
    const char *where;   /* the server's address for messages; same ownership; NULL: unknown */
    char uuid[37];       /* the client id */
    /* the lines of its key, see identity.c, up to SNIB__IDENTITY_MAX bytes; same ownership; NULL: none */
    const char *identity;
    const char *taken;     /* more lines of it, as they are now; same ownership; NULL: none */
    int64_t wall_offset;   /* ns since 1970 at the engine's time 0, for people; 0: unknown */
    uint64_t seed;         /* for jitter */
    uint64_t first_number; /* of the first owner */
    snib__time lease, reply_timeout, patience, try_timeout, recheck;
    int32_t publish;      /* SNIB_PUBLISH_*: for a cluster */
    int32_t handover_max; /* 0: none */
    bool tenure;          /* hand over without a command where that is possible */
    int32_t ops_max;
    int32_t lanes;             /* command connections to each node; 0: one */
    int32_t durability;        /* replicas that must have a grant, or SNIB_DURABILITY_*; 0: none */
    int32_t durability_policy; /* SNIB_DURABILITY_* */
    snib__time durability_timeout; /* shorter than a lease */
    bool scatter;                  /* for tests: open all lanes, choose among them at random */
    bool insecure;                 /* certificates are not verified: log it once */
    void *home;                    /* the caller's, see snib__gate_home() */
};

struct snib__engine *snib__engine_new(const struct snib__config *config);
const char *snib__engine_where(const struct snib__engine *engine); /* constant */
/* Why there is no connection: the system's words, or the code's. */
const char *snib__engine_why(int32_t code, int os_error);
void snib__engine_free(struct snib__engine *engine);

/* ---- driver ---- */

struct snib__link *snib__engine_links(const struct snib__engine *engine);
struct snib__link *snib__link_next(const struct snib__link *link);
int snib__link_kind(const struct snib__link *link); /* enum snib__link_kind */
/* A command link other than the first of its node. */
bool snib__lane_is(const struct snib__link *link);
/* Where it connects to, constant until its next wish to connect; NULL: known to the driver only. */
const struct snib__address *snib__link_address(const struct snib__link *link);
/* A pointer that the driver keeps with the link's node (how to reach it) until engine_free(). */
void **snib__link_way(struct snib__link *link);
/* A pointer that the driver keeps with the link (its socket). */
void *snib__link_transport(const struct snib__link *link);
void snib__link_set_transport(struct snib__link *link, void *transport);
/* The first link of that kind to the only server. */
struct snib__link *snib__engine_link(const struct snib__engine *engine, int kind);
/* What the driver should do with a link.  A wish is taken once and stands until link_up or
 * link_down answers it. */
int snib__engine_take_wish(struct snib__engine *engine, struct snib__link *link);
void snib__engine_link_up(struct snib__engine *engine, struct snib__link *link, snib__time now);
/* The same where config.asks is set: log in with these texts, which
 * the caller owns.  NULL: none. */
void snib__engine_link_up_as(struct snib__engine *engine, struct snib__link *link,
                             const char *username, const char *password, snib__time now);
/* Whether the driver supplies this link's login; sentinels have a login of their own. */
bool snib__link_asks(const struct snib__engine *engine, const struct snib__link *link);
/* The credentials used so far are about to expire: log in again on all ready links.  A connection
 * with subscriptions accepts no login, so it is reopened.  Returns the number of these links, and of
 * those that are logging in just now. */
uint32_t snib__engine_relogin(struct snib__engine *engine, const char *username,
                              const char *password, snib__time now);
/* Whether a server has refused a renewed login since the last call. */
bool snib__engine_take_refusal(struct snib__engine *engine);
/* No credentials are available for a renewed login. */
void snib__engine_no_relogin(struct snib__engine *engine, const char *why);
/* Whether the present connection, or the one that is being made, has answered a request. */
bool snib__link_proven(const struct snib__link *link);
/* Overwrite a password repeated by the server.  Call before
 * snib__engine_input(), with its bytes. */
void snib__link_mask(struct snib__link *link, char *bytes, size_t n);
/* Call before link_down: a sentence with the reason.  SNIB_ETLS with an os_error may be temporary;
 * without one it is final. */
void snib__link_explain(struct snib__link *link, const char *sentence);
/* The transport has ended or could not be opened.  code and os_error say why, as in snib_error.  Neither this nor link_up
 * does anything while a wish to close the link is to be taken. */
void snib__engine_link_down(struct snib__engine *engine, struct snib__link *link, int32_t code,
                            int os_error, snib__time now);
void snib__engine_input(struct snib__engine *engine, struct snib__link *link, const char *bytes,
                        size_t n, snib__time now);
/* Bytes to send; remove what the transport has taken from the front with snib__buf_consume(). */
struct snib__buf *snib__link_output(struct snib__link *link);
uint32_t snib__link_in_flight(const struct snib__link *link); /* commands without a reply */
uint64_t snib__link_appended(const struct snib__link *link);  /* commands appended so far */
void snib__engine_tick(struct snib__engine *engine, snib__time now);
snib__time snib__engine_deadline(const struct snib__engine *engine);

/* Whether operations started from now on have a thread that will read their reply itself. */
void snib__engine_call(struct snib__engine *engine, bool calling);

/* ---- operations ---- */

/* hold->phase */
enum snib__phase {
    SNIB__NEW,    /* nothing sent, or refused: the server has no trace of it */
    SNIB__TRYING, /* an acquire, or a transfer to it, is in flight or its reply is missing */
    SNIB__PLACED, /* fair: it has a place at the server */
    SNIB__HELD,
    SNIB__RELEASING, /* a release is in flight or must be repeated */
    SNIB__LOST,      /* the holder was or will be notified; the key may still exist */
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
    SNIB__OP_COUNT,
    SNIB__OP_EXTEND,
    SNIB__OP_IDENTITY,
    SNIB__OP_LOAD
};

/* An operation belongs to the engine while it runs and to the caller from take_done() to op_free().
 * The engine never looks at the caller's fields. */
struct snib__op {
    /* config.home; constant, so it may be read without serialisation, even afterwards */
    void *home;
    struct snib__op *next, *prev;           /* engine: the gate's queue; then the caller's */
    struct snib__op *live_next, *live_prev; /* engine: all running operations */
    struct snib__gate *gate;                /* a reference, or NULL */
    struct snib__node *node;                /* engine: for a request without a gate */
    snib__time refused_since; /* engine: since when servers refuse its request; 0: they do not */
    struct snib__link *link;  /* engine: the link that carries its request; NULL: none yet */
    struct snib__hold *hold;
    snib__time started;
    uint64_t serial;     /* in order of start */
    snib__time deadline; /* the end of its wait; SNIB__NEVER */
    snib__time timer;    /* its time in the heap */
    uint32_t timer_at;   /* place in the heap, 0 = not in it */
    int32_t code;
    int32_t os_error;
    int32_t cause; /* why there is no connection; 0: unknown */
    uint8_t kind;  /* enum snib__op_kind */
    uint8_t stage; /* engine: enum snib__stage */
    bool once;     /* try only once */
    bool waited : 1;
    bool told : 1;      /* by the server, or a hold of this client: the lock is held */
    bool explained : 1; /* `words` are a whole sentence, which its carrier gave */
    bool astray : 1; /* a try without an answer may have been carried out by a server from before */
    bool unserved : 1; /* SNIB_ECONNECT: the server is connected, and does not serve its request */
    bool done;
    bool within;      /* set by the caller: part of another operation, which counts for both */
    bool unconfirmed; /* it ended behind this client's own release, whose outcome is unknown */
    uint8_t reason;   /* for SNIB_LOST: enum snib_reason */
    uint8_t misfits;  /* replies to it of a form that answers something else */
    uint64_t owner;
    snib__time latest; /* until then its first attempt may linger after the wait */
    union {
        struct {                /* fair: what is known of its place */
            int64_t queued_ms;  /* when it was last seen waiting, by the server's clock, ... */
            snib__time seen_at; /* ... and when the request was sent to which that was said */
            int64_t token, first_ms, ms; /* a grant that arrived while a request was in flight */
        } fair;
        struct { /* WRITE: how long new readers wait, as its last attempt has told the server */
            uint32_t ms;      /* 0: they do not */
            snib__time until; /* SNIB__NEVER: until an attempt says otherwise */
        } mark;
        uint64_t joined; /* READ: in which order it has joined a write hold of its owner */
    };
    snib_event *answer; /* INFO, COUNT; otherwise NULL */
    char *words;        /* the server's error message; NULL: none, or out of memory */
    char *where;        /* on error: the node's address for messages; NULL: the engine's */
    int32_t server;     /* explained: where in `words` the server's own begin; 0: there are none */
    struct snib__asked *asked;
    /* the caller's fields */
    void *handle;
    void *sink;
    void *tells; /* acquire: receives the loss event */
    uint64_t token;
    uint32_t member; /* number in a group (the sink), from 1; 0: none */
    _Atomic uint32_t word;
    bool awaited; /* a thread waits for it or will do so */
    bool busy;    /* a thread is waiting for it now */
};

struct snib__acquire {
    uint64_t owner;            /* 0: a fresh one */
    snib__time wait;           /* SNIB__NEVER: no limit; 0: one try */
    snib__time lease;          /* 0: the client's lease, renewed */
    snib__time max_hold;       /* 0: none */
    struct snib__outer *outer; /* for a gate of kind SNIB__OUTER: the carrier's part */
    uint32_t permits;          /* PERMITS, SEMAPHORE: how many */
    /* member of a quorum: how long a node that lost its memory must not vote; 0: none */
    uint32_t vote_ms;
    /* a short wait, or a single try, ends by then, although no answer has come; 0: see op.c */
    snib__time latest;
    uint8_t options; /* SNIB_LOCK_* */
    bool patient;    /* a single try that waits for an unreachable server as a longer wait does */
};

/* The gate of a lock name, with a reference; NULL when out of memory. */
struct snib__gate *snib__gate_get(struct snib__engine *engine, int32_t kind, const char *name,
                                  size_t n);
/* config.home; may be read without serialisation */
void *snib__gate_home(const struct snib__gate *gate);
/* The lock name, not NUL-terminated; constant. */
const char *snib__gate_name(const struct snib__gate *gate, size_t *out_len);
int32_t snib__gate_kind(const struct snib__gate *gate); /* constant */
void snib__gate_ref(struct snib__gate *gate);
void snib__gate_put(struct snib__engine *engine, struct snib__gate *gate);

/* Start an operation.  NULL: *out_code says why (SNIB_ENOMEM, SNIB_ELIMIT, SNIB_ECLOSED, ...) and
 * nothing was started.  The operation may already be done: see op->done. */
struct snib__op *snib__engine_acquire(struct snib__engine *engine, struct snib__gate *gate,
                                      const struct snib__acquire *how, snib__time now,
                                      int32_t *out_code);
/* release: *out_code is SNIB_OK without an operation if only a re-entry was undone. */
struct snib__op *snib__engine_release(struct snib__engine *engine, struct snib__hold *hold,
                                      snib__time now, int32_t *out_code);
/* A live hold's lease begins anew.  lease: 0: the client's, renewed.  It ends no earlier than before.  A member of a
 * group gets it from its carrier, see snib__extend_only_asks(). */
struct snib__op *snib__engine_extend(struct snib__engine *engine, struct snib__hold *hold,
                                     snib__time lease, snib__time now, int32_t *out_code);
/* An operation done with SNIB_OK, for a promised event where no command was needed. */
struct snib__op *snib__engine_nothing(struct snib__engine *engine, snib__time now,
                                      int32_t *out_code);
struct snib__op *snib__engine_info(struct snib__engine *engine, struct snib__gate *gate,
                                   snib__time now, int32_t *out_code);
struct snib__op *snib__engine_force(struct snib__engine *engine, struct snib__gate *gate,
                                    snib__time now, int32_t *out_code);
struct snib__op *snib__engine_ping(struct snib__engine *engine, snib__time wait, snib__time now,
                                   int32_t *out_code);
/* count: the result is op->answer->count. */
struct snib__op *snib__engine_count(struct snib__engine *engine, struct snib__gate *gate,
                                    int32_t what, int64_t n, snib__time now, int32_t *out_code);
/* Other lines from now on, with the ownership of config.identity, which was set; at once, if the former ones were told. */
void snib__engine_identify(struct snib__engine *engine, const char *lines, snib__time now);

/* The oldest holds, at most SNIB__OLDEST_MAX, the oldest first; 0: there are too many locks to look at. */
uint32_t snib__engine_oldest(const struct snib__engine *engine, const struct snib__hold **out);
/* The texts of the client behind an owner, "<uuid>:<number>"; see snib_client_identity(). */
struct snib__op *snib__engine_identity(struct snib__engine *engine, const char *owner, size_t n,
                                       size_t cap, snib__time now, int32_t *out_code);
/* One step of loading the scripts of a kind, or with 0 of all; see snib_client_load(). */
struct snib__op *snib__engine_load(struct snib__engine *engine, int32_t kind, uint64_t cursor,
                                   size_t cap, snib__time now, int32_t *out_code);

#define SNIB__BOARD_LEASE 60                      /* seconds that a note lasts */
#define SNIB__BOARD_BYTES 65536                   /* the most notes */
#define SNIB__BOARD_SEEN (SNIB__BOARD_BYTES + 32) /* with the server's time */
/* Whether the board of the clients of this database can be reached now, see board.c. */
bool snib__engine_board_ready(struct snib__engine *engine, snib__time now);
/* Then: leave these notes, lines of a word and a text, or none, and ask for the board.  There may be no answer. */
void snib__engine_board(struct snib__engine *engine, const char *notes, size_t n, snib__time now);
/* The board that was asked for, not ended by a NUL, which the caller frees; NULL: nothing new.  Anyone may have written
 * it: the server's time in seconds, then lines of a second at which a note ends, its word and its text. */
char *snib__engine_board_read(struct snib__engine *engine, size_t *out_n);
/* describe, server, list: the result is op->asked->texts, at most cap
 * bytes, freed with the operation. */
struct snib__op *snib__engine_describe(struct snib__engine *engine, const char *name, size_t n,
                                       size_t cap, snib__time now, int32_t *out_code);
struct snib__op *snib__engine_server(struct snib__engine *engine, int32_t what, size_t cap,
                                     snib__time now, int32_t *out_code);
struct snib__op *snib__engine_list(struct snib__engine *engine, uint64_t cursor,
                                   const char *pattern, size_t n, size_t cap, snib__time now,
                                   int32_t *out_code);
/* cancel: true: the operation is now done with SNIB_CANCELLED; false: it was done before. */
bool snib__engine_cancel(struct snib__engine *engine, struct snib__op *op, snib__time now);

/* The next finished operation, in order of completion. */
struct snib__op *snib__engine_take_done(struct snib__engine *engine);
/* The operation's result as an event, without the hold, the token and the error text. */
void snib__op_event(const struct snib__op *op, snib_event *out);
/* The running operations, linked by live_next. */
struct snib__op *snib__engine_live(const struct snib__engine *engine);
/* The caller is finished with the operation and must have taken or dropped a hold granted to it. */
void snib__op_free(struct snib__engine *engine, struct snib__op *op);
/* Whether the lock of an acquisition was known to be held at some time of the wait. */
bool snib__op_told(const struct snib__op *op);
/* The code for a running operation whose server has not answered, if it ended now; its fields say why. */
int32_t snib__op_unreached(const struct snib__engine *engine, struct snib__op *op);
/* Whether a synchronous caller may read for it: a command of its own is in flight or pending. */
bool snib__op_in_flight(const struct snib__op *op);
/* The link that carries its request, or will carry it. */
struct snib__link *snib__op_link(const struct snib__op *op);
struct snib__resp;
/* For texts of the reply being handled. */
const struct snib__resp *snib__engine_resp(const struct snib__engine *engine);

/* ---- holds ---- */

#define SNIB__SPAN_MAX 0x7ffffffu /* ms */
#define SNIB__TELL_CARRIER 3 /* hold->tell: its sink is the carrier of a lock of several clients */

/* A granted hold belongs to the caller from the operation's completion to hold_drop(). */
struct snib__hold {
    struct snib__gate *gate;
    /* the watchdog's list, the list of unreported losses, or the free list */
    struct snib__hold *prev, *next;
    struct snib__op *op; /* the operation that acquires or releases it; NULL */
    uint64_t number;     /* the owner's number on the wire, unique */
    uint64_t owner;      /* explicit owner or 0 */
    snib__time deadline; /* V: not safe from here on; 0 before the grant */
    snib__time acquired_at;
    union {
        int64_t fencing; /* kinds with tokens; 0: none; see snib__hold_fencing() */
        uint64_t writer; /* READ: the number of its owner's write hold, if it JOINS one */
        struct {
            /* PERMITS, SEMAPHORE: the ids are `number` and the numbers after it */
            uint32_t permits;
            uint32_t vote_ms; /* MUTEX: as in snib__acquire */
        };
        struct snib__outer *outer; /* SNIB__OUTER */
    };
    /* Spans are 24 hours at most. */
    uint32_t lease_ms : 27;    /* 0: renewed with the client's lease */
    uint32_t repeated : 1;     /* a release that was told to another server before, see given.c */
    uint32_t options : 4;      /* SNIB_LOCK_* */
    uint32_t max_hold_ms : 27; /* 0: none */
    uint32_t tell : 3;         /* the caller's: report the loss as an event */
    uint32_t member : 1;       /* the caller's: the lock of several clients tells */
    uint32_t passed : 1;       /* its number went on to another hold, see tenure.c */
    uint32_t timer_at;         /* place in the heap, 0 = not in it */
    uint32_t count;            /* re-entries: releases still to come */
    uint32_t users;     /* operations that received it; the caller subtracts the finished ones */
    uint16_t flags;     /* engine */
    uint8_t phase : 3;  /* enum snib__phase */
    uint8_t exact : 1;  /* until its fixed lease is confirmed: it may shorten the server's */
    uint8_t reason : 3; /* enum snib_reason */
    /* its server, restarted since, has not confirmed it yet; passed: a release of its number has begun since */
    uint8_t unsure : 1;
    uint8_t replicas : 7; /* durability: so many had the grant when it was made */
    uint8_t extended : 1; /* another lease was asked for */
    /* the caller's fields */
    void *handle;   /* NULL: no user has it yet, or none any more */
    uint32_t given; /* users that have the handle; the others' grants wait to be taken */
    uint32_t slots; /* handles, present and former, that are not destroyed: threads may use them */
    void *sink;
    uint64_t token;
    /* Last, because holds of gates with one hold at a time are allocated without them (op.c). */
    struct snib__hold *peer_prev, *peer_next; /* other holds of the gate */
};

/* Drop the caller's interest.  A hold that is still held, or lost and possibly still at the server,
 * is released in the background or, if it was abandoned, left to its lease. */
void snib__hold_drop(struct snib__engine *engine, struct snib__hold *hold, snib__time now);
/* One of its users dropped the hold without releasing it, so the lock must not become free before
 * the lease ends.  Without further users (hold->users) the hold ends here: it is not renewed, no
 * loss is reported, and to waiters it looks like a foreign hold. */
void snib__hold_abandon(struct snib__engine *engine, struct snib__hold *hold, snib__time now);
int64_t snib__hold_fencing(const struct snib__hold *hold); /* 0 none */
int snib__hold_state(const struct snib__engine *engine, const struct snib__hold *hold,
                     snib__time now);
/* How long it stays safe as things stand; SNIB__NEVER: without limit (semaphore). */
snib__time snib__hold_left(const struct snib__hold *hold, snib__time now);
/* When the clock ends its safety: its deadline, or max_hold. */
snib__time snib__hold_end(const struct snib__hold *hold);
/* Why it is lost, whether the engine has noticed it or only the clock shows it. */
int snib__hold_reason(const struct snib__hold *hold, snib__time now);
/* Give a renewed hold a fixed lease from now on. */
void snib__hold_fix(struct snib__engine *engine, struct snib__hold *hold, snib__time lease,
                    snib__time now);
/* For a member of a group: the operation asks the server, the carrier applies it with snib__hold_extended(). */
void snib__extend_only_asks(struct snib__op *op);
/* The deadline V of a lease that was asked for at sent_at. */
snib__time snib__lease_end(snib__time sent_at, snib__time lease);
/* The deadline of a hold that had another one before: another lease, 0: the client's and renewed, was asked for at
 * sent_at and granted. */
snib__time snib__lease_extended(snib__time before, snib__time lease, snib__time clients,
                                snib__time sent_at, snib__time now);
/* When the request was sent that was granted. */
snib__time snib__extend_sent_at(const struct snib__op *op);
/* Another lease that the server was asked for at sent_at, 0: renewed, counts from then. */
void snib__hold_extended(struct snib__engine *engine, struct snib__hold *hold, snib__time lease,
                         snib__time sent_at, snib__time now);
/* "<uuid>:<number>" and its length; out has room for 64. */
size_t snib__hold_owner(const struct snib__engine *engine, const struct snib__hold *hold,
                        char *out);
/* Holds that would report their loss to this sink report it nowhere. */
void snib__engine_forget_sink(struct snib__engine *engine, const void *sink);
/* Whether an operation is done, a hold lost, an outer hold to be told of, or a record written: something to be taken. */
bool snib__engine_news(const struct snib__engine *engine);
/* The next lost hold that wants its loss reported (hold->tell), once each. */
struct snib__hold *snib__engine_take_lost(struct snib__engine *engine);

/* ---- locks made of several clients' locks: outer.c ---- */

/* The carrier's part of a hold that it carries. */
struct snib__outer {
    struct snib__outer *next;
    struct snib__hold *hold; /* until `ended` */
    snib__time span;         /* the longest remaining safe time it ever had */
    int32_t reason;          /* of a loss that its release has found; 0: not known */
    bool listed;
    /* the carrier no longer has the hold: lost, abandoned or released */
    bool ended;
    bool abandoned;   /* and its members must be abandoned, too */
    const char *why;  /* a sentence for the result that is being reported; NULL: none */
    int32_t server;   /* ... in which the server's own words begin here; 0: there are none */
    int32_t os_error; /* ... with it */
};

/* The next carrier whose hold needs attention: wanted, cancelled, timed, released or lost. */
struct snib__outer *snib__engine_take_outer(struct snib__engine *engine);
bool snib__outer_wanted(const struct snib__outer *outer);    /* an operation waits for it */
bool snib__outer_releasing(const struct snib__outer *outer); /* the carrier must release it */
/* granted: false: no operation wants it any more, or it is too late. */
bool snib__outer_granted(struct snib__engine *engine, struct snib__outer *outer,
                         snib__time deadline, snib__time now);
/* The carrier's new time until which it is safe. */
void snib__outer_timed(struct snib__engine *engine, struct snib__outer *outer, snib__time deadline,
                       snib__time now);
void snib__outer_lost(struct snib__engine *engine, struct snib__outer *outer, int32_t reason,
                      snib__time now);
/* Refused or released, with that result. */
void snib__outer_ended(struct snib__engine *engine, struct snib__outer *outer, int32_t code,
                       snib__time now);
/* The oldest extension that a caller waits for: a number of its own, and the lease, 0 for a renewed one; 0: none. */
uint64_t snib__outer_extension(const struct snib__engine *engine, const struct snib__outer *outer,
                               snib__time *out_lease);
/* Its result, and the carrier's new time. */
void snib__outer_extended(struct snib__engine *engine, struct snib__outer *outer, int32_t code,
                          snib__time lease, snib__time deadline, snib__time now);
/* Look at it again at a given time, while acquiring. */
void snib__outer_wake(struct snib__engine *engine, struct snib__outer *outer, snib__time when);

/* ---- the engine as a whole ---- */

/* Refuse new operations, end the running ones, release every hold;
 * losses have the reason CLOSED. */
void snib__engine_close(struct snib__engine *engine, snib__time now);
bool snib__engine_quiet(const struct snib__engine *engine); /* no release is outstanding */
/* After close(): the driver stops, so releases in flight end without their replies. */
void snib__engine_stop(struct snib__engine *engine, snib__time now);
/* Changes whenever a hold is lost, released or given up, so that watchers of holds look again. */
uint64_t snib__engine_moves(const struct snib__engine *engine);
uint64_t snib__engine_random(struct snib__engine *engine, uint64_t below);
void snib__engine_stats(const struct snib__engine *engine, snib_client_stats_data *out);
/* Log records: add one; the next one with its level, or NULL; how many were dropped since that was last asked, because
 * too many came about before they were taken. */
void snib__engine_log(struct snib__engine *engine, int32_t level, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
const char *snib__engine_take_log(struct snib__engine *engine, int32_t *out_level);
uint32_t snib__engine_log_dropped(struct snib__engine *engine);
void snib__engine_log_level(struct snib__engine *engine, int32_t level);

#endif
