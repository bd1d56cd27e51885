"""Policies of what comes and goes by itself, over HTTP."""

from __future__ import annotations

import pytest

from support.admin_api import AdminApi, with_api

N = "/admin/v2/namespaces/public/default"
T = "/admin/v2/persistent/public/default/t"

PARTITIONED = {"allowAutoTopicCreation": True, "topicType": "partitioned", "defaultNumPartitions": 4}
INACTIVE = {
    "inactiveTopicDeleteMode": "delete_when_subscriptions_caught_up",
    "maxInactiveDurationSeconds": 7,
    "deleteWhileInactive": True,
}
SUBSCRIPTIONS = {"allowAutoSubscriptionCreation": False}


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (f"{N}/autoTopicCreation", PARTITIONED),
        (f"{N}/autoSubscriptionCreation", SUBSCRIPTIONS),
        (f"{T}/autoSubscriptionCreation", SUBSCRIPTIONS),
        (f"{N}/inactiveTopicPolicies", INACTIVE),
        (f"{T}/inactiveTopicPolicies", INACTIVE),
    ],
)
def test_they_are_set_read_and_removed(path: str, value: dict[str, object]) -> None:
    async def story(api: AdminApi) -> None:
        await api.topic("t")
        await api.done("POST", path, value)
        assert await api.get(path) == value
        await api.done("DELETE", path)
        assert (await api.call("GET", path)).status == 204

    with_api(story)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (f"{N}/autoTopicCreation", {"allowAutoTopicCreation": True}),
        (f"{N}/autoTopicCreation", {**PARTITIONED, "topicType": "odd"}),
        (f"{N}/autoTopicCreation", {**PARTITIONED, "defaultNumPartitions": 0}),
        (f"{N}/autoTopicCreation", {"allowAutoTopicCreation": True, "defaultNumPartitions": 2}),
        (f"{N}/autoSubscriptionCreation", {"allowAutoSubscriptionCreation": "yes"}),
        (f"{N}/inactiveTopicPolicies", {**INACTIVE, "inactiveTopicDeleteMode": "odd"}),
        (f"{N}/inactiveTopicPolicies", {**INACTIVE, "maxInactiveDurationSeconds": "soon"}),
        (f"{N}/inactiveTopicPolicies", {**INACTIVE, "deleteWhileInactive": "yes"}),
    ],
)
def test_bodies_are_checked(path: str, value: dict[str, object]) -> None:
    async def story(api: AdminApi) -> None:
        assert (await api.refused("POST", path, value))[0] in (400, 412)

    with_api(story)
