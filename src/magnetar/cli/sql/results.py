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

import csv
import json
import sys
from collections.abc import Iterator, Sequence
from itertools import chain, islice
from typing import TYPE_CHECKING, BinaryIO, Final, TextIO

import click

from magnetar.cli.output import styled
from magnetar.sql.rows import json_line, plain, rows_of

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
        for row in rows_of(batches):
            stream.write(json_line(row))
    elif output == "csv":
        writer = csv.writer(stream)
        writer.writerow(schema.names)
        for row in rows_of(batches):
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


def table_lines(schema: pa.Schema, batches: Batches) -> Iterator[str]:
    """The lines of a table with a head."""
    kinds = [_is_number(kind) for kind in schema.types]
    rows = ([_cut(cell(value).translate(_CONTROLS)) for _, value in row] for row in rows_of(batches))
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


def _cut(text: str) -> str:
    if len(text) <= _CELL_MAX or not sys.stdout.isatty():
        return text
    return text[: _CELL_MAX - 3] + "..."
