"""Puts the policies in force on loaded topics: when they are loaded, and whenever a document changed.

The periodic effects of limits (expiry, quotas, trimming, compaction) happen once at that moment too: an
operator who lowers a TTL sees the effect at once, not at the next round.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from magnetar.base.names import TopicName
from magnetar.broker.config import BrokerConfig
from magnetar.broker.dedup.deduplication import Deduplication
from magnetar.broker.dynamic import overridden
from magnetar.broker.handlers import permission, topic_lists
from magnetar.broker.limits import enforcement
from magnetar.broker.limits.groups import GROUP_POLICY, ResourceGroups
from magnetar.broker.limits.limits import Limits, LimitsInForce
from magnetar.broker.policies.policies import Policies
from magnetar.broker.policies.policy_changes import scope_of
from magnetar.broker.policies.topic_settings import TopicSettings, copies_in_force
from magnetar.broker.rounds import guarded
from magnetar.broker.topic.topic import DEDUP_CURSOR, Topic
from magnetar.ledger.api import Copies
from magnetar.metadata.documents import DamagedDocumentError
from magnetar.runtime.tasks import Rounds, yield_loop
from magnetar.runtime.turns import Turns

if TYPE_CHECKING:
    from magnetar.broker.ports import BrokerPort

_log = logging.getLogger("magnetar.broker")

_TOPICS_PER_TURN: Final = 50
"""Topics that are given their policies before the event loop serves others: about a millisecond."""
_NAMES_PER_TURN: Final = 10_000
"""Topics whose names are compared before other tasks run: about two milliseconds."""


class PoliciesInForce:
    """The policies of a broker's topics, kept up to date."""

    def __init__(self, broker: BrokerPort) -> None:
        self._broker = broker
        self._told = broker.config
        self._limits = LimitsInForce(broker.config.limits, broker.config.cluster)
        self._groups = ResourceGroups(broker.clock)
        self._changed: dict[str, int] = {}
        """Documents whose change is not in force yet, and the number of the change."""
        self._changes = 0
        self._turns = Turns()
        self._rounds = Rounds(self.apply, broker.tasks.spawn)

    async def configure(self) -> None:
        """Applies the settings that can change while brokers run."""
        config: BrokerConfig = overridden(self._told, await self._changed_settings())
        self._broker.config = config
        self._broker.logs.holes.skip_all = config.skip_lost
        self._limits = LimitsInForce(config.limits, config.cluster)

    async def _changed_settings(self) -> Policies:
        try:
            return await self._broker.policies.configuration()
        except DamagedDocumentError as error:
            # Those of the file are in force: the broker is needed to set the others again.
            _log.error("settings that were changed while brokers ran are not in force: %s", error)
            return {}

    def changed(self, path: str) -> None:
        """A document changed: the topics that it concerns are given their policies, soon."""
        self._changes += 1
        self._changed[path] = self._changes
        self._rounds.ask()

    async def apply(self) -> None:
        """Puts in force all changes before this call."""
        broker = self._broker
        # A path is removed when it is done, not before: a concurrent caller applies it too, and so returns
        # with it done.
        changed = dict(self._changed)
        scope = scope_of(changed)
        if scope.everything:
            await self.configure()
        if changed:
            await permission.recheck(broker)
            await topic_lists.recheck(broker)
        if not scope.nothing:
            done = 0
            for number, topic in enumerate(list(broker.topics.values()), 1):
                if scope.covers(topic.name):
                    await guarded(self._give_changed(topic), f"{topic.name}: applying policies")
                    done += 1
                    if done % _TOPICS_PER_TURN == 0:
                        await yield_loop()
                if number % _NAMES_PER_TURN == 0:
                    await yield_loop()
            await guarded(broker.nonpersistent.apply_limits(scope.covers), "applying policies")
        for path, number in changed.items():
            if self._changed.get(path) == number:
                del self._changed[path]

    def of_namespace(self, namespace: Policies) -> Limits:
        """The limits of a topic without policies of its own, except for its resource group."""
        return self._limits.of({}, namespace)

    async def limits_of(self, name: TopicName) -> Limits:
        """The limits in force on a topic. Raises NamespaceNotFoundError."""
        broker = self._broker
        own = await broker.policies.topic_policies(name)
        return await self._limits_under(own, await broker.policies.namespace(name.namespace_name))

    async def _limits_under(self, own: Policies, namespace: Policies) -> Limits:
        limits = self._limits.of(own, namespace)
        name = namespace.get(GROUP_POLICY)
        document = await self._broker.policies.resource_group(name) if name else None
        return replace(limits, group=self._groups.of(name, document)) if name and document else limits

    async def _give_changed(self, topic: Topic) -> None:
        before, retained = topic.limits.limits, topic.log.retention
        await self.give(topic)
        if topic.limits.limits != before and topic.limits.works_alone:
            await enforcement.enforce(topic, topic.limits.limits, self._broker.clock.settled_ms())
        if topic.log.retention != retained:
            await topic.log.trim()
        await topic.compaction.start_if_due()

    async def copies(self, name: TopicName) -> Copies | None:
        """How many bookies hold the ledgers of a topic that is loaded now. Raises NamespaceNotFoundError."""
        broker = self._broker
        told = broker.config.copies
        if told is None:
            return None
        own = await broker.policies.topic_policies(name)
        return copies_in_force(told, own, await broker.policies.namespace(name.namespace_name))

    async def give(self, topic: Topic) -> None:
        """Gives the topic the policies that are in force now. Raises MagnetarError."""
        # Once at a time for each topic. Rounds, administrators and a load do it at any time: of two at once
        # the one that read the documents first might be the last to put them in force, and both would load
        # deduplication, of which the second knows nothing of what the first admitted.
        async with self._turns.hold((topic,)):
            await self._give(topic)

    async def _give(self, topic: Topic) -> None:
        broker = self._broker
        own = await broker.policies.topic_policies(topic.name)
        namespace = await broker.policies.namespace(topic.name.namespace_name)
        settings = TopicSettings.of(broker.config, own, namespace)
        topic.log.retention = settings.retention
        if broker.config.copies is not None:
            topic.log.set_copies(settings.copies)
        topic.compaction.job.apply(broker.config, own, namespace)
        if broker.offloading is not None:
            broker.offloading.apply(topic.log.offloading, own, namespace)
        topic.limits.apply(await self._limits_under(own, namespace), topic, broker.alarms)
        await self._give_deduplication(topic, settings)

    async def _give_deduplication(self, topic: Topic, settings: TopicSettings) -> None:
        if topic.dedup is not None:
            topic.dedup.limits = settings.dedup_limits
        # `give` alone sets it, and holds the topic.
        if settings.deduplicates and topic.dedup is None:
            topic.dedup = await Deduplication.load(
                topic.log,
                DEDUP_CURSOR,
                attached=topic.producers,
                clock=self._broker.clock,
                limits=settings.dedup_limits,
            )
        elif not settings.deduplicates and topic.dedup is not None:
            topic.dedup = None
            await topic.log.delete_cursor(DEDUP_CURSOR)
