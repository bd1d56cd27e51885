"""Bytes of answers that clients have not taken yet (pure).

A request to read has some 30 bytes, its answer up to 5 MiB: 256 KiB of requests, which one read of a socket
yields, could ask for more than fits into memory. So a read is answered only while little is under way.
"""

from __future__ import annotations

from typing import Final

OF_ONE_BYTES: Final = 2 << 20
"""Bytes under way to a client from which on its reads wait. At most one answer comes on top."""
OF_ALL_BYTES: Final = 256 << 20
"""The same of all clients together."""
STUCK_S: Final = 5.0
"""Seconds after which a client that takes no answers loses its connection when others wait."""


class Outflow:
    """What is under way, by client."""

    __slots__ = ("_bytes", "_of_all_max", "_of_one_max", "_since_s", "total")

    def __init__(self, of_one_max: int, of_all_max: int) -> None:
        self._of_one_max = of_one_max
        self._of_all_max = of_all_max
        self._bytes: dict[object, int] = {}
        """Clients that have not taken all, in the order in which they began."""
        self._since_s: dict[object, float] = {}
        self.total = 0
        """Bytes to all clients."""

    def add(self, client: object, size: int, now_s: float) -> None:
        """An answer of this size is under way."""
        self._bytes[client] = self._bytes.get(client, 0) + size
        self._since_s.setdefault(client, now_s)
        self.total += size

    def taken(self, client: object) -> None:
        """The client has taken all, or has gone."""
        self.total -= self._bytes.pop(client, 0)
        self._since_s.pop(client, None)

    def may_answer(self, client: object) -> bool:
        """Whether one more read of a client may be answered."""
        return self._bytes.get(client, 0) < self._of_one_max and not self.is_full

    @property
    def is_full(self) -> bool:
        """Whether nothing more may be under way to any client."""
        return self.total >= self._of_all_max

    def stuck(self, now_s: float) -> list[object]:
        """The clients that have not taken all for STUCK_S seconds."""
        return [client for client, since_s in self._since_s.items() if now_s - since_s >= STUCK_S]
