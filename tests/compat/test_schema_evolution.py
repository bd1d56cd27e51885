"""The official client's schemas, as they change over time."""

from __future__ import annotations

import uuid

import pulsar
import pytest
from pulsar.schema import AvroSchema, Integer, JsonSchema, Record, Schema, String

from support.official import TIMEOUT_MS, connect
from support.standalone import StandaloneProcess

pytestmark = pytest.mark.process


class Old(Record):
    name = String()


class New(Record):
    name = String()
    age = Integer(default=7, required_default=True)


class Strict(Record):
    name = String()
    age = Integer(required=True)


@pytest.fixture
def topic(standalone: StandaloneProcess) -> str:
    """In a namespace of the test's own."""
    namespace = f"public/{uuid.uuid4().hex}"
    standalone.admin("PUT", f"namespaces/{namespace}")
    return f"persistent://{namespace}/t"


def policy(standalone: StandaloneProcess, topic: str, name: str, value: object, method: str) -> None:
    namespace = topic.removeprefix("persistent://").removesuffix("/t")
    standalone.admin(method, f"namespaces/{namespace}/{name}", value)


@pytest.mark.parametrize("schema", [AvroSchema, JsonSchema])
def test_old_and_new_read_each_other(standalone: StandaloneProcess, topic: str, schema: type[Schema]) -> None:
    client = connect(standalone)
    readers = [client.subscribe(topic, f"s-{kind.__name__}", schema=schema(kind)) for kind in (Old, New)]
    client.create_producer(topic, schema=schema(Old)).send(Old(name="a"))
    client.create_producer(topic, schema=schema(New)).send(New(name="b", age=1))
    for reader in readers:
        assert [reader.receive(TIMEOUT_MS).value().name for _ in range(2)] == ["a", "b"]
    client.close()


def test_what_cannot_be_read_is_refused(standalone: StandaloneProcess, topic: str) -> None:
    client = connect(standalone)
    client.create_producer(topic, schema=AvroSchema(Old))
    with pytest.raises(pulsar.IncompatibleSchema):
        client.create_producer(topic, schema=AvroSchema(Strict))
    with pytest.raises(pulsar.IncompatibleSchema):
        client.subscribe(topic, "s", schema=AvroSchema(Strict))
    with pytest.raises(pulsar.IncompatibleSchema):
        client.create_producer(topic, schema=JsonSchema(Old))
    policy(standalone, topic, "schemaCompatibilityStrategy", "FORWARD", "PUT")
    client.create_producer(topic, schema=AvroSchema(Strict)).send(Strict(name="c", age=3))
    client.close()


def test_enforced_validation_and_no_auto_update(standalone: StandaloneProcess, topic: str) -> None:
    client = connect(standalone)
    client.create_producer(topic, schema=AvroSchema(Old))
    client.create_producer(topic).close()
    policy(standalone, topic, "schemaValidationEnforced", True, "POST")
    with pytest.raises(pulsar.IncompatibleSchema):
        client.create_producer(topic)
    policy(standalone, topic, "isAllowAutoUpdateSchema", False, "POST")
    with pytest.raises(pulsar.IncompatibleSchema):
        client.create_producer(topic, schema=AvroSchema(New))
    client.create_producer(topic, schema=AvroSchema(Old)).close()
    client.close()
