/* queue_stories.c - queues over the real driver: each operation has one event, whatever is
 * cancelled, freed and corked meanwhile, and grants that are never fetched are given back. */
#include "driver_sim.h"

#include <string.h>

enum { QUEUES = 2, NAMES = 3, PENDING = 200, LONG_MS = 60000 };

/* ---- Random queues -------------------------------------------------------------------------------- */

static struct pending {
    bool used, releases;
    int queue, name;
    int64_t wait;
    bool cancelled;
    snib_op *op;
} pending[PENDING];
static snib_queue *queues[QUEUES];
static bool corked[QUEUES];
static snib_lock *names[NAMES];
static snib_hold *held[NAMES];
static int told;

static struct pending *pending_new(int queue, int name)
{
    int i = 0;
    while (pending[i].used)
        if (++i == PENDING)
            world_fail("too many operations");
    pending[i] = (struct pending){.used = true, .queue = queue, .name = name};
    return &pending[i];
}

static uint64_t token_of(const struct pending *one)
{
    return 1000 + (uint64_t)(one - pending);
}

static int count_pending(int queue)
{
    int n = 0;
    for (int i = 0; i < PENDING; i++)
        n += pending[i].used && pending[i].queue == queue;
    return n;
}

static void submit(int queue)
{
    static const int64_t waits[] = {-1, 0, 40};
    struct pending *one = pending_new(queue, (int)world_draw(NAMES));
    one->wait = waits[world_draw(3)];
    MUST(snib_lock_acquire_submit(names[one->name], 0, one->wait, queues[queue], token_of(one),
                                  world_chance(4) ? NULL : &one->op, err),
         SNIB_OK);
}

static void submit_release(int queue)
{
    int name = (int)world_draw(NAMES);
    snib_hold *hold = held[name];
    if (!hold)
        return;
    struct pending *one = pending_new(queue, name);
    one->releases = true;
    held[name] = NULL;
    MUST(snib_hold_release_submit(hold, queues[queue], token_of(one), NULL, err), SNIB_OK);
    snib_hold_free(hold);
}

static void forsake(void)
{
    struct pending *one = &pending[world_draw(PENDING)];
    if (!one->used || !one->op || one->cancelled)
        return;
    if (world_chance(2)) {
        one->cancelled = snib_op_cancel(one->op) == SNIB_OK;
    } else { /* its event still comes */
        snib_op_free(one->op);
        one->op = NULL;
    }
}

static void told_of(const snib_event *event, int queue)
{
    struct pending *one = &pending[event->token - 1000];
    if (event->kind != SNIB_EVENT_DONE || event->token < 1000 || event->token >= 1000 + PENDING ||
        !one->used || one->queue != queue)
        world_fail("event %d of token %llu has no operation", event->kind,
                   (unsigned long long)event->token);
    bool granted = !one->releases && event->code == SNIB_OK;
    bool honest = event->code == SNIB_OK          ? !one->cancelled
                  : event->code == SNIB_CANCELLED ? !one->releases && (one->cancelled || !one->op)
                  : event->code == SNIB_BUSY      ? one->wait == 0
                                                  : event->code == SNIB_TIMEDOUT && one->wait > 0;
    if (!honest || (event->hold != NULL) != granted ||
        (event->text[0] != 0) == (event->code == SNIB_OK))
        world_fail("%s has ended by %s: %s", one->releases ? "a release" : "an acquire",
                   snib_code_name(event->code), event->text);
    if (granted && held[one->name])
        world_fail("one lock is held twice");
    if (granted)
        held[one->name] = event->hold;
    one->used = false;
    told++;
}

static void fetch(int queue)
{
    snib_event events[5];
    int n = world_chance(2) ? snib_queue_drain(queues[queue], events, 5, NULL)
                            : snib_queue_wait(queues[queue], events, 5, 5, NULL);
    for (int i = 0; i < n; i++)
        told_of(&events[i], queue);
}

static void cork(int queue, bool on)
{
    corked[queue] = on;
    MUST((on ? snib_queue_cork : snib_queue_uncork)(queues[queue]), SNIB_OK);
}

/* Free a queue with all its events and replace it: what its operations acquired is given back. */
static void replace(int queue)
{
    for (int i = 0; i < PENDING; i++)
        if (pending[i].queue == queue)
            pending[i].used = false;
    snib_queue_free(queues[queue]);
    corked[queue] = false;
    MUST(snib_queue_new(clients[0], &queues[queue], err), SNIB_OK);
}

static void act(void)
{
    int queue = (int)world_draw(QUEUES);
    uint64_t what = world_draw(40);
    if (what < 12)
        submit(queue);
    else if (what < 20)
        submit_release(queue);
    else if (what < 25)
        forsake();
    else if (what < 36)
        fetch(queue);
    else if (what < 39)
        cork(queue, world_chance(2));
    else
        replace(queue);
}

static void finish(int queue)
{
    cork(queue, false);
    for (snib__time since = world.now; count_pending(queue) > 0;) {
        fetch(queue);
        submit_release((queue + 1) % QUEUES);
        fetch((queue + 1) % QUEUES);
        if (world.now - since > 20000 * SNIB__MS)
            world_fail("%d operations have no event", count_pending(queue));
    }
}

void random_queues(void *argument)
{
    (void)argument;
    world.faults &= ~(unsigned)(WORLD_CUT | WORLD_FREEZE);
    memset(pending, 0, sizeof pending);
    memset(held, 0, sizeof held);
    open_client_at("redis://name.test", LONG_MS, 0);
    connect_client();
    for (int i = 0; i < NAMES; i++)
        names[i] = lock_of(0, "name", i, 0);
    for (int i = 0; i < QUEUES; i++)
        MUST(snib_queue_new(clients[0], &queues[i], err), SNIB_OK);
    for (int turns = (int)world_draw(150); turns > 0; turns--)
        act();
    for (int i = 0; i < QUEUES; i++)
        finish(i);
    for (int i = 0; i < QUEUES; i++)
        finish(i); /* releases begun by the first round */
    for (int i = 0; i < NAMES; i++) {
        snib_hold_free(held[i]);
        snib_lock_free(names[i]);
    }
    snib_client_stats_data stats = {.size = sizeof stats};
    world_sleep(200 * SNIB__MS);
    MUST(snib_client_stats(clients[0], &stats, err), SNIB_OK);
    if (stats.held != 0 || stats.waiting != 0)
        world_fail("%llu held, %llu waiting", (unsigned long long)stats.held,
                   (unsigned long long)stats.waiting);
    for (int i = 0; i < QUEUES; i++)
        snib_queue_free(queues[i]);
    close_client();
    expect_nothing_left();
}

/* ---- Rules ----------------------------------------------------------------------------------------- */

static int drained(snib_queue *queue, snib_event *out)
{
    *out = (snib_event){.size = sizeof *out};
    return snib_queue_drain(queue, out, 1, NULL);
}

/* A grant comes before its loss, however late it is fetched; freed holds have no further events. */
static void grants_and_losses(snib_queue *queue, snib_queue *other)
{
    snib_lock *lock = lock_of(0, "brief", 0, 1000);
    snib_hold *hold;
    snib_event event;
    for (int freed = 0; freed < 2; freed++) {
        MUST(snib_lock_acquire_submit(lock, 5, -1, queue, 1, NULL, err), SNIB_OK);
        world_sleep(50 * SNIB__MS);
        if (freed) {
            MUST(drained(queue, &event), 1);
            MUST(snib_lock_acquire_submit(lock, 5, -1, other, 2, NULL, err), SNIB_OK);
            world_sleep(10 * SNIB__MS);
            snib_event again;
            MUST(drained(other, &again), 1);
            if (again.hold != event.hold || again.token != 2)
                world_fail("an owner that comes again gets another hold");
        }
        world_sleep(1500 * SNIB__MS);
        if (!freed) {
            MUST(drained(queue, &event), 1);
            if (event.kind != SNIB_EVENT_DONE || event.code != SNIB_OK || !event.hold)
                world_fail("the loss comes before the grant");
            hold = event.hold;
            MUST(drained(queue, &event), 1);
            if (event.kind != SNIB_EVENT_LOST || event.hold != hold || event.token != 1)
                world_fail("the grant's loss is not reported");
            snib_hold_free(hold);
        } else {
            snib_hold_free(event.hold);
            snib_hold_free(event.hold);
        }
        MUST(drained(queue, &event), 0);
        MUST(drained(other, &event), 0);
    }
    snib_lock_free(lock);
}

/* An owner that re-entered through another queue hears of the loss there too, even if its grant is
 * fetched after that. */
static void late_witness(snib_queue *queue, snib_queue *other)
{
    snib_lock *lock = lock_of(0, "witnessed", 0, 1000);
    snib_event first, again, event;
    MUST(snib_lock_acquire_submit(lock, 5, -1, queue, 1, NULL, err), SNIB_OK);
    next_event(queue, &first);
    MUST(snib_lock_acquire_submit(lock, 5, -1, other, 2, NULL, err), SNIB_OK);
    world_sleep(1500 * SNIB__MS);
    MUST(drained(queue, &event), 1);
    if (event.kind != SNIB_EVENT_LOST || event.token != 1)
        world_fail("the first queue has no event of the loss");
    MUST(drained(other, &again), 1);
    if (again.kind != SNIB_EVENT_DONE || again.code != SNIB_OK || again.hold != first.hold)
        world_fail("the second queue has no grant");
    MUST(drained(other, &event), 1);
    if (event.kind != SNIB_EVENT_LOST || event.token != 2)
        world_fail("the second queue has no event of the loss");
    MUST(drained(other, &event), 0);
    snib_hold_free(first.hold);
    snib_hold_free(again.hold);
    snib_lock_free(lock);
}

static struct late {
    snib_queue *queue;
    snib_lock *lock;
    snib_hold *hold;
} late;

static void reading_caller(void *argument)
{
    (void)argument;
    MUST(snib_client_ping(clients[0], -1, err), SNIB_OK);
    running--;
}

static void late_caller(void *argument)
{
    snib_op *op;
    (void)argument;
    MUST(snib_lock_acquire_begin(late.lock, 5, -1, LONG_MS, late.queue, 1, &late.hold, &op, err),
         SNIB_OK);
    running--;
}

/* Another thread reads a caller's grant, and the hold is lost before the caller has it: its queue is told after that,
 * with the hold.  A re-entry through another queue that is fetched before changes nothing. */
static void late_grant(snib_queue *queue, snib_queue *other)
{
    snib_event event, again;
    for (int entered = 0; entered < 2; entered++) {
        late = (struct late){.queue = queue, .lock = lock_of(0, "late", entered, 1000)};
        world.silent = true;
        running = 2;
        world_thread("reader", reading_caller, NULL);
        world_sleep(5 * SNIB__MS);
        world_thread("late", late_caller, NULL);
        world_sleep(5 * SNIB__MS);
        world_freeze("late", 3000 * SNIB__MS);
        world.silent = false;
        world_sleep(200 * SNIB__MS);
        if (entered) {
            MUST(snib_lock_acquire_submit(late.lock, 5, -1, other, 2, NULL, err), SNIB_OK);
            MUST(drained(other, &again), 1);
            MUST(again.code, SNIB_OK);
        }
        world_sleep(1500 * SNIB__MS);
        if (late.hold || drained(queue, &event) != 0)
            world_fail("the loss is told before the caller has the hold");
        if (entered) {
            MUST(drained(other, &event), 1);
            if (event.kind != SNIB_EVENT_LOST || event.hold != again.hold || event.token != 2)
                world_fail("the second queue has no event of the loss");
        }
        world_stay(nobody_runs, NULL);
        if (!world_readable(snib_queue_fd(queue, NULL), 0))
            world_fail("the queue does not tell of the loss");
        MUST(drained(queue, &event), 1);
        if (event.kind != SNIB_EVENT_LOST || event.hold != late.hold || event.token != 1)
            world_fail("the loss is reported without the hold");
        MUST(drained(queue, &event), 0);
        MUST(snib_hold_release(late.hold, err), SNIB_LOST);
        snib_hold_free(late.hold);
        if (entered)
            snib_hold_free(again.hold);
        snib_lock_free(late.lock);
    }
}

/* Freeing a hold whose loss was reported drops no other event that is still to be reported. */
static void two_losses(snib_queue *queue)
{
    snib_lock *locks[2];
    snib_event event;
    for (int i = 0; i < 2; i++) {
        locks[i] = lock_of(0, "two", i, 1000);
        MUST(snib_lock_acquire_submit(locks[i], 0, -1, queue, 1, NULL, err), SNIB_OK);
        next_event(queue, &event);
        MUST(snib_hold_check(event.hold, err), SNIB_OK);
    }
    world_sleep(1500 * SNIB__MS);
    for (int i = 0; i < 2; i++) {
        MUST(drained(queue, &event), 1);
        if (event.kind != SNIB_EVENT_LOST)
            world_fail("event %d in place of a loss", event.kind);
        snib_hold_free(event.hold);
        snib_lock_free(locks[i]);
    }
    MUST(drained(queue, &event), 0);
}

/* The reason of a loss, whichever call notices it. */
static void reasons(void)
{
    snib_lock *lock = lock_of(0, "lost", 0, 0), *brief = lock_of(0, "brief", 1, 1000);
    snib_hold *hold;
    snib_error why = {0};
    MUST(snib_lock_acquire(lock, 0, -1, &hold, err), SNIB_OK);
    model_delete(world.server, 0, "lost:0", 6);
    if (snib_hold_release(hold, &why) != SNIB_LOST || why.reason != SNIB_REASON_DELETED)
        world_fail("a release of an ended hold reports reason %d", (int)why.reason);
    snib_hold_free(hold);
    MUST(snib_lock_acquire(brief, 0, -1, &hold, err), SNIB_OK);
    world_sleep(1500 * SNIB__MS);
    if (snib_hold_release(hold, &why) != SNIB_LOST || why.reason != SNIB_REASON_EXPIRED)
        world_fail("a release after the end reports reason %d", (int)why.reason);
    snib_hold_free(hold);
    /* A waiter for the loss is woken by the clock, and may be the first to see it. */
    int32_t reason = SNIB_REASON_NONE;
    MUST(snib_lock_acquire(brief, 0, -1, &hold, err), SNIB_OK);
    world_freeze("snib", 3000 * SNIB__MS);
    MUST(snib_hold_wait(hold, LONG_MS, &reason, err), SNIB_LOST);
    if (reason != SNIB_REASON_EXPIRED)
        world_fail("waiting for the end gave reason %d", (int)reason);
    snib_hold_free(hold);
    world_sleep(3000 * SNIB__MS);
    snib_lock_free(lock);
    snib_lock_free(brief);
}

static void corked_events(snib_queue *queue, int n)
{
    snib_event event;
    while (n-- > 0) {
        next_event(queue, &event);
        if (event.code != SNIB_OK)
            world_fail("the corked command gave %s", snib_code_name(event.code));
        snib_hold_free(event.hold);
    }
}

/* Submissions to a corked queue are collected until the uncork; later ones are not. */
static void corks(snib_queue *queue)
{
    snib_lock *locks[3];
    for (int i = 0; i < 3; i++)
        locks[i] = lock_of(0, "corked", i, 0);
    world_sleep(100 * SNIB__MS); /* without other traffic, whose writes would include it */
    const uint64_t writes = drivers[0]->writes;
    MUST(snib_queue_cork(queue), SNIB_OK);
    for (int i = 0; i < 2; i++)
        MUST(snib_lock_acquire_submit(locks[i], 0, -1, queue, 1, NULL, err), SNIB_OK);
    if (drivers[0]->writes != writes)
        world_fail("corked commands are sent one by one");
    MUST(snib_queue_uncork(queue), SNIB_OK);
    corked_events(queue, 2);
    int fd = snib_queue_fd(queue, NULL);
    world_sleep(100 * SNIB__MS);
    MUST(snib_lock_acquire_submit(locks[2], 0, -1, queue, 1, NULL, err), SNIB_OK);
    snib_event event;
    /* The consumer sleeps: a drain would send what is collected, and so would the thread, later. */
    if (!world_readable(fd, CORKED_MAX / 2) || !event_within(queue, &event, CORKED_MAX))
        world_fail("an uncorked command is not sent");
    MUST(snib_hold_release(event.hold, err), SNIB_OK);
    snib_hold_free(event.hold);
    for (int i = 0; i < 3; i++)
        snib_lock_free(locks[i]);
}

/* A consumer that corks its queue, and then is busy with something else for longer than any request takes: the thread
 * sends what is collected. */
static void corked_for_long(snib_queue *queue)
{
    snib_lock *lock = lock_of(0, "corked long", 0, 0);
    snib_event event;
    snib_hold *hold;
    world_sleep(100 * SNIB__MS); /* the thread sleeps without end */
    MUST(snib_queue_cork(queue), SNIB_OK);
    MUST(snib_lock_acquire_submit(lock, 0, 0, queue, 1, NULL, err), SNIB_OK);
    world_sleep(10000 * SNIB__MS);
    MUST(snib_queue_drain(queue, &event, 1, err), 1);
    if (event.code != SNIB_OK)
        world_fail("a corked acquire of a free lock gave %s", snib_code_name(event.code));
    MUST(snib_hold_release_submit(event.hold, queue, 2, NULL, err), SNIB_OK);
    world_sleep(10000 * SNIB__MS);
    MUST(snib_lock_acquire(lock, 0, 0, &hold, err), SNIB_OK);
    MUST(snib_hold_release(hold, err), SNIB_OK);
    snib_hold_free(hold);
    snib_hold_free(event.hold);
    MUST(snib_queue_uncork(queue), SNIB_OK);
    corked_events(queue, 1);
    snib_lock_free(lock);
}

/* If there are more events than one call returns, each is reported once. */
static void many_events(snib_queue *queue)
{
    enum { MANY = 150 };
    static snib_event events[MANY];
    snib_op *op;
    uint64_t sum = 0;
    int n, all = 0;
    for (uint64_t i = 0; i < MANY; i++) {
        snib_lock *lock = lock_of(0, "many", (int)i, 0);
        MUST(snib_lock_acquire_submit(lock, 0, -1, queue, i, &op, err), SNIB_OK);
        snib_lock_free(lock);
    }
    world_sleep(500 * SNIB__MS);
    while ((n = snib_queue_drain(queue, events, MANY, NULL)) > 0) {
        if (n > 64)
            world_fail("%d events at once", n);
        for (int i = 0; i < n; i++) {
            sum += events[i].token;
            snib_hold_free(events[i].hold);
        }
        all += n;
    }
    if (all != MANY || sum != MANY * (MANY - 1) / 2)
        world_fail("%d events", all);
}

static snib_queue *consumed;

static void consumer(void *argument)
{
    snib_event event;
    (void)argument;
    MUST(snib_queue_wait(consumed, &event, 1, 1000, err), 0);
    running--;
}

static void one_consumer(snib_queue *queue)
{
    snib_event event;
    consumed = queue;
    running = 1;
    world_thread("consumer", consumer, NULL);
    world_sleep(100 * SNIB__MS);
    MUST(snib_queue_drain(queue, &event, 1, err), SNIB_EINUSE);
    MUST(snib_queue_wait(queue, &event, 1, 0, err), SNIB_EINUSE);
    world_stay(nobody_runs, NULL);
    MUST(snib_queue_drain(queue, &event, 1, err), 0);
}

static void patient_consumer(void *argument)
{
    snib_event event;
    int n;
    while ((n = snib_queue_wait(argument, &event, 1, LONG_MS, NULL)) != SNIB_EHANDLE)
        if (n == SNIB_EINUSE)
            world_sleep(SNIB__MS / 1000);
    running--;
}

/* The free of a queue ends the wait of whoever waits then, also if another one has just been woken by it. */
static void freed_queue(void)
{
    for (int i = 0; i < 20; i++) {
        snib_queue *queue;
        MUST(snib_queue_new(clients[0], &queue, err), SNIB_OK);
        running = 2;
        world_thread("first", patient_consumer, queue);
        world_thread("second", patient_consumer, queue);
        world_sleep(SNIB__MS / 10 + world_draw(1000) * SNIB__MS / 10000);
        snib__time freed = world.now;
        snib_queue_free(queue);
        world_stay(nobody_runs, NULL);
        if (world.now > freed + LONG_MS * SNIB__MS / 2)
            world_fail("a consumer waits for a queue that was freed");
    }
}

/* A queue belongs to its client: no operation of another client may use it. */
static void strange_queue(snib_queue *strange)
{
    snib_lock *lock = lock_of(0, "mine", 0, 0);
    snib_hold *hold, *other;
    snib_op *op;
    MUST(snib_lock_acquire_submit(lock, 0, -1, strange, 1, NULL, err), SNIB_EINVAL);
    MUST(snib_lock_acquire(lock, 0, 0, &hold, err), SNIB_OK);
    MUST(snib_hold_release_submit(hold, strange, 1, NULL, err), SNIB_EINVAL);
    MUST(snib_hold_check(hold, err), SNIB_OK);
    /* With a queue, begin returns as soon as the request waits. */
    snib_queue *queue;
    snib_event event;
    MUST(snib_queue_new(clients[0], &queue, err), SNIB_OK);
    snib__time since = world.now;
    MUST(snib_lock_acquire_begin(lock, 0, -1, 5000, queue, 1, &other, &op, err), SNIB_AGAIN);
    if (world.now - since > 100 * SNIB__MS)
        world_fail("begun after %.3f s", (double)(world.now - since) / 1e9);
    MUST(snib_hold_release(hold, err), SNIB_OK);
    snib_hold_free(hold);
    next_event(queue, &event);
    snib_hold_free(event.hold);
    snib_queue_free(queue);
    snib_lock_free(lock);
}

/* A grant of an owner's hold that is never fetched is given back alone: the other users of the hold
 * keep it as it was, release it once, and hear of its loss where they asked to. */
static void shared_hold(snib_queue *queue)
{
    snib_lock *lock = lock_of(0, "shared", 0, 0);
    snib_hold *hold, *none;
    snib_event event;
    for (int way = 0; way < 4;
         way++) { /* acquired with or without the other queue, released or lost */
        snib_queue *forgotten;
        MUST(snib_queue_new(clients[0], &forgotten, err), SNIB_OK);
        if (way & 1) {
            MUST(snib_lock_acquire_submit(lock, 5, -1, queue, 1, NULL, err), SNIB_OK);
            next_event(queue, &event);
            hold = event.hold;
        } else {
            MUST(snib_lock_acquire(lock, 5, -1, &hold, err), SNIB_OK);
        }
        MUST(snib_lock_acquire_submit(lock, 5, -1, forgotten, 1, NULL, err), SNIB_OK);
        world_sleep(20 * SNIB__MS);
        snib_queue_free(forgotten);
        MUST(snib_hold_check(hold, err), SNIB_OK);
        MUST(snib_lock_acquire(lock, 6, 0, &none, err), SNIB_BUSY);
        if (way & 2) {
            model_delete(world.server, 0, "shared:0", 8);
            MUST(snib_hold_wait(hold, LONG_MS, NULL, err), SNIB_LOST);
        } else {
            MUST(snib_hold_release(hold, err), SNIB_OK);
            MUST(snib_lock_acquire(lock, 6, 0, &none, err), SNIB_OK);
            snib_hold_free(none);
        }
        MUST(drained(queue, &event), way == 3);
        snib_hold_free(hold);
        world_sleep(20 * SNIB__MS);
    }
    snib_lock_free(lock);
}

/* A hold outlives the queue through which it was acquired, and does not point to it any more. */
static void orphaned_hold(void)
{
    snib_lock *lock = lock_of(0, "orphan", 0, 0);
    snib_queue *queue;
    snib_event event;
    MUST(snib_queue_new(clients[0], &queue, err), SNIB_OK);
    MUST(snib_lock_acquire_submit(lock, 0, -1, queue, 1, NULL, err), SNIB_OK);
    next_event(queue, &event);
    snib_queue_free(queue);
    const struct snib__hold *hold = snib__handle_get(SNIB__HOLD, event.hold);
    snib__handle_put(event.hold);
    if (hold->sink)
        world_fail("a hold points to a freed queue");
    MUST(snib_hold_check(event.hold, err), SNIB_OK);
    model_delete(world.server, 0, "orphan:0", 8);
    MUST(snib_hold_wait(event.hold, LONG_MS, NULL, err), SNIB_LOST);
    snib_hold_free(event.hold);
    snib_lock_free(lock);
}

static void op_waiter(void *argument)
{
    snib_event event = {.size = sizeof event};
    MUST(snib_op_wait(argument, -1, &event, err), SNIB_OK);
    if (event.code != SNIB_CANCELLED)
        world_fail("the operation gave %s", snib_code_name(event.code));
    running--;
}

/* An operation that is freed is cancelled; a thread that waits for it gets the result. */
static void freed_operations(void)
{
    snib_lock *lock = lock_of(0, "freed", 0, 0);
    snib_hold *hold, *other;
    snib_event event = {.size = sizeof event};
    snib_op *op;
    MUST(snib_lock_acquire(lock, 0, -1, &hold, err), SNIB_OK);
    MUST(snib_lock_acquire_begin(lock, 0, -1, 0, NULL, 1, &other, &op, err), SNIB_AGAIN);
    running = 1;
    world_thread("waiter", op_waiter, op);
    world_sleep(50 * SNIB__MS);
    MUST(snib_op_wait(op, 0, &event, err), SNIB_EINUSE);
    snib_op_free(op);
    world_stay(nobody_runs, NULL);
    MUST(snib_op_wait(op, 0, &event, err), SNIB_EHANDLE);
    uint64_t memory = 0;
    for (int i = 0; i < 300; i++) {
        snib_client_stats_data stats = {.size = sizeof stats};
        MUST(snib_lock_acquire_begin(lock, 0, -1, 0, NULL, 1, &other, &op, err), SNIB_AGAIN);
        snib_op_free(op);
        world_sleep(SNIB__MS);
        MUST(snib_client_stats(clients[0], &stats, err), SNIB_OK);
        memory = i == 10 ? stats.memory : memory;
        if (stats.waiting != 0 || (i > 10 && stats.memory > memory))
            world_fail("operations that were freed are left");
    }
    MUST(snib_hold_release(hold, err), SNIB_OK);
    snib_hold_free(hold);
    /* A grant that was not fetched is given back with it. */
    MUST(snib_lock_acquire_begin(lock, 0, -1, 0, NULL, 1, &other, &op, err), SNIB_AGAIN);
    world_sleep(50 * SNIB__MS);
    MUST(snib_lock_acquire(lock, 0, 0, &hold, err), SNIB_BUSY);
    snib_op_free(op);
    world_sleep(50 * SNIB__MS);
    MUST(snib_lock_acquire(lock, 0, 0, &hold, err), SNIB_OK);
    snib_hold_free(hold);
    snib_lock_free(lock);
}

/* A waiter in another process hears of the release by its message. */
static void message(void)
{
    snib_lock *ours = lock_of(0, "told", 0, 0), *theirs = lock_of(1, "told", 0, 0);
    snib_queue *queue;
    snib_event event;
    snib_hold *hold;
    MUST(snib_queue_new(clients[1], &queue, err), SNIB_OK);
    for (int i = 0; i < 3; i++) {
        MUST(snib_lock_acquire(ours, 0, -1, &hold, err), SNIB_OK);
        MUST(snib_lock_acquire_submit(theirs, 0, -1, queue, 1, NULL, err), SNIB_OK);
        world_sleep(100 * SNIB__MS);
        MUST(snib_hold_release(hold, err), SNIB_OK);
        snib_hold_free(hold);
        if (!event_within(queue, &event, 50 * SNIB__MS))
            world_fail("the release wakes no waiter");
        MUST(snib_hold_release(event.hold, err), SNIB_OK);
        snib_hold_free(event.hold);
    }
    snib_queue_free(queue);
    snib_lock_free(ours);
    snib_lock_free(theirs);
}

void queue_rules(void *argument)
{
    snib_queue *queue, *other, *strange;
    (void)argument;
    for (int i = 0; i < 2; i++) {
        open_client_at("redis://name.test", LONG_MS, 0);
        connect_client();
    }
    MUST(snib_queue_new(clients[0], &queue, err), SNIB_OK);
    MUST(snib_queue_new(clients[0], &other, err), SNIB_OK);
    MUST(snib_queue_new(clients[1], &strange, err), SNIB_OK);
    grants_and_losses(queue, other);
    late_grant(queue, other);
    two_losses(queue);
    late_witness(queue, other);
    reasons();
    corks(queue);
    corked_for_long(queue);
    many_events(queue);
    one_consumer(queue);
    freed_queue();
    strange_queue(strange);
    shared_hold(queue);
    orphaned_hold();
    freed_operations();
    message();
    snib_queue_free(strange);
    snib_queue_free(other);
    snib_queue_free(queue);
    while (clients_n > 0)
        close_client();
    expect_nothing_left();
}
