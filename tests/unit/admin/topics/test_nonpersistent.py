"""The admin API of topics that store nothing."""

from __future__ import annotations

from support.admin_api import AdminApi, with_api

N = "/admin/v2/non-persistent/public/default"


def test_topics_come_and_go() -> None:
    async def story(api: AdminApi) -> None:
        await api.done("PUT", f"{N}/t")
        assert (await api.refused("PUT", f"{N}/t"))[0] == 409
        assert await api.get(N) == ["non-persistent://public/default/t"]
        assert await api.get("/admin/v2/persistent/public/default") == []
        namespace = "/admin/v2/namespaces/public/default/topics"
        assert await api.get(f"{namespace}?mode=ALL") == ["non-persistent://public/default/t"]
        assert await api.get(namespace) == []
        await api.done("PUT", f"{N}/t/unload")
        assert await api.get(N) == []
        assert (await api.refused("DELETE", f"{N}/t"))[0] == 404

    with_api(story)


def test_partitioned_topics_grow_and_go() -> None:
    async def story(api: AdminApi) -> None:
        await api.done("PUT", f"{N}/p/partitions", 2)
        await api.done("POST", f"{N}/p/partitions", 3)
        assert (await api.get(f"{N}/p/partitions"))["partitions"] == 3
        assert await api.get(f"{N}/partitioned") == ["non-persistent://public/default/p"]
        assert await api.get("/admin/v2/persistent/public/default/partitioned") == []
        assert len(await api.get(N)) == 3
        stats = await api.get(f"{N}/p/partitioned-stats")
        assert (stats["metadata"]["partitions"], len(stats["partitions"])) == (3, 3)
        await api.done("DELETE", f"{N}/p/partitions")
        assert await api.get(f"{N}/partitioned") == []
        assert await api.get(N) == []

    with_api(story)


def test_subscriptions_and_their_statistics() -> None:
    async def story(api: AdminApi) -> None:
        await api.done("PUT", f"{N}/t")
        await api.done("PUT", f"{N}/t/subscription/s")
        assert (await api.refused("PUT", f"{N}/t/subscription/s"))[0] == 409
        assert await api.get(f"{N}/t/subscriptions") == ["s"]
        stats = await api.get(f"{N}/t/stats")
        assert stats["subscriptions"]["s"]["msgDropRate"] == stats["msgDropRate"] == 0
        assert list((await api.get(f"{N}/t/internalStats"))["cursors"]) == ["s"]
        await api.done("DELETE", f"{N}/t/subscription/s")
        assert (await api.refused("DELETE", f"{N}/t/subscription/s"))[0] == 404

    with_api(story)


def test_what_needs_a_log_is_not_there() -> None:
    async def story(api: AdminApi) -> None:
        await api.done("PUT", f"{N}/t")
        assert (await api.refused("POST", f"{N}/t/terminate"))[0] == 404

    with_api(story)
