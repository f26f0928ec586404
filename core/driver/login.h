/* login.h - the credentials of a client's connections, if they are requested at each connect.
 *
 * A client that was given its password keeps it, because it may have to reconnect.  A client that
 * was given a file, a function or a queue keeps none: a socket asks a question when it begins to
 * connect, and needs the answer once it is connected, or the attempt fails.  There is one question
 * at a time: sockets that come meanwhile wait for the same answer, and a function that hangs costs
 * one thread.  The answer is wiped when the last of them has logged in.  One that comes after the
 * attempts have ended serves the next.
 *
 *     source   answered by
 *     FILE     a thread that reads it, because disks can be slow
 *     CALL     a thread on which the program's function runs
 *     QUEUE    the consumer of the queue; no function of the program is called
 *
 * If an answer expires, the question is asked again after four fifths of its lifetime, but not within
 * half a second, and all connections log in again.
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
    const char *username; /* unless an answer has one; NULL: none.  The caller owns the texts */
    const char *file;
    snib_credentials_fn call;
    void *data;
    /* below: guarded by the client's mutex */
    struct snib__question *asking;   /* the pending one, or one whose answer was not used */
    struct snib__question *renewing; /* for existing connections */
    uint64_t asked;                  /* number of the last question */
    bool untold;                     /* the queue has not been told yet */
    snib__time renew_at;             /* 0: never */
    int64_t valid_ms;                /* of the last answer */
};

/* snib__login_ask - ask a question, or share `asking`; NULL with errno.  Inside, like all
 * functions below unless they say otherwise. */
struct snib__question *snib__login_ask(struct snib__logins *logins);
void snib__login_drop(struct snib__logins *logins, struct snib__question **question);

/* Any thread: */
int snib__login_bell(const struct snib__question *question); /* readable when it is answered */
bool snib__login_done(const struct snib__question *question);

/* snib__login_result - the texts of an answered question, valid until it is dropped; false: there
 * are none, with *out_why and *out_errno (0: a retry would fail, too). */
bool snib__login_result(const struct snib__question *question, const char **out_username,
                        const char **out_password, const char **out_why, int *out_errno);

/* Record that the answer was used to log in, and when it expires. */
void snib__login_used(struct snib__logins *logins, const struct snib__question *question);

/* QUEUE: answer the question of that number; answer NULL: there is none. */
void snib__login_answer(struct snib__logins *logins, uint64_t number,
                        const snib_credentials *answer);

/* QUEUE: the number of a question without an answer; 0: none. */
uint64_t snib__login_open(const struct snib__logins *logins);

/* CALL: a reference to the question that the program's function is answering; NULL: it does not run. */
struct snib__question *snib__login_running(const struct snib__logins *logins);
/* Outside: wait until it has, and drop it.  NULL is fine. */
void snib__login_await(struct snib__question *question);

/* After the driver's thread has ended, outside: drop the questions. */
void snib__logins_end(struct snib__logins *logins);

#endif
