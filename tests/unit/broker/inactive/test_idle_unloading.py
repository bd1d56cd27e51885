"""Which topics leave the memory because they have no clients."""

from __future__ import annotations

from typing import Any

import pytest

from magnetar.base.names import NamespaceName, TopicName
from magnetar.broker.inactive.expiry import EXPIRATION_POLICY
from magnetar.broker.inactive.policy import InactivePolicy
from magnetar.broker.service import BrokerConfig
from support.sessions import TOPIC, World, in_world, send

KEPT = BrokerConfig(inactive=InactivePolicy(delete=False), idle_topic_unload_s=600)
NAMESPACE = NamespaceName.parse("public/default")


async def after(world: World, seconds: int) -> None:
    await world.broker.inactive.round()
    world.clock.advance(seconds * 1000)
    await world.broker.inactive.round()


def loaded(world: World) -> bool:
    return TOPIC in world.broker.topics


async def one_message(world: World, *, acknowledged: bool) -> None:
    """A subscription `s` and a message; its clients have left."""
    peer = world.peer()
    await peer.consumer()
    await peer.producer()
    peer.send(send(1, 0))
    await world.until(lambda: (world.broker.topics[TOPIC]).log.entry_count == 1, "stored")
    if acknowledged:
        await world.broker.topics[TOPIC].subscriptions["s"].skip_all()
    peer.session.lost()


def test_a_topic_without_a_backlog_leaves_and_comes_back_as_it_was() -> None:
    async def story(world: World) -> None:
        await one_message(world, acknowledged=True)
        await after(world, 599)
        assert loaded(world)
        await after(world, 2)
        assert not loaded(world)
        assert await world.broker.exists(TopicName.parse(TOPIC))
        topic = await world.topic()
        assert list(topic.subscriptions) == ["s"]
        assert topic.subscriptions["s"].backlog_entries == 0

    in_world(story, KEPT)


def test_a_backlog_keeps_it_where_monitoring_sees_it() -> None:
    async def story(world: World) -> None:
        await one_message(world, acknowledged=False)
        await after(world, 10_000)
        assert loaded(world)

    in_world(story, KEPT)


def test_clients_keep_it() -> None:
    async def story(world: World) -> None:
        peer = world.peer()
        await peer.producer()
        await after(world, 10_000)
        assert loaded(world)
        peer.session.lost()
        await after(world, 599)
        assert loaded(world), "its time begins when the last one has left"

    in_world(story, KEPT)


@pytest.mark.parametrize(
    ("config", "policies"),
    [
        (BrokerConfig(inactive=InactivePolicy(delete=False)), {}),
        (KEPT, {EXPIRATION_POLICY: 60_000}),
    ],
)
def test_it_stays_where_that_is_off_or_where_its_subscriptions_expire(
    config: BrokerConfig, policies: dict[str, Any]
) -> None:
    async def story(world: World) -> None:
        await world.broker.policies.update_namespace(NAMESPACE, lambda document: document.update(policies))
        await one_message(world, acknowledged=True)
        await after(world, 1_000)
        assert loaded(world)

    in_world(story, config)


def test_sealed_ledgers_keep_it() -> None:
    async def story(world: World) -> None:
        await world.broker.policies.update_namespace(
            NAMESPACE,
            lambda document: document.update(
                retention_policies={"retentionTimeInMinutes": -1, "retentionSizeInMB": -1}
            ),
        )
        for _ in range(2):
            await one_message(world, acknowledged=True)
            await world.broker.unload(TopicName.parse(TOPIC))
            await world.topic()
        await after(world, 1_000)
        assert loaded(world)

    in_world(story, KEPT)
