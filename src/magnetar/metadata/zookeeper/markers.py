"""Marker nodes, which show whether a write of this store took effect.

    /magnetar-writers/<store>           one for each store that is or was open
    /magnetar-writers/<store>/alive     ephemeral: the store is open
    /magnetar-writers/<store>/<n>       a marker, for one write at a time; its value is never used twice

A store deletes its own nodes when it is closed. Nodes of killed processes are deleted by the next store that
opens, once they are older than a day.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

WRITERS: Final = "/magnetar-writers"

ALIVE: Final = "alive"

MARKERS_MAX: Final = 64
"""Most writes of one store under way at a time; further writes wait."""

ABANDONED_MS: Final = 24 * 3600 * 1000
"""Milliseconds after which no process still waits for the outcome of a write of a store without `alive`."""


@dataclass(slots=True)
class Marker:
    """A marker, used by one write at a time."""

    path: str
    count: int = 0

    def next_value(self) -> bytes:
        """A value that the marker never had before."""
        self.count += 1
        return str(self.count).encode()


class Markers:
    """Lends the markers of one store to writes."""

    def __init__(self, store_name: str) -> None:
        self.folder = f"{WRITERS}/{store_name}"
        self._free: list[Marker] = []
        self._made = 0

    @property
    def alive(self) -> str:
        """Path of the node that exists while the store is open."""
        return f"{self.folder}/{ALIVE}"

    def take(self) -> Marker:
        """A marker that no write uses. The node of a new marker (count 0) does not exist yet."""
        if self._free:
            return self._free.pop()
        marker = Marker(f"{self.folder}/{self._made}")
        self._made += 1
        return marker

    def give_back(self, marker: Marker) -> None:
        """Takes back a marker whose write has a known outcome."""
        self._free.append(marker)
