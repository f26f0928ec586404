/* cli.h - shared by the parts of the snib command, which uses only the public API. */
#ifndef SNIB_CLI_H
#define SNIB_CLI_H

#include "snib.h"

#include <stdbool.h>
#include <stdint.h>
#include <wchar.h>

/* snib's own exit codes.  Those below 121 are COMMAND's; from 126 on they follow the shells. */
enum cli_exit {
    EXIT_NOTHING = 1,    /* release: nothing was held */
    EXIT_SET_BEFORE = 1, /* latch set: it was set already */
    EXIT_FINDINGS = 1,   /* doctor: something should be changed */
    EXIT_TOO_FEW = 1,    /* plan: more servers are needed */
    EXIT_BUSY = 121,     /* run, hold --wait 0: the lock is held */
    EXIT_TIMEDOUT = 122, /* run, hold: the wait ended */
    EXIT_LOST = 123,     /* run: the lock was lost while COMMAND ran; hold: it was lost */
    EXIT_SERVER = 124,   /* the server is unreachable or answered with an error */
    EXIT_USAGE = 125,    /* bad arguments, or an internal failure */
    EXIT_NOT_RUNNABLE = 126,
    EXIT_NOT_FOUND = 127,
    EXIT_SIGNAL = 128 /* + the signal's number */
};

enum cli_on_loss { ON_LOSS_TERM, ON_LOSS_KILL, ON_LOSS_IGNORE };
enum cli_rest { REST_END, REST_WAIT, REST_IGNORE };

/* The numbers that plan takes, in the order of their options. */
enum cli_plan {
    PLAN_LOCKS,
    PLAN_CLIENTS,
    PLAN_RATE,
    PLAN_CONTENDED,
    PLAN_WAITERS,
    PLAN_SHARDS,
    PLAN_REPLICAS,
    PLAN_QUORUM,
    PLAN_SERVER_SPEED,
    PLAN_N
};

#define CLI_NAMES_MAX 100
#define CLI_URLS_MAX 15

struct cli {
    const char *url;
    const char *urls
        [CLI_URLS_MAX]; /* run, hold: the servers of a quorum; scripts: all servers; `url` is the first */
    int urls_n;         /* --url was given so often */
    const char *
        name; /* the lock, list's, top's and stats's pattern, doctor's and acl's prefix; NULL if not given */
    /* run, hold: all names, of which `name` is the first; latch: its name and the words after it */
    const char *names[CLI_NAMES_MAX];
    int names_n;
    char **command;        /* run: argv of COMMAND, ended by NULL; NULL if not given */
    int64_t wait_ms;       /* run, hold: -1 no limit */
    int64_t lease_ms;      /* run, hold: 0 the default */
    int64_t max_hold_ms;   /* run, hold: 0 the URL's */
    int64_t kill_after_ms; /* run: from SIGTERM to SIGKILL */
    int64_t permits;       /* run, hold: their total number; 0 if not given */
    int64_t interval_ms;   /* top: between two refreshes */
    int64_t limit;         /* top, stats: locks that are shown */
    const char *output;    /* stats: the file; NULL: standard output */
    int64_t plan[PLAN_N];  /* plan: in thousandths; 0: not given, or none */
    int32_t kind;          /* enum snib_kind; run, hold: SNIB_MUTEX if not given, release: 0 */
    uint32_t kinds;        /* scripts: a bit for each enum snib_kind; 0: all */
    uint32_t flags;        /* SNIB_LOCK_* */
    int busy_code;         /* instead of EXIT_BUSY and EXIT_TIMEDOUT; -1: not given */
    enum cli_on_loss on_loss;
    enum cli_rest rest;
    bool keeps_password; /* run: COMMAND inherits it */
    bool has_url;        /* given by --url or SNIB_URL */
    bool is_json;
    bool is_forced;
    bool is_once;    /* top */
    bool is_durable; /* plan */
    bool is_quiet;   /* do not say that the lock is not free */
    bool is_verbose;
};

/* The commands.  Each returns the exit code. */
int cli_run(const struct cli *cli);
int cli_hold(const struct cli *cli);
int cli_info(const struct cli *cli);
int cli_list(const struct cli *cli);
int cli_top(const struct cli *cli);
int cli_stats(const struct cli *cli);
int cli_release(const struct cli *cli);
int cli_doctor(const struct cli *cli);
int cli_acl(const struct cli *cli);
int cli_latch(const struct cli *cli);
int cli_plan(const struct cli *cli);
int cli_scripts(const struct cli *cli);

/* scripts_take_kind - take a kind of scripts; returns 0, or an exit code after reporting the error. */
int scripts_take_kind(const char *value, struct cli *cli);

/* plan_take - take one of plan's numbers; returns 0, or an exit code after reporting the error. */
int plan_take(int which, const char *value, struct cli *cli);

/* cli_read_ms - read a time such as "10", "1.5s", "250ms" or "1h30m": seconds, or decimal numbers with
 * the units d, h, m, s, ms in this order.  Returns milliseconds, or -1 if it is none. */
#define CLI_TIME_MAX_MS 86400000
int64_t cli_read_ms(const char *text);

/* cli_read_number - read a number from min to max; -1 if it is none. */
int64_t cli_read_number(const char *text, int64_t min, int64_t max);

/* cli_read_thousandths - read a decimal number such as "20000" or "0.5"; returns thousandths, or -1 if it is none. */
int64_t cli_read_thousandths(const char *text);

/* cli_now_ns - CLOCK_BOOTTIME. */
#define MS_NS 1000000LL
#define SECOND_NS 1000000000LL
int64_t cli_now_ns(void);

/* cli_open - open a client as the command line says; returns 0, or an exit code after reporting the
 * error. */
int cli_open(const struct cli *cli, snib_client **out_client);

/* cli_open_quietly - another client, without a log; as cli_open(). */
int cli_open_quietly(const struct cli *cli, snib_client **out_client);

/* cli_open_at - the same for another server. */
int cli_open_at(const struct cli *cli, const char *url, snib_client **out_client);

/* cli_open_durable - another client, whose grants wait for one replica and say whether it had them;
 * SNIB_OK or the error's code. */
int cli_open_durable(const struct cli *cli, snib_client **out_client, snib_error *err);

/* cli_log_so_far - report the log records of cli_open()'s client that have come. */
void cli_log_so_far(const struct cli *cli);

/* cli_close - report the remaining log records, and free the client. */
void cli_close(const struct cli *cli, snib_client *client);

/* cli_log - report a log record of the client of this URL, which is named if there are several. */
void cli_log(const struct cli *cli, const char *url, const snib_event *record);

/* cli_open_lock - a lock as the command line says, but of this kind and name; as cli_open(). */
int cli_open_lock(const struct cli *cli, snib_client *client, int32_t kind, const char *name,
                  snib_lock **out_lock);

/* cli_open_all - one lock that takes all of these n or none; as cli_open(). */
int cli_open_all(const struct cli *cli, snib_lock *const *locks, int n, snib_lock **out_lock);

/* cli_open_quorum - one lock that takes most of these n, each on a server of its own; as cli_open(). */
int cli_open_quorum(const struct cli *cli, snib_lock *const *locks, int n, snib_lock **out_lock);

/* cli_usage - report a usage error, `what` followed by the argument `which`, if not NULL, and return its exit code. */
int cli_usage(const struct cli *cli, const char *what, const char *which);

/* cli_fail - report an error on stderr and return its exit code. */
int cli_fail(const struct cli *cli, const snib_error *err);

/* cli_fail_errno - the same for a failed system call. */
int cli_fail_errno(const struct cli *cli, const char *what);

/* cli_tell - write one line to stderr: "snib: text", or an object with --json. */
void cli_tell(const struct cli *cli, const char *event, const char *text);

/* cli_tell_briefly - from now on drop a message that nobody reads soon: a write to a terminal after Ctrl-S, or to a pipe
 * that is full, does not return, and meanwhile snib would act on neither a loss nor a signal. */
void cli_tell_briefly(void);

/* cli_tell_held - the same for a granted lock; token 0: it has none. */
void cli_tell_held(const struct cli *cli, const char *text, int64_t token);

/* cli_print_json - print a value as one line, and free it. */
struct cJSON;
void cli_print_json(struct cJSON *object);

/* cli_add_number - add an exact number: a token may be too large for a double.  CLI_UNTOLD is left out. */
void cli_add_number(struct cJSON *object, const char *name, int64_t value);

/* cli_add_number_or_null - the same, but CLI_UNTOLD and -1 are null. */
void cli_add_number_or_null(struct cJSON *object, const char *name, int64_t value);

/* What the server knows about one name.  Numbers that it did not report are CLI_UNTOLD. */
#define CLI_UNTOLD INT64_MIN

struct description {
    char text[1 << 16]; /* as snib_client_describe() gives it */
    size_t used;
    const char *kind;
    int64_t token;
    int64_t available;
    int64_t total;
    int64_t count;
    int64_t waiting;
    int64_t more;
};

/* One of its rows: "holder", "reader", "permit" or "waiter". */
struct row {
    char word[8];
    char owner[512]; /* or the permit's id */
    int64_t left_ms; /* until the lease, or a waiter's place, ends; -1 never */
    int64_t count;   /* holder, reader; else 1 */
};

/* cli_describe - ask for a description; returns 0 or a negative code. */
int cli_describe(snib_client *client, const char *name, struct description *out, snib_error *err);

/* cli_read_description - the same from the event of an operation. */
void cli_read_description(const snib_texts *texts, struct description *out);

/* cli_listed_kind - the kind of a name that was found by snib_client_list(), from the result of cli_describe(); NULL:
 * there is no such lock any more. */
const char *cli_listed_kind(const char *name, int result, const struct description *description);

/* cli_next_row - the row after *at, which is NULL at first; false if there is none. */
bool cli_next_row(const struct description *description, const char **at, struct row *out);

#define CLI_HOLDS_MAX 16

/* What a client says about its process; empty and 0: nothing. */
struct identity {
    char client[37]; /* its UUID */
    char host[128], program[128], label[160];
    int64_t pid, since; /* seconds since 1970 */
    int64_t losses;     /* of holds, since then */
    struct held {
        uint64_t number; /* of the owner */
        int64_t since;
        char at[72], by[48]; /* where in the program, and by whom; empty: not known */
    } holds[CLI_HOLDS_MAX];  /* the oldest */
    size_t holds_n;
    bool is_known;
};

#define CLI_IDENTITIES_MAX 500 /* as many as a description has rows */

struct identities {
    struct identity items[CLI_IDENTITIES_MAX];
    size_t n;
    bool is_refused; /* by the server, or it is unreachable */
};

/* cli_identify - the process behind an owner; NULL: not known.  Each client is asked about once. */
const struct identity *cli_identify(snib_client *client, struct identities *identities,
                                    const char *owner);

/* cli_read_identity - from what snib_client_identity() gives. */
void cli_read_identity(const char *texts, size_t used, struct identity *out);

/* cli_held_since - when the owner acquired its hold, in seconds since 1970; 0: that is not known.  identity: of its
 * client, or NULL. */
int64_t cli_held_since(const struct identity *identity, const char *owner);

/* cli_write_taken - where and by whom it was acquired, as "acquired at orders.py:31 in pay() by task Task-3"; empty:
 * that is not known. */
#define CLI_TAKEN_MAX 160
void cli_write_taken(const struct identity *identity, const char *owner, char *out);

/* cli_add_held - add what is known of these to a JSON object. */
void cli_add_held(struct cJSON *item, const struct identity *identity, const char *owner);

/* cli_write_time - such a time, as "2026-11-25 18:02:11 UTC"; empty for 0. */
#define CLI_TIME_MAX 64
void cli_write_time(int64_t seconds, char *out);

/* cli_write_identity, cli_add_identity - show it: as "host web-3, pid 4711"; as a member of a JSON object, under
 * this name. */
#define CLI_IDENTITY_MAX 600
void cli_write_identity(const struct identity *identity, char *out, size_t cap);
void cli_add_identity(struct cJSON *item, const char *name, const struct identity *identity);

/* cli_tell_waiting - the same for a lock that is waited for; owner, identity: the holder and its process, NULL if
 * unknown. */
void cli_tell_waiting(const struct cli *cli, const char *text, const char *name, const char *owner,
                      const struct identity *identity);

/* cli_names - all names of the command line with this between them; to be freed. */
char *cli_names(const struct cli *cli, const char *between);

/* cli_address - a URL without user, password and options, printable; to be freed. */
char *cli_address(const char *url);

/* cli_turns - whether this character changes the direction of writing, so that a text looks like another one. */
bool cli_turns(wchar_t c);

/* cli_printable - s with everything but printable UTF-8, and what turns it, escaped as \xNN; to be freed. */
char *cli_printable(const char *s);

/* cli_copy - as much of a text as there is room for, without a part of a character at its end; in place, too. */
void cli_copy(char *out, size_t cap, const char *text);

#endif
