/* snib.h - distributed locks on Redis and Valkey, wire-compatible with Redisson.
 *
 * This header is the reference manual.  In one paragraph: open a client, create a lock from it, and acquire the
 * lock to get a hold.  The hold is what you own, inspect and release.  Unless the lock has an explicit lease, the
 * client's watchdog renews it for as long as the hold lives.  A hold that can no longer be trusted becomes lost,
 * permanently, before its lease in Redis can expire.
 *
 * Handles     snib_client, snib_lock, snib_hold, snib_op and snib_queue are opaque.  A handle is a ticket
 *             with a generation, not an address: using one that is NULL, freed or of another kind, or
 *             a hold, operation or queue inherited from the parent process, returns an error and never
 *             touches freed memory.
 * Results     0 is success, positive codes are expected outcomes, negative codes are errors.
 *             snib_code_is() says what a program may conclude from a code.
 * Outputs     are written only on success, unless a function's description says otherwise, and `err` on any other
 *             result.  `err` may be NULL.
 * Strings     passed with a length need no terminator and are copied before the call returns.
 * Times       are in milliseconds.  A wait of -1 has no limit, 0 means one attempt.  A wait that is shorter than
 *             a round trip ends with the reply to its first attempt, but try_timeout_ms after it began at the
 *             latest; so does one for several members that are asked one after another.
 *             The client's patience is for a server that cannot be reached.  One that is connected, but silent, counts
 *             as such once a reply is overdue: after reply_timeout_ms, or a fifth of the lease if that is shorter.
 *             So "at most the client's patience" is the longer of these two times.  A server that replies, but slowly,
 *             is waited for.
 * Unreachable a wait that ends while the server does not reply, or before it has confirmed this client's own
 *             earlier release of the lock, returns SNIB_ECONNECT or SNIB_EUNREACHABLE: whether the lock is free
 *             is unknown.  SNIB_BUSY and SNIB_TIMEDOUT mean that the server reported the lock as held, or that
 *             this client holds it; of a quorum, that most servers answered and too few of them granted it.
 * Threads     any thread may call any function, unless its description says otherwise; none is
 *             async-signal-safe.  A function blocks only if its description says so.  None is a cancellation
 *             point: a thread that is cancelled inside a call ends after it.  Stopping a thread inside a call, or
 *             interrupting it with a signal handler, does not prevent the renewal of other holds, except while it
 *             has the client's mutex, for about a microsecond in each call.  A lock over several clients that the
 *             thread is just moving on, its own or another thread's, waits for it, and its hold is lost in time if
 *             that takes too long.  The library's own threads have all
 *             signals blocked.  A client's is started by its first operation and inherits the scheduling policy,
 *             priority and processors of the thread that calls it, so a thread that may get no processor time, as
 *             with SCHED_IDLE, must not be the first to call.
 *             It counts as one of the process's threads: a program that ends with its last thread, after
 *             pthread_exit() in main(), must close or free its clients first, or it goes on for ever, and SIGTERM, for
 *             which no thread is left that takes it, does not end it.  A thread that calls needs a stack of 64 KiB.
 * Fork        the child may continue to use the clients and locks that it inherited: on first use there, they get
 *             a new identity, new connections and their own thread (multi and quorum locks too).  Holds and
 *             operations in progress belong to the parent, which continues undisturbed: in the child, inherited
 *             holds, operations and queues return SNIB_EFORKED and send nothing, and freeing them is safe.  Any
 *             thread may fork, whatever other threads are doing in the library.  The child has none of the parent's
 *             descriptors of the library: they are closed in a handler of fork(), so a daemon may close all that it
 *             inherits.  fork() waits while other threads of the library may have locks of OpenSSL (for up to 2 s,
 *             usually for far less) or of the system's resolver (for up to 0.1 s after a lookup has begun): the child
 *             could not unlock them.  A child made without fork()'s handlers, as by _Fork() or clone(), must not use
 *             the library; when it exits, nothing of its parent's is given back.  Nor can a handler of
 *             pthread_atfork() that was registered before the first client was opened use it: its calls return
 *             SNIB_EFORKED, and free nothing.
 * Unloading   once a client has been opened, the library stays until the process ends: dlclose() takes away neither
 *             libsnib.so nor a module that contains libsnib.a.
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

/* Values are never reused.  core/net/codes.def is the one table behind this list, snib_code_name(), the
 * Python exceptions and the Go errors; a test compares them all. */
enum snib_code {
    SNIB_OK = 0,
    /* expected outcomes */
    SNIB_BUSY = 1,      /* the lock is held, and the call was not to wait */
    SNIB_TIMEDOUT = 2,  /* the wait ended before the lock was free */
    SNIB_CANCELLED = 3, /* cancelled: the operation will not give the caller the lock */
    SNIB_LOST = 4,      /* the hold was lost before this call */
    SNIB_AGAIN = 5,     /* not finished yet; continue with snib_op_wait() or the queue */
    SNIB_NOT_HELD = 6,  /* it is not held; it may have been released before */
    /* usage */
    SNIB_EINVAL = -1,    /* an argument is out of range */
    SNIB_EHANDLE = -2,   /* the handle is NULL, freed or of another kind */
    SNIB_ENAME = -3,     /* the lock name cannot be used */
    SNIB_ELEASE = -4,    /* the lease is out of range */
    SNIB_EURL = -5,      /* the URL cannot be understood */
    SNIB_EOPTION = -6,   /* an option is out of range or unknown */
    SNIB_ENOTSUP = -7,   /* this build or this lock kind cannot do that */
    SNIB_EINUSE = -8,    /* another thread is waiting on the queue, or for the operation, right now */
    SNIB_EUPGRADE = -9,  /* the owner holds the read lock and cannot get the write lock as well */
    SNIB_EPERMITS = -10, /* more permits than exist, or an invalid count */
    /* resources */
    SNIB_ENOMEM = -20,
    SNIB_ELIMIT = -21,  /* a limit of the client is reached */
    SNIB_ESYSTEM = -22, /* the operating system refused; see os_error */
    /* network */
    SNIB_EUNREACHABLE = -30, /* sent, but no reply came in time; maybe applied */
    SNIB_ERESOLVE = -31,     /* the host name has no address */
    SNIB_EPROTOCOL = -32,    /* the peer does not speak the Redis protocol */
    SNIB_ECONNECT = -33,     /* no connection to the server: nothing was applied */
    SNIB_ETLS = -34,         /* no secure connection: a certificate, a key or TLS itself was refused */
    SNIB_ETOPOLOGY = -35,    /* not part of the deployment that the URL names */
    SNIB_ECREDENTIALS = -36, /* the password file, function or queue gave no password: nothing was applied */
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
    SNIB_EREPLICAS = -49,  /* too few replicas had the grant in time: it was undone */
    /* state */
    SNIB_ECLOSED = -60, /* the client is closed */
    SNIB_EFORKED = -61  /* a hold, operation or queue of the parent process */
};

/* What may be concluded from a code: see snib_code_is().  The first flag does not apply to a release:
 * whatever its code, it is not called again, and the client itself repeats what can be repeated.  After a code with the
 * last flag the program, the server or the user's rights must be changed.  Such a call has changed nothing, except that
 * after SNIB_ENOTSUP from an extension the server may have the longer lease. */
#define SNIB_IS_RETRYABLE 1     /* the same call may succeed later */
#define SNIB_IS_MAYBE_APPLIED 2 /* the server may have applied it; the client cleans up what it can */
#define SNIB_IS_USAGE 4         /* the same call would fail again; see below what it changed */

/* Details of an error, owned by the caller.  text is one sentence without a newline: what happened, to which
 * lock, at which server, and the server's own words if there were any (never a password).  What is too long is
 * shortened in its middle, shown as " ... ". */
typedef struct snib_error {
    int32_t code;
    int32_t os_error; /* errno where there is one, else 0 */
    int32_t reason;   /* SNIB_LOST: enum snib_reason; else 0 */
    int32_t server;   /* the server's own words begin at text + server; 0: there are none */
    char text[496];
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

/* snib_client_options.durability; 0: none, unless the URL sets it.  MAJORITY and ALL count only replicas that are
 * in sync, as reported by the master at most one second earlier. */
#define SNIB_DURABILITY_NONE (-1)
#define SNIB_DURABILITY_MAJORITY (-2) /* of the server and its replicas */
#define SNIB_DURABILITY_ALL (-3)
/* snib_client_options.durability_policy: what happens if too few replicas have the grant in time */
#define SNIB_DURABILITY_REFUSE 1 /* the grant is undone and the call fails */
#define SNIB_DURABILITY_REPORT 2 /* the grant stands, unless a lock's own lease has ended meanwhile;
                                  * snib_hold_replicas() tells how many have it */
/* snib_client_options.publish; 0: auto, unless the URL sets it. */
#define SNIB_PUBLISH_AUTO 1 /* as Redisson does */
#define SNIB_PUBLISH_CLASSIC 2
#define SNIB_PUBLISH_SHARDED 3
#define SNIB_PUBLISH_BOTH 4

/* ---- Credentials, requested for each connect ---- */

#define SNIB_USERNAME_MAX 512   /* with the NUL */
#define SNIB_PASSWORD_MAX 16384 /* with the NUL; tokens of managed services take 1 to 4 KiB */

typedef struct snib_credentials {
    uint32_t size;     /* of the struct, as the library knows it */
    uint32_t reserved; /* 0 */
    int64_t valid_ms;  /* lifetime of the password, counted from the request for it; 0: no known end */
    char why[192];     /* on failure: one sentence for the log and for errors */
    char username[SNIB_USERNAME_MAX]; /* "": the one from the options or the URL, else none */
    char password[SNIB_PASSWORD_MAX];
} snib_credentials;

/* snib_credentials_fn - the program's function that fills *out, which is zeroed except for its size, and which the
 * library wipes after use.
 *
 * Called before each connect to a server (one call may serve several connects), but not for sentinels, which have
 * options of their own.  It runs on a dedicated thread with all signals blocked, so it may take its time and query
 * other services; a client never has two calls at a time.  An answer that takes longer than the connect timeout
 * serves the next attempt at the earliest.  With valid_ms, the function is called again after four fifths of that
 * time, but not within half a second (after a failure: after a twentieth of that time, 50 ms at least and 30 s at
 * most), and every existing connection logs in again, so that none ends when its password
 * expires; connections with subscriptions are replaced.  The function must not free or close the client.
 * snib_client_free() waits for a call in progress.  After a fork, the function may be called in the child, too.
 *
 * Returns  0, or anything else on failure: operations wait as long as they would for an unreachable server, and
 *          then fail with SNIB_ECREDENTIALS and `why`.  pthread_exit() is a failure, too. */
typedef int (*snib_credentials_fn)(void *data, snib_credentials *out);

/* Always fill with snib_client_options_init() first.  0 or NULL selects a field's default. */
typedef struct snib_client_options {
    uint32_t size;
    uint32_t flags;             /* must be 0 */
    int64_t lease_ms;           /* lease of renewed holds; 100 to 86400000; default 30000 */
    int64_t connect_timeout_ms; /* one attempt to connect, over all addresses of the host name, and
                                   the same again to resolve the name; default 3000 */
    int64_t reply_timeout_ms;   /* if no reply comes for so long while one is owed, the connection
                                   is closed; default 3000 */
    int64_t patience_ms;  /* how long to tolerate an unreachable server; default 5000 */
    int64_t try_timeout_ms; /* the same for one attempt: a wait of 0, or one that is shorter than a
                               round trip; default 1000 */
    int64_t recheck_ms;   /* a waiter retries at least this often; default 3000 */
    int64_t max_hold_ms;  /* default for locks; 0: none, unless the URL sets it; -1: none */
    int32_t handover_max; /* consecutive hand-overs inside this process; default 64; -1: never */
    int32_t waiters_max;  /* concurrent operations; more fail with SNIB_ELIMIT, except releases
                             and extensions; default 200000.  A lock on several servers counts once at its
                             home client, and each member that is asked at the member's client */
    const char *username; /* instead of the URL's; terminated by NUL, copied */
    const char *password; /* instead of the URL's; terminated by NUL, copied, never shown */
    /* Strings as above; files are read at each connect, and a relative path begins at the working directory of
     * snib_client_open().  An option that this build does not support returns SNIB_ENOTSUP. */
    const char *password_file;     /* read at each connect, instead of a password; not kept in memory */
    const char *sentinel_username; /* for the sentinels */
    const char *sentinel_password;
    const char *tls_ca;            /* file or directory of trusted CAs; NULL: the system's */
    const char *tls_cert;          /* file with the client's certificate and its chain */
    const char *tls_key;           /* file with the certificate's private key; NULL: it is in tls_cert */
    const char *tls_key_password;  /* of that key file, if it is encrypted */
    const char *tls_server_name;   /* name that the certificate must have, instead of the URL's host */
    int32_t tls_insecure; /* 1: accept any certificate; -1: do not, even if the URL says so */
    int32_t durability;   /* number of replicas that must have a grant, or SNIB_DURABILITY_* */
    int64_t durability_timeout_ms; /* how long the replicas may take; default 1000, at most a third
                                    * of the lease */
    int32_t durability_policy;     /* SNIB_DURABILITY_REFUSE (default) or _REPORT */
    int32_t publish;  /* SNIB_PUBLISH_*: how releases are announced in a cluster */
    int32_t lanes;    /* most command connections to each server; 1 to 4, default 4.  There is
                       * only one until several threads often wait for replies at the same time */
    int32_t ask_credentials; /* 1: get credentials through a queue, see snib_client_credentials() */
    snib_credentials_fn credentials; /* called for each connect, instead of a password; NULL: none */
    void *credentials_data; /* the function's first argument */
    const char *label; /* what the program says about itself, see snib_client_identity(); at most 128
                        * bytes of UTF-8 without control characters */
    int32_t identity;  /* 1: others can ask who this client is; -1: they cannot, even if the URL says
                        * so; default 1 */
    int32_t debug; /* 1: look for mistakes in the use of locks, see snib_debug_here(); -1: do not, even if
                    * the URL says so; default -1; with memory:// 1 */
    int64_t debug_hold_ms; /* with debug: report holds that are older; default 60000; -1: none */
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
 *          memory://name is the memory server of that name in this process, for tests: see snib_testing.h.
 *          A scheme that this build does not support returns SNIB_ENOTSUP.  valkey is an alias of redis, and
 *          valkeys of rediss.  Put IPv6 addresses in brackets.  User, password, path, service and option values
 *          are percent-decoded.  redis://:password@host gives a password without a user; a user without a password
 *          logs in with an empty one, which the server accepts for users with nopass.
 *          ?name=value&name=value sets options, named like the fields above without _ms, and db, the database.
 *          A time is a decimal number followed by ms, s, m or h, or a plain number of seconds.
 *          NULL: the environment variable SNIB_URL or, if it is unset or empty, redis://127.0.0.1:6379;
 *          SNIB_USERNAME, SNIB_PASSWORD and SNIB_PASSWORD_FILE, if set, then replace what that URL has.  If one is set in
 *          a program with rights that its user does not have, such as a set-user-ID program: SNIB_EURL.
 * options  NULL for defaults.  Options given here take precedence over those in the URL.
 * Returns  SNIB_OK, SNIB_EURL, SNIB_ELEASE, SNIB_EOPTION, SNIB_EINVAL, SNIB_ENOTSUP, SNIB_ENOMEM,
 *          SNIB_ESYSTEM.
 * Owns     free with snib_client_free().
 */
SNIB_API int snib_client_open(const char *url, const snib_client_options *options,
                              snib_client **out_client, snib_error *err);

/* snib_client_credentials, snib_client_login - supply credentials through a queue instead of a snib_credentials_fn,
 * for languages that C should not call into.
 *
 * With options.ask_credentials, each request for credentials is an event in the queue that is given here:
 * SNIB_EVENT_CREDENTIALS, with the request's number as token.  snib_client_login() answers it.  Requests come one at
 * a time; a request made before the client has a queue waits for one.  Freeing the queue fails a pending request.
 *
 * answer   NULL: a failure without a reason; an answer with a `why` is a failure too.  Copied; the copy is wiped.
 * Returns  SNIB_OK, also if the request is no longer pending; SNIB_EINVAL: the queue belongs to another client,
 *          the client was opened without ask_credentials, or a text has no NUL; SNIB_EHANDLE, SNIB_EFORKED.
 */
SNIB_API int snib_client_credentials(snib_client *client, snib_queue *queue, snib_error *err);
SNIB_API int snib_client_login(snib_client *client, uint64_t token, const snib_credentials *answer,
                               snib_error *err);

/* snib_client_get_options - the options in effect, from the call, the URL and the defaults.
 *
 * out      initialized with snib_client_options_init().  Strings are returned as NULL.
 * Returns  SNIB_OK, SNIB_EINVAL, SNIB_EHANDLE.
 */
SNIB_API int snib_client_get_options(snib_client *client, snib_client_options *out,
                                     snib_error *err);

/* snib_client_ping - connect if necessary and wait for a reply from the server.
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
 * them in any order.
 * Blocks   while a snib_credentials_fn is running. */
SNIB_API void snib_client_free(snib_client *client);

/* snib_set_exit_timeout - set how long process exit may take to release holds.
 *
 * When exit() is called or main() returns, every client that is still open is closed, after the program's own
 * atexit() handlers have run: holds are released, operations end with SNIB_ECLOSED.  Threads still working under a
 * lock are then no longer protected, so end them first.  The child of a fork releases only what it acquired itself.
 * After _exit(), exec(), abort() or a fatal signal the locks become free when their leases end; so do, after this time,
 * the locks of a client if exit() is called by a signal handler that has interrupted a call for it; if that client has
 * had a part in a lock of several clients, so do the locks of all clients that have.
 *
 * timeout_ms  for all clients together; 0 to 60000, default 1000; 0: release nothing
 * Returns     SNIB_OK, SNIB_EINVAL.
 */
SNIB_API int snib_set_exit_timeout(int64_t timeout_ms, snib_error *err);

/* snib_advance_clock - for tests only: move the clock of all clients of this process forward.
 *
 * Deadlines that are passed by then take effect at once: a hold whose lease ends is lost, as after a suspend of the
 * machine.  The server's clock does not move, unless it is a memory server: see snib_memory_advance() in
 * snib_testing.h, which calls this.  Nothing moves it back.
 *
 * ms       0 to 31536000000, a year
 * Returns  SNIB_OK, SNIB_EINVAL.
 */
SNIB_API int snib_advance_clock(int64_t ms, snib_error *err);

/* snib_client_id - the client's UUID (version 8), 36 characters and a NUL, into out[37]. */
SNIB_API int snib_client_id(snib_client *client, char out[37], snib_error *err);

#define SNIB_HISTOGRAM_BUCKETS                                                                     \
    32 /* bucket i counts times in [2^i, 2^(i+1)) microseconds, bucket 0 from 0 */

typedef struct snib_client_stats_data {
    uint32_t size; /* set to sizeof before the call */
    uint32_t flags;
    uint64_t acquisitions; /* holds granted, without re-entries */
    uint64_t reentries;
    uint64_t releases;
    uint64_t waits;     /* acquisitions that had to wait */
    uint64_t handovers; /* locks passed on to another waiter of this process */
    uint64_t timeouts;
    uint64_t cancels;
    uint64_t renewals; /* holds renewed, not commands */
    uint64_t renewal_commands;
    uint64_t renewal_failures; /* renewals that failed; they are retried */
    uint64_t lost_expired;     /* losses by reason, see enum snib_reason */
    uint64_t lost_taken;
    uint64_t lost_deleted;
    uint64_t lost_unreachable;
    uint64_t lost_max_hold;
    uint64_t lost_closed;
    uint64_t abandoned; /* holds dropped without a release, see snib_hold_abandon() */
    uint64_t rechecks; /* attempts of waiters without a wake-up message */
    uint64_t messages; /* wake-up messages received */
    uint64_t polling;  /* waits that poll because their subscription was refused */
    uint64_t connects;
    uint64_t reconnects;
    uint64_t commands;         /* commands sent on command connections, without handshakes */
    uint64_t writes;           /* system calls that sent to command connections */
    uint64_t reads;            /* system calls that received from command connections */
    uint64_t wakes;            /* threads and queues woken */
    uint64_t clock_moves; /* the server's clock was set, or ran at a rate that differs by more than 1 % */
    uint64_t watchdog_late_us; /* the longest delay of a due renewal so far, in microseconds */
    uint64_t held;             /* current holds */
    uint64_t waiting;          /* current waiters */
    uint64_t memory;           /* bytes in use by the client, buffers included, but not the list of what it
                                  has released lately (up to 512 KiB) */
    uint64_t wait_time[SNIB_HISTOGRAM_BUCKETS];
    uint64_t hold_time[SNIB_HISTOGRAM_BUCKETS];
    uint64_t lost_failover; /* losses by reason, continued */
    uint64_t debug_warnings; /* mistakes that the option debug has found, see snib_debug_here() */
} snib_client_stats_data;

/* snib_client_stats - a consistent snapshot of the client's counters.  No round trip. */
SNIB_API int snib_client_stats(snib_client *client, snib_client_stats_data *out, snib_error *err);

/* snib_client_list - find locks by name; the server is scanned in steps.
 *
 * Call with *cursor = 0 first, and then again with the new value until it is 0.  A name can appear twice.
 * Semaphores, latches, permits that are all free and plain locks of other programs are not found: nothing tells them
 * from other data.
 *
 * pattern  as in Redis's SCAN (*, ?, [a-z]), at most 1024 bytes; length 0 means all.
 * buffer   receives *out_count names, each ended by a NUL, in *out_used bytes; cap is at least 65536.  Invalid UTF-8
 *          and control characters, which Snib's own names never contain, are shown as question marks.
 * Blocks   for at most the client's patience.
 * Returns  SNIB_OK or an error.
 */
SNIB_API int snib_client_list(snib_client *client, const char *pattern, size_t pattern_len,
                              uint64_t *cursor, char *buffer, size_t cap, size_t *out_used,
                              uint32_t *out_count, snib_error *err);

/* One step without waiting, like snib_lock_acquire_submit(): the texts of its event are the names.  If it fails, the
 * event's `count` is the cursor with which to go on without the names that are missing then: that of the cluster's next
 * node; 0 if there is none. */
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
    SNIB_SPIN = 6,   /* a mutex whose waiters poll; a release sends no message [RSpinLock] */
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
    4 /* quorum: nodes that may have lost their data vote immediately */

typedef struct snib_lock_options {
    uint32_t size;
    uint32_t flags; /* SNIB_LOCK_*; a flag that does not fit the kind is SNIB_EOPTION */
    int64_t
        lease_ms; /* 0: renewed by the watchdog with the client's lease; else fixed, 100 to 86400000 */
    int64_t
        max_hold_ms; /* the hold is lost after this time, 1 to 86400000; 0: the client's; -1: none */
} snib_lock_options;

/* snib_lock_options_init - fill *options with defaults.  size: sizeof *options. */
SNIB_API void snib_lock_options_init(snib_lock_options *options, size_t size);

/* snib_lock_new - create a lock object for a name.  This sends nothing.
 *
 * kind     enum snib_kind.  The read side and the write side of a name are two lock objects.
 * name     1 to 512 bytes of UTF-8 without control characters.  The first braces, if any, must enclose
 *          something, as in "{tenant}orders": it is the hash tag of a cluster.
 * Returns  SNIB_OK, SNIB_EHANDLE, SNIB_EINVAL, SNIB_ENAME, SNIB_ELEASE, SNIB_EOPTION, SNIB_ENOTSUP (also for an
 *          unknown kind), SNIB_ENOMEM, SNIB_ECLOSED.
 * Owns     free with snib_lock_free(), at any time: holds and operations keep what they need.
 */
SNIB_API int snib_lock_new(snib_client *client, int32_t kind, const char *name, size_t name_len,
                           const snib_lock_options *options, snib_lock **out_lock, snib_error *err);
SNIB_API void snib_lock_free(snib_lock *lock); /* NULL is allowed */

/* snib_multi_new - create one lock that takes all of several locks, or none.
 *
 * Members are taken in the order of their servers and names, whatever their order here, so that processes
 * cannot deadlock.  Servers go by the addresses in the URLs, which should be the same in all processes.  One
 * command takes adjacent members that belong to the same client and are of the kinds mutex, fenced, spin, read or
 * write.  The hold is lost as soon as one member is lost; its token is 0.
 *
 * locks    1 to 100, of any kinds except semaphore and latch; their clients may differ.  `options` replaces the
 *          members' own leases, limits and flags.  The members may be freed afterwards.
 * options  as for snib_lock_new(); NULL for defaults.
 * Returns  as snib_lock_new(); SNIB_EINVAL if there are no members, too many, one that cannot be a member,
 *          or two of the same name on one server, of whatever kinds; SNIB_ECLOSED if a member's client is closed.
 * Owns     free with snib_lock_free().  Queues for it belong to the client of locks[0], and so do its holds: they are
 *          lost when that client, or another member's, is closed.  A wait ends with SNIB_ECLOSED, but if it is another
 *          member's, not before its turn comes.
 */
SNIB_API int snib_multi_new(snib_lock *const *locks, uint32_t n, const snib_lock_options *options,
                            snib_lock **out_lock, snib_error *err);

/* snib_quorum_new - create a lock on a majority of several independent servers, where one server is not enough.
 *
 * All nodes are asked at the same time, and an acquire returns when a majority has granted it.  Each grant
 * has a deadline of its own, counted from just before that node was asked, minus the drift, and the hold is valid for
 * as long as a majority of them has not passed.  Grants by a mere minority are undone on all nodes.  A release goes to all nodes
 * and returns when a majority has confirmed it; the vote of an unreachable node stays taken until the lease ends.
 * Independent means: no replicas, and no two servers on one machine.  This follows "Distributed Locks with Redis",
 * the Redlock algorithm.
 *
 * A node that has restarted or lost its data does not vote until every lease that it may have forgotten has
 * ended (a restart with old data is seen only if the user may send INFO); nor does a node that is seen for the first time (SNIB_LOCK_NO_QUARANTINE waives this).  It takes all
 * leases to be as long as the one that asks: all programs must use the same lease for this lock.
 *
 * locks    3 to 15 mutexes of the same name, each of a different client.
 * Returns  as snib_multi_new().
 * Owns     free with snib_lock_free().  Queues for it belong to the client of locks[0], and so do its holds: they are
 *          lost when that client is closed, while another one's costs only its vote.
 */
SNIB_API int snib_quorum_new(snib_lock *const *locks, uint32_t n, const snib_lock_options *options,
                             snib_lock **out_lock, snib_error *err);

/* snib_lock_acquire - get the lock, waiting if necessary.
 *
 * Within a process, waiters are served first come, first served; readers share the lock and have no order, and for permits
 * and semaphores see snib_permits_acquire().  Between processes, only SNIB_FAIR is, too.  Mutexes, plain, fenced and
 * write locks take turns: while other processes wait, a process gives the lock back after a turn for each of its own
 * waiters, and lets the others have theirs.  Any other lock goes to the first process that asks.
 *
 * SNIB_SEMAPHORE and SNIB_PERMITS: takes one permit; see snib_permits_acquire().  A semaphore's hold has
 * no lease and cannot be lost.  SNIB_LATCH: SNIB_ENOTSUP; see snib_latch_wait().
 *
 * owner    0: a new owner, so a second acquire waits until the first hold is released.
 *          Otherwise: any number that the caller chooses.  While that owner holds this lock through this client,
 *          another acquire by the same owner succeeds immediately without a command and returns the same hold,
 *          which must then be released once more.
 *          An owner that holds the write lock may also take the read lock of the name, and so keep the read lock
 *          when it releases the write lock.  The reverse returns SNIB_EUPGRADE, because the owner would wait for
 *          itself.  An acquire that is already waiting when another one by its owner succeeds
 *          ends in the same way: with that hold, within the write lock, or with SNIB_EUPGRADE.
 * wait_ms  -1: no limit; 0: one attempt; at most 86400000 otherwise.
 * Blocks   for at most wait_ms, or one round trip; while the server is unreachable, for at most the client's patience.
 * Returns  SNIB_OK, SNIB_BUSY (wait_ms 0), SNIB_TIMEDOUT, or an error.  After anything but SNIB_OK the
 *          caller owns nothing, and if a late answer still grants the lock, the client releases it.
 * Owns     free the hold with snib_hold_free(), once for each success.
 */
SNIB_API int snib_lock_acquire(snib_lock *lock, uint64_t owner, int64_t wait_ms,
                               snib_hold **out_hold, snib_error *err);

/* snib_lock_acquire_submit - start acquiring; the result arrives as an event.
 *
 * queue    of the lock's client: receives SNIB_EVENT_DONE, and later SNIB_EVENT_LOST if the hold is lost.  NULL: no
 *          events; use snib_op_wait() on *out_op.
 * token    returned in the events; must not be a pointer into a garbage-collected heap.
 * out_op   for snib_op_cancel() and snib_op_wait(); may be NULL if there is a queue.  The handle is freed
 *          automatically when its event has been drained or waited for.
 * Returns  SNIB_OK: exactly one SNIB_EVENT_DONE will arrive.  Otherwise nothing was started.
 */
SNIB_API int snib_lock_acquire_submit(snib_lock *lock, uint64_t owner, int64_t wait_ms,
                                      snib_queue *queue, uint64_t token, snib_op **out_op,
                                      snib_error *err);

/* snib_lock_acquire_begin - acquire, but return SNIB_AGAIN instead of blocking for long.
 *
 * For language bindings: the call stays on the fast synchronous path for up to slice_ms.  If the operation is not
 * done by then, or (with a queue) as soon as it must wait for another holder, the call returns SNIB_AGAIN and the
 * operation continues: with a queue as if submitted, without a queue through snib_op_wait() on *out_op.
 * The hold's SNIB_EVENT_LOST goes to the queue in either case; a thread that drains it may see it just before this
 * call has returned.
 *
 * Blocks   for at most slice_ms.
 * Returns  SNIB_OK with *out_hold; SNIB_AGAIN with *out_op; otherwise as snib_lock_acquire().
 */
SNIB_API int snib_lock_acquire_begin(snib_lock *lock, uint64_t owner, int64_t wait_ms,
                                     int64_t slice_ms, snib_queue *queue, uint64_t token,
                                     snib_hold **out_hold, snib_op **out_op, snib_error *err);

/* ---- Permits, semaphores, latches --------------------------------------------------------------- */

/* Operations on a counter.  After the arrow: the value in *out_value (snib_event.count for _submit). */
enum snib_count {
    SNIB_COUNT_GET = 1,   /* -> free permits; a latch's count */
    SNIB_COUNT_INIT = 2,  /* set it to n unless it is set -> 1: done, 0: it was already set */
    SNIB_COUNT_ADD = 3,   /* SEMAPHORE, PERMITS: add n, which may be negative -> the free permits then */
    SNIB_COUNT_SET = 4,   /* PERMITS: set the total to n, held ones included -> free permits */
    SNIB_COUNT_TOTAL = 5, /* PERMITS -> held and free together */
    SNIB_COUNT_RELEASE = 6, /* SEMAPHORE: put n back without a hold -> the new number */
    SNIB_COUNT_DRAIN = 7,   /* SEMAPHORE: take all -> the number taken */
    SNIB_COUNT_DOWN = 8     /* LATCH: count down by one -> the remaining count */
};

/* snib_permits_acquire - take `count` permits at once; the hold owns them all and releases them all.
 *
 * These functions work like snib_lock_acquire(), _begin() and _submit(), for a lock of kind SNIB_PERMITS; the
 * snib_semaphore_ functions are for kind SNIB_SEMAPHORE.
 *
 * count    1 to 1000.
 * Order    A client asks for the first of its waiters, so one that wants few may wait behind one that wants more
 *          than are free; while it succeeds, also for those behind it that want no fewer.  Of calls that are asked for
 *          at the same time, as are those that begin before one had to wait, a later one may get what is put back
 *          after an earlier one was refused.  A single try (wait_ms 0) does not queue.
 * Returns  as snib_lock_acquire(); SNIB_EPERMITS if count is out of range, or more than held and free permits
 *          together.  A semaphore does not know its total, and permits may not have one yet: then the call waits.
 *          With a semaphore (not with permits) SNIB_EUNREACHABLE may mean that the permits were taken:
 *          semaphores have no owners, so the client cannot tell.
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

/* snib_permits_count, snib_semaphore_count, snib_latch_count - read or change the count.
 *
 * what     enum snib_count.
 * n        INIT and SET: 0 to 2147483647 (a latch: at least 1); RELEASE: 1 to 2147483647; ADD: not 0;
 *          others: 0.
 * out_value  may be NULL.
 * Blocks   for at most the client's patience.
 * Returns  SNIB_OK; SNIB_EPERMITS if n is out of range, or the number would be; SNIB_ENOTSUP if the kind
 *          cannot do `what`; or an error.  A change is sent only once: after SNIB_EUNREACHABLE, whether it was made is
 *          unknown; so it is after SNIB_CANCELLED and SNIB_ECLOSED, if it was on its way.
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
 * Blocks   for at most wait_ms; while the server is unreachable, for at most the client's patience.
 * Returns  SNIB_OK, SNIB_BUSY (wait_ms 0), SNIB_TIMEDOUT, or an error.  There is no hold. */
SNIB_API int snib_latch_wait(snib_lock *latch, int64_t wait_ms, snib_error *err);
SNIB_API int snib_latch_wait_begin(snib_lock *latch, int64_t wait_ms, int64_t slice_ms,
                                   snib_queue *queue, uint64_t token, snib_op **out_op,
                                   snib_error *err);
SNIB_API int snib_latch_wait_submit(snib_lock *latch, int64_t wait_ms, snib_queue *queue,
                                    uint64_t token, snib_op **out_op, snib_error *err);

/* ---- Querying locks ----------------------------------------------------------------------------- */

typedef struct snib_lock_info_data {
    uint32_t size; /* set to sizeof before the call */
    int32_t held;  /* 1 if the lock is held; PERMITS: if any is; SEMAPHORE: if none is free; LATCH: if shut */
    int64_t
        remaining_ms; /* until the lease ends at the server, of PERMITS the first of them; 0: free; -1: it
                       * has none: SEMAPHORE, LATCH, or what is not a valid lock */
    int64_t count; /* hold count on the wire; READ: readers; counters: free permits, or the count */
    int64_t
        waiting;  /* processes subscribed to its wake-ups; FAIR: waiters in its queue; -1: unknown */
    int32_t mine; /* 1 if held through this client */
    int32_t reserved;
    char owner[128]; /* "<client uuid>:<number>", as the server stores it; "" if free */
    int64_t token;   /* the last fencing token issued; 0: none */
} snib_lock_info_data;

/* snib_lock_info - ask the server for the lock's state and owner.
 * Blocks   for at most the client's patience.
 * Returns  SNIB_OK; SNIB_EWRONGTYPE: data of another kind, as far as they can be told apart; SNIB_ENOTSUP for a multi
 *          or quorum lock; or an error. */
SNIB_API int snib_lock_info(snib_lock *lock, snib_lock_info_data *out, snib_error *err);
SNIB_API int snib_lock_info_submit(snib_lock *lock, snib_queue *queue, uint64_t token,
                                   snib_op **out_op, snib_error *err);

/* The queries of snib_client_server(), and the texts that each returns. */
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
    SNIB_SERVER_WAIT = 10,      /* WAIT for 0 replicas: how many there are */
    SNIB_SERVER_LOAD = 11,      /* SCRIPT LOAD of a script that does nothing: its hash */
    /* What the client knows without asking, "name:value" each: "deployment", single, cluster or sentinel; "server",
     * its address, except in a cluster; "tls", yes or no; "verified", whether certificates are; behind sentinels
     * "service", and "sentinels", how many are known, and "answered", how many of them have last given an answer
     * that was believed. */
    SNIB_SERVER_WAY = 12
};

/* snib_client_server - ask the server for information about itself, for diagnosis.
 *
 * With several servers, the client asks one that serves locks.  SNIB_SERVER_WAY asks none.
 *
 * what       enum snib_server
 * buffer     receives the texts, each ended by a NUL; cap: its size in bytes, at least 65536
 * out_used   bytes used; out_count: number of texts
 * Blocks     for at most the client's patience.
 * Returns    SNIB_OK; SNIB_EPERM: the user may not run the command; SNIB_ENOTSUP: the server does not know the
 *            command; SNIB_EINVAL, SNIB_EHANDLE, SNIB_ELIMIT (the buffer is too small), or an error of the network,
 *            server or state group.
 */
SNIB_API int snib_client_server(snib_client *client, int32_t what, char *buffer, size_t cap,
                                size_t *out_used, uint32_t *out_count, snib_error *err);

/* snib_client_load - load the scripts into the servers that serve locks (SCRIPT LOAD), so that users who may run
 * scripts (EVALSHA), but neither load them nor send them whole (EVAL), can use locks.
 *
 * One script in each step: call with *cursor = 0 first, and then again with the new value until it is 0.  In a cluster
 * they are loaded into each master that serves slots, in all variants that the option publish may choose.  A server
 * forgets them when it restarts, and another master may never have had them.
 *
 * kind       enum snib_kind: those that locks of this kind need; 0: all
 * buffer     receives four texts, each ended by a NUL: the server's address, the script's name, what it publishes on
 *            ("classic", "sharded" or "both" channels) and its hash; cap: its size in bytes, at least 65536
 * out_used   bytes used; out_count: number of texts
 * Blocks     for at most the client's patience.
 * Returns    SNIB_OK; SNIB_EPERM: the user may not load scripts; SNIB_EINVAL, SNIB_EHANDLE, or an error of the
 *            network, server or state group.  *cursor is then unchanged.
 */
SNIB_API int snib_client_load(snib_client *client, int32_t kind, uint64_t *cursor, char *buffer,
                              size_t cap, size_t *out_used, uint32_t *out_count, snib_error *err);

/* snib_client_describe - ask for everything the server knows about a name, whatever its kind.
 *
 * buffer   receives *out_count texts, each ended by a NUL, in *out_used bytes; cap is at least 65536.  The first is
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

/* The same without waiting, like snib_lock_acquire_submit(): the event carries the texts. */
SNIB_API int snib_client_describe_submit(snib_client *client, const char *name, size_t name_len,
                                         snib_queue *queue, uint64_t token, snib_op **out_op,
                                         snib_error *err);

/* snib_client_identity - ask which process is behind an owner, as reported by snib_lock_info() or a description.
 *
 * A client that holds something for longer than a third of its lease writes a small key, snib_client:{<uuid>}, with
 * its host, pid, program and label, how many holds it has lost, and since when it has its oldest ones, unless it was
 * opened with the option identity=no or the server refuses it.  The key is written again as often as leases are renewed,
 * and ends with the client's lease (3 s at least) or its close.  It says what the process said about itself.
 *
 * owner    "<client uuid>:<number>", or the UUID alone.
 * buffer   receives *out_count texts, each ended by a NUL, in *out_used bytes; cap is at least 65536.  In any number
 *          and order, with unknown ones for later versions:
 *              host <name>    pid <number>    program <name>    label <text>
 *              since <seconds since 1970 by the process's clock, when it opened the client>
 *              losses <holds that it has lost since then, members of multi and quorum locks included>: if there are any
 *              held <number> <seconds since 1970 by the same clock, when it acquired the hold that an owner of this
 *              number is>: for the 16 oldest, if the client has 4,096 locks or fewer
 *              at <number> <place>    by <number> <who>
 *                  with the option debug, of these holds: where in the program it was acquired, and by which thread or
 *                  task, see snib_debug_here(): of as many as there is room for in 2,048 bytes
 *          None: nothing is known, as for owners that are not Snib's and for clients that have just begun to hold.
 * Blocks   for at most the client's patience.
 * Returns  SNIB_OK or an error.
 */
SNIB_API int snib_client_identity(snib_client *client, const char *owner, size_t owner_len,
                                  char *buffer, size_t cap, size_t *out_used, uint32_t *out_count,
                                  snib_error *err);

/* The same without waiting, like snib_lock_acquire_submit(): the event carries the texts. */
SNIB_API int snib_client_identity_submit(snib_client *client, const char *owner, size_t owner_len,
                                         snib_queue *queue, uint64_t token, snib_op **out_op,
                                         snib_error *err);

/* snib_client_set_label - change what this client says about itself, such as the order it is working on.
 *
 * Others see it at once if the client has already written its identity, else when it does; holds, leases and locks are
 * not touched.  Names of clients in warnings of the option debug stay as they were.  The child of a fork begins with the
 * option's label again: what the parent works on is not its work.
 *
 * label    at most 128 bytes of UTF-8 without control characters, which are copied; NULL or "": none
 * Threads  any.
 * Blocks   no.
 * Returns  SNIB_OK; SNIB_EINVAL for a bad label and SNIB_ENOTSUP with the option identity=no: the former one stays;
 *          SNIB_ECLOSED.
 */
SNIB_API int snib_client_set_label(snib_client *client, const char *label, snib_error *err);

/* snib_lock_force_release - delete the lock, regardless of its holder, and wake the waiters.
 *
 * READ deletes only readers, WRITE only a writer (with its own read locks).  The queue of a fair lock
 * stays.  Permits and semaphores are deleted with their count; a latch opens.  Token counters stay.
 *
 * A holder that uses Snib learns of it at its next renewal; one with a fixed lease, which is not renewed, at its release
 * or its deadline.  Data of another type under the name is never deleted, nor is a string without a time to live as a
 * plain lock: nothing tells it from other data.
 *
 * Blocks   for at most the client's patience.
 * Returns  SNIB_OK: deleted; SNIB_NOT_HELD: there was nothing; SNIB_EWRONGTYPE: what is there is not deleted;
 *          SNIB_ENOTSUP: a multi or quorum lock; or an error.
 */
SNIB_API int snib_lock_force_release(snib_lock *lock, snib_error *err);
SNIB_API int snib_lock_force_release_submit(snib_lock *lock, snib_queue *queue, uint64_t token,
                                            snib_op **out_op, snib_error *err);

/* ---- Holds -------------------------------------------------------------------------------------- */

enum snib_state {
    SNIB_HOLD_VALID = 0,   /* safe */
    SNIB_HOLD_AT_RISK = 1, /* still safe, but renewal is overdue, the connection is down, a server that was
                              restarted or took over has not confirmed it yet, or the server's clock has
                              jumped since the lease began; of a lock of several clients: fewer members than
                              it needs are free of such a doubt */
    SNIB_HOLD_LOST = 2,    /* no longer safe; this is final */
    SNIB_HOLD_RELEASED = 3 /* released by the program */
};

enum snib_reason {
    SNIB_REASON_NONE = 0,
    SNIB_REASON_EXPIRED = 1,     /* a fixed lease ended */
    SNIB_REASON_TAKEN = 2,       /* the server reports another owner */
    SNIB_REASON_DELETED = 3,     /* the server reports that the lock is gone */
    SNIB_REASON_UNREACHABLE = 4, /* the lease could not be renewed in time */
    SNIB_REASON_MAX_HOLD = 5,    /* max_hold_ms has passed */
    SNIB_REASON_CLOSED = 6,      /* the client was closed */
    SNIB_REASON_FAILOVER = 7     /* another server took over and does not know the hold */
};

SNIB_API const char *snib_reason_text(int32_t reason); /* "expired", "taken", ...; static */

/* snib_hold_state - the hold's state by this machine's clock, accurate at the moment of the call.
 *
 * A hold is lost from its deadline on: the time just before the last confirmed request was sent + lease * 0.99 - 5 ms,
 * on a clock that counts suspended time; or earlier if the server reports the loss.
 *
 * out_reason  enum snib_reason, if not NULL.
 * Returns  enum snib_state (>= 0), SNIB_EHANDLE, SNIB_EFORKED.
 */
SNIB_API int snib_hold_state(snib_hold *hold, int32_t *out_reason);

/* snib_hold_check - check that the hold is not lost.
 * Returns  SNIB_OK while the hold is valid or at risk, SNIB_LOST with a sentence that says why, SNIB_NOT_HELD
 *          after the release, SNIB_EHANDLE, SNIB_EFORKED. */
SNIB_API int snib_hold_check(snib_hold *hold, snib_error *err);

/* snib_hold_remaining_ms - milliseconds until the current deadline; 0 when lost or released;
 * INT64_MAX if it has none (semaphore); negative: an error code. */
SNIB_API int64_t snib_hold_remaining_ms(snib_hold *hold);

/* snib_hold_token - the fencing token; 0 if the lock has none; negative: an error code. */
SNIB_API int64_t snib_hold_token(snib_hold *hold);

/* snib_hold_replicas - the number of replicas that had the grant when it was made, of a lock of several clients the
 * smallest such number of its members; 0 without the option durability; negative: an error code. */
SNIB_API int64_t snib_hold_replicas(snib_hold *hold);

/* snib_hold_owner - the owner text on the wire, "<client uuid>:<number>", with a NUL, into out[128].  A hold that another
 * waiter of this process got directly from this one may have the same.
 * If the lock is of several clients, or of members that one command cannot take, no server has this text: each member
 * has its own. */
SNIB_API int snib_hold_owner(snib_hold *hold, char out[128], snib_error *err);

/* snib_hold_wait - block until the hold is lost or released.
 * Blocks   for at most timeout_ms (-1: no limit).
 * Returns  SNIB_LOST with *out_reason, SNIB_NOT_HELD after a release, SNIB_TIMEDOUT after timeout_ms,
 *          SNIB_AGAIN when a signal handler ran, or when a re-entered hold was released once and its owner still has
 *          it; SNIB_EHANDLE when the handle is freed meanwhile, or an error. */
SNIB_API int snib_hold_wait(snib_hold *hold, int64_t timeout_ms, int32_t *out_reason,
                            snib_error *err);

/* snib_hold_release - release the lock and wake a waiter.
 *
 * Renewal ends before the release is sent.  An inner release of a re-entered hold is counted locally and
 * sends nothing.
 *
 * Blocks   until the server has replied, for at most the client's patience.
 * Returns  SNIB_OK      released.  Also if, after a reconnect, the server no longer knows the hold and the
 *                       lease cannot have ended: then the first attempt released it.
 *          SNIB_LOST    the lock was no longer held when the release arrived; another owner may have had it.
 *          SNIB_NOT_HELD  the hold was released before.
 *          SNIB_EUNREACHABLE  no reply; the client retries until the lease has ended.
 *          SNIB_ECONNECT  no connection, so nothing was sent; the client retries likewise.
 *          SNIB_EPERMITS      a semaphore's number would become too large: nothing was put back.
 *          SNIB_EPERM, ...    the server refused it; the client retries until the lease has ended.
 */
SNIB_API int snib_hold_release(snib_hold *hold, snib_error *err);

/* Like snib_lock_acquire_submit().  queue and out_op may both be NULL: then the result is not reported. */
SNIB_API int snib_hold_release_submit(snib_hold *hold, snib_queue *queue, uint64_t token,
                                      snib_op **out_op, snib_error *err);

/* Like snib_lock_acquire_begin(): blocks for at most slice_ms, then returns SNIB_AGAIN with *out_op. */
SNIB_API int snib_hold_release_begin(snib_hold *hold, int64_t slice_ms, snib_queue *queue,
                                     uint64_t token, snib_op **out_op, snib_error *err);

/* snib_hold_extend - give a live hold another lease, counted from now.
 *
 * lease_ms  100 to 86400000: fixed; nothing renews it.  0: the client's lease, renewed from now on.
 *
 * The lock is held for at least as long as it would have been: a shorter lease only ends the renewal, and a
 * client that dies keeps the lock at the server until the longer lease ends.  With 0 the hold counts with the client's
 * lease from now on, even if its fixed one was longer: if the server falls silent, it is lost by then.  max_hold_ms
 * still applies.
 *
 * A lock on several servers gets the lease when all of them, or the majority of a quorum, have granted it; until
 * then, and if they do not, each keeps what it had.
 *
 * Blocks   until the server has replied, for at most the client's patience and until the hold is lost.
 * Returns  SNIB_OK      the server has the new lease; see snib_hold_remaining_ms().
 *          SNIB_LOST    the hold was or has just been lost; err->reason says why.
 *          SNIB_NOT_HELD  it was released.
 *          SNIB_ELEASE   out of range, or a quorum lock by more than the lease that it was made for: its servers may
 *                        vote again after that time if they lose their memory (see SNIB_LOCK_NO_QUARANTINE).
 *          SNIB_ENOTSUP  a semaphore's permits; or a broken connection could not be ended at the server, and a request
 *                        that was left on it may shorten the lease: see the message.
 *          SNIB_EUNREACHABLE, SNIB_ECONNECT, SNIB_EPERM, ...  not confirmed: the hold keeps the lease that it had, and is
 *                       lost or renewed as if nothing had been asked.  The server may have the longer one.
 */
SNIB_API int snib_hold_extend(snib_hold *hold, int64_t lease_ms, snib_error *err);

/* Like snib_lock_info_submit() and snib_hold_release_begin(); the event has no hold. */
SNIB_API int snib_hold_extend_submit(snib_hold *hold, int64_t lease_ms, snib_queue *queue,
                                     uint64_t token, snib_op **out_op, snib_error *err);
SNIB_API int snib_hold_extend_begin(snib_hold *hold, int64_t lease_ms, int64_t slice_ms,
                                    snib_queue *queue, uint64_t token, snib_op **out_op,
                                    snib_error *err);

/* snib_hold_free - free the handle.  NULL is allowed.  A hold that is still held is released without
 * waiting for the reply; call snib_hold_release() first if you need the result.  If a lost hold may still exist on
 * the server, it is released there.  After a re-entry the handle is reference-counted: each successful acquire
 * needs one release and one free.  A re-entry that is freed without its release still counts, so that the owner's other
 * releases return SNIB_OK and change nothing; the last free then releases the lock. */
SNIB_API void snib_hold_free(snib_hold *hold);

/* snib_hold_abandon - free the handle of a hold that was dropped without a release.
 *
 * For bindings whose garbage collector finds a hold that is still held: code may still work under it, so nothing
 * is released.  Renewal ends immediately, no SNIB_EVENT_LOST will arrive, and the lock is free when the lease has
 * ended at the server; until then every client waits for it, including this one.  A write lock whose owner also
 * reads stays taken until that read has ended, too.  A semaphore has no lease: its permits stay taken.  A log record of
 * level SNIB_LOG_WARNING names the lock, and the statistics count it.
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
                            of the first acquire there and after its grant; never after a release */
    SNIB_EVENT_LOG = 3,  /* a log record, see snib_client_log() */
    SNIB_EVENT_CREDENTIALS = 4 /* a request for credentials, see snib_client_credentials() */
};

/* The texts of an event: `count` of them, starting at `text`, each ended by a NUL. */
typedef struct snib_texts {
    uint64_t cursor; /* list: where to continue; 0: this was the last step */
    uint64_t used;   /* bytes, including the NULs */
    uint32_t count;
    uint32_t reserved;
    const char *text;
} snib_texts;

/* snib_texts_free - free the texts of an event.  NULL is allowed. */
SNIB_API void snib_texts_free(snib_texts *texts);

/* A plain value: only `texts` and the hold of a successful acquire need to be freed.  Every text is
 * UTF-8 without control characters, whatever the server stores. */
typedef struct snib_event {
    uint32_t size;
    int32_t kind;    /* enum snib_event_kind */
    int32_t code;    /* DONE: the operation's result */
    int32_t reason;  /* LOST, and DONE with SNIB_LOST: enum snib_reason;  LOG: enum snib_log_level */
    uint64_t token;  /* of the submit; CREDENTIALS: of the request */
    snib_hold *hold; /* DONE of an acquire with SNIB_OK: the hold, owned by the caller.  LOST: which hold */
    snib_texts *texts; /* DONE of a list, describe or identity with SNIB_OK: owned by the caller, see snib_texts_free() */
    int64_t fencing; /* the fencing token or 0 */
    int64_t remaining_ms; /* acquire: until the deadline.  info: lease left */
    int64_t count;        /* info: hold count.  A count: its value.  LOG: the records dropped before it.  A list that
                             failed: see snib_client_list_submit() */
    int64_t waiting;      /* info: waiting processes */
    int32_t held;         /* info: see snib_lock_info_data */
    int32_t mine;         /* info: likewise */
    int32_t os_error;
    int32_t server; /* DONE: an error's, see snib_error */
    char text[496]; /* an error's sentence; info: the owner; LOG: the message */
} snib_event;

/* snib_op_wait - wait for an operation that was submitted or begun without a queue.
 *
 * Blocks   for at most timeout_ms (-1: no limit).
 * Returns  SNIB_OK with *out_event (the operation's result is out_event->code; the handle has been freed);
 *          SNIB_AGAIN after timeout_ms or when a signal handler ran: the operation continues;
 *          SNIB_EINVAL if it has a queue; SNIB_EINUSE if another thread is in this call for it; SNIB_EHANDLE;
 *          SNIB_EFORKED.
 */
SNIB_API int snib_op_wait(snib_op *op, int64_t timeout_ms, snib_event *out_event, snib_error *err);

/* snib_op_cancel - end an operation now, unless it has already ended.
 *
 * Atomic with completion: SNIB_OK means that the operation ended as SNIB_CANCELLED (its event still arrives) and will
 * not give the caller the lock; if the server still grants it, the client releases it.  A change of a count may have
 * been made all the same.
 * SNIB_EHANDLE means that the result was already there: it has been or will be delivered as usual.
 * A release cannot be cancelled: the caller stops waiting, but the release continues.
 */
SNIB_API int snib_op_cancel(snib_op *op);

/* snib_op_free - discard an operation without a queue: cancel it if it is running, release what it acquired.  If a
 * thread is in snib_op_wait() for it, that call returns, with the result. */
SNIB_API void snib_op_free(snib_op *op);

/* ---- Queues ------------------------------------------------------------------------------------- */

/* snib_queue_new - create a queue of events, for one loop, thread or goroutine at a time.
 * Owns     free with snib_queue_free(). */
SNIB_API int snib_queue_new(snib_client *client, snib_queue **out_queue, snib_error *err);

/* snib_queue_fd - a non-blocking file descriptor that is readable when the queue may have events: then drain it; if
 * you poll for edges (EPOLLET), until that returns 0.  It may return 0 the first time, because whoever drains a queue
 * also reads the server's replies for it, which saves waking the background thread; if no drain comes, the thread
 * reads them soon.  The queue owns the descriptor: poll it, but do not read, write or close it.  The child of a fork
 * does not have it.
 * Returns  the descriptor, or an error code. */
SNIB_API int snib_queue_fd(snib_queue *queue, snib_error *err);

/* snib_queue_drain - take up to cap events, and at most 64, out of the queue: first losses, then results, log records and
 * requests for credentials, of each kind the oldest first.
 *
 * Threads that drain at the same time, because a poll has woken several, get different events; of one hold, they may
 * then see the loss before the grant.
 *
 * Returns  their number (0: none), SNIB_EINUSE if another thread is in snib_queue_wait(), or an error. */
SNIB_API int snib_queue_drain(snib_queue *queue, snib_event *events, uint32_t cap, snib_error *err);

/* snib_queue_wait - the same, for one thread at a time, but block until there is an event, timeout_ms has passed
 * (-1: no limit), a signal handler has run or snib_queue_wake() was called; without an event, return 0. */
SNIB_API int snib_queue_wait(snib_queue *queue, snib_event *events, uint32_t cap,
                             int64_t timeout_ms, snib_error *err);
SNIB_API int snib_queue_wake(snib_queue *queue);

/* snib_queue_cork, snib_queue_uncork - send together what one iteration of a loop submits.
 *
 * While a queue is corked, submitted operations may be collected; uncork sends them.  For a loop that
 * submits many operations per iteration: cork after the drain, uncork at the end.  Never leave a queue
 * corked while the loop sleeps.  Corking is only a hint: if the uncork does not come in 20 ms, because the
 * iteration takes long or waits for something, the client's thread sends what was collected.
 * Returns  SNIB_OK, SNIB_EHANDLE or SNIB_EFORKED. */
SNIB_API int snib_queue_cork(snib_queue *queue);
SNIB_API int snib_queue_uncork(snib_queue *queue);

/* snib_queue_free - free the queue.  NULL is allowed.  Its running operations are cancelled; holds and texts in
 * undrained events are released and freed; other holds continue, without events.  A snib_queue_wait() in progress is
 * woken and ends first. */
SNIB_API void snib_queue_free(snib_queue *queue);

/* ---- Log ---------------------------------------------------------------------------------------- */

enum snib_log_level {
    SNIB_LOG_NONE = 0,
    SNIB_LOG_ERROR = 1,
    SNIB_LOG_WARNING = 2,
    SNIB_LOG_INFO = 3
};

/* snib_client_log - send log records of this level and more severe ones to a queue as SNIB_EVENT_LOG.  At most 256
 * wait there, and at most 16 of what happens at one moment, such as the loss of all holds; older ones are dropped, and
 * the next record gives their number in `count`.  queue NULL or level NONE: stop. */
SNIB_API int snib_client_log(snib_client *client, snib_queue *queue, int32_t level,
                             snib_error *err);

/* ---- Finding mistakes --------------------------------------------------------------------------- */

/* snib_debug_here - say where in the program the next call of this thread is, and for whom.
 *
 * A client with the option debug looks for mistakes in the use of locks, and reports each once (but each hold that is
 * abandoned), as a log record of level SNIB_LOG_WARNING that begins with "debug: " and names the places in the
 * program:
 *
 *     - locks that are taken in different orders, so that callers can wait for each other for ever; found before that
 *       happens, among all clients of the process that have the option, and within some seconds among all processes that
 *       have such clients of the same database: then each is told, with the program, process and machine of each place.
 *       Clients without the option identity keep to their process.  Attempts that do not wait are in no order, nor are
 *       semaphores; readers do not wait for readers, unless the process has a write lock of that name made with
 *       SNIB_LOCK_PREFER_WRITER.
 *     - a caller that has waited for a second for a lock that it holds itself
 *     - a hold that is older than debug_hold_ms
 *     - holds that are still held when their client is closed, or that are abandoned
 *
 * Reports about holds say who acquired them, too, and so do answers of snib_client_identity() about the client.
 *
 * Clients without the option do none of this, and cost nothing more.  snib_client_stats() counts what was found.
 *
 * Orders are exchanged in the background, by one request when a process has a new one, and one every 5 s from then on;
 * no call waits for that.  They are kept in the string snib_client:{orders}, at most 64 KiB of them, each until 60 s after
 * the last process that takes locks in that order has written it.
 *
 * With SNIB_DEBUG_PLACES defined before this header is included, every acquisition gives its own file and line, and so
 * do the calls that open clients and make locks: of those that were never freed, the process writes the places to its
 * standard error when it exits, as it does with what else is found then, unless nobody reads there: it waits for no
 * reader.  Bindings call this function themselves.
 *
 * place  such as "orders.c:31 in pay()"; copied without its folders, at most 71 bytes of it.  NULL: not known.
 *        A second line says who acquires, such as "task 7", at most 47 bytes; an empty one: it has no name.  Without a
 *        second line it is the calling thread, by its name and number: "thread worker (4711)".
 * actor  what acquires: any number that the caller chooses, for example of a task; 0: the calling thread.  The actor
 *        that acquired a lock holds it. */
SNIB_API void snib_debug_here(const char *place, uint64_t actor);

#ifdef SNIB_DEBUG_PLACES
#define SNIB_DEBUG_TEXT_(line) #line
#define SNIB_DEBUG_TEXT(line) SNIB_DEBUG_TEXT_(line)
#define SNIB_DEBUG_HERE() snib_debug_here(__FILE__ ":" SNIB_DEBUG_TEXT(__LINE__), 0)
#define snib_client_open(...) (SNIB_DEBUG_HERE(), snib_client_open(__VA_ARGS__))
#define snib_lock_new(...) (SNIB_DEBUG_HERE(), snib_lock_new(__VA_ARGS__))
#define snib_multi_new(...) (SNIB_DEBUG_HERE(), snib_multi_new(__VA_ARGS__))
#define snib_quorum_new(...) (SNIB_DEBUG_HERE(), snib_quorum_new(__VA_ARGS__))
#define snib_lock_acquire(...) (SNIB_DEBUG_HERE(), snib_lock_acquire(__VA_ARGS__))
#define snib_lock_acquire_begin(...) (SNIB_DEBUG_HERE(), snib_lock_acquire_begin(__VA_ARGS__))
#define snib_lock_acquire_submit(...) (SNIB_DEBUG_HERE(), snib_lock_acquire_submit(__VA_ARGS__))
#define snib_permits_acquire(...) (SNIB_DEBUG_HERE(), snib_permits_acquire(__VA_ARGS__))
#define snib_permits_acquire_begin(...) (SNIB_DEBUG_HERE(), snib_permits_acquire_begin(__VA_ARGS__))
#define snib_permits_acquire_submit(...)                                                           \
    (SNIB_DEBUG_HERE(), snib_permits_acquire_submit(__VA_ARGS__))
#define snib_semaphore_acquire(...) (SNIB_DEBUG_HERE(), snib_semaphore_acquire(__VA_ARGS__))
#define snib_semaphore_acquire_begin(...)                                                          \
    (SNIB_DEBUG_HERE(), snib_semaphore_acquire_begin(__VA_ARGS__))
#define snib_semaphore_acquire_submit(...)                                                         \
    (SNIB_DEBUG_HERE(), snib_semaphore_acquire_submit(__VA_ARGS__))
#endif

#ifdef __cplusplus
}
#endif
#endif
