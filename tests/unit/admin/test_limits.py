"""Limits over the admin API: stored as Pulsar stores them, in force at once."""

from __future__ import annotations

from typing import Any

import pytest

from magnetar.broker.limits.backlog import BacklogQuota, QuotaKind, QuotaPolicy
from magnetar.broker.limits.token_bucket import Rate
from support.admin_api import AdminApi, T, with_api

N = "/admin/v2/namespaces/public/default"

NUMBERS = {
    "maxProducersPerTopic": ("maxProducers", "producers_max"),
    "maxConsumersPerTopic": ("maxConsumers", "consumers_max"),
    "maxConsumersPerSubscription": ("maxConsumersPerSubscription", "consumers_max_per_subscription"),
    "maxSubscriptionsPerTopic": ("maxSubscriptionsPerTopic", "subscriptions_max"),
    "maxUnackedMessagesPerConsumer": ("maxUnackedMessagesOnConsumer", "unacked_max_per_consumer"),
    "maxUnackedMessagesPerSubscription": (
        "maxUnackedMessagesOnSubscription",
        "unacked_max_per_subscription",
    ),
    "messageTTL": ("messageTTL", "ttl_s"),
}


@pytest.mark.parametrize("name", NUMBERS)
def test_a_number_of_the_topic_wins_over_its_namespace(name: str) -> None:
    of_topic, field = NUMBERS[name]

    async def story(api: AdminApi) -> None:
        topic = await api.topic("t")
        unset = getattr(topic.limits.limits, field)
        await api.done("POST", f"{N}/{name}", 7)
        assert await api.get(f"{N}/{name}") == 7
        assert getattr(topic.limits.limits, field) == 7
        assert await api.get(f"{T}/t/{of_topic}?applied=true") == 7
        assert (await api.call("GET", f"{T}/t/{of_topic}")).status == 204
        await api.done("POST", f"{T}/t/{of_topic}", 3)
        assert await api.get(f"{T}/t/{of_topic}") == 3
        assert getattr(topic.limits.limits, field) == 3
        await api.done("DELETE", f"{T}/t/{of_topic}")
        await api.done("DELETE", f"{N}/{name}")
        assert getattr(topic.limits.limits, field) == unset
        assert (await api.refused("POST", f"{N}/{name}", -1))[0] == 412
        assert (await api.refused("POST", f"{N}/{name}", "many"))[0] == 400

    with_api(story)


def test_a_ttl_of_a_topic_may_stand_in_the_query() -> None:
    async def story(api: AdminApi) -> None:
        await api.topic("t")
        await api.done("POST", f"{T}/t/messageTTL?messageTTL=9")
        assert (await api.topic("t")).limits.limits.ttl_s == 9

    with_api(story)


@pytest.mark.parametrize(
    ("name", "field", "document", "rate"),
    [
        (
            "publishRate",
            "publish_rate",
            {"publishThrottlingRateInMsg": 5, "publishThrottlingRateInByte": -1},
            Rate(5, 0, 1000),
        ),
        (
            "dispatchRate",
            "dispatch_rate",
            {"dispatchThrottlingRateInMsg": 5, "dispatchThrottlingRateInByte": 6, "ratePeriodInSecond": 2},
            Rate(5, 6, 2000),
        ),
        (
            "subscriptionDispatchRate",
            "subscription_dispatch_rate",
            {"dispatchThrottlingRateInMsg": 5},
            Rate(5, 0, 1000),
        ),
        (
            "subscribeRate",
            "subscribe_rate",
            {"subscribeThrottlingRatePerConsumer": 5, "ratePeriodInSecond": 30},
            Rate(5, 0, 30_000),
        ),
    ],
)
def test_rates_of_namespaces_and_topics(name: str, field: str, document: dict[str, Any], rate: Rate) -> None:
    async def story(api: AdminApi) -> None:
        topic = await api.topic("t")
        for path in (f"{N}/{name}", f"{T}/t/{name}"):
            await api.done("POST", path, document)
            assert (await api.get(path)).items() >= document.items()
            assert getattr(topic.limits.limits, field) == rate
            await api.done("DELETE", path)
            assert getattr(topic.limits.limits, field) == Rate()
        assert (await api.refused("POST", f"{N}/{name}", dict.fromkeys(document, "x")))[0] == 400

    with_api(story)


def test_subscription_types_and_encryption() -> None:
    async def story(api: AdminApi) -> None:
        limits = (await api.topic("t")).limits
        await api.done("POST", f"{N}/subscriptionTypesEnabled", ["Shared", "Key_Shared"])
        assert limits.limits.subscription_types == {"Shared", "Key_Shared"}
        assert (await api.refused("POST", f"{T}/t/subscriptionTypesEnabled", ["Sharde"]))[0] == 400
        await api.done("POST", f"{N}/encryptionRequired", body=True)
        assert limits.limits.encryption_required
        assert limits.gate is not None
        await api.done("POST", f"{N}/encryptionRequired", body=False)
        assert limits.gate is None

    with_api(story)


def test_backlog_quotas_of_namespaces_and_topics() -> None:
    size = {"limitSize": 1000, "limitTime": -1, "policy": "producer_exception"}
    age = {"limitSize": -1, "limitTime": 60, "policy": "consumer_backlog_eviction"}

    async def story(api: AdminApi) -> None:
        topic = await api.topic("t")
        await api.done("POST", f"{N}/backlogQuota", size)
        await api.done("POST", f"{T}/t/backlogQuota?backlogQuotaType=message_age", age)
        assert await api.get(f"{N}/backlogQuotaMap") == {"destination_storage": size}
        assert await api.get(f"{T}/t/backlogQuotaMap") == {"message_age": age}
        assert len(await api.get(f"{T}/t/backlogQuotaMap?applied=true")) == 2
        assert topic.limits.limits.quotas == (
            BacklogQuota(QuotaKind.SIZE, 1000, QuotaPolicy.REFUSE),
            BacklogQuota(QuotaKind.AGE, 60, QuotaPolicy.EVICT),
        )
        await api.done("DELETE", f"{N}/backlogQuota?backlogQuotaType=destination_storage")
        await api.done("DELETE", f"{T}/t/backlogQuota?backlogQuotaType=message_age")
        assert topic.limits.limits.quotas == ()
        assert (await api.refused("POST", f"{N}/backlogQuota", {"policy": "hope"}))[0] == 400
        assert (await api.refused("POST", f"{N}/backlogQuota?backlogQuotaType=x", size))[0] == 400

    with_api(story)


def test_numbers_may_be_texts() -> None:
    """Some clients send them so, and Pulsar takes them."""

    async def story(api: AdminApi) -> None:
        topic = await api.topic("t")
        await api.done("POST", f"{N}/backlogQuota", {"limit": "10240", "policy": "producer_request_hold"})
        assert topic.limits.limits.quotas == (BacklogQuota(QuotaKind.SIZE, 10240, QuotaPolicy.HOLD),)
        await api.done("POST", f"{N}/messageTTL", "7")
        assert topic.limits.limits.ttl_s == 7
        await api.done("POST", f"{N}/publishRate", {"publishThrottlingRateInMsg": "5"})
        assert topic.limits.limits.publish_rate == Rate(5, 0, 1000)
        found = await api.get(f"{N}/publishRate")
        assert found == {"publishThrottlingRateInMsg": 5, "publishThrottlingRateInByte": -1}
        await api.done("POST", f"{N}/retention", {"retentionTimeInMinutes": "10", "retentionSizeInMB": "-1"})
        assert await api.get(f"{N}/retention") == {"retentionTimeInMinutes": 10, "retentionSizeInMB": -1}
        for wrong in ("1.5", "0x1", "9" * 20, 1 << 31, "1 1", True):
            assert (await api.refused("POST", f"{N}/messageTTL", wrong))[0] == 400

    with_api(story)


def test_a_quota_beyond_the_retention_is_refused() -> None:
    async def story(api: AdminApi) -> None:
        await api.topic("t")
        await api.done("POST", f"{N}/retention", {"retentionTimeInMinutes": 10, "retentionSizeInMB": 10})
        large = {"limitSize": 10 << 20, "policy": "producer_request_hold"}
        assert (await api.refused("POST", f"{N}/backlogQuota", large))[0] == 412
        await api.done("POST", f"{N}/backlogQuota", {**large, "limitSize": 9 << 20})
        old = {"limitTime": 600, "policy": "producer_exception"}
        assert (await api.refused("POST", f"{N}/backlogQuota?backlogQuotaType=message_age", old))[0] == 412
        assert (await api.refused("POST", f"{T}/t/backlogQuota", large))[0] == 412

    with_api(story)


def test_a_retention_below_the_quota_is_refused() -> None:
    async def story(api: AdminApi) -> None:
        for name in ("t", "other"):
            await api.topic(name)
        large = {"limitSize": 10 << 20, "policy": "producer_request_hold"}
        for quota, retention in ((f"{T}/t/backlogQuota", f"{T}/t/retention"), (f"{N}/backlogQuota",) * 2):
            await api.done("POST", quota, large)
            path = f"{N}/retention" if retention == quota else retention
            small = {"retentionTimeInMinutes": 10, "retentionSizeInMB": 10}
            assert (await api.refused("POST", path, small))[0] == 412
            for fits in ({**small, "retentionSizeInMB": 11}, {**small, "retentionSizeInMB": -1}):
                await api.done("POST", path, fits)
        # A topic that says nothing of quotas has its namespace's.
        assert (await api.refused("POST", f"{T}/other/retention", small))[0] == 412

    with_api(story)


def test_a_namespace_takes_so_many_topics() -> None:
    async def story(api: AdminApi) -> None:
        await api.done("POST", f"{N}/maxTopicsPerNamespace", 2)
        await api.done("PUT", f"{T}/a")
        await api.done("PUT", f"{T}/b")
        assert (await api.refused("PUT", f"{T}/c"))[0] == 412
        assert (await api.refused("PUT", f"{T}/p/partitions", 1))[0] == 412
        await api.done("DELETE", f"{N}/maxTopicsPerNamespace")
        await api.done("PUT", f"{T}/c")

    with_api(story)
