"""Places that clients name, in a log that damage has holes in."""

from __future__ import annotations

import asyncio

import pytest

from fakes.managed_logs import Process
from magnetar.base.errors import LostEntriesError
from magnetar.base.ids import EARLIEST, Position
from magnetar.broker.topic.places import last_message


@pytest.mark.parametrize("skip_all", [False, True])
@pytest.mark.parametrize(
    ("lost", "last"), [(set(), 9), ({9}, 8), ({7, 8, 9}, 6), ({3}, 9), ({3, 9}, 8), (set(range(10)), None)]
)
def test_the_last_message_is_the_last_that_can_be_read(
    lost: set[int], last: int | None, skip_all: bool
) -> None:
    """A damaged last entry answered an error, and none where holes are passed over. Where nothing at all can
    be read, a topic is not empty unless an operator said so: readers would end as if all was well."""

    async def story() -> None:
        process = Process()
        log, _ = await process.open()
        await log.open_cursor("s", initial="earliest")
        for number in range(10):
            log.append([b"%d" % number], None)
        await process.settle()
        ledger_id = log.last_position.ledger_id
        process = await process.crash()
        process.ledgers.ledgers[ledger_id].lost = lost
        process.logs.holes.skip_all = skip_all
        log, _ = await process.open()
        for _ in range(2):
            if last is None and not skip_all:
                with pytest.raises(LostEntriesError):
                    await last_message(log)
                continue
            found, _ = await last_message(log)
            assert found == (EARLIEST if last is None else Position(ledger_id, last))

    asyncio.run(story())
