"""Deletions that wait for their tombstones."""

from __future__ import annotations

import asyncio

import pytest

from magnetar.base.errors import StorageError
from magnetar.base.ids import LedgerId
from magnetar.bookie.blocks import Block, BlockKind
from magnetar.bookie.burials import Burials

FIRST, SECOND = LedgerId(3), LedgerId(6)


async def begun() -> None:
    """Returns when all tasks that were made have begun: they do in their order."""
    passed = asyncio.Event()
    asyncio.get_running_loop().call_soon(passed.set)
    await passed.wait()


def test_callers_share_a_tombstone_and_wait_until_it_is_durable() -> None:
    async def main() -> None:
        written: list[Block] = []
        burials = Burials(written.append)
        one = asyncio.create_task(burials.bury([FIRST, SECOND]))
        another = asyncio.create_task(burials.bury([FIRST]))
        await begun()
        assert [(block.kind, block.ledger_id) for block in written] == [
            (BlockKind.TOMBSTONE, FIRST),
            (BlockKind.TOMBSTONE, SECOND),
        ]
        burials.buried(FIRST)
        await another
        assert not one.done()
        burials.buried(SECOND)
        await one

    asyncio.run(main())


def test_a_failure_is_told_to_each_and_the_next_one_gets_a_tombstone_of_its_own() -> None:
    async def main() -> None:
        written: list[Block] = []
        burials = Burials(written.append)
        waiting = [asyncio.create_task(burials.bury([FIRST])) for _ in range(2)]
        await begun()
        burials.fail(StorageError("it is full"))
        for each in waiting:
            with pytest.raises(StorageError):
                await each
        again = asyncio.create_task(burials.bury([FIRST]))
        await begun()
        assert len(written) == 2
        burials.buried(FIRST)
        await again

    asyncio.run(main())


def test_a_tombstone_without_a_caller_is_nothing_special() -> None:
    """Found at a start, or its caller was cancelled."""
    Burials(lambda block: None).buried(FIRST)
