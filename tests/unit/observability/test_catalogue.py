"""The registry of metrics is complete and well formed."""

from __future__ import annotations

import ast
import re
from functools import cache
from itertools import pairwise
from pathlib import Path

import pytest

from magnetar.observability.catalogue import METRICS, SECTIONS
from magnetar.observability.metrics import Kind
from support.sources import nodes

PACKAGE = Path(__file__).parents[3] / "src" / "magnetar"
NAME = re.compile(
    r"(pulsar|magnetar|python|process|brk_ledgeroffloader)_[a-z0-9_]*[a-z0-9]"
    # Apache's bookies name what they count in capitals, and so does its auto-recovery.
    r"|(bookie|bookkeeper_server|auditor|replication_worker)_[A-Za-z0-9_]*[A-Za-z0-9]"
)
UNITS = {"", "messages", "entries", "bytes", "seconds", "per second", "bytes per second", "ratio"}


@cache
def named() -> dict[str, str]:
    """Names of metrics in modules that make samples, with the module; Spark's programs have an exposition of
    their own (docs/pipelines.md)."""
    found: dict[str, str] = {}
    for path in PACKAGE.rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        if "Exposition" not in text or "spark" in path.parts:
            continue
        for node in nodes(path):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and NAME.fullmatch(node.value):
                found[node.value] = path.relative_to(PACKAGE).as_posix()
    return found


def test_what_is_shown_is_declared() -> None:
    missing = {name: where for name, where in named().items() if name not in METRICS}
    assert missing == {}, "declare it in observability/catalogue.py, then run tools/monitoring.py"


def test_each_is_declared_once() -> None:
    assert len(METRICS) == sum(len(section.metrics) for section in SECTIONS)


@pytest.mark.parametrize("name", METRICS)
def test_a_row_is_well_formed(name: str) -> None:
    metric = METRICS[name]
    assert NAME.fullmatch(name)
    assert metric.unit in UNITS
    assert metric.help.endswith(".")
    theirs = ("pulsar_", "brk_", "bookie_", "bookkeeper_", "auditor_", "replication_worker_")
    ours = not name.startswith(theirs)
    if ours:
        assert name.endswith("_total") == (metric.kind is Kind.COUNTER)
    if name.endswith("_bytes") and ours:
        assert metric.unit == "bytes"


def helps() -> dict[str, set[str]]:
    """The texts that modules write beside the name of a metric when they make its samples."""
    found: dict[str, set[str]] = {}
    for path in PACKAGE.rglob("*.py"):
        for node in nodes(path):
            texts = node.args if isinstance(node, ast.Call) else getattr(node, "elts", [])
            for name, text in pairwise(texts):
                match (name, text):
                    case (ast.Constant(value=str(said)), ast.Constant(value=str(help_text))):
                        if said in METRICS and help_text.endswith("."):
                            found.setdefault(said, set()).add(help_text)
    return found


def test_scrapes_say_what_the_registry_says() -> None:
    wrong = {name: texts for name, texts in helps().items() if texts != {METRICS[name].help}}
    assert wrong == {}, "write the text of observability/catalogue.py, or call text_of"
