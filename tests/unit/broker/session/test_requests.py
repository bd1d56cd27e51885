"""Requests of one connection: how many are in work, and when nothing more is read."""

from __future__ import annotations

import pytest

from magnetar.base.names import TopicName
from magnetar.broker.config import BrokerConfig
from magnetar.broker.session.requests import (
    REQUEST_BYTES,
    RUNNING_BYTES_MAX,
    RUNNING_MAX,
    WAITING_BYTES_MAX,
    WAITING_MAX,
    Request,
    RequestBudget,
    RequestLine,
)
from magnetar.wire import pulsar_pb2 as pb
from support.sessions import TOPIC, Peer, Type, World, command, in_world


async def nothing() -> None: ...


def request(number: int, size_bytes: int = 20, *, large: bool = False) -> Request:
    work = nothing()
    return Request(number, work, lambda code, text: b"", size_bytes, large)


def begin_all(line: RequestLine) -> list[Request]:
    begun = []
    while (each := line.begin()) is not None:
        each.work.close()
        begun.append(each)
    return begun


def test_requests_begin_in_their_order_and_few_at_once() -> None:
    line = RequestLine(RequestBudget())
    for number in range(RUNNING_MAX + 5):
        line.add(request(number))
    begun = begin_all(line)
    assert [each.request_id for each in begun] == list(range(RUNNING_MAX))
    line.end(begun[3])
    assert [each.request_id for each in begin_all(line)] == [RUNNING_MAX]
    assert (line.running, len(line)) == (RUNNING_MAX, 4)
    line.clear()
    assert len(line) == 0


def test_large_answers_come_one_at_a_time() -> None:
    line = RequestLine(RequestBudget())
    for number in range(4):
        line.add(request(number, large=number in (0, 2)))
    begun = begin_all(line)
    assert [each.request_id for each in begun] == [0, 1]
    line.end(begun[1])
    assert begin_all(line) == []
    line.end(begun[0])
    assert [each.request_id for each in begin_all(line)] == [2, 3]


def test_large_requests_are_in_work_alone() -> None:
    line = RequestLine(RequestBudget())
    for number in range(3):
        line.add(request(number, 2 * RUNNING_BYTES_MAX if number == 1 else 20))
    for number in range(3):
        (begun,) = begin_all(line)
        assert begun.request_id == number
        line.end(begun)


@pytest.mark.parametrize(
    ("count", "size_bytes"), [(WAITING_MAX + 1, 1), (10, WAITING_BYTES_MAX // 10 + 1)], ids=["many", "large"]
)
def test_a_long_line_is_crowded_until_half_of_it_is_gone(count: int, size_bytes: int) -> None:
    line = RequestLine(RequestBudget())
    for number in range(count):
        assert not line.crowded
        line.add(request(number, size_bytes))
    left = count
    while line.crowded:
        begun = line.begin()
        assert begun is not None
        begun.work.close()
        line.end(begun)
        left -= 1
    assert count // 2 - 1 <= left <= count // 2 + 1
    line.clear()


def test_all_lines_together_have_a_bound_and_the_longest_pays() -> None:
    """A hundred clients flood: each stops at its share, and one that has nothing in line is always read."""
    budget = RequestBudget(320 * REQUEST_BYTES)
    lines = [RequestLine(budget) for _ in range(100)]
    for _ in range(20):
        for number, line in enumerate(lines):
            if not line.crowded:
                line.add(request(number, 0))
    assert all(line.crowded for line in lines)
    assert budget.used <= (320 + len(lines)) * REQUEST_BYTES, "at most one request each above it"
    newcomer = RequestLine(budget)
    assert not newcomer.crowded
    newcomer.add(request(0, 0))
    begun = newcomer.begin()
    assert begun is not None
    begun.work.close()
    assert not newcomer.crowded, "its line is empty again"
    for line in lines:
        line.clear()
        assert not line.crowded
    assert budget.used == 0


def test_a_line_alone_has_a_share_of_the_budget() -> None:
    budget = RequestBudget(320 * REQUEST_BYTES)
    line = RequestLine(budget)
    added = 0
    while not line.crowded:
        line.add(request(added, 0))
        added += 1
    assert added == 10
    begun = 0
    while line.crowded:
        each = line.begin()
        assert each is not None
        each.work.close()
        line.end(each)
        begun += 1
    assert begun == 6
    line.clear()
    assert budget.used == 0


def lookups(count: int) -> bytes:
    return b"".join(command(Type.LOOKUP, topic=TOPIC, request_id=number) for number in range(count))


def answers(peer: Peer) -> int:
    return len(peer.commands(Type.LOOKUP_RESPONSE))


def test_who_does_not_read_gets_no_more_work_done() -> None:
    async def story(world: World) -> None:
        peer = world.peer()
        await world.until(lambda: peer.commands(Type.CONNECTED), "CONNECTED")
        peer.take_output = False
        peer.send(lookups(WAITING_MAX + 100))
        await world.settle()
        assert not peer.reading
        assert len(peer.session.out) <= RUNNING_MAX + 1
        peer.take_output = True
        peer.flush()
        await world.until(lambda: answers(peer) == WAITING_MAX + 100, "answers")
        assert [each.request_id for each in peer.commands(Type.LOOKUP_RESPONSE)] == list(
            range(WAITING_MAX + 100)
        )
        assert peer.reading

    in_world(story, BrokerConfig(connection_output_bytes_max=64))


def test_a_connection_that_is_gone_leaves_no_work() -> None:
    async def story(world: World) -> None:
        peer = world.peer()
        peer.send(lookups(200))
        peer.session.lost()
        await world.settle()
        assert answers(peer) == 0

    in_world(story)


def test_lists_of_topics_are_held_once_for_who_does_not_read() -> None:
    async def story(world: World) -> None:
        for number in range(20):
            await world.broker.any_topic(TopicName.parse(f"{TOPIC}-{number}"))
        peer = world.peer()
        await world.until(lambda: peer.commands(Type.CONNECTED), "CONNECTED")
        peer.take_output = False
        ask = pb.BaseCommand.GET_TOPICS_OF_NAMESPACE
        peer.send(b"".join(command(ask, namespace="public/default", request_id=i) for i in range(50)))
        await world.settle()
        assert len(peer.session.out) == 1
        peer.take_output = True
        peer.flush()
        kind = Type.GET_TOPICS_OF_NAMESPACE_RESPONSE
        await world.until(lambda: len(peer.commands(kind)) == 50, "answers")

    in_world(story, BrokerConfig(connection_output_bytes_max=64))
