/* identity.c - a key that says who this client is, so that an operator finds the process behind a lock.
 *
 *     snib_client:{<client uuid>}   lines of text from core/api/identity.c, how many holds were lost, since when
 *                                   the oldest holds are held, and with the option debug where they were taken,
 *                                   and by whom; ends with the client's lease
 *
 * It is written only once something has been held for about as long as renewals are apart, and then as often as
 * leases are renewed, so it costs an acquire and a release nothing.  It is news for people: nothing depends on
 * it, nothing waits for it, and a server that refuses it is asked again a minute later.  The next round repeats
 * what was lost, and names the new node of its slot in a cluster.
 */
#include "engine/ask.h"
#include "engine/internal.h"
#include "engine/route.h"

#include <string.h>

#define IDENTITY_KEY "snib_client"
#define IDENTITY_LEASE_MIN (3000 * SNIB__MS) /* three questions for the server's time */
#define IDENTITY_AGAIN (60000 * SNIB__MS)    /* after a refusal */
#define IDENTITY_BYTES "2047"                /* the last byte that is read of another client's */
#define IDENTITY_ROOM 2048                   /* so many are */
#define IDENTITY_UUID 36
#define IDENTITY_LOCKS_MAX 4096 /* with more, no oldest holds are told: all of them are looked at */

enum { IDENTITY_WRITE, IDENTITY_ERASE }; /* requests */

static snib__time identity_lease(const struct snib__engine *e)
{
    return e->config.lease > IDENTITY_LEASE_MIN ? e->config.lease : IDENTITY_LEASE_MIN;
}

static size_t identity_key(char *out, const char *uuid)
{
    return snib__name_prefix(out, IDENTITY_KEY, uuid, IDENTITY_UUID);
}

static struct snib__node *identity_node(struct snib__engine *e)
{
    char key[SNIB__CHANNEL_MAX];
    return e->route->serves(e, key, identity_key(key, e->config.uuid));
}

uint32_t snib__engine_oldest(const struct snib__engine *e, const struct snib__hold **oldest)
{
    uint32_t ended = e->given_size; /* given.c remembers the gates of holds that have ended */
    uint32_t n = 0;
    if (e->gates_n > IDENTITY_LOCKS_MAX + ended || e->stats.held > IDENTITY_LOCKS_MAX)
        return 0;
    for (uint32_t i = 0; i < e->gates_cap; i++)
        for (const struct snib__gate *gate = e->gates[i]; gate; gate = gate->next)
            for (const struct snib__hold *hold = snib__gate_first(gate); hold;
                 hold = snib__gate_next(gate, hold)) {
                bool full = n == SNIB__OLDEST_MAX;
                if (hold->phase != SNIB__HELD || snib__outer_is(gate) ||
                    (gate->kind->traits & SNIB__UNOWNED) ||
                    (full && oldest[n - 1]->acquired_at <= hold->acquired_at))
                    continue;
                uint32_t at = full ? n - 1 : n++;
                for (; at > 0 && oldest[at - 1]->acquired_at > hold->acquired_at; at--)
                    oldest[at] = oldest[at - 1];
                oldest[at] = hold;
            }
    return n;
}

/* Append "word number" to a line. */
static size_t identity_number(char *out, const char *word, int64_t number)
{
    size_t n = strlen(word);
    memcpy(out, word, n);
    return n + snib__decimal(out + n, number);
}

/* Losses that were not the program's own doing. */
static uint64_t identity_losses(const struct snib__engine *e)
{
    return e->stats.lost_expired + e->stats.lost_taken + e->stats.lost_deleted +
           e->stats.lost_unreachable + e->stats.lost_max_hold + e->stats.lost_failover;
}

/* "held <number> <seconds since 1970>" for the oldest holds, one a line. */
static size_t identity_holds(const struct snib__engine *e, char *out)
{
    const struct snib__hold *oldest[SNIB__OLDEST_MAX];
    uint32_t holds = e->config.wall_offset ? snib__engine_oldest(e, oldest) : 0;
    size_t n = 0;
    for (uint32_t i = 0; i < holds; i++) {
        int64_t since = e->config.wall_offset + (int64_t)oldest[i]->acquired_at;
        n += identity_number(out + n, "held ", (int64_t)oldest[i]->number);
        n += identity_number(out + n, " ", since / (int64_t)(1000 * SNIB__MS));
        out[n++] = '\n';
    }
    return n;
}

static int identity_put(const struct snib__engine *e, struct snib__buf *out)
{
    char text[IDENTITY_ROOM];
    _Static_assert(SNIB__IDENTITY_MAX + 32 + SNIB__OLDEST_MAX * 48 <= sizeof text, "they fit");
    size_t n = strnlen(e->config.identity, SNIB__IDENTITY_MAX);
    memcpy(text, e->config.identity, n);
    if (identity_losses(e) > 0) {
        n += identity_number(text + n, "losses ", (int64_t)identity_losses(e));
        text[n++] = '\n';
    }
    n += identity_holds(e, text + n);
    const char *line = e->config.taken ? e->config.taken : "", *end;
    for (; (end = strchr(line, '\n')) && n + (size_t)(++end - line) <= sizeof text; line = end) {
        memcpy(text + n, line, (size_t)(end - line));
        n += (size_t)(end - line);
    }
    return snib__resp_arg(out, text, n);
}

int snib__identity_encode(const struct snib__engine *e, struct snib__buf *out, uint64_t what)
{
    char key[SNIB__CHANNEL_MAX];
    bool write = what == IDENTITY_WRITE;
    size_t n = identity_key(key, e->config.uuid);
    int bad = snib__resp_begin(out, write ? 5 : 2);
    bad |= snib__resp_arg(out, write ? "SET" : "DEL", 3);
    bad |= snib__resp_arg(out, key, n);
    if (write) {
        bad |= identity_put(e, out);
        bad |= snib__resp_arg(out, "PX", 2);
        bad |= snib__resp_arg_int(out, (int64_t)(identity_lease(e) / SNIB__MS));
    }
    return bad < 0 ? -1 : SNIB__NO_SCRIPT;
}

void snib__identity_lost(struct snib__engine *e, snib__time now)
{
    e->identity.lost |= now < e->identity.until;
}

snib__time snib__identity_deadline(const struct snib__engine *e)
{
    return e->identity.lost && !e->closed ? e->identity.next : SNIB__NEVER;
}

void snib__identity_tick(struct snib__engine *e, snib__time now)
{
    bool lost = e->identity.lost && now >= e->identity.next;
    bool due =
        (e->identity.due || (lost && now < e->identity.until)) && e->config.identity && !e->closed;
    e->identity.due = false;
    if (lost) /* once, whether it can be said now or not */
        e->identity.lost = false;
    if (!due || now < e->identity.next)
        return;
    struct snib__node *node = identity_node(e);
    if (!snib__node_ready(node)) {
        if (e->slots && node->addressed) /* else the locks need the node too */
            snib__node_want(e, node, now);
        return;
    }
    if (snib__node_send(e, SNIB__REQ_IDENTITY, node, IDENTITY_WRITE, now) < 0)
        return;
    e->identity.next = now + identity_lease(e) / 4; /* renewals are a third of a lease apart */
    e->identity.until = now + identity_lease(e);
}

void snib__engine_identify(struct snib__engine *e, const char *lines, snib__time now)
{
    e->config.identity = lines;
    if (now >= e->identity.until)
        return;
    e->identity.due = true;
    e->identity.next = now;
    snib__identity_tick(e, now);
}

void snib__identity_answer(struct snib__engine *e, struct snib__node *node, uint64_t what,
                           int32_t error, const char *text, snib__time now)
{
    if (!error || what != IDENTITY_WRITE)
        return;
    if (e->slots && snib__route_moved(text)) { /* the next round goes there */
        e->identity.next = 0;
        snib__route_wanted(e, node, now);
        return;
    }
    e->identity.next = now + IDENTITY_AGAIN;
    if (!e->identity.told)
        snib__engine_log(e, SNIB_LOG_INFO,
                         "the server does not accept this client's identity: nobody sees who holds "
                         "its locks (%s)%s",
                         snib_code_text(error),
                         error == SNIB_EPERM ? "; allow this user ~" IDENTITY_KEY
                                               ":* +set +del, or use the option identity=no"
                                             : "");
    e->identity.told = true;
}

void snib__identity_end(struct snib__engine *e, snib__time now)
{
    if (now >= e->identity.until)
        return;
    struct snib__node *node = identity_node(e);
    if (snib__node_ready(node))
        snib__node_send(e, SNIB__REQ_IDENTITY, node, IDENTITY_ERASE, now);
}

/* ---- other clients' ---- */

/* Whether it begins with the UUID of a Snib client: others have no such key. */
static bool identity_is_ours(const char *owner, size_t n)
{
    static const char form[] = "xxxxxxxx-xxxx-8xxx-xxxx-xxxxxxxxxxxx";
    if (n < IDENTITY_UUID || (n > IDENTITY_UUID && owner[IDENTITY_UUID] != ':'))
        return false;
    for (size_t i = 0; i < IDENTITY_UUID; i++)
        if (form[i] == 'x' ? !memchr("0123456789abcdef", owner[i], 16) : owner[i] != form[i])
            return false;
    return true;
}

struct snib__op *snib__engine_identity(struct snib__engine *e, const char *owner, size_t n,
                                       size_t cap, snib__time now, int32_t *out_code)
{
    char key[SNIB__CHANNEL_MAX];
    bool ours = identity_is_ours(owner, n);
    struct snib__op *op = snib__ask_carry(e, SNIB__OP_IDENTITY, NULL, key,
                                          ours ? identity_key(key, owner) : 0, now, out_code);
    if (!op || op->done)
        return op;
    op->asked->cap = cap;
    if (ours)
        return snib__ask_start(e, op, now);
    snib__op_done(e, op, snib__ask_lines(op->asked, "", 0));
    return op;
}

int snib__identity_ask(struct snib__buf *out, const struct snib__asked *asked)
{
    int bad = snib__resp_begin(out, 4);
    bad |= snib__resp_arg(out, "GETRANGE", 8);
    bad |= snib__resp_arg(out, asked->text, asked->text_len);
    bad |= snib__resp_arg(out, "0", 1);
    bad |= snib__resp_arg(out, IDENTITY_BYTES, strlen(IDENTITY_BYTES));
    return bad < 0 ? -1 : SNIB__NO_SCRIPT;
}
