"""First asked, first served, and none keeps others waiting for long."""

from __future__ import annotations

import asyncio

from fakes.managed_logs import Process
from magnetar.base.entries import EntryRun
from magnetar.managedlog.cursors.replay_turns import ReplayTurns


def entries_of(runs: list[EntryRun]) -> list[bytes]:
    return [entry for run in runs for entry in run.entries]


async def _idle() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


def test_who_asked_first_is_ready_first() -> None:
    async def story() -> None:
        turns = ReplayTurns(places=2, held_s=3_600.0)
        begun: list[int] = []
        ends = [asyncio.Event() for _ in range(6)]

        async def work(number: int) -> None:
            async with turns.turn():
                begun.append(number)
                await ends[number].wait()

        tasks = [asyncio.create_task(work(number)) for number in range(6)]
        await _idle()
        assert begun == [0, 1]
        assert turns.waiting == 4
        ends[1].set()
        await _idle()
        assert begun == [0, 1, 2]
        for end in ends:
            end.set()
        await asyncio.gather(*tasks)
        assert begun == list(range(6))
        assert turns.waiting == 0

    asyncio.run(story())


def test_storage_that_does_not_answer_holds_up_only_who_asked_it() -> None:
    async def story() -> None:
        turns = ReplayTurns(places=1, held_s=0.0)
        never = asyncio.Event()

        async def stuck() -> None:
            async with turns.turn():
                await never.wait()

        first = asyncio.create_task(stuck())
        await _idle()
        async with asyncio.timeout(60), turns.turn():
            assert not first.done()
        never.set()
        await first
        # It had given its place back, and does not do so twice.
        entered = asyncio.Event()

        async def other() -> None:
            async with turns.turn():
                entered.set()

        turns._held_s = 3_600.0
        async with turns.turn():
            waiting = asyncio.create_task(other())
            await _idle()
            assert not entered.is_set()
        await waiting

    asyncio.run(story())


def test_who_gives_up_leaves_the_line_to_others() -> None:
    async def story() -> None:
        turns = ReplayTurns(places=1, held_s=3_600.0)
        served: list[int] = []

        async def work(number: int) -> None:
            async with turns.turn():
                served.append(number)

        async with turns.turn():
            tasks = [asyncio.create_task(work(number)) for number in range(3)]
            await _idle()
            tasks[0].cancel()
            await _idle()
            assert turns.waiting == 2
        # The place is the second one's now, which goes before it takes it.
        tasks[1].cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        assert served == [2]
        async with asyncio.timeout(60), turns.turn():
            pass

    asyncio.run(story())


def test_many_subscriptions_read_the_end_of_a_log_from_the_device_once() -> None:
    async def story() -> None:
        process = Process()
        log, listener = await process.open()
        for _ in range(20):
            log.append([b"x"])
        await process.settle()
        first = listener.positions[0]
        after = await process.crash()
        log, _ = await after.open()
        once = await log.read(first, 1 << 20, 1_000)
        assert len(entries_of(once)) == 20
        after.ledgers.ledgers[first.ledger_id].runs.clear()
        again = log.read_now(first, 1 << 20, 1_000)
        assert again is not None
        assert entries_of(again) == entries_of(once)
        log.check()
        log.append([b"y"])
        await after.settle()
        more = await log.read(first, 1 << 20, 1_000)
        assert entries_of(more) == [*entries_of(once), b"y"]
        log.check()

    asyncio.run(story())


def test_a_part_of_a_log_is_not_kept() -> None:
    async def story() -> None:
        process = Process()
        log, listener = await process.open()
        for _ in range(20):
            log.append([b"x"])
        await process.settle()
        after = await process.crash()
        log, _ = await after.open()
        await log.read(listener.positions[0], 1 << 20, 5)
        assert log.info().cached_bytes == 0

    asyncio.run(story())
