"""Sockets are counted from the moment in which they are accepted."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import pytest

from magnetar.runtime import acceptor as acceptor_module
from magnetar.runtime.acceptor import Acceptor
from magnetar.runtime.entrance import ADDRESS, PLACES, TLS, Entrance
from support.tls_hello import HELLO


def test_who_is_one_too_many_is_refused_until_another_leaves() -> None:
    entrance = Entrance("clients", 2, 0)
    assert [entrance.enter("a"), entrance.enter("b"), entrance.enter("c")] == ["", "", PLACES]
    assert entrance.obstacle("a") == PLACES
    entrance.leave("a")
    assert entrance.enter("c") == ""
    assert len(entrance) == 2
    assert entrance.refused[PLACES] == 1


def test_an_address_has_a_share() -> None:
    entrance = Entrance("clients", 0, 1)
    assert [entrance.enter("a"), entrance.enter("a"), entrance.enter("b")] == ["", ADDRESS, ""]
    entrance.leave("a")
    assert entrance.enter("a") == ""


def test_one_more_comes_in_where_another_is_about_to_leave() -> None:
    entrance = Entrance("clients", 1, 0)
    entrance.enter("a")
    assert entrance.enter("b", beyond=True) == ""
    assert len(entrance) == 2


class _Greeting(asyncio.Protocol):
    """Says a byte and keeps the connection."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport
        assert isinstance(transport, asyncio.WriteTransport)
        transport.write(b"!")


@pytest.mark.parametrize("makes_room", [False, True])
def test_accepted_sockets_are_counted_until_they_are_closed(makes_room: bool) -> None:
    async def story() -> None:
        entrance = Entrance("clients", 1)
        made: list[_Greeting] = []

        def protocol() -> _Greeting:
            made.append(_Greeting())
            return made[-1]

        def make_room(address: str) -> bool:
            assert not address
            made[0].transport.close()
            return True

        with socket.create_server(("127.0.0.1", 0)) as listener:
            listener.setblocking(False)
            acceptor = Acceptor(listener, entrance, protocol, make_room=make_room if makes_room else None)
            port = listener.getsockname()[1]
            first, first_writer = await asyncio.open_connection("127.0.0.1", port)
            assert await asyncio.wait_for(first.read(1), 60) == b"!"
            assert len(entrance) == 1
            second, second_writer = await asyncio.open_connection("127.0.0.1", port)
            assert await asyncio.wait_for(second.read(1), 60) == (b"!" if makes_room else b"")
            if makes_room:
                assert await asyncio.wait_for(first.read(), 60) == b""
            first_writer.close()
            second_writer.close()
            await _until(lambda: not len(entrance))
            assert entrance.refused[PLACES] == (0 if makes_room else 1)
            acceptor.close()
            await acceptor.wait_closed()

    asyncio.run(story())


async def _until(condition: Callable[[], bool]) -> None:
    for _ in range(60_000):
        if condition():
            return
        await asyncio.sleep(0.001)
    raise AssertionError("it did not happen within a minute")


class _Stuck(Acceptor):
    """One whose handshakes do not end."""

    async def _open(self, counted: Any, protocol: Any) -> None:
        await asyncio.Event().wait()


def _has_ended(one: socket.socket) -> bool:
    try:
        return one.recv(1) == b""
    except ConnectionResetError:
        return True  # with what was not read


@pytest.mark.parametrize("first", [b"", HELLO], ids=["before", "after the first message"])
@pytest.mark.parametrize("young_s", [0.0, 600.0])
def test_unfinished_handshakes_are_bounded_and_one_address_pushes_out_its_own(
    monkeypatch: pytest.MonkeyPatch, young_s: float, first: bytes
) -> None:
    # Each cancelled the oldest one, which stayed the oldest for the rest of the turn: all that were accepted
    # together ended the same one.
    monkeypatch.setattr(acceptor_module, "_HANDSHAKES_MAX", 4)
    monkeypatch.setattr(acceptor_module, "_YOUNG_S", young_s)

    async def story(stack: ExitStack) -> None:
        entrance = Entrance("clients")
        listener = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=64))
        listener.setblocking(False)
        acceptor = _Stuck(
            listener, entrance, asyncio.Protocol, tls=ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), handshake_s=600
        )

        def connect(source: str) -> socket.socket:
            address = listener.getsockname()
            made = stack.enter_context(socket.create_connection(address, 60, source_address=(source, 0)))
            made.sendall(first)
            return made

        elsewhere = connect("127.0.0.2")
        await _until(lambda: len(entrance) == 1)
        crowd = [connect("127.0.0.1") for _ in range(20)]
        await _until(lambda: len(entrance) + entrance.refused[TLS] == 21)
        for _ in range(10):
            # A surplus one goes in the turn after the next.
            await asyncio.sleep(0)
        assert len(entrance) == 4
        assert entrance.refused[TLS] == 17
        # Young ones stay: clients that come all at once would push each other out.
        ended, stay = (crowd[3:], crowd[:3]) if young_s else (crowd[:17], crowd[17:])
        assert all(map(_has_ended, ended))
        stay += [elsewhere, connect("127.0.0.3")]
        # Also a young one gives way to another address.
        await _until(lambda: entrance.refused[TLS] == 18 and len(entrance) == 4)
        assert _has_ended(stay.pop(0))
        for one in stay:
            one.setblocking(False)
            with pytest.raises(BlockingIOError):
                one.recv(1)
        acceptor.close()
        await acceptor.wait_closed()
        assert not len(entrance)

    with ExitStack() as stack:
        asyncio.run(story(stack))


def test_a_client_that_went_away_while_it_waited_for_its_turn_costs_no_handshake() -> None:
    async def story(stack: ExitStack) -> None:
        entrance = Entrance("clients")
        listener = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=64))
        listener.setblocking(False)
        for number in range(6):
            made = stack.enter_context(socket.create_connection(listener.getsockname(), 60))
            made.sendall(HELLO)
            if number % 2:
                made.close()
        acceptor = _Counting(
            listener, entrance, asyncio.Protocol, tls=ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), handshake_s=600
        )
        await _until(lambda: len(acceptor.begun) + entrance.refused[TLS] == 6)
        assert (len(acceptor.begun), entrance.refused[TLS], len(entrance)) == (3, 3, 0)
        acceptor.close()
        await acceptor.wait_closed()

    with ExitStack() as stack:
        asyncio.run(story(stack))


class _Counting(Acceptor):
    """One that notes in which turn of the loop each connection is set up, and of which port."""

    def __init__(self, *given: Any, **more: Any) -> None:
        self.turn = 0
        self.begun: list[tuple[int, int]] = []
        super().__init__(*given, **more)
        self._loop.call_soon(self._count)

    def _count(self) -> None:
        self.turn += 1
        if not self._closed:
            self._loop.call_soon(self._count)

    async def _open(self, counted: Any, protocol: Any) -> None:
        self.begun.append((self.turn, counted.getpeername()[0]))
        counted.close()


def test_one_handshake_begins_in_a_turn_address_after_address_and_once_its_message_is_whole() -> None:
    async def story(stack: ExitStack) -> None:
        entrance = Entrance("clients")
        listener = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=64))
        listener.setblocking(False)

        def connect(source: str, first: bytes) -> None:
            address = listener.getsockname()
            made = stack.enter_context(socket.create_connection(address, 60, source_address=(source, 0)))
            made.sendall(first)

        for _ in range(5):
            connect("127.0.0.1", HELLO[:100])
        for source in ("127.0.0.1", "127.0.0.1", "127.0.0.2", *["127.0.0.1"] * 18):
            connect(source, HELLO)
        acceptor = _Counting(
            listener, entrance, asyncio.Protocol, tls=ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), handshake_s=600
        )
        await _until(lambda: len(acceptor.begun) == 21)
        assert len({turn for turn, _ in acceptor.begun}) == 21
        assert "127.0.0.2" in [address for _, address in acceptor.begun[:2]]
        assert len(entrance) == 5
        acceptor.close()
        await acceptor.wait_closed()
        assert not len(entrance)

    with ExitStack() as stack:
        asyncio.run(story(stack))
