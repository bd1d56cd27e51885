"""Whether a role may, and why, over HTTP."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable

import pytest

from magnetar.auth.authentication import Authentication
from magnetar.auth.identity import Credentials, Identity
from support.admin_api import AdminApi, T, with_api

N = "/admin/v2/namespaces/public/default"
A = f"{T}/t/authorization"


class ByName:
    """Believes what it is told."""

    slow = False

    def identify(self, credentials: Credentials, now_ms: int) -> Identity:
        return Identity(credentials.data.decode())


def guarded(story: Callable[[AdminApi], Awaitable[None]]) -> None:
    """With superuser "root", tenant administrator "boss", and grants for "writer" and "reader"."""

    async def prepared(api: AdminApi) -> None:
        root = {"Authorization": "Bearer root"}
        tenant = {"adminRoles": ["boss"], "allowedClusters": ["standalone"]}
        assert (await api.call("POST", "/admin/v2/tenants/public", tenant, headers=root)).status == 204
        for role, actions in (("writer", ["produce"]), ("reader", ["consume"])):
            answer = await api.call("POST", f"{N}/permissions/{role}", actions, headers=root)
            assert answer.status == 204
        await story(api)

    with_api(
        prepared, authentication=Authentication({"token": ByName()}, ""), superuser_roles=frozenset(("root",))
    )


async def asked(api: AdminApi, path: str, role: str) -> tuple[int, object]:
    answer = await api.call("GET", path, headers={"Authorization": f"Bearer {role}"})
    return answer.status, answer.json


@pytest.mark.parametrize("who", ["root", "boss", "writer"])
def test_each_may_ask_about_itself(who: str) -> None:
    async def story(api: AdminApi) -> None:
        status, answer = await asked(api, f"{A}?action=produce", who)
        assert isinstance(answer, dict)
        assert (status, answer["allowed"], answer["role"]) == (200, True, who)

    guarded(story)


def test_a_denial_names_what_is_missing() -> None:
    async def story(api: AdminApi) -> None:
        status, answer = await asked(api, f"{A}?action=consume&role=writer", "boss")
        assert isinstance(answer, dict)
        assert (status, answer["allowed"]) == (200, False)
        assert "grants it produce, not consume" in str(answer["rules"])
        assert answer["remedy"] == (
            "magnetar namespaces grant public/default writer --action consume --action produce"
        )

    guarded(story)


def test_about_others_only_administrators_ask() -> None:
    async def story(api: AdminApi) -> None:
        assert (await asked(api, f"{A}?action=consume&role=reader", "writer"))[0] == 403
        assert (await asked(api, f"{A}?action=consume&role=reader", "stranger"))[0] == 403

    guarded(story)


@pytest.mark.parametrize("query", ["action=administer", "action=consume&subscription=s"])
def test_who_is_no_administrator_hears_no_names_of_others(query: str) -> None:
    async def story(api: AdminApi) -> None:
        root = {"Authorization": "Bearer root"}
        path = f"{N}/permissions/subscription/s"
        assert (await api.call("POST", path, ["owner"], headers=root)).status == 204
        for role in ("stranger", "reader", "writer"):
            status, answer = await asked(api, f"{A}?{query}", role)
            assert status == 200
            assert "boss" not in str(answer)
            assert "owner" not in str(answer)
        status, answer = await asked(api, f"{A}?{query}&role=reader", "boss")
        assert "boss" in str(answer) or "owner" in str(answer)

    guarded(story)


def test_a_refused_question_is_told_with_the_address_of_who_asked(caplog: pytest.LogCaptureFixture) -> None:
    async def story(api: AdminApi) -> None:
        headers = {"Authorization": "Bearer writer", "Host": "localhost:1234"}
        await api.call("GET", f"{A}?action=consume&role=reader", headers=headers)
        assert (
            "refused: role 'writer' of 127.0.0.1:1 may not administer the tenant: public" in caplog.messages
        )

    with caplog.at_level(logging.INFO, "magnetar.audit"):
        guarded(story)


def test_questions_that_are_none() -> None:
    async def story(api: AdminApi) -> None:
        assert (await asked(api, f"{A}?action=delete", "root"))[0] == 400
        assert (await asked(api, A, "root"))[0] == 400

    guarded(story)


def test_without_authentication_everybody_may() -> None:
    async def story(api: AdminApi) -> None:
        answer = await api.get(f"{A}?action=produce&role=anybody")
        assert answer["allowed"]
        assert "no authentication" in answer["reason"]

    with_api(story)
