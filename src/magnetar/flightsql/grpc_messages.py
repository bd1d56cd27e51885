"""Messages and statuses of gRPC over HTTP/2. Pure.

A message in DATA frames, which it need not share borders with:

    compressed u8, 0 | size u32, big-endian | body

Source: "gRPC over HTTP2", the protocol's specification; its status codes.
"""

from __future__ import annotations

import struct
from typing import Final
from urllib.parse import quote

from magnetar.base.errors import MagnetarError

PREFIX: Final = struct.Struct(">BI")
REQUEST_BYTES_MAX: Final = 256 << 10
"""Most bytes of a message of a client: a statement, or the names that it asks for."""
REASON_BYTES_MAX: Final = 4_000
"""Bytes of an error's text, in the form for headers: clients allow 8 KiB for all trailers."""

OK: Final = 0
INVALID_ARGUMENT: Final = 3
NOT_FOUND: Final = 5
PERMISSION_DENIED: Final = 7
RESOURCE_EXHAUSTED: Final = 8
UNIMPLEMENTED: Final = 12
INTERNAL: Final = 13
UNAVAILABLE: Final = 14
UNAUTHENTICATED: Final = 16

_OF_HTTP: Final = {
    401: UNAUTHENTICATED,
    403: PERMISSION_DENIED,
    404: NOT_FOUND,
    422: RESOURCE_EXHAUSTED,
    429: RESOURCE_EXHAUSTED,
    501: UNIMPLEMENTED,
    503: UNAVAILABLE,
}


def code_of(status: int) -> int:
    """The code for an HTTP status."""
    return _OF_HTTP.get(status, INVALID_ARGUMENT if 400 <= status < 500 else INTERNAL)


class GrpcError(MagnetarError):
    """A client's call is wrong by the rules of gRPC, or asks for what is not offered."""

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(reason)
        self.code = code


def framed(body: bytes) -> bytes:
    """A message with its prefix."""
    return PREFIX.pack(0, len(body)) + body


def shown(reason: str) -> str:
    """An error's text as a header may have it: ASCII, percent-encoded, cut."""
    text = quote(" ".join(reason.split()), safe=" !\"#$&'()*+,-./:;<=>?@[\\]^_`{|}~")
    if len(text) <= REASON_BYTES_MAX:
        return text
    # Not in the middle of an encoded byte.
    cut = text[:REASON_BYTES_MAX]
    return cut[: cut.rindex("%")] if "%" in cut[-2:] else cut


class RequestMessage:
    """The one message of a client's call, as its bytes come."""

    __slots__ = ("_data",)

    def __init__(self) -> None:
        self._data = bytearray()

    def take(self, data: bytes) -> None:
        """Takes the next bytes. Raises GrpcError for more than a message may have, before they are kept."""
        self._data += data[: PREFIX.size + REQUEST_BYTES_MAX + 1 - len(self._data)]
        if len(self._data) < PREFIX.size:
            return
        compressed, size = PREFIX.unpack_from(self._data)
        if compressed:
            raise GrpcError(UNIMPLEMENTED, "compressed messages are not read: send them as they are")
        if size > REQUEST_BYTES_MAX:
            raise GrpcError(
                RESOURCE_EXHAUSTED, f"a message of {size:,} bytes; {REQUEST_BYTES_MAX:,} are the most"
            )
        if len(self._data) > PREFIX.size + size:
            raise GrpcError(UNIMPLEMENTED, "one message is expected, and more came")

    def whole(self) -> bytes:
        """The message, once all bytes came. Raises GrpcError when there is none, or not all of it."""
        if (
            len(self._data) < PREFIX.size
            or len(self._data) != PREFIX.size + PREFIX.unpack_from(self._data)[1]
        ):
            raise GrpcError(INVALID_ARGUMENT, "the call ended before its message was whole")
        return bytes(self._data[PREFIX.size :])
