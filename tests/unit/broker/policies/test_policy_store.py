"""What the store of policies remembers."""

from __future__ import annotations

import asyncio

import pytest

from magnetar.base.clock import ManualClock
from magnetar.base.names import TopicName
from magnetar.broker.policies import policies
from magnetar.broker.policies.policies import PolicyStore
from magnetar.metadata.memory import MemoryMetadataStore


def test_names_that_are_only_asked_for_do_not_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> None:
        monkeypatch.setattr(policies, "_DOCUMENTS_KEPT", 4)
        store = PolicyStore(MemoryMetadataStore(ManualClock()), "standalone")
        for i in range(100):
            assert await store.partitions(TopicName.parse(f"asked-{i}")) == 0
        assert len(store._cache) <= 4
        store.close()

    asyncio.run(story())
