/* ask.h - what a LIST, DESCRIBE, SERVER, COUNT, EXTEND, IDENTITY or LOAD operation carries. */
#ifndef SNIB__ASK_H
#define SNIB__ASK_H

#include "net/time.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "snib.h"

struct snib__op;
struct snib__hold;

struct snib__asked {
    uint64_t
        cursor; /* LIST, LOAD in: where to continue; out: where to continue next, 0 at the end; of a
                   LIST that failed, without its node */
    int64_t n;  /* COUNT; EXTEND: the lease in ms, 0: the client's, renewed */
    struct snib__hold *hold; /* EXTEND: has been recycled if it has another number */
    uint64_t number;         /* EXTEND */
    snib__time acquired_at;  /* EXTEND: a number may go on to the next hold, see tenure.c */
    int64_t least_ms;        /* EXTEND: what the hold's present deadline needs */
    snib__time sent_at;      /* EXTEND: out, when the request was sent that was granted */
    bool only;               /* EXTEND: its caller applies it */
    bool unsure;             /* EXTEND: an earlier request may have been carried out */
    uint32_t permits;        /* EXTEND, of a hold that has permits */
    /* COUNT: enum snib_count; SERVER: enum snib_server; LOAD: enum snib_kind, 0: all */
    int32_t what;
    size_t cap;        /* LIST, DESCRIBE, SERVER, IDENTITY, LOAD: the most bytes of text */
    snib_texts *texts; /* their result, until the caller takes it */
    size_t text_len;   /* LIST: the pattern; DESCRIBE: the name; IDENTITY: the key */
    char text[];
};

/* Whether a query must not be repeated when its reply is lost, because it changes something. */
bool snib__ask_once(const struct snib__op *op);

/* Frees the payload with its result. */
void snib__asked_free(struct snib__asked *asked);

#endif
