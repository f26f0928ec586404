/* sys.h - the driver's system calls: all that may block, fail, do only a part, or tell the time.
 *
 * One seam with two sides: sys.c (and park.c) calls the system; tests/driver replaces it by a
 * simulated one, where a seed decides which thread runs and what each of these calls returns.
 *
 * None of them is a cancellation point.  A thread that is cancelled inside the library continues to
 * the end of its call, so it never leaves with a role, a reference or the mutex.
 */
#ifndef SNIB__SYS_H
#define SNIB__SYS_H

#include "driver/park.h"

#include <errno.h>
#include <netdb.h>
#include <poll.h>
#include <pthread.h>
#include <stdbool.h>
#include <sys/socket.h>
#include <sys/types.h>

/* A recv() that waits returns after this time at the latest. */
#define SNIB__SOCK_NAP_MS 50

/* Whether a call failed for want of descriptors or memory, of which there may be some the next time. */
static inline bool snib__sys_short(int error)
{
    return error == EMFILE || error == ENFILE || error == ENOMEM;
}

void snib__sys_lock(pthread_mutex_t *mutex);
void snib__sys_unlock(pthread_mutex_t *mutex);

/* Ask the loader what all threads need, before a fork: a thread of the program may have the loader's lock then, and in
 * the child it stays locked. */
void snib__sys_begin(void);

/* From here on the library stays loaded.  Not while others wait for this thread. */
void snib__sys_stay(void);

/* Start a thread with all signals blocked: they are for the program's own threads.  stack 0: the
 * usual one, if it is not too small.  out_thread NULL: it is detached.  0 or errno. */
int snib__sys_thread(void *(*run)(void *), void *argument, size_t stack, pthread_t *out_thread);
void snib__sys_join(pthread_t thread);

/* The carriers that this thread is to step: one struct per thread, initially zero. */
struct snib__steps {
    void *waiting;
    bool busy;
};
struct snib__steps *snib__sys_steps(void);

/* A bell is a descriptor that is readable from ring to hush.  -1 with errno. */
int snib__sys_bell(void);
void snib__sys_ring(int bell);
void snib__sys_hush(int bell);

/* A set is a descriptor that is readable while one of its members is.  set_add: 0 or errno; a member
 * is removed before it is closed. */
int snib__sys_set(void);
int snib__sys_set_add(int set, int fd);
void snib__sys_set_remove(int set, int fd);

/* An alarm is a descriptor that becomes readable the given time after alarm_set, including
 * suspended time, until hush.  SNIB__NEVER: not at all. */
int snib__sys_alarm(void);
void snib__sys_alarm_set(int alarm, snib__time in);

/* As poll(), for at most `left`; -1 with errno. */
int snib__sys_poll(struct pollfd *polls, uint32_t n, snib__time left);

/* Write a line, or what fits of it: this waits for no reader, and no signal tells that they have gone. */
void snib__sys_print(int fd, const char *line, size_t n);

/* As recv() and send(); only a recv() with `wait` blocks, and for SNIB__SOCK_NAP_MS at most. */
ssize_t snib__sys_recv(int fd, char *bytes, size_t cap, bool wait);
ssize_t snib__sys_send(int fd, const char *bytes, size_t n);

/* Start connecting a new socket, which is *out_fd unless the result is an error: 0 connected,
 * EINPROGRESS, or errno. */
int snib__sys_connect(const struct sockaddr *address, socklen_t n, int *out_fd);
int snib__sys_connected(
    int fd); /* its progress: the same results.  Connected to itself is ECONNREFUSED */
void snib__sys_may_block(int fd); /* connected: from here on recv() may wait */
void snib__sys_shutdown(int fd);  /* ends the calls of other threads on it */
void snib__sys_close(int fd);

/* As getaddrinfo() for a stream with a numeric port; `numeric`: accept only an address, without a
 * lookup. */
int snib__sys_resolve(const char *host, const char *port, bool numeric, struct addrinfo **out);
void snib__sys_resolve_free(struct addrinfo *addresses);

#endif
