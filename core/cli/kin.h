/* kin.h - all processes that descend from this one.
 *
 * A process that is its descendants' reaper (PR_SET_CHILD_SUBREAPER) stays their ancestor whatever they
 * do: a new session, a double fork, a parent that ends.  So /proc's parents tell who they are. */
#ifndef SNIB_KIN_H
#define SNIB_KIN_H

#include <sys/types.h>

/* kin_adopt - be the reaper of all descendants to come. */
void kin_adopt(void);

/* kin_signal - send a signal to each descendant that lives, once.  One that is born meanwhile may be
 * missed.
 *
 * out_deaf  one that may not be signalled (it has another user's rights), else 0; NULL: not wanted.
 * Returns the number of living descendants, or -1 when /proc cannot be read. */
int kin_signal(int sig, pid_t *out_deaf);

/* kin_end - kill all descendants and wait until none is left. */
void kin_end(void);

#endif
