"""An answer that is made while it is sent is whole, or its connection is closed in the middle."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from magnetar.admin.calls.call import Streamed
from magnetar.admin.serving.streaming import STATE_CUT, send_streamed
from magnetar.base.asgi import Event
from magnetar.base.errors import MagnetarError


class Connection:
    """What a server does for one call."""

    def __init__(self) -> None:
        self.sent: list[Event] = []
        self.closed = asyncio.Event()
        self.cuts = 0

    def cut(self) -> None:
        self.cuts += 1
        self.closed.set()

    async def receive(self) -> Event:
        await self.closed.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Event) -> None:
        self.sent.append(message)


@pytest.mark.parametrize("fails", [False, True])
def test_only_a_whole_answer_has_an_end(*, fails: bool) -> None:
    async def story() -> None:
        async def pieces() -> AsyncIterator[bytes]:
            yield b"rows"
            if fails:
                raise MagnetarError("gone")

        connection = Connection()
        ended: list[str] = []
        answer = Streamed(pieces(), "text/plain", lambda: ended.append("closed"))
        scope = {"type": "http", "method": "POST", "path": "/sql", "state": {STATE_CUT: connection.cut}}
        await send_streamed(answer, scope, connection.receive, connection.send)
        assert [each.get("body") for each in connection.sent] == [None, b"rows", *([] if fails else [b""])]
        assert connection.sent[-1]["more_body"] == fails
        assert connection.cuts == fails
        assert ended

    asyncio.run(story())
