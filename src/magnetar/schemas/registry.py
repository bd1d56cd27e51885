"""Schemas of topics: versioned, stored inline in the metadata store.

A version is a counter from 0, on the wire eight bytes, big-endian. A schema that means the same as a
stored one gets that one's version. Stored at /schemas/{tenant}/{namespace}/{topic}/{version}, value =
`pulsar.proto.Schema`; partitions of a topic share its schemas.

Removing the schemas of a topic that stays keeps their bodies, since messages name their version: a version
with an empty value says that those before it are no longer in force, and counting goes on after it.

Source: Pulsar binary protocol (`Schema`, GET_SCHEMA); Pulsar keeps the bodies in a ledger, where a
lost ledger makes the topic unusable, so here they lie beside the other metadata.
"""

from __future__ import annotations

import asyncio
import struct
from dataclasses import dataclass, field
from typing import Final
from weakref import WeakValueDictionary

from google.protobuf.message import DecodeError

from magnetar.base.names import TopicName
from magnetar.base.recent import Recent
from magnetar.metadata import keys
from magnetar.metadata.documents import DamagedDocumentError
from magnetar.metadata.store import MUST_NOT_EXIST, MetadataStore
from magnetar.schemas.compatibility import Strategy, check, identity
from magnetar.schemas.errors import IncompatibleSchemaError
from magnetar.wire import pulsar_pb2 as pb

_VERSION = struct.Struct(">q")

_HISTORIES_KEPT: Final = 100_000
"""Also that there is none is kept, of every topic that clients ask for: they must not fill the memory."""


@dataclass(frozen=True, slots=True)
class StoredSchema:
    """A schema and its version."""

    version: int
    schema: pb.Schema
    created_ms: int

    @property
    def version_bytes(self) -> bytes:
        return encode_version(self.version)


def encode_version(version: int) -> bytes:
    """A version as it travels: eight bytes, big-endian."""
    return _VERSION.pack(version)


def decode_version(data: bytes) -> int:
    """Raises ValueError unless `data` is eight bytes long."""
    if len(data) != _VERSION.size:
        raise ValueError(f"a schema version has 8 bytes, not {len(data)}")
    return int(_VERSION.unpack(data)[0])


@dataclass(slots=True)
class _History:
    """What was ever stored for a topic."""

    schemas: list[StoredSchema]
    next_version: int
    in_force: list[StoredSchema] = field(default_factory=list)

    def append(self, version: int, schema: pb.Schema | None, created_ms: int) -> StoredSchema:
        """Takes a version in; None ends what is in force."""
        self.next_version = version + 1
        stored = StoredSchema(version, schema or pb.Schema(), created_ms)
        if schema is None:
            self.in_force = []
        else:
            self.schemas.append(stored)
            # A new list: callers may hold the old one over an await.
            self.in_force = [*self.in_force, stored]
        return stored


def _decoded(path: str, data: bytes) -> pb.Schema:
    """A stored version. Raises DamagedDocumentError."""
    try:
        schema = pb.Schema.FromString(data)
    except DecodeError as error:
        raise DamagedDocumentError(path, "it is no schema") from error
    if not schema.IsInitialized():
        raise DamagedDocumentError(path, "it is a schema without required fields")
    return schema


class SchemaRegistry:
    """All schemas, loaded per topic on first use."""

    def __init__(self, store: MetadataStore) -> None:
        self._store = store
        self._loaded: Recent[str, _History] = Recent(_HISTORIES_KEPT)
        # Only as long as a caller holds or waits for them.
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    def _lock(self, topic: TopicName) -> asyncio.Lock:
        return self._locks.setdefault(str(topic.base), asyncio.Lock())

    async def _history(self, topic: TopicName) -> _History:
        name = str(topic.base)
        loaded = self._loaded.get(name)
        if loaded is not None:
            return loaded
        base = keys.schema(topic.base)
        history = _History([], 0)
        for child in sorted(await self._store.children(base)):
            value = await self._store.get(f"{base}/{child}")
            if value is not None:
                schema = _decoded(f"{base}/{child}", value.data) if value.data else None
                history.append(int(child), schema, value.stat.created_ms)
        # Another caller may have been faster, and added to what it found.
        faster = self._loaded.get(name)
        if faster is not None:
            return faster
        self._loaded.put(name, history)
        return history

    async def versions(self, topic: TopicName) -> list[StoredSchema]:
        """Every version in force, oldest first."""
        return (await self._history(topic)).in_force

    async def ever(self, topic: TopicName) -> list[StoredSchema]:
        """Every version that ever was in force, oldest first."""
        return list((await self._history(topic)).schemas)

    async def latest(self, topic: TopicName) -> StoredSchema | None:
        """The newest version; None when the topic has no schema."""
        versions = await self.versions(topic)
        return versions[-1] if versions else None

    async def get(self, topic: TopicName, version: int) -> StoredSchema | None:
        """A version, also one that is no longer in force: messages may have been written with it."""
        for stored in (await self._history(topic)).schemas:
            if stored.version == version:
                return stored
        return None

    async def find(self, topic: TopicName, schema: pb.Schema) -> StoredSchema | None:
        """The version in force that means the same as `schema`."""
        wanted = identity(schema)
        for stored in await self.versions(topic):
            if identity(stored.schema) == wanted:
                return stored
        return None

    async def add(
        self,
        topic: TopicName,
        schema: pb.Schema,
        *,
        strategy: Strategy = Strategy.UNDEFINED,
        auto_update_allowed: bool = True,
    ) -> StoredSchema:
        """The stored schema that means the same as `schema`, added as a new version when there is none.

        Raises IncompatibleSchemaError when the strategy does not allow it, or a new one is not allowed
        at all; InvalidSchemaError when it is no schema of its type. Durable on return.
        """
        async with self._lock(topic):
            known = await self.find(topic, schema)
            if known is not None:
                return known
            await self.check(topic, schema, strategy)
            if not auto_update_allowed:
                raise IncompatibleSchemaError(
                    f"{topic.base} takes no new schemas from its clients; add this one through the admin API"
                )
            history = await self._history(topic)
            return await self._put(topic, history, schema)

    async def check(self, topic: TopicName, schema: pb.Schema, strategy: Strategy) -> None:
        """Returns when `add` would take the schema. Raises IncompatibleSchemaError, InvalidSchemaError."""
        check(schema, [(each.version, each.schema) for each in await self.versions(topic)], strategy)

    async def retire(self, topic: TopicName) -> int:
        """Takes every version out of force; returns the version that says so, -1 when none was in force."""
        async with self._lock(topic):
            history = await self._history(topic)
            if not history.in_force:
                return -1
            version = history.next_version
            await self._put(topic, history, None)
            return version

    async def delete(self, topic: TopicName) -> None:
        """Removes everything, when the topic and its messages go."""
        async with self._lock(topic):
            await self._store.delete_recursive(keys.schema(topic.base))
            self._loaded.forget(str(topic.base))

    async def _put(self, topic: TopicName, history: _History, schema: pb.Schema | None) -> StoredSchema:
        version = history.next_version
        stat = await self._store.put(
            f"{keys.schema(topic.base)}/{version:010d}",
            b"" if schema is None else schema.SerializeToString(),
            expected_version=MUST_NOT_EXIST,
        )
        added = history.append(version, schema, stat.created_ms)
        # It may have been forgotten meanwhile, and read anew before this version was stored.
        self._loaded.put(str(topic.base), history)
        return added
