"""Results of a query in one of the formats that `magnetar sql` prints.

| Format | For |
|---|---|
| table | people; long cells are cut on a terminal |
| json | one object a line |
| csv | a line of names, then a line for each row (RFC 4180) |
| parquet, arrow | a Parquet file; an Arrow stream (IPC) |

In text formats bytes are text where they are UTF-8, and base64 elsewhere. Times are UTC.
"""

from __future__ import annotations

import base64
import csv
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from datetime import date, datetime, time
from itertools import chain, islice
from typing import TYPE_CHECKING, BinaryIO, Final, TextIO

import click

from magnetar.cli.output import styled
from magnetar.sql.errors import StatementError

if TYPE_CHECKING:
    import pyarrow as pa

FORMATS: Final = ("table", "json", "csv", "parquet", "arrow")
BINARY: Final = ("parquet", "arrow")
_ROWS_FOR_WIDTHS: Final = 500
"""Rows of a table whose widths decide those of its columns; later rows come as they are made."""
_CELL_MAX: Final = 60
_CONTROLS: Final = {code: f"\\x{code:02x}" for code in (*range(32), *range(127, 160))}
"""What would move the cursor of a terminal, or change its title: messages may come from strangers."""

Batches = Iterator["pa.RecordBatch"]


def write_result(schema: pa.Schema, batches: Batches, output: str, stream: TextIO) -> None:
    """Writes a result in one of FORMATS; binary ones go to the buffer of `stream`."""
    if output == "table":
        for line in table_lines(schema, batches):
            click.echo(line, file=stream)
    elif output == "json":
        for row in _rows(batches):
            stream.write(json.dumps({name: plain(value) for name, value in row}, ensure_ascii=False) + "\n")
    elif output == "csv":
        writer = csv.writer(stream)
        writer.writerow(schema.names)
        for row in _rows(batches):
            writer.writerow(["" if value is None else cell(value) for _, value in row])
    else:
        _write_binary(schema, batches, output, stream.buffer)


def _write_binary(schema: pa.Schema, batches: Batches, output: str, stream: BinaryIO) -> None:
    import pyarrow as pa

    if output == "arrow":
        with pa.ipc.new_stream(stream, schema) as writer:
            for batch in batches:
                writer.write_batch(batch)
        return
    import pyarrow.parquet as pq

    with pq.ParquetWriter(stream, schema, compression="zstd") as parquet:
        for batch in batches:
            parquet.write_batch(batch)


def _rows(batches: Batches) -> Iterator[list[tuple[str, object]]]:
    """The rows; names may occur twice in a result."""
    for batch in batches:
        names = batch.schema.names
        columns = [_values(column) for column in batch.columns]
        for values in zip(*columns, strict=True):
            yield list(zip(names, values, strict=True))


def _values(column: pa.Array) -> list[object]:
    """The values of a column. Times that Python cannot hold, before the year 1 or after 9999, are texts."""
    import pyarrow as pa

    try:
        return list(column.to_pylist())
    except (OverflowError, ValueError) as error:
        if not pa.types.is_temporal(column.type):
            raise StatementError(
                f"a result of the type {column.type} has times that cannot be shown ({error}): use"
                " `-o parquet` or `-o arrow`, or select the times alone"
            ) from error
        return list(column.cast(pa.string()).to_pylist())


def table_lines(schema: pa.Schema, batches: Batches) -> Iterator[str]:
    """The lines of a table with a head."""
    kinds = [_is_number(kind) for kind in schema.types]
    rows = ([_cut(cell(value).translate(_CONTROLS)) for _, value in row] for row in _rows(batches))
    first = list(islice(rows, _ROWS_FOR_WIDTHS))
    widths = (
        [max(map(len, column)) for column in zip(schema.names, *first, strict=True)] if len(schema) else []
    )

    def line(cells: Sequence[str]) -> str:
        aligned = [
            text.rjust(width) if right else text.ljust(width)
            for text, width, right in zip(cells, widths, kinds, strict=True)
        ]
        return "  ".join(aligned).rstrip()

    yield styled(line(schema.names), bold=True)
    yield from map(line, chain(first, rows))


def _is_number(kind: pa.DataType) -> bool:
    import pyarrow as pa

    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))


def cell(value: object) -> str:
    """A value as one line of text."""
    made = plain(value)
    if made is None:
        return "-"
    if isinstance(made, str):
        return made.replace("\n", "\\n")
    if isinstance(made, bool):
        return "true" if made else "false"
    return json.dumps(made, ensure_ascii=False)


def plain(value: object) -> object:
    """A value as JSON has it: times as ISO texts, numbers with fixed places as texts."""
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return base64.b64encode(value).decode()
    if isinstance(value, datetime):
        return value.isoformat().replace("+00:00", "Z")
    if isinstance(value, float):
        return value if value - value == 0 else None
    if isinstance(value, Mapping):
        return {str(key): plain(inner) for key, inner in value.items()}
    if isinstance(value, list):
        if value and all(isinstance(each, tuple) and len(each) == 2 for each in value):
            return {str(plain(key)): plain(inner) for key, inner in value}
        return [plain(each) for each in value]
    if value is None or isinstance(value, str | bool | int):
        return value
    return value.isoformat() if isinstance(value, date | time) else str(value)


def _cut(text: str) -> str:
    if len(text) <= _CELL_MAX or not sys.stdout.isatty():
        return text
    return text[: _CELL_MAX - 3] + "..."
