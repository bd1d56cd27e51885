"""Bound on the fields of a command: a command with more is refused before it is decoded (pure).

protobuf makes an object of each field that is a message. A command of 1.5 MiB, the longest that may carry a
schema, holds up to 800,000 empty properties, which take 600 ms and 60 MB to decode. This module counts fields
on the bytes, and stops at the bound.
"""

from __future__ import annotations

from typing import Final

from google.protobuf.descriptor import Descriptor

from magnetar.wire import pulsar_pb2 as pb
from magnetar.wire.frames import FrameError, read_varint

FIELDS_MAX: Final = 4_096
"""Fields of a command with its properties and those of its schema; the fields inside a property do not count.
Twice the 256 properties that consumer and subscription may have, those of the schema, and 3,000 ranges of
hashes."""
_LOOKED_AT_BYTES: Final = 2 * FIELDS_MAX
"""A shorter command cannot exceed the bound: a field takes at least two bytes."""
_MESSAGE_IDS: Final = frozenset((10, 20))
"""ACK and REDELIVER_UNACKNOWLEDGED_MESSAGES: the message ids in them cost 5 ns each to decode."""
_COMMAND: Final[Descriptor] = pb.BaseCommand.DESCRIPTOR  # type: ignore[assignment]  # upb has its own class
_LEAVES: Final = frozenset((pb.KeyValue.DESCRIPTOR, pb.MessageIdData.DESCRIPTOR))
"""Messages in which a further field costs nothing."""
_VARINT_BYTES_MAX: Final = 5
"""Bytes of a tag or a length, at most."""
_WIDTHS: Final = {1: 8, 5: 4}
"""Bytes of a value of fixed width, by wire type."""


def check_fields(command: bytes) -> None:
    """Raises FrameError when a BaseCommand has too many fields, or is encoded as no client does.

    Costs 0.3 µs per field, for at most `FIELDS_MAX` fields.
    """
    size = len(command)
    if size <= _LOOKED_AT_BYTES:
        return
    kind, at = read_varint(command, 1, size)
    if command[0] != 0x08 or at > size:
        raise FrameError(f"command of {size} bytes that does not begin with its type")
    if kind in _MESSAGE_IDS:
        tag, at = read_varint(command, at, size)
        length, at = read_varint(command, at, size)
        if tag != kind << 3 | 2 or at + length != size:
            raise FrameError(f"command {kind} of {size} bytes that is more than its own field")
        return
    fields = 0
    waiting: list[tuple[int, int, Descriptor]] = [(0, size, _COMMAND)]
    while waiting:
        at, stop, descriptor = waiting.pop()
        inner = _messages_in(descriptor)
        while at < stop:
            fields += 1
            if fields > FIELDS_MAX:
                raise FrameError(f"command {kind} of {size} bytes with more than {FIELDS_MAX} fields")
            end = min(stop, at + _VARINT_BYTES_MAX)
            tag, at = read_varint(command, at, end)
            wire_type = tag & 7
            if at > end or not tag >> 3:
                raise FrameError(f"command of {size} bytes cannot be decoded")
            if wire_type == 2:
                end = min(stop, at + _VARINT_BYTES_MAX)
                length, at = read_varint(command, at, end)
                if at > end or length > stop - at:
                    raise FrameError(f"command of {size} bytes cannot be decoded")
                found = inner.get(tag >> 3)
                if found is not None:
                    waiting.append((at, at + length, found))
                at += length
            elif wire_type == 0:
                while at < stop and command[at] > 0x7F:
                    at += 1
                at += 1
            else:
                # A group's begin and end are tags alone.
                at += _WIDTHS.get(wire_type, 0)


_known: dict[Descriptor, dict[int, Descriptor]] = {}


def _messages_in(descriptor: Descriptor) -> dict[int, Descriptor]:
    """The nested messages whose fields count too, by the number of their field."""
    found = _known.get(descriptor)
    if found is None:
        found = _known[descriptor] = {
            field.number: field.message_type
            for field in descriptor.fields
            if field.message_type is not None and field.message_type not in _LEAVES
        }
    return found
