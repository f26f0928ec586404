/* forks.h - what a fork does not cut in two, and what its child does not keep.
 *
 * The child of a fork closes its copies of the library's descriptors before any code of the program
 * runs there.  Later it could not know them by their numbers: a daemon closes all that it has
 * inherited, and then the numbers are those of its own files.
 *
 * The locks of OpenSSL and of the C library's resolver do not survive a fork while another thread has
 * them: the child would wait for them for ever.  So fork() waits for calls of these, and for those that
 * open and close descriptors.  Calls of OpenSSL do not wait for the network, and end soon, but a lookup
 * may take many seconds; then it waits for a name server, and has a lock no longer.
 */
#ifndef SNIB__FORKS_H
#define SNIB__FORKS_H

#include <stdbool.h>

/* Around a call that a fork is not to cut in two; may be nested. */
void snib__forks_enter(void);
void snib__forks_leave(void);
/* Inside, around a lookup. */
void snib__forks_lookup(bool begins);

/* List a new descriptor, or take one off the list that is about to be closed.  Inside.  keep() returns
 * it, or -1 with errno; -1 is passed through. */
int snib__forks_keep(int fd);
void snib__forks_drop(int fd);

/* The handlers of a fork; one at a time. */
void snib__forks_prepare(void);
void snib__forks_parent(void);
void snib__forks_child(void);

#endif
