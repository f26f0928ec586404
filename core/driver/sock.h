/* sock.h - one socket and its way to being connected; nothing here blocks.
 *
 * A socket is used outside the client's mutex by the thread that reads and the one that writes.  `users`
 * counts them (guarded by the mutex); a socket that is dropped is shut down at once, which ends their
 * calls, and closed by the last of them, so that a descriptor is never reused under a sleeping thread.
 */
#ifndef SNIB__SOCK_H
#define SNIB__SOCK_H

#include "api/url.h"

#include <stdbool.h>
#include <stdint.h>

/* A recv() without MSG_DONTWAIT returns after this time at the latest. */
#define SNIB__SOCK_NAP_MS 50

struct snib__resolve;

struct snib__sock {
    int fd; /* -1 while the name is being resolved */
    int users;
    bool open; /* connected */
    bool dead;
    struct snib__resolve *resolve;
    void *address_now; /* struct addrinfo of the attempt, then its successors */
    int last_error;
};

/* snib__sock_new - begin to connect; NULL with *out_code and *out_errno when that fails at once. */
struct snib__sock *snib__sock_new(const struct snib__url *url, int32_t *out_code, int *out_errno);

/* snib__sock_fd - which descriptor and events to poll for while it is not open. */
int snib__sock_fd(const struct snib__sock *sock, short *out_events);

/* snib__sock_step - something happened: 1 open now, 0 go on, -1 failed with *out_code and *out_errno. */
int snib__sock_step(struct snib__sock *sock, int32_t *out_code, int *out_errno);

void snib__sock_drop(struct snib__sock *sock);  /* shut down; closed and freed when unused */
void snib__sock_unuse(struct snib__sock *sock); /* users-- */

#endif
