"""A test case that runs the snib command as a user does, against a private server.

SNIB_COMMAND names the command (default: snib on PATH), SNIB_TEST_SERVER another server.
"""
import json
import os
import pathlib
import subprocess
import tempfile
import unittest

import jsonschema

from server import PATIENT, Server, wait_for

SNIB = os.environ.get("SNIB_COMMAND", "snib")
# A lease for holds that must be lost soon, but not because a process stalls for two seconds.
LEASE = "4s"
BUSY, TIMEDOUT, LOST, SERVER, USAGE, NOT_RUNNABLE, NOT_FOUND = range(121, 128)


SCHEMAS = {path.stem: jsonschema.Draft202012Validator(json.loads(path.read_text()))
           for path in (pathlib.Path(__file__).parents[2] / "core/cli/schemas").glob("*.json")}


def shown(argument):
    """As a message about it has it: an empty one has to be seen."""
    return argument or '""'


class CommandCase(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Server()
        cls.env = {**os.environ, "SNIB_URL": cls.server.url + PATIENT}
        cls.env.pop("SNIB_PASSWORD", None)

    @classmethod
    def tearDownClass(cls):
        cls.server.stop()

    def setUp(self):
        self.server("FLUSHALL")
        self.started = []
        self.folder = tempfile.TemporaryDirectory(prefix="snib-cli-")

    def tearDown(self):
        for process in self.started:
            if process.poll() is None:
                process.kill()
            process.wait()
            process.stdout.close()
        self.folder.cleanup()

    def snib(self, *words, env=None, **options):
        """Run to the end; stdout and stderr separate.  What --json prints is checked."""
        done = subprocess.run([SNIB, *words], env={**self.env, **(env or {})}, text=True,
                              timeout=120, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, **options)
        if "--json" in words:
            check_json(words, done)
        return done

    def start(self, *words, **options):
        """Start; stdout and stderr together."""
        process = subprocess.Popen([SNIB, *words], env=self.env, text=True,
                                   stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                   stderr=subprocess.STDOUT, **options)
        self.started.append(process)
        return process

    def hold(self, name, *options, script="echo ready; exec sleep 60"):
        """Start a run that prints a line once it has the lock."""
        process = self.start("run", name, *options, "--", "sh", "-c", script)
        self.assertEqual(process.stdout.readline(), "ready\n")
        return process

    def end(self, process):
        """Wait for the end; return exit code and the rest of the output."""
        text = process.communicate(timeout=60)[0]
        return process.returncode, text

    def until_go(self):
        """A script fragment that ends once go() was called."""
        return f"while ! test -e {self.folder.name}/go; do sleep .02; done"

    def go(self):
        with open(f"{self.folder.name}/go", "w"):
            pass

    def await_renewal(self, name):
        """After a renewal, snib knows that it holds the lock, also if it does not say so."""
        left = [self.server("PTTL", name)]

        def renewed():
            left.append(self.server("PTTL", name))
            return 0 < left[-2] < left[-1]

        wait_for(renewed, "a renewal")

    def assertFree(self, name):
        """Check that nothing of Snib is left: no key, no subscription."""
        wait_for(lambda: self.server("EXISTS", name) == 0, f"{name} to be free")
        wait_for(lambda: self.server("PUBSUB", "CHANNELS") == [], "the subscriptions to end")


def check_json(words, done):
    """Compare the output with the schemas."""
    command = next((word for word in words if word in SCHEMAS), None)
    if command and done.stdout:
        SCHEMAS[command].validate(json.loads(done.stdout))
    for line in done.stderr.splitlines():
        SCHEMAS["message"].validate(json.loads(line))
