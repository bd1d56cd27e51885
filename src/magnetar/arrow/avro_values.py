"""Decodes many Avro values at once, one field of all values at a time.

Avro records have no sizes, so a value must be read from its first field to its last. `AvroValues` keeps an
offset in each value and moves all of them at once: each step reads the next field of all values with a few
array operations. It costs about 0.1 µs per field and value from some hundred values on.

Writers' fields are matched to the columns by name or alias, as in Avro's schema resolution. A column that a
value lacks gets the default of the reader's definition, else null.

Source: Apache Avro 1.12 specification, "Binary encoding" and "Schema Resolution".
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from magnetar.arrow.avro_items import branches, in_order, lists, maps, nulls, skip_items
from magnetar.arrow.avro_leaves import Read, read_leaf, skip_leaf, unreadable
from magnetar.arrow.avro_types import AvroNode, NodeField, parse_avro
from magnetar.arrow.errors import ValueSchemaError
from magnetar.arrow.fields import Bools, Bytes, Ints
from magnetar.arrow.values import Column, scatter
from magnetar.client.errors import PayloadError


class AvroValues:
    """Decodes values that were written with versions of one schema."""

    def __init__(
        self,
        type_: pa.DataType,
        reader: bytes,
        writer: Callable[[bytes], bytes | None] | None = None,
    ) -> None:
        """Args: type_: the resulting type; of records any fields, by name. reader: definition with aliases
        and defaults, also for values without a version that match it from their first byte to their last.
        writer: definition of a version; None for an unknown version.

        Raises ValueSchemaError.
        """
        self.type = type_
        self.columns = frozenset(("schema_version",)) if writer is not None else frozenset()
        self._reader = parse_avro(reader)
        self._writer = writer
        self._reads: dict[bytes, Read] = {b"": compile_read(self._reader, type_, self._reader)}

    def decode(self, data: Bytes, starts: Ints, ends: Ints, present: Bools, column: Column) -> pa.Array:
        """See `Values.decode`. Raises PayloadError, ValueSchemaError."""
        if not present.any():
            return pa.nulls(len(starts), self.type)
        if self._writer is None:
            return scatter(self._decode(b"", data, starts[present], ends[present]), present)
        versions = column("schema_version").dictionary_encode()
        known: list[bytes | None] = versions.dictionary.to_pylist()
        codes = pc.fill_null(versions.indices, -1).to_numpy(zero_copy_only=False)[present]
        starts, ends = starts[present], ends[present]
        parts, rows = [], []
        for code in np.unique(codes).tolist():
            chosen = np.flatnonzero(codes == code)
            version = b"" if code < 0 else known[code] or b""
            parts.append(self._decode(version, data, starts[chosen], ends[chosen]))
            rows.append(chosen)
        if len(parts) == 1:
            return scatter(parts[0], present)
        order = np.argsort(np.concatenate(rows), kind="stable")
        return scatter(pa.concat_arrays(parts).take(pa.array(order)), present)

    def _decode(self, version: bytes, data: Bytes, starts: Ints, ends: Ints) -> pa.Array:
        values, at = self._read_of(version)(data, starts)
        if (at > ends).any():
            raise PayloadError(
                f"value {int(np.argmax(at > ends))} of a batch is not what version {version.hex()!r} of the"
                " Avro schema says: it is too short"
            )
        # A value without a version claims no schema, and any bytes begin like some record: only the whole
        # value decides.
        if not version and (at < ends).any():
            raise PayloadError(
                f"value {int(np.argmax(at < ends))} of a batch names no version of the Avro schema, and is"
                " longer than the newest says"
            )
        return values

    def _read_of(self, version: bytes) -> Read:
        read = self._reads.get(version)
        if read is None:
            assert self._writer is not None
            definition = self._writer(version)
            if definition is None:
                raise ValueSchemaError(
                    f"there is no version {version.hex()} of the schema, which values have"
                )
            read = self._reads[version] = compile_read(parse_avro(definition), self.type, self._reader)
        return read


def compile_read(writer: AvroNode, target: pa.DataType | None, reader: AvroNode | None) -> Read:
    """A function that reads values of `writer` as `target`, or skips them when that is None.

    `reader`: definition of the target; None when there is none. Raises ValueSchemaError.
    """
    return _Compiler().read(writer, target, reader)


class _Compiler:
    """Makes the function that skips a type only once, because types may be recursive."""

    def __init__(self) -> None:
        self._skips: dict[int, Read] = {}

    def read(self, writer: AvroNode, target: pa.DataType | None, reader: AvroNode | None) -> Read:
        if target is None:
            return self._skip(writer)
        if writer.kind == "union":
            return self._union(writer, target, reader)
        if reader is not None and reader.kind == "union":
            same = [each for each in reader.values if each.kind == writer.kind]
            reader = same[0] if same else (reader.values[0] if reader.values else None)
        if _is_members(target) and writer.kind != "record":
            return self._member(writer, target)
        if writer.kind == "record" and pa.types.is_struct(target):
            return self._record(writer, target, reader)
        inner = None if reader is None else reader.items
        assert writer.items is not None or writer.kind not in ("array", "map")
        if writer.kind == "array" and pa.types.is_list(target) and writer.items is not None:
            return lists(self.read(writer.items, target.value_type, inner), target)
        if writer.kind == "map" and pa.types.is_map(target) and writer.items is not None:
            return maps(self.read(writer.items, target.item_type, inner), target)
        return read_leaf(writer, target)

    def _skip(self, writer: AvroNode) -> Read:
        known = self._skips.get(id(writer))
        if known is not None:
            return known
        made: list[Read] = []

        def late(data: Bytes, at: Ints) -> tuple[object, Ints]:
            return made[0](data, at) if len(at) else (None, at)

        self._skips[id(writer)] = late
        if writer.kind == "record":
            made.append(in_order([self._skip(each.type) for each in writer.fields]))
        elif writer.kind == "union":
            made.append(branches([self._skip(each) for each in writer.branches], None))
        elif writer.kind in ("array", "map"):
            assert writer.items is not None
            item = self._skip(writer.items)
            made.append(
                skip_items(in_order([skip_leaf(AvroNode("string")), item]) if writer.kind == "map" else item)
            )
        else:
            made.append(skip_leaf(writer))
        return late

    def _union(self, writer: AvroNode, target: pa.DataType, reader: AvroNode | None) -> Read:
        reads = []
        number = 0
        for branch in writer.branches:
            if branch.kind == "null":
                reads.append(nulls(target))
            elif _is_members(target) and len(writer.values) > 1:
                reads.append(self._as_member(branch, target, number))
                number += 1
            else:
                reads.append(self.read(branch, target, reader))
        return branches(reads, target)

    def _member(self, writer: AvroNode, target: pa.DataType) -> Read:
        """Reads a type that later became a union, as the first member that can hold it."""
        for number in range(target.num_fields):
            try:
                return self._as_member(writer, target, number)
            except ValueSchemaError:  # not this member; when none can hold it, the loop's end raises
                continue
        raise unreadable(writer, target)

    def _as_member(self, branch: AvroNode, target: pa.DataType, number: int) -> Read:
        if number >= target.num_fields:
            raise unreadable(branch, target)
        inside = self.read(branch, target.field(number).type, branch)

        def read(data: Bytes, at: Ints) -> tuple[object, Ints]:
            values, at = inside(data, at)
            columns = [pa.nulls(len(values), each.type) for each in target]
            columns[number] = values
            return pa.StructArray.from_arrays(columns, fields=list(target)), at

        return read

    def _record(self, writer: AvroNode, target: pa.DataType, reader: AvroNode | None) -> Read:
        own: dict[str, NodeField] = {}
        if reader is not None:
            own = {each.name: each for each in reader.fields}
        slots = {}
        for slot, column in enumerate(target):
            names = own[column.name].names if column.name in own else (column.name,)
            written = {each.name for each in writer.fields}
            found = next((name for name in names if name in written), None)
            if found is not None:
                slots[found] = slot
        steps: list[tuple[Read, int]] = []
        for each in writer.fields:
            slot = slots.get(each.name, -1)
            if slot < 0:
                steps.append((self._skip(each.type), -1))
            else:
                column = target.field(slot)
                inner = own[column.name].type if column.name in own else None
                steps.append((self.read(each.type, column.type, inner), slot))
        missing = {
            slot: _default(own.get(column.name), column.type)
            for slot, column in enumerate(target)
            if slot not in slots.values()
        }

        def read(data: Bytes, at: Ints) -> tuple[object, Ints]:
            columns: list[object] = [None] * target.num_fields
            for slot, value in missing.items():
                columns[slot] = pa.repeat(value, len(at))
            count = len(at)
            for step, slot in steps:
                values, at = step(data, at)
                if slot >= 0:
                    columns[slot] = values
            if not columns:
                return pa.array([{}] * count, target), at
            return pa.StructArray.from_arrays(columns, fields=list(target)), at

        return read


def _is_members(target: pa.DataType) -> bool:
    return bool(pa.types.is_struct(target) and target.num_fields > 1 and target.field(0).name == "member0")


def _default(own: NodeField | None, type_: pa.DataType) -> pa.Scalar:
    """The value of a column that the values lack. Raises ValueSchemaError."""
    value = None if own is None else own.default
    if isinstance(value, str) and pa.types.is_binary(type_):
        value = value.encode("latin-1")
    try:
        return pa.scalar(value, type_)
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        raise ValueSchemaError(f"the default {value!r} is no {type_}: {error}") from error
