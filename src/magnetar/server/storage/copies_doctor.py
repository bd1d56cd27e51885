"""Finds damage in the copies of ledgers in object stores, for `storage_doctor`; the broker must be
stopped."""

from __future__ import annotations

from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from magnetar.base.errors import LostEntriesError, MagnetarError
from magnetar.base.ids import LedgerId
from magnetar.bookie.inspection import Finding
from magnetar.managedlog.log_metadata import LedgerRecord
from magnetar.managedlog.moved_store import known_places
from magnetar.metadata.store import MetadataStore
from magnetar.runtime.clock import SystemClock
from magnetar.runtime.tasks import pause
from magnetar.tiered.context import OffloadedCopy, segment_name
from magnetar.tiered.errors import StoreError
from magnetar.tiered.storage import CopyStores, TieredStorage
from magnetar.tiered.stores.retrying import RetryingStore
from magnetar.tiered.stores.urls import open_store

_READ_BYTES: Final = 8 << 20
_TRIES: Final = 3
"""Attempts at a read; a segment that ends the worker twice counts as damaged."""


@dataclass(slots=True)
class CheckedCopies:
    """The result of the check."""

    objects: int = 0
    findings: list[Finding] = field(default_factory=list)
    lost: list[tuple[str, LedgerId, int, int, str]] = field(default_factory=list)
    """Lost entries of ledgers that only the store has: log, ledger, first and last entry, object."""
    whole: set[LedgerId] = field(default_factory=set)
    """Ledgers whose copy has no damage in the parts that were checked."""


async def look(
    metadata: MetadataStore, root: Path, records: list[tuple[str, LedgerRecord]], *, read: bool
) -> CheckedCopies:
    """Checks that every object of a complete copy exists, and with `read` reads it. Changes nothing.

    `records`: pairs of log and ledger. Raises MetadataError.
    """
    found = CheckedCopies()
    async with _storage(metadata, root) as storage:
        for log_name, record in records:
            if record.offload is not None and record.offload.complete and not record.offload.foreign:
                await _look_at(found, storage, log_name, record, read=read)
    return found


async def _look_at(
    found: CheckedCopies, storage: TieredStorage, log_name: str, record: LedgerRecord, *, read: bool
) -> None:
    assert record.offload is not None
    copy = OffloadedCopy(record.ledger_id, record.offload)
    found.objects += len(record.offload.segments)
    before = len(found.findings)
    try:
        store = storage.store(record.offload.url)
        reader = storage.reader(log_name, copy, entries=record.entries, size_bytes=record.size_bytes)
    except StoreError as error:
        found.findings.append(Finding(record.offload.url, 0, 0, str(error), False, record.ledger_id))
        return
    for segment in record.offload.segments:
        name = segment_name(log_name, copy, segment)
        place = f"{store.url}: {name}"
        entry, tries = segment.first_entry, 0
        try:
            whole = await store.size(name) == segment.file_bytes
        except MagnetarError:
            whole = False
        while entry <= segment.last_entry and (read or not whole):
            try:
                entry = (await reader.read(entry, segment.last_entry, _READ_BYTES))[-1].last_entry + 1
                if not whole and not read:
                    break
            except LostEntriesError as error:
                last = segment.last_entry if error.last_entry is None else error.last_entry
                found.findings.append(
                    Finding(place, 0, segment.file_bytes, str(error), False, record.ledger_id, entry, last)
                )
                if error.certain and record.offload.local_deleted:
                    found.lost.append((log_name, record.ledger_id, entry, last, place))
                entry = last + 1
            except MagnetarError as error:
                tries += 1
                if error.retriable and tries < _TRIES:
                    continue
                found.findings.append(
                    Finding(place, 0, segment.file_bytes, str(error), False, record.ledger_id)
                )
                break
    if len(found.findings) == before:
        found.whole.add(record.ledger_id)


@asynccontextmanager
async def _storage(metadata: MetadataStore, root: Path) -> AsyncIterator[TieredStorage]:
    from magnetar.tiered.parquet.offload_worker import OffloadWorker

    clock = SystemClock()
    here = (root / "offloaded").absolute()
    storage = TieredStorage(
        CopyStores(here.as_uri(), lambda url: RetryingStore(open_store(url, clock), pause)),
        work_dir=root / "offload",
        clock=clock,
        new_worker=lambda waited_for: OffloadWorker(niceness=0),
        spawn=_leave,
        cache_bytes=0,
    )
    storage.former = {url: here.as_uri() for url in await known_places(metadata) if url != here.as_uri()}
    try:
        yield storage
    finally:
        await storage.close()


def _leave(work: Coroutine[object, object, None]) -> None:
    """Drops background work: nothing is read ahead here."""
    work.close()
