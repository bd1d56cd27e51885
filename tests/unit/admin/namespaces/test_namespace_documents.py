"""A namespace that is made with policies: what gets in is what their own routes would take."""

from __future__ import annotations

import json
from typing import Any

import pytest

from magnetar.admin.policies.table import ALL
from magnetar.auth.authentication import Authentication, Provider
from magnetar.auth.identity import Credentials, Identity
from magnetar.broker.config import BrokerConfig
from support.admin_api import AdminApi, with_api

N = "/admin/v2/namespaces/public/made"

WRONG: list[Any] = ["x", [1], {"x": "y"}, {"x": {"y": []}}, -7, 1e300, [None], {"standalone": "x"}]
"""None of them is the value of any number; few are of any policy."""
PARTS = sorted({policy.namespace_key for policy in ALL if policy.of_namespace is not None})
OTHERS = ("backlog_quota_map", "auth_policies", "resource_group_name", "replication_clusters", "bundles")

FROM_PULSAR: dict[str, Any] = {
    "auth_policies": {"namespace_auth": {}, "destination_auth": {}, "subscription_auth_roles": {}},
    "replication_clusters": [],
    "bundles": {"boundaries": [], "numBundles": 4},
    "backlog_quota_map": {},
    "clusterDispatchRate": {},
    "topicDispatchRate": {},
    "latency_stats_sample_rate": {},
    "message_ttl_in_seconds": None,
    "retention_policies": None,
    "deleted": False,
    "encryption_required": False,
    "subscription_auth_mode": "None",
    "max_unacked_messages_per_consumer": -1,
    "offload_threshold": -1,
    "schema_auto_update_compatibility_strategy": "AutoUpdateDisabled",
    "schema_compatibility_strategy": "UNDEFINED",
    "is_allow_auto_update_schema": True,
    "schema_validation_enforced": False,
    "subscription_types_enabled": [],
    "properties": {},
    "resource_group_name": None,
    "migrated": False,
}


def test_what_pulsars_own_tools_send_is_taken() -> None:
    async def story(api: AdminApi) -> None:
        await api.done("PUT", N, FROM_PULSAR)
        found = await api.get(N)
        assert found["replication_clusters"] == ["standalone"]
        assert found["bundles"]["numBundles"] == 4
        assert "latency_stats_sample_rate" not in found

    with_api(story)


def test_policies_are_kept_as_by_their_own_routes() -> None:
    async def story(api: AdminApi) -> None:
        body = {
            "message_ttl_in_seconds": "60",
            "publishMaxMessageRate": {"standalone": {"publishThrottlingRateInMsg": 5}},
            "backlog_quota_map": {"message_age": {"limitTime": 9, "policy": "producer_exception"}},
            "auth_policies": {"namespace_auth": {"ada": ["produce", "consume"]}},
            "properties": {"a": "b"},
            "dispatcherPauseOnAckStatePersistentEnabled": False,
        }
        await api.done("PUT", N, body)
        found = await api.get(N)
        assert found["message_ttl_in_seconds"] == 60
        assert (await api.get(f"{N}/publishRate"))["publishThrottlingRateInMsg"] == 5
        assert (await api.get(f"{N}/backlogQuotaMap"))["message_age"]["limitTime"] == 9
        assert await api.get(f"{N}/permissions") == {"ada": ["consume", "produce"]}
        assert found["properties"] == {"a": "b"}
        assert found["dispatcherPauseOnAckStatePersistentEnabled"] is False

    with_api(story)


@pytest.mark.parametrize("key", [*PARTS, *OTHERS])
def test_what_its_own_route_refuses_gets_in_nowhere(key: str) -> None:
    """And what gets in breaks nothing that reads it: a round over all topics goes on."""

    async def story(api: AdminApi) -> None:
        refused = 0
        for number, value in enumerate(WRONG):
            answer = await api.call("PUT", f"{N}-{number}", {key: value})
            assert answer.status in (204, 400, 403, 412, 501), answer.body
            refused += answer.status != 204
            if answer.status == 204:
                topic = f"/admin/v2/persistent/public/made-{number}/t"
                await api.done("PUT", topic)
                assert (await api.call("GET", f"{topic}/stats")).status == 200
        # Jackson takes many things for a switch.
        assert refused >= 4
        await api.broker.apply_policies()

    with_api(story)


@pytest.mark.parametrize("text", ["NaN", "Infinity", "-Infinity", "1e999"])
def test_what_is_no_number_is_refused(text: str) -> None:
    async def story(api: AdminApi) -> None:
        body = b'{"persistence": {"managedLedgerMaxMarkDeleteRate": %s}}' % text.encode()
        assert (await api.call("PUT", N, body)).status == 400
        cluster = b'{"serviceUrl": "http://x", "n": %s}' % text.encode()
        assert (await api.call("PUT", "/admin/v2/clusters/x", cluster)).status == 400

    with_api(story)


def test_what_has_no_effect_is_named() -> None:
    async def story(api: AdminApi) -> None:
        status, reason = await api.refused("PUT", N, {"no_such_policy": 7})
        assert status == 400
        assert "'no_such_policy'" in reason

    with_api(story)


class ByName:
    """Believes what it is told."""

    slow = False

    def identify(self, credentials: Credentials, now_ms: int) -> Identity:
        return Identity(credentials.data.decode())


PROVIDERS: dict[str, Provider] = {"token": ByName()}


def test_a_tenant_does_not_join_a_resource_group_by_itself() -> None:
    async def story(api: AdminApi) -> None:
        root, boss = ({"Authorization": f"Bearer {role}"} for role in ("root", "boss"))
        tenant = {"adminRoles": ["boss"], "allowedClusters": ["standalone"]}
        await api.call("POST", "/admin/v2/tenants/public", tenant, headers=root)
        group = {"publishRateInMsgs": 5}
        assert (await api.call("PUT", "/admin/v2/resourcegroups/g", group, headers=root)).status == 204
        body = {"resource_group_name": "g"}
        assert (await api.call("PUT", N, body, headers=boss)).status == 403
        assert (await api.call("PUT", N, {"resource_group_name": "none"}, headers=root)).status == 412
        assert (await api.call("PUT", N, {}, headers=boss)).status == 204
        assert (await api.call("PUT", f"{N}-2", body, headers=root)).status == 204

    with_api(story, authentication=Authentication(PROVIDERS, ""), superuser_roles=frozenset(("root",)))


@pytest.mark.parametrize("allowed", [False, True])
def test_rates_are_set_by_superusers_unless_the_setting_allows_the_tenant(allowed: bool) -> None:
    """By their own routes, of a namespace and of a topic, and with the document of a new namespace."""
    rate = {"publishThrottlingRateInMsg": 5}
    topic = "/admin/v2/persistent/public/default/t"

    async def story(api: AdminApi) -> None:
        root, boss = ({"Authorization": f"Bearer {role}"} for role in ("root", "boss"))
        tenant = {"adminRoles": ["boss"], "allowedClusters": ["standalone"]}
        await api.call("POST", "/admin/v2/tenants/public", tenant, headers=root)
        assert (await api.call("PUT", topic, headers=boss)).status == 204
        expected = 204 if allowed else 403
        document = {"publishMaxMessageRate": {"standalone": rate}}
        assert (await api.call("PUT", N, document, headers=boss)).status == expected
        assert (await api.call("PUT", f"{N}-2", FROM_PULSAR, headers=boss)).status == 204
        for path in (f"{N}-2/publishRate", f"{topic}/publishRate", f"{topic}/subscriptionDispatchRate"):
            body = rate if "publish" in path else {"dispatchThrottlingRateInMsg": 5}
            answer = await api.call("POST", path, body, headers=boss)
            assert answer.status == expected
            assert allowed or b"tenant_rates" in answer.body
            assert (await api.call("POST", path, body, headers=root)).status == 204
            assert (await api.call("GET", path, headers=boss)).status == 200
            assert (await api.call("DELETE", path, headers=boss)).status == expected

    with_api(
        story,
        authentication=Authentication(PROVIDERS, ""),
        superuser_roles=frozenset(("root",)),
        config=BrokerConfig(tenant_rates=allowed),
    )


def test_a_document_that_is_stored_already_and_cannot_be_used_breaks_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    document = {
        "message_ttl_in_seconds": [],
        "retention_policies": {"retentionTimeInMinutes": "x"},
        "publishMaxMessageRate": {"standalone": 5},
        "backlog_quota_map": {"message_age": None},
        "bundles": {"boundaries": ["x"]},
        "auth_policies": {"namespace_auth": 7},
        "inactive_topic_policies": {"inactiveTopicDeleteMode": "never"},
        "max_producers_per_topic": 3,
    }

    async def story(api: AdminApi) -> None:
        await api.done("PUT", N, {})
        await api.done("PUT", "/admin/v2/persistent/public/made/t")
        text = json.dumps(document).replace("[]", "NaN").encode()
        await api.broker.store.put("/admin/policies/public/made", text)
        await api.broker.apply_policies()
        assert (await api.call("GET", "/admin/v2/persistent/public/made/t/stats")).status == 200
        assert await api.get(f"{N}/maxProducersPerTopic") == 3
        # Not the broker's default, which may expire messages.
        assert await api.get(f"{N}/messageTTL") == 0

    with caplog.at_level("WARNING", "magnetar.broker"):
        with_api(story)
    (line,) = {message for message in caplog.messages if "cannot be used" in message}
    assert "/admin/policies/public/made" in line
    assert all(name in line for name in document if name != "max_producers_per_topic")
