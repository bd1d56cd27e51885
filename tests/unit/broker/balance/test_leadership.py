"""Which broker leads."""

from __future__ import annotations

import asyncio

from magnetar.base.clock import ManualClock
from magnetar.broker.balance.leadership import Leadership
from magnetar.metadata import keys
from magnetar.metadata.memory import MemoryMetadataStore
from magnetar.runtime.tasks import TaskGroup
from support.many_brokers import urls_of

OF_ANOTHER = b'{"brokerId":"b:8080","serviceUrl":"http://b:8080"}'


def leadership(store: MemoryMetadataStore, *, takes_part: bool = True) -> Leadership:
    return Leadership(store, urls_of("a:8080"), takes_part=lambda: takes_part, spawn=TaskGroup("test").spawn)


def test_the_first_one_leads() -> None:
    async def story() -> None:
        store = MemoryMetadataStore(ManualClock())
        assert not await leadership(store, takes_part=False).confirm()
        assert await leadership(store).confirm()
        value = await store.get(keys.LEADER)
        assert value is not None
        assert value.stat.ephemeral

    asyncio.run(story())


def test_the_leader_of_a_session_is_left_alone() -> None:
    async def story() -> None:
        store = MemoryMetadataStore(ManualClock())
        await store.put(keys.LEADER, OF_ANOTHER, ephemeral=True)
        found = leadership(store)
        assert not await found.confirm()
        assert found.leader == "b:8080"

    asyncio.run(story())


def test_a_leader_from_a_copy_of_the_metadata_hinders_no_election() -> None:
    """Its session ended long ago, and takes nothing along: nothing would ever be moved again."""

    async def story() -> None:
        store = MemoryMetadataStore(ManualClock())
        await store.put(keys.LEADER, OF_ANOTHER)
        assert await leadership(store).confirm()

    asyncio.run(story())
