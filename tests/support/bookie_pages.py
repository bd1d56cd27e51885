"""Asks the HTTP port of a bookie, or of a node of auto-recovery."""

from __future__ import annotations

import asyncio
import json
from typing import Any


class PageCaller:
    """Makes each call on a connection of its own."""

    def __init__(self, port: int) -> None:
        self._port = port

    async def call(self, path: str, method: str = "GET", body: bytes = b"") -> tuple[int, str]:
        """The status and the body of the answer."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
        head = f"{method} {path} HTTP/1.1\r\nHost: here\r\nContent-Length: {len(body)}\r\nConnection: close"
        writer.write(f"{head}\r\n\r\n".encode() + body)
        answer = (await reader.read()).decode()
        writer.close()
        status, _, text = answer.partition("\r\n\r\n")
        return int(status.split(" ")[1]), text

    async def json(self, path: str, method: str = "GET", body: bytes = b"") -> Any:
        """The document of an answer that must be good."""
        status, text = await self.call(path, method, body)
        assert status == 200
        return json.loads(text)
