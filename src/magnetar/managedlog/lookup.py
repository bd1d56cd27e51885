"""Finds positions by index and by time in O(log n) reads of one entry each."""

from __future__ import annotations

from collections.abc import Callable

from magnetar.base.entries import EntryRun
from magnetar.base.ids import Position
from magnetar.managedlog.broker_times import BrokerTimes
from magnetar.managedlog.ledger_list import Ledger, LedgerList
from magnetar.managedlog.log_reading import LogReading


async def position_of_time(
    ledgers: LedgerList, reading: LogReading, time_ms: int, times: BrokerTimes
) -> Position:
    """The first entry with broker time >= `time_ms`; the position of the next append when there is none.

    Ledgers whose times lie ahead of the clock are skipped as `believed_times` says.
    """
    found = list(ledgers)
    for index, (ledger, believed_ms) in enumerate(zip(found, times.believed_of_ledgers(), strict=True)):
        # The time of a ledger is that of its last entry: earlier ledgers need not be read.
        if ledger.entries and believed_ms >= time_ms:
            later = found[index + 1 :]
            if times.ahead(ledger.timestamp_ms) and await _follows(later, reading, time_ms, times):
                continue
            entry = await reading.entry_of_time(ledger, time_ms)
            if entry is not None:
                return ledgers.next_position(Position(ledger.ledger_id, entry - 1))
            return await _first(ledgers, reading, ledger, lambda run: run.broker_time_ms >= time_ms)
    return ledgers.next_position(ledgers.last_position)


async def _follows(ledgers: list[Ledger], reading: LogReading, time_ms: int, times: BrokerTimes) -> bool:
    """Whether the entries after a ledger with wrong times begin at `time_ms` or earlier: then so does all of
    it."""
    for ledger in ledgers:
        if ledger.entries and not times.ahead(ledger.timestamp_ms):
            runs = await reading.read(Position(ledger.ledger_id, 0), 1, 1)
            return bool(runs) and runs[0].broker_time_ms <= time_ms
    return False


async def position_of_index(ledgers: LedgerList, reading: LogReading, index: int) -> Position:
    """The entry that holds message `index`; the first or the next entry when it is outside the log."""
    candidate: Ledger | None = None
    following: Ledger | None = None
    for ledger in ledgers:
        if not ledger.entries:
            continue
        if ledger.base_index > index:
            following = ledger
            break
        candidate = ledger
    if candidate is None:
        return ledgers.first_position
    offset = index - candidate.base_index
    if following is not None and following.base_index - candidate.base_index == candidate.entries:
        return Position(candidate.ledger_id, offset)
    return await _first(ledgers, reading, candidate, lambda run: run.base_index + run.count_of(0) > index)


async def index_of(ledgers: LedgerList, reading: LogReading, position: Position) -> int | None:
    """Index of the first message of the first entry >= `position`; None at the end of the log."""
    runs = await reading.read_intact(position, 1, 1)
    return runs[0].base_index if runs else None


async def _first(
    ledgers: LedgerList, reading: LogReading, ledger: Ledger, wanted: Callable[[EntryRun], bool]
) -> Position:
    """The first wanted entry of `ledger`, where all entries after a wanted one are wanted too."""
    low, high = 0, ledger.entries
    while low < high:
        middle = (low + high) // 2
        runs = await reading.read_intact(Position(ledger.ledger_id, middle), 1, 1)
        if ledgers.find(ledger.ledger_id) is None:
            # The ledger was trimmed while it was searched.
            return ledgers.first_position
        # Where the rest of the ledger is lost the answer is before or after all of it.
        if not runs or runs[0].ledger_id != ledger.ledger_id or wanted(runs[0]):
            high = middle
        else:
            low = max(middle, runs[0].first_entry) + 1
    return ledgers.next_position(Position(ledger.ledger_id, low - 1))
