"""The parts of INSERT INTO."""

from __future__ import annotations

import pytest

from magnetar.sql.errors import SqlError
from magnetar.sql.inserting import insert_of


@pytest.mark.parametrize(
    ("statement", "topic", "query"),
    [
        ("INSERT INTO t SELECT 1 AS a", "persistent://public/default/t", "SELECT 1 AS a"),
        (
            'insert /* x */ into a.b."c-d" -- y\n WITH x AS (SELECT 1) FROM x',
            "persistent://a/b/c-d",
            "WITH x AS (SELECT 1) FROM x",
        ),
        ('INSERT INTO "a/b/c" (SELECT 1)', "persistent://a/b/c", "(SELECT 1)"),
    ],
)
def test_topic_and_query(statement: str, topic: str, query: str) -> None:
    found = insert_of(statement)
    assert found is not None
    assert (str(found.topic), found.query) == (topic, query)


@pytest.mark.parametrize("statement", ["SELECT 'INSERT INTO t'", "", '"insert" INTO t'])
def test_other_statements(statement: str) -> None:
    assert insert_of(statement) is None


@pytest.mark.parametrize(
    "statement",
    [
        "INSERT",
        "INSERT INTO",
        "INSERT INTO t",
        "INSERT t SELECT 1",
        "INSERT INTO t (a) SELECT 1",
        "INSERT INTO a.b SELECT 1",
        "INSERT INTO a.b.c.d SELECT 1",
        "INSERT INTO 't' SELECT 1",
        'INSERT INTO "non-persistent://a/b/c" SELECT 1',
    ],
)
def test_what_cannot_be_inserted(statement: str) -> None:
    with pytest.raises(SqlError):
        insert_of(statement)
