"""Partitioned topics: how many partitions, from creation to deletion.

A partition has a log from its first use on. A deletion must not meet a client that uses a partition in
between: so while the topic is being deleted, none of its partitions is created.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Protocol

from magnetar.base.names import TopicName
from magnetar.broker.errors import ConflictError, TopicNotFoundError
from magnetar.broker.registry.names import topic_path
from magnetar.broker.rounds import guarded
from magnetar.runtime.tasks import SingleFlight

if TYPE_CHECKING:
    from magnetar.broker.ports import BrokerPort


class OtherOwners(Protocol):
    """The partitions that other brokers serve, for the deletion of their topic."""

    def is_here(self, name: TopicName) -> bool:
        """Whether this broker serves the partition."""

    async def check_deletable(self, names: list[TopicName]) -> None:
        """Raises PreconditionFailedError while one has clients, MagnetarError when a broker does not say."""

    async def delete(self, names: list[TopicName], *, force: bool) -> None:
        """Has their brokers delete them. Raises MagnetarError when one of them did not."""


class PartitionedTopics:
    """The partitioned topics of a broker."""

    def __init__(self, broker: BrokerPort) -> None:
        self._broker = broker
        self._deletions: SingleFlight[None] = SingleFlight()

    async def create(
        self, name: TopicName, partitions: int, properties: Mapping[str, str] | None = None
    ) -> None:
        """Raises ConflictError when there is a topic of that name, PreconditionFailedError beyond limits."""
        broker = self._broker
        await broker.topic_turn(name.tenant)
        async with (
            broker.topic_quota.take(name.namespace_name, partitions),
            broker.names.making(topic_path(name)),
        ):
            await broker.check_name(name)
            if await broker.exists(name):
                raise ConflictError("This topic already exists")
            await broker.policies.create_partitioned(name, partitions, properties)

    async def grow(self, name: TopicName, partitions: int) -> None:
        """Raises TopicNotFoundError, ConflictError when it would shrink."""
        async with self._broker.names.making(topic_path(name)):
            await self._broker.policies.grow_partitioned(name, partitions)

    async def delete(self, name: TopicName, *, force: bool, others: OtherOwners | None = None) -> None:
        """Deletes all partitions with their data, then the topic.

        Raises TopicNotFoundError, and PreconditionFailedError while it is in use, unless `force`;
        ServiceNotReadyError, before anything is deleted, when another broker serves one of its partitions and
        there are no `others`; what these raise: then the topic stays, with the partitions that are left, and
        can be deleted again. Concurrent calls share one deletion and its result.
        """
        # A cancelled caller leaves the deletion running.
        await self._deletions.run((str(name), force), lambda: self._delete(name, others, force=force))

    async def _delete(self, name: TopicName, others: OtherOwners | None, *, force: bool) -> None:
        broker = self._broker
        async with broker.names.ending(topic_path(name)):
            count = await broker.policies.partitions(name)
            if not count:
                raise TopicNotFoundError(f"{name} is not a partitioned topic")
            every = [name.with_partition(number) for number in range(count)]
            here = every if others is None else [part for part in every if others.is_here(part)]
            if broker.owners is not None:
                # Unused ones too: another broker could be making their logs.
                await broker.owners.require(here)
            parts = [part for part in here if await self._is_there(part)]
            if not force:
                for part in parts:
                    (await broker.any_topic(part, create=False)).check_deletable()
            kept = frozenset(here)
            elsewhere = [part for part in every if part not in kept]
            if others is not None and not force:
                await others.check_deletable(elsewhere)
            async with self._marked(name, mark=others is not None):
                if others is not None:
                    await others.delete(elsewhere, force=force)
                for part in parts:
                    await broker.delete_topic(part, force=force)
                if broker.owners is not None:
                    await broker.owners.require(here)
                await self._forget(name)

    @asynccontextmanager
    async def _marked(self, name: TopicName, *, mark: bool) -> AsyncIterator[None]:
        """Keeps other brokers from making partitions meanwhile: the clients of one that they have deleted
        would have them make it again."""
        if not mark:
            yield
            return
        policies = self._broker.policies
        await policies.mark_deleted(name, deleted=True)
        try:
            yield
        except BaseException:
            await guarded(policies.mark_deleted(name, deleted=False), f"{name}: being usable again")
            raise

    async def end_unused(self, name: TopicName) -> None:
        """Deletes a partitioned topic of which no partition is there any more."""
        broker = self._broker
        async with broker.names.ending(topic_path(name)):
            count = await broker.policies.partitions(name)
            for part in map(name.with_partition, range(count)):
                if await self._may_be_elsewhere(part) or await self._is_there(part):
                    return
            if count:
                await self._forget(name)

    async def _forget(self, name: TopicName) -> None:
        broker = self._broker
        await broker.policies.delete_partitioned(name)
        await broker.schemas.delete(name)
        await broker.policies.forget_topic(name)

    async def _may_be_elsewhere(self, part: TopicName) -> bool:
        """Whether another broker may serve the partition without a trace in the metadata store."""
        owners = self._broker.owners
        if part.persistent or owners is None:
            return False
        return (await owners.locate(part, authoritative=True)).urls is not None

    async def _is_there(self, part: TopicName) -> bool:
        """Whether the partition was ever used."""
        if self._broker.loaded(part) is not None:
            return True
        return part.persistent and await self._broker.logs.exists(part.log_name)
