/* topo_permits.c - each name of permits has exactly one, free or taken: two keys say that, and while a slot moves
 * they may be with two servers.
 *
 * What servers forget is excused until all of them agree again, or an operator sets it right.
 */
#include "topo.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define REPAIRED                                                                                   \
    (4000 * SNIB__MS) /* before the world counts as stable: waiters look again within it */

static bool has_permits(int name)
{
    return topo.names[name].family == TOPO_PERMITS;
}

static model_text number_key(const struct topo_name *name)
{
    return (model_text){name->text, name->n};
}

void permits_begin(void)
{
    for (int i = 0; i < topo.name_count; i++) {
        const struct topo_name *name = &topo.names[i];
        for (int j = 0; has_permits(i) && j < topo.data_count; j++) {
            if (topo.servers[j].shard == name->shard) {
                model_put_string(topo.servers[j].model, 0, name->text, name->n, "1");
            }
        }
    }
}

void permits_broken(struct topo_name *name)
{
    name->uneven = name->family == TOPO_PERMITS;
}

/* A slot begins to move to a server that has an older copy of its names: a replica that had not heard that the slot had
 * left was promoted since.  Then both copies count. */
void permits_meet_copies(int slot, int target)
{
    for (int i = 0; i < topo.name_count; i++) {
        struct topo_name *name = &topo.names[i];
        model_text keys[] = {number_key(name), owner_key(name)};
        for (int j = 0; name->slot == slot && j < 2; j++) {
            model_key key;
            if (model_key_find(topo.servers[target].model, 0, keys[j].p, keys[j].n, &key)) {
                permits_broken(name);
            }
        }
    }
}

bool permits_may_be_few(const struct topo_task *task)
{
    const struct topo_name *name = &topo.names[task->use.name];
    return name->family == TOPO_PERMITS &&
           (name->uneven_until >= task->submitted || name->island_until >= task->submitted);
}

static long long count_taken(const struct topo_name *name)
{
    model_key key;
    return truth_find(name, owner_key(name), &key) != NULL ? (long long)key.fields : 0;
}

static long long count_free(const struct topo_name *name)
{
    model_key key;
    model_text field, value;
    char text[32] = "0";
    model *m = truth_find(name, number_key(name), &key);
    if (m != NULL && key.type == MODEL_STRING &&
        model_field_at(m, 0, name->text, name->n, 0, &field, &value)) {
        snprintf(text, sizeof text, "%.*s", (int)value.n, value.p);
    }
    return strtoll(text, NULL, 10);
}

/* What a slot has left behind with a server that did not hear of its end, because it was promoted before, comes back with
 * the slot: then there are more permits than one, until an operator counts. */
bool permits_are_more(const struct topo_name *name)
{
    return name->uneven && count_free(name) + count_taken(name) > 1;
}

/* Whether a server of another shard has a copy, which a move that was given up has left; forget: no more. */
static bool has_copies(const struct topo_name *name, bool forget)
{
    model_text keys[] = {number_key(name), owner_key(name)};
    bool found = false;
    for (int i = 0; i < 2 * topo.data_count; i++) {
        const struct topo_server *server = &topo.servers[i / 2];
        model_text text = keys[i % 2];
        model_key key;
        if (server->shard != name->shard &&
            model_key_find(server->model, 0, text.p, text.n, &key)) {
            found = true;
            if (forget) {
                model_delete(server->model, 0, text.p, text.n);
            }
        }
    }
    return found;
}

/* An operator counts. */
static void repair(struct topo_name *name)
{
    int at = topo.shards[name->shard].authority;
    char text[32];
    has_copies(name, true);
    snprintf(text, sizeof text, "%lld", 1 - count_taken(name));
    model_put_string(topo.servers[at].model, 0, name->text, name->n, text);
    server_ship(at); /* a client may ask one of its replicas, until that refuses to write */
    topo_trace("%s: an operator says that %s is free", name->text, text);
    name->uneven = false;
}

static void look(struct topo_name *name)
{
    model_key key;
    long long all = count_free(name) + count_taken(name);
    bool moves = topo.topology == SNIB__CLUSTER && cluster_also(name) != NULL;
    bool runs = server_runs(topo.shards[name->shard].authority);
    if (!name->uneven && all != 1) {
        topo_fail("%s has %lld permits", name->text, all);
    }
    if (!name->uneven) {
        return;
    }
    name->uneven_until = topo.now;
    bool all_agree = all == 1 && truth_find(name, number_key(name), &key) != NULL;
    if (!moves && all_agree && !has_copies(name, false)) {
        name->uneven = false;
    } else if (!moves && runs && topo.calm && topo.now + REPAIRED >= topo.stable_at) {
        repair(name);
    }
}

void permits_check(void)
{
    for (int i = 0; i < topo.name_count; i++) {
        if (has_permits(i)) {
            look(&topo.names[i]);
        }
    }
}

/* The number stays for ever, and so does a permit that has ended, until the next one is taken. */
bool permits_may_stay(const model_key *key)
{
    bool may = false;
    for (int i = 0; i < topo.name_count; i++) {
        model_text number = number_key(&topo.names[i]), taken = owner_key(&topo.names[i]);
        bool is_number = key->name.n == number.n && memcmp(key->name.p, number.p, number.n) == 0;
        bool is_taken = key->name.n == taken.n && memcmp(key->name.p, taken.p, taken.n) == 0;
        may |= has_permits(i) && (is_number || is_taken);
    }
    return may;
}

/* No permit that has not ended is left, at any server. */
static void check_ended(const struct topo_name *name)
{
    char owner[OWNER_MAX];
    uint64_t until;
    for (int i = 0; i < topo.data_count; i++) {
        for (size_t j = 0; owner_at(topo.servers[i].model, name, j, owner, &until); j++) {
            if (until > TOPO_EPOCH + topo.now) {
                topo_fail("at the end server %d has a permit of %s for %s", i, name->text, owner);
            }
        }
    }
}

void permits_end(void)
{
    for (int i = 0; i < topo.name_count; i++) {
        if (has_permits(i)) {
            check_ended(&topo.names[i]);
            if (topo.names[i].uneven) {
                topo_fail("at the end nobody knows how many permits %s has", topo.names[i].text);
            }
        }
    }
}
