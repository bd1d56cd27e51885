"""How well bookies have answered lately: which to read from first, which not to choose. Sync; the time is
handed in."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Final

_LATENCY_WEIGHT: Final = 0.2
"""Weight of the newest answer in the mean: a bookie that became slow is recognised after about five
answers."""
_UNKNOWN_LATENCY_S: Final = 0.0
"""Latency of a bookie that has not answered anything yet: it is tried."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QuarantineOptions:
    """When a bookie is left out of new ensembles."""

    errors_max: int = 100
    """Failures within `window_s` that put it there."""
    slow_s: float = 2.0
    """An answer that takes this many seconds counts as a failure."""
    window_s: float = 60.0
    quarantine_s: float = 1_800.0
    """Seconds that it stays there."""

    def __post_init__(self) -> None:
        assert self.errors_max > 0


class _Record:
    __slots__ = ("errors", "failed_s", "latency_s", "refused_s", "until_s")

    def __init__(self) -> None:
        self.errors: deque[float] = deque()
        self.failed_s = float("-inf")
        self.latency_s = _UNKNOWN_LATENCY_S
        self.refused_s = float("-inf")
        self.until_s = float("-inf")


class BookieHealth:
    """One client's record of its bookies. Times are seconds of one monotonic clock."""

    FAILED_FOR_S: Final = 10.0
    """For this many seconds a failed bookie is read from last, unless it answers before."""

    def __init__(self, options: QuarantineOptions) -> None:
        self._options = options
        self._records: dict[str, _Record] = {}

    def _record(self, bookie: str) -> _Record:
        return self._records.setdefault(bookie, _Record())

    def answered(self, bookie: str, latency_s: float, now_s: float) -> None:
        """A read was answered."""
        record = self._record(bookie)
        known = record.latency_s or latency_s
        record.latency_s = known + _LATENCY_WEIGHT * (latency_s - known)
        record.failed_s = float("-inf")
        if latency_s >= self._options.slow_s:
            self.failed(bookie, now_s)

    def added(self, bookie: str, latency_s: float, now_s: float) -> None:
        """Adds were answered, the last of them after this time: affects reads only if that was slow."""
        if latency_s >= self._options.slow_s:
            self.failed(bookie, now_s)

    def failed(self, bookie: str, now_s: float) -> None:
        """A request got no answer, or an error that counts against the bookie."""
        record = self._record(bookie)
        record.failed_s = now_s
        errors = record.errors
        errors.append(now_s)
        while errors[0] <= now_s - self._options.window_s:
            errors.popleft()
        if len(errors) >= self._options.errors_max:
            record.until_s = now_s + self._options.quarantine_s
            errors.clear()

    def refused(self, bookie: str, now_s: float) -> None:
        """It accepted no entry, for whatever reason; that does not affect reads."""
        self._record(bookie).refused_s = now_s

    def may_take(self, bookie: str, connected_s: float, now_s: float) -> bool:
        """Whether a bookie connected since `connected_s` may be asked to take entries again: it was restarted
        since it refused, or the refusal is some time ago."""
        record = self._records.get(bookie)
        if record is None:
            return True
        refused_s = record.refused_s
        return connected_s > refused_s or now_s - refused_s >= self.FAILED_FOR_S

    def quarantined(self, now_s: float) -> frozenset[str]:
        """The bookies that must not be chosen."""
        return frozenset(bookie for bookie, record in self._records.items() if now_s < record.until_s)

    def order(self, bookies: tuple[str, ...], indexes: tuple[int, ...], now_s: float) -> tuple[int, ...]:
        """`indexes` (in `bookies`), the best to read from first.

        Equal bookies keep the given order: latencies count in powers of two, so that the copies of an entry
        are not all read from the bookie that is slightly faster.
        """
        return tuple(sorted(indexes, key=lambda index: self._rank(bookies[index], now_s)))

    def _rank(self, bookie: str, now_s: float) -> tuple[bool, int]:
        record = self._records.get(bookie)
        if record is None:
            return False, 0
        return now_s - record.failed_s < self.FAILED_FOR_S, int(record.latency_s * 1_000).bit_length()
