"""The notices of topics and subscriptions to a client, as frames (pure)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path

from magnetar.base.ids import ConsumerId, Position, ProducerId
from magnetar.broker.listeners import NOWHERE
from magnetar.broker.session.transport import Transport
from magnetar.broker.subscription.any_subscription import AttachedConsumer
from magnetar.broker.topic.any_topic import AnyTopic
from magnetar.broker.topic.producer import Producer
from magnetar.wire import commands
from magnetar.wire import pulsar_pb2 as pb
from magnetar.wire.receipts import encode_duplicate_receipt, encode_receipts, encode_unstored_receipts


class Replies(ABC):
    """Replies of a session, which decides where frames are written."""

    _transport: Transport

    @abstractmethod
    def reply(self, frame: bytes) -> None:
        """Sends a frame, unless the connection is closed."""

    def hand_over(self, place: Path) -> None:
        """The client goes to the process that receives sockets at `place`; see `Transport`."""
        self._transport.hand_over(place)

    def receipts(
        self,
        producer: Producer,
        sequence_ids: list[int],
        highest_ids: list[int] | None,
        position: Position | None,
    ) -> None:
        if position is not None:
            ledger_id, entry_id = position
            self.reply(encode_receipts(producer.producer_id, sequence_ids, highest_ids, ledger_id, entry_id))
            return
        for i, sequence_id in enumerate(sequence_ids):
            highest = None if highest_ids is None else highest_ids[i]
            self.reply(encode_duplicate_receipt(producer.producer_id, sequence_id, highest))

    def unstored_receipts(
        self, producer: Producer, sequence_ids: list[int], highest_ids: list[int] | None
    ) -> None:
        self.reply(encode_unstored_receipts(producer.producer_id, sequence_ids, highest_ids))

    def send_errors(
        self, producer: Producer, sequence_ids: list[int], code: pb.ServerError, message: str
    ) -> None:
        for sequence_id in sequence_ids:
            self.reply(commands.send_error(producer.producer_id, sequence_id, code, message))

    def producer_closed(self, producer_id: ProducerId, attached: tuple[AnyTopic, Producer] | None) -> None:
        """A producer was closed here; its client is told where the topic goes, if that is known."""
        to = NOWHERE if attached is None else attached[0].assigned
        self.reply(commands.close_producer(producer_id, url=to.plain, url_tls=to.tls))

    def consumer_closed(self, consumer_id: ConsumerId, topic: AnyTopic | None) -> None:
        """A consumer of the topic was closed here; see `producer_closed`."""
        to = NOWHERE if topic is None else topic.assigned
        self.reply(commands.close_consumer(consumer_id, url=to.plain, url_tls=to.tls))

    def active_changed(self, consumer: AttachedConsumer, *, active: bool) -> None:
        self.reply(commands.active_consumer_change(consumer.consumer_id, active=active))
