/* group_task.c - tasks use locks as programs do: they acquire (one try, for some time, without
 * limit), may cancel at any moment, hold, release or simply drop the hold; in a world of multi
 * locks now and then one member alone. */
#include "group_sim.h"

#include "engine/internal.h"

#include <stdlib.h>

static void rest(struct world_task *task)
{
    *task = (struct world_task){
        .wake = world.now + (world_chance(2) ? world_draw(5 * SNIB__MS) : world_draw(world.think))};
}

static snib__time hold_for(void)
{
    uint64_t kind = world_draw(world.calm ? 24 : 8);
    if (kind == 0) {
        return world_draw(5 * world.lease / 2);
    }
    return kind < 4 ? world_draw(100 * SNIB__MS) : world_draw(5 * SNIB__MS);
}

/* ---- Holds -------------------------------------------------------------------------------------- */

static struct world_hold *find(struct world_process *process, const struct snib__hold *hold)
{
    for (int i = 0; i < WORLD_HOLDS; i++) {
        if (process->holds[i].hold == hold) {
            return &process->holds[i];
        }
    }
    world_fail("%u has no such hold, or no room for one more", process->id);
}

/* Called inside the client. */
static void leave_hold(struct world_hold *hold)
{
    if (--hold->users > 0) {
        return;
    }
    struct snib__hold *engines = hold->hold;
    struct snib__engine *engine = hold->home->client.driver.engine;
    *hold = (struct world_hold){0};
    snib__hold_drop(engine, engines, world.now);
}

static void take_hold(struct world_process *process, struct world_task *task)
{
    struct snib__hold *granted = task->op->hold;
    struct world_hold *hold = NULL;
    for (int i = 0; i < WORLD_HOLDS && hold == NULL; i++) {
        hold = process->holds[i].hold == granted ? &process->holds[i] : NULL;
    }
    if (hold == NULL) {
        hold = find(process, NULL);
        *hold = (struct world_hold){.hold = granted,
                                    .home = task->home,
                                    .lock = task->lock,
                                    .members = task->members,
                                    .since = task->submitted,
                                    .lease = task->lock ? task->lock->lease : 0};
        hold->was_fixed = hold->lease != 0;
        hold->limit = granted->acquired_at + hold->lease;
        world_totals.granted += task->lock != NULL;
        world_totals.singles += task->lock == NULL;
    }
    granted->tell = 1;
    hold->users++;
    task->hold = hold;
    task->wanted = NULL;
    task->doing = WORLD_HOLDS_IT;
    task->wake = world.now + hold_for();
    world_trace("%u task %d holds, for %.1f ms", process->id, (int)(task - process->tasks),
                (double)(granted->deadline - world.now) / 1e6);
    /* It may have been granted before the program closed the client, and delivered after. */
    bool closed = granted->phase == SNIB__LOST && granted->reason == SNIB_REASON_CLOSED;
    bool short_hold =
        snib__hold_reason(granted, world.now) == SNIB_REASON_MAX_HOLD; /* ended on the way */
    if (!check_is_valid(hold) && !closed && !short_hold) {
        world_fail("%u was given a hold that is over", process->id);
    }
}

/* ---- Acquiring ---------------------------------------------------------------------------------- */

static struct snib__op *acquire(struct world_process *process, struct world_task *task,
                                const struct snib__acquire *how, int32_t *out_code)
{
    if (world.majority || !world_chance(4)) {
        int index = (int)world_draw((uint64_t)world.lock_count);
        struct snib__lock *lock = &process->locks[index];
        struct snib__acquire with_lease = *how;
        with_lease.lease = world.locks[index].lease;
        task->lock = &world.locks[index];
        task->members = task->lock->members;
        task->home = (struct world_peer *)lock->client;
        peer_enter(task->home);
        return snib__carrier_acquire(lock, &with_lease, world.now, out_code);
    }
    int node = (int)world_draw((uint64_t)world.node_count), name = (int)world_draw(WORLD_NAMES);
    task->home = &process->peers[node];
    task->members = 1U << (node * WORLD_NAMES + name);
    peer_enter(task->home);
    return snib__engine_acquire(task->home->client.driver.engine, task->home->gates[name], how,
                                world.now, out_code);
}

/* The client of a member still has to do with something else of these names: an attempt that was
 * given up or is about to be, or a lost hold. */
static bool is_in_own_way(const struct world_process *process, const struct world_task *task)
{
    for (int i = 0; i < WORLD_NODES * (WORLD_NAMES + 1); i++) {
        int node = i / (WORLD_NAMES + 1);
        const struct snib__gate *gate = process->peers[node].gates[i % (WORLD_NAMES + 1)];
        const struct snib__hold *active = gate != NULL ? snib__gate_first(gate) : NULL;
        bool waits = gate != NULL && gate->waitq != NULL && gate->waitq->head != NULL &&
                     gate->waitq->head != task->op;
        bool holds = active != NULL && active != task->op->hold;
        if ((task->members >> (node * WORLD_NAMES) & 3) != 0 && (waits || holds)) {
            return true;
        }
    }
    return false;
}

static void begin(struct world_process *process, struct world_task *task)
{
    static const snib__time unlimited = SNIB__NEVER;
    uint64_t mode = world_draw(4);
    struct snib__acquire how = {.owner = world_chance(8) ? 1 : 0,
                                .wait = mode == 0   ? 0
                                        : mode == 1 ? world_between(SNIB__MS, 2 * world.lease)
                                                    : unlimited,
                                .max_hold = world_chance(8) ? world_between(1, 2000) * SNIB__MS : 0,
                                .permits = 1};
    int32_t code;
    task->op = acquire(process, task, &how, &code);
    if (task->op == NULL && (code != SNIB_ECLOSED || !task->home->client.stopped)) {
        world_fail("%u: acquire was not started: %s", process->id, snib_code_name(code));
    }
    if (task->op == NULL) {
        peer_leave(task->home);
        rest(task);
        return;
    }
    task->doing = WORLD_WAITS;
    task->wanted = task->op->hold;
    task->once = how.wait == 0;
    task->submitted = world.now;
    task->known_at = 0;
    task->rivalled = is_in_own_way(process, task);
    task->contended = false;
    task->unmute = 0;
    task->wait_ends = mode == 1 ? world.now + how.wait : SNIB__NEVER;
    task->wake = world_chance(4) ? world.now + world_draw(world.lease) : SNIB__NEVER;
    if (!task->op->done && task->wanted != NULL) {
        task->wanted->tell = 1;
    }
    world_trace("%u task %d acquires %x%s", process->id, (int)(task - process->tasks),
                task->members, task->once ? ", once" : "");
    peer_leave(task->home);
}

/* ---- Results ------------------------------------------------------------------------------------ */

void task_done(struct world_process *process, struct snib__op *op)
{
    struct world_task *task = process->tasks;
    while (task < process->tasks + WORLD_TASKS && task->op != op) {
        task++;
    }
    if (task == process->tasks + WORLD_TASKS) {
        world_fail("%u: an unknown operation ended", process->id);
    }
    world_trace("%u task %d: %s", process->id, (int)(task - process->tasks),
                snib_code_name(op->code));
    struct snib__engine *engine = task->home->client.driver.engine;
    world_totals.busy += op->code == SNIB_BUSY;
    world_totals.timed_out += op->code == SNIB_TIMEDOUT;
    world_totals.cancelled += op->code == SNIB_CANCELLED;
    world_totals.failed += op->code < 0;
    if (task->doing != WORLD_EXTENDS) {
        check_result(process, task, op->code);
    }
    if (task->doing == WORLD_EXTENDS) {
        check_extended(task->hold, task, op->code);
        world_totals.extended += op->code == SNIB_OK;
        task->hold->extending--;
        task->doing = WORLD_HOLDS_IT;
        task->wake = world.now + hold_for();
    } else if (task->doing == WORLD_WAITS && op->code == SNIB_OK) {
        take_hold(process, task);
    } else if (task->doing == WORLD_WAITS) {
        rest(task);
    } else {
        world_totals.released += op->code == SNIB_OK;
        leave_hold(task->hold);
        rest(task);
    }
    task->op = NULL;
    snib__op_free(engine, op);
}

void task_lost(struct world_process *process, struct snib__hold *lost)
{
    struct world_hold *hold = find(process, lost);
    world_trace("%u: the loss of %x is reported: %s", process->id, hold->members,
                snib_reason_text(lost->reason));
    world_totals.lost++;
    if (hold->told || hold->released || check_is_valid(hold)) {
        world_fail("%u: the loss of a hold was reported%s", process->id,
                   hold->told       ? " twice"
                   : hold->released ? " after its release"
                                    : ", although the hold is valid");
    }
    check_lost(hold);
    hold->told = true;
}

/* ---- Releasing ---------------------------------------------------------------------------------- */

/* The program forgets it without a release: only its lease ends it. */
static void abandon(struct world_process *process, struct world_task *task)
{
    struct world_peer *home = task->home;
    struct snib__hold *hold = task->hold->hold;
    world_trace("%u task %d abandons", process->id, (int)(task - process->tasks));
    peer_enter(home);
    hold->users--;
    snib__hold_abandon(home->client.driver.engine, hold, world.now);
    process->left_until = world.now + 2 * world.lease; /* the longest lease */
    peer_leave(home);                                  /* it may have been lost */
    peer_enter(home);
    leave_hold(task->hold);
    rest(task);
    peer_leave(home);
}

static void release(struct world_process *process, struct world_task *task)
{
    int32_t code = SNIB_OK;
    struct world_hold *hold = task->hold;
    if (world.focused && world_chance(30)) {
        abandon(process, task);
        return;
    }
    /* Some programs simply drop it; what one server keeps of a lost hold then ends with its
     * lease. */
    bool drops = world_chance(12) && (hold->lock != NULL || !hold->told);
    peer_enter(task->home);
    check_releasing(hold);
    struct snib__op *op = drops ? NULL
                                : snib__engine_release(task->home->client.driver.engine, hold->hold,
                                                       world.now, &code);
    if (op != NULL) {
        hold->released = true;
        task->op = op;
        task->doing = WORLD_RELEASES;
        task->wake = world.focused && world_chance(16) ? world.now + world_draw(4 * world.delay)
                                                       : SNIB__NEVER; /* then it waits no longer */
        peer_leave(task->home);
        return;
    }
    struct world_peer *home = task->home;
    world_trace("%u task %d leaves: %s", process->id, (int)(task - process->tasks),
                snib_code_name(code));
    /* A loss that the release itself has found is reported at the same moment. */
    peer_leave(home);
    peer_enter(home);
    if (code == SNIB_LOST ? !hold->told : code != SNIB_OK) {
        world_fail("%u: release without an operation gave %s", process->id, snib_code_name(code));
    }
    leave_hold(hold);
    rest(task);
    peer_leave(home);
}

/* ---- Another lease ------------------------------------------------------------------------------ */

/* The most that a hold may ask for: a majority's servers may vote again soon after a loss of memory. */
static snib__time longest(void)
{
    return world.quarantine ? world.lease : 2 * world.lease;
}

/* False: it was not asked for, because the hold is over. */
static bool extend(struct world_process *process, struct world_task *task)
{
    struct world_hold *hold = task->hold;
    int32_t code;
    snib__time lease = world_chance(2) ? 0 : world_between(100 * SNIB__MS, longest());
    lease = lease / SNIB__MS * SNIB__MS;
    peer_enter(task->home);
    struct snib__op *op =
        snib__engine_extend(task->home->client.driver.engine, hold->hold, lease, world.now, &code);
    if (op != NULL) {
        world_trace("%u task %d extends %x by %.1f ms", process->id, (int)(task - process->tasks),
                    hold->members, (double)lease / 1e6);
        task->op = op;
        task->doing = WORLD_EXTENDS;
        task->cancelled = false;
        task->submitted = world.now;
        task->lease = lease;
        task->wake = world_chance(4) ? world.now + world_draw(4 * world.delay) : SNIB__NEVER;
        hold->extending++;
        hold->was_fixed |= lease != 0;
    } else if (code != SNIB_LOST && code != SNIB_ECLOSED) {
        world_fail("%u: an extension was not started: %s", process->id, snib_code_name(code));
    }
    peer_leave(task->home);
    return op != NULL;
}

static void cancel(struct world_process *process, struct world_task *task)
{
    task->wake = SNIB__NEVER;
    task->cancelled = true;
    peer_enter(task->home);
    bool late = task->op->done; /* completed but not delivered yet */
    if (!snib__engine_cancel(task->home->client.driver.engine, task->op, world.now) && !late) {
        world_fail("%u: a running operation could not be cancelled", process->id);
    }
    peer_leave(task->home);
}

void task_leave_all(struct world_process *process)
{
    for (int i = 0; i < WORLD_TASKS; i++) {
        struct world_task *task = &process->tasks[i];
        if (task->doing == WORLD_HOLDS_IT) {
            struct world_peer *home = task->home;
            peer_enter(home);
            leave_hold(task->hold);
            peer_leave(home);
            rest(task);
        }
        task->wake = SNIB__NEVER;
    }
}

void task_move(struct world_process *process, struct world_task *task)
{
    if (task->doing == WORLD_RESTS && (world.winding_down || process->closing)) {
        task->wake = SNIB__NEVER;
    } else if (task->doing == WORLD_RESTS) {
        begin(process, task);
    } else if (task->doing == WORLD_HOLDS_IT) {
        if (!world_chance(3) || process->closing || !extend(process, task)) {
            release(process, task);
        }
    } else {
        cancel(process, task);
    }
}
