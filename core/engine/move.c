/* move.c - names that move to another node: their slot has moved, or another server has taken over.
 *
 * Requests in flight at the old node are answered there or not at all, and are resent to the new
 * node either way: every request of an owner may be repeated.  Holds are at risk until the new
 * server has confirmed them; it is asked at once, or as soon as a connection to it is ready.
 */
#include "engine/route.h"

/* Unlink renewed holds from their list and collect them: there may be many, and the list is ordered.  One that is being
 * released is not asked about: its release tells. */
static void move_holds(struct snib__engine *e, struct snib__gate *gate, struct snib__node *node,
                       struct snib__hold **moved)
{
    for (struct snib__hold *hold = snib__gate_first(gate); hold;
         hold = snib__gate_next(gate, hold)) {
        bool held = hold->phase == SNIB__HELD;
        if ((!held && hold->phase != SNIB__RELEASING) || !gate->kind->renew ||
            hold->deadline == SNIB__NEVER)
            continue;
        hold->flags |= SNIB__INHERITED;
        node->inherited |= held;
        if (!(hold->flags & SNIB__LISTED))
            continue;
        snib__watchdog_remove(e, hold);
        hold->next = *moved;
        *moved = hold;
    }
}

/* It is in a slot, so it is not that of a lock of several clients. */
static void move_gate(struct snib__engine *e, struct snib__gate *gate, struct snib__node *node,
                      struct snib__hold **moved, snib__time now)
{
    move_holds(e, gate, node, moved);
    gate->node = node;
    snib__gate_neighbours(gate)->moved_at = now;
    if (gate->waitq)
        snib__chan_move(e, gate->waitq, node, now);
    bool used = gate->active || (gate->waitq && gate->waitq->head);
    if (used && !snib__node_ready(node))
        snib__node_want(e, node, now); /* sleeping waiters hear nothing before it is connected */
}

/* ---- collected holds ---- */

static bool move_before(const struct snib__hold *one, const struct snib__hold *other)
{
    const struct snib__gate *a = one->gate, *b = other->gate;
    if (a->node != b->node)
        return a->node < b->node;
    if (a->kind != b->kind)
        return a->kind->kind < b->kind->kind;
    return one->deadline < other->deadline;
}

/* A merge sort: by node, kind and deadline. */
static struct snib__hold *move_sort(struct snib__hold *chain)
{
    struct snib__hold *half = chain, *sorted = NULL, **at = &sorted;
    if (!chain || !chain->next)
        return chain;
    for (struct snib__hold *end = chain->next; end && end->next; end = end->next->next)
        half = half->next;
    struct snib__hold *rest = move_sort(half->next);
    half->next = NULL;
    chain = move_sort(chain);
    while (chain && rest) {
        struct snib__hold **first = move_before(rest, chain) ? &rest : &chain;
        *at = *first;
        at = &(*first)->next;
        *first = *at;
    }
    *at = chain ? chain : rest;
    return sorted;
}

/* A question about a fixed lease that cannot be sent for want of memory is asked later: no renewal would find out. */
static void move_ask(struct snib__engine *e, struct snib__gate *gate, bool anew, snib__time now)
{
    for (struct snib__hold *hold = snib__gate_first(gate); hold;
         hold = snib__gate_next(gate, hold)) {
        bool asked = (hold->flags & SNIB__ASKED) && !anew;
        int64_t lease = hold->flags & SNIB__LISTED ? (int64_t)(e->config.lease / SNIB__MS) : 0;
        if (!(hold->flags & SNIB__INHERITED) || hold->phase != SNIB__HELD || asked)
            continue;
        if (snib__watchdog_single(e, hold, lease, now) == 0)
            hold->flags |= SNIB__ASKED;
        else if (hold->lease_ms)
            snib__watchdog_ask_later(hold, now);
    }
}

void snib__slot_moved(struct snib__engine *e, int32_t slot, struct snib__hold *moved,
                      snib__time now)
{
    moved = move_sort(moved);
    while (moved) {
        struct snib__hold *chain = moved, *last = moved;
        while (last->next && last->next->gate->node == chain->gate->node &&
               last->next->gate->kind == chain->gate->kind)
            last = last->next;
        moved = last->next;
        last->next = NULL;
        snib__watchdog_merge(e, chain);
    }
    for (struct snib__op *op = e->live, *next; op; op = next) {
        next = op->live_next;
        if (slot < 0 || !op->gate || op->gate->slot == slot)
            snib__op_arm(e, op);
    }
    snib__given_redo(e, now);
}

void snib__slot_move(struct snib__engine *e, uint16_t slot, struct snib__node *node,
                     struct snib__hold **moved, snib__time now)
{
    for (struct snib__gate *gate = e->slots[slot]; gate; gate = snib__gate_neighbours(gate)->next)
        if (gate->node != node)
            move_gate(e, gate, node, moved, now);
}

void snib__slot_confirm(struct snib__engine *e, uint16_t slot, bool anew, snib__time now)
{
    for (struct snib__gate *gate = e->slots[slot]; gate; gate = snib__gate_neighbours(gate)->next)
        if (snib__node_ready(gate->node))
            move_ask(e, gate, anew, now);
}
