"""A connection goes to another process: over a real socket, to a receiver in this process."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from magnetar.broker.listeners import Addresses
from magnetar.broker.ownership.records import BrokerUrls
from magnetar.broker.session import connection as connections
from magnetar.broker.session.connection import Connection
from magnetar.broker.session.shared_buffer import SharedBuffer
from magnetar.broker.siblings.siblings import Siblings
from magnetar.runtime import descriptors
from magnetar.runtime.descriptors import SocketReceiver
from magnetar.wire import commands
from support.sessions import CONNECT, Type, World, command, in_world

OWN = BrokerUrls(Addresses("pulsar://here:6750"))
TO_SECOND = command(Type.CONNECT, client_version="test", proxy_to_broker_url="here:6850")


class Machine:
    """A process with its connections, and the place of a second one."""

    def __init__(self, world: World, place: Path) -> None:
        world.broker.siblings = Siblings(OWN, {"here:6850": place})
        self.broker = world.broker
        self.shared = SharedBuffer()
        self.place = place
        self.opened: list[Connection] = []
        self._clients: list[asyncio.StreamWriter] = []

    async def client(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """A client whose connection this process has accepted."""
        loop = asyncio.get_running_loop()

        def protocol() -> Connection:
            self.opened.append(Connection(self.broker, self.shared))
            return self.opened[-1]

        server = await loop.create_server(protocol, "127.0.0.1", 0)
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        server.close()
        self._clients.append(writer)
        return reader, writer

    def close(self) -> None:
        for each in self._clients:
            each.close()


def on_a_machine(tmp_path: Path, story: Callable[[Machine], Awaitable[None]]) -> None:
    async def run(world: World) -> None:
        machine = Machine(world, tmp_path / "2.sock")
        try:
            async with asyncio.timeout(30):
                await story(machine)
        finally:
            machine.close()

    in_world(run)


def test_half_of_the_next_frame_goes_along(tmp_path: Path) -> None:
    async def story(machine: Machine) -> None:
        came: asyncio.Queue[tuple[socket.socket, bytes]] = asyncio.Queue(1)
        receiver = SocketReceiver(machine.place, lambda taken, data: came.put_nowait((taken, data)))
        _, writer = await machine.client()
        writer.write(TO_SECOND + b"\0\0")
        taken, first = await came.get()
        assert first == TO_SECOND + b"\0\0"
        taken.close()
        receiver.close()
        assert machine.shared.handing_over == 0

    on_a_machine(tmp_path, story)


def test_a_flood_behind_a_process_that_hangs_keeps_few_descriptors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "_HAND_OVERS_MAX", 2)
    tries: asyncio.Queue[None] = asyncio.Queue(1000)

    def full(link: socket.socket, place: Path) -> bool:
        tries.put_nowait(None)
        return False

    monkeypatch.setattr(descriptors, "_connected", full)

    async def story(machine: Machine) -> None:
        waiting = [await machine.client() for _ in range(2)]
        for _, writer in waiting:
            writer.write(TO_SECOND)
        while machine.shared.handing_over < 2:
            await tries.get()
        reader, writer = await machine.client()
        writer.write(TO_SECOND)
        assert b"look the topic up again" in await reader.read()
        # Clients that stay here are served as before.
        reader, writer = await machine.client()
        writer.write(CONNECT)
        assert b"Magnetar" in await reader.read(100)
        writer.write(commands.PING)
        await reader.read(100)
        assert not machine.opened[-1]._first, "a token is kept of every client"
        # Those that waited are told when the time is over.
        monkeypatch.setattr(descriptors, "_connected", refused)
        for reader, _ in waiting:
            assert b"look the topic up again" in await reader.read()
        assert machine.shared.handing_over == 0

    def refused(link: socket.socket, place: Path) -> bool:
        raise ConnectionRefusedError

    on_a_machine(tmp_path, story)
