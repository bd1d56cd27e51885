"""How clients find coordinators: as the partitions of a topic that is neither read nor written.

Clients ask how many partitions `transaction_coordinator_assign` has, look each of them up, and connect to the
broker that the lookup names. Source: Pulsar's `SystemTopicNames`.
"""

from __future__ import annotations

from typing import Final

from magnetar.base.names import TopicName
from magnetar.broker.policies.policies import PolicyStore

ASSIGN: Final = TopicName.parse("persistent://pulsar/system/transaction_coordinator_assign")
COUNT: Final = 16
"""Coordinators of a cluster, unless its metadata has another number (Pulsar's default)."""


def names_coordinators(topic: TopicName) -> bool:
    """Whether it is that topic, or one of its partitions."""
    return topic.base == ASSIGN


class Discovery:
    """The number of coordinators."""

    def __init__(self, policies: PolicyStore) -> None:
        self.known = COUNT
        """The last result of `count`."""
        self._policies = policies

    async def count(self) -> int:
        """Raises MetadataError."""
        self.known = await self._policies.partitions(ASSIGN) or COUNT
        return self.known

    async def grow(self, count: int) -> None:
        """Raises the number of coordinators. Raises MetadataError, ConflictError."""
        if await self._policies.partitions(ASSIGN):
            await self._policies.grow_partitioned(ASSIGN, count)
        else:
            await self._policies.create_partitioned(ASSIGN, count)
        self.known = count

    async def partitions(self, topic: TopicName) -> int:
        """The number of partitions of the topic, or of one of its partitions. Raises MetadataError."""
        return await self.count() if topic.partition < 0 else 0
