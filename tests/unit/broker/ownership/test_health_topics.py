"""Each of several brokers checks itself on a topic of its own, whichever broker has the bundles."""

from __future__ import annotations

import pytest

from magnetar.base.names import TopicName
from magnetar.broker.errors import ServiceNotReadyError
from magnetar.broker.ownership.health_topics import checked_broker, health_topic
from magnetar.broker.ownership.place import HERE
from support.many_brokers import OTHER, OneOfSeveral, with_one_of_several

HEALTH = "/admin/v2/brokers/health"
SYSTEM = "persistent://pulsar/system/healthcheck"


def test_names() -> None:
    assert str(health_topic("h:1")) == f"{SYSTEM}-h:1"
    assert checked_broker(health_topic("[::1]:8080")) == "[::1]:8080"
    for name in (SYSTEM, "public/default/healthcheck-h:1", "non-persistent://pulsar/system/healthcheck-h:1"):
        assert checked_broker(TopicName.parse(name)) == ""


def test_a_broker_without_a_bundle_is_healthy() -> None:
    async def story(api: OneOfSeveral) -> None:
        await api.other_is_there()
        for topic in (TopicName.parse(SYSTEM), api.owners.health_topic):
            await api.other_owns(await api.owners.bundle_of(topic))
        assert (await api.call("GET", HEALTH)).body == b"ok"
        assert not len(api.owners.ownership)

    with_one_of_several(story)


def test_the_topic_stays_when_its_bundle_leaves() -> None:
    async def story(api: OneOfSeveral) -> None:
        name = api.owners.health_topic
        bundle = await api.owners.bundle_of(name)
        names = [TopicName.parse(f"persistent://pulsar/system/t{number}") for number in range(100)]
        neighbour = next(each for each in names if bundle.has(each))
        assert await api.owners.locate(neighbour, authoritative=True) == HERE
        topics = [await api.topic(str(each)) for each in (neighbour, name)]
        await api.owners.move(bundle)
        assert [topic.closed for topic in topics] == [True, False]
        assert (await api.call("GET", HEALTH)).body == b"ok"

    with_one_of_several(story)


def test_another_brokers_topic_is_served_there_while_it_is_there() -> None:
    async def story(api: OneOfSeveral) -> None:
        theirs = health_topic(OTHER)
        assert await api.owners.locate(api.owners.health_topic, authoritative=False) == HERE
        # That of a broker that is gone: a topic like others, which an operator may delete.
        assert await api.owners.locate(theirs, authoritative=True) == HERE
        await api.other_is_there()
        place = await api.owners.locate(theirs, authoritative=True)
        assert place.urls is not None
        assert place.urls.broker_id == OTHER
        with pytest.raises(ServiceNotReadyError, match=f"by broker {OTHER} only"):
            await api.owners.admit(theirs)

    with_one_of_several(story)


def test_the_topic_goes_when_the_broker_leaves() -> None:
    async def story(api: OneOfSeveral) -> None:
        await api.call("GET", HEALTH)
        name = api.owners.health_topic
        assert await api.broker.exists(name)
        await api.owners.drain()
        assert not await api.broker.exists(name)

    with_one_of_several(story)


def test_the_topic_stays_when_another_process_may_have_the_id() -> None:
    async def story(api: OneOfSeveral) -> None:
        await api.call("GET", HEALTH)
        api.owners.peers.session_lost()
        await api.owners.drain()
        assert await api.broker.exists(api.owners.health_topic)

    with_one_of_several(story)
