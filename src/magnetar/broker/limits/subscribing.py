"""Rate limit on a consumer's SUBSCRIBEs: a bucket for each, forgotten when full."""

from __future__ import annotations

from itertools import islice
from typing import Final

from magnetar.base.ids import ConsumerId
from magnetar.broker.errors import NotAllowedError
from magnetar.broker.limits.token_bucket import Rate, TokenBucket

_KEPT_MAX: Final = 10_000
"""Consumers that are remembered; beyond this, the oldest are forgotten."""

_FORGOTTEN_MAX: Final = 100
"""Buckets of rested consumers that are forgotten at a time."""


class SubscribeLimiter:
    """The limiter of one topic."""

    __slots__ = ("_buckets", "_rate")

    def __init__(self, rate: Rate) -> None:
        self._rate = rate
        self._buckets: dict[tuple[str, str, int], TokenBucket] = {}
        """In order of the last subscription."""

    def admit(self, address: str, name: str, consumer_id: ConsumerId, now_ms: int) -> None:
        """One subscribe of this consumer. Raises NotAllowedError beyond the rate."""
        key = (address, name, consumer_id)
        bucket = self._buckets.pop(key, None)
        if bucket is None:
            if len(self._buckets) >= _KEPT_MAX:
                self._forget(now_ms)
            bucket = TokenBucket(self._rate.messages, self._rate.period_ms, now_ms)
        self._buckets[key] = bucket
        if bucket.available(now_ms) <= 0:
            raise NotAllowedError(
                f"consumer {name} subscribes more often than {self._rate.messages} times"
                f" in {self._rate.period_ms // 1000} s"
            )
        bucket.take(1, now_ms)

    def _forget(self, now_ms: int) -> None:
        """Forgets at least one. Each examined bucket is removed, except one: a full table of consumers that
        have not rested costs nothing."""
        del self._buckets[next(iter(self._buckets))]
        for key, bucket in list(islice(self._buckets.items(), _FORGOTTEN_MAX)):
            if bucket.available(now_ms) < self._rate.messages:
                return
            del self._buckets[key]
