"""Copies the living blocks of a sealed segment into a new file that replaces it.

The new file has the same id and a new salt, so that all references to segments by id stay valid. It holds the
blocks of living ledgers, those of one ledger in their old order. Between ledgers the order is kept too, or,
where reads ask for it, each ledger is in one piece. It is written under another name, complete and synced
with its footer, and then renamed over the old one: a crash leaves the one or the other. Blocking; no event
loop here.
"""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Sequence
from itertools import islice
from pathlib import Path

from magnetar.base.errors import CorruptDataError
from magnetar.base.ids import LedgerId
from magnetar.bookie.blocks import (
    HEADER_BYTES,
    Block,
    BlockBody,
    BlockHeader,
    BlockKind,
    body_is_good,
    decode_header,
    tombstone_block,
)
from magnetar.bookie.commit import Tail
from magnetar.bookie.files import Disk
from magnetar.bookie.folder import StoreFolder
from magnetar.bookie.index import BlockPlace, SegmentIndex
from magnetar.bookie.segment import DATA_OFFSET, SEGMENT_BYTES_MAX, encode_footer, encode_segment_header
from magnetar.bookie.segment_file import SegmentFile, seal_segment, sealed_index


class SegmentCopy:
    """A new file under construction. Not used any more after `finish` or `discard`."""

    def __init__(
        self, folder: StoreFolder, disk: Disk, source: SegmentFile, places: Sequence[BlockPlace], size: int
    ) -> None:
        """The blocks at `places` of `source`, which must be pinned, are copied in that order; they take
        `size` bytes.

        Raises OSError.
        """
        self._folder = folder
        self._disk = disk
        self._source = source
        self._places = places
        self._at = 0
        self.path: Path = folder.new_segment_path(source.segment_id)
        salt = secrets.randbits(64)
        fd = disk.create(self.path, DATA_OFFSET + size)
        self._copy = SegmentFile(disk, source.segment_id, folder.segment_path(source.segment_id), fd, salt)
        self._index = SegmentIndex(source.segment_id)
        self._tail = Tail(source.segment_id, salt, DATA_OFFSET, SEGMENT_BYTES_MAX)
        try:
            disk.write(fd, [encode_segment_header(source.segment_id, folder.instance, salt)], 0)
            self._copy_start()
        except BaseException:
            self.discard()
            raise

    def _copy_start(self) -> None:
        """The first block may record where the previous segment ended."""
        head = self._disk.read(self._source.fd, DATA_OFFSET, HEADER_BYTES)
        header = decode_header(head, 0, self._source.salt, DATA_OFFSET)
        if header is not None and header.kind == BlockKind.START:
            body = self._disk.read(self._source.fd, DATA_OFFSET + HEADER_BYTES, header.body_length)
            self._append([self._checked(header, body, DATA_OFFSET)])

    @property
    def done(self) -> bool:
        """Whether all blocks are copied."""
        return self._at == len(self._places)

    @property
    def copied_bytes(self) -> int:
        """Bytes of blocks copied so far."""
        return self._tail.offset - DATA_OFFSET

    def step(self, bytes_max: int) -> None:
        """Copies the next blocks, at most `bytes_max` bytes, at least one.

        Raises CorruptDataError, OSError.
        """
        size = 0
        end = self._at
        for place in islice(self._places, self._at, None):
            size += place.size
            if end > self._at and size > bytes_max:
                break
            end += 1
        blocks: list[Block] = []
        while self._at < end:
            blocks += self._next_blocks(end, bytes_max)
        self._append(blocks)

    def _next_blocks(self, end: int, bytes_max: int) -> list[Block]:
        """The next blocks, before place `end`, that one read of `bytes_max` returns; at least one."""
        first = self._places[self._at].offset
        chosen = [self._places[self._at]]
        for place in islice(self._places, self._at + 1, end):
            if place.offset < first or place.offset + place.size - first > bytes_max:
                break
            chosen.append(place)
        self._at += len(chosen)
        data = self._disk.read(self._source.fd, first, chosen[-1].offset + chosen[-1].size - first)
        blocks = []
        for place in chosen:
            at = place.offset - first
            header = decode_header(data, at, self._source.salt, place.offset)
            if header is None:
                raise self._corrupt(place.offset)
            blocks.append(self._checked(header, data[at + HEADER_BYTES : at + place.size], place.offset))
        return blocks

    def _checked(self, header: BlockHeader, body: bytes, offset: int) -> Block:
        # A damaged block must stay where it is: a new checksum would make it look good.
        if not body_is_good(header, body):
            raise self._corrupt(offset)
        block = Block(
            header.kind,
            header.ledger_id,
            header.first_entry,
            header.entry_count,
            header.base_index,
            header.broker_time_ms,
            BlockBody([body], header.data_bytes, header.flags),
        )
        assert block.body.crc == header.body_crc
        return block

    def _corrupt(self, offset: int) -> CorruptDataError:
        return CorruptDataError(str(self._source.path), offset, "found while the segment was rewritten")

    def _append(self, blocks: list[Block]) -> None:
        offsets, pieces = self._tail.place(blocks)
        if not blocks:
            return
        self._disk.write(self._copy.fd, pieces, self._tail.offset)
        self._tail.advance(sum(block.size for block in blocks), len(blocks))
        self._index.block_count += len(blocks)
        for block, offset in zip(blocks, offsets, strict=True):
            if block.kind == BlockKind.ENTRIES:
                rows = self._index.rows(block.ledger_id)
                rows.append(block.first_entry, offset, block.size, block.entry_count, block.data_bytes)
            elif block.kind == BlockKind.TOMBSTONE:
                self._index.tombstones.append(block.ledger_id)

    def finish(self, tombstones: list[LedgerId]) -> SegmentFile:
        """Adds the tombstones that are still needed, and replaces the old file.

        Raises OSError: then the old file is still in place.
        """
        assert self.done
        self._append([tombstone_block(ledger_id) for ledger_id in tombstones])
        copy, end = self._copy, self._tail.offset
        footer = encode_footer(self._index, copy.salt, end)
        seal_segment(copy, self._disk, footer, end)
        self.path.rename(copy.path)
        # Without it a power cut may bring the old file back, which holds the same blocks and more.
        with contextlib.suppress(OSError):
            self._disk.sync_folder(self._folder.segments)
        copy.sealed = sealed_index(copy, footer, end)
        copy.index = None
        return copy

    def rows(self) -> SegmentIndex:
        """Index of the blocks in the new file."""
        return self._index

    def discard(self) -> None:
        """Deletes the new file; the old one stays."""
        os.close(self._copy.fd)
        self.path.unlink(missing_ok=True)
