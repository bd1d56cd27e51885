"""Decodes Protobuf values to columns: protobuf's C parser reads the messages, Arrow builds the columns.

| Protobuf | Arrow |
|---|---|
| int32, sint32, sfixed32; the 64-bit ones | int32; int64 |
| uint32, fixed32; uint64, fixed64 | int64; decimal128(20, 0) |
| float, double, bool, string, bytes | the type of the same kind |
| enum | string, numbers without a name in decimal |
| message; repeated; map | struct; list; map |

Unset fields without presence have their default, as everywhere in Protobuf; other unset fields are null.

Source: Protocol Buffers documentation; Spark's Protobuf functions for the types.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import pyarrow as pa
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.descriptor_pb2 import FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError, Message
from google.protobuf.message_factory import GetMessageClass

from magnetar.arrow import arrays
from magnetar.arrow.errors import ValueSchemaError
from magnetar.arrow.fields import Bools, Bytes, Ints
from magnetar.arrow.values import Column, scatter
from magnetar.client.errors import PayloadError

_DEPTH_MAX: Final = 32
_TYPES: Final[dict[int, pa.DataType]] = {
    FieldDescriptor.CPPTYPE_INT32: pa.int32(),
    FieldDescriptor.CPPTYPE_INT64: pa.int64(),
    FieldDescriptor.CPPTYPE_UINT32: pa.int64(),
    FieldDescriptor.CPPTYPE_UINT64: pa.decimal128(20, 0),
    FieldDescriptor.CPPTYPE_DOUBLE: pa.float64(),
    FieldDescriptor.CPPTYPE_FLOAT: pa.float32(),
    FieldDescriptor.CPPTYPE_BOOL: pa.bool_(),
    FieldDescriptor.CPPTYPE_ENUM: pa.string(),
}


def find_message(files: bytes, name: str) -> Descriptor:
    """The message type in a FileDescriptorSet. Raises ValueSchemaError."""
    pool = DescriptorPool()
    try:
        waiting = list(FileDescriptorSet.FromString(files).file)
        while waiting:
            left = []
            for file in waiting:
                try:
                    pool.Add(file)
                except TypeError:
                    left.append(file)  # The file imports one that comes later.
            if len(left) == len(waiting):
                raise ValueSchemaError(f"the file {left[0].name} of the descriptor imports what is not in it")
            waiting = left
        return pool.FindMessageTypeByName(name)
    except (DecodeError, KeyError) as error:
        raise ValueSchemaError(f"the descriptor does not hold the message {name!r}: {error}") from error


def protobuf_type(message: Descriptor, depth: int = 0) -> pa.DataType:
    """The Arrow type of a message. Raises ValueSchemaError for a recursive message."""
    if depth > _DEPTH_MAX:
        raise ValueSchemaError(f"{message.full_name} contains itself, which no column can")
    return pa.struct([(field.name, _field_type(field, depth)) for field in message.fields])


def _is_map(field: FieldDescriptor) -> bool:
    return field.message_type is not None and bool(field.message_type.GetOptions().map_entry)


def _pair(field: FieldDescriptor) -> tuple[FieldDescriptor, FieldDescriptor]:
    """The fields for key and value of a map."""
    assert field.message_type is not None
    return field.message_type.fields_by_name["key"], field.message_type.fields_by_name["value"]


def _field_type(field: FieldDescriptor, depth: int) -> pa.DataType:
    if _is_map(field):
        key, value = _pair(field)
        return pa.map_(_single_type(key, depth), _single_type(value, depth))
    inside = _single_type(field, depth)
    return pa.list_(pa.field("element", inside)) if field.is_repeated else inside


def _single_type(field: FieldDescriptor, depth: int) -> pa.DataType:
    if field.message_type is not None:
        return protobuf_type(field.message_type, depth + 1)
    if field.type == FieldDescriptor.TYPE_BYTES:
        return pa.binary()
    return _TYPES.get(field.cpp_type, pa.string())


class ProtobufValues:
    """Decodes messages of one type; fields are matched by name."""

    columns: frozenset[str] = frozenset()

    def __init__(self, type_: pa.DataType, files: bytes, name: str) -> None:
        """`files`: a FileDescriptorSet; `name`: the message type in it. Raises ValueSchemaError when the
        message lacks a field of `type_`."""
        self.type = type_
        message = find_message(files, name)
        self._parse = GetMessageClass(message).FromString
        self._build = _message_builder(message, type_)

    def decode(self, data: Bytes, starts: Ints, ends: Ints, present: Bools, column: Column) -> pa.Array:
        """See `Values.decode`. Raises PayloadError for a value that is not such a message."""
        raw = arrays.slices(data, starts[present], ends[present]).to_pylist()
        try:
            messages = [self._parse(value) for value in raw]
        except DecodeError as error:
            raise PayloadError(f"a value is not a Protobuf message of the schema's type: {error}") from error
        return scatter(self._build(messages), present)


Build = Callable[[Sequence[Message | None]], pa.Array]
"""Converts messages, some of which may be None, to an array."""
_Convert = Callable[[Any], object]
"""Converts the value of a field, which has the type that the field declares."""


def _message_builder(message: Descriptor, type_: pa.DataType) -> Build:
    if not pa.types.is_struct(type_):
        raise ValueSchemaError(f"{message.full_name} cannot be read as {type_}")
    builders = []
    for column in type_:
        if column.name not in message.fields_by_name:
            raise ValueSchemaError(f"{message.full_name} has no field {column.name}")
        builders.append(_field_builder(message.fields_by_name[column.name], column.type))

    def build(messages: Sequence[Message | None]) -> pa.Array:
        mask = [each is None for each in messages]
        columns = [builder(messages) for builder in builders]
        if not columns:
            return pa.array([None if none else {} for none in mask], type_)
        return pa.StructArray.from_arrays(
            columns, fields=list(type_), mask=pa.array(mask, pa.bool_()) if any(mask) else None
        )

    return build


def _field_builder(field: FieldDescriptor, type_: pa.DataType) -> Build:
    name = field.name
    if _is_map(field) or field.is_repeated:
        convert = _converter(field, type_)
        return lambda messages: pa.array(
            [None if each is None else convert(getattr(each, name)) for each in messages], type_
        )
    if field.message_type is not None:
        inside = _message_builder(field.message_type, type_)
        return lambda messages: inside(
            [getattr(each, name) if each is not None and each.HasField(name) else None for each in messages]
        )
    single = _single(field)
    if field.has_presence:
        return lambda messages: pa.array(
            [
                single(getattr(each, name)) if each is not None and each.HasField(name) else None
                for each in messages
            ],
            type_,
        )
    return lambda messages: pa.array(
        [None if each is None else single(getattr(each, name)) for each in messages], type_
    )


def _single(field: FieldDescriptor) -> _Convert:
    """A function that converts a field's value to one that Arrow accepts."""
    if field.enum_type is None:
        return lambda value: value
    names = {number: value.name for number, value in field.enum_type.values_by_number.items()}
    return lambda number: names.get(number) or str(number)


def _converter(field: FieldDescriptor, type_: pa.DataType) -> _Convert:
    """A function that converts a repeated field or a map to lists and pairs."""
    if _is_map(field):
        value = _item(_pair(field)[1], type_.item_type)
        return lambda pairs: [(key, value(each)) for key, each in pairs.items()]
    item = _item(field, type_.value_type)
    return lambda items: [item(each) for each in items]


def _item(field: FieldDescriptor, type_: pa.DataType) -> _Convert:
    if field.message_type is None:
        return _single(field)
    build = _message_builder(field.message_type, type_)
    return lambda message: build([message])[0].as_py()
