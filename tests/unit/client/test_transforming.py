"""Entries as messages for programs that transform them, and SENDs of a transaction."""

from __future__ import annotations

import pytest

from magnetar.base.errors import ClientError, MagnetarError
from magnetar.base.ids import LedgerId, Position, ProducerId
from magnetar.base.names import TopicName
from magnetar.client import transforming
from magnetar.client.client import Client
from magnetar.client.deliveries import EntryColumns
from magnetar.client.errors import PayloadError, RefusedError
from magnetar.client.producer import SendFailedError
from magnetar.client.retry import Retry
from magnetar.client.transforming import messages_of, transform
from magnetar.wire import pulsar_pb2 as pb
from magnetar.wire.client import encode_send
from magnetar.wire.events import SendRun
from magnetar.wire.payload import build_entry
from magnetar.wire.server import ServerParser

TOPIC = TopicName.parse("t")


def columns(*entries: bytes) -> EntryColumns:
    found = EntryColumns()
    for number, entry in enumerate(entries):
        found.add(LedgerId(3), number, entry, -1, -1)
    return found


def metadata(**more: object) -> pb.MessageMetadata:
    return pb.MessageMetadata(producer_name="p", sequence_id=0, publish_time=1, **more)  # type: ignore[arg-type]  # any field


def test_single_messages_and_batches() -> None:
    properties = [pb.KeyValue(key="a", value="b")]
    single = build_entry(metadata(partition_key="k", properties=properties), b"one")
    payload = b""
    for value in (b"two", b"three"):
        head = pb.SingleMessageMetadata(payload_size=len(value), partition_key="in").SerializeToString()
        payload += len(head).to_bytes(4, "big") + head + value
    found = list(messages_of(TOPIC, columns(single, build_entry(metadata(num_messages_in_batch=2), payload))))
    assert [(each.value, each.key) for each in found] == [(b"one", "k"), (b"two", "in"), (b"three", "in")]
    assert found[0].properties == {"a": "b"}
    assert [each.position for each in found] == [Position(3, 0), Position(3, 1), Position(3, 1)]


def test_what_cannot_be_given_to_a_function_is_refused() -> None:
    for entry in (
        build_entry(metadata(num_chunks_from_msg=2, chunk_id=0), b"piece"),
        build_entry(metadata(encryption_keys=[pb.EncryptionKeys(key="k", value=b"v")]), b"secret"),
        b"no entry",
    ):
        with pytest.raises(PayloadError):
            list(messages_of(TOPIC, columns(entry)))


class Broker:
    """What the program asks of it, in order, and the errors that it answers with."""

    def __init__(self, at: str, *errors: ClientError) -> None:
        self.asked: list[str] = []
        self._at, self._errors = at, list(errors)
        self._given = False

    def asks(self, what: str) -> None:
        self.asked.append(what)
        if what == self._at and self._errors:
            raise self._errors.pop()

    # Coordinator, producer and consumer in one: each has its own methods of these.

    def begin(self, ttl_s: float) -> tuple[int, int]:
        self.asks("begin")
        return 0, self.asked.count("begin")

    def add_topic(self, txn: object, topic: object) -> None:
        """It may be used in the transaction."""

    def add_subscription(self, txn: object, topic: object, subscription: str) -> None:
        """It may be used in the transaction."""

    def end(self, txn: object, *, commit: bool) -> None:
        self.asks("commit" if commit else "abort")
        self._given = self._given or commit

    name = "p"

    def send(self, sequence_id: int, entry: bytes, *, txn: object) -> None:
        """It is sent."""

    def flush(self) -> None:
        self.asks("flush")

    def ask(self, messages: int) -> None:
        """They may come."""

    def read(self, timeout_s: float) -> EntryColumns:
        return columns() if self._given else columns(build_entry(metadata(), b"one"))

    def acknowledge(self, positions: object, txn: object) -> None:
        self.asks("acknowledge")

    def close(self) -> None:
        """The connection is let go."""


@pytest.mark.parametrize(
    ("at", "error", "asked"),
    [
        ("flush", SendFailedError("it is over", pb.ServerError.NotAllowedError), ["flush", "abort"]),
        (
            "acknowledge",
            RefusedError("ack", pb.ServerError.ConsumerNotFound, "unloaded"),
            ["flush", "acknowledge", "abort"],
        ),
        (
            "commit",
            RefusedError("end", pb.ServerError.InvalidTxnStatus, "aborted"),
            ["flush", "acknowledge", "commit", "commit"],
        ),
    ],
)
def test_a_round_whose_transaction_the_broker_ended_begins_again(
    monkeypatch: pytest.MonkeyPatch, at: str, error: ClientError, asked: list[str]
) -> None:
    """Its topic is unloaded, or a broker was paused for longer than the transaction may take."""

    class Patient(Retry):
        def pause_or_raise(self, error: MagnetarError) -> None:
            if not error.retriable:
                raise error

    # A commit is asked for once more, as after a lost answer: then it is known that it is over.
    broker = Broker(at, *[error] * (2 if at == "commit" else 1))
    for name in ("Coordinator", "Producer", "EntryConsumer"):
        monkeypatch.setattr(transforming, name, lambda *_: broker)
    monkeypatch.setattr(transforming, "Retry", Patient)
    client = Client("pulsar://localhost:6650")
    assert transform(client, "in", "s", "out", lambda message: [message.value], idle_s=0.001) == 1
    again = ["begin", "flush", "acknowledge", "commit"]
    assert broker.asked == ["begin", *asked, *again]


@pytest.mark.parametrize("count", [1, 5])
def test_a_send_names_its_transaction(count: int) -> None:
    entry = build_entry(metadata(), b"x")
    highest = 6 + count if count > 1 else None
    frame = encode_send(ProducerId(1), 7, count, entry, highest, txn=(3, (1 << 62) + 1))
    (run,), taken = ServerParser(1 << 16).parse(frame, len(frame))
    assert taken == len(frame)
    assert isinstance(run, SendRun)
    assert (run.txn, list(run.sequence_ids), run.entries) == ((3, (1 << 62) + 1), [7], [entry])
