"""Charts of a result: rates as bars, latencies as percentile curves."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

import matplotlib

matplotlib.use("Agg")

from matplotlib import pyplot as plt  # the backend is chosen first

RATE: Final = "messages_per_s"
RATE_FROM: Final = 100
"""Where the bars begin; the slowest peers reach more."""
PERCENTILES: Final = {"p50": 50.0, "p90": 90.0, "p99": 99.0, "p99.9": 99.9, "p99.99": 99.99}

Table = Mapping[str, Mapping[str, Mapping[str, float]]]
"""Broker -> case -> metric -> value."""


def draw(path: Path, table: Table, title: str) -> None:
    """One picture (PNG, SVG or PDF by the suffix): on the left rates, on the right latencies.

    Rates stand on a logarithmic scale, since brokers differ by more than a hundred times.
    """
    cases = list(dict.fromkeys(case for metrics in table.values() for case in metrics))
    rates = [c for c in cases if any(_is_rate(metrics.get(c, {})) for metrics in table.values())]
    latencies = [c for c in cases if any("p50_ms" in metrics.get(c, {}) for metrics in table.values())]
    figure, (left, right) = plt.subplots(1, 2, figsize=(14, 6), layout="constrained")
    height = 0.8 / max(1, len(table))
    for number, (broker, metrics) in enumerate(table.items()):
        places = [row + number * height for row in range(len(rates))]
        values = [metrics.get(case, {}).get(RATE, 0.0) for case in rates]
        bars = left.barh(places, values, height=height, label=broker)
        left.bar_label(bars, [f"{value:,.0f}" if value else "" for value in values], padding=2, fontsize=7)
    left.set_yticks([row + 0.4 - height / 2 for row in range(len(rates))], rates, fontsize=8)
    left.invert_yaxis()
    left.set_xscale("log")
    highest = max(
        (metrics.get(c, {}).get(RATE, 0.0) for metrics in table.values() for c in rates), default=1.0
    )
    left.set_xlim(RATE_FROM, max(10 * RATE_FROM, 3 * highest))
    left.set_xlabel("messages a second")
    for broker, metrics in table.items():
        for case in latencies:
            found = metrics.get(case, {})
            prefix = "end_to_end_" if "end_to_end_p50_ms" in found else ""
            points = {n: found[f"{prefix}{n}_ms"] for n in PERCENTILES if f"{prefix}{n}_ms" in found}
            if points:
                label = case if len(table) == 1 else f"{broker}, {case}"
                right.plot(list(points), list(points.values()), marker="o", markersize=3, label=label)
    right.set_yscale("log")
    right.set_ylabel("ms from the intended time of sending")
    for axes in (left, right):
        axes.grid(visible=True, which="major", alpha=0.3)
        if axes.get_legend_handles_labels()[0]:
            axes.legend(fontsize=7)
    figure.suptitle(title, fontsize=9)
    figure.savefig(path, dpi=130)
    plt.close(figure)


def _is_rate(metrics: Mapping[str, float]) -> bool:
    return RATE in metrics and "p50_ms" not in metrics
