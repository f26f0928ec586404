"""Planted bugs: hand-over inside the process without a command."""

from . import Mutant

MUTANTS = [
    Mutant(
        "a release takes a number away that went on",
        "engine/send.c",
        "return hold->passed ? snib__tenure_encode(out, e, hold)",
        "return hold->passed && !hold->op ? snib__tenure_encode(out, e, hold)",
    ),
    Mutant(
        "the next one trusts the number of a hold in doubt",
        "engine/tenure.c",
        "snib__hold_state(e, hold, now) == SNIB_HOLD_VALID",
        "now < hold->deadline",
        "unit_tenure",
    ),
    Mutant(
        "the server's refusal is told to one of those that share a question",
        "engine/release.c",
        "each = hold->passed ? each->next : NULL) {",
        "each = NULL) {",
        "unit_tenure",
    ),
    Mutant(
        "a fixed lease goes on",
        "engine/tenure.c",
        "return hold->lease_ms == 0 && !vote",
        "return !vote",
    ),
    Mutant(
        "a vote's number goes on",
        "engine/tenure.c",
        "&& !vote && !hold->extended",
        "&& !hold->extended",
        "unit_tenure",
    ),
    Mutant(
        "an extended lease goes on",
        "engine/tenure.c",
        "&& !vote && !hold->extended",
        "&& !vote",
        "unit_tenure",
    ),
    Mutant(
        "the next one has a whole lease",
        "engine/tenure.c",
        "snib__gate_grant(e, next, 0, sent_at, now)",
        "snib__gate_grant(e, next, 0, sent_at < now ? now : sent_at, now)",
    ),
    Mutant(
        "a chain of hand-overs without commands has no end",
        "engine/tenure.c",
        "if (!tenure_can_pass(e, hold, now) || !snib__sole_may_hand_over(e, hold, now))",
        "if (!tenure_can_pass(e, hold, now) || e->config.handover_max == 0)",
        "unit_tenure",
    ),
    Mutant(
        "an earlier question counts for later releases",
        "engine/tenure.c",
        "snib__tenure_ask(e, gate, now); snib__waitq_rest(e, gate, now);",
        """struct snib__hold *behind = gate->waitq->behind;
        gate->waitq->behind = NULL;
        gate->waitq->asking += behind != NULL;
        if (behind)
            snib__gate_released(e, behind, SNIB_OK, now);
        else
            snib__waitq_rest(e, gate, now);""",
    ),
    Mutant(
        "a question comes behind the release of its number",
        "engine/release.c",
        "snib__tenure_ask(e, hold->gate, now); waitq->chain = 0;",
        "waitq->chain = 0;",
    ),
    Mutant(
        "a question comes behind the transfer of its number",
        "engine/sole.c",
        "snib__tenure_ask(e, gate, now); snib__waitq_remove(gate->waitq, next);",
        "snib__waitq_remove(gate->waitq, next);",
        "unit_tenure",
    ),
    Mutant(
        "a number that is gone is no loss for its last release",
        "engine/tenure.c",
        "bool ours = there || released;",
        "bool ours = there || released || hold->op;",
    ),
    Mutant(
        "a number that is gone is no loss for its present hold",
        "engine/tenure.c",
        "if (!ours && held)",
        "if (!ours && held && e->closed)",
    ),
    Mutant(
        "a repeated question proves the number",
        "engine/tenure.c",
        "bool released = hold->unsure && (hold->flags",
        "bool released = (hold->flags",
        "unit_tenure",
    ),
    Mutant(
        "the release of a hold that was lost by its own limit does not count for the question before it",
        "engine/release.c",
        "    snib__tenure_ends(hold);\n",
        "    if (there) snib__tenure_ends(hold);\n",
        "unit_tenure",
    ),
    Mutant(
        "only the last number that was released counts for a repeated question",
        "engine/tenure.c",
        "asked->unsure |= asked->number == hold->number;",
        "asked->unsure = asked->number == hold->number;",
        "unit_tenure",
    ),
    Mutant(
        "a question that was overtaken by the release is a loss",
        "engine/tenure.c",
        "bool ours = there || released;",
        "bool ours = there;",
        "unit_tenure",
    ),
    Mutant(
        "a question that was overtaken long ago proves the number",
        "engine/tenure.c",
        "(hold->flags & SNIB__RESENT) && now < hold->deadline;",
        "(hold->flags & SNIB__RESENT);",
        "unit_tenure",
    ),
    Mutant(
        "a refused question that was overtaken is a loss",
        "engine/release.c",
        "snib__tenure_again(hold);",
        "",
        "unit_tenure",
    ),
    Mutant(
        "a question that was repeated for its script, behind the release, is a loss",
        "engine/send.c",
        "if (released && request->script != -1)",
        "if (released && request->redirects > 0)",
        "unit_tenure",
    ),
    Mutant(
        "a wait queue is freed under a question",
        "engine/waitq.c",
        "if (snib__waitq_used(waitq) || gate->trying > 0 ||",
        "if (waitq->head || waitq->incoming || gate->trying > 0 ||",
    ),
    Mutant(
        "a wait queue is freed under a question when its channel is lost",
        "engine/chan.c",
        "if (!snib__waitq_used(waitq))",
        "if (!waitq->head && !waitq->incoming)",
    ),
    Mutant(
        "a number that went on is released after a failover",
        "engine/given.c",
        "&& !hold->passed;",
        "&& (!hold->passed || hold->acquired_at);",
    ),
    Mutant(
        "a release that shares a question reads on another connection",
        "engine/tenure.c",
        "hold->op->link = hold->gate->unanswered > 0 ? hold->gate->lane : NULL;",
        "hold->op->link = hold->gate->unanswered > 0 ? NULL : hold->gate->lane;",
        "sim_driver",
    ),
    Mutant(
        "of releases that share a question only one may have been answered",
        "engine/release.c",
        "for (struct snib__hold *each = hold; each; each = hold->passed ? each->next : NULL) each->flags |= SNIB__RESENT;",
        "hold->flags |= SNIB__RESENT;",
        "unit_tenure question_without_an",
    ),
    Mutant(
        "a number whose lease a request astray may shorten goes on to another hold, which may be extended",
        "engine/tenure.c",
        "!snib__extend_is_undone(e, hold) &&",
        "",
        "unit_tenure doubts_by_command",
    ),
    Mutant(
        "a release that went on blames somebody for a lease that had ended",
        "engine/tenure.c",
        "now >= lost->deadline ? SNIB_REASON_UNREACHABLE : (unsigned)reason & 7u;",
        "(unsigned)reason & 7u;",
        "unit_tenure repeated_question_comes",
    ),
    Mutant(
        "a number that is being released does not say that its server has changed",
        "engine/tenure.c",
        "snib__hold_denied(follows ? heir : hold, taken)",
        "snib__hold_denied(held ? heir : hold, taken)",
        "unit_tenure failover_is_the_reason",
    ),
    Mutant(
        "a member inherits a number of which a correction may be astray",
        "engine/tenure.c",
        "!(waitq->head->hold->member && hold->gate->node->moved_back) &&",
        "",
        "unit_tenure doubts_by_command",
    ),
]
