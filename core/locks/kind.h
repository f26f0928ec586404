/* kind.h - what makes one kind of lock different from another: its scripts, keys and channel.
 *
 * A kind encodes one command for a hold or a gate and reads the reply.  When to send it, what a lost
 * reply means, who waits and who is told is the engine's business and the same for all kinds.
 *
 * Encoders append to `out` and return the script's index, or -1 when out of memory (the caller drops
 * what was half-written).
 */
#ifndef SNIB__KIND_H
#define SNIB__KIND_H

#include "engine/engine.h"
#include "net/buf.h"
#include "net/resp.h"

struct snib__verdict {
    bool yes;
    int64_t left_ms;   /* acquire refused: the holder's remaining lease, -1 unknown */
    int64_t receivers; /* released: processes that were told */
};

struct snib__lock_kind {
    int32_t kind; /* enum snib_kind */
    int (*acquire)(struct snib__buf *out, const struct snib__engine *engine,
                   const struct snib__hold *hold);
    int (*release)(struct snib__buf *out, const struct snib__engine *engine,
                   const struct snib__hold *hold);
    /* one command that ends `from` and grants `to` */
    int (*transfer)(struct snib__buf *out, const struct snib__engine *engine,
                    const struct snib__hold *from, const struct snib__hold *to);
    /* lease_ms 0: only ask whether they are held */
    int (*renew)(struct snib__buf *out, const struct snib__engine *engine,
                 struct snib__hold *const *holds, uint32_t n, int64_t lease_ms);
    int (*info)(struct snib__buf *out, const struct snib__gate *gate);
    int (*force)(struct snib__buf *out, const struct snib__gate *gate);
    /* the channel of wake-ups; out has room for name_len + 64; returns its length */
    size_t (*channel)(char *out, const char *name, size_t name_len);
    struct snib__verdict (*acquired)(const struct snib__value *reply);
    struct snib__verdict (*released)(const struct snib__value *reply);
};

extern const struct snib__lock_kind snib__mutex;

/* The kind of a number of enum snib_kind, or NULL. */
const struct snib__lock_kind *snib__kind_of(int32_t kind);

/* Redisson's PRE(prefix): "prefix:{name}", or "prefix:name" if the name has a brace of its own. */
size_t snib__name_derive(char *out, const char *prefix, const char *name, size_t name_len);

#endif
