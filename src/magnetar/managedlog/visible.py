"""Which entries of a log readers get: those before an end that advances, without hidden ones.

An entry becomes visible or hidden once and for good, before any reader could get it; so readers never see an
entry disappear. Callers that must see all of a log (recovery, deduplication) read by `LogReading`.

Pure: no input or output, no time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from magnetar.base.entries import LEFT_OUT, EntryRun
from magnetar.base.ids import LedgerId, Position
from magnetar.managedlog.cursors.entry_set import SHIFT, EntrySet


class Visible:
    """The visible part of one log."""

    __slots__ = ("end", "held_by", "hidden", "unkept")

    end: Position | None
    """The first entry that readers do not get yet, nor any after it; None: all durable entries are
    visible."""
    held_by: object
    """What readers wait for at `end`, as a text for people; None where `end` is None."""
    hidden: dict[LedgerId, EntrySet]
    """Entries that readers never get, by ledger; no empty sets."""
    unkept: dict[object, set[LedgerId]]
    """Ledgers with hidden entries that are not stored as such, by whose entries they are."""

    def __init__(self) -> None:
        self.end = self.held_by = None
        self.hidden = {}
        self.unkept = {}

    def hide(self, ledger_id: LedgerId, first: int, last: int) -> None:
        """Hides these entries for good, bounds included."""
        entries = self.hidden.get(ledger_id)
        if entries is None:
            entries = self.hidden[ledger_id] = EntrySet()
        entries.add_range(first, last)

    def forget_before(self, ledger_id: LedgerId) -> list[LedgerId]:
        """Ledgers below this one have left the log; returns those that had hidden entries."""
        gone = [known for known in self.hidden if known < ledger_id]
        for known in gone:
            del self.hidden[known]
        return gone

    def is_hidden(self, position: Position) -> bool:
        entries = self.hidden.get(position.ledger_id)
        return entries is not None and position.entry_id in entries

    def hidden_from(self, position: Position) -> Position | None:
        """First of the run of hidden entries that contains this one; None: it is not hidden."""
        entries = self.hidden.get(position.ledger_id)
        if entries is None or position.entry_id not in entries:
            return None
        found = (first for first, last in entries.ranges() if first <= position.entry_id <= last)
        return Position(position.ledger_id, next(found))

    def behind(self, position: Position) -> Position:
        """`position`, or the first entry after it in its ledger that is not hidden."""
        entries = self.hidden.get(position.ledger_id)
        if entries is None or position.entry_id < 0:
            return position
        return Position(position.ledger_id, entries.next_missing(position.entry_id))

    def shown(self, runs: Sequence[EntryRun]) -> list[EntryRun]:
        """The visible parts of these runs, in order."""
        end, hidden = self.end, self.hidden
        found: list[EntryRun] = []
        for run in runs:
            if end is not None:
                if (run.ledger_id, run.first_entry) >= end:
                    break
                if (run.ledger_id, run.last_entry) >= end:
                    run = run.slice(0, end.entry_id - run.first_entry)
            entries = hidden.get(run.ledger_id)
            if entries is None:
                found.append(run)
            else:
                found += (part for part, is_shown in _parts(run, entries) if is_shown)
        return found

    def for_copy(self, runs: Sequence[EntryRun]) -> list[EntryRun]:
        """These runs with `LEFT_OUT` for each hidden entry, in runs of their own. Where the log is visible to
        its end, a copy of them has no more than readers get, and all ids."""
        found: list[EntryRun] = []
        for run in runs:
            entries = self.hidden.get(run.ledger_id)
            if entries is None:
                found.append(run)
            else:
                found += (part if is_shown else _left_out(part) for part, is_shown in _parts(run, entries))
        return found

    def ends_within(self, runs: Sequence[EntryRun]) -> bool:
        """Whether what follows these runs, and perhaps the last of them, is not visible yet."""
        return self.end is not None and (runs[-1].ledger_id, runs[-1].last_entry) >= self.end

    @property
    def is_whole(self) -> bool:
        """Whether readers get every durable entry."""
        return self.end is None and not self.hidden

    def holds(self, ledger_id: LedgerId) -> bool:
        """Whether the ledger may have entries that are not visible yet, or hidden and not stored as such."""
        if self.end is not None and ledger_id >= self.end.ledger_id:
            return True
        return any(ledger_id in ledgers for ledgers in self.unkept.values())

    def hidden_after(self, position: Position) -> Iterator[tuple[LedgerId, int, int]]:
        """Hidden entries after `position` as (ledger, first, last), bounds included, ascending."""
        for ledger_id in sorted(self.hidden):
            if ledger_id < position.ledger_id:
                continue
            for first, last in self.hidden[ledger_id].ranges():
                if ledger_id > position.ledger_id or last > position.entry_id:
                    yield ledger_id, first, last

    def check(self) -> None:
        """Asserts the invariants."""
        for entries in self.hidden.values():
            assert entries.count
            entries.check()


def _parts(run: EntryRun, entries: EntrySet) -> Iterator[tuple[EntryRun, bool]]:
    """The run in parts: such without any of these entries of its ledger (True), and such of nothing else."""
    first, stop = run.first_entry, run.last_entry + 1
    if not any(number in entries.chunks for number in range(first >> SHIFT, (stop - 1 >> SHIFT) + 1)):
        yield run, True
        return
    at = start = first
    while at < stop:
        if at not in entries:
            at += 1
            continue
        if at > start:
            yield run.slice(start - first, at - first), True
        start, at = at, min(entries.next_missing(at), stop)
        yield run.slice(start - first, at - first), False
        start = at
    if stop > start:
        yield run.slice(start - first, stop - first), True


def _left_out(run: EntryRun) -> EntryRun:
    return EntryRun(
        run.ledger_id,
        run.first_entry,
        [LEFT_OUT] * len(run.entries),
        None,
        run.base_index,
        run.broker_time_ms,
    )
