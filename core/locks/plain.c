/* plain.c - the lock that most other libraries implement, with core/lua/plain_*.lua.
 *
 * Keys      the lock's name: a string, the owner, with a TTL: SET name owner NX PX lease
 * Channel   snib_plain_channel:{name}, message "0" at every release that leaves the process
 *
 * Other libraries publish nothing when they release, so a verdict says whether the holder is a Snib
 * client.  Where the server has a command for "delete if equal", a release needs no script.
 */
#include "engine/internal.h"
#include "locks/kind.h"
#include "net/script.h"

#define PLAIN_CHANNEL "snib_plain_channel"

static size_t plain_channel(char *out, const struct snib__engine *engine,
                            const struct snib__gate *gate, uint32_t blocker)
{
    (void)engine, (void)blocker;
    return snib__name_prefix(out, PLAIN_CHANNEL, gate->name, gate->name_len);
}

static int plain_acquire(struct snib__buf *out, const struct snib__engine *engine,
                         const struct snib__hold *hold)
{
    if (snib__script_begin(out, SNIB__SCRIPT_PLAIN_ACQUIRE, 1, 3) < 0 ||
        snib__arg_name(out, hold->gate) < 0 || snib__arg_owner(out, engine, hold) < 0 ||
        snib__arg_lease(out, engine, hold) < 0)
        return -1;
    return SNIB__SCRIPT_PLAIN_ACQUIRE;
}

static int plain_command(struct snib__buf *out, const struct snib__engine *engine,
                         const struct snib__hold *hold, bool valkey)
{
    int begun = valkey ? snib__resp_begin(out, 3) < 0 || snib__resp_arg(out, "DELIFEQ", 7) < 0
                       : snib__resp_begin(out, 4) < 0 || snib__resp_arg(out, "DELEX", 5) < 0;
    if (begun || snib__arg_name(out, hold->gate) < 0 ||
        (!valkey && snib__resp_arg(out, "IFEQ", 4) < 0) || snib__arg_owner(out, engine, hold) < 0 ||
        snib__resp_begin(out, 3) < 0 || snib__resp_arg(out, "PUBLISH", 7) < 0 ||
        snib__arg_prefixed(out, PLAIN_CHANNEL, hold->gate) < 0 || snib__resp_arg(out, "0", 1) < 0)
        return -1;
    return SNIB__TWO_COMMANDS;
}

static int plain_release(struct snib__buf *out, const struct snib__engine *engine,
                         const struct snib__hold *hold)
{
    const struct snib__conn *conn = &hold->gate->node->links[SNIB__COMMAND].conn;
    if ((conn->delifeq || conn->delex) && conn->publish == SNIB__CLASSIC)
        return plain_command(out, engine, hold, conn->delifeq);
    if (snib__script_begin(out, SNIB__SCRIPT_PLAIN_RELEASE, 1, 3) < 0 ||
        snib__arg_name(out, hold->gate) < 0 || snib__arg_owner(out, engine, hold) < 0 ||
        snib__arg_prefixed(out, PLAIN_CHANNEL, hold->gate) < 0)
        return -1;
    return SNIB__SCRIPT_PLAIN_RELEASE;
}

static int plain_transfer(struct snib__buf *out, const struct snib__engine *engine,
                          const struct snib__hold *from, const struct snib__hold *to)
{
    if (snib__script_begin(out, SNIB__SCRIPT_PLAIN_TRANSFER, 1, 4) < 0 ||
        snib__arg_name(out, from->gate) < 0 || snib__arg_owner(out, engine, from) < 0 ||
        snib__arg_owner(out, engine, to) < 0 || snib__arg_lease(out, engine, to) < 0)
        return -1;
    return SNIB__SCRIPT_PLAIN_TRANSFER;
}

static int plain_renew(struct snib__buf *out, const struct snib__engine *engine,
                       struct snib__hold *const *holds, uint32_t n, int64_t lease_ms)
{
    return snib__args_renew(out, SNIB__SCRIPT_PLAIN_RENEW, engine, holds, n, lease_ms);
}

static void plain_acquired(const struct snib__engine *engine, const struct snib__hold *hold,
                           const struct snib__value *reply, uint32_t n,
                           struct snib__verdict *verdict)
{
    (void)engine, (void)hold;
    verdict->yes = reply->type == SNIB__RESP_NIL;
    verdict->left_ms = -1;
    if (reply->type == SNIB__RESP_ARRAY && n >= 3) {
        verdict->left_ms = reply[1].integer;
        verdict->foreign = reply[2].integer != 0;
    }
}

const struct snib__lock_kind snib__plain = {
    .kind = SNIB_PLAIN,
    .discipline = SNIB__EXCLUSIVE,
    .traits = SNIB__TENURE,
    .acquires = SNIB__NIL | SNIB__LIST_2,
    .releases = SNIB__NUMBER,
    .transfers = SNIB__NUMBER,
    .scripts = "plain",
    .acquire = plain_acquire,
    .release = plain_release,
    .transfer = plain_transfer,
    .renew = plain_renew,
    .info = {SNIB__SCRIPT_PLAIN_INFO, 1, {PLAIN_CHANNEL}, false},
    .force = {SNIB__SCRIPT_PLAIN_FORCE, 1, {PLAIN_CHANNEL}, false},
    .channel = plain_channel,
    .acquired = plain_acquired,
    .released = snib__verdict_receivers,
    .transferred = snib__verdict_transfer,
};
