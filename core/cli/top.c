/* top.c - snib top: the locks of a server, those with the most waiting processes first, again and again.
 *
 *     searching --all keys, or enough for now--> asking --all locks, or enough--> shown
 *         ^                                                                         |
 *         +------------------------------- interval --------------------------------+
 *
 * Everything is asked without waiting, so that keys, signals and the window's size are heeded at any time.  What one
 * refresh asks for is bounded, whatever the server has: the search continues in the next one, and locks are asked about
 * in turn.  Only --once asks for everything, as snib list does.
 *
 * The server has no history.  That a lock has changed hands shows in holders that were not there before, and in its
 * last token; what began and ended in between is not seen. */
#include "cli.h"
#include "signals.h"
#include "terminal.h"

#include <cjson/cJSON.h>
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define STEPS_MAX 30   /* of the search in one refresh, of about 100 keys each */
#define SEARCH_MS 500  /* and about how long they may take */
#define ASKED_MAX 300  /* locks in one refresh */
#define LOCKS_MAX 5000 /* locks to remember */
#define WINDOW 32      /* questions under way */
#define FREE_MAX 10    /* refreshes that a lock is remembered for when it is free */
#define HOT 10 /* a lock in demand is asked about as if its turn were so many refreshes earlier */
#define SILENCE_MS 2000 /* before it is shown */
#define OWNERS_MAX 500  /* in a description */

#define TOKEN_SEARCH LOCKS_MAX /* other tokens are indices of `turn` */

struct lock {
    char *name;
    char kind[8]; /* "": it is free */
    int64_t holders;
    int64_t total;    /* permits, else CLI_UNTOLD */
    int64_t waiting;  /* processes; -1 unknown */
    int64_t left_ms;  /* of the lease that ends first; -1 none */
    int64_t token;    /* CLI_UNTOLD: none */
    int64_t changes;  /* since it was asked about before, at least; CLI_UNTOLD: unknown */
    uint64_t *owners; /* hashes of the holders */
    size_t owners_n;
    int64_t asked; /* the number of the refresh that asked; 0: not yet */
    int64_t asked_ns;
    int free_n; /* refreshes in a row that found it free */
};

enum phase { SEARCHING, ASKING, SHOWN };

struct top {
    const struct cli *cli;
    snib_client *client;
    snib_queue *queue;
    char *address;
    bool has_screen;
    struct lock *locks[LOCKS_MAX]; /* sorted by name */
    size_t locks_n;
    struct lock *turn[LOCKS_MAX]; /* those to ask about in this refresh */
    size_t turn_n;
    size_t turn_at;                /* the next one */
    struct lock *shown[LOCKS_MAX]; /* the locks that there were after the last refresh, in order */
    size_t shown_n;
    size_t old_n;      /* of them that it has not asked about */
    bool was_complete; /* its search saw all keys */
    bool was_full;     /* and more locks than are remembered */
    size_t open_n;     /* questions under way */
    size_t answers_n, failures_n;
    enum phase phase;
    int64_t refresh; /* its number, from 1 */
    int64_t begun_ns, heard_ns, next_ns;
    int steps_n;
    uint64_t cursor;
    bool is_from_start; /* this refresh's search began with the first key */
    bool is_complete;   /* and has ended with the last one */
    bool is_full;       /* there were more locks than are remembered */
    time_t shown_at;    /* when the last refresh ended that had answers; 0: none has yet */
    snib_error err;     /* of this refresh; code SNIB_OK: none */
    snib_error told;    /* shown until a refresh has ended without any */
    size_t told_n;      /* questions that failed, although others were answered */
};

/* ---- The locks ------------------------------------------------------------------------------- */

static int by_name(const void *a, const void *b)
{
    return strcmp((*(struct lock *const *)a)->name, (*(struct lock *const *)b)->name);
}

/* In the order of their turns to be asked. */
static int by_turn(const void *a, const void *b)
{
    const struct lock *one = *(struct lock *const *)a, *two = *(struct lock *const *)b;
    bool is_hot_one = one->waiting > 0 || one->changes > 0;
    bool is_hot_two = two->waiting > 0 || two->changes > 0;
    int64_t turn_one = one->asked - (is_hot_one ? HOT : 0);
    int64_t turn_two = two->asked - (is_hot_two ? HOT : 0);
    return turn_one != turn_two ? (turn_one < turn_two ? -1 : 1) : by_name(a, b);
}

/* In the order in which they are shown. */
static int by_demand(const void *a, const void *b)
{
    const struct lock *one = *(struct lock *const *)a, *two = *(struct lock *const *)b;
    if (one->waiting != two->waiting)
        return one->waiting > two->waiting ? -1 : 1;
    if (one->changes != two->changes)
        return one->changes > two->changes ? -1 : 1;
    return by_name(a, b);
}

/* Remember a name that the search has found, for the first time or again; known_n: sorted ones before it. */
static void add_name(struct top *top, const char *name, size_t known_n)
{
    struct lock key = {.name = (char *)name}, *at = &key;
    if (bsearch(&at, top->locks, known_n, sizeof at, by_name))
        return;
    for (size_t i = known_n; i < top->locks_n; i++)
        if (strcmp(top->locks[i]->name, name) == 0)
            return;
    top->is_full = top->is_full || top->locks_n == LOCKS_MAX;
    if (top->locks_n == LOCKS_MAX)
        return;
    struct lock *lock = calloc(1, sizeof *lock);
    if (!lock || !(lock->name = strdup(name)))
        abort();
    lock->waiting = lock->left_ms = -1;
    lock->total = lock->token = lock->changes = CLI_UNTOLD;
    top->locks[top->locks_n++] = lock;
}

static void free_lock(struct lock *lock)
{
    free(lock->name);
    free(lock->owners);
    free(lock);
}

/* Forget the locks that have been free for long. */
static void forget_locks(struct top *top)
{
    size_t kept = 0;
    for (size_t i = 0; i < top->locks_n; i++) {
        if (top->locks[i]->free_n < FREE_MAX)
            top->locks[kept++] = top->locks[i];
        else
            free_lock(top->locks[i]);
    }
    top->locks_n = kept;
}

static uint64_t hash_of(const char *text)
{
    uint64_t hash = 14695981039346656037U; /* FNV-1a */
    for (; *text; text++)
        hash = (hash ^ (unsigned char)*text) * 1099511628211U;
    return hash;
}

static bool has_owner(const struct lock *lock, uint64_t owner)
{
    for (size_t i = 0; i < lock->owners_n; i++)
        if (lock->owners[i] == owner)
            return true;
    return false;
}

/* Read the holders.  Returns how many were not there before. */
static int64_t take_holders(struct lock *lock, const struct description *description)
{
    static uint64_t owners[OWNERS_MAX];
    const char *at = NULL;
    struct row row;
    size_t n = 0;
    int64_t fresh = 0;
    lock->left_ms = -1;
    while (n < OWNERS_MAX && cli_next_row(description, &at, &row)) {
        if (strcmp(row.word, "waiter") == 0)
            continue;
        owners[n++] = hash_of(row.owner);
        fresh += !has_owner(lock, owners[n - 1]);
        if (row.left_ms >= 0 && (lock->left_ms < 0 || row.left_ms < lock->left_ms))
            lock->left_ms = row.left_ms;
    }
    lock->holders = (int64_t)n;
    lock->owners = realloc(lock->owners, (n + 1) * sizeof *owners);
    if (!lock->owners)
        abort();
    memcpy(lock->owners, owners, n * sizeof *owners);
    lock->owners_n = n;
    return fresh;
}

/* Read the numbers and the holders. */
static void take_numbers(struct lock *lock, const struct description *description)
{
    int64_t before = lock->token;
    int64_t fresh = take_holders(lock, description);
    bool is_fair = strcmp(description->kind, "fair") == 0; /* then more waiters are not told */
    bool is_cut = description->more > 0 && !is_fair;
    lock->total = description->total;
    lock->token = description->token;
    lock->waiting = description->waiting == CLI_UNTOLD ? -1 : description->waiting;
    if (lock->total != CLI_UNTOLD)
        lock->holders = lock->total - description->available;
    else if (is_cut)
        lock->holders += description->more;
    lock->changes = lock->asked == 0 || is_cut ? CLI_UNTOLD : fresh;
    if (before != CLI_UNTOLD && lock->token != CLI_UNTOLD && lock->token - before > lock->changes)
        lock->changes = lock->token - before;
}

/* What the server knows about the lock by now; result: SNIB_OK, or SNIB_ENAME without a description. */
static void take_description(const struct top *top, struct lock *lock, int result,
                             const struct description *description)
{
    const char *kind = cli_listed_kind(lock->name, result, description);
    if (description)
        take_numbers(lock, description);
    bool is_free = !description || strcmp(description->kind, "free") == 0;
    if (!kind && lock->waiting > 0)
        kind = "free";
    lock->free_n = is_free && lock->waiting <= 0 ? lock->free_n + 1 : 0;
    snprintf(lock->kind, sizeof lock->kind, "%s", kind ? kind : "");
    lock->asked = top->refresh;
    lock->asked_ns = cli_now_ns();
}

/* ---- Questions ------------------------------------------------------------------------------- */

static void fail(struct top *top, int32_t code, const char *text)
{
    top->failures_n++;
    top->err.code = code;
    snprintf(top->err.text, sizeof top->err.text, "%s", text);
    top->told = top->err;
}

static void search(struct top *top)
{
    const char *pattern = top->cli->name ? top->cli->name : "";
    snib_error err;
    if (snib_client_list_submit(top->client, pattern, strlen(pattern), top->cursor, top->queue,
                                TOKEN_SEARCH, NULL, &err) == SNIB_OK)
        top->open_n++;
    else
        fail(top, err.code, err.text);
}

static void begin_refresh(struct top *top)
{
    forget_locks(top);
    top->refresh++;
    top->phase = SEARCHING;
    top->begun_ns = top->heard_ns = cli_now_ns();
    top->err.code = SNIB_OK;
    top->steps_n = 0;
    top->answers_n = top->failures_n = 0;
    top->is_from_start = top->cursor == 0;
    top->is_complete = false;
    if (top->is_from_start)
        top->is_full = false;
    search(top);
}

/* Ask about the locks whose turn it is. */
static void begin_asking(struct top *top)
{
    top->phase = ASKING;
    top->turn_at = 0;
    top->turn_n = top->locks_n;
    memcpy(top->turn, top->locks, top->locks_n * sizeof *top->locks);
    qsort(top->turn, top->turn_n, sizeof *top->turn, by_turn);
    if (top->turn_n > ASKED_MAX && !top->cli->is_once)
        top->turn_n = ASKED_MAX;
}

/* Ask about the next lock. */
static void ask(struct top *top)
{
    size_t i = top->turn_at++;
    struct lock *lock = top->turn[i];
    snib_error err;
    int result = snib_client_describe_submit(top->client, lock->name, strlen(lock->name),
                                             top->queue, i, NULL, &err);
    top->open_n += result == SNIB_OK;
    if (result == SNIB_ENAME)
        take_description(top, lock, result, NULL);
    else if (result != SNIB_OK)
        fail(top, err.code, err.text);
}

/* Some names, and where the search continues. */
static void hear_names(struct top *top, const snib_texts *texts)
{
    size_t known_n = top->locks_n;
    const char *at = texts->text;
    for (uint32_t i = 0; i < texts->count; i++, at += strlen(at) + 1)
        add_name(top, at, known_n);
    if (top->locks_n > known_n)
        qsort(top->locks, top->locks_n, sizeof *top->locks, by_name);
    top->cursor = texts->cursor;
    top->is_complete = top->is_from_start && top->cursor == 0;
    bool is_enough = !top->cli->is_once && (++top->steps_n == STEPS_MAX ||
                                            cli_now_ns() - top->begun_ns > SEARCH_MS * MS_NS);
    if (top->cursor == 0 || is_enough)
        begin_asking(top);
    else
        search(top);
}

static void hear_description(struct top *top, size_t i, const snib_texts *texts)
{
    static struct description description;
    cli_read_description(texts, &description);
    take_description(top, top->turn[i], SNIB_OK, &description);
    top->answers_n++;
}

static void on_event(struct top *top, const snib_event *event)
{
    bool is_search = event->token == TOKEN_SEARCH;
    if (event->kind != SNIB_EVENT_DONE)
        return;
    top->open_n--;
    top->heard_ns = cli_now_ns();
    if (event->code == SNIB_OK && is_search) {
        top->answers_n++;
        hear_names(top, event->texts);
    } else if (event->code == SNIB_OK) {
        hear_description(top, event->token, event->texts);
    } else {
        fail(top, event->code, event->text);
        if (!is_search)
            top->turn[event->token]->asked = top->refresh; /* it has had its turn */
        else
            begin_asking(top); /* in a cluster, other nodes may answer */
    }
    if (event->code == SNIB_OK)
        snib_texts_free(event->texts);
}

/* ---- What is shown --------------------------------------------------------------------------- */

enum column { WAITING, HOLDERS, CHANGES, LEASE, KIND, COLUMNS_N };

#define COLUMN 7 /* the width of each; a blank follows */
#define NAME_MIN 16

/* A duration in at most seven columns. */
static void write_time(char *out, size_t cap, int64_t ms)
{
    if (ms < 60000)
        snprintf(out, cap, "%" PRId64 ".%" PRId64 "s", ms / 1000, ms % 1000 / 100);
    else if (ms < 3600000)
        snprintf(out, cap, "%" PRId64 "m%02" PRId64 "s", ms / 60000, ms / 1000 % 60);
    else if (ms < 360000000)
        snprintf(out, cap, "%" PRId64 "h%02" PRId64 "m", ms / 3600000, ms / 60000 % 60);
    else
        snprintf(out, cap, "%" PRId64 "d", ms / 86400000);
}

/* A number in at most six columns, `sign` behind it. */
static void write_number(char *out, size_t cap, int64_t number, const char *sign)
{
    static const char *const units[] = {"", "k", "M", "G", "T", "P", "E"};
    size_t i = 0;
    for (; number > 99999 && i < 6; i++)
        number /= 1000;
    snprintf(out, cap, "%" PRId64 "%s%s", number, units[i], sign);
}

/* Whether its tokens count all changes, also those that are not seen. */
static bool is_counted(const struct lock *lock)
{
    return lock->token != CLI_UNTOLD && strcmp(lock->kind, "read") != 0;
}

static void write_cell(char *out, size_t cap, enum column column, const struct lock *lock)
{
    snprintf(out, cap, "-");
    if (column == KIND)
        snprintf(out, cap, "%-*s", COLUMN, lock->kind);
    else if (column == WAITING && lock->waiting >= 0)
        write_number(out, cap, lock->waiting, "");
    else if (column == HOLDERS && lock->total != CLI_UNTOLD && lock->total < 1000)
        snprintf(out, cap, "%" PRId64 "/%" PRId64, lock->holders, lock->total);
    else if (column == HOLDERS)
        write_number(out, cap, lock->holders, "");
    else if (column == CHANGES && lock->changes != CLI_UNTOLD)
        write_number(out, cap, lock->changes, lock->changes && !is_counted(lock) ? "+" : "");
    else if (column == LEASE && lock->left_ms >= 0)
        write_time(out, cap, lock->left_ms);
}

/* Which columns there is room for beside the name; all: the whole width.  Returns what is left for the name. */
static int choose_columns(int all, bool has[COLUMNS_N])
{
    static const enum column least_first[] = {KIND, CHANGES, HOLDERS, LEASE, WAITING};
    int left = all - COLUMNS_N * (COLUMN + 1);
    for (int i = 0; i < COLUMNS_N; i++)
        has[i] = true;
    for (int i = 0; i < COLUMNS_N && left < NAME_MIN; i++, left += COLUMN + 1)
        has[least_first[i]] = false;
    return left;
}

/* A line of the table; lock NULL: the titles. */
static void write_row(FILE *out, int columns, const struct lock *lock)
{
    static const char *const titles[] = {"WAITING", "HOLDERS", "CHANGES", "LEASE", "KIND   "};
    bool has[COLUMNS_N];
    char cell[32];
    int left = choose_columns(columns, has);
    for (int i = 0; i < COLUMNS_N; i++) {
        if (!has[i])
            continue;
        if (lock)
            write_cell(cell, sizeof cell, (enum column)i, lock);
        fprintf(out, "%*s ", COLUMN, lock ? cell : titles[i]);
    }
    terminal_put(out, lock ? lock->name : "NAME", left, !lock && columns < INT_MAX);
    putc('\n', out);
}

/* What there is, and what of it is not shown. */
static void write_summary(const struct top *top, FILE *out, size_t rows)
{
    int64_t waiting = 0;
    for (size_t i = 0; i < top->shown_n; i++)
        waiting += top->shown[i]->waiting > 0 ? top->shown[i]->waiting : 0;
    fprintf(out, "%zu lock%s", top->shown_n, top->shown_n == 1 ? "" : "s");
    if (top->shown_n > rows)
        fprintf(out, " (%zu not shown)", top->shown_n - rows);
    fprintf(out, ", %" PRId64 " waiting", waiting);
    if (top->old_n > 0)
        fprintf(out, ", %zu of them older", top->old_n);
    if (top->was_full)
        fprintf(out, ", more than %d: give a pattern", LOCKS_MAX);
    else if (!top->was_complete)
        fputs(", the search continues", out);
}

/* The second line: a summary, or what is wrong. */
static void write_state(const struct top *top, FILE *out, size_t rows)
{
    char when[16];
    struct tm tm;
    int64_t silent_ms = top->phase == SHOWN ? 0 : (cli_now_ns() - top->heard_ns) / MS_NS;
    strftime(when, sizeof when, "%H:%M:%S", localtime_r(&top->shown_at, &tm));
    if (top->told.code != SNIB_OK && top->told_n > 0)
        fprintf(out, "%zu questions failed: %s", top->told_n, top->told.text);
    else if (top->told.code != SNIB_OK)
        fprintf(out, "not refreshed since %s: %s", when, top->told.text);
    else if (silent_ms >= SILENCE_MS)
        fprintf(out, "no answer for %" PRId64 " s", silent_ms / 1000);
    else
        write_summary(top, out, rows);
}

/* One line of free text, cut. */
static void write_line(FILE *out, char *text, int columns)
{
    terminal_put(out, text, columns, false);
    putc('\n', out);
    free(text);
}

/* Everything as lines, of at most this many columns and rows. */
static char *write_all(const struct top *top, int columns, int rows, bool is_screen)
{
    char *all, *text;
    char when[32];
    size_t n;
    struct tm tm;
    size_t room = rows > 3 ? (size_t)rows - 3 : 0;
    room = room < (size_t)top->cli->limit ? room : (size_t)top->cli->limit;
    room = room < top->shown_n ? room : top->shown_n;
    FILE *out = open_memstream(&all, &n);
    strftime(when, sizeof when, "%H:%M:%S", localtime_r(&top->shown_at, &tm));
    if (!out || asprintf(&text, "snib top  %s  %s%s%s", when, top->address,
                         top->cli->name ? "  " : "", top->cli->name ? top->cli->name : "") < 0)
        abort();
    write_line(out, text, columns);
    FILE *state = open_memstream(&text, &n);
    if (!state)
        abort();
    write_state(top, state, room);
    fclose(state);
    write_line(out, text, columns);
    fputs(is_screen ? "\r" : "", out);
    write_row(out, columns, NULL);
    for (size_t i = 0; i < room; i++)
        write_row(out, columns, top->shown[i]);
    fclose(out);
    return all;
}

static cJSON *lock_as_json(const struct lock *lock)
{
    cJSON *item = cJSON_CreateObject();
    char *printable = cli_printable(lock->name);
    cJSON_AddStringToObject(item, "name", printable);
    free(printable);
    cJSON_AddStringToObject(item, "kind", lock->kind);
    cli_add_number(item, "holders", lock->holders);
    cli_add_number(item, "total", lock->total);
    cli_add_number_or_null(item, "waiting", lock->waiting);
    cli_add_number_or_null(item, "remaining_ms", lock->left_ms);
    cli_add_number_or_null(item, "changes", lock->changes);
    cli_add_number(item, "token", lock->token);
    cli_add_number(item, "age_ms", (cli_now_ns() - lock->asked_ns) / MS_NS);
    return item;
}

static void print_json(const struct top *top)
{
    cJSON *object = cJSON_CreateObject();
    char when[40];
    time_t now = time(NULL);
    struct tm tm;
    strftime(when, sizeof when, "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&now, &tm));
    cJSON_AddStringToObject(object, "time", when);
    cJSON_AddStringToObject(object, "address", top->address);
    if (top->err.code != SNIB_OK)
        cJSON_AddStringToObject(object, "error", top->err.text);
    cJSON_AddBoolToObject(object, "complete",
                          top->was_complete && !top->was_full && top->err.code == SNIB_OK);
    cli_add_number(object, "total", (int64_t)top->shown_n);
    cJSON *locks = cJSON_AddArrayToObject(object, "locks");
    for (size_t i = 0; i < top->shown_n && (int64_t)i < top->cli->limit; i++)
        cJSON_AddItemToArray(locks, lock_as_json(top->shown[i]));
    cli_print_json(object);
    fflush(stdout);
}

static void draw(const struct top *top)
{
    int columns, rows;
    if (!top->has_screen || top->shown_at == 0)
        return;
    terminal_size(&columns, &rows);
    char *lines = write_all(top, columns, rows, true);
    terminal_show(lines, rows);
    free(lines);
}

/* ---- The loop -------------------------------------------------------------------------------- */

/* Choose what is shown, in its order. */
static void settle(struct top *top)
{
    top->shown_n = 0;
    top->old_n = 0;
    for (size_t i = 0; i < top->locks_n; i++) {
        if (!top->locks[i]->kind[0])
            continue;
        top->shown[top->shown_n++] = top->locks[i];
        top->old_n += top->locks[i]->asked != top->refresh;
    }
    qsort(top->shown, top->shown_n, sizeof *top->shown, by_demand);
    top->was_complete = top->is_complete;
    top->was_full = top->is_full;
    if (top->answers_n > 0)
        top->shown_at = time(NULL);
    top->told = top->err;
    top->told_n = top->answers_n > 0 ? top->failures_n : 0;
}

/* Show what was heard.  Returns -1, or the exit code when this was all. */
static int end_refresh(struct top *top)
{
    const struct cli *cli = top->cli;
    bool is_first = top->shown_at == 0;
    top->phase = SHOWN;
    top->next_ns = cli_now_ns() + cli->interval_ms * MS_NS;
    settle(top);
    if (top->err.code != SNIB_OK && (cli->is_once || top->shown_at == 0))
        return cli_fail(cli, &top->err);
    if (cli->is_json) {
        print_json(top);
    } else if (cli->is_once) {
        char *lines = write_all(top, INT_MAX, INT_MAX, false);
        fputs(lines, stdout);
        free(lines);
    } else if (is_first) {
        terminal_open();
        top->has_screen = true;
    }
    if (cli->is_once)
        return 0;
    return ferror(stdout) ? EXIT_USAGE : -1; /* main() reports it */
}

/* Ask what is to be asked now.  As end_refresh(). */
static int ask_more(struct top *top)
{
    if (top->phase == SHOWN && cli_now_ns() >= top->next_ns)
        begin_refresh(top);
    while (top->phase == ASKING && top->turn_at < top->turn_n && top->open_n < WINDOW &&
           top->failures_n <= WINDOW)
        ask(top);
    return top->phase != SHOWN && top->open_n == 0 ? end_refresh(top) : -1;
}

static int hear(struct top *top)
{
    snib_event events[WINDOW];
    snib_error err;
    int n = snib_queue_drain(top->queue, events, WINDOW, &err);
    if (n < 0) {
        terminal_close();
        return cli_fail(top->cli, &err);
    }
    for (int i = 0; i < n; i++)
        on_event(top, &events[i]);
    snib_queue_cork(top->queue);
    int code = ask_more(top);
    snib_queue_uncork(top->queue);
    return code;
}

/* Returns -1, or the exit code. */
static int on_signal(struct top *top, int sig)
{
    if (sig == SIGTSTP) {
        terminal_close();
        signals_stop();
    }
    if (top->has_screen && (sig == SIGTSTP || sig == SIGCONT))
        terminal_open();
    if (sig == 0 || sig == SIGTSTP || sig == SIGCONT || sig == SIGWINCH)
        return -1;
    return top->cli->is_once ? EXIT_SIGNAL + sig : 0;
}

/* Returns -1, or the exit code. */
static int take_keys(const struct top *top)
{
    int key = 0;
    while (top->has_screen && (key = terminal_key()) > 0)
        if (key == 'q' || key == 'Q')
            return 0;
    return key < 0 ? 0 : -1;
}

/* Until there is something to do in any case. */
static int left_ms(const struct top *top)
{
    int64_t left_ns = top->phase == SHOWN ? top->next_ns - cli_now_ns() : SECOND_NS;
    return left_ns > 0 ? (int)(left_ns / MS_NS) + 1 : 0;
}

static int loop(struct top *top, int signals)
{
    struct pollfd fds[3] = {{.fd = signals, .events = POLLIN},
                            {.fd = snib_queue_fd(top->queue, NULL), .events = POLLIN},
                            {.fd = -1, .events = POLLIN}};
    begin_refresh(top);
    int code = -1;
    while (code < 0) {
        fds[2].fd = top->has_screen ? terminal_fd() : -1;
        if (poll(fds, 3, left_ms(top)) < 0 && errno != EINTR) {
            terminal_close();
            return cli_fail_errno(top->cli, "poll");
        }
        enum phase phase = top->phase;
        code = hear(top);
        int sig = code < 0 ? signals_next(signals, 0) : 0;
        if (code < 0)
            code = on_signal(top, sig);
        if (code < 0)
            code = take_keys(top);
        bool is_news = phase != SHOWN && top->phase == SHOWN;
        bool is_late = top->phase != SHOWN &&
                       (top->err.code != SNIB_OK || cli_now_ns() - top->heard_ns >= SECOND_NS);
        if (code < 0 && (sig || is_news || is_late))
            draw(top);
    }
    return code;
}

int cli_top(const struct cli *cli)
{
    static const int handled[] = {SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGTSTP, SIGCONT, SIGWINCH};
    static struct top top;
    sigset_t old_mask;
    snib_error err;
    if (!cli->is_once && !cli->is_json && !terminal_usable())
        return cli_usage(cli, "standard output is not a terminal: add --once or --json", "");
    int signals = signals_open(handled, sizeof handled / sizeof handled[0], &old_mask);
    if (signals < 0)
        return cli_fail_errno(cli, "signals");
    top.cli = cli;
    top.address = cli_address(cli->url);
    int code = cli_open(cli, &top.client);
    if (code != 0)
        return code;
    if (snib_queue_new(top.client, &top.queue, &err) != SNIB_OK)
        code = cli_fail(cli, &err);
    else
        code = loop(&top, signals);
    terminal_close();
    snib_queue_free(top.queue);
    cli_close(cli, top.client);
    return code;
}
