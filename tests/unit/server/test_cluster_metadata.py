"""What operators of a cluster of several brokers write into its metadata."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from magnetar.base.clock import ManualClock
from magnetar.base.errors import StartupError
from magnetar.metadata import keys
from magnetar.metadata.memory import MemoryMetadataStore
from magnetar.metadata.opening import parse_metadata_url
from magnetar.metadata.scoped import ScopedMetadataStore
from magnetar.server.cluster_metadata import ClusterMetadata


def with_cluster(story: Callable[[ClusterMetadata, ScopedMetadataStore], Awaitable[None]]) -> None:
    """A cluster with the broker `a:8080`, whose record is not understood."""

    async def run() -> None:
        service = MemoryMetadataStore(ManualClock())
        store = ScopedMetadataStore(service, "/magnetar/standalone")
        await store.put(keys.broker("a:8080"), b"")
        url = parse_metadata_url("zk://h:1/ledgers")
        await story(ClusterMetadata(service, url, "standalone", store, adopted=False), store)
        await service.close()

    asyncio.run(run())


def test_only_a_broker_that_is_there_is_drained() -> None:
    async def story(cluster: ClusterMetadata, store: ScopedMetadataStore) -> None:
        await cluster.drain("a:8080")
        with pytest.raises(StartupError, match=r"there is no broker b:8080.*cluster status"):
            await cluster.drain("b:8080")
        assert await store.children("/magnetar/drains") == ["a:8080"]
        await cluster.drain("b:8080", force=True)
        assert await store.children("/magnetar/drains") == ["a:8080", "b:8080"]

    with_cluster(story)


def test_a_record_that_is_not_understood_is_shown() -> None:
    async def story(cluster: ClusterMetadata, _store: ScopedMetadataStore) -> None:
        wanted = {"broker": "a:8080", "state": "not understood", "bundles": 0, "leader": ""}
        assert await cluster.brokers() == [wanted]

    with_cluster(story)
