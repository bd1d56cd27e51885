"""Opens wildcards, and follows the creation and deletion of topics."""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, Final

from magnetar.base.errors import MagnetarError
from magnetar.base.ids import RequestId
from magnetar.base.levels import Levels, levels_of
from magnetar.base.names import TopicName
from magnetar.broker import lookup
from magnetar.broker.errors import NotAllowedError, TopicNotFoundError, UnsupportedError
from magnetar.broker.subscription.any_subscription import AttachedConsumer, KeySharedPolicy, SubscriptionType
from magnetar.broker.watchers.selection import matching
from magnetar.broker.watchers.watched import Update
from magnetar.broker.wildcards.part import NotingEncoder, PartConnection, PartConsumer
from magnetar.broker.wildcards.wildcard_subscription import WildcardSubscription
from magnetar.wire import pulsar_pb2 as pb
from magnetar.wire.messages import MessageEncoder

if TYPE_CHECKING:
    from magnetar.broker.ports import BrokerPort, SessionPort

_log = logging.getLogger("magnetar.broker.wildcards")

PARTS_MAX: Final = 10_000
"""Topics of one consumer, partitions counted."""
_AGAIN_MS: Final = 200
"""After a topic sent the consumer away, or could not be opened, until it is tried again."""


async def wildcard_of(broker: BrokerPort, name: TopicName) -> Levels | None:
    """The wildcard that a client means by a name; None when it means a topic."""
    levels = levels_of(name)
    if levels is None or await broker.exists(name) or await broker.policies.partitions(name):
        return None
    return levels


class Wildcard:
    """One consumer's wildcard."""

    def __init__(
        self, session: SessionPort, request: pb.CommandSubscribe, name: TopicName, levels: Levels
    ) -> None:
        self._session = session
        self._broker = session.broker
        self._request = request
        self._levels = levels
        self._name = name
        self._closed = False
        self._joining: set[TopicName] = set()
        self.subscription = WildcardSubscription(
            name, request.subscription, session, lost=self._again, closed=self.close
        )

    async def open(self) -> AttachedConsumer:
        """The consumer for the session. Raises RefusedError: also when one topic refuses it."""
        request = self._request
        if not request.durable or request.read_compacted:
            raise UnsupportedError("a wildcard is for durable subscriptions: it has no readers")
        if self._broker.owners is not None:
            # Of topics of other brokers its consumer would get nothing, and would not be told.
            raise UnsupportedError(
                "a wildcard needs one broker, and here are several: subscribe to a regular expression instead"
            )
        broker, namespace = self._broker, self._name.namespace_name
        await broker.policies.namespace(namespace)
        visible = await lookup.visible_topics(broker, namespace)
        names = await matching(self._levels, visible, broker.watchers.turns)
        if len(names) > PARTS_MAX:
            raise NotAllowedError(f"{self._name} names {len(names)} topics; {PARTS_MAX} are possible")
        earliest = request.initialPosition == pb.CommandSubscribe.InitialPosition.Earliest
        consumer = self._consumer()
        self.subscription.attach(consumer, SubscriptionType(request.subType), KeySharedPolicy())
        try:
            for name in names:
                await self._join(name, earliest=earliest)
        except BaseException:
            self.subscription.detach(consumer)
            raise
        broker.watchers.watch(
            self, namespace, self._levels, watcher_id=0, request_id=RequestId(0), known_digest=""
        )
        return consumer

    def close(self) -> None:
        """The client has left."""
        self._closed = True
        self._broker.watchers.leave(self)

    # -- topics ------------------------------------------------------------------------------------

    async def _join(self, name: TopicName, *, earliest: bool) -> None:
        broker, request = self._broker, self._request
        if name in self.subscription.parts or name in self._joining:
            return
        self._joining.add(name)
        try:
            topic = await broker.any_topic(name, create=False)
            type_ = SubscriptionType(request.subType)
            caller = (self._session.peer.rpartition(":")[0], request.consumer_name, request.consumer_id)
            topic.limits.admit_subscribe(topic.subscriptions, request.subscription, type_.name, caller)
            await lookup.check_subscription(broker, topic, request.subscription)
            subscription = await topic.subscription(
                request.subscription, initial_earliest=earliest, start=None, properties={}
            )
            topic.limits.admit_consumer(topic.subscriptions, request.subscription)
            if self._closed:
                return
            part = PartConsumer(
                self.subscription.pool,
                consumer_id=request.consumer_id,
                name=self.subscription.consumer.name,
                outlet=self._session,
                priority=request.priority_level,
                connection=PartConnection(self.subscription),
                encoder=NotingEncoder(
                    request.consumer_id,
                    partial(self.subscription.note, name),
                    broker_metadata=self._session.broker_metadata,
                ),
                subscription=subscription,
                client_address=self._session.peer,
                client_version=self._session.client_version,
                connected_ms=broker.clock.now_ms(),
                properties={pair.key: pair.value for pair in request.metadata},
            )
            meta = request.keySharedMeta
            sticky = meta.keySharedMode == pb.KeySharedMode.STICKY
            topic.check_there(subscription)
            subscription.attach(part, type_, KeySharedPolicy(sticky, meta.allowOutOfOrderDelivery))
            self.subscription.add(name, part)
        finally:
            self._joining.discard(name)

    def _consumer(self) -> AttachedConsumer:
        request, session = self._request, self._session
        return AttachedConsumer(
            consumer_id=request.consumer_id,
            name=request.consumer_name or f"{session.peer}-{request.consumer_id}",
            outlet=session,
            connection=session,
            encoder=MessageEncoder(request.consumer_id),
            subscription=self.subscription,
            client_address=session.peer,
            client_version=session.client_version,
            connected_ms=session.broker.clock.now_ms(),
            properties={},
        )

    def _again(self, name: TopicName) -> None:
        """A topic sent the consumer away: it was unloaded, deleted, or its subscription moved."""
        if not self._closed:
            self._broker.alarms.after(
                (self, name), _AGAIN_MS, lambda: self._broker.tasks.spawn(self._later(name))
            )

    async def _later(self, name: TopicName) -> None:
        if self._closed or len(self.subscription.parts) >= PARTS_MAX:
            return
        try:
            # A topic created later is read from its beginning: its first message may be older than this
            # moment.
            await self._join(name, earliest=True)
        except TopicNotFoundError:  # deleted before it could be joined
            return
        except MagnetarError as error:
            _log.info("%s: %s is tried again: %s", self._name, name, error)
            self._again(name)
        except Exception:
            # Tried again too: otherwise the consumer would never get the topic.
            self._again(name)
            raise

    # -- what the room of watchers asks of a client ------------------------------------------------

    def ask_output(self) -> bool:
        """Accepts every message at once."""
        return True

    def watching(self, request_id: RequestId, watcher_id: int, topics: list[str], digest: str) -> None:
        """All topics that match."""
        self._came(topics)

    def watching_failed(self, request_id: RequestId, error: MagnetarError) -> None:
        """The client comes back and is told why."""
        _log.warning("%s: its topics cannot be watched: %s", self._name, error)
        self.subscription.detach_all()

    def topics_changed(self, watcher_id: int, update: Update) -> None:
        """Matching topics were created or deleted."""
        for text in update.deleted:
            self.subscription.drop(TopicName.parse(text))
        self._came(update.new)

    def _came(self, topics: list[str]) -> None:
        for text in topics:
            name = TopicName.parse(text)
            if name not in self.subscription.parts:
                self._broker.tasks.spawn(self._later(name))
