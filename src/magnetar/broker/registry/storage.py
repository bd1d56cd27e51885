"""The work of the registry's flights: opening and deleting the logs of topics."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from magnetar.base.names import TopicName
from magnetar.broker.errors import ServiceNotReadyError, TopicNotFoundError
from magnetar.broker.registry.names import topic_path
from magnetar.broker.registry.registry_rules import REGISTRY_RULES, RegistryRules
from magnetar.broker.rounds import guarded
from magnetar.broker.topic.topic import Topic
from magnetar.broker.topic.topic_resources import TopicResources
from magnetar.managedlog.errors import LogFencedError, LogNotFoundError
from magnetar.managedlog.log import ManagedLog

if TYPE_CHECKING:
    from magnetar.broker.policies.in_force import PoliciesInForce
    from magnetar.broker.ports import BrokerPort

_log = logging.getLogger("magnetar.broker")


class StoredTopics:
    """The topics of a broker, as storage has them. Called by flights, so once at a time for each name."""

    def __init__(
        self, broker: BrokerPort, in_force: PoliciesInForce, rules: RegistryRules = REGISTRY_RULES
    ) -> None:
        self._broker = broker
        self._in_force = in_force
        self._rules = rules

    async def load(self, name: TopicName, *, create: bool) -> Topic:
        """The topic's object; see `TopicRegistry.get`."""
        broker = self._broker
        await broker.check_name(name)
        if broker.owners is not None:
            await broker.owners.admit(name)
        log = await self._open(name) if await broker.logs.exists(name.log_name) else None
        if log is None:
            log = await self._make(name, create=create)
        resources = TopicResources(
            clock=broker.clock,
            alarms=broker.alarms,
            spawn=broker.tasks.spawn,
            outputs=broker.outputs,
            turns=broker.turns,
        )
        topic = self._rules.topic(name, log, resources, broker.disk)
        topic.limits.unacked_of_broker = broker.unacked
        topic.limits.stored = broker.stored.of(name.tenant)
        try:
            await topic.load()
            await self._broker.transactions.recover(topic)
            await self._in_force.give(topic)
            if broker.owners is not None:
                # Else it would serve clients for a moment in a bundle that was lost meanwhile.
                broker.owners.check_owned(name)
            if isinstance(log.error, LogFencedError):
                # Before the topic heard of its log: nothing would tell it, and it would serve what is past.
                raise ServiceNotReadyError(f"{name}: {log.error}; look it up again")
        except BaseException:
            # Otherwise the log would stay open, and report to an object that is not in use.
            if self._rules.closes_half_loaded():
                await guarded(topic.close(), f"{name}: closing what could not be loaded")
            raise
        return topic

    async def _open(self, name: TopicName) -> ManagedLog:
        return await self._broker.logs.open(name.log_name, await self._in_force.copies(name))

    async def _make(self, name: TopicName, *, create: bool) -> ManagedLog:
        """Opens the log of a topic that has none yet, if it may have one."""
        broker = self._broker
        if await self._is_partition(name):
            return await self._make_held(name, create=create)
        if not (create and await broker.may_create(name)):
            raise TopicNotFoundError(f"Topic {name} not found")
        await broker.topic_turn(name.tenant)
        async with broker.topic_quota.take(name.namespace_name):
            return await self._make_held(name, create=create)

    async def _make_held(self, name: TopicName, *, create: bool) -> ManagedLog:
        broker = self._broker
        async with broker.names.making(topic_path(name)):
            # Checked again: its namespace may have been deleted, and a partitioned topic of that name
            # created.
            await broker.check_name(name)
            is_new = not await self._is_partition(name)
            if broker.owners is not None and not is_new:
                await broker.policies.check_kept(name)
            if is_new and not (create and await broker.may_create(name)):
                raise TopicNotFoundError(f"Topic {name} not found")
            topic = await self._open(name)
            if is_new:
                _log.info("topic created by its first use: %s", name)
            return topic

    async def _is_partition(self, name: TopicName) -> bool:
        """Whether it exists as a partition: from the day its topic has that many."""
        return 0 <= name.partition < await self._broker.policies.partitions(name)

    async def delete(self, name: TopicName, topic: Topic | None) -> None:
        """Deletes the topic's log, with what else is kept of it; see `TopicRegistry.delete`."""
        broker = self._broker
        await broker.check_name(name)
        if topic is not None:
            # An error does not keep the data: the log is closed all the same.
            await guarded(topic.log.close(), f"{name}: closing before its deletion")
        if broker.owners is not None:
            # Only the owner ends a log: another broker would go on acknowledging, into ledgers of no list.
            await broker.owners.admit(name)

        async def confirmed() -> None:
            if broker.owners is not None:
                await broker.owners.confirm(name)

        try:
            await broker.logs.delete(name.log_name, confirmed)
        except LogNotFoundError as error:
            if not await self._is_partition(name):
                raise TopicNotFoundError(f"Topic {name} not found") from error
        await broker.transactions.forget_topic(name.log_name)
        if name.partition < 0:
            # With the data and before the name is free: a later topic of that name keeps its own.
            await broker.schemas.delete(name)
            await broker.policies.forget_topic(name)
