/* kin.h - all processes that descend from this one.
 *
 * A process that is its descendants' reaper (PR_SET_CHILD_SUBREAPER) stays their ancestor whatever
 * they do: a new session, a double fork, a parent that ends.  So the parents in /proc identify
 * them. */
#ifndef SNIB_KIN_H
#define SNIB_KIN_H

#include <stdbool.h>
#include <sys/types.h>

/* kin_adopt - become the reaper of all future descendants. */
void kin_adopt(void);

/* kin_signal - send a signal to each living descendant, once.  One that is forked meanwhile may be
 * missed.
 *
 * out_deaf  a descendant that may not be signalled (it has other privileges), else 0; may be NULL.
 * Returns the number of living descendants that /proc shows, or -1 when it cannot be read or is of another process
 * namespace. */
int kin_signal(int sig, pid_t *out_deaf);

/* kin_is_others - whether a living process that is no descendant is in this process group, which is not the caller's own;
 * false when /proc cannot be read. */
bool kin_is_others(pid_t group);

/* kin_is_alone - whether nobody else is in the caller's process group, that is, no living process but descendants; false
 * when /proc cannot be read. */
bool kin_is_alone(void);

/* kin_is_orphaned - whether the caller's process group is orphaned: no member has a parent in another group of the session,
 * as a shell is, which could continue it after a stop.  False when that cannot be known, as where /proc cannot be read. */
bool kin_is_orphaned(void);

/* kin_end - kill all descendants and wait until none is left. */
void kin_end(void);

#endif
