"""Dispatch rates: that of a subscription and that of its topic."""

from __future__ import annotations

from collections.abc import Callable

from magnetar.base.clock import Clock
from magnetar.broker.limits.token_bucket import Rate, RateLimiter

Counters = Callable[[], tuple[int, int]]
"""Messages and bytes that a topic has accepted so far."""


class FollowingLimiter(RateLimiter):
    """A rate on top of what is published, which is measured over its period."""

    __slots__ = ("_at_ms", "_published", "_seen")

    def __init__(self, rate: Rate, published: Counters, now_ms: int) -> None:
        super().__init__(rate, now_ms)
        self._published = published
        self._seen = published()
        self._at_ms = now_ms

    def room(self, messages_max: int, bytes_max: int, now_ms: int) -> tuple[int, int]:
        self._follow(now_ms)
        return super().room(messages_max, bytes_max, now_ms)

    def wait_ms(self, now_ms: int) -> int:
        self._follow(now_ms)
        return super().wait_ms(now_ms)

    def _follow(self, now_ms: int) -> None:
        passed_ms, period_ms = now_ms - self._at_ms, self.rate.period_ms
        if passed_ms < period_ms:
            return
        messages, size_bytes = self._published()
        before, self._seen, self._at_ms = self._seen, (messages, size_bytes), now_ms
        self.raise_by(
            (messages - before[0]) * period_ms // passed_ms,
            (size_bytes - before[1]) * period_ms // passed_ms,
            now_ms,
        )


def limiter(rate: Rate, published: Counters, now_ms: int) -> RateLimiter:
    """The limiter of a dispatch rate."""
    return FollowingLimiter(rate, published, now_ms) if rate.above_published else RateLimiter(rate, now_ms)


class DispatchThrottle:
    """Asked once per read. Several subscriptions may share the topic's limiter."""

    __slots__ = ("_clock", "_limiters")

    def __init__(self, clock: Clock, limiters: tuple[RateLimiter, ...]) -> None:
        self._clock = clock
        self._limiters = limiters

    def room(self, entries_max: int, bytes_max: int) -> tuple[int, int]:
        """How many of these entries and bytes may be sent now; (0, 0): see `due_ms`."""
        now_ms = self._clock.now_ms()
        for each in self._limiters:
            entries_max, bytes_max = each.room(entries_max, bytes_max, now_ms)
        return (entries_max, bytes_max) if entries_max > 0 and bytes_max > 0 else (0, 0)

    def sent(self, messages: int, size_bytes: int) -> None:
        """Counts what was sent."""
        now_ms = self._clock.now_ms()
        for each in self._limiters:
            each.take(messages, size_bytes, now_ms)

    def wait_ms(self) -> int:
        """Milliseconds until something may be sent; 0: now."""
        now_ms = self._clock.now_ms()
        return max((each.wait_ms(now_ms) for each in self._limiters), default=0)
