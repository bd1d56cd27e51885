"""Lists of topics by wildcard."""

from __future__ import annotations

from support.admin_api import AdminApi, with_api

NAMESPACE = "/admin/v2/namespaces/public/default/topics"
PERSISTENT = "/admin/v2/persistent/public/default"


def test_topics_by_wildcard() -> None:
    async def story(api: AdminApi) -> None:
        for name in ("nyc.a", "nyc.a.b", "sfo.a"):
            await api.done("PUT", f"{PERSISTENT}/{name}")
        await api.done("PUT", f"{PERSISTENT}/nyc.parts/partitions", 2)
        full = "persistent://public/default/"
        assert await api.get(f"{PERSISTENT}?match=*.a") == [f"{full}nyc.a", f"{full}sfo.a"]
        assert await api.get(f"{NAMESPACE}?match=nyc.**") == [
            f"{full}nyc.a",
            f"{full}nyc.a.b",
            f"{full}nyc.parts-partition-0",
            f"{full}nyc.parts-partition-1",
        ]
        assert await api.get(f"{PERSISTENT}/partitioned?match=nyc.*") == [f"{full}nyc.parts"]
        assert await api.get(f"{PERSISTENT}?match=public/default/sfo.a") == [f"{full}sfo.a"]

    with_api(story)
