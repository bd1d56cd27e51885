"""The log's value in the metadata store: changed by version, one change at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import replace
from uuid import UUID

from magnetar.base.ids import LedgerId
from magnetar.managedlog.errors import LogFencedError
from magnetar.managedlog.log_metadata import LogMetadata, decode, encode, log_path
from magnetar.metadata.store import MUST_NOT_EXIST, BadVersionError, MetadataStore
from magnetar.runtime.uninterrupted import uninterrupted
from magnetar.tiered.context import OffloadedCopy


class StoredLog:
    """Value and version of one log. A version of another writer means that another owner has the log."""

    __slots__ = ("_copies_gone", "_gone", "_lock", "_store", "_version", "created_ms", "metadata", "name")

    metadata: LogMetadata
    """The stored value."""

    def __init__(
        self, store: MetadataStore, name: str, metadata: LogMetadata, version: int, created_ms: int = 0
    ) -> None:
        self.name = name
        self.metadata = metadata
        self._store = store
        self.created_ms = created_ms
        """When the value was first stored, Unix ms; 0 before, and when the store keeps no times."""
        self._version = version
        self._lock = asyncio.Lock()
        self._gone: set[LedgerId] = set()
        self._copies_gone: set[UUID] = set()

    @classmethod
    async def load(cls, store: MetadataStore, name: str) -> StoredLog:
        """Reads the value; an empty one when there is none. Raises MetadataError, InvalidLogDataError."""
        path = log_path(name)
        value = await store.get(path)
        if value is None:
            return cls(store, name, LogMetadata(), MUST_NOT_EXIST)
        return cls(store, name, decode(value.data, path), value.stat.version, value.stat.created_ms)

    @property
    def is_new(self) -> bool:
        """Whether nothing was stored yet: then there are no cursors either."""
        return self._version == MUST_NOT_EXIST

    @property
    def version(self) -> int:
        """Version of the value as this process wrote or read it last."""
        return self._version

    @uninterrupted
    async def update(self, change: Callable[[LogMetadata], LogMetadata]) -> None:
        """Stores the result of `change` as the value. Raises LogFencedError, MetadataError.

        After a failure it is unknown whether the change was stored; the next update finds out by the version.
        A cancelled call still waits for its end: an unrecorded version would look like another owner's.
        """
        async with self._lock:
            metadata = change(self.metadata)
            # As of now: what is deleted while this is stored is for the next update.
            gone, copies_gone = frozenset(self._gone), frozenset(self._copies_gone)
            if gone:
                left = tuple(item for item in metadata.deleted_ledgers if item not in gone)
                metadata = replace(metadata, deleted_ledgers=left)
            if copies_gone:
                copies = [copy for copy in metadata.deleted_copies if copy.context.attempt not in copies_gone]
                metadata = replace(metadata, deleted_copies=tuple(copies))
            try:
                stat = await self._store.put(
                    log_path(self.name), encode(metadata), expected_version=self._version
                )
            except BadVersionError as error:
                raise LogFencedError(f"log {self.name} was taken over by another owner") from error
            self._version, self.created_ms = stat.version, stat.created_ms
            self.metadata = metadata
            self._gone -= gone
            self._copies_gone -= copies_gone

    async def settled(self) -> None:
        """Returns when no update is under way: to be called before the log is opened anew."""
        async with self._lock:
            return

    def deleted(self, ledger_ids: Iterable[LedgerId]) -> None:
        """Removes these ledgers from those to be deleted, with the next update."""
        self._gone.update(ledger_ids)

    @property
    def copies_to_delete(self) -> list[OffloadedCopy]:
        """Copies of deleted ledgers whose objects may be left."""
        gone = self._copies_gone
        return [copy for copy in self.metadata.deleted_copies if copy.context.attempt not in gone]

    def copy_deleted(self, attempt: UUID) -> None:
        """The objects of this attempt are deleted; removed from the list with the next update."""
        self._copies_gone.add(attempt)
