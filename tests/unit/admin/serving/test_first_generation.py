"""Paths where a cluster stands behind the tenant."""

from __future__ import annotations

import pytest

from magnetar.admin.serving.first_generation import present_path
from support.admin_api import AdminApi, with_api


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("/admin/properties", "/admin/v2/tenants"),
        ("/admin/properties/t", "/admin/v2/tenants/t"),
        ("/admin/clusters", "/admin/v2/clusters"),
        ("/admin/brokers/health", "/admin/v2/brokers/health"),
        ("/admin/namespaces/t", "/admin/v2/namespaces/t"),
        ("/admin/namespaces/t/here", "/admin/v2/namespaces/t"),
        ("/admin/namespaces/t/here/n/retention", "/admin/v2/namespaces/t/n/retention"),
        ("/admin/persistent/t/here/n", "/admin/v2/persistent/t/n"),
        ("/admin/persistent/t/global/n/topic/stats", "/admin/v2/persistent/t/n/topic/stats"),
        ("/admin/v2/schemas/t/here/n/topic/schema", "/admin/v2/schemas/t/n/topic/schema"),
        ("/lookup/v2/destination/persistent/t/here/n/x", "/lookup/v2/topic/persistent/t/n/x"),
    ],
)
def test_old_paths(old: str, new: str) -> None:
    assert present_path(old, "here") == new


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/admin",
        "/admin/v2/persistent/t/here/n",
        "/admin/v2/schemas/t/n/topic/schema",
        "/admin/v2/schemas/t/n/topic/schema/1",
        "/admin/v3/functions/a/b",
        "/admin/persistent/t/elsewhere/n/topic/stats",
        "/admin/namespaces/t/elsewhere/n",
        "/lookup/v2/destination/persistent/t/elsewhere/n/x",
        "/metrics",
    ],
)
def test_other_paths_stay(path: str) -> None:
    assert present_path(path, "here") == path


def test_they_are_served() -> None:
    async def story(api: AdminApi) -> None:
        cluster = api.broker.config.cluster
        await api.done("PUT", "/admin/v2/persistent/public/default/t")
        assert "public" in await api.get("/admin/properties")
        assert await api.get(f"/admin/persistent/public/{cluster}/default") == [
            "persistent://public/default/t"
        ]
        assert "brokerUrl" in await api.get(f"/lookup/v2/destination/persistent/public/{cluster}/default/t")
        assert (await api.refused("GET", "/admin/persistent/public/elsewhere/default/t/stats"))[0] == 404

    with_api(story)
