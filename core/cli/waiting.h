/* waiting.h - what a lock is waited for: the server is asked after a second, and its answer told once. */
#ifndef SNIB_WAITING_H
#define SNIB_WAITING_H

#include "cli.h"

struct waiting {
    const struct cli *cli;
    snib_client *const *clients; /* of the servers */
    snib_queue *const *queues;
    uint64_t token;  /* of the questions */
    int64_t next_ns; /* when to ask; INT64_MAX: not now, or never again */
    int at; /* the name that is asked about, or the server of a quorum that is asked; -1: ended */
    int rounds; /* that have ended */
    /* why a holder is unknown in this round; "": none is */
    char why[sizeof((snib_error *)0)->text];
    const char *unknown; /* of this name */
    /* the first holder and their number, while the server is asked which process it is; 0: it is not */
    struct row holder;
    int64_t holders;
};

/* waiting_begin - the lock is waited for from now on. */
void waiting_begin(struct waiting *waiting, const struct cli *cli, snib_client *const *clients,
                   snib_queue *const *queues, uint64_t token);

/* waiting_end - there is nothing to tell any more. */
void waiting_end(struct waiting *waiting);

/* waiting_left_ms - until waiting_look() has something to do; -1: for ever. */
int waiting_left_ms(const struct waiting *waiting);

/* waiting_look - ask, if it is time. */
void waiting_look(struct waiting *waiting);

/* waiting_hear - an event with the token, the answer to a question. */
void waiting_hear(struct waiting *waiting, const snib_event *event);

#endif
