"""What the shell offers behind what was typed: words of SQL, topics, and columns of the topics at hand."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Final

from magnetar.base.errors import MagnetarError

WORDS: Final = (
    "SELECT",
    "FROM",
    "WHERE",
    "GROUP",
    "BY",
    "ORDER",
    "HAVING",
    "LIMIT",
    "JOIN",
    "LEFT",
    "RIGHT",
    "FULL",
    "INNER",
    "CROSS",
    "USING",
    "ON",
    "AS",
    "AND",
    "OR",
    "NOT",
    "IN",
    "IS",
    "NULL",
    "LIKE",
    "BETWEEN",
    "CASE",
    "WHEN",
    "THEN",
    "ELSE",
    "END",
    "DISTINCT",
    "UNION",
    "ALL",
    "WITH",
    "INTERVAL",
    "INSERT",
    "INTO",
    "FOR",
    "SYSTEM_TIME",
    "OF",
    "COUNT",
    "SUM",
    "AVG",
    "MIN",
    "MAX",
    "CAST",
    "DESC",
    "ASC",
    "EXPLAIN",
    "DESCRIBE",
    "SHOW",
    "TOPICS",
    "DECODE",
    "NOW",
)
_AFTER_TABLE: Final = re.compile(r"\b(?:from|join|describe)\s+((?:[\w\"/:-]+\.){0,2}[\w\"/:-]+)", re.I)


class Completing:
    """The words that may follow. Asks the cluster for topics and columns once each."""

    def __init__(self, topics: Callable[[], Sequence[str]], columns: Callable[[str], Sequence[str]]) -> None:
        """`topics`: names of tables. `columns`: those of a table. Both may raise MagnetarError."""
        self._ask_topics = topics
        self._ask_columns = columns
        self._topics: list[str] | None = None
        self._columns: dict[str, list[str]] = {}

    def forget(self) -> None:
        """Asks anew at the next call."""
        self._topics = None
        self._columns.clear()

    def words(self, text: str, prefix: str) -> list[str]:
        """The completions of `prefix`; `text`: the statement so far. Never raises: without an answer of the
        cluster there are fewer."""
        offered = [*self._of_topics(text), *self._known_topics()]
        small = prefix.lower()
        found = [word for word in offered if word.lower().startswith(small)]
        found += [
            word.lower() if prefix.islower() else word for word in WORDS if word.lower().startswith(small)
        ]
        return list(dict.fromkeys(found)) if prefix else []

    def _known_topics(self) -> list[str]:
        if self._topics is None:
            try:
                self._topics = list(self._ask_topics())
            except MagnetarError:
                self._topics = []
        return self._topics

    def _of_topics(self, text: str) -> list[str]:
        found: list[str] = []
        for name in _AFTER_TABLE.findall(text):
            if name not in self._columns:
                try:
                    self._columns[name] = list(self._ask_columns(name))
                except MagnetarError:
                    continue  # It may be half a name.
            found += self._columns[name]
        return found
