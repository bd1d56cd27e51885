"""The protocols through which rooms of the broker use the broker and a session, so that no room imports
either.

`service.py` composes the rooms and `session/session.py` calls them; both know the rooms, and the rooms know
these protocols. Nothing here has a body.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from magnetar.base.ids import ConsumerId, ProducerId, RequestId
from magnetar.broker.subscription.any_subscription import ConsumerConnection
from magnetar.broker.topic.producer import ProducerConnection
from magnetar.wire import pulsar_pb2 as pb

if TYPE_CHECKING:
    from pathlib import Path

    from magnetar.auth.identity import Identity
    from magnetar.auth.renewal import Renewal
    from magnetar.base.clock import Clock
    from magnetar.base.names import NamespaceName, TopicName
    from magnetar.broker.config import BrokerConfig
    from magnetar.broker.dispatch.unacked import UnackedOfBroker
    from magnetar.broker.errors import RefusedError
    from magnetar.broker.guard import Guard
    from magnetar.broker.limits.role_quotas import RoleQuotas
    from magnetar.broker.limits.tenants import Connections, StoredMarks
    from magnetar.broker.listeners import Listeners
    from magnetar.broker.nonpersistent.nonpersistent_topics import NonPersistentTopics
    from magnetar.broker.ownership.place import TopicPlace
    from magnetar.broker.policies.creation import CreationRules
    from magnetar.broker.policies.policies import PolicyStore
    from magnetar.broker.registry.names import Names, TopicQuota
    from magnetar.broker.registry.registry import TopicRegistry
    from magnetar.broker.session.command_turns import CommandTurns
    from magnetar.broker.session.greetings import Greetings
    from magnetar.broker.session.openings import Openings
    from magnetar.broker.session.outputs import OutputBudget
    from magnetar.broker.session.requests import NumberedCommand, Refusal
    from magnetar.broker.siblings.siblings import Siblings
    from magnetar.broker.subscription.any_subscription import AttachedConsumer
    from magnetar.broker.topic.any_topic import AnyTopic
    from magnetar.broker.topic.disk_mark import DiskMark
    from magnetar.broker.topic.intake import Intake
    from magnetar.broker.topic.producer import Producer
    from magnetar.broker.topic.topic import Topic
    from magnetar.broker.transactions.coordinator import Who
    from magnetar.broker.transactions.discovery import Discovery
    from magnetar.broker.transactions.ids import TxnId, TxnState
    from magnetar.broker.watchers.topic_watchers import TopicWatchers
    from magnetar.managedlog.logs import ManagedLogs
    from magnetar.metadata.contact import Contact
    from magnetar.metadata.store import MetadataStore
    from magnetar.runtime.alarms import Alarms
    from magnetar.runtime.tasks import TaskGroup
    from magnetar.schemas.registry import SchemaRegistry
    from magnetar.tiered.offloading import Offloading
    from magnetar.wire.events import AckEvent, SendRun, TxnBits

Handler = Callable[["SessionPort", pb.BaseCommand], None]
"""Handles one command of a session."""


class BrokerPort(Protocol):
    """The broker, as its rooms see it. `service.py` `Broker` documents each member."""

    config: BrokerConfig
    clock: Clock
    logs: ManagedLogs
    policies: PolicyStore
    schemas: SchemaRegistry
    offloading: Offloading | None
    listeners: Listeners
    siblings: Siblings | None
    guard: Guard | None
    tasks: TaskGroup
    alarms: Alarms
    registry: TopicRegistry
    topics: dict[str, Topic]
    names: Names
    topic_quota: TopicQuota
    nonpersistent: NonPersistentTopics
    watchers: TopicWatchers
    disk: DiskMark
    turns: CommandTurns
    quotas: RoleQuotas
    greetings: Greetings
    connections: Connections
    sessions: set[SessionPort]
    intake: Intake
    outputs: OutputBudget
    unacked: UnackedOfBroker | None
    stored: StoredMarks
    store: MetadataStore

    @property
    def owners(self) -> OwnersPort | None: ...

    @property
    def ended(self) -> int: ...

    @property
    def transactions(self) -> TransactionsPort: ...

    @property
    def partitioned(self) -> PartitionedPort: ...

    def left(self, session: SessionPort) -> None: ...

    def new_producer_name(self) -> str: ...

    def loaded(self, name: TopicName) -> AnyTopic | None: ...

    async def any_topic(self, name: TopicName, *, create: bool = True) -> AnyTopic: ...

    async def topic(self, name: TopicName, *, create: bool = True) -> Topic: ...

    async def check_name(self, name: TopicName) -> None: ...

    async def may_create(self, name: TopicName) -> bool: ...

    async def creation(self, name: TopicName) -> CreationRules: ...

    async def exists(self, name: TopicName) -> bool: ...

    async def topic_turn(self, tenant: str) -> None: ...

    async def topics_of(self, namespace: NamespaceName, domain: str = ...) -> list[TopicName]: ...

    async def delete_topic(self, name: TopicName, *, force: bool = False) -> None: ...


class BalancePort(Protocol):
    """What keeps the load of brokers even, as other rooms see it: `balance/balance.py` documents each
    member."""

    @property
    def leader(self) -> str: ...

    def begin(self) -> None: ...

    def close(self) -> None: ...

    async def confirm_leads(self) -> bool: ...

    async def leave(self) -> None: ...


class OwnersPort(Protocol):
    """Which broker serves what, as other rooms see it: `ownership/owners.py` documents each member."""

    contact: Contact

    async def admit(self, name: TopicName) -> None: ...

    def has(self, name: TopicName) -> bool: ...

    def check_owned(self, name: TopicName) -> None: ...

    async def confirm(self, name: TopicName) -> None: ...

    async def require(self, names: Iterable[TopicName]) -> None: ...

    async def locate(self, name: TopicName, *, authoritative: bool) -> TopicPlace: ...

    async def intend(self, name: TopicName, broker_id: str) -> None: ...


class PartitionedPort(Protocol):
    """Partitioned topics, as other rooms see them: `registry/partitioned.py`."""

    async def create(
        self, name: TopicName, partitions: int, properties: Mapping[str, str] | None = None
    ) -> None: ...

    async def end_unused(self, name: TopicName) -> None: ...


class TransactionsPort(Protocol):
    """Transactions, as other rooms see them: `transactions/transactions.py` documents each member."""

    enabled: bool
    discovery: Discovery

    async def recover(self, topic: Topic) -> None: ...

    async def forget_topic(self, log_name: str) -> None: ...

    async def connect(self, number: int) -> None: ...

    async def begin(self, number: int, owner: str, ttl_ms: int) -> TxnId: ...

    async def add_partitions(
        self, bits: TxnBits, names: Sequence[tuple[str, TopicName]], who: Who
    ) -> None: ...

    async def add_subscriptions(
        self, bits: TxnBits, subscriptions: Sequence[tuple[str, TopicName, str]], who: Who
    ) -> None: ...

    def missed(self, topic: str, producer: str, run: SendRun, who: Who) -> None: ...

    async def end(self, id_: TxnId, wanted: TxnState, who: Who, *, reason: str = "") -> None: ...

    def hold(self, topic: Topic, producer: Producer, run: SendRun, who: Who) -> bool: ...

    def admit(self, topic: Topic, producer: str, run: SendRun, who: Who) -> RefusedError | None: ...

    def acknowledge(
        self,
        consumer: AttachedConsumer,
        event: AckEvent,
        who: Who,
        answer: Callable[[BaseException | None], None],
    ) -> None: ...


class RequestsPort(Protocol):
    """Requests of one connection that run in the background: `session/answering.py` `Requests`."""

    def run(
        self,
        request: NumberedCommand,
        work: Coroutine[object, object, None],
        refuse: Refusal,
        *,
        large: bool = False,
    ) -> None: ...

    def run_simple(
        self, request: NumberedCommand, work: Coroutine[object, object, None], *, large: bool = False
    ) -> None: ...


class SessionPort(ConsumerConnection, ProducerConnection, Protocol):
    """A client's session, as handlers of commands see it. `session/session.py` documents each member."""

    peer: str
    host: str
    port: int
    client_version: str
    certificate_role: str | None
    identity: Identity | None
    renewal: Renewal | None
    closed: bool
    broker_metadata: bool
    takes_end_of_topic: bool
    producers: dict[int, tuple[AnyTopic, Producer]]
    closed_producers: dict[int, tuple[str, str] | None]
    consumers: dict[int, AttachedConsumer]
    opening_producers: Openings
    opening_consumers: Openings

    def ack_response(
        self, consumer: AttachedConsumer, request_id: RequestId | None, error: BaseException | None
    ) -> None: ...

    @property
    def broker(self) -> BrokerPort: ...

    @property
    def requests(self) -> RequestsPort: ...

    def reply(self, frame: bytes) -> None: ...

    def close(self, reason: str) -> None: ...

    def abort(self, reason: str) -> None: ...

    @property
    def connected(self) -> bool: ...

    def welcomed(self) -> None: ...

    def hand_over(self, place: Path) -> None: ...

    def closing(self, reason: str) -> None: ...

    def keep_alive(self) -> None: ...

    def lost(self) -> None: ...

    def answered(self) -> None: ...

    def throttle(self, reason: object) -> None: ...

    def unthrottle(self, reason: object) -> None: ...

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...

    def count_output(self) -> int: ...

    def has_room(self) -> None: ...

    def leave(self, consumer: AttachedConsumer) -> None: ...

    def send_away(self, consumer: AttachedConsumer) -> None: ...

    def settle_reader(self, consumer_id: ConsumerId) -> None: ...

    def forget_producer(self, producer_id: ProducerId) -> None: ...
