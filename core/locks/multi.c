/* multi.c - several locks of one client as one, taken and released by one command; with
 * core/lua/multi_*.lua, and mutexes_*.lua for the usual case that all are mutexes, which takes half
 * the keys and time.
 *
 * The gate's name is the list of members: for each a byte (m mutex, s spin, f fenced, r read, w
 * write), the name, and a NUL.  The keys are those of the members' own kinds, all with one owner.
 */
#include "engine/internal.h"
#include "locks/mutex.h"
#include "locks/rw.h"
#include "net/script.h"

#include <string.h>

#define MULTI_MAX 100

struct multi_member {
    char kind;
    const char *name;
    size_t len;
};

struct multi_list {
    uint32_t n;
    bool mutexes; /* all members are mutexes: their own scripts need one key each, and less time */
    char kinds[MULTI_MAX];
    struct multi_member members[MULTI_MAX];
};

static void multi_members(const struct snib__gate *gate, struct multi_list *list)
{
    const char *at = gate->name, *end = gate->name + gate->name_len;
    list->mutexes = true;
    for (list->n = 0; at < end && list->n < MULTI_MAX; list->n++) {
        size_t len = strnlen(at + 1, (size_t)(end - at - 1));
        list->kinds[list->n] = *at;
        list->mutexes = list->mutexes && *at == 'm';
        list->members[list->n] = (struct multi_member){*at, at + 1, len};
        at += len + 2;
    }
}

static size_t multi_member_channel(char *out, const struct multi_member *member)
{
    bool rw = member->kind == 'r' || member->kind == 'w';
    return snib__name_prefix(out, rw ? SNIB__RW_CHANNEL : SNIB__MUTEX_CHANNEL, member->name,
                             member->len);
}

static size_t multi_channel(char *out, const struct snib__engine *engine,
                            const struct snib__gate *gate, uint32_t blocker)
{
    (void)engine;
    struct multi_list list;
    multi_members(gate, &list);
    return multi_member_channel(out, &list.members[blocker < list.n ? blocker : 0]);
}

/* Scripts get the same number of keys for every member: the lock's name fills the gaps. */
static int multi_own_key(struct snib__buf *out, const struct snib__engine *engine,
                         const struct snib__hold *hold, const struct multi_member *member)
{
    if (member->kind == 'r')
        return snib__rw_arg_lease_key(out, engine, hold, member->name, member->len);
    return snib__resp_arg(out, member->name, member->len);
}

static int multi_prefixed(struct snib__buf *out, const char *prefix,
                          const struct multi_member *member)
{
    char key[SNIB__CHANNEL_MAX];
    return snib__resp_arg(out, key, snib__name_prefix(key, prefix, member->name, member->len));
}

static int multi_acquire_keys(struct snib__buf *out, const struct snib__engine *engine,
                              const struct snib__hold *hold, const struct multi_member *member)
{
    if (snib__resp_arg(out, member->name, member->len) < 0 ||
        (member->kind == 'f' ? multi_prefixed(out, SNIB__TOKEN_KEY, member)
                             : multi_own_key(out, engine, hold, member)) < 0)
        return -1;
    if (member->kind == 'r')
        return multi_prefixed(out, SNIB__RW_MARK, member);
    return snib__resp_arg(out, member->name, member->len);
}

static int multi_names(struct snib__buf *out, const struct multi_list *list)
{
    for (uint32_t i = 0; i < list->n; i++)
        if (snib__resp_arg(out, list->members[i].name, list->members[i].len) < 0)
            return -1;
    return 0;
}

static int multi_channels(struct snib__buf *out, const struct multi_list *list)
{
    for (uint32_t i = 0; i < list->n; i++) {
        char channel[SNIB__CHANNEL_MAX];
        if (snib__resp_arg(out, channel, multi_member_channel(channel, &list->members[i])) < 0)
            return -1;
    }
    return 0;
}

static int multi_acquire_mutexes(struct snib__buf *out, const struct snib__engine *engine,
                                 const struct snib__hold *hold, const struct multi_list *list)
{
    if (snib__script_begin(out, SNIB__SCRIPT_MUTEXES_ACQUIRE, list->n, list->n + 2) < 0 ||
        multi_names(out, list) < 0 || snib__arg_owner(out, engine, hold) < 0 ||
        snib__arg_lease(out, engine, hold) < 0)
        return -1;
    return SNIB__SCRIPT_MUTEXES_ACQUIRE;
}

static int multi_release_mutexes(struct snib__buf *out, const struct snib__engine *engine,
                                 const struct snib__hold *hold, const struct multi_list *list)
{
    uint32_t n = list->n;
    if (snib__script_begin(out, SNIB__SCRIPT_MUTEXES_RELEASE, n, 2 * n + 1) < 0 ||
        multi_names(out, list) < 0 || snib__arg_owner(out, engine, hold) < 0 ||
        multi_channels(out, list) < 0)
        return -1;
    return SNIB__SCRIPT_MUTEXES_RELEASE;
}

static int multi_acquire(struct snib__buf *out, const struct snib__engine *engine,
                         const struct snib__hold *hold)
{
    struct multi_list list;
    multi_members(hold->gate, &list);
    if (list.mutexes)
        return multi_acquire_mutexes(out, engine, hold, &list);
    if (snib__script_begin(out, SNIB__SCRIPT_MULTI_ACQUIRE, 3 * list.n, 3 * list.n + 3) < 0)
        return -1;
    for (uint32_t i = 0; i < list.n; i++)
        if (multi_acquire_keys(out, engine, hold, &list.members[i]) < 0)
            return -1;
    if (snib__arg_owner(out, engine, hold) < 0 || snib__arg_lease(out, engine, hold) < 0 ||
        snib__resp_arg(out, list.kinds, list.n) < 0)
        return -1;
    return SNIB__SCRIPT_MULTI_ACQUIRE;
}

static int multi_hold_keys(struct snib__buf *out, const struct snib__engine *engine,
                           const struct snib__hold *hold, const struct multi_list *list)
{
    for (uint32_t i = 0; i < list->n; i++)
        if (snib__resp_arg(out, list->members[i].name, list->members[i].len) < 0 ||
            multi_own_key(out, engine, hold, &list->members[i]) < 0)
            return -1;
    return 0;
}

static int multi_release(struct snib__buf *out, const struct snib__engine *engine,
                         const struct snib__hold *hold)
{
    struct multi_list list;
    multi_members(hold->gate, &list);
    if (list.mutexes)
        return multi_release_mutexes(out, engine, hold, &list);
    if (snib__script_begin(out, SNIB__SCRIPT_MULTI_RELEASE, 2 * list.n, 3 * list.n + 2) < 0 ||
        multi_hold_keys(out, engine, hold, &list) < 0 || snib__arg_owner(out, engine, hold) < 0 ||
        snib__resp_arg(out, list.kinds, list.n) < 0 || multi_channels(out, &list) < 0)
        return -1;
    return SNIB__SCRIPT_MULTI_RELEASE;
}

static int multi_renew(struct snib__buf *out, const struct snib__engine *engine,
                       struct snib__hold *const *holds, uint32_t n, int64_t lease_ms)
{
    struct multi_list list;
    uint32_t members = 0;
    for (uint32_t i = 0; i < n; i++) {
        multi_members(holds[i]->gate, &list);
        members += list.n;
    }
    if (snib__script_begin(out, SNIB__SCRIPT_MULTI_RENEW, 2 * members, 2 * members + 2 * n + 1) < 0)
        return -1;
    for (uint32_t i = 0; i < n; i++) {
        multi_members(holds[i]->gate, &list);
        if (multi_hold_keys(out, engine, holds[i], &list) < 0)
            return -1;
    }
    if (snib__resp_arg_int(out, lease_ms) < 0)
        return -1;
    for (uint32_t i = 0; i < n; i++) {
        multi_members(holds[i]->gate, &list);
        if (snib__arg_owner(out, engine, holds[i]) < 0 ||
            snib__resp_arg(out, list.kinds, list.n) < 0)
            return -1;
    }
    return SNIB__SCRIPT_MULTI_RENEW;
}

/* A spin lock's release publishes nothing. */
static void multi_acquired(const struct snib__engine *engine, const struct snib__hold *hold,
                           const struct snib__value *reply, uint32_t n,
                           struct snib__verdict *verdict)
{
    (void)engine;
    verdict->yes = reply->type == SNIB__RESP_NIL;
    verdict->left_ms = -1;
    if (reply->type == SNIB__RESP_ARRAY && n >= 3) {
        struct multi_list list;
        multi_members(hold->gate, &list);
        verdict->blocker = (uint32_t)reply[1].integer;
        verdict->left_ms = reply[2].integer;
        verdict->foreign = verdict->blocker < list.n && list.kinds[verdict->blocker] == 's';
    }
}

/* 1: all members were held, 2: some, 0: none; negative: a message was refused.  Only the first is a proper release. */
static void multi_released(const struct snib__engine *engine, const struct snib__hold *hold,
                           const struct snib__value *reply, uint32_t n,
                           struct snib__verdict *verdict)
{
    (void)engine, (void)hold, (void)n;
    int64_t held = reply->type == SNIB__RESP_INTEGER ? reply->integer : 0;
    verdict->unheard = held == -1 || held == -2;
    verdict->partly = held == 2 || held == -2;
    verdict->yes = held == 1 || held == -1;
}

const struct snib__lock_kind snib__multi = {
    .kind = SNIB__MULTI,
    .discipline = SNIB__EXCLUSIVE,
    .traits = SNIB__NO_HANDOVER | SNIB__MANY_MESSAGES,
    .acquires = SNIB__NIL | SNIB__LIST_2,
    .releases = SNIB__NUMBER,
    .acquire = multi_acquire,
    .release = multi_release,
    .renew = multi_renew,
    .channel = multi_channel,
    .acquired = multi_acquired,
    .released = multi_released,
};
