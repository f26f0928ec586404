/* fair.c - Redisson's fair lock (RFairLock), with core/lua/fair_*.lua and _fair.lua.
 *
 * Keys      the lock's name: the mutex's hash
 *           redisson_lock_queue:{name}     list of waiting owners
 *           redisson_lock_timeout:{name}   sorted set: owner -> when its place ends
 *           snib_lock_beats:{name}         Snib's own hash: which clients are alive
 *           redisson_lock_token:{name}     fencing token, if wanted
 * Channels  redisson_lock__channel:{name}:<client uuid>           Snib's, for a process's waiters
 *           redisson_lock__channel:{name}:<client uuid>:<number>  Redisson's, one for each waiter
 */
#include "engine/internal.h"
#include "locks/kind.h"
#include "net/script.h"

#include <string.h>

#define FAIR_CHANNEL "redisson_lock__channel"
/* after the name */
#define FAIR_KEYS                                                                                  \
    "redisson_lock_queue", "redisson_lock_timeout", "snib_lock_beats", "redisson_lock_token"

static int fair_keys(struct snib__buf *out, const struct snib__gate *gate)
{
    static const char *const prefixes[] = {FAIR_KEYS};
    if (snib__arg_name(out, gate) < 0)
        return -1;
    for (size_t i = 0; i < sizeof prefixes / sizeof prefixes[0]; i++)
        if (snib__arg_prefixed(out, prefixes[i], gate) < 0)
            return -1;
    return 0;
}

/* The number of this client's first waiter, if it is the one that asks again: places with lower
 * numbers are leftovers that a failover has brought back.  0: do not check, and do not push the client's places; one request
 * per client does, because that scans the queue. */
static uint64_t fair_first(const struct snib__hold *hold)
{
    const struct snib__waitq *waitq = hold->gate->waitq;
    const struct snib__op *head = waitq ? waitq->head : NULL;
    if (!(hold->flags & SNIB__SEATED))
        return 0;
    if (head &&
        head->hold->number < hold->number) /* and so for all but one, where all ask at once */
        return 0;
    for (const struct snib__hold *peer = hold->gate->peers; peer; peer = peer->peer_next)
        if (peer->phase <= SNIB__PLACED && peer->number < hold->number)
            return 0;
    return hold->number;
}

static int fair_acquire(struct snib__buf *out, const struct snib__engine *engine,
                        const struct snib__hold *hold)
{
    const struct snib__waitq *waitq = hold->gate->waitq;
    bool queue = hold->flags & SNIB__QUEUES, fenced = hold->options & SNIB_LOCK_FENCED;
    bool polls = waitq && waitq->chan && waitq->chan->state == SNIB__CHAN_REFUSED;
    if (snib__script_begin(out, SNIB__SCRIPT_FAIR_ACQUIRE, 5, 12) < 0 ||
        fair_keys(out, hold->gate) < 0 || snib__arg_owner(out, engine, hold) < 0 ||
        snib__arg_lease(out, engine, hold) < 0 || snib__resp_arg_int(out, queue) < 0 ||
        snib__resp_arg_int(out, fenced) < 0 ||
        snib__arg_prefixed(out, FAIR_CHANNEL, hold->gate) < 0 ||
        snib__resp_arg_int(out, polls) < 0 ||
        snib__resp_arg_int(out, (int64_t)fair_first(hold)) < 0)
        return -1;
    return SNIB__SCRIPT_FAIR_ACQUIRE;
}

static int fair_release(struct snib__buf *out, const struct snib__engine *engine,
                        const struct snib__hold *hold)
{
    if (snib__script_begin(out, SNIB__SCRIPT_FAIR_RELEASE, 5, 7) < 0 ||
        fair_keys(out, hold->gate) < 0 || snib__arg_owner(out, engine, hold) < 0 ||
        snib__arg_prefixed(out, FAIR_CHANNEL, hold->gate) < 0)
        return -1;
    return SNIB__SCRIPT_FAIR_RELEASE;
}

static int fair_renew(struct snib__buf *out, const struct snib__engine *engine,
                      struct snib__hold *const *holds, uint32_t n, int64_t lease_ms)
{
    if (snib__script_begin(out, SNIB__SCRIPT_FAIR_RENEW, 3 * n, 4 * n + 1) < 0)
        return -1;
    for (uint32_t i = 0; i < n; i++)
        if (snib__arg_name(out, holds[i]->gate) < 0 ||
            snib__arg_prefixed(out, "redisson_lock_queue", holds[i]->gate) < 0 ||
            snib__arg_prefixed(out, "redisson_lock_timeout", holds[i]->gate) < 0)
            return -1;
    if (snib__resp_arg_int(out, lease_ms) < 0)
        return -1;
    for (uint32_t i = 0; i < n; i++)
        if (snib__arg_owner(out, engine, holds[i]) < 0)
            return -1;
    return SNIB__SCRIPT_FAIR_RENEW;
}

static size_t fair_channel(char *out, const struct snib__engine *engine,
                           const struct snib__gate *gate, uint32_t blocker)
{
    (void)blocker;
    size_t n = snib__name_prefix(out, FAIR_CHANNEL, gate->name, gate->name_len);
    out[n++] = ':';
    memcpy(out + n, engine->config.uuid, 36);
    return n + 36;
}

static void fair_acquired(const struct snib__engine *engine, const struct snib__hold *hold,
                          const struct snib__value *reply, uint32_t n,
                          struct snib__verdict *verdict)
{
    (void)hold;
    verdict->left_ms = -1;
    if (reply->type == SNIB__RESP_STRING) {
        verdict->yes = true;
        verdict->token = snib__reply_number(engine, reply);
    } else if (n == 4) {
        verdict->left_ms = reply[1].integer;
        verdict->foreign = reply[2].integer == 1;
        verdict->server_ms = reply[3].integer;
    }
}

static void fair_released(const struct snib__engine *engine, const struct snib__hold *hold,
                          const struct snib__value *reply, uint32_t n,
                          struct snib__verdict *verdict)
{
    if (n != 6)
        return;
    /* A hold whose number has only a place is lost: it was ended by force while it was asked for once more. */
    bool was_held = hold->acquired_at != 0;
    int64_t found = reply[1].integer;
    verdict->unheard = found == -1 || found == -2;
    found = verdict->unheard ? -found : found;
    verdict->yes = found == 1 || (found == 2 && !was_held);
    verdict->partly = found == 2 && was_held;
    verdict->next = (uint64_t)reply[2].integer;
    verdict->next_ms = reply[3].integer;
    verdict->next_token = snib__reply_number(engine, &reply[4]);
    verdict->server_ms = reply[5].integer;
}

const struct snib__lock_kind snib__fair = {
    .kind = SNIB_FAIR,
    .discipline = SNIB__QUEUED,
    .traits = SNIB__TOKENS,
    .acquires = SNIB__TEXT | SNIB__LIST_3,
    .releases = SNIB__LIST_5,
    .scripts = "fair mutex_renew",
    .acquire = fair_acquire,
    .release = fair_release,
    .renew = fair_renew,
    .info = {SNIB__SCRIPT_FAIR_INFO, 3, {"redisson_lock_queue", "redisson_lock_token"}, false},
    .force = {SNIB__SCRIPT_FAIR_FORCE, 5, {FAIR_KEYS, FAIR_CHANNEL}, false},
    .channel = fair_channel,
    .acquired = fair_acquired,
    .released = fair_released,
};
