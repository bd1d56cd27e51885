"""A connection: calls of HTTP/2, a client that does not read, and frames that belong to no call."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import (
    ConnectionTerminated,
    DataReceived,
    Event,
    ResponseReceived,
    StreamReset,
    TrailersReceived,
)

from magnetar.base.loop_shares import LoopShares, ShareSizes
from magnetar.flightsql import connection as flight_connection
from magnetar.flightsql.connection import (
    CALLS_MAX,
    GREETING_S,
    HEAD_BYTES_MAX,
    IDLE_S,
    ODD_MAX,
    REQUEST_S,
    STUCK_S,
    FlightConnection,
)
from magnetar.flightsql.grpc_messages import (
    INTERNAL,
    INVALID_ARGUMENT,
    NOT_FOUND,
    REQUEST_BYTES_MAX,
    RESOURCE_EXHAUSTED,
    UNIMPLEMENTED,
    GrpcError,
    framed,
)
from magnetar.flightsql.service import PREFIX, FlightAnswer, FlightCall
from magnetar.runtime.tasks import TaskGroup, soon
from support.waiting import eventually

HEAD = [
    (":method", "POST"),
    (":scheme", "http"),
    (":path", f"{PREFIX}DoGet"),
    (":authority", "h"),
    ("content-type", "application/grpc"),
    ("te", "trailers"),
    ("authorization", "Bearer t"),
]


class WrittenService:
    """Answers with what a test gives."""

    def __init__(self) -> None:
        self.calls: list[FlightCall] = []
        self.pieces: list[bytes | Exception] = [framed(b"rows")]
        self.refuses: Exception | None = None
        self.closed = 0
        self.goes_on = asyncio.Event()
        self.goes_on.set()

    def answers(self, method: str) -> bool:
        return method in ("DoGet", "Handshake")

    async def answer(self, call: FlightCall) -> FlightAnswer:
        self.calls.append(call)
        if self.refuses is not None:
            raise self.refuses
        return FlightAnswer(self._made(), {"x": "y"}, self._close)

    async def _made(self) -> AsyncIterator[bytes]:
        for piece in self.pieces:
            await self.goes_on.wait()
            if isinstance(piece, Exception):
                raise piece
            yield piece

    def _close(self) -> None:
        self.closed += 1


class Wire:
    """The transport of a connection, with a client at its other end."""

    def __init__(self) -> None:
        self.service = WrittenService()
        self.tasks = TaskGroup("answers")
        self.ended: list[FlightConnection] = []
        turns = LoopShares(soon, lambda: 0.0, ShareSizes(per_read=1, per_turn=1))
        self.connection = FlightConnection(self.service, turns, self.tasks, self.ended.append)  # type: ignore[arg-type]
        self.client = H2Connection(H2Configuration(client_side=True, header_encoding="utf-8"))
        self.events: list[Event] = []
        self.sent = bytearray()
        self.closing = self.reading_paused = False
        self.kept = 0
        self.connection.connection_made(self)  # type: ignore[arg-type]
        self.client.initiate_connection()

    # what the connection asks of its transport

    def get_extra_info(self, name: str) -> object:
        return ("127.0.0.1", 5) if name == "peername" else None

    def write(self, data: bytes) -> None:
        self.sent += data

    def get_write_buffer_size(self) -> int:
        return self.kept

    def is_closing(self) -> bool:
        return self.closing

    def pause_reading(self) -> None:
        self.reading_paused = True

    def resume_reading(self) -> None:
        self.reading_paused = False

    def close(self) -> None:
        if not self.closing:
            self.closing = True
            asyncio.get_running_loop().call_soon(self.connection.connection_lost, None)

    abort = close

    # what the client does

    def say(self, data: bytes | None = None) -> None:
        """Sends what the client has to say, or these bytes."""
        self.connection.data_received(self.client.data_to_send() if data is None else data)

    def hear(self) -> list[Event]:
        """All events of the client so far."""
        data, self.sent = bytes(self.sent), bytearray()
        self.events += self.client.receive_data(data)
        return self.events

    def call(self, message: bytes | None = b"ticket", *, head: list[tuple[str, str]] | None = None) -> int:
        """Begins a call; None: its message does not come."""
        number = self.client.get_next_available_stream_id()
        self.client.send_headers(number, head or HEAD)
        if message is not None:
            self.client.send_data(number, framed(message), end_stream=True)
        self.say()
        return number

    async def told(self, number: int) -> tuple[int, str]:
        """The code and the text with which a call ended."""

        def last() -> dict[str, str] | None:
            for event in self.hear():
                if isinstance(event, TrailersReceived | ResponseReceived) and event.stream_id == number:
                    found = {str(name): str(value) for name, value in event.headers}
                    if "grpc-status" in found:
                        return found
            return None

        await eventually(lambda: last() is not None)
        found = last()
        assert found is not None
        return int(found["grpc-status"]), found.get("grpc-message", "")

    def body(self, number: int) -> bytes:
        return b"".join(
            event.data or b""
            for event in self.hear()
            if isinstance(event, DataReceived) and event.stream_id == number
        )

    def acknowledge(self) -> None:
        """Gives the window back that what came has taken."""
        for event in self.hear():
            if isinstance(event, DataReceived) and event.flow_controlled_length:
                self.client.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
        self.events = [each for each in self.events if not isinstance(each, DataReceived)]
        self.say()


def with_wire(story: Callable[[Wire], Awaitable[None]]) -> None:
    async def timed() -> None:
        async with asyncio.timeout(30):
            wire = Wire()
            await story(wire)
            await wire.tasks.close()

    asyncio.run(timed())


def test_a_call_and_its_answer() -> None:
    async def story(wire: Wire) -> None:
        number = wire.call(b"ticket")
        assert await wire.told(number) == (0, "")
        assert wire.body(number) == framed(b"rows")
        (call,) = wire.service.calls
        expected = ("DoGet", b"ticket", "Bearer t", "127.0.0.1:5", False)
        assert (call.method, call.message, call.authorization, call.peer, call.secure) == expected
        assert wire.service.closed == 1
        assert wire.connection.is_idle

    with_wire(story)


def test_byte_by_byte() -> None:
    async def story(wire: Wire) -> None:
        number = wire.client.get_next_available_stream_id()
        wire.client.send_headers(number, HEAD)
        wire.client.send_data(number, framed(b"ticket"), end_stream=True)
        for byte in wire.client.data_to_send():
            wire.say(bytes((byte,)))
            await asyncio.sleep(0)
        assert await wire.told(number) == (0, "")

    with_wire(story)


@pytest.mark.parametrize("size", [0, 1, 16_384, 65_535, 300_000])
def test_large_answers_wait_for_the_client(size: int) -> None:
    async def story(wire: Wire) -> None:
        wire.service.pieces = [framed(b"x" * size)] * 3
        number = wire.call()
        found = 0
        while found < 3 * (5 + size):
            await asyncio.sleep(0)
            found += len(wire.body(number))
            wire.acknowledge()
        assert await wire.told(number) == (0, "")

    with_wire(story)


def test_a_client_that_gives_no_window_gets_no_more_and_its_call_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(flight_connection, "STUCK_S", 0.01)

    async def story(wire: Wire) -> None:
        wire.service.pieces = [b"x" * 1_000_000]
        number = wire.call()
        assert (await wire.told(number))[0] == INTERNAL
        assert len(wire.body(number)) == 65_535
        assert wire.service.closed == 1

    with_wire(story)


def test_errors_before_and_between_rows() -> None:
    async def story(wire: Wire) -> None:
        wire.service.refuses = GrpcError(NOT_FOUND, "no topic ä")
        assert await wire.told(wire.call()) == (NOT_FOUND, "no topic %C3%A4")
        wire.service.refuses = None
        wire.service.pieces = [framed(b"1"), GrpcError(RESOURCE_EXHAUSTED, "too much")]
        number = wire.call()
        assert await wire.told(number) == (RESOURCE_EXHAUSTED, "too much")
        assert wire.body(number) == framed(b"1")
        assert wire.service.closed == 1

    with_wire(story)


def test_a_bug_is_answered_and_tells_nothing(caplog: pytest.LogCaptureFixture) -> None:
    async def story(wire: Wire) -> None:
        wire.service.pieces = [ValueError("secret")]
        assert await wire.told(wire.call()) == (INTERNAL, "internal error; the broker's log has the details")
        assert await wire.told(wire.call()) == (INTERNAL, "internal error; the broker's log has the details")

    with_wire(story)
    assert "DoGet failed" in caplog.text


def test_a_client_that_gives_a_call_up_ends_its_query() -> None:
    async def story(wire: Wire) -> None:
        wire.service.goes_on.clear()
        number = wire.call()
        await eventually(lambda: bool(wire.service.calls))
        wire.client.reset_stream(number)
        wire.say()
        await eventually(lambda: wire.service.closed == 1)
        wire.service.goes_on.set()
        assert await wire.told(wire.call()) == (0, "")

    with_wire(story)


def test_a_client_that_goes_ends_its_queries() -> None:
    async def story(wire: Wire) -> None:
        wire.service.goes_on.clear()
        for _ in range(3):
            wire.call()
        await eventually(lambda: len(wire.service.calls) == 3)
        wire.close()
        await eventually(lambda: wire.service.closed == 3)
        assert wire.ended == [wire.connection]

    with_wire(story)


@pytest.mark.parametrize(
    ("name", "value", "status"),
    [(":method", "GET", "415"), ("content-type", "application/json", "415"), ("content-type", "", "415")],
)
def test_what_is_no_grpc(name: str, value: str, status: str) -> None:
    async def story(wire: Wire) -> None:
        head = [(each, value if each == name else had) for each, had in HEAD]
        number = wire.call(None, head=head)

        def answered() -> bool:
            return any(
                isinstance(event, ResponseReceived) and event.stream_id == number for event in wire.hear()
            )

        await eventually(answered)
        (response,) = (event for event in wire.events if isinstance(event, ResponseReceived))
        heads = {str(name): str(value) for name, value in response.headers}
        assert heads[":status"] == status
        assert not wire.service.calls

    with_wire(story)


@pytest.mark.parametrize("path", [f"{PREFIX}DoPut", f"{PREFIX}DoExchange", "/", "/other/DoGet", "x" * 9_000])
def test_what_is_not_offered_is_refused_before_its_message(path: str) -> None:
    async def story(wire: Wire) -> None:
        head = [(each, path if each == ":path" else had) for each, had in HEAD]
        number = wire.call(None, head=head)
        code, text = await wire.told(number)
        assert (code, len(text) < 400) == (UNIMPLEMENTED, True)
        assert wire.connection.is_idle
        # What comes of it afterwards is dropped, and the connection stays.
        assert await wire.told(wire.call()) == (0, "")

    with_wire(story)


def test_a_message_that_is_too_large_is_refused_by_its_first_bytes() -> None:
    async def story(wire: Wire) -> None:
        number = wire.call(None)
        wire.client.send_data(number, framed(b"x" * (REQUEST_BYTES_MAX + 1))[:100])
        wire.say()
        assert (await wire.told(number))[0] == RESOURCE_EXHAUSTED
        assert any(isinstance(event, StreamReset) for event in wire.hear())
        assert not wire.service.calls

    with_wire(story)


def test_a_call_without_a_message() -> None:
    async def story(wire: Wire) -> None:
        number = wire.client.get_next_available_stream_id()
        wire.client.send_headers(number, HEAD, end_stream=True)
        wire.say()
        assert (await wire.told(number))[0] == INVALID_ARGUMENT

    with_wire(story)


@pytest.mark.parametrize(
    "data", [b"GET / HTTP/1.1\r\n\r\n", b"\0" * 100, b"\xff" * 5_000, b"\x16\x03\x01" * 9]
)
def test_what_is_no_http_2_is_disconnected(data: bytes) -> None:
    async def story(wire: Wire) -> None:
        wire.connection.data_received(data)
        await eventually(lambda: bool(wire.ended))

    with_wire(story)


def test_a_head_has_a_size() -> None:
    async def story(wire: Wire) -> None:
        head = [*HEAD, *((f"x-{number}", "y" * 4_000) for number in range(HEAD_BYTES_MAX // 4_000 + 1))]
        number = wire.client.get_next_available_stream_id()
        wire.client.send_headers(number, head)
        wire.say()
        await eventually(lambda: bool(wire.ended))

    with_wire(story)


def test_too_many_calls_at_once_end_the_connection() -> None:
    async def story(wire: Wire) -> None:
        wire.service.goes_on.clear()
        # This client does not heed what it is told.
        for _ in range(CALLS_MAX + 1):
            wire.call()
        await eventually(lambda: bool(wire.ended))
        assert wire.service.closed <= CALLS_MAX

    with_wire(story)


def odd_pings(wire: Wire) -> None:
    wire.client.ping(b"01234567")


def odd_settings(wire: Wire) -> None:
    wire.client.update_settings({})


def odd_streams(wire: Wire) -> None:
    number = wire.client.get_next_available_stream_id()
    wire.client.send_headers(number, HEAD)
    wire.client.reset_stream(number)


def odd_data(wire: Wire) -> None:
    if not wire.connection._calls:
        wire.call(None)
    wire.client.send_data(1, b"")


@pytest.mark.parametrize("frame", [odd_pings, odd_settings, odd_streams, odd_data])
def test_frames_that_belong_to_no_call_end_the_connection(frame: Callable[[Wire], None]) -> None:
    """Pings, settings, the rapid reset of CVE-2023-44487, empty data."""

    async def story(wire: Wire) -> None:
        count = 0
        while count < 3 * ODD_MAX:
            count += 1
            frame(wire)
            wire.say()
            await asyncio.sleep(0)
            if wire.ended:
                break
        assert count >= ODD_MAX // 2
        await eventually(lambda: bool(wire.ended))
        assert not wire.connection._streams

    with_wire(story)


def test_answered_calls_make_up_for_pings() -> None:
    async def story(wire: Wire) -> None:
        for _ in range(ODD_MAX):
            for _ in range(3):
                wire.client.ping(b"01234567")
            assert await wire.told(wire.call()) == (0, "")
            wire.events.clear()
        assert not wire.ended

    with_wire(story)


def test_a_client_that_does_not_read_is_not_read() -> None:
    async def story(wire: Wire) -> None:
        wire.call()
        await eventually(lambda: wire.connection._greeted)
        wire.connection.pause_writing()
        for _ in range(50):
            wire.client.ping(b"01234567")
        wire.say()
        before = len(wire.sent)
        for _ in range(5):
            await asyncio.sleep(0)
        assert wire.reading_paused
        assert len(wire.sent) == before, "no ping is answered"
        wire.connection.resume_writing()
        await eventually(lambda: len(wire.sent) >= before + 50 * 17)
        assert not wire.reading_paused

    with_wire(story)


def test_deadlines() -> None:
    async def story(wire: Wire) -> None:
        now_s = asyncio.get_running_loop().time()
        wire.connection.look(now_s + GREETING_S - 1)
        assert not wire.closing
        wire.connection.look(now_s + GREETING_S + 1)
        assert wire.closing, "it has not begun HTTP/2"
        wire = Wire()
        wire.call(None)
        await eventually(lambda: bool(wire.connection._streams))
        wire.connection.look(now_s + REQUEST_S - 1)
        assert not wire.closing
        wire.connection.look(now_s + REQUEST_S + 2)
        assert wire.closing, "its message does not come"
        wire = Wire()
        await wire.told(wire.call())
        wire.connection.look(now_s + IDLE_S - 1)
        assert not wire.closing
        wire.connection.look(now_s + IDLE_S + 2)
        assert wire.closing, "nothing was asked for long"
        assert any(isinstance(event, ConnectionTerminated) for event in wire.hear())
        wire = Wire()
        await wire.told(wire.call())
        wire.kept = 10
        wire.connection.look(now_s + 1)
        wire.connection.look(now_s + STUCK_S)
        assert not wire.closing
        wire.kept = 9
        wire.connection.look(now_s + STUCK_S + 2)
        assert not wire.closing, "it has taken a byte"
        wire.connection.look(now_s + 2 * STUCK_S + 3)
        assert wire.closing, "it takes nothing"

    with_wire(story)


def test_the_end_of_the_broker_is_told() -> None:
    async def story(wire: Wire) -> None:
        await wire.told(wire.call())
        wire.connection.leave()
        assert any(isinstance(event, ConnectionTerminated) for event in wire.hear())
        await eventually(lambda: bool(wire.ended))

    with_wire(story)


def test_a_connection_has_a_number_of_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flight_connection, "CALLS_IN_ALL_MAX", 3)

    async def story(wire: Wire) -> None:
        for _ in range(3):
            assert await wire.told(wire.call()) == (0, "")
        await eventually(lambda: bool(wire.ended))

    with_wire(story)
