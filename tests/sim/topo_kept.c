/* topo_kept.c - once all is well, no lock stays held that no program uses.
 *
 * A failover may bring back what was released, or what was lost and released only elsewhere: the
 * client that knows of it releases it again, long before the lease ends.  Only the locks of a
 * process that has died stay until then.
 */
#include "topo.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SOON (1000 * SNIB__MS)  /* releases that the server refused are repeated within it */
#define PLACE (6000 * SNIB__MS) /* what a fair queue granted to a place that was left */

/* The process behind the owner of a hold, "<uuid>:<number>" with or without ":write"; NULL: the
 * field is no owner, or it has died. */
static const struct topo_process *process_of(const char *owner, uint64_t *out_number)
{
    const char *colon = strchr(owner, ':');
    uint32_t id = (uint32_t)strtoul(owner, NULL, 16);
    if (colon == NULL || id >= topo.process_count || topo.processes[id]->dead) {
        return NULL;
    }
    *out_number = strtoull(colon + 1, NULL, 10);
    return topo.processes[id];
}

static bool is_used(const struct topo_process *process, uint64_t number)
{
    for (int i = 0; i < TOPO_HOLDS; i++) {
        if (process->holds[i].users > 0 && process->holds[i].number == number) {
            return true;
        }
    }
    for (int i = 0; i < TOPO_TASKS; i++) {
        const struct snib__op *op = process->tasks[i].op;
        if (op != NULL && op->hold != NULL && op->hold->number == number) {
            return true;
        }
    }
    return false;
}

/* A reader's field may stay for as long as the longest lease of any reader; a writer does not wait for one without a lease of
 * its own. */
static bool has_ended(model *m, const struct topo_name *name, const char *owner)
{
    char lease[2 * OWNER_MAX];
    model_key key;
    if (name->family != TOPO_RW || strchr(owner, ':') == NULL || strstr(owner, ":write") != NULL) {
        return false;
    }
    const char *format =
        strchr(name->text, '{') ? "%s:%s:rwlock_timeout:1" : "{%s}:%s:rwlock_timeout:1";
    int n = snprintf(lease, sizeof lease, format, name->text, owner);
    return !model_key_find(m, 0, lease, (size_t)n, &key);
}

/* A server was demoted and promoted again while the process took it for the master all the time, and in a cluster has asked
 * nothing, or else had a connection that stayed: it cannot know that the server has the data of another one.  Nor if the
 * name's slot went to another server meanwhile, where a move that was given up had left a copy, and came back with that. */
static bool has_missed(const struct topo_process *process, const struct topo_name *name)
{
    int at = topo.shards[name->shard].authority, i = (int)(name - topo.names);
    if (topo.topology != SNIB__CLUSTER) {
        return truth_connected_since(process, name->shard) < topo.servers[at].promoted_at;
    }
    return process->asks[i] == at && (process->asks_since[i] < topo.servers[at].promoted_at ||
                                      process->asks_since[i] < name->came_at);
}

/* Since when a process can know all about a name, and its server is the same.  Where the servers change all the time, most of
 * what they leave behind is gone with the next change, so each time between two is looked at; replies may be late. */
static snib__time calm_since(const struct topo_process *process, const struct topo_name *name)
{
    int at = topo.shards[name->shard].authority, i = (int)(name - topo.names);
    snib__time since = topo.stable_at;
    if (topo.focus == TOPO_FORMER && topo.now < topo.stable_at && process->asks[i] == at) {
        since = truth_reaches_since(process, name->shard);
        since = since > process->asks_since[i] ? since : process->asks_since[i];
        since = since > topo.servers[at].promoted_at ? since : topo.servers[at].promoted_at;
        since = since > name->apart_until ? since : name->apart_until;
        since = (since > name->broken_at ? since : name->broken_at) + topo.lease / 2;
    }
    return since;
}

/* The first owner of a name, in the truth, that no program uses, and since when its process, which lives, can know that. */
static bool find_unused(const struct topo_name *name, char out[OWNER_MAX], snib__time *out_since)
{
    model_key key;
    model *m = truth_holder(name, &key);
    uint64_t number, until;
    for (size_t i = 0; m != NULL && owner_at(m, name, i, out, &until); i++) {
        const struct topo_process *process = process_of(out, &number);
        if (process == NULL || until <= TOPO_EPOCH + topo.now || is_used(process, number) ||
            has_ended(m, name, out)) {
            continue;
        }
        if (!has_missed(process, name)) {
            *out_since = calm_since(process, name);
            return true;
        }
        if (topo.topology != SNIB__CLUSTER && topo.now >= topo.stable_at) {
            net_server_died(
                topo.shards[name->shard].authority); /* an operator ends its connections */
            topo.stable_at = topo.now + topo.lease;
        }
    }
    return false;
}

void kept_check(void)
{
    for (int i = 0; i < topo.name_count; i++) {
        struct topo_name *name = &topo.names[i];
        char owner[OWNER_MAX] = "";
        snib__time since = topo.stable_at;
        if ((topo.now < topo.stable_at && topo.focus != TOPO_FORMER) ||
            !find_unused(name, owner, &since)) {
            *name->kept = '\0';
            continue;
        }
        if (strcmp(owner, name->kept) != 0) {
            memcpy(name->kept, owner, sizeof owner);
            name->kept_since = topo.now;
        }
        since = since > name->kept_since ? since : name->kept_since;
        snib__time soon = SOON + topo.prompt + (name->family == TOPO_FAIR ? PLACE : 0);
        if (topo.now > since + soon) {
            topo_fail("%s stays held by %s, and no program uses it", name->text, owner);
        }
    }
}
