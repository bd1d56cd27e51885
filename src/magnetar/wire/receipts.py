"""SEND_RECEIPT frames: what a producer is told when its messages are durable.

    totalSize u32 | commandSize u32 | 08 07 | 3a size | 08 producer_id | 10 sequence_id
    | 1a size | 08 ledgerId | 10 entryId | [18 partition] | [20 highest_sequence_id]

A run has consecutive entries, and consecutive sequence ids unless it holds batches. While neither crosses a
multiple of 128, only the low byte of two varints differs between its receipts: then a block of up to
128 equal frames is written and the two columns of bytes are laid over it with strided slices.

Source: Pulsar binary protocol, CommandSendReceipt.
"""

from __future__ import annotations

import struct
from functools import lru_cache
from typing import Final, NamedTuple

from magnetar.base.ids import LedgerId, ProducerId
from magnetar.wire.frames import FRAME_HEAD, NO_ID, read_varint, varint

_BLOCK_ROWS_MIN: Final = 4
"""Below this many rows a block costs more than single rows."""

_SEQUENCE_TAG_AT: Final = 12
"""Where the CommandSendReceipt starts: two sizes, type, tag and size of the field."""


def encode_receipts(
    producer_id: ProducerId,
    sequence_ids: list[int],
    highest_sequence_ids: list[int] | None,
    ledger_id: LedgerId,
    first_entry: int,
    partition: int = -1,
) -> bytes:
    """One frame per sequence id, joined; row i is entry `first_entry + i` of `ledger_id`.

    `highest_sequence_ids` has the same length or is None; a `partition` of -1 is left out. Costs 70 ns per
    receipt when the sequence ids are consecutive and there are no highest ids, else 0.8 µs.
    """
    producer, ledger, end = _alike(producer_id, ledger_id, partition)
    rows = len(sequence_ids)
    if highest_sequence_ids is not None:
        return b"".join(
            [
                _receipt(producer, sequence_id, ledger + varint(entry) + end, b"\x20" + varint(highest))
                for entry, (sequence_id, highest) in enumerate(
                    zip(sequence_ids, highest_sequence_ids, strict=True), first_entry
                )
            ]
        )
    if rows == 1:
        return _receipt(producer, sequence_ids[0], ledger + varint(first_entry) + end, b"")
    blocks: list[bytes | bytearray] = []
    row = 0
    while row < rows:
        entry = first_entry + row
        sequence_id = sequence_ids[row]
        frame = _receipt(producer, sequence_id, ledger + varint(entry) + end, b"")
        size = len(frame)
        count = min(128 - (entry & 0x7F), 128 - (sequence_id & 0x7F), rows - row)
        count = _consecutive(sequence_ids, row, count)
        if count < _BLOCK_ROWS_MIN:
            blocks.append(frame)
            row += 1
            continue
        block = bytearray(frame * count)
        at = _SEQUENCE_TAG_AT + len(producer)
        low = frame[at]
        block[at::size] = bytes(range(low, low + count))
        at = size - len(end) - len(varint(entry))
        low = frame[at]
        block[at::size] = bytes(range(low, low + count))
        blocks.append(block)
        row += count
    return b"".join(blocks)


@lru_cache(maxsize=1024)
def _alike(producer_id: ProducerId, ledger_id: LedgerId, partition: int) -> tuple[bytes, bytes, bytes]:
    """What all receipts of a producer and a ledger have in common: three pieces."""
    end = b"" if partition < 0 else b"\x18" + varint(partition)
    return b"\x08" + varint(producer_id) + b"\x10", b"\x08" + varint(ledger_id) + b"\x10", end


def _consecutive(ids: list[int], start: int, count_max: int) -> int:
    """How many ids from `start` on are consecutive, at most `count_max` >= 1."""
    first = ids[start]
    if ids[start : start + count_max] == list(range(first, first + count_max)):
        return count_max
    count = 1
    while count < count_max and ids[start + count] == first + count:
        count += 1
    return count


def encode_unstored_receipts(
    producer_id: ProducerId, sequence_ids: list[int], highest_sequence_ids: list[int] | None
) -> bytes:
    """One frame per sequence id, joined, for messages of a non-persistent topic: each has the id 0:0.

    `highest_sequence_ids` has the same length or is None. Costs 40 ns per receipt when the sequence ids are
    consecutive and there are no highest ids, else 0.8 µs.
    """
    producer, message_id = b"\x08" + varint(producer_id) + b"\x10", b"\x08\x00\x10\x00"
    if highest_sequence_ids is not None:
        pairs = zip(sequence_ids, highest_sequence_ids, strict=True)
        return b"".join([_receipt(producer, each, message_id, b"\x20" + varint(top)) for each, top in pairs])
    rows = len(sequence_ids)
    if rows < _BLOCK_ROWS_MIN or sequence_ids != list(range(sequence_ids[0], sequence_ids[0] + rows)):
        return b"".join([_receipt(producer, each, message_id, b"") for each in sequence_ids])
    blocks: list[bytearray] = []
    row = 0
    while row < rows:
        sequence_id = sequence_ids[row]
        frame = _receipt(producer, sequence_id, message_id, b"")
        count = min(128 - (sequence_id & 0x7F), rows - row)
        block = bytearray(frame * count)
        at = _SEQUENCE_TAG_AT + len(producer)
        block[at :: len(frame)] = bytes(range(frame[at], frame[at] + count))
        blocks.append(block)
        row += count
    return b"".join(blocks)


def encode_duplicate_receipt(
    producer_id: ProducerId, sequence_id: int, highest_sequence_id: int | None = None
) -> bytes:
    """The receipt of a duplicate, a message that was stored before: its id is -1:-1."""
    unknown = varint(NO_ID)
    highest = b"" if highest_sequence_id is None else b"\x20" + varint(highest_sequence_id)
    message_id = b"\x08" + unknown + b"\x10" + unknown
    return _receipt(b"\x08" + varint(producer_id) + b"\x10", sequence_id, message_id, highest)


def _receipt(producer: bytes, sequence_id: int, message_id: bytes, highest: bytes) -> bytes:
    size = _ID_HEADS[len(message_id)]
    receipt = b"".join((producer, varint(sequence_id), size, message_id, highest))
    return _HEADS[len(receipt)] + receipt


# All sizes here are below 128: a handful of varints of at most ten bytes, and their tags.
_ID_HEADS: Final = tuple(bytes((0x1A, size)) for size in range(0x80))
"""Tag and size of a message id, by its size."""
_HEADS: Final = tuple(
    FRAME_HEAD.pack(size + 8, size + 4) + bytes((0x08, 0x07, 0x3A, size)) for size in range(0x80)
)
"""What stands before a CommandSendReceipt, by its size."""


class ReceiptRun:
    """Receipts of one producer, in order; the lists are parallel."""

    __slots__ = ("entry_ids", "ledger_ids", "producer_id", "sequence_ids")

    producer_id: ProducerId
    sequence_ids: list[int]
    ledger_ids: list[LedgerId]
    """-1 for a duplicate, or when the broker named no position."""
    entry_ids: list[int]

    def __init__(self, producer_id: ProducerId) -> None:
        self.producer_id = producer_id
        self.sequence_ids = []
        self.ledger_ids = []
        self.entry_ids = []

    def __repr__(self) -> str:
        return f"ReceiptRun(producer={self.producer_id}, receipts={len(self.sequence_ids)})"


class Receipt(NamedTuple):
    """A CommandSendReceipt, and the offsets of its ids in the bytes."""

    producer_id: ProducerId
    sequence_id: int
    sequence_at: int
    ledger_id: LedgerId
    entry_id: int
    entry_at: int


def decode_receipt(data: bytes, at: int, stop: int) -> Receipt | None:
    """Decodes the CommandSendReceipt in `data[at:stop]` when it has our own layout; else None."""
    if data[at] != 0x08:
        return None
    producer_id, at = read_varint(data, at + 1, stop)
    if at >= stop or data[at] != 0x10:
        return None
    sequence_at = at + 1
    sequence_id, at = read_varint(data, sequence_at, stop)
    if at > stop - 2 or data[at] != 0x1A or data[at + 1] > 0x7F:
        return None
    id_stop = at + 2 + data[at + 1]
    if id_stop > stop or id_stop - at < 4 or data[at + 2] != 0x08:
        return None
    ledger_id, at = read_varint(data, at + 3, id_stop)
    if at >= id_stop or data[at] != 0x10:
        return None
    entry_at = at + 1
    entry_id, at = read_varint(data, entry_at, id_stop)
    if at < id_stop and data[at] == 0x18:
        _, at = read_varint(data, at + 1, id_stop)
    if at != id_stop:
        return None
    if at < stop and data[at] == 0x20:
        _, at = read_varint(data, at + 1, stop)
    if at != stop:
        return None
    return Receipt(ProducerId(producer_id), sequence_id, sequence_at, LedgerId(ledger_id), entry_id, entry_at)


@lru_cache(maxsize=256)
def receipt_layout(front_bytes: int, middle_bytes: int, back_bytes: int) -> struct.Struct:
    """Cuts a receipt around the low bytes of its sequence id and entry id."""
    return struct.Struct(f">{front_bytes}sB{middle_bytes}sB{back_bytes}s")
