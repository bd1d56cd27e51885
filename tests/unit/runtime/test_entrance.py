"""Sockets are counted from the moment in which they are accepted."""

from __future__ import annotations

import asyncio
import socket

import pytest

from magnetar.runtime.acceptor import Acceptor
from magnetar.runtime.entrance import ADDRESS, PLACES, Entrance


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
            for _ in range(60_000):
                if not len(entrance):
                    break
                await asyncio.sleep(0.001)
            assert not len(entrance)
            assert entrance.refused[PLACES] == (0 if makes_room else 1)
            acceptor.close()
            await acceptor.wait_closed()

    asyncio.run(story())
