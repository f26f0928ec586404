/* take.h - the lock's side of run and hold: it is taken, watched and released.
 *
 * The caller's loop polls the descriptor, for as long as take_left_ms() says, and then calls take_look(). */
#ifndef SNIB_TAKE_H
#define SNIB_TAKE_H

#include "waiting.h"

struct take {
    const struct cli *cli;
    snib_client *clients[CLI_URLS_MAX]; /* one for each server */
    snib_queue *queues[CLI_URLS_MAX];   /* of the clients; the first one's gets the hold */
    int clients_n;
    snib_lock *locks[CLI_NAMES_MAX]; /* one for each name, or for each server of a quorum */
    int locks_n;
    int counted_n;   /* locks whose number of permits was asked for */
    snib_lock *lock; /* all of them */
    int set;         /* of the queues' descriptors (epoll) */
    struct waiting waiting;
    snib_hold *hold; /* NULL: not granted yet */
    bool is_lost;    /* and reported */
    bool is_used;    /* run: COMMAND runs under it */
};

/* take_open - open what the command line names, and start to acquire it.  Returns -1, or an exit code after
 * reporting the error. */
int take_open(struct take *take, const struct cli *cli);

/* take_left_ms - until take_look() has something to do in any case; -1: no limit. */
int take_left_ms(const struct take *take);

/* take_fd - readable when take_look() has something to do. */
int take_fd(const struct take *take);

/* take_look - handle what has happened to the lock: afterwards there may be a hold, or it may be lost.  Returns -1,
 * or an exit code after reporting why the lock was not granted. */
int take_look(struct take *take);

/* take_check - ask whether the hold is lost by now. */
void take_check(struct take *take);

/* take_continued - the same, after SIGCONT: a lease that has ended without an answer may have ended because this process
 * was stopped. */
void take_continued(struct take *take);

/* take_lose - the lock is lost; report it, once. */
void take_lose(struct take *take, const char *why);

/* take_lose_unused - the same before COMMAND could start. */
void take_lose_unused(struct take *take);

/* take_release - release the hold.  signals: of signals_open(); if one of them asks to end, it waits for an answer no
 * longer than a second.  SNIB_OK; SNIB_LOST after reporting it; or an error with *err. */
int take_release(struct take *take, int signals, snib_error *err);

/* take_close - end everything, and report the remaining log records. */
void take_close(struct take *take);

#endif
