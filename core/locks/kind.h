/* kind.h - what distinguishes one kind of lock from another: its scripts, keys and channel.
 *
 * A kind encodes one command for a hold or a gate and reads the reply.  The engine decides when to
 * send it, what a lost reply means, which operations wait and which are notified, in the same way
 * for all kinds of one discipline.
 *
 * Encoders append to `out` and return the script's index, SNIB__NO_SCRIPT for a plain command,
 * SNIB__TWO_COMMANDS for a plain command and a message, whose replies are made into the one that the
 * script would give, or -1 when out of memory (the caller then drops the partial command).
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
    SNIB__SHARED,    /* independent holds of a gate; refused operations wait in the gate; share.c */
    SNIB__QUEUED     /* one holder; every waiter has a place of its own at the server; place.c */
};

/* kind->traits */
enum {
    SNIB__POLLS = 1,   /* a release sends no message: waiters poll with growing back-off */
    SNIB__UNOWNED = 2, /* it has no owner: requests are sent only once, and holds have no lease */
    SNIB__NO_HOLD = 4, /* a grant leaves nothing to release */
    SNIB__NO_HANDOVER = 8,
    SNIB__TWO_MESSAGES = 16,  /* a release that publishes does so twice */
    SNIB__MANY_MESSAGES = 32, /* ... an unknown number of times */
    SNIB__TOKENS = 64,        /* its holds may have fencing tokens */
    SNIB__TENURE = 128        /* its number may go on to another hold of the client, see tenure.c */
};

/* The form of a reply: a bit for each type of a scalar; a LIST has so many of them. */
enum {
    SNIB__NIL = 1 << SNIB__RESP_NIL,
    SNIB__NUMBER = 1 << SNIB__RESP_INTEGER,
    SNIB__TEXT = 1 << SNIB__RESP_STRING,
    SNIB__LIST_1 = 8,
    SNIB__LIST_2 = 16,
    SNIB__LIST_3 = 32,
    SNIB__LIST_5 = 64
};

struct snib__verdict {
    bool yes;
    bool handed;       /* transfer: the next one has it; otherwise it was only released */
    bool foreign;      /* refused by a holder, or by waiters ahead, that are not Snib's */
    int32_t code;      /* refused for good: the operation ends with it; otherwise 0 */
    int64_t left_ms;   /* refused: the holder's remaining lease; -1: unknown */
    int64_t receivers; /* released: subscribers that received the message */
    bool unheard;      /* released, but the server refused the message */
    bool partly;       /* not released, and a part was there: no earlier try has been carried out */
    int64_t token;     /* granted: the fencing token; 0: none */
    uint32_t blocker;  /* refused multi lock: the member that blocks it, from 0 */
    uint64_t next;     /* released, QUEUED: this client's granted hold, by number; 0: none */
    int64_t next_ms;   /* its first lease */
    int64_t next_token;
    int64_t server_ms; /* QUEUED: when the script ran, by the server's clock */
};

/* A script whose arguments are a name, and words with the name in them. */
struct snib__name_script {
    int script;
    uint32_t keys; /* so many of the arguments are keys; 0: the kind has no such script */
    /* "word": snib__name_prefix(); ":word": snib__name_suffix(); "word{": then the name in braces, whatever it is */
    const char *words[5];
    /* For a name with a hash tag the last word is a key, too: in a cluster, where it may be in another slot, the
     * server refuses the script. */
    bool tag_adds_key;
};

struct snib__lock_kind {
    int32_t kind; /* enum snib_kind, or SNIB__MULTI */
    uint8_t discipline;
    uint8_t traits;
    uint8_t acquires, releases, transfers; /* forms of the replies to these requests */
    const char
        *scripts; /* that its locks need: with these names, or beginning with one of them and _ */
    int (*acquire)(struct snib__buf *out, const struct snib__engine *engine,
                   const struct snib__hold *hold);
    /* ends a hold, a place in a queue, or any trace of an attempt */
    int (*release)(struct snib__buf *out, const struct snib__engine *engine,
                   const struct snib__hold *hold);
    /* EXCLUSIVE: one command that ends `from` and grants `to` */
    int (*transfer)(struct snib__buf *out, const struct snib__engine *engine,
                    const struct snib__hold *from, const struct snib__hold *to);
    /* lease_ms 0: only query whether they are held.  All holds are of this kind.  The reply has two
     * integers for each that is not held: its index from 1, and whether the lock still exists. */
    int (*renew)(struct snib__buf *out, const struct snib__engine *engine,
                 struct snib__hold *const *holds, uint32_t n, int64_t lease_ms);
    /* reply: [remaining ms (-2 free, -1 none), owner, count, waiting (-1
     * unknown), last token as text] */
    struct snib__name_script info;
    /* reply: 1 deleted, 0 not there */
    struct snib__name_script force;
    /* what: enum snib_count.  Reply: an integer.  NULL if there is no counter; -1 also if `what`
     * does not apply, which callers have seen to */
    int (*count)(struct snib__buf *out, const struct snib__gate *gate, int32_t what, int64_t n);
    /* the wake-up channel; `out` has room for SNIB__CHANNEL_MAX; returns its length */
    size_t (*channel)(char *out, const struct snib__engine *engine, const struct snib__gate *gate,
                      uint32_t blocker);
    /* *verdict is zeroed before the call */
    void (*acquired)(const struct snib__engine *engine, const struct snib__hold *hold,
                     const struct snib__value *reply, uint32_t n, struct snib__verdict *verdict);
    void (*released)(const struct snib__engine *engine, const struct snib__hold *hold,
                     const struct snib__value *reply, uint32_t n, struct snib__verdict *verdict);
    void (*transferred)(const struct snib__engine *engine, const struct snib__value *reply,
                        uint32_t n, struct snib__verdict *verdict);
};

#define SNIB__MULTI 11 /* made of one client's locks; the gate's name lists them, see multi.c */
#define SNIB__OUTER 12 /* made of several clients' locks, carried by core/api/group.c */
#define SNIB__QUORUM_LETTER 'q' /* first byte of an OUTER gate's name if it is a quorum's */
#define SNIB__KINDS 13

extern const struct snib__lock_kind snib__mutex, snib__fair, snib__read, snib__write, snib__fenced,
    snib__spin, snib__plain, snib__semaphore, snib__permits, snib__latch, snib__multi, snib__outer;

/* The kind for a number of enum snib_kind or SNIB__MULTI, or NULL. */
const struct snib__lock_kind *snib__kind_of(int32_t kind);

/* Redisson's PRE(prefix): "prefix:{name}", or "prefix:name" if the name itself contains a brace. */
size_t snib__name_prefix(char *out, const char *prefix, const char *name, size_t name_len);
/* Redisson's SUF(suffix): "{name}:suffix", or "name:suffix" if the name itself contains a brace. */
size_t snib__name_suffix(char *out, const char *name, size_t name_len, const char *suffix,
                         size_t suffix_len);

/* Append arguments of scripts: 0 or -1. */
int snib__arg_name(struct snib__buf *out, const struct snib__gate *gate);
int snib__arg_prefixed(struct snib__buf *out, const char *prefix, const struct snib__gate *gate);
int snib__arg_suffixed(struct snib__buf *out, const struct snib__gate *gate, const char *suffix,
                       size_t suffix_len);
int snib__arg_owner(struct snib__buf *out, const struct snib__engine *engine,
                    const struct snib__hold *hold);
int snib__arg_lease(struct snib__buf *out, const struct snib__engine *engine,
                    const struct snib__hold *hold);
/* Append the whole call; the script's index, or -1 when out of memory. */
int snib__name_script_encode(struct snib__buf *out, const struct snib__gate *gate,
                             const struct snib__name_script *call);
/* Append KEYS and ARGV of a renewal of locks with one key each: names, lease, owners. */
int snib__args_renew(struct snib__buf *out, int script, const struct snib__engine *engine,
                     struct snib__hold *const *holds, uint32_t n, int64_t lease_ms);

/* Whether a reply has one of these forms.  Any other answers another request: replies and requests are out of step. */
bool snib__reply_fits(uint8_t forms, const struct snib__value *reply, uint32_t n);
/* The same for a renewal of so many holds: an array of pairs, for some of them. */
bool snib__reply_fits_renewal(uint32_t holds, const struct snib__value *reply, uint32_t n);

/* Verdicts from replies of the usual forms. */
int64_t
snib__reply_number(const struct snib__engine *engine,
                   const struct snib__value *value); /* an integer or decimal text; otherwise 0 */
/* nil: granted; an integer: refused, the remaining ms */
void snib__verdict_left(const struct snib__engine *engine, const struct snib__hold *hold,
                        const struct snib__value *reply, uint32_t n, struct snib__verdict *verdict);
/* 0: not held; 1 + receivers: released; -1: released, the message was refused; -2: only a part was held */
void snib__verdict_receivers(const struct snib__engine *engine, const struct snib__hold *hold,
                             const struct snib__value *reply, uint32_t n,
                             struct snib__verdict *verdict);
/* 0: not held; 1: handed over; 2: released, but not handed over */
void snib__verdict_transfer(const struct snib__engine *engine, const struct snib__value *reply,
                            uint32_t n, struct snib__verdict *verdict);

#endif
