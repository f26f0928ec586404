/* sim_crowd.c - worlds in which all tasks want one lock all the time.
 *
 * Nothing is disturbed and links are quick.  A Redisson's threads are slower to wake than an engine
 * is to ask again, and in some worlds they only listen.  Every waiter must have its turns, and
 * while there is a waiter the lock must not lie unused for long.
 */
#include "sim.h"

#define CHAIN (10 * SNIB__MS) /* the engine's: a chain of hand-overs keeps others out for so long */

void crowd_plan(void)
{
    sim.enabled = 0;
    sim.clock_ppm = 0;
    sim.next_fault = SNIB__NEVER;
    sim.name_count = 1;
    sim.delay = sim_between(SNIB__MS / 50, SNIB__MS / 4);
    sim.pubsub_delay = sim.delay;
    sim.think = sim_between(SNIB__MS / 50, SNIB__MS / 4);
    sim.lease = 3000 * SNIB__MS;
    sim.unequal = false;
    sim.handover_max = sim_chance(2) ? 16 : sim.handover_max;
    sim.crowd_hold = sim_chance(4) ? 20 * SNIB__MS : SNIB__MS / 4;
    sim.listeners = sim_chance(4);
}

/* Some hundred turns; where listeners have to be detected, time for that. */
snib__time crowd_end(void)
{
    return sim.now + (sim.listeners ? 1500 : 300) * SNIB__MS + 200 * sim.crowd_hold;
}

int crowd_family(void)
{
    static const int families[] = {FAMILY_MUTEX, FAMILY_MUTEX, FAMILY_FENCED, FAMILY_PLAIN};
    return families[sim_draw(sizeof families / sizeof *families)];
}

static bool waits(const struct sim_process *process)
{
    for (int i = 0; i < SIM_TASKS && !process->foreign; i++) {
        if (process->tasks[i].doing == DOING_WAIT) {
            return true;
        }
    }
    return process->foreign && peer_waits(process);
}

/* Limits how often and how long one process hands the lock on within itself while others wait. */
static void check_run(const struct sim_claim *came, bool others_wait)
{
    if (came->process != sim.last || !others_wait) {
        sim.last = came->process;
        sim.run_since = sim.now;
        sim.run = 0;
    }
    if (sim.peer_count == 0 && ++sim.run > (uint32_t)sim.handover_max + 1) {
        sim_fail("%u hands the lock on inside itself %u times while others wait", came->process->id,
                 sim.run - 1);
    }
    snib__time most = CHAIN + sim.crowd_hold + 4 * sim.delay + SNIB__MS;
    if (sim.peer_count == 0 && sim.now > sim.run_since + most) {
        sim_fail("%u hands the lock on inside itself for %llu ms while others wait",
                 came->process->id, (unsigned long long)((sim.now - sim.run_since) / SNIB__MS));
    }
}

/* Engines take turns in a ring: while one waits, each of the others has one chain of hand-overs.
 * An engine that asks at a release may lose the race at the server, which lets another in once
 * more: in 100 turns of 350,000, and rarely more than once for each of the others.  Four rounds are
 * not chance any more. */
static void check_passed_over(const struct sim_process *process)
{
    if (sim.peer_count == 0 && process->passed_over > 4 * (uint32_t)(sim.slot_count - 1)) {
        sim_fail("%u waits while others have had the lock in turn %u times", process->id,
                 process->passed_over);
    }
}

/* The lock was granted. */
void crowd_turn(const struct sim_name *name, const struct sim_claim *came)
{
    bool others_wait = false;
    if (!sim.calm || sim.winding_down) {
        return;
    }
    for (uint32_t i = 0; i < sim.process_count; i++) {
        struct sim_process *process = sim.processes[i];
        bool passed = process != came->process && waits(process);
        others_wait |= passed;
        process->passed_over = passed ? process->passed_over + (came->process != sim.last) : 0;
        check_passed_over(process);
    }
    came->process->turns++;
    check_run(came, others_wait);
    if (others_wait && name->open_since[0] != SNIB__NEVER) {
        sim.unused += sim.now - name->open_since[0];
    }
}

/* Every process had at least a quarter of an equal share; engines had equal shares, unless they
 * first had to detect peers that only listen. */
void crowd_check(void)
{
    double all = 0, threads = 0, ours = 0, squares = 0;
    for (uint32_t i = 0; i < sim.process_count; i++) {
        const struct sim_process *process = sim.processes[i];
        double turns = process->turns;
        all += turns;
        threads += process->foreign ? PEER_THREADS : sim.task_count;
        ours += process->foreign ? 0 : turns;
        squares += process->foreign ? 0 : turns * turns;
    }
    for (uint32_t i = 0; i < sim.process_count; i++) {
        const struct sim_process *process = sim.processes[i];
        double equal = all / threads * (process->foreign ? PEER_THREADS : sim.task_count);
        if (!(process->foreign && sim.listeners) && process->turns < equal / 4) {
            sim_fail("%u had %u turns of %.0f, an equal part is %.0f", process->id, process->turns,
                     all, equal);
        }
    }
    if (!sim.listeners && ours * ours < 0.95 * sim.slot_count * squares) {
        sim_fail("engines share the lock with a Jain index of %.2f",
                 ours * ours / (sim.slot_count * squares));
    }
    if (sim.unused > (sim.now - sim.calm_at) * 3 / 4) {
        sim_fail("the lock was free for %llu ms of %llu although a waiter was there",
                 (unsigned long long)(sim.unused / SNIB__MS),
                 (unsigned long long)((sim.now - sim.calm_at) / SNIB__MS));
    }
}
