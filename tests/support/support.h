/* support.h - what the live and fault tests share: a private server, a hostile proxy, short forms
 * of snib.h.
 *
 * Every function here fails the running test with a message if it cannot do its work, so that tests
 * read as a list of what must be true.  Helpers whose name begins with must_ expect SNIB_OK.
 */
#ifndef SNIB_TESTS_SUPPORT_H
#define SNIB_TESTS_SUPPORT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include <cmocka.h> /* wants the above */

#include <hiredis/hiredis.h>
#include <snib.h>

/* ---- Time ------------------------------------------------------------------------------------ */

int64_t now_ns(void); /* CLOCK_BOOTTIME, the clock that holds are judged by */
int64_t now_ms(void);
void nap_us(int64_t us);

/* Wait limits are given for an idle machine.  A slow or busy one gets ten times as long, but at
 * most 14 s more, lest a key that was left behind go unnoticed when its lease of 30 s ends. */
int64_t patient_ms(int64_t limit_ms);

/* Wait until a condition holds; fail the test if it does not within the limit, see patient_ms(). */
#define AWAIT(condition, limit_ms)                                                                 \
    do {                                                                                           \
        int64_t await_end = now_ms() + patient_ms(limit_ms);                                       \
        while (!(condition)) {                                                                     \
            if (now_ms() > await_end)                                                              \
                fail_msg("not within %d ms: %s", (int)(limit_ms), #condition);                     \
            nap_us(500);                                                                           \
        }                                                                                          \
    } while (0)

/* End a case that cannot judge on this machine: cmocka counts it as passed, ./dev test lists it with the reason. */
#define skip_because(reason)                                                                       \
    do {                                                                                           \
        print_message("          skipped: %s\n", reason);                                          \
        skip();                                                                                    \
    } while (0)

/* Full counts take minutes and are used only with SNIB_TEST_ALL=1. */
int count_of(int all, int by_default);

/* ---- Ports -----------------------------------------------------------------------------------
 *
 * Reserved for this process, so that no other test takes one before its server does. */

struct ports {
    int lock, next, end;
};

void ports_begin(struct ports *ports);
int ports_take(struct ports *ports); /* a port that was not taken before */
void ports_end(struct ports *ports);
int free_port(void); /* one of the process' own, in turn; the port 10,000 higher is free, too */

/* ---- Server ---------------------------------------------------------------------------------- */

struct server {
    pid_t pid;
    char dir[64];
    char socket[96];
    char url[160];
    char binary[256];
    char *arguments[16]; /* further arguments, kept for a restart */
    redisContext *admin;
    int tls_port; /* 0: without TLS */
};

/* The program: $SNIB_TEST_SERVER, else redis-server or valkey-server on PATH. */
void server_binary(char out[256]);
/* Start a private server on a unix socket in a new folder.  Arguments end with NULL. */
void server_start(struct server *server, ...);
void server_stop(struct server *server);
void server_down(struct server *server);    /* kill -9; restart or stop it afterwards */
void server_restart(struct server *server); /* kill -9, then start again with nothing in memory */
void server_pause(struct server *server);   /* SIGSTOP, and wait until it has stopped */
void server_continue(struct server *server);

/* The folder of certificates, see certs.sh; it is removed when the program ends. */
const char *server_certs(void);

/* Commands as for redisCommand(); the caller frees a reply.  An error reply fails the test. */
redisReply *server_command(struct server *server, const char *format, ...);
long long server_integer(struct server *server, const char *format, ...);
void server_do(struct server *server, const char *format, ...);
bool server_is_empty(struct server *server); /* no key in any database, but clients' identities */
long long server_channels(struct server *server); /* channels that have a subscriber */
long long server_calls(struct server *server, const char *command); /* by INFO commandstats */
long long server_expired(struct server *server); /* keys whose time to live has ended so far */

/* The names of all keys of database 0 but clients' identities, sorted, separated by newlines; the caller frees the text. */
char *server_keys(struct server *server);

/* The SHA-1 of core/lua/<name>.lua as the library loads it, loaded into this server too. */
void server_script(struct server *server, const char *name, char out_sha1[41]);

/* ---- Proxy ----------------------------------------------------------------------------------- */

enum direction { TO_SERVER = 0, TO_CLIENT = 1 };
enum cut_mode { CUT_FIN = 0, CUT_RST = 1 };

struct record { /* one command as it passed */
    int64_t at_ns;
    int link;
    int argc;
    char **argv;
};

enum bar { BAR_NONE, BAR_CLOSED, BAR_SILENT };

struct proxy;
struct proxy *
proxy_start(const char *server_socket); /* TCP on a free port in front of a unix socket */
void proxy_stop(struct proxy *proxy);
const char *proxy_url(const struct proxy *proxy);
void proxy_delay(struct proxy *proxy, enum direction direction, int64_t ms);
/* Pass on at most so many bytes at once, in both directions, and no sooner than gap_us after those
 * before them.  0: as they come. */
void proxy_slice(struct proxy *proxy, size_t bytes, int64_t gap_us);
void proxy_stall(struct proxy *proxy, enum direction direction, bool on);
/* The same for one link, by its number in the records, and no more than that. */
void proxy_stall_link(struct proxy *proxy, int link, bool to_server, bool to_client);
void proxy_drop_messages(struct proxy *proxy, bool on);  /* for links that are opened after this */
void proxy_stall_messages(struct proxy *proxy, bool on); /* of links that have subscribed */
/* No subscription comes about: who asks for one is cut off, or hears nothing more. */
void proxy_bar_messages(struct proxy *proxy, enum bar bar);
/* Shift the server's clock in replies to TIME, on links that are opened after the first call. */
void proxy_set_clock(struct proxy *proxy, int64_t ahead_s);
/* End all links, and every new one immediately; on return the old ones have ended. */
void proxy_refuse(struct proxy *proxy, bool on);

/* Let `bytes` more bytes of command links pass in one direction, then end the link that carried
 * the last one: towards the client by FIN or RST, towards the server by an end of file. */
void proxy_cut(struct proxy *proxy, enum direction direction, int64_t bytes, enum cut_mode mode);
/* End the command link towards the client after the next request; deliver that request only by
 * proxy_let_go(). */
void proxy_hold_back(struct proxy *proxy);
void proxy_let_go(struct proxy *proxy);
int proxy_cuts(struct proxy *proxy); /* how many cuts have happened */

/* Pass on whole commands and replies only, on links that are opened after this. */
void proxy_read_along(struct proxy *proxy, bool on);
/* The nth command from now on (1: the next) whose first or second argument is `word` is answered by `error`,
 * a line such as "ERR no": instead of the server's answer, or (executed false) without asking the server. */
void proxy_spoil(struct proxy *proxy, const char *word, int nth, bool executed, const char *error);
int proxy_spoilt(struct proxy *proxy); /* how many answers were replaced so far */

void proxy_forget(struct proxy *proxy); /* drop the records so far */
size_t proxy_record_count(struct proxy *proxy);
const struct record *proxy_record(struct proxy *proxy,
                                  size_t index);               /* valid until proxy_forget() */
bool record_is(const struct record *record, const char *sha1); /* EVALSHA of this script */
bool record_names(const struct record *record, const char *argument); /* it carries the argument */

/* ---- Short forms ----------------------------------------------------------------------------- */

/* Fail unless a call returned `want`; the message gives both codes and the error's text. */
void expect_code_at(int got, int want, const snib_error *err, const char *file, int line);
#define EXPECT(call, want)                                                                         \
    do {                                                                                           \
        snib_error expect_err = {0};                                                               \
        snib_error *err = &expect_err;                                                             \
        expect_code_at((call), (want), err, __FILE__, __LINE__);                                   \
    } while (0)

snib_client *must_open(const char *url);
snib_client *must_open_lease(const char *url, int64_t lease_ms);
snib_client *must_open_recheck(const char *url, int64_t lease_ms, int64_t recheck_ms);
snib_lock *must_lock(snib_client *client, const char *name); /* a mutex */
snib_lock *must_lock_kind(snib_client *client, int32_t kind, const char *name);
snib_lock *must_lock_with(snib_client *client, int32_t kind, const char *name,
                          const snib_lock_options *options);
snib_lock *must_lock_lease(snib_client *client, const char *name, int64_t lease_ms,
                           int64_t max_hold_ms);
snib_hold *must_acquire(snib_lock *lock, int64_t wait_ms);
snib_hold *must_acquire_as(snib_lock *lock, uint64_t owner, int64_t wait_ms);
/* One of snib_permits_count(), snib_semaphore_count() and snib_latch_count(), by the lock's kind. */
int64_t must_count(int32_t kind, snib_lock *lock, int32_t what, int64_t n);
void must_release(snib_hold *hold); /* and free */
/* A hold at risk must become valid again within the limit; a lost one fails the test at once. */
void must_be_valid(snib_hold *hold, int64_t limit_ms);
snib_client_stats_data must_stats(snib_client *client);
snib_queue *must_queue(snib_client *client);
/* The next event of the queue, awaited for at most limit_ms. */
snib_event must_event(snib_queue *queue, int64_t limit_ms);
extern void (*before_silence)(
    void); /* called before must_event() fails for want of one; NULL: nothing is */
/* The result of an operation without a queue, awaited for at most limit_ms. */
snib_event must_end(snib_op *op, int64_t limit_ms);

/* The first two clients take turns at a fair lock, and one of them always waits: the third has its turn, too, after it has
 * asked a few times. */
void must_have_its_turn(snib_client *const clients[3], const char *name);

/* One handle of each kind, for codes that every function must return alike. */
struct handles {
    snib_client *client;
    snib_lock *lock; /* a mutex */
    snib_hold *hold;
    snib_op *op;
    snib_queue *queue;
    snib_lock *permits, *semaphore, *latch;
};
enum {
    CLIENT_CALLS = 1,
    LOCK_CALLS = 2,
    HOLD_CALLS = 4,
    OP_CALLS = 8,
    QUEUE_CALLS = 16,
    ALL_CALLS = 31
};

/* Call every function on these kinds of handle.  Returns the first call that did not give the code
 * `want`, as text; NULL if all did.  Fails no test itself, so that a forked child may use it. */
const char *calls_answer(const struct handles *handles, unsigned kinds, int want);
void handles_locks(struct handles *handles, const char *name); /* all locks, of handles->client */
void handles_free(const struct handles *handles);

/* What the server stores: the number of fields, and the first field with its count. */
void expect_held_by(struct server *server, const char *name, const char *owner);
void expect_free(struct server *server, const char *name);

#endif
