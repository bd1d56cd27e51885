"""When a subscription's pump runs again, and when its consumers leave: a turn of the event loop for each.

The work of one subscription in a turn is bounded, so that others are served in between: however many permits
came with one read, a pump that has sent its part continues in the next turn; of consumers that leave with
very many unacknowledged messages, one per turn returns them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

from magnetar.broker.subscription.any_subscription import AttachedConsumer
from magnetar.runtime.tasks import soon

CROWDED_MS_MAX: Final = 1.0
"""Milliseconds of one go while several tenants publish: redelivered messages cost several times what a run
costs. Also with filters, whose work is set by clients."""
PUMP_BYTES_MAX: Final = 2 << 20
"""Bytes sent in one go before other tasks run."""
PUMP_ENTRIES_MAX: Final = 2_000
"""Entries examined in one go: some milliseconds of work, 20 where each needs a decision."""
PUMP_HELD_MAX: Final = 4_096
"""Delayed entries noted in one go: some milliseconds of work."""
CROWDED_ENTRIES_MAX: Final = 100
"""Entries between two readings of the clock then."""
GIVEN_BACK_AT_ONCE: Final = 2_000
"""Entries that a leaving consumer may hold to be taken off at once: about a millisecond of work."""


class PumpTurns:
    """The turns of one subscription."""

    __slots__ = ("_leaving", "_pump", "_remove", "due")

    def __init__(self, remove: Callable[[AttachedConsumer], None], pump: Callable[[], None]) -> None:
        self._remove = remove
        self._pump = pump
        self._leaving: deque[AttachedConsumer] | None = None
        self.due = False
        """Whether the pump runs in the next turn: until then no consumer is checked."""

    def again(self) -> None:
        """The pump runs when the loop has served others."""
        if not self.due:
            self.due = True
            soon(self._run)

    def leave(self, consumer: AttachedConsumer) -> None:
        """Detaches a consumer; at once, unless it holds very many messages. It gets no more."""
        if len(consumer.pending) <= GIVEN_BACK_AT_ONCE:
            self._remove(consumer)
        else:
            consumer.permits = 0
            self._leaving = self._leaving or deque()
            self._leaving.append(consumer)
        # Not at once: when thousands leave together, the remaining ones are checked once.
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
