/* party.h - one client in the hands of a fuzz target: a real engine, with every call watched.
 *
 * Before and after each call into the engine the party checks what must always be true: its structures are
 * whole (tests/sim/engine_check.c), an operation ends once, a lost hold stays lost, a hold that counts as
 * safe is not over, and no deadline is later than the send of an answered request plus the lease.
 */
#ifndef SNIB_TESTS_FUZZ_PARTY_H
#define SNIB_TESTS_FUZZ_PARTY_H

#include "fuzz.h"

#include "engine/internal.h"
#include "net/script.h"

#define SECOND (1000 * SNIB__MS)
#define START (100 * SECOND)
#define PARTY_GATES 16
#define PARTY_OPS 16
#define PARTY_HOLDS 24
#define PARTY_PIPES 48
#define PARTY_PENDING (64 * 1024) /* bytes on their way to the client */

enum pipe_state { PIPE_DOWN, PIPE_CONNECTING, PIPE_UP };

struct pipe { /* the transport of a link */
    struct snib__link *link;
    enum pipe_state state;
    uint64_t server; /* the model's connection; 0: none */
    struct snib__buf pending;
};

struct party_hold {
    struct snib__hold *hold; /* NULL: a free place */
    uint32_t users;
    bool lost;
};

struct party_bound { /* what a gate's holds may count from, before a call */
    const struct snib__gate *gate;
    snib__time held;   /* the latest deadline of those that are held */
    snib__time placed; /* when the newest answered request of a waiter with a place was sent */
};

struct party {
    struct snib__engine *e;
    snib__time now;
    struct snib__gate *gates[PARTY_GATES];
    struct snib__op *ops[PARTY_OPS];
    struct snib__hold *released[PARTY_OPS]; /* by the operation at that place; NULL */
    struct party_hold holds[PARTY_HOLDS];
    struct pipe pipes[PARTY_PIPES];
    uint64_t commands; /* taken from its output */
    snib__time ticked_at;
    uint32_t ticks; /* at that moment */
    /* before a call */
    snib__time newest; /* the last request in flight, by when it was sent */
    struct party_bound bounds[3 * PARTY_GATES];
    uint32_t bounds_n;
    void (*hung_up)(struct pipe *pipe); /* the client has closed a connection; NULL */
    void (*ended)(struct party *p, const struct snib__op *op); /* an operation; NULL */
};

struct snib__config party_config(void);
void party_begin(struct party *p, const struct snib__config *config);
void party_end(struct party *p); /* close, give everything back, free */

struct snib__gate *party_gate(struct party *p, unsigned at, int32_t kind, const char *name,
                              size_t n);

/* What a program does.  Without room for another operation nothing happens. */
void party_acquire(struct party *p, struct snib__gate *gate, const struct snib__acquire *how);
void party_ask(struct party *p, unsigned what, struct snib__gate *gate, int64_t n);
void party_cancel(struct party *p, unsigned which);
void party_release(struct party *p, unsigned which);
void party_drop(struct party *p, unsigned which);
void party_drop_all(struct party *p);
void party_abandon(struct party *p, unsigned which);
void party_close(struct party *p);
void party_look(struct party *p); /* at the state of every hold */

/* Time. */
void party_tick(struct party *p);
void party_pass(struct party *p, snib__time span); /* without a tick: it was stopped */
snib__time party_next(struct party *p);            /* the deadline, not before now */

/* The network. */
void party_wishes(struct party *p);
struct pipe *party_pipe(struct party *p, unsigned which); /* NULL: there is none */
void party_up(struct party *p, struct pipe *pipe);
void party_down(struct party *p, struct pipe *pipe, int32_t code, int os_error);
void party_send(struct pipe *pipe, const char *bytes, size_t n);    /* to the client */
size_t party_deliver(struct party *p, struct pipe *pipe, size_t n); /* at most n of the pending */

struct word {
    const char *p;
    size_t n;
};
#define COMMAND_WORDS 6

struct command { /* the next in a link's output */
    unsigned argc;
    struct word word[COMMAND_WORDS];
    size_t bytes;
};

bool party_command(struct party *p, struct pipe *pipe, struct command *out);
void party_took(struct party *p, struct pipe *pipe, const struct command *command);
bool word_is(struct word word, const char *text);

/* A good server's reply, up to cap bytes; `mode` as in INFO.  p and pipe may be NULL. */
size_t party_reply(const struct party *p, const struct pipe *pipe, const struct command *command,
                   const char *mode, char *out, size_t cap);

#endif
