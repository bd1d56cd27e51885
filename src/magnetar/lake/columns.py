"""Computes the columns of a table from the columns of its files, by their ids.

A table has every column that any of its files has. Columns of the newest schema version come first, in its
order; columns that only older versions have follow, so that old messages keep their fields. Readers match
columns by id: a file without a column gives null, and a column is renamed without a change of files. Two
fields that had the same name at different times, with incompatible types, become two columns; the older one
is then called `name_ID`.

All columns in `value` may be null, whatever the schema says, because earlier files lack them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from pyiceberg.schema import Schema
from pyiceberg.types import (
    DecimalType,
    DoubleType,
    FloatType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StructType,
)

from magnetar.lake.lake_values import LakeConflictError

PARTITION_ID: Final = 41
PARTITION: Final = "partition"
"""Column with the partition's number, -1 for topics without partitions. Files do not have it: readers take it
from the manifests."""

_LATER_FROM: Final = 40
"""First id of columns that may be missing in a file. Columns with smaller ids are in every file and may be
required."""


def partition_column() -> NestedField:
    """The column that only the table has. It is never null, but not declared as required: pyiceberg looks for
    required columns in the files."""
    return NestedField(PARTITION_ID, PARTITION, IntegerType(), required=False)


def merged(known: Schema | None, files: Sequence[Schema]) -> Schema:
    """The columns of a table after files with these schemas, the newest last, are added.

    Raises LakeConflictError when an id has another meaning than before.
    """
    fields: tuple[NestedField, ...] = () if known is None else known.fields
    for schema in files:
        newer = tuple(_optional(field) if field.field_id >= _LATER_FROM else field for field in schema.fields)
        fields = _merge(newer, fields, "")
    if all(field.field_id != PARTITION_ID for field in fields):
        fields = (*fields, partition_column())
    fields = tuple(sorted(fields, key=lambda field: field.field_id))
    if known is not None and fields == known.fields:
        return known
    return Schema(*fields, schema_id=0 if known is None else known.schema_id + 1)


def _merge(newer: Iterable[NestedField], older: Iterable[NestedField], path: str) -> tuple[NestedField, ...]:
    before = {field.field_id: field for field in older}
    made = [
        _merge_field(field, before.pop(field.field_id), path) if field.field_id in before else field
        for field in newer
    ]
    names = {field.name for field in made}
    for field in before.values():
        kept = field
        if field.name in names:
            kept = field.model_copy(update={"name": f"{field.name}_{field.field_id}"})
        names.add(kept.name)
        made.append(kept)
    return tuple(made)


def _merge_field(newer: NestedField, older: NestedField, path: str) -> NestedField:
    where = f"{path}{newer.name}"
    if newer.name != older.name and not older.name.startswith(newer.name):
        raise LakeConflictError(
            f"column {newer.field_id} is {where} in a new file and was {path}{older.name} in earlier ones"
        )
    kind = _merge_type(newer.field_type, older.field_type, where, newer.field_id)
    return newer.model_copy(update={"field_type": kind, "required": newer.required and older.required})


def _merge_type(newer: IcebergType, older: IcebergType, where: str, number: int) -> IcebergType:
    if isinstance(newer, StructType) and isinstance(older, StructType):
        return StructType(*_merge(newer.fields, older.fields, f"{where}."))
    if isinstance(newer, ListType) and isinstance(older, ListType) and newer.element_id == older.element_id:
        element = _merge_type(newer.element_type, older.element_type, f"{where}[]", newer.element_id)
        return newer.model_copy(update={"element_type": element, "element_required": False})
    if isinstance(newer, MapType) and isinstance(older, MapType) and newer.value_id == older.value_id:
        value = _merge_type(newer.value_type, older.value_type, f"{where}[value]", newer.value_id)
        return newer.model_copy(update={"value_type": value})
    if newer == older:
        return newer
    wider = _wider(newer, older)
    if wider is None:
        raise LakeConflictError(
            f"column {number} ({where}) is {newer} in a new file and was {older} in earlier ones"
        )
    return wider


def _wider(newer: IcebergType, older: IcebergType) -> IcebergType | None:
    """The type as which values of both can be read; None when there is none."""
    for small, large in ((IntegerType, LongType), (FloatType, DoubleType)):
        for one, other in ((newer, older), (older, newer)):
            if isinstance(one, small) and isinstance(other, large):
                return other
    if isinstance(newer, DecimalType) and isinstance(older, DecimalType) and newer.scale == older.scale:
        return max(newer, older, key=lambda kind: kind.precision)
    return None


def _optional(field: NestedField) -> NestedField:
    return field.model_copy(update={"required": False, "field_type": _optional_type(field.field_type)})


def _optional_type(kind: IcebergType) -> IcebergType:
    if isinstance(kind, StructType):
        return StructType(*(_optional(field) for field in kind.fields))
    if isinstance(kind, ListType):
        return kind.model_copy(
            update={"element_type": _optional_type(kind.element_type), "element_required": False}
        )
    if isinstance(kind, MapType):
        return kind.model_copy(
            update={"value_type": _optional_type(kind.value_type), "value_required": False}
        )
    return kind
