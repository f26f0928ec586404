#!/usr/bin/env python3
"""The options of snib run: times, limits, exit codes, and what it says when one is wrong."""
import os
import time
import unittest

from command import BUSY, LEASE, LOST, SERVER, TIMEDOUT, USAGE, CommandCase, shown

# A command that SIGTERM does not end, and that says so.
DEAF = "trap 'echo told' TERM; echo ready; "


class Options(CommandCase):
    # ---- times -----------------------------------------------------------------------------------

    def lease_of(self, text):
        """The lease in milliseconds that the server is asked for."""
        self.server("CONFIG", "SET", "slowlog-log-slower-than", 0)
        self.server("SLOWLOG", "RESET")
        done = self.snib("run", "a", "--lease", text, "--", "true")
        self.assertIn(done.returncode, (0, LOST), done.stderr) # a machine may stall for 100 ms
        calls = [entry[3] for entry in self.server("SLOWLOG", "GET", 128)]
        acquire = [call for call in calls if call[0].upper() in ("EVALSHA", "EVAL") and call[3:4] == ["a"]][-1]
        return int(acquire[5])

    def test_times(self):
        leases = {"0.1": 100, "2": 2000, "1.5": 1500, "250ms": 250, "0.25s": 250, "1.5s": 1500, "1.5m": 90000,
                  "0.5h": 1800000, "1d": 86400000, "24h": 86400000, "1h30m": 5400000, "1m0.5s": 60500,
                  "1h2m3s4ms": 3723004, "100.4ms": 100, "100.5ms": 101, "0d0h0m1s": 1000, "23h60m": 86400000}
        for text, milliseconds in leases.items():
            with self.subTest(text=text):
                self.assertEqual(self.lease_of(text), milliseconds)

    def test_what_is_no_time(self):
        bad = ("", "s", "-1", "+1", " 1s", "1s ", "1 s", "1x", "1S", ".5s", "1.s", "1..5s", "1e3", "0x10", "1,5s", "1w",
               "1h30", "30m1h", "1s1s", "1ms1s", "1h 30m", "1dd", "--", "1d1ms", "25h", "9" * 30, "9" * 30 + "d")
        least = {"--wait": "0", "--lease": "100ms", "--max-hold": "1ms", "--kill-after": "0"}
        for option, start in least.items():
            for text in (*bad, *{"0": (), "1ms": ("0", "0.4ms"), "100ms": ("0", "99ms", "99.4ms")}[start]):
                with self.subTest(option=option, text=text):
                    done = self.snib("run", "a", option, text, "--", "true")
                    self.assertEqual((done.returncode, done.stdout), (USAGE, ""))
                    self.assertEqual(done.stderr, f"snib: {option} needs a time from {start} to 24h, such as 1.5s or "
                                                  f"1m30s, not {shown(text)}; see snib --help\n")

    def test_empty_words(self):
        """A variable that was not set, in a script: the message shows that it was empty."""
        for words, text in ((["run", "a", "--on-loss", "", "--", "true"], '--on-loss needs term, kill or ignore, not ""'),
                            (["stats", "--output", ""], '--output needs the name of a file, new or old, not ""'),
                            (["scripts", "--kind", ""], 'semaphore or latch, not ""'), ([""], 'no such command: ""'),
                            (["info", "a", ""], 'too many arguments: ""'), (["latch", "a", ""], 'wait or nothing, not ""'),
                            (["latch", "a", "set", ""], 'a number from 1 to 2147483647, not ""')):
            with self.subTest(words=words):
                done = self.snib(*words)
                self.assertEqual((done.returncode, done.stdout), (USAGE, ""))
                self.assertTrue(done.stderr.endswith(f"{text}; see snib --help\n"), done.stderr)

    # ---- limits ----------------------------------------------------------------------------------

    def test_max_hold(self):
        begun = time.monotonic()
        process = self.hold("a", "--max-hold", LEASE, "--lease", "1h")
        code, text = self.end(process)
        self.assertEqual(code, LOST)
        self.assertRegex(text, r"^snib: lock lost while the command ran: .*max.?hold.*\n$")
        self.assertGreaterEqual(time.monotonic() - begun, 3.9)
        self.assertFree("a")

    def test_max_hold_is_over_before_the_command(self):
        done = self.snib("run", "a", "--max-hold", "1ms", "--", "echo", "ran")
        self.assertEqual((done.returncode, done.stdout), (LOST, ""))
        self.assertRegex(done.stderr, r"^snib: (the lock was lost before the command could start|lock lost: max.?hold.*)\n$")

    def test_max_hold_replaces_that_of_the_url(self):
        url = self.server.url + "?max_hold=1h"
        process = self.hold("a", "--max-hold", LEASE, "--url", url, "--on-loss", "kill")
        self.assertEqual(self.end(process)[0], LOST)

    def wait_for_told(self, process):
        """The trap has run.  The shell may also say that its sleep was terminated."""
        self.assertIn("lost", process.stdout.readline())
        while (line := process.stdout.readline()) != "told\n":
            self.assertIn("erminated", line)

    def test_kill_after_a_loss(self):
        process = self.hold("a", "--lease", LEASE, "--kill-after", "1d", script=DEAF + self.until_go())
        self.server("DEL", "a")
        self.wait_for_told(process)
        time.sleep(6) # the usual SIGKILL would come after five
        self.assertIsNone(process.poll())
        self.go()
        self.assertEqual(self.end(process)[0], LOST)

    def test_kill_after_nothing(self):
        """Without time there is no SIGTERM: not after a loss, for the rest, or when snib was killed."""
        for end, code in (("loss", LOST), ("rest", 0), ("kill", -9)):
            with self.subTest(end=end):
                script = DEAF + "while :; do sleep .02; done"
                if end == "rest":
                    script = f"(trap 'echo told' TERM; echo ready; while :; do sleep .02; done) & {self.until_go()}"
                process = self.hold(end, "--lease", LEASE, "--kill-after", "0", script=script)
                self.go()
                if end == "loss":
                    self.server("DEL", end)
                if end == "kill":
                    process.kill()
                got, text = self.end(process)
                os.remove(f"{self.folder.name}/go")
                self.assertEqual(got, code)
                self.assertNotIn("told", text)
                self.assertFree(end)

    # ---- not free in time ------------------------------------------------------------------------

    def test_busy_code(self):
        self.hold("a")
        for code in (0, 1, 7, 255):
            for wait in ("0", "100ms"):
                done = self.snib("run", "a", "--wait", wait, "--busy-code", str(code), "--", "echo", "ran")
                self.assertEqual((done.returncode, done.stdout), (code, ""))
                self.assertEqual(done.stderr.count("\n"), 1)
        done = self.snib("run", "b", "--busy-code", "7", "--", "sh", "-c", "exit 5")
        self.assertEqual(done.returncode, 5)
        for text in ("", "-1", "256", "x", "1x", " 1", "1.5", "9" * 30):
            done = self.snib("run", "b", "--busy-code", text, "--", "true")
            self.assertEqual((done.returncode, done.stdout), (USAGE, ""))
            self.assertEqual(done.stderr,
                             f"snib: --busy-code needs a number from 0 to 255, not {shown(text)}; see snib --help\n")

    def test_quiet(self):
        self.hold("a")
        for option in ("-q", "--quiet"):
            for wait, code in (("0", BUSY), ("100ms", TIMEDOUT)):
                done = self.snib("run", "a", option, "--wait", wait, "--", "echo", "ran")
                self.assertEqual((done.returncode, done.stdout, done.stderr), (code, "", ""))
            done = self.snib("run", "a", option, "--json", "--wait", "0", "--", "echo", "ran")
            self.assertEqual((done.returncode, done.stdout, done.stderr), (BUSY, "", ""))
        done = self.snib("run", "a", "-q", "--url", f"unix://{self.folder.name}/nobody", "--", "true")
        self.assertEqual(done.returncode, SERVER)
        self.assertIn("nobody", done.stderr)
        process = self.hold("b", "-q", "--lease", LEASE)
        self.server("DEL", "b")
        code, text = self.end(process)
        self.assertEqual(code, LOST)
        self.assertIn("lost", text)

    # ---- errors name the option ------------------------------------------------------------------

    def test_options_that_do_not_exist(self):
        command = ["run", "a", "--", "true"]
        for words, text in ((["--no"], "unknown or ambiguous option: --no"), (["-x"], "unknown or ambiguous option: -x"),
                            (["-qx"], "unknown or ambiguous option: -x"), (["--re"], "unknown or ambiguous option: --re"),
                            (["--fair=yes"], "--fair takes no value"), (["--quiet=1"], "--quiet takes no value")):
            done = self.snib(*words, *command)
            self.assertEqual((done.returncode, done.stdout), (USAGE, ""))
            self.assertEqual(done.stderr, f"snib: {text}; see snib --help\n")
        done = self.snib("--password=canary=canary", *command) # no value of such an option is shown
        self.assertEqual((done.returncode, done.stderr),
                         (USAGE, "snib: unknown or ambiguous option: --password; see snib --help\n"))
        url = "redis://user:canary@host?password=canary" # --url was forgotten before it, or a value after another option
        for words, text in (["info", "a", url], "too many arguments: "), ([url], "no such command: "), \
                (["run", "a", "b", "--fenced", url], "--fenced is for one lock"), (["list", "--wait", url], "--wait needs a time"), \
                (["run", "a", "--on-loss", url], "--on-loss needs"), (["acl", "a b" + url], "a rule cannot have spaces"), \
                (["list", "--limit", "redis://user:can/ary?canary#canary@h"], "--limit needs a number"):
            done = self.snib(*words)
            self.assertEqual(done.returncode, USAGE)
            self.assertIn(text, done.stderr)
            self.assertNotIn("canary", done.stderr)
        for option in ("wait", "lease", "max-hold", "kill-after", "busy-code", "permits", "on-loss", "rest", "url"):
            done = self.snib("run", "a", f"--{option}")
            self.assertEqual(done.stderr, f"snib: --{option} needs a value; see snib --help\n")
            self.assertEqual(done.returncode, USAGE)

    # ---- names that begin with a hyphen ------------------------------------------------------------

    def test_names_after_two_hyphens(self):
        script = "echo $SNIB_LOCK $1"
        for names in (["-x"], ["--fair", "y", "-"], ["-"]):
            done = self.snib("run", "--", *names, "--", "sh", "-c", script, "sh", "--", "a")
            self.assertEqual((done.returncode, done.stdout), (0, " ".join(names) + " --\n"))
        process = self.start("hold", "--", "-x", "y")
        self.assertEqual(process.stdout.readline(), "snib: holding -x, y, until Ctrl-C or SIGTERM\n")
        self.assertRegex(self.snib("info", "--", "-x").stdout, "^-x: mutex")
        self.assertRegex(self.snib("info", "--", "y").stdout, "^y: mutex")
        self.assertEqual(self.snib("list", "--", "-*").stdout, "mutex    -x\n")
        self.assertEqual(self.snib("release", "--force", "--", "-x").stdout, "-x: released\n")
        self.assertEqual(self.snib("latch", "--", "-l", "set", "3").stdout, "3\n")
        self.assertEqual(self.snib("latch", "--", "-l", "down").stdout, "2\n")
        self.assertIn("~-x*", self.snib("acl", "--", "-x").stdout)

    def test_what_is_no_name_after_two_hyphens(self):
        """A name that was forgotten, or was an empty word of a script, is no reason to take COMMAND for it."""
        for words, text in ((["run", "--", "git", "checkout", "--", "file"], "a lock's name is missing after run"),
                            (["run", "--", "-x"], "a command is missing"), (["run", "--", "-x", "--"], "a command is missing"),
                            (["run", "--", "--", "true"], "a lock's name is missing after run"),
                            (["hold", "a", "--", "true"], "hold runs no command"),
                            (["top", "--once", "--", "x"], "only run takes a command after --, not top"),
                            (["info", "a", "--", "b"], "only run takes a command after --, not info"),
                            (["info", "--", "-a", "b"], "too many arguments: b"),
                            (["info", "--", "-a", "--", "b"], "only run takes a command after --, not info"),
                            (["info", "--"], "a lock's name is missing after info"), (["plan", "--", "-x"], "too many arguments: -x")):
            with self.subTest(words=words):
                done = self.snib(*words)
                self.assertEqual((done.returncode, done.stdout), (USAGE, ""))
                self.assertIn(text, done.stderr)
        self.assertEqual(self.server("DBSIZE"), 0)

    def test_options_of_run_alone(self):
        for option, value in (("max-hold", "1s"), ("kill-after", "1s"), ("busy-code", "1")):
            done = self.snib("info", "a", f"--{option}", value)
            self.assertEqual((done.returncode, done.stdout), (USAGE, ""))
            self.assertEqual(done.stderr, f"snib: --{option} cannot be used with info; see snib --help\n")

    def test_help(self):
        done = self.snib("run", "-h")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertEqual(done.stdout, self.snib("--help").stdout)


if __name__ == "__main__":
    unittest.main()
