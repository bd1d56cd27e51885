"""Transforms messages of one topic by a function and publishes the results to another topic, exactly once.

Each round is one transaction: the acknowledgements and the results of a round take effect together, or not at
all, also when the program or the broker is killed or the connection breaks.

    with Client("pulsar://localhost:6650") as client:
        transform(client, "orders", "shipping", "parcels", lambda order: [pack(order.value)])

A killed program leaves its transaction open. When the time of the transaction is over, its messages are
delivered again, to the same or another program.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from magnetar.base.closing import Closing
from magnetar.base.errors import ClientError
from magnetar.base.ids import Position
from magnetar.base.names import TopicName
from magnetar.client.client import Client
from magnetar.client.compression import decompress
from magnetar.client.consumer import EntryConsumer
from magnetar.client.deliveries import EntryColumns
from magnetar.client.errors import PayloadError, RefusedError
from magnetar.client.producer import Producer, SendFailedError
from magnetar.client.retry import Retry
from magnetar.client.transactions import Coordinator
from magnetar.wire import pulsar_pb2 as pb
from magnetar.wire.events import TxnBits
from magnetar.wire.payload import (
    EntryError,
    build_entry,
    entry_layout,
    is_batch,
    parse_metadata,
    split_batch,
)

_ROUND_S: Final = 0.25
_OVER: Final = frozenset((pb.ServerError.InvalidTxnStatus, pb.ServerError.TransactionNotFound))
"""Answers to END_TXN for a transaction that has ended already, for example by its timeout."""
_AGAIN: Final = _OVER | {pb.ServerError.TransactionConflict, pb.ServerError.ConsumerNotFound}
"""Refusals after which the round begins again. Its transaction is over; another consumer has taken a message,
which does not come again; or the topic is being unloaded."""
_SENDS_AGAIN: Final = frozenset(
    (pb.ServerError.NotAllowedError, pb.ServerError.ServiceNotReady, pb.ServerError.PersistenceError)
)
"""The same for a message. With the first one a topic refuses those of a transaction that is over."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One message of the source topic."""

    value: bytes
    key: str | None
    properties: Mapping[str, str]
    position: Position


Work = Callable[[Message], Iterable[bytes]]


@dataclass(frozen=True, slots=True, kw_only=True)
class TransformLimits:
    """Limits of one transaction."""

    entries: int = 100
    """Most entries that one transaction takes. Default 100."""
    ttl_s: float = 60.0
    """Seconds after which the broker aborts the transaction; a round must not take longer. Default 60."""


_DEFAULT: Final = TransformLimits()


def transform(
    client: Client,
    source: str,
    subscription: str,
    target: str,
    work: Work,
    *,
    limits: TransformLimits = _DEFAULT,
    idle_s: float | None = None,
) -> int:
    """Calls `work` with each message of `source`, and publishes the entries that it returns to `target`.
    Returns the number of messages when none came for `idle_s` seconds; with None it never returns.

    The topics must not be partitioned; a single partition is allowed. `work` may be called again for a
    message whose transaction failed, so it must have no other effects. An exception of `work` aborts the
    transaction and is raised. After a lost connection, and where the broker ended the transaction or
    unloads a topic, the round begins again, until the retry limit of the client's options.

    Raises RefusedError, UnreachableError, PayloadError.
    """
    names = TopicName.parse(source), TopicName.parse(target)
    rounds = _Rounds(client, names, subscription, work, limits)
    retry: Retry | None = None
    with rounds:
        quiet_since_s = time.monotonic()
        while idle_s is None or time.monotonic() - quiet_since_s < idle_s:
            try:
                if rounds.once():
                    quiet_since_s = time.monotonic()
                retry = None
            except ClientError as error:
                rounds.close()
                error.retriable = error.retriable or _begins_again(error)
                retry = retry or Retry(client.options.retry_timeout_s)
                retry.pause_or_raise(error)
                quiet_since_s = time.monotonic()
    return rounds.done


def _begins_again(error: ClientError) -> bool:
    if isinstance(error, SendFailedError):
        return error.code in _SENDS_AGAIN
    return isinstance(error, RefusedError) and error.code in _AGAIN


class _Rounds(Closing):
    """The open connections, and the transaction whose outcome is not known."""

    def __init__(
        self,
        client: Client,
        names: tuple[TopicName, TopicName],
        subscription: str,
        work: Work,
        limits: TransformLimits,
    ) -> None:
        self.done = 0
        """Number of messages whose transactions are committed."""
        self._client, self._subscription = client, subscription
        self._source, self._target = names
        self._work, self._limits = work, limits
        self._consumer: EntryConsumer | None = None
        self._producer: Producer | None = None
        self._coordinator: Coordinator | None = None
        self._open: TxnBits | None = None
        self._ending = 0
        """Number of messages of the open transaction whose commit was requested."""
        self._sequence = 0
        self._taken = EntryColumns()

    def close(self) -> None:
        for each in (self._consumer, self._producer, self._coordinator):
            if each is not None:
                each.close()
        self._consumer = self._producer = self._coordinator = None
        self._taken = EntryColumns()

    def once(self) -> bool:
        """Does one round; False when no message came."""
        if self._coordinator is None:
            self._coordinator = Coordinator(self._client)
        coordinator = self._coordinator
        if self._open is not None:
            self._resolve(coordinator)
        if self._consumer is None:
            self._producer = Producer(self._client, self._target)
            self._consumer = EntryConsumer(self._client, self._source, self._subscription)
            self._consumer.ask(2 * self._limits.entries)
        if not len(self._taken):
            self._taken = self._consumer.read(_ROUND_S)
        if not len(self._taken):
            return False
        now = self._taken.slice(0, min(self._limits.entries, len(self._taken)))
        self._taken = self._taken.slice(len(now), len(self._taken))
        self._transact(coordinator, now)
        return True

    def _resolve(self, coordinator: Coordinator) -> None:
        """Ends the transaction that a lost connection left: commits it if its commit was requested, else
        aborts it."""
        assert self._open is not None
        try:
            coordinator.end(self._open, commit=bool(self._ending))
            self.done += self._ending
        except RefusedError as error:
            if error.code not in _OVER:
                raise
        self._open, self._ending = None, 0

    def _transact(self, coordinator: Coordinator, taken: EntryColumns) -> None:
        consumer, producer = self._consumer, self._producer
        assert consumer is not None
        assert producer is not None
        txn = self._open = coordinator.begin(self._limits.ttl_s)
        coordinator.add_topic(txn, self._target)
        coordinator.add_subscription(txn, self._source, self._subscription)
        messages = 0
        try:
            for message in messages_of(self._source, taken):
                messages += 1
                for value in self._work(message):
                    self._send(producer, txn, value)
        except BaseException:
            coordinator.end(txn, commit=False)
            self._open = None
            raise
        producer.flush()
        consumer.acknowledge([taken.position(row) for row in range(len(taken))], txn)
        self._ending = messages
        coordinator.end(txn, commit=True)
        self.done += messages
        self._open, self._ending = None, 0
        consumer.ask(messages)

    def _send(self, producer: Producer, txn: TxnBits, value: bytes) -> None:
        metadata = pb.MessageMetadata(
            producer_name=producer.name,
            sequence_id=self._sequence,
            publish_time=time.time_ns() // 1_000_000,
            txnid_most_bits=txn[0],
            txnid_least_bits=txn[1],
        )
        producer.send(self._sequence, build_entry(metadata, value), txn=txn)
        self._sequence += 1


def messages_of(topic: TopicName, columns: EntryColumns) -> Iterator[Message]:
    """The messages of these entries, decompressed. Raises PayloadError for entries that cannot be read."""
    for row, entry in enumerate(columns.entries):
        position = columns.position(row)
        try:
            yield from _messages(topic, position, entry)
        except EntryError as error:
            raise PayloadError(f"entry {position} of {topic} cannot be read: {error}") from error


def _messages(topic: TopicName, position: Position, entry: bytes) -> Iterator[Message]:
    _, metadata_at, payload_at = entry_layout(entry)
    metadata = parse_metadata(entry[metadata_at:payload_at])
    if metadata.encryption_keys or metadata.num_chunks_from_msg > 1:
        raise PayloadError(f"entry {position} of {topic} is encrypted, or a piece of a large message")
    payload = entry[payload_at:]
    if metadata.compression != pb.CompressionType.NONE:
        payload = decompress(metadata.compression, payload, metadata.uncompressed_size, topic)
    if is_batch(metadata):
        for single, view in split_batch(payload, metadata.num_messages_in_batch):
            yield _message(single, bytes(view), position)
    else:
        yield _message(metadata, payload, position)


def _message(
    said: pb.MessageMetadata | pb.SingleMessageMetadata, value: bytes, position: Position
) -> Message:
    key: str | None = said.partition_key if said.HasField("partition_key") else None
    properties = {pair.key: pair.value for pair in said.properties}
    return Message(value=value, key=key, properties=properties, position=position)
