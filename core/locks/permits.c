/* permits.c - Redisson's RPermitExpirableSemaphore, with core/lua/permits_*.lua.
 *
 * Keys      the name: a number, the free permits
 *           {name}:timeout: a sorted set of the ids of taken permits by the end of their lease, in
 *           ms of the server's clock
 * Channel   redisson_sc:{name}, message: how many permits are free
 *
 * An id is 16 bytes.  Snib's ids are the client's UUID with the permit's number XORed into its
 * second half, so a repeated request asks for the same ids.
 */
#include "engine/internal.h"
#include "locks/kind.h"
#include "net/script.h"

#include <string.h>

#define PERMITS_CHANNEL "redisson_sc"
#define PERMITS_TAKEN "timeout"
#define PERMITS_TOO_FEW (-3) /* reply: fewer permits exist in total */

static size_t permits_channel(char *out, const struct snib__engine *engine,
                              const struct snib__gate *gate, uint32_t blocker)
{
    (void)engine, (void)blocker;
    return snib__name_prefix(out, PERMITS_CHANNEL, gate->name, gate->name_len);
}

static int permits_taken(struct snib__buf *out, const struct snib__gate *gate)
{
    return snib__arg_suffixed(out, gate, PERMITS_TAKEN, strlen(PERMITS_TAKEN));
}

static void permits_client(const char *uuid, unsigned char id[16])
{
    for (int digits = 0; digits < 32; uuid++) {
        if (*uuid == '-')
            continue;
        unsigned digit = (unsigned)(*uuid <= '9' ? *uuid - '0' : *uuid - 'a' + 10);
        id[digits / 2] = (unsigned char)(digits % 2 ? id[digits / 2] | digit : digit << 4);
        digits++;
    }
}

static int permits_ids(struct snib__buf *out, const struct snib__engine *engine,
                       const struct snib__hold *hold)
{
    unsigned char client[16], id[16];
    permits_client(engine->config.uuid, client);
    memcpy(id, client, sizeof id);
    for (uint32_t i = 0; i < hold->permits; i++) {
        uint64_t number = hold->number + i;
        for (int b = 0; b < 8; b++)
            id[15 - b] = (unsigned char)(client[15 - b] ^ (number >> 8 * b & 0xff));
        if (snib__resp_arg(out, (const char *)id, sizeof id) < 0)
            return -1;
    }
    return 0;
}

static int permits_acquire(struct snib__buf *out, const struct snib__engine *engine,
                           const struct snib__hold *hold)
{
    if (snib__script_begin(out, SNIB__SCRIPT_PERMITS_ACQUIRE, 2, 4 + hold->permits) < 0 ||
        snib__arg_name(out, hold->gate) < 0 || permits_taken(out, hold->gate) < 0 ||
        snib__arg_lease(out, engine, hold) < 0 ||
        snib__arg_prefixed(out, PERMITS_CHANNEL, hold->gate) < 0 ||
        permits_ids(out, engine, hold) < 0)
        return -1;
    return SNIB__SCRIPT_PERMITS_ACQUIRE;
}

static int permits_release(struct snib__buf *out, const struct snib__engine *engine,
                           const struct snib__hold *hold)
{
    if (snib__script_begin(out, SNIB__SCRIPT_PERMITS_RELEASE, 2, 3 + hold->permits) < 0 ||
        snib__arg_name(out, hold->gate) < 0 || permits_taken(out, hold->gate) < 0 ||
        snib__arg_prefixed(out, PERMITS_CHANNEL, hold->gate) < 0 ||
        permits_ids(out, engine, hold) < 0)
        return -1;
    return SNIB__SCRIPT_PERMITS_RELEASE;
}

static int permits_renew(struct snib__buf *out, const struct snib__engine *engine,
                         struct snib__hold *const *holds, uint32_t n, int64_t lease_ms)
{
    uint32_t argc = 2 * n + 1;
    for (uint32_t i = 0; i < n; i++)
        argc += holds[i]->permits;
    if (snib__script_begin(out, SNIB__SCRIPT_PERMITS_RENEW, n, argc) < 0)
        return -1;
    for (uint32_t i = 0; i < n; i++)
        if (permits_taken(out, holds[i]->gate) < 0)
            return -1;
    if (snib__resp_arg_int(out, lease_ms) < 0)
        return -1;
    for (uint32_t i = 0; i < n; i++)
        if (snib__resp_arg_int(out, holds[i]->permits) < 0 ||
            permits_ids(out, engine, holds[i]) < 0)
            return -1;
    return SNIB__SCRIPT_PERMITS_RENEW;
}

static int permits_count(struct snib__buf *out, const struct snib__gate *gate, int32_t what,
                         int64_t n)
{
    if (what < SNIB_COUNT_GET || what > SNIB_COUNT_TOTAL)
        return -1; /* the API refuses it */
    if (snib__script_begin(out, SNIB__SCRIPT_PERMITS_COUNT, 2, 5) < 0 ||
        snib__arg_name(out, gate) < 0 || permits_taken(out, gate) < 0 ||
        snib__resp_arg_int(out, what) < 0 || snib__resp_arg_int(out, n) < 0 ||
        snib__arg_prefixed(out, PERMITS_CHANNEL, gate) < 0)
        return -1;
    return SNIB__SCRIPT_PERMITS_COUNT;
}

static void permits_acquired(const struct snib__engine *engine, const struct snib__hold *hold,
                             const struct snib__value *reply, uint32_t n,
                             struct snib__verdict *verdict)
{
    snib__verdict_left(engine, hold, reply, n, verdict);
    if (!verdict->yes && verdict->left_ms == PERMITS_TOO_FEW)
        verdict->code = SNIB_EPERMITS;
}

const struct snib__lock_kind snib__permits = {
    .kind = SNIB_PERMITS,
    .discipline = SNIB__SHARED,
    .acquires = SNIB__NIL | SNIB__NUMBER,
    .releases = SNIB__NUMBER,
    .scripts = "permits",
    .acquire = permits_acquire,
    .release = permits_release,
    .renew = permits_renew,
    .info = {SNIB__SCRIPT_PERMITS_INFO, 2, {":" PERMITS_TAKEN, PERMITS_CHANNEL}, false},
    .force = {SNIB__SCRIPT_PERMITS_FORCE, 2, {":" PERMITS_TAKEN}, false},
    .count = permits_count,
    .channel = permits_channel,
    .acquired = permits_acquired,
    .released = snib__verdict_receivers,
};
