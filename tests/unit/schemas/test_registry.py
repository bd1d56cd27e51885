"""Versions: counted, found again, taken out of force, kept over a restart."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from magnetar.base.clock import ManualClock
from magnetar.base.names import TopicName
from magnetar.metadata.memory import MemoryMetadataStore
from magnetar.metadata.store import Stat
from magnetar.schemas import registry as registry_module
from magnetar.schemas.errors import IncompatibleSchemaError
from magnetar.schemas.registry import SchemaRegistry, decode_version, encode_version
from magnetar.wire import pulsar_pb2 as pb

TOPIC = TopicName.parse("persistent://public/default/t")


def avro(*fields: str) -> pb.Schema:
    made = ",".join(f'{{"name":"{name}","type":"int","default":0}}' for name in fields)
    data = f'{{"type":"record","name":"R","fields":[{made}]}}'
    return pb.Schema(name="t", type=pb.Schema.Type.Avro, schema_data=data.encode())


def run(story: Callable[[MemoryMetadataStore], Awaitable[None]]) -> None:
    asyncio.run(story(MemoryMetadataStore(ManualClock())))  # type: ignore[arg-type]  # a coroutine function


def test_equal_schemas_share_a_version_and_partitions_a_topic() -> None:
    async def story(store: MemoryMetadataStore) -> None:
        registry = SchemaRegistry(store)
        first = await registry.add(TOPIC, avro("a"))
        second = await registry.add(TOPIC.with_partition(1), avro("a", "b"))
        assert (first.version, second.version) == (0, 1)
        assert (await registry.add(TOPIC.with_partition(2), avro("a"))).version == 0
        assert second.version_bytes == encode_version(1)
        assert decode_version(second.version_bytes) == 1
        again = SchemaRegistry(store)
        assert [each.version for each in await again.versions(TOPIC)] == [0, 1]

    run(story)


def test_topics_that_are_only_asked_for_do_not_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(store: MemoryMetadataStore) -> None:
        monkeypatch.setattr(registry_module, "_HISTORIES_KEPT", 4)
        registry = SchemaRegistry(store)
        await registry.add(TOPIC, avro("a"))
        for i in range(100):
            assert await registry.latest(TopicName.parse(f"asked-{i}")) is None
        assert len(registry._loaded) <= 4
        assert (await registry.add(TOPIC, avro("a", "b"))).version == 1
        assert [each.version for each in await registry.versions(TOPIC)] == [0, 1]

    run(story)


def test_topics_leave_no_locks_and_those_that_wait_share_one() -> None:
    async def story(store: MemoryMetadataStore) -> None:
        registry, put = SchemaRegistry(store), store.put

        async def slowly(*args: Any, **how: Any) -> Stat:
            await asyncio.sleep(0)
            return await put(*args, **how)

        store.put = slowly  # type: ignore[method-assign]  # a slow metadata store
        adding = [asyncio.ensure_future(registry.add(TOPIC, avro(name))) for name in ("a", "b", "a")]
        await asyncio.sleep(0)
        assert len(registry._locks) == 1
        assert [each.version for each in await asyncio.gather(*adding)] == [0, 1, 0]
        del adding
        assert len(registry._locks) == 0

    run(story)


def test_what_is_refused_is_not_stored() -> None:
    async def story(store: MemoryMetadataStore) -> None:
        registry = SchemaRegistry(store)
        await registry.add(TOPIC, avro("a"))
        with pytest.raises(IncompatibleSchemaError, match="the type is STRING as read and AVRO as written"):
            await registry.add(TOPIC, pb.Schema(name="t", type=pb.Schema.Type.String, schema_data=b""))
        with pytest.raises(IncompatibleSchemaError, match="takes no new schemas"):
            await registry.add(TOPIC, avro("a", "b"), auto_update_allowed=False)
        assert (await registry.add(TOPIC, avro("a"), auto_update_allowed=False)).version == 0
        assert len(await SchemaRegistry(store).versions(TOPIC)) == 1

    run(story)


def test_retired_versions_can_be_read_and_are_not_counted_again() -> None:
    async def story(store: MemoryMetadataStore) -> None:
        registry = SchemaRegistry(store)
        await registry.add(TOPIC, avro("a"))
        assert await registry.retire(TOPIC) == 1
        assert await registry.retire(TOPIC) == -1
        for each in (registry, SchemaRegistry(store)):
            assert await each.latest(TOPIC) is None
            old = await each.get(TOPIC, 0)
            assert old is not None
            assert old.schema == avro("a")
            assert await each.get(TOPIC, 1) is None
        other = pb.Schema(name="t", type=pb.Schema.Type.Int64, schema_data=b"")
        assert (await registry.add(TOPIC, other)).version == 2
        assert [stored.version for stored in await registry.ever(TOPIC)] == [0, 2]
        assert [stored.version for stored in await registry.versions(TOPIC)] == [2]
        await registry.delete(TOPIC)
        assert (await registry.add(TOPIC, avro("a"))).version == 0

    run(story)
