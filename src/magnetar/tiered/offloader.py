"""Carries out attempts: reads ledgers, converts them in a worker, uploads the segments, and compares them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Final, Protocol
from uuid import UUID

from magnetar.base.clock import Clock
from magnetar.base.entries import EntryRun
from magnetar.base.errors import MagnetarError
from magnetar.observability.histogram import Histogram
from magnetar.runtime.tasks import pause
from magnetar.runtime.threads import in_thread
from magnetar.tiered.api import LedgerMovedError, OffloadedLog, SealedLedger
from magnetar.tiered.attempt import (
    Convert,
    Effect,
    OffloadAttempt,
    Outcome,
    Remember,
    Upload,
    Verify,
)
from magnetar.tiered.context import OffloadedCopy, OffloadedSegment, attempt_prefix, keys_name, segment_name
from magnetar.tiered.errors import StoreError
from magnetar.tiered.figures import OffloadFigures
from magnetar.tiered.pace import Pace
from magnetar.tiered.parquet.parquet_history import (
    DamagedSegmentError,
    SegmentOrigin,
    SegmentWorker,
    StoredTopicSchema,
)
from magnetar.tiered.source import ObjectSource
from magnetar.tiered.stores.object_store import ObjectStore

READ_BYTES: Final = 256 << 10
"""Bytes of a ledger per read; a pause follows each read. A read keeps the loop busy for a third of a
millisecond; with 1 MiB it was more than a millisecond."""
SEGMENT_BYTES: Final = 512 << 20
"""Most bytes of entries in one object; it takes at most this much space in the working folder."""

SchemasOf = Callable[[str], Awaitable[tuple[str, Sequence[StoredTopicSchema]]]]
"""Returns the full name of the topic of a log, and all versions of its schema."""


class Workplace(Protocol):
    """Where copies are made."""

    @property
    def work_dir(self) -> Path:
        """Holds files that are not uploaded yet."""

    @property
    def figures(self) -> OffloadFigures:
        """Counts what is done."""

    def converter(self) -> SegmentWorker:
        """Converts and compares."""


class Offloader:
    """Copies one ledger after the other."""

    def __init__(
        self,
        workplace: Workplace,
        *,
        clock: Clock,
        pace: Pace,
        schemas_of: SchemasOf,
        busy: Callable[[], bool] = lambda: False,
        segment_bytes: int = SEGMENT_BYTES,
    ) -> None:
        """`busy` returns whether clients are active; `segment_bytes`: most bytes of entries in one object."""
        self.step: Callable[[Effect], None] = lambda effect: None
        """Called with every effect before it begins."""
        self.commits: Histogram | None = None
        """Returns the duration of syncs of the message store; None: not known."""
        self._commits_seen = (0, 0.0)
        self.retire: Callable[[str, Sequence[OffloadedCopy]], Awaitable[None]] | None = None
        """Called before a complete copy is deleted; see `Tiers.retire`."""
        self._clock = clock
        self._pace = pace
        self._worker = workplace.converter
        self._work_dir = workplace.work_dir
        self._figures = workplace.figures
        self.schemas_of = schemas_of
        self._busy = busy
        self._segment_bytes = segment_bytes
        self._late_s = 0.0

    async def copy(
        self, log: OffloadedLog, ledger: SealedLedger, store: ObjectStore, attempt_id: UUID
    ) -> OffloadAttempt:
        """Carries out one attempt; returns it with `outcome` and `error`. A cancellation leaves the same
        state as a crash."""
        attempt = OffloadAttempt(ledger, attempt=attempt_id, url=store.url, now_ms=self._clock.now_ms())
        job = _Job(log, ledger, store, attempt.copy, self._work_dir / f"{attempt_id}.parquet")
        effect: Effect | None = attempt.begin()
        try:
            while effect is not None:
                self.step(effect)
                made = None
                try:
                    made = await self._carry_out(effect, job)
                except (MagnetarError, OSError) as error:
                    if isinstance(error, StoreError):
                        self._figures.write_errors += 1
                    effect = attempt.failed(error, refused=isinstance(error, LedgerMovedError))
                else:
                    effect = attempt.succeeded(self._clock.now_ms(), made)
        finally:
            job.file.unlink(missing_ok=True)
        if attempt.outcome is Outcome.COPIED:
            self._figures.ledgers += 1
            self._figures.copied_bytes += ledger.size_bytes
            self._figures.object_bytes += sum(segment.file_bytes for segment in attempt.segments)
        else:
            self._figures.errors += 1
        return attempt

    async def _carry_out(self, effect: Effect, job: _Job) -> OffloadedSegment | None:
        if isinstance(effect, Remember):
            await job.log.remember(effect.ledger_id, effect.known, effect.context)
        elif isinstance(effect, Convert):
            return await self._convert(effect.first_entry, job)
        elif isinstance(effect, Upload):
            job.check_open()
            await job.store.put(job.name_of(effect.segment), job.file)
            job.file.unlink(missing_ok=True)
        elif isinstance(effect, Verify):
            await self._verify(effect.segment, job)
        else:
            if self.retire is not None:
                await self.retire(job.log.name, (effect.copy,))
            self._figures.deleted += await discard(job.log.name, effect.copy, job.store)
        return None

    async def _convert(self, first_entry: int, job: _Job) -> OffloadedSegment:
        topic, schemas = await self.schemas_of(job.log.name)
        origin = SegmentOrigin(topic, job.ledger.ledger_id, schemas)
        job.file.unlink(missing_ok=True)
        runs = self._entries(job, first_entry, job.ledger.entries - 1)
        summary = await self._worker().convert(runs, origin, str(job.file))
        # Most starts copy nothing: the first copy loads it.
        from magnetar.tiered.footers import read_footer

        footer = await in_thread(read_footer, job.file)
        return OffloadedSegment(summary.first_entry, summary.last_entry, summary.file_bytes, footer)

    async def _verify(self, segment: OffloadedSegment, job: _Job) -> None:
        name, store = job.name_of(segment), job.store
        size = await store.size(name)
        if size != segment.file_bytes:
            raise DamagedSegmentError(f"{name} in {store.url} has {size} of {segment.file_bytes} bytes")
        # Through the store, not the file: what is compared is what readers will get.
        source = ObjectSource(store, name, size, by_file=False, footer=segment.footer)
        runs = self._entries(job, segment.first_entry, segment.last_entry)
        count = await self._worker().verify(source, runs)
        if count != segment.last_entry - segment.first_entry + 1:
            raise DamagedSegmentError(f"only {count} entries of {name} in {store.url} could be compared")

    async def _entries(self, job: _Job, first: int, last: int) -> AsyncIterator[Sequence[EntryRun]]:
        """Entries of a ledger up to `last`, or to the size of a segment, with pauses for clients."""
        size_bytes = 0
        while first <= last and size_bytes < self._segment_bytes:
            begun_s = monotonic()
            job.check_open()
            bytes_max = min(READ_BYTES, self._segment_bytes - size_bytes)
            runs = _up_to(await job.log.read(job.ledger.ledger_id, first, bytes_max), last)
            piece_bytes = sum(run.size_bytes for run in runs)
            self._figures.ledger_latency.add(monotonic() - begun_s)
            size_bytes += piece_bytes
            first = runs[-1].last_entry + 1
            yield runs
            await self.rest(monotonic() - begun_s, piece_bytes)

    async def rest(self, worked_s: float, size_bytes: int) -> None:
        """Pauses after work that took `worked_s` seconds for `size_bytes`, so that clients are not
        delayed."""
        pause_s = self._pace.pause_s(
            worked_s=worked_s,
            size_bytes=size_bytes,
            late_s=self._late_s,
            busy=self._busy(),
            commit_s=self._commit_s(),
        )
        self._figures.share = self._pace.share
        due_s = monotonic() + pause_s
        await pause(pause_s)
        self._late_s = monotonic() - due_s

    def _commit_s(self) -> float | None:
        """Average duration of syncs since the last call, in seconds; None without any."""
        if self.commits is None:
            return None
        (count, sum_s), self._commits_seen = self._commits_seen, (self.commits.count, self.commits.sum_s)
        new = self._commits_seen[0] - count
        return (self._commits_seen[1] - sum_s) / new if new else None


@dataclass(frozen=True, slots=True)
class _Job:
    """The parts of one attempt."""

    log: OffloadedLog
    ledger: SealedLedger
    store: ObjectStore
    copy: OffloadedCopy
    file: Path
    """Local file of the segment that is not uploaded yet."""

    def name_of(self, segment: OffloadedSegment) -> str:
        return segment_name(self.log.name, self.copy, segment)

    def check_open(self) -> None:
        if not self.log.open:
            raise LedgerMovedError(f"log {self.log.name} was closed or deleted meanwhile")


def _up_to(runs: list[EntryRun], last: int) -> list[EntryRun]:
    kept = [run for run in runs if run.first_entry <= last]
    if kept[-1].last_entry > last:
        kept[-1] = kept[-1].slice(0, last + 1 - kept[-1].first_entry)
    return kept


async def discard(log_name: str, copy: OffloadedCopy, store: ObjectStore) -> int:
    """Deletes every object of an attempt; returns their number. Raises StoreError; some may then be left."""
    names = [segment_name(log_name, copy, segment) for segment in copy.context.segments]
    if not names:
        # The copy is not complete: only the store knows its objects.
        prefix = attempt_prefix(log_name, copy.named_by, copy.context.attempt)
        names = [found.name async for found in store.list(log_name) if found.name.startswith(prefix)]
    else:
        # Written after the copy was complete; a crash may have left one that the list does not name.
        await store.delete(keys_name(log_name, copy))
    for name in names:
        await store.delete(name)
    return len(names)
