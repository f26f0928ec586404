/* snib.h - distributed locks on Redis and Valkey, wire-compatible with Redisson.
 *
 * This header is the reference manual.  In one paragraph: open a client, make a lock from it, acquire
 * the lock and get a hold; the hold is what you own, inspect and release.  A lock made without a lease
 * of its own is renewed by the client's watchdog for as long as the hold lives; when the hold can no
 * longer be trusted it becomes lost, for ever, before the lease in Redis can have ended.
 *
 * Handles     snib_client, snib_lock, snib_hold, snib_op and snib_queue are opaque.  A handle is a ticket
 *             with a generation, not an address: using one that is NULL, freed, of another kind or
 *             of a parent process gives an error and never touches freed memory.
 * Results     0 is success, positive codes are expected outcomes, negative codes are errors.
 *             snib_code_is() tells what a program may conclude from a code.
 * Outputs     are written on success only, `err` on any other result.  `err` may be NULL.
 * Strings     that come with a length need no terminator and are copied before the call returns.
 * Times       are milliseconds.  A wait of -1 has no limit, 0 means one try.
 * Unreachable a wait that ends while the server does not answer ends as SNIB_ECONNECT or SNIB_EUNREACHABLE,
 *             for nobody knows then whether the lock is free; SNIB_BUSY and SNIB_TIMEDOUT were told so.
 * Threads     every function may be called from any thread unless it says otherwise, and none is
 *             async-signal-safe.  A function does not block unless it says so.  None is a cancellation
 *             point: a thread that is cancelled inside a call ends after it.  A thread that sits in a
 *             signal handler, or is stopped, inside a call keeps no other hold from being renewed.
 * Fork        the child may go on with the clients and locks that it inherited: at their first use there they get
 *             a new identity, new connections and a thread of their own (also locks of locks).  What was
 *             held or under way belongs to the parent, which goes on untouched: inherited holds, operations
 *             and queues answer SNIB_EFORKED and send nothing, and freeing them is safe.  Any thread may
 *             fork, whatever others do in the library.
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
    SNIB_BUSY = 1,      /* somebody else holds the lock and the caller would not wait */
    SNIB_TIMEDOUT = 2,  /* the wait ended before the lock was free */
    SNIB_CANCELLED = 3, /* cancelled: this caller will not own the lock through the operation */
    SNIB_LOST = 4,      /* the hold was lost before this call */
    SNIB_AGAIN = 5,     /* not finished yet; go on with snib_op_wait() or the queue */
    SNIB_NOT_HELD = 6,  /* nothing was held, so nothing was released */
    /* usage */
    SNIB_EINVAL = -1,    /* an argument is out of range */
    SNIB_EHANDLE = -2,   /* the handle is NULL, freed or of another kind */
    SNIB_ENAME = -3,     /* the lock name cannot be used */
    SNIB_ELEASE = -4,    /* the lease is out of range */
    SNIB_EURL = -5,      /* the URL cannot be understood */
    SNIB_EOPTION = -6,   /* an option is out of range or unknown */
    SNIB_ENOTSUP = -7,   /* this build or this lock kind cannot do that */
    SNIB_EINUSE = -8,    /* the queue has another consumer at this moment */
    SNIB_EUPGRADE = -9,  /* the owner holds the read lock and cannot get the write lock as well */
    SNIB_EPERMITS = -10, /* more permits than there are, or a number that is no count */
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
    SNIB_ETOPOLOGY = -35,    /* no part of the deployment that the URL names */
    /* server */
    SNIB_EAUTH = -40,      /* user name or password refused */
    SNIB_EPERM = -41,      /* the user may not run a command, or touch a key or channel */
    SNIB_EWRONGTYPE = -42, /* the name belongs to something that is not such a lock */
    SNIB_ELOADING = -43,   /* the server is still loading its data, or busy with a script */
    SNIB_EOOM = -44,       /* the server is out of memory and refuses writes */
    SNIB_EREADONLY = -45,  /* the server is a replica */
    SNIB_ESERVER = -46,    /* any other error reply; maybe applied */
    SNIB_EDATABASE = -47,  /* the database number does not exist */
    SNIB_EMISCONF = -48,   /* the server refuses writes: persistence or replicas are in trouble */
    /* state */
    SNIB_ECLOSED = -60, /* the client is closed */
    SNIB_EFORKED = -61  /* a hold, an operation or a queue of the process before a fork */
};

/* What may be concluded from a code: see snib_code_is(). */
#define SNIB_IS_RETRYABLE 1     /* the same call may succeed later */
#define SNIB_IS_MAYBE_APPLIED 2 /* the server may have done it; the client cleans up what it can */
#define SNIB_IS_USAGE 4         /* the program must be changed; nothing was sent */

/* An error's detail, owned by the caller.  text is one sentence without a newline: what happened, to which
 * lock, at which server, and the server's own words if it spoke (never a password). */
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

/* snib_client_options.durability; 0 is none unless the URL says more. */
#define SNIB_DURABILITY_NONE (-1)
#define SNIB_DURABILITY_MAJORITY (-2) /* of the server and its replicas */
#define SNIB_DURABILITY_ALL (-3)
/* snib_client_options.durability_policy: too few replicas have the grant in time */
#define SNIB_DURABILITY_REFUSE 1 /* it is undone and the call fails */
#define SNIB_DURABILITY_REPORT 2 /* it counts, and the hold says how many have it */
/* snib_client_options.publish; 0 is auto unless the URL says more. */
#define SNIB_PUBLISH_AUTO 1 /* as Redisson does it */
#define SNIB_PUBLISH_CLASSIC 2
#define SNIB_PUBLISH_SHARDED 3
#define SNIB_PUBLISH_BOTH 4

/* Always fill with snib_client_options_init() first.  0 or NULL takes the default in every field. */
typedef struct snib_client_options {
    uint32_t size;
    uint32_t flags;             /* must be 0 */
    int64_t lease_ms;           /* lease of renewed holds; 100 to 86400000; default 30000 */
    int64_t connect_timeout_ms; /* one attempt to connect, with all addresses of the name, and as
                                   long again to resolve it; default 3000 */
    int64_t reply_timeout_ms;   /* a reply that takes longer ends the connection; default 3000 */
    int64_t patience_ms;  /* how long an operation endures an unreachable server; default 5000 */
    int64_t try_timeout_ms; /* how long a wait of 0 does: one round trip's patience; default 1000 */
    int64_t recheck_ms;   /* a waiter asks again after this time at most; default 3000 */
    int64_t max_hold_ms;  /* default for locks; 0 none; -1 none, whatever the URL says */
    int32_t handover_max; /* hand-overs in a row inside this process; default 16; -1 none */
    int32_t waiters_max;  /* operations at once; more get SNIB_ELIMIT; default 200000 */
    const char *username; /* instead of the URL's; terminated by NUL, copied */
    const char *password; /* instead of the URL's; terminated by NUL, copied, never shown */
    /* Texts as these two.  What this build cannot do of the following is SNIB_ENOTSUP. */
    const char *password_file;     /* read at each connect, instead of a password */
    const char *sentinel_username; /* at the sentinels */
    const char *sentinel_password;
    const char *tls_ca;            /* file or folder of trusted authorities; NULL: the system's */
    const char *tls_cert;          /* file with the client's certificate and its chain */
    const char *tls_key;           /* file with its private key; NULL: it is in tls_cert */
    const char *tls_key_password;  /* of that file, if it is encrypted */
    const char *tls_server_name;   /* that the certificate must have, instead of the host's */
    int32_t tls_insecure; /* 1: any certificate is believed; -1: not, whatever the URL says */
    int32_t durability;   /* replicas that must have a grant, or SNIB_DURABILITY_* */
    int64_t durability_timeout_ms; /* how long they may take; default 1000 */
    int32_t durability_policy;     /* SNIB_DURABILITY_REFUSE (default) or _REPORT */
    int32_t publish;  /* SNIB_PUBLISH_*: how releases are told in a cluster */
    int32_t lanes;    /* connections for commands to each server, at most; 1 to 4, default 4.  There is
                       * one until several threads wait for answers at once, often */
    int32_t reserved; /* must be 0 */
} snib_client_options;

/* snib_client_options_init - fill *options with defaults.  size: sizeof *options. */
SNIB_API void snib_client_options_init(snib_client_options *options, size_t size);

/* snib_client_open - make a client for one deployment.
 *
 * Nothing is sent and no thread is started before the first operation.  A client may be made before a
 * fork and used on both sides.
 *
 * url      redis://[user[:password]@]host[:port][/database]   default port 6379, database 0
 *          unix://[user[:password]@]/path/to/socket
 *          rediss:// is redis:// with TLS 1.2 or newer; the server's certificate must be trusted and be for the
 *          host, see tls_* below; where that fails operations end with SNIB_ETLS.
 *          redis+sentinel://host1[:port],host2,host3/service[/database] asks sentinels (default port 26379) for
 *          the master of a service, and follows its failovers.  redis+cluster://host1[:port],host2 is a cluster,
 *          of which some nodes are named; at most 32 hosts; with TLS: rediss+sentinel://, rediss+cluster://.
 *          What this build cannot do is SNIB_ENOTSUP.  valkey stands for redis, and valkeys for rediss.
 *          IPv6 goes in brackets.  User, password, path, service and the values of options are percent-decoded.
 *          redis://:password@host has a password only.
 *          ?name=value&name=value: options, by the names of the fields below without _ms, and db, the database.
 *          A time is a decimal number with ms, s, m or h behind it, or plain seconds.
 *          NULL: the environment's SNIB_URL or, if that is unset or empty, redis://127.0.0.1:6379; and
 *          SNIB_PASSWORD, if there is one, in the place of the URL's password.
 * options  NULL for defaults.  What is given here goes before what the URL has.
 * Returns  SNIB_OK, SNIB_EURL, SNIB_ELEASE, SNIB_EOPTION, SNIB_EINVAL, SNIB_ENOTSUP, SNIB_ENOMEM,
 *          SNIB_ESYSTEM.
 * Owns     free with snib_client_free().
 */
SNIB_API int snib_client_open(const char *url, const snib_client_options *options,
                              snib_client **out_client, snib_error *err);

/* snib_client_get_options - the options in force: what was given, the URL's, and the defaults.
 *
 * out      its size was set by snib_client_options_init().  Texts are NULL.
 * Returns  SNIB_OK, SNIB_EINVAL, SNIB_EHANDLE.
 */
SNIB_API int snib_client_get_options(snib_client *client, snib_client_options *out,
                                     snib_error *err);

/* snib_client_ping - connect if need be and ask the server for an answer.
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
 * Returns  SNIB_OK; SNIB_TIMEDOUT if a release was not confirmed (its lease will end it);
 *          SNIB_EHANDLE.
 */
SNIB_API int snib_client_close(snib_client *client, int64_t timeout_ms, snib_error *err);

/* snib_client_free - close with a timeout of 0 if need be and give the handle back.  NULL is fine.
 * Its locks answer SNIB_ECLOSED afterwards, its holds are lost with the reason SNIB_REASON_CLOSED; free
 * them in any order. */
SNIB_API void snib_client_free(snib_client *client);

/* snib_set_exit_timeout - how long the end of the process may take for giving back what it holds.
 *
 * When exit() is called or main() returns, every client that is still open is closed, after the program's own
 * atexit() handlers and before the process is gone: what is held is released, operations end with
 * SNIB_ECLOSED.  Threads that still work under a lock then are no longer protected, so end them before.  The
 * child of a fork gives back only what it acquired itself.  _exit(), abort() and signals that kill leave the
 * locks to their leases.
 *
 * timeout_ms  for all clients together; 0 to 60000, default 1000; 0: give nothing back
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
    uint64_t abandoned; /* holds that were forgotten, see snib_hold_abandon() */
    uint64_t rechecks; /* attempts of waiters that no message caused */
    uint64_t messages; /* wake-up messages received */
    uint64_t polling;  /* waits without a subscription because it was refused */
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
    uint64_t lost_failover; /* beside those above */
} snib_client_stats_data;

/* snib_client_stats - a consistent snapshot of the client's counters.  No round trip. */
SNIB_API int snib_client_stats(snib_client *client, snib_client_stats_data *out, snib_error *err);

/* snib_client_list - find locks by name; the server is scanned in steps.
 *
 * Call with *cursor = 0 first and again with what it became until it is 0 again.  A name can come twice.
 *
 * pattern  as in Redis' SCAN (*, ?, [a-z]); length 0 means all.
 * buffer   names are written one after another, each ended by a NUL; at least 65536 bytes.  What is no
 *          UTF-8 or a control character in a name, which then is none of Snib's, is shown as question marks.
 * Blocks   for at most the client's patience.
 * Returns  SNIB_OK or an error.
 */
SNIB_API int snib_client_list(snib_client *client, const char *pattern, size_t pattern_len,
                              uint64_t *cursor, char *buffer, size_t cap, size_t *out_used,
                              uint32_t *out_count, snib_error *err);

/* One step without waiting for it, as snib_lock_acquire_submit(): its event's texts are the names. */
SNIB_API int snib_client_list_submit(snib_client *client, const char *pattern, size_t pattern_len,
                                     uint64_t cursor, snib_queue *queue, uint64_t token,
                                     snib_op **out_op, snib_error *err);

/* ---- Locks -------------------------------------------------------------------------------------- */

/* Each kind is, on the wire, the Redisson type in brackets, and can be held by either side in turn. */
enum snib_kind {
    SNIB_MUTEX = 1,  /* one holder [RLock] */
    SNIB_FAIR = 2,   /* one holder; first come, first served between all processes [RFairLock] */
    SNIB_READ = 3,   /* many readers, or one writer: the readers' side [RReadWriteLock.readLock] */
    SNIB_WRITE = 4,  /* the writers' side of the same name [RReadWriteLock.writeLock] */
    SNIB_FENCED = 5, /* a mutex whose holds carry a rising token [RFencedLock] */
    SNIB_SPIN = 6,   /* a mutex whose waiters poll and whose releases tell nobody [RSpinLock] */
    SNIB_PLAIN = 7,  /* a string set by SET NX PX: what redis-py, redsync, node-redlock write */
    SNIB_SEMAPHORE = 8, /* a number of permits without owners [RSemaphore] */
    SNIB_PERMITS = 9,   /* permits with an id and a lease each [RPermitExpirableSemaphore] */
    SNIB_LATCH = 10     /* a count that is waited for to become 0 [RCountDownLatch] */
};

/* snib_lock_options.flags */
#define SNIB_LOCK_FENCED                                                                           \
    1 /* FAIR, WRITE: holds carry a fencing token, from the counter of SNIB_FENCED */
#define SNIB_LOCK_PREFER_WRITER 2 /* WRITE: while it waits, new Snib readers wait behind it */
#define SNIB_LOCK_NO_QUARANTINE                                                                    \
    4 /* quorum: let nodes vote at once that may have lost their memory */

typedef struct snib_lock_options {
    uint32_t size;
    uint32_t flags; /* SNIB_LOCK_*; one that the kind does not know is SNIB_EOPTION */
    int64_t
        lease_ms; /* 0: renewed by the watchdog with the client's lease; else fixed, 100 to 86400000 */
    int64_t
        max_hold_ms; /* renewal ends and the hold is lost after this time; 0: the client's; -1 none */
} snib_lock_options;

/* snib_lock_options_init - fill *options with defaults.  size: sizeof *options. */
SNIB_API void snib_lock_options_init(snib_lock_options *options, size_t size);

/* snib_lock_new - name a lock.  Cheap: nothing is sent.
 *
 * kind     enum snib_kind.  The read and the write side of one name are two locks.
 * name     1 to 512 bytes of UTF-8 without control characters.  Braces, if any, must form one
 *          well-placed non-empty hash tag, as in "{tenant}orders".
 * Returns  SNIB_OK, SNIB_EHANDLE, SNIB_ENAME, SNIB_ELEASE, SNIB_EOPTION, SNIB_ENOTSUP, SNIB_ENOMEM,
 *          SNIB_ECLOSED.
 * Owns     free with snib_lock_free(), at any time: holds and operations keep what they need.
 */
SNIB_API int snib_lock_new(snib_client *client, int32_t kind, const char *name, size_t name_len,
                           const snib_lock_options *options, snib_lock **out_lock, snib_error *err);
SNIB_API void snib_lock_free(snib_lock *lock); /* NULL is fine */

/* snib_multi_new - all of several locks, or none, as one lock.
 *
 * Members are taken in the order of their servers and names, whatever the order here, so that two
 * processes cannot wait for each other in a circle; neighbours of one client and of the kinds mutex,
 * fenced, spin, read and write by one command.  The hold is lost as soon as one member's is; its token is 0.
 *
 * locks    1 to 100; any kinds but semaphore and latch; also of different clients.  Leases, limits and
 *          flags of their own are ignored in favour of these options.  They may be freed afterwards.
 * options  as for snib_lock_new(); NULL for defaults.
 * Returns  as snib_lock_new(); SNIB_EINVAL if there are none, too many, one that cannot be a member
 *          or two that are the same; SNIB_ECLOSED if a member's client is closed.
 * Owns     free with snib_lock_free().  Queues for it belong to the client of locks[0].
 */
SNIB_API int snib_multi_new(snib_lock *const *locks, uint32_t n, const snib_lock_options *options,
                            snib_lock **out_lock, snib_error *err);

/* snib_quorum_new - a lock on most of several independent servers, for whom one server is not enough.
 *
 * All nodes are asked at once and the call returns with the majority's answer; the lease counts from the
 * first request, less the drift; what a minority granted is taken back everywhere.  A release goes to all
 * and returns with the majority's answers; a node that is gone keeps its vote until the lease ends.
 * Independent means: no replicas, no two on one machine.  After: "Distributed Locks with Redis", the
 * Redlock algorithm.
 *
 * A node that was restarted, or lost its data, does not vote until every lease it may have forgotten has
 * ended; so does a node that is seen for the first time (SNIB_LOCK_NO_QUARANTINE waives that).
 *
 * locks    3 to 15 mutexes of one name, each of another client.
 * Returns  as snib_multi_new().
 * Owns     free with snib_lock_free().  Queues for it belong to the client of locks[0].
 */
SNIB_API int snib_quorum_new(snib_lock *const *locks, uint32_t n, const snib_lock_options *options,
                             snib_lock **out_lock, snib_error *err);

/* snib_lock_acquire - get the lock, waiting if need be.
 *
 * Within a process waiters are served first come, first served; between processes the lock goes to
 * whoever asks first after the release, but SNIB_FAIR is first come, first served between them too.
 *
 * SNIB_SEMAPHORE and SNIB_PERMITS: takes one permit; see snib_permits_acquire().  A semaphore's hold has
 * no lease and cannot be lost.  SNIB_LATCH: SNIB_ENOTSUP; see snib_latch_wait().
 *
 * owner    0: a fresh owner, so a second acquire waits for the first hold's release.
 *          Else: any number of the caller's.  While that owner holds this lock through this client, a
 *          further acquire by it succeeds at once without a command, gives the same hold again, and
 *          the hold must be released once more.
 *          An owner that holds the write lock may take the read lock of the name as well, and so keep it
 *          when it releases the write lock.  The other way round is SNIB_EUPGRADE: it would wait for
 *          itself.
 * wait_ms  -1 no limit, 0 one try, at most 86400000 otherwise.
 * Blocks   for at most wait_ms; and while the server is unreachable for at most the client's patience.
 * Returns  SNIB_OK, SNIB_BUSY (wait_ms 0), SNIB_TIMEDOUT, or an error.  After anything but SNIB_OK the
 *          caller owns nothing, and the client takes back what a late answer may still grant.
 * Owns     free the hold with snib_hold_free(), once for each success.
 */
SNIB_API int snib_lock_acquire(snib_lock *lock, uint64_t owner, int64_t wait_ms,
                               snib_hold **out_hold, snib_error *err);

/* snib_lock_acquire_submit - start acquiring; the result comes as an event.
 *
 * queue    where SNIB_EVENT_DONE comes, and later SNIB_EVENT_LOST if the hold is lost.  NULL: no events;
 *          use snib_op_wait() on *out_op.
 * token    returned in the events; not a pointer into a garbage-collected heap, please.
 * out_op   for snib_op_cancel() and snib_op_wait(); may be NULL if there is a queue.  The handle ends by
 *          itself when its event has been drained or waited for.
 * Returns  SNIB_OK: exactly one SNIB_EVENT_DONE will come.  Else nothing was started.
 */
SNIB_API int snib_lock_acquire_submit(snib_lock *lock, uint64_t owner, int64_t wait_ms,
                                      snib_queue *queue, uint64_t token, snib_op **out_op,
                                      snib_error *err);

/* snib_lock_acquire_begin - acquire, but come back with SNIB_AGAIN instead of blocking long.
 *
 * For bindings: stays in the fast synchronous path for up to slice_ms.  If the operation is not done by
 * then, or (with a queue) as soon as it has to wait for another holder, the call returns SNIB_AGAIN and
 * the operation goes on: with a queue as if submitted, without one by snib_op_wait() on *out_op.
 * The hold's SNIB_EVENT_LOST goes to the queue in every case.
 *
 * Returns  SNIB_OK with *out_hold; SNIB_AGAIN with *out_op; else as snib_lock_acquire().
 */
SNIB_API int snib_lock_acquire_begin(snib_lock *lock, uint64_t owner, int64_t wait_ms,
                                     int64_t slice_ms, snib_queue *queue, uint64_t token,
                                     snib_hold **out_hold, snib_op **out_op, snib_error *err);

/* ---- Permits, semaphores, latches --------------------------------------------------------------- */

/* What to ask a counter for, and what comes back in *out_value (snib_event.count for _submit). */
enum snib_count {
    SNIB_COUNT_GET = 1,   /* permits to be had now; a latch's count */
    SNIB_COUNT_INIT = 2,  /* set it to n unless it is set: 1 done, 0 it was set */
    SNIB_COUNT_ADD = 3,   /* SEMAPHORE, PERMITS: add n, which may be negative: the new number */
    SNIB_COUNT_SET = 4,   /* PERMITS: make it n in all, whoever holds some: permits to be had now */
    SNIB_COUNT_TOTAL = 5, /* PERMITS: held and free together */
    SNIB_COUNT_RELEASE = 6, /* SEMAPHORE: put n back without a hold: the new number */
    SNIB_COUNT_DRAIN = 7,   /* SEMAPHORE: take all: how many there were */
    SNIB_COUNT_DOWN = 8     /* LATCH: count down by one: what is left */
};

/* snib_permits_acquire - take `count` permits at once; the hold has them all and gives them all back.
 *
 * count    1 to 1000.
 * Returns  as snib_lock_acquire(); SNIB_EPERMITS if count is out of range, or more than there are held and
 *          free together.  SNIB_EUNREACHABLE of a semaphore (not of permits) may mean that the permits were
 *          taken: semaphores know no owners, so nobody can tell.
 * Otherwise as snib_lock_acquire(), _begin() and _submit(), for a lock of kind SNIB_PERMITS; the
 * snib_semaphore_ functions for one of kind SNIB_SEMAPHORE.
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

/* snib_permits_count, snib_semaphore_count, snib_latch_count - ask for or change the number.
 *
 * what     enum snib_count.
 * n        INIT and SET: 0 to 2147483647 (a latch: at least 1); RELEASE: 1 to 2147483647; ADD: not 0;
 *          others: 0.
 * out_value  may be NULL.
 * Blocks   for at most the client's patience.
 * Returns  SNIB_OK; SNIB_EPERMITS if n is out of range; SNIB_ENOTSUP if the kind cannot do `what`; or an
 *          error.  Changes are sent once: after SNIB_EUNREACHABLE nobody knows whether they were made.
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
        remaining_ms; /* until the lease ends at the server; -1: no lease (not a sane lock); 0 if free */
    int64_t count; /* hold count on the wire; READ: readers; counters: permits to be had, count */
    int64_t
        waiting;  /* processes subscribed to its wake-ups; FAIR: waiters in its queue; -1 unknown */
    int32_t mine; /* 1 if held through this client */
    int32_t reserved;
    char owner[128]; /* "<client uuid>:<number>", as the server stores it; "" if free */
    int64_t token;   /* the fencing token given out last; 0 none */
} snib_lock_info_data;

/* snib_lock_info - ask the server who holds the lock.  A multi or quorum lock: SNIB_ENOTSUP.
 * Blocks   for at most the client's patience. */
SNIB_API int snib_lock_info(snib_lock *lock, snib_lock_info_data *out, snib_error *err);
SNIB_API int snib_lock_info_submit(snib_lock *lock, snib_queue *queue, uint64_t token,
                                   snib_op **out_op, snib_error *err);

/* What snib_client_server() can ask for; the texts that come. */
enum snib_server {
    SNIB_SERVER_INFO = 1,     /* INFO: "name:value" each */
    SNIB_SERVER_TIME = 2,     /* TIME: seconds since 1970, then microseconds */
    SNIB_SERVER_USER = 3,     /* ACL WHOAMI: the user's name */
    SNIB_SERVER_MIN_REPLICAS = 4, /* CONFIG GET: its name, then its value */
    SNIB_SERVER_FSYNC = 5,
    SNIB_SERVER_IDLE_TIMEOUT = 6,
    SNIB_SERVER_CLUSTER = 7   /* CLUSTER INFO: "name:value" each */
};

/* snib_client_server - what the server says of itself, for people and for diagnosis.
 *
 * In a deployment of several servers: one that serves locks.
 *
 * what       enum snib_server
 * buffer     gets the texts, each ended by a NUL; cap: its bytes, at least 65536
 * out_used   bytes used; out_count: how many texts
 * Blocks     as any question to the server, for at most the client's patience.
 * Returns    SNIB_OK; SNIB_EPERM: this user may not ask that; SNIB_ENOTSUP: the server does not know the command;
 *            SNIB_EINVAL, SNIB_EHANDLE, SNIB_ELIMIT (the buffer is too small), or an error of the network,
 *            server or state group.
 */
SNIB_API int snib_client_server(snib_client *client, int32_t what, char *buffer, size_t cap,
                                size_t *out_used, uint32_t *out_count, snib_error *err);

/* snib_client_describe - everything the server knows of one name, whatever kind it is.
 *
 * buffer   texts one after another, each ended by a NUL; at least 65536 bytes.  The first is
 *          "kind" and one of free, mutex, fair, read, write, plain, permits, counter, other; then, in
 *          any number, words parted by blanks:
 *              holder <owner> <remaining ms> <count>      mutex, fair, write, plain
 *              reader <owner> <remaining ms> <count>
 *              permit <32 hex digits> <remaining ms>
 *              waiter <owner> <ms until its place ends>   fair, in order
 *              token <last>    available <permits>    total <permits>    count <number>
 *              waiting <processes, by channel or queue>    more <entries that are not shown>
 *          An owner that is not plain text is shown with question marks.
 * Blocks   for at most the client's patience.
 * Returns  SNIB_OK or an error.
 */
SNIB_API int snib_client_describe(snib_client *client, const char *name, size_t name_len,
                                  char *buffer, size_t cap, size_t *out_used, uint32_t *out_count,
                                  snib_error *err);

/* The same without waiting for it, as snib_lock_acquire_submit(): the texts come with its event. */
SNIB_API int snib_client_describe_submit(snib_client *client, const char *name, size_t name_len,
                                         snib_queue *queue, uint64_t token, snib_op **out_op,
                                         snib_error *err);

/* snib_lock_force_release - delete the lock whoever holds it, and wake the waiters.
 *
 * READ deletes only readers, WRITE only a writer (with the reads it took itself).  A fair lock's queue
 * stays.  Permits and semaphores are deleted with their number; a latch opens.  Tokens stay.  A multi or
 * quorum lock: SNIB_ENOTSUP.
 *
 * The holder, if it is a Snib, is told at its next renewal.  Data of another type under the name is
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
    SNIB_HOLD_LOST = 2,    /* no longer safe, for ever */
    SNIB_HOLD_RELEASED = 3 /* given back by the program */
};

enum snib_reason {
    SNIB_REASON_NONE = 0,
    SNIB_REASON_EXPIRED = 1,     /* a fixed lease ended */
    SNIB_REASON_TAKEN = 2,       /* the server says that somebody else holds the lock */
    SNIB_REASON_DELETED = 3,     /* the server says that the lock is gone */
    SNIB_REASON_UNREACHABLE = 4, /* the lease could not be renewed in time */
    SNIB_REASON_MAX_HOLD = 5,    /* max_hold_ms is over */
    SNIB_REASON_CLOSED = 6,      /* the client was closed */
    SNIB_REASON_FAILOVER = 7     /* another server took over, and has nothing of it */
};

SNIB_API const char *snib_reason_text(int32_t reason); /* "expired", "taken", ...; static */

/* snib_hold_state - the hold's state by this machine's clock, exact at the moment of the call.
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

/* snib_hold_owner - the owner text on the wire, "<client uuid>:<number>", with a NUL, into out[128]. */
SNIB_API int snib_hold_owner(snib_hold *hold, char out[128], snib_error *err);

/* snib_hold_wait - block until the hold is lost or released.
 * Blocks   for at most timeout_ms (-1 no limit).
 * Returns  SNIB_LOST with *out_reason, SNIB_NOT_HELD after a release, SNIB_TIMEDOUT at the end of that time,
 *          SNIB_AGAIN when a signal handler ran, or an error. */
SNIB_API int snib_hold_wait(snib_hold *hold, int64_t timeout_ms, int32_t *out_reason,
                            snib_error *err);

/* snib_hold_release - give the lock back and wake a waiter.
 *
 * Renewal ends before the release is sent.  An inner release of a re-entered hold is counted here and
 * sends nothing.
 *
 * Blocks   until the server has answered, at most for the client's patience.
 * Returns  SNIB_OK      released; after a reconnect also when the server no longer knows the hold and the
 *                       lease cannot have ended: then the first try did it.
 *          SNIB_LOST    it was not held any more when the release came; another may have had the lock.
 *          SNIB_NOT_HELD  this hold has been released before.
 *          SNIB_EUNREACHABLE  no answer; the client goes on trying until the lease has ended.
 *          SNIB_ECONNECT  no connection, so it was not sent; the client goes on trying just so.
 */
SNIB_API int snib_hold_release(snib_hold *hold, snib_error *err);

/* As snib_lock_acquire_submit().  queue and out_op may both be NULL: then nobody is told. */
SNIB_API int snib_hold_release_submit(snib_hold *hold, snib_queue *queue, uint64_t token,
                                      snib_op **out_op, snib_error *err);

/* As snib_lock_acquire_begin(): SNIB_AGAIN with *out_op after slice_ms. */
SNIB_API int snib_hold_release_begin(snib_hold *hold, int64_t slice_ms, snib_queue *queue,
                                     uint64_t token, snib_op **out_op, snib_error *err);

/* snib_hold_free - give the handle back.  NULL is fine.  A hold that is still held is released without
 * waiting for the answer; call snib_hold_release() first to know it.  Of one that was lost, what the server
 * may still keep is given back.  After a re-entry the handle counts its holders: each success of acquire
 * wants one free. */
SNIB_API void snib_hold_free(snib_hold *hold);

/* snib_hold_abandon - give the handle back of a hold that was forgotten, not given back.
 *
 * For bindings whose collector finds a hold that is still held: somebody may work under it, so nothing is
 * released.  Renewal ends at once, no SNIB_EVENT_LOST comes any more, and the lock is free when the lease has
 * ended at the server; until then everybody waits for it, this client too.  A semaphore has no lease: its
 * permits stay taken.  A record of level SNIB_LOG_WARNING names the lock, and the statistics count it.
 *
 * A multi or quorum lock: so it goes with all members.  A hold that is lost: what the server may still keep of
 * it stays to the end of its lease.  One that is released: as snib_hold_free().  After a re-entry the hold
 * lives on as long as others have it, and is then abandoned where snib_hold_free() would release it.  NULL is
 * fine. */
SNIB_API void snib_hold_abandon(snib_hold *hold);

/* ---- Operations --------------------------------------------------------------------------------- */

enum snib_event_kind {
    SNIB_EVENT_DONE = 1, /* an operation ended */
    SNIB_EVENT_LOST = 2, /* a hold was lost; comes once to each queue that it was acquired by, with the token of
                            the first time there; never after a release */
    SNIB_EVENT_LOG = 3   /* a log record, see snib_client_log() */
};

/* Texts that came with an event: `count` of them from `text` on, each ended by a NUL. */
typedef struct snib_texts {
    uint64_t cursor; /* list: where to go on; 0: that was the last step */
    uint64_t used;   /* bytes, the NULs included */
    uint32_t count;
    uint32_t reserved;
    const char *text;
} snib_texts;

/* snib_texts_free - give an event's texts back.  NULL is fine. */
SNIB_API void snib_texts_free(snib_texts *texts);

/* A plain value: nothing in it needs freeing but the hold of a successful acquire, and texts.  Every text is
 * UTF-8 without control characters, whatever the server holds. */
typedef struct snib_event {
    uint32_t size;
    int32_t kind;    /* enum snib_event_kind */
    int32_t code;    /* DONE: the operation's result */
    int32_t reason;  /* LOST, and DONE with SNIB_LOST: enum snib_reason;  LOG: enum snib_log_level */
    uint64_t token;  /* of the submit */
    snib_hold *hold; /* DONE of an acquire with SNIB_OK: the hold, yours now.  LOST: which hold */
    snib_texts *texts; /* DONE of a list or describe with SNIB_OK: yours now, see snib_texts_free() */
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

/* snib_op_wait - wait for an operation that has no queue, or was begun without one.
 *
 * timeout_ms  -1 no limit.  At its end SNIB_AGAIN, also when a signal handler ran; the operation goes on.
 * Blocks   for at most timeout_ms.
 * Returns  SNIB_OK with *out_event (the operation's result is out_event->code; the handle is gone);
 *          SNIB_AGAIN; SNIB_EHANDLE; SNIB_EINVAL if it has a queue; SNIB_EFORKED.
 */
SNIB_API int snib_op_wait(snib_op *op, int64_t timeout_ms, snib_event *out_event, snib_error *err);

/* snib_op_cancel - end an operation now, unless it has just ended.
 *
 * Atomic with completion: SNIB_OK means it ended as SNIB_CANCELLED (its event still comes) and that this
 * caller will not own the lock through it; the client gives back what the server may still grant.
 * SNIB_EHANDLE means that the result was already there: it has been or will be delivered as usual.
 * A release cannot be cancelled: the caller stops waiting, the release goes on.
 */
SNIB_API int snib_op_cancel(snib_op *op);

/* snib_op_free - forget an operation without a queue: cancel it if it runs, give back what it got. */
SNIB_API void snib_op_free(snib_op *op);

/* ---- Queues ------------------------------------------------------------------------------------- */

/* snib_queue_new - a queue of events for one loop, thread or goroutine at a time. */
SNIB_API int snib_queue_new(snib_client *client, snib_queue **out_queue, snib_error *err);

/* snib_queue_fd - a descriptor that is readable while the queue has events.  Owned by the queue; poll it,
 * do not read, write or close it.  Non-blocking.  Returns it, or an error code. */
SNIB_API int snib_queue_fd(snib_queue *queue, snib_error *err);

/* snib_queue_drain - copy out up to cap events, oldest first.
 * Returns  their number (0: none), SNIB_EINUSE if another thread is draining or waiting, or an error. */
SNIB_API int snib_queue_drain(snib_queue *queue, snib_event *events, uint32_t cap, snib_error *err);

/* snib_queue_wait - the same, but block until there is an event, timeout_ms has passed, a signal handler
 * ran or snib_queue_wake() was called (then 0). */
SNIB_API int snib_queue_wait(snib_queue *queue, snib_event *events, uint32_t cap,
                             int64_t timeout_ms, snib_error *err);
SNIB_API int snib_queue_wake(snib_queue *queue);

/* snib_queue_cork, snib_queue_uncork - send what one turn of a loop submits in one go.
 *
 * While a queue is corked, what is submitted to it may be collected; uncork sends it.  For a loop that
 * submits many operations a turn: cork after the drain, uncork at the turn's end.  Never leave a queue
 * corked while going to sleep.  Only a hint: nothing else waits for the collected.
 * Returns  SNIB_OK, SNIB_EHANDLE or SNIB_EFORKED. */
SNIB_API int snib_queue_cork(snib_queue *queue);
SNIB_API int snib_queue_uncork(snib_queue *queue);

/* snib_queue_free - NULL is fine.  Running operations of the queue are cancelled; holds whose event was
 * not drained are released, texts freed; holds that live go on without an event. */
SNIB_API void snib_queue_free(snib_queue *queue);

/* ---- Log ---------------------------------------------------------------------------------------- */

enum snib_log_level {
    SNIB_LOG_NONE = 0,
    SNIB_LOG_ERROR = 1,
    SNIB_LOG_WARNING = 2,
    SNIB_LOG_INFO = 3
};

/* snib_client_log - send log records of this level and graver ones to a queue as SNIB_EVENT_LOG.  At most 256
 * wait there; older ones are dropped and counted in the next record.  queue NULL or level NONE: stop. */
SNIB_API int snib_client_log(snib_client *client, snib_queue *queue, int32_t level,
                             snib_error *err);

#ifdef __cplusplus
}
#endif
#endif
