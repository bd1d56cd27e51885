"""What a statement reads, what it may not do, and what it can want."""

from __future__ import annotations

from contextlib import suppress

import pytest

from magnetar.sql.bounds import Bounds, Condition
from magnetar.sql.engine import SqlEngine
from magnetar.sql.errors import SqlError, StatementError, TooDeepError
from magnetar.sql.statements import Statement, read_statement


def read(engine: SqlEngine, text: str) -> Statement:
    return read_statement(engine.parse(text))


def topics(engine: SqlEngine, text: str) -> list[str]:
    return [ref.topic.local for ref in read(engine, text).refs]


def bounds(engine: SqlEngine, text: str) -> list[Bounds]:
    found = []
    for ref in read(engine, text).refs:
        made = Bounds()
        for condition in ref.conditions:
            made = made.with_condition(condition.column, condition.operator, engine.values_of(condition))
        found.append(made)
    return found


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("SELECT * FROM a", ["a"]),
        ("SELECT (SELECT max(x) FROM b) FROM a WHERE EXISTS (SELECT 1 FROM c)", ["a", "b", "c"]),
        ("SELECT * FROM a JOIN public.default.b USING (key) UNION SELECT * FROM a", ["a", "b", "a"]),
        ("WITH a AS (SELECT * FROM a) SELECT * FROM a", ["a"]),
        ("WITH x AS (SELECT 1), y AS (SELECT * FROM x) SELECT * FROM y, z", ["z"]),
        (
            "WITH RECURSIVE n AS (SELECT 1 AS i UNION ALL SELECT i + 1 FROM n) SELECT * FROM n, a",
            ["a"],
        ),
        ("SELECT * FROM (SELECT * FROM x) AS y, range(3)", ["x"]),
        ("SELECT 1", []),
        ("SUMMARIZE SELECT * FROM a", ["a"]),
        ("FROM a SELECT count(*)", ["a"]),
        ("PIVOT (SELECT * FROM a) ON k IN ('x') USING sum(v)", ["a"]),
    ],
)
def test_topics(engine: SqlEngine, text: str, expected: list[str]) -> None:
    assert sorted(topics(engine, text)) == sorted(expected)


def test_the_rewritten_statement_runs(engine: SqlEngine) -> None:
    text = (
        "WITH a AS (SELECT i AS j FROM a WHERE i > 1)"
        " SELECT a.j, o.i FROM a, public.default.o WHERE o.i = a.j"
    )
    statement = read(engine, text)
    for ref in statement.refs:
        engine.add_table(ref.name, ["SELECT * FROM range(4) AS t(i)"])
    rows = engine.query(engine.text_of(statement.document)).read_all().to_pylist()
    assert sorted(map(tuple, (row.values() for row in rows))) == [(2, 2), (3, 3)]


@pytest.mark.parametrize(
    ("text", "columns"),
    [
        ("SELECT count(*) FROM a", frozenset()),
        ("SELECT x.name FROM a x WHERE y > 1", {"x", "name", "y"}),
        ("SELECT * FROM a", None),
        ("SELECT a FROM a", None),
        ("SELECT x FROM a NATURAL JOIN b", None),
        ("SELECT x FROM a JOIN b USING (Key)", {"x", "key"}),
        ("SELECT p FROM a AS t(p)", None),
    ],
)
def test_columns(engine: SqlEngine, text: str, columns: frozenset[str] | None) -> None:
    assert read(engine, text).columns == columns


TIME = "TIMESTAMPTZ '2026-01-01 00:00:00+00'"
TIME_MS = 1_767_225_600_000


@pytest.mark.parametrize(
    ("where", "low", "high"),
    [
        (f"publish_time > {TIME}", TIME_MS, None),
        (f"{TIME} > publish_time", None, TIME_MS),
        (f"publish_time BETWEEN {TIME} AND {TIME} + INTERVAL 1 SECOND", TIME_MS, TIME_MS + 1000),
        (f"t.publish_time = {TIME} AND key LIKE 'x%'", TIME_MS, TIME_MS),
        ("publish_time >= '2026-01-01'", TIME_MS, None),
        (f"publish_time > {TIME} OR key = 'x'", None, None),
        (f"NOT publish_time > {TIME}", None, None),
        ("publish_time > event_time", None, None),
        ("publish_time > (SELECT now())", None, None),
        ("publish_time > now() - INTERVAL (random()) HOUR", None, None),
    ],
)
def test_times(engine: SqlEngine, where: str, low: int | None, high: int | None) -> None:
    [found] = bounds(engine, f"SELECT 1 FROM t WHERE {where}")
    assert (found.time_ms.low, found.time_ms.high) == (low, high)


def test_now_is_evaluated(engine: SqlEngine) -> None:
    [found] = bounds(engine, "SELECT 1 FROM t WHERE publish_time > now() - INTERVAL 2 HOURS")
    assert found.time_ms.low is not None


def test_keys_and_positions(engine: SqlEngine) -> None:
    [found] = bounds(engine, "SELECT 1 FROM t WHERE key IN ('a', 'b') AND partition = 3 AND ledger_id >= 7")
    assert found.keys == {b"a", b"b"}
    assert (found.partition.low, found.partition.high, found.ledger_id.low) == (3, 3, 7)
    [found] = bounds(engine, "SELECT 1 FROM t WHERE ledger_id > 6.5")
    assert found == Bounds(), "numbers with fractions are the engine's"


def test_each_table_has_its_own(engine: SqlEngine) -> None:
    found = bounds(engine, "SELECT 1 FROM a JOIN b USING (key) WHERE a.partition = 1 AND b.partition = 2")
    assert [each.partition.low for each in found] == [1, 2]
    found = bounds(engine, "SELECT 1 FROM a JOIN b USING (key) WHERE partition = 1")
    assert found == [Bounds(), Bounds()], "whose column that is, the engine decides"


@pytest.mark.parametrize(
    "tables",
    ["a ASOF JOIN b ON a.publish_time >= b.publish_time", "a POSITIONAL JOIN b"],
)
def test_joins_in_which_a_missing_row_changes_others(engine: SqlEngine, tables: str) -> None:
    assert bounds(engine, f"SELECT 1 FROM {tables} WHERE b.partition = 1") == [Bounds(), Bounds()]


def test_a_sample_is_of_all_rows(engine: SqlEngine) -> None:
    assert bounds(engine, "SELECT 1 FROM a TABLESAMPLE 10 PERCENT WHERE partition = 1") == [Bounds()]


def test_an_alias_of_the_name(engine: SqlEngine) -> None:
    assert bounds(engine, "SELECT x AS key FROM a WHERE key = 'v'") == [Bounds()]


@pytest.mark.parametrize(
    "text", ["", "SELECT 1; SELECT 2", "SELEC", "SELECT FROM", "INSERT INTO a VALUES (1)", "DROP TABLE a"]
)
def test_what_is_no_query(engine: SqlEngine, text: str) -> None:
    with pytest.raises(SqlError):
        read(engine, text)


def test_a_named_query_hides_no_topic(engine: SqlEngine) -> None:
    """The engine finds a named query before a table, so the names of topics must be others."""
    statement = read(engine, "WITH TOPIC_0 AS (SELECT 42 AS x) SELECT a.i, x FROM a, topic_0")
    for ref in statement.refs:
        engine.add_table(ref.name, ["SELECT 7 AS i"])
    assert engine.query(engine.text_of(statement.document)).read_all().to_pylist() == [{"i": 7, "x": 42}]


def test_a_column_by_its_number_may_be_any(engine: SqlEngine) -> None:
    assert read(engine, "SELECT #1 FROM a").columns is None


def test_a_field_of_a_value_is_no_column_of_another_table(engine: SqlEngine) -> None:
    text = "SELECT 1 FROM orders, \"value\" WHERE orders.value.key = 'x'"
    assert bounds(engine, text) == [Bounds(), Bounds()]


@pytest.mark.parametrize("operator", ["+", "||"])
@pytest.mark.parametrize("count", [300, 900])
def test_many_operators_within_each_other(engine: SqlEngine, operator: str, count: int) -> None:
    """Python's depth is limited; whatever the limit is, there is an answer or an error of ours."""
    with suppress(TooDeepError):
        statement = read(engine, f"SELECT {operator.join(['1'] * count)}")
        assert engine.query(engine.text_of(statement.document)).read_all().num_rows == 1


def test_the_time_of_a_state(engine: SqlEngine) -> None:
    text = "SELECT * FROM a AT (TIMESTAMP => TIMESTAMP '2026-01-01') JOIN a AS b USING (key)"
    statement = read(engine, text)
    first, second = statement.refs
    assert first.as_of is not None
    assert engine.values_of(Condition("publish_time", "<=", (first.as_of,))) == [1_767_225_600_000]
    assert second.as_of is None
    assert " AT " not in engine.text_of(statement.document)


@pytest.mark.parametrize(
    "text",
    [
        "SELECT * FROM a AT (VERSION => 1)",
        "WITH a AS (SELECT 1) SELECT * FROM a AT (TIMESTAMP => now())",
        "SELECT * FROM a, LATERAL (SELECT * FROM b AT (TIMESTAMP => a.publish_time))",
        "SELECT * FROM a AT (TIMESTAMP => (SELECT max(publish_time) FROM b))",
        "SELECT * FROM a AT (TIMESTAMP => getenv('HOME')::TIMESTAMP)",
    ],
)
def test_states_that_are_not_of_a_time(engine: SqlEngine, text: str) -> None:
    with pytest.raises(StatementError):
        read(engine, text)
