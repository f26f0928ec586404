/* driver.h - threads, sockets and the clock under one engine.
 *
 * One mutex guards the engine; "inside" means with the mutex held, "outside" without it.  The
 * thread that reads a command link has that link's reader role:
 *
 *     NOBODY  --a caller waits for a reply-->  CALLER  --its reply has arrived-->  the oldest other
 *     caller with a pending reply (TRANSIT until it has woken up), or the thread, or NOBODY
 *
 * so an uncontended call is one send and one receive on the caller's own thread, and the commands
 * of many concurrent callers leave in few writes.  The background thread connects, watches the
 * pub/sub links and the timers, and reads a command link only while asynchronous work is in flight
 * and no caller reads, and no consumer that sleeps on its queue's descriptor (QUEUE: see lead.h).
 *
 * The roles belong to the socket (sock.h), and no thread waits for the one that has a role.  A
 * nominee that does not wake up loses the role again.  If a reader or writer does not come back,
 * replies stop, so the engine closes the link at its reply timeout, and the next socket has its own
 * roles.  Callers that are stopped one after the other would cost a reply timeout each, and four of
 * them a lease: so for the length of a lease from then on the thread alone has all roles.  A wake-up
 * that a thread does not get to deliver costs a nap: the background thread and the parked callers
 * check for themselves once a second, or sooner where leases are short.  So no renewal depends on a
 * caller's thread, whatever its signal handlers do.
 *
 * Write rule: write immediately while few replies are pending (fewer than 8 on all links, or 2 on
 * this one), or once 16 requests are collected; otherwise leave it to the reader, which writes after
 * every read.  Deferring is allowed only while a reader will come back, that is, while replies are
 * pending.
 *
 * Measured on a prototype: one thread is as fast as with a private socket, 64 threads are twice as
 * fast as with 64 sockets.
 */
#ifndef SNIB__DRIVER_H
#define SNIB__DRIVER_H

#include "driver/park.h"
#include "driver/sock.h"
#include "engine/engine.h"

#include <pthread.h>
#include <sys/types.h>

enum snib__word {
    SNIB__WORD_PENDING = 0,
    SNIB__WORD_ASLEEP = 1,
    SNIB__WORD_LEAD = 2,
    SNIB__WORD_DONE = 3
};
/* A nominee that has not taken the role by then is passed over, harmless if it was only slow.  While
 * callers wait for others to read, the thread looks that often. */
#define SNIB__TRANSIT (100 * SNIB__MS)
#define SNIB__WAKES_MAX 128
#define SNIB__BELLS_MAX 8

/* The descriptor of a queue, or of the thread.  A thread about to ring it keeps it open by a reference. */
struct snib__bell {
    _Atomic uint32_t refs;
    int fd;
};

struct snib__bell *snib__bell_new(void); /* NULL with errno */
void snib__bell_put(struct snib__bell *bell);

/* Threads and queues to be woken once the mutex is free. */
struct snib__wakes {
    uint32_t n;
    _Atomic uint32_t *words[SNIB__WAKES_MAX];
    uint32_t bells_n;
    struct snib__bell *bells[SNIB__BELLS_MAX]; /* with a reference each */
    void *carriers;                            /* of group locks, to be stepped */
    struct snib__bell *thread; /* ... the driver's, too; NULL: it is not to be woken */
    bool hold_watchers;
};

static inline void snib__wakes_begin(struct snib__wakes *wakes)
{
    wakes->n = wakes->bells_n = 0;
    wakes->carriers = NULL;
    wakes->thread = NULL;
    wakes->hold_watchers = false;
}

static inline bool snib__wakes_any(const struct snib__wakes *wakes)
{
    return wakes->n || wakes->bells_n || wakes->carriers || wakes->thread || wakes->hold_watchers;
}

struct snib__leader;

struct snib__waiter { /* a thread in snib__driver_run(), on its stack; guarded by the mutex */
    struct snib__waiter *next, *prev;
    struct snib__op *op;
};

struct snib__driver {
    pthread_mutex_t mutex;
    struct snib__engine *engine;
    snib__time connect_timeout;
    struct snib__tls_config tls; /* for addresses that use it; the caller owns its texts */
    struct snib__logins logins;  /* credentials that the engine's config does not have */
    snib__time nap;   /* the thread's longest sleep while there is anything to watch over */
    snib__time lease; /* of renewed holds */
    /* below: guarded by the mutex */
    struct snib__waiter *waiters, *waiters_tail;
    struct snib__leader *leader; /* the queue whose consumer reads; NULL: none */
    bool looks;                  /* the thread's sleep ends in time to see whether it does */
    uint32_t astray;             /* dead sockets that callers have not come back from */
    snib__time alone_until;      /* until then only the thread reads and writes command links */
    snib__time alone_before;     /* ... what it was before the first of those sockets died */
    uint64_t writes, reads, wakes;
    pthread_t thread;
    bool thread_started, stop;
    snib__time sleep_until;  /* the thread's; 0 while it is awake */
    struct snib__bell *wake; /* ends its sleep; NULL and -1: there is no thread any more */
    int alarm_fd;
    snib__time alarm_at; /* SNIB__NEVER: not set */
    snib__time ahead;    /* how far the clock had been moved when the thread last looked */
    bool wake_raised;
    _Atomic uint32_t
        hold_word; /* changes when a hold may have changed, for threads that watch holds */
    uint32_t hold_watchers;
    struct snib__watch *watches; /* of those, the threads in snib_hold_wait() */
    uint64_t moves_told;         /* the engine's moves when hold_word last changed */
    /* callbacks of the API, for results */
    void (*done)(struct snib__driver *driver, struct snib__op *op, struct snib__wakes *wakes);
    void (*lost)(struct snib__driver *driver, struct snib__hold *hold, struct snib__wakes *wakes);
    void (*outer)(struct snib__driver *driver, struct snib__outer *outer);
    void (*steps)(void *carriers); /* outside */
    void *carriers;                /* inside: listed for steps() */
    void (*log)(struct snib__driver *driver, int32_t level, const char *text,
                struct snib__wakes *wakes);
    void (*ask)(struct snib__driver *driver, struct snib__wakes *wakes); /* if logins.untold */
    /* inside, from the thread, at least that often while it runs; NULL and 0: never */
    void (*look)(struct snib__driver *driver);
    snib__time look_every;
};

int snib__driver_init(
    struct snib__driver
        *driver); /* 0 or errno; the caller has set the fields that are not guarded */
void snib__driver_destroy(struct snib__driver *driver); /* after stop */

/* Enter and leave the engine.  leave() delivers results, sends what may be sent, wakes threads. */
void snib__driver_enter(struct snib__driver *driver);
void snib__driver_leave(struct snib__driver *driver);
/* Deliver results as leave() does; leaves and enters to wake threads. */
void snib__driver_deliver(struct snib__driver *driver);
/* leave() without sending: nothing was begun that needs it, or the caller will enter and leave() again soon. */
void snib__driver_leave_collecting(struct snib__driver *driver);
/* The same after a request of a corked queue: its consumer will send it, or soon the thread, if the consumer is kept busy
 * with something else. */
void snib__driver_leave_corked(struct snib__driver *driver);

/* Start the thread if it is not running; 0 or errno.  Inside. */
int snib__driver_start(struct snib__driver *driver);

/* Inside, with an operation whose `awaited` is set: block until it is done (true), `until` has
 * passed, a signal handler ran (if `interruptible`), or, with `until_waiting`, it has to wait for
 * another holder.  Leaves and enters meanwhile. */
bool snib__driver_run(struct snib__driver *driver, struct snib__op *op, snib__time until,
                      bool interruptible, bool until_waiting);

/* Wake lists, for the API's callbacks. */
void snib__wake_word(struct snib__driver *driver, struct snib__wakes *wakes,
                     _Atomic uint32_t *word);
void snib__wake_bell(struct snib__driver *driver, struct snib__wakes *wakes,
                     struct snib__bell *bell);
void snib__wake_not(struct snib__wakes *wakes); /* the thread */

/* Free the ways to the servers, before the engine is freed. */
void snib__driver_free_ways(struct snib__driver *driver);

/* As snib__sys_poll(), but what the kernel does not poll may be ready after a nap: more descriptors than the process may
 * have (RLIMIT_NOFILE, which sandboxes set to 0), or more than there is memory for. */
int snib__driver_poll(struct pollfd *polls, uint32_t n, snib__time left);

/* Outside: end the thread and close all descriptors: handles may keep a closed client in memory for long. */
void snib__driver_stop(struct snib__driver *driver);

/* Outside: let the thread look at the clock, if it runs. */
void snib__driver_rouse(struct snib__driver *driver);

/* between driver.c and thread.c */
void *snib__thread_main(void *driver);
/* Inside: before the span has passed, the thread begins another pass, in which it sends what nobody else has sent. */
void snib__thread_passes_in(struct snib__driver *driver, snib__time span);
void snib__driver_settle(struct snib__driver *driver, struct snib__wakes *wakes);
/* reading: the socket that the calling thread reads, and so writes before it sleeps; NULL: none */
void snib__driver_flush(struct snib__driver *driver, const struct snib__sock *reading);
void snib__driver_flush_link(struct snib__driver *driver, struct snib__link *link,
                             const struct snib__sock *reading);
void snib__driver_receive(struct snib__driver *driver, struct snib__link *link,
                          struct snib__sock *sock, char *bytes, ssize_t n, int error);
void snib__driver_link_down(struct snib__driver *driver, struct snib__link *link, int32_t code,
                            int os_error);
void snib__driver_drop_sock(struct snib__link *link);
/* The socket is open: the engine begins the handshake. */
void snib__driver_link_up(struct snib__driver *driver, struct snib__link *link,
                          struct snib__sock *sock);
/* Whether callers and consumers leave all command links to the thread, because less than a lease
 * ago one of them did not come back from a socket that was dropped. */
bool snib__driver_alone(const struct snib__driver *driver);
/* The thread drops a socket that may be in use; the caller has finished with it. */
void snib__driver_left(struct snib__driver *driver, struct snib__sock *sock);
void snib__driver_unuse(struct snib__driver *driver, struct snib__sock *sock);
/* A command link's socket, if it may be read and written (there is no other test); else NULL. */
struct snib__sock *snib__driver_command(const struct snib__link *link);
void snib__driver_pass_role(struct snib__driver *driver, struct snib__link *link,
                            struct snib__wakes *wakes);
void snib__driver_ring(struct snib__wakes *wakes);
void snib__driver_do_wakes(struct snib__driver *driver, struct snib__wakes *wakes); /* outside */

#endif
