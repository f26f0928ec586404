/* sim.h - a simulated world around the engine: processes, a network, one server, and perfect knowledge.
 *
 * One seed decides everything.  Time is virtual; whatever happens, happens at one of the moments that
 * sim.c's loop visits: a process' deadline, a task's next move, the arrival of bytes, a fault.
 *
 * sim.c        the loop over seeds, the life of one world
 * sim_net.c    connections: delay, slices, cuts, stalls, what becomes of bytes in flight
 * sim_fault.c  what goes wrong, and when
 * sim_task.c   processes and the tasks in them, which use locks as programs do
 * sim_check.c  what must be true at every step
 */
#ifndef SNIB_TESTS_SIM_H
#define SNIB_TESTS_SIM_H

#include "engine/engine.h"
#include "model_server.h"

#define SIM_SLOTS 4      /* processes at once */
#define SIM_PROCESSES 64 /* processes in a seed, ended ones included */
#define SIM_TASKS 4      /* tasks of a process */
#define SIM_NAMES 3
#define SIM_PIPES 96
#define SIM_HOLDS (2 * SIM_TASKS)
#define SIM_RETRY (500 * SNIB__MS) /* the engine's, between releases that the server refuses */
#define SIM_FIRST_NUMBER 100000000000ULL
#define SIM_START (3600000 * SNIB__MS)

/* What a seed may switch on. */
enum sim_fault {
    FAULT_DELAY,
    FAULT_SLICE,
    FAULT_CUT,
    FAULT_LATE,
    FAULT_STALL,
    FAULT_REFUSE,
    FAULT_SERVER_PAUSE,
    FAULT_CLIENT_PAUSE,
    FAULT_SCRIPT_FLUSH,
    FAULT_RESTART,
    FAULT_EVICT,
    FAULT_OVERWRITE,
    FAULT_MUTE,
    FAULT_NO_CHANNELS,
    FAULT_OOM,
    FAULT_READONLY,
    FAULT_LOADING,
    FAULT_MISCONF,
    FAULT_CLOCK,
    FAULT_FORCE,
    FAULT_CLOSE,
    FAULT_CRASH,
    FAULT_COUNT
};

/* Why an owner's field left the server. */
enum sim_cause {
    CAUSE_NONE,
    CAUSE_EXPIRED,
    CAUSE_RELEASED,
    CAUSE_TRANSFERRED,
    CAUSE_FORCED,
    CAUSE_MEMORY, /* evicted, overwritten, or the server was restarted */
    CAUSE_OTHER   /* a command that has no business to end a hold */
};

/* All that is known of one owner number: "<uuid>:<number>". */
struct sim_owner {
    int name;
    bool at_server;
    bool abandoned;   /* the operation ended without it */
    bool closed;      /* its hold was valid when its client was closed */
    int ended;        /* enum sim_cause of the last time it left the server */
    snib__time since; /* of at_server's value */
    snib__time abandoned_at, first_sent;
    snib__time lease;
    uint32_t attempts, releases, renewals; /* requests sent */
    uint32_t messages_before, connects_before;
};

struct sim_hold { /* what the program of a process has in its hands */
    struct snib__hold *hold;
    uint64_t number;
    int name;
    int users; /* tasks that acquired it */
    bool told, released;
};

enum sim_doing { DOING_NOTHING, DOING_WAIT, DOING_HOLD, DOING_RELEASE, DOING_ASK };

struct sim_task {
    int doing;
    snib__time wake; /* next move of its own */
    struct snib__op *op;
    struct sim_hold *hold;
    int name;
    uint64_t owner;
    uint64_t number; /* of the acquisition on its way; 0 a re-entry may come */
    uint64_t order;  /* of submission */
    bool once, cancelled;
    snib__time submitted, wait_ends;
    char *names; /* buffer of a list */
};

struct sim_endpoint {
    bool connecting;
    snib__time connected_at; /* or will be; the last time */
    struct sim_pipe *pipe;
};

struct sim_process {
    struct snib__engine *engine; /* NULL: gone */
    uint32_t id;
    char uuid[37];
    struct snib__gate *gates[SIM_NAMES];
    struct sim_endpoint links[2];
    struct sim_task tasks[SIM_TASKS];
    struct sim_hold holds[SIM_HOLDS];
    struct sim_owner *owners; /* by number - SIM_FIRST_NUMBER */
    uint32_t owner_cap;
    uint32_t connects;
    snib__time free_at[SIM_NAMES]; /* its last hold of this name was lost or left */
    snib__time frozen_until;
    snib__time
        gone_at; /* a closing process ends now at the latest; SNIB__NEVER: it is not closing */
    snib__time last_tick;
    uint32_t ticks; /* at last_tick */
};

struct sim_chunk {
    struct sim_chunk *next;
    snib__time at;
    size_t n;
    bool end;
    char bytes[];
};

struct sim_flow {
    struct sim_chunk *head, *tail;
    snib__time delay, last_at, frozen_until;
    bool ended;
};

struct sim_pipe { /* one connection; it lives on at the server when the client's end is gone */
    bool used;
    struct sim_process *client; /* NULL: its end is gone */
    int link;
    uint64_t server; /* the model's number; 0: its end is gone */
    struct sim_flow to_server, to_client;
    int cut_next; /* the next bytes in this direction are cut: 1 to the server, 2 to the client */
};

struct sim_name {
    const char *text;
    size_t n;
    struct sim_process *process; /* whose owner is at the server */
    uint64_t number;             /* 0: nobody's */
    snib__time since;            /* of process and number */
    int cause;                   /* of the last change */
    uint32_t messages;           /* published so far */
};

struct sim {
    uint64_t seed, random, hash;
    bool trace;
    snib__time now;
    model *model;
    int clock_ppm; /* the server's clock rate error */
    int database;
    const char *password;
    snib__time lease, recheck, patience, reply_timeout, delay, pubsub_delay;
    int32_t handover_max;
    unsigned enabled; /* set of enum sim_fault */
    bool calm, winding_down;
    snib__time calm_at, stable_at; /* nothing is disturbed from stable_at on */
    snib__time next_fault, disturbed_until;
    snib__time server_paused_until, refuse_until, server_faults_until;
    unsigned server_faults;
    struct sim_name names[SIM_NAMES];
    int name_count, slot_count, task_count;
    snib__time think;  /* between two doings of a task, at most */
    snib__time prompt; /* a free lock is taken by a waiter who has heard of it within this time */
    struct sim_process *slots[SIM_SLOTS];
    struct sim_process *processes[SIM_PROCESSES];
    uint32_t process_count;
    struct sim_pipe pipes[SIM_PIPES];
    uint64_t order;
    uint64_t events;
};

struct sim_totals {
    uint64_t events, requests;
    uint64_t faults[FAULT_COUNT];
    uint64_t granted, reentered, handed_over, refused, timed_out, cancelled, released, lost, failed;
};

extern struct sim sim;
extern struct sim_totals totals;

/* sim.c */
uint64_t sim_draw(uint64_t below);
bool sim_chance(unsigned one_in);
snib__time sim_between(snib__time least, snib__time most);
bool sim_has(int fault);
uint64_t sim_server_ns(snib__time at); /* the server's clock at a true time */
void sim_mix(uint64_t value);          /* into the trace hash */
void sim_trace(const char *format, ...) __attribute__((format(printf, 1, 2)));
_Noreturn void sim_fail(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* sim_net.c */
void net_connect(struct sim_process *process, int link);
void net_close(struct sim_process *process, int link);
void net_send(struct sim_process *process, int link, const char *bytes, size_t n);
void net_server_died(void);
void net_heal(void);
struct sim_pipe *net_pick(void); /* a connected pipe, or NULL */
void net_collect(void);          /* what the server has written goes on its way */
snib__time net_next(void);
bool net_run(void); /* one event that is due; false: there is none */
void net_free(void);

/* sim_fault.c */
void fault_plan(void);
snib__time fault_next(void);
void fault_run(void);
void fault_end_all(void);
void fault_until(snib__time until); /* the world is disturbed at least until then */

/* sim_task.c */
struct sim_process *process_new(int slot);
void process_end(struct sim_process *process); /* without a word, as by kill -9 */
void process_close(struct sim_process *process);
void process_pump(struct sim_process *process);
snib__time process_next(const struct sim_process *process);
void process_run(struct sim_process *process); /* what is due */
void process_free(struct sim_process *process);
bool process_is_idle(const struct sim_process *process);

/* sim_check.c */
struct sim_owner *check_owner(struct sim_process *process, uint64_t number);
void check_sent(struct sim_process *process, const char *bytes, size_t n);
void check_executed(void *context, uint64_t connection, const model_text *argv, size_t argc);
void check_truth(int cause); /* look at what the server has, and why it changed */
void check_step(void);
void check_granted(struct sim_process *process, struct sim_task *task, const struct sim_hold *hold);
void check_not_granted(struct sim_process *process, const struct sim_task *task, int32_t code);
void check_released(struct sim_process *process, const struct sim_hold *hold, int32_t code);
void check_lost(struct sim_process *process, const struct sim_hold *hold);
void check_closed(struct sim_process *process);
void check_end(void);

#endif
