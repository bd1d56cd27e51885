"""Token buckets: an amount per period, with the clock handed in.

A bucket may go into debt: bytes that were read cannot be unread, so a vector always passes and the next one
waits until the debt is paid. Levels are kept as `tokens × period_ms`: integers, no drift.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Rate:
    """An amount per period; 0 or less: no limit."""

    messages: int = 0
    size_bytes: int = 0
    period_ms: int = 1000
    above_published: bool = False
    """Whether this is how much faster than what is published something may go (dispatch rates)."""

    @property
    def limits(self) -> bool:
        """Whether it is a limit."""
        return self.messages > 0 or self.size_bytes > 0


class TokenBucket:
    """`tokens` a period of `period_ms`, at most one period's worth in store; full at the start."""

    __slots__ = ("_at_ms", "_level", "_period_ms", "_tokens")

    def __init__(self, tokens: int, period_ms: int, now_ms: int) -> None:
        assert tokens > 0
        assert period_ms > 0
        self._tokens = tokens
        self._period_ms = period_ms
        self._level = tokens * period_ms
        self._at_ms = now_ms

    def available(self, now_ms: int) -> int:
        """Whole tokens in store; 0 or less while there is debt."""
        self._fill(now_ms)
        return self._level // self._period_ms

    def take(self, tokens: int, now_ms: int) -> None:
        """Takes tokens, into debt if necessary."""
        self._fill(now_ms)
        self._level -= tokens * self._period_ms

    def resize(self, tokens: int, now_ms: int) -> None:
        """Changes the tokens per period; the present level stays, up to the new size."""
        assert tokens > 0
        self._fill(now_ms)
        self._tokens = tokens
        self._fill(now_ms)

    def wait_ms(self, now_ms: int) -> int:
        """Milliseconds until a token is there; 0 when one is."""
        self._fill(now_ms)
        return max(0, -((self._level - self._period_ms) // self._tokens))

    def _fill(self, now_ms: int) -> None:
        # A clock that was set back must not take tokens away: time continues from there.
        passed_ms = max(0, now_ms - self._at_ms)
        self._at_ms = now_ms
        self._level = min(self._tokens * self._period_ms, self._level + passed_ms * self._tokens)


class RateLimiter:
    """Messages and bytes of one rate."""

    __slots__ = ("_bytes", "_messages", "rate")

    def __init__(self, rate: Rate, now_ms: int) -> None:
        self.rate = rate
        self._messages = TokenBucket(rate.messages, rate.period_ms, now_ms) if rate.messages > 0 else None
        self._bytes = TokenBucket(rate.size_bytes, rate.period_ms, now_ms) if rate.size_bytes > 0 else None

    def raise_by(self, messages: int, size_bytes: int, now_ms: int) -> None:
        """Raises the rate by this much per period."""
        if self._messages is not None:
            self._messages.resize(self.rate.messages + messages, now_ms)
        if self._bytes is not None:
            self._bytes.resize(self.rate.size_bytes + size_bytes, now_ms)

    def take(self, messages: int, size_bytes: int, now_ms: int) -> None:
        """Counts tokens that passed."""
        if self._messages is not None:
            self._messages.take(messages, now_ms)
        if self._bytes is not None:
            self._bytes.take(size_bytes, now_ms)

    def wait_ms(self, now_ms: int) -> int:
        """Milliseconds until anything may pass; 0: now."""
        return max((each.wait_ms(now_ms) for each in (self._messages, self._bytes) if each), default=0)

    def room(self, messages_max: int, bytes_max: int, now_ms: int) -> tuple[int, int]:
        """How many of these may pass now."""
        if self._messages is not None:
            messages_max = min(messages_max, max(0, self._messages.available(now_ms)))
        if self._bytes is not None:
            bytes_max = min(bytes_max, max(0, self._bytes.available(now_ms)))
        return messages_max, bytes_max
