"""One HTTP exchange, with a server that answers as it is told to."""

from __future__ import annotations

import asyncio

import pytest

from magnetar.runtime import http_exchange
from magnetar.runtime.http_exchange import HttpAnswer, exchange


def exchanged(raw: bytes, method: str = "POST", body: bytes = b"body") -> tuple[HttpAnswer, bytes]:
    """The answer that `raw` is, and what the server got."""
    received = bytearray()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        received.extend(await reader.readuntil(b"\r\n\r\n"))
        if body:
            received.extend(await reader.readexactly(len(body)))
        writer.write(raw)
        await writer.drain()
        writer.close()

    async def run() -> HttpAnswer:
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        async with server:
            port = server.sockets[0].getsockname()[1]
            return await exchange(method, f"http://127.0.0.1:{port}/a?b=c", body, {"X": "y"}, tls=None)

    return asyncio.run(run()), bytes(received)


def test_a_request_goes_out_whole_and_its_answer_comes_back() -> None:
    answer, received = exchanged(b"HTTP/1.1 307 x\r\nLocation: /there\r\nContent-Length: 2\r\n\r\nok")
    assert answer == HttpAnswer(307, "/there", b"ok")
    head, _, body = received.partition(b"\r\n\r\n")
    first, *lines = head.split(b"\r\n")
    assert first == b"POST /a?b=c HTTP/1.1"
    assert {b"Connection: close", b"X: y", b"Content-Length: 4"} < set(lines)
    assert body == b"body"


def test_an_answer_in_pieces_and_one_without_a_body_are_read() -> None:
    chunked = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n"
    assert exchanged(chunked, "GET", b"")[0] == HttpAnswer(200, "", b"ok")
    assert exchanged(b"HTTP/1.1 204 No Content\r\n\r\n")[0] == HttpAnswer(204, "", b"")


@pytest.mark.parametrize("raw", [b"", b"SSH-2.0\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\ncut"])
def test_what_is_no_whole_answer_is_an_error(raw: bytes) -> None:
    with pytest.raises((ValueError, OSError)):
        exchanged(raw)


def test_an_answer_has_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_exchange, "ANSWER_BYTES_MAX", 10)
    with pytest.raises(ValueError, match="larger than 10 bytes"):
        exchanged(b"HTTP/1.1 200 OK\r\n\r\n" + b"x" * 100)
