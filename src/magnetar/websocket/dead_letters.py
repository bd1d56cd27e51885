"""Publishes messages that were redelivered too often to a dead letter topic, with the client's own rights.

Source: dead letter policies of Pulsar's clients: the topic's name, and the properties with the original
place.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final, Protocol

from magnetar.base.ids import ProducerId
from magnetar.base.names import TopicName
from magnetar.websocket.deliveries import Incoming
from magnetar.websocket.errors import WebSocketError
from magnetar.websocket.unacked import HeldMessage
from magnetar.wire import payload
from magnetar.wire import pulsar_pb2 as pb
from magnetar.wire.client import ReceiptRun
from magnetar.wire.events import CommandEvent, SendRun

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from magnetar.broker.ports import BrokerPort
    from magnetar.websocket.asking_line import AskingLine
    from magnetar.websocket.lines import SocketLines
    from magnetar.websocket.parts import MessagePart
    from magnetar.websocket.query_options import ConsumerOptions

_log = logging.getLogger("magnetar.websocket")

_Type = pb.BaseCommand.Type

_REAL_TOPIC: Final = "REAL_TOPIC"
_ORIGIN: Final = "ORIGIN_MESSAGE_ID"


class _Grave:
    """The producer on one dead letter topic."""

    def __init__(
        self, line: AskingLine, topic: TopicName, producer_id: ProducerId, name: str, next_id: int
    ) -> None:
        self.line = line
        self.topic = topic
        self.producer_id = producer_id
        self.name = name
        self.next_id = next_id
        self.waiting: dict[int, tuple[MessagePart, HeldMessage]] = {}
        """Messages without a receipt, by sequence id."""


class LettersSocket(Protocol):
    """The socket whose messages go to dead letters: `consuming.py` `ConsumerSocket`."""

    @property
    def broker(self) -> BrokerPort: ...

    @property
    def lines(self) -> SocketLines: ...

    @property
    def options(self) -> ConsumerOptions: ...

    @property
    def subscription(self) -> str: ...

    def spawn(self, work: Coroutine[object, object, None]) -> None: ...

    def count_held(self) -> None: ...

    def acknowledge_held(self, held: HeldMessage) -> None: ...

    def reject(self, held: HeldMessage) -> None: ...


class SocketDeadLetters:
    """The dead letters of one socket. A message is acknowledged in its topic once it is stored in the dead
    letter topic."""

    def __init__(self, socket: LettersSocket) -> None:
        self._socket = socket
        self._graves: dict[TopicName, _Grave] = {}
        self._by_id: dict[int, _Grave] = {}
        self._last_id = 0
        self.held_bytes = 0
        """Bytes of messages without a receipt."""

    def take(self, part: MessagePart, held: HeldMessage) -> None:
        """Publishes a message to the dead letter topic; when that fails, it is redelivered."""
        self.held_bytes += held.size_bytes
        self._socket.count_held()
        self._socket.spawn(self._bury(part, held))

    def hear(self, event: object) -> None:
        """Handles the broker's answers to the producers."""
        if isinstance(event, ReceiptRun):
            grave = self._by_id.get(event.producer_id)
            for sequence_id in event.sequence_ids if grave is not None else ():
                assert grave is not None
                _, held = grave.waiting.pop(sequence_id)
                self.held_bytes -= held.size_bytes
                self._socket.acknowledge_held(held)
            self._socket.count_held()
        elif isinstance(event, CommandEvent) and event.type == _Type.SEND_ERROR:
            refusal = event.command.send_error
            grave = self._by_id.get(refusal.producer_id)
            if grave is not None:
                self._reject(grave.waiting.pop(refusal.sequence_id)[1])
        elif isinstance(event, CommandEvent) and event.type == _Type.CLOSE_PRODUCER:
            self._close(self._by_id.pop(event.command.close_producer.producer_id, None))

    def lost(self, line: AskingLine) -> None:
        """Another broker has ended this connection."""
        for producer_id, grave in list(self._by_id.items()):
            if grave.line is line:
                self._close(self._by_id.pop(producer_id))

    def _close(self, grave: _Grave | None) -> None:
        if grave is None:
            return
        # Another producer may have taken its place meanwhile.
        if self._graves.get(grave.topic) is grave:
            del self._graves[grave.topic]
        for _, held in grave.waiting.values():
            self._reject(held)

    def _reject(self, held: HeldMessage) -> None:
        self.held_bytes -= held.size_bytes
        self._socket.count_held()
        self._socket.reject(held)

    async def _bury(self, part: MessagePart, held: HeldMessage) -> None:
        try:
            grave = await self._grave_of(part)
        except WebSocketError as error:
            _log.warning("%s: a message cannot be sent to its dead letter topic: %s", part.topic, error)
            self._reject(held)
            return
        number = grave.next_id
        grave.next_id += 1
        grave.waiting[number] = (part, held)
        assert held.message is not None
        entry = self._entry(part, held.message, grave.name, number)
        run = SendRun(grave.producer_id)
        run.add(number, 1, None, entry, good=True)
        run.size_bytes = len(entry)
        grave.line.hand(run)

    async def _grave_of(self, part: MessagePart) -> _Grave:
        lines = self._socket.lines
        named = self._socket.options.dead_letter_topic
        topic = TopicName.parse(named or f"{part.topic.base}-{self._socket.subscription}-DLQ")
        if await lines.home.partitions(topic):
            topic = topic.with_partition(0)
        grave = self._graves.get(topic)
        if grave is None:
            self._last_id += 1
            producer_id = ProducerId(self._last_id)
            body = pb.CommandProducer(topic=str(topic), producer_id=producer_id)
            line = await lines.to(topic)
            answer = await line.ask(_Type.PRODUCER, body)
            grave = _Grave(line, topic, producer_id, answer.producer_name, answer.last_sequence_id + 1)
            # Another message may have opened a producer meanwhile; both may stay.
            self._graves[topic] = self._by_id[producer_id] = grave
        return grave

    def _entry(self, part: MessagePart, message: Incoming, name: str, number: int) -> bytes:
        metadata = pb.MessageMetadata(
            producer_name=name, sequence_id=number, publish_time=self._socket.broker.clock.now_ms()
        )
        if message.key is not None:
            metadata.partition_key = message.key
            metadata.partition_key_b64_encoded = message.key_is_base64
        if message.event_ms:
            metadata.event_time = message.event_ms
        ledger_id, entry_id = message.position
        origin = f"{ledger_id}:{entry_id}:{part.topic.partition}"
        if message.batch_index >= 0:
            origin += f":{message.batch_index}"
        told = {_REAL_TOPIC: str(part.topic), _ORIGIN: origin}
        for key, value in {**told, **message.properties}.items():
            metadata.properties.add(key=key, value=value)
        return payload.build_entry(metadata, message.payload)
