/* read.c - the readers' side of Redisson's RReadWriteLock, with core/lua/read_*.lua.
 *
 * Keys      the lock's name: a hash with `mode` (read or write), a field "<owner>" = 1 for every
 *           reader and "<owner>:write" for the writer; its TTL is that of the longest lease
 *           {name}:<owner>:rwlock_timeout:1: exists for as long as that reader's lease
 *           snib_writer_waits:{name}: exists while a preferred writer waits, ahead of new readers
 * Channel   redisson_rwlock:{name}, message "1" when the last reader leaves
 */
#include "locks/rw.h"

#include "engine/internal.h"
#include "net/script.h"

#include <string.h>

size_t snib__rw_channel(char *out, const struct snib__engine *engine, const struct snib__gate *gate,
                        uint32_t blocker)
{
    (void)engine, (void)blocker;
    return snib__name_prefix(out, SNIB__RW_CHANNEL, gate->name, gate->name_len);
}

int snib__rw_arg_lease_key(struct snib__buf *out, const struct snib__engine *engine,
                           const struct snib__hold *hold, const char *name, size_t name_len)
{
    static const char tail[] = ":rwlock_timeout:1";
    char suffix[64 + sizeof tail];
    size_t n = snib__hold_owner(engine, hold, suffix);
    memcpy(suffix + n, tail, sizeof tail - 1);
    char key[SNIB__CHANNEL_MAX];
    return snib__resp_arg(out, key,
                          snib__name_suffix(key, name, name_len, suffix, n + sizeof tail - 1));
}

static int read_lease_key(struct snib__buf *out, const struct snib__engine *engine,
                          const struct snib__hold *hold)
{
    return snib__rw_arg_lease_key(out, engine, hold, hold->gate->name, hold->gate->name_len);
}

/* Its owner's write hold, which lets it in. */
static int read_writer(struct snib__buf *out, const struct snib__engine *engine,
                       const struct snib__hold *hold)
{
    const struct snib__hold writer = {.number = hold->writer};
    return snib__arg_owner(out, engine, &writer);
}

static int read_acquire(struct snib__buf *out, const struct snib__engine *engine,
                        const struct snib__hold *hold)
{
    bool joins = hold->flags & SNIB__JOINS;
    if (snib__script_begin(out, SNIB__SCRIPT_READ_ACQUIRE, 3, joins ? 6 : 5) < 0 ||
        snib__arg_name(out, hold->gate) < 0 || read_lease_key(out, engine, hold) < 0 ||
        snib__arg_prefixed(out, SNIB__RW_MARK, hold->gate) < 0 ||
        snib__arg_owner(out, engine, hold) < 0 || snib__arg_lease(out, engine, hold) < 0 ||
        (joins && read_writer(out, engine, hold) < 0))
        return -1;
    return SNIB__SCRIPT_READ_ACQUIRE;
}

static int read_release(struct snib__buf *out, const struct snib__engine *engine,
                        const struct snib__hold *hold)
{
    if (snib__script_begin(out, SNIB__SCRIPT_READ_RELEASE, 2, 4) < 0 ||
        snib__arg_name(out, hold->gate) < 0 || read_lease_key(out, engine, hold) < 0 ||
        snib__arg_owner(out, engine, hold) < 0 ||
        snib__arg_prefixed(out, SNIB__RW_CHANNEL, hold->gate) < 0)
        return -1;
    return SNIB__SCRIPT_READ_RELEASE;
}

static int read_renew(struct snib__buf *out, const struct snib__engine *engine,
                      struct snib__hold *const *holds, uint32_t n, int64_t lease_ms)
{
    if (snib__script_begin(out, SNIB__SCRIPT_READ_RENEW, 2 * n, 3 * n + 1) < 0)
        return -1;
    for (uint32_t i = 0; i < n; i++)
        if (snib__arg_name(out, holds[i]->gate) < 0 || read_lease_key(out, engine, holds[i]) < 0)
            return -1;
    if (snib__resp_arg_int(out, lease_ms) < 0)
        return -1;
    for (uint32_t i = 0; i < n; i++)
        if (snib__arg_owner(out, engine, holds[i]) < 0)
            return -1;
    return SNIB__SCRIPT_READ_RENEW;
}

const struct snib__lock_kind snib__read = {
    .kind = SNIB_READ,
    .discipline = SNIB__SHARED,
    .traits = SNIB__TWO_MESSAGES,
    .acquires = SNIB__NIL | SNIB__NUMBER,
    .releases = SNIB__NUMBER,
    .scripts = "read multi",
    .acquire = read_acquire,
    .release = read_release,
    .renew = read_renew,
    .info = {SNIB__SCRIPT_READ_INFO, 1, {SNIB__RW_CHANNEL}, false},
    .force = {SNIB__SCRIPT_READ_FORCE, 1, {SNIB__RW_CHANNEL}, false},
    .channel = snib__rw_channel,
    .acquired = snib__verdict_left,
    .released = snib__verdict_receivers,
};
