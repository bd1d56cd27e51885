"""Nodes that tell this store's writes that took effect from those that did not.

    /magnetar-writers/<store>           one for each store that is or was open
    /magnetar-writers/<store>/alive     ephemeral, while it is
    /magnetar-writers/<store>/<n>       a marker, for one write at a time; its value is never used twice

A store deletes its own when it is closed. Those of processes that were killed are deleted by the next store
that opens, when they are older than a day.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

WRITERS: Final = "/magnetar-writers"

ALIVE: Final = "alive"

MARKERS_MAX: Final = 64
"""Writes of one store under way at a time; more wait."""

ABANDONED_MS: Final = 24 * 3600 * 1000
"""Milliseconds after which a silent store has no write whose outcome is still awaited."""


@dataclass(slots=True)
class Marker:
    """A marker, used by one write at a time."""

    path: str
    count: int = 0

    def next_value(self) -> bytes:
        """A value that the marker never had."""
        self.count += 1
        return str(self.count).encode()


class Markers:
    """The markers of one store: given out and taken back."""

    def __init__(self, store_name: str) -> None:
        self.folder = f"{WRITERS}/{store_name}"
        self._free: list[Marker] = []
        self._made = 0

    @property
    def alive(self) -> str:
        """The node that tells that the store is open."""
        return f"{self.folder}/{ALIVE}"

    def take(self) -> Marker:
        """One that no write uses: used before, or a new one, whose node is not there yet (count 0)."""
        if self._free:
            return self._free.pop()
        marker = Marker(f"{self.folder}/{self._made}")
        self._made += 1
        return marker

    def give_back(self, marker: Marker) -> None:
        """The marker's write is over, and its outcome is known."""
        self._free.append(marker)
