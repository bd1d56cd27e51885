"""Sockets wait outside of TLS until the first message of a handshake is whole."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from collections.abc import Awaitable, Callable
from contextlib import ExitStack

import pytest

from magnetar.runtime.hello_waits import HelloWaits
from support.tls_hello import HELLO
from support.waiting import eventually


class Waiting(HelloWaits):
    """One that counts how often it was woken."""

    looks = 0

    def _look_at(self, accepted: socket.socket) -> None:
        self.looks += 1
        super()._look_at(accepted)


class World:
    """A connection whose client is here, too."""

    def __init__(self, stack: ExitStack, seconds: float) -> None:
        listener = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        self.client = stack.enter_context(socket.create_connection(listener.getsockname(), 60))
        self.client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.accepted = stack.enter_context(listener.accept()[0])
        self.accepted.setblocking(False)
        self.came: list[socket.socket] = []
        self.ended: list[OSError] = []
        self.waits = Waiting(self.came.append, lambda _, error: self.ended.append(error))
        self.waits.wait(self.accepted, seconds)

    def arrived(self) -> int:
        with contextlib.suppress(BlockingIOError):
            return len(self.accepted.recv(1 << 16, socket.MSG_PEEK))
        return 0


def story(work: Callable[[World], Awaitable[None]], seconds: float = 600) -> None:
    async def run() -> None:
        with ExitStack() as stack:
            world = World(stack, seconds)
            try:
                await work(world)
            finally:
                assert not len(world.waits)
                world.waits.close()

    asyncio.run(run())


def test_a_message_that_comes_byte_by_byte_wakes_the_loop_twice() -> None:
    # Each byte was a look of the TLS library: 130 such clients had a tenth of the loop.
    async def work(world: World) -> None:
        for at in range(len(HELLO)):
            assert not world.came
            world.client.sendall(HELLO[at : at + 1])
            await eventually(lambda there=at + 1: world.arrived() == there)  # type: ignore[misc]  # its default
            await asyncio.sleep(0)
        await eventually(lambda: world.came == [world.accepted])
        assert world.waits.looks == 2, "with the header of the record, and with its end"
        assert world.accepted.recv(1 << 16) == HELLO, "it is TLS's to read"
        assert world.accepted.getsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT) == 1

    story(work)


@pytest.mark.parametrize("first", [b"", HELLO[:3], HELLO[:100]], ids=["nothing", "three bytes", "a part"])
def test_a_client_that_goes_away_is_noticed(first: bytes) -> None:
    async def work(world: World) -> None:
        world.client.sendall(first)
        world.client.close()
        # A part of a message is for TLS to refuse.
        await eventually(lambda: bool(world.came) if first else bool(world.ended))
        assert len(world.came) + len(world.ended) == 1

    story(work)


def test_a_client_that_resets_its_connection_is_noticed() -> None:
    async def work(world: World) -> None:
        world.client.sendall(HELLO[:100])
        await eventually(lambda: world.arrived() == 100 and world.waits.looks == 1)
        world.client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        world.client.close()
        # What came before the reset may still be there, for TLS to refuse.
        await eventually(lambda: bool(world.ended or world.came))

    story(work)


def test_a_client_that_says_nothing_has_its_time() -> None:
    async def work(world: World) -> None:
        await eventually(lambda: bool(world.ended))
        assert isinstance(world.ended[0], TimeoutError)
        assert world.waits.looks == 0

    story(work, seconds=0.001)


def test_one_that_is_forgotten_is_not_told_of() -> None:
    async def work(world: World) -> None:
        world.waits.forget(world.accepted)
        world.client.sendall(HELLO)
        await eventually(lambda: world.arrived() == len(HELLO))
        await asyncio.sleep(0)
        assert not world.came
        assert not world.ended

    story(work)
