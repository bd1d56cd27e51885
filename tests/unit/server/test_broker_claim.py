"""The place of the one broker on a cluster."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from magnetar.base.clock import ManualClock
from magnetar.metadata.memory import MemoryMetadataStore
from magnetar.metadata.store import SessionEvent, Stat
from magnetar.server.replicated_stores import claim


class Ending(MemoryMetadataStore):
    """Its first sessions end as soon as something was written in them."""

    sessions = 2

    def watch_session(self, callback: Callable[[SessionEvent], None]) -> Callable[[], None]:
        self.tell = callback
        return super().watch_session(callback)

    async def put(self, path: str, data: bytes, **options: Any) -> Stat:
        stat = await super().put(path, data, **options)
        if self.sessions:
            self.sessions -= 1
            await self.delete(path)
            for event in (SessionEvent.SESSION_LOST, SessionEvent.SESSION_RENEWED):
                self.tell(event)
        return stat


def test_a_claim_whose_session_ends_meanwhile_is_made_again() -> None:
    """It was believed to hold: another broker could have served the same topics."""

    async def story() -> None:
        store = Ending(ManualClock())
        await claim(store, "/magnetar/standalone", 1.0)
        assert await store.exists("/broker")
        assert store.sessions == 0
        await store.close()

    asyncio.run(story())
