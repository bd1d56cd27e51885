"""Examines the topics that are not loaded, in rounds."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Protocol

from magnetar.base.errors import MagnetarError
from magnetar.base.names import NamespaceName, TopicName
from magnetar.broker.compaction.named import COMPACTION_CURSOR
from magnetar.broker.rounds import guarded
from magnetar.broker.system_topics import is_system
from magnetar.broker.topic.topic import DEDUP_CURSOR
from magnetar.broker.unloaded.changed_namespaces import ChangedNamespaces
from magnetar.managedlog.peeking import StoredSummary
from magnetar.runtime.tasks import SingleFlight, pause
from magnetar.tiered.policy import NO_POLICY, OffloadPolicy, has_work

if TYPE_CHECKING:
    from magnetar.broker.ports import BrokerPort

_log = logging.getLogger("magnetar.broker.unloaded")

INTERVAL_S: Final = 60.0
"""Between two rounds, from the end of the one to the beginning of the other."""
TOPICS_PER_TURN: Final = 20
"""Topics examined in one go: about 2 ms."""
NAMES_PER_TURN: Final = 2_000
"""Names that are only looked at in one go: less than a millisecond."""
PAUSE_S: Final = 0.01
"""Then others have the event loop: 100,000 topics take a minute, and a sixth of one core, the first time."""
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


class TopicShare(Protocol):
    """The topics of a namespace that this broker looks after; another share of it compares unequal."""

    @property
    def is_empty(self) -> bool: ...

    def has(self, topic: TopicName) -> bool: ...


@dataclass(slots=True)
class _Examined:
    """One namespace, as it was examined last."""

    share: TopicShare | None
    sums: Sums = field(default_factory=Sums)
    topics: dict[str, StoredSummary] = field(default_factory=dict)
    behind: dict[str, int] = field(default_factory=dict)
    """Both as in `Seen`."""
    lasts: bool = True
    """Whether it would be found the same until the store reports a change."""


class UnloadedTopics:
    """The unloaded topics of one broker.

    A namespace is examined again when the store reports a change below it, when topics of it are loaded, when
    some may have to be offloaded, or when the broker's share of it is another one.
    """

    share_of: Callable[[NamespaceName], Awaitable[TopicShare]] | None = None
    """What of a namespace this one of several brokers looks after; None: everything."""

    def __init__(self, broker: BrokerPort) -> None:
        self._broker = broker
        self._woken = 0
        self._looked = 0
        self._examined: dict[str, _Examined] = {}
        """By namespace."""
        self._changed = ChangedNamespaces(broker.store)
        self._rounds: SingleFlight[None] = SingleFlight()
        """The first one of very many topics takes longer than the time between two."""
        self.seen = Seen()
        """By the last round that ended."""

    def close(self) -> None:
        """Ends what the store tells it."""
        self._changed.close()

    async def begin(self) -> None:
        """The first round, at the start."""
        await guarded(self.round(), "looking at topics that are not loaded")

    async def round(self) -> None:
        """Examines every namespace that may have changed, or joins a round under way. A topic that cannot be
        examined is logged and left out."""
        await self._rounds.run("round", self._round)

    async def _round(self) -> None:
        broker, seen = self._broker, Seen()
        self._woken = self._looked = 0
        await self._note_loaded()
        if self._changed.take_all():
            self._examined.clear()
        kept = 0
        for tenant in await broker.policies.tenants():
            for namespace in map(NamespaceName.parse, await broker.policies.namespaces(tenant)):
                share = None if self.share_of is None else await self.share_of(namespace)
                if share is not None:
                    self._changed.follow_only(str(namespace), wanted=not share.is_empty)
                    if share.is_empty:
                        seen.sums[str(namespace)] = Sums()
                        continue
                if self._changed.take(str(namespace)):
                    self._examined.pop(str(namespace), None)
                known = self._examined.get(str(namespace))
                if known is None or not known.lasts or known.share != share:
                    known = _Examined(share)
                    await self._examine(namespace, known, KEPT_MAX - kept)
                    self._examined[str(namespace)] = known
                kept += len(known.topics)
                seen.sums[str(namespace)] = known.sums
                seen.topics |= known.topics
                seen.behind |= known.behind
        seen.at_ms = broker.clock.now_ms()
        self._changed.keep(seen.sums.keys())
        for gone in self._examined.keys() - seen.sums.keys():
            del self._examined[gone]
        self.seen = seen

    async def _note_loaded(self) -> None:
        """Loaded topics are not counted, and the store need not report that one was loaded."""
        for number, name in enumerate(list(self._broker.topics), 1):
            self._changed.add(str(TopicName.parse(name).namespace_name))
            if number % NAMES_PER_TURN == 0:
                await pause(PAUSE_S)

    async def _examine(self, namespace: NamespaceName, into: _Examined, room: int) -> None:
        """`room`: how many topics may be remembered one by one."""
        for number, log_name in enumerate(await self._broker.logs.names(str(namespace)), 1):
            name = TopicName.from_log_name(log_name)
            if into.share is not None and not into.share.has(name):
                if number % NAMES_PER_TURN == 0:
                    await pause(PAUSE_S)
                continue
            self._looked += 1
            if self._looked % TOPICS_PER_TURN == 0:
                await pause(PAUSE_S)
            try:
                await self._look(name, into, room)
            except MagnetarError as error:
                # The numbers of one topic are left out; the next round reads them again.
                _log.warning("%s cannot be checked: %s", log_name, error)
                into.lasts = False

    async def _look(self, name: TopicName, into: _Examined, room: int) -> None:
        broker, sums = self._broker, into.sums
        if str(name) in broker.topics:
            into.lasts = False
            return
        found = await broker.logs.peek(name.log_name, _HIDDEN)
        if found is None:
            return
        sums.topics += 1
        sums.backlog_entries += found.backlog_entries
        sums.size_bytes += found.size_bytes
        sums.inexact += not (found.exact and all(cursor.exact for cursor in found.cursors))
        if (found.entries or found.backlog_entries) and len(into.topics) < room:
            into.topics[str(name)] = found
        if broker.offloading is None or not (found.to_offload or found.in_both):
            return
        # Time alone may make it due.
        into.lasts = False
        policy = await self._policy(name)
        if policy.automatic and str(name) in into.topics:
            into.behind[str(name)] = found.behind_since_ms
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
