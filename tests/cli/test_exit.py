#!/usr/bin/env python3
"""The exit codes: every case of the manual's EXIT STATUS for snib run and snib hold, and those of the other commands, in tables."""
import os
import pathlib
import re
import signal
import subprocess
import unittest

from command import BUSY, LEASE, LOST, NOT_FOUND, NOT_RUNNABLE, SERVER, SNIB, TIMEDOUT, USAGE, CommandCase
from server import Server, wait_for
from test_guard import children



# What happens, and then: the exit code of run, and of hold; None: it cannot happen.
TABLE = (
    ("all_is_well", 5, 0),
    ("the_command_dies_of_a_signal", 128 + signal.SIGUSR1, None),
    ("a_signal_while_held", 128 + signal.SIGTERM, 0),
    ("a_signal_while_waiting", 128 + signal.SIGTERM, 128 + signal.SIGTERM),
    ("held_elsewhere_and_one_try", BUSY, BUSY),
    ("held_elsewhere_and_a_wait", TIMEDOUT, TIMEDOUT),
    ("held_elsewhere_and_a_busy_code", 9, 9),
    ("lost", LOST, LOST),
    ("lost_and_kill", LOST, None),
    ("lost_and_ignored", 5, None),
    ("lost_before_the_command_and_ignored", LOST, None),
    ("lost_at_the_end", LOST, LOST),
    ("lost_at_the_end_and_ignored", 5, None),
    ("max_hold", LOST, LOST),
    ("max_hold_and_ignored", 5, None),
    ("over_when_it_begins", LOST, LOST),
    ("over_when_it_begins_and_ignored", LOST, None),
    ("server_away", SERVER, SERVER),
    ("server_gone_at_the_release", 5, SERVER),
    ("other_data_under_the_name", SERVER, SERVER),
    ("bad_option", USAGE, USAGE),
    ("bad_name", USAGE, USAGE),
    ("guardian_killed", USAGE, None),
    ("not_runnable", NOT_RUNNABLE, None),
    ("not_found", NOT_FOUND, None),
)


class Exit(CommandCase):
    def setUp(self):
        super().setUp()
        self.word = "run"

    # ---- what the cases need ---------------------------------------------------------------------

    def command(self, script):
        return ["--", "sh", "-c", script] if self.word == "run" else []

    def code(self, *words, command=None):
        """The exit code of one that ends by itself."""
        command = command if command is not None else self.command("exit 5")
        return self.snib(self.word, "a", *words, *command).returncode

    def holding(self, *words, script=None, **options):
        """One that holds the lock, and whose command ends with 5 after go()."""
        script = script or f"echo ready; {self.until_go()}; exit 5"
        process = self.start(self.word, "a", *words, *self.command(script), **options)
        self.assertRegex(process.stdout.readline(), "ready|holding")
        return process

    def done(self, process):
        """Let it end as usual, and return its exit code."""
        if self.word == "run":
            self.go()
        else:
            process.terminate()
        return self.end(process)[0]

    def heard(self, process, text):
        while text not in (line := process.stdout.readline()):
            self.assertNotEqual(line, "")

    # ---- the cases -------------------------------------------------------------------------------

    def all_is_well(self):
        return self.done(self.holding())

    def the_command_dies_of_a_signal(self):
        return self.code(command=["--", "sh", "-c", "kill -USR1 $$"])

    def a_signal_while_held(self):
        process = self.holding()
        process.terminate()
        return self.end(process)[0]

    def a_signal_while_waiting(self):
        self.hold("a")
        process = self.start(self.word, "a", *self.command("exit 5"))
        wait_for(lambda: self.server("PUBSUB", "CHANNELS"), "the waiter to subscribe")
        process.terminate()
        return self.end(process)[0]

    def held_elsewhere_and_one_try(self):
        self.hold("a")
        return self.code("--wait", "0")

    def held_elsewhere_and_a_wait(self):
        self.hold("a")
        return self.code("--wait", "100ms")

    def held_elsewhere_and_a_busy_code(self):
        self.hold("a")
        return self.code("--wait", "100ms", "--busy-code", "9")

    def lost(self, *words):
        process = self.holding("--lease", LEASE, *words)
        self.server("DEL", "a")
        return self.end(process)[0]

    def lost_and_kill(self):
        return self.lost("--on-loss", "kill")

    def lost_and_ignored(self):
        process = self.holding("--lease", LEASE, "--on-loss", "ignore")
        self.server("DEL", "a")
        self.heard(process, "lost")
        return self.done(process)

    def lost_before_the_command_and_ignored(self):
        """Its exec hangs until then."""
        stops = os.environ.get("SNIB_STOPS", "")
        if not stops:
            self.skipTest("SNIB_STOPS names no library to preload (a sanitized build has none)")
        self.env = {**self.env, "LD_PRELOAD": stops, "SNIB_EXEC_WAITS": f"{self.folder.name}/go"}
        process = self.start("run", "a", "--lease", LEASE, "--on-loss", "ignore", "--", "sh", "-c", "exit 5")
        wait_for(lambda: self.server("EXISTS", "a"), "the lock")
        guardian = wait_for(lambda: children(process.pid), "the guardian")[0]
        wait_for(lambda: children(guardian), "the command's process")
        self.server("DEL", "a")
        return self.end(process)[0]

    def lost_at_the_end(self, *words):
        process = self.holding(*words)
        self.server("DEL", "a")
        return self.done(process)

    def lost_at_the_end_and_ignored(self):
        return self.lost_at_the_end("--on-loss", "ignore")

    def max_hold(self):
        return self.end(self.holding("--max-hold", LEASE))[0]

    def max_hold_and_ignored(self):
        process = self.holding("--max-hold", LEASE, "--on-loss", "ignore")
        self.heard(process, "lost")
        return self.done(process)

    def over_when_it_begins(self, *words):
        """Less than a millisecond is left when the lock is granted."""
        return self.code("--max-hold", "1ms", *words)

    def over_when_it_begins_and_ignored(self):
        return self.over_when_it_begins("--on-loss", "ignore")

    def server_away(self):
        return self.code("--url", f"unix://{self.folder.name}/nobody")

    def server_gone_at_the_release(self):
        other = Server()
        self.addCleanup(other.stop)
        process = self.holding("--url", other.url + "?patience=100ms&reply_timeout=60s")
        other.process.send_signal(signal.SIGSTOP)
        try:
            return self.done(process)
        finally:
            other.process.send_signal(signal.SIGCONT)

    def other_data_under_the_name(self):
        self.server("SET", "a", "data")
        return self.code()

    def bad_option(self):
        return self.code("--wait", "soon")

    def bad_name(self):
        return self.code("b\n")

    def guardian_killed(self):
        process = self.holding()
        os.kill(children(process.pid)[0], signal.SIGKILL)
        return self.end(process)[0]

    def not_runnable(self):
        return self.code(command=["--", "/"])

    def not_found(self):
        return self.code(command=["--", "no-such-program"])

    # ---- the table -------------------------------------------------------------------------------

    def case(self, what, word, wanted):
        self.word = word
        try:
            with self.subTest(what=what, word=word):
                self.assertEqual(getattr(self, what)(), wanted)
        finally:
            self.tearDown()
            self.setUp()

    def test_table(self):
        environment = self.env
        for what, run, hold in TABLE:
            for word, wanted in (("run", run), ("hold", hold)):
                self.env = environment
                if wanted is not None:
                    self.case(what, word, wanted)

    def test_every_code_of_the_manual_is_in_the_table(self):
        manual = pathlib.Path(__file__).parents[2] / "core/cli/snib.1"
        section = re.search(r"\.SH EXIT STATUS\n(.*?)\n\.SH ", manual.read_text(), re.S).group(1)
        named = {int(number) for number in re.findall(r"^\.B (\d+)$", section, re.M)}
        self.assertEqual(named, set(range(121, 128)))
        self.assertLessEqual(named, {code for row in TABLE for code in row[1:]})
        said = self.snib("--help").stdout.partition("exit codes:")[2]
        self.assertEqual(named, {int(number) for number in re.findall(r"^ +(12\d) ", said, re.M)})


# The other commands, each where there is nothing under the name; and the exit code, whether a server is asked, and whether
# other data under the name is an error.
OTHERS = (
    ("info a", 0, True, False),
    ("list", 0, True, False),
    ("top --once", 0, True, False),
    ("top --json --once", 0, True, False),
    ("stats", 0, True, False),
    ("release --force a", 1, True, True),
    ("release --force --fair a", 1, True, True),
    ("latch a", 0, True, True),
    ("latch a set 3", 0, True, True),
    ("latch a down", 0, True, True),
    ("latch a wait --wait 0", 0, True, True),
    ("doctor", 0, True, False),
    ("acl a", 0, True, False),
    ("scripts --kind latch", 0, True, False),
    ("plan --rate 1", 0, False, False),
    ("plan --rate 1000000", 1, False, False),
)


class Others(CommandCase):
    def code(self, words, output=subprocess.DEVNULL, **variables):
        done = subprocess.run([SNIB, *words.split()], env={**self.env, **variables}, stdin=subprocess.DEVNULL, stdout=output,
                              stderr=subprocess.PIPE, timeout=120)
        self.assertEqual(bool(done.stderr), done.returncode > 1, (words, done.stderr))
        return done.returncode

    def test_table(self):
        away = f"unix://{self.folder.name}/nobody?patience=100ms&try_timeout=100ms"
        with open("/dev/full", "w") as full:
            for words, code, asks, minds in OTHERS:
                with self.subTest(words=words):
                    self.server("FLUSHALL")
                    self.server("HSET", "b", "00000000-0000-8000-8000-000000000000:1", 1) # for list
                    self.assertEqual(self.code(words), code)
                    self.assertEqual(self.code(words, output=full), USAGE)
                    self.assertEqual(self.code(f"{words} --no-such-option"), USAGE)
                    self.assertEqual(self.code(words, SNIB_URL=away), SERVER if asks else code)
                    self.assertEqual(self.code(words, SNIB_PASSWORD="wrong"), SERVER if asks else code)
                    self.server("FLUSHALL")
                    self.server("SADD", "a", "data")
                    self.assertEqual(self.code(words), SERVER if minds else code)

    def test_busy(self):
        for words in "latch a wait --wait 0", "latch a wait --wait 100ms":
            self.server("SET", "a", "2")
            self.assertEqual(self.code(words), BUSY if words.endswith(" 0") else TIMEDOUT)
            self.assertEqual(self.code(f"{words} --busy-code 9"), 9)
        self.assertEqual(self.code("latch a set 3"), 1) # it was set
        self.assertEqual(self.code("release --force --latch a"), 0)

    def test_every_command_is_in_the_tables(self):
        usage = self.snib("--help").stdout.partition("\n\n")[0]
        named = set(re.findall(r"snib ([a-z]+)", usage))
        self.assertEqual(named, {words.split()[0] for words, *_ in OTHERS} | {"run", "hold"})


if __name__ == "__main__":
    unittest.main()
