"""What bounds the evaluation of an expression, whatever it is."""

from __future__ import annotations

import itertools
from collections.abc import Mapping

import pytest

from magnetar.base import expressions
from magnetar.base.expressions import FUNCTIONS, Notation, as_text, contains, is_in, walks_of

NAMES: Mapping[str, object] = {"a": "Ab\\", "many": ["x", "y"], "pairs": {"k": "v"}}


def holds(text: str, names: Mapping[str, object] = NAMES) -> bool:
    return Notation(NAMES.keys(), FUNCTIONS).compiled(text)(names)


def test_a_list_or_a_mapping_is_no_text() -> None:
    """A text in a list in a list has twice its backslashes each time: sixty `lower` filled the memory."""
    for value in (["a"], {"a": 1}):
        with pytest.raises(TypeError):
            as_text(value)
    assert holds('lower(a) == "ab\\\\"')
    assert not holds('contains(lower([a]), "a")')
    assert not holds("len(" + "lower([" * 60 + "a" + "])" * 60 + ") > 0")


@pytest.mark.parametrize("alphabet", ["ab", "a\u0451", "\U0001f600b"])
def test_a_search_in_pieces_finds_what_python_finds(monkeypatch: pytest.MonkeyPatch, alphabet: str) -> None:
    monkeypatch.setattr(expressions, "_SEARCHED_AT_ONCE", 4)
    wholes = ["".join(chars) for size in range(7) for chars in itertools.product(alphabet, repeat=size)]
    for whole in wholes:
        for part in wholes[:15]:
            assert is_in(part, whole) == (part in whole), (part, whole)
            assert contains(whole, part) == (part in whole)


def test_a_long_search_steps_between_its_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(expressions, "_SEARCHED_AT_ONCE", 100)
    steps: list[None] = []
    assert not is_in("b" * 10, "a" * 1_000, lambda: steps.append(None))
    assert len(steps) == 100  # 991 places, ten at a time
    assert is_in("ab", "a" * 20 + "b", lambda: steps.append(None))
    assert len(steps) == 100


def test_calls_and_comparisons_step() -> None:
    steps: list[None] = []
    notation = Notation(NAMES.keys(), FUNCTIONS, lambda: steps.append(None))
    assert notation.compiled('lower(lower(a)) == "x" or a != "x" or a == "y"')(NAMES)
    assert len(steps) == 4


def test_a_step_ends_the_evaluation() -> None:
    def end() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Notation(NAMES.keys(), FUNCTIONS, end).compiled('lower(a) == "x" or a == "y"')(NAMES)


def test_parts_that_go_through_a_text_are_counted() -> None:
    assert walks_of('a == "x" and a < "y"') == 0
    assert walks_of('a in many not in pairs and lower(a) == "x"') == 3
