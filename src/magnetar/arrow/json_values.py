"""Decodes JSON values to columns, with Arrow's reader if it supports them, else one by one.

Arrow's reader takes one line per value and the resulting type; it does not support maps, dates and decimals.
Values that it does not read are read by Python's parser.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal, InvalidOperation
from typing import Any, Final

import pyarrow as pa
import pyarrow.json as pj

from magnetar.arrow import arrays
from magnetar.arrow.fields import Bools, Bytes, Ints
from magnetar.arrow.values import Column, scatter
from magnetar.client.errors import PayloadError

_NEWLINE: Final = 0x0A
_EPOCH: Final = date(1970, 1, 1)


class JsonValues:
    """Decodes JSON objects. Members that the type lacks are dropped; members that a value lacks are null."""

    columns: frozenset[str] = frozenset()

    def __init__(self, type_: pa.DataType, *, micros: bool = False) -> None:
        """`micros`: whether numbers of points in time are microseconds, as in some Avro definitions; else
        milliseconds."""
        self.type = type_
        self._micros = micros
        self._fast = pa.types.is_struct(type_) and type_.num_fields > 0 and _arrow_reads(type_)

    def decode(self, data: Bytes, starts: Ints, ends: Ints, present: Bools, column: Column) -> pa.Array:
        """See `Values.decode`. Raises PayloadError for a value that is not JSON or has another type."""
        if not present.any():
            return pa.nulls(len(starts), self.type)
        raw = arrays.slices(data, starts[present], ends[present]).to_pylist()
        values = self._by_arrow(raw) if self._fast else None
        if values is None:
            values = self._by_python(raw)
        return scatter(values, present)

    def _by_arrow(self, raw: list[bytes]) -> pa.Array | None:
        """The values by Arrow's reader; None when it does not support them."""
        joined = b"\n".join(raw)
        broken = joined.count(b"\n") != len(raw) - 1
        options = pj.ParseOptions(
            explicit_schema=pa.schema(list(self.type)),
            newlines_in_values=broken,
            unexpected_field_behavior="ignore",
        )
        # One block, so that no value is cut by the end of a block.
        reading = pj.ReadOptions(use_threads=False, block_size=max(len(joined) + 1, 1 << 16))
        try:
            table = pj.read_json(pa.BufferReader(joined), read_options=reading, parse_options=options)
        except pa.ArrowInvalid:
            return None
        if table.num_rows != len(raw):
            return None  # A payload holds several values, or none.
        table = table.select([each.name for each in self.type]).combine_chunks()
        columns = [
            column.chunk(0) if column.num_chunks else pa.nulls(0, column.type) for column in table.columns
        ]
        return pa.StructArray.from_arrays(columns, fields=list(self.type))

    def _by_python(self, raw: list[bytes]) -> pa.Array:
        convert = _converter(self.type, micros=self._micros)
        values = []
        for value in raw:
            try:
                values.append(convert(json.loads(value, parse_float=_number_of(self.type))))
            except (ValueError, TypeError, InvalidOperation, binascii.Error, AttributeError) as error:
                shown = value[:80].decode("utf-8", "replace")
                raise PayloadError(
                    f"a value cannot be read as JSON of type {self.type}: {shown!r}: {error}"
                ) from error
        try:
            return pa.array(values, self.type)
        except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError) as error:
            raise PayloadError(f"values are JSON, but not of type {self.type}: {error}") from error


def _arrow_reads(type_: pa.DataType) -> bool:
    if pa.types.is_struct(type_):
        return type_.num_fields > 0 and all(_arrow_reads(each.type) for each in type_)
    if pa.types.is_list(type_):
        return _arrow_reads(type_.value_type)
    # Strings are kept; a number in place of a string is read by Python's parser.
    return bool(
        pa.types.is_string(type_)
        or pa.types.is_boolean(type_)
        or pa.types.is_integer(type_)
        or (pa.types.is_floating(type_))
    )


def _number_of(type_: pa.DataType) -> Callable[[str], object]:
    """The parser of numbers; it keeps all digits when the type has decimals."""
    return Decimal if "decimal" in str(type_) else float


_Convert = Callable[[Any], object]
"""Converts a value of Python's parser. Raises ValueError, TypeError or AttributeError for a value of a
kind that the type does not have."""


def _converter(type_: pa.DataType, *, micros: bool) -> _Convert:
    """A function that converts a value of Python's parser to one that Arrow accepts for the type."""
    if pa.types.is_struct(type_):
        inside = {each.name: _converter(each.type, micros=micros) for each in type_}
        return lambda value: (
            None if value is None else {name: convert(value.get(name)) for name, convert in inside.items()}
        )
    if pa.types.is_list(type_):
        item = _converter(type_.value_type, micros=micros)
        return lambda value: None if value is None else [item(each) for each in value]
    if pa.types.is_map(type_):
        item = _converter(type_.item_type, micros=micros)
        return lambda value: (
            None if value is None else [(str(key), item(each)) for key, each in value.items()]
        )
    simple = _SIMPLE_CONVERTERS.get(type_.id)
    if simple is not None:
        return lambda value: None if value is None else simple(value)
    if pa.types.is_timestamp(type_):
        return lambda value: None if value is None else _time(value, micros=micros, zone=type_.tz is not None)
    return lambda value: value


def _text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _time(value: float | str, *, micros: bool, zone: bool) -> object:
    if isinstance(value, int | float):
        moment = datetime(1970, 1, 1, tzinfo=UTC) + (
            timedelta(microseconds=value) if micros else timedelta(milliseconds=value)
        )
    else:
        moment = datetime.fromisoformat(value)
        moment = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    return moment if zone else moment.astimezone(UTC).replace(tzinfo=None)


def _date(value: int | str) -> date:
    return _EPOCH + timedelta(days=value) if isinstance(value, int) else date.fromisoformat(value)


def _bytes(value: str) -> bytes:
    return base64.b64decode(value, validate=True)


def _decimal(value: object) -> Decimal:
    return value if isinstance(value, Decimal) else Decimal(str(value))


_SIMPLE_CONVERTERS: Final[dict[int, _Convert]] = {
    pa.string().id: _text,
    pa.binary().id: _bytes,
    pa.date32().id: _date,
    pa.decimal128(1, 0).id: _decimal,
    pa.float32().id: float,
    pa.float64().id: float,
}
