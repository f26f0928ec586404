/* tenure.c - the next waiter of this process goes on under the number that the server knows.
 *
 * A hand-over by command lets the next waiter start a round trip after the hold before it has ended.  Here it starts at
 * once: it takes over the number, and with it the lease, and the release before it only asks whether the server still has
 * that number.
 *
 *     the first is released, another waits:  RELEASING, asks      the other: HELD, same number
 *     the server has the number              released             ...
 *     it has not                             LOST                 LOST
 *
 * No promise is weaker for it.  A number is acquired once, so a server that has it after a release has had it until then:
 * the question proves as much as a release does.  The server's owner is one of this client either way, with the same lease
 * and deadline, and a client that dies leaves the same key.  Until the answer comes, the next hold is like any hold between
 * two renewals, and for two round trips at most, because the question is about its lease, too.  Only a hold that is free
 * of doubt is followed in this way, and a chain of such hand-overs ends when one by command would (sole.c), so that other
 * clients have their turns.
 *
 * One question of a gate is in flight at a time.  What is released meanwhile shares the next one.
 */
#include "engine/internal.h"

/* Its lease is the client's, and nothing but renewals has moved the server's: what follows it may have that, too. */
static bool tenure_plain(const struct snib__hold *hold)
{
    bool vote = hold->gate->kind->kind == SNIB_MUTEX && hold->vote_ms > 0;
    return hold->lease_ms == 0 && !vote && !hold->extended &&
           !(hold->flags & (SNIB__RESENT | SNIB__ABANDONED));
}

/* A refused question is repeated after a pause: what is released meanwhile would wait for that, and not hear of the refusal. */
static bool tenure_is_refused(const struct snib__waitq *waitq)
{
    const struct snib__hold *asked = waitq->asked;
    while (asked && asked->timer_at == 0)
        asked = asked->prev;
    return asked != NULL;
}

/* What shortens the lease of its number, and is astray, would be taken for older than what follows it.  That may be on its
 * way where leases are corrected, and a member may get a longer one. */
static bool tenure_can_pass(const struct snib__engine *e, const struct snib__hold *hold,
                            snib__time now)
{
    const struct snib__waitq *waitq = hold->gate->waitq;
    return e->config.tenure && (hold->gate->kind->traits & SNIB__TENURE) && waitq && waitq->head &&
           !tenure_is_refused(waitq) && hold->phase == SNIB__HELD && tenure_plain(hold) &&
           tenure_plain(waitq->head->hold) && !snib__extend_is_undone(e, hold) &&
           !(waitq->head->hold->member && hold->gate->node->moved_back) &&
           snib__hold_state(e, hold, now) == SNIB_HOLD_VALID;
}

/* A thread that waits for the end of the release reads where the answer comes. */
static void tenure_note_link(struct snib__hold *hold)
{
    if (hold->op)
        hold->op->link = hold->gate->unanswered > 0 ? hold->gate->lane : NULL;
}

/* Its release is sent once more: the release of the number may be ahead of that now. */
void snib__tenure_again(struct snib__hold *hold)
{
    if (hold->passed)
        hold->flags |= SNIB__RESENT;
}

/* Ask for all that have been released since the last question.  A request that ends the number comes after it. */
void snib__tenure_ask(struct snib__engine *e, struct snib__gate *gate, snib__time now)
{
    struct snib__waitq *waitq = gate->waitq;
    struct snib__hold *first = waitq->behind;
    if (!first)
        return;
    waitq->behind = NULL;
    waitq->asking++;
    first->prev = waitq->asked;
    waitq->asked = first;
    snib__gate_send_release(e, first, now);
    for (struct snib__hold *hold = first; hold; hold = hold->next)
        tenure_note_link(hold);
}

bool snib__tenure_pass(struct snib__engine *e, struct snib__hold *hold, snib__time now)
{
    struct snib__gate *gate = hold->gate;
    struct snib__waitq *waitq = gate->waitq;
    if (!tenure_can_pass(e, hold, now) || !snib__sole_may_hand_over(e, hold, now))
        return false;
    snib__time sent_at = hold->deadline - snib__lease_end(0, e->config.lease);
    struct snib__hold *next = waitq->head->hold;
    snib__waitq_remove(waitq, waitq->head);
    snib__timer_cancel(e, &waitq->timer_at);
    snib__hold_stop(e, hold);
    hold->phase = SNIB__RELEASING;
    hold->passed = 1;
    e->stats.held--;
    e->stats.handovers++;
    e->releasing++;
    e->moves++;
    gate->active = next;
    next->number = hold->number;
    snib__gate_ref(gate);
    hold->next = waitq->behind;
    waitq->behind = hold;
    if (waitq->asking == 0)
        snib__tenure_ask(e, gate, now);
    else
        tenure_note_link(hold);
    if (snib__gate_grant(e, next, 0, sent_at, now))
        snib__sole_known(e, waitq, now, now);
    snib__gate_put(e, gate);
    return true;
}

int snib__tenure_encode(struct snib__buf *out, const struct snib__engine *e,
                        struct snib__hold *hold)
{
    return hold->gate->kind->renew(out, e, &hold, 1, 0);
}

void snib__tenure_unlink(struct snib__hold *hold)
{
    struct snib__hold **at = &hold->gate->waitq->asked;
    while (*at != hold)
        at = &(*at)->prev;
    *at = hold->prev;
}

/* A release of the number begins: nothing has said that the server does not have it, or there would be none.  A
 * question about it that is repeated from now on may be behind that. */
void snib__tenure_ends(const struct snib__hold *hold)
{
    const struct snib__waitq *waitq = hold->gate->waitq;
    for (struct snib__hold *asked = waitq ? waitq->asked : NULL; asked; asked = asked->prev)
        asked->unsure |= asked->number == hold->number;
    for (struct snib__hold *behind = waitq ? waitq->behind : NULL; behind; behind = behind->next)
        behind->unsure |= behind->number == hold->number;
}

/* A question has ended. */
void snib__tenure_ended(struct snib__engine *e, struct snib__gate *gate, snib__time now)
{
    if (--gate->waitq->asking > 0)
        return;
    snib__tenure_ask(e, gate, now);
    snib__waitq_rest(e, gate, now);
}

/* The server does not have the number: all that had it is lost.  Unless it was released meanwhile, before anything said
 * that it is missing, by a request that has overtaken a repetition of this one, before the lease can have ended. */
void snib__tenure_answer(struct snib__engine *e, struct snib__hold *hold,
                         const struct snib__value *reply, uint32_t n, snib__time now)
{
    struct snib__gate *gate = hold->gate;
    struct snib__hold *heir = gate->active;
    bool there = reply->type == SNIB__RESP_ARRAY && n == 1, taken = n > 2 && reply[2].integer;
    bool follows =
        heir &&
        heir->number == hold->number; /* whether held or being released, it knows of a failover */
    bool held = follows && heir->phase == SNIB__HELD && !snib__hold_over(e, heir, now);
    bool released = hold->unsure && (hold->flags & SNIB__RESENT) && now < hold->deadline;
    bool ours = there || released;
    int reason = snib__hold_denied(follows ? heir : hold, taken);
    snib__gate_ref(gate);
    for (struct snib__hold *lost = ours ? NULL : hold; lost; lost = lost->next) {
        lost->reason = now >= lost->deadline ? SNIB_REASON_UNREACHABLE : (unsigned)reason & 7u;
        snib__hold_found_lost(e, lost, now);
    }
    snib__gate_released(e, hold, ours ? SNIB_OK : SNIB_LOST, now);
    if (!ours && held)
        snib__hold_lose(e, heir, reason, now);
    snib__gate_put(e, gate);
}
