"""Repeats calls that a store refused temporarily, with growing pauses."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Final, TypeVar

from magnetar.tiered.errors import StoreError
from magnetar.tiered.stores.object_store import ObjectStore, StoredObject, Tagged

PAUSES_S: Final = (0.2, 1.0, 4.0)
"""Seconds before each further attempt. After the last one the call fails; its caller tries again minutes
later."""

_T = TypeVar("_T")


class RetryingStore:
    """A store that repeats calls whose error is `retriable`."""

    def __init__(
        self,
        store: ObjectStore,
        pause: Callable[[float], Awaitable[object]],
        *,
        pauses_s: tuple[float, ...] = PAUSES_S,
    ) -> None:
        """`pause` waits for a number of seconds."""
        self.retries = 0
        """Number of repeated calls."""
        self._store = store
        self._pause = pause
        self._pauses_s = pauses_s

    @property
    def url(self) -> str:
        return self._store.url

    async def _try(self, call: Callable[[], Awaitable[_T]]) -> _T:
        for pause_s in self._pauses_s:
            try:
                return await call()
            except StoreError as error:
                if not error.retriable:
                    raise
            self.retries += 1
            await self._pause(pause_s)
        return await call()

    async def put(self, name: str, file: Path) -> None:
        await self._try(lambda: self._store.put(name, file))

    async def get(self, name: str, start: int, length: int) -> bytes:
        return await self._try(lambda: self._store.get(name, start, length))

    async def size(self, name: str) -> int:
        return await self._try(lambda: self._store.size(name))

    async def read(self, name: str) -> Tagged | None:
        return await self._try(lambda: self._store.read(name))

    async def swap(self, name: str, data: bytes, known: str | None) -> None:
        """See `ObjectStore.swap`. It is not repeated: after a lost answer the caller must read first."""
        await self._store.swap(name, data, known)

    def list(self, folder: str) -> AsyncIterator[StoredObject]:
        """See `ObjectStore.list`. It is not repeated: the caller may have a part of the list already."""
        return self._store.list(folder)

    async def delete(self, name: str) -> None:
        await self._try(lambda: self._store.delete(name))

    def file_of(self, name: str) -> Path | None:
        return self._store.file_of(name)

    async def close(self) -> None:
        await self._store.close()
