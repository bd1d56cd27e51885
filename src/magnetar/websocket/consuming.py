"""The socket of a consumer or reader, with one consumer of the binary protocol per partition."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from functools import partial
from typing import Final

from magnetar.base.ids import ConsumerId, Position
from magnetar.base.names import TopicName
from magnetar.broker.service import Broker
from magnetar.runtime.tasks import yield_loop
from magnetar.websocket import documents
from magnetar.websocket.asking_line import AskingLine
from magnetar.websocket.dead_letters import SocketDeadLetters
from magnetar.websocket.deliveries import Incoming, Opener
from magnetar.websocket.documents import Order
from magnetar.websocket.endpoint import Endpoint, Output, SocketEnd
from magnetar.websocket.errors import Fault, UndeliverableError
from magnetar.websocket.memory import ByteCount, HeldBytes, written
from magnetar.websocket.parts import BESIDE_BYTES, MessagePart
from magnetar.websocket.paths import SocketRole, Target
from magnetar.websocket.query_options import ConsumerOptions
from magnetar.websocket.unacked import HeldMessage, Rejected, Unacked
from magnetar.wire import pulsar_pb2 as pb
from magnetar.wire.client import ClientEvent, MessageEvent
from magnetar.wire.commands import message_id_data
from magnetar.wire.events import AckEvent, CommandEvent, FlowEvent
from magnetar.wire.frames import position_of

_Type = pb.BaseCommand.Type

_WRITTEN_MAX: Final = 64
"""Messages that are written before the event loop gets a turn; an entry of a megabyte may hold ten
thousand."""
_HELD_MAX: Final = 50_000
"""Most unsettled messages of a client that pulls; no more are delivered before it settles some."""


class ConsumerSocket(Endpoint):
    """The socket of one consumer or reader."""

    def __init__(
        self, broker: Broker, target: Target, peer: str, memory: HeldBytes, options: ConsumerOptions
    ) -> None:
        super().__init__(broker, target, peer, memory)
        self.options = options
        self.subscription = target.subscription
        self._parts: dict[int, MessagePart] = {}
        self._by_consumer: dict[int, MessagePart] = {}
        self._events: deque[tuple[MessagePart, MessageEvent]] = deque()
        """Entries that are not opened yet."""
        self._ready: deque[tuple[MessagePart, Incoming]] = deque()
        """Unsent messages of the entry that was opened last."""
        self._opened_bytes = 0
        """Bytes of these messages, and of the entry that is being opened."""
        self._pieces = ByteCount()
        """Bytes of incomplete large messages, and of a text that is being written."""
        self._pulled = 0
        """Messages that a client that pulls has requested and not received."""
        self._unacked = Unacked(options.ack_timeout_ms)
        self._rejected = Rejected(options.nack_delay_ms)
        self._dead_letters: SocketDeadLetters | None = None
        self._last_id = 0
        self._reads = target.role is SocketRole.READER

    async def open(self) -> None:
        if self._reads and not self.subscription:
            self.subscription = f"reader-{self.broker.new_producer_name()}"
        for topic in self.target.topics:
            await self.add_topic(topic)
        if self.options.redeliveries_max is not None:
            self._dead_letters = SocketDeadLetters(self)

    async def add_topic(self, topic: TopicName) -> None:
        """Subscribes to a topic and all its partitions. Raises OpeningError."""
        count = await self.lines.home.partitions(topic)
        for name in [topic.with_partition(i) for i in range(count)] if count else [topic]:
            most = self.broker.config.message_bytes_max
            opener = Opener(self.options.crypto_failure, most, self._pieces)
            part = MessagePart(len(self._parts), name, opener, self.lines.home)
            self._parts[part.number] = part
            await self._subscribe(part)

    async def _subscribe(self, part: MessagePart) -> None:
        options = self.options
        self._last_id += 1
        consumer_id = ConsumerId(self._last_id)
        body = pb.CommandSubscribe(
            topic=str(part.topic),
            subscription=self.subscription,
            subType=options.kind,
            consumer_id=consumer_id,
            consumer_name=options.name or None,
            priority_level=options.priority,
            durable=options.durable,
            initialPosition=pb.CommandSubscribe.Earliest if options.earliest else pb.CommandSubscribe.Latest,
        )
        start = part.seen[0] if part.seen else options.start
        if start is not None:
            body.start_message_id.CopyFrom(message_id_data(start))
        # Before the answer: messages may come with it.
        self._by_consumer[consumer_id] = part
        try:
            part.line = await self.lines.to(part.topic)
            await part.line.ask(_Type.SUBSCRIBE, body)
        except BaseException:
            del self._by_consumer[consumer_id]
            raise
        if consumer_id not in self._by_consumer:
            return  # Taken off again before its answer was read.
        part.consumer_id, part.permits = consumer_id, 0
        self._grant()

    # -- from the client ---------------------------------------------------------------------------

    async def take(self, text: str) -> None:
        order = documents.order_of(text)
        if order.kind == "isEndOfTopic":
            reached = bool(self._parts) and all(part.ended for part in self._parts.values())
            self.answer(documents.end_of_topic(reached=reached))
        elif order.kind == "unsubscribe":
            await self._unsubscribe()
        elif order.kind == "permit":
            if self.options.pull:
                self._pulled = min(self._pulled + order.permits, documents.PERMITS_MAX)
        elif self._reads:
            # Messages that a reader's client settles allow as many more, and no more than that.
            self._unacked.settle(order.message_id)
        else:
            self._settle(order)
        self._grant()
        self._wake.set()

    def _settle(self, order: Order) -> None:
        held = self._unacked.settle(order.message_id)
        if held is not None and held.message is not None:
            self.count_held()
        data = documents.message_id_of(order.message_id)
        part = self._part_of(held, data)
        if part is None:
            return
        if order.kind == "ack":
            self._acknowledge(part, data, () if held is None else held.pieces)
            return
        known = held or HeldMessage(part.number, position_of(data), (), None)
        if not self._bury(part, known):
            self.reject(known)

    def _part_of(self, held: HeldMessage | None, data: pb.MessageIdData) -> MessagePart | None:
        if held is not None:
            return self._parts[held.part]
        index = data.partition if data.HasField("partition") else -1
        found = [part for part in self._parts.values() if part.topic.partition == index]
        # In several topics an id does not name the topic: an id that the client does not hold belongs to
        # none.
        return found[0] if len(found) == 1 else None

    def _acknowledge(self, part: MessagePart, data: pb.MessageIdData, pieces: Iterable[Position]) -> None:
        position = position_of(data)
        if data.batch_size > 1 and 0 <= data.batch_index < data.batch_size:
            words = documents.all_but(data.batch_index, data.batch_size)
            batch_acks = [(position, words, data.batch_size)]
            part.line.hand(AckEvent(part.consumer_id, [], batch_acks=batch_acks))
        else:
            part.line.hand(AckEvent(part.consumer_id, [*pieces, position]))

    def acknowledge_held(self, held: HeldMessage) -> None:
        """Acknowledges the entries of a message that was published to its dead letter topic."""
        part = self._parts[held.part]
        message = held.message
        if message is None or message.batch_size <= 1:
            part.line.hand(AckEvent(part.consumer_id, [*held.pieces, held.position]))
            return
        data = message_id_data(held.position, batch_index=message.batch_index)
        data.batch_size = message.batch_size
        self._acknowledge(part, data, held.pieces)

    def _bury(self, part: MessagePart, held: HeldMessage) -> bool:
        """Publishes a message that was redelivered too often to the dead letters; whether it did so."""
        if self._dead_letters is None or held.message is None:
            return False
        self._dead_letters.take(part, held)
        return True

    def reject(self, held: HeldMessage) -> None:
        """Redelivers the message after the client's delay."""
        now_ms = self._running_ms()
        for position in (*held.pieces, held.position):
            self._rejected.add(held.part, position, now_ms)
        self._watch_time()

    def redeliver(self, part: MessagePart, positions: list[Position]) -> None:
        """Requests the redelivery of entries."""
        body = pb.CommandRedeliverUnacknowledgedMessages(
            consumer_id=part.consumer_id, message_ids=[message_id_data(each) for each in positions]
        )
        kind = _Type.REDELIVER_UNACKNOWLEDGED_MESSAGES
        command = pb.BaseCommand(type=kind, redeliverUnacknowledgedMessages=body)
        part.line.hand(CommandEvent(kind, command))

    async def _unsubscribe(self) -> None:
        for part in self._parts.values():
            await part.line.ask(_Type.UNSUBSCRIBE, pb.CommandUnsubscribe(consumer_id=part.consumer_id))
            self._by_consumer.pop(part.consumer_id, None)

    # -- permits -----------------------------------------------------------------------------------

    def _room(self) -> int:
        """Number of messages that the client may get now."""
        if self.options.pull:
            return min(self._pulled, _HELD_MAX - len(self._unacked))
        return self.options.queue_size - len(self._unacked)

    def _grant(self) -> None:
        """Gives the broker permits only for messages that the client may get now; others stay available."""
        room = self._room() - len(self._ready)
        enough = 1 if self.options.pull else max(1, self.options.queue_size // 2)
        for part in self._parts.values():
            more = room - part.permits
            if more > 0 and part.consumer_id >= 0 and (more >= enough or part.permits <= 0):
                part.permits += more
                part.line.hand(FlowEvent(part.consumer_id, more))

    # -- from the broker ---------------------------------------------------------------------------

    def hear(self, event: ClientEvent) -> None:
        if isinstance(event, MessageEvent):
            part = self._by_consumer.get(event.consumer_id)
            if part is not None:
                self._events.append((part, event))
                part.line.held(len(event.entry))
                self._wake.set()
        elif isinstance(event, CommandEvent) and event.type == _Type.CLOSE_CONSUMER:
            part = self._by_consumer.pop(event.command.close_consumer.consumer_id, None)
            if part is not None:
                self._taken_off(part)
        elif isinstance(event, CommandEvent) and event.type == _Type.REACHED_END_OF_TOPIC:
            part = self._by_consumer.get(event.command.reachedEndOfTopic.consumer_id)
            if part is not None:
                part.ended = True
        elif self._dead_letters is not None:
            self._dead_letters.hear(event)

    def lost(self, line: AskingLine) -> None:
        for part in self._parts.values():
            # One that is being opened learns of it by the answer.
            if part.line is line and self._by_consumer.pop(part.consumer_id, None) is not None:
                self._taken_off(part)
        if self._dead_letters is not None:
            self._dead_letters.lost(line)

    def _taken_off(self, part: MessagePart) -> None:
        """The broker sends again what is not acknowledged, once the part is back."""
        part.consumer_id = ConsumerId(-1)
        dropped = [event for owner, event in self._events if owner is part]
        self._events = deque((owner, event) for owner, event in self._events if owner is not part)
        self._opened_bytes -= sum(each.size_bytes for owner, each in self._ready if owner is part)
        self._ready = deque((owner, each) for owner, each in self._ready if owner is not part)
        part.line.taken(sum(len(event.entry) for event in dropped))
        if not self._reads:
            self._unacked.forget(part.number)
        self.come_back(partial(self._subscribe, part))

    # -- to the client -----------------------------------------------------------------------------

    async def write(self, output: Output) -> None:
        written = 0
        while True:
            while self._answers:
                await output.text(self._answers.popleft())
            if self._end is None and self._room() > 0 and (self._ready or await self._open_next()):
                await self._deliver(output)
                written += 1
                if written % _WRITTEN_MAX == 0:
                    await yield_loop()
                continue
            await self._until_woken()

    async def _open_next(self) -> bool:
        """Opens the next entry with messages for the client; False when there is none."""
        while self._events and not self._ready:
            part, event = self._events.popleft()
            size, line = len(event.entry), part.line
            try:
                opened = await part.opened(event, self._opening)
            except UndeliverableError as error:
                reason = f"{part.topic}: {error}"
                raise SocketEnd(Fault.UNKNOWN.close_code, reason) from error
            finally:
                line.taken(size)
            if event.consumer_id != part.consumer_id:
                continue  # The part was taken off meanwhile: this entry comes again.
            part.permits -= opened.permits
            if opened.discarded or (self._reads and not opened.messages):
                part.line.hand(AckEvent(part.consumer_id, [event.position]))
            self._ready.extend((part, each) for each in opened.messages if self._wants(part, each))
            self._opened_bytes += sum(each.size_bytes for _, each in self._ready)
            self.count_held()
            self._grant()
        return bool(self._ready)

    def _opening(self, size_bytes: int) -> None:
        self._opened_bytes += size_bytes
        self.count_held()

    def count_held(self) -> None:
        """Reports the bytes that this socket holds."""
        letters = 0 if self._dead_letters is None else self._dead_letters.held_bytes
        opened = self._opened_bytes + self._pieces.size_bytes
        self.memory.hold(self, opened + self._unacked.held_bytes + letters)

    def _wants(self, part: MessagePart, message: Incoming) -> bool:
        """Whether the client gets the message: not if it lies before a reader's start, or was redelivered too
        often."""
        if self._reads:
            start = part.seen or (self.options.start, self.options.start_batch_index)
            if message.position == start[0]:
                return 0 <= start[1] < message.batch_index
            return True
        most = self.options.redeliveries_max
        if self._dead_letters is None or most is None or message.redelivery_count <= most:
            return True
        self._dead_letters.take(part, HeldMessage(part.number, message.position, message.pieces, message))
        return False

    async def _deliver(self, output: Output) -> None:
        part, message = self._ready.popleft()
        message_id = documents.message_id(
            message.position,
            partition=part.topic.partition,
            batch_index=message.batch_index,
            batch_size=message.batch_size,
        )
        most = self.options.redeliveries_max
        last = most is not None and message.redelivery_count >= most
        held = HeldMessage(part.number, message.position, message.pieces, message if last else None)
        self._unacked.sent(message_id, held, self._running_ms())
        if self.options.pull:
            self._pulled -= 1
        self._watch_time()
        topic = self._topic_of(part, message)
        if len(message.payload) < BESIDE_BYTES:
            text = documents.delivered(message, message_id, topic)
            with written(text, self._pieces, self.count_held):
                await output.text(text)
        else:
            # Only one piece of its text is in memory at a time.
            await output.pieces(documents.delivered_in_pieces(message, message_id, topic))
        self._opened_bytes -= message.size_bytes
        self.count_held()
        self.messages += 1
        if self._reads:
            part.seen = (message.position, message.batch_index)
            if message.batch_index in (-1, message.batch_size - 1):
                part.line.hand(AckEvent(part.consumer_id, [message.position], cumulative=True))

    def _topic_of(self, part: MessagePart, message: Incoming) -> TopicName | None:
        """Topic of a message; None for consumers of a single topic."""
        if len(self.target.topics) > 1:
            return part.topic
        return part.topic_in(self.lines.home.session, message.position)

    def describe(self) -> dict[str, object]:
        return {
            "remoteConnection": self.peer,
            "subscriptionName": self.subscription,
            "subscriptionType": pb.CommandSubscribe.SubType.Name(self.options.kind),
            "subscriptionMode": "Durable" if self.options.durable else "NonDurable",
            "numberOfMsgDelivered": self.messages,
        }

    # -- time --------------------------------------------------------------------------------------

    def _watch_time(self) -> None:
        times = [
            time_ms for time_ms in (self._unacked.next_ms, self._rejected.next_ms) if time_ms is not None
        ]
        if times:
            self.broker.alarms.after(self, min(times) - self._running_ms(), self._ring)

    def _running_ms(self) -> int:
        """Monotonic time in milliseconds."""
        return int(self.broker.clock.monotonic_ms())

    def _ring(self) -> None:
        now_ms = self._running_ms()
        again = self._rejected.due(now_ms)
        for held in self._unacked.late(now_ms):
            if not self._bury(self._parts[held.part], held):
                again.setdefault(held.part, []).extend((*held.pieces, held.position))
        for number, positions in again.items():
            part = self._parts[number]
            if part.consumer_id >= 0:
                self.redeliver(part, list(dict.fromkeys(positions)))
        self._grant()
        self._wake.set()
        self._watch_time()
