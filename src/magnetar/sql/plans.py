"""What one reference to a topic reads: a snapshot of positions, divided into files and the rest.

The snapshot is taken once, before the engine runs: each entry of it is in a file of history or is read from
the broker, never in both, whatever is offloaded or merged afterwards. Parts that the query cannot want are
left out and counted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from magnetar.base.ids import EARLIEST, LedgerId, Position
from magnetar.base.names import TopicName
from magnetar.runtime.threads import pool
from magnetar.sql.bounds import Bounds
from magnetar.tables.history_files import FileFacts
from magnetar.tables.ledgers import KnownLog
from magnetar.tables.stretches import HistoryFile, Stretch

_FOOTERS_AT_ONCE = 16
"""Number of footers that are read at the same time; from an object store, each takes tens of milliseconds."""


@dataclass(slots=True)
class ReadCounts:
    """What a query reads and what it leaves out."""

    files: int = 0
    file_bytes: int = 0
    file_rows: int = 0
    skipped_files: int = 0
    skipped_bytes: int = 0
    skipped_partitions: int = 0
    entries: int = 0
    """Entries that the broker sent."""
    entry_bytes: int = 0
    decoded_rows: int = 0
    """Rows that were decoded from entries, or from files that the engine cannot read by itself."""
    broken_values: int = 0
    hidden_entries: int = 0
    """Entries that cannot be opened: their producer encrypted them, or they are damaged."""
    seen_files: set[tuple[str, str]] = field(default_factory=set)


@dataclass(frozen=True, slots=True)
class FilePart:
    """A file that the engine reads by itself."""

    file: HistoryFile
    facts: FileFacts
    stretches: tuple[Stretch, ...]
    is_whole: bool
    """Whether all entries in the file are wanted."""


@dataclass(frozen=True, slots=True)
class PartitionPlan:
    """One partition of a topic."""

    topic: TopicName
    files: tuple[FilePart, ...]
    stretches: tuple[Stretch, ...]
    """What is decoded here: entries of the broker, and of files that the engine cannot read by itself."""


def plan_partition(
    topic: TopicName,
    log: KnownLog,
    bounds: Bounds,
    is_native: Callable[[HistoryFile, FileFacts], bool],
    facts_of: Callable[[HistoryFile], FileFacts | None],
    counts: ReadCounts,
) -> PartitionPlan | None:
    """The plan of one partition; None when it has nothing that the query can want.

    Args:
        is_native: whether the engine reads a file by itself.
        facts_of: what a file's footer says; None when the file cannot be read from here.
    """
    if not bounds.partition.meets(topic.partition, topic.partition):
        counts.skipped_partitions += 1
        return None
    if not log.is_complete:
        # Only the end is known, as the admin interface does not answer.
        return PartitionPlan(topic, (), (Stretch(_pair(EARLIEST), _pair(log.end), None),))
    if log.first >= log.end:
        return None
    whole = log.stretches(log.first, log.end) or [Stretch(_pair(log.first), _pair(log.end), None)]
    stretches = [part for stretch in whole for part in _by_ledger(stretch, log)]
    wanted = [part for stretch in stretches for part in _within(stretch, bounds)]
    left_out = {stretch.file.place: stretch.file for stretch in stretches if stretch.file is not None}
    by_file: dict[tuple[str, str], list[Stretch]] = {}
    rest = [stretch for stretch in wanted if stretch.file is None]
    for stretch in wanted:
        if stretch.file is not None:
            by_file.setdefault(stretch.file.place, []).append(stretch)
            left_out.pop(stretch.file.place, None)
    files = _files(by_file, bounds, is_native, facts_of, counts, rest)
    for file in left_out.values():
        _skip(file, counts)
    rest.sort(key=lambda stretch: stretch.start)
    return PartitionPlan(topic, files, tuple(rest)) if files or rest else None


def _files(
    by_file: Mapping[tuple[str, str], Sequence[Stretch]],
    bounds: Bounds,
    is_native: Callable[[HistoryFile, FileFacts], bool],
    facts_of: Callable[[HistoryFile], FileFacts | None],
    counts: ReadCounts,
    rest: list[Stretch],
) -> tuple[FilePart, ...]:
    """The files that the engine reads; stretches of other files are added to `rest`."""
    chosen = []
    files = [each[0].file for each in by_file.values() if each[0].file is not None]
    with pool(_FOOTERS_AT_ONCE, "footers") as threads:
        known = list(threads.map(facts_of, files))
    for file, facts in zip(files, known, strict=True):
        stretches = by_file[file.place]
        if facts is None:
            # A file of another machine: the broker serves its entries.
            rest += [Stretch(each.start, each.end, None) for each in stretches]
            continue
        if not _may_have(facts, bounds):
            _skip(file, counts)
            continue
        _take(file, facts, counts)
        if is_native(file, facts):
            ranges = {(each.start[0], each.start[1], each.end[1] - 1) for each in stretches}
            chosen.append(FilePart(file, facts, tuple(stretches), ranges == facts.traits.ledgers))
        else:
            rest += stretches
    return tuple(chosen)


def _may_have(facts: FileFacts, bounds: Bounds) -> bool:
    if facts.published_ms is not None and not bounds.time_ms.meets(*facts.published_ms):
        return False
    return facts.has_keys


def _by_ledger(stretch: Stretch, log: KnownLog) -> list[Stretch]:
    """A stretch of the broker as one for each ledger: the removal of a ledger while the one before is read is
    then noticed, as the range of the next one begins too late."""
    if stretch.file is not None:
        return [stretch]
    parts = log.parts(Position(*stretch.start), Position(*stretch.end))
    return [Stretch((each.ledger_id, first), (each.ledger_id, stop), None) for each, first, stop in parts]


def _within(stretch: Stretch, bounds: Bounds) -> list[Stretch]:
    """The part of a stretch, which is in one ledger, that positions allow."""
    (ledger_id, first), (_, stop) = stretch.start, stretch.end
    if not bounds.ledger_id.meets(ledger_id, ledger_id):
        return []
    low, high = bounds.entry_id.low, bounds.entry_id.high
    first = first if low is None else max(first, low)
    stop = stop if high is None else min(stop, high + 1)
    if first >= stop:
        return []
    return [Stretch((ledger_id, first), (ledger_id, stop), stretch.file)]


def _take(file: HistoryFile, facts: FileFacts, counts: ReadCounts) -> None:
    if file.place not in counts.seen_files:
        counts.seen_files.add(file.place)
        counts.files += 1
        counts.file_bytes += file.size_bytes
        counts.file_rows += facts.rows


def _skip(file: HistoryFile, counts: ReadCounts) -> None:
    if file.place not in counts.seen_files:
        counts.seen_files.add(file.place)
        counts.skipped_files += 1
        counts.skipped_bytes += file.size_bytes


def _pair(position: Position) -> tuple[LedgerId, int]:
    return position.ledger_id, position.entry_id
