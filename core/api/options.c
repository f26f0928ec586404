/* options.c - see options.h. */
#include "api/options.h"

#include "api/identity.h"
#include "net/error.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum option_kind {
    OPTION_DURATION,
    OPTION_COUNT,
    OPTION_CHOICE,
    OPTION_TEXT,
    OPTION_PATH,
    OPTION_SECRET,
};

struct option {
    const char *name;
    int kind; /* enum option_kind */
    bool is_ready;
    size_t field; /* in snib_client_options */
    size_t text;  /* in struct snib__url, of a text */
    int64_t min, max, standard;
    const char *words; /* "word:value word:value" */
};

/* A row's state, and the place of its text. */
#define OPTION_READY true
#define OPTION_LATER false
#define OPTION_TEXT_AT_DURATION(field) 0
#define OPTION_TEXT_AT_COUNT(field) 0
#define OPTION_TEXT_AT_CHOICE(field) 0
#define OPTION_TEXT_AT_TEXT(field) offsetof(struct snib__url, field)
#define OPTION_TEXT_AT_PATH(field) offsetof(struct snib__url, field)
#define OPTION_TEXT_AT_SECRET(field) offsetof(struct snib__url, field)

static const struct option options_table[] = {
#define X(name, field, kind, state, min, max, standard, words, text)                               \
    {#name,                                                                                        \
     OPTION_##kind,                                                                                \
     OPTION_##state,                                                                               \
     offsetof(snib_client_options, field),                                                         \
     OPTION_TEXT_AT_##kind(field),                                                                 \
     min,                                                                                          \
     max,                                                                                          \
     standard,                                                                                     \
     words},
#include "api/options.def"
#undef X
};
#define OPTION_WORDS_MAX 8
#define OPTIONS_N (sizeof options_table / sizeof options_table[0])

/* The table's kinds match the header's types. */
#define OPTION_TYPE_DURATION int64_t
#define OPTION_TYPE_COUNT int32_t
#define OPTION_TYPE_CHOICE int32_t
#define OPTION_TYPE_TEXT const char *
#define OPTION_TYPE_PATH const char *
#define OPTION_TYPE_SECRET const char *
#define X(name, field, kind, state, min, max, standard, words, text)                               \
    _Static_assert(                                                                                \
        _Generic(((snib_client_options *)0)->field, OPTION_TYPE_##kind : 1, default : 0), #name);
#include "api/options.def"
#undef X

static bool option_is_text(const struct option *option)
{
    return option->kind >= OPTION_TEXT;
}

static int64_t option_get(const struct option *option, const snib_client_options *from)
{
    int64_t wide = 0;
    int32_t narrow = 0;
    const char *field = (const char *)from + option->field;
    if (option->kind == OPTION_DURATION)
        memcpy(&wide, field, sizeof wide);
    else
        memcpy(&narrow, field, sizeof narrow);
    return option->kind == OPTION_DURATION ? wide : narrow;
}

static void option_put(const struct option *option, snib_client_options *to, int64_t value)
{
    int32_t narrow = (int32_t)value;
    char *field = (char *)to + option->field;
    if (option->kind == OPTION_DURATION)
        memcpy(field, &value, sizeof value);
    else
        memcpy(field, &narrow, sizeof narrow);
}

static const char **option_given_text(const struct option *option, snib_client_options *o)
{
    return (const char **)((char *)o + option->field);
}

static char **option_text(const struct option *option, struct snib__url *url)
{
    return (char **)((char *)url + option->text);
}

/* ---- permitted values ---- */

/* The next of "word:value word:value"; false at the end. */
static bool option_next_word(const char **words, const char **out_word, size_t *out_n,
                             int64_t *out_value)
{
    const char *colon = strchr(*words, ':');
    char *end;
    if (!colon)
        return false;
    *out_word = *words;
    *out_n = (size_t)(colon - *words);
    *out_value = strtol(colon + 1, &end, 10);
    *words = *end ? end + 1 : end;
    return true;
}

static bool option_in_range(const struct option *option, int64_t value)
{
    const char *words = option->words, *word;
    size_t n;
    int64_t meant;
    while (option_next_word(&words, &word, &n, &meant))
        if (meant == value)
            return true;
    return option->kind != OPTION_CHOICE && value >= option->min && value <= option->max;
}

/* A time as it can be written in a URL: a bare number there, and in Python, is in seconds. */
static const char *option_say_time(char out[24], int64_t ms)
{
    const char *unit = "ms";
    if (ms % 3600000 == 0)
        ms /= 3600000, unit = "h";
    else if (ms % 60000 == 0)
        ms /= 60000, unit = "m";
    snprintf(out, 24, "%lld%s", (long long)ms, unit);
    return out;
}

/* Write the permitted values: a range, if there is one, then words as in "a, b or c", the first
 * word for each value. */
static void option_say_range(const struct option *option, char *text, size_t cap)
{
    const char *parts[OPTION_WORDS_MAX], *words = option->words, *word;
    size_t sizes[OPTION_WORDS_MAX], n, count = 0, used = 0;
    int64_t values[OPTION_WORDS_MAX], value;
    while (option_next_word(&words, &word, &n, &value)) {
        bool is_alias = false;
        for (size_t i = 0; i < count; i++)
            is_alias = is_alias || values[i] == value;
        if (is_alias || count == OPTION_WORDS_MAX)
            continue;
        parts[count] = word;
        sizes[count] = n;
        values[count++] = value;
    }
    text[0] = '\0';
    char min[24], max[24];
    if (option->kind == OPTION_DURATION)
        used += (size_t)snprintf(text, cap, "%s to %s", option_say_time(min, option->min),
                                 option_say_time(max, option->max));
    else if (option->kind != OPTION_CHOICE)
        used += (size_t)snprintf(text, cap, "%lld to %lld", (long long)option->min,
                                 (long long)option->max);
    for (size_t i = 0; i < count && used < cap; i++)
        used += (size_t)snprintf(text + used, cap - used, "%s%.*s",
                                 used == 0        ? ""
                                 : i + 1 == count ? " or "
                                                  : ", ",
                                 (int)sizes[i], parts[i]);
}

static int option_refused(const struct option *option, snib_error *err)
{
    char range[100];
    if (strcmp(option->name, "lease") == 0) /* has its own code and sentence */
        return snib__fail(err, SNIB_ELEASE, 0, NULL);
    option_say_range(option, range, sizeof range);
    return snib__fail(err, SNIB_EOPTION, 0, "the option %s cannot have this value; use %s",
                      option->name, range);
}

/* ---- the query ---- */

/* Read "500ms", "10s", "1.5", "2m" or "1h" as milliseconds, rounded. */
static bool option_duration(const char *value, int64_t *out)
{
    static const struct {
        const char *name;
        int64_t ms;
    } units[] = {{"", 1000}, {"ms", 1}, {"s", 1000}, {"m", 60000}, {"h", 3600000}};
    int64_t whole = 0, part = 0, scale = 1;
    const char *p = value;
    for (; *p >= '0' && *p <= '9'; p++)
        whole = whole < 1000000000 ? whole * 10 + (*p - '0') : whole; /* far above every range */
    if (p == value)
        return false;
    if (*p == '.' && p[1] >= '0' && p[1] <= '9')
        for (p++; *p >= '0' && *p <= '9'; p++)
            if (scale < 1000000000) {
                part = part * 10 + (*p - '0');
                scale *= 10;
            }
    for (size_t i = 0; i < sizeof units / sizeof units[0]; i++)
        if (strcmp(p, units[i].name) == 0) {
            *out = whole * units[i].ms + (part * units[i].ms + scale / 2) / scale;
            return true;
        }
    return false;
}

static bool option_count(const char *value, int64_t *out)
{
    int64_t number = 0;
    for (const char *p = value; *p; p++) {
        if (*p < '0' || *p > '9')
            return false;
        number = number <= INT32_MAX ? number * 10 + (*p - '0') : number;
    }
    *out = number;
    return value[0] != '\0';
}

static bool option_number(const struct option *option, const char *value, int64_t *out)
{
    const char *words = option->words, *word;
    size_t n;
    while (option_next_word(&words, &word, &n, out))
        if (strlen(value) == n && memcmp(value, word, n) == 0)
            return true;
    if (option->kind == OPTION_DURATION)
        return option_duration(value, out);
    return option->kind == OPTION_COUNT && option_count(value, out);
}

static int option_take_number(const struct option *option, const char *value,
                              snib_client_options *given, snib_error *err)
{
    int64_t number = 0;
    if (option_get(option, given) != 0)
        return snib__fail(err, SNIB_EURL, 0, "the URL has the option %s twice", option->name);
    bool is_number = option_number(option, value, &number);
    if (!is_number && option->kind == OPTION_DURATION)
        return snib__fail(err, SNIB_EOPTION, 0,
                          "the option %s is not a time; write it as 500ms, 10s, 2m, 1h or plain "
                          "seconds",
                          option->name);
    if (!is_number || !option_in_range(option, number))
        return option_refused(option, err);
    option_put(option, given, number);
    return SNIB_OK;
}

int snib__option_take(const char *name, const char *value, snib_client_options *given,
                      struct snib__url *url, snib_error *err)
{
    const struct option *option = options_table;
    while (option < options_table + OPTIONS_N && strcmp(option->name, name) != 0)
        option++;
    if (option == options_table + OPTIONS_N)
        return snib__fail(err, SNIB_EOPTION, 0, "there is no option %s", name);
    if (!option_is_text(option))
        return option_take_number(option, value, given, err);
    if (*option_text(option, url))
        return snib__fail(err, SNIB_EURL, 0, "the URL has the option %s twice", option->name);
    *option_text(option, url) = strdup(value);
    return *option_text(option, url) ? SNIB_OK : snib__fail(err, SNIB_ENOMEM, 0, NULL);
}

/* ---- all of them together ---- */

/* The program's value overrides the URL's. */
static int option_merge(const struct option *option, snib_client_options *o,
                        const snib_client_options *query, struct snib__url *url, snib_error *err)
{
    if (!option_is_text(option)) {
        int64_t number = option_get(option, o);
        if (number == 0)
            option_put(option, o, option_get(option, query));
        return number == 0 || option_in_range(option, number) ? SNIB_OK
                                                              : option_refused(option, err);
    }
    const char *text = *option_given_text(option, o);
    char **own = option_text(option, url);
    if (!text)
        return SNIB_OK;
    if (text[0] == '\0' && option->kind != OPTION_SECRET) /* an empty name would check nothing */
        return snib__fail(err, SNIB_EOPTION, 0, "the option %s is empty; leave it out",
                          option->name);
    char *copy = strdup(text);
    if (!copy)
        return snib__fail(err, SNIB_ENOMEM, 0, NULL);
    snib__url_wipe(*own);
    *own = copy;
    return SNIB_OK;
}

static bool option_is_given(const struct option *option, const snib_client_options *o,
                            struct snib__url *url)
{
    return option_is_text(option) ? *option_text(option, url) != NULL : option_get(option, o) != 0;
}

static int options_bad(snib_error *err, const char *why)
{
    return snib__fail(err, SNIB_EOPTION, 0, "%s", why);
}

/* Refuse options that exclude each other.  The program's choice between a password and a password
 * file has already replaced the URL's. */
static int options_agree(const snib_client_options *o, const struct snib__url *url, snib_error *err)
{
    const char *tls = url->tls_ca             ? "tls_ca"
                      : url->tls_cert         ? "tls_cert"
                      : url->tls_key          ? "tls_key"
                      : url->tls_key_password ? "tls_key_password"
                      : url->tls_server_name  ? "tls_server_name"
                      : o->tls_insecure > 0   ? "tls_insecure"
                                              : NULL;
    bool asks = o->credentials || o->ask_credentials;
    if (url->password && url->password_file)
        return options_bad(err, "both a password and a password_file are given; use one of them");
    if (asks && (url->password || url->password_file || (o->credentials && o->ask_credentials)))
        return options_bad(err, "both credentials and a password are given; use one of them");
    if (tls && !url->tls)
        return snib__fail(err, SNIB_EOPTION, 0,
                          "the option %s is for TLS, but the URL does not use TLS; use rediss://",
                          tls);
    if (url->tls_key && !url->tls_cert)
        return options_bad(err, "the option tls_key requires tls_cert");
    if (url->tls_key_password && !url->tls_cert)
        return options_bad(err, "the option tls_key_password requires tls_cert");
    const char *name = url->tls_server_name;
    struct snib__address host;
    if (name && !snib__address_host(&host, name, strlen(name), 1, true))
        return options_bad(err, "tls_server_name must be a host name or an address, without a dot "
                                "or brackets in front");
    if (url->tls_ca && o->tls_insecure > 0)
        return options_bad(err, "tls_insecure accepts any certificate, so leave tls_ca out");
    if ((url->sentinel_username || url->sentinel_password) && url->topology != SNIB__SENTINEL)
        return options_bad(err, "the sentinels' user and password are for redis+sentinel:// only");
    if ((o->durability_timeout_ms || o->durability_policy) &&
        (o->durability == 0 || o->durability == SNIB_DURABILITY_NONE))
        return options_bad(err, "durability_timeout and durability_policy require "
                                "durability");
    if (o->debug_hold_ms && o->debug <= 0)
        return options_bad(err, "debug_hold requires debug");
    return SNIB_OK;
}

/* The files are read at each connect, when the program may have another working directory, as a daemon has. */
static int option_anchor(char **path, snib_error *err)
{
    if (!*path || (*path)[0] == '/')
        return SNIB_OK;
    char *folder = getcwd(NULL, 0), *whole = NULL;
    if (!folder && errno != ENOMEM)
        return SNIB_OK; /* it has none that could be named */
    int n = folder ? asprintf(&whole, "%s/%s", folder, *path) : -1;
    free(folder);
    if (n < 0)
        return snib__fail(err, SNIB_ENOMEM, 0, NULL);
    free(*path);
    *path = whole;
    return SNIB_OK;
}

int snib__options_settle(snib_client_options *o, const snib_client_options *query,
                         struct snib__url *url, snib_error *err)
{
    int code = SNIB_OK;
    bool asks = o->credentials || o->ask_credentials;
    if ((o->password && !o->password_file) || asks) {
        snib__url_wipe(url->password_file);
        url->password_file = NULL;
    }
    if ((o->password_file && !o->password) || asks) {
        snib__url_wipe(url->password);
        url->password = NULL;
    }
    for (size_t i = 0; code == SNIB_OK && i < OPTIONS_N; i++)
        code = option_merge(&options_table[i], o, query, url, err);
    if (o->debug == 0 && url->memory)
        o->debug = 1; /* whoever tests looks for mistakes */
    if (code == SNIB_OK)
        code = options_agree(o, url, err);
    if (code == SNIB_OK)
        code = snib__label_check(url->label, true, err);
    for (size_t i = 0; code == SNIB_OK && i < OPTIONS_N; i++)
        if (!options_table[i].is_ready && option_is_given(&options_table[i], o, url))
            code = snib__fail(err, SNIB_ENOTSUP, 0, "this build cannot do the option %s yet",
                              options_table[i].name);
    for (size_t i = 0; code == SNIB_OK && i < OPTIONS_N; i++)
        if (options_table[i].kind == OPTION_PATH)
            code = option_anchor(option_text(&options_table[i], url), err);
    url->tls_insecure = o->tls_insecure > 0;
    for (size_t i = 0; i < OPTIONS_N; i++)
        if (option_is_text(&options_table[i]))
            *option_given_text(&options_table[i], o) = NULL;
        else if (option_get(&options_table[i], o) == 0)
            option_put(&options_table[i], o, options_table[i].standard);
    return code;
}
