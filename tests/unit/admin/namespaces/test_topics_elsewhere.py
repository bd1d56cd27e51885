"""What is done to all topics of a namespace, on a cluster of several brokers."""

from __future__ import annotations

import pytest

from magnetar.base.names import TopicName
from support.admin_api import AdminApi
from support.partitions_elsewhere import Asked, shown
from support.shared_cluster import OTHER_URL, OtherBroker, bundles_of, on_a_shared_cluster, owners_of

N = "/admin/v2/namespaces/public/default"
NAMES = [TopicName.parse(f"persistent://public/default/t-{number}") for number in range(8)]


async def with_backlogs(api: AdminApi) -> None:
    """Topics in all bundles, which this broker serves, with a message that a subscription has not seen."""
    await owners_of(api).require(NAMES)
    for name in NAMES:
        topic = await api.topic(str(name))
        await topic.subscription("s", initial_earliest=True, start=None, properties=None)
        await api.publish(str(name), b"message")


def backlogs(api: AdminApi) -> dict[str, int]:
    return {name: topic.subscriptions["s"].backlog_entries for name, topic in api.broker.topics.items()}


@pytest.mark.parametrize("call", ["clearBacklog", "clearBacklog/s", "unsubscribe/s"])
def test_no_topic_is_changed_here_when_another_owner_fails(call: str) -> None:
    async def story(api: AdminApi, other: OtherBroker) -> None:
        await with_backlogs(api)
        bundle = await owners_of(api).bundle_of(NAMES[-1])
        await owners_of(api).move(bundle)
        await other.own(bundle)
        asked = Asked(api)
        asked.answer = lambda *_: ConnectionRefusedError("nobody listens")
        status, reason = await api.refused("POST", f"{N}/{call}")
        assert status == 503
        assert "broker other:8080" in reason
        assert asked.calls == [("POST", f"{N}/{bundle.range_name}/{call}")]
        here = [str(name) for name in NAMES if not bundle.has(name)]
        assert backlogs(api) == dict.fromkeys(here, 1)
        await owners_of(api).gather([bundle])
        await api.done("POST", f"{N}/{call}")
        for topic in api.broker.topics.values():
            assert "s" not in topic.subscriptions or not topic.subscriptions["s"].backlog_entries
        assert len(api.broker.topics) == len(NAMES)

    on_a_shared_cluster(story)


@pytest.mark.parametrize("call", ["clearBacklog", "clearBacklog/s", "unsubscribe/s"])
def test_each_owner_does_it_for_its_bundles(call: str) -> None:
    async def story(api: AdminApi, other: OtherBroker) -> None:
        await with_backlogs(api)
        bundle = await owners_of(api).bundle_of(NAMES[-1])
        await owners_of(api).move(bundle)
        await other.own(bundle)
        asked = Asked(api)
        await api.done("POST", f"{N}/{call}")
        assert asked.calls == [("POST", f"{N}/{bundle.range_name}/{call}")]
        assert not any(
            topic.subscriptions["s"].backlog_entries
            for topic in api.broker.topics.values()
            if "s" in topic.subscriptions
        )
        assert len(api.broker.topics) == len([name for name in NAMES if not bundle.has(name)])

    on_a_shared_cluster(story)


def test_a_namespace_with_non_persistent_topics_of_another_broker_is_kept() -> None:
    async def story(api: AdminApi, other: OtherBroker) -> None:
        await api.done("PUT", "/admin/v2/namespaces/public/n")
        other.join()
        asked = Asked(api)
        asked.answer = lambda *_: shown(["non-persistent://public/n/t"])
        path = "/admin/v2/namespaces/public/n"
        assert (await api.refused("DELETE", path))[0] == 409
        assert asked.calls == [("GET", f"{path}/topics?mode=NON_PERSISTENT")]
        asked.answer = lambda *_: ConnectionRefusedError("nobody listens")
        other.join()  # what the table holds is read again from time to time, and it has no record
        assert (await api.refused("DELETE", path))[0] == 503
        asked.answer = lambda *_: shown([])
        other.join()
        await api.done("DELETE", path)

    on_a_shared_cluster(story)


def test_a_list_has_the_non_persistent_topics_of_all_brokers() -> None:
    """Each knows of its own only: a list had those of the broker that was asked."""

    async def story(api: AdminApi, other: OtherBroker) -> None:
        await api.done("PUT", "/admin/v2/namespaces/public/n")
        listed = "/admin/v2/non-persistent/public/n"
        bundles = [await owners_of(api).bundle_of(TopicName.parse("non-persistent://public/n/here"))]
        await owners_of(api).gather(bundles)
        await api.done("PUT", f"{listed}/here")
        other.join()
        asked = Asked(api)
        asked.answer = lambda *_: shown(["non-persistent://public/n/far"])
        assert await api.get(listed) == ["non-persistent://public/n/far", "non-persistent://public/n/here"]
        asked.answer = lambda *_: ConnectionRefusedError("nobody listens")
        other.join()
        assert (await api.refused("GET", listed))[0] == 503
        assert await api.get("/admin/v2/persistent/public/n") == []

    on_a_shared_cluster(story)


def test_topics_without_an_owner_come_here() -> None:
    async def story(api: AdminApi, _: OtherBroker) -> None:
        await with_backlogs(api)
        for bundle in bundles_of("public/default"):
            await owners_of(api).move(bundle)
        assert not api.broker.topics
        await api.done("POST", f"{N}/clearBacklog")
        assert backlogs(api) == dict.fromkeys(map(str, NAMES), 0)

    on_a_shared_cluster(story)


def test_a_call_about_a_bundle_goes_to_its_owner() -> None:
    async def story(api: AdminApi, other: OtherBroker) -> None:
        await with_backlogs(api)
        theirs, ours, *_ = bundles_of("public/default")
        await owners_of(api).move(theirs)
        await other.own(theirs)
        for last in ("clearBacklog", "unsubscribe"):
            path = f"{N}/{theirs.range_name}/{last}/s"
            answer = await api.call("POST", path)
            assert (answer.status, answer.headers["location"]) == (307, f"{OTHER_URL}{path}")
        await api.done("POST", f"{N}/{ours.range_name}/clearBacklog")
        cleared = [str(name) for name in NAMES if ours.has(name)]
        assert [name for name, count in backlogs(api).items() if not count] == cleared
        assert (await api.refused("POST", f"{N}/0x00000000_0x00000001/clearBacklog"))[0] == 412

    on_a_shared_cluster(story)
