"""Bodies as Pulsar's own reader takes them: what is here was answered so by Pulsar 4.2's admin API."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from magnetar.admin.calls import coercion
from magnetar.admin.calls.coercion import LONG_BITS, as_boolean, as_choice, as_decimal, as_text, as_whole
from magnetar.admin.calls.errors import BadRequestError
from magnetar.admin.policies.table import ALL
from support.admin_api import AdminApi, with_api

N = "/admin/v2/namespaces/public/default"
T = "/admin/v2/persistent/public/default/t"


# -- values --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("read", "value", "expected"),
    [
        (as_boolean, "true", True),
        (as_boolean, "True", True),
        (as_boolean, "TRUE", True),
        (as_boolean, " true ", True),
        (as_boolean, "False", False),
        (as_boolean, 1, True),
        (as_boolean, 2, True),
        (as_boolean, 0, False),
        (as_boolean, "", None),
        (as_boolean, "null", None),
        (as_boolean, None, None),
        (as_whole, " 3 ", 3),
        (as_whole, "+3", 3),
        (as_whole, 3.7, 3),
        (as_whole, -3.7, -3),
        (as_whole, 1e2, 100),
        (as_whole, "", None),
        (as_whole, "null", None),
        (as_decimal, "2.5", 2.5),
        (as_decimal, 2, 2.0),
        (as_decimal, "", None),
        (as_text, 5, "5"),
        (as_text, True, "true"),
        (as_text, None, None),
    ],
)
def test_what_is_taken(read: Callable[[object], Any], value: object, expected: object) -> None:
    assert read(value) == expected


@pytest.mark.parametrize(
    ("read", "value"),
    [
        (as_boolean, "yes"),
        (as_boolean, "1"),
        (as_boolean, "tRUE"),
        (as_boolean, 1.0),
        (as_boolean, []),
        (as_boolean, {}),
        (as_whole, "3.7"),
        (as_whole, "x"),
        (as_whole, True),
        (as_whole, [3]),
        (as_whole, 1 << 31),
        (as_whole, float("nan")),
        (as_whole, float("inf")),
        (as_whole, "9" * 41),
        (as_decimal, "x"),
        (as_decimal, float("nan")),
        (as_decimal, float("inf")),
        (as_decimal, False),
        (as_text, []),
        (coercion.as_object, ""),
        (coercion.as_object, []),
        (coercion.as_texts, "a"),
        (coercion.as_texts, [None]),
    ],
)
def test_what_is_not_taken(read: Callable[[object], Any], value: object) -> None:
    with pytest.raises(BadRequestError):
        read(value)


def test_names_are_taken_in_any_case_and_by_number() -> None:
    names = ("UNDEFINED", "FULL")
    assert [as_choice(value, names) for value in ("full", "FULL", 1, "1", "", None)] == [
        *["FULL"] * 4,
        None,
        None,
    ]
    for wrong in ("odd", 2, -1, True, 1.0, []):
        with pytest.raises(BadRequestError):
            as_choice(wrong, names)


def test_longs_are_longer() -> None:
    assert as_whole(1 << 40, bits=LONG_BITS) == 1 << 40
    with pytest.raises(BadRequestError, match="out of range of long"):
        as_whole(1 << 63, bits=LONG_BITS)


# -- policies ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("body", [b'"true"', b'"True"', b"1", b'" TRUE "'])
def test_encryption_is_switched_on_by_a_text(body: bytes) -> None:
    """A tool that sent the text and hid the refusal left it off."""

    async def story(api: AdminApi) -> None:
        topic = await api.topic("t")
        await api.done("POST", f"{N}/encryptionRequired", body)
        assert await api.get(f"{N}/encryptionRequired") is True
        assert topic.limits.limits.encryption_required

    with_api(story)


_RETENTION = {"retentionTimeInMinutes": 10, "retentionSizeInMB": 20}


@pytest.mark.parametrize(
    ("path", "body", "found"),
    [
        (f"{N}/deduplication", b"null", False),
        (f"{T}/deduplicationEnabled", b'"false"', False),
        (f"{T}/schemaValidationEnforced", b'"true"', True),
        (f"{N}/maxProducersPerTopic", b'" 3 "', 3),
        (f"{N}/maxProducersPerTopic", b"3.7", 3),
        (f"{N}/maxProducersPerTopic", b"null", 0),
        (f"{N}/maxProducersPerTopic", b'""', 0),
        (f"{N}/retention", {"retentionTimeInMinutes": "10", "retentionSizeInMB": " 20 "}, _RETENTION),
        (
            f"{N}/dispatchRate",
            {"dispatchThrottlingRateInMsg": "7", "relativeToPublishRate": "true"},
            {
                "dispatchThrottlingRateInMsg": 7,
                "dispatchThrottlingRateInByte": 0,
                "relativeToPublishRate": True,
                "ratePeriodInSecond": 0,
            },
        ),
        (
            f"{N}/publishRate",
            {"publishThrottlingRateInMsg": None, "unknown": 1},
            {"publishThrottlingRateInMsg": 0, "publishThrottlingRateInByte": -1},
        ),
        (
            f"{N}/inactiveTopicPolicies",
            {"maxInactiveDurationSeconds": "60", "deleteWhileInactive": "true"},
            {"maxInactiveDurationSeconds": 60, "deleteWhileInactive": True},
        ),
        (
            f"{N}/autoTopicCreation",
            {"allowAutoTopicCreation": "true", "topicType": "PARTITIONED", "defaultNumPartitions": "3"},
            {"allowAutoTopicCreation": True, "topicType": "PARTITIONED", "defaultNumPartitions": 3},
        ),
        (f"{N}/autoTopicCreation", {"allowAutoTopicCreation": "false"}, {"allowAutoTopicCreation": False}),
        (
            f"{N}/autoSubscriptionCreation",
            {"allowAutoSubscriptionCreation": "false"},
            {"allowAutoSubscriptionCreation": False},
        ),
        (
            f"{N}/delayedDelivery",
            {"active": "true", "tickTime": "500"},
            {"active": True, "tickTime": 500, "maxDeliveryDelayInMillis": 0},
        ),
        (
            f"{N}/persistence",
            {"bookkeeperEnsemble": "1", "managedLedgerMaxMarkDeleteRate": "2.5"},
            {
                "bookkeeperEnsemble": 1,
                "bookkeeperWriteQuorum": 1,
                "bookkeeperAckQuorum": 1,
                "managedLedgerMaxMarkDeleteRate": 2.5,
            },
        ),
    ],
)
def test_policies_are_taken_as_pulsar_takes_them(path: str, body: object, found: object) -> None:
    async def story(api: AdminApi) -> None:
        await api.done("PUT", T)
        await api.done("POST", path, body)
        assert await api.get(path) == found

    with_api(story)


@pytest.mark.parametrize("body", [None, b"null"])
@pytest.mark.parametrize(
    ("path", "value"),
    [
        (f"{N}/retention", _RETENTION),
        (f"{N}/dispatchRate", {"dispatchThrottlingRateInMsg": 7}),
        (f"{N}/inactiveTopicPolicies", {"maxInactiveDurationSeconds": 60, "deleteWhileInactive": True}),
        (f"{N}/delayedDelivery", {"active": True, "tickTime": 500}),
        (f"{N}/deduplicationSnapshotInterval", 5),
        (f"{T}/deduplicationEnabled", True),
        (f"{T}/maxUnackedMessagesOnConsumer", 5),
        (f"{T}/messageTTL", 5),
    ],
)
def test_nothing_takes_a_policy_away(path: str, value: object, body: bytes | None) -> None:
    async def story(api: AdminApi) -> None:
        await api.done("PUT", T)
        await api.done("POST", path, value)
        await api.done("POST", path, body)
        assert (await api.call("GET", path)).status == 204

    with_api(story)


@pytest.mark.parametrize(
    ("path", "body", "status", "reason"),
    [
        (f"{N}/encryptionRequired", None, 400, "The request entity cannot be empty."),
        (f"{N}/maxProducersPerTopic", None, 400, "The request entity cannot be empty."),
        (f"{N}/maxProducersPerTopic", -1, 412, "maxProducersPerTopic must be 0 or more"),
        (f"{T}/maxProducers", -1, 412, "maxProducers must be 0 or more"),
        (f"{T}/maxConsumersPerSubscription", -1, 412, "Invalid value for maxConsumersPerSubscription"),
        (f"{T}/maxUnackedMessagesOnConsumer", -1, 412, "maxUnackedNum must be 0 or more"),
        (f"{N}/messageTTL", -1, 412, "Invalid value for message TTL, message TTL must >= 0"),
        (f"{N}/subscriptionExpirationTime", -1, 412, "Invalid value for subscription expiration time"),
        (
            f"{N}/deduplicationSnapshotInterval",
            -1,
            412,
            "interval must be greater than or equal to 0",
        ),
        (
            f"{N}/retention",
            {"retentionTimeInMinutes": -2, "retentionSizeInMB": 5},
            400,
            "Invalid retention policy: time limit must be >= -1",
        ),
        (f"{N}/persistence", b"null", 400, "persistence policies should not be null"),
        (
            f"{N}/autoTopicCreation",
            {"allowAutoTopicCreation": True},
            412,
            "Invalid configuration for autoTopicCreationOverride. the detail is Unknown topic type [null]",
        ),
        (
            f"{N}/backlogQuota",
            {"limitSize": 5},
            400,
            (
                "Set namespace[public/default] backlog quota failed because the data validation failed."
                " the attribute policy cannot be null"
            ),
        ),
    ],
)
def test_refusals_are_in_pulsars_words(path: str, body: object, status: int, reason: str) -> None:
    async def story(api: AdminApi) -> None:
        await api.done("PUT", T)
        answer = await api.call("POST", path, body)
        assert (answer.status, answer.reason) == (status, reason)

    with_api(story)


@pytest.mark.parametrize("body", [b"null", b'""', b"0", b'"x"', b"[]", b"{}", b"1e400", b"-1", b"[null]"])
def test_no_body_breaks_a_policy(body: bytes) -> None:
    """Taken or refused with a reason, and readable afterwards, for every policy of both levels."""

    async def story(api: AdminApi) -> None:
        await api.done("PUT", T)
        for policy in ALL:
            for base, name in ((N, policy.of_namespace), (T, policy.of_topic)):
                if name is None:
                    continue
                path = f"{base}/{name}"
                for method in ("POST", "PUT"):
                    answer = await api.call(method, path, body)
                    assert answer.status in (204, 400, 405, 412), (path, body, answer)
                assert (await api.call("GET", path)).status in (200, 204)
        await api.broker.unload((await api.topic("t")).name)
        await api.topic("t")

    with_api(story)
