"""The peers' answers: complete ones are counted, missing, wrong and disordered ones are refused."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest
from bench.frames import crc32c
from bench.peers.kafka import (
    BATCH_HEAD,
    CRC_FROM,
    KafkaConnection,
    KafkaLane,
    ProduceTemplate,
    record_batch,
    text,
    zigzag,
)
from bench.peers.nats import NatsConnection, NatsLane, PublishTemplate
from bench.peers.servers import SERVERS
from bench.scan import BrokerAnswerError


class Sink:
    """Takes the place of a socket whose other end does not read."""

    def __init__(self) -> None:
        self.sent = b""

    def setblocking(self, flag: bool) -> None:
        pass

    def sendall(self, data: bytes) -> None:
        self.sent += data

    send = sendall


@contextmanager
def kafka(monkeypatch: pytest.MonkeyPatch, *, per_entry: int, first: int = 7) -> Iterator[KafkaLane]:
    def connect(self: KafkaConnection, address: tuple[str, int]) -> None:
        object.__setattr__(self, "socket", Sink())

    monkeypatch.setattr(KafkaConnection, "__init__", connect)
    monkeypatch.setattr(KafkaConnection, "create", lambda self, topic: None)
    monkeypatch.setattr(KafkaConnection, "latest", lambda self, topic: first)
    lane = KafkaLane(("", 0), "t", payload_bytes=10, messages_per_entry=per_entry)
    lane.template.renumber(np.zeros((1, len(lane.template.frame)), dtype=np.uint8), 100, 0)
    yield lane


def produce_answer(correlation: int, offset: int, error: int = 0) -> bytes:
    body = struct.pack(">ii", correlation, 1) + text("t") + struct.pack(">ii", 1, 0)
    body += struct.pack(">hqqqi", error, offset, -1, 0, 0)
    return struct.pack(">i", len(body)) + body


def test_numbers_are_zigzag_varints() -> None:
    assert [zigzag(n) for n in (0, -1, 1, 63, 64, -65)] == [b"\0", b"\1", b"\2", b"~", b"\x80\1", b"\x81\1"]


def test_a_record_batch_has_its_own_length_count_and_checksum() -> None:
    batch = record_batch(b"x" * 100, 3)
    head = BATCH_HEAD.unpack_from(batch)
    assert (head[1], head[3], head[6], head[12]) == (len(batch) - 12, 2, 2, 3)
    assert crc32c(batch[CRC_FROM:]) == head[4]


def test_copies_of_a_produce_request_differ_in_the_correlation_id() -> None:
    template = ProduceTemplate("t", b"x", 5)
    frames = np.tile(np.frombuffer(template.frame, dtype=np.uint8), (3, 1))
    template.renumber(frames, 1000, 0)
    assert [struct.unpack_from(">i", row.tobytes(), 8)[0] for row in frames] == [1000, 1005, 1010]
    assert (frames[:, 12:] == np.frombuffer(template.frame, dtype=np.uint8)[12:]).all()


def test_kafka_answers_are_counted_as_far_as_they_are_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    with kafka(monkeypatch, per_entry=2) as lane:
        data = b"".join(produce_answer(100 + 2 * i, 7 + 2 * i) for i in range(3))
        assert lane.feed(memoryview(data[:-1])) == len(data) // 3 * 2
        assert lane.acknowledged == 2
        assert lane.feed(memoryview(data[len(data) // 3 * 2 :])) == len(data) // 3
        assert lane.acknowledged == 3


@pytest.mark.parametrize(
    "answer", [produce_answer(102, 9), produce_answer(100, 8), produce_answer(100, 7, error=6)]
)
def test_a_wrong_kafka_answer_is_refused(answer: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    with kafka(monkeypatch, per_entry=2) as lane, pytest.raises(BrokerAnswerError):
        lane.feed(memoryview(answer))


@contextmanager
def nats(monkeypatch: pytest.MonkeyPatch) -> Iterator[NatsLane]:
    def connect(self: NatsConnection, address: tuple[str, int]) -> None:
        object.__setattr__(self, "socket", Sink())

    monkeypatch.setattr(NatsConnection, "__init__", connect)
    monkeypatch.setattr(NatsConnection, "create", lambda self, stream: 4)
    monkeypatch.setattr(NatsConnection, "hand_over", lambda self: b"")
    yield NatsLane(("", 0), "t", payload_bytes=10, messages_per_entry=2)


def publish_answer(sequence: int) -> bytes:
    content = b'{"stream":"t", "seq":%d}' % sequence
    return b"MSG _INBOX.p 1 %d\r\n" % len(content) + content + b"\r\n"


def test_nats_answers_are_counted_as_far_as_they_are_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    with nats(monkeypatch) as lane:
        data = b"PING\r\n" + b"".join(publish_answer(5 + i) for i in range(4))
        assert lane.feed(memoryview(data[:-5])) == len(data) - len(publish_answer(8))
        assert lane.acknowledged == 1
        lane.feed(memoryview(publish_answer(8)))
        assert lane.acknowledged == 2


@pytest.mark.parametrize("answer", [publish_answer(6), b'MSG _INBOX.p 1 2\r\n{"error":{}}\r\n'])
def test_a_wrong_nats_answer_is_refused(answer: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    with nats(monkeypatch) as lane, pytest.raises(BrokerAnswerError):
        lane.feed(memoryview(answer))


def test_a_nats_entry_is_a_row_of_messages() -> None:
    template = PublishTemplate("t", b"abc", 2)
    assert template.frame == b"PUB t.s _INBOX.p 3\r\nabc\r\n" * 2
    assert template.payload_bytes == 6


def test_every_peer_says_which_version_it_is() -> None:
    assert [server.name.split()[0].lower() for server in SERVERS.values()] == list(SERVERS)
