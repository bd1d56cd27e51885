"""What sockets hold of messages is bounded for each of them and for all."""

from __future__ import annotations

import zlib

import pytest

from magnetar.base.ids import Position
from magnetar.websocket import app, deliveries
from magnetar.websocket.deliveries import Opener
from magnetar.websocket.errors import TRY_AGAIN_LATER, UndeliverableError
from magnetar.websocket.memory import FREE_BYTES, ByteCount, HeldBytes
from magnetar.wire import payload
from magnetar.wire import pulsar_pb2 as pb
from magnetar.wire.messages import MessageEvent, event_of_entry
from support.websockets import Clients, message, with_clients

MB = 1 << 20


class Socket:
    """One that is told to give way."""

    def __init__(self, tenant: str) -> None:
        self.tenant = tenant
        self.told = ""

    def give_way(self, reason: str) -> None:
        self.told = reason


def test_who_holds_most_of_the_tenant_that_holds_most_gives_way() -> None:
    memory = HeldBytes(10 * MB)
    modest, small, large = Socket("a"), Socket("b"), Socket("b")
    memory.hold(modest, 4 * MB)
    memory.hold(small, 2 * MB)
    memory.hold(large, 4 * MB)
    assert not large.told
    memory.hold(small, 3 * MB)
    assert "receiverQueueSize" in large.told
    assert not modest.told
    assert not small.told
    assert memory.total == 7 * MB - 2 * FREE_BYTES
    for socket in (modest, small, large):
        memory.forget(socket)
    assert memory.total == 0


def test_a_little_is_free() -> None:
    memory = HeldBytes(1)
    sockets = [Socket("a") for _ in range(1_000)]
    for socket in sockets:
        memory.hold(socket, FREE_BYTES)
    assert memory.total == 0
    assert not any(socket.told for socket in sockets)


def piece(number: int, body: bytes, of: int = 1_000_000, uuid: str = "u") -> MessageEvent:
    metadata = pb.MessageMetadata(
        producer_name="p",
        sequence_id=1,
        publish_time=1,
        uuid=uuid,
        chunk_id=number,
        num_chunks_from_msg=of,
        total_chunk_msg_size=len(body),
    )
    return event_of_entry(1, Position(7, number), payload.build_entry(metadata, body))


def test_pieces_end_where_their_bound_is_whatever_their_total_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deliveries, "LARGE_BYTES_MAX", 10_000)
    held = ByteCount()
    opener = Opener("FAIL", 5_000, held)
    for number in range(10):
        assert opener.open(piece(number, bytes(1_000))).messages == []
    assert held.size_bytes == 10_000 + 10 * 512 + len("u")
    with pytest.raises(UndeliverableError, match="10000"):
        opener.open(piece(10, bytes(1_000)))
    assert held.size_bytes == 0


def test_messages_that_are_kept_for_the_dead_letters_are_counted() -> None:
    async def story(clients: Clients) -> None:
        clients.app.open.memory = HeldBytes(7 * MB // 2)
        producer = await clients.producer()
        for _ in range(8):
            await producer.ask(message(bytes(500_000)))
        modest = await clients.consumer(subscription="modest", receiverQueueSize=2)
        greedy = await clients.consumer(
            subscriptionType="Shared", maxRedeliverCount=1, ackTimeoutMillis=1_000, deadLetterTopic="dead"
        )
        assert len(await greedy.got(8)) == 8
        clients.world.clock.advance(1_000)
        clients.world.broker.alarms.ring()
        code, reason = await greedy.end()
        assert code == TRY_AGAIN_LATER
        assert "too many for all" in reason
        assert len(await modest.got(2)) == 2
        assert modest.closed is None
        await clients.world.until(lambda: clients.app.open.memory.total == 0, "all is let go")

    with_clients(story)


def test_what_a_message_unpacks_to_is_counted_before_it_is_there() -> None:
    async def story(clients: Clients) -> None:
        clients.app.open.memory = HeldBytes(2 * MB)
        producer = await clients.producer(compressionType="ZLIB")
        await producer.ask(message(bytes(3 * MB)))
        consumer = await clients.consumer()
        code, _ = await consumer.end()
        assert code == TRY_AGAIN_LATER
        assert consumer.texts == []

    assert len(zlib.compress(bytes(3 * MB))) < FREE_BYTES
    with_clients(story)


def test_a_client_that_gives_way_need_not_read_for_it() -> None:
    async def story(clients: Clients) -> None:
        clients.app.open.memory = memory = HeldBytes(2 * MB)
        producer = await clients.producer()
        await producer.ask(message(bytes(1_500_000)))
        slow = await clients.consumer()
        slow.takes.clear()
        await clients.world.until(lambda: memory.total > 1 * MB, "it holds a message")
        other = await clients.consumer(subscription="other")
        # Both hold as much with their texts, which is too much for all: the first holder goes, the other
        # gets its message.
        await clients.world.until(lambda: slow.aborted, "it is dropped")
        assert len(await other.got(1)) == 1
        slow.takes.set()

    with_clients(story)


def test_a_producer_whose_topic_is_away_is_not_read_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(clients: Clients) -> None:
        producer = await clients.producer()
        await producer.ask(message(b"first"))
        world = clients.world
        monkeypatch.setattr(app, "_LEFT_S", 0.0)
        # It does not come back: a full disk, a deleted namespace.
        monkeypatch.setattr("magnetar.websocket.producing.ProducerSocket.come_back", lambda *_: None)
        await world.broker.unload((await world.topic()).name)
        for _ in range(20):
            producer.send(message(bytes(MB)))
        (socket,) = clients.app.open._open
        await world.until(lambda: not socket._room.is_set(), "it is not read")  # type: ignore[attr-defined]
        await world.settle()
        assert 8 * MB < socket._held.size_bytes <= 9 * MB + 1_000  # type: ignore[attr-defined]

    with_clients(story)


def test_batches_that_end_by_time_leave_nothing_counted() -> None:
    async def story(clients: Clients) -> None:
        producer = await clients.producer(
            batchingEnabled="true",
            batchingMaxMessages=100,
            batchingMaxPublishDelay=1,
            compressionType="ZLIB",
        )
        (socket,) = clients.app.open._open
        for _ in range(3):
            await producer.ask(message(bytes(100_000)))
            assert socket._held.size_bytes == 0  # type: ignore[attr-defined]

    with_clients(story)


def test_a_batch_of_very_many_messages_is_counted_by_their_number() -> None:
    metadata = pb.MessageMetadata(
        producer_name="p", sequence_id=1, publish_time=1, num_messages_in_batch=1_000_000
    )
    event = event_of_entry(1, Position(7, 0), payload.build_entry(metadata, b""))
    opener = Opener("FAIL", 5_000)
    assert opener.cost(event, opener.look(event)) >= 500_000_000


@pytest.mark.parametrize(("size", "held"), [(200_000, 600_000), (1_500_000, 1_400_000)])
def test_a_text_that_is_being_written_is_counted(size: int, held: int) -> None:
    """Base64, and the frame beside it; of a large message only a piece of them is in memory."""

    async def story(clients: Clients) -> None:
        clients.app.open.memory = memory = HeldBytes(64 * MB)
        producer = await clients.producer()
        await producer.ask(message(bytes(size)))
        slow = await clients.consumer()
        slow.takes.clear()
        await clients.world.until(lambda: memory.total > held, "the message is counted")
        await clients.world.settle()
        assert memory.total < held + 200_000
        slow.takes.set()
        await slow.got(1)
        await clients.world.until(lambda: memory.total == 0, "all is let go")

    with_clients(story)


def test_entries_that_wait_for_a_socket_are_output_of_the_broker() -> None:
    async def story(clients: Clients) -> None:
        outputs = clients.world.broker.outputs
        producer = await clients.producer()
        for _ in range(6):
            await producer.ask(message(bytes(250_000)))
        slow = await clients.consumer()
        slow.takes.clear()
        await clients.world.until(lambda: outputs.count() >= 750_000, "they are counted")
        assert outputs.free == outputs.bytes_max - outputs.count()
        slow.takes.set()
        await slow.got(6)
        await clients.world.until(lambda: outputs.count() == 0, "nothing waits")

    with_clients(story)
