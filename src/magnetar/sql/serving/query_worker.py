"""The process of one query: `python -m magnetar.sql.serving.query_worker`.

It loads the engine, waits for a question on standard input, answers it on standard output
(`query_frames.py`), and ends. It ends too when its input ends, as it does with the broker.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Final

from magnetar.base.errors import MagnetarError
from magnetar.history.history_worker import NoPandas
from magnetar.runtime.threads import beside
from magnetar.sql.errors import QueryLimitError, StatementError
from magnetar.sql.serving.query_frames import (
    ARROW,
    BODY_BYTES_MAX,
    DATA,
    DATA_BYTES,
    END,
    ERROR,
    FLIGHT,
    HEAD,
    READY,
    REASON_CHARS_MAX,
    SCHEMA,
    TOPICS,
    TOPICS_MAX,
    WorkerQuestion,
    WorkerReading,
    frame_of,
)
from magnetar.sql.spill_folders import delete_left_behind

if TYPE_CHECKING:
    import pyarrow as pa

    from magnetar.client.client import Client
    from magnetar.sql.queries import Query

NICE: Final = 5
"""Nice value of the process: the broker's work goes first."""
_THREADS: Final = 2
"""Threads of the engine: two queries leave cores for the broker."""
_RETRY_S: Final = 10.0
"""Seconds for which a broker that does not answer is asked again."""
_UNPROCESSABLE: Final = 422
_SAID_MAX: Final = 2
"""Lines of the broker that are read ahead: it says no more."""
_READ_BYTES: Final = 64 << 10
_NAMES: Final = ("catalogs", "schemas", "tables")
"""Tables of names, which the broker gives."""
_LINES_MAX: Final = 50
"""Lines of a report that are told."""

Say = Callable[[bytes, bytes], None]
"""Writes a frame: kind, body."""


def answer(lines: Iterator[bytes], say: Say) -> None:
    """Answers one question; says an error instead of raising it."""
    try:
        line = next(lines, b"")
        if line:
            question = WorkerQuestion(**json.loads(line))
            (_show if question.table else _answer)(question, lines, say)
    except MagnetarError as error:
        reason = " ".join(str(error).split())[:REASON_CHARS_MAX]
        say(ERROR, _json({"status": status_of(error), "reason": reason}))


def status_of(error: MagnetarError) -> int:
    """HTTP status for an error of a query: whose fault it is."""
    if isinstance(error, QueryLimitError):
        return _UNPROCESSABLE
    status = getattr(error, "status", None)
    if isinstance(status, int):
        return status
    from magnetar.base.errors import ClientError
    from magnetar.client.errors import RefusedError
    from magnetar.wire import pulsar_pb2 as pb

    if isinstance(error, RefusedError):
        refused = (pb.ServerError.AuthorizationError, pb.ServerError.AuthenticationError)
        return 403 if error.code in refused else 404 if error.code == pb.ServerError.TopicNotFound else 503
    return 503 if isinstance(error, ClientError) or error.retriable else 500


def _answer(question: WorkerQuestion, lines: Iterator[bytes], say: Say) -> None:
    from magnetar.sql.limits import QueryLimits
    from magnetar.sql.queries import Query

    reading: WorkerReading | None = None

    def connect() -> Client:
        assert reading is not None, "nothing is read before the rights are known"
        return _client(reading)

    limits = QueryLimits(
        memory_mb=question.memory_mib,
        spill_mb=question.spill_mib,
        threads=_THREADS,
        rows_max=question.rows_max,
        seconds_max=question.seconds_max,
    )
    with Query(question.statement, connect, limits, admin_given=True) as query:
        say(TOPICS, _names(query))
        line = next(lines, b"")
        if not line:
            return  # The caller may not read them, or is gone.
        reading = WorkerReading(**json.loads(line))
        if question.form == SCHEMA:
            parts = iter((_schema_of(query),))
        else:
            parts = _parts(question.form, *query.rows())
        say(HEAD, _json({"engine": query.report.engine}))
        for piece in _pieces(parts):
            say(DATA, piece)
    # The broker ends this process once it knows that all is there; what was on the disk is deleted by now.
    say(END, _json(_told(query)))


def _show(question: WorkerQuestion, lines: Iterator[bytes], say: Say) -> None:
    """Answers a question of a tool about names, types and abilities."""
    import duckdb

    import magnetar
    from magnetar.sql.serving.flight_data import flight_data
    from magnetar.sql.serving.flight_tables import facts_table, names_table, sql_facts

    say(TOPICS, _json([]))
    line = next(lines, b"")
    if not line:
        return  # The caller is gone.
    reading = WorkerReading(**json.loads(line))
    engine = f"DuckDB {duckdb.__version__}"
    if question.table in _NAMES:
        columns_of = _columns_of(_client(reading)) if reading.with_columns else None
        table = names_table(question.table, reading.rows, columns_of)
    else:
        table = facts_table(question.table, question.ids, sql_facts(engine, magnetar.__version__))
    say(HEAD, _json({"engine": engine}))
    for piece in _pieces(flight_data(table.schema, table.to_batches())):
        say(DATA, piece)
    say(END, _json({"rows": table.num_rows, "seconds": 0, "report": []}))


def _columns_of(client: Client) -> Callable[[Sequence[str]], pa.Schema]:
    from magnetar.base.names import PERSISTENT, TopicName
    from magnetar.sql.topic_tables import table_of_topic

    return lambda row: table_of_topic(client, TopicName.of(PERSISTENT, *row)).columns


def _names(query: Query) -> bytes:
    names = _json([str(topic) for topic in query.topics])
    if len(query.topics) > TOPICS_MAX or len(names) > BODY_BYTES_MAX:
        raise StatementError(f"the statement reads {len(query.topics):,} topics; {TOPICS_MAX:,} are the most")
    return names


def _told(query: Query) -> dict[str, object]:
    report = query.report
    # Each topic may have a remark; a frame takes this much.
    lines = [line[:REASON_CHARS_MAX] for line in report.lines()[:_LINES_MAX]]
    return {"rows": report.rows, "seconds": round(report.seconds, 3), "report": lines}


def _client(reading: WorkerReading) -> Client:
    from magnetar.client.client import Client
    from magnetar.client.options import ClientOptions

    options = ClientOptions(
        retry_timeout_s=_RETRY_S,
        token=reading.token,
        user=reading.user,
        password=reading.password,
        tls_trust_certs_file=reading.trust_certs,
    )
    return Client(reading.service_url, options, admin_url=reading.admin_url)


def _schema_of(query: Query) -> bytes:
    from magnetar.sql.serving.flight_data import schema_message

    return schema_message(query.columns())


def _parts(form: str, schema: pa.Schema, batches: Iterator[pa.RecordBatch]) -> Iterator[bytes]:
    if form == ARROW:
        return _arrow(schema, batches)
    if form == FLIGHT:
        from magnetar.sql.serving.flight_data import flight_data

        return flight_data(schema, batches)
    return _lines(batches)


def _pieces(parts: Iterator[bytes]) -> Iterator[bytes]:
    """The result in pieces of about DATA_BYTES, and of no more than a frame may have. Rows are whole, so that
    an error has a line of its own, but for a row that is larger than a frame."""
    waiting = bytearray()
    for part in parts:
        if len(waiting) + len(part) > BODY_BYTES_MAX and waiting:
            yield bytes(waiting)
            waiting.clear()
        waiting += part
        while len(waiting) > BODY_BYTES_MAX:
            yield bytes(waiting[:DATA_BYTES])
            del waiting[:DATA_BYTES]
        if len(waiting) >= DATA_BYTES:
            yield bytes(waiting)
            waiting.clear()
    if waiting:
        yield bytes(waiting)


def _lines(batches: Iterator[pa.RecordBatch]) -> Iterator[bytes]:
    from magnetar.sql.rows import json_line, rows_of

    for row in rows_of(batches):
        yield json_line(row).encode("utf-8", "backslashreplace")


def _arrow(schema: pa.Schema, batches: Iterator[pa.RecordBatch]) -> Iterator[bytes]:
    import io

    import pyarrow as pa

    sink = io.BytesIO()

    def taken() -> bytes:
        data = sink.getvalue()
        sink.seek(0)
        sink.truncate()
        return data

    with pa.ipc.new_stream(pa.PythonFile(sink, "w"), schema) as writer:
        for batch in batches:
            writer.write_batch(batch)
            yield taken()
    yield taken()


def _json(document: object) -> bytes:
    return json.dumps(document).encode()


def said_by_broker(source: int, gone: Callable[[], object]) -> Iterator[bytes]:
    """The broker's lines, as they come. Once there are no more, the broker is gone, which would have ended
    this process: `gone` is called from another thread, whatever the engine computes."""
    lines: queue.Queue[bytes] = queue.Queue(maxsize=_SAID_MAX)

    def read() -> None:
        rest = b""
        while data := os.read(source, _READ_BYTES):
            *whole, rest = (rest + data).split(b"\n")
            for line in whole:
                lines.put(line)
        gone()

    beside(read, name="lines of the broker")
    while True:
        yield lines.get()


def main() -> None:
    """Answers one question of standard input."""
    os.nice(NICE)
    # When the machine's memory ends, this process goes first, and not the broker.
    with contextlib.suppress(OSError):  # only Linux has it
        Path("/proc/self/oom_score_adj").write_text("1000", encoding="ascii")
    sys.meta_path.insert(0, NoPandas())
    # Output of a library must not mix with the frames.
    frames: BinaryIO = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)
    delete_left_behind()  # The query before may have been killed just now.
    # Loaded before a question comes.
    import magnetar.client.options
    import magnetar.sql.queries
    import magnetar.sql.scans  # noqa: F401  # the first query needs it

    def say(kind: bytes, body: bytes) -> None:
        data = memoryview(frame_of(kind, body))
        try:
            while data:
                data = data[frames.write(data) :]
        except BrokenPipeError:
            # The broker is gone. Nothing is to be written at the exit.
            os._exit(1)

    say(READY, b"")
    answer(said_by_broker(sys.stdin.fileno(), lambda: os._exit(1)), say)


if __name__ == "__main__":
    main()
