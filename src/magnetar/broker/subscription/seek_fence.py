"""Keeps consumers from coming back to a subscription before a seek of it is answered (pure).

    down ──begin──▶ up ──begin, end: another seek is under way──▶ up ──end: it was the last──▶ down

A seek detaches the consumers, and their clients come back at once; storing the new place may take longer. A
client whose seek is answered discards the messages that it received before. Messages that it got while it
waited, sent with its permits, would never reach its application. Pulsar fences the subscription for that
time.

A SUBSCRIBE that comes meanwhile waits for `when_down` and looks again (`topic/subscription_life.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager


class SeekFence:
    """The fence of one subscription."""

    __slots__ = ("_under_way", "_waiting", "begun")

    def __init__(self) -> None:
        self._under_way = 0
        self.begun = 0
        """Seeks that have begun so far. A coroutine that waited sees by it whether one came meanwhile."""
        self._waiting: list[Callable[[], None]] = []

    @property
    def is_up(self) -> bool:
        """Whether a seek is under way: no consumer may be attached."""
        return self._under_way > 0

    @contextmanager
    def raised(self) -> Iterator[None]:
        """While a seek is under way, until it is answered or has failed."""
        self.begun += 1
        self._under_way += 1
        try:
            yield
        finally:
            assert self._under_way > 0, "a seek ended that had not begun"
            self._under_way -= 1
            if not self._under_way:
                waiting, self._waiting = self._waiting, []
                for call in waiting:
                    call()

    def when_down(self, call: Callable[[], None]) -> None:
        """Calls back when the last seek under way has ended. Another one may begin before the caller acts on
        it: ask `is_up` again."""
        assert self.is_up, "it waits for a seek that is not under way"
        self._waiting.append(call)

    def check(self) -> None:
        """Asserts what must always hold."""
        assert self._under_way >= 0, "more seeks ended than began"
        assert self.is_up or not self._waiting, "a caller waits for a seek that has ended"
