"""The port: it is served once its libraries are loaded, and stops at any time."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from magnetar.flightsql import server as flight_server
from magnetar.flightsql.server import FlightServer


class Idle:
    """A connection."""

    address = "127.0.0.1"

    def __init__(self, server: FlightServer, *, is_idle: bool = True) -> None:
        self.server = server
        self.is_idle = is_idle
        self.said: list[str] = []
        server._open[self] = None  # type: ignore[index]

    def leave(self) -> None:
        self.said.append("leave")
        self.server._open.pop(self, None)  # type: ignore[call-overload]

    def abort(self) -> None:
        self.said.append("abort")
        self.server._open.pop(self, None)  # type: ignore[call-overload]


def with_server(story: Callable[[FlightServer], Awaitable[None]]) -> None:
    async def timed() -> None:
        listener = socket.socket()
        given: Any = None
        async with asyncio.timeout(30):
            await story(FlightServer(given, listener, lambda: given))
        listener.close()

    asyncio.run(timed())


def test_a_stop_while_it_loads_serves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def stack() -> Callable[[FlightServer], Callable[[], asyncio.BaseProtocol]]:
        def never(_: FlightServer) -> Callable[[], asyncio.BaseProtocol]:
            raise AssertionError("it has stopped")

        return never

    monkeypatch.setattr(flight_server, "_import_stack", stack)

    async def story(server: FlightServer) -> None:
        await server.stop()
        await server.serve()

    with_server(story)


def test_calls_under_way_have_a_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flight_server, "GRACE_S", 0.05)

    async def story(server: FlightServer) -> None:
        idle, soon, never = Idle(server), Idle(server, is_idle=False), Idle(server, is_idle=False)
        asyncio.get_running_loop().call_later(0.02, setattr, soon, "is_idle", True)
        await server.stop()
        assert (idle.said, soon.said, never.said) == (["leave"], ["leave"], ["abort"])

    with_server(story)


def test_the_oldest_idle_connection_makes_room() -> None:
    async def story(server: FlightServer) -> None:
        busy, first, second = Idle(server, is_idle=False), Idle(server), Idle(server)
        second.address = "127.0.0.2"
        assert server._drop_idle("127.0.0.2")
        assert second.said == ["abort"]
        assert server._drop_idle("")
        assert (busy.said, first.said) == ([], ["abort"])
        assert not server._drop_idle("")

    with_server(story)
