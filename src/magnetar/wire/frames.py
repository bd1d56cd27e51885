"""Frames: the envelope around every command, and the numbers both directions share.

    Simple frame     totalSize u32 | commandSize u32 | BaseCommand
    Payload frame    totalSize u32 | commandSize u32 | BaseCommand
                     [0x0e02 u16 | size u32 | BrokerEntryMetadata]     only broker to client
                     [0x0e01 u16 | CRC32C u32]                         checksum of all that follows
                     metadataSize u32 | MessageMetadata | payload

All integers are big-endian and unsigned; `totalSize` counts the bytes after itself. Only SEND and
MESSAGE have a payload.

Source: Pulsar binary protocol, framing.
"""

from __future__ import annotations

import struct
from functools import lru_cache
from typing import Any, Final

from google.protobuf.message import DecodeError, Message

from magnetar.base.errors import ProtocolError
from magnetar.base.ids import LedgerId, Position, RequestId
from magnetar.wire import pulsar_pb2 as pb

MESSAGE_BYTES_MAX: Final = 5 * 1024 * 1024
"""Default of the largest message that a broker accepts, in bytes; announced in CONNECTED."""

FRAME_PADDING_BYTES: Final = 10 * 1024
"""Bytes of a frame beyond the largest message: command and metadata."""

MAGIC_CHECKSUM: Final = 0x0E01
MAGIC_BROKER_METADATA: Final = 0x0E02

NO_ID: Final = (1 << 64) - 1
"""-1 as the unsigned field that holds ledger and entry ids: "no position"."""

NO_REQUEST: Final = RequestId(NO_ID)
"""The request id of a command that answers no request."""

FRAME_HEAD: Final = struct.Struct(">II")
"""totalSize, commandSize."""

CHECKSUM_HEAD: Final = struct.Struct(">HII")
"""Magic, CRC32C, metadataSize."""


class FrameError(ProtocolError):
    """The peer sent bytes that are not a legal frame: the connection must be closed.

    `events` holds the events from the same buffer before the bad frame.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason
        self.events: list[object] = []


def varint(value: int) -> bytes:
    """Encodes `value` >= 0 as a protobuf varint."""
    if value < 0x80:
        return _LAST_BYTE[value]
    return _FIRST_BYTE[value & 0x7F] + _varint_rest(value >> 7)


@lru_cache(maxsize=4096)
def _varint_rest(value: int) -> bytes:
    # Consecutive ids share all but their low seven bits.
    return varint(value)


_LAST_BYTE: Final = tuple(bytes((value,)) for value in range(0x80))
_FIRST_BYTE: Final = tuple(bytes((value | 0x80,)) for value in range(0x80))


def read_varint(data: bytes, at: int, stop: int) -> tuple[int, int]:
    """The varint at `data[at]` and the offset after it.

    The offset is `stop + 1` when the varint does not end before `stop`, or is longer than nine bytes (63
    bits): longer ones are legal, but rare enough that hand decoders leave them to protobuf.
    """
    value = shift = 0
    end = at + 9
    if end > stop:
        end = stop
    while at < end:
        byte = data[at]
        at += 1
        if byte < 0x80:
            return value | byte << shift, at
        value |= (byte & 0x7F) << shift
        shift += 7
    return 0, stop + 1


def signed(value: int) -> int:
    """An unsigned 64-bit field as a signed number: ledger and entry ids of -1 travel this way."""
    return value - (1 << 64) if value >> 63 else value


def position_of(message_id: pb.MessageIdData) -> Position:
    """The position in a message id; negative ids such as -1:-1 are kept."""
    return Position(LedgerId(signed(message_id.ledgerId)), signed(message_id.entryId))


def frame_bytes_max(message_bytes_max: int) -> int:
    """Largest legal `totalSize` + 4 for a broker that takes messages of `message_bytes_max` bytes."""
    return message_bytes_max + FRAME_PADDING_BYTES


def command_end(data: bytes | memoryview, at: int, end: int) -> int:
    """Where the command of the frame in `data[at:end]` ends. Raises FrameError when it does not fit in it."""
    total = end - at - 4
    if total < 4:
        raise FrameError(f"frame of {total} bytes is too short for a command")
    command_bytes: int = FRAME_HEAD.unpack_from(data, at)[1]
    stop = at + 8 + command_bytes
    if stop > end:
        raise FrameError(f"command of {command_bytes} bytes in a frame of {total}")
    return stop


def encode_command(command: pb.BaseCommand) -> bytes:
    """Encodes a simple frame. Raises google.protobuf.message.EncodeError when a required field is not set."""
    body = command.SerializeToString()
    return FRAME_HEAD.pack(len(body) + 4, len(body)) + body


_FIELD_OF_TYPE: Final = {
    number: pb.BaseCommand.DESCRIPTOR.fields_by_number[number].name for number in pb.BaseCommand.Type.values()
}

_PAIR: Final = pb.KeyValue.DESCRIPTOR
"""Properties, which are a repeated field wherever they occur."""
_MESSAGE_ID: Final = pb.MessageIdData.DESCRIPTOR
"""A command may hold a hundred thousand of them, and none has a text."""


def _may_hold_text(message: Any, seen: frozenset[str] = frozenset()) -> bool:
    if message.full_name in seen:
        return False
    return any(
        _may_hold_text(field.message_type, seen | {message.full_name})
        if field.message_type is not None
        else field.type == field.TYPE_STRING
        for field in message.fields
    )


_WITHOUT_TEXT: Final = frozenset(
    number
    for number, name in _FIELD_OF_TYPE.items()
    if not _may_hold_text(pb.BaseCommand.DESCRIPTOR.fields_by_name[name].message_type)
)
"""Types whose commands have no text, those that begin and end transactions among them."""


def parse_command(data: bytes) -> tuple[int, pb.BaseCommand]:
    """Type and content of a BaseCommand; the field of its type is set, with all required fields.

    An unknown type returns its number and an empty command. Raises FrameError when the bytes are not
    a BaseCommand.
    """
    try:
        command = pb.BaseCommand.FromString(data)
    except DecodeError as error:
        raise FrameError(f"command of {len(data)} bytes cannot be decoded") from error
    if not command.HasField("type"):
        kind, at = read_varint(data, 1, len(data)) if data[:1] == b"\x08" else (0, len(data) + 1)
        if at > len(data) or kind in _FIELD_OF_TYPE:
            raise FrameError("command without a type")
        return kind, command
    kind = command.type
    # upb itself does not check required fields.
    if not command.HasField(_FIELD_OF_TYPE[kind]) or not command.IsInitialized():
        raise FrameError(f"{pb.BaseCommand.Type.Name(kind)} without required fields")
    if kind not in _WITHOUT_TEXT and not _is_text(command):
        raise FrameError(f"{pb.BaseCommand.Type.Name(kind)} with text that is not UTF-8")
    return kind, command


def _is_text(message: Message) -> bool:
    """Whether all strings are valid UTF-8. protobuf returns others as bytes, which callers do not expect."""
    for field, value in message.ListFields():
        if field.cpp_type == field.CPPTYPE_MESSAGE:
            if field.message_type is _PAIR:
                # A command may hold hundreds of properties: checking each through its field descriptors takes
                # ten times as long.
                if not all(isinstance(pair.key, str) and isinstance(pair.value, str) for pair in value):
                    return False
            elif field.message_type is _MESSAGE_ID:
                continue
            elif not all(map(_is_text, value if field.is_repeated else (value,))):
                return False
        elif field.type == field.TYPE_STRING and not all(
            isinstance(text, str) for text in (value if field.is_repeated else (value,))
        ):
            return False
    return True
