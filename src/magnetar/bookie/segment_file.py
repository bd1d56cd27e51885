"""Segment files on disk: creating, sealing, reading indexes. Blocking; no event loop here."""

from __future__ import annotations

import os
from pathlib import Path

from magnetar.base.errors import CorruptDataError
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
    """One segment, open for reading. Its index lies in memory until it is sealed, then in its footer."""

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
        """Where its trailer says that blocks end; 0: unknown, or not asked for."""
        self.index: SegmentIndex | None = SegmentIndex(segment_id)
        """The whole index while the segment is not sealed."""
        self.sealed: SealedIndex | None = None
        """The directory of the footer once it is."""
        self.rewriting = False
        """Whether a new file is being made of it: it must not be deleted meanwhile."""
        self.live_count = 0
        """Ledgers with blocks here that are not deleted; kept for sealed segments only. See `count_live`."""
        self.scattered_reads = 0
        """Reads that waited for the device and after which their ledger goes on elsewhere in this file."""

    @property
    def damages(self) -> list[Damage]:
        """Damage found when the segment was scanned."""
        if self.sealed is not None:
            return self.sealed.damages
        return [] if self.index is None else self.index.damages

    @property
    def tombstones(self) -> list[int]:
        """Ledgers whose deletion is noted here."""
        if self.sealed is not None:
            return self.sealed.tombstones
        return [] if self.index is None else self.index.tombstones

    def count_live(self, deleted: set[int]) -> None:
        """Counts the ledgers that live, when the segment is sealed.

        One whose blocks here are all lost counts as well, and so do lost blocks of nobody knows whom. If the
        file went, so would all knowledge of the loss: the owner would seem to end where it does not.
        """
        lost = any(
            damage.ledger_id == UNKNOWN_OWNER or (damage.ledger_id >= 0 and damage.ledger_id not in deleted)
            for damage in self.damages
        )
        self.live_count = lost + sum(1 for ledger_id in self.ledger_ids() if ledger_id not in deleted)

    def holds(self, ledger_id: int) -> bool:
        """Whether blocks of the ledger lie here."""
        if self.sealed is not None:
            return self.sealed.position_of(ledger_id) >= 0
        return self.index is not None and ledger_id in self.index.ledgers

    def ledger_ids(self) -> list[int]:
        """Every ledger with blocks here, deleted ones too."""
        if self.sealed is not None:
            return list(self.sealed.ledger_ids)
        return [] if self.index is None else list(self.index.ledgers)

    def load_rows(self, ledger_id: int) -> BlockRows | None:
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

    def rows_now(self, ledger_id: int) -> BlockRows | None:
        """The same without waiting for the device; None when that is needed, and when they are damaged."""
        if self.sealed is None:
            return None if self.index is None else self.index.ledgers.get(ledger_id)
        if (position := self.sealed.position_of(ledger_id)) < 0:
            return None
        data = self._disk.read_now(self.fd, *self.sealed.rows_extent(position))
        return None if data is None else self.sealed.decode_rows(position, data)

    def pin(self) -> None:
        """Opens the file where it is not, and keeps it open until `unpin`. Raises OSError."""
        if self.fd < 0:
            self.fd = os.open(self.path, os.O_RDWR | os.O_CLOEXEC)
        self._readers += 1

    def unpin(self) -> None:
        """Ends a `pin`."""
        self._readers -= 1
        self._close_if_unused()

    @property
    def is_read(self) -> bool:
        """Whether somebody has the file pinned."""
        return self._readers > 0

    def note_synced(self, end: int) -> None:
        """Notes in the header's page that the log is synced up to `end`; durable with the next sync.

        Raises OSError.
        """
        self._disk.write(self.fd, [encode_checkpoint(self.salt, end)], CHECKPOINT_AT)

    def rest(self) -> bool:
        """Closes a sealed segment's file until the next `pin`; False while somebody reads."""
        if self.sealed is None or self._readers:
            return False
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1
        return True

    def drop(self) -> None:
        """Closes the descriptor, once nobody reads any more."""
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
    """Like `create_segment`, of a spare file; also returns the size, which is smaller on a full disk.

    Nothing of the file's former life can be taken for blocks of the new one: those carry the new salt,
    and where the first one goes zeros are written, so that a lost header finds no salt there either.
    """
    unfinished, path = folder.new_segment_path(segment_id), folder.segment_path(segment_id)
    spare.rename(unfinished)
    fd = -1
    try:
        # First: whatever name the file had must not come back after a power cut, with other bytes in it.
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
    """Cuts the file at `end` and writes the footer there. Raises OSError; may be repeated after a crash."""
    # What lies behind the end goes first: blocks of a torn group must not be found behind a torn footer.
    os.ftruncate(segment.fd, end)
    # At once as long as it will be: a file that ends exactly behind a block, with nothing there, was cut by
    # somebody else (opening.py). A crash between the two would have to fall between two calls.
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
