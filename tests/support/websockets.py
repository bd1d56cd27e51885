"""WebSockets of a broker on fakes, without a socket: the application as an ASGI server calls it."""

from __future__ import annotations

import asyncio
import json
from base64 import b64decode, b64encode
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any
from urllib.parse import urlencode

from magnetar.websocket.app import ABORT, GONE, MORE, WebSockets
from support.sessions import World

TOPIC_PATH = "persistent/public/default/t"


def message(payload: bytes, **more: Any) -> dict[str, Any]:
    """What a client sends to publish."""
    return {"payload": b64encode(payload).decode(), **more}


def payload_of(document: dict[str, Any]) -> bytes:
    """The payload of a message that a client got."""
    return b64decode(document["payload"])


class Client:
    """One client; `status` tells how its handshake went."""

    def __init__(
        self,
        world: World,
        app: WebSockets,
        path: str,
        headers: dict[str, str],
        certificate_role: str | None,
        **query: Any,
    ) -> None:
        self.world = world
        self.status: int | None = None
        """101 when the socket is open."""
        self.reason = ""
        """Reason of a refused handshake; empty: it was not refused."""
        self.closed: tuple[int, str] | None = None
        self.aborted = False
        self.texts: list[dict[str, Any]] = []
        self.takes = asyncio.Event()
        """Cleared: the client's side has no room."""
        self.takes.set()
        self._gone = asyncio.Event()
        self._text = ""
        """The pieces so far of a text."""
        self._events: asyncio.Queue[MutableMapping[str, Any]] = asyncio.Queue()
        self._events.put_nowait({"type": "websocket.connect"})
        scope = {
            "type": "websocket",
            "path": path,
            "raw_path": path.encode(),
            "query_string": urlencode(query).encode(),
            "headers": [(key.lower().encode(), value.encode()) for key, value in headers.items()],
            "client": ("10.0.0.9", 4711),
            "server": ("127.0.0.1", 8080),
            "state": {} if certificate_role is None else {"certificate_role": certificate_role},
            "extensions": {ABORT: self._abort, GONE: self._gone.wait},
        }
        self.task = asyncio.ensure_future(app(scope, self._events.get, self._send))

    def _abort(self) -> None:
        self.aborted = True

    async def _send(self, event: MutableMapping[str, Any]) -> None:
        await self.takes.wait()
        kind = event["type"]
        if kind == "websocket.accept":
            self.status = 101
        elif kind == "websocket.http.response.start":
            self.status = event["status"]
        elif kind == "websocket.http.response.body":
            self.reason = json.loads(event["body"])["reason"]
        elif kind == "websocket.send":
            self._text += event["text"]
            if not event.get(MORE):
                self.texts.append(json.loads(self._text))
                self._text = ""
        else:
            self.closed = (event["code"], event["reason"])

    def send(self, document: object) -> None:
        """One text: JSON, or as it is when it is a text."""
        text = document if isinstance(document, str) else json.dumps(document)
        self._events.put_nowait({"type": "websocket.receive", "text": text})

    async def opened(self) -> int:
        """The status of the handshake."""
        await self.world.until(lambda: self.status is not None, "an answer to the handshake")
        assert self.status is not None
        return self.status

    async def got(self, count: int) -> list[dict[str, Any]]:
        """Takes the next `count` texts."""
        await self.world.until(lambda: len(self.texts) >= count, f"{count} texts, not {self.texts}")
        taken, self.texts = self.texts[:count], self.texts[count:]
        return taken

    async def ask(self, document: object) -> dict[str, Any]:
        """Sends a text; the one that comes back."""
        self.send(document)
        return (await self.got(1))[0]

    async def end(self) -> tuple[int, str]:
        """How the broker closes the socket."""
        await self.world.until(lambda: self.closed is not None, "the end of the socket")
        assert self.closed is not None
        return self.closed

    async def leave(self) -> None:
        """The client goes."""
        self.takes.set()
        self._events.put_nowait({"type": "websocket.disconnect", "code": 1000})
        self._gone.set()
        await self.task


class Clients:
    """WebSockets of one broker."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.app = WebSockets(world.broker, "certificate_role")
        self._all: list[Client] = []

    def start(
        self,
        path: str,
        headers: dict[str, str] | None = None,
        *,
        certificate_role: str | None = None,
        **query: Any,
    ) -> Client:
        """Begins a handshake; `path` stands behind `/ws/`."""
        client = Client(self.world, self.app, f"/ws/{path}", headers or {}, certificate_role, **query)
        self._all.append(client)
        return client

    async def open(self, path: str, **query: Any) -> Client:
        """An open socket; `path` stands behind `/ws/v2/`."""
        client = self.start(f"v2/{path}", **query)
        assert await client.opened() == 101, client.reason
        return client

    async def producer(self, topic: str = TOPIC_PATH, **query: Any) -> Client:
        return await self.open(f"producer/{topic}", **query)

    async def consumer(self, topic: str = TOPIC_PATH, subscription: str = "s", **query: Any) -> Client:
        query.setdefault("subscriptionInitialPosition", "Earliest")
        return await self.open(f"consumer/{topic}/{subscription}", **query)

    async def close(self) -> None:
        """All clients go."""
        for client in self._all:
            if not client.task.done():
                await client.leave()


def with_clients(story: Callable[[Clients], Awaitable[None]], **guard: Any) -> None:
    """Runs a story on a started broker; `guard`: its `authentication` and `superuser_roles`."""

    async def run() -> None:
        world = World(**guard)
        await world.start()
        clients = Clients(world)
        try:
            await story(clients)
        finally:
            await clients.close()
            await world.close()

    asyncio.run(run())
