/* state.h - what the engine keeps: gates and who waits at them, subscriptions, renewals under way, nodes and their
 * connections, and the engine itself.  Holds and operations are in engine.h.
 *
 * A gate is one lock name of one kind.  It belongs to a node, the server of the name, which has links: one for messages,
 * and up to four for commands, its lanes.  Whatever is sent stands in the ring of its link until it is answered.
 */
#ifndef SNIB__STATE_H
#define SNIB__STATE_H

#include "engine/engine.h"
#include "locks/kind.h"
#include "net/words.h"

#define SNIB__BATCH_MAX 100
#define SNIB__BATCH_FEW 4 /* in a cluster most batches hold one lock: each slot has its own */
#define SNIB__MARGIN                                                                               \
    (5 * SNIB__MS) /* safety margin of a deadline, besides 1 % of the lease for clock drift */

/* hold->flags */
enum {
    SNIB__HANDED = 1,     /* the caller has it */
    SNIB__LISTED = 2,     /* in the watchdog's list */
    SNIB__UNTOLD = 4,     /* in the engine's list of unreported losses */
    SNIB__RESENT = 8,     /* an earlier request for it has no reply: it may have taken effect */
    SNIB__AWAKE = 16,     /* subscribed before the last request was sent */
    SNIB__COUNTED = 32,   /* waitq->own_messages counts the messages of its release */
    SNIB__BESIDE = 32,    /* but shared, while it tries: for an operation that does not wait */
    SNIB__INHERITED = 64, /* its name moved to another server, which has not confirmed it yet */
    SNIB__PEER = 128,     /* in its gate's list of peers */
    SNIB__PROMISED = 256, /* fair: a message granted it while its request was in flight */
    SNIB__FIRST = 512, /* fair: held by the short first lease from the granter, or before replicas
                          have it; to be confirmed */
    SNIB__LISTENS = 1024, /* fair: also subscribed to its own channel, for Redisson's messages */
    SNIB__QUEUES = 2048,  /* fair: its requests ask for a place if the lock is not free */
    SNIB__SEATED = 4096,  /* fair: it had a place, which must be given back */
    SNIB__JOINS = 8192,   /* read: it joins its owner's write hold, `writer` */
    SNIB__REFUSED = 2048, /* but fair: only the script that was refused may have left something */
    SNIB__ABANDONED = 16384, /* a user dropped it without a release: it must not be released */
    SNIB__ASKED = 32768      /* the new server of its name has already been asked about it */
};

/* op->stage */
enum snib__stage {
    SNIB__STAGE_NONE,
    SNIB__STAGE_QUEUED, /* in its gate's queue */
    SNIB__STAGE_TRYING, /* its hold is the gate's active or incoming one */
    SNIB__STAGE_OUTER,  /* carried outside the engine */
    SNIB__STAGE_ASKING  /* its own request is in flight or pending */
};

/* request.kind */
enum {
    SNIB__REQ_ACQUIRE = 1,
    SNIB__REQ_RELEASE,
    SNIB__REQ_TRANSFER,
    SNIB__REQ_RENEW,
    SNIB__REQ_TIME,
    SNIB__REQ_ASK,
    SNIB__REQ_ROUTE,
    SNIB__REQ_KILL,
    SNIB__REQ_WAIT,
    SNIB__REQ_COUNT,
    SNIB__REQ_IDENTITY,
    SNIB__REQ_BOARD
};

/* node->kind */
enum snib__node_kind { SNIB__SERVER, SNIB__A_SENTINEL };

enum snib__channel_state {
    SNIB__CHAN_OFF,
    SNIB__CHAN_ASKED,
    SNIB__CHAN_ON,
    SNIB__CHAN_LEAVING,
    SNIB__CHAN_REFUSED
};

struct snib__chan {             /* one subscription, for all gates that are woken by it */
    struct snib__chan *next;    /* bucket of the table */
    struct snib__waitq *waitqs; /* linked by chan_next */
    uint32_t hash;
    uint16_t len;
    uint8_t state;           /* enum snib__channel_state */
    uint8_t redirects;       /* since it was on */
    struct snib__node *node; /* the node whose link carries the subscription */
    char text[];
};

/* The part of a gate that is needed only while operations wait, and for a short time after. */
struct snib__waitq {
    struct snib__gate *gate;                   /* a reference */
    struct snib__chan *chan;                   /* NULL for kinds that poll */
    struct snib__waitq *chan_prev, *chan_next; /* other wait queues of the channel */
    struct snib__waitq *idle_prev, *idle_next;
    struct snib__op *head, *tail; /* local waiters, first come first served */
    struct snib__hold *incoming;  /* the target of a transfer in flight */
    struct snib__hold *behind;    /* tenure.c: released holds that share the next question */
    struct snib__hold
        *asked;             /* ... those that are asked for, the first of each question, by prev */
    uint32_t asking;        /* ... questions in flight */
    snib__time idle_since;  /* SNIB__NEVER while in use */
    snib__time chain_since; /* first hand-over of the current chain */
    snib__time known_at;    /* sole.c: the lock was held at that time or later */
    snib__time one_at;      /* when the last message "1" arrived that was news */
    snib__time settling_since; /* sole.c: since when the gate's hold is on its way back */
    uint32_t chain;            /* hand-overs in a row */
    uint32_t timer_at;
    uint32_t own_messages; /* own release messages yet to come: no news */
    uint32_t blocker;      /* multi: the member whose channel the gate waits on */
    uint32_t singles;      /* share.c: single tries, of the gate's attempts in flight */
    uint16_t burst;        /* share.c: attempts to send at once */
    uint16_t most;         /* share.c: permits that the last attempt from the queue wants */
    uint8_t brief;         /* short sleeps in a row */
    bool hint : 1;         /* a message arrived while an attempt was in flight */
    bool turns : 1;        /* share.c: of the attempts in flight, some came from the queue */
    bool overdue : 1;      /* waits are over, except for the reply to the first attempt */
    bool refused : 1;      /* pause.c: no node serves the request that all of them wait for */
    uint32_t queued;       /* waiting operations */
    uint32_t chain_most;   /* limit on hand-overs in the current chain */
    /* turn.c: about other clients that listen */
    uint32_t strangers; /* foreign subscribers that received the last release message */
    uint32_t absent;    /* those of them that did not come when it was their turn */
    uint32_t owed;      /* turns of strangers that come before this client's */
    uint32_t early;     /* strangers' turns heard of before the reply to this client's release */
    uint8_t misses;     /* consecutive chances that a stranger did not use */
    uint8_t uses;       /* ... that all strangers used */
    bool came;          /* a stranger had a turn since this client's last release */
    bool waited_out;    /* the first waiter has given way since the release */
    snib__time offered_at, offered_until; /* the stranger whose turn it is tries within this time */
    snib__time patience;                  /* the length of one stranger's chance */
    snib__time absent_until;              /* after this the absent get another chance */
};

struct snib__gate {
    struct snib__gate *next; /* bucket of the gate table */
    const struct snib__lock_kind *kind;
    struct snib__node *node; /* the server of the name */
    void *home;              /* the caller's, for all gates of the engine */
    union {
        struct snib__hold *active; /* EXCLUSIVE: the hold that tries, holds or releases; NULL */
        struct snib__hold *peers;  /* others: all holds of the gate, by peer_next */
    };
    struct snib__waitq *waitq;
    struct snib__link *lane; /* carries the gate's requests in flight, and the next one too */
    uint32_t unanswered;     /* requests in flight */
    uint32_t trying;         /* others: attempts in flight */
    uint32_t refs;
    uint16_t name_len;
    uint16_t slot; /* in a cluster */
    char name[];
};

/* Before a gate in memory, in a cluster only: the gates of its slot. */
struct snib__neighbours {
    struct snib__gate *next, **at; /* at: NULL: it is in no slot */
    snib__time moved_at;           /* when another node began to serve it; 0: never */
};

static inline struct snib__neighbours *snib__gate_neighbours(const struct snib__gate *gate)
{
    return (struct snib__neighbours *)(void *)(uintptr_t)gate - 1;
}

/* One exists for each held lock, so the name starts in what would be padding. */
static inline size_t snib__gate_size(size_t name_len)
{
    size_t size = offsetof(struct snib__gate, name) + name_len;
    return size < sizeof(struct snib__gate) ? sizeof(struct snib__gate) : size;
}

/* Attempts in flight whose refusal goes on with the queue: single tries come and go beside it. */
static inline uint32_t snib__gate_asks(const struct snib__gate *gate)
{
    return gate->trying - (gate->waitq ? gate->waitq->singles : 0);
}

static inline bool snib__gate_sole(const struct snib__gate *gate)
{
    return gate->kind->discipline == SNIB__EXCLUSIVE;
}

/* The one hold of a gate that has one at a time. */
static inline struct snib__hold *snib__gate_active(const struct snib__gate *gate)
{
    return snib__gate_sole(gate) ? gate->active : NULL;
}

/* All holds of a gate: the first, and the next. */
static inline struct snib__hold *snib__gate_first(const struct snib__gate *gate)
{
    return gate->active;
}

static inline struct snib__hold *snib__gate_next(const struct snib__gate *gate,
                                                 const struct snib__hold *hold)
{
    return snib__gate_sole(gate) ? NULL : hold->peer_next;
}

struct snib__batch {
    struct snib__batch *next; /* free list */
    struct snib__node *node;  /* the node it was sent to */
    struct snib__node *via;   /* ... and to which an ASK has brought it; NULL */
    int64_t lease_ms;         /* 0: query only */
    int32_t kind;             /* of all holds in it */
    bool asks;                /* about one hold; its deadline stays, whatever lease_ms says */
    bool exact;               /* lease_ms may shorten the lease */
    bool narrow;              /* touch only the locks' own keys: the others may be elsewhere */
    bool large;               /* has room for SNIB__BATCH_MAX, otherwise for SNIB__BATCH_FEW */
    uint32_t n;
    struct {
        struct snib__hold *hold;
        uint64_t number;
    } of[];
};

struct snib__link { /* one connection to a node */
    struct snib__conn conn;
    struct snib__link *next; /* all links of the engine */
    struct snib__node *node;
    void *transport; /* the driver's */
    uint8_t kind;    /* enum snib__link_kind */
    bool wanted;     /* it is needed */
    bool connect;    /* wish */
    bool close;      /* wish */
    bool connecting; /* the driver is connecting it */
    bool proven;     /* a request was answered since it was to connect: it works */
    union {
        snib__time next_try; /* while down */
        snib__time ready_at; /* while ready */
    };
    snib__time backoff;
    snib__time used_at; /* a further lane: when it was last used to send */
    uint32_t called;    /* COMMAND: requests in flight that a thread waits for */
    /* while it is ready: for want of memory an unwanted subscription was not ended, or a WAIT not sent: reconnect */
    bool soiled;
    /* COMMAND: when a reply last arrived.  PUBSUB, while it is ready: when data last arrived, or a request was sent with
     * none owed; NEVER: just now */
    snib__time heard_at;
    /* PUBSUB, while it is ready: */
    bool asks;        /* a channel may be asked for there */
    uint32_t owed;    /* replies due: to subscribe and unsubscribe requests, and to a ping */
    uint32_t ping_in; /* the ping's reply is this many replies away; 0: no ping is pending */
};

/* The watchdog's list for one kind: renewed holds by deadline; those before the cursor have a
 * renewal in flight. */
struct snib__renewals {
    struct snib__hold *head, *tail, *cursor;
    uint64_t n;
    snib__time retry, last;
    bool alone; /* renew one hold per command, once: a batch got SNIB_EPERM */
};

/* Bounds on how far the server's clock is ahead of the local one, each from the reply to a request. */
struct snib__clock {
    int64_t low, high;              /* ns */
    snib__time low_sent, high_sent; /* when that request was sent */
    snib__time next;                /* when to ask next */
    bool known;
    bool refused; /* the server does not answer TIME */
};

struct snib__node { /* one server */
    struct snib__node *next;
    struct snib__link links[2];               /* by kind */
    struct snib__link lanes[SNIB__LANES_MAX]; /* further command links; the last is for durable.c */
    struct snib__durable *durable;            /* NULL: not configured */
    uint32_t met;                             /* times threads met on its lanes, since met_since */
    snib__time met_since;
    bool alone; /* its address leads to several servers: no further lanes */
    struct snib__address address;
    bool addressed;    /* `address` is set */
    bool inherited;    /* it took over names with holds: ask it about them */
    bool idle;         /* it serves nothing any more: do not reconnect */
    bool leaving;      /* its connections are closed to go to another address */
    uint8_t kind;      /* enum snib__node_kind */
    uint8_t others;    /* so many more nodes were of no more use than `blamed`, or than this one */
    snib__time ask_at; /* a question about a fixed lease had no answer: ask again; SNIB__NEVER */
    void *way;         /* the driver's */
    /* the address for messages, with the node's role unless it is a server */
    char where[SNIB__ADDRESS_TEXT + 16];
    const struct snib__node *blamed; /* the node that could not say where this one is; NULL: none */
    snib__time failed_over_at;       /* another server took over from it; 0: never */
    struct snib__request *todo;      /* requests waiting for the command link; no subject: a gap */
    uint32_t todo_n, todo_cap;
    uint32_t todo_first, todo_gaps; /* only gaps before this index; number of gaps in total */
    snib__time down_since;          /* when the command link went down; SNIB__NEVER if ready */
    snib__time dull_since;          /* the same, but only a reply ends it; SNIB__NEVER */
    snib__time ready_since;
    struct snib__clock clock;
    /* when a request that may shorten leases was left on a broken connection, 0: never; which could not be ended, so
     * that it may still arrive, for holds from before then */
    snib__time astray_at, shortens_at;
    uint8_t
        misfits; /* replies in a row to releases that nobody waits for, of a form that answers something else */
    snib__time moved_at; /* when the server's clock was found to have moved; 0: never */
    bool moved_back;     /* it was set back */
    bool ever_ready;
    uint32_t identity; /* changes when another server answers for the node */
    bool failed;       /* a connection failed since it was last ready */
    int32_t failure;   /* why it is down */
    int os_error;
    int32_t told_failure; /* the last failure that was logged since it was ready; 0: none */
    int told_os_error;
    snib__time told_at;
    snib__time refused_at;       /* since when refusals to renew are logged; 0: none was */
    uint64_t refused;            /* their first words: a bit for each */
    char words[SNIB__WORDS_MAX]; /* the server's own words, when it refused the handshake */
    char run_id[48];
    uint64_t history; /* of the data there, see conn.h */
    struct snib__renewals renewals[SNIB__KINDS];
    uint32_t renewed;  /* a bit for each of these lists that is not empty */
    uint32_t paused_n; /* requests for its names that are paused */
};

/* pause.c */
struct snib__paused {
    struct snib__request request;
    struct snib__node *node; /* of the name then; it is counted there */
    snib__time until;
};

enum snib__timer_what { SNIB__TIMER_OP, SNIB__TIMER_HOLD, SNIB__TIMER_WAITQ };
/* Each subject has room reserved for one. */
struct snib__timer {
    snib__time when;
    /* the address of the subject's `timer_at`; its low bits hold enum snib__timer_what */
    uintptr_t where;
};

#define SNIB__RECORDS_MAX 16
struct snib__record {
    int32_t level;
    char text[sizeof((snib_event *)0)->text];
};

struct snib__slab; /* op.c: memory kept for reuse, so that a stale pointer can be recognised */

struct snib__engine {
    struct snib__config config;
    const struct snib__route *route;
    void *map; /* the route's */
    struct snib__node *nodes;
    struct snib__node *home;       /* the node that serves names without one of their own */
    struct snib__link *links;      /* of all nodes */
    const struct snib__resp *resp; /* the parser of the reply being handled */
    uint64_t random;
    uint64_t next_number, next_serial;
    bool closed;
    bool calling;
    int32_t log_level;
    snib_client_stats_data stats;
    struct snib__gate **gates;
    uint32_t gates_n, gates_cap;
    uint8_t publish;             /* enum snib__publish: how releases are published */
    bool publishes;              /* ... and whether that is decided */
    struct snib__gate **slots;   /* in a cluster: the gates of each slot */
    struct snib__paused *paused; /* a heap: the first is due first */
    uint32_t paused_n, paused_cap;
    struct snib__given *given; /* given.c; NULL: none yet */
    uint32_t given_next, given_size;
    uint32_t given_left, given_flight; /* still to be looked at; repeated, and without a reply */
    struct snib__chan **chans;
    uint32_t chans_n, chans_cap;
    struct snib__waitq *idle_head, *idle_tail; /* unused, to be unsubscribed in order */
    struct snib__op *live;
    bool told_insecure, told_unheard, told_whole;
    uint8_t told_unended; /* 1: logged that connections cannot be ended; 2: that one was not */
    bool refused;         /* a renewed login was refused, see snib__engine_take_refusal() */
    uint32_t live_n, extending; /* of the live operations: extensions */
    snib__time late;            /* the latest of the renewals that this tick has found to be due */
    snib__time extended; /* the longest lease that an extension has asked for; 0: there was none */
    struct {
        snib__time next, until; /* when it may be written again; when what was written ends */
        bool due;               /* something has been held for a while */
        bool lost;              /* and something was lost, which it is to say */
        bool told;              /* a refusal was logged */
    } identity;
    struct {
        snib__time next; /* after a refusal */
        char *notes;     /* the last that were sent */
        char *seen;      /* the board, not yet read */
        size_t notes_n, seen_n;
        bool told;
    } board;
    struct snib__op *done_head, *done_tail;
    struct snib__hold *lost_head, *lost_tail;
    struct snib__outer *outers; /* to be reported to their carriers */
    uint32_t releasing;         /* holds in phase RELEASING */
    uint64_t moves;             /* counts holds lost, released or given up */
    struct snib__timer *heap;   /* from index 1 */
    uint32_t heap_n, heap_cap;
    uint32_t heap_owed;               /* subjects with room reserved in the heap */
    struct snib__hold *free_holds[2]; /* of gates with one hold at a time; of others */
    struct snib__op *free_ops;
    struct snib__batch *free_batches[2]; /* small, large */
    struct snib__slab *slabs;
    uint64_t memory;
    struct snib__record log[SNIB__RECORDS_MAX]; /* not yet fetched; the oldest are overwritten */
    uint16_t log_head, log_n;
    uint32_t log_dropped; /* overwritten, and not told yet */
};

/* Another node has served the name since then, also if the present one has it back. */
static inline bool snib__gate_moved(const struct snib__engine *e, const struct snib__gate *gate,
                                    snib__time since)
{
    return e->slots && since < snib__gate_neighbours(gate)->moved_at;
}

#endif
