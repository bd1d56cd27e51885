"""Opens a non-persistent topic that is not loaded, within the limits of its namespace."""

from __future__ import annotations

from typing import TYPE_CHECKING

from magnetar.base.names import TopicName
from magnetar.broker.errors import TopicNotFoundError
from magnetar.broker.nonpersistent.nonpersistent_topic import NonPersistentTopic
from magnetar.broker.registry.names import topic_path

if TYPE_CHECKING:
    from magnetar.broker.ports import BrokerPort


async def opened(broker: BrokerPort, name: TopicName, *, create: bool) -> NonPersistentTopic:
    """Loads the topic, which is not loaded: created when `create` is set and policies allow it.

    Raises TopicNotFoundError, PreconditionFailedError beyond limits.
    """
    broker.registry.check_serving()
    # Concurrent requests count once for the limits.
    return await broker.nonpersistent.flights.run((str(name), create), lambda: _opened(broker, name, create))


async def _opened(broker: BrokerPort, name: TopicName, create: bool) -> NonPersistentTopic:
    await broker.check_name(name)
    if broker.owners is not None:
        await broker.owners.admit(name)
    # A partition exists, and is counted, from the day its topic has that many.
    if await broker.exists(name):
        return await _held(broker, name, create)
    if not (create and await broker.may_create(name)):
        raise TopicNotFoundError(f"Topic {name} not found")
    await broker.topic_turn(name.tenant)
    async with broker.topic_quota.take(name.namespace_name):
        return await _held(broker, name, create)


async def _held(broker: BrokerPort, name: TopicName, create: bool) -> NonPersistentTopic:
    # Its namespace, or a partitioned topic that it is part of, may be going.
    async with broker.names.making(topic_path(name)):
        await broker.check_name(name)
        if not await broker.exists(name) and not (create and await broker.may_create(name)):
            raise TopicNotFoundError(f"Topic {name} not found")
        if broker.owners is not None and name.partition >= 0:
            await broker.policies.check_kept(name)
        topic = await broker.nonpersistent.open(name)
        if broker.owners is not None and not broker.owners.has(name):
            # In the turn in which it was made: no client has found it yet.
            broker.nonpersistent.remove(topic)
            broker.owners.check_owned(name)
        return topic
