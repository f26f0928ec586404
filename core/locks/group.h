/* group.h - a lock made of others, each of a client of its own or of a kind that shares no command:
 * which member to ask next, when to give up, what to undo, how long the whole is safe.  No I/O, no
 * clock.
 *
 *     all (multi):       one member after the other, in an order that is the same everywhere
 *     majority (quorum): all members at once, done when a majority has granted; after "Distributed
 *                        Locks with Redis" (the Redlock algorithm), with its random pause after a
 *                        split vote
 *
 * Results of members and the caller's wishes come in, wishes for members go out:
 *
 *     begin, member_done, member_lost, member_given, refill, give_up, overdue, silent, abandon,
 *     release, pause_over; extend, member_behind, member_leased
 *         ->  wish, phase, deadline; leased
 */
#ifndef SNIB__GROUP_H
#define SNIB__GROUP_H

#include "net/time.h"

#include <stdbool.h>
#include <stdint.h>

#define SNIB__GROUP_MAX 100

enum snib__group_phase {
    SNIB__GROUP_COLLECTING,
    SNIB__GROUP_PAUSING, /* between two rounds */
    SNIB__GROUP_TAKEN,   /* ready to be handed out */
    SNIB__GROUP_HELD,
    SNIB__GROUP_GIVING, /* its release is in flight */
    SNIB__GROUP_ENDED   /* code has the result */
};

enum snib__group_do {
    SNIB__GROUP_NOTHING,
    SNIB__GROUP_TRY,    /* acquire the member */
    SNIB__GROUP_CANCEL, /* cancel its attempt: the reply is not awaited */
    SNIB__GROUP_DROP,   /* release it without waiting */
    SNIB__GROUP_GIVE,   /* release it and report the result */
    SNIB__GROUP_EXTEND, /* ask its server for another lease and report the result, of no earlier attempt */
    SNIB__GROUP_LEASE /* it has that lease from now on: enough others have got it */
};

struct snib__group_member {
    uint8_t state;  /* group.c's */
    uint8_t leased; /* and what has become of an extension */
    bool wished;    /* the wish of its state has been handed out */
    bool again;     /* ask it once it has been let go of */
    bool answered;  /* counted in `answers` */
    snib__time deadline;
};

struct snib__group {
    bool majority;
    bool once;       /* one round only */
    uint8_t phase;   /* enum snib__group_phase */
    int32_t code;    /* ENDED: the result */
    int32_t reason;  /* of a loss: enum snib_reason; 0: none */
    bool given_out;  /* it has been held */
    int32_t failure; /* the release's first error */
    /* majority: */
    bool heard;       /* a majority has answered, in whatever rounds, or refusals left none */
    uint32_t answers; /* members that have answered */
    uint32_t refusals, errors; /* of the round */
    int32_t error;             /* of the round: the one that says most; 0: none */
    uint32_t n, need, round;
    /* an extension: */
    bool extending;  /* no result yet */
    int32_t trouble; /* the error that says most; 0: none */
    struct snib__group_member members[SNIB__GROUP_MAX];
};

void snib__group_begin(struct snib__group *group, bool majority, bool once, uint32_t n);
/* An attempt's result: SNIB_OK with the member's deadline, or why not. */
void snib__group_member_done(struct snib__group *group, uint32_t i, int32_t code,
                             snib__time deadline);
void snib__group_member_lost(struct snib__group *group, uint32_t i, int32_t reason);
void snib__group_member_given(struct snib__group *group, uint32_t i, int32_t code);
/* A held member's deadline moved. */
void snib__group_member_extended(struct snib__group *group, uint32_t i, snib__time deadline);
/* TAKEN: the hold was handed out, so from here on its loss is a loss. */
void snib__group_given_out(struct snib__group *group);
/* Majority (of all, each attempt has the caller's limits): the wait is over.  Ends with what is known;
 * if nothing is, it goes on. */
void snib__group_overdue(struct snib__group *group);
/* ... and no majority will answer: ends with an error. */
void snib__group_silent(struct snib__group *group);
/* No caller wants it any more. */
void snib__group_abandon(struct snib__group *group);
/* End it with an error. */
void snib__group_fail(struct snib__group *group, int32_t code);
void snib__group_release(struct snib__group *group);
/* HELD: give all members that are held another lease.  Each keeps the lease that it has until as many servers have granted
 * the other one as the lock needs.  What an earlier extension still has to do is forgotten. */
void snib__group_extend(struct snib__group *group);
/* No caller waits for it any more. */
void snib__group_unextend(struct snib__group *group);
/* HELD: the vote of a member that was asked for before another lease was granted: it gets that, too. */
void snib__group_member_behind(struct snib__group *group, uint32_t i);
/* The answer of a member's server. */
void snib__group_member_leased(struct snib__group *group, uint32_t i, int32_t code);
/* The result of an extension, once: as many servers as the lock needs have granted the lease, which their members have
 * from now on; or why not.  false: there is none yet. */
bool snib__group_leased(struct snib__group *group, int32_t *out_code);
/* HELD by a majority: ask all others again, so that the hold does not
 * depend on every single vote. */
void snib__group_refill(struct snib__group *group);
/* Some members have refused and others do not answer: those may be dead, and the votes held so far
 * block competing clients.  So the round is soon given up, measured by how long the others took to
 * answer; now and then later, because the silent ones may only be slow. */
bool snib__group_contested(const struct snib__group *group);
snib__time snib__group_patience(const struct snib__group *group, snib__time elapsed);
void snib__group_give_up(struct snib__group *group);
void snib__group_pause_over(struct snib__group *group);

/* The next thing to do, with its member; NOTHING when there is none. */
int snib__group_wish(struct snib__group *group, uint32_t *out_member);
/* TAKEN, HELD: how long the whole is safe. */
snib__time snib__group_deadline(const struct snib__group *group);
/* PAUSING: the length of the pause, from 64 random bits. */
snib__time snib__group_pause(const struct snib__group *group, uint64_t random);

#endif
