"""What all subscriptions of a broker together may hold unacknowledged."""

from __future__ import annotations

import pytest

from magnetar.broker.config import BrokerConfig
from magnetar.broker.dispatch.unacked import UnackedLimit, UnackedOfBroker
from magnetar.broker.explain.reasons import DiagnosedState, diagnose
from magnetar.broker.limits.tenants import TenantLimits
from magnetar.wire.acks import encode_flow
from support.sessions import Peer, World, in_world, send

CONFIG = BrokerConfig(tenants=TenantLimits(unacked_max=100, unacked_blocked_percent=20))


def joined(broker: UnackedOfBroker, woken: list[UnackedLimit]) -> UnackedLimit:
    limit = UnackedLimit()
    limit.join(broker, lambda: woken.append(limit))
    return limit


def test_beyond_the_limit_those_stop_that_hold_more_than_their_part() -> None:
    broker, woken = UnackedOfBroker(100, 20), list[UnackedLimit]()
    large, small, later = (joined(broker, woken) for _ in range(3))
    large.sent(90)
    small.sent(10)
    assert (broker.blocked, large.blocked) == (False, False)
    small.sent(5)
    assert (broker.blocked, large.blocked, small.blocked) == (True, True, False)
    later.sent(20)
    assert later.room > 0
    later.sent(1)
    assert (large.room, later.room) == (0, 0)
    later.released(11)
    assert (later.room, woken) == (0, [])
    later.released(1)
    assert later.room > 0
    assert woken == [later]
    large.released(65)
    assert (broker.total, broker.blocked, large.blocked) == (49, False, False)
    assert woken == [later, large]


def test_its_own_limit_holds_a_subscription_that_the_broker_lets_go() -> None:
    broker, woken = UnackedOfBroker(100, 20), list[UnackedLimit]()
    one, other = joined(broker, woken), joined(broker, woken)
    one.limit(50)
    one.sent(50)
    other.sent(60)
    assert (one.blocked, one.held) == (True, True)
    other.clear()
    assert (broker.total, broker.blocked) == (50, True)
    one.released(1)
    assert (broker.blocked, one.held, one.blocked) == (False, False, True)
    one.clear()
    assert (broker.total, one.blocked) == (0, False)


def test_who_has_gone_counts_no_more() -> None:
    broker, woken = UnackedOfBroker(10, 1), list[UnackedLimit]()
    one = joined(broker, woken)
    one.sent(11)
    assert one.blocked
    one.clear()
    assert (broker.total, broker.blocked, one.blocked) == (0, False, False)


async def backlog_of(peer: Peer, world: World, topic: str, producer_id: int, count: int) -> None:
    before = len(peer.receipts)
    await peer.producer(producer_id, topic, request_id=producer_id)
    for first in range(0, count, 50):
        peer.send(*(send(producer_id, first + i, b"x") for i in range(50)))
    await world.until(lambda: len(peer.receipts) == before + count, "receipts")


@pytest.mark.parametrize("kind", ["Shared", "Key_Shared"])
def test_one_that_never_acknowledges_stops_and_others_go_on(kind: str) -> None:
    hoarded, worked = "persistent://public/default/hoarded", "persistent://public/default/worked"

    async def story(world: World) -> None:
        publisher, hoarder, worker = world.peer(), world.peer(), world.peer()
        await backlog_of(publisher, world, hoarded, 1, 100)
        await backlog_of(publisher, world, worked, 2, 100)
        await hoarder.consumer(topic=hoarded, kind=kind, permits=95)
        await world.until(lambda: len(hoarder.messages) == 95, "what one may have")
        await worker.consumer(topic=worked, kind=kind, permits=10)
        await world.until(lambda: len(worker.messages) == 10, "messages of the other")
        counted = world.broker.unacked
        assert counted is not None
        assert counted.blocked
        subscription = (await world.topic(hoarded)).subscriptions["s"]
        hoarder.send(encode_flow(1, 100))
        await world.settle()
        assert len(hoarder.messages) == 95
        diagnosis = diagnose(subscription.view())
        assert diagnosis.state is DiagnosedState.BLOCKED_SUBSCRIPTION
        assert "105 messages are unacknowledged over all subscriptions" in diagnosis.sentence
        worker.send(encode_flow(1, 5))
        await world.until(lambda: len(worker.messages) == 15, "more messages of the other")
        hoarder.session.lost()
        await world.until(lambda: counted.total == 15, "what it held is given back")
        again = world.peer()
        await again.consumer(topic=hoarded, kind=kind, permits=20)
        await world.until(lambda: len(again.messages) == 20, "messages for another consumer")

    in_world(story, CONFIG)


def test_it_goes_on_by_itself_when_others_acknowledge() -> None:
    first, second = "persistent://public/default/first", "persistent://public/default/second"

    async def story(world: World) -> None:
        publisher, one, other = world.peer(), world.peer(), world.peer()
        await backlog_of(publisher, world, first, 1, 100)
        await backlog_of(publisher, world, second, 2, 100)
        await one.consumer(topic=first, kind="Shared", permits=40)
        await world.until(lambda: len(one.messages) == 40, "messages")
        await other.consumer(topic=second, kind="Shared", permits=70)
        await world.until(lambda: len(other.messages) > 60, "as many as the broker may have")
        one.send(encode_flow(1, 10))
        await world.settle()
        assert len(one.messages) == 40
        other.ack(1, *(message.position for message in other.messages))
        await world.until(lambda: len(one.messages) == 50, "the rest, although it acknowledged nothing")

    in_world(story, CONFIG)
