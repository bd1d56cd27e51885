"""When the call for a message that failed is made again (pure).

Pauses double from the first to a minute. When the calls are used up, the message is given up: it goes to the
topic of dead letters, or, without one, is tried again for ever.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from typing import Final

from magnetar.functions.instance.batches_in import TakenEntry

PAUSE_S_MAX: Final = 60.0
WAITING_MAX: Final = 10_000
"""Most messages of an instance that wait for a repeated call; with as many, no input is read."""


@dataclass(slots=True)
class FailedMessage:
    """A message whose last call raised an exception."""

    entry: TakenEntry
    row: int
    """Place of the message in the entry."""
    attempts: int
    """Calls so far."""
    error: str
    """Name and text of the exception."""
    trace: str
    """Its traceback."""


def pause_s(first_s: float, attempts: int) -> float:
    """Seconds before the next call after so many."""
    return min(first_s * 2.0 ** min(attempts - 1, 30), PAUSE_S_MAX)


class Retries:
    """Messages that wait for their next call."""

    def __init__(self, first_s: float, retries_max: int | None) -> None:
        """`first_s`: seconds before the second call. `retries_max`: calls after the first one; None: any
        number."""
        self._first_s = first_s
        self._retries_max = retries_max
        self._waiting: list[tuple[float, int, FailedMessage]] = []
        """A heap by time."""
        self._count = 0

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def is_full(self) -> bool:
        """Whether so many wait that no input should be read."""
        return len(self._waiting) >= WAITING_MAX

    def is_given_up(self, failed: FailedMessage) -> bool:
        """Whether its calls are used up."""
        return self._retries_max is not None and failed.attempts > self._retries_max

    def wait_s(self, failed: FailedMessage) -> float:
        """Seconds before its next call."""
        return pause_s(self._first_s, failed.attempts)

    def add(self, failed: FailedMessage, now_s: float) -> None:
        """It is to be called again after its pause."""
        self._count += 1
        heapq.heappush(self._waiting, (now_s + self.wait_s(failed), self._count, failed))

    def due(self, now_s: float) -> list[FailedMessage]:
        """Takes those whose pause is over."""
        found = []
        while self._waiting and self._waiting[0][0] <= now_s:
            found.append(heapq.heappop(self._waiting)[2])
        return found

    def hasten(self) -> None:
        """Lets all pauses end."""
        self._waiting = [(0.0, count, failed) for _, count, failed in self._waiting]
        heapq.heapify(self._waiting)

    def next_s(self) -> float | None:
        """When the next one is due; None when none waits."""
        return self._waiting[0][0] if self._waiting else None

    def clear(self) -> None:
        """Forgets all: their entries will be delivered again."""
        self._waiting.clear()
