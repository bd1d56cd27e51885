"""One client's session: commands in, replies out. Knows no socket.

The connection's driver (`connection.py`) hands in the parser's events and takes `out`. Commands that need
storage run as background work and are answered by request id; SEND, ACK and FLOW are handled at once.

Source: Pulsar binary protocol, and the clients' behaviour: which requests expect an answer, which codes they
retry on.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Final

from magnetar.auth.identity import Identity
from magnetar.auth.renewal import Renewal
from magnetar.base.errors import MagnetarError
from magnetar.base.ids import ConsumerId, ProducerId, RequestId
from magnetar.base.machine import Machine
from magnetar.broker.errors import WIRE_CODES, ConsumerNotFoundError, wire_code
from magnetar.broker.handlers import handshake, producers, table, texts, topics, unsupported
from magnetar.broker.ports import BrokerPort
from magnetar.broker.session.ack_receipts import AckReceipts
from magnetar.broker.session.answering import Requests
from magnetar.broker.session.keep_alive import KeepAlive, Liveness
from magnetar.broker.session.openings import Openings
from magnetar.broker.session.outputs import SHARES
from magnetar.broker.session.replies import Replies
from magnetar.broker.session.session_invariants import check_attached, check_counts, check_state
from magnetar.broker.session.session_states import TRANSITIONS, SessionState
from magnetar.broker.session.transport import GONE, Transport
from magnetar.broker.subscription.any_subscription import AttachedConsumer
from magnetar.broker.topic.any_topic import AnyTopic
from magnetar.broker.topic.intake import TenantShare
from magnetar.broker.topic.producer import Producer
from magnetar.broker.transactions import commands as transactions
from magnetar.wire import commands
from magnetar.wire import pulsar_pb2 as pb
from magnetar.wire.events import AckEvent, CommandEvent, FlowEvent, SendRun

_log = logging.getLogger("magnetar.broker.session")

_CLOSED_PRODUCERS_KEPT: Final = 1_000
"""Producer ids that the broker closed: their late SENDs are dropped, not punished."""

_IN_FLIGHT: Final = "bytes in flight"
_OUTPUT: Final = "output"
"""Reasons for which a connection is not read."""

Command = pb.BaseCommand
Type = pb.BaseCommand.Type


class Session(Replies):
    """State of one connection. Implements what topics and subscriptions ask of a connection."""

    def __init__(
        self,
        broker: BrokerPort,
        transport: Transport,
        *,
        peer: str,
        local_host: str,
        port: int,
        certificate_role: str | None = None,
    ) -> None:
        """`peer` names the client in logs; `local_host:port` is the address that it reached;
        `certificate_role` comes from its verified certificate."""
        self.out: list[bytes] = []
        self._output_bytes_max = broker.config.connection_output_bytes_max
        self._in_flight_bytes_max = broker.config.in_flight_bytes_max // 2
        self.out_bytes = 0
        self._outputs = broker.outputs
        self._unsent_bytes = 0
        """Bytes that the driver had taken from `out` and not sent at the last check."""
        self.peer = peer
        self.transport_writable = True
        self.starved = False
        """Whether dispatch stopped because `out` was full: it continues after the flush."""
        self.client_version = ""
        self.broker = broker
        self._transport: Transport = transport
        self.host = broker.config.advertised_host or local_host
        self.port = port
        self.certificate_role = certificate_role
        self.identity: Identity | None = None
        """The authenticated identity; None without authentication."""
        self.renewal: Renewal | None = None
        """Watches over credentials that end."""
        self._life = Machine(f"session of {peer}", TRANSITIONS, SessionState.SILENT)
        self.broker_metadata = self.takes_end_of_topic = False
        self.producers: dict[int, tuple[AnyTopic, Producer]] = {}
        self.closed_producers: dict[int, tuple[str, str] | None] = {}
        self.consumers: dict[int, AttachedConsumer] = {}
        self._between: dict[int, AttachedConsumer] = {}  # Readers that a seek took off, until they are back.
        self.opening_producers = Openings("producer")
        self.opening_consumers = Openings("consumer")
        self._in_flight_bytes = 0
        self._share: TenantShare | None = None  # The share of the tenant to which it published first.
        self.requests, self._ack_receipts = Requests(self), AckReceipts(self)
        self._keep_alive = KeepAlive()
        self._holds: set[object] = set()
        """Why this connection is not read."""
        self.closed = False
        """Whether it is CLOSING or GONE; apart from the state, as each reply asks."""
        broker.sessions.add(self)

    # -- its life ----------------------------------------------------------------------------------

    @property
    def connected(self) -> bool:
        """Whether it is served."""
        return self._life.now is SessionState.CONNECTED

    def welcomed(self) -> None:
        """The client is authenticated and admitted: it is served from now on."""
        self._life.go(SessionState.CONNECTED, "admitted")

    def closing(self, reason: str) -> None:
        """Nothing more is taken from the client or given to it; `lost` follows. May be called again."""
        if not self.closed:
            self.closed = True
            self._life.go(SessionState.CLOSING, reason)

    # -- driver side -------------------------------------------------------------------------------

    def handle(self, events: Sequence[object]) -> None:
        """Handles everything that one socket read brought."""
        self._keep_alive.heard = True
        for event in events:
            if self.closed:
                return
            if isinstance(event, SendRun):
                self._send(event)
            elif isinstance(event, AckEvent):
                self._ack(event)
            elif isinstance(event, FlowEvent):
                consumer = self.consumers.get(event.consumer_id)
                if consumer is not None:
                    consumer.subscription.flow(consumer, event.permits)
            elif isinstance(event, CommandEvent):
                self._command(event)

    def keep_alive(self) -> None:
        """Called at the keep-alive interval: pings a silent peer, drops one that does not answer."""
        unread = self.transport_writable and _OUTPUT not in self._holds and not self._may_read
        verdict = self._keep_alive.look(connected=self.connected, unread=unread)
        if verdict is Liveness.PING:
            self.reply(commands.PING)
        elif verdict is not Liveness.THERE:
            self._transport.abort(verdict.value)

    def lost(self) -> None:
        """The connection is lost: its producers and consumers are detached."""
        self.closing("the connection is gone")
        self._life.go(SessionState.GONE, "its producers and consumers leave")
        self.broker.left(self)
        self.broker.intake.left(self, self._share)
        self._outputs.forget(self, self.out_bytes + self._unsent_bytes)
        self.out, self.out_bytes, self._unsent_bytes = [], 0, 0
        topics.left(self)
        self.requests.clear()
        for topic, producer in list(self.producers.values()):
            topic.detach_producer(producer)
        self.producers.clear()
        for consumer in [*self.consumers.values(), *self._between.values()]:
            self.leave(consumer)
        self.consumers.clear()
        self._between.clear()
        self._transport = GONE

    def abort(self, reason: str) -> None:
        """Drops the connection."""
        self._transport.abort(reason)

    def close(self, reason: str) -> None:
        """Writes what waits for the client, then closes the connection."""
        self._transport.close(reason)

    def pump(self) -> None:
        """The peer accepts bytes again: requests, watches and dispatch continue."""
        self.starved = False
        self._keep_alive.heard = True
        self.requests.begin()
        topics.has_room(self)
        for subscription in dict.fromkeys(consumer.subscription for consumer in self.consumers.values()):
            subscription.pump()

    def wrote(self, size_bytes: int) -> None:
        """The driver has taken `out`, which was so large."""
        unsent = self._transport.unsent_bytes()
        outputs = self._outputs
        outputs.free += size_bytes + self._unsent_bytes - unsent
        self._unsent_bytes = unsent
        # More than what was written just now: the peer is slow to take its answers.
        if outputs.free <= 0 and unsent > size_bytes:
            self.throttle(_OUTPUT)
            outputs.wait(self)

    def count_output(self) -> int:
        unsent = self._transport.unsent_bytes()
        if unsent < self._unsent_bytes:
            self._keep_alive.heard = True
        self._outputs.free += self._unsent_bytes - unsent
        self._unsent_bytes = unsent
        return self.out_bytes + unsent

    def has_room(self) -> None:
        self.unthrottle(_OUTPUT)
        if self.transport_writable:
            self.pump()

    def pause_reading(self) -> None:
        """The broker's budget is used up."""
        if not self.closed:
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        """One of the budgets allows reading; if the others do too, reading continues."""
        if not self.closed and self._may_read:
            self._transport.resume_reading()

    @property
    def _may_read(self) -> bool:
        return self.transport_writable and not self._holds and not self.broker.intake.holds(self, self._share)

    # -- what topics and subscriptions ask of a connection -------------------------------------------

    @property
    def writable(self) -> bool:
        waiting, below = self.out_bytes + self._unsent_bytes, self.out_bytes < self._output_bytes_max
        return below and self.transport_writable and self._outputs.allows(waiting) and not self.closed

    def ask_output(self) -> bool:
        if self.out_bytes < self._output_bytes_max and self.transport_writable:
            waiting = self.out_bytes + self._unsent_bytes
            outputs = self._outputs
            if waiting * SHARES < outputs.free or outputs.allows(waiting and self.count_output()):
                return not self.closed
            outputs.wait(self)
        self.starved = True
        return False

    def queued(self, size_bytes: int) -> None:
        if not self.out_bytes:
            self._transport.flush_soon()
        self.out_bytes += size_bytes
        self._outputs.free -= size_bytes

    def reply(self, frame: bytes) -> None:
        if not self.closed:
            self.out.append(frame)
            if not self.out_bytes:
                self._transport.flush_soon()
            self.out_bytes += len(frame)

    def published(self, size_bytes: int) -> None:
        # Also after the connection is closed: its messages still fill memory until they are durable.
        self._in_flight_bytes -= size_bytes
        assert self._in_flight_bytes >= 0, "more is durable than was sent"
        assert self._share is not None
        self.broker.intake.gave_back(self._share, size_bytes)
        if _IN_FLIGHT in self._holds and self._in_flight_bytes < self._in_flight_bytes_max // 2:
            self.unthrottle(_IN_FLIGHT)

    def throttle(self, reason: object) -> None:
        self._holds.add(reason)
        self.pause_reading()

    def unthrottle(self, reason: object) -> None:
        if reason in self._holds:
            self._holds.discard(reason)
            self.resume_reading()

    def producer_detached(self, producer: Producer) -> None:
        self.producer_closed(producer.producer_id, self.producers.get(producer.producer_id))
        self.forget_producer(producer.producer_id)

    def producer_ready(self, producer: Producer) -> None:
        producers.answer(self, producer)

    def producer_refused(self, producer: Producer, error: MagnetarError) -> None:
        self.forget_producer(producer.producer_id)
        self.reply(commands.error(producer.request_id, wire_code(error), str(error)))

    def consumer_detached(self, consumer: AttachedConsumer) -> None:
        self.consumers.pop(consumer.consumer_id, None)
        if not consumer.subscription.durable and not self.closed:
            self._between[consumer.consumer_id] = consumer
        self.consumer_closed(consumer.consumer_id, self.broker.loaded(consumer.subscription.topic))

    def end_of_topic(self, consumer: AttachedConsumer) -> None:
        if self.takes_end_of_topic:
            self.reply(commands.reached_end_of_topic(consumer.consumer_id))

    def ack_response(
        self, consumer: AttachedConsumer, request_id: RequestId | None, error: BaseException | None
    ) -> None:
        self._ack_receipts.answered()
        code, text = (None, None) if error is None else (wire_code(error), str(error))
        if request_id is not None:
            self.reply(commands.ack_response(consumer.consumer_id, request_id, code=code, message=text))

    # -- hot commands ------------------------------------------------------------------------------

    def _send(self, run: SendRun) -> None:
        attached = self.producers.get(run.producer_id)
        if attached is None:
            if run.producer_id not in self.closed_producers:
                self.close(f"SEND for producer {run.producer_id}, which this connection has not opened")
            elif run.txn is not None:
                transactions.missed(self, self.closed_producers[run.producer_id], run)
            return
        size = run.size_bytes
        self._in_flight_bytes += size
        if self._in_flight_bytes > self._in_flight_bytes_max and _IN_FLIGHT not in self._holds:
            self.throttle(_IN_FLIGHT)
        share = self._share
        if share is None:
            share = self._share = self.broker.intake.share(attached[0].name.tenant)
        self.broker.intake.took(self, share, size)
        if run.txn is None:
            attached[0].publish(attached[1], run)
        else:
            transactions.publish(self, attached[0], attached[1], run)

    def _ack(self, event: AckEvent) -> None:
        consumer = self.consumers.get(event.consumer_id)
        if consumer is None:
            if event.request_id is not None:
                code, why = WIRE_CODES[ConsumerNotFoundError], "the consumer is not connected"
                self.reply(commands.ack_response(event.consumer_id, event.request_id, code=code, message=why))
            return
        try:
            if event.request_id is not None or event.txn is not None:
                self._ack_receipts.asked()  # In a transaction each waits for the store.
            if event.txn is not None:
                transactions.acknowledge(self, consumer, event)
                return
            consumer.subscription.ack(consumer, event)
        except MagnetarError as error:
            if event.request_id is not None or event.txn is not None:
                self.ack_response(consumer, event.request_id, error)
            else:
                _log.warning("%s: acknowledgement refused: %s", self.peer, error)

    # -- other commands ----------------------------------------------------------------------------

    def _command(self, event: CommandEvent) -> None:
        command = event.command
        if not self.connected:
            if event.type == Type.CONNECT and self._life.now is SessionState.SILENT:
                self._life.go(SessionState.GREETING, "CONNECT")
                handshake.connect(self, command.connect)
            else:
                self._transport.close("the first command must be CONNECT")
            return
        handler = table.HANDLERS.get(event.type)
        if handler is None:
            unsupported.refuse(self, event)
        elif not texts.refused(self, event):
            handler(self, command)

    def answered(self) -> None:
        """The peer answered a PING."""
        self._keep_alive.answered()

    def leave(self, consumer: AttachedConsumer) -> None:
        subscription = consumer.subscription
        subscription.detach(consumer)
        topic = self.broker.loaded(subscription.topic)
        if topic is not None:
            topic.leave_reader(subscription)

    def send_away(self, consumer: AttachedConsumer) -> None:
        """Detaches a consumer and tells the client."""
        del self.consumers[consumer.consumer_id]
        self.leave(consumer)
        self.reply(commands.close_consumer(consumer.consumer_id))

    def settle_reader(self, consumer_id: ConsumerId) -> None:
        """A reader that a seek detached was opened again, or will not be."""
        consumer = self._between.pop(consumer_id, None)
        if consumer is not None:
            self.leave(consumer)

    def forget_producer(self, producer_id: ProducerId) -> None:
        attached = self.producers.pop(producer_id, None)
        self.closed_producers[producer_id] = attached and transactions.comes_back(*attached)
        if len(self.closed_producers) > _CLOSED_PRODUCERS_KEPT:
            self.closed_producers.pop(next(iter(self.closed_producers)))

    def check(self) -> None:
        """Asserts what must always hold."""
        check_counts(self.out, self.out_bytes, self._unsent_bytes, self._in_flight_bytes)
        check_attached(self, self.producers, self.closed_producers, self.consumers, self._between)
        check_state(self._life, closed=self.closed, attached=bool(self.producers or self.consumers))
        assert self._share is not None or not self._in_flight_bytes, "the bytes in flight have no producer"
        assert self._life.now is not SessionState.GONE or self._transport is GONE, "a connection of the dead"
