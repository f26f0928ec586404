/* sock.h - one socket and its way to being connected, with TLS if that is wanted; nothing here blocks.
 *
 * A socket is used outside the client's mutex by the thread that reads and the one that writes.  `users`
 * counts them (guarded by the mutex); a socket that is dropped is shut down at once, which ends their
 * calls, and closed by the last of them, so that a descriptor is never reused under a sleeping thread.
 *
 * The roles of reader and writer belong to the socket and end with it: a thread that sits in a signal
 * handler, or is stopped, with a role is left behind with the dead socket, and the next socket is free.
 *
 * A name can have several addresses.  They are tried as RFC 8305 has it: the one that worked last, then
 * by turns of family in the resolver's order, the next one when the one before has failed or has taken its
 * time; the first that answers wins.
 */
#ifndef SNIB__SOCK_H
#define SNIB__SOCK_H

#include "driver/login.h"
#include "driver/sys.h"
#include "driver/tls.h"
#include "net/address.h"
#include "net/buf.h"
#include "net/conn.h"
#include "snib.h"

#include <stdbool.h>
#include <stdint.h>

#define SNIB__SOCK_TRIES 4 /* addresses under way at once */
#define SNIB__SOCK_ADDRESSES 16

struct snib__resolve;

/* The way to one server, for all sockets to it. */
struct snib__way {
    struct snib__address address;
    const struct snib__tls_config *tls; /* if the address says so */
    struct snib__logins *logins;        /* if each connect asks; NULL: none does */
    snib__time timeout;                 /* for resolving the name, and again for connecting */
    struct sockaddr_storage worked;
    socklen_t worked_n;              /* 0: none has */
    struct snib__resolve *resolving; /* the one lookup at a time, finished or not */
};

struct snib__op;

enum snib__reader {
    SNIB__READER_NOBODY,
    SNIB__READER_CALLER,
    SNIB__READER_THREAD,
    SNIB__READER_TRANSIT
};

struct snib__sock {
    int fd; /* -1 while it is not connected */
    int users;
    bool open; /* connected, TLS has begun if there is any, and what to log in with is known */
    bool dead;
    /* on the way there */
    struct snib__way *way;
    struct snib__resolve *resolve;
    const struct addrinfo *addresses[SNIB__SOCK_ADDRESSES]; /* in the order of trying */
    uint32_t addresses_n, begun;
    struct {
        int fd;
        const struct addrinfo *at;
    } tries[SNIB__SOCK_TRIES];
    uint32_t tries_n;
    snib__time begin_next, until; /* when to begin with the next address, and to give up */
    int last_error;
    bool secure;                      /* TLS has begun, or there is none */
    struct snib__logins *logins;      /* whom it asks */
    struct snib__question *login;     /* what to log in with; until that is done */
    struct snib__tls_files *files;    /* TLS: being read for it */
    struct snib__tls *tls;            /* TLS: from when it is connected */
    struct snib__tls_failure failure; /* of TLS, or of the login; outcome SNIB__TLS_FINE: none */
    /* once it is open: the roles */
    int reader;               /* enum snib__reader */
    struct snib__op *nominee; /* in transit to it */
    snib__time nominated_at;
    bool ended; /* by the peer, as was seen while nobody had the role */
    bool writing;
    bool watched;             /* the background thread sleeps until it takes more */
    uint64_t taken;           /* commands taken from the engine so far; 0: none by this socket */
    struct snib__buf sending; /* taken from the engine, not yet accepted by the socket */
};

void snib__way_free(struct snib__way *way); /* NULL is fine */

/* snib__sock_new - begin to connect; NULL with *out_code and *out_errno when that fails at once. */
struct snib__sock *snib__sock_new(struct snib__way *way, snib__time now, int32_t *out_code,
                                  int *out_errno);

/* snib__sock_polls - what to poll for while it is not open, and until when; returns how many. */
uint32_t snib__sock_polls(const struct snib__sock *sock, struct pollfd polls[SNIB__SOCK_TRIES],
                          snib__time *out_until);

/* snib__sock_step - something happened: 1 open now, 0 go on, -1 failed with *out_code and *out_errno. */
int snib__sock_step(struct snib__sock *sock, snib__time now, int32_t *out_code, int *out_errno);

/* What is open is read and written by these: as snib__sys_recv() and snib__sys_send(), see tls.h for TLS. */
ssize_t snib__sock_recv(struct snib__sock *sock, char *bytes, size_t cap, bool wait);
ssize_t snib__sock_send(struct snib__sock *sock, const char *bytes, size_t n);
/* There is something to be received without a look at the descriptor. */
bool snib__sock_pending(const struct snib__sock *sock);
/* The descriptor was full: wait until it takes more, and send again, be it nothing. */
bool snib__sock_unsent(const struct snib__sock *sock);
/* Why TLS or the question failed; NULL if they did not. */
const struct snib__tls_failure *snib__sock_why(const struct snib__sock *sock);

void snib__sock_drop(struct snib__sock *sock);  /* shut down; closed and freed when unused */
void snib__sock_unuse(struct snib__sock *sock); /* users-- */

#endif
