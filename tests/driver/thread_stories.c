/* thread_stories.c - threads that stop at the worst place, and crowds of them. */
#include "driver_sim.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MANY = 200 };

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
void kept_from_waking(void *argument)
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
void kept_from_ringing(void *argument)
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
    if (!event_within(queue, &event, 1500 * SNIB__MS))
        world_fail("the descriptor signals nothing");
    world.freeze_next_ring = 0;
    MUST(snib_hold_release(event.hold, err), SNIB_OK);
    snib_hold_free(event.hold);
    world_stay(nobody_runs, NULL);
    snib_queue_free(queue);
    snib_lock_free(lock);
    close_client();
}

static bool one_waits(void *on)
{
    snib_client_stats_data stats = {.size = sizeof stats};
    MUST(snib_client_stats(on, &stats, err), SNIB_OK);
    return stats.waiting > 0;
}

/* A hold that is freed is released at once, whatever else the client does or does not do. */
void freed_while_held(void *argument)
{
    snib_hold *hold;
    (void)argument;
    for (int i = 0; i < 2; i++) {
        open_client(LEASE_MS, 0);
        connect_client();
    }
    snib_lock *lock = lock_of(0, "renewed", 1, 0);
    MUST(snib_lock_acquire(lock, 0, -1, &hold, err), SNIB_OK);
    const bool alone = world_chance(2); /* the hold keeps what the lock was made of */
    if (alone)
        snib_lock_free(lock);
    running = 1;
    world_thread("caller", renewed_caller, (void *)(intptr_t)1); /* of the other client */
    world_stay(one_waits, clients[1]);
    world_sleep(world_draw(100 * SNIB__MS));
    snib__time since = world.now;
    snib_hold_free(hold);
    world_stay(nobody_runs, NULL);
    prompt(since, "a grant after a hold was freed");
    if (!alone)
        snib_lock_free(lock);
    close_client();
    close_client();
}

static bool sent_by_all(void *on)
{
    const uint32_t *callers = on;
    return snib__link_in_flight(snib__engine_link(drivers[0]->engine, SNIB__COMMAND)) >= *callers;
}

/* No caller wakes to which the role is handed, and there are many: what is asynchronous waits for the
 * first of them only. */
void all_kept_from_leading(void *argument)
{
    uint32_t callers = 12;
    int caller = SNIB__READER_CALLER;
    snib_queue *queue;
    snib_event event;
    snib_client_options options;
    (void)argument;
    snib_client_options_init(&options, sizeof options);
    options.lease_ms = 60000;
    options.lanes = 1;
    open_client_with("redis://name.test", &options);
    connect_client();
    MUST(snib_queue_new(clients[0], &queue, err), SNIB_OK);
    snib_lock *lock = lock_named("queued", 99, 0);
    world.silent = true;
    world.faults |= WORLD_SPLIT; /* so that the replies come in pieces */
    running = (int)callers;
    for (uint32_t i = 0; i < callers; i++) {
        world_thread(i ? "other" : "first", renewed_caller, (void *)(intptr_t)(i + 1));
        world_stay(reads, &caller);
    }
    world_stay(sent_by_all, &callers);
    world_sleep(100 * SNIB__MS);
    world_freeze("other", 20000 * SNIB__MS);
    MUST(snib_lock_acquire_submit(lock, 0, -1, queue, 1, NULL, err), SNIB_OK);
    world.silent = false;
    if (!event_within(queue, &event, 400 * SNIB__MS))
        world_fail("no thread reads in place of the nominees");
    MUST(snib_hold_release(event.hold, err), SNIB_OK);
    snib_hold_free(event.hold);
    world_stay(nobody_runs, NULL);
    snib_queue_free(queue);
    snib_lock_free(lock);
    close_client();
}

static bool over;
static snib__time tried_until;

static void busy_caller(void *argument)
{
    snib_lock *lock = lock_named("busy", (int)(intptr_t)argument, 0);
    while (!over) {
        snib_hold *hold = NULL;
        snib_error why;
        int code = snib_lock_acquire(lock, 0, -1, &hold, &why);
        if (code == SNIB_OK) {
            code = snib_hold_release(hold, &why);
            snib_hold_free(hold);
        }
        if (code != SNIB_OK && code != SNIB_LOST)
            world_fail("a caller that was stopped got %s: %s", snib_code_name(code), why.text);
        world_sleep(world_draw(20 * SNIB__MS));
    }
    snib_lock_free(lock);
    running--;
}

static bool reads_or_tried(void *on)
{
    return world.now >= tried_until || reads(on);
}

static bool reads_no_more(void *on)
{
    return !reads(on);
}

/* One caller after the other would be stopped while it reads for all.  The first costs a reply
 * timeout; the others are not given the role for the length of a lease, even if the first is soon
 * back. */
void stopped_in_turn(void *argument)
{
    enum { CALLERS = 6 };
    int caller = SNIB__READER_CALLER, stops = 0;
    (void)argument;
    open_client(LEASE_MS, 0);
    connect_client();
    snib_lock *lock = lock_named("kept", 0, 0);
    snib_hold *hold;
    MUST(snib_lock_acquire(lock, 0, -1, &hold, err), SNIB_OK);
    snib__time span = (world_chance(2) ? 10 * LEASE_MS : LEASE_MS / 4) * SNIB__MS;
    over = false;
    running = CALLERS;
    for (int i = 0; i < CALLERS; i++) {
        char name[16];
        snprintf(name, sizeof name, "caller%d", i);
        tried_until = world.now + LEASE_MS / 10 * SNIB__MS;
        world_thread(name, busy_caller, (void *)(intptr_t)i);
        world_stay(reads_or_tried, &caller);
        if (!reads(&caller))
            continue;
        stops++;
        world_freeze(name, span);
        world_stay(reads_no_more, &caller);
    }
    if (stops != 1)
        world_fail("%d callers were stopped while they read", stops);
    for (int i = 0; i < 2; i++) {
        MUST(snib_hold_check(hold, err), SNIB_OK);
        world_sleep(LEASE_MS * SNIB__MS);
    }
    world_stay(reads, &caller); /* callers read again */
    over = true;
    MUST(snib_hold_release(hold, err), SNIB_OK);
    snib_hold_free(hold);
    snib_lock_free(lock);
    world_stay(nobody_runs, NULL);
    world.faults |= WORLD_FREEZE; /* which explains the reconnects */
    close_client();
}

static bool connects_again(void *on)
{
    const int *before = on;
    return world.connects > *before;
}

/* The server is silent, and its reader is well: callers read on the next connection, too. */
void silence_of_the_server(void *argument)
{
    int caller = SNIB__READER_CALLER;
    (void)argument;
    open_client(LEASE_MS, 0);
    connect_client();
    over = false;
    running = 1;
    world_thread("caller", busy_caller, (void *)(intptr_t)0);
    world_stay(reads, &caller);
    int before = world.connects;
    world.silent = true;
    world_stay(connects_again, &before);
    world.silent = false;
    tried_until = world.now + LEASE_MS / 2 * SNIB__MS;
    world_stay(reads_or_tried, &caller);
    if (!reads(&caller))
        world_fail("no caller reads after a silence of the server");
    over = true;
    world_stay(nobody_runs, NULL);
    world.faults |= WORLD_CUT; /* which explains the reconnects */
    close_client();
}

/* The reader role is handed to a caller that does not wake: another takes it over, and the link
 * stays up. */
void kept_from_leading(void *argument)
{
    snib_queue *queue;
    snib_event event;
    int caller = SNIB__READER_CALLER;
    (void)argument;
    open_client(60000, 0);
    drivers[0]->nap = 10000 * SNIB__MS; /* only the nomination itself wakes the thread */
    connect_client();
    MUST(snib_queue_new(clients[0], &queue, err), SNIB_OK);
    snib_lock *lock = lock_named("queued", 9, 0);
    world.silent = true;
    world.faults |= WORLD_SPLIT; /* so that the replies come in pieces */
    running = 2;
    world_thread("first", renewed_caller, (void *)(intptr_t)1);
    world_stay(reads, &caller);
    world_sleep(300 * SNIB__MS); /* the thread sees no caller that waits for another */
    world_thread("second", renewed_caller, (void *)(intptr_t)2);
    world_sleep(100 * SNIB__MS);
    world_freeze("second", 30000 * SNIB__MS);
    MUST(snib_lock_acquire_submit(lock, 0, -1, queue, 1, NULL, err), SNIB_OK);
    world.silent = false;
    if (!event_within(queue, &event, 1500 * SNIB__MS))
        world_fail("no thread reads in place of the nominee");
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

void nominee_leaves(void *argument)
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
void collected(void *argument)
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

void owners(void *argument)
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

void many_wakes(void *argument)
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
void end_while_idle(void *argument)
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

/* A loss that a caller sees is counted at once, though the thread has not come to it. */
void seen_before_the_thread(void *argument)
{
    (void)argument;
    open_client(30000, 0);
    connect_client();
    snib_lock *lock = lock_named("brief", 0, 100);
    snib_hold *hold;
    snib_client_stats_data stats = {.size = sizeof stats};
    MUST(snib_lock_acquire(lock, 0, -1, &hold, err), SNIB_OK);
    world_freeze("snib", 1000 * SNIB__MS);
    world_sleep(200 * SNIB__MS);
    MUST(snib_hold_state(hold, NULL), SNIB_HOLD_LOST);
    MUST(snib_client_stats(clients[0], &stats, err), SNIB_OK);
    if (stats.lost_expired != 1)
        world_fail("a loss that was seen is not counted");
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
        const struct snib__sock *sock = snib__link_transport(link);
        open += sock && sock->open;
        if (sock && sock->users > 1)
            world_fail("%u use a connection, and no thread is inside", (unsigned)sock->users);
    }
    return open;
}

/* Replies on all connections of a server, and a message, at once: more than the thread has room
 * for. */
void answers_together(void *argument)
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
