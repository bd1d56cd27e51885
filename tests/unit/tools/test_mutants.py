"""The mutants of the rules still fit the code, and the documents tell them."""

from __future__ import annotations

import ast
from pathlib import Path

import mutate
import pytest
from mutant_rule import Rule
from ordering_rules import RULES
from source_trees import parsed

TESTS = Path(__file__).parents[2]


def test_there_are_enough_and_each_has_a_name_of_its_own() -> None:
    assert len({rule.name for rule in mutate.ALL}) == len(mutate.ALL)
    assert len(RULES) >= 30


def changed_statements(before: str, after: str, tree: ast.Module) -> tuple[str, str]:
    """The statements of a module around what differs, before and after. To parse them takes a tenth of the
    time that the module takes. `tree`: of the text before."""
    old, new = before.splitlines(), after.splitlines()
    shorter = min(len(old), len(new))
    first = next((at for at in range(shorter) if old[at] != new[at]), shorter)
    same_end = next((at for at in range(shorter - first) if old[-1 - at] != new[-1 - at]), shorter - first)
    last = max(first, len(old) - same_end - 1)
    start, stop = first, last + 1
    for each in tree.body:
        begin = min([each.lineno, *(mark.lineno for mark in getattr(each, "decorator_list", ()))]) - 1
        end = each.end_lineno or each.lineno
        if begin <= last and first < end:
            start, stop = min(start, begin), max(stop, end)
    return "\n".join(old[start:stop]), "\n".join(new[start : stop + len(new) - len(old)])


@pytest.mark.parametrize("rule", mutate.ALL, ids=lambda rule: str(rule.name))
def test_a_mutant_fits_the_code_and_names_its_tests(rule: Rule) -> None:
    file = mutate.ROOT / "src" / "magnetar" / rule.file
    mutated = mutate.mutated(rule)
    before, after = changed_statements(file.read_text("utf-8"), mutated, parsed(file))
    assert ast.dump(ast.parse(before)) != ast.dump(ast.parse(after)), "the mutant does what the code does"
    for test in rule.tests:
        file, _, name = test.partition("::")
        text = (TESTS / file).read_text("utf-8")
        assert not name or f"def {name}(" in text


def test_a_patch_that_does_not_fit_is_an_error() -> None:
    rule = RULES[0]
    with pytest.raises(ValueError, match="occurs 0 times"):
        mutate.mutated(Rule(rule.name, rule.why, rule.file, "no such text", "", rule.tests))


@pytest.mark.parametrize("name", mutate.LISTS)
def test_a_document_is_current(name: str) -> None:
    path = mutate.path_of(name)
    assert mutate.document(name) == path.read_text("utf-8"), "run `python tools/mutate.py --write`"


def test_a_list_or_a_part_of_a_name_selects() -> None:
    assert mutate.selected([]) == mutate.ALL
    assert mutate.selected(["security"]) == mutate.LISTS["security"]
    assert [rule.name for rule in mutate.selected(["a token is signed"])] == ["a token is signed"]
