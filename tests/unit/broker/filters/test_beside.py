"""Entries whose judgement takes long: beside the loop, and in their order."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Hashable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from magnetar.base.clock import ManualClock
from magnetar.broker.filters import beside
from magnetar.broker.filters.beside import judged
from magnetar.broker.filters.entry_filter import FilterError, Verdict
from magnetar.broker.filters.expression import PROPERTY
from magnetar.broker.filters.judge import Judge
from magnetar.broker.filters.rules import FilterRules
from magnetar.broker.filters.work import TURN_MS_MAX, TurnWork
from magnetar.runtime.fair_places import CrowdedError
from magnetar.runtime.tasks import soon
from magnetar.wire.acks import encode_flow
from support.sessions import Peer, World, in_world

from .test_entry_filters import KINDS, RED, batch_of, coloured, policy, subscription

MANY = 300
"""Messages of a batch that the loop does not judge."""


class Unhurried:
    def step(self) -> None:
        pass


class Gate:
    """Stands for the thread: judgements wait until the test lets them go on."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._open = asyncio.Event()
        self.waiting = 0
        self.owners: list[Hashable] = []
        monkeypatch.setattr(beside, "paced", self._paced)

    async def _paced(self, owner: Hashable, limit_s: float, work: Callable[[Any], Any]) -> Any:
        self.owners.append(owner)
        self.waiting += 1
        await self._open.wait()
        self.waiting -= 1
        return work(Unhurried())

    def open(self) -> None:
        self._open.set()


def large(sequence_id: int, colour: str) -> bytes:
    """A SEND of a batch that is judged beside the loop."""
    return batch_of(sequence_id, *["green"] * (MANY - 1), colour)


async def published(world: World, *sends: bytes) -> Peer:
    peer = world.peer()
    await peer.producer()
    peer.send(*sends)
    await world.until(lambda: len(peer.receipts) == len(sends), "receipts")
    return peer


def entries_of(peer: Peer) -> list[int]:
    return [message.position.entry_id for message in peer.messages]


@pytest.mark.parametrize("kind", KINDS)
def test_they_come_in_their_order_between_others(kind: str) -> None:
    async def story(world: World) -> None:
        await policy(world, "expression")
        await published(
            world,
            coloured(0, "red"),
            large(1, "red"),
            coloured(301, "blue"),
            large(302, "blue"),
            large(602, "red"),
            coloured(902, "red"),
        )
        peer = world.peer()
        await peer.consumer(kind=kind, subscription_properties=RED)
        for _ in range(8):
            peer.send(encode_flow(1, MANY))
            await world.settle()
        await world.until(lambda: len(peer.messages) == 4, "messages")
        assert entries_of(peer) == [0, 1, 4, 5]
        found = await subscription(world)
        assert found.filtered is not None
        assert (found.filtered.accepted, found.filtered.rejected) == (2 + 2 * MANY, 1 + MANY)
        peer.ack(1, *(message.position for message in peer.messages))
        await world.until(lambda: found.backlog_entries == 0, "acknowledgements")

    in_world(story)


def test_it_is_another_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    threads: list[int] = []
    foresee = Judge.foresee

    def noted(self: Judge, *arguments: Any) -> Any:
        threads.append(threading.get_ident())
        return foresee(self, *arguments)

    monkeypatch.setattr(Judge, "foresee", noted)

    async def story(world: World) -> None:
        await policy(world, "expression")
        await published(world, large(0, "red"))
        peer = world.peer()
        await peer.consumer(permits=1_000, subscription_properties=RED)
        await world.until(lambda: len(peer.messages) == 1, "messages")
        assert threads
        assert threading.get_ident() not in threads

    in_world(story)


@asynccontextmanager
async def judging(world: World, gate: Gate, kind: str = "Exclusive") -> AsyncIterator[tuple[Peer, Peer]]:
    """Producer and consumer, while a batch that the filter will reject is judged."""
    await policy(world, "expression")
    producer = await published(world, large(0, "blue"))
    peer = world.peer()
    await peer.consumer(kind=kind, permits=1_000, subscription_properties=RED)
    await world.until(lambda: gate.waiting, "a judgement")
    yield producer, peer
    gate.open()
    await world.until(lambda: not gate.waiting, "its end")
    await world.settle()


def test_what_a_seek_has_taken_back_is_not_acknowledged(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(world: World) -> None:
        gate = Gate(monkeypatch)
        async with judging(world, gate):
            topic = await world.topic()
            await topic.subscriptions["s"].seek(topic.log.first_position)
        assert (await subscription(world)).backlog_entries == 1

    in_world(story)


def test_other_filters_judge_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(world: World) -> None:
        gate = Gate(monkeypatch)
        async with judging(world, gate) as (_, peer):
            await policy(world, None)
        await world.until(lambda: len(peer.messages) == 1, "the batch, which is not filtered any more")
        assert (await subscription(world)).backlog_entries == 1

    in_world(story)


@pytest.mark.parametrize("kind", KINDS)
def test_a_consumer_that_left_meanwhile_leaves_the_next_one_what_is_wanted(
    monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    async def story(world: World) -> None:
        gate = Gate(monkeypatch)
        async with judging(world, gate, kind) as (producer, peer):
            peer.session.lost()
            await world.settle()
            again = world.peer()
            await again.consumer(kind=kind, permits=1_000)
            producer.send(coloured(300, "red"))
        await world.until(lambda: len(again.messages) == 1, "the message behind")
        assert not peer.messages
        assert entries_of(again) == [1]
        assert (await subscription(world)).backlog_entries == 1

    in_world(story)


def test_a_topic_that_closes_meanwhile_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(world: World) -> None:
        gate = Gate(monkeypatch)
        topic = None
        async with judging(world, gate):
            topic = await world.topic()
            await topic.close()
        assert topic is not None
        assert topic.subscriptions["s"].cursor.backlog_entries == 1

    in_world(story)


def test_one_judgement_at_a_time_and_what_comes_meanwhile_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(world: World) -> None:
        gate = Gate(monkeypatch)
        async with judging(world, gate) as (producer, peer):
            producer.send(coloured(300, "red"))
            await world.until(lambda: len(producer.receipts) == 2, "a receipt")
            peer.send(encode_flow(1, 10))
            await world.settle()
            assert not peer.messages
            assert gate.owners == ["public"]
        await world.until(lambda: len(peer.messages) == 1, "the message behind")

    in_world(story)


def judge_of(turn: TurnWork) -> Judge:
    rules = FilterRules(names=("expression",), turn=turn)
    return Judge(rules, "t", "s", lambda: {PROPERTY: 'key == "k"'}, ManualClock())


def test_cheap_ones_wait_for_the_next_turn_of_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    async def nobody(*arguments: object) -> None:
        raise AssertionError("nothing is judged beside the loop")

    monkeypatch.setattr(beside, "paced", nobody)

    async def story() -> None:
        turn = TurnWork(soon)
        turn.took(TURN_MS_MAX)
        assert turn.spent
        assert await judged(judge_of(turn), "t", [b"damaged"], [1]) == [Verdict.ACCEPT]

    asyncio.run(story())


def test_a_tenant_with_very_many_that_wait_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    async def crowded(*arguments: object) -> None:
        raise CrowdedError

    monkeypatch.setattr(beside, "paced", crowded)
    monkeypatch.setattr(Judge, "verdicts", lambda *arguments: [])

    async def story() -> None:
        with pytest.raises(FilterError, match="too many subscriptions of the tenant"):
            await judged(judge_of(TurnWork()), "t", [b"x"], [1])

    asyncio.run(story())
