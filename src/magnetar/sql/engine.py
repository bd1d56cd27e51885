"""DuckDB, shut in: it reads what it is given, and nothing else.

Three walls, each enough by itself against reading files or the network by a query:

1. the statement's tree has only topics and functions that compute (`statements.py`);
2. the engine's access to files is off, but for the very files of history that the query reads;
3. settings are locked, extensions are neither loaded nor fetched, and variables of Python are not found.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final, cast

from magnetar.runtime.threads import beside
from magnetar.sql.bounds import KEY, TIME, Condition
from magnetar.sql.engine_tree import Node
from magnetar.sql.errors import (
    QueryLimitError,
    QueryStoppedError,
    SqlPackagesError,
    StatementError,
    TooDeepError,
)
from magnetar.sql.limits import QueryLimits
from magnetar.sql.spill_folders import SpillFolder
from magnetar.sql.table_names import always_quoted, text_literal

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa
    from duckdb import sqltypes

_INTEGERS: Final = frozenset(
    ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT", "HUGEINT")
)


_ROWS: Final = 32_768
"""Rows of a batch when each has few bytes."""
_ROWS_OF_TEXTS: Final = 64
"""Rows of a batch when one may have megabytes: the engine counts rows only, and makes a batch whole. A batch
of so few costs a few hundredths of a millisecond; `queries.py` puts small ones together."""
_FIXED: Final = frozenset(
    (
        *(f"{name}int" for name in ("tiny", "small", "big", "huge", "utiny", "usmall", "ubig")),
        *("boolean", "integer", "uinteger", "float", "double", "decimal", "date", "time", "time_ns", "uuid"),
        *("timestamp", "timestamp_s", "timestamp_ms", "timestamp_ns", "timestamp with time zone", "null"),
        *("interval", "enum"),
    )
)
_NOT_IN_ARROW: Final = frozenset(
    ("uhugeint", "bignum", "bit", "time with time zone", "variant", "geometry", "type")
)
"""Types that Arrow has not, or not for all of their values: the engine would give other values, or bytes that
only it can read."""


def arrow_type(kind: sqltypes.DuckDBPyType) -> str:
    """The type in SQL of a result's column in a form that Arrow can hold; "": it can as it is."""
    if kind.id in _NOT_IN_ARROW:
        return "VARCHAR"
    if kind.id not in ("list", "array", "struct", "map", "union", "tuple"):
        return ""
    # A union has its tag as a first child, without a name.
    inside = [
        (name, cast("sqltypes.DuckDBPyType", child))
        for name, child in kind.children
        if name != "size" and (name or kind.id == "tuple")
    ]
    held = [arrow_type(each) for _, each in inside]
    if not any(held):
        return ""
    shown = [text or str(each) for text, (_, each) in zip(held, inside, strict=True)]
    if kind.id in ("list", "array"):
        return f"{shown[0]}[{dict(kind.children).get('size', '')}]"
    if kind.id in ("struct", "union"):
        shown = [f"{always_quoted(name)} {text}" for text, (name, _) in zip(shown, inside, strict=True)]
    return f"{kind.id.upper()}({', '.join(shown)})"


class SqlEngine:
    """One connection to an engine of its own, for one query after the other. Not thread-safe, but for
    `stop`."""

    def __init__(self, limits: QueryLimits) -> None:
        """Raises SqlPackagesError, QueryLimitError."""
        try:
            import duckdb
        except ImportError as error:
            raise SqlPackagesError("duckdb") from error
        self._limits = limits
        self._errors = duckdb
        # A folder of its own, which only its user can read: it may hold messages, and the engine has access
        # to all that is in it.
        try:
            self._folder = SpillFolder(limits.spill_folder)
        except OSError as error:
            raise QueryLimitError(
                f"no folder can be made for what does not fit into the memory: {error}"
            ) from error
        self._connection: duckdb.DuckDBPyConnection = duckdb.connect(
            ":memory:",
            config={
                "memory_limit": f"{limits.memory_mb}MB",
                "temp_directory": self._folder.path,
                "max_temp_directory_size": f"{limits.spill_mb}MB",
                "autoinstall_known_extensions": "false",
                "autoload_known_extensions": "false",
                "allow_community_extensions": "false",
                "python_enable_replacements": "false",
                "preserve_insertion_order": "false",
                **({"threads": str(limits.threads)} if limits.threads else {}),
            },
        )
        self._connection.execute("SET TimeZone = 'UTC'")
        self._scan_error: Exception | None = None
        self._stopped = False

    @property
    def name(self) -> str:
        """Name and version."""
        return f"DuckDB {self._errors.__version__}"

    def close(self) -> None:
        """Frees all that it holds."""
        self._connection.close()
        self._folder.close()

    def stop(self) -> None:
        """Ends a running query, from another thread or a handler of a signal."""
        self._stopped = True
        self._connection.interrupt()

    def failed(self, error: Exception) -> None:
        """Notes the error of a scan, which ends the query."""
        self._scan_error = self._scan_error or error

    # ------------------------------------------------------------ statements

    def parse(self, text: str) -> Node:
        """The tree of a statement. Raises StatementError."""
        if "\0" in text:
            # The engine's parser would leave out what follows it in a text, and find other rows.
            raise StatementError("the statement has a NUL character: write chr(0)")
        rows = self._all("SELECT json_serialize_sql(?::VARCHAR)", [text])
        try:
            document: Node = json.loads(str(rows[0][0]))
        except RecursionError as error:
            raise TooDeepError from error
        if document.get("error"):
            message = str(document.get("error_message", "not understood"))
            raise StatementError(" ".join(message.split()))
        return document

    def text_of(self, document: Node) -> str:
        """The statement of a tree. Raises StatementError."""
        return str(self._all("SELECT json_deserialize_sql(?::JSON)", [json.dumps(document)])[0][0])

    def values_of(self, condition: Condition) -> list[int | bytes | None]:
        """The values of a condition's operands: milliseconds, bytes of keys, or numbers. None for one that is
        null or of a type that cannot be compared. Raises StatementError."""
        return [self._value_of(condition.column, dict(operand)) for operand in condition.operands]

    def _value_of(self, column: str, expression: Node) -> int | bytes | None:
        template = self.parse("SELECT 1")
        template["statements"][0]["node"]["select_list"] = [{**expression, "alias": ""}]
        kinds = {TIME: "TIMESTAMP WITH TIME ZONE", KEY: "BLOB"}
        # A value of another type is null, and no error: that would end the transaction, and with it `now()`.
        shown = f"TRY_CAST(v AS {kinds.get(column, 'HUGEINT')})"
        shown = f"epoch_ms({shown})" if column == TIME else shown
        statement = f"SELECT {shown}, typeof(v) FROM ({self.text_of(template)}) AS t(v)"
        value, kind = self._all(statement)[0]
        if column not in kinds and kind not in _INTEGERS:
            return None
        return value if isinstance(value, int | bytes) else None

    def now_ms(self) -> int:
        """The time of the query, Unix ms: that of `now()`."""
        return cast(int, self._all("SELECT epoch_ms(now())")[0][0])

    # ------------------------------------------------------------ queries

    def begin(self) -> None:
        """Begins a query: `now()` is the same until `end`."""
        self._scan_error = None
        self._connection.begin()

    def end(self) -> None:
        """Ends a query, whatever became of it."""
        try:
            self._connection.rollback()
        except self._errors.Error:
            # There is none any more: an error has ended it.
            return

    def shut_in(self, files: Iterable[str]) -> None:
        """Leaves the engine no more than these files, for the rest of its life."""
        listed = ", ".join(map(text_literal, files))
        self._run(f"SET allowed_paths = [{listed}]")
        self._run("SET enable_external_access = false")
        self._run("SET lock_configuration = true")

    def add_rows(self, name: str, rows: object) -> None:
        """Adds a table of rows that Arrow gives."""
        self._connection.register(name, rows)

    def add_table(self, name: str, selects: Sequence[str]) -> None:
        """Adds a table that is all rows of these statements."""
        self._run(f"CREATE OR REPLACE TEMP VIEW {name} AS {' UNION ALL '.join(selects)}")

    def query(self, statement: str) -> pa.RecordBatchReader:
        """Starts a statement; its rows come as they are made, in batches of bounded size. Errors are raised
        here and by the reader's methods; `translated` makes those of this project of them."""
        self._check_stopped()
        found = self._carried(statement)
        has_texts = not all(kind.id in _FIXED for kind in found.types)
        return found.to_arrow_reader(_ROWS_OF_TEXTS if has_texts else _ROWS)

    def columns(self, statement: str) -> pa.Schema:
        """The columns of a statement's rows, of which none is made."""
        self._check_stopped()
        return self._carried(statement).limit(0).to_arrow_reader(1).schema

    def _carried(self, statement: str) -> duckdb.DuckDBPyRelation:
        """The rows of a statement, with texts in place of what Arrow cannot hold."""
        found = self._connection.sql(statement)
        kinds = list(map(arrow_type, found.types))
        if not any(kinds):
            return found
        names = [f"c{number}" for number in range(len(kinds))]
        shown = ", ".join(
            f"{f'CAST({name} AS {kind})' if kind else name} AS {always_quoted(column)}"
            for name, kind, column in zip(names, kinds, found.columns, strict=True)
        )
        return self._connection.sql(f"SELECT {shown} FROM ({statement}) AS t({', '.join(names)})")

    def explain(self, statement: str) -> str:
        """The engine's plan of a statement."""
        return str(self._all(f"EXPLAIN {statement}")[0][1])

    def is_about_files(self, error: Exception) -> bool:
        """Whether the engine could not read a file."""
        # For a file that is gone it looks for a folder of that name, and may not.
        kinds = (self._errors.IOException, self._errors.PermissionException)
        return isinstance(error, kinds) and self._scan_error is None

    def translated(self, error: Exception) -> Exception:
        """An error of the engine as one of this project; others as they are."""
        if self._scan_error is not None:
            return self._scan_error
        if self._stopped or isinstance(error, self._errors.InterruptException):
            return QueryStoppedError()
        text = " ".join(str(error).split())
        if isinstance(error, self._errors.OutOfMemoryException):
            return QueryLimitError(
                f"the query needs more than {self._limits.memory_mb} MB of memory and"
                f" {self._limits.spill_mb} MB of disk: {text}"
            )
        return StatementError(text) if isinstance(error, self._errors.Error) else error

    def _run(self, statement: str) -> None:
        self._connection.execute(statement)

    def _check_stopped(self) -> None:
        """The engine forgets a stop that comes between two statements of a query."""
        if self._stopped:
            raise QueryStoppedError

    def _all(self, statement: str, values: Sequence[object] = ()) -> list[tuple[object, ...]]:
        self._check_stopped()
        try:
            return self._connection.execute(statement, list(values)).fetchall()
        except self._errors.Error as error:
            raise StatementError(" ".join(str(error).split())) from error


class Deadline:
    """Stops a query of an engine after a time."""

    def __init__(self, engine: SqlEngine, seconds: float | None) -> None:
        self.passed = False
        self._engine = engine
        self._seconds = seconds
        self._done = threading.Event()

    def _wait(self) -> None:
        if not self._done.wait(self._seconds):
            self.passed = True
            self._engine.stop()

    def __enter__(self) -> Deadline:
        if self._seconds is not None:
            beside(self._wait, name="deadline of a query")
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
