/* topo_check.c - what must be true of results and at every step, judged with full knowledge of
 * which server is master and of what every server has.
 *
 * A hold that reports itself valid is known to the truth (topo_truth.c), for as long as it is
 * valid; if it is not, it is excused, and there are few excuses: a server took over that had not
 * heard of it, or started without data, or another server acted as a master beside the true one.
 */
#include "engine_check.h"
#include "topo.h"

#include "engine/ask.h"
#include "engine/internal.h"
#include "locks/kind.h"
#include "snib.h"

#include <stdio.h>
#include <string.h>

/* How many replicas have a hold's first name. */
static int copies(const struct topo_process *process, const struct topo_hold *hold, int master)
{
    model_text name = owner_key(&topo.names[hold->use.name]);
    int n = 0;
    for (int i = 0; i < topo.data_count; i++) {
        model_key key;
        n += i != master && topo.servers[i].master == master &&
             model_key_find(topo.servers[i].model, 0, name.p, name.n, &key);
    }
    (void)process;
    return n;
}

/* The replicas that the engine reports for a grant have it, unless something has happened to the
 * servers meanwhile. */
static void check_replicas(const struct topo_process *process, struct topo_hold *hold)
{
    int master = topo.shards[topo.names[hold->use.name].shard].authority;
    int in_step = server_acked(master, 0), said = hold->hold->replicas;
    if (topo.topology == SNIB__CLUSTER || truth_broken_at(hold) >= hold->submitted) {
        return;
    }
    bool quiet = true;
    for (int i = 0; i < topo.data_count; i++) {
        quiet = quiet && !topo.servers[i].dead && topo.servers[i].synced_at < hold->submitted;
    }
    if (quiet && hold->use.kind != SNIB__MULTI && said > copies(process, hold, master)) {
        topo_fail("%u:%llu is reported on %d replicas, but %d have it", process->id,
                  (unsigned long long)hold->number, said, copies(process, hold, master));
    }
    for (int i = 0; i < topo.data_count && said > 0 && said >= in_step; i++) {
        hold->durable |= (uint64_t)server_listens(i, master) << i;
    }
}

/* A replica is wanted for each grant.  A server that never had one is excused, but not one that takes over from a server
 * that had, however a client learns of that: in a cluster, where slots move and the server's own redirection may be the first
 * word of it. */
static void check_wanted(struct topo_process *process, const struct topo_hold *hold)
{
    const struct topo_name *name = &topo.names[hold->use.name];
    int shard = name->shard, said = hold->hold->replicas;
    /* if its slot is moved meanwhile, another shard may have granted it */
    bool moved = name->came_at >= hold->submitted || name->apart_until >= hold->submitted;
    if (topo.topology != SNIB__CLUSTER || topo.durability != 1 || moved ||
        topo.durability_policy != SNIB_DURABILITY_REFUSE || hold->use.kind == SNIB__MULTI) {
        return;
    }
    /* Not by a former master, which has not heard yet that the slot is another's. */
    int master = topo.shards[shard].authority;
    bool here =
        snib__address_equal(&hold->hold->gate->node->address, &topo.servers[master].address);
    if (said == 0 && here && (process->replicated >> shard & 1) != 0) {
        topo_fail("%u:%llu is granted on no replica, and its server had one", process->id,
                  (unsigned long long)hold->number);
    }
    here = here && said > 0 && copies(process, hold, master) > 0;
    process->replicated |= (uint64_t)here << shard;
}

/* A replica is promoted that was in step when every replica in step had a hold: it has it.  Later
 * extensions of the lease may be lost, so only holds are checked whose first lease has not
 * ended. */
void check_durable(int at)
{
    const struct topo_server *server = &topo.servers[at];
    if (topo.topology == SNIB__CLUSTER) {
        return;
    }
    for (int i = 0; i < topo.slot_count * TOPO_HOLDS; i++) {
        const struct topo_process *process = topo.slots[i / TOPO_HOLDS];
        const struct topo_hold *hold = &process->holds[i % TOPO_HOLDS];
        if (hold->hold == NULL || (hold->durable >> at & 1) == 0 || hold->released ||
            hold->hold->phase != SNIB__HELD || truth_broken_at(hold) >= hold->submitted ||
            server->synced_at >= hold->submitted ||
            topo.now >= hold->hold->acquired_at + topo.lease / 2 ||
            topo.now >= snib__hold_end(hold->hold)) {
            continue;
        }
        topo_totals.durable++;
        for (int k = 0; k < topo.name_count; k++) {
            if ((hold->use.names >> k & 1) != 0 && truth_until(hold, &topo.names[k]) == 0) {
                topo_fail("%u:%llu is gone in a failover, and %d replicas had it", process->id,
                          (unsigned long long)hold->number, hold->hold->replicas);
            }
        }
    }
}

/* ---- Requests ----------------------------------------------------------------------------------- */

#define MOST_SENT 400 /* requests without effect, and ... */
#define MOST_AGAIN                                                                                 \
    60 /* ... for each release that is repeated, which nodes may redirect in a circle, within: */
#define MOST_CONNECTS 200
#define COUNTED (1000 * SNIB__MS)

void check_progress(struct topo_process *process)
{
    process->counted_since = topo.now;
    process->sent = process->most_given = 0;
}

/* No process is busy to no effect. */
void check_sent(struct topo_process *process)
{
    process->sent_at = topo.now;
    if (topo.now > process->counted_since + COUNTED)
        check_progress(process);
    if (process->engine->given_flight > process->most_given)
        process->most_given = process->engine->given_flight;
    if (++process->sent > MOST_SENT + MOST_AGAIN * process->most_given) {
        topo_fail("%u has sent %u times and nothing came of it", process->id, process->sent);
    }
}

void check_connects(struct topo_process *process)
{
    if (topo.now > process->connects_since + COUNTED) {
        process->connects_since = topo.now;
        process->connects = 0;
    }
    if (++process->connects > MOST_CONNECTS) {
        topo_fail("%u has connected %u times within a second", process->id, process->connects);
    }
}

/* ---- Results ------------------------------------------------------------------------------------ */

static void check_token(struct topo_process *process, const struct topo_hold *hold)
{
    struct topo_name *name = &topo.names[hold->use.name];
    int64_t token = snib__hold_fencing(hold->hold);
    if (hold->use.kind != SNIB_FENCED) {
        return;
    }
    bool broken =
        truth_broken_at(hold) >= hold->submitted || truth_broken_at(hold) >= name->token_at;
    if (token <= 0 || (token <= name->last_token && !broken)) {
        topo_fail("%u:%llu of %s has the token %lld after %lld", process->id,
                  (unsigned long long)hold->number, name->text, (long long)token,
                  (long long)name->last_token);
    }
    name->last_token = token;
    name->token_at = hold->submitted;
}

void check_granted(struct topo_process *process, const struct topo_task *task,
                   struct topo_hold *hold)
{
    if (task->cancelled) {
        topo_fail("%u: a cancelled operation has got the lock", process->id);
    }
    int state = snib__hold_state(process->engine, hold->hold, topo.now);
    if (state != SNIB_HOLD_VALID && state != SNIB_HOLD_AT_RISK) {
        topo_fail("%u was given a hold that is over", process->id);
    }
    check_token(process, hold);
    check_replicas(process, hold);
    check_wanted(process, hold);
}

/* Its master has no replica in step: each WAIT takes as long as it may, and a single try may end behind those of others, or
 * the last one of a wait. */
static bool waits_in_vain(const struct topo_task *task)
{
    int at = topo.shards[topo.names[task->use.name].shard].authority;
    return topo.durability != 0 && server_acked(at, 0) == 0;
}

/* What an operation may end with because of its server: it could not be reached in time, or would not serve the request. */
static bool is_servers_fault(int32_t code)
{
    return code == SNIB_ECONNECT || code == SNIB_EUNREACHABLE || code == SNIB_EREADONLY ||
           code == SNIB_ELOADING;
}

/* No connection: nothing was applied, at any master.  What a former one has is forgotten when it follows the new one. */
static void check_nothing_applied(const struct topo_process *process, const struct topo_task *task)
{
    struct topo_hold none = {.use = task->use, .number = task->number};
    char owner[OWNER_MAX];
    uint64_t until;
    none.owner_n = (size_t)snprintf(none.owner, sizeof none.owner, "%s:%llu", process->uuid,
                                    (unsigned long long)task->number);
    for (int i = 0; i < topo.data_count * topo.name_count; i++) {
        int at = i / topo.name_count;
        bool leads = topo.shards[topo.servers[at].shard].authority == at;
        const struct topo_name *name = &topo.names[i % topo.name_count];
        for (size_t j = 0; leads && owner_at(topo.servers[at].model, name, j, owner, &until); j++) {
            if (truth_is_owner(&none, truth_writes(&none, name), owner)) {
                topo_fail("%u:%llu has no connection, and server %d has it", process->id,
                          (unsigned long long)task->number, at);
            }
        }
    }
}

/* What is said of an operation that had no server: that there is no connection only where there is none, and otherwise
 * what the server said.  The connection may have ended since. */
void check_reason(const struct topo_process *process, const struct snib__op *op)
{
    bool connected = snib__node_ready(snib__op_node(op));
    /* what waits for replicas has a connection of its own, which may be down alone: then its cause is told */
    bool other = topo.durability != 0 && op->cause != 0;
    bool explained = op->unserved ? op->words != NULL : !connected || other;
    if (op->code == SNIB_ECONNECT && !explained) {
        topo_fail("%u: %s is connected, and an operation ended with %s", process->id,
                  snib__op_node(op)->where, snib_code_name(op->code));
    }
}

/* Too few replicas had a grant in time, or the lease ended before they answered. */
static bool is_not_durable(const struct topo_process *process, const struct topo_task *task)
{
    bool few =
        topo.durability_policy == SNIB_DURABILITY_REFUSE && process->few_at >= task->submitted;
    return topo.durability != 0 && (few || topo.now >= task->submitted + task->lease / 2);
}

/* BUSY is said of a lock that was not free.  Where others have turns, or several hold it, it need not be so. */
static void check_busy(const struct topo_process *process, const struct topo_task *task)
{
    const struct topo_name *name = &topo.names[task->use.name];
    int kind = task->use.kind;
    bool alone = kind == SNIB_MUTEX || kind == SNIB_FENCED || kind == SNIB_PLAIN;
    snib__time doubted = latest(latest(name->broken_at, name->island_until),
                                latest(name->came_at, name->apart_until));
    bool asked_it = process->asks[task->use.name] == topo.shards[name->shard].authority &&
                    process->asks_since[task->use.name] < task->submitted &&
                    truth_reaches_since(process, name->shard) < task->submitted;
    if (alone && !task->rivalled && !task_is_rivalled(process, task) && asked_it &&
        doubted < task->submitted && name->free_since < task->submitted) {
        topo_fail("%u: task %d got BUSY, and %s was free all the time", process->id,
                  (int)(task - process->tasks), name->text);
    }
}

void check_not_granted(struct topo_process *process, const struct topo_task *task, int32_t code)
{
    bool honest = code == SNIB_BUSY        ? task->once
                  : code == SNIB_TIMEDOUT  ? topo.now >= task->wait_ends
                  : code == SNIB_CANCELLED ? task->cancelled
                  : code == SNIB_EREPLICAS ? is_not_durable(process, task)
                  : code == SNIB_EPERMITS  ? permits_may_be_few(task)
                  : code == SNIB_EUPGRADE  ? task->use.kind == SNIB_WRITE && topo.owned
                  : code == SNIB_ECLOSED   ? process->closed_at != 0
                                           : is_servers_fault(code) && topo.now < topo.stable_at;
    honest |= code == SNIB_EUNREACHABLE && (task->once || topo.now >= task->wait_ends) &&
              waits_in_vain(task);
    honest |= task->doing == TOPO_ASKS && code == SNIB_OK;
    if (!honest) {
        topo_fail("%u: task %d ended with %s", process->id, (int)(task - process->tasks),
                  snib_code_name(code));
    }
    if (task->doing == TOPO_WAITS && code == SNIB_BUSY) {
        check_busy(process, task);
    }
    if (task->doing == TOPO_WAITS && task->number != 0 && code == SNIB_ECONNECT) {
        check_nothing_applied(process, task);
    }
}

void check_lost(struct topo_process *process, const struct topo_hold *hold)
{
    const struct snib__hold *lost = hold->hold;
    snib__time end = snib__hold_end(lost);
    bool broken = truth_broken_at(hold) >= hold->submitted;
    bool honest = lost->reason == SNIB_REASON_EXPIRED       ? lost->lease_ms != 0 && topo.now >= end
                  : lost->reason == SNIB_REASON_UNREACHABLE ? topo.now >= lost->deadline
                  : lost->reason == SNIB_REASON_CLOSED      ? process->closed_at != 0
                  : lost->reason == SNIB_REASON_MAX_HOLD ? lost->max_hold_ms != 0 && topo.now >= end
                                                         : broken;
    if (hold->told || hold->released || !honest ||
        snib__hold_state(process->engine, lost, topo.now) != SNIB_HOLD_LOST) {
        topo_fail("%u:%llu was reported lost (%s)%s%s", process->id,
                  (unsigned long long)hold->number, snib_reason_text(lost->reason),
                  hold->told ? " again" : "", hold->released ? " after its release" : "");
    }
}

/* ---- Every step --------------------------------------------------------------------------------- */

static void check_excused(struct topo_process *process, struct topo_hold *hold)
{
    const struct topo_name *name = &topo.names[hold->use.name];
    snib__time broken = truth_broken_at(hold);
    snib__time sent_at = hold->hold->deadline - (topo.lease * 99 / 100 - 5 * SNIB__MS);
    bool fixed = hold->hold->lease_ms != 0;
    if (!hold->excused) {
        topo_trace("%u:%llu is not known to the master", process->id,
                   (unsigned long long)hold->number);
        topo_totals.excused++;
        hold->excused = true;
        hold->excused_at = topo.now;
        if (broken < hold->submitted) {
            truth_trace(&topo.names[hold->use.name]);
            topo_fail("%u:%llu of %s is valid and its master does not know of it", process->id,
                      (unsigned long long)hold->number, topo.names[hold->use.name].text);
        }
    }
    if (!fixed && broken < sent_at && broken < hold->known_at) {
        topo_fail("%u:%llu of %s is not with its master and its deadline moves", process->id,
                  (unsigned long long)hold->number, topo.names[hold->use.name].text);
    }
    snib__time since = latest(hold->excused_at, truth_reaches_since(process, name->shard));
    since = latest(latest(since, name->island_until), name->apart_until);
    /* the process may have been connected to it all along */
    since = latest(since, topo.servers[topo.shards[name->shard].authority].promoted_at);
    if ((topo.enabled >> TOPO_DELAY & 1) !=
        0) { /* the last delayed reply is on its way when calm begins */
        since = latest(since, topo.calm_at + topo.lease / 2);
    }
    /* A fixed lease is asked about, at once, on a connection to another server, or to one that has
     * other data since, and never else: not if a slot move is given up, or if the same server is
     * demoted and promoted again while the connection stays. */
    bool other = truth_asks_since(process, hold) > broken; /* in a cluster this will do */
    if (fixed && (name->broken_by_move ||
                  (truth_connected_since(process, name->shard) <= broken && !other))) {
        return;
    }
    since = latest(since, fixed && other ? truth_asks_since(process, hold) : 0);
    bool at_once = fixed && topo.durability == 0; /* no reply is behind a WAIT */
    snib__time notices = at_once ? 0 : topo.lease / 3 + topo.lease / 5;
    /* What a MOVED has said of a slot goes before maps for 3 s, and meanwhile one is asked for each second. */
    notices += fixed && !other && topo.topology == SNIB__CLUSTER ? 4200 * SNIB__MS : 0;
    if (topo.now > since + notices + 2 * topo.prompt && !topo_has(TOPO_DELAY)) {
        topo_fail("%u:%llu of %s has vanished without being reported", process->id,
                  (unsigned long long)hold->number, topo.names[hold->use.name].text);
    }
}

/* A grant, or a later deadline.  Replication may have lost what the true master does not know, before the client asked that
 * one; but a client that asks it already, and since it has the name, counts nothing that another one said. */
static void check_claim(const struct topo_process *process, const struct topo_hold *hold)
{
    for (int i = 0; i < topo.name_count; i++) {
        const struct topo_name *name = &topo.names[i];
        bool asks = process->asks[i] == topo.shards[name->shard].authority;
        snib__time since = process->asks_since[i];
        if ((hold->use.names >> i & 1) == 0 || !asks || since <= name->broken_at ||
            since >= topo.now) {
            continue;
        }
        truth_trace(name);
        topo_fail("%u:%llu of %s is valid by the word of another than its master, which it asks",
                  process->id, (unsigned long long)hold->number, name->text);
    }
}

/* Only what the client said about itself, or nothing. */
void check_identity(const struct topo_process *process, const struct snib__op *op)
{
    const snib_texts *texts = op->asked->texts;
    bool known = texts->count > 0;
    char uuid[37] = "";
    if (known) {
        snprintf(uuid, sizeof uuid, "%.36s", op->asked->text + strlen("snib_client:{"));
    }
    topo_totals.identified += known;
    if (known && !engine_says(texts, uuid)) {
        topo_fail("%u: a client is told to be %s", process->id, texts->text);
    }
}

/* Whatever ends a release other than its success is a loss, or because of the server. */
static void check_release_code(const struct topo_process *process, const struct topo_hold *hold,
                               int32_t code)
{
    if (code != SNIB_OK && code != SNIB_LOST &&
        !(is_servers_fault(code) && topo.now <= topo.stable_at)) {
        topo_fail("%u:%llu: a release ended with %s", process->id, (unsigned long long)hold->number,
                  snib_code_name(code));
    }
}

/* Each server has few keys, and each is asked in turn, whatever becomes of the nodes meanwhile. */
void check_listing(struct topo_process *process, const struct snib__op *op)
{
    process->cursor = op->code == SNIB_OK ? op->asked->texts->cursor : 0;
    process->listings = process->cursor == 0 ? 0 : process->listings + 1;
    if (process->listings > 4 * TOPO_SERVERS) {
        topo_fail("%u: a listing does not end", process->id);
    }
}

/* What servers have not lost is released, not lost, if that is answered before the lease ends: no script breaks off between
 * the end of one owner and the beginning of the next. */
void check_released(const struct topo_process *process, const struct topo_hold *hold, int32_t code)
{
    check_release_code(process, hold, code);
    if (code == SNIB_LOST && topo.now < hold->safe_until &&
        truth_broken_at(hold) < hold->submitted) {
        truth_trace(&topo.names[hold->use.name]);
        topo_fail("%u:%llu of %s was lost before its release, and no server has lost it",
                  process->id, (unsigned long long)hold->number, topo.names[hold->use.name].text);
    }
}

/* Only a hold that is lost refuses an extension, and says why it was. */
void check_extended(const struct topo_process *process, const struct topo_task *task)
{
    const struct snib__hold *hold = task->hold->hold;
    int32_t code = task->op->code;
    bool is_held = hold->phase == SNIB__HELD;
    bool honest = code == SNIB_OK          ? is_held || task->hold->users > 1
                  : code == SNIB_LOST      ? !is_held && task->op->reason == hold->reason
                  : code == SNIB_CANCELLED ? task->cancelled
                  : code == SNIB_ECLOSED   ? process->closed_at != 0
                                           : is_servers_fault(code) && topo.now < topo.stable_at;
    if (!honest) {
        topo_fail("%u:%llu: an extension ended with %s", process->id,
                  (unsigned long long)task->hold->number, snib_code_name(code));
    }
}

/* A lost hold stays lost, for the same reason. */
static void check_steady(const struct topo_process *process, struct topo_hold *hold, int state)
{
    bool is_safe = state == SNIB_HOLD_VALID || state == SNIB_HOLD_AT_RISK;
    int reason =
        state == SNIB_HOLD_LOST ? snib__hold_reason(hold->hold, topo.now) : SNIB_REASON_NONE;
    if (hold->over && (state != SNIB_HOLD_LOST || reason != hold->reason)) {
        topo_fail("%u:%llu was lost (%s) and is not", process->id, (unsigned long long)hold->number,
                  snib_reason_text(hold->reason));
    }
    if ((snib__hold_left(hold->hold, topo.now) > 0) != is_safe) {
        topo_fail("%u:%llu: its state and the time that remains do not agree", process->id,
                  (unsigned long long)hold->number);
    }
    hold->over = state == SNIB_HOLD_LOST;
    hold->reason = reason;
    hold->valid = is_safe;
}

static void check_holds(struct topo_process *process)
{
    for (int i = 0; i < TOPO_HOLDS; i++) {
        struct topo_hold *hold = &process->holds[i];
        if (hold->users == 0) {
            continue;
        }
        int state = snib__hold_state(process->engine, hold->hold, topo.now);
        check_steady(process, hold, state);
        snib__time end = snib__hold_end(hold->hold);
        if (!hold->valid && state == SNIB_HOLD_LOST && !hold->told &&
            topo.now > latest(latest(end, process->frozen_until), process->late_until)) {
            topo_fail("%u:%llu is over, which was not reported", process->id,
                      (unsigned long long)hold->number);
        }
        if (hold->valid && truth_knows(hold)) {
            hold->excused = false;
            hold->known_at = topo.now;
        } else if (hold->valid) {
            if (end > hold->claimed) {
                check_claim(process, hold);
            }
            check_excused(process, hold);
        }
        hold->claimed = hold->valid ? end : 0;
    }
}

static bool exclude(const struct topo_hold *one, const struct topo_hold *other)
{
    return (one->use.names & other->use.names) != 0 &&
           !(one->use.kind == SNIB_READ && other->use.kind == SNIB_READ);
}

/* A process's owner may read while it writes, but not begin to write while it reads. */
static bool is_within(const struct topo_hold *read, const struct topo_hold *write)
{
    return read->hold->owner != 0 && read->hold->owner == write->hold->owner &&
           (read->hold->flags & SNIB__JOINS) && read->hold->writer == write->number;
}

static void check_pair(const struct topo_process *process, const struct topo_hold *one,
                       const struct topo_process *of, struct topo_hold *other)
{
    if (!exclude(one, other) ||
        (process == of && (is_within(one, other) || is_within(other, one)))) {
        return;
    }
    if (!one->excused && !other->excused && !permits_are_more(&topo.names[one->use.name])) {
        topo_fail("%s is held by %u:%llu and %u:%llu", topo.names[one->use.name].text, process->id,
                  (unsigned long long)one->number, of->id, (unsigned long long)other->number);
    }
    if (other->overlaps_since == 0) {
        other->overlaps_since = topo.now;
        topo_totals.overlaps++;
        topo_trace("%u:%llu and %u:%llu are valid at once", process->id,
                   (unsigned long long)one->number, of->id, (unsigned long long)other->number);
    }
    snib__time lasts = topo.now - other->overlaps_since;
    topo_totals.longest_overlap = latest(topo_totals.longest_overlap, lasts);
}

static void check_exclusion(void)
{
    int most = topo.slot_count * TOPO_HOLDS;
    int valid[TOPO_SLOTS * TOPO_HOLDS], n = 0;
    for (int i = 0; i < most; i++) {
        struct topo_process *one = topo.slots[i / TOPO_HOLDS];
        const struct topo_hold *hold = &one->holds[i % TOPO_HOLDS];
        if (!hold->valid || hold->users == 0) {
            continue;
        }
        for (int j = 0; j < n; j++) {
            struct topo_process *other = topo.slots[valid[j] / TOPO_HOLDS];
            check_pair(one, hold, other, &other->holds[valid[j] % TOPO_HOLDS]);
        }
        valid[n++] = i;
    }
}

/* Whether the lock is this process's own, for a time of which the servers need not be told. */
static bool waits_for_fixed(const struct topo_task *task)
{
    const struct snib__gate *gate = task->use.gate;
    const struct snib__hold *hold = gate != NULL ? snib__gate_active(gate) : NULL;
    return hold != NULL && hold->phase == SNIB__HELD && hold->lease_ms != 0;
}

/* While no server answers, patience ends: no operation waits for ever, whatever it waits for. */
static void check_patience(const struct topo_process *process)
{
    const struct snib__config *config = &process->engine->config;
    snib__time since =
        latest(process->heard_at, latest(process->frozen_until, process->late_until));
    snib__time asks = latest(config->recheck, config->lease / 2); /* something is sent by then */
    snib__time most = asks + config->reply_timeout + config->durability_timeout + config->patience;
    for (int i = 0; i < TOPO_TASKS; i++) {
        const struct topo_task *task = &process->tasks[i];
        bool waits = task->op != NULL && !task->op->done;
        if (waits && !waits_for_fixed(task) && topo.now > latest(since, task->submitted) + most) {
            topo_fail("%u: task %d waits although no server has answered for %llu ms", process->id,
                      i, (unsigned long long)((topo.now - since) / SNIB__MS));
        }
    }
}

/* No operation waits past its deadline, or, if that is later, past the patience of a single try. */
static void check_waits(const struct topo_process *process)
{
    for (int i = 0; i < TOPO_TASKS; i++) {
        const struct topo_task *task = &process->tasks[i];
        if (task->doing == TOPO_WAITS && task->wait_ends != SNIB__NEVER &&
            topo.now > latest(latest(task->wait_ends,
                                     task->submitted + process->engine->config.try_timeout),
                              latest(process->frozen_until, process->late_until))) {
            topo_fail("%u: task %d waits longer than it wanted", process->id, i);
        }
    }
}

/* Once all is well, a free lock soon goes to a waiter. */
static void check_served(struct topo_process *process)
{
    for (int i = 0; i < TOPO_TASKS; i++) {
        const struct topo_task *task = &process->tasks[i];
        snib__time since = latest(task->submitted, topo.stable_at);
        if (task->doing != TOPO_WAITS || topo.now < topo.stable_at) {
            continue;
        }
        for (int j = 0; j < topo.name_count; j++) {
            const struct topo_name *name = &topo.names[j];
            since = (task->use.names >> j & 1) != 0 ? latest(since, name->free_since) : since;
        }
        bool fair = topo.names[task->use.name].family == TOPO_FAIR;
        if (since != SNIB__NEVER &&
            topo.now > since + topo.recheck + topo.prompt + (fair ? 6000 * SNIB__MS : 0)) {
            truth_trace(&topo.names[task->use.name]);
            topo_fail("%s is free and %u waits for it", topo.names[task->use.name].text,
                      process->id);
        }
    }
}

/* Whenever nobody is inside an engine; not at each step, for that costs more than the step, and not
 * again before it is called. */
static void check_engine(struct topo_process *process)
{
    if (process->dead || topo.events % 8 != 0 || !process->unchecked) {
        return;
    }
    const char *flaw = engine_flaw(process->engine);
    if (flaw != NULL) {
        topo_fail("%u: in the engine it is not true that %s", process->id, flaw);
    }
    process->unchecked = false;
}

/* A client that was closed has nothing left with a master that it knew and that has heard all of it; but what a move that was
 * given up has left with another server comes back with the slot. */
void check_closed(const struct topo_process *process)
{
    char owner[OWNER_MAX];
    model_key key;
    uint64_t until;
    for (int i = 0; i < topo.name_count; i++) {
        const struct topo_name *name = &topo.names[i];
        model *m = truth_holder(name, &key);
        bool knows = process->asks[i] == topo.shards[name->shard].authority &&
                     process->asks_since[i] < process->closed_at;
        for (size_t j = 0; m != NULL && owner_at(m, name, j, owner, &until); j++) {
            if (knows && strncmp(owner, process->uuid, sizeof process->uuid - 1) == 0 &&
                until > TOPO_EPOCH + topo.now && !name->broken_by_move &&
                latest(name->broken_at, name->island_until) < process->closed_at) {
                topo_fail("%u was closed and is over, and %s is held by %s", process->id,
                          name->text, owner);
            }
        }
    }
}

static void note_rivals(struct topo_process *process)
{
    for (int i = 0; i < TOPO_TASKS; i++) {
        struct topo_task *task = &process->tasks[i];
        if (task->doing == TOPO_WAITS && task->once && !task->rivalled) {
            task->rivalled = task_is_rivalled(process, task);
        }
    }
}

void check_step(void)
{
    truth_note();
    permits_check();
    for (int i = 0; i < topo.slot_count; i++) {
        check_engine(topo.slots[i]);
        check_holds(topo.slots[i]);
        truth_note_asked(topo.slots[i]);
        note_rivals(topo.slots[i]);
        check_waits(topo.slots[i]);
        check_patience(topo.slots[i]);
        check_served(topo.slots[i]);
    }
    check_exclusion();
    kept_check();
}

#define SILENCE (1000 * SNIB__MS)

/* ---- The end ------------------------------------------------------------------------------------ */

static bool begins(const model_key *key, const char *word)
{
    return key->name.n > strlen(word) && memcmp(key->name.p, word, strlen(word)) == 0;
}

/* Token counters stay for ever; half a fair lock's queue, which a failover or a move has left, ends minutes later. */
static bool may_stay(const model_key *key)
{
    bool ends = key->expires_ns != UINT64_MAX;
    return begins(key, "redisson_lock_token:") || permits_may_stay(key) ||
           (ends && (begins(key, "redisson_lock_queue:") || begins(key, "redisson_lock_timeout:")));
}

static void check_server_end(int at)
{
    model *m = topo.servers[at].model;
    model_key key;
    for (size_t i = 0; model_key_at(m, i, &key); i++) {
        if (!may_stay(&key)) {
            topo_fail("at the end server %d has %.*s", at, (int)key.name.n, key.name.p);
        }
    }
    if (model_channel_count(m) != 0) {
        model_text channel = model_channel(m);
        topo_fail("at the end %.*s still has a subscriber", (int)channel.n, channel.p);
    }
}

void check_end(void)
{
    permits_end();
    for (int i = 0; i < topo.data_count; i++) {
        check_server_end(i);
    }
    for (int i = 0; i < topo.slot_count; i++) {
        snib_client_stats_data stats = {.size = sizeof stats};
        if (topo.now < topo.slots[i]->sent_at + SILENCE) {
            topo_fail("%u does nothing and is not silent", topo.slots[i]->id);
        }
        snib__engine_stats(topo.slots[i]->engine, &stats);
        if (stats.held != 0 || stats.waiting != 0 || !snib__engine_quiet(topo.slots[i]->engine)) {
            topo_fail("at the end %u holds %llu, waits for %llu", topo.slots[i]->id,
                      (unsigned long long)stats.held, (unsigned long long)stats.waiting);
        }
    }
}
