"""How often one consumer may subscribe: a bucket for each, forgotten when full."""

from __future__ import annotations

from typing import Final

from magnetar.broker.errors import NotAllowedError
from magnetar.broker.limits.token_bucket import Rate, TokenBucket

_KEPT_MAX: Final = 10_000
"""Consumers that are remembered; beyond them the ones that have rested long enough are forgotten."""


class SubscribeLimiter:
    """Of one topic."""

    __slots__ = ("_buckets", "_rate")

    def __init__(self, rate: Rate) -> None:
        self._rate = rate
        self._buckets: dict[tuple[str, str, int], TokenBucket] = {}

    def admit(self, address: str, name: str, consumer_id: int, now_ms: int) -> None:
        """One subscribe of this consumer. Raises NotAllowedError beyond the rate."""
        key = (address, name, consumer_id)
        bucket = self._buckets.get(key)
        if bucket is None:
            if len(self._buckets) >= _KEPT_MAX:
                self._forget(now_ms)
            bucket = self._buckets[key] = TokenBucket(self._rate.messages, self._rate.period_ms, now_ms)
        if bucket.available(now_ms) <= 0:
            raise NotAllowedError(
                f"consumer {name} subscribes more often than {self._rate.messages} times"
                f" in {self._rate.period_ms // 1000} s"
            )
        bucket.take(1, now_ms)

    def _forget(self, now_ms: int) -> None:
        full = self._rate.messages
        rested = [key for key, bucket in self._buckets.items() if bucket.available(now_ms) >= full]
        for key in rested or [next(iter(self._buckets))]:
            del self._buckets[key]
