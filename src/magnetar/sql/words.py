"""The words of a statement, for what the engine's parser does not know. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

_TOKEN: Final = re.compile(
    r"(?P<gap>\s+|--[^\n]*|/\*.*?\*/)"
    r"|(?P<text>[eE]'(?:[^'\\]|\\.|'')*'|'(?:[^']|'')*'|\$(?P<tag>\w*)\$.*?\$(?P=tag)\$)"
    r'|(?P<quoted>"(?:[^"]|"")*")'
    r"|(?P<name>[^\W\d]\w*)"
    r"|(?P<number>\d[\w.]*)"
    r"|(?P<sign>::|.)",
    re.S,
)
"""A quote without its end is a sign: the engine's parser refuses it later."""


@dataclass(frozen=True, slots=True)
class Word:
    """One word, or a sign between words."""

    kind: str
    """`text`, `quoted`, `name`, `number` or `sign`; `end` behind the last one."""
    text: str
    start: int
    """Its place in the statement, and the place behind it."""
    end: int

    def is_name(self, *names: str) -> bool:
        """Whether it is one of these, in lower case, without quotes."""
        return self.kind == "name" and self.text.lower() in names

    def is_sign(self, *signs: str) -> bool:
        """Whether it is one of these."""
        return self.kind == "sign" and self.text in signs


def words_of(statement: str) -> list[Word]:
    """The words without comments and space, and an `end`."""
    found = []
    for token in _TOKEN.finditer(statement):
        kind = next(kind for kind in ("gap", "text", "quoted", "name", "number", "sign") if token[kind])
        if kind != "gap":
            found.append(Word(kind, token[0], token.start(), token.end()))
    return [*found, Word("end", "", len(statement), len(statement))]
