"""The broker times of entries, and the treatment of times that cannot be right. Pure.

Times never decrease along a ledger, so that a time has one place in it. Therefore a clock that was ahead for
a moment would stamp its time on all later entries, until the real time has caught up: a year, perhaps.
Nothing would expire, and no earlier time would be found.

    the clock lags behind the log's last time     entries get that last time; it is logged
    for 10 minutes, of a monotonic clock          the clock is believed: the log continues in a new
                                                  ledger, with the clock's time

Not at once, as the clock's present time may be the wrong one: a machine that starts without a battery says
1970 until it has asked for the time, and entries stamped by then would have expired afterwards.

Stored times are never changed. A ledger whose time lies ahead of the clock counts as no later than the
entries after it (`believed_times`); when the clock passes its time after all, it counts as stored.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Final

from magnetar.base.clock import STEP_MS_MIN, Clock
from magnetar.base.entries import EntryRun
from magnetar.managedlog.ledger_list import Ledger, LedgerList

_log = logging.getLogger("magnetar.managedlog")

LAG_MS_MAX: Final = 600_000
"""Milliseconds behind the log's last time after which the clock is believed."""
_NOTICED_MS: Final = 1_000
"""A smaller lag, in milliseconds, is not logged: clocks are slewed."""


class BrokerTimes:
    """The times of one log's entries."""

    __slots__ = ("_behind_since_ms", "_ledgers", "_name", "clock", "last_ms")

    last_ms: int
    """Time of the last entry, Unix ms."""

    def __init__(self, clock: Clock, ledgers: LedgerList, last_ms: int, log_name: str) -> None:
        self._ledgers = ledgers
        self.clock = clock
        self._name = log_name
        self._behind_since_ms: float | None = None
        self.last_ms = last_ms

    def look(self) -> bool:
        """To be called regularly: whether the clock has lagged for so long that it is to be believed."""
        lag_ms = self.last_ms - self.clock.now_ms()
        if lag_ms <= _NOTICED_MS:
            self._behind_since_ms = None
            return False
        now_ms = self.clock.monotonic_ms()
        if self._behind_since_ms is None:
            self._behind_since_ms = now_ms
            _log.warning(
                "log %s: the clock is %.0f s behind the time of the last message: it was ahead then, or is "
                "wrong now. Messages get that last time; after %d minutes the clock's time is used",
                self._name,
                lag_ms / 1000,
                LAG_MS_MAX // 60_000,
            )
        return now_ms - self._behind_since_ms >= LAG_MS_MAX

    def believe(self) -> None:
        """The next entry gets the clock's time. Only before the first entry of a ledger."""
        before_ms, self.last_ms = self.last_ms, self.clock.now_ms()
        self._behind_since_ms = None
        _log.warning(
            "log %s: continues with the clock's time, %.0f s before that of its last message",
            self._name,
            (before_ms - self.last_ms) / 1000,
        )

    def believed_of_ledgers(self) -> list[int]:
        """`believed_times` of the log's ledgers, now."""
        return believed_times(self._ledgers, last_ms=self.last_ms, now_ms=self.clock.now_ms())

    def ahead(self, time_ms: int) -> bool:
        """Whether a time lies ahead of the clock."""
        return time_ms > self.clock.now_ms()

    def believed(self, run: EntryRun) -> int:
        """The believed time of a stored run; for one ahead of the clock the latest possible time."""
        if not self.ahead(run.broker_time_ms):
            return run.broker_time_ms
        bounds = zip(self._ledgers, self.believed_of_ledgers(), strict=True)
        bound_ms = (time_ms for each, time_ms in bounds if each.ledger_id == run.ledger_id)
        return min(run.broker_time_ms, next(bound_ms, run.broker_time_ms))


class LastUse:
    """When a subscription was last used, now and according to the store. Unix ms."""

    __slots__ = ("_clock", "_latest_ms", "_used_at_ms", "at_ms", "stored_ms")

    def __init__(self, clock: Clock, stored_ms: int) -> None:
        self._clock = clock
        self.at_ms = self.stored_ms = stored_ms
        self._used_at_ms: float | None = None
        """The last use on the monotonic clock; None: not since the log was opened."""
        self._latest_ms = stored_ms
        """The latest time assigned to any use."""

    def used(self) -> None:
        """The subscription is used now."""
        self.at_ms, self._used_at_ms = self._clock.now_ms(), self._clock.monotonic_ms()
        self._latest_ms = max(self._latest_ms, self.at_ms)

    def follow_clock(self) -> None:
        """To be called regularly: when the clock was set back, before or after the last use, the time of that
        use is moved with the clock. Otherwise a use a moment ago, while the clock was years behind, would be
        years old once the clock is right, and a use while it was ahead would stay recent for years."""
        if self._used_at_ms is None:
            return
        right_ms = self._clock.now_ms() - int(self._clock.monotonic_ms() - self._used_at_ms)
        was_back = self._latest_ms - self.at_ms >= STEP_MS_MIN
        if self.at_ms - right_ms >= STEP_MS_MIN or (was_back and right_ms - self.at_ms >= STEP_MS_MIN):
            self.at_ms = right_ms


def believed_times(ledgers: Iterable[Ledger], *, last_ms: int, now_ms: int) -> list[int]:
    """The time of each ledger's last entry, limited by the clock and by all entries after it. `last_ms`: the
    earliest time of the next entry. 0 for a ledger without entries."""
    times: list[int] = []
    following_ms = last_ms
    for ledger in reversed(list(ledgers)):
        time_ms = ledger.timestamp_ms
        if ledger.entries:
            if time_ms > now_ms:
                time_ms = min(time_ms, following_ms)
            following_ms = min(following_ms, time_ms)
        times.append(time_ms)
    times.reverse()
    return times
