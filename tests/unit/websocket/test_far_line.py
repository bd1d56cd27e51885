"""A connection to another broker: what it writes is what the broker reads, and what is lost when it ends."""

from __future__ import annotations

import asyncio

import pytest

from magnetar.base.ids import ConsumerId, Position, ProducerId
from magnetar.websocket.asking_line import WAITING_BYTES_MAX
from magnetar.websocket.errors import RefusedByBrokerError
from magnetar.websocket.far_line import FarLine
from magnetar.websocket.far_lines import FAR_MAX, FarLines
from magnetar.wire import pulsar_pb2 as pb
from magnetar.wire.client import ClientEvent
from magnetar.wire.events import AckEvent, CommandEvent, FlowEvent, SendRun, ServerEvent
from magnetar.wire.frames import encode_command
from magnetar.wire.payload import build_entry
from magnetar.wire.server import ServerParser

_Type = pb.BaseCommand.Type


class Wire(asyncio.Transport):
    """Notes what was written."""

    def __init__(self) -> None:
        super().__init__()
        self.data = b""
        self.reads = True
        self.ended = ""

    def write(self, data: object) -> None:
        assert isinstance(data, bytes)
        self.data += data

    def is_reading(self) -> bool:
        return self.reads

    def is_closing(self) -> bool:
        return bool(self.ended)

    def pause_reading(self) -> None:
        self.reads = False

    def resume_reading(self) -> None:
        self.reads = True

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        assert high is not None

    def close(self) -> None:
        self.ended = "closed"

    def abort(self) -> None:
        self.ended = "aborted"


def line_on(wire: Wire, heard: list[ClientEvent], ended: list[str]) -> FarLine:
    line = FarLine(5 << 20, hear=heard.append, ended=ended.append)
    line.connection_made(wire)
    return line


def read(data: bytes) -> list[ServerEvent]:
    events, consumed = ServerParser(5 << 20).parse(bytearray(data), len(data))
    assert consumed == len(data)
    return list(events)


def test_the_broker_reads_what_was_handed_over() -> None:
    async def story() -> None:
        wire = Wire()
        line = line_on(wire, [], [])
        run = SendRun(ProducerId(3))
        entry = build_entry(pb.MessageMetadata(producer_name="p", sequence_id=7, publish_time=1), b"x" * 300)
        run.add(7, 1, None, entry, good=True)
        run.add(8, 5, 12, entry, good=True)
        words = ((1 << 64) - 1, 5)
        line.hand(
            run,
            FlowEvent(ConsumerId(4), 1000),
            AckEvent(ConsumerId(4), [Position(5, 6), Position(5, 9)]),
            AckEvent(ConsumerId(4), [Position(7, 1)], cumulative=True),
            AckEvent(ConsumerId(4), [Position(5, 7)], batch_acks=[(Position(5, 8), words, 70)]),
        )
        sends, flow, *acks = read(wire.data)
        assert isinstance(sends, SendRun)
        assert isinstance(flow, FlowEvent)
        assert (sends.producer_id, sends.sequence_ids, sends.counts) == (3, [7, 8], [1, 5])
        assert sends.highest_sequence_ids == [7, 12]
        assert sends.entries == [entry, entry]
        assert sends.bad is None
        assert (flow.consumer_id, flow.permits) == (4, 1000)
        found = [(ack.positions, ack.cumulative, ack.batch_acks) for ack in acks if isinstance(ack, AckEvent)]
        assert found == [
            ([Position(5, 6), Position(5, 9)], False, None),
            ([Position(7, 1)], True, None),
            ([Position(5, 7)], False, [(Position(5, 8), words, 70)]),
        ]

    asyncio.run(story())


def test_requests_fail_when_the_broker_goes() -> None:
    async def story() -> None:
        ended: list[str] = []
        wire = Wire()
        line = line_on(wire, [], ended)
        asked = asyncio.ensure_future(line.ask(_Type.PRODUCER, pb.CommandProducer(topic="t", producer_id=1)))
        await asyncio.sleep(0)
        (event,) = read(wire.data)
        assert isinstance(event, CommandEvent)
        assert event.command.producer.topic == "t"
        line.connection_lost(None)
        with pytest.raises(RefusedByBrokerError) as refused:
            await asked
        assert refused.value.passing, "it is tried again where the topic is then"
        assert len(ended) == 1
        line.hand(FlowEvent(ConsumerId(1), 1))
        line.end()
        assert len(ended) == 1

    asyncio.run(story())


def test_answers_find_their_requests_and_pings_are_answered() -> None:
    async def story() -> None:
        heard: list[ClientEvent] = []
        wire = Wire()
        line = line_on(wire, heard, [])
        asked = asyncio.ensure_future(line.ask(_Type.PRODUCER, pb.CommandProducer(topic="t", producer_id=1)))
        await asyncio.sleep(0)
        success = pb.CommandProducerSuccess(request_id=1, producer_name="p", producer_ready=True)
        ping = encode_command(pb.BaseCommand(type=_Type.PING, ping=pb.CommandPing()))
        data = ping + encode_command(pb.BaseCommand(type=_Type.PRODUCER_SUCCESS, producer_success=success))
        for at in range(0, len(data), 5):
            line.data_received(data[at : at + 5])
        assert (await asked).producer_name == "p"
        assert heard == []
        events = [each for each in read(wire.data) if isinstance(each, CommandEvent)]
        assert [each.type for each in events] == [_Type.PRODUCER, _Type.PONG]
        line.data_received(b"\xff" * 20)
        assert wire.ended == "aborted"

    asyncio.run(story())


def test_a_slow_socket_stops_the_reading() -> None:
    async def story() -> None:
        wire = Wire()
        line = line_on(wire, [], [])
        line.held(WAITING_BYTES_MAX + 1)
        assert not wire.reads
        line.taken(1)
        assert not wire.reads
        line.taken(WAITING_BYTES_MAX)
        assert wire.reads
        line.pause_writing()
        assert not line.readable.is_set()
        line.resume_writing()
        assert line.readable.is_set()

    asyncio.run(story())


def test_places_are_bounded() -> None:
    places = FarLines()
    for _ in range(FAR_MAX):
        places.take()
    with pytest.raises(RefusedByBrokerError, match="are open"):
        places.take()
    places.give_back()
    places.take()
