"""Lost entries of a log: whether they are skipped, and which were (pure).

A hole is proven: its bytes exist and do not match their checksum, or were found damaged when the segment was
scanned, or every bookie that should have a copy has answered without one, or an object store reports the only
copy as damaged. It is skipped when an operator says so, either for these entries for good (`magnetar doctor
storage salvage`, `magnetar storage accept-loss`) or for every hole (`auto_skip_non_recoverable_data`).
Otherwise dispatch waits there and reports why: a copy of the disk may still be found.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, TypeAlias

from magnetar.base.entries import EntryRun
from magnetar.base.errors import LostEntriesError
from magnetar.base.ids import LedgerId, Position
from magnetar.ledger.api import LedgerReader, may_have_lost
from magnetar.managedlog.cursors.cursor import Cursor
from magnetar.observability.metrics import Exposition

INDEXES_PER_ENTRY: Final = 1_000
"""Messages that a lost entry may have held, the clients' default batch size. When the last entries of a
ledger are lost, this many indexes (PIP-70) are left out for each, so that none is assigned twice."""
UNCERTAIN_INDEXES: Final = 1_000_000
"""The same when the number of lost entries is unknown."""

GivenUpRanges: TypeAlias = Callable[[], Mapping[LedgerId, Sequence[tuple[int, int]]]]
"""Returns the first and last entries by ledger, ascending."""


class HolePolicy:
    """The operator's decisions about lost entries. One for all logs of a process."""

    def __init__(
        self,
        *,
        skip_all: bool = False,
        given_up: GivenUpRanges = dict,
    ) -> None:
        self.skip_all = skip_all
        """May be changed at any time."""
        self.skipped_entries = 0
        """Entries skipped since the process began."""
        self.given_up = given_up
        """Called at each hole."""

    def collect(self, out: Exposition) -> Iterable[None]:
        """Adds its samples to a scrape."""
        out.counter(
            "magnetar_lost_entries_passed_over_total",
            "Entries lost to damage that consumers skipped.",
            self.skipped_entries,
        )
        yield

    def skips_to(self, error: LostEntriesError, last: int) -> int | None:
        """The last entry of this hole that may be skipped, at most `last`; None: none may."""
        last = last if error.last_entry is None else min(error.last_entry, last)
        if self.skip_all and error.certain:
            return last
        assert error.ledger_id is not None
        for first, stop in self.given_up().get(error.ledger_id, ()):
            if first <= error.first_entry <= stop:
                return min(stop, last)
        return None


class Skipped:
    """The entries of one log that were skipped since it was opened."""

    def __init__(self) -> None:
        self._holes: dict[LedgerId, list[tuple[int, int]]] = {}

    def add(self, ledger_id: LedgerId, first: int, last: int) -> None:
        """Records that the entries `first` to `last` of a ledger are skipped."""
        self._holes.setdefault(ledger_id, []).append((first, last))

    def behind(self, position: Position) -> Position:
        """`position`, or the position after the hole that contains it."""
        ledger_id, entry = position
        for first, last in sorted(self._holes.get(ledger_id, ())):
            if first <= entry <= last:
                entry = last + 1
        return Position(ledger_id, entry)

    def shown(self) -> list[str]:
        """Each hole as `ledger:first-last`."""
        return [
            f"{ledger_id}:{first}-{last}"
            for ledger_id, holes in sorted(self._holes.items())
            for first, last in sorted(holes)
        ]

    def lead(self, cursor: Cursor, wanted: Position, runs: list[EntryRun], *, replay: bool) -> list[EntryRun]:
        """The runs, read from `wanted` on, that the subscription gets; the holes count as acknowledged."""
        self.acknowledge(cursor)
        # A caller that asked for one entry again, which is lost, does not get later ones: they were sent
        # before.
        past = replay and runs and (runs[0].ledger_id, runs[0].first_entry) > wanted
        return [] if past else runs

    def acknowledge(self, cursor: Cursor) -> None:
        """Lost entries count as acknowledged, or the cursor would stay before them for ever."""
        for ledger_id, holes in self._holes.items():
            for first, last in holes:
                if Position(ledger_id, last) > cursor.mark_delete:
                    cursor.ack_between(Position(ledger_id, first - 1), Position(ledger_id, last + 1))


class LedgerBounds:
    """Bounds of a ledger's indexes and times, from its first and last intact entries."""

    __slots__ = ("base_index", "next_index", "time_ms")

    def __init__(self, base_index: int, next_index: int, time_ms: int) -> None:
        self.base_index = base_index
        """Messages in the log before the ledger."""
        self.next_index = next_index
        """Upper bound of the ledger's indexes, exclusive."""
        self.time_ms = time_ms
        """Broker time of the last intact entry; 0 when there is none."""


async def bounds_of(reader: LedgerReader, index_before: int) -> LedgerBounds:
    """The bounds of a ledger with at least one entry; `index_before`: of the first message, as far as it is
    known.

    Lost entries at the ends do not keep a log from being opened. Raises LedgerError, StorageError.
    """
    first = await _intact(reader, 0, step=1)
    last = await _intact(reader, reader.last_entry, step=-1)
    lost_in_front = first is None or first.first_entry > 0
    base_index = max(index_before, 0) if first is None or lost_in_front else first.base_index
    if first is not None and lost_in_front:
        # Each lost entry was one message at least.
        base_index = min(base_index or first.base_index - first.first_entry, first.base_index)
    next_index, time_ms, last_entry = base_index, 0, -1
    if last is not None:
        next_index, time_ms = last.base_index + last.message_count, last.broker_time_ms
        last_entry = last.last_entry
    next_index += (reader.last_entry - last_entry) * INDEXES_PER_ENTRY
    if may_have_lost(reader):
        next_index += UNCERTAIN_INDEXES
    return LedgerBounds(base_index, next_index, time_ms)


async def _intact(reader: LedgerReader, entry: int, *, step: int) -> EntryRun | None:
    """The nearest intact entry to `entry` in the direction of `step`; None: all are lost."""
    while 0 <= entry <= reader.last_entry:
        try:
            return (await reader.read(entry, entry, 1))[0]
        except LostEntriesError as error:
            if not error.certain:
                raise
            last = reader.last_entry if error.last_entry is None else error.last_entry
            entry = max(entry, last) + 1 if step > 0 else min(entry, error.first_entry) - 1
    return None
