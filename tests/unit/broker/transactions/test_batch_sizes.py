"""How large acknowledged batches are is read from the log, while others have their turns."""

from __future__ import annotations

import asyncio
from typing import Any

from magnetar.base.ids import Position
from magnetar.broker.transactions.batch_sizes import measure_batches
from magnetar.wire.events import AckEvent


class _Run:
    def __init__(self, position: Position) -> None:
        self.ledger_id, self.first_entry = position

    @staticmethod
    def count_of(row: int) -> int:
        return 10 + row


class _Cached:
    """A log whose reads do not wait."""

    async def read(self, position: Position, entries: int, size_bytes: int) -> list[_Run]:
        return [_Run(position)]


def test_reads_of_many_batches_leave_turns_to_others() -> None:
    event = AckEvent(1, [], batch_acks=[(Position(1, number), (1,), 0) for number in range(1_000)])

    async def story() -> int:
        log: Any = _Cached()
        measured = asyncio.ensure_future(measure_batches(log, event))
        turns = 0
        while not measured.done():
            turns += 1
            await asyncio.sleep(0)
        await measured
        return turns

    assert asyncio.run(story()) >= 30
    assert event.batch_acks is not None
    assert {size for _, _, size in event.batch_acks} == {10}
