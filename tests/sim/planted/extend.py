"""Planted bugs: a live hold gets another lease."""

from . import Mutant

MUTANTS = [
    Mutant(
        "an extension counts from its answer",
        "engine/extend.c",
        "snib__time deadline = snib__lease_end(sent_at, lease ? lease : clients);",
        "snib__time deadline = snib__lease_end(now, lease ? lease : clients) + 0 * sent_at;",
    ),
    Mutant(
        "an extension counts before it is answered",
        "engine/extend.c",
        "    e->extending++;\n",
        "    e->extending++;\n"
        "    if (lease) hold->deadline = snib__lease_end(now, lease);\n",
    ),
    Mutant(
        "an extended hold is still renewed",
        "engine/extend.c",
        "    hold->lease_ms = (uint32_t)(lease / SNIB__MS) & SNIB__SPAN_MAX;",
        "    hold->lease_ms = 0;",
        "live/extend renewal_ends_and_begins",
    ),
    Mutant(
        "a renewed hold keeps the deadline of its longer lease",
        "engine/extend.c",
        "if (lease == 0 && before > snib__lease_end(now, clients))",
        "if (0 && before > snib__lease_end(now, clients))",
    ),
    Mutant(
        "an extension is asked for less than the deadline needs",
        "engine/extend.c",
        "return wanted > op->asked->least_ms ? wanted : op->asked->least_ms;",
        "return wanted;",
    ),
    Mutant(
        "an extension outlives its hold",
        "engine/hold.c",
        "if (e->extending > 0)",
        "if (false)",
    ),
    Mutant(
        "an extension that finds nothing is confirmed",
        "engine/extend.c",
        "if (held && array && n == 1) {",
        "if (held && array) {",
    ),
    Mutant(
        "a late answer extends a lost hold",
        "engine/extend.c",
        "bool held = extend_held(e, op, now), array",
        "bool held = hold->phase == SNIB__HELD, array",
    ),
    Mutant(
        "an old renewal shortens a lease",
        "lua/mutex_renew.lua",
        "(lease > 0 and redis.call('pttl', KEYS[i]) < lease)",
        "lease > 0",
    ),
    Mutant(
        "an old request of a mutex shortens its lease",
        "lua/mutex_acquire.lua",
        "longer and redis.pcall('pexpire', KEYS[1], ARGV[2]) or 1",
        "redis.pcall('pexpire', KEYS[1], ARGV[2])",
    ),
    Mutant(
        "an old request of a plain lock shortens its lease",
        "lua/plain_acquire.lua",
        "elseif owner and redis.call('pttl', KEYS[1]) >= tonumber(ARGV[2]) then",
        "elseif false then",
        "traces/test_leases.py test_late_requests",
    ),
    Mutant(
        "a hold of several clients keeps the lease of its watchdog",
        "engine/hold.c",
        "    hold->exact = true;\n",
        "",
        "live/extend members_get_a_shorter_lease",
    ),
    Mutant(
        "an extension overtakes a renewal that corrects a lease",
        "engine/send.c",
        "return op->kind == SNIB__OP_EXTEND ? NULL : op->gate;",
        "return op->gate;",
        "unit_lanes",
    ),
    Mutant(
        "an extension lifts a doubt about the server's clock",
        "engine/extend.c",
        "    else\n        snib__watchdog_fixed(hold, sent_at, now);",
        "",
        "unit_extend",
    ),
    Mutant(
        "an answer about less than the deadline ends a doubt",
        "engine/watchdog.c",
        "if (fixed && lease > 0 && snib__lease_end(sent_at, lease) < hold->deadline) {",
        "if (fixed && lease > 0 && snib__lease_end(sent_at, lease) < sent_at) {",
        "unit_extend",
    ),
    Mutant(
        "what an extension may have kept is not released",
        "engine/release.c",
        "return slack + e->extended;",
        "return slack;",
        "unit_extend",
    ),
    Mutant(
        "what a renewal may have kept is not released",
        "engine/release.c",
        "slack += lease > e->config.lease ? lease : e->config.lease;",
        "slack += 0;",
        "unit_hold",
    ),
]
