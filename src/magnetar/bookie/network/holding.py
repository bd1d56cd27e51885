"""Whether a bookie reads its clients: not while anything holds them."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import Protocol


class HeldClient(Protocol):
    """The connection of a client."""

    def hold(self) -> None:
        """Stops reading until `release` was called as often as this."""
        ...

    def release(self) -> None:
        """Ends one `hold`."""
        ...


class ClientHolds:
    """The holds of all connections of a bookie."""

    def __init__(self, connections: Collection[HeldClient]) -> None:
        """`connections`: those that are there, at each moment."""
        self._connections = connections
        self._holds = 0

    def opened(self, connection: HeldClient) -> None:
        """A connection was opened."""
        for _ in range(self._holds):
            connection.hold()

    def begin(self) -> None:
        """Begins a hold."""
        self._holds += 1
        for connection in self._connections:
            connection.hold()

    def end(self) -> None:
        """Ends a hold."""
        self._holds -= 1
        for connection in self._connections:
            connection.release()

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Nothing more of any client is read in this block. What was read before is carried out."""
        self.begin()
        try:
            yield
        finally:
            self.end()
