/* internal.h - the engine's own structures, shared by core/engine and core/locks.
 *
 * gate.c      gates: who holds and who waits for one lock name; acquire, release, hand-over
 * wait.c      sleeping until a message, a re-check or a deadline; subscriptions
 * hold.c      holds: states, deadline, loss
 * watchdog.c  renewal in batches
 * ask.c       info, force release, ping, list
 * op.c        operations: birth, completion, patience
 * node.c      the links of a node: connect, back-off, sending, dispatch of replies
 * timer.c     one heap for deadlines that come in no order
 * engine.c    the whole: time, close, statistics
 */
#ifndef SNIB__INTERNAL_H
#define SNIB__INTERNAL_H

#include "engine/engine.h"
#include "locks/kind.h"

#define SNIB__CHANNEL_MAX 640
#define SNIB__BATCH_MAX 100
#define SNIB__MARGIN                                                                               \
    (5 * SNIB__MS) /* of the deadline, beside 1 % of the lease for unequal clocks */

/* A hold's way. */
enum snib__phase {
    SNIB__NEW,    /* nothing sent, or refused: the server has nothing of it */
    SNIB__TRYING, /* an acquire or transfer to it is on its way, or its reply is missing */
    SNIB__HELD,
    SNIB__RELEASING, /* a release is on its way, or has to be repeated */
    SNIB__LOST,      /* the holder was or will be told; the key may still be there */
    SNIB__GONE       /* released */
};

/* hold->flags */
enum {
    SNIB__HANDED = 1,   /* the caller has it */
    SNIB__LISTED = 2,   /* in the watchdog's list */
    SNIB__UNTOLD = 4,   /* in the list of the lost */
    SNIB__RESENT = 8,   /* the last request but one has no answer: it may have worked */
    SNIB__AWAKE = 16,   /* subscribed before the last request was sent */
    SNIB__COUNTED = 32, /* the release's own message is expected */
    SNIB__YIELD = 64    /* after this release other processes go first */
};

/* op->place */
enum snib__place {
    SNIB__PLACE_NONE,
    SNIB__PLACE_QUEUE, /* in its gate's queue */
    SNIB__PLACE_TRY,   /* its hold is the gate's active or incoming one */
    SNIB__PLACE_ASK    /* a question of its own is sent or to be sent */
};

/* request.kind */
enum {
    SNIB__REQ_ACQUIRE = 1,
    SNIB__REQ_RELEASE,
    SNIB__REQ_TRANSFER,
    SNIB__REQ_RENEW,
    SNIB__REQ_ASK
};

enum snib__channel_state {
    SNIB__CHAN_OFF,
    SNIB__CHAN_ASKED,
    SNIB__CHAN_ON,
    SNIB__CHAN_LEAVING,
    SNIB__CHAN_REFUSED
};

/* What a gate needs only while somebody waits, and for a short time after. */
struct snib__wait {
    struct snib__gate *gate;      /* a reference */
    struct snib__wait *chan_next; /* bucket of the channel table */
    struct snib__wait *idle_prev, *idle_next;
    struct snib__op *head, *tail; /* local waiters, first come first served */
    struct snib__hold *incoming;  /* the target of a transfer on its way */
    snib__time idle_since;        /* SNIB__NEVER while in use */
    snib__time chain_since;       /* first hand-over of the running chain */
    uint32_t chain;               /* hand-overs in a row */
    uint32_t timer_at;
    uint32_t own_messages; /* messages of our own releases still to come: no news in them */
    uint32_t hash;         /* of the channel */
    uint8_t channel;       /* enum snib__channel_state */
    uint8_t brief;         /* short sleeps in a row */
    bool hint;             /* a message came while an attempt was on its way */
    bool yielding;
};

struct snib__gate {
    struct snib__gate *next; /* bucket of the gate table */
    const struct snib__lock_kind *kind;
    void *home;                /* the caller's, for all gates of the engine */
    struct snib__hold *active; /* ours that tries, holds or releases; NULL */
    struct snib__wait *wait;
    uint32_t hash;
    uint32_t refs;
    uint16_t name_len;
    char name[];
};

struct snib__batch {
    struct snib__batch *next; /* free list */
    uint32_t n;
    struct snib__hold *holds[SNIB__BATCH_MAX];
    uint64_t numbers[SNIB__BATCH_MAX];
};

struct snib__endpoint { /* one link of a node */
    struct snib__conn conn;
    bool wanted;         /* somebody needs it */
    bool connect;        /* wish */
    bool close;          /* wish */
    bool connecting;     /* the driver is at it */
    snib__time next_try; /* while down */
    snib__time backoff;
};

struct snib__node {
    struct snib__endpoint links[2];
    struct snib__request *todo; /* waiting for the command link */
    uint32_t todo_n, todo_cap;
    snib__time down_since; /* of the command link; SNIB__NEVER while it is ready */
    snib__time ready_since;
    bool ever_ready;
    int32_t failure; /* why it is down */
    int os_error;
    char run_id[48];
    /* the watchdog's list: renewed holds by deadline; those before the cursor are being renewed */
    struct snib__hold *renew_head, *renew_tail, *renew_cursor;
    uint64_t renew_n;
    snib__time renew_retry, renew_last;
};

struct snib__timer {
    snib__time when;
    void *subject;
    uint32_t *at; /* the subject's place in the heap */
    int what;     /* enum snib__timer_what */
};
enum snib__timer_what { SNIB__TIMER_OP, SNIB__TIMER_HOLD, SNIB__TIMER_WAIT };

#define SNIB__RECORDS_MAX 16
struct snib__record {
    int32_t level;
    char text[160];
};

struct
    snib__slab; /* op.c: memory that is kept for reuse, so that a stale pointer can be recognised */

struct snib__engine {
    struct snib__config config;
    struct snib__node node;
    uint64_t random;
    uint64_t next_number;
    bool closed;
    int32_t log_level;
    snib_client_stats_data stats;
    struct snib__gate **gates;
    uint32_t gates_n, gates_cap;
    struct snib__wait **chans;
    uint32_t chans_n, chans_cap;
    struct snib__wait *idle_head, *idle_tail; /* waits nobody uses, to be unsubscribed in order */
    struct snib__op *live;
    uint32_t live_n;
    struct snib__op *done_head, *done_tail;
    struct snib__hold *lost_head, *lost_tail;
    uint32_t releasing;       /* holds in phase RELEASING */
    uint64_t moves;           /* steps of holds towards their end */
    struct snib__timer *heap; /* from index 1 */
    uint32_t heap_n, heap_cap;
    struct snib__hold *free_holds;
    struct snib__op *free_ops;
    struct snib__batch *free_batches;
    struct snib__slab *slabs;
    uint64_t memory;
    struct snib__record log[SNIB__RECORDS_MAX]; /* not yet fetched; the oldest are overwritten */
    uint32_t log_head, log_n;
};

/* timer.c */
int snib__timer_set(struct snib__engine *e, int what, void *subject, uint32_t *at, snib__time when);
void snib__timer_cancel(struct snib__engine *e, uint32_t *at);

/* op.c */
struct snib__hold *snib__hold_new(struct snib__engine *e, struct snib__gate *gate);
void snib__hold_recycle(struct snib__engine *e, struct snib__hold *hold);
struct snib__batch *snib__batch_new(struct snib__engine *e);
void snib__batch_recycle(struct snib__engine *e, struct snib__batch *batch);
void snib__slabs_free(struct snib__engine *e);
struct snib__op *snib__op_new(struct snib__engine *e, int kind, struct snib__gate *gate,
                              snib__time now, int32_t *out_code);
void snib__op_done(struct snib__engine *e, struct snib__op *op, int32_t code);
void snib__op_fail(struct snib__engine *e, struct snib__op *op, int32_t code,
                   const char *server_text, uint32_t n);
int snib__op_arm(struct snib__engine *e, struct snib__op *op);
void snib__op_expired(struct snib__engine *e, struct snib__op *op, snib__time now);

/* node.c */
int snib__node_send(struct snib__engine *e, int kind, void *subject, uint64_t number,
                    snib__time now);
void snib__node_forget(struct snib__engine *e, void *subject);
bool snib__node_ready(const struct snib__engine *e);
void snib__node_want(struct snib__engine *e, int link, snib__time now);
void snib__node_tick(struct snib__engine *e, snib__time now);
snib__time snib__node_deadline(const struct snib__engine *e);
void snib__node_fail_ops(struct snib__engine *e, int32_t code, int os_error, snib__time now);

/* gate.c */
void snib__gate_advance(struct snib__engine *e, struct snib__gate *gate, snib__time now);
void snib__gate_answer_acquire(struct snib__engine *e, struct snib__hold *hold, snib__time sent_at,
                               const struct snib__value *reply, int32_t error, const char *text,
                               snib__time now);
void snib__gate_answer_release(struct snib__engine *e, struct snib__hold *hold,
                               const struct snib__value *reply, int32_t error, const char *text,
                               snib__time now);
void snib__gate_answer_transfer(struct snib__engine *e, struct snib__hold *hold, snib__time sent_at,
                                const struct snib__value *reply, int32_t error, const char *text,
                                snib__time now);
void snib__gate_unanswered(struct snib__engine *e, const struct snib__request *request,
                           snib__time now);
void snib__gate_release(struct snib__engine *e, struct snib__hold *hold, snib__time now);
void snib__gate_retry_release(struct snib__engine *e, struct snib__hold *hold, snib__time now);
bool snib__gate_leave(struct snib__engine *e, struct snib__op *op, snib__time now);

/* wait.c */
struct snib__wait *snib__wait_get(struct snib__engine *e, struct snib__gate *gate);
void snib__wait_push(struct snib__wait *wait, struct snib__op *op, bool front);
void snib__wait_remove(struct snib__wait *wait, struct snib__op *op);
void snib__wait_sleep(struct snib__engine *e, struct snib__gate *gate, int64_t left_ms,
                      snib__time now);
void snib__wait_expired(struct snib__engine *e, struct snib__wait *wait, snib__time now);
void snib__wait_rest(struct snib__engine *e, struct snib__gate *gate, snib__time now);
void snib__wait_pubsub(struct snib__engine *e, const struct snib__value *reply, uint32_t n,
                       snib__time now);
void snib__wait_pubsub_ready(struct snib__engine *e, snib__time now);
void snib__wait_pubsub_down(struct snib__engine *e, snib__time now);
void snib__wait_recheck_all(struct snib__engine *e, snib__time now);
void snib__wait_tick(struct snib__engine *e, snib__time now);
snib__time snib__wait_deadline(const struct snib__engine *e);

/* hold.c */
snib__time snib__hold_lease(const struct snib__engine *e, const struct snib__hold *hold);
void snib__hold_granted(struct snib__engine *e, struct snib__hold *hold, snib__time sent_at,
                        snib__time now);
void snib__hold_lose(struct snib__engine *e, struct snib__hold *hold, int reason, snib__time now);
void snib__hold_expired(struct snib__engine *e, struct snib__hold *hold, snib__time now);
void snib__hold_settle(struct snib__engine *e,
                       struct snib__hold *hold); /* free it if nobody wants it */
void snib__hold_stop(struct snib__engine *e, struct snib__hold *hold); /* no renewal, no timer */
snib__time snib__lease_end(snib__time sent_at, snib__time lease);      /* the deadline V */

/* watchdog.c */
void snib__watchdog_add(struct snib__engine *e, struct snib__hold *hold);
void snib__watchdog_remove(struct snib__engine *e, struct snib__hold *hold);
void snib__watchdog_tick(struct snib__engine *e, snib__time now);
snib__time snib__watchdog_deadline(const struct snib__engine *e);
void snib__watchdog_answer(struct snib__engine *e, struct snib__batch *batch, snib__time sent_at,
                           const struct snib__value *reply, uint32_t n, int32_t error,
                           snib__time now);
void snib__watchdog_unanswered(struct snib__engine *e, struct snib__batch *batch, snib__time now);
void snib__watchdog_reconnected(struct snib__engine *e, bool other_server, snib__time now);

/* ask.c */
int snib__ask_encode(struct snib__engine *e, struct snib__buf *out,
                     struct snib__op *op); /* script, -1, -2 none */
void snib__ask_answer(struct snib__engine *e, struct snib__op *op, const struct snib__value *reply,
                      uint32_t n, const struct snib__resp *resp);

/* engine.c */
uint64_t snib__engine_random(struct snib__engine *e, uint64_t below);
uint32_t snib__hash(const char *bytes, size_t n);
void snib__engine_log(struct snib__engine *e, int32_t level, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
void snib__histogram_add(uint64_t *buckets, snib__time duration);

#endif
