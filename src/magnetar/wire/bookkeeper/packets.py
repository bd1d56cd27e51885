"""Packets: the length that precedes each request and response.

    length u32 | as many bytes

Source: BookKeeper protocol, framing.
"""

from __future__ import annotations

import struct
from typing import Final

from magnetar.wire.frames import FrameError

AROUND_MESSAGE_BYTES: Final = 16 << 10
"""Bytes of a packet besides a message: the message's metadata (10 KiB in Pulsar), the metadata of broker and
ledger, and the command's own fields."""
PACKET_BYTES_MAX: Final = (5 << 20) + AROUND_MESSAGE_BYTES
"""Default of the largest packet in bytes, without its length field; both sides must agree.

Apache's default of 5 MiB is less than Pulsar's largest message with its metadata: a message of that size
would close each connection that carries it. Pulsar sets 5 MiB and 10 KiB for its bookies.
"""
PACKET_BYTES_LIMIT: Final = (128 << 20) + AROUND_MESSAGE_BYTES
"""Upper bound of the setting, in bytes."""

_LENGTH: Final = struct.Struct(">I")


class PacketCutter:
    """Finds the packets in a connection's bytes."""

    __slots__ = ("_bytes_max", "needed")

    needed: int
    """After `end_of`: bytes of the incomplete packet, length field included; 0 while not known."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self.needed = 0

    def end_of(self, data: memoryview | bytes, at: int, size: int) -> int:
        """The end of the packet whose length field is at `data[at]`; 0 while it is not complete in
        `data[:size]`. Raises FrameError when it is larger than allowed."""
        self.needed = 0
        if size - at < 4:
            return 0
        length: int = _LENGTH.unpack_from(data, at)[0]
        if length > self._bytes_max:
            raise FrameError(f"packet of {length} bytes, {self._bytes_max} are allowed")
        end = at + 4 + length
        if end > size:
            self.needed = 4 + length
            return 0
        return end
