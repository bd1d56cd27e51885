"""What clients bring into being: topics, partitioned topics, subscriptions."""

from __future__ import annotations

from typing import Any

import pytest

from magnetar.base.names import NamespaceName, TopicName
from magnetar.broker.policies.creation import CreationRules
from magnetar.broker.service import BrokerConfig
from magnetar.wire import pulsar_pb2 as pb
from support.sessions import Type, World, in_world

NAMESPACE = NamespaceName.parse("public/default")


@pytest.mark.parametrize(
    ("own", "namespace", "rules"),
    [
        ({}, {}, CreationRules(topics=False)),
        ({}, {"autoTopicCreationOverride": {"allowAutoTopicCreation": True}}, CreationRules()),
        (
            {},
            {
                "autoTopicCreationOverride": {
                    "allowAutoTopicCreation": True,
                    "topicType": "partitioned",
                    "defaultNumPartitions": 3,
                }
            },
            CreationRules(partitions=3),
        ),
        (
            {"autoSubscriptionCreationOverride": {"allowAutoSubscriptionCreation": True}},
            {"autoSubscriptionCreationOverride": {"allowAutoSubscriptionCreation": False}},
            CreationRules(topics=False),
        ),
        (
            {},
            {"autoSubscriptionCreationOverride": {"allowAutoSubscriptionCreation": False}},
            CreationRules(topics=False, subscriptions=False),
        ),
    ],
)
def test_the_narrowest_that_says_something_wins(
    own: dict[str, Any], namespace: dict[str, Any], rules: CreationRules
) -> None:
    assert CreationRules(topics=False).under(own, namespace) == rules


async def override(world: World, key: str, value: dict[str, Any]) -> None:
    await world.broker.policies.update_namespace(NAMESPACE, lambda document: document.update({key: value}))


async def partitions(world: World, topic: str = "t", **more: Any) -> Any:
    return await world.peer().ask(Type.PARTITIONED_METADATA, topic=topic, request_id=1, **more)


@pytest.mark.parametrize("domain", ["persistent", "non-persistent"])
def test_a_client_makes_a_partitioned_topic_where_the_namespace_says_so(domain: str) -> None:
    async def story(world: World) -> None:
        await override(
            world,
            "autoTopicCreationOverride",
            {"allowAutoTopicCreation": True, "topicType": "partitioned", "defaultNumPartitions": 3},
        )
        topic = f"{domain}://public/default/t"
        asked = await partitions(world, topic, metadata_auto_creation_enabled=False)
        assert asked.error == pb.TopicNotFound
        assert (await partitions(world, topic)).partitions == 3
        assert await world.broker.policies.partitions(TopicName.parse(topic)) == 3
        assert len(await world.broker.topics_of(NAMESPACE, domain)) == 3

    in_world(story)


def test_a_topic_that_exists_stays_what_it_is() -> None:
    async def story(world: World) -> None:
        await world.topic()
        await override(
            world,
            "autoTopicCreationOverride",
            {"allowAutoTopicCreation": True, "topicType": "partitioned", "defaultNumPartitions": 3},
        )
        assert (await partitions(world)).partitions == 0

    in_world(story)


def test_nothing_is_made_where_the_namespace_forbids_it() -> None:
    async def story(world: World) -> None:
        await override(world, "autoTopicCreationOverride", {"allowAutoTopicCreation": False})
        assert (await partitions(world)).error == pb.TopicNotFound
        assert (await world.peer().producer()).error == pb.TopicNotFound
        assert (await world.peer().producer(topic="non-persistent://public/default/t")).error

    in_world(story)


def test_the_broker_may_forbid_and_the_namespace_allow() -> None:
    async def story(world: World) -> None:
        assert (await world.peer().producer()).error == pb.TopicNotFound
        await override(world, "autoTopicCreationOverride", {"allowAutoTopicCreation": True})
        assert (await world.peer().producer()).producer_name

    in_world(story, BrokerConfig(creation=CreationRules(topics=False)))


def test_subscriptions_are_made_only_where_that_is_allowed() -> None:
    async def story(world: World) -> None:
        await world.peer().consumer(subscription="before")
        await override(world, "autoSubscriptionCreationOverride", {"allowAutoSubscriptionCreation": False})
        refused = await world.peer().consumer(subscription="s")
        assert refused.error == pb.SubscriptionNotFound
        known = await world.peer().consumer(subscription="before", kind="Exclusive")
        assert known.error == pb.ConsumerBusy, "what is there may be used"
        reader = await world.peer().consumer(subscription="reader", durable=False)
        assert not hasattr(reader, "error")

    in_world(story)


def test_a_partitioned_topic_keeps_its_properties_when_it_grows() -> None:
    async def story(world: World) -> None:
        policies, topic = world.broker.policies, TopicName.parse("p")
        await policies.create_partitioned(topic, 1, {"owner": "a"})
        await policies.grow_partitioned(topic, 4)
        assert await policies.partitions(topic) == 4
        assert await policies.partitioned_properties(topic) == {"owner": "a"}

    in_world(story)
