"""Stores that only their owner may change, and the owners of all stores of a process."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable, Iterator
from hashlib import sha256
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit
from uuid import UUID

from magnetar.base.errors import MagnetarError
from magnetar.metadata.documents import text_of
from magnetar.metadata.keys import OFFLOAD_OWNER, OFFLOAD_STORES
from magnetar.metadata.store import MUST_NOT_EXIST, BadVersionError, MetadataStore
from magnetar.observability.metrics import Exposition
from magnetar.tiered.owner import OwnerContext, Role, StoreOwner
from magnetar.tiered.ownership import Holding
from magnetar.tiered.stores.object_store import ObjectStore, StoredObject, Tagged

DEFAULT: Final = "default"
"""Key of the store in the data folder: it moves with the folder."""

Failed = Callable[["StoreOwner", MagnetarError], None]
"""Called with the owner of a store and the error of an operation on it."""


async def installation_id(metadata: MetadataStore, new_id: Callable[[], UUID]) -> str:
    """The id of this installation, kept in its metadata; the first call makes it. Raises MetadataError."""
    while (value := await metadata.get(OFFLOAD_OWNER)) is None:
        with contextlib.suppress(BadVersionError):  # another process created it: read again
            await metadata.put(OFFLOAD_OWNER, str(new_id()).encode(), expected_version=MUST_NOT_EXIST)
    return text_of(OFFLOAD_OWNER, value.data)


class GuardedStore:
    """A store that checks its ownership before each change."""

    def __init__(self, store: ObjectStore, owner: StoreOwner) -> None:
        self._store = store
        self._owner = owner

    @property
    def url(self) -> str:
        return self._store.url

    async def put(self, name: str, file: Path) -> None:
        await self._owner.step()
        await self._store.put(name, file)

    async def delete(self, name: str) -> None:
        await self._owner.check()
        await self._store.delete(name)

    async def get(self, name: str, start: int, length: int) -> bytes:
        return await self._store.get(name, start, length)

    async def size(self, name: str) -> int:
        return await self._store.size(name)

    async def read(self, name: str) -> Tagged | None:
        return await self._store.read(name)

    async def swap(self, name: str, data: bytes, known: str | None) -> None:
        await self._owner.check()
        await self._store.swap(name, data, known)

    def list(self, folder: str) -> AsyncIterator[StoredObject]:
        return self._store.list(folder)

    def file_of(self, name: str) -> Path | None:
        return self._store.file_of(name)

    async def close(self) -> None:
        await self._store.close()


class ObjectOwners:
    """The owners of the stores that this process has opened."""

    def __init__(self, context: OwnerContext, *, default_url: str, alone: bool) -> None:
        """`default_url`: URL of the store in the data folder. `alone`: no other process uses this
        metadata."""
        self._context = context
        self._default_url = default_url
        self._alone = alone
        self._owners: dict[str, StoreOwner] = {}

    def guard(self, store: ObjectStore) -> GuardedStore:
        """The store with a check of its ownership before each change."""
        return GuardedStore(store, self.of(store))

    def of(self, store: ObjectStore) -> StoreOwner:
        """The owner of a store."""
        key = DEFAULT if store.url == self._default_url else key_of(store.url)
        owner = self._owners.get(key)
        if owner is None:
            path = f"{OFFLOAD_STORES}/{key}"
            owner = StoreOwner(self._context, store, path, private=key == DEFAULT)
            self._owners[key] = owner
        return owner

    def __iter__(self) -> Iterator[StoreOwner]:
        return iter(self._owners.values())

    async def begin(self, open_store: Callable[[str], ObjectStore], failed: Failed) -> None:
        """Takes over every store that this installation has written to, so that it answers the questions of
        other processes about them. `failed` gets the errors."""
        metadata = self._context.metadata
        for key in await metadata.children(OFFLOAD_STORES):
            value = await metadata.get(f"{OFFLOAD_STORES}/{key}")
            if value is None or (key == DEFAULT and not self._default_url):
                # A store in the data folder of a server that this process is not.
                continue
            url = self._default_url if key == DEFAULT else Holding.decode(value.data).url
            owner = self.of(open_store(url))
            try:
                await owner.settle()
            except MagnetarError as error:
                failed(owner, error)

    async def look(self, failed: Failed) -> None:
        """Calls `StoreOwner.look` for every store; call it every `poll_s` seconds."""
        for owner in list(self._owners.values()):
            try:
                await owner.look()
            except MagnetarError as error:
                failed(owner, error)

    async def close(self, failed: Failed) -> None:
        """Releases every store when the process stops."""
        for owner in self._owners.values():
            await owner.close()
            if self._alone:
                try:
                    await owner.release()
                except MagnetarError as error:
                    failed(owner, error)

    def collect(self, out: Exposition) -> tuple[()]:
        """A collector of `/metrics`."""
        out.gauge(
            "magnetar_offload_stores_read_only",
            "Object stores of another installation, to which this broker neither writes nor deletes.",
            sum(owner.role is Role.READ_ONLY for owner in self),
        )
        return ()


def key_of(url: str) -> str:
    """Key of a store's note in metadata; the same for every URL that reaches the same store."""
    parts = urlsplit(url)
    return sha256(f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/')}".encode()).hexdigest()[:32]
