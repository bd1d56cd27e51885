"""Tables from results: medians, bottlenecks, targets, remarks."""

from __future__ import annotations

import json
from typing import Any

import pytest
from bench import modules, report
from bench.run import CaseResult, CaseRun, ScenarioResult
from bench.scenario import parse

SCENARIO = parse(
    "publish-100b",
    """
question = "What does it cost?"
kind = "publish"
[[case]]
name = "1 producer"
payload_bytes = 100
[case.target]
messages_per_s = 150000
broker_cpu_s_per_million = 10
""",
)


def result() -> ScenarioResult:
    runs = [
        CaseRun(
            {
                "messages_per_s": rate,
                "broker_cpu_s_per_million": 6.0,
                "broker_cpu_share": 0.99,
                "generator_cpu_share": 0.2,
            }
        )
        for rate in (100_000.0, 140_000.0, 120_000.0)
    ]
    return ScenarioResult(
        SCENARIO, [CaseResult(SCENARIO.cases[0], [*runs, CaseRun(error="it broke\nbadly")])]
    )


HEAD: dict[str, Any] = {
    "machine": {
        "date": "d",
        "cpu": "c",
        "cores": 2,
        "memory_gib": 4,
        "kernel": "k",
        "python": "3",
        "file_system": "fs",
        "load_1min_at_start": 0.1,
    },
    "broker": "b",
    "cpus": "pinned",
    "runs": 3,
    "seconds": 10.0,
    "warm_up_s": 3.0,
    "device": {
        "sync": {"4 KiB": {"p50_ms": 0.15, "syncs_per_s": 6000.0}},
        "loopback": {"64 KiB": {"gigabytes_per_s": 5.0}},
    },
}


def test_a_row_shows_medians_bottleneck_and_targets() -> None:
    header, row = report.kind_table("publish", [result()])
    cells = dict(zip(header, row, strict=True))
    assert cells["msg/s"] == "120,000"
    assert cells["bound by"] == "broker"
    assert cells["target"] == "msg/s ≥ 150,000 ✗; broker CPU s/M msg ≤ 10 ✓"


@pytest.mark.parametrize("markdown", [False, True])
def test_the_report_holds_machine_tables_and_what_failed(markdown: bool) -> None:
    text = report.render(HEAD, [result()], markdown=markdown)
    assert "fs" in text
    assert "120,000" in text
    assert "failed: it broke" in text
    assert ("| publish-100b | 1 producer |" in text) == markdown


def test_the_document_is_json_with_every_run() -> None:
    content = json.loads(json.dumps(report.document([result()], **HEAD)))
    (case,) = content["scenarios"][0]["cases"]
    assert case["median"]["messages_per_s"] == 120_000
    assert len(case["runs"]) == 4
    assert case["load"]["payload_bytes"] == 100


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "–"),
        (float("nan"), "–"),
        (0, "0"),
        (1234567.8, "1,234,568"),
        (123.4, "123"),
        (0.01234, "0.0123"),
    ],
)
def test_figures_are_short(value: float | None, text: str) -> None:
    assert report.figure(value) == text


@pytest.mark.parametrize(
    ("metrics", "who"),
    [
        ({"broker_cpu_share": 0.95, "generator_cpu_share": 0.1}, "broker"),
        ({"broker_cpu_share": 0.5, "generator_cpu_share": 0.95}, "generator"),
        ({"broker_cpu_share": 0.95, "generator_cpu_share": 0.95}, "broker and generator"),
        ({"broker_cpu_share": 0.5, "generator_cpu_share": 0.5}, "neither"),
        ({"generator_cpu_share": 0.5}, "–"),
    ],
)
def test_who_was_the_bottleneck(metrics: dict[str, float], who: str) -> None:
    assert report.bottleneck(metrics) == who


def test_a_run_beside_busy_neighbours_is_called_disturbed() -> None:
    quiet, busy = CaseRun({"other_cpu_share": 0.02}), CaseRun({"other_cpu_share": 0.5})
    assert CaseResult(SCENARIO.cases[0], [quiet]).remarks == []
    assert CaseResult(SCENARIO.cases[0], [quiet, busy]).remarks == [
        "disturbed: other processes used up to 0.50 cores"
    ]


def test_numbers_of_another_program_become_metrics() -> None:
    content = {"rows_per_s": 5, "ok": True, "name": "x", "read": {"p50_ms": 0.5}}
    assert modules.flatten(content) == {"rows_per_s": 5.0, "read_p50_ms": 0.5}
    assert modules.exists("bench.modules")
    assert not modules.exists("bench.nothing_of_the_kind")
