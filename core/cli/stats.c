/* stats.c - snib stats: the locks of a server, and the clients that have them, in Prometheus' text format.
 *
 * It asks as snib top --once does.  All of it is written or, if an answer is missing, nothing but snib_server_up 0: half
 * of the locks would look as if the others were free, and so would the locks of an hour ago in a file.
 *
 * The server has no history, so there is one counter: the tokens that it has given for a lock.  Everything else is a
 * gauge.  No name is one of a client's own metrics (python/snib/_figures.py), which count what that client did. */
#include "replace.h"
#include "top.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define UUID_N 36

/* ---- The clients ----------------------------------------------------------------------------- */

/* What a client says about its process; unknown is empty. */
struct process {
    char host[4 * sizeof((struct identity *)0)->host],
        program[4 * sizeof((struct identity *)0)->program];
};

struct stats {
    char (*clients)[UUID_N + 1]; /* those that were met, in no order and more than once */
    size_t clients_n, clients_cap;
    struct process *processes; /* theirs, once they are asked about */
};

static int by_text(const void *a, const void *b)
{
    return strcmp(a, b);
}

/* Sort them, and keep each once. */
static void settle_clients(struct stats *stats)
{
    size_t kept = 0;
    if (stats->clients_n > 0)
        qsort(stats->clients, stats->clients_n, sizeof *stats->clients, by_text);
    for (size_t i = 0; i < stats->clients_n; i++)
        if (kept == 0 || strcmp(stats->clients[kept - 1], stats->clients[i]) != 0)
            memmove(stats->clients[kept++], stats->clients[i], sizeof *stats->clients);
    stats->clients_n = kept;
}

static void add_client(struct stats *stats, const char *uuid)
{
    if (stats->clients_n == stats->clients_cap) {
        settle_clients(stats); /* they repeat: a client may hold thousands of locks */
        if (stats->clients_n >= stats->clients_cap / 2) {
            stats->clients_cap = stats->clients_cap ? 2 * stats->clients_cap : 256;
            stats->clients = realloc(stats->clients, stats->clients_cap * sizeof *stats->clients);
            if (!stats->clients)
                abort();
        }
    }
    memcpy(stats->clients[stats->clients_n], uuid, UUID_N);
    stats->clients[stats->clients_n++][UUID_N] = '\0';
}

void stats_note(struct stats *stats, const struct description *description)
{
    const char *at = NULL;
    struct row row;
    while (cli_next_row(description, &at, &row))
        if (strcspn(row.owner, ":") ==
            UUID_N) /* a permit's id is shorter, and strings of others may be anything */
            add_client(stats, row.owner);
}

size_t stats_clients(struct stats *stats)
{
    settle_clients(stats);
    stats->processes = calloc(stats->clients_n + 1, sizeof *stats->processes);
    if (!stats->processes)
        abort();
    return stats->clients_n;
}

const char *stats_client(const struct stats *stats, size_t i)
{
    return stats->clients[i];
}

/* Copy what somebody may have written. */
static void copy_printable(char *out, size_t cap, const char *text)
{
    char *printable = cli_printable(text);
    snprintf(out, cap, "%s", printable);
    free(printable);
}

void stats_hear_client(struct stats *stats, size_t i, const snib_texts *texts)
{
    struct process *process = &stats->processes[i];
    struct identity identity;
    cli_read_identity(texts->text, texts->used, &identity);
    copy_printable(process->host, sizeof process->host, identity.host);
    copy_printable(process->program, sizeof process->program, identity.program);
}

/* ---- The format ------------------------------------------------------------------------------ */

/* A value of a label. */
static void put_value(FILE *out, const char *text)
{
    for (; *text; text++) {
        if (*text == '\\' || *text == '"')
            putc('\\', out);
        if (*text == '\n')
            fputs("\\n", out);
        else
            putc(*text, out);
    }
}

/* Where the samples go, with the labels that all of them have: so files about one server, but other locks of it, can be
 * read together. */
struct page {
    FILE *out;
    const char *server;
    const char *pattern; /* NULL: none was given */
    const char *name;    /* the metric's */
};

static void put_head(struct page *page, const char *name, const char *type, const char *help)
{
    page->name = name;
    fprintf(page->out, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

/* A sample of that metric with pairs of labels and their values, NULL at the end. */
static void put_sample(const struct page *page, const char *value, ...)
{
    va_list labels;
    va_start(labels, value);
    fprintf(page->out, "%s{server=\"", page->name);
    put_value(page->out, page->server);
    if (page->pattern) {
        fputs("\",pattern=\"", page->out);
        put_value(page->out, page->pattern);
    }
    for (const char *label; (label = va_arg(labels, const char *));) {
        fprintf(page->out, "\",%s=\"", label);
        put_value(page->out, va_arg(labels, const char *));
    }
    fprintf(page->out, "\"} %s\n", value);
    va_end(labels);
}

static const char *text_of(int64_t number)
{
    static char text[24];
    snprintf(text, sizeof text, "%" PRId64, number);
    return text;
}

/* ---- The totals ------------------------------------------------------------------------------ */

static const char *const kinds[] = {"mutex", "fair",    "read", "write",
                                    "plain", "permits", "free", "other"};
enum { KINDS_N = sizeof kinds / sizeof kinds[0], OTHER = KINDS_N - 1 };

struct total {
    int64_t locks, holders, waiting; /* waiting: -1 if it is unknown of one of them */
};

static int kind_of(const struct lock *lock)
{
    int i = 0;
    while (i < OTHER && strcmp(kinds[i], lock->kind) != 0)
        i++;
    return i;
}

static void add_up(const struct top *top, struct total totals[KINDS_N])
{
    memset(totals, 0, KINDS_N * sizeof *totals);
    for (size_t i = 0; i < top->shown_n; i++) {
        const struct lock *lock = top->shown[i];
        struct total *total = &totals[kind_of(lock)];
        total->locks++;
        if (total == &totals[OTHER])
            continue; /* it cannot be asked about */
        total->holders += lock->holders;
        total->waiting =
            lock->waiting < 0 || total->waiting < 0 ? -1 : total->waiting + lock->waiting;
    }
}

static void put_totals(struct page *page, const struct top *top)
{
    struct total totals[KINDS_N];
    add_up(top, totals);
    put_head(page, "snib_server_complete", "gauge",
             "Whether all locks were counted; 0: only the first 5000");
    put_sample(page, top->was_complete && !top->was_full ? "1" : "0", NULL);
    put_head(page, "snib_server_locks", "gauge",
             "Locks that exist, by kind; free: only waited for");
    for (int i = 0; i < KINDS_N; i++)
        put_sample(page, text_of(totals[i].locks), "kind", kinds[i], NULL);
    put_head(page, "snib_server_holders", "gauge", "Holders of these locks");
    for (int i = 0; i < OTHER; i++)
        put_sample(page, text_of(totals[i].holders), "kind", kinds[i], NULL);
    put_head(page, "snib_server_waiting_processes", "gauge", "Processes that wait for these locks");
    for (int i = 0; i < OTHER; i++)
        if (totals[i].waiting >= 0)
            put_sample(page, text_of(totals[i].waiting), "kind", kinds[i], NULL);
}

static int by_process(const void *a, const void *b)
{
    const struct process *one = a, *two = b;
    int hosts = strcmp(one->host, two->host);
    return hosts ? hosts : strcmp(one->program, two->program);
}

static void put_clients(struct page *page, const struct stats *stats)
{
    struct process *all = stats->processes;
    qsort(all, stats->clients_n, sizeof *all, by_process);
    put_head(page, "snib_server_clients", "gauge",
             "Clients that hold these locks or have a place in a queue, by their processes as far "
             "as they are known");
    for (size_t i = 0, n = 1; i < stats->clients_n; i++, n++) {
        if (i + 1 < stats->clients_n && by_process(&all[i], &all[i + 1]) == 0)
            continue;
        put_sample(page, text_of((int64_t)n), "host", all[i].host, "program", all[i].program, NULL);
        n = 0;
    }
}

/* ---- The locks ------------------------------------------------------------------------------- */

enum figure { HOLDERS, WAITING, PERMITS, LEASE, TOKENS, FIGURES_N };

static const struct {
    const char *name, *type, *help;
} figures[] = {
    [HOLDERS] = {"snib_lock_holders", "gauge",
                 "Holders of the lock; a free lock that nobody waits for has no sample"},
    [WAITING] = {"snib_lock_waiting_processes", "gauge", "Processes that wait for the lock"},
    [PERMITS] = {"snib_lock_permits", "gauge", "Permits, free or held"},
    [LEASE] = {"snib_lock_lease_remaining_seconds", "gauge",
               "Until the first of the holders' leases ends unless it is renewed"},
    [TOKENS] = {"snib_lock_tokens_total", "counter",
                "Fencing tokens given for the lock: the last one"},
};

/* NULL: the lock has no such figure. */
static const char *figure_of(enum figure figure, const struct lock *lock)
{
    static char text[32];
    if (figure == HOLDERS)
        return text_of(lock->holders);
    if (figure == WAITING && lock->waiting >= 0)
        return text_of(lock->waiting);
    if (figure == PERMITS && lock->total != CLI_UNTOLD)
        return text_of(lock->total);
    if (figure == TOKENS && lock->token != CLI_UNTOLD)
        return text_of(lock->token);
    if (figure != LEASE || lock->left_ms < 0)
        return NULL;
    snprintf(text, sizeof text, "%" PRId64 ".%03" PRId64, lock->left_ms / 1000,
             lock->left_ms % 1000);
    return text;
}

/* One figure of the locks in most demand. */
static void put_figure(struct page *page, const struct top *top, enum figure figure)
{
    int64_t left = top->cli->limit;
    put_head(page, figures[figure].name, figures[figure].type, figures[figure].help);
    for (size_t i = 0; i < top->shown_n && left > 0; i++) {
        const struct lock *lock = top->shown[i];
        if (kind_of(lock) == OTHER)
            continue;
        left--;
        const char *value = figure_of(figure, lock);
        if (value &&
            figure == TOKENS) /* whose rate has no gap when a fair lock's first waiter comes */
            put_sample(page, value, "lock", lock->name, NULL);
        else if (value)
            put_sample(page, value, "lock", lock->name, "kind", lock->kind, NULL);
    }
}

/* ---- The command ----------------------------------------------------------------------------- */

int stats_end(const struct top *top, int code)
{
    char *text;
    size_t n;
    if (code != 0 && code != EXIT_SERVER)
        return code;
    bool is_given = top->cli->name && *top->cli->name; /* to Prometheus an empty label is none */
    char *pattern = is_given ? cli_printable(top->cli->name) : NULL;
    struct page page = {
        .out = open_memstream(&text, &n), .server = top->address, .pattern = pattern};
    if (!page.out)
        abort();
    put_head(&page, "snib_server_up", "gauge",
             "Whether the server answered; 0: there is nothing else");
    put_sample(&page, code == 0 ? "1" : "0", NULL);
    if (code == 0) {
        put_totals(&page, top);
        put_clients(&page, top->stats);
        for (int i = 0; i < FIGURES_N; i++)
            put_figure(&page, top, (enum figure)i);
    }
    fclose(page.out);
    free(pattern);
    if (!top->cli->output)
        top_put(text, n);
    else if (replace_file(top->cli->output, text, n) != 0)
        code = cli_fail_errno(top->cli, top->cli->output);
    free(text);
    return code;
}

int cli_stats(const struct cli *cli)
{
    struct cli once = *cli;
    struct stats stats = {0};
    if (cli->output && !replace_is_possible(cli->output))
        return cli_usage(cli, "--output needs the name of a file, new or old, not ", cli->output);
    once.is_once = true;
    int code = top_run(&once, &stats);
    free(stats.clients);
    free(stats.processes);
    return code;
}
