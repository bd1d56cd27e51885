"""A deleted function leaves nothing but what others use. With real instances: `test_functions_deleted.py`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from magnetar.auth.authentication import Authentication
from magnetar.auth.identity import Identity
from magnetar.auth.token import TokenProvider, new_token, secret_key
from magnetar.base.names import NamespaceName
from magnetar.functions.catalogue.records import FunctionRecord
from support.functions import F, FunctionsApi, config, with_functions

SECRET = b"s" * 32
S = "/admin/v2/persistent/public/default/in/subscription/public%2Fdefault%2Fex"
DEFAULT = NamespaceName.parse("public/default")


@pytest.mark.parametrize("cleans", [True, False])
def test_instances_end_first_and_then_what_they_used(tmp_path: Path, cleans: bool) -> None:
    async def story(found: FunctionsApi) -> None:
        await found.create(cleanupSubscription=cleans)
        await found.api.done("PUT", S)
        await found.api.done("DELETE", F)
        assert found.workers.asked == [("public/default/ex", "end", cleans)]
        left = await found.api.get("/admin/v2/persistent/public/default/in/subscriptions")
        assert left == ([] if cleans else ["public/default/ex"])
        assert found.kept() == []

    with_functions(tmp_path, story, running=True)


def test_topics_that_are_not_there_are_passed_over(tmp_path: Path) -> None:
    async def story(found: FunctionsApi) -> None:
        await found.create(inputSpecs={"persistent://public/default/p-.*": {"isRegexPattern": True}})
        await found.api.done("DELETE", F)
        assert (await found.api.refused("GET", F))[0] == 404

    with_functions(tmp_path, story)


def test_a_subscription_that_the_owner_may_not_read_stays(tmp_path: Path) -> None:
    auth: dict[str, Any] = {
        "authentication": Authentication({"token": TokenProvider(secret_key(SECRET), leeway_s=0)}),
        "superuser_roles": frozenset(("root",)),
    }
    as_role = {
        role: {"Authorization": f"Bearer {new_token(SECRET, role, now_s=0, lasts_s=None)}"}
        for role in ("root", "ada")
    }

    async def story(found: FunctionsApi) -> None:
        api = found.api
        path = "/admin/v2/namespaces/public/default/permissions/ada"
        assert (await api.call("POST", path, ["functions"], headers=as_role["root"])).status == 204
        record = FunctionRecord(config(), None, owner=Identity("ada"))
        await found.functions.catalogue.create(DEFAULT, record)
        assert (await api.call("PUT", S, headers=as_role["root"])).status == 204
        assert (await api.call("DELETE", F, headers=as_role["ada"])).status == 204
        names = await api.call(
            "GET", "/admin/v2/persistent/public/default/in/subscriptions", headers=as_role["root"]
        )
        assert names.json == ["public/default/ex"]

    with_functions(tmp_path, story, **auth)
