"""Draws the panels of the overview from a real Prometheus by matplotlib, for a picture in docs/monitoring.md.

python tools/dashboard_picture.py http://localhost:9090 docs/images/overview.png --minutes 5
"""

from __future__ import annotations

import argparse
import json
import math
import time
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any, Final

import matplotlib as mpl
from dashboards import OVERVIEW, WINDOW, Panel

mpl.use("Agg")
from matplotlib import pyplot as plt

_STEP_S: Final = 2
_WINDOW: Final = "15s"
_SCALES: Final = {
    "s": ((1e-3, 1e3, "ms"), (60.0, 1.0, "s"), (math.inf, 1 / 60, "min")),
    "bytes": ((1e6, 1e-3, "kB"), (1e9, 1e-6, "MB"), (math.inf, 1e-9, "GB")),
    "Bps": ((1e6, 1e-3, "kB/s"), (1e9, 1e-6, "MB/s"), (math.inf, 1e-9, "GB/s")),
    "percentunit": ((math.inf, 100.0, "%"),),
    "ops": ((math.inf, 1.0, "/s"),),
    "short": ((math.inf, 1.0, ""),),
}
"""By unit: up to which value which factor and word."""
_LEGEND_MAX: Final = 4


def ask(url: str, expression: str, minutes: float, end_s: float) -> list[dict[str, Any]]:
    """The series of a range query."""
    for name in ("cluster", "namespace", "topic"):
        expression = expression.replace(f"${name}", ".*")
    words = {
        "query": expression.replace(WINDOW, _WINDOW),
        "start": end_s - 60 * minutes,
        "end": end_s,
        "step": _STEP_S,
    }
    with urllib.request.urlopen(f"{url}/api/v1/query_range?{urllib.parse.urlencode(words)}") as answer:
        found: list[dict[str, Any]] = json.load(answer)["data"]["result"]
    return found


def draw(url: str, panel: Panel, axes: Any, minutes: float, end_s: float) -> None:
    """One panel."""
    axes.set_title(panel.title, loc="left", fontsize=9, fontweight="bold")
    lines = []
    for query in panel.queries:
        for series in ask(url, query.expression, minutes, end_s):
            legend = query.legend
            if "/__canary" in series["metric"].get("topic", ""):
                continue
            for name, value in series["metric"].items():
                legend = legend.replace(f"{{{{{name}}}}}", value.removeprefix("persistent://"))
            points = [(at, float(value)) for at, value in series["values"] if value != "NaN"]
            lines.append((legend.strip() or panel.title, points))
    top = max((value for _, points in lines for _, value in points), default=0.0)
    unit = panel.queries[0].unit
    _, factor, word = next(scale for scale in _SCALES[unit] if top <= scale[0])
    if panel.kind == "stat":
        # As Grafana does with several series of a panel: the first one here stands for the worst.
        newest = min((points[-1][1] for _, points in lines if points), default=math.nan) * factor
        axes.text(0.5, 0.45, f"{newest:.3g} {word}", ha="center", va="center", fontsize=20, color="#2a7")
        axes.set_axis_off()
        return
    for legend, points in lines:
        axes.plot(
            [(at - end_s) / 60 for at, _ in points],
            [v * factor for _, v in points],
            label=legend,
            linewidth=1,
        )
    axes.set_ylim(bottom=0)
    axes.set_ylabel(word, fontsize=7)
    axes.tick_params(labelsize=7)
    axes.grid(alpha=0.3)
    if lines:
        axes.legend(fontsize=6, loc="upper left", framealpha=0.6, ncols=1, handlelength=1)
        if len(lines) > _LEGEND_MAX:
            axes.legend(*(each[:_LEGEND_MAX] for each in axes.get_legend_handles_labels()), fontsize=6)


def main() -> None:
    """Draws the overview."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("url")
    parser.add_argument("file", type=Path)
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--end", type=float, default=time.time(), help="Unix time.  [now]")
    given = parser.parse_args()
    places = [(row.title, panel) for row in OVERVIEW.rows for panel in row.panels]
    columns = 4
    rows = math.ceil(len(places) / columns)
    ratios = [0.35 if place < 1 else 1.0 for place in range(rows)]
    figure, grid = plt.subplots(
        rows, columns, figsize=(16, 12), layout="constrained", gridspec_kw={"height_ratios": ratios}
    )
    for axes in grid.flat[len(places) :]:
        axes.set_axis_off()
    for (_, panel), axes in zip(places, grid.flat, strict=False):
        draw(given.url, panel, axes, given.minutes, given.end)
    figure.suptitle(OVERVIEW.title, x=0.01, ha="left", fontsize=13, fontweight="bold")
    given.file.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(given.file, dpi=75)


if __name__ == "__main__":
    main()
