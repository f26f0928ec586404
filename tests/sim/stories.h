/* stories.h - many engines and one model server, a network without delay, virtual time.
 *
 * stories.c        the world, what actors do in it, the list of stories
 * story_fair.c     the fair lock's queue
 * story_shared.c   readers and writers, permits, multi locks
 * story_turns.c    one lock after the other
 */
#ifndef SNIB_TESTS_STORIES_H
#define SNIB_TESTS_STORIES_H

#include "engine/engine.h"
#include "locks/kind.h"
#include "model_server.h"
#include "snib.h"

#define ACTORS 128
#define WAITERS 512
#define SECOND (1000 * SNIB__MS)
#define EPOCH_NS 1700000000000000000ULL
#define LEASE (30 * SECOND)

struct actor {                   /* a process */
    struct snib__engine *engine; /* NULL: killed */
    uint64_t links[2];           /* the model's; 0: not connected */
    bool stopped;                /* as by SIGSTOP */
    bool deaf;                   /* its link for messages is stuck */
};

struct waiter { /* an acquisition, from its start to its end */
    struct actor *actor;
    struct snib__op *op;
    struct snib__hold *hold;
    int32_t code; /* SNIB_AGAIN: still running */
    snib__time ended;
    uint64_t order; /* order in which it was granted */
};

struct story {
    const char *name; /* NULL: end of the list */
    void (*tell)(void);
};

extern const struct story stories_fair[], stories_shared[], stories_turns[];

extern model *server;
extern snib__time now;
extern int64_t step_ns; /* total by which the server's wall clock was set */
extern struct actor actors[ACTORS];
extern struct waiter waiters[WAITERS];
extern int waiter_count;

_Noreturn void fail(const char *format, ...) __attribute__((format(printf, 1, 2)));

#define expect(condition, ...)                                                                     \
    do {                                                                                           \
        if (!(condition))                                                                          \
            fail(__VA_ARGS__);                                                                     \
    } while (0)

void begin_world(void);
struct actor *new_actor(void);
void kill_actor(struct actor *actor); /* as by kill -9 */
void end_world(void);
void settle(void);
void run_for(snib__time duration);

struct waiter *acquire(struct actor *actor, int kind, const char *name, size_t n,
                       struct snib__acquire how);
struct waiter *wait_for(struct actor *actor, int kind, const char *name);
void release(struct waiter *waiter);
void cancel(struct waiter *waiter);
/* The commands that a process has sent are executed, but its command connection ends before any
 * reply. */
void lose_answers(struct actor *actor);
void hear(struct actor *actor); /* a stopped process reads its messages, and nothing else */
bool there_is(const char *name);
void expect_nothing_left(void);

#endif
