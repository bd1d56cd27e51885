"""Clients of a simulated broker: a session each, without a socket, with the official clients' manners.

A client whose request is refused or not answered, or that is sent away, comes back a little later on a new
connection. A request that is not answered in ANSWER_S while storage was well is a violation.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from magnetar.base.ids import ConsumerId, ProducerId, RequestId
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
from sim.cluster.loop import Process, SimLoop

if TYPE_CHECKING:
    from magnetar.broker.service import Broker

ANSWER_S: Final = 40.0
"""Longer than anything in the broker waits before it refuses."""
_FRAME_BYTES_MAX: Final = frame_bytes_max(1 << 20)
_Type = pb.BaseCommand.Type


class Home:
    """Where the broker is just now: a process of its own, which may vanish and come back."""

    def __init__(self, loop: SimLoop) -> None:
        self.loop = loop
        self.process = Process("no broker yet")
        self.broker: Broker | None = None
        """None while it is away."""


class Line:
    """One connection, both ends. The broker's end runs in its process."""

    session: Session

    def __init__(self, home: Home, peer: str, hear: Callable[[object], None]) -> None:
        """Raises ConnectionRefusedError while no broker runs."""
        if home.broker is None:
            raise ConnectionRefusedError
        self._loop, self._process = home.loop, home.process
        self._hear = hear
        self._server, self._client = ServerParser(_FRAME_BYTES_MAX), ClientParser(_FRAME_BYTES_MAX)
        self.closed = False
        self._within(self._accepted, home.broker, peer)
        self.say(
            pb.BaseCommand(
                type=_Type.CONNECT, connect=pb.CommandConnect(client_version="s", protocol_version=19)
            )
        )

    def _accepted(self, broker: Broker, peer: str) -> None:
        self.session = Session(broker, self, peer=peer, local_host="127.0.0.1", port=6650)

    def _within(self, action: Callable[..., object], *arguments: Any) -> None:
        """As the broker's process; nothing happens when that is gone."""
        self._loop.within(self._process, action, *arguments)

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
            self._within(self.session.lost)

    abort = close

    def hand_over(self, place: Path) -> None:
        raise AssertionError("the simulated broker is one process")

    # The client

    def say(self, *frames: pb.BaseCommand | bytes) -> None:
        """All in one socket read."""
        if not self.closed:
            parts = [each if isinstance(each, bytes) else encode_command(each) for each in frames]
            data = b"".join(parts)
            events, _ = self._server.parse(data, len(data))
            for turn in sliced(events):
                self._within(self._handle, turn)

    def _handle(self, turn: list[object]) -> None:
        # A process that is paused has accepted nothing yet.
        self.session.handle(turn)


class Client(ABC):
    """A producer or a consumer that stays for the whole story."""

    def __init__(self, home: Home, name: str, topic: str, pause: Callable[[], float]) -> None:
        """`pause`: seconds between two things that it does, by chance."""
        self.name, self.topic = name, topic
        self._home = home
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

    def heard(self, event: object) -> None:  # noqa: B027 - one kind of client listens, the others need not
        """More that one kind of client does."""

    def cut_off(self) -> None:
        """The broker's process has vanished, and the connection with it."""
        if self.line is not None:
            self.line.closed = True
        self._wake.set()

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

    def connected(self) -> Line:
        """A new connection."""
        return Line(self._home, self.name, self._hear)

    async def opened(self, kind: pb.BaseCommand.Type, **body: Any) -> bool:
        """Opens on a new connection; whether the broker let it."""
        if self.line is not None:
            self.line.close("comes back")
        self.away = False
        try:
            line = self.line = self.connected()
        except ConnectionRefusedError:
            return False
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
        """Whether the client is neither stopped nor away."""
        return not (self.stopped or self.away)

    @abstractmethod
    async def run(self) -> None:
        """Lives until it is stopped."""

    async def rest(self) -> None:
        await asyncio.sleep(self._pause())


class ProducingClient(Client):
    """Sends a few messages at a time, one behind the other; each is sent again until it has a receipt."""

    stored: int = -1
    """The last number that has a receipt."""

    async def run(self) -> None:
        while not self.stopped:
            body = pb.CommandProducer(topic=self.topic, producer_id=1, producer_name=self.name)
            if await self.opened(_Type.PRODUCER, producer=body):
                while self.stays() and await self._send(self.stored + 1):
                    await self.rest()
            await self.rest()

    async def _send(self, first: int) -> bool:
        line = self.line
        assert line is not None
        self._refused = False
        last = first + (2 if self._pause() < 0.05 else 0)
        for number in range(first, last + 1):
            if number > first:
                # So that they are not all in one append of the log.
                await asyncio.sleep(0.001)
            metadata = pb.MessageMetadata(producer_name=self.name, sequence_id=number, publish_time=1)
            line.say(encode_send(ProducerId(1), number, 1, build_entry(metadata, b"%d" % number)))
        if not await self.until(lambda: self.stored >= last or self.away or self._refused or line.closed):
            self.violations.append(f"{self.name}: message {last} was not answered")
        return self.stored >= last and not line.closed

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
