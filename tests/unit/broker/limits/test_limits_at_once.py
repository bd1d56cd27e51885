"""Limits hold for clients that come at once, and for every way in which something is made."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from magnetar.base.errors import MagnetarError
from magnetar.base.ids import LATEST
from magnetar.base.names import TopicName
from magnetar.broker.config import BrokerConfig
from magnetar.broker.errors import NotAllowedError
from magnetar.broker.limits.limits import Limits
from magnetar.broker.topic.any_topic import ReaderStart
from support.admin_api import AdminApi, T, with_api
from support.sessions import TOPIC, Type, World, in_world

MOST = 3


async def tried(work: Awaitable[object]) -> bool:
    try:
        await work
    except MagnetarError:
        return False
    return True


def name_of(number: int, domain: str = "persistent") -> TopicName:
    return TopicName.parse(f"{domain}://public/default/t-{number}")


MAKERS: dict[str, Callable[[World, int], Awaitable[object]]] = {
    "by use": lambda world, number: world.broker.any_topic(name_of(number)),
    "by an administrator": lambda world, number: world.broker.create_topic(name_of(number)),
    "partitioned": lambda world, number: world.broker.partitioned.create(name_of(number), 1),
}


@pytest.mark.parametrize("how", MAKERS)
def test_topics_that_are_made_at_once_are_no_more_than_a_namespace_may_have(how: str) -> None:
    async def story(world: World) -> None:
        done = await asyncio.gather(*(tried(MAKERS[how](world, number)) for number in range(20)))
        assert sum(done) == MOST
        assert len(await world.broker.topics_of(name_of(0).namespace_name)) == MOST
        await world.broker.delete_topic(name_of(0), force=True) if how != "partitioned" else None
        # A client that waited in vain holds no place.
        assert await tried(world.broker.any_topic(name_of(50))) is (how != "partitioned")

    in_world(story, BrokerConfig(limits=Limits(topics_max=MOST)))


def test_non_persistent_topics_count_too() -> None:
    async def story(world: World) -> None:
        broker = world.broker

        def of_both(number: int) -> Awaitable[object]:
            return broker.any_topic(name_of(number // 2, ("persistent", "non-persistent")[number % 2]))

        done = await asyncio.gather(*(tried(of_both(number)) for number in range(20)))
        assert sum(done) == MOST
        assert await broker._topics_in(name_of(0).namespace_name) == MOST

    in_world(story, BrokerConfig(limits=Limits(topics_max=MOST)))


def test_two_who_open_the_last_non_persistent_topic_get_it() -> None:
    async def story(world: World) -> None:
        name = name_of(1, "non-persistent")
        first, second = await asyncio.gather(world.broker.any_topic(name), world.broker.any_topic(name))
        assert first is second
        assert not await tried(world.broker.any_topic(name_of(2, "non-persistent")))
        world.broker.nonpersistent.remove(first)  # type: ignore[arg-type]  # it is one
        assert await tried(world.broker.any_topic(name_of(2)))

    in_world(story, BrokerConfig(limits=Limits(topics_max=1)))


def test_a_partition_is_counted_once() -> None:
    async def story(world: World) -> None:
        name = name_of(1, "non-persistent")
        await world.broker.partitioned.create(name, MOST)
        for number in range(MOST):
            assert await tried(world.broker.any_topic(name.with_partition(number)))
        assert not await tried(world.broker.any_topic(name_of(2)))

    in_world(story, BrokerConfig(limits=Limits(topics_max=MOST)))


def test_a_topic_may_be_loaded_again_in_a_full_namespace() -> None:
    async def story(world: World) -> None:
        for number in range(MOST):
            await world.broker.any_topic(name_of(number))
        await world.broker.unload(name_of(0))
        assert await tried(world.broker.any_topic(name_of(0)))

    in_world(story, BrokerConfig(limits=Limits(topics_max=MOST)))


@pytest.mark.parametrize("domain", ["persistent", "non-persistent"])
def test_subscriptions_that_are_made_at_once_are_no_more_than_a_topic_may_have(domain: str) -> None:
    async def story(world: World) -> None:
        topic = await world.broker.any_topic(TopicName.parse(f"{domain}://public/default/t"))

        def one(number: int) -> Awaitable[object]:
            # Each name twice: both hear of the same subscription.
            return topic.subscription(f"s-{number // 2}", initial_earliest=True, start=None, properties=None)

        done = await asyncio.gather(*(tried(one(number)) for number in range(20)))
        assert sum(done) == 2 * MOST
        assert len(topic.subscriptions) == MOST
        with pytest.raises(NotAllowedError):
            await topic.reader("r", ReaderStart(LATEST, None))
        await topic.drop_subscription(topic.subscriptions["s-0"])
        assert await tried(one(50))

    in_world(story, BrokerConfig(limits=Limits(subscriptions_max=MOST)))


def test_a_place_stays_reserved_until_the_last_of_two_makers_ends() -> None:
    """The first of two makers of one name that ended gave the place of both away."""

    async def story(world: World) -> None:
        limits = (await world.topic()).limits
        with limits.making_subscription({}, "s"):
            with limits.making_subscription({}, "s"):
                pass
            with pytest.raises(NotAllowedError), limits.making_subscription({}, "other"):
                pass
        with limits.making_subscription({}, "other"):
            pass

    in_world(story, BrokerConfig(limits=Limits(subscriptions_max=1)))


def test_a_producer_makes_no_subscription_beyond_the_limit() -> None:
    """The subscription of a dead letter topic was made without a look at it."""

    async def story(world: World) -> None:
        peer = world.peer()
        for number in range(MOST + 1):
            answer = await peer.ask(
                Type.PRODUCER,
                topic=TOPIC,
                producer_id=number,
                request_id=number,
                initial_subscription_name=f"dead-{number}",
            )
        assert "maximum number of subscriptions" in answer.message
        topic = await world.broker.any_topic(TopicName.parse(TOPIC))
        assert len(topic.subscriptions) == MOST

    in_world(story, BrokerConfig(limits=Limits(subscriptions_max=MOST)))


@pytest.mark.parametrize("method", ["PUT", "GET"], ids=["made", "made by a look at its first message"])
def test_an_administrator_makes_no_subscription_beyond_the_limit(method: str) -> None:
    async def story(api: AdminApi) -> None:
        topic = await api.topic("t")
        await api.publish(str(topic.name), b"x")
        statuses = []
        for number in range(MOST + 1):
            path = f"{T}/t/subscription/s-{number}" + ("" if method == "PUT" else "/position/1")
            statuses.append((await api.call(method, path)).status)
        assert statuses[-1] == 405
        assert all(status < 300 for status in statuses[:-1])
        assert len(topic.subscriptions) == MOST

    with_api(story, config=BrokerConfig(limits=Limits(subscriptions_max=MOST)))
