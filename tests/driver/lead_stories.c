/* lead_stories.c - the consumer of a queue reads the replies itself, and nothing depends on it. */
#include "driver_sim.h"

static snib_queue *queue;

static struct snib__sock *sock_of(int i)
{
    return snib__driver_command(snib__engine_link(drivers[i]->engine, SNIB__COMMAND));
}

static void begin_with(int64_t lease_ms)
{
    open_client(lease_ms, 0);
    connect_client();
    world_sleep(2 * SNIB__TRANSIT); /* the thread has seen that the first caller came */
    connect_client();               /* ... and sleeps until this reply would be overdue */
    MUST(snib_queue_new(clients[0], &queue, err), SNIB_OK);
    snib_queue_fd(queue, NULL); /* its consumer is a loop */
}

static void end(void)
{
    snib_queue_free(queue);
    close_client();
}

static snib_hold *granted(snib__time within)
{
    snib_event event;
    if (!event_within(queue, &event, within) || event.code != SNIB_OK)
        world_fail("the consumer hears of no grant");
    return event.hold;
}

static void give(snib_hold *hold)
{
    MUST(snib_hold_release(hold, err), SNIB_OK);
    snib_hold_free(hold);
}

/* A thread of the program that takes a lock as a caller does. */
static struct {
    snib__time took, longest;
    const char *stem;
} caller;

static void caller_run(void *argument)
{
    snib_lock *lock = lock_named(caller.stem, 0, 0);
    snib_hold *hold;
    snib__time since = world.now;
    (void)argument;
    MUST(snib_lock_acquire(lock, 0, -1, &hold, err), SNIB_OK);
    caller.took = world.now - since;
    give(hold);
    snib_lock_free(lock);
    running--;
}

static void start_caller(const char *stem)
{
    caller.stem = stem;
    running = 1;
    world_thread("caller", caller_run, NULL);
}

/* Another one, which takes a lock that is free, and keeps it. */
static snib_hold *apart;

static void other_run(void *argument)
{
    snib_lock *lock = lock_named("apart", 1, 0);
    (void)argument;
    MUST(snib_lock_acquire(lock, 0, -1, &apart, err), SNIB_OK);
    snib_lock_free(lock);
    running--;
}

static bool caller_reads(void *on)
{
    (void)on;
    return sock_of(0)->reader == SNIB__READER_CALLER;
}

/* While the consumer sleeps, the role is its own: the reply is read without the thread. */
void consumer_reads(void *argument)
{
    (void)argument;
    begin_with(30000);
    snib_lock *lock = lock_named("read", 0, 0);
    for (int i = 0; i < 20; i++) {
        MUST(snib_lock_acquire_submit(lock, 0, -1, queue, 1, NULL, err), SNIB_OK);
        if (i > 0 && sock_of(0)->reader != SNIB__READER_QUEUE)
            world_fail("the consumer has no role");
        world_freeze("snib", 100 * SNIB__MS);
        give(granted(50 * SNIB__MS));
    }
    snib_lock_free(lock);
    end();
}

static bool caller_reads_no_more(void *on)
{
    return !sock_of(0) || !caller_reads(on);
}

/* A caller is stopped while it reads: on the next connection neither the consumer nor those who
 * submit have a role, so none of them can be stopped in it. */
void only_the_thread(void *argument)
{
    (void)argument;
    begin_with(LEASE_MS);
    snib_lock *lock = lock_named("submitted", 0, 0);
    MUST(snib_lock_acquire_submit(lock, 0, -1, queue, 1, NULL, err), SNIB_OK);
    give(granted(100 * SNIB__MS));
    world.silent = true;
    start_caller("stopped");
    world_stay(caller_reads, NULL);
    world_freeze("caller", 3 * LEASE_MS * SNIB__MS);
    world.silent = false;
    world_stay(caller_reads_no_more, NULL);
    world_sleep(LEASE_MS / 4 * SNIB__MS);
    uint64_t taken = sock_of(0)->taken;
    world_freeze("snib", 10 * SNIB__MS);
    MUST(snib_lock_acquire_submit(lock, 0, -1, queue, 1, NULL, err), SNIB_OK);
    if (sock_of(0)->taken != taken)
        world_fail("the thread that submits writes");
    snib_hold *hold = granted(100 * SNIB__MS);
    if (sock_of(0)->reader == SNIB__READER_QUEUE)
        world_fail("the consumer reads");
    give(hold);
    world_stay(nobody_runs, NULL);
    snib_lock_free(lock);
    world.faults |= WORLD_FREEZE; /* which explains the reconnect */
    end();
}

/* It takes fewer events than it has read: the descriptor stays readable. */
void consumer_leaves_some(void *argument)
{
    enum { SEVERAL = 3 };
    snib_lock *locks[SEVERAL];
    (void)argument;
    begin_with(30000);
    for (int i = 0; i < SEVERAL; i++)
        locks[i] = lock_of(0, "several", i, 0);
    for (int turn = 0; turn < 3; turn++) {
        snib_event event;
        MUST(snib_queue_cork(queue), SNIB_OK);
        for (int i = 0; i < SEVERAL; i++)
            MUST(snib_lock_acquire_submit(locks[i], 0, -1, queue, 1, NULL, err), SNIB_OK);
        MUST(snib_queue_uncork(queue), SNIB_OK);
        world_sleep(5 * SNIB__MS); /* all replies arrive, and the thread has not missed it yet */
        for (int i = 0; i < SEVERAL; i++) {
            if (!event_within(queue, &event, 10 * SNIB__MS) || event.code != SNIB_OK)
                world_fail("an event is left behind");
            if (i + 1 < SEVERAL && !world_readable(snib_queue_fd(queue, NULL), 0))
                world_fail("the descriptor does not tell of what was left behind");
            give(event.hold);
        }
    }
    for (int i = 0; i < SEVERAL; i++)
        snib_lock_free(locks[i]);
    end();
}

/* It does not come: the thread reads soon, so that another caller gets what it gives back. */
void consumer_stalls(void *argument)
{
    (void)argument;
    begin_with(30000);
    snib_lock *lock = lock_named("stalled", 0, 0);
    for (int i = 0; i < 5; i++) {
        MUST(snib_lock_acquire_submit(lock, 0, -1, queue, 1, NULL, err), SNIB_OK);
        snib_hold *hold = granted(1000 * SNIB__MS);
        start_caller("stalled");
        world_sleep(2 * SNIB__TRANSIT);
        MUST(snib_hold_release_submit(hold, queue, 2, NULL, err), SNIB_OK);
        snib__time since = world.now;
        world_stay(nobody_runs, NULL); /* it drains nothing meanwhile */
        if (world.now - since > 60 * SNIB__MS)
            world_fail("a waiter depends on a consumer that does not come");
        snib_event event;
        if (!event_within(queue, &event, 1000 * SNIB__MS) || event.code != SNIB_OK)
            world_fail("the release has no event");
        snib_hold_free(hold);
    }
    snib_lock_free(lock);
    end();
}

/* A caller who has read its own reply passes the role to a consumer that does not come. */
void caller_leaves_it_behind(void *argument)
{
    (void)argument;
    begin_with(30000);
    drivers[0]->nap = 1000 * SNIB__MS;
    world.faults |= WORLD_SPLIT; /* so that the replies come one after the other */
    snib_lock *lock = lock_named("behind", 0, 0);
    MUST(snib_lock_acquire_submit(lock, 0, -1, queue, 1, NULL, err), SNIB_OK);
    snib_hold *hold = granted(1000 * SNIB__MS);
    start_caller("behind");
    world_sleep(3000 * SNIB__MS); /* the thread sleeps for long */
    world.silent = true;
    running++;
    world_thread("reader", other_run, NULL);
    world_stay(caller_reads, NULL);
    MUST(snib_hold_release_submit(hold, queue, 2, NULL, err), SNIB_OK);
    world_sleep(2 * SNIB__MS);
    world.silent = false;
    snib__time since = world.now;
    world_stay(nobody_runs, NULL);
    if (world.now - since > 300 * SNIB__MS)
        world_fail("nobody looks after a role that was passed to a consumer");
    snib_event event;
    if (!event_within(queue, &event, 1000 * SNIB__MS) || event.code != SNIB_OK)
        world_fail("the release has no event");
    snib_hold_free(hold);
    give(apart);
    snib_lock_free(lock);
    end();
}

/* Nor do renewals depend on it. */
void consumer_never_comes(void *argument)
{
    (void)argument;
    begin_with(1000);
    snib_lock *lock = lock_named("renewed", 0, 0);
    MUST(snib_lock_acquire_submit(lock, 0, -1, queue, 1, NULL, err), SNIB_OK);
    snib_hold *hold = granted(500 * SNIB__MS);
    /* The role is left to it with a reply to come. */
    snib_lock *other = lock_named("other", 0, 0);
    MUST(snib_lock_acquire_submit(other, 0, -1, queue, 2, NULL, err), SNIB_OK);
    world_sleep((2000 + world_draw(8000)) * SNIB__MS);
    MUST(snib_hold_check(hold, err), SNIB_OK);
    give(granted(500 * SNIB__MS));
    give(hold);
    snib_lock_free(lock);
    snib_lock_free(other);
    end();
}

/* A caller takes the role at once, and gives it back. */
void caller_goes_before(void *argument)
{
    (void)argument;
    begin_with(30000);
    snib_lock *lock = lock_named("async", 0, 0);
    for (int i = 0; i < 5; i++) {
        MUST(snib_lock_acquire_submit(lock, 0, -1, queue, 1, NULL, err), SNIB_OK);
        world_freeze("snib", 500 * SNIB__MS);
        start_caller("sync");
        world_stay(nobody_runs, NULL);
        if (caller.took > 20 * SNIB__MS)
            world_fail("a caller waits for a consumer that does not come");
        give(granted(1000 * SNIB__MS));
    }
    snib_lock_free(lock);
    end();
}

/* A caller waits for what the consumer has in flight, and may itself be the consumer: the thread reads. */
void caller_waits_behind(void *argument)
{
    (void)argument;
    begin_with(30000);
    snib_lock *lock = lock_named("both", 0, 0);
    for (int i = 0; i < 5; i++) {
        snib_hold *hold;
        MUST(snib_lock_acquire_submit(lock, 0, -1, queue, 1, NULL, err), SNIB_OK);
        hold = granted(100 * SNIB__MS);
        MUST(snib_hold_release_submit(hold, queue, 2, NULL, err), SNIB_OK);
        snib__time since = world.now;
        snib_hold_free(hold);
        MUST(snib_lock_acquire(lock, 0, -1, &hold, err), SNIB_OK);
        if (world.now - since > 15 * SNIB__MS)
            world_fail("a caller waits for itself to drain a queue");
        give(hold);
        snib_event event;
        if (!event_within(queue, &event, 100 * SNIB__MS) || event.code != SNIB_OK)
            world_fail("the release has no event");
    }
    snib_lock_free(lock);
    end();
}

/* Its queue is freed with replies to come for another one: they are read all the same. */
void leader_is_freed(void *argument)
{
    snib_queue *first;
    (void)argument;
    begin_with(30000);
    first = queue;
    MUST(snib_queue_new(clients[0], &queue, err), SNIB_OK);
    snib_lock *locks[2] = {lock_named("left", 0, 0), lock_named("kept", 0, 0)};
    for (int i = 0; i < 2; i++)
        MUST(snib_lock_acquire_submit(locks[i], 0, -1, i ? queue : first, 1, NULL, err), SNIB_OK);
    snib_queue_free(first);
    give(granted(100 * SNIB__MS));
    for (int i = 0; i < 2; i++)
        snib_lock_free(locks[i]);
    end();
}
