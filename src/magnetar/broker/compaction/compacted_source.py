"""Reads and acknowledgements of a subscription with `read_compacted`."""

from __future__ import annotations

from collections.abc import Sequence

from magnetar.base.entries import EntryRun
from magnetar.base.ids import LedgerId, Position
from magnetar.broker.compaction.compacted_view import CompactedView
from magnetar.broker.compaction.progress import NAMES, Progress, after, before
from magnetar.broker.compaction.survivors import left_in_batch
from magnetar.managedlog.cursors.ack_words import words_of_bits
from magnetar.managedlog.cursors.cursor import Cursor

_FIRST = Position(LedgerId(0), 0)


def forget_progress(cursor: Cursor) -> None:
    """The subscription starts again somewhere in the log: its progress in the compacted part is void. Durable
    only with the cursor."""
    if not NAMES.isdisjoint(cursor.properties):
        cursor.set_properties({key: value for key, value in cursor.properties.items() if key not in NAMES})


class CompactedSource:
    """One view for one cursor: reads like a log, is acknowledged like a cursor (AckView).

    Messages that compaction removed count as acknowledged once a read has passed them. Otherwise individual
    acknowledgements would leave the mark-delete behind for ever, because clients acknowledge only what they
    get. The same holds for messages removed from a batch; the batch's ack set tells the client which messages
    to hand out.
    """

    def __init__(self, view: CompactedView, cursor: Cursor, start: Position) -> None:
        """`start` is the first entry wanted by a subscription that is new; EARLIEST and LATEST included."""
        self._view = view
        self._cursor = cursor
        self._seeks = 0
        self._progress = Progress.of(cursor.properties)
        if self._progress is None and cursor.mark_delete.entry_id < 0:
            # Only one that has read nothing yet begins before the log's first entry.
            self._begin(start)

    def _begin(self, start: Position) -> None:
        floor = self._view.floor(durable=self._cursor.durable)
        if self._cursor.mark_delete < floor and start < floor and self._view.covers(start):
            self._progress = Progress(before(max(start, _FIRST)), floor)
            self._keep(self._progress)

    def _keep(self, progress: Progress) -> None:
        self._cursor.set_properties({**self._cursor.properties, **progress.properties()})

    def _open(self) -> Progress | None:
        """The progress, while any entry before its floor is to be delivered."""
        progress = self._progress
        return None if progress is None or progress.complete else progress

    def sought(self, position: Position) -> None:
        """The subscription starts again at `position`, EARLIEST and LATEST included; its cursor was reset."""
        self._seeks += 1
        self._progress = None
        forget_progress(self._cursor)
        self._begin(position)

    # -- reading -----------------------------------------------------------------------------------

    def read_now(self, position: Position, bytes_max: int, entries_max: int) -> list[EntryRun] | None:
        return self._view.read_now(position, bytes_max, entries_max)

    async def read(self, position: Position, bytes_max: int, entries_max: int) -> list[EntryRun]:
        """As `ManagedLog.read`; up to the horizon from the compacted ledger."""
        seeks = self._seeks
        runs, upto = await self._view.read_noting(position, bytes_max, entries_max)
        if upto is not None and seeks == self._seeks:
            self._note(position, runs, upto)
        return runs

    def _note(self, start: Position, runs: list[EntryRun], upto: Position) -> None:
        survivors = [
            (place, left_in_batch(entry, run.count_of(offset)))
            for run in runs
            for offset, entry in enumerate(run.entries)
            if (place := Position(run.ledger_id, run.first_entry + offset)) <= upto
        ]
        progress = self._open()
        if progress is not None:
            mark = progress.mark
            progress.saw(start, survivors, upto)
            self._moved(progress, mark)
        last = before(start)
        if self._progress is not None:
            last = max(last, before(self._progress.floor))
        for place, left in survivors:
            if place > last:
                self._cursor.ack_between(last, place)
                if left:
                    self._cursor.ack_batch(place, words_of_bits(left), 0)
                last = place
        if upto > last:
            self._cursor.ack_between(last, after(upto))

    def _moved(self, progress: Progress, mark: Position) -> None:
        if progress.mark != mark:
            self._keep(progress)
            if progress.complete:
                # For a reader in memory, whose floor lies in the log.
                self._cursor.ack_cumulative(progress.mark)

    def next_position(self, position: Position) -> Position:
        """The place after `position` to read on."""
        return self._view.next_position(position)

    async def position_of_time(self, publish_ms: int) -> Position:
        return await self._view.position_of_time(publish_ms)

    async def last_message(self) -> tuple[Position, int] | None:
        return await self._view.last_message()

    # -- what is acknowledged ----------------------------------------------------------------------

    @property
    def mark_delete(self) -> Position:
        progress = self._open()
        return self._cursor.mark_delete if progress is None else progress.mark

    @property
    def has_holes(self) -> bool:
        return self._open() is not None or self._cursor.has_holes

    @property
    def backlog_entries(self) -> int:
        """Entries to be delivered, as far as they are known; not 0 while there are any."""
        progress = self._open()
        if progress is None:
            return self._cursor.backlog_entries
        return self._cursor.backlog_entries + max(progress.pending_count, 1)

    def _of_progress(self, position: Position) -> Progress | None:
        progress = self._progress
        return progress if progress is not None and position < progress.floor else None

    def is_acked(self, position: Position) -> bool:
        progress = self._of_progress(position)
        return self._cursor.is_acked(position) if progress is None else progress.is_acked(position)

    def ack_set(self, position: Position) -> tuple[int, ...] | None:
        progress = self._of_progress(position)
        return self._cursor.ack_set(position) if progress is None else progress.ack_set(position)

    def next_unacked(self, position: Position) -> Position:
        return self._cursor.next_unacked(position)

    @property
    def has_redeliveries(self) -> bool:
        return self._cursor.has_redeliveries

    def may_know_from(self, position: Position) -> bool:
        return self._open() is not None or self._cursor.may_know_from(position)

    def redelivery_count(self, position: Position) -> int:
        return self._cursor.redelivery_count(position)

    def redelivered(self, positions: Sequence[Position]) -> None:
        self._cursor.redelivered(positions)

    def ack(self, positions: Sequence[Position]) -> None:
        """As `Cursor.ack`."""
        progress = self._open()
        if progress is not None:
            mark = progress.mark
            progress.ack([position for position in positions if position < progress.floor])
            self._moved(progress, mark)
        self._cursor.ack(positions)

    def ack_batch(self, position: Position, ack_set: Sequence[int], batch_size: int) -> bool:
        """As `Cursor.ack_batch`."""
        progress = self._of_progress(position)
        if progress is None:
            return self._cursor.ack_batch(position, ack_set, batch_size)
        mark = progress.mark
        whole = progress.ack_batch(position, ack_set, batch_size)
        self._moved(progress, mark)
        return whole

    def ack_cumulative(self, position: Position) -> None:
        """As `Cursor.ack_cumulative`."""
        progress = self._open()
        if progress is not None:
            mark = progress.mark
            progress.ack_cumulative(position)
            self._moved(progress, mark)
        self._cursor.ack_cumulative(position)

    def ack_cumulative_batch(self, position: Position, ack_set: Sequence[int], batch_size: int) -> bool:
        """As `Cursor.ack_cumulative_batch`."""
        if self._of_progress(position) is None:
            progress = self._open()
            if progress is not None:
                self.ack_cumulative(before(progress.floor))
            return self._cursor.ack_cumulative_batch(position, ack_set, batch_size)
        self.ack_cumulative(before(position))
        return self.ack_batch(position, ack_set, batch_size)
