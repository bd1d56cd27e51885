"""What stores share, whatever they keep their values in: they are open until they are closed, and have
watchers."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable

from magnetar.metadata.store import Notification, StoreClosedError, Value
from magnetar.metadata.watches import Watches


class WatchedStore(ABC):
    """The common part of the implementations of `MetadataStore`."""

    def __init__(self) -> None:
        self._watches = Watches(report_watcher_error)
        self._closed = False

    @abstractmethod
    async def get(self, path: str) -> Value | None:
        """See `MetadataStore.get`."""

    async def exists(self, path: str) -> bool:
        """See `MetadataStore.exists`."""
        return await self.get(path) is not None

    def watch(self, prefix: str, callback: Callable[[Notification], None]) -> Callable[[], None]:
        """See `MetadataStore.watch`."""
        self._check_open()
        return self._watches.add(prefix, callback)

    def _check_open(self) -> None:
        """Raises StoreClosedError."""
        if self._closed:
            raise StoreClosedError("the metadata store is closed")


def report_watcher_error(error: Exception, notification: Notification) -> None:
    """Hands what a watcher raised to the event loop's handler, which logs it with its traceback."""
    asyncio.get_running_loop().call_exception_handler(
        {"message": f"a metadata watcher failed on {notification}", "exception": error}
    )
