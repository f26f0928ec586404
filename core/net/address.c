/* address.c - see address.h. */
#include "net/address.h"

#include "net/memory.h"
#include "net/text.h"

#include <stdio.h>
#include <string.h>

#define ADDRESS_SHOWN 90 /* bytes shown of a host */

static char address_lower(char c)
{
    return c >= 'A' && c <= 'Z' ? (char)(c | 0x20) : c;
}

/* Characters of names and addresses; whether the host exists is for the resolver to say.  A dot in front stands, to
 * OpenSSL, for every name that ends so. */
static bool address_is_host(const char *host, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        char c = address_lower(host[i]);
        bool is_letter = (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
        if (!is_letter && c != '-' && c != '.' && c != '_' && c != ':')
            return false;
    }
    return n > 0 && n <= SNIB__HOST_MAX && host[0] != '.';
}

bool snib__address_host(struct snib__address *out, const char *host, size_t n, long port, bool tls)
{
    if (port < 1 || port > 65535 || !address_is_host(host, n))
        return false;
    memset(out, 0, sizeof *out);
    memcpy(out->host, host, n);
    out->port = (int)port;
    out->tls = tls;
    return true;
}

bool snib__address_path(struct snib__address *out, const char *path, size_t n)
{
    if (n < 2 || n > SNIB__PATH_MAX || path[0] != '/' || memchr(path, 0, n))
        return false;
    memset(out, 0, sizeof *out);
    memcpy(out->path, path, n);
    return true;
}

bool snib__address_memory(struct snib__address *out, const char *name, size_t n)
{
    if (!snib__memory_is_name(name, n))
        return false;
    memset(out, 0, sizeof *out);
    out->path[0] = '@';
    memcpy(out->path + 1, name, n);
    return true;
}

int snib__address_order(const struct snib__address *one, const struct snib__address *other)
{
    int order = strcmp(one->path, other->path);
    for (size_t i = 0; order == 0; i++) {
        order = address_lower(one->host[i]) - address_lower(other->host[i]);
        if (one->host[i] == 0)
            break;
    }
    return order ? order : one->port - other->port;
}

bool snib__address_equal(const struct snib__address *one, const struct snib__address *other)
{
    return snib__address_order(one, other) == 0;
}

const char *snib__address_text(const struct snib__address *address, char out[SNIB__ADDRESS_TEXT])
{
    const char *dots = strlen(address->host) > ADDRESS_SHOWN ? "..." : "";
    int n;
    if (address->path[0] == '@')
        n = snprintf(out, SNIB__ADDRESS_TEXT, "memory://%s", address->path + 1);
    else if (address->path[0])
        n = snprintf(out, SNIB__ADDRESS_TEXT, "%s", address->path);
    else if (memchr(address->host, ':', strlen(address->host)))
        n = snprintf(out, SNIB__ADDRESS_TEXT, "[%s]:%d", address->host, address->port);
    else
        n = snprintf(out, SNIB__ADDRESS_TEXT, "%.*s%s:%d", ADDRESS_SHOWN, address->host, dots,
                     address->port);
    snib__text_clean(out, n < SNIB__ADDRESS_TEXT ? (size_t)n : SNIB__ADDRESS_TEXT - 1,
                     n >= SNIB__ADDRESS_TEXT);
    return out;
}
