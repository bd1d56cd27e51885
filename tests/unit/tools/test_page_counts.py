"""The pages tell the executions in `tools/fuzzing/counts.jsonl`, and how many rules there are."""

from __future__ import annotations

import json
from pathlib import Path

from fuzzing.catalogue import HARNESSES
from mutate import LISTS

ROOT = Path(__file__).resolve().parents[3]


def test_the_page_of_security_tells_the_executions_that_were_counted() -> None:
    rows = [json.loads(line) for line in (ROOT / "tools/fuzzing/counts.jsonl").read_text().splitlines()]
    page = (ROOT / "docs" / "security.md").read_text()
    every = sum(row["executions"] for row in rows)
    guided = sum(row["executions"] for row in rows if row["how"] == "guided")
    assert f"{every:,} executions in all {len(HARNESSES)} harnesses and live" in page
    assert f"{guided:,} of them had coverage feedback" in page


def test_each_harness_was_run_with_coverage_feedback() -> None:
    rows = [json.loads(line) for line in (ROOT / "tools/fuzzing/counts.jsonl").read_text().splitlines()]
    assert {row["harness"] for row in rows if row["how"] == "guided" and row["executions"]} >= set(HARNESSES)


def test_the_page_of_reliability_counts_the_rules_of_today() -> None:
    page = (ROOT / "docs" / "reliability.md").read_text()
    for name, rules in LISTS.items():
        assert f"{len(rules)} {name} rules" in page.partition("today there are")[2]
