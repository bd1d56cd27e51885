"""Grants of namespaces, topics and subscriptions over HTTP."""

from __future__ import annotations

import pytest

from support.admin_api import AdminApi, T, with_api

N = "/admin/v2/namespaces/public/default"
P = f"{N}/permissions"


def test_grants_of_a_namespace() -> None:
    async def story(api: AdminApi) -> None:
        assert await api.get(P) == {}
        for role in ("me", "subscription", "a b"):
            await api.done("POST", f"{P}/{role.replace(' ', '%20')}", ["produce", "consume", "produce"])
        await api.done("POST", f"{P}/me", ["consume"])
        both = ["consume", "produce"]
        assert await api.get(P) == {"me": ["consume"], "subscription": both, "a b": both}
        for role in ("me", "subscription", "nobody"):
            await api.done("DELETE", f"{P}/{role}")
        assert await api.get(P) == {"a b": both}

    with_api(story)


def test_grants_of_a_topic() -> None:
    async def story(api: AdminApi) -> None:
        await api.done("POST", f"{P}/me", ["consume"])
        await api.done("POST", f"{T}/x/permissions/me", ["produce"])
        await api.done("POST", f"{T}/x-partition-3/permissions/you", ["produce"])
        assert await api.get(f"{T}/x/permissions") == {"me": ["consume", "produce"], "you": ["produce"]}
        assert await api.get(f"{T}/y/permissions") == {"me": ["consume"]}
        document = await api.get(N)
        topic = "persistent://public/default/x"
        assert document["auth_policies"]["destination_auth"] == {
            topic: {"me": ["produce"], "you": ["produce"]}
        }
        for role in ("me", "you"):
            await api.done("DELETE", f"{T}/x/permissions/{role}")
        assert (await api.get(N))["auth_policies"]["destination_auth"] == {}
        assert await api.refused("DELETE", f"{T}/x/permissions/me") == (
            412,
            "permissions are not set at the topic level",
        )

    with_api(story)


def test_topics_of_both_kinds_have_grants_of_their_own() -> None:
    async def story(api: AdminApi) -> None:
        fleeting = T.replace("persistent", "non-persistent")
        await api.done("POST", f"{fleeting}/x/permissions/me", ["produce"])
        assert await api.get(f"{fleeting}/x/permissions") == {"me": ["produce"]}
        assert await api.get(f"{T}/x/permissions") == {}

    with_api(story)


def test_roles_of_a_subscription() -> None:
    async def story(api: AdminApi) -> None:
        await api.done("POST", f"{P}/subscription/s", ["b", "a", "a"])
        await api.done("POST", f"{P}/subscription/subscription", ["c"])
        assert await api.get(f"{P}/subscription") == {"s": ["a", "b"], "subscription": ["c"]}
        await api.done("DELETE", f"{P}/s/a")
        await api.done("DELETE", f"{P}/s/stranger")
        await api.done("DELETE", f"{P}/subscription/c")
        assert await api.get(f"{P}/subscription") == {"s": ["b"], "subscription": []}
        assert (await api.refused("DELETE", f"{P}/none/a"))[0] == 404

    with_api(story)


def test_the_mode_of_subscriptions() -> None:
    async def story(api: AdminApi) -> None:
        assert await api.get(f"{N}/subscriptionAuthMode") == "None"
        await api.done("POST", f"{N}/subscriptionAuthMode", "Prefix")
        assert await api.get(f"{N}/subscriptionAuthMode") == "Prefix"

    with_api(story)


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("POST", f"{P}/me", ["fly"], 400),
        ("POST", f"{P}/me", "produce", 400),
        ("POST", f"{P}/me", [["produce"]], 400),
        ("POST", f"{T}/x/permissions/me", {"produce": 1}, 400),
        ("POST", f"{P}/subscription/s", "a", 400),
        ("POST", f"{P}/subscription/s", [7], 400),
        ("POST", f"{P}/subscription/s", [""], 400),
        ("POST", f"{N}/subscriptionAuthMode", "prefix", 400),
        ("POST", f"{N}/subscriptionAuthMode", ["Prefix"], 400),
        ("POST", f"{N}x/permissions/me", ["produce"], 404),
        ("POST", f"{N}x/permissions/subscription/s", ["a"], 404),
        ("GET", f"{N}x/subscriptionAuthMode", None, 404),
        ("GET", "/admin/v2/persistent/public/none/x/permissions", None, 404),
        ("POST", "/admin/v2/persistent/public/none/x/permissions/me", ["produce"], 404),
    ],
)
def test_what_is_refused(method: str, path: str, body: object, status: int) -> None:
    async def story(api: AdminApi) -> None:
        assert (await api.refused(method, path, body))[0] == status

    with_api(story)
