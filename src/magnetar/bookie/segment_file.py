"""Segment files on disk: creating, opening, scanning, sealing. Blocking; no event loop here."""

from __future__ import annotations

import logging
import os
from itertools import pairwise
from pathlib import Path

from magnetar.base.errors import CorruptDataError, StartupError
from magnetar.bookie.blocks import HEADER_BYTES, Kind, decode_header, decode_start, first_salt
from magnetar.bookie.files import Disk
from magnetar.bookie.folder import StoreFolder
from magnetar.bookie.index import UNKNOWN_OWNER, BlockRows, Damage, SegmentIndex
from magnetar.bookie.recovery import scan_segment
from magnetar.bookie.segment import (
    DATA_OFFSET,
    HEADER_READ_BYTES,
    SEGMENT_VERSION,
    TRAILER_BYTES,
    SealedIndex,
    decode_segment_header,
    decode_trailer,
    encode_footer,
    encode_segment_header,
)
from magnetar.bookie.spares import resize

_log = logging.getLogger("magnetar.bookie")


class SegmentFile:
    """One segment, open for reading. Its index lies in memory until it is sealed, then in its footer."""

    __slots__ = (
        "_disk",
        "_dropped",
        "_readers",
        "fd",
        "index",
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
        self.index: SegmentIndex | None = SegmentIndex(segment_id)
        """The whole index while the segment is not sealed."""
        self.sealed: SealedIndex | None = None
        """The directory of the footer once it is."""
        self.rewriting = False
        """Whether a new file is being made of it: it must not be deleted meanwhile."""
        self.live_count = 0
        """Ledgers with blocks here that are not deleted; kept for sealed segments only."""
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
        """Counts the ledgers that live, when the segment is sealed."""
        self.live_count = sum(1 for ledger_id in self.ledger_ids() if ledger_id not in deleted)

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


def load_segments(folder: StoreFolder, disk: Disk) -> list[SegmentFile]:
    """Opens every segment, ascending; those without a valid footer are scanned and sealed.

    A segment that holds nothing is deleted. Raises StartupError, OSError.
    """
    folder.remove_unfinished()
    segments = [segment for i in folder.segment_ids() if (segment := _open(folder, disk, i)) is not None]
    ends: dict[int, int] = {}
    for segment, follower in pairwise(segments):
        if segment.sealed is None and (start := _read_start(follower, disk)) is not None:
            ends[start[0]] = start[1]
    kept = []
    for segment in segments:
        # Damage known before the scan: nothing of the file can be told apart, so nothing is cut off either.
        unreadable = bool(segment.damages) and segment.sealed is None
        if (
            segment.sealed is None
            and not unreadable
            and not _recover(segment, disk, ends.get(segment.segment_id, 0))
        ):
            segment.drop()
            segment.path.unlink()
            continue
        kept.append(segment)
    return kept


def _open(folder: StoreFolder, disk: Disk, segment_id: int) -> SegmentFile | None:
    path = folder.segment_path(segment_id)
    fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    size = os.fstat(fd).st_size
    header = decode_segment_header(disk.read(fd, 0, HEADER_READ_BYTES))
    if header is not None and header.version > SEGMENT_VERSION:
        os.close(fd)
        raise StartupError(
            f"{path} has format {header.version}, this version knows up to {SEGMENT_VERSION}: "
            "use a newer version of magnetar, or another folder"
        )
    if header is not None and (header.segment_id, header.instance) != (segment_id, folder.instance):
        os.close(fd)
        raise StartupError(f"{path} belongs to another store: remove it, or restore the folder it came from")
    salt = header.salt if header is not None else None
    if salt is None:
        _log.error("%s", CorruptDataError(str(path), 0, "the segment's header does not match its checksum"))
        # The header says nothing that the first block does not say as well.
        salt = first_salt(disk.read(fd, DATA_OFFSET, HEADER_BYTES), DATA_OFFSET)
    if salt is None:
        unreadable = SegmentFile(disk, segment_id, path, fd, 0)
        assert unreadable.index is not None
        if disk.next_data(fd, DATA_OFFSET) is None:
            os.close(fd)
            return None
        unreadable.index.damages.append(Damage(0, size, UNKNOWN_OWNER, -1, -1))
        return unreadable
    segment = SegmentFile(disk, segment_id, path, fd, salt)
    trailer_at = max(size - TRAILER_BYTES, 0)
    trailer = decode_trailer(disk.read(fd, trailer_at, TRAILER_BYTES), salt, size)
    if trailer is not None:
        directory = disk.read(fd, trailer.directory_offset, trailer.directory_bytes)
        segment.sealed = SealedIndex.decode(segment_id, trailer, directory)
        if segment.sealed is None:
            _log.error(
                "%s",
                CorruptDataError(
                    str(path), trailer.directory_offset, "the footer does not match its checksum"
                ),
            )
        else:
            segment.index = None
    return segment


def _read_start(segment: SegmentFile, disk: Disk) -> tuple[int, int] | None:
    header = decode_header(disk.read(segment.fd, DATA_OFFSET, HEADER_BYTES), 0, segment.salt, DATA_OFFSET)
    if header is None or header.kind != Kind.START:
        return None
    return decode_start(disk.read(segment.fd, DATA_OFFSET + HEADER_BYTES, header.body_length))


def _recover(segment: SegmentFile, disk: Disk, synced_end: int) -> bool:
    """Scans and seals; False when the segment holds nothing."""
    fd, path = segment.fd, str(segment.path)
    scan = scan_segment(
        segment.segment_id,
        segment.salt,
        os.fstat(fd).st_size,
        lambda offset, length: disk.read(fd, offset, length),
        lambda offset: disk.next_data(fd, offset),
        synced_end,
    )
    for damage in scan.found.damages:
        ledger = damage.ledger_id if damage.ledger_id >= 0 else None
        detail = f"{damage.length} synced bytes do not match their checksum"
        _log.error("%s", CorruptDataError(path, damage.offset, detail, ledger))
    if scan.torn_bytes:
        _log.info("%s: cut off %d bytes of an unfinished write at byte %d", path, scan.torn_bytes, scan.end)
    index = scan.found
    if not (index.ledgers or index.tombstones or index.damages):
        return False
    footer = encode_footer(index, segment.salt, scan.end)
    seal_segment(segment, disk, footer, scan.end)
    segment.sealed = sealed_index(segment, footer, scan.end)
    segment.index = None
    return True
