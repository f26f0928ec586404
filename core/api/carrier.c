/* carrier.c - what a group lock wishes for one of its members, carried out in the member's client. */
#include "api/carrier.h"

#include "api/say.h"

#include <stdio.h>
#include <string.h>

/* How long a member may wait; its first attempt has the patience of a single try.  While a majority is
 * being collected, its members never wait, because clients would wait for each other in a circle; a vote
 * that widens an existing majority waits until it is free. */
static snib__time carrier_wait(struct snib__carrier *c, snib__time now)
{
    pthread_mutex_lock(&c->mutex);
    bool held = c->group.phase == SNIB__GROUP_HELD;
    pthread_mutex_unlock(&c->mutex);
    if (c->parts->majority)
        return held ? SNIB__NEVER : 0;
    if (c->once || c->wait_until == SNIB__NEVER)
        return c->once ? 0 : SNIB__NEVER;
    return c->wait_until > now ? c->wait_until - now : 1;
}

/* A short wait has the patience of a single try, which the members of a lock of all share, because they are asked one
 * after another. */
snib__time snib__carrier_latest(const struct snib__carrier *c)
{
    return c->once || c->tried_until > c->wait_until ? c->tried_until : c->wait_until;
}

int32_t snib__carrier_late_code(const struct snib__carrier *c)
{
    return c->told && !c->once ? SNIB_TIMEDOUT : SNIB_EUNREACHABLE;
}

/* Whether a further member is asked too late, also because a lock of all has lost one and starts over. */
static int32_t carrier_too_late(struct snib__carrier *c, snib__time now)
{
    if (c->parts->majority || !c->tried || now < snib__carrier_latest(c))
        return SNIB_OK;
    pthread_mutex_lock(&c->mutex);
    int32_t code = snib__carrier_late_code(c);
    pthread_mutex_unlock(&c->mutex);
    return code;
}

/* Inside the member's client. */
static int32_t carrier_try(struct snib__carrier *c, uint32_t i, snib__time now)
{
    struct snib__client *client = c->parts->part[i].client;
    struct snib__engine *engine = client->driver.engine;
    int32_t code = SNIB_ECLOSED;
    struct snib__acquire how = {.wait = carrier_wait(c, now),
                                .lease = c->parts->majority ? c->lease : 0,
                                .permits = 1,
                                .vote_ms = c->parts->vote_ms,
                                .patient = !c->once};
    int32_t late = carrier_too_late(c, now);
    if (client->stopped || late)
        return client->stopped ? code : late;
    if (!c->tried)
        c->tried_until = now + (snib__time)c->home->options.try_timeout_ms * SNIB__MS;
    c->tried = true;
    if (!c->parts->majority)
        how.latest = snib__carrier_latest(c);
    if (snib__driver_start(&client->driver) != 0)
        return SNIB_ESYSTEM;
    struct snib__op *op = snib__engine_acquire(engine, c->parts->part[i].gate, &how, now, &code);
    if (!op)
        return code;
    snib__carrier_ref(c);
    op->sink = c;
    op->member = i + 1;
    op->within = client == c->home && !c->parts->majority; /* votes are counted separately */
    if (op->hold) {
        op->hold->sink = c;
        op->hold->tell = SNIB__TELL_CARRIER;
        op->hold->member = true;
    }
    pthread_mutex_lock(&c->mutex);
    c->members[i].op = op;
    c->members[i].lease = how.lease;
    pthread_mutex_unlock(&c->mutex);
    return SNIB_AGAIN;
}

static void carrier_drop(struct snib__carrier *c, uint32_t i, snib__time now)
{
    struct snib__engine *engine = c->parts->part[i].client->driver.engine;
    pthread_mutex_lock(&c->mutex);
    struct snib__hold *hold = c->members[i].hold;
    bool abandoned = c->abandoned;
    c->members[i].hold = NULL;
    pthread_mutex_unlock(&c->mutex);
    if (!hold)
        return;
    hold->sink = NULL;
    if (abandoned)
        snib__hold_abandon(engine, hold, now);
    snib__hold_drop(engine, hold, now); /* the server may still have a lost hold, too */
    snib__carrier_unref(c, 1);          /* never the last: the step has one */
}

static void carrier_cancel(struct snib__carrier *c, uint32_t i, snib__time now)
{
    pthread_mutex_lock(&c->mutex);
    struct snib__op *op = c->members[i].op;
    c->members[i].op = NULL; /* its result will be discarded */
    pthread_mutex_unlock(&c->mutex);
    if (op)
        snib__engine_cancel(c->parts->part[i].client->driver.engine, op, now);
}

static int32_t carrier_give(struct snib__carrier *c, uint32_t i, snib__time now)
{
    struct snib__engine *engine = c->parts->part[i].client->driver.engine;
    int32_t code = SNIB_LOST;
    struct snib__hold *hold = c->members[i].hold;
    struct snib__op *op = hold ? snib__engine_release(engine, hold, now, &code) : NULL;
    if (!op) {
        pthread_mutex_lock(&c->mutex);
        snib__carrier_lost_at_release(c, code, hold ? hold->reason : SNIB_REASON_NONE);
        pthread_mutex_unlock(&c->mutex);
        carrier_drop(c, i, now);
        return code;
    }
    snib__carrier_ref(c);
    op->sink = c;
    op->member = i + 1;
    pthread_mutex_lock(&c->mutex);
    c->members[i].op = op;
    pthread_mutex_unlock(&c->mutex);
    return SNIB_AGAIN;
}

/* Ask for another lease.  The answer to an earlier question is of no use any more. */
static int32_t carrier_extend(struct snib__carrier *c, uint32_t i, snib__time now)
{
    struct snib__client *client = c->parts->part[i].client;
    struct snib__engine *engine = client->driver.engine;
    struct snib__carrier_member *member = &c->members[i];
    int32_t code = SNIB_ECLOSED;
    pthread_mutex_lock(&c->mutex);
    struct snib__hold *hold = member->hold;
    struct snib__op *earlier = member->extending;
    member->extending = NULL;
    pthread_mutex_unlock(&c->mutex);
    if (earlier)
        snib__engine_cancel(engine, earlier, now);
    if (!hold || client->stopped)
        return code;
    struct snib__op *op = snib__engine_extend(engine, hold, c->wanted, now, &code);
    if (!op)
        return code;
    snib__carrier_ref(c);
    snib__extend_only_asks(op);
    op->sink = c;
    op->member = i + 1;
    pthread_mutex_lock(&c->mutex);
    member->extending = op;
    member->outdated = false;
    pthread_mutex_unlock(&c->mutex);
    return SNIB_AGAIN;
}

static void carrier_lease(struct snib__carrier *c, uint32_t i, snib__time now)
{
    pthread_mutex_lock(&c->mutex);
    struct snib__hold *hold = c->members[i].hold;
    snib__time leased_at = c->members[i].leased_at;
    pthread_mutex_unlock(&c->mutex);
    if (hold)
        snib__hold_extended(c->parts->part[i].client->driver.engine, hold, c->wanted, leased_at,
                            now);
}

/* The member is inside its client; SNIB_AGAIN: its result will come, or none is due. */
static int32_t carrier_do(struct snib__carrier *c, int wish, uint32_t i, snib__time now)
{
    switch (wish) {
    case SNIB__GROUP_TRY:
        return carrier_try(c, i, now);
    case SNIB__GROUP_GIVE:
        return carrier_give(c, i, now);
    case SNIB__GROUP_EXTEND:
        return carrier_extend(c, i, now);
    case SNIB__GROUP_DROP:
        carrier_drop(c, i, now);
        return SNIB_AGAIN;
    case SNIB__GROUP_CANCEL:
        carrier_cancel(c, i, now);
        return SNIB_AGAIN;
    default:
        carrier_lease(c, i, now);
        return SNIB_AGAIN;
    }
}

/* With the mutex: its turn came too late. */
static void carrier_unasked(struct snib__carrier *c, uint32_t i)
{
    char lock[SNIB__SAY_LOCK], text[SNIB__SAY_MEMBER];
    snib__say_lock(lock, sizeof lock, c->parts->part[i].gate);
    snprintf(text, sizeof text,
             "%s: no time was left to ask its server, because the others had taken so long; wait "
             "longer, or raise "
             "try_timeout",
             lock);
    c->members[i].why = strdup(text);
}

bool snib__carrier_wish(struct snib__carrier *c)
{
    uint32_t i;
    pthread_mutex_lock(&c->mutex);
    /* A loss is told at home before the members that are left are let go of: until then the hold is valid there.  An
     * attempt lets go of them first: whoever tries again at once is not refused by what is left of it. */
    bool untold = c->group.phase == SNIB__GROUP_ENDED && !c->finished && c->group.given_out;
    int wish = untold ? SNIB__GROUP_NOTHING : snib__group_wish(&c->group, &i);
    pthread_mutex_unlock(&c->mutex);
    if (wish == SNIB__GROUP_NOTHING)
        return false;
    struct snib__client *client = c->parts->part[i].client;
    snib__driver_enter(&client->driver);
    int32_t code = carrier_do(c, wish, i, snib__now());
    snib__driver_leave(&client->driver);
    if (code == SNIB_AGAIN)
        return true;
    pthread_mutex_lock(&c->mutex);
    snib__carrier_fail(c, i, code);
    if (wish == SNIB__GROUP_TRY && code == SNIB_EUNREACHABLE)
        carrier_unasked(c, i);
    if (wish == SNIB__GROUP_TRY)
        snib__group_member_done(&c->group, i, code, 0);
    else if (wish == SNIB__GROUP_EXTEND)
        snib__group_member_leased(&c->group, i, code);
    else
        snib__group_member_given(&c->group, i, code);
    c->again = true;
    pthread_mutex_unlock(&c->mutex);
    return true;
}
