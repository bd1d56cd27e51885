"""An adopted cluster is seen where Pulsar has it, and any other one below its own node."""

from __future__ import annotations

import asyncio

import pytest

from magnetar.base.clock import ManualClock
from magnetar.metadata.adoption import RECORD, Adoption, home_of, store_of_cluster
from magnetar.metadata.documents import DamagedDocumentError
from magnetar.metadata.memory import MemoryMetadataStore
from magnetar.metadata.store import MUST_NOT_EXIST, BadVersionError, Put


@pytest.mark.parametrize("root", ["/ledgers", "/mine/ledgers"])
def test_pulsars_paths_are_its_own(root: str) -> None:
    async def story() -> None:
        service = MemoryMetadataStore(ManualClock())
        home = home_of(root)
        await service.put(f"{home}/admin/clusters/c", b"{}")
        store, adopted = await store_of_cluster(service, "c")
        assert not adopted
        assert await store.get("/admin/clusters/c") is None
        await service.put(f"/magnetar/c{RECORD}", Adoption(home, 7).encode())

        store, adopted = await store_of_cluster(service, "c")
        assert adopted
        heard: list[str] = []
        store.watch("/admin", lambda change: heard.append(change.path))
        assert await store.children("/admin/clusters") == ["c"]
        await store.transact([Put("/admin/policies/t", b"{}"), Put("/magnetar/drains/b", b"")])
        assert await service.exists(f"{home}/admin/policies/t")
        assert await service.exists("/magnetar/c/magnetar/drains/b")
        assert "/admin/policies/t" in heard
        with pytest.raises(BadVersionError) as told:
            await store.put("/admin/policies/t", b"", expected_version=MUST_NOT_EXIST)
        assert told.value.path == "/admin/policies/t"
        stat = await store.put("/counters/producer-name/start-", b"", sequential=True)
        assert stat.path.startswith("/counters/producer-name/start-")
        await store.delete_recursive("/admin")
        assert not await service.exists(f"{home}/admin/clusters/c")

    asyncio.run(story())


def test_a_damaged_record_is_not_passed_over() -> None:
    async def story() -> None:
        service = MemoryMetadataStore(ManualClock())
        for data in (b"", b"{}", b'{"home": 3, "atMs": 1}'):
            await service.put(f"/magnetar/c{RECORD}", data)
            with pytest.raises(DamagedDocumentError):
                await store_of_cluster(service, "c")

    asyncio.run(story())
