"""Subscriptions of a topic whose partitions several brokers serve."""

from __future__ import annotations

from typing import Any

import pytest

from magnetar.base.names import TopicName
from support.admin_api import AdminApi, T
from support.partitions_elsewhere import PARTS, Asked, no_content, shown, stats_of, with_parts_elsewhere


def cursors(api: AdminApi) -> set[str]:
    return {name for topic in api.broker.topics.values() for name in topic.subscriptions}


def test_a_subscription_is_made_and_deleted_everywhere() -> None:
    async def story(api: AdminApi, asked: Asked, theirs: list[TopicName]) -> None:
        asked.answer = lambda method, _: shown([]) if method == "GET" else no_content()
        await api.done("PUT", f"{T}/p/subscription/a%2Fb", "earliest")
        paths = [f"{T}/{each.local}/subscription/a%2Fb" for each in theirs]
        assert [path for method, path in asked.calls if method == "PUT"] == paths
        assert asked.bodies[-1] == b'"earliest"'
        assert cursors(api) == {"a/b"}
        asked.calls.clear()
        await api.done("POST", f"{T}/p/subscription/a%2Fb/skip_all")
        assert asked.calls == [("POST", f"{path}/skip_all") for path in paths]
        asked.answer = lambda method, _: shown(stats_of()) if method == "GET" else no_content()
        asked.calls.clear()
        await api.done("DELETE", f"{T}/p/subscription/a%2Fb")
        assert [path for method, path in asked.calls if method == "DELETE"] == paths
        assert cursors(api) == set()

    with_parts_elsewhere(story)


def test_names_of_all_brokers_are_listed() -> None:
    async def story(api: AdminApi, asked: Asked, _: list[TopicName]) -> None:
        asked.answer = lambda *_: shown(["far"])
        await (await api.topic(str(PARTS[0]))).subscription(
            "near", initial_earliest=True, start=None, properties=None
        )
        assert await api.get(f"{T}/p/subscriptions") == ["far", "near"]

    with_parts_elsewhere(story)


def test_one_that_another_broker_has_is_made_nowhere() -> None:
    async def story(api: AdminApi, asked: Asked, _: list[TopicName]) -> None:
        asked.answer = lambda *_: shown(["s"])
        assert (await api.refused("PUT", f"{T}/p/subscription/s"))[0] == 409
        assert {method for method, _ in asked.calls} == {"GET"}
        assert cursors(api) == set()

    with_parts_elsewhere(story)


def test_one_with_consumers_elsewhere_is_deleted_nowhere() -> None:
    async def story(api: AdminApi, asked: Asked, _: list[TopicName]) -> None:
        await (await api.topic(str(PARTS[0]))).subscription(
            "s", initial_earliest=True, start=None, properties=None
        )
        used: dict[str, Any] = {**stats_of(), "subscriptions": {"s": {"consumers": [{}]}}}
        asked.answer = lambda *_: shown(used)
        answer = await api.refused("DELETE", f"{T}/p/subscription/s")
        assert answer == (412, "Subscription has active connected consumers")
        assert {method for method, _ in asked.calls} == {"GET"}
        assert cursors(api) == {"s"}

    with_parts_elsewhere(story)


@pytest.mark.parametrize("missing_here", [True, False])
def test_a_partition_without_the_subscription_is_left_out(missing_here: bool) -> None:
    async def story(api: AdminApi, asked: Asked, _: list[TopicName]) -> None:
        if missing_here:
            asked.answer = lambda *_: no_content()
            await api.done("POST", f"{T}/p/subscription/s/skip_all")
        asked.answer = lambda *_: shown({"reason": "not found"}, 404)
        assert (await api.refused("POST", f"{T}/p/subscription/s/skip_all"))[0] == 404

    with_parts_elsewhere(story)
