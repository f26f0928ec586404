/* guard.h - the guardian: a process between snib and COMMAND, COMMAND's parent and the reaper of
 * all its descendants.
 *
 *     snib --fork--> guardian --fork, exec--> COMMAND --> its children
 *       \___ link ___/
 *
 * snib knows the lock and the terminal, the guardian knows COMMAND.  snib keeps telling the
 * guardian how long the hold is valid.  If snib is killed, stopped or starved, the guardian sees
 * the link close or hears no more of it, and ends COMMAND and all its descendants before that time
 * has passed.  If the guardian is killed, snib, a reaper too, ends them.
 *
 * The guardian is forked first, before snib has a password in its memory, a thread or a connection,
 * into its own process group: a signal to snib's group does not hit both. */
#ifndef SNIB_GUARD_H
#define SNIB_GUARD_H

#include "cli.h"

#include <signal.h>
#include <sys/types.h>

enum guard_word {
    /* from snib */
    GUARD_GO = 1, /* fork for COMMAND; deadline; value: whether there is a terminal to lend */
    GUARD_EXEC, /* the child may become COMMAND: it has the terminal if it is to; token, deadline */
    GUARD_HELD, /* the lock is held; deadline */
    GUARD_SIGNAL,  /* value: a signal for COMMAND */
    GUARD_LOST,    /* the lock is lost */
    GUARD_REFUSED, /* COMMAND asked for a terminal that nobody can give it */
    /* from the guardian */
    GUARD_STARTED, /* the child waits for GUARD_EXEC; value: COMMAND's process group */
    GUARD_FAILED,  /* COMMAND could not be run; value: errno, or 0: the lock was lost before */
    GUARD_STOPPED, /* value: the signal that stopped it, or what it has left */
    GUARD_ENDED,   /* value: its exit code */
    GUARD_KILLED,  /* instead; value: the signal that ended it */
    GUARD_DEAF,    /* value: a process that cannot be ended, or GUARD_HIDDEN */
    GUARD_INSISTS, /* value: a process that asked again for a terminal: everything is being ended */
    GUARD_ASK,     /* whether the lock is still held; snib answers whatever wakes it */
    GUARD_EXPIRED, /* snib did not say in time that the lock is still held */
    GUARD_EMPTY    /* no process of COMMAND is left; the last message */
};

#define GUARD_HIDDEN (-1) /* one that /proc does not show */

struct guard_message {
    int32_t word; /* enum guard_word */
    int32_t value;
    int64_t token;
    int64_t continued;   /* GUARD_STOPPED: how often snib had asked to continue it before */
    int64_t deadline_ns; /* on CLOCK_BOOTTIME; INT64_MAX: none */
    char owner[128];     /* GUARD_EXEC, with a token */
};

struct guard {
    pid_t pid;
    int link;
};

/* guard_start - fork the guardian.  mask: COMMAND's signal mask.  Returns 0 or errno. */
int guard_start(const struct cli *cli, const sigset_t *mask, struct guard *out);

/* guard_tell - send a message to the guardian, and continue it if it was stopped. */
void guard_tell(const struct guard *guard, const struct guard_message *message);

/* guard_hear - receive a message from the guardian: 1, 0 there is none, -1 it is gone. */
int guard_hear(const struct guard *guard, struct guard_message *out);

/* guard_end - close the link and wait until the guardian, and so COMMAND, has ended.  group: COMMAND's; 0: none. */
void guard_end(struct guard *guard, pid_t group);

/* command_exec - become COMMAND unless the deadline has passed (command.c).  Returns errno, or 0 if
 * it was too late. */
int command_exec(const struct cli *cli, const struct guard_message *exec, const sigset_t *mask);

#endif
