/* walk_end.c - the end of a walk.  All connections work again and every request is answered: what still waits for a lock
 * must get it soon, although nothing but the engine's own timers may wake it, and then nothing may be left. */
#include "walk.h"

#define SERVED (60 * WALK_SECOND) /* everything that waits for a free lock */
#define QUIET (300 * WALK_SECOND) /* the longest lease has ended */

void end_check(void)
{
    const char *flaw = engine_flaw(walk.engine);
    if (flaw) {
        walk_fail("%s", flaw);
    }
}

/* Answer everything, and let time pass to the next deadline. */
static void go_on(void)
{
    for (int rounds = 0; rounds < 4; rounds++) { /* a reply may lead to a request on another link */
        reply_links();
        reply_all();
        outer_go_on();
        if (!walk.mute && walk_chance(4)) {
            message_say();
        }
        call_results();
        call_give_back();
        end_check();
    }
    snib__time next = snib__engine_deadline(walk.engine), most = walk.now + WALK_SECOND;
    walk.now = next <= walk.now ? walk.now + SNIB__MS : next < most ? next : most;
    snib__engine_tick(walk.engine, walk.now);
    end_check();
}

static const struct snib__op *waiter(void)
{
    for (uint32_t i = 0; i < walk.op_count; i++) {
        if (!walk.ops[i]->done) {
            return walk.ops[i];
        }
    }
    return NULL;
}

static bool holds_something(void)
{
    for (uint32_t i = 0; i < WALK_HOLDS; i++) {
        if (walk.holds[i].hold) {
            return true;
        }
    }
    return false;
}

static void serve_all(void)
{
    walk.calm = true;
    walk.mute = walk_chance(2);
    walk.until = walk.now + (walk_chance(2) ? walk_draw(5 * WALK_SECOND) : 0);
    if (walk.until > walk.now) {
        walk_happens(WALK_LEFT);
    }
    walk_trace("calm");
    while (waiter() || holds_something()) {
        go_on();
        const struct snib__op *op = waiter();
        if (op && walk.now > walk.until + SERVED) {
            walk_fail("an operation %d of %.*s (kind %d, stage %d) never ends", op->kind,
                      op->gate ? op->gate->name_len : 0, op->gate ? op->gate->name : "",
                      op->gate ? op->gate->kind->kind : 0, op->stage);
        }
    }
}

static void close_all(void)
{
    walk.calm = true;
    walk_trace("the engine closes");
    snib__engine_close(walk.engine, walk.now);
    call_results();
    snib__time most = walk.now + QUIET;
    do {
        go_on(); /* what was on its way has its reply */
        if (walk.now > most) {
            walk_fail("the engine does not come to rest");
        }
    } while (waiter() || holds_something() || !snib__engine_quiet(walk.engine) ||
             walk.engine->chans_n > 0 || walk.engine->idle_head);
}

void end_walk(void)
{
    if (walk_chance(4)) {
        walk_happens(WALK_HASTY);
    } else {
        serve_all();
    }
    close_all();
    const char *left = engine_remains(walk.engine);
    if (left) {
        walk_fail("left over: %s", left);
    }
}
