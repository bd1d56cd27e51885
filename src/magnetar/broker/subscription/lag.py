"""How far subscriptions are behind, in messages, bytes and seconds: read on request.

Messages are counted by their index (PIP-70): the next one minus that of the oldest unacknowledged entry.
Seconds are those since the broker received that entry. The result of a lookup is kept while the subscription
does not move. When the entry is on a device, it is read in the background and the former value is shown, at
most REFRESH_MS old.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Final, NamedTuple
from weakref import WeakKeyDictionary

from magnetar.base.clock import Clock
from magnetar.base.entries import EntryRun
from magnetar.base.errors import MagnetarError
from magnetar.base.ids import EARLIEST, Position
from magnetar.broker.subscription.subscription import Subscription
from magnetar.managedlog.log import ManagedLog

REFRESH_MS: Final = 30_000
"""Between two reads of one subscription's oldest entry, for this, from a device or an object store."""


class Lag(NamedTuple):
    """The backlog of a subscription."""

    messages: int
    bytes: int
    """By the average size of the log's entries."""
    seconds: float
    """Since the broker received the oldest unacknowledged entry; 0 without a backlog."""


NONE: Final = Lag(0, 0, 0.0)


@dataclass(slots=True)
class _Oldest:
    """The values for the oldest entry, and its position."""

    position: Position
    index: int
    time_ms: int
    asked_ms: float = -math.inf
    """When it was last read in the background, by the clock that only runs; -inf: never."""


class Lags:
    """The lags of a broker's subscriptions."""

    def __init__(self, clock: Clock, spawn: Callable[[Coroutine[object, object, None]], None]) -> None:
        """`spawn` runs reads in the background."""
        self._clock = clock
        self._spawn = spawn
        self._known: WeakKeyDictionary[Subscription, _Oldest] = WeakKeyDictionary()

    def of(self, subscription: Subscription, log: ManagedLog) -> Lag | None:
        """None while nothing is known of the oldest entry: it is being read, or cannot be read."""
        entries = subscription.backlog_entries
        if not entries:
            self._known.pop(subscription, None)
            return NONE
        after = subscription.mark_delete
        first = log.next_position(after)
        known = self._known.get(subscription)
        if known is None or known.position != first:
            known = self._look(subscription, log, first, known)
        if known is None or known.time_ms == 0:
            return None
        # Entries beyond the mark that are acknowledged already count in neither.
        span = max(1, log.entries_between(after, log.last_position))
        messages = max(0, log.next_index - known.index) * entries // span
        size_bytes = entries * log.size_bytes // max(1, log.entry_count)
        return Lag(messages, size_bytes, max(0, self._clock.now_ms() - known.time_ms) / 1000)

    def _look(
        self, subscription: Subscription, log: ManagedLog, first: Position, known: _Oldest | None
    ) -> _Oldest | None:
        try:
            runs = log.read_now(first, 1, 1)
        except MagnetarError:
            # The log is closed or has failed, which is reported elsewhere; the former value is as good as
            # any.
            return known
        if runs:
            found = self._known[subscription] = _oldest(log, runs[0], first)
            return found
        now_ms = self._clock.monotonic_ms()
        if runs is None and (known is None or now_ms - known.asked_ms >= REFRESH_MS):
            known = self._known[subscription] = known or _Oldest(EARLIEST, 0, 0)
            known.asked_ms = now_ms
            self._spawn(self._read(subscription, log, first, now_ms))
        return known

    async def _read(
        self, subscription: Subscription, log: ManagedLog, first: Position, asked_ms: float
    ) -> None:
        try:
            runs = await log.read(first, 1, 1)
        except MagnetarError:  # the last known lag stays; the next request looks up again
            return
        if runs:
            found = self._known[subscription] = _oldest(log, runs[0], first)
            found.asked_ms = asked_ms


def _oldest(log: ManagedLog, run: EntryRun, position: Position) -> _Oldest:
    return _Oldest(position, run.base_index, log.believed_ms(run))
