"""The HTTP port of a bookie, without sockets."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from magnetar.server.bookies.bookie_http import BookieHttp
from magnetar.server.bookies.member_pages import Page


class _Pages:
    """Notes the bodies that it gets."""

    def __init__(self) -> None:
        self.bodies: list[bytes] = []

    async def answer(self, method: str, path: str, query: Mapping[str, str], body: bytes) -> Page:
        self.bodies.append(body)
        return Page(200, b"done\n")


def test_half_a_body_changes_nothing() -> None:
    async def story() -> None:
        pages = _Pages()
        http = BookieHttp(pages)  # type: ignore[arg-type]  # as far as it is used
        told: list[int] = []

        async def send(message: Any) -> None:
            told.append(message.get("status", 0))

        for end in ({"type": "http.disconnect"}, {"type": "http.request", "body": b"00", "more_body": False}):
            pieces = iter(({"type": "http.request", "body": b"36", "more_body": True}, end))

            async def receive(pieces: Any = pieces) -> Any:
                return next(pieces)

            scope = {"type": "http", "method": "PUT", "path": "/", "query_string": b""}
            await http._app(scope, receive, send)
        assert pages.bodies == [b"3600"]
        assert told[2] == 200

    asyncio.run(story())
