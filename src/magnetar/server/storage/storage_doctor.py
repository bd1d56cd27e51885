"""Finds damage in a data folder, repairs damage without loss, and gives up lost entries.

It works on the files of a stopped broker. A check also works beside a running broker, but cannot name topics
then. The metadata gives the entries that a ledger must have, the segments those that it has.

The folder of a bookie can be checked and repaired too. Its ledgers are spread over several bookies, so only
the entries of damaged blocks count as lost. Other bookies have copies, so nothing is given up.

Entries that an object store has are not lost: they are read there.
"""

from __future__ import annotations

import asyncio
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from magnetar.base.errors import MetadataError, StartupError, StorageError
from magnetar.base.ids import LedgerId
from magnetar.bookie.files import Disk, storage_error
from magnetar.bookie.folder import FORMAT_FILE, LOCK_FILE, StoreFolder
from magnetar.bookie.given_up import GivenUp, read_given_up, write_given_up
from magnetar.bookie.inspection import (
    Finding,
    Inspection,
    forget_missing,
    inspect,
    lost_entries,
    repair,
)
from magnetar.ledger.ledger_metadata import LedgerMetadataError
from magnetar.ledger.listing import existing_ledgers
from magnetar.managedlog.cursors.cursor_codec import decode_info
from magnetar.managedlog.errors import InvalidLogDataError
from magnetar.managedlog.log_metadata import ROOT, decode
from magnetar.metadata.embedded import EmbeddedMetadataStore
from magnetar.runtime.clock import SystemClock
from magnetar.runtime.file_lock import FileLock
from magnetar.server.storage.copies_doctor import CheckedCopies, look


@dataclass(frozen=True, slots=True)
class LostEntries:
    """Entries of one ledger that were written and are in no undamaged block."""

    topic: str
    """`tenant/namespace/persistent/<encoded topic>`, followed by the cursor for a cursor's ledger; empty when
    the topic is unknown."""
    ledger: LedgerId
    first: int
    last: int
    bytes: int
    """Damaged bytes, headers included; 0 when no file has the entries any more."""
    file: str
    offset: int
    given_up: bool


@dataclass(slots=True)
class Report:
    """The state of a data folder."""

    segments: int = 0
    blocks: int = 0
    objects: int = 0
    """Number of checked objects of copies in object stores."""
    topics_known: bool = True
    of_bookie: bool = False
    """Whether the folder is that of one bookie; other bookies then have copies of its entries."""
    findings: list[Finding] = field(default_factory=list)
    lost: list[LostEntries] = field(default_factory=list)
    done: list[str] = field(default_factory=list)
    """A line for each change."""

    @property
    def repairable(self) -> list[Finding]:
        """The findings that `repair` mends."""
        return [finding for finding in self.findings if finding.repairable]

    @property
    def undecided(self) -> list[LostEntries]:
        """Lost entries that are not given up."""
        return [lost for lost in self.lost if not lost.given_up]

    @property
    def is_good(self) -> bool:
        """Whether nothing is damaged."""
        return not (self.findings or self.lost)


@dataclass(slots=True)
class _Known:
    """The ledgers in the metadata."""

    names: dict[LedgerId, str] = field(default_factory=dict)
    ends: dict[LedgerId, int] = field(default_factory=dict)
    """Last entry of each closed ledger."""
    copies: CheckedCopies = field(default_factory=CheckedCopies)


def check(root: Path, *, read_copies: bool = False) -> Report:
    """Checks the data folder `root`; changes nothing.

    Checks that objects of copies exist, and with `read_copies` reads them. Raises StartupError, StorageError.
    """
    with ExitStack() as stack:
        in_use = False
        try:
            _take(root, stack)
        except StartupError:
            in_use = True
        return _report(root, in_use=in_use, read_copies=read_copies)


def mend(root: Path, *, read_copies: bool = False) -> Report:
    """Repairs names, headers and footers, which loses nothing. Raises StartupError, StorageError."""
    with ExitStack() as stack:
        _take(root, stack)
        folder = _folder(root)
        try:
            done = repair(folder, Disk())
        except OSError as error:
            raise storage_error(error, folder.root, "repair segments") from error
        report = _report(root, in_use=False, read_copies=read_copies)
    report.done = done
    return report


def give_up(root: Path, *, read_copies: bool = False) -> Report:
    """Repairs what can be repaired, and records that consumers skip the lost entries.

    Raises StartupError, StorageError.
    """
    if _is_bookie(root):
        raise StartupError(
            f"{root} is the folder of one bookie, and others have copies of what it lost: repair it, start"
            " it, and let auto-recovery bring the copies. An entry that no bookie has any more is given up by"
            " `magnetar storage accept-loss`"
        )
    report = mend(root, read_copies=read_copies)
    with ExitStack() as stack:
        _take(root, stack)
        folder = root / "bookie"
        known = read_given_up(folder)
        now = datetime.now(UTC).isoformat(timespec="seconds")
        fresh = [
            GivenUp(lost.ledger, lost.first, lost.last, lost.topic, lost.file, lost.offset, "damaged", now)
            for lost in report.undecided
        ]
        if fresh:
            try:
                write_given_up(folder, [*known, *fresh])
            except OSError as error:
                raise storage_error(error, folder, "note what is given up") from error
            report.done += [
                f"gave up entries {e.first} to {e.last} of ledger {e.ledger} {e.topic}" for e in fresh
            ]
        try:
            report.done += forget_missing(_folder(root), Disk())
        except OSError as error:
            raise storage_error(error, folder, "forget segments that are missing") from error
    return report


def _take(root: Path, stack: ExitStack) -> None:
    """Takes the locks of a broker and its store, or of a bookie. Raises StartupError."""
    for place in (root,) if _is_bookie(root) else (root, root / "bookie"):
        if not place.is_dir():
            raise StartupError(f"{place} does not exist: name the data folder of a broker")
        lock = FileLock(place / LOCK_FILE, f"the data folder {place}")
        stack.callback(lock.release)


def _is_bookie(root: Path) -> bool:
    """Whether `root` is the folder of one bookie."""
    return (root / "segments").is_dir() and (root / FORMAT_FILE).exists()


def _folder(root: Path) -> StoreFolder:
    if _is_bookie(root):
        return StoreFolder.open(root, Disk(), sync=False)
    if (root / "bookies" / "instance").exists():
        raise StartupError(f"{root} keeps messages on bookies: name one of the folders in {root / 'bookies'}")
    if not (root / "bookie" / FORMAT_FILE).exists():
        raise StartupError(f"{root} holds no message store: name the data folder of a broker")
    return StoreFolder.open(root / "bookie", Disk(), sync=False)


def _report(root: Path, *, in_use: bool, read_copies: bool) -> Report:
    folder = _folder(root)
    of_bookie = _is_bookie(root)
    known = _Known() if in_use or of_bookie else asyncio.run(_ask(root, read_copies=read_copies))
    try:
        found = inspect(folder, Disk(), in_use=in_use)
    except OSError as error:
        raise storage_error(error, folder.root, "read segments") from error
    given_up = read_given_up(folder.root)
    report = Report(found.segments, found.blocks, findings=found.findings, of_bookie=of_bookie)
    report.topics_known = not in_use and not of_bookie
    if of_bookie:
        report.lost = [lost for ledger_id in sorted(found.places) for lost in _lost_copies(ledger_id, found)]
        return report
    for ledger_id in sorted({*known.names, *found.places} - known.copies.whole):
        report.lost += _lost(ledger_id, known, found, given_up)
    report.objects = known.copies.objects
    report.findings += known.copies.findings
    report.lost += [
        LostEntries(name, ledger, first, last, 0, place, 0, _is_given_up(given_up, ledger, first, last))
        for name, ledger, first, last, place in known.copies.lost
    ]
    return report


def _is_given_up(given_up: list[GivenUp], ledger_id: LedgerId, first: int, last: int) -> bool:
    return any(e.ledger == ledger_id and e.first <= first and last <= e.last for e in given_up)


def _lost_copies(ledger_id: LedgerId, found: Inspection) -> list[LostEntries]:
    """The entries of a ledger that a bookie had in damaged blocks only."""
    if ledger_id in found.deleted:
        return []
    lost = []
    for place in found.places[ledger_id]:
        if place.repairable or place.first is None or place.last is None:
            continue
        whole = [
            (first, stop)
            for first, stop in found.whole.get(ledger_id, [])
            if first <= place.last and stop >= place.first
        ]
        for first, stop in lost_entries([(0, place.first - 1), *whole], place.last):
            lost.append(
                LostEntries(
                    "", ledger_id, first, stop, place.length, place.file, place.offset, given_up=False
                )
            )
    return lost


def _lost(
    ledger_id: LedgerId, known: _Known, found: Inspection, given_up: list[GivenUp]
) -> list[LostEntries]:
    if ledger_id not in known.names and (known.names or ledger_id in found.deleted):
        # Damage in a deleted ledger loses nothing.
        return []
    whole, places = found.whole.get(ledger_id, []), found.places.get(ledger_id, [])
    last = known.ends.get(ledger_id, -1)
    if last < 0:
        ends = [stop for _, stop in whole] + [place.last for place in places if place.last is not None]
        last = max(ends, default=-1)
    lost = []
    for first, stop in lost_entries(whole, last):
        near = [p for p in places if p.last is None or ((p.first or 0) <= stop and p.last >= first)]
        lost.append(
            LostEntries(
                known.names.get(ledger_id, ""),
                ledger_id,
                first,
                stop,
                sum(place.length for place in near),
                near[0].file if near else "",
                near[0].offset if near else 0,
                _is_given_up(given_up, ledger_id, first, stop),
            )
        )
    return lost


async def _ask(root: Path, *, read_copies: bool) -> _Known:
    """Reads the embedded metadata store, if there is one, and checks object stores. Raises StorageError."""
    known = _Known()
    file = root / "metadata" / "metadata.db"
    if not file.exists():
        return known
    store = EmbeddedMetadataStore.open(file, clock=SystemClock())
    try:
        async for ledger_id, metadata in existing_ledgers(store):
            known.names[ledger_id] = ""
            if metadata.end is not None:
                known.ends[ledger_id] = metadata.end.last_entry
        records = []
        for name in await _logs(store):
            value = await store.get(f"{ROOT}/{name}")
            if value is None:
                continue
            for record in decode(value.data, name).ledgers:
                records.append((name, record))
                if record.offload is None or not record.offload.local_deleted:
                    known.names[record.ledger_id] = name
            for cursor in await store.children(f"{ROOT}/{name}"):
                if (told := await store.get(f"{ROOT}/{name}/{cursor}")) is not None:
                    info = decode_info(told.data, f"{name}/{cursor}")
                    for ledger_id in (info.ledger_id, *info.side_ledgers):
                        if ledger_id in known.names:
                            known.names[ledger_id] = f"{name} cursor {cursor}"
        known.copies = await look(store, root, records, read=read_copies)
    except (MetadataError, LedgerMetadataError, InvalidLogDataError) as error:
        raise StorageError(f"the metadata in {file} cannot be read: {error}") from error
    finally:
        await store.close()
    return known


async def _logs(store: EmbeddedMetadataStore) -> list[str]:
    names = []
    for tenant in await store.children(ROOT):
        for namespace in await store.children(f"{ROOT}/{tenant}"):
            parent = f"{tenant}/{namespace}/persistent"
            names += [f"{parent}/{child}" for child in await store.children(f"{ROOT}/{parent}")]
    return names
