/* story_turns.c - one lock after the other: wake-ups, hand-overs, and many holds in one process. */
#include "stories.h"

#include <stdio.h>
#include <string.h>

/* A lost message of the client's own release is not expected for ever: the next one is another
 * client's. */
static void lost_message(void)
{
    begin_world();
    struct actor *a = new_actor(), *b = new_actor();
    struct waiter *first = wait_for(b, SNIB_MUTEX, "orders");
    struct waiter *ours = wait_for(a, SNIB_MUTEX, "orders");
    release(first);
    expect(ours->code == SNIB_OK, "the waiter was not notified");
    model_set_faults(server, MODEL_MUTE);
    release(ours);
    model_set_faults(server, 0);
    struct waiter *theirs = wait_for(b, SNIB_MUTEX, "orders");
    run_for(SECOND / 10); /* it has given way to the listener */
    expect(theirs->code == SNIB_OK, "a subscriber that does not wait keeps others waiting");
    struct waiter *waits = wait_for(a, SNIB_MUTEX, "orders");
    run_for(4 * SECOND);
    release(theirs);
    expect(waits->code == SNIB_OK, "a message of another was taken for our own");
    release(waits);
    end_world();
}

static void allow_channels(void *context, uint64_t connection, const model_text *argv, size_t argc)
{
    (void)context, (void)connection, (void)argc;
    if (argv[0].n == 9 && memcmp(argv[0].p, "SUBSCRIBE", 9) == 0) {
        model_set_faults(server, 0);
    }
}

/* A refusal does not say which subscription it is about: the one that was not refused must be
 * kept. */
static void one_refusal(void)
{
    begin_world();
    struct actor *a = new_actor(), *b = new_actor();
    struct waiter *held[] = {wait_for(b, SNIB_MUTEX, "orders"), wait_for(b, SNIB_MUTEX, "stock")};
    a->deaf = true;
    struct waiter *waits[] = {wait_for(a, SNIB_MUTEX, "orders"), wait_for(a, SNIB_MUTEX, "stock")};
    model_set_faults(server, MODEL_NO_CHANNELS);
    model_watch(server, allow_channels, NULL);
    a->deaf = false;
    run_for(SECOND / 10);
    expect(model_channel_count(server) == 1, "not one of two subscriptions was refused");
    for (int i = 0; i < 2; i++) {
        release(held[i]);
        run_for(SECOND);
        expect(waits[i]->code == SNIB_OK, "a waiter was not notified");
        release(waits[i]);
    }
    run_for(2 * SECOND);
    expect(model_channel_count(server) == 0, "a subscription was left behind");
    end_world();
}

/* A hand-over that may have worked is taken back, although its target has left meanwhile. */
static void doubtful_hand_over(void)
{
    begin_world();
    struct actor *a = new_actor(), *b = new_actor();
    struct waiter *holder = wait_for(a, SNIB_MUTEX, "orders");
    struct waiter *next = wait_for(a, SNIB_MUTEX, "orders");
    a->stopped = true;
    release(holder);
    lose_answers(a);
    run_for(SECOND / 10); /* the repeated request has a lease to extend */
    model_set_faults(server, MODEL_MISCONF);
    a->stopped = false;
    cancel(next);
    run_for(SECOND);
    model_set_faults(server, 0);
    run_for(2 * SECOND);
    struct waiter *other = wait_for(b, SNIB_MUTEX, "orders");
    run_for(SECOND);
    expect(other->code == SNIB_OK, "the lock stays with a waiter that has left");
    end_world();
}

/* A single try while a release of the same process is in flight: the server is asked, after the
 * release. */
static void try_beside_release(void)
{
    begin_world();
    struct actor *a = new_actor();
    struct waiter *holder = wait_for(a, SNIB_MUTEX, "orders");
    a->stopped = true;
    release(holder);
    struct waiter *once = acquire(a, SNIB_MUTEX, "orders", 6, (struct snib__acquire){0});
    a->stopped = false;
    settle();
    expect(once->code == SNIB_OK, "a lock that is given back is called busy");
    release(once);
    expect_nothing_left();
    end_world();
}

/* A lost hold is given back once its holder drops it, whatever is left of its lease; a forgotten
 * one may still have a user that relies on it. */
static void done_with_the_lost(void)
{
    for (int forgotten = 0; forgotten < 2; forgotten++) {
        begin_world();
        struct actor *a = new_actor(), *b = new_actor();
        struct snib__acquire how = {.wait = SNIB__NEVER, .max_hold = SECOND};
        struct waiter *held = acquire(a, SNIB_MUTEX, "orders", 6, how);
        struct waiter *next = wait_for(b, SNIB_MUTEX, "orders");
        run_for(2 * SECOND);
        expect(snib__hold_state(a->engine, held->hold, now) == SNIB_HOLD_LOST,
               "a hold is longer than it may be");
        expect(next->code == SNIB_AGAIN, "a lock that its holder may still rely on was given away");
        if (forgotten) {
            snib__hold_abandon(a->engine, held->hold, now);
        }
        snib__hold_drop(a->engine, held->hold, now);
        run_for(SECOND / 10);
        expect(next->code == (forgotten ? SNIB_AGAIN : SNIB_OK), "the next waiter got %s",
               snib_code_name(next->code));
        run_for(LEASE);
        expect(next->code == SNIB_OK, "a lease does not end");
        release(next);
        expect_nothing_left();
        end_world();
    }
}

/* A client that may not ask for the server's run id accepts the vote's epoch as it finds it: it
 * must not make clients that know the run id doubt it again and again. */
static void unknown_run(void)
{
    begin_world();
    struct snib__acquire vote = {.wait = 0, .vote_ms = LEASE / SNIB__MS};
    struct actor *blind = new_actor(), *sees = new_actor();
    model_set_faults(server, MODEL_NO_INFO);
    acquire(blind, SNIB_MUTEX, "orders", 6, vote);
    model_set_faults(server, 0);
    snib__time begun = now;
    int had[2] = {0, 0};
    while (now < begun + 3 * LEASE) {
        struct actor *actors_in_turn[] = {blind, sees};
        for (int i = 0; i < 2; i++) {
            struct waiter *waiter = acquire(actors_in_turn[i], SNIB_MUTEX, "orders", 6, vote);
            run_for(SECOND / 2);
            if (waiter->code == SNIB_OK) {
                had[i]++;
                release(waiter);
            }
        }
    }
    expect(had[0] > 10 && had[1] > 10, "the node has voted %d and %d times", had[0], had[1]);
    end_world();
}

static void lone_spinner(void)
{
    begin_world();
    struct waiter *holder = wait_for(new_actor(), SNIB_SPIN, "orders");
    struct waiter *waiting = wait_for(new_actor(), SNIB_SPIN, "orders");
    run_for(2 * SECOND);
    uint64_t before = model_requests(server);
    run_for(10 * SECOND);
    uint64_t asked = model_requests(server) - before;
    expect(asked < 200, "a spinning waiter asked %llu times in 10 s", (unsigned long long)asked);
    snib__time released = now;
    release(holder);
    run_for(SECOND);
    expect(waiting->code == SNIB_OK && waiting->ended < released + SECOND / 4,
           "a spinning waiter came in late");
    end_world();
}

static void count_batch(void *context, uint64_t connection, const model_text *argv, size_t argc)
{
    (void)connection;
    (void)argv;
    *(int *)context += argc > 200; /* a name and an owner for each of a hundred holds */
}

static void expect_all_held(const struct waiter *first, int count)
{
    for (int i = 0; i < count; i++) {
        const struct waiter *waiter = first + i;
        int state = waiter->hold == NULL
                        ? SNIB_HOLD_RELEASED
                        : snib__hold_state(waiter->actor->engine, waiter->hold, now);
        expect(state == SNIB_HOLD_VALID, "lock %d of %d is in state %d", i, count, state);
    }
}

/* One process has more holds than fit into one renewal.  All stay held over many leases; those that
 * the server has lost are detected, wherever they are in a batch, and no others are. */
static void many_holds(void)
{
    enum { MANY = 350 };
    begin_world();
    int batches = 0;
    struct actor *holder = new_actor();
    struct waiter *first = &waiters[waiter_count];
    char name[16];
    for (int i = 0; i < MANY; i++) {
        snprintf(name, sizeof name, "lock %d", i);
        wait_for(holder, SNIB_MUTEX, name);
        now += (snib__time)i % 7 * SNIB__MS;
        model_time(server, EPOCH_NS + now);
    }
    model_watch(server, count_batch, &batches);
    for (int leases = 0; leases < 5; leases++) {
        run_for(LEASE);
        expect_all_held(first, MANY);
    }
    expect(batches >= 5 * 3 * 2, "only %d renewals of a hundred holds", batches);
    for (int i = 0; i < MANY; i += 49) {
        snprintf(name, sizeof name, "lock %d", i);
        model_delete(server, 0, name, strlen(name));
    }
    run_for(LEASE / 3 + SECOND);
    for (int i = 0; i < MANY; i++) {
        const struct snib__hold *hold = first[i].hold;
        int state = snib__hold_state(holder->engine, hold, now);
        expect(state == (i % 49 ? SNIB_HOLD_VALID : SNIB_HOLD_LOST), "lock %d is in state %d", i,
               state);
        expect(i % 49 || snib__hold_reason(hold, now) == SNIB_REASON_DELETED, "lock %d is lost: %s",
               i, snib_reason_text(snib__hold_reason(hold, now)));
    }
    lose_answers(holder); /* which batches were executed is unknown */
    run_for(LEASE);
    for (int i = 0; i < MANY; i++) {
        int state = snib__hold_state(holder->engine, first[i].hold, now);
        expect(state == (i % 49 ? SNIB_HOLD_VALID : SNIB_HOLD_LOST), "lock %d is in state %d", i,
               state);
        if (i % 49) {
            release(&first[i]);
        } else {
            snib__hold_drop(holder->engine, first[i].hold, now);
        }
    }
    expect_nothing_left();
    end_world();
}

const struct story stories_turns[] = {
    {"lost message", lost_message},
    {"one refusal", one_refusal},
    {"doubtful hand-over", doubtful_hand_over},
    {"try beside release", try_beside_release},
    {"done with the lost", done_with_the_lost},
    {"unknown run", unknown_run},
    {"lone spinner", lone_spinner},
    {"many holds", many_holds},
    {NULL, NULL},
};
