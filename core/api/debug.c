/* debug.c - the option debug: mistakes in the use of locks, with the places in the program.
 *
 * What is looked after is in uses.c, in which order locks are taken in order.c.  snib__uses_lock() guards both, and what
 * is kept here for the process.
 *
 * Whatever runs out of memory here is not looked after; locks do not depend on it.  Nor do they on a thread
 * that is stopped in here, by a debugger for example: the others wait for half a second, once, and then do
 * without all this for good. */
#include "api/debug.h"

#include "api/group.h"
#include "api/order.h"
#include "api/peers.h"
#include "api/uses.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define DEBUG_LOOK (250 * SNIB__MS)  /* between two looks at what lasts */
#define DEBUG_WAIT (1000 * SNIB__MS) /* a wait for oneself that lasts as long is told */
#define DEBUG_SET_MAX 4096 /* warnings about what lasts, or comes back; preferred writers */
#define DEBUG_LINES (SNIB__USE_WHO_CAP + SNIB__SITE_CAP + 2 * sizeof "at 18446744073709551615 ")
#define DEBUG_TEXT_CAP (sizeof((struct snib__log_record *)0)->text)

struct snib__debug {
    snib__time hold; /* the oldest that a hold may become; 0: no limit */
    uint64_t server; /* a hash */
    uint64_t warnings;
    snib__time look_at;                         /* the next look at what lasts */
    bool over;                                  /* its end was told */
    char process[SNIB__PROCESS_CAP];            /* for other processes */
    char taken[SNIB__OLDEST_MAX * DEBUG_LINES]; /* for those who ask who holds it */
};

static struct debug_set {
    uint64_t hashes[2 * DEBUG_SET_MAX]; /* by value; 0: free */
    uint32_t n;
} debug_told, debug_preferred; /* warnings; locks whose readers wait behind a writer that waits */
static _Atomic bool debug_exits;

/* ---- warnings ---- */

/* As the process exits nobody drains a queue.  Nor is the process to wait for those who read its standard error, or for a
 * thread that prints there, or to be ended by a signal because the readers have gone: what cannot be written now is left
 * out. */
static void debug_print(const char *text)
{
    char line[DEBUG_TEXT_CAP + sizeof "snib: debug: \n"];
    int n = snprintf(line, sizeof line, "snib: debug: %s\n", text);
    snib__sys_print(STDERR_FILENO, line, (size_t)n);
}

static void debug_write(struct snib__client *client, const char *text)
{
    struct snib__engine *engine = client->driver.engine;
    if (debug_exits)
        debug_print(text);
    else
        snib__engine_log(engine, SNIB_LOG_WARNING, "debug: %s", text);
}

static void debug_say(struct snib__client *client, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

static void debug_say(struct snib__client *client, const char *format, ...)
{
    char text[DEBUG_TEXT_CAP];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    client->debug->warnings++;
    debug_write(client, text);
}

/* Its place in the set; 0 is there if it is not in it. */
static uint64_t *debug_set_at(struct debug_set *set, uint64_t hash)
{
    uint32_t at = (uint32_t)(hash >> 32) % (2 * DEBUG_SET_MAX);
    while (set->hashes[at] && set->hashes[at] != (hash | 1))
        at = (at + 1) % (2 * DEBUG_SET_MAX);
    return &set->hashes[at];
}

/* Whether it comes into the set now; not if there is no room for it. */
static bool debug_set_add(struct debug_set *set, uint64_t hash)
{
    uint64_t *at = debug_set_at(set, hash);
    if (*at || set->n >= DEBUG_SET_MAX)
        return false;
    *at = hash | 1;
    set->n++;
    return true;
}

/* Whether a warning about what lasts is new: the lock, its place and the other place if there is one. */
static bool debug_is_new(const struct snib__use *use, const char *other_place)
{
    uint64_t hash = snib__use_hash_text((uint64_t)use->what + 1, use->label);
    hash = snib__use_hash_text(snib__use_hash_text(hash, use->place), other_place);
    if (debug_told.n == DEBUG_SET_MAX && *debug_set_at(&debug_told, hash) == 0) {
        debug_told.n++; /* for ever */
        debug_say(use->client,
                  "%d mistakes have been reported, which is the limit: further ones are not "
                  "reported, except orders of locks",
                  DEBUG_SET_MAX);
    }
    return debug_set_add(&debug_told, hash);
}

/* " by thread main", for "%s%s". */
#define BY(use) (use)->who[0] ? " by " : "", (use)->who

/* ---- preferred writers ---- */

static uint64_t debug_lock_hash(const struct snib__order_name *name)
{
    return snib__use_hash(name->server, (const char *)&name->name, sizeof name->name);
}

void snib__debug_prefers(const struct snib__lock *lock)
{
    struct snib__use *use = snib__use_of_lock(lock);
    if (use && snib__uses_lock()) {
        debug_set_add(&debug_preferred, debug_lock_hash(&use->names[0]));
        snib__uses_unlock();
    }
    free(use);
}

/* A reader waits for other readers, too, if a writer that waits comes before it. */
static void debug_mind_writers(struct snib__use *use)
{
    for (uint32_t i = 0; i < use->n; i++)
        use->names[i].reads &=
            *debug_set_at(&debug_preferred, debug_lock_hash(&use->names[i])) == 0;
}

/* ---- the order of locks ---- */

/* Add what a caller does, in which process if there are several; how much of the text is used then. */
static size_t debug_add_step(const struct snib__client *client, char *text, size_t used,
                             const struct snib__order_circle *circle, uint32_t i)
{
    const struct snib__order_step *step = &circle->steps[i];
    const char *process = !circle->foreign ? ""
                          : step->process  ? step->process
                                           : client->debug->process;
    if (used >= DEBUG_TEXT_CAP)
        return used;
    return used + (size_t)snprintf(text + used, DEBUG_TEXT_CAP - used, "%s (%s) then %s (%s)%s%s",
                                   step->held, step->held_place, step->taken, step->taken_place,
                                   process[0] ? " in " : "", process);
}

/* In one record, or in one for each step. */
static void debug_say_circle(struct snib__client *client, const struct snib__order_circle *circle)
{
    static const char advice[] = ": this can deadlock; take them in one order";
    char text[DEBUG_TEXT_CAP + sizeof advice];
    uint32_t told = circle->n < SNIB__ORDER_STEPS ? circle->n : SNIB__ORDER_STEPS;
    size_t used = (size_t)snprintf(text, sizeof text, "lock order: ");
    client->debug->warnings++;
    for (uint32_t i = 0; i < told && used < DEBUG_TEXT_CAP; i++) {
        used = debug_add_step(client, text, used, circle, i);
        if (i + 1 < told && used < DEBUG_TEXT_CAP)
            used += (size_t)snprintf(text + used, sizeof text - used, i == 0 ? ", but " : ", ");
    }
    if (told == circle->n && used + sizeof advice + strlen("debug: ") <= DEBUG_TEXT_CAP) {
        memcpy(text + used, advice, sizeof advice);
        debug_write(client, text);
        return;
    }
    for (uint32_t i = 0; i < told; i++) {
        used = (size_t)snprintf(text, sizeof text, "lock order, %u of %u: ", i + 1, circle->n);
        used = debug_add_step(client, text, used, circle, i);
        if (used < DEBUG_TEXT_CAP)
            snprintf(text + used, sizeof text - used,
                     ": together these can deadlock; take the locks in one order");
        debug_write(client, text);
    }
}

/* A circle that others told of closes again each time that they tell anew, and when their part of it happens here,
 * too. */
static void debug_tell_circle(void *context, const struct snib__order_circle *circle)
{
    struct snib__client *client = context;
    bool first = circle->foreign ? debug_set_add(&debug_told, circle->id)
                                 : *debug_set_at(&debug_told, circle->id) == 0;
    if (first)
        debug_say_circle(client, circle);
}

static void debug_pair(const struct snib__use *held, uint32_t i, const struct snib__use *use,
                       uint32_t j)
{
    struct snib__order_circle circle;
    struct snib__order_pair pair = {&held->names[i], &use->names[j], held->place, use->place, NULL};
    enum snib__order order = snib__order_note(&pair, &circle);
    if (order == SNIB__ORDER_CIRCLE)
        debug_tell_circle(use->client, &circle);
    else if (order == SNIB__ORDER_FULL)
        debug_say(use->client,
                  "the order of locks is known for %d pairs, which is the limit: further pairs "
                  "are not checked",
                  SNIB__ORDER_MAX);
    if (order == SNIB__ORDER_CIRCLE || order == SNIB__ORDER_NEW)
        snib__peers_news(pair.held, pair.taken);
}

static void debug_pairs(const struct snib__use *held, const struct snib__use *use)
{
    for (uint32_t i = 0; i < held->n; i++)
        for (uint32_t j = 0; j < use->n; j++)
            debug_pair(held, i, use, j);
}

/* A lock of several parts keeps those that it has while it waits for the next: others that take its members singly, the
 * other way round, can wait for it as it waits for them.  From the next part that it writes on, the order of that one
 * tells the rest. */
static void debug_pairs_within(const struct snib__use *use)
{
    for (uint32_t i = 0; i < use->n; i++) {
        uint32_t last = SNIB__GROUP_MAX;
        for (uint32_t j = i + 1; j < use->n && use->parts[j] <= last; j++) {
            if (use->parts[j] == use->parts[i])
                continue;
            debug_pair(use, i, use, j);
            if (!use->names[j].reads)
                last = use->parts[j];
        }
    }
}

/* Whether it still holds.  Of the holds of other clients only those know which are lost. */
static bool debug_holds(const struct snib__use *use, const struct snib__client *inside)
{
    const struct snib__hold *hold = use->what == SNIB__USE_HELD ? use->thing : NULL;
    return hold && (use->client != inside || hold->phase == SNIB__HELD);
}

/* A name that both have, except where both only read; NULL: none. */
static const struct snib__order_name *debug_shared(const struct snib__use *one,
                                                   const struct snib__use *other, bool may_read)
{
    for (uint32_t i = 0; i < one->n; i++)
        for (uint32_t j = 0; j < other->n; j++)
            if (one->names[i].name == other->names[j].name &&
                one->names[i].server == other->names[j].server &&
                (may_read || !one->names[i].reads || !other->names[j].reads))
                return &one->names[i];
    return NULL;
}

/* The use is about to be added: compare it with what its actor holds.  A lock that it holds already has its
 * place in the order: this is a re-entry, or the actor waits for itself. */
static void debug_check_order(const struct snib__use *use)
{
    const struct snib__use *held, *first = snib__uses_by_actor(use->actor);
    for (held = first; held; held = held->by_actor)
        if (held->actor == use->actor && debug_holds(held, use->client) &&
            debug_shared(held, use, true))
            return;
    for (held = first; held; held = held->by_actor)
        if (held->actor == use->actor && debug_holds(held, use->client) && held->ordered)
            debug_pairs(held, use);
    debug_pairs_within(use);
}

void snib__debug_acquire(const struct snib__lock *lock, const struct snib__op *op, bool waits)
{
    struct snib__use *use = op && lock->kind != SNIB_LATCH ? snib__use_of_lock(lock) : NULL;
    if (!use) {
        snib__use_forget_here();
        return;
    }
    snib__use_begin(use);
    use->thing = op;
    use->what = SNIB__USE_AWAITED;
    use->since = snib__now();
    if (!snib__uses_lock()) {
        free(use);
        return;
    }
    debug_mind_writers(use);
    if (waits && use->ordered)
        debug_check_order(use);
    snib__use_add(use);
    snib__uses_unlock();
}

void snib__debug_acquired(struct snib__client *client, const struct snib__op *op,
                          const struct snib__hold *hold)
{
    (void)client;
    if (!snib__uses_lock())
        return;
    struct snib__use *use = snib__use_take(op);
    if (use && hold) {
        use->thing = hold;
        use->what = SNIB__USE_HELD;
        use->told = false;
        use->since = snib__now();
        snib__use_add(use);
        use = NULL;
    }
    snib__uses_unlock();
    free(use);
}

/* Leave that many uses of a thing, the oldest. */
static void debug_leave(const void *thing, uint32_t keep)
{
    if (!snib__uses_lock())
        return;
    for (uint32_t n = snib__use_count(thing); n > keep; n--)
        free(snib__use_take(thing));
    snib__uses_unlock();
}

void snib__debug_released(const struct snib__hold *hold)
{
    debug_leave(hold, hold->phase == SNIB__HELD ? hold->count : 0);
}

void snib__debug_gone(const struct snib__hold *hold)
{
    debug_leave(hold, 0);
}

/* Whether it is held, and not lost although the engine has not noticed it yet. */
static bool debug_lasts(const struct snib__hold *hold, snib__time now)
{
    return hold->phase == SNIB__HELD && now < snib__hold_end(hold);
}

void snib__debug_abandon(struct snib__client *client, const struct snib__hold *hold)
{
    if (!snib__uses_lock())
        return;
    const struct snib__use *use = snib__use_find(hold);
    if (use && debug_lasts(hold, snib__now()))
        debug_say(client, "%s was acquired at %s%s%s and never released", use->label, use->place,
                  BY(use));
    snib__uses_unlock();
}

/* ---- what lasts ---- */

static void debug_check_hold(struct snib__use *use, snib__time now)
{
    const struct snib__hold *hold = use->thing;
    snib__time most = use->client->debug->hold;
    if (most == 0 || now - use->since < most || !debug_lasts(hold, now))
        return;
    use->told = true;
    if (debug_is_new(use, ""))
        debug_say(use->client,
                  "%s, acquired at %s%s%s, is still held after %.1f s, longer than debug_hold: "
                  "release it sooner, or raise debug_hold",
                  use->label, use->place, BY(use),
                  (double)(now - use->since) / (1000.0 * SNIB__MS));
}

static void debug_check_wait(struct snib__use *use, snib__time now)
{
    const struct snib__use *held = snib__uses_by_actor(use->actor);
    if (now - use->since < DEBUG_WAIT || !use->alone)
        return;
    while (held && !(held->actor == use->actor && debug_holds(held, use->client) && held->alone &&
                     debug_shared(held, use, false)))
        held = held->by_actor;
    if (!held)
        return;
    use->told = true;
    if (debug_is_new(use, held->place))
        debug_say(use->client,
                  "%s is awaited at %s by the caller%s%s%s that has held it since %s: it waits for "
                  "itself; release it first, or use a re-entrant lock",
                  use->label, use->place, use->who[0] ? " (" : "", use->who, use->who[0] ? ")" : "",
                  held->place);
}

/* The first of those who have it; of a group's member, of those who have the group. */
static const struct snib__use *debug_taker(const struct snib__hold *hold)
{
    const void *thing =
        hold->tell == SNIB__TELL_CARRIER ? snib__carrier_outer(hold->sink) : (const void *)hold;
    const struct snib__use *first = NULL;
    for (const struct snib__use *use = snib__uses_by_thing(thing); use; use = use->by_thing)
        if (use->thing == thing && use->what == SNIB__USE_HELD)
            first = use;
    return first;
}

/* "at <number> <place>" and "by <number> <who>", one a line, for the holds of which the client tells since when. */
static void debug_note_takers(struct snib__client *client)
{
    const struct snib__hold *oldest[SNIB__OLDEST_MAX];
    char *out = client->debug->taken, *end = out + sizeof client->debug->taken;
    uint32_t n = client->identity ? snib__engine_oldest(client->driver.engine, oldest) : 0;
    *out = 0;
    for (uint32_t i = 0; i < n; i++) {
        const struct snib__use *use = debug_taker(oldest[i]);
        uint64_t number = oldest[i]->number;
        if (use && strcmp(use->place, SNIB__USE_NOWHERE) != 0)
            out += snprintf(out, (size_t)(end - out), "at %" PRIu64 " %s\n", number, use->place);
        if (use && use->who[0])
            out += snprintf(out, (size_t)(end - out), "by %" PRIu64 " %s\n", number, use->who);
    }
}

/* With other processes, unless nothing may be known about this one, or the server has no others: a test counts its requests. */
static void debug_exchange(struct snib__client *client, snib__time now)
{
    struct snib__engine *engine = client->driver.engine;
    const struct snib__debug *debug = client->debug;
    if (!client->identity || client->url.memory)
        return;
    snib__peers_read(engine, debug->server, now, debug_tell_circle, client);
    snib__peers_write(engine, debug->server, debug->process, now);
}

static void debug_look(struct snib__driver *driver)
{
    struct snib__client *client = (struct snib__client *)driver; /* its first member */
    struct snib__debug *debug = client->debug;
    snib__time now = snib__now();
    if (now < debug->look_at || debug->over)
        return;
    debug->look_at = now + driver->look_every;
    if (!snib__uses_lock()) {
        debug->over = true;
        debug->taken[0] = 0;
        debug_say(client, "a thread has stopped while it records a lock: this process looks for no "
                          "more mistakes until it is restarted");
        return;
    }
    debug_exchange(client, now);
    debug_note_takers(client);
    for (uint32_t i = 0; i < SNIB__USES_BUCKETS; i++)
        for (struct snib__use *use = snib__uses_in(i); use; use = use->by_thing) {
            if (use->client != client || use->told)
                continue;
            if (use->what == SNIB__USE_HELD)
                debug_check_hold(use, now);
            else if (use->what == SNIB__USE_AWAITED)
                debug_check_wait(use, now);
        }
    snib__uses_unlock();
}

/* ---- what is never freed ---- */

void snib__debug_close(struct snib__client *client)
{
    if (!snib__uses_lock())
        return;
    snib__time now = snib__now();
    debug_exchange(client, now); /* others hear of what is new; their answer comes too late */
    for (uint32_t i = 0; i < SNIB__USES_BUCKETS; i++)
        for (struct snib__use *use = snib__uses_in(i); use; use = use->by_thing) {
            const struct snib__hold *hold = use->what == SNIB__USE_HELD ? use->thing : NULL;
            if (!hold || use->client != client || !debug_lasts(hold, now))
                continue;
            if (debug_is_new(use, "closed"))
                debug_say(client,
                          "%s, acquired at %s%s%s, is still held when its client is closed: "
                          "release it first",
                          use->label, use->place, BY(use));
        }
    snib__uses_unlock();
}

void snib__debug_made(struct snib__client *client, const void *object, const char *what)
{
    bool wanted = snib__use_is_here_alone(); /* bindings free by themselves */
    struct snib__use *use = wanted ? calloc(1, sizeof *use) : NULL;
    if (!use) {
        snib__use_forget_here();
        return;
    }
    snib__use_begin(use);
    use->client = client;
    use->thing = object;
    use->what = SNIB__USE_MADE;
    snprintf(use->label, sizeof use->label, "%s", what);
    if (!snib__uses_lock()) {
        free(use);
        return;
    }
    snib__use_add(use);
    snib__uses_unlock();
}

void snib__debug_freed(const void *object)
{
    debug_leave(object, 0);
}

void snib__debug_exit(void)
{
    debug_exits = true;
}

void snib__debug_exited(void)
{
    if (!snib__uses_lock())
        return;
    for (uint32_t i = 0; i < SNIB__USES_BUCKETS; i++)
        for (const struct snib__use *use = snib__uses_in(i); use; use = use->by_thing)
            if (use->what == SNIB__USE_MADE)
                debug_say(use->client, "%s, made at %s, was never freed", use->label, use->place);
    snib__uses_unlock();
}

/* ---- clients ---- */

int snib__debug_begin(struct snib__client *client)
{
    snib__time hold = client->options.debug_hold_ms > 0
                          ? (snib__time)client->options.debug_hold_ms * SNIB__MS
                          : 0;
    if (client->options.debug <= 0)
        return 0;
    client->debug = malloc(sizeof *client->debug);
    if (!client->debug)
        return -1;
    *client->debug = (struct snib__debug){.hold = hold, .server = snib__use_server(client)};
    snib__peers_self(client->debug->process, client->url.label);
    client->driver.look = debug_look;
    client->driver.look_every = hold && hold / 2 < DEBUG_LOOK ? hold / 2 : DEBUG_LOOK;
    return 0;
}

const char *snib__debug_taken(const struct snib__client *client)
{
    return client->debug ? client->debug->taken : NULL;
}

uint64_t snib__debug_warnings(const struct snib__client *client)
{
    return client->debug ? client->debug->warnings : 0;
}

void snib__debug_end(struct snib__client *client)
{
    free(client->debug);
    client->debug = NULL;
}
