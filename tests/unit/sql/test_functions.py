"""The list of functions is held against the engine's own: each one has been looked at."""

from __future__ import annotations

import pytest

from magnetar.sql.engine import SqlEngine
from magnetar.sql.errors import StatementError
from magnetar.sql.functions import COMPUTING
from magnetar.sql.statements import read_statement

_FAMILIES = ("__", "collate_", "icu_collate_", "has_", "inet_", "pg_")
"""Functions of the engine's own plans, of COLLATE, and of rights that the engine does not have."""
_REFUSED = """
    bitstring_byte_comparable col_description current_catalog current_connection_id current_database
    current_query current_query_id current_role current_schema current_schemas current_setting
    current_transaction_id current_user currval format_pg_type format_type get_block_size get_type getvariable
    hive_partition_component icu_sort_key in_search_path index_key invoke is_histogram_other_bin
    json_copy_strftime_if_date json_copy_strftime_if_timestamp json_deserialize_sql json_serialize_plan
    json_serialize_sql make_type map_to_pg_oid nextval obj_description parse_duckdb_log_message remap_struct
    replace_type session_user setseed setval shobj_description stats switch timetz_byte_comparable
    txid_current user variant_bytes_to_variant variant_comparator variant_to_parquet_variant vector_type
    write_log
    """
REFUSED = frozenset(_REFUSED.split())
"""Functions of the engine that no statement may call."""
_OF_THE_PARSER = frozenset(("!", "->", "<>", "==", "unlist", "unnest"))
"""Names that the parser has and the catalogue has not."""


def catalogue(engine: SqlEngine) -> set[str]:
    kinds = "('scalar', 'aggregate', 'macro', 'window')"
    rows = engine._all(
        f"SELECT DISTINCT function_name FROM duckdb_functions() WHERE function_type IN {kinds}"
    )
    return {str(name).lower() for (name,) in rows}


def test_each_function_of_the_engine_has_been_looked_at(engine: SqlEngine) -> None:
    new = {name for name in catalogue(engine) - COMPUTING - REFUSED if not name.startswith(_FAMILIES)}
    assert not new, "look at each: it is refused until it stands in sql/functions.py"


def test_no_kind_of_function_is_left_out(engine: SqlEngine) -> None:
    rows = engine._all("SELECT DISTINCT function_type FROM duckdb_functions()")
    kinds = {"scalar", "aggregate", "macro", "window", "pragma", "table", "table_macro"}
    assert {str(kind) for (kind,) in rows} <= kinds


def test_what_may_be_called_is_there(engine: SqlEngine) -> None:
    assert COMPUTING - catalogue(engine) == _OF_THE_PARSER
    assert not COMPUTING & REFUSED


@pytest.mark.parametrize("name", ["current_setting", "json_serialize_plan", "made_by_a_later_version"])
def test_what_is_not_on_the_list_is_refused(engine: SqlEngine, name: str) -> None:
    for text in (f"SELECT {name}('x')", f"SELECT main.{name}('x')", f"FROM t WHERE k = {name.upper()}('x')"):
        with pytest.raises(StatementError, match=rf"cannot call {name}\(\)"):
            read_statement(engine.parse(text))


STATEMENTS = (
    "a + b - c * d / e % f // g, a || b, a AND NOT b OR c, a ** 2, @a, ~b, a & b | c, a << 1 >> 2, -a",
    "a LIKE 'x', a NOT LIKE 'x' ESCAPE '!', a ILIKE 'x', a NOT ILIKE 'x', a SIMILAR TO 'x', a GLOB 'x'",
    "a BETWEEN 1 AND 2, a IN (1, 2), a IS NULL, a IS DISTINCT FROM b, a ^@ 'x', a::INT",
    "TRY_CAST(a AS INT), CASE WHEN a THEN b ELSE c END, coalesce(a, b), nullif(a, b), if(a, b, c)",
    "a ->> 'x', a -> 'x', [1, 2], {'a': 1}, MAP {1: 2}, a[1], a[1:2], s.x, [x + 1 FOR x IN a IF x > 1]",
    "list_transform(a, x -> x), EXTRACT(hour FROM a), a AT TIME ZONE 'UTC', INTERVAL (a) HOUR",
    "count(*), count(DISTINCT a), sum(a) FILTER (b > 1), string_agg(a, ',' ORDER BY b), first(a)",
    "row_number() OVER (ORDER BY a), lag(a, 1) OVER w, sum(a) OVER () FROM t WINDOW w AS (ORDER BY b)",
    "a, GROUPING(a) FROM t GROUP BY ROLLUP (a)",
    "unnest(a), UNNEST([1, 2]), substring(a FROM 1 FOR 2), position('a' IN b), trim(BOTH 'x' FROM a)",
    "overlay(a PLACING 'x' FROM 1), a COLLATE NOCASE, DATE '2020-01-01' + INTERVAL 1 DAY",
    "COLUMNS('a.*') FROM t",
    "* EXCLUDE (a) REPLACE (b + 1 AS b) FROM t",
    "* FROM t UNPIVOT (v FOR n IN (a, b))",
    "* FROM t PIVOT (sum(b) FOR a IN (1, 2))",
    "a.lower().upper() FROM t",
    "(a, b) = (1, 2), ROW(1, 2), struct_pack(x := 1), a = ANY (SELECT 1), EXISTS (SELECT 1)",
    "current_date, current_timestamp, localtime, localtimestamp, now(), today()",
)


@pytest.mark.parametrize("text", STATEMENTS)
def test_what_sql_writes_without_names_may_be_called(engine: SqlEngine, text: str) -> None:
    read_statement(engine.parse(f"SELECT {text}"))
