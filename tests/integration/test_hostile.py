"""Clients that break the protocol: their connection ends with a reason in the log, all others go on."""

from __future__ import annotations

import contextlib
import itertools
import random
import socket
import struct
import uuid
from collections.abc import Callable, Iterator

import pytest

from magnetar.wire import pulsar_pb2 as pb
from magnetar.wire.acks import encode_flow
from magnetar.wire.frames import encode_command, varint
from support.raw_client import RawClient
from support.sessions import (
    CONNECT,
    FIELD_OF_TYPE,
    Type,
    command,
    encode_payload,
    entry,
    fill_required,
    send,
)
from support.standalone import StandaloneProcess, wait_until

pytestmark = [pytest.mark.process, pytest.mark.one_process("inside")]


def new_topic() -> str:
    return f"persistent://public/default/hostile-{uuid.uuid4().hex}"


class Bystander:
    """A client that behaves, on connections of its own."""

    def __init__(self, process: StandaloneProcess) -> None:
        self._process = process
        topic = new_topic()
        self._producer = RawClient(process.broker_url)
        self._producer.open_producer(topic)
        self._consumer = RawClient(process.broker_url)
        self._consumer.open_consumer(topic, permits=1_000)
        self._sent = 0
        self._log_at = len(process.log_text())

    def works(self) -> None:
        """Publishes and consumes; the process must have logged no trace of a failure."""
        body = b"%d" % self._sent
        self._producer.publish(range(self._sent, self._sent + 1), body)
        self._sent += 1
        self._consumer.wait(lambda: len(self._consumer.messages) == self._sent, "delivery")
        assert self._consumer.bodies[-1] == body
        self._consumer.ack(self._consumer.messages[-1].position)
        assert "Traceback" not in self.log()

    def log(self) -> str:
        """What was logged since the beginning of the test."""
        return self._process.log_text()[self._log_at :]

    def close(self) -> None:
        self._producer.socket.close()
        self._consumer.socket.close()


@pytest.fixture
def bystander(standalone: StandaloneProcess) -> Iterator[Bystander]:
    client = Bystander(standalone)
    yield client
    client.works()
    client.close()


def frame(total: int, size: int, body: bytes = b"") -> bytes:
    return struct.pack(">II", total, size) + body


SEND_OF_NO_MESSAGES = encode_payload(
    pb.BaseCommand(type=Type.SEND, send=pb.CommandSend(producer_id=1, sequence_id=0, num_messages=0)),
    entry(b"x"),
)
ILLEGAL = {
    "declares 2 GiB": frame((1 << 31) - 1, 5),
    "declares 4 GiB": frame((1 << 32) - 1, (1 << 32) - 1),
    "just too large": frame((5 << 20) + (10 << 10) + 1, 5),
    "empty frame": struct.pack(">I", 0),
    "no room for a command": struct.pack(">IH", 2, 0),
    "empty command": frame(4, 0),
    "command larger than its frame": frame(10, 1_000, b"123456"),
    "command of 4 GiB": frame(10, (1 << 32) - 1, b"123456"),
    "no protobuf": frame(14, 10, b"\xff" * 10),
    "type without its field": frame(6, 2, b"\x08\x02"),
    "no type": frame(5, 1, b"\x00"),
    "http": b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "tls": bytes.fromhex("1603010200010001fc0303") + bytes(200),
    "text that is not UTF-8": command(Type.LOOKUP, topic="AAAA", request_id=1).replace(
        b"AAAA", b"\xff\xfe\x80A"
    ),
    "SEND without an entry": encode_payload(
        pb.BaseCommand(type=Type.SEND, send=pb.CommandSend(producer_id=1, sequence_id=0)), b""
    ),
    "SEND of no messages": SEND_OF_NO_MESSAGES,
    "SEND with metadata larger than its entry": encode_payload(
        pb.BaseCommand(type=Type.SEND, send=pb.CommandSend(producer_id=1, sequence_id=0)),
        struct.pack(">I", 1 << 30) + b"rest",
    ),
    "SEND with broker metadata": encode_payload(
        pb.BaseCommand(type=Type.SEND, send=pb.CommandSend(producer_id=1, sequence_id=0)),
        struct.pack(">HI", 0x0E02, 4) + bytes(20),
    ),
}


@pytest.mark.parametrize("connected", [False, True], ids=["at once", "after CONNECT"])
@pytest.mark.parametrize("name", ILLEGAL)
def test_illegal_frames_end_their_connection(
    standalone: StandaloneProcess, bystander: Bystander, name: str, connected: bool
) -> None:
    with RawClient(standalone.broker_url, handshake=connected) as client:
        host, port = client.socket.getsockname()
        client.send(ILLEGAL[name], command(Type.PING))
        client.wait_closed()
        assert not client.commands(Type.PONG)
    wait_until(lambda: bystander.log().count(f"{host}:{port}: connection closed: ") == 1, 10, "one line")


def test_a_frame_that_never_ends_harms_nobody(standalone: StandaloneProcess, bystander: Bystander) -> None:
    whole = send(1, 0, bytes(1 << 20))
    clients = [RawClient(standalone.broker_url) for _ in range(5)]
    for cut, client in zip((1, 3, 7, 100, len(whole) - 1), clients, strict=True):
        client.send(whole[:cut])
        bystander.works()
    for client in clients:
        client.socket.close()


@pytest.mark.parametrize("connected", [False, True], ids=["at once", "after CONNECT"])
def test_random_bytes(standalone: StandaloneProcess, bystander: Bystander, connected: bool) -> None:
    chance = random.Random(3)
    for size in (1, 2, 3, 4, 5, 8, 9, 100, 5_000, 300_000):
        for _ in range(3):
            with RawClient(standalone.broker_url, handshake=connected) as client:
                client.send(chance.randbytes(size))
        bystander.works()


def test_damaged_commands(standalone: StandaloneProcess, bystander: Bystander) -> None:
    """Legal streams of commands, each with some bytes changed."""
    chance = random.Random(4)
    topic = new_topic()
    legal = b"".join(
        (
            CONNECT,
            command(Type.PRODUCER, topic=topic, producer_id=1, request_id=1),
            command(Type.SUBSCRIBE, topic=topic, consumer_id=1, request_id=2, subscription="s", subType=1),
            encode_flow(1, 10),
            *(send(1, i) for i in range(5)),
            command(Type.LOOKUP, topic=topic, request_id=3),
            command(Type.GET_LAST_MESSAGE_ID, consumer_id=1, request_id=4),
            command(Type.SEEK, consumer_id=1, request_id=5, message_publish_time=1),
            command(Type.UNSUBSCRIBE, consumer_id=1, request_id=6),
        )
    )
    for _ in range(100):
        data = bytearray(legal)
        for _ in range(chance.choice((1, 1, 3, 10))):
            data[chance.randrange(len(data))] = chance.randrange(256)
        with RawClient(standalone.broker_url, handshake=False) as client:
            client.send(bytes(data))
            client.socket.settimeout(0)
            with contextlib.suppress(OSError):
                client.socket.recv(1 << 16)
    bystander.works()


def test_commands_before_connect(standalone: StandaloneProcess, bystander: Bystander) -> None:
    with RawClient(standalone.broker_url, handshake=False) as client:
        client.send(command(Type.PRODUCER, topic=new_topic(), producer_id=1, request_id=1))
        client.wait_closed()
    assert "the first command must be CONNECT" in bystander.log()


@pytest.mark.parametrize("handshake", [False, True])
def test_send_without_a_producer(
    standalone: StandaloneProcess, bystander: Bystander, handshake: bool
) -> None:
    with RawClient(standalone.broker_url, handshake=handshake) as client:
        client.send(send(1, 0))
        client.wait_closed()
        assert not client.receipts
    assert "SEND for producer 1, which this connection has not opened" in bystander.log()


def test_a_wrong_checksum_costs_one_message(standalone: StandaloneProcess, bystander: Bystander) -> None:
    topic = new_topic()
    with RawClient(standalone.broker_url) as client:
        client.open_producer(topic)
        damaged = bytearray(send(1, 1, b"damaged"))
        damaged[-1] ^= 1
        client.send(send(1, 0, b"before"), bytes(damaged), send(1, 2, b"after"))
        client.wait(lambda: len(client.receipts) == 2, "receipts")
        (error,) = client.wait(lambda: client.commands(Type.SEND_ERROR), "SEND_ERROR")
        assert (error.sequence_id, error.error) == (1, pb.ChecksumError)
        client.open_consumer(topic, permits=10)
        client.wait(lambda: len(client.messages) == 2, "messages")
        assert client.bodies == [b"before", b"after"]


def test_permits_and_acknowledgements_out_of_this_world(
    standalone: StandaloneProcess, bystander: Bystander
) -> None:
    topic = new_topic()
    with RawClient(standalone.broker_url) as client:
        client.open_producer(topic)
        client.open_consumer(topic)
        client.send(
            *(encode_flow(1, (1 << 32) - 1) for _ in range(10)), encode_flow(99, 1), encode_flow(1, 0)
        )
        (position,) = client.publish(range(1))
        huge = (1 << 63) - 1
        ids = [(position.ledger_id, huge), (huge, huge), (0, 0), (position.ledger_id, 1), (1 << 40, 7)]
        for request_id, (ledger_id, entry_id) in enumerate(ids, 10):
            client.ask(
                Type.ACK,
                consumer_id=1,
                ack_type=pb.CommandAck.Individual,
                request_id=request_id,
                message_id=[
                    pb.MessageIdData(
                        ledgerId=ledger_id, entryId=entry_id, batch_size=(1 << 31) - 1, ack_set=[1] * 1_000
                    )
                ],
            )
        refused = client.ask(
            Type.ACK,
            consumer_id=99,
            ack_type=pb.CommandAck.Individual,
            request_id=50,
            message_id=[pb.MessageIdData(ledgerId=1, entryId=1)],
        )
        assert refused.error == pb.ConsumerNotFound
        client.publish(range(1, 3))
        client.wait(lambda: len(client.messages) == 3, "messages")


def requests() -> dict[str, Callable[[int], bytes]]:
    """Every command with a request id, by name: a frame with a given id, its required fields set."""

    def make(kind: int) -> Callable[[int], bytes]:
        def build(request_id: int) -> bytes:
            message = pb.BaseCommand(type=kind)
            body = getattr(message, FIELD_OF_TYPE[kind])
            body.SetInParent()
            fill_required(body)
            body.request_id = request_id
            return encode_command(message)

        return build

    found = {}
    for name, kind in Type.items():
        field = pb.BaseCommand.DESCRIPTOR.fields_by_name[FIELD_OF_TYPE[kind]]
        if "request_id" in field.message_type.fields_by_name:
            found[name] = make(kind)
    return found


def test_every_request_is_answered(standalone: StandaloneProcess, bystander: Bystander) -> None:
    builders = requests()
    assert len(builders) > 40
    with RawClient(standalone.broker_url) as client:
        client.send(*(build(1_000 + i) for i, build in enumerate(builders.values())))
        for i, name in enumerate(builders):
            try:
                client.answer(1_000 + i)
            except AssertionError:
                pytest.fail(f"{name} was met with silence")


def test_types_that_nobody_knows(standalone: StandaloneProcess, bystander: Bystander) -> None:
    with RawClient(standalone.broker_url) as client:
        for kind in (200, 1_000, (1 << 31) - 1):
            client.send(encode_unknown(kind))
        client.send(command(Type.PING))
        client.wait(lambda: client.commands(Type.PONG), "PONG")


def encode_unknown(kind: int) -> bytes:
    body = b"\x08" + varint(kind)
    return frame(4 + len(body), len(body), body)


def test_half_open_and_reset_connections(standalone: StandaloneProcess, bystander: Bystander) -> None:
    half_open = [RawClient(standalone.broker_url, handshake=i % 2 == 0) for i in range(10)]
    for client in half_open:
        client.socket.shutdown(socket.SHUT_WR)
    for client in half_open:
        client.wait_closed()
        client.socket.close()
    topic = new_topic()
    for _ in range(10):
        client = RawClient(standalone.broker_url)
        client.send(
            command(Type.PRODUCER, topic=topic, producer_id=1, request_id=1),
            command(Type.SUBSCRIBE, topic=topic, consumer_id=1, request_id=2, subscription="s", subType=0),
        )
        client.reset()
    # The subscription is exclusive: it is free only if none of those stayed behind.
    with RawClient(standalone.broker_url) as client:
        request_ids = itertools.count(1)

        def free() -> bool:
            answer = client.ask(
                Type.SUBSCRIBE,
                topic=topic,
                consumer_id=1,
                request_id=next(request_ids),
                subscription="s",
                subType=pb.CommandSubscribe.SubType.Exclusive,
            )
            return answer.DESCRIPTOR.name == "CommandSuccess"

        wait_until(free, 10, "free")


def test_two_hundred_connections_at_once(standalone: StandaloneProcess, bystander: Bystander) -> None:
    clients = [RawClient(standalone.broker_url, handshake=False) for _ in range(200)]
    for client in clients[::2]:
        client.send(CONNECT)
    bystander.works()
    for client in clients:
        client.reset()
    bystander.works()
