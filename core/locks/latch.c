/* latch.c - Redisson's count-down latch (RCountDownLatch), with core/lua/latch_*.lua.
 *
 * Keys      the latch's name: a number above 0, which exists only while the latch is shut
 * Channel   redisson_countdownlatch__channel__{name}, with braces in any case; messages "1" shut,
 *           "0" open
 *
 * Waiting for a latch is an acquire that leaves no hold: a grant means that it is open.
 *
 * In a cluster a Redisson latch cannot have a hash tag, because its channel, which its scripts
 * declare as a key, would be in another slot.  Snib refuses such names as well, so that no client
 * waits for a latch that Java cannot open.
 */
#include "engine/internal.h"
#include "locks/kind.h"
#include "net/script.h"

#include <string.h>

#define LATCH_CHANNEL "redisson_countdownlatch__channel__"

static size_t latch_channel(char *out, const struct snib__engine *engine,
                            const struct snib__gate *gate, uint32_t blocker)
{
    (void)engine, (void)blocker;
    size_t n = strlen(LATCH_CHANNEL);
    memcpy(out, LATCH_CHANNEL, n);
    out[n++] = '{';
    memcpy(out + n, gate->name, gate->name_len);
    n += gate->name_len;
    out[n++] = '}';
    return n;
}

static int latch_arg_channel(struct snib__buf *out, const struct snib__gate *gate)
{
    char channel[SNIB__CHANNEL_MAX];
    return snib__resp_arg(out, channel, latch_channel(channel, NULL, gate, 0));
}

/* The command and its keys; cluster servers refuse a name with a tag. */
static int latch_begin(struct snib__buf *out, int script, const struct snib__gate *gate,
                       uint32_t more)
{
    bool tagged = memchr(gate->name, '{', gate->name_len) != NULL;
    uint32_t keys = tagged ? 2 : 1;
    if (snib__script_begin(out, script, keys, keys + more) < 0 || snib__arg_name(out, gate) < 0)
        return -1;
    return tagged ? latch_arg_channel(out, gate) : 0;
}

static int latch_acquire(struct snib__buf *out, const struct snib__engine *engine,
                         const struct snib__hold *hold)
{
    (void)engine;
    return latch_begin(out, SNIB__SCRIPT_LATCH_ACQUIRE, hold->gate, 0) < 0
               ? -1
               : SNIB__SCRIPT_LATCH_ACQUIRE;
}

static int latch_count(struct snib__buf *out, const struct snib__gate *gate, int32_t what,
                       int64_t n)
{
    if (what != SNIB_COUNT_GET && what != SNIB_COUNT_INIT && what != SNIB_COUNT_DOWN)
        return -1; /* the API refuses it */
    if (latch_begin(out, SNIB__SCRIPT_LATCH_COUNT, gate, 3) < 0 ||
        snib__resp_arg_int(out, what) < 0 || snib__resp_arg_int(out, n) < 0 ||
        latch_arg_channel(out, gate) < 0)
        return -1;
    return SNIB__SCRIPT_LATCH_COUNT;
}

const struct snib__lock_kind snib__latch = {
    .kind = SNIB_LATCH,
    .discipline = SNIB__SHARED,
    .traits = SNIB__NO_HOLD,
    .acquires = SNIB__NIL | SNIB__NUMBER,
    .scripts = "latch",
    .acquire = latch_acquire,
    .info = {SNIB__SCRIPT_LATCH_INFO, 1, {LATCH_CHANNEL "{"}, true},
    .force = {SNIB__SCRIPT_LATCH_FORCE, 1, {LATCH_CHANNEL "{"}, true},
    .count = latch_count,
    .channel = latch_channel,
    .acquired = snib__verdict_left,
};
