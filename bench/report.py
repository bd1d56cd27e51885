"""Results as a table for people, as Markdown for the documents, as JSON for programs."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, Final

from bench.run import CaseResult, ScenarioResult

Row = list[str]
BOUND_SHARE: Final = 0.9
"""From this share of a core on, its owner is called the bottleneck."""
FORMAT_VERSION: Final = 1

PUBLISH_COLUMNS: Final = {
    "messages_per_s": "msg/s",
    "megabytes_per_s": "MB/s",
    "broker_cpu_s_per_million": "broker CPU s/M msg",
    "broker_cpu_s_per_gb": "broker CPU s/GB",
    "broker_cpu_share": "broker cores",
    "generator_cpu_share": "generator cores",
    "broker_rss_mb": "broker RSS MB",
}
COLUMNS: Final[Mapping[str, Mapping[str, str]]] = {
    "publish": PUBLISH_COLUMNS,
    "catchup": PUBLISH_COLUMNS,
    "latency": {
        "messages_per_s": "msg/s",
        "p50_ms": "receipt p50 ms",
        "p99_ms": "p99",
        "p99.9_ms": "p99.9",
        "max_ms": "max",
        "end_to_end_p50_ms": "end to end p50 ms",
        "end_to_end_p99_ms": "p99",
        "end_to_end_p99.9_ms": "p99.9",
        "end_to_end_max_ms": "max",
        "late_p99_ms": "sent late p99 ms",
        "broker_cpu_s_per_million": "broker CPU s/M msg",
    },
    "topics": {
        "open_s": "opened s",
        "open_broker_cpu_s": "broker CPU s",
        "rss_before_mb": "RSS MB before",
        "rss_open_mb": "opened",
        "messages_per_s": "msg/s",
        "p50_ms": "receipt p50 ms",
        "p99_ms": "p99",
        "max_ms": "max",
        "broker_cpu_share": "broker cores",
        "broker_rss_mb": "RSS MB",
    },
    "start": {
        "ready_s": "ready s",
        "first_acknowledged_s": "first acknowledged s",
        "start_cpu_s": "CPU s",
        "broker_rss_mb": "idle RSS MB",
        "threads": "threads",
        "processes": "processes",
        "idle_cpu_share": "idle cores",
    },
    "official": {
        "produce_messages_per_s": "produce msg/s",
        "produce_broker_cpu_s_per_million": "broker CPU s/M msg",
        "produce_generator_cpu_share": "client cores",
        "consume_messages_per_s": "consume msg/s",
        "consume_broker_cpu_s_per_million": "broker CPU s/M msg",
        "consume_generator_cpu_share": "client cores",
    },
}
KIND_TITLES: Final = {
    "publish": "Publish, as fast as acknowledged",
    "catchup": "Catch-up read",
    "latency": "Latency at a fixed rate, from the intended time of sending",
    "topics": "Many topics",
    "start": "Start and idle",
    "official": "The official Python client",
    "module": "Programs of their own",
}


def figure(value: float | None) -> str:
    """Three digits that count, thousands separated; a dash for what was not measured."""
    if value is None or value != value:
        return "–"
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    if value == 0 or abs(value) >= 100:
        return f"{value:.0f}"
    return f"{value:.3g}" if abs(value) >= 0.001 else f"{value:.1e}"


def bottleneck(metrics: Mapping[str, float]) -> str:
    """The side that had no CPU time left, by the share of its core that each side used."""
    broker, generator = metrics.get("broker_cpu_share"), metrics.get("generator_cpu_share", 0.0)
    names = []
    if broker is not None and broker >= BOUND_SHARE:
        names.append("broker")
    if generator >= BOUND_SHARE:
        names.append("generator")
    if broker is None and not names:
        return "–"
    return " and ".join(names) or "neither"


def higher_is_better(metric: str) -> bool:
    """Rates should be high; costs, times and sizes low."""
    return metric.endswith("_per_s")


def target_text(case: CaseResult, columns: Mapping[str, str]) -> str:
    """The figures to reach, each with a mark when it is reached."""
    median = case.median
    parts = []
    for metric, goal in case.case.target.items():
        sign = "≥" if higher_is_better(metric) else "≤"
        value = median.get(metric)
        mark = ""
        if value is not None:
            reached = value >= goal if higher_is_better(metric) else value <= goal
            mark = " ✓" if reached else " ✗"
        parts.append(f"{columns.get(metric, metric)} {sign} {figure(goal)}{mark}")
    return "; ".join(parts) or "–"


def kind_table(kind: str, results: Sequence[ScenarioResult]) -> list[Row]:
    """Header and one row a case, for all scenarios of one kind."""
    if kind == "module":
        return [
            ["scenario", "case", "figures", "target"],
            *(
                [
                    result.scenario.name,
                    case.case.name,
                    "; ".join(f"{name} {figure(value)}" for name, value in case.median.items()) or "–",
                    target_text(case, {}),
                ]
                for result in results
                for case in result.cases
            ),
        ]
    columns = COLUMNS[kind]
    shown = [m for m in columns if any(m in case.median for result in results for case in result.cases)]
    bound = ["bound by"] if kind in ("publish", "catchup") else []
    rows = [["scenario", "case", *(columns[m] for m in shown), *bound, "target"]]
    for result in results:
        for case in result.cases:
            median = case.median
            who = [bottleneck(median) if median else "–"] if bound else []
            figures = [figure(median.get(m)) for m in shown]
            rows.append([result.scenario.name, case.case.name, *figures, *who, target_text(case, columns)])
    return rows


def device_tables(device: Mapping[str, Mapping[str, Mapping[str, float]]]) -> dict[str, list[Row]]:
    """Tables of the machine's own limits."""
    sync_columns = {
        "p50_ms": "p50 ms",
        "p99_ms": "p99",
        "p99.9_ms": "p99.9",
        "max_ms": "max",
        "syncs_per_s": "syncs/s",
        "megabytes_per_s": "MB/s",
        "cpu_s_per_gb": "CPU s/GB",
    }
    loop_columns = {
        "gigabytes_per_s": "GB/s",
        "sender_cpu_s_per_gb": "sender CPU s/GB",
        "receiver_cpu_s_per_gb": "receiver CPU s/GB",
    }
    return {
        title: [
            ["size", *columns.values()],
            *([size, *(figure(metrics.get(m)) for m in columns)] for size, metrics in device[key].items()),
        ]
        for key, title, columns in (
            ("sync", "Device: append and fdatasync in the data folder", sync_columns),
            ("loopback", "Loopback: one connection between two processes", loop_columns),
        )
        if key in device
    }


def text_table(rows: Sequence[Row]) -> str:
    """Columns padded with spaces; words left, figures right."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = []
    for row in rows:
        cells = [
            cell.ljust(width) if i < 2 or i == len(row) - 1 else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)


def markdown_table(rows: Sequence[Row]) -> str:
    """The same as a Markdown table."""
    head, *body = ["| " + " | ".join(row) + " |" for row in rows]
    align = (
        "|" + "|".join("--" if i < 2 or i == len(rows[0]) - 1 else "--:" for i in range(len(rows[0]))) + "|"
    )
    return "\n".join([head, align, *body])


def headline(content: Mapping[str, Any]) -> str:
    """Machine, broker and way of measuring, in two lines."""
    machine = content["machine"]
    return (
        f"{machine['date']} · {machine['cpu']}, {machine['cores']} cores, {machine['memory_gib']} GiB"
        f" · Linux {machine['kernel']} · Python {machine['python']} · data on {machine['file_system']}"
        f" · load {machine['load_1min_at_start']} at the start\n"
        f"{content['broker']} · {content['cpus']} · median of {content['runs']} run(s)"
        f" of {content['seconds']:g} s after {content['warm_up_s']:g} s of warm-up"
    )


def render(content: Mapping[str, Any], results: Sequence[ScenarioResult], *, markdown: bool) -> str:
    """The whole report. `content`: the document of `document`, for the parts that are not a scenario."""
    table = markdown_table if markdown else text_table
    heading = "### " if markdown else ""
    parts = [headline(content)]
    parts += [
        f"{heading}{title}\n\n{table(rows)}" for title, rows in device_tables(content["device"]).items()
    ]
    if memory := content.get("memory"):
        rows = [["memory", "CPU s/GB"], *([name, figure(value)] for name, value in memory.items())]
        parts.append(f"{heading}Memory: copying into the page cache of a new file\n\n{table(rows)}")
    for kind in dict.fromkeys(result.scenario.kind for result in results):
        of_kind = [result for result in results if result.scenario.kind == kind]
        parts.append(f"{heading}{KIND_TITLES[kind]}\n\n{table(kind_table(kind, of_kind))}")
    remarks = [
        f"- {result.scenario.name}, {case.case.name}: {text.splitlines()[0]}"
        for result in results
        for case in result.cases
        for text in case.remarks
    ]
    if remarks:
        parts.append(f"{heading}Remarks\n\n" + "\n".join(remarks))
    return "\n\n".join(parts) + "\n"


def document(results: Sequence[ScenarioResult], **head: object) -> dict[str, Any]:
    """Everything measured, as what JSON can hold: each run, its histograms, and the medians."""
    return {
        "format": FORMAT_VERSION,
        **head,
        "scenarios": [
            {
                "name": result.scenario.name,
                "question": result.scenario.question,
                "kind": result.scenario.kind,
                "cases": [
                    {
                        "name": case.case.name,
                        "load": dataclasses.asdict(case.case.load),
                        "target": dict(case.case.target),
                        "median": case.median,
                        "runs": [dataclasses.asdict(run) for run in case.runs],
                    }
                    for case in result.cases
                ],
            }
            for result in results
        ],
    }
