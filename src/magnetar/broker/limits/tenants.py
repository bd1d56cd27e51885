"""Limits that keep one tenant, role or machine from using everything: connections, and the rate of new
topics.

Connections are counted when they are opened, those of a role once they have authenticated, and refused with a
reason. New topics are never refused for their rate: a client that creates them too fast waits, like a
producer beyond its rate.

Source: Pulsar's settings `brokerMaxConnections`, `brokerMaxConnectionsPerIp`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Final

from magnetar.base.clock import Clock
from magnetar.broker.dispatch.unacked import UnackedOfBroker
from magnetar.broker.errors import StoredQuotaError, TooManyConnectionsError
from magnetar.broker.limits.token_bucket import Rate, RateLimiter

STORED_S: Final = 5.0
"""Between two rounds that count what tenants store."""
_CREATIONS_PERIOD_MS: Final = 60_000


@dataclass(frozen=True, slots=True, kw_only=True)
class TenantLimits:
    """The limits in a broker's configuration; 0 means no limit everywhere."""

    connections_max: int = 0
    connections_max_per_address: int = 0
    connections_max_per_role: int = 0
    """For authenticated clients."""
    commands_per_second_per_role: int = 0
    """Commands of a role, or of an address whose clients do not authenticate; messages do not count."""
    loop_percent_per_role: int = 0
    """Percent of the event loop's time, of a role, or of an address as above."""
    topics_made_per_minute: int = 0
    """Topics per minute of each tenant, a partitioned topic counted once: a token bucket of this size;
    further creations wait."""
    unacked_max: int = 0
    """Messages that all Shared and Key_Shared subscriptions together may hold unacknowledged."""
    unacked_blocked_percent: int = 16
    """Percent of the limit: beyond the limit, subscriptions that hold more than this part stop."""

    stored_bytes_max: int = 0
    """Bytes that a tenant may store over all its topics, unless its own document sets a limit."""

    def unacked(self) -> UnackedOfBroker | None:
        """Counts them; None where there is no limit."""
        if not self.unacked_max:
            return None
        return UnackedOfBroker(
            self.unacked_max, max(1, self.unacked_max * self.unacked_blocked_percent // 100)
        )


@dataclass(slots=True)
class StoredMark:
    """The bytes of a tenant, by the last round of `stored_bytes`, and whether they exceed its limit."""

    stored: int = 0
    limit: int = 0
    """0: none."""
    refusal: str = ""
    """Why its producers are refused."""
    counted_ms: float = -1e9
    """When it was counted last, on the monotonic clock."""
    sizes: dict[str, int] = field(default_factory=dict)
    """Bytes of its topics that are not loaded, by their logs."""

    def check(self) -> None:
        """Raises StoredQuotaError while it stores too much."""
        if self.refusal:
            raise StoredQuotaError(
                self.refusal, remedy="delete topics, shorten retention, or have an operator raise the limit"
            )

    def free(self) -> None:
        """It has no limit."""
        self.stored, self.limit, self.refusal, self.sizes = 0, 0, "", {}


class StoredMarks:
    """The marks of all tenants of a broker."""

    def __init__(self) -> None:
        self.marks: dict[str, StoredMark] = {}

    def of(self, tenant: str) -> StoredMark:
        """The tenant's, which its topics share."""
        return self.marks.setdefault(tenant, StoredMark())

    def forget(self, tenants: Collection[str]) -> None:
        """The tenants were deleted."""
        for gone in tenants:
            self.marks.pop(gone, None)


class Connections:
    """Counts the connections."""

    __slots__ = ("_by_address", "_by_role", "_limits", "_owners")

    def __init__(self, limits: TenantLimits) -> None:
        self._limits = limits
        self._owners: dict[object, tuple[str, str]] = {}
        self._by_address: Counter[str] = Counter()
        self._by_role: Counter[str] = Counter()

    def __len__(self) -> int:
        """Connections that were let in and are there."""
        return len(self._owners)

    @property
    def full(self) -> bool:
        """Whether there are as many as there may be."""
        return 0 < self._limits.connections_max <= len(self)

    def arrive(self, connection: object, address: str) -> None:
        """Counts a connection of which only the address is known. Raises TooManyConnectionsError."""
        limits = self._limits
        _check(len(self), limits.connections_max, "this broker")
        _check(self._by_address[address], limits.connections_max_per_address, f"address {address}")
        self._owners[connection] = (address, "")
        self._by_address[address] += 1

    def enter(self, connection: object, address: str, role: str) -> None:
        """Counts a connection for its role too, "" without authentication, and for its address unless it
        arrived before. Raises TooManyConnectionsError."""
        if role:
            _check(self._by_role[role], self._limits.connections_max_per_role, f"role {role}")
        if connection not in self._owners:
            self.arrive(connection, address)
        if role:
            self._owners[connection] = (address, role)
            self._by_role[role] += 1

    def leave(self, connection: object) -> None:
        """The connection is closed, if it was counted at all."""
        owner = self._owners.pop(connection, None)
        if owner is not None:
            for counts, key in zip((self._by_address, self._by_role), owner, strict=True):
                counts[key] -= 1
                if counts[key] <= 0:
                    # Addresses that are never seen again must not stay in the table. "" as a role is not
                    # counted.
                    del counts[key]


def _check(found: int, most: int, whose: str) -> None:
    if 0 < most <= found:
        raise TooManyConnectionsError(
            f"{whose} has {most} connections, the most it may have; close some, or raise the limit"
        )


class TopicsMade:
    """The rates at which tenants create topics."""

    __slots__ = ("_clock", "_rate", "_tenants")

    def __init__(self, limits: TenantLimits, clock: Clock) -> None:
        self._rate = Rate(limits.topics_made_per_minute, 0, _CREATIONS_PERIOD_MS)
        self._clock = clock
        self._tenants: dict[str, RateLimiter] = {}

    def wait_ms(self, tenant: str) -> int:
        """Counts a topic that is about to be made; for how long its maker waits before."""
        if not self._rate.limits:
            return 0
        now_ms = self._clock.now_ms()
        limiter = self._tenants.get(tenant)
        if limiter is None:
            limiter = self._tenants[tenant] = RateLimiter(self._rate, now_ms)
        wait_ms = limiter.wait_ms(now_ms)
        limiter.take(1, 0, now_ms)
        return wait_ms
