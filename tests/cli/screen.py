"""A terminal of a given size for a program, and what it shows.

It knows only the sequences that snib top may use, and refuses text beyond the last column, which a real terminal would
wrap or overwrite.
"""
import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import time
import unicodedata

TOKENS = re.compile(r"\x1b\[(\??[0-9;]*)([A-Za-z])|(\r)|(\n)|([^\x00-\x1f\x7f-\x9f])")


def width(character):
    if unicodedata.combining(character) or unicodedata.category(character) == "Cf":
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


class Screen:
    def __init__(self, words, env, columns=80, rows=24):
        self.master, self.slave = pty.openpty()
        self.columns, self.rows = columns, rows
        self.is_alternate, self.has_cursor, self.wraps = False, True, True
        self.rest, self.raw = b"", b""
        self.is_wrong, self.excused = False, 0 # what is shown does not fit, and how often that may happen
        self.clear()
        self.set_size(columns, rows)
        self.modes = termios.tcgetattr(self.slave)
        self.process = subprocess.Popen(
            words, env={**env, "TERM": "xterm"}, stdin=self.slave, stdout=self.slave, stderr=self.slave,
            start_new_session=True, preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0))

    # ---- the user's side -------------------------------------------------------------------------

    def set_size(self, columns, rows):
        fcntl.ioctl(self.slave, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def resize(self, columns, rows):
        """As a window does.  What the program was writing meanwhile need not fit."""
        self.read(0)
        self.excused = 2
        self.columns, self.rows = columns, rows
        self.clear()
        self.set_size(columns, rows)
        os.killpg(self.process.pid, signal.SIGWINCH)

    def type(self, keys):
        os.write(self.master, keys)

    def has_its_modes(self):
        return termios.tcgetattr(self.slave) == self.modes

    def is_as_before(self):
        return not self.is_alternate and self.has_cursor and self.wraps and self.has_its_modes()

    def wait(self, condition, what, seconds=60):
        """Read until condition() is true, and return its value."""
        end = time.monotonic() + seconds
        while not (value := condition()):
            if time.monotonic() > end:
                raise AssertionError(f"waited {seconds} s for {what}; the screen has:\n" + "\n".join(self.lines()))
            self.read(0.05)
        return value

    def wait_text(self, text):
        """Wait until a text is shown, and all fits."""
        self.wait(lambda: not self.is_wrong and re.search(text, "\n".join(self.lines())), text)

    def end(self):
        """Wait for the end, and return the exit code."""
        self.wait(lambda: self.process.poll() is not None, "the end")
        self.read(0)
        return self.process.returncode

    def close(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        for fd in (self.master, self.slave):
            if fd >= 0:
                os.close(fd)

    # ---- the terminal's side ---------------------------------------------------------------------

    def clear(self):
        self.cells = [[" "] * self.columns for _ in range(self.rows)]
        self.row = self.column = 0

    def lines(self):
        return ["".join(row).rstrip() for row in self.cells]

    def read(self, seconds):
        while select.select([self.master], [], [], seconds)[0]:
            data = os.read(self.master, 1 << 16)
            self.raw += data
            self.take(self.rest + data)
            seconds = 0

    def take(self, data):
        """Show it, except for a sequence or a character that is not complete yet."""
        tail = re.search(rb"\x1b[^A-Za-z]*$|[\xc0-\xff][\x80-\xbf]{0,3}$", data)
        cut = tail.start() if tail and not complete(tail.group()) else len(data)
        self.rest = data[cut:]
        text, at = data[:cut].decode(), 0
        while at < len(text):
            token = TOKENS.match(text, at)
            if not token:
                raise AssertionError(f"unknown to this terminal: {text[at:at + 20]!r}")
            at = token.end()
            self.act(*token.groups())

    def refuse(self, why):
        if not self.is_wrong and self.excused == 0:
            raise AssertionError(why)
        self.excused -= not self.is_wrong
        self.is_wrong = True

    def act(self, numbers, letter, carriage_return, newline, character):
        if carriage_return:
            self.column = 0
        elif newline:
            if self.row + 1 == self.rows and self.is_alternate:
                self.refuse("the screen would scroll")
            self.row = min(self.row + 1, self.rows - 1)
        elif character:
            self.put(character)
        elif letter in "hl" and numbers in ("?1049", "?25", "?7"):
            name = {"?1049": "is_alternate", "?25": "has_cursor", "?7": "wraps"}[numbers]
            setattr(self, name, letter == "h")
            if numbers == "?1049":
                self.clear()
        elif (numbers, letter) == ("", "H"):
            self.row = self.column = 0
            self.is_wrong = False
        elif (numbers, letter) in (("", "K"), ("", "J")):
            if self.column == self.columns:
                self.refuse("this would erase the line's last character")
            self.cells[self.row][self.column:] = [" "] * (self.columns - self.column)
            for row in range(self.row + 1, self.rows if letter == "J" else 0):
                self.cells[row] = [" "] * self.columns
        elif letter != "m":
            raise AssertionError(f"unknown to this terminal: ESC[{numbers}{letter}")

    def put(self, character):
        n = width(character)
        if self.is_alternate and self.column + n > self.columns:
            self.refuse(f"line {self.row} is too long: {''.join(self.cells[self.row])}{character}")
        elif n == 0:
            self.cells[self.row][max(self.column - 1, 0)] += character
        else:
            self.cells[self.row][self.column:self.column + n] = [character] + [""] * (n - 1)
        self.column = min(self.column + n, self.columns)


def complete(tail):
    """Whether it is a whole character."""
    try:
        return bool(tail.decode()) and tail[0] != 0x1b
    except UnicodeDecodeError:
        return False
