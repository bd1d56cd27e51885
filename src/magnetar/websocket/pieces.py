"""Splits the bytes read from a WebSocket into pieces of a few frames (pure).

One read may hold forty thousand PINGs, and the library handles all the bytes that it gets without a pause.

Source: RFC 6455, 5.2.
"""

from __future__ import annotations

from typing import Final

FRAMES_MAX: Final = 16
"""Most frames of a piece, a quarter of a millisecond of work."""
_HEAD_BYTES_MAX: Final = 14


class SocketPieces:
    """The pieces of one connection, after its handshake."""

    __slots__ = ("_at", "_data", "_head", "_inside_bytes", "frames")

    def __init__(self) -> None:
        self._data = b""
        self._at = 0
        """Offset in `_data` up to which bytes were returned."""
        self._head = b""
        """The returned bytes of an incomplete frame head."""
        self._inside_bytes = 0
        """Missing bytes of the present frame."""
        self.frames = 0
        """Frames that began in the last piece."""

    def add(self, data: bytes) -> None:
        """Adds bytes that were read."""
        self._data = self._data[self._at :] + data if self else data
        self._at = 0

    def __bool__(self) -> bool:
        """Whether there is a further piece."""
        return self._at < len(self._data)

    def next(self) -> bytes:
        """The next piece: the rest of a frame, and the beginnings of `FRAMES_MAX` others at most."""
        data, begin = self._data, self._at
        size = len(data)
        at = self._skip(begin)
        self.frames = 0
        while at < size and self.frames < FRAMES_MAX:
            head = self._head + data[at : at + _HEAD_BYTES_MAX - len(self._head)]
            head_bytes, payload_bytes = _head_of(head)
            if not head_bytes:
                self._head, at = head, size
                break
            at += head_bytes - len(self._head)
            self._head = b""
            self._inside_bytes = payload_bytes
            self.frames += 1
            at = self._skip(at)
        self._at = at
        if at < size:
            return data[begin:at]
        self._data, self._at = b"", 0
        return data[begin:]

    def clear(self) -> None:
        """Drops all bytes."""
        self._data, self._at = b"", 0

    def _skip(self, at: int) -> int:
        """The offset after the available bytes of the present frame."""
        there = min(self._inside_bytes, len(self._data) - at)
        self._inside_bytes -= there
        return at + there


def _head_of(head: bytes) -> tuple[int, int]:
    """Bytes of a frame's head and of its payload; (0, 0) while the head is incomplete."""
    if len(head) < 2:
        return 0, 0
    length = head[1] & 0x7F
    more = {126: 2, 127: 8}.get(length, 0)
    size = 2 + more + (4 if head[1] & 0x80 else 0)
    if len(head) < size:
        return 0, 0
    return size, int.from_bytes(head[2 : 2 + more], "big") if more else length
