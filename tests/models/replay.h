/* replay.h - the steps of a model, taken again by the real core.
 *
 * Spin simulates a model and prints a line "@ STEP ARGUMENTS..." for each step, and "@ is ..." for what can be observed
 * behind it.  One file a model, replay_NAME.c, has a function for each of these words.  It takes the same step with
 * real engines and the model server of tests/sim, which runs the real scripts, and compares.
 *
 * replay.c         reads the trace
 * replay_world.c   engines, a server, and connections on which everything waits until the trace moves it
 */
#ifndef SNIB_TESTS_REPLAY_H
#define SNIB_TESTS_REPLAY_H

#include "../../core/testing/model_server.h"
#include "engine/internal.h"
#include "engine/route.h"
#include "net/script.h"
#include "snib.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SECOND (1000 * SNIB__MS)
#define LEASE (30 * SECOND)
#define CLIENTS 2
#define CLIENTS_MAX 3 /* a third one is made by client_again */
#define ENGINES 8     /* of them, and of quorum.pml */
#define SERVERS 3
#define NUMBERS 256

/* ---- replay.c: the trace --------------------------------------------------------------------------- */

struct step {
    const char *name; /* NULL: end of the list */
    void (*take)(void);
};

struct replay {
    const char *model;
    void (*begin)(void);
    const struct step *steps;
};

extern const struct replay replay_cleanup, replay_failover, replay_fair, replay_hold, replay_quorum,
    replay_renewal, replay_roles, replay_rw, replay_tenure, replay_wakeup;

int arg(int index);          /* of the present line, from 0 */
const char *word(int index); /* the same, as text */

/* differ - the core does not do what the model does. */
_Noreturn void differ(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* broken - the replay itself is wrong. */
_Noreturn void broken(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* same - a value in the model and in the core. */
void same(int client, const char *what, int64_t wanted, int64_t core);

/* ---- replay_world.c -------------------------------------------------------------------------------- */

struct bytes {
    char *p;
    size_t n, cap;
};

struct wire {            /* a connection */
    uint64_t connection; /* the server's number; 0: there is none */
    struct bytes sent;   /* not read by the server yet */
    struct bytes back;   /* not read by the client yet ... */
    size_t ends[64];     /* ... in these pieces */
    int pieces;
};

struct former {          /* what was left on a connection that the client has lost */
    uint64_t connection; /* 0: nothing */
    struct bytes sent;
};

struct client {
    struct snib__engine *engine;
    int at; /* its server */
    snib__time now;
    struct wire wires[2]; /* by enum snib__link_kind */
    struct former former;
    struct snib__gate *gate;
    struct snib__op *op;     /* its acquire or its release, while it runs */
    struct snib__hold *hold; /* NULL: none, or given back */
    int32_t code;            /* of the operation that ended last */
};

extern struct client clients[ENGINES];
extern model *servers[SERVERS]; /* failover.pml has two, quorum.pml three, the others the first */
#define server (servers[0])
extern uint64_t server_now;
extern bool real_links; /* they connect by themselves */

/* world_begin - a server and connected clients with one mutex. */
void world_begin(int kind, unsigned faults);
void world_end(void);
void world_add(int index, int kind, int at); /* one more client, of this server */
/* Who hears of what an engine has finished, if not collect(). */
extern void (*leave)(struct client *c);
struct client *client_of(const struct snib__engine *engine);
struct client *client_at(int index);    /* the client that argument `index` of the line names */
void client_again(int index, int kind); /* another process, with nothing of the former one */

void start(struct client *c, struct snib__acquire how);
void cancel(struct client *c);
void release(struct client *c); /* the hold is dropped when the release has ended */
void drop(struct client *c);
void note_owner(struct client *c, int number);
const char *owner_of(int number); /* on the wire; NULL: nobody */
void collect(struct client *c);   /* finished operations */
bool is_valid(const struct client *c);

void link_open(struct client *c, int link);
void move(struct client *c, int to);
/* left: the server will still read the first request that it has not read. */
void link_cut(struct client *c, int link, bool left);

/* execute - the server reads the next request; an enum snib__script, or -1. */
int execute(struct client *c, int link);
int execute_former(struct client *c);
bool is_left(const struct client *c); /* on the former connection */
void same_request(const char *kind, int script);
bool said_yes(void); /* the reply to what was executed last */
void read_reply(struct client *c, int link);
void flush(struct client *c); /* what the engine wants to send goes onto the wires */
void tick(struct client *c);  /* whatever is due by its clock */
void settle(struct client *c);
int32_t ask(struct client *c, struct snib__op *op, struct snib__hold **out);
int on_its_way(const struct client *c, int request_kind);

void server_tick(snib__time span);
uint64_t server_ms(void); /* since the epoch */
int ticks_left(const model_key *key, snib__time span);
int whose(void); /* the client that holds the lock at the server; -1: nobody */
/* The owner of the lock at the server, and its lease in ticks of this length. */
void same_at_server(const char *owner, int left, snib__time span);
void same_at(model *which, const char *owner, int left, snib__time span);

#endif
