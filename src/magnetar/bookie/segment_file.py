"""Segment files on disk: creating, sealing, reading indexes. Blocking; no event loop here."""

from __future__ import annotations

import os
from pathlib import Path

from magnetar.base.errors import CorruptDataError
from magnetar.base.ids import LedgerId
from magnetar.bookie.files import Disk
from magnetar.bookie.folder import StoreFolder
from magnetar.bookie.index import UNKNOWN_OWNER, BlockRows, Damage, SegmentIndex
from magnetar.bookie.segment import (
    CHECKPOINT_AT,
    DATA_OFFSET,
    TRAILER_BYTES,
    SealedIndex,
    decode_trailer,
    encode_checkpoint,
    encode_segment_header,
)
from magnetar.bookie.spares import resize


class SegmentFile:
    """One segment, open for reading. Its index is in memory until it is sealed, then in its footer."""

    __slots__ = (
        "_disk",
        "_dropped",
        "_readers",
        "blocks_end",
        "fd",
        "index",
        "is_missing",
        "live_count",
        "path",
        "rewriting",
        "salt",
        "scattered_reads",
        "sealed",
        "segment_id",
    )

    def __init__(self, disk: Disk, segment_id: int, path: Path, fd: int, salt: int) -> None:
        self._disk = disk
        self._readers = 0
        self._dropped = False
        self.segment_id = segment_id
        self.path = path
        self.fd = fd
        self.salt = salt
        self.is_missing = False
        """Whether its file was lost; `fd` is then -1."""
        self.blocks_end = 0
        """End of the blocks according to its trailer; 0: unknown, or not read."""
        self.index: SegmentIndex | None = SegmentIndex(segment_id)
        """The whole index while the segment is not sealed; else None."""
        self.sealed: SealedIndex | None = None
        """The directory of the footer once the segment is sealed; else None."""
        self.rewriting = False
        """Whether it is being rewritten: it must not be deleted meanwhile."""
        self.live_count = 0
        """Living ledgers with blocks here; only for sealed segments. See `count_live`."""
        self.scattered_reads = 0
        """Reads that waited for the device and after which their ledger continues elsewhere in this file."""

    @property
    def damages(self) -> list[Damage]:
        """Damage found when the segment was scanned."""
        if self.sealed is not None:
            return self.sealed.damages
        return [] if self.index is None else self.index.damages

    @property
    def tombstones(self) -> list[LedgerId]:
        """Ledgers whose tombstones are in this segment."""
        if self.sealed is not None:
            return self.sealed.tombstones
        return [] if self.index is None else self.index.tombstones

    def count_live(self, deleted: set[LedgerId]) -> None:
        """Counts the living ledgers when the segment is sealed.

        A ledger whose blocks here are all lost counts too, and so do lost blocks of unknown ledgers. Deleting
        the file would delete all knowledge of the loss: the ledger would seem to end where it does not.
        """
        lost = any(
            damage.ledger_id == UNKNOWN_OWNER or (damage.ledger_id >= 0 and damage.ledger_id not in deleted)
            for damage in self.damages
        )
        self.live_count = lost + sum(1 for ledger_id in self.ledger_ids() if ledger_id not in deleted)

    def holds(self, ledger_id: LedgerId) -> bool:
        """Whether the segment has blocks of the ledger."""
        if self.sealed is not None:
            return self.sealed.position_of(ledger_id) >= 0
        return self.index is not None and ledger_id in self.index.ledgers

    def ledger_ids(self) -> list[LedgerId]:
        """All ledgers with blocks here, deleted ones included."""
        if self.sealed is not None:
            return list(self.sealed.ledger_ids)
        return [] if self.index is None else list(self.index.ledgers)

    def load_rows(self, ledger_id: LedgerId) -> BlockRows | None:
        """The rows of a ledger. Raises CorruptDataError, OSError."""
        if self.sealed is None:
            return None if self.index is None else self.index.ledgers.get(ledger_id)
        position = self.sealed.position_of(ledger_id)
        if position < 0:
            return None
        offset, length = self.sealed.rows_extent(position)
        rows = self.sealed.decode_rows(position, self._disk.read(self.fd, offset, length))
        if rows is None:
            raise CorruptDataError(str(self.path), offset, "the index does not match its checksum", ledger_id)
        return rows

    def rows_now(self, ledger_id: LedgerId) -> BlockRows | None:
        """The same without waiting for the device; None when that is necessary, and when the rows are
        damaged."""
        if self.sealed is None:
            return None if self.index is None else self.index.ledgers.get(ledger_id)
        if (position := self.sealed.position_of(ledger_id)) < 0:
            return None
        data = self._disk.read_now(self.fd, *self.sealed.rows_extent(position))
        return None if data is None else self.sealed.decode_rows(position, data)

    def pin(self) -> None:
        """Opens the file if necessary, and keeps it open until `unpin`. Raises OSError."""
        if self.fd < 0:
            self.fd = os.open(self.path, os.O_RDWR | os.O_CLOEXEC)
        self._readers += 1

    def unpin(self) -> None:
        """Ends a `pin`."""
        self._readers -= 1
        self._close_if_unused()

    @property
    def is_read(self) -> bool:
        """Whether the file is pinned."""
        return self._readers > 0

    def note_synced(self, end: int) -> None:
        """Records in the header's page that the log is synced up to `end`; durable with the next sync.

        Raises OSError.
        """
        self._disk.write(self.fd, [encode_checkpoint(self.salt, end)], CHECKPOINT_AT)

    def rest(self) -> bool:
        """Closes a sealed segment's file until the next `pin`; False while it is pinned."""
        if self.sealed is None or self._readers:
            return False
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1
        return True

    def drop(self) -> None:
        """Closes the descriptor once the file is not pinned any more."""
        self._dropped = True
        self._close_if_unused()

    def _close_if_unused(self) -> None:
        if self._dropped and self._readers == 0 and self.fd >= 0:
            os.close(self.fd)
            self.fd = -1


def create_segment(folder: StoreFolder, disk: Disk, segment_id: int, salt: int, size: int) -> SegmentFile:
    """A new empty segment of `size` bytes, durable under its name. Raises OSError."""
    unfinished, path = folder.new_segment_path(segment_id), folder.segment_path(segment_id)
    fd = disk.create(unfinished, size)
    try:
        disk.write(fd, [encode_segment_header(segment_id, folder.instance, salt)], 0)
        disk.sync(fd)
        unfinished.rename(path)
        disk.sync_folder(folder.segments)
    except OSError:
        os.close(fd)
        unfinished.unlink(missing_ok=True)
        path.unlink(missing_ok=True)
        raise
    return SegmentFile(disk, segment_id, path, fd, salt)


def recycle_segment(
    folder: StoreFolder, disk: Disk, segment_id: int, salt: int, spare: Path, size: int
) -> tuple[SegmentFile, int]:
    """Like `create_segment`, from a spare file; also returns the size, which is smaller on a full disk.

    No bytes of the file's former use can pass for blocks of the new one: those carry the new salt, and the
    first block's place is filled with zeros, so that a lost header finds no old salt there either.
    """
    unfinished, path = folder.new_segment_path(segment_id), folder.segment_path(segment_id)
    spare.rename(unfinished)
    fd = -1
    try:
        # First: the former name of the file must not come back after a power cut, with other bytes in it.
        disk.sync_folder(folder.segments)
        fd = os.open(unfinished, os.O_RDWR | os.O_CLOEXEC)
        size = resize(fd, size, disk)
        header = encode_segment_header(segment_id, folder.instance, salt)
        disk.write(fd, [header, bytes(DATA_OFFSET)], 0)
        disk.sync(fd)
        unfinished.rename(path)
        disk.sync_folder(folder.segments)
    except OSError:
        if fd >= 0:
            os.close(fd)
        unfinished.unlink(missing_ok=True)
        path.unlink(missing_ok=True)
        raise
    return SegmentFile(disk, segment_id, path, fd, salt), size


def seal_segment(segment: SegmentFile, disk: Disk, footer: bytes, end: int) -> None:
    """The bytes after the end are cut first: blocks of a torn group must not appear after a torn footer."""
    # What lies behind the end goes first: blocks of a torn group must not be found behind a torn footer.
    os.ftruncate(segment.fd, end)
    # Written in its final length at once: a file that ends exactly after a block was cut by something else
    # (opening.py). Only a crash between two system calls could leave one.
    os.ftruncate(segment.fd, end + len(footer))
    disk.write(segment.fd, [footer], end)
    disk.sync(segment.fd)


def remove_segment(segment: SegmentFile, disk: Disk) -> None:
    """Deletes the file, durably. Raises OSError."""
    segment.path.unlink(missing_ok=True)
    disk.sync_folder(segment.path.parent)


def sealed_index(segment: SegmentFile, footer: bytes, end: int) -> SealedIndex:
    """The directory of a footer that was just built for blocks that end at `end`."""
    trailer = decode_trailer(footer[-TRAILER_BYTES:], segment.salt, end + len(footer))
    assert trailer is not None
    start = trailer.directory_offset - end
    sealed = SealedIndex.decode(segment.segment_id, trailer, footer[start:-TRAILER_BYTES])
    assert sealed is not None
    return sealed
