"""Virtual time, one source of chance, and a log of everything that happens.

Nothing in a run asks a real clock or another source of chance, so a seed is the whole run: the same seed
gives the same log, byte for byte.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from hashlib import blake2b
from random import Random
from typing import Any, Final

_heappush: Final = heapq.heappush


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
        self._count = count = self._count + 1
        _heappush(self._events, (self.now_us + delay_us, count, action, arguments))

    def note(self, *words: object) -> None:
        """One line of the log."""
        line = f"{self.now_us} {' '.join(map(str, words))}"
        self._digest.update(line.encode())
        if self.log is not None:
            self.log.append(line)

    def run(self, until_us: int) -> None:
        """Lets time pass."""
        events, heappop = self._events, heapq.heappop
        while events and events[0][0] <= until_us:
            self.now_us, _, action, arguments = heappop(events)
            action(*arguments)
        self.now_us = until_us

    def advance(self, until_us: int) -> bool:
        """Goes on to the next event; False, at `until_us`, when there is none before."""
        events = self._events
        if not events or events[0][0] > until_us:
            self.now_us = until_us
            return False
        self.now_us, _, action, arguments = heapq.heappop(events)
        action(*arguments)
        return True

    @property
    def log_hash(self) -> str:
        """Hash of every line of the log so far."""
        return self._digest.hexdigest()
