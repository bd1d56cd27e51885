"""Reads of a subscription with entry filters: like those without, and rejected entries are acknowledged
meanwhile.

Dispatchers skip acknowledged entries, so they need not know of filters. A decision is kept while its entry
waits for permits: between the first and the last decided entry all are accepted, acknowledged or put off.

What takes an expression too long for a turn of the loop is judged beside it, within a read, as if the entries
came from a disk: the pump has one read at a time, and waits for it. When it ends and the subscription has
been moved meanwhile, or has other filters or another source, nothing that was judged counts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple, Protocol, TypeAlias

from magnetar.base.clock import Clock
from magnetar.base.entries import EntryRun
from magnetar.base.ids import LedgerId, Position
from magnetar.base.names import TopicName
from magnetar.broker.dispatch.dispatcher import Dispatcher
from magnetar.broker.dispatch.shared import SharedDispatcher
from magnetar.broker.filters.beside import judged
from magnetar.broker.filters.entry_filter import FilterError, Verdict
from magnetar.broker.filters.judge import FilterCounts, Judge
from magnetar.broker.filters.rules import FilterRules
from magnetar.runtime.alarms import Alarms

RESCHEDULE_MS: Final = 1_000
"""After which an entry is judged again (Pulsar's dispatcherEntryFilterRescheduledMessageDelay)."""
FAILED_AGAIN_MS: Final = 5_000
"""After which filters that failed are asked again."""
_ENTRIES_MAX: Final = 500
"""Judged in one go."""
_MESSAGES_MAX: Final = 1_000
"""Of them, as batches are opened; one entry may have more."""


class EntrySource(Protocol):
    """The source of entries: the log, or its compacted view."""

    def read_now(self, position: Position, bytes_max: int, entries_max: int) -> list[EntryRun] | None: ...
    async def read(self, position: Position, bytes_max: int, entries_max: int) -> list[EntryRun]: ...


class AckedEntries(Protocol):
    """The acknowledgements of the entries."""

    @property
    def backlog_entries(self) -> int: ...
    def may_know_from(self, position: Position) -> bool: ...
    def is_acked(self, position: Position) -> bool: ...
    def ack(self, positions: Sequence[Position]) -> None: ...


class Postponing(Protocol):
    """Holds entries that were put off."""

    def postpone(self, positions: Sequence[Position], due_ms: int) -> None: ...


class ScreenedPlace(NamedTuple):
    """The subscription's present source and acknowledgements."""

    source: EntrySource
    acks: AckedEntries
    dispatcher: Dispatcher | None


class Screened(Protocol):
    """A subscription, as its filters see it."""

    filtered: FilterCounts | None

    @property
    def topic(self) -> TopicName: ...
    @property
    def name(self) -> str: ...
    @property
    def properties(self) -> Mapping[str, str]: ...
    def place(self) -> ScreenedPlace: ...
    def pump(self) -> None: ...


class FilteredSource:
    """The filtered source of one subscription; created again when its topic gets other filters."""

    def __init__(
        self,
        judge: Judge,
        subscription: Screened,
        delays: Postponing,
        alarms: Alarms,
        clock: Clock,
        *,
        caught_up: Callable[[], None],
    ) -> None:
        """`caught_up` is called when nothing is left to be sent because the last of it was rejected."""
        self.judge = judge
        self._counts = subscription.filtered = subscription.filtered or FilterCounts()
        self._place = subscription.place
        self._delays = delays
        self._alarms = alarms
        self._clock = clock
        self._pump = subscription.pump
        self._caught_up = caught_up
        self._from: Position | None = None
        """Where judging began; None: nothing was judged."""
        self._upto = Position(LedgerId(0), 0)
        """The position after the last decided entry."""
        self._put_off: set[Position] = set()
        """Entries between the two that are to be decided again."""
        self._held: tuple[Position, float] | None = None
        """Entry that the next ones wait for, as they are sent in order, and until when (Unix ms)."""
        self._failure: tuple[FilterError, float] | None = None
        """Why filters cannot judge, and when they are asked again (Unix ms)."""
        self._times_forgotten = 0
        self._tenant = subscription.topic.tenant

    def forget(self) -> None:
        """Acknowledgements may have been taken back: all entries are decided again."""
        self._from = self._held = self._failure = None
        self._put_off.clear()
        self._times_forgotten += 1

    # -- reading -----------------------------------------------------------------------------------

    def read_now(self, position: Position, bytes_max: int, entries_max: int) -> list[EntryRun] | None:
        """As a log's; what it gives is judged. None also when that takes longer than a turn of the loop.
        Raises FilterError too."""
        if self._hold_back(position):
            return []
        place = self._place()
        runs = place.source.read_now(position, bytes_max, min(entries_max, _ENTRIES_MAX))
        if not runs:
            return runs
        runs = _within(runs)
        rows = self._unjudged(position, runs, place.acks)
        try:
            verdicts = self.judge.verdicts(*_entries(rows)) if rows else []
        except FilterError as error:
            self._failed(error)
            raise
        return None if rows and not verdicts else self._judged(position, runs, place, rows, verdicts)

    async def read(self, position: Position, bytes_max: int, entries_max: int) -> list[EntryRun]:
        """As a log's; what it gives is judged. Raises FilterError too."""
        runs = await self._place().source.read(position, bytes_max, min(entries_max, _ENTRIES_MAX))
        if not runs:
            return runs
        runs, place = _within(runs), self._place()
        rows = self._unjudged(position, runs, place.acks)
        verdicts: list[Verdict] = []
        if rows:
            forgotten = self._times_forgotten
            verdicts = await self._verdicts(rows)
            # A seek has taken acknowledgements back, or filters were changed: what asks now is another
            # dispatcher, or reads without this source, and must have entries judged anew.
            if self._times_forgotten != forgotten or self._place() != place:
                return []
        return self._judged(position, runs, place, rows, verdicts)

    def _hold_back(self, position: Position) -> bool:
        """Returns whether this entry is put off still, and all after it with it. Raises FilterError."""
        if self.judge.renewed():
            self.forget()
        if self._failure is None and self._held is None:
            return False
        now_ms = self._clock.monotonic_ms()
        if self._failure is not None:
            if now_ms < self._failure[1]:
                raise self._failure[0]
            self._failure = None
        if self._held is None:
            return False
        held, due_ms = self._held
        if held == position and now_ms < due_ms:
            return True
        self._held = None
        return False

    # -- judging -----------------------------------------------------------------------------------

    def _judged(
        self,
        position: Position,
        runs: list[EntryRun],
        place: ScreenedPlace,
        rows: Sequence[_Row],
        verdicts: Sequence[Verdict],
    ) -> list[EntryRun]:
        last = runs[-1]
        end = Position(last.ledger_id, last.last_entry + 1)
        if rows:
            stop = self._sentence(rows, verdicts, place)
            if stop is not None:
                runs, end = _before(runs, stop), stop
        if self._from is None or position > self._upto:
            self._from, self._upto = position, end
        elif position >= self._from:
            self._upto = max(self._upto, end)
        return runs

    def _unjudged(self, position: Position, runs: list[EntryRun], acks: AckedEntries) -> list[_Row]:
        """Run, offset and position of the entries that are to be judged."""
        is_acked = acks.is_acked if acks.may_know_from(position) else None
        begun, upto, put_off = self._from, self._upto, self._put_off
        rows = []
        for run in runs:
            ledger_id, first = run.ledger_id, run.first_entry
            if (
                begun is not None
                and not put_off
                and begun <= (ledger_id, first) <= (ledger_id, run.last_entry) < upto
            ):
                continue
            for offset in range(len(run.entries)):
                at = Position(ledger_id, first + offset)
                if begun is not None and begun <= at < upto and at not in put_off:
                    continue
                if is_acked is None or not is_acked(at):
                    rows.append((run, offset, at))
        return rows

    async def _verdicts(self, rows: Sequence[_Row]) -> list[Verdict]:
        """The decisions on as many entries from the front as there is time for, one at least. Raises
        FilterError."""
        try:
            return await judged(self.judge, self._tenant, *_entries(rows))
        except FilterError as error:
            self._failed(error)
            raise

    def _failed(self, error: FilterError) -> None:
        self._failure = error, self._clock.monotonic_ms() + FAILED_AGAIN_MS

    def _sentence(
        self, rows: Sequence[_Row], verdicts: Sequence[Verdict], place: ScreenedPlace
    ) -> Position | None:
        """Carries out the decisions on the first of these entries. Returns the entry before which reading
        ends: one that is put off where order counts, or the first that is left for the next go."""
        counts = [run.count_of(offset) for run, offset, _ in rows]
        shared = place.dispatcher if isinstance(place.dispatcher, SharedDispatcher) else None
        rejected: list[Position] = []
        later: list[Position] = []
        stop = rows[len(verdicts)][2] if len(verdicts) < len(rows) else None
        for (_, _, position), verdict, messages in zip(rows, verdicts, counts, strict=False):
            self._counts.add(verdict, messages)
            if verdict is not Verdict.RESCHEDULE:
                self._put_off.discard(position)
                if verdict is Verdict.REJECT:
                    rejected.append(position)
            elif shared is not None:
                later.append(position)
            else:
                stop = position
                self._held = position, self._clock.monotonic_ms() + RESCHEDULE_MS
                self._alarms.after(self, RESCHEDULE_MS, self._pump)
                break
        if later and shared is not None:
            self._put_off.update(later)
            shared.withdraw(later)
            self._delays.postpone(later, self._clock.now_ms() + RESCHEDULE_MS)
        if rejected:
            place.acks.ack(rejected)
            if not place.acks.backlog_entries:
                self._caught_up()
        return stop


_Row: TypeAlias = tuple[EntryRun, int, Position]
"""Run, offset and position of an entry."""


def _entries(rows: Sequence[_Row]) -> tuple[list[bytes], list[int]]:
    """Entries, and their messages."""
    return [run.entries[offset] for run, offset, _ in rows], [run.count_of(offset) for run, offset, _ in rows]


def _within(runs: list[EntryRun]) -> list[EntryRun]:
    """As much from the front as is judged in one go; at least one entry."""
    found: list[EntryRun] = []
    left = _MESSAGES_MAX
    for run in runs:
        if run.counts is None:
            left -= len(run.entries)
        else:
            for stop, count in enumerate(run.counts):
                if left < count and (stop or found):
                    return [*found, run.slice(0, stop)] if stop else found
                left -= count
        found.append(run)
    return found


def _before(runs: list[EntryRun], position: Position) -> list[EntryRun]:
    """The part of the runs before this entry, which is in one of them."""
    found = []
    for run in runs:
        if (run.ledger_id, run.first_entry) >= position:
            break
        if run.ledger_id == position.ledger_id and run.last_entry >= position.entry_id:
            found.append(run.slice(0, position.entry_id - run.first_entry))
            break
        found.append(run)
    return found


def screened(
    subscription: Screened,
    rules: FilterRules,
    before: FilteredSource | None,
    delays: Postponing,
    alarms: Alarms,
    clock: Clock,
    caught_up: Callable[[], None],
) -> FilteredSource | None:
    """The subscription's source under these rules: `before`, if they did not change; None: its own source.
    See `FilteredSource`."""
    if before is not None and before.judge.rules == rules:
        return before
    if before is not None:
        # What it still judges does not count.
        before.forget()
    if not rules.names:
        return None
    judge = Judge(rules, str(subscription.topic), subscription.name, lambda: subscription.properties, clock)
    return FilteredSource(judge, subscription, delays, alarms, clock, caught_up=caught_up)
