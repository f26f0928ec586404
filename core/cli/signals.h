/* signals.h - signals as a file descriptor, and the duties of a container's first process.
 *
 * Process 1 of a container inherits the processes whose parents have ended, and must reap them.  The kernel sends it no
 * signal that it does not handle, and SIGSTOP not at all. */
#ifndef SNIB_SIGNALS_H
#define SNIB_SIGNALS_H

#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/* signals_on_end - what SIGTERM, SIGINT, SIGHUP and SIGQUIT do when they are not blocked, unless they are ignored.  It
 * must not return. */
void signals_on_end(void (*on_end)(int sig));

/* signals_admit - after signals_open(): unblock these signals for a call that may block, or block them again. */
void signals_admit(bool admits);

/* signals_open - block these signals and make them readable.  A signal that was ignored when snib started, as
 * with nohup, stays ignored.  old_mask: the mask before.  Returns a descriptor, or -1 with errno. */
int signals_open(const int *numbers, size_t n, sigset_t *old_mask);

/* signals_next - the next signal that has arrived; 0: none.  Process 1 also reaps what has ended, except one child
 * for which the caller waits. */
int signals_next(int fd, pid_t spared);

/* signals_is_first - whether this is process 1. */
bool signals_is_first(void);

/* signals_stop - stop by this signal, as by the terminal or the kernel; to: 0, the whole process group, or this
 * process's pid.  SIGCONT must be blocked.  False: it was not stopped, because it is process 1 or its group is orphaned,
 * and no shell could continue it. */
bool signals_stop(pid_t to, int sig);

/* signals_die - end by this signal, without a core dump; `to` as above.  Returns if that is not possible: process 1, or
 * the signal was ignored from the start. */
void signals_die(pid_t to, int sig);

/* signals_die_of_key - end by SIGINT or SIGQUIT if a key of the terminal sent it, as far as one can know: this process
 * group is in the foreground.  A shell that runs a script ends only then, too.  Returns otherwise. */
void signals_die_of_key(int sig);

#endif
