/* objects.h - the objects behind the handles.
 *
 *     lock, hold, op, queue  --each a reference-->  client  -->  driver, engine
 *
 * The client's memory stays until the last of its handles is freed, in any order; a closed client
 * still answers calls, but does nothing.  Holds and ops are the engine's own objects: their handles
 * refer to them, and end before the engine gets them back.
 */
#ifndef SNIB__OBJECTS_H
#define SNIB__OBJECTS_H

#include "api/handle.h"
#include "api/url.h"
#include "driver/lead.h"
#include "net/error.h"

struct snib__client {
    struct snib__driver driver;
    struct snib__url url;
    _Atomic uint32_t refs;
    uint32_t fork_generation;
    _Atomic(struct snib__client *)
        heir; /* heir.c: replaces a client inherited over a fork; itself: none will */
    snib_client_options options; /* in effect, without texts; for the heir */
    snib__time patience;
    int64_t lease_ms;
    int64_t max_hold_ms;
    char uuid[37];
    char *identity;                       /* what the engine publishes about it; NULL: nothing */
    int64_t since;                        /* when it was opened, in seconds since 1970 */
    char where[SNIB__ADDRESS_TEXT + 128]; /* the URL's target, for messages */
    struct snib__client *exit_prev, *exit_next; /* exit.c's */
    bool stopped;         /* guarded by the mutex: a thread is stopping or has stopped the driver */
    _Atomic bool grouped; /* it has had a part in a group lock: its threads enter other clients */
    struct snib__queue *log_queue;
    struct snib__queue *login_queue; /* gets the requests for credentials */
    struct snib__witness *witnesses; /* guarded by the mutex; of losses: witness.c */
    struct snib__debug *debug;       /* NULL, unless it has the option: debug.c */
};

struct snib__lock {
    struct snib__client *client;
    _Atomic(struct snib__lock *) heir; /* as a client's */
    struct snib__gate *gate;
    struct snib__parts *parts; /* of a group lock; else NULL */
    int32_t kind;              /* enum snib_kind, SNIB__MULTI or SNIB__OUTER */
    uint32_t flags;
    int64_t lease_ms;
    int64_t max_hold_ms;
};

struct snib__log_record {
    int32_t level;
    char text[sizeof((snib_event *)0)->text];
};

struct snib__queue {
    struct snib__client *client;
    void *handle;
    struct snib__bell *bell;
    struct snib__leader leader;
    bool draining;                /* its events need no bell: the consumer takes them next */
    _Atomic bool busy;            /* a thread is in snib_queue_wait(); read without the mutex */
    bool corked;                  /* submitted operations wait for the uncork */
    _Atomic bool woken;           /* snib_queue_wake() was called */
    _Atomic bool freed;           /* no consumer waits any more, nor one that comes now */
    struct snib__op *head, *tail; /* done, by next */
    struct snib__hold *lost, *lost_tail; /* to be reported, by next and prev */
    uint32_t witnessed;           /* losses to be reported of holds whose first queue is another */
    struct snib__log_record *log; /* a ring, or NULL */
    uint32_t log_head, log_n;
    uint64_t log_dropped;
    uint64_t question; /* request for credentials, to be reported; 0: none */
};

#define SNIB__LOG_MAX 256
#define SNIB__TELL_QUEUED 2 /* hold->tell: it is in its queue's list of losses */

/* client.c's: why there is no object behind a handle; returns the code. */
int snib__fail_handle(snib_error *err);

/* Look up a handle; a client or lock that was inherited is replaced by its heir, anything else
 * inherited is refused.  NULL: the code is in *out_code, and *err is filled.  Give back with
 * snib__handle_put(). */
struct snib__client *snib__client_enter(snib_client *handle, snib_error *err, int32_t *out_code);
struct snib__lock *snib__lock_enter(snib_lock *handle, snib_error *err, int32_t *out_code);
struct snib__hold *snib__hold_enter(snib_hold *handle, struct snib__client **out_client,
                                    snib_error *err, int32_t *out_code);
struct snib__queue *snib__queue_enter(snib_queue *handle, snib_error *err, int32_t *out_code);
struct snib__op *snib__op_enter(snib_op *handle, struct snib__client **out_client, snib_error *err,
                                int32_t *out_code);

/* lock.c's, also for multi locks and heirs: a client's gate, with a reference; NULL: closed or out of memory, with *out_code. */
struct snib__gate *snib__lock_gate(struct snib__client *client, int32_t kind, const char *name,
                                   size_t name_len, int32_t *out_code);

/* lock.c's, for multi and quorum locks: check options and fill in defaults; refuse flags that the kind
 * does not know, the first by its name; fill a lock's fields; make its handle, which owns the lock
 * (on failure, the lock is freed). */
int snib__lock_options(const snib_lock_options *from, snib_lock_options *to, snib_error *err);
int snib__lock_flags(uint32_t flags, uint32_t known, snib_error *err);
void snib__lock_fill(struct snib__lock *lock, struct snib__client *client, int32_t kind,
                     const snib_lock_options *options);
int snib__lock_handle(struct snib__lock *lock, snib_lock **out_lock, snib_error *err);

bool snib__client_forked(const struct snib__client *client);

/* heir.c's: the client or lock itself, or its heir in the child of a fork; NULL with *out_code. */
struct snib__client *snib__client_heir(struct snib__client *client, snib_error *err,
                                       int32_t *out_code);
/* The client is being freed: return it or, if it was inherited, the heir that it has; from now on it gets none. */
struct snib__client *snib__client_last(struct snib__client *client);
struct snib__lock *snib__lock_heir(struct snib__lock *lock, snib_error *err, int32_t *out_code);

/* client.c's, for exit.c: the two halves of closing; begin() sends the releases, end() waits for
 * the replies. */
void snib__client_close_begin(struct snib__client *client);
bool snib__client_close_end(struct snib__client *client, snib__time until);
/* End the client's threads and what waits, unless another caller does.  Nothing is released. */
void snib__client_stop(struct snib__client *client);

/* exit.c's: the list of clients to be closed when the process exits.  0 or errno. */
int snib__exit_init(void);
void snib__exit_add(struct snib__client *client);
void snib__exit_remove(struct snib__client *client);
void snib__exit_wake(void); /* the threads of all clients look at the clock */

/* client.c's, for the heir: a new client with the address and options of another; NULL with
 * *out_code. */
struct snib__client *snib__client_again(const struct snib__client *from, snib_error *err,
                                        int32_t *out_code);
void snib__client_ref(struct snib__client *client);
void snib__client_unref(struct snib__client *client);

/* credentials.c's: pass the driver's request for credentials to the queue, if there is one; handle
 * the end of a queue.  Inside. */
void snib__client_ask(struct snib__driver *driver, struct snib__wakes *wakes);
void snib__client_unask(struct snib__client *client, const struct snib__queue *queue);

/* A wait of the API in nanoseconds: 0, SNIB__NEVER for -1; false when out of range. */
bool snib__wait_ns(int64_t wait_ms, snib__time *out);
/* Whether it may be a lock's lease; 0: the client's. */
bool snib__lease_fits(int64_t lease_ms);
/* Now + that. */
snib__time snib__until(snib__time wait);

/* How to continue an operation that was just started: run.c.  Inside; leaves.  `op` NULL: code is
 * the result. */
struct snib__run {
    struct snib__client *client;
    struct snib__queue *queue; /* NULL: none */
    uint64_t token;
    snib__time slice; /* how long to block; 0: submit */
    bool interruptible;
    snib_op **out_op;              /* NULL: the caller cannot continue it */
    const struct snib__gate *gate; /* the lock it is about; NULL: none */
    int32_t reason;                /* of SNIB_LOST without an operation */
    void *handle;                  /* of the operation, if it was reserved; else NULL */
};
/* Reserve the handle of an operation that is submitted and cannot be taken back; false: out of memory.  Inside. */
bool snib__run_reserve(struct snib__run *run);
/* Returns SNIB_AGAIN (with *out_op), or the operation's code with *out_event. */
int snib__run(const struct snib__run *run, struct snib__op *op, int32_t code, snib_event *out_event,
              snib_error *err);

/* Until the hold's end; 0 when it is lost or released; INT64_MAX if it has none. */
int64_t snib__remaining_ms(const struct snib__hold *hold, snib__time now);

/* Give back a hold that an operation got and its caller will not take; re-entries may share it.
 * Inside. */
void snib__hold_return(struct snib__client *client, struct snib__hold *hold);
/* No user has its handle any more, and none is told of a loss until one gets a handle again.  Inside. */
void snib__hold_unhand(struct snib__client *client, struct snib__hold *hold);
/* End a hold that has neither users nor handles.  Inside. */
void snib__hold_let_go(struct snib__client *client, struct snib__hold *hold);

/* The result of a finished operation as an event; the hold becomes a handle.  Frees the operation.
 * Inside. */
void snib__op_finish(struct snib__client *client, struct snib__op *op, snib_event *out);
/* The same where nobody takes the result: what was granted is given back.  Inside. */
void snib__op_discard(struct snib__client *client, struct snib__op *op);

/* witness.c: have a hold's loss reported to this queue, too, now that its grant is being taken: only then a user
 * of the queue knows the hold.  0, or -1: out of memory.  All inside. */
int snib__witness_add(struct snib__client *client, struct snib__hold *hold,
                      struct snib__queue *queue, uint64_t token);
void snib__witness_lost(struct snib__client *client, const struct snib__hold *hold);
struct snib__hold *snib__witness_take(struct snib__queue *queue,
                                      uint64_t *out_token); /* NULL: none */
void snib__witness_forget_hold(struct snib__client *client, const struct snib__hold *hold);
void snib__witness_forget_queue(struct snib__client *client, const struct snib__queue *queue);

/* queue.c's, for the driver.  Inside.  wakes NULL: the queue's bell is rung at once. */
void snib__queue_push(struct snib__queue *queue, struct snib__op *op, struct snib__wakes *wakes);
void snib__queue_push_lost(struct snib__queue *queue, struct snib__hold *hold,
                           struct snib__wakes *wakes);
void snib__queue_push_log(struct snib__queue *queue, int32_t level, const char *text,
                          struct snib__wakes *wakes);
void snib__queue_push_question(struct snib__queue *queue, uint64_t number,
                               struct snib__wakes *wakes);
void snib__queue_drop_lost(struct snib__queue *queue, struct snib__hold *hold);

/* Destructors for the handle table, and their registration. */
void snib__client_destroy(void *object);
void snib__lock_destroy(void *object);
void snib__hold_destroy(void *object);
void snib__op_destroy(void *object);
void snib__queue_destroy(void *object);
/* Before the first client: 0, or errno if forks would not be noticed. */
int snib__api_init(void);

#endif
