/* lives.c - watches the objects of engines.
 *
 * An object has an address and an identity, because addresses are used again.  What the engine does
 * in one call is one step: a hold that is refused and asks again at once has not changed.
 */
#include "lives.h"

#include "locks/kind.h"
#include "snib.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum machine {
    EXCLUSIVE_HOLD,
    SHARED_HOLD,
    QUEUED_HOLD,
    CARRIED_HOLD,
    ACQUISITION,
    RELEASE,
    QUESTION,
    COMMAND_LINK,
    MESSAGE_LINK,
    LANE,
    SENTINEL_LINK,
    SUBSCRIPTION,
    MACHINES
};

#define STATES 12
#define NONE 0 /* it does not exist, or no longer */

static const char *const machine_names[MACHINES] = {
    "exclusive-hold", "shared-hold", "queued-hold",   "carried-hold",
    "acquisition",    "release",     "question",      "command-link",
    "message-link",   "lane",        "sentinel-link", "subscription"};
enum { QUEUED = 1, TRYING, CARRIED, ASKING, DONE, BUSY, TIMED_OUT, CANCELLED, LOST, FAILED };
static const char *const hold_states[STATES] = {
    [NONE] = "none",
    [1 + SNIB__NEW] = "new",
    [1 + SNIB__TRYING] = "trying",
    [1 + SNIB__PLACED] = "placed",
    [1 + SNIB__HELD] = "held",
    [1 + SNIB__RELEASING] = "releasing",
    [1 + SNIB__LOST] = "lost",
    [1 + SNIB__GONE] = "gone",
};
static const char *const op_states[STATES] = {
    [NONE] = "none",           [QUEUED] = "queued", [TRYING] = "trying", [CARRIED] = "carried",
    [ASKING] = "asking",       [DONE] = "done",     [BUSY] = "busy",     [TIMED_OUT] = "timed-out",
    [CANCELLED] = "cancelled", [LOST] = "lost",     [FAILED] = "failed",
};
static const char *const link_states[STATES] = {"none", "down", "connecting", "handshake", "ready"};
static const char *const channel_states[STATES] = {
    [NONE] = "none",
    [1 + SNIB__CHAN_OFF] = "off",
    [1 + SNIB__CHAN_ASKED] = "asked",
    [1 + SNIB__CHAN_ON] = "on",
    [1 + SNIB__CHAN_LEAVING] = "leaving",
    [1 + SNIB__CHAN_REFUSED] = "refused",
};

struct life {
    const void *object;
    uint64_t identity;
    uint8_t machine, state;
    bool there; /* the last look has found it */
};

struct lives {
    struct life *of;
    size_t n, cap, next; /* next: objects mostly come in the same order */
};

static uint64_t seen[MACHINES][STATES][STATES];
static bool watching;

void lives_watch(void)
{
    watching = true;
}

static void change(struct life *life, int state)
{
    if (life->state != state) {
        seen[life->machine][life->state][state]++;
        life->state = (uint8_t)state;
    }
}

static struct life *find(struct lives *lives, const void *object)
{
    for (size_t i = 0; i < lives->n; i++) {
        size_t at = lives->next + i < lives->n ? lives->next + i : lives->next + i - lives->n;
        if (lives->of[at].object == object) {
            lives->next = at + 1 < lives->n ? at + 1 : 0;
            return &lives->of[at];
        }
    }
    return NULL;
}

static void look_at(struct lives *lives, int machine, const void *object, uint64_t identity,
                    int state)
{
    struct life *life = find(lives, object);
    if (life == NULL) {
        if (lives->n == lives->cap) {
            lives->cap = 2 * lives->cap + 16;
            lives->of = realloc(lives->of, lives->cap * sizeof *lives->of);
            if (lives->of == NULL) {
                abort();
            }
        }
        life = &lives->of[lives->n++];
        *life = (struct life){.object = object, .identity = identity, .machine = (uint8_t)machine};
    } else if (life->identity != identity || life->machine != machine) {
        change(life, NONE);
        *life = (struct life){.object = object, .identity = identity, .machine = (uint8_t)machine};
    }
    life->there = true;
    change(life, state);
}

static void forget(struct lives *lives, struct life *life)
{
    *life = lives->of[--lives->n];
    lives->next = 0;
}

/* ---- Holds, operations, links, subscriptions ---------------------------------------------------- */

static int machine_of_hold(const struct snib__hold *hold)
{
    static const int by_discipline[] = {[SNIB__EXCLUSIVE] = EXCLUSIVE_HOLD,
                                        [SNIB__SHARED] = SHARED_HOLD,
                                        [SNIB__QUEUED] = QUEUED_HOLD};
    return hold->gate->kind->kind == SNIB__OUTER ? CARRIED_HOLD
                                                 : by_discipline[hold->gate->kind->discipline];
}

static void look_at_hold(struct lives *lives, const struct snib__hold *hold)
{
    if (hold != NULL) {
        look_at(lives, machine_of_hold(hold), hold, hold->number, 1 + hold->phase);
    }
}

/* The rest of a lost hold, or of an attempt, that is given back: no gate need have it. */
static void look_at_request(struct lives *lives, const struct snib__request *request)
{
    const struct snib__hold *hold = request->subject;
    if (request->kind == SNIB__REQ_RELEASE && hold != NULL && hold->number == request->number) {
        look_at_hold(lives, hold);
    }
}

static void look_at_gates(struct lives *lives, const struct snib__engine *e)
{
    for (uint32_t i = 0; i < e->gates_cap; i++) {
        for (const struct snib__gate *gate = e->gates[i]; gate; gate = gate->next) {
            for (const struct snib__hold *hold = snib__gate_first(gate); hold;
                 hold = snib__gate_next(gate, hold)) {
                look_at_hold(lives, hold);
            }
        }
    }
}

static int machine_of_op(const struct snib__op *op)
{
    return op->kind == SNIB__OP_ACQUIRE   ? ACQUISITION
           : op->kind == SNIB__OP_RELEASE ? RELEASE
                                          : QUESTION;
}

static void look_at_ops(struct lives *lives, const struct snib__engine *e)
{
    static const int by_place[] = {[SNIB__STAGE_QUEUED] = QUEUED,
                                   [SNIB__STAGE_TRYING] = TRYING,
                                   [SNIB__STAGE_OUTER] = CARRIED,
                                   [SNIB__STAGE_ASKING] = ASKING};
    for (const struct snib__op *op = e->live; op; op = op->live_next) {
        look_at(lives, machine_of_op(op), op, op->serial, by_place[op->stage]);
        look_at_hold(lives, op->hold); /* of a waiter, which its gate need not have */
    }
}

static void look_at_links(struct lives *lives, const struct snib__engine *e)
{
    for (const struct snib__link *link = e->links; link; link = link->next) {
        int machine = link->node->kind == SNIB__A_SENTINEL ? SENTINEL_LINK
                      : link->kind == SNIB__PUBSUB         ? MESSAGE_LINK
                      : snib__lane_is(link)                ? LANE
                                                           : COMMAND_LINK;
        int state = link->conn.state == SNIB__CONN_READY       ? 4
                    : link->conn.state == SNIB__CONN_HANDSHAKE ? 3
                    : link->connecting || link->connect        ? 2
                                                               : 1;
        look_at(lives, machine, link, 0, state);
        for (uint32_t i = 0; i < link->conn.ring_count; i++) {
            look_at_request(
                lives, &link->conn.ring[(link->conn.ring_head + i) & (link->conn.ring_cap - 1)]);
        }
    }
    for (const struct snib__node *node = e->nodes; node; node = node->next) {
        for (uint32_t i = 0; i < node->todo_n; i++) {
            look_at_request(lives, &node->todo[i]);
        }
    }
}

static void look_at_channels(struct lives *lives, const struct snib__engine *e)
{
    for (uint32_t i = 0; i < e->chans_cap; i++) {
        for (const struct snib__chan *chan = e->chans[i]; chan; chan = chan->next) {
            look_at(lives, SUBSCRIPTION, chan, chan->hash, 1 + chan->state);
        }
    }
}

/* A hold that no gate has any more belongs to its caller: lost or gone, until it is given back, and
 * its memory is the engine's until the end.  A finished operation has not been taken yet.  A link or
 * a subscription is gone, and so is its memory. */
static bool remains(struct life *life)
{
    if (life->machine <= CARRIED_HOLD) {
        const struct snib__hold *hold = life->object;
        change(life, hold->number == life->identity ? 1 + (int)hold->phase : NONE);
    } else if (life->machine > QUESTION) {
        change(life, NONE);
    }
    return life->state != NONE;
}

void lives_look(struct lives **at, const struct snib__engine *e)
{
    if (!watching) {
        return;
    }
    if (*at == NULL && (*at = calloc(1, sizeof **at)) == NULL) {
        abort();
    }
    struct lives *lives = *at;
    for (size_t i = 0; i < lives->n; i++) {
        lives->of[i].there = false;
    }
    look_at_links(lives, e);
    look_at_channels(lives, e);
    look_at_gates(lives, e);
    look_at_ops(lives, e);
    for (size_t i = lives->n; i-- > 0;) {
        if (!lives->of[i].there && !remains(&lives->of[i])) {
            forget(lives, &lives->of[i]);
        }
    }
}

void lives_done(struct lives **at, const struct snib__op *op)
{
    static const struct life fresh = {.state = NONE};
    if (!watching) {
        return;
    }
    struct life *life = *at == NULL ? NULL : find(*at, op), other = fresh;
    if (life == NULL || life->identity != op->serial) {
        life = &other;
        life->machine = (uint8_t)machine_of_op(op);
    }
    change(life, op->code == SNIB_OK          ? DONE
                 : op->code == SNIB_BUSY      ? BUSY
                 : op->code == SNIB_TIMEDOUT  ? TIMED_OUT
                 : op->code == SNIB_CANCELLED ? CANCELLED
                 : op->code == SNIB_LOST      ? LOST
                                              : FAILED);
    if (life != &other) {
        forget(*at, life);
    }
}

void lives_free(struct lives **at)
{
    if (*at != NULL) {
        free((*at)->of);
        free(*at);
        *at = NULL;
    }
}

static const char *name_of(const char *state)
{
    return state ? state : "unknown";
}

void lives_print(void)
{
    for (int machine = 0; machine < MACHINES; machine++) {
        const char *const *states = machine <= CARRIED_HOLD  ? hold_states
                                    : machine <= QUESTION    ? op_states
                                    : machine < SUBSCRIPTION ? link_states
                                                             : channel_states;
        for (int from = 0; from < STATES; from++) {
            for (int to = 0; to < STATES; to++) {
                if (seen[machine][from][to] > 0) {
                    printf("transition %s %s %s %llu\n", machine_names[machine],
                           name_of(states[from]), name_of(states[to]),
                           (unsigned long long)seen[machine][from][to]);
                }
            }
        }
    }
}
