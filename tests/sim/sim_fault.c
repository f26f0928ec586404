/* sim_fault.c - what goes wrong in a simulated world.  Which faults a seed enables, and how often
 * they come, is drawn once: worlds with few faults find other bugs than worlds with many. */
#include "sim.h"

#include <string.h>

static const char not_a_lock[] = "not a lock";
static snib__time pace; /* the mean time between faults */

#define RIGHTS                                                                                     \
    (MODEL_NO_PUBLISH | MODEL_NO_SUBSCRIBE | MODEL_NO_INFO | MODEL_NO_CLIENT | MODEL_NO_EVALSHA)

/* What the server answers for a while. */
static const unsigned answers[FAULT_COUNT] = {
    [FAULT_ERROR_AFTER] = MODEL_ERROR_AFTER,
    [FAULT_BUSY] = MODEL_BUSY,
    [FAULT_NOREPLICAS] = MODEL_NOREPLICAS,
    [FAULT_MASTERDOWN] = MODEL_MASTERDOWN | MODEL_READONLY,
    [FAULT_NO_COMMAND] = RIGHTS, /* one of them */
    [FAULT_PASSWORD] = MODEL_PASSWORD,
    [FAULT_MUTE] = MODEL_MUTE,
    [FAULT_NO_CHANNELS] = MODEL_NO_CHANNELS,
    [FAULT_OOM] = MODEL_OOM,
    [FAULT_READONLY] = MODEL_READONLY,
    [FAULT_LOADING] = MODEL_LOADING,
    [FAULT_MISCONF] = MODEL_MISCONF,
};

bool fault_is_focus(int fault)
{
    return sim.focused && (sim.focus[0] == fault || sim.focus[1] == fault);
}

/* Both faults of its pair, soon one after the other, among those that the seed enables. */
static void plan_focus(void)
{
    snib__time close = sim.lease / 4;
    sim.enabled |= 1ULL << sim.focus[0] | 1ULL << sim.focus[1];
    sim.enabled |= fault_is_focus(FAULT_LATE) ? 1ULL << FAULT_CUT : 0;
    pace = pace < close ? pace : close;
}

void fault_plan(void)
{
    /* One world in six is undisturbed: there, promptness itself can be checked. */
    unsigned share = (unsigned)sim_draw(6);
    sim.enabled = 0;
    for (int fault = 0; fault < FAULT_COUNT; fault++) {
        if (sim_draw(8) < share) {
            sim.enabled |= 1ULL << fault;
        }
    }
    pace = 10 * SNIB__MS << sim_draw(8);
    if (sim.long_leases) { /* a second between steps, or clients cannot tell one from the next */
        sim.enabled = 1ULL << FAULT_STEP | (sim_chance(2) ? sim.enabled : 0);
        pace = 1280 * SNIB__MS;
    }
    if (sim.focused) {
        plan_focus();
    }
    sim.next_fault = sim.enabled == 0 ? SNIB__NEVER : sim.now + sim_draw(2 * pace);
    sim.clock_ppm = 0;
    if (sim_has(FAULT_CLOCK)) {
        /* The server alone, or all clocks: never more than 1 % between two of them. */
        sim.clock_spread = sim_chance(2) ? 5000 : 0;
        int most = 10000 - sim.clock_spread;
        sim.clock_ppm = sim_chance(3) ? (sim_chance(2) ? most : -most)
                                      : (int)sim_draw(2 * (uint64_t)most + 1) - most;
        totals.faults[FAULT_CLOCK]++;
        pairs_lasts(FAULT_CLOCK);
    }
}

void fault_happens(int fault)
{
    totals.faults[fault]++;
    pairs_happens(fault, sim.now);
}

void fault_answered(void)
{
    unsigned struck = sim.server_kinds == 0 ? 0 : model_struck(sim.model);
    for (int fault = 0; struck != 0 && fault < FAULT_COUNT; fault++) {
        if ((sim.server_kinds >> fault & 1) != 0 && (answers[fault] & struck) != 0) {
            pairs_happens(fault, sim.now);
        }
    }
}

void fault_until(snib__time until)
{
    sim.disturbed_until = until > sim.disturbed_until ? until : sim.disturbed_until;
}

snib__time fault_for_a_while(void)
{
    const snib__time most[] = {3 * sim.lease, sim.lease / 2, 4 * sim.pubsub_delay};
    snib__time until = sim.now + sim_draw(most[sim_draw(3)]);
    fault_until(until);
    return until;
}

static void server_fault(int fault, unsigned model_faults)
{
    sim.server_faults |= model_faults;
    sim.server_kinds |= 1ULL << fault;
    sim.server_faults_until = fault_for_a_while();
    fault_until(sim.server_faults_until + SIM_RETRY); /* pending releases may be in the way */
    model_set_faults(sim.model, sim.server_faults);
}

static void forget_tokens(void)
{
    for (int i = 0; i < sim.name_count; i++) {
        sim.names[i].last_token = 0;
        sim.names[i].tokens_lost_at = sim.now;
    }
}

/* Each of these functions returns whether anything has changed. */

static bool strike_name(int fault)
{
    bool changed = true;
    struct sim_name *name = &sim.names[sim_draw((uint64_t)sim.name_count)];
    if (fault == FAULT_EVICT && sim_chance(5)) {
        model_flush_keys(sim.model);
        forget_tokens();
    } else if (fault == FAULT_EVICT) {
        const char *keys[] = {name->text, name->text, name->token, name->taken};
        const char *fair[] = {name->text, name->queue, name->places, name->beats};
        uint64_t which = sim_draw(4);
        const char *key = name->family == FAMILY_FAIR ? fair[which] : keys[which];
        changed = model_delete(sim.model, sim.database, key, strlen(key));
        name->queue_torn |= changed && name->family == FAMILY_FAIR && which > 0;
        name->last_token = 0;
        name->tokens_lost_at = sim.now;
    } else {
        model_put_string(sim.model, sim.database, name->text, name->n, not_a_lock);
    }
    check_truth(CAUSE_MEMORY);
    fault_until(sim.now + SIM_RETRY); /* a release that met another type is retried */
    return changed;
}

static bool strike_pipe(int fault)
{
    struct sim_pipe *pipe = net_pick();
    if (pipe == NULL) {
        return false;
    }
    if (fault == FAULT_CUT) {
        pipe->cut_next = 1 + (int)sim_draw(2);
        return false; /* not yet */
    }
    snib__time until = fault_for_a_while();
    bool both = sim_chance(3);
    if (both || sim_chance(2)) {
        pipe->to_server.frozen_until = until;
    } else {
        pipe->to_client.frozen_until = until;
    }
    if (both) {
        pipe->to_client.frozen_until = until;
    }
    return true;
}

static void forbid_command(void)
{
    static const unsigned rights[] = {MODEL_NO_PUBLISH, MODEL_NO_SUBSCRIBE, MODEL_NO_INFO,
                                      MODEL_NO_CLIENT, MODEL_NO_EVALSHA};
    server_fault(FAULT_NO_COMMAND, rights[sim_draw(sizeof rights / sizeof *rights)]);
    if (sim.server_faults & (MODEL_NO_INFO | MODEL_NO_CLIENT)) {
        net_spare();
    }
}

/* Connections that are logged in stay so, unless a proxy or an old server wants a new login. */
static void change_password(void)
{
    server_fault(FAULT_PASSWORD, MODEL_PASSWORD);
    if (sim_chance(2)) {
        net_log_out();
    }
}

static void restart(bool with_data)
{
    if (with_data) {
        model_restart_with_data(sim.model);
    } else {
        model_restart(sim.model);
        forget_tokens();
    }
    net_server_died();
    check_truth(CAUSE_MEMORY);
    sim.refuse_until = fault_for_a_while();
    if (sim_has(FAULT_LOADING)) {
        server_fault(FAULT_LOADING, MODEL_LOADING);
    }
}

/* Copies the server's data to the replica, now and then. */
static void replicate(void)
{
    if (sim.replica != NULL && !sim_chance(3)) {
        return;
    }
    if (sim.replica != NULL) {
        model_data_free(sim.replica);
    }
    sim.replica = model_save(sim.model);
}

/* The replica takes over the server's role and address: later grants are unknown, later releases
 * undone. */
static void promote(void)
{
    model_restart_with_data(sim.model);
    model_load(sim.model, sim.replica);
    net_server_died();
    check_truth(CAUSE_MEMORY);
    sim.refuse_until = fault_for_a_while();
}

static bool strike_process(int fault)
{
    int slot = (int)sim_draw((uint64_t)sim.slot_count);
    struct sim_process *process = sim.slots[slot];
    if (fault == FAULT_CLIENT_PAUSE) {
        process->frozen_until = fault_for_a_while();
    } else if (fault == FAULT_LATE_TICK) {
        process->frozen_until = fault_for_a_while();
        process->late_until = process->frozen_until + (process->frozen_until - sim.now);
        fault_until(process->late_until);
    } else if (fault == FAULT_CLOSE) {
        if (process->gone_at != SNIB__NEVER) {
            return false;
        }
        process_close(process);
    } else if (sim.process_count == SIM_PROCESSES) {
        return false;
    } else {
        process_end(process);
        process_new(slot);
    }
    return true;
}

static void strike(int fault)
{
    bool changed = answers[fault] == 0; /* else with the answers */
    fault_until(sim.now);
    switch (fault) {
    case FAULT_CUT:
    case FAULT_STALL:
        changed = strike_pipe(fault);
        break;
    case FAULT_REFUSE:
        sim.refuse_until = fault_for_a_while();
        changed = false; /* with the connections */
        break;
    case FAULT_SERVER_PAUSE:
        sim.server_paused_until = fault_for_a_while();
        break;
    case FAULT_SCRIPT_FLUSH:
        model_flush_scripts(sim.model);
        break;
    case FAULT_RESTART:
    case FAULT_RESTART_AOF:
        restart(fault == FAULT_RESTART_AOF);
        break;
    case FAULT_NO_COMMAND:
        forbid_command();
        break;
    case FAULT_PASSWORD:
        change_password();
        break;
    case FAULT_EVICT:
    case FAULT_OVERWRITE:
        changed = strike_name(fault);
        break;
    case FAULT_STEP:
        clock_step();
        break;
    case FAULT_MEMORY:
        memory_strike();
        changed = false; /* with the allocations */
        break;
    case FAULT_STALE:
        promote();
        break;
    case FAULT_CLIENT_PAUSE:
    case FAULT_LATE_TICK:
    case FAULT_CLOSE:
    case FAULT_CRASH:
        changed = strike_process(fault);
        break;
    default:
        if (answers[fault] == 0) {
            return; /* happens elsewhere: DELAY, SLICE, LATE, CLOCK, FORCE, STOP */
        }
        server_fault(fault, answers[fault]);
    }
    if (fault != FAULT_CUT && fault != FAULT_MEMORY) {
        totals.faults[fault]++;
    }
    if (changed) {
        pairs_happens(fault, sim.now);
    }
    if (fault == FAULT_REFUSE || fault == FAULT_RESTART || fault == FAULT_RESTART_AOF ||
        fault == FAULT_STALE) {
        sim.refuse_kind = fault;
    }
    sim_trace("fault %d", fault);
}

static int draw_fault(void)
{
    int fault = sim.focused && sim_chance(2) ? sim.focus[sim_draw(2)]
                : sim_chance(3)              ? FAULT_CUT
                                             : (int)sim_draw(FAULT_COUNT);
    while (!sim_has(fault)) {
        fault = (fault + 1) % FAULT_COUNT;
    }
    return fault;
}

snib__time fault_next(void)
{
    snib__time ends = sim.server_faults != 0 ? sim.server_faults_until : SNIB__NEVER;
    return sim.next_fault < ends ? sim.next_fault : ends;
}

void fault_run(void)
{
    if (sim.server_faults != 0 && sim.server_faults_until <= sim.now) {
        sim.server_faults = 0;
        sim.server_kinds = 0;
        model_set_faults(sim.model, 0);
    }
    if (sim.next_fault <= sim.now) {
        int fault = draw_fault();
        /* Faults come in clusters: one that strikes what another has left is the hardest. */
        sim.next_fault = sim.now + 1 + sim_draw(sim_chance(3) ? 10 * sim.delay : 2 * pace);
        if (sim_has(FAULT_STALE)) {
            replicate();
        }
        strike(fault);
    }
}

bool fault_is_overwritten(const struct sim_name *name)
{
    model_text field, value;
    return model_field_at(sim.model, sim.database, name->text, name->n, 0, &field, &value) &&
           value.n == sizeof not_a_lock - 1 && memcmp(value.p, not_a_lock, value.n) == 0;
}

void fault_end_all(void)
{
    sim.next_fault = SNIB__NEVER;
    sim.server_faults = 0;
    sim.server_kinds = 0;
    sim.server_paused_until = sim.refuse_until = sim.memory_short_until = 0;
    model_set_faults(sim.model, 0);
    for (int i = 0; i < sim.name_count; i++) {
        struct sim_name *name = &sim.names[i];
        if (fault_is_overwritten(name)) {
            model_delete(sim.model, sim.database, name->text, name->n);
        }
    }
    for (int i = 0; i < sim.slot_count; i++) {
        struct sim_process *process = sim.slots[i];
        process->frozen_until = process->frozen_until < sim.now ? process->frozen_until : sim.now;
        process->late_until = process->late_until < sim.now ? process->late_until : sim.now;
    }
    clock_set_right();
    net_heal();
    fault_until(sim.now + SIM_RETRY);
}
