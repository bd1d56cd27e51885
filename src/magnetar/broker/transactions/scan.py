"""Finds the entries of transactions in a log: after a start only the log knows their places."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection
from typing import Final

from magnetar.base.ids import Position
from magnetar.broker.transactions.ids import TxnId
from magnetar.broker.transactions.stamp import transaction_of
from magnetar.managedlog.log_reading import LogReading
from magnetar.runtime.tasks import yield_loop

_READ_BYTES: Final = 1 << 20
_READ_ENTRIES: Final = 1_000


async def entries_of(
    reading: LogReading, wanted: Collection[TxnId], start: Position
) -> AsyncIterator[tuple[TxnId, Position]]:
    """Entries of these transactions from `start` on, in order. Raises what reading raises, but for lost
    entries."""
    position = start
    while runs := await reading.read_intact(position, _READ_BYTES, _READ_ENTRIES):
        for run in runs:
            for offset, entry in enumerate(run.entries):
                found = transaction_of(entry)
                if found is not None and found in wanted:
                    yield found, Position(run.ledger_id, run.first_entry + offset)
        position = Position(runs[-1].ledger_id, runs[-1].last_entry + 1)
        await yield_loop()
