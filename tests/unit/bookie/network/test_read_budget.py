"""Reads that wait until their answers may be made."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import cast

from magnetar.bookie.network.connection import BookieConnection
from magnetar.bookie.network.outflow import OF_ONE_BYTES
from magnetar.bookie.network.read_budget import ReadBudget
from magnetar.wire.bookkeeper.requests import AddRun, Read, Request


class Client:
    """A connection that notes what the bookie is to handle."""

    def __init__(self, budget: ReadBudget | None = None) -> None:
        self._budget = budget
        self.handled: list[Request] = []
        self.holds = 0
        self.is_lost = False

    def handle(self, requests: Sequence[Request]) -> None:
        self.handled += requests

    def hold(self) -> None:
        self.holds += 1

    def release(self) -> None:
        self.holds -= 1

    def wait_turn(self) -> None:
        assert self._budget is not None
        asyncio.get_running_loop().call_soon(self._budget.go_on, self.as_connection)

    @property
    def as_connection(self) -> BookieConnection:
        return cast(BookieConnection, self)


async def turns() -> None:
    """One in which is looked at what waits, and one in which it begins."""
    await asyncio.sleep(0)
    await asyncio.sleep(0)


def test_what_waits_is_not_looked_at_for_others() -> None:
    """All that waited for clients that take nothing was copied whenever another one had taken something."""

    async def story() -> None:
        budget = ReadBudget(1 << 30)
        stuck, quick = Client(budget), Client(budget)
        for client in (stuck, quick):
            budget.answering(client.as_connection, OF_ONE_BYTES)
            assert not budget.takes(client.as_connection, Read(1, 0))
            budget.put_off(client.as_connection, [Read(1, 0), Read(1, 1)])
        budget.taken(quick.as_connection)
        await turns()
        assert (quick.handled, quick.holds) == ([Read(1, 0), Read(1, 1)], 0)
        assert (stuck.handled, stuck.holds) == ([], 1)
        budget.taken(stuck.as_connection)
        await turns()
        assert (stuck.handled, stuck.holds) == ([Read(1, 0), Read(1, 1)], 0)

    asyncio.run(story())


def test_a_client_that_has_gone_does_not_wait() -> None:
    async def story() -> None:
        budget = ReadBudget(1)
        gone, other = Client(budget), Client(budget)
        budget.answering(other.as_connection, 1)
        gone.is_lost = True
        budget.put_off(gone.as_connection, [Read(1, 0)])
        budget.taken(other.as_connection)
        await turns()
        assert (gone.handled, gone.holds) == ([], 0)

    asyncio.run(story())


def test_a_client_with_many_requests_for_indexes_that_are_not_there_waits() -> None:
    async def story() -> None:
        budget = ReadBudget(1 << 30)
        client = Client(budget)
        for _ in range(16):
            assert budget.takes(client.as_connection, Read(1, 0))
            budget.loads(client.as_connection)
        assert not budget.takes(client.as_connection, AddRun(1, b""))
        assert budget.takes(Client().as_connection, Read(1, 0))
        budget.put_off(client.as_connection, [AddRun(1, b"")])
        budget.put_off(client.as_connection, [Read(1, 0)], in_front=True)
        budget.loaded(client.as_connection)
        await turns()
        assert [type(request) for request in client.handled] == [Read, AddRun]
        assert client.holds == 0

    asyncio.run(story())


def test_a_read_that_has_no_place_to_wait_for_a_fence_is_not_looked_at_for_others() -> None:
    async def story() -> None:
        places: list[int] = []
        budget = ReadBudget(1 << 30, lambda _connection, _request: bool(places))
        client, other = Client(budget), Client(budget)
        fencing = Read(1, 0, fence=True, master_key=b"")
        assert not budget.takes(client.as_connection, fencing)
        budget.put_off(client.as_connection, [fencing])
        budget.taken(other.as_connection)
        await turns()
        assert client.handled == []
        places.append(1)
        budget.look_soon()
        await turns()
        assert client.handled == [fencing]

    asyncio.run(story())
