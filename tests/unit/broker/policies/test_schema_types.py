"""The 22 types of schemas over the wire: registered, read by version, told from each other."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from google.protobuf import descriptor_pb2

from magnetar.schemas import key_value
from magnetar.schemas.registry import decode_version, encode_version
from magnetar.wire import pulsar_pb2 as pb
from support.sessions import TOPIC, Peer, Type, World, in_world

RECORD = b'{"type":"record","name":"R","fields":[{"name":"a","type":"int"}]}'

PRIMITIVES = [
    "String",
    "Bool",
    "Int8",
    "Int16",
    "Int32",
    "Int64",
    "Float",
    "Double",
    "Date",
    "Time",
    "Timestamp",
    "Instant",
    "LocalDate",
    "LocalTime",
    "LocalDateTime",
]


def made(kind: str, data: bytes = b"", **properties: str) -> pb.Schema:
    schema = pb.Schema(name="t", type=pb.Schema.Type.Value(kind), schema_data=data)
    # Untyped: in the generated stubs the enum value KeyValue hides the message of that name.
    pairs: Any = schema.properties
    for key, value in properties.items():
        pairs.add(key=key.replace("_", "."), value=value)
    return schema


def pair(encoding: str) -> pb.Schema:
    properties = {"key.schema.type": "STRING", "value.schema.type": "AVRO", "kv.encoding.type": encoding}
    return made("KeyValue", key_value.join(b"", RECORD), **properties)


def native() -> bytes:
    file = descriptor_pb2.FileDescriptorProto(name="m.proto", package="p", syntax="proto3")
    message = file.message_type.add(name="M")
    message.field.add(name="a", number=1, type=5, label=1, json_name="a")
    files = descriptor_pb2.FileDescriptorSet(file=[file])
    return json.dumps(
        {
            "fileDescriptorSet": base64.b64encode(files.SerializeToString()).decode(),
            "rootMessageTypeName": "p.M",
            "rootFileDescriptorName": "m.proto",
        }
    ).encode()


SCHEMAS = {
    **{kind: made(kind) for kind in PRIMITIVES},
    **{kind: made(kind, RECORD) for kind in ("Json", "Avro", "Protobuf")},
    "KeyValue": pair("INLINE"),
    "ProtobufNative": made("ProtobufNative", native()),
    "External": made("External", b"anything"),
}


async def get(peer: Peer, request_id: int, version: int | None = None) -> Any:
    more = {} if version is None else {"schema_version": encode_version(version)}
    return await peer.ask(Type.GET_SCHEMA, topic=TOPIC, request_id=request_id, **more)


@pytest.mark.parametrize("kind", SCHEMAS)
def test_a_schema_of_each_type_comes_back_as_it_was_registered(kind: str) -> None:
    async def story(world: World) -> None:
        peer = world.peer()
        schema = SCHEMAS[kind]
        answer = await peer.producer(schema=schema)
        assert decode_version(answer.schema_version) == 0
        for request_id, version in ((5, 0), (6, None)):
            found = await get(peer, request_id, version)
            assert found.schema == schema
            assert decode_version(found.schema_version) == 0
        # A producer with the same gets the same version; consumers with it, and with AUTO_CONSUME, are taken.
        assert (await peer.producer(2, request_id=7, schema=schema)).schema_version == encode_version(0)
        for number, asked in ((3, schema), (4, made("AutoConsume"))):
            answer = await peer.consumer(
                number, request_id=7 + number, subscription=f"s{number}", schema=asked
            )
            assert answer.DESCRIPTOR.name == "CommandSuccess", answer
        # Any other type is refused.
        other = made("String") if kind != "String" else made("Int32")
        answer = await peer.producer(9, request_id=20, schema=other)
        assert answer.error == pb.IncompatibleSchema

    in_world(story)


@pytest.mark.parametrize("kind", ["None", "AutoConsume"])
def test_types_that_stand_for_no_schema_ask_for_nothing(kind: str) -> None:
    async def story(world: World) -> None:
        peer = world.peer()
        await peer.producer(schema=SCHEMAS["Avro"])
        answer = await peer.producer(2, request_id=2, schema=made(kind))
        assert answer.DESCRIPTOR.name == "CommandProducerSuccess"
        assert len(await world.broker.schemas.versions((await world.topic()).name)) == 1

    in_world(story)


def test_all_types_of_the_protocol_are_covered() -> None:
    assert {*SCHEMAS, "None", "AutoConsume"} == set(pb.Schema.Type.keys())


def test_inline_and_separated_pairs_are_different_schemas() -> None:
    async def story(world: World) -> None:
        peer = world.peer()
        await peer.producer(schema=pair("INLINE"))
        second = await peer.producer(2, request_id=2, schema=pair("SEPARATED"))
        assert decode_version(second.schema_version) == 1
        for request_id, (version, encoding) in enumerate(((0, "INLINE"), (1, "SEPARATED")), 10):
            found = await get(peer, request_id, version)
            assert key_value.properties(found.schema)["kv.encoding.type"] == encoding

    in_world(story)


def test_a_version_that_is_not_there() -> None:
    async def story(world: World) -> None:
        peer = world.peer()
        assert (await get(peer, 1)).error_code == pb.TopicNotFound
        await peer.producer(request_id=2, schema=SCHEMAS["Avro"])
        assert (await get(peer, 3, 7)).error_code == pb.TopicNotFound
        answer = await peer.ask(Type.GET_SCHEMA, topic=TOPIC, request_id=4, schema_version=b"short")
        assert answer.error_code == pb.NotAllowedError

    in_world(story)


def test_clients_that_produce_by_the_message_get_or_create() -> None:
    """AUTO_PRODUCE and Java's per-message schemas: the version is asked for when a schema first occurs."""

    async def story(world: World) -> None:
        peer = world.peer()
        await peer.producer(schema=SCHEMAS["Avro"])
        grown = RECORD.replace(b"}]}", b'},{"name":"b","type":"int","default":1}]}')
        versions = []
        for request_id, data in enumerate((RECORD, grown, grown), 10):
            answer = await peer.ask(
                Type.GET_OR_CREATE_SCHEMA, topic=TOPIC, request_id=request_id, schema=made("Avro", data)
            )
            versions.append(decode_version(answer.schema_version))
        assert versions == [0, 1, 1]
        answer = await peer.ask(
            Type.GET_OR_CREATE_SCHEMA, topic=TOPIC, request_id=20, schema=SCHEMAS["String"]
        )
        assert answer.error_code == pb.IncompatibleSchema

    in_world(story)
