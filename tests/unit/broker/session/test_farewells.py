"""Clients with very many consumers leave in turns."""

from __future__ import annotations

import asyncio

import pytest

from magnetar.broker.session.farewells import FEW, LEAVING_MAX
from magnetar.wire import pulsar_pb2 as pb
from support.sessions import Peer, World, in_world, send


async def _readers(world: World, count: int) -> Peer:
    peer = world.peer()
    for number in range(1, count + 1):
        await peer.consumer(
            consumer_id=number,
            request_id=number,
            subscription=f"reader-{number}",
            durable=False,
            start_message_id=pb.MessageIdData(ledgerId=0, entryId=0),
        )
    return peer


@pytest.mark.parametrize("count", [1, FEW])
def test_a_client_with_few_is_lost_at_once(count: int) -> None:
    async def story(world: World) -> None:
        peer = await _readers(world, count)
        world.broker.farewells.lost(peer.session)
        assert peer.session not in world.broker.sessions
        assert peer.session.consumers == {}

    in_world(story)


def test_very_many_consumers_are_taken_off_in_turns_and_their_session_with_the_last() -> None:
    """Twenty thousand readers that were lost together stopped the loop for 0.4 s."""

    async def story(world: World) -> None:
        first, second = await _readers(world, LEAVING_MAX + 60), await _readers(world, FEW + 1)
        few = await _readers(world, 1)
        topic = await world.topic()
        for peer in (first, second, few):
            world.broker.farewells.lost(peer.session)
        assert few.session not in world.broker.sessions, "nobody waits for those who are many"
        assert first.session in world.broker.sessions
        assert (len(first.session.consumers), first.session.closed) == (LEAVING_MAX + 60, True)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert len(first.session.consumers) <= 60
        await world.until(lambda: second.session not in world.broker.sessions, "the last one left")
        assert first.session not in world.broker.sessions
        assert dict(topic.subscriptions) == {}

    in_world(story)


def test_what_is_sent_to_who_is_leaving_goes_to_another() -> None:
    async def story(world: World) -> None:
        leaving, stays, publishing = world.peer(), world.peer(), world.peer()
        for number in range(1, FEW + 2):
            await leaving.consumer(
                consumer_id=number, request_id=number, subscription="s", kind="Shared", permits=1
            )
        await publishing.producer()
        world.broker.farewells.lost(leaving.session)
        publishing.send(*(send(1, number, b"x") for number in range(5)))
        await stays.consumer(subscription="s", kind="Shared", permits=10)
        await world.until(lambda: len(stays.messages) == 5, "all messages")
        assert leaving.session not in world.broker.sessions

    in_world(story)


def test_a_broker_that_stops_waits_for_nobody() -> None:
    async def story(world: World) -> None:
        peer = await _readers(world, FEW + 1)
        world.broker.farewells.lost(peer.session)
        world.broker.farewells.finish()
        assert peer.session not in world.broker.sessions
        await world.settle()

    in_world(story)
