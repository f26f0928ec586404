/* write.c - the writers' side of Redisson's RReadWriteLock, with core/lua/write_*.lua.
 *
 * Keys      those of read.c; redisson_lock_token:{name} if the lock is fenced
 * Channel   the readers', message "1" at every release that leaves the process
 */
#include "engine/internal.h"
#include "locks/mutex.h"
#include "locks/rw.h"
#include "net/script.h"

static bool write_fenced(const struct snib__hold *hold)
{
    return (hold->options & SNIB_LOCK_FENCED) != 0;
}

/* For how many ms new readers wait, because it asked for preference, or one that waits behind it here. */
static int64_t write_mark(const struct snib__hold *hold)
{
    return hold->op ? hold->op->mark.ms : 0;
}

static int write_acquire(struct snib__buf *out, const struct snib__engine *engine,
                         const struct snib__hold *hold)
{
    uint32_t keys = write_fenced(hold) ? 3 : 2;
    if (snib__script_begin(out, SNIB__SCRIPT_WRITE_ACQUIRE, keys, keys + 3) < 0 ||
        snib__arg_name(out, hold->gate) < 0 ||
        snib__arg_prefixed(out, SNIB__RW_MARK, hold->gate) < 0 ||
        (keys == 3 && snib__arg_prefixed(out, SNIB__TOKEN_KEY, hold->gate) < 0) ||
        snib__arg_owner(out, engine, hold) < 0 || snib__arg_lease(out, engine, hold) < 0 ||
        snib__resp_arg_int(out, write_mark(hold)) < 0)
        return -1;
    return SNIB__SCRIPT_WRITE_ACQUIRE;
}

static int write_release(struct snib__buf *out, const struct snib__engine *engine,
                         const struct snib__hold *hold)
{
    if (snib__script_begin(out, SNIB__SCRIPT_WRITE_RELEASE, 1, 3) < 0 ||
        snib__arg_name(out, hold->gate) < 0 || snib__arg_owner(out, engine, hold) < 0 ||
        snib__arg_prefixed(out, SNIB__RW_CHANNEL, hold->gate) < 0)
        return -1;
    return SNIB__SCRIPT_WRITE_RELEASE;
}

static int write_transfer(struct snib__buf *out, const struct snib__engine *engine,
                          const struct snib__hold *from, const struct snib__hold *to)
{
    uint32_t keys = write_fenced(to) ? 2 : 1;
    if (snib__script_begin(out, SNIB__SCRIPT_WRITE_TRANSFER, keys, keys + 4) < 0 ||
        snib__arg_name(out, from->gate) < 0 ||
        (keys == 2 && snib__arg_prefixed(out, SNIB__TOKEN_KEY, from->gate) < 0) ||
        snib__arg_owner(out, engine, from) < 0 || snib__arg_owner(out, engine, to) < 0 ||
        snib__arg_lease(out, engine, to) < 0 ||
        snib__arg_prefixed(out, SNIB__RW_CHANNEL, from->gate) < 0)
        return -1;
    return SNIB__SCRIPT_WRITE_TRANSFER;
}

static int write_renew(struct snib__buf *out, const struct snib__engine *engine,
                       struct snib__hold *const *holds, uint32_t n, int64_t lease_ms)
{
    return snib__args_renew(out, SNIB__SCRIPT_WRITE_RENEW, engine, holds, n, lease_ms);
}

const struct snib__lock_kind snib__write = {
    .kind = SNIB_WRITE,
    .discipline = SNIB__EXCLUSIVE,
    .traits = SNIB__TWO_MESSAGES | SNIB__TOKENS,
    .acquires = SNIB__NIL | SNIB__LIST_1 | SNIB__NUMBER,
    .releases = SNIB__NUMBER,
    .transfers = SNIB__LIST_1 | SNIB__NUMBER,
    .scripts = "write multi",
    .acquire = write_acquire,
    .release = write_release,
    .transfer = write_transfer,
    .renew = write_renew,
    .info = {SNIB__SCRIPT_WRITE_INFO, 2, {SNIB__TOKEN_KEY, SNIB__RW_CHANNEL}, false},
    .force = {SNIB__SCRIPT_WRITE_FORCE, 1, {SNIB__RW_CHANNEL}, false},
    .channel = snib__rw_channel,
    .acquired = snib__verdict_token,
    .released = snib__verdict_receivers,
    .transferred = snib__verdict_token_transfer,
};
