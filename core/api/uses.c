/* uses.c - who holds and awaits what, since when, and where in the program; see uses.h. */
#include "api/uses.h"

#include "api/group.h"
#include "api/peers.h"
#include "locks/kind.h"
#include "net/text.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#define USES_YIELDS 16 /* before longer sleeps: it is never held for long */
#define USES_SLEEPS 9  /* of a millisecond, and each of twice as long: half a second */
/* Actors that are threads, apart from the callers' numbers. */
#define USES_THREAD ((uint64_t)1 << 63)

static struct snib__use *uses_things[SNIB__USES_BUCKETS], *uses_actors[SNIB__USES_BUCKETS];

/* ---- the lock ---- */

static pthread_mutex_t uses_mutex = PTHREAD_MUTEX_INITIALIZER;
static atomic_bool uses_over;        /* a thread was stopped in here */
static _Atomic bool uses_fork_known; /* a fork has met the handlers: they are registered */
static _Thread_local volatile bool uses_mine;

/* Counts, instead of asking a clock, because a suspended machine is not a stopped thread.  Not far, because on a busy
 * machine each step takes long, and leases are not renewed meanwhile. */
bool snib__uses_lock(void)
{
    _Atomic uint32_t never = 0; /* to sleep without a point where the thread can be cancelled */
    for (int i = 0; i < USES_YIELDS + USES_SLEEPS && !uses_over; i++) {
        if (pthread_mutex_trylock(&uses_mutex) == 0) {
            uses_mine = true;
            if (!uses_over)
                return true;
            snib__uses_unlock();
            return false;
        }
        if (i < USES_YIELDS)
            sched_yield();
        else
            snib__park(&never, 0, snib__now() + (SNIB__MS << (i - USES_YIELDS)));
    }
    uses_over = true;
    return false;
}

void snib__uses_unlock(void)
{
    uses_mine = false;
    pthread_mutex_unlock(&uses_mutex);
}

/* ---- where, and who ---- */

static _Thread_local struct {
    bool given;
    bool named; /* who says who it is, or that it has no name */
    uint64_t actor;
    char place[SNIB__SITE_CAP];
    char who[SNIB__USE_WHO_CAP];
} uses_here;

void snib_debug_here(const char *place, uint64_t actor)
{
    const char *text = place ? place : "", *base = text, *end = text + strcspn(text, "\n");
    size_t n = strcspn(text, " \n"); /* folders come before the function */
    for (size_t i = 0; i < n; i++)
        if (text[i] == '/')
            base = text + i + 1;
    uses_here.given = true;
    uses_here.named = *end == '\n';
    uses_here.actor = actor;
    snib__text_show(uses_here.place, sizeof uses_here.place, base, (size_t)(end - base));
    end += uses_here.named;
    snib__text_show(uses_here.who, sizeof uses_here.who, end, strlen(end));
}

static uint64_t uses_thread(void)
{
    static _Atomic uint64_t last;
    static _Thread_local uint64_t number;
    if (number == 0)
        number = USES_THREAD | (atomic_fetch_add(&last, 1) + 1);
    return number;
}

/* As a debugger and /proc call it. */
static void uses_name_thread(char out[SNIB__USE_WHO_CAP])
{
    char name[16] = "", shown[sizeof name]; /* at most, see prctl(2) */
    prctl(PR_GET_NAME, name);
    snib__text_show(shown, sizeof shown, name, strnlen(name, sizeof name - 1));
    snprintf(out, SNIB__USE_WHO_CAP, "thread %s (%ld)", shown, syscall(SYS_gettid));
}

void snib__use_begin(struct snib__use *use)
{
    bool given = uses_here.given;
    use->actor = given && uses_here.actor ? uses_here.actor : uses_thread();
    snprintf(use->place, sizeof use->place, "%s",
             given && uses_here.place[0] ? uses_here.place : SNIB__USE_NOWHERE);
    if (given && uses_here.named)
        memcpy(use->who, uses_here.who, sizeof use->who);
    else
        uses_name_thread(use->who);
    uses_here.given = false;
}

void snib__use_forget_here(void)
{
    uses_here.given = false;
}

bool snib__use_is_here_alone(void)
{
    return uses_here.given && uses_here.actor == 0;
}

/* ---- the tables ---- */

static struct snib__use **uses_thing_bucket(const void *thing)
{
    return &uses_things[((uintptr_t)thing >> 4) % SNIB__USES_BUCKETS];
}

static struct snib__use **uses_actor_bucket(uint64_t actor)
{
    return &uses_actors[actor % SNIB__USES_BUCKETS];
}

static struct snib__use **uses_find(const void *thing)
{
    struct snib__use **at = uses_thing_bucket(thing);
    while (*at && (*at)->thing != thing)
        at = &(*at)->by_thing;
    return at;
}

void snib__use_add(struct snib__use *use)
{
    struct snib__use **things = uses_thing_bucket(use->thing);
    struct snib__use **actors = uses_actor_bucket(use->actor);
    use->by_thing = *things;
    *things = use;
    if (use->what != SNIB__USE_HELD)
        return;
    use->by_actor = *actors;
    *actors = use;
}

/* Out of the tables; it is not freed. */
static struct snib__use *uses_take(struct snib__use **at)
{
    struct snib__use *use = *at, **actors = uses_actor_bucket(use->actor);
    *at = use->by_thing;
    if (use->what != SNIB__USE_HELD)
        return use;
    while (*actors != use)
        actors = &(*actors)->by_actor;
    *actors = use->by_actor;
    return use;
}

struct snib__use *snib__use_find(const void *thing)
{
    return *uses_find(thing);
}

struct snib__use *snib__use_take(const void *thing)
{
    struct snib__use **at = uses_find(thing);
    return *at ? uses_take(at) : NULL;
}

uint32_t snib__use_count(const void *thing)
{
    uint32_t n = 0;
    for (const struct snib__use *use = *uses_thing_bucket(thing); use; use = use->by_thing)
        n += use->thing == thing;
    return n;
}

struct snib__use *snib__uses_by_actor(uint64_t actor)
{
    return *uses_actor_bucket(actor);
}

struct snib__use *snib__uses_by_thing(const void *thing)
{
    return *uses_thing_bucket(thing);
}

struct snib__use *snib__uses_in(uint32_t bucket)
{
    return uses_things[bucket];
}

/* ---- the names of a lock ---- */

uint64_t snib__use_hash(uint64_t hash, const char *bytes, size_t n)
{
    for (size_t i = 0; i < n; i++)
        hash = (hash ^ (unsigned char)bytes[i]) * 0x100000001b3U;
    return hash;
}

uint64_t snib__use_hash_text(uint64_t hash, const char *text)
{
    return snib__use_hash(hash, text, strlen(text) + 1);
}

static void uses_name(struct snib__use *use, uint64_t server, const char *name, size_t n,
                      bool reads)
{
    struct snib__order_name *to = &use->names[use->n++];
    to->server = server;
    to->name = snib__use_hash(SNIB__USE_HASH, name, n); /* the same in every process */
    to->reads = reads;
    snib__quote(to->shown, sizeof to->shown, name, n);
}

/* A gate of one client's names: one, or those of a multi lock, see multi.c. */
static void uses_names(struct snib__use *use, uint64_t server, const struct snib__gate *gate)
{
    size_t n;
    const char *name = snib__gate_name(gate, &n);
    int32_t kind = snib__gate_kind(gate);
    if (kind != SNIB__MULTI)
        uses_name(use, server, name, n, kind == SNIB_READ);
    for (const char *end = name + n; kind == SNIB__MULTI && name < end; name += strlen(name) + 1)
        uses_name(use, server, name + 1, strlen(name + 1), name[0] == 'r');
}

uint64_t snib__use_server(const struct snib__client *client)
{
    char server[SNIB__URL_SERVER];
    snib__url_server(&client->url, server);
    return snib__use_hash_text(SNIB__USE_HASH, server);
}

/* Members of a quorum have one name, and one order.  Those of a multi lock that no command takes together are taken
 * one after another. */
struct snib__use *snib__use_of_lock(const struct snib__lock *lock)
{
    struct snib__use *use =
        calloc(1, sizeof *use + SNIB__GROUP_MAX * sizeof(struct snib__order_name));
    if (!use)
        return NULL;
    const struct snib__parts *parts = lock->parts;
    if (!parts)
        uses_names(use, snib__use_server(lock->client), lock->gate);
    for (uint32_t i = 0; parts && i < (parts->majority ? 1 : parts->n); i++) {
        uint32_t from = use->n;
        uses_names(use, snib__use_server(parts->part[i].client), parts->part[i].gate);
        memset(use->parts + from, (int)i, use->n - from);
    }
    use->client = lock->client;
    use->ordered = lock->kind != SNIB_SEMAPHORE; /* anyone may give its permits back */
    use->alone = use->ordered && lock->kind != SNIB_PERMITS;
    snib__say_lock(use->label, sizeof use->label, lock->gate);
    struct snib__use *small = realloc(use, sizeof *use + use->n * sizeof use->names[0]);
    return small ? small : use;
}

/* ---- forks ----
 *
 * The mutex is not held over a fork, in which handlers of the program may take longer than others wait for it: they would
 * take the thread that forks for a stopped one.  So the child may find it locked by a thread that it does not have, and what
 * it guards half changed: then it begins with nothing. */

static void uses_fork_prepare(void)
{
    uses_fork_known = true;
}

/* Holds are the parent's. */
static void uses_free(void)
{
    for (uint32_t i = 0; i < SNIB__USES_BUCKETS; i++) {
        while (uses_things[i])
            free(uses_take(&uses_things[i]));
    }
}

/* It is not known what can be freed. */
static void uses_lose(void)
{
    memset(uses_things, 0, sizeof uses_things);
    memset(uses_actors, 0, sizeof uses_actors);
    snib__order_lose();
    snib__peers_lose();
}

static void uses_fork_child(void)
{
    uses_here.given = false;
    if (uses_mine) { /* a signal's handler forks, and returns to what it has interrupted */
        uses_over = true;
        return;
    }
    bool whole = pthread_mutex_trylock(&uses_mutex) == 0;
    pthread_mutex_init(&uses_mutex, NULL);
    if (whole)
        uses_free();
    else
        uses_lose();
}

int snib__uses_init(void)
{
    return uses_fork_known ? 0 : pthread_atfork(uses_fork_prepare, NULL, uses_fork_child);
}
