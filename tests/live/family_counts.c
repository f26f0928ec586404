/* family_counts.c - how many commands each kind of lock costs.  No clock is read: the figures hold on any
 * machine.
 */
#include "../support/kinds.h"

#include <pthread.h>
#include <stdio.h>

enum { PAIRS = 300, RECHECK_MS = 60000, TRIES = 10 };

static int world_new(void **state)
{
    kinds_open(*state, (struct kinds_options){.recheck_ms = RECHECK_MS});
    return 0;
}

static int world_free(void **state)
{
    kinds_close(*state);
    return 0;
}

static uint64_t commands_of(snib_client *client)
{
    return must_stats(client).commands;
}

/* What some pairs cost; `each` does one. */
static snib_client_stats_data cost_of(snib_client *client, void (*each)(snib_lock *),
                                      snib_lock *lock)
{
    snib_client_stats_data before = must_stats(client);
    for (int i = 0; i < PAIRS; i++)
        each(lock);
    snib_client_stats_data after = must_stats(client);
    after.commands -= before.commands;
    after.writes -= before.writes;
    after.reads -= before.reads;
    after.wakes -= before.wakes;
    after.acquisitions -= before.acquisitions;
    return after;
}

static void lock_and_unlock(snib_lock *lock)
{
    must_release(must_acquire(lock, -1));
}

/* Without contention: one command to acquire, one to release, and no thread is woken.  On a slow
 * machine the client asks the server for its time in between: the best of several tries counts. */
static void alone(void **state)
{
    struct kinds_world *world = *state;
    for (EACH_KIND(world, pair)) {
        /* where the server has commands for it, a plain release is two of them, without a script */
        uint64_t most = pair->kind->kind == SNIB_PLAIN ? 3 : 2;
        snib_client_stats_data cost;
        bool exact = false;
        for (int tries = 0; !exact && tries < TRIES; tries++) {
            cost = cost_of(world->ours, lock_and_unlock, pair->ours);
            exact = cost.commands <= most * PAIRS && cost.writes == 2 * PAIRS &&
                    cost.reads == 2 * PAIRS && cost.wakes == 0;
        }
        if (!exact)
            fail_msg("%s: %d commands, %d writes, %d reads, %d wakes for %d pairs",
                     pair->kind->name, (int)cost.commands, (int)cost.writes, (int)cost.reads,
                     (int)cost.wakes, PAIRS);
    }
}

/* A waiter asks, subscribes, asks once more, and is silent; only a fair one sends heartbeats. */
static void waiting_is_silent(void **state)
{
    enum { WAIT_MS = 1200 };
    struct kinds_world *world = *state;
    snib_hold *holds[KINDS];
    for (EACH_KIND(world, pair)) {
        holds[pair - world->pairs] = must_acquire(pair->rival, 0);
        if (pair->kind->traits & TELLS)
            must_submit(pair->ours, -1, world->queue, 0);
    }
    AWAIT(must_stats(world->ours).waiting == KINDS - 1, 1000);
    nap_us(WAIT_MS * 1000);
    snib_client_stats_data stats = must_stats(world->ours);
    int fair = 2; /* rows of the table with one beat per second */
    print_message("          %d re-checks\n", (int)stats.rechecks);
    assert_true(stats.rechecks <= (uint64_t)fair * (WAIT_MS / 750 + 1));
    for (EACH_KIND(world, pair))
        must_release(holds[pair - world->pairs]);
    for (int i = 0; i < KINDS - 1; i++)
        must_release(must_event(world->queue, 2000).hold);
}

struct worker {
    snib_lock *lock;
    int pairs;
};

static void *work(void *argument)
{
    struct worker *worker = argument;
    for (int i = 0; i < worker->pairs; i++)
        must_release(must_acquire(worker->lock, -1));
    return NULL;
}

/* Two processes, several threads each, one fair lock: the release grants it to the next waiter,
 * which need not ask again, so a lock costs a place and a release. */
static void fair_between_processes(void **state)
{
    enum { THREADS = 4 };
    struct kinds_world *world = *state;
    struct pair *pair = &world->pairs[1];
    assert_int_equal(pair->kind->kind, SNIB_FAIR);
    uint64_t before = commands_of(world->ours) + commands_of(world->theirs);
    pthread_t threads[2 * THREADS];
    struct worker ours = {pair->ours, PAIRS}, theirs = {pair->rival, PAIRS};
    for (int i = 0; i < 2 * THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, work, i % 2 ? &theirs : &ours), 0);
    for (int i = 0; i < 2 * THREADS; i++)
        pthread_join(threads[i], NULL);
    uint64_t commands = commands_of(world->ours) + commands_of(world->theirs) - before;
    double each = (double)commands / (2 * THREADS * PAIRS);
    print_message("          %.3f commands a lock\n", each);
    assert_true(each <= 2.1);
}

/* Nothing but the queries of this function is sent for a while. */
static void await_silence(snib_client *client, snib_lock *lock)
{
    for (int quiet = 0; quiet < 5;) {
        uint64_t before = commands_of(client);
        nap_us(5000);
        snib_lock_info_data info = {.size = sizeof info};
        EXPECT(snib_lock_info(lock, &info, err), SNIB_OK);
        quiet = commands_of(client) == before + 1 ? quiet + 1 : 0;
    }
}

/* The first of a crowd has been refused and sleeps; the others wait behind it and have sent
 * nothing. */
static void must_crowd(struct kinds_world *world, struct pair *pair, int n)
{
    must_submit(pair->ours, -1, world->queue, 0);
    AWAIT(must_stats(world->ours).waiting == 1 && server_channels(&world->server) > 0, 2000);
    await_silence(world->ours, pair->ours); /* it asks once more after subscribing */
    uint64_t before = commands_of(world->ours);
    for (int i = 1; i < n; i++)
        must_submit(pair->ours, -1, world->queue, 0);
    assert_int_equal(must_stats(world->ours).waiting, n);
    assert_int_equal(commands_of(world->ours), before);
}

/* A thousand readers behind a writer get in with one command each, and those behind a single permit
 * ask one at a time. */
static void crowd_of_readers(void **state)
{
    enum { CROWD = 1000 };
    struct kinds_world *world = *state;
    struct pair *pair = &world->pairs[3];
    assert_int_equal(pair->kind->kind, SNIB_READ);
    snib_hold *hold = must_acquire(pair->rival, 0);
    static snib_hold *readers[CROWD];
    must_crowd(world, pair, CROWD);
    snib_client_stats_data before = must_stats(world->ours);
    must_release(hold);
    for (int i = 0; i < CROWD; i++)
        assert_non_null(readers[i] = must_event(world->queue, 5000).hold);
    snib_client_stats_data after = must_stats(world->ours);
    int commands = (int)(after.commands - before.commands),
        reads = (int)(after.reads - before.reads);
    print_message("          %d commands, %d reads for %d readers\n", commands, reads, CROWD);
    assert_true(commands <= CROWD + 20);
    assert_true(reads <= CROWD / 5); /* several at once, more with each that gets in */
    for (int i = 0; i < CROWD; i++)
        must_release(readers[i]);
}

static void crowd_at_a_permit(void **state)
{
    enum { CROWD = 500 };
    struct kinds_world *world = *state;
    for (EACH_KIND_THAT(world, pair, COUNTED)) {
        snib_hold *hold = must_acquire(pair->rival, 0);
        must_crowd(world, pair, CROWD);
        uint64_t before = commands_of(world->ours);
        must_release(hold);
        for (int i = 0; i < CROWD; i++)
            must_release(must_event(world->queue, 5000).hold);
        uint64_t commands = commands_of(world->ours) - before;
        print_message("          %s: %d commands for %d holds\n", pair->kind->name, (int)commands,
                      CROWD);
        /* a release, a grant, and two more tries because of it */
        assert_true(commands <= 4 * CROWD + 50);
    }
}

static void twice_at_once(snib_lock *lock)
{
    snib_hold *hold = must_acquire_as(lock, 7, 0);
    assert_ptr_equal(must_acquire_as(lock, 7, 0), hold); /* no command */
    must_release(hold);
    must_release(hold);
}

/* Ten members of one client: one command to acquire, one to release. */
static void multi_of_ten(void **state)
{
    enum { MEMBERS = 10 };
    static const int32_t of[] = {SNIB_MUTEX, SNIB_FENCED, SNIB_SPIN, SNIB_READ, SNIB_WRITE};
    struct kinds_world *world = *state;
    snib_lock *members[MEMBERS], *multi = NULL;
    for (int i = 0; i < MEMBERS; i++) {
        char name[32];
        snprintf(name, sizeof name, "member:%d", i);
        members[i] = must_lock_kind(world->ours, of[i % 5], name);
    }
    EXPECT(snib_multi_new(members, MEMBERS, NULL, &multi, err), SNIB_OK);
    must_release(must_acquire(multi, 0));
    bool exact = false;
    for (int tries = 0; !exact && tries < TRIES; tries++) {
        snib_client_stats_data cost = cost_of(world->ours, twice_at_once, multi);
        assert_int_equal(cost.acquisitions, PAIRS);
        exact = cost.commands == 2 * PAIRS && cost.writes == 2 * PAIRS;
    }
    assert_true(exact);
    for (int i = 0; i < MEMBERS; i++)
        snib_lock_free(members[i]);
    snib_lock_free(multi);
    for (int i = 1; i < MEMBERS; i += 5) /* fenced members count like the others */
        server_do(&world->server, "DEL redisson_lock_token:{member:%d}", i);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, world_new, world_free)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(alone),
        TEST(waiting_is_silent),
        TEST(fair_between_processes),
        TEST(crowd_of_readers),
        TEST(crowd_at_a_permit),
        TEST(multi_of_ten),
    };
    return cmocka_run_group_tests(tests, kinds_server_start, kinds_server_stop);
}
