"""Examines the topics that are not loaded, in rounds."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from magnetar.base.errors import MagnetarError
from magnetar.base.names import NamespaceName, TopicName
from magnetar.broker.compaction.named import COMPACTION_CURSOR
from magnetar.broker.rounds import guarded
from magnetar.broker.system_topics import is_system
from magnetar.broker.topic.topic import DEDUP_CURSOR
from magnetar.managedlog.peeking import StoredSummary
from magnetar.runtime.tasks import pause
from magnetar.tiered.policy import NO_POLICY, OffloadPolicy, has_work

if TYPE_CHECKING:
    from magnetar.broker.ports import BrokerPort

_log = logging.getLogger("magnetar.broker.unloaded")

INTERVAL_S: Final = 60.0
"""Between two rounds, from the end of the one to the beginning of the other."""
TOPICS_PER_TURN: Final = 20
"""Topics examined in one go: about 2 ms."""
PAUSE_S: Final = 0.01
"""Then others have the event loop: 100,000 topics take a minute, and a sixth of one core."""
KEPT_MAX: Final = 10_000
"""Topics that are remembered one by one: some 500 bytes each."""
WOKEN_MAX: Final = 100
"""Topics that one round loads because they wait for being offloaded."""
_HIDDEN: Final = frozenset({DEDUP_CURSOR, COMPACTION_CURSOR})


@dataclass(slots=True)
class Sums:
    """Sums over one namespace's topics that are not loaded."""

    topics: int = 0
    backlog_entries: int = 0
    """Sum of each topic's largest backlog of a subscription."""
    size_bytes: int = 0
    inexact: int = 0
    """Topics of which the last ledger or a cursor is known as of an earlier time only."""


@dataclass(slots=True)
class Seen:
    """The result of a round."""

    topics: dict[str, StoredSummary] = field(default_factory=dict)
    """Topics with something to tell, by full name; of very many the first."""
    behind: dict[str, int] = field(default_factory=dict)
    """By automatically offloaded topic that is not done: lower bound of the time of the oldest message that
    is not in history, Unix ms; 0: all are, or it is unknown."""
    sums: dict[str, Sums] = field(default_factory=dict)
    """By namespace."""
    at_ms: int = 0
    """When the round ended, Unix ms; 0: none has."""


class UnloadedTopics:
    """The unloaded topics of one broker."""

    def __init__(self, broker: BrokerPort) -> None:
        self._broker = broker
        self._woken = 0
        self.seen = Seen()
        """By the last round that ended."""

    async def begin(self) -> None:
        """The first round, at the start."""
        await guarded(self.round(), "looking at topics that are not loaded")

    async def round(self) -> None:
        """Examines every name once. A topic that cannot be examined is logged and left out."""
        broker, seen = self._broker, Seen()
        self._woken = 0
        looked = 0
        for tenant in await broker.policies.tenants():
            for namespace in map(NamespaceName.parse, await broker.policies.namespaces(tenant)):
                sums = seen.sums.setdefault(str(namespace), Sums())
                for log_name in await broker.logs.names(str(namespace)):
                    looked += 1
                    if looked % TOPICS_PER_TURN == 0:
                        await pause(PAUSE_S)
                    try:
                        await self._look(TopicName.from_log_name(log_name), seen, sums)
                    except MagnetarError as error:
                        # The numbers of one topic are left out; the next round reads them again.
                        _log.warning("%s cannot be checked: %s", log_name, error)
        seen.at_ms = broker.clock.now_ms()
        self.seen = seen

    async def _look(self, name: TopicName, seen: Seen, sums: Sums) -> None:
        broker = self._broker
        if str(name) in broker.topics:
            return
        found = await broker.logs.peek(name.log_name, _HIDDEN)
        if found is None:
            return
        sums.topics += 1
        sums.backlog_entries += found.backlog_entries
        sums.size_bytes += found.size_bytes
        sums.inexact += not (found.exact and all(cursor.exact for cursor in found.cursors))
        if (found.entries or found.backlog_entries) and len(seen.topics) < KEPT_MAX:
            seen.topics[str(name)] = found
        if not (found.to_offload or found.in_both):
            return
        policy = await self._policy(name)
        if policy.automatic and str(name) in seen.topics:
            seen.behind[str(name)] = found.behind_since_ms
        if self._woken < WOKEN_MAX and await self._waits_for_offloading(name, found, policy):
            self._woken += 1
            # A loaded topic is offloaded as its policy says, and stays loaded until that is done.
            await broker.topic(name, create=False)

    async def _policy(self, name: TopicName) -> OffloadPolicy:
        broker = self._broker
        if broker.offloading is None or is_system(name):
            return NO_POLICY
        own = await broker.policies.topic_policies(name)
        return broker.offloading.policy_of(own, await broker.policies.namespace(name.namespace_name))

    async def _waits_for_offloading(
        self, name: TopicName, found: StoredSummary, policy: OffloadPolicy
    ) -> bool:
        """Whether something of the topic is to be copied, or to leave the bookies, by its policy."""
        if policy.automatic and not found.exact:
            # A crash left its last ledger without an end, which loading the topic finds.
            return True
        # A threshold that is not reached would else load it in each round, to be unloaded again.
        sealed = await self._broker.logs.peek_sealed(name.log_name)
        return has_work(sealed, policy, self._broker.clock.settled_ms())
