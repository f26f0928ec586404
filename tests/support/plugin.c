/* plugin.c - a module that uses the library, as a plug-in of some program does: unload.c loads and unloads it. */
#include <snib.h>

#include <string.h>

/* A client that holds a lock; NULL: there is no such lock. */
snib_client *plugin_hold(const char *url, const snib_client_options *options, const char *name);

snib_client *plugin_hold(const char *url, const snib_client_options *options, const char *name)
{
    snib_client *client = NULL;
    snib_lock *lock = NULL;
    snib_hold *hold = NULL;
    if (snib_client_open(url, options, &client, NULL) != SNIB_OK ||
        snib_lock_new(client, SNIB_MUTEX, name, strlen(name), NULL, &lock, NULL) != SNIB_OK ||
        snib_lock_acquire(lock, 0, -1, &hold, NULL) != SNIB_OK)
        return NULL;
    return client;
}

#ifdef SNIB_STATIC /* the library is in the module, which is linked with --wrap=getaddrinfo */

#include <netdb.h>
#include <unistd.h>

static int lookup_begins, lookup_ends;

int __real_getaddrinfo(const char *host, const char *port, const struct addrinfo *hints,
                       struct addrinfo **out);
int __wrap_getaddrinfo(const char *host, const char *port, const struct addrinfo *hints,
                       struct addrinfo **out);
int plugin_look_up(const char *url, int begins, int ends);

/* A name server that answers when it is told to. */
int __wrap_getaddrinfo(const char *host, const char *port, const struct addrinfo *hints,
                       struct addrinfo **out)
{
    char byte = 0;
    if (hints->ai_flags & AI_NUMERICHOST)
        return __real_getaddrinfo(host, port, hints, out);
    if (write(lookup_begins, &byte, 1) != 1 || read(lookup_ends, &byte, 1) < 0)
        return EAI_SYSTEM;
    return EAI_NONAME;
}

/* Use a client until it looks a name up, and free it.  0: done. */
int plugin_look_up(const char *url, int begins, int ends)
{
    snib_client *client;
    lookup_begins = begins;
    lookup_ends = ends;
    if (snib_client_open(url, NULL, &client, NULL) != SNIB_OK)
        return -1;
    int code = snib_client_ping(client, 0, NULL);
    snib_client_free(client);
    return code < 0 ? 0 : -1;
}

#endif
