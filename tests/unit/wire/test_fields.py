"""How many fields a command may have: what has more is refused before it is decoded."""

from __future__ import annotations

import struct

import pytest

from magnetar.wire import pulsar_pb2 as pb
from magnetar.wire.fields import FIELDS_MAX, check_fields
from magnetar.wire.frames import FrameError
from magnetar.wire.server import ServerParser

_SUBSCRIBE = b"\x0a\x01t\x12\x01s\x18\x01\x20\x01\x28\x01"
_PROPERTY = b"\x52\x04\x0a\x00\x12\x00"


def _varint(value: int) -> bytes:
    out = b""
    while value > 0x7F:
        out, value = out + bytes((value & 0x7F | 0x80,)), value >> 7
    return out + bytes((value,))


def _field(number: int, data: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(data)) + data


def _subscribe(more: bytes) -> bytes:
    return b"\x08\x04" + _field(4, _SUBSCRIBE + more)


def _schema(properties: bytes) -> bytes:
    return _field(
        12, pb.Schema(name="n", type=pb.Schema.Json, schema_data=b"{}").SerializeToString() + properties
    )


def _read(command: bytes) -> None:
    frame = struct.pack(">II", len(command) + 4, len(command)) + command
    ServerParser(6 << 20).parse(frame, len(frame))


@pytest.mark.parametrize(
    "command",
    [
        _subscribe(_PROPERTY * FIELDS_MAX),
        _subscribe(b"\x52\x00" * FIELDS_MAX),
        _subscribe(_schema(b"\x22\x04\x0a\x00\x12\x00" * FIELDS_MAX)),
        _subscribe(
            b"\x8a\x01" + _varint(6 * FIELDS_MAX + 2) + b"\x08\x01" + b"\x12\x04\x08\x01\x10\x02" * FIELDS_MAX
        ),
        _subscribe(b"\x98\x7d\x01" * FIELDS_MAX),
        _subscribe(b"\x9b\x7d\x9c\x7d" * FIELDS_MAX),
        _subscribe(b"") + _field(4, _PROPERTY * FIELDS_MAX),
        b"\x08\x12" + _field(18, b"") + _field(4, _PROPERTY * FIELDS_MAX),
        _field(4, _SUBSCRIBE + _PROPERTY * 2_000) + b"\x08\x04",
        b"\x08\x0a" + _field(10, b"\x08\x01\x10\x00") + _field(4, _PROPERTY * FIELDS_MAX),
        _subscribe(b"\x80\x80\x80\x80\x80\x80\x00" + _PROPERTY * FIELDS_MAX),
        _subscribe(b"\x02\x00" + _PROPERTY * FIELDS_MAX),
        _subscribe(b"\x52\xff\xff\xff\x7f" + _PROPERTY * FIELDS_MAX),
    ],
    ids=str,
)
def test_too_many_fields_are_refused_undecoded(command: bytes) -> None:
    with pytest.raises(FrameError):
        check_fields(command)


def test_the_parser_counts_before_it_decodes() -> None:
    # An empty property misses what it must have: a decoder would say that.
    with pytest.raises(FrameError, match="more than 4096 fields"):
        _read(_subscribe(b"\x52\x00" * FIELDS_MAX))


def test_texts_numbers_and_ids_are_no_fields_of_their_own() -> None:
    more = (
        _field(11, b"\x08\x01" * 9_000) + _field(6, b"n" * 20_000) + b"\x79" + bytes(8) + b"\x7d" + bytes(4)
    )
    check_fields(_subscribe(more + _PROPERTY * 600 + b"\x60" + b"\xff" * 9 + b"\x01"))


def test_ids_of_messages_are_not_counted() -> None:
    ids = pb.CommandAck(consumer_id=1, ack_type=pb.CommandAck.Individual)
    for entry_id in range(20_000):
        ids.message_id.add(ledgerId=1, entryId=entry_id, ack_set=[1])
    check_fields(b"\x08\x0a" + _field(10, ids.SerializeToString()))


def test_a_short_command_is_not_looked_at() -> None:
    check_fields(b"\xff" * 2 * FIELDS_MAX)
