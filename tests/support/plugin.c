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

#ifdef SNIB_STATIC /* the library is in the module, which is linked with --wrap for these two */

#include <dlfcn.h>
#include <netdb.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/wait.h>
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

static atomic_bool constructing, asking;

void *__real_dlopen(const char *name, int flags);
void *__wrap_dlopen(const char *name, int flags);
int plugin_construct(void);
int plugin_open(const char *url);

void *__wrap_dlopen(const char *name, int flags)
{
    asking = true;
    return __real_dlopen(name, flags);
}

static int open_once(const char *url)
{
    snib_client *client;
    if (snib_client_open(url, NULL, &client, NULL) != SNIB_OK)
        return -1;
    snib_client_free(client);
    return 0;
}

/* In a child, in which no thread gives the loader's lock back. */
static void *open_in_a_child(void *done)
{
    int status;
    pid_t pid = fork();
    if (pid == 0) {
        alarm(20);
        _exit(open_once("redis://127.0.0.1:1") == 0 ? 0 : 1);
    }
    return pid > 0 && waitpid(pid, &status, 0) == pid && status == 0 ? done : NULL;
}

/* A constructor of another module, which has the loader's lock: clients are opened here and in a child of another thread when
 * the thread that opens the first is about to wait for that lock.  0: done. */
int plugin_construct(void)
{
    pthread_t forks;
    void *done = &forks;
    constructing = true;
    while (!asking)
        usleep(500);
    if (pthread_create(&forks, NULL, open_in_a_child, done) != 0 || pthread_join(forks, &done) != 0)
        return -1;
    return done ? open_once("redis://127.0.0.1:1") : -1;
}

/* Open the first client when a constructor is there.  0: done. */
int plugin_open(const char *url)
{
    while (!constructing)
        usleep(500);
    return open_once(url);
}

#endif
