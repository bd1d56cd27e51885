"""The known state of one partition's log: its ledgers, and arithmetic over its entries. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from magnetar.base.ids import LedgerId, Position
from magnetar.tables.stretches import HistoryFile, Stretch
from magnetar.tiered.parquet.parquet_history import Footer


class ListedLedger(NamedTuple):
    """One ledger of a log."""

    ledger_id: LedgerId
    entries: int
    size_bytes: int
    first_index: int | None
    """Messages before its first entry; None when the broker keeps no index."""
    files: tuple[HistoryFile, ...] = ()
    """The files of its Parquet copy, when executors can read one."""


class EntryRange(NamedTuple):
    """Entries `start <= e < end`; `end` lies directly behind an existing entry."""

    start: Position
    end: Position
    entries: int
    size_bytes: int
    """Estimated by the ledgers' average."""


@dataclass(frozen=True, slots=True)
class KnownLog:
    """One partition's log at one moment."""

    end: Position
    """The position behind the last entry; the beginning of the last ledger of an empty log."""
    ledgers: tuple[ListedLedger, ...] = field(default=())
    """The ledgers with entries, ascending; empty also when only the end is known."""
    is_complete: bool = False
    """Whether `ledgers` is known; else only `end` is."""
    empty_index: int | None = None
    """Messages before the end of a log without entries; None when the broker keeps no index."""
    stored_end: Position | None = None
    """The position behind the last stored entry, when transactions may keep entries from readers; `end` is
    before the oldest open one. None: `end` is behind all entries, and readers get all of them."""

    @property
    def first(self) -> Position:
        """The first existing entry; the end of an empty log."""
        return Position(self.ledgers[0].ledger_id, 0) if self.ledgers else self.end

    @property
    def first_index(self) -> int | None:
        """Messages before `first`; None when the broker keeps no index."""
        return self.ledgers[0].first_index if self.ledgers else self.empty_index

    @classmethod
    def from_internal_stats(cls, stats: dict[str, Any]) -> KnownLog:
        """Reads the answer of `internalStats`, which has the open ledger's entries outside of its list."""
        last = confirmed = _position(stats["lastConfirmedEntry"])
        # A query that passed messages of an open transaction would lose them when that is committed.
        limit = stats.get("maxReadPosition")
        if limit is not None:
            last = _position(limit)
        listed = sorted(stats.get("ledgers", ()), key=lambda ledger: int(ledger["ledgerId"]))
        ledgers = []
        for ledger in listed:
            ledger_id, entries = LedgerId(int(ledger["ledgerId"])), int(ledger.get("entries", 0))
            size_bytes = int(ledger.get("size", 0))
            if ledger is listed[-1]:
                entries = max(entries, int(stats.get("currentLedgerEntries", 0)))
                size_bytes = max(size_bytes, int(stats.get("currentLedgerSize", 0)))
            if ledger_id == last.ledger_id:
                # Unconfirmed entries do not count.
                entries = last.entry_id + 1
            elif ledger_id > last.ledger_id:
                entries = 0
            if entries > 0:
                first_index = ledger.get("firstIndex")
                ledgers.append(
                    ListedLedger(
                        ledger_id,
                        entries,
                        size_bytes,
                        None if first_index is None else int(first_index),
                        _files(ledger.get("offloadedTo"), entries),
                    )
                )
        empty_index = None
        if ledgers:
            end = Position(ledgers[-1].ledger_id, ledgers[-1].entries)
        elif listed:
            # Where all entries wait for a transaction, they begin in the first ledger.
            only = listed[0] if last < confirmed else listed[-1]
            end = Position(LedgerId(int(only["ledgerId"])), 0)
            # `lastIndex` also counts unconfirmed entries of the open ledger.
            empty_index = only.get("firstIndex")
        else:
            end = Position(last.ledger_id, last.entry_id + 1)
        stored_end = None if limit is None else Position(confirmed.ledger_id, confirmed.entry_id + 1)
        return cls(end, tuple(ledgers), True, empty_index, stored_end)

    @classmethod
    def from_bounded_stats(cls, stats: dict[str, object], last: Position | None) -> KnownLog:
        """The same where `internalStats` does not say how far readers get. `last`: the last message that the
        broker names to clients, asked for after the statistics; None: it names none."""
        state = cls.from_internal_stats(stats)
        if not state.ledgers or (
            last is not None and Position(last.ledger_id, last.entry_id + 1) >= state.end
        ):
            return state
        limit = Position(state.ledgers[0].ledger_id, -1) if last is None else last
        return cls.from_internal_stats({**stats, "maxReadPosition": str(limit)})

    @classmethod
    def from_last(cls, last: Position | None) -> KnownLog:
        """The state without the admin interface: only the end, from the id of the last message."""
        if last is None:
            return cls(Position(LedgerId(0), 0))
        return cls(Position(last.ledger_id, last.entry_id + 1))

    def parts(self, start: Position, end: Position) -> Iterator[tuple[ListedLedger, int, int]]:
        """Yields the ledgers of the range, each with the first entry in it and the entry behind the last."""
        for ledger in self.ledgers:
            first = 0
            stop = ledger.entries
            if ledger.ledger_id < start.ledger_id or ledger.ledger_id > end.ledger_id:
                continue
            if ledger.ledger_id == start.ledger_id:
                first = max(start.entry_id, 0)
            if ledger.ledger_id == end.ledger_id:
                stop = min(stop, end.entry_id)
            if first < stop:
                yield ledger, first, stop

    def stretches(self, start: Position, end: Position) -> list[Stretch]:
        """The range in stretches, in order; an empty list when all entries are read from the broker."""
        found: list[Stretch] = []
        for ledger, first, stop in self.parts(start, end):
            for file in ledger.files:
                low, high = max(first, file.first_entry), min(stop, file.last_entry + 1)
                if low < high:
                    found.append(Stretch((ledger.ledger_id, low), (ledger.ledger_id, high), file))
            if ledger.files:
                continue
            if found and found[-1].file is None:
                found[-1] = Stretch(found[-1].start, (ledger.ledger_id, stop), None)
            else:
                found.append(Stretch((ledger.ledger_id, first), (ledger.ledger_id, stop), None))
        return found if any(stretch.file for stretch in found) else []

    def measure(self, start: Position, end: Position) -> EntryRange:
        """The range with its counts of entries and bytes; both are 0 when the ledgers are unknown."""
        entries = size_bytes = 0
        for ledger, first, stop in self.parts(start, end):
            entries += stop - first
            size_bytes += ledger.size_bytes * (stop - first) // ledger.entries
        return EntryRange(start, end, entries, size_bytes)

    def split(self, start: Position, end: Position, pieces: int) -> list[EntryRange]:
        """Splits the range into up to `pieces` >= 1 ranges of about equally many entries, in order."""
        total = self.measure(start, end).entries
        if pieces <= 1 or total <= 1:
            return [self.measure(start, end)]
        pieces = min(pieces, total)
        ranges: list[EntryRange] = []
        piece_start = start
        done = 0
        for ledger, first, stop in self.parts(start, end):
            at = first
            while at < stop:
                # Each cut is where the next piece is full, or at the ledger's end when that comes first.
                full_at = (len(ranges) + 1) * total // pieces
                taken = min(stop - at, full_at - done)
                at += taken
                done += taken
                if done == full_at:
                    cut = Position(ledger.ledger_id, at)
                    piece_end = end if done == total else cut
                    ranges.append(self.measure(piece_start, piece_end))
                    piece_start = cut
        return ranges

    def advance(self, start: Position, entries: int, end: Position) -> Position:
        """The position behind the first `entries` >= 0 entries from `start` on, at most `end`."""
        position = start
        for ledger, first, stop in self.parts(start, end):
            if entries <= 0:
                break
            taken = min(stop - first, entries)
            position = Position(ledger.ledger_id, first + taken)
            entries -= taken
        return position

    def retreat(self, position: Position, entries: int) -> Position:
        """The position `entries` >= 0 entries before `position`, or the first existing entry."""
        for ledger in reversed(self.ledgers):
            if ledger.ledger_id > position.ledger_id:
                continue
            stop = ledger.entries
            if ledger.ledger_id == position.ledger_id:
                stop = min(max(position.entry_id, 0), stop)
            if entries <= stop:
                return Position(ledger.ledger_id, stop - entries)
            entries -= stop
        return self.first

    def as_end(self, position: Position) -> Position:
        """The end of a range that stops before the entry at `position`: directly behind the entry before.

        `position` itself when no earlier entry is known.
        """
        if position.entry_id > 0:
            return position
        before = [ledger for ledger in self.ledgers if ledger.ledger_id < position.ledger_id]
        return Position(before[-1].ledger_id, before[-1].entries) if before else position

    def first_index_at(self, position: Position) -> int | None:
        """Messages before `position`, when the known ledgers tell it; otherwise None."""
        for ledger in self.ledgers:
            if position <= Position(ledger.ledger_id, 0):
                return ledger.first_index
        return None


def _position(text: object) -> Position:
    ledger_id, entry_id = str(text).split(":")
    return Position(LedgerId(int(ledger_id)), int(entry_id))


def _files(copy: object, entries: int) -> tuple[HistoryFile, ...]:
    """The files of an offloaded ledger, when they hold all its entries and other machines can read them."""
    if not isinstance(copy, dict):
        return ()
    files = tuple(
        HistoryFile(
            str(copy.get("url", "")),
            str(segment["name"]),
            int(segment["firstEntry"]),
            int(segment["lastEntry"]),
            int(segment["size"]),
            None if segment.get("footer") is None else Footer.decode(str(segment["footer"])),
        )
        for segment in copy.get("segments", ())
    )
    next_entry = 0
    for file in files:
        if file.first_entry != next_entry or not file.is_readable:
            return ()
        next_entry = file.last_entry + 1
    return files if next_entry >= entries else ()
