"""Reads a ledger from its copy; readers get the same entries as from the bookies."""

from __future__ import annotations

import logging
import signal
from bisect import bisect_right
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from time import monotonic
from typing import Final

from magnetar.base.entries import EntryRun
from magnetar.base.errors import LostEntriesError, LostRange, MagnetarError
from magnetar.base.ids import LedgerId
from magnetar.ledger.api import NoSuchEntryError
from magnetar.runtime.tasks import SingleFlight
from magnetar.tiered.context import OffloadedCopy, OffloadedSegment, segment_name
from magnetar.tiered.errors import DamagedObjectError, MissingObjectError, UnreadableCopyError
from magnetar.tiered.figures import OffloadFigures
from magnetar.tiered.ownership import RECORD
from magnetar.tiered.parquet.parquet_history import (
    DamagedRowsError,
    DamagedSegmentError,
    SegmentWorker,
    WorkerLostError,
)
from magnetar.tiered.pieces import Piece, PieceCache
from magnetar.tiered.source import ObjectSource
from magnetar.tiered.stores.object_store import ObjectStore

_log = logging.getLogger("magnetar.tiered")

PIECE_BYTES: Final = 1 << 20
"""Bytes of the first read at a place of a copy. It is small because look-ups read single entries."""
AHEAD_BYTES: Final = 8 << 20
"""Bytes of each further read by a sequential reader. The next read is made while these bytes are delivered.
Two of these reads are one row group."""

ABORTS_MAX: Final = 2
"""Aborts of the worker on one segment after which the segment counts as damaged."""
_ABORTS: Final = (-signal.SIGABRT, -signal.SIGSEGV)

_READERS_MAX: Final = 256
"""Most readers of one ledger whose last place is remembered, to recognise sequential reads."""


@dataclass(frozen=True, slots=True)
class CopyReading:
    """What all readers of copies in a process share."""

    cache: PieceCache
    figures: OffloadFigures
    spawn: Callable[[Coroutine[object, object, None]], None]
    """Runs reads ahead of consumers."""


class OffloadedReader:
    """See `CopyReader`."""

    def __init__(
        self,
        log_name: str,
        copy: OffloadedCopy,
        *,
        entries: int,
        size_bytes: int,
        store: ObjectStore,
        worker: Callable[[], SegmentWorker],
        reading: CopyReading,
    ) -> None:
        self._log_name = log_name
        self._copy = copy
        self._entries = entries
        self._size_bytes = size_bytes
        self._store = store
        self._worker = worker
        self._cache = reading.cache
        self._figures = reading.figures
        self._spawn = reading.spawn
        self._segments = copy.context.segments
        self._firsts = [segment.first_entry for segment in self._segments]
        self._fetches = SingleFlight[Piece]()
        # Where reads that were fetched ahead begin.
        self._ahead: set[int] = set()
        # How often the worker ended over a segment, by its first entry.
        self._aborted: dict[int, int] = {}
        # Where the last reads ended, oldest first.
        self._ends: dict[int, None] = {}

    @property
    def ledger_id(self) -> LedgerId:
        return self._copy.ledger_id

    @property
    def last_entry(self) -> int:
        return self._entries - 1

    @property
    def length_bytes(self) -> int:
        return self._size_bytes

    def read_now(self, first: int, last: int, bytes_max: int) -> list[EntryRun] | None:
        last = self._bound(first, last)
        piece = self._cache.find(self._copy, first)
        return None if piece is None else self._served(piece, first, last, bytes_max)

    async def read(self, first: int, last: int, bytes_max: int) -> list[EntryRun]:
        last = self._bound(first, last)
        piece = self._cache.find(self._copy, first)
        if piece is None:
            piece = await self._fetch(first, AHEAD_BYTES if self._reads_on(first) else PIECE_BYTES)
        return self._served(piece, first, last, bytes_max)

    def _bound(self, first: int, last: int) -> int:
        if not 0 <= first <= self.last_entry:
            raise NoSuchEntryError(self.ledger_id, first)
        return min(max(first, last), self.last_entry)

    def _reads_on(self, first: int) -> bool:
        """Whether a read ended just before `first`, or `first` is the ledger's beginning."""
        return first == 0 or first in self._ends

    def _served(self, piece: Piece, first: int, last: int, bytes_max: int) -> list[EntryRun]:
        """The requested entries of a piece; for a sequential reader it starts the read of the next piece."""
        runs = piece.cut(first, last, bytes_max)
        following = piece.last_entry + 1
        expected = following <= self.last_entry and following not in self._ahead and self._reads_on(first)
        if expected and self._cache.find(self._copy, following) is None:
            self._ahead.add(following)
            self._spawn(self._fetch_ahead(following))
        self._ends.pop(first, None)
        self._ends[runs[-1].last_entry + 1] = None
        if len(self._ends) > _READERS_MAX:
            del self._ends[next(iter(self._ends))]
        return runs

    async def _fetch_ahead(self, first: int) -> None:
        try:
            await self._fetch(first, AHEAD_BYTES)
        except MagnetarError as error:
            # A sequential reader meets it again.
            _log.debug("%s", error)
        finally:
            self._ahead.discard(first)

    async def _fetch(self, first: int, bytes_max: int) -> Piece:
        return await self._fetches.run(first, lambda: self._fetched(first, bytes_max))

    async def _fetched(self, first: int, bytes_max: int) -> Piece:
        segment = self._segments[bisect_right(self._firsts, first) - 1]
        begun_s = monotonic()
        try:
            runs = await self._worker().entries(self._source(segment), self.ledger_id, first, bytes_max)
        except MagnetarError as error:
            self._figures.read_errors += 1
            raise await self._explained(segment, error) from error
        self._aborted.pop(segment.first_entry, None)
        piece = Piece(runs)
        assert piece.first_entry == first, "the segment begins elsewhere than the list says"
        self._figures.read(sum(run.size_bytes for run in runs), monotonic() - begun_s)
        self._cache.add(self._copy, piece)
        return piece

    def _source(self, segment: OffloadedSegment) -> ObjectSource:
        name = segment_name(self._log_name, self._copy, segment)
        return ObjectSource(self._store, name, segment.file_bytes, footer=segment.footer)

    async def _explained(self, segment: OffloadedSegment, error: MagnetarError) -> MagnetarError:
        """The error with the names of object and log, and with the lost entries if the object is damaged."""
        if isinstance(error, DamagedRowsError):
            return self._lost(segment, error, error.first_entry, error.last_entry)
        if isinstance(error, DamagedSegmentError | DamagedObjectError):
            return self._lost(segment, error, segment.first_entry, segment.last_entry)
        if isinstance(error, WorkerLostError) and error.status in _ABORTS:
            times = self._aborted[segment.first_entry] = 1 + self._aborted.get(segment.first_entry, 0)
            if times >= ABORTS_MAX:
                # Parquet's reader ends the process over some damage. So does a lack of memory.
                return self._lost(segment, error, segment.first_entry, segment.last_entry, certain=False)
        if not error.retriable and (missing := await self._missing(segment)) is not None:
            try:
                # A store that lost its owner's record as well is not where it was: not mounted, for example.
                certain = await self._store.read(RECORD) is not None
            except MagnetarError:
                certain = False
            return self._lost(segment, missing, segment.first_entry, segment.last_entry, certain=certain)
        return UnreadableCopyError(
            f"ledger {self.ledger_id} of log {self._log_name} cannot be read from"
            f" {self._store.url}: {segment_name(self._log_name, self._copy, segment)}: {error}",
            retriable=error.retriable,
        )

    async def _missing(self, segment: OffloadedSegment) -> MissingObjectError | None:
        """The error to raise when the store says that the object does not exist; else None."""
        try:
            await self._store.size(segment_name(self._log_name, self._copy, segment))
        except MissingObjectError as error:
            return error
        except MagnetarError as error:  # the question stays open; the error that led here is raised
            _log.debug("%s", error)
        return None

    def _lost(
        self, segment: OffloadedSegment, error: MagnetarError, first: int, last: int, *, certain: bool = True
    ) -> LostEntriesError:
        return LostEntriesError(
            f"{self._store.url}: {segment_name(self._log_name, self._copy, segment)}",
            0,
            f"the copy of log {self._log_name} cannot be read: {error}",
            LostRange(self.ledger_id, first, last),
            remedy=(
                "bring the object back; or"
                f" `magnetar storage accept-loss {self.ledger_id} {first} --to {last}` gives them up"
            ),
            certain=certain,
        )

    async def position_at(self, time_ms: int) -> int:
        for segment in self._segments:
            begun_s = monotonic()
            try:
                entry = await self._worker().position_at(self._source(segment), self.ledger_id, time_ms)
            except MagnetarError as error:
                self._figures.read_errors += 1
                raise await self._explained(segment, error) from error
            self._figures.looked_up(monotonic() - begun_s)
            if entry is not None:
                return entry
        return self._entries
