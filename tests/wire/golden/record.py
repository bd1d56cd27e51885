"""Records what the official Python client sends: writes *.bin beside this file.

    python tests/wire/golden/record.py

Needs `pulsar-client`. The client talks to a scripted broker in this process, which answers just enough for it
to produce, consume and look around; each connection's bytes from the client are kept by scenario.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable
from pathlib import Path

import pulsar

from magnetar.base.entries import EntryRun
from magnetar.base.ids import Position
from magnetar.wire import commands, features
from magnetar.wire import pulsar_pb2 as pb
from magnetar.wire.frames import MESSAGE_BYTES_MAX, frame_bytes_max
from magnetar.wire.messages import MessageEncoder
from magnetar.wire.receipts import encode_receipts
from magnetar.wire.server import AckEvent, CommandEvent, FlowEvent, SendRun, ServerEvent, ServerParser

TOPIC = "persistent://public/default/golden"
HERE = Path(__file__).parent


class ScriptedBroker:
    """Answers one client; messages that it publishes are delivered to its consumers."""

    def __init__(self, message_bytes_max: int) -> None:
        self.message_bytes_max = message_bytes_max
        self.received: list[bytearray] = []
        self.runs: list[EntryRun] = []
        self.next_entry = 0
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"pulsar://127.0.0.1:{self.listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self.listener.accept()
                threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        parser = ServerParser(frame_bytes_max(MESSAGE_BYTES_MAX))
        everything = bytearray()
        self.received.append(everything)
        waiting = bytearray()
        delivered: dict[int, int] = {}
        with contextlib.suppress(OSError):
            while data := connection.recv(1 << 16):
                everything += data
                waiting += data
                events, consumed = parser.parse(waiting, len(waiting))
                del waiting[:consumed]
                for event in events:
                    connection.sendall(self._answer(event, delivered))

    def _answer(self, event: ServerEvent, delivered: dict[int, int]) -> bytes:
        if isinstance(event, SendRun):
            first = self.next_entry
            self.next_entry += len(event.entries)
            self.runs.append(EntryRun(7, first, event.entries, event.counts, first, 1_700_000_000_000))
            return encode_receipts(
                event.producer_id, event.sequence_ids, event.highest_sequence_ids, 7, first
            )
        if isinstance(event, FlowEvent):
            out: list[bytes] = []
            encoder = MessageEncoder(event.consumer_id, broker_metadata=True)
            for run in self.runs[delivered.get(event.consumer_id, 0) :]:
                encoder.encode(run, 0, len(run.entries), out)
            delivered[event.consumer_id] = len(self.runs)
            return b"".join(out)
        if isinstance(event, AckEvent):
            if event.request_id is None:
                return b""
            return commands.ack_response(event.consumer_id, event.request_id)
        assert isinstance(event, CommandEvent)
        return self._reply(event.command)

    def _reply(self, command: pb.BaseCommand) -> bytes:
        match command.type:
            case pb.BaseCommand.CONNECT:
                version = features.negotiated_version(command.connect.protocol_version)
                return commands.connected(
                    "recorder", version, self.message_bytes_max, features.broker_features()
                )
            case pb.BaseCommand.PARTITIONED_METADATA:
                return commands.partitions(command.partitionMetadata.request_id, 0)
            case pb.BaseCommand.LOOKUP:
                return commands.lookup_response(command.lookupTopic.request_id, self.url)
            case pb.BaseCommand.PRODUCER:
                return commands.producer_success(
                    command.producer.request_id, command.producer.producer_name or "golden-0"
                )
            case pb.BaseCommand.SUBSCRIBE:
                return commands.success(command.subscribe.request_id)
            case pb.BaseCommand.SEEK:
                return commands.success(command.seek.request_id)
            case pb.BaseCommand.UNSUBSCRIBE:
                return commands.success(command.unsubscribe.request_id)
            case pb.BaseCommand.CLOSE_PRODUCER:
                return commands.success(command.close_producer.request_id)
            case pb.BaseCommand.CLOSE_CONSUMER:
                return commands.success(command.close_consumer.request_id)
            case pb.BaseCommand.GET_LAST_MESSAGE_ID:
                return commands.last_message_id(
                    command.getLastMessageId.request_id,
                    Position(7, self.next_entry - 1),
                    mark_delete=Position(7, -1),
                )
            case pb.BaseCommand.GET_TOPICS_OF_NAMESPACE:
                return commands.topics_of_namespace(command.getTopicsOfNamespace.request_id, [TOPIC])
            case pb.BaseCommand.PING:
                return commands.PONG
        return b""


def unbatched(client: pulsar.Client) -> None:
    producer = client.create_producer(TOPIC, producer_name="golden", batching_enabled=False)
    for number in range(200):
        producer.send_async(b"message %d" % number, None)
    producer.flush()
    producer.close()


def batched(client: pulsar.Client) -> None:
    producer = client.create_producer(
        TOPIC,
        producer_name="golden",
        batching_enabled=True,
        batching_max_messages=10,
        batching_max_publish_delay_ms=60_000,
        compression_type=pulsar.CompressionType.ZLib,
    )
    for number in range(40):
        producer.send_async(b"message %d" % number, None, partition_key=f"k{number % 3}")
    producer.flush()
    producer.close()


def chunked(client: pulsar.Client) -> None:
    producer = client.create_producer(
        TOPIC, producer_name="golden", batching_enabled=False, chunking_enabled=True
    )
    producer.send(bytes(range(250)) * 40)
    producer.close()


def consumed(client: pulsar.Client) -> None:
    unbatched(client)
    consumer = client.subscribe(
        TOPIC,
        "golden",
        consumer_type=pulsar.ConsumerType.Shared,
        initial_position=pulsar.InitialPosition.Earliest,
        receiver_queue_size=50,
    )
    for number in range(200):
        message = consumer.receive(timeout_millis=5000)
        assert message.data() == b"message %d" % number
        if number % 10 == 3:
            consumer.negative_acknowledge(message)
        else:
            consumer.acknowledge(message)
    consumer.redeliver_unacknowledged_messages()
    consumer.seek(pulsar.MessageId.earliest)
    consumer.seek(1_700_000_000_000)
    consumer.unsubscribe()


def cumulative(client: pulsar.Client) -> None:
    unbatched(client)
    consumer = client.subscribe(TOPIC, "golden", consumer_type=pulsar.ConsumerType.Exclusive)
    for _ in range(100):
        message = consumer.receive(timeout_millis=5000)
    consumer.acknowledge_cumulative(message)
    consumer.close()


def batch_index_acks(client: pulsar.Client) -> None:
    batched(client)
    consumer = client.subscribe(
        TOPIC, "golden", consumer_type=pulsar.ConsumerType.Shared, batch_index_ack_enabled=True
    )
    for number in range(40):
        message = consumer.receive(timeout_millis=5000)
        if number % 10 in (1, 7):
            consumer.acknowledge(message)
    consumer.close()


def reader(client: pulsar.Client) -> None:
    unbatched(client)
    reading = client.create_reader(TOPIC, pulsar.MessageId.earliest)
    for _ in range(200):
        assert reading.has_message_available()
        reading.read_next(timeout_millis=5000)
    reading.close()


def record(scenario: Callable[[pulsar.Client], None]) -> None:
    # Small messages only where the client is to cut one in pieces.
    broker = ScriptedBroker(4096 if scenario is chunked else MESSAGE_BYTES_MAX)
    client = pulsar.Client(
        broker.url, operation_timeout_seconds=5, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)
    )
    try:
        scenario(client)
    finally:
        client.close()
        broker.listener.close()
    (HERE / f"{scenario.__name__}.bin").write_bytes(max(broker.received, key=len))


if __name__ == "__main__":
    for each in (unbatched, batched, chunked, consumed, cumulative, batch_index_acks, reader):
        record(each)
