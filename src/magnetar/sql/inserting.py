"""`INSERT INTO topic SELECT …`, which the engine's tree does not have: its topic and its query. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from magnetar.base.names import TopicName
from magnetar.sql.errors import StatementError
from magnetar.sql.table_names import topic_of
from magnetar.sql.words import Word, words_of


@dataclass(frozen=True, slots=True)
class Insert:
    """A result that becomes messages of a topic."""

    topic: TopicName
    query: str


def insert_of(statement: str) -> Insert | None:
    """The parts of the statement; None: it is another one. Raises StatementError, UnknownTopicError."""
    words = words_of(statement)
    words += words[-1:] * 2  # A look behind the end finds the end.
    if not words[0].is_name("insert"):
        return None
    at, parts = 2, []
    if words[1].is_name("into"):
        while words[at].kind in ("name", "quoted"):
            parts.append(_name(words[at]))
            at += 1
            if not words[at].is_sign("."):
                break
            at += 1
    if words[at].is_sign("(") and not words[at + 1].is_name("select", "with", "from"):
        raise StatementError("INSERT takes no list of columns: the names of the result's columns count")
    if not 1 <= len(parts) <= 3 or words[at].kind == "end":
        raise StatementError("write INSERT INTO tenant.namespace.topic SELECT …, or the topic alone")
    topic = topic_of(*["", "", *parts][-3:])
    return Insert(topic, statement[words[at].start :])


def _name(word: Word) -> str:
    return word.text[1:-1].replace('""', '"') if word.kind == "quoted" else word.text
