/* address.h - where a server is, for a wish to connect.  A plain value: copy by assignment. */
#ifndef SNIB__ADDRESS_H
#define SNIB__ADDRESS_H

#include <stdbool.h>
#include <stddef.h>

#define SNIB__HOST_MAX 253 /* bytes of a host name, RFC 1035 */
#define SNIB__PATH_MAX 107 /* bytes of a unix socket's path: sockaddr_un without the NUL */
#define SNIB__ADDRESS_TEXT 112

/* What kind of deployment an address belongs to. */
enum snib__topology { SNIB__SINGLE, SNIB__SENTINEL, SNIB__CLUSTER };

struct snib__address {
    char host[SNIB__HOST_MAX + 1]; /* name or address, without brackets; "" for a unix socket */
    char path[SNIB__PATH_MAX + 1]; /* absolute; "" for a host; @NAME is a memory server */
    int port;                      /* of a host: 1 to 65535; otherwise 0 */
    bool tls;
};

/* snib__address_host - fill *out with a host of n bytes, as a URL or a server names it.
 *
 * Returns false, and leaves *out alone, if this is no name or address, or the port is invalid. */
bool snib__address_host(struct snib__address *out, const char *host, size_t n, long port, bool tls);

/* snib__address_path - the same for a unix socket. */
bool snib__address_path(struct snib__address *out, const char *path, size_t n);

/* snib__address_memory - the same for a memory server of the process that connects; see driver/memory.h. */
bool snib__address_memory(struct snib__address *out, const char *name, size_t n);

/* snib__address_order - <0, 0 or >0; host names ignore case.  0: the same
 * server, as far as names can tell. */
int snib__address_order(const struct snib__address *one, const struct snib__address *other);

bool snib__address_equal(const struct snib__address *one, const struct snib__address *other);

/* snib__address_text - "host:port", "[v6]:port" or the path, into out; returns out.  A host of more
 * than 90 bytes is cut and ends in dots; bytes that are not UTF-8 are shown as question marks. */
const char *snib__address_text(const struct snib__address *address, char out[SNIB__ADDRESS_TEXT]);

#endif
