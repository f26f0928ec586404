"""The demo's timeline as SVG: a row per process, a bar per hold; the whole sale and one moment."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from demo import Buyer

COLOURS = ["#2f6fb0", "#7aa6d6", "#3f9b57", "#8a63b8", "#d98a29", "#5b6770"]
LOST = "#c8322b"
LEFT, WIDTH, ROW, BAR = 130, 1040, 30, 18
MOMENT_US = 150_000


class Panel:
    """A stretch of time with one row for each process."""

    def __init__(self, top: int, buyers: list[Buyer], start: int, end: int) -> None:
        self.top, self.buyers, self.start, self.end = top, buyers, start, end
        self.height = ROW * len(buyers)
        self.out: list[str] = []

    def x(self, at: float) -> float:
        return LEFT + WIDTH * (at - self.start) / (self.end - self.start)

    def text(self, x: float, y: float, words: str, more: str = "") -> None:
        self.out.append(f'<text x="{x:.1f}" y="{y:.1f}" {more}>{escape(words)}</text>')

    def bar(self, row: int, start: int, end: int, colour: str) -> None:
        x, y = self.x(start), self.top + row * ROW + (ROW - BAR) / 2
        width = max(self.x(end) - x - 0.7, 0.6)
        self.out.append(
            f'<rect x="{x:.2f}" y="{y}" width="{width:.2f}" height="{BAR}" fill="{colour}"/>'
        )

    def axis(self, step_us: int, unit_us: int, unit: str, origin: int) -> None:
        first = -(-(self.start - origin) // step_us)
        for tick in range(first, (self.end - origin) // step_us + 1):
            x = self.x(origin + tick * step_us)
            self.out.append(
                f'<line x1="{x:.1f}" y1="{self.top}" x2="{x:.1f}" y2="{self.top + self.height}" '
                'stroke="#dde1e6"/>'
            )
            words = f"{tick * step_us // unit_us} {unit}"
            self.text(x, self.top + self.height + 16, words, 'text-anchor="middle" fill="#667"')

    def rows(self) -> None:
        for row, buyer in enumerate(self.buyers):
            y = self.top + row * ROW
            self.out.append(
                f'<line x1="{LEFT}" y1="{y}" x2="{LEFT + WIDTH}" y2="{y}" stroke="#eef0f3"/>'
            )
            self.text(LEFT - 10, y + ROW / 2 + 4, buyer.name, 'text-anchor="end"')
            # Adjacent bars are merged, because the whole sale would be thousands of slivers.
            gap = 0 if self.end - self.start == MOMENT_US else (self.end - self.start) / WIDTH * 0.7
            begun: list[int] = []
            for hold in buyer.holds:
                if hold.end < self.start or hold.start > self.end:
                    continue
                start, end = max(hold.start, self.start), min(hold.end, self.end)
                if begun and start - begun[1] < gap:
                    begun[1] = max(begun[1], end)
                    continue
                if begun:
                    self.bar(row, begun[0], begun[1], COLOURS[row])
                begun = [start, end]
            if begun:
                self.bar(row, begun[0], begun[1], COLOURS[row])

    def marks(self) -> None:
        for row, buyer in enumerate(self.buyers):
            start, end = buyer.struck_us
            if not start:
                continue
            for hold in buyer.holds:
                if hold.lost:
                    self.bar(row, hold.start, hold.end, LOST)
            x, y = self.x(start), self.top + row * ROW
            killed = start == end
            self.out.append(
                f'<line x1="{x:.1f}" y1="{y - 2}" x2="{x:.1f}" y2="{y + ROW}" '
                f'stroke="{LOST}" stroke-width="2"/>'
            )
            if not killed:
                self.out.append(
                    f'<rect x="{x:.1f}" y="{y + 5}" width="{self.x(end) - x:.1f}" '
                    f'height="{ROW - 10}" fill="none" stroke="{LOST}" stroke-dasharray="4 3"/>'
                )
            bold = f'fill="{LOST}" font-weight="bold"'
            self.text(x + 5, y + ROW / 2 + 4, "killed" if killed else "stopped", bold)
            if not killed:
                self.text(
                    self.x(end) + 5, y + ROW / 2 + 4, "told: lost", bold
                )


def busiest(buyers: list[Buyer], start: int, end: int) -> int:
    """The start of the moment that shows the most processes and hand-overs."""
    holds = sorted((hold.start, row) for row, buyer in enumerate(buyers) for hold in buyer.holds)
    best, best_score = start, -1
    for at in range(start, max(start + 1, end - MOMENT_US), MOMENT_US // 5):
        rows = [row for begin, row in holds if at <= begin < at + MOMENT_US]
        score = len(set(rows)) * 1000 + sum(a != b for a, b in zip(rows, rows[1:]))
        if score > best_score:
            best, best_score = at, score
    return best


def draw(buyers: list[Buyer], begin: int, end: int) -> str:
    whole = Panel(70, buyers, begin, end)
    whole.axis(1_000_000, 1_000_000, "s", begin)
    whole.rows()
    whole.marks()
    at = busiest(buyers, begin, end)
    top = whole.top + whole.height + 90
    moment = Panel(top, buyers, at, at + MOMENT_US)
    moment.axis(10_000, 1000, "ms", at)
    moment.rows()
    whole.text(LEFT, 34, "Who held the lock", 'font-size="18" font-weight="bold"')
    whole.text(LEFT, 54, "one row per process, one bar per hold; holds never overlap", 'fill="#667"')
    moment.text(
        LEFT,
        top - 18,
        f"{MOMENT_US // 1000} ms of it, from {(at - begin) / 1e6:.2f} s on",
        'font-weight="bold"',
    )
    height = top + moment.height + 40
    body = "\n".join(whole.out + moment.out)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{LEFT + WIDTH + 90}" height="{height}" '
        'font-family="DejaVu Sans, Helvetica, sans-serif" font-size="12" fill="#223">\n'
        f'<rect width="100%" height="100%" fill="#ffffff"/>\n{body}\n</svg>\n'
    )
