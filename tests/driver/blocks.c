/* blocks.c - building blocks of the stories, and what must hold between any two steps of a world. */
#include "driver_sim.h"

#include <string.h>

#include "../sim/engine_check.h"

#include <stdio.h>

/* In a world without faults.  With partial sends a reader may nap before it sees the rest. */
#define PROMPT ((world.faults ? 200 : 40) * SNIB__MS)

snib_client *clients[CLIENTS_MAX];
struct snib__driver *drivers[CLIENTS_MAX];
int clients_n;
int running;

/* ---- What must hold between any two steps ----------------------------------------------------- */

/* A caller that reads, on any lane, checks the deadlines once per nap of its own. */
static bool caller_reads(const struct snib__driver *driver)
{
    for (const struct snib__link *link = snib__engine_links(driver->engine); link;
         link = snib__link_next(link)) {
        const struct snib__sock *sock = snib__driver_command(link);
        if (sock && sock->reader == SNIB__READER_CALLER)
            return true;
    }
    return false;
}

/* Whether requests are left to the consumer of a corked queue, or else to the thread, soon. */
static bool corked(const struct snib__driver *driver, const struct snib__link *command)
{
    snib__time wakes = snib__earlier(driver->sleep_until, driver->alarm_at);
    return snib__buf_size(snib__link_output((struct snib__link *)command)) > 0 &&
           wakes <= snib__now() + CORKED_MAX;
}

static void check_command(const struct snib__driver *driver, const struct snib__link *command,
                          bool asleep)
{
    struct snib__sock *sock = snib__driver_command(command);
    if (!sock || !asleep || driver->stop)
        return;
    if (driver->wake_raised)
        world_fail("the thread is marked as woken, and sleeps");
    if (sock->reader == SNIB__READER_NOBODY && snib__link_in_flight(command) > 0 &&
        !corked(driver, command))
        world_fail("replies are pending, no thread reads and none was woken");
    if (sock->reader == SNIB__READER_TRANSIT)
        world_fail("the role is being passed to a thread that sleeps");
    if (sock->writing)
        world_fail("all threads sleep, and one is writing");
    if (!caller_reads(driver) && driver->sleep_until > 0 &&
        snib__engine_deadline(driver->engine) < driver->sleep_until)
        world_fail("the thread sleeps beyond a deadline");
}

static void check_driver(const struct snib__driver *driver, bool asleep)
{
    for (const struct snib__link *link = snib__engine_links(driver->engine); link;
         link = snib__link_next(link)) {
        const struct snib__sock *sock = snib__link_transport(link);
        if (sock && sock->dead)
            world_fail("a dropped socket is still in its place");
        if (sock && sock->way != *snib__link_way((struct snib__link *)link))
            world_fail("the way of a socket is not that of its link");
        check_command(driver, link, asleep);
    }
    const struct snib__waiter *last = NULL;
    for (const struct snib__waiter *waiter = driver->waiters; waiter; waiter = waiter->next) {
        if (waiter->prev != last)
            world_fail("the waiters are not in a list");
        last = waiter;
    }
    if (driver->waiters_tail != last)
        world_fail("the list of waiters has another end");
}

static void check_roles(bool asleep)
{
    for (int i = 0; i < clients_n; i++) {
        if (!drivers[i])
            continue;
        check_driver(drivers[i], asleep);
        const char *flaw = asleep ? engine_flaw(drivers[i]->engine) : NULL;
        if (flaw)
            world_fail("in the engine it is not true that %s", flaw);
    }
}

/* ---- Building blocks ---------------------------------------------------------------------------- */

void open_client_with(const char *url, const snib_client_options *options)
{
    snib_client **client = &clients[clients_n];
    MUST(snib_client_open(url, options, client, err), SNIB_OK);
    struct snib__driver *driver =
        &((struct snib__client *)snib__handle_get(SNIB__CLIENT, *client))->driver;
    snib__handle_put(*client);
    if (!(world.faults & WORLD_FREEZE))
        driver->nap = 3600 * 1000 * SNIB__MS; /* nothing may make up for a missed wake-up */
    drivers[clients_n++] = driver;
    world.check = check_roles;
}

void open_client_at(const char *url, int64_t lease_ms, int64_t connect_timeout_ms)
{
    snib_client_options options;
    snib_client_options_init(&options, sizeof options);
    options.lease_ms = lease_ms;
    options.connect_timeout_ms = connect_timeout_ms;
    open_client_with(url, &options);
}

void open_client(int64_t lease_ms, int64_t connect_timeout_ms)
{
    open_client_at("redis://name.test", lease_ms, connect_timeout_ms);
}

void connect_client(void)
{
    while (snib_client_ping(clients[clients_n - 1], -1, NULL) != SNIB_OK)
        world_sleep(10 * SNIB__MS);
}

void free_client(void)
{
    drivers[--clients_n] = NULL;
    snib_client_free(clients[clients_n]);
}

void close_client(void)
{
    snib_client_stats_data stats = {.size = sizeof stats};
    MUST(snib_client_stats(clients[clients_n - 1], &stats, err), SNIB_OK);
    if (stats.reconnects > 0 && !(world.faults & (WORLD_CUT | WORLD_FREEZE)))
        world_fail("%llu reconnects, and nothing was wrong with the connection",
                   (unsigned long long)stats.reconnects);
    if (drivers[clients_n - 1]->hold_watchers != 0)
        world_fail("%u watch holds", (unsigned)drivers[clients_n - 1]->hold_watchers);
    MUST(snib_client_close(clients[clients_n - 1], -1, err), SNIB_OK);
    free_client();
}

snib_lock *lock_of(int i, const char *stem, int number, int64_t lease_ms)
{
    char name[32];
    snib_lock *lock;
    snib_lock_options options;
    snib_lock_options_init(&options, sizeof options);
    options.lease_ms = lease_ms;
    int n = snprintf(name, sizeof name, "%s:%d", stem, number);
    MUST(snib_lock_new(clients[i % clients_n], SNIB_MUTEX, name, (size_t)n, &options, &lock, err),
         SNIB_OK);
    return lock;
}

snib_lock *lock_named(const char *stem, int i, int64_t lease_ms)
{
    return lock_of(i, stem, i, lease_ms);
}

static bool calm(void)
{
    return (world.faults & (WORLD_CUT | WORLD_FREEZE | WORLD_SLOW | WORLD_FULL)) == 0;
}

void prompt(snib__time since, const char *what)
{
    if (calm() && world.now - since > PROMPT)
        world_fail("%s took %.3f s", what, (double)(world.now - since) / 1e9);
}

/* An event loop's consumer: whether an event comes in that time. */
bool event_within(snib_queue *queue, snib_event *out, snib__time span)
{
    const snib__time until = world.now + span;
    int fd = snib_queue_fd(queue, NULL);
    while (snib_queue_drain(queue, out, 1, NULL) == 0)
        if (world.now >= until || !world_readable(fd, until - world.now))
            return false;
    return true;
}

/* An event loop, which sees only the descriptor, or a waiting thread. */
void next_event(snib_queue *queue, snib_event *out)
{
    snib__time since = world.now;
    int n = 0;
    bool waits = world_chance(2);
    while (waits && n == 0) {
        n = snib_queue_wait(queue, out, 1, 60000, NULL);
        if (n == 0 && !(world.faults & WORLD_SIGNALS))
            world_fail("a wait ended without an event");
    }
    if (!waits && !event_within(queue, out, 60000 * SNIB__MS))
        world_fail("no event within a minute");
    prompt(since, "an event");
}

bool cut_off(int code)
{
    return (code == SNIB_EUNREACHABLE || code == SNIB_ECONNECT) && (world.faults & WORLD_CUT);
}

bool nobody_runs(void *on)
{
    (void)on;
    return running == 0;
}

/* What a client says about itself may stay for a lease, if it could not be taken back at its close. */
void expect_nothing_left(void)
{
    static const char identity[] = "snib_client:{";
    const size_t n = sizeof identity - 1;
    model_key key;
    world_sleep(100 * SNIB__MS); /* nobody waits for that request's end */
    for (size_t i = 0; model_key_at(world.server, i, &key); i++) {
        bool says = key.name.n > n && memcmp(key.name.p, identity, n) == 0;
        if (!says || !world.faults || key.expires_ns == UINT64_MAX)
            world_fail("the key %.*s is left", (int)key.name.n, key.name.p);
    }
}
