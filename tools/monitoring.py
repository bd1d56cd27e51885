"""Writes what is made from the registry of metrics; a test keeps all of it in step.

monitoring/grafana/*.json            dashboards
monitoring/prometheus/rules.yml      alerts
docs/monitoring.md                   the lists below its mark
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

import alerts
import dashboards
import log_events

from magnetar.observability.catalogue import SECTIONS

ROOT: Final = Path(__file__).resolve().parents[1]
PAGE: Final = ROOT / "docs" / "monitoring.md"
MARK: Final = "<!-- Below this line tools/monitoring.py writes. -->\n"


def lists() -> str:
    """The part of the page below the mark."""
    lines = ["", "## Every metric", ""]
    for section in SECTIONS:
        lines += [f"### {section.title}", "", "| Name | Kind | Labels | Meaning |", "|---|---|---|---|"]
        for metric in section.metrics:
            unit = f", {metric.unit}" if metric.unit else ""
            labels = ", ".join(f"`{label}`" for label in metric.labels)
            only = f" Only {metric.only}." if metric.only else ""
            lines.append(f"| `{metric.name}` | {metric.kind.value}{unit} | {labels} | {metric.help}{only} |")
        lines.append("")
    lines += ["## Every alert", "", "| Alert | After | Severity | What to do |", "|---|---|---|---|"]
    for alert in alerts.ALERTS:
        lines.append(f"| `{alert.name}` | {alert.lasting} | {alert.severity} | {alert.remedy} |")
    lines += ["", "## Every event", "", "| Event | Level | Message |", "|---|---|---|"]
    for event in log_events.events():
        lines.append(f"| `{event.name}` | {event.level} | `{event.template}` |")
    return "\n".join(lines) + "\n"


def texts() -> dict[Path, Callable[[], str]]:
    """What makes each file; the page takes seconds, because every module is searched for events."""
    found: dict[Path, Callable[[], str]] = {
        ROOT / "monitoring" / "grafana" / f"{each.uid}.json": each.text for each in dashboards.DASHBOARDS
    }
    found[ROOT / "monitoring" / "prometheus" / "rules.yml"] = alerts.text
    found[PAGE] = lambda: PAGE.read_text("utf-8").partition(MARK)[0] + MARK + lists()
    return found


if __name__ == "__main__":
    for path, text in texts().items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text(), "utf-8")
