"""Delayed entries of one subscription: held back by the dispatcher's question, given back when due."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from magnetar.base.clock import Clock
from magnetar.base.ids import Position
from magnetar.broker.delayed.due_time import deliver_at_ms, may_be_delayed
from magnetar.broker.delayed.index import DelayedIndex
from magnetar.runtime.alarms import Alarms


class DelayedDelivery:
    """Plugged into the dispatchers of a subscription (`dispatch.api.Delays`)."""

    __slots__ = ("_alarms", "_armed_ms", "_clock", "_index", "_wake")

    def __init__(self, clock: Clock, alarms: Alarms, wake: Callable[[], None]) -> None:
        """`wake` is called when entries become due: it should ask `take_due`."""
        self._clock = clock
        self._alarms = alarms
        self._wake = wake
        self._index = DelayedIndex()
        self._armed_ms: int | None = None

    @property
    def count(self) -> int:
        """Entries that are held back."""
        return len(self._index)

    def screen(self, entries: Sequence[bytes]) -> bool:
        """Whether `hold` must be asked about any of these entries."""
        return may_be_delayed(entries)

    def hold(self, position: Position, entry: bytes) -> bool:
        """Whether the entry is to be delivered later; then `take_due` will give its position."""
        due_ms = deliver_at_ms(entry)
        now_ms = self._clock.now_ms()
        if due_ms <= now_ms:
            return False
        self._index.add(position, due_ms, now_ms)
        self._arm()
        return True

    def take_due(self, count_max: int) -> list[Position]:
        """Takes entries whose time has come; the rest is announced by `wake` or taken by the next call."""
        index = self._index
        if not len(index):
            return []
        due = index.pop_due(self._clock.now_ms(), count_max)
        if len(due) < count_max:
            self._arm()
        return due

    def _arm(self) -> None:
        due_ms = self._index.next_due_ms()
        if due_ms is not None and (self._armed_ms is None or due_ms < self._armed_ms):
            self._armed_ms = due_ms
            self._alarms.set(self, due_ms, self._ring)

    def _ring(self) -> None:
        self._armed_ms = None
        self._wake()

    def clear(self) -> None:
        """Forgets everything: the entries are read again from where the cursor stands."""
        self._index.clear()
        self._alarms.discard(self)
        self._armed_ms = None
