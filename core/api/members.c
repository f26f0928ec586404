/* members.c - making a lock of other locks: snib_multi_new(), snib_quorum_new().
 *
 * Members are sorted in an order that is the same in every process: by server, in a cluster by
 * slot, then by name.  Processes that take locks in one order cannot deadlock.  Adjacent members of
 * one client (and slot) whose kinds one script can take form one part.  If there is only one part,
 * the lock is a gate of that client like any other, else a group (group.c).
 */
#include "api/group.h"
#include "api/uses.h"
#include "locks/group.h"
#include "locks/kind.h"
#include "net/slot.h"

#include <stdlib.h>
#include <string.h>

#define MEMBERS_TEXT_MAX 60000 /* of a gate's name, which is 16 bits long */
#define MEMBERS_QUORUM_MIN 3
#define MEMBERS_QUORUM_MAX 15

struct member {
    snib_lock *handle;
    struct snib__lock *lock;
    const char *name;
    size_t len;
    char server[SNIB__URL_SERVER]; /* the server its client connects to, with the database */
    char letter;                   /* of its kind in the script; 0: none */
    bool clustered;
    uint16_t slot; /* in a cluster; 0 elsewhere */
};

static char members_letter(int32_t kind)
{
    switch (kind) {
    case SNIB_MUTEX:
        return 'm';
    case SNIB_SPIN:
        return 's';
    case SNIB_FENCED:
        return 'f';
    case SNIB_READ:
        return 'r';
    case SNIB_WRITE:
        return 'w';
    default:
        return 0;
    }
}

static int members_by_name(const struct member *one, const struct member *other)
{
    int order = memcmp(one->name, other->name, one->len < other->len ? one->len : other->len);
    return order ? order : (one->len > other->len) - (one->len < other->len);
}

static int members_by_order(const void *a, const void *b)
{
    const struct member *one = a, *other = b;
    int order = strcmp(one->server, other->server);
    if (order == 0)
        order = one->slot - other->slot;
    if (order == 0)
        order = members_by_name(one, other);
    return order ? order : one->lock->kind - other->lock->kind;
}

/* One address in common is enough: URLs need not name all servers of a deployment. */
static bool members_same_node(const struct member *one, const struct member *other)
{
    const struct snib__url *a = &one->lock->client->url;
    const struct snib__url *b = &other->lock->client->url;
    if (a->topology != b->topology || (a->service && strcmp(a->service, b->service) != 0))
        return false;
    for (uint32_t i = 0; i < a->addresses_n; i++)
        for (uint32_t j = 0; j < b->addresses_n; j++)
            if (snib__address_equal(&a->addresses[i], &b->addresses[j]))
                return true;
    return false;
}

static int members_database(const struct member *member)
{
    return member->lock->client->url.database;
}

static void members_leave(struct member *members, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        snib__handle_put(members[i].handle);
    free(members);
}

/* Look up all handles; each has a reference then.  NULL: *out_code. */
static struct member *members_enter(snib_lock *const *locks, uint32_t n, snib_error *err,
                                    int32_t *out_code)
{
    struct member *members = calloc(n, sizeof *members);
    if (!members) {
        *out_code = snib__fail(err, SNIB_ENOMEM, 0, NULL);
        return NULL;
    }
    for (uint32_t i = 0; i < n; i++) {
        struct snib__lock *lock = snib__lock_enter(locks[i], err, out_code);
        if (!lock) {
            members_leave(members, i);
            return NULL;
        }
        members[i].handle = locks[i];
        members[i].lock = lock;
        members[i].name = snib__gate_name(lock->gate, &members[i].len);
        members[i].letter = members_letter(lock->kind);
        members[i].clustered = lock->client->url.topology == SNIB__CLUSTER;
        members[i].slot = members[i].clustered ? snib__slot(members[i].name, members[i].len) : 0;
        snib__url_server(&lock->client->url, members[i].server);
    }
    return members;
}

static int members_check(struct member *members, uint32_t n, bool quorum, uint32_t flags,
                         snib_error *err)
{
    for (uint32_t i = 0; i < n; i++) {
        struct snib__lock *lock = members[i].lock;
        snib__driver_enter(&lock->client->driver);
        bool stopped = lock->client->stopped;
        snib__driver_leave(&lock->client->driver);
        if (stopped)
            return snib__fail(err, SNIB_ECLOSED, 0, "a member's client is closed");
        /* A quorum node records its memory in a separate key, which is in another slot. */
        if (quorum && members[i].clustered && !(flags & SNIB_LOCK_NO_QUARANTINE))
            return snib__fail(
                err, SNIB_ENOTSUP, 0,
                "a cluster cannot prove how long its memory reaches back, so it cannot vote; "
                "use single servers, or switch the quarantine off");
        if (lock->kind == SNIB_SEMAPHORE || lock->kind == SNIB_LATCH || lock->kind >= SNIB__MULTI ||
            (quorum && lock->kind != SNIB_MUTEX))
            return snib__fail(err, SNIB_EINVAL, 0, "%s",
                              quorum ? "the members of a quorum must be mutexes"
                                     : "a lock of this kind cannot be a member of another");
    }
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t j = 0; j < i; j++) {
            bool same_node = members_same_node(&members[i], &members[j]);
            bool same_server =
                same_node && members_database(&members[i]) == members_database(&members[j]);
            bool same_name = members_by_name(&members[i], &members[j]) == 0;
            if (!quorum && same_server && same_name)
                return snib__fail(err, SNIB_EINVAL, 0, "the lock \"%.*s\" is given twice",
                                  (int)(members[i].len < 100 ? members[i].len : 100),
                                  members[i].name);
            if (quorum && same_node)
                return snib__fail(err, SNIB_EINVAL, 0,
                                  "two members of the quorum are on the same server");
            if (quorum && !same_name)
                return snib__fail(err, SNIB_EINVAL, 0,
                                  "the members of a quorum must have the same name");
        }
    return SNIB_OK;
}

/* The number of members, starting at `from`, that one script can take. */
static uint32_t members_run(const struct member *members, uint32_t n, uint32_t from)
{
    uint32_t to = from + 1;
    while (members[from].letter && to < n && members[to].letter &&
           members[to].lock->client == members[from].lock->client &&
           members[to].slot == members[from].slot)
        to++;
    return to - from;
}

/* The list of members as a gate's name, see locks/multi.c; its length, or 0: too long. */
static size_t members_text(const struct member *members, uint32_t n, char *text)
{
    size_t used = 0;
    for (uint32_t i = 0; i < n; i++) {
        if (used + members[i].len + 2 > MEMBERS_TEXT_MAX)
            return 0;
        text[used++] = members[i].letter ? members[i].letter : (char)('0' + members[i].lock->kind);
        memcpy(text + used, members[i].name, members[i].len);
        used += members[i].len;
        text[used++] = 0;
    }
    return used;
}

/* The same with their servers, for members of several clients. */
static size_t members_full_text(const struct member *members, uint32_t n, char *text)
{
    size_t used = members_text(members, n, text);
    for (uint32_t i = 0; used && i < n; i++) {
        size_t len = strlen(members[i].server) + 1;
        if (used + len > MEMBERS_TEXT_MAX)
            return 0;
        memcpy(text + used, members[i].server, len);
        used += len;
    }
    return used;
}

static struct snib__parts *members_parts(const struct member *members, uint32_t n, char *text,
                                         int32_t *out_code)
{
    struct snib__parts *parts = calloc(1, sizeof *parts + n * sizeof parts->part[0]);
    if (!parts)
        return NULL;
    atomic_store(&parts->refs, 1);
    for (uint32_t i = 0, run; i < n; i += run) {
        struct snib__client *client = members[i].lock->client;
        run = members_run(members, n, i);
        size_t used = run > 1 ? members_text(members + i, run, text) : 0;
        struct snib__gate *gate = used ? snib__lock_gate(client, SNIB__MULTI, text, used, out_code)
                                       : snib__lock_gate(client, members[i].lock->kind,
                                                         members[i].name, members[i].len, out_code);
        if (!gate) {
            snib__parts_unref(parts);
            return NULL;
        }
        snib__parts_add(parts, client, gate);
    }
    return parts;
}

static int64_t members_longest_lease(const struct member *members, uint32_t n)
{
    int64_t longest = 0;
    for (uint32_t i = 0; i < n; i++)
        if (members[i].lock->client->lease_ms > longest)
            longest = members[i].lock->client->lease_ms;
    return longest;
}

/* Create the lock of checked members: a gate of one client, or a group. */
static int members_lock(struct member *members, uint32_t n, struct snib__client *home,
                        const snib_lock_options *o, bool quorum, snib_lock **out_lock,
                        snib_error *err)
{
    int32_t code = SNIB_ENOMEM;
    char *text = malloc(MEMBERS_TEXT_MAX);
    struct snib__lock *lock = calloc(1, sizeof *lock);
    if (!text || !lock)
        goto fail;
    bool one = !quorum && members_run(members, n, 0) == n && members[0].letter;
    size_t used = one ? members_text(members, n, text) : members_full_text(members, n, text);
    if (used == 0) {
        code = snib__fail(err, SNIB_EINVAL, 0, "the members' names together are too long");
        goto fail;
    }
    if (quorum)
        text[0] = SNIB__QUORUM_LETTER;
    snib__lock_fill(lock, home, one ? SNIB__MULTI : SNIB__OUTER, o);
    lock->gate = snib__lock_gate(home, lock->kind, text, used, &code);
    if (!lock->gate)
        goto fail;
    if (!one && !(lock->parts = members_parts(members, n, text, &code)))
        goto fail;
    if (quorum) {
        lock->parts->majority = true;
        int64_t renewed_ms = members_longest_lease(members, n);
        int64_t vote_ms = o->lease_ms ? o->lease_ms : renewed_ms;
        lock->parts->renewed_ms = (uint32_t)renewed_ms;
        lock->parts->vote_ms = o->flags & SNIB_LOCK_NO_QUARANTINE ? 0 : (uint32_t)vote_ms;
    }
    free(text);
    return snib__lock_handle(lock, out_lock, err); /* owns the lock from here */
fail:
    if (lock && lock->gate) {
        snib__driver_enter(&home->driver);
        snib__gate_put(home->driver.engine, lock->gate);
        snib__driver_leave(&home->driver);
    }
    free(text);
    free(lock);
    return code == SNIB_EINVAL ? code : snib__fail(err, code, 0, NULL);
}

static int members_new(snib_lock *const *locks, uint32_t n, const snib_lock_options *options,
                       bool quorum, snib_lock **out_lock, snib_error *err)
{
    snib_lock_options o;
    int32_t code = SNIB_OK;
    if (!locks || !out_lock)
        return snib__fail_null(err, locks ? "out_lock" : "locks");
    if (quorum && (n < MEMBERS_QUORUM_MIN || n > MEMBERS_QUORUM_MAX))
        return snib__fail(err, SNIB_EINVAL, 0, "a quorum takes %d to %d members",
                          MEMBERS_QUORUM_MIN, MEMBERS_QUORUM_MAX);
    if (n < 1 || n > SNIB__GROUP_MAX)
        return snib__fail(err, SNIB_EINVAL, 0, "a multi lock takes 1 to %d members",
                          SNIB__GROUP_MAX);
    code = snib__lock_options(options, &o, err);
    if (!code)
        code = snib__lock_flags(o.flags, quorum ? SNIB_LOCK_NO_QUARANTINE : 0, err);
    if (code)
        return code;
    struct member *members = members_enter(locks, n, err, &code);
    if (!members)
        return code;
    struct snib__client *home = members[0].lock->client;
    code = members_check(members, n, quorum, o.flags, err);
    if (!code) {
        qsort(members, n, sizeof *members, members_by_order);
        code = members_lock(members, n, home, &o, quorum, out_lock, err);
    }
    members_leave(members, n);
    return code;
}

int snib_multi_new(snib_lock *const *locks, uint32_t n, const snib_lock_options *options,
                   snib_lock **out_lock, snib_error *err)
{
    int code = members_new(locks, n, options, false, out_lock, err);
    snib__use_forget_here();
    return code;
}

int snib_quorum_new(snib_lock *const *locks, uint32_t n, const snib_lock_options *options,
                    snib_lock **out_lock, snib_error *err)
{
    int code = members_new(locks, n, options, true, out_lock, err);
    snib__use_forget_here();
    return code;
}
