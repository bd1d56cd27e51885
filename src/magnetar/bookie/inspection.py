"""Checks every byte of a store's segments, and repairs them. Blocking."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path

from magnetar.base.errors import StartupError
from magnetar.base.ids import LedgerId
from magnetar.bookie.files import Disk
from magnetar.bookie.folder import StoreFolder
from magnetar.bookie.index import UNKNOWN_OWNER
from magnetar.bookie.opening import (
    identify,
    load_segments,
    mend_header,
    mend_index,
    read_start,
    scan_file,
)
from magnetar.bookie.roster import Roster
from magnetar.bookie.segment import HEADER_READ_BYTES, SealedIndex, decode_segment_header
from magnetar.bookie.segment_file import SegmentFile


@dataclass(frozen=True, slots=True)
class Finding:
    """One fault."""

    file: str
    offset: int
    length: int
    detail: str
    repairable: bool
    """Whether `repair` mends it without loss."""
    ledger: LedgerId | None = None
    """The ledger whose entries were there; None when there is none, or when it is unknown."""
    first: int | None = None
    last: int | None = None


@dataclass(slots=True)
class Inspection:
    """The findings in a store."""

    findings: list[Finding] = field(default_factory=list)
    segments: int = 0
    blocks: int = 0
    missing: list[int] = field(default_factory=list)
    """Listed segments without a file."""
    whole: dict[LedgerId, list[tuple[int, int]]] = field(default_factory=dict)
    """First and last entries of every good block, by ledger."""
    deleted: set[LedgerId] = field(default_factory=set)
    places: dict[LedgerId, list[Finding]] = field(default_factory=dict)
    """Damage by ledger."""


def inspect(folder: StoreFolder, disk: Disk, *, in_use: bool = False) -> Inspection:
    """Reads all segments. When the store is `in_use`, the active one may end in blocks that are being
    written.

    Raises OSError.
    """
    found = Inspection()
    starts: dict[int, int] = {}
    opened: list[SegmentFile] = []
    listed = _listed(folder, disk, found)
    present = folder.segment_ids()
    # The store is running: segments that were deleted meanwhile were removed from the roster before.
    _find_missing(folder, (listed & _listed(folder, disk, Inspection())) - set(present), found)
    try:
        for segment_id in present:
            segment = _open(folder, disk, segment_id, found)
            if segment is not None:
                opened.append(segment)
                if (start := read_start(segment, disk)) is not None:
                    starts[start[0]] = start[1]
        for number, segment in enumerate(opened):
            followed = number + 1 < len(opened)
            # A segment set aside for later is empty, and has no predecessor.
            followed = followed and any(_holds(other, disk) for other in opened[number + 1 :])
            _look(segment, disk, found, starts.get(segment.segment_id, 0), followed=followed, in_use=in_use)
    finally:
        for segment in opened:
            os.close(segment.fd)
    for finding in found.findings:
        if finding.ledger is not None:
            found.places.setdefault(finding.ledger, []).append(finding)
    return found


def _listed(folder: StoreFolder, disk: Disk, found: Inspection) -> frozenset[int]:
    roster = Roster(folder, disk)
    try:
        return roster.read() or frozenset()
    except StartupError:
        detail = "the list of segments is damaged; whether some are missing cannot be told"
        size = roster.file.stat().st_size
        found.findings.append(Finding(str(roster.file), 0, size, detail, repairable=True))
        return frozenset()


def _find_missing(folder: StoreFolder, missing: frozenset[int], found: Inspection) -> None:
    found.missing = sorted(missing)
    for segment_id in found.missing:
        detail = "the file is missing and was not deleted by the broker: the entries of the segment are lost"
        path = str(folder.segment_path(segment_id))
        found.findings.append(Finding(path, 0, 0, detail, repairable=False))


def _open(folder: StoreFolder, disk: Disk, segment_id: int, found: Inspection) -> SegmentFile | None:
    path = folder.segment_path(segment_id)
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    found.segments += 1
    size = os.fstat(fd).st_size
    header = decode_segment_header(disk.read(fd, 0, HEADER_READ_BYTES))
    if header is not None and header.instance != folder.instance:
        found.findings.append(Finding(str(path), 0, size, "it belongs to another store", repairable=True))
        os.close(fd)
        return None
    if header is not None and header.segment_id != segment_id:
        detail = f"its header says that it is segment {header.segment_id:016x}"
        found.findings.append(Finding(str(path), 0, 0, detail, repairable=True))
    identity = identify(disk, fd)
    if identity.salt is None:
        detail = "nothing in it can be told: what the segment held is lost"
        found.findings.append(Finding(str(path), 0, size, detail, repairable=False))
        os.close(fd)
        return None
    if not identity.header_is_good:
        detail = "the header is damaged; trailer or blocks tell the same"
        found.findings.append(Finding(str(path), 0, HEADER_READ_BYTES, detail, repairable=True))
    segment = SegmentFile(disk, segment_id, path, fd, identity.salt)
    trailer = identity.trailer
    if trailer is not None:
        directory = disk.read(fd, trailer.directory_offset, trailer.directory_bytes)
        segment.sealed = SealedIndex.decode(segment_id, trailer, directory)
        segment.blocks_end = trailer.rows_offset
        if segment.sealed is None:
            detail = "the footer's directory is damaged; the blocks tell the same"
            at, length = trailer.directory_offset, trailer.directory_bytes
            found.findings.append(Finding(str(path), at, length, detail, repairable=True))
    return segment


def _holds(segment: SegmentFile, disk: Disk) -> bool:
    scan = scan_file(segment, disk, segment.blocks_end, ended=False)
    return bool(scan.found.block_count)


def _look(
    segment: SegmentFile, disk: Disk, found: Inspection, start: int, *, followed: bool, in_use: bool
) -> None:
    path = str(segment.path)
    end = segment.blocks_end or start
    scan = scan_file(segment, disk, end, ended=followed)
    found.blocks += scan.found.block_count
    found.deleted.update(scan.found.tombstones)
    good: set[int] = set()
    for ledger_id, rows in scan.found.ledgers.items():
        places = [rows.place(row) for row in range(len(rows))]
        found.whole.setdefault(ledger_id, []).extend((p.first_entry, p.last_entry) for p in places)
        good.update(place.offset for place in places)
    named = _from_footer(segment, disk, found, good)
    for damage in scan.found.damages:
        if any(damage.offset <= offset < damage.offset + damage.length for offset in named):
            # The footer names the ledger of these bytes.
            continue
        if in_use and not end and not followed:
            continue
        owner = damage.ledger_id if damage.ledger_id >= 0 else None
        who = "of unknown ledgers" if damage.ledger_id == UNKNOWN_OWNER else "of no ledger"
        detail = "a block does not match its checksum" if owner is not None else f"damaged bytes {who}"
        first = damage.first_entry if damage.first_entry >= 0 else None
        last = damage.last_entry if damage.last_entry >= 0 else None
        found.findings.append(
            Finding(
                path,
                damage.offset,
                damage.length,
                detail,
                repairable=damage.ledger_id == -1,
                ledger=owner,
                first=first,
                last=last,
            )
        )


def _from_footer(segment: SegmentFile, disk: Disk, found: Inspection, good: set[int]) -> set[int]:
    """Offsets of the blocks that the footer names and that are not good."""
    named: set[int] = set()
    sealed = segment.sealed
    if sealed is None:
        return named
    for position, ledger_id in enumerate(sealed.ledger_ids):
        offset, length = sealed.rows_extent(position)
        rows = sealed.decode_rows(position, disk.read(segment.fd, offset, length))
        if rows is None:
            detail = "the footer's rows are damaged; the blocks tell the same"
            found.findings.append(
                Finding(str(segment.path), offset, length, detail, repairable=True, ledger=ledger_id)
            )
            continue
        for place in map(rows.place, range(len(rows))):
            if place.offset not in good:
                named.add(place.offset)
                found.findings.append(
                    Finding(
                        str(segment.path),
                        place.offset,
                        place.size,
                        "a block does not match its checksum",
                        repairable=False,
                        ledger=ledger_id,
                        first=place.first_entry,
                        last=place.last_entry,
                    )
                )
    return named


def lost_entries(whole: list[tuple[int, int]], last: int) -> list[tuple[int, int]]:
    """The entries 0 to `last` that are in no good block, as first and last of each hole."""
    holes: list[tuple[int, int]] = []
    following = 0
    for first, stop in sorted(whole):
        if first > following:
            holes.append((following, first - 1))
        following = max(following, stop + 1)
    if following <= last:
        holes.append((following, last))
    return holes


def repair(folder: StoreFolder, disk: Disk) -> list[str]:
    """Repairs without loss: names, headers, footers. Returns a line for each repair.

    Raises OSError, StartupError. Blocks that were being written when the process died are cut off, as a start
    does.
    """
    done: list[str] = []
    for segment_id in folder.segment_ids():
        path = folder.segment_path(segment_id)
        header = decode_segment_header(_head(path))
        if header is not None and header.instance != folder.instance:
            done.append(f"{path}: of another store, set aside as {folder.set_aside(path)}")
    roster = Roster(folder, disk)
    try:
        roster.read()
    except StartupError:
        roster.file.unlink()
        done.append(f"{roster.file}: was damaged, made anew of the segments that are there")
    for segment in load_segments(folder, disk, roster):
        if segment.is_missing:
            continue
        segment.pin()
        try:
            if mend_header(segment, folder, disk):
                done.append(f"{segment.path}: header written anew")
            if mend_index(segment, disk):
                done.append(f"{segment.path}: footer made anew from the blocks")
        finally:
            segment.unpin()
            segment.drop()
    return done


def forget_missing(folder: StoreFolder, disk: Disk) -> list[str]:
    """Removes segments whose files were lost from the roster for good. Returns a line for each.

    Raises OSError, StartupError.
    """
    roster = Roster(folder, disk)
    listed = roster.read() or frozenset()
    present = frozenset(folder.segment_ids())
    if missing := sorted(listed - present):
        roster.replace(listed & present)
    return [f"{folder.segment_path(segment_id)}: missing, forgotten" for segment_id in missing]


def _head(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(HEADER_READ_BYTES)
