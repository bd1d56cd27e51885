"""Merges several small objects into one, from which their ledgers are then read.

    note attempt ─ write file ─ upload ─ read back, compare ─ list names it ─ (lag) ─ old objects are deleted

A crash leaves, depending on when it comes:
- before the attempt is noted: nothing;
- after it: an object that the next opening of the log deletes, as the stored list says;
- after the list names it: old objects that are deleted when the lag is over, as the stored list says.

Readers may use the old objects until then. A broker that lost the log cannot change the list, so the object
that it made is deleted. A merge stops when retention removes one of its ledgers.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING
from uuid import UUID

from magnetar.base.errors import MagnetarError, StorageError
from magnetar.runtime.threads import in_thread
from magnetar.tiered import merging
from magnetar.tiered.api import LedgerMovedError, OffloadedLog
from magnetar.tiered.context import LedgerRange, OffloadContext, OffloadedCopy, OffloadedSegment, segment_name
from magnetar.tiered.key_merging import KeyDirectories
from magnetar.tiered.merging import EVERYTHING, MergeBlock, MergeBounds, MergeLimits
from magnetar.tiered.parquet.parquet_history import AsyncByteSource, DamagedSegmentError, SegmentOrigin
from magnetar.tiered.policy import OffloadPolicy
from magnetar.tiered.source import ObjectSource
from magnetar.tiered.storage import TieredStorage

if TYPE_CHECKING:
    from magnetar.tiered.offloader import Offloader

_log = logging.getLogger("magnetar.tiered")

Progress = Callable[[int, int], None]
"""Called with the number of merged objects and the number of all objects."""


class MergeError(StorageError):
    """Objects could not be merged and are unchanged. `retriable`: a later attempt may succeed."""

    def __init__(self, text: str, *, retriable: bool) -> None:
        super().__init__(text)
        self.retriable = retriable


@dataclass(slots=True)
class Merged:
    """The result of a merge, or what a dry run would do."""

    files: int = 0
    """Objects that were merged."""
    made: int = 0
    """Objects that were made from them."""
    file_bytes: int = 0
    """Bytes of the objects that were merged."""
    made_bytes: int = 0
    """Bytes of the objects that were made; 0 in a dry run."""
    waiting: int = 0
    """Objects that cannot be merged yet, because too many replaced copies must be deleted first."""


class Merger:
    """Merges objects of one log at a time."""

    def __init__(
        self,
        storage: TieredStorage,
        offloader: Offloader,
        keys: KeyDirectories,
        *,
        new_id: Callable[[], UUID],
        turn: asyncio.Lock,
    ) -> None:
        """`turn`: lock that is held while an object is made."""
        self.step: Callable[[str], None] = lambda step: None
        """Called before each step, with its name, so that tests can crash there: `note`, `write`, `upload`,
        `compare`, `name`, `done`."""
        self.before_each: Callable[[], Awaitable[None]] | None = None
        """See `Offloading.before_each`."""
        self._storage = storage
        self._offloader = offloader
        self._keys = keys
        self._new_id = new_id
        self._turn = turn

    async def merge(
        self,
        log: OffloadedLog,
        policy: OffloadPolicy,
        *,
        target_bytes: int = merging.TARGET_BYTES,
        dry_run: bool = False,
        progress: Progress = lambda done, total: None,
        bounds: MergeBounds = EVERYTHING,
    ) -> Merged:
        """Merges small objects of a log; with `dry_run` only counts them.

        Raises MergeError, which names the objects, LogFencedError, MetadataError. Merges that ended before
        the error stay in force.
        """
        planned = bounds.of(merging.plan(log.sealed(), MergeLimits.under(target_bytes, log.retention)))
        groups = [part for group in planned for part in await self._alike(log, group)]
        total = sum(len(group) for group in groups)
        result = Merged()
        lag_ms = policy.deletion_lag_ms if policy.deletion_lag_ms >= 0 else OffloadPolicy().deletion_lag_ms
        for group in groups:
            progress(result.files + result.waiting, total)
            ledgers = sum(len(block.ledgers) for block in group)
            if log.replaced and log.replaced + len(group) > merging.REPLACED_MAX:
                result.waiting += len(group)
                continue
            if not dry_run:
                async with self._turn:
                    begun_s = monotonic()
                    made_bytes = await self._merge_group(log, group, lag_ms)
                    worked_s = monotonic() - begun_s
                result.made_bytes += made_bytes
                self._storage.figures.merged += len(group)
                _log.info(
                    "log %s: %d objects of %d ledgers are merged into one", log.name, len(group), ledgers
                )
                await self._offloader.rest(worked_s, made_bytes)
            result.files += len(group)
            result.made += 1
            result.file_bytes += sum(block.file_bytes for block in group)
        progress(total, total)
        if result.made and not dry_run:
            self._storage.changed(log.name)
            await self._add_keys(log)
        return result

    async def _alike(self, log: OffloadedLog, group: tuple[MergeBlock, ...]) -> list[tuple[MergeBlock, ...]]:
        """The parts of a group that can be merged because their values have the same fields."""
        try:
            runs = await self._storage.converter().alike([self._source(log, block) for block in group])
        except MagnetarError as error:
            raise _failed(log, group, error) from error
        ends = list(accumulate(runs))
        parts = [group[end - run : end] for run, end in zip(runs, ends, strict=True)]
        return [part for each in parts for part in merging.worthwhile(each)]

    async def _add_keys(self, log: OffloadedLog) -> None:
        """Adds a directory of keys beside the newest copy, for the copies that no directory covers now."""
        complete = [each for each in log.sealed() if each.offload is not None and each.offload.complete]
        newest = complete[-1] if complete else None
        if newest is not None and newest.offload is not None and newest.offload.keys is None:
            await self._keys.add(log, newest.ledger_id)

    async def _merge_group(self, log: OffloadedLog, group: Sequence[MergeBlock], lag_ms: int) -> int:
        """Merges one group; returns the bytes of the new object."""
        members = [ledger for block in group for ledger in block.ledgers]
        span = LedgerRange(members[0].ledger_id, members[-1].ledger_id)
        url, attempt = self._storage.url, self._new_id()
        now_ms = self._storage.clock.now_ms()
        intent = OffloadContext(attempt, url, timestamp_ms=now_ms, local_deleted=True, merged=span)
        if self.before_each is not None:
            await self.before_each()
        self.step("note")
        await log.begin_merge(OffloadedCopy(span.first, intent))
        try:
            context = await self._make(log, group, intent)
            self.step("name")
        except BaseException as error:
            log.drop_merge(attempt)
            if isinstance(error, MagnetarError | OSError):
                await self._leave(log, OffloadedCopy(span.first, intent))
                raise _failed(log, group, error) from error
            raise
        try:
            await log.end_merge(
                OffloadedCopy(span.first, context), members, self._storage.clock.now_ms() + lag_ms
            )
        except LedgerMovedError:
            await self._leave(log, OffloadedCopy(span.first, intent))
            raise
        self.step("done")
        return context.size_bytes

    async def _leave(self, log: OffloadedLog, made: OffloadedCopy) -> None:
        """Deletes an object that no list names as a copy, when the log's next owner may have looked for it
        before it was there."""
        if log.open:
            # `delete_copies` does.
            return
        try:
            await self._storage.delete(log.name, made)
        except MagnetarError as error:  # found later, as an object that no log names
            _log.warning("log %s: the object of a merge is left over for now: %s", log.name, error)

    async def _make(
        self, log: OffloadedLog, group: Sequence[MergeBlock], intent: OffloadContext
    ) -> OffloadContext:
        """Writes, uploads and compares the object; returns its record."""
        parts = [self._source(log, block) for block in group]
        first = group[0].ledgers[0].ledger_id
        entries = sum(ledger.entries for block in group for ledger in block.ledgers)
        store, worker = self._storage.store(intent.url), self._storage.converter()
        file = self._storage.work_dir / f"{intent.attempt}.parquet"
        topic, _ = await self._offloader.schemas_of(log.name)
        try:
            self.step("write")
            summary = await worker.merge(parts, SegmentOrigin(topic, first, merged=True), str(file))
            # Most starts copy nothing: the first copy loads it.
            from magnetar.tiered.footers import read_footer

            footer = await in_thread(read_footer, file)
            made = OffloadedSegment(0, entries - 1, summary.file_bytes, footer)
            context = intent.completed(now_ms=self._storage.clock.now_ms(), segments=(made,))
            name = segment_name(log.name, OffloadedCopy(first, context), context.segments[0])
            if not log.open:
                raise LedgerMovedError(f"log {log.name} was closed or deleted meanwhile")
            self.step("upload")
            await store.put(name, file)
        finally:
            _remove(file)
        self.step("compare")
        size = await store.size(name)
        if size != summary.file_bytes:
            raise DamagedSegmentError(f"{name} in {store.url} has {size} of {summary.file_bytes} bytes")
        # Through the store, not the file: what is compared is what readers will get.
        source = ObjectSource(store, name, size, by_file=False, footer=footer)
        compared = await worker.verify_merged(source, parts)
        if compared != entries:
            raise DamagedSegmentError(f"{name} in {store.url} has {compared} of {entries} entries")
        return context

    def _source(self, log: OffloadedLog, block: MergeBlock) -> AsyncByteSource:
        ledger = block.ledgers[0]
        assert ledger.offload is not None
        copy = OffloadedCopy(ledger.ledger_id, ledger.offload)
        segment = ledger.offload.segments[0]
        name = segment_name(log.name, copy, segment)
        store = self._storage.store(ledger.offload.url)
        return ObjectSource(store, name, block.file_bytes, footer=segment.footer)


def _failed(log: OffloadedLog, group: Sequence[MergeBlock], error: MagnetarError | OSError) -> MergeError:
    first, last = group[0].ledgers[0].ledger_id, group[-1].ledgers[-1].ledger_id
    return MergeError(
        f"ledgers {first} to {last} of log {log.name} could not be merged: {error}",
        retriable=not isinstance(error, MagnetarError) or error.retriable,
    )


def _remove(file: Path) -> None:
    file.unlink(missing_ok=True)
