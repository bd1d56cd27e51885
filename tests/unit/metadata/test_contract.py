"""The contract of a metadata store, on the stores within the process."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from magnetar.base.clock import ManualClock
from magnetar.metadata.embedded import EmbeddedMetadataStore
from magnetar.metadata.memory import MemoryMetadataStore
from magnetar.metadata.scoped import ScopedMetadataStore
from magnetar.metadata.store import MetadataStore
from support.metadata_contract import CONTRACT, Script, Traits


@pytest.mark.parametrize("script", CONTRACT, ids=lambda script: script.__name__)
@pytest.mark.parametrize("kind", ["memory", "embedded", "scoped"])
def test_it_holds(kind: str, script: Script, tmp_path: Path) -> None:
    clock = ManualClock(1000)

    async def body() -> None:
        store: MetadataStore = (
            MemoryMetadataStore(clock)
            if kind == "memory"
            else ScopedMetadataStore(MemoryMetadataStore(clock), "/some/where")
            if kind == "scoped"
            else EmbeddedMetadataStore.open(tmp_path / "metadata.db", clock=clock, durable=False)
        )
        try:
            await script(store, Traits(clock))
        finally:
            await store.close()

    asyncio.run(body())
