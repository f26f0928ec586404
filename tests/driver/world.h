/* world.h - a virtual machine for the real driver: threads, descriptors, clock and network.
 *
 * The world replaces core/driver/sys.c and park.c.  Its threads are coroutines: one runs at a time,
 * and at each call of the seam a seed decides which runs next and what the call returns, so a seed
 * is a whole interleaving and can be replayed.  Time is virtual.  The server is the model of
 * tests/sim behind sockets that deliver late, in pieces, or not at all.
 *
 * What the kernel would forgive ends the world with a message: a descriptor used after its close or
 * closed under a sleeper, two readers or two writers of one socket, a mutex left locked or unlocked
 * without a lock, a busy loop, all threads asleep for ever.
 */
#ifndef SNIB_TESTS_WORLD_H
#define SNIB_TESTS_WORLD_H

#include "driver/sys.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

enum world_fault {
    WORLD_SPLIT = 1,   /* replies come in pieces, sends are partial */
    WORLD_SIGNALS = 2, /* calls are interrupted */
    WORLD_FULL = 4,    /* small socket buffers */
    WORLD_CUT = 8,     /* connections end */
    WORLD_FREEZE = 16, /* threads of the program stop for many leases, outside the mutex */
    WORLD_SLOW = 32    /* long round trips */
};

/* How an address of the server behaves; indexed by the last byte of 10.0.0.x.  A mute one connects, and no more. */
enum world_peer { WORLD_ANSWERS = 0, WORLD_REFUSES = 1, WORLD_SWALLOWS = 2, WORLD_MUTE = 3 };

struct model;

extern struct world {
    uint64_t random;
    unsigned faults;
    snib__time now;       /* the clock that stops in a suspend */
    snib__time suspended; /* total time spent suspended */
    struct model *server;
    enum world_peer peers[8];
    int addresses;           /* of every name, from 10.0.0.1 on; 0: it does not resolve */
    int sixes;               /* how many of them, from the first on, are reported as IPv6 */
    snib__time lookup_takes; /* SNIB__NEVER: for ever */
    int lookups, lookups_running;
    char host[64];               /* of the last lookup */
    int connects;                /* connection attempts so far */
    bool silent;                 /* the server reads but answers nothing */
    uint32_t held_back;          /* a bit for each host nodeN.test whose replies are delayed */
    snib__time freeze_next_ring; /* of a thread of the program, outside the mutex */
    uint64_t calls;              /* of the seam */
    uint64_t digest;             /* of all random choices: equal for equal seeds */
    void (*check)(bool asleep);  /* between any two steps; asleep: no thread can run; may be NULL */
    const char *story;           /* with its number, for replaying this world */
    uint64_t number;
} world;

void world_begin(const char *story, uint64_t number, unsigned faults);
void world_end(void); /* expects that all threads have ended and all descriptors are closed */
_Noreturn void world_fail(const char *format, ...) __attribute__((format(printf, 1, 2)));

uint64_t world_draw(uint64_t below);
bool world_chance(unsigned one_in);

/* A thread of the program; world_run() runs all of them until each has ended. */
void world_thread(const char *name, void (*run)(void *), void *argument);
void world_run(void);
void world_freeze(const char *name, snib__time span); /* stops a thread of that name */

/* For the program's threads: */
void world_sleep(snib__time span);
void world_stay(bool (*ready)(void *), void *on); /* until a condition holds */
bool world_readable(int fd, snib__time span);     /* poll() on one descriptor */
void world_suspend(snib__time span);              /* the whole machine, now */
void world_cut(void);                             /* the server ends all connections */
int world_descriptors(void);

#endif
