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
from matplotlib.ticker import FuncFormatter, MaxNLocator  # noqa: E402

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
    size, name = [scale for scale in scales if scale[0] <= abs(value)][-1:][0] if abs(value) >= scales[0][0] else scales[0]
    if value == 0:
        size, name = 1, {"s": "s", "bytes": "B"}.get(unit, "")
    return " ".join(word for word in (digits(value / size, decimals), name, "ops/s" if unit == "ops" else "") if word)


class Page:
    """A figure whose places are pixels from the top left corner."""

    def __init__(self, width: int, height: int) -> None:
        self.width, self.height = width, height
        self.figure: Figure = plt.figure(figsize=(width / DPI, height / DPI), dpi=DPI, facecolor="#f2f3f5")

    def text(self, x: float, y: float, text: str, **more: object) -> None:
        style = {"fontsize": 8.5, "color": INK, "va": "center"} | more
        self.figure.text(x / self.width, 1 - y / self.height, text, **style)

    def box(self, x: float, y: float, width: float, height: float, **more: object) -> None:
        style = {"facecolor": "white", "edgecolor": "#dcdee1", "linewidth": 0.8, "zorder": -1} | more
        place = (x / self.width, 1 - (y + height) / self.height)
        self.figure.add_artist(Rectangle(place, width / self.width, height / self.height, transform=self.figure.transFigure, **style))

    def axes(self, x: float, y: float, width: float, height: float) -> Axes:
        return self.figure.add_axes((x / self.width, 1 - (y + height) / self.height, width / self.width, height / self.height))


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


def draw(page: Page, recorded: dict, panel: dict, x: float, y: float, width: float, height: float) -> None:
    """One panel: its title, its lines and its legend."""
    defaults = panel["fieldConfig"]["defaults"]
    unit, decimals = defaults["unit"], defaults.get("decimals")
    custom = defaults["custom"]
    answers = [(target["legendFormat"], answer) for target in panel["targets"] for answer in target["answer"]]
    series = [Series(recorded, template, answer, COLOURS[place % len(COLOURS)]) for place, (template, answer) in enumerate(answers)]
    page.box(x, y, width, height)
    page.text(x + 10, y + 15, panel["title"], fontsize=9.5, weight="bold")
    if not series:
        page.text(x + width / 2, y + height / 2, "No data", color=PALE, ha="center", fontsize=11)
        return
    rows = min(len(series), int(LEGEND * height / LINE) - 1)
    axes = page.axes(x + 66, y + 32, width - 82, height - 32 - 24 - (rows + 1) * LINE - 10)
    for one in series:
        style = {"step": "post"} if custom.get("lineInterpolation") == "stepAfter" else {}
        axes.fill_between(one.times, one.values, color=one.colour, alpha=custom["fillOpacity"] / 100, linewidth=0, **style)
        axes.plot(one.times, one.values, color=one.colour, linewidth=1.1, drawstyle="steps-post" if style else "default")
    marks(axes, recorded)
    axes.set_xlim(0, recorded["seconds"])
    axes.set_ylim(bottom=defaults.get("min"))
    if axes.get_ylim()[1] < 0.1 and unit in ("short", "ops"):
        axes.set_ylim(top=1)  # all zero
    axes.yaxis.set_major_locator(MaxNLocator(4))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: shown(value, unit, decimals)))
    axes.xaxis.set_major_locator(MaxNLocator(6, steps=[3, 6]))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda at, _: f"{int(at) // 60}:{int(at) % 60:02}"))
    axes.tick_params(labelsize=7.5, length=0, colors=PALE)
    axes.grid(color="#e8e9eb", linewidth=0.7)
    axes.spines[:].set_visible(False)
    axes.set_axisbelow(True)
    legend(page, panel, series, rows, x, y + height - (rows + 1) * LINE - 8, width)


def legend(page: Page, panel: dict, series: list[Series], rows: int, x: float, y: float, width: float) -> None:
    defaults = panel["fieldConfig"]["defaults"]
    columns = [(CALCS[calc], x + width - 12 - 90 * place) for place, calc in enumerate(reversed(panel["options"]["legend"]["calcs"]))]
    for (title, _), right in columns:
        page.text(right, y + LINE / 2, title, color=PALE, ha="right", fontsize=7.5)
    hidden = len(series) - rows
    page.text(x + 12, y + LINE / 2, f"Name ({hidden} more below)" if hidden else "Name", color=PALE, fontsize=7.5)
    for place, one in enumerate(series[:rows]):
        middle = y + (place + 1.5) * LINE
        page.box(x + 12, middle - 1, 12, 3, facecolor=one.colour, edgecolor="none", zorder=1)
        page.text(x + 30, middle, one.name)
        for (_, calc), right in columns:
            page.text(right, middle, shown(calc(one.known()), defaults["unit"], defaults.get("decimals")), ha="right")


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
    names = [variable["label"] for variable in board["templating"]["list"] if variable["type"] == "query"]
    page.text(75, 21, "     ".join(f"{name}: All" for name in names), color=PALE)
    for place, (at, text) in enumerate(incidents):
        page.text(12 + place % 4 * width / 4, 46 + place // 4 * LINE, f"{at // 60}:{at % 60:02}  {text}", color=PALE)
    for panel in board["panels"]:
        place = panel["gridPos"]
        x, y = place["x"] * (width - GAP) / 24 + GAP, top + place["y"] * CELL
        if panel["type"] == "row":
            page.text(x, y + 15, "\N{BLACK DOWN-POINTING SMALL TRIANGLE} " + panel["title"], fontsize=11, weight="bold")
        else:
            draw(page, recorded, panel, x, y, place["w"] * (width - GAP) / 24 - GAP, place["h"] * CELL - GAP)
    page.figure.savefig(sys.argv[2], dpi=DPI)
    from PIL import Image  # a dependency of matplotlib

    Image.open(sys.argv[2]).convert("RGB").quantize(200, dither=Image.Dither.NONE).save(sys.argv[2], optimize=True)


main()
