"""How fast a subscription may deliver: its own rate and that of its topic."""

from __future__ import annotations

from magnetar.base.clock import Clock
from magnetar.broker.limits.token_bucket import RateLimiter


class DispatchThrottle:
    """Asked once per read. Several subscriptions may share the topic's limiter."""

    __slots__ = ("_clock", "_limiters")

    def __init__(self, clock: Clock, limiters: tuple[RateLimiter, ...]) -> None:
        self._clock = clock
        self._limiters = limiters

    def room(self, entries_max: int, bytes_max: int) -> tuple[int, int]:
        """Of these entries and bytes, how many may be sent now; (0, 0): see `due_ms`."""
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

    def due_ms(self) -> int:
        """Unix ms at which something may be sent."""
        return self._clock.now_ms() + self.wait_ms()
