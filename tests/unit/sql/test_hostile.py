"""Queries that try to reach beyond topics: refused by the statement's tree, and by the engine alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from magnetar.sql.engine import SqlEngine
from magnetar.sql.errors import QueryLimitError, SqlError
from magnetar.sql.limits import QueryLimits
from magnetar.sql.statements import read_statement

SECRET = "the secret in a file"


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    path = tmp_path / "secret.csv"
    path.write_text(SECRET)
    return path


QUERIES = (
    "SELECT * FROM '{path}'",
    "SELECT * FROM read_csv('{path}')",
    "SELECT * FROM read_text('{path}')",
    "SELECT * FROM read_blob('{path}')",
    "SELECT * FROM read_json('{path}')",
    "SELECT * FROM read_parquet('{path}')",
    "SELECT * FROM parquet_metadata('{path}')",
    "SELECT * FROM glob('{path}')",
    "SELECT * FROM sniff_csv('{path}')",
    "SELECT (SELECT content FROM read_text('{path}'))",
    "WITH x AS (FROM read_text('{path}')) FROM x",
    "SELECT 1 FROM range(1) WHERE EXISTS (FROM read_text('{path}'))",
    "SELECT * FROM query('FROM read_text(''{path}'')')",
    "SELECT * FROM query_table('{path}')",
    "SELECT * FROM json_execute_serialized_sql(json_serialize_sql('FROM read_text(''{path}'')'))",
    "PIVOT (FROM read_text('{path}')) ON filename USING max(content)",
    "SUMMARIZE FROM read_text('{path}')",
    "DESCRIBE FROM read_text('{path}')",
    "SELECT * FROM 'https://127.0.0.1:1/x.parquet'",
    "SELECT * FROM read_parquet('s3://bucket/x.parquet')",
    "SELECT * FROM secret_of_python",
    "SELECT * FROM arrow_scan(1::UBIGINT, 2::UBIGINT, 3::UBIGINT)",
    "SELECT * FROM pandas_scan(1)",
    "SELECT * FROM sqlite_scan('{path}', 'x')",
    "SELECT * FROM duckdb_settings()",
    "SELECT * FROM duckdb_secrets()",
    "SELECT * FROM duckdb_views()",
    "SELECT * FROM pg_settings()",
    "SELECT * FROM information_schema.tables",
    "SELECT * FROM pragma_database_list()",
    "SELECT json_serialize_plan('FROM read_csv(''{path}'')')",
    "SELECT 1 FROM x WHERE ledger_id = length(json_serialize_plan('FROM read_csv(''{path}'')')::VARCHAR)",
    "SELECT current_setting('temp_directory')",
    "SELECT getenv('HOME')",
    "SELECT getvariable('x')",
    "COPY (SELECT 1) TO '{path}.out'",
    "COPY x FROM '{path}'",
    "EXPORT DATABASE '{path}.out'",
    "ATTACH '{path}.db' AS other",
    "INSTALL httpfs",
    "LOAD '{path}'",
    "SET enable_external_access = true",
    "SET memory_limit = '100GB'",
    "PRAGMA database_list",
    "CALL pragma_version()",
    "CREATE TABLE t AS FROM read_text('{path}')",
    "CREATE SECRET s (TYPE s3)",
    "SELECT 1; COPY (SELECT 1) TO '{path}.out'",
    "EXPLAIN ANALYZE COPY (SELECT 1) TO '{path}.out'",
)


@pytest.mark.parametrize("text", QUERIES)
def test_the_tree_refuses(engine: SqlEngine, secret: Path, text: str) -> None:
    secret_of_python = SECRET  # noqa: F841  # what the engine must not find
    try:
        statement = read_statement(engine.parse(text.format(path=secret)))
    except SqlError:
        return
    # A name that a topic may have: it stands for that topic, and nothing else.
    assert [ref.name for ref in statement.refs] == ["topic_0"]
    with pytest.raises(Exception, match="topic_0 does not exist"):
        engine.query(engine.text_of(statement.document))
    assert not list(secret.parent.glob("*.out"))


REACHING = [text for text in QUERIES if "{path}" in text or "SET " in text or "INSTALL" in text]


@pytest.mark.parametrize("text", REACHING)
def test_the_engine_alone_refuses(engine: SqlEngine, secret: Path, text: str) -> None:
    """The second wall: no list of functions is asked."""
    engine.shut_in([])
    secret_of_python = SECRET  # noqa: F841
    try:
        found = str(engine._connection.execute(text.format(path=secret)).fetchall())
    except Exception as error:  # noqa: BLE001  # whatever class the engine has for it
        found = str(error)
    assert SECRET not in found
    assert not list(secret.parent.glob("*.out*"))
    assert engine._connection.execute("SELECT current_setting('enable_external_access')").fetchone() == (
        False,
    )


def test_only_the_files_of_the_query(engine: SqlEngine, tmp_path: Path) -> None:
    for name in ("mine", "other"):
        engine._connection.execute(f"COPY (SELECT 1 AS one) TO '{tmp_path / name}.parquet'")
    engine.shut_in([str(tmp_path / "mine.parquet")])
    assert engine._connection.execute(f"FROM '{tmp_path / 'mine'}.parquet'").fetchall() == [(1,)]
    for path in ("other.parquet", "*.parquet", "../" + tmp_path.name + "/other.parquet"):
        with pytest.raises(Exception, match=r"(?i)permission|disabled"):
            engine._connection.execute(f"FROM '{tmp_path / path}'")


def test_settings_stay(engine: SqlEngine) -> None:
    engine.shut_in([])
    for text in ("SET memory_limit = '9GB'", "SET allowed_paths = ['/']", "RESET lock_configuration"):
        with pytest.raises(Exception, match=r"lock|chang|disabled"):
            engine._connection.execute(text)


def test_a_nul_character_does_not_shorten_a_text(engine: SqlEngine) -> None:
    with pytest.raises(SqlError, match="NUL"):
        engine.parse("SELECT * FROM x WHERE key = 'a\0b'")


def test_a_disk_without_room_for_a_folder_is_an_error_that_says_so(tmp_path: Path) -> None:
    with pytest.raises(QueryLimitError, match="no folder can be made"):
        SqlEngine(QueryLimits(spill_folder=str(tmp_path / "nothing")))
