"""Bounds the time that an installed filter may have the event loop, of all its subscriptions together.

The messages that a filter judges are written by clients. One for which it never comes to an end must not
stop the broker: the filter is interrupted, and its subscription waits, as with any filter that fails. A
filter that is interrupted again and again is not asked at all for a while.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, TypeVar

from magnetar.broker.filters.entry_filter import (
    Candidate,
    Context,
    EntryFilter,
    FilterError,
    FilterFactory,
    Verdict,
)
from magnetar.runtime.clock import SystemClock
from magnetar.runtime.interruption import TookTooLongError, interruptible

_T = TypeVar("_T")

LIMIT_S: Final = 0.1
"""Seconds that a filter may take for a vector: twenty times its usual budget."""
OVERRUNS_MAX: Final = 10
"""How often it may be interrupted in PERIOD_MS; then it is not asked until the period is over."""
PERIOD_MS: Final = 60_000.0


class TimeLimit:
    """A factory around an installed one, whose filters are bounded in time."""

    def __init__(self, name: str, factory: FilterFactory, now_ms: Callable[[], float] | None = None) -> None:
        """`now_ms`: of a clock that only runs."""
        self._name = name
        self._factory = factory
        self._now_ms = now_ms or SystemClock().monotonic_ms
        self._overruns = 0
        self._since_ms = 0.0

    def __call__(self, context: Context) -> EntryFilter:
        """Raises FilterError, also when the filter takes too long to begin."""
        return _Limited(self, self.run(lambda: self._factory(context)))

    def run(self, work: Callable[[], _T]) -> _T:
        """Work of the filter. Raises FilterError when it takes too long, or has done so too often."""
        now_ms = self._now_ms()
        if now_ms - self._since_ms >= PERIOD_MS:
            self._overruns, self._since_ms = 0, now_ms
        if self._overruns >= OVERRUNS_MAX:
            raise FilterError(
                f"entry filter {self._name!r} was interrupted {self._overruns} times, and is not asked for"
                f" {PERIOD_MS / 1_000:g} s: correct it, or remove it from the policy entryFilters"
            )
        try:
            return interruptible(LIMIT_S, work)
        except TookTooLongError as error:
            self._overruns += 1
            raise FilterError(
                f"entry filter {self._name!r} took more than {LIMIT_S * 1_000:g} ms for a vector and was"
                " interrupted; all clients waited. Correct it, or remove it from the policy entryFilters"
            ) from error


class _Limited:
    """See the module."""

    def __init__(self, limit: TimeLimit, judging: EntryFilter) -> None:
        self._limit = limit
        self._judging = judging

    def judge(self, candidates: Sequence[Candidate]) -> Sequence[Verdict]:
        """See `EntryFilter`. Raises FilterError when it takes too long."""
        return self._limit.run(lambda: self._judging.judge(candidates))
