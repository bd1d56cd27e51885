"""The budget of what waits for clients: which client gets which part, and that none waits for ever."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from magnetar.broker.config import BrokerConfig
from magnetar.broker.session.outputs import READ_BYTES_MAX, READ_BYTES_MIN, SHARES, OutputBudget
from magnetar.wire.acks import encode_flow
from support.sessions import Peer, World, in_world, send

BODY = bytes(1_000)


class Client:
    """A connection that takes what it is given when told to."""

    def __init__(self, budget: OutputBudget) -> None:
        self.budget = budget
        self.bytes = 0
        self.resumed = 0

    def count_output(self) -> int:
        return self.bytes

    def has_room(self) -> None:
        self.resumed += 1

    def fill(self, step: int) -> None:
        """Gets as much as it may, in steps, and waits for more."""
        while self.budget.allows(self.bytes):
            self.bytes += step
            self.budget.free -= step
        self.budget.wait(self)


class Later:
    """Calls that were asked for, made by hand."""

    def __init__(self) -> None:
        self.calls: list[tuple[int, Callable[[], None]]] = []

    def __call__(self, after_ms: int, call: Callable[[], None]) -> None:
        self.calls.append((after_ms, call))

    def run(self) -> None:
        calls, self.calls = self.calls, []
        for _, call in calls:
            call()


def budget_of(bytes_max: int, count: int) -> tuple[OutputBudget, list[Client], Later]:
    clients: list[Client] = []
    later = Later()
    budget = OutputBudget(bytes_max, clients, later)
    clients += [Client(budget) for _ in range(count)]
    return budget, clients, later


def test_the_less_is_left_the_less_a_slow_client_gets() -> None:
    budget, clients, _ = budget_of(33_000, 100)
    for client in clients:
        client.fill(1)
    assert [client.bytes for client in clients[:3]] == [1_000, 970, 941]
    assert budget.count() == sum(client.bytes for client in clients)
    assert 33_000 // 22 < budget.free < 33_000 // 20


def test_together_they_share_evenly_and_leave_as_much() -> None:
    budget, clients, _ = budget_of(64_000, SHARES)
    for _ in range(100):
        for client in clients:
            if budget.allows(client.bytes):
                client.bytes += 100
                budget.free -= 100
    assert {client.bytes for client in clients} == {1_000}
    assert budget.free == 32_000


def test_who_has_nothing_waiting_is_served_when_nothing_is_free() -> None:
    budget, (slow, fast), _ = budget_of(10_000, 2)
    slow.bytes = 12_000
    budget.count()
    assert budget.free < 0
    assert budget.allows(fast.bytes)
    assert not budget.allows(1)
    assert budget.read_bytes == READ_BYTES_MIN


def test_reads_are_small_when_little_is_free() -> None:
    budget, _, _ = budget_of(128 * READ_BYTES_MAX, 0)
    assert budget.read_bytes == READ_BYTES_MAX
    budget.free = 64 * READ_BYTES_MAX
    assert budget.read_bytes == READ_BYTES_MAX
    budget.free = 8 * READ_BYTES_MAX
    assert budget.read_bytes == READ_BYTES_MAX // 8


def test_who_waits_goes_on_when_others_have_taken_their_bytes() -> None:
    budget, (first, second), later = budget_of(8_000, 2)
    first.fill(100)
    second.fill(100)
    assert budget.waiting == 2
    later.run()
    assert (first.resumed, second.resumed, budget.waiting) == (0, 0, 2)
    first.bytes, second.bytes = 0, 100
    later.run()
    assert (first.resumed, second.resumed) == (1, 1)
    assert budget.waiting == 0
    assert later.calls == []


def test_many_connections_are_counted_less_often() -> None:
    budget, clients, later = budget_of(1_000, 5_000)
    budget.wait(clients[0])
    assert later.calls[0][0] == 120


def test_a_read_under_way_counts_until_it_ends() -> None:
    async def story() -> None:
        budget, _, _ = budget_of(10_000, 0)
        gate = asyncio.Event()

        async def read() -> None:
            await gate.wait()

        task = asyncio.ensure_future(budget.reading(read(), 4_000))
        assert budget.count() == 4_000
        gate.set()
        await task
        assert (budget.count(), budget.free) == (0, 10_000)

    asyncio.run(story())


def test_a_read_that_fails_gives_back_too() -> None:
    async def story() -> None:
        budget, _, _ = budget_of(10_000, 0)

        async def read() -> None:
            raise OSError("gone")

        with pytest.raises(OSError, match="gone"):
            await budget.reading(read(), 4_000)
        assert budget.free == 10_000

    asyncio.run(story())


# -- sessions on one budget -------------------------------------------------------------------------

SMALL = BrokerConfig(output_bytes_max=40_000)


async def published(world: World, count: int) -> None:
    peer = world.peer()
    await peer.producer()
    peer.send(*(send(1, i, BODY) for i in range(count)))
    await world.until(lambda: len(peer.receipts) == count, "receipts")


def look(world: World) -> None:
    """The time at which connections are counted has come."""
    world.clock.advance(1_000)
    world.broker.alarms.ring()


async def deaf(world: World, number: int) -> Peer:
    """A consumer of everything, whose client takes nothing."""
    peer = world.peer()
    await peer.consumer(subscription=f"deaf-{number}")
    peer.take_output = False
    peer.send(encode_flow(1, 10_000))
    await world.settle()
    return peer


def test_clients_that_take_nothing_share_the_budget_and_others_get_everything() -> None:
    async def story(world: World) -> None:
        await published(world, 200)
        slow = [await deaf(world, number) for number in range(5)]
        waiting = [peer.session.out_bytes for peer in slow]
        assert sum(waiting) < 40_000 + 5 * (READ_BYTES_MIN + 2_000)
        assert world.broker.outputs.count() == sum(waiting)
        fast = world.peer()
        await fast.consumer(subscription="fast", permits=10_000)
        await world.until(lambda: len(fast.messages) == 200, "messages of the one that reads")
        for peer in slow:
            peer.take_output = True
            peer.flush()
        for peer in slow:
            await world.until(lambda p=peer: len(p.messages) == 200, "what was kept back")
            assert peer.bodies == [BODY] * 200
        assert world.broker.outputs.count() == 0
        assert world.broker.outputs.free == 40_000

    in_world(story, SMALL)


def test_a_client_that_waits_for_others_goes_on_after_them() -> None:
    async def story(world: World) -> None:
        await published(world, 200)
        first = world.peer()
        await first.consumer(subscription="first")
        first.unsent = 39_000
        second = world.peer()
        await second.consumer(subscription="second")
        # What the driver holds is seen with the next count.
        assert world.broker.outputs.count() == 39_000
        second.unsent = 2_000
        second.send(encode_flow(1, 10_000))
        await world.settle()
        second.flush()
        got = len(second.messages)
        assert got < 200
        assert world.broker.outputs.waiting == 1
        look(world)
        assert world.broker.outputs.waiting == 1
        first.unsent = second.unsent = 0
        look(world)
        await world.until(lambda: len(second.messages) == 200, "messages")

    in_world(story, SMALL)


def test_a_producer_that_takes_no_receipts_is_not_read_until_there_is_room() -> None:
    async def story(world: World) -> None:
        await published(world, 200)
        slow = [await deaf(world, number) for number in range(6)]
        producer = world.peer()
        await producer.producer(topic="persistent://public/default/other")
        world.broker.outputs.free = 0
        producer.unsent = 5_000
        producer.send(send(1, 0, BODY))
        await world.until(lambda: producer.receipts, "receipt")
        assert not producer.reading
        # Keep-alive treats it as a client that does not read: it is asked, and not forgiven for ever.
        producer.session.keep_alive()
        producer.session.keep_alive()
        assert not producer.aborted
        producer.unsent = 0
        for peer in slow:
            peer.take_output = True
            peer.flush()
        await world.settle()
        look(world)
        assert producer.reading
        producer.send(send(1, 1, BODY))
        await world.until(lambda: len(producer.receipts) == 2, "second receipt")

    in_world(story, SMALL)


def test_a_lost_connection_gives_its_bytes_back() -> None:
    async def story(world: World) -> None:
        await published(world, 200)
        peer = await deaf(world, 0)
        assert world.broker.outputs.free < 40_000
        peer.unsent = 3_000
        world.broker.outputs.count()
        peer.session.lost()
        peer.unsent = 0
        peer.take_output = True
        peer.flush()
        assert world.broker.outputs.free == 40_000

    in_world(story, SMALL)
