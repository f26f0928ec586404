/* topo_truth.c - what is true of a name while several servers may have it: the data set of its shard's authority, with
 * that of the target while its slot moves; and since when there is a reason to doubt that.
 *
 * The rules (topo_check.c) judge by this.
 */
#include "engine/internal.h"
#include "snib.h"
#include "topo.h"

#include <stdio.h>
#include <string.h>

/* ---- What servers have -------------------------------------------------------------------------- */

static model *truth(const struct topo_name *name)
{
    return topo.servers[topo.shards[name->shard].authority].model;
}

bool truth_writes(const struct topo_hold *hold, const struct topo_name *name)
{
    return hold->use.kind == SNIB_WRITE ||
           (hold->use.kind == SNIB__MULTI && name->family == TOPO_RW);
}

static model *find(const struct topo_name *name, const char *text, size_t n, model_key *out)
{
    model *also = cluster_also(name);
    if (model_key_find(truth(name), 0, text, n, out)) {
        return truth(name);
    }
    return also != NULL && model_key_find(also, 0, text, n, out) ? also : NULL;
}

model *truth_find(const struct topo_name *name, model_text text, model_key *out)
{
    return find(name, text.p, text.n, out);
}

model *truth_holder(const struct topo_name *name, model_key *out)
{
    return truth_find(name, owner_key(name), out);
}

bool truth_is_owner(const struct topo_hold *hold, bool as_writer, const char *text)
{
    return strncmp(text, hold->owner, hold->owner_n) == 0 &&
           strcmp(text + hold->owner_n, as_writer ? ":write" : "") == 0;
}

/* Until when the truth has a hold of one name; 0: it has none. */
snib__time truth_until(const struct topo_hold *hold, const struct topo_name *name)
{
    char lease[160], owner[OWNER_MAX];
    model_key key, own;
    model *m = truth_holder(name, &key);
    uint64_t until = 0;
    bool found = false;
    for (size_t i = 0; m != NULL && !found && owner_at(m, name, i, owner, &until); i++) {
        found = truth_is_owner(hold, truth_writes(hold, name), owner);
    }
    if (!found) {
        return 0;
    }
    uint64_t ends = until < key.expires_ns ? until : key.expires_ns;
    if (hold->use.kind == SNIB_READ) {
        int n = snprintf(lease, sizeof lease, "%s:%s:rwlock_timeout:1", name->tag, hold->owner);
        if (find(name, lease, (size_t)n, &own) == NULL) {
            return 0;
        }
        ends = own.expires_ns < ends ? own.expires_ns : ends;
    }
    return ends == UINT64_MAX ? SNIB__NEVER : ends - TOPO_EPOCH;
}

/* Whether the truth keeps all of the hold for as long as its holder relies on it. */
bool truth_knows(const struct topo_hold *hold)
{
    for (int i = 0; i < topo.name_count; i++) {
        const struct topo_name *name = &topo.names[i];
        if ((hold->use.names >> i & 1) != 0 &&
            truth_until(hold, name) < snib__hold_end(hold->hold)) {
            return false;
        }
    }
    return true;
}

/* Trace what the master of a name has. */
void truth_trace(const struct topo_name *name)
{
    model_key key;
    model_text field, value;
    for (size_t i = 0; topo.trace && model_key_at(truth(name), i, &key); i++) {
        topo_trace("%.*s, for %.3f ms:", (int)key.name.n, key.name.p,
                   ((double)key.expires_ns - (double)(TOPO_EPOCH + topo.now)) / 1e6);
        for (size_t j = 0;
             model_field_at(truth(name), 0, key.name.p, key.name.n, j, &field, &value); j++) {
            topo_trace("    %.*s: %.*s", (int)field.n, field.p, (int)value.n, value.p);
        }
    }
}

/* Of permits, those that have ended are free although they are still there. */
static bool is_taken(const struct topo_name *name)
{
    char owner[OWNER_MAX];
    model_key key;
    model *m = truth_holder(name, &key);
    uint64_t until;
    if (m == NULL || name->family != TOPO_PERMITS) {
        return m != NULL;
    }
    bool taken = false;
    for (size_t i = 0; !taken && owner_at(m, name, i, owner, &until); i++) {
        taken = until > TOPO_EPOCH + topo.now;
    }
    return taken;
}

static void note_free(void)
{
    for (int i = 0; i < topo.name_count; i++) {
        struct topo_name *name = &topo.names[i];
        if (is_taken(name)) {
            name->free_since = SNIB__NEVER;
        } else if (name->free_since == SNIB__NEVER) {
            name->free_since = topo.now;
        }
    }
}

/* ---- Doubts ------------------------------------------------------------------------------------- */

void truth_broken(int shard, const char *why)
{
    topo_trace("shard %d: %s", shard, why);
    for (int i = 0; i < topo.name_count; i++) {
        struct topo_name *name = &topo.names[i];
        if (name->shard == shard || cluster_goes_to(name, shard)) {
            name->broken_at = topo.now;
            name->broken_by_move = false;
            permits_broken(name);
        }
    }
}

void truth_slot_broken(int slot)
{
    for (int i = 0; i < topo.name_count; i++) {
        struct topo_name *name = &topo.names[i];
        if (name->slot == slot) {
            name->broken_at = topo.now;
            name->broken_by_move = true;
            permits_broken(name);
        }
    }
}

/* Whether a server acts as the master of a name and is not the true one. */
static bool is_island(int at, const struct topo_name *name)
{
    const struct topo_server *server = &topo.servers[at];
    if (server->master >= 0 || !server_runs(at) || topo.shards[name->shard].authority == at) {
        return false;
    }
    return topo.topology == SNIB__CLUSTER ? cluster_serves(at, name) : server->shard == name->shard;
}

static void note_islands(void)
{
    for (int i = 0; i < topo.name_count; i++) {
        if (cluster_also(&topo.names[i]) != NULL) {
            topo.names[i].apart_until = topo.now;
        }
    }
    for (int i = 0; i < topo.data_count; i++) {
        for (int j = 0; j < topo.name_count; j++) {
            if (is_island(i, &topo.names[j])) {
                topo.names[j].island_until = topo.now;
            }
        }
    }
}

/* When the truth about one of a hold's names was last in doubt. */
snib__time truth_broken_at(const struct topo_hold *hold)
{
    snib__time at = 0;
    for (int i = 0; i < topo.name_count; i++) {
        const struct topo_name *name = &topo.names[i];
        if ((hold->use.names >> i & 1) != 0) {
            at = latest(at, latest(name->broken_at, name->island_until));
        }
    }
    return at;
}

/* ---- Whom a process asks ------------------------------------------------------------------------ */

/* The server that the engine takes for a name's master; -1: none.  Behind one address that is the one that its first
 * connection leads to, which it does not know before the handshake has ended. */
static int asked_by(const struct topo_process *process, int name)
{
    const struct snib__node *node = process->gates[name][0]->node;
    for (int i = 0; topo.topology != SNIB__CLUSTER && i < process->end_count; i++) {
        const struct topo_end *end = &process->ends[i];
        if (end->link == &node->links[SNIB__COMMAND]) {
            return end->pipe != NULL && snib__node_ready(node) ? end->pipe->server : -1;
        }
    }
    for (int i = 0; topo.topology == SNIB__CLUSTER && node->addressed && i < topo.data_count; i++) {
        if (snib__address_equal(&node->address, &topo.servers[i].address)) {
            return i;
        }
    }
    return -1;
}

void truth_note_asked(struct topo_process *process)
{
    for (int i = 0; i < topo.name_count; i++) {
        int at = asked_by(process, i);
        if (at != process->asks[i]) {
            process->asks[i] = at;
            process->asks_since[i] = topo.now;
        }
    }
}

/* Since when a process has its connection to the master of a shard; SNIB__NEVER / 2: it has none. */
snib__time truth_connected_since(const struct topo_process *process, int shard)
{
    int master = topo.shards[shard].authority;
    snib__time since = SNIB__NEVER / 2;
    for (int i = 0; i < process->end_count; i++) {
        const struct topo_end *end = &process->ends[i];
        if (end->pipe != NULL && end->pipe->server == master && end->pipe->number != 0 &&
            snib__link_kind(end->link) == SNIB__COMMAND && !snib__lane_is(end->link) &&
            end->pipe->made_at < since) {
            since = end->pipe->made_at;
        }
    }
    return since;
}

/* Since when the path between them is clear. */
snib__time truth_reaches_since(const struct topo_process *process, int shard)
{
    int master = topo.shards[shard].authority;
    const struct topo_server *server = &topo.servers[master];
    snib__time since = truth_connected_since(process, shard);
    since = latest(latest(since, process->frozen_until), process->late_until);
    since = latest(since, topo.apart[net_host(process)][master]);
    if (topo.topology == SNIB__CLUSTER) {
        since = latest(since, cluster_up_since(master));
    }
    return latest(latest(since, server->stopped_until), server->loading_until);
}

/* Since when a process takes the true masters of a hold's names in a cluster for them; 0: it does not. */
snib__time truth_asks_since(const struct topo_process *process, const struct topo_hold *hold)
{
    snib__time since = 0;
    for (int i = 0; i < topo.name_count && topo.topology == SNIB__CLUSTER; i++) {
        if ((hold->use.names >> i & 1) != 0) {
            bool asks = process->asks[i] == topo.shards[topo.names[i].shard].authority;
            since = latest(since, asks ? process->asks_since[i] : 0);
        }
    }
    return since;
}

/* Before the rules are judged at a step. */
void truth_note(void)
{
    note_islands();
    note_free();
}
