"""What the store of policies remembers."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from magnetar.base.clock import ManualClock
from magnetar.base.names import TopicName
from magnetar.broker.errors import NamespaceNotFoundError
from magnetar.broker.policies import policies
from magnetar.broker.policies.policies import PolicyStore
from magnetar.metadata import keys
from magnetar.metadata.memory import MemoryMetadataStore
from magnetar.metadata.store import Stat


def test_names_that_are_only_asked_for_do_not_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> None:
        monkeypatch.setattr(policies, "_DOCUMENTS_KEPT", 4)
        store = PolicyStore(MemoryMetadataStore(ManualClock()), "standalone")
        for i in range(100):
            assert await store.partitions(TopicName.parse(f"asked-{i}")) == 0
        assert len(store._cache) <= 4
        store.close()

    asyncio.run(story())


def test_an_update_does_not_bring_a_deleted_tenant_back() -> None:
    """The update had looked whether the tenant was there, it was deleted, and then the update wrote it."""

    class Slow(MemoryMetadataStore):
        """Somebody deletes the tenant between the update's look and its write."""

        async def put(self, path: str, *arguments: Any, **named: Any) -> Stat:
            if path == keys.tenant("t") and await self.exists(path) and not self.deleted:
                self.deleted = True
                await self.delete(path)
            return await super().put(path, *arguments, **named)

        deleted = False

    async def story() -> None:
        store = PolicyStore(Slow(ManualClock()), "standalone")
        await store.create_tenant("t", {"adminRoles": []})
        with pytest.raises(NamespaceNotFoundError):
            await store.update_tenant("t", {"adminRoles": ["r"]})
        assert await store.tenants() == []
        store.close()

    asyncio.run(story())
