"""Schemas of topics, by version, in the metadata store.

A version is a counter from 0, on the wire eight bytes, big-endian. A schema with the same meaning as a stored
one gets the stored version. Partitions of a topic share its schemas. `storage.py` says how they are stored.

When the schemas of an existing topic are removed, their definitions are kept, because messages name their
version. A version with an empty value then ends the validity of those before it, and the count continues.

Source: Pulsar binary protocol (`Schema`, GET_SCHEMA). Pulsar keeps definitions in a ledger, and a lost ledger
makes the topic unusable; so they are part of the metadata here, but for clusters that were Pulsar's.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final
from weakref import WeakValueDictionary

from magnetar.base.clock import Clock
from magnetar.base.names import TopicName
from magnetar.base.recent import Recent
from magnetar.ledger.api import Ledgers
from magnetar.metadata import keys
from magnetar.metadata.store import (
    BadVersionError,
    Change,
    MetadataStore,
    Notification,
    SessionEvent,
)
from magnetar.schemas.compatibility import Strategy, check, identity
from magnetar.schemas.errors import IncompatibleSchemaError
from magnetar.schemas.storage import SchemaNodes, SchemaStorage
from magnetar.wire import pulsar_pb2 as pb

_VERSION = struct.Struct(">q")

_HISTORIES_KEPT: Final = 100_000
"""Most topics whose schemas are cached. The absence of schemas is cached too, for every topic that clients
name, and must not fill the memory."""


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
    """A version on the wire: eight bytes, big-endian."""
    return _VERSION.pack(version)


def decode_version(data: bytes) -> int:
    """The inverse of `encode_version`. Raises ValueError unless `data` has eight bytes."""
    if len(data) != _VERSION.size:
        raise ValueError(f"a schema version has 8 bytes, not {len(data)}")
    return int(_VERSION.unpack(data)[0])


@dataclass(slots=True)
class _History:
    """All versions that were ever stored for a topic."""

    schemas: list[StoredSchema]
    next_version: int
    in_force: list[StoredSchema] = field(default_factory=list)

    def append(self, version: int, schema: pb.Schema | None, created_ms: int) -> StoredSchema:
        """Adds a version; `schema` None ends the validity of those before it."""
        self.next_version = version + 1
        stored = StoredSchema(version, schema or pb.Schema(), created_ms)
        if schema is None:
            self.in_force = []
        else:
            self.schemas.append(stored)
            # A new list: callers may hold the old one over an await.
            self.in_force = [*self.in_force, stored]
        return stored

    def of_version(self, version: int) -> StoredSchema | None:
        """The schema with this version."""
        for stored in self.schemas:
            if stored.version == version:
                return stored
        return None


def _same(versions: Iterable[StoredSchema], schema: pb.Schema) -> StoredSchema | None:
    wanted = identity(schema)
    for stored in versions:
        if identity(stored.schema) == wanted:
            return stored
    return None


def _check(versions: Iterable[StoredSchema], schema: pb.Schema, strategy: Strategy) -> None:
    check(schema, [(each.version, each.schema) for each in versions], strategy)


def registry_of(store: MetadataStore, ledgers: Ledgers, clock: Clock, *, for_pulsar: bool) -> SchemaRegistry:
    """A registry that stores schemas in `store`, or `for_pulsar` where Pulsar reads them."""
    if not for_pulsar:
        return SchemaRegistry(store)
    from magnetar.schemas.pulsar_storage import PulsarSchemas

    return SchemaRegistry(store, PulsarSchemas(store, ledgers, clock))


class SchemaRegistry:
    """All schemas, loaded per topic on first use; those that another broker changed are read anew."""

    def __init__(self, store: MetadataStore, storage: SchemaStorage | None = None) -> None:
        """`storage`: where the versions are; None: in nodes of `store`."""
        self._store = store
        self._storage: SchemaStorage = storage or SchemaNodes(store)
        self._loaded: Recent[str, _History] = Recent(_HISTORIES_KEPT)
        """By `keys.schema`."""
        self._reads: dict[str, list[object]] = {}
        """Histories that are being read, of which nothing has changed since they were begun."""
        self._writing: set[str] = set()
        """Paths of versions that this broker is storing."""
        # Only as long as a caller holds or waits for them.
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._cancel_watch = store.watch(keys.SCHEMAS, self._changed)
        self._cancel_session = store.watch_session(self._session_changed)

    def close(self) -> None:
        """Stops watching."""
        self._cancel_watch()
        self._cancel_session()

    # -- what other brokers change -----------------------------------------------------------------

    def _changed(self, notification: Notification) -> None:
        base = self._storage.topic_of(notification)
        if base is None:
            return
        # What is being read now may lack the change, and it is not reported again.
        self._reads.pop(base, None)
        if notification.change is not Change.CREATED or notification.path not in self._writing:
            self._loaded.forget(base)

    def _session_changed(self, event: SessionEvent) -> None:
        if event in (SessionEvent.RECONNECTED, SessionEvent.SESSION_RENEWED):
            # Changes of other brokers without a connection were not reported.
            self._reads.clear()
            self._loaded = Recent(_HISTORIES_KEPT)

    async def _read_anew(self, base: str) -> None:
        """Drops the cached history of a topic, so that the next read sees what other brokers have stored."""
        self._reads.pop(base, None)
        self._loaded.forget(base)
        await self._store.sync()

    # -- reading -----------------------------------------------------------------------------------

    def _lock(self, topic: TopicName) -> asyncio.Lock:
        return self._locks.setdefault(keys.schema(topic.base), asyncio.Lock())

    async def _history(self, topic: TopicName) -> _History:
        base = keys.schema(topic.base)
        loaded = self._loaded.get(base)
        if loaded is not None:
            return loaded
        read = object()
        self._reads.setdefault(base, []).append(read)
        try:
            history = await self._read(base)
        finally:
            reads = self._reads.get(base, [])
            unchanged = read in reads
            if unchanged:
                reads.remove(read)
            if not reads:
                self._reads.pop(base, None)
        # Another caller may have been faster, and added to what it found.
        faster = self._loaded.get(base)
        if faster is not None:
            return faster
        if unchanged:
            self._loaded.put(base, history)
        return history

    async def _read(self, base: str) -> _History:
        history = _History([], 0)
        for version, schema, created_ms in await self._storage.read(base):
            history.append(version, schema, created_ms)
        return history

    async def versions(self, topic: TopicName) -> list[StoredSchema]:
        """Every version in force, oldest first."""
        return (await self._history(topic)).in_force

    async def ever(self, topic: TopicName) -> list[StoredSchema]:
        """Every version, in force or not, oldest first."""
        return list((await self._history(topic)).schemas)

    async def latest(self, topic: TopicName) -> StoredSchema | None:
        """The newest version; None when the topic has no schema."""
        versions = await self.versions(topic)
        return versions[-1] if versions else None

    async def get(self, topic: TopicName, version: int) -> StoredSchema | None:
        """A version, in force or not, because messages may have been written with it; None when unknown."""
        found = (await self._history(topic)).of_version(version)
        if found is not None or version < 0:
            return found
        # A client requests it because a message names it: another broker may have stored it just now.
        base = keys.schema(topic.base)
        await self._store.sync()
        if not await self._storage.has(base, version):
            return None
        self._loaded.forget(base)
        return (await self._history(topic)).of_version(version)

    async def find(self, topic: TopicName, schema: pb.Schema) -> StoredSchema | None:
        """The version in force with the same meaning as `schema`; None when there is none."""
        return _same(await self.versions(topic), schema)

    async def add(
        self,
        topic: TopicName,
        schema: pb.Schema,
        *,
        strategy: Strategy = Strategy.UNDEFINED,
        auto_update_allowed: bool = True,
    ) -> StoredSchema:
        """The stored schema with the same meaning as `schema`; adds it as a new version when there is none.

        Raises IncompatibleSchemaError when the strategy or `auto_update_allowed` does not allow it;
        InvalidSchemaError when its definition is invalid. Durable on return.
        """
        async with self._lock(topic):
            while True:
                # All is decided by one history: the version that follows on it is stored, or none.
                history = await self._history(topic)
                known = _same(history.in_force, schema)
                if known is not None:
                    return known
                _check(history.in_force, schema, strategy)
                if not auto_update_allowed:
                    raise IncompatibleSchemaError(
                        f"{topic.base} takes no new schemas from its clients;"
                        " add this one through the admin API"
                    )
                added = await self._put(topic, history, schema)
                if added is not None:
                    return added

    async def check(self, topic: TopicName, schema: pb.Schema, strategy: Strategy) -> None:
        """Checks that `add` would accept the schema. Raises IncompatibleSchemaError, InvalidSchemaError."""
        _check(await self.versions(topic), schema, strategy)

    async def retire(self, topic: TopicName) -> int:
        """Ends the validity of all versions; returns the version that marks this, -1 when none was in
        force."""
        async with self._lock(topic):
            while True:
                history = await self._history(topic)
                if not history.in_force:
                    return -1
                retired = await self._put(topic, history, None)
                if retired is not None:
                    return retired.version

    async def delete(self, topic: TopicName) -> None:
        """Deletes all versions, together with the topic and its messages."""
        async with self._lock(topic):
            await self._storage.delete(keys.schema(topic.base))
            self._reads.pop(keys.schema(topic.base), None)
            self._loaded.forget(keys.schema(topic.base))

    async def _put(
        self, topic: TopicName, history: _History, schema: pb.Schema | None
    ) -> StoredSchema | None:
        """Stores the next version after `history`; None when another broker has stored one, so that the
        caller must read the history again. Raises MetadataError."""
        base, version = keys.schema(topic.base), history.next_version
        path = self._storage.path_of(base, version)
        self._writing.add(path)
        try:
            created_ms = await self._storage.add(base, version, schema)
        except BadVersionError:
            await self._read_anew(base)
            if (await self._history(topic)).next_version <= version:
                # Nothing that can be read is there: to try again would not end.
                raise
            return None
        except BaseException:
            # It may have been stored.
            self._reads.pop(base, None)
            self._loaded.forget(base)
            raise
        finally:
            self._writing.discard(path)
        if self._loaded.get(base) is history:
            return history.append(version, schema, created_ms)
        # It was forgotten meanwhile. What was read since may lack this version.
        self._loaded.forget(base)
        return StoredSchema(version, schema or pb.Schema(), created_ms)
