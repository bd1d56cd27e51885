"""A producer that lies about its messages, at a broker that compacts, filters, offloads and serves others."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from magnetar.wire import pulsar_pb2 as pb
from magnetar.wire.acks import encode_flow
from magnetar.wire.payload import build_batch, build_entry
from magnetar.wire.sends import encode_send
from support.history_topics import KEEP_EVERYTHING, HistoryTopic
from support.raw_client import RawClient
from support.sessions import Type
from support.standalone import StandaloneProcess, wait_until

pytestmark = [pytest.mark.process, pytest.mark.one_process("inside")]

_INT_MAX, _LONG_MAX = (1 << 31) - 1, (1 << 63) - 1
_LAST = b"the last one"
_ODD_NUMBERS = (-1, -_LONG_MAX - 1, _LONG_MAX)


def _said(sequence_id: int, **more: Any) -> pb.MessageMetadata:
    fields = {"producer_name": "liar", "sequence_id": sequence_id, "publish_time": 1, **more}
    return pb.MessageMetadata(**fields)


def _single(sequence_id: int, body: bytes = b"x", **more: Any) -> bytes:
    return encode_send(1, sequence_id, 1, build_entry(_said(sequence_id, **more), body))


def _batch(sequence_id: int, payload: bytes, count: int = 2, **more: Any) -> bytes:
    said = _said(sequence_id, num_messages_in_batch=count, **more)
    return encode_send(1, sequence_id, count, build_entry(said, payload))


def _messages(**more: Any) -> bytes:
    return build_batch(
        (pb.SingleMessageMetadata(partition_key=f"k{i}", **more), b"m%d" % i) for i in range(2)
    )


def _lies(first: int) -> Iterator[bytes]:
    """A frame of each kind, numbered from `first`; some are refused, some must be taken."""
    number = iter(range(first, first + 10_000, 10))
    for kind in (pb.LZ4, pb.ZLIB, pb.ZSTD, pb.SNAPPY):
        for size in (0, 5, _INT_MAX, (1 << 32) - 1):
            yield _single(next(number), b"not compressed", compression=kind, uncompressed_size=size)
            yield _batch(next(number), b"not compressed", compression=kind, uncompressed_size=size)
    for payload in (b"", b"\xff" * 40, b"\x00\x00\x00\x02\xff\xff", b"\xff\xff\xff\xff", _messages()[:-1]):
        yield _batch(next(number), payload)
    yield _batch(next(number), _messages() + b"more")
    for size in (-1, -_INT_MAX - 1, _INT_MAX, 3):
        single = pb.SingleMessageMetadata(payload_size=size, partition_key="k")
        body = single.SerializeToString()
        yield _batch(next(number), len(body).to_bytes(4, "big") + body + b"xy", 1)
    for odd in _ODD_NUMBERS:
        yield _batch(next(number), _messages(sequence_id=abs(odd), event_time=abs(odd)))
        yield _single(next(number), deliver_at_time=odd)
        yield _single(next(number), publish_time=abs(odd), event_time=abs(odd))
        yield _single(next(number), txnid_least_bits=abs(odd), txnid_most_bits=abs(odd))
    for text in ("\x00", "k\n2026 INFO forged", "\u202e", "k" * 4_000, ""):
        yield _single(next(number), partition_key=text)
        yield _single(next(number), properties=[pb.KeyValue(key=text, value=text)])
        yield _batch(next(number), _messages(properties=[pb.KeyValue(key=text, value=text)]))
    yield _single(next(number), partition_key="not base64!", partition_key_b64_encoded=True)
    yield _single(next(number), ordering_key=b"\xff" * 2_000, schema_version=b"\xff" * 9)
    yield _single(next(number), marker_type=77)
    yield _single(next(number), replicated_from="elsewhere", replicate_to=["moon"])
    yield _single(
        next(number), encryption_keys=[pb.EncryptionKeys(key="k", value=b"v")], encryption_param=b"1"
    )
    yield _single(next(number), null_value=True, partition_key="k")
    yield _batch(next(number), _messages(null_value=True, compacted_out=True))
    yield _batch(next(number), _messages(), compacted_batch_indexes=[-1, _INT_MAX])
    for count in (-1, 3, _INT_MAX):
        said = _said(next(number), num_messages_in_batch=count)
        yield encode_send(1, said.sequence_id, 2, build_entry(said, _messages()))
    for pieces, piece in ((-5, 0), (2, -1), (2, 7), (2, 0), (2, 1), (_INT_MAX, 0), (3, 2)):
        said = _said(
            next(number),
            uuid="\x00",
            chunk_id=piece,
            num_chunks_from_msg=pieces,
            total_chunk_msg_size=1 << 30,
        )
        yield encode_send(1, said.sequence_id, 1, build_entry(said, b"x"), is_chunk=True)


class _Liar:
    """Opens a connection and a producer whenever it has none."""

    def __init__(self, process: StandaloneProcess, topic: str) -> None:
        self._process, self._topic = process, topic
        self._client: RawClient | None = None

    def _open(self) -> RawClient:
        client = RawClient(self._process.broker_url)
        answer = client.ask(
            Type.PRODUCER, topic=self._topic, producer_id=1, request_id=1, producer_name="liar"
        )
        assert answer.DESCRIPTOR.name == "CommandProducerSuccess", answer
        return client

    def sends(self, frame: bytes) -> bool:
        """Whether it was taken. Whatever it says, there is an answer, or the connection ends."""
        client = self._client = self._client or self._open()
        before = len(client.receipts_of_all), len(client.commands(Type.SEND_ERROR))

        def answered() -> bool:
            return client.closed or before != (
                len(client.receipts_of_all),
                len(client.commands(Type.SEND_ERROR)),
            )

        client.send(frame)
        while not answered():
            client.read()
        if client.closed:
            self._client = None
        return len(client.receipts_of_all) > before[0]


class _Neighbour:
    """Publishes and consumes on a topic of its own."""

    def __init__(self, process: StandaloneProcess) -> None:
        topic = f"persistent://public/default/neighbour-{uuid.uuid4().hex}"
        self._publisher, self._consumer = RawClient(process.broker_url), RawClient(process.broker_url)
        self._publisher.open_producer(topic)
        self._consumer.open_consumer(topic, permits=10_000)
        self._sent = 0

    def works(self) -> None:
        self._publisher.publish(range(self._sent, self._sent + 1))
        self._sent += 1
        self._consumer.wait(lambda: len(self._consumer.messages) == self._sent, "the neighbour's message")


def _subscribe(
    process: StandaloneProcess, topic: str, name: str, *, kind: str = "Shared", **more: Any
) -> RawClient:
    client = RawClient(process.broker_url)
    answer = client.ask(
        Type.SUBSCRIBE,
        topic=topic,
        consumer_id=1,
        request_id=2,
        subscription=name,
        subType=pb.CommandSubscribe.SubType.Value(kind),
        initialPosition=pb.CommandSubscribe.InitialPosition.Earliest,
        start_message_id=pb.MessageIdData(ledgerId=0, entryId=0) if "durable" in more else None,
        **more,
    )
    assert answer.DESCRIPTOR.name == "CommandSuccess", answer
    return client


def _reads_all(client: RawClient) -> None:
    client.send(encode_flow(1, 10_000))
    client.wait(lambda: _LAST in client.bodies, "the last message")


@pytest.fixture
def process(tmp_path: Path) -> Iterator[StandaloneProcess]:
    with StandaloneProcess(tmp_path / "standalone", environment=KEEP_EVERYTHING) as started:
        yield started


def test_whatever_a_producer_says_of_its_messages_harms_nobody(process: StandaloneProcess) -> None:
    history = HistoryTopic(process, "persistent://public/default/lied-to")
    process.admin("PUT", history.path)
    process.admin("POST", "namespaces/public/default/deduplication", True)
    wanted = pb.KeyValue(key="filter.expression", value='key in ("k0", "sentinel")')
    consumers = [
        _subscribe(process, history.topic, "all"),
        _subscribe(process, history.topic, "filtered", subscription_properties=[wanted]),
        _subscribe(process, history.topic, "keys", kind="Key_Shared"),
    ]
    process.admin("POST", f"{history.path}/entryFilters", {"entryFilterNames": "expression"})

    def compaction() -> str:
        return str(process.admin("GET", f"{history.path}/compaction")["status"])

    liar, neighbour = _Liar(process, history.topic), _Neighbour(process)
    taken = []
    for at, frame in enumerate(_lies(10)):
        taken.append(liar.sends(frame))
        if at % 10 == 0:
            neighbour.works()
    sentinel = _single(1_000_000, _LAST, partition_key="sentinel")
    assert liar.sends(sentinel)
    assert 20 < sum(taken) < len(taken), (sum(taken), len(taken))

    for client in consumers:
        _reads_all(client)
    process.admin("PUT", f"{history.path}/compaction")
    neighbour.works()
    wait_until(lambda: compaction() != "RUNNING", 60, "the compaction's end")
    assert compaction() == "SUCCESS"
    reader = _subscribe(process, history.topic, "r", kind="Exclusive", durable=False, read_compacted=True)
    _reads_all(reader)
    process.admin("PUT", f"{history.path}/unload")
    history.offload()
    neighbour.works()
    stats = process.admin("GET", f"{history.path}/stats")
    assert stats["offloadedStorageSize"] > 0
    _reads_all(_subscribe(process, history.topic, "from history"))
    assert "Traceback" not in process.log_text()
    assert "unexpectedly" not in process.log_text()
    assert not [line for line in process.log_text().splitlines() if line.startswith("2026 INFO")]
