"""The mutants of the ordering rules still fit the code, and the document tells them."""

from __future__ import annotations

import ast
from pathlib import Path

import mutate
import pytest
from ordering_rules import RULES, Rule

TESTS = Path(__file__).parents[2]


def test_there_are_enough_and_each_has_a_name_of_its_own() -> None:
    assert len({rule.name for rule in RULES}) == len(RULES) >= 30


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: str(rule.name))
def test_a_mutant_fits_the_code_and_names_its_tests(rule: Rule) -> None:
    original = (mutate.ROOT / "src" / "magnetar" / rule.file).read_text("utf-8")
    assert ast.dump(ast.parse(mutate.mutated(rule))) != ast.dump(ast.parse(original))
    for test in rule.tests:
        file, _, name = test.partition("::")
        text = (TESTS / file).read_text("utf-8")
        assert not name or f"def {name}(" in text


def test_a_patch_that_does_not_fit_is_an_error() -> None:
    rule = RULES[0]
    with pytest.raises(ValueError, match="occurs 0 times"):
        mutate.mutated(Rule(rule.name, rule.why, rule.file, "no such text", "", rule.tests))


def test_the_document_is_current() -> None:
    assert mutate.document() == mutate.DOCUMENT.read_text("utf-8"), "run `python tools/mutate.py --write`"
