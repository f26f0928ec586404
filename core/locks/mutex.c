/* mutex.c - Redisson's plain lock (RLock), beside core/lua/mutex_*.lua.
 *
 * Keys      the lock's name: a hash with one field "<client uuid>:<number>" = 1 and a TTL
 * Channel   redisson_lock__channel:{name}, message "0" at every release that leaves the process
 *
 * A fresh number for every acquisition makes each of the requests idempotent: a repeated acquire finds
 * its own field, a repeated release finds nothing, a repeated transfer finds the new field.
 */
#include "engine/internal.h"
#include "locks/kind.h"
#include "net/script.h"

#include <string.h>

static int mutex_owner(struct snib__buf *out, const struct snib__engine *engine,
                       const struct snib__hold *hold)
{
    char owner[64];
    return snib__resp_arg(out, owner, snib__hold_owner(engine, hold, owner));
}

static int mutex_name(struct snib__buf *out, const struct snib__gate *gate)
{
    return snib__resp_arg(out, gate->name, gate->name_len);
}

static size_t mutex_channel(char *out, const char *name, size_t name_len)
{
    return snib__name_derive(out, "redisson_lock__channel", name, name_len);
}

static int mutex_channel_arg(struct snib__buf *out, const struct snib__gate *gate)
{
    char channel[SNIB__CHANNEL_MAX];
    return snib__resp_arg(out, channel, mutex_channel(channel, gate->name, gate->name_len));
}

static int mutex_lease(struct snib__buf *out, const struct snib__engine *engine,
                       const struct snib__hold *hold)
{
    return snib__resp_arg_int(out, (int64_t)(snib__hold_lease(engine, hold) / SNIB__MS));
}

static int mutex_acquire(struct snib__buf *out, const struct snib__engine *engine,
                         const struct snib__hold *hold)
{
    if (snib__script_begin(out, SNIB__SCRIPT_MUTEX_ACQUIRE, 1, 3) < 0 ||
        mutex_name(out, hold->gate) < 0 || mutex_owner(out, engine, hold) < 0 ||
        mutex_lease(out, engine, hold) < 0)
        return -1;
    return SNIB__SCRIPT_MUTEX_ACQUIRE;
}

static int mutex_release(struct snib__buf *out, const struct snib__engine *engine,
                         const struct snib__hold *hold)
{
    if (snib__script_begin(out, SNIB__SCRIPT_MUTEX_RELEASE, 1, 3) < 0 ||
        mutex_name(out, hold->gate) < 0 || mutex_owner(out, engine, hold) < 0 ||
        mutex_channel_arg(out, hold->gate) < 0)
        return -1;
    return SNIB__SCRIPT_MUTEX_RELEASE;
}

static int mutex_transfer(struct snib__buf *out, const struct snib__engine *engine,
                          const struct snib__hold *from, const struct snib__hold *to)
{
    if (snib__script_begin(out, SNIB__SCRIPT_MUTEX_TRANSFER, 1, 4) < 0 ||
        mutex_name(out, from->gate) < 0 || mutex_owner(out, engine, from) < 0 ||
        mutex_owner(out, engine, to) < 0 || mutex_lease(out, engine, to) < 0)
        return -1;
    return SNIB__SCRIPT_MUTEX_TRANSFER;
}

static int mutex_renew(struct snib__buf *out, const struct snib__engine *engine,
                       struct snib__hold *const *holds, uint32_t n, int64_t lease_ms)
{
    if (snib__script_begin(out, SNIB__SCRIPT_MUTEX_RENEW, n, 2 * n + 1) < 0)
        return -1;
    for (uint32_t i = 0; i < n; i++)
        if (mutex_name(out, holds[i]->gate) < 0)
            return -1;
    if (snib__resp_arg_int(out, lease_ms) < 0)
        return -1;
    for (uint32_t i = 0; i < n; i++)
        if (mutex_owner(out, engine, holds[i]) < 0)
            return -1;
    return SNIB__SCRIPT_MUTEX_RENEW;
}

static int mutex_info(struct snib__buf *out, const struct snib__gate *gate)
{
    if (snib__script_begin(out, SNIB__SCRIPT_MUTEX_INFO, 1, 2) < 0 || mutex_name(out, gate) < 0 ||
        mutex_channel_arg(out, gate) < 0)
        return -1;
    return SNIB__SCRIPT_MUTEX_INFO;
}

static int mutex_force(struct snib__buf *out, const struct snib__gate *gate)
{
    if (snib__script_begin(out, SNIB__SCRIPT_MUTEX_FORCE, 1, 2) < 0 || mutex_name(out, gate) < 0 ||
        mutex_channel_arg(out, gate) < 0)
        return -1;
    return SNIB__SCRIPT_MUTEX_FORCE;
}

static struct snib__verdict mutex_acquired(const struct snib__value *reply)
{
    if (reply->type == SNIB__RESP_NIL)
        return (struct snib__verdict){.yes = true};
    return (struct snib__verdict){.left_ms =
                                      reply->type == SNIB__RESP_INTEGER ? reply->integer : -1};
}

static struct snib__verdict mutex_released(const struct snib__value *reply)
{
    bool yes = reply->type == SNIB__RESP_INTEGER && reply->integer > 0;
    return (struct snib__verdict){.yes = yes, .receivers = yes ? reply->integer - 1 : 0};
}

const struct snib__lock_kind snib__mutex = {
    .kind = SNIB_MUTEX,
    .acquire = mutex_acquire,
    .release = mutex_release,
    .transfer = mutex_transfer,
    .renew = mutex_renew,
    .info = mutex_info,
    .force = mutex_force,
    .channel = mutex_channel,
    .acquired = mutex_acquired,
    .released = mutex_released,
};
