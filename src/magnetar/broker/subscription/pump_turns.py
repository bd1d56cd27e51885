"""When a subscription's pump runs again, and who leaves before that: a turn of the event loop for each.

What one subscription does in a turn is bounded, so that others are served in between: however many permits
came with one read, a pump that has sent its part goes on in the next turn; of consumers that leave with very
many unacknowledged messages, one a turn gives them back.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

from magnetar.broker.subscription.any_subscription import AttachedConsumer
from magnetar.runtime.tasks import soon

CROWDED_MS_MAX: Final = 1.0
"""Time of one go while several tenants publish: what is sent anew costs several times what a run does. And
with filters, whose work is what clients make of it."""
PUMP_BYTES_MAX: Final = 2 << 20
"""Bytes sent in one go before other work of the loop gets its turn."""
PUMP_ENTRIES_MAX: Final = 2_000
"""Entries looked at in one go: some milliseconds of work, 20 where each has something to say."""
PUMP_HELD_MAX: Final = 4_096
"""Delayed entries noted in one go: some milliseconds of work."""
CROWDED_ENTRIES_MAX: Final = 100
"""Entries between two looks at the clock then."""
GIVEN_BACK_AT_ONCE: Final = 2_000
"""Entries that a leaving consumer may hold to be taken off at once: about a millisecond of work."""


class PumpTurns:
    """Of one subscription."""

    __slots__ = ("_leaving", "_pump", "_remove", "due")

    def __init__(self, remove: Callable[[AttachedConsumer], None], pump: Callable[[], None]) -> None:
        self._remove = remove
        self._pump = pump
        self._leaving: deque[AttachedConsumer] | None = None
        self.due = False
        """Whether the pump runs in the next turn: until then nobody is asked."""

    def again(self) -> None:
        """The pump runs when the loop has served others."""
        if not self.due:
            self.due = True
            soon(self._run)

    def leave(self, consumer: AttachedConsumer) -> None:
        """Takes a consumer off; now, unless it holds very much. It gets nothing more."""
        if len(consumer.pending) <= GIVEN_BACK_AT_ONCE:
            self._remove(consumer)
        else:
            consumer.permits = 0
            self._leaving = self._leaving or deque()
            self._leaving.append(consumer)
        # Not at once: when thousands leave together, those who stay are asked once.
        self.again()

    def _run(self) -> None:
        self.due = False
        if self._leaving:
            self._remove(self._leaving.popleft())
        if self._leaving:
            self.again()
        else:
            self._leaving = None
            self._pump()
