/* url.c - URLs with their options, and the struct of options: what is accepted means the same when it is
 * written again, and what is refused leaves nothing behind and is not shown.
 */
#include "fuzz.h"

#include "api/options.h"
#include "api/url.h"
#include "net/text.h"
#include "replies.h"

#include <inttypes.h>

#define CANARY "Canary7" /* in the dictionary; no name of an option looks like it */
#define URL_MAX 16384

/* ---- Writing ------------------------------------------------------------------------------------ */

struct writer {
    char text[URL_MAX];
    size_t n;
};

static void write_text(struct writer *w, const char *text)
{
    size_t n = strlen(text);
    MUST(w->n + n < sizeof w->text);
    memcpy(w->text + w->n, text, n + 1);
    w->n += n;
}

static void write_encoded(struct writer *w, const char *text)
{
    char code[4];
    for (const unsigned char *at = (const unsigned char *)text; *at; at++) {
        snprintf(code, sizeof code, "%%%02x", *at);
        write_text(w, code);
    }
}

static void write_number(struct writer *w, int64_t number)
{
    char digits[24];
    snprintf(digits, sizeof digits, "%" PRId64, number);
    write_text(w, digits);
}

static void write_hosts(struct writer *w, const struct snib__url *url)
{
    for (uint32_t i = 0; i < url->addresses_n; i++) {
        const struct snib__address *address = &url->addresses[i];
        bool v6 = strchr(address->host, ':') != NULL;
        write_text(w, i ? "," : "");
        write_text(w, v6 ? "[" : "");
        write_text(w, address->host);
        write_text(w, v6 ? "]:" : ":");
        write_number(w, address->port);
    }
}

/* A value of "word:value word:value" by its first word; false: there is none. */
static bool write_word(struct writer *w, const char *words, int64_t value)
{
    char word[32];
    int used;
    long long meant;
    for (const char *at = words; sscanf(at, " %31[^:]:%lld%n", word, &meant, &used) == 2;
         at += used)
        if (meant == value) {
            write_text(w, word);
            return true;
        }
    return false;
}

static void write_option(struct writer *w, bool *first, const char *name)
{
    write_text(w, *first ? "?" : "&");
    *first = false;
    write_text(w, name);
    write_text(w, "=");
}

static void write_value(struct writer *w, const char *words, int64_t value, const char *unit)
{
    if (write_word(w, words, value))
        return;
    write_number(w, value);
    write_text(w, unit);
}

#define IS_DURATION true
#define IS_COUNT true
#define IS_CHOICE true
#define IS_TEXT false
#define IS_PATH false
#define IS_SECRET false
#define NUMBER_DURATION(url, given, field) (given)->field
#define NUMBER_COUNT(url, given, field) (given)->field
#define NUMBER_CHOICE(url, given, field) (given)->field
#define NUMBER_TEXT(url, given, field) 0
#define NUMBER_PATH(url, given, field) 0
#define NUMBER_SECRET(url, given, field) 0
#define TEXT_DURATION(url, given, field) NULL
#define TEXT_COUNT(url, given, field) NULL
#define TEXT_CHOICE(url, given, field) NULL
#define TEXT_TEXT(url, given, field) (url)->field
#define TEXT_PATH(url, given, field) (url)->field
#define TEXT_SECRET(url, given, field) (url)->field
#define UNIT_DURATION "ms"
#define UNIT_COUNT ""
#define UNIT_CHOICE ""
#define UNIT_TEXT ""
#define UNIT_PATH ""
#define UNIT_SECRET ""

static void write_options(struct writer *w, const struct snib__url *url,
                          const snib_client_options *given)
{
    bool first = true;
    if (url->has_database && url->topology == SNIB__SINGLE && url->addresses[0].path[0]) {
        write_option(w, &first, "db");
        write_number(w, url->database);
    }
#define X(name, field, kind, state, min, max, standard, words, help)                               \
    {                                                                                              \
        const char *text = TEXT_##kind(url, given, field);                                         \
        int64_t number = NUMBER_##kind(url, given, field);                                         \
        bool user = strcmp(#name, "username") == 0 || strcmp(#name, "password") == 0;              \
        if (IS_##kind && number != 0) {                                                            \
            write_option(w, &first, #name);                                                        \
            write_value(w, words, number, UNIT_##kind);                                            \
        } else if (text && !user) {                                                                \
            write_option(w, &first, #name);                                                        \
            write_encoded(w, text);                                                                \
        }                                                                                          \
    }
#include "api/options.def"
#undef X
}

/* The same as an ordinary URL. */
static void write_url(struct writer *w, const struct snib__url *url,
                      const snib_client_options *given)
{
    const char *path = url->addresses[0].path;
    bool is_unix = path[0] != 0;
    w->n = 0;
    write_text(w, path[0] == '@' ? "memory" : is_unix ? "unix" : url->tls ? "rediss" : "redis");
    write_text(w, url->topology == SNIB__SENTINEL  ? "+sentinel"
                  : url->topology == SNIB__CLUSTER ? "+cluster"
                                                   : "");
    write_text(w, "://");
    if (url->username)
        write_encoded(w, url->username);
    if (url->password) {
        write_text(w, ":");
        write_encoded(w, url->password);
    }
    if (url->username || url->password)
        write_text(w, "@");
    if (path[0] == '@')
        write_text(w, path + 1);
    else if (is_unix)
        write_text(w, "/"), write_encoded(w, url->addresses[0].path + 1);
    else
        write_hosts(w, url);
    if (url->service) {
        write_text(w, "/");
        write_encoded(w, url->service);
    }
    if (url->has_database && !is_unix) {
        write_text(w, "/");
        write_number(w, url->database);
    }
    write_options(w, url, given);
}

/* ---- Comparing ---------------------------------------------------------------------------------- */

static bool same_text(const char *one, const char *other)
{
    return one && other ? strcmp(one, other) == 0 : one == other;
}

static void check_same_numbers(const snib_client_options *one, const snib_client_options *other)
{
    const struct snib__url none = {0};
    (void)none;
#define X(name, field, kind, state, min, max, standard, words, help)                               \
    MUST((int64_t)NUMBER_##kind(&none, one, field) == (int64_t)NUMBER_##kind(&none, other, field));
#include "api/options.def"
#undef X
}

static void check_same(const struct snib__url *one, const struct snib__url *other)
{
    MUST(one->topology == other->topology && one->tls == other->tls);
    MUST(one->database == other->database && one->addresses_n == other->addresses_n);
    for (uint32_t i = 0; i < one->addresses_n; i++) {
        MUST(snib__address_equal(&one->addresses[i], &other->addresses[i]));
        MUST(one->addresses[i].tls == one->tls);
    }
    MUST(same_text(one->service, other->service));
    const snib_client_options *given = NULL;
    (void)given;
#define X(name, field, kind, state, min, max, standard, words, help)                               \
    MUST(same_text(TEXT_##kind(one, given, field), TEXT_##kind(other, given, field)));
#include "api/options.def"
#undef X
}

static void check_clean(const char *text)
{
    size_t n = text ? strlen(text) : 0;
    for (size_t i = 0; i < n; i++)
        MUST((unsigned char)text[i] >= 0x20 && text[i] != 0x7f);
}

/* ---- Checks ------------------------------------------------------------------------------------- */

static void check_refusal(int code, const snib_error *err)
{
    MUST(code == SNIB_EURL || code == SNIB_EOPTION || code == SNIB_ELEASE || code == SNIB_EINVAL ||
         code == SNIB_ENOTSUP);
    MUST(err->code == code);
    MUST(memchr(err->text, 0, sizeof err->text) && err->text[0]);
    MUST(!strstr(err->text, CANARY));
    check_clean(err->text);
}

static void check_parts(const struct snib__url *url)
{
    MUST(url->addresses_n >= 1 && url->addresses_n <= SNIB__URL_ADDRESSES_MAX);
    MUST(url->topology != SNIB__SINGLE || url->addresses_n == 1);
    MUST((url->topology == SNIB__SENTINEL) == (url->service != NULL));
    MUST(url->database >= 0 && (url->database == 0 || url->topology != SNIB__CLUSTER));
    for (uint32_t i = 0; i < url->addresses_n; i++) {
        const struct snib__address *address = &url->addresses[i];
        MUST((address->host[0] == 0) != (address->path[0] == 0));
        MUST(address->path[0] ? address->port == 0 : address->port >= 1 && address->port <= 65535);
    }
    check_clean(url->username);
    check_clean(url->password);
    check_clean(url->service);
}

static void check_url(const char *text)
{
    static struct writer w;
    struct snib__url url, again;
    snib_client_options given, given_again;
    snib_error err = {0};
    int code = snib__url_parse(text, &url, &given, &err);
    if (code != SNIB_OK) {
        check_refusal(code, &err);
        MUST(!url.addresses && !url.password && !url.username && !url.service);
        return;
    }
    check_parts(&url);
    write_url(&w, &url, &given);
    if (snib__url_parse(w.text, &again, &given_again, &err) != SNIB_OK)
        fuzz_broken(err.text, __FILE__, __LINE__);
    check_same(&url, &again);
    check_same_numbers(&given, &given_again);
    snib_client_options o, o_again;
    snib_client_options_init(&o, sizeof o);
    snib_client_options_init(&o_again, sizeof o_again);
    code = snib__options_settle(&o, &given, &url, &err);
    MUST(code == snib__options_settle(&o_again, &given_again, &again, NULL));
    if (code == SNIB_OK)
        check_same_numbers(&o, &o_again);
    else
        check_refusal(code, &err);
    snib__url_free(&url);
    snib__url_free(&again);
}

/* A client with the options, and another with those that are in effect. */
static void check_open(const char *url, const snib_client_options *options)
{
    static char nothing;
    snib_client *const untouched = (snib_client *)&nothing;
    snib_client *client = untouched, *second = NULL;
    snib_error err = {0};
    snib_client_options effect, again;
    int code = snib_client_open(url, options, &client, &err);
    if (code != SNIB_OK) {
        check_refusal(code, &err);
        MUST(client == untouched);
        return;
    }
    snib_client_options_init(&effect, sizeof effect);
    snib_client_options_init(&again, sizeof again);
    MUST(snib_client_get_options(client, &effect, NULL) == SNIB_OK);
    MUST(effect.lease_ms >= 100 && effect.lease_ms <= 86400000);
    MUST(effect.recheck_ms >= 50 && effect.lanes >= 1 && effect.lanes <= 4);
    MUST(!effect.password && !effect.username && !effect.tls_key_password);
    /* Without durability or debug their parts may not be given, although they have values. */
    if (effect.durability == SNIB_DURABILITY_NONE)
        effect.durability_timeout_ms = effect.durability_policy = 0;
    if (effect.debug <= 0)
        effect.debug_hold_ms = 0;
    effect.credentials = NULL;
    effect.ask_credentials = 0;
    const char *plain = effect.tls_insecure > 0 ? "rediss://h" : "redis://h";
    MUST(snib_client_open(plain, &effect, &second, &err) == SNIB_OK);
    MUST(snib_client_get_options(second, &again, NULL) == SNIB_OK);
    if (effect.durability == SNIB_DURABILITY_NONE)
        again.durability_timeout_ms = again.durability_policy = 0;
    if (effect.debug <= 0)
        again.debug_hold_ms = 0;
    check_same_numbers(&effect, &again);
    snib_client_free(second);
    snib_client_free(client);
}

static int no_credentials(void *data, snib_credentials *out)
{
    (void)data, (void)out;
    return 1;
}

static int64_t number_of(struct input *in)
{
    unsigned how = take(in);
    if (how < 128)
        return 0;
    if (how < 192)
        return number_any(take(in));
    return take(in) * 10;
}

/* A text of the input with an end of its own. */
static const char *text_of(struct input *in, char *out, size_t cap)
{
    size_t n, want = take(in);
    if (want < 160)
        return NULL;
    const char *bytes = take_bytes(in, want % 16, &n);
    n = n < cap ? n : cap - 1;
    memcpy(out, bytes, n);
    out[n] = 0;
    return out;
}

static void check_options(struct input *in)
{
    static char texts[16][16];
    snib_client_options o;
    size_t at = 0, size = sizeof o;
    unsigned how = take(in);
    snib_client_options_init(&o, sizeof o);
    o.flags = how & 1 ? take(in) : 0;
#define FILL_DURATION(field) o.field = number_of(in)
#define FILL_COUNT(field) o.field = (int32_t)number_of(in)
#define FILL_CHOICE(field) o.field = (int32_t)number_of(in)
#define FILL_TEXT(field) o.field = text_of(in, texts[at], sizeof texts[at]), at++
#define FILL_PATH FILL_TEXT
#define FILL_SECRET FILL_TEXT
#define X(name, field, kind, state, min, max, standard, words, help) FILL_##kind(field);
#include "api/options.def"
#undef X
    o.ask_credentials = how & 2 ? (int32_t)number_of(in) : 0;
    o.credentials = how & 4 ? no_credentials : NULL;
    if (how & 8) /* whole words: a struct that ends in the midst of a pointer has no meaning */
        size = 8 * (1 + take(in) % (2 * sizeof o / 8));
    o.size = (uint32_t)size;
    /* A caller of another version: its struct has exactly that size. */
    char *theirs = calloc(1, size);
    MUST(theirs);
    memcpy(theirs, &o, size < sizeof o ? size : sizeof o);
    if (size > sizeof o && how & 16)
        theirs[sizeof o + take(in) % (size - sizeof o)] = (char)take(in);
    check_open(how & 32 ? "redis+cluster://h" : "redis://h", (snib_client_options *)(void *)theirs);
    free(theirs);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct input in = {data, size};
    unsigned how = take(&in);
    if (how % 4 == 0) {
        check_options(&in);
        return 0;
    }
    char *text = malloc(in.left + 1);
    MUST(text);
    memcpy(text, in.at, in.left);
    text[in.left] = 0;
    if (in.left < URL_MAX / 8)
        check_url(text);
    if (how % 4 == 2)
        check_open(text, NULL);
    free(text);
    return 0;
}
