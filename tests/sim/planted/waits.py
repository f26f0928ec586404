"""Planted bugs: waiting: turns, hand-overs, places in a fair queue, shared locks."""

from . import Mutant

MUTANTS = [
    Mutant(
        "whoever has released comes before strangers",
        "engine/turn.c",
        "return wait->owed > 0 && now",
        "return false && wait->owed > 0 && now",
        "unit_turn",
    ),
    Mutant(
        "a contested chain is as long as any",
        "engine/sole.c",
        "if (snib__turn_contested(wait) && ",
        "if (false && snib__turn_contested(wait) && ",
    ),
    Mutant(
        "who only listens is waited for each time",
        "engine/turn.c",
        "wait->absent += wait->owed;",
        "wait->absent += 0;",
        "unit_turn",
    ),
    Mutant(
        "a chain of hand-overs for 10 s",
        "engine/sole.c",
        "(10 * SNIB__MS) /* hand-overs in a row",
        "(10000 * SNIB__MS) /* hand-overs in a row",
    ),
    Mutant(
        "a doubtful hand-over to who has left is forgotten",
        "engine/sole.c",
        "else if (next->flags & SNIB__RESENT)",
        "else if (false && (next->flags & SNIB__RESENT))",
    ),
    Mutant(
        "who wants little is not told that who wanted much has left",
        "engine/share.c",
        "if ((!awake && snib__chan_on(wait)) || left)",
        "if (!awake && snib__chan_on(wait) && !(left && false))",
    ),
    Mutant(
        "a fair lock without its token is given out",
        "engine/place.c",
        "|| hold->lease_ms || untold)",
        "|| hold->lease_ms || (untold && false))",
    ),
    Mutant(
        "a failed hand-over counts as a grant",
        "engine/sole.c",
        "if (verdict.yes && verdict.handed) {",
        "if (!error) {",
    ),
    Mutant(
        "a timed wait is not timed while its try is under way",
        "engine/sole.c",
        "if (!snib__node_ready(gate->node) || op->deadline != SNIB__NEVER)",
        "if (!snib__node_ready(gate->node))",
    ),
    Mutant(
        "no timer beside the messages",
        "engine/wait.c",
        "snib__timer_set(e, SNIB__TIMER_WAIT, wait, &wait->timer_at, now + sleep);",
        "(void)sleep;",
    ),
    Mutant(
        "waiters ask without pause",
        "engine/wait.c",
        "snib__timer_set(e, SNIB__TIMER_WAIT, wait, &wait->timer_at, now + sleep);",
        "snib__timer_set(e, SNIB__TIMER_WAIT, wait, &wait->timer_at, now + SNIB__MS);",
    ),
    Mutant(
        "a lingering subscription takes new waiters with it",
        "engine/wait.c",
        "        wait_unidle(e, gate->wait); /*",
        "        /*",
    ),
    Mutant(
        "messages that were lost are expected for ever",
        "engine/wait.c",
        "    wait->own_messages = 0; /* what has not come by now was lost */",
        "",
    ),
    Mutant(
        "a granted lease counts from the message",
        "engine/place.c",
        "snib__time safe = snib__lease_end(known, first);",
        "snib__time safe = snib__lease_end(now, first);",
    ),
    Mutant(
        "an old grant is believed",
        "engine/place.c",
        "if (server_ms >= op->fair.queued_ms)",
        "if (server_ms >= 0)",
    ),
    Mutant(
        "nobody beats for the others",
        "engine/wait.c",
        "snib__place_beat(e, wait->gate, now);",
        "(void)wait;",
    ),
    Mutant(
        "spinning never slows down",
        "engine/wait.c",
        "        if (wait->brief < WAIT_POLL_MAX)\n"
        "            wait->brief++;\n",
        "",
    ),
    Mutant(
        "a hand-over knows no limit",
        "engine/sole.c",
        "        gate->active = next;\n"
        "        snib__gate_grant(",
        "        gate->active = next;\n"
        "        next->max_hold_ms = 0;\n"
        "        snib__gate_grant(",
    ),
    Mutant(
        "who has one try gives way",
        "engine/turn.c",
        "op->deadline > wait->offered_until && !op->once;",
        "op->deadline > wait->offered_until;",
        "unit_turn",
    ),
    Mutant(
        "who has little time gives it away",
        "engine/turn.c",
        "now < wait->offered_until && op->deadline > wait->offered_until &&",
        "now < wait->offered_until &&",
        "unit_turn",
    ),
    Mutant(
        "who was absent once is absent for ever",
        "engine/turn.c",
        "if (now >= wait->absent_until) wait->absent = 0;",
        "",
        "unit_turn",
    ),
    Mutant(
        "patience with strangers knows no end",
        "engine/turn.c",
        "wait->patience = wait->patience < TURN_MOST / 2 ? 2 * wait->patience : TURN_MOST;",
        "wait->patience *= 2;",
        "unit_turn",
    ),
    Mutant(
        "a refusal does not slow the attempts",
        "engine/share.c",
        "wait->burst = 1; if (gate->trying > 0)",
        "if (gate->trying > 0)",
        "unit_share",
    ),
    Mutant(
        "attempts double without end",
        "engine/share.c",
        "if (gate->wait->burst < SHARE_BURST_MAX) gate",
        "if (gate->wait->burst < 16384) gate",
        "unit_share",
    ),
    Mutant(
        "a writer's reads release each other",
        "engine/share.c",
        "return peer != NULL;",
        "return peer != NULL && false;",
        "unit_share",
    ),
    Mutant(
        "Redisson's releases are not heard after a reconnect",
        "engine/place.c",
        "if ((hold->flags & SNIB__LISTENS) && hold->op) place_say",
        "if ((hold->flags & SNIB__LISTENS) && !hold->op) place_say",
        "unit_place",
    ),
    Mutant(
        "a first lease that is nearly over is given out",
        "engine/place.c",
        "if (safe < now + first / 2 ||",
        "if (",
        "unit_place",
    ),
    Mutant(
        "a waiter that leaves keeps its place",
        "engine/place.c",
        "if (queued) /* else",
        "if (queued && now == 0) /* else",
        "unit_place",
    ),
    Mutant(
        "a promise that comes before the place is forgotten",
        "engine/place.c",
        "if (promised && op->fair.ms >= verdict->server_ms)",
        "if (promised && op->fair.ms < 0)",
        "unit_place",
    ),
    Mutant(
        "a waiter's own channel is never left",
        "engine/place.c",
        'place_say(e, hold, false);',
        "(void)0;",
        "unit_place",
    ),
]
