"""Exclusive and Failover: the consumers of a subscription, and which of them is the active one."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from magnetar.broker.dispatch.consumer import Consumer
from magnetar.broker.errors import ConsumerBusyError


def choose_active(consumers: Sequence[Consumer], partition: int) -> Consumer | None:
    """The active one of the consumers, which are in order of arrival; None without consumers.

    On a partition (>= 0) it is number `partition % n` among the consumers of the best priority, so that the
    partitions of a topic spread over them; otherwise it is the first.
    """
    if not consumers:
        return None
    best = min(consumer.priority for consumer in consumers)
    candidates = [consumer for consumer in consumers if consumer.priority == best]
    if partition < 0:
        return candidates[0]
    candidates.sort(key=lambda consumer: consumer.name)
    return candidates[partition % len(candidates)]


class ActiveConsumers:
    """One active consumer, chosen by `choose_active`; the others (Failover) wait.

    Base of dispatchers and choosers, of stored topics and of others.
    """

    def __init__(
        self, *, failover: bool, partition: int, active_changed: Callable[[Consumer, bool], None]
    ) -> None:
        """`active_changed(consumer, is_active)` tells each affected consumer; see `add`."""
        self._failover = failover
        self._partition = partition
        self._active_changed = active_changed
        self._consumers: list[Consumer] = []
        self.active: Consumer | None = None

    @property
    def consumers(self) -> Sequence[Consumer]:
        return self._consumers

    def add(self, consumer: Consumer) -> None:
        """Attaches a consumer and tells it whether it is active; also tells other consumers whose role
        changed.

        Raises ConsumerBusyError when there is one already and the type is not Failover.
        """
        if self._consumers and not self._failover:
            raise ConsumerBusyError("Exclusive consumer is already connected")
        self._consumers.append(consumer)
        self._elect(joined=consumer)

    def remove(self, consumer: Consumer) -> None:
        """Detaches a consumer and tells other consumers whose role changed."""
        if consumer in self._consumers:
            self._consumers.remove(consumer)
            self._elect(joined=None)

    def _elect(self, joined: Consumer | None) -> None:
        before = self.active
        self.active = choose_active(self._consumers, self._partition)
        affected = {id(joined)}
        if self.active is not before:
            affected |= {id(before), id(self.active)}
            if self.active is not None:
                self._elected()
        for consumer in self._consumers:
            if id(consumer) in affected:
                self._active_changed(consumer, consumer is self.active)

    def _elected(self) -> None:
        """Another consumer is active; no consumer was told yet."""
