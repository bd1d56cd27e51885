"""Turns by key."""

from __future__ import annotations

import asyncio

from magnetar.runtime.turns import Turns


def test_those_who_share_a_key_go_one_after_the_other() -> None:
    async def story() -> None:
        turns = Turns()
        told: list[str] = []

        async def work(name: str, *keys: str) -> None:
            async with turns.hold(keys):
                told.append(f"{name} begins")
                await asyncio.sleep(0)
                told.append(f"{name} ends")

        await asyncio.gather(work("1", "a"), work("2", "a", "b"), work("3", "b"), work("4", "c"))
        assert told.index("1 ends") < told.index("2 begins")
        assert told.index("2 ends") < told.index("3 begins")
        assert told.index("4 begins") < told.index("1 ends")
        assert not turns._last

    asyncio.run(story())


def test_who_gives_up_waiting_does_not_let_others_overtake() -> None:
    async def story() -> None:
        turns = Turns()
        told: list[str] = []
        may_end = asyncio.Event()

        async def first() -> None:
            async with turns.hold("k"):
                await may_end.wait()
                told.append("first")

        async def later(name: str) -> None:
            async with turns.hold("k"):
                told.append(name)

        tasks = [asyncio.create_task(work) for work in (first(), later("second"), later("third"))]
        await asyncio.sleep(0)
        tasks[1].cancel()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert told == []
        may_end.set()
        await asyncio.gather(*tasks, return_exceptions=True)
        assert told == ["first", "third"]
        assert not turns._last

    asyncio.run(story())
