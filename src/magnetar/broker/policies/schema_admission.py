"""Admits clients with or without a schema, by the rules of their topic."""

from __future__ import annotations

from typing import TYPE_CHECKING

from magnetar.base.names import TopicName
from magnetar.broker.policies.schema_rules import SchemaRules
from magnetar.schemas.errors import IncompatibleSchemaError
from magnetar.schemas.types import BYTES_TYPES, TYPES
from magnetar.wire import pulsar_pb2 as pb

if TYPE_CHECKING:
    from magnetar.broker.ports import BrokerPort
    from magnetar.schemas.registry import StoredSchema


async def rules_of(broker: BrokerPort, topic: TopicName) -> SchemaRules:
    """Raises NamespaceNotFoundError."""
    return SchemaRules.of(
        await broker.policies.topic_policies(topic),
        await broker.policies.namespace(topic.namespace_name),
        broker.config.schemas,
    )


async def admit_producer(broker: BrokerPort, topic: TopicName, schema: pb.Schema | None) -> bytes:
    """The version of a producer's schema as it travels; b"" when it has none.

    Raises IncompatibleSchemaError, InvalidSchemaError.
    """
    latest = await broker.schemas.latest(topic)
    if schema is None or (schema.type in BYTES_TYPES and not _names_bytes(schema, latest)):
        if latest is not None:
            rules = await rules_of(broker, topic)
            if rules.validation_enforced:
                raise IncompatibleSchemaError(
                    f"{topic.base} has a schema and its policy schema_validation_enforced"
                    " refuses producers without one"
                )
        return b""
    rules = await rules_of(broker, topic)
    stored = await broker.schemas.add(
        topic, schema, strategy=rules.strategy, auto_update_allowed=rules.auto_update_allowed
    )
    return stored.version_bytes


def _names_bytes(schema: pb.Schema, latest: StoredSchema | None) -> bool:
    """Whether "bytes" is the topic's schema or is to be. Most clients send no schema for bytes; those that do
    mark their messages with its version and ask for it when they read."""
    return schema.type == TYPES["NONE"] and (latest is None or latest.schema.type == schema.type)


async def admit_consumer(broker: BrokerPort, topic: TopicName, schema: pb.Schema | None) -> None:
    """Admits a consumer whose schema can read the topic; a topic without one gets it.

    Raises IncompatibleSchemaError, InvalidSchemaError.
    """
    if schema is None or schema.type in BYTES_TYPES:
        return
    rules = await rules_of(broker, topic)
    if await broker.schemas.latest(topic) is None:
        await broker.schemas.add(
            topic, schema, strategy=rules.strategy, auto_update_allowed=rules.auto_update_allowed
        )
    else:
        await broker.schemas.check(topic, schema, rules.strategy.for_consumers)
