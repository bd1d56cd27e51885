"""What bookies do for a topic's log, in a few lines: only its last opener may write.

The logs and ledgers themselves run in the scenarios `ledgers` and `cluster`; here only the right to write
counts.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from magnetar.base.errors import LedgerError
from sim.cluster.loop import SimLoop

BOOKIES = "bookies"


class FencedError(LedgerError):
    """Another broker has opened the log since."""


@dataclass(slots=True)
class StoredTopic:
    """The stored state of one topic."""

    fence: int = 0
    """The number of the last opening."""
    entries: list[tuple[int, int]] = field(default_factory=list)
    """Opening and payload of each entry."""


class SimBookies:
    """All of them as one, which does not fail. Calls come and go through the broker that makes them."""

    def __init__(self, loop: SimLoop) -> None:
        self.loop = loop
        self.topics: dict[str, StoredTopic] = {}

    def open(self, topic: str) -> int:
        """Fences former openings; the number of this one."""
        stored = self.topics.setdefault(topic, StoredTopic())
        stored.fence += 1
        return stored.fence

    def append(self, topic: str, opening: int, payload: int) -> None:
        """Stores an entry. Raises FencedError."""
        stored = self.topics[topic]
        if opening != stored.fence:
            raise FencedError(f"{topic} was opened by another")
        stored.entries.append((opening, payload))
