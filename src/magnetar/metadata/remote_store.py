"""What the stores share whose values are in another process: a session there, and work in the background."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable

from magnetar.metadata.store import SessionEvent
from magnetar.metadata.watched_store import WatchedStore
from magnetar.metadata.watches import SessionWatches
from magnetar.runtime.tasks import TaskGroup


class RemoteStore(WatchedStore):
    """The common part of the implementations of `MetadataStore` that reach their values over a connection."""

    def __init__(self, work: str) -> None:
        """`work`: what the background work is called in the log."""
        super().__init__()
        self._sessions = SessionWatches()
        self._tasks = TaskGroup(work)

    def watch_session(self, callback: Callable[[SessionEvent], None]) -> Callable[[], None]:
        """See `MetadataStore.watch_session`."""
        self._check_open()
        return self._sessions.add(callback)

    async def close(self) -> None:
        """See `MetadataStore.close`."""
        if self._closed:
            return
        self._closed = True
        self._watches.clear()
        self._sessions.clear()
        await self._tasks.close()
        await self._leave()

    @abstractmethod
    async def _leave(self) -> None:
        """Ends the session and the connection; nothing runs in the background any more."""
