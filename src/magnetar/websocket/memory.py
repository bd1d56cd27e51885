"""Counts the bytes of messages that sockets hold in the broker's memory, and chooses a socket to close when
they are too many (pure).

A client determines the size of its messages, their size after decompression, their number of chunks, how many
it leaves unsettled, and how slowly it reads. Each socket may hold a small amount; all further bytes count
against one budget for all sockets. When the budget is used up, the largest socket of the tenant with the most
bytes is closed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, Protocol

FREE_BYTES: Final = 64 << 10
"""Bytes of each socket that are not counted."""
HELD_BYTES_MAX: Final = 256 << 20
"""Budget of all sockets together beyond FREE_BYTES each. The text of a large message is
made and written piece by piece."""

_TEXT_COPIES: Final = 2
"""Copies of a text in memory: the text, and the frame that waits for the client."""


class ByteCount:
    """Bytes that parts of one socket hold together."""

    __slots__ = ("size_bytes",)

    def __init__(self) -> None:
        self.size_bytes = 0


@contextmanager
def written(text: str, held: ByteCount, count: Callable[[], None]) -> Iterator[None]:
    """Counts a text, with its frame, while it is written; calls `count` at the begin."""
    size = _TEXT_COPIES * len(text)
    held.size_bytes += size
    try:
        count()
        yield
    finally:
        held.size_bytes -= size


class MemoryHolder(Protocol):
    """A socket that holds memory."""

    @property
    def tenant(self) -> str: ...
    def give_way(self, reason: str) -> None:
        """Closes the socket and frees its memory."""


class HeldBytes:
    """The bytes that the sockets of one broker hold."""

    def __init__(self, most: int = HELD_BYTES_MAX) -> None:
        self._most = most
        self._by_holder: dict[MemoryHolder, int] = {}
        self._by_tenant: Counter[str] = Counter()
        self.total = 0
        """Bytes that count against the budget."""

    def hold(self, holder: MemoryHolder, size_bytes: int) -> None:
        """Sets the bytes that a socket holds. Closes a socket when the budget is exceeded."""
        if size_bytes <= FREE_BYTES and holder not in self._by_holder:
            return
        self._set(holder, max(0, size_bytes - FREE_BYTES))
        while self.total > self._most:
            self._close_one()

    def forget(self, holder: MemoryHolder) -> None:
        """Removes a socket that was closed."""
        self._set(holder, 0)

    def _set(self, holder: MemoryHolder, counted: int) -> None:
        before = self._by_holder.pop(holder, 0)
        if counted:
            self._by_holder[holder] = counted
        self.total += counted - before
        self._by_tenant[holder.tenant] += counted - before
        if not self._by_tenant[holder.tenant]:
            del self._by_tenant[holder.tenant]

    def _close_one(self) -> None:
        tenant = max(self._by_tenant, key=self._by_tenant.__getitem__)
        mine = [holder for holder in self._by_holder if holder.tenant == tenant]
        holder = max(mine, key=self._by_holder.__getitem__)
        size = self._by_holder[holder]
        self._set(holder, 0)
        holder.give_way(
            f"the broker holds {size + FREE_BYTES} bytes of messages for this client, and too many for all:"
            " read and settle faster, or ask for fewer at a time (receiverQueueSize)"
        )
