"""Commands of clients, in small parts of a turn of the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from magnetar.broker.config import BrokerConfig
from magnetar.broker.limits.role_quotas import RoleQuotas
from magnetar.broker.limits.tenants import TenantLimits
from magnetar.broker.session import command_turns
from magnetar.broker.session.command_turns import PER_READ, CommandTurns
from magnetar.broker.session.connection import Connection
from magnetar.broker.session.requests import WAITING_MAX, Request, RequestLine
from magnetar.broker.session.shared_buffer import SharedBuffer
from magnetar.wire import commands
from magnetar.wire.server import ServerParser
from support.sessions import CONNECT, FRAME_BYTES_MAX, TOPIC, Type, World, command, in_world, send


class Loop:
    """Turns of a loop, by hand, and a clock of which three pieces of work take a turn."""

    def __init__(self) -> None:
        self.later: list[Callable[[], None]] = []
        self.ms = 0.0
        self.turns = CommandTurns(self.later.append, lambda: self.ms)

    def turn(self) -> None:
        due, self.later[:] = list(self.later), []
        for work in due:
            work()


def test_so_many_requests_begin_in_a_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command_turns, "_REQUESTS_PER_TURN", 2)
    loop = Loop()
    assert [loop.turns.begin_one() for _ in range(3)] == [True, True, False]
    loop.turn()
    assert loop.turns.begin_one()


@pytest.mark.parametrize("per_read", [1, 3, 64])
def test_a_parser_stops_after_so_many_commands_and_loses_none(per_read: int) -> None:
    flow = command(Type.FLOW, consumer_id=1, messagePermits=2)
    close = command(Type.CLOSE_PRODUCER, producer_id=1, request_id=2)
    data = (commands.PING + flow + close) * 10
    parser, events, at = ServerParser(FRAME_BYTES_MAX), list[object](), 0
    while at < len(data):
        some, consumed = parser.parse(data[at:], len(data) - at, per_read)
        assert len(some) == parser.commands == min(per_read, 30 - len(events))
        assert parser.stopped == (len(events) + len(some) < 30)
        events += some
        at += consumed
    whole, _ = ServerParser(FRAME_BYTES_MAX).parse(data, len(data))
    assert list(map(repr, events)) == list(map(repr, whole))


def test_a_command_with_many_properties_counts_as_many() -> None:
    # Four connections each brought seven of them in a turn, which took 27 ms.
    pairs = [{"key": str(n), "value": "v" * 58} for n in range(256)]
    request = {"consumer_id": 1, "request_id": 1, "topic": TOPIC, "subscription": "s", "subType": 0}
    data = command(Type.SUBSCRIBE, **request, metadata=pairs, subscription_properties=pairs) * 2
    parser = ServerParser(FRAME_BYTES_MAX)
    events, consumed = parser.parse(data, len(data), PER_READ)
    assert (len(events), consumed) == (1, len(data) // 2)
    assert parser.stopped


class Wire(asyncio.Transport):
    """A socket's transport: what is written is kept."""

    def __init__(self, address: str) -> None:
        super().__init__({"peername": (address, 1), "sockname": ("127.0.0.1", 2)})
        self.written = b""
        self.reads = True

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None: ...

    def get_write_buffer_size(self) -> int:
        return 0

    def is_closing(self) -> bool:
        return False

    def is_reading(self) -> bool:
        return self.reads

    def pause_reading(self) -> None:
        self.reads = False

    def resume_reading(self) -> None:
        self.reads = True

    def write(self, data: Any) -> None:
        self.written += bytes(data)

    def writelines(self, list_of_data: Any) -> None:
        self.written += b"".join(list_of_data)

    def close(self) -> None: ...

    def abort(self) -> None: ...


def opened(world: World, shared: SharedBuffer, address: str = "192.0.2.7") -> tuple[Connection, Wire]:
    connection, wire = Connection(world.broker, shared), Wire(address)
    connection.connection_made(wire)
    brings(connection, CONNECT)
    wire.written = b""
    return connection, wire


def brings(connection: Connection, data: bytes) -> None:
    """One read of the socket."""
    buffer = connection.get_buffer(-1)
    buffer[: len(data)] = data
    connection.buffer_updated(len(data))


def test_others_are_served_between_the_commands_of_a_flood() -> None:
    async def story(world: World) -> None:
        shared = SharedBuffer()
        flood, flooded = opened(world, shared)
        other, answered = opened(world, shared)
        await asyncio.sleep(0)
        brings(flood, commands.PING * 10_000)
        assert not flooded.reads
        brings(other, commands.PING)
        assert len(flooded.written) <= PER_READ * len(commands.PONG)
        assert answered.written == commands.PONG
        await world.until(lambda: flooded.reads, "the flood is read on")
        assert flooded.written == commands.PONG * 10_000

    in_world(story)


def test_requests_of_a_flood_begin_a_few_a_turn() -> None:
    async def story(world: World) -> None:
        shared = SharedBuffer()
        flood, flooded = opened(world, shared)
        flood_data = b"".join(command(Type.LOOKUP, topic=TOPIC, request_id=n) for n in range(2_000))
        brings(flood, flood_data)
        peer = world.peer()
        assert await peer.ask(Type.LOOKUP, topic=TOPIC, request_id=1)
        assert world.broker.turns.waiting
        await world.until(lambda: flooded.written.count(b"pulsar://") == 2_000, "all are answered")
        assert not world.broker.turns.waiting

    in_world(story)


def test_what_cannot_begin_stays_bytes() -> None:
    """A request takes ten times the memory of its bytes: all of a read stood in line, 4 MB a connection."""

    async def story(world: World) -> None:
        connection, wire = opened(world, SharedBuffer())
        line = connection._session.requests._line
        longest = 0
        add = type(line).add

        def noted(self: RequestLine, request: Request) -> None:
            nonlocal longest
            add(self, request)
            longest = max(longest, len(self))

        monkeypatch.setattr(type(line), "add", noted)
        for _ in range(2):
            brings(
                connection, b"".join(command(Type.LOOKUP, topic=TOPIC, request_id=n) for n in range(2_900))
            )
            await world.until(lambda: wire.reads, "the next read")
        await world.until(lambda: wire.written.count(b"pulsar://") == 5_800, "all are answered")
        assert WAITING_MAX < longest <= WAITING_MAX + PER_READ
        brings(connection, commands.PING)
        await world.until(lambda: wire.written.endswith(commands.PONG), "the next command")

    with pytest.MonkeyPatch.context() as monkeypatch:
        in_world(story)


def test_a_flood_rests_and_others_go_on() -> None:
    config = BrokerConfig(tenants=TenantLimits(commands_per_second_per_role=200))

    async def story(world: World) -> None:
        shared = SharedBuffer()
        flood, flooded = opened(world, shared)
        other, answered = opened(world, shared, "192.0.2.8")
        brings(flood, commands.PING * 1_000)
        for _ in range(20):
            world.clock.advance(1)
            await world.settle()
        assert not flooded.reads
        assert len(flooded.written) < 300 * len(commands.PONG)
        brings(other, commands.PING)
        assert answered.written == commands.PONG
        for _ in range(100):
            world.clock.advance(100)
            world.broker.alarms.ring()
            await world.settle()
        assert flooded.written == commands.PONG * 1_000
        assert flooded.reads

    in_world(story, config)


def test_connections_of_a_role_share_what_it_may() -> None:
    config = BrokerConfig(tenants=TenantLimits(commands_per_second_per_role=64))

    async def story(world: World) -> None:
        shared = SharedBuffer()
        opens = [opened(world, shared) for _ in range(20)]
        for connection, _ in opens:
            brings(connection, commands.PING * 64)
        before = sum(len(wire.written) for _, wire in opens)
        assert not any(wire.reads for _, wire in opens)
        for connection, _ in opens:
            # What stood in the socket's buffer meanwhile.
            connection._left = commands.PING * 1_000
        for _ in range(600):
            world.clock.advance(100)
            world.broker.alarms.ring()
            await world.settle()
        after = sum(len(wire.written) for _, wire in opens)
        # A minute, 64 a second; the first takes up to 64.
        assert 30 * 64 < (after - before) // len(commands.PONG) <= 61 * 64

    in_world(story, config)


def test_messages_and_requests_take_time_of_their_role() -> None:
    limits = TenantLimits(loop_percent_per_role=10)

    async def story(world: World) -> None:
        def ticks() -> float:
            world.clock.advance(30)
            return float(world.clock.monotonic_ms())

        world.broker.quotas = RoleQuotas(limits, ticks)
        flood, flooded = opened(world, SharedBuffer())
        brings(flood, command(Type.PRODUCER, topic=TOPIC, producer_id=1, request_id=1))
        await world.until(lambda: flooded.written, "the producer is there")
        world.clock.advance(10_000)
        for number in range(8):
            brings(flood, send(1, number))
        assert not flooded.reads
        asking, answered = opened(world, SharedBuffer(), "192.0.2.8")
        brings(asking, b"".join(command(Type.LOOKUP, topic=TOPIC, request_id=n) for n in range(5)))
        used = world.broker.quotas.count("192.0.2.8", 0)
        await world.until(lambda: answered.written.count(b"pulsar://") == 5, "all are answered")
        assert used == 0 < world.broker.quotas.count("192.0.2.8", 0)

    in_world(story)


def test_a_clock_that_is_set_back_does_not_prolong_the_rest() -> None:
    config = BrokerConfig(tenants=TenantLimits(commands_per_second_per_role=64))

    async def story(world: World) -> None:
        flood, flooded = opened(world, SharedBuffer())
        brings(flood, commands.PING * 128)
        assert not flooded.reads
        world.clock.step(-3_600_000)
        for _ in range(30):
            world.clock.advance(100)
            world.broker.alarms.ring()
            await world.settle()
        assert flooded.reads

    in_world(story, config)
