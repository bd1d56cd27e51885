"""TLS handshakes that end early, at the acceptor of brokers, proxies and HTTPS, over loopback."""

from __future__ import annotations

import asyncio
import gc
import socket
import ssl
import struct
from contextlib import ExitStack
from weakref import WeakSet

import pytest

from magnetar.runtime import loop as event_loop
from magnetar.runtime.acceptor import Acceptor
from magnetar.runtime.entrance import TLS, Entrance
from support.tls_hello import HELLO
from support.waiting import eventually

pytestmark = pytest.mark.one_process("own")


class _Protocol(asyncio.Protocol):
    """One that may be looked for."""


@pytest.mark.parametrize("reset", [False, True], ids=["closed", "reset"])
@pytest.mark.parametrize(
    "first",
    [b"", HELLO[:100], HELLO, b"GET / HTTP/1.1\r\n\r\n"],
    ids=["nothing", "a part", "a hello", "no TLS"],
)
def test_a_connection_that_ends_in_its_tls_handshake_leaves_nothing(first: bytes, *, reset: bool) -> None:
    # The loop of a broker does not tell a protocol that its connection ended in the handshake. So the place
    # must be free without its help, and no caller may hold it before `connection_made`. A bookie, whose
    # handshake begins on a connection that is made, kept such connections for ever.
    made: WeakSet[_Protocol] = WeakSet()

    def protocol() -> _Protocol:
        one = _Protocol()
        made.add(one)
        return one

    async def story(stack: ExitStack) -> None:
        entrance = Entrance("clients")
        listener = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=64))
        listener.setblocking(False)
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        acceptor = Acceptor(listener, entrance, protocol, tls=tls, handshake_s=600)
        clients = [socket.create_connection(listener.getsockname(), 60) for _ in range(5)]
        await eventually(lambda: len(entrance) == len(clients))
        for one in clients:
            one.sendall(first)
            if reset:
                one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            one.close()
        await eventually(lambda: not len(entrance) and entrance.refused[TLS] == len(clients))
        await acceptor.wait_closed()
        gc.collect()
        assert not made
        acceptor.close()

    with ExitStack() as stack:
        event_loop.run(story(stack))
