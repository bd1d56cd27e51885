"""The socket of a producer, with one producer of the binary protocol per partition."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from functools import partial
from typing import Final

from magnetar.base.errors import ClientError
from magnetar.base.ids import Position, ProducerId
from magnetar.base.names import TopicName
from magnetar.broker.service import Broker
from magnetar.runtime.tasks import call_later
from magnetar.websocket import documents
from magnetar.websocket.asking_line import AskingLine
from magnetar.websocket.endpoint import Endpoint, Output
from magnetar.websocket.errors import Fault, MessageError
from magnetar.websocket.memory import ByteCount, HeldBytes
from magnetar.websocket.paths import Target
from magnetar.websocket.publishing import Publishing, SocketReceipt
from magnetar.websocket.query_options import ProducerOptions
from magnetar.websocket.routing import Routing
from magnetar.wire import pulsar_pb2 as pb
from magnetar.wire.client import ClientEvent, ReceiptRun
from magnetar.wire.events import CommandEvent, SendRun

_Type = pb.BaseCommand.Type
_PENDING_BYTES_MAX: Final = 8 << 20
"""Bytes of messages without receipts above which the socket is not read: storage is slow, or the topic is
closed."""
_METADATA_BYTES_MAX: Final = 10 << 10
"""Most bytes of an entry besides its payload."""


class _Part:
    """The producer of one topic or partition."""

    def __init__(self, topic: TopicName, publishing: Publishing) -> None:
        self.topic = topic
        self.publishing = publishing
        self.open = False
        self.line: AskingLine | None = None
        """The connection to the topic's broker; None before the first opening."""


class ProducerSocket(Endpoint):
    """One socket."""

    def __init__(
        self, broker: Broker, target: Target, peer: str, memory: HeldBytes, options: ProducerOptions
    ) -> None:
        super().__init__(broker, target, peer, memory)
        self._options = options
        self._topic = target.topics[0]
        self._parts: list[_Part] = []
        self._routing: Routing
        self._unanswered = 0
        """Messages of the client without an answer."""
        self._held = ByteCount()
        """Bytes of entries without receipts, and of unsent batches."""
        self._room = asyncio.Event()
        self._room.set()
        self._flush: asyncio.TimerHandle | None = None

    async def open(self) -> None:
        options = self._options
        count = await self.lines.home.partitions(self._topic)
        names = [self._topic.with_partition(i) for i in range(count)] if count else [self._topic]
        for number, name in enumerate(names, 1):
            publishing = Publishing(
                ProducerId(number),
                self.broker.clock,
                self._held,
                compression=options.compression,
                batch_messages_max=options.batch_messages_max,
                timeout_ms=options.send_timeout_ms,
            )
            self._parts.append(_Part(name, publishing))
        for part in self._parts:
            await self._open(part, again=False)
        # Each socket another one, so that many sockets without keys fill all partitions.
        first = self.broker.ended + len(self.broker.sessions)
        self._routing = Routing(
            len(names), murmur=options.murmur, round_robin=options.round_robin, first=first
        )

    async def _open(self, part: _Part, *, again: bool) -> None:
        publishing = part.publishing
        # A name that the broker chose is shown again: its deduplication and its statistics go on.
        named = publishing.name if again else self._options.name
        body = pb.CommandProducer(
            topic=str(part.topic),
            producer_id=publishing.producer_id,
            producer_name=named or None,
            user_provided_producer_name=bool(self._options.name),
        )
        line = part.line = await self.lines.to(part.topic)
        answer = await line.ask(_Type.PRODUCER, body)
        initial = self._options.initial_sequence_id
        last = answer.last_sequence_id if initial is None else initial
        publishing.opened(answer.producer_name, last, again=again)
        part.open = True
        if again:
            self._hand(part, publishing.unanswered())

    # -- from the client ---------------------------------------------------------------------------

    async def take(self, text: str) -> None:
        await self._room.wait()
        self._unanswered += 1
        self._see_room()
        try:
            message = documents.outgoing_of(text, self.broker.clock.now_ms())
            self._check_size(message)
            part = self._parts[self._routing.partition_of(message.key)]
            self._hand(part, part.publishing.add(message))
            self._count_held()
        except MessageError as error:
            self.answer(documents.not_published(error))
            return
        except ClientError as error:
            # No library for the compression that the client chose.
            self.answer(documents.not_published(MessageError(Fault.UNKNOWN, str(error), message.context)))
            return
        if part.publishing.batch_waits and self._flush is None:
            delay_s = self._options.batch_delay_ms / 1000
            self._flush = call_later(delay_s, self._flush_all)
        self._watch_time()

    def _check_size(self, message: documents.Outgoing) -> None:
        size = len(message.payload)
        most = self.broker.config.message_bytes_max
        beside = sum(len(key) + len(value) for key, value in message.properties.items())
        if size > most or beside + len(message.key or "") > _METADATA_BYTES_MAX + most - size:
            raise MessageError(
                Fault.UNKNOWN, f"the message has {size + beside} bytes; {most} are allowed", message.context
            )

    def _hand(self, part: _Part, runs: Iterable[SendRun]) -> None:
        if part.open and part.line is not None:
            part.line.hand(*runs)

    def _flush_all(self) -> None:
        self._flush = None
        for part in self._parts:
            self._hand(part, part.publishing.flush())
        self._count_held()
        self._watch_time()

    # -- from the broker ---------------------------------------------------------------------------

    def hear(self, event: ClientEvent) -> None:
        if isinstance(event, ReceiptRun):
            part = self._parts[event.producer_id - 1]
            for sequence_id, ledger_id, entry_id in zip(
                event.sequence_ids, event.ledger_ids, event.entry_ids, strict=True
            ):
                self._answer(part, part.publishing.stored(sequence_id, Position(ledger_id, entry_id)))
            self._count_held()
        elif isinstance(event, CommandEvent) and event.type == _Type.SEND_ERROR:
            refusal = event.command.send_error
            part = self._parts[refusal.producer_id - 1]
            self._answer(part, part.publishing.refused(refusal.sequence_id, refusal.message))
            self._count_held()
        elif isinstance(event, CommandEvent) and event.type == _Type.CLOSE_PRODUCER:
            self._taken_off(self._parts[event.command.close_producer.producer_id - 1])

    def lost(self, line: AskingLine) -> None:
        for part in self._parts:
            # One that is being opened learns of it by the answer.
            if part.open and part.line is line:
                self._taken_off(part)

    def _taken_off(self, part: _Part) -> None:
        part.open = False
        self.come_back(partial(self._open, part, again=True))

    def _answer(self, part: _Part, receipts: list[SocketReceipt]) -> None:
        for receipt in receipts:
            if receipt.position is None:
                error = MessageError(Fault.UNKNOWN, receipt.reason, receipt.context)
                self.answer(documents.not_published(error))
                continue
            self.messages += 1
            message_id = documents.message_id(
                receipt.position,
                partition=part.topic.partition,
                batch_index=receipt.batch_index,
                batch_size=receipt.batch_size,
            )
            self.answer(documents.published(message_id, receipt.context))

    # -- to the client -----------------------------------------------------------------------------

    async def write(self, output: Output) -> None:
        while True:
            while self._answers:
                await output.text(self._answers.popleft())
                self._unanswered -= 1
                self._see_room()
            await self._until_woken()

    def describe(self) -> dict[str, object]:
        return {"remoteConnection": self.peer, "numberOfMsgPublished": self.messages}

    # -- time --------------------------------------------------------------------------------------

    def _watch_time(self) -> None:
        times = [part.publishing.late_in_ms for part in self._parts]
        known = [ms for ms in times if ms is not None]
        if known:
            self.broker.alarms.after(self, min(known), self._ring)

    def _ring(self) -> None:
        for part in self._parts:
            self._answer(part, part.publishing.late())
        self._count_held()
        self._watch_time()

    # -- bounds ------------------------------------------------------------------------------------

    def _count_held(self) -> None:
        self.memory.hold(self, self._held.size_bytes)
        self._see_room()

    def _see_room(self) -> None:
        if self._unanswered < self._options.pending_max and self._held.size_bytes <= _PENDING_BYTES_MAX:
            self._room.set()
        else:
            self._room.clear()

    async def close(self) -> None:
        if self._flush is not None:
            self._flush.cancel()
        # The client's accepted messages are sent, though it gets no answer any more.
        self._flush_all()
        await super().close()
