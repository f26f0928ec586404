/* group_check.c - what must be true: of two holds of one lock one is over, a hold that reports
 * itself safe is at the servers for as long, losses are reported, holds that no program wants are
 * not kept, and waiters are served. */
#include "engine_check.h"
#include "group_sim.h"

#include "engine/internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const names[] = {"lock:a", "lock:b"};

static snib__time latest(snib__time one, snib__time other)
{
    return one > other ? one : other;
}

bool check_is_valid(const struct world_hold *hold)
{
    int state = hold->users > 0
                    ? snib__hold_state(hold->home->client.driver.engine, hold->hold, world.now)
                    : SNIB_HOLD_LOST;
    return state == SNIB_HOLD_VALID || state == SNIB_HOLD_AT_RISK;
}

/* ---- What the servers have ---------------------------------------------------------------------- */

/* The owner of a name at a node and when that ends by the node's clock; false: it is free. */
static bool owner_of(int node, int name, model_text *out_owner, uint64_t *out_expires_ns)
{
    model_key key;
    model_text value;
    model *m = world.nodes[node].model;
    size_t n = sizeof "lock:a" - 1; /* of each */
    static const char write[] = ":write";
    const size_t tail = sizeof write - 1;
    if (!model_key_find(m, 0, names[name], n, &key)) {
        return false;
    }
    uint32_t i = 0;
    do {
        if (!model_field_at(m, 0, names[name], n, i++, out_owner, &value)) {
            return false;
        }
    } while (out_owner->n == 4 && memcmp(out_owner->p, "mode", 4) == 0);
    if (out_owner->n > tail && memcmp(out_owner->p + out_owner->n - tail, write, tail) == 0) {
        out_owner->n -= tail;
    }
    *out_expires_ns = key.expires_ns;
    return true;
}

/* One of several owners, who read. */
static bool reads(int node, const char *owner, size_t owner_n, uint64_t *out_expires_ns)
{
    model_key key;
    model_text field, value;
    model *m = world.nodes[node].model;
    size_t n = sizeof "lock:b" - 1;
    if (!model_key_find(m, 0, names[1], n, &key)) {
        return false;
    }
    for (size_t i = 0; model_field_at(m, 0, names[1], n, i, &field, &value); i++) {
        if (field.n == owner_n && memcmp(field.p, owner, owner_n) == 0) {
            *out_expires_ns = key.expires_ns;
            return true;
        }
    }
    return false;
}

static bool is_read(int name)
{
    return name == 1 && world.second_kind == SNIB_READ;
}

/* Whether a node has a member's hold until then. */
static bool node_has(const struct world_peer *peer, unsigned set, const struct snib__hold *hold,
                     snib__time until)
{
    char text[64];
    size_t n = snib__hold_owner(peer->client.driver.engine, hold, text);
    for (int i = 0; i < WORLD_NAMES; i++) {
        model_text owner;
        uint64_t expires_ns;
        if ((set >> i & 1) == 0) {
            continue;
        }
        bool there = is_read(i) ? reads(peer->node, text, n, &expires_ns)
                                : owner_of(peer->node, i, &owner, &expires_ns) && owner.n == n &&
                                      memcmp(owner.p, text, n) == 0;
        if (!there || (until != 0 && expires_ns < world_server_ns(peer->node, until))) {
            return false;
        }
    }
    return true;
}

/* Whether the node lost its memory and so gives no client its vote until then. */
static bool is_silent(int node, snib__time until)
{
    snib__time wiped_at = world.nodes[node].wiped_at;
    return world.quarantine && wiped_at != 0 && until < wiped_at + world.lease * 1000 / 1005;
}

/* The hold of a part; NULL: the group does not have it. */
static const struct snib__hold *member_of(const struct world_hold *hold, uint32_t part)
{
    const struct world_peer *peer = &hold->home->process->peers[hold->lock->part[part].node];
    unsigned set = hold->lock->part[part].names;
    const struct snib__gate *gate = peer->gates[set == 1 ? 0 : set == 2 ? 1 : WORLD_NAMES];
    const struct snib__hold *member = hold->hold->outer != NULL ? snib__gate_first(gate) : NULL;
    while (member != NULL && (member->phase != SNIB__HELD || member->sink != hold->hold->outer)) {
        member = snib__gate_next(gate, member);
    }
    return member;
}

/* How many of a hold's members the process itself trusts for as long as the whole. */
static uint32_t count_trusted(const struct world_hold *hold)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < hold->lock->n; i++) {
        const struct snib__hold *member = member_of(hold, i);
        n += member != NULL && member->deadline >= hold->hold->deadline;
    }
    return n;
}

/* The members of a lock of all whose servers lost their memory after it was requested: nothing is guaranteed of them,
 * until the longest lease is over that a server can have granted before.  The other members are as safe as ever. */
static uint32_t struck_members(const struct world_hold *hold)
{
    uint32_t struck = 0;
    snib__time longest = hold->was_fixed ? 2 * world.lease : world.lease;
    for (int i = 0; i < world.node_count && !world.majority; i++) {
        snib__time wiped_at = world.nodes[i].wiped_at;
        if (wiped_at != 0 && wiped_at >= hold->since && world.now < wiped_at + longest) {
            struck |= 3U << (i * WORLD_NAMES);
        }
    }
    return struck & hold->members;
}

/* How many of a hold's members are at their servers, at least until then. */
static uint32_t count_members(const struct world_hold *hold, snib__time until, bool excuses)
{
    uint32_t n = 0, struck = struck_members(hold);
    for (uint32_t i = 0; i < hold->lock->n; i++) {
        const struct world_peer *peer = &hold->home->process->peers[hold->lock->part[i].node];
        const struct snib__hold *member = member_of(hold, i);
        bool there = member != NULL && node_has(peer, hold->lock->part[i].names, member, until);
        bool excused =
            is_silent(peer->node, until) || (struck >> (peer->node * WORLD_NAMES) & 3) != 0;
        n += there || (excuses && excused);
    }
    return n;
}

/* The program has closed some client that the lock needs. */
static bool is_closed(const struct world_peer *home, const struct world_lock *lock)
{
    bool closed = home->client.stopped;
    for (uint32_t i = 0; lock != NULL && i < lock->n; i++) {
        closed |= home->process->peers[lock->part[i].node].client.stopped;
    }
    return closed;
}

/* Carriers have heard of everything that has happened in their clients. */
static bool is_settled(const struct world_process *process)
{
    for (int i = 0; i < world.node_count; i++) {
        if (process->peers[i].settle_at != SNIB__NEVER) {
            return false;
        }
    }
    return process->list_count == 0 && !world.stepping;
}

/* ... and the carrier has not heard of it yet. */
static bool is_closing(const struct world_hold *hold)
{
    return is_closed(hold->home, hold->lock) && !is_settled(hold->home->process);
}

/* ---- Holds -------------------------------------------------------------------------------------- */

static void check_exclusion(const struct world_hold *one)
{
    uint32_t alone = world.second_kind == SNIB_READ ? 0x55555555 : UINT32_MAX; /* not by readers */
    alone &= one->members & ~struck_members(one);
    for (uint32_t i = 0; i < world.process_count; i++) {
        const struct world_process *process = world.processes[i];
        for (int j = 0; j < WORLD_HOLDS && !process->dead; j++) {
            const struct world_hold *other = &process->holds[j];
            if (other != one && (other->members & alone) != 0 && check_is_valid(other) &&
                (other->members & alone & ~struck_members(other)) != 0 && !is_closing(other)) {
                world_fail("%u and %u hold %x and %x", one->home->process->id, process->id,
                           one->members, other->members);
            }
        }
    }
}

static void check_members(struct world_hold *hold)
{
    if (hold->lock == NULL) {
        return;
    }
    uint32_t n = count_members(hold, hold->hold->deadline, true);
    uint32_t need = world.majority ? world.need : hold->lock->n;
    if (n < need) {
        world_fail("%u trusts in %u members of %u for %.1f ms", hold->home->process->id, n, need,
                   (double)(hold->hold->deadline - world.now) / 1e6);
    }
    if (is_settled(hold->home->process) && count_trusted(hold) < need) {
        world_fail("%u trusts in its hold longer than in %u of its members",
                   hold->home->process->id, need);
    }
    if (hold->lock && hold->lease != 0 && hold->extending == 0 &&
        hold->hold->deadline > hold->limit) {
        world_fail("a fixed lease of %u (%x) has grown to %.3f, limit %.3f",
                   hold->home->process->id, hold->members,
                   (double)(hold->hold->deadline - WORLD_START) / 1e6,
                   (double)(hold->limit - WORLD_START) / 1e6);
    }
    if (hold->lease != 0 || hold->extending > 0 || count_members(hold, 0, false) >= need) {
        hold->short_since = 0;
    } else if (hold->short_since == 0) {
        hold->short_since = world.now;
    }
    if (hold->short_since != 0 && world.now > latest(hold->short_since, world.stable_at) +
                                                  world.lease / 2 + 1000 * SNIB__MS) {
        world_fail("%u has %u members of %u at the servers without noticing",
                   hold->home->process->id, count_members(hold, 0, false), need);
    }
}

static void check_hold(struct world_hold *hold)
{
    const struct world_process *process = hold->home->process;
    if (check_is_valid(hold)) {
        if (!is_closing(hold)) {
            check_exclusion(hold);
            check_members(hold);
        }
        return;
    }
    snib__time slack =
        world_has(WORLD_PREEMPT) && world.now < world.stable_at ? 4 * world.lease : 4 * WORLD_STEP;
    if (snib__hold_state(hold->home->client.driver.engine, hold->hold, world.now) ==
            SNIB_HOLD_LOST &&
        !hold->told && world.now > latest(hold->hold->deadline, process->frozen_until) + slack) {
        world_fail("the hold of %u is over, which was not reported", process->id);
    }
}

/* ---- Claims at the servers ---------------------------------------------------------------------- */

static bool is_groups(const struct snib__hold *hold, const void *carrier)
{
    return hold != NULL && hold->outer == carrier &&
           (hold->phase == SNIB__TRYING || hold->phase == SNIB__HELD);
}

static bool is_carried(const struct world_process *process, const void *carrier)
{
    for (int i = 0; i < WORLD_HOLDS; i++) {
        if (process->holds[i].lock != NULL && is_groups(process->holds[i].hold, carrier)) {
            return true;
        }
    }
    for (int i = 0; i < WORLD_TASKS; i++) {
        if (process->tasks[i].lock != NULL && is_groups(process->tasks[i].wanted, carrier)) {
            return true;
        }
    }
    return false;
}

static bool is_wanted(const struct world_peer *peer, uint64_t number)
{
    for (int i = 0; i < WORLD_HOLDS; i++) { /* a single member is the program's, even if lost */
        const struct world_hold *hold = &peer->process->holds[i];
        if (hold->users > 0 && hold->lock == NULL && hold->home == peer &&
            hold->hold->number == number) {
            return true;
        }
    }
    for (int i = 0; i <= WORLD_NAMES; i++) {
        const struct snib__gate *gate = peer->gates[i];
        const struct snib__hold *hold = snib__gate_first(gate);
        while (hold != NULL && hold->number != number) {
            hold = snib__gate_next(gate, hold);
        }
        if (gate->waitq != NULL && gate->waitq->incoming != NULL &&
            gate->waitq->incoming->number == number) {
            return true;
        }
        if (hold == NULL) {
            continue;
        }
        if (hold->phase == SNIB__TRYING) {
            return hold->op != NULL;
        }
        bool ours = hold->tell == SNIB__TELL_CARRIER ? is_carried(peer->process, hold->sink)
                                                     : (hold->flags & SNIB__HANDED) != 0;
        return hold->phase == SNIB__HELD && ours;
    }
    return false;
}

/* The client that an owner text names. */
static void read_owner(struct world_claim *claim)
{
    char *rest;
    unsigned long process = strtoul(claim->owner, &rest, 16), node = strtoul(rest + 1, NULL, 16);
    const char *colon = strchr(claim->owner, ':');
    if (process >= world.process_count || node >= WORLD_NODES || colon == NULL) {
        world_fail("the owner %s is unknown", claim->owner);
    }
    claim->process = (uint32_t)process;
    claim->node = (int)node;
    claim->number = strtoull(colon + 1, NULL, 10);
}

/* A claim that no program wants is soon given back, even if only the server knows that it was
 * granted. */
static void check_claim(int node, int name)
{
    struct world_claim *claim = &world.claims[node][name];
    model_text text;
    uint64_t expires_ns;
    size_t n = 0;
    if (!is_read(name) && owner_of(node, name, &text, &expires_ns)) {
        n = text.n < sizeof claim->owner - 1 ? text.n : sizeof claim->owner - 1;
    }
    if (n == 0 || strncmp(claim->owner, text.p, n) != 0 || claim->owner[n] != '\0') {
        memset(claim, 0, sizeof *claim);
        claim->since = world.now;
        if (n > 0) {
            memcpy(claim->owner, text.p, n);
            read_owner(claim);
        }
        return;
    }
    const struct world_process *process = world.processes[claim->process];
    if (process->dead || is_wanted(&process->peers[claim->node], claim->number)) {
        claim->unwanted_since = 0;
        return;
    }
    if (claim->unwanted_since == 0) {
        claim->unwanted_since = world.now;
    }
    snib__time limit = 16 * world.delay + 100 * SNIB__MS;
    if (world.enabled != 0) {
        limit += 3000 * SNIB__MS + 2 * world.reply_timeout;
    }
    snib__time since = latest(latest(claim->unwanted_since, process->left_until), world.calm_at);
    if (world.calm && world.now > since + limit) {
        world_fail("%s is kept at node %d, and no operation wants it", claim->owner, node);
    }
}

/* ---- Waiters ------------------------------------------------------------------------------------ */

/* What the result may say depends on it. */
static void watch_wait(const struct world_process *process, struct world_task *task)
{
    /* Someone who has left, or died, may have a place in the queue for a while. */
    task->contended |= world.second_kind == SNIB_FAIR || world.second_kind == SNIB_READ;
    for (int i = 0; i < world.node_count; i++) {
        if (!world.nodes[i].dead && world.nodes[i].paused_until <= world.now) {
            task->unmute |= 1U << i;
        }
    }
    for (int i = 0; i < WORLD_TASKS; i++) {
        const struct world_task *other = &process->tasks[i];
        task->rivalled |= other != task && other->op != NULL && other->members & task->members;
        task->rivalled |= other != task && other->hold != NULL && other->members & task->members;
    }
    for (int i = 0; i < WORLD_NODES * WORLD_NAMES; i++) {
        int node = i / WORLD_NAMES, name = i % WORLD_NAMES;
        const struct world_claim *claim = &world.claims[node][name];
        bool foreign = claim->process != process->id || claim->unwanted_since != 0;
        bool is_kept = claim->owner[0] != '\0' && foreign;
        if (world.nested && node < world.node_count &&
            !world.nodes[node].dead) { /* then claims are not followed */
            model_text owner;
            uint64_t expires_ns;
            is_kept |= owner_of(node, name, &owner, &expires_ns);
        }
        task->contended |= (task->members >> i & 1) != 0 && is_kept;
    }
}

/* However short the wait for a lock of one server, its first attempt has the patience of a single
 * try. */
static void check_wait(const struct world_process *process, struct world_task *task)
{
    if (task->doing != WORLD_WAITS) {
        return;
    }
    watch_wait(process, task);
    if (task->op->told && task->known_at == 0) {
        task->known_at = world.now;
    }
    /* The first attempt has the patience of a single try, which the members of a multi lock share: see carrier.c. */
    snib__time grace = world.patience / 3;
    snib__time begun = task->submitted;
    if (snib__outer_is(task->op->gate)) {
        begun = latest(begun, latest(process->frozen_until, process->late_at)) + WORLD_STEP;
    }
    snib__time until = task->op->told ? task->known_at : begun + grace;
    bool settled = is_settled(process); /* else a thread is on its way to say so */
    if (task->wait_ends != SNIB__NEVER && settled &&
        world.now > latest(latest(task->wait_ends, until), process->frozen_until)) {
        world_fail("a task of %u waits longer than it wanted, from %.3f ms to %.3f ms, grace %.3f",
                   process->id, (double)task->submitted / 1e6, (double)task->wait_ends / 1e6,
                   (double)grace / 1e6);
    }
}

/* Whether enough nodes live whose clients the process has not closed. */
static bool is_in_reach(const struct world_process *process, const struct world_lock *lock)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < lock->n; i++) {
        int node = lock->part[i].node;
        n += !world.nodes[node].dead && !process->peers[node].client.stopped;
    }
    return n >= (world.majority ? world.need : lock->n);
}

/* Whether a lock has waiters, and none that can never get it: such a waiter would keep votes while
 * it hopes for more. */
static bool is_asked_for(const struct world_lock *lock)
{
    bool asked = false;
    for (int i = 0; i < world.slot_count; i++) {
        const struct world_process *process = world.slots[i];
        for (int j = 0; j < WORLD_TASKS; j++) {
            const struct world_task *task = &process->tasks[j];
            bool waits = task->doing == WORLD_WAITS && task->lock == lock;
            if (waits && !is_in_reach(process, lock)) {
                return false;
            }
            asked |= waits && !task->once;
        }
    }
    return asked;
}

static bool is_taken(uint32_t members)
{
    for (int i = 0; i < world.slot_count; i++) {
        for (int j = 0; j < WORLD_HOLDS; j++) {
            const struct world_hold *hold = &world.slots[i]->holds[j];
            if ((hold->members & members) != 0 && check_is_valid(hold)) {
                return true;
            }
        }
    }
    return false;
}

/* One of the waiters gets a free lock, however often they get in each other's way. */
static void check_served(int index)
{
    if (!world.calm || !is_asked_for(&world.locks[index]) || is_taken(world.locks[index].members)) {
        world.served_at[index] = world.now;
    }
    if (world.now > world.served_at[index] + 3 * world.lease + 10000 * SNIB__MS) {
        world_fail("lock %d is free and no waiter gets it", index);
    }
}

/* ---- Everything --------------------------------------------------------------------------------- */

/* Whenever nobody is inside an engine; not at each step, for that costs more than the step, and not
 * again before somebody was inside. */
static void check_engines(struct world_process *process)
{
    for (int i = 0; i < world.node_count && !world.nested && world.events % 8 == 0; i++) {
        struct world_peer *peer = &process->peers[i];
        const char *flaw = peer->unchecked ? engine_flaw(peer->client.driver.engine) : NULL;
        if (flaw != NULL) {
            world_fail("%u: in an engine it is not true that %s", process->id, flaw);
        }
        peer->unchecked = false;
    }
}

void check_step(void)
{
    for (int i = 0; i < world.slot_count; i++) {
        struct world_process *process = world.slots[i];
        check_engines(process);
        for (int j = 0; j < WORLD_HOLDS; j++) {
            if (process->holds[j].users > 0) {
                check_hold(&process->holds[j]);
            }
        }
        for (int j = 0; j < WORLD_TASKS; j++) {
            check_wait(process, &process->tasks[j]);
        }
    }
    for (int i = 0; i < world.node_count && !world.nested; i++) {
        for (int j = 0; j < WORLD_NAMES && !world.nodes[i].dead; j++) {
            check_claim(i, j);
        }
    }
    for (int i = 0; i < world.lock_count; i++) {
        check_served(i);
    }
}

/* An acquire may end with "not free" only if another owner had a member; of a majority, if enough
 * nodes could answer: a majority, or so many that their refusals leave none.  In either case the
 * process itself may have been in the way. */
static bool may_be_unfree(const struct world_task *task)
{
    uint32_t unmute = (uint32_t)__builtin_popcount(task->unmute),
             n = task->lock ? task->lock->n : 0;
    if (task->rivalled) {
        return true;
    }
    return world.majority && n > 0 ? unmute >= world.need || unmute > n - world.need
                                   : task->contended;
}

/* The members of a multi lock share the patience of a single try.  Where the ways are long, connecting to the first ones may
 * have used it up: about eight ways for each. */
static bool may_be_unasked(const struct world_task *task)
{
    snib__time patience = world.patience / 3 / SNIB__MS * SNIB__MS;
    return !world.majority && task->lock != NULL && task->lock->n * 8 * world.delay > patience &&
           world.now >= task->submitted + patience;
}

static bool may(int fault)
{
    return (world.enabled >> fault & 1) != 0;
}

/* What an operation may end with because of what goes wrong in this world, before it is stable, or because a client that it
 * needs was closed. */
static bool is_explained(int32_t code, bool closed)
{
    bool explained = code == SNIB_ECONNECT || code == SNIB_EUNREACHABLE ? true
                     : code == SNIB_EREADONLY ? may(WORLD_ERRORS) || may(WORLD_MASTERDOWN)
                     : code == SNIB_ELOADING
                         ? may(WORLD_ERRORS) || may(WORLD_BUSY) || may(WORLD_MASTERDOWN)
                     : code == SNIB_EOOM     ? may(WORLD_ERRORS)
                     : code == SNIB_EMISCONF ? may(WORLD_ERRORS) || may(WORLD_NOREPLICAS)
                     : code == SNIB_EPERM    ? may(WORLD_NO_COMMAND)
                     : code == SNIB_EAUTH    ? may(WORLD_PASSWORD)
                     : code == SNIB_ESERVER  ? may(WORLD_ERROR_AFTER)
                                             : false; /* no server here speaks nonsense */
    return (explained && world.enabled != 0 && world.now < world.stable_at) ||
           (closed && code == SNIB_ECLOSED);
}

/* The latest moment at which something has disturbed a node, a process, or the way between them. */
static snib__time troubled_until(const struct world_process *process, int node)
{
    return latest(world.nodes[node].troubled_until,
                  latest(process->peers[node].troubled_until, process->frozen_until));
}

/* Whether nothing can have taken a name from a hold: it is at its node, and since it came, long enough ago to be known,
 * nothing has disturbed the node or the way to it.  The network and the threads are not too slow either. */
static bool is_sound(const struct world_hold *hold, int node, int name)
{
    const struct world_process *process = hold->home->process;
    const struct world_claim *claim = &world.claims[node][name];
    const snib__time known = 4 * world.delay + 4 * WORLD_STEP;
    bool ours = claim->owner[0] != '\0' && claim->process == process->id &&
                claim->unwanted_since == 0 && claim->since >= hold->since;
    return ours && troubled_until(process, node) < claim->since &&
           world.now > claim->since + known && !process->peers[node].client.stopped &&
           !may(WORLD_DELAY) && !may(WORLD_PREEMPT);
}

/* A hold's parts: of one name of one node there is one. */
static uint32_t count_parts(const struct world_hold *hold)
{
    return hold->lock != NULL ? hold->lock->n : 1;
}

static int node_of(const struct world_hold *hold, uint32_t part)
{
    return hold->lock != NULL ? hold->lock->part[part].node : hold->home->node;
}

/* A release begins: which parts are the hold's beyond doubt, and for how long. */
void check_releasing(struct world_hold *hold)
{
    hold->released_at = world.now;
    for (uint32_t i = 0; i < count_parts(hold); i++) {
        int node = node_of(hold, i);
        const struct snib__hold *member = hold->lock != NULL ? member_of(hold, i) : hold->hold;
        bool sound = member != NULL;
        for (int name = 0; name < WORLD_NAMES; name++) {
            bool has = (hold->members >> (node * WORLD_NAMES + name) & 1) != 0;
            sound = sound && (!has || (is_sound(hold, node, name) &&
                                       world.claims[node][name].number == member->number));
        }
        hold->sound_until[i] = sound ? member->deadline : 0;
    }
}

/* A release may find that the hold is lost if its lease is over, or if it was not to be found at enough servers: all but
 * those that had it as the release began, and that nothing has disturbed since. */
static bool may_be_lost(const struct world_hold *hold)
{
    const struct world_process *process = hold->home->process;
    uint32_t n = 0, need = world.majority ? world.need : count_parts(hold);
    for (uint32_t i = 0; i < count_parts(hold); i++) {
        int node = node_of(hold, i);
        n += world.now < hold->sound_until[i] &&
             troubled_until(process, node) < hold->released_at &&
             !process->peers[node].client.stopped;
    }
    return world.now >= hold->hold->deadline ||
           (n < need && (world.enabled != 0 || is_closed(hold->home, hold->lock)));
}

void check_result(const struct world_process *process, struct world_task *task, int32_t code)
{
    bool closed = is_closed(task->home, task->lock);
    bool honest;
    if (process->dead || code == SNIB_OK) {
        return;
    }
    if (task->doing == WORLD_RELEASES) {
        honest = code == SNIB_CANCELLED ? task->cancelled
                 : code == SNIB_LOST    ? may_be_lost(task->hold)
                                        : is_explained(code, closed);
    } else {
        watch_wait(process, task);
        honest = code == SNIB_BUSY        ? task->once && may_be_unfree(task)
                 : code == SNIB_TIMEDOUT  ? world.now >= task->wait_ends && may_be_unfree(task)
                 : code == SNIB_CANCELLED ? task->cancelled
                                          : is_explained(code, closed) ||
                                                (code == SNIB_EUNREACHABLE && may_be_unasked(task));
    }
    if (!honest) {
        world_fail("%u: %s ended with %s", process->id,
                   task->doing == WORLD_RELEASES ? "a release" : "an acquire",
                   snib_code_name(code));
    }
}

/* After an extension the hold is safe for that long, since it was asked for. */
void check_extended(struct world_hold *hold, const struct world_task *task, int32_t code)
{
    const struct world_process *process = hold->home->process;
    snib__time lease = task->lease ? task->lease : world.lease;
    bool valid = check_is_valid(hold);
    bool honest = code == SNIB_OK          ? true
                  : code == SNIB_CANCELLED ? task->cancelled
                  : code == SNIB_LOST      ? !valid
                  : code == SNIB_NOT_HELD  ? hold->released
                                           : is_explained(code, is_closed(hold->home, hold->lock));
    if (!honest && !process->dead) {
        world_fail("%u: an extension ended with %s", process->id, snib_code_name(code));
    }
    if (code != SNIB_OK || !valid) {
        return;
    }
    if (hold->extending == 1 && hold->hold->deadline < snib__lease_end(task->submitted, lease)) {
        world_fail("%u: after an extension by %.1f ms %.1f ms are left", process->id,
                   (double)lease / 1e6, (double)(hold->hold->deadline - world.now) / 1e6);
    }
    hold->lease = task->lease;
    hold->limit = latest(hold->hold->deadline, world.now + lease);
}

/* A fixed lease ends no earlier than it would if it had begun with the request. */
static bool is_over(const struct world_hold *hold)
{
    return hold->was_fixed &&
           (hold->lease == 0 || hold->hold->deadline >= snib__lease_end(hold->since, hold->lease));
}

static uint32_t count_sound(const struct world_hold *hold)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < hold->lock->n; i++) { /* a vote is one name */
        n += is_sound(hold, hold->lock->part[i].node, (int)hold->lock->part[i].names - 1);
    }
    return n;
}

/* Every loss has a cause. */
void check_lost(const struct world_hold *hold)
{
    const struct world_process *process = hold->home->process;
    const struct snib__hold *lost = hold->hold;
    bool troubled = world.enabled != 0 && world.now < world.stable_at + 2 * world.lease;
    bool closed = is_closed(hold->home, hold->lock);
    bool honest = lost->reason == SNIB_REASON_MAX_HOLD ? lost->max_hold_ms != 0
                  : lost->reason == SNIB_REASON_CLOSED ? closed
                  : lost->reason == SNIB_REASON_EXPIRED
                      ? is_over(hold) || (hold->was_fixed && troubled)
                      : troubled || closed;
    if (!process->dead && !honest) {
        world_fail("%u: a loss was reported without a cause: %s", process->id,
                   snib_reason_text(lost->reason));
    }
    bool by_votes = world.majority && lost->reason != SNIB_REASON_MAX_HOLD &&
                    lost->reason != SNIB_REASON_CLOSED && lost->reason != SNIB_REASON_EXPIRED;
    if (!process->dead && by_votes && count_sound(hold) >= world.need) {
        world_fail("%u: a loss was reported (%s), although a majority is at the nodes", process->id,
                   snib_reason_text(lost->reason));
    }
}

static bool begins(const model_text *name, const char *with)
{
    return name->n >= strlen(with) && memcmp(name->p, with, strlen(with)) == 0;
}

/* The state after everything is released and every lease is over. */
void check_end(void)
{
    model_key key;
    for (int i = 0; i < world.node_count; i++) {
        for (size_t j = 0; model_key_at(world.nodes[i].model, j, &key); j++) {
            /* A place in a queue that nobody has given back may outlast leases. */
            bool stays =
                begins(&key.name, "snib_quorum_epoch") ||
                begins(&key.name, "redisson_lock_token:") ||
                (key.expires_ns != UINT64_MAX && (begins(&key.name, "redisson_lock_queue:") ||
                                                  begins(&key.name, "redisson_lock_timeout:") ||
                                                  begins(&key.name, "snib_lock_beats:")));
            if (!stays) {
                world_fail("at the end node %d has %.*s", i, (int)key.name.n, key.name.p);
            }
        }
    }
    for (uint32_t i = 0; i < world.process_count; i++) {
        struct world_process *process = world.processes[i];
        for (int j = 0; j < world.lock_count; j++) {
            if (atomic_load(&process->locks[j].parts->refs) != 1) {
                world_fail("at the end %u still carries lock %d", process->id, j);
            }
        }
        for (int j = 0; j < world.node_count && !process->dead; j++) {
            const struct snib__engine *engine = process->peers[j].client.driver.engine;
            snib_client_stats_data stats = {.size = sizeof stats};
            snib__engine_stats(engine, &stats);
            bool quiet = world.nodes[j].dead || snib__engine_quiet(engine);
            if (stats.held != 0 || stats.waiting != 0 || !quiet) {
                world_fail("at the end %u holds %llu at node %d, waits for %llu", process->id,
                           (unsigned long long)stats.held, j, (unsigned long long)stats.waiting);
            }
        }
    }
}
