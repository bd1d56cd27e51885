"""Policies of topics are read from Pulsar's events, and found again in its compacted ledger."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from fakes.ledgers import FakeLedgers
from magnetar.base.clock import ManualClock
from magnetar.base.ids import LedgerId, Position
from magnetar.base.names import NamespaceName, TopicName
from magnetar.broker.compaction import codec
from magnetar.broker.policies.policy_shapes import passed_over
from magnetar.ledger.whole import write_whole
from magnetar.managedlog import managedlog_pb2 as pb
from magnetar.managedlog.log_metadata import log_path
from magnetar.metadata.memory import MemoryMetadataStore
from magnetar.schemas import avro_plain
from magnetar.schemas.registry import SchemaRegistry, registry_of
from magnetar.server.adoption.change_events import ChangeEvents, Found, UnreadableEventsError
from magnetar.server.adoption.findings import AdoptionFindings
from magnetar.server.adoption.importing import take_over
from magnetar.server.adoption.topic_policies import document_of, event_of, without_place
from magnetar.wire import pulsar_pb2 as wire
from magnetar.wire.payload import build_entry

EVENTS = TopicName.parse("persistent://acme/orders/__change_events-partition-0")


def optional(kind: object) -> list[object]:
    return ["null", kind]


DEFINITION: dict[str, Any] = {
    "type": "record",
    "name": "PulsarEvent",
    "fields": [
        {"name": "actionType", "type": optional("string"), "default": None},
        {"name": "eventType", "type": optional("string"), "default": None},
        {
            "name": "topicPoliciesEvent",
            "default": None,
            "type": optional(
                {
                    "type": "record",
                    "name": "TopicPoliciesEvent",
                    "fields": [
                        *({"name": n, "type": "string"} for n in ("domain", "tenant", "namespace", "topic")),
                        {
                            "name": "policies",
                            "default": None,
                            "type": optional(
                                {
                                    "type": "record",
                                    "name": "TopicPolicies",
                                    "fields": [
                                        {"name": "isGlobal", "type": optional("boolean"), "default": None},
                                        {
                                            "name": "maxConsumerPerTopic",
                                            "type": optional("int"),
                                            "default": None,
                                        },
                                    ],
                                }
                            ),
                        },
                    ],
                }
            ),
        },
    ],
}


def event(topic: str, consumers: int, *, action: str = "UPDATE", everywhere: bool = False) -> bytes:
    about = {"domain": "persistent", "tenant": "acme", "namespace": "orders", "topic": topic}
    policies = {"isGlobal": everywhere, "maxConsumerPerTopic": consumers}
    value = {
        "actionType": action,
        "eventType": "TOPIC_POLICY",
        "topicPoliciesEvent": {**about, "policies": policies},
    }
    return entry(avro_plain.encode(DEFINITION, value), topic)


def entry(payload: bytes, topic: str, *, version: int = 0) -> bytes:
    metadata = wire.MessageMetadata(
        producer_name="p",
        sequence_id=0,
        publish_time=1,
        partition_key=f"persistent://acme/orders/{topic}",
        schema_version=version.to_bytes(8, "big"),
    )
    return build_entry(metadata, payload)


Story = Callable[[MemoryMetadataStore, FakeLedgers, SchemaRegistry], Awaitable[Found]]


async def _found(store: MemoryMetadataStore, ledgers: FakeLedgers, schemas: SchemaRegistry) -> Found:
    return await ChangeEvents(store, ledgers, schemas, NamespaceName("acme", "orders")).read()


def read(entries: list[bytes], compacted: list[bytes] | None = None, told: Story = _found) -> Found:
    """`told`: what is done with these events."""

    async def story() -> Found:
        store, ledgers, clock = MemoryMetadataStore(ManualClock()), FakeLedgers(), ManualClock()
        schemas = registry_of(store, ledgers, clock, for_pulsar=True)
        schema = wire.Schema(name="e", type=wire.Schema.Avro, schema_data=json.dumps(DEFINITION).encode())
        await schemas.add(EVENTS, schema)
        info = pb.ManagedLedgerInfo()
        info.ledgerInfo.add(ledgerId=await write_whole(ledgers, entries, {}, 1))
        await store.put(log_path(EVENTS.log_name), info.SerializeToString())
        await store.put("/managed-ledgers/acme/orders/persistent/another", b"\xff")
        if compacted is not None:
            kept = [codec.encode(Position(LedgerId(1), at), -1, each) for at, each in enumerate(compacted)]
            cursor = pb.ManagedCursorInfo(cursorsLedgerId=-1)
            cursor.properties.add(name="CompactedTopicLedger", value=await write_whole(ledgers, kept, {}, 1))
            await store.put(f"{log_path(EVENTS.log_name)}/__compaction", cursor.SerializeToString())
        return await told(store, ledgers, schemas)

    return asyncio.run(story())


def consumers(found: Found) -> dict[str, object]:
    return {
        f"{topic.local}{' everywhere' if everywhere else ''}": one.policies
        and one.policies["maxConsumerPerTopic"]
        for (topic, everywhere), one in found.items()
    }


def test_the_newest_event_of_a_topic_counts() -> None:
    entries = [event("a", 1), event("b", 2), event("a", 3), event("a", 9, everywhere=True)]
    entries += [event("b", 0, action="DELETE"), entry(b"", "c")]
    assert consumers(read(entries)) == {"a": 3, "b": None, "a everywhere": 9, "c": None}


def test_what_is_only_in_the_compacted_ledger_counts_too() -> None:
    assert consumers(read([event("a", 3)], [event("a", 1), event("b", 2)])) == {"a": 3, "b": 2}


@pytest.mark.parametrize(
    "damaged", [b"?", event("a", 1)[:-3], entry(b"\x09", "a"), entry(b"\x02", "a", version=7)]
)
def test_an_event_that_cannot_be_read_is_told(damaged: bytes) -> None:
    with pytest.raises(UnreadableEventsError, match="__change_events"):
        read([damaged])


def test_other_events_are_passed_over() -> None:
    assert event_of({"eventType": "TRANSACTION_BUFFER_SNAPSHOT"}) is None
    with pytest.raises(ValueError, match="names no topic"):
        event_of({"eventType": "TOPIC_POLICY", "topicPoliciesEvent": {"topic": None}})


def test_policies_become_documents_that_brokers_can_use() -> None:
    policies = {
        "isGlobal": False,
        "maxConsumerPerTopic": 7,
        "retentionPolicies": {"retentionTimeInMinutes": 1, "retentionSizeInMB": 2},
        "delayedDeliveryEnabled": True,
        "schemaCompatibilityStrategy": "FULL",
        "subscriptionTypesEnabled": [],
        "subscriptionPolicies": {"s": {"dispatchRate": None}},
        "shadowTopics": ["t"],
        "publishRate": None,
    }
    document = document_of(policies)
    assert document == {
        "maxConsumerPerTopic": 7,
        "retention_policies": {"retentionTimeInMinutes": 1, "retentionSizeInMB": 2},
        "schema_compatibility_strategy": "FULL",
        "delayed_delivery_policies": {"active": True, "tickTime": 1000},
        "subscriptionPolicies": {"s": {}},
    }
    assert passed_over(document, of_topic=True) == []
    assert without_place(policies) == ["shadowTopics"]


@pytest.mark.parametrize("damaged", [False, True])
def test_a_second_adoption_keeps_no_policies_of_the_first(damaged: bool) -> None:
    local = "/admin/local-policies/topic-policies/acme/orders/persistent"
    without_events = "/admin/topic-policies/acme/empty/persistent/a"
    before = {f"{local}/a", f"{local}/b", f"{local}/gone", without_events}

    async def story(store: MemoryMetadataStore, ledgers: FakeLedgers, schemas: SchemaRegistry) -> Found:
        for path in (*before, "/admin/policies/acme/orders", "/admin/policies/acme/empty"):
            await store.put(path, b'{"messageTTLInSeconds": 1}')
        findings = AdoptionFindings()
        await take_over(store, ledgers, schemas, findings)
        assert bool(findings.obstacles) is damaged
        there = {path for path in before if await store.exists(path)}
        kept = json.loads((await store.get(f"{local}/a") or pytest.fail("it is gone")).data)
        if damaged:
            assert there == before, "an adoption that is prevented changes nothing"
            assert kept == {"messageTTLInSeconds": 1}
        else:
            assert there == {f"{local}/a", without_events}
            assert kept == {"maxConsumerPerTopic": 3}
        return {}

    read([event("a", 3), event("b", 0, action="DELETE"), *([b"?"] if damaged else [])], told=story)
