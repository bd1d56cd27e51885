"""Which topics go because they have no clients, and which stay."""

from __future__ import annotations

from typing import Any

import pytest

from magnetar.base.names import NamespaceName, TopicName
from magnetar.broker.inactive.expiry import EXPIRATION_POLICY
from magnetar.broker.inactive.policy import INACTIVE_POLICY, DeleteMode, InactivePolicy
from magnetar.broker.service import BrokerConfig
from support.sessions import TOPIC, World, in_world, send

NAME = TopicName.parse(TOPIC)
PASSING = "non-persistent://public/default/t"
NAMESPACE = NamespaceName.parse("public/default")


async def after(world: World, seconds: int) -> None:
    """A round, some time, and another round."""
    await world.broker.inactive.round()
    world.clock.advance(seconds * 1000)
    await world.broker.inactive.round()


async def exists(world: World, topic: str = TOPIC) -> bool:
    return await world.broker.exists(TopicName.parse(topic))


async def policy(world: World, **more: Any) -> None:
    value = {
        "inactiveTopicDeleteMode": "delete_when_no_subscriptions",
        "maxInactiveDurationSeconds": 5,
        "deleteWhileInactive": True,
        **more,
    }
    await world.broker.policies.update_namespace(
        NAMESPACE, lambda document: document.update({INACTIVE_POLICY: value})
    )


@pytest.mark.parametrize("topic", [TOPIC, PASSING])
def test_a_topic_that_nobody_uses_goes(topic: str) -> None:
    async def story(world: World) -> None:
        peer = world.peer()
        await peer.producer(topic=topic)
        await after(world, 100)
        assert await exists(world, topic), "a producer keeps it"
        peer.session.lost()
        await after(world, 59)
        assert await exists(world, topic), "the time is not up"
        await after(world, 2)
        assert not await exists(world, topic)

    in_world(story)


@pytest.mark.parametrize("topic", [TOPIC, PASSING])
def test_a_subscription_keeps_a_topic(topic: str) -> None:
    async def story(world: World) -> None:
        peer = world.peer()
        await peer.consumer(topic=topic)
        peer.session.lost()
        await after(world, 1000)
        assert await exists(world, topic)
        await (await world.broker.any_topic(TopicName.parse(topic))).delete_subscription("s")
        await after(world, 61)
        assert not await exists(world, topic)

    in_world(story)


def test_where_caught_up_is_enough_only_a_backlog_keeps_a_topic() -> None:
    async def story(world: World) -> None:
        await policy(world, inactiveTopicDeleteMode="delete_when_subscriptions_caught_up")
        peer = world.peer()
        await peer.consumer(permits=10)
        await peer.producer()
        peer.send(send(1, 0))
        await world.until(lambda: peer.messages, "a message")
        peer.session.lost()
        await after(world, 100)
        assert await exists(world)
        await (await world.topic()).subscriptions["s"].skip_all()
        await after(world, 100)
        assert not await exists(world)

    in_world(story)


def test_the_topics_own_policy_wins() -> None:
    async def story(world: World) -> None:
        await world.topic()
        await policy(world)
        await world.broker.policies.update_topic(
            NAME, lambda document: document.update({INACTIVE_POLICY: {"deleteWhileInactive": False}})
        )
        await after(world, 1000)
        assert await exists(world)

    in_world(story)


def test_the_broker_may_keep_everything() -> None:
    async def story(world: World) -> None:
        await world.topic()
        await after(world, 1000)
        assert await exists(world)
        await policy(world)
        await after(world, 1000)
        assert not await exists(world), "the namespace has its own mind"

    in_world(story, BrokerConfig(inactive=InactivePolicy(delete=False)))


def test_retention_keeps_a_topic_for_its_time() -> None:
    async def story(world: World) -> None:
        await world.broker.policies.update_namespace(
            NAMESPACE,
            lambda document: document.update(
                {"retention_policies": {"retentionTimeInMinutes": 10, "retentionSizeInMB": -1}}
            ),
        )
        await world.topic()
        await after(world, 300)
        assert await exists(world)
        await after(world, 400)
        assert not await exists(world)

    in_world(story)


@pytest.mark.parametrize("step_ms", [-86_400_000, 86_400_000])
def test_a_clock_that_is_set_neither_deletes_a_topic_nor_keeps_it(step_ms: int) -> None:
    async def story(world: World) -> None:
        await world.topic()
        await world.broker.inactive.round()
        world.clock.step(step_ms)
        await after(world, 50)
        assert await exists(world)
        await after(world, 61)
        assert not await exists(world)

    in_world(story)


def test_a_use_between_two_rounds_counts() -> None:
    async def story(world: World) -> None:
        await world.topic()
        await world.broker.inactive.round()
        world.clock.advance(50_000)
        peer = world.peer()
        await peer.producer()
        peer.send(send(1, 0))
        await world.until(lambda: peer.receipts, "a receipt")
        peer.session.lost()
        world.clock.advance(50_000)
        await world.broker.inactive.round()
        assert await exists(world)

    in_world(story)


@pytest.mark.parametrize("whole", [False, True])
def test_partitions_go_and_the_partitioned_topic_by_setting(whole: bool) -> None:
    async def story(world: World) -> None:
        policies, base = world.broker.policies, TopicName.parse("p")
        await policies.create_partitioned(base, 2)
        for i in range(2):
            await world.broker.topic(base.with_partition(i))
        await after(world, 100)
        assert await world.logs.names("public/default") == []
        assert await policies.partitions(base) == (0 if whole else 2)

    in_world(story, BrokerConfig(inactive_partitioned=whole))


def test_system_topics_stay() -> None:
    async def story(world: World) -> None:
        await world.topic("persistent://public/default/__change_events")
        await after(world, 1000)
        assert await exists(world, "persistent://public/default/__change_events")

    in_world(story)


def test_policies_are_read_from_the_narrowest_level() -> None:
    default = InactivePolicy()
    namespace = {INACTIVE_POLICY: {"deleteWhileInactive": True, "maxInactiveDurationSeconds": 9}}
    own = {
        INACTIVE_POLICY: {
            "deleteWhileInactive": True,
            "inactiveTopicDeleteMode": "delete_when_subscriptions_caught_up",
        }
    }
    assert default.under({}, {}) == default
    assert default.under({}, namespace) == InactivePolicy(idle_s=9)
    assert default.under(own, namespace) == InactivePolicy(mode=DeleteMode.CAUGHT_UP)


def test_a_subscription_that_nobody_uses_goes_after_its_time() -> None:
    async def story(world: World) -> None:
        peer, other = world.peer(), world.peer()
        await peer.consumer(subscription="left")
        await other.consumer(subscription="used")
        topic = await world.topic()
        world.clock.advance(100 * 60_000)
        await world.broker.inactive.round()
        peer.session.lost()
        for minutes, left in ((9, {"left", "used"}), (2, {"used"})):
            world.clock.advance(minutes * 60_000)
            await world.broker.inactive.round()
            assert set(topic.subscriptions) == left
        assert set(topic.log.cursors) == {"used"}

    in_world(story, BrokerConfig(subscription_expiration_minutes=10))


def test_the_namespace_says_when_subscriptions_go() -> None:
    async def story(world: World) -> None:
        peer = world.peer()
        await peer.consumer()
        topic = await world.topic()
        peer.session.lost()
        await after(world, 10_000)
        assert topic.subscriptions, "never, where nobody says anything"
        await world.broker.policies.update_namespace(
            NAMESPACE, lambda document: document.update({EXPIRATION_POLICY: 5})
        )
        await world.broker.inactive.round()
        assert not topic.subscriptions

    in_world(story)


def test_when_a_subscription_was_last_used_survives() -> None:
    async def story(world: World) -> None:
        gone, kept = world.peer(), world.peer()
        await gone.consumer(subscription="gone")
        await kept.consumer(subscription="kept")
        gone.session.lost()
        for _ in range(8):
            world.clock.advance(60_000)
            await world.broker.inactive.round()
        # What would be known after a kill.
        cursors = (await world.topic()).log.cursors
        assert cursors["gone"].stored_active_ms == world.clock.now_ms() - 8 * 60_000
        assert cursors["kept"].stored_active_ms >= world.clock.now_ms() - 3 * 60_000
        await world.broker.unload(NAME)
        world.clock.advance(3 * 60_000)
        topic = await world.topic()
        await world.broker.inactive.round()
        assert set(topic.subscriptions) == {"kept"}

    in_world(story, BrokerConfig(subscription_expiration_minutes=10))


def test_a_clock_that_is_set_ahead_deletes_no_subscription_for_an_hour() -> None:
    async def story(world: World) -> None:
        peer = world.peer()
        await peer.consumer()
        topic = await world.topic()
        peer.session.lost()
        world.clock.step(86_400_000)
        await world.broker.inactive.round()
        assert set(topic.subscriptions) == {"s"}
        world.clock.advance(3_600_000)
        await world.broker.inactive.round()
        assert not topic.subscriptions

    in_world(story, BrokerConfig(subscription_expiration_minutes=600))


@pytest.mark.parametrize("years", [-50, 50])
def test_a_use_while_the_clock_was_wrong_counts_from_when_it_was(years: int) -> None:
    """A machine without a battery: a client that left while it said 1970 left 50 years ago once set right."""

    async def story(world: World) -> None:
        peer = world.peer()
        await peer.consumer()
        topic = await world.topic()
        world.clock.step(years * 365 * 86_400_000)
        peer.session.lost()
        await world.broker.inactive.round()
        world.clock.advance(10_000)
        world.clock.step(-years * 365 * 86_400_000)
        for _ in range(600):
            await world.broker.inactive.round()
            assert set(topic.subscriptions) == {"s"}
            assert topic.log.cursors["s"].stored_active_ms == topic.log.cursors["s"].last_active_ms
            world.clock.advance(60_000)
        await world.broker.inactive.round()
        assert not topic.subscriptions

    in_world(story, BrokerConfig(subscription_expiration_minutes=600))
