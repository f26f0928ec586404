/* sock.h - one socket and how it is connected, with TLS if configured; nothing here blocks.
 *
 * A socket is used outside the client's mutex by the thread that reads and the one that writes.
 * `users` counts them (guarded by the mutex).  A dropped socket is shut down immediately, which
 * ends their calls, and closed by the last of them, so that a descriptor is never reused under a
 * sleeping thread.
 *
 * The roles of reader and writer belong to the socket and end with it: a thread that is stopped, or
 * stuck in a signal handler, while it has a role stays behind with the dead socket, and the roles
 * of the next socket are free.
 *
 * A name can have several addresses.  They are tried as in RFC 8305: first the one that worked
 * last, then alternating between families in the resolver's order, each one when the one before has
 * failed or has had its time; the first to connect wins.  An address works if a request is answered
 * there; behind one that only connected, or belongs to a replica, the next attempt begins.
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

#define SNIB__SOCK_TRIES 4 /* concurrent attempts */
#define SNIB__SOCK_ADDRESSES 16

struct snib__resolve;

/* The way to one server, for all sockets to it. */
struct snib__way {
    struct snib__address address;
    const struct snib__tls_config *tls; /* if the address says so */
    struct snib__logins *logins;        /* if each connect requests credentials; else NULL */
    snib__time timeout;                 /* for resolving the name, and again for connecting */
    struct sockaddr_storage last;       /* that has connected */
    socklen_t last_n;                   /* 0: none has */
    bool worked;                        /* ... and a request was answered there */
    struct snib__resolve *resolving;    /* the only lookup at a time, finished or not */
    struct snib__tls_files *reading;    /* the same for the files that TLS needs */
};

struct snib__op;

enum snib__reader {
    SNIB__READER_NOBODY,
    SNIB__READER_CALLER,
    SNIB__READER_THREAD,
    SNIB__READER_QUEUE, /* the consumer of the queue that leads: lead.h */
    SNIB__READER_TRANSIT
};

struct snib__sock {
    int fd; /* -1 while it is not connected */
    int users;
    bool open; /* connected, with the TLS handshake (if any) done and the credentials known */
    bool dead;
    snib__time left_at; /* dropped by the thread while callers used it; 0: not */
    /* while connecting */
    struct snib__way *way;
    struct snib__resolve *resolve;
    const struct addrinfo *at; /* where it has connected; NULL: to a unix socket, or not yet */
    bool works;                /* a request was answered */
    const struct addrinfo *addresses[SNIB__SOCK_ADDRESSES]; /* in the order of trying */
    uint32_t addresses_n, begun;
    struct {
        int fd;
        const struct addrinfo *at;
    } tries[SNIB__SOCK_TRIES];
    uint32_t tries_n;
    snib__time begin_next, until; /* when to begin with the next address, and to give up */
    int last_error;
    bool secure;                      /* the TLS handshake is done, or there is no TLS */
    struct snib__logins *logins;      /* the source of its credentials */
    struct snib__question *login;     /* its request for credentials, until it logs in */
    struct snib__tls_files *files;    /* TLS: being read for it */
    struct snib__tls *tls;            /* TLS: once it is connected */
    struct snib__tls_failure failure; /* of TLS, or of the login; outcome SNIB__TLS_FINE: none */
    /* once it is open: the roles */
    int reader;               /* enum snib__reader */
    struct snib__op *nominee; /* the role is in transit to it */
    snib__time nominated_at;
    int set;                 /* READER_QUEUE: the set that it is in */
    bool receiving;          /* ... and the consumer is inside recv() */
    snib__time unread_since; /* ... since when the thread has seen replies to come; 0: it has not */
    bool ended;              /* by the peer, seen while there was no reader */
    bool writing;
    bool watched;             /* the background thread polls until the socket takes more */
    uint64_t taken;           /* commands taken from the engine so far; 0: none by this socket */
    struct snib__buf sending; /* taken from the engine, not yet accepted by the socket */
};

void snib__way_free(struct snib__way *way); /* NULL is fine */

/* snib__sock_new - start connecting; NULL with *out_code and *out_errno if that fails
 * immediately. */
struct snib__sock *snib__sock_new(struct snib__way *way, snib__time now, int32_t *out_code,
                                  int *out_errno);

/* snib__sock_polls - what to poll for while it is not open, and until when; returns how many. */
uint32_t snib__sock_polls(const struct snib__sock *sock, struct pollfd polls[SNIB__SOCK_TRIES],
                          snib__time *out_until);

/* snib__sock_step - make progress after an event: 1 open now, 0 continue, -1 failed with *out_code
 * and *out_errno. */
int snib__sock_step(struct snib__sock *sock, snib__time now, int32_t *out_code, int *out_errno);

/* Read and write an open socket: as snib__sys_recv() and snib__sys_send(), see tls.h for TLS. */
ssize_t snib__sock_recv(struct snib__sock *sock, char *bytes, size_t cap, bool wait);
ssize_t snib__sock_send(struct snib__sock *sock, const char *bytes, size_t n);
/* Whether bytes can be received without polling the descriptor. */
bool snib__sock_pending(const struct snib__sock *sock);
/* Whether the descriptor was full: wait until it takes more, then send again, even 0 bytes. */
bool snib__sock_unsent(const struct snib__sock *sock);
/* Why TLS or the request for credentials failed; NULL if neither did. */
const struct snib__tls_failure *snib__sock_why(const struct snib__sock *sock);

void snib__sock_works(struct snib__sock *sock); /* a request was answered */
void snib__sock_drop(struct snib__sock *sock);  /* shut down; closed and freed when unused */
void snib__sock_unuse(struct snib__sock *sock); /* users-- */

#endif
