/* sim_clock.c - the server's wall clock, which may be set, and what clients conclude from it.
 *
 * A lease ends by that clock.  One that ends early because the clock was set forward since it began
 * is excused from exclusion and from nothing else: a deadline is still not later than the lease
 * would have lasted.  One that lasts longer because the clock was set back only delays waiters.
 */
#include "sim.h"

#include "engine/internal.h"

static void set_by(int64_t step)
{
    sim_trace("the server's clock is set by %+lld us", (long long)step / 1000);
    sim.steps++;
    sim.set_at = sim.now;
    sim.step_ns += step;
    sim.ahead_ns = sim.step_ns > sim.ahead_ns ? sim.step_ns : sim.ahead_ns;
    for (int i = 0; i < sim.name_count; i++) {
        sim.names[i].queue_skewed |= sim.names[i].alien;
    }
    model_time(sim.model, sim_server_ns(sim.now));
    sim.next_expiry_ns = 0;
    check_truth(CAUSE_EXPIRED);
}

snib__time sim_longest(void)
{
    return sim.long_leases ? 4 * sim.lease : sim.lease;
}

void clock_step(void)
{
    static const snib__time most[] = {20 * SNIB__MS, 0, 3600000 * SNIB__MS};
    snib__time up_to = most[sim_draw(3)];
    int64_t step = (int64_t)sim_between(1, up_to ? up_to : 2 * sim.lease);
    set_by(sim_chance(2) ? step : -step);
}

/* End everything that outlives its time because the clock was set back. */
void clock_set_right(void)
{
    if (clock_lag() > 0) {
        set_by(clock_lag());
    }
}

int64_t clock_lag(void)
{
    return sim.ahead_ns - sim.step_ns;
}

bool clock_keeps(const struct sim_claim *claim)
{
    return claim->expires_ns <= sim_server_ns(sim.now) + (uint64_t)clock_lag();
}

uint64_t clock_unset(const struct sim_claim *claim, snib__time at)
{
    return sim_server_ns(at) + (uint64_t)(claim->step_ns - sim.step_ns);
}

/* The server answers TIME. */
void clock_asked(uint64_t connection)
{
    struct sim_process *process = net_client(connection);
    if (process != NULL) {
        process->asked.steps = process->asked.n == 0 ? sim.steps : process->asked.steps;
        process->asked.at = sim.now;
        process->asked.step_ns = sim.step_ns;
        process->asked.n++;
    }
}

/* What the engine cannot distinguish from unequal rates and slow replies. */
static int64_t blur(const struct sim_process *process)
{
    snib__time passed = process->asked.at - process->told.at;
    return (int64_t)(process->asked.n * (10 * SNIB__MS + 8 * sim.delay) + passed / 30);
}

static void check_answer(struct sim_process *process)
{
    int64_t moved = process->asked.step_ns - process->told.step_ns;
    bool same = process->told.at != 0 && process->told.at > process->links[0].connected_at;
    bool large = moved > blur(process) || -moved > blur(process);
    if (same && large && process->moves == process->told.moves) {
        sim_fail("%u has asked for the time before and after it was set by %lld us, and has not "
                 "counted that",
                 process->id, (long long)moved / 1000);
    }
    process->told = process->asked;
    process->told.moves = process->moves;
    process->asked = (struct sim_sample){0};
}

/* Every step of the clock that a client can see is counted, and nothing else is. */
void check_clock(struct sim_process *process)
{
    uint64_t moves = process->engine->stats.clock_moves;
    if (moves != process->moves) {
        if (process->steps == sim.steps) {
            sim_fail("%u has seen the server's clock move, but it was not set", process->id);
        }
        process->moves = moves;
        /* Steps after the server answered show in the next reply. */
        process->steps = process->asked.n > 0 ? process->asked.steps : sim.steps;
        process->alarmed_at = sim_clock(process);
    }
    if (process->asked.at != 0 && sim.now > process->asked.at + SIM_PROMPT &&
        check_clear_since(process, SNIB__COMMAND) <= process->asked.at) {
        check_answer(process);
    }
}

/* Whether a step has been counted since the hold was granted or renewed. */
bool clock_alarmed(const struct sim_process *process, const struct snib__hold *hold)
{
    snib__time lease = hold->lease_ms ? hold->lease_ms * SNIB__MS : process->lease;
    return process->alarmed_at != 0 && hold->deadline < SNIB__NEVER / 2 &&
           hold->deadline < snib__lease_end(process->alarmed_at, lease);
}
