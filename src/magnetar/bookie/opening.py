"""Opens the segments of a store, whatever the state of their files. Blocking; no event loop here.

Each fact about a file is in several places, and one of them suffices:

    what                  header  trailer  blocks                       file name
    salt                  yes     yes      every header of a block
    id                    yes                                           yes
    where blocks end              yes      START of the next segment

So a damaged header or footer loses nothing: the blocks are scanned and the footer is written anew. A segment
that others follow, or whose file does not end with a whole page, was ended: nothing in it is torn, and any
mismatch is damage. A segment that its follower does not name as its predecessor was prepared too late and is
empty. Files under a wrong name are recognised by their headers (`settle_names`).
"""

from __future__ import annotations

import logging
import os
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from magnetar.base.errors import CorruptDataError, StartupError
from magnetar.bookie.blocks import HEADER_BYTES, MAGIC, BlockKind, decode_header, decode_start, first_salt
from magnetar.bookie.files import Disk, FileSearch
from magnetar.bookie.folder import StoreFolder
from magnetar.bookie.index import ROW_BYTES, UNKNOWN_OWNER, Damage, SegmentIndex, may_be_row
from magnetar.bookie.recovery import WINDOW_BYTES, Scan, SegmentBytes, scan_segment
from magnetar.bookie.roster import Roster
from magnetar.bookie.segment import (
    CHECKPOINT_AT,
    CHECKPOINT_BYTES,
    DATA_OFFSET,
    HEADER_READ_BYTES,
    PAGE_BYTES,
    SEGMENT_VERSION,
    TRAILER_BYTES,
    SealedIndex,
    Trailer,
    decode_checkpoint,
    decode_segment_header,
    decode_trailer,
    encode_footer,
    encode_segment_header,
    resembles_trailer,
)
from magnetar.bookie.segment_file import SegmentFile, seal_segment, sealed_index

_log = logging.getLogger("magnetar.bookie")


class SegmentIdentity(NamedTuple):
    """The identity in a segment's file."""

    salt: int | None
    """None: neither a header of the segment or a block nor a trailer is left."""
    header_is_good: bool
    trailer: Trailer | None


def load_segments(folder: StoreFolder, disk: Disk, roster: Roster) -> list[SegmentFile]:
    """Opens every segment, ascending; scans and seals those without a valid footer.

    Deletes empty segments. Segments that `roster` lists and that have no file are included: their content is
    unknown. Raises StartupError, OSError.
    """
    folder.remove_unfinished()
    settle_names(folder, disk)
    present = frozenset(folder.segment_ids())
    segments: list[SegmentFile] = []
    ends: dict[int, int] = {}
    for segment_id in folder.segment_ids():
        segment, end = _open(folder, disk, segment_id)
        segments.append(segment)
        if end:
            ends[segment_id] = end
    listed = roster.read()
    passed_over: set[int] = set()
    for segment, follower in pairwise(segments):
        if segment.sealed is None and (start := read_start(follower, disk)) is not None:
            ends.setdefault(start[0], start[1])
            if start[0] < segment.segment_id:
                # Prepared too late: the log did not wait for it, so nothing was ever written to it.
                passed_over.add(segment.segment_id)
    kept: list[SegmentFile] = []
    empty: list[SegmentFile] = []
    followed = False
    # From the last one: the later segments show whether this one was ended.
    for segment in reversed(segments):
        # Damage known before the scan: no part of the file can be told from another, so nothing is cut off
        # either.
        unreadable = segment.sealed is None and bool(segment.damages)
        if segment.sealed is None and not unreadable:
            end = ends.get(segment.segment_id, 0)
            ended = followed and segment.segment_id not in passed_over
            if not _recover(segment, disk, end, followed=ended):
                empty.append(segment)
                continue
        followed = followed or not unreadable
        kept.append(segment)
    missing = _missing(folder, disk, listed, present, [segment.segment_id for segment in kept])
    found = sorted([*kept, *missing], key=lambda segment: segment.segment_id)
    roster.replace(segment.segment_id for segment in found)
    for segment in empty:
        segment.drop()
        segment.path.unlink()
    return found


def _missing(
    folder: StoreFolder, disk: Disk, listed: frozenset[int] | None, present: frozenset[int], used: list[int]
) -> list[SegmentFile]:
    """The `listed` segments without a file; `used` are those with content."""
    if listed is None:
        return []
    if any(segment_id > max(listed, default=0) for segment_id in used):
        # A segment is listed before it is written: the store was written by a version without the roster.
        _log.warning("%s: another version used this folder; its segments are listed again", folder.root)
        return []
    missing = []
    for segment_id in sorted(listed - present):
        path = folder.segment_path(segment_id)
        detail = "the segment's file is missing and was not deleted by the broker: its entries are lost"
        _log.error("%s", CorruptDataError(str(path), 0, detail))
        segment = SegmentFile(disk, segment_id, path, -1, 0)
        segment.is_missing = True
        assert segment.index is not None
        segment.index.damages.append(Damage(0, 0, UNKNOWN_OWNER, -1, -1))
        missing.append(segment)
    return missing


def identify(disk: Disk, fd: int) -> SegmentIdentity:
    """Reads the identity from header, blocks or trailer. Raises OSError."""
    size = os.fstat(fd).st_size
    tail = disk.read(fd, max(size - TRAILER_BYTES, 0), TRAILER_BYTES)
    header = decode_segment_header(disk.read(fd, 0, HEADER_READ_BYTES))
    if header is not None:
        return SegmentIdentity(
            header.salt, header_is_good=True, trailer=decode_trailer(tail, header.salt, size)
        )
    salt = _find_salt(disk, fd, size)
    trailer = decode_trailer(tail, salt, size)
    return SegmentIdentity(salt if trailer is None else trailer.salt, header_is_good=False, trailer=trailer)


def _find_salt(disk: Disk, fd: int, size: int) -> int | None:
    """The salt of the first whole block: blocks after it may be of a former use of the file."""
    at = disk.next_data(fd, DATA_OFFSET)
    while at is not None and at + HEADER_BYTES <= size:
        buffer = disk.read(fd, at, WINDOW_BYTES + HEADER_BYTES)
        found = buffer.find(MAGIC)
        while 0 <= found < WINDOW_BYTES:
            salt = first_salt(buffer[found : found + HEADER_BYTES], at + found)
            if salt is not None:
                return salt
            found = buffer.find(MAGIC, found + 1)
        at = disk.next_data(fd, at + WINDOW_BYTES)
    return None


def _open(folder: StoreFolder, disk: Disk, segment_id: int) -> tuple[SegmentFile, int]:
    """The segment, sealed when its footer is valid, and where its trailer says that blocks end; 0:
    unknown."""
    path = folder.segment_path(segment_id)
    fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        check_header(folder, disk, segment_id, fd)
        identity = identify(disk, fd)
        size = os.fstat(fd).st_size
        if not identity.header_is_good:
            detail = "the segment's header does not match its checksum"
            _log.error("%s", CorruptDataError(str(path), 0, detail))
        if identity.salt is None:
            detail = f"nothing in its {size} bytes can be told: what the segment held is lost"
            _log.error("%s", CorruptDataError(str(path), 0, detail))
            unreadable = SegmentFile(disk, segment_id, path, fd, 0)
            assert unreadable.index is not None
            unreadable.index.damages.append(Damage(0, size, UNKNOWN_OWNER, -1, -1))
            return unreadable, 0
        segment = SegmentFile(disk, segment_id, path, fd, identity.salt)
        trailer = identity.trailer
        if trailer is None:
            return segment, 0
        directory = disk.read(fd, trailer.directory_offset, trailer.directory_bytes)
        segment.sealed = SealedIndex.decode(segment_id, trailer, directory)
        if segment.sealed is None:
            detail = "the footer does not match its checksum: the blocks are scanned"
            _log.error("%s", CorruptDataError(str(path), trailer.directory_offset, detail))
            return segment, trailer.rows_offset
    except BaseException:
        os.close(fd)
        raise
    segment.index = None
    return segment, 0


def check_header(folder: StoreFolder, disk: Disk, segment_id: int, fd: int) -> None:
    """Raises StartupError for a segment of a newer format, or of another store."""
    path = folder.segment_path(segment_id)
    header = decode_segment_header(disk.read(fd, 0, HEADER_READ_BYTES))
    if header is None:
        return
    if header.version > SEGMENT_VERSION:
        raise StartupError(
            f"{path} has format {header.version}, this version knows up to {SEGMENT_VERSION}: "
            "use a newer version of magnetar, or another folder"
        )
    if (header.segment_id, header.instance) != (segment_id, folder.instance):
        raise StartupError(
            f"{path} belongs to another store: remove it, or restore the folder it came from;"
            " `magnetar doctor storage repair` sets it aside"
        )


def read_start(segment: SegmentFile, disk: Disk) -> tuple[int, int] | None:
    """The START block of an open segment: the previous segment, and where it ended."""
    header = decode_header(disk.read(segment.fd, DATA_OFFSET, HEADER_BYTES), 0, segment.salt, DATA_OFFSET)
    if header is None or header.kind != BlockKind.START:
        return None
    return decode_start(disk.read(segment.fd, DATA_OFFSET + HEADER_BYTES, header.body_length))


# -- scanning ---------------------------------------------------------------------------------------


def scan_file(segment: SegmentFile, disk: Disk, synced_end: int, *, ended: bool) -> Scan:
    """Reads every block of a segment's open file, and determines its end.

    `synced_end`, `ended`: as `scan_segment`. Raises OSError.
    """
    fd = segment.fd
    size = os.fstat(fd).st_size
    if not synced_end:
        tail = disk.read(fd, max(size - TRAILER_BYTES, 0), TRAILER_BYTES)
        ended = ended or size % PAGE_BYTES != 0 or resembles_trailer(tail, segment.salt)
    with closing(FileSearch(disk, fd, segment.path)) as search:
        scan = scan_segment(
            segment.segment_id,
            segment.salt,
            SegmentBytes(
                min(size, synced_end or size),
                lambda offset, length: disk.read(fd, offset, length),
                lambda offset: disk.next_data(fd, offset),
                search.read,
            ),
            synced_end,
            synced_to=min(
                decode_checkpoint(disk.read(fd, CHECKPOINT_AT, CHECKPOINT_BYTES), segment.salt), size
            ),
            ended=ended,
        )
    if not synced_end and not _ends_there(segment, disk, scan, size, ended=ended):
        scan.found.damages.append(Damage(scan.end, max(size - scan.end, 0), UNKNOWN_OWNER, -1, -1))
    return scan


def _ends_there(segment: SegmentFile, disk: Disk, scan: Scan, size: int, *, ended: bool) -> bool:
    """Whether no part of the log can have followed the blocks that were found."""
    if scan.end >= size:
        # A file in use has free space at its end, and a file that was ended has a footer.
        return False
    if not ended:
        return True
    footer = encode_footer(scan.found, segment.salt, scan.end)
    if size - scan.end == len(footer):
        return True
    # Or a footer begins there, though of more blocks than were found: then a block is missing.
    return may_be_row(disk.read(segment.fd, scan.end, ROW_BYTES), DATA_OFFSET, scan.end)


def _recover(segment: SegmentFile, disk: Disk, synced_end: int, *, followed: bool) -> bool:
    """Scans and seals; False when the segment is empty."""
    path = str(segment.path)
    scan = scan_file(segment, disk, synced_end, ended=followed)
    say_damages(path, scan.found)
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


def say_damages(path: str, index: SegmentIndex) -> None:
    """Logs the damage found in a segment: file, offset, ledger."""
    for damage in index.damages:
        ledger = damage.ledger_id if damage.ledger_id >= 0 else None
        detail = f"{damage.length} synced bytes do not match their checksum"
        if damage.last_entry >= 0:
            first = "?" if damage.first_entry < 0 else damage.first_entry
            detail += f"; entries {first} to {damage.last_entry} were there"
        _log.error("%s", CorruptDataError(path, damage.offset, detail, ledger))


def rebuild_index(segment: SegmentFile, disk: Disk) -> None:
    """Rebuilds the footer of a sealed segment from its blocks when rows of a ledger are damaged.

    Good parts of the old footer stay: rows, tombstones, noted damage. The segment must be pinned. Raises
    OSError.
    """
    old = segment.sealed
    assert old is not None
    scan = scan_file(segment, disk, old.rows_offset, ended=True)
    index = scan.found
    for position, ledger_id in enumerate(old.ledger_ids):
        offset, length = old.rows_extent(position)
        rows = old.decode_rows(position, disk.read(segment.fd, offset, length))
        if rows is not None:
            index.ledgers[ledger_id] = rows
    index.tombstones = list(dict.fromkeys([*old.tombstones, *index.tombstones]))
    index.damages = list(dict.fromkeys([*old.damages, *index.damages]))
    say_damages(str(segment.path), index)
    footer = encode_footer(index, segment.salt, old.rows_offset)
    seal_segment(segment, disk, footer, old.rows_offset)
    segment.sealed = sealed_index(segment, footer, old.rows_offset)
    _log.error("%s: the index was damaged and is rebuilt from %d blocks", segment.path, index.block_count)


def mend_index(segment: SegmentFile, disk: Disk) -> bool:
    """Rebuilds the footer of a sealed segment when rows in it are damaged; returns whether they were.

    The segment must be pinned. Raises OSError.
    """
    try:
        for ledger_id in segment.ledger_ids() if segment.sealed is not None else ():
            segment.load_rows(ledger_id)
    except CorruptDataError:
        rebuild_index(segment, disk)
        return True
    return False


def mend_header(segment: SegmentFile, folder: StoreFolder, disk: Disk) -> bool:
    """Rewrites a damaged header when the salt is known; returns whether it did. Pinned; raises OSError."""
    if segment.salt == 0 or decode_segment_header(disk.read(segment.fd, 0, HEADER_READ_BYTES)) is not None:
        return False
    header = encode_segment_header(segment.segment_id, folder.instance, segment.salt)
    # Not the checkpoint after it.
    disk.write(segment.fd, [header[:HEADER_READ_BYTES]], 0)
    disk.sync(segment.fd)
    return True


# -- names ------------------------------------------------------------------------------------------


def settle_names(folder: StoreFolder, disk: Disk) -> None:
    """Gives segments that were renamed or swapped the names in their headers.

    A segment whose name is taken by the right one is a copy: it moves to the folder `quarantine`. A segment
    of another store stays, and the start is refused for it. Raises OSError.
    """
    wrong: dict[int, int] = {}
    for segment_id in folder.segment_ids():
        header = decode_segment_header(_head(folder.segment_path(segment_id)))
        if header is not None and header.instance == folder.instance and header.segment_id != segment_id:
            wrong[segment_id] = header.segment_id
    for path in folder.stray_paths():
        _log.warning("%s: left over from an interrupted rename", path)
    if not wrong and not folder.stray_paths():
        return
    for name in wrong:
        # First all under other names: two swapped segments need each other's names.
        folder.segment_path(name).rename(folder.stray_path(name))
    disk.sync_folder(folder.segments)
    for path in folder.stray_paths():
        header = decode_segment_header(_head(path))
        right = None if header is None else folder.segment_path(header.segment_id)
        if right is None or right.exists():
            target = folder.set_aside(path)
            _log.error("%s: a second file of an existing segment; it was set aside as %s", path, target)
            continue
        path.rename(right)
        _log.error("%s: the segment had another name; its header says that it is %s", path, right)
    disk.sync_folder(folder.segments)


def _head(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(HEADER_READ_BYTES)
