"""Places and memory of calls that wait for their bodies or for brokers (pure).

A call keeps its body in memory, and its client decides how slowly that comes. So one address has some of the
places only, and the bodies of all calls together are bounded.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

CALLS_MAX: Final = 64
"""Calls that are in work."""
CALLS_OF_ADDRESS_MAX: Final = 16
"""Calls of one address that are in work."""
BODIES_BYTES_MAX: Final = 64 << 20
"""Bytes of the bodies of all calls."""


class CallShares:
    """The calls in work."""

    __slots__ = ("_bytes", "_calls")

    def __init__(self) -> None:
        self._calls: Counter[str] = Counter()
        self._bytes = 0

    def enter(self, address: str) -> bool:
        """Takes a place for a call of this address; returns whether there was one."""
        if self._calls.total() >= CALLS_MAX or self._calls[address] >= CALLS_OF_ADDRESS_MAX:
            return False
        self._calls[address] += 1
        return True

    def leave(self, address: str, body_bytes: int) -> None:
        """A call is over, of which `body_bytes` were taken."""
        self._bytes -= body_bytes
        self._calls[address] -= 1
        if not self._calls[address]:
            # Addresses that are never seen again must not stay in the table.
            del self._calls[address]

    def take(self, size_bytes: int) -> bool:
        """Counts bytes of a body; returns whether they may be kept. They count until `leave` in any case."""
        self._bytes += size_bytes
        return self._bytes <= BODIES_BYTES_MAX
