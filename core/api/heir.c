/* heir.c - the clients and locks that replace inherited ones in the child of a fork.
 *
 *     handle --> client of the parent --heir--> client of the child --heir--> of its child ...
 *
 * An inherited object cannot be used: its mutex may be locked by a thread that does not exist here,
 * its structures may be in the middle of a change, and its connections are the parent's.  But its
 * handle stays valid: on first use in the child, a client gets an heir with the same address and
 * options, a new identity, new connections and its own thread, and a lock gets an heir of the same
 * name.  Only fields that never change after creation are read from the old objects.
 *
 * Holds, operations and queues have no heirs: they belong to the parent and return SNIB_EFORKED.
 */
#include "api/group.h"

#include <stdlib.h>

/* If two threads make an heir at the same time, the first to store it wins.  A client that was freed before it had
 * one gets none, and leads to itself: its locks are closed. */
struct snib__client *snib__client_heir(struct snib__client *client, snib_error *err,
                                       int32_t *out_code)
{
    while (snib__client_forked(client)) {
        struct snib__client *heir = atomic_load_explicit(&client->heir, memory_order_acquire);
        struct snib__client *made = NULL;
        if (!heir && !(made = snib__client_again(client, err, out_code)))
            return NULL;
        if (!heir && atomic_compare_exchange_strong(&client->heir, &heir, made))
            heir = made;
        else if (made)
            snib__client_unref(made);
        if (heir == client) {
            *out_code = snib__fail(err, SNIB_ECLOSED, 0, NULL);
            return NULL;
        }
        client = heir;
    }
    return client;
}

struct snib__client *snib__client_last(struct snib__client *client)
{
    while (snib__client_forked(client)) {
        struct snib__client *heir = NULL;
        if (atomic_compare_exchange_strong(&client->heir, &heir, client) || heir == client)
            break;
        client = heir;
    }
    return client;
}

/* A gate of the same kind and name for another client; NULL: *out_code. */
static struct snib__gate *heir_gate(struct snib__client *client, const struct snib__gate *gate,
                                    int32_t *out_code)
{
    size_t len;
    const char *name = snib__gate_name(gate, &len);
    return snib__lock_gate(client, snib__gate_kind(gate), name, len, out_code);
}

/* The same of a quorum's member, also for a client that is closed: as in the parent, a majority goes on without it. */
static struct snib__gate *heir_vote(struct snib__client *client, const struct snib__gate *gate,
                                    int32_t *out_code)
{
    size_t len;
    const char *name = snib__gate_name(gate, &len);
    snib__driver_enter(&client->driver);
    struct snib__gate *vote =
        snib__gate_get(client->driver.engine, snib__gate_kind(gate), name, len);
    snib__driver_leave(&client->driver);
    if (!vote)
        *out_code = SNIB_ENOMEM;
    return vote;
}

/* The parts of a group lock with the heirs of their clients; NULL with *out_code. */
static struct snib__parts *heir_parts(const struct snib__parts *from, snib_error *err,
                                      int32_t *out_code)
{
    struct snib__parts *parts = calloc(1, sizeof *parts + from->n * sizeof parts->part[0]);
    *out_code = parts ? SNIB_OK : snib__fail(err, SNIB_ENOMEM, 0, NULL);
    if (!parts)
        return NULL;
    atomic_store(&parts->refs, 1);
    parts->majority = from->majority;
    parts->vote_ms = from->vote_ms;
    parts->renewed_ms = from->renewed_ms;
    for (uint32_t i = 0; i < from->n && *out_code == SNIB_OK; i++) {
        struct snib__client *client = snib__client_heir(from->part[i].client, err, out_code);
        const struct snib__gate *former = from->part[i].gate;
        struct snib__gate *gate = !client          ? NULL
                                  : from->majority ? heir_vote(client, former, out_code)
                                                   : heir_gate(client, former, out_code);
        if (gate) {
            snib__parts_add(parts, client, gate);
        } else if (client) {
            snib__fail(err, *out_code, 0,
                       *out_code == SNIB_ECLOSED ? "a member's client is closed" : NULL);
        }
    }
    if (*out_code == SNIB_OK)
        return parts;
    snib__parts_unref(parts);
    return NULL;
}

static struct snib__lock *heir_lock(const struct snib__lock *from, snib_error *err,
                                    int32_t *out_code)
{
    struct snib__client *client = snib__client_heir(from->client, err, out_code);
    struct snib__lock *lock = client ? calloc(1, sizeof *lock) : NULL;
    if (!lock) {
        if (client)
            *out_code = snib__fail(err, SNIB_ENOMEM, 0, NULL);
        return NULL;
    }
    *lock = (struct snib__lock){.client = client,
                                .kind = from->kind,
                                .flags = from->flags,
                                .lease_ms = from->lease_ms,
                                .max_hold_ms = from->max_hold_ms};
    if (from->parts && !(lock->parts = heir_parts(from->parts, err, out_code))) {
        free(lock);
        return NULL;
    }
    lock->gate = heir_gate(client, from->gate, out_code);
    if (!lock->gate) {
        snib__fail(err, *out_code, 0, NULL);
        if (lock->parts)
            snib__parts_unref(lock->parts);
        free(lock);
        return NULL;
    }
    snib__client_ref(client);
    return lock;
}

struct snib__lock *snib__lock_heir(struct snib__lock *lock, snib_error *err, int32_t *out_code)
{
    while (snib__client_forked(lock->client)) {
        struct snib__lock *heir = atomic_load_explicit(&lock->heir, memory_order_acquire);
        struct snib__lock *made = NULL;
        if (!heir && !(made = heir_lock(lock, err, out_code)))
            return NULL;
        if (!heir && atomic_compare_exchange_strong(&lock->heir, &heir, made))
            heir = made;
        else if (made)
            snib__lock_destroy(made);
        lock = heir;
    }
    return lock;
}
