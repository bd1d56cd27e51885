"""One HTTP exchange beside other work: no thread waits for the answer."""

from __future__ import annotations

import asyncio
import io
from collections.abc import Mapping
from http.client import HTTPException, HTTPResponse
from typing import TYPE_CHECKING, Final, NamedTuple, cast
from urllib.parse import urlsplit

if TYPE_CHECKING:
    import socket
    import ssl

ANSWER_BYTES_MAX: Final = 64 << 20
"""Most bytes of an answer, with its headers."""
_READ_BYTES: Final = 1 << 16
_PORTS: Final = {"http": 80, "https": 443}


class HttpAnswer(NamedTuple):
    """An answer."""

    status: int
    location: str
    """Where a redirect leads to; "" without one."""
    body: bytes


class _Received:
    """Bytes in the form in which the parser of the standard library takes a connection."""

    def __init__(self, received: bytes) -> None:
        self._received = received

    def makefile(self, _mode: str) -> io.BytesIO:
        return io.BytesIO(self._received)


async def exchange(
    method: str, url: str, body: bytes, headers: Mapping[str, str], *, tls: ssl.SSLContext | None
) -> HttpAnswer:
    """Sends one request over a connection of its own, and returns the whole answer.

    `tls`: for https. The caller limits the time. Raises OSError when there is no answer, ValueError when it
    is not HTTP or is too large.
    """
    return (await exchange_with_headers(method, url, body, headers, tls=tls))[0]


async def exchange_with_headers(
    method: str, url: str, body: bytes, headers: Mapping[str, str], *, tls: ssl.SSLContext | None
) -> tuple[HttpAnswer, list[tuple[str, str]]]:
    """Like `exchange`; also returns the answer's headers."""
    parts = urlsplit(url)
    assert parts.hostname is not None, f"{url} names no machine"
    port = parts.port or _PORTS[parts.scheme]
    reader, writer = await asyncio.open_connection(
        parts.hostname, port, ssl=tls if parts.scheme == "https" else None
    )
    try:
        path = parts._replace(scheme="", netloc="", fragment="").geturl() or "/"
        sent = {"Host": parts.netloc, "Connection": "close", **headers}
        if body or method not in ("GET", "HEAD"):
            sent["Content-Length"] = str(len(body))
        lines = [f"{method} {path} HTTP/1.1", *(f"{name}: {value}" for name, value in sent.items())]
        assert not any("\n" in line or "\r" in line for line in lines), "a header would become two"
        writer.write("\r\n".join([*lines, "", ""]).encode("latin-1") + body)
        await writer.drain()
        received = bytearray()
        while piece := await reader.read(_READ_BYTES):
            received += piece
            if len(received) > ANSWER_BYTES_MAX:
                raise ValueError(f"the answer is larger than {ANSWER_BYTES_MAX} bytes")
    finally:
        writer.close()
    return _parsed(bytes(received), method)


def _parsed(received: bytes, method: str) -> tuple[HttpAnswer, list[tuple[str, str]]]:
    # The parser asks its socket for nothing but a file.
    response = HTTPResponse(cast("socket.socket", _Received(received)), method=method)
    try:
        response.begin()
        answer = HttpAnswer(response.status, response.getheader("Location") or "", response.read())
        return answer, response.getheaders()
    except HTTPException as error:
        raise ValueError(f"the answer is not HTTP: {error!r}") from error
