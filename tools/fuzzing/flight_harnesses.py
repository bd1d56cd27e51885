"""Harnesses of the port for tools: what its clients send, over the socket and within a call.

The first byte chooses how the bytes come: at once, or in two reads. Behind the preface of HTTP/2 they are
frames; the service behind is one that has no process to start.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any, Final, cast

from h2.config import H2Configuration
from h2.connection import H2Connection

from fuzzing.harness import Harness, require
from magnetar.base.loop_shares import LoopShares, ShareSizes
from magnetar.flightsql import flight_pb2 as pb
from magnetar.flightsql.commands import (
    COMMANDS,
    FlightAsk,
    packed,
    read_command,
    read_descriptor,
    read_prepared,
)
from magnetar.flightsql.connection import CALLS_MAX, FlightConnection
from magnetar.flightsql.grpc_messages import (
    PREFIX,
    REQUEST_BYTES_MAX,
    GrpcError,
    RequestMessage,
    framed,
)
from magnetar.flightsql.service import PREFIX as PATH
from magnetar.flightsql.service import FlightAnswer, FlightCall, FlightService
from magnetar.runtime.tasks import TaskGroup

_TURNS_MAX: Final = 64
"""Turns of the loop that an input may need: each parses a slice."""
_WRITTEN_MAX: Final = 1 << 20
"""Bytes with which an input of a few thousand may be answered."""


class _Wire:
    """A transport that takes everything, and a service that answers at once."""

    def __init__(self) -> None:
        self.written = 0
        self.closed = False

    def get_extra_info(self, name: str) -> object:
        """The address of the client."""
        return ("127.0.0.1", 5) if name == "peername" else None

    def write(self, data: bytes) -> None:
        """Counts the bytes."""
        self.written += len(data)

    def get_write_buffer_size(self) -> int:
        """Nothing waits."""
        return 0

    def is_closing(self) -> bool:
        """Whether the connection was closed."""
        return self.closed

    def pause_reading(self) -> None:
        """There is no more to read."""

    def resume_reading(self) -> None:
        """There is no more to read."""

    def close(self) -> None:
        """Closes it."""
        self.closed = True

    abort = close

    def answers(self, method: str) -> bool:
        """All but two methods."""
        return method not in ("DoPut", "DoExchange")

    async def answer(self, call: FlightCall) -> FlightAnswer:
        """The message as it came."""
        require(len(call.message) <= REQUEST_BYTES_MAX, "a message is larger than its bound")
        return FlightAnswer(self._pieces(call.message))

    async def _pieces(self, message: bytes) -> AsyncIterator[bytes]:
        yield framed(message)


async def _talked(data: bytes) -> tuple[bool, int]:
    wire = _Wire()
    tasks = TaskGroup("fuzzed")
    waiting: list[Any] = []
    turns = LoopShares(waiting.append, lambda: 0.0, ShareSizes(per_read=1, per_turn=1))
    ended: list[FlightConnection] = []
    connection = FlightConnection(cast(FlightService, wire), turns, tasks, ended.append)
    connection.connection_made(cast(asyncio.BaseTransport, wire))
    half = len(data) // 2 if data[:1] < b"\x80" else len(data)
    for part in (data[1:half], data[half:]):
        if not wire.closed:
            connection.data_received(part)
        for _ in range(_TURNS_MAX):
            due, waiting[:] = list(waiting), []
            for turn in due:
                turn()
            await asyncio.sleep(0)
    require(not waiting or wire.closed, "bytes wait to be parsed, and nothing comes")
    require(len(connection._streams) <= CALLS_MAX, "more calls than are allowed")
    require(wire.written <= _WRITTEN_MAX, "the answer is far larger than the question")
    connection.connection_lost(None)
    await tasks.close()
    require(ended == [connection], "the end was told once")
    return wire.closed, wire.written


def run_http2(data: bytes) -> object:
    """All that a client may send on a connection."""
    return asyncio.run(_talked(data))


def run_commands(data: bytes) -> object:
    """Descriptors, tickets and bodies of actions, which a client writes."""
    found: list[object] = []
    for read in (read_command, read_descriptor, read_prepared):
        try:
            answer = read(data)
        except GrpcError as error:
            found.append((error.code, str(error)[:200]))
            require(len(str(error)) < 1_000, "an error quotes what a client has sent")
        else:
            ask = answer[0] if isinstance(answer, tuple) else answer
            require(isinstance(ask, FlightAsk | str), "something else was read")
            found.append(repr(ask))
    message = RequestMessage()
    try:
        message.take(data)
        found.append(message.whole())
    except GrpcError as error:
        found.append(error.code)
    return found


def _connection_seeds() -> list[bytes]:
    made = []
    for methods in (("DoGet",), ("GetFlightInfo", "DoAction"), ("DoPut", "Handshake")):
        client = H2Connection(H2Configuration(client_side=True))
        client.initiate_connection()
        for method in methods:
            number = client.get_next_available_stream_id()
            head = [
                (":method", "POST"),
                (":scheme", "http"),
                (":path", PATH + method),
                (":authority", "h"),
                ("content-type", "application/grpc"),
            ]
            client.send_headers(number, head)
            client.send_data(number, framed(b"ticket"), end_stream=True)
        client.ping(b"01234567")
        made.append(client.data_to_send())
    return [byte + data for data in made for byte in (b"\x00", b"\xff")] + [b"\xffGET / HTTP/1.1\r\n\r\n"]


def _command_seeds() -> list[bytes]:
    query = pb.CommandStatementQuery(query="SELECT 1")
    tables = pb.CommandGetTables(catalog="a", table_name_filter_pattern="%", include_schema=True)
    made = [packed(name, pb.CommandGetSqlInfo(info=[1, 2])) for name in sorted(COMMANDS)]
    made += [packed("CommandStatementQuery", query), packed("CommandGetTables", tables)]
    made.append(
        packed(
            "ActionCreatePreparedStatementRequest",
            pb.ActionCreatePreparedStatementRequest(query="SELECT 1"),
        )
    )
    described = [
        pb.FlightDescriptor(type=pb.FlightDescriptor.CMD, cmd=each).SerializeToString() for each in made
    ]
    return made + described + [framed(each) for each in made[:3]] + [PREFIX.pack(0, 1 << 31)]


HARNESSES: Final = (
    Harness(name="flight-connection", run=run_http2, refusals=(), seeds=_connection_seeds),
    Harness(
        name="flight-commands",
        run=run_commands,
        refusals=(),
        seeds=_command_seeds,
        words=tuple(name.encode() for name in sorted(COMMANDS)),
    ),
)
