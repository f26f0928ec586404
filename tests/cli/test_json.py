#!/usr/bin/env python3
"""Every --json has a schema, which is neither too strict nor too loose; see check_json() in command.py, too."""
import json
import re
import unittest

import jsonschema

from command import LEASE, SCHEMAS, CommandCase


class Json(CommandCase):
    def told(self, *words):
        """The value on standard output, checked."""
        return json.loads(self.snib(*words, "--json").stdout)

    def message(self, process):
        """The next message of a process, checked."""
        value = json.loads(process.stdout.readline())
        SCHEMAS["message"].validate(value)
        return value

    # ---- values ----------------------------------------------------------------------------------

    def test_every_command_has_a_schema(self):
        commands = set(re.findall(r"^(?:usage:|      ) snib (\w+)", self.snib("--help").stdout, re.M))
        self.assertEqual(commands - {"run", "hold", "stats"}, set(SCHEMAS) - {"message"}) # which print something else

    def test_info(self):
        kinds = {(): "mutex", ("--fair",): "mutex", ("--fenced",): "mutex", ("--read",): "read", ("--write",): "write",
                 ("--permits", "2"): "permits", ("--spin",): "mutex", ("--plain",): "plain"}
        for number, (options, kind) in enumerate(kinds.items()):
            process = self.start("hold", f"k{number}", *options)
            process.stdout.readline()
            told = self.told("info", f"k{number}")
            self.assertEqual((told["kind"], told["held"]), (kind, True))
        self.start("hold", "k1", "--fair", "--json")
        while self.told("info", "k1")["kind"] != "fair": # until the waiter is in the queue
            pass
        self.assertEqual(len(self.told("info", "k1")["waiters"]), 1)
        self.assertEqual({item["kind"] for item in self.told("list")}, {*kinds.values(), "fair"})

    def test_info_of_other_things(self):
        self.server("SET", "number", 3)
        self.server("SADD", "set", "x")
        self.server("HSET", "endless", "11111111-1111-8111-8111-111111111111:1", 1)
        self.server("HSET", "crowd", *[word for n in range(600)
                                       for word in (f"11111111-1111-8111-8111-111111111111:{n}", 1)])
        self.assertEqual(self.told("info", "number")["kind"], "counter")
        self.assertEqual(self.told("info", "set")["kind"], "other")
        self.assertEqual(self.told("info", "nothing")["kind"], "free")
        self.assertIsNone(self.told("info", "endless")["holders"][0]["remaining_ms"])
        self.assertGreater(self.told("info", "crowd").get("more", 0), 0)
        self.told("list")

    def test_numbers_below_zero(self):
        """Somebody else may have written them."""
        self.server("HSET", "a", "11111111-1111-8111-8111-111111111111:1", 1)
        self.server("SET", "redisson_lock_token:{a}", -12)
        self.server("SET", "count", -3)
        self.assertEqual(self.told("info", "a")["token"], -12)
        self.assertEqual([one["token"] for one in self.told("top", "--once")["locks"] if one["name"] == "a"], [-12])
        self.assertEqual(self.told("latch", "count")["count"], -3)
        self.told("info", "count")

    def test_names_that_turn_or_break_a_line(self):
        """In JSON they are what they are; on a terminal they look like nothing else."""
        names = "invoice\u202egpj.exe", "one\u2028two", "\u2066x"
        for name in names:
            self.server("HSET", name, "11111111-1111-8111-8111-111111111111:1", 1)
        self.assertEqual(sorted(names), [one["name"] for one in self.told("list")])
        self.assertEqual(sorted(names), [one["name"] for one in self.told("top", "--once")["locks"]])
        self.server("HSET", "x", "11111111-1111-8111-8111-111111111111:1", 1)
        self.server("SET", "snib_client:{11111111-1111-8111-8111-111111111111}", "label \u202emoc.bew")
        self.server("SET", f"{names[0]}snib-doctor-latch", "x")
        for words in (("list",), ("info", "x"), ("hold", names[0], "--wait", "0"), ("hold", "x", "--wait", "1200ms"),
                      ("info", names[0]), ("doctor", names[0]), ("release", "--force", names[0])):
            done = self.snib(*words)
            self.assertRegex(done.stdout + done.stderr, r"\\xe2\\x80\\xa[8e]")
            self.assertFalse(set(done.stdout + done.stderr) & set("\u202e\u2028\u2066"), done)

    def test_the_others(self):
        self.assertEqual(self.told("list"), [])
        self.hold("a")
        self.assertEqual(self.told("release", "a", "--force"), {"name": "a", "released": True})
        self.assertEqual(self.told("release", "a", "--force"), {"name": "a", "released": False})
        self.assertEqual(self.told("latch", "l", "set", "2"), {"name": "l", "count": 2, "set": True})
        for words in (("set", "2"), ("down",), (), ("down",), ("wait",)):
            self.assertEqual(self.told("latch", "l", *words)["name"], "l")
        self.server("SET", "l", 2 ** 53 - 1)
        self.assertIn(f'"count":{2 ** 53 - 1}}}', self.snib("latch", "l", "--json").stdout)
        for kind in ((), ("--fair",), ("--latch",)):
            self.assertIn("-@all", self.told("acl", "app:", *kind))
            self.assertIn("-@all", self.told("acl", "app:", *kind, "--url", self.server.url))
        self.assertIn(self.told("doctor", "app:")["worst"], ("ok", "note", "warning"))
        for words in ((), ("--kind", "latch", "--kind", "fair"), ("--url", self.server.url)):
            self.assertEqual([self.server.path], [one["server"] for one in self.told("scripts", *words)])

    # ---- messages --------------------------------------------------------------------------------

    def test_messages(self):
        holder = self.start("hold", "a", "--fenced", "--json")
        self.assertEqual(set(self.message(holder)), {"event", "text", "token"})
        waiter = self.start("hold", "a", "--json")
        self.assertEqual(set(self.message(waiter)), {"event", "text", "name", "owner"})
        waiter.kill()
        self.server("DEL", "a")
        holder.terminate()
        self.assertEqual(self.message(holder)["event"], "lost")
        run = self.start("run", "a", "--json", "--lease", LEASE, "--", "sleep", "60")
        while not self.server("EXISTS", "a"):
            pass
        self.server("DEL", "a")
        self.assertEqual(self.message(run)["event"], "lost")
        for words, code in ((["hold", "b", "--url", f"unix://{self.folder.name}/none"], "SNIB_ECONNECT"),
                            (["hold", "x\n"], "SNIB_ENAME"), (["hold"], None)):
            told = json.loads(self.snib(*words, "--json").stderr)
            self.assertEqual((told["event"], told.get("code")), ("error", code))
        done = self.snib("run", "c", "-v", "--json", "--", "true")
        self.assertIn("log", [json.loads(line)["event"] for line in done.stderr.splitlines()])

    def test_messages_about_anything(self):
        """A message that quotes an argument is UTF-8 and has no control character, and its end is not cut off."""
        for part in (b"\xff", b"\x1b[2J", b"\n", "\u00e4".encode() * 5000, b"x" * 5000, b"\xff" * 5000):
            for words, end in (([b"no" + part], "; see snib --help"), ([b"hold", b"a", b"--wait", part], "; see snib --help"),
                               ([b"hold", b"--no" + part], "; see snib --help"),
                               ([b"latch", b"a", part], "; see snib --help"), ([b"acl", part], "; see snib --help"),
                               ([b"stats", b"--output", self.folder.name.encode() + b"/none/" + part], " directory|name too long"),
                               ([b"run", b"a", b"--", b"./" + part], " directory|name too long")):
                with self.subTest(words=words[:2], part=part[:3]):
                    told = json.loads(self.snib("--json", *words).stderr)
                    self.assertRegex(told["text"], f"({end})$")
                    self.assertRegex(told["text"], r"^[^\x00-\x1f]*$")
                    self.assertEqual("snib: " + told["text"] + "\n", self.snib(*words).stderr)

    # ---- the schemas -----------------------------------------------------------------------------

    def test_schemas_are_schemas(self):
        for name, schema in SCHEMAS.items():
            with self.subTest(name=name):
                schema.check_schema(schema.schema)
                self.assertIn("snib" if name != "message" else "--json", schema.schema["title"])

    def test_schemas_notice(self):
        """A field too few or too many, at the top and in a row."""
        self.server("HSET", "a", "11111111-1111-8111-8111-111111111111:1", 1)
        values = {"info": self.told("info", "a"), "list": self.told("list"), "latch": self.told("latch", "l"),
                  "release": self.told("release", "--force", "none"), "top": self.told("top", "--once"),
                  "doctor": self.told("doctor"), "plan": self.told("plan", "--locks", "1"),
                  "scripts": self.told("scripts", "--kind", "latch"),
                  "message": json.loads(self.snib("hold", "--json").stderr)}
        for name, value in values.items():
            rows = [value, *[row for row in value.values() if isinstance(row, dict)]] if isinstance(value, dict) else []
            if isinstance(value, dict):
                rows += value.get("holders", []) + value.get("findings", []) + value.get("locks", [])
            else:
                rows += value
            for row in rows:
                for field in [*row, "more fields"]:
                    with self.subTest(name=name, field=field):
                        kept = row.pop(field, self)
                        if field == "more fields":
                            row[field] = 1
                        with self.assertRaises(jsonschema.ValidationError):
                            SCHEMAS[name].validate(value)
                        row.pop("more fields", None)
                        if kept is not self:
                            row[field] = kept
            SCHEMAS[name].validate(value)


if __name__ == "__main__":
    unittest.main()
