/* walk_outer.c - carriers of locks on several servers, as the engine sees them: core/api/group.c's, but of one mind with
 * nobody.  Once it is calm, the lock is free unless it is held. */
#include "walk.h"

struct snib__outer *outer_new(void)
{
    for (uint32_t i = 0; i < WALK_OUTERS; i++) {
        if (!walk.outers[i].used) {
            walk.outers[i] = (struct walk_outer){.used = true};
            return &walk.outers[i].outer;
        }
    }
    return NULL;
}

/* The engine has not taken it: nothing was begun. */
void outer_unused(struct snib__outer *outer)
{
    if (!outer->hold) {
        ((struct walk_outer *)outer)->used = false;
    }
}

static snib__time some_deadline(void)
{
    return walk.now + (walk.calm ? 10 * WALK_SECOND : walk_between(0, 3 * WALK_SECOND));
}

static bool is_held(const struct snib__gate *gate)
{
    const struct snib__hold *hold = gate->peers;
    while (hold && hold->phase != SNIB__HELD && hold->phase != SNIB__RELEASING) {
        hold = hold->peer_next;
    }
    return hold != NULL;
}

static void collect(struct snib__outer *outer)
{
    static const int32_t ends[] = {SNIB_BUSY, SNIB_TIMEDOUT, SNIB_EUNREACHABLE, SNIB_ECONNECT};
    bool free = walk.calm ? walk.now >= walk.until && !is_held(outer->hold->gate)
                          : walk_chance(walk.yields);
    if (free && snib__outer_granted(walk.engine, outer, some_deadline(), walk.now)) {
        walk_happens(WALK_CARRIED);
    } else if (!walk.calm && walk_chance(8)) {
        snib__outer_ended(walk.engine, outer, ends[walk_draw(4)], walk.now);
    } else {
        snib__outer_wake(walk.engine, outer, walk.now + 10 * SNIB__MS);
    }
}

static void keep(struct snib__outer *outer)
{
    snib__time lease;
    if (snib__outer_extension(walk.engine, outer, &lease) && (walk.calm || walk_chance(2))) {
        int32_t code = !walk.calm && walk_chance(4) ? SNIB_EUNREACHABLE : SNIB_OK;
        snib__outer_extended(walk.engine, outer, code, lease, some_deadline(), walk.now);
    } else if (!walk.calm && walk_chance(20)) {
        snib__outer_lost(walk.engine, outer, SNIB_REASON_TAKEN, walk.now);
        snib__outer_ended(walk.engine, outer, SNIB_LOST, walk.now);
    } else {
        snib__outer_timed(walk.engine, outer, some_deadline(), walk.now);
    }
}

static void step(struct walk_outer *at)
{
    struct snib__outer *outer = &at->outer;
    if (outer->ended) {
        at->used = outer->listed;
    } else if (snib__outer_releasing(outer)) {
        int32_t code = !walk.calm && walk_chance(4) ? SNIB_LOST : SNIB_OK;
        snib__outer_ended(walk.engine, outer, code, walk.now);
    } else if (snib__outer_wanted(outer)) {
        collect(outer);
    } else if (outer->hold->phase == SNIB__TRYING) {
        snib__outer_ended(walk.engine, outer, SNIB_CANCELLED, walk.now);
    } else {
        keep(outer);
    }
}

/* Some carriers do something, and once it is calm, all of them. */
void outer_go_on(void)
{
    while (snib__engine_take_outer(walk.engine)) {
        continue;
    }
    for (uint32_t i = 0; i < WALK_OUTERS; i++) {
        if (walk.outers[i].used && (walk.calm || walk_chance(4))) {
            step(&walk.outers[i]);
        }
    }
}
