"""A consumer of a durable subscription: takes entries and acknowledges them. Blocking.

For sequential programs that inspect messages; applications use an official client.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from magnetar.base.closing import Closing
from magnetar.base.ids import ConsumerId, Position
from magnetar.base.names import TopicName
from magnetar.client.client import Client
from magnetar.client.deliveries import DeliveryReader, EntryColumns
from magnetar.client.errors import RefusedError, UnreachableError
from magnetar.wire import pulsar_pb2 as pb
from magnetar.wire.acks import encode_ack, encode_flow
from magnetar.wire.commands import PONG, message_id_data
from magnetar.wire.events import TxnBits
from magnetar.wire.frames import encode_command

_Type = pb.BaseCommand.Type
_CONSUMER_ID: Final = ConsumerId(1)


class EntryConsumer(Closing):
    """One consumer with its own connection."""

    def __init__(
        self,
        client: Client,
        topic: TopicName,
        subscription: str,
        *,
        kind: str = "Shared",
        earliest: bool = True,
        create_topic: bool = False,
        properties: Mapping[str, str] | None = None,
    ) -> None:
        """Opens the consumer; the subscription is created when there is none.

        Args:
            kind: Exclusive, Shared, Failover or Key_Shared.
            earliest: whether a new subscription begins with the first message; else with the next one.
            create_topic: whether a missing topic is created, if the broker allows automatic creation.
            properties: what the statistics of the topic say of the consumer.

        The broker sends no message before `ask`. Raises RefusedError, UnreachableError, RequestTimeoutError.
        """
        self.topic = topic
        self.subscription = subscription
        self._connection = client.connect_to(topic)
        self._deliveries = DeliveryReader(str(topic))
        session = self._connection.session
        session.deliver_to(_CONSUMER_ID, self._deliveries)
        request_id = session.next_request_id()
        position = pb.CommandSubscribe.Earliest if earliest else pb.CommandSubscribe.Latest
        body = pb.CommandSubscribe(
            topic=str(topic),
            subscription=subscription,
            subType=kind,
            consumer_id=_CONSUMER_ID,
            request_id=request_id,
            durable=True,
            initialPosition=position,
            force_topic_creation=create_topic,
            metadata=[pb.KeyValue(key=key, value=value) for key, value in (properties or {}).items()],
        )
        try:
            self._connection.call(
                pb.BaseCommand(type=_Type.SUBSCRIBE, subscribe=body),
                request_id,
                f"subscription {subscription!r} of {topic}",
            )
        except BaseException:
            self.close()
            raise

    def ask(self, messages: int) -> None:
        """Gives the broker permits for `messages` further messages."""
        self._connection.write(encode_flow(_CONSUMER_ID, messages))

    def read(self, timeout_s: float) -> EntryColumns:
        """The entries that have arrived; waits up to `timeout_s` seconds for the first. Empty when none came.

        Raises UnreachableError, PayloadError.
        """
        if not len(self._deliveries.columns):
            if self._connection.session.is_consumer_closed(_CONSUMER_ID):
                raise UnreachableError(str(self._connection.url), f"the broker let go of {self.topic}")
            self._connection.read(timeout_s)
        return self._deliveries.fetch()

    def fileno(self) -> int:
        """Descriptor of the socket, for `select`; -1 when it is closed."""
        return self._connection.fileno()

    def has_data(self) -> bool:
        """Whether `read` would find something without waiting."""
        return self._connection.has_data()

    def acknowledge_soon(self, positions: Sequence[Position]) -> None:
        """Acknowledges whole entries without waiting for the broker. When the connection is lost, they may be
        delivered again. Raises UnreachableError."""
        if positions:
            self._connection.write(encode_ack(_CONSUMER_ID, positions))

    def keep(self) -> None:
        """Tells the broker that this side is there, while nothing is read. Raises UnreachableError."""
        self._connection.write(PONG)

    def acknowledge(self, positions: Sequence[Position], txn: TxnBits | None = None) -> None:
        """Acknowledges whole entries, in the transaction `txn` if it is given; returns when the broker has
        confirmed it.

        Raises RefusedError.
        """
        if not positions:
            return
        request_id = self._connection.session.next_request_id()
        what = f"acknowledgement in {self.subscription!r}"
        if txn is None:
            ack = encode_ack(_CONSUMER_ID, positions, request_id=request_id)
        else:
            body = pb.CommandAck(
                consumer_id=_CONSUMER_ID,
                ack_type=pb.CommandAck.Individual,
                message_id=map(message_id_data, positions),
                txnid_most_bits=txn[0],
                txnid_least_bits=txn[1],
                request_id=request_id,
            )
            ack = encode_command(pb.BaseCommand(type=_Type.ACK, ack=body))
        answer = self._connection.request(request_id, ack, what).ackResponse
        if answer.HasField("error"):
            raise RefusedError(what, answer.error, answer.message)

    def close(self) -> None:
        """Ends the consumer; entries that are not acknowledged are delivered again."""
        self._connection.close()
