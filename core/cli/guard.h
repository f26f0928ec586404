/* guard.h - the guardian: a process between snib and COMMAND, COMMAND's parent and the reaper of all that
 * comes of it.
 *
 *     snib --fork--> guardian --fork, exec--> COMMAND --> its children
 *       \___ link ___/
 *
 * snib knows the lock and the terminal, the guardian knows COMMAND.  snib tells it until when the hold is
 * good, again and again; whatever becomes of snib, whether it is killed, stopped or starved, the guardian
 * sees the link close or that time pass, and ends COMMAND and everything that descends from it.  If the
 * guardian is killed, snib, a reaper too, ends them.
 *
 * The guardian is forked first of all, before snib has a password in its memory, a thread or a
 * connection, into a process group of its own: what is sent to snib's group does not hit both. */
#ifndef SNIB_GUARD_H
#define SNIB_GUARD_H

#include "cli.h"

#include <signal.h>
#include <sys/types.h>

enum guard_word {
    /* snib says */
    GUARD_GO = 1, /* start COMMAND; token, deadline */
    GUARD_HELD,   /* the lock is held; deadline */
    GUARD_SIGNAL, /* value: a signal for COMMAND */
    GUARD_LOST,   /* the lock is lost */
    /* the guardian says */
    GUARD_STARTED, /* value: COMMAND's process group */
    GUARD_FAILED,  /* it could not be run; value: errno, or 0: the lock was lost before */
    GUARD_STOPPED, /* value: the signal that stopped it */
    GUARD_ENDED,   /* value: its exit code as shells have it */
    GUARD_DEAF,    /* value: a process that cannot be ended */
    GUARD_EXPIRED, /* nobody said in time that the lock is still held */
    GUARD_EMPTY    /* nothing of it is left; the last word */
};

struct guard_message {
    int32_t word; /* enum guard_word */
    int32_t value;
    int64_t token;
    int64_t deadline_ns; /* on CLOCK_BOOTTIME; INT64_MAX: none */
};

struct guard {
    pid_t pid;
    int link;
};

/* guard_start - fork the guardian.  mask: the signals that COMMAND is to have blocked.  Returns 0 or
 * errno. */
int guard_start(const struct cli *cli, const sigset_t *mask, struct guard *out);

/* guard_tell - say something to the guardian, and wake it should it have been stopped. */
void guard_tell(const struct guard *guard, const struct guard_message *message);

/* guard_hear - take what the guardian said: 1, 0 nothing, -1 it is gone. */
int guard_hear(const struct guard *guard, struct guard_message *out);

/* guard_end - close the link and wait until the guardian, and so COMMAND, has ended. */
void guard_end(struct guard *guard);

/* guard_now_ns - CLOCK_BOOTTIME. */
int64_t guard_now_ns(void);

/* command_exec - become COMMAND unless the deadline has passed (command.c).  Returns errno, or 0 if it was too
 * late. */
int command_exec(const struct cli *cli, const struct guard_message *go, const sigset_t *mask);

#endif
