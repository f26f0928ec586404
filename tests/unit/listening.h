/* listening.h - a client that waits for a lock, on a command link and a pub/sub link. */
#ifndef SNIB_UNIT_LISTENING_H
#define SNIB_UNIT_LISTENING_H

#include "fed.h"

/* What a server says that is no master, is busy, or has forgotten the login. */
static const char *const disowned[] = {
    "-READONLY You can't write against a read only replica.\r\n",
    "-MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.\r\n",
    "-LOADING Redis is loading the dataset in memory\r\n",
    "-BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.\r\n",
    "-NOAUTH Authentication required.\r\n",
};

/* Let the virtual time pass by the engine's own deadlines. */
static inline void pass(struct snib__engine *engine, snib__time until)
{
    while (now < until) {
        snib__time next = snib__engine_deadline(engine);
        now = next <= now ? now + SNIB__MS : next < until ? next : until;
        snib__engine_tick(engine, now);
    }
}

/* A waiter of "m", asleep, whose subscription was requested. */
static inline struct snib__engine *with_waiter(void)
{
    struct snib__engine *engine = begin();
    acquire(engine, gate(engine, SNIB_MUTEX, "m"), 0);
    connect_link(engine);
    answer_own(engine);
    answer(engine, ":86400000\r\n"); /* held by another client, for a day */
    connect_pubsub(engine);
    assert_int_equal(engine->home->links[SNIB__PUBSUB].owed, 1);
    return engine;
}

/* Time passes, and the command link answers every request: the lock is held. */
static inline void pass_waiting(struct snib__engine *engine, snib__time until)
{
    while (now < until) {
        pass(engine, now + 10 * SNIB__MS < until ? now + 10 * SNIB__MS : until);
        answer_own(engine);
        while (on_the_way(engine))
            answer(engine, ":86400000\r\n");
    }
}

#endif
