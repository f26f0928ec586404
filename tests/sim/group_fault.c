/* group_fault.c - what goes wrong between processes and nodes.  Which faults a seed enables, and
 * how often they come, is drawn once. */
#include "group_sim.h"

static snib__time pace; /* the mean time between faults */

bool fault_is_focus(int fault)
{
    return world.focused && (world.focus[0] == fault || world.focus[1] == fault);
}

/* Both faults of its pair, soon one after the other, among those that the seed enables. */
static void plan_focus(void)
{
    snib__time close = world.lease / 4;
    world.enabled |= 1U << world.focus[0] | 1U << world.focus[1];
    world.enabled |= fault_is_focus(WORLD_LATE) ? 1U << WORLD_CUT : 0;
    pace = pace < close ? pace : close;
}

void fault_happens(int fault)
{
    world_totals.faults[fault]++;
    pairs_happens(fault, world.now);
}

void fault_until(snib__time *until, snib__time end)
{
    *until = end > *until ? end : *until;
}

void fault_answered(void)
{
    for (int i = 0; i < world.node_count; i++) {
        struct world_node *node = &world.nodes[i];
        if (node->errors_until != 0 && model_struck(node->model) != 0) {
            pairs_happens(node->errors_kind, world.now);
        }
    }
}

void fault_plan(void)
{
    /* One world in six is undisturbed. */
    unsigned share = (unsigned)world_draw(6);
    for (int fault = 0; fault < WORLD_FAULTS; fault++) {
        if (world_draw(8) < share) {
            world.enabled |= 1U << fault;
        }
    }
    if (world.majority && !world.quarantine) {
        world.enabled &= ~(1U << WORLD_RESTART); /* nothing is guaranteed then */
    }
    pace = 10 * SNIB__MS << world_draw(8);
    if (world.focused) {
        plan_focus();
    }
    world.next_fault = world.enabled == 0 ? SNIB__NEVER : world.now + world_draw(2 * pace);
    for (int i = 0; world_has(WORLD_CLOCK) && i < world.node_count; i++) {
        world_totals.faults[WORLD_CLOCK]++;
        pairs_lasts(WORLD_CLOCK);
        world.nodes[i].clock_ppm = (int)world_draw(10001) - 5000;
    }
}

/* The end of a disturbance that begins now. */
static snib__time for_a_while(void)
{
    const snib__time most[] = {3 * world.lease, world.lease / 2, 4 * world.delay};
    return world.now + world_draw(most[world_draw(3)]);
}

/* Each of these functions returns whether anything has changed. */

static bool strike_pipe(int fault)
{
    struct world_pipe *pipe = net_pick();
    if (pipe == NULL) {
        return false;
    }
    if (fault == WORLD_CUT) {
        pipe->cut_next = 1 + (int)world_draw(2);
        return false; /* not yet */
    }
    snib__time until = for_a_while();
    fault_until(&pipe->client->troubled_until, until);
    bool both = world_chance(3);
    if (both || world_chance(2)) {
        pipe->to_server.frozen_until = until;
    } else {
        pipe->to_client.frozen_until = until;
    }
    if (both) {
        pipe->to_client.frozen_until = until;
    }
    return true;
}

static void come_back(int node, int fault)
{
    net_node_died(node);
    world.nodes[node].refuse_kind = fault;
    world.nodes[node].refuse_until =
        world_chance(2) ? world.now + world_draw(4 * world.delay) : for_a_while();
    fault_until(&world.nodes[node].troubled_until, world.nodes[node].refuse_until);
}

/* Keys, scripts and connections are gone; a restarted node has another run id. */
static void restart(int node)
{
    world_trace("node %d restarts", node);
    model_restart(world.nodes[node].model);
    world.nodes[node].wiped_at = world.now;
    come_back(node, WORLD_RESTART);
}

/* The node's keys are back, with what is left of their leases. */
static void restart_with_data(int node)
{
    world_trace("node %d restarts with its data", node);
    model_restart_with_data(world.nodes[node].model);
    come_back(node, WORLD_RESTART_AOF);
}

/* Connections that are logged in stay so, unless a proxy or an old server wants a new login. */
static void log_out(int node)
{
    for (struct world_pipe *pipe = world.pipes; pipe < world.pipes + WORLD_PIPES; pipe++) {
        if (pipe->used && pipe->node == node && pipe->server != 0) {
            model_log_out(world.nodes[node].model, pipe->server);
        }
    }
}

/* The errors that a node answers for a while. */
static unsigned errors_of(int fault)
{
    static const unsigned errors[] = {MODEL_OOM, MODEL_READONLY, MODEL_LOADING, MODEL_MISCONF};
    static const unsigned rights[] = {MODEL_NO_PUBLISH, MODEL_NO_SUBSCRIBE, MODEL_NO_INFO,
                                      MODEL_NO_CLIENT, MODEL_NO_EVALSHA};
    switch (fault) {
    case WORLD_ERROR_AFTER:
        return MODEL_ERROR_AFTER;
    case WORLD_BUSY:
        return MODEL_BUSY;
    case WORLD_NOREPLICAS:
        return MODEL_NOREPLICAS;
    case WORLD_MASTERDOWN:
        return MODEL_MASTERDOWN | MODEL_READONLY;
    case WORLD_NO_COMMAND:
        return rights[world_draw(sizeof rights / sizeof *rights)];
    case WORLD_PASSWORD:
        return MODEL_PASSWORD;
    default:
        return errors[world_draw(sizeof errors / sizeof *errors)];
    }
}

static bool strike_node(int fault)
{
    int i = (int)world_draw((uint64_t)world.node_count);
    struct world_node *node = &world.nodes[i];
    switch (fault) {
    case WORLD_REFUSE:
        node->refuse_until = for_a_while();
        node->refuse_kind = fault;
        fault_until(&node->troubled_until, node->refuse_until);
        return false; /* with the connections */
    case WORLD_NODE_PAUSE:
        node->paused_until = for_a_while();
        fault_until(&node->troubled_until, node->paused_until);
        return true;
    case WORLD_RESTART:
        restart(i);
        for (int j = 0; world_chance(4) && j < world.node_count; j++) {
            restart(j); /* the power failed */
        }
        return true;
    case WORLD_RESTART_AOF:
        restart_with_data(i);
        return true;
    default:
        model_set_faults(node->model, errors_of(fault));
        node->errors_until = for_a_while();
        fault_until(&node->troubled_until, node->errors_until);
        node->errors_kind = fault;
        if (fault == WORLD_PASSWORD && world_chance(2)) {
            log_out(i);
        }
        return false; /* with the answers */
    }
}

static bool strike_process(int fault)
{
    int slot = (int)world_draw((uint64_t)world.slot_count);
    struct world_process *process = world.slots[slot];
    if (fault == WORLD_PAUSE) {
        process->frozen_until = for_a_while();
    } else if (fault == WORLD_CLOSE_ONE) {
        process_close_peer(&process->peers[world_draw((uint64_t)world.node_count)]);
        if (process->ends_at == SNIB__NEVER) { /* it continues for a while with what it has left */
            process->ends_at = world.now + world_draw(2 * world.lease);
        }
    } else if (fault == WORLD_CLOSE) {
        process_close(process);
    } else if (world.process_count == WORLD_PROCESSES) {
        return false;
    } else {
        process_kill(process);
        process_new(slot);
    }
    return true;
}

/* Half of the nodes, or fewer, never come back: the rest go on without them. */
static bool strike_dead(void)
{
    uint32_t dead = 0;
    for (int i = 0; i < world.node_count; i++) {
        dead += world.nodes[i].dead;
    }
    int node = (int)world_draw((uint64_t)world.node_count);
    if (!world.majority || dead + 1 > (uint32_t)world.node_count - world.need ||
        world.nodes[node].dead) {
        return false;
    }
    world_trace("node %d is dead", node);
    world.nodes[node].dead = true;
    world.nodes[node].troubled_until = SNIB__NEVER;
    if (world_chance(2)) {
        net_node_died(node); /* else its connections just go silent */
    }
    return true;
}

static void strike(int fault)
{
    bool changed = false;
    world_trace("fault %d", fault);
    world_totals.faults[fault] += fault != WORLD_CUT;
    switch (fault) {
    case WORLD_CUT:
    case WORLD_STALL:
        changed = strike_pipe(fault);
        break;
    case WORLD_REFUSE:
    case WORLD_NODE_PAUSE:
    case WORLD_ERRORS:
    case WORLD_RESTART:
    case WORLD_ERROR_AFTER:
    case WORLD_BUSY:
    case WORLD_NOREPLICAS:
    case WORLD_MASTERDOWN:
    case WORLD_NO_COMMAND:
    case WORLD_PASSWORD:
    case WORLD_RESTART_AOF:
        changed = strike_node(fault);
        break;
    case WORLD_PAUSE:
    case WORLD_KILL:
    case WORLD_CLOSE:
    case WORLD_CLOSE_ONE:
        changed = strike_process(fault);
        break;
    case WORLD_DEAD:
        changed = strike_dead();
        break;
    default:
        world_totals.faults[fault]--; /* happens elsewhere: DELAY, LATE, CLOCK, PREEMPT */
    }
    if (changed) {
        pairs_happens(fault, world.now);
    }
}

static int draw_fault(void)
{
    int fault = world.focused && world_chance(2) ? world.focus[world_draw(2)]
                : world_chance(3)                ? WORLD_CUT
                                                 : (int)world_draw(WORLD_FAULTS);
    while (!world_has(fault)) {
        fault = (fault + 1) % WORLD_FAULTS;
    }
    return fault;
}

snib__time fault_next(void)
{
    snib__time next = world.next_fault;
    for (int i = 0; i < world.node_count; i++) {
        snib__time at = world.nodes[i].errors_until;
        next = at != 0 && at < next ? at : next;
    }
    return next;
}

void fault_run(void)
{
    for (int i = 0; i < world.node_count; i++) {
        struct world_node *node = &world.nodes[i];
        if (node->errors_until != 0 && node->errors_until <= world.now) {
            node->errors_until = 0;
            model_set_faults(node->model, 0);
        }
    }
    if (world.next_fault <= world.now) {
        int fault = draw_fault();
        /* Faults come in clusters: one that strikes what another has left is the hardest. */
        world.next_fault =
            world.now + 1 + world_draw(world_chance(3) ? 10 * world.delay : 2 * pace);
        strike(fault);
    }
}

void fault_end_all(void)
{
    world.next_fault = SNIB__NEVER;
    for (int i = 0; i < world.node_count; i++) {
        struct world_node *node = &world.nodes[i];
        node->paused_until = node->refuse_until = node->errors_until = 0;
        model_set_faults(node->model, 0);
    }
    for (int i = 0; i < world.slot_count; i++) {
        struct world_process *process = world.slots[i];
        process->frozen_until =
            process->frozen_until < world.now ? process->frozen_until : world.now;
    }
    net_heal();
}
