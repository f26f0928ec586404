/* login.h - whom a client's connections log in as, when it asks anew at each connect.
 *
 * A client that was given its password keeps it, for it may have to connect again.  One that was given a file, a
 * function or a queue keeps none: it has a question, which a socket asks when it begins to connect and which is
 * answered by the time it is connected, or the attempt ends.  One question at a time: sockets that come
 * meanwhile wait for the same answer, and a function that hangs costs one thread.  The answer is wiped when the
 * last of them has logged in.
 *
 *     source   who answers
 *     FILE     a thread that reads it, because disks can be slow
 *     CALL     a thread on which the program's function runs
 *     QUEUE    whoever drains the queue: no function of the program's is called
 *
 * An answer that ends is asked for again after four fifths of its time, and all connections log in anew.
 */
#ifndef SNIB__LOGIN_H
#define SNIB__LOGIN_H

#include "driver/sys.h"
#include "net/words.h"
#include "snib.h"

#include <stdbool.h>
#include <stdint.h>

enum snib__login_source {
    SNIB__LOGIN_GIVEN, /* the engine's config has it */
    SNIB__LOGIN_FILE,
    SNIB__LOGIN_CALL,
    SNIB__LOGIN_QUEUE
};

struct snib__question;

struct snib__logins {
    int source;
    const char *username; /* unless an answer has one; NULL: none.  The texts are the caller's */
    const char *file;
    snib_credentials_fn call;
    void *data;
    /* below: guarded by the client's mutex */
    struct snib__question *asking;   /* the one under way, or the last */
    struct snib__question *renewing; /* of the connections that are there */
    uint64_t asked;                  /* the last one's number */
    bool untold;                     /* the queue is to hear of it */
    snib__time renew_at;             /* 0: never */
    int64_t valid_ms;                /* of the last answer */
};

/* snib__login_ask - ask, or join who asks; NULL with errno.  Inside, as all that follow unless they say so. */
struct snib__question *snib__login_ask(struct snib__logins *logins);
void snib__login_drop(struct snib__logins *logins, struct snib__question **question);

/* Any thread: */
int snib__login_bell(const struct snib__question *question); /* readable when it is answered */
bool snib__login_done(const struct snib__question *question);

/* snib__login_result - of what is answered: the texts, until it is dropped; false: none, with *out_why and
 * *out_errno (0: another attempt will have none either). */
bool snib__login_result(const struct snib__question *question, const char **out_username,
                        const char **out_password, const char **out_why, int *out_errno);

/* The answer was used to log in: its end is noted. */
void snib__login_used(struct snib__logins *logins, const struct snib__question *question);

/* QUEUE: the answer to the question of that number; answer NULL: there is none. */
void snib__login_answer(struct snib__logins *logins, uint64_t number,
                        const snib_credentials *answer);

/* QUEUE: the number of a question without an answer; 0: none. */
uint64_t snib__login_open(const struct snib__logins *logins);

/* When the driver's thread has ended, outside: wait until no function of the program's runs; forget what is
 * known. */
void snib__logins_wait(const struct snib__logins *logins);
void snib__logins_end(struct snib__logins *logins);

#endif
