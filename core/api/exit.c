/* exit.c - releases a process's holds when it exits.
 *
 * All clients of this process are listed.  A destructor closes them: it runs after the program's
 * own atexit() handlers, which may still release, when exit() is called or main() returns, on
 * whatever thread.  All clients together have one time limit.  The child of a fork starts with an
 * empty list: it must not close its parent's clients, and its heirs (heir.c) are listed when they
 * are made.  A child made without the handlers of fork() has the list, and is another process: there
 * nothing is closed.  Before its parent forks, calls that must not be cut in two have ended: see
 * forks.h.
 *
 * Clients with TLS are closed earlier where OpenSSL is torn down before that: see tls_openssl.c.
 */
#include "api/debug.h"
#include "driver/forks.h"
#include "driver/process.h"

#include <sched.h>

#define EXIT_MS 1000
#define EXIT_MS_MAX 60000
#define EXIT_YIELDS 1000              /* before longer waits */
#define EXIT_TRIES 16                 /* at least, however long they take */
#define EXIT_STEP_MAX (10 * SNIB__MS) /* what one wait counts at most */

static pthread_mutex_t exit_mutex = PTHREAD_MUTEX_INITIALIZER; /* held over a fork */
static struct snib__client *exit_first;                        /* guarded by exit_mutex */
static _Atomic uint64_t exit_process; /* whose clients are listed; 0: there were none */
static _Atomic int64_t exit_ms = EXIT_MS;
static bool exit_fork_known; /* a fork has met the handlers: they are registered */
static _Thread_local volatile bool
    exit_forking; /* this thread is in a fork, and has the mutex or waits for it */

/* A signal's handler may have interrupted this thread in a fork, which may take 2 s, and call exit(); then no other thread
 * changes the list.  Returns whether it is to be unlocked. */
static bool exit_lock(void)
{
    if (exit_forking)
        return false;
    pthread_mutex_lock(&exit_mutex);
    return true;
}

static void exit_unlock(bool locked)
{
    if (locked)
        pthread_mutex_unlock(&exit_mutex);
}

void snib__exit_add(struct snib__client *client)
{
    bool locked = exit_lock();
    atomic_store(&exit_process, snib__process());
    client->exit_next = exit_first;
    client->exit_prev = NULL;
    if (exit_first)
        exit_first->exit_prev = client;
    exit_first = client;
    exit_unlock(locked);
}

static void exit_unlink(struct snib__client *client)
{
    if (client->exit_next)
        client->exit_next->exit_prev = client->exit_prev;
    if (client->exit_prev)
        client->exit_prev->exit_next = client->exit_next;
    else if (exit_first == client)
        exit_first = client->exit_next;
    client->exit_prev = client->exit_next = NULL;
}

void snib__exit_remove(struct snib__client *client)
{
    bool locked = exit_lock();
    exit_unlink(client);
    exit_unlock(locked);
}

/* Another reference, unless the last one is gone: then another thread is about to free the client, which waits for
 * exit_mutex to take it off the list. */
static bool exit_ref(struct snib__client *client)
{
    uint32_t refs = atomic_load(&client->refs);
    while (refs > 0 && !atomic_compare_exchange_weak(&client->refs, &refs, refs + 1))
        ;
    return refs > 0;
}

static struct snib__client *exit_ref_from(struct snib__client *client)
{
    while (client && !exit_ref(client))
        client = client->exit_next;
    return client;
}

/* Without exit_mutex while it waits for a client's: whoever has that may need the list.  With a reference the client stays
 * on the list, unless an exit takes it off, which then closes them. */
void snib__exit_wake(void)
{
    bool locked = exit_lock();
    struct snib__client *client = exit_ref_from(exit_first), *next;
    exit_unlock(locked);
    for (; client; client = next) {
        snib__driver_rouse(&client->driver);
        locked = exit_lock();
        next = exit_ref_from(client->exit_next);
        exit_unlock(locked);
        snib__client_unref(client); /* may be the last one */
    }
}

/* ---- Fork ------------------------------------------------------------------------------------ */

static void exit_fork_prepare(void)
{
    exit_forking = true;
    pthread_mutex_lock(&exit_mutex);
    exit_fork_known = true;
    snib__forks_prepare();
}

static void exit_fork_parent(void)
{
    snib__forks_parent();
    pthread_mutex_unlock(&exit_mutex);
    exit_forking = false;
}

static void exit_fork_child(void)
{
    exit_first = NULL;
    snib__tls_forked();
    snib__forks_child();
    pthread_mutex_unlock(&exit_mutex);
    exit_forking = false;
}

/* ---- The end --------------------------------------------------------------------------------- */

/* Not in a child that shares its parent's connections, nor on a thread that was interrupted in a fork: there other threads
 * are kept from the list, and the leases of what is held end. */
static bool exit_is_ours(void)
{
    uint64_t process = atomic_load(&exit_process);
    return process && process == snib__process() && !exit_forking;
}

/* Take a client off the list, with a reference; NULL: none is left. */
static struct snib__client *exit_take(bool with_tls)
{
    pthread_mutex_lock(&exit_mutex);
    struct snib__client *client = exit_first;
    while (client && ((with_tls && !client->url.tls) || !exit_ref(client)))
        client = client->exit_next;
    if (client)
        exit_unlink(client);
    pthread_mutex_unlock(&exit_mutex);
    return client;
}

/* Whether the client can be closed.  It cannot while a thread is in it that was stopped there, or that is in a signal
 * handler, as this one may be, which called exit().  The waits for that are taken from *left: on a busy machine each may be
 * long, but none counts for more than a step, because a suspended machine is not a stopped thread. */
static bool exit_may_close(struct snib__client *client, int64_t *left)
{
    _Atomic uint32_t never = 0;
    for (int tries = 0; pthread_mutex_trylock(&client->driver.mutex) != 0; tries++) {
        if (tries >= EXIT_TRIES && *left <= 0)
            return false;
        snib__time began = snib__now();
        if (tries < EXIT_YIELDS) /* working threads leave it for a moment, again and again */
            sched_yield();
        else
            snib__park(&never, 0, began + SNIB__MS);
        snib__time took = snib__now() - began;
        *left -= (int64_t)(took < EXIT_STEP_MAX ? took : EXIT_STEP_MAX);
    }
    pthread_mutex_unlock(&client->driver.mutex);
    return true;
}

/* Whether all with group locks that are still listed, because they have no TLS, can be entered by those that are closed
 * now.  On the list, they are not freed. */
static bool exit_may_enter(int64_t *left)
{
    bool all = true;
    pthread_mutex_lock(&exit_mutex);
    for (struct snib__client *client = exit_first; client && all; client = client->exit_next)
        all = !client->grouped || exit_may_close(client, left);
    pthread_mutex_unlock(&exit_mutex);
    return all;
}

/* The clients that can be closed, by exit_prev.  The others keep the reference: they are left as they are, and their
 * leases end.  With one that has group locks, so are all that have: their threads wait for its mutex, or would. */
static struct snib__client *exit_take_all(bool with_tls, int64_t left)
{
    struct snib__client *client, *taken = NULL;
    bool grouped = true; /* those that are can be closed */
    while ((client = exit_take(with_tls))) {
        if (exit_may_close(client, &left)) {
            client->exit_prev = taken;
            taken = client;
        } else if (client->grouped) {
            grouped = false;
        }
    }
    if (taken && snib__sys_steps()->busy) /* this thread was interrupted between clients */
        grouped = false;
    grouped = grouped && (!taken || exit_may_enter(&left));
    for (struct snib__client **at = &taken; (client = *at);) {
        if (client->grouped && !grouped)
            *at = client->exit_prev;
        else
            at = &client->exit_prev;
    }
    return taken;
}

static void exit_close(bool with_tls)
{
    int64_t ms = atomic_load(&exit_ms);
    if (ms == 0 && !with_tls)
        return;
    snib__time half = (snib__time)ms * SNIB__MS / 2, until = snib__now() + 2 * half;
    /* Those that cannot be closed take at most half of the time from the others, however long a wait takes here. */
    int64_t left = (ms > 0 ? ms : EXIT_MS) * (int64_t)SNIB__MS / 2;
    struct snib__client *client, *begun = exit_take_all(with_tls, left);
    if (until < snib__now() + half)
        until = snib__now() + half;
    for (client = begun; client && ms > 0; client = client->exit_prev)
        snib__client_close_begin(client); /* first send all releases, then wait */
    while ((client = begun)) {
        begun = client->exit_prev;
        client->exit_prev = NULL;
        if (ms > 0)
            snib__client_close_end(client, until);
        else
            snib__client_stop(client); /* no thread may be left that uses OpenSSL */
        snib__client_unref(client);
    }
}

__attribute__((destructor)) static void exit_give_back(void)
{
    if (!exit_is_ours())
        return;
    snib__debug_exit();
    exit_close(false);
    snib__debug_exited();
}

/* Other code initialised OpenSSL first, and its exit handler is about to tear it down. */
static void exit_without_openssl(void)
{
    if (!exit_is_ours())
        return;
    int64_t ms = atomic_load(&exit_ms);
    snib__time until = snib__now() + (snib__time)(ms > 0 ? ms : EXIT_MS) * SNIB__MS;
    snib__debug_exit();
    exit_close(true);
    snib__tls_await(until);
}

int snib__exit_init(void)
{
    int error = 0;
    if (!exit_fork_known)
        error = pthread_atfork(exit_fork_prepare, exit_fork_parent, exit_fork_child);
    snib__tls_at_end(exit_without_openssl);
    return error;
}

int snib_set_exit_timeout(int64_t timeout_ms, snib_error *err)
{
    if (timeout_ms < 0 || timeout_ms > EXIT_MS_MAX)
        return snib__fail(err, SNIB_EINVAL, 0, "the exit timeout must be 0 to %d ms", EXIT_MS_MAX);
    atomic_store(&exit_ms, timeout_ms);
    return SNIB_OK;
}
