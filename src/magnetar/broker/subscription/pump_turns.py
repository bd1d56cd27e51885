"""When a subscription's pump runs again, and when its consumers leave: a turn of the loop for each (pure).

The work of one subscription in a turn is bounded, so that others are served in between: however many permits
came with one read, a pump that has sent its part continues in the next turn; of consumers that leave with
very many unacknowledged messages, one per turn returns them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

from magnetar.broker.subscription.any_subscription import AttachedConsumer

GIVEN_BACK_AT_ONCE: Final = 2_000
"""Entries that a leaving consumer may hold to be taken off at once: about a millisecond of work."""


class PumpTurns:
    """The turns of one subscription."""

    __slots__ = ("_leaving", "_pump", "_remove", "_soon", "due")

    def __init__(
        self,
        remove: Callable[[AttachedConsumer], None],
        pump: Callable[[], None],
        soon: Callable[[Callable[[], None]], object],
    ) -> None:
        """`soon` calls back in the next turn of the event loop."""
        self._remove = remove
        self._pump = pump
        self._soon = soon
        self._leaving: deque[AttachedConsumer] | None = None
        self.due = False
        """Whether the pump runs in the next turn: until then no consumer is checked."""

    def again(self) -> None:
        """The pump runs when the loop has served others."""
        if not self.due:
            self.due = True
            self._soon(self._run)

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

    def check(self) -> None:
        """Asserts what must always hold."""
        assert self.due or not self._leaving, "consumers leave in a turn that does not come"
        assert self._leaving is None or self._leaving, "an empty line is kept"
        assert all(consumer.permits <= 0 for consumer in self._leaving or ()), "a leaving consumer gets more"
