"""`docs/compatibility/policies.md` names every policy and tests that are there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from magnetar.admin.policies.table import ALL

REPOSITORY = Path(__file__).parents[4]
PAGE = REPOSITORY / "docs" / "compatibility" / "policies.md"
EFFECTS = "tests/compat/test_policy_effects.py"
KEPT = "kept"
"""Stands where nothing can have an effect; the column before says why."""


def rows() -> list[tuple[set[str], set[str], str, str]]:
    """Namespace's names, topic's names, effect, proof."""
    found = []
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("| ") and len(cells) == 4 and cells[0] != "Namespace":
            names = [set(re.findall(r"`([^`]+)`", cell)) for cell in cells[:2]]
            found.append((names[0], names[1], cells[2], cells[3]))
    return found


def test_every_policy_is_listed() -> None:
    of_namespaces = set().union(*(row[0] for row in rows()))
    of_topics = set().union(*(row[1] for row in rows()))
    assert {policy.of_namespace for policy in ALL if policy.of_namespace} - of_namespaces == set()
    assert {policy.of_topic for policy in ALL if policy.of_topic} - of_topics == set()


@pytest.mark.parametrize("row", rows(), ids=lambda row: next(iter(sorted(row[0] | row[1]))))
def test_the_tests_of_a_policy_are_there(row: tuple[set[str], set[str], str, str]) -> None:
    _, _, effect, proof = row
    if proof == KEPT:
        assert effect.startswith("none: ")
        return
    tests = re.findall(r"`([^`]+?)::(test_\w+)`", proof)
    assert tests
    for file, name in tests:
        text = (REPOSITORY / (EFFECTS if file == "E" else file)).read_text(encoding="utf-8")
        assert f"def {name}(" in text, f"{file} has no {name}"


def test_effects_are_shown_at_both_levels() -> None:
    """A policy that both have is set at both by its test."""
    text = (REPOSITORY / EFFECTS).read_text(encoding="utf-8")
    for namespace, topic, _, proof in rows():
        for name in re.findall(r"`E::(test_\w+)`", proof):
            decorators = text[: text.index(f"def {name}(")].rpartition("\n\n\n")[2]
            if namespace and topic and "`, `E::" not in proof:
                assert "LEVELS" in decorators or '"namespace"' in decorators, name
