"""Clients of a simulated broker: a session each, without a socket, with the official clients' manners.

A client whose request is refused or not answered, or that is sent away, comes back a little later on a new
connection. A request that is not answered in ANSWER_S while storage was well is a violation.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from magnetar.base.ids import ConsumerId, ProducerId, RequestId
from magnetar.broker.service import Broker
from magnetar.broker.session.session import Session
from magnetar.broker.session.slices import sliced
from magnetar.wire import pulsar_pb2 as pb
from magnetar.wire.acks import encode_ack, encode_flow
from magnetar.wire.client import ClientParser, CommandEvent
from magnetar.wire.frames import encode_command, frame_bytes_max
from magnetar.wire.messages import MessageEvent
from magnetar.wire.payload import build_entry
from magnetar.wire.receipts import ReceiptRun
from magnetar.wire.sends import encode_send
from magnetar.wire.server import ServerParser

ANSWER_S: Final = 40.0
"""Longer than anything in the broker waits before it refuses."""
_FRAME_BYTES_MAX: Final = frame_bytes_max(1 << 20)
_Type = pb.BaseCommand.Type


class Line:
    """One connection, both ends."""

    def __init__(self, broker: Broker, peer: str, hear: Callable[[object], None]) -> None:
        self._hear = hear
        self._server, self._client = ServerParser(_FRAME_BYTES_MAX), ClientParser(_FRAME_BYTES_MAX)
        self.closed = False
        self.session = Session(broker, self, peer=peer, local_host="127.0.0.1", port=6650)
        self.say(
            pb.BaseCommand(
                type=_Type.CONNECT, connect=pb.CommandConnect(client_version="s", protocol_version=19)
            )
        )

    # The session's transport

    def flush_soon(self) -> None:
        asyncio.get_running_loop().call_soon(self._flush)

    def _flush(self) -> None:
        session = self.session
        data = b"".join(session.out)
        size, session.out, session.out_bytes = session.out_bytes, [], 0
        session.wrote(size)
        events, _ = self._client.parse(data, len(data))
        for event in events:
            self._hear(event)

    def unsent_bytes(self) -> int:
        return 0

    def pause_reading(self) -> None:
        """What a client sends here is little."""

    def resume_reading(self) -> None:
        """The same."""

    def close(self, reason: str) -> None:
        if not self.closed:
            self.closed = True
            self.session.lost()

    abort = close

    # The client

    def say(self, *frames: pb.BaseCommand | bytes) -> None:
        """All in one socket read."""
        if not self.closed:
            parts = [each if isinstance(each, bytes) else encode_command(each) for each in frames]
            data = b"".join(parts)
            events, _ = self._server.parse(data, len(data))
            for turn in sliced(events):
                self.session.handle(turn)


class Client:
    """A producer or a consumer that stays for the whole story."""

    def __init__(self, broker: Broker, name: str, topic: str, pause: Callable[[], float]) -> None:
        """`pause`: seconds between two things that it does, by chance."""
        self.broker, self.name, self.topic = broker, name, topic
        self.violations: list[str] = []
        self.stopped = False
        self._pause = pause
        self.line: Line | None = None
        self._answers: dict[int, Any] = {}
        self._wake = asyncio.Event()
        self._requests = 0
        self.away = False
        """Whether the broker sent it away."""

    def _hear(self, event: object) -> None:
        if isinstance(event, CommandEvent):
            command = event.command
            if event.type in (_Type.CLOSE_PRODUCER, _Type.CLOSE_CONSUMER):
                self.away = True
            for field, value in command.ListFields():
                number = getattr(value, "request_id", None)
                if number is not None and field.name != "type":
                    self._answers[number] = value
                if field.name == "error" and value.message.startswith("internal error"):
                    self.violations.append(f"{self.name}: {value.message}")
        self.heard(event)
        self._wake.set()

    def heard(self, event: object) -> None:
        """More that one kind of client does."""

    async def until(self, condition: Callable[[], bool]) -> bool:
        """Waits, ANSWER_S at most; whether it came to be."""
        try:
            async with asyncio.timeout(ANSWER_S):
                while not condition():
                    self._wake.clear()
                    await self._wake.wait()
        except TimeoutError:
            return False
        return True

    def number(self) -> RequestId:
        self._requests += 1
        return RequestId(self._requests)

    async def opened(self, kind: pb.BaseCommand.Type, **body: Any) -> bool:
        """Opens on a new connection; whether the broker let it."""
        if self.line is not None:
            self.line.close("comes back")
        self.away = False
        line = self.line = Line(self.broker, self.name, self._hear)
        number = self.number()
        for message in body.values():
            message.request_id = number
        line.say(pb.BaseCommand(type=kind, **body))
        if not await self.until(partial(self._heard_of, number, line)):
            self.violations.append(f"{self.name}: its opening was not answered")
            return False
        answer = self._answers.pop(number, None)
        return answer is not None and not isinstance(answer, pb.CommandError)

    def _heard_of(self, number: int, line: Line) -> bool:
        return number in self._answers or line.closed

    def stays(self) -> bool:
        """Whether nobody wants it to leave."""
        return not (self.stopped or self.away)

    async def run(self) -> None:
        """Lives until it is stopped."""
        raise NotImplementedError

    async def rest(self) -> None:
        await asyncio.sleep(self._pause())


class ProducingClient(Client):
    """Sends one message after the other; each is sent again until it has a receipt."""

    stored: int = -1
    """The last number that has a receipt."""

    async def run(self) -> None:
        while not self.stopped:
            body = pb.CommandProducer(topic=self.topic, producer_id=1, producer_name=self.name)
            if await self.opened(_Type.PRODUCER, producer=body):
                while self.stays() and await self._send(self.stored + 1):
                    await self.rest()
            await self.rest()

    async def _send(self, number: int) -> bool:
        line = self.line
        assert line is not None
        self._refused = False
        metadata = pb.MessageMetadata(producer_name=self.name, sequence_id=number, publish_time=1)
        line.say(encode_send(ProducerId(1), number, 1, build_entry(metadata, b"%d" % number)))
        if not await self.until(lambda: self.stored >= number or self.away or self._refused or line.closed):
            self.violations.append(f"{self.name}: message {number} was not answered")
        return self.stored >= number and not line.closed

    _refused = False

    def heard(self, event: object) -> None:
        if isinstance(event, ReceiptRun):
            self.stored = max(self.stored, *event.sequence_ids)
        elif isinstance(event, CommandEvent) and event.type == _Type.SEND_ERROR:
            self._refused = True


class ConsumingClient(Client):
    """Acknowledges what it gets; now and then unsubscribes and subscribes again in one breath, if it may."""

    def __init__(self, *arguments: Any, unsubscribes: bool) -> None:
        super().__init__(*arguments)
        self.received: set[int] = set()
        self.ids = ConsumerId(1)
        self.unsubscribes = unsubscribes

    def _subscribe(self) -> pb.CommandSubscribe:
        return pb.CommandSubscribe(
            topic=self.topic,
            subscription="s",
            subType=pb.CommandSubscribe.Exclusive,
            consumer_id=self.ids,
            initialPosition=pb.CommandSubscribe.Earliest,
        )

    async def run(self) -> None:
        while not self.stopped:
            if await self.opened(_Type.SUBSCRIBE, subscribe=self._subscribe()):
                await self._consume()
            await self.rest()

    async def _consume(self) -> None:
        line = self.line
        assert line is not None
        line.say(encode_flow(self.ids, 10_000))
        while not self.stopped and not self.away and not line.closed:
            await self.rest()
            if self.unsubscribes and self._pause() < 0.1 and not self.away:
                leaving = pb.CommandUnsubscribe(consumer_id=self.ids, request_id=self.number())
                self.ids = ConsumerId(self.ids + self._requests % 2)
                coming = self._subscribe()
                coming.request_id = number = self.number()
                line.say(
                    pb.BaseCommand(type=_Type.UNSUBSCRIBE, unsubscribe=leaving),
                    pb.BaseCommand(type=_Type.SUBSCRIBE, subscribe=coming),
                )
                if not await self.until(partial(self._heard_of, number, line)):
                    self.violations.append(f"{self.name}: SUBSCRIBE behind UNSUBSCRIBE was not answered")
                if isinstance(self._answers.pop(number, None), pb.CommandError):
                    return
                line.say(encode_flow(self.ids, 10_000))

    def heard(self, event: object) -> None:
        if isinstance(event, MessageEvent) and self.line is not None:
            self.received.add(int(event.entry[event.payload_at :]))
            self.line.say(encode_ack(event.consumer_id, [event.position]))
