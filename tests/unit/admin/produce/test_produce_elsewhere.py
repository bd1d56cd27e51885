"""Publishing over HTTP on a cluster of several brokers: where messages go, and what is refused as a whole."""

from __future__ import annotations

from typing import Any

from magnetar.base.names import TopicName
from support.admin_api import AdminApi, T
from support.shared_cluster import OTHER_URL, OtherBroker, on_a_shared_cluster, owners_of

P = "/topics/persistent/public/default"
NAME = TopicName.parse("persistent://public/default/p")
KEYS = {3: "c", 0: "d", 1: "a", 2: "b"}
"""A key for each of four partitions."""


async def part_is_elsewhere(api: AdminApi, other: OtherBroker, number: int) -> None:
    """A topic with four partitions, of which this broker has all but those in the bundle of one."""
    await api.done("PUT", f"{T}/p/partitions", 4)
    await other.own_bundle_of(NAME.with_partition(number))
    for each in range(4):
        await owners_of(api).locate(NAME.with_partition(each), authoritative=True)


def to_partitions(*numbers: int | None) -> dict[str, Any]:
    """Messages with keys of these partitions; None: without a key."""
    messages = [{"payload": "x"} if each is None else {"payload": "x", "key": KEYS[each]} for each in numbers]
    return {"messages": messages}


async def stored(api: AdminApi) -> list[int]:
    """How many messages lie in each partition that was used here."""
    return [topic.log.entry_count for topic in api.broker.topics.values()]


def test_messages_of_another_broker_are_sent_there() -> None:
    async def story(api: AdminApi, other: OtherBroker) -> None:
        await part_is_elsewhere(api, other, 1)
        await other.own_bundle_of(TopicName.parse("persistent://public/default/t"))
        for path, body in (
            ("t?x=1", to_partitions(None)),
            ("p", to_partitions(1, 1, None)),
            ("p/partitions/1", to_partitions(0, None)),
        ):
            answer = await api.call("POST", f"{P}/{path}", body)
            assert (answer.status, answer.headers["location"]) == (307, f"{OTHER_URL}{P}/{path}")
        assert not await stored(api)

    on_a_shared_cluster(story)


def test_messages_of_several_brokers_are_refused_before_one_is_stored() -> None:
    async def story(api: AdminApi, other: OtherBroker) -> None:
        await part_is_elsewhere(api, other, 1)
        assert not (await owners_of(api).bundle_of(NAME.with_partition(1))).has(NAME.with_partition(0))
        status, reason = await api.refused("POST", f"{P}/p", to_partitions(0, None, 1))
        assert status == 503
        assert "partitions of several brokers" in reason
        assert not await stored(api)

    on_a_shared_cluster(story)


def test_messages_without_a_key_stay_at_the_broker_that_was_asked() -> None:
    async def story(api: AdminApi, other: OtherBroker) -> None:
        await part_is_elsewhere(api, other, 1)
        for _ in range(8):
            answer = await api.call("POST", f"{P}/p", to_partitions(None, None))
            assert answer.status == 200, answer.body
            api.clock.advance(1)
        assert sum(await stored(api)) == 16

    on_a_shared_cluster(story)


def test_partitions_without_an_owner_come_to_the_broker_that_was_asked() -> None:
    async def story(api: AdminApi, other: OtherBroker) -> None:
        other.join()
        await api.done("PUT", f"{T}/p/partitions", 4)
        answer = await api.call("POST", f"{P}/p", to_partitions(0, 1, 2, 3))
        assert answer.status == 200, answer.body
        assert sorted(await stored(api)) == [1, 1, 1, 1]

    on_a_shared_cluster(story)
