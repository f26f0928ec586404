/* fenced.c - Redisson's fenced lock (RFencedLock), with core/lua/fenced_*.lua.
 *
 * Keys      the mutex's hash; redisson_lock_token:{name}: a counter that rises with every hold
 * Channel   the mutex's
 *
 * The token is sent as text, because numbers in Lua are exact only up to 2^53.  A repeated acquire
 * finds its own field and returns the same token.
 */
#include "engine/internal.h"
#include "locks/mutex.h"
#include "net/script.h"

void snib__verdict_token(const struct snib__engine *engine, const struct snib__hold *hold,
                         const struct snib__value *reply, uint32_t n, struct snib__verdict *verdict)
{
    if (reply->type != SNIB__RESP_ARRAY || n < 2) {
        snib__verdict_left(engine, hold, reply, n, verdict);
        return;
    }
    verdict->yes = true;
    verdict->token = snib__reply_number(engine, &reply[1]);
}

void snib__verdict_token_transfer(const struct snib__engine *engine,
                                  const struct snib__value *reply, uint32_t n,
                                  struct snib__verdict *verdict)
{
    if (reply->type != SNIB__RESP_ARRAY || n < 2) {
        snib__verdict_transfer(engine, reply, n, verdict);
        return;
    }
    verdict->yes = verdict->handed = true;
    verdict->token = snib__reply_number(engine, &reply[1]);
}

static int fenced_acquire(struct snib__buf *out, const struct snib__engine *engine,
                          const struct snib__hold *hold)
{
    if (snib__script_begin(out, SNIB__SCRIPT_FENCED_ACQUIRE, 2, 4) < 0 ||
        snib__arg_name(out, hold->gate) < 0 ||
        snib__arg_prefixed(out, SNIB__TOKEN_KEY, hold->gate) < 0 ||
        snib__arg_owner(out, engine, hold) < 0 || snib__arg_lease(out, engine, hold) < 0)
        return -1;
    return SNIB__SCRIPT_FENCED_ACQUIRE;
}

static int fenced_transfer(struct snib__buf *out, const struct snib__engine *engine,
                           const struct snib__hold *from, const struct snib__hold *to)
{
    if (snib__script_begin(out, SNIB__SCRIPT_FENCED_TRANSFER, 2, 6) < 0 ||
        snib__arg_name(out, from->gate) < 0 ||
        snib__arg_prefixed(out, SNIB__TOKEN_KEY, from->gate) < 0 ||
        snib__arg_owner(out, engine, from) < 0 || snib__arg_owner(out, engine, to) < 0 ||
        snib__arg_lease(out, engine, to) < 0 ||
        snib__arg_prefixed(out, SNIB__MUTEX_CHANNEL, from->gate) < 0)
        return -1;
    return SNIB__SCRIPT_FENCED_TRANSFER;
}

const struct snib__lock_kind snib__fenced = {
    .kind = SNIB_FENCED,
    .discipline = SNIB__EXCLUSIVE,
    .traits = SNIB__TOKENS,
    .acquires = SNIB__LIST_1 | SNIB__NUMBER,
    .releases = SNIB__NUMBER,
    .transfers = SNIB__LIST_1 | SNIB__NUMBER,
    .scripts = "fenced mutex multi",
    .acquire = fenced_acquire,
    .release = snib__mutex_release,
    .transfer = fenced_transfer,
    .renew = snib__mutex_renew,
    .info = {SNIB__SCRIPT_MUTEX_INFO, 2, {SNIB__TOKEN_KEY, SNIB__MUTEX_CHANNEL}, false},
    .force = SNIB__MUTEX_FORCE,
    .channel = snib__mutex_channel,
    .acquired = snib__verdict_token,
    .released = snib__verdict_receivers,
    .transferred = snib__verdict_token_transfer,
};
