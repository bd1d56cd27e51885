"""Clients of transactions over a broker on fakes."""

from __future__ import annotations

from typing import Any, Final

from magnetar.base.ids import Position
from magnetar.broker.config import BrokerConfig
from magnetar.broker.service import Broker
from magnetar.broker.transactions.header_log import fold
from magnetar.broker.transactions.ids import TxnId
from magnetar.broker.transactions.kept_log import records_of
from magnetar.metadata.store import MetadataStore
from magnetar.wire import pulsar_pb2 as pb
from magnetar.wire.commands import message_id_data
from magnetar.wire.frames import encode_command
from support.seen import Type
from support.sessions import TOPIC, Peer, World, encode_payload, entry, send

ON: Final = BrokerConfig(transactions=True)


class TxnPeer:
    """A client that begins transactions; numbers its requests itself."""

    def __init__(self, peer: Peer) -> None:
        self.peer = peer
        self._requests = 1_000

    def request(self) -> int:
        self._requests += 1
        return self._requests

    async def begin(self, ttl_ms: int = 60_000, coordinator: int = 0) -> TxnId:
        answer = await self.peer.ask(
            Type.NEW_TXN, request_id=self.request(), txn_ttl_seconds=ttl_ms, tc_id=coordinator
        )
        assert not answer.HasField("error"), answer
        return TxnId(answer.txnid_most_bits, answer.txnid_least_bits)

    async def add_partitions(self, txn: TxnId, *topics: str) -> Any:
        return await self.peer.ask(
            Type.ADD_PARTITION_TO_TXN,
            request_id=self.request(),
            txnid_most_bits=txn.coordinator,
            txnid_least_bits=txn.sequence,
            partitions=topics or (TOPIC,),
        )

    async def add_subscription(self, txn: TxnId, topic: str = TOPIC, subscription: str = "s") -> Any:
        return await self.peer.ask(
            Type.ADD_SUBSCRIPTION_TO_TXN,
            request_id=self.request(),
            txnid_most_bits=txn.coordinator,
            txnid_least_bits=txn.sequence,
            subscription=[pb.Subscription(topic=topic, subscription=subscription)],
        )

    async def end(self, txn: TxnId, *, commit: bool) -> Any:
        return await self.peer.ask(
            Type.END_TXN,
            request_id=self.request(),
            txnid_most_bits=txn.coordinator,
            txnid_least_bits=txn.sequence,
            txn_action=pb.COMMIT if commit else pb.ABORT,
        )

    async def commit(self, txn: TxnId) -> None:
        answer = await self.end(txn, commit=True)
        assert not answer.HasField("error"), answer

    async def abort(self, txn: TxnId) -> None:
        answer = await self.end(txn, commit=False)
        assert not answer.HasField("error"), answer

    def send(self, txn: TxnId, sequence_id: int, body: bytes, producer_id: int = 1) -> None:
        """A SEND whose entry does not name the transaction, as of the Go client."""
        command = pb.BaseCommand(
            type=Type.SEND,
            send=pb.CommandSend(
                producer_id=producer_id,
                sequence_id=sequence_id,
                txnid_most_bits=txn.coordinator,
                txnid_least_bits=txn.sequence,
            ),
        )
        self.peer.send(encode_payload(command, entry(body, sequence_id)))

    async def publish(self, txn: TxnId, sequence_id: int, body: bytes, producer_id: int = 1) -> Position:
        """The same, once it is durable."""
        self.send(txn, sequence_id, body, producer_id)
        peer = self.peer

        def receipt() -> Position | None:
            return next(
                (at for by, number, at in peer.receipts if (by, number) == (producer_id, sequence_id)), None
            )

        found = await peer.world.until(receipt, f"receipt of {sequence_id}")
        assert isinstance(found, Position)
        return found

    async def ack(
        self,
        txn: TxnId,
        *positions: Position,
        consumer_id: int = 1,
        cumulative: bool = False,
        ack_set: tuple[int, ...] = (),
        batch_size: int = 0,
    ) -> Any:
        """Acknowledges in the transaction; the ACK_RESPONSE."""
        ids = []
        for position in positions:
            data = message_id_data(position)
            data.ack_set.extend(ack_set)
            if batch_size:
                data.batch_size = batch_size
            ids.append(data)
        request_id = self.request()
        ack = pb.CommandAck(
            consumer_id=consumer_id,
            ack_type=pb.CommandAck.Cumulative if cumulative else pb.CommandAck.Individual,
            message_id=ids,
            txnid_most_bits=txn.coordinator,
            txnid_least_bits=txn.sequence,
            request_id=request_id,
        )
        self.peer.send(encode_command(pb.BaseCommand(type=Type.ACK, ack=ack)))
        return await self.peer.answer(request_id)


async def opened(world: World, *, kind: str = "Exclusive", permits: int = 100, messages: int = 0) -> TxnPeer:
    """A client with a producer and a consumer of the topic, which got this many messages outside of
    transactions."""
    peer = world.peer()
    await peer.producer()
    await peer.consumer(permits=permits, kind=kind)
    peer.send(*(send(1, number) for number in range(messages)))
    await world.until(lambda: len(peer.messages) == messages, "messages")
    return TxnPeer(peer)


async def headers_in(store: MetadataStore) -> dict[TxnId, bytes]:
    """Headers as the log has them."""
    return fold([lines async for _, lines in records_of(store)])


def bodies(peer: Peer, consumer_id: int = 1) -> list[bytes]:
    """What a consumer got."""
    messages = [each for each in peer.messages if each.consumer_id == consumer_id]
    return [each.entry[each.payload_at :] for each in messages]


async def restarted(world: World, config: BrokerConfig = ON) -> None:
    """Another process on the same metadata and ledgers, after this one has ended in order."""
    await world.broker.drain()
    await world.broker.close()
    world.broker = Broker(config=config, store=world.store, logs=world.logs, clock=world.clock)
    await world.start()
