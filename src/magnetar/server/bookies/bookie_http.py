"""Drives the HTTP port of a bookie or a node of auto-recovery: pages over the HTTP stack, in its loop."""

from __future__ import annotations

import asyncio
import socket
from typing import Final
from urllib.parse import parse_qsl

from magnetar.admin.serving.loop_server import CallProtocol, LoopServer, config_of
from magnetar.base.asgi import Receive, Scope, Send
from magnetar.base.errors import StartupError
from magnetar.runtime.tasks import begin
from magnetar.server.bookies.member_pages import Page, Pages

_BODY_BYTES_MAX: Final = 4_096
_BODY_S: Final = 60.0
"""Seconds for the arrival of a call's body."""


class BookieHttp:
    """An open HTTP port. Use `start`."""

    def __init__(self, pages: Pages) -> None:
        self.port: int
        self._pages = pages
        self._server = LoopServer(config_of(self._app, http=CallProtocol, ws="none"))
        self._task: asyncio.Task[None]

    @classmethod
    async def start(cls, pages: Pages, host: str, port: int) -> BookieHttp:
        """Serves on `port`; 0: a free one. Raises StartupError."""
        http = cls(pages)
        try:
            family = socket.AF_INET6 if ":" in host else socket.AF_INET
            listener = socket.create_server((host, port), family=family)
        except OSError as error:
            raise StartupError(f"cannot listen on {host}:{port} for HTTP: {error}") from error
        listener.setblocking(False)
        http.port = int(listener.getsockname()[1])
        serving = asyncio.Event()
        http._task = begin(http._server.run_on(listener, serving))
        await serving.wait()
        return http

    async def stop(self) -> None:
        """Takes no more calls, and finishes running ones for a second at most."""
        self._server.stop()
        await self._task

    async def _app(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        page = await self._page(scope, receive)
        headers = [
            (b"content-type", page.content_type.encode()),
            (b"content-length", b"%d" % len(page.body)),
        ]
        await send({"type": "http.response.start", "status": page.status, "headers": headers})
        await send({"type": "http.response.body", "body": page.body})

    async def _page(self, scope: Scope, receive: Receive) -> Page:
        try:
            async with asyncio.timeout(_BODY_S):
                body = await _body(receive)
        except TimeoutError:
            return Page(408, b"the body did not come\n")
        if body is None:
            return Page(413, b"the body is too large\n")
        query = dict(parse_qsl(scope["query_string"].decode("latin-1")))
        return await self._pages.answer(scope["method"], scope["path"], query, body)


async def _body(receive: Receive) -> bytes | None:
    """The body of a call; None when it is too large, or its client has gone."""
    body = bytearray()
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            # Half of a body may be a body too. The answer reaches no client.
            return None
        body += message.get("body", b"")
        if len(body) > _BODY_BYTES_MAX:
            return None
        if not message.get("more_body"):
            return bytes(body)
