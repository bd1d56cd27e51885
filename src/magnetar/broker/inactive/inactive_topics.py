"""Examines all loaded topics periodically and deletes those that are not used."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from magnetar.base.names import TopicName
from magnetar.broker.inactive.expiry import InactiveSubscriptions
from magnetar.broker.inactive.idleness import IdleTimes, has_clients, in_use
from magnetar.broker.inactive.policy import InactivePolicy
from magnetar.broker.inactive.unloading import may_go
from magnetar.broker.rounds import guarded
from magnetar.broker.system_topics import is_system
from magnetar.broker.topic.topic import Topic
from magnetar.runtime.tasks import in_slices

if TYPE_CHECKING:
    from magnetar.broker.ports import BrokerPort
    from magnetar.broker.topic.any_topic import AnyTopic

TOPICS_PER_TURN: Final = 100
"""Topics examined before other tasks run: about a millisecond."""

_log = logging.getLogger("magnetar.broker.inactive")


class InactiveTopics:
    """The unused topics of a broker."""

    def __init__(self, broker: BrokerPort) -> None:
        self._broker = broker
        self._partitioned = broker.config.inactive_partitioned
        """Whether a partitioned topic is deleted with the last of its partitions."""
        self._idle, self._unloadable = IdleTimes(), IdleTimes()
        self._subscriptions = InactiveSubscriptions(broker)

    async def round(self) -> None:
        """Examines every loaded topic once. Errors of one topic are logged and tried again later."""
        broker = self._broker
        await self._subscriptions.round()
        topics: list[AnyTopic] = [*broker.topics.values(), *broker.nonpersistent.topics.values()]
        self._idle.keep_only(set(topics))
        self._unloadable.keep_only(set(topics))
        async for topic in in_slices(topics, TOPICS_PER_TURN):
            if has_clients(topic):
                self._idle.used(topic)
                self._unloadable.used(topic)
                continue
            await guarded(self._one(topic), f"{topic.name}: deleting or unloading an unused topic")

    async def _one(self, topic: AnyTopic) -> None:
        await self._look(topic)
        if isinstance(topic, Topic):
            await self._unload(topic)

    async def deletes_unused(self, name: TopicName) -> bool:
        """Whether a topic that is never used is deleted. Raises NamespaceNotFoundError."""
        return (await self._policy(name)).delete and not is_system(name)

    async def _policy(self, name: TopicName) -> InactivePolicy:
        policies = self._broker.policies
        own = await policies.topic_policies(name)
        return self._broker.config.inactive.under(own, await policies.namespace(name.namespace_name))

    async def _look(self, topic: AnyTopic) -> None:
        broker, name = self._broker, topic.name
        policy = await self._policy(name)
        if topic.closed or is_system(name) or not policy.delete or in_use(topic, policy.mode):
            self._idle.used(topic)
            return
        idle_ms = self._idle.idle_ms(topic, broker.clock.monotonic_ms())
        retention_ms = topic.retention_ms
        if idle_ms < policy.idle_s * 1000 or retention_ms is None or idle_ms < retention_ms:
            return
        # Loaded, so the deletion detaches its clients before it waits.
        await broker.delete_topic(name, force=True)
        _log.info("%s was unused for %d s and is deleted", name, idle_ms // 1000)
        if name.partition >= 0 and self._partitioned:
            await broker.partitioned.end_unused(name.base)

    def _is_offloaded_now(self, topic: Topic) -> bool:
        offloading = self._broker.offloading
        return offloading is not None and offloading.has_work(topic.log.offloading)

    async def _unload(self, topic: Topic) -> None:
        """Unloads a topic that has needed no memory for a while."""
        broker, name = self._broker, topic.name
        unload_s = broker.config.idle_topic_unload_s
        if not unload_s or is_system(name) or not may_go(topic) or self._is_offloaded_now(topic):
            self._unloadable.used(topic)
            return
        idle_ms = self._unloadable.idle_ms(topic, broker.clock.monotonic_ms())
        if idle_ms < unload_s * 1000 or broker.topics.get(str(name)) is not topic:
            return
        # Otherwise the time until its deletion, or that of a subscription, would stand still.
        goes = not topic.subscriptions and (await self._policy(name)).delete
        if not goes and not (topic.subscriptions and await self._subscriptions.expire(name)):
            _log.debug("%s was unused for %d s and is unloaded", name, idle_ms // 1000)
            # A client may have come while the policies were read.
            await broker.registry.unload(name, only_if=lambda current: current is topic and may_go(current))
