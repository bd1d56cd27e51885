"""Packets: a length before everything that clients and bookies say to each other.

    length u32 | what it counts

Source: BookKeeper protocol, framing.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final

from magnetar.wire.frames import FrameError

PACKET_BYTES_MAX: Final = 5 * 1024 * 1024
"""Largest packet, without its length, unless configured otherwise; both sides must agree."""

_LENGTH: Final = struct.Struct(">I")


class PacketCutter:
    """Cuts a connection's bytes into packets."""

    __slots__ = ("_bytes_max", "consumed", "needed")

    consumed: int
    """Bytes of the packets that the last `cut` gave out."""
    needed: int
    """After `cut`: bytes of the incomplete packet at the end, length included; 0 while not known."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self.consumed = 0
        self.needed = 0

    def cut(self, buffer: bytearray | memoryview | bytes, size: int) -> Iterator[bytes]:
        """The complete packets in `buffer[:size]`, lengths included, copied out. Raises FrameError."""
        self.consumed = self.needed = at = 0
        with memoryview(buffer) as view:
            while size - at >= 4:
                length: int = _LENGTH.unpack_from(view, at)[0]
                if length > self._bytes_max:
                    raise FrameError(f"packet of {length} bytes, {self._bytes_max} are allowed")
                end = at + 4 + length
                if end > size:
                    self.needed = 4 + length
                    return
                packet = bytes(view[at:end])
                self.consumed = at = end
                yield packet
