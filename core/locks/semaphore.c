/* semaphore.c - Redisson's semaphore (RSemaphore), with core/lua/semaphore_*.lua.
 *
 * Keys      the semaphore's name: a number, the free permits
 * Channel   redisson_sc:{name}, message: how many permits are free
 *
 * Permits have no owners, so a hold has no lease and cannot be lost, and no request may be
 * repeated.
 */
#include "engine/internal.h"
#include "locks/kind.h"
#include "net/script.h"

#define SEMAPHORE_CHANNEL "redisson_sc"

static size_t semaphore_channel(char *out, const struct snib__engine *engine,
                                const struct snib__gate *gate, uint32_t blocker)
{
    (void)engine, (void)blocker;
    return snib__name_prefix(out, SEMAPHORE_CHANNEL, gate->name, gate->name_len);
}

static int semaphore_acquire(struct snib__buf *out, const struct snib__engine *engine,
                             const struct snib__hold *hold)
{
    (void)engine;
    if (snib__script_begin(out, SNIB__SCRIPT_SEMAPHORE_ACQUIRE, 1, 2) < 0 ||
        snib__arg_name(out, hold->gate) < 0 || snib__resp_arg_int(out, hold->permits) < 0)
        return -1;
    return SNIB__SCRIPT_SEMAPHORE_ACQUIRE;
}

static int semaphore_release(struct snib__buf *out, const struct snib__engine *engine,
                             const struct snib__hold *hold)
{
    (void)engine;
    if (snib__script_begin(out, SNIB__SCRIPT_SEMAPHORE_RELEASE, 1, 3) < 0 ||
        snib__arg_name(out, hold->gate) < 0 || snib__resp_arg_int(out, hold->permits) < 0 ||
        snib__arg_prefixed(out, SEMAPHORE_CHANNEL, hold->gate) < 0)
        return -1;
    return SNIB__SCRIPT_SEMAPHORE_RELEASE;
}

static int semaphore_count(struct snib__buf *out, const struct snib__gate *gate, int32_t what,
                           int64_t n)
{
    if (what != SNIB_COUNT_GET && what != SNIB_COUNT_INIT && what != SNIB_COUNT_ADD &&
        what != SNIB_COUNT_RELEASE && what != SNIB_COUNT_DRAIN)
        return -1; /* the API refuses it */
    if (snib__script_begin(out, SNIB__SCRIPT_SEMAPHORE_COUNT, 1, 4) < 0 ||
        snib__arg_name(out, gate) < 0 || snib__resp_arg_int(out, what) < 0 ||
        snib__resp_arg_int(out, n) < 0 || snib__arg_prefixed(out, SEMAPHORE_CHANNEL, gate) < 0)
        return -1;
    return SNIB__SCRIPT_SEMAPHORE_COUNT;
}

const struct snib__lock_kind snib__semaphore = {
    .kind = SNIB_SEMAPHORE,
    .discipline = SNIB__SHARED,
    .traits = SNIB__UNOWNED,
    .acquires = SNIB__NIL | SNIB__NUMBER,
    .releases = SNIB__NUMBER,
    .scripts = "semaphore",
    .acquire = semaphore_acquire,
    .release = semaphore_release,
    .info = {SNIB__SCRIPT_SEMAPHORE_INFO, 1, {SEMAPHORE_CHANNEL}, false},
    .force = {SNIB__SCRIPT_SEMAPHORE_FORCE, 1, {NULL}, false},
    .count = semaphore_count,
    .channel = semaphore_channel,
    .acquired = snib__verdict_left,
    .released = snib__verdict_receivers,
};
