/* mutex.c - Redisson's plain lock (RLock), with core/lua/mutex_*.lua.
 *
 * Keys      the lock's name: a hash with one field "<client uuid>:<number>" = 1 and a TTL
 * Channel   redisson_lock__channel:{name}, message "0" at every release that leaves the process
 *
 * A new number for every acquisition makes each request idempotent: a repeated acquire finds its
 * own field, a repeated release finds nothing, a repeated transfer finds the new field.
 */
#include "locks/mutex.h"
#include "engine/internal.h"
#include "net/script.h"

#include <string.h>

#define MUTEX_EPOCH "snib_quorum_epoch" /* one key per node: since when its memory is complete */

size_t snib__mutex_channel(char *out, const struct snib__engine *engine,
                           const struct snib__gate *gate, uint32_t blocker)
{
    (void)engine, (void)blocker;
    return snib__name_prefix(out, SNIB__MUTEX_CHANNEL, gate->name, gate->name_len);
}

/* The acquire of a quorum member: like the mutex's, if the node may vote. */
static int mutex_vote(struct snib__buf *out, const struct snib__engine *engine,
                      const struct snib__hold *hold)
{
    const char *run = hold->gate->node->run_id[0] ? hold->gate->node->run_id : "?";
    if (snib__script_begin(out, SNIB__SCRIPT_QUORUM_ACQUIRE, 2, 6) < 0 ||
        snib__arg_name(out, hold->gate) < 0 ||
        snib__resp_arg(out, MUTEX_EPOCH, strlen(MUTEX_EPOCH)) < 0 ||
        snib__arg_owner(out, engine, hold) < 0 || snib__arg_lease(out, engine, hold) < 0 ||
        snib__resp_arg(out, run, strlen(run)) < 0 || snib__resp_arg_int(out, hold->vote_ms) < 0)
        return -1;
    return SNIB__SCRIPT_QUORUM_ACQUIRE;
}

int snib__mutex_acquire(struct snib__buf *out, const struct snib__engine *engine,
                        const struct snib__hold *hold)
{
    if (hold->vote_ms)
        return mutex_vote(out, engine, hold);
    if (snib__script_begin(out, SNIB__SCRIPT_MUTEX_ACQUIRE, 1, 3) < 0 ||
        snib__arg_name(out, hold->gate) < 0 || snib__arg_owner(out, engine, hold) < 0 ||
        snib__arg_lease(out, engine, hold) < 0)
        return -1;
    return SNIB__SCRIPT_MUTEX_ACQUIRE;
}

int snib__mutex_release(struct snib__buf *out, const struct snib__engine *engine,
                        const struct snib__hold *hold)
{
    if (snib__script_begin(out, SNIB__SCRIPT_MUTEX_RELEASE, 1, 3) < 0 ||
        snib__arg_name(out, hold->gate) < 0 || snib__arg_owner(out, engine, hold) < 0 ||
        snib__arg_prefixed(out, SNIB__MUTEX_CHANNEL, hold->gate) < 0)
        return -1;
    return SNIB__SCRIPT_MUTEX_RELEASE;
}

int snib__mutex_transfer(struct snib__buf *out, const struct snib__engine *engine,
                         const struct snib__hold *from, const struct snib__hold *to)
{
    if (snib__script_begin(out, SNIB__SCRIPT_MUTEX_TRANSFER, 1, 4) < 0 ||
        snib__arg_name(out, from->gate) < 0 || snib__arg_owner(out, engine, from) < 0 ||
        snib__arg_owner(out, engine, to) < 0 || snib__arg_lease(out, engine, to) < 0)
        return -1;
    return SNIB__SCRIPT_MUTEX_TRANSFER;
}

int snib__mutex_renew(struct snib__buf *out, const struct snib__engine *engine,
                      struct snib__hold *const *holds, uint32_t n, int64_t lease_ms)
{
    return snib__args_renew(out, SNIB__SCRIPT_MUTEX_RENEW, engine, holds, n, lease_ms);
}

const struct snib__lock_kind snib__mutex = {
    .kind = SNIB_MUTEX,
    .discipline = SNIB__EXCLUSIVE,
    .traits = SNIB__TENURE,
    .acquires = SNIB__NIL | SNIB__NUMBER,
    .releases = SNIB__NUMBER,
    .transfers = SNIB__NUMBER,
    .scripts = "mutex mutexes multi quorum",
    .acquire = snib__mutex_acquire,
    .release = snib__mutex_release,
    .transfer = snib__mutex_transfer,
    .renew = snib__mutex_renew,
    .info = SNIB__MUTEX_INFO,
    .force = SNIB__MUTEX_FORCE,
    .channel = snib__mutex_channel,
    .acquired = snib__verdict_left,
    .released = snib__verdict_receivers,
    .transferred = snib__verdict_transfer,
};
