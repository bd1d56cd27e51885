"""Versions: counted, found again, taken out of force, kept over a restart."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from magnetar.base.clock import ManualClock
from magnetar.base.names import TopicName
from magnetar.metadata import keys
from magnetar.metadata.memory import MemoryMetadataStore
from magnetar.metadata.store import BadVersionError, SessionEvent, Stat, Value
from magnetar.schemas import registry as registry_module
from magnetar.schemas.errors import IncompatibleSchemaError
from magnetar.schemas.registry import SchemaRegistry, decode_version, encode_version
from magnetar.wire import pulsar_pb2 as pb
from support.ending_sessions import EndingSessions

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


# -- several brokers -----------------------------------------------------------------------------------


def versions_of(found: list[Any]) -> list[int]:
    return [each.version for each in found]


def test_what_another_broker_stores_retires_and_deletes_is_seen() -> None:
    async def story(store: MemoryMetadataStore) -> None:
        here, there = SchemaRegistry(store), SchemaRegistry(store)
        assert await here.latest(TOPIC) is None
        await there.add(TOPIC, avro("a"))
        assert versions_of(await here.versions(TOPIC)) == [0]
        assert (await here.add(TOPIC, avro("a", "b"))).version == 1
        assert versions_of(await there.versions(TOPIC)) == [0, 1]
        await there.retire(TOPIC)
        assert await here.latest(TOPIC) is None
        await here.delete(TOPIC)
        assert await there.ever(TOPIC) == []
        assert (await there.add(TOPIC, avro("c"))).version == 0
        assert [each.schema for each in await here.ever(TOPIC)] == [avro("c")]

    run(story)


def test_who_was_overtaken_by_another_broker_decides_anew() -> None:
    async def story() -> None:
        store = EndingSessions(ManualClock())
        here, there = SchemaRegistry(store), SchemaRegistry(store)
        await here.add(TOPIC, avro("a"))
        await there.versions(TOPIC)
        store.away = True
        await there.add(TOPIC, avro("a", "b"))
        assert (await here.add(TOPIC, avro("a", "b"))).version == 1, "the same schema"
        await there.add(TOPIC, avro("a", "b", "c"))
        assert (await here.add(TOPIC, avro("a", "d"))).version == 3
        await there.add(TOPIC, avro("a", "e"))
        assert await here.retire(TOPIC) == 5
        string = pb.Schema(name="t", type=pb.Schema.Type.String, schema_data=b"")
        assert (await SchemaRegistry(store).add(TOPIC, string)).version == 6
        with pytest.raises(IncompatibleSchemaError):
            await here.add(TOPIC, avro("a", "f"))
        assert versions_of(await SchemaRegistry(store).ever(TOPIC)) == [0, 1, 2, 3, 4, 6]

    asyncio.run(story())


def test_a_version_that_is_there_and_cannot_be_read_is_not_tried_for_ever() -> None:
    async def story() -> None:
        class Hiding(EndingSessions):
            async def children(self, path: str) -> list[str]:
                return []

        store = Hiding(ManualClock())
        await SchemaRegistry(store).add(TOPIC, avro("a"))
        with pytest.raises(BadVersionError):
            await SchemaRegistry(store).add(TOPIC, avro("b"))

    asyncio.run(story())


def test_a_version_that_a_message_names_is_looked_for_in_the_store() -> None:
    async def story() -> None:
        store = EndingSessions(ManualClock())
        here, there = SchemaRegistry(store), SchemaRegistry(store)
        assert await here.get(TOPIC, 0) is None
        store.away = True
        await there.add(TOPIC, avro("a"))
        found = await here.get(TOPIC, 0)
        assert found is not None
        assert found.schema == avro("a")
        await there.retire(TOPIC)
        assert await here.get(TOPIC, 1) is None, "no schema, but the end of those before"
        assert await here.get(TOPIC, -1) is None

    asyncio.run(story())


@pytest.mark.parametrize("event", [SessionEvent.RECONNECTED, SessionEvent.SESSION_RENEWED])
def test_what_changed_without_a_connection_is_read_after_it(event: SessionEvent) -> None:
    async def story() -> None:
        store = EndingSessions(ManualClock())
        here, there = SchemaRegistry(store), SchemaRegistry(store)
        await here.add(TOPIC, avro("a"))
        store.away = True
        await there.add(TOPIC, avro("a", "b"))
        assert versions_of(await here.versions(TOPIC)) == [0]
        store.tell(event)
        assert versions_of(await here.versions(TOPIC)) == [0, 1]

    asyncio.run(story())


@pytest.mark.parametrize("told", ["by a note", "by the session"])
def test_what_was_read_across_a_change_is_not_kept(told: str) -> None:
    async def story() -> None:
        store = EndingSessions(ManualClock())
        here, there = SchemaRegistry(store), SchemaRegistry(store)
        await there.add(TOPIC, avro("a"))
        get = store.get
        gate, begun = asyncio.Event(), asyncio.Event()

        async def slowly(path: str) -> Value | None:
            value = await get(path)
            begun.set()
            await gate.wait()
            return value

        store.get = slowly  # type: ignore[method-assign]  # a slow metadata store
        reading = asyncio.ensure_future(here.versions(TOPIC))
        await begun.wait()
        store.away = told == "by the session"
        await there.add(TOPIC, avro("a", "b"))
        if store.away:
            store.tell(SessionEvent.RECONNECTED)
        gate.set()
        await reading
        assert versions_of(await here.versions(TOPIC)) == [0, 1]

    asyncio.run(story())


def test_one_broker_reads_a_topic_once_however_often_it_adds() -> None:
    async def story(store: MemoryMetadataStore) -> None:
        registry, children = SchemaRegistry(store), store.children
        asked: list[str] = []

        async def counted(path: str) -> list[str]:
            asked.append(path)
            return await children(path)

        store.children = counted  # type: ignore[method-assign]  # counts
        for name in ("b", "c", "d"):
            await registry.add(TOPIC, avro("a", name))
            assert await registry.latest(TOPIC) is not None
        assert asked == [keys.schema(TOPIC)]

    run(story)


def test_a_closed_registry_watches_no_more() -> None:
    async def story() -> None:
        store = EndingSessions(ManualClock())
        SchemaRegistry(store).close()
        assert store._told == []
        assert store._watches._callbacks == {}

    asyncio.run(story())
