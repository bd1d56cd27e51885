"""Schemas of topics: versioned, stored inline in the metadata store.

A version is a counter from 0, on the wire eight bytes, big-endian. A schema that equals a stored one
gets that one's version. Stored at /schemas/{tenant}/{namespace}/{topic}/{version}, value =
`pulsar.proto.Schema`; partitions of a topic share its schemas.

Source: Pulsar binary protocol (`Schema`, GET_SCHEMA); Pulsar keeps the bodies in a ledger, where a
lost ledger makes the topic unusable, so here they lie beside the other metadata.
"""

from __future__ import annotations

import asyncio
import hashlib
import struct
from dataclasses import dataclass

from magnetar.base.names import TopicName
from magnetar.metadata import keys
from magnetar.metadata.store import MUST_NOT_EXIST, MetadataStore
from magnetar.wire import pulsar_pb2 as pb

_VERSION = struct.Struct(">q")

BYTES_TYPES = frozenset((pb.Schema.Type.Value("None"), pb.Schema.Type.Value("AutoConsume")))
"""Types that stand for "no schema": nothing is stored for them."""


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


class SchemaRegistry:
    """All schemas, loaded per topic on first use."""

    def __init__(self, store: MetadataStore) -> None:
        self._store = store
        self._loaded: dict[str, list[StoredSchema]] = {}
        self._locks: dict[str, asyncio.Lock] = {}

    async def versions(self, topic: TopicName) -> list[StoredSchema]:
        """Every version, oldest first."""
        name = str(topic.base)
        loaded = self._loaded.get(name)
        if loaded is not None:
            return loaded
        base = keys.schema(topic.base)
        found: list[StoredSchema] = []
        for child in await self._store.children(base):
            value = await self._store.get(f"{base}/{child}")
            if value is not None:
                found.append(
                    StoredSchema(int(child), pb.Schema.FromString(value.data), value.stat.created_ms)
                )
        return self._loaded.setdefault(name, found)

    async def latest(self, topic: TopicName) -> StoredSchema | None:
        versions = await self.versions(topic)
        return versions[-1] if versions else None

    async def get(self, topic: TopicName, version: int) -> StoredSchema | None:
        for stored in await self.versions(topic):
            if stored.version == version:
                return stored
        return None

    async def add(self, topic: TopicName, schema: pb.Schema) -> StoredSchema:
        """The stored schema that equals `schema`, added as a new version when there is none."""
        name = str(topic.base)
        lock = self._locks.setdefault(name, asyncio.Lock())
        async with lock:
            versions = await self.versions(topic)
            digest = _digest(schema)
            for stored in versions:
                if _digest(stored.schema) == digest:
                    return stored
            version = versions[-1].version + 1 if versions else 0
            stat = await self._store.put(
                f"{keys.schema(topic.base)}/{version:010d}",
                schema.SerializeToString(),
                expected_version=MUST_NOT_EXIST,
            )
            stored = StoredSchema(version, schema, stat.created_ms)
            versions.append(stored)
            return stored

    async def delete(self, topic: TopicName) -> None:
        """Removes every version."""
        await self._store.delete_recursive(keys.schema(topic.base))
        self._loaded.pop(str(topic.base), None)


def _digest(schema: pb.Schema) -> bytes:
    """Equal for schemas of the same type and definition, whatever their names."""
    return hashlib.sha256(bytes([schema.type]) + schema.schema_data).digest()
