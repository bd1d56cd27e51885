"""Groups entries into blocks. The bytes of a block: blocks.py."""

from __future__ import annotations

import struct
from typing import Final

from magnetar.base.ids import LedgerId
from magnetar.bookie.blocks import HAS_COUNTS, HEADER_BYTES, Block, BlockBody, BlockKind, GatheredEntries

BLOCK_BYTES_MAX: Final = 1 << 20
"""Bytes of entries in one block; a single entry may be larger."""
JOIN_BELOW_BYTES: Final = 8192
"""Entries of a smaller mean size are copied into one buffer; larger ones are written from their own
buffers."""
GATHERED_MAX: Final = 128
"""Entries of a block that came one by one."""

# Looking up a member of an Enum costs as much as packing a number.
_ENTRIES: Final = int(BlockKind.ENTRIES)
_LENGTH: Final = struct.Struct("<I")
_LENGTH_AND_COUNT: Final = struct.Struct("<II")


def entries_body(
    entries: list[bytes], lengths: list[int], counts: list[int] | None, data_bytes: int
) -> BlockBody:
    """The body of a block of entries; `lengths` and `data_bytes` are those of `entries`, passed in so that
    they are computed once."""
    number = len(entries)
    flags = 0
    table = struct.pack(f"<{number}I", *lengths)
    if counts is not None:
        flags = HAS_COUNTS
        table += struct.pack(f"<{number}I", *counts)
    if data_bytes < number * JOIN_BELOW_BYTES:
        pieces = [table + b"".join(entries) if number > 1 else table + entries[0]]
    else:
        pieces = [table, *entries]
    return BlockBody(pieces, data_bytes, flags)


def entry_block(
    ledger_id: LedgerId,
    first_entry: int,
    entry: bytes,
    count: int | None,
    base_index: int,
    broker_time_ms: int,
) -> Block:
    """A block of one entry below JOIN_BELOW_BYTES: the usual case at low rates."""
    size = len(entry)
    if count is None:
        body = BlockBody([_LENGTH.pack(size) + entry], size)
    else:
        body = BlockBody([_LENGTH_AND_COUNT.pack(size, count) + entry], size, HAS_COUNTS)
    return Block(_ENTRIES, ledger_id, first_entry, 1, base_index, broker_time_ms, body)


def gather(block: Block, entry: bytes, count: int | None, base_index: int) -> int:
    """Adds the ledger's next entry, below JOIN_BELOW_BYTES and of the same broker time, to a block of
    `entry_block`; by how many bytes the block grew. 0: the entry does not fit there."""
    if not block.waits or block.entry_count >= GATHERED_MAX:
        return 0
    gathered = block.gathered
    if gathered is None:
        gathered = GatheredEntries(block.body, block.base_index)
    if base_index != gathered.next_index or (count is None) != (gathered.counts is None):
        return 0
    gathered.entries.append(entry)
    grown = 4 + len(entry)
    if count is None or gathered.counts is None:
        gathered.next_index += 1
    else:
        gathered.counts.append(count)
        gathered.next_index += count
        grown += 4
    block.gathered = gathered
    block.entry_count += 1
    block.data_bytes += len(entry)
    block.size += grown
    return grown


def finish(block: Block) -> None:
    """The commit of a block with gathered entries begins: its body is final."""
    gathered, block.gathered = block.gathered, None
    if gathered is not None:
        lengths = list(map(len, gathered.entries))
        block.body = entries_body(gathered.entries, lengths, gathered.counts, block.data_bytes)
        assert block.size == HEADER_BYTES + block.body.length


def blocks_of(
    ledger_id: LedgerId,
    first_entry: int,
    entries: list[bytes],
    counts: list[int] | None,
    base_index: int,
    broker_time_ms: int,
) -> list[Block]:
    """Blocks of at most BLOCK_BYTES_MAX, or of one entry that is larger."""
    assert entries
    assert counts is None or len(counts) == len(entries)
    lengths = list(map(len, entries))
    total = sum(lengths)
    if total <= BLOCK_BYTES_MAX:
        body = entries_body(entries, lengths, counts, total)
        return [Block(_ENTRIES, ledger_id, first_entry, len(entries), base_index, broker_time_ms, body)]
    blocks: list[Block] = []
    start = 0
    size = 0
    for stop, length in enumerate([*lengths, BLOCK_BYTES_MAX + 1]):
        if size + length > BLOCK_BYTES_MAX and stop > start:
            part_counts = None if counts is None else counts[start:stop]
            body = entries_body(entries[start:stop], lengths[start:stop], part_counts, size)
            first, number = first_entry + start, stop - start
            blocks.append(Block(_ENTRIES, ledger_id, first, number, base_index, broker_time_ms, body))
            base_index += stop - start if part_counts is None else sum(part_counts)
            start, size = stop, 0
        size += length
    return blocks
