/* spin.c - Redisson's spin lock (RSpinLock), with core/lua/spin_*.lua.
 *
 * It uses the mutex's hash, but its releases send no message, so all waiters poll.
 */
#include "engine/internal.h"
#include "locks/mutex.h"
#include "net/script.h"

static int spin_release(struct snib__buf *out, const struct snib__engine *engine,
                        const struct snib__hold *hold)
{
    if (snib__script_begin(out, SNIB__SCRIPT_SPIN_RELEASE, 1, 2) < 0 ||
        snib__arg_name(out, hold->gate) < 0 || snib__arg_owner(out, engine, hold) < 0)
        return -1;
    return SNIB__SCRIPT_SPIN_RELEASE;
}

const struct snib__lock_kind snib__spin = {
    .kind = SNIB_SPIN,
    .discipline = SNIB__EXCLUSIVE,
    .traits = SNIB__POLLS,
    .acquires = SNIB__NIL | SNIB__NUMBER,
    .releases = SNIB__NUMBER,
    .transfers = SNIB__NUMBER,
    .scripts = "spin mutex multi",
    .acquire = snib__mutex_acquire,
    .release = spin_release,
    .transfer = snib__mutex_transfer,
    .renew = snib__mutex_renew,
    .info = SNIB__MUTEX_INFO,
    .force = {SNIB__SCRIPT_SPIN_FORCE, 1, {NULL}, false},
    .channel = snib__mutex_channel,
    .acquired = snib__verdict_left,
    .released = snib__verdict_receivers,
    .transferred = snib__verdict_transfer,
};
