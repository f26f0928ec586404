#!/usr/bin/env python3
"""Known bugs of lock clients, planted in copies of the core: the tests must find every one.

    mutants.py [--seeds N] [--sample N [--draw WORD]] [NAME...]

Each mutant is one textual change, and is to be found by the simulators, or by the test program that
it names.  A change that no longer fits the source is an error, so that this list cannot rot in
silence.  The unchanged core must pass first.  --sample draws some at random, others each day.
"""

import argparse
import datetime
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).resolve().parent
CORE = HERE.parent.parent / "core"
FLAGS = [
    "-std=gnu11",
    "-O2",
    "-g",
    "-D_GNU_SOURCE",
    "-DSNIB_STATIC",
    "-fsanitize=undefined",
    "-fno-sanitize-recover=all",
]


class Mutant(NamedTuple):
    name: str
    file: str
    old: str
    new: str
    by: str = ""  # the test program of ctest that finds it, "unit_timer" or "live/queue"; "": simulators


MUTANTS = [
    # Doubt and links
    Mutant(
        "a force release is repeated after a lost answer",
        "engine/ask.c",
        "return op->kind == SNIB__OP_FORCE;",
        "return false;",
        "unit_doubt",
    ),
    Mutant(
        "what has no owner is repeated after an error that may mean anything",
        "engine/doubt.c",
        "return error == SNIB_ESERVER;",
        "return error == SNIB_EREADONLY;",
        "unit_doubt",
    ),
    Mutant(
        "the reply's time-out ignores the lease",
        "engine/node.c",
        "return share < e->config.reply_timeout ?",
        "return share > e->config.reply_timeout ?",
        "unit_doubt",
    ),
    Mutant(
        "fixed leases are not asked for after a restart",
        "engine/node.c",
        "snib__watchdog_reconnected(e, other, now);",
        "snib__watchdog_reconnected(e, false, now);",
        "unit_doubt",
    ),
    Mutant(
        "an operation that was never sent is told as perhaps applied",
        "engine/op.c",
        "return node->failure == SNIB_EUNREACHABLE ? SNIB_ECONNECT : node->failure;",
        "return node->failure;",
        "unit_doubt",
    ),
    Mutant(
        "a command that was refused is asked again",
        "engine/node.c",
        "conn->delifeq = conn->delex =",
        "conn->delifeq =",
        "unit_links",
    ),
    Mutant(
        "a replica is believed",
        "net/conn.c",
        'conn->replica = strcmp(value, "slave") == 0;',
        'conn->replica = strcmp(value, "replica") == 0;',
        "unit_links",
    ),
    Mutant(
        "a refusal by a replica is a sign of life",
        "engine/node.c",
        "if (more && !ep->proven && !node_disowns(&ep->conn, reply))",
        "if (more && !ep->proven)",
        "unit_links",
    ),
    Mutant(
        "a stranger's connection is killed after a restart",
        "net/conn.c",
        "strcmp(conn->run_id, conn->kill_run) != 0)",
        "false)",
        "unit_conn",
    ),
    Mutant(
        "an idle subscription is not pinged",
        "engine/chan.c",
        'if (ep->wanted && snib__chan_say(e, "PING", NULL, 0) == 0)',
        'if (false && snib__chan_say(e, "PING", NULL, 0) == 0)',
        "unit_links",
    ),
    Mutant(
        "a subscription is owed nothing",
        "engine/chan.c",
        "    if (ep->owed > 0)\n        return true;",
        "    if (ep->owed > 100000)\n        return true;",
        "unit_links",
    ),
    Mutant(
        "a multi lock's undo skips the member that was refused",
        "lua/mutexes_acquire.lua",
        "for taken = 1, i do",
        "for taken = 1, i - 1 do",
        "live/multi",
    ),
    Mutant(
        "a password stands in an error",
        "net/words.c",
        "return alone || same >= WORDS_SECRET_LONG ? same : 0;",
        "return 0;",
        "unit_words",
    ),
    # Deadlines
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
    ),
    # Renewal
    Mutant(
        "renewal goes on after the release",
        "engine/release.c",
        "    snib__hold_stop(e, hold);\n    if (held)",
        "    if (held)",
    ),
    Mutant(
        "renewal believes that it always works",
        "engine/watchdog.c",
        "bool lost = at + 1 < n && reply[at].integer == (int64_t)i + 1;",
        "bool lost = false && n;",
    ),
    Mutant(
        "no renewal again after a reconnect",
        "engine/watchdog.c",
        "    e->node.renewals[batch->kind].cursor = "
        "e->node.renewals[batch->kind].head;\n    snib__batch_recycle(e, batch);",
        "    snib__batch_recycle(e, batch);",
    ),
    Mutant(
        "renewal does not look at the owner",
        "lua/mutex_renew.lua",
        "redis.pcall('hexists', KEYS[i], ARGV[i + 1])",
        "redis.pcall('exists', KEYS[i])",
    ),
    # Strangers and their turns
    Mutant(
        "whoever has released comes before strangers",
        "engine/turn.c",
        "return wait->owed > 0 && now",
        "return false && wait->owed > 0 && now",
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
    # Promptness and places
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
        "a place is pushed by more than the time that has passed",
        "lua/fair_acquire.lua",
        "                redis.call('hset', KEYS[4], 'push', now)\n",
        "",
    ),
    Mutant(
        "one try beside the own release is busy",
        "engine/gate.c",
        "(active && active->phase != SNIB__RELEASING && active->op)",
        "(active && active->op)",
    ),
    Mutant(
        "a writer after dead readers has no TTL",
        "lua/write_acquire.lua",
        "if not mine or left < tonumber(ARGV[2]) then",
        "if left < tonumber(ARGV[2]) then",
    ),
    # Owners and counts
    Mutant(
        "one owner number for all attempts",
        "engine/op.c",
        "hold->number = e->next_number++;",
        "hold->number = e->next_number;",
    ),
    Mutant(
        "the count is raised, not set",
        "lua/mutex_acquire.lua",
        "redis.call('hset', KEYS[1], ARGV[1], 1)",
        "redis.call('hincrby', KEYS[1], ARGV[1], 1)",
    ),
    Mutant(
        "acquire leaves no TTL",
        "lua/mutex_acquire.lua",
        "local set = redis.pcall('pexpire', KEYS[1], ARGV[2])",
        "local set = 1",
    ),
    Mutant(
        "acquire does not look at the owner",
        "lua/mutex_acquire.lua",
        "redis.call('hexists', KEYS[1], ARGV[1]) == 0",
        "redis.call('hlen', KEYS[1]) == 0",
    ),
    Mutant(
        "release deletes blindly",
        "lua/mutex_release.lua",
        "redis.call('hdel', KEYS[1], ARGV[1])",
        "redis.call('del', KEYS[1])",
    ),
    Mutant(
        "release tells nobody", "lua/mutex_release.lua", "redis.pcall('publish', ARGV[2], '0')", "0"
    ),
    Mutant(
        "hand-over does not look at the owner",
        "lua/mutex_transfer.lua",
        "redis.call('hdel', KEYS[1], ARGV[1]) == 0 and",
        "redis.call('del', KEYS[1]) == 0 and",
    ),
    Mutant(
        "a failed hand-over counts as a grant",
        "engine/sole.c",
        "if (verdict.yes && verdict.handed) {",
        "if (!error) {",
    ),
    # Lost replies
    Mutant(
        "a granted lock that nobody wants is kept",
        "engine/gate.c",
        "            snib__gate_end_op(e, op, SNIB_EUNREACHABLE);\n"
        "        snib__gate_release(e, hold, now);",
        "            snib__gate_end_op(e, op, SNIB_EUNREACHABLE);",
    ),
    Mutant(
        "an unanswered acquire is forgotten",
        "engine/release.c",
        "    if (kind == SNIB__REQ_ACQUIRE && !hold->op) {\n        hold->deadline",
        "    if (kind == SNIB__REQ_ACQUIRE && !hold->op) {\n"
        "        gate->trying -= !snib__gate_sole(gate);\n"
        "        snib__gate_forget_hold(e, hold);\n        return;\n        hold->deadline",
    ),
    Mutant(
        "after a lost reply an error means no",
        "engine/gate.c",
        "bool unsure = snib__doubtful(error) || (hold->flags & SNIB__RESENT);",
        "bool unsure = snib__doubtful(error);",
    ),
    Mutant(
        "an unanswered release counts as done",
        "engine/release.c",
        "    int kind = request->kind;",
        "    int kind = request->kind;\n    if (kind == SNIB__REQ_RELEASE) {\n"
        "        snib__gate_released(e, hold, SNIB_OK, now);\n        return;\n    }",
    ),
    Mutant(
        "the old connection may still act",
        "net/conn.c",
        "if (conn->kill_id == 0 ||",
        "if (true || conn->kill_id == 0 ||",
    ),
    Mutant(
        "a reply goes to the next request after a cancel",
        "engine/node.c",
        "            request->subject = NULL;",
        "            conn->ring_count--;",
    ),
    Mutant(
        "release is always a success",
        "engine/release.c",
        "bool ours = verdict.yes || (",
        "bool ours = true || (",
    ),
    # Telling
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
        "a timed wait is not timed while its try is under way",
        "engine/sole.c",
        "if (!snib__node_ready(gate->node) || op->deadline != SNIB__NEVER)",
        "if (!snib__node_ready(gate->node))",
    ),
    # Waiting
    Mutant(
        "no try on the confirmation of a subscription",
        "engine/chan.c",
        "            snib__wait_try(e, wait, now);",
        "            (void)now;",
    ),
    Mutant(
        "no timer beside the messages",
        "engine/wait.c",
        "    snib__timer_set(e, SNIB__TIMER_WAIT, wait, &wait->timer_at, now + sleep);\n",
        "    (void)sleep;\n",
    ),
    Mutant(
        "no new subscription after a reconnect",
        "engine/chan.c",
        "            if (snib__chan_wanted(chan))\n"
        "                snib__chan_subscribe(e, chan, now);",
        "            if (snib__chan_wanted(chan) && now == 0)\n"
        "                snib__chan_subscribe(e, chan, now);",
    ),
    Mutant(
        "waiters ask without pause",
        "engine/wait.c",
        "    snib__timer_set(e, SNIB__TIMER_WAIT, wait, &wait->timer_at, now + sleep);\n",
        "    sleep = SNIB__MS;\n"
        "    snib__timer_set(e, SNIB__TIMER_WAIT, wait, &wait->timer_at, now + sleep);\n",
    ),
    Mutant(
        "the last waiter's subscription stays",
        "engine/chan.c",
        "if ((chan->state == SNIB__CHAN_ON || chan->state == SNIB__CHAN_ASKED) &&",
        "if (false &&",
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
        "a refusal without a name takes all subscriptions",
        "engine/chan.c",
        "(chan->state == SNIB__CHAN_ASKED || chan->state == SNIB__CHAN_REFUSED)",
        "chan->state == SNIB__CHAN_ASKED",
    ),
    # Readers and writers
    Mutant(
        "a downgrade wakes nobody",
        "lua/write_release.lua",
        "    redis.call('hset', KEYS[1], 'mode', 'read')\nend",
        "    redis.call('hset', KEYS[1], 'mode', 'read')\n    return 1\nend",
    ),
    Mutant(
        "the last reader tells nobody",
        "lua/read_release.lua",
        "redis.pcall('publish', ARGV[2], '1')",
        "0",
    ),
    Mutant(
        "a reader's own lease has slack",
        "lua/read_acquire.lua",
        "redis.call('set', KEYS[2], 1, 'px', ARGV[2])",
        "redis.call('set', KEYS[2], 1, 'px', ARGV[2] + 60000)",
    ),
    Mutant(
        "a reader's own lease is not renewed",
        "lua/read_renew.lua",
        "if lease > 0 and redis.call('pexpire', own, lease) == 0 then",
        "if false then",
    ),
    Mutant(
        "a writer comes in beside readers",
        "lua/write_acquire.lua",
        "busy = readers()",
        "busy = nil",
    ),
    Mutant(
        "a reader comes in beside a writer",
        "lua/read_acquire.lua",
        "elseif mode ~= 'write' or redis.call('hexists', KEYS[1], ARGV[1] .. ':write') == 0 then",
        "elseif mode ~= 'write' then",
    ),
    Mutant(
        "a reader's release takes the last other reader with it",
        "lua/read_release.lua",
        "if fields <= 1 then",
        "if fields <= 2 then",
    ),
    Mutant(
        "readers do not wait behind a preferred writer",
        "lua/read_acquire.lua",
        "        if mark > 0 then\n            return mark",
        "        if false then\n            return mark",
    ),
    Mutant(
        "a writer's read has a number of its own",
        "engine/gate.c",
        "        hold->number = number;",
        "",
    ),
    # Tokens
    Mutant(
        "a hand-over takes no token", "lua/fenced_transfer.lua", "redis.pcall('incr', KEYS[2])", "1"
    ),
    Mutant(
        "a grant by a release takes no token",
        "lua/_fair.lua",
        "if type(redis.pcall('incr', KEYS[5])) ~= 'number' then",
        "if false then",
    ),
    Mutant(
        "a repeated request takes another token",
        "lua/fenced_acquire.lua",
        "local token = mine and redis.call('get', KEYS[2])",
        "local token = false",
    ),
    # Fair
    Mutant(
        "the newest waiter is granted",
        "lua/_fair.lua",
        "local waiter, at = purge(), 0",
        "local waiter, at = purge() and redis.call('lindex', KEYS[2], -1), 0",
    ),
    Mutant(
        "whoever asks takes a free lock",
        "lua/fair_acquire.lua",
        "if left == -2 and (not head or head == owner) then",
        "if left == -2 then",
    ),
    Mutant(
        "leaving forgets the score",
        "lua/_fair.lua",
        "    redis.call('zrem', KEYS[3], owner)\n    return",
        "    return",
    ),
    Mutant(
        "leaving keeps the place",
        "lua/_fair.lua",
        "return redis.call('lrem', KEYS[2], 0, owner)",
        "return 1",
    ),
    Mutant(
        "the dead are waited for",
        "lua/_fair.lua",
        "local PATIENCE, DEAD, FIRST, BEATS = 4000, 2500,",
        "local PATIENCE, DEAD, FIRST, BEATS = 4000, 250000,",
    ),
    Mutant(
        "a beat is not noted",
        "lua/fair_acquire.lua",
        "    redis.call('hset', KEYS[4], client(owner), now)\n    expire()",
        "    expire()",
    ),
    Mutant(
        "a queue has no end",
        "lua/_fair.lua",
        "    redis.call('pexpire', KEYS[2], left)",
        "    redis.call('persist', KEYS[2])",
    ),
    Mutant(
        "a release grants nobody",
        "lua/fair_release.lua",
        "number, token = grant(ARGV[2], client(ARGV[1]))",
        "number, token = false, '0'",
    ),
    Mutant(
        "a first lease is not confirmed",
        "engine/hold.c",
        "        snib__watchdog_single(e, hold, (int64_t)(snib__hold_lease(e, hold) / "
        "SNIB__MS), now);\n",
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
        "a place ends with a lease",
        "engine/release.c",
        "if (hold->gate->kind->discipline == SNIB__QUEUED)\n        slack",
        "if (false)\n        slack",
    ),
    Mutant(
        "nobody beats for the others",
        "engine/wait.c",
        "snib__place_beat(e, wait->gate, now);",
        "(void)wait;",
    ),
    # Permits, semaphores, latches
    Mutant(
        "expired permits come back twice",
        "lua/permits_acquire.lua",
        "redis.call('incrby', KEYS[1], #over)",
        "redis.call('incrby', KEYS[1], 2 * #over)",
    ),
    Mutant(
        "permits come back that were not there",
        "lua/permits_release.lua",
        "local back = redis.call('zrem', KEYS[2], unpack(ARGV, 2))",
        "redis.call('zrem', KEYS[2], unpack(ARGV, 2))\nlocal back = #ARGV - 1",
    ),
    Mutant(
        "more permits than there are",
        "lua/permits_acquire.lua",
        "if not mine and value < n then",
        "if not mine and value < 1 then",
    ),
    Mutant(
        "a repeated request takes more permits",
        "lua/permits_acquire.lua",
        "if not mine then\n    local left",
        "if true then\n    local left",
    ),
    Mutant(
        "permits tell nobody",
        "lua/permits_release.lua",
        "value > 0 and redis.pcall('publish', ARGV[1], value)",
        "0",
    ),
    Mutant(
        "a semaphore's request is repeated",
        "locks/semaphore.c",
        ".traits = SNIB__UNOWNED",
        ".traits = 0",
    ),
    Mutant(
        "a semaphore tells nobody",
        "lua/semaphore_release.lua",
        "value > 0 and redis.pcall('publish', ARGV[2], value)",
        "0",
    ),
    Mutant(
        "a latch opens one count early",
        "lua/latch_count.lua",
        "if value > 1 then",
        "if value > 2 then",
    ),
    Mutant(
        "a latch lets go at the last count",
        "lua/latch_acquire.lua",
        "if value > 0 then",
        "if value > 1 then",
    ),
    Mutant(
        "a latch opens in silence",
        "lua/latch_count.lua",
        "redis.pcall('publish', ARGV[3], '0')",
        "local _ = 0",
    ),
    Mutant(
        "who wants less waits for who wanted more",
        "engine/gate.c",
        "else if (first && !snib__gate_sole(gate))",
        "else if (false && first)",
    ),
    # Several locks, other locks
    Mutant(
        "a multi lock takes what it gets",
        "lua/multi_acquire.lua",
        "if blocked then",
        "if blocked and blocked[1] == 0 then",
    ),
    Mutant(
        "a multi lock forgets its last member",
        "lua/multi_release.lua",
        "for i = 1, #kinds do\n    local done, message, was",
        "for i = 1, #kinds - 1 do\n    local done, message, was",
    ),
    Mutant(
        "a multi lock listens to its first member",
        "locks/multi.c",
        "verdict->blocker = (uint32_t)reply[1].integer;",
        "verdict->blocker = 0;",
    ),
    Mutant(
        "a multi lock renews its first member",
        "lua/multi_renew.lua",
        "        for m = 1, #kinds do\n            renew",
        "        for m = 1, 1 do\n            renew",
    ),
    Mutant(
        "a plain lock is deleted blindly",
        "lua/plain_release.lua",
        "if redis.call('get', KEYS[1]) ~= ARGV[1] then",
        "if redis.call('exists', KEYS[1]) == 0 then",
    ),
    Mutant(
        "a repeated hand-over keeps the old lease",
        "lua/write_transfer.lua",
        "        redis.call('pexpire', KEYS[1], ARGV[3])\n",
        "",
    ),
    Mutant(
        "spinning never slows down",
        "engine/wait.c",
        "        if (wait->brief < WAIT_POLL_MAX)\n            wait->brief++;\n",
        "",
    ),
    # Locks of several servers
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
        "        group->members[i].deadline = deadline;\n}",
        "        (void)deadline;\n}",
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
    ),
    Mutant(
        "a failed round undoes nothing",
        "locks/group.c",
        "    group_undo(group);\n    group->phase = SNIB__GROUP_PAUSING;",
        "    group->phase = SNIB__GROUP_PAUSING;",
    ),
    Mutant(
        "a failed group undoes nothing",
        "locks/group.c",
        "    group_undo(group);\n    group->phase = SNIB__GROUP_ENDED;",
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
        "if (member->state > GROUP_GIVEN)\n        member->again = true;",
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
        "    if (c->outer.ended)\n        snib__group_abandon(group);\n    else if",
        "    if (c->outer.ended)\n        return;\n    else if",
    ),
    Mutant(
        "a fixed lease of a quorum grows with later votes",
        "api/group.c",
        "if (c->lease && c->parts->majority && deadline > c->ends)",
        "if (c->lease && c->parts->majority && deadline == 0)",
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
    # The rest
    Mutant("the database is not selected", "net/conn.c", "if (login->database != 0)", "if (false)"),
    Mutant(
        "close keeps the locks",
        "engine/engine.c",
        "    if (rest) {\n        snib__gate_release(e, rest, now);\n",
        "    if (rest) {\n",
    ),
    Mutant(
        "a forgotten script is an error",
        "engine/node.c",
        "request->script >= 0 && request->tries++ == 0 &&",
        "request->script >= 0 && false &&",
    ),
    # The edges, found by tests of the real library
    Mutant(
        "a loss does not signal the queue's descriptor",
        "api/queue.c",
        "    queue->lost_tail = hold;\n    queue_signal(queue, was_empty, wakes);",
        "    queue->lost_tail = hold;\n    (void)was_empty;\n    (void)wakes;",
        by="live/loss",
    ),
    # Time
    Mutant(
        "the rest of a full batch is forgotten",
        "engine/watchdog.c",
        "    list->cursor = hold;\n    list->last = now;",
        "    list->cursor = batch->n == SNIB__BATCH_MAX ? NULL : hold;\n    list->last = now;",
        "unit_watchdog",
    ),
    Mutant(
        "a batch is as long as its holds have ids",
        "engine/watchdog.c",
        "(batch->n > 0 && ids > WATCHDOG_IDS_MAX)",
        "(batch->n > 0 && ids == 0)",
        "unit_watchdog",
    ),
    Mutant(
        "half a per cent for unequal clocks",
        "engine/hold.c",
        "return sent_at + lease - lease / 100 - SNIB__MARGIN;",
        "return sent_at + lease - lease / 200 - SNIB__MARGIN;",
    ),
    Mutant(
        "a renewal that comes too late counts",
        "engine/watchdog.c",
        "hold->phase != SNIB__HELD ||\n            snib__hold_over(e, hold, now))",
        "hold->phase != SNIB__HELD)",
    ),
    Mutant(
        "what is over is not lost",
        "engine/hold.c",
        "if (hold->phase != SNIB__HELD || now < snib__hold_end(hold))\n        return false;",
        "if (hold->phase != SNIB__HELD || now < snib__hold_end(hold) + 50 * SNIB__MS)\n"
        "        return false;",
        "unit_hold",
    ),
    Mutant(
        "a hand-over knows no limit",
        "engine/sole.c",
        "        gate->active = next;\n        snib__gate_grant(",
        "        gate->active = next;\n        next->max_hold_ms = 0;\n        snib__gate_grant(",
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
        "while (*timer.at == e->heap_n && i > 1 && e->heap[i / 2].when > timer.when) {",
        "unit_timer",
    ),
    Mutant(
        "what the server's clock does is not judged",
        "engine/clock.c",
        "    if (moved)\n        clock_moved(e, moved, now);",
        "    if (moved && now == 0)\n        clock_moved(e, moved, now);",
    ),
    Mutant(
        "a server's clock that was set casts no doubt on a hold",
        "engine/clock.c",
        "    e->node.moved_at = e->node.ready_since = now;",
        "    e->node.ready_since = now;",
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
        "    list->cursor = hold;\n    list->last = now;",
        "    list->cursor = batch->n < SNIB__BATCH_MAX ? hold : NULL;\n    list->last = now;",
    ),
    Mutant(
        "a refused TIME is not logged",
        "engine/clock.c",
        "        snib__engine_log(e, SNIB_LOG_INFO,",
        "        snib__engine_log(e, SNIB_LOG_INFO + 1,",
        "live/clock",
    ),
    Mutant(
        "a renewal that does not find its hold is taken for one that does",
        "engine/watchdog.c",
        "        if (lost) {\n            snib__hold_lose(",
        "        if (lost && reason == SNIB_REASON_TAKEN) {\n            snib__hold_lose(",
    ),
    Mutant(
        "a slow answer blinds the next one",
        "engine/clock.c",
        "if (!clock->known || moved ||",
        "if (sent || moved ||",
        "unit_clock",
    ),
    Mutant(
        "a client's limit is no lock's",
        "api/lock.c",
        "        lock->max_hold_ms = client->max_hold_ms;",
        "        lock->max_hold_ms = 0 * client->max_hold_ms;",
        "live/leases",
    ),
    # The driver, in a world of its own
    Mutant(
        "wake-ups that do not fit into a list are dropped",
        "driver/driver.c",
        "        snib__unpark(word); /* more than",
        "        (void)0; /* more than",
        "sim/driver",
    ),
    Mutant(
        "close waits a thousandth of its time",
        "api/client.c",
        "bool quiet = client_settle(client, until);",
        "bool quiet = client_settle(client, snib__now() + (until - snib__now()) / 1000);",
        "sim/driver",
    ),
    Mutant(
        "an interrupted recv ends the link",
        "driver/driver.c",
        "(error != EAGAIN && error != EINTR)",
        "(error != EAGAIN)",
        "sim/driver",
    ),
    Mutant(
        "nobody watches for room in a full socket",
        "driver/thread.c",
        ".events = unsent ? POLLIN | POLLOUT : POLLIN};",
        ".events = POLLIN};",
        "sim/driver",
    ),
    Mutant(
        "connecting knows no limit",
        "driver/sock.c",
        "if (step != 0 || now < sock->until)",
        "if (step != 0 || now < SNIB__NEVER)",
        "sim/driver",
    ),
    Mutant(
        "a socket that is not open is read",
        "driver/driver.c",
        "return sock && sock->open ? sock : NULL;",
        "return sock;",
        "sim/driver",
    ),
    Mutant(
        "a wake list does not keep the descriptor open",
        "driver/driver.c",
        "    atomic_fetch_add(&bell->refs, 1);\n",
        "",
        "sim/driver",
    ),
    Mutant(
        "a nominee is waited for",
        "driver/thread.c",
        "snib__now() >= sock->nominated_at + THREAD_TRANSIT",
        "false",
        "sim/driver",
    ),
    Mutant(
        "the thread sleeps as long as nobody wakes it",
        "driver/thread.c",
        "*until = thread_earlier(*until, now + d->nap);",
        "(void)0;",
        "sim/driver",
    ),
    Mutant(
        "a nominee is not woken",
        "driver/driver.c",
        "            snib__wake_word(d, wakes, &waiter->op->word);\n        }\n        sock->reader",
        "        }\n        sock->reader",
        "sim/driver",
    ),
    Mutant(
        "a dropped socket is still found",
        "driver/driver.c",
        "    d->socks[link] = NULL;\n    if (sock)\n        snib__sock_drop(sock);",
        "    if (sock)\n        snib__sock_drop(sock);\n    d->socks[link] = NULL;",
        "sim/driver",
    ),
    Mutant(
        "the thread spins while another is writing",
        "driver/thread.c",
        "!sock->writing && snib__buf_size(&sock->sending) > 0;",
        "snib__buf_size(&sock->sending) > 0;",
        "sim/driver",
    ),
    Mutant(
        "the second address waits for the end of the first",
        "driver/sock.c",
        "(sock->tries_n == 0 || now >= sock->begin_next)",
        "(sock->tries_n == 0)",
        "sim/driver",
    ),
    Mutant(
        "the address that worked is forgotten",
        "driver/sock.c",
        "way->worked_n = at->ai_addrlen;",
        "way->worked_n = 0;",
        "sim/driver",
    ),
    Mutant(
        "each attempt begins a lookup",
        "driver/sock.c",
        "if (resolve && sock_to_come(resolve, now)) {",
        "if (false && sock_to_come(resolve, now)) {",
        "sim/driver",
    ),
    Mutant(
        "the reader keeps the role",
        "driver/driver.c",
        "    if (sock == d->socks[SNIB__COMMAND])\n        snib__driver_pass_role(d, &wakes);",
        "    (void)0;",
        "sim/driver",
    ),
    Mutant(
        "answers are left unread",
        "driver/driver.c",
        "unread || full || pushed",
        "full || pushed",
        "sim/driver",
    ),
    Mutant(
        "two write at once",
        "driver/driver.c",
        "(sock = snib__driver_command(d)) && !sock->writing)",
        "(sock = snib__driver_command(d)))",
        "sim/driver",
    ),
    Mutant(
        "two read at once",
        "driver/driver.c",
        "(sock->reader == SNIB__READER_NOBODY || driver_nominated(d, op));",
        "(sock->reader != SNIB__READER_CALLER || driver_nominated(d, op));",
        "sim/driver",
    ),
    Mutant(
        "a queue is told outside the mutex",
        "driver/driver.c",
        "    snib__driver_ring(wakes);\n    snib__sys_unlock(&d->mutex);",
        "    snib__sys_unlock(&d->mutex);\n    snib__driver_ring(wakes);",
        "sim/driver",
    ),
    Mutant(
        "who watches holds is not woken",
        "driver/driver.c",
        "wakes->hold_watchers = true;",
        "wakes->hold_watchers = false;",
        "sim/driver",
    ),
    Mutant(
        "the background thread takes signals",
        "driver/sys.c",
        "    sigfillset(&all);",
        "    sigemptyset(&all);",
        "live/threads",
    ),
    Mutant(
        "a signal ends a wait as if its time had passed",
        "api/held.c",
        "    return how == SNIB__PARKED_SIGNAL\n",
        "    return how == SNIB__PARKED_SIGNAL + 100\n",
        "live/threads",
    ),
    # Addresses and options
    Mutant(
        "a password with a raw / in it names the host",
        "api/url.c",
        "(!scheme->is_unix && memchr(path.at, '@', path.n))",
        "false",
        "unit_url",
    ),
    Mutant(
        "a host may be named twice",
        "api/url.c",
        "if (snib__address_equal(&out->addresses[i], address))",
        "if (false)",
        "unit_url",
    ),
    Mutant(
        "a cluster is asked for another database",
        "api/url.c",
        "if (out->topology == SNIB__CLUSTER && number != 0)",
        "if (false)",
        "unit_url",
    ),
    Mutant(
        "the URL goes before the program",
        "api/options.c",
        "if (number == 0)\n            option_put(option, o, option_get(option, query));",
        "if (option_get(option, query))\n            option_put(option, o, option_get(option, query));",
        "unit_options",
    ),
    Mutant(
        "an option that is not built yet is taken without effect",
        "api/options.c",
        "if (!options_table[i].is_ready && option_is_given(&options_table[i], o, url))",
        "if (false)",
        "unit_options",
    ),
    Mutant(
        "an empty server name is taken, so that none is checked",
        "api/options.c",
        "if (text[0] == '\\0' && option->kind != OPTION_SECRET)",
        "if (false)",
        "unit_options",
    ),
    Mutant(
        "host names are compared by case",
        "net/address.c",
        "return c >= 'A' && c <= 'Z' ? (char)(c | 0x20) : c;",
        "return c;",
        "unit_address",
    ),
]


def untouched(source: Path, core: Path, changed: str) -> bool:
    """Whether an object cannot differ from the base; few files read the table of scripts."""
    if changed.endswith(".lua"):
        return "snib__script_texts" not in source.read_text()
    return source != core / changed


def compile_sim(core: Path, build: Path, changed: str, base: Path | None) -> None:
    """Compile the three simulators; objects that the change cannot touch are base's."""
    lua = subprocess.run(
        ["pkg-config", "--cflags", "--libs", "lua5.1"], check=True, text=True, capture_output=True
    ).stdout.split()
    build.mkdir()
    subprocess.run(
        [
            "cmake",
            f"-DDIR={core / 'lua'}",
            f"-DOUT={build / 'snib_scripts.h'}",
            "-P",
            str(core / "lua" / "embed.cmake"),
        ],
        check=True,
        capture_output=True,
    )
    shared = [
        *sorted(core.glob("engine/*.c")),
        *sorted(core.glob("locks/*.c")),
        *sorted(core.glob("net/*.c")),
        core / "api" / "codes.c",
        *(
            HERE / f"model_{part}.c"
            for part in ("keys", "lists", "lua", "reply", "server", "values")
        ),
    ]
    programs = {
        "sim": sorted(HERE.glob("sim*.c")),
        "sim_stories": sorted(HERE.glob("stor*.c")),
        "sim_group": [core / "api" / "group.c", *sorted(HERE.glob("group_*.c"))],
    }
    objects = {}
    for source in [*shared, *(source for own in programs.values() for source in own)]:
        name = f"{source.parent.name}_{source.stem}.o"
        if base is not None and untouched(source, core, changed):
            objects[source] = str(base / name)
            continue
        subprocess.run(
            [
                "gcc",
                *FLAGS,
                f"-I{build}",
                f"-I{core}",
                f"-I{core / 'include'}",
                f"-I{HERE}",
                *(flag for flag in lua if flag.startswith("-I")),
                "-c",
                str(source),
                "-o",
                str(build / name),
            ],
            check=True,
        )
        objects[source] = str(build / name)
    for program, own in programs.items():
        subprocess.run(
            [
                "gcc",
                *FLAGS,
                *(objects[source] for source in [*shared, *own]),
                "-o",
                str(build / program),
                *lua,
                "-lhiredis",
                "-lm",
            ],
            check=True,
        )


def run_program(command: list[str]) -> tuple[bool, str]:
    """Whether the program was content, and its last line."""
    try:
        result = subprocess.run(command, text=True, capture_output=True, timeout=900)
    except subprocess.TimeoutExpired:
        return False, "does not come to an end"
    lines = (result.stdout + result.stderr).strip().splitlines()
    if result.returncode < 0:
        return False, f"crashed by signal {-result.returncode}"
    return result.returncode == 0, lines[-1] if lines else ""


def run_sim(build: Path, seeds: int, changed: str) -> tuple[bool, str]:
    """The stories, worlds of all kinds, and worlds of mutexes, whose races are the rarest; for
    what only locks of several servers use, worlds of theirs, which are larger."""
    good, line = True, ""
    if not changed or changed.endswith("/group.c"):
        good, line = run_program([str(build / "sim_group"), "--seeds", f"1-{seeds // 5}"])
        if changed:
            return good, line
    if good:
        good, line = run_program([str(build / "sim_stories")])
    for option in ([], ["--mutexes"]):
        if good:
            good, line = run_program([str(build / "sim"), *option, "--seeds", f"1-{seeds}"])
    return good, line


def plant(mutant: Mutant, core: Path) -> None:
    source = core / mutant.file
    text = source.read_text()
    if text.count(mutant.old) != 1:
        sys.exit(
            f"mutants: {mutant.name}: {mutant.file} has its text {text.count(mutant.old)} times"
        )
    source.write_text(text.replace(mutant.old, mutant.new))


class Tree:
    """A copy of the core and its tests, built with CMake, for mutants that name a test program."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.build = folder / "build"
        for part in ("core", "cmake", "tests"):
            shutil.copytree(CORE.parent / part, folder / part)
        shutil.copy(CORE.parent / "CMakeLists.txt", folder)
        command = ["cmake", "-S", folder, "-B", self.build, "-G", "Ninja"]
        command += ["-DCMAKE_BUILD_TYPE=RelWithDebInfo", "-DSNIB_CLI=OFF"]
        subprocess.run(command, check=True, capture_output=True)

    def run(self, test: str) -> tuple[bool, str]:
        target = test.replace("/", "_")
        made = subprocess.run(
            ["cmake", "--build", self.build, "--target", target], text=True, capture_output=True
        )
        if made.returncode != 0:
            sys.exit(f"mutants: {test} cannot be built:\n{made.stdout[-2000:]}")
        result = subprocess.run(
            ["ctest", "--test-dir", self.build, "--output-on-failure", "-R", f"^{test}$"]
            + ["--no-tests=error", "--timeout", "300"],
            text=True,
            capture_output=True,
        )
        found = re.search(r"FAILED  \] (?!\d)(\w+)|\b(Timeout|SEGFAULT|abort)", result.stdout)
        return result.returncode == 0, f"{test} {found[1] or found[2] if found else 'fails'}"

    def try_mutant(self, mutant: Mutant) -> tuple[bool, str]:
        source = self.folder / "core" / mutant.file
        text = source.read_text()
        plant(mutant, self.folder / "core")
        good, how = self.run(mutant.by)
        source.write_text(text)
        return not good, how


def try_in_simulators(mutant: Mutant, work: Path, seeds: int) -> tuple[bool, str]:
    core = work / "core"
    shutil.rmtree(core, ignore_errors=True)
    shutil.copytree(work / "pristine", core)
    plant(mutant, core)
    build = work / "mutant"
    shutil.rmtree(build, ignore_errors=True)
    compile_sim(core, build, mutant.file, work / "base")
    good, line = run_sim(build, seeds, mutant.file)
    return not good, re.sub(r"^sim(_stories|_group)?: |; replay.*$", "", line)


def check_unchanged(chosen: list[Mutant], work: Path, seeds: int) -> Tree | None:
    """Build what the mutants need; the unchanged core must pass."""
    shutil.copytree(CORE, work / "pristine")
    for mutant in MUTANTS:
        text = (work / "pristine" / mutant.file).read_text()
        if text.count(mutant.old) != 1:
            sys.exit(f"mutants: {mutant.name}: its text is not once in {mutant.file}")
    if any(not mutant.by for mutant in chosen):
        compile_sim(work / "pristine", work / "base", "", None)
        good, line = run_sim(work / "base", min(seeds, 1000), "")
        if not good:
            sys.exit(f"mutants: the unchanged core fails: {line}")
    if not any(mutant.by for mutant in chosen):
        return None
    tree = Tree(work / "tree")
    for test in sorted({mutant.by for mutant in chosen} - {""}):
        good, line = tree.run(test)
        if not good:
            sys.exit(f"mutants: the unchanged core fails: {line}")
    return tree


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=10000)
    parser.add_argument("--sample", type=int, help="so many of them, drawn at random")
    parser.add_argument("--draw", default=str(datetime.date.today()), help="which draw; the date")
    parser.add_argument("names", nargs="*", help="only mutants whose name contains one of these")
    arguments = parser.parse_args()
    chosen = [
        m for m in MUTANTS if not arguments.names or any(n in m.name for n in arguments.names)
    ]
    if arguments.sample:
        chosen = random.Random(arguments.draw).sample(chosen, min(arguments.sample, len(chosen)))
    missed = []
    with tempfile.TemporaryDirectory(prefix="snib-mutants-") as folder:
        work = Path(folder)
        tree = check_unchanged(chosen, work, arguments.seeds)
        for mutant in chosen:
            begin = time.monotonic()
            if mutant.by and tree:
                caught, how = tree.try_mutant(mutant)
            else:
                caught, how = try_in_simulators(mutant, work, arguments.seeds)
            print(
                f"{'caught' if caught else 'MISSED'}  {mutant.name:<58} "
                f"{time.monotonic() - begin:6.1f} s  {how[:90] if caught else ''}",
                flush=True,
            )
            if not caught:
                missed.append(mutant.name)
    drawn = f", drawn by {arguments.draw}" if arguments.sample else ""
    print(f"mutants: {len(chosen) - len(missed)} of {len(chosen)} caught{drawn}")
    sys.exit(1 if missed else 0)


if __name__ == "__main__":
    main()
