"""Ledgers of a topic with messages of committed and aborted transactions, and of none."""

from __future__ import annotations

from collections.abc import Sequence

from magnetar.base.names import TopicName
from magnetar.client.client import Client
from magnetar.client.producer import Producer
from magnetar.client.transactions import Coordinator
from magnetar.wire import pulsar_pb2 as pb
from magnetar.wire.events import TxnBits
from magnetar.wire.payload import build_entry
from support.history_topics import HistoryTopic

STORIES: tuple[tuple[bool | None, ...], ...] = (
    (None, False, True, False, None),
    (False, False),
    (False, True, None, False),
)
"""Three ledgers: all kinds, nothing but aborted messages, and such at both ends."""


class Writer:
    """Sends messages that tell how their transaction ends, and notes those that readers are to get."""

    def __init__(self, client: Client, topic: str) -> None:
        self._name = TopicName.parse(topic)
        self._coordinator = Coordinator(client)
        self._producer = Producer(client, self._name)
        self._sent = 0
        self.kept: list[bytes] = []

    def begin(self) -> TxnBits:
        """A transaction that publishes to the topic."""
        txn = self._coordinator.begin(600)
        self._coordinator.add_topic(txn, self._name)
        return txn

    def end(self, txn: TxnBits, *, commit: bool) -> None:
        """Ends it."""
        self._coordinator.end(txn, commit=commit)

    def publish(self, count: int, txn: TxnBits | None, *, kept: bool) -> None:
        """Messages of a transaction, or of none."""
        for _ in range(count):
            body = b"%d %s" % (self._sent, b"kept" if kept else b"ABORTED")
            metadata = pb.MessageMetadata(
                producer_name="p",
                sequence_id=self._sent,
                publish_time=1_700_000_000_000 + self._sent,
                event_time=1 + self._sent,
                partition_key=f"key {self._sent % 3}",
            )
            self._producer.send(self._sent, build_entry(metadata, body), txn=txn)
            self._sent += 1
            if kept:
                self.kept.append(body)
        self._producer.flush()

    def send(self, count: int, *, commit: bool | None) -> None:
        """One transaction; `commit` None: messages of none."""
        txn = None if commit is None else self.begin()
        self.publish(count, txn, kept=commit is not False)
        if txn is not None:
            assert commit is not None
            self.end(txn, commit=commit)

    def close(self) -> None:
        self._producer.close()
        self._coordinator.close()


def write_ledgers(history: HistoryTopic, stories: Sequence[Sequence[bool | None]] = STORIES) -> list[bytes]:
    """A ledger for each story, four messages for each of its parts; what readers are to get."""
    kept: list[bytes] = []
    with Client(history.process.broker_url) as client:
        for story in stories:
            writer = Writer(client, history.topic)
            for commit in story:
                writer.send(4, commit=commit)
            kept += writer.kept
            writer.close()
            history.process.admin("PUT", f"{history.path}/unload")
    return kept
