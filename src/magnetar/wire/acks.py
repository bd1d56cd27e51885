"""ACK: the hand-written codec for entry-level acks, and protobuf for everything else.

    CommandAck       08 consumer_id | 10 ack_type | (1a size MessageIdData)* | [40 request_id]
    MessageIdData    08 ledgerId | 10 entryId | [18 partition] | [20 batch_index] | [30 batch_size]

Tags in hexadecimal, values are varints. Clients put what one read brought them into one ACK, hundreds of
ids that differ in the entry only: those are read by columns.

Source: Pulsar binary protocol, CommandAck and MessageIdData.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from magnetar.base.ids import ConsumerId, LedgerId, Position, RequestId, positions_of
from magnetar.wire import pulsar_pb2 as pb
from magnetar.wire.events import AckEvent, FlowEvent, TxnBits
from magnetar.wire.frames import FRAME_HEAD, position_of, read_varint, varint

_WORD: Final = (1 << 64) - 1
_ACK_WORDS_MAX: Final = 1 << 14
"""Words in the bit set of one entry: enough for a batch of a million messages."""
_WORDS_MAX: Final = 1 << 16
"""Words in all bit sets of one ACK. Entries past this bound are not acknowledged and are delivered again."""

_WINDOW_MIN: Final = 16
_WINDOW_MAX: Final = 1024
"""Pieces compared in one step. The window doubles while all pieces in it match, so the cost grows with the
length of a list even when no piece matches, not with its square."""

_WITHOUT_HIGH_BIT: Final = bytes(value ^ 0x80 for value in range(256))


def decode_ack(data: bytes, at: int, stop: int) -> AckEvent | None:
    """Decodes the CommandAck in `data[at:stop]`; None when it has another shape than the one above, and
    protobuf must decode it."""
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
        start = at
        at += 2
        end = at + data[at - 1]
        if data[at - 1] > 0x7F or end > stop or end - at < 4 or data[at] != 0x08:
            return None
        number, at = read_varint(data, at + 1, end)
        if at >= end or data[at] != 0x10:
            return None
        low_at = at + 1
        entry_id, at = read_varint(data, low_at, end)
        entry_end = at
        last = 0x10
        while at < end:
            tag = data[at]
            if tag <= last or tag not in _IGNORED_ID_TAGS:
                return None
            last = tag
            _, at = read_varint(data, at + 1, end)
        if at != end:
            return None
        ledger_id = LedgerId(number)
        positions.append(Position(ledger_id, entry_id))
        if data[at : at + low_at - start] == data[start:low_at]:
            stride = end - start
            ids = alike_entry_ids(data, at, stop, stride, low_at - start, entry_end - low_at)
            positions += positions_of(ledger_id, ids)
            at += stride * len(ids)
    request_id: RequestId | None = None
    if at < stop and data[at] == 0x40:
        number, at = read_varint(data, at + 1, stop)
        request_id = RequestId(number)
    if at != stop:
        return None
    return AckEvent(ConsumerId(consumer_id), positions, cumulative=kind == 1, request_id=request_id)


def alike_entry_ids(
    data: bytes, at: int, stop: int, stride: int, low_at: int, width: int, count_max: int = 1 << 31
) -> list[int]:
    """Entry ids of up to `count_max` pieces from `data[at]` on. Each piece repeats the piece of `stride`
    bytes just before `at`, except for the varint of `width` bytes at its offset `low_at`.

    Costs 0.1 µs per piece.
    """
    found: list[int] = []
    window = _WINDOW_MIN
    while True:
        window = min(window, count_max - len(found))
        ids = _window_of_ids(data, at, stop, stride, low_at, width, window)
        found += ids
        if not ids or len(ids) < window:
            return found
        at += stride * len(ids)
        window = min(2 * window, _WINDOW_MAX)


def _window_of_ids(
    data: bytes, at: int, stop: int, stride: int, low_at: int, width: int, count_max: int
) -> list[int]:
    count = min(count_max, (stop - at) // stride)
    for place in (*range(low_at), *range(low_at + width, stride)):
        column = data[at + place : at + stride * count : stride]
        known = data[at + place - stride : at + place - stride + 1]
        count -= len(column.lstrip(known))
        if not count:
            return []
    end = at + stride * count
    last_at = low_at + width - 1
    column = data[at + last_at : end : stride]
    if not column.isascii():
        return []
    entry_ids = list(column)
    for place in range(last_at - 1, low_at - 1, -1):
        column = data[at + place : end : stride].translate(_WITHOUT_HIGH_BIT)
        if not column.isascii():
            return []
        entry_ids = [high << 7 | low for high, low in zip(entry_ids, column, strict=True)]
    return entry_ids


def add_acks_alike(ack: AckEvent, data: bytes, at: int, end: int, positions_max: int) -> int:
    """Adds the frames from `end` on that are the ACK in `data[at:end]`, the last one of `ack`, but for the
    entry id, as clients send them that acknowledge each message at once; returns where the first other frame
    starts."""
    if not ack.positions or data[end : end + 18] != data[at : at + 18]:
        return end
    position = ack.positions[-1]
    if data[at:end] != encode_ack(ack.consumer_id, (position,)):
        return end  # it says more than the usual one
    room = positions_max - len(ack.positions)
    width = len(varint(position.entry_id))
    stride = end - at
    ids = alike_entry_ids(data, end, len(data), stride, stride - width, width, max(0, room))
    ack.positions += positions_of(position.ledger_id, ids)
    return end + stride * len(ids)


def decode_flow(data: bytes, at: int, stop: int) -> FlowEvent | None:
    """The CommandFlow in `data[at:stop]`, which begins with a consumer id; None when protobuf decides."""
    consumer_id, at = read_varint(data, at + 1, stop)
    if at >= stop or data[at] != 0x10:
        return None
    permits, at = read_varint(data, at + 1, stop)
    return FlowEvent(ConsumerId(consumer_id), permits) if at == stop and permits <= 0xFFFFFFFF else None


_IGNORED_ID_TAGS: Final = frozenset((0x18, 0x20, 0x30))
"""Partition, batch index and batch size: ignored when an entry is acknowledged as a whole."""


def ack_of_command(command: pb.CommandAck) -> AckEvent:
    """The event of a parsed CommandAck of any shape."""
    words_left = _WORDS_MAX
    positions: list[Position] = []
    batch_acks: list[tuple[Position, tuple[int, ...], int]] = []
    for message_id in command.message_id:
        position = position_of(message_id)
        if message_id.ack_set:
            # No batch has as many messages as the words past this bound stand for; the broker does not keep
            # them either.
            said = message_id.ack_set[:_ACK_WORDS_MAX]
            words_left -= len(said)
            if words_left < 0:
                break
            words = tuple(word & _WORD for word in said)
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
        txn=txn_of(command),
    )


def txn_of(command: pb.CommandAck | pb.CommandSend) -> TxnBits | None:
    """The transaction that a command belongs to; None when it belongs to none."""
    if command.HasField("txnid_least_bits") or command.HasField("txnid_most_bits"):
        return command.txnid_most_bits, command.txnid_least_bits
    return None


def encode_ack(
    consumer_id: ConsumerId,
    positions: Iterable[Position],
    *,
    cumulative: bool = False,
    request_id: RequestId | None = None,
) -> bytes:
    """An ACK frame for whole entries. A cumulative ack takes one position. Ids must be >= 0."""
    parts = [b"\x08", varint(consumer_id), b"\x10\x01" if cumulative else b"\x10\x00"]
    for ledger_id, entry_id in positions:
        message_id = b"\x08" + varint(ledger_id) + b"\x10" + varint(entry_id)
        parts += (b"\x1a", varint(len(message_id)), message_id)
    if request_id is not None:
        parts += (b"\x40", varint(request_id))
    ack = b"".join(parts)
    body = b"\x08\x0a\x52" + varint(len(ack)) + ack
    return FRAME_HEAD.pack(len(body) + 4, len(body)) + body


def encode_flow(consumer_id: ConsumerId, permits: int) -> bytes:
    """A FLOW frame: the consumer grants `permits` >= 0 more messages."""
    flow = b"\x08" + varint(consumer_id) + b"\x10" + varint(permits)
    body = b"\x08\x0b\x5a" + varint(len(flow)) + flow
    return FRAME_HEAD.pack(len(body) + 4, len(body)) + body
