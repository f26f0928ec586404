/* kind.h - what makes one kind of lock different from another: its scripts, keys and channel.
 *
 * A kind encodes one command for a hold or a gate and reads the reply.  When to send it, what a lost
 * reply means, who waits and who is told is the engine's business and the same for all kinds of one
 * discipline.
 *
 * Encoders append to `out` and return the script's index, SNIB__NO_SCRIPT for a plain command,
 * SNIB__TWO_COMMANDS for a plain command and one more whose reply is dropped, or -1 when out of memory
 * (the caller drops what was half-written).
 */
#ifndef SNIB__KIND_H
#define SNIB__KIND_H

#include "engine/engine.h"
#include "net/buf.h"
#include "net/resp.h"

#define SNIB__NO_SCRIPT (-2)
#define SNIB__TWO_COMMANDS (-3)
#define SNIB__CHANNEL_MAX 640

enum snib__discipline {
    SNIB__EXCLUSIVE, /* one hold of a gate at a time; one attempt for all local waiters; sole.c */
    SNIB__SHARED, /* holds of a gate are independent; who is refused waits in the gate; share.c */
    SNIB__QUEUED  /* one holder, and every waiter has a place of its own at the server; place.c */
};

/* kind->traits */
enum {
    SNIB__POLLS = 1,   /* a release sends no message: waiters poll with growing back-off */
    SNIB__UNOWNED = 2, /* a request must not be repeated: sent once; its holds have no lease */
    SNIB__NO_HOLD = 4, /* a grant leaves nothing to be released */
    SNIB__NO_HANDOVER = 8,
    SNIB__TWO_MESSAGES = 16,  /* a release that tells tells twice */
    SNIB__MANY_MESSAGES = 32, /* ... a number of times that nobody counts */
    SNIB__TOKENS = 64         /* its holds may have fencing tokens */
};

struct snib__verdict {
    bool yes;
    bool handed;       /* transfer: the next has it (else it was only released) */
    bool foreign;      /* refused: by a holder, or waiters ahead, that are no Snib */
    int32_t code;      /* refused for good: the operation ends with it; 0 else */
    int64_t left_ms;   /* refused: the holder's remaining lease, -1 unknown */
    int64_t receivers; /* released: processes that were told */
    int64_t token;     /* granted: the fencing token, 0 none */
    uint32_t blocker;  /* refused multi lock: which member, from 0 */
    uint64_t next;     /* released, QUEUED: number of the hold of ours that was granted, 0 none */
    int64_t next_ms;   /* its first lease */
    int64_t next_token;
    int64_t server_ms; /* QUEUED: when the script ran, by the server's clock */
};

struct snib__lock_kind {
    int32_t kind; /* enum snib_kind, or SNIB__MULTI */
    uint8_t discipline;
    uint8_t traits;
    int (*acquire)(struct snib__buf *out, const struct snib__engine *engine,
                   const struct snib__hold *hold);
    /* ends a hold, a place in a queue, or whatever an attempt may have left */
    int (*release)(struct snib__buf *out, const struct snib__engine *engine,
                   const struct snib__hold *hold);
    /* EXCLUSIVE: one command that ends `from` and grants `to` */
    int (*transfer)(struct snib__buf *out, const struct snib__engine *engine,
                    const struct snib__hold *from, const struct snib__hold *to);
    /* lease_ms 0: only ask whether they are held.  All holds are of this kind.  The reply has two
     * integers for each that is not held: its index from 1, and whether the lock still exists. */
    int (*renew)(struct snib__buf *out, const struct snib__engine *engine,
                 struct snib__hold *const *holds, uint32_t n, int64_t lease_ms);
    /* reply: [remaining ms (-2 free, -1 none), owner, count, waiting (-1 unknown), last token as text] */
    int (*info)(struct snib__buf *out, const struct snib__engine *engine,
                const struct snib__gate *gate);
    /* reply: 1 deleted, 0 nothing there */
    int (*force)(struct snib__buf *out, const struct snib__engine *engine,
                 const struct snib__gate *gate);
    /* what: enum snib_count.  Reply: an integer.  NULL if there is no counter; -4: not this `what` */
    int (*count)(struct snib__buf *out, const struct snib__gate *gate, int32_t what, int64_t n);
    /* the channel of wake-ups; `out` has room for SNIB__CHANNEL_MAX; returns its length */
    size_t (*channel)(char *out, const struct snib__engine *engine, const struct snib__gate *gate,
                      uint32_t blocker);
    /* *verdict is all zeros before */
    void (*acquired)(const struct snib__engine *engine, const struct snib__hold *hold,
                     const struct snib__value *reply, uint32_t n, struct snib__verdict *verdict);
    void (*released)(const struct snib__engine *engine, const struct snib__hold *hold,
                     const struct snib__value *reply, uint32_t n, struct snib__verdict *verdict);
    void (*transferred)(const struct snib__engine *engine, const struct snib__value *reply,
                        uint32_t n, struct snib__verdict *verdict);
};

#define SNIB__MULTI 11 /* of locks of one client; the gate's name lists the members, see multi.c */
#define SNIB__OUTER 12 /* of locks of several clients, carried by core/api/group.c */
#define SNIB__QUORUM_LETTER 'q' /* begins the name of an OUTER gate that is a quorum's */
#define SNIB__KINDS 13

extern const struct snib__lock_kind snib__mutex, snib__fair, snib__read, snib__write, snib__fenced,
    snib__spin, snib__plain, snib__semaphore, snib__permits, snib__latch, snib__multi, snib__outer;

/* The kind of a number of enum snib_kind or SNIB__MULTI, or NULL. */
const struct snib__lock_kind *snib__kind_of(int32_t kind);

/* Redisson's PRE(prefix): "prefix:{name}", or "prefix:name" if the name has a brace of its own. */
size_t snib__name_prefix(char *out, const char *prefix, const char *name, size_t name_len);
/* Redisson's SUF(suffix): "{name}:suffix", or "name:suffix" if the name has a brace of its own. */
size_t snib__name_suffix(char *out, const char *name, size_t name_len, const char *suffix,
                         size_t suffix_len);

/* Arguments of scripts: 0 or -1. */
int snib__arg_name(struct snib__buf *out, const struct snib__gate *gate);
int snib__arg_prefixed(struct snib__buf *out, const char *prefix, const struct snib__gate *gate);
int snib__arg_suffixed(struct snib__buf *out, const struct snib__gate *gate, const char *suffix,
                       size_t suffix_len);
int snib__arg_owner(struct snib__buf *out, const struct snib__engine *engine,
                    const struct snib__hold *hold);
int snib__arg_lease(struct snib__buf *out, const struct snib__engine *engine,
                    const struct snib__hold *hold);
/* KEYS and ARGV of a renewal of locks with one key each: names, lease, owners. */
int snib__args_renew(struct snib__buf *out, int script, const struct snib__engine *engine,
                     struct snib__hold *const *holds, uint32_t n, int64_t lease_ms);

/* Verdicts of replies of the usual shapes. */
int64_t
snib__reply_number(const struct snib__engine *engine,
                   const struct snib__value *value); /* an integer or decimal text; else 0 */
/* nil granted; an integer: refused, the remaining ms */
void snib__verdict_left(const struct snib__engine *engine, const struct snib__hold *hold,
                        const struct snib__value *reply, uint32_t n, struct snib__verdict *verdict);
/* 0 not held; 1 + receivers released */
void snib__verdict_receivers(const struct snib__engine *engine, const struct snib__hold *hold,
                             const struct snib__value *reply, uint32_t n,
                             struct snib__verdict *verdict);
/* 0 not held; 1 handed over; 2 released, but not handed over */
void snib__verdict_transfer(const struct snib__engine *engine, const struct snib__value *reply,
                            uint32_t n, struct snib__verdict *verdict);

#endif
