/* top_show.c - snib top's table, on a screen, as text, and as JSON. */
#include "signals.h"
#include "terminal.h"
#include "top.h"

#include <cjson/cJSON.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SILENCE_MS 2000 /* before it is shown */

enum column { WAITING, HOLDERS, CHANGES, LEASE, KIND, COLUMNS_N };

#define COLUMN 7 /* the width of each; a blank follows */
#define NAME_MIN 16
#define LOST 5 /* the width of the losses of the holder's client, which 80 columns have room for */
#define NAME_MORE 34
#define HOLDER 24 /* and of its process, which is shown if there is much room for names */
#define NAME_MUCH 40

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

bool top_has_losses(int columns)
{
    return columns - COLUMNS_N * (COLUMN + 1) - (LOST + 1) >= NAME_MORE;
}

static bool has_holders(int columns)
{
    return columns - COLUMNS_N * (COLUMN + 1) - (HOLDER + 1) - (LOST + 1) >= NAME_MUCH;
}

/* The process of the only holder: what it is called, or where it runs. */
static void write_holder(FILE *out, const struct lock *lock)
{
    const struct identity *who = lock->holder;
    char text[sizeof who->host + 32] = "-";
    if (who && who->host[0] && who->pid)
        snprintf(text, sizeof text, "%s:%" PRId64, who->host, who->pid);
    else if (who && who->host[0])
        snprintf(text, sizeof text, "%s", who->host);
    terminal_put(out, who && who->label[0] ? who->label : text, HOLDER, true);
    putc(' ', out);
}

/* How many holds the client of the only holder has lost. */
static void write_losses(FILE *out, const struct lock *lock)
{
    char text[32] = "-";
    if (lock->holder)
        write_number(text, sizeof text, lock->holder->losses < 9999 ? lock->holder->losses : 9999,
                     "");
    fprintf(out, "%*s ", LOST, text);
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
    if (has_holders(columns)) {
        left -= HOLDER + 1;
        if (lock)
            write_holder(out, lock);
        else
            fprintf(out, "%-*s ", HOLDER, "HOLDER");
    }
    if (top_has_losses(columns)) {
        left -= LOST + 1;
        if (lock)
            write_losses(out, lock);
        else
            fprintf(out, "%*s ", LOST, "LOST");
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
        fprintf(out, ", %zu lock%s not refreshed", top->old_n, top->old_n == 1 ? "" : "s");
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

char *top_lines(const struct top *top, int columns, int rows, bool is_screen)
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

void top_put(const char *text, size_t n)
{
    signals_admit(true);
    fwrite(text, 1, n, stdout);
    fflush(stdout);
    signals_admit(false);
}

static cJSON *lock_as_json(const struct lock *lock)
{
    cJSON *item = cJSON_CreateObject();
    cJSON_AddStringToObject(item, "name", lock->name);
    cJSON_AddStringToObject(item, "kind", lock->kind);
    cli_add_number(item, "holders", lock->holders);
    if (lock->holder)
        cli_add_identity(item, "holder", lock->holder);
    else
        cJSON_AddNullToObject(item, "holder");
    cli_add_number(item, "total", lock->total);
    cli_add_number_or_null(item, "waiting", lock->waiting);
    cli_add_number_or_null(item, "remaining_ms", lock->left_ms);
    cli_add_number_or_null(item, "changes", lock->changes);
    cli_add_number(item, "token", lock->token);
    cli_add_number(item, "age_ms", (cli_now_ns() - lock->asked_ns) / MS_NS);
    return item;
}

void top_print_json(const struct top *top)
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
    signals_admit(true);
    cli_print_json(object);
    fflush(stdout);
    signals_admit(false);
}

void top_draw(const struct top *top)
{
    int columns, rows;
    if (!top->has_screen || top->shown_at == 0)
        return;
    terminal_size(&columns, &rows);
    char *lines = top_lines(top, columns, rows, true);
    terminal_show(lines, rows);
    free(lines);
}
