"""Virtual time, one source of chance, and a log of everything that happens.

Nothing in a run asks a real clock or another source of chance, so a seed is the whole run: the same seed
gives the same log, byte for byte.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from hashlib import blake2b
from random import Random
from typing import Any


class World:
    """One run."""

    def __init__(self, seed: str, *, keep_log: bool = False) -> None:
        self.seed = seed
        self.random = Random(seed)
        self.now_us = 0
        self.log: list[str] | None = [] if keep_log else None
        self._events: list[tuple[int, int, Callable[..., None], tuple[Any, ...]]] = []
        self._count = 0
        self._digest = blake2b(digest_size=16)

    def at(self, delay_us: int, action: Callable[..., None], *arguments: Any) -> None:
        """Does something later."""
        self._count += 1
        heapq.heappush(self._events, (self.now_us + delay_us, self._count, action, arguments))

    def note(self, *words: object) -> None:
        """One line of the log."""
        line = f"{self.now_us} {' '.join(map(str, words))}"
        self._digest.update(line.encode())
        if self.log is not None:
            self.log.append(line)

    def run(self, until_us: int) -> None:
        """Lets time pass."""
        events = self._events
        while events and events[0][0] <= until_us:
            self.now_us, _, action, arguments = heapq.heappop(events)
            action(*arguments)
        self.now_us = until_us

    @property
    def log_hash(self) -> str:
        """Of every line of the log so far."""
        return self._digest.hexdigest()
