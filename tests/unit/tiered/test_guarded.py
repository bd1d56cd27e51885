"""Stores that only their owner may change."""

from __future__ import annotations

import asyncio
from uuid import uuid4

import pytest

from fakes.metadata import FakeMetadataStore
from magnetar.base.clock import ManualClock
from magnetar.tiered.errors import ReadOnlyStoreError
from magnetar.tiered.guarded import ObjectOwners, installation_id
from magnetar.tiered.owner import OwnerContext
from magnetar.tiered.ownership import RECORD, OwnerRecord
from magnetar.tiered.stores.memory import MemoryStore


def owners(*, alone: bool) -> ObjectOwners:
    metadata = FakeMetadataStore()

    async def pause(_: float) -> None:
        return

    context = OwnerContext(
        metadata, ManualClock(), lambda: installation_id(metadata, uuid4), uuid4, pause, 5.0
    )
    return ObjectOwners(context, default_url="", alone=alone)


def test_another_installation_deletes_nothing() -> None:
    async def story() -> None:
        store = MemoryStore(ManualClock())
        await owners(alone=True).of(store).step()
        store.objects["a"] = b"1"
        with pytest.raises(ReadOnlyStoreError):
            await owners(alone=True).guard(store).delete("a")
        assert "a" in store.objects

    asyncio.run(story())


@pytest.mark.parametrize("alone", [True, False])
def test_only_the_last_process_lets_a_store_go(alone: bool) -> None:
    """A broker of a cluster that stops leaves it to the others: they would answer a question."""

    async def story() -> None:
        store, held = MemoryStore(ManualClock()), owners(alone=alone)
        await held.of(store).step()
        await held.close(lambda *_: None)
        assert OwnerRecord.decode(store.objects[RECORD]).released is alone

    asyncio.run(story())
