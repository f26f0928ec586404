/* url.c - see url.h.
 *
 * The grammar is RFC 3986's, cut down to what a lock needs, and strict: what is not understood is
 * refused, because a client that guesses talks to the wrong server.
 */
#include "api/url.h"

#include "api/error.h"

#include <arpa/inet.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/un.h>

#define URL_HOST_BYTES_MAX 253

/* A part of the URL that is being read. */
struct url_span {
    const char *at;
    size_t n;
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

static void url_wipe(char *s)
{
    if (s)
        explicit_bzero(s, strlen(s));
    free(s);
}

/* Percent-decode a span into new memory.  what names it in messages. */
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
            url_wipe(text);
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

/* Read a span as a decimal number without sign; -1 if it is none or above max. */
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
    out->database = (int)number;
    return SNIB_OK;
}

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

static int url_is_host(const char *host)
{
    for (const char *p = host; *p; p++) {
        char c = (char)(*p | 0x20);
        if (!((c >= 'a' && c <= 'z') || (*p >= '0' && *p <= '9') || strchr("-._", *p)))
            return 0;
    }
    return host[0] != '\0' && strlen(host) <= URL_HOST_BYTES_MAX;
}

/* Read "host", "host:port", "[address]" or "[address]:port". */
static int url_host_port(struct url_span in, struct snib__url *out, snib_error *err)
{
    struct in6_addr address;
    int is_bracketed = in.n > 0 && in.at[0] == '[';
    const char *end = memchr(in.at, is_bracketed ? ']' : ':', in.n);
    if (is_bracketed && !end)
        return url_bad(err, "the URL's [ has no ]");
    const char *start = in.at + is_bracketed;
    size_t n = end ? (size_t)(end - start) : in.n;
    out->host = strndup(start, n);
    if (!out->host)
        return snib__fail(err, SNIB_ENOMEM, 0, NULL);
    int is_good = strlen(out->host) == n;
    if (is_good && is_bracketed)
        is_good = inet_pton(AF_INET6, out->host, &address) == 1;
    else if (is_good)
        is_good = url_is_host(out->host);
    if (!is_good)
        return url_bad(err, "the URL's host is not a name or address; IPv6 goes in brackets");
    struct url_span rest = {start + n + is_bracketed, in.n - n - 2 * (size_t)is_bracketed};
    out->port = 6379;
    if (rest.n == 0)
        return SNIB_OK;
    struct url_span digits = {rest.at + 1, rest.n - 1};
    long port = rest.at[0] == ':' ? url_number(digits, 65535) : -1;
    if (port < 1)
        return url_bad(err, "the URL's port is not a number from 1 to 65535");
    out->port = (int)port;
    return SNIB_OK;
}

/* Read what follows "redis://[userinfo@]host[:port]": nothing, "/" or "/database". */
static int url_redis(struct url_span authority, struct url_span rest, struct snib__url *out,
                     snib_error *err)
{
    int code = url_host_port(authority, out, err);
    if (code != SNIB_OK || rest.n == 0)
        return code;
    if (memchr(rest.at, '?', rest.n))
        return url_bad(err, "a redis:// URL takes no query; the database is its path");
    struct url_span digits = {rest.at + 1, rest.n - 1};
    return digits.n > 0 ? url_database(digits, out, err) : SNIB_OK;
}

/* Read "/path" or "/path?db=number". */
static int url_unix(struct url_span authority, struct url_span rest, struct snib__url *out,
                    snib_error *err)
{
    struct sockaddr_un address;
    const char *query = memchr(rest.at, '?', rest.n);
    struct url_span path = {rest.at, query ? (size_t)(query - rest.at) : rest.n};
    out->is_unix = 1;
    if (authority.n > 0 || path.n < 2)
        return url_bad(err, "a unix:// URL needs an absolute path: unix:///path/to/socket");
    int code = url_decode(path, "path", &out->path, err);
    if (code != SNIB_OK)
        return code;
    if (strlen(out->path) >= sizeof address.sun_path)
        return url_bad(err, "the URL's socket path has more than 107 bytes");
    if (!query)
        return SNIB_OK;
    struct url_span text = {query + 1, rest.n - path.n - 1};
    if (text.n < 3 || memcmp(text.at, "db=", 3) != 0)
        return url_bad(err, "the query of a unix:// URL can only be db=number");
    return url_database((struct url_span){text.at + 3, text.n - 3}, out, err);
}

/* Skip the scheme.  Returns the rest, or NULL with *out_code. */
static const char *url_scheme(const char *url, struct snib__url *out, int *out_code,
                              snib_error *err)
{
    static const char *const later[] = {"rediss://", "redis+sentinel://", "redis+cluster://"};
    for (size_t i = 0; i < sizeof later / sizeof later[0]; i++) {
        if (strncasecmp(url, later[i], strlen(later[i])) == 0) {
            *out_code = snib__fail(err, SNIB_ENOTSUP, 0,
                                   "this build has no %s; take redis:// or unix://", later[i]);
            return NULL;
        }
    }
    for (const unsigned char *p = (const unsigned char *)url; *p; p++) {
        if (*p <= 0x20 || *p == 0x7f || *p == '#') {
            *out_code = url_bad(err, "the URL has a blank, a control byte or a #; encode it");
            return NULL;
        }
    }
    out->is_unix = strncasecmp(url, "unix://", 7) == 0;
    if (out->is_unix || strncasecmp(url, "redis://", 8) == 0)
        return url + (out->is_unix ? 7 : 8);
    *out_code = url_bad(err, "the URL must begin with redis:// or unix://");
    return NULL;
}

int snib__url_parse(const char *url, struct snib__url *out, snib_error *err)
{
    int code = SNIB_OK;
    *out = (struct snib__url){0};
    if (!url)
        return url_bad(err, "the URL is NULL");
    const char *at = url_scheme(url, out, &code, err);
    if (!at)
        return code;
    struct url_span authority = {at, strcspn(at, "/?")};
    struct url_span rest = {at + authority.n, strlen(at + authority.n)};
    size_t user = authority.n;
    while (user > 0 && at[user - 1] != '@')
        user--;
    if (user > 0) {
        code = url_userinfo((struct url_span){at, user - 1}, out, err);
        authority = (struct url_span){at + user, authority.n - user};
    }
    if (code == SNIB_OK)
        code = (out->is_unix ? url_unix : url_redis)(authority, rest, out, err);
    if (code != SNIB_OK)
        snib__url_free(out);
    return code;
}

int snib__url_copy(const struct snib__url *from, struct snib__url *out)
{
    char *const texts[] = {from->host, from->path, from->username, from->password};
    char **const to[] = {&out->host, &out->path, &out->username, &out->password};
    *out = *from;
    out->host = out->path = out->username = out->password = NULL;
    for (int i = 0; i < 4; i++) {
        if (texts[i] && !(*to[i] = strdup(texts[i]))) {
            snib__url_free(out);
            return SNIB_ENOMEM;
        }
    }
    return SNIB_OK;
}

void snib__url_free(struct snib__url *url)
{
    free(url->host);
    free(url->path);
    url_wipe(url->username);
    url_wipe(url->password);
    *url = (struct snib__url){0};
}
