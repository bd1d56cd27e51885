"""Requests of one client that take long."""

from __future__ import annotations

import asyncio
from typing import cast

import pytest

from magnetar.base.loop_shares import LoopShares, ShareSizes
from magnetar.bookie.network.connection import BookieConnection
from magnetar.bookie.network.server import BookieServer, ServerOptions
from magnetar.wire.bookkeeper.requests import Read, Request


class Client:
    """A connection whose turns come by hand."""

    def __init__(self, server: BookieServer) -> None:
        self._server = server
        self.door = None
        self.is_lost = False
        self.holds = self.waits = 0

    def handle(self, requests: list[Request]) -> None:
        self._server.handle(self.as_connection, requests)

    def hold(self) -> None:
        self.holds += 1

    def release(self) -> None:
        self.holds -= 1

    def wait_turn(self) -> None:
        self.waits += 1

    @property
    def as_connection(self) -> BookieConnection:
        return cast(BookieConnection, self)


def test_what_takes_long_ends_the_turn_and_the_rest_keeps_its_order(monkeypatch: pytest.MonkeyPatch) -> None:
    handled: list[Request] = []
    now_ms = 0.0

    def handle(_server: BookieServer, _connection: BookieConnection, request: Request) -> None:
        nonlocal now_ms
        now_ms += 0.6
        handled.append(request)

    monkeypatch.setattr(BookieServer, "_handle", handle)
    monkeypatch.setattr(BookieServer, "_pending_bytes", 0)

    async def story() -> None:
        server = BookieServer(ServerOptions())
        server.turns = LoopShares(lambda _turn: None, lambda: now_ms, ShareSizes(64, 128))
        client = Client(server)
        requests: list[Request] = [Read(1, number) for number in range(5)]
        client.handle(requests)
        assert handled == requests[:2]
        assert client.holds == 1
        for turns in (1, 2):
            await asyncio.sleep(0)
            assert client.waits == turns
            server.go_on(client.as_connection)
        assert handled == requests
        assert client.holds == 0

    asyncio.run(story())
