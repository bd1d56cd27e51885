"""What went wrong in Pulsar's admin API, tried here: a test for each CVE, named after it.

All that have a test stand in `tests/unit/auth/cves.txt`: here are those of the admin API.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Awaitable, Callable

import pytest

from magnetar.admin.policies.table import ALL
from magnetar.auth.authentication import Authentication
from magnetar.auth.token import TokenProvider, new_token, secret_key
from support.admin_api import AdminApi, T, with_api

SECRET = b"s" * 32
N = "/admin/v2/namespaces/public/default"


def bearer(role: str, original: str = "") -> dict[str, str]:
    headers = {"Authorization": f"Bearer {new_token(SECRET, role, now_s=1, lasts_s=None)}"}
    return {**headers, "X-Original-Principal": original} if original else headers


def guarded(story: Callable[[AdminApi], Awaitable[None]]) -> None:
    """With superuser root; writer and reader have their grants for public/default, proxy has both."""

    async def prepared(api: AdminApi) -> None:
        grants = {"writer": ["produce"], "reader": ["consume"], "proxy": ["produce", "consume"]}
        for role, actions in grants.items():
            answer = await api.call("POST", f"{N}/permissions/{role}", actions, headers=bearer("root"))
            assert answer.status == 204
        assert (await api.call("PUT", f"{T}/t", headers=bearer("root"))).status == 204
        await story(api)

    chain = Authentication(
        {"token": TokenProvider(secret_key(SECRET))}, proxy_roles=frozenset(("proxy",)), verify_original=False
    )
    with_api(prepared, authentication=chain, superuser_roles=frozenset(("root",)))


def test_cve_2021_22160_a_token_without_a_signature() -> None:
    async def story(api: AdminApi) -> None:
        for algorithm in ("none", "None", "NONE", "nOnE", ""):
            parts = ({"alg": algorithm}, {"sub": "root"})
            encoded = (base64.urlsafe_b64encode(json.dumps(part).encode()).decode() for part in parts)
            text = ".".join(part.rstrip("=") for part in encoded)
            for token in (text, f"{text}.", f"{text}.x"):
                answer = await api.call(
                    "GET", "/admin/v2/tenants", headers={"Authorization": f"Bearer {token}"}
                )
                assert answer.status == 401

    guarded(story)


def test_cve_2021_41571_a_message_of_another_topic_by_its_ledger() -> None:
    async def story(api: AdminApi) -> None:
        root = bearer("root")
        tenant = {"adminRoles": [], "allowedClusters": [api.broker.config.cluster]}
        assert (await api.call("PUT", "/admin/v2/tenants/other", tenant, headers=root)).status == 204
        assert (await api.call("PUT", "/admin/v2/namespaces/other/n", headers=root)).status == 204
        (position,) = await api.publish("persistent://other/n/secret", b"hidden")
        await api.publish("persistent://public/default/t", b"shown")
        at = f"ledger/{position.ledger_id}/entry/{position.entry_id}"
        theirs = f"/admin/v2/persistent/other/n/secret/{at}"
        assert (await api.call("GET", theirs, headers=root)).body == b"hidden"
        assert (await api.call("GET", theirs, headers=bearer("reader"))).status == 403
        answer = await api.call("GET", f"{T}/t/{at}", headers=bearer("reader"))
        assert answer.status in (404, 412)
        assert b"hidden" not in answer.body

    guarded(story)


@pytest.mark.parametrize("path", ["proxy-stats/stats", "proxy-stats/persistent/public/default/t/stats"])
def test_cve_2022_34321_statistics_of_proxies(path: str) -> None:
    async def story(api: AdminApi) -> None:
        assert (await api.call("GET", f"/admin/v2/{path}")).status == 401
        assert (await api.call("GET", f"/admin/v2/{path}", headers=bearer("reader"))).status == 403

    guarded(story)


@pytest.mark.parametrize("role", ["reader", "stranger"])
def test_cve_2023_30428_publishing_over_http_in_another_name(role: str) -> None:
    async def story(api: AdminApi) -> None:
        body = {"messages": [{"payload": "x"}]}
        path = "/topics/persistent/public/default/t"
        assert (await api.call("POST", path, body, headers=bearer(role))).status == 403
        for original in ("root", "writer", "proxy"):
            assert (await api.call("POST", path, body, headers=bearer(role, original))).status == 401
        stats = await api.call("GET", f"{T}/t/stats", headers=bearer("root"))
        assert stats.json["msgInCounter"] == 0

    guarded(story)


def test_cve_2023_30429_the_right_of_a_proxy_is_not_its_clients() -> None:
    async def story(api: AdminApi) -> None:
        for original, status in (("reader", 200), ("stranger", 403), ("", 401), ("proxy", 401)):
            answer = await api.call("GET", f"{T}/t/subscriptions", headers=bearer("proxy", original))
            assert answer.status == status, original
        # Nor is a client's the proxy's.
        assert (await api.call("GET", "/admin/v2/tenants", headers=bearer("proxy", "root"))).status == 403

    guarded(story)


@pytest.mark.parametrize(
    "path", ["sources/public/default/x", "sinks/public/default/x", "functions/public/default/x"]
)
def test_cve_2023_37579_settings_of_connectors(path: str) -> None:
    """And CVE-2024-27894, CVE-2024-27135, CVE-2024-27317: nothing is taken that would be run.

    Where functions are offered: `tests/unit/admin/functions/test_functions.py`.
    """

    async def story(api: AdminApi) -> None:
        path_there = f"/admin/v3/{path}"
        for role in ("reader", "writer", "stranger"):
            for method in ("GET", "POST", "PUT", "DELETE"):
                assert (await api.call(method, path_there, headers=bearer(role))).status == 403
        for url in ("file:///etc/passwd", "http://169.254.169.254/", "builtin://../x"):
            answer = await api.call("POST", path_there, {"archive": url, "jar": url}, headers=bearer("root"))
            assert answer.status == 501

    guarded(story)


@pytest.mark.parametrize("role", ["writer", "reader", "stranger"])
def test_cve_2024_28098_and_29834_policies_by_who_only_produces_or_consumes(role: str) -> None:
    async def story(api: AdminApi) -> None:
        names = {policy.of_topic for policy in ALL if policy.of_topic is not None}
        for name in sorted(names):
            for method in ("GET", "POST", "PUT", "DELETE"):
                answer = await api.call(method, f"{T}/t/{name}", headers=bearer(role))
                assert answer.status in (403, 405), (method, name)
        for method, path in (
            ("DELETE", f"{T}/t"),
            ("PUT", f"{T}/t/unload"),
            ("PUT", f"{T}/t/compaction"),
            ("PUT", f"{T}/t/offload"),
            ("POST", f"{T}/t/partitions"),
            ("DELETE", f"{T}/t/truncate"),
            ("POST", f"{T}/t/permissions/{role}"),
        ):
            assert (await api.call(method, path, headers=bearer(role))).status == 403, path

    guarded(story)


def test_cve_2024_31141_references_in_values_stay_text() -> None:
    """Kafka's clients read files and variables of the environment that a value named."""

    async def story(api: AdminApi) -> None:
        root = bearer("root")
        values = {
            "a": "${env:PATH}",
            "b": "${file:/etc/passwd:root}",
            "c": "${directory:/:etc}",
            "d": "file:///x",
        }
        assert (await api.call("PUT", f"{T}/t/properties", values, headers=root)).status == 204
        assert (await api.call("GET", f"{T}/t/properties", headers=root)).json == values

    guarded(story)


def test_cve_2024_27309_a_revoked_grant_leaves_the_others() -> None:
    async def story(api: AdminApi) -> None:
        root = bearer("root")
        for role in ("one", "two", "three"):
            answer = await api.call("POST", f"{T}/t/permissions/{role}", ["consume"], headers=root)
            assert answer.status == 204
        assert (await api.call("DELETE", f"{T}/t/permissions/two", headers=root)).status == 204
        kept = (await api.call("GET", f"{T}/t/permissions", headers=root)).json
        assert kept["one"] == kept["three"] == ["consume"]
        assert "two" not in kept
        assert {"writer", "reader", "proxy"} <= set(kept)

    guarded(story)
