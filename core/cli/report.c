/* report.c - what the command says on stderr, as text or JSON, its JSON on stdout, and the exit codes of errors. */
#include "cli.h"

#include <cjson/cJSON.h>
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <wchar.h>
#include <wctype.h>

#define BRIEF_MS 100   /* for a reader that is only slow */
#define QUOTED_MAX 300 /* bytes of an argument in a message; an error's sentence is shorter */

bool cli_turns(wchar_t c)
{
    return c == 0x61c || c == 0x200e || c == 0x200f || (c >= 0x202a && c <= 0x202e) ||
           (c >= 0x2066 && c <= 0x2069);
}

char *cli_printable(const char *s)
{
    size_t n = strlen(s);
    char *out = malloc(4 * n + 1);
    if (!out)
        abort();
    size_t used = 0;
    mbstate_t state = {0};
    for (size_t i = 0; i < n;) {
        wchar_t c;
        size_t len = mbrtowc(&c, s + i, n - i, &state);
        bool is_broken = len == (size_t)-1 || len == (size_t)-2;
        if (is_broken) {
            memset(&state, 0, sizeof state);
            len = 1;
        }
        if (!is_broken && !iswcntrl((wint_t)c) && !cli_turns(c)) {
            memcpy(out + used, s + i, len);
            used += len;
        } else {
            for (size_t k = 0; k < len; k++)
                used += (size_t)snprintf(out + used, 5, "\\x%02x", (unsigned char)s[i + k]);
        }
        i += len;
    }
    out[used] = '\0';
    return out;
}

void cli_copy(char *out, size_t cap, const char *text)
{
    size_t n = strnlen(text, cap);
    if (n == cap)
        for (n--; n > 0 && ((unsigned char)text[n] & 0xc0) == 0x80;)
            n--;
    memmove(out, text, n);
    out[n] = '\0';
}

char *cli_names(const struct cli *cli, const char *between)
{
    size_t cap = 1;
    for (int i = 0; i < cli->names_n; i++)
        cap += strlen(between) + strlen(cli->names[i]);
    char *out = calloc(1, cap);
    if (!out)
        abort();
    for (int i = 0; i < cli->names_n; i++) {
        strcat(out, i > 0 ? between : "");
        strcat(out, cli->names[i]);
    }
    return out;
}

static bool is_brief; /* see cli_tell_briefly() */

void cli_tell_briefly(void)
{
    is_brief = true;
}

/* Whether stderr takes a message.  A reader that has stalled once is not waited for again until it reads. */
static bool is_read(void)
{
    static bool has_stalled;
    struct pollfd err = {.fd = STDERR_FILENO, .events = POLLOUT};
    has_stalled = poll(&err, 1, has_stalled ? 0 : BRIEF_MS) == 0;
    return !has_stalled;
}

/* Write a message; with --json as this object, which is freed. */
static void put(const struct cli *cli, cJSON *object, const char *text)
{
    static bool is_cut; /* what was written last lacks the end of its line */
    char *json = cli->is_json ? cJSON_PrintUnformatted(object) : NULL;
    char *printable = cli_printable(text);
    char *line;
    int n = asprintf(&line, "%s%s%s\n", is_cut ? "\n" : "",
                     json ? "" : "snib: ", json ? json : printable);
    int at = 0;
    if (n < 0)
        abort();
    /* A pipe that takes something takes so much without waiting. */
    for (; at < n && !(is_brief && !is_read()); at += PIPE_BUF)
        fwrite(line + at, 1, (size_t)(n - at < PIPE_BUF ? n - at : PIPE_BUF), stderr);
    if (at > 0) /* else it is as it was */
        is_cut = at < n;
    free(line);
    free(printable);
    cJSON_free(json);
    cJSON_Delete(object);
}

/* A message that a program may read. */
static cJSON *message(const char *event, const char *code, const char *text)
{
    cJSON *object = cJSON_CreateObject();
    cJSON_AddStringToObject(object, "event", event);
    if (code)
        cJSON_AddStringToObject(object, "code", code);
    cJSON_AddStringToObject(object, "text", text);
    return object;
}

static void tell(const struct cli *cli, const char *event, const char *code, const char *text)
{
    put(cli, message(event, code, text), text);
}

void cli_tell(const struct cli *cli, const char *event, const char *text)
{
    tell(cli, event, NULL, text);
}

void cli_tell_held(const struct cli *cli, const char *text, int64_t token)
{
    cJSON *object = message("held", NULL, text);
    char number[24];
    snprintf(number, sizeof number, "%" PRId64, token);
    if (token > 0)
        cJSON_AddRawToObject(object, "token", number); /* may be too large for a double */
    put(cli, object, text);
}

void cli_tell_waiting(const struct cli *cli, const char *text, const char *name, const char *owner,
                      const struct identity *identity)
{
    cJSON *object = message("waiting", NULL, text);
    cJSON_AddStringToObject(object, "name", name);
    if (owner)
        cJSON_AddStringToObject(object, "owner", owner);
    if (identity)
        cli_add_identity(object, "identity", identity);
    cli_add_held(object, identity, owner);
    put(cli, object, text);
}

void cli_log(const struct cli *cli, const char *url, const snib_event *record)
{
    static const char *const levels[] = {"log", "error", "warning", "info"};
    const char *level = levels[record->reason >= 0 && record->reason <= 3 ? record->reason : 0];
    char *address = cli->urls_n > 1 ? cli_address(url) : NULL;
    cJSON *object = message("log", level, record->text);
    char *text;
    if (address)
        cJSON_AddStringToObject(object, "server", address);
    if (asprintf(&text, "%s: %s%s%s", level, address ? address : "", address ? ": " : "",
                 record->text) < 0)
        abort();
    put(cli, object, text);
    free(text);
    free(address);
}

int cli_fail(const struct cli *cli, const snib_error *err)
{
    bool is_busy = err->code == SNIB_BUSY || err->code == SNIB_TIMEDOUT;
    if (!is_busy || !cli->is_quiet)
        tell(cli, "error", snib_code_name(err->code), err->text);
    if (is_busy && cli->busy_code >= 0)
        return cli->busy_code;
    if (is_busy)
        return err->code == SNIB_BUSY ? EXIT_BUSY : EXIT_TIMEDOUT;
    if (err->code == SNIB_LOST)
        return EXIT_LOST;
    return err->code <= SNIB_EUNREACHABLE && err->code > SNIB_ECLOSED ? EXIT_SERVER : EXIT_USAGE;
}

/* A text without what may be a password in a URL, however wrong that is; to be freed. */
static char *without_password(const char *text)
{
    const char *start = strstr(text, "://");
    const char *at = start ? strrchr(start, '@') : NULL;
    const char *rest = at ? at + 1 : start ? start + 3 : text;
    char *out;
    if (asprintf(&out, "%.*s%.*s", start ? (int)(start + 3 - text) : 0, text,
                 (int)(start ? strcspn(rest, "?#") : strlen(rest)), rest) < 0)
        abort();
    return out;
}

/* An argument as a message quotes it, to be freed: one long word must not push out the rest of the sentence, a URL may
 * have been given in the wrong place, and an empty one has to be seen. */
static char *quoted(const char *text)
{
    char *shown = without_password(*text ? text : "\"\"");
    char *printable = cli_printable(shown);
    free(shown);
    if (strlen(printable) > QUOTED_MAX) {
        cli_copy(printable, QUOTED_MAX - 2, printable);
        strcat(printable, "...");
    }
    return printable;
}

/* Report the error `text`, which is freed. */
static int fail_with(const struct cli *cli, char *text)
{
    tell(cli, "error", NULL, text);
    free(text);
    return EXIT_USAGE;
}

int cli_fail_errno(const struct cli *cli, const char *what)
{
    const char *why = strerror(errno);
    char *text, *shown = quoted(what); /* which changes errno */
    if (asprintf(&text, "%s: %s", shown, why) < 0)
        abort();
    free(shown);
    return fail_with(cli, text);
}

int cli_usage(const struct cli *cli, const char *what, const char *which)
{
    char *text, *shown = which ? quoted(which) : NULL;
    if (asprintf(&text, "%s%s; see snib --help", what, shown ? shown : "") < 0)
        abort();
    free(shown);
    return fail_with(cli, text);
}

void cli_print_json(cJSON *object)
{
    char *line = cJSON_PrintUnformatted(object);
    if (!line)
        abort();
    puts(line);
    cJSON_free(line);
    cJSON_Delete(object);
}

void cli_add_number(cJSON *object, const char *name, int64_t value)
{
    char text[32];
    snprintf(text, sizeof text, "%" PRId64, value);
    if (value != CLI_UNTOLD)
        cJSON_AddRawToObject(object, name, text);
}

void cli_add_number_or_null(cJSON *object, const char *name, int64_t value)
{
    if (value == CLI_UNTOLD || value == -1)
        cJSON_AddNullToObject(object, name);
    else
        cli_add_number(object, name, value);
}
