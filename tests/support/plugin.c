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
