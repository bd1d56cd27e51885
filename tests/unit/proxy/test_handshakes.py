"""What of a WebSocket's handshake reaches a broker, and how its answer is read."""

from __future__ import annotations

import pytest

from magnetar.proxy.handshakes import answer_in, handshake_of

HEAD = (
    b"GET /ws/v2/producer/persistent/public/default/t?token=secret&producerName=p%20q HTTP/1.1\r\n"
    b"host: proxy:8080\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Key: abc=\r\n"
    b"sec-websocket-version: 13\r\nsec-websocket-extensions: permessage-deflate\r\n"
    b"x-original-principal: root\r\ncookie: a=b\r\nauthorization: Bearer mine\r\n\r\n"
)


def test_only_named_headers_reach_a_broker() -> None:
    asked = handshake_of(HEAD)
    assert asked.path == "/ws/v2/producer/persistent/public/default/t"
    assert asked.query_without_token == "producerName=p+q"
    written = asked.written_anew(asked.path, "broker:8080", {"authorization": "Bearer own"})
    assert written == (
        b"GET /ws/v2/producer/persistent/public/default/t HTTP/1.1\r\nhost: broker:8080\r\n"
        b"connection: Upgrade\r\nupgrade: websocket\r\nauthorization: Bearer own\r\n"
        b"sec-websocket-key: abc=\r\nsec-websocket-version: 13\r\n\r\n"
    )


@pytest.mark.parametrize(
    ("origin", "same"),
    [
        ("", True),
        ("http://proxy:8080", True),
        ("https://PROXY:8080", True),
        ("http://x", False),
        ("null", False),
    ],
)
def test_pages_of_elsewhere_are_told(origin: str, same: bool) -> None:
    head = HEAD if not origin else HEAD.replace(b"cookie: a=b", b"origin: " + origin.encode())
    assert handshake_of(head).is_of_same_origin is same


def test_what_is_no_get_is_refused() -> None:
    with pytest.raises(ValueError, match="GET"):
        handshake_of(HEAD.replace(b"GET ", b"POST "))


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\n\r\n\x81", 101),
        (b"HTTP/1.1 101 Switching Protocols\r\nupgrade: web", None),
        (b"HTTP/1.1 404 Not Found\r\nContent-Length: 2\r\n\r\n{", None),
        (b"HTTP/1.1 404 Not Found\r\nContent-Length: 2\r\n\r\n{}", 404),
        (b"HTTP/1.1 403 Forbidden\r\n\r\n", 403),
        (b"SSH-2.0\r\n\r\n", 502),
        (b"HTTP/1.1 1e1 x\r\n\r\n", 502),
    ],
)
def test_only_a_whole_answer_counts(data: bytes, status: int | None) -> None:
    assert answer_in(data) == status
