/* story_fair.c - the fair lock's queue: waiters that die, stop or leave. */
#include "stories.h"

#include <stdlib.h>
#include <string.h>

static void killed_waiters(void)
{
    for (int processes = 1; processes <= 100; processes += 99) {
        begin_world();
        struct waiter *holder = wait_for(new_actor(), SNIB_FAIR, "orders");
        for (int i = 0; i < 100; i++) {
            if (i < processes) {
                new_actor();
            }
            struct waiter *dead = wait_for(&actors[1 + i % processes], SNIB_FAIR, "orders");
            expect(dead->code == SNIB_AGAIN, "there was no queue");
        }
        struct waiter *live = wait_for(new_actor(), SNIB_FAIR, "orders");
        run_for(2 * SECOND);
        for (int i = 0; i < processes; i++) {
            kill_actor(&actors[1 + i]);
        }
        snib__time released = now;
        release(holder);
        run_for(10 * SECOND);
        expect(live->code == SNIB_OK, "behind 100 dead waiters the next one never came in");
        expect(live->ended <= released + 3 * SECOND, "the next one came in after %.3f s",
               (double)(live->ended - released) / 1e9);
        release(live);
        run_for(10 * SECOND);
        expect_nothing_left();
        end_world();
    }
}

static void long_wait(void)
{
    begin_world();
    struct waiter *holder = wait_for(new_actor(), SNIB_FAIR, "orders");
    int first = waiter_count;
    for (int i = 0; i < 5; i++) {
        new_actor();
    }
    for (int i = 0; i < 20; i++) {
        wait_for(&actors[1 + i * 3 % 5], SNIB_FAIR, "orders");
        run_for(SECOND / 10);
    }
    run_for(1200 * SECOND);
    release(holder);
    for (int i = 0; i < 20; i++) {
        run_for(SECOND);
        expect(waiters[first + i].code == SNIB_OK, "waiter %d of 20 is not the next", i + 1);
        release(&waiters[first + i]);
    }
    run_for(10 * SECOND);
    expect_nothing_left();
    end_world();
}

/* A waiter that leaves, in any way, leaves nothing behind. */
static void leavers(void)
{
    begin_world();
    uint64_t random = 1;
    struct waiter *holder = wait_for(new_actor(), SNIB_FAIR, "orders");
    int first = waiter_count;
    for (int i = 0; i < 10; i++) {
        new_actor();
    }
    for (int i = 0; i < 60; i++) {
        random = random * 6364136223846793005U + 1442695040888963407U;
        struct snib__acquire how = {.wait = random >> 62 == 0 ? (random >> 40) % 5000 * SNIB__MS + 1
                                                              : SNIB__NEVER};
        acquire(&actors[1 + i % 10], SNIB_FAIR, "orders", 6, how);
        run_for(SECOND / 20);
    }
    for (int i = 0; i < 60; i += 3) {
        if (waiters[first + i].code == SNIB_AGAIN) {
            cancel(&waiters[first + i]);
        }
    }
    expect(there_is("redisson_lock_queue:{orders}"), "the queue is missing");
    release(holder);
    run_for(SECOND);
    for (int i = 0; i < 10; i++) {
        kill_actor(&actors[1 + i]);
    }
    run_for(LEASE + 620 * SECOND);
    expect_nothing_left();
    end_world();
}

/* A grant that is heard of after the lock has gone to another is void. */
static void late_grant(void)
{
    begin_world();
    struct actor *sleeper = new_actor(), *other = new_actor();
    struct waiter *holder = wait_for(new_actor(), SNIB_FAIR, "orders");
    struct waiter *asleep = wait_for(sleeper, SNIB_FAIR, "orders");
    struct waiter *next = wait_for(other, SNIB_FAIR, "orders");
    run_for(SECOND);
    sleeper->stopped = true;
    release(holder);
    run_for(5 * SECOND);
    expect(next->code == SNIB_OK, "the lock stays with the waiter that does not answer");
    sleeper->stopped = false;
    sleeper->deaf = true;
    run_for(SECOND / 10);
    sleeper->deaf = false;
    run_for(SECOND / 10);
    expect(asleep->code == SNIB_AGAIN, "two hold the lock");
    release(next);
    run_for(SECOND);
    expect(asleep->code == SNIB_OK, "the waiter that slept is not the next");
    release(asleep);
    end_world();
}

/* Fair and fenced: a waiter that was granted the lock without a token asks for one. */
static void lost_counter(void)
{
    for (int apart = 0; apart < 2; apart++) {
        begin_world();
        struct actor *a = new_actor(), *b = new_actor();
        struct snib__acquire how = {.wait = SNIB__NEVER, .options = SNIB_LOCK_FENCED};
        struct waiter *holder = acquire(a, SNIB_FAIR, "orders", 6, how);
        struct waiter *next = acquire(apart ? b : a, SNIB_FAIR, "orders", 6, how);
        run_for(SECOND / 10);
        model_delete(server, 0, "redisson_lock_token:{orders}", 28);
        release(holder);
        run_for(SECOND / 10);
        expect(next->code == SNIB_OK, "the next waiter was not notified");
        expect(next->hold->fencing > 0, "a fenced lock has no token");
        release(next);
        end_world();
    }
}

static void expect_place(size_t index)
{
    model_text owner, score;
    expect(model_field_at(server, 0, "redisson_lock_timeout:{orders}", 30, index, &owner, &score),
           "place %zu has no waiter", index);
    double ends = strtod(score.p, NULL) * 1e6;
    double left = (ends - (double)(EPOCH_NS + now + (uint64_t)step_ns)) / 1e9;
    expect(left > 1 && left < 5.5, "place %zu ends in %.3f s", index, left);
}

/* A waiter's place is kept alive by as much as the time that passes. */
static void kept_places(void)
{
    begin_world();
    wait_for(new_actor(), SNIB_FAIR, "orders");
    wait_for(new_actor(), SNIB_FAIR, "orders");
    for (int i = 0; i < 20; i++) {
        run_for(SECOND);
        expect_place(0);
    }
    end_world();
}

/* The server's clock is set back: waiters keep their places, and so do those that come later. */
static void clock_set_back(void)
{
    begin_world();
    wait_for(new_actor(), SNIB_FAIR, "orders");
    struct waiter *before = wait_for(new_actor(), SNIB_FAIR, "orders");
    run_for(2 * SECOND);
    step_ns = -(int64_t)(1800 * SECOND);
    run_for(SECOND / 100);
    struct waiter *after = wait_for(new_actor(), SNIB_FAIR, "orders");
    for (int i = 0; i < 10; i++) {
        run_for(SECOND);
        expect_place(0);
        expect_place(1);
    }
    cancel(before);
    cancel(after);
    step_ns = -(int64_t)(3600 * SECOND);
    run_for(SECOND / 100);
    wait_for(before->actor, SNIB_FAIR, "orders");
    for (int i = 0; i < 10; i++) {
        run_for(SECOND);
        expect_place(0);
    }
    end_world();
}

/* The queue or its places are gone, as after a move of their slot that was given up: who waits
 * queues again, and what a dead waiter had does not stay. */
static void half_a_queue(void)
{
    static const char *const halves[] = {"redisson_lock_queue:{orders}",
                                         "redisson_lock_timeout:{orders}"};
    for (int half = 0; half < 2; half++) {
        begin_world();
        struct waiter *holder = wait_for(new_actor(), SNIB_FAIR, "orders");
        struct waiter *dead = wait_for(new_actor(), SNIB_FAIR, "orders");
        struct waiter *early = wait_for(new_actor(), SNIB_FAIR, "orders");
        kill_actor(dead->actor);
        model_delete(server, 0, halves[half], strlen(halves[half]));
        run_for(2 * SECOND);
        struct waiter *late = wait_for(new_actor(), SNIB_FAIR, "orders");
        release(holder);
        run_for(SECOND / 10);
        expect(early->code == SNIB_OK, "without %s, a waiter lets others pass", halves[half]);
        release(early);
        run_for(SECOND / 10);
        expect(late->code == SNIB_OK, "without %s, the lock stays free", halves[half]);
        release(late);
        expect_nothing_left();
        end_world();
    }
}

/* A process stands still for longer than its silence is forgiven, and nobody passes it meanwhile: its waiters keep
 * their order.  A process that asks meanwhile gets ahead of them. */
static void stopped_queue(void)
{
    for (int rival = 0; rival < 2; rival++) {
        begin_world();
        struct waiter *holder = wait_for(new_actor(), SNIB_FAIR, "orders"), *waits[6];
        struct actor *actor = new_actor();
        for (int i = 0; i < 5; i++) {
            waits[i] = wait_for(actor, SNIB_FAIR, "orders");
            run_for(SECOND / 10);
        }
        run_for(2 * SECOND);
        actor->stopped = true;
        run_for(6 * SECOND);
        struct waiter *other = rival ? wait_for(new_actor(), SNIB_FAIR, "orders") : NULL;
        run_for(SECOND / 100);
        actor->stopped = false;
        waits[5] = wait_for(actor, SNIB_FAIR, "orders");
        run_for(2 * SECOND);
        release(holder);
        run_for(SECOND / 10);
        if (other) {
            expect(other->code == SNIB_OK, "it waits behind those of a process that was silent");
            release(other);
        }
        for (int i = 0; i < 6; i++) {
            run_for(SECOND / 10);
            bool next = waits[i]->code == SNIB_OK;
            expect(next || rival, "waiter %d of 6 is not the next", i + 1);
            if (next) {
                release(waits[i]);
            }
        }
        end_world();
    }
}

/* A waiter whose subscription never comes about is not passed over for ever, and finds its grant within a beat.  If it dies
 * instead, that costs the others a first lease, and one only. */
static void deaf_waiter(void)
{
    begin_world();
    struct actor *deaf = new_actor();
    deaf->deaf = true;
    struct waiter *holder = wait_for(new_actor(), SNIB_FAIR, "orders");
    struct waiter *waits = wait_for(deaf, SNIB_FAIR, "orders");
    struct waiter *next = wait_for(new_actor(), SNIB_FAIR, "orders");
    for (int i = 0; waits->code == SNIB_AGAIN; i++) {
        expect(i < 100, "a waiter that hears nothing is passed over by %d others", i);
        run_for(SECOND / 10);
        struct actor *before = holder->actor;
        release(holder);
        run_for(SECOND);
        if (waits->code == SNIB_AGAIN) {
            holder = next;
            expect(holder->code == SNIB_OK, "nobody has the lock");
            next = wait_for(before, SNIB_FAIR, "orders");
        }
    }
    release(waits);
    run_for(SECOND / 10);
    for (int i = 0; i < 3; i++) {
        wait_for(deaf, SNIB_FAIR, "orders");
    }
    run_for(3 * SECOND); /* unsubscribed, they take their time */
    waits = wait_for(holder->actor, SNIB_FAIR, "orders");
    release(next);
    run_for(SECOND / 10);
    expect(waits->code == SNIB_OK, "a waiter that may be dead keeps others waiting");
    holder = waits;
    waits = wait_for(next->actor, SNIB_FAIR, "orders");
    run_for(2 * SECOND);
    kill_actor(deaf);
    snib__time released = now;
    release(holder);
    run_for(10 * SECOND);
    expect(waits->code == SNIB_OK, "behind a dead waiter the next one never came in");
    expect(waits->ended > released + 2 * SECOND, "it was not granted to the dead one");
    expect(waits->ended <= released + 4 * SECOND, "the next one came in after %.3f s",
           (double)(waits->ended - released) / 1e9);
    release(waits);
    run_for(10 * SECOND);
    expect_nothing_left();
    end_world();
}

const struct story stories_fair[] = {
    {"killed waiters", killed_waiters},
    {"long wait", long_wait},
    {"leavers", leavers},
    {"late grant", late_grant},
    {"lost counter", lost_counter},
    {"kept places", kept_places},
    {"clock set back", clock_set_back},
    {"half a queue", half_a_queue},
    {"stopped queue", stopped_queue},
    {"deaf waiter", deaf_waiter},
    {NULL, NULL},
};
