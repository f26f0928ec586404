"""Planted bugs: what a hold guarantees: its deadline, renewal, release, and the clocks."""

from . import Mutant

MUTANTS = [
    Mutant(
        "a question about a fixed lease is not repeated",
        "engine/watchdog.c",
        "            watchdog_ask_later(batch->of[i].hold, again);",
        "            (void)again;",
        "unit_doubt",
    ),
    Mutant(
        "a fixed lease is asked about once, and its end is not noticed",
        "engine/watchdog.c",
        "i < batch->n && batch->asks; i++)",
        "i < batch->n && batch->asks && again == 0; i++)",
        "sim/topology",
    ),
    Mutant(
        "a fixed lease counts as safe before a restarted server has confirmed it",
        "engine/hold.c",
        "(hold->flags & SNIB__INHERITED) || hold->unsure ||",
        "(hold->flags & SNIB__INHERITED) ||",
        "unit_doubt",
    ),
    Mutant(
        "a question that is due waits for another connection",
        "engine/watchdog.c",
        "        if (node->ask_at <= now && snib__node_ready(node))",
        "        if (node->ask_at <= now && !snib__node_ready(node))",
        "unit_doubt",
    ),
    Mutant(
        "lease counted from the reply",
        "engine/hold.c",
        "hold->deadline = snib__lease_end(sent_at, snib__hold_lease(e, hold));",
        "hold->deadline = snib__lease_end(now, snib__hold_lease(e, hold));",
    ),
    Mutant(
        "renewal counted from the reply",
        "engine/watchdog.c",
        "deadline = snib__lease_end(sent_at, e->config.lease);",
        "deadline = snib__lease_end(now, e->config.lease);",
    ),
    Mutant(
        "no margin for unequal clocks",
        "engine/hold.c",
        "return sent_at + lease - lease / 100 - SNIB__MARGIN;",
        "return sent_at + lease;",
    ),
    Mutant(
        "a grant that comes too late counts",
        "engine/gate.c",
        "bool late = now >= snib__lease_end(sent_at, snib__hold_lease(e, hold)) &&",
        "bool late = false && now > sent_at &&",
        "unit_hold",
    ),
    Mutant(
        "renewal goes on after the release",
        "engine/release.c",
        "    snib__hold_stop(e, hold);\n"
        "    if (held)",
        "    if (held)",
    ),
    Mutant(
        "renewal believes that it always works",
        "engine/watchdog.c",
        "bool lost = at + 1 < n && reply[at].integer == (int64_t)i + 1;",
        "bool lost = false && n;",
    ),
    Mutant(
        "a refused renewal is not repeated",
        "engine/watchdog.c",
        "    list->cursor = list->head; for (uint32_t i = 0; i < batch->n && batch->asks; i++)",
        "    for (uint32_t i = 0; i < batch->n && batch->asks; i++)",
        "unit_watchdog",
    ),
    Mutant(
        "a fixed lease that was asked for before the clock was set is free of doubt",
        "engine/watchdog.c",
        "if (sent_at < hold->gate->node->moved_at && watchdog_has_fixed(hold)) {",
        "if (false && now) {",
        "unit_clock",
    ),
    Mutant(
        "a question leaves a fixed lease as it is",
        "engine/watchdog.c",
        "if ((hold->flags & SNIB__FIRST) || hold->deadline <= now",
        "if (true || (hold->flags & SNIB__FIRST) || hold->deadline <= now",
    ),
    Mutant(
        "a question gives a first lease what is left of it",
        "engine/watchdog.c",
        "if ((hold->flags & SNIB__FIRST) || hold->deadline <= now",
        "if (hold->deadline <= now",
        "unit_doubt",
    ),
    Mutant(
        "a fixed lease is given again what is left of it, and not a little more",
        "engine/hold.c",
        "return (deadline - sent_at + SNIB__MARGIN) * 100 / 99 + 1;",
        "return deadline - sent_at;",
    ),
    Mutant(
        "one try beside the own release is busy",
        "engine/gate.c",
        "(active && active->phase != SNIB__RELEASING && active->op && "
        "snib__op_told(active->op))",
        "(active && active->op)",
    ),
    Mutant(
        "a granted lock that nobody wants is kept",
        "engine/gate.c",
        "            snib__gate_end_op(e, op, SNIB_EUNREACHABLE);\n"
        "        snib__gate_spurn(e, hold, sent_at, now);",
        "            snib__gate_end_op(e, op, SNIB_EUNREACHABLE);",
    ),
    Mutant(
        "a grant that nobody wants counts as an acquisition",
        "engine/gate.c",
        "snib__gate_spurn(e, hold, sent_at, now);",
        "snib__hold_granted(e, hold, sent_at, now); snib__gate_release(e, hold, now);",
    ),
    Mutant(
        "what nobody had is released, or lost",
        "engine/release.c",
        "hold->count = 1; release_begin(e, hold, true, now);",
        "hold->count = 1; hold->acquired_at = now; release_begin(e, hold, true, now);",
    ),
    Mutant(
        "a grant that nobody wants is not passed on",
        "engine/release.c",
        "hold->count = 1; release_begin(e, hold, true, now);",
        "hold->count = 1; release_begin(e, hold, false, now);",
        "unit_settling",
    ),
    Mutant(
        "an unanswered acquire is forgotten",
        "engine/release.c",
        "    if (kind == SNIB__REQ_ACQUIRE && !hold->op) {\n"
        "        hold->deadline",
        "    if (kind == SNIB__REQ_ACQUIRE && !hold->op) {\n"
        "        gate->trying -= !snib__gate_sole(gate);\n"
        "        snib__gate_forget_hold(e, hold);\n"
        "        return;\n"
        "        hold->deadline",
    ),
    Mutant(
        "after a lost reply an error means no",
        "engine/gate.c",
        "bool unsure = snib__doubtful(error) || (hold->flags & SNIB__RESENT);",
        "bool unsure = snib__doubtful(error);",
        "unit_links",
    ),
    Mutant(
        "an unanswered release counts as done",
        "engine/release.c",
        "    int kind = request->kind;",
        "    int kind = request->kind;\n"
        "    if (kind == SNIB__REQ_RELEASE) {\n"
        "        snib__gate_released(e, hold, SNIB_OK, now);\n"
        "        return;\n"
        "    }",
    ),
    Mutant(
        "release is always a success",
        "engine/release.c",
        "bool ours = verdict.yes || (",
        "bool ours = true || (",
    ),
    Mutant(
        "a loss is not told",
        "engine/hold.c",
        "if (hold->tell && (hold->flags & SNIB__HANDED)) {",
        "if (false && (hold->flags & SNIB__HANDED)) {",
    ),
    Mutant(
        "an unreachable server is not a loss",
        "engine/watchdog.c",
        "while (list->head && list->head->deadline <= now)",
        "while (false && now)",
    ),
    Mutant(
        "a writer's read has a number of its own",
        "engine/gate.c",
        "        hold->number = number;",
        "",
    ),
    Mutant(
        "a first lease is not confirmed",
        "engine/hold.c",
        "        snib__watchdog_single(e, hold, (int64_t)(snib__hold_lease(e, hold) / SNIB__MS), now);\n",
        "",
    ),
    Mutant(
        "a place ends with a lease",
        "engine/release.c",
        "if (hold->gate->kind->discipline == SNIB__QUEUED)\n"
        "        slack",
        "if (false)\n"
        "        slack",
    ),
    Mutant(
        "who wants less waits for who wanted more",
        "engine/gate.c",
        "else if (first && !snib__gate_sole(gate))",
        "else if (false && first)",
    ),
    Mutant(
        "the rest of a full batch is forgotten",
        "engine/watchdog.c",
        "list->cursor = hold; list->last = now; return true;",
        "list->cursor = n == SNIB__BATCH_MAX ? NULL : hold; list->last = now; return true;",
        "unit_watchdog",
    ),
    Mutant(
        "a batch is as long as its holds have ids",
        "engine/watchdog.c",
        "#define WATCHDOG_IDS_MAX 400 /*",
        "#define WATCHDOG_IDS_MAX 400000 /*",
        "unit_watchdog",
    ),
    Mutant(
        "half a per cent for unequal clocks",
        "engine/hold.c",
        "return sent_at + lease - lease / 100 - SNIB__MARGIN;",
        "return sent_at + lease - lease / 200 - SNIB__MARGIN;",
    ),
    Mutant(
        "a process that stood still for a lease was never late",
        "engine/watchdog.c",
        "if (list->head && list->head == list->cursor && list->head->deadline <= now &&",
        "if (false && list->head &&",
        "unit_hold",
    ),
    Mutant(
        "a renewal that comes too late counts",
        "engine/watchdog.c",
        "hold->phase != SNIB__HELD ||\n"
        "            snib__hold_over(e, hold, now))",
        "hold->phase != SNIB__HELD)",
    ),
    Mutant(
        "what is over is not lost",
        "engine/hold.c",
        "if (hold->phase != SNIB__HELD || now < snib__hold_end(hold))\n"
        "        return false;",
        "if (hold->phase != SNIB__HELD || now < snib__hold_end(hold) + 50 * SNIB__MS)\n"
        "        return false;",
        "unit_hold",
    ),
    Mutant(
        "a repeated release has always worked",
        "engine/release.c",
        "(hold->flags & SNIB__RESENT) && now < hold->deadline);",
        "(hold->flags & SNIB__RESENT));",
        "unit_hold",
    ),
    Mutant(
        "an owner enters again what is over",
        "engine/gate.c",
        "if (owned && !snib__hold_over(e, hold, now))",
        "if (owned)",
        "unit_hold",
    ),
    Mutant(
        "a hold is never at risk",
        "engine/hold.c",
        "return doubted ? SNIB_HOLD_AT_RISK : SNIB_HOLD_VALID;",
        "return SNIB_HOLD_VALID + 0 * doubted;",
        "unit_hold",
    ),
    Mutant(
        "the heap of timers never sifts up",
        "engine/timer.c",
        "while (i > 1 && e->heap[i / 2].when > timer.when) {",
        "while (*snib__timer_at(timer) == e->heap_n && i > 1 && e->heap[i / 2].when > timer.when) {",
        "unit_timer",
    ),
    Mutant(
        "what the server's clock does is not judged",
        "engine/clock.c",
        "if (moved) clock_moved(e, node, moved, now);",
        "if (moved && now == 0) clock_moved(e, node, moved, now);",
    ),
    Mutant(
        "a server's clock that was set casts no doubt on a hold",
        "engine/clock.c",
        "node->moved_at = node->ready_since = now;",
        "node->ready_since = now;",
    ),
    Mutant(
        "unequal rates are taken for a clock that was set",
        "engine/clock.c",
        "(received - clock->sent) / 100 + SNIB__MARGIN",
        "(received - clock->sent) / 200",
    ),
    Mutant(
        "what does not fit into one renewal waits for the next round",
        "engine/watchdog.c",
        "list->cursor = hold; list->last = now; return true;",
        "list->cursor = n < SNIB__BATCH_MAX ? hold : NULL; list->last = now; return true;",
    ),
    Mutant(
        "a refused TIME is not logged",
        "engine/clock.c",
        "        snib__engine_log(e, SNIB_LOG_INFO,",
        "        snib__engine_log(e, SNIB_LOG_INFO + 1,",
        "unit_clock",
    ),
    Mutant(
        "a renewal that does not find its hold is taken for one that does",
        "engine/watchdog.c",
        "        if (lost) {\n"
        "            snib__hold_lose(",
        "        if (lost && reason == SNIB_REASON_TAKEN) {\n"
        "            snib__hold_lose(",
    ),
    Mutant(
        "a slow answer blinds the next one",
        "engine/clock.c",
        "if (!clock->known || moved ||",
        "if (sent || moved ||",
        "unit_clock",
    ),
    Mutant(
        "a right that is missing for one hold takes all",
        "engine/watchdog.c",
        "list->alone = list->alone || (error == SNIB_EPERM && batch->n > 1);",
        "",
        "unit_watchdog",
    ),
    Mutant(
        "a failed renewal is repeated at once",
        "engine/watchdog.c",
        "list->retry = now + e->config.lease / 20;",
        "",
        "unit_watchdog",
    ),
    Mutant(
        "the answer to an older question confirms a lease",
        "engine/watchdog.c",
        "(hold->flags & SNIB__FIRST) && batch->lease_ms == watchdog_lease_ms(e, hold)",
        "(hold->flags & SNIB__FIRST)",
        "unit_hold",
    ),
    Mutant(
        "a server's clock that was set back is not noticed",
        "engine/clock.c",
        "clock->known && most < -explained",
        "clock->known && most < INT64_MIN / 2",
        "unit_clock",
    ),
    Mutant(
        "another server's clock is compared with the last one's",
        "engine/clock.c",
        "    if (!same)\n",
        "    if (0 && !same)\n",
        "unit_clock",
    ),
    Mutant(
        "what is known of a server's clock is forgotten with the connection",
        "engine/clock.c",
        "    if (!same)\n",
        "    if (same || !same)\n",
        "unit_clock",
    ),
    Mutant(
        "fixed leases are not asked for when the clock was set",
        "engine/clock.c",
        "snib__watchdog_reconnected(e, node, true, now);",
        "snib__watchdog_reconnected(e, node, false, now);",
        "unit_clock",
    ),
    Mutant(
        "a time of the far future is believed",
        "engine/clock.c",
        "seconds == 0 || seconds > CLOCK_SECONDS_MAX ||",
        "seconds == 0 ||",
        "unit_clock",
    ),
    Mutant(
        "a second has more than a million microseconds",
        "engine/clock.c",
        "|| micros > 999999)",
        "|| false)",
        "unit_clock",
    ),
    Mutant(
        "what is no time is a time",
        "engine/clock.c",
        "if (seconds == 0 ||",
        "if (",
        "unit_clock",
    ),
    Mutant(
        "after a reconnect renewals wait until they are due",
        "engine/watchdog.c",
        "watchdog_at_once(list->cursor, sent) ? node->ready_since : sent + period;",
        "sent + period;",
        "unit_watchdog",
    ),
    Mutant(
        "after a reconnect the patience with a refusal goes on",
        "engine/watchdog.c",
        "        list->retry = 0;",
        "",
        "unit_watchdog",
    ),
    Mutant(
        "after a reconnect one is renewed at a time",
        "engine/watchdog.c",
        "if ((!watchdog_at_once(hold, sent) && sent + period",
        "if ((sent + period",
        "unit_watchdog",
    ),
    Mutant(
        "a hold that is asked about already is renewed with each move",
        "engine/watchdog.c",
        "sent < hold->gate->node->ready_since && !(hold->flags & SNIB__ASKED)",
        "sent < hold->gate->node->ready_since",
        "unit_redirects",
    ),
    Mutant(
        "a renewal that goes to another node has the holds that have gone",
        "engine/cluster.c",
        "request->kind == SNIB__REQ_RENEW && !snib__watchdog_prune(e, request->subject)",
        "false",
        "unit_redirects",
    ),
    Mutant(
        "a re-entry is not counted among a hold's users",
        "engine/gate.c",
        "held->users += !full;",
        "",
        "live/kinds abandoned_by_one_of_two",
    ),
    Mutant(
        "an attempt that was never sent is counted for ever",
        "engine/gate.c",
        "snib__node_unsend(e, hold)) { /* it was never sent, or surely not done */ if "
        "(!snib__gate_sole(gate)) gate->trying--;",
        "snib__node_unsend(e, hold)) {",
    ),
    Mutant(
        "who waits for what its owner has been granted waits on",
        "engine/gate.c",
        "snib__waitq_remove(waitq, other); gate_reenter(e, other, now);",
        "break;",
        "unit_hold",
    ),
    Mutant(
        "a hold that is freed stays in the list of losses to tell",
        "engine/hold.c",
        "if (hold->flags & SNIB__UNTOLD) hold_told(e, hold);",
        "hold->flags &= (uint16_t)~SNIB__UNTOLD;",
        "unit_hold",
    ),
    Mutant(
        "a grant that comes late is renewed late",
        "engine/watchdog.c",
        "while (after && after->deadline > hold->deadline)",
        "while (after && after != list->cursor && after->deadline > hold->deadline)",
        "unit_lanes",
    ),
    Mutant(
        "the last renewed hold of a kind is forgotten",
        "engine/watchdog.c",
        "if (--list->n == 0)",
        "if (--list->n <= 1)",
    ),
]
