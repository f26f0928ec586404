/* top.h - what snib top and snib stats remember, and how it is shown. */
#ifndef SNIB__CLI_TOP_H
#define SNIB__CLI_TOP_H

#include "cli.h"

#include <time.h>

#define LOCKS_MAX 5000 /* locks to remember */

struct lock {
    char *name;
    char kind[8]; /* "": it is free */
    int64_t holders;
    int64_t total;    /* permits, else CLI_UNTOLD */
    int64_t waiting;  /* processes; -1 unknown */
    int64_t left_ms;  /* of the lease that ends first; -1 none */
    int64_t token;    /* CLI_UNTOLD: none */
    int64_t changes;  /* since it was asked about before, at least; CLI_UNTOLD: unknown */
    uint64_t *owners; /* hashes of the holders */
    size_t owners_n;
    char client[37]; /* of the only holder; "": there is none, are several, or it is no client's */
    struct identity *holder; /* its process; NULL: not known */
    int64_t told;            /* the refresh in which the process said so */
    int64_t asked;           /* the number of the refresh that asked; 0: not yet */
    int64_t asked_ns;
    int64_t found;  /* the last refresh whose search has found it */
    bool is_missed; /* the last search over all keys has not, nor has it been there since */
    int free_n; /* times in a row that it was free: when asked about or, once it is missed, in a search */
};

enum phase { SEARCHING, ASKING, ASKING_HOLDERS, SHOWN };

struct top {
    const struct cli *cli;
    snib_client *client;
    snib_queue *queue;
    char *address;
    bool has_screen;
    struct lock *locks[LOCKS_MAX]; /* sorted by name */
    size_t locks_n;
    struct lock *turn[LOCKS_MAX]; /* those to ask about in this refresh */
    size_t turn_n;
    size_t turn_at;                /* the next one */
    struct lock *shown[LOCKS_MAX]; /* the locks that there were after the last refresh, in order */
    size_t shown_n;
    size_t old_n;      /* of them that it has not asked about */
    bool was_complete; /* its search saw all keys */
    bool was_full;     /* and more locks than are remembered */
    size_t open_n;     /* questions under way */
    size_t window;     /* at most so many */
    size_t answers_n, failures_n;
    enum phase phase;
    int64_t refresh;      /* its number, from 1 */
    int64_t holders_from; /* the first refresh that asks for processes again */
    int64_t begun_ns, heard_ns, next_ns;
    int steps_n;
    uint64_t cursor;
    int64_t search_from; /* the refresh in which the search began with the first key */
    bool is_broken;      /* it has not seen all keys since: a node has not answered */
    bool is_from_start;  /* this refresh's search began with the first key */
    bool is_complete;    /* and has ended with the last one */
    bool is_full;        /* there were more locks than are remembered */
    time_t shown_at;     /* when the last refresh ended that had answers; 0: none has yet */
    snib_error err;      /* of this refresh; code SNIB_OK: none */
    snib_error told;     /* shown until a refresh has ended without any */
    size_t told_n;       /* questions that failed, although others were answered */
    struct stats
        *stats; /* of snib stats, which shows what was found in its own way; NULL: snib top */
};

/* top_run - what a command does that shows these locks.  Returns the exit code. */
int top_run(const struct cli *cli, struct stats *stats);

/* top.c */
void top_fail(struct top *top, int32_t code, const char *text);
/* The next question was refused: whether that is only because of those under way, and it is the next one again when one
 * of them has been answered. */
bool top_postpone(struct top *top, int result);

/* top_locks.c */
/* A search begins with the first key, finds names, and ends with the last key: locks that it has not found, and that
 * nobody waits for, are free. */
void top_begin_search(struct top *top);
void top_add_names(struct top *top, const snib_texts *texts);
void top_end_search(struct top *top);
/* All locks, in the order of their turns to be asked about, in `turn`. */
void top_sort_turn(struct top *top);
/* What the server knows about the lock by now; result: SNIB_OK, or SNIB_ENAME without a description. */
void top_take_description(const struct top *top, struct lock *lock, int result,
                          const struct description *description);
/* Choose what is shown, in its order; forget locks that have been free for long. */
void top_choose(struct top *top);

/* top_holder.c */
/* The owner of the only holder; NULL: there is none, or are several. */
void top_note_holder(struct lock *lock, const char *owner);
/* Choose which locks' holders to ask about now, in `turn`; of snib stats, all clients that it has met. */
void top_begin_holders(struct top *top);
void top_ask_holder(struct top *top); /* the next one */
/* The answer, or that there is none. */
void top_hear_holder(struct top *top, const snib_event *event);

/* top_show.c */
/* Whether there is room on a screen of this width for what a holder says of itself: at least for its losses. */
bool top_has_losses(int columns);
/* Everything as lines, of at most this many columns and rows; to be freed.  is_screen: for a terminal. */
char *top_lines(const struct top *top, int columns, int rows, bool is_screen);
void top_print_json(const struct top *top);
void top_draw(const struct top *top);     /* on the screen, if there is one */
void top_put(const char *text, size_t n); /* on standard output; a signal may end it */

/* stats.c */
/* Remember the clients that a description names. */
void stats_note(struct stats *stats, const struct description *description);
/* The clients, each once, to be asked what their processes are.  Returns their number. */
size_t stats_clients(struct stats *stats);
const char *stats_client(const struct stats *stats, size_t i); /* its UUID */
void stats_hear_client(struct stats *stats, size_t i, const snib_texts *texts);
/* Show everything.  code: 0, or the exit code of what went wrong.  Returns the exit code. */
int stats_end(const struct top *top, int code);

#endif
