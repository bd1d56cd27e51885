"""Jute, the serialization of ZooKeeper: big-endian numbers, counted bytes.

    int      4 bytes            long     8 bytes         bool     1 byte
    buffer   int length, bytes; length -1 is null        string   the same in UTF-8
    vector   int count, items; count -1 is null

Source: Apache ZooKeeper's jute.
"""

from __future__ import annotations

import struct
from typing import Final

from magnetar.base.errors import ProtocolError

_INT: Final = struct.Struct(">i")
_LONG: Final = struct.Struct(">q")


class JuteError(ProtocolError):
    """The server sent bytes that are not a record of the expected kind."""


def pack_int(number: int) -> bytes:
    return _INT.pack(number)


def pack_long(number: int) -> bytes:
    return _LONG.pack(number)


def pack_bool(flag: object) -> bytes:
    return b"\x01" if flag else b"\x00"


def pack_buffer(data: bytes) -> bytes:
    return _INT.pack(len(data)) + data


def pack_string(text: str) -> bytes:
    return pack_buffer(text.encode())


class JuteReader:
    """Reads consecutive records from a frame. Every method raises JuteError when the frame is too short."""

    __slots__ = ("_at", "_frame")

    def __init__(self, frame: bytes) -> None:
        self._frame = frame
        self._at = 0

    @property
    def left(self) -> int:
        """Number of bytes that are not read yet."""
        return len(self._frame) - self._at

    def int32(self) -> int:
        number: int = _INT.unpack(self._take(4))[0]
        return number

    def int64(self) -> int:
        number: int = _LONG.unpack(self._take(8))[0]
        return number

    def byte(self) -> int:
        return self._take(1)[0]

    def flag(self) -> bool:
        return self._take(1) != b"\x00"

    def buffer(self) -> bytes:
        """Counted bytes; null reads as empty."""
        length = self.int32()
        return b"" if length == -1 else self._take(length)

    def string(self) -> str:
        return _decoded(self.buffer())

    def strings(self, count: int) -> list[str]:
        """This number of strings, one after the other; the number itself does not stand before them."""
        frame, at, size = self._frame, self._at, len(self._frame)
        found: list[str] = []
        for _ in range(count):
            begin = at + 4
            length = int.from_bytes(frame[at:begin], "big", signed=True)
            at = begin + max(0, length)
            if length < -1 or at > size:
                raise JuteError(f"a record ends after {size} bytes, {at} are needed")
            found.append(_decoded(frame[begin:at]))
        self._at = at
        return found

    def _take(self, count: int) -> bytes:
        end = self._at + count
        if count < 0 or end > len(self._frame):
            raise JuteError(f"a record ends after {len(self._frame)} bytes, {end} are needed")
        taken = self._frame[self._at : end]
        self._at = end
        return taken


def _decoded(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise JuteError(f"a string that is not UTF-8: {error}") from error
