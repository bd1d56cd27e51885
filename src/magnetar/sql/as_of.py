"""`FOR SYSTEM_TIME AS OF`, which the engine's parser does not know, becomes its own AT clause. Pure.

    orders FOR SYSTEM_TIME AS OF now() - INTERVAL 1 DAY AS o
    orders AS o AT (TIMESTAMP => now() - INTERVAL 1 DAY)

The time is a text, with or without a type before it, a function with its arguments, a name, or anything in
parentheses; then + or - and more of these, and intervals. Each may have a cast by `::`.

Source: SQL:2011, 7.6; DuckDB's AT clause, which has the alias before it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from magnetar.sql.errors import StatementError
from magnetar.sql.words import Word, words_of

_CLAUSE: Final = ("for", "system_time", "as", "of")
_BEHIND_TABLES: Final = frozenset(
    re.findall(
        r"\w+",
        "anti asof cross except fetch for full group having inner intersect into join left limit natural"
        " offset on order pivot positional qualify right sample select semi tablesample union unpivot using"
        " where window",
    )
)
"""Words that can follow a table, and which it cannot have as its alias."""
_UNIT: Final = re.compile(
    "(year|quarter|month|week|day|hour|minute|second|millisecond|microsecond)s?", re.IGNORECASE
)


def with_at_clauses(statement: str) -> str:
    """The statement as the engine's parser takes it. Raises StatementError."""
    words = words_of(statement)
    words += words[-1:] * len(_CLAUSE)  # A look behind the end finds the end.
    made, done = [], 0
    for at, word in enumerate(words):
        if word.start < done or not _begins(words, at):
            continue
        first = at + len(_CLAUSE)
        behind = _time_end(words, first)
        time = statement[words[first].start : words[behind - 1].end]
        alias, behind = _alias(words, behind)
        made += [statement[done : word.start], f"{alias}AT (TIMESTAMP => {time})"]
        done = words[behind - 1].end
    return "".join([*made, statement[done:]])


def _begins(words: Sequence[Word], at: int) -> bool:
    return len(words) > at + len(_CLAUSE) and all(
        words[at + number].is_name(name) for number, name in enumerate(_CLAUSE)
    )


def _alias(words: Sequence[Word], at: int) -> tuple[str, int]:
    """The alias that follows, with a space behind it, and the place behind it; empty: there is none."""
    if words[at].is_name("as"):
        at += 1
    elif words[at].kind == "name" and words[at].text.lower() in _BEHIND_TABLES:
        return "", at
    if words[at].kind not in ("name", "quoted"):
        return "", at
    return f"AS {words[at].text} ", at + 1


def _time_end(words: Sequence[Word], at: int) -> int:
    """The place behind a time."""
    at = _operand_end(words, at)
    while words[at].is_sign("+", "-"):
        at = _operand_end(words, at + 1)
    return at


def _operand_end(words: Sequence[Word], at: int) -> int:
    word = words[at]
    if word.is_name("interval"):
        at = _closed(words, at + 1) if words[at + 1].is_sign("(") else at + 2
        at += words[at].kind == "name" and _UNIT.fullmatch(words[at].text) is not None
    elif word.is_sign("("):
        at = _closed(words, at)
    elif word.kind == "name" and words[at + 1].is_sign("("):
        at = _closed(words, at + 1)
    elif word.kind == "name" and words[at + 1].kind == "text":
        at += 2
    elif word.kind in ("text", "name", "number"):
        at += 1
    else:
        raise StatementError("FOR SYSTEM_TIME AS OF needs a time: TIMESTAMP '…', or (an expression)")
    while words[at].is_sign("::"):
        at += 2
        if words[at].is_name("with") and words[at + 2].is_name("zone"):
            at += 3
    return at


def _closed(words: Sequence[Word], at: int) -> int:
    """The place behind the parenthesis that closes this one. Raises StatementError."""
    depth = 0
    for number in range(at, len(words)):
        depth += words[number].is_sign("(") - words[number].is_sign(")")
        if not depth:
            return number + 1
    raise StatementError("a parenthesis behind FOR SYSTEM_TIME AS OF is not closed")
