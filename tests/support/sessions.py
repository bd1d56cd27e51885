"""Sessions over a real broker on ledgers and metadata in memory: the protocol without sockets."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final

from google.protobuf.message import Message

from magnetar.base.ids import Position
from magnetar.broker.service import BrokerConfig
from magnetar.broker.session.session import Session
from magnetar.broker.session.slices import sliced
from magnetar.broker.topic.topic import Topic
from magnetar.wire import pulsar_pb2 as pb
from magnetar.wire.acks import encode_ack, encode_flow
from magnetar.wire.client import ClientParser, CommandEvent
from magnetar.wire.frames import FRAME_HEAD, encode_command, frame_bytes_max
from magnetar.wire.payload import build_entry
from magnetar.wire.sends import encode_send
from magnetar.wire.server import ServerParser
from support.brokers import BrokerOnFakes
from support.seen import FIELD_OF_TYPE, Seen, Type

TOPIC = "persistent://public/default/t"
FRAME_BYTES_MAX = frame_bytes_max(5 << 20)
_TURNS: Final = 2000
_PATIENCE_S: Final = 60.0


def command(kind: int, **fields: Any) -> bytes:
    """A frame of the command `kind` with these fields."""
    message = pb.BaseCommand(type=kind)
    body = getattr(message, FIELD_OF_TYPE[kind])
    body.SetInParent()
    body.MergeFrom(type(body)(**fields))
    return encode_command(message)


def encode_payload(command: pb.BaseCommand, entry: bytes) -> bytes:
    """A frame with an entry behind its command."""
    body = command.SerializeToString()
    return FRAME_HEAD.pack(4 + len(body) + len(entry), len(body)) + body + entry


def fill_required(message: Message) -> None:
    """Gives the required fields of a message, and of those within it, some value."""
    for field in message.DESCRIPTOR.fields:
        if not field.is_required:
            continue
        if field.message_type is not None:
            part = getattr(message, field.name)
            part.SetInParent()
            fill_required(part)
        elif field.enum_type is not None:
            setattr(message, field.name, field.enum_type.values[0].number)
        elif field.type == field.TYPE_STRING:
            setattr(message, field.name, "text")
        elif field.type == field.TYPE_BYTES:
            setattr(message, field.name, b"bytes")
        else:
            setattr(message, field.name, 1)


CONNECT = command(Type.CONNECT, client_version="test", protocol_version=19)


def entry(body: bytes, sequence_id: int = 0, producer: str = "p") -> bytes:
    """What follows a SEND: one message."""
    metadata = pb.MessageMetadata(producer_name=producer, sequence_id=sequence_id, publish_time=1)
    return build_entry(metadata, body)


def send(producer_id: int, sequence_id: int, body: bytes = b"x") -> bytes:
    """A SEND of one message."""
    return encode_send(producer_id, sequence_id, 1, entry(body, sequence_id))


class Peer(Seen):
    """A client of a session, and the session's transport."""

    def __init__(self, world: World) -> None:
        super().__init__()
        self.world = world
        self.reading = True
        self.closed: str | None = None
        """Why the broker closed the connection."""
        self.aborted = False
        self.handed_to: Path | None = None
        """Where the process receives sockets that the connection went to."""
        self.session = Session(world.broker, self, peer="peer", local_host="127.0.0.1", port=6650)
        self._server = ServerParser(FRAME_BYTES_MAX)
        self._client = ClientParser(FRAME_BYTES_MAX)
        self.take_output = True
        """Whether what the session writes is read at once."""
        self.unsent = 0
        """What the socket has not taken."""

    # -- the session's transport

    def flush_soon(self) -> None:
        asyncio.get_running_loop().call_soon(self.flush)

    def flush(self) -> None:
        """Takes the session's output."""
        if not self.take_output:
            return
        session = self.session
        data = b"".join(session.out)
        size, session.out, session.out_bytes = session.out_bytes, [], 0
        session.wrote(size)
        events, consumed = self._client.parse(data, len(data))
        assert consumed == len(data)
        for event in events:
            self.seen.append(event.command if isinstance(event, CommandEvent) else event)
        if session.starved and session.transport_writable:
            session.pump()

    def unsent_bytes(self) -> int:
        return self.unsent

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True

    def close(self, reason: str) -> None:
        self.closed = self.closed or reason
        self.session.closing(reason)

    def abort(self, reason: str) -> None:
        self.aborted = True
        self.close(reason)

    def hand_over(self, place: Path) -> None:
        self.handed_to = place

    # -- the client

    def send(self, *frames: bytes) -> None:
        """All frames in one socket read."""
        data = b"".join(frames)
        events, consumed = self._server.parse(data, len(data))
        assert consumed == len(data)
        for turn in sliced(events):
            self.session.handle(turn)

    async def ask(self, kind: int, **fields: Any) -> Any:
        """Sends a command and returns the body of what answers its request id."""
        self.send(command(kind, **fields))
        return await self.answer(fields["request_id"])

    async def answer(self, request_id: int) -> Any:
        """The body of the reply to this request."""
        return await self.world.until(lambda: self.find_answer(request_id), f"answer to {request_id}")

    async def producer(
        self, producer_id: int = 1, topic: str = TOPIC, request_id: int = 1, **more: Any
    ) -> Any:
        """Opens a producer; the answer."""
        return await self.ask(
            Type.PRODUCER, topic=topic, producer_id=producer_id, request_id=request_id, **more
        )

    async def consumer(
        self,
        consumer_id: int = 1,
        topic: str = TOPIC,
        request_id: int = 2,
        subscription: str = "s",
        kind: str = "Exclusive",
        permits: int = 0,
        **more: Any,
    ) -> Any:
        """Opens a consumer from the beginning of the topic; the answer."""
        more.setdefault("initialPosition", pb.CommandSubscribe.InitialPosition.Earliest)
        answer = await self.ask(
            Type.SUBSCRIBE,
            topic=topic,
            consumer_id=consumer_id,
            request_id=request_id,
            subscription=subscription,
            subType=pb.CommandSubscribe.SubType.Value(kind),
            **more,
        )
        if permits:
            self.send(encode_flow(consumer_id, permits))
        return answer

    def ack(self, consumer_id: int, *positions: Position) -> None:
        """Acknowledges entries one by one."""
        self.send(*(encode_ack(consumer_id, [position]) for position in positions))

    @property
    def receipts(self) -> list[tuple[int, int, Position]]:
        """Producer id, sequence id and position of all receipts, in order."""
        return self.receipts_of_all


class World(BrokerOnFakes):
    """A broker on fakes, and its clients."""

    def __init__(self, config: BrokerConfig | None = None, **guard: Any) -> None:
        """`guard`: the broker's `authentication` and `superuser_roles`."""
        super().__init__(config, log_config={}, **guard)

    def peer(self, *, connected: bool = True) -> Peer:
        """A new connection, after its handshake unless told otherwise."""
        peer = Peer(self)
        if connected:
            peer.send(CONNECT)
        return peer

    async def topic(self, name: str = TOPIC) -> Topic:
        return await super().topic(name)

    async def until(self, condition: Callable[[], Any], what: str) -> Any:
        """Lets the loop turn until `condition` is true; its value.

        What takes longer than some turns is in a thread.
        """
        deadline = time.monotonic() + _PATIENCE_S
        turns = 0
        while not (value := condition()):
            assert time.monotonic() < deadline, f"never: {what}"
            turns += 1
            await asyncio.sleep(0 if turns < _TURNS else 0.001)
        return value

    async def settle(self) -> None:
        """Lets everything happen that can happen by itself."""
        for _ in range(200):
            await asyncio.sleep(0)

    async def close(self) -> None:
        """Stops as the process does."""
        self.ledgers.auto_sync = True
        self.ledgers.sync()
        await super().close()


def in_world(
    story: Callable[[World], Awaitable[None]], config: BrokerConfig | None = None, **more: Any
) -> None:
    """Runs a story on a started broker and closes everything. `more`: see `World`."""

    async def run() -> None:
        world = World(config, **more)
        await world.start()
        try:
            await story(world)
        finally:
            await world.close()

    asyncio.run(run())
