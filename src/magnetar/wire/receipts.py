"""SEND_RECEIPT frames: what a producer is told when its messages are durable.

    totalSize u32 | commandSize u32 | 08 07 | 3a size | 08 producer_id | 10 sequence_id
    | 1a size | 08 ledgerId | 10 entryId | [18 partition] | [20 highest_sequence_id]

A run has consecutive entries and nearly always consecutive sequence ids. While neither crosses a
multiple of 128, only the low byte of two varints differs between its receipts: then a block of up to
128 equal frames is written and the two columns of bytes are laid over it with strided slices.

Source: Pulsar binary protocol, CommandSendReceipt.
"""

from __future__ import annotations

from magnetar.wire.frames import FRAME_HEAD, NO_ID, varint


def encode_receipts(
    producer_id: int,
    sequence_ids: list[int],
    highest_sequence_ids: list[int] | None,
    ledger_id: int,
    first_entry: int,
    partition: int = -1,
) -> bytes:
    """One frame per sequence id, joined; row i is entry `first_entry + i` of `ledger_id`.

    `highest_sequence_ids` has the same length or is None; `partition` -1 is left out. Costs 30 ns per
    receipt in long runs without highest ids, 0.7 µs per receipt otherwise.
    """
    end = b"" if partition < 0 else b"\x18" + varint(partition)
    producer = b"\x08" + varint(producer_id) + b"\x10"
    ledger = b"\x08" + varint(ledger_id) + b"\x10"
    if highest_sequence_ids is not None:
        return b"".join(
            [
                _receipt(producer, sequence_id, ledger + varint(entry) + end, b"\x20" + varint(highest))
                for entry, (sequence_id, highest) in enumerate(
                    zip(sequence_ids, highest_sequence_ids, strict=True), first_entry
                )
            ]
        )
    out: list[bytes | bytearray] = []
    row = 0
    rows = len(sequence_ids)
    while row < rows:
        entry = first_entry + row
        sequence_id = sequence_ids[row]
        frame = _receipt(producer, sequence_id, ledger + varint(entry) + end, b"")
        block = sequence_ids[row : row + 128 - (entry & 0x7F)]
        base = sequence_id & ~0x7F
        if max(block) > base + 0x7F:
            block = block[: base + 0x80 - sequence_id]  # all of one base when they are consecutive
        if min(block) < base or max(block) > base + 0x7F:
            block = _same_base(block, base)
        count = len(block)
        if count < 4:
            out.append(frame)
            row += 1
            continue
        size = len(frame)
        frames = bytearray(frame * count)
        sequence_at = 12 + len(producer)
        entry_at = size - len(end) - len(varint(entry))
        low = -base + (0x80 if base else 0)
        frames[sequence_at::size] = bytes([value + low for value in block])
        low = entry & 0x7F | (0x80 if entry > 0x7F else 0)
        frames[entry_at::size] = bytes(range(low, low + count))
        out.append(frames)
        row += count
    return b"".join(out)


def encode_duplicate_receipt(
    producer_id: int, sequence_id: int, highest_sequence_id: int | None = None
) -> bytes:
    """The receipt of a message that was stored before: its id is -1:-1."""
    unknown = varint(NO_ID)
    highest = b"" if highest_sequence_id is None else b"\x20" + varint(highest_sequence_id)
    message_id = b"\x08" + unknown + b"\x10" + unknown
    return _receipt(b"\x08" + varint(producer_id) + b"\x10", sequence_id, message_id, highest)


def _receipt(producer: bytes, sequence_id: int, message_id: bytes, highest: bytes) -> bytes:
    # All sizes here are below 128: a handful of varints of at most ten bytes, and their tags.
    size = bytes((len(message_id),))
    receipt = b"".join((producer, varint(sequence_id), b"\x1a", size, message_id, highest))
    command_bytes = len(receipt) + 4
    head = FRAME_HEAD.pack(command_bytes + 4, command_bytes)
    return b"".join((head, b"\x08\x07\x3a", bytes((len(receipt),)), receipt))


def _same_base(block: list[int], base: int) -> list[int]:
    """The front of `block` whose values lie in `base..base + 127`."""
    for index, value in enumerate(block):
        if value & ~0x7F != base:
            return block[:index]
    return block
