"""Timeouts of transactions: one alarm for those of all coordinators."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from magnetar.base.clock import Clock
from magnetar.broker.transactions.coordinator import Coordinator
from magnetar.broker.transactions.transaction import Transaction
from magnetar.runtime.alarms import Alarms


class Deadlines:
    """The deadlines of one broker."""

    def __init__(
        self,
        alarms: Alarms,
        clock: Clock,
        coordinators: Mapping[int, Coordinator],
        over: Callable[[Transaction], None],
    ) -> None:
        """`over` is called for each transaction that timed out."""
        self._alarms = alarms
        self._clock = clock
        self._coordinators = coordinators
        self._over = over
        self._rings_at_ms: float | None = None

    def set(self) -> None:
        """Rings when the next transaction's time is over."""
        for coordinator in self._coordinators.values():
            self.set_for(coordinator)

    def set_for(self, coordinator: Coordinator) -> None:
        """The same; to be called when this one may have an earlier one."""
        next_ms = coordinator.next_deadline_ms
        if next_ms is None or (self._rings_at_ms is not None and self._rings_at_ms <= next_ms):
            return
        self._rings_at_ms = next_ms
        self._alarms.after(self, max(0.0, next_ms - self._clock.monotonic_ms()), self._ring)

    def _ring(self) -> None:
        self._rings_at_ms = None
        now_ms = self._clock.monotonic_ms()
        for coordinator in self._coordinators.values():
            for txn in coordinator.due(now_ms):
                coordinator.counts.timed_out += 1
                self._over(txn)
        self.set()
