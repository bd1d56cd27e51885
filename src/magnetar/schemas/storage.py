"""Where the versions of a topic's schemas are stored: one node for each in the metadata store.

Key: /schemas/{tenant}/{namespace}/{topic}/{version}; value: `pulsar.proto.Schema`, or nothing for a version
that ends the validity of those before it.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

from google.protobuf.message import DecodeError

from magnetar.metadata.documents import DamagedDocumentError
from magnetar.metadata.store import MUST_NOT_EXIST, Change, MetadataStore, Notification
from magnetar.wire import pulsar_pb2 as pb


class StoredVersion(NamedTuple):
    """One version as it is stored."""

    version: int
    schema: pb.Schema | None
    """None: it ends the validity of those before it."""
    created_ms: int
    """Unix ms."""


class SchemaStorage(Protocol):
    """Stores versions. `base`: `keys.schema` of the topic."""

    async def read(self, base: str) -> list[StoredVersion]:
        """All versions, oldest first. Raises MetadataError, LedgerError, DamagedDocumentError."""

    async def has(self, base: str, version: int) -> bool:
        """Whether there is such a version, with a schema."""

    async def add(self, base: str, version: int, schema: pb.Schema | None) -> int:
        """Stores the version that follows on all others; durable on return. Returns when, Unix ms.

        Raises BadVersionError when another broker has stored one; MetadataError, LedgerError.
        """

    async def delete(self, base: str) -> None:
        """Deletes all versions."""

    def topic_of(self, notification: Notification) -> str | None:
        """The `base` of the topic whose versions a change is about; None: it is about none."""

    def path_of(self, base: str, version: int) -> str:
        """The path whose creation says that a version was stored."""


class SchemaNodes:
    """Every version is a node of the metadata store."""

    def __init__(self, store: MetadataStore) -> None:
        self._store = store

    async def read(self, base: str) -> list[StoredVersion]:
        found: list[StoredVersion] = []
        for child in sorted(await self._store.children(base)):
            value = await self._store.get(f"{base}/{child}")
            if value is not None:
                schema = decode_stored(f"{base}/{child}", value.data) if value.data else None
                found.append(StoredVersion(int(child), schema, value.stat.created_ms))
        return found

    async def has(self, base: str, version: int) -> bool:
        value = await self._store.get(self.path_of(base, version))
        return value is not None and bool(value.data)

    async def add(self, base: str, version: int, schema: pb.Schema | None) -> int:
        data = b"" if schema is None else schema.SerializeToString()
        stat = await self._store.put(self.path_of(base, version), data, expected_version=MUST_NOT_EXIST)
        return stat.created_ms

    async def delete(self, base: str) -> None:
        await self._store.delete_recursive(base)

    def topic_of(self, notification: Notification) -> str | None:
        base, _, version = notification.path.rpartition("/")
        if notification.change is Change.CHILDREN_CHANGED or not version.isdigit():
            # A version that was added or removed is reported by its own path.
            return None
        return base

    def path_of(self, base: str, version: int) -> str:
        return f"{base}/{version:010d}"


def decode_stored(path: str, data: bytes) -> pb.Schema:
    """A stored version. Raises DamagedDocumentError."""
    try:
        schema = pb.Schema.FromString(data)
    except DecodeError as error:
        raise DamagedDocumentError(path, "it is not a schema") from error
    if not schema.IsInitialized():
        raise DamagedDocumentError(path, "it is a schema without required fields")
    return schema
