"""ACK: the hand-written codec for entry-level acks, and protobuf for everything else.

    CommandAck       08 consumer_id | 10 ack_type | (1a size MessageIdData)* | [40 request_id]
    MessageIdData    08 ledgerId | 10 entryId | [18 partition] | [20 batch_index] | [30 batch_size]

Tags in hexadecimal, values are varints. Source: Pulsar binary protocol, CommandAck and MessageIdData.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from magnetar.base.ids import Position
from magnetar.wire import pulsar_pb2 as pb
from magnetar.wire.events import AckEvent
from magnetar.wire.frames import FRAME_HEAD, position_of, read_varint, varint

_WORD: Final = (1 << 64) - 1


def decode_ack(data: bytes, at: int, stop: int) -> AckEvent | None:
    """The CommandAck in `data[at:stop]`; None when it is not of the shape above: then protobuf decides."""
    if stop - at < 4 or data[at] != 0x08:
        return None
    consumer_id, at = read_varint(data, at + 1, stop)
    if at > stop - 2 or data[at] != 0x10:
        return None
    kind = data[at + 1]
    if kind > 1:
        return None
    at += 2
    positions: list[Position] = []
    while at < stop - 1 and data[at] == 0x1A:
        at += 2
        end = at + data[at - 1]
        if data[at - 1] > 0x7F or end > stop or end - at < 4 or data[at] != 0x08:
            return None
        ledger_id, at = read_varint(data, at + 1, end)
        if at >= end or data[at] != 0x10:
            return None
        entry_id, at = read_varint(data, at + 1, end)
        last = 0x10
        while at < end:
            tag = data[at]
            if tag <= last or tag not in _IGNORED_ID_TAGS:
                return None
            last = tag
            _, at = read_varint(data, at + 1, end)
        if at != end:
            return None
        positions.append(Position(ledger_id, entry_id))
    request_id: int | None = None
    if at < stop and data[at] == 0x40:
        request_id, at = read_varint(data, at + 1, stop)
    if at != stop:
        return None
    return AckEvent(consumer_id, positions, cumulative=kind == 1, request_id=request_id)


_IGNORED_ID_TAGS: Final = frozenset((0x18, 0x20, 0x30))
"""Partition, batch index and batch size say nothing more about an entry that is acknowledged whole."""


def ack_of_command(command: pb.CommandAck) -> AckEvent:
    """The event of a parsed CommandAck, of any shape."""
    positions: list[Position] = []
    batch_acks: list[tuple[Position, tuple[int, ...], int]] = []
    for message_id in command.message_id:
        position = position_of(message_id)
        if message_id.ack_set:
            words = tuple(word & _WORD for word in message_id.ack_set)
            batch_acks.append((position, words, max(message_id.batch_size, 0)))
        else:
            positions.append(position)
    return AckEvent(
        command.consumer_id,
        positions,
        cumulative=command.ack_type == pb.CommandAck.Cumulative,
        batch_acks=batch_acks or None,
        request_id=command.request_id if command.HasField("request_id") else None,
        validation_error=command.validation_error if command.HasField("validation_error") else None,
        transactional=command.HasField("txnid_least_bits") or command.HasField("txnid_most_bits"),
    )


def encode_ack(
    consumer_id: int,
    positions: Iterable[Position],
    *,
    cumulative: bool = False,
    request_id: int | None = None,
) -> bytes:
    """An ACK frame for whole entries; a cumulative one takes one position. Ids must be >= 0."""
    parts = [b"\x08", varint(consumer_id), b"\x10\x01" if cumulative else b"\x10\x00"]
    for ledger_id, entry_id in positions:
        message_id = b"\x08" + varint(ledger_id) + b"\x10" + varint(entry_id)
        parts += (b"\x1a", varint(len(message_id)), message_id)
    if request_id is not None:
        parts += (b"\x40", varint(request_id))
    ack = b"".join(parts)
    body = b"\x08\x0a\x52" + varint(len(ack)) + ack
    return FRAME_HEAD.pack(len(body) + 4, len(body)) + body


def encode_flow(consumer_id: int, permits: int) -> bytes:
    """A FLOW frame: the consumer takes `permits` >= 0 more messages."""
    flow = b"\x08" + varint(consumer_id) + b"\x10" + varint(permits)
    body = b"\x08\x0b\x5a" + varint(len(flow)) + flow
    return FRAME_HEAD.pack(len(body) + 4, len(body)) + body
