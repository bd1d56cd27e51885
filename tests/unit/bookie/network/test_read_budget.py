"""Reads that wait until their answers may be made."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import cast

from magnetar.bookie.network.connection import BookieConnection
from magnetar.bookie.network.outflow import OF_ONE_BYTES
from magnetar.bookie.network.read_budget import ReadBudget
from magnetar.wire.bookkeeper.requests import Read, Request


class Client:
    """A connection that notes what the bookie is to handle."""

    def __init__(self) -> None:
        self.handled: list[Request] = []
        self.holds = 0
        self.is_lost = False

    def handle(self, requests: Sequence[Request]) -> None:
        self.handled += requests

    def hold(self) -> None:
        self.holds += 1

    def go_on(self) -> None:
        self.holds -= 1

    @property
    def as_connection(self) -> BookieConnection:
        return cast(BookieConnection, self)


def test_what_waits_is_not_looked_at_for_others() -> None:
    """All that waited for clients that take nothing was copied whenever another one had taken something."""

    async def story() -> None:
        budget = ReadBudget(1 << 30)
        stuck, quick = Client(), Client()
        for client in (stuck, quick):
            budget.answering(client.as_connection, OF_ONE_BYTES)
            assert not budget.takes(client.as_connection, Read(1, 0))
            budget.put_off(client.as_connection, [Read(1, 0), Read(1, 1)])
        budget.taken(quick.as_connection)
        await asyncio.sleep(0)
        assert (quick.handled, quick.holds) == ([Read(1, 0), Read(1, 1)], 0)
        assert (stuck.handled, stuck.holds) == ([], 1)
        budget.taken(stuck.as_connection)
        await asyncio.sleep(0)
        assert (stuck.handled, stuck.holds) == ([Read(1, 0), Read(1, 1)], 0)

    asyncio.run(story())


def test_a_client_that_has_gone_does_not_wait() -> None:
    async def story() -> None:
        budget = ReadBudget(1)
        gone, other = Client(), Client()
        budget.answering(other.as_connection, 1)
        gone.is_lost = True
        budget.put_off(gone.as_connection, [Read(1, 0)])
        budget.taken(other.as_connection)
        await asyncio.sleep(0)
        assert (gone.handled, gone.holds) == ([], 0)

    asyncio.run(story())
