/* sim.h - a simulated world around the engine: processes, a network, one server, and full knowledge
 * of its state.
 *
 * One seed decides everything.  Time is virtual: everything happens at one of the moments that
 * sim.c's loop visits: a process' deadline, a task's next move, the arrival of bytes, a fault.
 *
 * sim.c          the loop over seeds, the life of one world
 * sim_net.c      connections: delay, slices, cuts, stalls, the fate of bytes in flight
 * sim_fault.c    what goes wrong, and when
 * sim_memory.c   the clients' memory, which may run out
 * sim_clock.c    the server's wall clock, which may be set, and what clients conclude from it
 * sim_process.c  processes: an engine each, its driver, and what becomes of its results
 * sim_task.c     the tasks in them, which use locks of every kind as programs do
 * sim_redisson.c other clients of the same names, which follow Redisson's steps
 * sim_truth.c    what the server has, read from its keys, and why it changed
 * sim_keys.c     which keys belong to which lock; an operator who maintains numbers
 * sim_queue.c    the fair lock's queue at the server
 * sim_crowd.c    worlds in which all tasks want one lock all the time: each process must have turns
 * sim_request.c  what every request says, when it leaves a process and when the server executes it
 * sim_result.c   what results may claim
 * sim_check.c    what must be true at every step, and at the end
 */
#ifndef SNIB_TESTS_SIM_H
#define SNIB_TESTS_SIM_H

#include "engine/engine.h"
#include "model_server.h"
#include "pairs.h"

#define SIM_SLOTS 4      /* processes at once */
#define SIM_PROCESSES 64 /* processes in a seed, ended ones included */
#define SIM_TASKS 4      /* tasks of a process */
#define SIM_NAMES 3
#define SIM_SIDES 2  /* a read/write lock has two */
#define SIM_MULTIS 2 /* multi locks of a process: the names in both orders */
#define SIM_PEERS 2  /* clients other than Snib's */
#define PEER_THREADS 2
#define SIM_UNEQUAL 3 /* at most, the longest lease of a client divided by the shortest */
#define SIM_PERMITS 4 /* at once, at most */
#define SIM_CLAIMS 64
#define SIM_PLACES 256
#define SIM_PIPES 96
#define SIM_HOLDS (2 * SIM_TASKS)
#define SIM_MARK (5000 * SNIB__MS)      /* the TTL of a waiting writer's mark */
#define SIM_FIRST (3000 * SNIB__MS)     /* of a fair lock's hold that a release has granted */
#define SIM_IDENTITY (3000 * SNIB__MS)  /* the shortest TTL of what a client says about itself */
#define SIM_PRIVATE (10000 * SNIB__MS)  /* no private key lives longer */
#define SIM_CHAIN (4 * SIM_PLACES / 10) /* of those, a queue full of waiters that have crashed */
#define SIM_RETRY (500 * SNIB__MS)      /* the engine's, between attempts at a refused release */
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
    FAULT_STOP,        /* a process stops between any two of its steps */
    FAULT_LATE_TICK,   /* it gets bytes but no ticks: it was suspended */
    FAULT_STEP,        /* the server's wall clock is set */
    FAULT_ERROR_AFTER, /* an unexpected error reply, although the command was executed */
    FAULT_BUSY,
    FAULT_NOREPLICAS,
    FAULT_MASTERDOWN,
    FAULT_NO_COMMAND,  /* the user may not run one of the commands that clients use */
    FAULT_PASSWORD,    /* the password is changed, and later changed back */
    FAULT_RESTART_AOF, /* with all keys */
    FAULT_MEMORY,      /* the clients run out of memory */
    FAULT_STALE,       /* a lagging replica becomes the server */
    FAULT_COUNT
};

/* Why an owner's field left the server. */
enum sim_cause {
    CAUSE_NONE,
    CAUSE_EXPIRED,
    CAUSE_STEP, /* the same, but early: the server's clock was set forward since the lease began */
    CAUSE_RELEASED,
    CAUSE_TRANSFERRED,
    CAUSE_FORCED,
    CAUSE_MEMORY, /* evicted, overwritten, or the server was restarted */
    CAUSE_COUNT,  /* a number was changed */
    CAUSE_OTHER   /* a command that must not end a hold */
};

/* What kind of lock a name stands for. */
enum sim_family {
    FAMILY_MUTEX,
    FAMILY_FENCED,
    FAMILY_SPIN,
    FAMILY_PLAIN,
    FAMILY_FAIR,
    FAMILY_RW,
    FAMILY_SEMAPHORE,
    FAMILY_PERMITS,
    FAMILY_LATCH,
    FAMILY_COUNT
};

/* What is acquired. */
struct sim_use {
    struct snib__gate *gate;
    int kind;       /* enum snib_kind, or SNIB__MULTI */
    int name;       /* of a multi lock: the first */
    unsigned names; /* set of all */
    int side;       /* 1: the writers' of a read/write lock */
    uint32_t permits;
};

/* All that is known of one owner number: "<uuid>:<number>". */
struct sim_owner {
    struct sim_use use;
    unsigned present; /* set of names that it holds at the server */
    bool abandoned;   /* the operation ended without it */
    bool denied;      /* ... with a code that says that nothing was applied */
    bool
        stray; /* from a connection that could not be killed, or abandoned: only its lease ends it */
    bool aged;            /* from a stale data set, without its latest renewal */
    bool closed;          /* its hold was valid when its client was closed */
    bool partly;          /* its permits have come back with the clock, but not all */
    bool found, missed;   /* by a release: the server reported all of it, or not */
    snib__time missed_at; /* a renewal did not find it at the server; 0: the last one did */
    snib__time asked_at;  /* a question about it was last answered by the server */
    bool there;           /* ... which had it */
    bool unheard;         /* an extension was cancelled: what its answer tells is not heard */
    int64_t left_step_ns; /* of the claim that it last lost */
    int ended;            /* enum sim_cause of the last time it left the server */
    uint64_t writer;  /* a read: the number of its owner's write hold, which lets it in; 0: none */
    snib__time since; /* of `present` */
    snib__time abandoned_at, first_sent;
    snib__time unanswered_since; /* the first attempt without a reply; 0: none */
    bool answered;               /* an attempt has had a reply */
    snib__time tried_at;         /* when the attempt was sent that was answered last, ... */
    snib__time answered_at;      /* ... and when that was */
    snib__time lease;
    int64_t token;                         /* as the server assigned it */
    uint32_t attempts, releases, renewals; /* requests sent */
    uint32_t messages_before, connects_before;
};

struct sim_hold { /* what a process' program holds */
    struct snib__hold *hold;
    uint64_t number;
    struct sim_use use;
    int users; /* tasks that acquired it */
    bool told, released;
    snib__time released_at;
    bool over;        /* it has reported itself lost */
    int reason;       /* the reason it gave */
    snib__time limit; /* of its max_hold; SNIB__NEVER: none */
};

enum sim_doing { DOING_NOTHING, DOING_WAIT, DOING_HOLD, DOING_EXTEND, DOING_RELEASE, DOING_ASK };

struct sim_task {
    int doing;
    snib__time wake; /* its next move */
    struct snib__op *op;
    struct snib__hold
        *attempt; /* that of the acquisition in flight, also once its operation has given it up */
    struct sim_hold *hold;
    struct sim_use use;
    uint64_t owner;
    uint64_t number;             /* of the acquisition in flight; 0 if it may be a re-entry */
    uint64_t order;              /* of submission */
    bool once, cancelled, first; /* first: the process knew nothing of the lock */
    snib__time submitted, wait_ends, max_hold;
    snib__time tries_until; /* so long its first attempt may be under way, however short its wait */
    snib__time told_at;     /* when the lock was known to be held; 0: not yet */
    snib__time
        extends_to; /* the deadline that an extension gives at least, by the process' clock */
};

#define SIM_LINKS (1 + SNIB__LANES_MAX) /* for commands, for messages, further lanes */

struct sim_endpoint {
    bool connecting;
    snib__time connected_at; /* or will be; the latest time */
    struct sim_pipe *pipe;
};

struct sim_sample { /* an answer to TIME */
    snib__time at;  /* 0: no sample */
    int64_t step_ns;
    uint64_t moves; /* clock moves counted by then */
    uint32_t n;     /* replies since the one that the client is known to have */
    uint32_t steps; /* of the clock, at the first of those replies */
};

struct sim_process {
    struct snib__engine *engine; /* NULL: gone, or a Redisson */
    struct lives *lives;
    bool foreign; /* a Redisson */
    uint32_t id;
    char uuid[37];
    char identity[48]; /* what it says about itself */
    struct snib__gate *gates[SIM_NAMES][SIM_SIDES];
    struct snib__gate *multis[SIM_MULTIS];
    struct sim_endpoint links[SIM_LINKS];
    struct sim_task tasks[SIM_TASKS];
    struct sim_hold holds[SIM_HOLDS];
    struct sim_owner *owners[SIM_SIDES]; /* by number - SIM_FIRST_NUMBER */
    uint32_t owner_cap[SIM_SIDES];
    uint32_t connects;
    int clock_ppm; /* its clock's rate error */
    snib__time lease, recheck, try_timeout;
    uint64_t granted;               /* holds that its tasks got */
    bool unpumped;                  /* it was stopped while leaving the engine */
    snib__time heard_at;            /* the server last answered a command */
    snib__time decided_at;          /* when the engine came to the results that are delivered now */
    snib__time renews;              /* it has just asked to renew beyond this; 0: it has not */
    snib__time late_until;          /* no tick before this */
    snib__time left_at;             /* when it left a connection that the server had logged out */
    snib__time asked_at[SIM_NAMES]; /* its last request to a fair lock's queue */
    struct sim_sample asked, told;  /* the last TIME that the server answered; the last one known */
    uint64_t moves;                 /* of the server's clock, as counted by the process */
    uint32_t steps;                 /* of that clock, when the process began or last counted */
    snib__time alarmed_at;          /* when it last counted, by its own clock */
    snib__time
        free_at[SIM_NAMES]; /* when a hold of this name was last lost or left, or a wait ended */
    snib__time next_at[SIM_NAMES];  /* the same, but for single tries beside a queue */
    snib__time known_at[SIM_NAMES]; /* when it last had the lock, or heard that another had */
    snib__time frozen_until;
    snib__time gone_at; /* latest end of a closing process; SNIB__NEVER: not closing */
    snib__time last_tick;
    uint32_t ticks; /* at last_tick */
    /* What it has asked for without an owner, by name, and what the server has done of it. */
    uint32_t takes[SIM_NAMES], taken[SIM_NAMES];    /* acquires of a semaphore */
    uint32_t counts[SIM_NAMES], counted[SIM_NAMES]; /* changes of a number */
    int64_t permits[SIM_NAMES];                     /* taken and not released */
    uint32_t turns, passed_over; /* in a crowd: turns taken, and others' chains while it waits */
    bool unchecked;              /* the engine was called since it was found flawless */
    bool touched;                /* ... may have another deadline than: */
    snib__time deadline, true_deadline;
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

struct sim_pipe { /* one connection; the server's end may outlive the client's */
    bool used;
    struct sim_process *client; /* NULL: this end is gone */
    int link;
    uint64_t server; /* the model's number; 0: this end is gone */
    struct sim_flow to_server, to_client;
    size_t greeting; /* bytes of the client's login sequence still to come */
    bool heard;      /* the client has had a reply */
    bool logged_out; /* the server wants a new login */
    bool spared;     /* CLIENT ID, KILL or INFO was refused: it cannot be killed at the server */
    int cut_next; /* the next bytes in this direction are cut: 1 to the server, 2 to the client */
};

/* An owner's share of a name at the server. */
struct sim_claim {
    struct sim_process *process;
    uint64_t number;
    int side;
    uint32_t permits;
    uint64_t expires_ns; /* by the server's clock */
    int64_t step_ns;     /* that clock's total step when this was decided */
};

/* A waiter's place in a fair lock's queue. */
struct sim_place {
    struct sim_process *process;
    uint64_t number;
    double score;
};

struct sim_name {
    int family;
    const char *text;
    size_t n;
    char queue[64], places[64], beats[64], token[64], taken[64], mark[64], tag[32], channel[80];
    bool tokens;    /* its holds carry tokens */
    bool alien;     /* used by Redissons, too */
    int64_t number; /* a semaphore's or a latch's, as last seen */
    int64_t total;  /* permits, free and taken together */
    int64_t last_token;
    snib__time tokens_lost_at;
    struct sim_claim claims[SIM_CLAIMS];
    int claim_count;
    struct sim_place queued[SIM_PLACES];
    int queued_count;
    bool queue_torn;                    /* half of the queue was evicted */
    bool queue_skewed;                  /* Redisson's places date from before the clock was set */
    snib__time open_since[SIM_PERMITS]; /* for so many permits, or this side; SNIB__NEVER: no */
    int open_cause[SIM_PERMITS];
    snib__time shut_at;   /* a latch was last open at this time */
    uint32_t messages;    /* published so far */
    snib__time topped_at; /* when a number was last missing something */
};

struct sim_peer;

struct sim {
    uint64_t seed, random, hash;
    bool trace;
    snib__time now;
    model *model;
    model_data *replica; /* the replica's data */
    int clock_ppm;       /* the server's clock rate error */
    int64_t step_ns;     /* total by which it was set so far */
    int64_t ahead_ns;    /* the highest value of that */
    uint32_t steps;      /* how often it was set */
    snib__time set_at;   /* the last time it was set */
    int clock_spread;    /* the largest rate error of a client; together at most 1 % */
    int database;
    const char *password;
    snib__time lease; /* the longest of any client's; also Redisson's */
    snib__time delay, pubsub_delay;
    int32_t handover_max;
    int32_t lanes;    /* command connections per process */
    bool unequal;     /* clients differ in leases, limits and patience */
    bool long_leases; /* fixed ones may outlast steps of the server's clock */
    bool extends;     /* holders change their leases */
    bool known;       /* clients say who they are, and ask who others are */
    bool focused;     /* the world is about these two faults: */
    int focus[2];
    uint64_t enabled; /* set of enum sim_fault */
    bool calm, winding_down;
    bool pestered;  /* tasks try, again and again and without waiting, to get all permits at once */
    bool crowded;   /* all tasks want one lock all the time */
    bool listeners; /* in a crowd: the Redissons only listen */
    snib__time crowd_hold;         /* ... the longest hold */
    struct sim_process *last;      /* ... the last holder */
    snib__time chain_since;        /* ... since when its process has had the lock */
    uint32_t chain;                /* ... how often that has handed it on since */
    uint32_t races, again;         /* ... taken again while others waited: in all, in a row */
    snib__time unused;             /* ... how long the lock was free while a task waited */
    snib__time calm_at, stable_at; /* nothing is disturbed from stable_at on */
    snib__time next_fault, disturbed_until;
    snib__time memory_short_until;
    bool memory_spared; /* allocations succeed now */
    int64_t objects;    /* allocated by the engines */
    snib__time server_paused_until, refuse_until, server_faults_until;
    unsigned server_faults;
    uint64_t server_kinds; /* set of enum sim_fault: those of server_faults */
    int refuse_kind;       /* why connections are refused */
    struct sim_name names[SIM_NAMES];
    int name_count, slot_count, task_count;
    bool multi;                 /* all names can be members of one lock */
    bool numbers;               /* some names are numbers, which have to be set */
    struct sim_process *acting; /* sender of the running command; NULL: none */
    uint64_t acting_number;
    bool asking;           /* the running command is an acquire */
    uint64_t first_waiter; /* as a fair lock's acquire gives it; 0: not given */
    int peer_cause;        /* of a command by a Redisson or an operator, now running */
    uint64_t operator_link;
    uint64_t next_expiry_ns; /* of a key or a claim, by the server's clock */
    uint64_t writes_seen;    /* requests that may have changed a key, when keys were last read */
    size_t key_count;        /* when keys were last checked */
    snib__time think;        /* between two actions of a task, at most */
    snib__time prompt;       /* a waiter that has heard of a free lock takes it within this time */
    struct sim_process *slots[SIM_SLOTS];
    struct sim_peer *peers[SIM_PEERS];
    int peer_count;
    struct sim_process *processes[SIM_PROCESSES];
    uint32_t process_count;
    struct sim_pipe pipes[SIM_PIPES];
    struct sim_pipe *pipes_end; /* those from here on were never used */
    uint64_t order;
    uint64_t events;
    uint64_t flushes_before; /* totals.faults[FAULT_SCRIPT_FLUSH] when the world began */
};

struct sim_totals {
    uint64_t events, requests;
    uint64_t faults[FAULT_COUNT];
    uint64_t lanes; /* requests by further lanes; how many of them were lost: */
    uint64_t lanes_lost;
    uint64_t granted, reentered, extended, identified, handed_over, passed_on, refused, timed_out,
        cancelled, released, lost, failed;
    uint64_t by_family[FAMILY_COUNT], by_multi, by_redisson;
};

extern struct sim sim;
extern struct sim_totals totals;

static inline uint64_t sim_draw(uint64_t below)
{
    sim.random ^= sim.random >> 12;
    sim.random ^= sim.random << 25;
    sim.random ^= sim.random >> 27;
    return (sim.random * 0x2545f4914f6cdd1dULL >> 8) % below;
}

static inline bool sim_chance(unsigned one_in)
{
    return sim_draw(one_in) == 0;
}

static inline snib__time sim_between(snib__time least, snib__time most)
{
    return least + sim_draw(most - least + 1);
}

static inline bool sim_has(int fault)
{
    bool still = !sim.calm || fault == FAULT_SLICE || fault == FAULT_FORCE || fault == FAULT_CLOCK;
    return still && (sim.enabled >> fault & 1) != 0;
}

/* Whether the world has this fault, though perhaps not any more. */
static inline bool sim_may(int fault)
{
    return (sim.enabled >> fault & 1) != 0;
}

static inline snib__time sim_latest(snib__time a, snib__time b)
{
    return a > b ? a : b;
}

/* What a clock with a rate error reads at a true time. */
static inline snib__time sim_clock_at(snib__time at, int ppm)
{
    return at + (snib__time)((int64_t)(at - SIM_START) * ppm / 1000000);
}

/* What a process' clock reads now. */
static inline snib__time sim_clock(const struct sim_process *process)
{
    return sim_clock_at(sim.now, process->clock_ppm);
}

/* sim.c */
uint64_t sim_server_ns(snib__time at); /* the server's clock at a true time */
snib__time sim_true(const struct sim_process *process,
                    snib__time at); /* the true time when its clock reads `at` */
void sim_mix(uint64_t value);       /* into the trace hash */
void sim_trace(const char *format, ...) __attribute__((format(printf, 1, 2)));
_Noreturn void sim_fail(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* sim_net.c */
/* The process' link by its index; NULL: never opened. */
struct snib__link *process_link(const struct sim_process *process, int link);
void net_connect(struct sim_process *process, int link);
void net_close(struct sim_process *process, int link);
void net_send(struct sim_process *process, int link, const char *bytes, size_t n);
void net_server_died(void);
void net_heal(void);
void net_spare(void);   /* connections given up now, or open now, cannot be killed */
void net_log_out(void); /* the processes' connections must log in again */
bool net_is_stray(uint64_t server);
struct sim_pipe *net_pick(void);                     /* a connected pipe, or NULL */
struct sim_process *net_client(uint64_t connection); /* NULL: its end is gone */
void net_collect(void); /* move what the server has written into the pipes */
snib__time net_next(void);
bool net_run(void); /* one event that is due; false: there is none */
void net_free(void);

/* sim_fault.c */
void fault_plan(void);
bool fault_is_focus(int fault);
void fault_happens(int fault); /* count one that happens elsewhere */
void fault_answered(void);     /* the server has answered: with which faults? */
snib__time fault_next(void);
void fault_run(void);
void fault_end_all(void);
bool fault_is_overwritten(const struct sim_name *name); /* by a value that is not a lock */
void fault_until(snib__time until); /* the world is disturbed at least until then */
snib__time fault_for_a_while(void); /* the end of a disturbance that begins now */

/* sim_memory.c */
void memory_strike(void);
bool memory_is_short(void);

/* sim_clock.c */
snib__time sim_longest(void); /* fixed lease */
void clock_step(void);
void clock_set_right(void);
int64_t clock_lag(void); /* how far the server's clock is behind its highest reading, in ns */
bool clock_keeps(const struct sim_claim *claim); /* it exists only because the clock was set back */
uint64_t clock_unset(const struct sim_claim *claim, snib__time at); /* had it not been set since */
void clock_asked(uint64_t connection);
void check_clock(struct sim_process *process);
bool clock_alarmed(const struct sim_process *process, const struct snib__hold *hold);

/* sim_process.c */
struct sim_process *process_new(int slot);
void process_end(struct sim_process *process); /* abruptly, as by kill -9 */
/* At its end: its program wants no lock any more. */
void process_put_gates(struct sim_process *process);
void process_close(struct sim_process *process);
void process_pump(struct sim_process *process);  /* deliver what the engine has to send */
void process_go_on(struct sim_process *process); /* the same, but it may be stopped */
snib__time process_next(struct sim_process *process);
void process_run(struct sim_process *process);     /* what is due */
void process_touched(struct sim_process *process); /* its engine was called */
void process_free(struct sim_process *process);
bool process_is_idle(const struct sim_process *process);
struct sim_process *process_record(bool foreign); /* a number, a UUID, and room for owners */
void process_leave_hold(struct sim_process *process, struct sim_hold *hold);
void process_knows(struct sim_process *process,
                   const struct sim_use *use); /* that the lock is held */

/* sim_task.c */
void task_move(struct sim_process *process, struct sim_task *task); /* when its time has come */
void task_rest(struct sim_task *task);
snib__time task_hold_for(void);

/* sim_redisson.c */
void peer_new(int slot);
snib__time peer_next(const struct sim_peer *peer);
void peer_run(struct sim_peer *peer);
void peer_listen(struct sim_peer *peer); /* read what the server has sent by now */
bool peer_is_idle(const struct sim_peer *peer);
void peer_leave(struct sim_peer *peer); /* close its connections */
void peer_free(struct sim_peer *peer);
bool peer_waits(const struct sim_process *process);
void peer_check(struct sim_peer *peer); /* at each step */

/* sim_truth.c */
void check_truth(int cause); /* compare with the server's keys; changes have this cause */
const struct sim_claim *truth_claim(const struct sim_name *name, const struct sim_process *process,
                                    uint64_t number, int side); /* NULL: there is none */
struct sim_owner *truth_owner_of(const struct sim_claim *claim);
void truth_renewed(const struct sim_process *process, uint64_t number, int side);
struct sim_process *truth_owner(model_text text, uint64_t *out_number); /* NULL: not an owner */
int64_t truth_number(const struct sim_name *name);         /* a counter's; INT64_MIN: none */
int64_t truth_number_or_none(const struct sim_name *name); /* 0: none */
int64_t truth_outstanding(int name); /* a semaphore's permits held by processes */
int truth_level(const struct sim_use *use);

/* sim_keys.c */
void keys_plan(struct sim_name *name);
void keys_check(void); /* only expected keys exist, with TTLs where required */
void operator_says(const char *format, ...) __attribute__((format(printf, 1, 2)));
void operator_tends(void); /* in a calm world an operator restores numbers that got lost */
void operator_opens_latches(void);

/* sim_queue.c */
void queue_check(struct sim_name *name, const struct sim_claim *came, int cause);

/* sim_crowd.c */
void crowd_plan(void);
int crowd_family(void);
snib__time crowd_end(void);
void crowd_turn(const struct sim_name *name, const struct sim_claim *came, int cause);
void crowd_check(void); /* at the end */

/* sim_request.c */
struct sim_owner *check_owner(struct sim_process *process, uint64_t number, int side);
void check_sent(struct sim_process *process, const char *bytes, size_t n);
/* Pass bytes to the engine, and record which attempts they answer. */
void check_input(struct sim_process *process, struct snib__link *link, const char *bytes, size_t n);
void check_executed(void *context, uint64_t connection, const model_text *argv, size_t argc);

/* In a stable world nothing takes longer than a few round trips, or the short sleeps of a waiter
 * whose subscription was refused. */
#define SIM_PROMPT (400 * SNIB__MS)

/* sim_result.c */
struct sim_owner *check_owner_of(struct sim_process *process, const struct sim_hold *hold);
bool check_struck(const struct sim_owner *owner); /* by what no client can prevent */
/* Since when the lock that the task waits for is available; SNIB__NEVER: it is not.  out_told: whether waiters were told. */
snib__time check_open_since(const struct sim_task *task, bool *out_told);
/* Since when the path between a process and the server is clear; SNIB__NEVER / 2: it is not. */
snib__time check_clear_since(const struct sim_process *process, int link);
void check_granted(struct sim_process *process, struct sim_task *task, const struct sim_hold *hold);
void check_passed(struct sim_process *process, const struct sim_task *task); /* a latch */
void check_not_granted(struct sim_process *process, const struct sim_task *task, int32_t code);
void check_released(struct sim_process *process, const struct sim_hold *hold, int32_t code);
void check_extended(const struct sim_process *process, const struct sim_task *task);
void check_identity(const struct sim_process *process, const struct snib__op *op);
void check_lost(struct sim_process *process, const struct sim_hold *hold);

/* sim_check.c */
void check_step(void);
void check_closed(struct sim_process *process);
void check_end(void);

#endif
