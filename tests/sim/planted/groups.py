"""Planted bugs: locks of several names or servers."""

from . import Mutant

MUTANTS = [
    Mutant(
        "a semaphore's request is repeated",
        "locks/semaphore.c",
        ".traits = SNIB__UNOWNED",
        ".traits = 0",
    ),
    Mutant(
        "a multi lock listens to its first member",
        "locks/multi.c",
        "verdict->blocker = (uint32_t)reply[1].integer;",
        "verdict->blocker = 0;",
    ),
    Mutant(
        "a quorum of half the nodes",
        "locks/group.c",
        "group->need = majority ? n / 2 + 1 : n;",
        "group->need = majority ? n / 2 : n;",
    ),
    Mutant(
        "a quorum is safe as long as its longest vote",
        "locks/group.c",
        "if (as_long >= group->need && candidate > best)",
        "if (as_long > 0 && candidate > best)",
    ),
    Mutant(
        "the renewals of members do not count",
        "locks/group.c",
        "        group->members[i].deadline = deadline;\n"
        "}",
        "        (void)deadline;\n"
        "}",
    ),
    Mutant(
        "a quorum without most of its votes is held",
        "locks/group.c",
        "group->phase == SNIB__GROUP_HELD && group_count(group, GROUP_HELD) < group->need)",
        "group->phase == SNIB__GROUP_HELD && group_count(group, GROUP_HELD) + 1 < group->need)",
    ),
    Mutant(
        "a node votes although it has lost its memory",
        "api/group.c",
        ".vote_ms = c->parts->vote_ms,",
        ".vote_ms = 0,",
        "live/groups quarantine",
    ),
    Mutant(
        "a lock of several scripts waits twice",
        "api/group.c",
        "op->within = client == c->home && !c->parts->majority;",
        "op->within = false;",
        "live/multi waits_once",
    ),
    Mutant(
        "nobody is seen to wait for a vote",
        "api/group.c",
        "op->within = client == c->home && !c->parts->majority;",
        "op->within = client == c->home;",
        "sim/driver late_votes",
    ),
    Mutant(
        "a failed round undoes nothing",
        "locks/group.c",
        "    group_undo(group);\n"
        "    group->phase = SNIB__GROUP_PAUSING;",
        "    group->phase = SNIB__GROUP_PAUSING;",
    ),
    Mutant(
        "a failed group undoes nothing",
        "locks/group.c",
        "    group_undo(group);\n"
        "    group->phase = SNIB__GROUP_ENDED;",
        "    group->phase = SNIB__GROUP_ENDED;",
    ),
    Mutant(
        "a release goes to as many as are needed",
        "locks/group.c",
        "            group_set(group, i, GROUP_GIVING);",
        "            group_set(group, i, i < group->need ? GROUP_GIVING : GROUP_IDLE);",
    ),
    Mutant(
        "a grant that came too late for its round is kept",
        "locks/group.c",
        "group_set(group, i, code == SNIB_OK ? GROUP_UNWANTED : GROUP_IDLE);",
        "group_set(group, i, GROUP_IDLE);",
    ),
    Mutant(
        "a member is asked again before it is let go of",
        "locks/group.c",
        "if (member->state == GROUP_UNWANTED || member->state == GROUP_DOUBTED)\n"
        "        member->again = true;",
        "if (member->state > GROUP_GIVEN)\n"
        "        member->again = true;",
    ),
    Mutant(
        "a vote lost while collecting is forgotten",
        "locks/group.c",
        "group_refused(group, group_lost_code(reason));",
        "(void)group_lost_code(reason);",
    ),
    Mutant(
        "what was lost before it was given out ends the acquire",
        "locks/group.c",
        "        group->phase = SNIB__GROUP_TAKEN;",
        "        group->phase = SNIB__GROUP_HELD;",
    ),
    Mutant(
        "votes of different quorums wait for each other",
        "api/group.c",
        "return held ? SNIB__NEVER : 0;",
        "return SNIB__NEVER + held - held;",
    ),
    Mutant(
        "a contested round waits for dead nodes",
        "api/group.c",
        "else if (c->give_up_at && now >= c->give_up_at)",
        "else if (c->give_up_at && now == 0)",
    ),
    Mutant(
        "the members outlive a loss that the group tells",
        "api/group.c",
        "    if (c->outer.ended)\n"
        "        snib__group_abandon(group);\n"
        "    else if",
        "    if (c->outer.ended)\n"
        "        return;\n"
        "    else if",
    ),
    Mutant(
        "a fixed lease of a quorum grows with later votes",
        "api/group.c",
        "if (c->lease && c->parts->majority && deadline > c->ends)",
        "if (c->lease && c->parts->majority && deadline == 0)",
        "live/groups fixed_lease_does_not_grow",
    ),
    Mutant(
        "a quorum that loses a vote trusts the rest as before",
        "api/group.c",
        "    snib__outer_timed(engine, &c->outer, deadline, now);",
        "    if (deadline > c->outer.hold->deadline)\n"
        "        snib__outer_timed(engine, &c->outer, deadline, now);",
    ),
    Mutant(
        "a fixed lease of several servers is renewed for ever",
        "api/group.c",
        "bool needed = c->lease && !c->parts->majority && !c->fixed;",
        "bool needed = c->lease && !c->parts->majority && c->fixed;",
    ),
    Mutant(
        "an acquisition is never freed",
        "api/group.c",
        "carrier_list(driver, c, 1 + hold_too);",
        "carrier_list(driver, c, 1 + (hold_too && false));",
    ),
    Mutant(
        "a fixed lease of several servers is not sent to them",
        "engine/hold.c",
        "snib__watchdog_single(e, hold, (int64_t)hold->lease_ms, now); snib__hold_arm(e, "
        "hold, now); }",
        "snib__hold_arm(e, hold, now); }",
        "unit_hold",
    ),
    Mutant(
        "a spinning member of a multi lock is expected to tell",
        "locks/multi.c",
        "verdict->foreign = verdict->blocker < list.n && list.kinds[verdict->blocker] == "
        "'s';",
        "",
        "unit_multi",
    ),
    Mutant(
        "a lost vote is asked for again only when its time comes",
        "api/group.c",
        "c->refill_at = 0; pthread",
        "pthread",
        "sim/driver",
    ),
    Mutant(
        "a lock of several servers keeps the deadline of its first look",
        "engine/outer.c",
        "outer->span = deadline - now; snib__hold_arm(e, hold, now);",
        "outer->span = deadline - now;",
        "unit_hold",
    ),
    Mutant(
        "a vote of a closed client counts as one that cannot be reached",
        "locks/group.c",
        "return reason == SNIB_REASON_CLOSED ? SNIB_ECLOSED : SNIB_EUNREACHABLE;",
        "return SNIB_EUNREACHABLE;",
        "unit_group",
    ),
    Mutant(
        "a vote is waited for after the release",
        "api/group.c",
        "snib__engine_cancel(c->parts->part[i].client->driver.engine, op, now);",
        "(void)now;",
        "sim/driver",
    ),
    Mutant(
        "a round's patience counts from the first one",
        "api/group.c",
        "snib__group_pause_over(group); c->asked_at = now;",
        "snib__group_pause_over(group);",
        "sim/driver",
    ),
    Mutant(
        "locks of several slots are taken by name",
        "api/members.c",
        "order = one->slot - other->slot;",
        "order = 0;",
        "unit_members",
    ),
    Mutant(
        "what a close gives back has the client's lease",
        "engine/op.c",
        "again->lease_ms = hold->lease_ms;",
        "",
        "unit_hold",
    ),
    Mutant(
        "what a close gives back is tried once",
        "engine/op.c",
        "again->deadline = hold->deadline;",
        "",
        "unit_hold",
    ),
    Mutant(
        "votes that refused before the last grant are waited for only when its time comes",
        "api/group.c",
        "snib__group_refill(&c->group); /* no news",
        "/* no news",
        "sim/driver",
    ),
    Mutant(
        "a waiting quorum bears a silent majority no longer than one try",
        "api/group.c",
        ".patient = !c->once}",
        ".patient = false}",
        "sim/driver",
    ),
    Mutant(
        "nobody is told that a member cannot be asked",
        "api/group.c",
        "snib__group_member_given(&c->group, i, code); c->again = true;",
        "snib__group_member_given(&c->group, i, code);",
        "sim/driver",
    ),
    Mutant(
        "what is abandoned is given back",
        "api/group.c",
        "c->abandoned = c->outer.abandoned;",
        "c->abandoned = false;",
        "sim/driver",
    ),
    Mutant(
        "news that come during a step are forgotten",
        "api/group.c",
        "c->listed = false; c->again = true;",
        "c->listed = false; c->again = mine;",
        "sim/driver",
    ),
    Mutant(
        "a group knows no reason of its members' losses",
        "api/group.c",
        "snib__group_member_lost(&c->group, i, hold->reason);",
        "snib__group_member_lost(&c->group, i, SNIB_REASON_DELETED);",
        "sim/driver",
    ),
    Mutant(
        "a round is given up when the one before it was to be",
        "api/group.c",
        "if (!snib__group_contested(group)) c->give_up_at = 0;",
        "",
        "sim/driver",
    ),
    Mutant(
        "a node that could not be asked is never asked again",
        "api/group.c",
        "snib__group_refill(group); c->refill_at = now + CARRIER_REFILL;",
        "snib__group_refill(group); c->refill_at = SNIB__NEVER;",
        "sim/driver",
    ),
    Mutant(
        "a lock of locks keeps its members' gates",
        "api/group.c",
        "snib__gate_put(client->driver.engine, parts->part[i].gate);",
        "",
        "unit_members",
    ),
    Mutant(
        "a round is contested by what the last one heard",
        "locks/group.c",
        "group->phase = SNIB__GROUP_COLLECTING; group->failure = 0;",
        "group->phase = SNIB__GROUP_COLLECTING;",
        "unit_group",
    ),
    Mutant(
        "a release tells an error of the acquisition",
        "locks/group.c",
        "group->phase = SNIB__GROUP_GIVING; group->failure = 0;",
        "group->phase = SNIB__GROUP_GIVING;",
        "unit_group",
    ),
    Mutant(
        "a round hopes for what was asked again long ago",
        "locks/group.c",
        "group->members[i].wished = false; group->members[i].again = false;",
        "group->members[i].wished = false;",
        "unit_group",
    ),
    Mutant(
        "the kinds of the last multi lock renewed are those of all",
        "locks/multi.c",
        "multi_members(holds[i]->gate, &list); if (snib__arg_owner",
        "if (snib__arg_owner",
        "unit_multi",
    ),
    Mutant(
        "a vote that comes as its round is given up is kept",
        "api/group.c",
        "unwanted = op->hold; } else if (current) {",
        "} else if (current) {",
        "unit_carrier",
    ),
    Mutant(
        "the member in the way is taken for the time left",
        "locks/multi.c",
        "verdict->left_ms = reply[2].integer;",
        "verdict->left_ms = reply[1].integer;",
        "unit_multi",
    ),
]
