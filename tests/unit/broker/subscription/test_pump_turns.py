"""Turns of the event loop that one subscription takes."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable

import pytest

from magnetar.base.ids import Position
from magnetar.broker.dispatch.consumer import Pending
from magnetar.broker.dispatch.shared import SharedDispatcher
from magnetar.broker.subscription.any_subscription import AttachedConsumer
from magnetar.broker.subscription.pump import CROWDED_ENTRIES_MAX, CROWDED_MS_MAX
from magnetar.broker.subscription.pump_turns import GIVEN_BACK_AT_ONCE, PumpTurns
from magnetar.wire.acks import encode_flow
from support.sessions import World, in_world, send


def test_a_pump_that_is_asked_for_often_runs_once() -> None:
    pumped: list[int] = []
    booked: list[Callable[[], None]] = []
    turns = PumpTurns(lambda consumer: None, lambda: pumped.append(1), booked.append)
    turns.again()
    turns.again()
    turns.check()
    assert turns.due
    assert not pumped
    (next_turn,) = booked
    next_turn()
    turns.check()
    assert pumped == [1]
    assert not turns.due


def test_consumers_that_hold_much_leave_one_a_turn_and_get_nothing_more() -> None:
    async def story(world: World) -> None:
        peer = world.peer()
        for number in (1, 2):
            await peer.consumer(number, request_id=number, kind="Shared")
        topic = await world.topic()
        subscription = topic.subscriptions["s"]
        consumers: list[AttachedConsumer] = subscription.consumers
        dispatcher = subscription.place().dispatcher
        assert isinstance(dispatcher, SharedDispatcher)
        for number, consumer in enumerate(consumers):
            for entry in range(GIVEN_BACK_AT_ONCE + 1):
                consumer.pending[Position(9, 10_000 * number + entry)] = Pending(1)
            consumer.sent(GIVEN_BACK_AT_ONCE + 1)
            dispatcher.unacked.sent(GIVEN_BACK_AT_ONCE + 1)
            consumer.permits = 5
            subscription.detach(consumer)
        assert subscription.consumers == consumers
        assert [consumer.permits for consumer in consumers] == [0, 0]
        await asyncio.sleep(0)
        assert subscription.consumers == consumers[1:]
        await asyncio.sleep(0)
        assert subscription.consumers == []

    in_world(story)


def test_what_a_consumer_held_comes_in_order_to_the_next() -> None:
    async def story(world: World) -> None:
        first, second = world.peer(), world.peer()
        await first.consumer(1, kind="Shared", permits=100)
        await first.producer()
        for number in range(20):
            first.send(send(1, number))
        await world.until(lambda: len(first.messages) == 20, "all")
        await second.consumer(1, kind="Shared", permits=100)
        first.session.lost()
        await world.until(lambda: len(second.messages) == 20, "all again")
        ids = [message.position.entry_id for message in second.messages]
        assert ids == sorted(ids)

    in_world(story)


def test_while_several_tenants_publish_a_turn_ends_after_a_millisecond(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def story(world: World) -> None:
        peer = world.peer()
        await peer.producer()
        await peer.consumer(1, kind="Shared", permits=0)
        for number in range(10 * CROWDED_ENTRIES_MAX):
            peer.send(send(1, number))
        topic = await world.topic()
        await world.until(lambda: topic.log.last_position.entry_id == 10 * CROWDED_ENTRIES_MAX - 1, "stored")
        times_ms = itertools.count(0.0, 0.75 * CROWDED_MS_MAX)
        monkeypatch.setattr(world.clock, "monotonic_ms", lambda: next(times_ms))
        world.broker.outputs.crowded = True
        peer.send(encode_flow(1, 10 * CROWDED_ENTRIES_MAX))
        assert topic.subscriptions["s"].messages_out == 2 * CROWDED_ENTRIES_MAX
        await world.until(lambda: len(peer.messages) == 10 * CROWDED_ENTRIES_MAX, "all")

    in_world(story)


def test_two_tenants_that_publish_are_a_crowd() -> None:
    async def story(world: World) -> None:
        peer = world.peer()
        for number, tenant in enumerate(("one", "two"), 1):
            share = world.broker.intake.share(tenant)
            world.broker.intake.took(peer.session, share, number)
            await world.broker._tick()
            assert world.broker.outputs.crowded == (number == 2)

    in_world(story)
