"""MESSAGE frames: stored entries on their way to a consumer.

    totalSize u32 | commandSize u32 | 08 09 | 4a size | 08 consumer_id | 12 size MessageIdData
    | [18 redelivery_count] | (20 ack_set word)* | [28 consumer_epoch]
    | [0x0e02 u16 | size u32 | 08 broker_timestamp | 10 index]
    | entry

    MessageIdData    08 ledgerId | 10 entryId | [18 partition]

The entry is never opened. While the entry id does not cross a multiple of 128, headers differ only in
`totalSize` and one byte.

Source: Pulsar binary protocol, CommandMessage; PIP-70 for broker metadata.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import lru_cache
from typing import Final, NamedTuple

from magnetar.base.entries import EntryRun
from magnetar.base.ids import ConsumerId, LedgerId, Position
from magnetar.wire.frames import FRAME_HEAD, FrameError, read_varint, varint
from magnetar.wire.payload import EntryError, checksum_matches, entry_layout, split_broker_metadata

_JOIN_BYTES_MAX: Final = 4096
"""Entries up to this size, in bytes, are joined with their neighbours into one buffer. Each buffer of a
`writelines` costs the event loop as much as copying some KiB."""

_BROKER_METADATA_HEAD: Final = struct.Struct(">HI")


class _BlockHeaders(NamedTuple):
    """Headers of the entries whose ids share all but the lowest seven bits."""

    pack: Callable[..., bytes]
    """Packs size, front, low byte, back."""
    front: bytes
    """The bytes between the size and the low byte of the entry id."""
    low: int
    """Low byte of the id of the first entry."""
    back: bytes
    overhead: int
    """Bytes that `totalSize` counts besides the entry."""


class MessageEncoder:
    """Encodes messages for one consumer; keeps the parts that never change."""

    __slots__ = ("_broker_metadata", "_consumer", "_partition")

    def __init__(
        self, consumer_id: ConsumerId, partition: int = -1, *, broker_metadata: bool = False
    ) -> None:
        """`partition` is the index of the topic; -1, for a topic without partitions, is left out of message
        ids. With `broker_metadata` each frame carries when the entry was appended and the index of its last
        message."""
        self._broker_metadata = broker_metadata
        self._consumer = b"\x08" + varint(consumer_id) + b"\x12"
        self._partition = b"" if partition < 0 else b"\x18" + varint(partition)

    def encode(
        self,
        run: EntryRun,
        start: int,
        stop: int,
        out: list[bytes],
        *,
        redelivery_counts: list[int] | None = None,
        ack_sets: list[tuple[int, ...] | None] | None = None,
        consumer_epoch: int | None = None,
    ) -> int:
        """Appends frames for `run.entries[start:stop]` to `out`; returns their bytes.

        `redelivery_counts` and `ack_sets` are parallel to `entries[start:stop]`. Words of an ack set are
        unsigned; a set bit is a message to deliver. Large entries are appended themselves, not copied.
        Costs 0.3 µs per small plain message.
        """
        with_broker_metadata = self._broker_metadata
        end = b"" if consumer_epoch is None else b"\x28" + varint(consumer_epoch)
        if redelivery_counts is None and ack_sets is None and not with_broker_metadata:
            return self._encode_plain(run, start, stop, out, end)
        total = 0
        pieces: list[bytes] = []
        index = run.base_index - 1
        if with_broker_metadata:
            index += start if run.counts is None else sum(run.counts[:start])
        for row in range(start, stop):
            fields = end
            if ack_sets is not None:
                words = ack_sets[row - start]
                if words is not None:
                    fields = b"".join([b"\x20" + varint(word) for word in words]) + fields
            if redelivery_counts is not None and redelivery_counts[row - start]:
                fields = b"\x18" + varint(redelivery_counts[row - start]) + fields
            if with_broker_metadata:
                index += run.count_of(row)
                block = b"\x08" + varint(run.broker_time_ms) + b"\x10" + varint(index)
                block = _BROKER_METADATA_HEAD.pack(0x0E02, len(block)) + block
            else:
                block = b""
            command = self._command(run.ledger_id, run.first_entry + row, fields)
            entry = run.entries[row]
            size = 4 + len(command) + len(block) + len(entry)
            pieces += (FRAME_HEAD.pack(size, len(command)), command, block)
            total += 4 + size
            if size <= _JOIN_BYTES_MAX:
                pieces.append(entry)
            else:
                _flush(pieces, out, entry)
        _flush(pieces, out)
        return total

    def _encode_plain(self, run: EntryRun, start: int, stop: int, out: list[bytes], end: bytes) -> int:
        """Frames that differ only in entry and entry id."""
        total = 0
        entries = run.entries
        first_entry = run.first_entry
        pieces: list[bytes] = []
        row = start
        while row < stop:
            entry_id = first_entry + row
            pack, front, low, back, overhead = self._block_of(run.ledger_id, entry_id, end)
            block_stop = min(stop, row + 128 - (entry_id & 0x7F))
            for entry in entries[row:block_stop]:
                size = overhead + len(entry)
                total += size
                pieces.append(pack(size, front, low, back))
                low += 1
                if size <= _JOIN_BYTES_MAX:
                    pieces.append(entry)
                else:
                    _flush(pieces, out, entry)
            row = block_stop
        _flush(pieces, out)
        return total + 4 * (stop - start)

    def encode_rows(
        self, run: EntryRun, rows: list[int], out: list[bytes], *, consumer_epoch: int | None = None
    ) -> int:
        """Like `encode`, for the entries with these numbers, ascending, whose ids may have gaps."""
        if self._broker_metadata:
            # One by one: few consumers ask for it.
            return sum([self.encode(run, row, row + 1, out, consumer_epoch=consumer_epoch) for row in rows])
        end = b"" if consumer_epoch is None else b"\x28" + varint(consumer_epoch)
        total = 4 * len(rows)
        entries, first_entry = run.entries, run.first_entry
        pieces: list[bytes] = []
        block = -1
        for row in rows:
            entry_id = first_entry + row
            if entry_id >> 7 != block:
                block = entry_id >> 7
                pack, front, _, back, overhead = self._block_of(run.ledger_id, entry_id, end)
                high = 0x80 if block else 0
            entry = entries[row]
            size = overhead + len(entry)
            total += size
            pieces.append(pack(size, front, entry_id & 0x7F | high, back))
            if size <= _JOIN_BYTES_MAX:
                pieces.append(entry)
            else:
                _flush(pieces, out, entry)
        _flush(pieces, out)
        return total

    def encode_unstored(self, entries: list[bytes], out: list[bytes]) -> int:
        """Appends frames for entries of a non-persistent topic, each with the message id 0:0; returns their
        bytes."""
        command = self._command(LedgerId(0), 0, b"")
        overhead = 4 + len(command)
        pieces: list[bytes] = []
        total = 0
        for entry in entries:
            size = overhead + len(entry)
            total += 4 + size
            pieces += (FRAME_HEAD.pack(size, len(command)), command)
            if size <= _JOIN_BYTES_MAX:
                pieces.append(entry)
            else:
                _flush(pieces, out, entry)
        _flush(pieces, out)
        return total

    def _block_of(self, ledger_id: LedgerId, entry_id: int, end: bytes) -> _BlockHeaders:
        """The header that the entries share whose ids differ from this one in the lowest seven bits."""
        command = self._command(ledger_id, entry_id, end)
        low_at = len(command) - len(end) - len(self._partition) - len(varint(entry_id))
        front = _COMMAND_SIZE.pack(len(command)) + command[:low_at]
        back = command[low_at + 1 :]
        pack = _header_struct(len(front), len(back)).pack
        return _BlockHeaders(pack, front, command[low_at], back, 4 + len(command))

    def _command(self, ledger_id: LedgerId, entry_id: int, fields: bytes) -> bytes:
        """The BaseCommand; `fields` are those of CommandMessage from number 3 on."""
        message_id = b"\x08" + varint(ledger_id) + b"\x10" + varint(entry_id) + self._partition
        message = b"".join((self._consumer, bytes((len(message_id),)), message_id, fields))
        return b"\x08\x09\x4a" + varint(len(message)) + message


def _flush(pieces: list[bytes], out: list[bytes], large: bytes = b"") -> None:
    """Moves pieces to `out` as one buffer, and a large one behind them as it is."""
    if pieces:
        out.append(b"".join(pieces))
        pieces.clear()
    if large:
        out.append(large)


_COMMAND_SIZE: Final = struct.Struct(">I")


@lru_cache(maxsize=256)
def _header_struct(front_bytes: int, back_bytes: int) -> struct.Struct:
    return struct.Struct(f">I{front_bytes}sB{back_bytes}s")


class MessageEvent:
    """One entry delivered to one consumer."""

    # No slots: most attributes keep the class's default nearly always, and an attribute that is not set costs
    # nothing.

    consumer_id: ConsumerId
    position: Position
    partition: int = -1
    """-1 when the broker named none."""
    redelivery_count: int = 0
    ack_set: tuple[int, ...] | None = None
    """Unsigned words, least significant first; a set bit is a message to take. None: all messages."""
    consumer_epoch: int | None = None
    broker_time_ms: int | None = None
    """When the broker appended the entry, in Unix milliseconds; None when the broker did not send it."""
    broker_index: int | None = None
    """Index of the entry's last message in the log; None when the broker did not send it."""
    entry: bytes
    metadata_at: int
    """`entry[metadata_at:payload_at]` is the MessageMetadata; the payload starts at `payload_at`."""
    payload_at: int
    intact: bool
    """False when the checksum does not match, or the sizes do not fit (then both offsets are 0)."""

    def __init__(
        self,
        consumer_id: ConsumerId,
        position: Position,
        entry: bytes,
        metadata_at: int,
        payload_at: int,
        *,
        intact: bool = True,
    ) -> None:
        self.consumer_id = consumer_id
        self.position = position
        self.entry = entry
        self.metadata_at = metadata_at
        self.payload_at = payload_at
        self.intact = intact

    def __repr__(self) -> str:
        return f"MessageEvent(consumer={self.consumer_id}, {self.position}, bytes={len(self.entry)})"


class Message(NamedTuple):
    """A CommandMessage without an ack set."""

    consumer_id: ConsumerId
    position: Position
    low_at: int
    """Offset of the entry id's low byte."""
    partition: int
    redelivery_count: int
    consumer_epoch: int | None

    @property
    def plain(self) -> bool:
        """Whether the command holds a position and nothing else about the message."""
        return self.redelivery_count == 0 and self.consumer_epoch is None


def decode_message(data: bytes, at: int, stop: int) -> Message | None:
    """Decodes the CommandMessage in `data[at:stop]` when it has our own layout without an ack set; else
    None."""
    if data[at] != 0x08:
        return None
    consumer_id, at = read_varint(data, at + 1, stop)
    if at > stop - 2 or data[at] != 0x12 or data[at + 1] > 0x7F:
        return None
    id_stop = at + 2 + data[at + 1]
    if id_stop > stop or id_stop - at < 4 or data[at + 2] != 0x08:
        return None
    ledger_id, at = read_varint(data, at + 3, id_stop)
    if at >= id_stop or data[at] != 0x10:
        return None
    low_at = at + 1
    entry_id, at = read_varint(data, low_at, id_stop)
    partition = -1
    if at < id_stop and data[at] == 0x18:
        partition, at = read_varint(data, at + 1, id_stop)
    if at != id_stop or partition >> 31 > 0:
        return None
    redelivery_count = 0
    if at < stop and data[at] == 0x18:
        redelivery_count, at = read_varint(data, at + 1, stop)
    consumer_epoch: int | None = None
    if at < stop and data[at] == 0x28:
        consumer_epoch, at = read_varint(data, at + 1, stop)
    if at != stop or redelivery_count >> 32:
        return None
    return Message(
        ConsumerId(consumer_id),
        Position(LedgerId(ledger_id), entry_id),
        low_at,
        partition,
        redelivery_count,
        consumer_epoch,
    )


def event_of_entry(consumer_id: ConsumerId, position: Position, data: bytes) -> MessageEvent:
    """The event of a message whose frame ends with `data`.

    Raises FrameError when its broker metadata cannot be decoded. A damaged entry is reported to the broker by
    a validation error in the ack, and the connection stays open.
    """
    broker_time_ms: int | None = None
    broker_index: int | None = None
    entry = data
    if data[:2] == b"\x0e\x02":
        broker_time_ms, broker_index, at = _decode_broker_metadata(data)
        entry = data[at:]
    try:
        if checksum_matches(entry):
            _, metadata_at, payload_at = entry_layout(entry)
            event = MessageEvent(consumer_id, position, entry, metadata_at, payload_at)
        else:
            event = MessageEvent(consumer_id, position, entry, 0, 0, intact=False)
    except EntryError:
        event = MessageEvent(consumer_id, position, entry, 0, 0, intact=False)
    event.broker_time_ms = broker_time_ms
    event.broker_index = broker_index
    return event


def _decode_broker_metadata(data: bytes) -> tuple[int | None, int | None, int]:
    """Time, index and end of the block that `data` starts with."""
    stop = 6 + int.from_bytes(data[2:6], "big")
    if 10 <= stop <= len(data) and data[6] == 0x08:
        time_ms, at = read_varint(data, 7, stop)
        if at < stop and data[at] == 0x10:
            index, at = read_varint(data, at + 1, stop)
            if at == stop:
                return time_ms, index, stop
    try:
        broker, stop = split_broker_metadata(data)
    except EntryError as error:
        raise FrameError(str(error)) from error
    assert broker is not None
    return (
        broker.broker_timestamp if broker.HasField("broker_timestamp") else None,
        broker.index if broker.HasField("index") else None,
        stop,
    )
