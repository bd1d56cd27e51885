"""One client's session: commands in, replies out. Knows no socket.

The connection's driver (`connection.py`) hands in what the parser read and takes `out`. Commands that
need storage run as background work and answer by request id; SEND, ACK and FLOW are handled at once.

Source: Pulsar binary protocol; the behaviours behind the fields: who is answered when, which codes
clients retry on.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine
from typing import Any, Final, Protocol

from magnetar.base.errors import MagnetarError
from magnetar.base.ids import Position
from magnetar.base.names import TopicName
from magnetar.broker import lookup
from magnetar.broker.errors import (
    ConsumerNotFoundError,
    NotAllowedError,
    RefusedError,
    SubscriptionNotFoundError,
    UnsupportedError,
    wire_code,
)
from magnetar.broker.service import Broker
from magnetar.broker.subscription import AttachedConsumer, KeySharedPolicy, SubscriptionType
from magnetar.broker.topic import Producer, Topic
from magnetar.schemas.registry import BYTES_TYPES, decode_version
from magnetar.wire import commands, features, payload
from magnetar.wire import pulsar_pb2 as pb
from magnetar.wire.encode import MessageEncoder, encode_duplicate_receipt, encode_receipts
from magnetar.wire.events import AckEvent, CommandEvent, FlowEvent, SendRun, ServerEvent

_log = logging.getLogger("magnetar.broker.session")

OUT_BYTES_MAX: Final = 4 << 20
"""Bytes that may wait for the end of a tick before dispatch to this client pauses."""
_CLOSED_PRODUCERS_KEPT: Final = 1_000
"""Producer ids that the broker closed: their late SENDs are dropped, not punished."""

Command = pb.BaseCommand
Type = pb.BaseCommand.Type


class Transport(Protocol):
    """What a session may ask of its driver."""

    def flush_soon(self) -> None:
        """Writes `out` at the end of this tick."""

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...

    def close(self, reason: str) -> None:
        """Writes what waits, then closes. The reason is logged."""

    def abort(self, reason: str) -> None:
        """Closes at once."""


class Session:
    """State of one connection. Implements what topics and subscriptions ask of a connection."""

    def __init__(self, broker: Broker, transport: Transport, *, peer: str, local_host: str, port: int) -> None:
        """`peer` names the client in logs; `local_host:port` is where it reached us."""
        self.out: list[bytes] = []
        self.out_bytes = 0
        self.peer = peer
        self.transport_writable = True
        self.starved = False
        """Whether dispatch stopped because `out` was full: it goes on after the flush."""
        self.client_version = ""
        self._broker = broker
        self._transport = transport
        self._host = broker.config.advertised_host or local_host
        self._port = port
        self._connected = False
        self._broker_metadata = False
        self._producers: dict[int, tuple[Topic, Producer]] = {}
        self._closed_producers: dict[int, None] = {}
        self._consumers: dict[int, AttachedConsumer] = {}
        self._in_flight_bytes = 0
        self._paused = False
        self._heard = True
        self._pinged = False
        self.closed = False
        broker.sessions.add(self)

    # -- driver side -------------------------------------------------------------------------------

    def handle(self, events: list[ServerEvent]) -> None:
        """Takes everything that one socket read brought."""
        self._heard = True
        for event in events:
            if self.closed:
                return
            if isinstance(event, SendRun):
                self._send(event)
            elif isinstance(event, AckEvent):
                self._ack(event)
            elif isinstance(event, FlowEvent):
                consumer = self._consumers.get(event.consumer_id)
                if consumer is not None:
                    consumer.subscription.flow(consumer, event.permits)
            else:
                self._command(event)

    def keep_alive(self) -> None:
        """Called at the keep-alive interval: pings a silent peer, drops one that does not answer."""
        if self._heard:
            self._heard = self._pinged = False
        elif self._pinged:
            self._transport.abort("no answer to PING within the keep-alive interval")
        elif self._connected:
            self._pinged = True
            self._reply(commands.PING)
        else:
            self._transport.abort("no CONNECT within the keep-alive interval")

    def lost(self) -> None:
        """The connection is gone: its producers and consumers leave."""
        self.closed = True
        self._broker.sessions.discard(self)
        self._broker.gave_back(self._in_flight_bytes)
        self._in_flight_bytes = 0
        for topic, producer in list(self._producers.values()):
            topic.detach_producer(producer)
        self._producers.clear()
        for consumer in list(self._consumers.values()):
            self._leave(consumer)
        self._consumers.clear()

    def abort(self, reason: str) -> None:
        """Drops the connection."""
        self._transport.abort(reason)

    def pump(self) -> None:
        """The peer takes bytes again: dispatch goes on."""
        self.starved = False
        for consumer in list(self._consumers.values()):
            consumer.subscription.pump()

    def pause_reading(self) -> None:
        """The broker's budget is used up."""
        if not self.closed:
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        """The broker's budget allows to read, if this connection's own does."""
        if not self._paused and not self.closed:
            self._transport.resume_reading()

    # -- what topics and subscriptions ask of a connection -------------------------------------------

    @property
    def writable(self) -> bool:
        if self.out_bytes < OUT_BYTES_MAX and self.transport_writable:
            return not self.closed
        self.starved = True
        return False

    def queued(self, size_bytes: int) -> None:
        if not self.out_bytes:
            self._transport.flush_soon()
        self.out_bytes += size_bytes

    def _reply(self, frame: bytes) -> None:
        if not self.closed:
            self.out.append(frame)
            self.queued(len(frame))

    def receipts(
        self, producer: Producer, sequence_ids: list[int], highest_ids: list[int] | None, position: Position | None
    ) -> None:
        if position is not None:
            self._reply(
                encode_receipts(
                    producer.producer_id, sequence_ids, highest_ids, position.ledger_id, position.entry_id
                )
            )
            return
        for i, sequence_id in enumerate(sequence_ids):
            highest = None if highest_ids is None else highest_ids[i]
            self._reply(encode_duplicate_receipt(producer.producer_id, sequence_id, highest))

    def send_errors(self, producer: Producer, sequence_ids: list[int], code: int, message: str) -> None:
        for sequence_id in sequence_ids:
            self._reply(commands.send_error(producer.producer_id, sequence_id, code, message))

    def published(self, size_bytes: int) -> None:
        if self.closed:
            return
        self._in_flight_bytes -= size_bytes
        self._broker.gave_back(size_bytes)
        if self._paused and self._in_flight_bytes < self._broker.config.connection_in_flight_bytes_max // 2:
            self._paused = False
            self._transport.resume_reading()

    def producer_detached(self, producer: Producer) -> None:
        self._forget_producer(producer.producer_id)
        self._reply(commands.close_producer(producer.producer_id))

    def consumer_detached(self, consumer: AttachedConsumer) -> None:
        self._consumers.pop(consumer.consumer_id, None)
        self._reply(commands.close_consumer(consumer.consumer_id))

    def active_changed(self, consumer: AttachedConsumer, *, active: bool) -> None:
        self._reply(commands.active_consumer_change(consumer.consumer_id, active=active))

    def ack_response(self, consumer: AttachedConsumer, request_id: int, error: BaseException | None) -> None:
        code = None if error is None else wire_code(error)
        self._reply(commands.ack_response(consumer.consumer_id, request_id, code, "" if error is None else str(error)))

    # -- hot commands ------------------------------------------------------------------------------

    def _send(self, run: SendRun) -> None:
        attached = self._producers.get(run.producer_id)
        if attached is None:
            if run.producer_id not in self._closed_producers:
                self._transport.close(f"SEND for producer {run.producer_id}, which this connection has not opened")
            return
        size = run.size_bytes
        self._in_flight_bytes += size
        if self._in_flight_bytes > self._broker.config.connection_in_flight_bytes_max and not self._paused:
            self._paused = True
            self._transport.pause_reading()
        self._broker.took(self, size)
        attached[0].publish(attached[1], run)

    def _ack(self, event: AckEvent) -> None:
        consumer = self._consumers.get(event.consumer_id)
        if consumer is None:
            if event.request_id is not None:
                code, text = ConsumerNotFoundError.code, "the consumer is not connected"
                self._reply(commands.ack_response(event.consumer_id, event.request_id, code, text))
            return
        try:
            if event.transactional:
                raise UnsupportedError("transactions are not offered yet")
            consumer.subscription.ack(consumer, event)
        except RefusedError as error:
            if event.request_id is not None:
                self.ack_response(consumer, event.request_id, error)
            else:
                _log.warning("%s: acknowledgement refused: %s", self.peer, error)

    # -- other commands ----------------------------------------------------------------------------

    def _command(self, event: CommandEvent) -> None:
        command = event.command
        if not self._connected:
            if event.type == Type.CONNECT:
                self._connect(command.connect)
            else:
                self._transport.close("the first command must be CONNECT")
            return
        handler = _HANDLERS.get(event.type)
        if handler is None:
            self._unsupported(event)
            return
        handler(self, command)

    def _connect(self, connect: pb.CommandConnect) -> None:
        self._connected = True
        self.client_version = connect.client_version
        self._broker_metadata = connect.feature_flags.supports_broker_entry_metadata
        self._reply(
            commands.connected(
                protocol_version=features.negotiated_version(connect.protocol_version),
                message_bytes_max=self._broker.config.message_bytes_max,
            )
        )

    def _unsupported(self, event: CommandEvent) -> None:
        """Every command is answered; those that we do not offer with an error that says so."""
        name = Type.Name(event.type) if event.type in Type.values() else f"command {event.type}"
        request_id = commands.request_id_of(event.command)
        if request_id is None:
            _log.info("%s: %s is not offered and needs no answer", self.peer, name)
            return
        self._reply(commands.error(request_id, UnsupportedError.code, f"{name} is not offered by this broker yet"))

    def _ping(self, _: Command) -> None:
        self._reply(commands.PONG)

    def _pong(self, _: Command) -> None:
        self._pinged = False

    def _run(self, request_id: int, work: Coroutine[Any, Any, None], refuse: Callable[[int, str], bytes]) -> None:
        """Runs a command in the background; its error becomes the frame that `refuse(code, text)` makes."""

        async def guarded() -> None:
            try:
                await work
            except MagnetarError as error:
                _log.info("%s: request %d refused: %s", self.peer, request_id, error)
                self._reply(refuse(wire_code(error), str(error)))
            except Exception:  # noqa: BLE001  # a bug in one command must be answered and must not stop others
                _log.exception("%s: request %d failed", self.peer, request_id)
                self._reply(refuse(pb.UnknownError, "internal error; the broker's log has the details"))

        self._broker.tasks.spawn(guarded())

    def _run_simple(self, request_id: int, work: Coroutine[Any, Any, None]) -> None:
        self._run(request_id, work, lambda code, text: commands.error(request_id, code, text))

    # -- look-up -----------------------------------------------------------------------------------

    def _partitions(self, command: Command) -> None:
        request = command.partitionMetadata

        async def answer() -> None:
            count = await lookup.partitions(self._broker, request.topic)
            self._reply(commands.partition_metadata(request.request_id, count))

        self._run(
            request.request_id,
            answer(),
            lambda code, text: commands.partition_metadata_error(request.request_id, code, text),
        )

    def _lookup(self, command: Command) -> None:
        request = command.lookupTopic

        async def answer() -> None:
            if request.advertised_listener_name:
                raise NotAllowedError(f"there is no listener named {request.advertised_listener_name}")
            await self._broker.check_name(TopicName.parse(request.topic))
            url = f"pulsar://{self._host}:{self._port}"
            self._reply(commands.lookup_response(request.request_id, url))

        self._run(
            request.request_id,
            answer(),
            lambda code, text: commands.lookup_error(request.request_id, code, text),
        )

    def _topics_of_namespace(self, command: Command) -> None:
        request = command.getTopicsOfNamespace

        async def answer() -> None:
            found = await lookup.topics_of_namespace(self._broker, request)
            self._reply(
                commands.topics_of_namespace(
                    request.request_id, found.topics, found.digest, filtered=found.filtered, changed=found.changed
                )
            )

        self._run_simple(request.request_id, answer())

    # -- producers ---------------------------------------------------------------------------------

    def _producer(self, command: Command) -> None:
        request = command.producer
        self._run_simple(request.request_id, self._open_producer(request))

    async def _open_producer(self, request: pb.CommandProducer) -> None:
        mode = request.producer_access_mode
        if mode not in (pb.Shared, pb.Exclusive):
            raise UnsupportedError(f"producer access mode {pb.ProducerAccessMode.Name(mode)} is not offered yet")
        topic = await self._broker.topic(TopicName.parse(request.topic))
        schema_version = await self._register_schema(topic, request.schema if request.HasField("schema") else None)
        if self.closed:
            return
        name = request.producer_name or self._broker.new_producer_name()
        producer = Producer(
            request.producer_id,
            name,
            self,
            epoch=request.epoch,
            exclusive=mode == pb.Exclusive,
            user_named=request.user_provided_producer_name and bool(request.producer_name),
            schema_version=schema_version,
            client_address=self.peer,
            connected_ms=self._broker.clock.now_ms(),
            properties={pair.key: pair.value for pair in request.metadata},
        )
        topic.attach_producer(producer)
        self._producers[request.producer_id] = (topic, producer)
        self._closed_producers.pop(request.producer_id, None)
        self._reply(
            commands.producer_success(
                request.request_id, name, topic.last_sequence(name), schema_version, topic_epoch=None
            )
        )

    async def _register_schema(self, topic: Topic, schema: pb.Schema | None) -> bytes:
        """The version of the schema as it travels; b"" when there is none."""
        if schema is None or schema.type in BYTES_TYPES:
            return b""
        stored = await self._broker.schemas.add(topic.name, schema)
        return stored.version_bytes

    def _close_producer(self, command: Command) -> None:
        request = command.close_producer
        attached = self._producers.get(request.producer_id)
        if attached is not None:
            attached[0].detach_producer(attached[1])
            self._forget_producer(request.producer_id)
        self._reply(commands.success(request.request_id))

    def _forget_producer(self, producer_id: int) -> None:
        self._producers.pop(producer_id, None)
        self._closed_producers[producer_id] = None
        if len(self._closed_producers) > _CLOSED_PRODUCERS_KEPT:
            self._closed_producers.pop(next(iter(self._closed_producers)))

    # -- consumers ---------------------------------------------------------------------------------

    def _subscribe(self, command: Command) -> None:
        request = command.subscribe
        self._run_simple(request.request_id, self._open_consumer(request))

    async def _open_consumer(self, request: pb.CommandSubscribe) -> None:
        if request.consumer_id in self._consumers:
            self._reply(commands.success(request.request_id))
            return
        if request.read_compacted:
            raise UnsupportedError("reading the compacted topic is not offered yet")
        if not request.subscription:
            raise NotAllowedError("a subscription needs a name")
        topic = await self._broker.topic(TopicName.parse(request.topic), create=request.force_topic_creation)
        await self._register_schema(topic, request.schema if request.HasField("schema") else None)
        start = _position(request.start_message_id) if request.HasField("start_message_id") else None
        if request.durable:
            subscription = await topic.subscription(
                request.subscription,
                initial_earliest=request.initialPosition == pb.CommandSubscribe.InitialPosition.Earliest,
                start=None,
                properties={pair.key: pair.value for pair in request.subscription_properties},
            )
        else:
            after = await lookup.reader_start(topic, start, request)
            subscription = topic.reader(request.subscription, after)
        if self.closed:
            return
        meta = request.keySharedMeta
        consumer = AttachedConsumer(
            consumer_id=request.consumer_id,
            name=request.consumer_name or f"{self.peer}-{request.consumer_id}",
            outlet=self,
            priority=request.priority_level,
            epoch=request.consumer_epoch if request.HasField("consumer_epoch") else None,
            hash_ranges=tuple((each.start, each.end) for each in meta.hashRanges),
            connection=self,
            encoder=MessageEncoder(request.consumer_id, topic.name.partition),
            subscription=subscription,
            broker_metadata=self._broker_metadata,
            client_address=self.peer,
            connected_ms=self._broker.clock.now_ms(),
            properties={pair.key: pair.value for pair in request.metadata},
        )
        policy = KeySharedPolicy(meta.keySharedMode == pb.KeySharedMode.STICKY, meta.allowOutOfOrderDelivery)
        subscription.attach(consumer, SubscriptionType(request.subType), policy)
        self._consumers[request.consumer_id] = consumer
        self._reply(commands.success(request.request_id))

    def _leave(self, consumer: AttachedConsumer) -> None:
        subscription = consumer.subscription
        subscription.detach(consumer)
        topic = self._broker.topics.get(str(subscription.topic))
        if topic is not None:
            topic.leave_reader(subscription)

    def _close_consumer(self, command: Command) -> None:
        request = command.close_consumer
        consumer = self._consumers.pop(request.consumer_id, None)
        if consumer is not None:
            self._leave(consumer)
        self._reply(commands.success(request.request_id))

    def _consumer_of(self, consumer_id: int) -> AttachedConsumer:
        consumer = self._consumers.get(consumer_id)
        if consumer is None:
            raise ConsumerNotFoundError(f"consumer {consumer_id} is not connected")
        return consumer

    def _unsubscribe(self, command: Command) -> None:
        request = command.unsubscribe

        async def work() -> None:
            consumer = self._consumer_of(request.consumer_id)
            subscription = consumer.subscription
            subscription.check_deletable(consumer, force=request.force)
            topic = await self._broker.topic(subscription.topic, create=False)
            if topic.subscriptions.get(subscription.name) is not subscription:
                raise SubscriptionNotFoundError(f"{topic.name} has no subscription {subscription.name}")
            self._consumers.pop(request.consumer_id, None)
            subscription.detach(consumer)
            await topic.drop_subscription(subscription)
            self._reply(commands.success(request.request_id))

        self._run_simple(request.request_id, work())

    def _redeliver(self, command: Command) -> None:
        request = command.redeliverUnacknowledgedMessages
        consumer = self._consumers.get(request.consumer_id)
        if consumer is not None:
            ids = [_position(each) for each in request.message_ids]
            epoch = request.consumer_epoch if request.HasField("consumer_epoch") else None
            consumer.subscription.redeliver(consumer, ids or None, epoch)

    def _seek(self, command: Command) -> None:
        request = command.seek

        async def work() -> None:
            subscription = self._consumer_of(request.consumer_id).subscription
            topic = await self._broker.topic(subscription.topic, create=False)
            if request.HasField("message_id"):
                position = lookup.seek_position(topic, request.message_id)
            else:
                position = await topic.log.position_of_time(request.message_publish_time)
            await subscription.seek(position)
            self._reply(commands.success(request.request_id))

        self._run_simple(request.request_id, work())

    def _last_message_id(self, command: Command) -> None:
        request = command.getLastMessageId

        async def work() -> None:
            subscription = self._consumer_of(request.consumer_id).subscription
            topic = await self._broker.topic(subscription.topic, create=False)
            last, batch_index = await lookup.last_message(topic)
            self._reply(
                commands.last_message_id(
                    request.request_id,
                    last,
                    partition=topic.name.partition,
                    batch_index=batch_index,
                    mark_delete=subscription.cursor.mark_delete,
                )
            )

        self._run_simple(request.request_id, work())

    # -- schemas -----------------------------------------------------------------------------------

    def _get_schema(self, command: Command) -> None:
        request = command.getSchema

        async def work() -> None:
            topic = TopicName.parse(request.topic)
            try:
                version = decode_version(request.schema_version) if request.schema_version else None
            except ValueError as error:
                raise NotAllowedError(str(error)) from error
            registry = self._broker.schemas
            stored = await (registry.latest(topic) if version is None else registry.get(topic, version))
            if stored is None:
                self._reply(
                    commands.get_schema_error(request.request_id, pb.TopicNotFound, "Topic not found or no-schema")
                )
                return
            self._reply(commands.get_schema(request.request_id, stored.schema, stored.version_bytes))

        self._run(
            request.request_id,
            work(),
            lambda code, text: commands.get_schema_error(request.request_id, code, text),
        )

    def _get_or_create_schema(self, command: Command) -> None:
        request = command.getOrCreateSchema

        async def work() -> None:
            topic = await self._broker.topic(TopicName.parse(request.topic))
            version = await self._register_schema(topic, request.schema)
            self._reply(commands.get_or_create_schema(request.request_id, version))

        self._run(
            request.request_id,
            work(),
            lambda code, text: commands.get_or_create_schema_error(request.request_id, code, text),
        )


def _position(message_id: pb.MessageIdData) -> Position:
    """As a client sent it; ids are unsigned on the wire and -1 is "before everything"."""
    return payload.position_of(message_id)


_HANDLERS: Final[dict[int, Callable[[Session, Command], None]]] = {
    Type.PING: Session._ping,
    Type.PONG: Session._pong,
    Type.PARTITIONED_METADATA: Session._partitions,
    Type.LOOKUP: Session._lookup,
    Type.GET_TOPICS_OF_NAMESPACE: Session._topics_of_namespace,
    Type.PRODUCER: Session._producer,
    Type.CLOSE_PRODUCER: Session._close_producer,
    Type.SUBSCRIBE: Session._subscribe,
    Type.CLOSE_CONSUMER: Session._close_consumer,
    Type.UNSUBSCRIBE: Session._unsubscribe,
    Type.REDELIVER_UNACKNOWLEDGED_MESSAGES: Session._redeliver,
    Type.SEEK: Session._seek,
    Type.GET_LAST_MESSAGE_ID: Session._last_message_id,
    Type.GET_SCHEMA: Session._get_schema,
    Type.GET_OR_CREATE_SCHEMA: Session._get_or_create_schema,
}
