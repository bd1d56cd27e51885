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
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final
from weakref import WeakValueDictionary

from google.protobuf.message import DecodeError

from magnetar.base.names import TopicName
from magnetar.base.recent import Recent
from magnetar.metadata import keys
from magnetar.metadata.documents import DamagedDocumentError
from magnetar.metadata.store import (
    MUST_NOT_EXIST,
    BadVersionError,
    Change,
    MetadataStore,
    Notification,
    SessionEvent,
)
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

    def of_version(self, version: int) -> StoredSchema | None:
        """The schema with this version."""
        for stored in self.schemas:
            if stored.version == version:
                return stored
        return None


def _decoded(path: str, data: bytes) -> pb.Schema:
    """A stored version. Raises DamagedDocumentError."""
    try:
        schema = pb.Schema.FromString(data)
    except DecodeError as error:
        raise DamagedDocumentError(path, "it is no schema") from error
    if not schema.IsInitialized():
        raise DamagedDocumentError(path, "it is a schema without required fields")
    return schema


def _key(base: str, version: int) -> str:
    return f"{base}/{version:010d}"


def _same(versions: Iterable[StoredSchema], schema: pb.Schema) -> StoredSchema | None:
    wanted = identity(schema)
    for stored in versions:
        if identity(stored.schema) == wanted:
            return stored
    return None


def _check(versions: Iterable[StoredSchema], schema: pb.Schema, strategy: Strategy) -> None:
    check(schema, [(each.version, each.schema) for each in versions], strategy)


class SchemaRegistry:
    """All schemas, loaded per topic on first use; those that another broker changed are read anew."""

    def __init__(self, store: MetadataStore) -> None:
        self._store = store
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
        base, _, version = notification.path.rpartition("/")
        if notification.change is Change.CHILDREN_CHANGED or not version.isdigit():
            # A version that was added or removed is reported by its own path.
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
        """The next read of the topic's history sees what others have stored before this call."""
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
        for child in sorted(await self._store.children(base)):
            value = await self._store.get(f"{base}/{child}")
            if value is not None:
                schema = _decoded(f"{base}/{child}", value.data) if value.data else None
                history.append(int(child), schema, value.stat.created_ms)
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
        found = (await self._history(topic)).of_version(version)
        if found is not None or version < 0:
            return found
        # A client asks for it because a message names it: another broker stored it, perhaps just now.
        base = keys.schema(topic.base)
        await self._store.sync()
        value = await self._store.get(_key(base, version))
        if value is None or not value.data:
            return None
        self._loaded.forget(base)
        return (await self._history(topic)).of_version(version)

    async def find(self, topic: TopicName, schema: pb.Schema) -> StoredSchema | None:
        """The version in force that means the same as `schema`."""
        return _same(await self.versions(topic), schema)

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
        """Returns when `add` would take the schema. Raises IncompatibleSchemaError, InvalidSchemaError."""
        _check(await self.versions(topic), schema, strategy)

    async def retire(self, topic: TopicName) -> int:
        """Takes every version out of force; returns the version that says so, -1 when none was in force."""
        async with self._lock(topic):
            while True:
                history = await self._history(topic)
                if not history.in_force:
                    return -1
                retired = await self._put(topic, history, None)
                if retired is not None:
                    return retired.version

    async def delete(self, topic: TopicName) -> None:
        """Removes everything, when the topic and its messages go."""
        async with self._lock(topic):
            await self._store.delete_recursive(keys.schema(topic.base))
            self._reads.pop(keys.schema(topic.base), None)
            self._loaded.forget(keys.schema(topic.base))

    async def _put(
        self, topic: TopicName, history: _History, schema: pb.Schema | None
    ) -> StoredSchema | None:
        """Stores the version that follows on `history`; None when another broker has stored one: what it was
        decided by is to be read anew. Raises MetadataError."""
        base, version = keys.schema(topic.base), history.next_version
        path = _key(base, version)
        self._writing.add(path)
        try:
            stat = await self._store.put(
                path, b"" if schema is None else schema.SerializeToString(), expected_version=MUST_NOT_EXIST
            )
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
            return history.append(version, schema, stat.created_ms)
        # It was forgotten meanwhile. What was read since may lack this version.
        self._loaded.forget(base)
        return StoredSchema(version, schema or pb.Schema(), stat.created_ms)
