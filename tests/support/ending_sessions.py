"""A metadata store whose connections and sessions end when the test says so, or sessions as soon as something
was written in them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from magnetar.metadata.memory import MemoryMetadataStore
from magnetar.metadata.store import Notification, SessionEvent, Stat, Value


class EndingSessions(MemoryMetadataStore):
    """A store in which each of the first `ends` writes ends its session, and is lost with it."""

    ends = 0
    away = False
    """Whether watchers are not told of changes: there is no connection, or the notes are on their way."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._told: list[Callable[[SessionEvent], None]] = []
        self._here = asyncio.Event()
        self._here.set()

    def leave(self, *, tell: bool = True) -> None:
        """Loses contact until `back`: reads wait, and watchers get no changes. `tell`: whether watchers are
        told of the loss now."""
        self._here.clear()
        self.away = True
        if tell:
            self.tell(SessionEvent.CONNECTION_LOST)

    async def get(self, path: str) -> Value | None:
        await self._here.wait()
        return await super().get(path)

    async def exists(self, path: str) -> bool:
        await self._here.wait()
        return await super().exists(path)

    async def sync(self) -> None:
        await self._here.wait()

    def watch(self, prefix: str, callback: Callable[[Notification], None]) -> Callable[[], None]:
        return super().watch(prefix, lambda note: None if self.away else callback(note))

    def back(self, event: SessionEvent = SessionEvent.RECONNECTED) -> None:
        """Ends the silence: watchers are told of changes again, and all watchers of the session are
        notified."""
        self.away = False
        self._here.set()
        self.tell(event)

    def watch_session(self, callback: Callable[[SessionEvent], None]) -> Callable[[], None]:
        self._told.append(callback)
        return lambda: self._told.remove(callback)

    def tell(self, event: SessionEvent) -> None:
        """Sends the event to all watchers."""
        for callback in list(self._told):
            callback(event)

    async def put(self, path: str, data: bytes, **options: Any) -> Stat:
        stat = await super().put(path, data, **options)
        if self.ends:
            self.ends -= 1
            await self.delete(path)
            for event in (SessionEvent.SESSION_LOST, SessionEvent.SESSION_RENEWED):
                self.tell(event)
        return stat
