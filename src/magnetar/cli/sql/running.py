"""Runs statements of `magnetar sql`: those of the engine, and those about topics."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

import click

from magnetar.cli.sql.interruptible import Interruptible
from magnetar.cli.sql.results import write_result
from magnetar.sql.inserting import Insert, insert_of

if TYPE_CHECKING:
    import pyarrow as pa

    from magnetar.cli.caller import Caller
    from magnetar.sql.limits import QueryLimits
    from magnetar.sql.queries import Query

_SHOW: Final = re.compile(r"\s*show\s+(?:topics|tables)(?:\s+(?:from|in)\s+(.+?))?\s*;?\s*", re.I | re.S)
_DESCRIBE: Final = re.compile(r"\s*(?:describe|desc)\s+(?!select\b|with\b)(.+?)\s*;?\s*", re.I | re.S)
_EXPLAIN: Final = re.compile(r"\s*explain\s+(.+)", re.I | re.S)


class Runner:
    """Runs one statement after the other."""

    def __init__(self, caller: Caller, limits: QueryLimits, *, quiet: bool) -> None:
        self._caller = caller
        self._limits = limits
        self._quiet = quiet
        self.abandoned = False
        """Whether the engine still computes for a query that was interrupted."""

    def run(self, text: str, output: str) -> None:
        """Runs a statement and prints its result. Raises SqlError, ClientError, KeyboardInterrupt."""
        if found := _SHOW.fullmatch(text):
            self._show_topics(found[1], output)
        elif found := _DESCRIBE.fullmatch(text):
            self._describe(found[1], output)
        elif found := _EXPLAIN.fullmatch(text):
            self._explain(found[1])
        elif (insert := insert_of(text)) is not None:
            self._insert(insert)
        else:
            self._query(text, output)

    def _query(self, text: str, output: str) -> None:
        with self._running(text) as (query, beside):
            schema, batches = beside.call(query.rows)
            write_result(schema, _each(batches, beside), output, sys.stdout)
            sys.stdout.flush()
        self._tell(query.report.lines())

    def _insert(self, insert: Insert) -> None:
        """Publishes a result once all of it is there: a query that fails publishes nothing."""
        from magnetar.cli.sql.inserted import Inserted

        with self._running(insert.query) as (query, beside), Inserted(self._limits.spill_folder) as inserted:
            schema, batches = beside.call(query.rows)
            inserted.keep(schema, _each(batches, beside))
            with self._caller.client() as client:
                count = inserted.publish(client, insert.topic)
        self._tell([*query.report.lines(), f"{count:,} messages published to {insert.topic}"])

    def _explain(self, text: str) -> None:
        with self._running(text) as (query, beside):
            click.echo(beside.call(query.explain))
        self._tell(query.report.lines()[:1])

    @contextmanager
    def _running(self, text: str) -> Iterator[tuple[Query, Interruptible]]:
        """Within it, Ctrl-C ends the query, and is then raised as KeyboardInterrupt."""
        query = self._made(text)
        beside = Interruptible(query.stop)
        try:
            with beside:
                yield query, beside
        finally:
            self.abandoned |= beside.abandoned
            beside.finish(query.close)

    def topics(self, where: str = "") -> list[str]:
        """The tables of a namespace; empty: public/default. Raises SqlError, ClientError."""
        from magnetar.sql.catalog import topics_of

        with self._caller.client() as client:
            return topics_of(client, where)

    def columns(self, table: str) -> list[str]:
        """The columns of a table. Raises SqlError, ClientError."""
        return [name for name, _ in self._described(table)]

    def _described(self, table: str) -> list[tuple[str, str]]:
        from magnetar.sql.catalog import columns_of

        with self._caller.client() as client:
            return columns_of(client, table)

    def _show_topics(self, where: str | None, output: str) -> None:
        _write([{"table": each} for each in self.topics(where or "")], ("table",), output)

    def _describe(self, name: str, output: str) -> None:
        rows = [{"column": column, "type": kind} for column, kind in self._described(name)]
        _write(rows, ("column", "type"), output)

    def _made(self, text: str) -> Query:
        from magnetar.sql.queries import Query

        return Query(
            text.strip().rstrip(";"),
            self._caller.client,
            self._limits,
            admin_given=bool(self._caller.place.admin_url),
        )

    def _tell(self, lines: list[str]) -> None:
        if not self._quiet:
            for line in lines:
                click.echo(line, err=True)


def _write(rows: list[dict[str, str]], names: Sequence[str], output: str) -> None:
    import pyarrow as pa

    schema = pa.schema([(name, pa.string()) for name in names])
    write_result(schema, iter([pa.RecordBatch.from_pylist(rows, schema)]), output, sys.stdout)


def _each(batches: Iterator[pa.RecordBatch], beside: Interruptible) -> Iterator[pa.RecordBatch]:
    while (batch := beside.call(lambda: next(batches, None))) is not None:
        yield batch
