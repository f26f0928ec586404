/* url.c - see url.h.
 *
 * The grammar is a strict subset of RFC 3986: anything not understood is refused, because a client
 * that guesses may talk to the wrong server.
 */
#include "api/url.h"

#include "api/options.h"
#include "net/error.h"
#include "net/text.h"

#include <arpa/inet.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define URL_OPTION_NAME_MAX 40

/* A part of the URL that is being read. */
struct url_span {
    const char *at;
    size_t n;
};

/* The schemes, with the names that Valkey's clients use for them. */
static const struct url_scheme {
    const char *name;
    int topology;
    bool tls, is_unix, is_memory;
} url_schemes[] = {
    {"redis", SNIB__SINGLE, false, false, false},
    {"valkey", SNIB__SINGLE, false, false, false},
    {"rediss", SNIB__SINGLE, true, false, false},
    {"valkeys", SNIB__SINGLE, true, false, false},
    {"unix", SNIB__SINGLE, false, true, false},
    {"redis+unix", SNIB__SINGLE, false, true, false},
    {"valkey+unix", SNIB__SINGLE, false, true, false},
    {"memory", SNIB__SINGLE, false, false, true},
    {"redis+sentinel", SNIB__SENTINEL, false, false, false},
    {"valkey+sentinel", SNIB__SENTINEL, false, false, false},
    {"rediss+sentinel", SNIB__SENTINEL, true, false, false},
    {"valkeys+sentinel", SNIB__SENTINEL, true, false, false},
    {"redis+cluster", SNIB__CLUSTER, false, false, false},
    {"valkey+cluster", SNIB__CLUSTER, false, false, false},
    {"rediss+cluster", SNIB__CLUSTER, true, false, false},
    {"valkeys+cluster", SNIB__CLUSTER, true, false, false},
};

static int url_bad(snib_error *err, const char *why)
{
    return snib__fail(err, SNIB_EURL, 0, "%s", why);
}

static int url_hex(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c = (char)(c | 0x20);
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

void snib__url_wipe(char *text)
{
    if (text)
        explicit_bzero(text, strlen(text));
    free(text);
}

/* Percent-decode a span into new memory.  `what` names it in messages. */
static int url_decode(struct url_span in, const char *what, char **out, snib_error *err)
{
    char *text = malloc(in.n + 1);
    if (!text)
        return snib__fail(err, SNIB_ENOMEM, 0, NULL);
    size_t used = 0;
    for (size_t i = 0; i < in.n; i++) {
        int byte = (unsigned char)in.at[i];
        if (byte == '%') {
            int high = i + 2 < in.n ? url_hex(in.at[i + 1]) : -1;
            int low = i + 2 < in.n ? url_hex(in.at[i + 2]) : -1;
            byte = high < 0 || low < 0 ? 0 : high << 4 | low;
            i += 2;
        }
        if (byte < 0x20 || byte == 0x7f) {
            text[used] = '\0';
            snib__url_wipe(text);
            return snib__fail(err, SNIB_EURL, 0,
                              "the URL's %s has a bad percent sequence or an encoded control byte",
                              what);
        }
        text[used++] = (char)byte;
    }
    text[used] = '\0';
    *out = text;
    return SNIB_OK;
}

/* Read a span as an unsigned decimal number; -1 if it is not one or above max. */
static long url_number(struct url_span in, long max)
{
    long value = 0;
    if (in.n == 0 || in.n > 10)
        return -1;
    for (size_t i = 0; i < in.n; i++) {
        if (in.at[i] < '0' || in.at[i] > '9')
            return -1;
        value = value * 10 + (in.at[i] - '0');
    }
    return value <= max ? value : -1;
}

static int url_database(struct url_span in, struct snib__url *out, snib_error *err)
{
    long number = url_number(in, INT_MAX);
    if (number < 0)
        return url_bad(err, "the URL's database is not a number from 0 to 2147483647");
    if (out->has_database)
        return url_bad(err, "the URL names its database twice, in its path and as db");
    if (out->topology == SNIB__CLUSTER && number != 0)
        return url_bad(err, "a cluster has no database but 0; leave the URL's database out");
    out->database = (int)number;
    out->has_database = true;
    return SNIB_OK;
}

/* ---- before the @, and the hosts ---- */

/* Read "user", "user:password" or ":password". */
static int url_userinfo(struct url_span in, struct snib__url *out, snib_error *err)
{
    const char *colon = memchr(in.at, ':', in.n);
    struct url_span user = {in.at, colon ? (size_t)(colon - in.at) : in.n};
    struct url_span password = {colon ? colon + 1 : NULL, colon ? in.n - user.n - 1 : 0};
    if (user.n == 0 && password.n == 0)
        return url_bad(err, "the URL has an @ but neither user nor password before it");
    if (memchr(in.at, '@', in.n))
        return url_bad(err, "the URL has two @; write %40 inside user and password");
    int code = user.n > 0 ? url_decode(user, "user", &out->username, err) : SNIB_OK;
    if (code == SNIB_OK && colon)
        code = url_decode(password, "password", &out->password, err);
    return code;
}

static bool url_is_ipv6(struct url_span in)
{
    struct in6_addr address;
    char text[INET6_ADDRSTRLEN] = "";
    if (in.n >= sizeof text)
        return false;
    memcpy(text, in.at, in.n);
    return inet_pton(AF_INET6, text, &address) == 1;
}

/* Read "host", "host:port", "[address]" or "[address]:port". */
static int url_host_port(struct url_span in, struct snib__url *out, snib_error *err)
{
    bool is_bracketed = in.n > 0 && in.at[0] == '[';
    const char *end = in.n > 0 ? memchr(in.at, is_bracketed ? ']' : ':', in.n) : NULL;
    if (is_bracketed && !end)
        return url_bad(err, "the URL's [ has no ]");
    struct url_span host = {in.at + is_bracketed, 0};
    host.n = end ? (size_t)(end - host.at) : in.n;
    struct url_span rest = {host.at + host.n + is_bracketed,
                            in.n - host.n - 2 * (size_t)is_bracketed};
    if (is_bracketed && !url_is_ipv6(host))
        return url_bad(err, "the text in brackets in the URL is not an IPv6 address");
    if (!is_bracketed && rest.n > 1 && memchr(rest.at + 1, ':', rest.n - 1))
        return url_bad(err, "the URL's host has two colons; IPv6 goes in brackets, as [::1]:6379");
    if (host.n == 0)
        return url_bad(err, out->topology == SNIB__SINGLE
                                ? "the URL has no host"
                                : "the URL has no host, or an empty one beside a comma");
    long port = out->topology == SNIB__SENTINEL ? 26379 : 6379;
    if (rest.n > 0)
        port =
            rest.at[0] == ':' ? url_number((struct url_span){rest.at + 1, rest.n - 1}, 65535) : -1;
    if (port < 1)
        return url_bad(err, "the URL's port is not a number from 1 to 65535");
    struct snib__address *address = &out->addresses[out->addresses_n];
    if (!snib__address_host(address, host.at, host.n, port, out->tls))
        return url_bad(err, "the URL's host is not a name or address; IPv6 goes in brackets");
    for (uint32_t i = 0; i < out->addresses_n; i++)
        if (snib__address_equal(&out->addresses[i], address))
            return url_bad(err, "the URL names one host and port twice");
    out->addresses_n++;
    return SNIB_OK;
}

/* Read one host, or several separated by commas. */
static int url_hosts(struct url_span in, struct snib__url *out, snib_error *err)
{
    size_t commas = 0;
    for (size_t i = 0; i < in.n; i++)
        commas += in.at[i] == ',';
    if (out->topology == SNIB__SINGLE && commas > 0)
        return url_bad(err, "the URL has several hosts, which only redis+sentinel:// and "
                            "redis+cluster:// take");
    if (commas >= SNIB__URL_ADDRESSES_MAX)
        return url_bad(err, "the URL has more than 32 hosts");
    out->addresses = calloc(commas + 1, sizeof *out->addresses);
    if (!out->addresses)
        return snib__fail(err, SNIB_ENOMEM, 0, NULL);
    int code = SNIB_OK;
    while (code == SNIB_OK && out->addresses_n <= commas) {
        const char *comma = in.n > 0 ? memchr(in.at, ',', in.n) : NULL;
        struct url_span one = {in.at, comma ? (size_t)(comma - in.at) : in.n};
        code = url_host_port(one, out, err);
        in = (struct url_span){one.at + one.n + 1, comma ? in.n - one.n - 1 : 0};
    }
    return code;
}

/* ---- the path ---- */

/* Read "/service" or "/service/database". */
static int url_service(struct url_span path, struct snib__url *out, snib_error *err)
{
    struct url_span name = {path.at + 1, path.n > 0 ? path.n - 1 : 0};
    const char *slash = name.n > 0 ? memchr(name.at, '/', name.n) : NULL;
    struct url_span digits = {slash ? slash + 1 : NULL, 0};
    if (slash) {
        digits.n = name.n - (size_t)(slash - name.at) - 1;
        name.n = (size_t)(slash - name.at);
    }
    if (name.n == 0)
        return url_bad(err, "a URL of sentinels needs the service's name: "
                            "redis+sentinel://host1,host2/service");
    int code = url_decode(name, "service", &out->service, err);
    if (code == SNIB_OK && strlen(out->service) > SNIB__SERVICE_MAX)
        return url_bad(err, "the URL's service has more than 200 bytes");
    uint32_t c;
    for (size_t i = 0, step; code == SNIB_OK && out->service[i]; i += step)
        if (!(step = snib__utf8_next(out->service + i, strlen(out->service + i), &c)) ||
            snib__is_control(c) || c == ' ')
            return url_bad(err, "the URL's service contains a space or is not UTF-8");
    return code == SNIB_OK && digits.n > 0 ? url_database(digits, out, err) : code;
}

/* Read what follows the hosts up to the query. */
static int url_tcp(struct url_span authority, struct url_span path, struct snib__url *out,
                   snib_error *err)
{
    int code = url_hosts(authority, out, err);
    if (code != SNIB_OK)
        return code;
    if (out->topology == SNIB__SENTINEL)
        return url_service(path, out, err);
    return path.n > 1 ? url_database((struct url_span){path.at + 1, path.n - 1}, out, err)
                      : SNIB_OK;
}

static int url_unix(struct url_span authority, struct url_span path, struct snib__url *out,
                    snib_error *err)
{
    char *text = NULL;
    if (authority.n > 0 || path.n < 2)
        return url_bad(err, "a unix:// URL needs an absolute path: unix:///path/to/socket");
    int code = url_decode(path, "path", &text, err);
    if (code != SNIB_OK)
        return code;
    out->addresses = calloc(1, sizeof *out->addresses);
    if (!out->addresses)
        code = snib__fail(err, SNIB_ENOMEM, 0, NULL);
    else if (!snib__address_path(out->addresses, text, strlen(text)))
        code = url_bad(err, "the URL's socket path has more than 107 bytes");
    else
        out->addresses_n = 1;
    free(text);
    return code;
}

/* A memory server listens at an address that only the clients of its process compute. */
static int url_memory(struct url_span authority, struct url_span path, struct snib__url *out,
                      snib_error *err)
{
    out->addresses = calloc(1, sizeof *out->addresses);
    if (!out->addresses)
        return snib__fail(err, SNIB_ENOMEM, 0, NULL);
    if (!snib__address_memory(out->addresses, authority.at, authority.n))
        return url_bad(err, "a memory:// URL needs a name of 1 to 64 letters, digits, - and _: "
                            "memory://name");
    out->addresses_n = 1;
    return path.n > 1 ? url_database((struct url_span){path.at + 1, path.n - 1}, out, err)
                      : SNIB_OK;
}

/* ---- the query ---- */

/* Read "name=value".  The name is copied only if it looks like one, because an unknown name is
 * shown. */
static int url_option(struct url_span in, struct snib__url *out, snib_client_options *given,
                      snib_error *err)
{
    const char *equals = in.n > 0 ? memchr(in.at, '=', in.n) : NULL;
    char name[URL_OPTION_NAME_MAX + 1] = "";
    size_t n = equals ? (size_t)(equals - in.at) : 0;
    struct url_span text = {equals ? equals + 1 : NULL, equals ? in.n - n - 1 : 0};
    if (n == 0 || text.n == 0)
        return url_bad(err, "the URL's query is not of the form name=value&name=value");
    for (size_t i = 0; i < n; i++)
        if (n > URL_OPTION_NAME_MAX || ((in.at[i] < 'a' || in.at[i] > 'z') && in.at[i] != '_'))
            return snib__fail(err, SNIB_EOPTION, 0,
                              "an option in the URL's query is not known; names have lower-case "
                              "letters and underscores");
    memcpy(name, in.at, n);
    if (strcmp(name, "db") == 0)
        return url_database(text, out, err);
    char *value = NULL;
    int code = url_decode(text, "query", &value, err);
    if (code == SNIB_OK)
        code = snib__option_take(name, value, given, out, err);
    snib__url_wipe(value);
    return code;
}

/* Read "?name=value&...", or nothing. */
static int url_query(struct url_span in, struct snib__url *out, snib_client_options *given,
                     snib_error *err)
{
    int code = SNIB_OK;
    while (code == SNIB_OK && in.n > 0) {
        in = (struct url_span){in.at + 1, in.n - 1}; /* ? or & */
        const char *next = in.n > 0 ? memchr(in.at, '&', in.n) : NULL;
        struct url_span one = {in.at, next ? (size_t)(next - in.at) : in.n};
        code = url_option(one, out, given, err);
        in = (struct url_span){one.at + one.n, in.n - one.n};
    }
    return code;
}

/* ---- the whole ---- */

/* strncasecmp() knows other pairs of letters in some locales. */
static bool url_is(const char *text, const char *small, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if ((text[i] >= 'A' && text[i] <= 'Z' ? text[i] + ('a' - 'A') : text[i]) != small[i])
            return false;
    return true;
}

/* Find the scheme.  Returns it, or NULL. */
static const struct url_scheme *url_scheme(const char *url, snib_error *err)
{
    const char *end = strstr(url, "://");
    size_t n = end ? (size_t)(end - url) : 0;
    for (const unsigned char *p = (const unsigned char *)url; *p; p++)
        if (*p <= 0x20 || *p == 0x7f || *p == '#') {
            url_bad(err, "the URL contains a space, a control byte or a #; encode it");
            return NULL;
        }
    for (size_t i = 0; i < sizeof url_schemes / sizeof url_schemes[0]; i++)
        if (strlen(url_schemes[i].name) == n && url_is(url, url_schemes[i].name, n))
            return &url_schemes[i];
    if (url[0] == '\0')
        url_bad(err, "the URL is empty");
    else if (n > 5 && url_is(end - 5, "+unix", 5))
        url_bad(err, "a unix socket's URL is unix:///path/to/socket; there is no TLS on it");
    else
        url_bad(err, "the URL must begin with redis://, rediss://, unix://, redis+sentinel:// or "
                     "redis+cluster://");
    return NULL;
}

static int url_read(const struct url_scheme *scheme, const char *at, struct snib__url *out,
                    snib_client_options *given, snib_error *err)
{
    int code = SNIB_OK;
    struct url_span authority = {at, strcspn(at, "/?")};
    struct url_span path = {at + authority.n, strcspn(at + authority.n, "?")};
    struct url_span query = {path.at + path.n, strlen(path.at + path.n)};
    size_t user = authority.n;
    if (memchr(query.at, '@', query.n) || (!scheme->is_unix && memchr(path.at, '@', path.n)))
        return url_bad(err, "the URL has an @ after its hosts; inside user, password and options "
                            "write %2F for /, %3F for ? and %40 for @");
    while (user > 0 && at[user - 1] != '@')
        user--;
    if (user > 0) {
        code = url_userinfo((struct url_span){at, user - 1}, out, err);
        authority = (struct url_span){at + user, authority.n - user};
    }
    if (code == SNIB_OK)
        code = (scheme->is_unix     ? url_unix
                : scheme->is_memory ? url_memory
                                    : url_tcp)(authority, path, out, err);
    return code == SNIB_OK ? url_query(query, out, given, err) : code;
}

int snib__url_parse(const char *url, struct snib__url *out, snib_client_options *given,
                    snib_error *err)
{
    *out = (struct snib__url){0};
    snib_client_options_init(given, sizeof *given);
    if (!url)
        return url_bad(err, "the URL is NULL");
    const struct url_scheme *scheme = url_scheme(url, err);
    if (!scheme)
        return SNIB_EURL;
    out->topology = scheme->topology;
    out->tls = scheme->tls;
    out->memory = scheme->is_memory;
    int code = url_read(scheme, url + strlen(scheme->name) + 3, out, given, err);
    if (code != SNIB_OK)
        snib__url_free(out);
    return code;
}

#define URL_TEXTS(url)                                                                             \
    {                                                                                              \
        &(url)->service, &(url)->username, &(url)->password, &(url)->password_file,                \
            &(url)->sentinel_username, &(url)->sentinel_password, &(url)->tls_ca,                  \
            &(url)->tls_cert, &(url)->tls_key, &(url)->tls_key_password, &(url)->tls_server_name,  \
            &(url)->label                                                                          \
    }
#define URL_TEXTS_N 12

void snib__url_server(const struct snib__url *url, char out[SNIB__URL_SERVER])
{
    const struct snib__address *first = url->addresses;
    for (uint32_t i = 1; i < url->addresses_n; i++)
        if (snib__address_order(&url->addresses[i], first) < 0)
            first = &url->addresses[i];
    snprintf(out, SNIB__URL_SERVER, "%s%s:%d/%s%s%d", first->path, first->host, first->port,
             url->service ? url->service : "", url->service ? "/" : "", url->database);
}

int snib__url_copy(const struct snib__url *from, struct snib__url *out)
{
    char *const *const texts[URL_TEXTS_N] = URL_TEXTS(from);
    char **const copies[URL_TEXTS_N] = URL_TEXTS(out);
    *out = *from;
    out->addresses = NULL;
    for (int i = 0; i < URL_TEXTS_N; i++)
        *copies[i] = NULL;
    size_t bytes = from->addresses_n * sizeof *from->addresses;
    bool is_good = (out->addresses = malloc(bytes)) != NULL;
    if (is_good)
        memcpy(out->addresses, from->addresses, bytes);
    for (int i = 0; is_good && i < URL_TEXTS_N; i++)
        is_good = !*texts[i] || (*copies[i] = strdup(*texts[i]));
    if (is_good)
        return SNIB_OK;
    snib__url_free(out);
    return SNIB_ENOMEM;
}

void snib__url_free(struct snib__url *url)
{
    char **const texts[URL_TEXTS_N] = URL_TEXTS(url);
    free(url->addresses);
    for (int i = 0; i < URL_TEXTS_N; i++)
        snib__url_wipe(*texts[i]);
    *url = (struct snib__url){0};
}
