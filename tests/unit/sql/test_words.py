"""The words of a statement."""

from __future__ import annotations

import pytest

from magnetar.sql.words import words_of


@pytest.mark.parametrize(
    ("statement", "words"),
    [
        ("SELECT a.b", ["name SELECT", "name a", "sign .", "name b"]),
        ("'it''s' E'it\\'s' $$a'b$$ $x$ $$ $x$", [
            "text 'it''s'", "text E'it\\'s'", "text $$a'b$$", "text $x$ $$ $x$",
        ]),
        ('"a ""b"""::TIME 1.5e3', ['quoted "a ""b"""', "sign ::", "name TIME", "number 1.5e3"]),
        ("größe -- 'x\n/* ' */ + 'open", ["name größe", "sign +", "sign '", "name open"]),
        ("", []),
    ],
)  # fmt: skip
def test_words(statement: str, words: list[str]) -> None:
    found = words_of(statement)
    assert [f"{word.kind} {word.text}" for word in found[:-1]] == words
    assert all(statement[word.start : word.end] == word.text for word in found)
    assert found[-1].kind == "end"
