/* topo_fault.c - what goes wrong between processes and servers, and among servers.  Which faults a
 * seed enables, and how often they come, is drawn once. */
#include "topo.h"

#include "net/script.h"

#include <string.h>

/* Replies of a master that is replaced are so late; a client gives up those that are later. */
#define LATE (240 * SNIB__MS)
#define LATE_RENEWAL 3         /* of the kinds of requests */
#define BACK (3000 * SNIB__MS) /* a server that died returns within this time */

bool fault_is_focus(int fault)
{
    return topo.focused && (topo.pair[0] == fault || topo.pair[1] == fault);
}

/* Both faults of its pair, soon one after the other, among those that the seed enables. */
static void plan_focus(void)
{
    snib__time close = topo.lease / 4;
    topo.enabled |= 1U << topo.pair[0] | 1U << topo.pair[1];
    topo.enabled |= fault_is_focus(TOPO_HALF_SLOT) ? 1U << TOPO_SLOT : 0;
    topo.pace = topo.pace < close ? topo.pace : close;
}

/* Slots move; few failovers, which would excuse too much, and in half of these worlds no move is given up. */
static void plan_again(void)
{
    topo.enabled &= ~(1U << TOPO_KILL | 1U << TOPO_MANUAL | 1U << TOPO_RESTART |
                      1U << TOPO_ISOLATE | 1U << TOPO_STOP);
    topo.enabled |= 1U << TOPO_SLOT | 1U << TOPO_CUT;
    if (topo.seed % 2 != 0) {
        topo.enabled &= ~(1U << TOPO_HALF_SLOT);
    }
}

void fault_happens(int fault)
{
    topo_totals.faults[fault]++;
    pairs_happens(fault, topo.now);
}

void fault_plan(void)
{
    unsigned share = (unsigned)topo_draw(6); /* one world in six is undisturbed */
    for (int fault = 0; fault < TOPO_FAULTS; fault++) {
        if (topo_draw(8) < share) {
            topo.enabled |= 1U << fault;
        }
    }
    topo.pace = 20 * SNIB__MS << topo_draw(7);
    if (topo.focus == TOPO_QUEUES) {
        topo.enabled = 1U << TOPO_MANUAL | 1U << TOPO_LAG | (topo_chance(2) ? 1U << TOPO_CUT : 0);
        topo.pace = topo_between(100, 600) * SNIB__MS;
    } else if (topo.focus == TOPO_READERS) {
        topo.enabled = 1U << TOPO_SLOT | 1U << TOPO_HALF_SLOT;
        topo.pace = topo_between(50, 400) * SNIB__MS;
    } else if (topo.focus == TOPO_FIXED) {
        topo.enabled = 1U << TOPO_CUT | 1U << TOPO_RESTART | 1U << TOPO_LAG | 1U << TOPO_MANUAL;
        topo.pace = topo_between(200, 1000) * SNIB__MS;
    } else if (topo.focus == TOPO_LEFT) {
        topo.enabled = 1U << TOPO_KILL | 1U << TOPO_MANUAL | 1U << TOPO_LAG | 1U << TOPO_STOP |
                       (topo_chance(2) ? 1U << TOPO_CUT | 1U << TOPO_ISOLATE : 0) |
                       (topo_chance(2) ? 1U << TOPO_RESTART | 1U << TOPO_HOLE : 0) |
                       (topo_chance(2) ? 1U << TOPO_PAUSE | 1U << TOPO_LATE_TICK : 0);
        topo.pace = topo_between(200, 1000) * SNIB__MS;
    }
    if (topo.focus == TOPO_FORMER) { /* delays make replicas lag, too */
        topo.enabled = 1U << TOPO_DELAY | 1U << TOPO_MANUAL |
                       (topo_chance(2) ? 1U << TOPO_SLOT : 0) |
                       (topo_chance(4) ? 1U << TOPO_ISOLATE | 1U << TOPO_KILL : 0);
        topo.pace = topo_between(100, 500) * SNIB__MS;
    }
    if (topo.again) {
        plan_again();
    }
    if (topo.focused) {
        plan_focus();
    }
    topo.next_fault = topo.enabled == 0 ? SNIB__NEVER : topo.now + topo_draw(2 * topo.pace);
}

static snib__time for_a_while(void)
{
    const snib__time most[] = {3 * topo.lease, topo.lease / 2, 4 * topo.delay};
    return topo.now + topo_draw(most[topo_draw(3)]);
}

/* Each of these functions returns whether anything has changed. */

static bool strike_process(int fault)
{
    int slot = (int)topo_draw((uint64_t)topo.slot_count);
    struct topo_process *process = topo.slots[slot];
    snib__time until = for_a_while();
    if (fault == TOPO_PAUSE) {
        process->frozen_until = until;
    } else if (fault == TOPO_LATE_TICK) {
        process->late_until = until;
    } else if (fault == TOPO_HOLE) {
        int server = (int)topo_draw((uint64_t)topo.server_count);
        bool all = topo_chance(4);
        for (int i = 0; i < topo.server_count; i++) {
            if (all || i == server) {
                net_part(net_host(process), i, until);
            }
        }
    } else if (topo.process_count + topo.closing >= TOPO_PROCESSES || process->closed_at != 0) {
        return false;
    } else if (topo_chance(2)) {
        process_close(process);
    } else {
        process_crash(process);
        process_new(slot);
    }
    return true;
}

/* A master and the other servers lose contact; each process is on either side, or on both. */
static void isolate(int master, int shard)
{
    snib__time until = topo.now + topo_between(topo.lease / 4, 4 * topo.lease);
    topo_trace("server %d is isolated", master);
    for (int i = 0; i < topo.server_count; i++) {
        if (i != master) {
            net_part(master, i, until);
        }
    }
    for (int i = 0; i < topo.slot_count; i++) {
        int side = (int)topo_draw(3);
        for (int j = 0; side < 2 && j < topo.server_count; j++) {
            if ((j == master) == (side == 0)) {
                net_part(net_host(topo.slots[i]), j, until);
            }
        }
    }
    single_lost(shard);
}

/* Whether a request runs a script of this kind. */
static bool is_kind(int late, const char *bytes, size_t n)
{
    static const char *const kinds[] = {"_acquire", "_release", "_renew"};
    bool found = false;
    for (int i = 0; i < 3 * SNIB__SCRIPT_COUNT && !found; i++) {
        const struct snib__script_text *script = snib__script_of(i / 3, i % 3);
        found = strstr(snib__script_texts[i / 3].name, kinds[late - 1]) != NULL &&
                memmem(bytes, n, script->sha1, strlen(script->sha1)) != NULL;
    }
    return found;
}

/* Tasks do something between two moments, so that their processes hear of a new master. */
static void stir(snib__time from, snib__time to)
{
    for (int i = 0; i < topo.slot_count * topo.task_count; i++) {
        struct topo_task *task = &topo.slots[i / topo.task_count]->tasks[i % topo.task_count];
        bool may = task->doing == TOPO_RESTS || task->doing == TOPO_HOLDS_IT;
        if (may && task->wake > to) {
            task->wake = topo_between(from, to);
        }
    }
}

/* A master has carried out a request.  If the next of this kind is to be answered late, then its replicas are late, too: one
 * of them takes over that does not have it, and perhaps the master is the master again, before the reply comes.  Returns
 * when that may be, or 0. */
snib__time fault_late(const struct topo_pipe *pipe, const char *bytes, size_t n)
{
    int shard = topo.servers[pipe->server].shard;
    if (topo.late[shard] == 0 || topo.calm || topo.shards[shard].authority != pipe->server ||
        !is_kind(topo.late[shard], bytes, n)) {
        return 0;
    }
    snib__time at = topo.now + topo_draw(LATE / 4), back = at + topo_draw(LATE / 4);
    topo.late[shard] = topo_chance(2) ? LATE_RENEWAL : 0; /* the next one is asked what it has */
    topo_later(at, TOPO_PROMOTE, -1, shard, 0);
    if (topo_chance(3)) {
        topo_later(back, TOPO_PROMOTE, -1, shard, 0);
    }
    for (int i = 0; i < topo.data_count; i++) {
        topo.servers[i].lag = topo.servers[i].master == pipe->server ? LATE : topo.servers[i].lag;
    }
    net_late(pipe->server, topo.now + LATE);
    stir(at, topo.now + LATE);
    return topo.now + LATE;
}

/* A master has carried out a request.  Now and then the slot of a plain lock or of permits begins to move then, so that the
 * next hand-over finds it on its way, and the request is not answered, so that it is repeated: by chance they seldom meet. */
void fault_again(struct topo_pipe *pipe, const char *bytes, size_t n)
{
    if (!topo.again || !topo_has(TOPO_SLOT) || !topo_chance(5)) {
        return;
    }
    for (int i = 0; i < topo.name_count; i++) {
        const struct topo_name *name = &topo.names[i];
        bool fits = name->family == TOPO_PLAIN || name->family == TOPO_PERMITS;
        if (fits && topo.shards[name->shard].authority == pipe->server &&
            memmem(bytes, n, name->text, name->n) != NULL) {
            if (name->family == TOPO_PERMITS || topo_chance(4)) {
                pipe->cut_next = 2;
                pipe->cut_after = 0;
            }
            cluster_move(name);
            return;
        }
    }
}

/* Of a cluster whose masters are replaced, one with names. */
static int some_shard(void)
{
    return topo.focus == TOPO_FORMER ? topo.names[topo_draw((uint64_t)topo.name_count)].shard
                                     : (int)topo_draw((uint64_t)topo.shard_count);
}

static bool strike_shard(int fault)
{
    int shard = some_shard();
    int master = topo.shards[shard].authority;
    struct topo_server *server = &topo.servers[master];
    bool keeps = topo_chance(2);
    if (server->dead) {
        return false;
    }
    switch (fault) {
    case TOPO_ISOLATE:
        isolate(master, shard);
        break;
    case TOPO_STOP:
        server->stopped_until = topo.now + topo_draw(4 * topo.lease);
        topo_trace("server %d stops", master);
        single_lost(shard);
        break;
    case TOPO_KILL:
        server_kill(master, keeps);
        single_lost(shard);
        topo_later(topo.now + topo_between(500 * SNIB__MS, BACK), TOPO_RETURN, master, 0, 0);
        break;
    case TOPO_RESTART:
        server_kill(master, keeps);
        topo_later(topo.now + topo_draw(100 * SNIB__MS), TOPO_RETURN, master, 0, 0);
        break;
    default:
        if (topo.focus == TOPO_FORMER) {
            bool waits = topo.late[shard] == LATE_RENEWAL && !topo_chance(3); /* they are rare */
            topo.late[shard] = waits ? LATE_RENEWAL : 1 + (int)topo_draw(LATE_RENEWAL);
        } else {
            topo_later(topo.now, TOPO_PROMOTE, -1, shard, topo.shards[shard].terms);
        }
    }
    return true;
}

static bool strike_server(int fault)
{
    int at = (int)topo_draw((uint64_t)topo.data_count);
    if (fault == TOPO_LAG) {
        topo.servers[at].lag = topo_chance(2) ? 0 : topo_draw(2 * topo.lease);
        return topo.servers[at].lag > 0;
    }
    model_flush_scripts(topo.servers[at].model);
    return true;
}

static void strike(int fault)
{
    bool changed = false;
    struct topo_pipe *pipe = net_pick();
    topo_totals.faults[fault] +=
        fault != TOPO_CUT && fault != TOPO_DELAY && fault != TOPO_HALF_SLOT;
    switch (fault) {
    case TOPO_CUT:
        if (pipe != NULL) {
            pipe->cut_next = 1 + (int)topo_draw(2);
        }
        break;
    case TOPO_HOLE:
    case TOPO_PAUSE:
    case TOPO_LATE_TICK:
    case TOPO_CRASH:
        changed = strike_process(fault);
        break;
    case TOPO_STOP:
    case TOPO_KILL:
    case TOPO_MANUAL:
    case TOPO_RESTART:
    case TOPO_ISOLATE:
        changed = strike_shard(fault);
        break;
    case TOPO_LAG:
    case TOPO_SCRIPTS:
        changed = strike_server(fault);
        break;
    case TOPO_WATCH:
        if (topo.topology == SNIB__SENTINEL) {
            sentinel_disturb();
            changed = true;
        }
        break;
    case TOPO_SLOT:
    case TOPO_GROW:
        if (topo.topology == SNIB__CLUSTER) {
            cluster_disturb(fault);
            changed = true;
        }
        break;
    default:
        break;
    }
    if (changed) {
        pairs_happens(fault, topo.now);
    }
}

void fault_run(void)
{
    static const int often[] = {TOPO_CUT, TOPO_MANUAL, TOPO_KILL, TOPO_SLOT};
    static const int forgets[] = {TOPO_RESTART, TOPO_LAG, TOPO_MANUAL, TOPO_RESTART};
    int fault = topo.focused && topo_chance(2)                ? topo.pair[topo_draw(2)]
                : topo.focus == TOPO_FORMER && topo_chance(2) ? TOPO_MANUAL
                : topo.focus == TOPO_FIXED ? forgets[topo_draw(sizeof forgets / sizeof *forgets)]
                : topo_chance(3)           ? often[topo_draw(sizeof often / sizeof *often)]
                                           : (int)topo_draw(TOPO_FAULTS);
    while (!topo_has(fault)) {
        fault = (fault + 1) % TOPO_FAULTS;
    }
    /* Faults come in clusters: one that strikes what another has left is the hardest. */
    topo.next_fault = topo.now + 1 + topo_draw(topo_chance(3) ? 10 * topo.delay : 2 * topo.pace);
    unsigned seldom = topo.longest > 0 ? 10 : 20;
    if (topo.focus == TOPO_FORMER && topo_chance(seldom)) { /* what the last ones have left shows */
        topo.next_fault += 4000 * SNIB__MS;
    }
    strike(fault);
}

void fault_end_all(void)
{
    topo.next_fault = SNIB__NEVER;
    net_heal();
    for (int i = 0; i < topo.server_count; i++) {
        topo.servers[i].stopped_until = 0;
        topo.servers[i].lag = 0;
        server_return(i);
    }
    for (int i = 0; i < topo.slot_count; i++) {
        struct topo_process *process = topo.slots[i];
        process->frozen_until = process->frozen_until < topo.now ? process->frozen_until : topo.now;
        process->late_until = process->late_until < topo.now ? process->late_until : topo.now;
    }
    single_settle();
    if (topo.topology == SNIB__CLUSTER) {
        cluster_settle();
    }
}
