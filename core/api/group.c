/* group.c - multi and quorum locks over several clients: carries out what locks/group.c decides.
 *
 *     home client: the group's operation and hold, seen by the caller         \  one carrier for
 *     member clients: an operation and a hold each, with the carrier as sink  /  each acquisition
 *
 * A thread inside a client that has news for a carrier records them under the carrier's mutex,
 * lists the carrier, and steps it once it is outside: a step enters one client at a time and holds
 * no other mutex meanwhile.  Only one thread steps a carrier at a time; others leave it a flag.  If that thread is
 * stopped in between, the carrier stands still: what it holds is lost by its deadline, and told.  To leave all steps to
 * threads that run no user code would cost a wake-up for each member of each lock.
 */
#include "api/carrier.h"

#include "api/say.h"
#include "locks/kind.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CARRIER_REFILL (100 * SNIB__MS) /* between requests for missing votes */

/* ---- life ---- */

static void parts_ref(struct snib__parts *parts)
{
    atomic_fetch_add(&parts->refs, 1);
}

void snib__parts_add(struct snib__parts *parts, struct snib__client *client,
                     struct snib__gate *gate)
{
    snib__client_ref(client);
    client->grouped = true;
    parts->part[parts->n++] = (struct snib__part){client, gate};
}

void snib__parts_unref(struct snib__parts *parts)
{
    if (atomic_fetch_sub(&parts->refs, 1) != 1)
        return;
    for (uint32_t i = 0; i < parts->n; i++) {
        struct snib__client *client = parts->part[i].client;
        if (!snib__client_forked(client)) {
            snib__driver_enter(&client->driver);
            snib__gate_put(client->driver.engine, parts->part[i].gate);
            snib__driver_leave(&client->driver);
        }
        snib__client_unref(client);
    }
    free(parts);
}

void snib__carrier_ref(struct snib__carrier *c)
{
    atomic_fetch_add(&c->refs, 1);
}

void snib__carrier_unref(struct snib__carrier *c, uint32_t n)
{
    if (atomic_fetch_sub(&c->refs, n) != n)
        return;
    struct snib__client *home = c->home;
    for (uint32_t i = 0; i < c->parts->n; i++)
        free(c->members[i].why);
    snib__parts_unref(c->parts);
    pthread_mutex_destroy(&c->mutex);
    free(c);
    snib__client_unref(home);
}

/* Inside: list the carrier, to be stepped by the thread that leaves this client; the step also
 * drops `debts` references. */
static void carrier_list(struct snib__driver *driver, struct snib__carrier *c, uint32_t debts)
{
    pthread_mutex_lock(&c->mutex);
    bool listed = c->listed;
    c->listed = true;
    c->debts += debts;
    pthread_mutex_unlock(&c->mutex);
    if (listed)
        return;
    snib__carrier_ref(c);
    c->next = driver->carriers;
    driver->carriers = c;
}

/* Inside: no other thread knows the carrier, and none of the references it drops is the last. */
static void carrier_discard(struct snib__carrier *c)
{
    atomic_fetch_sub(&c->parts->refs, 1);
    snib__client_unref(c->home);
    pthread_mutex_destroy(&c->mutex);
    free(c);
}

struct snib__op *snib__carrier_acquire(struct snib__lock *lock, const struct snib__acquire *how,
                                       snib__time now, int32_t *out_code)
{
    struct snib__parts *parts = lock->parts;
    struct snib__carrier *c = calloc(1, sizeof *c + parts->n * sizeof c->members[0]);
    *out_code = SNIB_ENOMEM;
    if (!c)
        return NULL;
    if (pthread_mutex_init(&c->mutex, NULL) != 0) {
        free(c);
        return NULL;
    }
    parts_ref(parts);
    snib__client_ref(lock->client);
    c->parts = parts;
    c->home = lock->client;
    c->once = how->wait == 0;
    c->wait_until = c->once || how->wait == SNIB__NEVER ? SNIB__NEVER : now + how->wait;
    c->lease = c->wanted = how->lease;
    c->asked_at = now;
    atomic_store(&c->refs, 1);
    snib__group_begin(&c->group, parts->majority, c->once, parts->n);
    struct snib__acquire outer = *how;
    outer.outer = &c->outer;
    outer.wait = SNIB__NEVER; /* only the carrier knows what to say at the end of the wait */
    struct snib__op *op =
        snib__engine_acquire(lock->client->driver.engine, lock->gate, &outer, now, out_code);
    if (!c->outer.hold) /* re-entered, out of memory, closed: nothing was begun */
        carrier_discard(c);
    return op;
}

bool snib__carrier_allows(const struct snib__hold *hold, int64_t lease_ms)
{
    const struct snib__parts *parts =
        hold->outer ? ((const struct snib__carrier *)hold->outer)->parts : NULL;
    int64_t wanted = parts && lease_ms == 0 ? parts->renewed_ms : lease_ms;
    return !parts || parts->vote_ms == 0 || wanted <= parts->vote_ms;
}

struct snib__carrier *snib__carrier_of(const struct snib__hold *hold)
{
    bool carried = snib__gate_kind(hold->gate) == SNIB__OUTER;
    struct snib__carrier *c = carried ? (struct snib__carrier *)hold->outer : NULL;
    if (c)
        snib__carrier_ref(c);
    return c;
}

bool snib__carrier_doubts(struct snib__carrier *c)
{
    uint32_t valid = 0;
    for (uint32_t i = 0; i < c->parts->n; i++) {
        struct snib__client *client = c->parts->part[i].client;
        snib__driver_enter(&client->driver);
        pthread_mutex_lock(&c->mutex);
        const struct snib__hold *hold = c->members[i].hold;
        pthread_mutex_unlock(&c->mutex);
        valid +=
            hold && snib__hold_state(client->driver.engine, hold, snib__now()) == SNIB_HOLD_VALID;
        snib__driver_leave(&client->driver);
    }
    bool doubted = valid < c->group.need;
    snib__carrier_unref(c, 1);
    return doubted;
}

/* ---- members ---- */

void snib__carrier_fail(struct snib__carrier *c, uint32_t i, int32_t code)
{
    struct snib__carrier_member *member = &c->members[i];
    free(member->why);
    member->why = NULL;
    member->failure = code < 0 ? code : 0;
    member->os_error = 0;
    member->server = 0;
}

void snib__carrier_lost_at_release(struct snib__carrier *c, int32_t code, int32_t reason)
{
    if (code == SNIB_LOST && c->group.reason == 0)
        c->group.reason = reason;
}

/* Inside the member's client, with the mutex: keep what the caller should know if this is why the whole fails.  The
 * members of a quorum have its own name. */
static void carrier_note(struct snib__carrier *c, uint32_t i, const struct snib__op *op,
                         int32_t code)
{
    char text[SNIB__SAY_MEMBER];
    const struct snib__told told = {code,      op->os_error, op->cause,       op->reason, op->words,
                                    op->where, op->unserved, op->unconfirmed, false,      0};
    struct snib__carrier_member *member = &c->members[i];
    snib__carrier_fail(c, i, code);
    if (code >= 0)
        return;
    member->os_error = op->os_error;
    member->server = snib__say(text, sizeof text, c->parts->part[i].client,
                               c->parts->majority ? NULL : op->gate, &told);
    member->why = strdup(text);
}

/* Inside the member's client, with the mutex: the result of a member's attempt.  In a lock of all, one that had no whole
 * try to answer, because the others had taken so long, is not to blame. */
static int32_t carrier_tried(const struct snib__carrier *c, const struct snib__op *op)
{
    snib__time now = snib__now(), whole = (snib__time)c->home->options.try_timeout_ms * SNIB__MS;
    bool brief = !c->parts->majority && now >= snib__carrier_latest(c) && now < op->started + whole;
    bool silent = op->code == SNIB_EUNREACHABLE || op->code == SNIB_ECONNECT;
    return silent && brief && snib__carrier_late_code(c) > 0 ? SNIB_TIMEDOUT : op->code;
}

/* Inside the member's client. */
void snib__carrier_done(struct snib__driver *driver, struct snib__op *op)
{
    struct snib__carrier *c = op->sink;
    uint32_t i = op->member - 1;
    struct snib__hold *unwanted = NULL;
    pthread_mutex_lock(&c->mutex);
    struct snib__carrier_member *member = &c->members[i];
    bool extends = op->kind == SNIB__OP_EXTEND;
    struct snib__op **place = extends ? &member->extending : &member->op;
    bool current = *place == op;
    if (current)
        *place = NULL;
    current = current && !(extends && member->outdated);
    if (current || op->kind == SNIB__OP_RELEASE)
        carrier_note(c, i, op, op->code);
    if (extends && current) {
        member->leased_at = op->code == SNIB_OK ? snib__extend_sent_at(op) : 0;
        snib__group_member_leased(&c->group, i, op->code);
    } else if (op->kind == SNIB__OP_RELEASE) {
        unwanted = member->hold;
        member->hold = NULL;
        snib__carrier_lost_at_release(c, op->code, op->reason);
        snib__group_member_given(&c->group, i, op->code);
    } else if (op->code == SNIB_OK && !current) {
        unwanted = op->hold;
    } else if (current) {
        member->hold = op->code == SNIB_OK ? op->hold : NULL;
        member->leased_at =
            0; /* what was granted to an earlier hold of the member counts no more */
        if (member->hold)
            snib__carrier_ref(c);
        int32_t code = carrier_tried(c, op);
        c->told |=
            op->told || (op->code != SNIB_OK && snib__op_told(op)); /* not by its own grant */
        snib__group_member_done(&c->group, i, code, op->hold ? op->hold->deadline : 0);
        if (c->parts->majority && member->lease != c->lease)
            snib__group_member_behind(&c->group, i);
    }
    pthread_mutex_unlock(&c->mutex);
    if (unwanted) {
        unwanted->sink = NULL;
        unwanted->tell = 0;
        snib__hold_drop(driver->engine, unwanted, snib__now());
    }
    bool hold_too = op->kind == SNIB__OP_RELEASE && unwanted;
    snib__op_free(driver->engine, op);
    carrier_list(driver, c, 1 + hold_too);
}

void snib__carrier_lost(struct snib__driver *driver, struct snib__hold *hold)
{
    struct snib__carrier *c = hold->sink;
    pthread_mutex_lock(&c->mutex);
    for (uint32_t i = 0; i < c->parts->n; i++)
        if (c->members[i].hold == hold)
            snib__group_member_lost(&c->group, i, hold->reason);
    c->told |= hold->reason == SNIB_REASON_TAKEN;
    c->refill_at = 0;
    pthread_mutex_unlock(&c->mutex);
    carrier_list(driver, c, 0);
}

const void *snib__carrier_outer(const void *sink)
{
    return ((const struct snib__carrier *)sink)->outer.hold;
}

void snib__carrier_news(struct snib__driver *driver, struct snib__outer *outer)
{
    carrier_list(driver, (struct snib__carrier *)outer, 0);
}

/* ---- the caller's side ---- */

/* Read the members' current deadlines, which renewals have moved, and how durable their grants are. */
static void carrier_look(struct snib__carrier *c)
{
    c->replicas = 127;
    for (uint32_t i = 0; i < c->parts->n; i++) {
        struct snib__client *client = c->parts->part[i].client;
        snib__driver_enter(&client->driver);
        pthread_mutex_lock(&c->mutex);
        struct snib__hold *hold = c->members[i].hold;
        if (hold)
            snib__group_member_extended(&c->group, i, hold->deadline);
        if (hold && hold->replicas < c->replicas)
            c->replicas = hold->replicas;
        pthread_mutex_unlock(&c->mutex);
        snib__driver_leave(&client->driver);
    }
}

/* A fixed lease of a multi lock: the watchdog renewed the members while they were collected; the
 * lease begins now.  What is safe of it grows as the servers confirm it. */
static void carrier_fix_leases(struct snib__carrier *c)
{
    bool needed = c->lease && !c->parts->majority;
    if (needed)
        c->ends = snib__lease_end(snib__now(), c->lease);
    for (uint32_t i = 0; needed && i < c->parts->n; i++) {
        struct snib__client *client = c->parts->part[i].client;
        snib__driver_enter(&client->driver);
        if (c->members[i].hold)
            snib__hold_fix(client->driver.engine, c->members[i].hold, c->lease, snib__now());
        snib__driver_leave(&client->driver);
    }
}

/* A majority has its limit as a whole: what may be said at the end of the wait depends on how many have
 * answered. */
static void carrier_limit(struct snib__carrier *c, snib__time now)
{
    bool overdue = c->tried && now >= c->wait_until;
    if (overdue)
        snib__group_overdue(&c->group);
    bool seeks = c->parts->majority && c->group.phase <= SNIB__GROUP_PAUSING;
    c->silent = seeks && overdue && now >= c->tried_until;
    if (c->silent && c->inquired)
        snib__group_silent(&c->group);
}

/* When to look at it again, although nothing has happened. */
static snib__time carrier_next(const struct snib__carrier *c, snib__time now)
{
    snib__time next = now < c->wait_until || !c->tried ? c->wait_until : c->tried_until;
    if (c->pause_until && c->pause_until < next)
        next = c->pause_until;
    if (c->give_up_at && c->give_up_at < next)
        next = c->give_up_at;
    return next;
}

/* Take over what the caller's side has come to: given up, released, or at its own time limit. */
static void carrier_hear(struct snib__carrier *c, snib__time now)
{
    struct snib__group *group = &c->group;
    c->abandoned = c->outer.abandoned;
    carrier_limit(c, now);
    if (c->outer.ended)
        snib__group_abandon(group);
    else if (snib__outer_releasing(&c->outer))
        snib__group_release(group);
    else if (!snib__outer_wanted(&c->outer) &&
             (group->phase <= SNIB__GROUP_PAUSING || c->outer.hold->phase == SNIB__TRYING))
        snib__group_abandon(group);
    else if (group->phase == SNIB__GROUP_PAUSING && c->pause_until && now >= c->pause_until) {
        snib__group_pause_over(group);
        c->asked_at = now;
    } else if (c->give_up_at && now >= c->give_up_at)
        snib__group_give_up(group);
    else if (group->phase == SNIB__GROUP_HELD && now >= c->refill_at) {
        snib__group_refill(group);
        c->refill_at = now + CARRIER_REFILL;
    }
    if (group->phase != SNIB__GROUP_PAUSING)
        c->pause_until = 0;
    if (!snib__group_contested(group))
        c->give_up_at = 0;
}

/* Enough servers have granted the lease that was wanted: how long the whole is safe now.  The members get it next. */
static snib__time carrier_leased(struct snib__carrier *c, snib__time now)
{
    for (uint32_t i = 0; i < c->parts->n; i++) {
        snib__time clients = (snib__time)c->parts->part[i].client->lease_ms * SNIB__MS;
        snib__time before = c->group.members[i].deadline, leased_at = c->members[i].leased_at;
        if (leased_at)
            snib__group_member_extended(
                &c->group, i, snib__lease_extended(before, c->wanted, clients, leased_at, now));
    }
    c->lease = c->wanted;
    c->ends = snib__group_deadline(&c->group);
    return c->ends;
}

/* Why the result is this error, as the first of the members tells that had it.  The text is for the next call of outer.c. */
static void carrier_explain(struct snib__carrier *c, int32_t code, char *text, size_t cap)
{
    static const char several[] = "too many servers failed, such as: ";
    uint32_t i = 0;
    while (i < c->parts->n && !(c->members[i].failure == code && c->members[i].why))
        i++;
    if (code >= 0 || i == c->parts->n)
        return;
    const struct snib__carrier_member *member = &c->members[i];
    const char *before = c->parts->majority ? several : "";
    snprintf(text, cap, "%s%s", before, member->why);
    c->outer.why = text;
    c->outer.server = member->server ? member->server + (int32_t)strlen(before) : 0;
    c->outer.os_error = member->os_error;
}

/* Carry out the extensions that callers wait for, one after another. */
static void carrier_extension(struct snib__carrier *c, snib__time now)
{
    struct snib__engine *engine = c->home->driver.engine;
    snib__time lease;
    int32_t code;
    uint64_t extension = snib__outer_extension(engine, &c->outer, &lease);
    if (c->extension && c->extension != extension) { /* it was cancelled */
        snib__group_unextend(&c->group);
        c->extension = 0;
        c->wanted = c->lease;
    }
    if (c->extension && snib__group_leased(&c->group, &code)) {
        char text[sizeof((snib_error *)0)->text];
        snib__time deadline = code == SNIB_OK ? carrier_leased(c, now) : 0;
        carrier_explain(c, code, text, sizeof text);
        snib__outer_extended(engine, &c->outer, code, c->wanted, deadline, now);
        c->wanted = c->lease;
        c->outer.why = NULL;
        c->extension = 0;
        c->again = true; /* there may be another one */
    } else if (extension && !c->extension) {
        c->extension = extension;
        c->wanted = lease;
        for (uint32_t i = 0; i < c->parts->n; i++) {
            c->members[i].leased_at = 0;
            c->members[i].outdated = true;
        }
        snib__group_extend(&c->group);
    }
}

static void carrier_tell_deadline(struct snib__carrier *c, snib__time now)
{
    struct snib__engine *engine = c->home->driver.engine;
    snib__time deadline = snib__group_deadline(&c->group);
    bool wanted = snib__outer_wanted(&c->outer);
    if (wanted && c->parts->majority)
        c->ends = deadline;
    if (c->lease && deadline > c->ends)
        deadline = c->ends; /* later votes last longer, and members of a failed extension */
    if (wanted) {
        if (snib__outer_granted(engine, &c->outer, deadline, now)) {
            c->outer.hold->replicas = c->replicas;
            snib__group_given_out(&c->group);
            snib__group_refill(&c->group); /* no news may come from nodes that refused */
            c->refill_at = now + CARRIER_REFILL;
        } else {
            snib__group_fail(&c->group, SNIB_EUNREACHABLE); /* the replies came too late */
        }
        return;
    }
    /* It may also move closer: a vote is gone, and the remaining ones end earlier. */
    snib__outer_timed(engine, &c->outer, deadline, now);
}

/* Report the group's state to the home client. */
static void carrier_tell(struct snib__carrier *c, snib__time now)
{
    struct snib__engine *engine = c->home->driver.engine;
    struct snib__group *group = &c->group;
    if (group->phase == SNIB__GROUP_HELD)
        carrier_extension(c, now);
    if (group->phase == SNIB__GROUP_TAKEN || group->phase == SNIB__GROUP_HELD)
        carrier_tell_deadline(c, now);
    if (snib__group_contested(group) && c->give_up_at == 0)
        c->give_up_at = now + snib__group_patience(group, now - c->asked_at);
    if (group->phase == SNIB__GROUP_PAUSING && c->pause_until == 0)
        c->pause_until = now + snib__group_pause(group, snib__engine_random(engine, UINT32_MAX));
    if (c->parts->majority && group->phase <= SNIB__GROUP_PAUSING)
        snib__outer_wake(engine, &c->outer, carrier_next(c, now));
    if (group->phase != SNIB__GROUP_ENDED)
        return;
    if (!group->given_out && !c->let_go) {
        c->again = true; /* first that, then the result */
        return;
    }
    if (group->reason)
        snib__outer_lost(engine, &c->outer, group->reason, now);
    char text[sizeof((snib_error *)0)->text];
    carrier_explain(c, group->code, text, sizeof text);
    c->outer.reason = group->reason;
    snib__outer_ended(engine, &c->outer, group->code, now);
    c->outer.why = NULL;
    c->finished = true;
}

static void carrier_home(struct snib__carrier *c)
{
    struct snib__driver *driver = &c->home->driver;
    pthread_mutex_lock(&c->mutex);
    int phase = c->group.phase;
    bool finished = c->finished;
    pthread_mutex_unlock(&c->mutex);
    if (finished)
        return;
    if (phase == SNIB__GROUP_TAKEN)
        carrier_fix_leases(c);
    if (phase == SNIB__GROUP_TAKEN || phase == SNIB__GROUP_HELD)
        carrier_look(c);
    snib__driver_enter(driver);
    pthread_mutex_lock(&c->mutex);
    snib__time now = snib__now();
    carrier_hear(c, now);
    if (c->group.phase == SNIB__GROUP_TAKEN && phase != SNIB__GROUP_TAKEN)
        c->again = true; /* the last member came meanwhile: their leases are fixed first */
    else
        carrier_tell(c, now);
    finished = c->finished;
    pthread_mutex_unlock(&c->mutex);
    snib__driver_leave(driver);
    if (finished)
        snib__carrier_unref(c, 1); /* the home's; never the last: the step has one */
}

/* The time is over: why those that have not answered have not.  The result is the same whatever it is. */
static void carrier_inquire(struct snib__carrier *c)
{
    for (uint32_t i = 0; i < c->parts->n; i++) {
        struct snib__client *client = c->parts->part[i].client;
        snib__driver_enter(&client->driver);
        pthread_mutex_lock(&c->mutex);
        struct snib__op *op = c->members[i].op;
        if (op && !op->done) {
            carrier_note(c, i, op, snib__op_unreached(client->driver.engine, op));
            c->members[i].failure = SNIB_EUNREACHABLE;
        }
        pthread_mutex_unlock(&c->mutex);
        snib__driver_leave(&client->driver);
    }
    c->inquired = true;
}

/* ---- steps ---- */

/* Outside every client. */
static void carrier_step(struct snib__carrier *c)
{
    pthread_mutex_lock(&c->mutex);
    uint32_t debts = c->debts;
    c->debts = 0;
    c->listed = false;
    c->again = true; /* for whoever is at it already, or for this thread */
    if (!c->stepping) {
        c->stepping = true;
        while (c->again) {
            c->again = false;
            c->let_go = c->group.phase == SNIB__GROUP_ENDED && !c->group.given_out;
            pthread_mutex_unlock(&c->mutex);
            while (c->let_go && snib__carrier_wish(c))
                ;
            carrier_home(c);
            bool inquires = c->silent && !c->inquired;
            if (inquires)
                carrier_inquire(c);
            while (snib__carrier_wish(c))
                ;
            pthread_mutex_lock(&c->mutex);
            c->again |= inquires;
        }
        c->stepping = false;
    }
    pthread_mutex_unlock(&c->mutex);
    snib__carrier_unref(c, 1 + debts); /* the list's, and the debts */
}

/* A step may list other carriers for this thread: they are stepped one after another, not
 * recursively. */
void snib__carrier_steps(void *list)
{
    struct snib__steps *steps = snib__sys_steps();
    for (struct snib__carrier *c = list, *next; c; c = next) {
        next = c->next;
        c->next = steps->waiting;
        steps->waiting = c;
    }
    if (steps->busy)
        return;
    steps->busy = true;
    while (steps->waiting) {
        struct snib__carrier *c = steps->waiting;
        steps->waiting = c->next;
        carrier_step(c);
    }
    steps->busy = false;
}
