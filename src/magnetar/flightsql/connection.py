"""One connection of a client: HTTP/2 with calls of gRPC.

The library (`h2`) parses frames and knows the states of streams. Here are the bounds: how much is parsed in a
turn of the loop, how long a client may take, how much it may send beside calls, and that a client which
does not read is not read either.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, cast

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.errors import ErrorCodes
from h2.events import DataReceived, Event, RequestReceived, StreamEnded, StreamReset, WindowUpdated
from h2.exceptions import H2Error
from h2.settings import SettingCodes, Settings

from magnetar.base.errors import MagnetarError
from magnetar.base.loop_shares import LoopShares
from magnetar.flightsql.endings import end, told
from magnetar.flightsql.grpc_messages import (
    INTERNAL,
    OK,
    UNIMPLEMENTED,
    GrpcError,
    RequestMessage,
)
from magnetar.flightsql.service import PREFIX, FlightAnswer, FlightCall, FlightService
from magnetar.runtime.tasks import TaskGroup, begin, yield_loop

_log = logging.getLogger("magnetar.flightsql")

GREETING_S: Final = 10.0
"""Seconds from the opening of a connection until its client has begun HTTP/2."""
REQUEST_S: Final = 10.0
"""Seconds from the head of a call until its message is whole."""
STUCK_S: Final = 60.0
"""Seconds for which a client may take no byte of an answer that waits for it."""
IDLE_S: Final = 600.0
"""Seconds without a call after which a connection is closed; pools of tools open another one."""
CALLS_MAX: Final = 8
"""Calls of a connection at the same time. Those of all wait for places of queries."""
CALLS_IN_ALL_MAX: Final = 10_000
"""Calls of a connection in all: the library remembers each stream. Then the client opens another one."""
HEAD_BYTES_MAX: Final = 32 << 10
"""Most bytes of a head; a token may have half of it."""
ODD_MAX: Final = 300
"""Frames that belong to no call (pings, settings, streams that are given up), less the calls that were
answered and the pieces that were taken since; a client with more is disconnected."""
SLICE_BYTES: Final = 4 << 10
"""Bytes that are parsed at a time: frames of nine bytes take 20 µs each."""
_UNPARSED_MAX: Final = 64 << 10
"""Bytes that may wait to be parsed; the transport is not read meanwhile."""
_ODD_PER_CALL: Final = 10
"""Such frames that an answered call makes up for."""

_SETTINGS: Final = {
    SettingCodes.ENABLE_CONNECT_PROTOCOL: 0,
    SettingCodes.MAX_CONCURRENT_STREAMS: CALLS_MAX,
    SettingCodes.MAX_HEADER_LIST_SIZE: HEAD_BYTES_MAX,
}


@dataclass(slots=True, eq=False)
class _Stream:
    """A call of a client."""

    number: int
    method: str
    authorization: str
    began_s: float
    message: RequestMessage
    writable: asyncio.Event
    task: asyncio.Task[None] | None = None
    """Answers it, once its message is whole."""


class FlightConnection(asyncio.Protocol):
    """See the module's text."""

    def __init__(
        self,
        service: FlightService,
        turns: LoopShares,
        tasks: TaskGroup,
        ended: Callable[[FlightConnection], None],
    ) -> None:
        """`tasks` runs the answers; `ended` is called when the connection is closed."""
        self._service = service
        self._turns = turns
        self._tasks = tasks
        self._ended = ended
        self._h2 = H2Connection(H2Configuration(client_side=False, header_encoding="latin-1"))
        self._h2.local_settings = Settings(client=False, initial_values=_SETTINGS)
        self._h2.decoder.max_header_list_size = HEAD_BYTES_MAX
        self._streams: dict[int, _Stream] = {}
        self._transport: asyncio.Transport | None = None
        self._unparsed = bytearray()
        self._waits_for_turn = False
        self._paused = False
        """Whether the client takes no bytes now."""
        self._odd = 0
        self._calls = 0
        self._greeted = False
        self._since_s = 0.0
        """When it was opened, or had its last call."""
        self._unsent: tuple[int, float] = (0, 0.0)
        """Bytes that wait in the transport, and since when they are as many."""
        self.peer = "?"
        """Address and port of the client."""

    # ------------------------------------------------------------ of the transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # Transports of uvloop are none by their class.
        transport = self._transport = cast(asyncio.Transport, transport)
        peer = transport.get_extra_info("peername")
        self.peer = f"{peer[0]}:{peer[1]}" if peer else "?"
        self._since_s = asyncio.get_running_loop().time()
        self._h2.initiate_connection()
        self._flush()

    def data_received(self, data: bytes) -> None:
        self._unparsed += data
        self._settle()

    def pause_writing(self) -> None:
        self._paused = True
        self._settle()

    def resume_writing(self) -> None:
        self._paused = False
        self._wake()
        self._settle()

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._unparsed.clear()
        self._turns.forget(self.address, self)
        for stream in self._streams.values():
            if stream.task is not None:
                stream.task.cancel()
        self._streams.clear()
        self._ended(self)

    @property
    def address(self) -> str:
        """Address of the client's machine."""
        return self.peer.rpartition(":")[0]

    @property
    def is_idle(self) -> bool:
        """Whether no call is in work."""
        return not self._streams

    # ------------------------------------------------------------ parsing, in turns

    def _settle(self) -> None:
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        # A client that does not read is not read: answers to its pings would fill the memory.
        if self._unparsed and not self._paused and not self._waits_for_turn:
            self._waits_for_turn = True
            self._turns.wait(self.address, self)
        if self._paused or len(self._unparsed) >= _UNPARSED_MAX:
            transport.pause_reading()
        else:
            transport.resume_reading()

    def go_on(self) -> None:
        """Its turn: parses a slice of what was read."""
        self._waits_for_turn = False
        if self._transport is None or self._transport.is_closing():
            return
        data = bytes(self._unparsed[:SLICE_BYTES])
        del self._unparsed[:SLICE_BYTES]
        try:
            for event in self._h2.receive_data(data):
                self._take(event)
        except H2Error as error:
            # What the library answers to it says what is wrong.
            _log.info("%s: no HTTP/2: %s", self.peer, error)
            self._close(ErrorCodes.PROTOCOL_ERROR)
            return
        except Exception:
            # A bug: the loop logs it, and a connection that was parsed in part must not go on.
            self.abort()
            raise
        if self._odd > ODD_MAX:
            _log.warning("%s: disconnected: it sends too many frames that belong to no call", self.peer)
            self._close(ErrorCodes.ENHANCE_YOUR_CALM)
            return
        self._flush()
        self._settle()

    def _take(self, event: Event) -> None:
        self._greeted = True
        if isinstance(event, DataReceived):
            self._take_data(event)
        elif isinstance(event, RequestReceived):
            self._begin(event)
        elif isinstance(event, StreamEnded):
            self._answer(event.stream_id)
        elif isinstance(event, WindowUpdated):
            self._wake()
        else:
            self._odd += 1
            if isinstance(event, StreamReset):
                self._forget(event.stream_id)

    def _take_data(self, event: DataReceived) -> None:
        stream = self._streams.get(event.stream_id)
        if not event.data or stream is None:
            self._odd += 1
        if event.flow_controlled_length:
            with suppress(H2Error):  # the stream is closed, and its bytes count no more
                self._h2.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
        if stream is None or stream.task is not None:
            return
        try:
            stream.message.take(event.data)
        except GrpcError as error:
            self._refuse(event.stream_id, error)

    def _begin(self, event: RequestReceived) -> None:
        number = event.stream_id
        heads = {str(name): str(value) for name, value in event.headers}
        self._calls += 1
        if heads.get(":method") != "POST" or not heads.get("content-type", "").startswith("application/grpc"):
            self._h2.send_headers(number, [(":status", "415")], end_stream=True)
            self._odd += 1
            return
        path = heads.get(":path", "")
        method = path[len(PREFIX) :] if path.startswith(PREFIX) else ""
        self._since_s = asyncio.get_running_loop().time()
        stream = _Stream(
            number, method, heads.get("authorization", ""), self._since_s, RequestMessage(), asyncio.Event()
        )
        self._streams[number] = stream
        if not self._service.answers(method):
            # Its messages may never end.
            self._refuse(
                number,
                GrpcError(UNIMPLEMENTED, f"{path[:200]!r} is not offered: queries read, and nothing else"),
            )

    def _refuse(self, number: int, error: GrpcError) -> None:
        """Ends a call whose message is not read any more."""
        self._streams.pop(number, None)
        self._odd += 1
        with suppress(H2Error):  # the client has given it up
            self._h2.send_headers(number, end(error.code, str(error), first=True), end_stream=True)
            if not self._is_closed(number):
                self._h2.reset_stream(number, ErrorCodes.NO_ERROR)

    def _is_closed(self, number: int) -> bool:
        stream = self._h2.streams.get(number)
        return stream is None or stream.closed

    def _answer(self, number: int) -> None:
        stream = self._streams.get(number)
        if stream is None or stream.task is not None:
            return
        stream.task = begin(self._answered(stream))
        self._tasks.adopt(stream.task)

    def _forget(self, number: int) -> None:
        stream = self._streams.pop(number, None)
        if stream is not None and stream.task is not None:
            stream.task.cancel()

    # ------------------------------------------------------------ answers

    async def _answered(self, stream: _Stream) -> None:
        answer: FlightAnswer | None = None
        code, reason, begun = OK, "", False
        try:
            answer = await self._service.answer(self._call(stream))
            headers = [(":status", "200"), ("content-type", "application/grpc"), *answer.headers.items()]
            self._h2.send_headers(stream.number, headers)
            begun = True
            async for piece in answer.pieces:
                await self._send(stream, piece)
        except MagnetarError as error:
            code, reason = told(error)
        except H2Error:
            # The client has given the call up, and the event that says so comes.
            return
        except Exception:  # noqa: BLE001  # a bug met by one call is answered and must not stop others
            _log.exception("%s: %s failed", self.peer, stream.method)
            code, reason = INTERNAL, "internal error; the broker's log has the details"
        finally:
            if answer is not None:
                answer.close()
        self._finish(stream, end(code, reason, first=not begun))

    def _call(self, stream: _Stream) -> FlightCall:
        transport = self._transport
        return FlightCall(
            method=stream.method,
            message=stream.message.whole(),
            authorization=stream.authorization,
            peer=self.peer,
            secure=transport is not None and transport.get_extra_info("sslcontext") is not None,
        )

    async def _send(self, stream: _Stream, piece: bytes) -> None:
        """Sends bytes as the client takes them. Raises GrpcError when it takes none for a minute."""
        rest = memoryview(piece)
        while rest:
            window = min(
                self._h2.local_flow_control_window(stream.number), self._h2.max_outbound_frame_size, len(rest)
            )
            if window <= 0 or self._paused:
                self._flush()
                stream.writable.clear()
                try:
                    async with asyncio.timeout(STUCK_S):
                        await stream.writable.wait()
                except TimeoutError as error:
                    raise GrpcError(INTERNAL, f"the client took nothing for {STUCK_S:g} s") from error
                continue
            self._h2.send_data(stream.number, bytes(rest[:window]))
            rest = rest[window:]
            self._odd = max(0, self._odd - 1)
            self._flush()
        # A client that reads fast never makes this wait.
        await yield_loop()

    def _finish(self, stream: _Stream, trailers: list[tuple[str, str]]) -> None:
        if self._streams.pop(stream.number, None) is None:
            return
        self._odd = max(0, self._odd - _ODD_PER_CALL)
        self._since_s = asyncio.get_running_loop().time()
        with suppress(H2Error):  # the client has given it up
            self._h2.send_headers(stream.number, trailers, end_stream=True)
        self._flush()
        if self._calls >= CALLS_IN_ALL_MAX and not self._streams:
            self._close(ErrorCodes.NO_ERROR)

    def _wake(self) -> None:
        for stream in self._streams.values():
            stream.writable.set()

    def _flush(self) -> None:
        if self._transport is not None and (data := self._h2.data_to_send()):
            self._transport.write(data)

    # ------------------------------------------------------------ the end

    def look(self, now_s: float) -> None:
        """Closes the connection when its client takes too long; called each second."""
        transport = self._transport
        if transport is None:
            return
        waiting = transport.get_write_buffer_size()
        if not waiting or waiting != self._unsent[0]:
            self._unsent = waiting, now_s
        slow = any(each.task is None and now_s - each.began_s > REQUEST_S for each in self._streams.values())
        if (
            slow
            or (not self._greeted and now_s - self._since_s > GREETING_S)
            or now_s - self._unsent[1] > STUCK_S
        ):
            self.abort()
        elif self.is_idle and now_s - self._since_s > IDLE_S:
            self._close(ErrorCodes.NO_ERROR)

    def leave(self) -> None:
        """Tells the client that the broker stops, and closes the connection."""
        self._close(ErrorCodes.NO_ERROR)

    def _close(self, code: ErrorCodes) -> None:
        with suppress(H2Error):  # the library has said it already
            self._h2.close_connection(code)
        self._flush()
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        """Ends the connection at once."""
        if self._transport is not None:
            self._transport.abort()
