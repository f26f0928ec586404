"""Draw the results: how far each figure is from its target.  plot.py RESULTS.json OUT.svg"""

from __future__ import annotations

import json
import sys

import matplotlib

matplotlib.use("svg")
import matplotlib.pyplot as plt  # noqa: E402

REACHED, MISSED, INK = "#2f6f9f", "#c8553d", "#333333"


def bars(result: dict) -> dict[str, tuple[float, float, float]]:
    """For each label median, lowest and highest, as "times better than the target"."""
    found = {}
    for row in result["rows"]:
        for check in row["checks"]:
            if check["goal"] and check.get("median"):
                against = f" against {check['against']}" if check["against"] else ""
                label = f"{row['title']}: {check['what']}{against}"
                values = [check["median"], min(check["values"]), max(check["values"])]
                goal = check["goal"]
                better = [goal / v if check["most"] else v / goal for v in values if v]
                found[label] = (better[0], min(better), max(better))
    return found


def main() -> None:
    with open(sys.argv[1], encoding="utf-8") as file:
        result = json.load(file)
    drawn, beside = bars(result), bars(result.get("beside", {"rows": []}))
    if not drawn:
        sys.exit("no figure has a target: nothing to draw")
    plt.rcParams.update({"font.size": 9, "svg.fonttype": "none", "text.color": INK})
    figure, axes = plt.subplots(figsize=(11, 0.34 * len(drawn) + 1.2), layout="constrained")
    for place, (label, (middle, low, high)) in enumerate(drawn.items()):
        colour = REACHED if middle >= 1 else MISSED
        axes.barh(place, middle - 1, left=1, height=0.62, color=colour)
        axes.plot([low, high], [place, place], color=INK, linewidth=1.2, marker="|", markersize=5)
        there = beside.get(label, (None,))[0]
        if there:
            axes.plot([there], [place], color=INK, marker="D", markersize=5, markerfacecolor="none")
        axes.annotate(
            f"{middle:.2f}", (max(high, there or 0, 1), place), (5, 0), textcoords="offset points", va="center"
        )
    axes.set_xscale("log", base=2)
    axes.set_xlim(
        min(0.5, *(0.9 * low for _, low, _ in drawn.values())),
        1.35 * max(high for _, _, high in drawn.values()),
    )
    axes.xaxis.set_major_formatter(lambda x, _: f"{x:g} x")
    axes.axvline(1, color=INK, linewidth=1)
    axes.set_yticks(range(len(drawn)), list(drawn))
    axes.set_ylim(len(drawn) - 0.3, -0.7)
    legend = "bar: median; line: lowest to highest round" + "; diamond: another machine" * bool(beside)
    figure.supxlabel(f"times better than the target ({legend})")
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.tick_params(axis="y", length=0)
    figure.savefig(sys.argv[2])


main()
