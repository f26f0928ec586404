/* signals.h - signals as a file descriptor, and the duties of a container's first process. */
#ifndef SNIB_SIGNALS_H
#define SNIB_SIGNALS_H

#include <signal.h>
#include <stdbool.h>
#include <stddef.h>

/* signals_open - block these signals and make them readable.  A signal that was ignored when snib started, as
 * with nohup, stays ignored.  old_mask: the mask before.  Returns a descriptor, or -1 with errno. */
int signals_open(const int *numbers, size_t n, sigset_t *old_mask);

/* signals_next - the next signal that has arrived; 0: none. */
int signals_next(int fd);

#endif
