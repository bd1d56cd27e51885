"""Resource groups: rates that all topics of some namespaces share.

Each group has one bucket for what is published and one for what is delivered; topics of its namespaces draw
from them beside their own. They hold on this broker; a group's share among several brokers is not negotiated.
Source: PIP-82 (names and shapes).
"""

from __future__ import annotations

from typing import Final

from magnetar.base.clock import Clock
from magnetar.broker.limits.token_bucket import Rate, RateLimiter
from magnetar.broker.policies.policy_shapes import Document

GROUP_POLICY: Final = "resource_group_name"
"""Key of a namespace's document: the name of its group."""

NUMBERS: Final = ("publishRateInMsgs", "publishRateInBytes", "dispatchRateInMsgs", "dispatchRateInBytes")
"""Parts of a group's document; 0 or less: without limit."""


class ResourceGroup:
    """The buckets of one group; None where it limits nothing. Compared by identity."""

    __slots__ = ("dispatch", "publish", "rates")

    def __init__(self, rates: tuple[Rate, Rate], now_ms: int) -> None:
        """`rates`: of what is published and of what is delivered."""
        self.rates = rates
        self.publish, self.dispatch = (RateLimiter(rate, now_ms) if rate.limits else None for rate in rates)


class ResourceGroups:
    """The groups that topics of this broker use."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._known: dict[str, ResourceGroup] = {}

    def of(self, name: str, document: Document) -> ResourceGroup:
        """The group; a new one, with full buckets, when its rates changed."""
        numbers = [max(0, int(document.get(number) or 0)) for number in NUMBERS]
        rates = Rate(numbers[0], numbers[1]), Rate(numbers[2], numbers[3])
        known = self._known.get(name)
        if known is None or known.rates != rates:
            known = self._known[name] = ResourceGroup(rates, self._clock.now_ms())
        return known
