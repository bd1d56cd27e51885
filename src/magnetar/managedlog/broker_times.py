"""Which times entries are given, and what is made of those that cannot be right. Pure.

Times never go back along a ledger, so that a time has one place in it. A clock that was ahead for a moment
would so stamp its time on everything that follows, for as long as it was ahead: a year, perhaps. Nothing
would expire, and no time before it would be found.

    the clock lags behind the log's last time   entries get that last time; it is logged
    for 10 minutes, of a clock that only runs   the clock is believed: the log goes on in a new ledger, with
                                                the clock's time

Not at once, as it may be the clock's present time that is wrong: a machine that starts without a battery says
1970 until it has asked for the time, and what is written then would have expired when it has.

What ledgers say is never changed. A ledger whose time lies ahead of the clock counts as no later than what
follows it (`believed_times`); when the clock passes its time after all, it counts as it says.
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
"""After so long behind the log's last time the clock is believed."""
_NOTICED_MS: Final = 1_000
"""A smaller lag is not worth a word: clocks are slewed."""


class BrokerTimes:
    """The times of one log's entries."""

    __slots__ = ("_behind_since_ms", "_clock", "_ledgers", "_name", "last_ms")

    last_ms: int
    """Time of the last entry, Unix ms."""

    def __init__(self, clock: Clock, ledgers: LedgerList, last_ms: int, log_name: str) -> None:
        self._ledgers = ledgers
        self._clock = clock
        self._name = log_name
        self._behind_since_ms: float | None = None
        self.last_ms = last_ms

    def look(self) -> bool:
        """Called now and then: whether the clock has been behind for so long that it is to be believed."""
        lag_ms = self.last_ms - self._clock.now_ms()
        if lag_ms <= _NOTICED_MS:
            self._behind_since_ms = None
            return False
        now_ms = self._clock.monotonic_ms()
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
        before_ms, self.last_ms = self.last_ms, self._clock.now_ms()
        self._behind_since_ms = None
        _log.warning(
            "log %s: continues with the clock's time, %.0f s before that of its last message",
            self._name,
            (before_ms - self.last_ms) / 1000,
        )

    def believed_of_ledgers(self) -> list[int]:
        """`believed_times` of the log's ledgers, now."""
        return believed_times(self._ledgers, last_ms=self.last_ms, now_ms=self._clock.now_ms())

    def ahead(self, time_ms: int) -> bool:
        """Whether a time lies ahead of the clock."""
        return time_ms > self._clock.now_ms()

    def believed(self, run: EntryRun) -> int:
        """Time of a stored run; of one ahead of the clock the latest that it can be."""
        if not self.ahead(run.broker_time_ms):
            return run.broker_time_ms
        bounds = zip(self._ledgers, self.believed_of_ledgers(), strict=True)
        bound_ms = (time_ms for each, time_ms in bounds if each.ledger_id == run.ledger_id)
        return min(run.broker_time_ms, next(bound_ms, run.broker_time_ms))


class LastUse:
    """When a subscription was used last, and when it was by what is stored. Unix ms."""

    __slots__ = ("_clock", "_latest_ms", "_used_at_ms", "at_ms", "stored_ms")

    def __init__(self, clock: Clock, stored_ms: int) -> None:
        self._clock = clock
        self.at_ms = self.stored_ms = stored_ms
        self._used_at_ms: float | None = None
        """When it was used last, on the clock that only runs; None: not since the log was opened."""
        self._latest_ms = stored_ms
        """The latest time that any use was given."""

    def used(self) -> None:
        """Somebody uses it now."""
        self.at_ms, self._used_at_ms = self._clock.now_ms(), self._clock.monotonic_ms()
        self._latest_ms = max(self._latest_ms, self.at_ms)

    def follow_clock(self) -> None:
        """Called now and then: where the clock was set back, before or after the last use, that use goes
        along with the clock. What was used a moment ago, while the clock was years behind, would else be
        years old once it is set right, and what was used while it was ahead would be new for years."""
        if self._used_at_ms is None:
            return
        right_ms = self._clock.now_ms() - int(self._clock.monotonic_ms() - self._used_at_ms)
        was_back = self._latest_ms - self.at_ms >= STEP_MS_MIN
        if self.at_ms - right_ms >= STEP_MS_MIN or (was_back and right_ms - self.at_ms >= STEP_MS_MIN):
            self.at_ms = right_ms


def believed_times(ledgers: Iterable[Ledger], *, last_ms: int, now_ms: int) -> list[int]:
    """Of each ledger the time of its last entry, as far as it can be: not ahead of the clock and of all that
    was appended after it. `last_ms`: that of the next entry, at least. 0 for a ledger without entries."""
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
