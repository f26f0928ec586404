/* group_sim.h - a simulated world around locks of several servers: core/api/group.c and
 * locks/group.c unchanged, engines, a model server for every node, and one thread with a virtual
 * clock instead of the driver.
 *
 * One seed decides everything.  A world has quorums, or it has multi locks, of members of two kinds, and the locks they are
 * made of.
 *
 * group_sim.c      the loop over seeds, the life of one world
 * group_net.c      nodes and connections: delay, cuts, stalls, restarts, bytes in flight
 * group_fault.c    what goes wrong, and when
 * group_process.c  processes with a client for every node; the driver's functions for group.c
 * group_task.c     the tasks in them, which use the locks as programs do
 * group_check.c    what must be true of results, and at every step
 */
#ifndef SNIB_TESTS_GROUP_SIM_H
#define SNIB_TESTS_GROUP_SIM_H

#include "api/group.h"
#include "lives.h"
#include "model_server.h"
#include "pairs.h"

#define WORLD_NODES 5
#define WORLD_NAMES 2 /* on every node */
#define WORLD_LOCKS 3
#define WORLD_PARTS (WORLD_NODES * WORLD_NAMES)
#define WORLD_SLOTS 4 /* processes at once */
#define WORLD_PROCESSES 24
#define WORLD_TASKS 3
#define WORLD_HOLDS (2 * WORLD_TASKS)
#define WORLD_PIPES 320
#define WORLD_LISTS 64
#define WORLD_START (3600000 * SNIB__MS)
#define WORLD_STEP (SNIB__MS) /* a carrier is stepped within this time after its news */

/* What a seed may switch on. */
enum world_fault {
    WORLD_DELAY,
    WORLD_CUT,
    WORLD_LATE,
    WORLD_STALL,
    WORLD_REFUSE,
    WORLD_NODE_PAUSE,
    WORLD_RESTART,
    WORLD_ERRORS,
    WORLD_CLOCK,
    WORLD_PAUSE,
    WORLD_PREEMPT,
    WORLD_KILL,
    WORLD_CLOSE,
    WORLD_CLOSE_ONE,
    WORLD_DEAD,        /* some nodes never come back */
    WORLD_ERROR_AFTER, /* an unexpected error reply, although the command was executed */
    WORLD_BUSY,
    WORLD_NOREPLICAS,
    WORLD_MASTERDOWN,
    WORLD_NO_COMMAND,  /* the user may not run one of the commands that clients use */
    WORLD_PASSWORD,    /* a node's password is changed, and later changed back */
    WORLD_RESTART_AOF, /* with all keys */
    WORLD_FAULTS
};

struct world_node {
    model *model;
    int clock_ppm; /* its clock's rate error */
    bool dead;
    snib__time paused_until, refuse_until, errors_until;
    int refuse_kind, errors_kind; /* enum world_fault: why */
    snib__time wiped_at;          /* when its memory was last lost; 0: never */
    snib__time troubled_until;    /* it was not there, or refused what clients want */
};

struct world_lock { /* the same in all processes */
    uint32_t n;
    struct {
        int node;
        unsigned names; /* set, taken by one script */
    } part[WORLD_PARTS];
    uint32_t members; /* set of node * WORLD_NAMES + name */
    snib__time lease; /* 0: renewed */
};

struct world_endpoint {
    bool connecting;
    snib__time connected_at;
    struct world_pipe *pipe;
};

struct world_peer { /* a client of a process */
    struct snib__client client;
    struct world_process *process;
    int node;
    bool inside;
    snib__time settle_at; /* when it returns after leaving early */
    struct world_endpoint links[2];
    struct snib__gate *gates[WORLD_NAMES + 1]; /* of the names, and of all names at once */
    bool unchecked; /* somebody was inside since the engine was found flawless */
    struct lives *lives;
    snib__time troubled_until; /* the way to its node, by what no client can prevent */
    bool is_known;             /* the deadline is the engine's, as nobody was inside since */
    snib__time deadline;
};

struct world_hold { /* what a process' program holds */
    struct snib__hold *hold;
    struct world_peer *home;
    const struct world_lock *lock; /* NULL: one name of one node */
    uint32_t members;
    int users;
    bool told, released;
    int extending;          /* tasks that have asked for another lease */
    snib__time lease;       /* 0: renewed */
    snib__time limit;       /* a majority's fixed lease ends by then */
    bool was_fixed;         /* now or before */
    snib__time since;       /* when it was requested */
    snib__time short_since; /* since when too few members are at the servers; 0: enough are */
    snib__time released_at;
    /* For each part: its end, if it was at its server then; 0: perhaps it was not. */
    snib__time sound_until[WORLD_PARTS];
};

enum world_doing { WORLD_RESTS, WORLD_WAITS, WORLD_HOLDS_IT, WORLD_EXTENDS, WORLD_RELEASES };

struct world_task {
    int doing;
    snib__time wake; /* its next move */
    struct snib__op *op;
    struct snib__hold *wanted; /* the hold of the acquisition in flight */
    struct world_peer *home;
    struct world_hold *hold;
    const struct world_lock *lock;
    uint32_t members;
    bool once, cancelled;
    bool rivalled;   /* another task of the process had to do with these members meanwhile */
    bool contended;  /* another owner had one of the members at its server meanwhile */
    uint32_t unmute; /* nodes that could answer at some time of the wait */
    snib__time submitted, wait_ends, known_at; /* known_at: that the lock is held; 0: not yet */
    snib__time lease;                          /* that it has asked for */
};

struct world_process {
    uint32_t id;
    bool dead, closing;
    snib__time ends_at; /* of a closing process */
    snib__time frozen_until;
    snib__time late_at;    /* when its carriers were stepped after others had run for long */
    snib__time left_until; /* a hold that it has abandoned may last so long */
    struct world_peer peers[WORLD_NODES];
    struct snib__lock locks[WORLD_LOCKS];
    struct world_task tasks[WORLD_TASKS];
    struct world_hold holds[WORLD_HOLDS];
    void *lists[WORLD_LISTS]; /* of carriers to be stepped */
    int list_count;
    snib__time step_at;
    snib__time last_tick;
    uint32_t ticks; /* at last_tick */
};

struct world_chunk {
    struct world_chunk *next;
    snib__time at;
    size_t n;
    bool end;
    char bytes[];
};

struct world_flow {
    struct world_chunk *head, *tail;
    snib__time last_at, frozen_until;
    bool ended;
};

struct world_pipe { /* one connection; the node's end may outlive the client's */
    bool used;
    struct world_peer *client; /* NULL: this end is gone */
    int link, node;
    uint64_t server; /* the model's number; 0: this end is gone */
    struct world_flow to_server, to_client;
    int cut_next; /* the next bytes in this direction are cut: 1 to the server, 2 to the client */
};

struct world_claim { /* on a name of a node */
    char owner[64];
    uint32_t process; /* and client, and number, of that owner */
    int node;
    uint64_t number;
    snib__time since;
    snib__time unwanted_since; /* 0: it is wanted */
};

struct world {
    uint64_t seed, random, hash, events;
    bool trace, calm, winding_down;
    bool focused; /* the world is about these two faults: */
    int focus[2];
    snib__time now;
    bool majority, quarantine;
    int second_kind; /* of the second name on every node; the first is a mutex */
    int node_count, lock_count, slot_count, task_count;
    uint32_t need;
    const char *password;
    struct world_node nodes[WORLD_NODES];
    struct world_lock locks[WORLD_LOCKS];
    snib__time lease, recheck, patience, reply_timeout, delay, think;
    uint32_t enabled; /* set of enum world_fault */
    snib__time calm_at, stable_at, next_fault;
    bool stepping, nested;
    struct world_process *slots[WORLD_SLOTS], *processes[WORLD_PROCESSES];
    uint32_t process_count;
    struct world_pipe pipes[WORLD_PIPES];
    struct world_pipe *pipes_end; /* those from here on were never used */
    struct world_claim claims[WORLD_NODES][WORLD_NAMES];
    snib__time served_at[WORLD_LOCKS]; /* when it was last held, or not wanted */
};

struct world_totals {
    uint64_t events, requests, granted, singles, extended, busy, timed_out, cancelled, released,
        lost, failed;
    uint64_t faults[WORLD_FAULTS];
};

extern struct world world;
extern struct world_totals world_totals;

/* group_sim.c */
uint64_t world_draw(uint64_t below);
bool world_chance(unsigned one_in);
snib__time world_between(snib__time least, snib__time most);
bool world_has(int fault);
uint64_t world_server_ns(int node, snib__time at); /* a node's clock at a true time */
void world_trace(const char *format, ...) __attribute__((format(printf, 1, 2)));
_Noreturn void world_fail(const char *format, ...) __attribute__((format(printf, 1, 2)));
void world_run_until(snib__time until);

/* group_net.c */
void net_connect(struct world_peer *peer, int link);
void net_close(struct world_peer *peer, int link);
void net_send(struct world_peer *peer, int link, const char *bytes, size_t n);
void net_node_died(int node);
void net_heal(void);
struct world_pipe *net_pick(void); /* a connected pipe, or NULL */
snib__time net_next(void);
bool net_run(void); /* one event that is due; false: there is none */
void net_free(void);

/* group_fault.c */
void fault_plan(void);
bool fault_is_focus(int fault);
void fault_happens(int fault); /* count one that happens elsewhere */
void fault_until(snib__time *until,
                 snib__time end); /* something is disturbed at least until then */
void fault_answered(void);        /* nodes have answered: with which faults? */
snib__time fault_next(void);
void fault_run(void);
void fault_end_all(void);

/* group_process.c */
struct world_process *process_new(int slot);
void process_kill(struct world_process *process);
void process_close(struct world_process *process);
void process_close_peer(struct world_peer *peer);
void process_free(struct world_process *process);
bool process_is_idle(const struct world_process *process);
snib__time process_next(struct world_process *process);
void process_run(struct world_process *process); /* what is due */
void peer_enter(struct world_peer *peer);
void peer_leave(struct world_peer *peer);
/* ... without delivering completions: another thread comes in between. */
void peer_leave_early(struct world_peer *peer);

/* group_task.c */
void task_move(struct world_process *process, struct world_task *task); /* when its time has come */
void task_done(struct world_process *process, struct snib__op *op);
void task_lost(struct world_process *process, struct snib__hold *hold);
void task_leave_all(struct world_process *process); /* the program ends */

/* group_check.c */
bool check_is_valid(const struct world_hold *hold);
void check_step(void);
void check_releasing(struct world_hold *hold); /* right before */
void check_result(const struct world_process *process, struct world_task *task, int32_t code);
void check_lost(const struct world_hold *hold);
void check_extended(struct world_hold *hold, const struct world_task *task, int32_t code);
void check_end(void);

#endif
