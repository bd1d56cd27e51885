"""Limits on non-persistent topics: those of their namespace and their own, as on persistent ones."""

from __future__ import annotations

from typing import Any

import pytest

from magnetar.base.names import NamespaceName, TopicName
from magnetar.broker.limits.limits import Limits
from magnetar.wire import pulsar_pb2 as pb
from support.sessions import Type, World, in_world, send

TOPIC = "non-persistent://public/default/t"
NAME = TopicName.parse(TOPIC)


async def limit(world: World, **policies: Any) -> None:
    """Sets policies of the namespace."""
    await world.broker.policies.update_namespace(
        NamespaceName("public", "default"), lambda document: document.update(policies)
    )
    await world.broker.apply_policies()


def error_of(answer: Any) -> int:
    assert isinstance(answer, pb.CommandError), answer
    return int(answer.error)


@pytest.mark.parametrize("loaded", [True, False])
def test_encryption_can_be_required(loaded: bool) -> None:
    async def story(world: World) -> None:
        peer = world.peer()
        if loaded:
            await peer.producer(topic=TOPIC)
        await limit(world, encryption_required=True)
        await world.settle()
        assert len(peer.commands(Type.CLOSE_PRODUCER)) == int(loaded)
        answer = await world.peer().producer(topic=TOPIC)
        assert error_of(answer) == pb.MetadataError

    in_world(story)


def test_beyond_the_publish_rate_a_connection_is_not_read() -> None:
    async def story(world: World) -> None:
        await limit(world, publishMaxMessageRate={"standalone": {"publishThrottlingRateInMsg": 10}})
        peer = world.peer()
        await peer.producer(topic=TOPIC)
        peer.send(*(send(1, i) for i in range(20)))
        await world.until(lambda: len(peer.receipts) == 20, "receipts")
        assert not peer.reading
        world.clock.advance(1_200)
        world.broker.alarms.ring()
        assert peer.reading

    in_world(story)


def test_producers_consumers_and_subscriptions_are_counted() -> None:
    async def story(world: World) -> None:
        await limit(
            world,
            max_producers_per_topic=1,
            max_consumers_per_topic=2,
            max_consumers_per_subscription=1,
            max_subscriptions_per_topic=2,
        )
        peer = world.peer()
        await peer.producer(topic=TOPIC)
        assert error_of(await peer.producer(2, topic=TOPIC, request_id=2)) == pb.ProducerBusy
        await peer.consumer(1, topic=TOPIC, request_id=3, kind="Shared")
        more = await peer.consumer(2, topic=TOPIC, request_id=4, kind="Shared")
        assert error_of(more) == pb.ConsumerBusy
        await peer.consumer(3, topic=TOPIC, request_id=5, subscription="s2")
        third = await peer.consumer(4, topic=TOPIC, request_id=6, subscription="s3")
        assert error_of(third) == pb.NotAllowedError

    in_world(story)


def test_the_topics_own_policy_wins() -> None:
    async def story(world: World) -> None:
        await limit(world, subscription_types_enabled=["Shared"])
        own = {"subscriptionTypesEnabled": ["Failover"]}
        await world.broker.policies.update_topic(NAME, lambda document: document.update(own))
        peer = world.peer()
        refused = await peer.consumer(1, topic=TOPIC, request_id=3, kind="Shared")
        assert error_of(refused) == pb.NotAllowedError
        await peer.consumer(2, topic=TOPIC, request_id=4, kind="Failover")
        await peer.producer(topic=TOPIC)
        await world.broker.unload(NAME)
        assert world.broker.nonpersistent.find(NAME) is None

    in_world(story)


def test_what_is_not_limited_asks_no_gate() -> None:
    async def story(world: World) -> None:
        topic = await world.broker.any_topic(NAME)
        assert topic.limits.limits == Limits()
        assert topic.limits.gate is None

    in_world(story)
