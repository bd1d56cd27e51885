"""The pattern engine against Python's own, and against patterns made to keep engines busy."""

from __future__ import annotations

import contextlib
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from magnetar.broker.watchers.pattern import Pattern, PatternError

ATOMS = st.sampled_from(["a", "b", "-", r"\.", ".", "[ab]", "[^a]", r"\d", r"\W", "[a-c0]", "^", "$", "()"])


def joined(parts: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    repeated = st.tuples(parts, st.sampled_from(["*", "+", "?", "{2}", "{1,3}", "{0,}", "*?"])).map(
        lambda pair: f"(?:{pair[0]}){pair[1]}"
    )
    either = st.tuples(parts, parts).map(lambda pair: f"({pair[0]}|{pair[1]})")
    return repeated | either | st.lists(parts, max_size=3).map("".join)


PATTERNS = st.recursive(ATOMS, joined, max_leaves=8)


@given(PATTERNS, st.lists(st.text("abc-.0", max_size=8), max_size=8))
def test_the_engine_agrees_with_pythons(pattern: str, texts: list[str]) -> None:
    ours = Pattern(pattern)
    # Python's "$" also matches before a final newline; the texts have none.
    theirs = re.compile(pattern, re.ASCII)
    for text in texts:
        assert ours.match(text) == (theirs.fullmatch(text) is not None)


@given(st.text(max_size=60))
def test_any_text_is_a_pattern_or_is_refused(text: str) -> None:
    with contextlib.suppress(PatternError):
        Pattern(text).match("public/default/topic")


@pytest.mark.parametrize("pattern", ["(a+)+$", "(a|aa)+$", "(a|a?)+$", "(.*a){20}", "(a?){50}a{50}"])
def test_hostile_patterns_take_no_more_time_than_others(pattern: str) -> None:
    """With a backtracking engine each of these takes years."""
    assert not Pattern(pattern).match("a" * 3_000 + "!")


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        (r"public/default/\Qa.b(c\E.*", "public/default/a.b(cd"),
        (r"(?i)PUBLIC/[D]efault/x", "public/default/X"),
        (r"(?<tenant>\w+)/(?P<space>\w+)/t[-\d]+", "public/default/t-1"),
        (r"[]a]+[a-]", "]a-"),
        (r"[\w.]+/[^/]+/t\t?", "public/default/t"),
        (r"", ""),
        (r"^$", ""),
        (r"public/default/ü.?", "public/default/üß"),
    ],
)
def test_what_is_understood(pattern: str, text: str) -> None:
    assert Pattern(pattern).match(text)


@pytest.mark.parametrize(
    "pattern",
    [
        "(a", "a)", "[a", "*a", "a{2", "a{3,2}", "a{2000}", "(a{999}){999}", r"(a)\1", "(?=a)", "(?<!a)b",
        "a++", "[b-a]", "[[:alpha:]]", "\\", r"\p{L}", "(" * 60 + ")" * 60, "(?<>a)", "a{,3}",
    ],
)  # fmt: skip
def test_what_is_refused(pattern: str) -> None:
    with pytest.raises(PatternError):
        Pattern(pattern)
