"""An object of a store as a byte source for the worker that reads segments."""

from __future__ import annotations

from magnetar.tiered.parquet.parquet_history import Footer
from magnetar.tiered.stores.object_store import ObjectStore


class ObjectSource:
    """See `AsyncByteSource`."""

    def __init__(
        self,
        store: ObjectStore,
        name: str,
        size: int,
        *,
        by_file: bool = True,
        footer: Footer | None = None,
    ) -> None:
        """`by_file`: the worker may open the object's file directly, if the store has files. `footer`: the
        recorded footer; None when it was not recorded."""
        self._store = store
        self._name = name
        self._size = size
        self._footer = footer
        file = store.file_of(name) if by_file else None
        self._path = None if file is None else str(file)

    @property
    def name(self) -> str:
        return self._name

    @property
    def size(self) -> int:
        return self._size

    @property
    def path(self) -> str | None:
        return self._path

    @property
    def footer(self) -> Footer | None:
        return self._footer

    async def read_at(self, offset: int, length: int) -> bytes:
        return await self._store.get(self._name, offset, length)
