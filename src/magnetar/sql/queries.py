"""One query, from its text to its rows."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from magnetar.base.names import TopicName
from magnetar.client.client import Client
from magnetar.client.errors import RefusedError
from magnetar.sql.as_of import with_at_clauses
from magnetar.sql.bounds import TIME, Bounds, Condition
from magnetar.sql.engine import Deadline, SqlEngine
from magnetar.sql.engine_tree import Node
from magnetar.sql.errors import QueryLimitError, RowsGoneError, UnknownTopicError
from magnetar.sql.limits import QueryLimits
from magnetar.sql.native_files import is_plain_path, reads_values, selects
from magnetar.sql.past_states import TimeAsked, log_at
from magnetar.sql.plans import FilePart, PartitionPlan, ReadCounts, plan_partition
from magnetar.sql.statements import Statement, TopicRef, read_statement
from magnetar.sql.table_names import table_of
from magnetar.sql.topic_tables import TopicTable, table_of_topic
from magnetar.tables.history import local_path
from magnetar.tables.history_files import FileFacts, facts_of
from magnetar.tables.ledgers import KnownLog
from magnetar.tables.stretches import HistoryFile
from magnetar.tables.topic_cluster import TopicCluster
from magnetar.wire import pulsar_pb2 as pb

if TYPE_CHECKING:
    import pyarrow as pa

BATCH_ROWS_MAX: Final = 32_768
"""Most rows of a batch of the result."""
BATCH_BYTES: Final = 1 << 20
"""Bytes of a batch of the result: small ones are put together until they have as many."""


@dataclass(slots=True)
class QueryReport:
    """What a query read, and how."""

    engine: str
    counts: ReadCounts = field(default_factory=ReadCounts)
    topics: list[str] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)
    rows: int = 0
    """Rows of the result so far."""
    seconds: float = 0.0

    def lines(self) -> list[str]:
        """The report for people, one fact a line."""
        counts = self.counts
        read = []
        if counts.files or counts.skipped_files:
            read.append(
                f"{counts.files} of {counts.files + counts.skipped_files} files of history"
                f" ({_mib(counts.file_bytes)} of {_mib(counts.file_bytes + counts.skipped_bytes)}; they have"
                f" {counts.file_rows:,} rows)"
            )
        if counts.entries:
            read.append(f"{counts.entries:,} entries from brokers ({_mib(counts.entry_bytes)})")
        if counts.decoded_rows:
            read.append(f"{counts.decoded_rows:,} rows decoded")
        if counts.skipped_partitions:
            read.append(f"{counts.skipped_partitions} partitions skipped")
        lines = [
            f"{self.engine}: {self.rows:,} rows in {self.seconds:.2f} s; read: {', '.join(read) or 'nothing'}"
        ]
        if counts.broken_values:
            lines.append(f"{counts.broken_values:,} values are not what their schema says: they are null")
        if counts.hidden_entries:
            lines.append(f"{counts.hidden_entries:,} entries cannot be opened: they have no rows")
        return lines + self.remarks


def _mib(count: int) -> str:
    return f"{count / (1 << 20):,.1f} MiB"


class Query:
    """A statement over topics: planned, and then read once."""

    def __init__(
        self, text: str, connect: Callable[[], Client], limits: QueryLimits, *, admin_given: bool = False
    ) -> None:
        """Reads the statement, which computes nothing. `connect`: opens a client of the cluster.
        `admin_given`: see `TopicCluster`.

        Raises SqlError.
        """
        self._began = time.monotonic()
        self._connect = connect
        self._admin_given = admin_given
        self._limits = limits
        self._text: str | None = None
        """The statement for the engine; None before `plan`."""
        self._engine = SqlEngine(limits)
        self.report = QueryReport(self._engine.name)
        self._files: dict[str, TopicName] = {}
        """The files that the engine reads by itself, by path."""
        try:
            self._engine.begin()
            self.statement = read_statement(self._engine.parse(with_at_clauses(text)))
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Ends the query."""
        self._engine.end()
        self._engine.close()

    def stop(self) -> None:
        """Ends a running query, from another thread or a handler of a signal; it raises QueryStoppedError.

        An expression of constants is computed to its end: the engine does not listen meanwhile.
        """
        self._engine.stop()

    def __enter__(self) -> Query:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def topics(self) -> tuple[TopicName, ...]:
        """The topics that the statement reads, each once."""
        return tuple(dict.fromkeys(ref.topic for ref in self.statement.refs))

    # ------------------------------------------------------------ rows

    def plan(self) -> None:
        """Takes the snapshot of positions, unless it is taken. The other methods call it.

        Raises SqlError, ClientError.
        """
        if self._text is not None:
            return
        deadline = self._deadline()
        with deadline:
            try:
                self._plan(self.statement)
                self._text = self._engine.text_of(self.statement.document)
            except Exception as error:
                raise self._told(error, deadline) from error

    def rows(self) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
        """The result: its columns, and its rows as they are made.

        Raises SqlError, ClientError, also by the iterator.
        """
        self.plan()
        assert self._text is not None, "it is planned"
        deadline = self._deadline()
        with deadline:
            try:
                reader = self._engine.query(self._text)
            except Exception as error:
                raise self._told(error, deadline) from error
        return reader.schema, gathered(self._batches(reader))

    def columns(self) -> pa.Schema:
        """The columns of the result; no row is read. Raises SqlError, ClientError."""
        self.plan()
        assert self._text is not None, "it is planned"
        deadline = self._deadline()
        with deadline:
            try:
                return self._engine.columns(self._text)
            except Exception as error:
                raise self._told(error, deadline) from error

    def _deadline(self) -> Deadline:
        """Stops the engine when the time of the whole query is over."""
        most = self._limits.seconds_max
        left = None if most is None else max(0.001, most - (time.monotonic() - self._began))
        return Deadline(self._engine, left)

    def _batches(self, reader: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
        deadline = self._deadline()
        with deadline:
            while True:
                try:
                    batch = reader.read_next_batch()
                except StopIteration:
                    # All rows were read: the report is completed below.
                    break
                except Exception as error:
                    raise self._told(error, deadline) from error
                self.report.rows += batch.num_rows
                most = self._limits.rows_max
                if most is not None and self.report.rows > most:
                    raise QueryLimitError(
                        f"the result has more than {most:,} rows: add a LIMIT, or aggregate"
                    )
                yield batch
        self.report.seconds = time.monotonic() - self._began

    def _told(self, error: Exception, deadline: Deadline | None = None) -> Exception:
        if deadline is not None and deadline.passed:
            return QueryLimitError(f"the query took longer than {self._limits.seconds_max} s")
        if self._engine.is_about_files(error):
            for path, topic in self._files.items():
                if not os.path.exists(path):
                    gone = (
                        f"the file {path} of its history is gone: it was deleted, or merged into another one"
                    )
                    return RowsGoneError(str(topic), "the beginning", gone)
        return self._engine.translated(error)

    def explain(self) -> str:
        """The engine's plan, with the names of topics in place of the engine's names."""
        self.plan()
        assert self._text is not None, "it is planned"
        text = self._engine.explain(self._text)
        for ref in self.statement.refs:
            text = text.replace(ref.name, table_of(ref.topic)[: len(ref.name)].ljust(len(ref.name)))
        return text

    # ------------------------------------------------------------ planning

    def _plan(self, statement: Statement) -> None:
        client = self._connect()
        cluster = TopicCluster(client, admin_given=self._admin_given)
        try:
            tables: dict[TopicName, TopicTable] = {}
            logs: dict[TopicName, dict[TopicName, KnownLog]] = {}
            past: dict[str, dict[TopicName, KnownLog]] = {}
            for ref in statement.refs:
                if ref.topic not in tables:
                    logs[ref.topic] = _logs(cluster, ref.topic)
                    tables[ref.topic] = table_of_topic(client, ref.topic)
                if ref.as_of is not None:
                    past[ref.name] = self._logs_at(client, ref.as_of, logs[ref.topic])
        finally:
            cluster.close()
        for table in tables.values():
            self.report.topics.append(str(table.topic))
            if table.remark:
                self.report.remarks.append(f"values of {table.topic} are bytes: {table.remark}")
        planned = []
        for ref in statement.refs:
            bounds = self._bounds(ref)
            table = tables[ref.topic]
            seen = past.get(ref.name) or logs[ref.topic]
            planned.append((ref, bounds, table, self._partitions(seen, table, bounds)))
        for *_, plans in planned:
            self._files |= {_path(part): plan.topic for plan in plans for part in plan.files}
        self._engine.shut_in(self._files)
        for ref, bounds, table, plans in planned:
            self._add(ref, bounds, table, plans)

    def _logs_at(
        self, client: Client, time: Node, logs: dict[TopicName, KnownLog]
    ) -> dict[TopicName, KnownLog]:
        """The logs as they were at a time of the statement. Raises StatementError, ClientError."""
        (time_ms,) = self._engine.values_of(Condition(TIME, "<=", (time,)))
        asked = TimeAsked(time_ms if isinstance(time_ms, int) else None, self._engine.now_ms())
        found = {topic: log_at(client, topic, log, asked) for topic, log in logs.items()}
        self.report.remarks += [
            f"the first {log.first_index:,} messages of {topic} were removed: its state does not have them"
            for topic, log in logs.items()
            if log.first_index
        ]
        return found

    def _bounds(self, ref: TopicRef) -> Bounds:
        bounds = Bounds()
        for condition in ref.conditions:
            values = self._engine.values_of(condition)
            bounds = bounds.with_condition(condition.column, condition.operator, values)
        return bounds

    def _partitions(
        self, logs: dict[TopicName, KnownLog], table: TopicTable, bounds: Bounds
    ) -> list[PartitionPlan]:
        names = self.statement.columns

        def is_native(file: HistoryFile, facts: FileFacts) -> bool:
            path = local_path(file)
            if path is None or not is_plain_path(path) or not facts.traits.is_plain:
                return False
            # By its index, a look-up of a key opens only the row groups that have it.
            return bounds.keys is None and (not table.uses_values(names) or reads_values(table, facts, names))

        plans = [
            plan_partition(
                topic, log, bounds, is_native, lambda file: facts_of(file, bounds.keys), self.report.counts
            )
            for topic, log in logs.items()
        ]
        return [plan for plan in plans if plan is not None]

    def _add(self, ref: TopicRef, bounds: Bounds, table: TopicTable, plans: list[PartitionPlan]) -> None:
        from magnetar.sql.scans import RowsDataset, TopicRows

        parts = []
        for plan in plans:
            if plan.files:
                parts += selects(plan.topic, table, plan.files, _path, self.statement.columns)
        rest = [plan for plan in plans if plan.stretches]
        if rest or not parts:
            rows = TopicRows(self._connect, table, rest, bounds.rows, self.report.counts)
            dataset = RowsDataset(rows, table.columns, self._engine.failed)
            self._engine.add_rows(f"{ref.name}_rows", dataset)
            parts.append(f"SELECT * FROM {ref.name}_rows")
        self._engine.add_table(ref.name, parts)


def gathered(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The same rows in fewer batches. What came before an error comes before it here too."""
    waiting: list[pa.RecordBatch] = []
    rows = size = 0
    try:
        for batch in batches:
            waiting.append(batch)
            rows += batch.num_rows
            size += batch.get_total_buffer_size()  # A tenth of the time that `nbytes` takes.
            if size >= BATCH_BYTES or rows + batch.num_rows > BATCH_ROWS_MAX:
                yield _one(waiting)
                waiting, rows, size = [], 0, 0
    except Exception:
        if waiting:
            yield _one(waiting)
        raise
    if waiting:
        yield _one(waiting)


def _one(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    import pyarrow as pa

    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)


def _logs(cluster: TopicCluster, topic: TopicName) -> dict[TopicName, KnownLog]:
    """The partitions of a topic and their logs, as they are now. Raises UnknownTopicError, ClientError."""
    try:
        return {each: cluster.log_state(each) for each in cluster.partitions_of(topic)}
    except RefusedError as error:
        if error.code == pb.ServerError.TopicNotFound:
            raise UnknownTopicError(table_of(topic), "SHOW TOPICS lists those that are there") from error
        raise


def _path(part: FilePart) -> str:
    path = local_path(part.file)
    assert path is not None, "only files of this machine are read by the engine"
    return path
