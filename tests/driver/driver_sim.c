/* driver_sim.c - the real driver in worlds of threads, sockets and clocks drawn from a seed.
 *
 *     sim_driver                 every story with SNIB_SIM_SEEDS seeds, or 1000
 *     sim_driver STORY SEED      one world
 *
 * In a random world threads acquire, begin, submit, wait, watch and release while calls are
 * interrupted or handle only a part, sockets fill up, connections are lost, and threads of the
 * program stop outside the client's mutex.  In every world: each operation ends, nothing sleeps for
 * ever, no two threads hold one lock, no hold is lost (no fault lasts as long as a lease), and
 * nothing is left at the server.
 */
#include "driver_sim.h"

#include "../sim/engine_check.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WORKERS = 8, SHARED = 2, MANY = 200 };
/* In a world without faults.  With partial sends a reader may nap before it sees the rest. */
#define PROMPT ((world.faults ? 200 : 40) * SNIB__MS)

enum { CLIENTS = 2 };
snib_client *clients[CLIENTS_MAX];
struct snib__driver *drivers[CLIENTS_MAX];
int clients_n;
int running;
static int inside[SHARED];

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

static void check_command(const struct snib__driver *driver, const struct snib__link *command,
                          bool asleep)
{
    struct snib__sock *sock = snib__driver_command(command);
    if (!sock || !asleep || driver->stop)
        return;
    if (driver->wake_raised)
        world_fail("the thread is marked as woken, and sleeps");
    if (sock->reader == SNIB__READER_NOBODY && snib__link_in_flight(command) > 0)
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
        const struct snib__sock *carrier = snib__link_carrier(link);
        if (carrier && carrier->dead)
            world_fail("a dropped socket is still in its place");
        if (carrier && carrier->way != *snib__link_way((struct snib__link *)link))
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

static void open_client(int64_t lease_ms, int64_t connect_timeout_ms)
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

/* A lock of worker i's client, under a name of its own or a shared one. */
static snib_lock *lock_named(const char *stem, int i, int64_t lease_ms)
{
    return lock_of(i, stem, i, lease_ms);
}

static snib_lock *lock_shared(int shared, int i)
{
    return lock_of(i, "shared", shared, 0);
}

static void come_in(int shared)
{
    if (shared >= 0 && inside[shared]++)
        world_fail("two threads have one lock");
}

static void go_out(int shared)
{
    if (shared >= 0)
        inside[shared]--;
}

static bool calm(void)
{
    return (world.faults & (WORLD_CUT | WORLD_FREEZE | WORLD_SLOW | WORLD_FULL)) == 0;
}

static void prompt(snib__time since, const char *what)
{
    if (calm() && world.now - since > PROMPT)
        world_fail("%s took %.3f s", what, (double)(world.now - since) / 1e9);
}

static void work(snib_hold *hold, int shared)
{
    come_in(shared);
    world_sleep(world_draw(3 * SNIB__MS));
    if (world_chance(20))
        world_sleep(2 * LEASE_MS * SNIB__MS);
    MUST(snib_hold_check(hold, err), SNIB_OK);
    go_out(shared);
}

/* A thread that was stopped for longer than a lease may be too late for its grant. */
static bool too_late(int code)
{
    return code == SNIB_EUNREACHABLE && (world.faults & WORLD_FREEZE);
}

static void call(int i)
{
    int shared = world_chance(2) ? (int)world_draw(SHARED) : -1;
    snib_lock *lock = shared >= 0 ? lock_shared(shared, i) : lock_named("own", i, 0);
    static const int64_t all_waits[] = {-1, -1, 0, 100};
    int64_t wait = all_waits[world_draw(4)];
    snib_hold *hold;
    snib_error why;
    snib__time since = world.now;
    int code = snib_lock_acquire(lock, 0, wait, &hold, &why);
    if (code == SNIB_OK) {
        if (shared < 0)
            prompt(since, "an acquire");
        work(hold, shared);
        since = world.now;
        MUST(snib_hold_release(hold, err), SNIB_OK);
        prompt(since, "a release");
        snib_hold_free(hold);
    } else if (!(wait == 0 && code == SNIB_BUSY) && !(wait == 100 && code == SNIB_TIMEDOUT)) {
        if (!too_late(code) && (wait < 0 || !(world.faults & WORLD_CUT)))
            world_fail("acquire gave %s: %s", snib_code_name(code), why.text);
    }
    snib_lock_free(lock);
}

/* As the bindings do: wait for a time slice, return to the caller, wait on. */
static void begin(int i)
{
    snib_lock *lock = lock_named("own", i, 0);
    snib_hold *hold = NULL;
    snib_op *op;
    snib_event event = {.size = sizeof event};
    int code =
        snib_lock_acquire_begin(lock, 0, -1, (int64_t)world_draw(3), NULL, 7, &hold, &op, NULL);
    if (code == SNIB_AGAIN) {
        while ((code = snib_op_wait(op, 5, &event, NULL)) == SNIB_AGAIN) {
        }
        hold = event.hold;
        code = code == SNIB_OK ? event.code : code;
    }
    if (code != SNIB_OK && !too_late(code))
        world_fail("begin gave %s", snib_code_name(code));
    if (code == SNIB_OK) {
        work(hold, -1);
        MUST(snib_hold_release(hold, err), SNIB_OK);
        snib_hold_free(hold);
    }
    snib_lock_free(lock);
}

/* An event loop, which sees only the descriptor, or a waiting thread. */
void next_event(snib_queue *queue, snib_event *out)
{
    snib__time since = world.now;
    int fd = snib_queue_fd(queue, NULL), n = 0;
    bool waits = world_chance(2);
    while (waits && n == 0) {
        n = snib_queue_wait(queue, out, 1, 60000, NULL);
        if (n == 0 && !(world.faults & WORLD_SIGNALS))
            world_fail("a wait ended without an event");
    }
    while (!waits && snib_queue_drain(queue, out, 1, NULL) == 0) {
        if (!world_readable(fd, 60000 * SNIB__MS))
            world_fail("no event within a minute");
    }
    prompt(since, "an event");
}

static void submit(int i)
{
    snib_lock *lock = lock_named("own", i, 0);
    snib_queue *queue;
    snib_event event;
    MUST(snib_queue_new(clients[i % clients_n], &queue, err), SNIB_OK);
    MUST(snib_lock_acquire_submit(lock, 0, -1, queue, 1, NULL, err), SNIB_OK);
    next_event(queue, &event);
    if (event.code != SNIB_OK && !too_late(event.code))
        world_fail("submit gave %s: %s", snib_code_name(event.code), event.text);
    if (event.code == SNIB_OK) {
        snib_hold *hold = event.hold;
        work(hold, -1);
        MUST(snib_hold_release_submit(hold, queue, 2, NULL, err), SNIB_OK);
        next_event(queue, &event);
        if (event.code != SNIB_OK)
            world_fail("release gave %s", snib_code_name(event.code));
        snib_hold_free(hold);
    }
    /* A thread about to ring the descriptor must not ring a new one with its number. */
    snib_queue_free(queue);
    int mine = snib__sys_bell();
    if (world_readable(mine, world_draw(SNIB__MS)))
        world_fail("a descriptor that belongs to no queue is signalled");
    snib__sys_close(mine);
    snib_lock_free(lock);
}

static void watch(int i)
{
    snib_lock *lock = lock_named("watched", i, 0);
    snib_hold *hold;
    int code = snib_lock_acquire(lock, 0, -1, &hold, NULL);
    if (code != SNIB_OK && !too_late(code))
        world_fail("acquire gave %s", snib_code_name(code));
    for (int turn = 0; code == SNIB_OK && turn < 3; turn++) {
        code = snib_hold_wait(hold, LEASE_MS, NULL, NULL);
        if (code != SNIB_TIMEDOUT && code != SNIB_AGAIN)
            world_fail("a hold was lost, although server and thread are well");
        code = SNIB_OK;
    }
    if (code == SNIB_OK) {
        MUST(snib_hold_release(hold, err), SNIB_OK);
        snib_hold_free(hold);
    }
    snib_lock_free(lock);
}

/* ---- Random worlds -------------------------------------------------------------------------------- */

static void worker(void *argument)
{
    int i = (int)(intptr_t)argument;
    static void (*const parts[])(int) = {call, call, submit, begin, submit, watch};
    for (int turns = 1 + (int)world_draw(6); turns > 0; turns--)
        parts[world_draw(6)](i);
    running--;
}

bool nobody_runs(void *on)
{
    (void)on;
    return running == 0;
}

void expect_nothing_left(void)
{
    if (model_key_count(world.server) != 0)
        world_fail("%zu keys are left", model_key_count(world.server));
}

static void random_main(void *argument)
{
    (void)argument;
    const int opened = 1 + (int)world_draw(CLIENTS);
    const bool lanes = world_draw(2) > 0;
    while (clients_n < opened) {
        open_client(LEASE_MS, 0);
        drivers[clients_n - 1]->engine->config.scatter = lanes;
        connect_client();
    }
    memset(inside, 0, sizeof inside);
    running = 1 + (int)world_draw(WORKERS);
    for (int i = running - 1; i >= 0; i--)
        world_thread("worker", worker, (void *)(intptr_t)i);
    world_stay(nobody_runs, NULL);
    while (clients_n > 0)
        close_client();
    /* A lane that has been idle for half a minute is closed, and opened again later. */
    const int ages = 1 + (int)(world.now / (30000 * SNIB__MS));
    if (world.connects > (lanes ? 1 + SNIB__LANES_MAX * ages : 2) * opened &&
        !(world.faults & (WORLD_CUT | WORLD_FREEZE)))
        world_fail("%d connections of %d clients, and nothing was wrong with the first",
                   world.connects, opened);
    expect_nothing_left();
}

static unsigned random_faults(uint64_t seed)
{
    return seed % 4 == 0 ? 0 : (unsigned)(seed * 0x9e3779b97f4a7c15u >> 40) & 63;
}

/* ---- Stories -------------------------------------------------------------------------------------- */

/* The first address swallows packets; the second is tried in time, and remembered. */
static void two_addresses(void *argument)
{
    (void)argument;
    world.addresses = 2;
    world.peers[1] = WORLD_SWALLOWS;
    open_client(LEASE_MS, 500);
    snib__time since = world.now;
    MUST(snib_client_ping(clients[0], -1, err), SNIB_OK);
    if (world.now - since > 400 * SNIB__MS)
        world_fail("the second address took %.3f s", (double)(world.now - since) / 1e9);
    world.faults |= WORLD_CUT;
    for (int i = 0; i < 30; i++) {
        since = world.now;
        snib_client_ping(clients[0], -1, NULL);
        if (world.now - since > 200 * SNIB__MS)
            world_fail("the address that worked was not the first");
    }
    close_client();
}

/* A network without a route for one address family: the first address of the other family is tried
 * second. */
static void two_families(void *argument)
{
    (void)argument;
    world.addresses = 5;
    world.sixes = 4;
    for (int i = 1; i <= world.sixes; i++)
        world.peers[i] = WORLD_SWALLOWS;
    open_client(LEASE_MS, 5000);
    snib__time since = world.now;
    MUST(snib_client_ping(clients[0], -1, err), SNIB_OK);
    if (world.now - since > 400 * SNIB__MS)
        world_fail("the other family took %.3f s", (double)(world.now - since) / 1e9);
    close_client();
}

static void no_address(void *argument)
{
    (void)argument;
    world.addresses = 8;
    for (int i = 0; i < 8; i++)
        world.peers[i] = i % 2 ? WORLD_SWALLOWS : WORLD_REFUSES;
    open_client(LEASE_MS, 500);
    for (int i = 0; i < 5; i++) {
        snib__time since = world.now;
        int code = snib_client_ping(clients[0], 10000, NULL);
        if (code != SNIB_ECONNECT && code != SNIB_TIMEDOUT)
            world_fail("no address answers, and ping gave %s", snib_code_name(code));
        if (world.now - since > 10500 * SNIB__MS)
            world_fail("it took %.3f s to report it", (double)(world.now - since) / 1e9);
    }
    close_client();
}

/* A hanging lookup is reported in time, no second one is started meanwhile, and its result is used
 * when it comes. */
static void hanging_lookup(void *argument)
{
    (void)argument;
    world.lookup_takes = SNIB__NEVER;
    open_client(LEASE_MS, 500);
    for (snib__time end = world.now + 30000 * SNIB__MS; world.now < end;) {
        snib__time since = world.now;
        int code = snib_client_ping(clients[0], 10000, NULL);
        if (code == SNIB_OK || world.now - since > 10500 * SNIB__MS)
            world_fail("%s after %.3f s", snib_code_name(code), (double)(world.now - since) / 1e9);
        if (world.lookups_running > 1)
            world_fail("%d lookups at once", world.lookups_running);
    }
    world.lookup_takes = 700 * SNIB__MS;
    snib__time since = world.now;
    connect_client();
    if (world.now - since > 6000 * SNIB__MS)
        world_fail("connected %.3f s after the lookup's end", (double)(world.now - since) / 1e9);
    close_client();
}

/* Connecting has its full time limit, however long the lookup took. */
static void slow_lookup(void *argument)
{
    (void)argument;
    world.lookup_takes = 400 * SNIB__MS;
    world.addresses = 2;
    world.peers[1] = WORLD_SWALLOWS;
    open_client(LEASE_MS, 500);
    snib__time since = world.now;
    MUST(snib_client_ping(clients[0], 5000, err), SNIB_OK);
    if (world.now - since > 900 * SNIB__MS)
        world_fail("connected after %.3f s", (double)(world.now - since) / 1e9);
    close_client();
}

/* Another server has taken over: both links go to the new address, including one that was still
 * connecting to the old one. */
static void other_way(void *argument)
{
    (void)argument;
    struct snib__address address;
    snib_hold *hold, *other;
    open_client(LEASE_MS, 60000);
    connect_client();
    snib_lock *lock = lock_of(0, "shared", 1, 0);
    MUST(snib_lock_acquire(lock, 0, -1, &hold, err), SNIB_OK);
    world.peers[1] = WORLD_SWALLOWS;
    struct snib__engine *engine = drivers[0]->engine;
    MUST(snib_lock_acquire(lock, 0, 100, &other, err), SNIB_TIMEDOUT);
    snib__driver_enter(drivers[0]);
    snib__link_want(engine, &engine->home->links[SNIB__PUBSUB], snib__now());
    snib__driver_leave(drivers[0]);
    world_sleep(100 * SNIB__MS);
    world.peers[1] = WORLD_ANSWERS;
    snib__address_host(&address, "next.test", strlen("next.test"), 6379, false);
    snib__driver_enter(drivers[0]);
    snib__node_readdress(engine, engine->home, &address, snib__now());
    snib__driver_leave(drivers[0]);
    const int lookups = world.lookups;
    MUST(snib_client_ping(clients[0], 5000, err), SNIB_OK);
    world_sleep(100 * SNIB__MS);
    if (world.lookups == lookups || strcmp(world.host, address.host) != 0)
        world_fail("%d lookups, the last of %s", world.lookups - lookups, world.host);
    MUST(snib_hold_release(hold, err), SNIB_OK);
    snib_hold_free(hold);
    snib_lock_free(lock);
    MUST(snib_client_close(clients[0], -1, err), SNIB_OK);
    free_client();
}

/* A lookup's result serves the connections that waited for it: the next one looks up again. */
static void later_lookup(void *argument)
{
    (void)argument;
    open_client(LEASE_MS, 500);
    connect_client();
    world.faults |= WORLD_CUT;
    while (world.connects == 1) {
        snib_client_ping(clients[0], 1000, NULL);
        world_sleep(SNIB__MS);
    }
    world.faults &= (unsigned)~WORLD_CUT;
    connect_client();
    if (world.lookups < world.connects)
        world_fail("%d connections, %d lookups", world.connects, world.lookups);
    MUST(snib_client_close(clients[0], -1, err), SNIB_OK);
    free_client();
}

static void no_name(void *argument)
{
    (void)argument;
    world.addresses = 0;
    open_client(LEASE_MS, 500);
    for (int i = 0; i < 3; i++) {
        int code = snib_client_ping(clients[0], 3000, NULL);
        if (code != SNIB_ERESOLVE && code != SNIB_TIMEDOUT)
            world_fail("the name has no address, and ping gave %s", snib_code_name(code));
    }
    world.addresses = 1;
    connect_client();
    close_client();
}

/* When a hold ends during a suspend, the loss is reported right after it, to every kind of
 * waiter. */
static snib_hold *suspended_hold;
static snib__time resumed;

static void suspended_watcher(void *argument)
{
    (void)argument;
    MUST(snib_hold_wait(suspended_hold, -1, NULL, err), SNIB_LOST);
    if (!resumed || world.now - resumed > 50 * SNIB__MS)
        world_fail("the watcher was notified %.3f s after the resume",
                   (double)(world.now - resumed) / 1e9);
    running--;
}

static void suspend(void *argument)
{
    snib_queue *queue;
    snib_event event;
    (void)argument;
    open_client(30000, 0);
    drivers[0]->nap = 1000 * SNIB__MS;
    connect_client();
    MUST(snib_queue_new(clients[0], &queue, err), SNIB_OK);
    snib_lock *lock = lock_named("fixed", 0, 20000);
    MUST(snib_lock_acquire_submit(lock, 0, -1, queue, 1, NULL, err), SNIB_OK);
    next_event(queue, &event);
    suspended_hold = event.hold;
    running = 1;
    resumed = 0;
    world_thread("watcher", suspended_watcher, NULL);
    world_sleep(1000 * SNIB__MS + world_draw(3000 * SNIB__MS));
    world_suspend(60000 * SNIB__MS);
    resumed = world.now;
    next_event(queue, &event);
    if (event.kind != SNIB_EVENT_LOST || world.now - resumed > 50 * SNIB__MS)
        world_fail("event %d came %.3f s after the resume", event.kind,
                   (double)(world.now - resumed) / 1e9);
    world_stay(nobody_runs, NULL);
    snib_hold_free(suspended_hold);
    snib_queue_free(queue);
    snib_lock_free(lock);
    close_client();
}

/* The loss of a fixed lease is reported by the descriptor alone. */
static void lost_rings(void *argument)
{
    snib_queue *queue;
    snib_event event;
    (void)argument;
    open_client(30000, 0);
    connect_client();
    MUST(snib_queue_new(clients[0], &queue, err), SNIB_OK);
    snib_lock *lock = lock_named("fixed", 0, 2000);
    snib__time since = world.now;
    MUST(snib_lock_acquire_submit(lock, 0, -1, queue, 1, NULL, err), SNIB_OK);
    next_event(queue, &event);
    snib_hold *hold = event.hold;
    if (!world_readable(snib_queue_fd(queue, NULL), 2000 * SNIB__MS) ||
        world.now - since > 2000 * SNIB__MS)
        world_fail("the descriptor does not signal the loss");
    if (snib_queue_drain(queue, &event, 1, NULL) != 1 || event.kind != SNIB_EVENT_LOST)
        world_fail("the event that the descriptor signalled was not a loss");
    snib_hold_free(hold);
    snib_queue_free(queue);
    snib_lock_free(lock);
    close_client();
}

/* A silent server: a release, and the close that waits for it, end within their limits, without a
 * busy loop. */
static void silent_close(void *argument)
{
    (void)argument;
    open_client(60000, 0);
    connect_client();
    snib_lock *lock = lock_named("kept", 0, 0);
    snib_hold *hold;
    MUST(snib_lock_acquire(lock, 0, -1, &hold, err), SNIB_OK);
    world.silent = true;
    snib__time since = world.now;
    uint64_t calls = world.calls;
    MUST(snib_client_close(clients[0], 4000, err), SNIB_TIMEDOUT);
    snib__time took = world.now - since;
    if (took < 4000 * SNIB__MS || took > 4200 * SNIB__MS)
        world_fail("close with a limit of 4 s took %.3f s", (double)took / 1e9);
    if (world.calls - calls > 3000)
        world_fail("%llu calls meanwhile", (unsigned long long)(world.calls - calls));
    world.silent = false;
    snib_hold_free(hold);
    snib_lock_free(lock);
    free_client();
}

/* ---- Threads stopped at the worst place ----------------------------------------------------------- */

static void renewed_caller(void *argument)
{
    snib_lock *lock = lock_named("renewed", (int)(intptr_t)argument, 0);
    snib_hold *hold;
    MUST(snib_lock_acquire(lock, 0, -1, &hold, err), SNIB_OK);
    MUST(snib_hold_check(hold, err), SNIB_OK);
    MUST(snib_hold_release(hold, err), SNIB_OK);
    snib_hold_free(hold);
    snib_lock_free(lock);
    running--;
}

/* The thread sleeps for long, and the caller that should wake it for the first renewal is stopped
 * before that. */
static void kept_from_waking(void *argument)
{
    (void)argument;
    open_client(LEASE_MS, 0);
    drivers[0]->nap = LEASE_MS / 6 * SNIB__MS;
    connect_client();
    snib_lock *lock = lock_named("fixed", 1, 600000);
    snib_hold *hold;
    MUST(snib_lock_acquire(lock, 0, -1, &hold, err), SNIB_OK);
    world_sleep(5000 * SNIB__MS);
    world.freeze_next_ring = 20000 * SNIB__MS;
    running = 1;
    world_thread("caller", renewed_caller, NULL);
    world_stay(nobody_runs, NULL);
    world.freeze_next_ring = 0;
    MUST(snib_hold_release(hold, err), SNIB_OK);
    snib_hold_free(hold);
    snib_lock_free(lock);
    close_client();
}

static bool reads(void *on)
{
    int *reader = on;
    const struct snib__sock *sock =
        snib__driver_command(snib__engine_link(drivers[0]->engine, SNIB__COMMAND));
    return sock && sock->reader == *reader;
}

/* A caller reads an event for another queue and is stopped before it can ring. */
static void kept_from_ringing(void *argument)
{
    snib_queue *queue;
    snib_event event;
    int caller = SNIB__READER_CALLER;
    (void)argument;
    open_client(30000, 0);
    drivers[0]->nap = 1000 * SNIB__MS;
    connect_client();
    MUST(snib_queue_new(clients[0], &queue, err), SNIB_OK);
    snib_lock *lock = lock_named("queued", 0, 0);
    world.silent = true;
    running = 1;
    world_thread("caller", renewed_caller, NULL);
    world_stay(reads, &caller);
    MUST(snib_lock_acquire_submit(lock, 0, -1, queue, 1, NULL, err), SNIB_OK);
    world.freeze_next_ring = 20000 * SNIB__MS;
    world.silent = false;
    if (!world_readable(snib_queue_fd(queue, NULL), 1500 * SNIB__MS))
        world_fail("the descriptor signals nothing");
    world.freeze_next_ring = 0;
    next_event(queue, &event);
    MUST(snib_hold_release(event.hold, err), SNIB_OK);
    snib_hold_free(event.hold);
    world_stay(nobody_runs, NULL);
    snib_queue_free(queue);
    snib_lock_free(lock);
    close_client();
}

/* The reader role is handed to a caller that does not wake: another takes it over, and the link
 * stays up. */
static void kept_from_leading(void *argument)
{
    snib_queue *queue;
    snib_event event;
    int caller = SNIB__READER_CALLER;
    (void)argument;
    open_client(60000, 0);
    drivers[0]->nap = 1000 * SNIB__MS;
    connect_client();
    MUST(snib_queue_new(clients[0], &queue, err), SNIB_OK);
    snib_lock *lock = lock_named("queued", 9, 0);
    world.silent = true;
    world.faults |= WORLD_SPLIT; /* so that the replies come in pieces */
    running = 2;
    world_thread("first", renewed_caller, (void *)(intptr_t)1);
    world_stay(reads, &caller);
    world_thread("second", renewed_caller, (void *)(intptr_t)2);
    world_sleep(100 * SNIB__MS);
    world_freeze("second", 30000 * SNIB__MS);
    MUST(snib_lock_acquire_submit(lock, 0, -1, queue, 1, NULL, err), SNIB_OK);
    world.silent = false;
    bool passed = world_readable(snib_queue_fd(queue, NULL), 2000 * SNIB__MS);
    if (!passed)
        world_fail("no thread reads in place of the nominee");
    next_event(queue, &event);
    MUST(snib_hold_release(event.hold, err), SNIB_OK);
    snib_hold_free(event.hold);
    world_stay(nobody_runs, NULL);
    snib_queue_free(queue);
    snib_lock_free(lock);
    close_client();
}

/* The reader role is handed to a caller whose operation ends before it wakes: it passes the role
 * on. */
static snib_op *leaving;

static void leaving_caller(void *argument)
{
    snib_hold *hold = NULL;
    snib_event event = {.size = sizeof event};
    snib_lock *lock = lock_named("leaving", 1, 0);
    (void)argument;
    MUST(snib_lock_acquire_begin(lock, 0, -1, 0, NULL, 1, &hold, &leaving, err), SNIB_AGAIN);
    MUST(snib_op_wait(leaving, -1, &event, err), SNIB_OK);
    if (event.code == SNIB_OK) {
        MUST(snib_hold_release(event.hold, err), SNIB_OK);
        snib_hold_free(event.hold);
    } else if (event.code != SNIB_CANCELLED) {
        world_fail("the cancelled operation ended by %s", snib_code_name(event.code));
    }
    snib_lock_free(lock);
    running--;
}

static bool nominated_or_over(void *on)
{
    int transit = SNIB__READER_TRANSIT;
    (void)on;
    return running < 2 || reads(&transit);
}

static bool leaver_sleeps(void *on)
{
    (void)on;
    const struct snib__waiter *waiter = drivers[0]->waiters;
    return waiter && atomic_load(&waiter->op->word) == SNIB__WORD_ASLEEP;
}

static void nominee_leaves(void *argument)
{
    snib_queue *queue;
    snib_event event;
    int caller = SNIB__READER_CALLER;
    (void)argument;
    open_client(60000, 0);
    connect_client();
    MUST(snib_queue_new(clients[0], &queue, err), SNIB_OK);
    snib_lock *lock = lock_named("queued", 9, 0);
    world.silent = true;
    world.faults |= WORLD_SPLIT; /* so that the replies come in pieces */
    running = 2;
    world_thread("first", renewed_caller, (void *)(intptr_t)2);
    world_stay(reads, &caller);
    world_thread("second", leaving_caller, NULL);
    world_stay(leaver_sleeps, NULL);
    MUST(snib_lock_acquire_submit(lock, 0, -1, queue, 1, NULL, err), SNIB_OK);
    world.silent = false;
    world_stay(nominated_or_over, NULL);
    if (running == 2)
        snib_op_cancel(leaving);
    next_event(queue, &event);
    MUST(snib_hold_release(event.hold, err), SNIB_OK);
    snib_hold_free(event.hold);
    world_stay(nobody_runs, NULL);
    snib_queue_free(queue);
    snib_lock_free(lock);
    close_client();
}

/* ---- Crowds --------------------------------------------------------------------------------------- */

/* While replies are pending, requests are collected: many leave in few writes, and all of them
 * leave. */
static void collected(void *argument)
{
    enum { REQUESTS = 60, WRITES = 30 };
    snib_queue *queue;
    snib_event event;
    int thread = SNIB__READER_THREAD;
    uint64_t writes = 0;
    (void)argument;
    open_client(60000, 0);
    connect_client();
    MUST(snib_queue_new(clients[0], &queue, err), SNIB_OK);
    world.silent = true;
    for (int i = 0; i < REQUESTS; i++) {
        snib_lock *lock = lock_named("many", i, 0);
        MUST(snib_lock_acquire_submit(lock, 0, -1, queue, (uint64_t)i, NULL, err), SNIB_OK);
        snib_lock_free(lock);
        if (i > 0)
            continue;
        world_stay(reads, &thread);
        writes = drivers[0]->writes;
    }
    writes = drivers[0]->writes - writes;
    if (writes > WRITES)
        world_fail("%d requests by %llu writes", REQUESTS, (unsigned long long)writes);
    world.silent = false;
    for (int i = 0; i < REQUESTS; i++) {
        next_event(queue, &event);
        if (event.code != SNIB_OK)
            world_fail("submit gave %s: %s", snib_code_name(event.code), event.text);
        snib_hold_free(event.hold);
    }
    snib_queue_free(queue);
    close_client();
    expect_nothing_left();
}

/* One thread frees an owner's hold while another re-enters for the same owner: the second gets a
 * lasting hold. */
static void same_owner(void *argument)
{
    snib_lock *lock = lock_of(0, "owned", 1, 0);
    for (int i = 0; i < 10; i++) {
        snib_hold *hold;
        MUST(snib_lock_acquire(lock, 7, -1, &hold, err), SNIB_OK);
        if (world_chance(3))
            world_sleep(world_draw(SNIB__MS));
        MUST(snib_hold_check(hold, err), SNIB_OK);
        if (world_chance(4))
            MUST(snib_hold_release(hold, err), SNIB_OK);
        snib_hold_free(hold);
    }
    snib_lock_free(lock);
    running--;
    (void)argument;
}

static void owners(void *argument)
{
    (void)argument;
    open_client(LEASE_MS, 0);
    connect_client();
    running = 2;
    for (int i = 0; i < 2; i++)
        world_thread("owner", same_owner, NULL);
    world_stay(nobody_runs, NULL);
    close_client();
    expect_nothing_left();
}

/* More waiters than one list of wakes has room for. */
static void blocked_worker(void *argument)
{
    snib_hold *hold;
    snib_lock *lock = argument;
    MUST(snib_lock_acquire(lock, 0, -1, &hold, err), SNIB_ECLOSED);
    running--;
}

static bool all_wait(void *on)
{
    int n = 0;
    (void)on;
    for (struct snib__waiter *waiter = drivers[0]->waiters; waiter; waiter = waiter->next)
        n += atomic_load(&waiter->op->word) == SNIB__WORD_ASLEEP;
    return n == MANY;
}

static void many_wakes(void *argument)
{
    (void)argument;
    open_client(30000, 0);
    connect_client();
    snib_lock *lock = lock_named("crowded", 0, 0);
    snib_hold *hold;
    MUST(snib_lock_acquire(lock, 0, -1, &hold, err), SNIB_OK);
    running = MANY;
    for (int i = 0; i < MANY; i++)
        world_thread("blocked", blocked_worker, lock);
    world_stay(all_wait, NULL);
    MUST(snib_client_close(clients[0], -1, err), SNIB_OK);
    world_stay(nobody_runs, NULL);
    snib_hold_free(hold);
    snib_lock_free(lock);
    free_client();
    expect_nothing_left();
}

/* The server closes an idle connection: that is noticed within a nap, not when the next renewal is
 * due. */
static void end_while_idle(void *argument)
{
    (void)argument;
    open_client(60000, 0);
    drivers[0]->nap = 500 * SNIB__MS;
    connect_client();
    snib_lock *lock = lock_named("kept", 0, 0);
    snib_hold *hold;
    MUST(snib_lock_acquire(lock, 0, -1, &hold, err), SNIB_OK);
    for (int round = 0; round < 3; round++) {
        world_sleep(1000 * SNIB__MS);
        const int connects = world.connects;
        world_cut();
        world_sleep(1000 * SNIB__MS);
        if (world.connects == connects)
            world_fail("the end of the connection was not noticed");
    }
    MUST(snib_hold_release(hold, err), SNIB_OK);
    snib_hold_free(hold);
    snib_lock_free(lock);
    MUST(snib_client_close(clients[0], -1, err), SNIB_OK);
    free_client();
    expect_nothing_left();
}

static void begin_all(snib_lock **locks, snib_op **ops, int n)
{
    snib_hold *hold;
    for (int i = 0; i < n; i++)
        MUST(snib_lock_acquire_begin(locks[i], 0, -1, 1, NULL, 1, &hold, &ops[i], err), SNIB_AGAIN);
}

/* Between two calls only the sleeping thread uses a connection; a further user would keep it from
 * being closed. */
static uint32_t expect_unused(void)
{
    uint32_t open = 0;
    for (const struct snib__link *link = snib__engine_links(drivers[0]->engine); link;
         link = snib__link_next(link)) {
        const struct snib__sock *sock = snib__link_carrier(link);
        open += sock && sock->open;
        if (sock && sock->users > 1)
            world_fail("%u use a connection, and no thread is inside", (unsigned)sock->users);
    }
    return open;
}

/* Replies on all connections of a server, and a message, at once: more than the thread has room
 * for. */
static void answers_together(void *argument)
{
    enum { REQUESTS = 7, ROUNDS = 20 };
    snib_lock *locks[REQUESTS], *ours, *theirs;
    snib_hold *hold, *none;
    snib_op *ops[REQUESTS + 1];
    snib_event event = {.size = sizeof event};
    (void)argument;
    for (int i = 0; i < 2; i++) {
        open_client(60000, 0);
        connect_client();
    }
    drivers[0]->engine->config.scatter = true;
    ours = lock_of(0, "told", 0, 0);
    theirs = lock_of(1, "told", 0, 0);
    for (int i = 0; i < REQUESTS; i++)
        locks[i] = lock_of(0, "many", i, 0);
    for (int round = 0; round < ROUNDS; round++) {
        MUST(snib_lock_acquire(theirs, 0, -1, &hold, err), SNIB_OK);
        MUST(snib_lock_acquire_begin(ours, 0, -1, 50, NULL, 1, &none, &ops[REQUESTS], err),
             SNIB_AGAIN);
        world.silent = true;
        begin_all(locks, ops, REQUESTS);
        world_freeze("snib", 100 * SNIB__MS);
        world.silent = false;
        MUST(snib_hold_release(hold, err), SNIB_OK);
        snib_hold_free(hold);
        world_sleep(300 * SNIB__MS);
        for (int i = 0; i <= REQUESTS; i++) {
            MUST(snib_op_wait(ops[i], 1000, &event, err), SNIB_OK);
            MUST(event.code, SNIB_OK);
            snib_hold_free(event.hold);
        }
        world_sleep(100 * SNIB__MS);
    }
    const uint32_t open = expect_unused();
    if (open != 1 + SNIB__LANES_MAX)
        world_fail("%u connections", open);
    for (int i = 0; i < REQUESTS; i++)
        snib_lock_free(locks[i]);
    snib_lock_free(theirs);
    snib_lock_free(ours);
    while (clients_n > 0)
        close_client();
    expect_nothing_left();
}

/* ---- Main ----------------------------------------------------------------------------------------- */

static const struct story {
    const char *name;
    void (*run)(void *);
    uint64_t part; /* it gets one seed in so many */
} stories[] = {
    {"random", random_main, 1},
    {"two_addresses", two_addresses, 20},
    {"two_families", two_families, 50},
    {"no_address", no_address, 50},
    {"hanging_lookup", hanging_lookup, 50},
    {"slow_lookup", slow_lookup, 50},
    {"no_name", no_name, 50},
    {"other_way", other_way, 50},
    {"later_lookup", later_lookup, 50},
    {"suspend", suspend, 20},
    {"lost_rings", lost_rings, 20},
    {"silent_close", silent_close, 20},
    {"kept_from_waking", kept_from_waking, 20},
    {"kept_from_ringing", kept_from_ringing, 20},
    {"kept_from_leading", kept_from_leading, 5},
    {"nominee_leaves", nominee_leaves, 5},
    {"collected", collected, 100},
    {"owners", owners, 5},
    {"lost_votes", lost_votes, 50},
    {"late_votes", late_votes, 20},
    {"silent_nodes", silent_nodes, 50},
    {"returning_node", returning_node, 50},
    {"closed_members", closed_members, 20},
    {"abandoned_group", abandoned_group, 50},
    {"short_rounds", short_rounds, 100},
    {"groups", random_groups, 4},
    {"queues", random_queues, 2},
    {"queue_rules", queue_rules, 50},
    {"login_renewals", login_renewals, 50},
    {"login_answers", login_answers, 100},
    {"many_wakes", many_wakes, 200},
    {"end_while_idle", end_while_idle, 50},
    {"answers_together", answers_together, 50},
};

static uint64_t live(const struct story *story, uint64_t number)
{
    clients_n = 0;
    world_begin(story->name, number,
                story->run == random_main || story->run == random_groups ||
                        story->run == random_queues
                    ? random_faults(number)
                    : 0);
    world_thread("main", story->run, NULL);
    world_run();
    uint64_t digest = world.digest;
    world_end();
    return digest;
}

int main(int argc, char **argv)
{
    const char *asked = getenv("SNIB_SIM_SEEDS");
    uint64_t seeds = asked ? strtoull(asked, NULL, 10) : 1000;
    for (size_t s = 0; s < sizeof stories / sizeof stories[0]; s++) {
        const struct story *story = &stories[s];
        if (argc == 3) {
            if (strcmp(argv[1], story->name) == 0)
                live(story, strtoull(argv[2], NULL, 10));
            continue;
        }
        uint64_t n = seeds / story->part + 1;
        for (uint64_t number = 1; number <= n; number++) {
            uint64_t digest = live(story, number);
            if (number % 100 == 1 && digest != live(story, number))
                world_fail("the same seed gave another world");
        }
        printf("driver: %s, %llu worlds\n", story->name, (unsigned long long)n);
    }
    return 0;
}
