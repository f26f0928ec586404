#!/usr/bin/env python3
"""snib top in tmux, a real terminal program that wraps, scrolls and resizes by itself."""
import re
import shutil
import subprocess
import unittest

from command import SNIB, CommandCase
from screen import width
from server import wait_for

TITLES = ["WAITING", "HOLDERS", "CHANGES", "LEASE", "KIND", "HOLDER", "LOST", "NAME"]
NAMES = ("orders", "a-lock-with-a-long-name:" + "x" * 100, "日本語のとても長い名前でありまして、とても長いのです")
BEFORE, AFTER = "before snib top", "snib top ended with"


@unittest.skipUnless(shutil.which("tmux"), "tmux is not installed")
class TopInTmux(CommandCase):
    def setUp(self):
        super().setUp()
        for number in range(30):
            self.server("HSET", f"lock:{number:02}", "11111111-1111-8111-8111-111111111111:1", 1)
            self.server("EXPIRE", f"lock:{number:02}", 3600)
        for name in NAMES:
            self.assertIn("holding", self.start("hold", name).stdout.readline())
            for _ in range(2):
                self.start("hold", name, "-q")

    def tearDown(self):
        self.tmux("kill-server", check=False)
        super().tearDown()

    def tmux(self, *words, check=True):
        """One command to a tmux of this test's own, which reads no settings."""
        done = subprocess.run(["tmux", "-u", "-f", "/dev/null", "-S", f"{self.folder.name}/tmux", *words],
                              env={**self.env, "TERM": "xterm"}, text=True, stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=60)
        if check:
            self.assertEqual((done.returncode, done.stderr), (0, ""), words)
        return done.stdout

    def lines(self):
        return self.tmux("capture-pane", "-p", "-t", "top").split("\n")[:-1]

    def is_complete(self, columns, rows):
        """Whether the screen has this size, and shows what it should there."""
        lines = self.lines()
        size = self.tmux("display", "-p", "-t", "top", "#{pane_width}x#{pane_height}").strip()
        return (size == f"{columns}x{rows}" and len(lines) == rows and
                lines[1] == f"33 locks ({33 - rows + 3} not shown), 6 waiting" and
                all(re.match(" +2 +1 ", line) for line in lines[3:6]) and
                all(re.match(r" +0 +1 .* lock:\d\d$", line) for line in lines[6:]))

    def check_screen(self, columns, rows):
        wait_for(lambda: self.is_complete(columns, rows), f"the screen of {columns} x {rows}")
        lines = self.lines()
        self.assertRegex(lines[0], r"^snib top  \d\d:\d\d:\d\d  unix:")
        shown = [title for title in TITLES if title in lines[2].split()]
        self.assertEqual(lines[2].split(), shown)
        self.assertEqual([shown[0], shown[-1]], ["WAITING", "NAME"])
        self.assertEqual(("LOST" in shown, "HOLDER" in shown), (columns >= 80, columns == 132))
        name = lines[2].index("NAME")
        for line in lines[3:]:
            self.assertEqual(line[name - 1], " ")
            self.assertNotEqual(line[name], " ")
        for line in lines:
            self.assertLessEqual(sum(map(width, line)), columns)
        for name in NAMES:
            is_cut = sum(map(width, name)) > columns - lines[2].index("NAME")
            line = next(line for line in lines[3:6] if f" {name[:2]}" in line)
            self.assertTrue(line.endswith("…" if is_cut else " " + name), line)
        # The cursor is hidden, on the other screen, and no line was scrolled off it.
        self.assertEqual(self.tmux("display", "-p", "-t", "top", "#{cursor_flag} #{alternate_on}").strip(), "0 1")

    def test_sizes(self):
        script = f"echo {BEFORE}; {SNIB} top --interval 100ms; echo {AFTER} $?; read line"
        self.tmux("new-session", "-d", "-s", "top", "-x", "80", "-y", "24", script)
        self.tmux("set-option", "-g", "status", "off") # its line is not one of the pane's
        self.tmux("set-option", "-g", "window-size", "manual")
        for columns, rows in ((80, 24), (60, 15), (132, 30), (80, 24)):
            with self.subTest(columns=columns, rows=rows):
                self.tmux("resize-window", "-t", "top", "-x", f"{columns}", "-y", f"{rows}")
                self.check_screen(columns, rows)
        self.tmux("send-keys", "-t", "top", "q")
        wait_for(lambda: f"{AFTER} 0" in self.lines(), "the end")
        self.assertEqual([line for line in self.lines() if line], [BEFORE, f"{AFTER} 0"])
        self.assertEqual(self.tmux("display", "-p", "-t", "top", "#{cursor_flag} #{alternate_on} #{history_size}").strip(),
                         "1 0 0")


if __name__ == "__main__":
    unittest.main()
