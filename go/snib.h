/* snib.h - distributed locks on Redis and Valkey, wire-compatible with Redisson.
 *
 * This header is the reference manual.  In one paragraph: open a client, create a lock from it, and acquire the
 * lock to get a hold.  The hold is what you own, inspect and release.  The client's watchdog renews a lock
 * without an explicit lease for as long as the hold lives.  When the hold can no longer be trusted, it becomes
 * lost, permanently, before the lease in Redis can have ended.
 *
 * Handles     snib_client, snib_lock, snib_hold, snib_op and snib_queue are opaque.  A handle is a ticket
 *             with a generation, not an address: using one that is NULL, freed, of another kind or
 *             from a parent process gives an error and never touches freed memory.
 * Results     0 is success, positive codes are expected outcomes, negative codes are errors.
 *             snib_code_is() says what a program may conclude from a code.
 * Outputs     are written only on success, `err` on any other result.  `err` may be NULL.
 * Strings     passed with a length need no terminator and are copied before the call returns.
 * Times       are in milliseconds.  A wait of -1 has no limit, 0 means one attempt.
 * Unreachable a wait that ends while the server does not answer, or has not confirmed this client's own earlier
 *             release of the lock, returns SNIB_ECONNECT or SNIB_EUNREACHABLE, since nobody knows whether the lock
 *             is free; SNIB_BUSY and SNIB_TIMEDOUT mean that the server said so, or that this client holds it.
 * Threads     every function may be called from any thread unless it says otherwise; none is
 *             async-signal-safe.  A function does not block unless it says so.  None is a cancellation
 *             point: a thread that is cancelled inside a call ends after it.  A thread that is stopped, or
 *             interrupted by a signal handler, inside a call does not keep other holds from being renewed.
 * Fork        the child may continue to use the clients and locks that it inherited: at their first use there, they
 *             get a new identity, new connections and their own thread (also locks made of locks).  Holds and
 *             running operations belong to the parent, which continues undisturbed: inherited holds, operations
 *             and queues return SNIB_EFORKED and send nothing, and freeing them is safe.  Any thread may
 *             fork, whatever other threads are doing in the library.
 */
#ifndef SNIB_H
#define SNIB_H

#include <stddef.h>
#include <stdint.h>

#define SNIB_VERSION_MAJOR 0
#define SNIB_VERSION_MINOR 1
#define SNIB_VERSION_PATCH 0
#define SNIB_VERSION_NUMBER 1000 /* major * 1000000 + minor * 1000 + patch */
#define SNIB_VERSION_STRING "0.1.0"

#ifndef SNIB_API
#if defined(SNIB_STATIC)
#define SNIB_API
#else
#define SNIB_API __attribute__((visibility("default")))
#endif
#endif

#ifdef __cplusplus
extern "C" {
#endif

typedef struct snib_client snib_client;
typedef struct snib_lock snib_lock;
typedef struct snib_hold snib_hold;
typedef struct snib_op snib_op;
typedef struct snib_queue snib_queue;

/* ---- Results ------------------------------------------------------------------------------------ */

/* Values are never reused.  core/api/codes.def is the one table behind this list, behind
 * snib_code_name(), behind the Python exceptions and the Go errors; a test compares them all. */
enum snib_code {
    SNIB_OK = 0,
    /* expected outcomes */
    SNIB_BUSY = 1,      /* the lock is held and the caller did not want to wait */
    SNIB_TIMEDOUT = 2,  /* the wait ended before the lock was free */
    SNIB_CANCELLED = 3, /* cancelled: the operation will not give the caller the lock */
    SNIB_LOST = 4,      /* the hold was lost before this call */
    SNIB_AGAIN = 5,     /* not finished yet; continue with snib_op_wait() or the queue */
    SNIB_NOT_HELD = 6,  /* nothing was held, so nothing was released */
    /* usage */
    SNIB_EINVAL = -1,    /* an argument is out of range */
    SNIB_EHANDLE = -2,   /* the handle is NULL, freed or of another kind */
    SNIB_ENAME = -3,     /* the lock name cannot be used */
    SNIB_ELEASE = -4,    /* the lease is out of range */
    SNIB_EURL = -5,      /* the URL cannot be understood */
    SNIB_EOPTION = -6,   /* an option is out of range or unknown */
    SNIB_ENOTSUP = -7,   /* this build or this lock kind cannot do that */
    SNIB_EINUSE = -8,    /* another consumer is using the queue right now */
    SNIB_EUPGRADE = -9,  /* the owner holds the read lock and cannot get the write lock as well */
    SNIB_EPERMITS = -10, /* more permits than exist, or an invalid count */
    /* resources */
    SNIB_ENOMEM = -20,
    SNIB_ELIMIT = -21,  /* a limit of the client is reached */
    SNIB_ESYSTEM = -22, /* the operating system refused; see os_error */
    /* network */
    SNIB_EUNREACHABLE = -30, /* sent, but no answer came in time; maybe applied */
    SNIB_ERESOLVE = -31,     /* the host name has no address */
    SNIB_EPROTOCOL = -32,    /* the peer does not speak the Redis protocol */
    SNIB_ECONNECT = -33,     /* no connection to the server: nothing was applied */
    SNIB_ETLS = -34,         /* no secure connection: a certificate, a key or TLS itself was refused */
    SNIB_ETOPOLOGY = -35,    /* not part of the deployment that the URL names */
    SNIB_ECREDENTIALS = -36, /* the password's file, or who was asked for it, had none: nothing was applied */
    /* server */
    SNIB_EAUTH = -40,      /* user name or password refused */
    SNIB_EPERM = -41,      /* the user may not run a command, or touch a key or channel */
    SNIB_EWRONGTYPE = -42, /* the key holds something that is not a lock of this kind */
    SNIB_ELOADING = -43,   /* the server is still loading its data, or busy with a script */
    SNIB_EOOM = -44,       /* the server is out of memory and refuses writes */
    SNIB_EREADONLY = -45,  /* the server is a replica */
    SNIB_ESERVER = -46,    /* any other error reply; maybe applied */
    SNIB_EDATABASE = -47,  /* the database number does not exist */
    SNIB_EMISCONF = -48,   /* the server refuses writes: persistence or replicas are in trouble */
    SNIB_EREPLICAS = -49,  /* too few replicas had the grant in time: it was taken back */
    /* state */
    SNIB_ECLOSED = -60, /* the client is closed */
    SNIB_EFORKED = -61  /* a hold, operation or queue of the parent process */
};

/* What may be concluded from a code: see snib_code_is(). */
#define SNIB_IS_RETRYABLE 1     /* the same call may succeed later */
#define SNIB_IS_MAYBE_APPLIED 2 /* the server may have done it; the client cleans up what it can */
#define SNIB_IS_USAGE 4         /* the program must be changed; nothing was sent */

/* Details of an error, owned by the caller.  text is one sentence without a newline: what happened, to which
 * lock, at which server, and the server's own message if there was one (never a password). */
typedef struct snib_error {
    int32_t code;
    int32_t os_error; /* errno where there is one, else 0 */
    int32_t reason;   /* SNIB_LOST: enum snib_reason; else 0 */
    char text[244];
} snib_error;

SNIB_API const char *
snib_code_name(int32_t code); /* "SNIB_BUSY"; "SNIB_?" for an unknown code; static */
SNIB_API const char *snib_code_text(int32_t code);     /* one sentence; static */
SNIB_API int snib_code_is(int32_t code, int32_t flag); /* 1 if the code has the flag, else 0 */

/* ---- Versions ----------------------------------------------------------------------------------- */

#define SNIB_FEATURE_UNIX 1 /* unix:// */
#define SNIB_FEATURE_TLS 2  /* rediss:// */

SNIB_API int32_t snib_version_number(void);
SNIB_API const char *snib_version_string(void);
SNIB_API const char *
snib_build_id(void); /* a hash over the compiled sources; the same in every package */
SNIB_API uint32_t snib_features(void);

/* ---- Clients ------------------------------------------------------------------------------------ */

/* snib_client_options.durability; 0 is none unless the URL says more.  Replicas are those that are in step, as the
 * master said at most a second before: MAJORITY and ALL do not count those that are away. */
#define SNIB_DURABILITY_NONE (-1)
#define SNIB_DURABILITY_MAJORITY (-2) /* of the server and its replicas */
#define SNIB_DURABILITY_ALL (-3)
/* snib_client_options.durability_policy: what happens if too few replicas have the grant in time */
#define SNIB_DURABILITY_REFUSE 1 /* the grant is undone and the call fails */
#define SNIB_DURABILITY_REPORT 2 /* it counts, and the hold says how many have it */
/* snib_client_options.publish; 0 is auto unless the URL says more. */
#define SNIB_PUBLISH_AUTO 1 /* as Redisson does it */
#define SNIB_PUBLISH_CLASSIC 2
#define SNIB_PUBLISH_SHARDED 3
#define SNIB_PUBLISH_BOTH 4

/* ---- What to log in with, asked anew at each connect ---- */

#define SNIB_USERNAME_MAX 512   /* with the NUL */
#define SNIB_PASSWORD_MAX 16384 /* with the NUL; a token of a managed service has 1 to 4 KiB */

typedef struct snib_credentials {
    uint32_t size;     /* of the struct as the library knows it */
    uint32_t reserved; /* 0 */
    int64_t valid_ms;  /* the password is good for so long, counted from the question; 0: no end is known */
    char why[192];     /* an answer that is none: one sentence for the log and for errors */
    char username[SNIB_USERNAME_MAX]; /* "": that of the options or the URL, else none */
    char password[SNIB_PASSWORD_MAX];
} snib_credentials;

/* snib_credentials_fn - the program fills *out, which is zero but for its size, and is wiped after use.
 *
 * Called before each connect to a server, or to several at once (sentinels have a user of their own), on a
 * thread of its own with all signals blocked, so it may take its time, and ask others; never two at a time for
 * one client.  What takes longer than the connect timeout is of use for the next attempt at the earliest.  With
 * valid_ms it is called again after four fifths of that, and every connection that there is logs in anew, so
 * that none ends with its password; those with subscriptions are made anew.  It must not free or close the
 * client.  snib_client_free() waits for a call that is under way; after the fork it may come in the child, too.
 *
 * Returns  0, or anything else for a failure: what waits goes on waiting for as long as it endures an
 *          unreachable server, and ends as SNIB_ECREDENTIALS with `why`. */
typedef int (*snib_credentials_fn)(void *data, snib_credentials *out);

/* Always fill with snib_client_options_init() first.  0 or NULL takes the default in every field. */
typedef struct snib_client_options {
    uint32_t size;
    uint32_t flags;             /* must be 0 */
    int64_t lease_ms;           /* lease of renewed holds; 100 to 86400000; default 30000 */
    int64_t connect_timeout_ms; /* one attempt to connect, with all addresses of the name, and as
                                   long again to resolve it; default 3000 */
    int64_t reply_timeout_ms;   /* a reply that takes longer ends the connection; default 3000 */
    int64_t patience_ms;  /* how long to tolerate an unreachable server; default 5000 */
    int64_t try_timeout_ms; /* the same for a wait of 0, one round trip; default 1000 */
    int64_t recheck_ms;   /* a waiter asks again at least this often; default 3000 */
    int64_t max_hold_ms;  /* default for locks; 0 none; -1 none, whatever the URL says */
    int32_t handover_max; /* hand-overs in a row inside this process; default 16; -1 none */
    int32_t waiters_max;  /* concurrent operations; more get SNIB_ELIMIT; default 200000 */
    const char *username; /* instead of the URL's; terminated by NUL, copied */
    const char *password; /* instead of the URL's; terminated by NUL, copied, never shown */
    /* Strings as above.  Options that this build does not support give SNIB_ENOTSUP. */
    const char *password_file;     /* read at each connect, instead of a password; not kept in memory */
    const char *sentinel_username; /* at the sentinels */
    const char *sentinel_password;
    const char *tls_ca;            /* file or directory of trusted CAs; NULL: the system's */
    const char *tls_cert;          /* file with the client's certificate and its chain */
    const char *tls_key;           /* file with its private key; NULL: it is in tls_cert */
    const char *tls_key_password;  /* of that file, if it is encrypted */
    const char *tls_server_name;   /* name that the certificate must have, instead of the host */
    int32_t tls_insecure; /* 1: accept any certificate; -1: do not, whatever the URL says */
    int32_t durability;   /* replicas that must have a grant, or SNIB_DURABILITY_* */
    int64_t durability_timeout_ms; /* how long they may take; default 1000, a third of the lease
                                    * at most */
    int32_t durability_policy;     /* SNIB_DURABILITY_REFUSE (default) or _REPORT */
    int32_t publish;  /* SNIB_PUBLISH_*: how releases are announced in a cluster */
    int32_t lanes;    /* connections for commands to each server, at most; 1 to 4, default 4.  There is
                       * only one until several threads often wait for answers at the same time */
    int32_t ask_credentials; /* 1: a queue is asked at each connect, see snib_client_credentials() */
    snib_credentials_fn credentials; /* asked at each connect, instead of a password; NULL: none */
    void *credentials_data;
} snib_client_options;

/* snib_client_options_init - fill *options with defaults.  size: sizeof *options. */
SNIB_API void snib_client_options_init(snib_client_options *options, size_t size);

/* snib_client_open - create a client for one deployment.
 *
 * Nothing is sent and no thread is started before the first operation.  A client may be created before a
 * fork and used on both sides.
 *
 * url      redis://[user[:password]@]host[:port][/database]   default port 6379, database 0
 *          unix://[user[:password]@]/path/to/socket
 *          rediss:// is redis:// with TLS 1.2 or newer.  The server's certificate must be trusted and match the
 *          host, see tls_* above; otherwise operations fail with SNIB_ETLS.
 *          redis+sentinel://host1[:port],host2,host3/service[/database] asks sentinels (default port 26379) for
 *          the master of a service, and follows its failovers.  redis+cluster://host1[:port],host2 is a cluster;
 *          name some of its nodes.  At most 32 hosts.  With TLS: rediss+sentinel://, rediss+cluster://.
 *          What this build does not support gives SNIB_ENOTSUP.  valkey means redis, and valkeys means rediss.
 *          Put IPv6 addresses in brackets.  User, password, path, service and option values are percent-decoded.
 *          redis://:password@host gives only a password.
 *          ?name=value&name=value gives options, named like the fields above without _ms, and db, the database.
 *          A time is a decimal number followed by ms, s, m or h, or a plain number of seconds.
 *          NULL: the environment variable SNIB_URL or, if it is unset or empty, redis://127.0.0.1:6379;
 *          SNIB_USERNAME, SNIB_PASSWORD and SNIB_PASSWORD_FILE, if set, then replace what that URL has.
 * options  NULL for defaults.  Options given here take precedence over those in the URL.
 * Returns  SNIB_OK, SNIB_EURL, SNIB_ELEASE, SNIB_EOPTION, SNIB_EINVAL, SNIB_ENOTSUP, SNIB_ENOMEM,
 *          SNIB_ESYSTEM.
 * Owns     free with snib_client_free().
 */
SNIB_API int snib_client_open(const char *url, const snib_client_options *options,
                              snib_client **out_client, snib_error *err);

/* snib_client_credentials, snib_client_login - the same as snib_credentials_fn without a function of the program's
 * being called, for languages into which C should not call: with options.ask_credentials each question is an
 * event, SNIB_EVENT_CREDENTIALS with the question's number as token, in the queue that is given here, and is
 * answered by snib_client_login().  Questions come one at a time; one that comes before there is a queue waits
 * for it.  The queue's end answers for it that there are none.
 *
 * answer   NULL: a failure without a sentence; what has a `why` is a failure too.  Copied; the copy is wiped.
 * Returns  SNIB_OK, also when nobody waits for the answer any more; SNIB_EINVAL: the queue is another client's,
 *          the client does not ask, or a text has no NUL; SNIB_EHANDLE, SNIB_EFORKED.
 */
SNIB_API int snib_client_credentials(snib_client *client, snib_queue *queue, snib_error *err);
SNIB_API int snib_client_login(snib_client *client, uint64_t token, const snib_credentials *answer,
                               snib_error *err);

/* snib_client_get_options - the options in effect: those given, those of the URL, and the defaults.
 *
 * out      its size was set by snib_client_options_init().  Strings are NULL.
 * Returns  SNIB_OK, SNIB_EINVAL, SNIB_EHANDLE.
 */
SNIB_API int snib_client_get_options(snib_client *client, snib_client_options *out,
                                     snib_error *err);

/* snib_client_ping - connect if necessary and ask the server for an answer.
 *
 * Blocks   for at most wait_ms (-1: the client's patience; 0: its try timeout).
 * Returns  SNIB_OK, or an error of the network, server or state group.
 */
SNIB_API int snib_client_ping(snib_client *client, int64_t wait_ms, snib_error *err);
SNIB_API int snib_client_ping_submit(snib_client *client, int64_t wait_ms, snib_queue *queue,
                                     uint64_t token, snib_op **out_op, snib_error *err);

/* snib_client_close - end every operation with SNIB_ECLOSED, release every hold, stop the thread.
 *
 * Holds that are still held become lost with the reason SNIB_REASON_CLOSED.  Idempotent.
 *
 * Blocks   for at most timeout_ms (-1: the client's patience) while releases are confirmed.
 * Returns  SNIB_OK; SNIB_TIMEDOUT if a release was not confirmed (the lock is then free when its lease ends);
 *          SNIB_EHANDLE.
 */
SNIB_API int snib_client_close(snib_client *client, int64_t timeout_ms, snib_error *err);

/* snib_client_free - close with a timeout of 0 if necessary and free the handle.  NULL is allowed.
 * Afterwards its locks return SNIB_ECLOSED, and its holds are lost with the reason SNIB_REASON_CLOSED; free
 * them in any order. */
SNIB_API void snib_client_free(snib_client *client);

/* snib_set_exit_timeout - how long the process may take at its end to release its holds.
 *
 * When exit() is called or main() returns, every client that is still open is closed, after the program's own
 * atexit() handlers and before the process is gone: holds are released, operations end with
 * SNIB_ECLOSED.  Threads that still work under a lock are then no longer protected, so end them first.  The
 * child of a fork releases only what it acquired itself.  After _exit(), abort() or a fatal signal the locks
 * become free when their leases end.
 *
 * timeout_ms  for all clients together; 0 to 60000, default 1000; 0: release nothing
 * Returns     SNIB_OK, SNIB_EINVAL.
 */
SNIB_API int snib_set_exit_timeout(int64_t timeout_ms, snib_error *err);

/* snib_client_id - the client's UUID (version 8), 36 characters and a NUL, into out[37]. */
SNIB_API int snib_client_id(snib_client *client, char out[37], snib_error *err);

#define SNIB_HISTOGRAM_BUCKETS                                                                     \
    32 /* bucket i counts times in [2^i, 2^(i+1)) microseconds, bucket 0 from 0 */

typedef struct snib_client_stats_data {
    uint32_t size; /* set to sizeof before the call */
    uint32_t flags;
    uint64_t acquisitions; /* holds granted, re-entries not counted */
    uint64_t reentries;
    uint64_t releases;
    uint64_t waits;     /* acquisitions that had to wait */
    uint64_t handovers; /* holds passed on inside this process by one command */
    uint64_t timeouts;
    uint64_t cancels;
    uint64_t renewals; /* holds renewed, not commands */
    uint64_t renewal_commands;
    uint64_t renewal_failures; /* renewals without a good answer; they are tried again */
    uint64_t lost_expired;     /* losses by reason, see enum snib_reason */
    uint64_t lost_taken;
    uint64_t lost_deleted;
    uint64_t lost_unreachable;
    uint64_t lost_max_hold;
    uint64_t lost_closed;
    uint64_t abandoned; /* holds dropped without a release, see snib_hold_abandon() */
    uint64_t rechecks; /* attempts of waiters that no message caused */
    uint64_t messages; /* wake-up messages received */
    uint64_t polling;  /* waits without a subscription, which was refused */
    uint64_t connects;
    uint64_t reconnects;
    uint64_t commands;         /* commands sent on command connections, handshakes not counted */
    uint64_t writes;           /* system calls that sent to command connections */
    uint64_t reads;            /* system calls that received from command connections */
    uint64_t wakes;            /* threads and queues woken */
    uint64_t clock_moves; /* the server's clock was set, or ran at a rate that differs by more than 1 % */
    uint64_t watchdog_late_us; /* the longest delay of a due renewal so far */
    uint64_t held;             /* now */
    uint64_t waiting;          /* now */
    uint64_t memory;           /* bytes the client uses now, buffers included */
    uint64_t wait_time[SNIB_HISTOGRAM_BUCKETS];
    uint64_t hold_time[SNIB_HISTOGRAM_BUCKETS];
    uint64_t lost_failover; /* a loss like those above */
} snib_client_stats_data;

/* snib_client_stats - a consistent snapshot of the client's counters.  No round trip. */
SNIB_API int snib_client_stats(snib_client *client, snib_client_stats_data *out, snib_error *err);

/* snib_client_list - find locks by name; the server is scanned in steps.
 *
 * Call with *cursor = 0 first, and then again with the new value until it is 0.  A name can appear twice.
 *
 * pattern  as in Redis' SCAN (*, ?, [a-z]); length 0 means all.
 * buffer   receives the names, each ended by a NUL; at least 65536 bytes.  Invalid UTF-8 and control
 *          characters, which Snib's own names never contain, are shown as question marks.
 * Blocks   for at most the client's patience.
 * Returns  SNIB_OK or an error.
 */
SNIB_API int snib_client_list(snib_client *client, const char *pattern, size_t pattern_len,
                              uint64_t *cursor, char *buffer, size_t cap, size_t *out_used,
                              uint32_t *out_count, snib_error *err);

/* One step without waiting, like snib_lock_acquire_submit(): the texts of its event are the names. */
SNIB_API int snib_client_list_submit(snib_client *client, const char *pattern, size_t pattern_len,
                                     uint64_t cursor, snib_queue *queue, uint64_t token,
                                     snib_op **out_op, snib_error *err);

/* ---- Locks -------------------------------------------------------------------------------------- */

/* On the wire each kind is the Redisson type in brackets, so Snib and Redisson share it. */
enum snib_kind {
    SNIB_MUTEX = 1,  /* one holder [RLock] */
    SNIB_FAIR = 2,   /* one holder; first come, first served across processes [RFairLock] */
    SNIB_READ = 3,   /* the readers' side of a read/write lock [RReadWriteLock.readLock] */
    SNIB_WRITE = 4,  /* the writers' side of the same name [RReadWriteLock.writeLock] */
    SNIB_FENCED = 5, /* a mutex whose holds carry increasing tokens [RFencedLock] */
    SNIB_SPIN = 6,   /* a mutex whose waiters poll; a release notifies nobody [RSpinLock] */
    SNIB_PLAIN = 7,  /* a string set by SET NX PX: what redis-py, redsync, node-redlock write */
    SNIB_SEMAPHORE = 8, /* a number of permits without owners [RSemaphore] */
    SNIB_PERMITS = 9,   /* permits with an id and a lease each [RPermitExpirableSemaphore] */
    SNIB_LATCH = 10     /* a count; waiters wait until it is 0 [RCountDownLatch] */
};

/* snib_lock_options.flags */
#define SNIB_LOCK_FENCED                                                                           \
    1 /* FAIR, WRITE: holds carry a fencing token, from the counter of SNIB_FENCED */
#define SNIB_LOCK_PREFER_WRITER 2 /* WRITE: while it waits, new Snib readers wait behind it */
#define SNIB_LOCK_NO_QUARANTINE                                                                    \
    4 /* quorum: let nodes that may have lost their memory vote at once */

typedef struct snib_lock_options {
    uint32_t size;
    uint32_t flags; /* SNIB_LOCK_*; a flag that does not fit the kind is SNIB_EOPTION */
    int64_t
        lease_ms; /* 0: renewed by the watchdog with the client's lease; else fixed, 100 to 86400000 */
    int64_t
        max_hold_ms; /* renewal ends and the hold is lost after this time; 0: the client's; -1 none */
} snib_lock_options;

/* snib_lock_options_init - fill *options with defaults.  size: sizeof *options. */
SNIB_API void snib_lock_options_init(snib_lock_options *options, size_t size);

/* snib_lock_new - create a lock object for a name.  Cheap: nothing is sent.
 *
 * kind     enum snib_kind.  The read side and the write side of a name are two lock objects.
 * name     1 to 512 bytes of UTF-8 without control characters.  Braces, if any, must form one
 *          well-placed non-empty hash tag, as in "{tenant}orders".
 * Returns  SNIB_OK, SNIB_EHANDLE, SNIB_ENAME, SNIB_ELEASE, SNIB_EOPTION, SNIB_ENOTSUP, SNIB_ENOMEM,
 *          SNIB_ECLOSED.
 * Owns     free with snib_lock_free(), at any time: holds and operations keep what they need.
 */
SNIB_API int snib_lock_new(snib_client *client, int32_t kind, const char *name, size_t name_len,
                           const snib_lock_options *options, snib_lock **out_lock, snib_error *err);
SNIB_API void snib_lock_free(snib_lock *lock); /* NULL is allowed */

/* snib_multi_new - one lock that holds all of several locks, or none.
 *
 * Members are taken in the order of their servers and names, whatever their order here, so that processes
 * cannot deadlock.  One command takes adjacent members that belong to the same client and are of the kinds mutex,
 * fenced, spin, read or write.  The hold is lost as soon as one member is lost; its token is 0.
 *
 * locks    1 to 100, of any kinds but semaphore and latch; their clients may differ.  The members' own leases,
 *          limits and flags are ignored in favour of these options.  They may be freed afterwards.
 * options  as for snib_lock_new(); NULL for defaults.
 * Returns  as snib_lock_new(); SNIB_EINVAL if there are none, too many, one that cannot be a member,
 *          or two that are the same; SNIB_ECLOSED if a member's client is closed.
 * Owns     free with snib_lock_free().  Queues for it belong to the client of locks[0].
 */
SNIB_API int snib_multi_new(snib_lock *const *locks, uint32_t n, const snib_lock_options *options,
                            snib_lock **out_lock, snib_error *err);

/* snib_quorum_new - a lock on a majority of several independent servers, for use where one server is not enough.
 *
 * All nodes are asked at the same time, and an acquire returns when a majority has answered.  The lease counts from
 * the first request, minus the drift.  Grants of a mere minority are undone everywhere.  A release goes to all nodes
 * and returns when a majority has answered; a node that is gone keeps its vote until the lease ends.
 * Independent means: no replicas, and no two servers on one machine.  This follows "Distributed Locks with Redis",
 * the Redlock algorithm.
 *
 * A node that was restarted, or lost its data, does not vote until every lease that it may have forgotten has
 * ended; neither does a node that is seen for the first time (SNIB_LOCK_NO_QUARANTINE waives this).
 *
 * locks    3 to 15 mutexes of the same name, each of a different client.
 * Returns  as snib_multi_new().
 * Owns     free with snib_lock_free().  Queues for it belong to the client of locks[0].
 */
SNIB_API int snib_quorum_new(snib_lock *const *locks, uint32_t n, const snib_lock_options *options,
                             snib_lock **out_lock, snib_error *err);

/* snib_lock_acquire - get the lock, waiting if necessary.
 *
 * Within a process waiters are served first come, first served.  Between processes the lock goes to the first
 * process that asks after the release, except that SNIB_FAIR is first come, first served between processes, too.
 *
 * SNIB_SEMAPHORE and SNIB_PERMITS: takes one permit; see snib_permits_acquire().  A semaphore's hold has
 * no lease and cannot be lost.  SNIB_LATCH: SNIB_ENOTSUP; see snib_latch_wait().
 *
 * owner    0: a new owner, so a second acquire waits until the first hold is released.
 *          Otherwise: any number that the caller chooses.  While that owner holds this lock through this client,
 *          another acquire by the same owner succeeds immediately without a command and returns the same hold,
 *          which must then be released once more.
 *          An owner that holds the write lock may also take the read lock of the name, and so keep it
 *          when it releases the write lock.  The opposite is SNIB_EUPGRADE, because it would wait for
 *          itself.
 * wait_ms  -1 no limit, 0 one attempt, at most 86400000 otherwise.
 * Blocks   for at most wait_ms; while the server is unreachable, for at most the client's patience.
 * Returns  SNIB_OK, SNIB_BUSY (wait_ms 0), SNIB_TIMEDOUT, or an error.  After anything but SNIB_OK the
 *          caller owns nothing, and if a late answer still grants the lock, the client releases it.
 * Owns     free the hold with snib_hold_free(), once for each success.
 */
SNIB_API int snib_lock_acquire(snib_lock *lock, uint64_t owner, int64_t wait_ms,
                               snib_hold **out_hold, snib_error *err);

/* snib_lock_acquire_submit - start acquiring; the result arrives as an event.
 *
 * queue    receives SNIB_EVENT_DONE, and later SNIB_EVENT_LOST if the hold is lost.  NULL: no events;
 *          use snib_op_wait() on *out_op.
 * token    returned in the events; it must not be a pointer into a garbage-collected heap.
 * out_op   for snib_op_cancel() and snib_op_wait(); may be NULL if there is a queue.  The handle is freed
 *          automatically when its event has been drained or waited for.
 * Returns  SNIB_OK: exactly one SNIB_EVENT_DONE will arrive.  Otherwise nothing was started.
 */
SNIB_API int snib_lock_acquire_submit(snib_lock *lock, uint64_t owner, int64_t wait_ms,
                                      snib_queue *queue, uint64_t token, snib_op **out_op,
                                      snib_error *err);

/* snib_lock_acquire_begin - acquire, but return SNIB_AGAIN instead of blocking for long.
 *
 * For language bindings: stays in the fast synchronous path for up to slice_ms.  If the operation is not done by
 * then, or (with a queue) as soon as it must wait for another holder, the call returns SNIB_AGAIN and the
 * operation continues: with a queue as if submitted, without a queue through snib_op_wait() on *out_op.
 * The hold's SNIB_EVENT_LOST goes to the queue in every case.
 *
 * Returns  SNIB_OK with *out_hold; SNIB_AGAIN with *out_op; otherwise as snib_lock_acquire().
 */
SNIB_API int snib_lock_acquire_begin(snib_lock *lock, uint64_t owner, int64_t wait_ms,
                                     int64_t slice_ms, snib_queue *queue, uint64_t token,
                                     snib_hold **out_hold, snib_op **out_op, snib_error *err);

/* ---- Permits, semaphores, latches --------------------------------------------------------------- */

/* What to do with a counter, and (after the arrow) the value in *out_value (snib_event.count for _submit). */
enum snib_count {
    SNIB_COUNT_GET = 1,   /* -> free permits; a latch's count */
    SNIB_COUNT_INIT = 2,  /* set it to n unless it is set -> 1 done, 0 it was already set */
    SNIB_COUNT_ADD = 3,   /* SEMAPHORE, PERMITS: add n, which may be negative -> the new number */
    SNIB_COUNT_SET = 4,   /* PERMITS: set the total to n, held ones included -> free permits */
    SNIB_COUNT_TOTAL = 5, /* PERMITS -> held and free together */
    SNIB_COUNT_RELEASE = 6, /* SEMAPHORE: put n back without a hold -> the new number */
    SNIB_COUNT_DRAIN = 7,   /* SEMAPHORE: take all -> how many there were */
    SNIB_COUNT_DOWN = 8     /* LATCH: count down by one -> what is left */
};

/* snib_permits_acquire - take `count` permits at once; the hold owns them all and releases them all.
 *
 * count    1 to 1000.
 * Returns  as snib_lock_acquire(); SNIB_EPERMITS if count is out of range, or more than held and free permits
 *          together.  With a semaphore (not with permits) SNIB_EUNREACHABLE may mean that the permits were
 *          taken: semaphores have no owners, so nobody can tell.
 * Otherwise these work like snib_lock_acquire(), _begin() and _submit(), for a lock of kind SNIB_PERMITS; the
 * snib_semaphore_ functions are for kind SNIB_SEMAPHORE.
 */
SNIB_API int snib_permits_acquire(snib_lock *permits, uint32_t count, int64_t wait_ms,
                                  snib_hold **out_hold, snib_error *err);
SNIB_API int snib_permits_acquire_begin(snib_lock *permits, uint32_t count, int64_t wait_ms,
                                        int64_t slice_ms, snib_queue *queue, uint64_t token,
                                        snib_hold **out_hold, snib_op **out_op, snib_error *err);
SNIB_API int snib_permits_acquire_submit(snib_lock *permits, uint32_t count, int64_t wait_ms,
                                         snib_queue *queue, uint64_t token, snib_op **out_op,
                                         snib_error *err);
SNIB_API int snib_semaphore_acquire(snib_lock *semaphore, uint32_t count, int64_t wait_ms,
                                    snib_hold **out_hold, snib_error *err);
SNIB_API int snib_semaphore_acquire_begin(snib_lock *semaphore, uint32_t count, int64_t wait_ms,
                                          int64_t slice_ms, snib_queue *queue, uint64_t token,
                                          snib_hold **out_hold, snib_op **out_op, snib_error *err);
SNIB_API int snib_semaphore_acquire_submit(snib_lock *semaphore, uint32_t count, int64_t wait_ms,
                                           snib_queue *queue, uint64_t token, snib_op **out_op,
                                           snib_error *err);

/* snib_permits_count, snib_semaphore_count, snib_latch_count - read or change the number.
 *
 * what     enum snib_count.
 * n        INIT and SET: 0 to 2147483647 (a latch: at least 1); RELEASE: 1 to 2147483647; ADD: not 0;
 *          others: 0.
 * out_value  may be NULL.
 * Blocks   for at most the client's patience.
 * Returns  SNIB_OK; SNIB_EPERMITS if n is out of range; SNIB_ENOTSUP if the kind cannot do `what`; or an
 *          error.  A change is sent only once: after SNIB_EUNREACHABLE nobody knows whether it was made.
 */
SNIB_API int snib_permits_count(snib_lock *permits, int32_t what, int64_t n, int64_t *out_value,
                                snib_error *err);
SNIB_API int snib_permits_count_submit(snib_lock *permits, int32_t what, int64_t n,
                                       snib_queue *queue, uint64_t token, snib_op **out_op,
                                       snib_error *err);
SNIB_API int snib_semaphore_count(snib_lock *semaphore, int32_t what, int64_t n, int64_t *out_value,
                                  snib_error *err);
SNIB_API int snib_semaphore_count_submit(snib_lock *semaphore, int32_t what, int64_t n,
                                         snib_queue *queue, uint64_t token, snib_op **out_op,
                                         snib_error *err);
SNIB_API int snib_latch_count(snib_lock *latch, int32_t what, int64_t n, int64_t *out_value,
                              snib_error *err);
SNIB_API int snib_latch_count_submit(snib_lock *latch, int32_t what, int64_t n, snib_queue *queue,
                                     uint64_t token, snib_op **out_op, snib_error *err);

/* snib_latch_wait - wait until the latch's count is 0 (a latch that was never set counts as 0).
 * Returns  SNIB_OK, SNIB_BUSY (wait_ms 0), SNIB_TIMEDOUT, or an error.  There is no hold. */
SNIB_API int snib_latch_wait(snib_lock *latch, int64_t wait_ms, snib_error *err);
SNIB_API int snib_latch_wait_begin(snib_lock *latch, int64_t wait_ms, int64_t slice_ms,
                                   snib_queue *queue, uint64_t token, snib_op **out_op,
                                   snib_error *err);
SNIB_API int snib_latch_wait_submit(snib_lock *latch, int64_t wait_ms, snib_queue *queue,
                                    uint64_t token, snib_op **out_op, snib_error *err);

/* ---- Asking about locks ------------------------------------------------------------------------- */

typedef struct snib_lock_info_data {
    uint32_t size; /* set to sizeof before the call */
    int32_t held;  /* 1 if anybody holds it */
    int64_t
        remaining_ms; /* until the lease ends at the server; -1: no lease (not a valid lock); 0 if free */
    int64_t count; /* hold count on the wire; READ: readers; counters: free permits, or the count */
    int64_t
        waiting;  /* processes subscribed to its wake-ups; FAIR: waiters in its queue; -1 unknown */
    int32_t mine; /* 1 if held through this client */
    int32_t reserved;
    char owner[128]; /* "<client uuid>:<number>", as the server stores it; "" if free */
    int64_t token;   /* the fencing token issued last; 0 none */
} snib_lock_info_data;

/* snib_lock_info - ask the server who holds the lock.  A multi or quorum lock: SNIB_ENOTSUP.
 * Blocks   for at most the client's patience. */
SNIB_API int snib_lock_info(snib_lock *lock, snib_lock_info_data *out, snib_error *err);
SNIB_API int snib_lock_info_submit(snib_lock *lock, snib_queue *queue, uint64_t token,
                                   snib_op **out_op, snib_error *err);

/* What snib_client_server() can ask for, and the texts it returns. */
enum snib_server {
    SNIB_SERVER_INFO = 1,     /* INFO: "name:value" each */
    SNIB_SERVER_TIME = 2,     /* TIME: seconds since 1970, then microseconds */
    SNIB_SERVER_USER = 3,     /* ACL WHOAMI: the user's name */
    SNIB_SERVER_MIN_REPLICAS = 4, /* CONFIG GET: its name, then its value */
    SNIB_SERVER_FSYNC = 5,
    SNIB_SERVER_IDLE_TIMEOUT = 6,
    SNIB_SERVER_CLUSTER = 7,  /* CLUSTER INFO: "name:value" each */
    SNIB_SERVER_CONNECTION = 8, /* CLIENT ID: the connection's number */
    SNIB_SERVER_ROLE = 9,       /* ROLE: its texts */
    SNIB_SERVER_WAIT = 10,      /* WAIT for no replica: how many there are */
    SNIB_SERVER_LOAD = 11       /* SCRIPT LOAD of a script that does nothing: its hash */
};

/* snib_client_server - what the server reports about itself, for people and for diagnosis.
 *
 * With several servers, one that serves locks is asked.
 *
 * what       enum snib_server
 * buffer     receives the texts, each ended by a NUL; cap: its size in bytes, at least 65536
 * out_used   bytes used; out_count: how many texts
 * Blocks     like any request to the server, for at most the client's patience.
 * Returns    SNIB_OK; SNIB_EPERM: this user may not ask that; SNIB_ENOTSUP: the server does not know the command;
 *            SNIB_EINVAL, SNIB_EHANDLE, SNIB_ELIMIT (the buffer is too small), or an error of the network,
 *            server or state group.
 */
SNIB_API int snib_client_server(snib_client *client, int32_t what, char *buffer, size_t cap,
                                size_t *out_used, uint32_t *out_count, snib_error *err);

/* snib_client_describe - everything the server knows about a name, whatever its kind.
 *
 * buffer   receives the texts, each ended by a NUL; at least 65536 bytes.  The first is
 *          "kind" and one of free, mutex, fair, read, write, plain, permits, counter, other.  The rest, in
 *          any number, are words separated by blanks:
 *              holder <owner> <remaining ms> <count>      mutex, fair, write, plain
 *              reader <owner> <remaining ms> <count>
 *              permit <32 hex digits> <remaining ms>
 *              waiter <owner> <ms until its place ends>   fair, in order
 *              token <last>    available <permits>    total <permits>    count <number>
 *              waiting <processes, by channel or queue>    more <entries that are not shown>
 *          In an owner, anything that is not plain text is shown as question marks.
 * Blocks   for at most the client's patience.
 * Returns  SNIB_OK or an error.
 */
SNIB_API int snib_client_describe(snib_client *client, const char *name, size_t name_len,
                                  char *buffer, size_t cap, size_t *out_used, uint32_t *out_count,
                                  snib_error *err);

/* The same without waiting, like snib_lock_acquire_submit(): the texts come with its event. */
SNIB_API int snib_client_describe_submit(snib_client *client, const char *name, size_t name_len,
                                         snib_queue *queue, uint64_t token, snib_op **out_op,
                                         snib_error *err);

/* snib_lock_force_release - delete the lock, whoever holds it, and wake the waiters.
 *
 * READ deletes only readers, WRITE only a writer (with its own read locks).  The queue of a fair lock
 * stays.  Permits and semaphores are deleted with their number; a latch opens.  Token counters stay.  A multi or
 * quorum lock: SNIB_ENOTSUP.
 *
 * A holder that uses Snib learns of it at its next renewal.  Data of another type under the name is
 * never deleted: SNIB_EWRONGTYPE.
 *
 * Blocks   for at most the client's patience.
 * Returns  SNIB_OK deleted; SNIB_NOT_HELD there was nothing; or an error.
 */
SNIB_API int snib_lock_force_release(snib_lock *lock, snib_error *err);
SNIB_API int snib_lock_force_release_submit(snib_lock *lock, snib_queue *queue, uint64_t token,
                                            snib_op **out_op, snib_error *err);

/* ---- Holds -------------------------------------------------------------------------------------- */

enum snib_state {
    SNIB_HOLD_VALID = 0,   /* safe */
    SNIB_HOLD_AT_RISK = 1, /* still safe, but renewal is overdue, the connection is down, or the server's
                              clock has moved since the lease began */
    SNIB_HOLD_LOST = 2,    /* no longer safe; this is final */
    SNIB_HOLD_RELEASED = 3 /* released by the program */
};

enum snib_reason {
    SNIB_REASON_NONE = 0,
    SNIB_REASON_EXPIRED = 1,     /* a fixed lease ended */
    SNIB_REASON_TAKEN = 2,       /* the server says that another owner holds the lock */
    SNIB_REASON_DELETED = 3,     /* the server says that the lock is gone */
    SNIB_REASON_UNREACHABLE = 4, /* the lease could not be renewed in time */
    SNIB_REASON_MAX_HOLD = 5,    /* max_hold_ms is over */
    SNIB_REASON_CLOSED = 6,      /* the client was closed */
    SNIB_REASON_FAILOVER = 7     /* another server took over and does not know the hold */
};

SNIB_API const char *snib_reason_text(int32_t reason); /* "expired", "taken", ...; static */

/* snib_hold_state - the hold's state by this machine's clock, accurate at the moment of the call.
 *
 * Lost begins at deadline = time before the last confirmed request was sent + lease * 0.99 - 5 ms, on a
 * clock that counts suspended time, or earlier when the server says so.
 *
 * out_reason  enum snib_reason, if not NULL.
 * Returns  enum snib_state (>= 0), SNIB_EHANDLE, SNIB_EFORKED.
 */
SNIB_API int snib_hold_state(snib_hold *hold, int32_t *out_reason);

/* snib_hold_check - SNIB_OK while the hold is valid or at risk, SNIB_LOST with a sentence that says why,
 * SNIB_NOT_HELD after the release. */
SNIB_API int snib_hold_check(snib_hold *hold, snib_error *err);

/* snib_hold_remaining_ms - milliseconds until the deadline as things stand; 0 when lost or released;
 * INT64_MAX if it has none (semaphore); negative: an error code. */
SNIB_API int64_t snib_hold_remaining_ms(snib_hold *hold);

/* snib_hold_token - the fencing token; 0 if the lock has none; negative: an error code. */
SNIB_API int64_t snib_hold_token(snib_hold *hold);

/* snib_hold_replicas - how many replicas had the grant when it was made, as far as the option durability asked for it;
 * 0 without it; negative: an error code. */
SNIB_API int64_t snib_hold_replicas(snib_hold *hold);

/* snib_hold_owner - the owner text on the wire, "<client uuid>:<number>", with a NUL, into out[128]. */
SNIB_API int snib_hold_owner(snib_hold *hold, char out[128], snib_error *err);

/* snib_hold_wait - block until the hold is lost or released.
 * Blocks   for at most timeout_ms (-1 no limit).
 * Returns  SNIB_LOST with *out_reason, SNIB_NOT_HELD after a release, SNIB_TIMEDOUT at the end of that time,
 *          SNIB_AGAIN when a signal handler ran, or an error. */
SNIB_API int snib_hold_wait(snib_hold *hold, int64_t timeout_ms, int32_t *out_reason,
                            snib_error *err);

/* snib_hold_release - release the lock and wake a waiter.
 *
 * Renewal ends before the release is sent.  An inner release of a re-entered hold is counted locally and
 * sends nothing.
 *
 * Blocks   until the server has answered, for at most the client's patience.
 * Returns  SNIB_OK      released.  Also if, after a reconnect, the server no longer knows the hold and the
 *                       lease cannot have ended: then the first attempt released it.
 *          SNIB_LOST    it was no longer held when the release arrived; another owner may have had the lock.
 *          SNIB_NOT_HELD  this hold has been released before.
 *          SNIB_EUNREACHABLE  no answer; the client keeps trying until the lease has ended.
 *          SNIB_ECONNECT  no connection, so it was not sent; the client keeps trying likewise.
 */
SNIB_API int snib_hold_release(snib_hold *hold, snib_error *err);

/* Like snib_lock_acquire_submit().  queue and out_op may both be NULL: then the result is not reported. */
SNIB_API int snib_hold_release_submit(snib_hold *hold, snib_queue *queue, uint64_t token,
                                      snib_op **out_op, snib_error *err);

/* Like snib_lock_acquire_begin(): SNIB_AGAIN with *out_op after slice_ms. */
SNIB_API int snib_hold_release_begin(snib_hold *hold, int64_t slice_ms, snib_queue *queue,
                                     uint64_t token, snib_op **out_op, snib_error *err);

/* snib_hold_free - free the handle.  NULL is allowed.  A hold that is still held is released without
 * waiting for the answer; call snib_hold_release() first if you need it.  If a lost hold may still exist on the
 * server, it is released there.  After a re-entry the handle is reference-counted: each successful acquire
 * needs one free. */
SNIB_API void snib_hold_free(snib_hold *hold);

/* snib_hold_abandon - free the handle of a hold that was dropped without a release.
 *
 * For bindings whose garbage collector finds a hold that is still held: code may still work under it, so nothing
 * is released.  Renewal ends immediately, no SNIB_EVENT_LOST will arrive, and the lock is free when the lease has
 * ended at the server; until then everybody waits for it, including this client.  A semaphore has no lease: its
 * permits stay taken.  A log record of level SNIB_LOG_WARNING names the lock, and the statistics count it.
 *
 * For a multi or quorum lock this applies to all members.  If a lost hold may still exist on the server, it stays
 * there until its lease ends.  For a released hold this is snib_hold_free().  After a re-entry the hold lives
 * as long as other references exist, and is then abandoned where snib_hold_free() would release it.  NULL is
 * allowed. */
SNIB_API void snib_hold_abandon(snib_hold *hold);

/* ---- Operations --------------------------------------------------------------------------------- */

enum snib_event_kind {
    SNIB_EVENT_DONE = 1, /* an operation ended */
    SNIB_EVENT_LOST = 2, /* a hold was lost; sent once to each queue through which it was acquired, with the token
                            of the first acquire there; never after a release */
    SNIB_EVENT_LOG = 3,  /* a log record, see snib_client_log() */
    SNIB_EVENT_CREDENTIALS = 4 /* to be answered, see snib_client_credentials() */
};

/* The texts of an event: `count` of them, starting at `text`, each ended by a NUL. */
typedef struct snib_texts {
    uint64_t cursor; /* list: where to continue; 0: this was the last step */
    uint64_t used;   /* bytes, the NULs included */
    uint32_t count;
    uint32_t reserved;
    const char *text;
} snib_texts;

/* snib_texts_free - free the texts of an event.  NULL is allowed. */
SNIB_API void snib_texts_free(snib_texts *texts);

/* A plain value: only the hold of a successful acquire, and texts, need to be freed.  Every text is
 * UTF-8 without control characters, whatever the server stores. */
typedef struct snib_event {
    uint32_t size;
    int32_t kind;    /* enum snib_event_kind */
    int32_t code;    /* DONE: the operation's result */
    int32_t reason;  /* LOST, and DONE with SNIB_LOST: enum snib_reason;  LOG: enum snib_log_level */
    uint64_t token;  /* of the submit; CREDENTIALS: of the question */
    snib_hold *hold; /* DONE of an acquire with SNIB_OK: the hold, now yours.  LOST: which hold */
    snib_texts *texts; /* DONE of a list or describe with SNIB_OK: now yours, see snib_texts_free() */
    int64_t fencing; /* the fencing token or 0 */
    int64_t remaining_ms; /* acquire: until the deadline.  info: lease left */
    int64_t count;        /* info: hold count */
    int64_t waiting;      /* info: waiting processes */
    int32_t held;         /* info */
    int32_t mine;         /* info */
    int32_t os_error;
    int32_t reserved;
    char text[248]; /* an error's sentence; info: the owner; LOG: the message */
} snib_event;

/* snib_op_wait - wait for an operation that was submitted or begun without a queue.
 *
 * timeout_ms  -1 no limit.  After it, or when a signal handler ran: SNIB_AGAIN; the operation continues.
 * Blocks   for at most timeout_ms.
 * Returns  SNIB_OK with *out_event (the operation's result is out_event->code; the handle is gone);
 *          SNIB_AGAIN; SNIB_EHANDLE; SNIB_EINVAL if it has a queue; SNIB_EFORKED.
 */
SNIB_API int snib_op_wait(snib_op *op, int64_t timeout_ms, snib_event *out_event, snib_error *err);

/* snib_op_cancel - end an operation now, unless it has just ended.
 *
 * Atomic with completion: SNIB_OK means that it ended as SNIB_CANCELLED (its event still arrives) and will not
 * give the caller the lock; if the server still grants it, the client releases it.
 * SNIB_EHANDLE means that the result was already there: it has been or will be delivered as usual.
 * A release cannot be cancelled: the caller stops waiting, but the release continues.
 */
SNIB_API int snib_op_cancel(snib_op *op);

/* snib_op_free - discard an operation without a queue: cancel it if it runs, release what it acquired. */
SNIB_API void snib_op_free(snib_op *op);

/* ---- Queues ------------------------------------------------------------------------------------- */

/* snib_queue_new - a queue of events for one loop, thread or goroutine at a time. */
SNIB_API int snib_queue_new(snib_client *client, snib_queue **out_queue, snib_error *err);

/* snib_queue_fd - a file descriptor that is readable while the queue has events.  Owned by the queue: poll it,
 * but do not read, write or close it.  Non-blocking.  Returns the descriptor, or an error code. */
SNIB_API int snib_queue_fd(snib_queue *queue, snib_error *err);

/* snib_queue_drain - take up to cap events out of the queue, oldest first.
 * Returns  their number (0: none), SNIB_EINUSE if another thread is draining or waiting, or an error. */
SNIB_API int snib_queue_drain(snib_queue *queue, snib_event *events, uint32_t cap, snib_error *err);

/* snib_queue_wait - the same, but block until there is an event, timeout_ms has passed, a signal handler
 * ran or snib_queue_wake() was called (then 0). */
SNIB_API int snib_queue_wait(snib_queue *queue, snib_event *events, uint32_t cap,
                             int64_t timeout_ms, snib_error *err);
SNIB_API int snib_queue_wake(snib_queue *queue);

/* snib_queue_cork, snib_queue_uncork - send everything that one iteration of a loop submits at once.
 *
 * While a queue is corked, submitted operations may be collected; uncork sends them.  For a loop that
 * submits many operations per iteration: cork after the drain, uncork at the end.  Never leave a queue
 * corked while the loop sleeps.  Corking is only a hint: nothing else waits for the collected operations.
 * Returns  SNIB_OK, SNIB_EHANDLE or SNIB_EFORKED. */
SNIB_API int snib_queue_cork(snib_queue *queue);
SNIB_API int snib_queue_uncork(snib_queue *queue);

/* snib_queue_free - NULL is allowed.  Running operations of the queue are cancelled; holds whose event was
 * not drained are released, texts are freed; other holds continue, without events. */
SNIB_API void snib_queue_free(snib_queue *queue);

/* ---- Log ---------------------------------------------------------------------------------------- */

enum snib_log_level {
    SNIB_LOG_NONE = 0,
    SNIB_LOG_ERROR = 1,
    SNIB_LOG_WARNING = 2,
    SNIB_LOG_INFO = 3
};

/* snib_client_log - send log records of this level and more severe ones to a queue as SNIB_EVENT_LOG.  At most 256
 * wait there; older ones are dropped, and the next record counts them.  queue NULL or level NONE: stop. */
SNIB_API int snib_client_log(snib_client *client, snib_queue *queue, int32_t level,
                             snib_error *err);

#ifdef __cplusplus
}
#endif
#endif
