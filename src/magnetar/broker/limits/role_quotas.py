"""Quotas of one role over seconds: commands, and their time on the event loop (pure).

An owner is a role, or an address whose clients do not authenticate. Time is the time that its reads and
requests occupied the loop: reads with everything they brought, messages too; requests and calls of the admin
API from step to step, not while they wait. Later work for many clients together (syncs, dispatch to others,
background rounds) is not counted. An owner beyond its quota rests until the excess is paid back, at most 10
seconds, so that one expensive request does not lock its role out.

Source: Kafka's quota `request_percentage`.
"""

from __future__ import annotations

import types
from collections.abc import Awaitable, Callable, Coroutine, Generator
from typing import Final, TypeVar

from magnetar.broker.limits.tenants import TenantLimits
from magnetar.broker.limits.token_bucket import TokenBucket

T = TypeVar("T")

_SECOND_MS: Final = 1_000
_US_PER_PERCENT: Final = 10_000
"""Microseconds of a second."""
_REST_S_MAX: Final = 10
_OWNERS_KEPT: Final = 10_000
"""Owners that are remembered; beyond this, owners that have used nothing for a second are forgotten."""


class RoleQuotas:
    """The quotas of one broker."""

    __slots__ = ("_of_commands", "_of_time", "now_ms", "timed")

    def __init__(self, limits: TenantLimits, now_ms: Callable[[], float]) -> None:
        """`now_ms` is of a monotonic clock."""
        self.now_ms = now_ms
        self._of_commands = _Quota(limits.commands_per_second_per_role)
        self._of_time = _Quota(limits.loop_percent_per_role * _US_PER_PERCENT)
        self.timed = limits.loop_percent_per_role > 0
        """Whether time is counted."""

    def count(self, owner: str, commands: int, begun_ms: float | None = None) -> int:
        """Counts commands of an owner, and the time since they began, where it is given; for how many
        milliseconds its next ones must wait."""
        now_ms = self.now_ms()
        rest_ms = self._of_commands.take(owner, commands, int(now_ms))
        if self.timed:
            used_us = 0 if begun_ms is None else int((now_ms - begun_ms) * 1_000)
            rest_ms = max(rest_ms, self._of_time.take(owner, used_us, int(now_ms)))
        return rest_ms

    def timing(self, owner: str, work: Coroutine[object, object, T]) -> Awaitable[T]:
        """Wraps work so that its time on the loop counts."""
        return self._timed(owner, work) if self.timed else work

    @types.coroutine
    def _timed(self, owner: str, work: Coroutine[object, object, T]) -> Generator[object, object, T]:
        sent: object = None
        error: BaseException | None = None
        while True:
            begun_ms = self.now_ms()
            try:
                waits_for = work.send(sent) if error is None else work.throw(error)
            except StopIteration as end:
                result: T = end.value
                return result
            finally:
                self.count(owner, 0, begun_ms)
            sent = error = None
            try:
                sent = yield waits_for
            except BaseException as raised:  # noqa: BLE001  # it is the work's, cancellation too
                error = raised


class _Quota:
    """An amount per second for each owner."""

    __slots__ = ("_buckets", "_per_second")

    def __init__(self, per_second: int) -> None:
        self._per_second = per_second
        self._buckets: dict[str, TokenBucket] = {}

    def take(self, owner: str, much: int, now_ms: int) -> int:
        """Counts; for how many milliseconds the owner must wait."""
        per_second = self._per_second
        if not per_second:
            return 0
        bucket = self._buckets.get(owner)
        if bucket is None:
            if len(self._buckets) >= _OWNERS_KEPT:
                self._forget(now_ms)
            bucket = self._buckets[owner] = TokenBucket(per_second, _SECOND_MS, now_ms)
        bucket.take(min(much, bucket.available(now_ms) + per_second * _REST_S_MAX), now_ms)
        return bucket.wait_ms(now_ms)

    def _forget(self, now_ms: int) -> None:
        full = self._per_second
        self._buckets = {
            owner: bucket for owner, bucket in self._buckets.items() if bucket.available(now_ms) < full
        }
