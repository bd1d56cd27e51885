"""Schemas behind Pulsar's locator: written, read, overtaken, taken out of force, deleted."""

from __future__ import annotations

import asyncio
import hashlib
import re

import pytest

from fakes.ledgers import FakeLedgers
from magnetar.base.clock import ManualClock
from magnetar.base.names import TopicName
from magnetar.metadata import keys
from magnetar.metadata.documents import DamagedDocumentError
from magnetar.metadata.memory import MemoryMetadataStore
from magnetar.schemas import pulsar_schemas_pb2 as stored
from magnetar.schemas.pulsar_storage import decode_entry, encode_entry, stored_type_of, type_name
from magnetar.schemas.registry import SchemaRegistry, registry_of
from magnetar.wire import pulsar_pb2 as pb

TOPIC = TopicName.parse("persistent://acme/orders/a b")
BASE = keys.schema(TOPIC)


def avro(*fields: str) -> pb.Schema:
    made = ",".join(f'{{"name":"{name}","type":"int","default":0}}' for name in fields)
    data = f'{{"type":"record","name":"R","fields":[{made}]}}'
    schema = pb.Schema(name="a b", type=pb.Schema.Type.Avro, schema_data=data.encode())
    schema.properties.add(key="k", value="v")
    return schema


def registry(store: MemoryMetadataStore, ledgers: FakeLedgers) -> SchemaRegistry:
    return registry_of(store, ledgers, ManualClock(), for_pulsar=True)


async def locator(store: MemoryMetadataStore) -> stored.SchemaLocator:
    value = await store.get(BASE)
    assert value is not None
    return stored.SchemaLocator.FromString(value.data)


def test_versions_are_ledgers_behind_a_locator() -> None:
    async def story() -> None:
        store, ledgers = MemoryMetadataStore(ManualClock()), FakeLedgers()
        here, there = registry(store, ledgers), registry(store, ledgers)
        assert await there.latest(TOPIC) is None
        assert (await here.add(TOPIC, avro("a"))).version == 0
        assert (await there.add(TOPIC, avro("a", "b"))).version == 1
        assert (await here.add(TOPIC, avro("a", "b"))).version == 1
        found = await locator(store)
        assert [each.version for each in found.index] == [0, 1]
        assert found.info == found.index[1]
        assert found.info.hash == hashlib.sha256(avro("a", "b").schema_data).digest()
        ledger = ledgers.ledgers[found.info.position.ledgerId]
        assert ledger.closed
        assert ledger.custom_metadata == {
            "application": b"pulsar",
            "component": b"schema",
            "pulsar/schemaId": b"acme/orders/a b",
        }
        again = await registry(store, ledgers).versions(TOPIC)
        assert [each.schema for each in again] == [avro("a"), avro("a", "b")]

        assert await here.retire(TOPIC) == 2
        assert await there.latest(TOPIC) is None
        assert [each.version for each in await there.ever(TOPIC)] == [0, 1]
        assert (await there.add(TOPIC, avro("c"))).version == 3
        await there.delete(TOPIC)
        assert await store.get(BASE) is None
        assert sorted(ledgers.deleted) == sorted(each.position.ledgerId for each in found.index) + sorted(
            set(ledgers.deleted) - {each.position.ledgerId for each in found.index}
        )
        assert not ledgers.ledgers

    asyncio.run(story())


@pytest.mark.parametrize("number", [value for value in pb.Schema.Type.values() if value != 21])
def test_numbers_of_types_are_pulsars(number: int) -> None:
    assert pb.Schema.Type.Value(type_name(stored_type_of(number))) == number
    assert stored_type_of(pb.Schema.Type.Avro) == 5


def test_damage_is_told() -> None:
    good = encode_entry("t/n/x", avro("a"), [], 7)
    assert decode_entry("w", good)[1] == 7
    unknown = stored.SchemaEntry.FromString(good)
    info = stored.SchemaInfo.FromString(unknown.schema_data)
    info.type = 99
    unknown.schema_data = info.SerializeToString()
    for data in (b"\xff", b"", good[:-4], unknown.SerializeToString()):
        with pytest.raises(DamagedDocumentError):
            decode_entry("w", data)


def test_a_lost_ledger_is_named_with_the_topic() -> None:
    async def story() -> None:
        store, ledgers = MemoryMetadataStore(ManualClock()), FakeLedgers()
        await registry(store, ledgers).add(TOPIC, avro("a"))
        (lost,) = ledgers.ledgers
        await ledgers.delete(lost)
        with pytest.raises(DamagedDocumentError, match=f"{re.escape(BASE)}.*ledger {lost}.*version 0"):
            await registry(store, ledgers).latest(TOPIC)

    asyncio.run(story())
