/* given.c - recent releases are repeated where another server has taken over.
 *
 * The new server may not have received the release, and would then keep the lock, held by no
 * client, until the lease ends.  So the client remembers the last numbers it released, and repeats each
 * release at every server that serves the name after the one that replied.  A number is never used
 * twice, so this is harmless where the release had arrived.
 *
 * The same goes for holds that were lost because a server did not have them: the server before it, or a
 * replica, may still have them, and take over.  They are noted when they are lost, but not released while the
 * program has them: it may still be at work.
 *
 * They are in a ring, from the oldest on, and count until their leases end: nobody can say how long it
 * takes to find another master, but meanwhile no release is confirmed.  A client that releases more of
 * them than the ring has places within the lag of a replica gets a larger ring, up to a limit.
 *
 * They are repeated from the newest on, which is the likeliest to be missing, and only so many at a time: a
 * server that is not ready for them would otherwise be asked by all of them again and again.
 */
#include "engine/internal.h"

#include <stdlib.h>

#define GIVEN_FEW 128
#define GIVEN_MANY 8192
#define GIVEN_FLIGHT 64                 /* repeated at a time */
#define GIVEN_LATELY (10000 * SNIB__MS) /* a replica that is promoted is seldom further behind */

struct snib__given {
    struct snib__gate *gate;       /* NULL: unused */
    const struct snib__node *node; /* NULL: none was told */
    uint32_t identity;             /* of the last server that was told */
    uint32_t lease_ms : 27;
    uint32_t kept : 1; /* lost, and the program is not done with it */
    uint32_t options : 4;
    uint64_t number;
    snib__time at;      /* when it was noted */
    snib__time told_at; /* when that server was told */
    snib__time until;   /* the lease has ended everywhere */
    int64_t fencing;    /* or its permits */
};

/* A vote for a quorum does not count: another server grants none before the leases of all votes have ended.  Nor does a
 * hold whose number another one has now. */
static bool given_counts(const struct snib__hold *hold)
{
    bool vote = hold->gate->kind->kind == SNIB_MUTEX && hold->vote_ms > 0;
    return !hold->repeated && !vote && !snib__outer_is(hold->gate) &&
           !(hold->gate->kind->traits & (SNIB__UNOWNED | SNIB__NO_HOLD)) && !hold->passed;
}

static void given_forget(struct snib__engine *e, struct snib__given *given)
{
    struct snib__gate *gate = given->gate;
    given->gate = NULL;
    if (gate)
        snib__gate_put(e, gate);
}

static bool given_grow(struct snib__engine *e)
{
    uint32_t size = e->given ? 2 * e->given_size : GIVEN_FEW;
    struct snib__given *more = calloc(size, sizeof *more);
    if (!more)
        return false;
    for (uint32_t i = 0; i < e->given_size; i++)
        more[i] = e->given[(e->given_next + i) % e->given_size];
    free(e->given);
    e->given = more;
    e->given_next = e->given_size;
    e->given_left += e->given_left ? e->given_size : 0; /* the new places count as the oldest */
    e->given_size = size;
    return true;
}

/* A place for one more, or NULL: that of the oldest, unless it is recent. */
static struct snib__given *given_place(struct snib__engine *e, snib__time now)
{
    const struct snib__given *oldest = e->given ? &e->given[e->given_next] : NULL;
    bool recent = oldest && oldest->gate && now < oldest->until && now < oldest->at + GIVEN_LATELY;
    if ((!oldest || (recent && e->given_size < GIVEN_MANY)) && !given_grow(e) && !oldest)
        return NULL;
    struct snib__given *given = &e->given[e->given_next];
    e->given_next = e->given_next + 1 < e->given_size ? e->given_next + 1 : 0;
    return given;
}

/* It stays in the ring: a third server may be further behind than the second. */
static void given_again(struct snib__engine *e, struct snib__given *given, snib__time now)
{
    struct snib__hold past = {.gate = given->gate,
                              .number = given->number,
                              .lease_ms = given->lease_ms,
                              .fencing = given->fencing,
                              .options = given->options,
                              .deadline = given->until};
    struct snib__hold *again = snib__hold_again(e, &past);
    if (!again)
        return;
    given->node = given->gate->node;
    given->identity = given->node->identity;
    given->told_at = now;
    again->repeated = 1;
    e->given_flight++;
    snib__gate_release(e, again, now);
}

/* Whether another server serves its name since, or the same one again, and has to be told. */
static bool given_is_due(const struct snib__engine *e, const struct snib__given *given)
{
    const struct snib__node *node = given->gate->node;
    bool same = node == given->node && node->identity == given->identity &&
                !snib__gate_moved(e, given->gate, given->told_at);
    return !same && !given->kept;
}

/* Tell that server, once it is connected; nothing else may need it. */
static void given_visit(struct snib__engine *e, struct snib__given *given, snib__time now)
{
    struct snib__node *node = given->gate ? given->gate->node : NULL;
    if (node && now >= given->until)
        given_forget(e, given);
    else if (node && given_is_due(e, given) && snib__node_ready(node))
        given_again(e, given, now);
    else if (node && given_is_due(e, given) && !e->closed)
        snib__node_want(e, node, now);
}

bool snib__given_waits(const struct snib__engine *e, const struct snib__node *node, snib__time now)
{
    for (uint32_t i = 0; i < e->given_size && !e->closed; i++) {
        const struct snib__given *given = &e->given[i];
        if (given->gate && given->gate->node == node && now < given->until &&
            given_is_due(e, given))
            return true;
    }
    return false;
}

/* A failover that has lost a fair hold, or a restart with the data of a second ago, may have brought
 * back the place that it was granted, and the very server that does not have the hold may grant it
 * again. */
static bool given_may_return(const struct snib__hold *hold)
{
    return hold->gate->kind->discipline == SNIB__QUEUED;
}

static void given_add(struct snib__engine *e, const struct snib__hold *hold, bool kept,
                      snib__time now)
{
    struct snib__given *given = given_counts(hold) ? given_place(e, now) : NULL;
    if (!given)
        return;
    bool back = kept && given_may_return(hold);
    given_forget(e, given);
    snib__gate_ref(hold->gate);
    *given = (struct snib__given){
        .gate = hold->gate,
        .node = back ? NULL : hold->gate->node,
        .identity = hold->gate->node->identity,
        .lease_ms = hold->lease_ms,
        .kept = kept,
        .number = hold->number,
        .at = now,
        .told_at = now - 1, /* a move that is heard of with the reply came later */
        .until = snib__release_end(e, hold),
        .fencing = hold->fencing,
        .options = hold->options};
}

void snib__given_note(struct snib__engine *e, const struct snib__hold *hold, snib__time now)
{
    given_add(e, hold, false, now);
}

void snib__given_lost(struct snib__engine *e, const struct snib__hold *hold, snib__time now)
{
    given_add(e, hold, true, now);
}

void snib__given_done(struct snib__engine *e, const struct snib__hold *hold, snib__time now)
{
    for (uint32_t i = 0; i < e->given_size; i++) { /* from the newest on */
        uint32_t back = e->given_next + e->given_size - 1 - i;
        struct snib__given *given = &e->given[back % e->given_size];
        if (given->gate != hold->gate || !given->kept || given->number != hold->number)
            continue;
        given->kept = 0;
        given_visit(e, given, now);
        return;
    }
}

static void given_more(struct snib__engine *e, snib__time now)
{
    while (e->given_left && e->given_flight < GIVEN_FLIGHT) {
        uint32_t next =
            e->given_next + --e->given_left; /* none, but the oldest, is overwritten meanwhile */
        given_visit(e, &e->given[next % e->given_size], now);
    }
}

void snib__given_redo(struct snib__engine *e, snib__time now)
{
    e->given_left = e->given_size;
    given_more(e, now);
}

void snib__given_told(struct snib__engine *e, snib__time now)
{
    e->given_flight--;
    given_more(e, now);
}

void snib__given_end(struct snib__engine *e)
{
    for (uint32_t i = 0; i < e->given_size; i++)
        given_forget(e, &e->given[i]);
    free(e->given);
    e->given = NULL;
    e->given_size = e->given_next = e->given_left = 0;
}
