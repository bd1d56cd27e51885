"""Rows of a result as plain values, and as lines of JSON. Pure.

Bytes are text where they are UTF-8, and base64 elsewhere. Times are UTC. Numbers with fixed places are texts.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Mapping
from datetime import date, datetime, time
from typing import TYPE_CHECKING

from magnetar.sql.errors import StatementError

if TYPE_CHECKING:
    import pyarrow as pa


def rows_of(batches: Iterator[pa.RecordBatch]) -> Iterator[list[tuple[str, object]]]:
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


def json_line(row: list[tuple[str, object]]) -> str:
    """A row as one line of JSON, with its end. Names that occur twice get numbers, as in the engine's own
    tables: `key`, `key_1`."""
    members = {name: plain(value) for name, value in row}
    if len(members) != len(row):
        names = {name for name, _ in row}
        members = {}
        for name, value in row:
            own, number = name, 0
            while own in members or (number and own in names):
                number += 1
                own = f"{name}_{number}"
            members[own] = plain(value)
    return json.dumps(members, ensure_ascii=False) + "\n"


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
