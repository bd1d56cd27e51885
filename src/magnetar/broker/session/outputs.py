"""The bytes that wait to be sent, over all connections, and those that are being read for them.

A connection may have a share of the free budget waiting: the less is free, the smaller each share, and some
always stays free for clients that keep up (the dynamic threshold of switches with shared memory: Choudhury
and Hahne, 1998). A hundred clients that never read leave a twentieth. A connection without waiting bytes is
always served, in small steps when the budget is used up. So the bytes stay below
    output_bytes_max + connections x (READ_BYTES_MIN or one larger message)
Nothing is lost: unsent messages stay in the log, requests wait, and a client that does not take its answers
is not read. Sockets do not report the bytes that they took. They are counted when a connection writes again,
and for all connections while one waits for budget. Until then the budget looks fuller than it is.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Coroutine
from typing import Final, Protocol

READ_BYTES_MAX: Final = 1 << 20
"""Bytes read for consumers at a time."""
READ_BYTES_MIN: Final = 16 << 10
"""The same when the budget is used up; a single larger message is read all the same."""
SHARES: Final = 32
"""A connection may have this part of what is free waiting: 4 MiB, its own limit, when all is free."""
_READ_SHARES: Final = 64
"""A read brings this part of what is free: the usual size down to half of the default budget."""
_COUNT_MS: Final = 20
"""Milliseconds between two counts of all connections while one waits, per thousand connections."""


class Outlet(Protocol):
    """A connection, as the budget sees it."""

    def count_output(self) -> int:
        """Bytes that wait for its client, counted now."""

    def has_room(self) -> None:
        """It may have more bytes waiting than it has: whatever waited for budget continues."""


class OutputBudget:
    """The budget of a broker."""

    __slots__ = ("_later", "_outlets", "_reserved", "_waiting", "bytes_max", "crowded", "free")

    def __init__(
        self, bytes_max: int, outlets: Collection[Outlet], later: Callable[[int, Callable[[], None]], None]
    ) -> None:
        """`outlets`: the current connections; `later` calls after this many milliseconds."""
        self.bytes_max = bytes_max
        self.free = bytes_max
        """The free budget; below 0 by the bytes of connections that were served without budget."""
        self.crowded = False
        """Whether several tenants publish: then each subscription's part of a turn is a small one."""
        self._outlets = outlets
        self._later = later
        self._reserved = 0
        self._waiting: dict[Outlet, None] = {}

    def allows(self, waiting_bytes: int) -> bool:
        """Whether a connection with this many waiting bytes may have more."""
        return waiting_bytes * SHARES < self.free or not waiting_bytes

    @property
    def read_bytes(self) -> int:
        """Bytes to read for consumers at a time."""
        return max(READ_BYTES_MIN, min(READ_BYTES_MAX, self.free // _READ_SHARES))

    @property
    def waiting(self) -> int:
        """Connections that have stopped until there is budget."""
        return len(self._waiting)

    def reading(
        self, work: Coroutine[object, object, None], size_bytes: int
    ) -> Coroutine[object, object, None]:
        """Runs `work`, which reads up to this many bytes; they count until it ends."""
        self._reserved += size_bytes
        self.free -= size_bytes
        return self._reading(work, size_bytes)

    async def _reading(self, work: Coroutine[object, object, None], size_bytes: int) -> None:
        try:
            await work
        finally:
            self._reserved -= size_bytes
            self.free += size_bytes

    def wait(self, outlet: Outlet) -> None:
        """`outlet.has_room` is called when it may have twice as much waiting as it has."""
        if not self._waiting:
            self._count_later()
        self._waiting[outlet] = None

    def forget(self, outlet: Outlet, waiting_bytes: int) -> None:
        """The connection is closed, with this many counted bytes."""
        self.free += waiting_bytes
        self._waiting.pop(outlet, None)

    def count(self) -> int:
        """The waiting bytes of all connections, counted now."""
        used = self._reserved + sum([outlet.count_output() for outlet in self._outlets])
        self.free = self.bytes_max - used
        return used

    def _count_later(self) -> None:
        self._later(_COUNT_MS * (1 + len(self._outlets) // 1_000), self._look)

    def _look(self) -> None:
        self.count()
        waiting, self._waiting = self._waiting, {}
        for outlet in waiting:
            # Half of its share: otherwise a client that never reads would continue with each byte that others
            # free.
            if self.allows(2 * outlet.count_output()):
                outlet.has_room()
            else:
                self._waiting[outlet] = None
        if self._waiting:
            self._count_later()
