"""Calls share the turns of the event loop, address after address."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from magnetar.admin.calls.call_places import CallPlaces
from magnetar.admin.calls.call_turns import TURN_MS, CallTurns
from magnetar.runtime.tasks import soon


class World:
    """Calls whose steps take as long as is said, by a clock of their own; how much each did in which turn."""

    def __init__(self) -> None:
        self.ms = 0.0
        self.turn = 0
        self.done: list[tuple[int, str]] = []
        self.turns = CallTurns(soon, lambda: self.ms)
        self._counting = asyncio.ensure_future(self._count())

    async def _count(self) -> None:
        while True:
            self.turn += 1
            await asyncio.sleep(0)

    async def work(self, name: str, steps: int, step_ms: float) -> str:
        for _ in range(steps):
            self.ms += step_ms
            self.done.append((self.turn, name))
            await asyncio.sleep(0)
        return name

    def call(self, address: str, steps: int, step_ms: float) -> asyncio.Task[str]:
        async def run() -> str:
            return await self.turns.sharing(address, self.work(address, steps, step_ms))

        return asyncio.ensure_future(run())

    def most_in_a_turn(self) -> int:
        turns = [turn for turn, _ in self.done]
        return max(map(turns.count, set(turns)))


def run(story: Callable[[World], Any]) -> None:
    async def told() -> None:
        world = World()
        await asyncio.wait_for(story(world), 60)
        world._counting.cancel()

    asyncio.run(told())


def test_dear_steps_take_a_turn_each() -> None:
    async def story(world: World) -> None:
        calls = [world.call("a", 3, 5.0) for _ in range(192)]
        assert await asyncio.gather(*calls) == ["a"] * 192
        assert world.most_in_a_turn() == 1

    run(story)


def test_cheap_steps_share_a_turn() -> None:
    async def story(world: World) -> None:
        await asyncio.gather(*[world.call("a", 3, 0.1) for _ in range(192)])
        assert 10 <= world.most_in_a_turn() <= TURN_MS / 0.1 + 32

    run(story)


def test_who_makes_one_call_does_not_wait_for_who_makes_many() -> None:
    async def story(world: World) -> None:
        many = [world.call("a", 3, 5.0) for _ in range(192)]
        for _ in range(10):
            await asyncio.sleep(0)
        await world.call("b", 3, 5.0)
        last = max(turn for turn, name in world.done if name == "b")
        assert sum(name == "a" for turn, name in world.done if turn <= last) <= 20
        await asyncio.gather(*many)

    run(story)


def test_of_an_address_the_first_call_ends_first_and_the_others_go_on() -> None:
    async def story(world: World) -> None:
        first = world.call("first", 20, 5.0)
        world.done.clear()
        others = [
            asyncio.ensure_future(world.turns.sharing("first", world.work(f"other {n}", 20, 5.0)))
            for n in range(20)
        ]
        await first
        steps = [name for _, name in world.done if name != "first"]
        assert 10 <= len(steps) <= 30
        assert len(set(steps)) >= 10
        await asyncio.gather(*others)

    run(story)


def test_a_call_that_is_cancelled_in_the_line_ends_and_holds_nobody_up() -> None:
    async def story(world: World) -> None:
        calls = [world.call("a", 2, 5.0) for _ in range(5)]
        await asyncio.sleep(0)
        for call in calls[1:]:
            call.cancel()
        assert await calls[0] == "a"
        for call in calls[1:]:
            with pytest.raises(asyncio.CancelledError):
                await call
        assert await world.call("b", 2, 5.0) == "b"

    run(story)


def test_what_a_call_raises_and_what_is_thrown_at_it_are_its_own() -> None:
    async def story(world: World) -> None:
        async def fails() -> None:
            await asyncio.sleep(0)
            raise KeyError("its own")

        async def waits() -> str:
            try:
                async with asyncio.timeout(0.01):
                    await asyncio.Event().wait()
            except TimeoutError:
                return "in time"
            return "never"

        with pytest.raises(KeyError):
            await world.turns.sharing("a", fails())
        assert await world.turns.sharing("a", waits()) == "in time"

    run(story)


def test_calls_of_the_server_take_turns_and_probes_do_not_wait() -> None:
    async def story(world: World) -> None:
        done: list[str] = []

        async def app(scope: Any, receive: Any, send: Any) -> None:
            del receive, send
            await world.work(scope["path"], 2, 5.0)
            done.append(scope["path"])

        places = CallPlaces(app, turns=world.turns)

        async def call(path: str) -> None:
            scope = {"type": "http", "path": path, "client": ("a", 1)}
            await places(scope, None, None)  # type: ignore[arg-type]  # neither is used

        await asyncio.gather(*[call("/dear") for _ in range(20)], call("/metrics"))
        assert done.index("/metrics") < 3
        dear = [turn for turn, name in world.done if name == "/dear"]
        assert max(map(dear.count, set(dear))) == 1

    run(story)


def test_probes_take_turns_of_their_own() -> None:
    # Sixteen scrapes had each half a millisecond of every turn.
    async def story(world: World) -> None:
        async def app(scope: Any, receive: Any, send: Any) -> None:
            await world.work(scope["path"], 3, 5.0)

        places = CallPlaces(app, turns=CallTurns(soon, lambda: 0.0), probe_turns=world.turns)
        scopes = [{"type": "http", "path": "/metrics", "client": ("a", 1)} for _ in range(16)]
        await asyncio.gather(*[places(scope, None, None) for scope in scopes])  # type: ignore[arg-type]  # never called
        assert len(world.done) == 48
        assert world.most_in_a_turn() == 1

    run(story)
