/* calls.c - see calls.h. */
#include "calls.h"

#include "replies.h"

void calls_gates(struct party *p, const struct call_lock *locks, unsigned n)
{
    for (unsigned i = 0; i < n; i++)
        party_gate(p, i, locks[i].kind, locks[i].name, locks[i].n);
}

snib__time calls_span(unsigned which)
{
    static const snib__time spans[] = {1,    5,    20,   100,   333,   1000,
                                       1500, 3000, 9901, 10000, 29695, 31000};
    return spans[which % 12] * SNIB__MS;
}

static void acquire(struct party *p, unsigned gates, const uint8_t step[STEP])
{
    struct snib__gate *gate = p->gates[step[1] % gates];
    int32_t kind = gate ? snib__gate_kind(gate) : 0;
    bool unowned = kind == SNIB_SEMAPHORE || kind == SNIB_LATCH;
    bool counted = unowned || kind == SNIB_PERMITS;
    bool fenced = (kind == SNIB_FAIR || kind == SNIB_WRITE) && step[3] & 16;
    unsigned wait = step[2] % 4, lease = step[2] / 4 % 8;
    struct snib__acquire how = {.owner = counted ? 0 : step[3] % 4,
                                .wait = wait == 0   ? 0
                                        : wait == 1 ? calls_span(step[3])
                                                    : SNIB__NEVER,
                                .lease = unowned || lease > 2 ? 0 : (lease + 1) * SECOND,
                                .max_hold = !unowned && lease == 7 ? 5 * SECOND : 0,
                                .permits = 1u + step[3] / 4 % 3,
                                .options = fenced ? SNIB_LOCK_FENCED : 0,
                                .patient = wait == 0 && step[3] & 64};
    snib__engine_call(p->e, step[3] & 128);
    party_acquire(p, gate, &how);
    snib__engine_call(p->e, false);
}

bool calls_step(struct party *p, unsigned gates, const uint8_t step[STEP])
{
    switch (step[0] % 32) {
    case 0:
    case 1:
    case 2:
        acquire(p, gates, step);
        return false;
    case 3:
    case 4:
        party_release(p, step[1]);
        return false;
    case 5:
        party_drop(p, step[1]);
        return false;
    case 6:
        party_abandon(p, step[1]);
        return false;
    case 7:
        party_cancel(p, step[1]);
        return false;
    case 8:
        party_ask(p, step[1], p->gates[step[2] % gates], number_any(step[3]));
        return step[1] % 7 == 1 || step[1] % 7 == 6;
    default:
        if (step[1] == 7 && step[2] == 7)
            party_close(p);
        return false;
    }
}

void calls_settle(struct party *p, calls_serve *serve)
{
    bool more = true;
    for (unsigned rounds = 0; more; rounds++) {
        MUST(rounds < 3000); /* no messages without end */
        more = false;
        party_wishes(p);
        for (unsigned i = 0; i < PARTY_PIPES && p->pipes[i].link; i++)
            more |= serve(p, &p->pipes[i]);
        if (snib__engine_deadline(p->e) <= p->now) {
            party_tick(p);
            more = true;
        }
    }
}

void calls_run(struct party *p, calls_serve *serve, snib__time span, unsigned moments)
{
    snib__time until = p->now + span;
    calls_settle(p, serve);
    while (p->now < until && moments-- > 0) {
        snib__time next = party_next(p);
        next = next < until ? next : until;
        party_pass(p, next > p->now ? next - p->now : SNIB__MS);
        calls_settle(p, serve);
    }
}

void calls_leave_all(struct party *p)
{
    for (unsigned i = 0; i < PARTY_OPS; i++)
        if (p->ops[i] && p->ops[i]->kind != SNIB__OP_RELEASE)
            party_cancel(p, i);
    party_drop_all(p);
}

void calls_check_rest(const struct party *p)
{
    const struct snib__engine *e = p->e;
    for (unsigned i = 0; i < PARTY_HOLDS; i++)
        MUST(!p->holds[i].hold);
    MUST(e->live_n == 0 && e->chans_n == 0 && e->heap_n == 0 && e->paused_n == 0);
    MUST(e->stats.held == 0 && e->releasing == 0);
    MUST(!e->lost_head && !e->done_head && !e->idle_head);
    for (const struct snib__node *node = e->nodes; node; node = node->next)
        MUST(node->todo_n == 0);
    for (uint32_t i = 0; i < e->gates_cap; i++)
        for (const struct snib__gate *gate = e->gates[i]; gate; gate = gate->next)
            MUST(!gate->active && !gate->waitq && gate->unanswered == 0);
}
