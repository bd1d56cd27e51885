"""The broker: which topics are loaded, what exists, and the budgets that all connections share."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from operator import attrgetter
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from magnetar.auth.authentication import Authentication
from magnetar.base.clock import Clock
from magnetar.base.levels import levels_of
from magnetar.base.names import NON_PERSISTENT, PERSISTENT, NamespaceName, TopicName
from magnetar.broker import lookup
from magnetar.broker.clock_watch import ClockWatch
from magnetar.broker.config import BrokerConfig as BrokerConfig
from magnetar.broker.errors import (
    ConflictError,
    NotAllowedError,
    TopicNotFoundError,
)
from magnetar.broker.guard import Guard
from magnetar.broker.handlers import renewals
from magnetar.broker.inactive.inactive_topics import TOPICS_PER_TURN, InactiveTopics
from magnetar.broker.limits import enforcement
from magnetar.broker.limits.role_quotas import RoleQuotas
from magnetar.broker.limits.tenants import STORED_S, Connections, StoredMarks, TopicsMade
from magnetar.broker.listeners import Listeners
from magnetar.broker.nonpersistent.nonpersistent_topics import NonPersistentTopics
from magnetar.broker.nonpersistent.opening import opened
from magnetar.broker.policies.creation import CreationRules, check_number
from magnetar.broker.policies.in_force import PoliciesInForce
from magnetar.broker.policies.policies import PolicyStore
from magnetar.broker.registry.names import Names, TopicQuota, topic_path
from magnetar.broker.registry.partitioned import PartitionedTopics
from magnetar.broker.registry.registry import TopicRegistry
from magnetar.broker.registry.registry_rules import REGISTRY_RULES, RegistryRules
from magnetar.broker.registry.storage import StoredTopics
from magnetar.broker.rounds import guarded
from magnetar.broker.session.command_turns import CommandTurns
from magnetar.broker.session.farewells import Farewells
from magnetar.broker.session.greetings import LOOK_S, Greetings
from magnetar.broker.session.outputs import OutputBudget
from magnetar.broker.topic.any_topic import AnyTopic
from magnetar.broker.topic.disk_mark import DiskMark
from magnetar.broker.topic.intake import TICK_S, Intake
from magnetar.broker.topic.topic import Topic
from magnetar.broker.transactions.transactions import Transactions
from magnetar.broker.unloaded.unloaded_topics import INTERVAL_S as UNLOADED_INTERVAL_S
from magnetar.broker.unloaded.unloaded_topics import UnloadedTopics
from magnetar.broker.watchers.topic_watchers import TopicWatchers
from magnetar.managedlog.errors import LogExistsError
from magnetar.managedlog.logs import ManagedLogs
from magnetar.metadata import keys
from magnetar.metadata.store import MetadataStore
from magnetar.observability.metrics import Collector
from magnetar.runtime.alarms import Alarms
from magnetar.runtime.tasks import TaskGroup, in_slices, pause, soon, yield_loop
from magnetar.schemas.registry import registry_of
from magnetar.tiered.offloading import Offloading

if TYPE_CHECKING:
    from magnetar.broker.ownership.owners import Owners
    from magnetar.broker.ports import SessionPort
    from magnetar.broker.siblings.siblings import Siblings
    from magnetar.broker.staging import PointsInTime
    from magnetar.functions.service import Functions
    from magnetar.lake.tables import LakeTables
    from magnetar.metadata.bookkeeper.registry import ListBookies

_log = logging.getLogger("magnetar.broker")

_KEEP_ALIVE_S: Final = 30.0
"""Seconds of silence after which a peer is pinged; after as many again it is dropped (Pulsar's interval)."""
_MAINTENANCE_S: Final = 60.0
"""Between two rounds of retention and deduplication snapshots."""
_NAMES_PER_TURN: Final = 500
"""Names of a list that are read before the event loop serves others: about a millisecond."""


class Broker:
    """One event loop's worth of topics."""

    owners: Owners | None = None
    """Which of several brokers serves which topics; None: this one serves all. Set before `start`."""
    siblings: Siblings | None = None
    """Processes that share ports with this one; None: there are none."""
    registry_rules: RegistryRules = REGISTRY_RULES
    """What waits for what when topics are loaded, unloaded and deleted."""
    functions: Callable[[], Awaitable[Functions]] | None = None
    """Opens what is stored of functions, the first time; None: there are none here."""

    def __init__(
        self,
        *,
        config: BrokerConfig,
        store: MetadataStore,
        logs: ManagedLogs,
        clock: Clock,
        authentication: Authentication | None = None,
        superuser_roles: frozenset[str] = frozenset(),
        offloading: Offloading | None = None,
    ) -> None:
        """Without `authentication` all may do everything; without `offloading` no ledger is offloaded."""
        self.config, self.clock, self.offloading = config, clock, offloading
        self.store, self.logs, self.policies = store, logs, PolicyStore(store, config.cluster)
        self.schemas = registry_of(store, logs.ledgers, clock, for_pulsar=config.adopted)
        self.bookies: ListBookies | None = None
        """Lists the bookies that hold messages; None: this process does."""
        self.lake: LakeTables | None = None
        """Tables over offloaded ledgers; None: there are none."""
        self.points_in_time: PointsInTime | None = None
        """For backups; None: the data is not all in one folder here."""
        self.listeners, self.broker_id = Listeners(), ""
        """`host:port` of the admin API, by which this broker is known; set by `start` if not before."""
        self.guard = None if authentication is None else self._guarded_by(authentication, superuser_roles)
        self.tasks, self.alarms = TaskGroup("broker"), Alarms(clock)
        """Calls at given times; one timer for all topics."""
        self._in_force = PoliciesInForce(self)
        storage = StoredTopics(self, self._in_force, self.registry_rules)
        self.registry = TopicRegistry(storage, clock, rules=self.registry_rules)
        self.topics = self.registry.topics
        """Persistent topics that are there, by full name."""
        self.names, self.topic_quota = Names(), TopicQuota(self._topics_max, self._topics_in)
        self.nonpersistent = NonPersistentTopics(
            clock, self.tasks.spawn, self.alarms, self._in_force.limits_of
        )
        self.partitioned, self.unloaded = PartitionedTopics(self), UnloadedTopics(self)
        self.transactions, self.inactive = Transactions(self), InactiveTopics(self)
        self.watchers = TopicWatchers(
            store, lambda namespace: lookup.visible_topics(self, namespace), self.tasks.spawn
        )
        self.disk = DiskMark(config.disk_full_percent, config.disk_resume_percent)
        self.turns = CommandTurns(soon, clock.monotonic_ms)
        self.quotas = RoleQuotas(config.tenants, clock.monotonic_ms)
        self.greetings, self.farewells = Greetings(config.connect_timeout_s), Farewells(soon)
        self.collectors: list[Collector] = [self.greetings.collect_metrics, self.turns.budget.collect_metrics]
        """Collectors of `/metrics` of rooms below the broker."""
        self.sessions: set[SessionPort] = set()
        self.connections, self._made = Connections(config.tenants), TopicsMade(config.tenants, clock)
        self.started_ms, self.clock_watch, self._left = clock.now_ms(), ClockWatch(clock), 0
        self.intake, self._name_prefix = Intake(config.in_flight_bytes_max), ""
        self.outputs: OutputBudget = OutputBudget(
            config.output_bytes_max,
            self.sessions,
            lambda ms, look: self.alarms.after(self.outputs, ms, look),
        )
        self.unacked, self.stored, self._names = config.tenants.unacked(), StoredMarks(), 0
        self.policies.on_change(self._in_force.changed)

    def _guarded_by(self, authentication: Authentication, superuser_roles: frozenset[str]) -> Guard:
        return Guard(
            authentication,
            superuser_roles=superuser_roles,
            policies=self.policies,
            clock=self.clock,
            authorization=self.config.authorization,
            metrics_roles=self.config.metrics_roles,
            tenant_rates=self.config.tenant_rates,
        )

    def credentials_changed(self, authentication: Authentication) -> None:
        """The credentials changed; disconnects clients whose credentials are not valid any more."""
        assert self.guard is not None, "it was there from the start or never"
        self.guard.change(authentication)
        self.tasks.spawn(renewals.check_all(self))

    # -- life cycle --------------------------------------------------------------------------------

    async def start(self, broker_url: str, http_url: str) -> None:
        """Makes what a new cluster starts with and begins the periodic work."""
        stat = await self.store.put(f"{keys.PRODUCER_NAME_COUNTER}/start-", b"", sequential=True)
        self._name_prefix = f"{self.config.cluster}-{int(stat.path.rpartition('-')[2])}"
        self.broker_id = self.broker_id or urlsplit(http_url).netloc
        if not self.config.adopted:
            await self.policies.bootstrap(broker_url, http_url)
        await self._in_force.configure()
        await self.transactions.start()
        if self.owners is not None:
            await self.owners.begin()
        self.tasks.every(TICK_S, self._tick)
        self.tasks.every(LOOK_S, self._look_at_greetings)
        self.tasks.every(_KEEP_ALIVE_S, self._keep_alive)
        self.tasks.every(_MAINTENANCE_S, self.maintain)
        self.tasks.every(self.config.compaction_interval_s, self._compact_due)
        self.tasks.every(self.config.inactive_interval_s, self.inactive.round)
        self.tasks.spawn(self.unloaded.begin())
        self.tasks.every(UNLOADED_INTERVAL_S, self.unloaded.round)
        self.tasks.every(self.config.limits_interval_s, self.enforce_limits)
        self.tasks.every(STORED_S, self._look_at_stored)
        if self.guard is not None:
            self.tasks.every(self.guard.authentication.renewal_check_s, lambda: renewals.check_all(self))

    @property
    def draining(self) -> bool:
        """Whether it refuses new work."""
        return self.registry.draining

    @property
    def ended(self) -> int:
        """Connections and topics that have ended since the start."""
        return self._left + self.registry.ended

    async def drain(self) -> None:
        """Refuses new work, detaches clients, makes all accepted messages durable."""
        if self.owners is not None:
            await self.owners.drain()
        self.registry.draining = True
        self.nonpersistent.close()
        await self.registry.unload_all()

    async def close(self) -> None:
        """Ends background work and drops every connection."""
        self.policies.close()
        self.schemas.close()
        self.unloaded.close()
        self.alarms.close()
        if self.owners is not None:
            await self.owners.close()
        await self.registry.close()
        await self.tasks.close()
        for session in list(self.sessions):
            session.close("the broker stops")
        self.farewells.finish()

    def left(self, session: SessionPort) -> None:
        """A connection is closed."""
        self.sessions.discard(session)
        self.greetings.ended(session)
        self.connections.leave(session)
        self._left += 1

    def new_producer_name(self) -> str:
        """A name that no producer of this cluster ever had."""
        self._names += 1
        return f"{self._name_prefix}-{self._names}"

    async def _tick(self) -> None:
        self.clock_watch.look()
        self.intake.tick()
        self.outputs.crowded = self.intake.active > 1

    async def _look_at_greetings(self) -> None:
        self.greetings.look()

    async def _keep_alive(self) -> None:
        for session in list(self.sessions):
            session.keep_alive()

    async def maintain(self) -> None:
        """One round of retention and deduplication snapshots."""
        async for topic in in_slices(list(self.topics.values()), TOPICS_PER_TURN):
            if topic.closed:
                # It failed, and no client came back: consumers' acknowledgements are made durable here.
                await guarded(self.unload(topic.name), f"{topic.name}: closing after a failure")
                continue
            await guarded(topic.log.trim(), f"{topic.name}: trimming")
            if topic.transactions is not None:
                await guarded(topic.transactions.trim(), f"{topic.name}: trimming of hidden entries")
            if topic.dedup is not None:
                await guarded(topic.dedup.maintain(), f"{topic.name}: deduplication snapshot")

    async def _compact_due(self) -> None:
        async for topic in in_slices(list(self.topics.values()), TOPICS_PER_TURN):
            await guarded(topic.compaction.start_if_due(), f"{topic.name}: compaction")

    async def enforce_limits(self) -> None:
        """One round of what limits do by themselves: messages expire, backlogs shrink."""
        await enforcement.enforce_all(list(self.topics.values()), self.clock)

    async def _look_at_stored(self) -> None:
        from magnetar.broker.limits import stored_bytes

        await stored_bytes.look(self)

    # -- topics ------------------------------------------------------------------------------------

    async def any_topic(self, name: TopicName, *, create: bool = True) -> AnyTopic:
        """The loaded topic of either domain; raises what `topic` does."""
        if name.persistent:
            return await self.topic(name, create=create)
        return self.nonpersistent.find(name) or await opened(self, name, create=create)

    def loaded(self, name: TopicName) -> AnyTopic | None:
        """The topic of either domain if it is loaded."""
        return self.topics.get(str(name)) if name.persistent else self.nonpersistent.find(name)

    async def topic(self, name: TopicName, *, create: bool = True) -> Topic:
        """The loaded persistent topic; loads it, and creates it when `create` and the policies allow.

        Raises TopicNotFoundError, NamespaceNotFoundError, ServiceNotReadyError, NotAllowedError.
        """
        if not name.persistent:
            raise NotAllowedError(f"{name} is not persistent: this is possible on persistent topics only")
        return await self.registry.get(name, create=create)

    async def check_name(self, name: TopicName) -> None:
        """Raises NamespaceNotFoundError when the topic's namespace is missing."""
        await self.policies.namespace(name.namespace_name)

    async def may_create(self, name: TopicName) -> bool:
        """Whether a client may make the topic by using it. Raises NotAllowedError, NamespaceNotFoundError."""
        if levels_of(name) is not None:
            raise NotAllowedError(f"{name} is a wildcard: one can subscribe to it, and do nothing else")
        partitions = await self.policies.partitions(name)
        check_number(name, partitions)
        if partitions:
            return name.partition < partitions
        return (await self.creation(name)).topics

    async def creation(self, name: TopicName) -> CreationRules:
        """What clients may create here. Raises NamespaceNotFoundError."""
        own = await self.policies.topic_policies(name)
        return self.config.creation.under(own, await self.policies.namespace(name.namespace_name))

    async def exists(self, name: TopicName) -> bool:
        """Whether the topic was created. A partition exists from the day its topic has that many."""
        if self.loaded(name) is not None or (name.persistent and await self.logs.exists(name.log_name)):
            return True
        return 0 <= name.partition < await self.policies.partitions(name)

    async def _topics_max(self, namespace: NamespaceName) -> int:
        return self._in_force.of_namespace(await self.policies.namespace(namespace)).topics_max

    async def _topics_in(self, namespace: NamespaceName) -> int:
        return sum([len(await self.topics_of(namespace, domain)) for domain in (PERSISTENT, NON_PERSISTENT)])

    async def topic_turn(self, tenant: str) -> None:
        """Returns when the tenant may make one more topic."""
        if wait_ms := self._made.wait_ms(tenant):
            await pause(wait_ms / 1000)

    async def topics_of(self, namespace: NamespaceName, domain: str = PERSISTENT) -> list[TopicName]:
        """Topics and partitions of one domain in a namespace, sorted by name."""
        found: dict[TopicName, None] = {}  # They come sorted, so that sorting all is cheap.
        if domain == PERSISTENT:
            for number, name in enumerate(await self.logs.names(str(namespace)), 1):
                found[TopicName.stored(domain, namespace, name.rpartition("/")[2])] = None
                if number % _NAMES_PER_TURN == 0:
                    await yield_loop()
        else:
            found.update(dict.fromkeys(self.nonpersistent.names(namespace)))
        for topic in await self.policies.partitioned_topics(namespace, domain):
            count = await self.policies.partitions(topic)
            found.update(dict.fromkeys(topic.with_partition(i) for i in range(count)))
        return sorted(found, key=attrgetter("local"))

    async def delete_topic(self, name: TopicName, *, force: bool = False) -> None:
        """Deletes a topic or partition with its data. Raises TopicNotFoundError, ConflictError."""
        if name.persistent:
            await self.registry.delete(name, admit=None if force else Topic.check_deletable)
            return
        topic = self.nonpersistent.find(name)
        if topic is None:
            await self.check_name(name)
            # A partition that was never used exists, and has no data.
            if not await self.exists(name):
                raise TopicNotFoundError(f"Topic {name} not found")
            return
        if not force:
            topic.check_deletable()
        self.nonpersistent.remove(topic)
        _log.info("topic deleted: %s", name)

    async def create_topic(self, name: TopicName, properties: Mapping[str, str] | None = None) -> None:
        """Creates a topic; a persistent one is loaded when it is first used. Raises ConflictError."""
        await self.check_name(name)
        await self.registry.settled(name)
        if not name.persistent:
            if await self.exists(name) or await self.policies.partitions(name):
                raise ConflictError("This topic already exists")
            await self.any_topic(name)
            return
        await self.topic_turn(name.tenant)
        async with self.topic_quota.take(name.namespace_name), self.names.making(topic_path(name)):
            await self.check_name(name)
            if await self.exists(name) or await self.policies.partitions(name):
                raise ConflictError("This topic already exists")
            try:
                await self.logs.create(name.log_name, properties or {})
            except LogExistsError as error:
                raise ConflictError("This topic already exists") from error
        _log.info("topic created: %s", name)
        if await self.inactive.deletes_unused(name):
            # Its time runs while it is loaded.
            await self.topic(name)

    async def unload(self, name: TopicName) -> None:
        """Closes a topic; clients look it up again, which loads it again."""
        passing = self.nonpersistent.find(name)
        if passing is not None:
            self.nonpersistent.remove(passing)
        await self.registry.unload(name)

    # -- policies ----------------------------------------------------------------------------------

    async def apply_policies(self) -> None:
        """Applies changed policies to loaded topics; all changes so far are in force on return."""
        await self._in_force.apply()
