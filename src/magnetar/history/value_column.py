"""The column `value`: payloads decoded by the topic's schema, beside the payload itself.

It has the fields of all versions: those of the newest, then those that the newest has dropped, so that old
values keep all their fields. A field of several versions has the type of the newest one; values of older
versions are resolved to it, as Avro's readers do. For Protobuf it has the fields of the newest version only.

A field keeps its id in all versions. Ids are assigned in the order in which versions, from the oldest on,
introduce fields, so that files of any time have the same id for the same field. A value that does not match
its schema has no decoded fields; its payload is stored as usual.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import numpy as np
import pyarrow as pa

from magnetar.arrow.errors import ValueSchemaError
from magnetar.arrow.fields import PADDING, Bools, Ints
from magnetar.arrow.values import Values
from magnetar.client.errors import PayloadError
from magnetar.history.columns import VALUE_FIELDS_ID, VALUE_ID, field_id
from magnetar.history.metadata import Rows, bools, ints, nulls
from magnetar.tiered.parquet.parquet_history import StoredTopicSchema
from magnetar.wire import pulsar_pb2 as pb

_AVRO: Final = int(pb.Schema.Type.Avro)
_JSON: Final = int(pb.Schema.Type.Json)
_PROTOBUF_NATIVE: Final = int(pb.Schema.Type.ProtobufNative)

_SEARCHES_MAX: Final = 200
"""Most attempts to find the broken values among those that are built together; after that none is decoded."""

_PROMOTED: Final = {pa.int32(): pa.int64(), pa.float32(): pa.float64()}
"""Types to which a field may be widened and stay the same field."""


class ValueColumn:
    """Decodes values for one segment."""

    def __init__(self, schemas: Sequence[StoredTopicSchema]) -> None:
        """`schemas`: all versions, oldest first."""
        self._ids: dict[tuple[str, pa.DataType | str], int] = {}
        self._values: Values | None = None
        self._known: dict[bytes, StoredTopicSchema] = {schema.version: schema for schema in schemas}
        self.field: pa.Field | None = None
        """The column; None when no version has fields."""
        types: list[tuple[StoredTopicSchema, pa.DataType]] = []
        for schema in schemas:
            found = _type_of(schema)
            if found is not None:
                # In the order of versions, whatever the newest one is.
                self._identified(found, "")
                types.append((schema, found))
        if types:
            self._latest = types[-1][0]
            whole = _union(types)
            self.field = pa.field("value", self._identified(whole, ""), metadata=field_id(VALUE_ID))
            self._values = _values_of(self._latest, whole, self._known)

    def _identified(self, kind: pa.DataType, path: str) -> pa.DataType:
        """`kind` with an id for each field in it."""
        if pa.types.is_struct(kind):
            return pa.struct([self._field(each, f"{path}.{each.name}") for each in kind])
        if pa.types.is_list(kind):
            return pa.list_(self._field(pa.field("element", kind.value_type), f"{path}[]"))
        if pa.types.is_map(kind):
            key = self._field(pa.field("key", kind.key_type, nullable=False), f"{path}[key]")
            return pa.map_(key, self._field(pa.field("value", kind.item_type), f"{path}[value]"))
        return kind

    def _field(self, field: pa.Field, path: str) -> pa.Field:
        kind = field.type
        family = "nested" if pa.types.is_nested(kind) else _PROMOTED.get(kind, kind)
        number = self._ids.setdefault((path, family), VALUE_FIELDS_ID + len(self._ids))
        return pa.field(
            field.name, self._identified(kind, path), nullable=field.nullable, metadata=field_id(number)
        )

    def decode(self, batch: pa.RecordBatch) -> pa.Array:
        """The column for these rows; null where a row has no value, or a value that does not match its
        schema."""
        assert self.field is not None
        assert self._values is not None
        rows = Rows.of_table(batch)
        payload = rows.column("payload")
        present = ~(
            nulls(payload) | bools(rows.column("is_null_value")) | bools(rows.column("is_compacted_out"))
        )
        # Markers are not messages, and pieces are not values.
        present &= nulls(rows.column("marker_type")) & (ints(rows.column("chunk_count")) <= 1)
        present &= self._described(rows.column("schema_version"))
        return _Decoding(self._values, rows, self.field.type).column(present)

    def _described(self, versions: pa.Array) -> Bools:
        """Rows whose schema version is of the decoded kind, or that name no version."""
        encoded = versions.dictionary_encode()
        names: list[bytes] = encoded.dictionary.to_pylist()
        known = [name in self._known and self._known[name].kind == self._latest.kind for name in names]
        # The last place is that of rows without a version.
        flags = np.array([*known, True], np.bool_)
        codes = encoded.indices.fill_null(len(names)).to_numpy(zero_copy_only=False)
        described: Bools = flags[codes]
        return described


class _Decoding:
    """The rows of one call of `decode`."""

    def __init__(self, values: Values, rows: Rows, kind: pa.DataType) -> None:
        self._values = values
        self._rows = rows
        self._kind = kind
        payload = rows.column("payload")
        offsets = np.frombuffer(payload.buffers()[1], np.int32)[
            payload.offset : payload.offset + rows.count + 1
        ]
        self._ends: Ints = offsets[1:].astype(np.int64)
        self._starts: Ints = offsets[:-1].astype(np.int64)
        self._data = np.frombuffer(b"".join((payload.buffers()[2] or b"", PADDING)), np.uint8)
        self._searches = 0

    def column(self, present: Bools) -> pa.Array:
        """The decoded values, with their ids."""
        if not present.any():
            return pa.nulls(self._rows.count, self._kind)
        sound = self._decode(present)
        if sound is None:
            present = present & self._sound(present)
            sound = self._decode(present)
        if sound is None:
            return pa.nulls(self._rows.count, self._kind)
        return sound.cast(self._kind)

    def _decode(self, present: Bools) -> pa.Array | None:
        try:
            return self._values.decode(self._data, self._starts, self._ends, present, self._rows.column)
        except (PayloadError, ValueSchemaError, pa.ArrowInvalid, UnicodeDecodeError, ValueError):
            return None

    def _sound(self, present: Bools) -> Bools:
        """The values that can be decoded, found by halving; none when too many cannot."""
        is_sound = np.zeros(len(present), np.bool_)
        for rows in self._halved(np.flatnonzero(present)):
            is_sound[rows] = True
        return is_sound if self._searches <= _SEARCHES_MAX else np.zeros(len(present), np.bool_)

    def _halved(self, rows: Ints) -> Iterator[Ints]:
        self._searches += 1
        if not len(rows) or self._searches > _SEARCHES_MAX:
            return
        chosen = np.zeros(self._rows.count, np.bool_)
        chosen[rows] = True
        if self._decode(chosen) is not None:
            yield rows
        elif len(rows) > 1:
            yield from self._halved(rows[: len(rows) // 2])
            yield from self._halved(rows[len(rows) // 2 :])


def _type_of(schema: StoredTopicSchema) -> pa.DataType | None:
    """The struct type for values of this version; None when the schema has no fields."""
    from magnetar.arrow.avro_types import arrow_type, parse_avro
    from magnetar.arrow.protobuf_values import find_message, protobuf_type

    try:
        if schema.kind in (_AVRO, _JSON):
            kind = arrow_type(parse_avro(schema.definition))
        elif schema.kind == _PROTOBUF_NATIVE:
            kind = protobuf_type(find_message(*_native(schema)))
        else:
            return None
    except (ValueSchemaError, ValueError, KeyError):
        # A definition that cannot be read costs the segment its decoded fields, nothing else.
        return None
    return kind if pa.types.is_struct(kind) and _has_leaves(kind) else None


def _union(types: Sequence[tuple[StoredTopicSchema, pa.DataType]]) -> pa.DataType:
    """The newest version's type plus the fields that only older versions of its kind have."""
    latest, whole = types[-1]
    if latest.kind == _PROTOBUF_NATIVE:
        # Protobuf fields are read by number, and another version may have used a number again.
        return whole
    renamed = _aliases(latest)
    for schema, kind in reversed(types[:-1]):
        if schema.kind == latest.kind:
            whole = _with_fields_of(whole, kind, renamed)
    return whole


def _with_fields_of(
    whole: pa.DataType, older: pa.DataType, renamed: frozenset[str] = frozenset()
) -> pa.DataType:
    """`whole` plus the fields that only `older` has, except `renamed` ones."""
    if pa.types.is_struct(whole) and pa.types.is_struct(older):
        fields = []
        for each in whole:
            number = older.get_field_index(each.name)
            merged = each.type if number < 0 else _with_fields_of(each.type, older.field(number).type)
            fields.append(pa.field(each.name, merged, nullable=each.nullable))
        names = {each.name for each in whole} | renamed
        return pa.struct([*fields, *(each.with_nullable(True) for each in older if each.name not in names)])
    if pa.types.is_list(whole) and pa.types.is_list(older):
        return pa.list_(pa.field("element", _with_fields_of(whole.value_type, older.value_type)))
    if pa.types.is_map(whole) and pa.types.is_map(older):
        return pa.map_(whole.key_type, _with_fields_of(whole.item_type, older.item_type))
    return whole


def _aliases(schema: StoredTopicSchema) -> frozenset[str]:
    """Names under which older versions have fields of this one."""
    from magnetar.arrow.avro_types import parse_avro

    return frozenset(name for each in parse_avro(schema.definition).fields for name in each.names)


def _has_leaves(kind: pa.DataType) -> bool:
    """Whether Parquet can store the type: it does not support structs without fields."""
    if pa.types.is_struct(kind):
        return kind.num_fields > 0 and all(_has_leaves(each.type) for each in kind)
    if pa.types.is_list(kind):
        return _has_leaves(kind.value_type)
    return not pa.types.is_map(kind) or _has_leaves(kind.item_type)


def _native(schema: StoredTopicSchema) -> tuple[bytes, str]:
    document = json.loads(schema.definition)
    return base64.b64decode(document["fileDescriptorSet"]), document["rootMessageTypeName"]


def _values_of(
    schema: StoredTopicSchema, kind: pa.DataType, known: Mapping[bytes, StoredTopicSchema]
) -> Values:
    from magnetar.arrow.avro_values import AvroValues
    from magnetar.arrow.json_values import JsonValues
    from magnetar.arrow.protobuf_values import ProtobufValues

    if schema.kind == _AVRO:

        def definition(version: bytes) -> bytes | None:
            found = known.get(version)
            return None if found is None else found.definition

        return AvroValues(kind, schema.definition, definition)
    if schema.kind == _JSON:
        return JsonValues(kind, micros=b"timestamp-micros" in schema.definition)
    return ProtobufValues(kind, *_native(schema))


def leaves_of(field: pa.Field, path: str = "") -> Iterator[tuple[str, pa.DataType]]:
    """Parquet's names of a column's leaves, and their types."""
    path = f"{path}.{field.name}" if path else field.name
    kind = field.type
    if pa.types.is_struct(kind):
        for each in kind:
            yield from leaves_of(each, path)
    elif pa.types.is_list(kind):
        yield from leaves_of(pa.field("element", kind.value_type), f"{path}.list")
    elif pa.types.is_map(kind):
        yield from leaves_of(pa.field("key", kind.key_type), f"{path}.key_value")
        yield from leaves_of(pa.field("value", kind.item_type), f"{path}.key_value")
    else:
        yield path, kind
