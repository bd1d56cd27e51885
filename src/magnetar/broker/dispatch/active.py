"""Exclusive and Failover: the consumers of a subscription, and which of them is the active one."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from magnetar.broker.dispatch.consumer import Consumer
from magnetar.broker.errors import ConsumerBusyError


def choose_active(consumers: Sequence[Consumer], partition: int) -> Consumer | None:
    """Who is active among consumers in the order in which they came; None when there are none.

    On a partition (>= 0) it is number `partition % n` among the consumers of the best priority, so that
    the partitions of a topic spread over them; elsewhere it is the one that came first.
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
    """One active consumer, as `choose_active` says; the others (Failover) wait.

    What gives entries out, of stored topics and of others, extends it.
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
        """Attaches a consumer and tells it whether it is active, and others of whom that changed.

        Raises ConsumerBusyError when there is one and it is not Failover.
        """
        if self._consumers and not self._failover:
            raise ConsumerBusyError("Exclusive consumer is already connected")
        self._consumers.append(consumer)
        self._elect(joined=consumer)

    def remove(self, consumer: Consumer) -> None:
        """Detaches a consumer and tells others of whom something changed."""
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
        """Another consumer is active, and nobody has been told yet."""
