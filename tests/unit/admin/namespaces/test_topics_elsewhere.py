"""What is done to all topics of a namespace, on a cluster of several brokers."""

from __future__ import annotations

import pytest

from magnetar.base.names import TopicName
from support.admin_api import AdminApi
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
def test_all_topics_are_served_here_or_none_is_changed(call: str) -> None:
    async def story(api: AdminApi, other: OtherBroker) -> None:
        await with_backlogs(api)
        bundle = await owners_of(api).bundle_of(NAMES[-1])
        await owners_of(api).move(bundle)
        await other.own(bundle)
        status, reason = await api.refused("POST", f"{N}/{call}")
        assert status == 503
        assert "is served by broker other:8080" in reason
        here = [str(name) for name in NAMES if not bundle.has(name)]
        assert backlogs(api) == dict.fromkeys(here, 1)
        await owners_of(api).gather([bundle])
        await api.done("POST", f"{N}/{call}")
        for topic in api.broker.topics.values():
            assert "s" not in topic.subscriptions or not topic.subscriptions["s"].backlog_entries
        assert len(api.broker.topics) == len(NAMES)

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
        path = f"{N}/{theirs.range_name}/clearBacklog/s"
        answer = await api.call("POST", path)
        assert (answer.status, answer.headers["location"]) == (307, f"{OTHER_URL}{path}")
        await api.done("POST", f"{N}/{ours.range_name}/clearBacklog")
        cleared = [str(name) for name in NAMES if ours.has(name)]
        assert [name for name, count in backlogs(api).items() if not count] == cleared
        assert (await api.refused("POST", f"{N}/0x00000000_0x00000001/clearBacklog"))[0] == 412

    on_a_shared_cluster(story)
