/* say.h - the sentence that describes a result. */
#ifndef SNIB__SAY_H
#define SNIB__SAY_H

#include "api/objects.h"

/* The result that the sentence describes. */
struct snib__told {
    int32_t code;
    int32_t os_error;
    int32_t cause;     /* a code: why there is no connection; 0 unknown */
    int32_t reason;    /* SNIB_LOST: enum snib_reason */
    const char *words; /* the server's, or the client's own; NULL: none */
    const char *where; /* the address of the server; NULL: the client's */
    bool unserved;     /* SNIB_ECONNECT: the server is connected, and does not serve the lock */
    bool unconfirmed;  /* SNIB_EUNREACHABLE: this client's earlier release is not confirmed */
    bool explained;    /* the words are the whole sentence */
    int32_t server;    /* ... in which the server's own words begin here; 0: there are none */
};

/* A member's sentence, which becomes part of that of a lock on several servers. */
#define SNIB__SAY_MEMBER 336

/* snib__say - write one sentence into out: the lock and its kind, what happened, at which server or
 * why, and the server's own words.  gate NULL: no lock is concerned.  The gate must stay valid
 * meanwhile.  What is too long for cap, at least SNIB__SAY_MEMBER, is shortened where it names things and quotes
 * others: nowhere else, nor at its end.  Returns where the server's own words begin; 0: there are none. */
int32_t snib__say(char *out, size_t cap, const struct snib__client *client,
                  const struct snib__gate *gate, const struct snib__told *told);

#define SNIB__SAY_LOCK 128 /* room for it */
/* snib__say_lock - a lock's kind and name; for a multi lock, the first member's name.  Returns the length. */
size_t snib__say_lock(char *out, size_t cap, const struct snib__gate *gate);

/* snib__fail_told - the same into *err, with the code, which is returned. */
int snib__fail_told(snib_error *err, const struct snib__client *client,
                    const struct snib__gate *gate, const struct snib__told *told);

/* snib__fail_lock - put a lock's kind and name in front of the sentence in *err, which the caller has written about an
 * argument; snib__fail_kind does it for a lock that is not made yet.  Return the code; nothing is done if it is SNIB_OK. */
int snib__fail_lock(snib_error *err, const struct snib__gate *gate, int code);
int snib__fail_kind(snib_error *err, int32_t kind, const char *name, size_t n, int code);

#endif
