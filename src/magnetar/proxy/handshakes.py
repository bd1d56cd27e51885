"""Handshakes of WebSockets, as the proxy reads them and writes them anew (pure).

Source: RFC 6455, 4.1; RFC 9112, 2 to 5.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import parse_qsl, urlencode

_PASSED: Final = ("sec-websocket-key", "sec-websocket-version", "sec-websocket-protocol")
"""Headers of the handshake that brokers get. No extensions are offered, as brokers have none."""


@dataclass(frozen=True, slots=True)
class Handshake:
    """A client's request for a WebSocket."""

    target: bytes
    """Its path as the client wrote it, without the query."""
    query: str
    headers: Mapping[str, str]
    """By name in lower case; of several with one name the first."""

    @property
    def path(self) -> str:
        """The path as text."""
        return self.target.decode("latin-1")

    @property
    def is_of_same_origin(self) -> bool:
        """Whether it is of no web page, or of one from the address that it calls."""
        origin = self.headers.get("origin")
        return origin is None or origin.partition("://")[2].lower() == self.headers.get("host", "").lower()

    @property
    def query_without_token(self) -> str:
        """The query without the client's credential."""
        return urlencode(
            [pair for pair in parse_qsl(self.query, keep_blank_values=True) if pair[0] != "token"]
        )

    def written_anew(self, target: str, host: str, headers: Mapping[str, str]) -> bytes:
        """The request for a broker. `headers`: those that are decided apart, credentials among them."""
        own = {name: self.headers[name] for name in _PASSED if name in self.headers}
        lines = [f"GET {target} HTTP/1.1", f"host: {host}", "connection: Upgrade", "upgrade: websocket"]
        lines += [f"{name}: {value}" for name, value in {**headers, **own}.items()]
        return "".join(f"{line}\r\n" for line in (*lines, "")).encode("latin-1")


def handshake_of(head: bytes) -> Handshake:
    """Reads a request, whose syntax the HTTP server has checked. Raises ValueError."""
    first, *lines = head.removesuffix(b"\r\n\r\n").split(b"\r\n")
    method, target, _ = first.split(b" ")
    if method != b"GET":
        raise ValueError("a WebSocket begins with GET")
    headers: dict[str, str] = {}
    for line in lines:
        name, _, value = line.partition(b":")
        headers.setdefault(name.strip().lower().decode("latin-1"), value.strip().decode("latin-1"))
    path, _, query = target.partition(b"?")
    return Handshake(path, query.decode("latin-1"), headers)


def answer_in(data: bytes) -> int | None:
    """The status of an answer that was read: its head when it opens the WebSocket, else all of it. None: more
    is to come. 502 for anything else."""
    head, end, body = data.partition(b"\r\n\r\n")
    if not end:
        return None
    first, *lines = head.split(b"\r\n")
    parts = first.split(b" ", 2)
    if not (
        len(parts) >= 2 and parts[0].startswith(b"HTTP/1.") and len(parts[1]) == 3 and parts[1].isdigit()
    ):
        return 502
    status = int(parts[1])
    if status == 101:
        return status
    lengths = [
        line.partition(b":")[2].strip() for line in lines if line.lower().startswith(b"content-length:")
    ]
    length = int(lengths[0]) if lengths and lengths[0].isdigit() else 0
    return status if len(body) >= length else None
