"""What the shell offers."""

from __future__ import annotations

from magnetar.cli.sql.completing import Completing
from magnetar.sql.errors import UnknownTopicError


def columns(name: str) -> list[str]:
    if name != "orders":
        raise UnknownTopicError(name, "not there")
    return ["item", "amount", "publish_time"]


def test_words_topics_and_columns() -> None:
    asked = []

    def topics() -> list[str]:
        asked.append(1)
        return ["orders", "acme.sales.orders"]

    completing = Completing(topics, columns)
    assert completing.words("SEL", "SEL") == ["SELECT"]
    assert completing.words("sel", "sel") == ["select"]
    assert completing.words("SELECT 1 FROM o", "o")[0] == "orders"
    assert completing.words("SELECT a FROM orders WHERE am", "am") == ["amount"]
    assert completing.words("SELECT x FROM acme.", "acme.") == ["acme.sales.orders"]
    assert completing.words("", "") == []
    assert len(asked) == 1
    completing.forget()
    completing.words("o", "o")
    assert len(asked) == 2


def test_without_a_cluster_there_are_words() -> None:
    def gone() -> list[str]:
        raise UnknownTopicError("x", "y")

    assert Completing(gone, columns).words("FROM nothing WHERE w", "w") == ["where", "when", "with"]
