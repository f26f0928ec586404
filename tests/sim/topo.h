/* topo.h - a simulated world around engines whose server changes: replicas that lag and are
 * promoted, addresses that move, sentinels and clusters with their own views, and an observer that
 * knows the true master and every server's data.
 *
 * One seed decides everything.
 *
 * topo_sim.c      the loop over seeds, the life of one world
 * topo_net.c      connections between processes and servers; partitions
 * topo_server.c   servers: roles, replication with a delay, death and return, what they report
 * topo_single.c   deployments behind one address, which moves to another server
 * topo_sentinel.c sentinels, each with its own view
 * topo_cluster.c  a cluster: what each node believes, failover
 * topo_slot.c     ... which node serves a name, slots that move
 * topo_fault.c    what goes wrong, and when
 * topo_process.c  processes: an engine each, its driver, and what becomes of its results
 * topo_task.c     the tasks in them
 * topo_truth.c    what is true of a name, and since when that is in doubt
 * topo_check.c    what must be true of results, and at every step
 * topo_owner.c    who holds a name, in the data of a server
 * topo_permits.c  permits: that none is lost; an operator
 * topo_kept.c     ... and that no lock stays held that no program uses
 */
#ifndef SNIB_TESTS_TOPO_H
#define SNIB_TESTS_TOPO_H

#include "engine/engine.h"
#include "lives.h"
#include "model_server.h"
#include "pairs.h"

#define TOPO_SERVERS 12 /* sentinels included */
#define TOPO_SHARDS 4
#define TOPO_SLOTS 4 /* processes at once */
#define TOPO_PROCESSES 24
#define TOPO_HOSTS (TOPO_SERVERS + TOPO_PROCESSES)
#define TOPO_TASKS 3
#define TOPO_NAMES 4
#define TOPO_SIDES 2
#define TOPO_HOLDS (2 * TOPO_TASKS)
#define OWNER_MAX 160 /* bytes of an owner's text */
#define TOPO_ENDS 96  /* links of a process */
#define TOPO_PIPES 256
#define TOPO_EVENTS 1024
#define TOPO_EPOCH 1700000000000000000ULL
#define TOPO_START (3600000 * SNIB__MS)
#define TOPO_LEFT_LEASE                                                                            \
    (300000 * SNIB__MS)              /* of worlds that are about what failovers leave behind */
#define TOPO_FIRST (3000 * SNIB__MS) /* of a fair lock's hold that a release has granted */

/* What a seed may switch on. */
enum topo_fault {
    TOPO_DELAY,
    TOPO_CUT,       /* a connection ends */
    TOPO_HOLE,      /* a process and a server silently lose contact for a while */
    TOPO_ISOLATE,   /* a master loses the other servers; some processes reach it still */
    TOPO_PAUSE,     /* a process stops */
    TOPO_LATE_TICK, /* it gets bytes but no ticks */
    TOPO_CRASH,     /* it dies */
    TOPO_STOP,      /* a server stops for a while */
    TOPO_KILL,      /* a master dies, and returns later */
    TOPO_MANUAL,    /* a requested failover */
    TOPO_RESTART,   /* a master dies and is back before that is noticed: empty, or with its data */
    TOPO_LAG,       /* replication is slow for a while */
    TOPO_SCRIPTS,   /* SCRIPT FLUSH */
    TOPO_WATCH,     /* a sentinel is killed, or lags */
    TOPO_SLOT,      /* a slot moves */
    TOPO_HALF_SLOT, /* ... and is left half moved for a while */
    TOPO_GROW,      /* a node is added, a node is removed */
    TOPO_FAULTS
};

enum topo_family {
    TOPO_MUTEX,
    TOPO_FENCED,
    TOPO_FAIR,
    TOPO_RW,
    TOPO_DRAWN,              /* those above are drawn; these take the place of some mutexes: */
    TOPO_PLAIN = TOPO_DRAWN, /* a string: the owner */
    TOPO_PERMITS,            /* of one permit a name, so that it excludes as a mutex does */
    TOPO_FAMILIES
};

extern const int topo_kinds[TOPO_FAMILIES]; /* of locks; readers and writers: SNIB_READ */

/* The subject of four worlds in eight, or a little more: it needs several things at once. */
enum topo_focus {
    TOPO_ALL,
    TOPO_QUEUES,  /* fair locks whose server is replaced by one that lags */
    TOPO_READERS, /* readers and writers whose slots move */
    TOPO_FIXED, /* long fixed leases, whose server forgets them, and connections that end before it has said so */
    TOPO_LEFT, /* leases of minutes and failovers one after another: no lease ends what they leave behind */
    TOPO_FORMER /* a cluster's masters that are replaced, or lose slots, while their replies are still on the way */
};

/* Events that are due at a time. */
enum topo_event_kind {
    TOPO_PROMOTE = 1, /* a: the old master of shard b, to be replaced; -1: by request */
    TOPO_FOLLOW,      /* a: follows b from now on */
    TOPO_SYNCED,      /* a: has the whole data set of b */
    TOPO_RETURN,      /* a: a dead server starts; b: with its data */
    TOPO_LOADED,      /* a: has read its data */
    TOPO_ADDRESS,     /* the address moves to server a */
    TOPO_ROUTE_OWN    /* from here on: of sentinels and clusters */
};

struct topo_event {
    snib__time at;
    int kind, a, b;
    uint64_t c; /* a stale event has an outdated one */
};

struct topo_parcel { /* in flight from one server to another */
    struct topo_parcel *next;
    snib__time at;
    int from;
    uint64_t writes;  /* the sender's writes that it contains */
    model_data *data; /* or a message: */
    bool sharded;
    size_t channel_n, text_n;
    char words[];
};

struct topo_server {
    model *model;
    struct snib__address address;
    bool sentinel;
    int shard;
    int master;         /* the server that it follows; -1: it is a master */
    uint64_t term;      /* changes with its role and master */
    bool synced, hears; /* a replica: it has its master's data set; it is connected to the master */
    bool dead, keeps;   /* it does not run; its data survive */
    uint64_t run, replication, former;
    snib__time stopped_until, loading_until;
    snib__time lag;   /* added to what it receives */
    uint64_t shipped; /* its writes sent to replicas */
    uint64_t applied; /* a replica: writes of its master that it has */
    snib__time synced_at, promoted_at;
    struct topo_parcel *head, *tail;
};

struct topo_shard {
    int authority; /* the master, in truth */
    uint64_t terms;
};

struct topo_name {
    const char *text;
    size_t n;
    int family;
    int slot, shard;
    char tag[40];
    char taken[48]; /* permits: the sorted set */
    size_t taken_n;
    bool uneven;             /* permits: the servers may have lost one, or have one too many */
    snib__time uneven_until; /* ... or had until then */
    int64_t last_token;
    snib__time token_at;
    snib__time broken_at;    /* the truth last lost data */
    bool broken_by_move;     /* ... by a slot move that was given up: nobody hears of that */
    snib__time island_until; /* another server than the master last acted as one */
    snib__time came_at;      /* when its slot last came to another shard */
    snib__time apart_until;  /* its slot was being moved: multi-key requests may have to wait */
    snib__time free_since;   /* SNIB__NEVER: it is not free */
    char kept[OWNER_MAX];    /* an owner in the truth that no program uses */
    snib__time kept_since;
};

struct topo_use { /* what is acquired */
    struct snib__gate *gate;
    int kind;
    unsigned names;
    int name, side;
};

struct topo_hold {
    struct snib__hold *hold;
    struct topo_use use;
    int users;
    bool told, released, over;
    snib__time safe_until; /* when it was released */
    int reason;
    uint64_t number;
    char owner[64]; /* as servers have it, but for a writer's ":write" */
    size_t owner_n;
    snib__time submitted;
    uint64_t durable; /* the servers that had it when granted, if all replicas in step did */
    bool excused;     /* it is valid and unknown to the truth, for a documented reason */
    snib__time excused_at, known_at; /* when the truth last had it */
    snib__time claimed;              /* until when it was valid at the step before */
    bool valid;
    snib__time overlaps_since;
};

enum topo_doing { TOPO_RESTS, TOPO_WAITS, TOPO_HOLDS_IT, TOPO_EXTENDS, TOPO_RELEASES, TOPO_ASKS };

struct topo_task {
    int doing;
    snib__time wake;
    struct snib__op *op;
    struct topo_hold *hold;
    struct topo_use use;
    uint64_t number; /* of the acquisition, when it began */
    bool once, cancelled;
    bool rivalled; /* something else of its process had to do with the lock meanwhile */
    snib__time submitted, wait_ends, lease;
};

struct topo_end { /* carries a link */
    struct snib__link *link;
    struct topo_process *process;
    bool connecting;
    int server;              /* to which it goes; -1: the address has no server */
    snib__time connected_at; /* or will be; or will fail */
    struct topo_pipe *pipe;
};

struct topo_process {
    struct snib__engine *engine;
    uint32_t id;
    char uuid[37];
    char identity[48]; /* what it says about itself */
    bool dead;
    snib__time closed_at; /* the program has closed the client; 0: it has not */
    struct snib__gate *gates[TOPO_NAMES][TOPO_SIDES];
    struct snib__gate *multi;
    struct topo_end ends[TOPO_ENDS];
    int end_count;
    struct topo_task tasks[TOPO_TASKS];
    struct topo_hold holds[TOPO_HOLDS];
    snib__time frozen_until, late_until;
    snib__time last_tick;
    uint32_t ticks;
    snib__time counted_since; /* requests are counted since then, as none had an effect */
    uint32_t sent;
    uint32_t most_given; /* releases that are repeated, at most, since then */
    snib__time sent_at, connects_since;
    uint32_t connects;
    snib__time granted_at;
    uint64_t replicated;  /* shards of whose grants replicas had one */
    snib__time few_at;    /* a WAIT of it was last answered by too few replicas */
    int asks[TOPO_NAMES]; /* the server that it takes for the master of a name; -1: none */
    snib__time asks_since[TOPO_NAMES];
    snib__time heard_at; /* a server last answered a command */
    uint64_t cursor;     /* where its listing goes on; 0: with the next one */
    uint32_t listings;   /* parts of the present one */
    bool unchecked;      /* the engine was called since it was found flawless */
    struct lives *lives;
    bool is_known; /* the deadline is the engine's, which was not called since */
    snib__time deadline;
};

struct topo_chunk {
    struct topo_chunk *next;
    snib__time at;
    size_t n;
    bool end;
    char bytes[];
};

struct topo_flow {
    struct topo_chunk *head, *tail;
    snib__time last_at;
    bool ended;
};

struct topo_pipe { /* one connection; the server's end may outlive the client's */
    bool used;
    struct topo_end *client; /* NULL: this end is gone */
    uint32_t process;
    int server;
    uint64_t number; /* the model's; 0: this end is gone */
    snib__time made_at;
    struct topo_flow to_server, to_client;
    int cut_next;
    unsigned cut_after;   /* so many before it */
    struct {              /* WAIT: its reply, and those behind it */
        snib__time until; /* 0: no WAIT is pending */
        uint64_t need, writes;
        char *held;
        size_t held_n;
    } wait;
};

struct topo {
    uint64_t seed, random, hash, events;
    bool trace, calm, winding_down;
    int focus;    /* enum topo_focus */
    bool extends; /* holders change their leases */
    bool again;   /* slots of permits begin to move when one is taken, and the reply is cut off */
    bool
        owned; /* tasks of a process read and write for the same few owners: reads within writes, and re-entries */
    bool known;   /* clients say who they are, and ask who others are */
    bool focused; /* the world is about these two faults: */
    int pair[2];
    snib__time now;
    int topology; /* enum snib__topology */
    snib__time lease, recheck, delay, think, prompt;
    snib__time
        longest; /* of all fixed leases, so that none ends while it is looked for; 0: they differ */
    int32_t durability, durability_policy; /* of all clients */
    uint32_t enabled;
    snib__time calm_at, stable_at, next_fault, pace;
    int late[TOPO_SHARDS]; /* the kind of request that its master answers late; 0: none */
    struct topo_server servers[TOPO_SERVERS];
    int server_count, data_count; /* sentinels come after the data servers */
    struct topo_shard shards[TOPO_SHARDS];
    int shard_count;
    bool stale_reads; /* a replica without its master serves what it has */
    int at_address;   /* SINGLE: the server with the address */
    struct snib__address address;
    struct snib__address seeds[TOPO_SERVERS];
    uint32_t seed_count;
    struct topo_name names[TOPO_NAMES];
    int name_count, slot_count, task_count;
    bool multi;
    unsigned multi_names;
    struct topo_process *slots[TOPO_SLOTS], *processes[TOPO_PROCESSES];
    uint32_t process_count, closing; /* of them: closed, and not yet replaced */
    struct topo_pipe pipes[TOPO_PIPES];
    struct topo_pipe *pipes_end;              /* those from here on were never used */
    snib__time apart[TOPO_HOSTS][TOPO_HOSTS]; /* no contact until then */
    struct topo_event pending[TOPO_EVENTS];
    int pending_count;
};

struct topo_totals {
    uint64_t events, requests, granted, extended, identified, released, busy, timed_out, cancelled,
        lost, failed, closed, unblocked;
    uint64_t promotions, excused, overlaps;
    uint64_t waits, too_few,
        durable; /* WAITs, those with too few replicas; holds that had to survive a failover */
    snib__time longest_overlap;
    uint64_t by_family[TOPO_FAMILIES], multis, within; /* reads within writes */
    uint64_t faults[TOPO_FAULTS];
};

extern struct topo topo;
extern struct topo_totals topo_totals;

/* topo_sim.c */
uint64_t topo_draw(uint64_t below);
bool topo_chance(unsigned one_in);
snib__time topo_between(snib__time least, snib__time most);
bool topo_has(int fault);
void topo_trace(const char *format, ...) __attribute__((format(printf, 1, 2)));
_Noreturn void topo_fail(const char *format, ...) __attribute__((format(printf, 1, 2)));
void topo_later(snib__time at, int kind, int a, int b, uint64_t c);

/* topo_net.c */
void net_connect(struct topo_end *end);
void net_close(struct topo_end *end);
void net_send(struct topo_end *end, const char *bytes, size_t n);
void net_late(int server, snib__time until);
void net_server_died(int server);
void net_leave(int server); /* its connections end as by CLIENT KILL: what it wrote arrives */
void net_collect(int server);
snib__time net_delay(void);
bool net_apart(int host, int other);
void net_part(int host, int other, snib__time until);
void net_heal(void);
struct topo_pipe *net_pick(void);
int net_host(const struct topo_process *process);
snib__time net_next(void);
/* WAIT of a connection: the reply comes when enough replicas have what the server has written, or
 * after the time limit. */
#define NET_WAITS "+WAITS\r\n" /* its place among the server's replies */
void net_wait(int server, uint64_t connection, uint64_t need, snib__time limit);
void net_unblock(int server);
void net_waited(int server);               /* a replica has caught up further */
bool server_listens(int at, int to);       /* a replica in step */
int server_acked(int at, uint64_t writes); /* replicas in step that have these writes */
void check_durable(int at);                /* called when a replica in step is promoted */
bool net_run(void);
void net_free(void);

/* topo_server.c */
int server_new(bool sentinel, int shard);
void server_free_all(void);
void server_time(void);
bool server_runs(int server); /* it has a process, which is not stopped */
bool server_reaches(int server, int other);
void server_kill(int server, bool keeps);
void server_return(int server);
void server_follow(int server, int master, bool hang_up);
void server_promote(int server);
void server_executed(int server); /* a command was executed there: replicate it */
void server_ship(int server);     /* its data, to its replicas */
void server_event(const struct topo_event *event);
int server_best_replica(int shard, int except);
snib__time server_next(void);
bool server_run(void);
void server_set_faults(int server);

/* topo_single.c */
void single_plan(void);
void single_event(const struct topo_event *event);
void single_lost(int shard); /* its master is gone */
void single_settle(void);

/* topo_sentinel.c */
void sentinel_plan(void);
void sentinel_event(const struct topo_event *event);
void sentinel_disturb(void);
const char *sentinel_answer(int self, const model_text *argv, size_t argc, size_t *out_n);

/* topo_cluster.c, topo_slot.c */
void cluster_plan(void);
void cluster_event(const struct topo_event *event);
void cluster_disturb(int fault);
void cluster_move(const struct topo_name *name);
void cluster_settle(void);
void cluster_returned(int at);
snib__time cluster_up_since(int at);
const char *cluster_answer(int self, uint64_t connection, const model_text *argv, size_t argc,
                           size_t *out_n);
const char *cluster_touch(int self, const model_text *name, bool channel);
bool cluster_goes_to(const struct topo_name *name, int shard);
bool cluster_serves(int at, const struct topo_name *name);
model *cluster_also(const struct topo_name *name);

/* topo_fault.c */
void fault_plan(void);
bool fault_is_focus(int fault);
void fault_happens(int fault); /* count one that happens elsewhere */
snib__time fault_late(const struct topo_pipe *pipe, const char *bytes, size_t n);
void fault_again(struct topo_pipe *pipe, const char *bytes, size_t n);
void fault_run(void);
void fault_end_all(void);

/* topo_process.c */
struct topo_process *process_new(int slot);
void process_crash(struct topo_process *process);
void process_close(struct topo_process *process);
bool process_is_over(const struct topo_process *process);
void process_free(struct topo_process *process);
void process_pump(struct topo_process *process);
void process_leave_hold(struct topo_process *process, struct topo_hold *hold);
bool process_is_idle(const struct topo_process *process);
snib__time process_next(struct topo_process *process);
void process_run(struct topo_process *process);

/* topo_task.c */
void task_rest(struct topo_task *task);
bool task_is_rivalled(const struct topo_process *process, const struct topo_task *task);
snib__time task_hold_for(void);
void task_move(struct topo_process *process, struct topo_task *task);

static inline snib__time latest(snib__time a, snib__time b)
{
    return a > b ? a : b;
}

/* topo_truth.c */
/* A key of a name at its master or, while its slot is being moved, at either end.  NULL: it does not exist. */
model *truth_find(const struct topo_name *name, model_text text, model_key *out);
/* The key that says who holds it. */
model *truth_holder(const struct topo_name *name, model_key *out);
bool truth_writes(const struct topo_hold *hold, const struct topo_name *name);
bool truth_is_owner(const struct topo_hold *hold, bool as_writer, const char *text);
snib__time truth_until(const struct topo_hold *hold, const struct topo_name *name);
bool truth_knows(const struct topo_hold *hold);
void truth_trace(const struct topo_name *name);
void truth_broken(int shard, const char *why); /* it may have lost data */
void truth_slot_broken(int slot);              /* ... about the names of one slot */
snib__time truth_broken_at(const struct topo_hold *hold);
void truth_note(void); /* at every step, before the rules are judged */
void truth_note_asked(struct topo_process *process);
snib__time truth_connected_since(const struct topo_process *process, int shard);
snib__time truth_reaches_since(const struct topo_process *process, int shard);
snib__time truth_asks_since(const struct topo_process *process, const struct topo_hold *hold);

/* topo_check.c */
void check_sent(struct topo_process *process);
void check_connects(struct topo_process *process);
void check_progress(struct topo_process *process);
void check_granted(struct topo_process *process, const struct topo_task *task,
                   struct topo_hold *hold);
void check_released(const struct topo_process *process, const struct topo_hold *hold, int32_t code);
void check_extended(const struct topo_process *process, const struct topo_task *task);
void check_identity(const struct topo_process *process, const struct snib__op *op);
void check_reason(const struct topo_process *process, const struct snib__op *op);
void check_not_granted(struct topo_process *process, const struct topo_task *task, int32_t code);
void check_lost(struct topo_process *process, const struct topo_hold *hold);
void check_listing(struct topo_process *process, const struct snib__op *op);
void check_closed(const struct topo_process *process);
void check_step(void);
void check_end(void);

/* topo_owner.c */
/* An owner of a name as a server has it, "<uuid>:<number>" with or without ":write"; false: there are not so many.
 * out_until: when a permit ends; of other families the key's end counts. */
bool owner_at(model *m, const struct topo_name *name, size_t index, char out[OWNER_MAX],
              uint64_t *out_until);
/* The key that says who holds a name. */
model_text owner_key(const struct topo_name *name);

/* topo_permits.c */
void permits_begin(void); /* each name has one */
void permits_broken(struct topo_name *name);
void permits_meet_copies(int slot, int target);
bool permits_may_be_few(const struct topo_task *task); /* since it asked for one */
bool permits_are_more(const struct topo_name *name);
bool permits_may_stay(const model_key *key);
void permits_check(void);
void permits_end(void);

/* topo_kept.c */
void kept_check(void);

#endif
