"""Draw a dashboard with the answers to its queries: panels.py RECORDED.json OUT.png

Places, titles, units, legends and annotations are taken from the dashboard's JSON; the rest looks
like Grafana only as far as it is needed to judge the dashboard.
"""

from __future__ import annotations

import json
import math
import re
import sys

import matplotlib

matplotlib.use("agg")
import matplotlib.pyplot as plt  # noqa: E402
from matplotlib.axes import Axes  # noqa: E402
from matplotlib.figure import Figure  # noqa: E402
from matplotlib.patches import Rectangle  # noqa: E402
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, MultipleLocator, NullLocator  # noqa: E402

DPI = 100
CELL, GAP = 38, 8  # Grafana's height of a row of the grid with its gap, and the gap, in pixels
LINE = 16  # of text
LEGEND = 0.35  # of a panel's height at most; what is more has to be scrolled for
COLOURS = ["#4e9a45", "#d9a400", "#4a86d8", "#e8701a", "#d93a50", "#2b5fb0", "#9a58c0", "#5f6b12", "#0e7c86"]
INK, PALE, RED = "#24292e", "#7b8087", "#d93a50"
CALCS = {"max": ("Max", max), "min": ("Min", min), "mean": ("Mean", lambda v: sum(v) / len(v)),
         "sum": ("Total", sum), "lastNotNull": ("Last", lambda v: v[-1])}


def digits(value: float, decimals: int | None) -> str:
    if decimals is not None:
        return f"{value:.{decimals}f}"
    return f"{value:.3g}" if abs(value) < 1000 else f"{value:.0f}"


def shown(value: float, unit: str, decimals: int | None = None) -> str:
    """A value in the unit of a panel."""
    scales = {
        "s": [(1e-6, "µs"), (1e-3, "ms"), (1, "s"), (60, "min"), (3600, "h")],
        "bytes": [(1, "B"), (1024, "KiB"), (1024**2, "MiB"), (1024**3, "GiB")],
    }.get(unit, [(1, ""), (1e3, "K"), (1e6, "M")])
    fitting = [scale for scale in scales if scale[0] <= abs(value)] or scales[:1]
    size, name = fitting[-1] if value else (1, "s" if unit == "s" else scales[0][1])
    words = (digits(value / size, decimals), name, "ops/s" if unit == "ops" else "")
    return " ".join(word for word in words if word)


def clock(seconds: int) -> str:
    return f"{seconds // 60}:{seconds % 60:02}"


class Page:
    """A figure whose places are pixels from the top left corner."""

    def __init__(self, width: int, height: int) -> None:
        self.width, self.height = width, height
        size = (width / DPI, height / DPI)
        self.figure: Figure = plt.figure(figsize=size, dpi=DPI, facecolor="#f2f3f5")

    def place(self, x: float, y: float, width: float, height: float) -> tuple[float, ...]:
        """Matplotlib's left, bottom, width and height."""
        lower = 1 - (y + height) / self.height
        return x / self.width, lower, width / self.width, height / self.height

    def text(self, x: float, y: float, text: str, **more: object) -> None:
        style = {"fontsize": 8.5, "color": INK, "va": "center"} | more
        self.figure.text(x / self.width, 1 - y / self.height, text, **style)

    def box(self, x: float, y: float, width: float, height: float, **more: object) -> None:
        style = {"facecolor": "white", "edgecolor": "#dcdee1", "linewidth": 0.8, "zorder": -1} | more
        left, lower, wide, high = self.place(x, y, width, height)
        frame = self.figure.transFigure
        self.figure.add_artist(Rectangle((left, lower), wide, high, transform=frame, **style))

    def axes(self, x: float, y: float, width: float, height: float) -> Axes:
        return self.figure.add_axes(self.place(x, y, width, height))


class Series:
    """The points of one answer on all steps; a step without a point is a gap."""

    def __init__(self, recorded: dict, template: str, answer: dict, colour: str) -> None:
        points = {round(float(at) - recorded["start"]): float(value) for at, value in answer["values"]}
        self.times = list(range(0, recorded["seconds"] + 1, recorded["step"]))
        self.values = [points.get(at, math.nan) for at in self.times]
        self.name = re.sub(r"\{\{(\w+)\}\}", lambda label: answer["metric"].get(label[1], ""), template)
        self.colour = colour

    def known(self) -> list[float]:
        return [value for value in self.values if not math.isnan(value)] or [math.nan]


def regions(recorded: dict) -> list[tuple[float, float]]:
    """Annotations from and to: neighbouring points are one region, as in Grafana."""
    found = []
    for annotation in recorded["board"]["annotations"]["list"]:
        for answer in annotation["answer"]:
            times = [float(at) - recorded["start"] for at, value in answer["values"] if float(value) > 0]
            first = [at for at in times if at - recorded["step"] not in times]
            last = [at for at in times if at + recorded["step"] not in times]
            found += zip(first, last, strict=True)
    return sorted(set(found))


def marks(axes: Axes, recorded: dict) -> None:
    for first, last in regions(recorded):
        axes.axvline(first, color=RED, linewidth=0.8, linestyle=(0, (3, 2)))
        axes.axvspan(first, last, color=RED, alpha=0.06, linewidth=0)


def lines(axes: Axes, custom: dict, series: list[Series], step: int) -> None:
    """Lines, or bars on top of each other."""
    floor = [0.0] * len(series[0].times)
    for one in series:
        if custom["drawStyle"] == "bars":
            heights = [0 if math.isnan(value) else value for value in one.values]
            axes.bar(one.times, heights, step, floor, color=one.colour, linewidth=0)
            floor = [below + height for below, height in zip(floor, heights, strict=True)]
        else:
            if opacity := custom["fillOpacity"] / 100:
                axes.fill_between(one.times, one.values, color=one.colour, alpha=opacity, linewidth=0)
            axes.plot(one.times, one.values, color=one.colour, linewidth=1.1)


def draw(
    page: Page, recorded: dict, panel: dict, x: float, y: float, width: float, height: float
) -> None:
    """One panel: its title, its lines and its legend."""
    defaults = panel["fieldConfig"]["defaults"]
    unit, decimals = defaults["unit"], defaults.get("decimals")
    custom = defaults["custom"]
    series: list[Series] = []
    for target in panel["targets"]:
        for answer in target["answer"]:
            colour = COLOURS[len(series) % len(COLOURS)]
            series.append(Series(recorded, target["legendFormat"], answer, colour))
    page.box(x, y, width, height)
    page.text(x + 10, y + 15, panel["title"], fontsize=9.5, weight="bold")
    if not series:
        page.text(x + width / 2, y + height / 2, "No data", color=PALE, ha="center", fontsize=11)
        return
    rows = min(len(series), int(LEGEND * height / LINE) - 1)
    axes = page.axes(x + 66, y + 32, width - 82, height - 32 - 24 - (rows + 1) * LINE - 10)
    base = custom.get("scaleDistribution", {}).get("log")
    if base:
        axes.set_yscale("log", base=base)
    lines(axes, custom, series, recorded["step"])
    marks(axes, recorded)
    axes.set_xlim(0, recorded["seconds"])
    if "min" in defaults:
        axes.set_ylim(bottom=defaults["min"])
    if not any(value > 0 for one in series for value in one.known()):
        axes.set_ylim(0, 1)
    if base:
        axes.yaxis.set_major_locator(LogLocator(base, numticks=7))
        axes.yaxis.set_minor_locator(NullLocator())
    elif unit == "bytes":
        axes.yaxis.set_major_locator(MultipleLocator(2 ** round(math.log2(axes.get_ylim()[1] / 3))))
    else:
        steps = [1, 2, 2.5, 5, 10]
        axes.yaxis.set_major_locator(MaxNLocator(4, integer=decimals == 0, steps=steps))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: shown(value, unit, decimals)))
    axes.xaxis.set_major_locator(MaxNLocator(6, steps=[3, 6]))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda at, _: clock(int(at))))
    axes.tick_params(labelsize=7.5, length=0, colors=PALE)
    axes.grid(color="#e8e9eb", linewidth=0.7)
    axes.spines[:].set_visible(False)
    axes.set_axisbelow(True)
    legend(page, panel, series, rows, x, y + height - (rows + 1) * LINE - 8, width)


def legend(
    page: Page, panel: dict, series: list[Series], rows: int, x: float, y: float, width: float
) -> None:
    """As many of the series as have room, in the order that the panel sorts them."""
    defaults, options = panel["fieldConfig"]["defaults"], panel["options"]["legend"]
    calcs = reversed(options["calcs"])
    columns = [(CALCS[calc], x + width - 12 - 90 * place) for place, calc in enumerate(calcs)]
    for (title, _), right in columns:
        page.text(right, y + LINE / 2, title, color=PALE, ha="right", fontsize=7.5)
    for title, calc in CALCS.values():
        if title == options.get("sortBy"):
            series.sort(key=lambda one: calc(one.known()), reverse=options["sortDesc"])
    hidden = len(series) - rows
    page.text(x + 12, y + LINE / 2, f"Name ({hidden} more below)" if hidden else "Name", color=PALE, fontsize=7.5)
    for place, one in enumerate(series[:rows]):
        middle = y + (place + 1.5) * LINE
        page.box(x + 12, middle - 1, 12, 3, facecolor=one.colour, linewidth=0, zorder=1)
        page.text(x + 30, middle, one.name)
        for (_, calc), right in columns:
            value = shown(calc(one.known()), defaults["unit"], defaults.get("decimals"))
            page.text(right, middle, value, ha="right")


def main() -> None:
    with open(sys.argv[1], encoding="utf-8") as file:
        recorded = json.load(file)
    board, width = recorded["board"], recorded["width"]
    plt.rcParams["font.family"] = ["DejaVu Sans"]
    incidents = recorded["incidents"]
    top = 46 + LINE * math.ceil(len(incidents) / 4) + 12
    rows = max(panel["gridPos"]["y"] + panel["gridPos"]["h"] for panel in board["panels"])
    page = Page(width, top + rows * CELL + GAP)
    page.text(12, 20, board["title"], fontsize=13, weight="bold")
    variables = [one for one in board["templating"]["list"] if one["type"] == "query"]
    page.text(75, 21, "     ".join(f"{one['label']}: All" for one in variables), color=PALE)
    for place, (at, text) in enumerate(incidents):
        x, y = 12 + place % 4 * width / 4, 46 + place // 4 * LINE
        page.text(x, y, f"{clock(at)}  {text}", color=PALE)
    for panel in board["panels"]:
        place = panel["gridPos"]
        x, y = place["x"] * (width - GAP) / 24 + GAP, top + place["y"] * CELL
        if panel["type"] == "row":
            page.text(x, y + 15, f"\u25be {panel['title']}", fontsize=11, weight="bold")
        else:
            wide = place["w"] * (width - GAP) / 24 - GAP
            draw(page, recorded, panel, x, y, wide, place["h"] * CELL - GAP)
    page.figure.savefig(sys.argv[2], dpi=DPI)
    from PIL import Image  # a dependency of matplotlib

    picture = Image.open(sys.argv[2]).convert("RGB").quantize(200, dither=Image.Dither.NONE)
    picture.save(sys.argv[2], optimize=True)


main()
