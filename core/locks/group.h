/* group.h - a lock made of others, each in a client of its own or of a kind that shares no command: which
 * member to ask next, when to give up, what to undo, how long the whole is safe.  No I/O, no clock.
 *
 *     all (multi):       one member after the other, in an order that is the same everywhere
 *     majority (quorum): all members at once, done when most have granted; after "Distributed Locks with Redis"
 *                        (the Redlock algorithm), with the pause of a random length after a split vote
 *
 * Results of members and the caller's wishes come in, wishes for members go out:
 *
 *     begin, member_done, member_lost, member_given, refill, give_up, abandon, release, pause_over
 *         ->  wish, phase, deadline
 */
#ifndef SNIB__GROUP_H
#define SNIB__GROUP_H

#include "net/conn.h"

#include <stdbool.h>
#include <stdint.h>

#define SNIB__GROUP_MAX 100

enum snib__group_phase {
    SNIB__GROUP_COLLECTING,
    SNIB__GROUP_PAUSING, /* between two rounds */
    SNIB__GROUP_TAKEN,   /* to be given out */
    SNIB__GROUP_HELD,
    SNIB__GROUP_GIVING, /* its release is on the way */
    SNIB__GROUP_ENDED   /* code says how */
};

enum snib__group_do {
    SNIB__GROUP_NOTHING,
    SNIB__GROUP_TRY,    /* acquire the member */
    SNIB__GROUP_CANCEL, /* its attempt: nobody waits for the answer */
    SNIB__GROUP_DROP,   /* give it back without waiting */
    SNIB__GROUP_GIVE    /* release it and tell how that went */
};

struct snib__group_member {
    uint8_t state; /* group.c's */
    bool wished;   /* the wish of its state has been handed out */
    bool again;    /* to be asked when it has been let go of */
    snib__time deadline;
};

struct snib__group {
    bool majority;
    bool once;       /* one round only */
    uint8_t phase;   /* enum snib__group_phase */
    int32_t code;    /* ENDED: the result */
    int32_t reason;  /* of a loss: enum snib_reason, 0 none */
    int32_t failure; /* the first error of the round */
    uint32_t n, need, round;
    struct snib__group_member members[SNIB__GROUP_MAX];
};

void snib__group_begin(struct snib__group *group, bool majority, bool once, uint32_t n);
/* The answer of an attempt: SNIB_OK with the member's deadline, or why not. */
void snib__group_member_done(struct snib__group *group, uint32_t i, int32_t code,
                             snib__time deadline);
void snib__group_member_lost(struct snib__group *group, uint32_t i, int32_t reason);
void snib__group_member_given(struct snib__group *group, uint32_t i, int32_t code);
/* A held member's deadline moved. */
void snib__group_member_extended(struct snib__group *group, uint32_t i, snib__time deadline);
/* TAKEN: it was given out, and its loss is a loss from here on. */
void snib__group_given_out(struct snib__group *group);
/* Nobody wants it any more. */
void snib__group_abandon(struct snib__group *group);
/* It is of no use. */
void snib__group_fail(struct snib__group *group, int32_t code);
void snib__group_release(struct snib__group *group);
/* HELD by a majority: ask all others again, so that it does not hang on every one of its votes. */
void snib__group_refill(struct snib__group *group);
/* Some have refused and others do not answer: they may be dead, and what we have is kept from those who wait
 * for it as we do.  So the round is given up soon, counted from what the others took to answer; now and then
 * later, for the silent may only be slow. */
bool snib__group_contested(const struct snib__group *group);
snib__time snib__group_patience(const struct snib__group *group, snib__time elapsed);
void snib__group_give_up(struct snib__group *group);
void snib__group_pause_over(struct snib__group *group);

/* The next thing to do, with its member; NOTHING when there is none. */
int snib__group_wish(struct snib__group *group, uint32_t *out_member);
/* TAKEN, HELD: until when the whole is safe. */
snib__time snib__group_deadline(const struct snib__group *group);
/* PAUSING: for how long, from 64 random bits. */
snib__time snib__group_pause(const struct snib__group *group, uint64_t random);

#endif
