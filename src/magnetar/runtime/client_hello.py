"""How much of a TLS handshake's first message a client has sent (pure).

    record         u8 type, 22 for a handshake | u16 version | u16 length, at most 16,384 | fragment
    ClientHello    u8 type, 1 | u24 length | body; over one record, rarely over several

Source: RFC 8446, sections 4 and 5.1; RFC 5246, section 6.2.1.
"""

from __future__ import annotations

from typing import Final

HEADER_BYTES: Final = 5
"""Bytes of a record's header. No first message is shorter."""
_FRAGMENT_BYTES_MAX: Final = 1 << 14
_HELLO_BYTES_MAX: Final = 1 << 14
"""The longest first message that is waited for. Clients send 300 bytes to 2 KiB."""
_RECORDS_MAX: Final = 4
"""Most records of a first message that is waited for."""
HELLO_SEEN_MAX: Final = _RECORDS_MAX * HEADER_BYTES + _HELLO_BYTES_MAX + _FRAGMENT_BYTES_MAX
"""Most bytes that `hello_wants` ever asks for."""

_HANDSHAKE: Final = 22
_MAJOR_VERSION: Final = 3
_CLIENT_HELLO: Final = 1


def hello_wants(seen: bytes) -> int:
    """How many bytes a connection must have received before more can be said; 0: the first message is whole,
    or this is none that is waited for, and the TLS library decides what it is.

    `seen`: all bytes of the connection so far.
    """
    message = b""
    at = 0
    for _ in range(_RECORDS_MAX):
        if len(seen) < at + HEADER_BYTES:
            return at + HEADER_BYTES
        length = int.from_bytes(seen[at + 3 : at + HEADER_BYTES], "big")
        if seen[at] != _HANDSHAKE or seen[at + 1] != _MAJOR_VERSION or not 0 < length <= _FRAGMENT_BYTES_MAX:
            return 0
        end = at + HEADER_BYTES + length
        if len(seen) < end:
            return end
        message += seen[at + HEADER_BYTES : end]
        at = end
        if len(message) < 4:
            continue
        size = int.from_bytes(message[1:4], "big")
        if message[0] != _CLIENT_HELLO or size > _HELLO_BYTES_MAX or len(message) >= 4 + size:
            return 0
    return 0
