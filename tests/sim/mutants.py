#!/usr/bin/env python3
"""Known bugs of lock clients, planted in copies of the core: the simulator must find every one.

    mutants.py [--seeds N] [NAME...]

Each mutant is one textual change.  A change that no longer fits the source is an error, so that this
list cannot rot in silence.  The unchanged core must pass first.
"""
import argparse
import os
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
FLAGS = ["-std=gnu11", "-O2", "-g", "-D_GNU_SOURCE", "-DSNIB_STATIC", "-fsanitize=undefined",
         "-fno-sanitize-recover=all"]


class Mutant(NamedTuple):
    name: str
    file: str
    old: str
    new: str


MUTANTS = [
    # Deadlines
    Mutant("lease counted from the reply", "engine/hold.c",
           "hold->deadline = snib__lease_end(sent_at, snib__hold_lease(e, hold));",
           "hold->deadline = snib__lease_end(now, snib__hold_lease(e, hold));"),
    Mutant("renewal counted from the reply", "engine/watchdog.c",
           "deadline = snib__lease_end(sent_at, e->config.lease);",
           "deadline = snib__lease_end(now, e->config.lease);"),
    Mutant("no margin for unequal clocks", "engine/hold.c",
           "return sent_at + lease - lease / 100 - SNIB__MARGIN;", "return sent_at + lease;"),
    Mutant("a grant that comes too late counts", "engine/gate.c",
           "bool late = now >= snib__lease_end(sent_at, snib__hold_lease(e, hold));",
           "bool late = false;"),
    # Renewal
    Mutant("renewal goes on after the release", "engine/gate.c",
           "    snib__hold_stop(e, hold);\n    if (held)", "    if (held)"),
    Mutant("renewal believes that it always works", "engine/watchdog.c",
           "bool lost = at + 1 < n && reply[at].integer == (int64_t)i + 1;", "bool lost = false && n;"),
    Mutant("no renewal again after a reconnect", "engine/watchdog.c",
           "    e->node.renew_cursor = e->node.renew_head;\n    snib__batch_recycle(e, batch);",
           "    snib__batch_recycle(e, batch);"),
    Mutant("renewal does not look at the owner", "lua/mutex_renew.lua",
           "redis.pcall('hexists', KEYS[i], ARGV[i + 1])", "redis.pcall('exists', KEYS[i])"),
    # Owners and counts
    Mutant("one owner number for all attempts", "engine/op.c",
           ".number = e->next_number++}", ".number = e->next_number}"),
    Mutant("the count is raised, not set", "lua/mutex_acquire.lua",
           "redis.call('hset', KEYS[1], ARGV[1], 1)", "redis.call('hincrby', KEYS[1], ARGV[1], 1)"),
    Mutant("acquire leaves no TTL", "lua/mutex_acquire.lua",
           "local set = redis.pcall('pexpire', KEYS[1], ARGV[2])", "local set = 1"),
    Mutant("acquire does not look at the owner", "lua/mutex_acquire.lua",
           "redis.call('hexists', KEYS[1], ARGV[1]) == 0", "redis.call('hlen', KEYS[1]) == 0"),
    Mutant("release deletes blindly", "lua/mutex_release.lua",
           "redis.call('hdel', KEYS[1], ARGV[1])", "redis.call('del', KEYS[1])"),
    Mutant("release tells nobody", "lua/mutex_release.lua",
           "redis.pcall('publish', ARGV[2], '0')", "0"),
    Mutant("hand-over does not look at the owner", "lua/mutex_transfer.lua",
           "redis.call('hdel', KEYS[1], ARGV[1]) == 0 and", "redis.call('del', KEYS[1]) == 0 and"),
    Mutant("a failed hand-over counts as a grant", "engine/gate.c",
           "if (!error && reply->type == SNIB__RESP_INTEGER && reply->integer == 1) {", "if (!error) {"),
    # Lost replies
    Mutant("a granted lock that nobody wants is kept", "engine/gate.c",
           "            gate_end_op(e, op, SNIB_EUNREACHABLE);\n        snib__gate_release(e, hold, now);",
           "            gate_end_op(e, op, SNIB_EUNREACHABLE);"),
    Mutant("an unanswered acquire is forgotten", "engine/gate.c",
           "    if (kind == SNIB__REQ_ACQUIRE && !hold->op) {",
           "    if (kind == SNIB__REQ_ACQUIRE && !hold->op) {\n"
           "        gate_forget_hold(e, hold);\n        return;"),
    Mutant("after a lost reply an error means no", "engine/gate.c",
           "error == SNIB_ESERVER || (error && (hold->flags & SNIB__RESENT));", "error == SNIB_ESERVER;"),
    Mutant("an unanswered release counts as done", "engine/gate.c",
           "    int kind = request->kind;",
           "    int kind = request->kind;\n    if (kind == SNIB__REQ_RELEASE) {\n"
           "        gate_released(e, hold, SNIB_OK, now);\n        return;\n    }"),
    Mutant("the old connection may still act", "net/conn.c",
           "if (conn->kill_id != 0)\n            bad |=", "if (false)\n            bad |="),
    Mutant("a reply goes to the next request after a cancel", "engine/node.c",
           "            request->subject = NULL;", "            conn->ring_count--;"),
    Mutant("release is always a success", "engine/gate.c",
           "bool ours = verdict.yes || (", "bool ours = true || ("),
    # Telling
    Mutant("a loss is not told", "engine/hold.c",
           "if (hold->tell && (hold->flags & SNIB__HANDED)) {",
           "if (false && (hold->flags & SNIB__HANDED)) {"),
    Mutant("an unreachable server is not a loss", "engine/watchdog.c",
           "while (node->renew_head && node->renew_head->deadline <= now)",
           "while (false && now)"),
    Mutant("a timed wait is not timed while its try is under way", "engine/gate.c",
           "if ((!snib__node_ready(e) || op->deadline != SNIB__NEVER) && snib__op_arm(e, op) < 0) {",
           "if (!snib__node_ready(e) && snib__op_arm(e, op) < 0) {"),
    # Waiting
    Mutant("no try on the confirmation of a subscription", "engine/wait.c",
           "        wait->own_messages = 0;\n        wait_try(e, wait, now);", "        wait->own_messages = 0;"),
    Mutant("no timer beside the messages", "engine/wait.c",
           "if (snib__timer_set(e, SNIB__TIMER_WAIT, wait, &wait->timer_at, now + sleep) < 0)",
           "if (sleep == 0)"),
    Mutant("no new subscription after a reconnect", "engine/wait.c",
           "            if (wait->head)\n                wait_subscribe(e, wait, now);",
           "            if (wait->head && now == 0)\n                wait_subscribe(e, wait, now);"),
    Mutant("waiters ask without pause", "engine/wait.c",
           "    if (snib__timer_set(e, SNIB__TIMER_WAIT, wait,",
           "    sleep = SNIB__MS;\n    if (snib__timer_set(e, SNIB__TIMER_WAIT, wait,"),
    Mutant("the last waiter's subscription stays", "engine/wait.c",
           "if (wait->channel == SNIB__CHAN_ON || wait->channel == SNIB__CHAN_ASKED) {",
           "if (false) {"),
    Mutant("a lingering subscription takes new waiters with it", "engine/wait.c",
           "        wait_unidle(e, gate->wait); /*", "        /*"),
    Mutant("another's message is taken for a refused release's own", "engine/gate.c",
           "        else\n            wait->hint = true;\n    }\n", "    }\n"),
    Mutant("messages that were lost are expected for ever", "engine/wait.c",
           "    wait->own_messages = 0; /* what has not come by now was lost */", ""),
    Mutant("a refusal without a name takes all subscriptions", "engine/wait.c",
           "(wait->channel == SNIB__CHAN_ASKED || wait->channel == SNIB__CHAN_REFUSED)",
           "wait->channel == SNIB__CHAN_ASKED"),
    # The rest
    Mutant("the database is not selected", "net/conn.c",
           "if (login->database != 0)", "if (false)"),
    Mutant("close keeps the locks", "engine/engine.c",
           "                snib__gate_release(e, rest, now);", "                (void)rest;"),
    Mutant("a forgotten script is an error", "engine/node.c",
           "request->script >= 0 && request->tries++ == 0 &&", "request->script >= 0 && false &&"),
]


def compile_sim(core: Path, build: Path, changed: str, base: Path | None) -> None:
    """Compile into build/sim; objects that the change cannot touch are taken from base."""
    lua = subprocess.run(["pkg-config", "--cflags", "--libs", "lua5.1"], check=True, text=True,
                         capture_output=True).stdout.split()
    build.mkdir()
    subprocess.run(["cmake", f"-DDIR={core / 'lua'}", f"-DOUT={build / 'snib_scripts.h'}", "-P",
                    str(core / "lua" / "embed.cmake")], check=True, capture_output=True)
    sources = [*sorted(core.glob("engine/*.c")), *sorted(core.glob("locks/*.c")), *sorted(core.glob("net/*.c")),
               core / "api" / "codes.c", *sorted(HERE.glob("sim*.c")),
               *(HERE / f"model_{part}.c" for part in ("keys", "lua", "reply", "server"))]
    objects = []
    for source in sources:
        name = f"{source.parent.name}_{source.stem}.o"
        if base is not None and not changed.endswith(".lua") and source != core / changed:
            objects.append(str(base / name))
            continue
        subprocess.run(["gcc", *FLAGS, f"-I{build}", f"-I{core}", f"-I{core / 'include'}", f"-I{HERE}",
                        *(flag for flag in lua if flag.startswith("-I")), "-c", str(source), "-o",
                        str(build / name)], check=True)
        objects.append(str(build / name))
    subprocess.run(["gcc", *FLAGS, *objects, "-o", str(build / "sim"), *lua, "-lhiredis"], check=True)


def run_sim(build: Path, seeds: int) -> tuple[bool, str]:
    """Whether the simulator was content, and its last line."""
    try:
        result = subprocess.run([str(build / "sim"), "--seeds", f"1-{seeds}"], text=True,
                                capture_output=True, timeout=600)
    except subprocess.TimeoutExpired:
        return False, "does not come to an end"
    lines = (result.stdout + result.stderr).strip().splitlines()
    if result.returncode < 0:
        return False, f"crashed by signal {-result.returncode}"
    return result.returncode == 0, lines[-1] if lines else ""


def try_mutant(mutant: Mutant, work: Path, seeds: int) -> tuple[bool, str]:
    core = work / "core"
    shutil.rmtree(core, ignore_errors=True)
    shutil.copytree(work / "pristine", core)
    source = core / mutant.file
    text = source.read_text()
    if text.count(mutant.old) != 1:
        sys.exit(f"mutants: {mutant.name}: {mutant.file} has its text {text.count(mutant.old)} times")
    source.write_text(text.replace(mutant.old, mutant.new))
    build = work / "mutant"
    shutil.rmtree(build, ignore_errors=True)
    compile_sim(core, build, mutant.file, work / "base")
    good, line = run_sim(build, seeds)
    return not good, re.sub(r"^sim: |; replay.*$", "", line)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=10000)
    parser.add_argument("names", nargs="*", help="only mutants whose name contains one of these")
    arguments = parser.parse_args()
    chosen = [m for m in MUTANTS if not arguments.names or any(n in m.name for n in arguments.names)]
    missed = []
    with tempfile.TemporaryDirectory(prefix="snib-mutants-") as folder:
        work = Path(folder)
        shutil.copytree(CORE, work / "pristine")
        compile_sim(work / "pristine", work / "base", "", None)
        good, line = run_sim(work / "base", arguments.seeds)
        if not good:
            sys.exit(f"mutants: the unchanged core fails: {line}")
        for mutant in chosen:
            begin = time.monotonic()
            caught, how = try_mutant(mutant, work, arguments.seeds)
            print(f"{'caught' if caught else 'MISSED'}  {mutant.name:<58} {time.monotonic() - begin:6.1f} s  "
                  f"{how[:90] if caught else ''}", flush=True)
            if not caught:
                missed.append(mutant.name)
    print(f"mutants: {len(chosen) - len(missed)} of {len(chosen)} caught by the simulator")
    sys.exit(1 if missed else 0)


if __name__ == "__main__":
    main()
