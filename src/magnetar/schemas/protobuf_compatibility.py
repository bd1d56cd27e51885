"""Checks whether a reader with one Protobuf message type can read the messages of another.

Protobuf decodes by field number and skips unknown fields, so fewer rules are needed than for Avro: fields of
the same number must have the same encoding, and a field that the reader requires must be required by the
writer too.

    schema_data    JSON: fileDescriptorSet (base64 of a FileDescriptorSet), rootMessageTypeName,
                   rootFileDescriptorName

Source: Protocol Buffers documentation, "Updating A Message Type"; Pulsar's ProtobufNativeSchemaData.
"""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass
from typing import Final

from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorSet
from google.protobuf.message import DecodeError

from magnetar.schemas.avro_definition import parse_json
from magnetar.schemas.errors import InvalidSchemaError

_Type = FieldDescriptorProto.Type

_ALIKE: Final[tuple[frozenset[int], ...]] = (
    frozenset(
        (
            _Type.TYPE_INT32,
            _Type.TYPE_UINT32,
            _Type.TYPE_INT64,
            _Type.TYPE_UINT64,
            _Type.TYPE_BOOL,
            _Type.TYPE_ENUM,
        )
    ),
    frozenset((_Type.TYPE_SINT32, _Type.TYPE_SINT64)),
    frozenset((_Type.TYPE_FIXED32, _Type.TYPE_SFIXED32)),
    frozenset((_Type.TYPE_FIXED64, _Type.TYPE_SFIXED64)),
    frozenset((_Type.TYPE_STRING, _Type.TYPE_BYTES)),
)
"""Groups of types that are compatible with each other; other types match only themselves."""


@dataclass(frozen=True, slots=True)
class MessageTypes:
    """All message types of a definition by full name (`.package.Outer.Inner`), and the name of the root."""

    root: str
    messages: dict[str, DescriptorProto]


def parse(data: bytes) -> MessageTypes:
    """The message types of a definition. Raises InvalidSchemaError."""
    document = parse_json(data, "a ProtobufNative definition")
    try:
        if not isinstance(document, dict):
            raise TypeError
        root = str(document["rootMessageTypeName"])
        files = FileDescriptorSet.FromString(base64.b64decode(document["fileDescriptorSet"]))
    except (KeyError, TypeError, ValueError, binascii.Error, DecodeError) as error:
        raise InvalidSchemaError(
            "a ProtobufNative definition holds rootMessageTypeName and fileDescriptorSet in base64"
        ) from error
    messages: dict[str, DescriptorProto] = {}
    for file in files.file:
        prefix = f".{file.package}" if file.package else ""
        waiting = [(f"{prefix}.{message.name}", message) for message in file.message_type]
        while waiting:
            name, message = waiting.pop()
            if len({field.number for field in message.field}) < len(message.field):
                raise InvalidSchemaError(f"two fields of {name[1:]} have the same number")
            messages[name] = message
            waiting.extend((f"{name}.{inner.name}", inner) for inner in message.nested_type)
    if f".{root}" not in messages:
        raise InvalidSchemaError(f"the definition does not hold its root message {root}")
    return MessageTypes(root, messages)


def unreadable(reader: MessageTypes, writer: MessageTypes) -> str | None:
    """Why `reader` cannot read all messages of `writer`; None when it can."""
    if reader.root != writer.root:
        return f"the root message is {reader.root} as read and {writer.root} as written"
    waiting = [(f".{reader.root}", f".{writer.root}")]
    seen = set(waiting)
    while waiting:
        read_name, written_name = waiting.pop()
        read, written = reader.messages.get(read_name), writer.messages.get(written_name)
        if read is None or written is None:
            # The definition lacks the imported file: the type cannot be compared.
            continue
        written_fields = {field.number: field for field in written.field}
        for field in read.field:
            source = written_fields.get(field.number)
            reason = _field(field, source)
            if reason is not None:
                return f"field {read_name[1:]}.{field.name} (number {field.number}) {reason}"
            if source is not None and field.type in (_Type.TYPE_MESSAGE, _Type.TYPE_GROUP):
                pair = (field.type_name, source.type_name)
                if pair not in seen:
                    seen.add(pair)
                    waiting.append(pair)
    return None


def _field(reader: FieldDescriptorProto, writer: FieldDescriptorProto | None) -> str | None:
    required = FieldDescriptorProto.Label.LABEL_REQUIRED
    if reader.label == required and (writer is None or writer.label != required):
        return "is required and may be missing in what was written"
    if writer is None or reader.type == writer.type:
        return None
    if any(reader.type in group and writer.type in group for group in _ALIKE):
        return None
    texts = [_Type.Name(each.type).removeprefix("TYPE_").lower() for each in (writer, reader)]
    return f"was written as {texts[0]}, which cannot be read as {texts[1]}"
