"""The value of a log in the metadata store."""

from __future__ import annotations

import asyncio
from typing import Any

from fakes.metadata import FakeMetadataStore
from magnetar.base.ids import LedgerId
from magnetar.managedlog.log_metadata import LogMetadata
from magnetar.managedlog.stored_log import StoredLog
from magnetar.metadata.store import Stat


class WaitingStore(FakeMetadataStore):
    """Stores when it may."""

    may = asyncio.Event()

    async def put(self, path: str, data: bytes, **more: Any) -> Stat:
        await self.may.wait()
        return await super().put(path, data, **more)


def test_what_is_deleted_while_the_value_is_stored_leaves_it_with_the_next() -> None:
    """It was forgotten with what the update under way took out: the value named it until the next load."""

    async def story() -> None:
        store = WaitingStore()
        store.may = asyncio.Event()
        stored = await StoredLog.load(store, "t")
        stored.metadata = LogMetadata(deleted_ledgers=(LedgerId(1), LedgerId(2)))
        stored.deleted([LedgerId(1)])
        update = asyncio.ensure_future(stored.update(lambda metadata: metadata))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        stored.deleted([LedgerId(2)])
        store.may.set()
        await update
        assert stored.metadata.deleted_ledgers == (2,)
        await stored.update(lambda metadata: metadata)
        assert stored.metadata.deleted_ledgers == ()

    asyncio.run(story())
