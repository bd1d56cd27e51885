"""Rates that several topics share, rates of single subscriptions, longest delays: their effect on clients."""

from __future__ import annotations

from typing import Any

from magnetar.base.names import NamespaceName, TopicName
from magnetar.broker.limits.groups import GROUP_POLICY, NUMBERS
from magnetar.broker.limits.limits import DELAY_MAX, DELAYED_DELIVERY_POLICY
from magnetar.metadata import keys
from magnetar.wire import pulsar_pb2 as pb
from magnetar.wire.payload import build_entry
from magnetar.wire.sends import encode_send
from support.sessions import TOPIC, Peer, Type, World, in_world, send

NAMESPACE = NamespaceName("public", "default")
OTHER = "persistent://public/default/other"


async def put(world: World, **policies: Any) -> None:
    await world.broker.policies.update_namespace(NAMESPACE, lambda document: document.update(policies))
    await world.broker.apply_policies()


async def group(world: World, **numbers: int) -> None:
    document = {**dict.fromkeys(NUMBERS, -1), **numbers}
    await world.broker.policies.update_document(
        keys.resource_group("small"), lambda stored: stored.update(document)
    )
    await put(world, **{GROUP_POLICY: "small"})


async def published(world: World, topic: str, count: int) -> Peer:
    peer = world.peer()
    await peer.producer(topic=topic)
    peer.send(*(send(1, number) for number in range(count)))
    await world.until(lambda: len(peer.receipts) >= count, f"{count} receipts")
    return peer


def test_topics_of_a_resource_group_share_what_they_may_publish() -> None:
    async def story(world: World) -> None:
        await group(world, publishRateInMsgs=10)
        first = await published(world, TOPIC, 30)
        assert not first.reading, "the group is in debt"
        second = await published(world, OTHER, 1)
        assert not second.reading, "by another topic, which published little itself"
        world.clock.advance(2_000)
        world.broker.alarms.ring()
        assert not first.reading
        world.clock.advance(300)
        world.broker.alarms.ring()
        assert first.reading
        assert second.reading

    in_world(story)


def test_a_resource_group_that_is_raised_lets_everybody_go_on() -> None:
    async def story(world: World) -> None:
        await group(world, publishRateInBytes=10)
        peer = await published(world, TOPIC, 5)
        assert not peer.reading
        await group(world, publishRateInBytes=-1)
        assert peer.reading

    in_world(story)


def test_subscriptions_of_a_resource_group_share_what_they_are_sent() -> None:
    async def story(world: World) -> None:
        for topic in (TOPIC, OTHER):
            await published(world, topic, 10)
        await group(world, dispatchRateInMsgs=12)
        first, second = world.peer(), world.peer()
        await first.consumer(topic=TOPIC, permits=100)
        await world.until(lambda: len(first.messages) == 10, "ten messages")
        await second.consumer(topic=OTHER, permits=100)
        await world.until(lambda: second.messages, "what is left")
        await world.settle()
        assert len(second.messages) == 2
        world.clock.advance(1_000)
        world.broker.alarms.ring()
        await world.until(lambda: len(second.messages) == 10, "the rest, a second later")

    in_world(story)


def test_a_subscription_may_have_a_rate_of_its_own() -> None:
    async def story(world: World) -> None:
        await published(world, TOPIC, 10)
        policies = {"subscriptionPolicies": {"slow": {"dispatchRate": {"dispatchThrottlingRateInMsg": 3}}}}
        await world.broker.policies.update_topic(TopicName.parse(TOPIC), lambda own: own.update(policies))
        await world.broker.apply_policies()
        slow, fast = world.peer(), world.peer()
        await slow.consumer(subscription="slow", permits=100)
        await fast.consumer(subscription="fast", permits=100)
        await world.until(lambda: len(fast.messages) == 10, "all at once")
        await world.settle()
        assert len(slow.messages) == 3

    in_world(story)


def test_what_is_set_for_all_clusters_holds_until_this_one_says_otherwise() -> None:
    async def story(world: World) -> None:
        name = TopicName.parse(TOPIC)
        policies = world.broker.policies
        await policies.update_topic(
            name, lambda document: document.update({"maxProducerPerTopic": 1}), everywhere=True
        )
        await world.broker.apply_policies()
        await world.peer().producer(producer_name="first")
        refused = await world.peer().producer(producer_name="second")
        assert isinstance(refused, pb.CommandError)
        await policies.update_topic(name, lambda document: document.update({"maxProducerPerTopic": 2}))
        await world.broker.apply_policies()
        assert not isinstance(await world.peer().producer(producer_name="second"), pb.CommandError)

    in_world(story)


def test_a_message_that_wants_to_be_held_back_for_too_long_is_refused_in_its_place() -> None:
    async def story(world: World) -> None:
        await put(world, **{DELAYED_DELIVERY_POLICY: {"active": True, DELAY_MAX: 1000}})
        peer = world.peer()
        await peer.producer()
        frames = []
        for number, delay_ms in enumerate((1000, 1001, 0)):
            metadata = pb.MessageMetadata(producer_name="p", sequence_id=number, publish_time=5)
            if delay_ms:
                metadata.deliver_at_time = 5 + delay_ms
            frames.append(encode_send(1, number, 1, build_entry(metadata, b"x")))
        peer.send(*frames)
        await world.until(lambda: len(peer.receipts) == 2, "two receipts")
        errors = peer.commands(Type.SEND_ERROR)
        assert [error.sequence_id for error in errors] == [1]

    in_world(story)
